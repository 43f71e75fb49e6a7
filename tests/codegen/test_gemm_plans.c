/* test_gemm_plans [--list]: a kernel for every combination of choices that the plan of a GEMM can
 * make (packing, blocking, prefetching: sn_gemm_plan_flags). The combinations are found by planning
 * all products of the axes below. Each is compiled and run on the smallest product that has it; the
 * default run takes a part of them. --list prints them: those of real programs must be among them
 * (tests/long/gemm_plans.sh). */
#include "tests/support/effort.h"
#include "tests/support/gemm_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PLANS = 4096,
    PLACES = 2 * MAX_PLANS,
    ONE_PANEL = 32 /* columns, at most */
};

/* A combination, and the smallest product that has it. */
typedef struct combination {
    uint32_t flags;
    gemm_shape shape;
} combination;

typedef struct plans {
    const sn_target *target;
    sn_dtype t;
    combination *found;
    int n;
    int16_t place[PLACES]; /* hash table: index in `found` + 1 */
} plans;

/* Rows where M is known at run time: one, a partial microtile, several blocks of long rows. */
static const int64_t some_rows[] = {1, 2, 19, 67, 0};

/* One panel of B is the last choice: nothing of B comes next. */
static int64_t work(const gemm_shape *s) {
    int64_t work = s->n * s->k * (s->only_m ? s->only_m : 90);
    return s->n > ONE_PANEL ? work : (work + (INT64_C(1) << 40));
}

static void consider(plans *p, const gemm_shape *s) {
    sn_gemm g = gemm_case_spec(s, p->t, s->only_m ? s->only_m : 19);
    if (s->tile >= sn_gemm_tiles(&g)) return;
    uint32_t flags = sn_gemm_plan_flags(&g, p->target, p->t);
    if (!flags) return;
    uint32_t at = flags * UINT32_C(2654435761) / (UINT32_MAX / PLACES + 1);
    while (p->place[at] && p->found[p->place[at] - 1].flags != flags) at = (at + 1) % PLACES;
    if (!p->place[at]) {
        assert_true(p->n < MAX_PLANS);
        p->found[p->n++] = (combination){.flags = flags, .shape = *s};
        p->place[at] = (int16_t)p->n;
    } else if (work(s) < work(&p->found[p->place[at] - 1].shape)) {
        p->found[p->place[at] - 1].shape = *s;
    }
}

/* How B is given. */
static const struct b_kind {
    bool packed, narrow;
    sn_dtype panels;
    int scale_group;
    gemm_layout layout;
    int64_t blocks; /* rows of C name one; ragged: k do */
    bool ragged, bf16, a_bf16, symmetric;
} b_kinds[] = {{.packed = true},
               {.packed = true, .narrow = true, .panels = SN_BF16},
               {.packed = true, .narrow = true, .panels = SN_I8},
               {.packed = true, .scale_group = 32},
               {.layout = PLAIN},
               {.layout = TRANSPOSED},
               {.layout = RUNTIME},
               {.packed = true, .blocks = 3},
               {.packed = true, .scale_group = 32, .blocks = 3},
               {.layout = PLAIN, .blocks = 3},
               {.layout = TRANSPOSED, .blocks = 3},
               {.layout = PLAIN, .blocks = 3, .ragged = true},
               {.packed = true, .bf16 = true},
               {.packed = true, .bf16 = true, .scale_group = 32},
               {.packed = true, .bf16 = true, .a_bf16 = true},
               {.layout = PLAIN, .bf16 = true},
               {.layout = PLAIN, .bf16 = true, .blocks = 3, .ragged = true},
               {.layout = TRANSPOSED, .bf16 = true, .a_bf16 = true},
               {.symmetric = true},
               {.bf16 = true, .symmetric = true},
               {.bf16 = true, .a_bf16 = true, .symmetric = true}};

static const gemm_layout layouts[] = {PLAIN, WIDE, TRANSPOSED, RUNTIME};

/* Constant M, 0: known at run time. N, of packed blocks of each; pairs: half of it. */
static const int64_t all_rows[] = {0, 1, 2, 33, 300}, all_columns[] = {64, 672, ONE_PANEL};

/* Short; a vector and a line more or less; a multiple of 4 KB and of 16 KB in f32 or f64; past the limits from which K
 * is blocked. All multiples of a scale group, apart from the first. */
static const int64_t all_depths[] = {37, 64, 96, 512, 1024, 2048, 3104, 3232, 4096, 6272};

/* All about C and what is fused. */
static void with_fusions(plans *p, gemm_shape s) {
    const int64_t columns = s.packed && s.blocks ? s.n / s.blocks : s.n;
    for (int fused = 0; fused < 5; fused++)
        for (int c = 0; c < 4; c++)
            for (int prologue = 0; prologue < 2; prologue++) {
                gemm_shape x = s;
                x.prologue = prologue;
                x.c = layouts[c];
                x.epilogue = fused > 0;
                x.no_store = fused == 2;
                x.pair = fused == 3 ? columns / 2 : fused == 4 ? 32 : 0;
                if ((x.pair && !x.packed) || (fused > 0 && c > 1)) continue;
                if (x.blocks && fused == 4) continue; /* a block has one result */
                if (x.a_bf16 && prologue) continue;
                consider(p, &x);
            }
}

