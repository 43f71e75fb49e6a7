/* bench_mask.c: attention through the DSL with any mask or score function. */
#include "bench/benches.h"
#include "bench/graph_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usual[] = "1,12,1024,64 1,32,2048,128 8,12,128,64";

enum { UNFUSED = 2, FUSED = 4 }; /* levels that a sweep compares */
enum { NEAR = 3, DOCUMENT = 300, CHECKED_PRODUCTS = 100000000, MAX_TOKENS = 1 << 16 };
enum { CLIP = 64, EXACT = 8, FAR = 128 }; /* relative positions */

typedef struct spec {
    int64_t b, h, hk, t, d;
    const struct variant *variant;
    int64_t size;  /* of a window or prefix */
    bool backward; /* with the gradients of q, k and v */
} spec;

typedef struct variant {
    const char *name;
    sn_attention_args args;                                    /* window: 1 for the size */
    sn_tensor (*table)(sn_module *m, const spec *s, sn_dim T); /* captured[0]; NULL: none */
    bool (*sees)(const spec *s, int64_t q, int64_t k);         /* NULL: all */
    sn_tensor (*plain)(const sn_bench_plain *p); /* in plain operations; NULL: sn_attention */
    bool sized;                                  /* written as NAME:N */
    bool decode;                                 /* one query, which sees all keys */
    bool sink;
} variant;

static bool sees_causal(const spec *s, int64_t q, int64_t k) {
    (void)s;
    return k <= q;
}

static bool sees_window(const spec *s, int64_t q, int64_t k) {
    return k <= q && q - s->size < k;
}

static sn_tensor mask_prefix(const sn_score_ctx *c) {
    const spec *s = c->user;
    return sn_or(sn_le(c->k, c->q), sn_lt(c->k, (double)s->size));
}
static bool sees_prefix(const spec *s, int64_t q, int64_t k) {
    return k <= q || k < s->size;
}

/* Slopes 2^(-8 (h + 1) / H), as published. */
static sn_tensor score_alibi(const sn_score_ctx *c) {
    const spec *s = c->user;
    sn_tensor h = sn_cast(sn_add(c->h, 1), SN_F32), far = sn_cast(sn_sub(c->k, c->q), SN_F32);
    return sn_add(c->score, sn_mul(sn_exp2(sn_mul(h, -8.0 / (double)s->h)), far));
}

static sn_tensor score_softcap(const sn_score_ctx *c) {
    return sn_mul(sn_tanh(sn_mul(c->score, 1.0 / 30)), 30);
}

/* Weights without softmax: decay 0.99^(q - k) as in retention, sigmoid, squared ReLU. */
static sn_tensor weight_retention(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_query_key_distance(c), SN_F32);
    return sn_mul(c->score, sn_exp(sn_mul(far, log(0.99))));
}
static sn_tensor weight_sigmoid(const sn_score_ctx *c) {
    return sn_sigmoid(c->score);
}
static sn_tensor weight_relu2(const sn_score_ctx *c) {
    return sn_square(sn_relu(c->score));
}

static sn_tensor mask_documents(const sn_score_ctx *c) {
    return sn_eq(sn_at(c->captured[0], c->q), sn_at(c->captured[0], c->k));
}
static sn_tensor table_documents(sn_module *m, const spec *s, sn_dim T) {
    (void)s;
    return sn_input(m, "doc", SN_I32, T);
}
static bool sees_documents(const spec *s, int64_t q, int64_t k) {
    (void)s;
    return k <= q && q / DOCUMENT == k / DOCUMENT;
}

/* Every size-th key, counted back from the query. */
static sn_tensor mask_dilated(const sn_score_ctx *c) {
    const spec *s = c->user;
    sn_tensor back = sn_sub(c->q, c->k);
    return sn_and(sn_ge(back, 0), sn_eq(sn_mod(back, (double)s->size), 0));
}
static bool sees_dilated(const spec *s, int64_t q, int64_t k) {
    return k <= q && (q - k) % s->size == 0;
}

/* The last `size` keys, and before them every size-th one (Child et al. 2019, "strided"). */
static sn_tensor mask_strided(const sn_score_ctx *c) {
    const spec *s = c->user;
    sn_tensor back = sn_sub(c->q, c->k);
    sn_tensor column = sn_eq(sn_mod(back, (double)s->size), 0);
    return sn_and(sn_ge(back, 0), sn_or(sn_lt(back, (double)s->size), column));
}
static bool sees_strided(const spec *s, int64_t q, int64_t k) {
    return k <= q && (q - k < s->size || (q - k) % s->size == 0);
}

