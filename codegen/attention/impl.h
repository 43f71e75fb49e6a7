/* impl.h: internals of the attention generator, private to this folder: the plan of a kernel
 * (everything that spec and target determine, offsets in scratch) and the parts that one file emits
 * for another. Each file uses only what files listed before it declare here.
 *
 * Names follow the flash-attention papers: a query block meets KV tiles; s are its scores (qk
 * before score and mask regions), p = e^(s - m) its unnormalised weights, m the running maximum,
 * l the running sum of p, acc the running sum of p v. */
#ifndef SN_ATTENTION_IMPL_H
#define SN_ATTENTION_IMPL_H

#include "codegen/attention/attention.h"
#include "codegen/attention/mask_intervals.h"
#include "codegen/emit/signature.h"
#include "codegen/tile/tile.h"

enum {
    ATT_NV = 3,           /* most vectors of queries in a query block */
    ATT_TILE_KEYS = 64,   /* keys of a KV tile */
    ATT_SUBTILE_KEYS = 8, /* keys that a partially masked tile can leave out at a time */
    ATT_SEGMENTS = 2 * ATT_NV,
    ATT_STATES = 8,         /* query blocks that share a KV block where a head has many of them */
    ATT_PACK_QUERIES = 600, /* K and V are packed if more queries than this use a K/V head */
    ATT_DECODE_QUERIES = 6, /* most queries that take the decoding path (decode.c) */
    ATT_MAX_SPLITS = 16,    /* decoding: most K/V heads times splits, if there are splits */
    ATT_SPLIT_TILES = 4     /* fewest KV tiles of a split */
};

#define ATT_LOG2_E 1.44269504088896340736

/* What a value of a region depends on. */
enum { ATT_DEP_HEAD = 1, ATT_DEP_Q = 2, ATT_DEP_K = 4, ATT_DEP_SCORE = 8, ATT_DEP_GRAD = 16 };

/* Values of the score and mask regions that depend on query - key only, one row of scratch each,
 * with one element for each distance (relative_bias.c). */
enum { ATT_RELATIVE_ROWS = 4 };
typedef struct att_relative_row {
    sn_node *node;
    const sn_region *region;
    sn_dtype dtype; /* as stored */
    int offset;     /* of the row, bytes per distance */
} att_relative_row;
typedef struct att_relative {
    att_relative_row row[ATT_RELATIVE_ROWS];
    int n, bytes; /* bytes: of all rows, per distance */
} att_relative;

/* A score of the form qk + term - term ..., where the terms do not depend on qk. The forward kernel
 * stores the sum of the terms in place of the scores and adds qk to it. n 0: the score has another
 * form. */
enum { ATT_BIAS_TERMS = 4 };
typedef struct att_additive_bias {
    sn_node *term[ATT_BIAS_TERMS];
    bool negated[ATT_BIAS_TERMS];
    int n;
} att_additive_bias;

/* Lanes are queries: s and p are stored as [key][query], q and acc as [element][query]. Maxima and
 * sums over keys then need no reduction across lanes, and elements of K and V are broadcast from
 * where they lie. A query block has up to ATT_NV vectors of queries.
 *
 * Offsets are in bytes from the start of a thread's scratch. */
typedef struct att_plan {
    const sn_attention *a;
    const char *name;
    sn_dtype t;               /* compute type */
    sn_dtype factor;          /* of factors of products: t, or bf16 */
    int word;                 /* factors in an element of t: 1; 2 of bf16 */
    double q_scale, s_scale;  /* what q is multiplied with, and what qk is */
    int esize, lanes, qb;     /* bytes of an element, lanes, queries of a full query block */
    int64_t l2_bytes;         /* a thread's share of its L2 */
    int nv, pack_queries;     /* forward: vectors of a block; as ATT_PACK_QUERIES, 0: always pack,
                                 -1: never */
    int piece;                /* elements of 128 bits, the unit of transposes */
    int mixed_keys;           /* heads that mix: keys of a tile */
    int key_rows[ATT_NV + 1]; /* keys per call of the qk microkernel, by number of vectors */
    int out_rows[ATT_NV + 1]; /* most elements of an output row per call of pv */
    bool convert;             /* K or V have another type than the compute type: always packed */
    bool pack;                /* K and V may be packed into scratch, head by head, ... */
    uint32_t copies;          /* ... as these att_copy */
    bool scan_v;              /* keys may have weight 0: V is scanned for NaN and infinities */
    const sn_region *derivative; /* backward: used instead of the score region */
    /* softmax state of a query block: q, acc, m, l, one after another */
    int64_t q_offset, acc_offset, m_offset, l_offset, state_bytes;
    int64_t states_offset;        /* states of further query blocks that share a KV block */
    int64_t current_state_offset; /* i64: where the current state is, less the first one's place */
    int64_t s_offset, qk_max_offset, seg_offset, visible_offset;
    int64_t key_offset; /* two i64: the K/V head whose keys are prepared, number of such keys */
    int64_t dummy_offset, tail_offset;
    att_additive_bias bias;
    att_relative relative;         /* rows begin at tail_offset, before the flags of tiles */
    int64_t relative_state_offset; /* which elements of the rows are valid */
    int64_t bias_tile_offset;      /* transposed bias tiles */
    int64_t keep_offset;           /* an i64 per query: the keys of the tile that dropout keeps */
    em_val keep_word, keep;        /* functions; NULL: no dropout */
    /* gather.c: strips of queries, those of a strip that see a KV tile are computed together; blocks of
     * a strip, 0: none are. gathered: of functions, whose queries are those at index_offset */
    int strip_blocks, strip_rows, kept_row;
    bool gathered;
    int64_t strip_state_offset, strip_m_offset, strip_l_offset; /* of each query of the strip */
    int64_t list_offset, index_offset; /* of a tile: 2 query + partial; i32 for each lane: query */
    int64_t gathers_offset;            /* i64: whether the strip's queries are gathered */
    int64_t decode_q_offset, decode_state_offset; /* decoding: queries; softmax state of each row */
    int max_splits;                               /* decoding: most splits of the keys; 1: none */
} att_plan;

