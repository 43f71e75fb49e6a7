/* Dimensions: polynomials obey the laws of rings, print and parse back, and their bounds hold. Laws
 * are checked by interning (equal polynomials are equal numbers) and by evaluation at points. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static uint64_t rng = 88172645463325252u;

static int random_below(int n) { /* xorshift */
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (int)(rng % (uint64_t)n);
}

static sn_module *new_module(void) { /* B in [1, 8], T in [0, 1024], P in [3, 7] */
    sn_module *m = sn_module_new("dims");
    assert_non_null(m);
    sn_symbol_add(m, "B", 1, 8);
    sn_symbol_add(m, "T", 0, 1024);
    sn_symbol_add(m, "P", 3, 7);
    return m;
}

static sn_dim symbol(sn_module *m, const char *name) {
    const sn_symbol *s = sn_symbol_at(m, sn_symbol_find(m, name));
    return sn_symbol_add(m, s->name, s->lo, s->hi);
}

static sn_dim random_poly(sn_module *m, int depth) {
    static const char *const names[] = {"B", "T", "P"};
    int kind = depth ? random_below(5) : random_below(2);
    if (kind == 0) return sn_dim_const(m, random_below(15) - 7);
    if (kind == 1) return symbol(m, names[random_below(3)]);
    sn_dim a = random_poly(m, depth - 1), b = random_poly(m, depth - 1);
    return kind == 2 ? sn_dim_add(m, a, b) : kind == 3 ? sn_dim_sub(m, a, b) : sn_dim_mul(m, a, b);
}

static sn_dim parse(sn_module *m, const char *text) {
    sn_dim d = 0;
    const char *p = text;
    assert_true(sn_dim_parse(m, &p, &d));
    assert_int_equal(*p, 0);
    return d;
}

static void ring_laws(void **state) {
    (void)state;
    sn_module *m = new_module();
    for (int i = 0; i < 3000; i++) {
        sn_dim a = random_poly(m, 3), b = random_poly(m, 3), c = random_poly(m, 2);
        sn_dim sum = sn_dim_add(m, a, b), product = sn_dim_mul(m, a, b);
        assert_int_equal(sum, sn_dim_add(m, b, a));
        assert_int_equal(product, sn_dim_mul(m, b, a));
        assert_int_equal(sn_dim_add(m, sum, c), sn_dim_add(m, a, sn_dim_add(m, b, c)));
        assert_int_equal(sn_dim_mul(m, product, c), sn_dim_mul(m, a, sn_dim_mul(m, b, c)));
        assert_int_equal(sn_dim_mul(m, sum, c),
                         sn_dim_add(m, sn_dim_mul(m, a, c), sn_dim_mul(m, b, c)));
        assert_int_equal(sn_dim_sub(m, sum, b), a);
        assert_int_equal(sn_dim_sub(m, a, a), 0);
        int64_t at[] = {1 + random_below(8), random_below(1025), 3 + random_below(5)};
        int64_t va = sn_dim_eval(m, a, at), vb = sn_dim_eval(m, b, at);
        assert_int_equal(sn_dim_eval(m, sum, at), va + vb);
        assert_int_equal(sn_dim_eval(m, sn_dim_sub(m, a, b), at), va - vb);
        assert_int_equal(sn_dim_eval(m, product, at), va * vb);
        assert_true(sn_dim_lo(m, a) <= va && va <= sn_dim_hi(m, a));
        assert_true(sn_dim_lo(m, product) <= va * vb && va * vb <= sn_dim_hi(m, product));
        if (sn_dim_le(m, a, b)) assert_true(va <= vb);
        sn_dim q = 0;
        if (b) {
            assert_true(sn_dim_div(m, product, b, &q));
            assert_int_equal(q, a);
            if (sn_dim_div(m, sum, b, &q)) assert_int_equal(sn_dim_mul(m, q, b), sum);
        }
    }
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    sn_module_free(m);
}

