/* encoder.c: pads texts to a batch and runs them once. */
#include "model/encoder.h"

#include <stdlib.h>
#include <string.h>

/* Whether the ids of a text of this size fit the model. */
static bool check_ids(const lm *m, const sn_ids *ids, size_t size, sn_error *err) {
    int64_t n = (int64_t)ids->count;
    if (n < 1 || !size)
        return sn_fail(err, SN_ERR_USAGE, "the text is empty: there is nothing to read");
    if (n > m->model.context)
        return sn_fail(
            err, SN_ERR_RANGE,
            "the text has %lld tokens, but the model has only %lld positions: shorten it",
            (long long)n, (long long)m->model.context);
    for (size_t i = 0; i < ids->count; i++)
        if (ids->data[i] < 0 || ids->data[i] >= m->model.vocab)
            return sn_fail(err, SN_ERR_RANGE, "token %d is outside the vocabulary 0..%lld",
                           (int)ids->data[i], (long long)m->model.vocab - 1);
    return true;
}

bool encoder_read(const lm *m, const char *text, size_t size, sn_ids *out, sn_error *err) {
    bool ok = m->tokenizer ? sn_tokenizer_encode(m->tokenizer, text, size,
                                                 SN_TOK_SPECIAL | SN_TOK_TEMPLATE, out, err)
                           : lm_encode(m, text, size, false, out, err);
    return ok && check_ids(m, out, size, err);
}

/* ---- places and pairs ---- */

static bool need_tokenizer(const lm *m, sn_error *err) {
    return m->tokenizer || sn_fail(err, SN_ERR_USAGE, "this needs a model with a tokenizer");
}

bool encoder_read_places(const lm *m, const char *text, size_t size, encoder_text *t,
                         sn_error *err) {
    sn_ids plain = {0};
    *t = (encoder_text){0};
    bool ok = need_tokenizer(m, err) && encoder_read(m, text, size, &t->ids, err) &&
              sn_tokenizer_encode(m->tokenizer, text, size, SN_TOK_SPECIAL, &plain, err);
    size_t bytes = plain.count * sizeof *plain.data;
    t->n = plain.count;
    while (ok && t->first + t->n < t->ids.count &&
           memcmp(t->ids.data + t->first, plain.data, bytes) != 0)
        t->first++;
    if (ok) t->place = calloc(t->n + 1, sizeof *t->place);
    ok = ok && (t->place || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
         sn_tokenizer_locate(m->tokenizer, text, size, &plain, t->place, err);
    sn_ids_free(&plain);
    return ok;
}

void encoder_text_free(encoder_text *t) {
    sn_ids_free(&t->ids);
    free(t->place);
}

bool encoder_read_pair(const lm *m, const char *a, size_t a_size, const char *b, size_t b_size,
                       sn_ids *out, sn_ids *types, sn_error *err) {
    sn_ids first = {0}, second = {0};
    bool ok =
        need_tokenizer(m, err) &&
        sn_tokenizer_encode(m->tokenizer, a, a_size, SN_TOK_SPECIAL, &first, err) &&
        sn_tokenizer_encode(m->tokenizer, b, b_size, SN_TOK_SPECIAL, &second, err) &&
        sn_tokenizer_join(m->tokenizer, &first, second.data, second.count, out, types, NULL, err) &&
        check_ids(m, out, a_size && b_size, err);
    sn_ids_free(&first);
    sn_ids_free(&second);
    return ok;
}

/* ---- running ---- */

bool encoder_run(lm *m, const char *entry, const char *output, const sn_ids *text,
                 const sn_ids *kinds, int64_t n, float **out, int64_t *each, int64_t *length,
                 sn_error *err) {
    int64_t T = 1, shape[8] = {0};
    for (int64_t i = 0; i < n; i++) T = (int64_t)text[i].count > T ? (int64_t)text[i].count : T;
    size_t all = (size_t)(n * T);
    int32_t *tokens = calloc(2 * all + (size_t)n, sizeof *tokens);
    *out = NULL;
    if (!tokens) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int32_t *types = tokens + all, *lengths = types + all;
    for (int64_t i = 0; i < n; i++) {
        memcpy(tokens + i * T, text[i].data, text[i].count * sizeof *tokens);
        if (kinds) memcpy(types + i * T, kinds[i].data, text[i].count * sizeof *types);
        lengths[i] = (int32_t)text[i].count;
    }
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, tokens, n, T),
                           SN_BIND("lengths", SN_I32, lengths, n),
                           SN_BIND("types", SN_I32, types, n, T)};
    int n_in = lm_has_input(m->model.module, "types") ? 3 : 2;
    int rank = sn_output_shape(m->program, entry, in, n_in, output, shape, err);
    *each = 1;
    for (int a = 1; a < rank; a++) *each *= shape[a];
    bool ok = rank >= 0;
    if (ok) *out = malloc(sizeof **out * (size_t)(n * *each) + 1);
    ok = ok && (*out || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    sn_arg_binding o = {output, SN_F32, rank, shape, *out};
    ok = ok && sn_run(m->session, entry, in, n_in, &o, 1, err);
    free(tokens);
    if (length) *length = T;
    if (ok) return true;
    free(*out);
    *out = NULL;
    return false;
}
