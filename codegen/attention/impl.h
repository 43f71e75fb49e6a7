/* impl.h: what the files of the attention generator share: the plan of a kernel (sizes
 * and places in scratch) and the parts that one file emits for another. A file uses only what those
 * listed before it here declare. */
#ifndef SN_ATTENTION_IMPL_H
#define SN_ATTENTION_IMPL_H

#include "codegen/attention/attention.h"
#include "codegen/attention/mask_intervals.h"

enum {
    ATT_NV = 3,    /* vectors of queries in a block */
    ATT_KEYS = 64, /* keys of a tile */
    ATT_GROUP = 8, /* keys that a partial tile may leave out at a time */
    ATT_SEGMENTS = 2 * ATT_NV,
    ATT_SLOTS = 8,  /* blocks that take turns at the keys of a stretch, where a head has many */
    ATT_COPY = 600, /* more queries than this share the rows of a K/V head: K and V are copied */
    ATT_FEW = 6,    /* up to so many queries K and V pass by once, without blocks */
    ATT_UNITS = 16, /* for few: heads of keys times parts are at most so many, if there are parts */
    ATT_PART_TILES = 4 /* at least so many tiles make a part */
};

#define ATT_LOG2_E 1.44269504088896340736

/* What a value of a region depends on. */
enum { ATT_DEP_HEAD = 1, ATT_DEP_Q = 2, ATT_DEP_K = 4, ATT_DEP_SCORE = 8, ATT_DEP_GRAD = 16 };

/* diagonal.c: values of the score and the mask that depend on the difference of query and
 * key only, in rows of scratch, an element a difference. */
enum { ATT_DIAGONALS = 4 };
typedef struct att_diagonal {
    sn_node *node;
    const sn_region *region;
    sn_dtype dtype; /* as stored */
    int offset;     /* of the row, bytes a difference */
} att_diagonal;
typedef struct att_diagonals {
    att_diagonal row[ATT_DIAGONALS];
    int n, bytes; /* of all rows, a difference */
} att_diagonals;

/* A score that is the product plus or minus these values of the region, which do not depend on it.
 * Forward they are laid where the scores will be, and the product is added there. n 0: it is
 * another. */
enum { ATT_TERMS = 4 };
typedef struct att_addend {
    sn_node *term[ATT_TERMS];
    bool minus[ATT_TERMS];
    int n;
} att_addend;

/* Lanes are queries: scores S and weights P lie as [key][query], Q and the sums O as
 * [element][query], so that maxima and sums over keys need no reduction across lanes, and K and V
 * are read as they lie, one element broadcast to all lanes. A block is up to ATT_NV vectors of
 * queries.
 *
 * Scratch of a thread, in bytes from its start. */
typedef struct att_plan {
    const sn_attention *a;
    const char *name;
    sn_dtype t;               /* compute type */
    int esize, lanes, qb;     /* bytes of an element, lanes, queries of a full block */
    int nv, copy_from;        /* vectors of a block, forward; as ATT_COPY, 0: always, -1: never */
    int piece;                /* elements of a 128-bit piece, the unit of transposes */
    int key_rows[ATT_NV + 1]; /* keys per micro-kernel call, by number of query vectors */
    int out_rows[ATT_NV + 1]; /* most elements of an output row per call */
    bool convert;             /* K or V are not of the compute type: always copied */
    bool pack;                /* K and V are copied to scratch, head by head */
    bool check_v;             /* keys may weigh nothing: V must be looked through for NaN and inf */
    const sn_region *derivative;                 /* backward: taken instead of the score region */
    int64_t q_at, o_at, m_at, l_at, state_bytes; /* of a block, one after the other */
    int64_t slots_at, slot_at;                   /* the same of other blocks; which one it is now */
    int64_t s_at, max_at, seg_at, visible_at, key_at, dummy_at, tail_at;
    att_addend addend;
    att_diagonals diagonals;  /* rows begin at tail_at, before the flags of tiles */
    int64_t diagonal_at;      /* which of them are there */
    int64_t sheet_at;         /* tables laid as [key][query] */
    int64_t keep_at;          /* an i64 a query: which keys of the tile dropout keeps */
    em_val keep_word, keep;   /* functions, NULL: no dropout */
    int64_t few_q_at, few_at; /* queries; a record of each row */
    int most_parts;           /* of keys, for few queries; 1: they are done in one */
} att_plan;

