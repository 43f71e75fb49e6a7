/* Row blocking: very wide tensors (logits of a large vocabulary) are computed for some rows at a
 * time. The loss and its gradients equal the unblocked ones, with bit-identical results for any
 * number of threads, in less memory; where the logits are needed as a whole, they are computed
 * whole. */
#include "codegen/program/program.h"
#include "passes/plan/memory.h"
#include "tests/support/effort.h"
#include "tests/support/text.h"
#include "tests/support/jit_run.h"
#include "tests/support/noise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "tests/support/artefact.h"

enum { D = 6, PANEL = 32, V = 2048, MAX_B = 8, MAX_T = 600, ROWS = 1024 /* rows at a time */ };

typedef struct spelling {
    const char *name;
    sn_dtype type;
    bool tied, bias, cap, weights, smooth, right, adam, z_loss, transposed, whole;
    double clip;
} spelling;

static const spelling spellings[] = {
    {.name = "plain", .type = SN_F32},
    {.name = "tied", .type = SN_F32, .tied = true, .adam = true},
    {.name = "bias and cap", .type = SN_F32, .bias = true, .cap = true, .weights = true},
    {.name = "smooth", .type = SN_F32, .bias = true, .smooth = true, .right = true},
    {.name = "z-loss", .type = SN_F32, .z_loss = true, .weights = true},
    {.name = "transposed", .type = SN_F32, .transposed = true},
    {.name = "f64", .type = SN_F64, .bias = true, .weights = true},
    {.name = "clipped", .type = SN_F32, .tied = true, .adam = true, .clip = 0.5},
};
enum { N_SPELLING = sizeof spellings / sizeof *spellings };

/* Outputs loss and gradients, or with `adam` steps; `whole`: and the logits. */
static sn_module *network(const spelling *k) {
    sn_module *m = sn_module_new("network");
    const int d = k->clip > 0 ? PANEL : D;
    sn_dim b = sn_symbol(m, "B", 1, MAX_B), t = sn_symbol(m, "T", 0, MAX_T);
    sn_tensor w = k->right ? sn_param(m, "w", k->type, d, V) : sn_param(m, "w", k->type, V, d);
    sn_tensor mix = sn_param(m, "mix", k->type, d, d), param[4] = {w, mix}, g[4];
    int n = 2;
    sn_tensor ids = sn_input(m, "ids", SN_I32, b, t),
              targets = sn_input(m, "targets", SN_I32, b, t);
    sn_tensor x = k->tied ? sn_embedding(w, ids) : sn_input(m, "x", k->type, b, t, d);
    sn_tensor h = sn_tanh(sn_linear(x, mix, NULL));
    sn_tensor logits = k->right ? sn_matmul(h, w) : sn_linear(h, w, NULL);
    if (k->bias) logits = sn_add(logits, param[n++] = sn_param(m, "b", k->type, V));
    if (k->transposed) /* rows are not the outer axis in memory */
        logits = sn_add(logits, sn_transpose(sn_input(m, "transposed", k->type, V, b, t), 1, 2, 0));
    if (k->cap) logits = sn_mul(sn_tanh(sn_mul(logits, 0.5)), 2.0);
    sn_tensor loss = sn_cross_entropy(logits, targets);
    if (k->smooth) /* some of the probability for all classes alike */
        loss = sn_sub(sn_mul(loss, 0.9), sn_mul(sn_mean(sn_log_softmax(logits, -1), -1), 0.1));
    if (k->z_loss) {
        sn_tensor z = sn_logsumexp(logits, -1);
        loss = sn_add(loss, sn_mul(sn_mul(z, z), 0.01));
    }
    if (k->weights) loss = sn_mul(loss, sn_input(m, "weights", k->type, b, t));
    loss = sn_div(sn_sum_all(loss), 10.0);
    sn_entry_begin(m, "step");
    sn_output("loss", loss);
    if (k->whole) sn_output("logits", logits);
    if (k->adam) {
        sn_optimizer o = sn_optimizer_of(SN_ADAMW);
        o.max_norm = k->clip;
        sn_tensor norm = sn_optimize(loss, sn_scalar(m, k->type, 1e-2), n, param, &o);
        if (k->clip > 0) sn_output("norm", norm);
    } else {
        sn_grad(loss, n, param, g);
        for (int i = 0; i < n; i++) sn_output(sn_attr_str(param[i], SN_A_name, ""), g[i]);
    }
    if (sn_module_error(m)->code) fail_msg("%s: %s", k->name, sn_module_error(m)->message);
    return m;
}

