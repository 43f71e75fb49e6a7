/* gemm.h: generator of matrix product kernels, C = epi(pro(A) B).
 * A spec says where the operands lie and what is constant; callbacks emit what is fused before and
 * after the product. One kernel serves every run-time size of its spec, M = 1 to large. */
#ifndef SN_GEMM_H
#define SN_GEMM_H

#include "codegen/emit/emit.h"

/* C[b,i,j] = epi(sum over k of pro(A[b,i,k]) B[b,k,j]), i < M, j < N, k < K, b over up to three
 * batch axes.
 *
 * Every element is summed over k in order, in one chain of fused multiply-adds, whatever M, N, the
 * split over threads or the tile that it falls into: results do not depend on the number of threads
 * nor on the other rows.
 *
 * Right factors that stay the same are stored in panels (sn_gemm_emit_pack): panel p holds columns
 * [pP, (p+1)P) of B as [K][P], zero beyond N; P = sn_gemm_panel(compute) whatever the ISA. Other
 * right factors are read where they lie, or packed by the kernel a panel at a time.
 *
 * Panels may be narrower than the compute type: bf16, f16 or i8 widen in registers (scales of i8
 * columns are the epilogue's). All other unpacked operands may be of any float type.
 *
 * Pairs (`pair` = h): the columns come in blocks of 2h, and columns j and j + h of a block meet in
 * the epilogue (the halves of a gate, of a head that is rotated). A panel then holds P/2 columns of
 * a block's first half, and those h further. N is a multiple of 2h, and h of P/2 if there are
 * several blocks. The epilogue's value for column j is stored there: with one block, a result of h
 * columns.
 *
 * Panels of 4-bit integers (`group`): an i32 holds 8 consecutive k of a column, a panel is
 * [K / 8][P] words; `group` consecutive k share a bf16 factor, in panels [K / group][P]. A single
 * row (M = 1) sums each group before it is multiplied by its factor; several rows
 * multiply first. */
enum { SN_GEMM_BATCH = 3, SN_GEMM_STATE = 4, SN_GEMM_SUMS = 4 };

/* A size, stride or offset in elements: a constant (slot < 0), or dim[slot] of the call. */
typedef struct sn_gemm_size {
    int64_t value;
    int slot;
} sn_gemm_size;

#define SN_GEMM_CONST(v) ((sn_gemm_size){(v), -1})
#define SN_GEMM_DIM(s) ((sn_gemm_size){0, (s)})

typedef struct sn_gemm_operand {
    int buf;        /* its base pointer is buf[buf] of the call */
    sn_dtype dtype; /* as stored; the arithmetic is in the emission context's compute type */
    sn_gemm_size offset;
    sn_gemm_size batch[SN_GEMM_BATCH]; /* strides of the batch axes; 0 repeats (GQA) */
    sn_gemm_size row, col;             /* strides; of a packed B both are ignored */
} sn_gemm_operand;

/* Where the lanes of an epilogue or prologue vector lie: C[batch][row][col + lane], or
 * A[batch][row][col + lane]; mask: lanes that exist, NULL: all. Loads and stores of the callback
 * must use it. */
typedef struct sn_gemm_at {
    em_val batch[SN_GEMM_BATCH]; /* i64 */
    em_val row, col;             /* i64 */
    em_val mask;
    int lanes;
} sn_gemm_at;

/* Emits what becomes of a vector of sums; returns what C gets (ignored when the spec says that the
 * callback stores). acc[1] exists with `pair` only: the sums `pair` columns further. */
typedef em_val sn_gemm_epilogue(void *ctx, em *e, const em_val *acc, const sn_gemm_at *at);

/* Emits the reductions over a row of a panel, all of whose vectors the epilogue was given: fills
 * sum[0 .. n_sums-1] with scalars. */
typedef void sn_gemm_row_sums(void *ctx, em *e, em_val *sum);

/* Emits the store of a tile's: lane i of sum[0 .. n_sums-1] is row at->row + i's, of the panel
 * whose first column is at->col; at->mask: lanes that exist. (One store a row fills the store
 * buffer while lines of C are waited for: 50 % longer at K = 64.) */
