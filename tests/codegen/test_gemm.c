/* The GEMM generator against sums in double: every tile size, odd sizes, strides, batches, fusion,
 * both compute types, both vector widths; equal bits for any number of threads; nothing
 * outside C. */
#include "codegen/gemm/gemm.h"
#include "tests/support/effort.h"
#include "codegen/jit/jit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY = 64 };
static const int thread_counts[] = {2, 3, 4, 7};
static const int64_t all_m[] = {0,  1,  2,  3,  5,  7,  13,  14,  15,
                                16, 31, 32, 33, 63, 64, 100, 129, 250};

typedef enum layout { PLAIN, WIDE, TRANSPOSED, RUNTIME } layout; /* WIDE: rows further apart */

typedef struct shape {
    const char *name;
    int64_t n, k;
    bool n_runtime, k_runtime, m_constant;
    layout a, b, c;
    bool packed;
    bool epilogue, prologue, no_store;
    int64_t pair;           /* columns so far apart meet; N = 2 pair: one result of both */
    int64_t batch0, batch1; /* 0: none; batch1 repeats B (GQA) */
    int64_t only_m;         /* 0: all */
    bool narrow;            /* panels of this type; B then holds values that it holds exactly */
    sn_dtype panels;
    bool dynamic;   /* so long that threads draw its last rows */
    bool only_bits; /* too large for sums in double: threads have other blocks, and the same bits */
} shape;

