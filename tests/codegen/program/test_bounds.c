/* test_bounds.c: sizes that a run may not have: a start or a size that becomes negative, an end one
 * behind its axis, an empty axis that is indexed, more elements than can be counted. Compiled code
 * of every level, the artefact and the evaluator refuse them; at the bound itself they run. Refused
 * runs get pages that nobody may touch; the others, arrays that end at such a page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "codegen/program/program.h"
#include "frontend/sinter.h"
#include "runtime/deployed.h"
#include "tests/support/artefact.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <sys/mman.h>

enum { T, P, N, Q, SYMBOLS }; /* the dims of the module */
enum { HALF = 1 << 25, MAX_ARGS = 8 };

typedef struct graph {
    sn_module *m;
    sn_dim d[SYMBOLS];
} graph;

static const char *const symbol_name[SYMBOLS] = {"T", "P", "N", "Q"};

static sn_dim less(const graph *g, int d, int64_t by) {
    return sn_dim_sub(g->m, g->d[d], by);
}

/* ---- one graph a bound ---- */

static sn_tensor slice_start(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 1, g->d[T]);
    return sn_mul(sn_slice(x, 1, less(g, T, 5), 5), 2.0);
}

static sn_tensor slice_size(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 1, g->d[T]);
    return sn_slice(x, 1, 5, less(g, T, 5));
}

static sn_tensor softmax_of_slice(const graph *g) {
    return sn_softmax(slice_size(g), 1);
}

static sn_tensor sum_of_slice(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, g->d[T], 4);
    return sn_sum_all(sn_slice(x, 0, 0, less(g, T, 3)));
}

static sn_tensor slice_end(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 3, g->d[T]);
    return sn_slice(x, 1, g->d[P], 4);
}

static sn_tensor strided_slice(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, g->d[T]);
    return sn_slice_step(x, 0, 1, less(g, P, 2), 3); /* the last: 1 + 3 (P - 3) */
}

static sn_tensor empty_strided_slice(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 8);
    return sn_slice_step(x, 0, g->d[P], g->d[N], 3);
}

static sn_tensor update_start(const graph *g) {
    sn_tensor s = sn_state(g->m, "s", SN_F32, 1, 8), y = sn_input(g->m, "y", SN_F32, 1, 1);
    sn_assign(s, sn_update(s, y, 0, less(g, P, 5)));
    return sn_sum_all(s);
}

static sn_tensor update_end(const graph *g) { /* Q has no upper bound: Q + 1 overflows */
    sn_tensor s = sn_state(g->m, "r", SN_F32, 8), y = sn_input(g->m, "y", SN_F32, 1);
    sn_assign(s, sn_update(s, y, g->d[Q]));
    return sn_sum_all(s);
}

static sn_tensor cache(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 1, 2, g->d[T], 3);
    return sn_kv_cache(x, "cache", g->d[P], 24);
}

static sn_tensor padding(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, g->d[T], 3);
    return sn_pad(x, 0, less(g, P, 2), less(g, P, 1), 1.5);
}

/* Off by one is what the ranges of the dims allow here. */
static sn_tensor end_by_one(const graph *g) {
    return sn_slice(sn_input(g->m, "x", SN_F32, 64), 0, g->d[P], 1);
}

static sn_tensor size_by_one(const graph *g) {
    return sn_slice(sn_input(g->m, "x", SN_F32, 64), 0, 2, less(g, P, 1));
}

static sn_tensor start_by_one(const graph *g) {
    return sn_slice(sn_input(g->m, "x", SN_F32, 64), 0, less(g, P, 1), 1);
}

static sn_tensor three(const graph *g, const char *name) {
    return sn_input(g->m, name, SN_I32, 3);
}

static sn_tensor gathered(const graph *g) {
    return sn_gather(sn_input(g->m, "x", SN_F32, g->d[N], 4), 0, three(g, "i"));
}

static sn_tensor gathered_columns(const graph *g) {
    return sn_gather(sn_input(g->m, "x", SN_F32, 4, less(g, P, 1)), 1, three(g, "i"));
}

static sn_tensor gathered_by_none(const graph *g) { /* nothing of nothing is fine */
    sn_tensor i = sn_input(g->m, "i", SN_I32, g->d[P]);
    return sn_gather(sn_input(g->m, "x", SN_F32, g->d[N], 4), 0, i);
}

