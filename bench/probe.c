/* probe.c: measures the machine's limits: FMA rate and read bandwidth.
 * Loops of intrinsics with target attributes, so that one build runs on every x86-64. */
#include "bench/probe.h"
#include "runtime/clock.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#if defined __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { CHAINS = 24, STEPS = 20000 };

/* STEPS rounds of CHAINS independent multiply-adds of whole vectors. The result is returned so that
 * the compiler keeps them. lanes: elements per vector. */
typedef float burst_fn(void);
typedef float sum_fn(const float *p, size_t n);

/* Before loops over the chains: without it GCC keeps them in memory, and stores limit the rate. */
#define IN_REGISTERS _Pragma("GCC unroll 24")

#define BURST(fma)                                                                                 \
    for (int s = 0; s < STEPS; s++) {                                                              \
        fma(0) fma(1) fma(2) fma(3) fma(4) fma(5) fma(6) fma(7) fma(8) fma(9) fma(10) fma(11)      \
            fma(12) fma(13) fma(14) fma(15) fma(16) fma(17) fma(18) fma(19) fma(20) fma(21)        \
                fma(22) fma(23)                                                                    \
    }

#if defined __x86_64__
__attribute__((target("avx512f"))) static float burst_avx512(void) {
    __m512 a[CHAINS], b = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_ps((float)i);
#define STEP(i) a[i] = _mm512_fmadd_ps(a[i], b, c);
    BURST(STEP)
#undef STEP
    __m512 sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS; i++) sum = _mm512_add_ps(sum, a[i]);
    return _mm512_reduce_add_ps(sum);
}

enum { CHAINS_AVX2 = 12 }; /* 16 registers */
__attribute__((target("avx2,fma"))) static float burst_avx2(void) {
    __m256 a[CHAINS_AVX2], b = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);
    IN_REGISTERS for (int i = 0; i < CHAINS_AVX2; i++) a[i] = _mm256_set1_ps((float)i);
#define STEP(i) a[(i) % CHAINS_AVX2] = _mm256_fmadd_ps(a[(i) % CHAINS_AVX2], b, c);
    BURST(STEP)
#undef STEP
    __m256 sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS_AVX2; i++) sum = _mm256_add_ps(sum, a[i]);
    return _mm256_cvtss_f32(sum);
}

/* The same as a tile of products, whose factors come from L1: ROWS by VECTORS chains, a broadcast for each row and a
 * load for each vector in a step. GCC would broadcast twice. */
#define TILE_BURST(NAME, TARGET, vec, LANES, ROWS, VECTORS, zero, load, fma, first)                \
    __attribute__((target(TARGET))) static float NAME(void) {                                      \
        enum { IN_L1 = 64, OF_STEPS = CHAINS / (ROWS * VECTORS) };                                 \
        static _Alignas(64) float x[ROWS * IN_L1] = {1}, y[VECTORS * LANES * IN_L1] = {1};         \
        vec sum[ROWS * VECTORS], row, of_y[VECTORS];                                               \
        IN_REGISTERS for (int i = 0; i < ROWS * VECTORS; i++) sum[i] = zero();                     \
        for (int s = 0; s < STEPS * OF_STEPS; s++) {                                               \
            const float *at = x + s % IN_L1, *from = y + s % IN_L1 * VECTORS * LANES;              \
            __asm__("" : "+r"(at), "+r"(from)); /* one register for all rows */                    \
            IN_REGISTERS for (int j = 0; j < VECTORS; j++) of_y[j] = load(from + j * LANES);       \
            IN_REGISTERS for (int i = 0; i < ROWS; i++) {                                          \
                __asm__("vbroadcastss %1, %0" : "=v"(row) : "m"(at[i * IN_L1]));                   \
                IN_REGISTERS for (int j = 0; j < VECTORS; j++) sum[i * VECTORS + j] =              \
                    fma(row, of_y[j], sum[i * VECTORS + j]);                                       \
            }                                                                                      \
        }                                                                                          \
        IN_REGISTERS for (int i = 1; i < ROWS * VECTORS; i++) sum[0] =                             \
            fma(sum[i], of_y[0], sum[0]);                                                          \
        return first(sum[0]);                                                                      \
    }