static const shape shapes[] = {
    {.name = "packed", .n = 100, .k = 37, .packed = true},
    {.name = "packed even", .n = 64, .k = 48, .packed = true},
    {.name = "packed wide", .n = 33, .k = 20, .packed = true, .a = WIDE, .c = WIDE},
    {.name = "packed runtime strides",
     .n = 70,
     .k = 33,
     .packed = true,
     .a = RUNTIME,
     .c = RUNTIME},
    {.name = "packed runtime n", .n = 45, .k = 19, .packed = true, .n_runtime = true},
    {.name = "packed runtime k", .n = 40, .k = 23, .packed = true, .k_runtime = true},
    {.name = "packed transposed",
     .n = 31,
     .k = 18,
     .packed = true,
     .a = TRANSPOSED,
     .c = TRANSPOSED},
    {.name = "plain", .n = 77, .k = 29},
    {.name = "plain one panel", .n = 32, .k = 64, .b = WIDE},
    {.name = "plain transposed", .n = 65, .k = 31, .b = TRANSPOSED},
    {.name = "all runtime",
     .n = 50,
     .k = 21,
     .n_runtime = true,
     .k_runtime = true,
     .a = RUNTIME,
     .b = RUNTIME,
     .c = RUNTIME},
    {.name = "long k",
     .n = 40,
     .k = 2500,
     .k_runtime = true,
     .a = RUNTIME,
     .b = TRANSPOSED,
     .only_m = 33},
    {.name = "long k, many columns",
     .n = 600,
     .k = 1100,
     .k_runtime = true,
     .a = TRANSPOSED,
     .only_m = 61},
    {.name = "one row", .n = 100, .k = 40, .packed = true, .m_constant = true, .only_m = 1},
    {.name = "constant m", .n = 70, .k = 25, .packed = true, .m_constant = true, .only_m = 19},
    {.name = "no columns", .n = 0, .k = 5, .n_runtime = true, .packed = true},
    {.name = "empty sum", .n = 20, .k = 0, .packed = true},
    {.name = "empty runtime sum",
     .n = 20,
     .k = 0,
     .k_runtime = true,
     .a = RUNTIME,
     .epilogue = true},
    {.name = "epilogue", .n = 50, .k = 24, .packed = true, .epilogue = true},
    {.name = "epilogue stores",
     .n = 50,
     .k = 24,
     .packed = true,
     .epilogue = true,
     .no_store = true},
    {.name = "prologue", .n = 50, .k = 43, .packed = true, .prologue = true},
    {.name = "both", .n = 50, .k = 43, .packed = true, .prologue = true, .epilogue = true},
    {.name = "pair", .n = 96, .k = 20, .packed = true, .pair = 48, .epilogue = true},
    {.name = "pair of odd halves", .n = 82, .k = 20, .packed = true, .pair = 41, .epilogue = true},
    {.name = "pairs in blocks", .n = 192, .k = 21, .packed = true, .pair = 32, .epilogue = true},
    {.name = "pair of rows",
     .n = 82,
     .k = 35,
     .packed = true,
     .pair = 41,
     .epilogue = true,
     .b = TRANSPOSED},
    {.name = "packed from rows", .n = 37, .k = 50, .packed = true, .b = TRANSPOSED},
    {.name = "transposed prologue",
     .n = 20,
     .k = 43,
     .packed = true,
     .prologue = true,
     .a = TRANSPOSED},
    {.name = "bf16 panels", .n = 50, .k = 26, .packed = true, .narrow = true, .panels = SN_BF16},
    {.name = "bf16 panels in pairs",
     .n = 210,
     .k = 28,
     .packed = true,
     .narrow = true,
     .panels = SN_BF16},
    {.name = "f16 panels",
     .n = 33,
     .k = 19,
     .packed = true,
     .narrow = true,
     .panels = SN_F16,
     .b = TRANSPOSED},
    {.name = "i8 panels",
     .n = 50,
     .k = 26,
     .packed = true,
     .narrow = true,
     .panels = SN_I8,
     .epilogue = true},
    {.name = "i8 panels of rows",
     .n = 41,
     .k = 9,
     .packed = true,
     .narrow = true,
     .panels = SN_I8,
     .b = TRANSPOSED},
    {.name = "batch", .n = 35, .k = 17, .batch0 = 3, .batch1 = 2, .b = TRANSPOSED},
    {.name = "batch runtime", .n = 35, .k = 17, .batch0 = 5, .n_runtime = true, .k_runtime = true},
    {.name = "many rows", .n = 40, .k = 1100, .packed = true, .only_m = 1000},
    {.name = "relayed rows", .n = 641, .k = 1024, .packed = true, .only_m = 210},
    {.name = "relayed rows of whole panels", .n = 672, .k = 1024, .packed = true, .only_m = 210},
    {.name = "unrelayed rows", .n = 40, .k = 1024, .packed = true, .only_m = 210},
    {.name = "relayed prologue",
     .n = 33,
     .k = 1030,
     .packed = true,
     .prologue = true,
     .only_m = 401},
    {.name = "waiting sums", .n = 75, .k = 3220, .packed = true, .only_m = 131},
    {.name = "waiting sums of copied rows",
     .n = 641,
     .k = 4096,
     .packed = true,
     .b = TRANSPOSED,
     .only_m = 99},
    {.name = "waiting sums of a prologue",
     .n = 40,
     .k = 3215,
     .packed = true,
     .prologue = true,
     .epilogue = true,
     .only_m = 130},
    {.name = "waiting sums of bf16 panels",
     .n = 70,
     .k = 3200,
     .packed = true,
     .narrow = true,
     .panels = SN_BF16,
     .n_runtime = true,
     .a = WIDE,
     .only_m = 129},
    {.name = "waiting sums in blocks",
     .n = 2400,
     .k = 3136,
     .packed = true,
     .only_m = 70,
     .only_bits = true},
    {.name = "drawn rows",
     .n = 2080,
     .k = 4032,
     .packed = true,
     .only_m = 1027,
     .dynamic = true,
     .only_bits = true},
    {.name = "fetched result", .n = 77, .k = 130, .packed = true, .epilogue = true},
    {.name = "fetched pair",
     .n = 160,
     .k = 67,
     .packed = true,
     .pair = 80,
     .epilogue = true,
     .only_m = 37},
    {.name = "fetched pairs in blocks",
     .n = 96,
     .k = 130,
     .packed = true,
     .pair = 16,
     .epilogue = true,
     .only_m = 37},
    {.name = "pairs of bf16",
     .n = 224,
     .k = 28,
     .packed = true,
     .pair = 112,
     .epilogue = true,
     .narrow = true,
     .panels = SN_BF16},
    {.name = "pairs with a prologue",
     .n = 64,
     .k = 43,
     .packed = true,
     .pair = 32,
     .prologue = true,
     .epilogue = true},
    {.name = "fetched batch", .n = 35, .k = 90, .batch0 = 3, .c = WIDE, .only_m = 31},
};

