/* Vector maths: every function against the C library in the next wider type, on every vector width
 * that runs here; the bounds are those of vmath.h. The f32 range is walked with a stride, ends and
 * special values included; SN_VMATH_STRIDE=1 walks all 2^32, SN_VMATH_REPORT=1 prints
 * the errors. */
#include "codegen/jit/jit.h"
#include "codegen/emit/vmath.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <elf.h>
#include <float.h>
#include <math.h>

enum { CHUNK = 1 << 14 };

static double ref_exp_neg(double x) {
    return exp(x);
}
static double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double ref_gelu(double x) {
    return x == -INFINITY ? 0 : x * erfc(-x * M_SQRT1_2) / 2;
}
static double ref_gelu_tanh(double x) {
    return x == -INFINITY ? 0 : x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double ref_rsqrt(double x) {
    return 1 / sqrt(x);
}
static double ref_recip(double x) {
    return 1 / x;
}
static long double refl_exp_neg(long double x) {
    return expl(x);
}
static long double refl_sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}
static long double refl_gelu(long double x) {
    return x == -INFINITY ? 0 : x * erfcl(-x * M_SQRT1_2l) / 2;
}
static long double refl_gelu_tanh(long double x) {
    long double u = sqrtl(2 / M_PIl) * (x + 0.044715l * x * x * x);
    return x == -INFINITY ? 0 : x / (1 + expl(-2 * u));
}
static long double refl_rsqrt(long double x) {
    return 1 / sqrtl(x);
}
static long double refl_recip(long double x) {
    return 1 / x;
}
#define ref_exp exp
#define ref_exp2 exp2
#define ref_expm1 expm1
#define ref_log log
#define ref_log1p log1p
#define ref_log2 log2
#define ref_tanh tanh
#define ref_erf erf
#define ref_sin sin
#define ref_cos cos
#define ref_atan atan
#define ref_sqrt sqrt
#define refl_exp expl
#define refl_exp2 exp2l
#define refl_expm1 expm1l
#define refl_log logl
#define refl_log1p log1pl
#define refl_log2 log2l
#define refl_tanh tanhl
#define refl_erf erfl
#define refl_sin sinl
#define refl_cos cosl
#define refl_atan atanl
#define refl_sqrt sqrtl

static const struct {
    double (*f)(double);
    long double (*fl)(long double);
} refs[SN_VFUNC_COUNT] = {
#define SN_X(id, name, ulp32, ulp64, text) [SN_V_##id] = {ref_##name, refl_##name},
    SN_VFUNCS(SN_X)
#undef SN_X
};

/* --- one function, compiled for all targets --------------------------------------------------- */

static const char *const specs[] = {"native", "x86-64-v3", "x86-64-v2", "x86-64-v3,-fma", "x86-64"};
enum {
    N_SPECS = sizeof specs / sizeof specs[0],
    N_FUNCS = SN_VFUNC_COUNT + 1,
    POW = SN_VFUNC_COUNT
};

static struct variant {
    char name[160];
    sn_jit *jit;
    sn_kernel_fn *f32[N_FUNCS], *f64[N_FUNCS];
} variants[N_SPECS + 2];
static int n_variants;

static const char *func_name(int f) {
    return f == POW ? "pow" : sn_vmath_name(f);
}

static void emit_function(em *e, int f, int lanes) {
    char name[32];
    snprintf(name, sizeof name, "%s_%s", func_name(f), sn_dtype_name(e->compute));
    em_kernel(e, name);
    sn_dtype t = e->compute;
    em_loop l = em_for(e, em_i64(e, 0), em_dim(e, 0), em_i64(e, lanes));
    em_val x = em_load(e, t, em_gep(e, em_buf(e, 0), t, l.i), lanes), y;
    if (f == POW)
        y = sn_vmath_pow(e, x, em_load(e, t, em_gep(e, em_buf(e, 2), t, l.i), lanes));
    else
        y = sn_vmath_emit(e, f, x);
    em_store(e, t, em_gep(e, em_buf(e, 1), t, l.i), y);
    em_end(e, &l);
    em_end_kernel(e);
}

