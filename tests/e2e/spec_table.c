/* spec_table [NAME…]: the table of the specification: each row's file, parameters, whether forward,
 * gradients, decoding and training hold, the kernels it was fused into and its error against the
 * evaluator. Exit code 1 if any row fails. Names choose rows, or groups of rows. */
#include "tests/e2e/spec_rows.h"

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
} groups[] = {
    {"components", spec_components}, {"models", spec_models}, {"variants", spec_variants}};
enum { N_GROUPS = sizeof groups / sizeof *groups };

static bool chosen(int argc, char **argv, const char *group, const char *row) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], group) || !strcmp(argv[i], row)) return true;
    return argc < 2;
}

static const char *word(bool ok) {
    return ok ? "ok" : "FAILED";
}

static bool print_row(const spec_row *row) {
    spec_result r;
    bool ok = spec_check(row, scratch_dir, &r);
    char trained[48], cached[16] = "-";
    snprintf(trained, sizeof trained, "%.2f > %.3f%s", r.before, r.after,
             r.trained_ok ? "" : " FAILED");
    if (r.cached >= 0) snprintf(cached, sizeof cached, "%s", word(r.cached_ok));
    printf("%-24s %-40s %8lld  %-7s %-8s %-6s %-14s %8.1e  %s%s\n", row->name, row->file,
           (long long)r.parameters, word(r.forward_ok), word(r.gradient_ok), cached, trained,
           r.error, r.kernels, r.kernels_ok ? "" : " FAILED");
    if (!ok) printf("    %s\n", r.why);
    fflush(stdout);
    return ok;
}

int main(int argc, char **argv) {
    int rows = 0, failed = 0;
    if (scratch_make(NULL)) return 1;
    printf("%-24s %-40s %8s  %-7s %-8s %-6s %-14s %8s  %s\n", "row", "file", "params", "forward",
           "gradient", "decode", "trained", "error", "kernels of forward");
    for (int g = 0; g < N_GROUPS; g++)
        for (const spec_row *row = groups[g].rows; row->name; row++) {
            if (!chosen(argc, argv, groups[g].name, row->name)) continue;
            rows++;
            failed += !print_row(row);
        }
    printf("%d rows, %d failed\n", rows, failed);
    scratch_end(NULL);
    return failed || !rows;
}
