/* tok_train.c: trains vocabularies: options, character and word level. BPE is trained in
 * tok_train_bpe.c. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_symbols.h"
#include "model/tokenizer/tok_train.h"
#include "model/tokenizer/utf8.h"

/* ---- character and word level ---- */

typedef struct ranked {
    const char *text;
    size_t size;
    int64_t count;
} ranked;

static int compare_text(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    size_t n = x->size < y->size ? x->size : y->size;
    int c = memcmp(x->text, y->text, n);
    return c ? c : x->size < y->size ? -1 : x->size > y->size;
}

static int compare_count(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return x->count != y->count ? (x->count > y->count ? -1 : 1) : compare_text(a, b);
}

/* The texts that a counter saw at least min_count times, most frequent first. */
static ranked *rank_texts(const sn_counter *c, int64_t min_count, size_t *n, sn_error *err) {
    ranked *list = malloc((c->texts.count + 1) * sizeof *list);
    *n = 0;
    if (!list) {
        sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory for %zu words", c->texts.count);
        return NULL;
    }
    for (size_t i = 0; i < c->texts.count; i++) {
        if (c->count[i] < min_count) continue;
        ranked *r = &list[(*n)++];
        r->text = sn_vocab_text(&c->texts, (int32_t)i, &r->size);
        r->count = c->count[i];
    }
    qsort(list, *n, sizeof *list, compare_count);
    return list;
}

static bool count_chars(sn_counter *c, const char *text, size_t size, sn_error *err) {
    for (size_t at = 0, len; at < size; at += len) {
        uint32_t cp;
        len = sn_utf8_next(text + at, size - at, &cp);
        if (cp == SN_UTF8_INVALID || cp == 0)
            return sn_fail(err, SN_ERR_FILE,
                           "byte %zu of the text (0x%02X) is not valid UTF-8; byte-level BPE "
                           "accepts any bytes",
                           at, (unsigned)(unsigned char)text[at]);
        if (!sn_count_text(c, text + at, len, err)) return false;
    }
    return true;
}

typedef struct counting {
    sn_counter *counter;
    sn_error *err;
} counting;

static bool count_word(void *ctx, const char *text, size_t size, bool matched) {
    (void)matched;
    const counting *c = ctx;
    return sn_count_text(c->counter, text, size, c->err);
}

static bool append_tokens(sn_vocab *v, const ranked *list, size_t n, size_t room, sn_error *err) {
    for (size_t i = 0; i < n && v->count < room; i++)
        if (sn_vocab_find(v, list[i].text, list[i].size) < 0 &&
            !sn_vocab_set(v, (int32_t)v->count, list[i].text, list[i].size, 0, err))
            return false;
    return true;
}

/* unk; the characters in code point order; the words, most frequent first. */
static bool fill_symbols(sn_tokenizer *s, const sn_train_options *o, const sn_counter *chars,
                         const sn_counter *words, sn_error *err) {
    sn_vocab *v = &s->vocab;
    size_t room = o->vocab_size ? (size_t)o->vocab_size - SN_TRAIN_SPECIALS : INT32_MAX / 2;
    size_t n_chars = 0, n_words = 0, space = room - (o->unk ? 1 : 0);
    ranked *c = rank_texts(chars, 1, &n_chars, err);
    ranked *w = c ? rank_texts(words, o->min_count ? o->min_count : 1, &n_words, err) : NULL;
    bool ok = w;
    if (ok && o->unk) {
        s->special[SN_TOKEN_UNK] = 0;
        ok = sn_vocab_set(v, 0, "<|unk|>", 7, 0, err);
    }
    if (ok && n_chars > space && !o->unk)
        ok = sn_fail(err, SN_ERR_RANGE,
                     "a vocabulary of %d cannot hold the %zu characters of the text and %d special "
                     "tokens: increase it, or allow an unk token",
                     (int)o->vocab_size, n_chars, SN_TRAIN_SPECIALS);
    if (ok && n_chars > space) n_chars = space; /* keeps the most frequent ones */
    if (ok) qsort(c, n_chars, sizeof *c, compare_text);
    ok = ok && append_tokens(v, c, n_chars, room, err) && append_tokens(v, w, n_words, room, err);
    free(c);
    free(w);
    return ok;
}

static sn_tokenizer *train_symbols(const sn_train_options *o, const char *text, size_t size,
                                   sn_error *err) {
    sn_counter chars = {0}, words = {0};
    counting counting_words = {&words, err};
    sn_tokenizer *s = sn_symbols_new(o->kind == SN_TRAIN_WORD ? &sn_tok_word : &sn_tok_char, err);
    bool ok = s && count_chars(&chars, text, size, err) &&
              (!s->splits ||
               sn_regex_split(s->split[0].regex, text, size, count_word, &counting_words, err)) &&
              fill_symbols(s, o, &chars, &words, err) && sn_train_finish(s, err);
    sn_counter_free(&chars);
    sn_counter_free(&words);
    if (ok) return s;
    if (s) sn_tokenizer_free(s);
    return NULL;
}

/* ---- entry ---- */

static bool check_options(const sn_train_options *o, sn_error *err) {
    int32_t least = SN_TRAIN_SPECIALS + (o->kind == SN_TRAIN_BPE ? 256 : 1 + o->unk);
    if ((int)o->kind < 0 || o->kind > SN_TRAIN_CHAR)
        return sn_fail(err, SN_ERR_USAGE, "tokenizer training: unknown kind %d", (int)o->kind);
    if (o->vocab_size && o->vocab_size < least)
        return sn_fail(err, SN_ERR_RANGE,
                       "tokenizer training: a vocabulary of %d is too small; at least %d%s",
                       (int)o->vocab_size, (int)least,
                       o->kind == SN_TRAIN_BPE ? " (256 bytes and 3 special tokens)" : "");
    if (o->vocab_size > 1 << 24 || o->min_count < 0)
        return sn_fail(
            err, SN_ERR_RANGE,
            "tokenizer training: vocabulary size %d is above %d, or minimum count %d below 0",
            (int)o->vocab_size, 1 << 24, (int)o->min_count);
    return true;
}

sn_tokenizer *sn_tokenizer_train(const sn_train_options *o, const char *text, size_t size,
                                 sn_error *err) {
    if (!sn_given(o, "sn_tokenizer_train", "the options", err) || !check_options(o, err))
        return NULL;
    if (size == 0) {
        sn_fail(err, SN_ERR_USAGE, "tokenizer training: the text is empty");
        return NULL;
    }
    if (!sn_given(text, "sn_tokenizer_train", "the text", err)) return NULL;
    if (o->kind != SN_TRAIN_BPE) return train_symbols(o, text, size, err);
    int32_t vocab = o->vocab_size ? o->vocab_size : 50257;
    return sn_train_bpe(text, size, (size_t)(vocab - 256 - SN_TRAIN_SPECIALS),
                        o->min_count ? o->min_count : 2, err);
}
