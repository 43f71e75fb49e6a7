/* scan.c: sn_scan: a loop over an axis whose body is written in the DSL. The body is called once, on
 * tensors that stand for one iteration's; what it uses from outside is captured. */
#include "frontend/front.h"

#include <string.h>

typedef struct loop {
    sn_module *m;
    const sn_scan_args *a;
    sn_loc at;
    int axis, n_carry, n_x, n_y;
    bool associative;
    sn_dim length;
    sn_tensor in[2 * SN_MAX_SCAN + 1]; /* carries and sequences */
    sn_tensor one[2 * SN_MAX_SCAN + 1];
    sn_tensor out[2 * SN_MAX_SCAN]; /* of the body: carries, outputs */
} loop;

/* What stands for `what` number i in the body, by a name that messages show up to the '@'. */
static sn_tensor stand_in(loop *l, const char *what, int i, sn_dtype t, int rank,
                          const sn_dim *shape) {
    char name[64];
    snprintf(name, sizeof name, "%s[%d]@%u", what, i, (unsigned)sn_module_node_count(l->m));
    return sn_node_new(l->m, SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t), SN_LIST(shape, rank, shape)));
}

/* x with axis `from` as axis `to`, the others in order. */
static sn_tensor move_axis(sn_tensor x, int from, int to) {
    int64_t perm[SN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != from) perm[n++] = i;
    memmove(perm + to + 1, perm + to, sizeof *perm * (size_t)(n - to));
    perm[to] = from;
    return from == to ? x : sn_b_transpose(x, x->rank, perm);
}

static bool fail(loop *l, const char *what, int i, const char *why, sn_tensor x) {
    char text[SN_NODE_TEXT] = "NULL";
    if (x) sn_node_text(x, text);
    sn_module_set_loc(l->m, l->at);
    sn_module_fail(l->m, SN_ERR_SHAPE, "scan: %s %d is %s: %s", what, i, text, why);
    return false;
}

/* Carries and sequences, and what stands for them in the body. */
static bool take_operands(loop *l) {
    const sn_scan_args *a = l->a;
    l->axis = front_axis(l->m, "scan", a->x[0], a->axis, l->n_x ? a->x[0]->rank : SN_MAX_RANK);
    if (l->axis < 0 || front_dims(l->m, "scan", (sn_dim[]){a->count, SN_END}) < 0) return false;
    l->length = l->n_x ? a->x[0]->shape[l->axis] : a->count;
    for (int i = 0; i < l->n_carry; i++) {
        sn_tensor c = l->in[i] = a->carry[i];
        l->one[i] = stand_in(l, "carry", i, (sn_dtype)c->dtype, c->rank, c->shape);
    }
    for (int i = 0; i < l->n_x; i++) {
        sn_tensor x = a->x[i];
        if (x->rank <= l->axis || x->shape[l->axis] != l->length) {
            char text[SN_NODE_TEXT], why[SN_NODE_TEXT + 80];
            snprintf(why, sizeof why, "its axis %d must be as long as axis %d of the first one, %s",
                     l->axis, l->axis, sn_node_text(a->x[0], text));
            return fail(l, "sequence", i, why, x);
        }
        x = l->in[l->n_carry + i] = move_axis(x, l->axis, 0);
        l->one[l->n_carry + i] = stand_in(l, "x", i, (sn_dtype)x->dtype, x->rank - 1, x->shape + 1);
    }
    int last = l->n_carry + l->n_x; /* the number of the element */
    l->in[last] = sn_b_iota(l->m, SN_I32, 1, &l->length, 0);
    l->one[last] = stand_in(l, "index", 0, SN_I32, 0, NULL);
    return !sn_module_error(l->m)->code;
}

static bool same_type(sn_tensor x, sn_tensor y) {
    return x->dtype == y->dtype && front_same_shape(x, y);
}

static bool call_body(loop *l) {
    sn_tensor next[SN_MAX_SCAN + 1] = {NULL}, y[SN_MAX_SCAN + 1] = {NULL};
    sn_tensor carry[SN_MAX_SCAN + 1] = {NULL}, x[SN_MAX_SCAN + 1] = {NULL};
    memcpy(carry, l->one, sizeof *carry * (size_t)l->n_carry);
    memcpy(x, l->one + l->n_carry, sizeof *x * (size_t)l->n_x);
    sn_scan_step step = {.m = l->m,
                         .carry = carry,
                         .x = x,
                         .index = l->one[l->n_carry + l->n_x],
                         .next = next,
                         .y = y,
                         .user = l->a->user};
    sn_module_set_callback(l->m, "body");
    l->a->body(&step);
    sn_module_set_callback(l->m, NULL);
    sn_module_set_loc(l->m, l->at);
    if (sn_module_error(l->m)->code) return false;
    for (int i = 0; i < l->n_carry; i++) {
        if (!next[i]) return fail(l, "the next carry", i, "the body must set it", NULL);
        if (next[i]->m != l->m || !same_type(next[i], carry[i])) {
            char text[SN_NODE_TEXT], why[SN_NODE_TEXT + 60];
            snprintf(why, sizeof why, "it must have the type of the carry, %s",
                     sn_node_text(l->in[i], text));
            return fail(l, "the next carry", i, why, next[i]);
        }
        l->out[i] = next[i];
    }
    l->n_y = front_tensors(y);
    for (int i = 0; i < l->n_y; i++) {
        if (y[i]->m != l->m) return fail(l, "output", i, "it belongs to another module", NULL);
        if (y[i]->rank < l->axis || y[i]->rank == SN_MAX_RANK)
            return fail(l, "output", i, "its axes leave no place for the axis of the loop", y[i]);
        l->out[l->n_carry + i] = y[i];
    }
    if (l->n_carry + l->n_y) return true;
    sn_module_fail(l->m, SN_ERR_USAGE, "scan: the body sets neither a carry nor an output");
    return false;
}

