/* gemm.h: generator of matrix multiplication kernels, C = epilogue(prologue(A) B).
 * A spec describes the operands and what is constant; callbacks emit the fused prologue and
 * epilogue. One kernel serves every run-time size of its spec, from M = 1 on. */
#ifndef SN_GEMM_H
#define SN_GEMM_H

#include "codegen/emit/emit.h"

/* C[b,i,j] = epilogue(sum over k of prologue(A[b,i,k]) B[b,k,j]), i < M, j < N, k < K, with up to
 * three batch axes b.
 *
 * Determinism: each element is accumulated over k in order, in one chain of fused multiply-adds.
 * The chain does not depend on M, N, the partition over threads or the microtile that holds the
 * element. Results therefore do not depend on the number of threads or on other rows.
 *
 * Packed B: constant right operands are stored in panels (sn_gemm_emit_pack). Panel p holds columns
 * [pP, (p+1)P) of B as [K][P], zero beyond N. P = sn_panel_columns(compute) on every ISA. Other right
 * operands are read in place, or the kernel packs them panel by panel.
 *
 * Narrow panels: packed B may be bf16, f16 or i8; the microkernel widens it in registers. The
 * epilogue applies the column scales of i8. All unpacked operands may have any float type.
 *
 * Pairs (`half_width` = h > 0): columns come in blocks of 2h, and the epilogue gets columns j
 * and j + h of a block together (gated activations, rotary embeddings). A panel then holds P/2
 * columns of a block's first half followed by the P/2 columns h further. N is a multiple of 2h; if
 * there are several blocks, h is a multiple of P/2. The epilogue's value is stored at column j;
 * with one block the result thus has h columns.
 *
 * Grouped integers (`groups`): each group of consecutive k of a column shares a scale and maybe a
 * minimum, and an element is integer * scale + minimum. 4 bits: an i32 holds 8 consecutive k of a
 * column, and a panel is [K / 8][P] words; 8 bits: [K][P] integers. The factors are in panels
 * [K / size][P]; with minima [K / size][2][P], the scales first. Without factors (`unscaled`) an
 * element is its integer. With `outer_group`, the factors are integers i8, and the same panels of f16
 * for groups of `outer_group` elements multiply them. A single row (M = 1) accumulates each scale group
 * before it multiplies by the scale, unless `rows_alike`; with more rows B is dequantized first.
 *
 * Rows of i8 (A, with `groups`): the integer units sum a group's products, exactly, where the target
 * has such instructions; elsewhere A is widened. With one row of 8-bit integers B is widened, too:
 * loading it is the bottleneck.
 *
 * 8-bit integers (`int8`): A, after the prologue, is i8, and sums are i32, which must hold them. K is
 * constant and B packed in words of 4 k: [1 + ceil(K / 4)][P] of i32; the first row holds the sums
 * of the columns times -128. The epilogue gets i32 and computes in the compute type.
 *
 * bf16 (`bf16`): A, after the prologue, and B are rounded to bf16, and K is summed by pairs: first the
 * product of the odd k, then that of the even one, each a fused multiply-add in f32, in which
 * subnormal factors, sums and results are 0. The bits are the same on every target that has FMA. Packed B consists of
 * words of 2 k: [ceil(K / 2)][P][2] of bf16. With `groups` elements are rounded when they are
 * dequantized; a single row (M = 1) does it in registers.
 *
 * Blocks (`n_blocks` > 0): B's columns are as many equal blocks (the maps of experts), each of whole
 * panels, and each row of C is one of them: row r of C = row r / per_row of the product, block
 * index[r / per_row][r % per_row]. Only these are computed: each thread sorts the rows of C by their
 * blocks (stable counting sort in scratch), and multiplies the rows of a block, gathered as A is
 * packed, with its panels. m: rows of C; the epilogue sees rows and columns of the product, its
 * result is stored in C; indices outside are clamped. B that is not packed has a block of n columns
 * every b_block elements, and n is theirs; there is no epilogue then.
 *
 * Ragged K (`ragged_k`): the one batch axis counts blocks, and batch item e sums over those k < K
 * whose index (as above) is e, in ascending order, in pairs of these if `bf16`. Row k / per_row of B
 * belongs to column k of A, whose rows are contiguous.
 *
 * Symmetric (`symmetric`): M = N, and B is A transposed, so element (j, i) has the bits of (i, j): both
 * are the same chain of products. Microtiles above the diagonal are skipped; the epilogue gets the sums
 * of those below it a second time, transposed, at their mirrored places. Its operands may have any
 * values there. Threads have columns of the triangle, of equal areas. B is not packed; there is no
 * prologue, pair, swap, block or reduction. */
enum { SN_GEMM_BATCH = 3, SN_GEMM_STATE = 4, SN_GEMM_SUMS = 4 };

