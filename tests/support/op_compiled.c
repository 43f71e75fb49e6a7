/* op_compiled.c: compiles the rows of tests/support/ops.def and compares with the evaluator.
 *
 *   jit0 … jit4  every fusion level, all operands inputs or (1 and 4) the later ones parameters
 *   jit64        the row in f64
 *   threads      1, 2 and 3 threads give bit-identical results
 *   onednn       oneDNN primitives wherever possible
 *   avx2, sse    code for smaller CPUs
 *
 * Fused ops, which only passes make otherwise, are compiled as they are: they reach their kernels.
 * A program is compiled once per row and mode and then runs at every length; levels 0 and 4 compile many rows as
 * results of one entry. The modes share a disk cache, so equal kernels are compiled once. */
#include "codegen/backend.h"
#include "codegen/emit/target.h"
#include "codegen/program/program.h"
#include "tests/support/jit_run.h"
#include "tests/support/op_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "tests/support/scratch.h"

enum { TOGETHER = 40, MAX_LEN = 4 };
enum {
    ROUNDING = 4
}; /* allowed in addition: this many times the error of f32 between the row's nodes */

typedef struct setting {
    sn_options o;
    bool wide;
    unsigned params;
    bool together; /* rows are results of one entry, TOGETHER at a time */
} setting;

/* The rows that are compiled, and their mode. Each is a result of one entry. */
static struct {
    int first, n;
    int result[TOGETHER]; /* of each row; -1: it cannot be compiled alone */
    const setting *how;
    sn_module *m;
    jit_run run;
    int64_t len[MAX_LEN]; /* [n_len] that the entry has been run with */
    jit_checks checks[MAX_LEN];
    int n_len;
} now;
static bool may_share;

int op_compiled_begin(bool together) {
    may_share = together;
    return scratch_make(NULL);
}

static void close_rows(void) {
    while (now.n_len) jit_check_end(&now.checks[--now.n_len]);
    jit_close(&now.run);
    sn_module_free(now.m);
    now.n = 0;
    now.m = NULL;
}

void op_compiled_end(void) {
    close_rows();
    scratch_end(NULL);
}

static void *row_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    int operand, row;
    (void)ctx;
    if (sscanf(name, "x%d_%d", &operand, &row) == 2)
        return op_case_data(&op_cases[row], operand, now.how->wide, symbol[0], bytes);
    size_t n = 1; /* the row is itself a leaf */
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    unsigned char *data = malloc(*bytes + 1);
    for (size_t i = 0; data && i < *bytes; i++) data[i] = (unsigned char)(3 * i);
    return data;
}

static bool can_open(const op_case *row) {
    if (row->op == SN_OP_arg) return false; /* not a node of an entry */
    return row->op != SN_OP_primitive || sn_backend_library();
}

/* Fused ops must be computed by the kernels of their rows. Row blocks are a loop over kernels. */
static void check_kernels(void) {
    int missing[SN_OP_COUNT] = {0};
    sn_order order = sn_entry_topo(now.m, sn_entry_get(now.m, "main"));
    for (int i = 0; i < order.n; i++) missing[order.node[i]->op]++;
    for (int e = 0; e < now.run.p->n_entry; e++) {
        const sn_plan *plan = now.run.p->entry[e].code.plan;
        for (int i = 0; i < plan->n_call; i++) missing[plan->call[i]->node->op]--;
    }
    for (int op = 0; op < SN_OP_COUNT; op++)
        if (missing[op] > 0 && sn_ops[op].kind == SN_FUSED && op != SN_OP_row_blocked)
            fail_msg("no kernel computes '%s' in %d places", sn_ops[op].name, missing[op]);
}

static void add_row(sn_entry *e, int i) {
    const op_case *row = &op_cases[now.first + i];
    sn_node *in[MAX_IN], *y;
    char name[16];
    now.result[i] = can_open(row) ? e->n_output : -1;
    if (now.result[i] < 0) return;
    y = op_case_build_beside(row, now.m, now.how->wide, now.how->params, in);
    if (y->n_result > 1) y = sn_b_result(y, 0);
    if (row->only_sum) y = sn_b_reduce(SN_OP_reduce_sum, y, 1, &row->sum_axis);
    snprintf(name, sizeof name, "y%d", i);
    sn_entry_output(now.m, e, name, y);
}

static bool open_row(const op_case *row, const setting *how) {
    const int at = (int)(row - op_cases);
    if (!can_open(row)) return false;
    if (now.how == how && at >= now.first && at < now.first + now.n) return true;
    close_rows();
    now.m = sn_module_new("rows");
    now.how = how;
    now.first = at;
    const int left = op_case_count - at, n = may_share && how->together ? TOGETHER : 1;
    sn_entry *e = sn_entry_add(now.m, "main");
    for (int i = 0; i < n && i < left; i++) add_row(e, i);
    sn_options o = how->o;
    if (!jit_open(&now.run, now.m, &o, row_data, NULL)) fail_msg("%s", now.run.why);
    now.n = n < left ? n : left;
    check_kernels();
    return true;
}

