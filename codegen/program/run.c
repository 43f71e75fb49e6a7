/* run.c: sn_run: checks a call, solves the symbolic dims from the input shapes, fills the buffer
 * table, grows the workspace, calls the entry and runs its host steps. */
#include "codegen/program/session.h"
#include "passes/plan/collectives.h"
#include "codegen/program/check.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SYMBOLS = 16 };

/* ---- memory ---- */

bool sn_session_grow(block *b, size_t size, sn_error *err) {
    if (size <= b->size) return true;
    void *p = sn_memory_alloc(size);
    if (!p) return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes of working memory", size);
    free(b->data);
    *b = (block){p, size};
    return true;
}

/* ---- running ---- */

typedef struct request {
    sn_session *s;
    const sn_compiled_entry *c;
    const sn_arg_binding *in, *out;
    int n_in, n_out;
    int64_t symbol[MAX_SYMBOLS];
    bool known[MAX_SYMBOLS];
    sn_error *err;
} request;

static void shape_text(int rank, const int64_t *shape, char *buf, size_t size) {
    size_t at = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < rank && at + 24 < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(buf + at, size - at, "]");
}

/* ", where T = 4": the symbols of a shape whose values are known. */
static void values_text(const request *r, const sn_node *n, char *buf, size_t size) {
    size_t at = 0;
    bool used[SN_MAX_SYMBOLS] = {false};
    buf[0] = 0;
    for (int i = 0; i < n->rank; i++) sn_dim_symbols(n->m, n->shape[i], used);
    for (int s = 0; s < sn_symbol_count(n->m) && at + 1 < size; s++) {
        if (!used[s] || !r->known[s]) continue;
        at += (size_t)snprintf(buf + at, size - at, "%s%s = %lld", at ? ", " : ", where ",
                               sn_symbol_at(n->m, s)->name, (long long)r->symbol[s]);
    }
}

static bool misfit(const request *r, const sn_node *n, const sn_arg_binding *a) {
    char want[128], have[128], values[128], text[SN_TEXT_IN];
    const char *entry = r->c->code.plan->entry->name;
    bool input = a >= r->in && a < r->in + r->n_in;
    values_text(r, n, values, sizeof values);
    sn_shape_print(n->m, n->rank, n->shape, want, sizeof want);
    shape_text(a->rank, a->shape, have, sizeof have);
    return sn_fail(
        r->err, SN_ERR_SHAPE, "%s: '%s'%s must be %s%s%s, not %s%s", entry, a->name,
        sn_module_text_in(n->m, input ? SN_TEXT_INPUT : SN_TEXT_OUTPUT, entry, a->name, text),
        sn_dtype_name((sn_dtype)n->dtype), want, values, sn_dtype_name(a->dtype), have);
}

/* The symbol if d is exactly one; -1 otherwise. */
static int lone_symbol(const sn_module *m, sn_dim d) {
    const uint8_t *exponent;
    if (d >= 0 || sn_dim_terms(m, d) != 1 || sn_dim_term(m, d, 0, &exponent) != 1) return -1;
    int found = -1;
    for (int s = 0; s < sn_symbol_count(m); s++) {
        if (!exponent[s]) continue;
        if (exponent[s] > 1 || found >= 0) return -1;
        found = s;
    }
    for (int q = 0; q < sn_quot_count(m); q++)
        if (exponent[SN_MAX_SYMBOLS + q]) return -1;
    return found;
}

static bool solve(request *r, const sn_node *n, const sn_arg_binding *a) {
    sn_module *m = r->s->p->m;
    if (a->dtype != n->dtype || a->rank != n->rank) return misfit(r, n, a);
    for (int i = 0; i < n->rank; i++) {
        int sym = lone_symbol(m, n->shape[i]);
        if (sym < 0 || r->known[sym]) continue;
        r->symbol[sym] = a->shape[i];
        r->known[sym] = true;
    }
    return true;
}

static bool check_symbols(request *r, sn_dim d) {
    sn_module *m = r->s->p->m;
    bool used[SN_MAX_SYMBOLS] = {false};
    sn_dim_symbols(m, d, used);
    for (int s = 0; s < sn_symbol_count(m); s++)
        if (used[s] && !r->known[s])
            return sn_fail(r->err, SN_ERR_USAGE,
                           "%s: no input determines dimension %s; bind it with SN_BIND_DIM",
                           r->c->code.plan->entry->name, sn_symbol_at(m, s)->name);
    return true;
}

