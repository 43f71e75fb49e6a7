/* import_npz.c: a NumPy .npz archive (npz.h) of a vision transformer.
 *
 * Names of arrays are kept (the archive's names without ".npy"). Weights are [out, in].
 *   pos_embed [1, N, d]
 *   patch_embed.proj.{weight [d, patch], bias}
 *   encoder.L.attn.in_proj_{weight [3d, d] = q|k|v, bias}, encoder.L.attn.out_proj,
 *   encoder.L.ffn.fc1, encoder.L.ffn.fc2, encoder.L.norm1, encoder.L.norm2
 *   norm, classifier
 * The config has model_type "vit" and Hugging Face's ViT keys, derived from the shapes (square
 * images of one channel in square patches, row-major), plus
 *   "linear_layout": "out_in"
 *   "norm_order": "post"      LayerNorm after each residual sum ("pre" is Hugging Face's ViT)
 *   "use_cls_token": false    no class token
 *   "pooling": "mean"         the classifier reads the mean over patches, after the final norm
 * The number of heads, image_mean and image_std are not in the tensors: num_attention_heads must
 * come from --config, whose other keys also override the derived ones. */
#include "model/import/import.h"
#include "driver/npz.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool npz_matches(const sn_mapping *m) {
    return npz_is(m);
}

typedef struct archive {
    const char *path;
    import_list list;
} archive;

static bool take_array(void *ctx, const char *name, sn_npy *a, sn_error *err) {
    archive *z = ctx;
    if (!a->count) {
        char shown[120];
        sn_npy_free(a);
        return sn_fail(err, SN_ERR_FILE, "%s: \"%s\": is empty", z->path,
                       sn_printable(shown, sizeof shown, name));
    }
    if (import_own(&z->list, a->data))
        import_add(&z->list, name, a->dtype, a->rank, a->shape, a->data);
    return true;
}

/* ---- vision transformer ---- */

typedef struct vit {
    int64_t width, tokens, patch, inner, labels, layers;
} vit;

/* Shapes by letter: 1, n tokens, d width, q 3 d, p patch pixels, f inner, c labels. */
typedef struct kind {
    const char *name, *shape;
} kind;

static const kind outer_kinds[] = {{"pos_embed", "1nd"},
                                   {"patch_embed.proj.weight", "dp"},
                                   {"patch_embed.proj.bias", "d"},
                                   {"norm.weight", "d"},
                                   {"norm.bias", "d"},
                                   {"classifier.weight", "cd"},
                                   {"classifier.bias", "c"}};
static const kind layer_kinds[] = {
    {"attn.in_proj_weight", "qd"}, {"attn.in_proj_bias", "q"}, {"attn.out_proj.weight", "dd"},
    {"attn.out_proj.bias", "d"},   {"ffn.fc1.weight", "fd"},   {"ffn.fc1.bias", "f"},
    {"ffn.fc2.weight", "df"},      {"ffn.fc2.bias", "d"},      {"norm1.weight", "d"},
    {"norm1.bias", "d"},           {"norm2.weight", "d"},      {"norm2.bias", "d"}};

static int64_t find_dim(const vit *v, char symbol) {
    const char symbols[] = "1ndqpfc";
    const int64_t sizes[] = {1, v->tokens, v->width, 3 * v->width, v->patch, v->inner, v->labels};
    return sizes[strchr(symbols, symbol) - symbols];
}

static void check_tensor(const import_list *l, const vit *v, const char *name, const char *shape,
                         sn_problems *p) {
    const sn_weight *t = import_find(l, name);
    int rank = (int)strlen(shape);
    bool fits = t && t->rank == rank && t->dtype == SN_F32;
    for (int i = 0; fits && i < rank; i++) fits = t->shape[i] == find_dim(v, shape[i]);
    if (!t)
        sn_problem(p, "array \"%s\" is missing", name);
    else if (!fits)
        sn_problem(p, "array \"%s\" is not f32, or its shape does not match the others", name);
}

/* The integer square root of a size, which is below 2^32 because the arrays are in memory. */
static int64_t find_root(int64_t n) {
    return (int64_t)sqrt((double)n);
}

