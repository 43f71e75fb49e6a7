/* graph_case.c: compiles a graph for every level and back end, binds random data, compares results
 * with the reference evaluator, and passes the variants to measure.c for timing. */
#include "bench/graph_case.h"
#include "bench/peers.h"
#include "bench/probe.h"
#include "codegen/program/calls.h"
#include "ir/lookups.h"
#include "passes/cache.h"
#include "runtime/clock.h"
#include "runtime/memory.h"
#include "runtime/threads.h"
#include "runtime/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIANTS = 32, MAX_LEAVES = 1024, MAX_IO = 32, MAX_SYMBOLS = 16, DOCUMENT = 300 };

typedef struct leaf {
    sn_arg_binding arg; /* shape and data are owned by this file */
    int64_t shape[SN_MAX_RANK], n;
} leaf;

/* The data of a run at one choice of sizes. */
typedef struct problem {
    int64_t symbol[MAX_SYMBOLS];
    leaf in[MAX_IO], out[MAX_IO];
    int n_in, n_out;
    int64_t dim[MAX_SYMBOLS];
    sn_arg_binding in_arg[MAX_IO + MAX_SYMBOLS], out_arg[MAX_IO];
    int n_in_arg;
} problem;

typedef struct graph_case graph_case;
typedef struct variant {
    const graph_case *c;
    sn_module *m;
    sn_program *program;
    sn_session *session;
    int n_call; /* of kernels in a run */
} variant;

struct graph_case {
    const sn_bench_options *o;
    const sn_bench_graph *g;
    sn_bench_report *out;
    sn_module *ref; /* never compiled: provides shapes and input for the evaluator */
    leaf *param;
    int n_param;
    sn_arg_binding *param_arg;
    problem timed, checked;
    double *want[MAX_IO]; /* the evaluator's results for the reduced problem */
    variant variant[MAX_VARIANTS];
    sn_bench_entrant entrant[2 * MAX_VARIANTS + SN_BENCH_MAX_PEERS];
    int n_variant, n_requested, n; /* requested: those before the ones in f32 */
};

/* ---- data ---- */

/* Matrices are scaled so that results have the magnitude of their operands; gains are near 1,
 * biases near 0. */
static void fill_floats(const leaf *l, float *p, bool param, int stream) {
    float width = 1, centre = 0;
    if (param && l->arg.rank >= 2) width = (float)sqrt(3.0 / (double)l->shape[l->arg.rank - 1]);
    if (param && l->arg.rank < 2) {
        width = 0.1f;
        centre = sn_ends_with(l->arg.name, "bias") ? 0 : 1;
    }
    const sn_rng rng = {.seed = 1, .stream = SN_STREAM_INIT, .step = (uint32_t)stream};
    sn_threads_fill(&rng, sn_rng_fill_uniform, centre - width, centre + width, p, l->n);
}

static int64_t position(int64_t i) {
    return i;
}
static int64_t document(int64_t i) {
    return i / DOCUMENT;
}
static int64_t nothing(int64_t i) {
    (void)i;
    return 0;
}
static int64_t one(int64_t i) {
    (void)i;
    return 1;
}
static int64_t everything(int64_t i) {
    (void)i;
    return 1 << 30;
}

/* Integer inputs that are not random ids. */
static const struct {
    const char *name;
    int64_t (*value)(int64_t i);
} fillings[] = {{"pos", position},
                {"doc", document},
                {"types", nothing},
                {"lengths", everything},
                {"attention_mask", one}};

static void fill_integers(const leaf *l, int64_t limit) {
    const bool wide = l->arg.dtype == SN_I64;
    int64_t (*value)(int64_t) = NULL;
    for (size_t i = 0; i < sizeof fillings / sizeof *fillings; i++)
        if (!strcmp(l->arg.name, fillings[i].name)) value = fillings[i].value;
    uint32_t x = 12345;
    for (int64_t i = 0; i < l->n; i++) {
        x = x * 1664525u + 1013904223u;
        int64_t v = value ? value(i) : (int64_t)((x >> 8) % (uint64_t)limit);
        if (wide)
            ((int64_t *)l->arg.data)[i] = v;
        else
            ((int32_t *)l->arg.data)[i] = (int32_t)v;
    }
}

