/* target.c: CPU names and features, the host's and those of other machines.
 * LLVM's C API cannot tell what a CPU name implies, so the facts that steer emission are in two
 * tables here; LLVM itself gets the name and the full feature string. */
#include "codegen/emit/target.h"

#include "codegen/emit/llvm_compat.h"
#include "ir/ir.h"
#include "runtime/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { START_BYTES = 32 << 20 }; /* more than LLVM's global tables take */

/* Features that a user may add or remove: LLVM's name, our bit, what it implies (directly). */
#define FEATURES(_)                                                                                \
    _("sse3", SSE3, 0)                                                                             \
    _("ssse3", SSSE3, BIT(SSE3))                                                                   \
    _("sse4.1", SSE41, BIT(SSSE3))                                                                 \
    _("sse4.2", SSE42, BIT(SSE41))                                                                 \
    _("popcnt", POPCNT, 0)                                                                         \
    _("avx", AVX, BIT(SSE42))                                                                      \
    _("f16c", F16C, BIT(AVX))                                                                      \
    _("fma", FMA, BIT(AVX))                                                                        \
    _("avx2", AVX2, BIT(AVX))                                                                      \
    _("bmi", BMI, 0)                                                                               \
    _("bmi2", BMI2, 0)                                                                             \
    _("lzcnt", LZCNT, 0)                                                                           \
    _("movbe", MOVBE, 0)                                                                           \
    _("avxvnni", AVXVNNI, BIT(AVX2))                                                               \
    _("avx512f", AVX512F, BIT(AVX2) | BIT(F16C) | BIT(FMA))                                        \
    _("avx512bw", AVX512BW, BIT(AVX512F))                                                          \
    _("avx512cd", AVX512CD, BIT(AVX512F))                                                          \
    _("avx512dq", AVX512DQ, BIT(AVX512F))                                                          \
    _("avx512vl", AVX512VL, BIT(AVX512F))                                                          \
    _("avx512vbmi", AVX512VBMI, BIT(AVX512BW))                                                     \
    _("avx512vbmi2", AVX512VBMI2, BIT(AVX512BW))                                                   \
    _("avx512vnni", AVX512VNNI, BIT(AVX512F))                                                      \
    _("avx512bf16", AVX512BF16, BIT(AVX512BW))                                                     \
    _("avx512fp16", AVX512FP16, BIT(AVX512BW) | BIT(AVX512DQ) | BIT(AVX512VL))                     \
    _("amx-tile", AMX_TILE, 0)                                                                     \
    _("amx-bf16", AMX_BF16, BIT(AMX_TILE))                                                         \
    _("amx-int8", AMX_INT8, BIT(AMX_TILE))                                                         \
    _("prefer-256-bit", PREFER_256, 0)                                                             \
    _("neon", NEON, 0)                                                                             \
    _("fullfp16", FULLFP16, BIT(NEON))                                                             \
    _("dotprod", DOTPROD, BIT(NEON))                                                               \
    _("bf16", BF16, BIT(NEON))                                                                     \
    _("i8mm", I8MM, BIT(NEON))                                                                     \
    _("sve", SVE, BIT(FULLFP16))                                                                   \
    _("v", RVV, 0)                                                                                 \
    _("relaxed-simd", RELAXED_SIMD, 0)

#define BIT(x) (UINT64_C(1) << F_##x)
enum {
#define X(name, id, implies) F_##id,
    FEATURES(X)
#undef X
        F_COUNT
};

static const struct {
    const char *name;
    uint64_t implies;
} features[F_COUNT] = {
#define X(name, id, implies) {name, implies},
    FEATURES(X)
#undef X
};

