/* Equality over finite fields: the laws that an element obeys, spellings of one function that are equal, and
 * wrong rewrites of a decoder, which are all found. */
#include "passes/exact.h"
#include "frontend/sinter.h"
#include "ir/field_log.h"
#include "passes/passes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* ---- elements ---- */

static sn_field *field;

static double leaf(const char *name) {
    double x;
    sn_field_leaf(field, name, 1, &x);
    return x;
}

static double one(sn_op op, double x) {
    return sn_field_elem(field, op, SN_F32, SN_F32, x, x, x);
}

static double two(sn_op op, double x, double y) {
    return sn_field_elem(field, op, SN_F32, SN_F32, x, y, y);
}

static double num(double x) {
    return sn_field_number(field, x, false);
}

#define SAME(x, y) assert_true(sn_field_same(field, x, y))
#define OTHER(x, y) assert_false(sn_field_same(field, x, y))
#define ADD(x, y) two(SN_OP_add, x, y)
#define MUL(x, y) two(SN_OP_mul, x, y)
#define DIV(x, y) two(SN_OP_div, x, y)
#define EXP(x) one(SN_OP_exp, x)
#define NEG(x) one(SN_OP_neg, x)

static void laws(void **state) {
    (void)state;
    field = sn_field_new(1);
    double a = leaf("a"), b = leaf("b"), c = leaf("c");
    OTHER(a, b);
    SAME(a, leaf("a"));
    SAME(MUL(ADD(a, b), c), ADD(MUL(a, c), MUL(b, c)));
    SAME(MUL(DIV(a, b), b), a);
    SAME(EXP(ADD(a, b)), MUL(EXP(a), EXP(b)));
    SAME(EXP(NEG(a)), one(SN_OP_recip, EXP(a)));
    double deep = EXP(EXP(a)), deeper = EXP(ADD(deep, b));
    SAME(deeper, MUL(EXP(deep), EXP(b)));
    OTHER(deeper, MUL(EXP(deep), EXP(a)));
    SAME(one(SN_OP_sigmoid, NEG(a)), two(SN_OP_sub, num(1), one(SN_OP_sigmoid, a)));
    SAME(one(SN_OP_tanh, a),
         two(SN_OP_sub, MUL(num(2), one(SN_OP_sigmoid, MUL(a, num(2)))), num(1)));
    OTHER(one(SN_OP_sqrt, a), one(SN_OP_sqrt, one(SN_OP_neg, a)));
    SAME(one(SN_OP_sqrt, MUL(a, b)), MUL(one(SN_OP_sqrt, a), one(SN_OP_sqrt, b)));
    SAME(EXP(one(SN_OP_log, a)), a);
    SAME(one(SN_OP_log, EXP(a)), a);
    SAME(one(SN_OP_exp2, ADD(a, num(1))), MUL(one(SN_OP_exp2, a), num(2)));
    SAME(one(SN_OP_sin, NEG(a)), NEG(one(SN_OP_sin, a)));
    SAME(one(SN_OP_cos, NEG(a)), one(SN_OP_cos, a));
    SAME(two(SN_OP_max, a, two(SN_OP_max, b, c)), two(SN_OP_max, two(SN_OP_max, c, a), b));
    SAME(two(SN_OP_max, a, NEG(a)), one(SN_OP_abs, a));
    SAME(two(SN_OP_min, a, b), NEG(two(SN_OP_max, NEG(a), NEG(b))));
    SAME(two(SN_OP_max, MUL(a, a), num(0)), MUL(a, a));
    double infinite = num((double)INFINITY);
    SAME(NEG(infinite), num((double)-INFINITY));
    OTHER(NEG(infinite), infinite);
    SAME(NEG(NEG(infinite)), infinite);
    sn_field_free(field);
}

#define LN(x) one(SN_OP_log, x)

