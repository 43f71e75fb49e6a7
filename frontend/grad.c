/* grad.c: sn_grad: checks of what the user asks a gradient of; the walk itself is in ir/grad.c.
 * Attention in plain operations becomes attention before that: the gradients of its parts could not
 * be put together to the gradient's kernel afterwards. */
#include "frontend/front.h"
#include "passes/passes.h"

/* Fails the module if x is no tensor of its own that has a gradient. */
static bool has_gradient(sn_tensor loss, sn_tensor x, int i) {
    char t[FRONT_TEXT];
    if (sn_dtype_is_float((sn_dtype)x->dtype)) return true;
    sn_module_fail(loss->m, SN_ERR_USAGE,
                   "sn_grad: tensor %d of the list is %s; only floats have a gradient", i + 1,
                   front_text(x, t));
    return false;
}

typedef struct gradient {
    sn_tensor loss;
    int n;
    const sn_tensor *wrt;
    sn_tensor *out;
    int zeros;
} gradient;

static void take_gradient(void *ctx) {
    gradient *g = ctx;
    bool leaves = true;
    for (int i = 0; i < g->n; i++) leaves &= !g->wrt[i]->n_in;
    g->zeros = sn_gradient(leaves ? sn_raise_loss(g->loss) : g->loss, g->n, g->wrt, g->out);
}

int sn_grad_at(sn_loc at, sn_tensor loss, int n, const sn_tensor *wrt, sn_tensor *out) {
    sn_tensor bad = loss ? sn_module_error_node(loss->m) : NULL;
    char t[FRONT_TEXT];
    for (int i = 0; out && i < n; i++) out[i] = bad;
    if (n < 1) return 0;
    if (!front_enter(at, "sn_grad", 1, 1, &loss, &bad)) return 0;
    if (!front_list(loss->m, "sn_grad", n, wrt)) return 0;
    if (!out) {
        sn_module_fail(loss->m, SN_ERR_USAGE, "sn_grad: the list of gradients is NULL");
        return 0;
    }
    if (!front_enter(at, "sn_grad", n, n, wrt, &bad)) return 0;
    if (loss->rank || !sn_dtype_is_float((sn_dtype)loss->dtype)) {
        sn_module_fail(loss->m, SN_ERR_SHAPE,
                       "sn_grad: the loss is %s; it must be a float scalar. Hint: sn_mean_all or "
                       "sn_sum_all of it",
                       front_text(loss, t));
        return 0;
    }
    for (int i = 0; i < n; i++) {
        if (wrt[i]->m != loss->m) {
            sn_module_fail(loss->m, SN_ERR_USAGE, "sn_grad: tensor %d belongs to module '%s'",
                           i + 1, sn_module_name(wrt[i]->m));
            return 0;
        }
        if (!has_gradient(loss, wrt[i], i)) return 0;
    }
    gradient g = {loss, n, wrt, out, 0};
    if (sn_module_try(loss->m, take_gradient, &g)) return g.zeros;
    for (int i = 0; i < n; i++) out[i] = bad;
    return 0;
}

int sn_params_of(sn_tensor x, int max, sn_tensor *out) {
    int n = 0;
    if (!x || sn_module_error(x->m)->code) return 0;
    sn_order order = sn_topo(x->m, 1, &x);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_param && n++ < max && out) out[n - 1] = order.node[i];
    return n;
}
