/* embed.c: embeddings of sentences and images, and their similarity. */
#include "model/cli/embed.h"
#include "runtime/cli/json_out.h"
#include "model/cli/text_gen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const arg_key sn_embed_keys[] = {
    {"input", "text", "the sentence, or the file of the picture"},
    {"index", "integer", "number of the input: pictures, then --prompt, then lines"},
    {"embedding", "list?", "numbers"},
    {"score", "number?", "where inputs are ranked: cosine with the first one"},
    {"similarity", "list?", "with --similarity: cosines with all inputs"},
    {0}};

static bool add(embed_job *j, const embed_input *s, sn_error *err) {
    embed_input *more = realloc(j->list, (size_t)(j->n + 1) * sizeof *more);
    if (!more) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    j->list = more;
    j->list[j->n] = *s;
    j->list[j->n].line = j->n;
    j->n++;
    j->texts |= !s->image;
    return true;
}

static bool add_lines(embed_job *j, sn_error *err) {
    size_t size;
    int64_t before = j->n;
    j->file = sn_text_read(j->o->file, &size, err);
    for (size_t at = 0; j->file && at < size;) {
        const char *end = memchr(j->file + at, '\n', size - at);
        size_t n = end ? (size_t)(end - j->file) - at : size - at;
        if (n && !add(j, &(embed_input){.text = j->file + at, .size = n}, err)) return false;
        at += n + 1;
    }
    return j->file && (j->n > before || sn_fail(err, SN_ERR_USAGE, "%s: no sentences", j->o->file));
}

bool sn_embed_begin(embed_job *j, const embed_options *o, sn_error *err) {
    *j = (embed_job){.o = o};
    if (!o->text && !o->file && !o->images.n)
        return sn_fail(err, SN_ERR_USAGE, "give a sentence with --prompt, or lines with --file");
    for (int i = 0; i < o->images.n; i++)
        if (!add(j, &(embed_input){.image = o->images.item[i]}, err)) return false;
    if (o->text && !add(j, &(embed_input){.text = o->text, .size = strlen(o->text)}, err))
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
static const char *prompt_of(const embed_job *j, sentence_settings *settings, int64_t i,
                             sn_error *err) {
    static const char *const documents[] = {"document", "passage", "corpus"};
    const char *name = j->o->prompt;
    bool ranked = j->o->text && j->o->file;
    if (!name && ranked && !i && sn_sentence_has_prompt(settings, "query")) name = "query";
    for (int k = 2; k >= 0 && !j->o->prompt && ranked && i; k--)
        if (sn_sentence_has_prompt(settings, documents[k])) name = documents[k];
    return sn_sentence_prompt(settings, name, err);
}

static bool embed_images(embed_job *j, const embed_model *m, sn_error *err) {
    for (; j->done < j->o->images.n && !sn_screen_stopped(); j->done++) {
        embed_input *s = &j->list[j->done];
        sn_screen_progress_of(&j->progress, "embed", (double)j->done, (double)j->n);
        if (!m->image(m->model, s->image, &s->embedding, &j->width, err)) return false;
    }
    return true;
}

static bool read_texts(embed_job *j, const embed_model *m, sn_ids *ids, sn_error *err) {
    const int64_t first = j->o->images.n;
    for (int64_t i = first; i < j->n; i++) {
        const char *prompt = prompt_of(j, m->settings, i, err);
        const embed_input *s = &j->list[i];
        sn_error why = {0};
        if (!prompt) return false;
        if (!sn_sentence_read_text(m->settings, prompt, s->text, s->size, j->o->truncate,
                                   &ids[i - first], &why))
            return sn_fail(err, why.code, "sentence %lld: %s", (long long)(i - first) + 1,
                           why.message);
    }
    return true;
}

static bool show_progress(void *ctx, int64_t done) {
    embed_job *j = ctx;
    sn_screen_progress_of(&j->progress, "embed", (double)(j->o->images.n + done), (double)j->n);
    return !sn_screen_stopped();
}

static bool embed_texts(embed_job *j, const embed_model *m, sn_error *err) {
    const int64_t first = j->o->images.n, n = j->n - first;
    int64_t done = 0;
    sn_ids *ids = calloc((size_t)n + 1, sizeof *ids);
    bool ok = (ids || sn_fail(err, SN_ERR_MEMORY, "out of memory")) && read_texts(j, m, ids, err) &&
              m->texts(m->model, ids, n, show_progress, j, &j->embeddings, &j->width, &done, err);
    for (int64_t i = 0; ok && i < done; i++)
        j->list[first + i].embedding = j->embeddings + i * j->width;
    for (int64_t i = 0; ids && i < n; i++) sn_ids_free(&ids[i]);
    free(ids);
    j->done += done;
    return ok;
}

static double cosine(const embed_job *j, int64_t a, int64_t b) {
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
    const embed_input *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->line < y->line ? -1 : 1;
}

static void print_json(embed_job *j, int64_t i, bool ranked) {
    const embed_input *s = &j->list[i];
    json_out out = sn_json_begin(stdout);
    if (s->image)
        sn_json_text(&out, "input", s->image);
    else
        sn_json_bytes(&out, "input", s->text, s->size);
    sn_json_integer(&out, "index", s->line);
    if (ranked) sn_json_number(&out, "score", s->score);
    if (!ranked) sn_json_list(&out, j->o->similarity ? "similarity" : "embedding");
    for (int64_t k = 0; !ranked && k < (j->o->similarity ? j->n : j->width); k++)
        sn_json_number(&out, NULL, j->o->similarity ? cosine(j, i, k) : s->embedding[k]);
    sn_json_end(&out);
}

static void print_all(embed_job *j) {
    const embed_options *o = j->o;
    bool image = o->images.n == 1 && j->texts && !o->similarity;
    if (image || (o->text && o->file)) {
        for (int64_t i = 1; i < j->n; i++) j->list[i].score = cosine(j, 0, i);
        qsort(j->list + 1, (size_t)j->n - 1, sizeof *j->list, compare_scores);
        for (int64_t i = 1; i < j->n; i++)
            if (sn_screen()->json)
                print_json(j, i, true);
            else
                printf("%8.5f  %.*s\n", j->list[i].score, (int)j->list[i].size, j->list[i].text);
        return;
    }
    for (int64_t i = 0; sn_screen()->json && i < j->n; i++) print_json(j, i, false);
    if (sn_screen()->json) return;
    int64_t columns = j->o->similarity ? j->n : j->width;
    for (int64_t i = 0; i < j->n; i++) {
        for (int64_t k = 0; k < columns; k++)
            printf("%s%.*f", k ? " " : "", j->o->similarity ? 5 : 7,
                   j->o->similarity ? cosine(j, i, k) : j->list[i].embedding[k]);
        putchar('\n');
    }
}

bool sn_embed_run(embed_job *j, const embed_model *m, sn_error *err) {
    const int64_t all = j->n;
    sn_screen_catch_stop();
    bool ok =
        embed_images(j, m, err) && (!j->texts || sn_screen_stopped() || embed_texts(j, m, err));
    sn_screen_progress_end(&j->progress);
    if (ok && j->done < all) { /* Ctrl-C: what is done */
        j->n = j->done;
        ok = sn_screen_interrupted(err, "%lld of %lld inputs are done", (long long)j->done,
                                   (long long)all);
    }
    if (j->n && !err->code) print_all(j);
    j->n = all;
    return ok;
}

void sn_embed_end(embed_job *j) {
    for (int64_t i = 0; i < j->n; i++)
        if (j->list[i].image) free(j->list[i].embedding);
    free(j->embeddings);
    free(j->list);
    free(j->file);
}
