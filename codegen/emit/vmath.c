/* vmath.c: how the functions of vmath.h are computed.
 * Each is written once for f32 and f64 where the method is the same; the coefficients are minimax
 * polynomials (Remez exchange, weighted for relative error of the function, then rounded). Argument
 * reductions: Cody and Waite, Software Manual for the Elementary Functions, 1980. With AVX-512,
 * scaling by 2^n and splitting into exponent and mantissa are single instructions. */
#include "codegen/emit/vmath_impl.h"

#include <math.h>

static const struct {
    const char *name;
    double ulp32, ulp64;
} functions[SN_VFUNC_COUNT] = {
#define SN_X(id, name, ulp32, ulp64, text) [SN_V_##id] = {#name, ulp32, ulp64},
    SN_VFUNCS(SN_X)
#undef SN_X
};

const char *sn_vmath_name(sn_vfunc f) {
    return functions[f].name;
}

double sn_vmath_bound(sn_vfunc f, sn_dtype compute) {
    return compute == SN_F64 ? functions[f].ulp64 : functions[f].ulp32;
}

/* --- constants of the two precisions ---------------------------------------------------------- */

typedef struct precision {
    int mantissa; /* bits after the point */
    int bias;
    double magic;                  /* 1.5 * 2^mantissa: adding it rounds to an integer */
    double log2e, ln2_hi, ln2_lo;  /* n * ln2_hi is exact for every exponent n */
    double log2e_hi, log2e_lo;     /* f * log2e_hi + f * log2e_lo */
    double exp_lo, exp_hi;         /* beyond, e^x is 0 or infinite */
    double exp2_lo, exp2_hi;       /* likewise 2^x */
    double exp_normal;             /* e^x is a normal number from here on */
    double expm1_lo;               /* below, e^x - 1 rounds to -1 */
    double tanh_hi;                /* beyond, tanh rounds to 1 */
    double smallest;               /* normal number */
    double all_integers;           /* from here on every number is an integer */
    const double *exp, *sin, *cos; /* coefficients, ascending */
    int n_exp, n_sin, n_cos;
} precision;

/* (e^r - 1 - r) / r^2 on |r| <= ln(2)/2; relative error of e^r - 1: 2^-26, 2^-61 */
static const double exp_f32[] = {0x1.fffffep-2, 0x1.5554acp-3, 0x1.555658p-5, 0x1.122b1ep-7,
                                 0x1.6c135ap-10};
static const double exp_f64[] = {
    0x1.0000000000000p-1,  0x1.5555555555559p-3,  0x1.5555555555541p-5,  0x1.111111110f573p-7,
    0x1.6c16c16c1de49p-10, 0x1.a01a01b0745f7p-13, 0x1.a01a0183004d8p-16, 0x1.71ddf6c18512fp-19,
    0x1.27e5236fd3fb9p-22, 0x1.af61bd8b580c2p-26, 0x1.1f0a5c5d31db5p-29};

/* (sin(r)/r - 1) / r^2 and (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4 */
static const double sin_f32[] = {-0x1.555544p-3, 0x1.1106fcp-7, -0x1.992c06p-13};
static const double cos_f32[] = {0x1.55554ap-5, -0x1.6c0c22p-10, 0x1.99e33ap-16};
static const double sin_f64[] = {-0x1.5555555555547p-3,  0x1.111111110f5f0p-7,
                                 -0x1.a01a019bbd205p-13, 0x1.71de352c101f9p-19,
                                 -0x1.ae5e29561aef3p-26, 0x1.5d80ebc41d494p-33};
static const double cos_f64[] = {0x1.555555555554ap-5,  -0x1.6c16c16c14ebep-10,
                                 0x1.a01a019c6a5d2p-16, -0x1.27e4f7d4a358fp-22,
                                 0x1.1ee9c69c975f7p-29, -0x1.8f9acbac967c0p-37};

/* (log(1+f) - f + f^2/2) / f^3 on -1/4 <= f <= 1/2; 2^-30 */
static const double log_f32[] = {0x1.55555ap-2,  -0x1.00006ep-2, 0x1.999788p-3,
                                 -0x1.5519b8p-3, 0x1.24609cp-3,  -0x1.04aa38p-3,
                                 0x1.df4254p-4,  -0x1.756632p-4, 0x1.349ddcp-5};
/* (log((1+s)/(1-s))/s - 2) / s^2 in s^2, s = f/(2+f); 2^-62 */
static const double log_f64[] = {0x1.555555555554fp-1, 0x1.999999999c0f7p-2, 0x1.24924921ec0dfp-2,
                                 0x1.c71c7488d8aadp-3, 0x1.745c4c7af099ep-3, 0x1.3b358bae5965dp-3,
                                 0x1.0dcf13b5d7f35p-3, 0x1.1b69ece203939p-3};

/* erf(x)/x - 1 in x^2: f32 on |x| <= 0.93 (2^-31), f64 on |x| <= 1 (2^-68) */
static const double erf_low_f32[] = {0x1.06eba8p-3, -0x1.812742p-2,  0x1.ce2e0ap-4, -0x1.b80e90p-6,
                                     0x1.54c7f6p-8, -0x1.aa3f30p-11, 0x1.5cd4b2p-14};