static sn_tensor embedded(const graph *g) {
    return sn_embedding(sn_input(g->m, "x", SN_F32, g->d[N], 4), three(g, "i"));
}

static sn_tensor scattered(const graph *g) {
    return sn_scatter_add(sn_input(g->m, "x", SN_F32, 3, 4), 0, three(g, "i"), g->d[N]);
}

static sn_tensor single(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 2, g->d[N]);
    return sn_at(x, three(g, "i"), three(g, "j"));
}

static sn_tensor slice_of_gradient(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, g->d[T], 4), dx = NULL;
    sn_tensor y = sn_slice(x, 0, less(g, T, 3), 3);
    sn_grad(sn_sum_all(sn_mul(y, y)), 1, &x, &dx);
    return dx;
}

static sn_tensor square(const graph *g) {
    sn_tensor x = sn_input(g->m, "x", SN_F32, 1);
    return sn_broadcast(x, g->d[Q], g->d[Q]);
}

static sn_tensor sum_of_square(const graph *g) {
    sn_tensor i = sn_iota(g->m, SN_F32, 0, g->d[Q], g->d[Q]);
    return sn_sum_all(sn_mul(i, sn_input(g->m, "x", SN_F32, 1)));
}

/* ---- empty axes that nothing is read from ---- */

static sn_tensor of_none(const graph *g) {
    return sn_input(g->m, "x", SN_F32, 3, g->d[N]);
}

static sn_tensor cross_entropy(const graph *g) {
    return sn_cross_entropy(of_none(g), three(g, "i"));
}

static sn_tensor picked(const graph *g) { /* the same in plain operations */
    sn_tensor x = sn_log_softmax(of_none(g), 1), column = sn_iota(g->m, SN_I32, 1, 3, g->d[N]);
    return sn_sum(sn_where(sn_eq(sn_reshape(three(g, "i"), 3, 1), column), x, 0.0), 1);
}

static sn_tensor product(const graph *g) {
    sn_tensor x = of_none(g);
    return sn_matmul(x, sn_transpose(x, 1, 0));
}

static sn_tensor no_columns(const graph *g) {
    sn_tensor x = of_none(g);
    return sn_matmul(sn_transpose(x, 1, 0), x);
}

static sn_tensor norms(const graph *g) {
    return sn_cumsum(sn_softmax(sn_layer_norm(of_none(g), NULL, NULL, 1e-5), 1), 0);
}

static sn_tensor extremes(const graph *g) {
    sn_tensor x = of_none(g);
    return sn_add(sn_cast(sn_argmax(x, 1), SN_F32), sn_amax(x, 1));
}

static sn_tensor joined(const graph *g) {
    sn_tensor x = of_none(g);
    return sn_pad(sn_concat(1, x, sn_mul(x, 2.0)), 1, 1, 2, 3.0);
}

static sn_tensor heads(const graph *g, const char *name, sn_dim n) {
    return sn_input(g->m, name, SN_F32, 1, 2, n, 4);
}

static sn_tensor no_keys(const graph *g) {
    return sn_attention(heads(g, "q", 3), heads(g, "k", g->d[N]), heads(g, "v", g->d[N]));
}

static sn_tensor no_queries(const graph *g) {
    sn_tensor k = heads(g, "k", g->d[P]);
    return sn_attention(heads(g, "q", g->d[N]), k, k, .causal = true);
}

typedef struct row {
    const char *name;
    sn_tensor (*build)(const graph *g);
    const char *dims; /* that the entry takes */
    int64_t good[SYMBOLS], bad[SYMBOLS];
    const char *why; /* NULL: no size is refused */
} row;

