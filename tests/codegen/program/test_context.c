/* test_context.c: attention whose rows are divided among simulated ranks, against one rank: values and
 * gradients of the evaluator and of kernels, memory, and what runs while keys and values travel. */
#include "codegen/program/carry.h"
#include "frontend/sinter.h"
#include "tests/support/effort.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_RANKS = 4, IN = 5, OUT = 5, HEADS = 4, KV_HEADS = 2, WIDTH = 16, BIASES = 40 };
static const char *const in_name[IN] = {"q", "k", "v", "g", "bias"};
static const char *const out_name[OUT] = {"y", "dq", "dk", "dv", "dbias"};

typedef struct variant {
    const char *name;
    bool causal, biased, odd; /* odd: a mask of its own, which hides every third key */
    int64_t window;
    bool zigzag;
    int64_t piece; /* bytes */
} variant;

static const variant variants[] = {{"all", false, false, false, 0, false, 0},
                                   {"causal", true, false, false, 0, false, 0},
                                   {"window", true, false, false, 11, false, 0},
                                   {"bias", true, true, false, 0, false, 0},
                                   {"odd", false, true, true, 0, false, 0},
                                   {"zigzag", true, true, false, 0, true, 0},
                                   {"zigzag pieces", true, true, false, 0, true, 400},
                                   {"zigzag window", true, false, false, 7, true, 0},
                                   {"zigzag odd", false, true, true, 0, true, 0},
                                   {"pieces", true, false, false, 0, false, 200}};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* A bias that depends on the distance between positions, and on the head. */
static sn_tensor add_bias(const sn_score_ctx *c) {
    sn_tensor far = sn_add(sn_query_key_distance(c), sn_mul(c->h, 7));
    far = sn_mod(sn_add(far, 4096 - 4096 % BIASES), BIASES);
    return sn_add(c->score, sn_at(c->captured[0], far));
}

static sn_tensor odd_mask(const sn_score_ctx *c) {
    return sn_ne(sn_mod(sn_add(c->k, c->q), 3), 1);
}

typedef struct problem {
    const variant *v;
    int64_t rows; /* of all ranks */
    sn_dtype t;
    int level;
    double *in[IN], *out[OUT]; /* of all ranks */
    sn_program *program;       /* level >= 0: of every rank */
    size_t n[IN];              /* elements; out[1 + i] has those of in[i], y those of g */
    int64_t workspace;         /* bytes of a rank */
    size_t sent;               /* bytes, by all ranks */
} problem;

static int64_t heads_of(int i) {
    return i == 1 || i == 2 ? KV_HEADS : HEADS;
}

/* Attention of one of `ranks` ranks, and the gradients of sum(g y). */
static sn_module *build(const problem *p, int ranks) {
    sn_module *m = sn_module_new("context");
    int64_t rows = p->rows / ranks;
    sn_tensor x[IN], d[4];
    for (int i = 0; i < 4; i++) x[i] = sn_input(m, in_name[i], p->t, 1, heads_of(i), rows, WIDTH);
    x[4] = p->v->biased ? sn_input(m, "bias", p->t, BIASES) : NULL;
    sn_tensor y =
        sn_attention(x[0], x[1], x[2], .causal = p->v->causal, .window = p->v->window,
                     .score = p->v->biased ? add_bias : NULL, .mask = p->v->odd ? odd_mask : NULL,
                     .captured = {x[4]}, .mesh = "context", .ranks = ranks, .zigzag = p->v->zigzag,
                     .piece = p->v->piece);
    sn_tensor wrt[4] = {x[0], x[1], x[2], x[4]};
    sn_entry_begin(m, "attend");
    sn_output("y", y);
    sn_grad(sn_sum_all(sn_mul(y, x[3])), x[4] ? 4 : 3, wrt, d);
    for (int i = 0; i < (x[4] ? 4 : 3); i++) sn_output(out_name[1 + i], d[i]);
    return m;
}

static size_t elements(const problem *p, int i) {
    return i == 4 ? BIASES : (size_t)heads_of(i) * (size_t)p->rows * WIDTH;
}