/* --- one problem ------------------------------------------------------------------------------ */

enum { DIM_M, DIM_N, DIM_K, DIM_A, DIM_B, DIM_C, DIM_BATCH, DIMS };
enum { BUF_A, BUF_B, BUF_C, BUF_BIAS, BUF_GAIN, BUF_OUT, BUF_COUNTER, BUFS };

typedef struct problem {
    const shape *s;
    sn_dtype t;
    int64_t m, n, k, items, columns;                  /* of the result */
    int64_t a_row, a_col, b_row, b_col, c_row, c_col; /* strides */
    int64_t a_item, b_item, c_item;                   /* elements of a batch item */
    void *a, *b, *panels, *bias, *gain, *c, *scratch;
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

/* Memory that ends at a page nobody may touch: reading behind it is a crash. */
static void *guarded(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page + page;
    char *p = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + size, page, PROT_NONE), 0);
    return p + size - bytes;
}

static void release_guarded(void *p, size_t bytes) {
    if (!p) return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page + page;
    munmap((char *)p + bytes - size, size + page);
}

static void *fill(sn_dtype t, int64_t n) {
    void *p = guarded((size_t)n * sn_dtype_size(t));
    for (int64_t i = 0; i < n; i++) put(t, p, i, noise());
    return p;
}

static sn_gemm_size stride(layout l, int64_t v, int slot) {
    return l == RUNTIME ? SN_GEMM_DIM(slot) : SN_GEMM_CONST(v);
}