static inline int att_padded(const att_plan *p, int d) {
    return (d + p->lanes - 1) / p->lanes * p->lanes;
}

/* base.c */
em_val att_size(em *e, sn_gemm_size s);
em_val att_base(em *e, const sn_attention_operand *o, em_val batch, em_val head);
/* Query q of lse_buf: the number subtracted from its scores, or the log of the sum. */
em_val att_lse_at(em *e, const att_plan *p, em_val batch, em_val head, em_val q, bool log_sum);
em_val att_function(em *e, const att_plan *p, const char *suffix, const em_type *params, int n);
em_val att_scratch(em *e, int64_t at);                  /* pointer into this thread's scratch */
em_val att_state(em *e, const att_plan *p, int64_t at); /* forward: q_at .. l_at of this block */
em_val att_load(em *e, const att_plan *p, em_val at); /* a vector of scratch, at a multiple of it */
void att_store(em *e, const att_plan *p, em_val x, em_val at);
em_val att_column(em *e, const att_plan *p, em_val base, em_val v); /* vector v of a row */
em_val att_lanes(em *e, const att_plan *p, em_val x); /* a vector, if it is not one yet */
em_val att_any_lane(em *e, em_val cond);
/* Calls fn[n] for the run-time number n of vectors. */
void att_call_by_count(em *e, const em_val *fn, em_val n, const em_val *args, int n_args);

/* exp2.c: of x's type; NaN stays NaN. */
em_val att_exp(em *e, em_val x); /* e^x, 0 below the smallest normal number */
/* e^x 2^-less, at most 1 where `bounded`, 0 below 2^-100 (f64: 2^-960): weights so small cannot
 * show in a gradient, but their products with small gradients would be subnormal, and each of those
 * costs hundreds of cycles. */
em_val att_exp2_less(em *e, em_val x, em_val less, bool bounded);

/* diagonal.c */
void att_diagonals_find(att_plan *p); /* once the plan's regions are settled */
int64_t att_diagonals_bytes(const att_plan *p, int64_t tq, int64_t tk);
int64_t att_diagonals_most(int lanes, int64_t tq, int64_t tk); /* elements of a row, at most */
em_val att_diagonal_elements(em *e, const att_plan *p);        /* of a row, whole vectors */
/* Of each result of p->derivative: does it stay where query and key move on together, does it move
 * at all? */
void att_diagonal_results(const att_plan *p, bool *still, bool *moves);
em_val att_diagonals_end(em *e, const att_plan *p, em_val start); /* what follows the rows */
void att_diagonals_reset(em *e, const att_plan *p);               /* nothing is there yet */
void att_diagonals_enter(em *e, const att_plan *p, em_val head);  /* of all batches */
em_val att_diagonal_of(em *e, const att_plan *p, em_val q); /* element of query q, key 0; or NULL */
em_val att_diagonal_element(em *e, const att_plan *p, const att_diagonal *row, em_val i);
/* Of the rows in scratch: 0 whose head, 1 and 2 the elements there are. */
em_val att_diagonal_state(em *e, const att_plan *p, int i);
/* A region's code, of which root[] are wanted, with what rows hold, which begins at
 * element `at`. */
void att_diagonals_limit(sn_region_code *c, const att_plan *p, sn_node *const *root, int n_root);
void att_diagonals_give(sn_region_code *c, em *e, const att_plan *p, em_val at);

/* plan.c */
bool att_plan_make(att_plan *p, const sn_attention *a, const char *name, const sn_target *t,
                   sn_dtype compute, sn_error *err);
