/* test_carry.c: collectives of compiled entries on simulated ranks. What is gathered at the end of a run
 * may be left to the next one, which waits for it where it is used: in kernels, in a loop over a
 * sequence, in another entry. Beside an engine, which carries sums, the session's thread carries the
 * others. */
#include "codegen/program/carry.h"
#include "frontend/sinter.h"
#include "ir/ir.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 2, ROOT = 1, ROWS = 6, PART = ROWS / RANKS, WIDTH = 5, STEPS = 4 };
enum { MAX_RANKS = 3, ALL = 7, THIRD = 3 }; /* the last of three parts has one row */

/* carry <- carry / 2 + a row */
static void add_row(sn_scan_step *s) {
    s->next[0] = sn_add(sn_mul(s->carry[0], 0.5), s->x[0]);
}

/* Of w, [ROWS, WIDTH]: "sums" reads it, "step" reads it and replaces it by all ranks' x. The part p of a
 * table is gathered ahead of its use, in a loop, too. */
static sn_module *build(void) {
    sn_module *m = sn_module_new("left");
    sn_tensor w = sn_state(m, "w", SN_F32, ROWS, WIDTH), p = sn_state(m, "p", SN_F32, PART, WIDTH);
    sn_tensor x = sn_input(m, "x", SN_F32, PART, WIDTH);
    sn_tensor table = sn_all_gather(p, 0, "data", RANKS), zero = sn_scalar(m, SN_F32, 0);
    sn_tensor start = sn_broadcast(zero, WIDTH);
    sn_entry_begin(m, "sums");
    sn_output("y", sn_sum(w, 0));
    sn_entry_begin(m, "step");
    sn_scanned of_w = sn_scan(.carry = {start}, .x = {w}, .axis = 0, .body = add_row);
    sn_scanned of_p = sn_scan(.carry = {start}, .x = {table}, .axis = 0, .body = add_row);
    sn_output("y", of_w.carry[0]);
    sn_output("z", of_p.carry[0]);
    sn_assign(w, sn_all_gather(sn_mul(x, 2), 0, "data", RANKS));
    sn_assign(p, sn_add(p, x));
    return m;
}

/* One rank sends x and gets the sum, and the gradients of both; rows change places, and are read after their
 * sums, which take the place of what is added. */
static sn_module *build_roots(void) {
    sn_module *m = sn_module_new("roots");
    sn_tensor x = sn_input(m, "x", SN_F32, PART, WIDTH), d[1];
    sn_tensor rows = sn_concat(0, x, x);
    sn_tensor all = sn_collective_broadcast(x, ROOT, "data", RANKS);
    sn_tensor sum = sn_collective_reduce(x, ROOT, "data", RANKS);
    sn_tensor sums = sn_cumsum(rows, 1), shares = sn_reduce_scatter(sums, 0, "data", RANKS);
    sn_entry_begin(m, "step");
    sn_output("rest", sn_sub(sums, sn_concat(0, shares, shares)));
    sn_grad(sn_add(sn_sum_all(sn_mul(all, x)), sn_sum_all(sn_mul(sum, 3))), 1, &x, d);
    sn_output("broadcast", all);
    sn_output("reduce", sum);
    sn_output("gradient", d[0]);
    sn_output("exchanged", sn_all_to_all(rows, 0, "data", RANKS));
    sn_output("sum", sn_all_reduce(x, "data", RANKS));
    return m;
}

/* Rows that do not divide evenly among three ranks, and exchanges along a line and a ring. */
static const struct {
    const char *name;
    int64_t shift;
    bool wrap;
} shifts[] = {{"next", 1, false}, {"before", -1, false}, {"around", -1, true}, {"far", 2, true}};
enum { SHIFTS = sizeof shifts / sizeof *shifts };