static const double erf_low_f64[] = {
    0x1.06eba8214db69p-3,  -0x1.812746b0379e7p-2,  0x1.ce2f21a042bddp-4,  -0x1.b82ce3128899bp-6,
    0x1.565bcd0e64ab7p-8,  -0x1.c02db3fed8f63p-11, 0x1.f9a326bfb70fap-14, -0x1.f4d255e14608cp-17,
    0x1.b9e64d07be4ffp-20, -0x1.5f6d6b51272dap-23, 0x1.fc411710986e2p-27, -0x1.4e55cc7bd61e3p-30,
    0x1.7ecbf6904f86fp-34, -0x1.2928f03e78b19p-38};
/* f32: (log(erfc(t)) + t) / t on 0.92 <= t <= 3.95; error of erf 2^-30 */
static const double erf_high_f32[] = {-0x1.0778dcp-3, -0x1.45328ep-1, -0x1.b32570p-4, 0x1.85514ep-6,
                                      -0x1.dd6c96p-9, 0x1.527be0p-12, -0x1.78dbc4p-17};
/* f64: e^(t^2) erfc(t) in (t-2)/(t+2) on 1 <= t <= 6; error of erf 2^-66 */
static const double erf_high_f64[] = {
    0x1.058671b52c776p-2,   -0x1.b57034efd3f72p-2, 0x1.eeea7dc8a78c1p-3,   -0x1.437f0b68c10bfp-4,
    0x1.e947159720220p-9,   0x1.ca95ed54693d5p-8,  -0x1.bc25a393e835dp-11, -0x1.016b5c0b197a3p-10,
    0x1.6d5ceea111cb9p-15,  0x1.6da6ee6dbfdfep-13, 0x1.cdeb6156e0c60p-16,  -0x1.cd22d811aad80p-16,
    -0x1.d00bb671fd305p-17, 0x1.f342fc007ba7cp-21, 0x1.274348dfe444ap-19};

/* (atan(r)/r - 1) / r^2 in r^2, |r| <= 0.5625; 2^-30, 2^-61 */
static const double atan_f32[] = {-0x1.555554p-2, 0x1.9998dap-3, -0x1.247d3ep-3, 0x1.c4e322p-4,
                                  -0x1.63e864p-4, 0x1.ea24cep-5, -0x1.94ab18p-6};
static const double atan_f64[] = {
    -0x1.5555555555555p-2, 0x1.99999999998d3p-3, -0x1.249249248ca7fp-3, 0x1.c71c71c484735p-4,
    -0x1.745d16ea888c2p-4, 0x1.3b13a9093b72bp-4, -0x1.11108f12a7554p-4, 0x1.e1d65bbd19ed8p-5,
    -0x1.aec8bda53c5e3p-5, 0x1.83cb744b9b6a0p-5, -0x1.599e74d408a6bp-5, 0x1.239e00d378b33p-5,
    -0x1.a865af105fa31p-6, 0x1.c3a130a6a1846p-7, -0x1.f62a01848ecefp-9};

#define N(a) (int)(sizeof(a) / sizeof(a)[0])

static const precision precisions[2] = {{.mantissa = 23,
                                         .bias = 127,
                                         .magic = 0x1.8p23,
                                         .log2e = 0x1.715476p0,
                                         .ln2_hi = 0x1.62ep-1,
                                         .ln2_lo = 0x1.0bfbe8p-15,
                                         .log2e_hi = 0x1.714p0,
                                         .log2e_lo = 0x1.47652ap-12,
                                         .exp_lo = -104,
                                         .exp_hi = 89,
                                         .exp2_lo = -151,
                                         .exp2_hi = 129,
                                         .exp_normal = -87.336544,
                                         .expm1_lo = -18,
                                         .tanh_hi = 9.1,
                                         .smallest = 0x1p-126,
                                         .all_integers = 0x1p23,
                                         .exp = exp_f32,
                                         .n_exp = N(exp_f32),
                                         .sin = sin_f32,
                                         .n_sin = N(sin_f32),
                                         .cos = cos_f32,
                                         .n_cos = N(cos_f32)},
                                        {.mantissa = 52,
                                         .bias = 1023,
                                         .magic = 0x1.8p52,
                                         .log2e = 0x1.71547652b82fep0,
                                         .ln2_hi = 0x1.62e42feep-1,
                                         .ln2_lo = 0x1.a39ef35793c76p-33,
                                         .log2e_hi = 0x1.715476p0,
                                         .log2e_lo = 0x1.4ae0bf85ddf43p-26,
                                         .exp_lo = -746,
                                         .exp_hi = 710,
                                         .exp2_lo = -1076,
                                         .exp2_hi = 1025,
                                         .exp_normal = -708.3964,
                                         .expm1_lo = -40,
                                         .tanh_hi = 19.1,
                                         .smallest = 0x1p-1022,
                                         .all_integers = 0x1p52,
                                         .exp = exp_f64,
                                         .n_exp = N(exp_f64),
                                         .sin = sin_f64,
                                         .n_sin = N(sin_f64),
                                         .cos = cos_f64,
                                         .n_cos = N(cos_f64)}};

static bool is_wide(em *e, em_val x) {
    return em_elem_type(x) == e->f64;
}

static const precision *precision_of(em *e, em_val x) {
    return &precisions[is_wide(e, x)];
}

/* --- building blocks -------------------------------------------------------------------------- */

static em_val num(em *e, em_val x, double v) {
    return em_like(e, x, v);
}

/* Integer image of a float vector, and back. */
static em_val to_bits(em *e, em_val x) {
    return em_bitcast(e, x, em_vec(is_wide(e, x) ? e->i64 : e->i32, em_lanes_of(x)));
}

static em_val from_bits(em *e, em_val bits) {
    em_type t = em_elem_type(bits) == e->i64 ? e->f64 : e->f32;
    return em_bitcast(e, bits, em_vec(t, em_lanes_of(bits)));
}

