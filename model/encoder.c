/* encoder.c: runs encoders on texts and on images. */
#include "model/encoder.h"
#include "model/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether the ids of a text of this size fit the model. */
static bool check_ids(const open_model *m, const sn_ids *ids, size_t size, sn_error *err) {
    int64_t n = (int64_t)ids->count;
    if (n < 1 || !size)
        return sn_fail(err, SN_ERR_USAGE, "the text is empty: there is nothing to read");
    if (n > m->model.context)
        return sn_fail(
            err, SN_ERR_RANGE,
            "the text has %lld tokens, but the model has only %lld positions: shorten it",
            (long long)n, (long long)m->model.context);
    /* of some models in C it is not known: a run checks tokens, too */
    for (size_t i = 0; m->model.vocab && i < ids->count; i++)
        if (ids->data[i] < 0 || ids->data[i] >= m->model.vocab)
            return sn_fail(err, SN_ERR_RANGE, "token %d is outside the vocabulary 0..%lld",
                           (int)ids->data[i], (long long)m->model.vocab - 1);
    return true;
}

bool encoder_read(const open_model *m, const char *text, size_t size, sn_ids *out, sn_error *err) {
    bool ok = m->io->tokenizer ? sn_tokenizer_encode(m->io->tokenizer, text, size,
                                                     SN_TOK_SPECIAL | SN_TOK_TEMPLATE, out, err)
                               : lm_encode(m, text, size, false, out, err);
    return ok && check_ids(m, out, size, err);
}

/* ---- places and pairs ---- */

static bool need_tokenizer(const open_model *m, sn_error *err) {
    return m->io->tokenizer || sn_fail(err, SN_ERR_USAGE, "this needs a model with a tokenizer");
}

bool encoder_read_places(const open_model *m, const char *text, size_t size, encoder_text *t,
                         sn_error *err) {
    sn_ids plain = {0};
    *t = (encoder_text){0};
    bool ok = need_tokenizer(m, err) && encoder_read(m, text, size, &t->ids, err) &&
              sn_tokenizer_encode(m->io->tokenizer, text, size, SN_TOK_SPECIAL, &plain, err);
    size_t bytes = plain.count * sizeof *plain.data;
    t->n = plain.count;
    while (ok && t->first + t->n < t->ids.count &&
           memcmp(t->ids.data + t->first, plain.data, bytes) != 0)
        t->first++;
    if (ok) t->place = calloc(t->n + 1, sizeof *t->place);
    ok = ok && (t->place || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
         sn_tokenizer_locate(m->io->tokenizer, text, size, &plain, t->place, err);
    sn_ids_free(&plain);
    return ok;
}

void encoder_text_free(encoder_text *t) {
    sn_ids_free(&t->ids);
    free(t->place);
}

bool encoder_read_pair(const open_model *m, const char *a, size_t a_size, const char *b,
                       size_t b_size, sn_ids *out, sn_ids *types, sn_error *err) {
    sn_ids first = {0}, second = {0};
    bool ok = need_tokenizer(m, err) &&
              sn_tokenizer_encode(m->io->tokenizer, a, a_size, SN_TOK_SPECIAL, &first, err) &&
              sn_tokenizer_encode(m->io->tokenizer, b, b_size, SN_TOK_SPECIAL, &second, err) &&
              sn_tokenizer_join(m->io->tokenizer, &first, second.data, second.count, out, types,
                                NULL, err) &&
              check_ids(m, out, a_size && b_size, err);
    sn_ids_free(&first);
    sn_ids_free(&second);
    return ok;
}

/* ---- running ---- */

/* A batch of texts, padded with zeros: tokens, types [n, T], lengths [n] in one allocation. */
typedef struct batch {
    int64_t n, T;
    int32_t *tokens, *types, *lengths;
} batch;

static bool make_batch(const sn_ids *text, const sn_ids *kinds, int64_t n, batch *b,
                       sn_error *err) {
    *b = (batch){.n = n, .T = 1};
    for (int64_t i = 0; i < n; i++)
        b->T = (int64_t)text[i].count > b->T ? (int64_t)text[i].count : b->T;
    size_t all = (size_t)(n * b->T);
    b->tokens = calloc(2 * all + (size_t)n, sizeof *b->tokens);
    if (!b->tokens) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    b->types = b->tokens + all, b->lengths = b->types + all;
    for (int64_t i = 0; i < n; i++) {
        memcpy(b->tokens + i * b->T, text[i].data, text[i].count * sizeof *b->tokens);
        if (kinds) memcpy(b->types + i * b->T, kinds[i].data, text[i].count * sizeof *b->types);
        b->lengths[i] = (int32_t)text[i].count;
    }
    return true;
}

/* Runs an entry and allocates its output: *each elements per row of the first axis. */
static bool run(open_model *m, const char *entry, const char *output, const sn_arg_binding *in,
                int n_in, float **out, int64_t *each, sn_error *err) {
    int64_t shape[8] = {0};
    *out = NULL;
    *each = 1;
    int rank = sn_output_shape(m->program, entry, in, n_in, output, shape, err);
    if (rank < 0) return false;
    for (int a = 1; a < rank; a++) *each *= shape[a];
    *out = malloc(sizeof **out * (size_t)(shape[0] * *each) + 1);
    if (!*out) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_arg_binding o = {output, SN_F32, rank, shape, *out};
    if (sn_run(m->session, entry, in, n_in, &o, 1, err) &&
        lm_check_output(output, *out, shape[0] * *each, err))
        return true;
    free(*out);
    *out = NULL;
    return false;
}

bool encoder_run(open_model *m, const char *entry, const char *output, const sn_ids *text,
                 const sn_ids *kinds, int64_t n, float **out, int64_t *each, int64_t *length,
                 sn_error *err) {
    batch b;
    *out = NULL;
    if (!make_batch(text, kinds, n, &b, err)) return false;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, b.tokens, n, b.T),
                           SN_BIND("lengths", SN_I32, b.lengths, n),
                           SN_BIND("types", SN_I32, b.types, n, b.T)};
    int n_in = lm_has_input(m->model.module, "types") ? 3 : 2;
    bool ok = run(m, entry, output, in, n_in, out, each, err);
    free(b.tokens);
    if (length) *length = b.T;
    return ok;
}

