/* bench_kernel.c: the kernels of kernels.def as graphs. */
#include "bench/benches.h"
#include "bench/graph_case.h"
#include "bench/recurrence.h"
#include "bench/selective_scan.h"

#include <stdlib.h>
#include <string.h>

typedef struct kernel_spec {
    const char *name;
    int64_t rows, width, other, checked;
    double (*flop)(double R, double C, double N);
    sn_tensor (*result)(sn_module *m, sn_dim R, int64_t C, int64_t N);
} kernel_spec;

#define X(name, ...) sn_input(m, name, SN_F32, __VA_ARGS__)
#define P(name, ...) sn_param(m, name, SN_F32, __VA_ARGS__)
#define KERNEL(name, rows, width, other, checked, operations, expression)                          \
    static double flop_##name(double R, double C, double N) {                                      \
        (void)R, (void)C, (void)N;                                                                 \
        return operations;                                                                         \
    }                                                                                              \
    static sn_tensor result_##name(sn_module *m, sn_dim R, int64_t C, int64_t N) {                 \
        (void)N;                                                                                   \
        return expression;                                                                         \
    }
#include "bench/kernels.def"
#undef KERNEL
#undef X
#undef P

static const kernel_spec kernels[] = {
#define KERNEL(name, rows, width, other, checked, operations, expression)                          \
    {#name, rows, width, other, checked, flop_##name, result_##name},
#include "bench/kernels.def"
#undef KERNEL
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static sn_module *build(const void *spec, sn_error *err) {
    const kernel_spec *k = spec;
    sn_module *m = sn_module_new(k->name);
    if (!m) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    sn_dim R = sn_symbol(m, "R", 1, 1 << 24);
    sn_entry_begin(m, "main");
    sn_output("y", k->result(m, R, k->width, k->other));
    if (sn_module_ok(m, err)) return m;
    sn_module_free(m);
    return NULL;
}

static bool run_kernel(const sn_bench_options *o, const kernel_spec *k, sn_bench_report *out,
                       sn_error *err) {
    char shape[64], request[256];
    int n = snprintf(shape, sizeof shape, "%lldx%lld", (long long)k->rows, (long long)k->width);
    if (k->other) snprintf(shape + n, sizeof shape - (size_t)n, "x%lld", (long long)k->other);
    snprintf(request, sizeof request,
             "{\"work\": \"kernel\", \"name\": \"%s\", \"rows\": %lld, \"width\": %lld, "
             "\"other\": %lld}",
             k->name, (long long)k->rows, (long long)k->width, (long long)k->other);
    sn_bench_size size = {"R", k->rows, k->checked < k->rows ? k->checked : k->rows};
    sn_bench_graph g = {.kind = "kernel",
                        .name = k->name,
                        .shape = shape,
                        .build = build,
                        .spec = k,
                        .entry = "main",
                        .size = &size,
                        .n_size = 1,
                        .id_limit = k->other ? k->other : k->width,
                        .flop = k->flop((double)k->rows, (double)k->width, (double)k->other),
                        .bytes = {-1, -1},
                        .check = true};
    return sn_bench_graph_run(o, &g, request, NULL, 0, out, err);
}

static bool check_names(const char *names, sn_error *err) {
    for (const char *p = names ? names : ""; *p;) {
        size_t len = strcspn(p, ",");
        bool known = false;
        for (int i = 0; i < N_KERNELS; i++)
            known |= strlen(kernels[i].name) == len && !strncmp(kernels[i].name, p, len);
        if (!known) {
            char list[512] = "";
            for (size_t at = 0, i = 0; i < N_KERNELS && at < sizeof list; i++)
                at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "",
                                       kernels[i].name);
            return sn_fail(err, SN_ERR_USAGE, "there is no kernel '%.*s'; the kernels are: %s",
                           (int)len, p, list);
        }
        p += len + (p[len] == ',');
    }
    return true;
}

/* "ROWSxWIDTH" or "ROWSxWIDTHxOTHER" replaces the sizes of the table. */
static bool read_sizes(kernel_spec *k, const char *shape, sn_error *err) {
    int64_t *const to[] = {&k->rows, &k->width, &k->other};
    const char *p = shape;
    for (int i = 0; i < 3; i++) {
        char *end;
        long long v = strtoll(p, &end, 10);
        if (end == p || v < 1 || v > 1 << 24 || (*end && *end != 'x')) break;
        *to[i] = v;
        if (!*end && i) return true;
        if (!*end) break;
        p = end + 1;
    }
    return sn_fail(err, SN_ERR_USAGE, "shape '%s': write ROWSxWIDTH, such as 1024x768", shape);
}

bool sn_bench_kernels(const sn_bench_options *o, const char *names, const char *shape,
                      sn_bench_report *out, sn_error *err) {
    bool ok = check_names(names, err);
    for (int i = 0; i < N_KERNELS && ok; i++) {
        kernel_spec k = kernels[i];
        if (names && !sn_bench_listed(names, k.name)) continue;
        ok = (!shape || read_sizes(&k, shape, err)) && run_kernel(o, &k, out, err);
    }
    return ok;
}
