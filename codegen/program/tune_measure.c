/* tune_measure.c: finds the fastest of several candidates that compute the same result. Candidates
 * are the tiles of one kernel, run alone on private memory, or the implementations of a GEMM with
 * its epilogue or of a composite, each compiled as a separate program. The candidates run in
 * alternation, so that other load on the machine affects all of them alike. The winner must win a
 * second trial. */
#include "codegen/program/tune.h"
#include "passes/graph_util.h"
#include "runtime/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, MIN_ROUNDS = 3, MAX_CANDIDATES = 8 };
static const double MIN_SAMPLE = 2e-3;  /* seconds per candidate and round, at least */
static const double MAX_SECONDS = 1;    /* seconds for all rounds, once MIN_ROUNDS are done */
static const double MAX_SLOWDOWN = 1.5; /* candidates slower than this times candidate 0 are dropped
                                           after the screening */
static const double MAX_BYTES = 2e9;

/* ---- sizes ---- */

bool sn_tuner_may_run(const sn_tuner *t, const int64_t *symbol, sn_error *err) {
    for (int i = 0; i < t->n_entry; i++)
        for (int k = 0; k < t->entry[i].n_range; k++)
            if (!sn_range_holds(&t->entry[i].range[k], "tune sizes", symbol, err)) return false;
    return true;
}

sn_bucket sn_tune_bucket(int64_t v) {
    int64_t from = 1;
    while (from <= v / 2) from *= 2;
    return v ? (sn_bucket){from, from - 1 + from} : (sn_bucket){0, 0};
}

/* ---- the trial ---- */

typedef struct trial_run {
    bool (*run)(void *ctx, int candidate, sn_error *err);
    void *ctx;
    bool usable[MAX_CANDIDATES]; /* the candidate exists and is correct */
    int repeats[MAX_CANDIDATES];
    sn_error *err;
} trial_run;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool time_candidate(const trial_run *r, int candidate, int repeats, double *seconds) {
    double start = sn_clock();
    for (int i = 0; i < repeats; i++)
        if (!r->run(r->ctx, candidate, r->err)) return false;
    *seconds = (sn_clock() - start) / repeats;
    return true;
}

/* gain[w]: time of candidate 0 divided by the time of candidate w. This is the median ratio over
 * the rounds, or the ratio of the shortest times if that is smaller: other load lengthens some
 * times, but seldom all of them. */
static bool run_rounds(const trial_run *r, int n, double *gain) {
    double time[MAX_CANDIDATES][ROUNDS] = {{0}}, start = sn_clock();
    int rounds = 0;
    for (; rounds < ROUNDS && (rounds < MIN_ROUNDS || sn_clock() - start < MAX_SECONDS); rounds++)
        for (int i = 0; i < n; i++) {
            int w = (i + rounds) % n;
            if (r->usable[w] && !time_candidate(r, w, r->repeats[w], &time[w][rounds]))
                return false;
        }
    double shortest[MAX_CANDIDATES];
    for (int w = 0; w < n; w++) {
        double ratio[ROUNDS];
        shortest[w] = INFINITY;
        for (int k = 0; k < rounds; k++) {
            ratio[k] = time[0][k] / time[w][k];
            shortest[w] = fmin(shortest[w], time[w][k]);
        }
        qsort(ratio, (size_t)rounds, sizeof *ratio, compare);
        gain[w] = r->usable[w] ? fmin(ratio[rounds / 2], shortest[0] / shortest[w]) : 0;
    }
    return true;
}

static bool screen_candidates(trial_run *r, int n) {
    double first = 0, once;
    for (int w = 0; w < n; w++) {
        if (!r->usable[w]) continue;
        if (!time_candidate(r, w, 1, &once)) return false;
        for (int i = 0; i < 3; i++) {
            double again;
            if (!time_candidate(r, w, 1, &again)) return false;
            once = fmin(once, again);
        }
        if (!w) first = once;
        if (once > MAX_SLOWDOWN * first) r->usable[w] = false;
        r->repeats[w] = once < MIN_SAMPLE ? (int)(MIN_SAMPLE / (once + 1e-7)) + 1 : 1;
    }
    return true;
}

