/* tok_wordpiece.c: BERT's tokenizer (google-research/bert, tokenization.py) and vocab.txt: drops
 * control characters, lower-cases and strips accents, splits at white space, punctuation and around
 * Chinese characters, then repeatedly takes the longest known piece from the left. */
#include "model/tokenizer/tok_wordpiece.h"
#include "model/tokenizer/tok_serial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* _is_punctuation: includes ASCII symbols that are not punctuation in Unicode. */
#define PUNCTUATION "!-/:-@\\[-`{-~\\p{P}"
const char sn_bert_pattern[] = "[" PUNCTUATION "]|[^\\p{White_Space}" PUNCTUATION "]+";

sn_wordpiece *sn_wordpiece_new(const char *prefix, sn_error *err) {
    sn_wordpiece *w = (sn_wordpiece *)sn_tok_new(&sn_tok_wordpiece, err);
    if (!w) return NULL;
    w->max_chars = 100;
    w->base.decoding.join = true;
    if (sn_bytes_append(&w->prefix, prefix, strlen(prefix), err) &&
        sn_bytes_append(&w->base.decoding.prefix, prefix, strlen(prefix), err))
        return w;
    sn_tokenizer_free(&w->base);
    return NULL;
}

sn_norm *sn_wordpiece_bert(sn_wordpiece *w, sn_error *err) {
    sn_norm *n = sn_tok_add_norm(&w->base, err);
    sn_split *words = n ? sn_tok_add_split(&w->base, sn_bert_pattern, SN_REMOVED, err) : NULL;
    if (!words || !sn_unicode_need(&w->base, err)) return NULL;
    words->invert = true;
    n->run = sn_norm_bert;
    n->clean = n->chinese = n->strip = n->lower = true;
    return n;
}

static void destroy_wordpiece(sn_tokenizer *t) {
    sn_bytes_free(&((sn_wordpiece *)t)->prefix);
}

/* ---- encoding ---- */

/* The longest token at word[at..size); *end is its end. -1: none. `piece` holds the prefix and the
 * word; inside the word the prefix overwrites the bytes before `at`, which have been used. */
static int32_t match_longest(const sn_wordpiece *w, sn_bytes *piece, size_t size, size_t at,
                             size_t *end) {
    const sn_vocab *v = &w->base.vocab;
    size_t prefix = w->prefix.size;
    char *word = piece->data + prefix, *text = word + at;
    if (at && prefix) memcpy(text -= prefix, w->prefix.data, prefix);
    for (*end = size - at < v->longest ? size : at + v->longest; *end > at; --*end) {
        bool boundary = *end == size || ((unsigned char)word[*end] & 0xC0) != 0x80;
        int32_t id = boundary ? sn_vocab_find(v, text, (size_t)(word + *end - text)) : -1;
        if (id >= 0 && !(sn_vocab_entry(v, id)->flags & SN_TOKEN_CONTROL)) return id;
    }
    return -1;
}

static bool push_unknown(sn_encoding *e, const char *word, size_t size) {
    int32_t unk = e->t->special[SN_TOKEN_UNK];
    if (unk >= 0) return sn_ids_push(e->out, unk, e->err);
    return sn_fail(e->err, SN_ERR_RANGE, "no token for \"%.*s\" and no unk token",
                   (int)(size < 80 ? size : 80), word);
}

static bool encode_wordpiece(sn_encoding *e, const char *word, size_t size) {
    const sn_wordpiece *w = (const sn_wordpiece *)e->t;
    sn_bytes *piece = e->scratch;
    piece->size = 0;
    if (!sn_bytes_append(piece, w->prefix.data, w->prefix.size, e->err) ||
        !sn_bytes_append(piece, word, size, e->err))
        return false;
    size_t before = e->out->count, chars = 0;
    for (size_t i = 0; i < size; i++) chars += ((unsigned char)word[i] & 0xC0) != 0x80;
    bool known = chars <= (size_t)w->max_chars;
    for (size_t at = 0, end; known && at < size; at = end) {
        int32_t id = match_longest(w, piece, size, at, &end);
        known = id >= 0;
        if (known && !sn_ids_push(e->out, id, e->err)) return false;
    }
    if (known) return true;
    e->out->count = before; /* if part of a word is unknown, the whole word is */
    return push_unknown(e, word, size);
}

static void clear_piece(void *scratch) {
    sn_bytes_free(scratch);
}