/* Sum of c[i] x^i. */
static em_val polynomial(em *e, em_val x, const double *c, int n) {
    em_val p = num(e, x, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) p = em_fma(e, p, x, num(e, x, c[i]));
    return p;
}

/* x kept within [lo, hi]; NaN stays NaN. */
static em_val clamp(em *e, em_val x, double lo, double hi) {
    return em_min(e, num(e, x, hi), em_max(e, num(e, x, lo), x));
}

static em_val copy_sign(em *e, em_val magnitude, em_val sign) {
    em_type t = LLVMTypeOf(magnitude);
    em_val args[] = {magnitude, sign};
    return em_intrinsic(e, "llvm.copysign", &t, 1, args, 2);
}

/* Whether x fills a register of a width that AVX-512 has instructions for. */
static bool has_avx512_form(em *e, em_val x) {
    int bits = em_lanes_of(x) * (is_wide(e, x) ? 64 : 32);
    return e->target->has_avx512 && (bits == 128 || bits == 256 || bits == 512);
}

/* llvm.x86.avx512.NAME.{ps,pd}.{128,256,512}(args, passthrough, all lanes[, current rounding]) */
static em_val avx512_call(em *e, const char *name, em_val a, em_val b, bool rounds) {
    char full[64];
    int lanes = em_lanes_of(a), bits = lanes * (is_wide(e, a) ? 64 : 32), n = 0;
    snprintf(full, sizeof full, "llvm.x86.avx512.%s.%s.%d", name, is_wide(e, a) ? "pd" : "ps",
             bits);
    em_val args[5];
    args[n++] = a;
    if (b) args[n++] = b;
    args[n++] = em_zero(LLVMTypeOf(a));
    args[n++] = LLVMConstAllOnes(lanes == 16 ? e->i16 : e->i8);
    if (rounds && bits == 512) args[n++] = em_i32(e, 4);
    return em_intrinsic(e, full, NULL, 0, args, n);
}

/* 2^n for integers n (int or i64 lanes) of normal numbers. */
static em_val power_of_two(em *e, const precision *p, em_val n) {
    em_val biased = em_add(e, n, em_like(e, n, p->bias));
    return from_bits(e, em_shl(e, biased, em_like(e, n, p->mantissa)));
}

/* x * 2^n, rounded once, for any x and any integral n that a product can need; NaN stays NaN.
 * n is given both as a float and as an integer vector. */
static em_val scale(em *e, em_val x, em_val n, em_val n_int) {
    if (has_avx512_form(e, x)) return avx512_call(e, "mask.scalef", x, n, true);
    const precision *p = precision_of(e, x);
    em_val half = em_ashr(e, n_int, em_like(e, n_int, 1)); /* in two steps: n may leave the range */
    em_val first = em_mul(e, x, power_of_two(e, p, half));
    return em_mul(e, first, power_of_two(e, p, em_sub(e, n_int, half)));
}

/* a / b for normal b below 2^126 and |a| <= |b|: with AVX-512 by an estimate (14 bits), one Newton
 * step and a corrected quotient, which is 0.6 ulp and a third of the time of the division. */
static em_val quotient(em *e, em_val a, em_val b) {
    if (!has_avx512_form(e, a) || is_wide(e, a)) return em_div(e, a, b);
    em_val r = avx512_call(e, "rcp14", b, NULL, false), minus_b = em_neg(e, b);
    r = em_fma(e, em_fma(e, minus_b, r, num(e, r, 1)), r, r);
    em_val q = em_mul(e, a, r);
    return em_fma(e, em_fma(e, minus_b, q, a), r, q);
}

/* --- exponentials ----------------------------------------------------------------------------- */

/* x = n ln(2) + r, |r| <= ln(2)/2; m = e^r - 1. */
typedef struct exp_parts {
    em_val n, n_int, m;
} exp_parts;

/* The integer n that t, to which the magic number was added, has in its low bits. */
static em_val integer_part(em *e, em_val t, exp_parts *out) {
    const precision *p = precision_of(e, t);
    em_val magic = num(e, t, p->magic);
    out->n = em_sub(e, t, magic);
    out->n_int = em_sub(e, to_bits(e, t), to_bits(e, magic));
    return out->n;
}

static em_val expm1_reduced(em *e, em_val r) {
    const precision *p = precision_of(e, r);
    em_val square = em_mul(e, r, r);
    if (is_wide(e, r)) return em_fma(e, square, polynomial(e, r, p->exp, p->n_exp), r);
    /* Estrin's order: the chain of multiply-adds decides how many vectors are in flight */
    em_val low = em_fma(e, r, num(e, r, p->exp[1]), num(e, r, p->exp[0]));
    em_val high = em_fma(e, r, num(e, r, p->exp[3]), num(e, r, p->exp[2]));
    high = em_fma(e, square, num(e, r, p->exp[4]), high);
    return em_fma(e, square, em_fma(e, square, high, low), r);
}

/* r within [-1, 1] in one instruction; NaN becomes a number. */
static em_val limit_rest(em *e, em_val r) {
    char name[64];
    int lanes = em_lanes_of(r), bits = lanes * (is_wide(e, r) ? 64 : 32), n = 0;
    snprintf(name, sizeof name, "llvm.x86.avx512.mask.range.%s.%d", is_wide(e, r) ? "pd" : "ps",
             bits);
    em_val args[6];
    args[n++] = r;
    args[n++] = num(e, r, 1);
    args[n++] = em_i32(e, 2); /* the smaller magnitude with the sign of r */
    args[n++] = em_zero(LLVMTypeOf(r));
    args[n++] = LLVMConstAllOnes(lanes == 16 ? e->i16 : e->i8);
    if (bits == 512) args[n++] = em_i32(e, 4);
    return em_intrinsic(e, name, NULL, 0, args, n);
}

