/* sort.c: orders of elements along an axis, and what is read in them. */
#include "frontend/front.h"

/* The indices in order; size: of the first so many, NULL: of all. */
static sn_tensor order_of(sn_tensor x, int axis, bool descending, const sn_dim *size) {
    sn_attr attr[3] = {SN_INT(axis, axis), SN_INT(descending, descending)};
    if (size) attr[2] = SN_LIST(size, 1, size);
    return sn_node_new(x->m, SN_OP_argsort, 1, &x, size ? 3 : 2, attr);
}

static sn_tensor in_order(sn_tensor x, sn_tensor order, int axis) {
    return SN_NODE(x->m, take_sorted, SN_ATTRS(SN_INT(axis, axis)), x, order);
}

sn_tensor sn_argsort_at(sn_loc at, sn_tensor x, int axis, bool descending) {
    FRONT_ENTER("argsort", x);
    int a = front_axis(x->m, "argsort", x, axis, x->rank);
    return a < 0 ? bad_ : order_of(x, a, descending, NULL);
}

sn_tensor sn_sort_at(sn_loc at, sn_tensor x, int axis, bool descending) {
    FRONT_ENTER("sort", x);
    int a = front_axis(x->m, "sort", x, axis, x->rank);
    return a < 0 ? bad_ : in_order(x, order_of(x, a, descending, NULL), a);
}

sn_tensor sn_top_k_at(sn_loc at, sn_tensor x, sn_dim k, sn_tensor *index) {
    if (index) *index = x;
    FRONT_ENTER("top_k", x);
    int last = x->rank - 1;
    int64_t n, size;
    char t[SN_NODE_TEXT];
    bool fits = last >= 0 && (!sn_dim_is_const(x->m, k, &size) || size >= 1);
    if (fits && sn_dim_is_const(x->m, k, &size) && sn_dim_is_const(x->m, x->shape[last], &n))
        fits = size <= n;
    if (!fits) {
        char text[64];
        sn_dim_print(x->m, k, text, sizeof text);
        return sn_module_fail(x->m, SN_ERR_SHAPE,
                              "top_k: %s of the last axis of %s: from 1 to its size", text,
                              sn_node_text(x, t));
    }
    sn_tensor order = order_of(x, last, true, &k);
    if (index) *index = order;
    return in_order(x, order, last);
}