/* The row's tolerance is for f32; some kernels also round to 16 bits in between. */
static double tolerance(const op_case *row) {
    for (const case_in *in = row->in; in->used; in++)
        if (in->dtype == SN_BF16 || in->dtype == SN_F16) return row->tol;
    int at = now.result[row - op_cases - now.first];
    bool wide = sn_entry_get(now.m, "main")->output[at].node->dtype == SN_F64;
    return wide && row->tol > 1e-12 ? 1e-12 : row->tol;
}

/* The results for T = len; NULL: now.run.why. */
static jit_checks *checks_for(int64_t len) {
    int i = 0;
    while (i < now.n_len && now.len[i] != len) i++;
    if (i < now.n_len) return &now.checks[i];
    now.len[i] = len;
    if (jit_check_begin(&now.run, "main", &now.len[i], &now.checks[i]))
        return &now.checks[now.n_len++];
    jit_check_end(&now.checks[i]);
    return NULL;
}

static void check_row(const op_case *row, int64_t len, const setting *how) {
    if (!open_row(row, how)) return;
    jit_checks *c = checks_for(len);
    int at = now.result[row - op_cases - now.first];
    if (!c || !jit_check_value(&now.run, c, at, tolerance(row), ROUNDING))
        fail_msg("T = %d: %s", (int)len, now.run.why);
    assert_int_equal(sn_program_stats(now.run.p).recompilations, 0);
}

/* ---- modes ---- */

#define CHECK(name, ...)                                                                           \
    static void mode_##name(const op_case *row, int64_t len) {                                     \
        static const setting how = {__VA_ARGS__};                                                  \
        check_row(row, len, &how);                                                                 \
    }
CHECK(jit0, .o = {.level = 0, .threads = 1}, .together = true)
CHECK(jit1, .o = {.level = 1, .threads = 2}, .params = ~1u)
CHECK(jit2, .o = {.level = 2, .threads = 2})
CHECK(jit3, .o = {.level = 3, .threads = 2})
CHECK(jit4, .o = {.level = 4, .threads = 1}, .params = ~1u, .together = true)
CHECK(jit64, .o = {.level = 4, .threads = 2}, .wide = true, .params = ~1u)

static void mode_onednn(const op_case *row, int64_t len) {
    static const setting how = {.o = {.level = 4, .threads = 2, .backend = "onednn"}};
    if (sn_backend_library()) check_row(row, len, &how);
}

/* The same on another target, if this CPU runs its code. */
static void check_target(const op_case *row, int64_t len, const setting *how) {
    sn_target t;
    if (sn_target_init(&t, how->o.target, NULL) && sn_target_runs_here(&t))
        check_row(row, len, how);
}

static void mode_avx2(const op_case *row, int64_t len) {
    static const setting how = {.o = {.level = 4, .threads = 1, .target = "x86-64-v3"}};
    check_target(row, len, &how);
}

static void mode_sse(const op_case *row, int64_t len) {
    static const setting how = {.o = {.level = 2, .threads = 1, .target = "x86-64"}};
    check_target(row, len, &how);
}

static void mode_threads(const op_case *row, int64_t len) {
    static const setting how[3] = {{.o = {.level = 4, .threads = 1}, .params = ~1u},
                                   {.o = {.level = 4, .threads = 2}, .params = ~1u},
                                   {.o = {.level = 4, .threads = 3}, .params = ~1u}};
    jit_result one = {.n = 0}, more = {.n = 0};
    for (int i = 0; i < 3; i++) {
        jit_result *r = i ? &more : &one;
        if (!open_row(row, &how[i])) return;
        bool ok = jit_call(&now.run, "main", &len, r);
        size_t size = ok ? sn_dtype_size((sn_dtype)r->value[0].node->dtype) : 0;
        bool same = ok && one.value[0].n == r->value[0].n &&
                    !memcmp(one.value[0].bytes, r->value[0].bytes, one.value[0].n * size);
        if (i) jit_result_free(&more);
        if (!same) {
            jit_result_free(&one);
            fail_msg("T = %d, %d threads: %s", (int)len, i + 1, ok ? "other bits" : now.run.why);
        }
    }
    jit_result_free(&one);
}

#define MODE(name)                                                                                 \
    { #name, mode_##name, {17, 0, 1, 130 }, 4 }
const op_mode op_compiled_modes[] = {
    MODE(jit0),  MODE(jit1),   MODE(jit2), MODE(jit3), MODE(jit4),
    MODE(jit64), MODE(onednn), MODE(avx2), MODE(sse),  {"threads", mode_threads, {700}, 1},
};
const int op_compiled_count = sizeof op_compiled_modes / sizeof *op_compiled_modes;
