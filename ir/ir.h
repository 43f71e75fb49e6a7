/* ir.h: the tensor IR. Types first, then every function under the file that contains it.
 *
 * A module is an arena: it owns its nodes, dimensions, regions and strings, which sn_module_free
 * frees together. A node is immutable and interned when created: equal pure nodes are one node
 * (compare pointers). A pass builds new nodes and redirects the entries' outputs to them; nodes
 * that no entry reaches are dead. Errors are sticky (sn_module_error): after the first one every
 * constructor returns the module's error node, which all others accept. A module may be used by one
 * thread at a time. */
#ifndef SN_IR_H
#define SN_IR_H

#include "runtime/base.h"

#include <stdio.h>

#define SN_MAX_RANK 8
#define SN_MAX_RESULTS 16
#define SN_MAX_ELEMENTS ((int64_t)1 << 48) /* per tensor, so that sizes in bytes cannot overflow */

typedef struct sn_module sn_module;
typedef struct sn_node sn_node;
typedef struct sn_region sn_region;

/* A dimension: a number above -2^40 is itself; one below is a handle of an integer polynomial of
 * symbolic dims in its module. Polynomials are interned: equal dims are equal numbers. */
typedef int64_t sn_dim;

typedef enum sn_op {
#define ELEM(name, ...) SN_OP_##name,
#define PRIM(name, ...) SN_OP_##name,
#define COMP(name, ...) SN_OP_##name,
#define FUSED(name, ...) SN_OP_##name,
#include "ir/ops.def"
    SN_OP_COUNT
} sn_op;

typedef enum sn_op_kind { SN_ELEM, SN_PRIM, SN_COMP, SN_FUSED } sn_op_kind;

enum {
#define FLAG(name, bit, doc) SN_OPF_##name = 1 << bit,
#include "ir/ops.def"
};

typedef struct sn_op_info {
    const char *name, *doc;
    sn_op_kind kind;
    int min_in, max_in; /* max_in < 0: no limit */
    unsigned flags;
    const char *rule; /* of shapes and dtypes, for messages and the manual; "" for COMP and FUSED */
} sn_op_info;

typedef enum sn_attr_key {
#define ATTR(name, kind, doc) SN_A_##name,
#include "ir/attrs.def"
#undef ATTR
    SN_ATTR_COUNT
} sn_attr_key;

typedef enum sn_attr_kind {
    SN_AK_INT,
    SN_AK_FLT,
    SN_AK_STR,
    SN_AK_DTYPE,
    SN_AK_DIM,
    SN_AK_DIMS,
    SN_AK_INTS,
    SN_AK_REGION
} sn_attr_kind;

typedef struct sn_attr {
    sn_attr_key key;
    int n; /* length of ints or dims */
    union {
        int64_t i;          /* INT, DTYPE, DIM */
        double f;           /* FLT */
        const char *s;      /* STR */
        const int64_t *v;   /* INTS, DIMS */
        const sn_region *r; /* REGION */
    };
} sn_attr;

/* Shorthands for attribute lists: SN_ATTRS(SN_INT(axis, 1), SN_FLT(eps, 1e-5)) expands to "count,
 * array". */
#define SN_INT(k, x) ((sn_attr){.key = SN_A_##k, .i = (x)})
#define SN_FLT(k, x) ((sn_attr){.key = SN_A_##k, .f = (x)})
#define SN_STR(k, x) ((sn_attr){.key = SN_A_##k, .s = (x)})
#define SN_LIST(k, len, x) ((sn_attr){.key = SN_A_##k, .n = (len), .v = (x)})
#define SN_REG(k, x) ((sn_attr){.key = SN_A_##k, .r = (x)})
#define SN_ATTRS(...)                                                                              \
    (int)(sizeof((sn_attr[]){__VA_ARGS__}) / sizeof(sn_attr)), (const sn_attr[]) {                 \
        __VA_ARGS__                                                                                \
    }
#define SN_NO_ATTRS 0, NULL

/* Parameters; anything else that differs between runs or elements. */
enum { SN_LEAF_PARAM = 1, SN_LEAF_OTHER = 2 };

struct sn_node {
    sn_module *m;
    uint32_t id;   /* in order of creation: operands have smaller ids */
    uint16_t op;   /* sn_op */
    uint8_t dtype; /* sn_dtype; of result 0 for a node with several results */
    uint8_t rank;
    uint16_t n_in, n_attr;
    const sn_dim *shape;    /* [rank]; of result 0 for a node with several */
    sn_node *const *in;     /* [n_in] */
    const sn_attr *attr;    /* [n_attr], ascending keys */
    sn_node *decomposition; /* COMP: one level down; otherwise NULL */
    sn_loc loc;             /* source location in the user's code (of the first of equal nodes) */
    /* XXH3 of op, attributes, operands: depends on structure, not on addresses or ids */
    uint64_t hash;
    uint32_t depth;   /* longest path to a leaf */
    uint8_t n_result; /* 1, or the number of results; `result` nodes select them */
    uint8_t leaves;   /* SN_LEAF_… of all leaves that it depends on, except constants */
    const sn_node *const
        *result_type; /* [n_result] nodes of the same dtype and shape, if n_result > 1 */
};

