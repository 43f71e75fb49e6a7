/* gemm_case.c: a kernel of the GEMM generator against sums in double. */
#include "tests/support/gemm_case.h"
#include "ir/ir.h"
#include "runtime/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { CANARY = 64 };
static const int thread_counts[] = {2, 3, 4, 7};
static const int64_t all_m[] = {0,  1,  2,  3,  5,  7,  13,  14,  15,
                                16, 31, 32, 33, 63, 64, 100, 129, 250};

/* --- one problem ------------------------------------------------------------------------------ */

enum { DIM_M, DIM_N, DIM_K, DIM_A, DIM_B, DIM_C, DIM_BATCH, DIMS };
enum {
    BUF_A,
    BUF_B,
    BUF_C,
    BUF_BIAS,
    BUF_GAIN,
    BUF_OUT,
    BUF_COUNTER,
    BUF_SCALE,
    BUF_OUTER,
    BUF_INDEX,
    BUFS
};

typedef struct problem {
    const gemm_shape *s;
    sn_dtype t;
    bool amx;
    int64_t m, n, k, items, columns;                  /* of the result */
    int64_t a_rows, b_rows, b_items;                  /* of the operands */
    int64_t named;                                    /* rows of C, or k, that name a block */
    int64_t a_row, a_col, b_row, b_col, c_row, c_col; /* strides */
    int64_t a_item, b_item, c_item;                   /* elements of a batch item */
    void *a, *b, *bias, *gain;
    uint16_t *scale, *outer_scale; /* in panels: bf16, or i8 and f16 */
    int32_t *index;                /* [named / per_row][per_row], rows one element further apart */
    double *exact_a, *exact_b;     /* A [items][a_rows][K], B [b_items][N][b_rows] */
    double *expect;
} problem;

static int64_t noise_state = 1;
static double noise(void) { /* in [-1, 1) */
    noise_state = (noise_state * 1103515245 + 12345) & 0x7fffffff;
    return (double)(noise_state >> 8) / (1 << 22) - 1;
}

