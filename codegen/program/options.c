/* options.c: what sn_options may say: each value by itself, and as a table what
 * contradicts what. */
#include "codegen/jit/cache.h"
#include "codegen/backend.h"
#include "codegen/program/program.h"
#include "passes/cache.h"

#include <string.h>

/* What an option asks for, as far as something else may stand against it. */
enum {
    NARROW = 1,
    ONEDNN = 2,
    TUNE = 4,
    NO_CACHE = 8,
    STRICT = 16,
    LEVEL_0 = 32,
    CHECKED = 64,
    AHEAD = 128, /* for sn_emit */
    BF16_BETWEEN = 256,
    INT8_COMPUTE = 512,
    WIDE_WEIGHTS = 1024,
    PLAN = 2048,
    ACCEPT = 4096,
    LENIENT = 8192,
    INVARIANT = 16384,
    CHUNK = 32768,
    UNFUSED_ATTENTION = 65536,
    NO_PASS = 131072, /* the pass `invariant` is off */
    UNORDERED = 262144
};

static const char *const arithmetics[] = {"f32", "bf16", "bf16-unordered", "int8", NULL};

static const struct {
    unsigned both;
    const char *message;
} conflicts[] = {
    {NARROW | ONEDNN, "weights of bf16, int8 or int4 with backend 'onednn': its products take "
                      "weights of f32 only; choose backend native or auto, or weights f32"},
    {INT8_COMPUTE | WIDE_WEIGHTS,
     "compute 'int8' with weights f32 or bf16: its products read weights of 8 bits; choose weights "
     "int8 or stored, or compute f32"},
    {INT8_COMPUTE | ONEDNN,
     "compute 'int8' with backend 'onednn': its products are of f32 or bf16; "
     "choose backend native or auto, or compute f32 or bf16"},
    {BF16_BETWEEN | ONEDNN, "precision 'bf16' with backend 'onednn': its primitives read and write "
                            "f32 only; choose backend native or auto, or precision f32"},
    {TUNE | NO_CACHE,
     "tune without a disk cache: choices are stored there; use a cache folder, or omit tune"},
    {TUNE | ONEDNN, "tune with backend 'onednn': there is nothing to choose; use backend auto or "
                    "native, or leave tune out"},
    {STRICT | LEVEL_0,
     "strict fusion at level 0: that level fuses nothing; use level 1 to 4, or omit strict fusion"},
    {ACCEPT | LENIENT,
     "accept without strict fusion: it says what that lets pass; add strict fusion, or omit it"},
    {INVARIANT | ONEDNN,
     "invariant with backend 'onednn': how its primitives sum is not known; choose "
     "native or auto, which is native then"},
    {INVARIANT | UNORDERED,
     "invariant with compute 'bf16-unordered': a row's sums have any order; choose bf16"},
    {CHUNK | UNFUSED_ATTENTION,
     "invariant 'chunk' below level 3: its kernels sum over the keys in an order that "
     "depends on their number; use level 3 or 4"},
    {INVARIANT | NO_PASS,
     "invariant without the pass of that name: it tells the kernels; leave the pass on"},
    {AHEAD | ONEDNN,
     "backend 'onednn' ahead of time: a deployed program has no oneDNN; choose native"},
    {AHEAD | TUNE, "tune ahead of time: nothing is run, so nothing is measured; tune a session of "
                   "the same program first, with backend native: its choices are taken"},
    {AHEAD | PLAN, "plan_only ahead of time: there would be no code to write; leave it out"},
    {AHEAD | CHECKED, "check_nan or check_index ahead of time: a deployed program cannot report "
                      "them; check in a session"},
};

static bool one_of(const char *s, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(s, *list)) return true;
    return false;
}

/* Is the pass in a list as "-name,-name"? */
static bool is_off(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *s = list; s && *s;) {
        s += strspn(s, "-, +");
        size_t len = strcspn(s, ", +");
        if (len == n && !strncmp(s, name, n)) return true;
        s += len;
    }
    return false;
}

/* Without these there would be nothing to make code of. */
static bool check_passes(const char *list, sn_error *err) {
    if (!is_off(list, "expand") && !is_off(list, "fuse")) return true;
    return sn_fail(err, SN_ERR_USAGE,
                   "passes '%s': without expand and fuse there are no kernels; level 0 fuses the "
                   "least",
                   list);
}

/* The sum of SN_INVARIANT_ of a list such as "batch,chunk"; -1: it names something else. */
static int invariants(const char *list) {
    static const char *const names[] = {"batch", "chunk"};
    int sum = 0;
    for (const char *s = list; s && *s;) {
        size_t n = strcspn(s, ","), i = 0;
        while (i < 2 && (strlen(names[i]) != n || strncmp(s, names[i], n) != 0)) i++;
        if (i == 2) return -1;
        sum |= i ? SN_INVARIANT_BATCH | SN_INVARIANT_CHUNK : SN_INVARIANT_BATCH;
        if (s[n] && !s[n + 1]) return -1; /* "batch," */
        s += n + (s[n] == ',');
    }
    return sum;
}

int sn_options_invariant(const sn_options *o) {
    return invariants(o->invariant);
}

