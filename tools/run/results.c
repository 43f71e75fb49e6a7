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

bool run_entry(sn_session *s, sn_module *m, const sn_entry *e, const inspect_inputs *in,
               bool filled, run_results *out, sn_error *err) {
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
