/* ONNX files: what torch's exporter writes is imported, computes what torch computes, and its attention becomes one
 * kernel for each; files that are not supported, damaged or hostile are refused. */
#include "driver/npz.h"
#include "frontend/onnx/onnx.h"
#include "ir/ir.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "tests/support/protobuf.h"
#include <math.h>

#include "tests/support/scratch.h"

#define DATA SN_SOURCE_DIR "/tests/data/onnx/"

/* ---- files that torch has written ---- */

enum { MAX_ARRAYS = 16 };
typedef struct arrays {
    int n;
    char name[MAX_ARRAYS][64];
    sn_npy array[MAX_ARRAYS];
} arrays;

static bool keep(void *ctx, const char *name, sn_npy *a, sn_error *err) {
    arrays *all = ctx;
    (void)err;
    assert_true(all->n < MAX_ARRAYS);
    snprintf(all->name[all->n], sizeof all->name[0], "%s", name);
    all->array[all->n++] = *a;
    return true;
}

static sn_node *input_of(sn_module *m, const char *name) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        sn_node *n = sn_module_node(m, i);
        if (n->op == SN_OP_input && !strcmp(sn_attr_str(n, SN_A_name, ""), name)) return n;
    }
    return NULL;
}

/* Sizes that the inputs have: all of their dims are symbols or numbers. */
static void read_sizes(sn_module *m, const arrays *a, int64_t *symbol) {
    for (int i = 0; i < a->n; i++) {
        const sn_node *x = strncmp(a->name[i], "in.", 3) ? NULL : input_of(m, a->name[i] + 3);
        for (int k = 0; x && k < x->rank; k++) {
            char text[64];
            sn_dim_print(m, x->shape[k], text, sizeof text);
            const int at = sn_symbol_find(m, text);
            if (at >= 0) symbol[at] = a->array[i].shape[k];
        }
    }
}

static void bind(sn_eval *ev, sn_module *m, const arrays *a, const sn_weights *w) {
    for (int i = 0; i < a->n; i++) {
        const char *name = a->name[i] + 3;
        if (!strncmp(a->name[i], "in.", 3) && input_of(m, name))
            assert_true(sn_eval_bind(ev, name, a->array[i].data,
                                     (size_t)a->array[i].count * sn_dtype_size(a->array[i].dtype)));
    }
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        assert_true(sn_eval_bind(ev, t->name, t->data, t->bytes));
    }
}

/* The largest difference to what torch computed, relative to the largest element. */
static double difference(const sn_value *v, const sn_npy *a) {
    double worst = 0, largest = 1e-9;
    assert_int_equal(v->n, a->count);
    for (int64_t i = 0; i < v->n; i++) {
        const double x = sn_dtype_load(a->dtype, a->data, i);
        worst = fmax(worst, fabs(v->data[i] - x));
        largest = fmax(largest, fabs(x));
    }
    return worst / largest;
}

/* `explain` says so n times. */
static void expect_explained(sn_program *p, const char *what, int n) {
    char *text = explain_text(p, NULL);
    int found = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) found++;
    if (found != n) fail_msg("%d times%s:\n%s", found, what, text);
    free(text);
}

/* So many kernels of attention. */
static void expect_fused(sn_module *m, int attention) {
    sn_error e = {0};
    sn_program *p = sn_compile(m, &(sn_options){.level = 4, .plan_only = true}, &e);
    if (!p) fail_msg("%s", e.message);
    expect_explained(p, " flash ", attention);
    sn_program_free(p);
}

static void test_exported_by_torch(void **state) {
    static const struct {
        const char *name;
        int attention;
    } models[] = {{"bert", 1},       {"gpt", 1},     {"gpt_past", 1}, {"llama", 1},
                  {"llama_past", 1}, {"encoder", 1}, {"t5", 3},       {"vit", 1}};
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        char path[256];
        sn_error e = {0};
        arrays a = {0};
        int64_t symbol[16] = {0};
        sn_module *m = sn_module_new(models[k].name);
        snprintf(path, sizeof path, DATA "%s.npz", models[k].name);
        if (!npz_read(path, keep, &a, &e)) fail_msg("%s", e.message);
        snprintf(path, sizeof path, DATA "%s.onnx", models[k].name);
        sn_weights *w = sn_onnx_load(m, path, NULL, &e);
        if (!w) fail_msg("%s", e.message);
        read_sizes(m, &a, symbol);
        sn_eval *ev = sn_eval_new(m, symbol);
        bind(ev, m, &a, w);
        const sn_entry *entry = sn_entry_get(m, "forward");
        assert_non_null(entry);
        for (int i = 0; i < entry->n_output; i++)
            for (int j = 0; j < a.n; j++) {
                if (strncmp(a.name[j], "out.", 4) || strcmp(a.name[j] + 4, entry->output[i].name))
                    continue;
                const sn_value *v = sn_eval_node(ev, entry->output[i].node);
                if (!v) fail_msg("%s: %s", path, sn_module_error(m)->message);
                const double d = difference(v, &a.array[j]);
                if (d > 1e-5) fail_msg("%s: %s differs by %g", path, a.name[j], d);
            }
        sn_eval_free(ev);
        expect_fused(m, models[k].attention);
        sn_weights_close(w);
        sn_module_free(m);
        for (int i = 0; i < a.n; i++) sn_npy_free(&a.array[i]);
    }
}

