/* vmath.h: elementary functions emitted inline over scalars and vectors of f32 or f64.
 * No library calls and no tables in memory; every bound below is held by tests/codegen/test_vmath.c
 * over the whole range of the type, on every vector width. */
#ifndef SN_VMATH_H
#define SN_VMATH_H

#include "codegen/emit/emit.h"

/* Enum suffix, name, error bounds in ulp for f32 and f64, definition.
 *
 * An ulp is the distance of two numbers of the type at the exact result (that of subnormals below
 * the smallest normal number). Special values (infinities, NaN, both zeros, overflow, subnormal
 * arguments and results) follow C's Annex F, with these exceptions:
 *   exp_neg  for x <= 0 only; results below the smallest normal number may be 0
 *   gelu, gelu_tanh: ulp of x/2, since below 0 a sum near x cancels; 0 at minus infinity, and the
 *            sign of a zero is any
 *   sin, cos the bound holds for |x| <= 2^20; beyond, accuracy is lost and |y| <= 1 stays
 * Neither sets floating-point exceptions nor heeds another rounding mode than to nearest. */
#define SN_VFUNCS(_)                                                                               \
    _(EXP, exp, 1.1, 1.1, "e^x")                                                                   \
    _(EXP_NEG, exp_neg, 1.1, 1.1, "e^x for x <= 0, as softmax needs it")                           \
    _(EXP2, exp2, 1.2, 1.2, "2^x")                                                                 \
    _(EXPM1, expm1, 2.0, 2.0, "e^x - 1")                                                           \
    _(LOG, log, 1.0, 1.0, "natural logarithm")                                                     \
    _(LOG1P, log1p, 1.1, 1.1, "log(1 + x)")                                                        \
    _(LOG2, log2, 2.5, 2.5, "logarithm to base 2")                                                 \
    _(TANH, tanh, 3.0, 3.0, "hyperbolic tangent")                                                  \
    _(SIGMOID, sigmoid, 2.5, 2.5, "1 / (1 + e^-x)")                                                \
    _(ERF, erf, 1.2, 1.2, "error function 2/sqrt(pi) * integral of e^-t^2 from 0 to x")            \
    _(GELU, gelu, 3.0, 3.0, "x (1 + erf(x / sqrt 2)) / 2")                                         \
    _(GELU_TANH, gelu_tanh, 4.0, 4.0, "x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2")           \
    _(SIN, sin, 1.6, 1.6, "sine of x radians")                                                     \
    _(COS, cos, 1.6, 1.6, "cosine of x radians")                                                   \
    _(ATAN, atan, 1.2, 1.2, "arc tangent in radians, within [-pi/2, pi/2]")                        \
    _(SQRT, sqrt, 0.5, 0.5, "square root")                                                         \
    _(RSQRT, rsqrt, 1.5, 1.5, "1 / sqrt(x)")                                                       \
    _(RECIP, recip, 0.5, 0.5, "1 / x")

typedef enum sn_vfunc {
#define SN_X(id, name, ulp32, ulp64, text) SN_V_##id,
    SN_VFUNCS(SN_X)
#undef SN_X
        SN_VFUNC_COUNT
} sn_vfunc;

const char *sn_vmath_name(sn_vfunc f);               /* "exp" */
double sn_vmath_bound(sn_vfunc f, sn_dtype compute); /* error bound in ulp for f32 or f64 */

/* f(x) for x of type f32 or f64, scalar or vector of any length; the result has x's type. Fast-math
 * flags of the context do not apply inside. */
em_val sn_vmath_emit(em *e, sn_vfunc f, em_val x);

/* x^y by C's rules; error at most 0.6 ulp for f32 (computed in f64), 1 ulp for f64. Integral powers that the type
 * represents are exact. */
em_val sn_vmath_pow(em *e, em_val x, em_val y);

#endif