static inline int att_padded(const att_plan *p, int d) {
    return (d + p->lanes - 1) / p->lanes * p->lanes;
}
static inline int att_words(const att_plan *p, int n) { /* elements of t that n factors take */
    return (n + p->word - 1) / p->word;
}

/* Packed copies of K and V in scratch, one after another: rows [key][element], or the same elements of
 * two keys as words [key / 2][element]. */
typedef enum att_copy { ATT_K_ROWS, ATT_V_ROWS, ATT_K_PAIRS, ATT_V_PAIRS, ATT_COPIES } att_copy;
static inline bool att_copy_of_v(int c) {
    return c == ATT_V_ROWS || c == ATT_V_PAIRS;
}
static inline bool att_copy_in_pairs(int c) {
    return c >= ATT_K_PAIRS;
}
/* The copy whose rows are factors of sums over keys. */
static inline att_copy att_copy_for_sums(const att_plan *p, bool of_v) {
    if (p->word == 1) return of_v ? ATT_V_ROWS : ATT_K_ROWS;
    return of_v ? ATT_V_PAIRS : ATT_K_PAIRS;
}

/* ---- common.c ---- */

em_val att_base(em *e, const sn_attention_operand *o, em_val batch, em_val head);
/* Address of query q in lse_buf: of m (part 0), log l, or in a gradient the cotangent of their sum. */
em_val att_lse_ptr(em *e, const att_plan *p, em_val batch, em_val head, em_val q, int part);
/* n elements of a row of K or V in the compute type, `valid` of them (NULL: all), others 0; integers
 * are not multiplied with their factor. */
em_val att_load_row(em *e, const att_plan *p, sn_dtype t, em_val at, int n, em_val valid);
/* The factors of rows k .. k + n - 1; `valid` of them exist (NULL: all). */
em_val att_row_scales(em *e, const att_plan *p, const sn_attention_operand *o, em_val base,
                      em_val k, int n, em_val valid);
/* The first values of the running maximum m and of the sum l of rows q .. q + n - 1; `valid` of
 * them exist (NULL: all). has_sink: whether these rows begin with their sink; NULL: yes. */
typedef struct att_first {
    em_val m, l;
} att_first;
att_first att_first_state(em *e, const att_plan *p, em_val batch, em_val head, em_val q, int n,
                          em_val valid, em_val has_sink);
/* Without softmax: x, 0 where a mask made it -inf. */
em_val att_plain_weight(em *e, em_val x);
/* Without softmax: what the weights with the sum l are divided by, and its derivative by l. */
em_val att_row_divisor(em *e, const att_plan *p, em_val l, em_val *slope);
/* 1 / n, 0 where n is 0. */
em_val att_reciprocal(em *e, em_val n);
em_val att_scratch(em *e, int64_t offset); /* pointer into this thread's scratch */
/* Forward: pointer into the current block's softmax state; offset: q_offset .. l_offset. */
em_val att_block_state(em *e, const att_plan *p, int64_t offset);
em_val att_load(em *e, const att_plan *p, em_val ptr); /* an aligned vector */
void att_add_product(em *e, const att_plan *p, em_val *acc, int rows, int nv, const em_val *left,
                     em_val right); /* tile_add_product of vectors of factors */
