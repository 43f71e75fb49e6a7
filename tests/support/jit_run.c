/* jit_run.c: compiles and runs an entry and compares with the evaluator; see jit_run.h. */
#include "tests/support/jit_run.h"
#include "runtime/rng.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 512, GUARD_BYTE = 0xA5, GARBAGE = 0xEE, MAX_SYMBOLS = 16 };

static bool fail(jit_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(jit_run *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- guarded memory ---- */

/* `bytes` bytes at *data, off by one element from an aligned address, with guards on both sides. */
static unsigned char *guarded(size_t bytes, size_t element, void **data) {
    unsigned char *block = aligned_alloc(64, (bytes + element + 2 * GUARD + 63) & ~(size_t)63);
    if (!block) abort();
    memset(block, GUARD_BYTE, GUARD + element);
    memset(block + GUARD + element, GARBAGE, bytes);
    memset(block + GUARD + element + bytes, GUARD_BYTE, GUARD - element);
    *data = block + GUARD + element;
    return block;
}

static bool guards_hold(const unsigned char *block, size_t bytes, size_t element) {
    for (size_t i = 0; i < GUARD + element; i++)
        if (block[i] != GUARD_BYTE) return false;
    for (size_t i = 0; i < GUARD - element; i++)
        if (block[GUARD + element + bytes + i] != GUARD_BYTE) return false;
    return true;
}

/* ---- leaves ---- */

typedef struct leaf_list {
    const sn_node *node[JIT_MAX];
    int n;
} leaf_list;

/* Leaves of one kind that the entry reads (and states that it only assigns). */
static bool list_leaves(sn_module *m, const sn_entry *e, sn_op op, leaf_list *l) {
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (n->op != op) continue;
        bool known = false;
        for (int k = 0; k < l->n; k++)
            known |= !strcmp(sn_attr_str(l->node[k], SN_A_name, ""), sn_attr_str(n, SN_A_name, ""));
        if (known) continue;
        if (l->n == JIT_MAX) return false;
        l->node[l->n++] = n;
    }
    return true;
}

static void eval_shape(const sn_node *n, const int64_t *symbol, int64_t *shape, size_t *count) {
    *count = 1;
    for (int a = 0; a < n->rank; a++) {
        shape[a] = sn_dim_eval(n->m, n->shape[a], symbol);
        *count *= (size_t)shape[a];
    }
}

/* ---- opening and closing ---- */

static bool bind_params(jit_run *r, sn_arg_binding *arg, int64_t (*shape)[SN_MAX_RANK]) {
    leaf_list params = {.n = 0};
    int64_t symbol[MAX_SYMBOLS] = {0};
    for (int i = 0; i < sn_entry_count(r->m); i++)
        if (!list_leaves(r->m, sn_entry_at(r->m, i), SN_OP_param, &params))
            return fail(r, "more parameters than the test can hold");
    for (int i = 0; i < params.n; i++) {
        const sn_node *n = params.node[i];
        jit_leaf *p = &r->param[r->n_param++];
        size_t count;
        eval_shape(n, symbol, shape[i], &count);
        p->name = sn_attr_str(n, SN_A_name, "");
        p->block = guarded(count * sn_dtype_size((sn_dtype)n->dtype),
                           sn_dtype_size((sn_dtype)n->dtype), &p->data);
        void *data = r->data(r->ctx, n, symbol, &p->bytes);
        if (!data) return fail(r, "no data for '%s'", p->name);
        memcpy(p->data, data, p->bytes);
        free(data);
        arg[i] = (sn_arg_binding){p->name, (sn_dtype)n->dtype, n->rank, shape[i], p->data};
    }
    return true;
}

bool jit_open(jit_run *r, sn_module *m, const sn_options *o, jit_data_fn *data, void *ctx) {
    *r = (jit_run){.m = m, .data = data, .ctx = ctx};
    r->bf16 = o->compute && !strcmp(o->compute, "bf16");
    sn_error err = {0};
    sn_arg_binding arg[JIT_MAX];
    int64_t shape[JIT_MAX][SN_MAX_RANK];
    if (!bind_params(r, arg, shape)) return false;
    r->p = sn_compile(m, o, &err);
    if (r->p) r->s = sn_session_new_arrays(r->p, arg, r->n_param, &err);
    return r->s ? true : fail(r, "%s: %s", r->p ? "session" : "compile", err.message);
}

void jit_close(jit_run *r) {
    sn_session_free(r->s);
    sn_program_free(r->p);
    for (int i = 0; i < r->n_param; i++) free(r->param[i].block);
    r->n_param = 0;
    r->s = NULL;
    r->p = NULL;
}

void jit_result_free(jit_result *v) {
    for (int i = 0; i < v->n; i++) free(v->value[i].bytes);
    v->n = 0;
}

/* ---- one call ---- */

typedef struct call {
    jit_run *r;
    const sn_entry *e;
    const int64_t *symbol;
    sn_arg_binding in[2 * JIT_MAX], out[JIT_MAX];
    int64_t shape[3 * JIT_MAX][SN_MAX_RANK];
    unsigned char *block[2 * JIT_MAX];
    void *original[JIT_MAX]; /* the inputs' elements, which must not change */
    size_t bytes[2 * JIT_MAX];
    int n_in, n_out, n_block;
} call;

static bool add_inputs(call *c) {
    leaf_list inputs = {.n = 0};
    if (!list_leaves(c->r->m, c->e, SN_OP_input, &inputs))
        return fail(c->r, "more inputs than the test can hold");
    for (int i = 0; i < inputs.n; i++) {
        const sn_node *n = inputs.node[i];
        size_t count, size = sn_dtype_size((sn_dtype)n->dtype);
        eval_shape(n, c->symbol, c->shape[i], &count);
        void *data = c->r->data(c->r->ctx, n, c->symbol, &c->bytes[i]), *place;
        if (!data) return fail(c->r, "no data for an input");
        c->block[c->n_block++] = guarded(c->bytes[i], size, &place);
        memcpy(place, data, c->bytes[i]);
        c->original[i] = data;
        c->in[c->n_in++] = (sn_arg_binding){sn_attr_str(n, SN_A_name, ""), (sn_dtype)n->dtype,
                                            n->rank, c->shape[i], place};
    }
    return true;
}

static void add_symbols(call *c) {
    for (int s = 0; s < sn_symbol_count(c->r->m); s++)
        c->in[c->n_in++] = (sn_arg_binding){.name = sn_symbol_at(c->r->m, s)->name,
                                            .dtype = SN_I64,
                                            .data = (void *)(uintptr_t)&c->symbol[s]};
}

static bool add_outputs(call *c) {
    if (c->e->n_output > JIT_MAX) return fail(c->r, "more outputs than the test can hold");
    for (int i = 0; i < c->e->n_output; i++) {
        const sn_binding *o = &c->e->output[i];
        size_t count, size = sn_dtype_size((sn_dtype)o->node->dtype);
        int64_t *shape = c->shape[JIT_MAX + i];
        void *place;
        eval_shape(o->node, c->symbol, shape, &count);
        c->bytes[c->n_block] = count * size;
        c->block[c->n_block++] = guarded(count * size, size, &place);
        c->out[c->n_out++] =
            (sn_arg_binding){o->name, (sn_dtype)o->node->dtype, o->node->rank, shape, place};
    }
    return true;
}

static bool set_states(call *c) {
    leaf_list states = {.n = 0};
    sn_error err = {0};
    list_leaves(c->r->m, c->e, SN_OP_state, &states);
    for (int i = 0; i < states.n; i++) {
        size_t bytes;
        void *data = c->r->data(c->r->ctx, states.node[i], c->symbol, &bytes);
        if (!data) return fail(c->r, "no data for a state");
        bool ok =
            sn_state_write(c->r->s, sn_attr_str(states.node[i], SN_A_name, ""), data, bytes, &err);
        free(data);
        if (!ok) return fail(c->r, "%s", err.message);
    }
    return true;
}

static bool check_guards(call *c) {
    for (int i = 0; i < c->n_block; i++) {
        const sn_arg_binding *a =
            i < c->n_block - c->n_out ? &c->in[i] : &c->out[i - (c->n_block - c->n_out)];
        if (!guards_hold(c->block[i], c->bytes[i], sn_dtype_size(a->dtype)))
            return fail(c->r, "memory around '%s' was written", a->name);
        if (a == &c->in[i] && memcmp(a->data, c->original[i], c->bytes[i]))
            return fail(c->r, "input '%s' was written", a->name);
    }
    for (int i = 0; i < c->r->n_param; i++) {
        const jit_leaf *p = &c->r->param[i];
        size_t before = (size_t)((unsigned char *)p->data - p->block);
        if (!guards_hold(p->block, p->bytes, before - GUARD))
            return fail(c->r, "memory around parameter '%s' was written", p->name);
    }
    return true;
}

static bool collect(call *c, jit_result *out) {
    sn_error err = {0};
    for (int i = 0; i < c->n_out + c->e->n_assign; i++) {
        const sn_binding *b = i < c->n_out ? &c->e->output[i] : &c->e->assign[i - c->n_out];
        if (out->n == JIT_MAX) return fail(c->r, "more results than the test can hold");
        jit_value *v = &out->value[out->n++];
        *v = (jit_value){.name = b->name, .node = b->node};
        int64_t shape[SN_MAX_RANK];
        eval_shape(b->node, c->symbol, shape, &v->n);
        size_t bytes = v->n * sn_dtype_size((sn_dtype)b->node->dtype);
        v->bytes = malloc(bytes + 1);
        if (!v->bytes) abort();
        if (i < c->n_out)
            memcpy(v->bytes, c->out[i].data, bytes);
        else if (!sn_state_read(c->r->s, b->name, v->bytes, bytes, &err))
            return fail(c->r, "%s", err.message);
    }
    return true;
}

bool jit_call(jit_run *r, const char *entry, const int64_t *symbol, jit_result *out) {
    sn_error err = {0};
    call *c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (call){.r = r, .e = sn_entry_get(r->m, entry), .symbol = symbol};
    out->n = 0;
    bool ok = c->e ? add_inputs(c) : fail(r, "no entry '%s'", entry);
    if (ok) {
        add_symbols(c);
        ok = add_outputs(c) && set_states(c);
    }
    if (ok && !sn_run(r->s, entry, c->in, c->n_in, c->out, c->n_out, &err))
        ok = fail(r, "run: %s", err.message);
    ok = ok && check_guards(c) && collect(c, out);
    for (int i = 0; i < c->n_block; i++) free(c->block[i]);
    for (int i = 0; i < JIT_MAX; i++) free(c->original[i]);
    free(c);
    return ok;
}

/* ---- against the evaluator ---- */

double jit_element(const jit_value *v, size_t i) {
    sn_dtype t = (sn_dtype)v->node->dtype; /* for bool the stored byte, which must be 0 or 1 */
    return sn_dtype_load(t == SN_BOOL ? SN_U8 : t, v->bytes, (int64_t)i);
}

/* Kernels flush subnormals to zero, the evaluator does not, so it gets zeros. */
static void flush_subnormals(sn_dtype t, void *data, size_t bytes) {
    static const double least[SN_DTYPE_COUNT] = {
        [SN_F32] = FLT_MIN, [SN_BF16] = FLT_MIN, [SN_F64] = DBL_MIN};
    size_t size = sn_dtype_size(t);
    for (size_t i = 0; least[t] > 0 && i < bytes / size; i++) {
        double v = sn_dtype_load(t, data, (int64_t)i);
        unsigned char *p = (unsigned char *)data + i * size, sign = p[size - 1] & 0x80;
        if (!(v != 0 && fabs(v) < least[t])) continue;
        memset(p, 0, size);
        p[size - 1] = sign;
    }
}

static sn_eval *new_eval(jit_run *r, const sn_entry *e, const int64_t *symbol, bool exact) {
    sn_eval *ev = sn_eval_new(r->m, symbol);
    if (!ev) return NULL;
    sn_eval_set_exact(ev, exact);
    sn_eval_set_bf16(ev, r->bf16 && !exact);
    static const sn_op kinds[] = {SN_OP_input, SN_OP_param, SN_OP_state};
    leaf_list l = {.n = 0};
    for (int k = 0; k < 3; k++) list_leaves(r->m, e, kinds[k], &l);
    for (int i = 0; i < l.n; i++) {
        size_t bytes;
        void *data = r->data(r->ctx, l.node[i], symbol, &bytes);
        if (data) flush_subnormals((sn_dtype)l.node[i]->dtype, data, bytes);
        if (data) sn_eval_bind(ev, sn_attr_str(l.node[i], SN_A_name, ""), data, bytes);
        free(data);
    }
    return ev;
}

static bool close_to(double got, double want, double room) {
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want)) return got == want;
    return fabs(got - want) <= room;
}