/* e^x with AVX-512 for any x: n is out of range where the result is, and NaN where x is; scaling
 * knows what becomes of that, as long as the rest stays small. */
static em_val emit_exp_scaled(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    em_val magic = num(e, x, p->magic);
    em_val n = em_sub(e, em_fma(e, x, num(e, x, p->log2e), magic), magic);
    em_val r = em_fma(e, n, num(e, x, -p->ln2_hi), x);
    r = limit_rest(e, em_fma(e, n, num(e, x, -p->ln2_lo), r));
    return avx512_call(e, "mask.scalef", em_add(e, expm1_reduced(e, r), num(e, x, 1)), n, true);
}

static exp_parts split_exp(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    exp_parts s;
    em_val t = em_fma(e, x, num(e, x, p->log2e), num(e, x, p->magic));
    em_val n = integer_part(e, t, &s);
    em_val r = em_fma(e, n, num(e, x, -p->ln2_hi), x);
    r = em_fma(e, n, num(e, x, -p->ln2_lo), r);
    s.m = expm1_reduced(e, r);
    return s;
}

static em_val emit_exp(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    if (has_avx512_form(e, x)) return emit_exp_scaled(e, x);
    exp_parts s = split_exp(e, clamp(e, x, p->exp_lo, p->exp_hi));
    return scale(e, em_add(e, s.m, num(e, x, 1)), s.n, s.n_int);
}

static em_val emit_exp_neg(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    if (has_avx512_form(e, x)) return emit_exp_scaled(e, x);
    double lo = p->exp_normal;
    exp_parts s = split_exp(e, em_max(e, num(e, x, lo), x));
    em_val y = em_add(e, s.m, num(e, x, 1));
    y = em_mul(e, y, power_of_two(e, p, s.n_int));
    return em_select(e, em_cmp(e, EM_LT, x, num(e, x, lo)), num(e, x, 0), y);
}

static em_val emit_exp2(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    exp_parts s;
    x = clamp(e, x, p->exp2_lo, p->exp2_hi);
    em_val n = integer_part(e, em_add(e, x, num(e, x, p->magic)), &s);
    em_val r = em_sub(e, x, n); /* exact; r ln(2) in two products */
    em_val rl = em_fma(e, r, num(e, x, p->ln2_hi), em_mul(e, r, num(e, x, p->ln2_lo)));
    em_val y = em_add(e, expm1_reduced(e, rl), num(e, x, 1));
    return scale(e, y, s.n, s.n_int);
}

/* e^x - 1 for x within [expm1_lo, exp_hi]: 2 (2^(n-1) (1 + m) - 1/2), so that n = 0 gives m and the
 * largest results do not overflow on the way. */
static em_val expm1_in_range(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    exp_parts s = split_exp(e, x);
    em_val half = num(e, x, 0.5);
    em_val h = has_avx512_form(e, x)
                   ? avx512_call(e, "mask.scalef", half, s.n, true)
                   : power_of_two(e, p, em_sub(e, s.n_int, em_like(e, s.n_int, 1)));
    em_val y = em_fma(e, h, s.m, em_sub(e, h, half));
    return em_add(e, y, y);
}

static em_val emit_expm1(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    return copy_sign(e, expm1_in_range(e, clamp(e, x, p->expm1_lo, p->exp_hi)), x);
}

/* (e^2x - 1) / (e^2x + 1), of the magnitude. */
static em_val emit_tanh(em *e, em_val x) {
    if (vmath_has_pieces(e, x)) return vmath_tanh_pieces(e, x);
    const precision *p = precision_of(e, x);
    em_val a = em_min(e, num(e, x, p->tanh_hi), em_abs(e, x));
    em_val m = expm1_in_range(e, em_add(e, a, a));
    return copy_sign(e, quotient(e, m, em_add(e, m, num(e, x, 2))), x);
}

static em_val emit_sigmoid(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    em_val a = em_max(e, num(e, x, p->exp_lo), em_neg(e, em_abs(e, x)));
    exp_parts s = split_exp(e, a);
    em_val one = num(e, x, 1), z = scale(e, em_add(e, s.m, one), s.n, s.n_int);
    em_val above = em_select(e, em_cmp(e, EM_LT, x, num(e, x, 0)), z, one);
    return quotient(e, above, em_add(e, one, z));
}

/* --- logarithms ------------------------------------------------------------------------------- */

/* x = 2^k (1 + f), -1/4 <= f < 1/2; log(1 + f) = f + t. */
typedef struct log_parts {
    em_val k, f, t;
} log_parts;

/* f and k without AVX-512: exponent and mantissa from the integer image. */
static log_parts split_log_bits(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    double up = is_wide(e, x) ? 0x1p54 : 0x1p25, shift = is_wide(e, x) ? -54 : -25;
    em_val small = em_cmp(e, EM_LT, x, num(e, x, p->smallest));
    em_val y = em_select(e, small, em_mul(e, x, num(e, x, up)), x);
    em_val base = to_bits(e, num(e, x, 0.75)), bits = em_sub(e, to_bits(e, y), base);
    em_val low = LLVMBuildLShr(e->b, LLVMConstAllOnes(LLVMTypeOf(bits)),
                               em_like(e, bits, 64 - (is_wide(e, x) ? 0 : 32) - p->mantissa), "");
    em_val m = em_add(e, em_and(e, bits, low), base);
    em_val k = em_int_cast(e, em_ashr(e, bits, em_like(e, bits, p->mantissa)), e->i32);
    log_parts s = {.f = em_sub(e, from_bits(e, m), num(e, x, 1))};
    k = LLVMBuildSIToFP(e->b, k, LLVMTypeOf(x), "");
    s.k = em_add(e, k, em_select(e, small, num(e, x, shift), num(e, x, 0)));
    return s;
}

