/* gradients.c: an entry with the gradients of another one, see gradients.h. */
#include "frontend/gradients.h"
#include "frontend/sinter.h"
#include "runtime/problems.h"

#include <stdio.h>
#include <string.h>

static sn_node *sum_of(sn_module *m, const sn_binding *o, bool weighted) {
    sn_node *x = o->node;
    if (weighted) {
        sn_node *w =
            sn_node_new(m, SN_OP_input, 0, NULL,
                        SN_ATTRS(SN_STR(name, sn_arena_printf(m, "weights.%s", o->name)),
                                 SN_INT(dtype, x->dtype), SN_LIST(shape, x->rank, x->shape)));
        x = sn_mul(x, w);
    }
    return x->rank ? sn_sum_all(x) : x;
}

/* The sum of the outputs; NULL: none of them is a float. */
static sn_node *loss_of(sn_module *m, const sn_entry *e, const char *output, bool weighted) {
    sn_node *loss = NULL;
    for (int i = 0; i < e->n_output; i++) {
        if (output && strcmp(output, e->output[i].name) != 0) continue;
        if (!sn_is_float(e->output[i].node)) continue;
        sn_node *part = sum_of(m, &e->output[i], weighted);
        loss = loss ? sn_add(loss, sn_cast(part, (sn_dtype)loss->dtype)) : part;
    }
    return loss;
}

int sn_entry_gradient(sn_module *m, const sn_entry *e, const char *name, const char *output,
                      const char *wrt, bool weighted, sn_node **loss, sn_node ***wrt_out,
                      sn_error *err) {
    sn_order order = sn_entry_topo(m, e);
    sn_node **leaf = sn_arena_alloc(m, sizeof *leaf * (size_t)(2 * order.n + 2));
    sn_node **gradient = leaf + order.n + 1;
    sn_node *sum = loss_of(m, e, output, weighted);
    if (!sum && output) {
        sn_fail(err, SN_ERR_USAGE, "entry '%s' has no float output '%s'", e->name, output);
        return -1;
    }
    sn_order below = sum ? sn_topo(m, 1, &sum) : (sn_order){0};
    int n = 0, names = 0;
    const char **floats = sn_arena_alloc(m, sizeof *floats * (size_t)(below.n + 1));
    for (int i = 0; i < below.n; i++) {
        sn_node *x = below.node[i];
        const char *called = sn_attr_str(x, SN_A_name, "");
        bool known = x->op == SN_OP_param || x->op == SN_OP_input;
        if (!known || !sn_is_float(x) || (weighted && !strncmp(called, "weights.", 8))) continue;
        floats[names++] = called;
        if (!wrt || !strcmp(wrt, called)) leaf[n++] = x;
    }
    floats[names] = NULL;
    if (!n && wrt) {
        const char *near = sn_nearest_name(wrt, floats);
        char list[300] = "";
        for (int i = 0; i < names && !near; i++) {
            size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "; there are ", floats[i]);
        }
        sn_fail(err, SN_ERR_USAGE, "no float parameter or input '%s' in entry '%s'%s%s%s%s", wrt,
                e->name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", list);
        return -1;
    }
    if (!n || !sn_module_ok(m, err)) return -1;
    sn_grad(sum, n, leaf, gradient);
    if (!sn_module_ok(m, err)) return -1;
    sn_entry *g = sn_entry_add(m, name);
    for (int i = 0; i < n; i++)
        sn_entry_output(m, g,
                        sn_arena_printf(m, "gradient.%s", sn_attr_str(leaf[i], SN_A_name, "")),
                        gradient[i]);
    if (loss) *loss = sum;
    if (wrt_out) *wrt_out = leaf;
    return n;
}

int sn_entry_vjp(sn_module *m, const char *entry, const char *name, sn_error *err) {
    sn_error unread = {0};
    if (!err) err = &unread;
    const sn_entry *e = m && entry ? sn_entry_get(m, entry) : NULL;
    if (!e || !name) {
        sn_fail(err, SN_ERR_USAGE, "sn_entry_vjp: %s",
                !m                ? "the module is NULL"
                : !entry || !name ? "an entry needs a name"
                                  : "the module has no such entry");
        return -1;
    }
    int n = sn_entry_gradient(m, e, name, NULL, NULL, true, NULL, NULL, err);
    return n < 0 && !err->code ? 0 : n;
}