static const row rows[] = {
    {"start", slice_start, "T", {5}, {4}, "the start T-5"},
    {"size", slice_size, "T", {5}, {4}, "the size T-5"},
    {"softmax", softmax_of_slice, "T", {5}, {3}, "the size T-5"},
    {"sum", sum_of_slice, "T", {3}, {2}, "the size T-3"},
    {"end", slice_end, "TP", {9, 5}, {9, 6}, "the end P+4"},
    {"end_by_one", end_by_one, "P", {0, 63}, {0, 64}, "the end P+1"},
    {"size_by_one", size_by_one, "P", {0, 1}, {0, 0}, "the size P-1"},
    {"start_by_one", start_by_one, "P", {0, 1}, {0, 0}, "the start P-1"},
    {"strided", strided_slice, "TP", {8, 5}, {7, 5}, "the end 3*P-7"},
    {"strided_size", strided_slice, "TP", {8, 2}, {8, 1}, "the size P-2"},
    {"strided_empty", empty_strided_slice, "PN", {0, 8, 0}, {0, 9, 0}, "the end P"},
    {"update", update_start, "P", {0, 5}, {0, 4}, "the start P-5"},
    {"update_last", update_start, "P", {0, 12}, {0, 13}, "the end P-4"},
    {"update_end", update_end, "Q", {0, 0, 0, 7}, {0, 0, 0, 8}, "the end Q+1"},
    {"update_far", update_end, "Q", {0, 0, 0, 7}, {0, 0, 0, INT64_MAX}, "the end Q+1"},
    {"kv_cache", cache, "TP", {8, 16}, {9, 16}, "the end T+P"},
    {"kv_cache_past", cache, "TP", {1, 23}, {1, 24}, "the end T+P"},
    {"padding", padding, "TP", {4, 2}, {4, 1}, "the start P-2"},
    {"gather", gathered, "N", {0, 0, 1}, {0, 0, 0}, "the axis of size N"},
    {"columns", gathered_columns, "P", {0, 2}, {0, 1}, "the axis of size P-1"},
    {"gather_none", gathered_by_none, "PN", {0, 0, 0}, {0, 1, 0}, "the axis of size N"},
    {"embedding", embedded, "N", {0, 0, 1}, {0, 0, 0}, "the axis of size N"},
    {"scatter", scattered, "N", {0, 0, 1}, {0, 0, 0}, "the axis of size N"},
    {"at", single, "N", {0, 0, 1}, {0, 0, 0}, "the axis of size N"},
    {"gradient", slice_of_gradient, "T", {3}, {2}, "the start T-3"},
    {"cross_entropy", cross_entropy, "N", {0}, {0}, NULL},
    {"picked", picked, "N", {0}, {0}, NULL},
    {"product", product, "N", {0}, {0}, NULL},
    {"no_columns", no_columns, "N", {0}, {0}, NULL},
    {"norms", norms, "N", {0}, {0}, NULL},
    {"extremes", extremes, "N", {0}, {0}, NULL},
    {"joined", joined, "N", {0}, {0}, NULL},
    {"no_keys", no_keys, "N", {0}, {0}, NULL},
    {"no_queries", no_queries, "PN", {0, 5}, {0}, NULL},
    {"nothing", no_queries, "PN", {0}, {0}, NULL},
    {"count", square, "Q", {0, 0, 0, 3}, {0, 0, 0, (int64_t)1 << 32}, "2^48 elements"},
    {"count_most", square, "Q", {0, 0, 0, 3}, {0, 0, 0, ((int64_t)1 << 24) + 1}, "2^48 elements"},
    {"count_inside", sum_of_square, "Q", {0, 0, 0, 3}, {0, 0, 0, (int64_t)1 << 32}, "2^48 elem"},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* T is at least 1 in every run; dims that an entry does not take are there all the same. */
static void values_of(const row *r, bool good, int64_t value[SYMBOLS]) {
    memcpy(value, good ? r->good : r->bad, sizeof r->good);
    if (!value[T]) value[T] = 1;
}

static graph new_graph(void) {
    graph g = {.m = sn_module_new("bounds")};
    static const int64_t lo[SYMBOLS] = {1, 0, 0, 0}, hi[SYMBOLS] = {1024, 64, 10, INT64_MAX};
    for (int i = 0; i < SYMBOLS; i++) g.d[i] = sn_symbol(g.m, symbol_name[i], lo[i], hi[i]);
    return g;
}

/* All rows as entries; states are shared by rows of one graph. */
static graph all_graphs(void) {
    graph g = new_graph();
    for (int i = 0; i < ROWS; i++) {
        sn_entry_begin(g.m, rows[i].name);
        sn_output("y", rows[i].build(&g));
    }
    if (sn_module_error(g.m)->code) fail_msg("%s", sn_module_error(g.m)->message);
    return g;
}

/* ---- memory ---- */

static char *forbidden; /* HALF inaccessible bytes */
static char *page[MAX_ARGS + 2];
static int n_page;

/* `bytes` of 1.0 or of 0 that end at an inaccessible page. */
static void *room(size_t bytes, sn_dtype t) {
    char *p = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED && bytes <= HALF);
    assert_int_equal(mprotect(p + HALF, HALF, PROT_NONE), 0);
    page[n_page++] = p;
    float *f = (float *)(void *)(p + HALF - bytes);
    for (size_t i = 0; t == SN_F32 && i < bytes / sizeof *f; i++) f[i] = 1;
    return f;
}

