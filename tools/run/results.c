/* results.c: see results.h. */
#include "tools/run/results.h"
#include "tools/run/values.h"

#include <stdlib.h>
#include <string.h>

static int64_t count_of(const sn_node *n, const int64_t *symbol, int64_t *shape) {
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= shape[i] = sn_dim_eval(n->m, n->shape[i], symbol);
    return count;
}

static bool fill_state(sn_session *s, const sn_node *state, const int64_t *symbol, sn_error *err) {
    int64_t shape[SN_MAX_RANK], n = count_of(state, symbol, shape);
    size_t bytes = (size_t)n * sn_dtype_size((sn_dtype)state->dtype);
    void *data = malloc(bytes + 1);
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    run_state_fill(state, n, data);
    bool ok = sn_state_write(s, sn_attr_str(state, SN_A_name, ""), data, bytes, err);
    free(data);
    return ok;
}

static bool add_result(run_results *out, const sn_binding *b, bool state, const int64_t *symbol,
                       sn_error *err) {
    run_tensor *t = &out->list[out->n];
    *t = (run_tensor){.name = b->name, .node = b->node, .state = state};
    t->n = count_of(b->node, symbol, t->shape);
    t->data = calloc((size_t)t->n + 1, sn_dtype_size((sn_dtype)b->node->dtype));
    if (!t->data) return sn_fail(err, SN_ERR_MEMORY, "out of memory for '%s'", b->name);
    out->n++;
    return true;
}

bool run_entry(sn_session *s, sn_module *m, const sn_entry *e, const look_inputs *in, bool filled,
               run_results *out, sn_error *err) {
    size_t room = (size_t)e->n_output + (size_t)e->n_assign + 1;
    *out = (run_results){.list = calloc(room, sizeof *out->list)};
    sn_arg_binding *bound = calloc(room, sizeof *bound);
    bool ok = (out->list && bound) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; ok && filled && i < order.n; i++)
        if (order.node[i]->op == SN_OP_state) ok = fill_state(s, order.node[i], in->symbol, err);
    for (int i = 0; ok && i < e->n_output; i++)
        ok = add_result(out, &e->output[i], false, in->symbol, err);
    for (int i = 0; ok && i < out->n; i++)
        bound[i] = (sn_arg_binding){out->list[i].name, (sn_dtype)out->list[i].node->dtype,
                                    out->list[i].node->rank, out->list[i].shape, out->list[i].data};
    ok = ok && sn_run(s, e->name, in->arg, in->n, bound, out->n, err);
    for (int i = 0; ok && i < e->n_assign; i++) {
        ok = add_result(out, &e->assign[i], true, in->symbol, err);
        run_tensor *t = &out->list[out->n - 1];
        ok = ok && sn_state_read(s, t->name, t->data,
                                 (size_t)t->n * sn_dtype_size((sn_dtype)t->node->dtype), err);
    }
    free(bound);
    return ok;
}

void run_results_free(run_results *r) {
    for (int i = 0; i < r->n; i++) free(r->list[i].data);
    free(r->list);
    *r = (run_results){0};
}

/* ---- gradients ---- */

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

int run_add_gradient(sn_module *m, const sn_entry *e, const char *name, const char *output,
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
    int n = 0;
    for (int i = 0; i < below.n; i++) {
        sn_node *x = below.node[i];
        const char *called = sn_attr_str(x, SN_A_name, "");
        bool known = x->op == SN_OP_param || x->op == SN_OP_input;
        if (!known || !sn_is_float(x) || (weighted && !strncmp(called, "weights.", 8))) continue;
        if (!wrt || !strcmp(wrt, called)) leaf[n++] = x;
    }
    if (!n && wrt) {
        sn_fail(err, SN_ERR_USAGE, "no float parameter or input '%s' in entry '%s'", wrt, e->name);
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
