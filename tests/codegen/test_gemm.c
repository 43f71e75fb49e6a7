/* The GEMM generator against sums in double: every tile size, odd sizes, strides, batches, fusion,
 * both compute types, both vector widths; equal bits for any number of threads; nothing
 * outside C. */
#include "tests/support/effort.h"
#include "tests/support/gemm_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* One row more than the rows that a packed NC block serves, with the microtiles of AVX-512; of AVX2. */
static const int64_t after_blocks[] = {505, 481, 0};

static const gemm_shape shapes[] = {
    {.name = "packed", .n = 100, .k = 37, .packed = true},
    {.name = "packed even", .n = 64, .k = 48, .packed = true},
    {.name = "packed wide", .n = 33, .k = 20, .packed = true, .a = WIDE, .c = WIDE},
    {.name = "packed runtime strides",
     .n = 70,
     .k = 33,
     .packed = true,
     .a = RUNTIME,
     .c = RUNTIME},
    {.name = "packed runtime n", .n = 45, .k = 19, .packed = true, .n_runtime = true},
    {.name = "packed runtime k", .n = 40, .k = 23, .packed = true, .k_runtime = true},
    {.name = "packed transposed",
     .n = 31,
     .k = 18,
     .packed = true,
     .a = TRANSPOSED,
     .c = TRANSPOSED},
    {.name = "plain", .n = 77, .k = 29},
    {.name = "plain one panel", .n = 32, .k = 64, .b = WIDE},
    {.name = "plain transposed", .n = 65, .k = 31, .b = TRANSPOSED},
    {.name = "all runtime",
     .n = 50,
     .k = 21,
     .n_runtime = true,
     .k_runtime = true,
     .a = RUNTIME,
     .b = RUNTIME,
     .c = RUNTIME},
    {.name = "long k",
     .n = 40,
     .k = 2500,
     .k_runtime = true,
     .a = RUNTIME,
     .b = TRANSPOSED,
     .only_m = 33},
    {.name = "long k, many columns",
     .n = 600,
     .k = 1100,
     .k_runtime = true,
     .a = TRANSPOSED,
     .only_m = 61},
    {.name = "one row", .n = 100, .k = 40, .packed = true, .m_constant = true, .only_m = 1},
    {.name = "constant m", .n = 70, .k = 25, .packed = true, .m_constant = true, .only_m = 19},
    {.name = "no columns", .n = 0, .k = 5, .n_runtime = true, .packed = true},
    {.name = "empty sum", .n = 20, .k = 0, .packed = true},
    {.name = "empty runtime sum",
     .n = 20,
     .k = 0,
     .k_runtime = true,
     .a = RUNTIME,
     .epilogue = true},
    {.name = "epilogue", .n = 50, .k = 24, .packed = true, .epilogue = true},
    {.name = "epilogue stores",
     .n = 50,
     .k = 24,
     .packed = true,
     .epilogue = true,
     .no_store = true},
    {.name = "prologue", .n = 50, .k = 43, .packed = true, .prologue = true},
    {.name = "both", .n = 50, .k = 43, .packed = true, .prologue = true, .epilogue = true},
    {.name = "pair", .n = 96, .k = 20, .packed = true, .pair = 48, .epilogue = true},
    {.name = "pair of odd halves", .n = 82, .k = 20, .packed = true, .pair = 41, .epilogue = true},
    {.name = "pairs in blocks", .n = 192, .k = 21, .packed = true, .pair = 32, .epilogue = true},
    {.name = "pair of rows",
     .n = 82,
     .k = 35,
     .packed = true,
     .pair = 41,
     .epilogue = true,
     .b = TRANSPOSED},
    {.name = "packed from rows", .n = 37, .k = 50, .packed = true, .b = TRANSPOSED},
    {.name = "transposed prologue",
     .n = 20,
     .k = 43,
     .packed = true,
     .prologue = true,
     .a = TRANSPOSED},
    {.name = "bf16 panels", .n = 50, .k = 26, .packed = true, .narrow = true, .panels = SN_BF16},
    {.name = "bf16 panels in pairs",
     .n = 210,
     .k = 28,
     .packed = true,
     .narrow = true,
     .panels = SN_BF16},
    {.name = "f16 panels",
     .n = 33,
     .k = 19,
     .packed = true,
     .narrow = true,
     .panels = SN_F16,
     .b = TRANSPOSED},
    {.name = "i8 panels",
     .n = 50,
     .k = 26,
     .packed = true,
     .narrow = true,
     .panels = SN_I8,
     .epilogue = true},
    {.name = "i8 panels of rows",
     .n = 41,
     .k = 9,
     .packed = true,
     .narrow = true,
     .panels = SN_I8,
     .b = TRANSPOSED},
    {.name = "int4 panels", .n = 70, .k = 96, .packed = true, .scale_group = 32},
    {.name = "int4 panels, a last block of one row",
     .n = 96,
     .k = 2048,
     .packed = true,
     .prologue = true,
     .scale_group = 64,
     .some_m = after_blocks},
    {.name = "batch", .n = 35, .k = 17, .batch0 = 3, .batch1 = 2, .b = TRANSPOSED},
    {.name = "batch runtime", .n = 35, .k = 17, .batch0 = 5, .n_runtime = true, .k_runtime = true},
    {.name = "many rows", .n = 40, .k = 1100, .packed = true, .only_m = 1000},
    {.name = "relayed rows", .n = 641, .k = 1024, .packed = true, .only_m = 210},
    {.name = "relayed rows of whole panels", .n = 672, .k = 1024, .packed = true, .only_m = 210},
    {.name = "unrelayed rows", .n = 40, .k = 1024, .packed = true, .only_m = 210},
    {.name = "relayed prologue",
     .n = 33,
     .k = 1030,
     .packed = true,
     .prologue = true,
     .only_m = 401},
    {.name = "waiting sums", .n = 75, .k = 3220, .packed = true, .only_m = 131},
    {.name = "waiting sums of copied rows",
     .n = 641,
     .k = 4096,
     .packed = true,
     .b = TRANSPOSED,
     .only_m = 99},
    {.name = "waiting sums of a prologue",
     .n = 40,
     .k = 3215,
     .packed = true,
     .prologue = true,
     .epilogue = true,
     .only_m = 130},
    {.name = "waiting sums of bf16 panels",
     .n = 70,
     .k = 3200,
     .packed = true,
     .narrow = true,
     .panels = SN_BF16,
     .n_runtime = true,
     .a = WIDE,
     .only_m = 129},
    {.name = "waiting sums in blocks",
     .n = 2400,
     .k = 3136,
     .packed = true,
     .only_m = 70,
     .only_bits = true},
    {.name = "drawn rows",
     .n = 2080,
     .k = 4032,
     .packed = true,
     .only_m = 1027,
     .dynamic = true,
     .only_bits = true},
    {.name = "fetched result", .n = 77, .k = 130, .packed = true, .epilogue = true},
    {.name = "fetched pair",
     .n = 160,
     .k = 67,
     .packed = true,
     .pair = 80,
     .epilogue = true,
     .only_m = 37},
    {.name = "fetched pairs in blocks",
     .n = 96,
     .k = 130,
     .packed = true,
     .pair = 16,
     .epilogue = true,
     .only_m = 37},
    {.name = "pairs of bf16",
     .n = 224,
     .k = 28,
     .packed = true,
     .pair = 112,
     .epilogue = true,
     .narrow = true,
     .panels = SN_BF16},
    {.name = "pairs with a prologue",
     .n = 64,
     .k = 43,
     .packed = true,
     .pair = 32,
     .prologue = true,
     .epilogue = true},
    {.name = "fetched batch", .n = 35, .k = 90, .batch0 = 3, .c = WIDE, .only_m = 31},
};