static bool compare(jit_run *r, const jit_value *v, sn_node *n, sn_eval *exact, sn_eval *rounded,
                    double tol, double slack) {
    const sn_value *want = sn_eval_node(exact, n), *near = want;
    if (want && rounded) near = sn_eval_node(rounded, n);
    if (!want || !near) return fail(r, "evaluator: %s", sn_module_error(r->m)->message);
    bool narrow = n->dtype == SN_F32; /* what overflows f32 is infinite on both sides */
    size_t nan = 0;
    for (size_t i = 0; i < v->n; i++) {
        double w = narrow ? (float)want->data[i] : want->data[i], got = jit_element(v, i);
        double unsure = slack * fabs(want->data[i] - near->data[i]);
        bool alike = close_to(near->data[i], want->data[i], INFINITY);
        if (!alike) continue; /* undecided by rounding whether finite or not */
        nan += isnan(w);
        if (r->loose && !isfinite(w)) continue;
        if (!isfinite(want->data[i])) unsure = 0;
        double room = sn_dtype_is_float((sn_dtype)n->dtype) ? tol * (1 + fabs(w)) + FLT_MIN : 0;
        if (isfinite(got) && isfinite(w)) r->worst = fmax(r->worst, fabs(got - w) / (1 + fabs(w)));
        if (!close_to(got, w, room + unsure))
            return fail(r, "'%s': element %zu of %zu is %.17g, not %.17g", v->name, i, v->n, got,
                        w);
    }
    bool shows = !r->loose || r->allow_nan || nan < 2 ||
                 nan < v->n; /* single elements may be NaN on purpose */
    return shows || fail(r, "'%s' is NaN everywhere: nothing is compared", v->name);
}

