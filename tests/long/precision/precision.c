/* Elementwise functions, powers and quotients on arrays of any length N, in f32 and f64: check_precision.py checks them. */
#include <sinter/models.h>

/* clang-format off */
#define FUNCTIONS(X) \
    X(exp) X(exp2) X(expm1) X(log) X(log1p) X(tanh) X(sigmoid) X(softplus) X(sin) X(cos) X(sqrt) X(rsqrt) X(erf)
/* clang-format on */

static void functions(sn_module *m, sn_dim N, sn_dtype type, const char *name) {
    sn_entry_begin(m, name);
#define OUTPUT(f) sn_output(#f, sn_##f(sn_input(m, #f "_x", type, N)));
    FUNCTIONS(OUTPUT)
    sn_output("pow", sn_pow(sn_input(m, "pow_x", type, N), sn_input(m, "pow_y", type, N)));
}

/* Divisors are arrays [N], or [1] if they are broadcast. */
static void quotients(sn_module *m, sn_dim N, sn_dim divisors, sn_dtype type, const char *name) {
    sn_entry_begin(m, name);
    sn_tensor x = sn_input(m, "x", type, N), y = sn_input(m, "y", type, divisors),
              w = sn_input(m, "w", type, divisors);
    sn_output("x/(y/3)", sn_div(x, sn_div(y, 3)));
    sn_output("x/(3y)", sn_div(x, sn_mul(y, 3)));
    sn_output("x/(y/w)", sn_div(x, sn_div(y, w)));
    sn_output("x/(1/y)", sn_div(x, sn_div(1, y)));
    sn_output("(x/y)y", sn_mul(sn_div(x, y), y));
    sn_output("x/y/3", sn_div(sn_div(x, y), 3));
    sn_output("xy/y", sn_div(sn_mul(x, y), y));
}

SN_MODEL(m, o) {
    (void)o;
    sn_dim N = sn_symbol(m, "N", 1, 1 << 20);
    functions(m, N, SN_F32, "functions_f32");
    functions(m, N, SN_F64, "functions_f64");
    quotients(m, N, N, SN_F32, "quotients_f32");
    quotients(m, N, N, SN_F64, "quotients_f64");
    quotients(m, N, 1, SN_F32, "broadcast_f32");
    quotients(m, N, 1, SN_F64, "broadcast_f64");
}
