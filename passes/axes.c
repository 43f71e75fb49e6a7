/* axes.c: see axes.h. */
#include "passes/axes.h"
#include "passes/graph_util.h"

int sn_axes_number(const sn_axes_body *p, const sn_node *n, int a) {
    return p->first + p->index[n->id] * SN_MAX_RANK + a;
}

int sn_axes_class(sn_axes *t, int x) {
    while (t->up[x] != x) x = t->up[x] = t->up[t->up[x]];
    return x;
}

static void mark(sn_axes *t, int x, int fate) {
    uint8_t *f = &t->fate[sn_axes_class(t, x)];
    *f = (uint8_t)(*f | fate);
}

static void join(sn_axes *t, int x, int y) {
    x = sn_axes_class(t, x);
    y = sn_axes_class(t, y);
    t->up[y] = x;
    mark(t, x, t->fate[y]);
}

static void spoil(sn_axes *t, int x) {
    mark(t, x, SN_AXIS_CUT);
}

static void spoil_all(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    for (int a = 0; a < n->rank; a++) spoil(t, sn_axes_number(p, n, a));
}

static bool listed(const sn_attr *list, int a) {
    for (int i = 0; list && i < list->n; i++)
        if (list->v[i] == a) return true;
    return false;
}

/* ---- one function per kind of node: which axes of n and its operands go along ---- */

static void along_same(sn_axes *t, const sn_axes_body *p, const sn_node *n, int but) {
    for (int i = 0; i < n->n_in; i++)
        for (int a = 0; a < n->rank; a++) {
            join(t, sn_axes_number(p, n, a), sn_axes_number(p, n->in[i], a));
            if (a == but) spoil(t, sn_axes_number(p, n, a));
        }
}

static void along_elements(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    along_same(t, p, n, -1);
}

static void along_axis(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    along_same(t, p, n, (int)sn_attr_int(n, SN_A_axis, 0));
}

static void along_iota(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    spoil(t, sn_axes_number(p, n, (int)sn_attr_int(n, SN_A_axis, 0)));
}

static void along_broadcast(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    const sn_node *x = n->in[0];
    int missing = n->rank - x->rank;
    for (int a = 0; a < x->rank; a++)
        if (x->shape[a] == n->shape[a + missing])
            join(t, sn_axes_number(p, n, a + missing), sn_axes_number(p, x, a));
}

static void along_reshape(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    const sn_node *x = n->in[0];
    int i = 0, j = 0;
    while (i < x->rank && j < n->rank) {
        if (x->shape[i] == n->shape[j]) {
            join(t, sn_axes_number(p, n, j++), sn_axes_number(p, x, i++));
        } else if (x->shape[i] == 1) {
            i++;
        } else if (n->shape[j] == 1) {
            j++;
        } else { /* several axes become several others */
            int64_t from, to;
            sn_dim a = x->shape[i], b = n->shape[j];
            spoil(t, sn_axes_number(p, x, i++));
            spoil(t, sn_axes_number(p, n, j++));
            while (a != b && i <= x->rank && j <= n->rank) {
                bool known = sn_dim_is_const(t->m, a, &from) && sn_dim_is_const(t->m, b, &to);
                bool more = known ? from < to : j == n->rank;
                if (more && i < x->rank) {
                    a = sn_dim_mul(t->m, a, x->shape[i]);
                    spoil(t, sn_axes_number(p, x, i++));
                } else if (j < n->rank) {
                    b = sn_dim_mul(t->m, b, n->shape[j]);
                    spoil(t, sn_axes_number(p, n, j++));
                } else {
                    break;
                }
            }
        }
    }
    for (; i < x->rank; i++) spoil(t, sn_axes_number(p, x, i));
    for (; j < n->rank; j++) spoil(t, sn_axes_number(p, n, j));
}