bool jit_check_begin(jit_run *r, const char *entry, const int64_t *symbol, jit_checks *c) {
    *c = (jit_checks){.entry = sn_entry_get(r->m, entry), .symbol = symbol};
    if (!jit_call(r, entry, symbol, &c->got)) return false;
    c->exact = new_eval(r, c->entry, symbol, !r->single);
    return true;
}

bool jit_check_value(jit_run *r, jit_checks *c, int i, double tol, double slack) {
    const jit_value *v = &c->got.value[i];
    sn_node *n = (sn_node *)(uintptr_t)v->node;
    if (compare(r, v, n, c->exact, NULL, tol, 0)) return true;
    if (slack <= 0 || r->single) return false;
    if (!c->rounded) c->rounded = new_eval(r, c->entry, c->symbol, false);
    return compare(r, v, n, c->exact, c->rounded, tol, slack);
}

void jit_check_end(jit_checks *c) {
    sn_eval_free(c->exact);
    sn_eval_free(c->rounded);
    jit_result_free(&c->got);
}

bool jit_check(jit_run *r, const char *entry, const int64_t *symbol, double tol, double slack) {
    jit_checks c;
    bool ok = jit_check_begin(r, entry, symbol, &c);
    for (int i = 0; ok && i < c.got.n; i++) ok = jit_check_value(r, &c, i, tol, slack);
    jit_check_end(&c);
    return ok;
}