static void release_rooms(void) {
    while (n_page) munmap(page[--n_page], 2 * HALF);
}

static int make_forbidden(void **state) {
    forbidden = mmap(NULL, HALF, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return forbidden == MAP_FAILED || scratch_make(state);
}

static size_t shape_of(const sn_node *n, const int64_t *value, int64_t *shape) {
    size_t bytes = sn_dtype_size((sn_dtype)n->dtype);
    for (int i = 0; i < n->rank; i++) {
        shape[i] = sn_dim_eval(n->m, n->shape[i], value);
        bytes *= (size_t)shape[i];
    }
    return bytes;
}

/* ---- in this process ---- */

/* The row's inputs and dims; returns their number. */
static int bind_inputs(const sn_program *p, const row *r, bool good, int64_t value[SYMBOLS],
                       int64_t shape[MAX_ARGS][SN_MAX_RANK], sn_arg_binding *in) {
    const sn_plan *plan = sn_program_entry(p, r->name)->code.plan;
    int n = 0;
    for (int i = 0; i < plan->n_input; i++, n++) {
        const sn_node *node = plan->input[i].node;
        size_t bytes = shape_of(node, value, shape[n]);
        in[n] = (sn_arg_binding){plan->input[i].name, (sn_dtype)node->dtype, node->rank, shape[n],
                                 good ? room(bytes, (sn_dtype)node->dtype) : forbidden};
    }
    for (int i = 0; i < SYMBOLS; i++)
        in[n++] = (sn_arg_binding){symbol_name[i], SN_I64, 0, NULL, &value[i]};
    return n;
}

static void expect_refusal(const row *r, const sn_error *e, int level) {
    sn_code code = strstr(r->why, "2^48") ? SN_ERR_MEMORY : SN_ERR_RANGE;
    if (e->code != code || !strstr(e->message, r->why) || !strstr(e->message, "test_bounds.c:"))
        fail_msg("%s, level %d: code %d: %s", r->name, level, e->code, e->message);
}

static void run_row(sn_program *p, sn_session *s, const row *r, bool good, int level) {
    int64_t value[SYMBOLS], shape[MAX_ARGS][SN_MAX_RANK], out_shape[SN_MAX_RANK];
    sn_arg_binding in[MAX_ARGS + SYMBOLS], out;
    sn_error err = {0}, shape_err = {0};
    const sn_node *y = sn_program_entry(p, r->name)->code.plan->entry->output[0].node;
    values_of(r, good, value);
    int n = bind_inputs(p, r, good, value, shape, in);
    size_t bytes = good ? shape_of(y, value, out_shape) : 0;
    for (int i = 0; i < y->rank && !good; i++) out_shape[i] = 1;
    out =
        (sn_arg_binding){"y", SN_F32, y->rank, out_shape, good ? room(bytes, SN_BOOL) : forbidden};
    bool ran = sn_run(s, r->name, in, n, &out, 1, &err);
    int rank = sn_output_shape(p, r->name, in, n, "y", out_shape, &shape_err);
    if (good && (!ran || rank != y->rank))
        fail_msg("%s, level %d: %s", r->name, level, err.message);
    if (!good && (ran || rank >= 0)) fail_msg("%s, level %d: not refused", r->name, level);
    for (size_t i = 0; good && r->why && i < bytes / sizeof(float); i++)
        assert_true(isfinite(((const float *)out.data)[i]));
    if (!good) {
        expect_refusal(r, &err, level);
        expect_refusal(r, &shape_err, level);
        err = (sn_error){0};
        assert_false(sn_run(s, r->name, in, n, NULL, 0, &err)); /* the output is not bound */
        expect_refusal(r, &err, level);
    }
    release_rooms();
}

static void levels(void **state) {
    (void)state;
    graph g = all_graphs();
    for (int level = 0; level <= 4; level++) {
        sn_error err = {0};
        sn_options o = {.level = level, .threads = 2, .backend = "native"};
        sn_program *p = sn_compile(g.m, &o, &err);
        if (!p) fail_msg("level %d: %s", level, err.message);
        sn_session *s = sn_session_new_arrays(p, NULL, 0, &err);
        if (!s) fail_msg("level %d: %s", level, err.message);
        for (int i = 0; i < ROWS; i++) {
            run_row(p, s, &rows[i], true, level);
            if (rows[i].why) run_row(p, s, &rows[i], false, level);
        }
        sn_session_free(s);
        sn_program_free(p);
    }
    sn_module_free(g.m);
}

/* ---- ahead of time ---- */

static const sn_deployed_entry *entry_of(const sn_deployed *d, const char *name) {
    for (int i = 0; i < d->n_entry; i++)
        if (!strcmp(d->entry[i].name, name)) return &d->entry[i];
    fail_msg("no entry %s", name);
    return NULL;
}

/* The dims that the entry takes, in the module's order. */
static void list_dims(const row *r, bool good, int64_t *list) {
    int64_t value[SYMBOLS];
    values_of(r, good, value);
    for (int i = 0, n = 0; i < SYMBOLS; i++)
        if (strstr(r->dims, symbol_name[i])) list[n++] = value[i];
}

static void call_good(const sn_deployed *d, const sn_deployed_model *m, const row *r,
                      const sn_program *p) {
    const sn_deployed_entry *e = entry_of(d, r->name);
    int64_t value[SYMBOLS], list[SYMBOLS], shape[MAX_ARGS][SN_MAX_RANK];
    sn_arg_binding in[MAX_ARGS + SYMBOLS];
    void *args[MAX_ARGS + SYMBOLS];
    values_of(r, true, value);
    list_dims(r, true, list);
    int n = bind_inputs(p, r, true, value, shape, in) - SYMBOLS;
    for (int i = 0; i < n; i++) args[i] = in[i].data;
    const sn_node *y = sn_program_entry(p, r->name)->code.plan->entry->output[0].node;
    args[n] = room(shape_of(y, value, shape[n]), SN_BOOL);
    int64_t bytes = e->workspace(m, list);
    assert_true(bytes > 0 && bytes <= HALF);
    void *workspace = room((size_t)(bytes + 63) / 64 * 64, SN_BOOL), *states = room(4096, SN_BOOL);
    int32_t code = e->call(m, states, workspace, list, args);
    if (code) fail_msg("%s: %s", r->name, d->message(code));
    release_rooms();
}

static void call_bad(const sn_deployed *d, const sn_deployed_model *m, const row *r) {
    const sn_deployed_entry *e = entry_of(d, r->name);
    int64_t list[SYMBOLS];
    void *args[MAX_ARGS];
    list_dims(r, false, list);
    for (int i = 0; i < MAX_ARGS; i++) args[i] = forbidden;
    int32_t code = e->call(m, forbidden, forbidden, list, args);
    if (code < 256 || !strstr(d->message(code), r->why) ||
        !strstr(d->message(code), "test_bounds.c:"))
        fail_msg("%s: %s", r->name, code ? d->message(code) : "not refused");
    assert_int_equal(e->workspace(m, list), -code);
}

static void artefacts(void **state) {
    (void)state;
    graph g = all_graphs();
    sn_error err = {0};
    sn_options o = {.level = 4, .threads = 1, .backend = "native"};
    sn_program *p = sn_compile(g.m, &o, &err);
    sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
    sn_emit_options eo = sn_emit_options_default();
    eo.name = "bounds";
    eo.dir = scratch_dir;
    eo.program = true;
    if (!s || !sn_emit(s, &eo, &err)) fail_msg("%s", err.message);
    const sn_deployed *d;
    void *lib = artefact_load("bounds", &(artefact_symbol){&d, "sn_deployed_artefact"}, 1);
    sn_deployed_model m;
    assert_int_equal(d->open(&m, scratch_path("bounds.weights")), 0);
    for (int i = 0; i < ROWS; i++) {
        call_good(d, &m, &rows[i], p);
        if (rows[i].why) call_bad(d, &m, &rows[i]);
    }
    d->close(&m);
    dlclose(lib);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(g.m);
}

/* ---- the evaluator ---- */

static bool evaluate(const row *r, bool good, sn_error *err) {
    int64_t value[SYMBOLS], shape[SN_MAX_RANK];
    graph g = new_graph();
    sn_entry_begin(g.m, r->name);
    sn_output("y", r->build(&g));
    values_of(r, good, value);
    sn_eval *ev = sn_eval_new(g.m, value);
    sn_entry *e = sn_entry_get(g.m, r->name);
    sn_order order = sn_entry_topo(g.m, e);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (n->op != SN_OP_input && n->op != SN_OP_state) continue;
        sn_eval_bind(ev, sn_attr_str(n, SN_A_name, ""), room(shape_of(n, value, shape), SN_BOOL),
                     shape_of(n, value, shape));
    }
    bool ok = sn_eval_node(ev, e->output[0].node) != NULL;
    for (int i = 0; ok && i < e->n_assign; i++) ok = sn_eval_node(ev, e->assign[i].node) != NULL;
    *err = *sn_module_error(g.m);
    sn_eval_free(ev);
    sn_module_free(g.m);
    release_rooms();
    return ok;
}