#define AVX512 (BIT(AVX512F) | BIT(AVX512BW) | BIT(AVX512DQ) | BIT(AVX512VL))
#define V2 (BIT(SSE42) | BIT(POPCNT))
#define V3 (V2 | BIT(AVX2) | BIT(F16C) | BIT(FMA) | BIT(BMI) | BIT(BMI2) | BIT(LZCNT) | BIT(MOVBE))
#define V4 (V3 | AVX512 | BIT(AVX512CD))
#define ICL (V4 | BIT(AVX512VBMI) | BIT(AVX512VBMI2) | BIT(AVX512VNNI))
#define SPR                                                                                        \
    (ICL | BIT(AVXVNNI) | BIT(AVX512BF16) | BIT(AVX512FP16) | BIT(AMX_TILE) | BIT(AMX_BF16) |      \
     BIT(AMX_INT8))
#define ARM BIT(NEON)
#define ARM82 (ARM | BIT(FULLFP16) | BIT(DOTPROD))
#define ARM86 (ARM82 | BIT(I8MM)) /* what kernels use of it: no SVE, no bf16 */

/* Caches in KiB that a thread may count on. A level stands for many CPUs and takes small ones: what
 * is cut for a small cache loses little in a large one. */
#define SMALL                                                                                      \
    { 32, 512, 1024 }
#define LARGE                                                                                      \
    { 32, 1024, 1024 }

/* Names a user may give: LLVM's CPU name (NULL: the same), architecture, implied features, caches. Code for
 * AArch64 is for the generic CPU with just these features, so that it needs no others, and tuned for the
 * named one. */
static const struct {
    const char *name, *cpu;
    sn_arch arch;
    uint64_t set;
    struct {
        int l1, l2, l3;
    } kib;
} cpus[] = {
    {"x86-64", 0, SN_ARCH_X86_64, 0, SMALL},
    {"x86-64-v2", 0, SN_ARCH_X86_64, V2, SMALL},
    {"x86-64-v3", 0, SN_ARCH_X86_64, V3, SMALL},
    {"x86-64-v4", 0, SN_ARCH_X86_64, V4, LARGE},
    {"nehalem", 0, SN_ARCH_X86_64, V2, {32, 256, 2048}},
    {"sandybridge", 0, SN_ARCH_X86_64, V2 | BIT(AVX), {32, 256, 2048}},
    {"ivybridge", 0, SN_ARCH_X86_64, V2 | BIT(AVX) | BIT(F16C), {32, 256, 2048}},
    {"haswell", 0, SN_ARCH_X86_64, V3, {32, 256, 2048}},
    {"broadwell", 0, SN_ARCH_X86_64, V3, {32, 256, 2048}},
    {"skylake", 0, SN_ARCH_X86_64, V3, {32, 256, 2048}},
    {"skylake-avx512", 0, SN_ARCH_X86_64, V4, {32, 1024, 1408}},
    {"cascadelake", 0, SN_ARCH_X86_64, V4 | BIT(AVX512VNNI), {32, 1024, 1408}},
    {"cooperlake", 0, SN_ARCH_X86_64, V4 | BIT(AVX512VNNI) | BIT(AVX512BF16), {32, 1024, 1408}},
    {"icelake-client", 0, SN_ARCH_X86_64, ICL, {48, 512, 2048}},
    {"icelake-server", 0, SN_ARCH_X86_64, ICL, {48, 1280, 1536}},
    {"tigerlake", 0, SN_ARCH_X86_64, ICL, {48, 1280, 3072}},
    {"alderlake", 0, SN_ARCH_X86_64, V3 | BIT(AVXVNNI), {32, 1280, 3072}},
    {"sapphirerapids", 0, SN_ARCH_X86_64, SPR, {48, 2048, 1920}},
    {"emeraldrapids", 0, SN_ARCH_X86_64, SPR, {48, 2048, 5120}},
    {"graniterapids", 0, SN_ARCH_X86_64, SPR, {48, 2048, 4032}},
    {"znver1", 0, SN_ARCH_X86_64, V3, {32, 512, 2048}},
    {"znver2", 0, SN_ARCH_X86_64, V3, {32, 512, 4096}},
    {"znver3", 0, SN_ARCH_X86_64, V3, {32, 512, 4096}},
    {"znver4", 0, SN_ARCH_X86_64, ICL | BIT(AVX512BF16), {32, 1024, 4096}},
    {"znver5", 0, SN_ARCH_X86_64, ICL | BIT(AVX512BF16) | BIT(AVXVNNI), {48, 1024, 4096}},
    {"aarch64", "generic", SN_ARCH_AARCH64, ARM, SMALL},
    {"cortex-a53", 0, SN_ARCH_AARCH64, ARM, {32, 256, 512}},
    {"cortex-a55", 0, SN_ARCH_AARCH64, ARM82, {32, 128, 1024}},
    {"cortex-a72", 0, SN_ARCH_AARCH64, ARM, {32, 512, 1024}},
    {"cortex-a76", 0, SN_ARCH_AARCH64, ARM82, {64, 512, 1024}},
    {"cortex-a78", 0, SN_ARCH_AARCH64, ARM82, {64, 512, 1024}},
    {"neoverse-n1", 0, SN_ARCH_AARCH64, ARM82, {64, 1024, 1024}},
    {"neoverse-n2", 0, SN_ARCH_AARCH64, ARM86, {64, 1024, 1024}},
    {"neoverse-v1", 0, SN_ARCH_AARCH64, ARM86, {64, 1024, 1024}},
    {"neoverse-v2", 0, SN_ARCH_AARCH64, ARM86, {64, 1024, 1024}},
    {"apple-m1", 0, SN_ARCH_AARCH64, ARM82, {128, 3072, 2048}},
    {"apple-m2", 0, SN_ARCH_AARCH64, ARM86, {128, 4096, 2048}},
    {"riscv64", "generic-rv64", SN_ARCH_RISCV64, 0, SMALL},
    {"wasm32", "mvp", SN_ARCH_WASM32, 0, SMALL},
};
enum { N_CPUS = sizeof cpus / sizeof cpus[0] };