bool jit_matches(sn_module *m, const sn_options *o, const int64_t *symbol, jit_data_fn *data,
                 void *ctx, double tol, double slack, char *why) {
    jit_run r;
    bool ok = jit_open(&r, m, o, data, ctx);
    for (int e = 0; ok && e < sn_entry_count(m); e++)
        ok = jit_check(&r, sn_entry_at(m, e)->name, symbol, tol, slack);
    if (!ok) snprintf(why, JIT_WHY, "%s", r.why);
    jit_close(&r);
    return ok;
}

/* ---- against other thread counts ---- */

static bool equal_results(jit_run *r, const char *entry, const jit_result *a, const jit_result *b) {
    for (int i = 0; i < a->n; i++) {
        const jit_value *v = &a->value[i], *w = &b->value[i];
        size_t size = sn_dtype_size((sn_dtype)v->node->dtype);
        if (v->n != w->n || memcmp(v->bytes, w->bytes, v->n * size))
            return fail(r, "entry %s: '%s' has other bits", entry, v->name);
    }
    return true;
}

bool jit_same_bits(sn_module *m, const sn_options *o, const int64_t *symbol, jit_data_fn *data,
                   void *ctx, char *why) {
    static const int threads[] = {1, 2, 3, 7};
    int n = sn_entry_count(m);
    jit_result *one = calloc((size_t)n + 1, sizeof *one), *more = calloc(1, sizeof *more);
    if (!one || !more) abort();
    bool ok = true;
    for (int t = 0; ok && t < 4; t++) {
        sn_options with = *o;
        with.threads = threads[t];
        jit_run r;
        ok = jit_open(&r, m, &with, data, ctx);
        for (int e = 0; ok && e < n; e++) {
            const char *name = sn_entry_at(m, e)->name;
            ok = jit_call(&r, name, symbol, t ? more : &one[e]);
            if (t) ok = ok && equal_results(&r, name, &one[e], more);
            jit_result_free(more);
        }
        if (!ok) snprintf(why, JIT_WHY, "%d threads: %.*s", threads[t], JIT_WHY - 32, r.why);
        jit_close(&r);
    }
    for (int e = 0; e < n; e++) jit_result_free(&one[e]);
    free(one);
    free(more);
    return ok;
}

void *jit_random_leaf(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    size_t n = 1;
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    void *data = malloc(*bytes + 1);
    sn_rng r = {.seed = leaf->hash, .stream = SN_STREAM_DATA};
    for (size_t i = 0; data && i < n; i++) {
        double z = sn_rng_normal(&r) * 0.7;
        if (sn_dtype_is_float((sn_dtype)leaf->dtype))
            sn_dtype_store((sn_dtype)leaf->dtype, data, (int64_t)i, z);
        else if (leaf->dtype == SN_I64)
            ((int64_t *)data)[i] = (int64_t)i + 41;
        else
            ((int32_t *)data)[i] = (int32_t)(i % 140 / 37);
    }
    return data;
}