typedef void sn_gemm_store_sums(void *ctx, em *e, const em_val *sum, const sn_gemm_at *at);

/* Emits the addresses of the n_touch cache lines that the epilogue will read (and may write) of row
 * at->row in the panel of columns from at->col on; lanes and mask mean nothing. */
typedef void sn_gemm_touch(void *ctx, em *e, const sn_gemm_at *at, em_val *line);

/* Emits what a row of A needs before its elements (mean, scale): fills state[0 .. n_state-1] with
 * scalars. at->col is 0, at->mask NULL. */
typedef void sn_gemm_row_prologue(void *ctx, em *e, const sn_gemm_at *at, em_val *state);

/* Emits what becomes of a vector of A's elements x (compute type) along k = at->col. */
typedef em_val sn_gemm_prologue(void *ctx, em *e, em_val x, const sn_gemm_at *at,
                                const em_val *state);

typedef struct sn_gemm {
    int n_batch;
    sn_gemm_size batch[SN_GEMM_BATCH];
    sn_gemm_size m, n, k;
    sn_gemm_operand a, b, c; /* a: rows i, columns k; b: rows k, columns j; c: rows i, columns j */
    bool b_packed;           /* b is in panels */
    int group; /* > 0: packed B is of 4-bit integers, so many along K share a factor; a multiple
                  of 8 that divides K */
    int factor_buf; /* the factors' base pointer is buf[factor_buf] */
    int64_t pair;   /* > 0: columns so far apart meet in the epilogue (packed B only) */
    bool tickets;   /* buf[ticket_buf] is an i64, 0 when the kernel begins, from which threads draw
                       the last parts of a long product; or NULL: their shares are fixed */
    int ticket_buf;
    bool no_store; /* the epilogue stores; c is not used */
    void *ctx;     /* for the callbacks, each of which may be NULL */
    sn_gemm_epilogue *epilogue;
    sn_gemm_row_sums *row_sums; /* where N is a multiple of the panel */
    sn_gemm_store_sums *store_sums;
    sn_gemm_touch *touch_sums; /* where that goes: n_sums lines */
    sn_gemm_touch *touch;      /* where the epilogue reads tensors of the result's size */
    sn_gemm_row_prologue *row_prologue;
    sn_gemm_prologue *prologue;
    int n_state, n_touch, n_sums;
    int tile; /* how it is cut in blocks: 0, or another of sn_gemm_tiles; the same bits */
} sn_gemm;

/* How many ways of cutting this product there are; one row alone has only one. */
int sn_gemm_tiles(const sn_gemm *g);
/* Says what way i is. */
const char *sn_gemm_tile_name(int i);

/* Emits a kernel called `name` into e's module. Mistakes of the spec stick to e->err. The matrices
 * must not overlap, except that the epilogue may read C's elements at its own place. */
void sn_gemm_emit(em *e, const char *name, const sn_gemm *g);

/* Bytes of scratch that each thread needs; constant for a spec, a target and a compute type. */
int64_t sn_gemm_scratch(const sn_gemm *g, const sn_target *t, sn_dtype compute);

/* Columns of a panel: 128 bytes of the compute type. */
int sn_gemm_panel(sn_dtype compute);

/* Elements of the panels of a K x N right factor. */
int64_t sn_gemm_packed_size(sn_dtype compute, int64_t k, int64_t n);

/* A kernel that writes panels: buf[0] = source (K x N at the given strides, any float dtype),
 * buf[1] = panels in the compute type (or narrow). No scratch. */
typedef struct sn_gemm_pack {
    sn_dtype dtype; /* of the source */
    sn_gemm_size k, n, row, col;
    int64_t pair;
    int group;   /* > 0: panels of 4-bit integers; K is a multiple of 8 */
    bool narrow; /* panels are of narrow_dtype: bf16, f16, or i8 (values saturate) */
    sn_dtype narrow_dtype;
} sn_gemm_pack;

void sn_gemm_emit_pack(em *e, const char *name, const sn_gemm_pack *p);

#endif