int64_t att_place(int64_t *at, int64_t bytes); /* the next place in scratch */
void att_plan_slots(att_plan *p);              /* forward: places for the states of more blocks */
int64_t att_stretch(const att_plan *p);        /* keys that blocks take turns at */
/* Are the product's results the scores, but for a mask? Then it keeps their maximum. */
static inline bool att_product_scores(const att_plan *p) {
    return !p->a->score || p->addend.n > 0;
}
/* The fixed part, rows of differences, flags of tiles, copies of K and V, and `row` elements
 * a key. */
int64_t att_scratch_bytes(const att_plan *p, int64_t tq, int64_t tk, int64_t row);
int64_t att_part_size(const att_plan *p); /* elements of one part of the keys, for few queries */

/* keys.c */
em_val att_flags_at(em *e, const att_plan *p, em_val tile); /* u8: V is not finite in the tile */
/* Row k of the copy of K or V. */
em_val att_tail_rows(em *e, const att_plan *p, em_val tk, bool is_v, em_val k);
/* Emits copy(buf, dim, scratch, batch, kv_head, upto) or look(..): see there. */
em_val att_emit_prepare(em *e, const att_plan *p, bool copy);

/* Which K/V head's keys and values are prepared (copied, looked through): none yet; now that of
 * kv_head, of all batches, of which nothing is prepared unless it was the last one. */
void att_keys_reset(em *e, const att_plan *p);
void att_keys_enter(em *e, const att_plan *p, em_val kv_head);

/* transpose.c: functions of the module
 *   load(q, stride, rows, Q): a vector of queries of d elements of t, transposed, times `factor`
 *   store(O, l pointer, out, stride, rows, dummy): transposed back, times `by` / l */
em_val att_join(em *e, em_val *part, int n); /* n vectors as one; part[] is used up */
void att_transpose_pieces(em *e, const att_plan *p, em_val *x);
em_val att_emit_load(em *e, const att_plan *p, const char *name, sn_dtype t, int d, double factor);
em_val att_emit_store(em *e, const att_plan *p, const char *name, sn_dtype t, int d, double by);

/* tile.c: functions of the module, one for each number of query vectors.
 *   scores(K, k_stride, keys, rows, Q, S, max): S[k][..] = K[k] . Q for k < keys, in groups of
 *     key_rows (rows beyond `rows` repeat the last one); with ATT_MAX max becomes the larger of
 *     itself and S; with ATT_ADD the products are added to S, in groups of ATT_GROUP at most
 *   sums(V, v_stride, P, O, keys): O[i][..] += V[k][i] P[k][..] over k < keys */
typedef struct att_micro {
    em_val scores[ATT_NV + 1], sums[ATT_NV + 1];
    em_val careful_sums; /* of one vector: where P is 0, V does not count */
    em_val load_q;       /* (q, stride, rows, Q): a vector of queries, transposed and scaled */
    em_val store_out;    /* (O, 1/l pointer, out, stride, rows, dummy): transposed back */
} att_micro;
void att_emit_micro(em *e, const att_plan *p, att_micro *f);
/* The same for rows of d elements and other operands. */
enum { ATT_MAX = 1, ATT_ADD = 2 };
em_val att_emit_scores(em *e, const att_plan *p, const char *what, int nv, int d, int flags);
em_val att_emit_sums(em *e, const att_plan *p, const char *what, int nv, int d);

/* sheet.c: tables that regions read at the query and the key themselves: laid in scratch
 * as [key][query], where lanes are queries, before the keys of a tile are gone through. */
enum { ATT_SHEETS = 2, ATT_SHEET_KEYS = ATT_KEYS + 4 };
typedef struct att_sheets {
    const att_plan *p;
    const sn_node *node[ATT_SHEETS]; /* reads that are laid */
    int n;
    em_val key; /* of the tile, that is asked for */
} att_sheets;