static bool check_values(const sn_options *o, sn_error *err) {
    static const char *const backends[] = {"auto", "native", "onednn", NULL};
    if (!sn_level_exists(o->level))
        return sn_fail(err, SN_ERR_USAGE, "fusion level %d: levels are 0 to %d, or -1 for %d",
                       o->level, SN_LEVEL_HIGHEST, SN_LEVEL_HIGHEST);
    if (o->threads < 0 || o->threads > SN_MAX_THREADS)
        return sn_fail(err, SN_ERR_USAGE, "%d threads: the maximum is %d; 0: all available",
                       o->threads, SN_MAX_THREADS);
    if (o->memory_budget < 0)
        return sn_fail(err, SN_ERR_USAGE, "memory budget %lld: it must not be negative",
                       (long long)o->memory_budget);
    if (o->n_taps < 0 || (o->n_taps && !o->taps))
        return sn_fail(err, SN_ERR_USAGE, "%d taps%s: give a list and its length", o->n_taps,
                       o->taps ? "" : " without their names");
    for (int i = 0; i < o->n_taps; i++)
        if (!o->taps[i]) return sn_fail(err, SN_ERR_USAGE, "tap %d is NULL", i);
    if (o->backend && !one_of(o->backend, backends))
        return sn_fail(err, SN_ERR_USAGE, "backend '%s': choose auto, native or onednn",
                       o->backend);
    if (o->backend && strcmp(o->backend, "auto") && !sn_backend_find(o->backend))
        return sn_fail(err, SN_ERR_TARGET,
                       "backend 'onednn': this build has no oneDNN: install its headers and "
                       "library and configure with -DSN_ONEDNN=ON, or choose native");
    if (!check_passes(o->passes, err) || !check_passes(sn_debug_get()->off, err)) return false;
    if (o->weights && strcmp(o->weights, "f32") && !sn_quantise_knows(o->weights))
        return sn_fail(err, SN_ERR_USAGE, "weights '%s': choose f32, bf16, int8, int4 or stored",
                       o->weights);
    if (o->n_keep < 0 || (o->n_keep && !o->keep))
        return sn_fail(err, SN_ERR_USAGE, "%d matrices to keep%s: give a list and its length",
                       o->n_keep, o->keep ? "" : " without their names");
    for (int i = 0; i < o->n_keep; i++)
        if (!o->keep[i].param || (o->keep[i].weights && !sn_keep_knows(o->keep[i].weights)))
            return sn_fail(err, SN_ERR_USAGE,
                           "matrix %d to keep: it needs the name of a parameter and the weights "
                           "int4, int8, bf16, f32 or none",
                           i);
    if (o->compute && !one_of(o->compute, arithmetics))
        return sn_fail(err, SN_ERR_USAGE,
                       "compute '%s': choose f32, bf16, bf16-unordered or int8; sn_choose_compute "
                       "decides auto",
                       o->compute);
    if (invariants(o->invariant) < 0)
        return sn_fail(err, SN_ERR_USAGE, "invariant '%s': choose batch, chunk or batch,chunk",
                       o->invariant);
    if (o->cache && strcmp(o->cache, "f32") && !sn_cache_knows(o->cache))
        return sn_fail(err, SN_ERR_USAGE, "cache '%s': choose f32, bf16 or int8", o->cache);
    if (o->precision && strcmp(o->precision, "f32") && !sn_narrow_knows(o->precision))
        return sn_fail(err, SN_ERR_USAGE, "precision '%s': choose f32 or bf16", o->precision);
    return true;
}

static bool check_conflicts(const sn_options *o, unsigned facts, sn_error *err) {
    if (o->weights && strcmp(o->weights, "f32") && strcmp(o->weights, "stored")) facts |= NARROW;
    if (o->weights && (!strcmp(o->weights, "f32") || !strcmp(o->weights, "bf16")))
        facts |= WIDE_WEIGHTS;
    if (sn_computes_int8(o)) facts |= INT8_COMPUTE;
    if (sn_computes_unordered(o)) facts |= UNORDERED;
    if (o->backend && !strcmp(o->backend, "onednn")) facts |= ONEDNN;
    if (o->precision && strcmp(o->precision, "f32")) facts |= BF16_BETWEEN;
    if (o->tune) facts |= TUNE;
    if (sn_cache_is_off(o->cache_dir)) facts |= NO_CACHE;
    facts |= o->strict_fusion ? STRICT : LENIENT;
    if (o->accept) facts |= ACCEPT;
    if (sn_options_invariant(o)) facts |= INVARIANT;
    if (is_off(o->passes, "invariant")) facts |= NO_PASS;
    if (sn_options_invariant(o) & SN_INVARIANT_CHUNK) facts |= CHUNK;
    if (!sn_level_reaches(sn_level_or_highest(o->level), SN_LEVEL_ATTENTION))
        facts |= UNFUSED_ATTENTION;
    if (!sn_level_fuses(sn_level_or_highest(o->level))) facts |= LEVEL_0;
    if (o->check_nan || o->check_index) facts |= CHECKED;
    if (o->plan_only) facts |= PLAN;
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++)
        if ((facts & conflicts[i].both) == conflicts[i].both)
            return sn_fail(err, SN_ERR_USAGE, "%s", conflicts[i].message);
    return true;
}

bool sn_computes_int8(const sn_options *o) {
    return o->compute && !strcmp(o->compute, "int8");
}

bool sn_computes_bf16(const sn_options *o) {
    return o->compute && !strncmp(o->compute, "bf16", 4);
}

bool sn_computes_unordered(const sn_options *o) {
    return o->compute && !strcmp(o->compute, "bf16-unordered");
}

sn_options sn_options_default(void) {
    return (sn_options){.level = -1};
}

bool sn_options_check(const sn_options *o, sn_error *err) {
    return check_values(o, err) && check_conflicts(o, 0, err);
}

bool sn_options_check_ahead(const sn_options *o, sn_error *err) {
    return check_values(o, err) && check_conflicts(o, AHEAD, err);
}