static void *elements(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    size_t n = 1;
    (void)ctx;
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    bool targets = !strcmp(name, "targets");
    uint32_t seed = 7 + (uint32_t)name[0];
    void *p = calloc(1, *bytes + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        double v = noise_next(&seed);
        if (!strncmp(name, "optimizer", 9)) v = fabs(v);
        if (leaf->dtype == SN_I32) /* some targets count not */
            ((int32_t *)p)[i] = targets && i % 5 == 3 ? -1 : (int32_t)((v + 1) / 2 * V) % V;
        else if (leaf->dtype == SN_F64)
            ((double *)p)[i] = v;
        else if (leaf->dtype == SN_F32)
            ((float *)p)[i] = (float)v;
    }
    return p;
}

typedef struct run {
    jit_run r;
    sn_module *m;
} run;

static void open_module(run *r, sn_module *m, const char *name, sn_options o) {
    o.backend = "native";
    r->m = m;
    if (!jit_open(&r->r, r->m, &o, elements, NULL)) fail_msg("%s: %s", name, r->r.why);
}

static void open_run(run *r, const spelling *k, sn_options o) {
    open_module(r, network(k), k->name, o);
}

static void close_run(run *r) {
    jit_close(&r->r);
    sn_module_free(r->m);
}

static sn_plan *plan_of(const run *r) {
    return sn_program_entry(r->r.p, "step")->code.plan;
}

static int count_loops(const sn_plan *p) {
    int n = 0;
    for (int i = 0; i < p->n_step; i++) n += p->step[i].kind == SN_STEP_ROWS;
    return n;
}

static void call(run *r, const int64_t *symbol, jit_result *out) {
    if (!jit_call(&r->r, "step", symbol, out)) fail_msg("%s", r->r.why);
}

static void compare(const spelling *k, const jit_result *a, const jit_result *b, double tolerance) {
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->value[i].n, b->value[i].n);
        double scale = 0;
        for (size_t e = 0; e < a->value[i].n; e++)
            scale = fmax(scale, fabs(jit_element(&a->value[i], e)));
        for (size_t e = 0; e < a->value[i].n; e++) {
            double x = jit_element(&a->value[i], e), y = jit_element(&b->value[i], e);
            if (!(fabs(x - y) <= tolerance * scale))
                fail_msg("%s: %s, element %zu: %g instead of %g", k->name, a->value[i].name, e, y,
                         x);
        }
    }
}

/* Sizes around the number of rows of an iteration; none at all. */
static const int64_t sizes[][2] = {{2, 0}, {1, 1}, {2, ROWS / 2}, {3, 342}, {4, 600}};
enum { N_SIZE = sizeof sizes / sizeof *sizes };

static bool uses(const sn_plan *p, int buffer, int first, int last) {
    bool used = false;
    for (int k = first; k < last; k++) {
        const sn_step *s = p->call[k];
        for (int i = 0; i < s->n_in + s->n_out; i++)
            used |= (i < s->n_in ? &s->in[i] : &s->out[i - s->n_in])->buffer == buffer;
    }
    return used;
}

/* A temporary that lives before or after a loop, too, shares its memory with none that the loop uses. */
static void expect_apart(const spelling *k, const sn_plan *p) {
    const sn_step *l = p->step;
    while (l->kind != SN_STEP_ROWS) l++;
    for (int a = 0; a < p->n_buffer; a++)
        for (int b = 0; b < p->n_buffer; b++)
            if (a != b && p->buffer[a].kind == SN_BUF_TEMP && p->buffer[b].kind == SN_BUF_TEMP &&
                p->buffer[a].slot == p->buffer[b].slot && uses(p, a, l->first, l->last) &&
                uses(p, b, l->first, l->last) &&
                (uses(p, a, 0, l->first) || uses(p, a, l->last, p->n_call)))
                fail_msg("%s: buffers %d and %d share a slot", k->name, a, b);
}