static const sn_system_facts systems[] = {
    [SN_LINUX] = {"linux",
                  {"x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu",
                   "riscv64-unknown-linux-gnu"},
                  ".o",
                  ".a",
                  "",
                  SN_USE_PAGE | SN_USE_WORKERS,
                  "pages and workers are for --target wasm32"},
    [SN_WINDOWS] = {"windows",
                    {"x86_64-w64-windows-gnu"},
                    ".obj",
                    ".lib",
                    ".exe",
                    SN_USE_SHARED | SN_USE_PAGE | SN_USE_WORKERS,
                    "link NAME.obj or NAME.lib with your own main (examples/deploy)"},
    [SN_MACOS] = {"macos",
                  {"x86_64-apple-macosx10.15.0", "arm64-apple-macosx11.0.0"},
                  ".o",
                  ".a",
                  NULL,
                  SN_USE_ARCHIVE | SN_USE_SHARED | SN_USE_PROGRAM | SN_USE_STATIC | SN_USE_PAGE |
                      SN_USE_WORKERS,
                  "link NAME.o with your own main (examples/deploy)"},
    [SN_BROWSER] = {"browser",
                    {[SN_ARCH_WASM32] = "wasm32-unknown-unknown"},
                    ".wasm.o",
                    NULL,
                    NULL,
                    SN_USE_ARCHIVE | SN_USE_SHARED | SN_USE_PROGRAM | SN_USE_STATIC | SN_USE_EMBED |
                        SN_USE_TARGETS,
                    "it writes one module, NAME.wasm, with NAME.js, NAME.d.ts and NAME.weights"},
};
enum { N_SYSTEMS = sizeof systems / sizeof *systems };

