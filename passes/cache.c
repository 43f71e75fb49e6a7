/* cache.c: caches of keys and values in fewer bits, by the option `cache`.
 *
 *   bf16: state S becomes a state of bf16. What is written is rounded, what is read is widened.
 *   int8: S becomes a state of int8 and a state SN_SCALES "NAME" with one factor a row (of a position
 *         and head): q and s of int8_rows.h; what is read is s q. A row that is not finite is NaN when it
 *         is read.
 *
 * A cache is a state of f32 into which an entry writes whole rows, at positions, and that a product
 * or attention reads (sn_cache_states). All of its values are narrow: updates write narrow rows into
 * narrow states, views select from them, and only what else reads them widens, so a row is rounded
 * once. The evaluator computes what the kernels do: int8 is widened by `dequantise`. Attention reads
 * the narrow rows itself (expand.c).
 *
 * Requires composites, raised. Breaks values by the rounding, on purpose. Terminates: one walk. */
#include "passes/cache.h"
#include "passes/graph_util.h"
#include "passes/int8_rows.h"
#include "passes/passes.h"

#include <string.h>

bool sn_cache_knows(const char *name) {
    return !strcmp(name, "bf16") || !strcmp(name, "int8");
}

/* ---- which states are caches ---- */

static bool is_update(const sn_node *n) {
    return n->op == SN_OP_update_slice || n->op == SN_OP_update_rows;
}

/* Whether it writes whole rows of the last axis. */
static bool writes_rows(const sn_node *n) {
    int last = n->rank - 1;
    if (last < 1) return false;
    if (n->op == SN_OP_update_rows) return sn_attr_int(n, SN_A_axis, last) != last;
    return n->in[1]->shape[last] == n->shape[last];
}

static bool is_state(const sn_node *n, const char *name) {
    return n->op == SN_OP_state && !strcmp(sn_attr_str(n, SN_A_name, ""), name);
}

/* The state that the entry's assignment updates row by row; NULL: it does something else. */
static const sn_node *updated_state(const sn_binding *assign) {
    const sn_node *n = assign->node;
    bool rows = is_update(n);
    for (; is_update(n); n = n->in[0]) rows = rows && writes_rows(n);
    return rows && n->dtype == SN_F32 && is_state(n, assign->name) ? n : NULL;
}

/* Whether the values of the state reach a product, through views, updates, gathers and elementwise ops. */
static bool enters_product(sn_module *m, const sn_entry *e, const char *name) {
    sn_order order = sn_entry_topo(m, e);
    bool *of = sn_arena_alloc(m, sn_module_node_count(m));
    memset(of, 0, sn_module_node_count(m));
    for (int i = 0; i < order.n; i++) {
        sn_node *n = order.node[i];
        bool product = n->op == SN_OP_dot || sn_contains_op(m, n, SN_OP_dot);
        bool follows =
            is_update(n) || sn_is_view(n) || sn_is_elementwise(n) || n->op == SN_OP_gather;
        of[n->id] = is_state(n, name);
        for (int k = 0; k < n->n_in; k++) {
            if (!of[n->in[k]->id]) continue;
            if (product) return true;
            of[n->id] = of[n->id] || follows;
        }
    }
    return false;
}

static bool is_read(sn_module *m, const char *name) {
    for (int i = 0; i < sn_entry_count(m); i++)
        if (enters_product(m, sn_entry_at(m, i), name)) return true;
    return false;
}

const sn_node *const *sn_cache_states(sn_module *m, int *n) {
    const sn_node **list = NULL;
    int cap = 0;
    *n = 0;
    for (int i = 0; i < sn_entry_count(m); i++) {
        const sn_entry *e = sn_entry_at(m, i);
        for (int k = 0; k < e->n_assign; k++) {
            const sn_node *s = updated_state(&e->assign[k]);
            bool known = !s;
            for (int j = 0; j < *n && !known; j++) known = list[j] == s;
            if (known || !is_read(m, e->assign[k].name)) continue;
            list = sn_arena_grow(m, list, sizeof *list, *n, &cap);
            list[(*n)++] = s;
        }
    }
    return list;
}