static void add_variant(const sn_target *t, int times, bool scalar) {
    struct variant *v = &variants[n_variants++];
    sn_error err = {0};
    snprintf(v->name, sizeof v->name, "%s%s%s", t->name, scalar ? " scalar" : "",
             times > 1 ? " double" : "");
    v->jit = sn_jit_create(t, NULL, &err);
    if (!v->jit) fail_msg("%s", err.message);
    for (int wide = 0; wide < 2; wide++) {
        em e;
        assert_true(em_init(&e, t, "vmath", wide ? SN_F64 : SN_F32, &err));
        for (int f = 0; f < N_FUNCS; f++) emit_function(&e, f, scalar ? 1 : e.lanes * times);
        LLVMModuleRef mod = em_finish(&e, &err);
        if (!mod || !sn_jit_compile(v->jit, mod, NULL, &err)) fail_msg("%s", err.message);
        em_free(&e);
        for (int f = 0; f < N_FUNCS; f++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%s", func_name(f), wide ? "f64" : "f32");
            void *p = sn_jit_lookup(v->jit, name, &err);
            if (!p) fail_msg("%s", err.message);
            memcpy(wide ? &v->f64[f] : &v->f32[f], &p, sizeof p);
        }
    }
}

static int compile_all(void **state) {
    (void)state;
    sn_error err = {0};
    sn_target t;
    for (int i = 0; i < N_SPECS; i++) {
        if (!sn_target_init(&t, specs[i], &err)) return 1;
        if (sn_target_runs_here(&t)) add_variant(&t, 1, false);
    }
    if (!sn_target_init(&t, NULL, &err)) return 1;
    add_variant(&t, 2, false); /* wider than a register */
    add_variant(&t, 1, true);
    return 0;
}

static int free_all(void **state) {
    (void)state;
    for (int i = 0; i < n_variants; i++) sn_jit_destroy(variants[i].jit);
    return 0;
}

/* --- errors in ulp ---------------------------------------------------------------------------- */

/* Distance of got and ref in ulp of a type with `mantissa` bits after the point and the smallest
 * exponent `low`; `top` = 2^(largest exponent + 1). Infinity counts as `top`, a wrong sign of zero
 * and a wrong NaN as infinite error. */
static double ulp_error(long double got, long double ref, int mantissa, int low, long double top) {
    if (isnan(ref) || isnan(got)) return isnan(ref) && isnan(got) ? 0 : INFINITY;
    if (ref == 0) return got == 0 && signbit(got) == signbit(ref) ? 0 : INFINITY;
    if (ref > top) ref = top;
    if (ref < -top) ref = -top;
    if (got > top) got = top;
    if (got < -top) got = -top;
    if (got == ref) return 0;
    int e;
    frexpl(ref, &e);
    e = e - 1 < low ? low : e - 1;
    return (double)fabsl(ldexpl(got - ref, mantissa - e));
}

/* The same for f32 in plain doubles: called some hundred million times. */
static double ulp_error_f32(float got, double ref) {
    union {
        double d;
        uint64_t u;
    } r = {ref}, scale;
    int e = (int)(r.u >> 52 & 0x7ff) - 1023;
    if (e < -126) e = -126;
    if (e > 127 || !isfinite(got) || ref == 0) return ulp_error(got, ref, 23, -126, 0x1p128L);
    scale.u = (uint64_t)(1023 + 23 - e) << 52;
    return fabs(got - ref) * scale.d;
}

/* gelu's error is stated in ulp of x/2. */
static bool by_argument(int f) {
    return f == SN_V_GELU || f == SN_V_GELU_TANH;
}

static double error_by_argument(long double got, long double ref, double x, int mantissa, int low) {
    if (!isfinite(ref) || !isfinite(got)) return ulp_error(got, ref, mantissa, low, INFINITY);
    int e;
    frexp(x / 2, &e);
    e = e - 1 < low ? low : e - 1;
    return (double)fabsl(ldexpl(got - ref, mantissa - e));
}

typedef struct worst {
    double error, x, y;
} worst;

static int check_worst(const worst *w, int f, sn_dtype t, const char *variant, double bound) {
    bool good = w->error <= bound;
    if (!good || getenv("SN_VMATH_REPORT"))
        print_message("%-8s %s %-24s %.3f ulp of %.1f at %a, %a\n", func_name(f), sn_dtype_name(t),
                      variant, w->error, bound, w->x, w->y);
    return !good;
}

/* The bound as vmath.h states it: some functions have a range. */
static bool is_excused(int f, double x, double got, double ref, double smallest) {
    if (f == SN_V_EXP_NEG) return x > 0 || (ref < smallest && got == 0);
    if (f == SN_V_SIN || f == SN_V_COS)
        return fabs(x) > 0x1p20 && fabs(x) < INFINITY && fabs(got) <= 1;
    return false;
}