/* Blocks of `size` keys: the query's own block and the first one. */
static sn_tensor mask_blocks(const sn_score_ctx *c) {
    const spec *s = c->user;
    double n = (double)s->size;
    return sn_or(sn_eq(sn_div(c->q, n), sn_div(c->k, n)), sn_lt(c->k, n));
}
static bool sees_blocks(const spec *s, int64_t q, int64_t k) {
    return q / s->size == k / s->size || k < s->size;
}

/* Positions are pixels of an image of width `size`; visible keys are at most NEAR away in both
 * directions. */
static sn_tensor within(sn_tensor a, sn_tensor b) {
    sn_tensor d = sn_sub(a, b);
    return sn_and(sn_le(d, NEAR), sn_ge(d, -NEAR));
}
static sn_tensor mask_neighbours(const sn_score_ctx *c) {
    const spec *s = c->user;
    double n = (double)s->size;
    return sn_and(within(sn_div(c->q, n), sn_div(c->k, n)),
                  within(sn_mod(c->q, n), sn_mod(c->k, n)));
}
static bool sees_neighbours(const spec *s, int64_t q, int64_t k) {
    return llabs(q / s->size - k / s->size) <= NEAR && llabs(q % s->size - k % s->size) <= NEAR;
}

/* A table of random truth values: no tile can be skipped. */
static sn_tensor mask_dense(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->q, c->k);
}
static sn_tensor table_dense(sn_module *m, const spec *s, sn_dim T) {
    (void)s;
    return sn_input(m, "visible", SN_BOOL, T, T);
}
static bool sees_dense(const spec *s, int64_t q, int64_t k) {
    return sn_bench_truth(q * s->t + k);
}

static sn_tensor score_bias(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], c->q, c->k));
}
static sn_tensor table_bias(sn_module *m, const spec *s, sn_dim T) {
    (void)s;
    return sn_input(m, "bias", SN_F32, T, T);
}

/* One table per head: each is read once for every batch. */
static sn_tensor score_biases(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], c->h, c->q, c->k));
}
static sn_tensor table_biases(sn_module *m, const spec *s, sn_dim T) {
    return sn_input(m, "bias", SN_F32, s->h, T, T);
}

/* A learned number per head and distance, distances clipped at CLIP. */
static sn_tensor score_relative(const sn_score_ctx *c) {
    sn_tensor back = sn_min(sn_max(sn_sub(c->q, c->k), -CLIP), CLIP);
    return sn_add(c->score, sn_at(c->captured[0], c->h, sn_add(back, CLIP)));
}
static sn_tensor table_relative(sn_module *m, const spec *s, sn_dim T) {
    (void)T;
    return sn_input(m, "bias", SN_F32, s->h, 2 * CLIP + 1);
}

/* Buckets of distances in both directions: the nearest distances have one each, farther ones share
 * logarithmic buckets [Raffel et al., Exploring the limits of transfer learning, 2020, section
 * 2.1]. Shifted by half a step so that no distance lies on a boundary, where the check in f64 could
 * choose the other bucket. */
static sn_tensor score_buckets(const sn_score_ctx *c) {
    sn_tensor back = sn_sub(c->q, c->k), far = sn_max(back, sn_neg(back));
    sn_tensor ratio = sn_mul(sn_add(sn_cast(far, SN_F32), 0.5), 1.0 / EXACT);
    sn_tensor step = sn_mul(sn_log(ratio), (double)EXACT / log((double)FAR / EXACT));
    sn_tensor late = sn_min(sn_add(sn_cast(step, SN_I32), EXACT), 2 * EXACT - 1);
    sn_tensor side = sn_mul(sn_cast(sn_lt(back, 0), SN_I32), 2 * EXACT);
    sn_tensor bucket = sn_add(sn_where(sn_lt(far, EXACT), far, late), side);
    return sn_add(c->score, sn_at(c->captured[0], c->h, bucket));
}
static sn_tensor table_buckets(sn_module *m, const spec *s, sn_dim T) {
    (void)T;
    return sn_input(m, "bias", SN_F32, s->h, 4 * EXACT);
}

/* Positions are pixels of an image of width `size`; a learned number per head and offset in rows and
 * columns [Liu et al., Swin transformer, 2021, section 3.2]. */
