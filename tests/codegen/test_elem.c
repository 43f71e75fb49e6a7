/* Emitted elementwise ops against the reference expressions of ops.def: every op, every element
 * type that it allows, scalars and vectors, the host's vectors and narrower ones; regions in
 * stages. */
#include "codegen/emit/elem.h"
#include "codegen/jit/jit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 96, LANES = 16, MAX_CASES = 512 };

typedef struct elem_case {
    sn_module *m;
    const sn_node *node;
    char name[64];
    int lanes;
} elem_case;

static double sample(sn_dtype t, int i, int operand) {
    static const double flt[] = {0,   -0.0, 1,    -1,      2.5,  -2.5, 0.5,       -0.5,
                                 1.5, -1.5, 3e-6, 1000.25, 7.75, -7.1, 123456.75, 0.3};
    static const double whole[] = {0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100, 5, -128, 127, 64, 33};
    int k = operand == 0 ? i % 16 : operand == 1 ? (i / 3 + i) % 16 : (i * 7 + 5) % 16;
    if (t == SN_BOOL) return (k >> (operand & 1)) & 1;
    if (t == SN_U8) return fabs(whole[k]);
    return sn_dtype_is_float(t) ? flt[k] : whole[k];
}

/* Of a bool the stored byte: it has to be 0 or 1. */
static double get(sn_dtype t, const void *base, int i) {
    return sn_dtype_load(t == SN_BOOL ? SN_U8 : t, base, i);
}

/* The node op(arg0, arg1, ...) on type t (cast: to type `to`), or NULL where the op has no
 * meaning. */
static const sn_node *make_node(sn_module *m, sn_op op, sn_dtype t, sn_dtype to) {
    sn_node *in[3];
    int n = sn_ops[op].min_in;
    for (int i = 0; i < n; i++)
        in[i] = sn_arg(m, i, op == SN_OP_select && i == 0 ? SN_BOOL : t, 0, NULL);
    sn_attr dtype = {.key = SN_A_dtype, .i = to};
    sn_node *r = sn_node_new(m, op, n, in, op == SN_OP_cast, &dtype);
    return sn_module_error(m)->code == SN_OK && r->op == op ? r : NULL;
}

static int add_cases(elem_case *c, int n, sn_op op, sn_dtype t, sn_dtype to) {
    for (int lanes = 1; lanes <= LANES; lanes *= LANES) {
        sn_module *m = sn_module_new("t");
        const sn_node *node = make_node(m, op, t, to);
        if (!node || n >= MAX_CASES) {
            sn_module_free(m);
            return n;
        }
        c[n] = (elem_case){.m = m, .node = node, .lanes = lanes};
        snprintf(c[n].name, sizeof c[n].name, "%s_%s_%s_%d", sn_ops[op].name, sn_dtype_name(t),
                 sn_dtype_name(to), lanes);
        n++;
    }
    return n;
}

static void emit_case(em *e, const elem_case *c) {
    const sn_node *n = c->node;
    em_kernel(e, c->name);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, N), em_i64(e, c->lanes));
    em_val x[3];
    for (int i = 0; i < n->n_in; i++) {
        sn_dtype t = (sn_dtype)n->in[i]->dtype;
        x[i] = sn_emit_loaded(e, t, em_load(e, t, em_gep(e, em_buf(e, i), t, l.i), c->lanes));
    }
    em_val y = sn_emit_elem(e, n, x);
    em_store(e, (sn_dtype)n->dtype, em_gep(e, em_buf(e, 3), (sn_dtype)n->dtype, l.i), y);
    em_end(e, &l);
    em_end_kernel(e);
}

static void check_case(const elem_case *c, sn_jit *jit) {
    sn_error err = {0};
    const sn_node *n = c->node;
    static double buf[4][N];
    for (int o = 0; o < n->n_in; o++)
        for (int i = 0; i < N; i++)
            sn_dtype_store((sn_dtype)n->in[o]->dtype, buf[o], i,
                           sample((sn_dtype)n->in[o]->dtype, i, o));
    void *p = sn_jit_lookup(jit, c->name, &err);
    if (!p) fail_msg("%s", err.message);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    f((void *[]){buf[0], buf[1], buf[2], buf[3]}, NULL, NULL, 0, 1);
    for (int i = 0; i < N; i++) {
        double x[3] = {0}, y = get((sn_dtype)n->dtype, buf[3], i);
        for (int o = 0; o < n->n_in; o++) x[o] = get((sn_dtype)n->in[o]->dtype, buf[o], i);
        sn_dtype t = (sn_dtype)n->in[n->n_in - 1]->dtype;
        bool flt = sn_dtype_is_float(t);
        if (n->op == SN_OP_cast && flt && !sn_dtype_is_float((sn_dtype)n->dtype) &&
            (fabs(x[0]) > 127 || x[0] < 0))
            continue; /* saturates, C's conversion is undefined */
        double want = sn_elem_ref((sn_op)n->op, !flt, x[0], x[1], x[2]);
        want = sn_round_to((sn_dtype)n->dtype, want);
        double tol = t == SN_F64 && n->op != SN_OP_cast ? 1e-12 : 4e-6;
        bool by_x = n->op == SN_OP_mod || n->op == SN_OP_gelu || n->op == SN_OP_gelu_tanh;
        double size = by_x ? fabs(x[0]) : fabs(want);
        bool same = (isnan(want) && isnan(y)) || want == y ||
                    (sn_dtype_is_float((sn_dtype)n->dtype) && fabs(want - y) <= tol * size);
        if (!same) fail_msg("%s(%g, %g, %g) = %g, not %g", c->name, x[0], x[1], x[2], y, want);
    }
}