em_val att_count_words(em *e, const att_plan *p, em_val n); /* that n factors take */
/* The elements x[0 .. p->word - 1] of one lane each as factors. */
em_val att_join_factors(em *e, const att_plan *p, const em_val *x);
void att_store(em *e, const att_plan *p, em_val x, em_val ptr);
em_val att_column(em *e, const att_plan *p, em_val base, em_val v); /* vector v of a row */
em_val att_lanes(em *e, const att_plan *p, em_val x);               /* splats a scalar */
em_val att_any_lane(em *e, em_val cond);

/* Generated functions: ATT_SIGNATURE(fn, LIST) is EM_SIGNATURE with
 *   fn_args q = fn_begin(e, p, "suffix")   begins "kernel.suffix"; calls of it stay calls
 *   fn_call_by_count(e, callee, nv, args)  calls callee[nv] for a run-time nv in 1 .. ATT_NV
 * Lists that begin with ATT_CONTEXT have the kernel's parameters: the function sets them with
 * att_use_context, its caller passes ATT_PASS_CONTEXT(e). att_end ends the function. */
#define ATT_CONTEXT(P) P(ptr, buf) P(ptr, dim) P(ptr, scratch)
#define ATT_PASS_CONTEXT(e) .buf = (e)->buf, .dim = (e)->dim, .scratch = (e)->scratch
#define ATT_SIGNATURE(fn, LIST)                                                                    \
    EM_SIGNATURE(fn, LIST)                                                                         \
    static inline fn##_args fn##_begin(em *e, const att_plan *p, const char *suffix) {             \
        em_no_inline(e, fn##_function(e, att_name_of(p, suffix).text));                            \
        return fn##_params(e);                                                                     \
    }                                                                                              \
    static inline void fn##_call_by_count(em *e, const em_val *callee, em_val nv, fn##_args a) {   \
        for (int n = 1; n <= ATT_NV; n++) {                                                        \
            em_branch br = em_if(e, em_cmp(e, EM_EQ, nv, n));                                      \
            fn##_call(e, callee[n], a);                                                            \
            em_endif(e, &br);                                                                      \
        }                                                                                          \
    }

/* "kernel.suffix", the name of one of the kernel's functions. */
typedef struct att_name {
    char text[256];
} att_name;
att_name att_name_of(const att_plan *p, const char *suffix);
static inline void att_use_context(em *e, em_val buf, em_val dim, em_val scratch) {
    e->buf = buf, e->dim = dim, e->scratch = scratch;
}
em_val att_end(em *e); /* returns from the function in progress, and the function itself */

/* ---- exp2.c: of x's type; NaN stays NaN ---- */

em_val att_exp(em *e, em_val x); /* e^x, 0 below the smallest normal number */
/* e^x 2^-less, at most 1 where `bounded`, 0 below 2^-100 (f64: 2^-960): such weights are too small
 * to show in a gradient, but their products with small gradients would be subnormal, and each of
 * these costs hundreds of cycles. */
em_val att_exp2_minus(em *e, em_val x, em_val less, bool bounded);

/* ---- relative_bias.c: rows of values that depend on query - key only ---- */

void att_relative_find(att_plan *p); /* after the plan's regions are set */
int64_t att_relative_bytes(const att_plan *p, int64_t tq, int64_t tk);
int64_t att_relative_max_elements(int lanes, int64_t tq, int64_t tk); /* of a row */
em_val att_relative_elements(em *e, const att_plan *p);               /* of a row */
/* For each result of p->derivative: `constant`, if it does not change when query and key advance
 * together; `moves`, if it depends on either of them. */
void att_relative_results(const att_plan *p, bool *constant, bool *moves);
em_val att_relative_end(em *e, const att_plan *p, em_val start);     /* pointer behind the rows */
void att_relative_reset(em *e, const att_plan *p);                   /* no head has valid rows */
void att_relative_begin_head(em *e, const att_plan *p, em_val head); /* batch * heads + head */
/* Row element of query q at key 0; NULL if there are no rows. */
em_val att_relative_index(em *e, const att_plan *p, em_val q);
em_val att_relative_element(em *e, const att_plan *p, const att_relative_row *row, em_val i);
/* Field of the rows' state: 0 the head, 1 and 2 the first valid element and the one behind. */
em_val att_relative_state(em *e, const att_plan *p, int i);
/* The nodes of the region's rows; returns their number. Takes the values from element i on. */
int att_relative_nodes(const sn_region_code *c, const att_plan *p, const sn_node **node);
void att_relative_load(sn_region_code *c, em *e, const att_plan *p, em_val i);

/* ---- plan.c ---- */

bool att_plan_make(att_plan *p, const sn_attention *a, const char *name, const sn_target *t,
                   sn_dtype compute, sn_error *err);
