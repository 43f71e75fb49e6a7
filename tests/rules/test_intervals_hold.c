/* Tiles of attention are skipped where intervals say that a mask hides them. For each operation of integers, the code of
 * its interval is proved to bound the code of its value: a solver finds no operands within their intervals whose result
 * lies outside, with the instructions as they are emitted. Small integers are tried without a solver. Wrong rules are
 * found by both. */
#include "codegen/attention/mask_intervals.h"
#include "codegen/emit/elem.h"
#include "codegen/jit/jit.h"
#include "tests/rules/code.h"
#include "tests/rules/smt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/rng.h"
#include "tests/support/effort.h"
#include "tests/support/scratch.h"

/* What the kernel of an operation stores, and its sizes: of operand j at 3j. */
enum { LOW, HIGH, VALUE, N_RESULTS, N_OPERANDS = 3, MAX_CASES = 400 };

typedef sn_interval rule_fn(em *e, const sn_node *n, const sn_interval *x);

typedef struct op_case {
    const char *name;
    sn_op op;
    sn_dtype from, to; /* of the operands (of select: of the last two), of the result */
    int n_in;
    rule_fn *rule; /* NULL: that of the compiler */
    code code;
    bool proved, refuted;
} op_case;

static op_case cases[MAX_CASES];
static int n_cases;

static const struct {
    const char *name;
    int64_t low, high;
} range[SN_DTYPE_COUNT] = {[SN_BOOL] = {"bool", 0, 1},
                           [SN_I8] = {"i8", INT8_MIN, INT8_MAX},
                           [SN_U8] = {"u8", 0, UINT8_MAX},
                           [SN_I32] = {"i32", INT32_MIN, INT32_MAX},
                           [SN_I64] = {"i64", INT64_MIN, INT64_MAX}};

static sn_dtype operand_type(const op_case *c, int j) {
    return c->op == SN_OP_select && !j ? SN_BOOL : c->from;
}

/* The node of an operation on arguments; NULL: it does not take this type. */
static sn_node *node_of(sn_module *m, const op_case *c, sn_node **arg) {
    for (int j = 0; j < c->n_in; j++) arg[j] = sn_arg(m, j, operand_type(c, j), 0, NULL);
    if (c->op == SN_OP_cast) return sn_b_cast(arg[0], c->to);
    return sn_node_new(m, c->op, c->n_in, arg, SN_NO_ATTRS);
}

static em_val narrowed(em *e, sn_dtype t, int k) {
    em_val v = em_dim(e, k);
    return t == SN_BOOL ? em_cmp(e, EM_NE, v, 0) : em_convert(e, v, SN_I64, t);
}

static em_val bound(em *e, sn_dtype t, int k) {
    return t == SN_BOOL ? narrowed(e, t, k) : em_dim(e, k);
}

static void store(em *e, int k, sn_dtype t, em_val v) {
    em_store(e, SN_I64, em_buf(e, k), LLVMTypeOf(v) == e->i64 ? v : em_convert(e, v, t, SN_I64));
}

/* Emits interval and value of an operation as a kernel. False: its interval is not known. */
static bool emit(em *e, const op_case *c, sn_module *m) {
    sn_node *arg[N_OPERANDS], *n = node_of(m, c, arg);
    assert_non_null(n);
    em_kernel(e, c->name);
    sn_interval x[N_OPERANDS], r;
    em_val v[N_OPERANDS];
    sn_interval_code code = {.e = e};
    assert_true(sn_interval_begin(&code, e, sn_region_new(m, c->n_in, arg, 1, &n)));
    for (int j = 0; j < c->n_in; j++) {
        const sn_dtype t = operand_type(c, j);
        x[j] = (sn_interval){bound(e, t, 3 * j + LOW), bound(e, t, 3 * j + HIGH)};
        v[j] = narrowed(e, t, 3 * j + VALUE);
        sn_interval_arg(&code, j, x[j], 1);
    }
    sn_interval_emit(&code, 1);
    r = c->rule ? c->rule(e, n, x) : sn_interval_result(&code);
    if (!r.lo) return false;
    store(e, LOW, (sn_dtype)n->dtype, r.lo);
    store(e, HIGH, (sn_dtype)n->dtype, r.hi);
    store(e, VALUE, (sn_dtype)n->dtype, sn_emit_elem(e, n, v));
    return true;
}