static bool run_trial(trial_run *r, sn_trial *c) {
    double gain[MAX_CANDIDATES];
    int best = 0;
    *c = (sn_trial){.n = c->n, .gain = 1};
    if (!screen_candidates(r, c->n) || !run_rounds(r, c->n, gain)) return false;
    for (int w = 1; w < c->n; w++) {
        if (gain[w] > gain[best]) best = w;
        if (gain[w] > c->runner_up) c->runner_up = gain[w];
    }
    if (gain[best] < 1 / (1 - SN_TUNE_MARGIN)) return true;
    for (int w = 1; w < c->n; w++) r->usable[w] = w == best;
    if (!run_rounds(r, c->n, gain)) return false;
    c->runner_up = gain[best];
    if (gain[best] < 1 / (1 - SN_TUNE_MARGIN)) return true;
    c->winner = best;
    c->gain = gain[best];
    return true;
}

/* ---- memory ---- */

/* Floats between -1 and 1, bytes of a mask 1, other integers 0. */
static void fill(sn_dtype t, void *data, size_t n) {
    uint32_t s = 12345;
    size_t size = sn_dtype_size(t);
    memset(data, t == SN_BOOL, n * size);
    if (!sn_dtype_is_float(t)) return;
    for (size_t i = 0; i < n; i++) {
        s = s * 1664525 + 1013904223;
        float x = (float)(int32_t)s * 0x1p-31f;
        double wide = x;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        uint16_t half = t == SN_BF16 ? (uint16_t)(bits >> 16) : 0x3800; /* f16: 0.5 */
        memcpy((char *)data + i * size,
               size == 8   ? (const void *)&wide
               : size == 4 ? (const void *)&x
                           : (const void *)&half,
               size);
    }
}

static void *make_data(sn_dtype t, int64_t n, sn_error *err) {
    size_t bytes = ((size_t)(n > 0 ? n : 1) * sn_dtype_size(t) + 127) / 64 * 64;
    void *data = (double)bytes < MAX_BYTES ? aligned_alloc(64, bytes) : NULL;
    if (!data)
        sn_fail(err, SN_ERR_MEMORY,
                "tune: out of memory: %zu bytes for an operand; use smaller sizes", bytes);
    else
        fill(t, data, (size_t)(n > 0 ? n : 1));
    return data;
}

/* ---- a kernel ---- */

typedef void kernel_fn(void *const *buf, const int64_t *dim, void *scratch, int64_t tid, int64_t n);

typedef struct kernel_run {
    const sn_tuner *t;
    const sn_kernel *k;
    kernel_fn *fn[MAX_CANDIDATES], *finish[MAX_CANDIDATES]; /* finish NULL: one part */
    kernel_fn *running;
    void **buf;
    int n_buf;
    size_t *bytes;
    int64_t dim[SN_KERNEL_DIMS];
    char *scratch;
    size_t scratch_bytes;
    sn_threads threads;
} kernel_run;

static int64_t extent(const sn_tuner *t, const sn_view *v) {
    int64_t n = 1;
    for (int a = 0; a < v->rank; a++)
        n += (sn_dim_eval(t->m, v->shape[a], t->symbol) - 1) *
             sn_dim_eval(t->m, v->stride[a], t->symbol);
    return n;
}

static void on_thread(void *arg, int64_t tid, int64_t n) {
    const kernel_run *r = arg;
    r->running(r->buf, r->dim, r->scratch + (size_t)tid * r->scratch_bytes, tid, n);
}

static bool run_kernel(void *ctx, int candidate, sn_error *err) {
    (void)err;
    kernel_run *r = ctx;
    for (int part = 0; part < 2; part++) {
        r->running = part ? r->finish[candidate] : r->fn[candidate];
        if (r->running) r->threads.run(&r->threads, on_thread, r);
    }
    return true;
}