static void with_depths(plans *p, gemm_shape s) {
    for (size_t i = 0; i < sizeof all_depths / sizeof *all_depths; i++)
        for (int runtime = 0; runtime < 2; runtime++)
            for (s.tile = 0; s.tile < 5; s.tile++) {
                s.k = all_depths[i];
                s.k_runtime = runtime;
                if (s.scale_group && (s.k % s.scale_group || runtime)) continue;
                with_fusions(p, s);
            }
}

static void enumerate(plans *p) {
    for (size_t b = 0; b < sizeof b_kinds / sizeof *b_kinds; b++)
        for (size_t a = 0; a < sizeof layouts / sizeof *layouts; a++)
            for (size_t m = 0; m < sizeof all_rows / sizeof *all_rows; m++)
                for (size_t n = 0; n < sizeof all_columns / sizeof *all_columns; n++) {
                    gemm_shape s = {.name = "plan",
                                    .a = layouts[a],
                                    .b = b_kinds[b].layout,
                                    .packed = b_kinds[b].packed,
                                    .narrow = b_kinds[b].narrow,
                                    .panels = b_kinds[b].panels,
                                    .scale_group = b_kinds[b].scale_group,
                                    .blocks = b_kinds[b].blocks,
                                    .ragged = b_kinds[b].ragged,
                                    .bf16 = b_kinds[b].bf16,
                                    .a_bf16 = b_kinds[b].a_bf16,
                                    .symmetric = b_kinds[b].symmetric,
                                    .per_row = b_kinds[b].blocks > 0 ? 2 : 0,
                                    .m_constant = all_rows[m] > 0,
                                    .only_m = all_rows[m],
                                    .n = all_columns[n]};
                    if (s.symmetric)
                        s.only_m = s.n;
                    else if (!s.m_constant)
                        s.some_m = some_rows;
                    if ((s.narrow || s.bf16) && p->t == SN_F64) continue;
                    if (s.packed && s.blocks) s.n *= s.blocks;
                    with_depths(p, s);
                }
}

static plans make_plans(const sn_target *target, sn_dtype t) {
    plans p = {.target = target, .t = t, .found = calloc(MAX_PLANS, sizeof *p.found)};
    assert_non_null(p.found);
    enumerate(&p);
    assert_true(p.n > 0);
    return p;
}

static void run_plans(const char *target_name, sn_dtype t) {
    const int one_in = strchr(target_name, '=') ? 160 : 80;
    sn_error err = {0};
    sn_target target;
    char text[512];
    if (!sn_target_init(&target, target_name, &err)) fail_msg("%s", err.message);
    if (!sn_target_runs_here(&target)) skip();
    plans p = make_plans(&target, t);
    sn_jit *jit = sn_jit_create(&target, NULL, &err);
    if (!jit) fail_msg("%s", err.message);
    int ran = 0;
    for (int i = 0; i < p.n; i++) {
        combination *c = &p.found[i];
        if (!effort_takes((size_t)i + sn_dtype_size(t), one_in)) continue;
        c->shape.name = sn_gemm_plan_text(c->flags, text, sizeof text);
        gemm_case_run(jit, &target, &c->shape, t, i);
        ran++;
    }
    printf("%s %s: %d of %d combinations\n", target_name, sn_dtype_name(t), ran, p.n);
    sn_jit_destroy(jit);
    free(p.found);
}

static void list(const char *target_name, sn_dtype t) {
    sn_error err = {0};
    sn_target target;
    char text[512];
    if (!sn_target_init(&target, target_name, &err)) exit(1);
    plans p = make_plans(&target, t);
    for (int i = 0; i < p.n; i++) puts(sn_gemm_plan_text(p.found[i].flags, text, sizeof text));
    free(p.found);
}

static void avx512_f32(void **state) {
    (void)state;
    run_plans("x86-64-v4", SN_F32);
}

static void avx512_f64(void **state) {
    (void)state;
    run_plans("x86-64-v4", SN_F64);
}

/* With instructions for products of bf16. */
static void bf16_steps(void **state) {
    (void)state;
    run_plans("znver4,l2=1M", SN_F32);
}

/* Blocks cut for other caches than the level's. */
static void small_caches(void **state) {
    (void)state;
    run_plans("x86-64-v3,l1=16K,l2=64K", SN_F32);
}

static void large_caches(void **state) {
    (void)state;
    run_plans("x86-64-v3,l2=4M", SN_F32);
}

static void avx2_f32(void **state) {
    (void)state;
    run_plans("x86-64-v3", SN_F32);
}

static void sse_f32(void **state) {
    (void)state;
    run_plans("x86-64-v2", SN_F32);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--list")) {
        static const char *const targets[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
        for (int i = 0; i < 3; i++)
            for (int wide = 0; wide < 2; wide++) list(targets[i], wide ? SN_F64 : SN_F32);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx512_f32),  cmocka_unit_test(bf16_steps), cmocka_unit_test(avx512_f64),
        cmocka_unit_test(avx2_f32),    cmocka_unit_test(sse_f32),    cmocka_unit_test(small_caches),
        cmocka_unit_test(large_caches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