/* alone: in another type, too, which an engine does not carry. */
static sn_module *build_parts(bool alone) {
    sn_module *m = sn_module_new("parts");
    sn_tensor x = sn_input(m, "x", SN_F32, ALL, WIDTH);
    const sn_attr axis = SN_INT(axis, 0), mesh = SN_STR(mesh, "data"),
                  ranks = SN_INT(ranks, MAX_RANKS), extent = SN_INT(extent, ALL);
    sn_tensor own = SN_NODE(m, own_part, SN_ATTRS(axis, mesh, ranks), sn_add(x, 0.5));
    sn_entry_begin(m, "step");
    sn_output("own", own);
    sn_output("gathered",
              SN_NODE(m, all_gather, SN_ATTRS(axis, mesh, ranks, extent), sn_mul(own, 2)));
    sn_tensor narrow = sn_cast(own, alone ? SN_BF16 : SN_F32);
    narrow = SN_NODE(m, all_gather, SN_ATTRS(axis, mesh, ranks, extent), narrow);
    sn_output("narrow", sn_cast(narrow, SN_F32));
    sn_output("scattered", sn_reduce_scatter(sn_mul(x, 3), 0, "data", MAX_RANKS));
    sn_output("sum", sn_all_reduce(x, "data", MAX_RANKS));
    for (int i = 0; i < SHIFTS; i++)
        sn_output(shifts[i].name,
                  sn_collective_permute(x, shifts[i].shift, shifts[i].wrap, "data", MAX_RANKS));
    return m;
}

typedef struct rank {
    sn_comm *c;
    bool alone; /* the session's thread carries all */
    sn_program *program;
    bool leaves;
    bool (*terms)(void *ctx, const sn_node *n, bool summed, float *x, sn_error *err);
    bool (*run)(struct rank *k, sn_session *s, sn_carrier *carrier, sn_error *err);
    float y[STEPS][3][WIDTH];
    char why[400];
} rank;

static float value(int step, int row, int i) {
    return (float)(step * 31 + row * 7 + i * 3 % 5);
}