bool sn_bench_truth(int64_t i) {
    return (uint32_t)((uint64_t)i * 2654435761u) >> 30 != 0;
}

static bool make_leaf(leaf *l, const char *name, const sn_node *n, const int64_t *symbol,
                      sn_error *err) {
    l->n = 1;
    for (int a = 0; a < n->rank; a++) l->n *= l->shape[a] = sn_dim_eval(n->m, n->shape[a], symbol);
    sn_dtype t = (sn_dtype)n->dtype;
    size_t bytes = (size_t)l->n * sn_dtype_size(t);
    void *data = sn_memory_alloc(bytes + 64);
    if (!data)
        return sn_fail(err, SN_ERR_MEMORY, "out of memory: the bench needs %zu MB for '%s'",
                       bytes >> 20, name);
    memset(data, 0, bytes);
    l->arg = (sn_arg_binding){name, t, n->rank, l->shape, data};
    return true;
}

/* limit: of integers, as far as tables that they index have one; 0: none. */
static bool fill_leaf(graph_case *c, leaf *l, bool param, int64_t limit, int stream,
                      sn_error *err) {
    if (l->arg.dtype == SN_F32) {
        fill_floats(l, l->arg.data, param, stream);
        return true;
    }
    if (l->arg.dtype == SN_I32 || l->arg.dtype == SN_I64) {
        /* seed and step of the random generator are 0 */
        bool ids = l->arg.dtype == SN_I32 && c->g->id_limit > 0;
        fill_integers(l, limit ? limit : ids ? c->g->id_limit : 1);
        return true;
    }
    if (l->arg.dtype == SN_BOOL) {
        for (int64_t i = 0; i < l->n; i++) ((uint8_t *)l->arg.data)[i] = sn_bench_truth(i);
        return true;
    }
    if (sn_dtype_size(l->arg.dtype) == 1) { /* quantised weights */
        for (int64_t i = 0; i < l->n; i++)
            ((uint8_t *)l->arg.data)[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
        return true;
    }
    return sn_fail(err, SN_ERR_INTERNAL, "bench: no rule fills the type of '%s'", l->arg.name);
}

static bool make_params(graph_case *c, sn_order order, sn_error *err) {
    c->param = calloc((size_t)order.n + 1, sizeof *c->param);
    c->param_arg = calloc((size_t)order.n + 1, sizeof *c->param_arg);
    if (!c->param || !c->param_arg) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (n->op != SN_OP_param) continue;
        leaf *l = &c->param[c->n_param++];
        if (!make_leaf(l, sn_attr_str(n, SN_A_name, ""), n, NULL, err) ||
            !fill_leaf(c, l, true, 0, 1 + c->n_param, err))
            return false;
        c->param_arg[c->n_param - 1] = l->arg;
    }
    return true;
}

static bool make_problem(graph_case *c, problem *p, bool checked, sn_order order, sn_error *err) {
    const sn_bench_graph *g = c->g;
    const sn_entry *e = sn_entry_get(c->ref, g->entry);
    for (int i = 0; i < g->n_size; i++) {
        int s = sn_symbol_find(c->ref, g->size[i].name);
        int64_t v = checked ? g->size[i].checked : g->size[i].timed;
        if (s < 0 || s >= MAX_SYMBOLS) continue; /* this entry does not have the symbol */
        p->symbol[s] = p->dim[i] = v;
    }
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (n->op != SN_OP_input) continue;
        if (p->n_in == MAX_IO) return sn_fail(err, SN_ERR_INTERNAL, "bench: too many inputs");
        leaf *l = &p->in[p->n_in++];
        if (!make_leaf(l, sn_attr_str(n, SN_A_name, ""), n, p->symbol, err) ||
            !fill_leaf(c, l, false, sn_input_limit(c->ref, e, n, p->symbol), 1000 + p->n_in, err))
            return false;
        p->in_arg[p->n_in - 1] = l->arg;
    }
    p->n_in_arg = p->n_in;
    for (int i = 0; i < g->n_size; i++)
        if (sn_symbol_find(c->ref, g->size[i].name) >= 0)
            p->in_arg[p->n_in_arg++] =
                (sn_arg_binding){.name = g->size[i].name, .dtype = SN_I64, .data = &p->dim[i]};
    for (int i = 0; i < e->n_output && i < MAX_IO; i++) {
        if (!make_leaf(&p->out[p->n_out++], e->output[i].name, e->output[i].node, p->symbol, err))
            return false;
        p->out_arg[i] = p->out[i].arg;
    }
    return true;
}