/* Attention, GroupQueryAttention and FlexAttention with windows, caps and graphs. */
static void test_attention_operators(void **state) {
    (void)state;
    sn_error e = {0};
    sn_module *m = sn_module_new("operators");
    sn_weights *w = sn_onnx_load(m, DATA "operators.onnx", NULL, &e);
    if (!w) fail_msg("%s", e.message);
    expect_fused(m, 3);
    sn_weights_close(w);
    sn_module_free(m);
}

/* ---- files of a few nodes, written here ---- */

/* A value: float [n, 3]. */
static void put_value(bytes *graph, int field, const char *name) {
    bytes dim = {0}, three = {0}, shape = {0}, tensor = {0}, type = {0}, info = {0};
    put_text(&dim, 2, "n");
    put_int(&three, 1, 3);
    put_message(&shape, 1, &dim);
    put_message(&shape, 1, &three);
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

/* A node; inputs and outputs are single letters. */
static void put_node(bytes *graph, const char *domain, const char *op, const char *in,
                     const char *out) {
    bytes node = {0};
    for (; *in; in++) put_bytes(&node, 1, in, 1);
    for (; *out; out++) put_bytes(&node, 2, out, 1);
    put_text(&node, 3, "a node");
    put_text(&node, 4, op);
    if (*domain) put_text(&node, 7, domain);
    put_message(graph, 1, &node);
}

/* An initialiser of floats [3], in the file or in another one. */
static void put_weight(bytes *graph, const char *name, const float *data, const char *location) {
    bytes t = {0}, where = {0};
    put_int(&t, 1, 3);
    put_int(&t, 2, 1);
    put_text(&t, 8, name);
    if (data) put_bytes(&t, 9, data, 12);
    put_text(&where, 1, "location");
    put_text(&where, 2, location ? location : "");
    if (location) put_message(&t, 13, &where), put_int(&t, 14, 1);
    put_message(graph, 5, &t);
}

static const char *write_model(const bytes *graph) {
    bytes model = {0}, opset = {0};
    put_int(&opset, 2, 17);
    put_int(&model, 1, 8);
    put_message(&model, 8, &opset);
    put_message(&model, 7, graph);
    const char *path = scratch_path("m.onnx");
    assert_true(scratch_write(path, model.data, model.n));
    return path;
}

static void refuse_with(sn_code code, const bytes *graph, const char *what) {
    sn_error e = {0};
    sn_module *m = sn_module_new("refused");
    assert_null(sn_onnx_load(m, write_model(graph), NULL, &e));
    expect_error(&e, code, "m.onnx", what);
    sn_module_free(m);
}

static void refuse(const bytes *graph, const char *what) {
    refuse_with(SN_ERR_FILE, graph, what);
}

static void test_weights_stay_in_their_files(void **state) {
    static const float w[] = {1, 2, 4};
    (void)state;
    for (int external = 0; external < 2; external++) {
        bytes g = {0};
        sn_error e = {0};
        put_value(&g, 11, "x");
        put_weight(&g, "w", external ? NULL : w, external ? "w.bin" : NULL);
        put_node(&g, "", "Mul", "xw", "y");
        put_value(&g, 12, "y");
        assert_true(scratch_write(scratch_path("w.bin"), w, sizeof w));
        sn_module *m = sn_module_new("m");
        sn_weights *all =
            sn_onnx_load(m, write_model(&g), &(sn_onnx_options){.entry = "scale"}, &e);
        if (!all) fail_msg("%s", e.message);
        assert_non_null(sn_entry_get(m, "scale"));
        const sn_weight *t = sn_weights_find(all, "w");
        assert_non_null(t);
        assert_memory_equal(t->data, w, sizeof w);
        assert_int_equal(sn_symbol_find(m, "n"), 0);
        sn_weights_close(all);
        sn_module_free(m);
    }
}

/* Padding on one side only: before the elements, or behind them. */
static void test_one_sided_padding(void **state) {
    static const float x[] = {1, 3, 2};
    static const double want[2][3] = {{1, 3, 3}, {3, 3, 2}};
    (void)state;
    for (int upper = 0; upper < 2; upper++) {
        bytes g = {0}, axes = {0}, kernel = {0}, pad = {0}, expand = {0}, pool = {0};
        sn_error e = {0};
        put_value(&g, 11, "x");
        put_text(&axes, 1, "axes"), put_int(&axes, 8, 1), put_int(&axes, 20, 7);
        put_text(&expand, 1, "x"), put_text(&expand, 2, "a"), put_text(&expand, 4, "Unsqueeze");
        put_message(&expand, 5, &axes);
        put_text(&kernel, 1, "kernel_shape"), put_int(&kernel, 8, 2), put_int(&kernel, 20, 7);
        put_text(&pad, 1, "auto_pad"), put_text(&pad, 4, upper ? "SAME_UPPER" : "SAME_LOWER");
        put_int(&pad, 20, 3);
        put_text(&pool, 1, "a"), put_text(&pool, 2, "y"), put_text(&pool, 4, "MaxPool");
        put_message(&pool, 5, &kernel), put_message(&pool, 5, &pad);
        put_message(&g, 1, &expand), put_message(&g, 1, &pool);
        put_value(&g, 12, "y");
        sn_module *m = sn_module_new("pool");
        sn_weights *w = sn_onnx_load(m, write_model(&g), NULL, &e);
        if (!w) fail_msg("%s", e.message);
        sn_eval *ev = sn_eval_new(m, (const int64_t[16]){1});
        assert_true(sn_eval_bind(ev, "x", x, sizeof x));
        const sn_value *y = sn_eval_node(ev, sn_entry_get(m, "forward")->output[0].node);
        assert_true(y && y->n == 3);
        assert_memory_equal(y->data, want[upper], sizeof want[upper]);
        sn_eval_free(ev);
        sn_weights_close(w);
        sn_module_free(m);
    }
}

/* ---- quantised values ---- */

/* A matrix of more than ONNX_ARRAY_MAX elements is a parameter. */
enum { ROWS = 512, K = 3, N = 90, MAX_LEVEL = 4 };

/* An initialiser [rows, columns], or [columns] without rows, of a type of ONNX. */
static void put_table(bytes *graph, const char *name, int rows, int columns, int type,
                      const void *data, size_t n) {
    bytes t = {0};
    if (rows) put_int(&t, 1, (uint64_t)rows);
    put_int(&t, 1, (uint64_t)columns);
    put_int(&t, 2, type);
    put_text(&t, 8, name);
    put_bytes(&t, 9, data, n);
    put_message(graph, 5, &t);
}

/* Of column j: factor[..][j % 3]. */
static const int8_t factor[K][3] = {{-128, 127, 1}, {127, -128, -77}, {-128, 127, 90}};
static const int8_t factor_zero[] = {-3, 0, 100};
static const float factor_scale[] = {0.013F, 1.7F, 3e-4F};

/* x of all integers and of the middles between them, where the product with 1 / scale often rounds to another integer;
 * the scale is no power of 2. */
static void fill_middles(float *x, float lowest, float scale) {
    for (int i = 0; i < ROWS * K; i++) x[i] = lowest + (float)(i % 511) * 0.5F * scale;
}

/* What ONNX says, in the arithmetic that it says: divisions of f32, ties to even, sums of integers. */
static void quantise_as_onnx(const float *x, uint8_t *q, float *scale, uint8_t *zero, int32_t *y) {
    float low = 0, high = 0;
    for (int i = 0; i < ROWS * K; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
    *scale = (high - low) / 255;
    *zero = (uint8_t)fminf(fmaxf(rintf(-low / *scale), 0), 255);
    for (int i = 0; i < ROWS * K; i++)
        q[i] = (uint8_t)fminf(fmaxf(rintf(x[i] / *scale) + *zero, 0), 255);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++) {
            y[i * N + j] = 0;
            for (int k = 0; k < K; k++)
                y[i * N + j] += (q[i * K + k] - *zero) * (factor[k][j % 3] - factor_zero[j % 3]);
        }
}

/* Every level computes the integers that the file says: u8 times i8 or u8, at the ends of both ranges, zero points, a
 * scale and a zero point for each column. */
static void check_quantised(sn_program *p, const sn_weights *w, const float *x, int level) {
    static uint8_t q[ROWS * K], q_want[ROWS * K];
    static int32_t y[ROWS * N], same[ROWS * N], square[ROWS][K], y_want[ROWS * N];
    static float f[ROWS * N];
    uint8_t zero, zero_want;
    float scale, scale_want;
    sn_error e = {0};
    sn_session *s = sn_session_new(p, w, &e);
    if (!s) fail_msg("%s", e.message);
    const sn_arg_binding in = SN_BIND("x", SN_F32, (void *)(uintptr_t)x, ROWS, K);
    sn_arg_binding out[] = {SN_BIND("q", SN_U8, q, ROWS, K),
                            {.name = "s", .dtype = SN_F32, .data = &scale},
                            {.name = "z", .dtype = SN_U8, .data = &zero},
                            SN_BIND("y", SN_I32, y, ROWS, N),
                            SN_BIND("f", SN_F32, f, ROWS, N),
                            SN_BIND("n", SN_I32, same, ROWS, N),
                            SN_BIND("m", SN_I32, square, ROWS, K)};
    if (!sn_run(s, "forward", &in, 1, out, 7, &e)) fail_msg("%s", e.message);
    quantise_as_onnx(x, q_want, &scale_want, &zero_want, y_want);
    if (scale != scale_want || zero != zero_want)
        fail_msg("level %d: scale %a, zero point %d, not %a, %d", level, scale, zero, scale_want,
                 zero_want);
    for (int i = 0; i < ROWS * K; i++)
        if (q[i] != q_want[i]) fail_msg("level %d: %a is %d, not %d", level, x[i], q[i], q_want[i]);
    for (int i = 0; i < ROWS * N; i++) {
        const bool agrees = i % N >= K || square[i / N][i % N] == y_want[i];
        if (y[i] != y_want[i] || same[i] != y[i] || !agrees)
            fail_msg("level %d: sums %d and %d, not %d", level, y[i], same[i], y_want[i]);
        const double want = (double)y[i] * scale * factor_scale[i % N % 3];
        if (!(fabs(f[i] - want) <= 4e-7 * fabs(want)))
            fail_msg("level %d: %g, not %g", level, f[i], want);
    }
    sn_session_free(s);
}

static void test_quantised(void **state) {
    static float x[ROWS * K];
    int8_t matrix[K][N], zero[N];
    float scale[N];
    uint8_t unsigned_matrix[K][N], unsigned_zero[N];
    static const char *const targets[] = {"native", "x86-64-v3", "x86-64"};
    (void)state;
    for (int i = 0; i < K * N; i++) {
        matrix[i / N][i % N] = factor[i / N][i % N % 3];
        unsigned_matrix[i / N][i % N] = (uint8_t)(matrix[i / N][i % N] + 128);
    }
    for (int i = 0; i < N; i++) {
        zero[i] = factor_zero[i % 3], scale[i] = factor_scale[i % 3];
        unsigned_zero[i] = (uint8_t)(zero[i] + 128);
    }
    for (int i = 0; i < MAX_LEVEL + 3; i++) {
        const int level = i < MAX_LEVEL ? i : MAX_LEVEL;
        bytes g = {0};
        sn_error e = {0};
        put_value(&g, 11, "x");
        put_table(&g, "w", K, N, 3, matrix, sizeof matrix);
        put_table(&g, "v", 0, N, 3, zero, sizeof zero);
        put_table(&g, "t", 0, N, 1, scale, sizeof scale);
        put_table(&g, "u", K, N, 2, unsigned_matrix, sizeof unsigned_matrix);
        put_table(&g, "o", 0, N, 2, unsigned_zero, sizeof unsigned_zero);
        put_table(&g, "a", K, K, 3, factor, sizeof factor); /* zero points as a row, K = N */
        put_table(&g, "b", 1, K, 3, factor_zero, sizeof factor_zero);
        put_node(&g, "", "DynamicQuantizeLinear", "x", "qsz");
        put_node(&g, "", "MatMulInteger", "qwzv", "y");
        put_node(&g, "com.microsoft", "MatMulIntegerToFloat", "qwstzv", "f");
        put_node(&g, "", "MatMulInteger", "quzo", "n");
        put_node(&g, "", "MatMulInteger", "qazb", "m");
        for (const char *name = "qszyfnm"; *name; name++) put_value(&g, 12, (char[]){*name, 0});
        sn_module *m = sn_module_new("quantised");
        sn_weights *w = sn_onnx_load(m, write_model(&g), NULL, &e);
        if (!w) fail_msg("%s", e.message);
        sn_program *p =
            sn_compile(m, &(sn_options){.level = level, .target = targets[i - level]}, &e);
        if (!p) fail_msg("%s", e.message);
        if (level == MAX_LEVEL) expect_explained(p, " product of 8-bit integers", 2);
        for (int k = 0; k < 20; k++) {
            fill_middles(x, (float)-k * 0.37F, 0.0113F * (float)(k + 1));
            check_quantised(p, w, x, level);
        }
        sn_program_free(p);
        sn_weights_close(w);
        sn_module_free(m);
    }
}

/* 3 elements times 1.5 are 4 of 4.5, which lie symmetrically: at 0, 2/3, 4/3 and 2. */
static void put_setting(bytes *node, const char *name, int64_t value) {
    bytes setting = {0};
    put_text(&setting, 1, name), put_int(&setting, 3, value), put_int(&setting, 20, 2);
    put_message(node, 5, &setting);
}

/* Integers of 16 and 32 bits without sign are of wider types, but wrap around: parts of a tensor do, too;
 * the places of its largest elements are signed. */
static void test_narrow_results(void **state) {
    static const float x[] = {7, 5, 6};
    static const int64_t one = 1;
    enum { FLOAT = 1, UINT16 = 4, INT64 = 7, UINT32 = 12 };
    static const struct {
        const char *op, *in, *out;
        int to, axis;
    } nodes[] = {{"Cast", "x", "s", UINT16, 0}, {"Split", "s", "abc", 0, 1},
                 {"Sub", "ba", "d", 0, 0},      {"Cast", "d", "p", FLOAT, 0},
                 {"Cast", "x", "l", UINT32, 0}, {"TopK", "lk", "vi", 0, 0},
                 {"Sub", "ik", "j", 0, 0},      {"Cast", "j", "q", FLOAT, 0}};
    (void)state;
    bytes g = {0}, k = {0};
    sn_error e = {0};
    put_value(&g, 11, "x");
    put_int(&k, 1, 1), put_int(&k, 2, INT64), put_text(&k, 8, "k");
    put_bytes(&k, 9, &one, sizeof one);
    put_message(&g, 5, &k);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        bytes node = {0};
        for (const char *c = nodes[i].in; *c; c++) put_bytes(&node, 1, c, 1);
        for (const char *c = nodes[i].out; *c; c++) put_bytes(&node, 2, c, 1);
        put_text(&node, 4, nodes[i].op);
        if (nodes[i].to) put_setting(&node, "to", nodes[i].to);
        if (nodes[i].axis) put_setting(&node, "axis", nodes[i].axis);
        put_message(&g, 1, &node);
    }
    for (const char *c = "pq"; *c; c++) {
        bytes out = {0};
        put_bytes(&out, 1, c, 1);
        put_message(&g, 12, &out);
    }
    sn_module *m = sn_module_new("narrow");
    sn_weights *w = sn_onnx_load(m, write_model(&g), NULL, &e);
    if (!w) fail_msg("%s", e.message);
    sn_eval *ev = sn_eval_new(m, (const int64_t[16]){1});
    assert_true(sn_eval_bind(ev, "x", x, sizeof x));
    static const double want[] = {65534, -1};
    for (int i = 0; i < 2; i++) {
        const sn_value *y = sn_eval_node(ev, sn_entry_get(m, "forward")->output[i].node);
        assert_true(y && y->n == 1);
        assert_float_equal(y->data[0], want[i], 0);
    }
    sn_eval_free(ev);
    sn_weights_close(w);
    sn_module_free(m);
}

