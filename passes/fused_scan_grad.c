/* fused_scan_grad.c: the gradient of a scan as one fused_scan. It reads the carries of the forward scan
 * before each element, which a result of that scan keeps (ir/grad_scan.c). Here they become carries
 * that are recomputed, from the forward scan's body, and sums over the axis of vectors become sums
 * of blocks, which are added up afterwards. If there is no such kernel, the scan is told how the carries
 * follow one from another, so that the plan keeps few of them (plan/scan_again.c). Then results of scans
 * that nobody reads disappear. */
#include "passes/fused_scan.h"
#include "passes/graph_util.h"

#include <string.h>

typedef struct side {
    sn_node *n;
    sn_scan s;
    sn_node **arg; /* [n_in] in the common body */
    sn_node *out[SN_MAX_RESULTS];
} side;

/* The fused scan under construction. */
typedef struct draft {
    sn_module *m;
    side back, forward; /* forward.n NULL: nothing is recomputed */
    int *carry;         /* [back.s.n_in] the forward carry whose values this operand is; -1 */
    int n_in, n_carry, n_sequence, n_out, n_again;
    sn_node **in, **arg;
    sn_node *out[SN_MAX_RESULTS];
    sn_node
        *summed[SN_MAX_RESULTS]; /* what an output sums over `axis` of this class; NULL: no sum */
    int axis[SN_MAX_RESULTS], class[SN_MAX_RESULTS];
    int64_t sums[SN_MAX_RESULTS];
    bool has_sums;
} draft;

static int own_carries(const draft *d) {
    return d->n_carry - d->n_again;
}

/* ---- the common body ---- */

/* The carry whose values before each element are result x of a scan; -1: it is something else. */
static int kept_carry(const sn_scan_uses *u, const sn_node *x, bool reverse) {
    if (x->op != SN_OP_result || x->in[0]->op != SN_OP_scan) return -1;
    sn_scan s = sn_scan_of(x->in[0]);
    int64_t at = sn_attr_int(x, SN_A_index, 0);
    if (s.reverse == reverse || s.n_tile || at < s.n_carry || s.body->out[at]->op != SN_OP_arg)
        return -1;
    int64_t i = sn_attr_int(s.body->out[at], SN_A_index, 0);
    bool once = x->id >= u->n_node || u->reader[x->id] < 2; /* else they are in memory anyway */
    return once && i < s.n_carry ? (int)i : -1;
}

static void find_forward(draft *d, const sn_scan_uses *u) {
    const sn_scan *s = &d->back.s;
    for (int i = 0; i < s->n_in; i++) {
        sn_node *x = d->back.n->in[i];
        d->carry[i] = sn_scan_is_sequence(s, i) ? kept_carry(u, x, s->reverse) : -1;
        if (d->carry[i] < 0) continue;
        if (!d->forward.n) d->forward = (side){.n = x->in[0], .s = sn_scan_of(x->in[0])};
        if (d->forward.n != x->in[0]) d->carry[i] = -1;
    }
}

/* The place of operand x among those from `first` on, which it joins if it is new. */
static int place_of(draft *d, int first, sn_node *x, bool sequence) {
    int i = first;
    while (i < d->n_in && d->in[i] != x) i++;
    if (i < d->n_in) return i;
    d->in[i] = x;
    d->arg[i] = sn_arg(d->m, i, (sn_dtype)x->dtype, x->rank - sequence, x->shape + sequence);
    d->n_in++;
    return i;
}

static void add_carries(draft *d, side *x) {
    for (int i = 0; i < x->s.n_carry; i++) {
        x->arg[i] = d->arg[place_of(d, d->n_in, x->n->in[i], false)];
        d->n_carry++;
    }
}

static void add_others(draft *d, side *x, int first, bool sequence) {
    for (int i = x->s.n_carry; i < x->s.n_in; i++) {
        if (sn_scan_is_sequence(&x->s, i) != sequence) continue;
        if (x == &d->back && d->carry[i] >= 0)
            x->arg[i] = d->forward.arg[d->carry[i]];
        else
            x->arg[i] = d->arg[place_of(d, first, x->n->in[i], sequence)];
    }
}