/* ln is the inverse of e^x, for sums, too, whose sign it keeps. */
static void logarithms(void **state) {
    (void)state;
    field = sn_field_new(4);
    double a = leaf("a"), b = leaf("b"), c = leaf("c"), s = ADD(EXP(a), EXP(b));
    SAME(LN(MUL(a, b)), ADD(LN(a), LN(b)));
    SAME(LN(DIV(ADD(a, b), c)), two(SN_OP_sub, LN(ADD(a, b)), LN(c)));
    OTHER(LN(ADD(a, b)), ADD(LN(a), LN(b)));
    SAME(LN(MUL(EXP(a), ADD(b, c))), ADD(a, LN(ADD(b, c))));
    SAME(ADD(c, LN(ADD(EXP(two(SN_OP_sub, a, c)), EXP(two(SN_OP_sub, b, c))))), LN(s));
    SAME(EXP(two(SN_OP_sub, a, LN(s))), DIV(EXP(a), s));
    SAME(EXP(two(SN_OP_sub, LN(ADD(a, b)), LN(ADD(b, c)))), DIV(ADD(a, b), ADD(b, c)));
    SAME(EXP(MUL(LN(ADD(a, b)), num(3))), MUL(MUL(ADD(a, b), ADD(a, b)), ADD(a, b)));
    SAME(LN(LN(MUL(s, EXP(c)))), LN(ADD(c, LN(s))));
    SAME(one(SN_OP_log1p, EXP(NEG(a))), NEG(LN(one(SN_OP_sigmoid, a))));
    SAME(LN(MUL(s, num(6))), ADD(LN(s), num(log(6))));
    SAME(LN(DIV(s, num(7))), two(SN_OP_sub, LN(s), num((double)(float)log(7))));
    SAME(MUL(num(sqrt(1.0 / 48)), num(0.2)), num(sqrt(1.0 / 1200)));
    SAME(DIV(num(1), one(SN_OP_sqrt, num(48))), num(sqrt(1.0 / 48)));
    SAME(one(SN_OP_sqrt, num(49)), num(7));
    double above = sn_field_number(field, 1 + 0x1p-22, true); /* as it is, not 1 */
    OTHER(one(SN_OP_sqrt, above), num(1));
    SAME(EXP(num(log(5))), num(5));
    SAME(EXP(num((double)(float)log(0.775))), num(0.775));
    SAME(one(SN_OP_exp2, MUL(a, num(1.4426950408889634))), EXP(a));
    SAME(one(SN_OP_exp2, MUL(a, num((double)(float)(0.125 / log(2))))), EXP(MUL(a, num(0.125))));
    SAME(EXP(MUL(a, num((double)(float)log(2)))), one(SN_OP_exp2, a));
    SAME(MUL(LN(s), num((double)(float)(3 / log(2)))), MUL(LN(MUL(s, MUL(s, s))), num(1 / log(2))));
    OTHER(one(SN_OP_exp2, MUL(a, num(1.443))), EXP(a));
    double root = EXP(MUL(LN(ADD(a, b)), num(0.5)));
    SAME(two(SN_OP_mul, MUL(root, root), MUL(root, root)), MUL(ADD(a, b), ADD(a, b)));
    assert_int_equal(sn_field_lost(field, root), SN_FIELD_SIGN);
    assert_int_equal(sn_field_lost(field, MUL(LN(s), c)), 0);
    double x = s;
    for (int i = 0; i < SN_FIELD_RINGS - 1; i++) {
        assert_int_equal(sn_field_lost(field, x), 0);
        x = LN(x);
    }
    assert_int_equal(sn_field_lost(field, LN(x)), SN_FIELD_DEEP);
    sn_field_free(field);
}

/* 2^l is x or -x: small numbers, those near p, and others. */
static void discrete_logarithms(void **state) {
    (void)state;
    uint64_t random = 1;
    for (int i = 1; i < SN_FIELD_RINGS; i++)
        for (uint64_t k = 0; k < 60; k++) {
            const uint64_t p = sn_field_prime[i];
            random = random * 6364136223846793005u + 1442695040888963407u;
            const uint64_t x = k < 20 ? k + 1 : k < 40 ? p - 1 - k % 20 : random % (p - 1) + 1;
            const uint64_t l = sn_field_log2(x, i);
            const uint64_t y = sn_residue_power(2, l, p);
            assert_true(l < sn_field_prime[i - 1] && (y == x || y == p - x));
        }
}