TILE_BURST(burst_tile_avx512, "avx512f", __m512, 16, 12, 2, _mm512_setzero_ps, _mm512_load_ps,
           _mm512_fmadd_ps, _mm512_cvtss_f32)
TILE_BURST(burst_tile_avx2, "avx2,fma", __m256, 8, 6, 2, _mm256_setzero_ps, _mm256_load_ps,
           _mm256_fmadd_ps, _mm256_cvtss_f32)

/* One thread reading four streams, each prefetched a page ahead, reads 2 to 3 % faster from memory
 * than with one stream. Short blocks use one stream, since their first page is never prefetched. */
enum { FOUR_FROM = 65536 /* floats */ };

/* NAME(p, n) adds n floats with the vectors `vec` of `lanes` floats. */
#define SUM_OF_VECTORS(NAME, TARGET, vec, lanes, zero, load, add, result)                          \
    __attribute__((target(TARGET))) static float NAME(const float *p, size_t n) {                  \
        vec s[4];                                                                                  \
        size_t part = n >= FOUR_FROM ? n / 64 * 16 : 0;                                            \
        IN_REGISTERS for (int i = 0; i < 4; i++) s[i] = zero();                                    \
        for (size_t i = 0; i < part; i += 16) IN_REGISTERS for (size_t j = 0; j < 4; j++) {        \
                const float *at = p + j * part + i;                                                \
                _mm_prefetch((const char *)at + 4096, _MM_HINT_T0);                                \
                IN_REGISTERS for (size_t l = 0; l < 16; l += (lanes)) s[j] =                       \
                    add(s[j], load(at + l));                                                       \
            }                                                                                      \
        for (size_t i = 4 * part; i + 64 <= n; i += 64)                                            \
            IN_REGISTERS for (size_t j = 0; j < 4; j++) {                                          \
                const float *at = p + i + 16 * j;                                                  \
                _mm_prefetch((const char *)at + 4096, _MM_HINT_T0);                                \
                IN_REGISTERS for (size_t l = 0; l < 16; l += (lanes)) s[j] =                       \
                    add(s[j], load(at + l));                                                       \
            }                                                                                      \
        return result(add(add(s[0], s[1]), add(s[2], s[3])));                                      \
    }
SUM_OF_VECTORS(sum_avx512, "avx512f", __m512, 16, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_add_ps,
               _mm512_reduce_add_ps)
SUM_OF_VECTORS(sum_avx2, "avx2", __m256, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_add_ps,
               _mm256_cvtss_f32)
#endif

#if defined __x86_64__
/* The same for other types: 8 f64, 32 bf16 or fp16, or 64 int8 products per instruction; with AVX2, 4
 * f64 products. */
__attribute__((target("avx512f"))) static float burst_f64(void) {
    __m512d a[CHAINS], b = _mm512_set1_pd(0.999), c = _mm512_set1_pd(0.001);
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_pd(i);
#define STEP(i) a[i] = _mm512_fmadd_pd(a[i], b, c);
    BURST(STEP)
#undef STEP
    __m512d sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS; i++) sum = _mm512_add_pd(sum, a[i]);
    return (float)_mm512_reduce_add_pd(sum);
}

__attribute__((target("avx2,fma"))) static float burst_f64_avx2(void) {
    __m256d a[CHAINS_AVX2], b = _mm256_set1_pd(0.999), c = _mm256_set1_pd(0.001);
    IN_REGISTERS for (int i = 0; i < CHAINS_AVX2; i++) a[i] = _mm256_set1_pd(i);
#define STEP(i) a[(i) % CHAINS_AVX2] = _mm256_fmadd_pd(a[(i) % CHAINS_AVX2], b, c);
    BURST(STEP)
#undef STEP
    __m256d sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS_AVX2; i++) sum = _mm256_add_pd(sum, a[i]);
    return (float)_mm256_cvtsd_f64(sum);
}