static void evaluator(void **state) {
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        sn_error err;
        if (!evaluate(&rows[i], true, &err)) fail_msg("%s: %s", rows[i].name, err.message);
        if (rows[i].why && evaluate(&rows[i], false, &err))
            fail_msg("%s: not refused", rows[i].name);
    }
}

/* ---- when the graph is built ---- */

static void always_wrong(void **state) {
    (void)state;
    graph g = new_graph();
    sn_tensor s = sn_state(g.m, "s", SN_F32, 8), y = sn_input(g.m, "y", SN_F32, 1);
    assert_int_equal(sn_module_error(g.m)->code, 0);
    sn_dim start[] = {less(&g, N, 11)}; /* N is at most 10 */
    sn_node_new(g.m, SN_OP_update_slice, 2, (sn_node *[]){s, y},
                SN_ATTRS(SN_LIST(start, 1, start)));
    assert_int_equal(sn_module_error(g.m)->code, SN_ERR_SHAPE);
    if (!strstr(sn_module_error(g.m)->message, "the start N-11 on axis 0 is negative"))
        fail_msg("%s", sn_module_error(g.m)->message);
    sn_module_free(g.m);
}

/* The number of operands has 16 bits. */
static void many_operands(void **state) {
    (void)state;
    for (int extra = 0; extra < 3; extra++) {
        graph g = new_graph();
        int n = UINT16_MAX + extra;
        sn_tensor x = sn_input(g.m, "x", SN_F32, 1), *list = malloc(sizeof(sn_tensor) * (size_t)n);
        for (int i = 0; i < n; i++) list[i] = x;
        sn_node *y = sn_b_concat(g.m, n, list, 0);
        assert_int_equal(sn_module_error(g.m)->code, extra ? SN_ERR_USAGE : 0);
        if (!extra) assert_true(y->n_in == UINT16_MAX && y->shape[0] == UINT16_MAX);
        free(list);
        sn_module_free(g.m);
    }
}