static void free_problem(problem *p) {
    for (int i = 0; i < p->n_in; i++) free(p->in[i].arg.data);
    for (int i = 0; i < p->n_out; i++) free(p->out[i].arg.data);
}

/* ---- counting ---- */

/* Skips transposes, reshapes and other views. */
static const sn_node *base_of(const sn_node *n) {
    while (n->n_in == 1 && (sn_ops[n->op].flags & SN_OPF_VIEW)) n = n->in[0];
    return n;
}

static double bytes_of(const graph_case *c, const sn_node *n) {
    double bytes = (double)sn_dtype_size((sn_dtype)n->dtype);
    for (int a = 0; a < n->rank; a++)
        bytes *= (double)sn_dim_eval(n->m, n->shape[a], c->timed.symbol);
    return bytes;
}

sn_dtype sn_bench_factors(const sn_bench_options *o) {
    if (!o->compute || !strcmp(o->compute, "f32")) return SN_F32;
    return !strcmp(o->compute, "int8") ? SN_I8 : SN_BF16;
}

const char *sn_bench_peer_compute(const sn_bench_options *o) {
    const sn_dtype t = sn_bench_factors(o);
    return t == SN_BF16 ? ", \"compute\": \"bf16\"" : t == SN_I8 ? ", \"compute\": \"int8\"" : "";
}