static void add_case(sn_op op, int n_in, sn_dtype from, sn_dtype to, rule_fn *rule) {
    sn_module *m = sn_module_new("t");
    sn_node *arg[N_OPERANDS];
    assert_true(n_cases < MAX_CASES);
    op_case *c = &cases[n_cases];
    *c = (op_case){.op = op, .from = from, .to = to, .n_in = n_in, .rule = rule};
    const sn_node *n = node_of(m, c, arg);
    if (n && n->n_in && !sn_module_error(m)->code && !sn_dtype_is_float((sn_dtype)n->dtype)) {
        c->to = (sn_dtype)n->dtype;
        c->name = smt_text("%s_%s_%s", sn_ops[op].name, range[from].name, range[c->to].name);
        n_cases++;
    }
    sn_module_free(m);
}

/* Every operation on every type of integers that it takes. */
static void add_all(void) {
    static const struct {
        sn_op op;
        int n_in;
    } ops[] = {
#define ELEM(name, n, ...) {SN_OP_##name, n},
#include "ir/ops.def"
    };
    n_cases = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int t = 0; t < SN_DTYPE_COUNT; t++)
            for (int to = 0; to < SN_DTYPE_COUNT && range[t].name; to++)
                if (ops[i].op == SN_OP_cast ? range[to].name != NULL : !to)
                    add_case(ops[i].op, ops[i].n_in, (sn_dtype)t, (sn_dtype)to, NULL);
}

/* ---- proof ---- */

static const char *i64_text(int64_t v) {
    return smt_text("#x%016llx", (unsigned long long)v);
}

static const char *within(const char *low, const char *x, const char *high) {
    return smt_text("(bvsle %s %s) (bvsle %s %s)", low, x, x, high);
}

/* A symbol of the type and dk, its value as i64. */
static const char *declared(sn_dtype t, int k) {
    const int bits = t == SN_BOOL ? 1 : 8 * (int)sn_dtype_size(t);
    const bool is_signed = t != SN_BOOL && t != SN_U8;
    return smt_text("(declare-const x%d (_ BitVec %d))\n"
                    "(define-fun d%d () (_ BitVec 64) ((_ %s_extend %d) x%d))\n",
                    k, bits, k, is_signed ? "sign" : "zero", 64 - bits, k);
}

static const char *problem(const op_case *c) {
    const char *text = "", *low = i64_text(range[c->to].low), *high = i64_text(range[c->to].high);
    for (int j = 0; j < c->n_in; j++) {
        for (int k = 0; k < N_RESULTS; k++)
            text = smt_text("%s%s", text, declared(operand_type(c, j), 3 * j + k));
        text = smt_text("%s(assert (and (bvsle d%d d%d) (bvsle d%d d%d)))\n", text, 3 * j + LOW,
                        3 * j + VALUE, 3 * j + VALUE, 3 * j + HIGH);
    }
    return smt_text("%s%s(assert (not (and %s %s %s)))\n(check-sat)\n", text, c->code.definitions,
                    within(c->code.result[LOW], c->code.result[VALUE], c->code.result[HIGH]),
                    within(low, c->code.result[LOW], high),
                    within(low, c->code.result[HIGH], high));
}

static void translate(const sn_target *t, op_case *c) {
    sn_module *m = sn_module_new("t");
    sn_error err = {0};
    em e;
    assert_true(em_init(&e, t, c->name, SN_F32, &err));
    if (!emit(&e, c, m)) fail_msg("%s: no interval", c->name);
    c->code = code_smt(e.fn);
    if (c->code.why) fail_msg("%s: no translation for %s", c->name, c->code.why);
    em_end_kernel(&e);
    em_free(&e);
    sn_module_free(m);
}

/* 32 bits of products and quotients are too many for the solver. Intervals of 8 bits are tried instead. */
static bool is_tried(const op_case *c) {
    return c->n_in < 3 && (c->from == SN_I8 || c->from == SN_U8);
}

