/* test_collectives.c: operations over ranks: values on simulated ranks, gradients, shapes, text. */
#include "ir/ir.h"
#include "runtime/comm/comm.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_RANKS = 4, ROWS = 3, COLUMNS = 8, SIZE = ROWS * COLUMNS * MAX_RANKS };

static double input(int rank, int i) {
    return sin(1.7 * rank + 0.31 * i) * (1 + i % 5);
}

static double cotangent(int rank, int i) {
    return cos(0.9 * rank + 0.77 * i);
}

static sn_node *leaf(sn_module *m, const char *name, sn_dtype t, int rank, const sn_dim *shape) {
    return sn_node_new(m, SN_OP_input, 0, NULL,
                       SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t), SN_LIST(shape, rank, shape)));
}

static bool has_root(sn_op op) {
    return op == SN_OP_collective_broadcast || op == SN_OP_collective_reduce;
}

/* The last rank is the root. */
static sn_node *collective(sn_node *x, sn_op op, int64_t ranks) {
    sn_attr attr[] = {has_root(op) ? SN_INT(root, ranks - 1) : SN_INT(axis, 1),
                      SN_STR(mesh, "data"), SN_INT(ranks, ranks)};
    bool whole = op == SN_OP_all_reduce;
    return sn_node_new(x->m, op, 1, &x, whole ? 2 : 3, whole ? attr + 1 : attr);
}

typedef struct job {
    sn_comm *c;
    sn_op op;
    double x[SIZE], y[SIZE], g[SIZE], dx[SIZE]; /* operand, result, cotangents of both */
    int64_t n_x, n_y;
    bool ok;
} job;

static bool value_of(sn_eval *ev, sn_node *n, double *out, int64_t *count) {
    const sn_value *v = sn_eval_node(ev, n);
    if (!v) return false;
    memcpy(out, v->data, (size_t)v->n * sizeof *out);
    *count = v->n;
    return true;
}

/* One rank: y = op(x), and the pull-back of a cotangent. */
static void *run_rank(void *arg) {
    job *j = arg;
    sn_module *m = sn_module_new("rank");
    sn_node *x = leaf(m, "x", SN_F64, 2, (sn_dim[]){ROWS, COLUMNS});
    sn_node *y = collective(x, j->op, j->c->size), *dx = NULL;
    sn_node *g = leaf(m, "g", SN_F64, y->rank, y->shape);
    int64_t n = 0;
    sn_pullback(y, g, 1, &x, &dx);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_set_comm(ev, NULL, j->c);
    for (int i = 0; i < SIZE; i++)
        j->x[i] = input(j->c->rank, i), j->g[i] = cotangent(j->c->rank, i);
    int64_t size;
    j->n_y = sn_dim_is_const(m, sn_dim_product(m, y->rank, y->shape), &size) ? size : 0;
    j->ok = dx && sn_eval_bind_f64(ev, "x", j->x, ROWS * COLUMNS) &&
            sn_eval_bind_f64(ev, "g", j->g, j->n_y) && value_of(ev, y, j->y, &n) && n == j->n_y &&
            value_of(ev, dx, j->dx, &j->n_x);
    sn_eval_free(ev);
    sn_module_free(m);
    sn_comm_close(j->c);
    return NULL;
}

