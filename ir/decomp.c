/* decomp.c: the decompositions of COMP and FUSED ops: dispatch by the rows of ops.def, and shared
 * helpers. The decompositions are in decomp_nn.c, decomp_product.c, decomp_attention.c and
 * decomp_fused.c, one function per row, named decomp_ROW. */
#include "ir/decomp_impl.h"

#include <stdarg.h>

static const decomp_fn decomp_table[SN_OP_COUNT] = {
#define COMP(name, ...) [SN_OP_##name] = decomp_##name,
#define FUSED(name, ...) [SN_OP_##name] = decomp_##name,
#include "ir/ops.def"
};

const sn_attr *sn_dc_attr(const decomp *c, sn_attr_key key) {
    return sn_attr_find(c->n_attr, c->attr, key);
}

int64_t sn_dc_int(const decomp *c, sn_attr_key key, int64_t otherwise) {
    const sn_attr *a = sn_dc_attr(c, key);
    return a ? a->i : otherwise;
}

double sn_dc_flt(const decomp *c, sn_attr_key key, double otherwise) {
    const sn_attr *a = sn_dc_attr(c, key);
    return a ? a->f : otherwise;
}

bool sn_dc_fail(const decomp *c, const char *fmt, ...) {
    char why[320], list[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    sn_operands_print(c->n_in, c->in, list, sizeof list);
    sn_module_fail(c->m, SN_ERR_SHAPE, "%s: %s; operands: %s", sn_ops[c->op].name, why, list);
    return false;
}

sn_node *sn_dc_operand(const decomp *c, int i) {
    sn_node *x = c->in[i];
    return sn_is_float(x) ? sn_b_cast(x, c->type) : x;
}

bool sn_dc_done(decomp *c, sn_node *y) {
    bool narrow = sn_is_float(c->in[0]) && c->in[0]->dtype != c->type;
    c->out[0] = narrow && y->dtype == c->type ? sn_b_cast(y, (sn_dtype)c->in[0]->dtype) : y;
    c->n_out = 1;
    return !c->m->error.code;
}

bool sn_dc_float(const decomp *c, int i) {
    return sn_is_float(c->in[i]) ||
           sn_dc_fail(c, "operand %d must have a float type; cast it first", i);
}

bool sn_dc_integer(const decomp *c, int i) {
    return (!sn_is_float(c->in[i]) && c->in[i]->dtype != SN_BOOL) ||
           sn_dc_fail(c, "operand %d must have an integer type", i);
}

bool sn_dc_rank(const decomp *c, int i, int at_least) {
    return c->in[i]->rank >= at_least ||
           sn_dc_fail(c, "operand %d needs at least %d axes", i, at_least);
}

bool sn_dc_vector(const decomp *c, int i, sn_dim size) {
    if (i >= c->n_in) return true;
    char want[64];
    if (sn_dc_float(c, i) && c->in[i]->rank == 1 && c->in[i]->shape[0] == size) return true;
    sn_dim_print(c->m, size, want, sizeof want);
    return sn_dc_fail(c, "operand %d must have the shape [%s]", i, want);
}

bool sn_dc_axis(const decomp *c, int *axis) {
    int rank = c->in[0]->rank;
    int64_t a = sn_dc_int(c, SN_A_axis, rank - 1);
    *axis = (int)a;
    if (a >= 0 && a < rank) return true;
    return sn_dc_fail(c, "there is no axis %lld", (long long)a);
}

bool sn_dc_number(const decomp *c, const char *what, sn_dim d, int64_t *value) {
    char text[64];
    if (sn_dim_is_const(c->m, d, value)) return true;
    sn_dim_print(c->m, d, text, sizeof text);
    return sn_dc_fail(c, "%s must be a fixed number, not %s", what, text);
}

sn_node *sn_dc_dot(sn_node *x, sn_node *y, int n_batch, int64_t contract_x, int64_t contract_y) {
    static const int64_t batch[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return sn_node_new(x->m, SN_OP_dot, 2, (sn_node *[]){x, y},
                       SN_ATTRS(SN_LIST(batch_a, n_batch, batch), SN_LIST(batch_b, n_batch, batch),
                                SN_LIST(contract_a, 1, &contract_x),
                                SN_LIST(contract_b, 1, &contract_y)));
}

/* The widest float type of the operands, at least f32. */
static sn_dtype widest_type(int n_in, sn_node *const *in) {
    for (int i = 0; i < n_in; i++)
        if (in[i]->dtype == SN_F64) return SN_F64;
    return SN_F32;
}

bool sn_decompose(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                  const sn_attr *attr, int *n_result, sn_node **results) {
    decomp c = {.m = m,
                .op = op,
                .n_in = n_in,
                .in = in,
                .n_attr = n_attr,
                .attr = attr,
                .out = results,
                .n_out = 1,
                .type = widest_type(n_in, in)};
    if (!decomp_table[op]) return sn_dc_fail(&c, "it is a primitive");
    if (!decomp_table[op](&c)) return false;
    *n_result = c.n_out;
    return true;
}