/* The default run leaves out what takes the solver longest: differences, and i64 but for sums. */
static bool is_asked(const op_case *c) {
    const bool hard = c->op == SN_OP_mul || c->op == SN_OP_div || c->op == SN_OP_mod,
               slow = c->op == SN_OP_sub || (c->from == SN_I64 && c->op != SN_OP_add);
    return !hard && (effort_is_long() || c->rule || (!is_tried(c) && !slow));
}

static void solve(void) {
    const char *path = smt_text("%s/intervals.smt2", scratch_dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < n_cases; i++)
        if (is_asked(&cases[i])) fprintf(f, "(reset)\n(set-logic QF_BV)\n%s", problem(&cases[i]));
    fclose(f);
    const char *line = smt_solve(SN_SMT_SOLVER, path);
    for (int i = 0; i < n_cases; i++) {
        op_case *c = &cases[i];
        if (!is_asked(c)) continue;
        c->proved = !strncmp(line, "unsat\n", 6), c->refuted = !strncmp(line, "sat\n", 4);
        if (!c->proved && !c->refuted) fail_msg("%s: the solver says: %.200s", c->name, line);
        line = strchr(line, '\n') + 1;
    }
}

static void intervals_are_proved(void **state) {
    sn_target t;
    sn_error err = {0};
    int proved = 0;
    (void)state;
    if (!*SN_SMT_SOLVER) skip();
    assert_true(sn_target_init(&t, NULL, &err));
    add_all();
    for (int i = 0; i < n_cases; i++) translate(&t, &cases[i]);
    solve();
    for (int i = 0; i < n_cases; i++) {
        if (!is_asked(&cases[i])) continue;
        if (!cases[i].proved)
            fail_msg("the interval of %s is not proved:\n%s", cases[i].name, problem(&cases[i]));
        proved++;
    }
    print_message("%d of %d intervals proved\n", proved, n_cases);
}

/* ---- trial ---- */

typedef struct compiled {
    sn_module *m;
    sn_jit *jit;
    em e;
    sn_kernel_fn *run;
} compiled;

static void compile(const sn_target *t, const op_case *c, compiled *k) {
    sn_error err = {0};
    *k = (compiled){.m = sn_module_new("t"), .jit = sn_jit_create(t, NULL, &err)};
    assert_true(em_init(&k->e, t, c->name, SN_F32, &err));
    assert_true(emit(&k->e, c, k->m));
    em_end_kernel(&k->e);
    LLVMModuleRef mod = em_finish(&k->e, &err);
    if (!mod || !sn_jit_compile(k->jit, mod, NULL, &err)) fail_msg("%s", err.message);
    void *p = sn_jit_lookup(k->jit, c->name, &err);
    memcpy(&k->run, &p, sizeof k->run);
}

static void discard(compiled *k) {
    em_free(&k->e);
    sn_jit_destroy(k->jit);
    sn_module_free(k->m);
}

static int64_t reference(const op_case *c, int64_t x, int64_t y) {
    return (int64_t)sn_round_to(c->to, sn_elem_ref(c->op, true, (double)x, (double)y, 0));
}

static int64_t smaller(int64_t x, int64_t y) {
    return x < y ? x : y;
}

static int64_t larger(int64_t x, int64_t y) {
    return x > y ? x : y;
}

/* Whether the interval holds for all intervals that begin at x and y, and end within `width` numbers. */
static bool holds_from(const op_case *c, const compiled *k, int64_t x, int64_t y, int width) {
    int64_t least[256], most[256]; /* of the values so far, by the second operand's end */
    const int64_t end_x = smaller(x + width, range[c->from].high + 1),
                  end_y = c->n_in > 1 ? smaller(y + width, range[c->from].high + 1) : y + 1;
    for (int64_t i = x; i < end_x; i++) {
        int64_t low = INT64_MAX, high = INT64_MIN;
        for (int64_t j = y; j < end_y; j++) {
            const int64_t v = reference(c, i, j);
            int64_t r[N_RESULTS], dim[] = {x, i, i, y, j, j};
            low = smaller(low, v), high = larger(high, v);
            least[j - y] = i == x ? low : smaller(least[j - y], low);
            most[j - y] = i == x ? high : larger(most[j - y], high);
            k->run((void *[]){&r[LOW], &r[HIGH], &r[VALUE]}, dim, NULL, 0, 1);
            if (r[LOW] > least[j - y] || r[HIGH] < most[j - y] || r[VALUE] != v) return false;
        }
    }
    return true;
}

