/* spec_table [sample | exact] [NAME…]: the table of the specification: each row's file, parameters, whether forward,
 * gradients, decoding and training hold, the kernels it was fused into and its error against the
 * evaluator. Exit code 1 if any row fails. Names choose rows, or groups of rows; sample: of
 * these the part that the default run checks, the rest is "-"; exact: instead all passes of all entries and
 * of the gradient, over finite fields, of a sample of the rows. */
#include "tests/e2e/spec_rows.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

static const struct {
    const char *name;
    const spec_row *rows;
    size_t step; /* of spec_sample */
} groups[] = {
    {"components", spec_components, 3}, {"models", spec_models, 4}, {"variants", spec_variants, 6}};
enum { N_GROUPS = sizeof groups / sizeof *groups, EXACT_STEP = 6 };

static bool chosen(int argc, char **argv, const char *group, const char *row) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], group) || !strcmp(argv[i], row)) return true;
    return argc < 2;
}

static const char *word(unsigned checked, bool ok) {
    return !checked ? "-" : ok ? "ok" : "FAILED";
}

static bool print_row(const spec_row *row, unsigned parts) {
    spec_result r;
    bool ok = spec_check(row, parts, scratch_dir, &r);
    char trained[48] = "-", cached[16] = "-";
    if (parts & SPEC_TRAINING)
        snprintf(trained, sizeof trained, "%.2f > %.3f%s", r.before, r.after,
                 r.trained_ok ? "" : " FAILED");
    if (r.cached >= 0) snprintf(cached, sizeof cached, "%s", word(1, r.cached_ok));
    printf("%-24s %-40s %8lld  %-7s %-8s %-6s %-14s %8.1e  %s%s\n", row->name, row->file,
           (long long)r.parameters, word(parts & SPEC_FORWARD, r.forward_ok),
           word(parts & SPEC_GRADIENT, r.gradient_ok), cached, trained, r.error, r.kernels,
           r.kernels_ok ? "" : " FAILED");
    if (!ok) printf("    %s\n", r.why);
    fflush(stdout);
    return ok;
}

static bool print_exact(const spec_row *row) {
    spec_result r;
    bool ok = spec_check(row, SPEC_EXACT, scratch_dir, &r);
    printf("%-24s %5d results, %d undecided%s%s\n", row->name, r.exact.compared, r.exact.undecided,
           ok ? "" : ": ", r.why);
    fflush(stdout);
    return ok;
}

int main(int argc, char **argv) {
    int rows = 0, failed = 0;
    bool sample = argc > 1 && !strcmp(argv[1], "sample");
    bool exact = argc > 1 && !strcmp(argv[1], "exact");
    if (sample || exact) argc--, argv++;
    if (scratch_make(NULL)) return 1;
    printf("%-24s %-40s %8s  %-7s %-8s %-6s %-14s %8s  %s\n", "row", "file", "params", "forward",
           "gradient", "decode", "trained", "error", "kernels of forward");
    for (int g = 0; g < N_GROUPS; g++)
        for (const spec_row *row = groups[g].rows; row->name; row++) {
            if (!chosen(argc, argv, groups[g].name, row->name)) continue;
            unsigned parts =
                sample ? spec_sample((size_t)(row - groups[g].rows), groups[g].step) : SPEC_ALL;
            if (exact && argc < 2 && !effort_takes((size_t)(row - groups[g].rows), EXACT_STEP))
                continue;
            rows++;
            if (exact) {
                failed += !print_exact(row);
                continue;
            }
            failed += !print_row(row, parts);
        }
    printf("%d rows, %d failed\n", rows, failed);
    scratch_end(NULL);
    return failed || !rows;
}