static void as_whole(void **state) {
    (void)state;
    for (int i = 0; i < N_SPELLING; i++) {
        const spelling *k = &spellings[i];
        run whole, less[3];
        open_run(&whole, k, (sn_options){.level = 1, .threads = 2});
        for (int t = 0; t < 3; t++)
            open_run(&less[t], k, (sn_options){.level = t || i % 4 ? 4 : 3, .threads = 1 + t});
        assert_int_equal(count_loops(plan_of(&whole)), 0);
        for (int s = 0; s < N_SIZE; s++) { /* by default two iterations, and one other size */
            if (s != 3 && !effort_takes((size_t)(s + i), 4)) continue;
            jit_result want, got[3];
            call(&whole, sizes[s], &want);
            for (int t = 0; t < 3; t++) {
                assert_int_equal(count_loops(plan_of(&less[t])), 1);
                expect_apart(k, plan_of(&less[t]));
                call(&less[t], sizes[s], &got[t]);
                compare(k, &want, &got[t], k->type == SN_F64 ? 1e-12 : 2e-5);
            }
            for (int v = 0; v < want.n; v++)
                assert_memory_equal(got[1].value[v].bytes, got[2].value[v].bytes,
                                    got[1].value[v].n *
                                        sn_dtype_size((sn_dtype)got[1].value[v].node->dtype));
            for (int t = 0; t < 3; t++) jit_result_free(&got[t]);
            jit_result_free(&want);
        }
        close_run(&whole);
        for (int t = 0; t < 3; t++) close_run(&less[t]);
    }
}

/* Against the evaluator, which takes long for so many rows, with a last iteration that is shorter.
 * By default single_iteration_sums is, and as_whole compares the shorter iteration. */
static void as_meant(void **state) {
    (void)state;
    if (!effort_is_long()) skip();
    run r;
    open_run(&r, &spellings[2], (sn_options){.level = 4, .threads = 2});
    static const int64_t symbol[] = {2, ROWS / 2 + 3};
    if (!jit_check(&r.r, "step", symbol, 1e-4, 4)) fail_msg("%s", r.r.why);
    close_run(&r);
}

/* Rows of `wide` columns are made of narrower ones, which only the loop reads: as much memory is free once an
 * iteration has read its rows, but the next one needs its own. */
static sn_module *widening(int wide) {
    sn_module *m = sn_module_new("widening");
    sn_dim b = sn_symbol(m, "B", 1, MAX_B), t = sn_symbol(m, "T", 0, MAX_T);
    sn_tensor x = sn_input(m, "x", SN_F32, b, t, D);
    sn_entry_begin(m, "step");
    sn_tensor h = sn_cumsum(x, 1), w = sn_param(m, "w", SN_F32, V, D);
    sn_tensor p = sn_softmax(sn_linear(h, w, NULL), -1);
    sn_output("y", sn_cumsum(sn_linear(p, sn_param(m, "u", SN_F32, wide, V), NULL), 1));
    return m;
}

static void wider_rows(void **state) {
    (void)state;
    run whole, less;
    jit_result want, got;
    const spelling k = {.name = "widening"};
    open_module(&whole, widening(8 * D), k.name, (sn_options){.level = 4, .passes = "-row_block"});
    open_module(&less, widening(8 * D), k.name, (sn_options){.level = 4});
    assert_int_equal(count_loops(plan_of(&less)), 1);
    expect_apart(&k, plan_of(&less));
    call(&whole, sizes[3], &want);
    call(&less, sizes[3], &got);
    compare(&k, &want, &got, 2e-5);
    jit_result_free(&want);
    jit_result_free(&got);
    close_run(&whole);
    close_run(&less);
}

