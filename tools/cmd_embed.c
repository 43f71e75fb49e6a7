/* cmd_embed.c: `sinter embed`: embeddings of sentences and images, and their similarity. */
#include "tools/cmd.h"
#include "ir/ir.h"
#include "model/sentence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "sinter embed"

typedef struct options {
    cmd_model model;
    cmd_compile compile;
    const char *text, *file, *prompt;
    arg_texts images;
    bool similarity, truncate;
    int64_t batch;
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"prompt", 'p', ARG_TEXT, AT(text), "TEXT", NULL, 0, 0, "a sentence"},
    {"file", 'f', ARG_TEXT, AT(file), "FILE", NULL, 0, 0,
     "one sentence per line; -: standard input; with --prompt or --image: rank them by "
     "similarity to it"},
    {"image", 'i', ARG_TEXTS, AT(images), "FILE", NULL, 0, 0,
     "a picture (PNG, JPEG), for a model that takes images; may be repeated"},
    {"similarity", 0, ARG_FLAG, AT(similarity), NULL, NULL, 0, 0,
     "print the cosine similarity of all pairs of lines as a table"},
    {"prompt-name", 0, ARG_TEXT, AT(prompt), "NAME", NULL, 0, 0,
     "the model's prompt for all sentences (config_sentence_transformers.json)"},
    {"truncate", 0, ARG_FLAG, AT(truncate), NULL, NULL, 0, 0,
     "cut sentences that are too long for the model"},
    {"batch", 'b', ARG_INT, AT(batch), "N", "32", 1, 1024,
     "the most sentences computed at a time; the results are the same for any"},
    CMD_COMPILE_ARGS(options),
    CMD_CHECK_NAN_ARG(options),
    {0},
};

static const arg_key keys[] = {
    {"input", "text", "the sentence, or the file of the picture"},
    {"index", "integer", "number of the input: pictures, then --prompt, then lines"},
    {"embedding", "list?", "numbers"},
    {"score", "number?", "where inputs are ranked: cosine with the first one"},
    {"similarity", "list?", "with --similarity: cosines with all inputs"},
    {0}};

static const arg_command command = {
    NAME,
    "embeddings of sentences and images; rank sentences by similarity",
    "An embedding is the mean of an encoder's last hidden states over the sentence's tokens, "
    "scaled\n"
    "to norm 1, or what the folder's modules.json says; of an image, what its model makes of it "
    "(the\n"
    "class token, or CLIP's projection). Prints a line of numbers per input, unless similarities\n"
    "(cosines) are requested. If sentences are ranked and the model has prompts called query, and\n"
    "document or passage, these precede the sentence and the lines.\n",
    table,
    .examples = "sinter embed MODEL -f sentences.txt --json\n"
                "sinter embed MODEL -p \"a rider on a horse\" -f sentences.txt\n"
                "sinter embed CLIP -i photo.jpg -f captions.txt\n",
    .json = keys};

typedef struct sentence {
    const char *image; /* a file; or NULL: */
    const char *text;
    size_t size;
    float *embedding; /* [width]; owned if of an image */
    double score;
    int64_t line;
} sentence;

typedef struct job {
    lm *m;
    const options *o;
    sentence_settings settings;
    char *file;
    sentence *list;    /* images, the prompt, lines */
    float *embeddings; /* of the texts */
    int64_t n, width, done;
    bool texts;
    screen_progress progress;
} job;

static bool add(job *j, const sentence *s, sn_error *err) {
    sentence *more = realloc(j->list, (size_t)(j->n + 1) * sizeof *more);
    if (!more) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    j->list = more;
    j->list[j->n] = *s;
    j->list[j->n].line = j->n;
    j->n++;
    j->texts |= !s->image;
    return true;
}