static bool encode_wordlevel(sn_encoding *e, const char *word, size_t size) {
    int32_t id = sn_vocab_find(&e->t->vocab, word, size);
    bool known = id >= 0 && !(sn_vocab_entry(&e->t->vocab, id)->flags & SN_TOKEN_CONTROL);
    return known ? sn_ids_push(e->out, id, e->err) : push_unknown(e, word, size);
}

/* ---- vocab.txt ---- */

/* Uncased if no token outside brackets has an ASCII capital. */
static bool is_uncased(const sn_vocab *v) {
    for (size_t id = 0; id < v->count; id++) {
        size_t size;
        const char *text = sn_vocab_text(v, (int32_t)id, &size);
        if (!text || size == 0 || text[0] == '[' || text[0] == '<') continue;
        for (size_t i = 0; i < size; i++)
            if (text[i] >= 'A' && text[i] <= 'Z') return false;
    }
    return true;
}

static bool read_lines(sn_vocab *v, const char *path, const sn_mapping *file, sn_error *err) {
    int32_t id = 0;
    for (const char *at = (const char *)file->data, *end = at + file->size; at < end; id++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t size = (size_t)(stop - at);
        if (size && at[size - 1] == '\r') size--;
        if (memchr(at, 0, size))
            return sn_fail(err, SN_ERR_FILE, "%s line %d: NUL in a token: not a text file", path,
                           (int)id + 1);
        if (!sn_vocab_set(v, id, at, size, 0, err)) return false;
        at = stop + (stop < end);
    }
    return id > 0 || sn_fail(err, SN_ERR_FILE, "%s: empty", path);
}

sn_tokenizer *sn_tok_load_wordpiece(const char *path, const cJSON *config, sn_error *err) {
    sn_mapping file;
    sn_vocab vocab = {0};
    if (!sn_file_map(path, &file, err)) return NULL;
    bool ok = read_lines(&vocab, path, &file, err);
    sn_file_unmap(&file);
    bool lower = sn_json_flag(config, "do_lower_case", is_uncased(&vocab));
    sn_wordpiece *w = ok ? sn_wordpiece_new("##", err) : NULL;
    if (!w) {
        sn_vocab_free(&vocab);
        return NULL;
    }
    w->base.vocab = vocab;
    sn_norm *n = sn_wordpiece_bert(w, err);
    if (n) {
        n->lower = lower;
        n->strip = sn_json_flag(config, "strip_accents", lower);
        n->chinese = sn_json_flag(config, "tokenize_chinese_chars", true);
        if (sn_tok_read_added(&w->base, path, config, err) && sn_tok_finish(&w->base, config, err))
            return &w->base;
    }
    sn_tokenizer_free(&w->base);
    return NULL;
}

static bool save_wordpiece(const sn_tokenizer *t, const char *dir, sn_error *err) {
    const sn_norm *norm = &t->norm[0];
    sn_bytes out = {0}, config = {0};
    bool ok = true;
    for (int32_t id = 0; ok && (size_t)id < t->vocab.count; id++) {
        size_t size;
        const char *text = sn_vocab_text(&t->vocab, id, &size);
        ok = sn_bytes_append(&out, text, size, err) && sn_bytes_append(&out, "\n", 1, err);
    }
    char json[160];
    int n =
        snprintf(json, sizeof json,
                 "{\"do_lower_case\": %s, \"strip_accents\": %s, \"tokenize_chinese_chars\": %s}\n",
                 norm->lower ? "true" : "false", norm->strip ? "true" : "false",
                 norm->chinese ? "true" : "false");
    ok = ok && sn_bytes_append(&config, json, (size_t)n, err) &&
         sn_tok_write(dir, "vocab.txt", &out, err) &&
         sn_tok_write(dir, "tokenizer_config.json", &config, err);
    sn_bytes_free(&out);
    sn_bytes_free(&config);
    return ok;
}

static bool serialise_wordpiece(sn_serial *c, sn_tokenizer *t) {
    sn_wordpiece *w = (sn_wordpiece *)t;
    return SN_SERIAL(c, w->max_chars) && sn_serial_bytes(c, &w->prefix);
}

const sn_tok_kind sn_tok_wordpiece = {"wordpiece",       sizeof(sn_wordpiece), sizeof(sn_bytes),
                                      encode_wordpiece,  clear_piece,          save_wordpiece,
                                      destroy_wordpiece, serialise_wordpiece};
const sn_tok_kind sn_tok_wordlevel = {
    .name = "wordlevel", .size = sizeof(sn_tokenizer), .encode = encode_wordlevel};