static void text_round_trip(void **state) {
    (void)state;
    sn_module *m = new_module();
    for (int i = 0; i < 3000; i++) {
        char buf[4096], cut[8];
        sn_dim d = random_poly(m, 3);
        int n = sn_dim_print(m, d, buf, sizeof buf);
        assert_int_equal(strlen(buf), n);
        assert_int_equal(parse(m, buf), d);
        assert_int_equal(sn_dim_print(m, d, cut, sizeof cut), n);
        assert_int_equal(strncmp(cut, buf, sizeof cut - 1), 0);
        assert_int_equal(sn_dim_print(m, d, NULL, 0), n);
    }
    static const char *const canonical[][2] = {
        {"1+P+B*T*2", "2*B*T+P+1"},
        {"(B+T)*(B-T)", "B*B-T*T"},
        {"-(T - 3) * 2", "-2*T+6"},
        {"-5", "-5"},
        {"T-T", "0"},
        {" ( ( 7 ) ) ", "7"},
    };
    for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
        char buf[64], padded[64];
        snprintf(padded, sizeof padded, "%s", canonical[i][0]);
        const char *p = padded;
        sn_dim d;
        assert_true(sn_dim_parse(m, &p, &d));
        sn_dim_print(m, d, buf, sizeof buf);
        assert_string_equal(buf, canonical[i][1]);
    }
    sn_dim shape[] = {parse(m, "B"), parse(m, "P+T"), 768};
    char buf[64];
    assert_int_equal(sn_shape_print(m, 3, shape, buf, sizeof buf), 11);
    assert_string_equal(buf, "[B,T+P,768]");
    assert_int_equal(sn_shape_print(m, 0, NULL, buf, sizeof buf), 2);
    assert_string_equal(buf, "[]");
    sn_module_free(m);
}

static void bad_text(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "B+",
                                      "*B",
                                      "(B",
                                      "X",
                                      "2 B)*",
                                      "--B",
                                      "B**",
                                      "B+-1",
                                      "()",
                                      "\xff",
                                      "+1",
                                      "99999999999999999999",
                                      "(",
                                      "-",
                                      "1+(",
                                      "ceil(T)",
                                      "ceil(T/",
                                      "ceil(T/2",
                                      "B*(2",
                                      "B*T+Q"};
    sn_module *m = new_module();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *p = bad[i];
        sn_dim d;
        bool ok = sn_dim_parse(m, &p, &d);
        assert_false(ok && !*p);
    }
    char deep[5000];
    memset(deep, '(', sizeof deep);
    deep[sizeof deep - 1] = 0;
    const char *p = deep;
    sn_dim d;
    assert_false(sn_dim_parse(m, &p, &d));
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    sn_module_free(m);
}

static void exact_bounds(void **state) {
    (void)state;
    sn_module *m = new_module();
    assert_int_equal(sn_dim_lo(m, parse(m, "B*T-B")), -8);
    assert_int_equal(sn_dim_hi(m, parse(m, "B*T-B")), 8 * 1024 - 8); /* termwise: 8191 */
    assert_int_equal(sn_dim_lo(m, parse(m, "(B-1)*T")), 0);
    assert_true(sn_dim_le(m, parse(m, "T"), parse(m, "T+P")));
    assert_true(sn_dim_le(m, parse(m, "T"), parse(m, "B*T")));
    assert_false(sn_dim_le(m, parse(m, "T"), parse(m, "P")));
    assert_true(sn_dim_le(m, parse(m, "T"), 1024));
    assert_false(sn_dim_le(m, parse(m, "T"), 1023));
    sn_dim n = sn_symbol_add(m, "N", 1, INT64_MAX);
    assert_int_equal(sn_dim_hi(m, sn_dim_mul(m, n, n)), INT64_MAX);
    assert_int_equal(sn_dim_lo(m, sn_dim_sub(m, 5, n)), INT64_MIN);
    assert_int_equal(sn_dim_hi(m, sn_dim_sub(m, 5, n)), 4);
    assert_true(sn_dim_le(m, n, sn_dim_mul(m, n, 2)));
    int64_t v;
    assert_true(sn_dim_is_const(m, sn_dim_const(m, -3), &v));
    assert_int_equal(v, -3);
    assert_false(sn_dim_is_const(m, n, &v));
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    sn_module_free(m);
}