static bool check_shape(request *r, const sn_node *n, const sn_arg_binding *a) {
    for (int i = 0; i < n->rank; i++)
        if (a->shape[i] != sn_dim_eval(n->m, n->shape[i], r->symbol)) return misfit(r, n, a);
    return true;
}

static bool check_bounds(request *r) {
    sn_module *m = r->s->p->m;
    const char *entry = r->c->code.plan->entry->name;
    char text[SN_TEXT_IN];
    for (int s = 0; s < sn_symbol_count(m); s++) {
        const sn_symbol *sym = sn_symbol_at(m, s);
        if (r->known[s] && (r->symbol[s] < sym->lo || r->symbol[s] > sym->hi))
            return sn_fail(r->err, SN_ERR_RANGE, "%s: %s%s = %lld is outside its range %lld..%lld",
                           entry, sym->name,
                           sn_module_text_in(m, SN_TEXT_DIM, entry, sym->name, text),
                           (long long)r->symbol[s], (long long)sym->lo, (long long)sym->hi);
    }
    return true;
}

/* What the ranges of the symbols do not prove: past + new tokens against the context, say. */
static bool check_ranges(request *r) {
    for (int i = 0; i < r->c->n_range; i++) {
        const sn_range_check *k = &r->c->range[i];
        sn_dim dim[2 + SN_MAX_RANK];
        int n = sn_range_dims(k, dim);
        for (int d = 0; d < n; d++)
            if (!check_symbols(r, dim[d])) return false;
        if (!sn_range_holds(k, r->c->code.plan->entry->name, r->symbol, r->err)) return false;
    }
    return true;
}

static bool solve_all(request *r) {
    sn_module *m = r->s->p->m;
    const sn_plan *plan = r->c->code.plan;
    sn_module_place(m, r->symbol, r->known);
    for (int i = 0; i < r->n_in; i++) {
        int sym =
            r->in[i].rank == 0 && r->in[i].dtype == SN_I64 ? sn_symbol_find(m, r->in[i].name) : -1;
        if (sym < 0 || !r->in[i].data) continue;
        memcpy(&r->symbol[sym], r->in[i].data, sizeof(int64_t));
        r->known[sym] = true;
    }
    for (int i = 0; i < plan->n_input; i++) {
        const sn_arg_binding *a = sn_find_arg(r->in, r->n_in, plan->input[i].name);
        if (!a)
            return sn_fail(r->err, SN_ERR_USAGE, "%s: input '%s' is not bound", plan->entry->name,
                           plan->input[i].name);
        if (!solve(r, plan->input[i].node, a)) return false;
    }
    for (int i = 0; i < plan->n_input; i++) {
        const sn_node *n = plan->input[i].node;
        for (int d = 0; d < n->rank; d++)
            if (n->shape[d] < 0 && !check_symbols(r, n->shape[d])) return false;
        if (!check_shape(r, n, sn_find_arg(r->in, r->n_in, plan->input[i].name))) return false;
    }
    for (int k = 0; k < plan->n_call; k++)
        for (int d = 0; d < r->c->code.kernel[k].n_dim; d++)
            if (!check_symbols(r, r->c->code.kernel[k].dim[d])) return false;
    return check_bounds(r) && check_ranges(r);
}

static int64_t element_at(const sn_arg_binding *a, int64_t i) {
    int64_t wide;
    int32_t narrow; /* the caller's data need not be aligned */
    if (a->dtype == SN_I64) return memcpy(&wide, (const char *)a->data + 8 * i, 8), wide;
    return memcpy(&narrow, (const char *)a->data + 4 * i, 4), narrow;
}

static bool check_elements(const request *r, const sn_element_limit *l, const sn_arg_binding *a) {
    int64_t n = 1, low = sn_dim_eval(r->s->p->m, l->low, r->symbol),
            high = l->open ? INT64_MAX : sn_dim_eval(r->s->p->m, l->high, r->symbol);
    const char *entry = r->c->code.plan->entry->name;
    char text[SN_TEXT_IN];
    for (int d = 0; d < a->rank; d++) n *= a->shape[d];
    for (int64_t j = 0; j < n; j++) {
        int64_t v = element_at(a, j);
        if (v < low || v > high)
            return sn_fail(r->err, SN_ERR_RANGE,
                           "%s: element %lld of '%s'%s is %lld, outside %lld..%lld", entry,
                           (long long)j, a->name,
                           sn_module_text_in(r->s->p->m, SN_TEXT_INPUT, entry, a->name, text),
                           (long long)v, (long long)low, (long long)high);
    }
    return true;
}