/* All intervals of types of 8 bits whose ends are near each other; with `all`, every one. */
static bool holds(const sn_target *t, const op_case *c, bool all) {
    enum { NEAR = 10, STEP = 5 };
    compiled k;
    bool ok = true;
    compile(t, c, &k);
    const int width = all ? 256 : NEAR, step = all ? 1 : STEP;
    const int64_t low = range[c->from].low, high = range[c->from].high;
    for (int64_t x = low; ok && x <= high; x += step)
        for (int64_t y = low; ok && y <= (c->n_in > 1 ? high : low); y += step)
            ok = holds_from(c, &k, x, y, width);
    discard(&k);
    return ok;
}

static void small_numbers(void **state) {
    sn_target t;
    sn_error err = {0};
    (void)state;
    assert_true(sn_target_init(&t, NULL, &err));
    add_all();
    for (int i = 0; i < n_cases; i++)
        if (is_tried(&cases[i]) && !holds(&t, &cases[i], effort_is_long()))
            fail_msg("the interval of %s does not hold", cases[i].name);
}

/* A number of 32 or 64 bits; small ones are as frequent as large ones. */
static int64_t draw(sn_rng *rng, bool wide) {
    const uint64_t high = sn_rng_bits(rng), low = sn_rng_bits(rng);
    const uint32_t by = sn_rng_bits(rng);
    return wide ? (int64_t)(high << 32 | low) >> by % 64 : (int32_t)(uint32_t)high >> by % 32;
}

/* 32 and 64 bits: intervals of any width, with ends near the limits of the type too. */
static void large_numbers(void **state) {
    enum { TRIALS = 20000 };
    sn_target t;
    sn_error err = {0};
    (void)state;
    assert_true(sn_target_init(&t, NULL, &err));
    add_all();
    sn_rng rng = {.seed = 1};
    for (int i = 0; i < n_cases; i++) {
        const op_case *c = &cases[i];
        compiled k;
        const bool wide = c->from == SN_I64;
        if (c->n_in != 2 || c->from != c->to || (!wide && c->from != SN_I32)) continue;
        if (is_asked(c) && !effort_is_long()) continue;
        compile(&t, c, &k);
        for (int n = 0; n < TRIALS; n++) {
            int64_t r[N_RESULTS], dim[3 * 2];
            for (int j = 0; j < 2; j++) {
                int64_t v[3];
                for (int s = 0; s < 3; s++) v[s] = draw(&rng, wide);
                if (sn_rng_bits(&rng) % 2) v[1] = v[0], v[2] = v[0]; /* one value */
                dim[3 * j + LOW] = smaller(v[0], smaller(v[1], v[2]));
                dim[3 * j + HIGH] = larger(v[0], larger(v[1], v[2]));
                dim[3 * j + VALUE] = v[0] ^ v[1] ^ v[2] ^ dim[3 * j + LOW] ^ dim[3 * j + HIGH];
            }
            k.run((void *[]){&r[LOW], &r[HIGH], &r[VALUE]}, dim, NULL, 0, 1);
            if (r[LOW] > r[VALUE] || r[HIGH] < r[VALUE])
                fail_msg("%s: [%ld, %ld] [%ld, %ld] gives %ld", c->name, dim[0], dim[1], dim[3],
                         dim[4], r[VALUE]);
        }
        discard(&k);
    }
}

/* ---- wrong rules ---- */

#define WRONG(name, low, high)                                                                     \
    static sn_interval wrong_##name(em *e, const sn_node *n, const sn_interval *x) {               \
        (void)n, (void)e;                                                                          \
        return (sn_interval){low, high};                                                           \
    }