static void run_all(const char *target_name, sn_dtype t) {
    sn_error err = {0};
    sn_target target;
    if (!sn_target_init(&target, target_name, &err)) fail_msg("%s", err.message);
    if (!sn_target_runs_here(&target)) skip();
    sn_jit *jit = sn_jit_create(&target, NULL, &err);
    if (!jit) fail_msg("%s", err.message);
    int n = (int)(sizeof shapes / sizeof *shapes);
    size_t share = target.vector_bytes == 64 && t == SN_F32 ? 1 : 3,
           offset = sn_dtype_size(t) / 4 + (size_t)target.vector_bytes / 64;
    for (int i = 0; i < n; i++)
        if (effort_takes((size_t)i + offset, share) && !(shapes[i].scale_group && t == SN_F64))
            gemm_case_run(jit, &target, &shapes[i], t, i);
    sn_jit_destroy(jit);
}

static void avx512_f32(void **state) {
    (void)state;
    run_all("x86-64-v4", SN_F32);
}

static void avx512_f64(void **state) {
    (void)state;
    run_all("x86-64-v4", SN_F64);
}

static void avx2_f32(void **state) {
    (void)state;
    run_all("x86-64-v3", SN_F32);
}

static void avx2_f64(void **state) {
    (void)state;
    run_all("x86-64-v3", SN_F64);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(avx512_f32), cmocka_unit_test(avx512_f64),
                                       cmocka_unit_test(avx2_f32), cmocka_unit_test(avx2_f64)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
