/* train_nan.c: where a number that is none came from: the step is done again by the reference
 * evaluator, operation by operation, until one makes a NaN or an infinity of finite operands. */
#include "tools/train.h"

#include "ir/ir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -inf is what masks are made of: it is no mistake by itself. */
static bool is_sound(const sn_value *v) {
    for (int64_t i = 0; i < v->n; i++)
        if (isnan(v->data[i]) || v->data[i] == INFINITY) return false;
    return true;
}

static sn_eval *open_eval(sn_module *m, const sn_batch *b) {
    int64_t value[64] = {0};
    for (int i = 0; i < sn_symbol_count(m) && i < 64; i++) {
        const char *name = sn_symbol_at(m, i)->name;
        value[i] = !strcmp(name, "B") ? b->B : !strcmp(name, "S") ? b->S : b->T;
    }
    return sn_eval_new(m, value);
}

/* What the step reads: the batch, the states before it, and gradients that are added up: zeros. */
static bool bind_leaf(sn_eval *ev, const sn_node *n, const train_tensors *before,
                      const sn_arg_binding *in, int n_in) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    for (int i = 0; i < n_in; i++) {
        int64_t count = 1;
        for (int a = 0; a < in[i].rank; a++) count *= in[i].shape[a];
        if (!strcmp(in[i].name, name))
            return sn_eval_bind(ev, name, in[i].data, (size_t)count * sn_dtype_size(in[i].dtype));
    }
    for (size_t i = 0; i < before->count; i++)
        if (!strcmp(before->weight[i].name, name))
            return sn_eval_bind(ev, name, before->weight[i].data, before->weight[i].bytes);
    int64_t count = 1;
    for (int a = 0; a < n->rank; a++) count *= n->shape[a];
    double *zero = calloc((size_t)count + 1, sizeof *zero);
    bool ok = zero && sn_eval_bind_f64(ev, name, zero, count);
    free(zero);
    return ok;
}

/* A name for the node or the nearest named tensor made before it. */
static const char *name_near(const sn_entry *e, const sn_order *order, int at) {
    for (int j = at; j >= 0; j--)
        for (int k = 0; k < e->n_tap; k++)
            if (e->tap[k].node == order->node[j]) return e->tap[k].name;
    return NULL;
}

static void describe(const sn_entry *e, const sn_order *order, int at, char *buf, size_t size) {
    const sn_node *n = order->node[at];
    char shape[128];
    sn_shape_print(n->m, n->rank, n->shape, shape, sizeof shape);
    const char *near = name_near(e, order, at);
    snprintf(buf, size, "the first is made by %s %s%s (%s:%d)%s%s%s", sn_ops[n->op].name,
             sn_dtype_name((sn_dtype)n->dtype), shape, n->loc.file ? n->loc.file : "?", n->loc.line,
             near ? ", at or after \"" : "", near ? near : "", near ? "\"" : "");
}

bool train_find_nan(sn_module *m, const train_tensors *before, const sn_batch *b,
                    const sn_arg_binding *in, int n_in, char *buf, size_t size) {
    sn_entry *e = sn_entry_get(m, "accumulate");
    if (!e) e = sn_entry_get(m, "train_step");
    sn_eval *ev = e ? open_eval(m, b) : NULL;
    if (!ev) return false;
    sn_eval_set_exact(ev, false);
    sn_order order = sn_entry_topo(m, e);
    bool found = false, ok = true;
    for (int i = 0; ok && i < order.n; i++) {
        sn_node *n = order.node[i];
        bool leaf = n->op == SN_OP_input || n->op == SN_OP_param || n->op == SN_OP_state;
        ok = !leaf || bind_leaf(ev, n, before, in, n_in);
    }
    for (int i = 0; ok && !found && i < order.n; i++) {
        const sn_value *v = sn_eval_node(ev, order.node[i]);
        ok = v != NULL;
        found = ok && !is_sound(v);
        if (found) describe(e, &order, i, buf, size);
    }
    sn_eval_free(ev);
    return found;
}