double sn_bench_storage(const char *weights) {
    static const struct {
        const char *name;
        double part;
    } kinds[] = {{"bf16", 0.5}, {"int8", 0.25}, {"int4", 0.125 + 1 / 64.0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (weights && !strcmp(weights, kinds[i].name)) return kinds[i].part;
    return 1;
}

/* Is n the weight w of a linear map, or one of the weights that make it up? */
static bool is_part_of(const sn_node *w, const sn_node *n) {
    w = base_of(w);
    for (int i = 0; i < w->n_in && w->op == SN_OP_concat; i++)
        if (base_of(w->in[i]) == n) return true;
    return w == n;
}

/* The part of a product that is needed if blocks of it are selected (experts): of each row, or of
 * all rows together, which may need different blocks. */
static double selected_part(sn_order order, const sn_node *product, const int64_t *symbol,
                            bool all_rows) {
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (n->op != SN_OP_take_blocks || n->in[0] != product) continue;
        const sn_node *index = n->in[1];
        double count = 1, blocks = (double)sn_attr_int(n, SN_A_blocks, 1);
        for (int a = all_rows ? 0 : index->rank - 1; a < index->rank; a++)
            count *= (double)sn_dim_eval(n->m, index->shape[a], symbol);
        return count < blocks ? count / blocks : 1;
    }
    return 1;
}

/* Whether the variants store this state in fewer bits. */
static bool is_narrow_cache(const graph_case *c, const sn_node *n) {
    int count;
    const sn_node *const *list = sn_cache_states(n->m, &count);
    for (int i = 0; i < count; i++)
        if (list[i] == n) return c->o->cache && sn_cache_knows(c->o->cache);
    return false;
}

/* Rows of a state that a step reads: the used ones of a cache [.., capacity, d], all of a smaller state,
 * such as the carry of a recurrence. Without a dimension P: all. */
static int64_t used_rows(const graph_case *c, const sn_node *n) {
    int past = sn_symbol_find(n->m, "P");
    int64_t rows = n->shape[n->rank - 2], used = past < 0 ? rows : c->timed.symbol[past] + 1;
    return used < rows ? used : rows;
}

/* Bytes read for leaf i of the order. A table that is only gathered from counts with the rows read;
 * the weight of a linear map as it is stored. */
static double leaf_bytes(const graph_case *c, sn_order order, int i) {
    const sn_node *n = order.node[i];
    double whole = bytes_of(c, n), rows = 0, weight = 0;
    bool other = false;
    if (n->op == SN_OP_state) {
        if (is_narrow_cache(c, n)) whole = sn_cache_bytes(n, c->o->cache);
        if (n->rank < 2) return whole;
        return whole * (double)used_rows(c, n) / (double)n->shape[n->rank - 2];
    }
    for (int j = i + 1; j < order.n; j++) {
        const sn_node *user = order.node[j];
        for (int k = 0; k < user->n_in; k++) {
            bool linear = user->op == SN_OP_linear && k == 1;
            if (linear && is_part_of(user->in[k], n))
                weight = whole * sn_bench_storage(c->o->weights) *
                         selected_part(order, user, c->timed.symbol, true);
            else if (user->in[k] != n || (sn_ops[user->op].flags & SN_OPF_VIEW))
                continue;
            else if (k == 0 && (user->op == SN_OP_embedding || user->op == SN_OP_gather))
                rows += bytes_of(c, user);
            else
                other = true;
        }
    }
    if (other || (!weight && !rows)) return whole;
    return weight + (rows < whole ? rows : whole);
}

/* Compulsory traffic in bytes: inputs, parameters and caches once, results once. */
static void count_bytes(const graph_case *c, sn_order order, double *read, double *write) {
    *read = *write = 0;
    for (int i = 0; i < c->timed.n_out; i++)
        *write += (double)c->timed.out[i].n * (double)sn_dtype_size(c->timed.out[i].arg.dtype);
    for (int i = 0; i < order.n; i++) {
        if (sn_ops[order.node[i]->op].flags & SN_OPF_EXTERNAL) *read += leaf_bytes(c, order, i);
    }
}

/* "B=1,T=256": the timed sizes of the module's dimensions. */
static const char *timed_sizes(const graph_case *c, sn_module *m, char *text, size_t size) {
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; m && i < c->g->n_size && at < size; i++)
        if (sn_symbol_find(m, c->g->size[i].name) >= 0)
            at += (size_t)snprintf(text + at, size - at, "%s%s=%lld", at ? "," : "",
                                   c->g->size[i].name, (long long)c->g->size[i].timed);
    return text;
}

/* What the kernel calls of the program compute, read and write, as `sinter explain` counts it. Returns
 * their number, -1 on error. */
static int count_calls(const graph_case *c, const sn_program *p, double *flop, double *bytes,
                       sn_error *err) {
    const sn_kernel_call *call;
    char sizes[256];
    timed_sizes(c, p->m, sizes, sizeof sizes);
    int n = sn_program_calls_on(p, c->g->entry, sizes, c->timed.in_arg, c->timed.n_in, &call, err);
    *flop = *bytes = 0;
    for (int i = 0; i < n; i++) *flop += call[i].flops, *bytes += call[i].bytes;
    return n;
}

/* FLOP that the result requires: those of the kernels with everything fused. */
static bool count_flop(const graph_case *c, double *flop, sn_error *err) {
    double bytes;
    sn_module *m = c->g->build(c->g->spec, err);
    sn_options o = sn_options_default();
    o.plan_only = true;
    o.threads = sn_bench_threads(c->o);
    sn_program *p = m ? sn_compile(m, &o, err) : NULL;
    bool ok = p && count_calls(c, p, flop, &bytes, err) >= 0;
    sn_program_free(p);
    if (m) sn_module_free(m);
    return ok;
}

/* ---- errors ---- */

