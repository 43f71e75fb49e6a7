/* cmd_classify.c: `sinter classify`: classifies images or texts [PH22 section 3]. */
#include "model/commands/commands.h"
#include "model/sample.h"
#include "model/entities.h"
#include "model/commands/classify_images.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter classify"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    classify_options o;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"images", 'i', ARG_TEXT, AT(o.images), "FILE", NULL, 0, 0,
     "a picture (PNG, JPEG), or images in the IDX format of MNIST; -: standard input"},
    {"labels", 0, ARG_TEXT, AT(o.labels), "FILE", NULL, 0, 0,
     "true labels (IDX); prints only the number of correct predictions"},
    {"prompt", 'p', ARG_TEXT, AT(o.text), "TEXT", NULL, 0, 0,
     "a text, for a text encoder; with -i: what it might show"},
    {"second", 0, ARG_TEXT, AT(o.second), "TEXT", NULL, 0, 0,
     "the second text of a pair, for models of pairs"},
    {"file", 'f', ARG_TEXT, AT(o.file), "FILE", NULL, 0, 0,
     "classify each line of a file; -: standard input; with -i: what it might show, a line each"},
    {"batch", 'b', ARG_INT, AT(o.batch), "N", "64", 1, 1024, "images per run"},
    {"top", 'k', ARG_INT, AT(o.top), "N", "0", 0, 1 << 20,
     "print the N likeliest classes of an image; 0: of a picture five, else one"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {
    {"input", "text", "the text, or the file of the image"},
    {"index", "integer?", "number of the image in an IDX file, from 0"},
    {"classes", "list?", "the likeliest first"},
    {"classes[].id", "integer", "number of the class; of captions: of the line"},
    {"classes[].label", "text", "its name in config.json, or the caption; empty: none"},
    {"classes[].p", "number", "its probability"},
    {"entities", "list?", "of classifiers of tokens"},
    {"entities[].id", "integer", "number of the class"},
    {"entities[].label", "text", "its name"},
    {"entities[].p", "number", "its probability"},
    {"entities[].begin", "integer", "first byte in the text"},
    {"entities[].end", "integer", "byte after the last"},
    {"entities[].text", "text", "these bytes"},
    {"right", "integer?", "with --labels: correct predictions"},
    {"images", "integer?", "with --labels: number of images"},
    {0}};

static const arg_command command = {
    NAME,
    "classify images, texts, or the words of texts",
    "Prints a line for each input: the class and its probability. Classes are named as in\n"
    "\"id2label\" of config.json. A model with one class, or whose config says that classes do not "
    "exclude\n"
    "each other, prints every class of at least 1/2. A classifier of tokens prints a line for each "
    "word\n"
    "(its first token counts), or for each name of several words (labels B-X, I-X): label, "
    "probability,\n"
    "bytes BEGIN..END of the text, and these bytes. A model of images and texts (clip,\n"
    "siglip) says how well each line of --file fits the picture.\n",
    table,
    .examples = "sinter classify MODEL -i photo.jpg\n"
                "sinter classify CLIP -i photo.jpg -f captions.txt\n",
    .json = keys};

/* ---- texts ---- */

/* Whether classes do not exclude each other, as the config says; one class alone never does. */
static bool has_many_classes(const open_model *m) {
    return m->model.labels == 1 ||
           (m->config &&
            sn_config_equals(m->config, "problem_type", "\"multi_label_classification\""));
}

/* Every class of at least 1/2, or the most likely one, on a line. */
static void print_classes(json_out *j, const open_model *m, float *logits, int64_t n) {
    size_t best = sn_sample_largest(logits, (size_t)n);
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        float p = 1 / (1 + expf(-logits[i]));
        if (p < 0.5F && (size_t)i != best) continue;
        classify_print(j, m, i, p, any ? "  " : "");
        any = true;
    }
}

