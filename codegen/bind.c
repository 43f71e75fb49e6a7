/* bind.c: parameters and states of a session: where their memory is, what they begin with, and the
 * preparation of weights (packing, quantising) when the session is made. */
#include "codegen/session.h"

#include <stdlib.h>
#include <string.h>

bound *sn_session_find(bound *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

/* ---- parameters and states ---- */

bool sn_session_is_prepared(const char *name) {
    return !strncmp(name, "@prepared.", 10);
}

static bool add_bound(bound **list, int *n, bound b, sn_error *err) {
    if (sn_session_find(*list, *n, b.name)) return true;
    bound *grown = realloc(*list, sizeof *grown * (size_t)(*n + 1));
    if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *list = grown;
    grown[(*n)++] = b;
    return true;
}

/* The number of elements of a fixed shape; -1: it is symbolic, or the number overflows. */
static int64_t fixed_count(const sn_node *n) {
    int64_t count = 1, v;
    for (int a = 0; a < n->rank; a++)
        if (!sn_dim_is_const(n->m, n->shape[a], &v) || __builtin_mul_overflow(count, v, &count))
            return -1;
    return count;
}

static bool add_owned(sn_session *s, bound **list, int *count, const char *name, const sn_node *n,
                      sn_error *err) {
    int64_t elements = fixed_count(n);
    if (sn_session_find(*list, *count, name)) return true;
    if (elements < 0)
        return sn_fail(err, SN_ERR_SHAPE,
                       "'%s' has a symbolic shape; parameters and states need a fixed one", name);
    size_t bytes = (size_t)elements * sn_dtype_size((sn_dtype)n->dtype);
    void *data = sn_memory_pool_alloc(&s->pool, bytes);
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for '%s'", bytes, name);
    memset(data, 0, bytes);
    return add_bound(list, count, (bound){name, data, bytes}, err);
}

static bool misfit_weight(const origin *o, const char *name, const sn_weight *w, const sn_node *n,
                          sn_error *err) {
    return sn_fail(err, SN_ERR_FILE, "%s: tensor '%s' is %s, the model needs %s",
                   sn_weights_path(o->weights), name, sn_dtype_name(w->dtype),
                   sn_dtype_name((sn_dtype)n->dtype));
}

static bool add_weight(sn_session *s, const sn_node *n, origin *o, sn_error *err) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    int64_t shape[SN_MAX_RANK];
    for (int a = 0; a < n->rank; a++) shape[a] = n->shape[a];
    const sn_weight *w = sn_weights_need(o->weights, name, n->rank, shape, &o->problems);
    if (!w) /* reported once, with all the others */
        return add_bound(&s->param, &s->n_param, (bound){name, NULL, 0}, err);
    if (w->dtype == n->dtype && ((uintptr_t)w->data & 3) == 0)
        return add_bound(&s->param, &s->n_param,
                         (bound){name, (void *)(uintptr_t)w->data, w->bytes}, err);
    if (n->dtype != SN_F32 || !sn_dtype_is_float(w->dtype))
        return misfit_weight(o, name, w, n, err);
    if (!add_owned(s, &s->param, &s->n_param, name, n, err)) return false;
    sn_weight_to_f32(w, sn_session_find(s->param, s->n_param, name)->data);
    return true;
}

/* The array of parameter n. NULL: there is none that fits, which is reported once, with all others.
 */
static const sn_arg_binding *need_array(const sn_node *n, origin *o) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    const sn_arg_binding *a = NULL;
    for (int i = 0; i < o->n_array && !a; i++)
        if (!strcmp(o->array[i].name, name)) a = &o->array[i];
    if (!a) {
        sn_problem(&o->problems, "parameter '%s' is not bound", name);
        return NULL;
    }
    bool fits = a->dtype == n->dtype && a->rank == n->rank;
    for (int i = 0; fits && i < n->rank; i++) fits = a->shape[i] == n->shape[i];
    if (fits) return a;
    char want[160] = "";
    for (int i = 0, at = 0; i < n->rank && at < (int)sizeof want; i++)
        at += snprintf(want + at, sizeof want - (size_t)at, i ? ", %lld" : "%lld",
                       (long long)n->shape[i]);
    sn_problem(&o->problems,
               "parameter '%s' is bound to a tensor of another type or shape, expected %s [%s]",
               name, sn_dtype_name((sn_dtype)n->dtype), want);
    return NULL;
}

