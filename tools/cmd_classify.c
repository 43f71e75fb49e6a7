/* cmd_classify.c: `sinter classify`: classifies images or texts [PH22 section 3]. */
#include "tools/cmd.h"
#include "runtime/sample.h"
#include "model/entities.h"
#include "model/import/idx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter classify"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *images, *labels, *text, *second, *file;
    int64_t batch;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"images", 'i', ARG_TEXT, AT(images), "FILE", NULL, 0, 0,
     "images: a file of bytes in the IDX format of MNIST"},
    {"labels", 0, ARG_TEXT, AT(labels), "FILE", NULL, 0, 0,
     "true labels (IDX); prints only the number of correct predictions"},
    {"prompt", 'p', ARG_TEXT, AT(text), "TEXT", NULL, 0, 0, "a text, for a text encoder"},
    {"second", 0, ARG_TEXT, AT(second), "TEXT", NULL, 0, 0,
     "the second text of a pair, for models of pairs"},
    {"file", 'f', ARG_TEXT, AT(file), "FILE", NULL, 0, 0,
     "classify each line of a file; -: standard input"},
    {"batch", 'b', ARG_INT, AT(batch), "N", "64", 1, 1024, "images per run"},
    CMD_COMPILE_ARGS(options),
    {0},
};

static const arg_command command = {
    NAME, "classify images, texts, or the words of texts",
    "Prints a line for each input: the class and its probability. Classes are named as "
    "in\n\"id2label\" of config.json. A model with one class, or whose config says that classes do "
    "not exclude\neach other, prints every class of at least 1/2. A classifier of tokens prints a "
    "line for each word\n(its first token counts), or for each name of several words (labels B-X, "
    "I-X): label, probability,\nbytes BEGIN..END of the text, and these bytes.\n\n  sinter "
    "classify examples/models/mnist-vit/mnist_vit.npz "
    "-i digits.idx3-ubyte --labels digits.idx1-ubyte\n",
    table};

static void print_class(const lm *m, int64_t i, float p, const char *before) {
    const char *name = lm_label(m, i);
    if (name && *name)
        printf("%s%s  %.5f", before, name, p);
    else
        printf("%s%lld  %.5f", before, (long long)i, p);
}

/* ---- images ---- */

