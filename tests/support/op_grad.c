/* op_grad.c: gradients of the rows of tests/support/ops.def against central differences of the f64
 * evaluator in random directions; first and second order. */
#include "tests/support/op_case.h"
#include "runtime/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_narrow(sn_dtype t) {
    return t == SN_BF16 || t == SN_F16;
}

bool op_grad_takes(const op_case *row) {
    const sn_op_info *info = &sn_ops[row->op == SN_OP_result ? row->of : row->op];
    bool wide = false;
    if (info->kind == SN_FUSED || (info->flags & SN_OPF_LEAF)) return false;
    for (const case_in *in = row->in; in->used; in++) {
        /* no derivatives */
        if (is_narrow(in->dtype) || (in->gen & 255) == GEN_SPECIAL) return false;
        wide |= in->dtype == SN_F32;
    }
    for (const case_attr *a = row->attr; a->used; a++) {
        sn_dtype t = (sn_dtype)a->attr.i;
        if (a->attr.key == SN_A_dtype && (!sn_dtype_is_float(t) || is_narrow(t))) return false;
    }
    return wide;
}

/* A row in f64 and a scalar derived from its result. */
typedef struct scene {
    const op_case *row;
    int64_t len;
    sn_module *m;
    sn_node *in[MAX_IN], *wrt[MAX_IN];
    int index[MAX_IN]; /* wrt[i] is in[index[i]] */
    int n_wrt;
    uint32_t stream; /* seed of the next random vector */
} scene;

static sn_node *new_input(scene *s, const char *name, const sn_node *like) {
    return sn_node_new(s->m, SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, SN_F64),
                                SN_LIST(shape, like->rank, like->shape)));
}

static sn_node *sum_all(sn_node *x) {
    int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (x->rank) x = sn_b_reduce(SN_OP_reduce_sum, x, x->rank, axes);
    return sn_b_reshape(x, 0, NULL);
}

/* sum(a b), skipping infinite elements of a */
static sn_node *weighted_sum(sn_node *a, sn_node *b) {
    sn_node *finite = sn_b_scalar(SN_OP_lt, sn_b_unary(SN_OP_abs, a), INFINITY);
    return sum_all(sn_b_select(finite, sn_b_binary(SN_OP_mul, a, b), sn_b_const(a->m, SN_F64, 0)));
}

static int64_t count_of(const scene *s, const sn_node *n) {
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= sn_dim_eval(s->m, n->shape[i], &s->len);
    return count;
}

static double *random_vector(int64_t n, uint32_t stream) {
    double *v = calloc((size_t)n + 1, sizeof *v);
    sn_rng r = {.seed = 77, .stream = SN_STREAM_DATA, .step = stream};
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = sn_rng_normal(&r);
    return v;
}

/* The row's operands moved by `far` along direction[i], and the other inputs of the scene. */
static sn_eval *evaluator(const scene *s, double far, double *const *direction) {
    sn_eval *ev = op_case_eval(s->row, s->m, true, s->len);
    assert_non_null(ev);
    for (uint32_t id = 0; id < sn_module_node_count(s->m); id++) {
        const sn_node *n = sn_module_node(s->m, id);
        const char *name = sn_attr_str(n, SN_A_name, "x");
        if (n->op != SN_OP_input || name[0] == 'x') continue;
        double *v = random_vector(count_of(s, n), (uint32_t)(name[0] << 8 | name[1]));
        assert_true(sn_eval_bind(ev, name, v, (size_t)count_of(s, n) * sizeof *v));
        free(v);
    }
    for (int i = 0; i < s->n_wrt && far != 0; i++) {
        size_t bytes;
        double *x = op_case_data(s->row, s->index[i], true, s->len, &bytes);
        assert_non_null(x);
        for (size_t k = 0; k < bytes / sizeof *x; k++) x[k] += far * direction[i][k];
        assert_true(sn_eval_bind(ev, sn_attr_str(s->wrt[i], SN_A_name, ""), x, bytes));
        free(x);
    }
    return ev;
}