WRONG(add, em_add(e, x[0].lo, x[1].lo), em_add(e, x[0].hi, x[1].hi)) /* sums wrap */
WRONG(sub, em_sub(e, x[0].lo, x[1].lo), em_sub(e, x[0].hi, x[1].hi))
WRONG(mul, em_mul(e, x[0].lo, x[1].lo), em_mul(e, x[0].hi, x[1].hi)) /* signs */
WRONG(abs, em_abs(e, x[0].lo), em_abs(e, x[0].hi))
WRONG(mod, em_i64(e, 0), em_sub(e, x[1].hi, 1)) /* by negative numbers */
WRONG(lt, em_cmp(e, EM_LT, x[0].lo, x[1].lo), em_cmp(e, EM_LT, x[0].lo, x[1].hi))
WRONG(le, em_cmp(e, EM_LE, x[0].hi, x[1].lo), em_cmp(e, EM_LT, x[0].lo, x[1].hi))
WRONG(eq, em_and(e, em_cmp(e, EM_EQ, x[0].lo, x[1].lo), em_cmp(e, EM_EQ, x[0].hi, x[1].hi)),
      em_i1(e, true))
WRONG(not, em_not(e, x[0].lo), em_not(e, x[0].hi))
WRONG(and, em_or(e, x[0].lo, x[1].lo), em_or(e, x[0].hi, x[1].hi))
WRONG(bits, em_xor(e, x[0].lo, x[1].lo), em_xor(e, x[0].hi, x[1].hi))
WRONG(shift, em_lshr(e, x[0].lo, x[1].lo), em_lshr(e, x[0].hi, x[1].lo))
WRONG(select, em_select(e, x[0].hi, x[1].lo, x[2].lo), em_select(e, x[0].hi, x[1].hi, x[2].hi))
WRONG(cast, x[0].lo, x[0].hi)

static void wrong_rules_are_found(void **state) {
    static const struct {
        sn_op op;
        sn_dtype from, to;
        int n_in;
        rule_fn *rule;
    } wrong[] = {
        {SN_OP_add, SN_I8, SN_I8, 2, wrong_add},
        {SN_OP_sub, SN_I32, SN_I32, 2, wrong_sub},
        {SN_OP_mul, SN_I8, SN_I8, 2, wrong_mul},
        {SN_OP_abs, SN_I32, SN_I32, 1, wrong_abs},
        {SN_OP_mod, SN_I8, SN_I8, 2, wrong_mod},
        {SN_OP_lt, SN_I32, SN_BOOL, 2, wrong_lt},
        {SN_OP_le, SN_I64, SN_BOOL, 2, wrong_le},
        {SN_OP_le, SN_BOOL, SN_BOOL, 2, wrong_le}, /* true is -1 of one signed bit */
        {SN_OP_eq, SN_I32, SN_BOOL, 2, wrong_eq},
        {SN_OP_not, SN_BOOL, SN_BOOL, 1, wrong_not},
        {SN_OP_and, SN_BOOL, SN_BOOL, 2, wrong_and},
        {SN_OP_xor, SN_I32, SN_I32, 2, wrong_bits},
        {SN_OP_shift_right, SN_I32, SN_I32, 2, wrong_shift},
        {SN_OP_select, SN_I32, SN_I32, 3, wrong_select},
        {SN_OP_cast, SN_I32, SN_U8, 1, wrong_cast},
    };
    sn_target t;
    sn_error err = {0};
    (void)state;
    assert_true(sn_target_init(&t, NULL, &err));
    n_cases = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        add_case(wrong[i].op, wrong[i].n_in, wrong[i].from, wrong[i].to, wrong[i].rule);
        assert_int_equal(n_cases, i + 1);
        translate(&t, &cases[i]);
    }
    if (*SN_SMT_SOLVER) solve();
    for (int i = 0; i < n_cases; i++) {
        if (is_tried(&cases[i]) && holds(&t, &cases[i], false))
            fail_msg("not found: %s", cases[i].name);
        if (is_asked(&cases[i]) && *SN_SMT_SOLVER && !cases[i].refuted)
            fail_msg("not refuted: %s", cases[i].name);
    }
}

static int end_test(void **state) {
    smt_free();
    return scratch_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_are_proved), cmocka_unit_test(small_numbers),
        cmocka_unit_test(large_numbers), cmocka_unit_test(wrong_rules_are_found)};
    return cmocka_run_group_tests(tests, scratch_make, end_test);
}
