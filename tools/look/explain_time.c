/* explain_time.c: measures the kernel calls of an entry, on random weights or the model's. */
#include "tools/look/explain_time.h"
#include "codegen/program/sizes.h"
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 64, MAX_SYMBOLS = 16, RUNS = 5, EVENTS = 1 << 18 };

typedef struct inputs {
    sn_arg_binding arg[MAX_INPUTS];
    int64_t shape[MAX_INPUTS][SN_MAX_RANK];
    void *data[MAX_INPUTS]; /* of inputs */
    int64_t symbol[MAX_SYMBOLS];
    int n, n_data;
} inputs;

/* Zeros: token 0 everywhere. The time of dense kernels does not depend on values. */
static bool add_input(inputs *in, const sn_module *m, const sn_node *n, sn_error *err) {
    size_t count = 1;
    if (in->n == MAX_INPUTS) return sn_fail(err, SN_ERR_USAGE, "an entry with too many inputs");
    int64_t *shape = in->shape[in->n];
    for (int i = 0; i < n->rank; i++) {
        shape[i] = sn_dim_eval(m, n->shape[i], in->symbol);
        count *= (size_t)shape[i];
    }
    void *data = calloc(count + 1, sn_dtype_size((sn_dtype)n->dtype));
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory for an input");
    in->data[in->n_data++] = data;
    in->arg[in->n++] =
        (sn_arg_binding){sn_attr_str(n, SN_A_name, ""), (sn_dtype)n->dtype, n->rank, shape, data};
    return true;
}

static bool make_inputs(inputs *in, sn_module *m, const sn_entry *e, const char *sizes,
                        sn_error *err) {
    if (sn_symbol_count(m) > MAX_SYMBOLS)
        return sn_fail(err, SN_ERR_USAGE, "a model with too many symbolic dimensions");
    sn_sizes_middle(m, in->symbol);
    if (!sn_sizes_read(m, "report", sizes, in->symbol, err)) return false;
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input && !add_input(in, m, order.node[i], err)) return false;
    for (int i = 0; i < sn_symbol_count(m) && in->n < MAX_INPUTS; i++)
        in->arg[in->n++] = (sn_arg_binding){
            .name = sn_symbol_at(m, i)->name, .dtype = SN_I64, .data = &in->symbol[i]};
    return true;
}

static bool run(sn_session *s, const char *entry, const inputs *in, int times, sn_error *err) {
    bool ok = true;
    for (int i = 0; ok && i < times; i++) ok = sn_run(s, entry, in->arg, in->n, NULL, 0, err);
    return ok;
}

bool explain_measure(explain_entry *e, sn_session *s, sn_module *m, sn_error *err) {
    inputs *in = calloc(1, sizeof *in);
    e->seconds = calloc((size_t)e->n + 1, sizeof *e->seconds);
    bool ok = (in && e->seconds) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && make_inputs(in, m, sn_entry_get(m, e->name), e->sizes, err) &&
         run(s, e->name, in, 1, err);
    sn_trace *t = ok ? sn_trace_begin(s, e->name, EVENTS, err) : NULL;
    ok = t && run(s, e->name, in, RUNS, err);
    if (ok) sn_trace_seconds(t, e->seconds, e->n);
    sn_trace_end(t);
    for (int i = 0; in && i < in->n_data; i++) free(in->data[i]);
    free(in);
    return ok;
}