static bool join_bodies(draft *d) {
    side *b = &d->back, *f = &d->forward;
    int n_in = b->s.n_in + (f->n ? f->s.n_in : 0), n_again = f->n ? f->s.n_carry : 0;
    if (b->s.body->n_out + n_again > SN_MAX_RESULTS || 2 * n_again > SN_MAX_RESULTS) return false;
    d->in = sn_arena_alloc(d->m, 4 * sizeof *d->in * (size_t)n_in);
    d->arg = d->in + n_in;
    b->arg = d->arg + n_in;
    f->arg = b->arg + b->s.n_in;
    side *each[] = {b, f};
    int sides = f->n ? 2 : 1;
    for (int i = 0; i < sides; i++) add_carries(d, each[i]);
    for (int i = 0; i < sides; i++) add_others(d, each[i], d->n_carry, true);
    d->n_sequence = d->n_in - d->n_carry;
    int first = d->n_in;
    for (int i = 0; i < sides; i++) add_others(d, each[i], first, false);
    for (int i = 0; i < sides; i++) sn_region_inline(each[i]->s.body, each[i]->arg, each[i]->out);
    d->n_again = n_again;
    for (int i = 0; i < b->s.n_carry; i++) d->out[d->n_out++] = b->out[i];
    for (int i = 0; i < n_again; i++) d->out[d->n_out++] = f->out[i];
    for (int i = b->s.n_carry; i < b->s.body->n_out; i++) d->out[d->n_out++] = b->out[i];
    return !sn_module_error(d->m)->code;
}

/* ---- sums ---- */

static int batch_axes(const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_a);
    return batch ? batch->n : 0;
}

/* Operand `side` of a product over one axis, which comes behind those of the batch, with the product's axes: of
 * size 1 where it has none of them. */
static sn_node *factor(const sn_node *dot, int side) {
    static const sn_attr_key keys[2][2] = {{SN_A_batch_a, SN_A_contract_a},
                                           {SN_A_batch_b, SN_A_contract_b}};
    sn_node *x = dot->in[side];
    const int n_batch = batch_axes(dot);
    int64_t perm[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK];
    bool used[SN_MAX_RANK] = {false};
    int n = 0;
    for (; n < n_batch; n++) used[perm[n] = sn_attr_get(dot, keys[side][0])->v[n]] = true;
    used[perm[n++] = sn_attr_get(dot, keys[side][1])->v[0]] = true;
    for (int a = 0; a < x->rank; a++)
        if (!used[a]) perm[n++] = a;
    for (int a = 0; a <= dot->rank; a++) shape[a] = 1;
    for (int i = 0; i < n; i++)
        shape[i <= n_batch || !side ? i : dot->rank + 1 - n + i] = x->shape[perm[i]];
    return sn_b_reshape(sn_b_transpose(x, x->rank, perm), dot->rank + 1, shape);
}

/* What output y sums over one axis, and which; NULL: it is no such sum. */
static sn_node *summed(sn_node *y, int *axis) {
    int64_t size;
    while (y->op == SN_OP_reshape) y = y->in[0];
    const bool dot = y->op == SN_OP_dot;
    const sn_attr *axes = dot                         ? sn_attr_get(y, SN_A_contract_a)
                          : y->op == SN_OP_reduce_sum ? sn_attr_get(y, SN_A_axes)
                                                      : NULL;
    if (!axes || axes->n != 1 || y->rank + 2 >= SN_MAX_RANK) return NULL;
    const sn_node *x = y->in[0];
    if (!sn_dim_is_const(x->m, x->shape[axes->v[0]], &size)) return NULL;
    *axis = dot ? batch_axes(y) : (int)axes->v[0];
    return dot ? sn_b_binary(SN_OP_mul, factor(y, 0), factor(y, 1)) : y->in[0];
}