double sn_cache_bytes(const sn_node *state, const char *cache) {
    double rows = 1, width = (double)state->shape[state->rank - 1];
    for (int a = 0; a < state->rank - 1; a++) rows *= (double)state->shape[a];
    if (!cache || !sn_cache_knows(cache)) return rows * width * (double)sn_dtype_size(state->dtype);
    return rows * (strcmp(cache, "int8") ? 2 * width : width + 4);
}

/* ---- narrow values ---- */

typedef struct narrow {
    sn_node *value, *scale; /* scale NULL: bf16 */
} narrow;

typedef struct caches {
    sn_module *m;
    bool int8;
    const sn_node *const *state;
    int n_state;
} caches;

/* x, f32, in fewer bits */
static narrow rounded(const caches *c, sn_node *x) {
    if (!c->int8) return (narrow){sn_b_cast(x, SN_BF16), NULL};
    sn_int8_rows rows = sn_int8_rows_of(x);
    return (narrow){rows.q, rows.scale};
}

static sn_node *widened(const caches *c, narrow x) {
    return x.scale ? SN_NODE(c->m, dequantise, SN_NO_ATTRS, x.value, x.scale)
                   : sn_b_cast(x.value, SN_F32);
}

/* Whether n is widened from values of a narrow state. */
static bool is_narrow(const caches *c, const sn_node *n) {
    if (n->op != (c->int8 ? SN_OP_dequantise : SN_OP_cast)) return false;
    const sn_node *x = n->in[0];
    while (is_update(x) || sn_is_view(x) || x->op == SN_OP_gather) x = x->in[0];
    for (int i = 0; i < c->n_state && x->dtype != SN_F32; i++)
        if (is_state(x, sn_attr_str(c->state[i], SN_A_name, ""))) return true;
    return false;
}

static narrow narrow_of(const caches *c, sn_node *x) {
    return is_narrow(c, x) ? (narrow){x->in[0], c->int8 ? x->in[1] : NULL} : rounded(c, x);
}

/* The state in fewer bits, or its factors. */
static sn_node *narrow_state(const sn_node *n, const char *prefix, sn_dtype t, sn_dim width) {
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, n->shape, sizeof *shape * n->rank);
    shape[n->rank - 1] = width;
    const char *name = sn_attr_str(n, SN_A_name, "");
    return sn_node_new(n->m, SN_OP_state, 0, NULL,
                       SN_ATTRS(SN_STR(name, sn_arena_printf(n->m, "%s%s", prefix, name)),
                                SN_INT(dtype, t), SN_LIST(shape, n->rank, shape)));
}

static narrow narrowed_state(const caches *c, const sn_node *n) {
    sn_dim width = n->shape[n->rank - 1];
    if (!c->int8) return (narrow){narrow_state(n, "", SN_BF16, width), NULL};
    return (narrow){narrow_state(n, "", SN_I8, width), narrow_state(n, SN_SCALES, SN_F32, 1)};
}

/* n with these operands in place of its first ones. */
static sn_node *with_operands(const sn_node *n, int count, sn_node *const *first) {
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * n->n_in);
    for (int i = 0; i < n->n_in; i++) in[i] = i < count ? first[i] : n->in[i];
    return sn_node_new(n->m, n->op, n->n_in, in, n->n_attr, n->attr);
}

static narrow updated(const caches *c, const sn_node *n) {
    narrow x = narrow_of(c, n->in[0]), y = narrow_of(c, n->in[1]);
    narrow z = {with_operands(n, 2, (sn_node *[]){x.value, y.value}), NULL};
    if (x.scale) z.scale = with_operands(n, 2, (sn_node *[]){x.scale, y.scale});
    return z;
}