static void set_strides(layout l, int64_t rows, int64_t cols, int64_t *row, int64_t *col,
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
    if (p->columns < p->n) return em_mul(e, x, acc[1]);
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

static double a_element(const problem *p, int64_t item, int64_t i, int64_t k) {
    int64_t row = item * p->a_item + i * p->a_row;
    double x = get(p->t, p->a, row + k * p->a_col);
    return p->s->prologue ? (x - get(p->t, p->a, row)) * get(p->t, p->gain, k) : x;
}

static double product(const problem *p, int64_t item, int64_t i, int64_t j) {
    int64_t of = p->s->batch1 ? item / p->s->batch1 : item;
    int64_t b = of * p->b_item + j * p->b_col;
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += a_element(p, item, i, k) * get(p->t, p->b, b + k * p->b_row);
    return sum;
}

static void reference(problem *p) {
    p->expect = malloc((size_t)(p->items * p->m * p->n + 1) * sizeof *p->expect);
    assert_non_null(p->expect);
    double *out = p->expect;
    int64_t pair = p->s->pair;
    for (int64_t item = 0; item < p->items; item++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->columns; j++) {
                double x = product(p, item, i, j);
                if (p->s->epilogue) {
                    double biased = x + get(p->t, p->bias, j);
                    if (pair) x = product(p, item, i, j % (2 * pair) < pair ? j + pair : j - pair);
                    x = biased * (pair ? x : biased);
                }
                *out++ = x;
            }
}

/* --- running ---------------------------------------------------------------------------------- */

static void make_spec(const problem *p, sn_gemm *g) {
    const shape *s = p->s;
    *g = (sn_gemm){.m = s->m_constant ? SN_GEMM_CONST(p->m) : SN_GEMM_DIM(DIM_M),
                   .n = s->n_runtime ? SN_GEMM_DIM(DIM_N) : SN_GEMM_CONST(p->n),
                   .k = s->k_runtime ? SN_GEMM_DIM(DIM_K) : SN_GEMM_CONST(p->k),
                   .b_packed = s->packed,
                   .pair_distance = s->pair,
                   .no_store = s->no_store,
                   .dynamic = s->dynamic,
                   .counter_buf = BUF_COUNTER,
                   .ctx = (void *)p,
                   .n_state = 1};
    g->a = (sn_gemm_operand){.buf = BUF_A, .dtype = p->t, .offset = SN_GEMM_CONST(0)};
    g->b = g->c = g->a;
    g->b.buf = BUF_B;
    if (s->narrow) g->b.dtype = s->panels;
    g->c.buf = BUF_C;
    g->a.row = stride(s->a, p->a_row, DIM_A);
    g->a.col = SN_GEMM_CONST(p->a_col);
    g->b.row = stride(s->b, p->b_row, DIM_B);
    g->b.col = SN_GEMM_CONST(p->b_col);
    g->c.row = stride(s->c, p->c_row, DIM_C);
    g->c.col = SN_GEMM_CONST(p->c_col);
    if (s->a == TRANSPOSED) g->a.col = SN_GEMM_DIM(DIM_A);
    if (s->c == TRANSPOSED) g->c.col = SN_GEMM_DIM(DIM_C);
    if (s->epilogue) g->epilogue = bias_and_square;
    if (s->prologue) {
        g->row_prologue = first_of_row;
        g->prologue = shift_and_gain;
    }
    if (!s->batch0) return;
    /* A and C change with M, so their item strides are run-time values */
    int64_t inner = s->batch1 ? s->batch1 : 1;
    g->n_batch = s->batch1 ? 2 : 1;
    g->batch[0] = s->n_runtime ? SN_GEMM_DIM(DIM_BATCH) : SN_GEMM_CONST(s->batch0);
    g->batch[1] = SN_GEMM_CONST(inner);
    g->a.batch[0] = SN_GEMM_DIM(DIMS);
    g->a.batch[1] = SN_GEMM_DIM(DIMS + 1);
    g->b.batch[0] = SN_GEMM_CONST(p->b_item);
    g->b.batch[1] = SN_GEMM_CONST(0);
    g->c.batch[0] = SN_GEMM_DIM(DIMS + 2);
    g->c.batch[1] = SN_GEMM_DIM(DIMS + 3);
}

typedef struct kernel {
    sn_kernel_fn *run, *pack;
    int64_t scratch;
} kernel;

static sn_kernel_fn *find(sn_jit *jit, const char *name) {
    sn_error err = {0};
    void *p = sn_jit_lookup(jit, name, &err);
    if (!p) fail_msg("%s", err.message);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    return f;
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
    sn_gemm_size n = p->s->pair ? SN_GEMM_CONST(p->n) : SN_GEMM_DIM(DIM_N);
    sn_gemm_emit_pack(&e, pack,
                      &(sn_gemm_pack){.dtype = p->t,
                                      .k = SN_GEMM_DIM(DIM_K),
                                      .n = n,
                                      .row = SN_GEMM_CONST(p->b_row),
                                      .col = SN_GEMM_CONST(p->b_col),
                                      .pair_distance = p->s->pair,
                                      .narrow = p->s->narrow,
                                      .narrow_dtype = p->s->panels});
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s: %s", p->s->name, err.message);
    em_free(&e);
    return (kernel){find(jit, run), find(jit, pack), sn_gemm_scratch(&g, target, p->t)};
}

static void prepare(problem *p, const shape *s, sn_dtype t, int64_t m) {
    *p = (problem){.s = s, .t = t, .m = m, .n = s->n, .k = s->k};
    int64_t inner = s->batch1 ? s->batch1 : 1, outer = s->batch0 ? s->batch0 : 1;
    p->items = inner * outer;
    set_strides(s->a, m, p->k, &p->a_row, &p->a_col, &p->a_item);
    set_strides(s->b, p->k, p->n, &p->b_row, &p->b_col, &p->b_item);
    p->columns = s->pair && s->n == 2 * s->pair ? s->pair : s->n;
    set_strides(s->c, m, p->columns, &p->c_row, &p->c_col, &p->c_item);
    p->a = fill(t, p->items * p->a_item);
    p->b = fill(t, outer * p->b_item);
    for (int64_t i = 0; s->narrow && i < p->b_item; i++) {
        float v = (float)get(t, p->b, i);
        put(t, p->b, i,
            s->panels == SN_BF16  ? (double)sn_bf16_to_f32(sn_f32_to_bf16(v))
            : s->panels == SN_F16 ? (double)sn_f16_to_f32(sn_f32_to_f16(v))
                                  : rint((double)v * 127));
    }
    p->bias = fill(t, p->n);
    p->gain = fill(t, p->k);
    if (!s->only_bits) reference(p);
}

static void release(problem *p) {
    size_t size = sn_dtype_size(p->t);
    int64_t outer = p->s->batch0 ? p->s->batch0 : 1;
    release_guarded(p->a, (size_t)(p->items * p->a_item) * size);
    release_guarded(p->b, (size_t)(outer * p->b_item) * size);
    release_guarded(p->bias, (size_t)p->n * size);
    release_guarded(p->gain, (size_t)p->k * size);
    free(p->expect);
}

/* Runs on `threads` threads, one after the other (they share nothing). C lies between canaries. */
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
    void *buf[BUFS] = {p->a, panels ? panels : p->b, out, p->bias, p->gain, NULL, &ticket};
    for (int t = 0; t < threads; t++) {
        size_t room = ((size_t)k->scratch + 127) / 64 * 64;
        char *scratch = aligned_alloc(64, room);
        assert_non_null(scratch);
        memset(scratch, 0xff, room); /* NaN */
        k->run(buf, dim, scratch, t, threads);
        for (size_t i = (size_t)k->scratch; i < room; i++) assert_true(scratch[i] == (char)0xff);
        free(scratch);
    }
    assert_true((ticket > threads) == (p->s->dynamic && threads > 1));
    return c;
}