static bool load_kernel(kernel_run *r, sn_jit *jit, int candidate, size_t *scratch, sn_error *err) {
    sn_kernel k = *r->k;
    sn_kernel_set_tile(&k, candidate);
    em e;
    LLVMModuleRef mod = NULL;
    if (em_init(&e, r->t->target, k.name, k.compute, err)) {
        sn_kernel_emit(&e, &k);
        mod = em_finish(&e, err);
    }
    bool ok = mod && sn_jit_compile(jit, mod, NULL, err);
    em_free(&e);
    void *fn = ok ? sn_jit_lookup(jit, k.name, err) : NULL;
    if (!fn) return false;
    memcpy(&r->fn[candidate], &fn, sizeof fn);
    if (sn_kernel_shared(&k, r->t->target) > 0) {
        char name[64];
        snprintf(name, sizeof name, "%s_finish", k.name);
        if (!(fn = sn_jit_lookup(jit, name, err))) return false;
        memcpy(&r->finish[candidate], &fn, sizeof fn);
    }
    if (k.family->scratch) {
        size_t need = (size_t)sn_dim_eval(k.m, k.family->scratch(&k, r->t->target), r->t->symbol);
        if (need > *scratch) *scratch = need;
    }
    return true;
}

static bool bind_kernel(kernel_run *r, size_t scratch, sn_error *err) {
    const sn_step *s = r->k->step;
    r->n_buf = s->n_in + s->n_out;
    r->buf = calloc((size_t)r->n_buf + 1, sizeof *r->buf);
    r->bytes = calloc((size_t)r->n_buf + 1, sizeof *r->bytes);
    if (!r->buf || !r->bytes) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < r->n_buf; i++) {
        const sn_view *v = sn_view_of(s, i);
        int64_t n = extent(r->t, v);
        if (!(r->buf[i] = make_data(v->dtype, n, err))) return false;
        r->bytes[i] = (size_t)n * sn_dtype_size(v->dtype);
    }
    int64_t shared = sn_kernel_shared(r->k, r->t->target);
    if (shared > 0 && !(r->buf[r->n_buf] = make_data(SN_I8, shared, err))) return false;
    for (int i = 0; i < r->k->n_dim; i++)
        r->dim[i] = sn_dim_eval(r->t->m, r->k->dim[i], r->t->symbol);
    r->scratch_bytes = (scratch + 127) / 64 * 64;
    r->scratch = aligned_alloc(64, r->scratch_bytes * (size_t)r->threads.n);
    return r->scratch || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

/* Whether candidate w writes the same bits as candidate 0. */
static bool same_bits(kernel_run *r, int w) {
    const sn_step *s = r->k->step;
    bool same = true;
    for (int i = s->n_in; i < r->n_buf; i++) memset(r->buf[i], 0, r->bytes[i]);
    run_kernel(r, 0, NULL);
    for (int i = s->n_in; i < r->n_buf && same; i++) {
        void *kept = malloc(r->bytes[i] + 1);
        if (!kept) return false;
        memcpy(kept, r->buf[i], r->bytes[i]);
        memset(r->buf[i], 0, r->bytes[i]);
        run_kernel(r, w, NULL);
        same = !memcmp(kept, r->buf[i], r->bytes[i]);
        free(kept);
    }
    return same;
}

bool sn_tune_kernel(sn_tuner *t, const sn_kernel *k, sn_trial *c) {
    kernel_run r = {.t = t, .k = k};
    trial_run trial = {.run = run_kernel, .ctx = &r, .err = t->err};
    sn_jit_symbol symbols[SN_JIT_MEMORY];
    sn_jit_memory(symbols);
    sn_jit_options jo = {.symbols = symbols, .n_symbols = SN_JIT_MEMORY};
    sn_jit *jit = sn_jit_create(t->target, &jo, t->err);
    size_t scratch = 0;
    if (c->n > MAX_CANDIDATES) c->n = MAX_CANDIDATES;
    bool ok = jit && sn_threads_init(&r.threads, t->threads, t->err);
    for (int w = 0; w < c->n && ok; w++) ok = load_kernel(&r, jit, w, &scratch, t->err);
    ok = ok && bind_kernel(&r, scratch, t->err);
    for (int w = 0; w < c->n && ok; w++) trial.usable[w] = !w || same_bits(&r, w);
    ok = ok && run_trial(&trial, c);
    for (int i = 0; r.buf && i <= r.n_buf; i++) free(r.buf[i]);
    free(r.buf);
    free(r.bytes);
    free(r.scratch);
    sn_threads_free(&r.threads);
    if (jit) sn_jit_destroy(jit);
    return ok;
}

/* ---- a choice of the passes: each candidate is a program ---- */

