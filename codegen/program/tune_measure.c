/* tune_measure.c: the fastest of several ways to the same result: a kernel by itself on memory of
 * its own, or a product with what follows it, or a composite, as a program of its own. Ways take
 * turns, so that what else the machine does meets all of them; what wins must win twice. */
#include "codegen/program/tune.h"
#include "passes/graph_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, FEWEST = 3, MAX_WAYS = 8 };
static const double SAMPLE = 2e-3;  /* seconds of one way in one round, at least */
static const double LONGEST = 1;    /* seconds of all rounds, if FEWEST have been */
static const double HOPELESS = 1.5; /* times the first way's time at the first look */
static const double MOST_BYTES = 2e9;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the contest ---- */

typedef struct runner {
    bool (*run)(void *ctx, int way, sn_error *err);
    void *ctx;
    bool usable[MAX_WAYS]; /* the way exists and is right */
    int repeats[MAX_WAYS];
    sn_error *err;
} runner;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool time_way(const runner *r, int way, int repeats, double *seconds) {
    double start = now();
    for (int i = 0; i < repeats; i++)
        if (!r->run(r->ctx, way, r->err)) return false;
    *seconds = (now() - start) / repeats;
    return true;
}

/* gain[w]: way 0's time over way w's: the median over the rounds, or the ratio of the shortest
 * times if that is less. What else the machine does lengthens times, and seldom all of them. */