/* What each output sums, and the class of the axis. */
static void find_sums(draft *d) {
    sn_node *out[SN_MAX_RESULTS];
    sn_axes axes = {.m = d->m};
    for (int i = 0; i < d->n_out; i++) {
        d->summed[i] = i < d->n_carry ? NULL : summed(d->out[i], &d->axis[i]);
        out[i] = d->summed[i] ? d->summed[i] : d->out[i];
    }
    const sn_scan s = {.body = sn_region_new(d->m, d->n_in, d->arg, d->n_out, out),
                       .n_carry = d->n_carry};
    const sn_axes_body *body = sn_axes_read(&axes, s.body);
    sn_axes_join_carries(&axes, body, &s);
    for (int i = 0; i < d->n_out; i++)
        d->class[i] = d->summed[i]
                          ? sn_axes_class(&axes, sn_axes_number(body, s.body->out[i], d->axis[i]))
                          : -1;
}

/* The node in which outputs that sum over the class give what they sum. */
static sn_node *with_sums(draft *d, int class) {
    sn_node *out[SN_MAX_RESULTS];
    bool any = false;
    for (int i = 0; i < d->n_out; i++) {
        bool sums = class >= 0 && d->class[i] == class;
        out[i] = sums ? d->summed[i] : d->out[i];
        if (i >= d->n_carry) d->sums[i - d->n_carry] = sums ? d->axis[i] : -1;
        any |= sums;
    }
    d->has_sums = any;
    sn_region *body = sn_region_new(d->m, d->n_in, d->arg, d->n_out, out);
    sn_attr attr[6] = {SN_INT(carries, d->n_carry), SN_INT(sequences, d->n_sequence),
                       SN_REG(body, body)};
    int n = 3;
    if (d->back.s.reverse) attr[n++] = SN_INT(reverse, 1);
    if (d->n_again) attr[n++] = SN_INT(recomputed, d->n_again);
    if (any) attr[n++] = SN_LIST(sums, d->n_out - d->n_carry, d->sums);
    return sn_node_new(d->m, SN_OP_fused_scan, d->n_in, d->in, n, attr);
}

/* Whether it is one kernel; *whole: whose vector holds an axis that operations reduce. */
static bool is_kernel(const sn_node *n, bool *whole) {
    sn_lanes l;
    const sn_node *at;
    bool is = n->op == SN_OP_fused_scan && !sn_lanes_read(&l, n, &at);
    *whole = is && l.whole;
    return is;
}

/* The first way of summing that a kernel has; NULL: none, or it is a kernel as it is. Sums of vectors are cheaper
 * than sums over their lanes for each element. */
static sn_node *fused(draft *d) {
    sn_node *plain = with_sums(d, -1), *n;
    bool whole, other;
    const bool is = is_kernel(plain, &whole);
    if (!is || whole) find_sums(d);
    for (int i = d->n_carry; i < d->n_out && (!is || whole); i++)
        if (d->summed[i] && is_kernel(n = with_sums(d, d->class[i]), &other)) return n;
    d->has_sums = false;
    return is && d->n_again ? plain : NULL;
}

/* Result i of the scan, of type t. */
static sn_node *result_of(const draft *d, sn_node *all, int i, const sn_node *t) {
    sn_node *y = sn_b_result(all, i);
    int64_t axis = i < own_carries(d) || !d->has_sums ? -1 : d->sums[i - own_carries(d)] + 1;
    if (axis > 0) y = sn_b_reduce(SN_OP_reduce_sum, y, 1, &axis);
    return sn_b_reshape(y, t->rank, t->shape);
}

/* ---- carries that are kept at some elements ---- */

enum { SHORT = 16 }; /* elements: all of their carries may be kept */

/* The result of the forward scan that keeps carry i; NULL: there is none. */
static sn_node *history_of(const side *f, int i) {
    for (int k = f->s.n_carry; k < f->s.body->n_out; k++)
        if (f->s.body->out[k] == f->s.body->arg[i]) return sn_b_result(f->n, k);
    return NULL;
}

/* By carry of the forward scan: its result if the backward body reads it, or another such carry follows
 * from it. False: a result is missing. */