/* The attribute `weights` of attention: what becomes of the scores of a row. */
typedef enum sn_weights_kind {
    SN_WEIGHTS_SOFTMAX,
    SN_WEIGHTS_PLAIN,  /* they are the weights */
    SN_WEIGHTS_SUM,    /* divided by their sum */
    SN_WEIGHTS_ABS_SUM /* divided by max(|sum|, 1) */
} sn_weights_kind;

/* The attribute `invariant` of kernels: what must not change the bits of their results, sn_options.invariant. */
enum { SN_INVARIANT_BATCH = 1, SN_INVARIANT_CHUNK = 2 };

/* Parts of queries (attribute query_parts of flash_mixed_grad) have a multiple of so many: whole vectors
 * of every target. */
enum { SN_MIXED_PART_ROWS = 16 };

/* A closed sub-graph: its nodes depend on its arguments only. Arguments are `arg` nodes with index
 * 0 .. n_arg-1. */
struct sn_region {
    int n_arg, n_out;
    sn_node *const *arg;
    sn_node *const *out;
};

/* A named tensor of an entry. */
typedef struct sn_binding {
    const char *name;
    sn_node *node;
} sn_binding;

/* One function of the compiled program. Inputs are the `input` nodes that its outputs and
 * assignments reach. */
typedef struct sn_entry {
    const char *name;
    sn_binding *output; /* [n_output] */
    int n_output;
    sn_binding *assign; /* [n_assign] name of a state, its value after the call */
    int n_assign;
    sn_binding *tap; /* [n_tap] tensors named by sn_name: may become outputs at compile time */
    int n_tap;
} sn_entry;

/* A symbolic dimension with the range its value may take. */
typedef struct sn_symbol {
    const char *name;
    int64_t lo, hi;
} sn_symbol;
enum { SN_MAX_SYMBOLS = 16 }; /* of a module */

/* The dimension `of` divided by a number and rounded up: a factor like a symbol, whose value follows. */
typedef struct sn_quot {
    sn_dim of;
    int64_t by;
} sn_quot;