static sn_tensor score_swin(const sn_score_ctx *c) {
    const spec *s = c->user;
    double n = (double)s->size, rows = (double)((s->t + s->size - 1) / s->size);
    sn_tensor down = sn_add(sn_sub(sn_div(c->q, n), sn_div(c->k, n)), rows - 1);
    sn_tensor right = sn_add(sn_sub(sn_mod(c->q, n), sn_mod(c->k, n)), n - 1);
    sn_tensor index = sn_add(sn_mul(down, 2 * n - 1), right);
    return sn_add(c->score, sn_at(c->captured[0], c->h, index));
}
static sn_tensor table_swin(sn_module *m, const spec *s, sn_dim T) {
    (void)T;
    int64_t rows = (s->t + s->size - 1) / s->size;
    return sn_input(m, "bias", SN_F32, s->h, (2 * rows - 1) * (2 * s->size - 1));
}

#define CAUSAL .args.causal = true, .sees = sees_causal
#define MASK(name)                                                                                 \
    { #name, .sized = true, .args.mask = mask_##name, .sees = sees_##name }
#define SCORE(name)                                                                                \
    { #name, .args.score = score_##name, .table = table_##name }
static const variant variants[] = {
    {.name = "full"},
    {"causal", CAUSAL},
    {"window", .sized = true, .args = {.causal = true, .window = 1}, .sees = sees_window},
    MASK(prefix),
    {"alibi", CAUSAL, .args.score = score_alibi},
    {"softcap", CAUSAL, .args.score = score_softcap},
    {"retention", CAUSAL, .args.weight = weight_retention, .args.divide = SN_DIVIDE_BY_ABS_SUM},
    {"sigmoid", CAUSAL, .args.weight = weight_sigmoid},
    {"relu2", CAUSAL, .args.weight = weight_relu2},
    {"documents", .args = {.causal = true, .mask = mask_documents}, .table = table_documents,
     .sees = sees_documents},
    MASK(dilated),
    MASK(strided),
    MASK(blocks),
    MASK(neighbours),
    {"decode", .decode = true},
    {"dense", .args.mask = mask_dense, .table = table_dense, .sees = sees_dense},
    SCORE(biases),
    SCORE(bias),
    SCORE(relative),
    SCORE(buckets),
    {"swin", .sized = true, .args.score = score_swin, .table = table_swin},
    {"sink", CAUSAL, .sink = true},
    {"plain-retention", CAUSAL, .plain = sn_bench_plain_retention},
    {"plain-sigmoid", CAUSAL, .plain = sn_bench_plain_sigmoid},
    {"plain-relu2", CAUSAL, .plain = sn_bench_plain_relu2},
    {"sink-column", CAUSAL, .plain = sn_bench_sink_column},
    {"sink-term", CAUSAL, .plain = sn_bench_sink_term},
    {"sink-gate", CAUSAL, .plain = sn_bench_sink_gate},
    {"sink-one", CAUSAL, .plain = sn_bench_sink_one},
    {"talking", .plain = sn_bench_talking},
    {"talking-causal", CAUSAL, .plain = sn_bench_talking_causal},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static sn_module *build(const void *p, sn_error *err) {
    const spec *s = p;
    sn_module *m = sn_module_new("attention");
    if (!m) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    sn_dim B = sn_symbol(m, "B", 1, 1 << 16), T = sn_symbol(m, "T", 1, MAX_TOKENS);
    sn_entry_begin(m, "main");
    sn_dim Tq = s->variant->decode ? 1 : T;
    sn_attention_args a = s->variant->args;
    a.q = sn_input(m, "q", SN_F32, B, s->h, Tq, s->d);
    a.k = sn_input(m, "k", SN_F32, B, s->hk, T, s->d);
    a.v = sn_input(m, "v", SN_F32, B, s->hk, T, s->d);
    a.user = s;
    if (a.window) a.window = s->size;
    if (s->variant->table) a.captured[0] = s->variant->table(m, s, T);
    if (s->variant->sink) a.sink = sn_input(m, "sink", SN_F32, s->h);
    sn_bench_plain plain = {m, a.q, a.k, a.v, B, T, s->h, s->d};
    sn_tensor y = s->variant->plain ? s->variant->plain(&plain) : sn_attention_at(SN_HERE, &a),
              d[3];
    sn_output("y", y);
    if (s->backward) {
        static const char *const name[3] = {"dq", "dk", "dv"};
        sn_tensor g = sn_input(m, "g", SN_F32, B, s->h, Tq, s->d), in[3] = {a.q, a.k, a.v};
        sn_grad(sn_sum_all(sn_mul(y, g)), 3, in, d);
        for (int i = 0; i < 3; i++) sn_output(name[i], d[i]);
    }
    if (sn_module_ok(m, err)) return m;
    sn_module_free(m);
    return NULL;
}

static double visible(const spec *s) {
    if (s->variant->decode) return (double)s->t;
    if (!s->variant->sees) return (double)s->t * (double)s->t;
    int64_t n = 0;
    for (int64_t q = 0; q < s->t; q++)
        for (int64_t k = 0; k < s->t; k++) n += s->variant->sees(s, q, k);
    return (double)n;
}

/* Of a visible pair and head: two products forward, five backward. Heads that mix take a multiply-add with
 * each head for each of two mixtures; backward each has two products, and one is computed again. */
static double flop_per_pair(const spec *s) {
    bool mixes =
        s->variant->plain == sn_bench_talking || s->variant->plain == sn_bench_talking_causal;
    double heads = mixes ? (double)s->h : 0, d = (double)s->d;
    return s->backward ? 14 * d + 16 * heads : 4 * d + 4 * heads;
}

static bool run_spec(const sn_bench_options *o, const spec *s, sn_bench_report *out,
                     sn_error *err) {
    char name[48], shape[64], request[256];
    snprintf(name, sizeof name, "%s", s->variant->name);
    if (s->variant->sized)
        snprintf(name, sizeof name, "%s:%lld", s->variant->name, (long long)s->size);
    if (s->backward) strcat(name, " backward");
    if (s->hk == s->h)
        snprintf(shape, sizeof shape, "%lld,%lld,%lld,%lld", (long long)s->b, (long long)s->h,
                 (long long)s->t, (long long)s->d);
    else
        snprintf(shape, sizeof shape, "%lld,%lld,%lld,%lld,%lld", (long long)s->b, (long long)s->h,
                 (long long)s->hk, (long long)s->t, (long long)s->d);
    snprintf(request, sizeof request,
             "{\"work\": \"attention\", \"mask\": \"%s\", \"size\": %lld, \"b\": %lld, "
             "\"h\": %lld, \"hk\": %lld, \"t\": %lld, \"d\": %lld, \"backward\": %d%s}",
             s->variant->name, (long long)s->size, (long long)s->b, (long long)s->h,
             (long long)s->hk, (long long)s->t, (long long)s->d, s->backward,
             sn_bench_peer_compute(o));
    int64_t checked = (int64_t)sqrt((double)CHECKED_PRODUCTS / (double)(2 * s->h * s->d));
    checked = checked < 1 ? 1 : checked > s->t ? s->t : checked;
    sn_bench_size size[] = {{"B", s->b, 1}, {"T", s->t, checked}};
    sn_bench_graph g = {.kind = "attention",
                        .name = name,
                        .shape = shape,
                        .build = build,
                        .spec = s,
                        .entry = "main",
                        .size = size,
                        .n_size = 2,
                        .flop = (double)(s->b * s->h) * flop_per_pair(s) * visible(s),
                        .bytes = {-1, -1},
                        .check = true};
    return sn_bench_graph_run(o, &g, request, NULL, 0, out, err);
}

const char *sn_bench_mask_name(int i) {
    static char sized[32];
    const variant *v = i < N_VARIANTS ? &variants[i] : NULL;
    if (!v || !v->sized) return v ? v->name : NULL;
    snprintf(sized, sizeof sized, "%s:", v->name);
    return sized;
}

/* "window:256" -> variant and size. */
static bool read_mask(spec *s, const char *text, size_t len, sn_error *err) {
    const char *colon = memchr(text, ':', len);
    size_t name = colon ? (size_t)(colon - text) : len;
    s->variant = NULL;
    for (int i = 0; i < N_VARIANTS; i++)
        if (strlen(variants[i].name) == name && !strncmp(variants[i].name, text, name))
            s->variant = &variants[i];
    if (!s->variant) {
        char list[512] = "";
        for (size_t at = 0, i = 0; i < N_VARIANTS && at < sizeof list; i++)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s%s", i ? ", " : "",
                                   variants[i].name, variants[i].sized ? ":N" : "");
        return sn_fail(err, SN_ERR_USAGE, "there is no mask '%.*s'; the masks are: %s", (int)len,
                       text, list);
    }
    if (s->variant->sized != (colon != NULL))
        return sn_fail(err, SN_ERR_USAGE,
                       s->variant->sized ? "mask '%.*s' needs a size: write it as window:256"
                                         : "mask '%.*s' takes no size",
                       (int)len, text);
    if (!colon) return true;
    char *end;
    s->size = strtoll(colon + 1, &end, 10);
    if (end != text + len || s->size < 1 || s->size > MAX_TOKENS)
        return sn_fail(err, SN_ERR_USAGE, "mask '%.*s': the size must be a number from 1 to %d",
                       (int)len, text, MAX_TOKENS);
    return true;
}

static bool read_shape(spec *s, const char **text, sn_error *err) {
    long long n[5] = {0};
    const char *p = *text;
    int count = 0;
    bool ok = true;
    while (ok && count < 5) {
        char *end;
        n[count] = strtoll(p, &end, 10);
        ok = end > p && n[count] >= 1 && n[count] <= MAX_TOKENS;
        count++;
        p = end;
        if (*p != ',') break;
        p++;
    }
    ok = ok && count >= 4 && (!*p || *p == ' ');
    if (ok && count == 4)
        *s = (spec){.b = n[0], .h = n[1], .hk = n[1], .t = n[2], .d = n[3]};
    else if (ok)
        *s = (spec){.b = n[0], .h = n[1], .hk = n[2], .t = n[3], .d = n[4]};
    if (!ok || s->h % s->hk)
        return sn_fail(
            err, SN_ERR_USAGE,
            "shape '%s': write B,H,T,D or B,H,HK,T,D, all at least 1, H a multiple of HK", *text);
    while (*p == ' ') p++;
    *text = p;
    return true;
}

static const sn_bench_record *find_unfused(const sn_bench_report *r, const sn_bench_record *x) {
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *y = &r->list[i];
        if (y->level == UNFUSED && !strcmp(y->name, x->name) && !strcmp(y->shape, x->shape) &&
            !strcmp(y->backend, x->backend))
            return y;
    }
    return NULL;
}

/* Notes which fused attentions were slower than the unfused ones, by medians. */
static void judge(sn_bench_report *r) {
    int n = 0, slower = 0;
    double min_ratio = INFINITY, max_ratio = 0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *y = find_unfused(r, x);
        if (x->level != FUSED || !y) continue;
        double ratio = y->ms_median / x->ms_median;
        if (ratio < 1) {
            sn_bench_note(r, "fused is slower: %s %s, %.3g ms against %.3g ms", x->name, x->shape,
                          x->ms_median, y->ms_median);
            slower++;
        }
        min_ratio = fmin(min_ratio, ratio), max_ratio = fmax(max_ratio, ratio), n++;
    }
    sn_bench_note(r,
                  "fused (level %d) against unfused (level %d): %.2f to %.4g times as fast in "
                  "%d cases, slower in %d",
                  FUSED, UNFUSED, min_ratio, max_ratio, n, slower);
}