static void test_symmetric_places(void **state) {
    static const float x[] = {1, 3, 2}, scales[] = {1, 1.5F};
    static const double want[] = {1, 7.0 / 3, 8.0 / 3, 2};
    static const char *const settings[][2] = {
        {"coordinate_transformation_mode", "half_pixel_symmetric"}, {"mode", "linear"}};
    (void)state;
    bytes g = {0}, t = {0}, node = {0}, out = {0};
    sn_error e = {0};
    put_value(&g, 11, "x");
    put_int(&t, 1, 2), put_int(&t, 2, 1), put_text(&t, 8, "s");
    put_bytes(&t, 9, scales, sizeof scales);
    put_message(&g, 5, &t);
    put_text(&node, 1, "x"), put_text(&node, 1, ""), put_text(&node, 1, "s");
    put_text(&node, 2, "y"), put_text(&node, 4, "Resize");
    for (int i = 0; i < 2; i++) {
        bytes setting = {0};
        put_text(&setting, 1, settings[i][0]), put_text(&setting, 4, settings[i][1]);
        put_int(&setting, 20, 3);
        put_message(&node, 5, &setting);
    }
    put_message(&g, 1, &node);
    put_text(&out, 1, "y");
    put_message(&g, 12, &out);
    sn_module *m = sn_module_new("resize");
    sn_weights *w = sn_onnx_load(m, write_model(&g), NULL, &e);
    if (!w) fail_msg("%s", e.message);
    sn_eval *ev = sn_eval_new(m, (const int64_t[16]){1});
    assert_true(sn_eval_bind(ev, "x", x, sizeof x));
    const sn_value *y = sn_eval_node(ev, sn_entry_get(m, "forward")->output[0].node);
    assert_true(y && y->n == 4);
    for (int i = 0; i < 4; i++) assert_float_equal(y->data[i], want[i], 1e-6);
    sn_eval_free(ev);
    sn_weights_close(w);
    sn_module_free(m);
}