static log_parts split_log(em *e, em_val x) {
    if (!has_avx512_form(e, x)) return split_log_bits(e, x);
    /* getmant: interval [3/4, 3/2), NaN for negative arguments */
    em_val m = avx512_call(e, "mask.getmant", x, em_i32(e, 3 | 2 << 2), true);
    log_parts s = {.f = em_sub(e, m, num(e, x, 1))};
    s.k = em_sub(e, avx512_call(e, "mask.getexp", x, NULL, true),
                 avx512_call(e, "mask.getexp", m, NULL, true));
    return s;
}

/* log(1 + f) - f. f64: s = f/(2+f), as fdlibm's e_log.c. */
static em_val log_rest(em *e, em_val f) {
    em_val square = em_mul(e, f, f), half = em_mul(e, square, num(e, f, 0.5));
    if (!is_wide(e, f)) {
        em_val cube = em_mul(e, square, f), p = polynomial(e, f, log_f32, N(log_f32));
        return em_fma(e, cube, p, em_neg(e, half));
    }
    em_val s = em_div(e, f, em_add(e, f, num(e, f, 2))), z = em_mul(e, s, s);
    em_val r = em_mul(e, z, polynomial(e, z, log_f64, N(log_f64)));
    return em_fma(e, s, em_add(e, half, r), em_neg(e, half));
}

/* What the bits of x do not say: infinity, NaN, zero, negative. */
static em_val log_special(em *e, em_val x, em_val y) {
    em_val inf = num(e, x, 1.0 / 0.0), zero = num(e, x, 0), nan = num(e, x, 0.0 / 0.0);
    y = em_select(e, em_cmp(e, EM_LT, x, inf), y, x);
    em_val pole = em_select(e, em_cmp(e, EM_EQ, x, zero), num(e, x, -1.0 / 0.0), nan);
    return em_select(e, em_cmp(e, EM_LE, x, zero), pole, y);
}

/* k ln(2) + f + t for log(x), from the smallest to the largest. AVX-512's getexp and getmant give
 * the special values by themselves. */
static em_val sum_log(em *e, em_val x, const log_parts *s) {
    const precision *p = precision_of(e, x);
    em_val y = em_fma(e, s->k, num(e, x, p->ln2_lo), s->t);
    y = em_fma(e, s->k, num(e, x, p->ln2_hi), em_add(e, s->f, y));
    return has_avx512_form(e, x) ? y : log_special(e, x, y);
}

static em_val emit_log(em *e, em_val x) {
    log_parts s = split_log(e, x);
    s.t = log_rest(e, s.f);
    return sum_log(e, x, &s);
}

static em_val emit_log2(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    log_parts s = split_log(e, x);
    s.t = log_rest(e, s.f);
    em_val y = em_mul(e, s.t, num(e, x, p->log2e));
    y = em_fma(e, s.f, num(e, x, p->log2e_lo), y);
    y = em_fma(e, s.f, num(e, x, p->log2e_hi), y);
    y = em_add(e, s.k, y);
    return has_avx512_form(e, x) ? y : log_special(e, x, y);
}

/* log of u = 1 + x, with what the sum lost (Knuth's two-sum) put back into the reduced f. */
static em_val emit_log1p(em *e, em_val x) {
    const precision *p = precision_of(e, x);
    em_val one = num(e, x, 1), u = em_add(e, x, one), b = em_sub(e, u, one);
    em_val lost = em_add(e, em_sub(e, one, em_sub(e, u, b)), em_sub(e, x, b));
    log_parts s = split_log(e, u);
    em_val back = em_min(e, em_neg(e, s.k), num(e, x, p->bias - 1)); /* finite also for u = 0 */
    if (has_avx512_form(e, x)) {
        lost = avx512_call(e, "mask.scalef", lost, back, true);
    } else {
        em_val magic = num(e, x, p->magic);
        em_val n = em_sub(e, to_bits(e, em_add(e, back, magic)), to_bits(e, magic));
        lost = em_mul(e, lost, power_of_two(e, p, n));
    }
    /* from 4 * 2^mantissa on the 1 does not count, and `lost` may be no number */
    em_val counts = em_cmp(e, EM_LT, x, num(e, x, 4 * p->all_integers));
    s.f = em_add(e, s.f, em_select(e, counts, lost, num(e, x, 0)));
    s.t = log_rest(e, s.f);
    return copy_sign(e, sum_log(e, u, &s), x);
}

/* --- the others ------------------------------------------------------------------------------- */

