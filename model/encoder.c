/* encoder.c: pads texts to a batch and runs them once. */
#include "model/encoder.h"

#include <stdlib.h>
#include <string.h>

bool encoder_read(const lm *m, const char *text, size_t size, sn_ids *out, sn_error *err) {
    size_t before = out->count;
    bool ok = m->tokenizer ? sn_tokenizer_encode(m->tokenizer, text, size,
                                                 SN_TOK_SPECIAL | SN_TOK_TEMPLATE, out, err)
                           : lm_encode(m, text, size, false, out, err);
    if (!ok) return false;
    int64_t n = (int64_t)(out->count - before);
    if (n < 1 || !size)
        return sn_fail(err, SN_ERR_USAGE, "the text is empty: there is nothing to read");
    if (n > m->model.context)
        return sn_fail(
            err, SN_ERR_RANGE,
            "the text has %lld tokens, but the model has only %lld positions: shorten it",
            (long long)n, (long long)m->model.context);
    for (size_t i = before; i < out->count; i++)
        if (out->data[i] < 0 || out->data[i] >= m->model.vocab)
            return sn_fail(err, SN_ERR_RANGE, "token %d is outside the vocabulary 0..%lld",
                           (int)out->data[i], (long long)m->model.vocab - 1);
    return true;
}

bool encoder_run(lm *m, const char *entry, const char *output, const sn_ids *text, int64_t n,
                 float **out, int64_t *each, int64_t *length, sn_error *err) {
    int64_t T = 1, shape[8] = {0};
    for (int64_t i = 0; i < n; i++) T = (int64_t)text[i].count > T ? (int64_t)text[i].count : T;
    size_t all = (size_t)(n * T);
    int32_t *tokens = calloc(2 * all + (size_t)n, sizeof *tokens);
    *out = NULL;
    if (!tokens) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int32_t *types = tokens + all, *lengths = types + all;
    for (int64_t i = 0; i < n; i++) {
        memcpy(tokens + i * T, text[i].data, text[i].count * sizeof *tokens);
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
