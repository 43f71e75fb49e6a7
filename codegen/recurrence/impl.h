/* impl.h: a linear recurrence in chunks, private to this folder. recurrence.c has the algorithm. */
#ifndef SN_RECURRENCE_IMPL_H
#define SN_RECURRENCE_IMPL_H

#include "codegen/emit/family.h"
#include "codegen/tile/tile.h"

/* Elements of a chunk; of a block, after which a thread goes on with the next of its states; so few that
 * they are computed one by one; rows of a register tile. */
enum {
    REC_CHUNK = 8,
    REC_BLOCK = SN_REC_BLOCK / 2, /* a gradient's is SN_REC_BLOCK */
    REC_FEW = 3,
    REC_PAIRS = 2,
    REC_VECTORS = 4,
    REC_ROWS_AT_ONCE = 4,
    REC_PARTS = 2,
    REC_LOADS = 10,
    REC_TRANSPOSED = 2,
    REC_VIEWS = 2 + SN_REC_SOURCES + SN_REC_RESULTS
};

/* What a tile's offset is from: one for all, one for each unit of a group, one for each chunk of a block;
 * a state of a gradient, the one before a chunk or the one after it. */
typedef enum rec_home {
    REC_SHARED,
    REC_PER_UNIT,
    REC_PER_CHUNK,
    REC_BEFORE,
    REC_AFTER,
    REC_HOMES
} rec_home;

/* A tile in scratch: rows of `ld` elements of the compute type. */
typedef struct rec_tile {
    int64_t at, ld; /* offset in elements */
    rec_home home;
} rec_tile;

/* The scratch of a kernel. */
typedef struct rec_space {
    int64_t used[REC_HOMES];  /* elements */
    em_val base[REC_HOMES];   /* the current one of each */
    em_val units, unit_bytes; /* the first unit's; how far the next one is */
} rec_space;

/* A vector of each element: an operand, and rows of a tile from `row` on. */
typedef struct rec_operand {
    int operand, how;
    rec_tile tile;
    int row;
    int64_t col;
    bool exp; /* e^x is stored, 1 for an element that does not exist */
} rec_operand;

/* Where the rows of a result are. */
typedef struct rec_rows {
    rec_tile tile;
    int row;
    bool flipped; /* the last element first */
} rec_rows;

/* How a row in memory is read: whole; the columns of a unit's block of V. */
enum { REC_WHOLE = 1, REC_COLUMNS = 2 };

/* What an element's decays belong to. */
typedef enum rec_decays { REC_ONE, REC_ROWS } rec_decays;

/* When y reads the state: sn_reads, or after k^T v has been added, before the decay. */
typedef enum rec_order { REC_READS_AFTER, REC_READS_BEFORE, REC_READS_LATE } rec_order;

/* A recurrence in chunks. An element updates the state by pair 0, k^T v, and pair 1, b^T u. The rows of
 * pair 1 come first in `key` and `values_and_state`, so that u is a product with the rows after it. If b is
 * k there is one pair: k and v + u. A gradient has two plans: that of S, whose u are known, and that of its
 * cotangent. */
