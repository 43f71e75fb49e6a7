/* dims.h: the value of symbolic dims in generated code. */
#ifndef SN_EMIT_DIMS_H
#define SN_EMIT_DIMS_H

#include "codegen/emit/emit.h"
#include "ir/ir.h"

/* The value of d in generated code. symbols: pointer to the symbols' values. overflow: becomes true
 * if the value does not fit into 64 bits; NULL: not tested. */
em_val sn_dim_emit(em *e, const sn_module *m, sn_dim d, em_val symbols, const em_var *overflow);

/* a * b of i64. overflow: becomes true if the product does not fit; NULL: not tested. */
em_val em_mul_checked(em *e, em_val a, em_val b, const em_var *overflow);

#endif