static void run_cases(const char *target, sn_dtype compute) {
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_I32, SN_I64, SN_I8, SN_U8, SN_BOOL};
    static const sn_dtype more[] = {SN_F32, SN_I32, SN_I64, SN_I8, SN_U8, SN_BOOL, SN_BF16};
    elem_case *c = calloc(MAX_CASES, sizeof *c);
    int n = 0, ops = 0;
    for (int op = 0; op < SN_OP_COUNT; op++) {
        if (sn_ops[op].kind != SN_ELEM) continue;
        int before = n;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            sn_dtype skip = compute == SN_F32 ? SN_F64 : SN_F32;
            if (types[t] == skip) continue; /* registers hold the compute type */
            if (op != SN_OP_cast)
                n = add_cases(c, n, (sn_op)op, types[t], types[t]);
            else
                for (size_t k = 0; k < sizeof more / sizeof *more; k++)
                    if (more[k] != skip) n = add_cases(c, n, (sn_op)op, types[t], more[k]);
        }
        ops++;
        assert_true(n > before);
    }
    assert_true(ops > 30 && n < MAX_CASES);
    sn_target t;
    sn_error err = {0};
    em e;
    assert_true(sn_target_init(&t, target, &err));
    if (sn_target_runs_here(&t)) {
        sn_jit *jit = sn_jit_create(&t, NULL, &err);
        assert_true(em_init(&e, &t, "elem", compute, &err));
        for (int i = 0; i < n; i++) emit_case(&e, &c[i]);
        LLVMModuleRef mod = em_finish(&e, &err);
        if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s", err.message);
        for (int i = 0; i < n; i++) check_case(&c[i], jit);
        em_free(&e);
        sn_jit_destroy(jit);
    }
    for (int i = 0; i < n; i++) sn_module_free(c[i].m);
    free(c);
}

static void every_op_native(void **state) {
    (void)state;
    run_cases("native", SN_F32);
}

static void every_op_f64(void **state) {
    (void)state;
    run_cases("native", SN_F64);
}

static void every_op_sse2(void **state) {
    (void)state;
    run_cases("x86-64", SN_F32);
}

static em_val read_table(const sn_region_code *c, int i, int copy) {
    em *e = c->ctx;
    const sn_node *n = c->order.node[i];
    if (n->op != SN_OP_gather_nd) return NULL;
    assert_int_equal(sn_attr_int(n->in[0], SN_A_index, -1), 2);
    em_val index = sn_region_at(c, c->operand[i][1], copy);
    return em_load(e, SN_F32, em_gep(e, em_buf(e, 1), SN_F32, em_idx(e, index)), 1);
}

