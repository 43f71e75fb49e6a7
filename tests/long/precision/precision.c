/* Elementwise functions, powers and quotients on arrays of any length N, in f32 and f64; sums over K or over a sequence
 * of T, in f32: check_precision.py checks them. */
#include <sinter/models.h>

#include "../../../bench/recurrence_bodies.h"

/* clang-format off */
#define FUNCTIONS(X) \
    X(exp) X(exp2) X(expm1) X(log) X(log1p) X(tanh) X(sigmoid) X(softplus) X(sin) X(cos) X(atan) X(asin) \
    X(acos) X(sqrt) X(rsqrt) X(erf)
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

enum { WIDTH = 64 };

/* Log decays and shares are vectors of WIDTH, or numbers. */
static void loop(sn_module *m, sn_dim T, sn_scan_fn body, const char *name, bool vector,
                 bool share) {
    static const char *const names[] = {"q", "k", "v", "decay", "share"};
    sn_scan_args a = {
        .carry = {sn_full(m, SN_F32, 0, 1, 1, WIDTH, WIDTH)}, .axis = 2, .body = body};
    sn_entry_begin(m, name);
    for (int i = 0; i < 4 + share; i++)
        a.x[i] = i < 3 || vector ? sn_input(m, names[i], SN_F32, 1, 1, T, WIDTH)
                                 : sn_input(m, names[i], SN_F32, 1, 1, T);
    a.x[3] = sn_exp(a.x[3]);
    sn_output("y", sn_scan_at(SN_HERE, &a).y[0]);
}

static void sums(sn_module *m) {
    sn_dim K = sn_symbol(m, "K", 1, 1 << 16), T = sn_symbol(m, "T", 1, 1 << 16);
    sn_entry_begin(m, "gemm");
    sn_output("y", sn_linear(sn_input(m, "x", SN_F32, WIDTH, K), sn_input(m, "w", SN_F32, WIDTH, K),
                             NULL));
    sn_entry_begin(m, "attention");
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 1, T, WIDTH),
              k = sn_input(m, "k", SN_F32, 1, 1, T, WIDTH);
    sn_output("y", sn_attention(q, k, sn_input(m, "v", SN_F32, 1, 1, T, WIDTH), .causal = true));
    loop(m, T, gla, "gla", true, false);
    loop(m, T, mamba2, "mamba2", false, false);
    loop(m, T, gated_deltanet, "gated_deltanet", false, true);
    loop(m, T, rwkv7, "rwkv7", true, true);
}

SN_MODEL(m, o) {
    (void)o;
    sums(m);
    sn_dim N = sn_symbol(m, "N", 1, 1 << 20);
    functions(m, N, SN_F32, "functions_f32");
    functions(m, N, SN_F64, "functions_f64");
    quotients(m, N, N, SN_F32, "quotients_f32");
    quotients(m, N, N, SN_F64, "quotients_f64");
    quotients(m, N, 1, SN_F32, "broadcast_f32");
    quotients(m, N, 1, SN_F64, "broadcast_f64");
}