/* The part of rank r of an array [1, heads, rows, WIDTH], from or to it; `bias` is whole everywhere. */
static void divide(const problem *p, int i, int ranks, int r, double *whole, double *part,
                   bool back) {
    size_t halves = p->v->zigzag ? 2 : 1, heads = (size_t)heads_of(i), n = halves * (size_t)ranks;
    size_t size = (size_t)p->rows / n * WIDTH;
    for (size_t e = 0; i == 4 && e < BIASES; e++) {
        if (back)
            whole[e] += part[e];
        else
            part[e] = whole[e];
    }
    for (size_t k = 0; i < 4 && k < heads * halves; k++) {
        double *at = whole + (k / halves * n + (k % halves ? n - 1 - (size_t)r : (size_t)r)) * size;
        memcpy(back ? at : part + k * size, back ? part + k * size : at, size * sizeof *at);
    }
}

typedef struct rank {
    problem *p;
    sn_comm *c;            /* NULL: alone */
    pthread_mutex_t *lock; /* of p->out */
    bool ok;
    char why[400];
} rank;

static bool evaluate(const rank *k, sn_module *m, double *const *in, double **out, size_t *n) {
    const sn_entry *e = sn_entry_get(m, "attend");
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_set_comm(ev, NULL, k->c);
    bool ok = !sn_module_error(m)->code;
    for (int i = 0; i < IN; i++)
        if (i < 4 || k->p->v->biased)
            ok = ok && sn_eval_bind_f64(ev, in_name[i], in[i], (int64_t)n[i]);
    for (int i = 0; ok && i < e->n_output; i++) {
        const sn_value *v = sn_eval_node(ev, e->output[i].node);
        if ((ok = v != NULL)) memcpy(out[i], v->data, (size_t)v->n * sizeof *v->data);
    }
    sn_eval_free(ev);
    return ok;
}

/* The input with the shape of output i. */
static int like(int i) {
    return i == 0 ? 3 : i == 4 ? 4 : i - 1;
}

static void bind_all(const problem *p, double *const *in, const size_t *n, int64_t (*shape)[4],
                     sn_arg_binding *from, sn_arg_binding *to) {
    for (int i = 0; i < IN; i++) {
        int64_t heads = heads_of(i), rows = (int64_t)n[i] / heads / WIDTH;
        int64_t flat[4] = {BIASES}, full[4] = {1, heads, rows, WIDTH};
        memcpy(shape[i], i == 4 ? flat : full, sizeof flat);
        float *x = calloc(n[i], sizeof *x);
        for (size_t a = 0; a < n[i] && (i < 4 || p->v->biased); a++) x[a] = (float)in[i][a];
        from[i] = (sn_arg_binding){in_name[i], SN_F32, i == 4 ? 1 : 4, shape[i], x};
    }
    for (int i = 0; i < OUT; i++) {
        to[i] = from[like(i)];
        to[i].name = out_name[i];
        to[i].data = calloc(n[like(i)], sizeof(float));
    }
}

static bool run(rank *k, double *const *in, double **out, size_t *n) {
    int n_out = k->p->v->biased ? OUT : OUT - 1;
    sn_error err = {0};
    sn_arg_binding from[IN], to[OUT];
    int64_t shape[IN][4];
    sn_session *s = sn_session_new_arrays(k->p->program, NULL, 0, &err);
    sn_carrier *carrier =
        s && k->c ? sn_carrier_new(1, &(sn_carrier_axis){.comm = k->c}, &err) : NULL;
    bind_all(k->p, in, n, shape, from, to);
    if (carrier) sn_session_set_collectives(s, sn_carrier_collectives(carrier));
    bool ok = s && sn_run(s, "attend", from, n_out, to, n_out, &err);
    if (!ok) snprintf(k->why, sizeof k->why, "%.390s", err.message);
    for (int i = 0; ok && i < n_out; i++)
        for (size_t a = 0; a < n[like(i)]; a++) out[i][a] = ((float *)to[i].data)[a];
    if (ok) k->p->workspace = (int64_t)sn_session_workspace(s);
    for (int i = 0; i < IN; i++) free(from[i].data), free(to[i].data);
    sn_session_free(s);
    sn_carrier_free(carrier);
    return ok;
}