int64_t att_place(int64_t *end, int64_t bytes); /* allocates bytes of scratch behind *end */
void att_plan_states(att_plan *p);              /* forward: allocates states_offset */
int64_t att_kv_block_keys(const att_plan *p);   /* keys of a KV block */
/* The scores are qk, but for a mask and an additive bias: qk itself computes their maximum. */
static inline bool att_qk_is_score(const att_plan *p) {
    return !p->a->score || p->bias.n > 0;
}
/* The fixed part, relative rows, flags of tiles, packed K and V, and `row` elements per key. */
int64_t att_scratch_bytes(const att_plan *p, int64_t tq, int64_t tk, int64_t row);
int64_t att_split_size(const att_plan *p); /* decoding: elements of the states of one split */

/* ---- pack_kv.c ---- */

em_val att_nonfinite_flag(em *e, const att_plan *p, em_val tile); /* u8: V of the tile has some */
/* Row of key k of a copy; of the pair of keys that begins at k. */
em_val att_packed_row(em *e, const att_plan *p, em_val tk, att_copy c, em_val k);
int att_packed_width(const att_plan *p, int c);             /* elements of such a row of copy c */
em_val att_packed_end(em *e, const att_plan *p, em_val tk); /* behind all copies, aligned */
/* index plus the elements of all copies before `until`. */
em_val att_behind_copies(em *e, const att_plan *p, em_val tk, att_copy until, em_val index);
/* Prepares the keys of a K/V head that are not prepared yet, up to `end`: packs K and V (unless it
 * only scans), and sets the flags of tiles in which V is not finite. */
#define ATT_PACK_KV_PARAMS(P) ATT_CONTEXT(P) P(i64, batch) P(i64, kv_head) P(i64, end)
ATT_SIGNATURE(att_pack_kv, ATT_PACK_KV_PARAMS)
em_val att_emit_pack_kv(em *e, const att_plan *p, bool packs);
void att_kv_reset(em *e, const att_plan *p); /* no keys are prepared */
/* kv_head: batch * heads / gqa_ratio + head. Forgets the prepared keys of any other. */
void att_kv_begin_head(em *e, const att_plan *p, em_val kv_head);

/* ---- transpose.c ---- */

em_val att_join(em *e, em_val *part, int n); /* concatenates n vectors; overwrites part[] */
void att_transpose_pieces(em *e, const att_plan *p, em_val *x);
/* dst[i][lane] = factor * src[lane][i], i < d, for one vector of queries; lanes beyond n_rows
 * repeat the last row. words: as factors, p->word elements of a row side by side. */
#define ATT_LOAD_QUERIES_PARAMS(P) P(ptr, src) P(i64, stride) P(i64, n_rows) P(ptr, dst)
ATT_SIGNATURE(att_load_queries, ATT_LOAD_QUERIES_PARAMS)
em_val att_emit_load_queries(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                             double factor, int word);
/* Of the rows that index[] names, an i32 for each lane: to columns [element][lane], times factor; and
 * back, elements of the compute type. Rows may be named more than once. */
#define ATT_CHOSEN_PARAMS(P) P(ptr, rows) P(i64, stride) P(ptr, index) P(ptr, columns)
ATT_SIGNATURE(att_chosen, ATT_CHOSEN_PARAMS)
em_val att_emit_load_chosen(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                            double factor, int word);
em_val att_emit_store_chosen(em *e, const att_plan *p, const char *name, int d);
/* dst[lane][i] = factor * acc[i][lane] / l[lane], 0 where l is 0; dummy: memory that lanes beyond
 * n_rows write to. */
#define ATT_STORE_QUERIES_PARAMS(P)                                                                \
    P(ptr, acc) P(ptr, l) P(ptr, dst) P(i64, stride) P(i64, n_rows) P(ptr, dummy)
ATT_SIGNATURE(att_store_queries, ATT_STORE_QUERIES_PARAMS)
em_val att_emit_store_queries(em *e, const att_plan *p, const char *name, sn_dtype t, int d,
                              double factor);

/* ---- matmul.c: microkernels of a KV tile, one for each number of query vectors ---- */

/* s[k][..] = k[k] . q for k < keys, in groups of key_rows; keys beyond k_rows repeat the last one. Rows
 * of both are factors. ATT_QK_SCALE: times s_scale. ATT_QK_MAX: qk_max = max(qk_max, s). ATT_QK_ADD: s +=
 * instead, in groups of ATT_SUBTILE_KEYS at most. Prefetches rows from prefetch_row on of two matrices on the way, which are at
 * prefetch0, prefetch1 with prefetch_step0, prefetch_step1 bytes between rows. */
/* clang-format off */
#define ATT_QK_PARAMS(P) \
    P(ptr, k) P(i64, k_stride) P(i64, keys) P(i64, k_rows) P(ptr, q) P(ptr, s) P(ptr, qk_max) \
    P(i64, prefetch_row) P(ptr, prefetch0) P(i64, prefetch_step0) P(ptr, prefetch1) \
    P(i64, prefetch_step1)