/* The instructions below are written in assembly: of their intrinsics GCC makes copies of the
 * accumulators in memory, which halve the rate. */
__attribute__((target("avx512f,avx512bf16"))) static float burst_bf16(void) {
    __m512 a[CHAINS];
    __m512i b = _mm512_set1_epi32(0x3c003c00), c = b; /* 2^-7 */
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_ps((float)i);
#define STEP(i) __asm__("vdpbf16ps %1, %2, %0" : "+v"(a[i]) : "v"(b), "v"(c));
    BURST(STEP)
#undef STEP
    __m512 sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS; i++) sum = _mm512_add_ps(sum, a[i]);
    return _mm512_reduce_add_ps(sum);
}

__attribute__((target("avx512f"))) static float burst_fp16(void) {
    __m512i a[CHAINS], b = _mm512_set1_epi32(0x3b003b00), c = _mm512_set1_epi32(0x20002000);
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) a[i] = c;
#define STEP(i) __asm__("vfmadd213ph %2, %1, %0" : "+v"(a[i]) : "v"(b), "v"(c));
    BURST(STEP)
#undef STEP
    __m512i sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS; i++) sum = _mm512_xor_si512(sum, a[i]);
    return (float)_mm512_reduce_add_epi32(sum);
}

__attribute__((target("avx512f"))) static float burst_int8(void) {
    __m512i a[CHAINS], b = _mm512_set1_epi32(0x03030303), c = _mm512_set1_epi32(0x01010101);
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) a[i] = _mm512_set1_epi32(i);
#define STEP(i) __asm__("vpdpbusd %1, %2, %0" : "+v"(a[i]) : "v"(b), "v"(c));
    BURST(STEP)
#undef STEP
    __m512i sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS; i++) sum = _mm512_add_epi32(sum, a[i]);
    return (float)_mm512_reduce_add_epi32(sum);
}

/* AVX-VNNI: the same on 256 bits. */
__attribute__((target("avx2"))) static float burst_int8_avx2(void) {
    __m256i a[CHAINS_AVX2], b = _mm256_set1_epi32(0x03030303), c = _mm256_set1_epi32(0x01010101);
    IN_REGISTERS for (int i = 0; i < CHAINS_AVX2; i++) a[i] = _mm256_set1_epi32(i);
#define STEP(i)                                                                                    \
    __asm__("%{vex%} vpdpbusd %1, %2, %0" : "+x"(a[(i) % CHAINS_AVX2]) : "x"(b), "x"(c));
    BURST(STEP)
#undef STEP
    __m256i sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS_AVX2; i++) sum = _mm256_add_epi32(sum, a[i]);
    return (float)_mm256_extract_epi32(sum, 0);
}

/* AVX2 without VNNI: products of 8-bit integers are exact as 16 products of i16, which an instruction
 * adds in pairs and another one to the sums. */
__attribute__((target("avx2"))) static float burst_int8_pairs(void) {
    __m256i a[CHAINS_AVX2], b = _mm256_set1_epi32(0x00030003), c = _mm256_set1_epi32(0x00010001);
    IN_REGISTERS for (int i = 0; i < CHAINS_AVX2; i++) a[i] = _mm256_set1_epi32(i);
#define STEP(i)                                                                                    \
    __asm__("vpmaddwd %1, %2, %%ymm15\n\tvpaddd %%ymm15, %0, %0"                                   \
            : "+x"(a[(i) % CHAINS_AVX2])                                                           \
            : "x"(b), "x"(c)                                                                       \
            : "xmm15");
    BURST(STEP)
#undef STEP
    __m256i sum = a[0];
    IN_REGISTERS for (int i = 1; i < CHAINS_AVX2; i++) sum = _mm256_add_epi32(sum, a[i]);
    return (float)_mm256_extract_epi32(sum, 0);
}