static double value_at(const scene *s, sn_node *f, double far, double *const *direction) {
    sn_eval *ev = evaluator(s, far, direction);
    const sn_value *v = sn_eval_node(ev, f);
    if (!v) fail_msg("%s", sn_module_error(s->m)->message);
    double y = v->data[0];
    sn_eval_free(ev);
    return y;
}

/* The directional derivative of f in a random direction: from the gradient, and from two values. */
static void check_slope(const scene *s, sn_node *f, sn_node *const *gradient, const char *what) {
    double *direction[MAX_IN], slope = 0, size = 0;
    for (int i = 0; i < s->n_wrt; i++)
        direction[i] = random_vector(count_of(s, s->wrt[i]), 1000 + (uint32_t)i);
    sn_eval *ev = evaluator(s, 0, NULL);
    for (int i = 0; i < s->n_wrt; i++) {
        const sn_value *g = sn_eval_node(ev, gradient[i]);
        if (!g) fail_msg("%s", sn_module_error(s->m)->message);
        assert_int_equal(g->n, count_of(s, s->wrt[i]));
        assert_int_equal(g->dtype, SN_F64);
        for (int64_t k = 0; k < g->n; k++) {
            slope += g->data[k] * direction[i][k];
            size += fabs(g->data[k] * direction[i][k]);
        }
    }
    sn_eval_free(ev);
    const double h = 1e-5;
    double ahead = value_at(s, f, h, direction), back = value_at(s, f, -h, direction);
    double difference = (ahead - back) / (2 * h);
    double tolerance = 1e-6 * (1 + size) + 1e-9 * fabs(ahead);
    if (!(fabs(difference - slope) <= tolerance))
        fail_msg("T = %d: %s is %.12g, the difference quotient %.12g", (int)s->len, what, slope,
                 difference);
    for (int i = 0; i < s->n_wrt; i++) free(direction[i]);
}

static void take_gradient(const scene *s, sn_node *f, sn_node **gradient) {
    int unused = sn_gradient(f, s->n_wrt, s->wrt, gradient);
    if (sn_module_error(s->m)->code) fail_msg("%s", sn_module_error(s->m)->message);
    assert_true(unused >= 0 && unused <= s->n_wrt);
    for (int i = 0; i < s->n_wrt; i++) {
        assert_int_equal(gradient[i]->rank, s->wrt[i]->rank);
        for (int a = 0; a < gradient[i]->rank; a++)
            assert_true(gradient[i]->shape[a] == s->wrt[i]->shape[a]);
    }
}

void op_grad_check(const op_case *row, int64_t len) {
    scene s = {.row = row, .len = len, .m = sn_module_new("row")};
    sn_node *first[MAX_IN], *second[MAX_IN], *y = op_case_build(row, s.m, true, 0, s.in);
    for (int i = 0; row->in[i].used; i++)
        if (row->in[i].dtype == SN_F32) {
            s.index[s.n_wrt] = i;
            s.wrt[s.n_wrt++] = s.in[i];
        }
    if (!sn_dtype_is_float((sn_dtype)y->dtype)) { /* comparisons, argmax: not differentiable */
        sn_module_free(s.m);
        return;
    }
    y = sn_b_cast(y, SN_F64);
    sn_node *loss = weighted_sum(y, new_input(&s, "w", y)), *change = NULL;
    take_gradient(&s, loss, first);
    if (sn_ops[row->op].flags & SN_OPF_NOGRAD) { /* zero by definition */
        for (int i = 0; i < s.n_wrt; i++)
            assert_ptr_equal(
                first[i],
                sn_b_broadcast_like(sn_b_const(s.m, (sn_dtype)s.wrt[i]->dtype, 0), s.wrt[i]));
        sn_module_free(s.m);
        return;
    }
    check_slope(&s, loss, first, "the gradient");
    for (int i = 0; i < s.n_wrt; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        sn_node *part = sum_all(sn_b_binary(SN_OP_mul, first[i], new_input(&s, name, s.wrt[i])));
        change = change ? sn_b_binary(SN_OP_add, change, part) : part;
    }
    take_gradient(&s, change, second);
    check_slope(&s, change, second, "the gradient's gradient");
    sn_module_free(s.m);
}
