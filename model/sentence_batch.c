/* sentence_batch.c: embeddings of many texts. A call computes texts of the same number of tokens:
 * padding would cost time and change the last bits of sums over a text. */
#include "model/sentence_batch.h"
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

enum {
    TEXTS = 32,    /* of a call, unless the caller says how many */
    TOKENS = 4096, /* the most in a call of several texts */
    WINDOW = 4096, /* texts that are sorted by length together */
};

bool sentence_settings_of(const open_model *m, sentence_settings *s, sn_error *err) {
    *s = (sentence_settings){
        .tokenizer = m->io->tokenizer, .longest = m->model.context, .vocab = m->model.vocab};
    return sn_sentence_open(s, m->folder, err);
}

/* The largest batch that the inputs of entry `embed` take. */
static int64_t largest_batch(const open_model *m) {
    sn_module *mod = m->model.module;
    int64_t rows = INT64_MAX;
    for (uint32_t i = 0; i < sn_module_node_count(mod); i++) {
        const sn_node *n = sn_module_node(mod, i);
        if (n->op != SN_OP_input || strcmp(sn_attr_str(n, SN_A_name, ""), "tokens") || !n->rank)
            continue;
        int64_t hi = sn_dim_hi(mod, n->shape[0]);
        if (hi < rows) rows = hi;
    }
    return rows < 1 ? 1 : rows;
}

typedef struct place {
    size_t length;
    int64_t text;
} place;

static int longest_first(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->text < y->text ? -1 : 1;
}

/* The embeddings of the n texts at `p`, which is sorted, to their rows of *out, which is made when the
 * width is known. */
static bool embed_call(open_model *m, const sn_ids *text, const place *p, int64_t n, int64_t all,
                       float **out, int64_t *width, sn_error *err) {
    float *found = NULL;
    sn_ids *some = malloc(sizeof *some * (size_t)n);
    if (!some) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    const int64_t before = *width;
    for (int64_t i = 0; i < n; i++) some[i] = text[p[i].text];
    bool ok = encoder_run(m, "embed", "embedding", some, NULL, n, &found, width, NULL, err);
    if (ok && *out && *width != before)
        ok = sn_fail(err, SN_ERR_USAGE, "embeddings of %lld and of %lld numbers in one model",
                     (long long)before, (long long)*width);
    size_t row = sizeof **out * (size_t)*width;
    if (ok && !*out && !(*out = malloc(row * (size_t)all + 1)))
        ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; ok && i < n; i++)
        memcpy(*out + p[i].text * *width, found + i * *width, row);
    free(found);
    free(some);
    return ok;
}

/* How many of the n texts at `p` a call computes. */
static int64_t call_size(const place *p, int64_t n, int64_t rows) {
    int64_t count = 1;
    while (count < n && count < rows && p[count].length == p->length &&
           (size_t)(count + 1) * p->length <= TOKENS)
        count++;
    return count;
}

bool sentence_embed_texts(open_model *m, const sn_ids *text, int64_t n, int64_t batch,
                          sentence_advance *advance, void *ctx, float **out, int64_t *width,
                          int64_t *done, sn_error *err) {
    int64_t rows = largest_batch(m);
    place *p = malloc(sizeof *p * (size_t)(n + 1));
    *out = NULL;
    *done = 0;
    if (!p) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (batch <= 0) batch = TEXTS;
    if (batch < rows) rows = batch;
    for (int64_t i = 0; i < n; i++) p[i] = (place){text[i].count, i};
    bool ok = true;
    for (int64_t first = 0; ok && first < n && *done == first; first += WINDOW) {
        int64_t end = n - first < WINDOW ? n : first + WINDOW, at = first;
        qsort(p + first, (size_t)(end - first), sizeof *p, longest_first);
        while (ok && at < end && (!advance || advance(ctx, at))) {
            int64_t count = call_size(p + at, end - at, rows);
            ok = embed_call(m, text, p + at, count, n, out, width, err);
            at += count;
        }
        if (ok && at == end) *done = end;
    }
    free(p);
    if (ok) return true;
    free(*out);
    *out = NULL;
    return false;
}