bool sn_bench_sweep(const sn_bench_options *o, sn_bench_report *out, sn_error *err) {
    static const char masks[] = "full,causal,window:256,prefix:128,alibi,softcap,documents,"
                                "dilated:4,strided:128,blocks:128,neighbours:32,dense,bias,biases,"
                                "relative,buckets";
    static const char shapes[] = "1,4,16,64 1,4,64,64 1,4,256,64 1,4,1024,64 1,2,4096,64";
    sn_bench_options two = *o;
    two.levels = 1u << UNFUSED | 1u << FUSED;
    if (!sn_bench_masks(&two, masks, shapes, false, out, err)) return false;
    judge(out);
    return true;
}

bool sn_bench_masks(const sn_bench_options *o, const char *masks, const char *shapes, bool backward,
                    sn_bench_report *out, sn_error *err) {
    const char *p = shapes ? shapes : usual;
    if (!masks) masks = "full,causal";
    while (*p) {
        spec s;
        if (!read_shape(&s, &p, err)) return false;
        for (const char *m = masks; *m;) {
            size_t len = strcspn(m, ",");
            s.backward = backward;
            if (!read_mask(&s, m, len, err) || !run_spec(o, &s, out, err)) return false;
            m += len + (m[len] == ',');
        }
    }
    return true;
}
