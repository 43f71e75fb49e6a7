/* shard.h: inside the pass shard: what a rank holds of each node, and how it is changed. */
#ifndef SN_SHARD_H
#define SN_SHARD_H

#include "passes/passes.h"

/* A part of a divided axis: each rank has an equal share of it. zero: all elements are 0, so it may
 * be divided further. reversed: rank 0 has the last share. */
typedef struct sh_part {
    int64_t size;
    bool zero, reversed;
} sh_part;

typedef enum sh_kind {
    SH_WHOLE,  /* every rank holds all of it */
    SH_SPLIT,  /* a rank holds its share of each part of `axis`, one after another */
    SH_PARTIAL /* the sum over the ranks is the value */
} sh_kind;

typedef struct sh_layout {
    sh_kind kind;
    int axis, n_part;
    const sh_part *part; /* [n_part]; one alone need not be a multiple of the ranks */
    /* > 0: how many ranks of another mesh axis divide the share again, by rows (axis 0), and each holds a
     * part of it (nested.c). `part` describes the share. */
    int64_t nested;
} sh_layout;

/* What a rank holds of a node of the user's graph; n NULL: not known yet. */
typedef struct sh_local {
    sn_node *n;
    sh_layout at;
} sh_local;

typedef struct sh_leaf { /* a divided parameter or state */
    const char *name;
    sh_layout at;
} sh_leaf;

typedef struct sharder sharder;
struct sharder {
    sn_passes *p;
    sn_module *m;
    const char *mesh;
    int64_t ranks;
    sn_dim rank;  /* of the program: a symbolic dim, the same for all */
    sh_local *of; /* [n_of] by id of the user's nodes */
    uint32_t n_of;
    sh_leaf *leaf; /* [n_leaf] */
    int n_leaf, cap_leaf;
    /* what this walk has divided for lack of knowledge of a state; NULL: nothing */
    const char *guessed;
    sh_local (*compute)(sharder *s, sn_node *n); /* what `of` does not know yet */
};

static inline bool sh_done(sh_local *out, sn_node *n, sh_layout at) {
    *out = (sh_local){n, at};
    return true;
}

static inline bool sh_is_split(const sh_local *x, int axis) {
    return x->at.kind == SH_SPLIT && x->at.axis == axis;
}

/* ---- layout.c ---- */

sh_layout sh_whole_layout(void);
sh_layout sh_partial_layout(void);
/* One part of that many elements. */
sh_layout sh_split_layout(sharder *s, int axis, int64_t size);
sh_layout sh_parts_layout(sharder *s, int axis, int n, const int64_t *size);
sh_layout sh_on_axis(sh_layout l, int axis);         /* the same parts of another axis */
sh_layout sh_without_zeros(sharder *s, sh_layout l); /* the same parts, of unknown content */
/* Two halves, the second one reversed: under a causal mask all ranks have equal work. */
sh_layout sh_zigzag_layout(sharder *s, int axis, int64_t size);
bool sh_is_zigzag(const sh_layout *l);
bool sh_is_one_part(const sh_layout *l);       /* the share of rank r is the r-th of the axis */
bool sh_is_reversed(const sh_layout *l);       /* a part is */
sh_layout sh_forward(sharder *s, sh_layout l); /* the same parts, none of them reversed */
/* Elements of the axis: of all ranks; of one rank's share, which it may hold in part (sh_held). */
int64_t sh_size(const sh_layout *l);
int64_t sh_share(const sharder *s, const sh_layout *l);
int64_t sh_held(const sharder *s, const sh_layout *l);
bool sh_is_padded(const sharder *s, const sh_layout *l); /* the last rank's share is not full */
/* Both are SPLIT along one axis in the same way; *out: the finer one. out may be NULL. */
bool sh_merge(sharder *s, const sh_layout *a, const sh_layout *b, sh_layout *out);
/* An axis of that many elements can be divided without rest. */
bool sh_divides(const sharder *s, sn_dim size, int64_t *elements);
/* n's shape as a rank holds it. */
void sh_shape(const sharder *s, const sn_node *n, const sh_layout *l, sn_dim shape[SN_MAX_RANK]);

/* x, a local value of node n, in another layout. */
sn_node *sh_to_whole(sharder *s, const sh_local *x);
sn_node *sh_to_split(sharder *s, const sh_local *x, const sh_layout *l);
/* The number of the first element of this rank, of shares of that size: a scalar of like's type. */
sn_node *sh_first(sharder *s, int64_t share, const sn_node *like);
/* A padded SPLIT value, with `value` where the axis has ended; others as they are. */
sn_node *sh_fill(sharder *s, const sh_local *x, double value);
/* x of every rank on a new first axis [ranks, ..]. */
sn_node *sh_gather(sharder *s, sn_node *x);

sh_local sh_local_of(sharder *s, sn_node *n);                  /* of a node of the user's graph */
sn_node *sh_whole(sharder *s, sn_node *n);                     /* the same as a whole */
sn_node *sh_split(sharder *s, sn_node *n, const sh_layout *l); /* divided in this way */

/* ---- rules.c, products.c ---- */

/* Finds what a rank holds of n from what it holds of its operands, which are not all whole. False:
 * no rule; then a composite is taken apart, and another operation gets whole operands. */
typedef bool sh_rule(sharder *s, sn_node *n, sh_local *out);
sh_rule *sh_rule_of(sn_op op);      /* NULL: none */
sh_rule *sh_product_rule(sn_op op); /* products.c: products, look-ups, attention */
sh_rule sh_elementwise;             /* rules.c */
/* heads.c, rows.c: attention and its gradient, divided by heads or rows */
sh_rule sh_attention_heads, sh_attention_grad_heads, sh_attention_rows, sh_attention_grad_rows;

/* mask.c */
/* Whether these queries certainly see none of these keys: first and last position. */
bool sh_hides(sn_module *m, const sn_region *mask, const int64_t q[2], const int64_t k[2]);
/* n positions; each rank has `halves` blocks of them. True: the mask hides all later blocks from a
 * query, and those more than *behind before its own. */
bool sh_find_behind(const sharder *s, const sn_region *mask, int64_t n, int64_t halves,
                    int64_t *behind);

/* ---- nested.c: what other ranks divide, too (ZeRO) ---- */

bool sh_has_nested(sharder *s, const sn_node *n); /* an operand is */
/* All rules that know such operands; false: there is none for n. */
sh_rule sh_nested;
/* Parts of shares among the ranks of another mesh axis, and wholes of parts; NULL: n is something else. */
sh_rule *sh_part_rule(sn_op op);
/* The parameter or state whose parts n gathers; NULL: it is something else. */
const sn_node *sh_gathered_leaf(const sn_node *n);
/* How it is divided if the whole n is divided as l; false: the parts cannot be. */
bool sh_nest(sharder *s, const sn_node *n, sh_layout l, sh_layout *out);

#endif