/* clang-format on */
ATT_SIGNATURE(att_qk, ATT_QK_PARAMS)
enum { ATT_QK_MAX = 1, ATT_QK_ADD = 2, ATT_QK_SCALE = 4 };
em_val att_emit_qk(em *e, const att_plan *p, const char *name, int nv, int d, int flags);

/* acc[i][..] += v[k][i] p[k][..] for k < keys; keys are pairs if factors are words. Prefetches rows of K and V on the way, a key's for
 * each key; steps in bytes. */
/* clang-format off */
#define ATT_PV_PARAMS(P) \
    P(ptr, v) P(i64, v_stride) P(ptr, p) P(ptr, acc) P(i64, keys) \
    P(ptr, next_k) P(i64, next_k_step) P(ptr, next_v) P(i64, next_v_step)
/* clang-format on */
ATT_SIGNATURE(att_pv, ATT_PV_PARAMS)
em_val att_emit_pv(em *e, const att_plan *p, const char *name, int nv, int dv);

/* amx.c: the same on AMX's tiles, for whole tiles of keys; returns their number. att_takes_amx: whether the target has
 * them, and rows of `width` words are whole tiles. Scores have no flags. */
bool att_takes_amx(const em *e, const att_plan *p, int width);
em_val att_emit_amx_scores(em *e, const att_plan *p, const att_qk_args *a, int nv, int words);
em_val att_emit_amx_sums(em *e, const att_plan *p, const att_pv_args *a, int nv, int dv);

/* The same for one vector of queries, without the keys whose p is 0: their V may be NaN. */
#define ATT_PV_NAN_SAFE_PARAMS(P) P(ptr, v) P(i64, v_stride) P(ptr, p) P(ptr, acc) P(i64, keys)
ATT_SIGNATURE(att_pv_nan_safe, ATT_PV_NAN_SAFE_PARAMS)

typedef struct att_functions {
    em_val qk[ATT_NV + 1], pv[ATT_NV + 1]; /* by number of vectors */
    em_val pv_nan_safe;                    /* NULL: V is not scanned */
    em_val load_q, store_out;
} att_functions;
void att_emit_functions(em *e, const att_plan *p, att_functions *f);

/* ---- bias_tile.c: tables read at (query, key), transposed to [key][query] tiles ---- */

enum { ATT_BIAS_TILES = 2, ATT_BIAS_TILE_KEYS = ATT_TILE_KEYS + 4 };
typedef struct att_bias_tiles {
    const att_plan *p;
    const sn_node *node[ATT_BIAS_TILES]; /* reads of tables that are in tiles */
    int n;
    em_val key; /* of the tile: row that att_bias_tile_row returns */
} att_bias_tiles;

/* ---- separable.c: integers of the form f(q) + g(k) ---- */

enum { ATT_SEPARABLES = 8, ATT_SEPARABLE_TERMS = 8 };
typedef struct att_separable_term {
    sn_node *node;
    double factor;
    bool of_key; /* depends on the key, not on the query */
} att_separable_term;
typedef struct att_separable {
    sn_node *node; /* the sum of factor * term */
    att_separable_term term[ATT_SEPARABLE_TERMS];
    int n, joins; /* joins: operations of both query and key, which one takes the place of */
    em_val of_query, of_key; /* sums of the terms */
} att_separable;
typedef struct att_separables {
    att_separable of[ATT_SEPARABLES];
    int n;
} att_separables;
/* Finds those that the region needs; after its arguments have their dependences. */
void att_separable_find(att_separables *s, const sn_region_code *c);
int att_separable_terms(const att_separables *s, sn_node **term); /* nodes; returns their number */
void att_separable_begin(att_separables *s, em *e, const sn_region_code *c); /* sums of queries */
void att_separable_give(att_separables *s, em *e, sn_region_code *c);        /* values at a key */
const att_separable *att_separable_of(const att_separables *s, const sn_node *n); /* or NULL */

/* ---- captured.c: tensors that regions read ---- */

typedef struct att_captured {
    em *e;
    const sn_attention *a;
    int first;                        /* region argument of captured tensor 0 */
    const att_bias_tiles *bias_tiles; /* NULL: none */
    const att_separables *separables; /* NULL: none */
} att_captured;
/* The captured tensor that node n reads; NULL and an error if it reads another. */
const sn_attention_captured *att_captured_tensor(const att_captured *t, const sn_node *n,
                                                 int *index);
/* Whether index x is inside an axis of this size for all run-time sizes. */
bool att_index_in_range(const att_captured *t, const sn_node *x, em_size axis);
em_val att_clamp_index(em *e, em_val i, em_size size); /* i64, scalar or vector */
em_val att_captured_scalar(em *e, const sn_attention *a, int i);
em_val att_dim_value(void *ctx, const sn_node *n);
sn_interval att_captured_range(void *ctx, const sn_node *n, const sn_interval *index);