static bool add_lines(job *j, sn_error *err) {
    size_t size;
    int64_t before = j->n;
    j->file = cmd_read_text(j->o->file, &size, err);
    for (size_t at = 0; j->file && at < size;) {
        const char *end = memchr(j->file + at, '\n', size - at);
        size_t n = end ? (size_t)(end - j->file) - at : size - at;
        if (n && !add(j, &(sentence){.text = j->file + at, .size = n}, err)) return false;
        at += n + 1;
    }
    return j->file && (j->n > before || sn_fail(err, SN_ERR_USAGE, "%s: no sentences", j->o->file));
}

static bool collect(job *j, sn_error *err) {
    const options *o = j->o;
    if (!o->text && !o->file && !o->images.n)
        return sn_fail(
            err, SN_ERR_USAGE,
            "give a sentence with --prompt, lines with --file, or a picture with --image");
    for (int i = 0; i < o->images.n; i++)
        if (!add(j, &(sentence){.image = o->images.item[i]}, err)) return false;
    if (o->text && !add(j, &(sentence){.text = o->text, .size = strlen(o->text)}, err))
        return false;
    if (o->file && !add_lines(j, err)) return false;
    if (o->images.n > 1 && j->texts && !o->similarity)
        return sn_fail(err, SN_ERR_USAGE,
                       "sentences are ranked by similarity to one image; "
                       "--similarity compares all with each other");
    return true;
}

/* The prompt of sentence i: as asked for; the usual ones of a query and of documents where sentences
 * are ranked; else the model's default. */
static const char *prompt_of(job *j, int64_t i, sn_error *err) {
    static const char *const documents[] = {"document", "passage", "corpus"};
    const char *name = j->o->prompt;
    bool ranked = j->o->text && j->o->file;
    if (!name && ranked && !i && sentence_has_prompt(&j->settings, "query")) name = "query";
    for (int k = 2; k >= 0 && !j->o->prompt && ranked && i; k--)
        if (sentence_has_prompt(&j->settings, documents[k])) name = documents[k];
    return sentence_prompt(&j->settings, name, err);
}

static bool embed_images(job *j, sn_error *err) {
    for (; j->done < j->o->images.n && !screen_stopped(); j->done++) {
        sentence *s = &j->list[j->done];
        screen_progress_of(&j->progress, "embed", (double)j->done, (double)j->n);
        if (!encoder_embed_image(j->m, s->image, &s->embedding, &j->width, err)) return false;
    }
    return true;
}

static bool read_texts(job *j, sn_ids *ids, sn_error *err) {
    const int64_t first = j->o->images.n;
    for (int64_t i = first; i < j->n; i++) {
        const char *prompt = prompt_of(j, i, err);
        const sentence *s = &j->list[i];
        sn_error why = {0};
        if (!prompt) return false;
        if (!sentence_read_text(j->m, &j->settings, prompt, s->text, s->size, j->o->truncate,
                                &ids[i - first], &why))
            return sn_fail(err, why.code, "sentence %lld: %s", (long long)(i - first) + 1,
                           why.message);
    }
    return true;
}

static bool show_progress(void *ctx, int64_t done) {
    job *j = ctx;
    screen_progress_of(&j->progress, "embed", (double)(j->o->images.n + done), (double)j->n);
    return !screen_stopped();
}

static bool embed_texts(job *j, sn_error *err) {
    const int64_t first = j->o->images.n, n = j->n - first;
    int64_t done = 0;
    sn_ids *ids = calloc((size_t)n + 1, sizeof *ids);
    bool ok = (ids || sn_fail(err, SN_ERR_MEMORY, "out of memory")) && read_texts(j, ids, err) &&
              sentence_embed_texts(j->m, ids, n, j->o->batch, show_progress, j, &j->embeddings,
                                   &j->width, &done, err);
    for (int64_t i = 0; ok && i < done; i++)
        j->list[first + i].embedding = j->embeddings + i * j->width;
    for (int64_t i = 0; ids && i < n; i++) sn_ids_free(&ids[i]);
    free(ids);
    j->done += done;
    return ok;
}