typedef struct rec_plan {
    const sn_kernel *k;
    sn_recurrence r; /* of the node, or the one of S or its cotangent */
    rec_order order;
    bool state_only; /* y is not computed */
    const sn_region
        *prologue; /* makes operands from Q on of the others; NULL: they are in memory */
    const sn_region
        *epilogue; /* makes results of those of the recurrence; NULL: they are the same */
    int n_out;     /* results of the recurrence */
    int8_t result[SN_REC_RESULTS];   /* by result of the recurrence: that of the step; -1: none */
    rec_rows stored[SN_REC_RESULTS]; /* the same: where its rows are */
    uint8_t reads[REC_VIEWS];        /* by operand in memory: how */
    rec_operand load[REC_LOADS];
    int n_load;
    rec_decays decays;
    bool stores_u;   /* u is a result that is read */
    bool direct;     /* rows of y go from registers to memory */
    bool by_element; /* never in chunks, so that no sum depends on the number of elements */
    bool bf16;       /* products of bf16: their factors are words (words.c) */
    sn_dtype t;
    int lanes;
    int align;                 /* columns of tiles are a multiple of it */
    int64_t K, V;              /* of the state */
    int64_t inner;             /* K in whole vectors */
    int64_t cols;              /* columns of a block of V, in whole vectors */
    int64_t n_block;           /* blocks of V, which are independent */
    int n_update, update_rows; /* pairs of an element; their rows, REC_CHUNK each */
    rec_tile weights_y;        /* [CHUNK][update_rows + inner]: of y_t: intra-chunk weights, q D */
    rec_tile weights_u;        /* the same of u_t: weights, a D */
    rec_tile values_and_state; /* [update_rows + inner][cols]: u, v, S */
    rec_tile state, next;      /* [inner][cols]: the state before and after a chunk */
    rec_tile words;            /* [(update_rows + inner) / 2][cols]: the same of both for bf16 */
    rec_tile key;              /* [update_rows][inner]: b, k, and decays after them */
    rec_tile decay;            /* [CHUNK][inner]; REC_ONE: [1][CHUNK] */
    bool flipped;              /* decays are those of the other plan, the last element first */
    rec_tile total;            /* [1][inner or 1]: product of the decays so far */
    rec_tile sums;             /* REC_ROWS: [2 CHUNK][CHUNK]: weights of columns so far */
    rec_tile factors; /* REC_ONE: [2 + PAIRS][CHUNK]: of the rows of q, a and each pair's key */
    rec_tile out;     /* [CHUNK][cols]: y */
    rec_tile out_u;   /* [CHUNK][cols], if b is k; else the first rows of `values_and_state` */
    int n_transposed; /* number of z = x S^T */
    rec_rows x[REC_TRANSPOSED]; /* [CHUNK][cols] each */
    rec_tile transposed_x;      /* its transpose */
    rec_tile read; /* [update_rows + inner][n_transposed CHUNK]: values_and_state x^T */
    rec_tile z;    /* [n_transposed CHUNK][inner] */
    rec_rows raw_keys[REC_PAIRS]; /* [CHUNK][inner] each: keys before decays, for z */
    rec_tile epilogue_rows;       /* [RESULTS][inner]: results of the epilogue for an element */
    int64_t block;                /* elements of a block */
    int64_t group;                /* units that a thread alternates between, block by block */
    rec_space *space;
} rec_plan;

/* A dim that the kernel requires to be a number. */
int64_t rec_constant(const sn_kernel *k, sn_dim d);
/* Of a step: what does not depend on which recurrence it is. */
void rec_plan_begin(rec_plan *p, rec_space *space, const sn_kernel *k, const sn_target *t);
/* The tiles that every recurrence has but those of states and decays, with `values_and_state` at `home`.
 * p->r, `state_only` and n_transposed are known. */
void rec_plan_tiles(rec_plan *p, rec_home home);
rec_tile rec_place_decay(const rec_plan *p, rec_home home);
void rec_plan_forward(rec_plan *p, rec_space *space, const sn_kernel *k, const sn_target *t);
/* What the loads read of memory. */
void rec_find_reads(rec_plan *p);
int64_t rec_group_of(const rec_plan *p, const sn_target *t);
rec_tile rec_place(const rec_plan *p, rec_home home, int64_t rows, int64_t ld);
void rec_add_load(rec_plan *p, int operand, int how, rec_tile tile, int row, int64_t col);

/* Where pair i begins in `key`, `values_and_state` and the columns of `weights_y`. */
static inline int rec_update_row(const rec_plan *p, int pair) {
    return pair == 1 ? 0 : (p->n_update - 1) * REC_CHUNK;
}

/* Elements of the chunk, from the first on: visible to y of element t; to its u; decayed by t. */
int rec_n_visible(const rec_plan *p, int pair, int t);
int rec_n_visible_to_u(const rec_plan *p, int pair, int t);
int rec_n_decayed(const rec_plan *p, int pair, int t);

/* Of columns in whole vectors from number `vector` on: as many as are in registers at a time, REC_VECTORS
 * at most. */
int rec_vectors_at(em *e, const rec_plan *p, int vector);

/* ---- tiles ---- */

/* A pointer into a tile; row and column are i64 or C integers. */
em_val rec_at(em *e, const rec_plan *p, rec_tile tile, em_val row, em_val col);
#define rec_at(e, p, tile, row, col) (rec_at)(e, p, tile, EM_INT(e, row), EM_INT(e, col))
em_val rec_load(em *e, const rec_plan *p, em_val at);
void rec_store(em *e, const rec_plan *p, em_val at, em_val v);
em_loop rec_for_vectors(em *e, const rec_plan *p, int64_t n);
void rec_fill(em *e, const rec_plan *p, rec_tile tile, em_val row, int64_t from, int64_t n,
              double value);