enum { MAX_LEAVES = 64 };

typedef struct subgraph { /* the nodes that a choice is about, cut out of the module */
    sn_tuner *t;
    const sn_choice *q;
    sn_node **made; /* by node id: its copy */
    sn_node *leaf[MAX_LEAVES];
    int n_leaf;
} subgraph;

typedef struct program_run {
    sn_tuner *t;
    subgraph cut;
    sn_entry *entry;
    sn_program *program[MAX_CANDIDATES];
    sn_session *session[MAX_CANDIDATES];
    sn_arg_binding arg[MAX_LEAVES + 16], param[MAX_LEAVES], out[SN_MAX_RESULTS];
    int64_t shape[MAX_LEAVES + SN_MAX_RESULTS][SN_MAX_RANK], symbol[16];
    int n_arg, n_param, n_out, n_data;
    void *data[MAX_LEAVES + SN_MAX_RESULTS];
} program_run;

static bool belongs(const subgraph *p, const sn_node *n) {
    for (int i = 0; i < p->q->n_member; i++)
        if (p->q->member[i] == n) return true;
    bool view = (sn_ops[n->op].flags & SN_OPF_VIEW) || n->op == SN_OP_broadcast;
    bool made = n->op == SN_OP_const || n->op == SN_OP_iota || n->op == SN_OP_dim_value;
    return view || made;
}

/* Copy of n in which nodes outside of the subgraph are inputs and parameters. */
static sn_node *cut_out(subgraph *p, sn_node *n) {
    if (p->made[n->id]) return p->made[n->id];
    sn_node *r = n;
    if (belongs(p, n)) {
        sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 1));
        for (int i = 0; i < n->n_in; i++) in[i] = cut_out(p, n->in[i]);
        if (n->n_in) r = sn_node_with(n, in);
    } else if (p->n_leaf < MAX_LEAVES) {
        r = sn_node_new(n->m, sn_from_params_only(n) ? SN_OP_param : SN_OP_input, 0, NULL,
                        SN_ATTRS(SN_STR(name, sn_arena_printf(n->m, "@tune%d", p->n_leaf)),
                                 SN_INT(dtype, n->dtype), SN_LIST(shape, n->rank, n->shape)));
        p->leaf[p->n_leaf++] = r;
    }
    return p->made[n->id] = r;
}

typedef struct forced_candidate {
    sn_op op;
    sn_candidate candidate;
} forced_candidate;

static void force_candidate(void *ctx, sn_choice *q) {
    const forced_candidate *o = ctx;
    if (q->node->op != o->op || !(q->candidates >> o->candidate & 1)) return;
    q->chosen = o->candidate;
}

static bool add_data(program_run *r, const sn_node *n, sn_arg_binding *a, const char *name) {
    int64_t count = 1, *shape = r->shape[r->n_data];
    for (int i = 0; i < n->rank; i++)
        count *= shape[i] = sn_dim_eval(r->t->m, n->shape[i], r->symbol);
    void *data = make_data((sn_dtype)n->dtype, count, r->t->err);
    if (!data) return false;
    r->data[r->n_data++] = data;
    *a = (sn_arg_binding){name, (sn_dtype)n->dtype, n->rank, shape, data};
    return true;
}

static void drop_data(program_run *r) {
    for (int i = 0; i < r->n_data; i++) free(r->data[i]);
    r->n_data = r->n_arg = r->n_param = r->n_out = 0;
}

/* Operands and results for these sizes. */
static bool bind_at(program_run *r, const int64_t *symbol) {
    drop_data(r);
    for (int s = 0; s < sn_symbol_count(r->t->m); s++) {
        r->symbol[s] = symbol[s];
        r->arg[r->n_arg++] = (sn_arg_binding){
            .name = sn_symbol_at(r->t->m, s)->name, .dtype = SN_I64, .data = &r->symbol[s]};
    }
    for (int i = 0; i < r->cut.n_leaf; i++) {
        const sn_node *n = r->cut.leaf[i];
        bool param = n->op == SN_OP_param;
        sn_arg_binding *a = param ? &r->param[r->n_param++] : &r->arg[r->n_arg++];
        if (!add_data(r, n, a, sn_attr_str(n, SN_A_name, ""))) return false;
    }
    for (int i = 0; i < r->entry->n_output; i++)
        if (!add_data(r, r->entry->output[i].node, &r->out[r->n_out++], r->entry->output[i].name))
            return false;
    return true;
}