static double get(sn_dtype t, const void *p, int64_t i) {
    return t == SN_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void put(sn_dtype t, void *p, int64_t i, double v) {
    if (t == SN_F64)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

static void *fill(sn_dtype t, int64_t n) {
    void *p = sn_memory_guarded((size_t)n * sn_dtype_size(t));
    for (int64_t i = 0; i < n; i++) put(t, p, i, noise());
    return p;
}

static double round_bf16(double v) {
    return (double)sn_bf16_to_f32(sn_f32_to_bf16((float)v));
}

static void *fill_bf16(int64_t n) {
    uint16_t *p = sn_memory_guarded((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) p[i] = sn_f32_to_bf16((float)noise());
    return p;
}

/* From -127 to 127, with many extremes: sums of i16 would show an overflow. */
static void *fill_i8(int64_t n) {
    int8_t *p = sn_memory_guarded((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        double v = rint(noise() * 254);
        p[i] = (int8_t)(v > 127 ? 127 : v < -127 ? -127 : v);
    }
    return p;
}

/* Some of them are outside the blocks. */
static int32_t *fill_index(int64_t n, int64_t blocks) {
    int32_t *p = sn_memory_guarded((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = (int32_t)floor((noise() + 1) / 2 * (double)(blocks + 2)) - 1;
    return p;
}

static em_size stride(gemm_layout l, int64_t v, int slot) {
    return l == RUNTIME ? EM_SIZE_DIM(slot) : EM_SIZE_CONST(v);
}

static void set_strides(gemm_layout l, int64_t rows, int64_t cols, int64_t *row, int64_t *col,
                        int64_t *size) {
    *row = l == TRANSPOSED ? 1 : cols + (l == PLAIN ? 0 : 5);
    *col = l == TRANSPOSED ? rows + 3 : 1;
    *size = l == TRANSPOSED ? *col * cols : *row * rows;
}

/* --- what is fused ---------------------------------------------------------------------------- */

static em_val bias_and_square(void *ctx, em *e, const em_val *acc, const sn_gemm_at *at) {
    const problem *p = ctx;
    em_val bias = em_gep(e, em_buf(e, BUF_BIAS), p->t, at->col);
    em_val x = em_add(e, acc[0], em_load_mask(e, p->t, bias, at->lanes, at->mask, NULL));
    em_val to = em_add(e, em_mul(e, at->row, em_i64(e, p->c_row)), at->col);
    em_val place = em_gep(e, em_buf(e, BUF_C), p->t, to);
    if (p->s->pair && p->columns < p->n) return em_mul(e, x, acc[1]);
    if (p->s->pair) {
        em_val apart = em_i64(e, p->s->pair);
        em_val y = em_load(e, p->t, em_gep(e, bias, p->t, apart), at->lanes);
        em_store(e, p->t, em_gep(e, place, p->t, apart), em_mul(e, em_add(e, acc[1], y), acc[0]));
        return em_mul(e, x, acc[1]);
    }
    x = em_mul(e, x, x);
    if (!p->s->no_store) return x;
    em_store_mask(e, p->t, place, x, at->mask);
    return NULL;
}

/* Row value: the row's first element; element: (x - first) * gain[k]. */
static void first_of_row(void *ctx, em *e, const sn_gemm_at *at, em_val *state) {
    const problem *p = ctx;
    em_val first = em_mul(e, at->row, em_i64(e, p->a_row));
    state[0] = em_load(e, p->t, em_gep(e, em_buf(e, BUF_A), p->t, first), 1);
}

static em_val shift_and_gain(void *ctx, em *e, em_val x, const sn_gemm_at *at,
                             const em_val *state) {
    const problem *p = ctx;
    em_val gain = em_gep(e, em_buf(e, BUF_GAIN), p->t, at->col);
    return em_mul(e, em_sub(e, x, state[0]),
                  em_load_mask(e, p->t, gain, at->lanes, at->mask, NULL));
}

/* --- reference -------------------------------------------------------------------------------- */

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Elements of the index array. */
static int64_t index_size(const problem *p) {
    return p->s->blocks ? div_up(p->named, p->s->per_row) * (p->s->per_row + 1) : 0;
}

/* The block that row i of C, or k = i, names. */
static int64_t block_of(const problem *p, int64_t i) {
    int64_t per_row = p->s->per_row, b = p->index[i / per_row * (per_row + 1) + i % per_row];
    return b < 0 ? 0 : b < p->s->blocks ? b : p->s->blocks - 1;
}

static double a_element(const problem *p, int64_t item, int64_t i, int64_t k) {
    int64_t row = item * p->a_item + i * p->a_row;
    if (p->s->a_i8) return ((const int8_t *)p->a)[row + k * p->a_col];
    if (p->s->a_bf16) return (double)sn_bf16_to_f32(((const uint16_t *)p->a)[row + k * p->a_col]);
    double x = get(p->t, p->a, row + k * p->a_col);
    if (!p->s->prologue) return p->s->bf16 ? round_bf16(x) : x;
    double shifted = x - get(p->t, p->a, row), gain = get(p->t, p->gain, k);
    return p->s->bf16 ? round_bf16((float)shifted * (float)gain) : shifted * gain;
}

static int parts(const gemm_shape *s) {
    return s->minima ? 2 : 1;
}

/* Index of a factor (part 0: scale, 1: minimum) of column j in the group of row k, of `size`: in panels
 * [K / size][parts][P]. Pairs: half a panel of columns, then those half_width further. */
static int64_t factor_index(const problem *p, int64_t k, int64_t j, int64_t size, int part) {
    int64_t wide = sn_panel_columns(p->t), half = wide / 2, pair = p->s->pair, lane = j % wide,
            panel = j / wide;
    if (pair) {
        int64_t column = j / (2 * pair) * pair + j % pair; /* among the first halves */
        panel = column / half;
        lane = column % half + (j / pair % 2 ? half : 0);
    }
    return ((panel * (p->k / size) + k / size) * parts(p->s) + part) * wide + lane;
}

static double factor(const problem *p, int64_t k, int64_t j, int part) {
    int64_t i = factor_index(p, k, j, p->s->scale_group, part);
    if (!p->s->outer_group) return (double)sn_bf16_to_f32(p->scale[i]);
    double of =
        (double)sn_f16_to_f32(p->outer_scale[factor_index(p, k, j, p->s->outer_group, part)]);
    return of * ((const int8_t *)p->scale)[i];
}

static double b_element(const problem *p, int64_t b, int64_t k, int64_t j) {
    double x = get(p->t, p->b, b + k * p->b_row + j * p->b_col);
    if (!p->scale) return p->s->bf16 ? round_bf16(x) : x;
    x = x * factor(p, k, j, 0) + (p->s->minima ? factor(p, k, j, 1) : 0);
    return p->s->bf16 ? round_bf16(x) : x;
}

static double *doubles(int64_t n) {
    double *p = malloc((size_t)(n + 1) * sizeof *p);
    assert_non_null(p);
    return p;
}

/* The operands as the sums take them. */
static void make_exact(problem *p) {
    int64_t a_items = p->s->ragged ? 1 : p->items;
    double *a = p->exact_a = doubles(a_items * p->a_rows * p->k);
    double *b = p->exact_b = doubles(p->b_items * p->n * p->b_rows);
    for (int64_t item = 0; item < a_items; item++)
        for (int64_t i = 0; i < p->a_rows; i++)
            for (int64_t k = 0; k < p->k; k++) *a++ = a_element(p, item, i, k);
    for (int64_t item = 0; item < p->b_items; item++)
        for (int64_t j = 0; j < p->n; j++)
            for (int64_t k = 0; k < p->b_rows; k++) *b++ = b_element(p, item * p->b_item, k, j);
}

/* By pairs, the odd k first. */
static double bf16_product(const double *a, const double *b, int64_t k) {
    float sum = 0;
    for (int64_t i = 0; i < k; i += 2) {
        if (i + 1 < k) sum = fmaf((float)a[i + 1], (float)b[i + 1], sum);
        sum = fmaf((float)a[i], (float)b[i], sum);
    }
    return (double)sum;
}

/* By tiles of 32 k: the even ones and the odd ones. */
static double amx_product(const double *a, const double *b, int64_t k) {
    float sum = 0;
    for (int64_t from = 0; from < k; from += 32) {
        float half[2] = {0, 0};
        for (int64_t i = from; i < k && i < from + 32; i++)
            half[i & 1] = fmaf((float)a[i], (float)b[i], half[i & 1]);
        sum += half[0] + half[1];
    }
    return (double)sum;
}

static double product(const problem *p, int64_t item, int64_t i, int64_t j) {
    const gemm_shape *s = p->s;
    int64_t a_item = item, b_item = s->batch1 ? item / s->batch1 : item;
    if (s->blocks) a_item = b_item = 0;
    if (s->blocks && !s->ragged) {
        if (!s->packed) b_item = block_of(p, i);
        i /= s->per_row;
    }
    const double *a = p->exact_a + (a_item * p->a_rows + i) * p->k;
    const double *b = p->exact_b + (b_item * p->n + j) * p->b_rows;
    if (s->bf16 && s->ragged) {
        double *of_a = doubles(p->k), *of_b = doubles(p->k);
        int64_t n = 0;
        for (int64_t k = 0; k < p->k; k++)
            if (block_of(p, k) == item) of_a[n] = a[k], of_b[n++] = b[k / s->per_row];
        double y = bf16_product(of_a, of_b, n);
        free(of_a);
        free(of_b);
        return y;
    }
    if (s->bf16) return (p->amx ? amx_product : bf16_product)(a, b, p->k);
    double sum = 0;
    for (int64_t k = 0; k < p->k && !s->ragged; k++) sum += a[k] * b[k];
    for (int64_t k = 0; k < p->k && s->ragged; k++)
        if (block_of(p, k) == item) sum += a[k] * b[k / s->per_row];
    return sum;
}

/* The column of B of column j of row i of C. */
static int64_t column(const problem *p, int64_t i, int64_t j) {
    const gemm_shape *s = p->s;
    return s->blocks && s->packed ? block_of(p, i) * (p->n / s->blocks) + j : j;
}

static void reference(problem *p) {
    make_exact(p);
    double *out = p->expect = doubles(p->items * p->m * p->columns);
    int64_t pair = p->s->pair;
    for (int64_t item = 0; item < p->items; item++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t c = 0; c < p->columns; c++) {
                int64_t j = column(p, i, c);
                double x = product(p, item, i, j);
                if (p->s->epilogue) {
                    double biased = x + get(p->t, p->bias, j);
                    if (pair) x = product(p, item, i, j % (2 * pair) < pair ? j + pair : j - pair);
                    x = biased * (pair ? x : biased);
                }
                *out++ = x;
            }
    free(p->exact_a);
    free(p->exact_b);
}

/* --- running ---------------------------------------------------------------------------------- */

/* What the index array selects. */
static void name_blocks(const problem *p, sn_gemm *g) {
    const gemm_shape *s = p->s;
    g->per_row = s->per_row;
    g->index_buf = BUF_INDEX;
    g->index_dtype = SN_I32;
    g->index_row = EM_SIZE_CONST(s->per_row + 1);
    g->index_col = EM_SIZE_CONST(1);
    if (!s->ragged) {
        g->n_blocks = s->blocks;
        g->b_block = EM_SIZE_CONST(p->b_item);
        return;
    }
    g->ragged_k = true;
    g->n_batch = 1;
    g->batch[0] = EM_SIZE_CONST(s->blocks);
    g->a.batch[0] = g->b.batch[0] = EM_SIZE_CONST(0);
    g->c.batch[0] = EM_SIZE_DIM(DIMS + 2);
}

static sn_gemm_operand transposed(const sn_gemm_operand *a) {
    sn_gemm_operand b = *a;
    b.row = a->col;
    b.col = a->row;
    return b;
}

static void make_spec(const problem *p, sn_gemm *g) {
    const gemm_shape *s = p->s;
    *g = (sn_gemm){.m = s->m_constant ? EM_SIZE_CONST(p->m) : EM_SIZE_DIM(DIM_M),
                   .n = s->n_runtime ? EM_SIZE_DIM(DIM_N) : EM_SIZE_CONST(p->n),
                   .k = s->k_runtime ? EM_SIZE_DIM(DIM_K) : EM_SIZE_CONST(p->k),
                   .b_packed = s->packed,
                   .half_width = s->pair,
                   .no_store = s->no_store,
                   .dynamic = s->dynamic,
                   .counter_buf = BUF_COUNTER,
                   .groups = {.size = s->scale_group,
                              .bits = s->bits ? s->bits : 4,
                              .nibble = s->nibble,
                              .has_min = s->minima,
                              .outer_group = s->outer_group,
                              .factor = s->outer_group ? SN_I8 : SN_BF16,
                              .factor_buf = BUF_SCALE,
                              .outer_buf = BUF_OUTER},
                   .tile = s->tile,
                   .ctx = (void *)p,
                   .n_state = 1};
    g->a = (sn_gemm_operand){.buf = BUF_A, .dtype = p->t, .offset = EM_SIZE_CONST(0)};
    g->b = g->c = g->a;
    if (s->a_i8) g->a.dtype = SN_I8;
    if (s->a_bf16) g->a.dtype = SN_BF16;
    g->bf16 = s->bf16;
    g->b.buf = BUF_B;
    if (s->narrow) g->b.dtype = s->panels;
    if (s->bf16 && s->packed) g->b.dtype = SN_BF16;
    g->c.buf = BUF_C;
    g->a.row = stride(s->a, p->a_row, DIM_A);
    g->a.col = EM_SIZE_CONST(p->a_col);
    g->b.row = stride(s->b, p->b_row, DIM_B);
    g->b.col = EM_SIZE_CONST(p->b_col);
    g->c.row = stride(s->c, p->c_row, DIM_C);
    g->c.col = EM_SIZE_CONST(p->c_col);
    if (s->a == TRANSPOSED) g->a.col = EM_SIZE_DIM(DIM_A);
    if (s->c == TRANSPOSED) g->c.col = EM_SIZE_DIM(DIM_C);
    g->symmetric = s->symmetric;
    if (s->symmetric) g->b = transposed(&g->a);
    if (s->epilogue) g->epilogue = bias_and_square;
    if (s->prologue) {
        g->row_prologue = first_of_row;
        g->prologue = shift_and_gain;
    }
    if (s->blocks) {
        name_blocks(p, g);
        return;
    }
    if (!s->batch0) return;
    /* A and C change with M, so their item strides are run-time values */
    int64_t inner = s->batch1 ? s->batch1 : 1;
    g->n_batch = s->batch1 ? 2 : 1;
    g->batch[0] = s->n_runtime ? EM_SIZE_DIM(DIM_BATCH) : EM_SIZE_CONST(s->batch0);
    g->batch[1] = EM_SIZE_CONST(inner);
    g->a.batch[0] = EM_SIZE_DIM(DIMS);
    g->a.batch[1] = EM_SIZE_DIM(DIMS + 1);
    g->b.batch[0] = s->symmetric ? g->a.batch[0] : EM_SIZE_CONST(p->b_item);
    g->b.batch[1] = EM_SIZE_CONST(0);
    g->c.batch[0] = EM_SIZE_DIM(DIMS + 2);
    g->c.batch[1] = EM_SIZE_DIM(DIMS + 3);
}

typedef struct kernel {
    sn_kernel_fn *run, *pack;
    int64_t scratch, scratch_per_row;
} kernel;

static sn_kernel_fn *find(sn_jit *jit, const char *name) {
    sn_error err = {0};
    void *p = sn_jit_lookup(jit, name, &err);
    if (!p) fail_msg("%s", err.message);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    return f;
}

static bool packs_4_bits(const gemm_shape *s) {
    return s->scale_group && s->bits != 8;
}

static kernel compile(sn_jit *jit, const sn_target *target, const problem *p, int number) {
    sn_error err = {0};
    em e;
    char run[64], pack[64];
    snprintf(run, sizeof run, "gemm%d", number);
    snprintf(pack, sizeof pack, "pack%d", number);
    assert_true(em_init(&e, target, run, p->t, &err));
    sn_gemm g;
    make_spec(p, &g);
    sn_gemm_emit(&e, run, &g);
    em_size n = p->s->pair ? EM_SIZE_CONST(p->n) : EM_SIZE_DIM(DIM_N);
    sn_gemm_emit_pack(&e, pack,
                      &(sn_gemm_pack){.dtype = p->t,
                                      .k = EM_SIZE_DIM(DIM_K),
                                      .n = n,
                                      .row = EM_SIZE_CONST(p->b_row),
                                      .col = EM_SIZE_CONST(p->b_col),
                                      .half_width = p->s->pair,
                                      .packed4 = packs_4_bits(p->s),
                                      .nibble = p->s->nibble,
                                      .bf16 = p->s->bf16 && !p->s->scale_group,
                                      .narrow = p->s->narrow || p->s->scale_group,
                                      .narrow_dtype = packs_4_bits(p->s)  ? SN_I32
                                                      : p->s->scale_group ? SN_I8
                                                                          : p->s->panels});
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s: %s", p->s->name, err.message);
    em_free(&e);
    return (kernel){find(jit, run), find(jit, pack), sn_gemm_scratch(&g, target, p->t),
                    sn_gemm_scratch_per_row(&g)};
}

/* Sizes and strides. */
static problem make_problem(const gemm_shape *s, sn_dtype t, int64_t m) {
    problem p = {.s = s, .t = t, .m = m, .n = s->n, .k = s->k};
    p.items = (s->batch1 ? s->batch1 : 1) * (s->batch0 ? s->batch0 : 1);
    p.b_items = s->batch0 ? s->batch0 : 1;
    p.columns = s->blocks && s->packed ? s->n / s->blocks : s->n;
    if (s->pair && p.columns == 2 * s->pair) p.columns = s->pair;
    p.a_rows = m;
    p.b_rows = p.k;
    if (s->ragged) {
        p.items = s->blocks;
        p.named = p.k;
        p.b_rows = div_up(p.k, s->per_row);
    } else if (s->blocks) {
        p.named = m;
        p.a_rows = div_up(m, s->per_row);
        if (!s->packed) p.b_items = s->blocks;
    }
    set_strides(s->a, p.a_rows, p.k, &p.a_row, &p.a_col, &p.a_item);
    set_strides(s->b, p.b_rows, p.n, &p.b_row, &p.b_col, &p.b_item);
    set_strides(s->c, m, p.columns, &p.c_row, &p.c_col, &p.c_item);
    return p;
}

/* v, from -1 to 1, as an integer of 4 bits. */
static double round_to_nibble(sn_nibble nibble, double v) {
    static const double fp4[] = {0, 1, 2, 3, 4, 6, 8, 12};
    if (nibble == SN_NIBBLE_FP4) return copysign(fp4[(int)rint(fabs(v) * 7)], v);
    return rint(nibble == SN_NIBBLE_UNSIGNED ? 7.5 + 7.5 * v : v * 7);
}

/* The nearest value that B's panels hold. */
static double round_to_panels(const gemm_shape *s, double v) {
    if (s->scale_group) return s->bits == 8 ? rint(v * 127) : round_to_nibble(s->nibble, v);
    if (!s->narrow) return v;
    return s->panels == SN_BF16  ? round_bf16(v)
           : s->panels == SN_F16 ? (double)sn_f16_to_f32(sn_f32_to_f16((float)v))
                                 : rint(v * 127);
}

/* Elements of A. */
static int64_t a_size(const problem *p) {
    return (p->s->ragged ? 1 : p->items) * p->a_item;
}

static void prepare(problem *p, const sn_target *target, const gemm_shape *s, sn_dtype t,
                    int64_t m) {
    *p = make_problem(s, t, m);
    p->amx = target->amx && !s->ragged && !s->symmetric;
    int64_t of_a = a_size(p), of_b = p->b_items * p->b_item;
    p->a = s->a_i8 ? fill_i8(of_a) : s->a_bf16 ? fill_bf16(of_a) : fill(t, of_a);
    p->b = fill(t, of_b);
    if (s->blocks) p->index = fill_index(index_size(p), s->blocks);
    for (int64_t i = 0; i < of_b; i++) put(t, p->b, i, round_to_panels(s, get(t, p->b, i)));
    for (int64_t i = 0; s->symmetric && i < of_b; i++) {
        int64_t item = i / p->b_item, k = i % p->b_item / p->n, j = i % p->n;
        put(t, p->b, i, a_element(p, item, j, k));
    }
    p->bias = fill(t, p->n);
    p->gain = fill(t, p->k);
    if (s->scale_group) {
        int64_t n = sn_gemm_packed_size(t, p->k / s->scale_group, p->n) * parts(s);
        p->scale = malloc((size_t)n * sizeof *p->scale);
        p->outer_scale = malloc((size_t)n * sizeof *p->outer_scale);
        assert_true(p->scale && p->outer_scale);
        for (int64_t i = 0; i < n; i++) {
            p->scale[i] = sn_f32_to_bf16((float)noise());
            p->outer_scale[i] = sn_f32_to_f16((float)noise() / 64);
        }
        for (int64_t i = 0; s->outer_group && i < n; i++)
            ((int8_t *)p->scale)[i] = (int8_t)(noise() * 64);
    }
    if (!s->only_bits) reference(p);
}

sn_gemm gemm_case_spec(const gemm_shape *s, sn_dtype t, int64_t m) {
    problem p = make_problem(s, t, m);
    sn_gemm g;
    make_spec(&p, &g);
    return g;
}

static void release(problem *p) {
    size_t size = sn_dtype_size(p->t);
    sn_memory_release_guarded(p->a, (size_t)a_size(p) * (p->s->a_i8 ? 1 : p->s->a_bf16 ? 2 : size));
    sn_memory_release_guarded(p->b, (size_t)(p->b_items * p->b_item) * size);
    sn_memory_release_guarded(p->index, (size_t)index_size(p) * sizeof *p->index);
    sn_memory_release_guarded(p->bias, (size_t)p->n * size);
    sn_memory_release_guarded(p->gain, (size_t)p->k * size);
    free(p->scale);
    free(p->outer_scale);
    free(p->expect);
}

/* NaN, up to a page that nobody may write. The same memory each time: new pages take most of a test's time. */
static char *scratch_of(size_t room) {
    static char *memory;
    static size_t size;
    if (room > size) {
        sn_memory_release_guarded(memory, size);
        memory = sn_memory_guarded(room);
        assert_non_null(memory);
        size = room;
    }
    char *scratch = memory ? memory + size - room : NULL;
    if (room) memset(scratch, 0xff, room);
    return scratch;
}

/* Runs on `threads` threads, one after another (they share nothing). C is between canaries. */
static void *run(const problem *p, const kernel *k, int threads, void *panels) {
    int64_t size = p->items * p->c_item, bytes = (size + 2 * CANARY) * 8;
    char *c = malloc((size_t)bytes);
    assert_non_null(c);
    for (int64_t i = 0; i < size + 2 * CANARY; i++) put(p->t, c, i, 12345);
    char *out = c + CANARY * (int64_t)sn_dtype_size(p->t);
    int64_t dim[DIMS + 4] = {
        p->m, p->n, p->k, p->a_col == 1 ? p->a_row : p->a_col, p->b_row, p->c_row, p->s->batch0, 0,
        0,    0,    0};
    if (p->c_col != 1) dim[DIM_C] = p->c_col;
    int64_t inner = p->s->batch1 ? p->s->batch1 : 1;
    dim[DIMS] = inner * p->a_item;
    dim[DIMS + 1] = p->a_item;
    dim[DIMS + 2] = inner * p->c_item;
    dim[DIMS + 3] = p->c_item;
    int64_t ticket = 0;
    void *buf[BUFS] = {p->a,     panels ? panels : p->b, out,     p->bias, p->gain, NULL, &ticket,
                       p->scale, p->outer_scale,         p->index};
    int64_t scratch_bytes = k->scratch + k->scratch_per_row * p->named;
    for (int t = 0; t < threads; t++) {
        size_t room = ((size_t)scratch_bytes + 63) / 64 * 64;
        char *scratch = scratch_of(room);
        k->run(buf, dim, scratch, t, threads);
        for (size_t i = (size_t)scratch_bytes; i < room; i++) assert_true(scratch[i] == (char)0xff);
    }
    assert_true((ticket > threads) == (p->s->dynamic && threads > 1));
    return c;
}

static void check(const problem *p, const void *c, const char *where) {
    double eps = p->t == SN_F64 ? 1e-12 : 1e-5, scale = sqrt((double)p->k + 1);
    if (p->s->panels == SN_I8 || p->s->scale_group) scale *= 127;
    if (p->s->a_i8) scale *= 127;
    /* a row alone has integers widened in registers, in the order of bf16 */
    if (p->s->bf16 && !p->s->epilogue && !(p->amx && p->s->scale_group)) eps = 0;
    if (p->s->epilogue) scale *= scale;
    int64_t size = p->items * p->c_item, stored = 0;
    for (int64_t item = 0; item < p->items; item++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->columns; j++) {
                double want = p->expect[(item * p->m + i) * p->columns + j];
                int64_t at = item * p->c_item + i * p->c_row + j * p->c_col;
                double is = get(p->t, c, CANARY + at);
                if (!(fabs(is - want) <= eps * scale * (1 + fabs(want) / scale)))
                    fail_msg("%s %s %s: C[%lld,%lld,%lld] of %lldx%lldx%lld is %g, not %g", where,
                             p->s->name, sn_dtype_name(p->t), (long long)item, (long long)i,
                             (long long)j, (long long)p->m, (long long)p->n, (long long)p->k, is,
                             want);
            }
    for (int64_t i = 0; i < size + 2 * CANARY; i++) stored += get(p->t, c, i) != 12345;
    if (stored != p->items * p->m * p->columns)
        fail_msg("%s %s: %lld elements written for M = %lld", where, p->s->name, (long long)stored,
                 (long long)p->m);
}

void gemm_case_run(sn_jit *jit, const sn_target *target, const gemm_shape *s, sn_dtype t,
                   int number) {
    kernel k = {0};
    const int64_t *rows = s->some_m ? s->some_m : all_m;
    for (size_t i = 0; s->some_m ? rows[i] != 0 : i < sizeof all_m / sizeof *all_m; i++) {
        if (s->only_m && i > 0) break;
        problem p;
        prepare(&p, target, s, t, s->only_m ? s->only_m : rows[i]);
        if (i == 0) k = compile(jit, target, &p, number);
        void *panels = NULL;
        if (s->packed) {
            int64_t n = sn_gemm_packed_size(t, p.k, p.n);
            panels = aligned_alloc(64, (size_t)(n * 8 + 64) / 64 * 64);
            assert_non_null(panels);
            int64_t dim[DIMS] = {0, p.n, p.k};
            for (int64_t j = 0; j < n; j++) put(t, panels, j, NAN);
            for (int th = 0; th < 2; th++) k.pack((void *[]){p.b, panels}, dim, NULL, th, 2);
            for (int64_t j = 0; j < n && !s->narrow && !s->scale_group && !s->bf16; j++)
                assert_false(isnan(get(t, panels, j)));
        }
        void *one = run(&p, &k, 1, panels);
        if (!s->only_bits) check(&p, one, target->name);
        for (size_t j = 0; j < sizeof thread_counts / sizeof *thread_counts; j++) {
            int threads = thread_counts[j];
            void *more = run(&p, &k, threads, panels);
            size_t bytes = (size_t)(p.items * p.c_item + 2 * CANARY) * sn_dtype_size(t);
            if (memcmp(one, more, bytes) != 0)
                fail_msg("%s: other bits with %d threads", s->name, threads);
            free(more);
        }
        free(one);
        free(panels);
        release(&p);
    }
}