/* ---- bias_tile.c ---- */

/* `of` below: batch and head. Lane i is query q0 + i, or the last one. */

bool att_has_bias_tile(em *e, const att_plan *p); /* whether the score reads such a table */
/* Its first such table: address of row q0 at key k0 and bytes between rows, for prefetching. */
void att_bias_tile_next(em *e, const att_plan *p, const em_val of[2], em_val q0, em_val k0,
                        em_val *ptr, em_val *step);
/* Row s->key of n's tile; NULL: n is not in a tile. */
em_val att_bias_tile_row(em *e, const att_bias_tiles *s, const sn_node *n);
/* Writes table n to the scores at dst, keys range[0] .. range[1] - 1 of the KV tile at k0, and up
 * to whole subtiles; false: n is not such a table. */
bool att_bias_in_place(em *e, const att_plan *p, const sn_node *n, const em_val of[2], em_val q0,
                       em_val k0, const em_val range[2], em_val dst);

/* ---- region.c: the score and mask regions at one place of the generated code ---- */

typedef struct att_region {
    sn_region_code code;
    att_captured captured;
    att_separables separables;
    int first; /* argument of the batch index; then head, q, k, captured */
    bool used;
} att_region;
typedef struct att_regions {
    att_region score, mask;
    att_bias_tiles bias_tiles;
    em_val relative; /* element of lane 0 at key 0 in the relative rows; NULL: none are read */
} att_regions;
/* Emits what depends on batch, head and q only. Then att_regions_apply turns qk at keys k (lanes
 * are queries or keys) into scores, -inf where masked. */
void att_regions_begin(att_regions *g, em *e, const att_plan *p, bool masked, em_val batch,
                       em_val head, em_val q);
em_val att_regions_apply(att_regions *g, em *e, const att_plan *p, em_val qk, em_val k);
/* The same for the mask alone; for the additive bias, whose value att_regions_bias returns. */
void att_regions_begin_mask(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                            em_val q);
void att_regions_begin_bias(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                            em_val q);
em_val att_regions_bias(att_regions *g, em *e, const att_plan *p, em_val k);
/* After att_regions_apply: takes the score's cotangent through p->derivative; emits its other
 * results. */
void att_regions_derive(att_regions *g, em *e, em_val cotangent);
/* bias_tile.c: transposes the tables that the regions read, keys range[0] .. range[1] - 1 of the
 * KV tile at k0. */
void att_load_bias_tiles(att_regions *g, em *e, const att_plan *p, const em_val of[2], em_val q0,
                         em_val k0, const em_val range[2]);
/* Values of root[] where lanes are distances, from element i of the relative rows on. */
bool att_region_at_distances(att_region *u, em *e, const att_plan *p, bool score,
                             const em_val of[2], em_val i, sn_node *const *root, int n_root);
/* The same for the nodes of the relative rows; false: the region has none. */
bool att_region_of_distances(att_region *u, em *e, const att_plan *p, bool score,
                             const em_val of[2], em_val i);

/* ---- mask.c: the mask over ranges of queries and keys ---- */

/* Queries first, then one range of keys: values are computed once. coarse: bounds of a larger range;
 * NULL: none. */
typedef struct att_classifier {
    sn_interval_code code;
    att_captured captured;
    bool finished;
} att_classifier;
void att_classifier_begin(att_classifier *c, em *e, const att_plan *p,
                          const sn_interval_code *coarse, em_val batch, sn_interval head,
                          sn_interval q);
sn_interval att_classifier_finish(att_classifier *c, sn_interval k);

/* A block of queries of one head: nv vectors from q0 on; n_rows queries exist. */
typedef struct att_query_block {
    const att_plan *p;
    em_val batch, head, q0, nv, n_rows, tq, tk;
} att_query_block;
/* Block `index` has vectors [v0, v1) of queries, an even share of all. Returns the number of all. */
em_val att_block_vectors(em *e, const att_plan *p, em_val tq, em_val index, em_val *v0, em_val *v1);
void att_block_queries(em *e, att_query_block *b, em_val v0, em_val v1); /* sets q0, nv, n_rows */
void att_mask_begin(em *e, const att_query_block *b, att_classifier *c);
/* Whether the block sees keys k0 .. k0 + n - 1: lo all of them for sure, hi possibly some. */
sn_interval att_mask_tile(em *e, const att_query_block *b, att_classifier *c, em_val k0, em_val n);
/* Cuts the tile at k0 into segments and returns their number: 1, the whole tile, unless partial.
 * Fields of a segment: first key of the tile, key after the last, first vector, vector after the
 * last. */
em_val att_mask_segments(em *e, const att_query_block *b, const att_classifier *c, em_val k0,
                         em_val n, em_val partial);
