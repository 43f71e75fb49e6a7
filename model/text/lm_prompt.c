/* lm_prompt.c: the tokens of a prompt. */
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <string.h>

bool sn_lm_read_ids(const char *text, size_t size, sn_ids *out, sn_error *err) {
    for (size_t i = 0; i < size;) {
        if (strchr(" \t\r\n,", text[i])) {
            i++;
            continue;
        }
        int64_t v = 0;
        size_t from = i;
        while (i < size && text[i] >= '0' && text[i] <= '9' && v <= INT32_MAX)
            v = 10 * v + (text[i++] - '0');
        bool ends = i > from && (i == size || strchr(" \t\r\n,", text[i]));
        if (!ends || v > INT32_MAX)
            return sn_fail(
                err, SN_ERR_USAGE,
                "token ids are integers separated by spaces or commas; error at character %zu",
                i + 1);
        if (!sn_ids_push(out, (int32_t)v, err)) return false;
    }
    return true;
}

bool sn_lm_encode_text(const sn_tokenizer *t, const char *text, size_t size, bool bos, sn_ids *out,
                       sn_error *err) {
    sn_error wrong = {0};
    if (!t) {
        if (sn_lm_read_ids(text, size, out, &wrong)) return true;
        return sn_fail(
            err, wrong.code,
            "this model has no tokenizer: pass token ids, or a tokenizer with --tokenizer (%s)",
            wrong.message);
    }
    bool has = sn_tokenizer_special(t, SN_TOKEN_BOS) >= 0;
    return sn_tokenizer_encode(t, text, size, SN_TOK_SPECIAL | (bos && has ? SN_TOK_BOS : 0), out,
                               err);
}

bool sn_lm_encode(const sn_lm *m, const char *text, size_t size, sn_ids *out, sn_error *err) {
    if (!m || !text || !out) return sn_given(NULL, "sn_lm_encode", "an argument", err);
    return sn_lm_encode_text(m->parts.tokenizer, text, size, !size || !m->parts.no_bos, out, err);
}

static bool encode(const sn_lm *m, const sn_lm_request *r, sn_ids *out, sn_error *err) {
    const char *text = r->prompt ? r->prompt : "";
    for (int64_t i = 0; r->ids && i < r->n_ids; i++)
        if (!sn_ids_push(out, r->ids[i], err)) return false;
    if (r->ids) return true;
    if (!r->chat) return sn_lm_encode(m, text, strlen(text), out, err);
    return sn_lm_encode_chat(m->parts.tokenizer, m->folder, r->system, text, out, err);
}

bool sn_lm_read_prompt(const sn_lm *m, const sn_lm_request *r, sn_ids *out, sn_error *err) {
    if (!encode(m, r, out, err)) return false;
    int64_t n = (int64_t)out->count, room = m->parts.engine.context;
    if (!n)
        return sn_fail(err, SN_ERR_USAGE,
                       "the prompt is empty: give a text, or at least one token id");
    if (n > room)
        return sn_fail(err, SN_ERR_RANGE,
                       "the prompt has %lld tokens, but the context holds only %lld: shorten it",
                       (long long)n, (long long)room);
    for (int64_t i = 0; i < n; i++)
        if (out->data[i] < 0 || out->data[i] >= m->parts.engine.vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "token %d (number %lld) is outside the vocabulary 0..%lld",
                           (int)out->data[i], (long long)i, (long long)m->parts.engine.vocab - 1);
    return true;
}