static bool run_steps(rank *k, sn_session *s, sn_carrier *carrier, sn_error *err) {
    static const int64_t part[] = {PART, WIDTH}, width[] = {WIDTH};
    float x[PART][WIDTH], *w = (float *)(uintptr_t)sn_session_memory(s, "w");
    bool ok = w != NULL;
    for (int t = 0; ok && t < STEPS; t++) {
        for (int r = 0; r < PART; r++)
            for (int i = 0; i < WIDTH; i++) x[r][i] = value(t, k->c->rank * PART + r, i);
        sn_arg_binding in = {"x", SN_F32, 2, part, x};
        sn_arg_binding out[] = {{"y", SN_F32, 1, width, k->y[t][0]},
                                {"z", SN_F32, 1, width, k->y[t][1]}};
        sn_arg_binding sums = {"y", SN_F32, 1, width, k->y[t][2]};
        ok = sn_run(s, "step", &in, 1, out, 2, err) &&
             (t % 2 == 0 || sn_run(s, "sums", NULL, 0, &sums, 1, err));
    }
    ok = ok && sn_carrier_settle(carrier, err);
    for (int r = 0; ok && r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            ok = w[r * WIDTH + i] == 2 * value(STEPS - 1, r, i) ||
                 sn_fail(err, SN_ERR_INTERNAL, "w is not complete");
    return ok;
}

static void *run_rank(void *arg) {
    rank *k = arg;
    sn_error err = {0};
    sn_comm *wire = k->c->ops->split(k->c, 0, &err);
    sn_comm_engine *engine =
        wire && !k->alone ? sn_comm_engine_new(wire, SN_REDUCE_EXACT, k->c->size, &err) : NULL;
    sn_session *s = sn_session_new_arrays(k->program, NULL, 0, &err);
    sn_carrier_axis axis = {.comm = k->c, .engine = engine, .leaves = k->leaves, .terms = k->terms};
    sn_carrier *carrier = engine || k->alone ? sn_carrier_new(1, &axis, &err) : NULL;
    if (engine) sn_comm_engine_delay(engine, 0.01, 1e9);
    if (carrier && s) sn_session_set_collectives(s, sn_carrier_collectives(carrier));
    if (!carrier || !s || !k->run(k, s, carrier, &err))
        snprintf(k->why, sizeof k->why, "%.390s", err.message);
    sn_session_free(s);
    sn_carrier_free(carrier);
    sn_comm_engine_free(engine);
    sn_comm_close(wire);
    sn_comm_close(k->c);
    return NULL;
}

/* What a rank has itself is added to the memory of the terms, and a term of all ranks to their sum. */
static bool add_own_terms(void *ctx, const sn_node *n, bool summed, float *x, sn_error *err) {
    (void)ctx, (void)err;
    for (int i = 0; n->op == SN_OP_reduce_scatter && !summed && i < ROWS * WIDTH; i++) x[i] += 1;
    for (int i = 0; n->op == SN_OP_all_reduce && i < PART * WIDTH; i++) x[i] += summed ? 0.25F : 1;
    return true;
}

static bool run_roots(rank *k, sn_session *s, sn_carrier *carrier, sn_error *err) {
    static const int64_t part[] = {PART, WIDTH}, all[] = {ROWS, WIDTH};
    float x[PART][WIDTH], exchanged[ROWS][WIDTH], rest[ROWS][WIDTH], out[4][PART][WIDTH];
    int own = k->c->rank;
    (void)carrier;
    for (int r = 0; r < PART; r++)
        for (int i = 0; i < WIDTH; i++) x[r][i] = value(own, r, i);
    sn_arg_binding in = {"x", SN_F32, 2, part, x};
    sn_arg_binding to[] = {
        {"broadcast", SN_F32, 2, part, out[0]},   {"reduce", SN_F32, 2, part, out[1]},
        {"gradient", SN_F32, 2, part, out[2]},    {"sum", SN_F32, 2, part, out[3]},
        {"exchanged", SN_F32, 2, all, exchanged}, {"rest", SN_F32, 2, all, rest}};
    bool ok = sn_run(s, "step", &in, 1, to, 6, err);
    for (int r = 0; ok && r < PART; r++)
        for (int i = 0; ok && i < WIDTH; i++) {
            float others = -RANKS; /* in the columns so far */
            for (int k = 0; k <= i; k++) others -= value(!own, r, k);
            float sum = value(0, r, i) + value(1, r, i), sent = value(ROOT, r, i);
            /* of the sum over ranks of x_root x, and of 3 times the root's sum on all ranks */
            float gradient = sent + (own == ROOT ? sum : 0) + 3;
            ok = out[0][r][i] == sent && out[1][r][i] == (own == ROOT ? sum : 0) &&
                 out[2][r][i] == gradient && out[3][r][i] == sum + RANKS + 0.25F &&
                 rest[r][i] == others && rest[PART + r][i] == others &&
                 exchanged[r][i] == value(0, r, i) && exchanged[PART + r][i] == value(1, r, i);
            if (!ok) sn_fail(err, SN_ERR_INTERNAL, "another value in row %d", r);
        }
    return ok;
}

static bool run_parts(rank *k, sn_session *s, sn_carrier *carrier, sn_error *err) {
    static const int64_t part[] = {THIRD, WIDTH}, all[] = {ALL, WIDTH};
    float x[ALL][WIDTH], of_part[2][THIRD][WIDTH], out[3 + SHIFTS][ALL][WIDTH];
    int own = k->c->rank, n = 5;
    (void)carrier;
    for (int r = 0; r < ALL; r++)
        for (int i = 0; i < WIDTH; i++) x[r][i] = value(own, r, i);
    sn_arg_binding in = {"x", SN_F32, 2, all, x},
                   to[5 + SHIFTS] = {{"own", SN_F32, 2, part, of_part[0]},
                                     {"scattered", SN_F32, 2, part, of_part[1]},
                                     {"gathered", SN_F32, 2, all, out[0]},
                                     {"narrow", SN_F32, 2, all, out[1]},
                                     {"sum", SN_F32, 2, all, out[2]}};
    for (int i = 0; i < SHIFTS; i++)
        to[n++] = (sn_arg_binding){shifts[i].name, SN_F32, 2, all, out[3 + i]};
    bool ok = sn_run(s, "step", &in, 1, to, n, err);
    for (int r = 0; ok && r < ALL; r++)
        for (int i = 0; ok && i < WIDTH; i++) {
            float sum = 0, of = value(r / THIRD, r, i) + 0.5F;
            for (int q = 0; q < MAX_RANKS; q++) sum += value(q, r, i);
            ok = out[0][r][i] == 2 * of && out[1][r][i] == of && out[2][r][i] == sum;
            for (int j = 0; j < SHIFTS; j++) {
                int from = own + (int)shifts[j].shift;
                bool there = shifts[j].wrap || (from >= 0 && from < MAX_RANKS);
                from = (from + MAX_RANKS) % MAX_RANKS;
                ok = ok && out[3 + j][r][i] == (there ? value(from, r, i) : 0);
            }
            if (!ok) sn_fail(err, SN_ERR_INTERNAL, "another value in row %d of all", r);
        }
    for (int r = 0; ok && r < THIRD; r++)
        for (int i = 0; ok && i < WIDTH; i++) {
            int row = own * THIRD + r;
            float sum = 0, mine = row < ALL ? value(own, row, i) + 0.5F : 0;
            for (int q = 0; row < ALL && q < MAX_RANKS; q++) sum += 3 * value(q, row, i);
            ok = of_part[0][r][i] == mine && of_part[1][r][i] == sum;
            if (!ok) sn_fail(err, SN_ERR_INTERNAL, "another value in row %d of a part", r);
        }
    return ok;
}

/* What rank 0 has written, in *out. */
static void run_all(sn_module *m, int ranks, rank how, rank *out) {
    rank list[MAX_RANKS];
    sn_comm *comm[MAX_RANKS];
    sn_error err = {0};
    pthread_t thread[MAX_RANKS];
    sn_program *p = sn_compile(m, &(sn_options){.threads = 1}, &err);
    if (!p) fail_msg("%s", err.message);
    assert_true(sn_comm_simulate(ranks, comm, &err));
    for (int r = 0; r < ranks; r++) list[r] = how, list[r].c = comm[r], list[r].program = p;
    for (int r = 1; r < ranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &list[r]), 0);
    run_rank(&list[0]);
    for (int r = 1; r < ranks; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) assert_string_equal(list[r].why, "");
    sn_program_free(p);
    sn_module_free(m);
    *out = list[0];
}

