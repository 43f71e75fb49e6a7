/* op_compiled.c: compiles the rows of tests/support/ops.def and compares with the evaluator.
 *
 *   jit0 … jit4  every fusion level, all operands inputs or (1 and 4) the later ones parameters
 *   jit64        the row in f64
 *   threads      1, 2 and 3 threads give bit-identical results
 *   onednn       oneDNN primitives wherever possible
 *   avx2, sse    code for smaller CPUs
 *
 * Fused ops, which only passes make otherwise, are compiled as they are: they reach their kernels.
 * A program is compiled once per row and mode and then runs at every length. The modes share a disk
 * cache, so equal kernels are compiled once. */
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

enum {
    ROUNDING = 4
}; /* allowed in addition: this many times the error of f32 between the row's nodes */

typedef struct setting {
    sn_options o;
    bool wide;
    unsigned params;
} setting;

/* The row being compiled, and its mode. */
static struct {
    const op_case *row;
    const setting *how;
    sn_module *m;
    jit_run run;
} now;

int op_compiled_begin(void) {
    return scratch_make(NULL);
}

static void close_row(void) {
    jit_close(&now.run);
    sn_module_free(now.m);
    now.row = NULL;
    now.m = NULL;
}

void op_compiled_end(void) {
    close_row();
    scratch_end(NULL);
}

static void *row_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const op_case *row = ctx;
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    if (name[0] == 'x') return op_case_data(row, name[1] - '0', now.how->wide, symbol[0], bytes);
    size_t n = 1; /* the row is itself a leaf */
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    unsigned char *data = malloc(*bytes + 1);
    for (size_t i = 0; data && i < *bytes; i++) data[i] = (unsigned char)(3 * i);
    return data;
}

/* A fused op must be computed by the kernel of its row. Row blocks are a loop over kernels. */
static bool reaches_kernel(const op_case *row, const sn_program *p) {
    sn_op op = row->op == SN_OP_result ? row->of : row->op;
    if (sn_ops[op].kind != SN_FUSED || op == SN_OP_row_blocked) return true;
    for (int e = 0; e < p->n_entry; e++)
        for (int i = 0; i < p->entry[e].code.plan->n_step; i++)
            if (p->entry[e].code.plan->step[i].node->op == op) return true;
    return false;
}

static bool open_row(const op_case *row, const setting *how) {
    if (row->op == SN_OP_arg) return false; /* not a node of an entry */
    if (row->op == SN_OP_primitive && !sn_backend_library()) return false;
    if (now.row == row && now.how == how) return true;
    close_row();
    now.m = sn_module_new("row");
    now.row = row;
    now.how = how;
    sn_node *in[MAX_IN], *y = op_case_build(row, now.m, how->wide, how->params, in);
    if (y->n_result > 1) y = sn_b_result(y, 0);
    if (row->only_sum) y = sn_b_reduce(SN_OP_reduce_sum, y, 1, &row->sum_axis);
    sn_entry_output(now.m, sn_entry_add(now.m, "main"), "y", y);
    sn_options o = how->o;
    if (!jit_open(&now.run, now.m, &o, row_data, (void *)(uintptr_t)row)) {
        now.row = NULL; /* try again at the next length, which fails as well */
        fail_msg("%s", now.run.why);
    }
    if (!reaches_kernel(row, now.run.p)) fail_msg("no kernel computes '%s'", sn_ops[row->op].name);
    return true;
}

/* The row's tolerance is for f32; some kernels also round to 16 bits in between. */
static double tolerance(const op_case *row) {
    for (const case_in *in = row->in; in->used; in++)
        if (in->dtype == SN_BF16 || in->dtype == SN_F16) return row->tol;
    bool wide = sn_entry_get(now.m, "main")->output[0].node->dtype == SN_F64;
    return wide && row->tol > 1e-12 ? 1e-12 : row->tol;
}

static void check_row(const op_case *row, int64_t len, const setting *how) {
    if (!open_row(row, how)) return;
    if (!jit_check(&now.run, "main", &len, tolerance(row), ROUNDING))
        fail_msg("T = %d: %s", (int)len, now.run.why);
    assert_int_equal(sn_program_stats(now.run.p).recompilations, 0);
}

/* ---- modes ---- */

#define CHECK(name, ...)                                                                           \
    static void mode_##name(const op_case *row, int64_t len) {                                     \
        static const setting how = {__VA_ARGS__};                                                  \
        check_row(row, len, &how);                                                                 \
    }
CHECK(jit0, .o = {.level = 0, .threads = 2})
CHECK(jit1, .o = {.level = 1, .threads = 2}, .params = ~1u)
CHECK(jit2, .o = {.level = 2, .threads = 2})
CHECK(jit3, .o = {.level = 3, .threads = 2})
CHECK(jit4, .o = {.level = 4, .threads = 2}, .params = ~1u)
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
