/* picture_rules.c: from a picture to the pixels of a model, as preprocessor_config.json says. */
#include "model/media/picture.h"

#include <stdlib.h>
#include <string.h>

/* ---- the file ---- */

/* What a file may leave out, by the first letters of its image_processor_type. */
typedef struct picture_processor {
    const char *type;
    picture_filter filter;
    bool crop, shortest; /* shortest: what a number as "size" means */
    int size, crop_size;
    double mean[3], std[3];
} picture_processor;

#define HALVES                                                                                     \
    { 0.5, 0.5, 0.5 }
#define IMAGENET_MEAN                                                                              \
    { 0.485, 0.456, 0.406 }
#define IMAGENET_STD                                                                               \
    { 0.229, 0.224, 0.225 }
#define CLIP_MEAN                                                                                  \
    { 0.48145466, 0.4578275, 0.40821073 }
#define CLIP_STD                                                                                   \
    { 0.26862954, 0.26130258, 0.27577711 }
static const picture_processor processors[] = {
    {"ViT", PICTURE_BILINEAR, false, false, 224, 224, HALVES, HALVES},
    {"DeiT", PICTURE_BICUBIC, true, false, 256, 224, IMAGENET_MEAN, IMAGENET_STD},
    {"Bit", PICTURE_BICUBIC, true, true, 224, 224, CLIP_MEAN, CLIP_STD},
    {"CLIP", PICTURE_BICUBIC, true, true, 224, 224, CLIP_MEAN, CLIP_STD},
    {"Siglip", PICTURE_BICUBIC, false, false, 224, 224, HALVES, HALVES},
};

/* Keys without effect here; "do_convert_rgb": pictures always have the model's channels. */
static const char *const known[] = {"do_resize",
                                    "size",
                                    "resample",
                                    "do_center_crop",
                                    "crop_size",
                                    "do_rescale",
                                    "rescale_factor",
                                    "do_normalize",
                                    "image_mean",
                                    "image_std",
                                    "image_processor_type",
                                    "feature_extractor_type",
                                    "processor_class",
                                    "do_convert_rgb",
                                    "do_pad",
                                    "pad_size",
                                    "size_divisor",
                                    "default_to_square",
                                    "data_format",
                                    "input_data_format",
                                    "return_tensors",
                                    "device",
                                    "disable_grouping",
                                    "auto_map",
                                    "_valid_processor_keys",
                                    NULL};
/* Steps that are not supported unless they are null or false. */
static const char *const unsupported[] = {"do_pad", "pad_size", "size_divisor", "auto_map"};

static const picture_processor *find_processor(sn_config *c) {
    const char *type = sn_config_string_or(c, "image_processor_type", "");
    if (!*type) type = sn_config_string_or(c, "feature_extractor_type", "ViT");
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
        if (!strncmp(type, processors[i].type, strlen(processors[i].type))) return &processors[i];
    sn_config_problem(c,
                      "the processor of pictures \"%s\" is not supported; known: ViT, DeiT, Bit, "
                      "CLIP and Siglip",
                      type);
    return processors;
}

/* "size" or "crop_size": a number, {"height", "width"}, or {"shortest_edge"}. */
static void read_size(sn_config *c, const char *key, int usual, int *height, int *width,
                      bool *shortest) {
    if (!sn_config_is_object(c, key)) {
        *height = *width = (int)sn_config_int_or(c, key, usual, 1, PICTURE_MAX_SIDE);
        return;
    }
    sn_config *s = sn_config_section(c, key);
    if (!s) return;
    sn_error err = {0};
    static const char *const sides[] = {"height", "width", NULL}, *const edge[] = {"shortest_edge",
                                                                                   NULL};
    *shortest = sn_config_has(s, "shortest_edge");
    sn_config_only(s, *shortest ? edge : sides);
    *height = (int)sn_config_int(s, *shortest ? "shortest_edge" : "height", 1, PICTURE_MAX_SIDE);
    *width = *shortest ? *height : (int)sn_config_int(s, "width", 1, PICTURE_MAX_SIDE);
    if (!sn_config_check(s, &err)) sn_config_problem(c, "%s", err.message);
    sn_config_free(s);
}

/* One number for each channel, or for all. */
static void read_channels(sn_config *c, const char *key, const double *usual, double low,
                          double *out) {
    memcpy(out, usual, 3 * sizeof *out);
    if (!sn_config_has(c, key)) return;
    size_t n = sn_config_float_list(c, key, out, 3, low, 1e6);
    if (n == 1) out[1] = out[2] = out[0];
    if (n != 1 && n != 3) sn_config_problem(c, "\"%s\" has %zu numbers instead of 3", key, n);
}