static em_val emit_erf(em *e, em_val x) {
    if (vmath_has_pieces(e, x)) return vmath_erf_pieces(e, x);
    bool wide = is_wide(e, x);
    em_val square = em_mul(e, x, x), a = em_abs(e, x);
    em_val low = wide ? polynomial(e, square, erf_low_f64, N(erf_low_f64))
                      : polynomial(e, square, erf_low_f32, N(erf_low_f32));
    low = em_fma(e, low, x, x);
    em_val t = em_min(e, num(e, x, wide ? 6 : 4), a), c, rest; /* rest: erfc(t) */
    if (wide) {
        em_val v = em_div(e, em_sub(e, t, num(e, x, 2)), em_add(e, t, num(e, x, 2)));
        rest = emit_exp_neg(e, em_neg(e, em_mul(e, t, t)));
        rest = em_mul(e, rest, polynomial(e, v, erf_high_f64, N(erf_high_f64)));
    } else {
        c = polynomial(e, t, erf_high_f32, N(erf_high_f32));
        rest = emit_exp_neg(e, em_fma(e, c, t, em_neg(e, t)));
    }
    em_val high = copy_sign(e, em_sub(e, num(e, x, 1), rest), x);
    return em_select(e, em_cmp(e, EM_LT, a, num(e, x, wide ? 1 : 0.925)), low, high);
}

/* x (1 + gate) / 2, where the gate is -1 long before x is minus infinity. */
static em_val gated_half(em *e, em_val x, em_val gate) {
    em_val half = em_mul(e, em_max(e, num(e, x, -64), x), num(e, x, 0.5));
    return em_mul(e, half, em_add(e, gate, num(e, x, 1)));
}

static em_val emit_gelu(em *e, em_val x) {
    if (vmath_has_pieces(e, x)) return vmath_gelu_pieces(e, x, false);
    return gated_half(e, x, emit_erf(e, em_mul(e, x, num(e, x, sqrt(0.5)))));
}

static em_val emit_gelu_tanh(em *e, em_val x) {
    if (vmath_has_pieces(e, x)) return vmath_gelu_pieces(e, x, true);
    double k = sqrt(2 / M_PI);
    em_val slope = em_fma(e, em_mul(e, x, x), num(e, x, 0.044715 * k), num(e, x, k));
    return gated_half(e, x, emit_tanh(e, em_mul(e, x, slope)));
}

/* x = n pi/2 + r in f64, by three parts of pi/2, two with 33 bits: n * part is exact up to
 * 2^20, with or without FMA. Then sin or cos of r by the quadrant n + `quadrant` (mod 4). */
static em_val sin_or_cos(em *e, em_val x, int quadrant) {
    const precision *p = precision_of(e, x);
    int lanes = em_lanes_of(x);
    em_type wide = em_vec(e->f64, lanes);
    em_val d = is_wide(e, x) ? x : LLVMBuildFPExt(e->b, x, wide, "");
    em_val magic = num(e, d, 0x1.8p52);
    em_val t = em_fma(e, d, num(e, d, 0x1.45f306dc9c883p-1), magic), n = em_sub(e, t, magic);
    em_val r = em_fma(e, n, num(e, d, -0x1.921fb544p0), d);
    r = em_fma(e, n, num(e, d, -0x1.0b4611a6p-34), r);
    r = em_fma(e, n, num(e, d, -0x1.3198a2e037073p-69), r);
    r = clamp(e, r, -0.8, 0.8); /* only where |x| is far beyond the stated range */
    em_val q = to_bits(e, t);
    if (!is_wide(e, x)) {
        r = LLVMBuildFPTrunc(e->b, r, LLVMTypeOf(x), "");
        q = em_int_cast(e, q, e->i32);
    }
    if (quadrant) q = em_add(e, q, em_like(e, q, quadrant));
    em_val z = em_mul(e, r, r);
    em_val s = em_fma(e, em_mul(e, r, z), polynomial(e, z, p->sin, p->n_sin), r);
    em_val half = em_fma(e, z, num(e, x, -0.5), num(e, x, 1));
    em_val c = em_fma(e, em_mul(e, z, z), polynomial(e, z, p->cos, p->n_cos), half);
    em_val odd = em_cmp(e, EM_NE, em_and(e, q, em_like(e, q, 1)), em_like(e, q, 0));
    em_val sign = em_lshr(e, em_and(e, q, em_like(e, q, 2)), em_like(e, q, 1));
    sign = em_shl(e, sign, em_like(e, q, is_wide(e, x) ? 63 : 31));
    return from_bits(e, em_xor(e, to_bits(e, em_select(e, odd, c, s)), sign));
}

static em_val emit_sin(em *e, em_val x) {
    em_val y = sin_or_cos(e, x, 0);
    return em_select(e, em_cmp(e, EM_EQ, x, num(e, x, 0)), x, y); /* -0 */
}

static em_val emit_cos(em *e, em_val x) {
    return sin_or_cos(e, x, 1);
}

/* Of the magnitude a: atan(a), from 0.5625 on pi/4 + atan((a - 1) / (a + 1)), from 2.5 on pi/2 - atan(1 / a). */
static em_val emit_atan(em *e, em_val x) {
    bool wide = is_wide(e, x);
    em_val a = em_abs(e, x), one = num(e, x, 1), zero = num(e, x, 0);
    em_val middle = em_cmp(e, EM_GE, a, num(e, x, 0.5625));
    em_val high = em_cmp(e, EM_GE, a, num(e, x, 2.5));
    em_val top = em_select(e, high, num(e, x, -1), em_sub(e, a, one));
    em_val q = em_div(e, top, em_select(e, high, a, em_add(e, a, one)));
    em_val r = em_select(e, middle, q, a), z = em_mul(e, r, r);
    em_val p =
        wide ? polynomial(e, z, atan_f64, N(atan_f64)) : polynomial(e, z, atan_f32, N(atan_f32));
    /* pi/4 in two parts; pi/2 doubles them */
    em_val part = em_select(e, high, num(e, x, 2), em_select(e, middle, one, zero));
    em_val lost = em_mul(e, part, num(e, x, wide ? 0x1.1a62633145c07p-55 : -0x1.777a5cp-26));
    em_val rest = em_add(e, em_fma(e, em_mul(e, r, z), p, lost), r);
    em_val y = em_fma(e, part, num(e, x, wide ? M_PI_4 : 0x1.921fb6p-1), rest);
    return copy_sign(e, y, x);
}

