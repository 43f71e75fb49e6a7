/* rates.c: which arithmetic of products is the faster. On this machine a GEMM of either arithmetic is
 * generated and timed, because a feature bit says that an instruction exists, not at which rate; for
 * other machines a table says what is known of CPUs with a feature. */
#include "codegen/program/rates.h"
#include "codegen/gemm/gemm.h"
#include "codegen/jit/jit.h"
#include "codegen/program/program.h"
#include "codegen/program/tune.h"
#include "runtime/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A product whose operands stay in L2, and how often each arithmetic computes it. */
enum { M = 112, N = 128, K = 512, ROUNDS = 12, KINDS = 3 /* f32, bf16, AMX */ };
static const double PAYS = 1.2, SAME = 1.05; /* bf16's rate over that of f32 */

static const struct {
    const char *feature;
    bool bf16;
    const char *why;
} rules[] = {
    /* the first row whose feature a target has; "": all others */
    {"amx-bf16", false, "CPUs with amx-bf16 have vdpbf16ps at half the rate of f32"},
    {"avx512bf16", true, "vdpbf16ps has twice the rate of f32 on AMD's CPUs"},
    {"", false, "it has no avx512bf16"},
};

bool sn_rates_pay(sn_rates r) {
    return r.bf16 >= PAYS * r.f32;
}

bool sn_rates_gain(sn_rates r) {
    return r.bf16 >= SAME * r.f32;
}

bool sn_rates_take_amx(sn_rates r) {
    return r.amx >= PAYS * fmax(r.f32, r.bf16);
}

/* ---- this machine ---- */

typedef struct trial {
    sn_jit *jit;
    int kinds;
    sn_kernel_fn *fn[KINDS];
    char *memory, *scratch;
    void *buf[3];
    double best[KINDS]; /* seconds */
} trial;

static bool add_product(trial *p, const sn_target *t, int kind, int64_t *scratch, sn_error *err) {
    static const char *const names[KINDS] = {"rate_f32", "rate_bf16", "rate_amx"};
    const bool bf16 = kind > 0;
    const em_size zero = EM_SIZE_CONST(0), one = EM_SIZE_CONST(1);
    const sn_gemm g = {
        .m = EM_SIZE_CONST(M),
        .n = EM_SIZE_CONST(N),
        .k = EM_SIZE_CONST(K),
        .a = {.dtype = SN_F32, .offset = zero, .row = EM_SIZE_CONST(K), .col = one},
        .b = {.buf = 1, .dtype = bf16 ? SN_BF16 : SN_F32, .offset = zero},
        .c = {.buf = 2, .dtype = SN_F32, .offset = zero, .row = EM_SIZE_CONST(N), .col = one},
        .b_packed = true,
        .bf16 = bf16};
    int64_t need = sn_gemm_scratch(&g, t, SN_F32);
    if (need > *scratch) *scratch = need;
    em e;
    LLVMModuleRef mod = NULL;
    if (em_init(&e, t, names[kind], SN_F32, err)) {
        sn_gemm_emit(&e, names[kind], &g);
        mod = em_finish(&e, err);
    }
    bool ok = mod && sn_jit_compile(p->jit, mod, NULL, err);
    em_free(&e);
    void *fn = ok ? sn_jit_lookup(p->jit, names[kind], err) : NULL;
    if (fn) memcpy(&p->fn[kind], &fn, sizeof fn);
    return fn != NULL;
}

static bool take_memory(trial *p, int64_t scratch, sn_error *err) {
    const size_t floats[3] = {M * K, (size_t)sn_gemm_packed_size(SN_F32, K, N), M * N};
    size_t bytes = 4 * (floats[0] + floats[1] + floats[2]);
    p->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    p->scratch = aligned_alloc(64, ((size_t)scratch + 127) / 64 * 64);
    if (!p->memory || !p->scratch) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    memset(p->memory, 0, bytes);
    p->buf[0] = p->memory;
    p->buf[1] = p->memory + 4 * floats[0];
    p->buf[2] = p->memory + 4 * (floats[0] + floats[1]);
    return true;
}

/* In alternation; the shortest time counts, because other load only lengthens it. */
static void time_products(trial *p) {
    for (int i = 0; i < p->kinds * (1 + ROUNDS); i++) { /* the first ones do not count */
        double start = sn_clock();
        p->fn[i % p->kinds](p->buf, NULL, p->scratch, 0, 1);
        double seconds = sn_clock() - start, *best = &p->best[i % p->kinds];
        if (i < 2 * p->kinds || seconds < *best) *best = seconds;
    }
}