/* Constants as rules fold them: rounded to f32. */
static void constants(void **state) {
    (void)state;
    field = sn_field_new(2);
    double a = leaf("a");
    SAME(num((double)(1.0f / 3)), DIV(num(1), num(3)));
    SAME(num((double)(0.1f * 0.3f)), MUL(num((double)0.1f), num((double)0.3f)));
    SAME(MUL(a, num((double)(float)(1 / sqrt(48)))), DIV(a, one(SN_OP_sqrt, num(48))));
    SAME(num((double)(float)M_PI), num(M_PI));
    OTHER(num(M_PI), num(M_PI * (1 + 1e-5)));
    OTHER(num(1000000), num(1000001));
    /* e^x of a constant is the number that folding makes of it, in either order; its laws hold otherwise */
    double power = one(SN_OP_exp, num(-3.3));
    SAME(power, num((double)(float)exp(-3.3)));
    SAME(num(exp(3.3)), DIV(num(1), power));
    double folded = num((double)(float)exp(1.7));
    SAME(one(SN_OP_exp, num(1.7)), folded);
    SAME(MUL(one(SN_OP_exp, num(0.9)), power), one(SN_OP_exp, ADD(num(0.9), num(-3.3))));
    OTHER(one(SN_OP_exp, num(0.91)), one(SN_OP_exp, num(0.9)));
    assert_true(sn_field_elem(field, SN_OP_lt, SN_F32, SN_BOOL, num(-2.5), num(1), 0) == 1);
    SAME(ADD(num(-INFINITY), a), num(-INFINITY));
    SAME(EXP(num(-INFINITY)), num(0));
    SAME(MUL(num(0), num(INFINITY)), num(NAN));
    double x = a;
    for (int i = 0; i < SN_FIELD_RINGS; i++) {
        assert_int_equal(sn_field_lost(field, x), 0);
        x = EXP(x);
    }
    assert_int_equal(sn_field_lost(field, x), SN_FIELD_DEEP);
    sn_field_free(field);
}

/* Whole and half exponents are products and roots, others numbers or hashes. */
static void powers(void **state) {
    (void)state;
    field = sn_field_new(4);
    double a = leaf("a"), s = EXP(leaf("c")), x = num(1);
#define POW(x, y) two(SN_OP_pow, x, num(y))
    for (int n = 0; n <= 40; n++, x = MUL(x, s)) {
        if (n <= 32) SAME(POW(s, n), x);
        if (n <= 32) SAME(POW(s, -n), DIV(num(1), x));
        if (n < 32) SAME(POW(s, n + 0.5), MUL(x, one(SN_OP_sqrt, s)));
        if (n < 32) SAME(POW(s, -n - 0.5), DIV(num(1), MUL(x, one(SN_OP_sqrt, s))));
        if (n > 32) OTHER(POW(s, n), POW(s, n + 1));
    }
    SAME(POW(a, 3), MUL(a, MUL(a, a)));
    OTHER(POW(a, 0.3), POW(a, 0.4));
    OTHER(POW(a, 0.3), two(SN_OP_pow, num(0.3), a));
    SAME(POW(num(3), 0.25), num(pow(3, 0.25)));
    SAME(POW(num(2.25), 1.5), num(3.375));
    SAME(POW(num(0.25), 3), num(1.0 / 64));
    SAME(POW(num(INFINITY), 2), num(INFINITY));
    SAME(POW(num(INFINITY), -2), num(0));
    SAME(POW(num(5), -INFINITY), num(0));
    sn_field_free(field);
}