static const struct {
    int first, last;  /* rows of the feature table that belong to this architecture */
    const char *base; /* features of LLVM's that every target has: the usual calling convention */
    const char *abi;  /* of LLVM's module flag "target-abi"; NULL: none */
} archs[] = {
    [SN_ARCH_X86_64] = {F_SSE3, F_PREFER_256, "", NULL},
    [SN_ARCH_AARCH64] = {F_NEON, F_SVE, "", NULL},
    [SN_ARCH_RISCV64] = {F_RVV, F_RVV, "+m,+a,+f,+d,+c", "lp64d"},
    [SN_ARCH_WASM32] = {F_RELAXED_SIMD, F_RELAXED_SIMD,
                        "+simd128,+bulk-memory,+nontrapping-fptoint,+sign-ext,+mutable-globals",
                        NULL},
};

const sn_system_facts *sn_target_system(const sn_target *t) {
    return &systems[t->system];
}

bool sn_target_allows(const sn_target *t, unsigned uses, sn_error *err) {
    static const char *const names[] = {"--archive",       "--shared",         "--exe",
                                        "--static",        "--embed-weights",  "--page",
                                        "a second target", "--threads workers"};
    const sn_system_facts *s = &systems[t->system];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (uses & s->refuses & 1u << i)
            return sn_fail(err, SN_ERR_USAGE, "target '%s' (%s) excludes %s: %s", t->name, s->name,
                           names[i], s->instead);
    return true;
}

const char *sn_target_known(size_t i) {
    return i == 0 ? "native" : i <= N_CPUS ? cpus[i - 1].name : NULL;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Levenshtein distance of names up to 63 characters; longer ones are cut. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[64], n = least(strlen(b), 63), m = least(strlen(a), 63);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t up = row[j], swap = diagonal + (a[i - 1] != b[j - 1]);
            row[j] = least(swap, least(up, row[j - 1]) + 1);
            diagonal = up;
        }
    }
    return row[n];
}

/* Reports an unknown target with the three nearest. */
static bool fail_unknown(sn_error *err, const char *name) {
    const char *best[3] = {"", "", ""};
    size_t dist[3] = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
    for (size_t i = 0; sn_target_known(i); i++) {
        size_t d = edit_distance(name, sn_target_known(i)), k = 3;
        while (k > 0 && d < dist[k - 1]) k--;
        if (k == 3) continue;
        memmove(best + k + 1, best + k, (2 - k) * sizeof *best);
        memmove(dist + k + 1, dist + k, (2 - k) * sizeof *dist);
        best[k] = sn_target_known(i);
        dist[k] = d;
    }
    return sn_fail(err, SN_ERR_TARGET,
                   "unknown target '%s'; the nearest are %s, %s and %s (give native, a CPU name, a "
                   "level such as "
                   "x86-64-v3, or wasm32; for another system than Linux x86-64-v3,os=windows or "
                   "apple-m1,os=macos)",
                   name, best[0], best[1], best[2]);
}

static int find_feature(const char *name) {
    for (int i = 0; i < F_COUNT; i++)
        if (!strcmp(name, features[i].name)) return i;
    return -1;
}

/* Adds what the members imply, until nothing changes. */
static uint64_t close_features(uint64_t set) {
    for (uint64_t before = 0; before != set;) {
        before = set;
        for (int i = 0; i < F_COUNT; i++)
            if (set >> i & 1) set |= features[i].implies;
    }
    return set;
}

/* Removes feature f and everything that implies it. */
static uint64_t remove_feature(uint64_t set, int f) {
    for (int i = 0; i < F_COUNT; i++)
        if (set >> i & 1 && close_features(UINT64_C(1) << i) >> f & 1) set &= ~(UINT64_C(1) << i);
    return set;
}

/* Register state that the operating system saves (XCR0), or all ones where there is no such thing.
 * LLVM looks too; this is the line of defence that does not depend on its version. */
static uint64_t saved_register_state(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
#else
    return ~UINT64_C(0);
#endif
}