static bool run_session(program_run *r, sn_session *s, sn_error *err) {
    return sn_run(s, "@tune", r->arg, r->n_arg, r->out, r->n_out, err);
}

static bool run_program(void *ctx, int candidate, sn_error *err) {
    program_run *r = ctx;
    return run_session(r, r->session[candidate], err);
}

/* The concatenated results of a candidate that runs with `threads` threads; the caller frees
 * them. */
static char *results_of(program_run *r, int candidate, int threads, size_t *bytes) {
    sn_error err = {0};
    r->program[candidate]->threads = threads;
    sn_session *s = sn_session_new_arrays(r->program[candidate], r->param, r->n_param, &err);
    bool ok = s && run_session(r, s, &err);
    sn_session_free(s);
    *bytes = 0;
    char *all = NULL;
    for (int i = 0; i < r->n_out && ok; i++) {
        size_t n = sn_dtype_size(r->out[i].dtype);
        for (int a = 0; a < r->out[i].rank; a++) n *= (size_t)r->out[i].shape[a];
        char *grown = realloc(all, *bytes + n + 1);
        if (!grown) break;
        all = grown;
        memcpy(all + *bytes, r->out[i].data, n);
        *bytes += n;
    }
    return all;
}

/* Compares the relative mean square error of f32 results; other types must be equal. */
static bool is_near(const program_run *r, const char *x, const char *y, size_t bytes) {
    double error = 0, square = 0;
    if (r->out[0].dtype != SN_F32) return !memcmp(x, y, bytes);
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        float a, b;
        memcpy(&a, x + i, 4);
        memcpy(&b, y + i, 4);
        error += ((double)a - b) * ((double)a - b);
        square += (double)a * a;
    }
    return error <= 1e-10 * square;
}

/* Whether the candidate is correct at these sizes and gives the same bits with 1, 2, 3 and all
 * threads. */
static bool is_correct(program_run *r, int candidate, const int64_t *symbol) {
    const int threads[] = {1, 2, 3, r->t->threads};
    int n_threads = r->t->threads > 3 ? 4 : 3;
    size_t n[2];
    if (!bind_at(r, symbol)) return false;
    char *want = results_of(r, 0, 1, &n[0]), *first = results_of(r, candidate, 1, &n[1]);
    bool ok = want && first && n[0] == n[1] && is_near(r, want, first, n[0]);
    for (int i = 1; i < n_threads && ok; i++) {
        char *again = results_of(r, candidate, threads[i], &n[1]);
        ok = again && n[0] == n[1] && !memcmp(first, again, n[0]);
        free(again);
    }
    free(want);
    free(first);
    return ok;
}

/* The same at the sizes in use and at both ends of their tuning bucket. */
static bool is_correct_in_bucket(program_run *r, int candidate) {
    int64_t end[2][16];
    bool inside[2] = {false};
    const sn_module *m = r->t->m;
    for (int s = 0; s < sn_symbol_count(m); s++) {
        const sn_symbol *y = sn_symbol_at(m, s);
        int64_t v = r->t->symbol[s];
        sn_bucket b = sn_tune_bucket(v);
        end[0][s] = b.from < y->lo ? y->lo : b.from;
        end[1][s] = b.to > y->hi ? y->hi : b.to;
        for (int i = 0; i < 2; i++) inside[i] |= end[i][s] != v;
    }
    bool ok = is_correct(r, candidate, r->t->symbol);
    for (int i = 0; i < 2; i++)
        if (inside[i] && sn_tuner_may_run(r->t, end[i], NULL))
            ok = ok && is_correct(r, candidate, end[i]);
    return ok;
}

static bool make_candidate(program_run *r, int w, sn_candidate candidate) {
    sn_tuner *t = r->t;
    forced_candidate forced = {(sn_op)r->cut.q->node->op, candidate};
    sn_chooser chooser = {force_candidate, &forced};
    sn_options o = *t->o;
    o.tune = o.plan_only = false;
    o.n_taps = 0;
    o.memory_budget = 0;
    o.budget_sizes = NULL;
    o.strict_fusion = o.check_nan = o.check_index = false;
    sn_error err = {0};
    r->program[w] = t->compile(t->m, &o, NULL, &chooser, &err);
    if (r->program[w]) return true;
    *sn_module_error(t->m) = (sn_error){0}; /* the candidate does not compile */
    return false;
}

