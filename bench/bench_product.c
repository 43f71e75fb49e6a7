/* bench_product.c: matrix products through the DSL, beside oneDNN with packed weights. */
#include "bench/benches.h"
#include "bench/graph_case.h"
#include "bench/probe.h"
#include "codegen/backend.h"
#include "runtime/clock.h"
#include "runtime/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usual[] =
    "1024,3072,768 1024,768,3072 1024,768,768 1024,50257,768 4096,4096,4096 128,768,768 "
    "64,768,768 64,50257,768 1,768,3072 1,3072,768";

enum {
    SKINNY = 16, /* up to this many rows, weights are streamed from memory: */
    ROTATE = 1 << 30,
    MAX_COPIES = 256,             /* bytes of weights to stream, and number of matrices */
    CHECKED_PRODUCTS = 100000000, /* size of the reduced problem */
};

typedef struct product {
    int64_t m, n, k, copies; /* copies of the weights, used in turn */
} product;

static sn_tensor build_copies(sn_module *m, const product *p) {
    sn_tensor x = sn_input(m, "x", SN_F32, p->copies, p->m, p->k),
              *y = calloc((size_t)p->copies + 1, sizeof *y), all;
    if (!y) return NULL;
    for (int64_t i = 0; i < p->copies; i++) {
        char name[32];
        snprintf(name, sizeof name, "weight.%lld", (long long)i);
        y[i] = sn_linear(sn_index(x, 0, i), sn_param(m, name, SN_F32, p->n, p->k), NULL);
    }
    all = sn_stack_at(SN_HERE, 0, y);
    free(y);
    return all;
}

static sn_module *build(const void *spec, sn_error *err) {
    const product *p = spec;
    sn_module *m = sn_module_new("gemm");
    if (!m) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    sn_entry_begin(m, "main");
    sn_tensor y;
    if (p->copies > 1)
        y = build_copies(m, p);
    else {
        sn_dim M = sn_symbol(m, "M", 1, 1 << 24);
        y = sn_linear(sn_input(m, "x", SN_F32, M, p->k), sn_param(m, "weight", SN_F32, p->n, p->k),
                      NULL);
    }
    if (y) sn_output("y", y);
    if (y && sn_module_ok(m, err)) return m;
    sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_module_free(m);
    return NULL;
}

/* ---- oneDNN with packed weights ---- */

typedef struct rival {
    const sn_backend *library;
    void *dnnl; /* its state */
    sn_matmul s;
    void *x;
    float *y;
    char *packed;
    size_t bytes;
    int64_t copies;
} rival;

static void close_rival(rival *r) {
    if (r->dnnl) r->library->close(r->dnnl);
    free(r->x);
    free(r->y);
    free(r->packed);
}

/* n numbers: floats between -1/2 and 1/2, or integers. */
static void fill(void *to, int64_t n, sn_dtype t) {
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(i * 7919 % 1000) / 1000 - 0.5f;
        if (t == SN_I8)
            ((int8_t *)to)[i] = (int8_t)(i * 7919 % 251 - 125);
        else if (t == SN_BF16)
            ((uint16_t *)to)[i] = sn_f32_to_bf16(x);
        else
            ((float *)to)[i] = x;
    }
}

static bool open_rival(rival *r, const product *p, sn_dtype factors, sn_error *err) {
    *r = (rival){.copies = p->copies,
                 .s = {.m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .a_row = p->k,
                       .a_col = 1,
                       .b_row = 1,
                       .b_col = p->k,
                       .c_row = p->n,
                       .c_col = 1,
                       .packed = 1,
                       .factors = factors}};
    r->library = sn_backend_library();
    if (!r->library)
        return sn_fail(err, SN_ERR_TARGET, "this build has no library to compare with");
    r->dnnl = r->library->open(err);
    int64_t bytes = r->dnnl ? r->library->gemm->packed_bytes(r->dnnl, &r->s, err) : -1;
    if (bytes < 0) return false;
    size_t item = sn_dtype_size(factors);
    r->bytes = ((size_t)bytes + 63) / 64 * 64;
    /* in huge pages, as Sinter's weights are */
    r->x = sn_memory_alloc((size_t)(p->m * p->k) * item);
    r->y = sn_memory_alloc((size_t)(p->m * p->n) * sizeof(float));
    r->packed = sn_memory_alloc(r->bytes * (size_t)p->copies);
    void *w = malloc((size_t)(p->n * p->k) * item);
    bool ok = (r->x && r->y && r->packed && w) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) fill(w, p->n * p->k, factors);
    if (ok) fill(r->x, p->m * p->k, factors);
    for (int64_t i = 0; ok && i < p->copies; i++)
        ok = r->library->gemm->pack(r->dnnl, &r->s, w, r->packed + r->bytes * (size_t)i, err);
    free(w);
    return ok;
}