static bool find_histories(const draft *d, sn_node **history) {
    const side *f = &d->forward;
    sn_node *next[SN_MAX_RESULTS];
    int n = 0;
    for (int i = 0; i < d->back.s.n_in; i++)
        if (d->carry[i] >= 0) history[d->carry[i]] = d->back.n->in[i];
    for (bool more = true; more;) {
        more = false;
        n = 0;
        for (int i = 0; i < f->s.n_carry; i++)
            if (history[i]) next[n++] = f->s.body->out[i];
        sn_order order = sn_topo(d->m, n, next);
        for (int i = 0; i < f->s.n_carry; i++)
            for (int k = 0; k < order.n && !history[i]; k++)
                if (order.node[k] == f->s.body->arg[i]) {
                    history[i] = history_of(f, i);
                    if (!history[i]) return false;
                    more = true;
                }
    }
    return n > 0;
}

/* The same scan with the attribute `again`; NULL: it does not read a forward scan's carries. */
static sn_node *with_again(draft *d) {
    side *b = &d->back, *f = &d->forward;
    sn_node *history[SN_MAX_RESULTS] = {NULL}, *next[SN_MAX_RESULTS];
    if (!f->n || sn_dim_hi(d->m, b->n->in[b->s.n_carry]->shape[0]) < SHORT ||
        !find_histories(d, history))
        return NULL;
    int n_again = 0, n_in = b->s.n_in + f->s.n_in;
    d->in = sn_arena_alloc(d->m, 4 * sizeof *d->in * (size_t)n_in);
    d->arg = d->in + n_in;
    b->arg = d->arg + n_in;
    f->arg = b->arg + b->s.n_in;
    add_carries(d, b);
    for (int i = 0; i < f->s.n_carry; i++) {
        f->arg[i] = f->s.body->arg[i]; /* nobody reads it */
        if (!history[i]) continue;
        f->arg[i] = d->arg[place_of(d, d->n_in, history[i], true)];
        next[n_again++] = f->s.body->out[i];
    }
    side *each[] = {b, f};
    for (int i = 0; i < 2; i++) add_others(d, each[i], d->n_carry, true);
    d->n_sequence = d->n_in - d->n_carry;
    int first = d->n_in;
    for (int i = 0; i < 2; i++) add_others(d, each[i], first, false);
    sn_region_inline(b->s.body, b->arg, b->out);
    sn_region_inline(sn_region_new(d->m, f->s.n_in, f->s.body->arg, n_again, next), f->arg, f->out);
    if (sn_module_error(d->m)->code) return NULL;
    sn_region *body = sn_region_new(d->m, d->n_in, d->arg, b->s.body->n_out, b->out),
              *again = sn_region_new(d->m, d->n_in, d->arg, n_again, f->out);
    sn_attr attr[] = {SN_INT(carries, d->n_carry), SN_INT(sequences, d->n_sequence),
                      SN_REG(body, body), SN_REG(again, again), SN_INT(reverse, 1)};
    return sn_node_new(d->m, SN_OP_scan, d->n_in, d->in, 4 + b->s.reverse, attr);
}

static void begin_draft(draft *d, const sn_scan_uses *u, sn_node *n) {
    *d = (draft){.m = n->m, .back = {.n = n, .s = sn_scan_of(n)}};
    d->carry = sn_arena_alloc(n->m, sizeof *d->carry * (size_t)n->n_in);
    find_forward(d, u);
}

static sn_node *make(draft *d, const sn_scan_uses *u, sn_node *n) {
    begin_draft(d, u, n);
    sn_node *all = join_bodies(d) ? fused(d) : NULL;
    if (all || !d->forward.n) return all;
    begin_draft(d, u, n); /* with the carries of all elements in memory */
    d->forward.n = NULL;
    for (int i = 0; i < n->n_in; i++) d->carry[i] = -1;
    if (join_bodies(d)) all = fused(d);
    sn_lanes l;
    const sn_node *at;
    if (all || !sn_lanes_read(&l, n, &at)) return all; /* or it is a kernel as it is */
    begin_draft(d, u, n);
    return with_again(d);
}

