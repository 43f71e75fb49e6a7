/* elem_ref.c: the reference value of every elementwise op in double: the expression column of
 * ops.def. */
#include "ir/ir.h"

#include <math.h>

static double sn_ref_div(double x, double y, bool integer) {
    if (!integer) return x / y;
    return y == 0 ? 0 : floor(x / y); /* as in compiled code, integer division by zero gives 0 */
}

static double sn_ref_mod(double x, double y, bool integer) {
    if (integer && y == 0) return 0;
    return x - y * floor(x / y);
}

/* Both tend to 0 as x tends to minus infinity. */
static double sn_ref_gelu(double x) {
    return x < -40 ? 0 : x * erfc(-x * M_SQRT1_2) / 2;
}

static double sn_ref_gelu_tanh(double x) {
    return x < -40 ? 0 : x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double sn_elem_ref(sn_op op, bool integer, double x, double y, double z) {
    (void)integer;
    switch (op) {
#define ELEM(name, n, rule, flags, doc, expr)                                                      \
    case SN_OP_##name:                                                                             \
        return (double)(expr);
#include "ir/ops.def"
    default:
        return NAN;
    }
}

/* Truncated, then modulo 2^bits, for every double (in C large values are undefined); NaN gives
 * 0. */
static double wrap(double x, int bits, bool is_signed) {
    double span = ldexp(1, bits), half = span / 2, r = fmod(trunc(x), span);
    if (!isfinite(x)) return 0;
    if (is_signed) return r >= half ? r - span : r < -half ? r + span : r;
    return r < 0 ? r + span : r;
}

double sn_round_to(sn_dtype t, double x) {
    switch (t) {
    case SN_F32:
        return (double)(float)x;
    case SN_BF16:
        return (double)sn_bf16_to_f32(sn_f32_to_bf16((float)x));
    case SN_F16:
        return (double)sn_f16_to_f32(sn_f32_to_f16((float)x));
    case SN_I32:
        return wrap(x, 32, true);
    case SN_I64:
        return wrap(x, 64, true);
    case SN_I8:
        return wrap(x, 8, true);
    case SN_U8:
        return wrap(x, 8, false);
    case SN_BOOL:
        return x != 0;
    default:
        return x;
    }
}