static bool time_rival(void *ctx, int repeats, double *seconds, sn_error *err) {
    rival *r = ctx;
    double start = 0;
    int runs = repeats ? repeats : 1;
    for (int i = repeats ? -1 : 0; i < runs; i++) {
        if (i == 0) start = sn_clock();
        for (int64_t j = 0; j < r->copies; j++)
            if (!r->library->gemm->run(r->dnnl, &r->s, r->x, r->packed + r->bytes * (size_t)j, NULL,
                                       r->y, err))
                return false;
    }
    *seconds = (sn_clock() - start) / runs;
    return true;
}

/* ---- shapes ---- */

static bool run_product(const sn_bench_options *o, product p, sn_bench_report *out, sn_error *err) {
    if (sn_bench_only_counts(o)) return true;
    double weight = (double)p.n * (double)p.k * sizeof(float);
    p.copies = p.m <= SKINNY ? (int64_t)(ROTATE / weight) + 1 : 1;
    if (p.copies > MAX_COPIES) p.copies = MAX_COPIES;
    char shape[64], request[256];
    snprintf(shape, sizeof shape, "%lld,%lld,%lld", (long long)p.m, (long long)p.n, (long long)p.k);
    snprintf(request, sizeof request,
             "{\"work\": \"gemm\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"copies\": %lld%s}",
             (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.copies,
             sn_bench_peer_compute(o));
    int64_t checked = CHECKED_PRODUCTS / (p.n * p.k);
    checked = checked < 1 ? 1 : checked > p.m ? p.m : checked;
    sn_bench_size size = {"M", p.m, checked};
    double m = (double)p.m, n = (double)p.n, k = (double)p.k;
    sn_bench_graph g = {.kind = "gemm",
                        .name = p.copies > 1 ? "product, weights in memory" : "product",
                        .shape = shape,
                        .build = build,
                        .spec = &p,
                        .entry = "main",
                        .size = &size,
                        .n_size = p.copies > 1 ? 0 : 1,
                        .flop = 2 * m * n * k,
                        .bytes = {4 * (n * k * sn_bench_storage(o->weights) + m * k), 4 * m * n},
                        .runs = (double)p.copies,
                        .check = p.copies == 1};
    rival r;
    sn_error local = {0};
    sn_bench_progress(o, "gemm %s: packing for oneDNN", shape);
    const sn_dtype factors = sn_bench_factors(o);
    bool has = open_rival(&r, &p, factors, &local);
    if (!has) sn_bench_note(out, "oneDNN with packed weights: %s", local.message);
    sn_bench_entrant e = {.level = -1,
                          .backend = "onednn-packed",
                          .time = time_rival,
                          .ctx = &r,
                          .rel_rms = NAN,
                          .max_ulp = NAN,
                          .max_rel = NAN};
    snprintf(e.setup, sizeof e.setup, "oneDNN %s, weights in oneDNN's layout%s",
             sn_backend_library_version(),
             factors == SN_I8     ? "; int8 in memory, sums as f32 without scales"
             : factors == SN_BF16 ? "; bf16 in memory, sums f32"
                                  : "");
    if (has) snprintf(e.choice, sizeof e.choice, "%s", r.library->gemm->code(r.dnnl, &r.s));
    bool ok = sn_bench_graph_run(o, &g, request, &e, has, out, err);
    close_rival(&r);
    return ok;
}

bool sn_bench_gemms(const sn_bench_options *o, const char *shapes, sn_bench_report *out,
                    sn_error *err) {
    const char *p = shapes ? shapes : usual;
    while (*p) {
        long long m, n, k;
        int used = 0;
        if (sscanf(p, "%lld,%lld,%lld%n", &m, &n, &k, &used) != 3 || m < 1 || n < 1 || k < 1 ||
            m > 1 << 20 || n > 1 << 20 || k > 1 << 20 || (p[used] && p[used] != ' '))
            return sn_fail(err, SN_ERR_USAGE, "shape '%s': write M,N,K, each at least 1", p);
        if (!run_product(o, (product){m, n, k, 1}, out, err)) return false;
        for (p += used; *p == ' '; p++) {
        }
    }
    return true;
}
