/* tok_symbols.c: character level and word level, and their file vocabulary.json:
 *   {"format": "sinter-vocabulary", "version": 1, "kind": "char" or "word",
 *    "tokens": [text of id 0, text of id 1, ...],
 *    "special": {"mask": id, "bos": id, "eos": id, "unk": id, "pad": id}}   each of them optional
 * Word level splits text into words (letters, marks and digits, joined by inner ' ’ -), runs of
 * spaces and other single characters; a piece without a token is encoded as characters. */
#include "model/tokenizer/tok_symbols.h"

#include <stdio.h>
#include <string.h>

#include "model/tokenizer/utf8.h"

static const char word_pattern[] =
    "[\\p{L}\\p{M}\\p{N}]+(?:['\u2019-][\\p{L}\\p{M}\\p{N}]+)*| +|(?s:.)";

static const char *const role_keys[SN_TOKEN_ROLES] = {
    [SN_TOKEN_BOS] = "bos", [SN_TOKEN_EOS] = "eos", [SN_TOKEN_MASK] = "mask",
    [SN_TOKEN_UNK] = "unk", [SN_TOKEN_PAD] = "pad",
};

sn_tokenizer *sn_symbols_new(const sn_tok_kind *kind, sn_error *err) {
    sn_tokenizer *t = sn_tok_new(kind, err);
    if (!t || kind != &sn_tok_word || sn_tok_add_split(t, word_pattern, SN_ISOLATED, err)) return t;
    sn_tokenizer_free(t);
    return NULL;
}

/* ---- encoding ---- */

static int32_t find_text(const sn_tokenizer *t, const char *text, size_t size) {
    int32_t id = sn_vocab_find(&t->vocab, text, size);
    return id >= 0 && sn_vocab_entry(&t->vocab, id)->flags ? -1 : id;
}

static bool encode_chars(sn_encoding *e, const char *text, size_t size) {
    for (size_t at = 0, len; at < size; at += len) {
        uint32_t cp;
        len = sn_utf8_next(text + at, size - at, &cp);
        int32_t id = find_text(e->t, text + at, len);
        if (id < 0) id = e->t->special[SN_TOKEN_UNK];
        if (id < 0 && cp == SN_UTF8_INVALID)
            return sn_fail(e->err, SN_ERR_RANGE, "byte 0x%02X of the text is not valid UTF-8",
                           (unsigned)(unsigned char)text[at]);
        if (id < 0)
            return sn_fail(e->err, SN_ERR_RANGE,
                           "the %s vocabulary has no token for '%.*s' (U+%04X) and no unk token",
                           e->t->kind->name, cp ? (int)len : 0, text + at, (unsigned)cp);
        if (!sn_ids_push(e->out, id, e->err)) return false;
    }
    return true;
}

static bool encode_word(sn_encoding *e, const char *text, size_t size) {
    int32_t id = find_text(e->t, text, size);
    return id >= 0 ? sn_ids_push(e->out, id, e->err) : encode_chars(e, text, size);
}

/* ---- vocabulary.json ---- */

static bool read_tokens(sn_tokenizer *t, const char *path, const cJSON *tokens, sn_error *err) {
    int32_t id = 0;
    for (const cJSON *e = tokens->child; e; e = e->next, id++) {
        const char *text = cJSON_GetStringValue(e);
        if (!text || !*text)
            return sn_fail(err, SN_ERR_FILE, "%s: token %d is not a string", path, (int)id);
        if (sn_vocab_find(&t->vocab, text, strlen(text)) >= 0)
            return sn_fail(err, SN_ERR_FILE, "%s: duplicate token %d, \"%.60s\"", path, (int)id,
                           text);
        if (!sn_vocab_set(&t->vocab, id, text, strlen(text), 0, err)) return false;
    }
    return id > 0 || sn_fail(err, SN_ERR_FILE, "%s: no tokens", path);
}