/* A number whose limit is `open`. */
static bool check_number(const request *r, const sn_element_limit *l, const sn_arg_binding *a) {
    const char *entry = r->c->code.plan->entry->name;
    float v;
    char text[SN_TEXT_IN];
    memcpy(&v, a->data, sizeof v);
    return (v >= (float)l->low && v <= FLT_MAX) ||
           sn_fail(r->err, SN_ERR_RANGE, "%s: '%s'%s is %g, not a finite number of at least %lld",
                   entry, a->name,
                   sn_module_text_in(r->s->p->m, SN_TEXT_INPUT, entry, a->name, text), (double)v,
                   (long long)l->low);
}

static bool check_inputs(request *r) {
    for (int i = 0; i < r->c->n_limit; i++) {
        const sn_element_limit *l = &r->c->limit[i];
        const sn_arg_binding *a = sn_find_arg(r->in, r->n_in, l->input);
        if (!a) continue;
        if (!check_symbols(r, l->low) || !check_symbols(r, l->high)) return false;
        bool integers = a->dtype == SN_I32 || a->dtype == SN_I64;
        if (integers && !check_elements(r, l, a)) return false;
        if (a->dtype == SN_F32 && !a->rank && !check_number(r, l, a)) return false;
    }
    return true;
}

static const sn_binding *output_of(const sn_plan *plan, const char *name) {
    for (int i = 0; i < plan->entry->n_output; i++)
        if (!strcmp(plan->entry->output[i].name, name)) return &plan->entry->output[i];
    return NULL;
}

static bool check_outputs(request *r) {
    for (int i = 0; i < r->n_out; i++) {
        const sn_binding *o = output_of(r->c->code.plan, r->out[i].name);
        if (!o)
            return sn_fail(r->err, SN_ERR_USAGE, "%s has no output '%s'",
                           r->c->code.plan->entry->name, r->out[i].name);
        if (r->out[i].dtype != o->node->dtype || r->out[i].rank != o->node->rank)
            return misfit(r, o->node, &r->out[i]);
        if (!check_shape(r, o->node, &r->out[i])) return false;
    }
    return true;
}

/* The table of buffers that are not temporaries. Outputs nobody wants share spare memory, one after
 * the other. */
static bool fill_table(request *r, void **table) {
    sn_session *s = r->s;
    const sn_entry_code *u = &r->c->code;
    size_t spare = 0;
    memcpy(table, s->fixed[r->c - s->p->entry], sizeof *table * (size_t)u->n_table);
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (int i = 0; i < u->plan->n_buffer; i++) {
            const sn_buffer *b = &u->plan->buffer[i];
            if (b->kind != SN_BUF_INPUT && b->kind != SN_BUF_OUTPUT) continue;
            const sn_arg_binding *a = b->kind == SN_BUF_INPUT
                                          ? sn_find_arg(r->in, r->n_in, b->name)
                                          : sn_find_arg(r->out, r->n_out, b->name);
            void *p = a ? a->data : NULL;
            if (b->kind == SN_BUF_OUTPUT && !a) {
                size_t bytes =
                    (size_t)sn_dim_eval(s->p->m, b->count, r->symbol) * sn_dtype_size(b->dtype);
                p = pass ? (char *)s->spare.data + at : NULL;
                at += (bytes + 63) & ~(size_t)63;
            }
            table[u->table[i]] = p;
        }
        spare = at;
        if (!pass && !sn_session_grow(&s->spare, spare + 64, r->err)) return false;
    }
    return true;
}

static int64_t worthwhile_threads(const request *r) {
    int64_t work = sn_dim_eval(r->s->p->m, r->c->code.work, r->symbol);
    return work < sn_entry_work_for_threads(&r->c->code) ? 1 : r->s->threads.n;
}

/* Threads that run nothing any more after a failure: states keep what they are. */
typedef struct guarded {
    sn_threads threads; /* first: generated code sees only these */
    const sn_session *s;
} guarded;

static void run_guarded(sn_threads *self, void (*fn)(void *, int64_t, int64_t), void *arg) {
    const sn_session *s = ((const guarded *)self)->s;
    if (!s->host_error.code) s->threads.run(self, fn, arg);
}

/* Primitives of the host run on the threads of OpenMP: in the state of our own kernels, so that it
 * does not matter which of the two computes a step. */
static bool run_entry(request *r, const sn_call *call) {
    sn_session *s = r->s;
    const sn_plan *plan = r->c->code.plan;
    bool any_extern = false;
    for (int i = 0; i < plan->n_call; i++) any_extern |= sn_step_is_extern(plan->call[i]);
    if (!any_extern) return r->c->run(call) == 0;
    uint64_t *before = calloc((size_t)s->threads.n, sizeof *before);
    if (!before) return sn_fail(&s->host_error, SN_ERR_MEMORY, "out of memory");
    sn_fp_enter(&s->threads, before);
    bool ok = r->c->run(call) == 0;
    sn_fp_leave(&s->threads, before);
    free(before);
    return ok;
}