/* Does cpuid leaf 7, subleaf `sub`, have this bit in register `reg` (eax, ebx, ecx, edx)? The compiler
 * knows no names for these features. */
static bool cpu_has(unsigned sub, int reg, int bit) {
    unsigned r[4];
    return __get_cpuid_count(7, sub, &r[0], &r[1], &r[2], &r[3]) && r[reg] >> bit & 1;
}
#endif

static float burst_plain(void) {
    float a[CHAINS];
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) a[i] = (float)i;
#define STEP(i) a[i] = a[i] * 0.999f + 0.001f;
    BURST(STEP)
#undef STEP
    float sum = 0;
    IN_REGISTERS for (int i = 0; i < CHAINS; i++) sum += a[i];
    return sum;
}

static float sum_plain(const float *p, size_t n) {
    float s[32] = {0}, sum = 0;
    for (size_t i = 0; i + 32 <= n; i += 32)
        for (size_t j = 0; j < 32; j++) s[j] += p[i + j];
    for (int j = 0; j < 32; j++) sum += s[j];
    return sum;
}

static burst_fn *choose_burst(int *lanes) {
#if defined __x86_64__
    *lanes = 16;
    if (__builtin_cpu_supports("avx512f")) return burst_avx512;
    *lanes = 8;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return burst_avx2;
#endif
    *lanes = 1;
    return burst_plain;
}

static sum_fn *choose_sum(void) {
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f")) return sum_avx512;
    if (__builtin_cpu_supports("avx2")) return sum_avx2;
#endif
    return sum_plain;
}

/* All threads begin each burst together: its rate is that of the slowest. The fastest burst counts; it
 * takes some 100 µs, less than what a scheduler gives another program. sustained: the mean of all but those that take
 * twice as long. products: per instruction. */
static double run_bursts(burst_fn *burst, int products, int threads, double seconds,
                         bool sustained) {
    if (threads <= 0) threads = omp_get_max_threads();
    double best = 0, sum = 0, begin = sn_clock(), *end = calloc((size_t)threads, sizeof *end);
    int n_sum = 0;
    bool more = end != NULL;
#pragma omp parallel num_threads(threads)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        volatile float keep = more ? burst() : 0;
        while (more) {
#pragma omp barrier
            double mine = sn_clock();
            keep = burst();
            end[t] = sn_clock() - mine;
#pragma omp barrier
#pragma omp single
            {
                double longest = 0;
                for (int i = 0; i < n; i++) longest = end[i] > longest ? end[i] : longest;
                double rate = (double)n * STEPS * CHAINS * 2 * products / longest * 1e-9;
                best = rate > best ? rate : best;
                if (2 * rate > best) sum += 1 / rate, n_sum++;
                more = sn_clock() - begin < seconds;
            }
        }
        (void)keep;
    }
    free(end);
    return sustained && n_sum ? n_sum / sum : best;
}

double sn_probe_ghz(void) {
#if defined __x86_64__
    enum { TRIES = 25, LOOPS = 10000, IN_LOOP = 16, CYCLES = 3 };
    double best = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        long x = 3, n = LOOPS;
        double start = sn_clock();
        __asm__ volatile("1: .rept 16\n\timul %1, %1\n\t.endr\n\tdec %0\n\tjnz 1b"
                         : "+r"(n), "+r"(x)
                         :
                         : "cc");
        best = fmin(best, sn_clock() - start);
    }
    return (double)LOOPS * IN_LOOP * CYCLES / best * 1e-9;
#else
    return NAN;
#endif
}

double sn_probe_fma_peak(int threads, double seconds) {
    int lanes;
    burst_fn *burst = choose_burst(&lanes);
    return run_bursts(burst, lanes, threads, seconds, false);
}

