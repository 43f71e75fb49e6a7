/* fused_scan.c: a running sum, product, maximum or minimum becomes one kernel that computes blocks of
 * the axis at once (cumulate). A scan whose body is elementwise, with broadcasts and with reductions over one axis of
 * the carry, becomes one kernel that keeps the carry in registers or on its stack for the whole
 * sequence: selective scans (Mamba), minimal gated units, exponential averages, diagonal state spaces.
 *
 * Requires composites to be expanded. Keeps values. Terminates: a fused_scan is not a scan. */
#include "passes/fused_scan.h"
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/passes.h"

#include <string.h>

/* ---- classes ---- */

int sn_lanes_axis(sn_lanes *l, const sn_node *n, int class) {
    return class < 0 ? -1 : sn_axes_in_class(&l->axes, l->body, n, class);
}

typedef struct class_list {
    int n, class[2 * SN_MAX_RANK];
    sn_dim size[2 * SN_MAX_RANK];
} class_list;

static bool add_classes(sn_lanes *l, const sn_node *n, class_list *c) {
    for (int a = 0; a < n->rank; a++) {
        int class = sn_axes_class(&l->axes, sn_axes_number(l->body, n, a)), i = 0;
        if (n->shape[a] == 1) continue;
        if (sn_axes_in_class(&l->axes, l->body, n, class) < 0) return false;
        while (i < c->n && c->class[i] != class) i++;
        if (i == 2 * SN_MAX_RANK || (i < c->n && c->size[i] != n->shape[a])) return false;
        if (i < c->n) continue;
        c->class[c->n] = class;
        c->size[c->n++] = n->shape[a];
    }
    return true;
}

/* The first result without an axis of the class; NULL: all have one. */
static const sn_node *result_without(sn_lanes *l, int class) {
    const sn_region *r = l->s.body;
    for (int i = 0; i < r->n_out; i++)
        if (sn_lanes_axis(l, r->out[i], class) < 0) return r->out[i];
    return NULL;
}

/* How often the class is the last axis: vectors of such tensors are contiguous. */
static int times_last(sn_lanes *l, int class) {
    const sn_region *r = l->s.body;
    int n = 0;
    for (int i = 0; i < l->s.n_carry + l->s.n_sequence + r->n_out; i++) {
        const sn_node *x = i < r->n_out ? r->out[i] : r->arg[i - r->n_out];
        int last = x->rank - 1;
        while (last >= 0 && x->shape[last] == 1) last--;
        n += last >= 0 && sn_lanes_axis(l, x, class) == last;
    }
    return n;
}

static bool is_wider(const sn_lanes *l, sn_dim size, sn_dim than) {
    int64_t a = 0, b = 0;
    bool known = sn_dim_is_const(l->axes.m, size, &a);
    bool before = sn_dim_is_const(l->axes.m, than, &b);
    return known && before ? a > b : before && b < SN_LANES_WIDEST;
}

/* The class that outputs are summed over, which must lie along vectors; -1: no output is summed. */
enum { MIXED = -2 };
static int summed_class(sn_lanes *l) {
    const sn_scan *s = &l->s;
    int found = -1;
    for (int i = s->n_carry; s->sums && i < s->body->n_out; i++) {
        int axis = (int)s->sums[i - s->n_carry];
        if (axis < 0) continue;
        int class = sn_axes_class(&l->axes, sn_axes_number(l->body, s->body->out[i], axis));
        if (found >= 0 && class != found) return MIXED;
        found = class;
    }
    return found;
}

/* The first node that reduces the class; NULL: none does. */
static const sn_node *reducer_of(sn_lanes *l, int class) {
    const sn_order *o = &l->body->order;
    for (int i = 0; i < o->n; i++)
        if (sn_lanes_axis(l, o->node[i], class) < 0)
            for (int k = 0; k < o->node[i]->n_in; k++)
                if (sn_lanes_axis(l, o->node[i]->in[k], class) >= 0) return o->node[i];
    return NULL;
}