/* A unit of work: a state, or a block of its columns. */
typedef struct rec_unit {
    em_val base[REC_VIEWS]; /* of operands and results: pointers to the first element */
    em_val next[REC_VIEWS]; /* such that next[i] + t is what follows base[i] + t */
    em_val columns;         /* of V in the block, i64; NULL: p->cols */
    em_val col;             /* the first of them */
    em_val T, chunk;        /* first element of the chunk */
    em_val last;            /* i1: the chunk is the last of its block */
} rec_unit;

/* ---- views.c: operands and results in memory ---- */

/* Operands and results in memory by number; elements of a row of one, of a unit; 0: it is a state, or not
 * read. */
int rec_n_views(const rec_plan *p);
const sn_view *rec_view(const rec_plan *p, int i);
int64_t rec_row_size(const rec_plan *p, int i);
bool rec_is_state(const rec_plan *p, int i);
/* V wide; a unit has a block of columns. */
bool rec_is_of_columns(const rec_plan *p, int i);
/* The stride of a view along an axis; 0 if that has one element. */
em_val rec_stride(em *e, const rec_plan *p, const sn_view *v, int axis);
/* Row t of operand or result i. */
em_val rec_element(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t);
/* Vectors in one iteration of a loop over n elements: EM_COPIES at most. */
int rec_at_once(const rec_plan *p, int64_t n);
/* Mask of the vector from element i on of `n` elements, which are `count` if that is not NULL; NULL: all
 * lanes. */
em_val rec_mask(em *e, const rec_plan *p, em_val i, int64_t n, em_val count);
/* A vector of view v from element i of the row at `row` on. */
em_val rec_load_vector(em *e, const rec_plan *p, const sn_view *v, em_val row, em_val i,
                       em_val mask);
/* n elements of a tile's row, `count` if that is not NULL, to a row of operand or result i. */
void rec_store_row(em *e, const rec_plan *p, int i, em_val row, int64_t n, em_val count,
                   rec_tile tile, em_val from_row);
/* Row `from` of a tile to element t of the step's result i. */
void rec_store_result(em *e, const rec_plan *p, const rec_unit *u, int i, rec_tile tile, em_val t,
                      em_val from);

/* ---- rows.c: between memory and tiles ---- */

/* The position of the chunk's element i, and whether it exists. */
em_val rec_position(em *e, const rec_plan *p, const rec_unit *u, em_val i, em_val *exists);
#define rec_position(e, p, u, i, exists) (rec_position)(e, p, u, EM_INT(e, i), exists)
/* A loop over the n units of the group that begins with item `first`; what comes after unit i of n: the
 * same block of the next one, or the next block of the first, which is the one before if the last block is
 * first. */
em_loop rec_for_units(em *e, const rec_plan *p, rec_unit *u, em_val first, em_val n);
void rec_find_next(em *e, const rec_plan *p, rec_unit *u, em_val first, em_val i, em_val n,
                   bool last_first);
/* The state between memory and a tile; i: the operand in memory. */
void rec_load_state(em *e, const rec_plan *p, const rec_unit *u, int i, rec_tile tile);
void rec_store_state(em *e, const rec_plan *p, const rec_unit *u);
/* The state before the block of element t, between a tile and operand or result i. */
void rec_load_saved(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t, rec_tile tile);
void rec_save(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t, rec_tile tile);
/* The vectors of the chunk's elements, in rows of the tiles; those after the last one are zeros, which
 * change nothing. */
void rec_load_elements(em *e, const rec_plan *p, const rec_unit *u);
void rec_store_elements(em *e, const rec_plan *p, const rec_unit *u);
/* Where a row of y is stored: in memory, or in `out` if p->direct is false or there is no such element;
 * row and column are i64. */
em_val rec_y_at(em *e, const rec_plan *p, const rec_unit *u, em_val row, em_val col);

/* The chunk's element i alone, in the first rows. */
void rec_load_element(em *e, const rec_plan *p, const rec_unit *u, em_val i);
void rec_store_element(em *e, const rec_plan *p, const rec_unit *u, em_val i);

/* ---- prologue.c ---- */

/* Element t, which exists, to row `to` of the tiles. */
void rec_load_rows(em *e, const rec_plan *p, const rec_unit *u, em_val t, em_val to);
#define rec_load_rows(e, p, u, t, to) (rec_load_rows)(e, p, u, t, EM_INT(e, to))
/* What the epilogue makes of row `from` of the tiles, to the results of element t. */
void rec_store_epilogue(em *e, const rec_plan *p, const rec_unit *u, em_val t, em_val from);

/* ---- words.c: bf16 ---- */