static void *run_rank(void *arg) {
    rank *k = arg;
    problem *p = k->p;
    int ranks = k->c ? k->c->size : 1, r = k->c ? k->c->rank : 0;
    sn_module *m = p->level < 0 ? build(p, ranks) : NULL;
    double *in[IN], *out[OUT];
    size_t n[IN];
    for (int i = 0; i < IN; i++) {
        n[i] = elements(p, i) / (size_t)(i < 4 ? ranks : 1);
        in[i] = calloc(n[i], sizeof **in);
        divide(p, i, ranks, r, p->in[i], in[i], false);
    }
    for (int i = 0; i < OUT; i++) out[i] = calloc(n[like(i)], sizeof **out);
    k->ok = m ? evaluate(k, m, in, out, n) : run(k, in, out, n);
    if (m) snprintf(k->why, sizeof k->why, "%.390s", sn_module_error(m)->message);
    pthread_mutex_lock(k->lock);
    for (int i = 0; i < OUT; i++) divide(p, like(i), ranks, r, p->out[i], out[i], true);
    if (k->c) p->sent += k->c->sent;
    pthread_mutex_unlock(k->lock);
    for (int i = 0; i < IN; i++) free(in[i]), free(out[i]);
    if (m) sn_module_free(m);
    if (k->c) sn_comm_close(k->c);
    return NULL;
}

/* Fills p->out, p->sent. */
static void run_ranks(problem *p, int n) {
    sn_comm *comm[MAX_RANKS] = {NULL};
    pthread_t thread[MAX_RANKS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    rank k[MAX_RANKS];
    for (int i = 0; i < OUT; i++) memset(p->out[i], 0, elements(p, like(i)) * sizeof **p->out);
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.level = p->level;
    o.threads = 1;
    sn_module *m = p->level < 0 ? NULL : build(p, n);
    p->program = m ? sn_compile(m, &o, &err) : NULL;
    if (m && !p->program) fail_msg("%s", err.message);
    if (n > 1) assert_true(sn_comm_simulate(n, comm, NULL));
    for (int r = 0; r < n; r++) k[r] = (rank){.p = p, .c = comm[r], .lock = &lock};
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &k[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++)
        if (!k[r].ok) fail_msg("%s, rank %d of %d: %s", p->v->name, r, n, k[r].why);
    if (m) sn_program_free(p->program), sn_module_free(m);
}

static void open_problem(problem *p, const variant *v, int64_t rows, int level) {
    *p = (problem){.v = v, .rows = rows, .t = level < 0 ? SN_F64 : SN_F32, .level = level};
    for (int i = 0; i < IN; i++) {
        p->in[i] = calloc(elements(p, i), sizeof *p->in[i]);
        for (size_t e = 0; e < elements(p, i); e++)
            p->in[i][e] = sin(0.37 * (double)e * (i + 1.3) + i);
    }
    for (int i = 0; i < OUT; i++) p->out[i] = calloc(elements(p, like(i)), sizeof *p->out[i]);
}

static void close_problem(problem *p) {
    for (int i = 0; i < IN; i++) free(p->in[i]), free(p->out[i]);
}

/* Results and gradients of n ranks are those of one. */
static void compare(const variant *v, int64_t rows, int n, int level, double tolerance) {
    problem one, many;
    open_problem(&one, v, rows, level);
    open_problem(&many, v, rows, level);
    run_ranks(&one, 1);
    run_ranks(&many, n);
    for (int i = 0; i < (v->biased ? OUT : OUT - 1); i++)
        for (size_t e = 0; e < elements(&one, like(i)); e++) {
            double want = one.out[i][e], got = many.out[i][e];
            if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
                fail_msg("%s, %d ranks, level %d: %s[%zu] is %.9g, not %.9g", v->name, n, level,
                         out_name[i], e, got, want);
        }
    close_problem(&one);
    close_problem(&many);
}

static void evaluated(void **state) {
    (void)state;
    for (int i = 0; i < VARIANTS; i++)
        for (int n = 2; n <= MAX_RANKS; n++)
            if (effort_takes((size_t)(i + n), 6)) compare(&variants[i], 24, n, -1, 1e-11);
}

static void compiled(void **state) {
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        if (effort_takes((size_t)i, 4)) compare(&variants[i], 96, 4, 4, 1e-5);
        if (!variants[i].piece && effort_takes((size_t)i + 2, 5))
            compare(&variants[i], 24, 2 + i % 2, i % 2 ? 0 : 2, 1e-5);
    }
}