static void test_refusals(void **state) {
    (void)state;
    bytes g = {0};
    put_value(&g, 11, "x");
    put_node(&g, "", "Erf", "x", "a");
    put_node(&g, "", "NotAnOperator", "a", "b");
    put_node(&g, "org.example", "Erf", "b", "y");
    put_value(&g, 12, "y");
    /* all of them, with node, domain and version */
    refuse(&g,
           "NotAnOperator 'a node' (ai.onnx, version 17); Erf 'a node' (org.example, version 1)");

    g.n = 0;
    put_value(&g, 11, "x");
    put_node(&g, "", "Add", "xb", "a");
    put_node(&g, "", "Neg", "a", "b");
    put_value(&g, 12, "b");
    refuse(&g, "its input 'b' is not computed before it: the graph has a cycle");

    g.n = 0;
    put_value(&g, 11, "x");
    put_node(&g, "", "Neg", "x", "s");
    put_node(&g, "", "ConstantOfShape", "s", "y");
    put_value(&g, 12, "y");
    refuse(
        &g,
        "ConstantOfShape 'a node' (node 2, ai.onnx, version 17): input 0, 's', which says a shape");

    g.n = 0; /* inputs of 17 sizes */
    for (char name[] = "a"; *name < 'a' + 17; ++*name) {
        bytes dim = {0}, shape = {0}, tensor = {0}, type = {0}, info = {0};
        put_text(&dim, 2, name);
        put_message(&shape, 1, &dim);
        put_int(&tensor, 1, 1);
        put_message(&tensor, 2, &shape);
        put_message(&type, 1, &tensor);
        put_text(&info, 1, name);
        put_message(&info, 2, &type);
        put_message(&g, 11, &info);
    }
    put_node(&g, "", "Neg", "a", "y");
    put_value(&g, 12, "y");
    refuse_with(SN_ERR_USAGE, &g, "a module has at most 16");

    static const char *const outside[] = {"../w.bin", "/etc/hostname", "missing.bin"};
    for (int i = 0; i < 3; i++) {
        g.n = 0;
        put_value(&g, 11, "x");
        put_weight(&g, "w", NULL, outside[i]);
        put_node(&g, "", "Mul", "xw", "y");
        put_value(&g, 12, "y");
        refuse(&g, "folder");
    }
}