/* Derives the sizes from a few arrays and checks all of them. */
static bool find_sizes(const import_list *l, vit *v, const char *path, sn_error *err) {
    const sn_weight *pos = import_find(l, "pos_embed"), *fc, *classifier, *patch;
    patch = import_find(l, "patch_embed.proj.weight");
    fc = import_find(l, "encoder.0.ffn.fc1.weight");
    classifier = import_find(l, "classifier.weight");
    if (!pos || !patch || !fc || !classifier || pos->rank != 3 || patch->rank != 2 ||
        fc->rank != 2 || classifier->rank != 2)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: unknown model: expected arrays pos_embed [1, N, d], "
                       "patch_embed.proj.weight, encoder.0.ffn.fc1.weight and classifier.weight",
                       path);
    *v =
        (vit){pos->shape[2], pos->shape[1], patch->shape[1], fc->shape[0], classifier->shape[0], 0};
    sn_problems p = {0};
    if (v->width < 1 || v->width > 1 << 16)
        return sn_fail(err, SN_ERR_FILE, "%s: width %" PRId64 " is invalid", path, v->width);
    size_t outer = sizeof outer_kinds / sizeof *outer_kinds;
    size_t inner = sizeof layer_kinds / sizeof *layer_kinds;
    v->layers = l->count > outer ? (int64_t)((l->count - outer) / inner) : 0;
    if (l->count != outer + (size_t)v->layers * inner)
        sn_problem(&p, "found %zu arrays; expected %zu, and %zu per layer", l->count, outer, inner);
    for (size_t i = 0; i < outer; i++)
        check_tensor(l, v, outer_kinds[i].name, outer_kinds[i].shape, &p);
    for (int64_t n = 0; n < v->layers; n++)
        for (size_t i = 0; i < inner; i++) {
            char name[64];
            snprintf(name, sizeof name, "encoder.%" PRId64 ".%s", n, layer_kinds[i].name);
            check_tensor(l, v, name, layer_kinds[i].shape, &p);
        }
    if (p.count) return sn_problems_check(&p, path, SN_ERR_FILE, err);
    int64_t side = find_root(v->patch), grid = find_root(v->tokens);
    if (side * side != v->patch || grid * grid != v->tokens)
        sn_problem(&p, "patches of %" PRId64 " pixels, %" PRId64 " of them: not square", v->patch,
                   v->tokens);
    return sn_problems_check(&p, path, SN_ERR_FILE, err);
}

static sn_config *make_config(const vit *v) {
    int64_t side = find_root(v->patch);
    sn_config *c = sn_config_new("config.json");
    if (!c) return NULL;
    sn_config_set_string(c, "model_type", "vit");
    sn_config_set_int(c, "hidden_size", v->width);
    sn_config_set_int(c, "intermediate_size", v->inner);
    sn_config_set_int(c, "num_hidden_layers", v->layers);
    sn_config_set_int(c, "image_size", side * find_root(v->tokens));
    sn_config_set_int(c, "patch_size", side);
    sn_config_set_int(c, "num_channels", 1);
    sn_config_set_int(c, "num_labels", v->labels);
    sn_config_set_string(c, "hidden_act", "gelu");
    sn_config_set_float(c, "layer_norm_eps", 1e-5);
    sn_config_set_string(c, "linear_layout", "out_in");
    sn_config_set_string(c, "norm_order", "post");
    sn_config_set_bool(c, "use_cls_token", false);
    sn_config_set_string(c, "pooling", "mean");
    return c;
}

/* The number of heads must be given, and must divide the width. */
static bool check_heads(const import_request *r, const vit *v, sn_error *err) {
    if (!r->config)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: the number of heads is not in the arrays; give --config FILE with "
                       "{\"num_attention_heads\": N}",
                       r->input);
    sn_config *c = sn_config_open(r->config, err);
    if (!c) return false;
    int64_t heads = sn_config_int(c, "num_attention_heads", 1, 1024);
    if (v->width % heads)
        sn_config_problem(c, "\"num_attention_heads\" = %" PRId64 " does not divide width %" PRId64,
                          heads, v->width);
    bool ok = sn_config_check(c, err);
    sn_config_free(c);
    return ok;
}

bool import_npz(const import_request *r, sn_error *err) {
    archive z = {.path = r->input};
    vit v;
    bool ok = npz_read(r->input, take_array, &z, err) && find_sizes(&z.list, &v, r->input, err) &&
              check_heads(r, &v, err);
    if (ok) {
        sn_config *c = make_config(&v);
        ok = import_save(r, c, &z.list, err);
        sn_config_free(c);
    }
    import_list_free(&z.list);
    return ok;
}