/* y[i] = x[i] * table[k] + 2 with the table's part outside the loop over i. */
static void stages(void **state) {
    (void)state;
    sn_module *m = sn_module_new("t");
    sn_dim four = 4;
    sn_node *x = sn_arg(m, 0, SN_F32, 0, NULL), *k = sn_arg(m, 1, SN_I32, 0, NULL);
    sn_node *table = sn_arg(m, 2, SN_F32, 1, &four);
    sn_node *read = SN_NODE(m, gather_nd, SN_NO_ATTRS, table, k);
    sn_node *y = sn_b_scalar(SN_OP_add, sn_b_binary(SN_OP_mul, x, read), 2);
    sn_region *r = sn_region_new(m, 3, (sn_node *[]){x, k, table}, 1, &y);
    sn_target t;
    sn_error err = {0};
    em e;
    assert_true(sn_target_init(&t, NULL, &err) && em_init(&e, &t, "r", SN_F32, &err));
    em_kernel(&e, "r");
    sn_region_code c = {.leaf = read_table, .ctx = &e};
    assert_true(sn_region_begin(&c, &e, r));
    sn_region_arg(&c, 0, NULL, 1);
    sn_region_arg(&c, 1, em_i32(&e, 3), 2);
    assert_int_equal(sn_region_deps(&c, 0), 3);
    sn_region_emit(&c, 2);
    assert_null(sn_region_value(&c, 0));
    em_loop l = em_for(&e, em_i64(&e, 0), em_i64(&e, 8), em_i64(&e, 4));
    sn_region_arg(&c, 0, em_load(&e, SN_F32, em_gep(&e, em_buf(&e, 0), SN_F32, l.i), 4), 1);
    sn_region_emit(&c, ~0u);
    em_store(&e, SN_F32, em_gep(&e, em_buf(&e, 2), SN_F32, l.i), sn_region_value(&c, 0));
    em_end(&e, &l);
    sn_region_forget(&c, 1);
    assert_null(sn_region_value(&c, 0));
    em_end_kernel(&e);
    sn_jit *jit = sn_jit_create(&t, NULL, &err);
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s", err.message);
    void *p = sn_jit_lookup(jit, "r", &err);
    sn_kernel_fn *f;
    memcpy(&f, &p, sizeof f);
    float in[8] = {0, 1, 2, 3, 4, 5, 6, 7}, tab[4] = {9, 9, 9, 0.5f}, out[8];
    f((void *[]){in, tab, out}, NULL, NULL, 0, 1);
    for (int i = 0; i < 8; i++) assert_true(out[i] == in[i] * 0.5f + 2);
    em_free(&e);
    sn_jit_destroy(jit);
    sn_module_free(m);
}

/* Integer division by a constant rounds down, and mod has the divisor's sign: negative dividends, divisors that are a
 * power of two and others. */
static void constant_divisors(void **state) {
    (void)state;
    static const int divisor[] = {1, 2, 3, 5, 7, 10, 64, 100, 127, -1, -2, -3, -7, -100};
    static const sn_dtype types[] = {SN_I8, SN_I32, SN_I64};
    enum { DIVISORS = sizeof divisor / sizeof *divisor };
    sn_module *m = sn_module_new("t");
    sn_target t;
    sn_error err = {0};
    em e;
    assert_true(sn_target_init(&t, NULL, &err) && em_init(&e, &t, "divide", SN_F32, &err));
    char name[64];
    for (int i = 0; i < 6 * DIVISORS; i++) {
        sn_dtype type = types[i % 3];
        sn_node *c = sn_b_const(m, type, divisor[i / 6]);
        const sn_node *n =
            sn_b_binary(i / 3 % 2 ? SN_OP_mod : SN_OP_div, sn_arg(m, 0, type, 0, NULL), c);
        snprintf(name, sizeof name, "case_%d", i);
        em_kernel(&e, name);
        em_loop l = em_for(&e, em_i64(&e, 0), em_i64(&e, N), em_i64(&e, LANES));
        em_val x = sn_emit_loaded(&e, type,
                                  em_load(&e, type, em_gep(&e, em_buf(&e, 0), type, l.i), LANES));
        em_val y = n->op == SN_OP_arg
                       ? x
                       : sn_emit_elem(&e, n, (em_val[]){x, em_like(&e, x, divisor[i / 6])});
        em_store(&e, type, em_gep(&e, em_buf(&e, 1), type, l.i), y);
        em_end(&e, &l);
        em_end_kernel(&e);
    }
    sn_jit *jit = sn_jit_create(&t, NULL, &err);
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(jit, mod, NULL, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < 6 * DIVISORS; i++) {
        sn_dtype type = types[i % 3];
        static double in[N], out[N];
        int d = divisor[i / 6];
        for (int k = 0; k < N; k++) sn_dtype_store(type, in, k, k - N / 2);
        snprintf(name, sizeof name, "case_%d", i);
        void *p = sn_jit_lookup(jit, name, &err);
        sn_kernel_fn *f;
        memcpy(&f, &p, sizeof f);
        f((void *[]){in, out}, NULL, NULL, 0, 1);
        for (int k = 0; k < N; k++) {
            int x = k - N / 2, q = (int)floor((double)x / d), want = i / 3 % 2 ? x - q * d : q;
            if (get(type, out, k) != want)
                fail_msg("%s: %d and %d give %g, not %d", sn_dtype_name(type), x, d,
                         get(type, out, k), want);
        }
    }
    em_free(&e);
    sn_jit_destroy(jit);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_native),
                                       cmocka_unit_test(every_op_f64),
                                       cmocka_unit_test(every_op_sse2), cmocka_unit_test(stages),
                                       cmocka_unit_test(constant_divisors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