/* Whether class i is better along vectors than class `best`; -1: there is none yet. */
static bool is_better_lane(sn_lanes *l, const class_list *c, int i, int best) {
    if (best < 0) return true;
    const int a = times_last(l, c->class[i]), b = times_last(l, c->class[best]);
    return a > b || (a == b && is_wider(l, c->size[i], c->size[best]));
}

static bool has_at_most(const sn_lanes *l, sn_dim size, int64_t bound) {
    int64_t n;
    return sn_dim_is_const(l->axes.m, size, &n) && n >= 1 && n <= bound;
}

/* Which classes are reduced or missing in results. A kernel walks through one of them element by element, and holds
 * another one as a vector. NULL, or why there is no such kernel. */
static const char *find_mixed(sn_lanes *l, const class_list *c, bool *mixed, int *n_mixed,
                              const sn_node **at) {
    *n_mixed = 0;
    for (int i = 0; i < c->n; i++) {
        const int fate = l->axes.fate[c->class[i]];
        const sn_node *lacks = result_without(l, c->class[i]);
        if (fate & SN_AXIS_CUT)
            return "an axis is cut, sorted or numbered. Instead: do so before the loop, for all "
                   "elements";
        mixed[i] = fate || lacks;
        if (!mixed[i]) continue;
        if (++*n_mixed > (l->s.sums ? 1 : 2)) {
            *at = fate ? reducer_of(l, c->class[i]) : lacks;
            return fate ? "it reduces one axis more than a kernel can. Instead: one sn_scan for "
                          "each, where the second needs results of the first only"
                        : "this result lacks an axis that others have. Instead: give smaller "
                          "carries a loop of their own before this one, whose results are its "
                          "sequences";
        }
    }
    return NULL;
}

static void set_lane(sn_lanes *l, const class_list *c, int i, bool whole) {
    l->lane = c->class[i];
    l->n_lane = c->size[i];
    l->whole = whole;
}

/* The lane axis among the classes that are `mixed`, or among the others; -1: there is none. */
static int find_lane(sn_lanes *l, const class_list *c, const bool *mixed, bool among, int summed) {
    int best = -1;
    for (int i = 0; i < c->n; i++)
        if (mixed[i] == among && (summed < 0 || c->class[i] == summed) &&
            (!among || has_at_most(l, c->size[i], SN_LANES_WHOLE)) && is_better_lane(l, c, i, best))
            best = i;
    return best;
}

static const char *sort_classes(sn_lanes *l, const class_list *c, const sn_node **at) {
    bool mixed[2 * SN_MAX_RANK] = {false};
    int n_mixed, summed = summed_class(l), n_rest = 0;
    const char *why = find_mixed(l, c, mixed, &n_mixed, at);
    if (why) return why;
    if (summed == MIXED)
        return "it sums over several axes. Instead: sum over one, and over the others after the "
               "loop";
    int lane = n_mixed == 2 ? -1 : find_lane(l, c, mixed, false, summed), inner = -1;
    for (int i = 0; i < c->n; i++)
        if (mixed[i] && n_mixed == 1 && (lane >= 0 || has_at_most(l, c->size[i], SN_LANES_ALONE)))
            inner = i;
    if (lane >= 0) set_lane(l, c, lane, false);
    if (n_mixed > (inner >= 0)) {
        lane = l->s.sums ? -1 : find_lane(l, c, mixed, true, -1);
        if (lane < 0)
            return "it has no axis of independent elements, nor one of at most 128 that a vector "
                   "holds. Instead: all heads or channels in one loop";
        set_lane(l, c, lane, true);
        for (int i = 0; i < c->n; i++)
            if (mixed[i] && i != lane) inner = i;
    }
    if (inner >= 0) {
        l->inner = c->class[inner];
        if (!has_at_most(l, c->size[inner], SN_LANES_INNER))
            return "the axis that it reduces has more than 256 elements, or an unknown number. "
                   "Instead: reduce it after the loop";
        sn_dim_is_const(l->axes.m, c->size[inner], &l->n_inner);
    }
    for (int i = 0; i < c->n; i++) {
        if (i == lane || i == inner) continue;
        if (n_rest++ == SN_MAX_RANK)
            return "it has too many axes. Instead: reshape axes side by side to one";
        l->unit[l->n_unit] = c->class[i];
        l->n[l->n_unit++] = c->size[i];
    }
    return NULL;
}