/* Whether the rows of a view of x are rows of x. */
static bool keeps_rows(const sn_node *n) {
    const sn_node *x = n->in[0];
    int last = n->rank - 1;
    if (n->rank < 2 || n->shape[last] != x->shape[x->rank - 1]) return false;
    const sn_attr *perm = sn_attr_get(n, SN_A_perm), *step = sn_attr_get(n, SN_A_step);
    if (n->op == SN_OP_gather) return sn_attr_int(n, SN_A_axis, 0) != x->rank - 1;
    if (perm) return perm->v[last] == x->rank - 1;
    if (step && step->v[last] != 1) return false;
    return n->op == SN_OP_reshape || n->op == SN_OP_slice || n->op == SN_OP_broadcast;
}

/* The same of the factors, whose rows have one element. */
static sn_node *view_of_scale(const sn_node *n, sn_node *scale) {
    sn_attr attr[8];
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (attr[i].key != SN_A_shape && attr[i].key != SN_A_size) continue;
        sn_dim *v = sn_arena_alloc(n->m, sizeof *v * (size_t)attr[i].n);
        memcpy(v, attr[i].v, sizeof *v * (size_t)attr[i].n);
        v[attr[i].n - 1] = 1;
        attr[i].v = v;
    }
    sn_node *in[2] = {scale, n->n_in > 1 ? n->in[1] : NULL};
    return sn_node_new(n->m, n->op, n->n_in, in, n->n_attr, attr);
}

static narrow viewed(const caches *c, const sn_node *n) {
    narrow x = narrow_of(c, n->in[0]);
    narrow y = {with_operands(n, 1, &x.value), NULL};
    if (x.scale) y.scale = view_of_scale(n, x.scale);
    return y;
}

static sn_node *rule(void *ctx, sn_node *n) {
    const caches *c = ctx;
    for (int i = 0; i < c->n_state && n->op == SN_OP_state; i++)
        if (n == c->state[i]) return widened(c, narrowed_state(c, n));
    if (!n->n_in || !is_narrow(c, n->in[0])) return n;
    if (is_update(n) && writes_rows(n)) return widened(c, updated(c, n));
    bool moves = sn_is_view(n) || n->op == SN_OP_gather;
    return moves && keeps_rows(n) ? widened(c, viewed(c, n)) : n;
}

/* The states get narrow values. */
static void assign_narrow(const caches *c, sn_entry *e) {
    for (int i = 0, n = e->n_assign; i < n; i++)
        for (int k = 0; k < c->n_state; k++) {
            const char *name = e->assign[i].name;
            if (!is_state(c->state[k], name)) continue;
            narrow x = narrow_of(c, e->assign[i].node);
            sn_entry_assign(c->m, e, name, x.value);
            if (x.scale)
                sn_entry_assign(c->m, e, sn_arena_printf(c->m, SN_SCALES "%s", name), x.scale);
        }
}

static void report(sn_passes *p, const caches *c) {
    double before = 0, after = 0;
    for (int i = 0; i < c->n_state; i++) {
        before += sn_cache_bytes(c->state[i], NULL);
        after += sn_cache_bytes(c->state[i], p->o.cache);
    }
    sn_remark_add(p, "cache", c->state[0], false,
                  "%d cache%s of keys and values in %s: %.1f MB instead of %.1f MB", c->n_state,
                  c->n_state > 1 ? "s" : "", p->o.cache, after / 1e6, before / 1e6);
}

int sn_pass_cache(sn_passes *p) {
    if (!p->o.cache) return 0;
    caches c = {.m = p->m, .int8 = !strcmp(p->o.cache, "int8")};
    c.state = sn_cache_states(p->m, &c.n_state);
    if (!c.n_state) return 0;
    int count = sn_rewrite_module(p->m, rule, &c);
    for (int i = 0; i < sn_entry_count(p->m); i++) assign_narrow(&c, sn_entry_at(p->m, i));
    report(p, &c);
    return count;
}