static bool evaluate(graph_case *c, sn_order order, sn_error *err) {
    sn_eval *ev = sn_eval_new(c->ref, c->checked.symbol);
    if (!ev) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    bool ok = true;
    for (int i = 0; i < c->n_param && ok; i++)
        ok = sn_eval_bind(ev, c->param[i].arg.name, c->param[i].arg.data,
                          (size_t)c->param[i].n * sn_dtype_size(c->param[i].arg.dtype));
    for (int i = 0; i < c->checked.n_in && ok; i++) {
        const leaf *l = &c->checked.in[i];
        ok = sn_eval_bind(ev, l->arg.name, l->arg.data, (size_t)l->n * sn_dtype_size(l->arg.dtype));
    }
    for (int i = 0; i < order.n && ok; i++) { /* states are zero */
        if (order.node[i]->op != SN_OP_state) continue;
        leaf l = {0};
        const char *name = sn_attr_str(order.node[i], SN_A_name, "");
        ok = make_leaf(&l, name, order.node[i], c->checked.symbol, err) &&
             sn_eval_bind(ev, name, l.arg.data, (size_t)l.n * sn_dtype_size(l.arg.dtype));
        free(l.arg.data);
    }
    const sn_entry *e = sn_entry_get(c->ref, c->g->entry);
    for (int i = 0; i < c->checked.n_out && ok; i++) {
        const sn_value *v = sn_eval_node(ev, e->output[i].node);
        c->want[i] = v ? malloc(sizeof(double) * (size_t)(v->n + 1)) : NULL;
        ok = c->want[i] != NULL;
        if (ok) memcpy(c->want[i], v->data, sizeof(double) * (size_t)v->n);
    }
    sn_eval_free(ev);
    if (!ok)
        sn_fail(err, SN_ERR_INTERNAL, "bench: the evaluator: %s",
                sn_module_error(c->ref)->code ? sn_module_error(c->ref)->message
                                              : "cannot bind its inputs");
    return ok;
}

/* One unit in the last place of f32 at x. */
static double ulp_at(double x) {
    int e = x == 0 ? -126 : ilogb(x);
    return ldexp(1, (e < -126 ? -126 : e) - 23);
}

static void compare(const graph_case *c, sn_bench_entrant *e) {
    double diff = 0, size = 0, worst = 0, ulp = 0, count = 0;
    for (int o = 0; o < c->checked.n_out; o++) {
        const leaf *l = &c->checked.out[o];
        if (l->arg.dtype != SN_F32) continue;
        const float *got = l->arg.data;
        for (int64_t i = 0; i < l->n; i++) {
            double want = c->want[o][i], d = fabs((double)got[i] - want);
            d = sn_bench_worse(0, d);
            diff += d * d, size += want * want, count++;
            worst = fmax(worst, d);
            ulp = fmax(ulp, d / ulp_at(want));
        }
    }
    e->rel_rms = sqrt(diff / (size > 0 ? size : 1));
    e->max_rel = worst / sqrt(size > 0 ? size / count : 1);
    e->max_ulp = ulp;
}

/* ---- variants ---- */

static bool run_variant(const variant *v, const problem *p, sn_error *err) {
    return sn_run(v->session, v->c->g->entry, p->in_arg, p->n_in_arg, p->out_arg, p->n_out, err);
}

static bool repeat_variant(const variant *v, int repeats, sn_error *err) {
    for (int i = 0; i < repeats; i++)
        if (!run_variant(v, &v->c->timed, err)) return false;
    return true;
}

static bool time_variant(void *ctx, int repeats, double *seconds, sn_error *err) {
    const variant *v = ctx;
    int runs = repeats ? repeats : 1;
    if (repeats && !repeat_variant(v, 1, err)) return false;
    double start = sn_clock();
    if (!repeat_variant(v, runs, err)) return false;
    *seconds = (sn_clock() - start) / runs;
    return true;
}