sn_node *sn_fuse_scan_grad(void *ctx, sn_node *n) {
    sn_scan_uses *u = ctx;
    sn_node *scan = n->op == SN_OP_result ? n->in[0] : n;
    if (scan->op != SN_OP_scan || sn_attr_get(scan, SN_A_tiles) || sn_attr_get(scan, SN_A_again))
        return n;
    if (scan->n_result > 1 && n == scan) return n; /* its results are replaced */
    if (u->last != scan) {
        draft d;
        u->last = scan;
        sn_node *all = make(&d, u, scan);
        u->fused = all != NULL;
        for (int i = 0; all && i < scan->n_result; i++)
            u->result[i] = result_of(&d, all, i, scan->n_result > 1 ? scan->result_type[i] : scan);
    }
    return u->fused ? u->result[n == scan ? 0 : sn_attr_int(n, SN_A_index, 0)] : n;
}

/* ---- results that nobody reads ---- */

/* Whether any scan with this body has a reader of its result i. */
static uint32_t *read_of(sn_scan_uses *u, const sn_region *body) {
    int i = 0;
    while (i < u->n_body && u->body[i] != body) i++;
    if (i < u->n_body) return &u->read[i];
    int cap = u->cap;
    u->body = sn_arena_grow(u->m, u->body, sizeof *u->body, u->n_body, &cap);
    u->read = sn_arena_grow(u->m, u->read, sizeof *u->read, u->n_body, &u->cap);
    u->cap = cap;
    u->body[i] = body;
    u->read[i] = 0;
    u->n_body++;
    return &u->read[i];
}

void sn_scan_uses_count(sn_scan_uses *u, sn_module *m) {
    int n_live, n = sn_module_roots(m, NULL, &n_live, false);
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n + 1));
    sn_module_roots(m, root, &n_live, false);
    sn_order order = sn_topo(m, n, root);
    *u = (sn_scan_uses){.m = m, .n_node = sn_module_node_count(m)};
    u->reader = sn_arena_alloc(m, sizeof *u->reader * (u->n_node + 1));
    memset(u->reader, 0, sizeof *u->reader * (u->n_node + 1));
    for (int i = 0; i < n; i++) u->reader[root[i]->id]++;
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        u->n_scan += x->op == SN_OP_scan;
        for (int k = 0; k < x->n_in; k++) u->reader[x->in[k]->id]++;
        if (x->op == SN_OP_result && x->in[0]->op == SN_OP_scan)
            *read_of(u, sn_attr_region(x->in[0], SN_A_body)) |= 1u << sn_attr_int(x, SN_A_index, 0);
    }
}

sn_node *sn_drop_scan_results(void *ctx, sn_node *n) {
    sn_scan_uses *u = ctx;
    if (n->op != SN_OP_result || n->in[0]->op != SN_OP_scan) return n;
    sn_node *scan = n->in[0], *out[SN_MAX_RESULTS];
    sn_scan s = sn_scan_of(scan);
    uint32_t read = *read_of(u, s.body);
    int64_t index = sn_attr_int(n, SN_A_index, 0), to = index;
    int n_out = 0;
    if (s.n_tile) return n;
    for (int i = 0; i < s.body->n_out; i++) {
        bool kept = i < s.n_carry || read & 1u << i;
        if (kept) out[n_out++] = s.body->out[i];
        if (!kept && i < index) to--;
    }
    if (n_out == s.body->n_out) return n;
    sn_region *body = sn_region_new(n->m, s.n_in, s.body->arg, n_out, out);
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * scan->n_attr);
    for (int i = 0; i < scan->n_attr; i++) {
        attr[i] = scan->attr[i];
        if (attr[i].key == SN_A_body) attr[i].r = body;
    }
    sn_node *r = sn_node_new(n->m, SN_OP_scan, scan->n_in, scan->in, scan->n_attr, attr);
    return sn_b_result(r, (int)to);
}
