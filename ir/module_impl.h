/* module_impl.h: internals of a module, shared by the files of ir/ only. */
#ifndef SN_MODULE_IMPL_H
#define SN_MODULE_IMPL_H

#include "ir/dims_impl.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <xxhash.h>

typedef struct sn_table { /* open addressing over pointers; grows by rehashing in the arena */
    void **slot;
    uint32_t size, used;
} sn_table;

typedef struct sn_chunk { /* of the arena: mapped, zeroed, never moved; starts with its header */
    struct sn_chunk *next;
    size_t size, used;
} sn_chunk;

/* A mapping of nodes that is empty between uses: making one for each of a graph's many regions would
 * take memory that grows with the square of the graph. */
typedef struct sn_node_map {
    sn_node **to;  /* [cap] by id; NULL: not mapped */
    uint32_t *set; /* [n_set] ids that are mapped */
    int n_set, cap_set;
    uint32_t cap;
    struct sn_node_map *next;
} sn_node_map;

/* Marks of nodes, zero between uses. */
typedef struct sn_marks {
    struct sn_marks *next;
    size_t n, cap; /* bytes in use, and in all */
    uint8_t of[];  /* by id */
} sn_marks;

struct sn_module {
    sn_chunk *chunk;   /* the newest; the module itself is in the oldest */
    sn_chunk *reserve; /* for the call during which memory runs out; NULL: used up */
    size_t mapped;     /* bytes of all chunks */
    jmp_buf *guard;    /* where a failed allocation jumps to; NULL: nowhere */
    atomic_int owners; /* reference count: the user and every program */
    const char *name;
    sn_error error;
    sn_node *error_node;
    sn_loc loc;
    bool entered; /* an entry was begun; null_op.c */
    sn_mesh_axis mesh[SN_MAX_MESH_AXES];
    int n_mesh;
    struct sn_rank_dim { /* a symbol whose value is a rank */
        int symbol;
        const char *mesh;
        int64_t by;
    } * rank_dim; /* [n_rank_dim] */
    int n_rank_dim, cap_rank_dim;
    const char *callback; /* name of the running callback; NULL: none */
    bool raw;
    const sn_node *
        composite; /* the outermost composite being expanded (op and operands only), for messages */
    sn_node **node; /* [n_node] by id */
    uint32_t n_node, cap_node;
    uint32_t *stamp, epoch; /* [cap_node] visited marks of walks */
    sn_node **walk;         /* [n_walk] what a walk has found; room for the next one */
    int n_walk, cap_walk;
    sn_node_map *maps; /* those not in use */
    sn_marks *marks;   /* the same */
    sn_table nodes, strings, regions;
    sn_entry **entry;
    int n_entry, cap_entry;
    struct sn_dims dims;
    sn_note *note; /* [n_note] */
    int n_note;
    sn_accepted *accepted; /* [n_accepted] */
    int n_accepted, cap_accepted;
    sn_text *text; /* [n_text] */
    int n_text, cap_text;
    void *frontend;     /* the frontend's state; arena memory */
    sn_node **replaced; /* [2 n_replaced] pairs: a node, and the node that replaces it */
    int n_replaced;
    const struct pulled *pulled; /* decomp_attention.c: regions that gradients share */
    sn_lineage *lineage;         /* [n_lineage] if keep_lineage */
    int n_lineage, cap_lineage;
    bool keep_lineage;
};

struct sn_entries {
    sn_entry **entry;
    int n;
    sn_node **replaced; /* of the module, as the entries are */
    int n_replaced;
};

/* ---- arena.c ---- */

/* A module in the first chunk of its own arena, all zeros; NULL: out of memory. sn_arena_end gives everything back. */
sn_module *sn_arena_begin(void);
void sn_arena_end(sn_module *m);
void *sn_arena_copy(sn_module *m, const void *p, size_t bytes);
/* A copy of `used` items with room for `capacity`. */
void *sn_arena_resize(sn_module *m, void *old, size_t used, size_t capacity, size_t item);

/* same() compares a stored item with the key of a look-up. */
typedef bool (*sn_same_fn)(const void *item, const void *key);
typedef uint64_t (*sn_hash_fn)(const void *item);

/* The slot of an item, or the empty one where it belongs; the table has room, by sn_table_reserve. */
void **sn_table_find(sn_table *t, uint64_t hash, sn_same_fn same, const void *key);
void sn_table_reserve(sn_module *m, sn_table *t, sn_hash_fn hash_of);

/* ---- attr.c, region.c ---- */

static inline uint64_t sn_hash_word(uint64_t word, uint64_t seed) {
    return XXH3_64bits_withSeed(&word, sizeof word, seed);
}

/* Hashes depend on structure only, not on addresses or ids. So the order of commutative operands, and with it
 * text and kernel keys, are the same in every module. */
uint64_t sn_attr_hash(const sn_module *m, const sn_attr *a, uint64_t seed);
uint64_t sn_region_hash(const void *region);
bool sn_attr_same(const sn_attr *a, const sn_attr *b);
void sn_attrs_sort(sn_attr *dst, int n, const sn_attr *src);
/* Moves strings and lists to the arena. */
void sn_attrs_keep(sn_module *m, sn_attr *a, int n);

/* The operands with types, shapes and names, for messages (infer.c). */
int sn_operands_print(int n_in, sn_node *const *in, char *buf, size_t size);

#endif