/* The same, but only from the begin to the end of each kernel call. */
static bool time_kernels(void *ctx, int repeats, double *seconds, sn_error *err) {
    const variant *v = ctx;
    int runs = repeats ? repeats : 1;
    size_t events = (size_t)runs * (size_t)v->n_call * (size_t)sn_bench_threads(v->c->o);
    double *call = calloc((size_t)v->n_call + 1, sizeof *call);
    if (!call) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    bool ok = !repeats || repeat_variant(v, 1, err);
    sn_trace *t = ok ? sn_trace_begin(v->session, v->c->g->entry, events, err) : NULL;
    ok = t && repeat_variant(v, runs, err);
    if (ok) sn_trace_seconds(t, call, v->n_call);
    *seconds = 0;
    for (int i = 0; i < v->n_call; i++) *seconds += call[i];
    sn_trace_end(t);
    free(call);
    return ok;
}

static size_t workspace_of(const void *ctx) {
    return sn_session_workspace(((const variant *)ctx)->session);
}

/* Adds the used part of a state, one block per head; without a list it only counts. */
static int add_state(const variant *v, const sn_node *n, sn_probe_block *list) {
    int count = 1;
    if (sn_symbol_find(n->m, "P") < 0 || n->rank < 2) return 0;
    int64_t element = (int64_t)sn_dtype_size((sn_dtype)n->dtype);
    if (is_narrow_cache(v->c, n)) element = strcmp(v->c->o->cache, "int8") ? 2 : 1;
    int64_t row = n->shape[n->rank - 1] * element;
    for (int a = 0; a < n->rank - 2; a++) count *= (int)n->shape[a];
    const char *data = sn_session_memory(v->session, sn_attr_str(n, SN_A_name, ""));
    for (int i = 0; list && data && i < count; i++)
        list[i] = (sn_probe_block){data + i * n->shape[n->rank - 2] * row,
                                   (size_t)(used_rows(v->c, n) * row)};
    return data ? count : 0;
}

/* Packed weights and caches. */
static int memory_of(const void *ctx, sn_probe_block **list) {
    const variant *v = ctx;
    sn_order order = sn_entry_topo(v->c->ref, sn_entry_get(v->c->ref, v->c->g->entry));
    for (int n = 0, pass = 0;; pass++) { /* the first pass counts */
        sn_probe_block *to = pass ? *list : NULL;
        const void *data;
        size_t bytes;
        for (n = 0; (data = sn_session_prepared(v->session, n, &bytes)); n++)
            if (to) to[n] = (sn_probe_block){data, bytes};
        for (int i = 0; i < order.n; i++)
            if (order.node[i]->op == SN_OP_state)
                n += add_state(v, order.node[i], to ? to + n : NULL);
        if (pass) return n;
        *list = malloc(sizeof **list * ((size_t)n + 1));
        if (!*list) return -1;
    }
}

static bool check_variant(graph_case *c, variant *v, sn_bench_entrant *e, sn_error *err) {
    e->rel_rms = e->max_ulp = e->max_rel = NAN;
    if (!c->g->check || !c->o->check) return true;
    if (!run_variant(v, &c->checked, err)) return false;
    sn_session_reset(v->session);
    compare(c, e);
    size_t at = 0;
    for (int i = 0; i < c->g->n_size && at < sizeof e->checked; i++)
        at += (size_t)snprintf(e->checked + at, sizeof e->checked - at, "%s%s=%lld", i ? " " : "",
                               c->g->size[i].name, (long long)c->g->size[i].checked);
    return true;
}

static void show_tuning(void *ctx, const char *line) {
    const graph_case *c = ctx;
    if (*line) sn_bench_progress(c->o, "%s", line);
}

/* Back ends that can be requested; `tuned`: the name of the variant that chooses by measurement,
 * beside one that does not. `wide`: in f32, beside products of fewer bits; `free`: beside one that is invariant.
 * `kernels`: the name of the time in kernels alone. */
static const struct back_end {
    const char *name, *tuned, *wide, *free, *kernels;
} back_ends[] = {{.name = "native", .tuned = "native-tuned", .kernels = "native-kernels"},
                 {.name = "onednn"},
                 {.name = "auto", .tuned = "auto-tuned"}},
  native_f32 = {.name = "native", .wide = "native-f32"},
  native_free = {.name = "native", .free = "native-free"};