static const char *const peak_names[] = {"f32", "f32 in L1", "f64", "bf16", "fp16", "int8"};

const char *sn_probe_peak_name(int kind) {
    bool known = kind >= 0 && kind < (int)(sizeof peak_names / sizeof *peak_names);
    return known ? peak_names[kind] : NULL;
}

double sn_probe_peak(int kind, int threads, double seconds) {
    if (kind == 0) return sn_probe_fma_peak(threads, seconds);
    enum { TILE = 1 };
#if defined __x86_64__
    bool zmm = __builtin_cpu_supports("avx512f"), vnni = __builtin_cpu_supports("avx512vnni"),
         avx_vnni = cpu_has(1, 0, 4), avx2 = __builtin_cpu_supports("avx2"),
         fma = avx2 && __builtin_cpu_supports("fma");
    const struct {
        int kind;
        burst_fn *burst;
        int products;
        bool has;
    } wide[] = {
        {TILE, burst_tile_avx512, 16, zmm},
        {TILE, burst_tile_avx2, 8, fma},
        {2, burst_f64, 8, zmm},
        {2, burst_f64_avx2, 4, fma},
        {3, burst_bf16, 32, __builtin_cpu_supports("avx512bf16")},
        {4, burst_fp16, 32, zmm && cpu_has(0, 3, 23)},
        {5, burst_int8, 64, vnni},
        {5, burst_int8_avx2, 32, avx_vnni},
        {5, burst_int8_pairs, 16, avx2},
    };
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (wide[i].kind == kind && wide[i].has)
            return run_bursts(wide[i].burst, wide[i].products, threads, seconds, kind == TILE);
#endif
    return 0;
}

double sn_probe_stream(int threads, const void *src, size_t n_read, void *dst, size_t n_write) {
    sum_fn *sum = choose_sum();
    size_t both = (n_read < n_write ? n_read : n_write) / 64, more = n_read / 64 - both,
           rest = n_write / 64 - both;
    const char *from = src;
    char *to = dst;
    double start = sn_clock();
#pragma omp parallel num_threads(threads)
    {
        size_t t = (size_t)omp_get_thread_num(), n = (size_t)omp_get_num_threads();
        size_t lo = both * t / n * 64, hi = both * (t + 1) / n * 64;
        if (hi > lo) memcpy(to + lo, from + lo, hi - lo);
        lo = (both + more * t / n) * 64, hi = (both + more * (t + 1) / n) * 64;
        volatile float keep = hi > lo ? sum((const float *)(from + lo), (hi - lo) / 4) : 0;
        (void)keep;
        lo = (both + rest * t / n) * 64, hi = (both + rest * (t + 1) / n) * 64;
        if (hi > lo) memset(to + lo, 1, hi - lo);
    }
    return sn_clock() - start;
}

double sn_probe_blocks(int threads, const sn_probe_block *block, int n) {
    sum_fn *sum = choose_sum();
    double start = sn_clock();
#pragma omp parallel num_threads(threads)
    {
        size_t t = (size_t)omp_get_thread_num(), of = (size_t)omp_get_num_threads();
        volatile float keep;
        for (int i = 0; i < n; i++) {
            size_t lines = block[i].bytes / 64, lo = lines * t / of, hi = lines * (t + 1) / of;
            keep = sum((const float *)block[i].at + lo * 16, (hi - lo) * 16);
        }
        (void)keep;
    }
    return sn_clock() - start;
}

double sn_probe_read(int threads, const void *p, size_t bytes) {
    return (double)bytes / sn_probe_blocks(threads, &(sn_probe_block){p, bytes}, 1) * 1e-9;
}

double sn_probe_read_bandwidth(int threads, size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) return 0;
    memset(p, 0, bytes);
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double rate = sn_probe_read(threads, p, bytes);
        if (rate > best) best = rate;
    }
    free(p);
    return best;
}
