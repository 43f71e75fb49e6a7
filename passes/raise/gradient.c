/* gradient.c: sn_grad and sn_check_grad: checks and preparation. ir/grad.c does the
 * differentiation. */
#include "passes/raise/gradient.h"
#include "passes/passes.h"

/* False, and an error of the module, if the loss has no gradient with respect to wrt. */
static bool may_differentiate(sn_node *loss, int n, sn_node *const *wrt) {
    sn_module *m = loss->m;
    char t[SN_NODE_TEXT];
    if (sn_module_error(m)->code) return false;
    if (loss->rank || !sn_is_float(loss)) {
        sn_module_fail(m, SN_ERR_SHAPE,
                       "sn_grad: the loss is %s; it must be a float scalar. Hint: sn_mean_all or "
                       "sn_sum_all of it",
                       sn_node_text(loss, t));
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!wrt[i]) {
            sn_module_fail(m, SN_ERR_USAGE, "sn_grad: tensor %d of the list is NULL", i + 1);
        } else if (wrt[i]->m != m) {
            sn_module_fail(m, SN_ERR_USAGE,
                           "sn_grad: tensor %d belongs to module '%s', the loss to '%s'", i + 1,
                           sn_module_name(wrt[i]->m), sn_module_name(m));
        } else if (!sn_is_float(wrt[i])) {
            sn_module_fail(m, SN_ERR_USAGE,
                           "sn_grad: tensor %d of the list is %s; only floats have a gradient",
                           i + 1, sn_node_text(wrt[i], t));
        }
    }
    return !sn_module_error(m)->code;
}

typedef struct gradient {
    sn_node *loss;
    int n;
    sn_node *const *wrt;
    sn_node **out;
    int zeros;
} gradient;

static void take_gradient(void *ctx) {
    gradient *g = ctx;
    bool leaves = true;
    for (int i = 0; i < g->n; i++) leaves &= !g->wrt[i]->n_in;
    g->zeros = sn_gradient(leaves ? sn_raise_loss(g->loss) : g->loss, g->n, g->wrt, g->out);
}

int sn_loss_gradient(sn_node *loss, int n, sn_node *const *wrt, sn_node **out) {
    gradient g = {loss, n, wrt, out, 0};
    double begin = sn_stage_begin();
    if (may_differentiate(loss, n, wrt) && sn_module_try(loss->m, take_gradient, &g)) {
        sn_stage_end(SN_STAGE_gradient, begin, -1);
        return g.zeros;
    }
    for (int i = 0; i < n; i++) out[i] = sn_module_error_node(loss->m);
    return 0;
}