static bool read_special(sn_tokenizer *t, const char *path, const cJSON *special, sn_error *err) {
    for (const cJSON *e = special ? special->child : NULL; e; e = e->next) {
        int role = 0;
        while (role < SN_TOKEN_ROLES && (!e->string || strcmp(e->string, role_keys[role]))) role++;
        if (role == SN_TOKEN_ROLES ||
            !sn_json_int(e, 0, (int32_t)t->vocab.count - 1, &t->special[role]))
            return sn_fail(err, SN_ERR_FILE,
                           "%s: special token \"%s\": expected the id of a token for mask, bos, "
                           "eos, unk or pad",
                           path, e->string ? e->string : "");
    }
    return true;
}

sn_tokenizer *sn_tok_load_symbols(const char *path, const cJSON *root, sn_error *err) {
    const char *format = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "format"));
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "kind"));
    const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(root, "tokens");
    const cJSON *special = cJSON_GetObjectItemCaseSensitive(root, "special");
    int32_t version;
    bool word = kind && !strcmp(kind, sn_tok_word.name);
    if (!format || strcmp(format, "sinter-vocabulary") ||
        !sn_json_int(cJSON_GetObjectItemCaseSensitive(root, "version"), 1, 1, &version)) {
        sn_fail(err, SN_ERR_FILE, "%s: not a \"sinter-vocabulary\" of version 1", path);
        return NULL;
    }
    if ((!word && (!kind || strcmp(kind, sn_tok_char.name))) || !cJSON_IsArray(tokens) ||
        (special && !cJSON_IsObject(special))) {
        sn_fail(err, SN_ERR_FILE,
                "%s: \"kind\" must be \"char\" or \"word\", \"tokens\" an array, \"special\" an "
                "object",
                path);
        return NULL;
    }
    sn_tokenizer *t = sn_symbols_new(word ? &sn_tok_word : &sn_tok_char, err);
    if (t && (!read_tokens(t, path, tokens, err) || !read_special(t, path, special, err) ||
              !sn_tok_finish(t, NULL, err))) {
        sn_tokenizer_free(t);
        return NULL;
    }
    return t;
}

static bool append_text(sn_bytes *out, const char *text, sn_error *err) {
    return sn_bytes_append(out, text, strlen(text), err);
}

static bool save_symbols(const sn_tokenizer *t, const char *dir, sn_error *err) {
    sn_bytes out = {0};
    bool ok = append_text(&out, "{\"format\": \"sinter-vocabulary\", \"version\": 1, \"kind\": \"",
                          err) &&
              append_text(&out, t->kind->name, err) && append_text(&out, "\",\n\"tokens\": [", err);
    for (int32_t id = 0; ok && (size_t)id < t->vocab.count; id++) {
        size_t size;
        const char *text = sn_vocab_text(&t->vocab, id, &size);
        ok = append_text(&out, id ? ",\n" : "\n", err) && sn_json_quote(&out, text, size, err);
    }
    ok = ok && append_text(&out, "],\n\"special\": {", err);
    const char *comma = "";
    for (int role = 0; ok && role < SN_TOKEN_ROLES; role++) {
        if (t->special[role] < 0) continue;
        char item[64];
        snprintf(item, sizeof item, "%s\"%s\": %d", comma, role_keys[role], (int)t->special[role]);
        ok = append_text(&out, item, err);
        comma = ", ";
    }
    ok = ok && append_text(&out, "}}\n", err) && sn_tok_write(dir, "vocabulary.json", &out, err);
    sn_bytes_free(&out);
    return ok;
}

const sn_tok_kind sn_tok_char = {
    .name = "char", .size = sizeof(sn_tokenizer), .encode = encode_chars, .save = save_symbols};
const sn_tok_kind sn_tok_word = {
    .name = "word", .size = sizeof(sn_tokenizer), .encode = encode_word, .save = save_symbols};