static void run_ranks(job *j, int n, sn_op op) {
    sn_comm *comm[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    assert_true(sn_comm_simulate(n, comm, NULL));
    for (int r = 0; r < n; r++) j[r].c = comm[r], j[r].op = op;
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &j[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) assert_true(j[r].ok);
}

/* What rank `own` of n gets in row i, column k. */
static double expected(sn_op op, int n, int own, int i, int k) {
    int part = COLUMNS / n, at = op == SN_OP_reduce_scatter ? own * part + k : k;
    double sum = 0;
    if (op == SN_OP_all_gather) return input(k / COLUMNS, i * COLUMNS + k % COLUMNS);
    if (op == SN_OP_collective_broadcast) return input(n - 1, i * COLUMNS + k);
    if (op == SN_OP_collective_reduce && own < n - 1) return 0;
    if (op == SN_OP_all_to_all) return input(k / part, i * COLUMNS + own * part + k % part);
    for (int r = 0; r < n; r++) sum += input(r, i * COLUMNS + at);
    return sum;
}

static const sn_op ops[] = {SN_OP_all_reduce, SN_OP_collective_broadcast, SN_OP_collective_reduce,
                            SN_OP_all_gather, SN_OP_reduce_scatter,       SN_OP_all_to_all};
enum { OPS = sizeof ops / sizeof *ops };

static void values_and_gradients(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int o = 0; o < OPS; o++)
        for (int n = 1; n <= MAX_RANKS; n *= 2) {
            run_ranks(j, n, ops[o]);
            double forward = 0, backward = 0; /* <g, op x> = <transpose g, x>, over all ranks */
            for (int r = 0; r < n; r++) {
                int64_t columns = j[r].n_y / ROWS;
                for (int i = 0; i < j[r].n_y; i++) {
                    assert_float_equal(j[r].y[i],
                                       expected(ops[o], n, r, i / (int)columns, i % (int)columns),
                                       1e-12);
                    forward += j[r].g[i] * j[r].y[i];
                }
                assert_int_equal(j[r].n_x, ROWS * COLUMNS);
                for (int i = 0; i < j[r].n_x; i++) backward += j[r].dx[i] * j[r].x[i];
            }
            assert_float_equal(forward, backward, 1e-9);
        }
    free(j);
}

/* Rows that the ranks cannot divide equally: sum by parts, the whole of them, the own part, and the
 * gradient of the whole, which is the sum of the ranks' parts of its cotangent. */
static void *run_uneven(void *arg) {
    job *j = arg;
    int n = j->c->size;
    sn_module *m = sn_module_new("uneven");
    sn_node *x = leaf(m, "x", SN_F64, 2, (sn_dim[]){ROWS, COLUMNS}), *dp = NULL;
    sn_attr part[] = {SN_INT(axis, 0), SN_STR(mesh, "data"), SN_INT(ranks, n)};
    sn_attr whole[] = {part[0], part[1], part[2], SN_INT(extent, ROWS)};
    sn_node *sum = sn_node_new(m, SN_OP_reduce_scatter, 1, &x, 3, part);
    sn_node *all = sn_node_new(m, SN_OP_all_gather, 1, &sum, 4, whole);
    sn_node *own = sn_node_new(m, SN_OP_own_part, 1, &x, 3, part);
    sn_node *dx = NULL;
    sn_pullback(all, x, 1, &sum, &dp);
    sn_pullback(sum, sum, 1, &x, &dx);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_set_comm(ev, NULL, j->c);
    int rows = (ROWS + n - 1) / n, at = j->c->rank * rows;
    double got[SIZE], back[SIZE], mine[SIZE];
    int64_t count = 0;
    for (int i = 0; i < SIZE; i++) j->x[i] = input(j->c->rank, i);
    j->ok = !sn_module_error(m)->code && dp && dx && dp->shape[0] == rows && dx->shape[0] == ROWS &&
            sn_eval_bind_f64(ev, "x", j->x, ROWS * COLUMNS) && value_of(ev, all, got, &count) &&
            count == ROWS * COLUMNS && value_of(ev, own, mine, &count) && count == rows * COLUMNS &&
            value_of(ev, dp, back, &count) && count == rows * COLUMNS;
    for (int i = 0; j->ok && i < ROWS * COLUMNS; i++)
        j->ok = fabs(got[i] - expected(SN_OP_all_reduce, n, 0, i / COLUMNS, i % COLUMNS)) < 1e-12;
    for (int i = 0; j->ok && i < rows * COLUMNS; i++) {
        int e = at * COLUMNS + i;
        bool there = e < ROWS * COLUMNS;
        j->ok = mine[i] == (there ? j->x[e] : 0) &&
                fabs(back[i] - (there ? expected(SN_OP_all_reduce, n, 0, e / COLUMNS, e % COLUMNS)
                                      : 0)) < 1e-12;
    }
    sn_eval_free(ev);
    sn_module_free(m);
    sn_comm_close(j->c);
    return NULL;
}