static bool make_candidates(program_run *r, const sn_trial *c, const sn_candidate *candidate,
                            bool *usable) {
    if (!bind_at(r, r->t->symbol)) return false;
    for (int w = 0; w < c->n; w++) usable[w] = make_candidate(r, w, candidate[w]);
    return usable[0] ||
           sn_fail(r->t->err, SN_ERR_INTERNAL, "tune: a part of the module cannot be compiled");
}

static void close_sessions(program_run *r) {
    for (int w = 0; w < MAX_CANDIDATES; w++) {
        sn_session_free(r->session[w]);
        r->session[w] = NULL;
    }
}

/* Makes new data and opens a session on it for each candidate. Drops candidates that fail. */
static bool open_sessions(program_run *r, const sn_trial *c, bool *usable) {
    close_sessions(r);
    if (!bind_at(r, r->t->symbol)) return false;
    for (int w = 0; w < c->n; w++) {
        if (!usable[w]) continue;
        r->program[w]->threads = r->t->threads;
        r->session[w] = sn_session_new_arrays(r->program[w], r->param, r->n_param, r->t->err);
        if (!r->session[w]) return false;
        sn_error err = {0};
        usable[w] = !w || run_session(r, r->session[w], &err);
    }
    return true;
}

/* Checks only the winner for correctness, because the check takes longer than the trial. */
static bool run_program_trial(program_run *r, trial_run *trial, sn_trial *c, const bool *made) {
    bool usable[MAX_CANDIDATES];
    memcpy(usable, made, sizeof usable);
    for (bool wrong = true; wrong;) {
        if (!open_sessions(r, c, usable)) return false;
        memcpy(trial->usable, usable, sizeof usable);
        if (!run_trial(trial, c)) return false;
        close_sessions(r);
        wrong = c->winner && !is_correct_in_bucket(r, c->winner);
        if (wrong) usable[c->winner] = false;
    }
    return true;
}

/* Replaces the entries of the module by one that computes the results of the subgraph. */
static void make_entry(program_run *r) {
    sn_module *m = r->t->m;
    const sn_choice *q = r->cut.q;
    r->cut.made = sn_arena_alloc(m, sizeof *r->cut.made * sn_module_node_count(m));
    sn_node *out[SN_MAX_RESULTS];
    int n = q->n_out < SN_MAX_RESULTS ? q->n_out : SN_MAX_RESULTS;
    for (int i = 0; i < n; i++) out[i] = cut_out(&r->cut, q->out[i]);
    /* a consumer can be fused into a row kernel, but not into a primitive: measure with one */
    bool row = q->node->op != SN_OP_dot && q->node->op != SN_OP_attention;
    if (row) out[0] = sn_b_binary(SN_OP_add, out[0], out[0]);
    sn_entries_clear(m);
    r->entry = sn_entry_add(m, "@tune");
    for (int i = 0; i < n; i++) sn_entry_output(m, r->entry, sn_arena_printf(m, "y%d", i), out[i]);
}

bool sn_tune_choice(sn_tuner *t, const sn_choice *q, const sn_candidate *candidate, sn_trial *c) {
    program_run *r = calloc(1, sizeof *r);
    if (!r) return sn_fail(t->err, SN_ERR_MEMORY, "out of memory");
    r->t = t;
    r->cut = (subgraph){.t = t, .q = q};
    trial_run trial = {.run = run_program, .ctx = r, .err = t->err};
    sn_entries *saved = sn_entries_save(t->m);
    make_entry(r);
    bool made[MAX_CANDIDATES] = {false};
    bool ok = make_candidates(r, c, candidate, made) && run_program_trial(r, &trial, c, made);
    close_sessions(r);
    for (int w = 0; w < c->n; w++) sn_program_free(r->program[w]);
    drop_data(r);
    sn_entries_restore(t->m, saved);
    free(r);
    return ok;
}
