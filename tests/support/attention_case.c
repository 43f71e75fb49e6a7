/* attention_case.c: see attention_case.h. */
#include "tests/support/attention_case.h"
#include "tests/support/jit_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

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

void ac_matches(sn_module *m, const sn_options *o, sn_dtype t) {
    char why[JIT_WHY];
    bool wide = t == SN_F64, ok = jit_matches(m, o, NULL, jit_random_leaf, NULL,
                                              wide ? 1e-11 : 2e-5, wide ? 0 : 8, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

void ac_same_bits(sn_module *m, const sn_options *o) {
    char why[JIT_WHY];
    bool ok = jit_same_bits(m, o, NULL, jit_random_leaf, NULL, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}
