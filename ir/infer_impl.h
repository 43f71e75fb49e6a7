/* infer_impl.h: shared by the rules of types and shapes: the operation in question, and error messages. */
#ifndef SN_INFER_IMPL_H
#define SN_INFER_IMPL_H

#include "ir/module_impl.h"

typedef struct infer_ctx {
    sn_module *m;
    sn_op op;
    int n_in;
    sn_node *const *in;
    int n_attr;
    const sn_attr *attr;
    sn_type out;
    sn_type *all; /* [SN_MAX_RESULTS] of an op with several results, `out` is not used */
    int n_all;
    char why[400];
} infer_ctx;

/* Whether {compute}, if it is there, is bf16, and factors of type t are f32. */
bool sn_infer_compute(infer_ctx *c, sn_dtype t);
/* A rule of ops.def: computes c->out or c->all, or fails. */
#define ELEM(name, n, rule, ...) bool infer_##rule(infer_ctx *c);
#define PRIM(name, n, rule, ...) bool infer_##rule(infer_ctx *c);
#include "ir/ops.def"

/* Records why the operation is wrong; returns false. */
bool sn_infer_fail(infer_ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const sn_attr *sn_infer_attr(const infer_ctx *c, sn_attr_key key); /* NULL: absent */
const sn_attr *sn_infer_need(infer_ctx *c, sn_attr_key key); /* NULL: a failure was recorded */
/* For messages. */
const char *sn_infer_dim(const infer_ctx *c, sn_dim d, char buf[64]);
bool sn_infer_int(sn_dtype t);
/* The result has n's shape and type t; has the shape, which it checks. */
bool sn_infer_like(infer_ctx *c, const sn_node *n, sn_dtype t);
bool sn_infer_shape(infer_ctx *c, int n, const sn_dim *shape);
bool sn_infer_axis(infer_ctx *c, int64_t axis, int rank);

#endif