static void check(const problem *p, const void *c, const char *where) {
    double eps = p->t == SN_F64 ? 1e-12 : 1e-5, scale = sqrt((double)p->k + 1);
    if (p->s->panels == SN_I8) scale *= 127;
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

static void run_shape(sn_jit *jit, const sn_target *target, const shape *s, sn_dtype t,
                      int number) {
    kernel k = {0};
    for (size_t i = 0; i < sizeof all_m / sizeof *all_m; i++) {
        if (s->only_m && i > 0) break;
        problem p;
        prepare(&p, s, t, s->only_m ? s->only_m : all_m[i]);
        if (i == 0) k = compile(jit, target, &p, number);
        void *panels = NULL;
        if (s->packed) {
            int64_t n = sn_gemm_packed_size(t, p.k, p.n);
            panels = aligned_alloc(64, (size_t)(n * 8 + 64) / 64 * 64);
            assert_non_null(panels);
            int64_t dim[DIMS] = {0, p.n, p.k};
            for (int64_t j = 0; j < n; j++) put(t, panels, j, NAN);
            for (int th = 0; th < 2; th++) k.pack((void *[]){p.b, panels}, dim, NULL, th, 2);
            for (int64_t j = 0; j < n && !s->narrow; j++) assert_false(isnan(get(t, panels, j)));
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

static void run_all(const char *target_name, sn_dtype t) {
    sn_error err = {0};
    sn_target target;
    if (!sn_target_init(&target, target_name, &err)) fail_msg("%s", err.message);
    if (!sn_target_runs_here(&target)) skip();
    sn_jit *jit = sn_jit_create(&target, NULL, &err);
    if (!jit) fail_msg("%s", err.message);
    int n = (int)(sizeof shapes / sizeof *shapes);
    size_t share = target.vector_bytes == 64 && t == SN_F32 ? 1 : 3,
           offset = sn_dtype_size(t) / 4 + (size_t)target.vector_bytes / 64;
    for (int i = 0; i < n; i++)
        if (effort_takes((size_t)i + offset, share)) run_shape(jit, &target, &shapes[i], t, i);
    sn_jit_destroy(jit);
}

static void avx512_f32(void **state) {
    (void)state;
    run_all("x86-64-v4", SN_F32);
}

static void avx512_f64(void **state) {
    (void)state;
    run_all("x86-64-v4", SN_F64);
}

static void avx2_f32(void **state) {
    (void)state;
    run_all("x86-64-v3", SN_F32);
}

static void avx2_f64(void **state) {
    (void)state;
    run_all("x86-64-v3", SN_F64);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(avx512_f32), cmocka_unit_test(avx512_f64),
                                       cmocka_unit_test(avx2_f32), cmocka_unit_test(avx2_f64)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
