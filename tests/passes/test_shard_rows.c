/* test_shard_rows.c: sequences that sn_shard divides among ranks, alone and with heads divided, too: each
 * rank's program over simulated ranks against the whole one, and what it exchanges. */
#include "codegen/program/carry.h"
#include "codegen/program/share.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "passes/passes.h"
#include "tests/support/effort.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    MAX_RANKS = 4, /* ranks */
    BATCH = 2,
    TOKENS = 16,
    VOCAB = 11,
    HEADS = 4,
    KV_HEADS = 2,
    WIDTH = 6,
    MODEL = HEADS * WIDTH,
    SOURCE = 8, /* positions of a second sequence */
    PARAMS = 8,
    OUTPUTS = PARAMS + 3
};

typedef struct variant {
    const char *name;
    bool zigzag, causal;
    int64_t window;
    bool biased; /* a score callback with a table that is trained */
    bool odd;    /* a mask callback */
    bool cross;  /* attention to another sequence, which is whole */
    bool plain;  /* weights that are not a softmax */
    int behind;  /* attribute of the exchanges on 4 ranks; -1: none */
} variant;

static const variant variants[] = {
    {"all", .behind = -1},
    {"causal", .causal = true, .behind = 3},
    {"window", .causal = true, .window = 4, .behind = 1},
    {"bias", .causal = true, .biased = true, .behind = 3},
    {"odd", .odd = true, .behind = -1},
    {"zigzag", .zigzag = true, .causal = true, .biased = true, .behind = 7},
    {"zigzag window", .zigzag = true, .causal = true, .window = 5, .behind = 2},
    {"zigzag all", .zigzag = true, .behind = -1},
    {"cross", .cross = true, .behind = -1},
    {"zigzag cross", .zigzag = true, .cross = true, .odd = true, .behind = -1},
    {"plain", .causal = true, .plain = true, .behind = -1}};
enum { VARIANTS = sizeof variants / sizeof *variants };

typedef struct shape { /* of a mesh */
    int64_t context, tensor;
} shape;

/* ---- the model ---- */

static sn_tensor add_bias(const sn_score_ctx *c) {
    sn_tensor far = sn_mod(sn_add(sn_query_key_distance(c), sn_mul(c->h, 7)), TOKENS);
    return sn_add(c->score, sn_at(c->captured[0], far));
}

static sn_tensor odd_mask(const sn_score_ctx *c) {
    return sn_ne(sn_mod(sn_add(c->k, c->q), 3), 1);
}

static sn_tensor square(const sn_score_ctx *c) {
    return sn_mul(c->score, c->score);
}

/* The columns, or the rows, of a matrix, which ranks of "tensor" divide. */
static sn_tensor part(sn_module *m, const char *name, int64_t out, int64_t in, int axis) {
    return sn_shard(sn_param(m, name, SN_F32, out, in), axis, "tensor");
}

static sn_tensor divided(const variant *v, sn_tensor x) {
    return v->zigzag ? sn_shard_zigzag(x, 1, "context") : sn_shard(x, 1, "context");
}

