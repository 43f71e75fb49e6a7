/* rope_scaling.c: rotary frequencies of long contexts: linear [Chen et al. 2023], dynamic, Llama 3,
 * YaRN [Peng et al. 2023] and longrope [Ding et al. 2024], with Hugging Face's config keys. */
#include "frontend/rope_scaling.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

typedef struct section {
    sn_config *c;
    const rope_shape *shape;
    double base;
    int64_t original; /* the context of the first training */
    int64_t *context;
    rope_scaling *out;
} section;

static int pairs_of(const section *s) {
    return (int)(s->shape->width / 2);
}

static double factor_of(const section *s) {
    return sn_config_float(s->c, "factor", 1, 1e6);
}

static void scale_none(const section *s) {
    s->out->scaled = false;
}

static void scale_linear(const section *s) {
    double factor = factor_of(s);
    for (int i = 0; i < pairs_of(s); i++) s->out->freq[i] /= factor;
}

/* Up to the config's context the frequencies are the plain ones. */
static void scale_dynamic(const section *s) {
    factor_of(s);
    s->out->scaled = false;
}

/* Long wavelengths are stretched, short ones stay, those between are interpolated. */
static void scale_llama3(const section *s) {
    double factor = factor_of(s), low = sn_config_float(s->c, "low_freq_factor", 1e-3, 1e6),
           high = sn_config_float(s->c, "high_freq_factor", 1e-3, 1e6);
    for (int i = 0; i < pairs_of(s); i++) {
        double f = s->out->freq[i], rotations = (double)s->original * f / (2 * pi);
        double smooth = fmin(fmax((rotations - low) / (high - low), 0), 1);
        s->out->freq[i] = (1 - smooth) * f / factor + smooth * f;
    }
}

/* The pair that makes `rotations` rotations in the first context. */
static double yarn_pair(const section *s, double rotations) {
    return (double)s->shape->width * log((double)s->original / (rotations * 2 * pi)) /
           (2 * log(s->base));
}

static double yarn_scale(double factor, double m) {
    return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

static void scale_yarn(const section *s) {
    double factor = factor_of(s), fast = sn_config_float_or(s->c, "beta_fast", 32, 1e-3, 1e6),
           slow = sn_config_float_or(s->c, "beta_slow", 1, 1e-3, 1e6);
    double low = yarn_pair(s, fast), high = yarn_pair(s, slow);
    if (sn_config_bool_or(s->c, "truncate", true)) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)s->shape->width - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < pairs_of(s); i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1), f = s->out->freq[i];
        s->out->freq[i] = ramp * f / factor + (1 - ramp) * f;
    }
    double m = sn_config_float_or(s->c, "mscale", 0, 0, 1e6),
           all = sn_config_float_or(s->c, "mscale_all_dim", 0, 0, 1e6);
    double usual =
        m > 0 && all > 0 ? yarn_scale(factor, m) / yarn_scale(factor, all) : yarn_scale(factor, 1);
    s->out->scale = sn_config_float_or(s->c, "attention_factor", usual, 1e-6, 1e6);
}

/* One factor per pair, from one of two lists. The default context is that of the first training; a
 * longer one, where requested, uses the long factors for texts of any length. */
static void scale_longrope(const section *s) {
    double factor[MAX_ROTARY_PAIRS], other[MAX_ROTARY_PAIRS];
    bool is_long = s->shape->used > s->original;
    size_t n = (size_t)pairs_of(s);
    size_t n_long =
               sn_config_float_list(s->c, "long_factor", is_long ? factor : other, n, 1e-3, 1e6),
           n_short =
               sn_config_float_list(s->c, "short_factor", is_long ? other : factor, n, 1e-3, 1e6);
    if (n_long != n || n_short != n)
        sn_config_problem(s->c, "\"long_factor\" and \"short_factor\" need %zu numbers each", n);
    for (size_t i = 0; i < n && n_long == n && n_short == n; i++) s->out->freq[i] /= factor[i];
    double stretch = sn_config_float_or(s->c, "factor",
                                        (double)s->shape->context / (double)s->original, 1e-3, 1e6);
    double usual = stretch > 1 ? sqrt(1 + log(stretch) / log((double)s->original)) : 1;
    s->out->scale = sn_config_float_or(s->c, "attention_factor", usual, 1e-6, 1e6);
    if (!s->shape->used) *s->context = s->original;
}

static const char *const types[] = {"default", "linear",   "dynamic", "llama3",
                                    "yarn",    "longrope", "su",      NULL};
static void (*const scalings[])(const section *) = {scale_none,    scale_linear, scale_dynamic,
                                                    scale_llama3,  scale_yarn,   scale_longrope,
                                                    scale_longrope};