/* Bytes that all ranks send for halves of keys and values that a rank needs of another one: once
 * forward, twice backward; and the ranks' numbers. */
static size_t expected_bytes(const problem *p, int n, int halves) {
    size_t half = elements(p, 1) / (size_t)n * sizeof(float);
    return 3 * (size_t)halves * half + (size_t)(n * (n - 1)) * sizeof(float);
}

/* Keys that a mask hides from all queries of a rank are not sent. */
static void bytes_sent(void **state) {
    (void)state;
    static const struct {
        int variant, halves;
    } row[] = {{0, 2 * 4 * 3},
               {1, 4 * 3},
               {2, 2 * 3},         /* with the rank before only */
               {5, 4 * 3 + 2 * 3}, /* the first half of each rank, the second one of later ranks */
               {9, 4 * 3}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        problem p;
        open_problem(&p, &variants[row[i].variant], 96, 4);
        run_ranks(&p, 4);
        assert_int_equal(p.sent, expected_bytes(&p, 4, row[i].halves));
        close_problem(&p);
    }
}

/* Bytes of a rank: what it computes, inputs and outputs. */
static double memory_of(const problem *p, int n) {
    double floats = 0;
    for (int i = 0; i < 4; i++) floats += 2 * (double)elements(p, i) / n; /* y is like g */
    return (double)p->workspace + floats * sizeof(float);
}

/* A rank of four has a quarter of the tensors, and blocks under way beside them. In the default run
 * rows are so few that constant parts count. */
static void long_rows(void **state) {
    (void)state;
    int64_t rows = effort_is_long() ? 16384 : 512;
    static const int list[] = {1, 2, 5}; /* the default run: zigzag */
    for (int i = 0; i < 3; i++) {
        if (!effort_takes((size_t)i + 1, 3)) continue;
        variant v = variants[list[i]];
        v.biased = false;
        v.piece = (int64_t)KV_HEADS * rows / 4 * WIDTH * (int64_t)sizeof(float) / 16;
        if (v.window) v.window = rows / 16;
        problem one, many;
        open_problem(&one, &v, rows, 4);
        open_problem(&many, &v, rows, 4);
        run_ranks(&one, 1);
        run_ranks(&many, 4);
        for (int o = 0; o < OUT - 1; o++)
            for (size_t e = 0; e < elements(&one, like(o)); e++)
                assert_float_equal(many.out[o][e], one.out[o][e], 1e-5 * (1 + fabs(one.out[o][e])));
        double share = memory_of(&many, 4) / memory_of(&one, 1);
        print_message("%s, %lld rows: a rank of 4 has %.3f of the memory of one\n", v.name,
                      (long long)rows, share);
        if (effort_is_long()) assert_true(share < 0.29);
        close_problem(&one);
        close_problem(&many);
    }
}