static sn_module *build(const variant *v, shape mesh, int64_t rank) {
    sn_module *m = sn_module_new("rows");
    sn_mesh(m, "context", mesh.context, "tensor", mesh.tensor);
    sn_mesh_place(m, rank);
    sn_entry_begin(m, "step");
    sn_tensor ids = divided(v, sn_input(m, "ids", SN_I32, BATCH, TOKENS));
    sn_tensor targets = sn_input(m, "targets", SN_I32, BATCH, TOKENS);
    sn_tensor table = sn_param(m, "table", SN_F32, VOCAB, MODEL);
    sn_tensor places = sn_param(m, "places", SN_F32, TOKENS + 4, MODEL);
    sn_tensor x = sn_add(sn_embedding(table, ids), sn_slice(places, 0, 0, TOKENS));
    sn_tensor norm = sn_param(m, "norm", SN_F32, MODEL), y = sn_rms_norm(x, norm, 1e-5);
    sn_tensor source = v->cross ? sn_input(m, "source", SN_F32, BATCH, SOURCE, MODEL) : y;
    sn_tensor q = sn_split_heads(sn_linear(y, part(m, "q", MODEL, MODEL, 0), NULL), HEADS);
    sn_tensor k =
        sn_split_heads(sn_linear(source, part(m, "k", KV_HEADS * WIDTH, MODEL, 0), NULL), KV_HEADS);
    sn_tensor w =
        sn_split_heads(sn_linear(source, part(m, "v", KV_HEADS * WIDTH, MODEL, 0), NULL), KV_HEADS);
    sn_tensor bias = sn_param(m, "bias", SN_F32, TOKENS);
    if (!v->cross) {
        sn_tensor at = sn_arange(m, SN_I32, TOKENS);
        q = sn_rope(q, at), k = sn_rope(k, at);
    }
    sn_tensor z = sn_attention(
        q, k, w, .causal = v->causal, .window = v->window, .score = v->biased ? add_bias : NULL,
        .mask = v->odd ? odd_mask : NULL, .weight = v->plain ? square : NULL,
        .divide = v->plain ? SN_DIVIDE_BY_SUM : 0, .captured = {v->biased ? bias : NULL});
    x = sn_add(x, sn_linear(sn_merge_heads(z), part(m, "out", MODEL, MODEL, 1), NULL));
    sn_tensor logits = sn_linear(x, table, NULL),
              loss = sn_mean_all(sn_cross_entropy(logits, targets));
    sn_tensor wrt[PARAMS] = {table, places, norm}, d[PARAMS];
    static const char *const name[PARAMS] = {"table", "places", "norm", "q",
                                             "k",     "v",      "out",  "bias"};
    static const int64_t rows[] = {MODEL, KV_HEADS * WIDTH, KV_HEADS * WIDTH, MODEL};
    for (int i = 3; i < PARAMS - 1; i++) wrt[i] = sn_param(m, name[i], SN_F32, rows[i - 3], MODEL);
    wrt[PARAMS - 1] = bias;
    int n = v->biased ? PARAMS : PARAMS - 1;
    sn_grad(loss, n, wrt, d);
    sn_output("loss", loss);
    sn_output("logits", logits);
    sn_output("large", sn_mul(ids, (1 << 24) + 1)); /* not exact as f32 */
    for (int i = 0; i < n; i++) sn_output(name[i], d[i]);
    return m;
}

static double value_of(const sn_node *n, int64_t i) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    double phase = 0;
    for (const char *c = name; *c; c++) phase += (double)*c * 0.37;
    if (n->dtype == SN_I32) return (double)((i * 7 + name[0] + i * i) % VOCAB);
    return sin(phase + 1.3 * (double)i) * 0.4;
}

/* ---- ranks ---- */

typedef struct result {
    int n;
    int64_t size[OUTPUTS];
    double *data[OUTPUTS];
    int permutes, gathers, rings; /* in the entry */
    int64_t behind;
} result;

typedef struct job {
    const variant *v;
    shape mesh;
    int level; /* -1: the evaluator */
    sn_comm *all;
    result out;
} job;

static void give_up(const job *j, const char *why) { /* the others would wait */
    fprintf(stderr, "%s, rank %d: %s\n", j->v->name, j->all ? j->all->rank : 0, why);
    _Exit(1);
}

static int64_t count_of(const sn_node *n) {
    int64_t count = 1, size = 1;
    for (int a = 0; a < n->rank; a++)
        if (sn_dim_is_const(n->m, n->shape[a], &size)) count *= size;
    return count;
}

static bool is_leaf(const sn_node *n) {
    return n->op == SN_OP_input || n->op == SN_OP_param;
}

static void evaluate(job *j, sn_module *m, sn_comm *const axis[2]) {
    int64_t symbol[16] = {0};
    sn_module_place(m, symbol, NULL);
    sn_eval *ev = sn_eval_new(m, symbol);
    const sn_entry *e = sn_entry_get(m, "step");
    sn_order order = sn_entry_topo(m, e);
    sn_eval_set_comm(ev, "context", axis[0]);
    sn_eval_set_comm(ev, "tensor", axis[1]);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        sn_share s = sn_share_of(n);
        if (!is_leaf(n)) continue;
        int64_t count = count_of(n);
        double *x = calloc((size_t)count, sizeof *x);
        for (int64_t k = 0; k < count && !s.ranks; k++) x[k] = value_of(n, k);
        for (int64_t k = 0; s.ranks && k < sn_share_runs(&s); k++) {
            sn_elements r = sn_share_run(&s, k);
            for (int64_t c = 0; c < r.count; c++) x[r.to + c] = value_of(n, r.from + c);
        }
        sn_eval_bind_f64(ev, sn_attr_str(n, SN_A_name, ""), x, count);
        free(x);
    }
    j->out.n = e->n_output;
    for (int i = 0; i < e->n_output; i++) {
        const sn_value *v = sn_eval_node(ev, e->output[i].node);
        if (!v) give_up(j, sn_module_error(m)->message);
        j->out.size[i] = v->n;
        j->out.data[i] = malloc((size_t)v->n * sizeof(double));
        memcpy(j->out.data[i], v->data, (size_t)v->n * sizeof(double));
    }
    sn_eval_free(ev);
}