static bool add_variant(graph_case *c, int level, const struct back_end *b, bool tuned,
                        sn_error *err) {
    if (c->n_variant == MAX_VARIANTS)
        return sn_fail(err, SN_ERR_USAGE, "bench: more than %d levels and back ends", MAX_VARIANTS);
    const char *backend = b->name;
    variant *v = &c->variant[c->n_variant];
    sn_bench_entrant *e = &c->entrant[c->n];
    *v = (variant){.c = c, .m = c->g->build(c->g->spec, err)};
    c->n_variant++;
    sn_options o = sn_options_default();
    o.level = level;
    o.backend = backend;
    o.threads = sn_bench_threads(c->o);
    o.target = c->o->target;
    o.weights = b->wide ? NULL : c->o->weights;
    o.compute = b->wide ? NULL : c->o->compute;
    o.cache = c->o->cache;
    o.precision = c->o->precision;
    o.invariant = b->free ? NULL : c->o->invariant;
    o.cache_dir = c->o->cache_dir;
    if (c->o->tune && !tuned) o.cache_dir = ""; /* an empty cache has no tuned choices */
    o.tune = tuned;
    char sizes[256];
    o.tune_sizes = timed_sizes(c, v->m, sizes, sizeof sizes);
    o.progress = show_tuning;
    o.progress_ctx = c;
    sn_bench_progress(c->o, "%s %s %s: compiling %s level %d", c->g->kind, c->g->name, c->g->shape,
                      backend, level);
    v->program = v->m ? sn_compile(v->m, &o, err) : NULL;
    if (!v->program) return false;
    if (!strcmp(backend, "onednn") && !sn_program_stats(v->program).onednn) {
        sn_bench_note(c->out, "onednn skipped for %s at level %d: no kernel uses it", c->g->name,
                      level);
        return true;
    }
    v->session = sn_session_new_arrays(v->program, c->param_arg, c->n_param, err);
    if (!v->session) return false;
    double flop, traffic;
    v->n_call = count_calls(c, v->program, &flop, &traffic, err);
    if (v->n_call < 0) return false;
    *e = (sn_bench_entrant){.level = level,
                            .dtype = b->wide ? "f32" : NULL,
                            .traffic = traffic,
                            .time = time_variant,
                            .ctx = v,
                            .workspace = workspace_of,
                            .memory = memory_of,
                            .compile_ms = sn_program_stats(v->program).seconds * 1e3};
    e->backend = tuned ? b->tuned : b->wide ? b->wide : b->free ? b->free : b->name;
    c->n++;
    if (!check_variant(c, v, e, err)) return false;
    if (c->o->direct && b->kernels && !tuned) {
        sn_bench_entrant *alone = &c->entrant[c->n++];
        *alone = *e;
        alone->backend = b->kernels;
        alone->time = time_kernels;
    }
    return true;
}

static bool add_variants(graph_case *c, sn_error *err) {
    for (size_t i = 0; i < sizeof back_ends / sizeof *back_ends; i++) {
        const struct back_end *b = &back_ends[i];
        if (!sn_bench_listed(c->o->backends, b->name)) continue;
        for (int l = 0; l <= 4; l++) {
            if (!(c->o->levels >> l & 1)) continue;
            if (!add_variant(c, l, b, false, err)) return false;
            if (c->o->tune && b->tuned && !add_variant(c, l, b, true, err)) return false;
        }
    }
    c->n_requested = c->n_variant;
    const struct back_end *const beside[] = {sn_bench_factors(c->o) != SN_F32 ? &native_f32 : NULL,
                                             c->o->invariant && *c->o->invariant ? &native_free
                                                                                 : NULL};
    for (int i = 0; i < 2; i++)
        for (int l = 0; l <= 4 && beside[i]; l++)
            if (c->o->levels >> l & 1 && !add_variant(c, l, beside[i], false, err)) return false;
    return true;
}