/* The scan over what rows were at step t, times k; rows of p add up. */
static float scanned(int t, int i, bool table) {
    float sum = 0;
    for (int r = 0; r < ROWS; r++) {
        float row = 0;
        for (int k = table ? 0 : t - 1; k < t; k++)
            if (k >= 0) row += value(k, r, i) * (table ? 1 : 2);
        sum = sum / 2 + row;
    }
    return sum;
}

static void next_run_waits(void **state) {
    (void)state;
    rank left, at_once;
    run_all(build(), RANKS, (rank){.run = run_steps, .leaves = true}, &left);
    run_all(build(), RANKS, (rank){.run = run_steps}, &at_once);
    for (int t = 0; t < STEPS; t++)
        for (int i = 0; i < WIDTH; i++) {
            float all = 0;
            for (int r = 0; t % 2 && r < ROWS; r++) all += 2 * value(t, r, i);
            assert_true(left.y[t][0][i] == scanned(t, i, false));
            assert_true(left.y[t][1][i] == scanned(t, i, true));
            assert_true(left.y[t][2][i] == all);
        }
    assert_memory_equal(left.y, at_once.y, sizeof left.y);
}

static void roots_beside_an_engine(void **state) {
    (void)state;
    rank unused;
    run_all(build_roots(), RANKS, (rank){.run = run_roots, .terms = add_own_terms}, &unused);
}

static void uneven_parts(void **state) {
    (void)state;
    rank unused;
    for (int alone = 0; alone < 2; alone++)
        run_all(build_parts(alone), MAX_RANKS, (rank){.run = run_parts, .alone = alone}, &unused);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(next_run_waits),
                                       cmocka_unit_test(roots_beside_an_engine),
                                       cmocka_unit_test(uneven_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
