/* asked.c: inputs that a graph asks for, where a model's entry has others. */
#include "frontend/onnx/asked.h"

bool onnx_agrees(const onnx_asked *g, const sn_dim *dims) {
    onnx_call *c = g->c;
    int n = 0;
    char a[64], b[64];
    for (; g->shape[n] != SN_END && dims[n] != SN_END; n++) {
        if (onnx_equal(c, g->shape[n], dims[n])) continue;
        sn_dim_print(c->m, g->shape[n], a, sizeof a);
        sn_dim_print(c->m, dims[n], b, sizeof b);
        return onnx_again(c) ? false
                             : onnx_fail(c, "axis %d of the input '%s' has the size %s, not %s", n,
                                         g->name, a, b);
    }
    return g->shape[n] == dims[n] ||
           onnx_fail(c, "the input '%s' has %s axes than those of this name have", g->name,
                     g->shape[n] == SN_END ? "fewer" : "more");
}

int onnx_free_axis(const onnx_asked *g, sn_dim *shape) {
    int n = 0, axis = -1;
    for (; g->shape[n] != SN_END; n++) {
        shape[n] = g->shape[n];
        if (n && !sn_dim_is_const(g->c->m, shape[n], NULL)) axis = axis == -1 ? n : -2;
    }
    shape[n] = SN_END;
    return axis;
}

bool onnx_same_dim(const onnx_call *c, sn_dim a, sn_dim b) {
    return a == b || sn_dim_sub(c->m, a, b) == 0;
}