/* Where the left factor has column `col`, i64 and even. */
em_val rec_left_column(em *e, const rec_plan *p, em_val col);
#define rec_left_column(e, p, col) (rec_left_column)(e, p, EM_INT(e, col))
/* A vector of row t of the left factor, `weights_y` or `weights_u`, as products read it. */
void rec_store_left(em *e, const rec_plan *p, rec_tile tile, int t, em_val col, em_val v);
/* The same of a row of `key`. other: that of the two rows of a word which was stored before; NULL: this is
 * the first. */
void rec_store_key(em *e, const rec_plan *p, int row, em_val col, em_val v, em_val other);
/* A vector of `words`; if products are f32, nothing. */
void rec_store_words(em *e, const rec_plan *p, em_val row, em_val col, em_val even, em_val odd);
/* The chunk's values but those that products make; the state. */
void rec_join_values(em *e, const rec_plan *p);
void rec_join_state(em *e, const rec_plan *p);

/* ---- weights.c ---- */

/* e^g of the chunk's elements in place of g. REC_ONE only. */
void rec_exp_decays(em *e, const rec_plan *p);
/* The sums of the lanes of n vectors, CHUNK at most, as one vector. */
em_val rec_sum_lanes(em *e, const em_val *v, int n);
/* The weights in `weights_y` and `weights_u`; decays in q, a, and the keys; `total`. */
void rec_emit_weights(em *e, const rec_plan *p);

/* ---- prefetch.c ---- */

/* Rows of a view: the first one, bytes to the next. */
typedef struct rec_stream {
    em_val row, step;
} rec_stream;

/* What is brought to the caches while a chunk is computed: each view is REC_PARTS streams. */
typedef struct rec_prefetch {
    rec_stream stream[REC_PARTS * REC_VIEWS];
    int n, next;
    int64_t work;  /* multiply-adds of the loops that follow */
    int log_lines; /* of a row */
} rec_prefetch;

/* What a loop brings: streams in proportion to its work. */
typedef struct rec_share {
    rec_stream stream[REC_PARTS * REC_VIEWS];
    int n, log_lines;
} rec_share;

/* Multiply-adds of a chunk's products, in which lines are brought. */
int64_t rec_work(const rec_plan *p);
int64_t rec_update_work(const rec_plan *p); /* of the state's update */
int64_t rec_read_work(const rec_plan *p);   /* of x S^T, without the chunk's own vectors */
/* Of the first n_view operands and results. */
void rec_prefetch_begin(em *e, const rec_plan *p, const rec_unit *u, int n_view, int64_t work,
                        rec_prefetch *f);
/* Before a loop of that many multiply-adds. */
rec_share rec_prefetch_part(rec_prefetch *f, int64_t work);
/* The same for a loop that is run twice, of that much work in all; second: i1. */
rec_share rec_prefetch_half(em *e, rec_prefetch *f, int64_t work, em_val second);
/* In iteration 0, 1, ... `iterations` - 1 of the loop. */
void rec_prefetch_lines(em *e, const rec_share *s, em_val iteration, int64_t iterations);

/* ---- products.c ---- */

/* The chunk's products for columns of n vectors: u; y and then the state. */
void rec_emit_u(em *e, const rec_plan *p, const rec_unit *u, rec_prefetch *ahead, int vector,
                int n);
void rec_emit_y(em *e, const rec_plan *p, const rec_unit *u, rec_prefetch *ahead, int vector,
                int n);

/* ---- transposed_read.c: z = x S^T ---- */

/* e^g of element t, a vector of columns from `col` on. */
em_val rec_decay(em *e, const rec_plan *p, int t, em_val col);
/* REC_ONE: of all elements. */
em_val rec_all_decays(em *e, const rec_plan *p);
/* Row t of such rows, a vector of columns from `col` on. */
em_val rec_row(em *e, const rec_plan *p, rec_rows rows, int t, em_val col);
/* Whether the i-th z reads the state after the element. */
bool rec_reads_after(const rec_plan *p, int i);
/* The products of x with the rows of `values_and_state`; what z has of the state at the chunk's beginning. */
void rec_emit_read(em *e, const rec_plan *p, rec_prefetch *ahead);
/* What z has of the chunk's keys. */
void rec_emit_keys(em *e, const rec_plan *p);

/* ---- gradient.c ---- */

sn_dim rec_gradient_scratch(const sn_kernel *k, const sn_target *t);
void rec_emit_gradient(em *e, const sn_kernel *k);

/* ---- steps.c ---- */

/* Computes the first n elements of the chunk in order. */
void rec_emit_steps(em *e, const rec_plan *p, const rec_unit *u, em_val n);

#endif