static bool execute(request *r) {
    sn_session *s = r->s;
    guarded g = {s->threads, s};
    if (r->c->code.checked) g.threads.run = run_guarded;
    g.threads.n = worthwhile_threads(r);
    void **table = malloc(sizeof *table * (size_t)(r->c->code.n_table + 1));
    if (!table) return sn_fail(r->err, SN_ERR_MEMORY, "out of memory");
    size_t bytes = (size_t)r->c->workspace(r->symbol, g.threads.n);
    bool ok = fill_table(r, table) && sn_session_grow(&s->workspace, bytes + 64, r->err);
    void *guarded_memory = ok && sn_debug_get()->guard ? sn_memory_guarded(bytes) : NULL,
         *workspace = guarded_memory ? guarded_memory : s->workspace.data;
    if (ok) {
        s->running = r->c;
        s->host_error = (sn_error){0};
        if (s->profile) s->profile->begin(s->profile, r->symbol);
        sn_call call = {table, r->symbol, workspace, &g.threads, s->profile, sn_host_step, s};
        if (!run_entry(r, &call))
            ok = sn_fail(r->err, s->host_error.code, "%s", s->host_error.message);
    }
    sn_memory_release_guarded(guarded_memory, bytes);
    free(table);
    return ok;
}

/* check_index: the companion computes the extremes of all indices. */
static bool check_lookups(request *r) {
    const sn_compiled_entry *c = r->c;
    if (!c->companion) return true;
    int n = 2 * c->n_lookup;
    int64_t *extreme = calloc((size_t)n, sizeof *extreme);
    sn_arg_binding *out = calloc((size_t)n, sizeof *out);
    bool ok = extreme && out;
    if (!ok) sn_fail(r->err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; ok && i < n; i++) {
        const sn_index_lookup *l = &c->lookup[i / 2];
        out[i] = (sn_arg_binding){
            .name = i % 2 ? l->greatest : l->least, .dtype = SN_I64, .data = &extreme[i]};
    }
    request of_companion = *r; /* the same sizes: they are known */
    of_companion.c = &r->s->p->entry[c->companion];
    of_companion.out = out;
    of_companion.n_out = n;
    ok = ok && execute(&of_companion);
    for (int i = 0; ok && i < c->n_lookup; i++)
        ok = sn_check_index_report(r->s->p->m, c->code.plan->entry->name, &c->lookup[i], r->symbol,
                                   &extreme[2 * i], r->err);
    free(extreme);
    free(out);
    return ok;
}

/* What can be said of a call before its sizes are known. with_data: it will be run. */
static bool begin(request *r, const sn_program *p, const char *entry, bool with_data) {
    if (!p) return sn_fail(r->err, SN_ERR_USAGE, "the session or program is NULL");
    r->c = entry ? sn_program_entry(p, entry) : NULL;
    /* what a preparation reads is freed once the session is open */
    if (!r->c || sn_compiled_prepares(r->c))
        return sn_fail(r->err, SN_ERR_USAGE, "module %s has no entry '%s'", sn_module_name(p->m),
                       entry ? entry : "NULL");
    return sn_bindings_check(r->in, r->n_in, "input", with_data, r->err) &&
           sn_bindings_check(r->out, r->n_out, "output", with_data, r->err);
}

static bool run(request *r) {
    if (atomic_exchange(&r->s->busy, true))
        return sn_fail(r->err, SN_ERR_USAGE,
                       "another thread is running this session; use one session per thread");
    bool ok = solve_all(r) && check_lookups(r) && check_inputs(r) && check_outputs(r) &&
              sn_bindings_check_overlap(r->in, r->n_in, r->out, r->n_out, r->err) && execute(r);
    atomic_store(&r->s->busy, false);
    return ok;
}

bool sn_run(sn_session *s, const char *entry, const sn_arg_binding *in, int n_in,
            const sn_arg_binding *out, int n_out, sn_error *err) {
    request r = {.s = s, .in = in, .out = out, .n_in = n_in, .n_out = n_out, .err = err};
    return begin(&r, s ? s->p : NULL, entry, true) && run(&r);
}

bool sn_session_prepare(sn_session *s, const sn_compiled_entry *c, const sn_arg_binding *out,
                        int n_out, sn_error *err) {
    return run(&(request){.s = s, .c = c, .out = out, .n_out = n_out, .err = err});
}