static void division(void **state) {
    (void)state;
    static const struct {
        const char *a, *b, *q; /* q NULL: not exact */
    } cases[] = {{"B*T", "T", "B"},
                 {"6*B*T", "2*B", "3*T"},
                 {"B*B-T*T", "B-T", "B+T"},
                 {"B*T+B", "T+1", "B"},
                 {"5*T", "2", NULL},
                 {"T+1", "T", NULL},
                 {"0", "T", "0"},
                 {"T", "0", NULL},
                 {"B*T", "B+T", NULL},
                 {"-4*T", "-2", "2*T"},
                 {"12", "4", "3"},
                 {"12", "5", NULL},
                 {"768*B*T", "64*T", "12*B"},
                 {"T*T*T-1", "T-1", "T*T+T+1"}};
    sn_module *m = new_module();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_dim q;
        bool exact = sn_dim_div(m, parse(m, cases[i].a), parse(m, cases[i].b), &q);
        assert_int_equal(exact, cases[i].q != NULL);
        if (exact) assert_int_equal(q, parse(m, cases[i].q));
    }
    sn_module_free(m);
}

/* Values, bounds and text of quotients; by q - T is proven not to be negative. */
static void quotients(void **state) {
    (void)state;
    sn_module *m = new_module();
    sn_dim T = symbol(m, "T"), q = sn_dim_div_up(m, T, 16), whole = sn_dim_mul(m, q, 16);
    sn_dim down = sn_dim_div_up(m, sn_dim_sub(m, T, 15), 16);
    sn_dim both = sn_dim_add(m, sn_dim_mul(m, sn_dim_mul(m, q, q), symbol(m, "B")), down);
    for (int64_t t = 0; t < 70; t++) {
        int64_t at[] = {2, t, 3}, up = (t + 15) / 16;
        assert_int_equal(sn_dim_eval(m, q, at), up);
        assert_int_equal(sn_dim_eval(m, whole, at), 16 * up);
        assert_int_equal(sn_dim_eval(m, both, at), 2 * up * up + t / 16);
    }
    assert_int_equal(sn_dim_hi(m, q), 64);
    assert_true(sn_dim_le(m, T, whole));
    assert_true(sn_dim_le(m, whole, sn_dim_add(m, T, 15)));
    assert_false(sn_dim_le(m, whole, sn_dim_add(m, T, 14)));
    assert_true(sn_dim_le(m, sn_dim_mul(m, down, 16), T));
    assert_int_equal(sn_dim_div_up(m, whole, 16), q);
    assert_int_equal(sn_dim_div_up(m, 33, 16), 3);
    assert_int_equal(parse(m, "ceil(T / 16)*16"), whole);
    char buf[96];
    sn_dim_print(m, both, buf, sizeof buf);
    assert_string_equal(buf, "B*ceil(T/16)*ceil(T/16)+ceil((T-15)/16)");
    assert_int_equal(parse(m, buf), both);
    bool used[3] = {false};
    sn_dim_symbols(m, sn_dim_div_up(m, sn_dim_add(m, q, symbol(m, "P")), 3), used);
    assert_memory_equal(used, ((bool[]){false, true, true}), 3);
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    for (int i = 0; i < 8; i++) sn_dim_div_up(m, T, 17 + i);
    assert_int_equal(sn_module_error(m)->code, SN_ERR_USAGE);
    sn_module_free(m);
    m = new_module();
    sn_dim_div_up(m, sn_dim_sub(m, symbol(m, "T"), 16), 16);
    assert_int_equal(sn_module_error(m)->code, SN_ERR_SHAPE);
    sn_module_free(m);
}