/* ---- images ---- */

/* A model that normalises its pixels needs no file that says it. */
bool encoder_picture_rules(const open_model *m, picture_rules *out) {
    *out = m->io->has_pictures ? m->io->pictures : picture_rules_plain((int)m->model.image);
    return m->io->has_pictures || m->model.normalises;
}

float encoder_pixel(const open_model *m, int c, unsigned char byte) {
    picture_rules r;
    encoder_picture_rules(m, &r);
    return picture_normalise(&r, c, byte);
}

float *encoder_pixels(const open_model *m, const char *path, sn_error *err) {
    const sn_model *v = &m->model;
    picture_rules r;
    if (!encoder_picture_rules(m, &r)) {
        sn_fail(err, SN_ERR_FILE,
                "the model folder has no preprocessor_config.json, which says how pictures are "
                "scaled and normalised");
        return NULL;
    }
    float *pixels = malloc(sizeof *pixels * (size_t)(v->channels * v->image * v->image) + 1);
    if (!pixels) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (pixels && picture_pixels(path, &r, (int)v->channels, (int)v->image, pixels, err))
        return pixels;
    free(pixels);
    return NULL;
}

bool encoder_embed_image(open_model *m, const char *path, float **out, int64_t *width,
                         sn_error *err) {
    const sn_model *v = &m->model;
    float *pixels = encoder_pixels(m, path, err);
    if (!pixels) return false;
    sn_arg_binding in = SN_BIND("pixels", SN_F32, pixels, 1, v->channels, v->image, v->image);
    bool ok = run(m, "embed_image", "embedding", &in, 1, out, width, err);
    free(pixels);
    return ok;
}

bool encoder_compare(open_model *m, const char *path, const sn_ids *text, int64_t n, float **out,
                     sn_error *err) {
    const sn_model *v = &m->model;
    batch b;
    *out = NULL;
    float *pixels = encoder_pixels(m, path, err);
    if (!pixels) return false;
    bool ok = make_batch(text, NULL, n, &b, err);
    if (ok) {
        int64_t each;
        sn_arg_binding in[] = {
            SN_BIND("pixels", SN_F32, pixels, 1, v->channels, v->image, v->image),
            SN_BIND("tokens", SN_I32, b.tokens, n, b.T), SN_BIND("lengths", SN_I32, b.lengths, n)};
        ok = run(m, "forward", "logits", in, 3, out, &each, err);
        free(b.tokens);
    }
    free(pixels);
    if (!ok) return false;
    if (v->compares == SN_COMPARES_ALL) sn_sample_softmax(*out, n);
    for (int64_t i = 0; v->compares == SN_COMPARES_EACH && i < n; i++)
        (*out)[i] = 1 / (1 + expf(-(*out)[i]));
    return true;
}
