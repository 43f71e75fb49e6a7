/* vmath_impl.h: the inside of vmath, shared by its files only. */
#ifndef SN_VMATH_IMPL_H
#define SN_VMATH_IMPL_H

#include "codegen/emit/vmath.h"

/* vmath_pieces.c: for 16 floats with AVX-512 only, which `has` says */
bool vmath_has_pieces(em *e, em_val x);
em_val vmath_erf_pieces(em *e, em_val x);
em_val vmath_tanh_pieces(em *e, em_val x);
em_val vmath_gelu_pieces(em *e, em_val x, bool by_tanh);

#endif