typedef struct sn_gemm_groups {
    int size;         /* k that share a scale, a multiple of 16 that divides K; 0: no groups */
    int bits;         /* of an integer: 4 or 8 */
    sn_nibble nibble; /* 4 bits: how they are an integer */
    bool has_min;
    bool unscaled;   /* 8 bits: there are no factors */
    int outer_group; /* 0, or a multiple of 2 size that divides K */
    sn_dtype factor; /* bf16, f16; i8 with outer_group */
    int factor_buf, outer_buf;
} sn_gemm_groups;

typedef struct sn_gemm_operand {
    int buf;        /* base pointer: buf[buf] of the call */
    sn_dtype dtype; /* in memory; arithmetic uses the compute type of the emission context */
    em_size offset;
    em_size batch[SN_GEMM_BATCH]; /* strides of the batch axes; 0 broadcasts (GQA) */
    em_size row, col;             /* strides; ignored for packed B */
} sn_gemm_operand;

/* Position of a vector in a callback: lane l is C[batch][row][col + l] in an epilogue and
 * A[batch][row][col + l] in a prologue. mask: lanes inside the matrix; NULL: all lanes. Loads and
 * stores of the callback must use the mask. */
typedef struct sn_gemm_at {
    em_val batch[SN_GEMM_BATCH]; /* i64 */
    em_val row, col;             /* i64 */
    em_val other_col;            /* epilogues: first column of acc[1], if there is one */
    em_val mask;
    int lanes;
    em_val row_scale; /* epilogues with spec `row_scale`: what the row's prologue left */
} sn_gemm_at;

/* Emits the epilogue of a vector of accumulators acc[0] and returns the vector to store in C; the
 * return value is ignored if `no_store` is set. acc[1]: the accumulators of the columns from
 * at->other_col on: with pairs, or where columns are swapped that no vector holds together. */
typedef em_val sn_gemm_epilogue(void *ctx, em *e, const em_val *acc, const sn_gemm_at *at);

/* Emits the reductions of one row over the columns of a panel, after the epilogue was emitted for
 * all vectors of that row. Fills sum[0 .. n_sums-1] with scalars. */
typedef void sn_gemm_row_sums(void *ctx, em *e, em_val *sum);

/* Emits the store of a microtile's row reductions. Lane i of sum[0 .. n_sums-1] belongs to row
 * at->row + i and to the panel that starts at column at->col; at->mask: rows that exist. A store
 * per row instead would fill the store buffer while lines of C are missing (50 % slower at
 * K = 64). */
typedef void sn_gemm_store_sums(void *ctx, em *e, const em_val *sum, const sn_gemm_at *at);

/* Emits addresses of cache lines to prefetch for row at->row and the panel that starts at column
 * at->col. at->lanes and at->mask are not set. */
typedef void sn_gemm_lines(void *ctx, em *e, const sn_gemm_at *at, em_val *line);

/* Emits the values that a row of A needs before its elements (mean, scale): fills
 * state[0 .. n_state-1] with scalars. at->col is 0, at->mask NULL. */
typedef void sn_gemm_row_prologue(void *ctx, em *e, const sn_gemm_at *at, em_val *state);

/* Emits the prologue of a vector x of A (compute type) at k = at->col; returns the new vector. */
typedef em_val sn_gemm_prologue(void *ctx, em *e, em_val x, const sn_gemm_at *at,
                                const em_val *state);

typedef struct sn_gemm {
    int n_batch;
    em_size batch[SN_GEMM_BATCH];
    em_size m, n, k;
    sn_gemm_operand a, b, c; /* a: rows i, columns k; b: rows k, columns j; c: rows i, columns j */
    bool b_packed;           /* b is in panels */
    sn_gemm_groups groups;   /* of packed b */
    bool int8, bf16;
    bool rows_alike;    /* the bits of a row do not depend on how many there are */
    bool symmetric;     /* only the elements (i, j), j <= i, are multiplied: see above */
    int64_t half_width; /* > 0: columns this far apart meet in the epilogue; packed b only */
    /* > 0, a divisor of half a panel: columns j and j ^ swap_distance meet in the epilogue */
    int64_t swap_distance;
    int64_t n_blocks; /* > 0: row r of C is a block of columns, selected by `index` */
    em_size b_block;  /* unpacked B: elements between blocks */
    bool ragged_k;    /* each batch item sums over the k that name it */
    int per_row;      /* rows of C for a row of A; ragged_k: columns of A for a row of B */
    int index_buf;    /* base pointer of the integers: buf[index_buf] */
    sn_dtype index_dtype;
    em_size index_row, index_col; /* strides */
    bool dynamic;                 /* products of a millisecond and more, or of one row: threads
                              take the last rows or panels from a work counter, buf[counter_buf]: an
                              i64 that is 0 when the kernel starts, or NULL for a static schedule */
    int counter_buf;
    bool no_store; /* the epilogue stores the result; c is unused */
    void *ctx;     /* passed to the callbacks; each callback may be NULL */
    sn_gemm_epilogue *epilogue;
    sn_gemm_row_sums *row_sums; /* requires N to be a multiple of the panel width */
    sn_gemm_store_sums *store_sums;
    sn_gemm_lines *prefetch_row_sums; /* the n_sums lines that store_sums writes */
    sn_gemm_lines *prefetch_operands; /* the n_prefetch lines that the epilogue reads */
    sn_gemm_row_prologue *row_prologue;
    sn_gemm_prologue *prologue;
    int n_state, n_prefetch, n_sums;
    bool
        row_scale; /* int8 and groups: the prologue gives 8-bit integers, and its last state is an f32
                    for the epilogue of that row */
    int tile;      /* block sizes: 0 .. sn_gemm_tiles - 1; results are bit-identical */
} sn_gemm;