static bool measure(const sn_target *t, sn_rates *out, sn_error *err) {
    sn_jit_symbol symbols[SN_JIT_MEMORY];
    sn_jit_memory(symbols);
    trial p = {.jit = sn_jit_create(
                   t, &(sn_jit_options){.symbols = symbols, .n_symbols = SN_JIT_MEMORY}, err)};
    int64_t scratch = 0;
    bool ok = p.jit != NULL;
    sn_target tiles = *t;
    p.kinds = sn_target_take_amx(&tiles) ? 3 : 2;
    for (int i = 0; ok && i < p.kinds; i++)
        ok = add_product(&p, i == 2 ? &tiles : t, i, &scratch, err);
    ok = ok && take_memory(&p, scratch, err);
    if (ok) time_products(&p);
    /* in tenths, as it is stored: who measures and who reads the store choose and say the same */
    double *const rate[KINDS] = {&out->f32, &out->bf16, &out->amx};
    for (int i = 0; ok && i < KINDS; i++)
        *rate[i] = i < p.kinds ? rint(2.0 * M * N * K * 1e-8 / p.best[i]) / 10 : 0;
    free(p.memory);
    free(p.scratch);
    if (p.jit) sn_jit_destroy(p.jit);
    return ok;
}

/* What was measured, in the form of choices (tune.c): "answer N of M: WHY", then what it is about. */
static const char stored[] = "answer %d of 2: f32 %lf, bf16 %lf, AMX %lf GFLOP/s\n%n";

bool sn_rates_measure(const sn_target *t, const char *cache_dir, sn_rates *out, sn_error *err) {
    char text[200], cpu[80], all[400];
    sn_read_cpu(cpu, sizeof cpu);
    snprintf(text, sizeof text, "rates of products of a thread\n%s\n", cpu);
    sn_cache *c = sn_cache_is_off(cache_dir) ? NULL : sn_cache_open(cache_dir, 0, NULL);
    sn_cache_key key = sn_cache_make_key(t, text, strlen(text));
    sn_object o;
    sn_target tiles = *t;
    int which, end = 0;
    bool ok = false, has_tiles = sn_target_take_amx(&tiles);
    if (sn_cache_get(c, SN_CACHE_CHOICE, key, &o)) {
        snprintf(all, sizeof all, "%.*s", (int)o.size, (const char *)o.data);
        ok = sscanf(all, stored, &which, &out->f32, &out->bf16, &out->amx, &end) == 4 && end &&
             !strcmp(all + end, text) && out->f32 > 0 && (out->amx > 0 || !has_tiles);
        if (!has_tiles) out->amx = 0; /* Linux may refuse a process what it gave another one */
        sn_object_free(&o);
    }
    if (!ok && (ok = measure(t, out, err))) {
        int n =
            snprintf(all, sizeof all, "answer %d of 2: f32 %.1f, bf16 %.1f, AMX %.1f GFLOP/s\n%s",
                     sn_rates_pay(*out), out->f32, out->bf16, out->amx, text);
        o = (sn_object){(uint8_t *)all, (size_t)n};
        sn_cache_put(c, SN_CACHE_CHOICE, key, &o);
    }
    sn_cache_close(c);
    return ok;
}

/* ---- the choice ---- */

bool sn_rates_rule(const sn_target *t, const char **why) {
    size_t i = 0;
    while (*rules[i].feature && !sn_target_has(t, rules[i].feature)) i++;
    *why = rules[i].why;
    return rules[i].bf16;
}

/* All targets of an artefact read the same packed weights, so one that rather computes in f32
 * decides. */
static bool choose_by_rule(sn_options *o, const char *list, char *note, size_t size,
                           sn_error *err) {
    o->compute = "bf16";
    while (*list) {
        sn_target t;
        const char *why;
        if (!sn_target_take(&t, &list, err)) return false;
        bool bf16 = sn_rates_rule(&t, &why);
        snprintf(note, size, "compute auto: %s, not measured; target %s: %s", bf16 ? "bf16" : "f32",
                 t.name, why);
        if (bf16) continue;
        o->compute = "f32";
        return true;
    }
    return true;
}

bool sn_choose_compute(sn_options *o, const char *targets, char *note, size_t size, sn_error *err) {
    const bool open = o->compute && !strcmp(o->compute, "auto"), any = sn_computes_unordered(o);
    const char *const given = o->compute;
    *note = 0;
    if (open && targets) return choose_by_rule(o, targets, note, size, err);
    if (any && targets) {
        o->compute = "bf16";
        snprintf(note, size, "compute bf16-unordered: as bf16, which other machines compute alike");
    }
    if (!open && (!sn_computes_bf16(o) || targets || o->plan_only)) return true;
    sn_target t;
    sn_rates r;
    if (!sn_target_init(&t, o->target, err)) return false;
    if (!sn_target_runs_here(&t)) return true; /* sn_compile says so */
    if (!sn_rates_measure(&t, o->cache_dir, &r, err)) return false;
    const bool amx = sn_rates_take_amx(r);
    if (!open && !any && sn_rates_gain(r)) return true;
    if (open) o->compute = sn_rates_pay(r) ? "bf16" : "f32";
    if (any && !amx) o->compute = "bf16";
    const char *what = open  ? o->compute
                       : any ? amx ? "AMX" : "as bf16"
                             : "not faster than f32 on this machine";
    int n = snprintf(note, size, "compute %s: %s: a thread has %.0f GFLOP/s in bf16, %.0f in f32",
                     given, what, r.bf16, r.f32);
    if (r.amx > 0)
        snprintf(note + n, size - (size_t)n, ", %.0f by AMX%s", r.amx,
                 any || !amx ? "" : " (bf16-unordered)");
    return true;
}