/* A constant is the same number again, however many there are. */
static void many_constants(void **state) {
    (void)state;
    enum { N = 300 };
    double first[N], x = 0;
    field = sn_field_new(5);
    for (int i = 0; i < N; i++) first[i] = num((double)(i * 7919 % N) * 0.37);
    for (int i = 0; i < N; i++) {
        SAME(num((double)(i * 7919 % N) * 0.37), first[i]);
        OTHER(num((double)(i * 7919 % N) * 0.37), num((double)(i * 7919 % N) * 0.37 + 0.1));
        SAME(num(x), num((double)(float)x));
        x += 0.0625;
    }
    sn_field_free(field);
}

/* ---- graphs ---- */

enum { T = 6, D = 8, H = 2, HIDDEN = D };

static bool no_integers(void *ctx, sn_eval *ev) {
    return ctx || ev;
}

/* How "y" of entry "f" compares once `change` has made something else of the module. */
static sn_exact_verdict compared(sn_module *m, uint64_t key,
                                 void (*change)(sn_module *m, void *ctx), void *ctx) {
    sn_error err = {0};
    const sn_exact_row *row = NULL;
    sn_exact *x = sn_exact_new(m, "f", NULL, key, no_integers, NULL, &err);
    if (!x) fail_msg("%s", err.message);
    sn_entries *before = sn_entries_save(m);
    change(m, ctx);
    int n = sn_exact_compare(x, &row, &err);
    if (n < 0) fail_msg("%s", err.message);
    sn_exact_verdict v = row[0].verdict;
    sn_entries_restore(m, before);
    sn_exact_free(x);
    return v;
}

static void other_output(sn_module *m, void *ctx) {
    sn_entry_get(m, "f")->output[0].node = ctx;
}

/* Two spellings. */
static sn_exact_verdict spelled(sn_module *m, sn_tensor a, sn_tensor b) {
    sn_entry *e = sn_entry_add(m, "f");
    e->n_output = 0;
    sn_entry_output(m, e, "y", a);
    return compared(m, 3, other_output, b);
}

static void spellings(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_tensor x = sn_input(m, "x", SN_F32, 3, 7), e = sn_exp(x);
    sn_tensor soft = sn_div(e, sn_sum_keep(e, -1));
    sn_tensor less = sn_exp(sn_sub(x, sn_amax_keep(x, -1)));
    assert_int_equal(spelled(m, sn_softmax(x, -1), soft), SN_EXACT_EQUAL);
    assert_int_equal(spelled(m, soft, sn_div(less, sn_sum_keep(less, -1))), SN_EXACT_EQUAL);
    assert_int_equal(spelled(m, soft, sn_div(less, sn_sum_keep(e, -1))), SN_EXACT_DIFFERS);
    sn_tensor mean = sn_mean_keep(x, -1), away = sn_sub(x, mean);
    sn_tensor norm = sn_div(away, sn_sqrt(sn_add(sn_mean_keep(sn_mul(away, away), -1), 1e-5)));
    assert_int_equal(spelled(m, sn_layer_norm(x, NULL, NULL, 1e-5), norm), SN_EXACT_EQUAL);
    assert_int_equal(spelled(m, sn_layer_norm(x, NULL, NULL, 1e-6), norm), SN_EXACT_DIFFERS);
    sn_tensor sum = sn_log(sn_sum_keep(e, -1));
    sn_tensor stable = sn_add(sn_amax_keep(x, -1), sn_log(sn_sum_keep(less, -1)));
    assert_int_equal(spelled(m, sum, stable), SN_EXACT_EQUAL);
    assert_int_equal(spelled(m, sum, sn_log(sn_sum_keep(e, -1))), SN_EXACT_EQUAL);
    sn_module_free(m);
}