static void less_memory(void **state) {
    (void)state;
    run whole, less;
    static const int64_t large[] = {MAX_B, MAX_T}, small[] = {1, 8};
    open_run(&whole, &spellings[0], (sn_options){.level = 4, .threads = 1, .passes = "-row_block"});
    open_run(&less, &spellings[0], (sn_options){.level = 4, .threads = 1});
    int64_t rows = (int64_t)MAX_B * MAX_T * V * 4, rows_bytes = (int64_t)ROWS * V * 4;
    assert_true(sn_plan_arena(plan_of(&whole), large) >= rows);
    assert_true(sn_plan_arena(plan_of(&less), large) <
                rows_bytes + rows_bytes / 2); /* logits become their gradient */
    assert_true(sn_plan_arena(plan_of(&less), small) <
                sn_plan_arena(plan_of(&whole), small) + 4096);
    close_run(&whole);
    close_run(&less);
}

/* With a single iteration the sum over rows is not stored: the optimizer's step is in the epilogue of
 * the product. */
static void single_iteration(void **state) {
    (void)state;
    run whole, less;
    open_run(&whole, &spellings[1], (sn_options){.level = 4, .threads = 1, .passes = "-row_block"});
    open_run(&less, &spellings[1], (sn_options){.level = 4, .threads = 1});
    int single = 0, several = 0;
    for (int i = 0; i < plan_of(&less)->n_call; i++) {
        const sn_step *s = plan_of(&less)->call[i];
        single += s->when == SN_IF_SINGLE && s->node->op == SN_OP_gemm;
        several += s->when == SN_IF_SEVERAL && s->node->op == SN_OP_map_reduce;
    }
    assert_int_equal(single, 1);
    assert_int_equal(several, 1);
    int64_t rows =
        (int64_t)sizes[2][0] * sizes[2][1] * V * 4; /* of logits, beside their gradient */
    assert_true(sn_plan_arena(plan_of(&less), sizes[2]) + rows / 10 * 9 <=
                sn_plan_arena(plan_of(&whole), sizes[2]));
    close_run(&whole);
    close_run(&less);
}

/* The squares of the results of a single iteration are summed in the epilogue, too. */
static void single_iteration_sums(void **state) {
    (void)state;
    run r;
    open_run(&r, &spellings[N_SPELLING - 1], (sn_options){.level = 4, .threads = 1});
    int products = 0, ends = 0;
    for (int i = 0; i < plan_of(&r)->n_call; i++) {
        const sn_step *s = plan_of(&r)->call[i];
        products += s->when == SN_IF_SINGLE && s->node->op == SN_OP_gemm && s->n_out == 2;
        ends += s->when == SN_IF_SINGLE && s->node->op == SN_OP_map_reduce;
    }
    assert_int_equal(products, 1);
    assert_int_equal(ends, 1);
    static const int64_t symbol[] = {2, 40};
    if (!jit_check(&r.r, "step", symbol, 1e-4, 4)) fail_msg("%s", r.r.why);
    close_run(&r);
}

/* With a budget that other tensors have to shrink for, the loop may run twice, with the
 * same bits. */
static void with_budget(void **state) {
    (void)state;
    const spelling *k = &spellings[1];
    run plain, tight;
    jit_result a, b;
    open_run(&plain, k, (sn_options){.level = 4, .threads = 2});
    int64_t bytes = sn_plan_arena(plan_of(&plain), sizes[4]);
    open_run(
        &tight, k,
        (sn_options){
            .level = 4, .threads = 2, .memory_budget = bytes - 4096, .budget_sizes = "B=4,T=600"});
    assert_true(sn_plan_arena(plan_of(&tight), sizes[4]) <= bytes - 4096);
    call(&plain, sizes[4], &a);
    call(&tight, sizes[4], &b);
    compare(k, &a, &b, 0);
    jit_result_free(&a);
    jit_result_free(&b);
    close_run(&plain);
    close_run(&tight);
}

typedef struct artefact { /* as in the artefact's header, chunks.h */
    struct {
        const void *weights;
        int64_t bytes, threads;
        void *pool;
        int32_t target, mapped;
    } m;
    int (*open)(void *m, const char *path);
    void (*close)(void *m);
    int64_t (*workspace)(const void *m, int64_t B, int64_t T);
    int (*step)(const void *m, void *workspace, int64_t B, int64_t T, const int32_t *targets,
                const float *x, float *loss, float *w, float *mix);
} artefact;