/* Number of block size variants of this GEMM; with one row there is only one. */
int sn_gemm_tiles(const sn_gemm *g);
/* Describes variant i; static storage. */
const char *sn_gemm_tile_name(int i);

/* Emits a kernel called `name` into e's module. Errors in the spec are reported in e->err. The
 * operands must not overlap, except that the epilogue may read C at the position that it writes. */
void sn_gemm_emit(em *e, const char *name, const sn_gemm *g);

/* Bytes of scratch memory per thread, a constant of spec, target and compute type. */
int64_t sn_gemm_scratch(const sn_gemm *g, const sn_target *t, sn_dtype compute);

/* ... and of these bytes for each row of C. */
int sn_gemm_scratch_per_row(const sn_gemm *g);

/* What the plan of this kernel does, as bits; tests count the combinations that ran. 0: the spec is
 * refused. */
uint32_t sn_gemm_plan_flags(const sn_gemm *g, const sn_target *t, sn_dtype compute);
/* The names of the bits, separated by '+', in text[size]; returns text. */
const char *sn_gemm_plan_text(uint32_t flags, char *text, size_t size);

/* Elements of a packed K x N matrix. */
int64_t sn_gemm_packed_size(sn_dtype compute, int64_t k, int64_t n);

/* What B becomes before it is packed: numbers of groups, which are consecutive k of a column, and
 * elements that depend on these. All of B's columns at once; x: a vector of elements. */
enum { SN_GEMM_REDUCTIONS = 4, SN_GEMM_FACTORS = 7 };
typedef struct sn_gemm_pack_prologue {
    void *ctx;
    int size; /* k of a group, a multiple of 16 that divides K */
    int n_reduction;
    em_red reduction[SN_GEMM_REDUCTIONS]; /* EM_MAX or EM_MIN; NaN if an element is NaN */
    int n_factor, n_panels;               /* factors, the first n_panels of them in panels */
    sn_dtype factor_dtype[SN_GEMM_FACTORS];
    em_val (*reduced)(void *ctx, em *e, int i, em_val x); /* what reduction i takes of x */
    void (*begin)(void *ctx, em *e,
                  const em_val *reduction); /* a group, whose reductions are known */
    em_val (*factor)(void *ctx, em *e, int i);
    em_val (*element)(void *ctx, em *e, em_val x); /* floats, or i8 */
} sn_gemm_pack_prologue;

/* A kernel that packs B: buf[0] = source (K x N at the given strides, of any float dtype or i8),
 * buf[1] = panels in the compute type or in narrow_dtype. With `prologue` K is constant and the result
 * words, quads or i8; there may be several sources, buf[0] .. buf[n_part - 1], each with the next
 * part_n columns, multiples of 16; behind the panels are the factors: panels
 * [ceil(N / P)][K / size][P], or [N][K / size]. Uses no scratch. */
enum { SN_GEMM_PARTS = 8 };
typedef struct sn_gemm_pack {
    sn_dtype dtype; /* of the source */
    em_size k, n, row, col;
    int64_t half_width;
    bool packed4;     /* 4-bit integers, 8 along K to an i32; K is a multiple of 8 */
    sn_nibble nibble; /* how they are integers */
    bool quads;       /* 8-bit integers, 4 along K to an i32, below a row of sums (`int8`) */
    bool bf16;        /* words of 2 along K, for such a product */
    bool narrow;      /* panels are of narrow_dtype: bf16, f16, or i8 (values saturate) */
    sn_dtype narrow_dtype;
    const sn_gemm_pack_prologue *prologue; /* NULL: B is packed as it is */
    int n_part;                            /* with a prologue, from 1 on */
    int64_t part_n[SN_GEMM_PARTS];
} sn_gemm_pack;

void sn_gemm_emit_pack(em *e, const char *name, const sn_gemm_pack *p);

#endif