static em_val emit_sqrt(em *e, em_val x) {
    return em_sqrt(e, x);
}

static em_val emit_rsqrt(em *e, em_val x) {
    return em_div(e, num(e, x, 1), em_sqrt(e, x));
}

static em_val emit_recip(em *e, em_val x) {
    return em_div(e, num(e, x, 1), x);
}

/* --- power ------------------------------------------------------------------------------------ */

/* The nearest integer: adding and taking away 2^mantissa with the sign of y. */
static em_val to_integer(em *e, em_val y) {
    double all = precision_of(e, y)->all_integers;
    em_val big = copy_sign(e, num(e, y, all), y);
    em_val near = em_sub(e, em_add(e, y, big), big);
    return em_select(e, em_cmp(e, EM_LT, em_abs(e, y), num(e, y, all)), near, y);
}

/* x without the lower half of its bits: products of two such numbers are exact, with FMA or without. */
static em_val head_of(em *e, em_val x) {
    em_val bits = to_bits(e, x), upper = em_like(e, bits, -1);
    return from_bits(e, em_and(e, bits, em_shl(e, upper, em_like(e, bits, 32))));
}

/* log2 a as a head, which is returned, and a rest, for f64. As fdlibm's e_pow.c: 2^k m with m near c = 1 or 3/2,
 * s = (m - c) / (m + c) = s_h + s_l, log2(m / c) = 2/(3 ln 2) s (3 + s^2 + r). */
static em_val log2_in_parts(em *e, em_val a, em_val *rest) {
    static const double of_s[] = {0x1.3333333333303p-1, 0x1.b6db6db6fabffp-2, 0x1.55555518f264dp-2,
                                  0x1.17460a91d4101p-2, 0x1.d864a93c9db65p-3, 0x1.a7e284a454eefp-3};
    em_val one = num(e, a, 1), zero = num(e, a, 0), three = num(e, a, 3);
    log_parts p = split_log(e, a);
    em_val m = em_add(e, p.f, one), low = em_cmp(e, EM_LT, m, num(e, a, 0x1.bb67ap-1));
    m = em_select(e, low, em_add(e, m, m), m);
    em_val k = em_select(e, low, em_sub(e, p.k, one), p.k);
    em_val near = em_cmp(e, EM_LT, m, num(e, a, 0x1.3988ep0)); /* to 1 */
    em_val c = em_select(e, near, one, num(e, a, 1.5));
    em_val u = em_sub(e, m, c), sum = em_add(e, m, c), v = em_div(e, one, sum);
    em_val s = em_mul(e, u, v), s_h = head_of(e, s), t_h = head_of(e, sum);
    em_val t_l = em_sub(e, m, em_sub(e, t_h, c));
    em_val s_l = em_sub(e, em_sub(e, u, em_mul(e, s_h, t_h)), em_mul(e, s_h, t_l));
    s_l = em_mul(e, v, s_l);
    em_val s2 = em_mul(e, s, s), r = polynomial(e, s2, of_s, N(of_s));
    r = em_mul(e, em_mul(e, s2, s2), r);
    r = em_add(e, r, em_mul(e, s_l, em_add(e, s_h, s)));
    s2 = em_mul(e, s_h, s_h);
    t_h = head_of(e, em_add(e, em_add(e, three, s2), r));
    t_l = em_sub(e, r, em_sub(e, em_sub(e, t_h, three), s2));
    u = em_mul(e, s_h, t_h);
    v = em_add(e, em_mul(e, s_l, t_h), em_mul(e, t_l, s));
    em_val p_h = head_of(e, em_add(e, u, v)), p_l = em_sub(e, v, em_sub(e, p_h, u));
    em_val log_c = em_select(e, near, zero, num(e, a, 0x1.2b80340000000p-1));
    em_val more_c = em_select(e, near, zero, num(e, a, 0x1.cfdeb43cfd006p-27));
    em_val z_h = em_mul(e, p_h, num(e, a, 0x1.ec709e0000000p-1));
    em_val z_l = em_mul(e, p_h, num(e, a, -0x1.e2fe0145b01f5p-28));
    z_l = em_add(e, z_l, em_mul(e, p_l, num(e, a, 0x1.ec709dc3a03fdp-1)));
    z_l = em_add(e, z_l, more_c);
    em_val head = em_add(e, em_add(e, em_add(e, z_h, z_l), log_c), k);
    head = head_of(e, head);
    *rest = em_sub(e, z_l, em_sub(e, em_sub(e, em_sub(e, head, k), log_c), z_h));
    return log_special(e, a, head);
}