static void bind(const sn_node *n, const char *name, int64_t (*shape)[4], sn_arg_binding *out) {
    int64_t count = count_of(n);
    float *x = calloc((size_t)count, sizeof *x);
    for (int a = 0; a < n->rank; a++) sn_dim_is_const(n->m, n->shape[a], &(*shape)[a]);
    for (int64_t i = 0; i < count; i++) {
        double value = is_leaf(n) ? value_of(n, i) : 0;
        if (n->dtype == SN_I32)
            ((int32_t *)(void *)x)[i] = (int32_t)value;
        else
            x[i] = (float)value;
    }
    *out = (sn_arg_binding){name, (sn_dtype)n->dtype, n->rank, *shape, x};
}

/* All leaves and outputs of the entry; m: before it is compiled. */
static void run(job *j, sn_module *m, sn_comm *const axis[2]) {
    enum { LEAVES = 16 };
    sn_arg_binding in[LEAVES], param[LEAVES], out[OUTPUTS];
    int64_t shape[2 * LEAVES + OUTPUTS][4];
    int n_in = 0, n_param = 0, n_shape = 0;
    sn_error err = {0};
    const sn_entry *e = sn_entry_get(m, "step");
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (is_leaf(n))
            bind(n, sn_attr_str(n, SN_A_name, ""), &shape[n_shape++],
                 n->op == SN_OP_param ? &param[n_param++] : &in[n_in++]);
    }
    for (int i = 0; i < e->n_output; i++)
        bind(e->output[i].node, e->output[i].name, &shape[n_shape++], &out[i]);
    sn_options o = sn_options_default();
    o.level = j->level, o.threads = 1;
    sn_program *p = sn_compile(m, &o, &err);
    sn_session *s = p ? sn_session_new_arrays(p, param, n_param, &err) : NULL;
    const sn_carrier_axis axes[] = {{.mesh = "context", .comm = axis[0]},
                                    {.mesh = "tensor", .comm = axis[1]}};
    sn_carrier *c = s && j->all ? sn_carrier_new(2, axes, &err) : NULL;
    if (c) sn_session_set_collectives(s, sn_carrier_collectives(c));
    if (!s || !sn_run(s, "step", in, n_in, out, e->n_output, &err)) give_up(j, err.message);
    j->out.n = e->n_output;
    for (int i = 0; i < e->n_output; i++) {
        j->out.size[i] = count_of(e->output[i].node);
        j->out.data[i] = malloc((size_t)j->out.size[i] * sizeof(double));
        for (int64_t k = 0; k < j->out.size[i]; k++)
            j->out.data[i][k] = out[i].dtype == SN_I32 ? ((int32_t *)out[i].data)[k]
                                                       : (double)((float *)out[i].data)[k];
        free(out[i].data);
    }
    for (int i = 0; i < n_in; i++) free(in[i].data);
    for (int i = 0; i < n_param; i++) free(param[i].data);
    sn_session_free(s);
    sn_program_free(p);
    sn_carrier_free(c);
}

static void count_exchanges(result *r, sn_module *m) {
    sn_order order = sn_entry_topo(m, sn_entry_get(m, "step"));
    for (int i = 0; i < order.n; i++) {
        r->permutes += order.node[i]->op == SN_OP_collective_permute;
        r->gathers += order.node[i]->op == SN_OP_all_gather;
    }
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_ring_attention) continue;
        r->rings++;
        r->behind = sn_attr_int(n, SN_A_behind, -1);
    }
}

