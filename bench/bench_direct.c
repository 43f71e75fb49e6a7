/* bench_direct.c: the kernel generators called directly, without graph, passes and plan: the speed
 * of a kernel alone, to compare with what a model gets. */
#include "bench/bench_attention.h"
#include "bench/bench_gemm.h"
#include "bench/benches.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RESULTS = 8 };

static sn_bench_record *add(sn_bench_report *out, const sn_bench_options *o, const char *kind,
                            const char *backend, const char *setup, sn_error *err) {
    sn_bench_record *x = sn_bench_add(out, err);
    if (!x) return NULL;
    snprintf(x->kind, sizeof x->kind, "%s", kind);
    snprintf(x->backend, sizeof x->backend, "%s", backend);
    snprintf(x->setup, sizeof x->setup, "%s", setup);
    snprintf(x->dtype, sizeof x->dtype, "f32");
    snprintf(x->bound, sizeof x->bound, "compute");
    x->threads = sn_bench_threads(o);
    x->rounds = o->rounds;
    return x;
}

bool sn_bench_gemm_direct(const sn_bench_options *o, int64_t m, int64_t n, int64_t k,
                          sn_bench_report *out, sn_error *err) {
    sn_bench_gemm_shape shape = {m, n, k};
    sn_bench_gemm_options g = {.target = o->target,
                               .shape = &shape,
                               .n_shape = 1,
                               .threads = sn_bench_threads(o),
                               .rounds = o->rounds};
    sn_bench_gemm_result r;
    sn_bench_progress(o, "gemm %lld,%lld,%lld: the generator directly", (long long)m, (long long)n,
                      (long long)k);
    if (!sn_bench_gemm(&g, &r, err)) return false;
    sn_bench_record *x =
        add(out, o, "gemm", "generator", "the GEMM generator directly, in separate rounds", err);
    if (!x) return false;
    snprintf(x->name, sizeof x->name, "product");
    snprintf(x->shape, sizeof x->shape, "%lld,%lld,%lld", (long long)m, (long long)n, (long long)k);
    x->ms_median = r.ms, x->ms_min = r.ms_min, x->ms_max = r.ms_max;
    x->flop = 2 * (double)m * (double)n * (double)k;
    x->gflops = r.gflops;
    x->peak_gflops = r.peak;
    x->pct_roofline = 100 * r.gflops / r.peak;
    if (r.read_gbs > 0) {
        x->gbytes_s = r.gbs;
        x->stream_gbytes_s = r.read_gbs;
        x->pct_roofline = 100 * r.gbs / r.read_gbs;
        snprintf(x->bound, sizeof x->bound, "memory");
    }
    x->compile_ms = r.compile_ms;
    return true;
}

bool sn_bench_attention_direct(const sn_bench_options *o, const char *mask, const int64_t shape[5],
                               const char *name, const char *shape_text, sn_bench_report *out,
                               sn_error *err) {
    if (o->total && o->total->counting) return true; /* part of its work */
    sn_bench_attention_shape s = {.b = (int)shape[0],
                                  .h = (int)shape[1],
                                  .hk = (int)shape[2],
                                  .tq = (int)shape[3],
                                  .tk = (int)shape[3],
                                  .d = (int)shape[4]};
    sn_bench_attention_options a = {.target = o->target,
                                    .shape = &s,
                                    .n_shape = 1,
                                    .masks = mask,
                                    .threads = sn_bench_threads(o),
                                    .rounds = o->rounds};
    sn_bench_attention_result r[MAX_RESULTS];
    sn_bench_progress(o, "attention %s %s: the generator directly", name, shape_text);
    if (sn_bench_attention(&a, r, MAX_RESULTS, err) < 0) return false;
    sn_bench_record *x = add(out, o, "attention", "generator",
                             "the attention generator directly, in separate rounds", err);
    if (!x) return false;
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->shape, sizeof x->shape, "%s", shape_text);
    x->ms_median = r->ms, x->ms_min = r->ms_min, x->ms_max = r->ms_max;
    x->gflops = r->gflops;
    x->flop = r->gflops * r->ms * 1e6;
    x->peak_gflops = r->peak;
    x->pct_roofline = r->percent;
    x->compile_ms = r->compile_ms;
    return true;
}