/* Two spellings whose elements have residues in different fields: their hashes and their order decide nothing. */
static void other_fields(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_tensor x = sn_input(m, "x", SN_F32, 3, 7), y = sn_input(m, "y", SN_F32, 3, 7), e = sn_exp(x);
    sn_tensor a = sn_log(x), b = sn_log(sn_mul(sn_log(sn_mul(e, e)), 0.5));
    assert_int_equal(spelled(m, a, b), SN_EXACT_EQUAL);
    assert_int_equal(spelled(m, sn_sin(a), sn_sin(b)), SN_EXACT_UNDECIDED);
    assert_int_equal(spelled(m, sn_lt(a, y), sn_lt(b, y)), SN_EXACT_UNDECIDED);
    assert_int_equal(spelled(m, sn_argmax(a, -1), sn_argmax(b, -1)), SN_EXACT_UNDECIDED);
    sn_module_free(m);
    m = sn_module_new("t");
    x = sn_input(m, "x", SN_F32, 3, 7), y = sn_input(m, "y", SN_F32, 3, 7);
    assert_int_equal(spelled(m, sn_lt(x, y), sn_lt(y, x)), SN_EXACT_DIFFERS);
    assert_int_equal(spelled(m, sn_argmax(x, -1), sn_argmax(y, -1)), SN_EXACT_DIFFERS);
    sn_module_free(m);
}

/* ---- softmaxes that are joined ---- */

/* Softmax over two parts of the scores, each with its sum relative to its maximum. Mistakes that programs make. */
typedef enum join {
    RIGHT,
    ONE_MAXIMUM_LOST,
    PARTS_SWAPPED,
    SUM_OF_LOGARITHMS,
    SECOND_PART_TWICE,
    BASE_TWO,
    NOT_RELATIVE,
    WEIGHT_ONCE,
    LOG_OF_MEAN,
    N_JOINS
} join;

static sn_tensor log_of_sum(sn_tensor s, join j) {
    sn_tensor top = sn_amax_keep(s, -1), e = sn_exp(sn_sub(s, top));
    sn_tensor sum = sn_log(j == LOG_OF_MEAN ? sn_mean_keep(e, -1) : sn_sum_keep(e, -1));
    return sn_add(top, sum);
}

static sn_tensor joined(sn_tensor s, sn_tensor v, join j) {
    enum { LEFT = 2, ALL = 5 };
    sn_tensor part[2], lse[2];
    for (int i = 0; i < 2; i++) {
        const int from = i ? LEFT : 0, n = i ? ALL - LEFT : LEFT;
        sn_tensor scores = sn_slice(s, 1, from, n);
        part[i] = sn_matmul(sn_softmax(scores, -1), sn_slice(v, 0, from, n));
        lse[i] = i && j == ONE_MAXIMUM_LOST
                     ? sn_log(sn_sum_keep(sn_exp(sn_sub(scores, sn_amax_keep(scores, -1))), -1))
                     : log_of_sum(scores, i ? j : RIGHT);
    }
    sn_tensor top = sn_max(lse[0], lse[1]);
    sn_tensor sum = sn_add(sn_exp(sn_sub(lse[0], top)), sn_exp(sn_sub(lse[1], top)));
    sn_tensor all = j == SUM_OF_LOGARITHMS ? sn_add(lse[0], lse[1])
                    : j == NOT_RELATIVE    ? sn_log(sum)
                                           : sn_add(top, sn_log(sum));
    if (j == SECOND_PART_TWICE) lse[0] = lse[1];
    sn_tensor y = NULL;
    for (int i = 0; i < 2; i++) {
        sn_tensor away = sn_sub(lse[i], all), w = j == BASE_TWO ? sn_exp2(away) : sn_exp(away);
        sn_tensor term =
            j == WEIGHT_ONCE && i ? part[i] : sn_mul(part[j == PARTS_SWAPPED ? 1 - i : i], w);
        y = i ? sn_add(y, term) : term;
    }
    return y;
}

static void joins(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_tensor s = sn_input(m, "s", SN_F32, 3, 5), v = sn_input(m, "v", SN_F32, 5, 4);
    sn_tensor whole = sn_matmul(sn_softmax(s, -1), v);
    for (int j = RIGHT; j < N_JOINS; j++) {
        const sn_exact_verdict verdict = spelled(m, whole, joined(s, v, (join)j));
        if (verdict != (j == RIGHT ? SN_EXACT_EQUAL : SN_EXACT_DIFFERS))
            fail_msg("join %d: verdict %d", j, (int)verdict);
    }
    sn_module_free(m);
}