static const char *const known[] = {"rope_type",
                                    "type",
                                    "rope_theta",
                                    "factor",
                                    "low_freq_factor",
                                    "beta_fast",
                                    "beta_slow",
                                    "high_freq_factor",
                                    "long_factor",
                                    "short_factor",
                                    "mscale",
                                    "truncate",
                                    "mscale_all_dim",
                                    "finetuned",
                                    "attention_factor",
                                    "original_max_position_embeddings",
                                    "partial_rotary_factor",
                                    "mrope_interleaved", /* of pictures: in texts the three */
                                    "mrope_section",     /* positions of a token are equal */
                                    NULL};

double rope_rotary_part(sn_config *c, double usual) {
    sn_config *rope = sn_config_section(c, "rope_parameters");
    if (rope) usual = sn_config_float_or(rope, "partial_rotary_factor", usual, 0, 1);
    sn_config_free(rope);
    return usual;
}

/* Where layers with and without a window have a section each: the latter; notes the base of the
 * former. */
static sn_config *without_window(sn_config *rope, rope_scaling *out) {
    static const char *const plain[] = {"default", NULL};
    sn_config *local = sn_config_section(rope, "sliding_attention"),
              *global = sn_config_section(rope, "full_attention");
    sn_error err = {0};
    if (local && global) {
        sn_config_choice_or(local, "rope_type", plain, 0);
        out->local_base = sn_config_float(local, "rope_theta", 1, 1e12);
        if (!sn_config_check(local, &err)) sn_config_problem(global, "%s", err.message);
    }
    sn_config_free(local);
    sn_config_free(rope);
    return global;
}

void rope_scaling_read(sn_config *c, const rope_shape *shape, double *base, int64_t *context,
                       rope_scaling *out) {
    *out = (rope_scaling){.scale = 1};
    int64_t outer =
        sn_config_int_or(c, "original_max_position_embeddings", shape->context, 2, 1 << 24);
    const char *key = sn_config_has(c, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    if (!sn_config_has(c, key)) return;
    sn_config *rope = sn_config_section(c, key);
    if (rope && sn_config_has(rope, "full_attention")) rope = without_window(rope, out);
    if (!rope) return;
    sn_config_only(rope, known);
    *base = sn_config_float_or(rope, "rope_theta", *base, 1, 1e12);
    section s = {.c = rope, .shape = shape, .base = *base, .context = context, .out = out};
    s.original = sn_config_int_or(rope, "original_max_position_embeddings", outer, 2, 1 << 24);
    bool old = !sn_config_has(rope, "rope_type") && sn_config_has(rope, "type");
    int type = sn_config_choice_or(rope, old ? "type" : "rope_type", types, 0);
    if (!strcmp(key, "rope_scaling") && !old && !sn_config_has(rope, "rope_type"))
        sn_config_problem(rope, "\"rope_type\" is missing");
    if (shape->width / 2 > MAX_ROTARY_PAIRS)
        sn_config_problem(rope, "heads of %lld rotated elements are too wide to scale",
                          (long long)shape->width);
    sn_error err = {0};
    out->scaled = true;
    for (int i = 0; i < pairs_of(&s) && i < MAX_ROTARY_PAIRS; i++)
        out->freq[i] = pow(s.base, -2.0 * i / (double)shape->width);
    if (sn_config_check(rope, NULL)) scalings[type](&s);
    if (!sn_config_check(rope, &err)) sn_config_problem(c, "%s", err.message);
    sn_config_free(rope);
}

/* The frequencies as a tensor [pairs]: one kernel that selects by the index. */
static sn_tensor frequencies(sn_module *m, int64_t pairs, const double *freq) {
    sn_tensor i = sn_arange(m, SN_I32, pairs), f = sn_full(m, SN_F32, freq[0], pairs);
    for (int64_t k = 1; k < pairs; k++) f = sn_where(sn_eq(i, (double)k), freq[k], f);
    return f;
}

sn_tensor rope_apply(sn_tensor x, sn_tensor pos, int64_t width, bool interleaved, double base,
                     const rope_scaling *r) {
    sn_module *m = sn_module_of(x);
    int64_t d = sn_dim_of(x, 3); /* a number */
    sn_tensor rotated = width < d ? sn_slice(x, 3, 0, width) : x;
    rotated = r->scaled ? sn_rope(rotated, pos, .halves = !interleaved,
                                  .freq = frequencies(m, width / 2, r->freq))
                        : sn_rope(rotated, pos, .halves = !interleaved, .base = base);
    if (r->scale != 1) rotated = sn_mul(rotated, r->scale);
    return width < d ? sn_concat(3, rotated, sn_slice(x, 3, width, d - width)) : rotated;
}