static void along_transpose(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    for (int a = 0; a < n->rank; a++)
        join(t, sn_axes_number(p, n, a), sn_axes_number(p, n->in[0], (int)perm->v[a]));
}

/* Axes that keep their size: of a slice or a pad, all of them. */
static void along_window(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    const sn_attr *start = sn_attr_get(n, n->op == SN_OP_slice ? SN_A_start : SN_A_low);
    for (int a = 0; a < n->rank; a++) {
        join(t, sn_axes_number(p, n, a), sn_axes_number(p, n->in[0], a));
        if (n->shape[a] != n->in[0]->shape[a] || start->v[a]) spoil(t, sn_axes_number(p, n, a));
    }
}

static void along_reduce(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    for (int a = 0; a < n->rank; a++)
        if (listed(axes, a))
            mark(t, sn_axes_number(p, n->in[0], a), SN_AXIS_REDUCED);
        else
            join(t, sn_axes_number(p, n, a), sn_axes_number(p, n->in[0], a));
}

static void along_dot(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    static const sn_attr_key keys[2][2] = {{SN_A_batch_a, SN_A_contract_a},
                                           {SN_A_batch_b, SN_A_contract_b}};
    int at = 0;
    for (int i = 0; i < 2; i++) {
        const sn_attr *batch = sn_attr_get(n, keys[i][0]), *sum = sn_attr_get(n, keys[i][1]);
        for (int k = 0; batch && k < batch->n; k++)
            join(t, sn_axes_number(p, n, k), sn_axes_number(p, n->in[i], (int)batch->v[k]));
        if (!i) at = batch ? batch->n : 0;
        for (int a = 0; a < n->in[i]->rank; a++) {
            if (listed(sum, a))
                mark(t, sn_axes_number(p, n->in[i], a), SN_AXIS_REDUCED);
            else if (!listed(batch, a))
                join(t, sn_axes_number(p, n, at++), sn_axes_number(p, n->in[i], a));
        }
    }
    const sn_attr *x = sn_attr_get(n, SN_A_contract_a), *y = sn_attr_get(n, SN_A_contract_b);
    for (int k = 0; x && k < x->n; k++)
        join(t, sn_axes_number(p, n->in[0], (int)x->v[k]),
             sn_axes_number(p, n->in[1], (int)y->v[k]));
}

void sn_axes_join_carries(sn_axes *t, const sn_axes_body *p, const sn_scan *s) {
    for (int i = 0; i < s->n_carry; i++)
        for (int a = 0; a < s->body->arg[i]->rank; a++)
            join(t, sn_axes_number(p, s->body->arg[i], a), sn_axes_number(p, s->body->out[i], a));
}

void sn_axes_join_again(sn_axes *t, const sn_axes_body *p, const sn_axes_body *q,
                        const sn_scan *s) {
    for (int i = 0; i < s->n_in; i++)
        for (int a = 0; a < s->body->arg[i]->rank; a++)
            join(t, sn_axes_number(p, s->body->arg[i], a), sn_axes_number(q, s->again->arg[i], a));
    for (int i = 0; i < s->again->n_out; i++)
        for (int a = 0; a < s->again->out[i]->rank; a++)
            join(t, sn_axes_number(q, s->again->arg[s->n_carry + i], a),
                 sn_axes_number(q, s->again->out[i], a));
}

/* A nested scan; its results are read where a `result` selects them. */
static void along_scan(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    sn_scan s = sn_scan_of(n);
    sn_axes_body *body = p->inner[p->index[n->id]] = sn_axes_read(t, s.body);
    for (int i = 0; i < s.n_in; i++) {
        int skip = sn_scan_is_sequence(&s, i);
        for (int a = 0; a < s.body->arg[i]->rank; a++)
            join(t, sn_axes_number(p, n->in[i], a + skip), sn_axes_number(body, s.body->arg[i], a));
        if (skip) spoil(t, sn_axes_number(p, n->in[i], 0));
    }
    sn_axes_join_carries(t, body, &s);
}

