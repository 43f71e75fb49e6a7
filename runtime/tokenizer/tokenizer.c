/* tokenizer.c: common to all kinds: roles, special tokens in text, options, incremental decoding.
 * The kinds are in tok_*.c; tok_load.c detects the kind of a file. */
#include "runtime/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tok.h"

/* ---- the object ---- */

sn_tokenizer *sn_tok_new(const sn_tok_kind *kind, sn_error *err) {
    sn_tokenizer *t = calloc(1, kind->size);
    if (!t) {
        sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
        return NULL;
    }
    t->kind = kind;
    for (int r = 0; r < SN_TOKEN_ROLES; r++) t->special[r] = -1;
    return t;
}

void sn_tokenizer_free(sn_tokenizer *t) {
    if (!t) return;
    if (t->kind->destroy) t->kind->destroy(t);
    for (size_t i = 0; i < t->added_count; i++) free(t->added[i].text);
    free(t->added);
    sn_vocab_free(&t->vocab);
    free(t);
}

bool sn_tok_add(sn_tokenizer *t, int32_t id, bool special, bool lstrip, bool rstrip,
                sn_error *err) {
    size_t size;
    const char *text = sn_vocab_text(&t->vocab, id, &size);
    if (!text || size == 0) return true; /* cannot occur in a text */
    if (!sn_grow(&t->added, &t->added_capacity, t->added_count + 1, sizeof *t->added, err))
        return false;
    char *copy = malloc(size + 1);
    if (!copy) return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
    memcpy(copy, text, size + 1);
    t->added[t->added_count++] = (sn_added){copy, size, id, special, lstrip, rstrip};
    return true;
}

static int compare_added(const void *a, const void *b) {
    const sn_added *x = a, *y = b;
    unsigned char p = (unsigned char)x->text[0], q = (unsigned char)y->text[0];
    if (p != q) return p < q ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The names of the roles in vocabularies, more specific ones first. */
static const struct {
    sn_token_role role;
    const char *name;
} role_names[] = {
    {SN_TOKEN_BOS, "<|bos|>"},
    {SN_TOKEN_BOS, "[CLS]"},
    {SN_TOKEN_BOS, "<s>"},
    {SN_TOKEN_BOS, "<|begin_of_text|>"},
    {SN_TOKEN_BOS, "<|startoftext|>"},
    {SN_TOKEN_BOS, "<|endoftext|>"},
    {SN_TOKEN_EOS, "<|eos|>"},
    {SN_TOKEN_EOS, "[SEP]"},
    {SN_TOKEN_EOS, "</s>"},
    {SN_TOKEN_EOS, "<|end_of_text|>"},
    {SN_TOKEN_EOS, "<|endoftext|>"},
    {SN_TOKEN_MASK, "<|mask|>"},
    {SN_TOKEN_MASK, "[MASK]"},
    {SN_TOKEN_MASK, "<mask>"},
    {SN_TOKEN_UNK, "<|unk|>"},
    {SN_TOKEN_UNK, "[UNK]"},
    {SN_TOKEN_UNK, "<unk>"},
    {SN_TOKEN_PAD, "<|pad|>"},
    {SN_TOKEN_PAD, "[PAD]"},
    {SN_TOKEN_PAD, "<pad>"},
};

/* The entries of tokenizer_config.json: a string, or an object with the string as "content". */
static const struct {
    sn_token_role role;
    const char *key;
} config_keys[] = {
    {SN_TOKEN_BOS, "bos_token"},   {SN_TOKEN_BOS, "cls_token"}, {SN_TOKEN_EOS, "eos_token"},
    {SN_TOKEN_EOS, "sep_token"},   {SN_TOKEN_UNK, "unk_token"}, {SN_TOKEN_PAD, "pad_token"},
    {SN_TOKEN_MASK, "mask_token"},
};

static void read_config_roles(sn_tokenizer *t, const cJSON *config) {
    for (size_t i = 0; i < sizeof config_keys / sizeof *config_keys; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, config_keys[i].key);
        if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
        const char *name = cJSON_GetStringValue(item);
        if (name && t->special[config_keys[i].role] < 0)
            t->special[config_keys[i].role] = sn_vocab_find(&t->vocab, name, strlen(name));
    }
}

bool sn_tok_finish(sn_tokenizer *t, const cJSON *config, sn_error *err) {
    read_config_roles(t, config);
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++)
        if (t->special[role_names[i].role] < 0)
            t->special[role_names[i].role] =
                sn_vocab_find(&t->vocab, role_names[i].name, strlen(role_names[i].name));
    for (int r = 0; r < SN_TOKEN_ROLES; r++) {
        int32_t id = t->special[r];
        if (id < 0) continue;
        t->vocab.entry[id].flags |= SN_TOKEN_CONTROL;
        bool known = false;
        for (size_t i = 0; i < t->added_count; i++) known = known || t->added[i].id == id;
        if (!known && !sn_tok_add(t, id, true, false, false, err)) return false;
    }
    if (t->added_count) qsort(t->added, t->added_count, sizeof *t->added, compare_added);
    for (size_t byte = 0, i = 0; byte <= 256; byte++) {
        while (i < t->added_count && (unsigned char)t->added[i].text[0] < byte) i++;
        t->added_first[byte] = (uint32_t)i;
    }
    return true;
}