static bool check_images(const lm *m, const sn_idx *x, const char *path, sn_error *err) {
    const sn_model *v = &m->model;
    if (!v->image)
        return sn_fail(err, SN_ERR_USAGE, "a %s model does not take images: use --prompt or --file",
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

/* Writes the classes of n images to out[n], their probabilities to p[n]. */
static bool classify_images(lm *m, const unsigned char *bytes, int64_t n, int32_t *out, float *p,
                            sn_error *err) {
    const sn_model *v = &m->model;
    size_t each = (size_t)(v->channels * v->image * v->image), all = each * (size_t)n;
    float *pixels = malloc(sizeof *pixels * (all + 1)),
          *logits = malloc(sizeof *logits * (size_t)(n * v->labels + 1));
    bool ok = (pixels && logits) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (size_t i = 0; ok && i < all; i++) pixels[i] = (float)bytes[i] / 255;
    sn_arg_binding in = SN_BIND("pixels", SN_F32, pixels, n, v->channels, v->image, v->image),
                   o = SN_BIND("logits", SN_F32, logits, n, v->labels);
    ok = ok && sn_run(m->session, "forward", &in, 1, &o, 1, err);
    for (int64_t i = 0; ok && i < n; i++) {
        float *row = logits + i * v->labels;
        sn_sample_softmax(row, v->labels);
        out[i] = (int32_t)sn_sample_largest(row, (size_t)v->labels);
        p[i] = row[out[i]];
    }
    free(pixels);
    free(logits);
    return ok;
}

static bool do_images(lm *m, const options *o, const sn_idx *x, const sn_idx *labels,
                      sn_error *err) {
    int32_t *found = malloc(sizeof *found * (size_t)o->batch);
    float *p = malloc(sizeof *p * (size_t)o->batch);
    bool ok = (found && p) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int64_t n = x->shape[0], right = 0;
    size_t each = (size_t)(m->model.channels * m->model.image * m->model.image);
    for (int64_t at = 0; ok && at < n; at += o->batch) {
        int64_t count = n - at < o->batch ? n - at : o->batch;
        ok = classify_images(m, x->data + (size_t)at * each, count, found, p, err);
        for (int64_t i = 0; ok && i < count; i++) {
            if (labels->data)
                right += labels->data[at + i] == found[i];
            else
                print_class(m, found[i], p[i], ""), putchar('\n');
        }
    }
    if (ok && labels->data) printf("%lld of %lld\n", (long long)right, (long long)n);
    free(found);
    free(p);
    return ok;
}

static bool classify_files(lm *m, const options *o, sn_error *err) {
    sn_idx x = {0}, labels = {0};
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

/* ---- texts ---- */

/* Whether classes do not exclude each other, as the config says; one class alone never does. */
static bool has_many_classes(const lm *m) {
    return m->model.labels == 1 ||
           (m->config &&
            sn_config_equals(m->config, "problem_type", "\"multi_label_classification\""));
}

/* Every class of at least 1/2, or the most likely one, on a line. */
static void print_classes(const lm *m, float *logits, int64_t n) {
    size_t best = sn_sample_largest(logits, (size_t)n);
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        float p = 1 / (1 + expf(-logits[i]));
        if (p < 0.5F && (size_t)i != best) continue;
        print_class(m, i, p, any ? "  " : "");
        any = true;
    }
    putchar('\n');
}

static bool do_line(lm *m, const options *o, const char *text, size_t size, sn_error *err) {
    sn_ids ids = {0}, types = {0};
    float *logits = NULL;
    int64_t each;
    bool ok = (o->second ? encoder_read_pair(m, text, size, o->second, strlen(o->second), &ids,
                                             &types, err)
                         : encoder_read(m, text, size, &ids, err)) &&
              encoder_run(m, "forward", "logits", &ids, o->second ? &types : NULL, 1, &logits,
                          &each, NULL, err);
    if (ok && has_many_classes(m)) {
        print_classes(m, logits, each);
    } else if (ok) {
        sn_sample_softmax(logits, each);
        size_t best = sn_sample_largest(logits, (size_t)each);
        print_class(m, (int64_t)best, logits[best], "");
        putchar('\n');
    }
    sn_ids_free(&ids);
    sn_ids_free(&types);
    free(logits);
    return ok;
}

/* A line for each word, or name of several words: label, probability, place and text. */
static bool do_tokens(lm *m, const options *o, const char *text, size_t size, sn_error *err) {
    entity *list;
    size_t n;
    bool begins;
    if (o->second)
        return sn_fail(err, SN_ERR_USAGE, "a classifier of tokens reads one text: omit --second");
    bool ok = encoder_entities(m, text, size, &list, &n, err);
    for (size_t i = 0; ok && i < n; i++) {
        const char *name = entity_label(m, list[i].label, &begins);
        if (name && *name)
            printf("%s", name);
        else
            printf("%lld", (long long)list[i].label);
        printf("  %.5f  %zu..%zu  %.*s\n", list[i].p, list[i].begin, list[i].end,
               (int)(list[i].end - list[i].begin), text + list[i].begin);
    }
    free(list);
    return ok;
}

static bool classify_texts(lm *m, const options *o, sn_error *err) {
    if (m->model.image || !m->model.labels)
        return sn_fail(err, SN_ERR_USAGE,
                       m->model.image ? "this model classifies images: --images"
                                      : "this model has no class head");
    if (m->model.spans)
        return sn_fail(err, SN_ERR_USAGE, "this model answers questions: use sinter answer");
    bool (*run)(lm *, const options *, const char *, size_t, sn_error *) =
        m->model.per_token ? do_tokens : do_line;
    if (o->text) return run(m, o, o->text, strlen(o->text), err);
    size_t size;
    char *text = cmd_read_text(o->file, &size, err);
    bool ok = text != NULL;
    for (size_t at = 0; ok && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        ok = run(m, o, text + at, n, err);
        at += n + 1;
    }
    free(text);
    return ok;
}

int cmd_classify(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    if (!!o.images + !!o.text + !!o.file != 1) {
        sn_fail(&err, SN_ERR_USAGE, "give one of --images, --prompt and --file");
        return cmd_fail(NAME, &err);
    }
    lm *m = cmd_open_encoder(NAME, &o.model, &o.compile, SN_FORWARD, "forward", &code);
    if (!m) return code;
    bool ok = (o.images ? classify_files : classify_texts)(m, &o, &err);
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    lm_close(m);
    return code;
}