/* ---- operations ---- */

bool sn_lanes_reduces(sn_lanes *l, const sn_node *n, int class) {
    const sn_attr *axes = sn_attr_get(n, n->op == SN_OP_dot ? SN_A_contract_a : SN_A_axes);
    int axis = n->n_in && axes ? sn_lanes_axis(l, n->in[0], class) : -1;
    for (int i = 0; axis >= 0 && i < axes->n; i++)
        if (axes->v[i] == axis) return true;
    return false;
}

const bool *sn_lanes_moving(sn_lanes *l) {
    const sn_order *o = &l->body->order;
    bool *moves = sn_arena_alloc(l->axes.m, (size_t)(o->n + l->s.n_in + 1));
    memset(moves, 0, (size_t)(o->n + l->s.n_in + 1));
    for (int i = 0; i < l->s.n_carry + l->s.n_sequence; i++)
        moves[l->body->index[l->s.body->arg[i]->id]] = true;
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < o->node[i]->n_in; k++)
            moves[l->body->index[o->node[i]->id]] |= moves[l->body->index[o->node[i]->in[k]->id]];
    return moves;
}

/* Bytes that the widest vectors of one unit need for the carry, and for what does not move. */
static int64_t kept_bytes(sn_lanes *l) {
    const sn_order *o = &l->body->order;
    const bool *moves = sn_lanes_moving(l);
    int64_t n = 0, all = 0, width = SN_LANES_WIDEST;
    if (l->whole) sn_dim_is_const(l->axes.m, l->n_lane, &all);
    while (width < all) width *= 2; /* whole vectors, twice as many each time */
    for (int i = 0; i < o->n; i++) {
        const sn_node *x = o->node[i];
        bool carry = x->op == SN_OP_arg && sn_attr_int(x, SN_A_index, 0) < l->s.n_carry;
        if (!carry && moves[l->body->index[x->id]]) continue;
        int64_t each = sn_lanes_axis(l, x, l->lane) < 0 ? 1 : width;
        each *= (int64_t)sn_dtype_size((sn_dtype)x->dtype);
        n += sn_lanes_axis(l, x, l->inner) < 0 ? each : each * l->n_inner;
    }
    return n;
}

/* What reads an argument; the node itself if it is none. */
static const sn_node *reader_of(const sn_lanes *l, const sn_node *n) {
    const sn_order *o = &l->body->order;
    for (int i = 0; n->op == SN_OP_arg && i < o->n; i++)
        for (int k = 0; k < o->node[i]->n_in; k++)
            if (o->node[i]->in[k] == n) return o->node[i];
    return n;
}

/* The first product over an axis that its result goes along with: each element needs all others. */
static const sn_node *mixer_of(sn_lanes *l) {
    const sn_order *o = &l->body->order;
    for (int i = 0; i < o->n; i++) {
        const sn_node *n = o->node[i];
        const sn_attr *sum = n->op == SN_OP_dot ? sn_attr_get(n, SN_A_contract_a) : NULL;
        for (int k = 0; sum && k < sum->n; k++) {
            int number = sn_axes_number(l->body, n->in[0], (int)sum->v[k]);
            if (sn_lanes_axis(l, n, sn_axes_class(&l->axes, number)) != -1) return n;
        }
    }
    return NULL;
}

/* Attention, and what else a step computes in one kernel of its own. */
static bool is_core(const sn_node *n) {
    return sn_ops[n->op].kind == SN_FUSED || n->op == SN_OP_recurrence;
}