static bool embed_all(job *j, sn_error *err) {
    if (j->texts && !sn_entry_get(j->m->model.module, "embed"))
        return sn_fail(err, SN_ERR_USAGE, "%s models do not read texts", j->m->model.type);
    if (!sentence_open(j->m, &j->settings, err)) return false;
    screen_catch_stop();
    bool ok = embed_images(j, err) && (!j->texts || screen_stopped() || embed_texts(j, err));
    screen_progress_end(&j->progress);
    return ok;
}

static double cosine(const job *j, int64_t a, int64_t b) {
    const float *x = j->list[a].embedding, *y = j->list[b].embedding;
    double sum = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < j->width; i++) {
        sum += (double)x[i] * y[i];
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
    }
    return sum / fmax(sqrt(xx) * sqrt(yy), 1e-12);
}

static int compare_scores(const void *a, const void *b) {
    const sentence *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->line < y->line ? -1 : 1;
}

static void print_json(job *j, int64_t i, bool ranked) {
    const sentence *s = &j->list[i];
    json_out out = json_begin(stdout);
    if (s->image)
        json_text(&out, "input", s->image);
    else
        json_bytes(&out, "input", s->text, s->size);
    json_int(&out, "index", s->line);
    if (ranked) json_number(&out, "score", s->score);
    if (!ranked) json_list(&out, j->o->similarity ? "similarity" : "embedding");
    for (int64_t k = 0; !ranked && k < (j->o->similarity ? j->n : j->width); k++)
        json_number(&out, NULL, j->o->similarity ? cosine(j, i, k) : s->embedding[k]);
    json_end(&out);
}

static void print_all(job *j) {
    const options *o = j->o;
    bool image = o->images.n == 1 && j->texts && !o->similarity;
    if (image || (o->text && o->file)) {
        for (int64_t i = 1; i < j->n; i++) j->list[i].score = cosine(j, 0, i);
        qsort(j->list + 1, (size_t)j->n - 1, sizeof *j->list, compare_scores);
        for (int64_t i = 1; i < j->n; i++)
            if (screen()->json)
                print_json(j, i, true);
            else
                printf("%8.5f  %.*s\n", j->list[i].score, (int)j->list[i].size, j->list[i].text);
        return;
    }
    for (int64_t i = 0; screen()->json && i < j->n; i++) print_json(j, i, false);
    if (screen()->json) return;
    int64_t columns = j->o->similarity ? j->n : j->width;
    for (int64_t i = 0; i < j->n; i++) {
        for (int64_t k = 0; k < columns; k++)
            printf("%s%.*f", k ? " " : "", j->o->similarity ? 5 : 7,
                   j->o->similarity ? cosine(j, i, k) : j->list[i].embedding[k]);
        putchar('\n');
    }
}

int cmd_embed(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    job j = {.o = &o};
    bool ok = collect(&j, &err);
    const char *needs = o.images.n ? "embed_image" : "embed";
    if (ok) j.m = cmd_open_encoder(NAME, &o.model, &o.compile, SN_EMBED, needs, &code);
    if (!ok) code = cmd_fail(NAME, &err);
    if (j.m) {
        ok = embed_all(&j, &err);
        const int64_t all = j.n;
        if (ok && j.done < all) { /* Ctrl-C: what is done */
            j.n = j.done;
            ok = screen_interrupted(&err, "%lld of %lld inputs are done", (long long)j.done,
                                    (long long)all);
        }
        if (j.n && !err.code) print_all(&j);
        j.n = all;
        code = ok ? cmd_finish(NAME) : cmd_fail(NAME, &err);
    }
    for (int64_t i = 0; i < o.images.n && i < j.n; i++) free(j.list[i].embedding);
    free(j.embeddings);
    free(j.list);
    sentence_close(&j.settings);
    free(j.file);
    lm_close(j.m);
    return code;
}
