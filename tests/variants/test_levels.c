/* A fusion level does not cost more than a lower one, in any entry of any variant, gradients and training included:
 * the estimate that explain makes from operations and bytes, at the middle of each size's range. Nothing is timed, and
 * no code is made. By default every second variant is looked at. With an argument: only the variants whose names contain it, and the ratios of all entries. */
#include "frontend/models.h"
#include "frontend/train.h"
#include "ir/ir.h"
#include "tests/support/effort.h"
#include "tools/inspect/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { LEVELS = 5, MAX_ENTRIES = 16, NAME = 32 };
static const double MAX_RATIO = 1.1;

#define VARIANT(folder, name) sn_model_fn variant_##folder##_##name;
#include "variants.def"
#undef VARIANT
#define VARIANT(folder, name) {#folder "/" #name, variant_##folder##_##name},
static const struct {
    const char *name;
    sn_model_fn *define;
} variants[] = {
#include "variants.def"
};

/* What a level costs on purpose, against the cheapest lower one. Bounds go down. */
static const struct {
    const char *name, *entry;
    double most;
} allowed[] = {
    /* level 3: the recurrence reads rows that level 4 computes in its prologue, but multiplies matrices */
    {"variants/delta_product", "forward", 1.13},
    {"variants/delta_product", "loss", 1.13},
    /* from level 2 on carries of the loop are computed again instead of stored for every element */
    {"recurrent/slstm", "step", 1.15},
};

static const char *chosen;

static double max_ratio_of(const char *name, const char *entry) {
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (!strcmp(allowed[i].name, name) && !strcmp(allowed[i].entry, entry))
            return allowed[i].most;
    return MAX_RATIO;
}

static double cost_of(const sn_program *p, const char *entry) {
    const sn_kernel_call *call;
    sn_error err = {0};
    int n = sn_program_calls(p, entry, NULL, &call, &err);
    if (n < 0) fail_msg("%s: %s", entry, err.message);
    double cost = 0;
    for (int i = 0; i < n; i++) cost += explain_estimate(&call[i]);
    return cost;
}

/* The number of entries that cost more than they may. */
static int compare_levels(const char *name, sn_model_fn *define) {
    sn_training t = sn_training_default();
    sn_model_options mo = {.entries = SN_ALL_ENTRIES | SN_TRAIN, .training = &t};
    sn_model model;
    sn_error err = {0};
    double least[MAX_ENTRIES];
    int failed = 0;
    if (!sn_model_build_with(define, name, &mo, &model, &err)) fail_msg("%s", err.message);
    int n = sn_entry_count(model.module);
    assert_in_range(n, 1, MAX_ENTRIES);
    for (int level = 0; level < LEVELS; level += effort_is_long() ? 1 : 2) {
        sn_options o = sn_options_default();
        o.level = level, o.plan_only = true, o.cache_dir = "none", o.backend = "native";
        sn_program *p = sn_compile(model.module, &o, &err);
        if (!p) fail_msg("%s: %s", name, err.message);
        for (int i = 0; i < n; i++) {
            const char *entry = sn_entry_at(model.module, i)->name;
            double cost = cost_of(p, entry), ratio = level ? cost / least[i] : 1;
            bool bad = ratio > max_ratio_of(name, entry);
            if (bad || chosen)
                print_message("%s, %s: level %d costs %.3f of the cheapest level below\n", name,
                              entry, level, ratio);
            failed += bad;
            least[i] = level ? fmin(least[i], cost) : cost;
        }
        sn_program_free(p);
    }
    sn_module_free(model.module);
    return failed;
}

static void levels_cost_no_more(void **state) {
    (void)state;
    int failed = 0, seen = 0;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if (chosen ? !strstr(variants[v].name, chosen) : !effort_takes(v, 2)) continue;
        failed += compare_levels(variants[v].name, variants[v].define);
        seen++;
    }
    assert_true(seen > 0);
    assert_int_equal(failed, 0);
}

/* ---- spellings ---- */

/* The same layer in two spellings; the first one used to cost more. */
static const char *const spellings[][2] = {
    {"recurrent/mamba", "recurrent/mamba_sum"},                   /* einsum; sum of a product */
    {"recurrent/mamba2_hybrid", "recurrent/mamba2_hybrid_heads"}, /* heads share; broadcast */
    {"recurrent/hgrn2", "recurrent/hgrn2_log"},                   /* running sum; e^log */
    {"recurrent/hgrn2_slice", "recurrent/hgrn2_log"},             /* concatenated; e^log */
    {"sparse/hopfield", "sparse/hopfield_attention"},             /* products; sn_attention */
};

/* What each entry costs at the highest level. */
static int costs_of(const char *name, double *cost, char (*entry)[NAME]) {
    sn_training t = sn_training_default();
    sn_model_options mo = {.entries = SN_ALL_ENTRIES | SN_TRAIN, .training = &t};
    sn_model model;
    sn_error err = {0};
    size_t v = 0;
    while (strcmp(variants[v].name, name)) assert_true(++v < sizeof variants / sizeof *variants);
    if (!sn_model_build_with(variants[v].define, name, &mo, &model, &err))
        fail_msg("%s", err.message);
    int n = sn_entry_count(model.module);
    assert_in_range(n, 1, MAX_ENTRIES);
    sn_options o = sn_options_default();
    o.plan_only = true, o.cache_dir = "none", o.backend = "native";
    sn_program *p = sn_compile(model.module, &o, &err);
    if (!p) fail_msg("%s: %s", name, err.message);
    for (int i = 0; i < n; i++) {
        snprintf(entry[i], NAME, "%s", sn_entry_at(model.module, i)->name);
        cost[i] = cost_of(p, entry[i]);
    }
    sn_program_free(p);
    sn_module_free(model.module);
    return n;
}

static void spellings_cost_the_same(void **state) {
    (void)state;
    int failed = 0;
    for (size_t k = 0; k < sizeof spellings / sizeof *spellings; k++) {
        double cost[2][MAX_ENTRIES];
        char entry[2][MAX_ENTRIES][NAME];
        if (chosen && !strstr(spellings[k][0], chosen)) continue;
        const int n = costs_of(spellings[k][0], cost[0], entry[0]);
        assert_int_equal(costs_of(spellings[k][1], cost[1], entry[1]), n);
        for (int i = 0; i < n; i++) {
            assert_string_equal(entry[0][i], entry[1][i]);
            const double ratio = cost[0][i] / cost[1][i];
            if (ratio > MAX_RATIO || chosen)
                print_message("%s, %s: costs %.3f of %s\n", spellings[k][0], entry[0][i], ratio,
                              spellings[k][1]);
            failed += ratio > MAX_RATIO;
        }
    }
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv) {
    chosen = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_cost_no_more),
                                       cmocka_unit_test(spellings_cost_the_same)};
    return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
