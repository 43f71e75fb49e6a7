/* lines.h: the lines of a view along one of its axes, for kernels that visit this axis in order. */
#ifndef SN_LINES_H
#define SN_LINES_H

#include "codegen/emit/family.h"

em_val sn_line_extent(em *e, const sn_kernel *k, const sn_view *v, int axis);
/* Lines along `axis`; -1: elements. */
em_val sn_line_count(em *e, const sn_kernel *k, const sn_view *v, int axis);
/* Where line `flat` begins: a flat index over the other axes, innermost fastest. */
em_val sn_line_offset(em *e, const sn_kernel *k, const sn_view *v, int axis, em_val flat);

#endif