static void *load(artefact *a) {
    const artefact_symbol names[] = {{(void *)&a->open, "chunks_open"},
                                     {(void *)&a->close, "chunks_close"},
                                     {(void *)&a->workspace, "chunks_step_workspace"},
                                     {(void *)&a->step, "chunks_step"}};
    void *lib = artefact_load("chunks", names, sizeof names / sizeof *names);
    assert_int_equal(a->open(&a->m, scratch_path("chunks.weights")), 0);
    return lib;
}

static void *input(const run *r, const char *name, const int64_t *symbol) {
    for (uint32_t i = 0; i < sn_module_node_count(r->m); i++) {
        const sn_node *n = sn_module_node(r->m, i);
        size_t bytes;
        if (n->op == SN_OP_input && !strcmp(sn_attr_str(n, SN_A_name, ""), name))
            return elements(NULL, n, symbol, &bytes);
    }
    return NULL;
}

/* The same bits from an artefact, in one iteration and in several. */
static void ahead_of_time(void **state) {
    (void)state;
    run r;
    artefact a = {0};
    sn_error err = {0};
    open_run(&r, &spellings[0], (sn_options){.level = 4, .threads = 2});
    sn_emit_options o = sn_emit_options_default();
    o.name = "chunks";
    o.dir = scratch_dir;
    o.compile = (sn_options){.level = 4, .backend = "native"};
    if (!sn_emit(r.r.s, &o, &err)) fail_msg("%s", err.message);
    void *lib = load(&a);
    for (int s = 1; s < N_SIZE; s++) {
        int64_t B = sizes[s][0], T = sizes[s][1], bytes = a.workspace(&a.m, B, T);
        jit_result want;
        call(&r, sizes[s], &want);
        assert_int_equal(want.n, 3);
        void *workspace = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
        float loss, *w = calloc((size_t)V * D, sizeof *w),
                    *mix = calloc((size_t)D * D, sizeof *mix);
        void *targets = input(&r, "targets", sizes[s]), *x = input(&r, "x", sizes[s]);
        assert_true(workspace && w && mix && targets && x);
        assert_int_equal(a.step(&a.m, workspace, B, T, targets, x, &loss, w, mix), 0);
        const void *got[] = {&loss, w, mix};
        for (int i = 0; i < 3; i++)
            assert_memory_equal(got[i], want.value[i].bytes, want.value[i].n * sizeof(float));
        free(workspace);
        free(w);
        free(mix);
        free(targets);
        free(x);
        jit_result_free(&want);
    }
    a.close(&a.m);
    dlclose(lib);
    close_run(&r);
}

static bool loops(spelling k, sn_options o) {
    run r;
    open_run(&r, &k, o);
    bool any = count_loops(plan_of(&r));
    close_run(&r);
    return any;
}

static void only_where_it_can(void **state) {
    (void)state;
    spelling k = spellings[0];
    assert_true(loops(k, (sn_options){.level = 4}));
    assert_true(loops(k, (sn_options){.level = 3}));
    assert_false(loops(k, (sn_options){.level = 2}));
    assert_false(loops(k, (sn_options){.level = 4, .check_nan = true}));
    assert_false(loops(k, (sn_options){.level = 4, .passes = "-row_block"}));
    k.whole = true;
    assert_false(loops(k, (sn_options){.level = 4}));
}

/* Products that sum over an axis of the rows' size: the loop takes some rows, but all of what is summed. */
static void axes_of_equal_size(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("equal");
        sn_dim rows = sn_symbol(m, "T", 1, 1 << 16), other = sn_symbol(m, "S", 1, 1 << 16);
        sn_entry_begin(m, "step");
        sn_dim summed = same ? rows : other;
        sn_tensor x = sn_input(m, "x", SN_F32, rows, summed);
        sn_tensor p = sn_softmax(sn_linear(x, sn_input(m, "w", SN_F32, V, summed), NULL), -1);
        sn_output("y", sn_linear(p, sn_param(m, "u", SN_F32, D, V), NULL));
        sn_options o = {.level = 4, .backend = "native", .plan_only = true};
        sn_program *program = sn_compile(m, &o, &err);
        if (!program) fail_msg("%s", err.message);
        char *text = explain_text(program, "step");
        if (!strstr(text, same ? "another axis has the same size" : "of T rows at a time"))
            fail_msg("%s", text);
        free(text);
        sn_program_free(program);
        sn_module_free(m);
    }
}

