/* tok_wordpiece.c: BERT's tokenizer (google-research/bert, tokenization.py) and vocab.txt: drops
 * control characters, lower-cases and strips accents, splits at white space, punctuation and around
 * Chinese characters, then repeatedly takes the longest known piece from the left. */
#include "runtime/tokenizer/tok_wordpiece.h"

#include <stdio.h>
#include <string.h>

#include "runtime/tokenizer/tok_fold.h"
#include "runtime/tokenizer/utf8.h"

/* The "CJK" ranges of _is_chinese_char. */
#define CHINESE                                                                                    \
    "\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{20000}-\\x{2A6DF}\\x{2A700}-\\x{2B73F}"             \
    "\\x{2B740}-\\x{2B81F}\\x{2B820}-\\x{2CEAF}\\x{F900}-\\x{FAFF}\\x{2F800}-\\x{2FA1F}"
/* _is_punctuation: includes ASCII symbols that are not punctuation in Unicode. */
#define PUNCTUATION "!-/:-@\\[-`{-~\\p{P}"

static const char split_chinese[] = "[" PUNCTUATION CHINESE "]|[^\\s" PUNCTUATION CHINESE "]+";
static const char split_plain[] = "[" PUNCTUATION "]|[^\\s" PUNCTUATION "]+";
static const char drop_clean[] = "(?![\\t\\n\\r])[\\p{C}\\x{FFFD}]+";
static const char drop_marks[] = "\\p{Mn}+";
static const char drop_both[] = "(?:(?![\\t\\n\\r])[\\p{C}\\p{Mn}\\x{FFFD}])+";

sn_wordpiece *sn_wordpiece_new(const sn_wordpiece_options *o, sn_error *err) {
    sn_wordpiece *w = (sn_wordpiece *)sn_tok_new(&sn_tok_wordpiece, err);
    if (!w) return NULL;
    w->lower = o->lower, w->strip = o->strip, w->chinese = o->chinese;
    w->max_chars = o->max_chars;
    const char *drop = o->clean ? (o->strip ? drop_both : drop_clean) : o->strip ? drop_marks : "";
    const char *split = o->chinese ? split_chinese : split_plain;
    w->words = sn_regex_new(split, strlen(split), err);
    if (*drop) w->unwanted = sn_regex_new(drop, strlen(drop), err);
    if (w->words && (w->unwanted || !*drop) &&
        sn_bytes_append(&w->prefix, o->prefix, strlen(o->prefix), err))
        return w;
    sn_tokenizer_free(&w->base);
    return NULL;
}

static void destroy_wordpiece(sn_tokenizer *t) {
    sn_wordpiece *w = (sn_wordpiece *)t;
    sn_regex_free(w->unwanted);
    sn_regex_free(w->words);
    sn_bytes_free(&w->prefix);
}

/* ---- encoding ---- */

typedef struct encoding {
    const sn_wordpiece *w;
    sn_bytes folded, piece;
    sn_ids *out;
    sn_error *err;
} encoding;

/* Folds the kept text; invalid UTF-8 is dropped like U+FFFD. */
static bool fold_piece(void *ctx, const char *text, size_t size, bool unwanted) {
    encoding *e = ctx;
    for (size_t at = 0; !unwanted && at < size;) {
        uint32_t cp, folded[3];
        at += sn_utf8_next(text + at, size - at, &cp);
        if (cp == SN_UTF8_INVALID) continue;
        size_t n = sn_tok_fold(cp, e->w->lower, e->w->strip, folded);
        for (size_t i = 0; i < n; i++) {
            char utf8[4];
            if (!sn_bytes_append(&e->folded, utf8, sn_utf8_put(folded[i], utf8), e->err))
                return false;
        }
    }
    return true;
}

/* The longest token at word[at..size); *end is its end. -1: none. e->piece holds the prefix and the
 * word; inside the word the prefix overwrites the bytes before `at`, which are no longer needed. */
static int32_t match_longest(encoding *e, size_t size, size_t at, size_t *end) {
    const sn_vocab *v = &e->w->base.vocab;
    size_t prefix = e->w->prefix.size;
    char *word = e->piece.data + prefix, *text = word + at;
    if (at && prefix) memcpy(text -= prefix, e->w->prefix.data, prefix);
    for (*end = size - at < v->longest ? size : at + v->longest; *end > at; --*end) {
        bool boundary = *end == size || ((unsigned char)word[*end] & 0xC0) != 0x80;
        int32_t id = boundary ? sn_vocab_find(v, text, (size_t)(word + *end - text)) : -1;
        if (id >= 0 && !(v->entry[id].flags & SN_TOKEN_CONTROL)) return id;
    }
    return -1;
}