/* Not worth a captured tensor. */
static bool is_constant(sn_tensor x) {
    while (x->op == SN_OP_broadcast || x->op == SN_OP_reshape || x->op == SN_OP_cast) x = x->in[0];
    return x->op == SN_OP_const || x->op == SN_OP_dim_value;
}

/* What the body uses that does not depend on the iteration. Returns the number of cuts, which come
 * after the n that `cut` has. */
static int find_captured(loop *l, int n, sn_tensor *cut) {
    int n_out = l->n_carry + l->n_y, first = n;
    sn_order order = sn_topo(l->m, n_out, l->out);
    bool *moves = sn_arena_alloc(l->m, sn_module_node_count(l->m) + 1);
    bool *cut_off = sn_arena_alloc(l->m, sn_module_node_count(l->m) + 1);
    for (int i = 0; i < first; i++) moves[cut[i]->id] = true;
    for (int i = 0; i < order.n; i++) {
        sn_node *x = order.node[i];
        for (int k = 0; k < x->n_in; k++) moves[x->id] |= moves[x->in[k]->id];
    }
    for (int i = 0; i < order.n + n_out; i++) {
        sn_node *x = i < order.n ? order.node[i] : NULL;
        int n_in = x ? (moves[x->id] ? x->n_in : 0) : 1;
        for (int k = 0; k < n_in; k++) {
            sn_node *y = x ? x->in[k] : l->out[i - order.n];
            if (moves[y->id] || cut_off[y->id] || is_constant(y)) continue;
            cut_off[y->id] = true;
            cut[n++] = y;
        }
    }
    return n;
}

static sn_tensor make_scan(loop *l) {
    sn_module *m = l->m;
    size_t room = (size_t)sn_module_node_count(m) + 2 * SN_MAX_SCAN + 1;
    sn_tensor *cut = sn_arena_alloc(m, sizeof *cut * room);
    int n_x = l->n_x, n = l->n_carry + n_x + 1; /* with the element's number, if it is read */
    memcpy(cut, l->one, sizeof *cut * (size_t)n);
    int n_cut = find_captured(l, n, cut);
    sn_order order = sn_topo(m, l->n_carry + l->n_y, l->out);
    bool counts = !l->n_x; /* an op scan has a sequence */
    for (int i = 0; i < order.n; i++) counts |= order.node[i] == l->one[n - 1];
    if (!counts) memmove(cut + n - 1, cut + n, sizeof *cut * (size_t)(n_cut-- - n));
    n_x += counts;
    sn_region *body = sn_region_extract(m, n_cut, cut, l->n_carry + l->n_y, l->out);
    if (sn_module_error(m)->code) return sn_module_error_node(m);
    memcpy(cut, l->in, sizeof *cut * (size_t)(l->n_carry + n_x)); /* now the operands */
    sn_attr attr[5] = {SN_INT(carries, l->n_carry), SN_INT(sequences, n_x), SN_REG(body, body)};
    int n_attr = 3;
    if (l->a->reverse) attr[n_attr++] = SN_INT(reverse, 1);
    if (l->associative) attr[n_attr++] = SN_INT(associative, 1);
    return sn_node_new(m, SN_OP_scan, n_cut, cut, n_attr, attr);
}

/* Every result is the error node, so that reading one is harmless. */
static sn_scanned failed(sn_tensor bad) {
    sn_scanned r;
    for (int i = 0; i < SN_MAX_SCAN; i++) r.carry[i] = r.y[i] = bad;
    return r;
}

sn_scanned sn_scan_at(sn_loc at, const sn_scan_args *a) {
    return front_scan(at, a, false);
}

sn_scanned front_scan(sn_loc at, const sn_scan_args *a, bool associative) {
    if (!a) return failed(NULL);
    loop l = {.a = a, .at = at, .associative = associative};
    sn_tensor in[2 * SN_MAX_SCAN] = {NULL}, bad;
    while (l.n_carry < SN_MAX_SCAN && a->carry[l.n_carry]) l.n_carry++;
    while (l.n_x < SN_MAX_SCAN && a->x[l.n_x]) l.n_x++;
    memcpy(in, a->carry, sizeof *in * (size_t)l.n_carry);
    memcpy(in + l.n_carry, a->x, sizeof *in * (size_t)l.n_x);
    int n = l.n_carry + l.n_x;
    if (!n || !front_enter(at, "scan", n, n, in, &bad)) return failed(n ? bad : NULL);
    l.m = in[0]->m;
    if (!l.n_x == !a->count || !a->body)
        return failed(sn_module_fail(l.m, SN_ERR_USAGE, "scan: %s",
                                     !a->body ? ".body is NULL"
                                     : l.n_x  ? ".x and .count are both given"
                                              : "neither .x nor .count is given"));
    if (!take_operands(&l) || !call_body(&l)) return failed(sn_module_error_node(l.m));
    sn_tensor all = make_scan(&l);
    sn_scanned r = failed(NULL);
    if (sn_module_error(l.m)->code) return failed(sn_module_error_node(l.m));
    for (int i = 0; i < l.n_carry; i++) r.carry[i] = sn_b_result(all, i);
    for (int i = 0; i < l.n_y; i++) r.y[i] = move_axis(sn_b_result(all, l.n_carry + i), 0, l.axis);
    return r;
}
