/* test_caches.c: block sizes that follow the target's caches: sizes as text, results that are right and
 * have the same bits whatever they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "codegen/emit/target.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"

#include <string.h>

#include "bench/recurrence_bodies.h"

static void sizes_as_text(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    char text[96];
    assert_true(sn_target_init(&t, "x86-64-v3,l1=48K,+avxvnni,l3=1536K,l2=2M", &err));
    assert_string_equal(sn_caches_text(&t.caches, text, sizeof text), "l1=48K,l2=2M,l3=1536K");
    assert_true(t.has_vnni);
    assert_true(sn_target_init(&t, "cascadelake", &err));
    assert_int_equal(t.caches.l2, 1 << 20);
    static const char *const bad[] = {
        "native,l2=",    "native,l2=1T", "native,l4=1M",    "native,l2=1K",
        "native,l2=-1M", "native,l1=1G", "native,cache=1M", "native,l2=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (sn_error){0};
        assert_false(sn_target_init(&t, bad[i], &err));
        assert_int_equal(err.code, SN_ERR_TARGET);
        assert_non_null(strstr(err.message, "l1") ? strstr(err.message, "l1")
                                                  : strstr(err.message, "KiB"));
    }
}

/* Sizes that blocks can be cut for, whatever machine this is. */
static void host_is_plausible(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    assert_true(sn_target_init(&t, "native", &err));
    assert_in_range(t.caches.l1, 4 << 10, 1 << 20);
    assert_in_range(t.caches.l2, 64 << 10, 256 << 20);
    assert_true(t.caches.l3 >= 64 << 10);
    for (size_t i = 1; sn_target_known(i); i++) {
        assert_true(sn_target_init(&t, sn_target_known(i), &err));
        assert_in_range(t.caches.l1, 4 << 10, 1 << 20);
        assert_in_range(t.caches.l2, 64 << 10, 256 << 20);
    }
}

/* Products with packed and with plain operands, long and short; attention over many keys; rows; a loop and its gradient,
 * whose blocks follow from L2. */
static sn_module *blocked_work(void) {
    sn_module *m = sn_module_new("blocked");
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "x", SN_F32, 150, 1600), y = sn_input(m, "y", SN_F32, 150, 1600);
    sn_tensor h = sn_gelu(sn_linear(x, sn_param(m, "w", SN_F32, 160, 1600), NULL));
    sn_output("deep", h);
    sn_output("plain", sn_matmul(x, sn_transpose(y, 1, 0)));
    sn_output("transposed", sn_matmul(sn_transpose(x, 1, 0), y));
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 2, 70, 64);
    sn_tensor k = sn_input(m, "k", SN_F32, 1, 2, 1100, 64),
              v = sn_input(m, "v", SN_F32, 1, 2, 1100, 64);
    sn_output("seen", sn_attention(q, k, v, .causal = true));
    sn_output("rows", sn_softmax(x, -1));
    static const char *const names[] = {"lq", "lk", "lv", "ld"}, *const grads[] = {"dq", "dk", "dv",
                                                                                   "dd"};
    sn_tensor in[4], g[4];
    for (int i = 0; i < 4; i++) in[i] = sn_input(m, names[i], SN_F32, 2, 99, 32);
    sn_scanned r = sn_scan(.carry = {sn_full(m, SN_F32, 0, 2, 32, 32)},
                           .x = {in[0], in[1], in[2], sn_sigmoid(in[3])}, .axis = 1, .body = gla);
    sn_grad(sn_sum_all(sn_square(r.y[0])), 4, in, g);
    for (int i = 0; i < 4; i++) sn_output(grads[i], g[i]);
    return m;
}

static void same_bits(void **state) {
    (void)state;
    static const char *const targets[] = {"native,l1=16K,l2=64K,l3=64K",
                                          "native,l2=512K",
                                          "native,l2=16M",
                                          "x86-64-v3,l2=96K",
                                          "x86-64-v3,l2=4M",
                                          "x86-64-v2,l2=96K",
                                          "x86-64-v2,l2=4M"};
    jit_result first = {0};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        sn_target t;
        sn_error err = {0};
        assert_true(sn_target_init(&t, targets[i], &err) || strncmp(targets[i], "native", 6));
        if (!sn_target_runs_here(&t)) continue;
        if ((i == 1 || i == 3 || i == 4) && !effort_is_long()) continue; /* much like the others */
        bool begins = i == 0 || i == 3 || i == 5; /* fused multiply-adds or not: other bits */
        sn_module *m = blocked_work();
        sn_options o = {.level = 4, .target = targets[i], .threads = 2};
        jit_run r;
        jit_result out;
        if (!jit_open(&r, m, &o, jit_random_leaf, NULL)) fail_msg("%s", r.why);
        if (begins && !jit_check(&r, "main", NULL, 1e-4, 8)) fail_msg("%s: %s", targets[i], r.why);
        if (!jit_call(&r, "main", NULL, &out)) fail_msg("%s", r.why);
        for (int j = 0; j < out.n && !begins; j++) {
            size_t bytes = out.value[j].n * sizeof(float);
            if (memcmp(out.value[j].bytes, first.value[j].bytes, bytes) != 0)
                fail_msg("%s: %s has other bits", targets[i], out.value[j].name);
        }
        if (begins) {
            jit_result_free(&first);
            first = out;
        } else
            jit_result_free(&out);
        jit_close(&r);
        sn_module_free(m);
    }
    jit_result_free(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_as_text),
                                       cmocka_unit_test(host_is_plausible),
                                       cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