static const struct {
    uint64_t state; /* bits of XCR0 that must all be set */
    int feature;
} needs_state[] = {{0x6, F_AVX}, {0xe6, F_AVX512F}, {0x60006, F_AMX_TILE}};

/* The host's features as a set; their LLVM spelling goes to `text` if that is not NULL. */
static uint64_t host_features(char *text, size_t size) {
    char *all = LLVMGetHostCPUFeatures(), *save = NULL;
    uint64_t set = 0, state = saved_register_state();
    if (text) snprintf(text, size, "%s", all);
    for (char *f = strtok_r(all, ",", &save); f; f = strtok_r(NULL, ",", &save)) {
        int i = find_feature(f + 1);
        if (i >= 0 && f[0] == '+') set |= UINT64_C(1) << i;
    }
    LLVMDisposeMessage(all);
    for (size_t i = 0; i < sizeof needs_state / sizeof needs_state[0]; i++) {
        if ((state & needs_state[i].state) == needs_state[i].state) continue;
        int f = needs_state[i].feature;
        set = remove_feature(set, f);
        if (text) {
            size_t n = strlen(text);
            snprintf(text + n, size - n, ",-%s", features[f].name);
        }
    }
#if defined(__aarch64__)
    set |= BIT(NEON);
#endif
    return set;
}

static bool init_native(sn_target *t, sn_error *err) {
    char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName();
    snprintf(t->triple, sizeof t->triple, "%s", triple);
    snprintf(t->cpu, sizeof t->cpu, "%s", cpu);
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
#if defined(__x86_64__)
    t->arch = SN_ARCH_X86_64;
#elif defined(__aarch64__)
    t->arch = SN_ARCH_AARCH64;
#else
    return sn_fail(err, SN_ERR_TARGET,
                   "unsupported host CPU %s: give --target to compile for another one", t->triple);
#endif
    (void)err;
    t->feature_set = host_features(t->features, sizeof t->features - 256);
    t->caches = (sn_caches){.l1 = 32 << 10, .l2 = 512 << 10, .l3 = 1 << 20};
    sn_caches_host(&t->caches);
    return true;
}

static bool init_named(sn_target *t, const char *name, sn_error *err) {
    for (size_t i = 0; i < N_CPUS; i++)
        if (!strcmp(name, cpus[i].name)) {
            t->arch = cpus[i].arch;
            t->feature_set = close_features(cpus[i].set);
            const char *cpu = cpus[i].cpu ? cpus[i].cpu : cpus[i].name;
            const bool arm = t->arch == SN_ARCH_AARCH64;
            snprintf(t->cpu, sizeof t->cpu, "%s", arm ? "generic" : cpu);
            snprintf(t->tune, sizeof t->tune, "%s", arm ? cpu : "");
            t->system = t->arch == SN_ARCH_WASM32 ? SN_BROWSER : SN_LINUX;
            snprintf(t->triple, sizeof t->triple, "%s", systems[t->system].triple[t->arch]);
            snprintf(t->features, sizeof t->features, "%s", archs[t->arch].base);
            t->caches = (sn_caches){.l1 = (int64_t)cpus[i].kib.l1 << 10,
                                    .l2 = (int64_t)cpus[i].kib.l2 << 10,
                                    .l3 = (int64_t)cpus[i].kib.l3 << 10};
            return true;
        }
    return fail_unknown(err, name);
}

static bool append_feature(sn_target *t, const char *signed_name, sn_error *err) {
    size_t n = strlen(t->features);
    int k = snprintf(t->features + n, sizeof t->features - n, "%s%s", n ? "," : "", signed_name);
    if (k < 0 || (size_t)k >= sizeof t->features - n)
        return sn_fail(err, SN_ERR_TARGET, "target '%s': the feature list is too long", t->name);
    return true;
}

