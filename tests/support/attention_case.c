/* attention_case.c: see attention_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/attention_case.h"
#include "tests/support/compile_case.h"
#include "runtime/rng.h"

sn_tensor ac_table(sn_module *m, int i, sn_dtype t, const int64_t *size) {
    char name[16];
    sn_dim shape[SN_MAX_RANK + 1];
    int rank = 0;
    for (; rank < SN_MAX_RANK && size[rank]; rank++) shape[rank] = size[rank];
    shape[rank] = SN_END;
    snprintf(name, sizeof name, "table%d", i);
    return sn_input_at(SN_HERE, m, name, t, shape);
}

void ac_gradients(sn_entry *e, sn_tensor y, int n, const sn_tensor *wrt) {
    sn_dim shape[SN_MAX_RANK + 1];
    sn_tensor g[AC_MAX_GRADIENTS];
    assert_in_range(n, 1, AC_MAX_GRADIENTS);
    for (int a = 0; a < y->rank; a++) shape[a] = y->shape[a];
    shape[y->rank] = SN_END;
    sn_tensor w = sn_input_at(SN_HERE, y->m, "weight", (sn_dtype)y->dtype, shape);
    sn_grad(sn_sum_all(sn_mul(y, w)), n, wrt, g);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        sn_entry_output(y->m, e, name, g[i]);
    }
}

/* The input "choices" has integers from -9 to 9 without an order. */
static void *leaf_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    int32_t *data = jit_random_leaf(ctx, leaf, symbol, bytes);
    sn_rng r = {.seed = 3, .stream = SN_STREAM_DATA};
    if (strcmp(sn_attr_str(leaf, SN_A_name, ""), "choices")) return data;
    for (size_t i = 0; data && i < *bytes / sizeof *data; i++)
        data[i] = (int32_t)sn_rng_below(&r, 19) - 9;
    return data;
}

static ac_build_fn *build_setting;

static void run_setting(void **state) {
    const ac_setting *s = *state;
    sn_module *m = build_setting(s);
    sn_options o = {.level = s->level, .target = s->target, .compute = s->bf16 ? "bf16" : NULL};
    char why[JIT_WHY];
    bool wide = s->t == SN_F64, ok;
    if (s->bits) {
        ok = jit_same_bits(m, &o, NULL, leaf_data, NULL, why);
    } else {
        o.threads = 2;
        double tolerance = s->bf16 ? 4e-2 : wide ? 1e-11 : 2e-5;
        ok = jit_matches(m, &o, NULL, leaf_data, NULL, tolerance, wide ? 0 : 8, why);
    }
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

int ac_run(const char *group, ac_build_fn *build, ac_setting *settings, size_t n,
           const struct CMUnitTest *more, size_t n_more) {
    struct CMUnitTest *tests = calloc(n + n_more, sizeof *tests);
    if (!tests) return 1;
    build_setting = build;
    for (size_t i = 0; i < n; i++) {
        ac_setting *s = &settings[i];
        snprintf(s->label, sizeof s->label, "%s%s, %s, level %d %s%s", s->name,
                 s->back ? ", backward" : "", sn_dtype_name(s->t), s->level,
                 s->target ? s->target : "", s->bits ? ", bits" : "");
        if (s->bf16) strcat(s->label, ", bf16");
        tests[i] = (struct CMUnitTest){s->label, run_setting, NULL, NULL, s};
    }
    if (n_more) memcpy(tests + n, more, n_more * sizeof *more);
    int failed = _cmocka_run_group_tests(group, tests, n + n_more, cc_begin, cc_end);
    free(tests);
    return failed;
}
