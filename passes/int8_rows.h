/* int8_rows.h: rows of activations as 8-bit integers with a scale each, by the composite
 * quantise_rows: what option `compute` int8 multiplies. */
#ifndef SN_INT8_ROWS_H
#define SN_INT8_ROWS_H

#include "passes/passes.h"

/* x [.., K], f32, is about q scale: q [.., K] of i8, from -127 to 127, and scale [.., 1] of f32. */
typedef struct sn_int8_rows {
    sn_node *q, *scale;
} sn_int8_rows;

sn_int8_rows sn_int8_rows_of(sn_node *x);
/* x, if q is what sn_int8_rows_of(x).q expands to; else NULL. *scale: the same of its scale. */
sn_node *sn_int8_rows_source(const sn_node *q, sn_node **scale);

/* Whether a kernel computes this dot in 8-bit integers: i32, both factors are widened from i8, the
 * right one is constant and summed along one axis (of several axes, the last), there are no batch axes. */
bool sn_is_int8_product(const sn_passes *p, const sn_node *dot);

/* Longest sums of products of two such integers that i32 holds exactly. */
enum { SN_INT8_MAX_SUM = INT32_MAX / (127 * 127) };

#endif