/* 2^(h + l) of f64, where l is small */
static em_val exp2_of_parts(em *e, em_val h, em_val l) {
    const precision *p = precision_of(e, h);
    exp_parts s;
    h = clamp(e, h, p->exp2_lo, p->exp2_hi);
    em_val n = integer_part(e, em_add(e, em_add(e, h, l), num(e, h, p->magic)), &s);
    h = em_sub(e, h, n);
    em_val t = head_of(e, em_add(e, h, l)), u = em_mul(e, t, num(e, h, 0x1.62e4300000000p-1));
    em_val v = em_mul(e, em_sub(e, l, em_sub(e, t, h)), num(e, h, 0x1.62e42fefa39efp-1));
    v = em_add(e, v, em_mul(e, t, num(e, h, -0x1.05c610ca86c39p-29)));
    em_val z = em_add(e, u, v), w = em_sub(e, v, em_sub(e, z, u));
    em_val y = em_add(e, expm1_reduced(e, z), em_add(e, w, em_mul(e, w, z)));
    return scale(e, em_add(e, y, num(e, h, 1)), s.n, s.n_int);
}

/* |x|^y. f32 is computed in f64, where y log|x| loses nothing that f32 has. */
static em_val power_of_magnitude(em *e, em_val a, em_val y, bool wide) {
    if (!wide) return emit_exp(e, em_mul(e, y, emit_log(e, a)));
    em_val rest, log = log2_in_parts(e, a, &rest), y_h = head_of(e, y);
    em_val l = em_add(e, em_mul(e, em_sub(e, y, y_h), log), em_mul(e, y, rest));
    em_val usable = em_cmp(e, EM_LT, em_abs(e, l), num(e, a, 1)); /* false for NaN */
    em_val finite = em_cmp(e, EM_LT, em_abs(e, log), num(e, a, 1.0 / 0.0));
    finite = em_and(e, finite, em_cmp(e, EM_EQ, y, y));
    em_val h = em_select(e, finite, em_mul(e, y_h, log), em_mul(e, y, log));
    return exp2_of_parts(e, h, em_select(e, usable, l, num(e, a, 0)));
}

/* C's pow: what differs from e^(y log|x|). */
static em_val emit_pow(em *e, em_val x, em_val y, bool wide) {
    em_val a = em_abs(e, x), zero = num(e, x, 0), one = num(e, x, 1), inf = num(e, x, 1.0 / 0.0);
    em_val r = power_of_magnitude(e, a, y, wide);
    em_val whole = em_cmp(e, EM_EQ, to_integer(e, y), y), half = em_mul(e, y, num(e, y, 0.5));
    em_val odd = em_and(e, whole, em_cmp(e, EM_NE, to_integer(e, half), half));
    r = em_select(e, odd, copy_sign(e, r, x), r);
    em_val complex = em_and(e, em_cmp(e, EM_LT, x, zero), em_not(e, whole));
    complex = em_and(e, complex, em_cmp(e, EM_LT, a, inf));
    r = em_select(e, complex, num(e, x, 0.0 / 0.0), r);
    em_val unit = em_and(e, em_cmp(e, EM_EQ, a, one), em_cmp(e, EM_EQ, em_abs(e, y), inf));
    unit = em_or(e, unit, em_or(e, em_cmp(e, EM_EQ, x, one), em_cmp(e, EM_EQ, y, zero)));
    return em_select(e, unit, one, r);
}

/* Lanes of the widest register for x; wider vectors are worked on in parts. */
static int native_lanes(em *e, em_val x) {
    return e->target->vector_bytes / (is_wide(e, x) ? 8 : 4);
}

static em_val pow_in_parts(em *e, em_val x, em_val y, bool wide) {
    int n = em_lanes_of(x), half = n / 2;
    if (n <= native_lanes(e, x) || n % 2) return emit_pow(e, x, y, wide);
    em_val low = pow_in_parts(e, em_part(e, x, 0, half), em_part(e, y, 0, half), wide);
    em_val y_high = em_part(e, y, half, half);
    return em_concat(e, low, pow_in_parts(e, em_part(e, x, half, half), y_high, wide));
}

em_val sn_vmath_pow(em *e, em_val x, em_val y) {
    LLVMFastMathFlags flags = em_fast(e, LLVMFastMathNone);
    int n = em_lanes_of(x) > em_lanes_of(y) ? em_lanes_of(x) : em_lanes_of(y);
    if (em_lanes_of(x) < n) x = em_splat(e, x, n);
    if (em_lanes_of(y) < n) y = em_splat(e, y, n);
    em_type t = LLVMTypeOf(x), wide = em_vec(e->f64, n);
    if (!is_wide(e, x)) x = LLVMBuildFPExt(e->b, x, wide, "");
    if (!is_wide(e, y)) y = LLVMBuildFPExt(e->b, y, wide, "");
    em_val r = pow_in_parts(e, x, y, t == wide);
    if (t != wide) r = LLVMBuildFPTrunc(e->b, r, t, "");
    em_fast(e, flags);
    return r;
}

/* --- dispatch --------------------------------------------------------------------------------- */

static em_val (*const emitters[SN_VFUNC_COUNT])(em *, em_val) = {
#define SN_X(id, name, ulp32, ulp64, text) [SN_V_##id] = emit_##name,
    SN_VFUNCS(SN_X)
#undef SN_X
};

static em_val in_parts(em *e, sn_vfunc f, em_val x) {
    int n = em_lanes_of(x), half = n / 2;
    if (n <= native_lanes(e, x) || n % 2) return emitters[f](e, x);
    em_val low = in_parts(e, f, em_part(e, x, 0, half));
    return em_concat(e, low, in_parts(e, f, em_part(e, x, half, half)));
}

em_val sn_vmath_emit(em *e, sn_vfunc f, em_val x) {
    if (!em_is_float(x)) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: the argument is not a float", functions[f].name);
        return x;
    }
    LLVMFastMathFlags flags = em_fast(e, LLVMFastMathNone);
    em_val y = in_parts(e, f, x);
    em_fast(e, flags);
    return y;
}