static sn_node *leaf(sn_module *m, const char *name, const sn_dim *shape) {
    return sn_node_new(
        m, SN_OP_input, 0, NULL,
        SN_ATTRS(SN_STR(name, name), SN_INT(dtype, SN_F32), SN_LIST(shape, 4, shape)));
}

static void large_kernels(void **state) {
    (void)state;
    static const int64_t size[] = {65536, 65535, 3}, dilate[] = {1, INT64_MAX / 2, INT64_MAX};
    static const char *const why[] = {"maximum is 65535", "too large", "too large"};
    for (int i = 0; i < 3; i++) {
        graph g = new_graph();
        sn_dim x[] = {1, 1, 1, (sn_dim)1 << 20}, w[] = {1, 1, 1, size[i]};
        sn_node *in[] = {leaf(g.m, "x", x), leaf(g.m, "w", w)};
        int64_t d[] = {1, dilate[i]};
        sn_node_new(g.m, SN_OP_conv2d, 2, in, SN_ATTRS(SN_LIST(dilate, 2, d)));
        if (!strstr(sn_module_error(g.m)->message, why[i]))
            fail_msg("%d: %s", i, sn_module_error(g.m)->message);
        sn_module_free(g.m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),        cmocka_unit_test(artefacts),
        cmocka_unit_test(evaluator),     cmocka_unit_test(always_wrong),
        cmocka_unit_test(many_operands), cmocka_unit_test(large_kernels),
    };
    return cmocka_run_group_tests(tests, make_forbidden, scratch_end);
}