picture_rules picture_rules_read(sn_config *c) {
    const picture_processor *p = find_processor(c);
    picture_rules r = {.factor = 1, .std = {1, 1, 1}, .shortest = p->shortest};
    bool no_edge = false;
    sn_config_only(c, known);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (sn_config_has(c, unsupported[i]) && !sn_config_equals(c, unsupported[i], "false"))
            sn_config_problem(c, "\"%s\" is not supported", unsupported[i]);
    r.resize = sn_config_bool_or(c, "do_resize", true);
    r.filter = (picture_filter)sn_config_int_or(c, "resample", p->filter, 1, 5);
    read_size(c, "size", p->size, &r.height, &r.width, &r.shortest);
    r.crop = sn_config_bool_or(c, "do_center_crop", p->crop);
    read_size(c, "crop_size", p->crop_size, &r.crop_height, &r.crop_width, &no_edge);
    if (sn_config_bool_or(c, "do_rescale", true))
        r.factor = sn_config_float_or(c, "rescale_factor", 1 / 255.0, 1e-9, 1e9);
    if (sn_config_bool_or(c, "do_normalize", true)) {
        read_channels(c, "image_mean", p->mean, -1e6, r.mean);
        read_channels(c, "image_std", p->std, 1e-6, r.std);
    }
    return r;
}

bool picture_rules_in(const sn_config *c) {
    return sn_config_has(c, "image_mean") || sn_config_has(c, "do_resize") ||
           sn_config_has(c, "image_processor_type");
}

picture_rules picture_rules_plain(int side) {
    return (picture_rules){.resize = true,
                           .filter = PICTURE_BILINEAR,
                           .height = side,
                           .width = side,
                           .factor = 1 / 255.0,
                           .std = {1, 1, 1}};
}

int picture_rules_side(const picture_rules *r) {
    if (r->crop) return r->crop_height == r->crop_width ? r->crop_height : 0;
    return r->resize && !r->shortest && r->height == r->width ? r->height : 0;
}

void picture_rules_print(const picture_rules *r, char *text, size_t size) {
    static const char *const filters[] = {[PICTURE_LANCZOS] = "Lanczos",
                                          [PICTURE_BILINEAR] = "bilinear",
                                          [PICTURE_BICUBIC] = "bicubic",
                                          [PICTURE_BOX] = "box",
                                          [PICTURE_HAMMING] = "Hamming"};
    char scaled[128] = "", cut[64] = "";
    if (r->resize && r->shortest)
        snprintf(scaled, sizeof scaled, "the shorter side becomes %d", r->height);
    else if (r->resize)
        snprintf(scaled, sizeof scaled, "scaled to %d rows, %d columns", r->height, r->width);
    if (r->crop)
        snprintf(cut, sizeof cut, "%sthe middle %d rows, %d columns are cut out",
                 r->resize ? "; " : "", r->crop_height, r->crop_width);
    snprintf(text, size, "%s%s%s%s%s", scaled, r->resize ? " (" : "",
             r->resize ? filters[r->filter] : "", r->resize ? " as in PIL)" : "", cut);
    if (!*text) snprintf(text, size, "none are allowed");
}

/* ---- pixels ---- */

/* The size after scaling. The longer side is rounded down. */
static void scaled_size(const picture *p, const picture_rules *r, int *width, int *height) {
    *width = r->width, *height = r->height;
    if (!r->shortest) return;
    bool wide = p->width > p->height;
    int64_t edge = r->height, longer = wide ? p->width : p->height,
            shorter = wide ? p->height : p->width;
    int64_t other = edge * longer / shorter;
    if (other > INT32_MAX) other = INT32_MAX;
    *width = (int)(wide ? other : edge), *height = (int)(wide ? edge : other);
}

float picture_normalise(const picture_rules *r, int c, unsigned char byte) {
    return ((float)(byte * r->factor) - (float)r->mean[c]) / (float)r->std[c];
}

bool picture_pixels(const char *path, const picture_rules *r, int channels, int side, float *out,
                    sn_error *err) {
    picture p, next;
    if (!picture_read(path, channels, &p, err)) return false;
    bool ok = true;
    if (r->resize) {
        int width, height;
        scaled_size(&p, r, &width, &height);
        ok = picture_resize(&p, width, height, r->filter, &next, err);
        picture_free(&p);
        p = next;
    }
    if (ok && r->crop) {
        ok = picture_crop(&p, r->crop_width, r->crop_height, &next, err);
        picture_free(&p);
        p = next;
    }
    if (ok && (p.width != side || p.height != side))
        ok = sn_fail(err, SN_ERR_SHAPE,
                     "%s: after preprocessing it has %d x %d pixels, but the model takes %d x %d",
                     path, p.width, p.height, side, side);
    size_t n = (size_t)side * (size_t)side;
    for (int c = 0; ok && c < channels; c++)
        for (size_t i = 0; i < n; i++)
            out[(size_t)c * n + i] =
                picture_normalise(r, c, p.data[i * (size_t)channels + (size_t)c]);
    picture_free(&p);
    return ok;
}