/* What explain prints of a layer: rows of V columns, a product plus `stream`, are normalised and
 * multiplied by a matrix with `columns` columns. Another product needs `stream` too. */
static char *layer(int64_t columns) {
    sn_error err = {0};
    sn_module *m = sn_module_new("layer");
    sn_dim rows = sn_symbol(m, "T", 1, 1 << 16);
    sn_entry_begin(m, "step");
    sn_tensor x = sn_input(m, "x", SN_F32, rows, D);
    sn_tensor stream = sn_tanh(sn_linear(x, sn_param(m, "u", SN_F32, V, D), NULL));
    sn_tensor added = sn_linear(sn_exp(x), sn_param(m, "w", SN_F32, V, D), NULL);
    sn_tensor normed = sn_softmax(sn_add(stream, added), -1);
    sn_output("y", sn_linear(normed, sn_param(m, "head", SN_F32, columns, V), NULL));
    sn_output("z", sn_linear(stream, sn_param(m, "other", SN_F32, D, V), NULL));
    sn_options o = {.level = 4, .backend = "native", .plan_only = true};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, "step");
    sn_program_free(p);
    sn_module_free(m);
    return text;
}

/* Blocks of rows save nothing if the result is wider; what is in memory is not computed again. */
static void width_of_result(void **state) {
    (void)state;
    char *narrow = layer(D), *wide = layer(2 * V);
    assert_non_null(strstr(narrow, "of T rows at a time"));
    assert_null(strstr(wide, "of T rows at a time"));
    const char *tanh_kernel = strstr(narrow, "tanh");
    assert_non_null(tanh_kernel);
    if (strstr(tanh_kernel + 1, "tanh")) fail_msg("%s", narrow);
    free(narrow);
    free(wide);
}

static void reported(void **state) {
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        spelling k = spellings[0];
        k.whole = whole;
        run r;
        char *text = NULL;
        size_t size;
        open_run(&r, &k, (sn_options){.level = 4});
        FILE *f = open_memstream(&text, &size);
        assert_non_null(f);
        sn_program_explain(r.r.p, "step", f);
        fclose(f);
        const char *want = whole ? "it is a result of the entry" : "1024 of T*B rows at a time";
        const char *same = whole ? want : "1024 of B*T rows at a time";
        if (!strstr(text, want) && !strstr(text, same)) fail_msg("%s", text);
        free(text);
        close_run(&r);
    }
}

/* What the passes make of each result of the model is recorded, step by step (sinter report). */
static void origins(void **state) {
    (void)state;
    for (int i = 0; i < N_SPELLING; i++) {
        sn_module *m = network(&spellings[i]);
        const sn_entry *e = sn_entry_get(m, "step");
        uint32_t id[SN_MAX_RESULTS];
        int n = e->n_output;
        assert_true(n <= SN_MAX_RESULTS);
        for (int k = 0; k < n; k++) id[k] = e->output[k].node->id;
        sn_passes p;
        sn_pass_options o = {.level = 4, .backend = "native", .history = true};
        assert_true(sn_passes_run(&p, m, &o));
        const sn_lineage *list;
        int n_list = sn_lineage_list(m, &list);
        for (int k = 0; k < n; k++) {
            for (int l = 0; l < n_list; l++)
                if (list[l].from == id[k]) id[k] = list[l].to;
            assert_int_equal(id[k], sn_entry_get(m, "step")->output[k].node->id);
        }
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wider_rows),         cmocka_unit_test(as_whole),
        cmocka_unit_test(as_meant),           cmocka_unit_test(less_memory),
        cmocka_unit_test(single_iteration),   cmocka_unit_test(single_iteration_sums),
        cmocka_unit_test(with_budget),        cmocka_unit_test(origins),
        cmocka_unit_test(reported),           cmocka_unit_test(only_where_it_can),
        cmocka_unit_test(axes_of_equal_size), cmocka_unit_test(ahead_of_time),
        cmocka_unit_test(width_of_result),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