static bool add_array(sn_session *s, const sn_node *n, origin *o, sn_error *err) {
    const sn_arg_binding *a = need_array(n, o);
    return add_bound(&s->param, &s->n_param,
                     (bound){sn_attr_str(n, SN_A_name, ""), a ? a->data : NULL, 0}, err);
}

static bool add_param(sn_session *s, const char *name, const sn_node *n, origin *o, sn_error *err) {
    if (sn_session_is_prepared(name)) return add_owned(s, &s->param, &s->n_param, name, n, err);
    return o->weights ? add_weight(s, n, o, err) : add_array(s, n, o, err);
}

/* The first value of a parameter that an entry assigns, in memory of the session's own. */
static bool copy_trained(const bound *b, const sn_node *n, origin *o, sn_error *err) {
    if (!o->weights) {
        const sn_arg_binding *a = need_array(n, o);
        if (a) memcpy(b->data, a->data, b->bytes);
        return true; /* a missing one is reported with all the others */
    }
    const sn_weight *w = sn_weights_need(o->weights, b->name, n->rank, n->shape, &o->problems);
    if (!w) return true; /* reported once, with all the others */
    if (w->dtype == n->dtype)
        memcpy(b->data, w->data, b->bytes);
    else if (n->dtype == SN_F32 && sn_dtype_is_float(w->dtype))
        sn_weight_to_f32(w, b->data);
    else
        return misfit_weight(o, b->name, w, n, err);
    return true;
}

static bool add_state(sn_session *s, const char *name, const sn_node *n, origin *o, sn_error *err) {
    const sn_node *trained = sn_program_trained(s->p, name);
    return add_owned(s, &s->state, &s->n_state, name, n, err) &&
           (!trained || copy_trained(&s->state[s->n_state - 1], trained, o, err));
}

static bool add_leaves(sn_session *s, origin *o, sn_error *err) {
    for (int i = 0; i < s->p->n_leaf; i++) {
        const sn_leaf *l = &s->p->leaf[i];
        if (!(l->state ? add_state : add_param)(s, l->name, l->node, o, err)) return false;
    }
    return true;
}

/* ---- buffer tables and preparation ---- */

/* The part of each entry's buffer table that never changes. */
static bool fix_tables(sn_session *s, sn_error *err) {
    s->fixed = calloc((size_t)s->p->n_entry + 1, sizeof *s->fixed);
    if (!s->fixed) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < s->p->n_entry; i++) {
        const sn_unit *u = &s->p->entry[i].unit;
        s->fixed[i] = calloc((size_t)u->n_table + 1, sizeof **s->fixed);
        if (!s->fixed[i]) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        for (int b = 0; b < u->plan->n_buffer; b++) {
            const sn_buffer *buf = &u->plan->buffer[b];
            const bound *own =
                buf->kind == SN_BUF_PARAM   ? sn_session_find(s->param, s->n_param, buf->name)
                : buf->kind == SN_BUF_STATE ? sn_session_find(s->state, s->n_state, buf->name)
                                            : NULL;
            if (own) s->fixed[i][u->table[b]] = own->data;
        }
    }
    return true;
}

static bool prepare(sn_session *s, sn_error *err) {
    sn_compiled_entry *c = sn_program_entry(s->p, "@prepare");
    if (!c) return true;
    const sn_entry *e = c->unit.plan->entry;
    sn_arg_binding *out = calloc((size_t)e->n_output, sizeof *out);
    if (!out) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < e->n_output; i++) {
        const sn_node *n = e->output[i].node;
        bound *b = sn_session_find(s->param, s->n_param, e->output[i].name);
        out[i] = (sn_arg_binding){e->output[i].name, (sn_dtype)n->dtype, n->rank, n->shape,
                                  b ? b->data : NULL};
    }
    bool ok = sn_run(s, "@prepare", NULL, 0, out, e->n_output, err);
    free(out);
    return ok;
}

bool sn_session_bind(sn_session *s, origin *o, sn_error *err) {
    return add_leaves(s, o, err) &&
           sn_problems_check(&o->problems,
                             o->weights ? sn_weights_path(o->weights) : "sn_session_new_arrays",
                             o->weights ? SN_ERR_FILE : SN_ERR_SHAPE, err) &&
           fix_tables(s, err) && prepare(s, err);
}
