/* gato.c: Gato: [PH22 A10] with line 2 replaced by an embedding for each modality (Reed et al.
 * 2022, sections 2.1, 2.2, appendix C.3). A position has one of four kinds.
 * 0: text, a token.
 * 1: discrete, a value 0 .. discrete_values - 1; its id follows the ids of text.
 * 2: continuous, a number; sgn(x) ln(mu |x| + 1) / ln(mu M + 1), clamped to -1 .. 1, is cut into
 *    bins, whose ids follow the discrete ones.
 * 3: image, a square of pixels, through a ResNet block (v2: group norm, GELU, convolution, twice),
 *    flattened and mapped, plus learned embeddings of its row and column.
 * Inputs beside tokens [B, T] (text and discrete): kinds i32 and values f32 [B, T]; images f32
 * [N, C, H, W] in 0 .. 1; patches i32 [B, T], the number of the square in raster order.
 * The model predicts ids; other targets (-1: images, observations) do not count. Entry loss also
 * returns the mean losses of text, discrete and continuous targets. Config keys: GPT-2's, where
 * vocab_size counts text, and those below. */
#include "frontend/decoder.h"
#include "frontend/keys.h"

#include <math.h>

typedef struct gato {
    int64_t text, discrete, bins, image, patch, channels, filters, groups;
    double mu, M;
} gato;

static const config_key keys[] = {INT_KEY_OR(gato, discrete, "discrete_values", 1024, 1, 1 << 24),
                                  INT_KEY_OR(gato, bins, "continuous_bins", 1024, 1, 1 << 24),
                                  FLOAT_KEY_OR(gato, mu, "mu_law_mu", 100, 1e-6, 1e12),
                                  FLOAT_KEY_OR(gato, M, "mu_law_m", 256, 1e-6, 1e12),
                                  INT_KEY_OR(gato, image, "image_size", 224, 1, 1 << 14),
                                  INT_KEY_OR(gato, patch, "patch_size", 16, 2, 1 << 10),
                                  INT_KEY_OR(gato, channels, "num_channels", 3, 1, 1 << 10),
                                  INT_KEY_OR(gato, filters, "resnet_filters", 96, 1, 1 << 14),
                                  INT_KEY_OR(gato, groups, "resnet_groups", 32, 1, 1 << 14),
                                  END_KEYS};

/* ---- images ---- */

/* images [N, C, H, W] -> an embedding of every square [N squares, d] */
static sn_tensor embed_images(const decoder *a, sn_tensor images) {
    const gato *g = a->variant;
    int64_t side = g->image / g->patch, half = g->patch / 2;
    sn_dim n = sn_dim_mul(sn_module_of(images), sn_dim_of(images, 0), side * side);
    sn_tensor x = sn_mul(sn_sub(sn_mul(images, 2), 1), 1 / sqrt((double)g->patch));
    x = sn_reshape(sn_image_patches(x, g->patch), n, g->channels, g->patch, g->patch);
    x = sn_image_resnet(x, g->filters, g->groups); /* [n, filters, patch / 2, patch / 2] */
    return sn_nn_linear(sn_reshape(x, n, g->filters * half * half), "resnet.out", a->d, SN_BIAS);
}

/* Squares' embeddings at the positions [B, T] that hold them, with row and column. */
static sn_tensor embed_patches(const decoder *a, const sn_forward_ctx *s) {
    const gato *g = a->variant;
    int64_t side = g->image / g->patch;
    sn_dim N = sn_symbol(s->m, "N", 1, 1024);
    sn_tensor images = sn_input(s->m, "images", SN_F32, N, g->channels, g->image, g->image);
    sn_tensor which = sn_input(s->m, "patches", SN_I32, s->B, s->T);
    sn_tensor place = sn_mod(which, (double)(side * side));
    sn_tensor x = sn_embedding(sn_name(embed_images(a, images), "squares"), which);
    x = sn_add(x, sn_nn_embedding(sn_div(place, (double)side), "patch_row", side, a->d));
    return sn_add(x, sn_nn_embedding(sn_mod(place, (double)side), "patch_column", side, a->d));
}

/* ---- ids ---- */

/* values -> bins 0 .. bins - 1 */
static sn_tensor mu_law(const gato *g, sn_tensor x) {
    sn_tensor y = sn_log(sn_add(sn_mul(sn_abs(x), g->mu), 1));
    y = sn_mul(sn_sign(x), sn_mul(y, 1 / log(g->M * g->mu + 1)));
    y = sn_max(sn_min(y, 1), -1);
    y = sn_floor(sn_mul(sn_add(y, 1), (double)g->bins / 2));
    return sn_cast(sn_min(y, (double)(g->bins - 1)), SN_I32);
}

/* Line 2 */
static sn_tensor embed(const decoder *a, const sn_forward_ctx *s) {
    const gato *g = a->variant;
    sn_tensor kinds = sn_input(s->m, "kinds", SN_I32, s->B, s->T),
              values = sn_input(s->m, "values", SN_F32, s->B, s->T);
    sn_tensor ids = sn_add(mu_law(g, values), (double)(g->text + g->discrete));
    ids = sn_where(sn_eq(kinds, 1), sn_add(s->tokens, (double)g->text), ids);
    ids = sn_where(sn_eq(kinds, 0), s->tokens, ids);
    ids = sn_where(sn_eq(kinds, 3), 0, ids);
    sn_tensor e = sn_nn_embedding(sn_name(ids, "ids"), "wte", a->vocab, a->d);
    e = sn_where(sn_expand(sn_eq(kinds, 3), 2), embed_patches(a, s), e);
    return sn_add(e, sn_expand(sn_nn_embedding(s->pos, "wpe", a->context, a->d), 0));
}

/* ---- the loss, by modality ---- */

/* Mean of the losses whose targets are in [lo, hi); 0 without any */
static sn_tensor mean_within(sn_tensor loss, sn_tensor targets, int64_t lo, int64_t hi) {
    sn_tensor in = sn_and(sn_ge(targets, (double)lo), sn_lt(targets, (double)hi));
    sn_tensor n = sn_sum_all(sn_cast(in, SN_F32));
    return sn_div(sn_sum_all(sn_where(in, loss, 0)), sn_max(n, 1));
}

static void report(const void *config, sn_tensor loss, sn_tensor targets) {
    const decoder *a = config;
    const gato *g = a->variant;
    sn_output("text", mean_within(loss, targets, 0, g->text));
    sn_output("discrete", mean_within(loss, targets, g->text, g->text + g->discrete));
    sn_output("continuous", mean_within(loss, targets, g->text + g->discrete, a->vocab));
}

void sn_gato_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    decoder a = decoder_read(c, o);
    gato g = {.text = a.vocab};
    config_read(c, keys, &g);
    if (g.image % g.patch || g.patch % 2)
        sn_config_problem(c, "\"patch_size\" = %lld must be even and divide \"image_size\" = %lld",
                          (long long)g.patch, (long long)g.image);
    sn_config_divides(c, "resnet_groups", g.groups, "resnet_filters", g.filters);
    a.vocab += g.discrete + g.bins;
    a.variant = &g;
    a.embed = embed;
    a.report = report;
    out->image = g.image, out->channels = g.channels;
    decoder_build(&a, c, o, out);
}