static bool do_line(open_model *m, const classify_options *o, const char *text, size_t size,
                    sn_error *err) {
    sn_ids ids = {0}, types = {0};
    float *logits = NULL;
    int64_t each;
    bool ok = (o->second ? encoder_read_pair(m, text, size, o->second, strlen(o->second), &ids,
                                             &types, err)
                         : encoder_read(m, text, size, &ids, err)) &&
              encoder_run(m, "forward", "logits", &ids, o->second ? &types : NULL, 1, &logits,
                          &each, NULL, err);
    const bool json = ok && sn_screen()->json;
    json_out j;
    if (json) j = classify_begin(text, size, -1);
    if (ok && has_many_classes(m)) {
        print_classes(json ? &j : NULL, m, logits, each);
    } else if (ok) {
        sn_sample_softmax(logits, each);
        size_t best = sn_sample_largest(logits, (size_t)each);
        classify_print(json ? &j : NULL, m, (int64_t)best, logits[best], "");
    }
    if (json)
        sn_json_end(&j);
    else if (ok)
        putchar('\n');
    sn_ids_free(&ids);
    sn_ids_free(&types);
    free(logits);
    return ok;
}

static void print_entities(const open_model *m, const char *text, size_t size, const entity *list,
                           size_t n) {
    bool begins;
    json_out j = sn_json_begin(stdout);
    sn_json_bytes(&j, "input", text, size);
    sn_json_list(&j, "entities");
    for (size_t i = 0; i < n; i++) {
        const char *name = entity_label(m, list[i].label, &begins);
        sn_json_object(&j, NULL);
        sn_json_integer(&j, "id", list[i].label);
        sn_json_text(&j, "label", name ? name : "");
        sn_json_number(&j, "p", list[i].p);
        sn_json_integer(&j, "begin", (int64_t)list[i].begin);
        sn_json_integer(&j, "end", (int64_t)list[i].end);
        sn_json_bytes(&j, "text", text + list[i].begin, list[i].end - list[i].begin);
        sn_json_close(&j);
    }
    sn_json_end(&j);
}

/* A line for each word, or name of several words: label, probability, place and text. */
static bool do_tokens(open_model *m, const classify_options *o, const char *text, size_t size,
                      sn_error *err) {
    entity *list;
    size_t n;
    bool begins;
    if (o->second)
        return sn_fail(err, SN_ERR_USAGE, "a classifier of tokens reads one text: omit --second");
    bool ok = encoder_entities(m, text, size, &list, &n, err);
    if (ok && sn_screen()->json) print_entities(m, text, size, list, n);
    for (size_t i = 0; ok && i < n && !sn_screen()->json; i++) {
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

static bool classify_texts(open_model *m, const classify_options *o, sn_error *err) {
    if (m->model.image || !m->model.labels)
        return sn_fail(err, SN_ERR_USAGE,
                       m->model.image ? "this model classifies images: --images"
                                      : "this model has no class head");
    if (m->model.spans)
        return sn_fail(err, SN_ERR_USAGE, "this model answers questions: use sinter answer");
    bool (*run)(open_model *, const classify_options *, const char *, size_t, sn_error *) =
        m->model.per_token ? do_tokens : do_line;
    if (o->text) return run(m, o, o->text, strlen(o->text), err);
    size_t size;
    char *text = sn_text_read(o->file, &size, err);
    bool ok = text != NULL;
    sn_screen_catch_stop();
    for (size_t at = 0; ok && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        ok = run(m, o, text + at, n, err);
        at += n + 1;
        if (ok && at < size && sn_screen_stopped())
            ok = sn_screen_interrupted(err, "after %zu of %zu bytes", at, size);
    }
    free(text);
    return ok;
}

int cmd_classify(int argc, char **argv) {
    options all = {0};
    int code = sn_args_parse(&command, argc, argv, &all);
    if (code != ARGS_RUN) return code;
    const classify_options *o = &all.o;
    sn_error err = {0};
    if ((!o->images && !o->text && !o->file) || (o->text && o->file)) {
        sn_fail(&err, SN_ERR_USAGE, "give one of --images, --prompt and --file");
        return cmd_fail(NAME, &err);
    }
    if (o->images && !(all.o.images = cmd_input_path(o->images, &err))) return cmd_fail(NAME, &err);
    open_model *m = cmd_open(NAME, &all.model, &all.compile,
                             CMD_ENCODER(SN_FORWARD | SN_CLASSIFY, "forward"), &code);
    if (!m) return code;
    bool ok = (o->images ? classify_images : classify_texts)(m, o, &err);
    code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    model_close(m);
    return code;
}