/* One node, with an attribute of integers, or one integer. */
typedef struct refused {
    const char *op, *in, *attribute;
    int n; /* of the integers; 0: it is one integer */
    int64_t x[8];
    const char *what;
} refused;

static void put_refused(bytes *graph, const refused *r) {
    bytes node = {0}, attribute = {0};
    for (const char *in = r->in; *in; in++) put_bytes(&node, 1, in, *in != ' ');
    put_text(&node, 2, "y");
    put_text(&node, 4, r->op);
    if (r->attribute) {
        put_text(&attribute, 1, r->attribute);
        if (!r->n) put_int(&attribute, 3, r->x[0]);
        for (int i = 0; i < r->n; i++) put_int(&attribute, 8, r->x[i]);
        put_int(&attribute, 20, r->n ? 7 : 2);
        put_message(&node, 5, &attribute);
    }
    put_message(graph, 1, &node);
}

static const refused refusals[] = {
    {"Softmax", "x", "axis", 0, {5}, "axis 5 of a tensor with 2 axes"},
    {"Concat", "xx", "axis", 0, {-3}, "axis -3 of a tensor with 2 axes"},
    {"Concat", "x ", "axis", 0, {0}, "input 1 has another number of axes"},
    {"Add", "x", NULL, 0, {0}, "it needs two inputs"},
    {"Cast", "x", "to", 0, {8}, "element type 8 is not supported"},
    {"Cast", "x", "to", 0, {99}, "element type 99 is not supported"},
    {"Transpose", "x", "perm", 1, {0}, "perm has 1 axes, x has 2"},
    {"Transpose", "x", "perm", 2, {0, 2}, "axis 2 of a tensor with 2 axes"},
    {"Transpose", "x", "perm", 2, {1, 1}, "transpose: axis 1 is listed twice"},
    {"Reshape",
     "xx",
     NULL,
     0,
     {0},
     "input 1, 'x', which says a shape or index, is computed from data"},
    {"Slice", "x", NULL, 0, {0}, "input 1 is missing"},
    {"Split", "x", "axis", 0, {7}, "axis 7 of a tensor with 2 axes"},
    {"Split", "xx", "axis", 0, {0}, "sizes that are computed from data"},
    {"Flatten", "x", "axis", 0, {9}, "axis 9"},
    {"Gather", "xx", NULL, 0, {0}, "gather: the indices f32[n,3]"},
    {"GatherElements", "xx", "axis", 0, {4}, "axis 4 of a tensor with 2 axes"},
    {"Range", "xxx", NULL, 0, {0}, "its bounds must follow from the sizes of the inputs"},
    {"NonZero", "x", NULL, 0, {0}, "its input must be known when the graph is imported"},
    {"Pad", "x", NULL, 0, {0}, "pads must be known, two numbers for each axis"},
    {"Pad", "x", "pads", 3, {0, 1, 0}, "pads must be known, two numbers for each axis"},
    {"Pad", "x", "pads", 6, {0, 1, 0, 0, 1, 0}, "pads must be known, two numbers for each axis"},
    {"Pad",
     "x",
     "pads",
     4,
     {0, INT64_MAX, 0, INT64_MAX},
     "a dimension overflows 64 bits (or an exponent exceeds 255): use smaller sizes"},
    {"Pad",
     "x",
     "pads",
     4,
     {INT64_MAX, 0, INT64_MAX, 0},
     "a dimension overflows 64 bits (or an exponent exceeds 255): use smaller sizes"},
    {"Pad", "x", "pads", 4, {0, -2, 0, -2}, "slice: axis 1 of the shape is negative: -1"},
    {"Pad", "x", "pads", 4, {0, INT64_MIN, 0, 0}, "a pad of -9223372036854775808 elements"},
    {"Pad", "x", "pads", 4, {0, INT64_MIN, 0, INT64_MIN}, "a pad of -9223372036854775808 elements"},
    {"Conv", "xx", NULL, 0, {0}, "only 1 to 3 spatial axes are supported, not 0"},
    {"LayerNormalization", "xx", "axis", 0, {3}, "axis 3 of a tensor with 2 axes"},
    {"ConstantOfShape",
     "x",
     NULL,
     0,
     {0},
     "input 0, 'x', which says a shape or index, is computed from data"},
    {"Constant", "", NULL, 0, {0}, "it has no value of a supported kind"},
    {"If", "x", NULL, 0, {0}, "it needs a condition and two graphs"},
    {"Loop", "xx", NULL, 0, {0}, "its number of iterations depends on data"},
    {"Scan", "x", "num_scan_inputs", 0, {1}, "its body is missing"},
    {"Einsum", "xx", NULL, 0, {0}, "'' has not a label for each axis"},
    {"DepthToSpace",
     "x",
     "blocksize",
     0,
     {0},
     "x must be [N, C, H, W] with C a multiple of blocksize^2"},
    {"Resize", "x", NULL, 0, {0}, "it needs a size or scale for each axis"},
    {"EyeLike", "x", "dtype", 0, {8}, "its type is not supported"},
    {"BatchNormalization", "xxxxx", "training_mode", 0, {1}, "training_mode is not supported"},
    {"Dropout",
     "xxx",
     NULL,
     0,
     {0},
     "dropout in training is not supported, unless its ratio is known to be 0"},
    {"Unsqueeze", "x", "axes", 1, {9}, "axis 9 of a tensor with 3 axes"},
    {"ScatterND", "xxx", NULL, 0, {0}, "its indices do not fit x"},
    {"Squeeze", "x", "axes", 1, {1}, "the size of axis 1 is not 1"},
    {"Unsqueeze", "x", "axes", 2, {1, 1}, "axis 1 is listed twice"},
    {"Unsqueeze", "x", "axes", 8, {0, 1, 2, 3, 4, 5, 6, 7}, "more than 8 axes"},
    {"Identity", " ", NULL, 0, {0}, "input 0 is missing"},
    {"Relu", " ", NULL, 0, {0}, "input 0 is missing"},
    {"ReduceSum", " ", NULL, 0, {0}, "input 0 is missing"},
    {"Shape", " ", NULL, 0, {0}, "input 0 is missing"},
    {"CastLike", "x", NULL, 0, {0}, "input 1 is missing"},
    {"Where", "xx", NULL, 0, {0}, "it needs three inputs"},
    {"Einsum", "xxx", NULL, 0, {0}, "more than two operands"},
    {"MaxPool", "x", NULL, 0, {0}, "only 1 to 3 spatial axes are supported, not 0"},
    {"Scan", "x", NULL, 0, {0}, "num_scan_inputs is missing"},
    {"QuantizeLinear", "xx", "output_dtype", 0, {1}, "the result has neither 8 nor 16 bits"},
    {"ScatterElements", "xxx", "axis", 0, {5}, "axis 5 of a tensor with 2 axes"},
    {"GatherND", "xx", "batch_dims", 0, {3}, "its indices do not fit x"},
    {"ArgMax", "x", "axis", 0, {4}, "axis 4 of a tensor with 2 axes"},
    {"Gemm", "x", NULL, 0, {0}, "input 1 is missing"},
    {"MatMul", "x", NULL, 0, {0}, "input 1 is missing"},
    {"DequantizeLinear", "x", NULL, 0, {0}, "input 1 is missing"},
    {"ConvTranspose", "xx", NULL, 0, {0}, "only 1 to 3 spatial axes are supported, not 0"},
    {"Loop", "  x", NULL, 0, {0}, "its number of iterations depends on data"},
    {"RMSNormalization", "xx", NULL, 0, {0}, "version 17, other versions are"},
    {"LogSoftmax", "x", "axis", 0, {-4}, "axis -4 of a tensor with 2 axes"},
    {"Reshape", "x", "shape", 2, {-2, 3}, "a size is negative"},
    {"ReduceMax", "x", "axes", 1, {4}, "axis 4 of a tensor with 2 axes"},
    {"GroupNormalization",
     "xxx",
     "num_groups",
     0,
     {0},
     "GroupNormalization 'y' (ai.onnx, version 17, other versions are"},
};

