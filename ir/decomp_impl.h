/* decomp_impl.h: shared by the decompositions: the composite being decomposed, its operands in its
 * compute type, and error messages. */
#ifndef SN_DECOMP_IMPL_H
#define SN_DECOMP_IMPL_H

#include "ir/module_impl.h"

typedef struct decomp {
    sn_module *m;
    sn_op op;
    int n_in;
    sn_node *const *in;
    int n_attr;
    const sn_attr *attr; /* ascending keys */
    sn_node **out;       /* [SN_MAX_RESULTS] filled by the decomposition */
    int n_out;
    sn_dtype type; /* compute type: the widest float type of the operands, at least f32 */
} decomp;

/* Decomposes c: fills c->out and c->n_out. false: the module has the error. */
typedef bool (*decomp_fn)(decomp *c);

#define COMP(name, ...) bool decomp_##name(decomp *c);
#define FUSED(name, ...) bool decomp_##name(decomp *c);
#include "ir/ops.def"

/* Operand i; a float is converted to c->type. */
sn_node *sn_dc_operand(const decomp *c, int i);
/* Sets y as the only result, converted to operand 0's type if that is a float. */
bool sn_dc_done(decomp *c, sn_node *y);
/* Fails the module with op, reason and all operands with their shapes. Returns false. */
bool sn_dc_fail(const decomp *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const sn_attr *sn_dc_attr(const decomp *c, sn_attr_key key); /* NULL: absent */
int64_t sn_dc_int(const decomp *c, sn_attr_key key, int64_t otherwise);
double sn_dc_flt(const decomp *c, sn_attr_key key, double otherwise);
/* Checks with error messages: operand i is float, integer, has a rank, equal sizes. */
bool sn_dc_float(const decomp *c, int i);
bool sn_dc_integer(const decomp *c, int i);
bool sn_dc_rank(const decomp *c, int i, int at_least);
bool sn_dc_vector(const decomp *c, int i, sn_dim size); /* operand i, if present, is [size] */
/* The axis attribute; if absent, the last axis of operand 0. */
bool sn_dc_axis(const decomp *c, int *axis);
/* sn_dim_is_const with an error message that names what. */
bool sn_dc_number(const decomp *c, const char *what, sn_dim d, int64_t *value);

/* c->out, c->n_out: the results of r, which is the op's `what`, for these operands, whose types must be
 * its arguments'. */
bool sn_dc_open_region(decomp *c, const sn_region *r, const char *what, int n_arg,
                       sn_node *const *arg);

/* A composite inside a decomposition. */
/* The dot of x and y over one axis each, with n_batch leading batch axes. */
sn_node *sn_dc_dot(sn_node *x, sn_node *y, int n_batch, int64_t contract_x, int64_t contract_y);

#endif