/* ir/arena.c, module.c, graph.c, entries.c, walk.c, region.c — the module and its nodes */
sn_module *sn_module_new(const char *name); /* NULL: out of memory */
void sn_module_free(sn_module *m);          /* frees the memory if this is the last reference */
/* adds a reference, to be released by sn_module_free; thread-safe */
sn_module *sn_module_retain(sn_module *m);
const char *sn_module_name(const sn_module *m);
sn_error *sn_module_error(sn_module *m); /* the sticky error; code 0: none */
/* true: no error so far; otherwise copies it to err */
bool sn_module_ok(sn_module *m, sn_error *err);
/* records the error with its location; returns the error node */
sn_node *sn_module_fail(sn_module *m, sn_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
sn_node *sn_module_error_node(sn_module *m);
/* A note for the user about a node, shown by `explain`. */
typedef struct sn_note {
    const sn_node *about;
    const char *text;
} sn_note;
void sn_module_note(sn_module *m, const sn_node *about, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int sn_module_notes(const sn_module *m, const sn_note **list); /* returns their number */
/* That nothing in x's line is fused is accepted, as the user says at `at`. */
typedef struct sn_accepted {
    const sn_node *x;
    sn_loc at;
} sn_accepted;
void sn_module_accept(sn_module *m, const sn_node *x, sn_loc at);
int sn_module_accepted(const sn_module *m, const sn_accepted **list); /* returns their number */
/* What a name means to users of the model: of an input, output or dim of `entry`, or (NULL) of any entry; of a leaf: a
 * state or a parameter, of any entry. A later text for the same replaces it. */
enum { SN_MAX_TEXT = 255, SN_TEXT_IN = SN_MAX_TEXT + 4 }; /* bytes; in parentheses */
typedef enum sn_text_kind {
    SN_TEXT_LEAF,
    SN_TEXT_INPUT,
    SN_TEXT_OUTPUT,
    SN_TEXT_DIM,
    SN_TEXT_KINDS
} sn_text_kind;
typedef struct sn_text {
    sn_text_kind kind;
    const char *entry, *name, *text;
} sn_text;
/* Why it cannot be such a text (one line, which also fits into a comment of C); NULL: it can. */
const char *sn_text_problem(sn_module *m, const char *text);
void sn_module_describe(sn_module *m, sn_text_kind kind, const char *entry, const char *name,
                        const char *text);
int sn_module_texts(const sn_module *m, const sn_text **list); /* returns their number */
/* That for the entry, else that for any; NULL: none. */
const char *sn_module_text(const sn_module *m, sn_text_kind kind, const char *entry,
                           const char *name);
/* " (text)" for messages; "": none. Returns `to`. */
const char *sn_module_text_in(const sn_module *m, sn_text_kind kind, const char *entry,
                              const char *name, char to[SN_TEXT_IN]);
void sn_module_set_loc(sn_module *m, sn_loc loc); /* location of the nodes created next */
sn_loc sn_module_loc(const sn_module *m);
/* An operation whose operands are all NULL has no module for its error. The first one since this
 * thread began an entry of m is an error of m once it is reported (null_op.c). */
void sn_null_op_begin(sn_module *m);
void sn_null_op(const char *op, sn_loc at);
void sn_null_op_report(sn_module *m);
/* The name of the user's callback that is running ("score"), for messages; NULL: none. */
void sn_module_set_callback(sn_module *m, const char *name);
const char *sn_module_callback(const sn_module *m);
void **sn_module_frontend(sn_module *m); /* the frontend's state; initially NULL */
/* raw: no folding when nodes are created (text under test) */
void sn_module_set_raw(sn_module *m, bool raw);
/* Zeroed memory, 16-byte aligned; never NULL. When out of memory, the module gets SN_ERR_MEMORY and
 * the innermost sn_module_try is left. */
void *sn_arena_alloc(sn_module *m, size_t bytes);
/* Calls fn(ctx). False: fn was aborted because the module ran out of memory; what it had allocated
 * outside the arena is leaked. Everything that may run long uses it: compiling, gradients,
 * parsing. */
bool sn_module_try(sn_module *m, void (*fn)(void *ctx), void *ctx);
/* A list of n items with room for one more: itself, or a copy of twice the capacity. n = *cap = 0:
 * new. */
void *sn_arena_grow(sn_module *m, void *list, size_t item, int n, int *cap);
/* An interned copy. */
const char *sn_arena_str(sn_module *m, const char *s);
const char *sn_arena_printf(sn_module *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

extern const sn_op_info sn_ops[SN_OP_COUNT];
extern const struct sn_attr_info {
    const char *name, *doc;
    sn_attr_kind kind;
} sn_attr_table[SN_ATTR_COUNT];
bool sn_op_parse(const char *name, sn_op *out);

/* The only constructor: infers type and shape, checks, folds (unless raw), interns. Copies operands
 * and attributes. */
sn_node *sn_node_new(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                     const sn_attr *attr);
/* The same node with other operands, for rebuilding a graph. */
sn_node *sn_node_with(const sn_node *n, sn_node *const *in);
#define SN_NODE(m, op, attrs, ...)                                                                 \
    sn_node_new(m, SN_OP_##op, (int)(sizeof((sn_node *[]){__VA_ARGS__}) / sizeof(sn_node *)),      \
                (sn_node *[]){__VA_ARGS__}, attrs)

static inline bool sn_is_float(const sn_node *n) {
    return sn_dtype_is_float((sn_dtype)n->dtype);
}
static inline bool sn_is_elementwise(const sn_node *n) {
    return sn_ops[n->op].kind == SN_ELEM;
}
const sn_attr *sn_attr_find(int n, const sn_attr *attr, sn_attr_key key); /* of a list; NULL */
const sn_attr *sn_attr_get(const sn_node *n, sn_attr_key key);            /* NULL: absent */
int64_t sn_attr_int(const sn_node *n, sn_attr_key key, int64_t otherwise);
double sn_attr_flt(const sn_node *n, sn_attr_key key, double otherwise);
const char *sn_attr_str(const sn_node *n, sn_attr_key key, const char *otherwise);
const sn_region *sn_attr_region(const sn_node *n, sn_attr_key key); /* NULL: absent */

uint32_t sn_module_node_count(const sn_module *m);
sn_node *sn_module_node(const sn_module *m, uint32_t id);

sn_entry *sn_entry_get(sn_module *m, const char *name); /* NULL: none of that name */
/* returns the existing one if there is one; makes it current */
sn_entry *sn_entry_add(sn_module *m, const char *name);
int sn_entry_count(const sn_module *m);
sn_entry *sn_entry_at(const sn_module *m, int i);
void sn_entry_remove(sn_module *m, int i);
void sn_entry_output(sn_module *m, sn_entry *e, const char *name, sn_node *n);
void sn_entry_assign(sn_module *m, sn_entry *e, const char *state,
                     sn_node *value); /* replaces an earlier one of that name */
void sn_entry_tap(sn_module *m, sn_entry *e, const char *name, sn_node *n);

/* Deep copies of all entries: a compilation rewrites entries, then restores what the user built. */
typedef struct sn_entries sn_entries;
sn_entries *sn_entries_save(sn_module *m);
void sn_entries_restore(sn_module *m, sn_entries *saved);
void sn_entries_clear(sn_module *m); /* removes all; saved ones can be restored */

sn_region *sn_region_new(sn_module *m, int n_arg, sn_node *const *arg, int n_out,
                         sn_node *const *out); /* interned; error if not closed */

/* Nodes reachable from the roots, operands first, each once; does not enter regions. Arena
 * memory. */
typedef struct sn_order {
    sn_node **node;
    int n;
} sn_order;
sn_order sn_topo(sn_module *m, int n_root, sn_node *const *root);
sn_order sn_entry_topo(sn_module *m, const sn_entry *e); /* of its outputs and assignments */
sn_order sn_region_topo(sn_module *m, const sn_region *r);

/* ir/mesh.c — the mesh of ranks: named axes; this module's program is for one rank on each. */
enum { SN_MAX_MESH_AXES = 8 };
/* Adds an axis, or changes that of the same name; at most SN_MAX_MESH_AXES. */
void sn_module_set_mesh(sn_module *m, sn_mesh_axis axis);
int sn_module_mesh(const sn_module *m, const sn_mesh_axis **list); /* returns their number */
/* The axis of that name; size 1 if there is none. */
sn_mesh_axis sn_module_mesh_axis(const sn_module *m, const char *name);
/* The place on an axis of `ranks` ranks, divided by `by` and rounded down, as a symbolic dim: so all
 * ranks have the same graph. Its values are those of sn_module_place. */
sn_dim sn_module_rank(sn_module *m, const char *mesh, int64_t ranks, int64_t by);
/* Sets the values of these dims to the program's place: those of symbol [sn_symbol_count] for which
 * known [the same], unless NULL, becomes true. */
void sn_module_place(const sn_module *m, int64_t *symbol, bool *known);

/* Zero bytes, one for each node that exists, where a walk marks what it has seen; close takes them back, and the next
 * walk uses the same memory. */
uint8_t *sn_marks_open(sn_module *m);
void sn_marks_close(sn_module *m, uint8_t *marks);

/* ir/rewrite.c — the basis of all passes */
/* Rebuilds the graph below the roots, operands first; `rule` gets each rebuilt node and returns it
 * or a replacement of the same type. Returns the number of replaced nodes. Roots are updated in
 * place. */
typedef sn_node *(*sn_rule)(void *ctx, sn_node *n);
int sn_rewrite(sn_module *m, int n_root, sn_node **root, sn_rule rule, void *ctx);
/* Every entry's outputs, assignments and taps, and what sn_replace recorded. */
int sn_rewrite_module(sn_module *m, sn_rule rule, void *ctx);
/* Records that `from` is to be computed as `to`, which has the same value, dtype and shape: what a
 * rule replaced before sn_grad took the gradient, so that results and gradients share one graph. The
 * first replacement of a node counts. */
void sn_replace(sn_node *from, sn_node *to);
/* Makes the recorded replacements in every entry with such a gradient; returns how many nodes
 * changed. */
int sn_replace_module(sn_module *m);
/* The entry of that name among saved ones; NULL: none. */
const sn_entry *sn_entries_find(const sn_entries *saved, const char *name);
/* What became of nodes, for reports: node `from` was replaced by node `to`, by id, in the order of the
 * rewrites. Recorded while it is switched on. */
typedef struct sn_lineage {
    uint32_t from, to;
} sn_lineage;
void sn_lineage_keep(sn_module *m, bool keep);
void sn_lineage_add(const sn_node *from, const sn_node *to);
/* The same for to[i], if not NULL, and the node with id i. */
void sn_lineage_add_map(sn_module *m, sn_node *const *to, uint32_t n);
int sn_lineage_list(const sn_module *m, const sn_lineage **list); /* returns their number */
/* The region's results with its arguments replaced by `arg` (same types). results: [n_out]. */
void sn_region_inline(const sn_region *r, sn_node *const *arg, sn_node **results);
/* Applies the scalar region elementwise: arguments of rank 0 become tensors of one common shape
 * `shape`; arguments of higher rank (captured tensors, read by gather_nd) are passed unchanged. */
void sn_region_map(const sn_region *r, sn_node *const *arg, int rank, const sn_dim *shape,
                   sn_node **results);
/* The region that computes `out` from the `cut` nodes, which become arguments 0 .. n_cut-1. */
sn_region *sn_region_extract(sn_module *m, int n_cut, sn_node *const *cut, int n_out,
                             sn_node *const *out);

/* ir/dim.c — dimensions: integer polynomials of symbolic dims with bounds */
sn_dim sn_symbol_add(sn_module *m, const char *name, int64_t lo,
                     int64_t hi); /* or the existing one (bounds must agree) */
int sn_symbol_count(const sn_module *m);
const sn_symbol *sn_symbol_at(const sn_module *m, int i);
int sn_symbol_find(const sn_module *m, const char *name); /* -1: none */
sn_dim sn_dim_const(sn_module *m, int64_t v);
sn_dim sn_dim_add(sn_module *m, sn_dim a, sn_dim b);
sn_dim sn_dim_sub(sn_module *m, sn_dim a, sn_dim b);
sn_dim sn_dim_mul(sn_module *m, sn_dim a, sn_dim b);
bool sn_dim_div(sn_module *m, sn_dim a, sn_dim b,
                sn_dim *quotient); /* exact division; false: not exact */
/* a / by rounded up, for by >= 1 and a > -by; at most SN_MAX_QUOTS that are not polynomials. */
sn_dim sn_dim_div_up(sn_module *m, sn_dim a, int64_t by);
/* used[s] becomes true for the symbols that d depends on. */
void sn_dim_symbols(const sn_module *m, sn_dim d, bool *used);
bool sn_dim_valid(const sn_module *m, sn_dim d); /* false: below -2^40, but no dim of m */
bool sn_dim_is_const(const sn_module *m, sn_dim d, int64_t *value); /* value may be NULL */
int64_t sn_dim_lo(const sn_module *m, sn_dim d); /* bounds over the symbols' ranges (saturated) */
int64_t sn_dim_hi(const sn_module *m, sn_dim d);
bool sn_dim_le(sn_module *m, sn_dim a, sn_dim b);   /* provably a <= b */
uint64_t sn_dim_hash(const sn_module *m, sn_dim d); /* of the polynomial and its symbols' names */
int64_t sn_dim_eval(const sn_module *m, sn_dim d, const int64_t *symbol_values);
sn_dim sn_dim_product(sn_module *m, int n, const sn_dim *d);
/* The polynomial's terms, for printers and code generators: coefficient and exponent of each
 * symbol. */
int sn_dim_terms(const sn_module *m, sn_dim d);
int64_t sn_dim_term(
    const sn_module *m, sn_dim d, int i,
    const uint8_t **exponent); /* [sn_symbol_count]; of quotients from [SN_MAX_SYMBOLS] on */
int sn_quot_count(const sn_module *m);
sn_quot sn_quot_at(const sn_module *m, int i);
int sn_dim_print(const sn_module *m, sn_dim d, char *buf, size_t size); /* "2*B*T+1"; as snprintf */
bool sn_dim_parse(sn_module *m, const char **text,
                  sn_dim *out); /* advances text; symbols must exist */
int sn_shape_print(const sn_module *m, int rank, const sn_dim *shape, char *buf,
                   size_t size); /* "[B,T,768]" */

/* ir/infer*.c — types and shapes, one function per rule. Fails the module with a message and returns
 * false. */
typedef struct sn_type {
    sn_dtype dtype;
    int rank;
    sn_dim shape[SN_MAX_RANK];
} sn_type;
bool sn_infer(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr, const sn_attr *attr,
              int *n_result, sn_type result[SN_MAX_RESULTS]);

/* ir/build.c — short constructors for passes and decompositions (no location, types must fit) */
sn_node *sn_b_const(sn_module *m, sn_dtype t, double v);
sn_node *sn_b_unary(sn_op op, sn_node *x);
sn_node *sn_b_binary(sn_op op, sn_node *x, sn_node *y);   /* broadcasts both to a common shape */
sn_node *sn_b_scalar(sn_op op, sn_node *x, double y);     /* y: constant of x's type */
sn_node *sn_b_select(sn_node *c, sn_node *x, sn_node *y); /* broadcasts */
sn_node *sn_b_cast(sn_node *x, sn_dtype t);
sn_node *sn_b_broadcast(sn_node *x, int rank, const sn_dim *shape);
sn_node *sn_b_broadcast_like(sn_node *x, const sn_node *like);
sn_node *sn_b_reshape(sn_node *x, int rank, const sn_dim *shape);
sn_node *sn_b_transpose(sn_node *x, int rank, const int64_t *perm);
sn_node *sn_b_slice(sn_node *x, int axis, sn_dim start, sn_dim size);
sn_node *sn_b_concat(sn_module *m, int n, sn_node *const *x, int axis);
sn_node *sn_b_reduce(sn_op op, sn_node *x, int n_axes,
                     const int64_t *axes); /* keeps axes with size 1 */
sn_node *sn_b_column(sn_node *x);          /* with an axis of size 1 at the end */
/* The decomposition of `mean`: the sum over the axes, kept with size 1, divided by the count. */
sn_node *sn_b_mean(sn_node *x, int n_axes, const int64_t *axes);
bool sn_shapes_equal(const sn_node *a, const sn_node *b);
sn_node *sn_b_mean_last(sn_node *x);                        /* over the last axis */
sn_node *sn_b_softmax(sn_node *x, sn_node *sink, int axis); /* sink: NULL: none */
sn_node *sn_b_iota(sn_module *m, sn_dtype t, int rank, const sn_dim *shape, int axis);
sn_node *sn_b_dim(sn_module *m, sn_dtype t, sn_dim d);
sn_node *sn_b_result(sn_node *n, int index);
/* Argument `index` of a region. */
sn_node *sn_arg(sn_module *m, int index, sn_dtype t, int rank, const sn_dim *shape);
sn_node *sn_b_attention_lse(sn_node *attention); /* the log-sum-exp of its rows */
/* collective_permute of x; attr has mesh and ranks. `after`: operands that are not read. */
sn_node *sn_b_permute(sn_node *x, int64_t shift, bool wrap, int n_attr, const sn_attr *attr,
                      int n_after, sn_node *const *after);
/* This rank's number on a mesh axis, i32. One exchange of ranks numbers. */
sn_node *sn_b_own_rank(sn_module *m, const char *mesh, int64_t ranks);
/* NumPy's broadcasting; false: not possible (no error recorded) */
bool sn_b_common_shape(sn_module *m, const sn_node *x, const sn_node *y, int *rank, sn_dim *shape);

/* ir/elem_ref.c — the reference expressions of ops.def */
double sn_elem_ref(sn_op op, bool integer, double x, double y,
                   double z); /* integer: integer or bool operands */
/* x as stored in type t; conversion of floats to integers truncates and wraps */
double sn_round_to(sn_dtype t, double x);

/* ir/fold.c — folding when a node is created: constants, identities. NULL: nothing to fold. */
sn_node *sn_fold(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                 const sn_attr *attr, const sn_type *type);

/* ir/decomp_fused.c — columns of a panel of the right factor of products in type t: 128 bytes of
 * the type that they are computed in, f64 or f32 */
int sn_panel_columns(sn_dtype t);

/* ir/decomp.c — the decomposition of COMP and FUSED ops, one level down. results: [n_result] */
bool sn_decompose(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                  const sn_attr *attr, int *n_result, sn_node **results);

/* ir/grad.c — out[i]: the gradient of the scalar float `loss` with respect to wrt[i], float nodes
 * of the module: has wrt[i]'s type and shape, zeros (and a note) if the loss does not depend on it.
 * Returns the number of those. */
int sn_gradient(sn_node *loss, int n_wrt, sn_node *const *wrt, sn_node **out);
/* The same for any float node y with the cotangent g, of y's type: out[i] is the cotangent of
 * wrt[i]; NULL: zero. Returns the number of NULLs. */
int sn_pullback(sn_node *y, sn_node *g, int n_wrt, sn_node *const *wrt, sn_node **out);
/* The same for n_y nodes at once; n_wrt > 0. */
int sn_pullback_all(int n_y, sn_node *const *y, sn_node *const *g, int n_wrt, sn_node *const *wrt,
                    sn_node **out);

/* ir/infer_scan.c, ir/scan.c — the attributes of a scan */
typedef struct sn_scan {
    int n_in, n_carry, n_sequence, n_tile;
    bool reverse;
    const sn_region *body;
    const int64_t *tile; /* [n_in + results][n_tile] */
    /* fused_scan: how many carries, the last ones, are recomputed and are not results; by output: the axis
     * of the body's result that is summed in blocks, -1: none; NULL: none at all */
    int n_again;
    const int64_t *sums;
    /* scan: (what the body takes) -> the first sequences after the element; NULL: none */
    const sn_region *again;
} sn_scan;
enum { SN_SCAN_BLOCK = 64 };
/* What is wrong with them; NULL: nothing. */
const char *sn_scan_read(int n_in, int n_attr, const sn_attr *attr, sn_scan *out);
sn_scan sn_scan_of(const sn_node *n);
/* Whether `again`, if there is one, gives the first sequences from what the body takes. */
bool sn_scan_again_fits(const sn_scan *s);
bool sn_scan_is_sequence(const sn_scan *s, int operand);
/* The scan's result whose elements are the body's result i; -1: none. */
int sn_scan_result(const sn_scan *s, int i);
/* The axis of operand i, or of the body's result i - n_in, that is independent axis k; -1: none. */
int sn_scan_tile(const sn_scan *s, int i, int k);

/* ir/eval_recurrence.c — what a recurrence, or a fused_recurrence, computes. Operands by number; B and A
 * may be missing. Those of a fused_recurrence from Q on are results of its prologue, of at most
 * SN_REC_SOURCES tensors. If it has an epilogue, that makes its results, SN_REC_RESULTS at most, of those
 * of the recurrence and of the same tensors; the first result and the carry are passed on. */
enum {
    SN_REC_START,
    SN_REC_Q,
    SN_REC_K,
    SN_REC_V,
    SN_REC_G,
    SN_REC_B,
    SN_REC_A, /* with `delta`; else u */
    SN_REC_END
};
/* Each element reads, adds and decays in this order; u = a S:
 *   AFTER   u; S' = e^g S + k^T v + b^T u; y
 *   BEFORE  y, u; S' = e^g S + k^T v + b^T u */
enum { SN_DELTA_OF_K = 2 }; /* attribute delta: b is k */
typedef enum sn_reads { SN_READS_AFTER, SN_READS_BEFORE } sn_reads;
/* The last result is S before every SN_REC_BLOCK elements, [.., T + SN_REC_BLOCK, C]: SN_REC_BLOCK rows of C for
 * each, which begin with its numbers. The gradient starts from it.
 *
 * With {gradient}, it is operand 0. dy, and u with `delta` if b is not k, follow the operands of the recurrence,
 * then the cotangent of its last carry, which no prologue makes. If b is k, v is v + u. Results by number: */
enum { SN_REC_BLOCK = 64 };
enum {
    SN_REC_DV,
    SN_REC_DSTART,
    SN_REC_DQ,
    SN_REC_DK, /* if b is k, of both */
    SN_REC_DA  /* with `delta`; then that of b if it is not k; the last is that of g */
};
typedef struct sn_recurrence {
    int n_lead; /* axes between T and the vectors */
    sn_reads reads;
    bool second, delta; /* there are b and u; u is computed */
    bool same;          /* b is k: S' = e^g S + k^T (v + u) */
    bool reverse;
    bool gradient;
} sn_recurrence;
enum {
    SN_REC_SOURCES = 16,
    SN_REC_MADE = 5 /* by an epilogue */,
    SN_REC_RESULTS = 7 + SN_REC_MADE
};
enum { SN_MAX_REC_IN = SN_REC_END + 3 };
sn_recurrence sn_recurrence_of(const sn_node *n);
/* Without {gradient}: the number of the result that is the states before blocks. */
int sn_recurrence_states(const sn_recurrence *r);
/* The number of the operand that has the shape of the carry. */
int sn_recurrence_carry(const sn_recurrence *r, int n_in);
/* How many operands there are, and results. */
int sn_recurrence_n_in(const sn_recurrence *r);
int sn_recurrence_n_out(const sn_recurrence *r);
/* With {gradient}: the number of dy among the operands; u, if there is one, follows. */
int sn_recurrence_dy(const sn_recurrence *r);
/* The size of operand or result i along its last axis is that of k. */
bool sn_recurrence_is_of_keys(const sn_recurrence *r, bool result, int i);
/* A result of the recurrence of operands x as that of loops over single elements; gradients keep each carry. */
sn_node *sn_recurrence_by_scan(const sn_recurrence *r, sn_node *const *x, int result);

/* ir/score_grad.c — a score region of attention and its derivative as one region: result 0 is the
 * score, 1 the cotangent of its argument 0; then for each read of a captured tensor in wrt, the
 * cotangent of the element and its indices. The last argument is the cotangent of the score. */
typedef struct sn_score_read {
    int captured, n_index;
    int value; /* index of the result; the element's indices follow */
} sn_score_read;
typedef struct sn_score_grad {
    const sn_region *region;
    int n_read;
    const sn_score_read *read; /* [n_read], in the module's arena */
} sn_score_grad;
/* wrt: [n_wrt] captured tensors, counted from 0. False: the module has an error. */
bool sn_score_gradient(sn_module *m, const sn_region *score, int n_wrt, const int64_t *wrt,
                       sn_score_grad *out);
/* The captured tensor whose element node n of a score region reads; -1: n is not such a
 * read. A captured scalar is read directly. */
int sn_score_read_of(const sn_node *n);
/* Of attention: how many operands from the third on are captured; the operand that is the sink, -1:
 * none. */
int sn_attention_n_captured(const sn_node *n);
int sn_attention_sink(const sn_node *n);
/* Whether the region reads the captured tensor. */
bool sn_score_reads(const sn_region *score, int captured);
/* axis[0], axis[1]: the axis of the captured tensor on which every read uses the batch's, the
 * head's index, if its size is that of size[0], size[1]; else -1: then batches, heads share
 * elements. */
void sn_score_axes(const sn_region *score, int captured, const sn_dim size[2], int axis[2]);

/* ir/promote.c — wide[i]: root[i] with every float promoted to f64 (also from where something is f32 by
 * definition), and inputs instead of parameters and states of the same names. Errors are the
 * module's. */
void sn_promote_to_f64(sn_module *m, int n, sn_node *const *root, sn_node **wide);

/* ir/print.c, ir/parse.c — text form, both directions */
void sn_print_dim(FILE *f, const sn_module *m, sn_dim d); /* "2*B*T+1", of any length */
void sn_print_dims(FILE *f, const sn_module *m, int n, const sn_dim *d); /* "[2,T]" */
/* false: out of memory, and the text has a comment that says so */
bool sn_print_module(FILE *f, sn_module *m);
/* The same, but inputs keep the order in which they were declared. The text then depends on it. */
bool sn_print_module_declared(FILE *f, sn_module *m);
void sn_print_entry(FILE *f, sn_module *m, const sn_entry *e);
void sn_print_node(FILE *f, const sn_node *n); /* one line, operands by number */
/* For messages: "f32[B,T,768] 'h.0.ln_1.weight'" or "f32[2,3] (add, model.c:12)"; returns buf. */
enum { SN_NODE_TEXT = 160 };
const char *sn_node_text(const sn_node *x, char buf[SN_NODE_TEXT]);
char *sn_region_text(sn_module *m, const sn_region *r); /* canonical; arena memory */
sn_module *sn_parse(const char *text, const char *file_name, bool raw, sn_error *err);

/* ir/verify.c — re-derives every node; false: sn_module_error has the ten nodes around the
 * bad one */
bool sn_verify(sn_module *m);
/* Only the nodes from number *checked on, and what entries name; then *checked is the number of nodes. */
bool sn_verify_new(sn_module *m, uint32_t *checked);

/* ir/eval.c — the reference evaluator: naive loops, f64 accumulation. It defines the
 * primitives. Composites are evaluated through their decompositions. Integers are exact up to 2^53
 * and wrap as their type does; an index outside its tensor is a module error. */
typedef struct sn_value { /* a concrete tensor */
    sn_dtype dtype;
    int rank;
    int64_t shape[SN_MAX_RANK];
    int64_t n;
    double *data; /* row-major; the evaluator's, valid until it is freed or a name is bound again */
} sn_value;
typedef struct sn_eval sn_eval;
/* symbol_values: [sn_symbol_count], may be NULL if there is none. NULL: out of memory. */
sn_eval *sn_eval_new(sn_module *m, const int64_t *symbol_values);
void sn_eval_free(sn_eval *ev);
/* true (default): f32 results keep the precision of a double; false: they are rounded after every
 * node. bf16 and f16 are always rounded. */
void sn_eval_set_exact(sn_eval *ev, bool exact);
/* Every dot of f32 as products of bf16: as if it had the attribute compute. */
void sn_eval_set_bf16(sn_eval *ev, bool bf16);
/* What an evaluator computes with instead of floats: values are handles, kept in doubles; 0 is zero. Integers stay
 * what they are; a bool is 0, 1 or a handle above. `of` is what sn_eval_set_numbers was given. */
typedef struct sn_numbers {
    double (*number)(void *of, double x, bool exact); /* exact: not a simple fraction nearby */
    void (*leaf)(void *of, const char *name, int64_t n, double *out); /* without a value */
    /* A row of kind ELEM: operands of type `in` (the first one's), the result of type `out`. */
    double (*elem)(void *of, sn_op op, sn_dtype in, sn_dtype out, double x, double y, double z);
    double (*dot)(void *of, const double *x, const double *y, int64_t n);
    double (*to_bool)(void *of, double x); /* a result of type bool */
    bool (*failed)(const void *of);        /* out of memory */
} sn_numbers;
/* sn_eval_bind_f64 binds handles; floats are not rounded to their types. Both stay the caller's. */
void sn_eval_set_numbers(sn_eval *ev, const sn_numbers *numbers, void *of);
/* Floats become elements of f (ir/field.h); leaves without a value are random. */
struct sn_field;
void sn_eval_set_field(sn_eval *ev, struct sn_field *f);
/* On this axis of the mesh the evaluator is one of the communicator's ranks (runtime/comm/comm.h), which
 * evaluate the same nodes at the same time, each in a module of its own. mesh NULL: on all axes without a
 * communicator of their own. Once for each axis; c stays the caller's. Without one collectives have one
 * rank. */
struct sn_comm;
void sn_eval_set_comm(sn_eval *ev, const char *mesh, struct sn_comm *c);
/* Binds an input, parameter or state; copies. data is of the leaf's dtype. Binding a name once more
 * forgets all that was computed. */
bool sn_eval_bind(sn_eval *ev, const char *name, const void *data, size_t bytes);
/* The same with n doubles, which f32 leaves keep unrounded: for differences. */
bool sn_eval_bind_f64(sn_eval *ev, const char *name, const double *data, int64_t n);
/* The value of n (result 0 of several), computed once; NULL on error (module error). */
const sn_value *sn_eval_node(sn_eval *ev, sn_node *n);

/* ir/debug.c — SINTER_DEBUG=help: the one environment variable, parsed in one place */
typedef struct sn_debug {
#define DEBUG(name, kind, doc) kind name;
#define FLAG bool
#define TEXT const char *
#include "ir/debug.def"
#undef FLAG
#undef TEXT
#undef DEBUG
} sn_debug;
const sn_debug *sn_debug_get(void);

#endif