static void run_f32(int f, const float *x, int64_t n, worst *w) {
    static float y[CHUNK];
    static double ref[CHUNK];
    for (int64_t i = 0; i < n; i++) ref[i] = refs[f].f(x[i]);
    for (int v = 0; v < n_variants; v++) {
        variants[v].f32[f]((void *[]){(void *)x, y}, &n, NULL, 0, 1);
        for (int64_t i = 0; i < n; i++) {
            double err = by_argument(f) ? error_by_argument(y[i], ref[i], x[i], 23, -126)
                                        : ulp_error_f32(y[i], ref[i]);
            if (err > w[v].error && !is_excused(f, x[i], y[i], ref[i], FLT_MIN))
                w[v] = (worst){err, x[i], 0};
        }
    }
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* Values around which implementations change their way. */
static const double corners[] = {
    0,          1,        2,          0.5,       0.75,       1.5,        0.925,     4,
    6,          9.1,      17.33,      18,        87.336544,  88.72284,   103.97208, 104,
    126,        127,      128,        149,       150,        151,        0x1p20,    0x1p23,
    0x1p24,     0x1p-126, 0x1p25,     0x1p-24,   0.693147,   1.5707963,  0.785398,  3.14159265,
    6.28318531, 0x1p-149, 0.34657359, 1.0397208, 0.41421356, 0.29289322, 0.5625,    2.5};
enum { N_CORNERS = sizeof corners / sizeof corners[0], AROUND = 40 };

/* Where one polynomial ends and the next begins (erf, tanh, gelu); their number, a multiple
 * of 64. */
static int64_t put_piece_ends(float *x) {
    static const double per_unit[] = {3.4375, 3.875, 4};
    int64_t n = 0;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 32; i++) {
            float end = (float)((i + 0.5) / per_unit[p]);
            uint32_t u;
            memcpy(&u, &end, 4);
            for (uint32_t d = 0; d < 8; d++) {
                x[n++] = float_of(u + d - 4);
                x[n++] = float_of((u + d - 4) | UINT32_C(1) << 31);
            }
        }
    return n;
}

static void whole_range_f32(void **state) {
    (void)state;
    int bad = 0;
    static float x[CHUNK];
    const char *asked = getenv("SN_VMATH_STRIDE");
    uint64_t stride = asked && atoi(asked) > 0 ? (uint64_t)atoi(asked) : 6007;
    for (int f = 0; f < SN_VFUNC_COUNT; f++) {
        worst w[N_SPECS + 2] = {{0}};
        int64_t n = 0;
        for (uint64_t u = 0; u < UINT64_C(1) << 32; u += stride) {
            x[n++] = float_of((uint32_t)u);
            if (n == CHUNK) run_f32(f, x, n, w), n = 0;
        }
        while (n % 64) x[n++] = 0;
        run_f32(f, x, n, w);
        run_f32(f, x, put_piece_ends(x), w);
        for (int sign = 0; sign < 2; sign++) {
            n = 0;
            for (int c = 0; c < N_CORNERS; c++) {
                float v = (float)corners[c];
                uint32_t u;
                memcpy(&u, &v, 4);
                for (int d = -AROUND; d <= AROUND; d++)
                    x[n++] = float_of((((u + (uint32_t)d) & 0x7fffffff) | (uint32_t)sign << 31));
            }
            for (uint32_t u = 0x7f7fffe0; u <= 0x7f800020; u++) /* the largest, infinity, NaN */
                x[n++] = float_of(u | (uint32_t)sign << 31);
            x[n++] = float_of(0x7fffffff | (uint32_t)sign << 31);
            while (n % 64) x[n++] = 0;
            run_f32(f, x, n, w);
        }
        for (int v = 0; v < n_variants; v++)
            bad += check_worst(&w[v], f, SN_F32, variants[v].name, sn_vmath_bound(f, SN_F32));
    }
    assert_int_equal(bad, 0);
}

static void run_f64(int f, const double *x, int64_t n, worst *w) {
    static double y[CHUNK];
    static long double ref[CHUNK];
    for (int64_t i = 0; i < n; i++) ref[i] = refs[f].fl(x[i]);
    for (int v = 0; v < n_variants; v++) {
        variants[v].f64[f]((void *[]){(void *)x, y}, &n, NULL, 0, 1);
        for (int64_t i = 0; i < n; i++) {
            double err = by_argument(f) ? error_by_argument(y[i], ref[i], x[i], 52, -1022)
                                        : ulp_error(y[i], ref[i], 52, -1022, 0x1p1024L);
            if (err > w[v].error && !is_excused(f, x[i], y[i], (double)ref[i], DBL_MIN))
                w[v] = (worst){err, x[i], 0};
        }
    }
}