/* Nodes without attributes that are refused for one reason, up to a NULL. */
static const struct {
    const char *in, *what, *op[8];
} alike[] = {
    {"x", "it needs two inputs", {"Pow", "Div", "Mod", "Equal", "BitShift"}},
    {"xxx",
     "input 1, 'x', which says a shape or index, is computed from data",
     {"Expand", "Tile", "OneHot", "TopK", "CumSum", "Slice", "Trilu"}},
};

static void refuse_node(const refused *r) {
    bytes g = {0};
    put_value(&g, 11, "x");
    put_refused(&g, r);
    put_value(&g, 12, "y");
    refuse(&g, r->what);
}

static void test_refused_nodes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) refuse_node(&refusals[i]);
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        for (int k = 0; alike[i].op[k]; k++)
            refuse_node(&(refused){alike[i].op[k], alike[i].in, .what = alike[i].what});
}

/* The page lists the rows of the table. */
static void test_page(void **state) {
    (void)state;
    sn_onnx_operator op;
    char *page = file_text(SN_SOURCE_DIR "/docs/onnx.md"), *table = strstr(page, "## Operators");
    assert_non_null(table);
    for (int i = 0; sn_onnx_operator_at(i, &op); i++) {
        char name[64];
        snprintf(name, sizeof name, "`%s`", op.name);
        if (!strstr(*op.domain ? strstr(table, op.domain) : table, name))
            fail_msg("%s is not in docs/onnx.md", name);
    }
    free(page);
}