/* tables.c: reading captured tensors in regions. */
typedef struct att_tables {
    em *e;
    const sn_attention *a;
    int first;                /* region argument of captured tensor 0 */
    const att_sheets *sheets; /* NULL: none */
} att_tables;
/* What n, a read of one, reads; NULL and an error: it is none. */
const sn_attention_captured *att_captured_of(const att_tables *t, const sn_node *n, int *index);
/* Is index x of an axis of this size inside, whatever the sizes are? */
bool att_surely_inside(const att_tables *t, const sn_node *x, sn_gemm_size axis);
/* i64 index i (lanes or one) of an axis of this size: the nearest one inside. */
em_val att_clamp_index(em *e, em_val i, sn_gemm_size size);
em_val att_captured_scalar(em *e, const sn_attention *a, int i);
em_val att_dim_value(void *ctx, const sn_node *n);
sn_interval att_table_range(void *ctx, const sn_node *n, const sn_interval *index);

/* sheet.c */
/* Does the score read such a table? Row q0 of the first one from key k0 on, and the bytes between
 * rows, to fetch what is laid next. of[]: batch and head. */
bool att_has_sheet(em *e, const att_plan *p);
void att_sheet_ahead(em *e, const att_plan *p, const em_val of[2], em_val q0, em_val k0, em_val *at,
                     em_val *step);
em_val att_sheet_row(em *e, const att_sheets *s, const sn_node *n); /* NULL: n is not laid */
/* Lays n, read by the score, in place of the scores at `to`, of all keys that the product reads;
 * false: it is no such table. Arguments as att_regions_sheets has them. */
bool att_sheet_in_place(em *e, const att_plan *p, const sn_node *n, const em_val of[2], em_val q0,
                        em_val k0, const em_val range[2], em_val to);

/* region.c: the score and mask regions of one place in the code. */
typedef struct att_region {
    sn_region_code code;
    att_tables tables;
    int first; /* argument of the batch index; then head, q, k, captured */
    bool used;
} att_region;
typedef struct att_regions {
    att_region score, mask;
    att_sheets sheets;
    em_val diagonal; /* of lane 0 at key 0 in the rows of differences; NULL: none are read */
} att_regions;
/* Emits what depends on batch, head and q only; then products x (of lanes of queries or of keys) at
 * keys k become scores, -inf where masked. */
void att_regions_begin(att_regions *g, em *e, const att_plan *p, bool masked, em_val batch,
                       em_val head, em_val q);
/* The same for what a score adds to the product; for the mask alone. */
void att_regions_begin_addend(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                              em_val q);
em_val att_regions_addend(att_regions *g, em *e, const att_plan *p, em_val k);
void att_regions_begin_mask(att_regions *g, em *e, const att_plan *p, em_val batch, em_val head,
                            em_val q);
/* Lays the sheets of keys range[0] .. range[1] - 1 of the tile at k0; of[]: batch and head; lane i
 * is query q0 + i, or the last one. */
void att_regions_sheets(att_regions *g, em *e, const att_plan *p, const em_val of[2], em_val q0,
                        em_val k0, const em_val range[2]);
em_val att_regions_apply(att_regions *g, em *e, const att_plan *p, em_val x, em_val k);
/* Values of root[] where lanes are differences, from element i of their rows on. of[]: batch and
 * head. */
bool att_region_at_differences(att_region *u, em *e, const att_plan *p, bool score,
                               const em_val of[2], em_val i, sn_node *const *root, int n_root);
/* The same of what rows hold; false: there are none of that region. */
bool att_region_of_differences(att_region *u, em *e, const att_plan *p, bool score,
                               const em_val of[2], em_val i);
/* What of the cotangent of the score goes on: all other results of p->derivative. */
void att_regions_derive(att_regions *g, em *e, em_val cotangent);

/* The mask over ranges of queries and keys. Queries first, then any number of key ranges. */
typedef struct att_classifier {
    sn_interval_code code;
    att_tables tables;
} att_classifier;
void att_classifier_begin(att_classifier *c, em *e, const att_plan *p,
                          const sn_interval_code *coarse, em_val batch, sn_interval head,
                          sn_interval q);
sn_interval att_classifier_finish(att_classifier *c, sn_interval k);