static void along_result_of_scan(sn_axes *t, const sn_axes_body *p, const sn_node *n,
                                 const sn_node *scan, int index) {
    sn_scan s = sn_scan_of(scan);
    const sn_axes_body *body = p->inner[p->index[scan->id]];
    int more = index >= s.n_carry;
    if (more) spoil(t, sn_axes_number(p, n, 0));
    for (int a = more; a < n->rank; a++)
        join(t, sn_axes_number(p, n, a), sn_axes_number(body, s.body->out[index], a - more));
}

typedef void (*along_fn)(sn_axes *t, const sn_axes_body *p, const sn_node *n);

static void along(sn_axes *t, const sn_axes_body *p, const sn_node *n) {
    static const along_fn table[SN_OP_COUNT] = {
#define ELEM(name, ...) [SN_OP_##name] = along_elements,
#include "ir/ops.def"
        [SN_OP_iota] = along_iota,         [SN_OP_broadcast] = along_broadcast,
        [SN_OP_reshape] = along_reshape,   [SN_OP_transpose] = along_transpose,
        [SN_OP_slice] = along_window,      [SN_OP_pad] = along_window,
        [SN_OP_concat] = along_axis,       [SN_OP_cumsum] = along_axis,
        [SN_OP_reduce_sum] = along_reduce, [SN_OP_reduce_max] = along_reduce,
        [SN_OP_reduce_min] = along_reduce, [SN_OP_dot] = along_dot,
        [SN_OP_scan] = along_scan,         [SN_OP_argsort] = along_axis,
    };
    if (!n->n_in && n->op != SN_OP_iota) return;
    if (n->op == SN_OP_result && n->in[0]->op == SN_OP_scan) {
        along_result_of_scan(t, p, n, n->in[0], (int)sn_attr_int(n, SN_A_index, 0));
    } else if (table[n->op]) {
        table[n->op](t, p, n);
        if (n->op == SN_OP_scan && n->n_result == 1) along_result_of_scan(t, p, n, n, 0);
    } else {
        spoil_all(t, p, n);
        for (int i = 0; i < n->n_in; i++) spoil_all(t, p, n->in[i]);
    }
}

sn_axes_body *sn_axes_read(sn_axes *t, const sn_region *r) {
    sn_module *m = t->m;
    sn_axes_body *p = sn_arena_alloc(m, sizeof *p);
    *p = (sn_axes_body){.region = r, .order = sn_region_topo(m, r), .first = t->n};
    p->index = sn_arena_alloc(m, sizeof *p->index * sn_module_node_count(m));
    p->inner = sn_arena_alloc(m, sizeof(sn_axes_body *) * (size_t)(p->order.n + r->n_arg + 1));
    int n = 0;
    for (int i = 0; i < r->n_arg; i++) p->index[r->arg[i]->id] = n++;
    for (int i = 0; i < p->order.n; i++)
        if (p->order.node[i]->op != SN_OP_arg) p->index[p->order.node[i]->id] = n++;
    for (int i = 0; i < n * SN_MAX_RANK; i++) {
        int cap = t->cap;
        t->up = sn_arena_grow(m, t->up, sizeof *t->up, t->n, &cap);
        t->fate = sn_arena_grow(m, t->fate, sizeof *t->fate, t->n, &t->cap_fate);
        t->cap = cap;
        t->up[t->n] = t->n;
        t->fate[t->n++] = 0;
    }
    for (int i = 0; i < p->order.n; i++) along(t, p, p->order.node[i]);
    return p;
}

int sn_axes_in_class(sn_axes *t, const sn_axes_body *p, const sn_node *n, int class) {
    int at = -1;
    for (int a = 0; a < n->rank; a++)
        if (sn_axes_class(t, sn_axes_number(p, n, a)) == class) at = at == -1 ? a : -2;
    return at;
}