const char *sn_tokenizer_kind(const sn_tokenizer *t) {
    return t->kind->name;
}

int32_t sn_tokenizer_vocab_size(const sn_tokenizer *t) {
    return (int32_t)t->vocab.count;
}

int32_t sn_tokenizer_special(const sn_tokenizer *t, sn_token_role role) {
    return role < SN_TOKEN_ROLES ? t->special[role] : -1;
}

const char *sn_tokenizer_text(const sn_tokenizer *t, int32_t id, size_t *size) {
    return sn_vocab_text(&t->vocab, id, size);
}

int32_t sn_tokenizer_id(const sn_tokenizer *t, const char *text, size_t size) {
    return sn_vocab_find(&t->vocab, text, size);
}

/* ---- encoding ---- */

/* The longest added token at text[0]; NULL: none. */
static const sn_added *match_added(const sn_tokenizer *t, const char *text, size_t size,
                                   bool special) {
    unsigned char byte = (unsigned char)text[0];
    for (uint32_t i = t->added_first[byte]; i < t->added_first[byte + 1]; i++) {
        const sn_added *a = &t->added[i];
        if ((special || !a->special) && a->size <= size && !memcmp(a->text, text, a->size))
            return a;
    }
    return NULL;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool encode_all(const sn_tokenizer *t, const char *text, size_t size, unsigned flags,
                       sn_ids *out, sn_error *err) {
    size_t done = 0;
    for (size_t at = 0; at < size;) {
        const sn_added *a = match_added(t, text + at, size - at, flags & SN_TOK_SPECIAL);
        if (!a) {
            at++;
            continue;
        }
        size_t end = at;
        while (a->lstrip && end > done && is_space(text[end - 1])) end--;
        if (end > done && !t->kind->encode(t, text + done, end - done, done == 0, out, err))
            return false;
        if (!sn_ids_push(out, a->id, err)) return false;
        at += a->size;
        while (a->rstrip && at < size && is_space(text[at])) at++;
        done = at;
    }
    return done == size || t->kind->encode(t, text + done, size - done, done == 0, out, err);
}

static bool push_special(const sn_tokenizer *t, sn_token_role role, sn_ids *out, sn_error *err) {
    if (t->special[role] >= 0) return sn_ids_push(out, t->special[role], err);
    return sn_fail(err, SN_ERR_USAGE, "this %s vocabulary has no %s token", t->kind->name,
                   role == SN_TOKEN_BOS ? "bos" : "eos");
}

bool sn_tokenizer_encode(const sn_tokenizer *t, const char *text, size_t size, unsigned flags,
                         sn_ids *out, sn_error *err) {
    if (!sn_given(t, "sn_tokenizer_encode", "the tokenizer", err) ||
        !sn_given(out, "sn_tokenizer_encode", "the list for the ids", err) ||
        (size && !sn_given(text, "sn_tokenizer_encode", "the text", err)))
        return false;
    size_t before = out->count;
    bool ok = (!(flags & SN_TOK_BOS) || push_special(t, SN_TOKEN_BOS, out, err)) &&
              encode_all(t, text, size, flags, out, err) &&
              (!(flags & SN_TOK_EOS) || push_special(t, SN_TOKEN_EOS, out, err));
    if (!ok) out->count = before;
    return ok;
}

/* ---- decoding ---- */

sn_text_stream sn_text_stream_begin(const sn_tokenizer *t, unsigned flags) {
    return (sn_text_stream){t, flags, false};
}

bool sn_text_stream_next(sn_text_stream *d, int32_t id, sn_bytes *out, sn_error *err) {
    const sn_tokenizer *t = d->tokenizer;
    size_t size;
    const char *text = sn_vocab_text(&t->vocab, id, &size);
    if (!text)
        return sn_fail(err, SN_ERR_RANGE, "there is no token %d: the vocabulary has %zu", (int)id,
                       t->vocab.count);
    if (!(t->vocab.entry[id].flags & SN_TOKEN_CONTROL))
        return t->kind->decode(t, id, &d->started, out, err);
    if (id == t->special[SN_TOKEN_BOS]) d->started = false; /* a new text starts */
    return !(d->flags & SN_TOK_SPECIAL) || sn_bytes_append(out, text, size, err);
}

bool sn_tokenizer_decode(const sn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                         sn_bytes *out, sn_error *err) {
    if (!sn_given(t, "sn_tokenizer_decode", "the tokenizer", err) ||
        !sn_given(out, "sn_tokenizer_decode", "the buffer for the text", err) ||
        (n && !sn_given(ids, "sn_tokenizer_decode", "the list of ids", err)))
        return false;
    size_t before = out->size;
    sn_text_stream d = sn_text_stream_begin(t, flags);
    bool ok = sn_bytes_append(out, "", 0, err); /* NUL-terminates, even empty text */
    for (size_t i = 0; ok && i < n; i++) ok = sn_text_stream_next(&d, ids[i], out, err);
    if (!ok && out->data) out->data[out->size = before] = 0;
    return ok;
}

bool sn_tokenizer_save(const sn_tokenizer *t, const char *dir, sn_error *err) {
    if (t->foreign)
        return sn_fail(
            err, SN_ERR_USAGE,
            "a tokenizer loaded from tokenizer.json or a GGUF file cannot be saved: copy "
            "that file");
    return t->kind->save(t, dir, err);
}
