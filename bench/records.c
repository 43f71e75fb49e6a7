/* records.c: what a record and a report hold, for tables, JSON and merging; see measure.h. */
#include "bench/measure.h"

#define AT(field) offsetof(sn_bench_record, field)
#define TEXT(field)                                                                                \
    { #field, AT(field), sizeof(((sn_bench_record *)0)->field) }
const sn_bench_text sn_bench_texts_of[SN_BENCH_TEXTS] = {TEXT(kind),    TEXT(name),  TEXT(shape),
                                                         TEXT(backend), TEXT(dtype), TEXT(bound),
                                                         TEXT(checked), TEXT(setup), TEXT(choice)};

const sn_bench_number sn_bench_numbers_of[SN_BENCH_NUMBERS] = {
    {"ms_median", AT(ms_median), "ms", "%.4g", 10, 1},
    {"ms_low", AT(ms_low), "low", "%.4g", 9, 1},
    {"ms_high", AT(ms_high), "high", "%.4g", 9, 1},
    {"ms_min", AT(ms_min), "min", "%.4g", 9, 1},
    {"ms_max", AT(ms_max), NULL, NULL, 0, 0},
    {"flop", AT(flop), NULL, NULL, 0, 0},
    {"bytes", AT(bytes), NULL, NULL, 0, 0},
    {"traffic", AT(traffic), NULL, NULL, 0, 0},
    {"cpu_ms", AT(cpu_ms), "cpu ms", "%.4g", 9, 1},
    {"switches", AT(switches), "switches", "%.0f", 8, 1},
    {"preempted", AT(preempted), "preempted", "%.0f", 9, 1},
    {"cycles", AT(counter[0]), "cycles", "%.3g", 9, 1},
    {"instructions", AT(counter[1]), "instr.", "%.3g", 9, 1},
    {"cache_misses", AT(counter[2]), "misses", "%.3g", 9, 1},
    {"page_faults", AT(counter[3]), NULL, NULL, 0, 0},
    {"warm_up", AT(warm_up), "warm-up", "%.0f", 7, 1},
    {"floor_pct", AT(floor_pct), "A/A %", "%.2f", 6, 1},
    {"gflops", AT(gflops), "GFLOP/s", "%.4g", 9, 1},
    {"gbytes_s", AT(gbytes_s), "GB/s", "%.4g", 8, 1},
    {"peak_gflops", AT(peak_gflops), NULL, NULL, 0, 0},
    {"stream_gbytes_s", AT(stream_gbytes_s), NULL, NULL, 0, 0},
    {"pct_roofline", AT(pct_roofline), "% roof", "%.1f", 8, 1},
    {"run_peak_gflops", AT(run_peak_gflops), NULL, NULL, 0, 0},
    {"pct_run_peak", AT(pct_run_peak), "% run", "%.1f", 8, 1},
    {"speedup_vs_level0", AT(speedup_vs_level0), "x level 0", "%.2f", 10, 1},
    {"speedup_vs_f32", AT(speedup_vs_f32), "x f32", "%.2f", 7, 1},
    {"tokens_s", AT(tokens_s), "tokens/s", "%.4g", 9, 1},
    {"peak_bytes", AT(peak_bytes), "work MB", "%.4g", 9, 1.0 / (1 << 20)},
    {"rel_rms", AT(rel_rms), "rel RMS", "%.1e", 9, 1},
    {"max_ulp", AT(max_ulp), "max ulp", "%.3g", 9, 1},
    {"max_rel", AT(max_rel), NULL, NULL, 0, 0},
    {"compile_ms", AT(compile_ms), "build ms", "%.0f", 9, 1},
};
#undef AT

#define AT(field) offsetof(sn_bench_report, field)
const sn_bench_number sn_bench_machine_numbers[SN_BENCH_MACHINE_NUMBERS] = {
    {.key = "others_pct", .offset = AT(others)},
    {.key = "stolen_pct", .offset = AT(stolen)},
    {.key = "context_switches", .offset = AT(switches)},
    {.key = "load_before", .offset = AT(load[0])},
    {.key = "load_after", .offset = AT(load[1])},
    {.key = "ghz_before", .offset = AT(ghz[0])},
    {.key = "ghz_after", .offset = AT(ghz[1])},
    {.key = "probe_spread_pct", .offset = AT(spread)},
};
#undef AT

const sn_bench_sample_key sn_bench_sample_keys[] = {
    {"round_ms", offsetof(sn_bench_samples, ms)},
    {"round_cpu_ms", offsetof(sn_bench_samples, cpu_ms)},
    {"round_switches", offsetof(sn_bench_samples, switches)},
    {"round_waited_pct", offsetof(sn_bench_samples, waited)},
    {"round_process", offsetof(sn_bench_samples, process)}};
