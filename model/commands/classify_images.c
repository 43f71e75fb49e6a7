/* classify_images.c: classes of pictures and of images in IDX files; the texts that fit a picture. */
#include "model/commands/classify_images.h"
#include "model/encoder.h"
#include "model/import/idx.h"
#include "model/sample.h"
#include "model/commands/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_out classify_begin(const char *input, size_t size, int64_t index) {
    json_out j = sn_json_begin(stdout);
    sn_json_bytes(&j, "input", input, size);
    if (index >= 0) sn_json_integer(&j, "index", index);
    sn_json_list(&j, "classes");
    return j;
}

static void print_class(json_out *j, int64_t i, const char *name, float p) {
    sn_json_object(j, NULL);
    sn_json_integer(j, "id", i);
    sn_json_text(j, "label", name && *name ? name : "");
    sn_json_number(j, "p", p);
    sn_json_close(j);
}

void classify_print(json_out *j, const open_model *m, int64_t i, float p, const char *before) {
    const char *name = lm_label(m, i);
    if (j)
        print_class(j, i, name, p);
    else if (name && *name)
        printf("%s%s  %.5f", before, name, p);
    else
        printf("%s%lld  %.5f", before, (long long)i, p);
}

/* Prints the `top` likeliest of n classes, whose probabilities p it overwrites, of the picture `input`
 * or, in a file of several, number `index`. Names: one for each class, or NULL for the config's. */
static void print_best(const open_model *m, const char *input, int64_t index,
                       const char *const *names, float *p, int64_t n, int64_t top) {
    const bool json = sn_screen()->json;
    json_out j;
    if (json) j = classify_begin(input, strlen(input), index);
    for (int64_t k = 0; k < top && k < n; k++) {
        size_t i = sn_sample_largest(p, (size_t)n);
        if (json && names)
            print_class(&j, (int64_t)i, names[i], p[i]);
        else if (names)
            printf("%s  %.5f\n", names[i], p[i]);
        else
            classify_print(json ? &j : NULL, m, (int64_t)i, p[i], "");
        if (!json && !names) putchar('\n');
        p[i] = -1;
    }
    if (json) sn_json_end(&j);
}

/* ---- pictures ---- */

static bool classify_picture(open_model *m, const classify_options *o, sn_error *err) {
    const sn_model *v = &m->model;
    float *pixels = encoder_pixels(m, o->images, err),
          *logits = malloc(sizeof *logits * (size_t)v->labels + 1);
    bool ok = pixels && (logits || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    sn_arg_binding in = SN_BIND("pixels", SN_F32, pixels, 1, v->channels, v->image, v->image),
                   out = SN_BIND("logits", SN_F32, logits, 1, v->labels);
    ok = ok && sn_run(m->session, "forward", &in, 1, &out, 1, err) &&
         lm_check_output("logits", logits, v->labels, err);
    if (ok) {
        sn_sample_softmax(logits, v->labels);
        print_best(m, o->images, -1, NULL, logits, v->labels, o->top ? o->top : 5);
    }
    free(pixels);
    free(logits);
    return ok;
}

/* Texts to compare an image with: the lines of a text, which are cut apart in place. */
typedef struct captions {
    char *text;
    const char **name;
    sn_ids *ids;
    int64_t n;
} captions;

static void free_captions(captions *c) {
    for (int64_t i = 0; i < c->n; i++) sn_ids_free(&c->ids[i]);
    free(c->text);
    free(c->name);
    free(c->ids);
}

static bool read_captions(const open_model *m, const classify_options *o, captions *c,
                          sn_error *err) {
    size_t size = o->text ? strlen(o->text) : 0;
    c->text = o->text ? strdup(o->text) : sn_text_read(o->file, &size, err);
    if (!c->text) return o->text ? sn_fail(err, SN_ERR_MEMORY, "out of memory") : false;
    size_t lines = 1;
    for (size_t i = 0; i < size; i++) lines += c->text[i] == '\n';
    c->name = calloc(lines, sizeof *c->name);
    c->ids = calloc(lines, sizeof *c->ids);
    if (!c->name || !c->ids) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    char *rest = c->text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (!*line) continue;
        c->name[c->n] = line;
        if (!encoder_read(m, line, strlen(line), &c->ids[c->n++], err)) return false;
    }
    return c->n || sn_fail(err, SN_ERR_USAGE, "%s: no lines", o->file ? o->file : "--prompt");
}

static bool compare_picture(open_model *m, const classify_options *o, sn_error *err) {
    captions c = {0};
    float *p = NULL;
    bool ok = read_captions(m, o, &c, err) && encoder_compare(m, o->images, c.ids, c.n, &p, err);
    if (ok) print_best(m, o->images, -1, c.name, p, c.n, o->top ? o->top : c.n);
    free(p);
    free_captions(&c);
    return ok;
}