static bool set_system(sn_target *t, const char *name, sn_error *err) {
    for (int i = 0; i < N_SYSTEMS; i++) {
        const char *triple = systems[i].triple[t->arch];
        if (strcmp(systems[i].name, name) || !triple) continue;
        if (t->system != (sn_system)i) snprintf(t->triple, sizeof t->triple, "%s", triple);
        t->system = (sn_system)i;
        return true;
    }
    char known[80] = "";
    for (int i = 0; i < N_SYSTEMS; i++)
        if (systems[i].triple[t->arch])
            snprintf(known + strlen(known), sizeof known - strlen(known), " %s", systems[i].name);
    return sn_fail(err, SN_ERR_TARGET, "target '%s': no system '%s' for this CPU; there is%s",
                   t->name, name, known);
}

static bool fail_feature(const sn_target *t, const char *name, sn_error *err) {
    char known[400] = "";
    for (int i = archs[t->arch].first; i <= archs[t->arch].last; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", features[i].name);
    return sn_fail(err, SN_ERR_TARGET,
                   "target '%s': '%s' is not a feature of this architecture; known are%s "
                   "(+name adds one, -name removes one)",
                   t->name, name, known);
}

/* Vectors are those of SVE, of this many bits: code for one length only, as for AVX. */
static bool set_sve(sn_target *t, const char *bits, sn_error *err) {
    const bool wide = !strcmp(bits, "512");
    if (t->arch != SN_ARCH_AARCH64 || (!wide && strcmp(bits, "256")))
        return sn_fail(
            err, SN_ERR_TARGET,
            "target '%s': kernels for AArch64 use vectors of SVE with sve=256 or sve=512, "
            "and else those of NEON (128 bits)",
            t->name);
    t->sve_bytes = wide ? 64 : 32;
    t->feature_set = close_features(t->feature_set | BIT(SVE));
    return append_feature(t, "+sve", err);
}

/* One "+name", "-name", "l2=SIZE", "sve=BITS" or "os=NAME" of the user. */
static bool apply_feature(sn_target *t, const char *f, sn_error *err) {
    if (!strncmp(f, "os=", 3)) return set_system(t, f + 3, err);
    if (!strncmp(f, "sve=", 4)) return set_sve(t, f + 4, err);
    if (strchr(f, '=')) return sn_caches_set(&t->caches, f, err);
    if (f[0] != '+' && f[0] != '-')
        return sn_fail(
            err, SN_ERR_TARGET,
            "target '%s': a feature starts with + or -, such as x86-64-v3,+avxvnni; got '%s'",
            t->name, f);
    int i = find_feature(f + 1);
    if (i < archs[t->arch].first || i > archs[t->arch].last) return fail_feature(t, f + 1, err);
    if (i == F_NEON && f[0] == '-')
        return sn_fail(err, SN_ERR_TARGET, "target '%s': all code for AArch64 uses neon", t->name);
    if (f[0] == '+')
        t->feature_set = close_features(t->feature_set | UINT64_C(1) << i);
    else
        t->feature_set = remove_feature(t->feature_set, i);
    return append_feature(t, f, err);
}

static void derive_facts(sn_target *t) {
    uint64_t s = t->feature_set;
    bool arm = t->arch == SN_ARCH_AARCH64;
    t->has_avx2 = s & BIT(AVX2);
    t->has_avx512 = (s & AVX512) == AVX512;
    bool wasm = t->arch == SN_ARCH_WASM32;
    t->has_fma = s & (BIT(FMA) | BIT(RELAXED_SIMD)) || arm || t->arch == SN_ARCH_RISCV64;
    t->has_f16c = arm || s & BIT(F16C);
    t->has_fp16 = s & (BIT(AVX512FP16) | BIT(FULLFP16));
    t->has_bf16 = s & (BIT(AVX512BF16) | BIT(BF16));
    t->slow_bf16 = s & BIT(AMX_BF16); /* vdpbf16ps has half the rate of f32 there */
    t->has_vnni = t->has_avx512 ? s & BIT(AVX512VNNI) : s & (BIT(AVXVNNI) | BIT(I8MM));
    if (!(s & BIT(SVE))) t->sve_bytes = 0;
    t->vector_bytes = t->has_avx512 ? 64 : s & BIT(AVX) ? 32 : t->sve_bytes ? t->sve_bytes : 16;
    /* engines run wasm32 on both kinds of CPUs: 16 registers suit either */
    t->vector_regs = (t->arch != SN_ARCH_X86_64 && !wasm) || t->has_avx512 ? 32 : 16;
}

bool sn_target_take_amx(sn_target *t) {
#if defined(__x86_64__) && defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl(2) */
    t->amx = t->has_avx512 && t->feature_set & BIT(AMX_BF16) &&
             syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#endif
    return t->amx;
}

bool sn_target_multiplies_bytes(const sn_target *t) {
    return t->has_vnni || t->has_avx2;
}

/* AArch64, but for "native": each feature that our set has, and what goes with it, and no other. */
static bool list_features(sn_target *t, sn_error *err) {
    const int first = archs[t->arch].first, last = archs[t->arch].last;
    char one[40];
    t->features[0] = 0;
    for (int i = first; i <= last; i++) {
        snprintf(one, sizeof one, "%c%s", t->feature_set >> i & 1 ? '+' : '-', features[i].name);
        if (!append_feature(t, one, err)) return false;
    }
    return !(t->feature_set & BIT(DOTPROD)) || append_feature(t, "+lse,+rdm,+rcpc", err);
}

bool sn_target_init(sn_target *t, const char *spec, sn_error *err) {
    *t = (sn_target){0};
    if (!spec) spec = "native";
    if (strlen(spec) >= sizeof t->name)
        return sn_fail(err, SN_ERR_TARGET, "target '%.40s...': longer than %zu characters", spec,
                       sizeof t->name - 1);
    snprintf(t->name, sizeof t->name, "%s", spec);
    char list[sizeof t->name], *save = NULL;
    snprintf(list, sizeof list, "%s", spec);
    char *name = strtok_r(list, ",", &save);
    if (!name) name = list;
    bool ok = !strcmp(name, "native") ? init_native(t, err) : init_named(t, name, err);
    for (char *f; ok && (f = strtok_r(NULL, ",", &save));) ok = apply_feature(t, f, err);
    if (ok && *t->tune) ok = list_features(t, err);
    if (!ok) return false;
    derive_facts(t);
    t->bitcode = t->system != SN_LINUX;
    /* LLVM knows 512-bit registers only of CPUs that have them: a feature list must name them, too. */
    if (*SN_LLVM_EVEX512 && t->feature_set & BIT(AVX512F) && strcmp(name, "native") &&
        !append_feature(t, SN_LLVM_EVEX512, err))
        return false;
    /* Some CPUs are tuned to split 512-bit vectors; ours are as wide as they should be. */
    return !t->has_avx512 || append_feature(t, "-prefer-256-bit", err);
}

/* Whether the part at s, up to the next comma, says more about the target before it: a feature, which
 * begins with a sign, the size of a cache, a length of vectors, or a system. */
static bool is_addition(const char *s) {
    return *s == '+' || *s == '-' || memchr(s, '=', strcspn(s, ","));
}

bool sn_target_take(sn_target *t, const char **list, sn_error *err) {
    char spec[sizeof t->name];
    size_t n = 0;
    do {
        if (n) n++; /* the comma */
        n += strcspn(*list + n, ",");
    } while ((*list)[n] && is_addition(*list + n + 1));
    if (n >= sizeof spec)
        return sn_fail(err, SN_ERR_TARGET, "target '%.40s...' is too long", *list);
    memcpy(spec, *list, n);
    spec[n] = 0;
    *list += n + ((*list)[n] == ',');
    return sn_target_init(t, spec, err);
}

/* Bytes of SVE's registers; 0: not known. */
static int host_sve_bytes(void) {
#if defined(__aarch64__) && defined(__linux__)
    int vl = prctl(PR_SVE_GET_VL);
    return vl < 0 ? 0 : vl & PR_SVE_VL_LEN_MASK;
#else
    return 0;
#endif
}

bool sn_target_runs_here(const sn_target *t) {
    sn_target host;
    sn_error err = {0};
    if (!sn_target_init(&host, "native", &err) || host.arch != t->arch || host.system != t->system)
        return false;
    if (t->sve_bytes && t->sve_bytes != host_sve_bytes()) return false;
    return !(t->feature_set & ~host.feature_set & ~BIT(PREFER_256));
}

bool sn_target_has(const sn_target *t, const char *feature) {
    int f = find_feature(feature);
    return f >= 0 && t->feature_set >> f & 1;
}

const char *sn_target_abi(const sn_target *t) {
    return archs[t->arch].abi;
}

int sn_target_lanes(const sn_target *t, sn_dtype dtype) {
    return t->vector_bytes / (int)sn_dtype_size(dtype);
}

/* Passes register themselves in LLVM's global tables when code is first generated. */
static void compile_nothing(LLVMTargetMachineRef tm) {
    LLVMContextRef ctx = LLVMContextCreate();
    LLVMModuleRef mod = LLVMModuleCreateWithNameInContext("nothing", ctx);
    LLVMMemoryBufferRef object = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(tm, mod, LLVMObjectFile, &message, &object))
        LLVMDisposeMessage(message);
    else
        LLVMDisposeMemoryBuffer(object);
    LLVMDisposeModule(mod);
    LLVMContextDispose(ctx);
}