/* Every prefix of a file is refused, or is a smaller graph that is complete. */
static void test_damaged(void **state) {
    (void)state;
    bytes g = {0}, deep = {0};
    put_value(&g, 11, "x");
    put_weight(&g, "w", (float[]){1, 2, 3}, NULL);
    put_node(&g, "", "Mul", "xw", "y");
    put_value(&g, 12, "y");
    sn_mapping file;
    sn_error e = {0};
    assert_true(sn_file_map(write_model(&g), &file, &e));
    for (size_t n = 0; n < file.size; n++) {
        sn_module *m = sn_module_new("m");
        assert_true(scratch_write(scratch_path("cut.onnx"), file.data, n));
        e = (sn_error){0};
        sn_weights *w = sn_onnx_load(m, scratch_path("cut.onnx"), NULL, &e);
        if (!w && !e.code) fail_msg("%zu bytes: refused without a message", n);
        sn_weights_close(w);
        sn_module_free(m);
    }
    sn_file_unmap(&file);

    for (int i = 0; i < 40; i++) { /* a node with a graph with a node … */
        bytes attribute = {0}, node = {0}, graph = {0};
        put_message(&attribute, 6, &deep);
        put_message(&node, 5, &attribute);
        put_message(&graph, 1, &node);
        deep = graph;
    }
    refuse(&deep, "nested too deeply");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exported_by_torch),
        cmocka_unit_test(test_attention_operators),
        cmocka_unit_test(test_weights_stay_in_their_files),
        cmocka_unit_test(test_narrow_results),
        cmocka_unit_test(test_symmetric_places),
        cmocka_unit_test(test_one_sided_padding),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_nodes),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