/* Bounds hold for every size, also of quotients of quotients beside what they divide. */
static void bounds_of_quotients(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t least,
            most; /* attained: bounds are not below, or above, these by more than `slack` */
        int64_t slack;
    } rows[] = {
        {"ceil(T/4)", 1, 10, 0},
        {"4*ceil(T/4)-T", 0, 3, 40},
        {"T-4*ceil(ceil(T/2)/2)", -3, 0, 40},
        {"ceil(T/9)-ceil(T/9)+T-4*ceil(ceil(T/2)/2)", -3, 0, 40},
        {"T-2*ceil(T/2)", -1, 0, 40},
        {"ceil((40-T)/8)", 0, 5, 0},
        {"ceil(ceil(T/3)/5)", 1, 3, 0},
        {"T*ceil(T/10)", 4, 160, 0},
        {"ceil(T/4)-ceil(T/8)", 0, 5, 10},
        {"ceil((T+1)/2)+T", 7, 61, 0},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        sn_module *m = sn_module_new("m");
        sn_symbol_add(m, "T", 4, 40);
        sn_dim d = parse(m, rows[k].text);
        const int64_t lo = sn_dim_lo(m, d), hi = sn_dim_hi(m, d);
        int64_t least = INT64_MAX, most = INT64_MIN;
        for (int64_t t = 4; t <= 40; t++) {
            const int64_t v = sn_dim_eval(m, d, &t);
            if (v < least) least = v;
            if (v > most) most = v;
        }
        assert_int_equal(least, rows[k].least);
        assert_int_equal(most, rows[k].most);
        if (lo > least || hi < most || lo < least - rows[k].slack || hi > most + rows[k].slack)
            fail_msg("%s: %lld to %lld", rows[k].text, (long long)lo, (long long)hi);
        if (lo >= 0) assert_int_equal(sn_dim_div_up(m, d, 1), d);
        sn_module_free(m);
    }
}

static void terms(void **state) {
    (void)state;
    sn_module *m = new_module();
    sn_dim d = parse(m, "2*B*T+P+1");
    const uint8_t *e;
    assert_int_equal(sn_dim_terms(m, d), 3);
    assert_int_equal(sn_dim_term(m, d, 0, &e), 2);
    assert_memory_equal(e, ((uint8_t[]){1, 1, 0}), 3);
    assert_int_equal(sn_dim_term(m, d, 2, &e), 1);
    assert_memory_equal(e, ((uint8_t[]){0, 0, 0}), 3);
    assert_int_equal(sn_dim_terms(m, 0), 0);
    assert_int_equal(sn_dim_terms(m, 42), 1);
    assert_int_equal(sn_dim_term(m, 42, 0, &e), 42);
    assert_int_equal(sn_dim_product(m, 3, (sn_dim[]){2, 3, symbol(m, "T")}), parse(m, "6*T"));
    sn_module_free(m);
}

static void expect_error(sn_module *m, sn_code code) {
    assert_int_equal(sn_module_error(m)->code, code);
    assert_true(strlen(sn_module_error(m)->message) > 10);
    sn_module_free(m);
}

static void errors(void **state) {
    (void)state;
    sn_module *m = new_module();
    sn_dim_mul(m, INT64_MAX, 2);
    expect_error(m, SN_ERR_SHAPE);
    m = new_module();
    sn_dim t = symbol(m, "T"), power = t;
    for (int i = 0; i < 8; i++) power = sn_dim_mul(m, power, power); /* T^256 */
    expect_error(m, SN_ERR_SHAPE);
    m = new_module();
    sn_dim sum = symbol(m, "B");
    for (int i = 0; i < 13; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        sum = sn_dim_add(m, sum, sn_symbol_add(m, name, 0, 9));
    }
    assert_int_equal(sn_symbol_count(m), 16);
    sn_dim_mul(m, sn_dim_mul(m, sum, sum), sum); /* more than 256 terms */
    expect_error(m, SN_ERR_SHAPE);
    m = new_module();
    assert_int_equal(sn_symbol_add(m, "T", 0, 1024), symbol(m, "T"));
    sn_symbol_add(m, "T", 0, 1023);
    expect_error(m, SN_ERR_SHAPE);
    m = new_module();
    sn_symbol_add(m, "2x", 0, 1);
    expect_error(m, SN_ERR_USAGE);
    m = new_module();
    sn_symbol_add(m, "x", 2, 1);
    expect_error(m, SN_ERR_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_laws), cmocka_unit_test(text_round_trip),
        cmocka_unit_test(bad_text),  cmocka_unit_test(exact_bounds),
        cmocka_unit_test(division),  cmocka_unit_test(terms),
        cmocka_unit_test(quotients), cmocka_unit_test(bounds_of_quotients),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