typedef struct att_segment {
    em_val k0, k1, v0, v1;
} att_segment;
/* The whole tile of n keys as one segment; returns their number. Then att_set_partial says it of each vector. */
em_val att_mask_whole(em *e, const att_plan *p, em_val n, em_val nv);
void att_set_partial(em *e, const att_plan *p, em_val v, em_val partial);
att_segment att_load_segment(em *e, const att_plan *p, em_val i);
/* Keys [lo, hi) of the tile that vector v sees. */
void att_load_visible_keys(em *e, const att_plan *p, em_val v, em_val *lo, em_val *hi);
/* In a partial tile: whether the mask may hide keys of it from vector v. */
em_val att_vector_is_partial(em *e, const att_plan *p, em_val v);

/* ---- gather.c: masks by which each query chooses blocks of keys ---- */

/* Finds whether queries are gathered, and places what strips need, with state_row elements a query, and
 * behind kept_row elements a key that others have there. */
void att_gather_find(att_plan *p, int state_row, int kept_row);
int64_t att_gather_key_elements(const att_plan *p); /* of scratch per key */
/* Which queries q0 .. q0 + n - 1 see which KV tiles of keys k0 .. k1 - 1; sets the i64 at gathers_offset. */
/* clang-format off */
#define ATT_CHOICES_PARAMS(P) ATT_CONTEXT(P) P(i64, batch) P(i64, head) P(i64, q0) P(i64, n) P(i64, k0) P(i64, k1)
/* clang-format on */
ATT_SIGNATURE(att_choices, ATT_CHOICES_PARAMS)
em_val att_emit_choices(em *e, const att_plan *p);
/* Sets batch, head, q0 and n for query blocks first .. end - 1 of head batch * heads + head. */
void att_strip_range(em *e, const att_plan *p, em_val head, em_val first, em_val end,
                     att_choices_args *c);
/* Blocks of a strip of a head that n threads share. */
em_val att_strip_share(em *e, const att_plan *p, em_val blocks, em_val n);
/* The strip's n queries that see the tile, to list_offset; returns their number. The last one is repeated
 * for a block. */
#define ATT_LIST_PARAMS(P) ATT_CONTEXT(P) P(i64, tile) P(i64, n)
EM_SIGNATURE_RETURNING(i64, att_list, ATT_LIST_PARAMS)
em_val att_emit_list(em *e, const att_plan *p);
/* Makes the queries of a vector of `entries` those of vector v; returns their indices in the strip, which are also
 * at the pointer att_chosen_index. */
em_val att_choose_queries(em *e, const att_plan *p, em_val v, em_val entries);
em_val att_listed(em *e, const att_plan *p, em_val at); /* entries from `at` on */
em_val att_chosen_index(em *e, const att_plan *p, em_val v);
/* One number for each query of the strip: from the strip's to a vector's place in the block, and back. */
void att_load_numbers(em *e, const att_plan *p, int64_t from, em_val index, em_val column);
void att_store_numbers(em *e, const att_plan *p, int64_t to, em_val index, em_val column);

/* ---- relative_bias.c ---- */

/* Extends the valid elements of the relative rows to lo .. hi - 1. */
#define ATT_RELATIVE_ROWS_PARAMS(P) ATT_CONTEXT(P) P(i64, batch) P(i64, head) P(i64, lo) P(i64, hi)
ATT_SIGNATURE(att_relative_rows, ATT_RELATIVE_ROWS_PARAMS)
em_val att_emit_relative_rows(em *e, const att_plan *p); /* NULL: there are no rows */
/* Calls fn if keys k0 .. k0 + n - 1 and the block's queries need more elements than are valid. */
void att_relative_extend(em *e, em_val fn, const att_query_block *b, em_val k0, em_val n);

/* ---- dropout.c ---- */

static inline bool att_drops(const att_plan *p) {
    return p->a->rate > 0;
}
static inline double att_keep_factor(const att_plan *p) {
    return !att_drops(p) ? 1 : p->a->rate < 1 ? 1 / (1 - p->a->rate) : 0;
}
/* 64 bits of the mask, from `element` on. */
#define ATT_KEEP_WORD_PARAMS(P) P(i64, key) P(i64, step) P(i64, element)
EM_SIGNATURE_RETURNING(i64, att_keep_word, ATT_KEEP_WORD_PARAMS)
em_val att_emit_keep_word(em *e, const att_plan *p);
/* The words of a vector's queries, at keys k0 and following, to keep_offset. */
#define ATT_KEEP_PARAMS(P) ATT_CONTEXT(P) P(i64, v) P(i64, k0) P(i64, q0) P(i64, batch) P(i64, head)
ATT_SIGNATURE(att_keep, ATT_KEEP_PARAMS)
em_val att_emit_keep(em *e, const att_plan *p);
em_val att_keep_row(em *e, const att_plan *p, em_val batch, em_val head, em_val q, em_val k0);
em_val att_keep_vector(em *e, const att_plan *p, em_val v); /* after `keep` of vector v */
em_val att_keep_bit(em *e, em_val words, em_val k);         /* lanes that keep key k of the tile */
em_val att_keep_lanes(em *e, em_val word, em_val k, int lanes); /* keys k .. of one query */

