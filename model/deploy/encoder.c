/* encoder.c: encodes text as vectors (one per text or one per token), embeds it, or prints the most
 * likely class and its probability. */
#include "model/text/generation_impl.h"
#include "model/deploy/program.h"
#include "model/sample.h"
#include "runtime/cli/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_ids(const program *p, const char *text, size_t size, sn_ids *ids, sn_error *err) {
    bool ok = p->tokenizer ? sn_tokenizer_encode(p->tokenizer, text, size,
                                                 SN_TOK_SPECIAL | SN_TOK_TEMPLATE, ids, err)
                           : sn_lm_encode_text(NULL, text, size, false, ids, err);
    return ok &&
           ((size && ids->count) || sn_fail(err, SN_ERR_USAGE, "the text is empty: no tokens"));
}

/* Fills an input by its name: the ids, their number, zeros for others (segments). */
static void *input_of(const sn_manifest_tensor *t, const sn_ids *ids, int32_t *count,
                      int32_t *zeros) {
    bool is_ids = !strcmp(t->name, "tokens") || !strcmp(t->name, "source");
    return is_ids ? ids->data : !strcmp(t->name, "lengths") ? count : zeros;
}

/* Runs an entry on one text. *out: its output, one row of *width per token at most; the caller
 * frees it. */
static bool run_entry(program *p, const char *entry, const sn_ids *ids, float **out, int64_t *width,
                      sn_error *err) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, entry);
    int64_t dims[SN_MANIFEST_DIMS], d = 0;
    for (int i = 0; i < e->n_dim; i++)
        dims[i] = strcmp(e->dim[i].name, "B") ? (int64_t)ids->count : 1;
    const char *comma = strrchr(e->tensor[e->n_tensor - 1].shape, ',');
    if (comma) d = strtoll(comma + 1, NULL, 10);
    int32_t count = (int32_t)ids->count, *zeros = calloc(ids->count, sizeof *zeros);
    float *result = calloc(ids->count, sizeof *result * (size_t)(d > 0 ? d : 1));
    void *args[SN_MANIFEST_TENSORS];
    for (int i = 0; i < e->n_tensor; i++)
        args[i] = e->tensor[i].is_output ? result : input_of(&e->tensor[i], ids, &count, zeros);
    bool ok = (zeros && result && d > 0) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && sn_program_call(p, entry, dims, args, err);
    free(zeros);
    if (!ok) free(result);
    *out = ok ? result : NULL;
    *width = d;
    return ok;
}

/* ---- vectors ---- */

static void print_row(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) printf(i ? " %.6g" : "%.6g", x[i]);
    putchar('\n');
}

/* Prints all rows of x, or their mean, which is written to the first row. */
static void print_hidden(const program *p, float *x, int64_t rows, int64_t d) {
    if (p->o->all) {
        for (int64_t r = 0; r < rows; r++) print_row(x + r * d, d);
        return;
    }
    for (int64_t i = 0; i < d; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += x[r * d + i];
        x[i] = (float)(sum / (double)rows);
    }
    print_row(x, d);
}

static bool encode_ids(program *p, const sn_ids *ids, sn_error *err) {
    float *hidden;
    int64_t d;
    if (!run_entry(p, "encode", ids, &hidden, &d, err)) return false;
    print_hidden(p, hidden, (int64_t)ids->count, d);
    free(hidden);
    return true;
}

/* ---- classes ---- */

static bool classify_ids(program *p, const sn_ids *ids, sn_error *err) {
    float *logits;
    int64_t n;
    int length;
    if (!run_entry(p, "forward", ids, &logits, &n, err)) return false;
    sn_sample_softmax(logits, n);
    size_t best = sn_sample_largest(logits, (size_t)n);
    const char *name = sn_manifest_label(p->a->manifest, (int64_t)best, &length);
    if (name)
        printf("%.*s  %.5f\n", length, name, logits[best]);
    else
        printf("%zu  %.5f\n", best, logits[best]);
    free(logits);
    return true;
}

/* ---- texts ---- */

typedef bool work(program *p, const sn_ids *ids, sn_error *err);

static bool do_text(program *p, work *run, const char *text, size_t size, sn_error *err) {
    sn_ids ids = {0};
    bool ok = read_ids(p, text, size, &ids, err) && run(p, &ids, err);
    sn_ids_free(&ids);
    return ok;
}

static bool do_lines(program *p, work *run, const char *file, sn_error *err) {
    size_t size;
    char *text = sn_text_read(file, &size, err);
    bool ok = text != NULL;
    for (size_t at = 0; ok && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        ok = do_text(p, run, text + at, n, err);
        at += n + 1;
    }
    free(text);
    return ok;
}

static bool do_texts(program *p, work *run, sn_error *err) {
    const text_options *o = &p->o->text;
    const char *text = o->prompt ? o->prompt : p->o->embed.text,
               *file = o->prompt_file ? o->prompt_file : p->o->embed.file;
    if (o->ids) {
        sn_ids ids = {0};
        bool ok = sn_lm_encode_text(NULL, o->ids, strlen(o->ids), false, &ids, err) &&
                  (ids.count || sn_fail(err, SN_ERR_USAGE, "the text is empty: no tokens")) &&
                  run(p, &ids, err);
        sn_ids_free(&ids);
        return ok;
    }
    if (text) return do_text(p, run, text, strlen(text), err);
    if (file) return do_lines(p, run, file, err);
    return sn_fail(err, SN_ERR_USAGE, "no text: give one with --prompt, or lines with -f");
}

bool sn_program_encode(program *p, sn_error *err) {
    return do_texts(p, encode_ids, err);
}

bool sn_program_classify(program *p, sn_error *err) {
    return do_texts(p, classify_ids, err);
}

/* ---- embeddings ---- */

/* One text at a time: several at once have the same bits. */
static bool embed_texts(void *model, const sn_ids *text, int64_t n, sentence_advance *advance,
                        void *ctx, float **out, int64_t *width, int64_t *done, sn_error *err) {
    bool ok = true;
    *out = NULL;
    for (*done = 0; ok && *done < n && advance(ctx, *done); *done += ok) {
        float *one = NULL;
        ok = run_entry(model, "embed", &text[*done], &one, width, err);
        if (ok && !*out && !(*out = malloc(sizeof **out * (size_t)(n * *width))))
            ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
        if (ok) memcpy(*out + *done * *width, one, sizeof **out * (size_t)*width);
        free(one);
    }
    if (ok) return true;
    free(*out);
    *out = NULL;
    return false;
}

/* The longest text of an entry. */
static int64_t longest_of(const sn_manifest_entry *e) {
    for (int i = 0; i < e->n_dim; i++)
        if (strcmp(e->dim[i].name, "B")) return e->dim[i].hi;
    return 1;
}

bool sn_program_embed(program *p, sn_error *err) {
    embed_job j;
    sentence_settings s = {.tokenizer = p->tokenizer,
                           .longest = longest_of(sn_manifest_get(&p->manifest, "embed"))};
    bool ok = sn_embed_begin(&j, &p->o->embed, err) &&
              sn_sentence_open(&s, *p->settings ? p->settings : NULL, err) &&
              sn_embed_run(&j, &(embed_model){p, &s, embed_texts, NULL}, err);
    sn_embed_end(&j);
    sn_sentence_close(&s);
    return ok;
}