static const char *check_nodes(sn_lanes *l, const sn_node **at, class_list *c) {
    const sn_order *o = &l->body->order;
    sn_group k = {.kernel = SN_KERNEL_fused_scan, .type = SN_BOOL};
    for (int i = 0; i < o->n; i++)
        if (is_core(*at = o->node[i])) return "it is one of its own";
    for (int i = 0; i < o->n; i++) {
        *at = o->node[i];
        if (!sn_kernel_knows(k.kernel, SN_IN_BODY, (sn_op)(*at)->op))
            return "it is not elementwise. Instead: do it before or after the loop, for all "
                   "elements";
        const char *why = sn_kernel_refuses(&k, SN_IN_BODY, *at);
        if (why) return why;
        if (sn_dtype_is_float((sn_dtype)(*at)->dtype)) k.type = (sn_dtype)(*at)->dtype;
        if (add_classes(l, *at, c)) continue;
        const sn_node *mixer = mixer_of(l);
        *at = mixer ? mixer : reader_of(l, *at);
        return mixer ? "it mixes elements of an axis of the carry, so each step needs the whole of "
                       "the step before it. sn_accept_unfused accepts the line"
                     : "an axis of it goes along with another one, or with a part of itself. "
                       "Instead: do before the loop what does not need the carry";
    }
    *at = NULL;
    return NULL;
}

const char *sn_lanes_read(sn_lanes *l, const sn_node *n, const sn_node **at) {
    class_list c = {.n = 0};
    *l = (sn_lanes){
        .s = sn_scan_of(n), .axes.m = n->m, .lane = -1, .n_lane = 1, .inner = -1, .n_inner = 1};
    *at = NULL;
    sn_axes_body *body = sn_axes_read(&l->axes, l->s.body);
    l->body = body;
    sn_axes_join_carries(&l->axes, body, &l->s);
    const char *why = check_nodes(l, at, &c);
    if (!why) why = sort_classes(l, &c, at);
    if (!why && l->lane < 0 && l->s.sums)
        why = "it sums over an axis that it reduces, too. Instead: sum its results after the loop";
    if (!why && kept_bytes(l) > (l->whole ? SN_LANES_WHOLE_BYTES : SN_LANES_BYTES))
        why = l->whole ? "the carry exceeds 512 KiB. Instead: smaller sizes of its last two axes"
                       : "a vector of the carry exceeds 32 KiB. Instead: smaller sizes of the axes "
                         "that the body reduces";
    return why;
}

/* ---- running results ---- */

enum { FEW_ROWS = 32 };

/* Whether y is one operation on the carry and the element that is known to be associative. */
static bool is_associative(const sn_node *y, const sn_region *r) {
    bool known =
        y->op == SN_OP_add || y->op == SN_OP_mul || y->op == SN_OP_max || y->op == SN_OP_min;
    return known && ((y->in[0] == r->arg[0] && y->in[1] == r->arg[1]) ||
                     (y->in[1] == r->arg[0] && y->in[0] == r->arg[1]));
}

bool sn_scan_is_running_result(const sn_node *n) {
    sn_scan s = sn_scan_of(n);
    return s.n_in == 2 && s.n_carry == 1 && is_associative(s.body->out[0], s.body);
}

bool sn_scan_is_gradient(const sn_node *n) {
    const sn_scan s = sn_scan_of(n);
    for (int i = s.n_carry; i < s.n_carry + s.n_sequence; i++) {
        const sn_node *x = n->in[i]->op == SN_OP_result ? n->in[i]->in[0] : n->in[i];
        if ((x->op != SN_OP_scan && x->op != SN_OP_fused_scan) || x->loc.line != n->loc.line)
            continue;
        if (sn_scan_of(x).reverse != s.reverse && x->loc.file == n->loc.file) return true;
    }
    return false;
}

static bool is_carried(sn_dtype t) {
    return t == SN_F32 || t == SN_F64 || t == SN_I32 || t == SN_I64;
}

/* Whether y is computed from the carry, the element and constants, number by number, in one type. */
static bool has_elementwise_body(const sn_node *y) {
    const sn_group k = {.kernel = SN_KERNEL_cumulate, .rank = y->rank, .type = (sn_dtype)y->dtype};
    sn_order order = sn_topo(y->m, 1, (sn_node *const *)&y);
    for (int i = 0; i < order.n; i++)
        if (sn_kernel_refuses(&k, SN_IN_BODY, order.node[i])) return false;
    return true;
}

/* Whether the scan combines its carry with the element of its only sequence by an associative operation,
 * and gives the result or the carry; of few rows, or their number is not known. More of them lie along
 * vectors. */