int sn_output_shape(const sn_program *p, const char *entry, const sn_arg_binding *in, int n_in,
                    const char *output, int64_t shape[8], sn_error *err) {
    sn_session s = {.p = (sn_program *)(uintptr_t)p};
    request r = {.s = &s, .in = in, .n_in = n_in, .err = err};
    if (!begin(&r, p, entry, false)) return -1;
    const sn_binding *o = output ? output_of(r.c->code.plan, output) : NULL;
    if (!o || !shape) {
        sn_fail(err, SN_ERR_USAGE,
                o ? "the array for the shape of %s's '%s' is NULL" : "%s has no output '%s'", entry,
                output ? output : "NULL");
        return -1;
    }
    if (!solve_all(&r)) return -1;
    for (int i = 0; i < o->node->rank; i++)
        shape[i] = sn_dim_eval(p->m, o->node->shape[i], r.symbol);
    return o->node->rank;
}

int64_t sn_program_macs(const sn_program *p, const char *entry, const sn_arg_binding *in, int n_in,
                        sn_error *err) {
    sn_session s = {.p = (sn_program *)(uintptr_t)p};
    request r = {.s = &s, .in = in, .n_in = n_in, .err = err};
    if (!begin(&r, p, entry, false) || !solve_all(&r)) return -1;
    return sn_dim_eval(p->m, r.c->code.products, r.symbol);
}

/* ---- steps of a library ---- */

static bool constant_right(const sn_session *s, const sn_step *step) {
    const sn_plan *plan = s->running->code.plan;
    return sn_kernel_of(step->node)->contraction && s->p->passes.o.constant_params &&
           plan->buffer[step->in[1].buffer].kind == SN_BUF_PARAM;
}

static size_t count_of(const sn_session *s, const sn_kernel *k, const int64_t *dim,
                       const sn_view *v) {
    sn_dim d = sn_dim_product(s->p->m, v->rank, v->shape);
    int64_t n;
    if (sn_dim_is_const(s->p->m, d, &n)) return (size_t)n;
    n = 1;
    for (int i = 0; i < v->rank; i++) {
        int64_t size;
        if (!sn_dim_is_const(s->p->m, v->shape[i], &size))
            size = dim[sn_kernel_dim_slot(k, v->shape[i])];
        n *= size;
    }
    return (size_t)n;
}

/* Starts the collective of a step, or waits for it. */
static bool run_collective(sn_session *s, const sn_step_call *c) {
    const sn_step *step = c->kernel->step;
    sn_collectives *with = s->collectives;
    if (!with)
        return sn_fail(&s->host_error, SN_ERR_USAGE,
                       "%s joins %lld ranks, but this session has no communicator",
                       sn_ops[step->node->op].name,
                       (long long)sn_attr_int(step->node, SN_A_ranks, 1));
    sn_collective call = {step->node,
                          c->buf[0],
                          c->buf[step->n_in],
                          count_of(s, c->kernel, c->dim, &step->in[0]),
                          count_of(s, c->kernel, c->dim, &step->out[0]),
                          step->wait};
    return (step->wait ? with->wait : with->start)(with, &call, &s->host_error);
}

int32_t sn_host_step(void *host, int64_t step, void *const *buf, const int64_t *dim) {
    sn_session *s = host;
    const sn_entry_code *u = &s->running->code;
    const sn_kernel *k = &u->kernel[step % u->plan->n_call];
    sn_step_call c = {k, buf, dim, constant_right(s, k->step)};
    if (s->host_error.code) return 1; /* a step before has failed */
    bool collective = sn_step_is_collective(k->step);
    if (step >= u->plan->n_call && collective && !k->step->wait) return 0; /* not complete yet */
    if (step >= u->plan->n_call)
        return sn_check_values(u->plan, u->check, &c, &s->host_error) ? 0 : 1;
    if (collective) {
        if (s->profile) s->profile->mark(s->profile, step, 0, 0);
        bool done = run_collective(s, &c);
        if (s->profile) s->profile->mark(s->profile, step, 0, 1);
        return done ? 0 : 1;
    }
    const sn_backend *library = sn_backend_library();
    if (!s->library_state && !(s->library_state = library->open(&s->host_error))) return 1;
    int before = sn_threads_default((int)s->threads.n);
    if (s->profile) s->profile->mark(s->profile, step, 0, 0);
    bool ok = library->run(s->library_state, &c, &s->host_error);
    if (s->profile) s->profile->mark(s->profile, step, 0, 1);
    sn_threads_default(before);
    return ok ? 0 : 1;
}