static void start_llvm(void) {
    LLVMInitializeAllTargetInfos();
    LLVMInitializeAllTargets();
    LLVMInitializeAllTargetMCs();
    LLVMInitializeAllAsmPrinters();
    LLVMInitializeAllAsmParsers();
    char *triple = LLVMGetDefaultTargetTriple(), *message = NULL;
    LLVMTargetRef target;
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
        LLVMDisposeMessage(message);
    } else {
        LLVMTargetMachineRef tm = LLVMCreateTargetMachine(
            target, triple, "", "", LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelSmall);
        if (tm) compile_nothing(tm);
        if (tm) LLVMDisposeTargetMachine(tm);
    }
    LLVMDisposeMessage(triple);
}

bool sn_llvm_start(sn_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool started;
    pthread_mutex_lock(&lock);
    bool fits = started || sn_memory_available() >= START_BYTES;
    if (!started && fits) start_llvm();
    started |= fits;
    pthread_mutex_unlock(&lock);
    return fits || sn_fail(err, SN_ERR_MEMORY, "out of memory: LLVM needs %d MiB to start",
                           START_BYTES >> 20);
}

LLVMTargetMachineRef sn_target_machine(const sn_target *t, bool optimise, sn_error *err) {
    if (!sn_llvm_start(err)) return NULL;
    LLVMTargetRef target = NULL;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(t->triple, &target, &message)) {
        sn_fail(err, SN_ERR_TARGET, "this build's LLVM cannot generate code for %s: %s", t->triple,
                message);
        LLVMDisposeMessage(message);
        return NULL;
    }
    LLVMTargetMachineRef tm = LLVMCreateTargetMachine(
        target, t->triple, t->cpu, t->features,
        optimise && !sn_debug_get()->quick ? LLVMCodeGenLevelAggressive : LLVMCodeGenLevelNone,
        t->arch == SN_ARCH_WASM32 ? LLVMRelocStatic : LLVMRelocPIC, LLVMCodeModelSmall);
    if (!tm)
        sn_fail(err, SN_ERR_TARGET, "LLVM has no target machine for %s, %s", t->triple, t->cpu);
    return tm;
}