/* ---- additive_bias.c, softmax.c: vector v of the block's queries, keys [lo, hi) of a tile ---- */

#define ATT_VECTOR_PARAMS(P)                                                                       \
    ATT_CONTEXT(P) P(i64, v) P(i64, lo) P(i64, hi) P(i64, k0) P(i64, q0) P(i64, batch) P(i64, head)
ATT_SIGNATURE(att_vector, ATT_VECTOR_PARAMS)
/* The queries of a vector, i32, from `first` on; gathered: those of vector v of the strip at q0. Lanes
 * beyond the last query repeat it, so that tables stay in range. */
em_val att_lane_queries(em *e, const att_plan *p, em_val first, em_val q0, em_val v);
/* s = the additive bias. NULL: the plan has none. */
em_val att_emit_additive_bias(em *e, const att_plan *p);
/* s becomes p; m, l and acc are updated. masked: applies the mask region. */
em_val att_emit_softmax(em *e, const att_plan *p, bool masked);

/* The steps of it; softmax.c says how they are computed. */
typedef struct att_softmax {
    em_val s, acc, qk_max, m_i, l_i; /* pointers to this vector's part; acc NULL: there is none */
    em_val lo, hi, k0, tk;           /* keys [lo, hi) of the tile at k0 */
    em_val keep;                     /* words of the dropout mask; NULL: no dropout */
} att_softmax;
/* Begins the regions that turn qk into scores, for queries from `first` on: with a score that is qk
 * plus a bias, the bias is there already and only the mask remains. */
void att_softmax_regions(em *e, const att_plan *p, const att_vector_args *q, bool masked,
                         em_val first, att_regions *g);
/* qk becomes the scores s, in place: score and mask regions. Returns the maximum over the keys. */
em_val att_softmax_scores(em *e, const att_plan *p, const att_softmax *c, att_regions *g);
/* Raises m_i to the maximum, roughly; rescales l_i and acc. Returns m_i, 0 where it is -inf. */
em_val att_softmax_update(em *e, const att_plan *p, const att_softmax *c, em_val s_max);
/* p = e^(s - m_i), in place; l_i += sum of p over the keys; then dropout of p. */
void att_softmax_weights(em *e, const att_plan *p, const att_softmax *c, em_val m_i);

/* ---- decode.c: few queries ---- */

/* All queries take the decoding path. */
static inline bool att_decodes_only(const sn_attention *a) {
    return a->by_query || (a->tq.slot < 0 && a->tq.value <= ATT_DECODE_QUERIES);
}

/* Rows row0 .. row1 - 1 over keys k0 .. k1 - 1; row = head in the GQA group * queries + query - q0, of
 * `queries` from q0 on; kv_head = batch * K/V heads + head. states: the softmax state of each row, which keeps acc, l and m;
 * complete: these are all keys, so store the result. */
/* clang-format off */
#define ATT_DECODE_PARAMS(P) \
    ATT_CONTEXT(P) P(i64, kv_head) P(i64, q0) P(i64, queries) P(i64, row0) P(i64, row1) P(i64, k0) \
    P(i64, k1) P(ptr, states) P(i1, complete)
/* clang-format on */
ATT_SIGNATURE(att_decode, ATT_DECODE_PARAMS)
em_val att_emit_decode(em *e, const att_plan *p);

/* Softmax state of a row: acc, l of each lane, m (one element). */
typedef enum att_state_field { ATT_ACC, ATT_L, ATT_M } att_state_field;
static inline int att_row_state_size(const att_plan *p) { /* elements */
    return att_padded(p, p->a->dv) + 2 * p->lanes;
}
em_val att_row_state(em *e, const att_plan *p, em_val states, em_val r, att_state_field field);
#define att_row_state(e, p, states, r, field) (att_row_state)(e, p, states, EM_INT(e, r), field)
/* Normalises state r and stores it as query q of the head, and its log-sum-exp. */
void att_emit_decode_result(em *e, const att_plan *p, em_val states, em_val r, em_val batch,
                            em_val head, em_val q);
#define att_emit_decode_result(e, p, states, r, batch, head, q)                                    \
    (att_emit_decode_result)(e, p, states, EM_INT(e, r), batch, head, q)

/* ---- split_kv.c: decoding: the schedule of all heads; the kernel that merges splits ---- */

void att_emit_decode_heads(em *e, const att_plan *p, em_val decode);
void att_emit_merge_splits(em *e, const att_plan *p);

#endif