/* A block of queries of one head. */
typedef struct att_span {
    const att_plan *p;
    em_val batch, head, q0, nv, rows, tq, tk; /* nv vectors of queries, rows of them exist */
} att_span;
void att_span_begin(em *e, const att_span *b, att_classifier *c);
/* Surely all, possibly some of keys k0 .. k0 + n - 1. */
sn_interval att_span_sees(em *e, const att_span *b, att_classifier *c, em_val k0, em_val n);
/* Cuts the tile at k0 in segments; returns their number. Field 0 .. 3 of a segment: first key (of
 * the tile), key after the last, first vector, vector after the last. Whole unless partial. */
em_val att_span_segments(em *e, const att_span *b, const att_classifier *c, em_val k0, em_val n,
                         em_val partial);
em_val att_segment(em *e, const att_plan *p, em_val i, int field); /* pointers to i64 */
/* Keys [lo, hi) of the tile that vector v sees; end: 0 lo, 1 hi. */
em_val att_visible(em *e, const att_plan *p, em_val v, int end);

/* diagonal_rows.c: diagonals(buf, dim, scratch, batch, head, lo, hi): rows will hold elements lo ..
 * hi - 1. NULL: there are no rows. */
em_val att_emit_diagonals(em *e, const att_plan *p);
/* Calls it if the keys k0 .. k0 + n - 1 and the span's queries need more than is there. */
void att_diagonals_reach(em *e, em_val diagonals, const att_span *b, em_val k0, em_val n);

/* dropout.c */
static inline bool att_drops(const att_plan *p) {
    return p->a->rate > 0;
}
static inline double att_keep_factor(const att_plan *p) {
    return !att_drops(p) ? 1 : p->a->rate < 1 ? 1 / (1 - p->a->rate) : 0;
}
em_val att_emit_keep_word(em *e, const att_plan *p); /* i64 word(key, step, element): of 64 */
em_val att_emit_keep(em *e, const att_plan *p, em_val word);
em_val att_keep_word(em *e, const att_plan *p, em_val word, em_val batch, em_val head, em_val q,
                     em_val k0);
em_val att_keep_vector(em *e, const att_plan *p, em_val v); /* after `keep` of vector v */
em_val att_keep_bit(em *e, em_val words, em_val k);         /* lanes that keep key k of the tile */
em_val att_keep_lanes(em *e, em_val word, em_val k, int lanes); /* keys k .. of one query */

/* addend.c: addend(buf, dim, scratch, vector, lo, hi, k0, q0, batch, head): what the score adds to
 * the product, laid in place of the scores of one vector of queries and keys [lo, hi) of the tile
 * at k0. NULL: the plan has none. */
em_val att_emit_addend(em *e, const att_plan *p);

/* softmax.c: softmax(buf, dim, scratch, vector, lo, hi, k0, q0, batch, head): scores of one vector
 * of queries and keys [lo, hi) of the tile at k0 become weights; running maximum, sum and O are
 * brought to the new maximum. masked: with the mask region. */
em_val att_emit_softmax(em *e, const att_plan *p, bool masked);

/* few.c: few(buf, dim, scratch, K/V head of all, first, end, from, to, state, whole):
 * rows first .. end - 1 of the queries of the heads that share it over keys from .. to - 1; row =
 * head in the group * tq + query. state: a record of every row, in which sums are left; whole: the
 * result follows from them. */
em_val att_emit_few(em *e, const att_plan *p);

/* A record: sum of weighted rows of V, sums of weights in each lane, maximum (one element). */
typedef enum att_part { ATT_O, ATT_L, ATT_M } att_part;
static inline int att_record_size(const att_plan *p) { /* elements */
    return att_padded(p, p->a->dv) + 2 * p->lanes;
}
em_val att_record(em *e, const att_plan *p, em_val state, em_val r, att_part part);
/* From record r to query q of the head in the result and the log-sum-exp. */
void att_emit_result(em *e, const att_plan *p, em_val state, em_val r, em_val batch, em_val head,
                     em_val q);

/* split.c: all heads' few queries, dealt out to threads; and the kernel that adds up
 * parts of keys. */
void att_emit_few_heads(em *e, const att_plan *p, em_val few);
void att_emit_finish(em *e, const att_plan *p);

#endif