/* ---- wrong rewrites ---- */

static sn_tensor weight(sn_module *m, const char *name, int64_t out, int64_t in) {
    return sn_param(m, name, SN_F32, out, in);
}

/* One layer of a decoder in plain operations, with a gate of sigmoid: all axes of products are equal, so that
 * mistakes of order keep types. */
static sn_module *decoder(void) {
    sn_module *m = sn_module_new("decoder");
    sn_entry_begin(m, "f");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, T, D), gain = sn_param(m, "gain", SN_F32, D);
    sn_tensor h = sn_rms_norm(x, gain, 1e-5), head[3];
    for (int i = 0; i < 3; i++)
        head[i] = sn_split_heads(
            sn_linear(h, weight(m, (const char *[]){"q", "k", "v"}[i], D, D), NULL), H);
    sn_tensor s = sn_mul(sn_matmul(head[0], sn_swap(head[1], -1, -2)), 1 / sqrt(D / H));
    s = sn_mask_scores(s, sn_causal_mask(m, T, T));
    sn_tensor y = sn_merge_heads(sn_matmul(sn_softmax(s, -1), head[2]));
    x = sn_add(x, sn_linear(y, weight(m, "o", D, D), sn_param(m, "o.bias", SN_F32, D)));
    sn_tensor up = sn_linear(x, weight(m, "up", HIDDEN, D), NULL);
    sn_tensor gate = sn_linear(x, weight(m, "gate", HIDDEN, D), NULL);
    x = sn_add(x, sn_linear(sn_mul(sn_silu(gate), up), weight(m, "down", D, HIDDEN), NULL));
    sn_output("y", sn_slice(x, 1, T - 2, 2));
    return m;
}

/* A wrong rule: what n becomes; n: nothing. */
typedef sn_node *wrong(sn_node *n);

static sn_node *mask_off_by_one(sn_node *n) {
    if (n->op == SN_OP_le) return sn_b_binary(SN_OP_lt, n->in[0], n->in[1]);
    return n->op == SN_OP_lt ? sn_b_binary(SN_OP_le, n->in[0], n->in[1]) : n;
}

static bool is_constant(const sn_node *n) {
    while (n->op == SN_OP_broadcast) n = n->in[0];
    return n->op == SN_OP_const;
}

static sn_node *scale_dropped(sn_node *n) {
    return n->op == SN_OP_mul && is_constant(n->in[1]) ? n->in[0] : n;
}

static sn_node *residual_twice(sn_node *n) {
    if (n->op != SN_OP_add || n->rank != 3) return n;
    for (int i = 0; i < 2; i++)
        if (n->in[i]->op == SN_OP_linear) return sn_b_binary(SN_OP_add, n, n->in[1 - i]);
    return n;
}

static sn_node *gate_swapped(sn_node *n) {
    for (int i = 0; n->op == SN_OP_mul && i < 2; i++) {
        if (n->in[i]->op != SN_OP_silu) continue;
        sn_node *other = SN_NODE(n->m, silu, SN_NO_ATTRS, n->in[1 - i]);
        return sn_b_binary(SN_OP_mul, n->in[i]->in[0], other);
    }
    return n;
}

static sn_node *wrong_axis(sn_node *n) {
    if (n->op != SN_OP_softmax) return n;
    return SN_NODE(n->m, softmax, SN_ATTRS(SN_INT(axis, 2)), n->in[0]);
}

static sn_node *weight_transposed(sn_node *n) {
    if (n->op != SN_OP_linear || strcmp(sn_attr_str(n->in[1], SN_A_name, ""), "down") != 0)
        return n;
    return SN_NODE(n->m, linear, SN_NO_ATTRS, n->in[0],
                   sn_b_transpose(n->in[1], 2, (const int64_t[]){1, 0}));
}

static sn_node *other_eps(sn_node *n) {
    if (n->op != SN_OP_rms_norm) return n;
    return SN_NODE(n->m, rms_norm, SN_ATTRS(SN_FLT(eps, 1e-6)), n->in[0], n->in[1]);
}