static bool run_rounds(const runner *r, int n, double *gain) {
    double time[MAX_WAYS][ROUNDS] = {{0}}, start = now();
    int rounds = 0;
    for (; rounds < ROUNDS && (rounds < FEWEST || now() - start < LONGEST); rounds++)
        for (int i = 0; i < n; i++) {
            int w = (i + rounds) % n;
            if (r->usable[w] && !time_way(r, w, r->repeats[w], &time[w][rounds])) return false;
        }
    double shortest[MAX_WAYS];
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

static bool look_first(runner *r, int n) {
    double first = 0, once;
    for (int w = 0; w < n; w++) {
        if (!r->usable[w]) continue;
        if (!time_way(r, w, 1, &once)) return false;
        for (int i = 0; i < 3; i++) {
            double again;
            if (!time_way(r, w, 1, &again)) return false;
            once = fmin(once, again);
        }
        if (!w) first = once;
        if (once > HOPELESS * first) r->usable[w] = false;
        r->repeats[w] = once < SAMPLE ? (int)(SAMPLE / (once + 1e-7)) + 1 : 1;
    }
    return true;
}

static bool decide(runner *r, sn_contest *c) {
    double gain[MAX_WAYS];
    int best = 0;
    *c = (sn_contest){.n = c->n, .gain = 1};
    if (!look_first(r, c->n) || !run_rounds(r, c->n, gain)) return false;
    for (int w = 1; w < c->n; w++) {
        if (gain[w] > gain[best]) best = w;
        if (gain[w] > c->loser) c->loser = gain[w];
    }
    if (gain[best] < 1 / (1 - SN_TUNE_MARGIN)) return true;
    for (int w = 1; w < c->n; w++) r->usable[w] = w == best;
    if (!run_rounds(r, c->n, gain)) return false;
    c->loser = gain[best];
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
    void *data = (double)bytes < MOST_BYTES ? aligned_alloc(64, bytes) : NULL;
    if (!data)
        sn_fail(err, SN_ERR_MEMORY,
                "tune: no memory for %zu bytes of an operand: give smaller sizes", bytes);
    else
        fill(t, data, (size_t)(n > 0 ? n : 1));
    return data;
}

/* ---- a kernel ---- */

typedef void kernel_fn(void *const *buf, const int64_t *dim, void *scratch, int64_t tid, int64_t n);

typedef struct kernel_run {
    const sn_tuner *t;
    const sn_kernel *k;
    kernel_fn *fn[MAX_WAYS], *finish[MAX_WAYS]; /* NULL: it does not wait in between */
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

static bool run_kernel(void *ctx, int way, sn_error *err) {
    (void)err;
    kernel_run *r = ctx;
    for (int part = 0; part < 2; part++) {
        r->running = part ? r->finish[way] : r->fn[way];
        if (r->running) r->threads.run(&r->threads, on_thread, r);
    }
    return true;
}

static bool load_kernel(kernel_run *r, sn_jit *jit, int way, size_t *scratch, sn_error *err) {
    sn_kernel k = *r->k;
    sn_kernel_set_tile(&k, way);
    em e;
    LLVMModuleRef mod = NULL;
    if (em_init(&e, r->t->target, k.name, k.compute, err)) {
        k.family->emit(&e, &k);
        mod = em_finish(&e, err);
    }
    bool ok = mod && sn_jit_compile(jit, mod, NULL, err);
    em_free(&e);
    void *fn = ok ? sn_jit_lookup(jit, k.name, err) : NULL;
    if (!fn) return false;
    memcpy(&r->fn[way], &fn, sizeof fn);
    if (sn_kernel_shared(&k, r->t->target) > 0) {
        char name[64];
        snprintf(name, sizeof name, "%s_finish", k.name);
        if (!(fn = sn_jit_lookup(jit, name, err))) return false;
        memcpy(&r->finish[way], &fn, sizeof fn);
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
        const sn_view *v = i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];
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

/* Whether way w leaves the very bits that way 0 leaves. */
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

bool sn_tune_kernel(sn_tuner *t, const sn_kernel *k, sn_contest *c) {
    kernel_run r = {.t = t, .k = k};
    runner ways = {.run = run_kernel, .ctx = &r, .err = t->err};
    void *(*copy)(void *, const void *, size_t) = memcpy,
                                        *(*move)(void *, const void *, size_t) = memmove;
    void *(*set)(void *, int, size_t) = memset;
    sn_jit_symbol symbols[] = {{"memcpy", NULL}, {"memmove", NULL}, {"memset", NULL}};
    memcpy(&symbols[0].address, &copy, sizeof copy);
    memcpy(&symbols[1].address, &move, sizeof move);
    memcpy(&symbols[2].address, &set, sizeof set);
    sn_jit_options jo = {.symbols = symbols, .n_symbols = 3};
    sn_jit *jit = sn_jit_create(t->target, &jo, t->err);
    size_t scratch = 0;
    if (c->n > MAX_WAYS) c->n = MAX_WAYS;
    bool ok = jit && sn_threads_init(&r.threads, t->threads, t->err);
    for (int w = 0; w < c->n && ok; w++) ok = load_kernel(&r, jit, w, &scratch, t->err);
    ok = ok && bind_kernel(&r, scratch, t->err);
    for (int w = 0; w < c->n && ok; w++) ways.usable[w] = !w || same_bits(&r, w);
    ok = ok && decide(&ways, c);
    for (int i = 0; r.buf && i <= r.n_buf; i++) free(r.buf[i]);
    free(r.buf);
    free(r.bytes);
    free(r.scratch);
    sn_threads_free(&r.threads);
    if (jit) sn_jit_destroy(jit);
    return ok;
}

/* ---- a question: programs of their own ---- */

enum { MAX_LEAVES = 64 };

typedef struct place { /* where a question is met, cut out of the module */
    sn_tuner *t;
    const sn_question *q;
    sn_node **made; /* by node id: its copy */
    sn_node *leaf[MAX_LEAVES];
    int n_leaf;
} place;

typedef struct question_run {
    sn_tuner *t;
    place cut;
    sn_entry *entry;
    sn_program *program[MAX_WAYS];
    sn_session *session[MAX_WAYS];
    sn_arg_binding arg[MAX_LEAVES + 16], param[MAX_LEAVES], out[SN_MAX_RESULTS];
    int64_t shape[MAX_LEAVES + SN_MAX_RESULTS][SN_MAX_RANK], symbol[16];
    int n_arg, n_param, n_out, n_data;
    void *data[MAX_LEAVES + SN_MAX_RESULTS];
} question_run;

static bool belongs(const place *p, const sn_node *n) {
    for (int i = 0; i < p->q->n_member; i++)
        if (p->q->member[i] == n) return true;
    bool view = (sn_ops[n->op].flags & SN_OPF_VIEW) || n->op == SN_OP_broadcast;
    bool made = n->op == SN_OP_const || n->op == SN_OP_iota || n->op == SN_OP_dim_value;
    return view || made;
}

/* n with what does not belong to the place replaced by inputs and parameters. */
static sn_node *cut_out(place *p, sn_node *n) {
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

typedef struct order_to_answer {
    sn_op op;
    sn_answer answer;
} order_to_answer;

static void answer_as_told(void *ctx, sn_question *q) {
    const order_to_answer *o = ctx;
    if (q->node->op != o->op || !(q->allowed >> o->answer & 1)) return;
    q->answer = o->answer;
}

static bool add_data(question_run *r, const sn_node *n, sn_arg_binding *a, const char *name) {
    int64_t count = 1, *shape = r->shape[r->n_data];
    for (int i = 0; i < n->rank; i++)
        count *= shape[i] = sn_dim_eval(r->t->m, n->shape[i], r->symbol);
    void *data = make_data((sn_dtype)n->dtype, count, r->t->err);
    if (!data) return false;
    r->data[r->n_data++] = data;
    *a = (sn_arg_binding){name, (sn_dtype)n->dtype, n->rank, shape, data};
    return true;
}

static void drop_data(question_run *r) {
    for (int i = 0; i < r->n_data; i++) free(r->data[i]);
    r->n_data = r->n_arg = r->n_param = r->n_out = 0;
}

/* Operands and results for these sizes. */
static bool bind_at(question_run *r, const int64_t *symbol) {
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

static bool run_session(question_run *r, sn_session *s, sn_error *err) {
    return sn_run(s, "@tune", r->arg, r->n_arg, r->out, r->n_out, err);
}

static bool run_question(void *ctx, int way, sn_error *err) {
    question_run *r = ctx;
    return run_session(r, r->session[way], err);
}

/* The results of a way with so many threads, one after the other; free()d by the caller. */
static char *results_of(question_run *r, int way, int threads, size_t *bytes) {
    sn_error err = {0};
    r->program[way]->threads = threads;
    sn_session *s = sn_session_new_arrays(r->program[way], r->param, r->n_param, &err);
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

/* Relative error in the mean of squares; floats of 2 bytes count as they are stored. */
static bool is_near(const question_run *r, const char *x, const char *y, size_t bytes) {
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

/* Whether way w is right at these sizes, and gives one and the same bits with 1, 2, 3 and all
 * threads. */
static bool is_right(question_run *r, int way, const int64_t *symbol) {
    const int threads[] = {1, 2, 3, r->t->threads};
    int n_threads = r->t->threads > 3 ? 4 : 3;
    size_t n[2];
    if (!bind_at(r, symbol)) return false;
    char *want = results_of(r, 0, 1, &n[0]), *first = results_of(r, way, 1, &n[1]);
    bool ok = want && first && n[0] == n[1] && is_near(r, want, first, n[0]);
    for (int i = 1; i < n_threads && ok; i++) {
        char *again = results_of(r, way, threads[i], &n[1]);
        ok = again && n[0] == n[1] && !memcmp(first, again, n[0]);
        free(again);
    }
    free(want);
    free(first);
    return ok;
}

/* At the sizes in use, and at both ends of their powers of two. */
static bool is_right_around(question_run *r, int way) {
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
    bool ok = is_right(r, way, r->t->symbol);
    for (int i = 0; i < 2; i++)
        if (inside[i] && sn_tuner_may_run(r->t, end[i], NULL)) ok = ok && is_right(r, way, end[i]);
    return ok;
}

static bool make_way(question_run *r, int way, sn_answer answer) {
    sn_tuner *t = r->t;
    order_to_answer order = {(sn_op)r->cut.q->node->op, answer};
    sn_chooser forced = {answer_as_told, &order};
    sn_options o = *t->o;
    o.tune = false;
    o.n_taps = 0;
    o.memory_budget = 0;
    o.budget_sizes = NULL;
    o.strict_fusion = o.check_nan = o.check_index = false;
    sn_error err = {0};
    r->program[way] = sn_program_make(t->m, &o, NULL, &forced, &err);
    if (r->program[way]) return true;
    *sn_module_error(t->m) = (sn_error){0}; /* this way is none */
    return false;
}

static bool make_ways(question_run *r, const sn_contest *c, const sn_answer *answer, bool *usable) {
    if (!bind_at(r, r->t->symbol)) return false;
    for (int w = 0; w < c->n; w++) usable[w] = make_way(r, w, answer[w]);
    return usable[0] ||
           sn_fail(r->t->err, SN_ERR_INTERNAL, "tune: a part of the module does not compile");
}

static void close_sessions(question_run *r) {
    for (int w = 0; w < MAX_WAYS; w++) {
        sn_session_free(r->session[w]);
        r->session[w] = NULL;
    }
}

/* Fresh data, and a session of each way on it. A way that cannot run is out. */
static bool open_sessions(question_run *r, const sn_contest *c, bool *usable) {
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

/* Only what would win has to be right: to find out takes longer than the contest. */
static bool decide_question(question_run *r, runner *ways, sn_contest *c, const bool *made) {
    bool usable[MAX_WAYS];
    memcpy(usable, made, sizeof usable);
    for (bool wrong = true; wrong;) {
        if (!open_sessions(r, c, usable)) return false;
        memcpy(ways->usable, usable, sizeof usable);
        if (!decide(ways, c)) return false;
        close_sessions(r);
        wrong = c->winner && !is_right_around(r, c->winner);
        if (wrong) usable[c->winner] = false;
    }
    return true;
}

/* The entries of the module make room for one that computes the place's results. */
static void make_entry(question_run *r) {
    sn_module *m = r->t->m;
    const sn_question *q = r->cut.q;
    r->cut.made = sn_arena_alloc(m, sizeof *r->cut.made * sn_module_node_count(m));
    sn_node *out[SN_MAX_RESULTS];
    int n = q->n_out < SN_MAX_RESULTS ? q->n_out : SN_MAX_RESULTS;
    for (int i = 0; i < n; i++) out[i] = cut_out(&r->cut, q->out[i]);
    /* what reads a row kernel's result could be part of it, but not of a primitive */
    bool row = q->node->op != SN_OP_dot && q->node->op != SN_OP_attention;
    if (row) out[0] = sn_b_binary(SN_OP_add, out[0], out[0]);
    sn_entries_clear(m);
    r->entry = sn_entry_add(m, "@tune");
    for (int i = 0; i < n; i++) sn_entry_output(m, r->entry, sn_arena_printf(m, "y%d", i), out[i]);
}

bool sn_tune_question(sn_tuner *t, const sn_question *q, const sn_answer *answer, sn_contest *c) {
    question_run *r = calloc(1, sizeof *r);
    if (!r) return sn_fail(t->err, SN_ERR_MEMORY, "out of memory");
    r->t = t;
    r->cut = (place){.t = t, .q = q};
    runner ways = {.run = run_question, .ctx = r, .err = t->err};
    sn_entries *saved = sn_entries_save(t->m);
    make_entry(r);
    bool made[MAX_WAYS] = {false};
    bool ok = make_ways(r, c, answer, made) && decide_question(r, &ways, c, made);
    close_sessions(r);
    for (int w = 0; w < c->n; w++) sn_program_free(r->program[w]);
    drop_data(r);
    sn_entries_restore(t->m, saved);
    free(r);
    return ok;
}