static uint64_t mix(uint64_t *s) { /* splitmix64, Steele, Lea and Flood 2014 */
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double double_of(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

static double uniform(uint64_t *s, double lo, double hi) {
    return lo + (hi - lo) * (double)(mix(s) >> 11) * 0x1p-53;
}

static void whole_range_f64(void **state) {
    (void)state;
    int bad = 0;
    static double x[CHUNK];
    static const double spans[] = {0.5, 1.5, 8, 40, 800, 1100};
    uint64_t seed = 1;
    for (int f = 0; f < SN_VFUNC_COUNT; f++) {
        worst w[N_SPECS + 2] = {{0}};
        for (int i = 0; i < CHUNK; i++) x[i] = double_of(mix(&seed)); /* all exponents */
        run_f64(f, x, CHUNK, w);
        for (int k = 0; k < 6; k++) {
            for (int i = 0; i < CHUNK; i++) x[i] = uniform(&seed, -spans[k], spans[k]);
            run_f64(f, x, CHUNK, w);
        }
        int64_t n = 0;
        for (int c = 0; c < N_CORNERS; c++)
            for (int d = -20; d <= 20; d++) {
                uint64_t u;
                memcpy(&u, &corners[c], 8);
                x[n] = double_of((u + (uint64_t)d) & INT64_MAX);
                x[n + 1] = -x[n];
                n += 2;
            }
        for (uint64_t u = 0x7fefffffffffffe0u; u <= 0x7ff0000000000020u; u++) {
            x[n] = double_of(u);
            x[n + 1] = double_of(u - 0x7fefffffffffffe0u); /* smallest subnormals */
            x[n + 2] = -x[n];
            x[n + 3] = -x[n + 1];
            n += 4;
        }
        while (n % 64) x[n++] = 0;
        run_f64(f, x, n, w);
        for (int v = 0; v < n_variants; v++)
            bad += check_worst(&w[v], f, SN_F64, variants[v].name, sn_vmath_bound(f, SN_F64));
    }
    assert_int_equal(bad, 0);
}

/* --- pow -------------------------------------------------------------------------------------- */

static const double pow_values[] = {0.0,       1,         2,        3,        0.5, 1.5,    1e-30,
                                    1e30,      1023,      1e9,      16777217, 0.1, 5e-324, 1e308,
                                    0.9999999, 1.0000001, INFINITY, NAN,      7,   1e-5,   2.5};
enum { N_POW = sizeof pow_values / sizeof pow_values[0] };

static void power(void **state) {
    (void)state;
    int bad = 0;
    static double x[CHUNK], y[CHUNK], r[CHUNK];
    static float xf[CHUNK], yf[CHUNK], rf[CHUNK];
    static long double ref[CHUNK];
    worst w[N_SPECS + 2] = {{0}}, wf[N_SPECS + 2] = {{0}};
    uint64_t seed = 2;
    int64_t n = 0;
    for (int i = 0; i < 4 * N_POW * N_POW; i++) {
        double s = i & 1 ? -1 : 1, t = i & 2 ? -1 : 1;
        x[n] = s * pow_values[i / 4 % N_POW];
        y[n++] = t * pow_values[i / 4 / N_POW];
    }
    while (n < CHUNK) {
        x[n] = n % 3 ? uniform(&seed, 0, 20) : exp(uniform(&seed, -80, 80));
        y[n] = n % 2 ? uniform(&seed, -8, 8) : (double)(int)uniform(&seed, -300, 300);
        n++;
    }
    for (int v = 0; v < n_variants; v++) {
        for (int i = 0; i < CHUNK; i++) ref[i] = powl(x[i], y[i]);
        variants[v].f64[POW]((void *[]){x, r, y}, &n, NULL, 0, 1);
        for (int i = 0; i < CHUNK; i++) {
            double err = ulp_error(r[i], ref[i], 52, -1022, 0x1p1024L);
            if (err > w[v].error) w[v] = (worst){err, x[i], y[i]};
        }
        for (int i = 0; i < CHUNK; i++) xf[i] = (float)x[i], yf[i] = (float)y[i];
        variants[v].f32[POW]((void *[]){xf, rf, yf}, &n, NULL, 0, 1);
        for (int i = 0; i < CHUNK; i++) {
            double err = ulp_error(rf[i], powl(xf[i], yf[i]), 23, -126, 0x1p128L);
            if (err > wf[v].error) wf[v] = (worst){err, xf[i], yf[i]};
        }
        bad += check_worst(&w[v], POW, SN_F64, variants[v].name, 1);
        bad += check_worst(&wf[v], POW, SN_F32, variants[v].name, 0.6);
    }
    assert_int_equal(bad, 0);
}

/* Integral powers that the type represents, also of fractions and with negative exponents of 2, are exact. */
static void integral_powers(void **state) {
    (void)state;
    static double x[CHUNK], y[CHUNK], r[CHUNK], want[CHUNK];
    static float xf[CHUNK], yf[CHUNK], rf[CHUNK];
    int64_t n = 0;
    for (int base = -60; base <= 1200; base++)
        for (int k = 0; k < 53 && n < CHUNK; k++) {
            double p = 1;
            for (int i = 0; i < k; i++) p *= base;
            if (fabs(p) >= 0x1p53) break;
            double scale = n % 3 == 1 ? 0.125 : 1;
            x[n] = base * scale, y[n] = k, want[n] = p * pow(scale, k);
            if (base == 2 && n % 2) y[n] = -k, want[n] = 1 / want[n];
            n++;
        }
    assert_in_range(n, 1000, CHUNK);
    for (int v = 0; v < n_variants; v++) {
        variants[v].f64[POW]((void *[]){x, r, y}, &n, NULL, 0, 1);
        for (int i = 0; i < n; i++) xf[i] = (float)x[i], yf[i] = (float)y[i];
        variants[v].f32[POW]((void *[]){xf, rf, yf}, &n, NULL, 0, 1);
        for (int i = 0; i < n; i++) {
            if (r[i] != want[i])
                fail_msg("%s: %g^%g: %a, not %a", variants[v].name, x[i], y[i], r[i], want[i]);
            if ((float)want[i] == want[i] && (double)rf[i] != want[i])
                fail_msg("%s: f32 %g^%g: %a", variants[v].name, x[i], y[i], rf[i]);
        }
    }
}

/* Code for every kind of target calls nothing: its objects have no undefined symbols. */
static void no_calls(void **state) {
    (void)state;
    static const char *const all[] = {"sapphirerapids", "x86-64-v4", "x86-64-v3",  "x86-64-v2",
                                      "x86-64",         "aarch64",   "neoverse-v1"};
    for (size_t i = 0; i < 2 * sizeof all / sizeof all[0]; i++) {
        sn_error err = {0};
        sn_target t;
        em e;
        sn_object o;
        assert_true(sn_target_init(&t, all[i / 2], &err));
        assert_true(em_init(&e, &t, "vmath", i % 2 ? SN_F64 : SN_F32, &err));
        for (int f = 0; f < N_FUNCS; f++) emit_function(&e, f, e.lanes);
        sn_codegen *g = sn_codegen_create(&t, NULL, &err);
        if (!g || !em_finish(&e, &err) || !sn_codegen_object(g, e.mod, &o, &err))
            fail_msg("%s: %s", t.name, err.message);
        const Elf64_Ehdr *h = (const Elf64_Ehdr *)o.data;
        const Elf64_Shdr *s = (const Elf64_Shdr *)(o.data + h->e_shoff);
        int defined = 0;
        for (int k = 0; k < h->e_shnum; k++) {
            if (s[k].sh_type != SHT_SYMTAB) continue;
            const Elf64_Sym *sym = (const Elf64_Sym *)(o.data + s[k].sh_offset);
            const char *names = (const char *)o.data + s[s[k].sh_link].sh_offset;
            for (size_t j = 1; j < s[k].sh_size / sizeof *sym; j++) {
                if (sym[j].st_shndx == SHN_UNDEF)
                    fail_msg("%s calls %s", t.name, names + sym[j].st_name);
                defined += ELF64_ST_TYPE(sym[j].st_info) == STT_FUNC;
            }
        }
        assert_int_equal(defined, N_FUNCS);
        sn_object_free(&o);
        sn_codegen_destroy(g);
        em_free(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_range_f32), cmocka_unit_test(whole_range_f64),
        cmocka_unit_test(power), cmocka_unit_test(integral_powers), cmocka_unit_test(no_calls)};
    return cmocka_run_group_tests(tests, compile_all, free_all);
}