static bool is_running(const sn_node *n) {
    sn_scan s = sn_scan_of(n);
    const sn_region *r = s.body;
    const sn_node *y = r->out[0];
    int64_t size;
    if (s.n_in != 2 || s.n_carry != 1 || s.n_tile || s.n_again || s.sums) return false;
    if (!is_carried((sn_dtype)y->dtype) || r->n_out < 2) return false;
    for (int i = 1; i < r->n_out; i++)
        if (r->out[i] != y && r->out[i] != r->arg[0]) return false;
    for (int a = 0; a < y->rank; a++)
        if (sn_dim_is_const(n->m, y->shape[a], &size) && size >= FEW_ROWS) return false;
    return is_associative(y, r) || (sn_attr_int(n, SN_A_associative, 0) && has_elementwise_body(y));
}

/* ---- the pass ---- */

static void remark(sn_passes *p, const sn_node *n, const char *why, const sn_node *at) {
    if (at) why = sn_arena_printf(n->m, "%s in its body: %s", sn_name_with_place(at), why);
    sn_remark_add(p, "fused_scan", n, !at || !is_core(at), "the loop%s is several kernels: %s",
                  sn_scan_is_gradient(n) ? " of its gradient" : "", why);
}

/* A running sum as a scan over the axis. */
static sn_node *sum_as_scan(sn_node *n) {
    sn_module *m = n->m;
    sn_node *x = n->in[0];
    int64_t axis = sn_attr_int(n, SN_A_axis, 0), there[SN_MAX_RANK] = {axis}, back[SN_MAX_RANK];
    for (int a = 0, k = 1; a < x->rank; a++)
        if (a != axis) there[k++] = a;
    for (int a = 0; a < x->rank; a++) back[there[a]] = a;
    x = sn_b_transpose(x, x->rank, there);
    int rest = x->rank - 1;
    sn_dtype t = (sn_dtype)x->dtype;
    sn_node *arg[] = {sn_arg(m, 0, t, rest, x->shape + 1), sn_arg(m, 1, t, rest, x->shape + 1)};
    sn_node *sum = sn_b_binary(SN_OP_add, arg[0], arg[1]), *out[] = {sum, sum};
    sn_region *body = sn_region_new(m, 2, arg, 2, out);
    sn_node *in[] = {sn_b_broadcast(sn_b_const(m, t, 0), rest, x->shape + 1), x};
    sn_attr attr[] = {SN_INT(carries, 1), SN_INT(sequences, 1), SN_REG(body, body)};
    sn_node *scan = sn_node_new(m, SN_OP_scan, 2, in, 3, attr);
    return sn_b_transpose(sn_b_result(scan, 1), n->rank, back);
}

static sn_node *expand_sum(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_cumsum && is_carried((sn_dtype)n->dtype) ? sum_as_scan(n) : n;
}

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    sn_lanes l;
    const sn_node *at;
    if (n->op != SN_OP_scan || sn_attr_get(n, SN_A_tiles)) return n;
    bool running = is_running(n);
    const char *why = running ? NULL : sn_lanes_read(&l, n, &at);
    if (why) {
        remark(p, n, why, at);
        return n;
    }
    sn_loc loc = sn_module_loc(n->m);
    sn_module_set_loc(n->m, n->loc);
    sn_node *r = sn_node_new(n->m, running ? SN_OP_cumulate : SN_OP_fused_scan, n->n_in, n->in,
                             n->n_attr, n->attr);
    sn_module_set_loc(n->m, loc);
    return r;
}

int sn_pass_fused_scan(sn_passes *p) {
    sn_scan_uses u;
    int count = sn_rewrite_module(p->m, expand_sum, p);
    sn_scan_uses_count(&u, p->m);
    if (!u.n_scan) return count;
    count += sn_rewrite_module(p->m, sn_fuse_scan_grad, &u);
    sn_scan_uses_count(&u, p->m);
    count += sn_rewrite_module(p->m, sn_drop_scan_results, &u);
    return count + sn_rewrite_module(p->m, rule, p);
}