static bool encode_word(void *ctx, const char *word, size_t size, bool matched) {
    encoding *e = ctx;
    if (!matched) return true; /* white space */
    e->piece.size = 0;
    if (!sn_bytes_append(&e->piece, e->w->prefix.data, e->w->prefix.size, e->err) ||
        !sn_bytes_append(&e->piece, word, size, e->err))
        return false;
    size_t before = e->out->count, chars = 0;
    for (size_t i = 0; i < size; i++) chars += ((unsigned char)word[i] & 0xC0) != 0x80;
    bool known = chars <= (size_t)e->w->max_chars;
    for (size_t at = 0, end; known && at < size; at = end) {
        int32_t id = match_longest(e, size, at, &end);
        known = id >= 0;
        if (known && !sn_ids_push(e->out, id, e->err)) return false;
    }
    if (known) return true;
    e->out->count = before; /* if part of a word is unknown, the whole word is */
    int32_t unk = e->w->base.special[SN_TOKEN_UNK];
    if (unk >= 0) return sn_ids_push(e->out, unk, e->err);
    return sn_fail(e->err, SN_ERR_RANGE, "no token for \"%.*s\" and no unk token",
                   (int)(size < 80 ? size : 80), word);
}

static bool encode_wordpiece(const sn_tokenizer *t, const char *text, size_t size, bool first,
                             sn_ids *out, sn_error *err) {
    (void)first;
    encoding e = {.w = (const sn_wordpiece *)t, .out = out, .err = err};
    bool ok = (e.w->unwanted ? sn_regex_split(e.w->unwanted, text, size, fold_piece, &e, err)
                             : fold_piece(&e, text, size, false)) &&
              (e.folded.size == 0 ||
               sn_regex_split(e.w->words, e.folded.data, e.folded.size, encode_word, &e, err));
    sn_bytes_free(&e.folded);
    sn_bytes_free(&e.piece);
    return ok;
}

/* Words separated by single spaces; a piece with the prefix is appended to the word before it. */
static bool decode_wordpiece(const sn_tokenizer *t, int32_t id, bool *started, sn_bytes *out,
                             sn_error *err) {
    const sn_bytes *prefix = &((const sn_wordpiece *)t)->prefix;
    size_t size, skip = 0;
    const char *text = sn_vocab_text(&t->vocab, id, &size);
    if (prefix->size && size > prefix->size && !memcmp(text, prefix->data, prefix->size))
        skip = prefix->size;
    bool apart = *started && !skip;
    *started = true;
    return sn_bytes_append(out, " ", apart, err) &&
           sn_bytes_append(out, text + skip, size - skip, err);
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

static bool config_bool(const cJSON *config, const char *key, bool otherwise) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

sn_tokenizer *sn_tok_load_wordpiece(const char *path, const cJSON *config, sn_error *err) {
    sn_mapping file;
    sn_vocab vocab = {0};
    if (!sn_file_map(path, &file, err)) return NULL;
    bool ok = read_lines(&vocab, path, &file, err);
    sn_file_unmap(&file);
    sn_wordpiece_options o = SN_WORDPIECE_BERT(is_uncased(&vocab));
    o.lower = config_bool(config, "do_lower_case", o.lower);
    o.strip = config_bool(config, "strip_accents", o.lower);
    o.chinese = config_bool(config, "tokenize_chinese_chars", true);
    sn_wordpiece *w = ok ? sn_wordpiece_new(&o, err) : NULL;
    if (!w) {
        sn_vocab_free(&vocab);
        return NULL;
    }
    w->base.vocab = vocab;
    if (sn_tok_finish(&w->base, config, err)) return &w->base;
    sn_tokenizer_free(&w->base);
    return NULL;
}

static bool save_wordpiece(const sn_tokenizer *t, const char *dir, sn_error *err) {
    const sn_wordpiece *w = (const sn_wordpiece *)t;
    sn_bytes out = {0}, config = {0};
    bool ok = true;
    for (int32_t id = 0; ok && (size_t)id < t->vocab.count; id++) {
        size_t size;
        const char *text = sn_vocab_text(&t->vocab, id, &size);
        ok = sn_bytes_append(&out, text, size, err) && sn_bytes_append(&out, "\n", 1, err);
    }
    char json[160];
    int n = snprintf(
        json, sizeof json,
        "{\"do_lower_case\": %s, \"strip_accents\": %s, \"tokenize_chinese_chars\": %s}\n",
        w->lower ? "true" : "false", w->strip ? "true" : "false", w->chinese ? "true" : "false");
    ok = ok && sn_bytes_append(&config, json, (size_t)n, err) &&
         sn_tok_write(dir, "vocab.txt", &out, err) &&
         sn_tok_write(dir, "tokenizer_config.json", &config, err);
    sn_bytes_free(&out);
    sn_bytes_free(&config);
    return ok;
}

const sn_tok_kind sn_tok_wordpiece = {"wordpiece",      sizeof(sn_wordpiece), encode_wordpiece,
                                      decode_wordpiece, save_wordpiece,       destroy_wordpiece};