static sn_node *bias_lost(sn_node *n) {
    return n->op == SN_OP_linear && n->n_in == 3
               ? SN_NODE(n->m, linear, SN_NO_ATTRS, n->in[0], n->in[1])
               : n;
}

static sn_node *row_off_by_one(sn_node *n) {
    if (n->op != SN_OP_slice || n->rank != 3 || n->in[0]->shape[1] != T) return n;
    return sn_b_slice(n->in[0], 1, T - 3, 2);
}

static sn_node *values_for_keys(sn_node *n) {
    if (n->op != SN_OP_linear || strcmp(sn_attr_str(n->in[1], SN_A_name, ""), "k") != 0) return n;
    return SN_NODE(n->m, linear, SN_NO_ATTRS, n->in[0], weight(n->m, "v", D, D));
}

static sn_node *heads_mixed(sn_node *n) {
    if (n->op != SN_OP_reshape || n->rank != 4 || n->shape[2] != H) return n;
    sn_node *x = sn_b_reshape(n->in[0], 4, (const sn_dim[]){1, T, D / H, H});
    return sn_b_transpose(x, 4, (const int64_t[]){0, 1, 3, 2});
}

static sn_node *sum_for_mean(sn_node *n) {
    return n->op == SN_OP_rms_norm
               ? sn_b_binary(SN_OP_mul, n,
                             sn_b_broadcast_like(sn_b_const(n->m, SN_F32, 1 / sqrt(D)), n))
               : n;
}

static const struct {
    const char *name;
    wrong *rule;
} planted[] = {{"mask off by one", mask_off_by_one},
               {"scale dropped", scale_dropped},
               {"residual added twice", residual_twice},
               {"gate swapped", gate_swapped},
               {"softmax on the wrong axis", wrong_axis},
               {"weight transposed", weight_transposed},
               {"another eps", other_eps},
               {"bias lost", bias_lost},
               {"rows off by one", row_off_by_one},
               {"values for keys", values_for_keys},
               {"heads mixed", heads_mixed},
               {"sum for mean", sum_for_mean}};
enum { N_PLANTED = sizeof planted / sizeof *planted };

typedef struct changing {
    wrong *rule; /* NULL: none */
    int level;   /* of the passes that follow */
    int n;
} changing;

static sn_node *apply(void *ctx, sn_node *n) {
    return ((const changing *)ctx)->rule(n);
}

static void change(sn_module *m, void *ctx) {
    changing *c = ctx;
    sn_passes p;
    sn_pass_options o = {.level = c->level, .backend = "native", .constant_params = true};
    if (c->rule) c->n = sn_rewrite_module(m, apply, c);
    if (!sn_passes_run(&p, m, &o)) fail_msg("%s", sn_module_error(m)->message);
}

/* The passes alone are right at every level; each mistake is found behind them. */
static void wrong_passes(void **state) {
    (void)state;
    sn_module *m = decoder();
    for (int level = 0; level <= 4; level++)
        assert_int_equal(compared(m, (uint64_t)level, change, &(changing){NULL, level, 0}),
                         SN_EXACT_EQUAL);
    for (int i = 0; i < N_PLANTED; i++) {
        changing c = {planted[i].rule, i % 2 * 4, 0};
        sn_exact_verdict v = compared(m, (uint64_t)i, change, &c);
        if (c.n < 1) fail_msg("%s: nothing was planted", planted[i].name);
        if (v != SN_EXACT_DIFFERS) fail_msg("%s: not found", planted[i].name);
    }
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws),         cmocka_unit_test(constants),
        cmocka_unit_test(powers),       cmocka_unit_test(many_constants),
        cmocka_unit_test(logarithms),   cmocka_unit_test(discrete_logarithms),
        cmocka_unit_test(spellings),    cmocka_unit_test(joins),
        cmocka_unit_test(wrong_passes), cmocka_unit_test(other_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