static void *run_rank(void *arg) {
    job *j = arg;
    sn_error err = {0};
    sn_comm *axis[2] = {NULL, NULL};
    int64_t rank = j->all ? j->all->rank : 0, tensor = j->mesh.tensor;
    if (j->all) {
        axis[0] = j->all->ops->split(j->all, (int)(rank % tensor), &err);
        axis[1] = j->all->ops->split(j->all, (int)(rank / tensor), &err);
    }
    sn_module *m = build(j->v, j->mesh, rank);
    const sn_pass_options o = {
        .level = SN_LEVEL_HIGHEST, .backend = "native", .only = "replace,shard", .verify = true};
    sn_passes p;
    if (j->level < 0 && (!sn_module_ok(m, &err) || !sn_passes_run(&p, m, &o)))
        give_up(j, sn_module_error(m)->message);
    if (j->level < 0)
        evaluate(j, m, axis);
    else
        run(j, m, axis);
    if (j->level < 0) count_exchanges(&j->out, m);
    sn_module_free(m);
    for (int i = 0; i < 2; i++)
        if (j->all) sn_comm_close(axis[i]);
    if (j->all) sn_comm_close(j->all);
    return NULL;
}

static void compare(const job *j, const result *want, double tolerance) {
    const result *got = &j->out;
    assert_int_equal(want->n, got->n);
    for (int i = 0; i < want->n; i++) {
        assert_int_equal(want->size[i], got->size[i]);
        for (int64_t k = 0; k < want->size[i]; k++)
            if (!(fabs(want->data[i][k] - got->data[i][k]) <=
                  tolerance * (1 + fabs(want->data[i][k]))))
                fail_msg("%s on %lld x %lld ranks, level %d: output %d [%lld] is %.12g, not %.12g",
                         j->v->name, (long long)j->mesh.context, (long long)j->mesh.tensor,
                         j->level, i, (long long)k, got->data[i][k], want->data[i][k]);
    }
}

/* All ranks' results are the whole program's; returns what rank 0 exchanges. */
static result check(const variant *v, shape mesh, int level, double tolerance) {
    int ranks = (int)(mesh.context * mesh.tensor);
    job one = {.v = v, .mesh = {1, 1}, .level = level}, j[MAX_RANKS];
    sn_comm *comm[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    run_rank(&one);
    assert_int_equal(one.out.permutes + one.out.gathers, 0);
    assert_true(sn_comm_simulate(ranks, comm, NULL));
    for (int r = 0; r < ranks; r++) {
        j[r] = (job){.v = v, .mesh = mesh, .level = level, .all = comm[r]};
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &j[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        compare(&j[r], &one.out, tolerance);
        for (int i = 0; i < one.out.n; i++) free(j[r].out.data[i]);
    }
    for (int i = 0; i < one.out.n; i++) free(one.out.data[i]);
    return j[0].out;
}

/* Divided keys travel; only results are gathered, with weights that are
 * not a softmax keys and values, too. */
static void evaluated(void **state) {
    (void)state;
    static const shape shapes[] = {{2, 1}, {4, 1}, {2, 2}};
    for (size_t i = 0; i < VARIANTS; i++)
        for (size_t k = 0; k < 3; k++) {
            const variant *v = &variants[i];
            if (!effort_takes(i + k, 3) && k != 1) continue;
            result r = check(v, shapes[k], -1, 1e-9);
            bool travels = !v->cross && !v->plain;
            assert_int_equal(r.permutes > 0, travels);
            if (travels && k == 1) assert_int_equal(r.behind, v->behind);
            if (k < 2) assert_int_equal(r.gathers, v->plain ? 5 : 3);
        }
}

/* Kernels, whose blocks test_context.c compares in the default run, too. */
static void compiled(void **state) {
    (void)state;
    for (size_t i = 0; i < VARIANTS && effort_is_long(); i++) {
        check(&variants[i], (shape){2, 2}, 4, 1e-5);
        check(&variants[i], (shape){4, 1}, (int)i % 4, 1e-5);
    }
}

static void mistakes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("odd");
    sn_mesh(m, "context", 4);
    sn_tensor x = sn_input(m, "x", SN_F32, 12);
    sn_shard_zigzag(x, 0, "context");
    assert_non_null(strstr(sn_module_error(m)->message,
                           "12 elements cannot be divided among 4 ranks, two halves each"));
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(evaluated), cmocka_unit_test(compiled),
                                       cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