/* An exchange and its gradient, which sends back. */
static void *exchange(void *arg) {
    rank *k = arg;
    sn_module *m = sn_module_new("exchange");
    sn_tensor x = sn_input(m, "x", SN_F64, 2), g = sn_input(m, "g", SN_F64, 2), dx;
    sn_tensor r = sn_cast(sn_mesh_rank(m, "ring", 3), SN_F64);
    k->ok = true;
    for (int wrap = 0; wrap < 2; wrap++)
        for (int shift = -2; shift <= 2; shift++) {
            sn_tensor y = sn_collective_permute(sn_add(x, r), shift, wrap, "ring", 3);
            sn_grad(sn_sum_all(sn_mul(y, sn_add(g, r))), 1, &x, &dx);
            sn_eval *ev = sn_eval_new(m, NULL);
            sn_eval_set_comm(ev, NULL, k->c);
            k->ok &= sn_eval_bind_f64(ev, "x", (double[]){10, 20}, 2) &&
                     sn_eval_bind_f64(ev, "g", (double[]){100, 200}, 2);
            const sn_value *v = sn_eval_node(ev, y), *d = sn_eval_node(ev, dx);
            int from = k->c->rank + shift, to = k->c->rank - shift;
            if (wrap) from = (from + 3) % 3, to = (to + 3) % 3;
            double want = from < 0 || from > 2 ? 0 : 20 + from;
            double back = to < 0 || to > 2 ? 0 : 200 + to;
            k->ok &= v && d && v->data[1] == want && d->data[1] == back;
            sn_eval_free(ev);
        }
    if (!k->ok) snprintf(k->why, sizeof k->why, "%.390s", sn_module_error(m)->message);
    sn_module_free(m);
    sn_comm_close(k->c);
    return NULL;
}

static void exchanges(void **state) {
    (void)state;
    sn_comm *comm[3];
    pthread_t thread[3];
    rank k[3];
    assert_true(sn_comm_simulate(3, comm, NULL));
    for (int r = 0; r < 3; r++) {
        k[r] = (rank){.c = comm[r]};
        assert_int_equal(pthread_create(&thread[r], NULL, exchange, &k[r]), 0);
    }
    for (int r = 0; r < 3; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 3; r++)
        if (!k[r].ok) fail_msg("rank %d: %s", r, k[r].why);
}

/* The log-sum-exp is a result of the kernel that computes attention; one kernel has both gradients. */
static void one_kernel_with_log_sums(void **state) {
    (void)state;
    sn_module *m = sn_module_new("lse");
    sn_tensor x[3], d[3], lse;
    for (int i = 0; i < 3; i++) x[i] = sn_input(m, in_name[i], SN_F32, 1, heads_of(i), 70, WIDTH);
    sn_tensor y = sn_attention(x[0], x[1], x[2], .causal = true, .lse = &lse);
    sn_entry_begin(m, "attend");
    sn_grad(sn_add(sn_sum_all(sn_tanh(y)), sn_sum_all(sn_tanh(lse))), 3, x, d);
    for (int i = 0; i < 3; i++) sn_output(out_name[1 + i], d[i]);
    sn_output("lse", lse);
    sn_error err = {0};
    sn_program *p = sn_compile(m, NULL, &err);
    if (!p) fail_msg("%s", err.message);
    const sn_plan *plan = p->entry[0].code.plan;
    int flash = 0, grad = 0;
    for (int i = 0; i < plan->n_call; i++) {
        const char *op = sn_ops[plan->call[i]->node->op].name;
        flash += !strcmp(op, "flash");
        grad += !strcmp(op, "flash_grad");
    }
    assert_int_equal(flash, 1);
    assert_int_equal(grad, 1);
    sn_program_free(p);
    sn_module_free(m);
}

static void refused(void **state) {
    (void)state;
    sn_module *m = sn_module_new("refused");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, 1, 4, 8), lse = NULL;
    sn_attention(x, x, x, .mesh = "context", .ranks = 2, .lse = &lse);
    assert_non_null(strstr(sn_module_error(m)->message, "need rows that are not divided"));
    sn_module_free(m);
    m = sn_module_new("ranks");
    x = sn_input(m, "x", SN_F32, 4);
    sn_collective_permute(x, 2, true, "context", 2);
    assert_non_null(strstr(sn_module_error(m)->message, "the shift is not between"));
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluated),  cmocka_unit_test(compiled),
        cmocka_unit_test(bytes_sent), cmocka_unit_test(long_rows),
        cmocka_unit_test(exchanges),  cmocka_unit_test(one_kernel_with_log_sums),
        cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