static void parts_that_are_not_full(void **state) {
    (void)state;
    job *j = calloc(MAX_RANKS, sizeof *j);
    for (int n = 2; n <= MAX_RANKS; n++) {
        sn_comm *comm[MAX_RANKS];
        pthread_t thread[MAX_RANKS];
        assert_true(sn_comm_simulate(n, comm, NULL));
        for (int r = 0; r < n; r++) j[r].c = comm[r];
        for (int r = 0; r < n; r++)
            assert_int_equal(pthread_create(&thread[r], NULL, run_uneven, &j[r]), 0);
        for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
        for (int r = 0; r < n; r++) assert_true(j[r].ok);
    }
    free(j);
}

static void shapes_that_do_not_divide(void **state) {
    (void)state;
    for (int o = 0; o < OPS; o++) {
        if (ops[o] == SN_OP_all_reduce || has_root(ops[o])) continue;
        sn_module *m = sn_module_new("shapes");
        sn_dim T = sn_symbol_add(m, "T", 1, 9);
        sn_node *odd = leaf(m, "odd", SN_F32, 2, (sn_dim[]){ROWS, 9});
        sn_node *open = leaf(m, "open", SN_F32, 2, (sn_dim[]){ROWS, T});
        bool divides = ops[o] != SN_OP_all_gather;
        collective(o % 2 ? odd : open, ops[o], 4);
        assert_int_equal(sn_module_error(m)->code != SN_OK, divides);
        sn_module_free(m);
    }
    sn_module *m = sn_module_new("extent");
    sn_node *part = leaf(m, "part", SN_F32, 2, (sn_dim[]){3, 2});
    sn_attr attr[] = {SN_INT(axis, 0), SN_STR(mesh, "data"), SN_INT(ranks, 2), SN_INT(extent, 7)};
    sn_node_new(m, SN_OP_all_gather, 1, &part, 4, attr);
    assert_non_null(
        strstr(sn_module_error(m)->message, "7 elements are not those of 2 such parts"));
    sn_module_free(m);
    m = sn_module_new("ranks");
    collective(leaf(m, "x", SN_F32, 1, (sn_dim[]){4}), SN_OP_all_reduce, 0);
    assert_non_null(strstr(sn_module_error(m)->message, "0 ranks: there must be at least one"));
    sn_module_free(m);
    m = sn_module_new("root");
    sn_node *x = leaf(m, "x", SN_F32, 1, (sn_dim[]){4});
    sn_node_new(m, SN_OP_collective_broadcast, 1, &x, 3,
                (sn_attr[]){SN_INT(root, 2), SN_STR(mesh, "data"), SN_INT(ranks, 2)});
    assert_non_null(strstr(sn_module_error(m)->message, "there is no rank 2 among 2"));
    sn_module_free(m);
}

static void evaluator_without_ranks(void **state) {
    (void)state;
    sn_module *m = sn_module_new("alone");
    sn_node *x = leaf(m, "x", SN_F32, 1, (sn_dim[]){4});
    sn_eval *ev = sn_eval_new(m, NULL);
    float v[4] = {1, 2, 3, 4};
    assert_true(sn_eval_bind(ev, "x", v, sizeof v));
    assert_non_null(sn_eval_node(ev, collective(x, SN_OP_all_reduce, 1)));
    assert_null(sn_eval_node(ev, collective(x, SN_OP_all_reduce, 2)));
    assert_non_null(strstr(sn_module_error(m)->message, "2 ranks, but the evaluator has 1"));
    sn_eval_free(ev);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients),
        cmocka_unit_test(parts_that_are_not_full),
        cmocka_unit_test(shapes_that_do_not_divide),
        cmocka_unit_test(evaluator_without_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