static void release(graph_case *c) {
    for (int i = 0; i < c->n_variant; i++) {
        sn_session_free(c->variant[i].session);
        sn_program_free(c->variant[i].program);
        sn_module_free(c->variant[i].m);
    }
    for (int i = 0; i < c->n_param; i++) free(c->param[i].arg.data);
    for (int i = 0; i < MAX_IO; i++) free(c->want[i]);
    free_problem(&c->timed);
    free_problem(&c->checked);
    free(c->param);
    free(c->param_arg);
    sn_module_free(c->ref);
    free(c);
}

/* Profiles the kernels in a few more runs of the last variant that was asked for, not of the one in f32
 * beside it, so that tracing does not disturb the timing. */
static bool profile_last(graph_case *c, sn_error *err) {
    enum { RUNS = 5, EVENTS = 1 << 18 };
    const char *path = c->o->profile;
    variant *v = c->n_requested ? &c->variant[c->n_requested - 1] : NULL;
    if (!path || !v || !v->session) return true;
    sn_trace *t = sn_trace_begin(v->session, NULL, EVENTS, err);
    double seconds;
    bool ok = t && time_variant(v, RUNS, &seconds, err) && sn_trace_write(t, path, err);
    sn_trace_end(t);
    return ok;
}

static bool run_case(graph_case *c, const char *request, const sn_bench_entrant *more, int n_more,
                     sn_error *err) {
    const sn_bench_graph *g = c->g;
    c->ref = g->build(g->spec, err);
    if (!c->ref) return false;
    const sn_entry *e = sn_entry_get(c->ref, g->entry);
    if (!e) return sn_fail(err, SN_ERR_INTERNAL, "bench: no entry '%s'", g->entry);
    if (sn_symbol_count(c->ref) > MAX_SYMBOLS || g->n_size > MAX_SYMBOLS)
        return sn_fail(err, SN_ERR_INTERNAL, "bench: too many symbolic dimensions");
    sn_order order = sn_entry_topo(c->ref, e);
    if (!make_params(c, order, err) || !make_problem(c, &c->timed, false, order, err)) return false;
    if (g->check && c->o->check) {
        sn_bench_progress(c->o, "%s %s %s: the evaluator", g->kind, g->name, g->shape);
        if (!make_problem(c, &c->checked, true, order, err) || !evaluate(c, order, err))
            return false;
    }
    if (!add_variants(c, err)) return false;
    const sn_dtype factors = sn_bench_factors(c->o);
    sn_bench_work w = {.kind = g->kind,
                       .name = g->name,
                       .shape = g->shape,
                       .dtype = factors == SN_I8     ? "int8 x int8"
                                : factors == SN_BF16 ? "bf16 x bf16"
                                : c->o->precision    ? c->o->precision
                                : c->o->weights      ? c->o->weights
                                                     : "f32",
                       .flop = g->flop,
                       .read = g->bytes[0],
                       .write = g->bytes[1],
                       .tokens = g->tokens,
                       .runs = g->runs > 0 ? g->runs : 1};
    if (w.flop < 0 && !count_flop(c, &w.flop, err)) return false;
    if (w.read < 0) count_bytes(c, order, &w.read, &w.write);
    for (int i = 0; i < n_more && c->n < 2 * MAX_VARIANTS; i++) c->entrant[c->n++] = more[i];
    if (request)
        c->n += sn_bench_peers_enter(c->o->started, request, c->entrant + c->n, c->out);
    else if (c->o->started)
        sn_bench_note(c->out, "no peer computes %s: there is no row of one", g->name);
    return sn_bench_measure(c->o, &w, c->entrant, c->n, c->out, err) && profile_last(c, err);
}

bool sn_bench_graph_run(const sn_bench_options *o, const sn_bench_graph *g,
                        const char *peer_request, const sn_bench_entrant *more, int n_more,
                        sn_bench_report *out, sn_error *err) {
    if (sn_bench_only_counts(o)) return true;
    graph_case *c = calloc(1, sizeof *c);
    if (!c) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    c->o = o;
    c->g = g;
    c->out = out;
    bool ok = run_case(c, peer_request, more, n_more, err);
    release(c);
    if (o->total) o->total->done++;
    return ok;
}
