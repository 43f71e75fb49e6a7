/* inputs.c: made-up inputs for an entry, see inputs.h. */
#include "tools/inspect/inputs.h"
#include "codegen/program/program.h"
#include "codegen/program/sizes.h"
#include "runtime/rng.h"

#include <stdlib.h>
#include <string.h>

static bool names_documents(const char *name) {
    return strstr(name, "document") || strstr(name, "segment");
}

/* Three quarters of a source's length, or else of a text's. */
static int64_t length_of(const inspect_inputs *in, const sn_module *m) {
    int i = sn_symbol_find(m, "S");
    if (i < 0) i = sn_symbol_find(m, "T");
    return i < 0 ? 0 : (3 * in->symbol[i] + 3) / 4;
}

typedef struct filler {
    const char *name;
    sn_dtype dtype;
    sn_rng rng;
    int64_t limit, length, row; /* row: elements of the last axis */
    const sn_attr *bounds;      /* NULL: none; they contain 0, and of floats 0 to 1 */
} filler;

static double value_at(const filler *f, int64_t i) {
    enum { DOCUMENTS = 4 };
    double random = (sn_rng_at(&f->rng, (uint64_t)i) >> 8) * 0x1p-24;
    if (sn_dtype_is_float(f->dtype)) return f->bounds ? random : 2 * random - 1;
    if (f->limit) return (double)(int64_t)(random * (double)f->limit);
    if (!strcmp(f->name, "lengths")) return (double)f->length;
    return names_documents(f->name) && f->row ? (double)(i % f->row * DOCUMENTS / f->row) : 0;
}

static bool add_input(inspect_inputs *in, const sn_entry *e, const sn_node *n, sn_error *err) {
    int64_t count = 1;
    if (in->n == LOOK_INPUTS) return sn_fail(err, SN_ERR_USAGE, "an entry with too many inputs");
    int64_t *shape = in->shape[in->n];
    for (int i = 0; i < n->rank; i++) {
        shape[i] = sn_dim_eval(n->m, n->shape[i], in->symbol);
        count *= shape[i];
    }
    sn_dtype t = (sn_dtype)n->dtype;
    const char *name = sn_attr_str(n, SN_A_name, "");
    void *data = calloc((size_t)count + 1, sn_dtype_size(t));
    if (!data) return sn_fail(err, SN_ERR_MEMORY, "out of memory for input '%s'", name);
    filler f = {.name = name,
                .dtype = t,
                .rng = {.stream = SN_STREAM_DATA, .step = (uint32_t)in->n},
                .limit = sn_dtype_is_float(t) ? 0 : sn_input_limit(n->m, e, n, in->symbol),
                .length = length_of(in, n->m),
                .bounds = sn_attr_get(n, SN_A_bounds),
                .row = n->rank ? shape[n->rank - 1] : 1};
    for (int64_t i = 0; i < count; i++) sn_dtype_store(t, data, i, value_at(&f, i));
    in->data[in->n_data++] = data;
    in->arg[in->n++] = (sn_arg_binding){name, t, n->rank, shape, data};
    return true;
}

static bool has_input(const inspect_inputs *in, const sn_node *n) {
    for (int i = 0; i < in->n; i++)
        if (!strcmp(in->arg[i].name, sn_attr_str(n, SN_A_name, ""))) return true;
    return false;
}

bool inspect_inputs_past(const sn_module *m, const sn_entry *e) {
    sn_order order = sn_entry_topo((sn_module *)(uintptr_t)m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_state) return true;
    return false;
}

bool inspect_inputs_sizes(const sn_module *m, int64_t length, bool past, const char *sizes,
                          char text[LOOK_SIZES], sn_error *err) {
    int64_t value[LOOK_SYMBOLS];
    size_t n = 0;
    *text = 0;
    if (sn_symbol_count(m) > LOOK_SYMBOLS)
        return sn_fail(err, SN_ERR_USAGE, "a model with too many symbolic dimensions");
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        int64_t maximum = past ? s->hi / 2 : s->hi;
        value[i] = !strcmp(s->name, "B") ? 1 : maximum < length ? maximum : length;
        if (!past && !strcmp(s->name, "P")) value[i] = 0;
        if (value[i] < s->lo) value[i] = s->lo;
    }
    if (!sn_sizes_read(m, "sizes", sizes, value, err)) return false;
    for (int i = 0; i < sn_symbol_count(m) && n < LOOK_SIZES; i++)
        n += (size_t)snprintf(text + n, LOOK_SIZES - n, "%s%s=%lld", n ? "," : "",
                              sn_symbol_at(m, i)->name, (long long)value[i]);
    return true;
}

static bool begin(inspect_inputs *in, const sn_module *m, const char *sizes, sn_error *err) {
    *in = (inspect_inputs){.n = 0};
    if (sn_symbol_count(m) > LOOK_SYMBOLS)
        return sn_fail(err, SN_ERR_USAGE, "a model with too many symbolic dimensions");
    sn_sizes_middle(m, in->symbol);
    return sn_sizes_read(m, "sizes", sizes, in->symbol, err);
}

/* What the entry reads and is not there yet; then the symbolic dimensions. */
static bool add_written(inspect_inputs *in, sn_module *m, const sn_entry *e, sn_error *err) {
    sn_order order = sn_entry_topo(m, e);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_input && !has_input(in, order.node[i]) &&
            !add_input(in, e, order.node[i], err))
            return false;
    for (int i = 0; i < sn_symbol_count(m) && in->n < LOOK_INPUTS; i++)
        in->arg[in->n++] = (sn_arg_binding){
            .name = sn_symbol_at(m, i)->name, .dtype = SN_I64, .data = &in->symbol[i]};
    return true;
}

bool inspect_inputs_make(inspect_inputs *in, const sn_program *p, const char *entry,
                         const char *sizes, sn_error *err) {
    sn_module *m = p->m;
    const sn_compiled_entry *c = sn_program_entry(p, entry);
    if (!c) {
        *in = (inspect_inputs){.n = 0};
        return sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'", entry);
    }
    if (!begin(in, m, sizes, err)) return false;
    const sn_plan *plan = c->code.plan;
    const sn_entry *e = sn_entry_get(m, entry);
    for (int i = 0; i < plan->n_input; i++)
        if (!add_input(in, e, plan->input[i].node, err)) return false;
    return add_written(in, m, e, err); /* for the evaluator */
}

bool inspect_inputs_written(inspect_inputs *in, sn_module *m, const char *entry, const char *sizes,
                            sn_error *err) {
    return begin(in, m, sizes, err) && add_written(in, m, sn_entry_get(m, entry), err);
}

void inspect_inputs_free(inspect_inputs *in) {
    for (int i = 0; i < in->n_data; i++) free(in->data[i]);
    in->n_data = 0;
}

bool inspect_inputs_run(const inspect_inputs *in, sn_session *s, const char *entry, sn_error *err) {
    return sn_run(s, entry, in->arg, in->n, NULL, 0, err);
}