static bool do_picture(open_model *m, const classify_options *o, sn_error *err) {
    const sn_model *v = &m->model;
    if (!v->image)
        return sn_fail(err, SN_ERR_USAGE, "a %s model does not take images: use --prompt or --file",
                       v->type);
    if (v->compares && !o->text && !o->file)
        return sn_fail(err, SN_ERR_USAGE,
                       "a %s model compares images with texts: give these with --file", v->type);
    if (!v->compares && (o->text || o->file))
        return sn_fail(err, SN_ERR_USAGE, "a %s model classifies images: it takes no texts",
                       v->type);
    if (o->labels)
        return sn_fail(err, SN_ERR_USAGE, "--labels counts correct answers of an IDX file");
    return (v->compares ? compare_picture : classify_picture)(m, o, err);
}

/* ---- IDX files ---- */

static bool check_images(const open_model *m, const sn_idx *x, const char *path, sn_error *err) {
    const sn_model *v = &m->model;
    if (!v->image)
        return sn_fail(err, SN_ERR_USAGE, "a %s model does not take images: use --prompt or --file",
                       v->type);
    if (v->compares)
        return sn_fail(err, SN_ERR_USAGE, "a %s model compares pictures (PNG, JPEG) with texts",
                       v->type);
    if (x->rank < 3)
        return sn_fail(
            err, SN_ERR_SHAPE,
            "%s: its %d dimension%s do not describe images: expected number, height and width",
            path, x->rank, x->rank > 1 ? "s" : "");
    int64_t channels = x->rank == 4 ? x->shape[1] : 1;
    if (channels != v->channels || x->shape[x->rank - 2] != v->image ||
        x->shape[x->rank - 1] != v->image)
        return sn_fail(err, SN_ERR_SHAPE,
                       "%s: the model takes images of %lld x %lld pixels and %lld channels, but "
                       "these have %lld x %lld and %lld: rescale them",
                       path, (long long)v->image, (long long)v->image, (long long)v->channels,
                       (long long)x->shape[x->rank - 2], (long long)x->shape[x->rank - 1],
                       (long long)channels);
    return true;
}

/* Writes the probabilities [n, labels] of n images to p. */
static bool run_batch(open_model *m, const unsigned char *bytes, int64_t n, float *p,
                      sn_error *err) {
    const sn_model *v = &m->model;
    size_t plane = (size_t)(v->image * v->image), each = (size_t)v->channels * plane;
    float *pixels = malloc(sizeof *pixels * (each * (size_t)n + 1));
    if (!pixels) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < each * (size_t)n; i++)
        pixels[i] = encoder_pixel(m, (int)(i % each / plane), bytes[i]);
    sn_arg_binding in = SN_BIND("pixels", SN_F32, pixels, n, v->channels, v->image, v->image),
                   o = SN_BIND("logits", SN_F32, p, n, v->labels);
    bool ok = sn_run(m->session, "forward", &in, 1, &o, 1, err) &&
              lm_check_output("logits", p, n * v->labels, err);
    for (int64_t i = 0; ok && i < n; i++) sn_sample_softmax(p + i * v->labels, v->labels);
    free(pixels);
    return ok;
}

static bool do_images(open_model *m, const classify_options *o, const sn_idx *x,
                      const sn_idx *labels, sn_error *err) {
    int64_t n = x->shape[0], classes = m->model.labels, right = 0;
    float *p = malloc(sizeof *p * (size_t)(o->batch * classes) + 1);
    bool ok = p || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    size_t each = (size_t)(m->model.channels * m->model.image * m->model.image);
    screen_progress progress = {0};
    sn_screen_catch_stop();
    for (int64_t at = 0; ok && at < n; at += o->batch) {
        if (sn_screen_stopped())
            ok = sn_screen_interrupted(err, "after %lld images", (long long)at);
        if (!ok) break;
        int64_t count = n - at < o->batch ? n - at : o->batch;
        if (labels->data)
            sn_screen_progress_of(&progress, "classify: images", (double)at, (double)n);
        ok = run_batch(m, x->data + (size_t)at * each, count, p, err);
        for (int64_t i = 0; ok && i < count; i++) {
            float *row = p + i * classes;
            if (labels->data)
                right += labels->data[at + i] == sn_sample_largest(row, (size_t)classes);
            else
                print_best(m, o->images, at + i, NULL, row, classes, o->top ? o->top : 1);
        }
    }
    sn_screen_progress_end(&progress);
    if (ok && labels->data && sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "input", o->images);
        sn_json_integer(&j, "right", right);
        sn_json_integer(&j, "images", n);
        sn_json_end(&j);
    } else if (ok && labels->data)
        printf("%lld of %lld\n", (long long)right, (long long)n);
    free(p);
    return ok;
}

bool classify_images(open_model *m, const classify_options *o, sn_error *err) {
    sn_idx x = {0}, labels = {0};
    if (picture_is_file(o->images)) return do_picture(m, o, err);
    bool ok = idx_open(o->images, &x, err) && check_images(m, &x, o->images, err);
    if (ok && o->labels) {
        ok = idx_open(o->labels, &labels, err);
        if (ok && (labels.rank != 1 || labels.shape[0] != x.shape[0]))
            ok = sn_fail(err, SN_ERR_SHAPE, "%s: expected one label for each of %lld images",
                         o->labels, (long long)x.shape[0]);
    }
    ok = ok && do_images(m, o, &x, &labels, err);
    idx_close(&x);
    idx_close(&labels);
    return ok;
}
