/* tokenizer.c: common to all kinds: roles, special tokens in text, options, incremental decoding.
 * The kinds are in tok_*.c; tok_load.c detects the kind of a file. */
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/steps.h"
#include "model/tokenizer/utf8.h"

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

/* One whose lists lie in a file. */
static void free_mapped(sn_tokenizer *t) {
    for (size_t i = 0; i < t->norms; i++) sn_regex_free(t->norm[i].regex);
    for (size_t i = 0; i < t->splits; i++) sn_regex_free(t->split[i].regex);
    free(t->norm);
    free(t->split);
    for (int set = 0; set < 2; set++) free(t->added[set].item);
    sn_ids_free(&t->before);
    sn_ids_free(&t->after);
    for (int i = 0; i < 3; i++) sn_ids_free(&t->pair[i]);
    sn_file_unmap(&t->image);
    free(t);
}

void sn_tokenizer_free(sn_tokenizer *t) {
    if (!t) return;
    if (t->image.data) {
        free_mapped(t);
        return;
    }
    if (t->kind->destroy) t->kind->destroy(t);
    for (int set = 0; set < 2; set++) {
        for (size_t i = 0; i < t->added[set].count; i++) free(t->added[set].item[i].text);
        free(t->added[set].item);
    }
    sn_steps_free(t);
    sn_bytes_free(&t->decoding.prefix);
    sn_bytes_free(&t->decoding.suffix);
    sn_ids_free(&t->before);
    sn_ids_free(&t->after);
    for (int i = 0; i < 3; i++) sn_ids_free(&t->pair[i]);
    sn_vocab_free(&t->vocab);
    free(t);
}

bool sn_tok_add(sn_tokenizer *t, const sn_added *token, sn_error *err) {
    sn_added_set *set = &t->added[token->normalized];
    if (token->size == 0) return true; /* cannot occur in a text */
    if (!sn_grow(&set->item, &set->capacity, set->count + 1, sizeof *set->item, err)) return false;
    char *copy = malloc(token->size + 1);
    if (!copy) return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
    memcpy(copy, token->text, token->size);
    copy[token->size] = 0;
    set->item[set->count] = *token;
    set->item[set->count++].text = copy;
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

static const char *config_name(const cJSON *config, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
    if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
    return cJSON_GetStringValue(item);
}

static void read_config_roles(sn_tokenizer *t, const cJSON *config) {
    for (size_t i = 0; i < sizeof config_keys / sizeof *config_keys; i++) {
        const char *name = config_name(config, config_keys[i].key);
        if (name && t->special[config_keys[i].role] < 0)
            t->special[config_keys[i].role] = sn_vocab_find(&t->vocab, name, strlen(name));
    }
}

/* Whether tokenizer_config.json names this token. */
static bool is_named(const sn_tokenizer *t, const cJSON *config, int32_t id) {
    size_t size;
    const char *text = sn_vocab_text(&t->vocab, id, &size);
    for (size_t i = 0; i < sizeof config_keys / sizeof *config_keys; i++) {
        const char *name = config_name(config, config_keys[i].key);
        if (name && strlen(name) == size && !memcmp(name, text, size)) return true;
    }
    return false;
}

static void sort_added(sn_added_set *set) {
    if (set->count) qsort(set->item, set->count, sizeof *set->item, compare_added);
    for (size_t byte = 0, i = 0; byte <= 256; byte++) {
        while (i < set->count && (unsigned char)set->item[i].text[0] < byte) i++;
        set->first[byte] = (uint32_t)i;
    }
}

static bool is_added(const sn_tokenizer *t, int32_t id) {
    for (int set = 0; set < 2; set++)
        for (size_t i = 0; i < t->added[set].count; i++)
            if (t->added[set].item[i].id == id) return true;
    return false;
}

bool sn_tok_finish(sn_tokenizer *t, const cJSON *config, sn_error *err) {
    read_config_roles(t, config);
    t->no_bos = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(config, "add_bos_token"));
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names; i++)
        if (t->special[role_names[i].role] < 0)
            t->special[role_names[i].role] =
                sn_vocab_find(&t->vocab, role_names[i].name, strlen(role_names[i].name));
    for (int r = 0; r < SN_TOKEN_ROLES; r++) {
        int32_t id = t->special[r];
        if (id < 0) continue;
        t->vocab.entry[id].flags |= SN_TOKEN_CONTROL;
        size_t size;
        const char *text = sn_vocab_text(&t->vocab, id, &size);
        sn_added token = {(char *)(uintptr_t)text, size, .id = id, .special = true};
        bool matches = !t->templated || is_named(t, config, id); /* else the file lists them all */
        if (matches && !is_added(t, id) && !sn_tok_add(t, &token, err)) return false;
    }
    for (int set = 0; set < 2; set++) sort_added(&t->added[set]);
    return true;
}

const char *sn_tokenizer_kind(const sn_tokenizer *t) {
    return t->kind->name;
}

int32_t sn_tokenizer_vocab_size(const sn_tokenizer *t) {
    return t->end ? t->end : (int32_t)t->vocab.count;
}

int32_t sn_tokenizer_special(const sn_tokenizer *t, sn_token_role role) {
    return role < SN_TOKEN_ROLES ? t->special[role] : -1;
}

bool sn_tokenizer_adds_bos(const sn_tokenizer *t, bool unknown) {
    if (t->before.count) return true;
    return t->templated || t->no_bos ? false : unknown;
}

bool sn_tokenizer_needs_unicode(const sn_tokenizer *t) {
    return t->unicode;
}

const char *sn_tokenizer_text(const sn_tokenizer *t, int32_t id, size_t *size) {
    return sn_vocab_text(&t->vocab, id, size);
}

int32_t sn_tokenizer_id(const sn_tokenizer *t, const char *text, size_t size) {
    return sn_vocab_find(&t->vocab, text, size);
}

/* ---- encoding ---- */

/* The longest added token at text[at]; NULL: none. */
static const sn_added *match_added(const sn_added_set *set, const char *text, size_t size,
                                   bool special) {
    unsigned char byte = (unsigned char)text[0];
    for (uint32_t i = set->first[byte]; i < set->first[byte + 1]; i++) {
        const sn_added *a = &set->item[i];
        if ((special || !a->special) && a->size <= size && !memcmp(a->text, text, a->size))
            return a;
    }
    return NULL;
}

/* Whether text[at, at + size) is a part of a longer word. */
static bool inside_word(const char *text, size_t all, size_t at, size_t size) {
    uint32_t before = ' ', after = ' ';
    if (at) {
        size_t from = sn_utf8_back(text, at);
        sn_utf8_next(text + from, at - from, &before);
    }
    if (at + size < all) sn_utf8_next(text + at + size, all - at - size, &after);
    const uint32_t near[2] = {before, after};
    for (int i = 0; i < 2; i++) {
        sn_char_class c = near[i] == SN_UTF8_INVALID ? SN_CHAR_OTHER : sn_unicode_class(near[i]);
        bool joiner = near[i] == 0x200C || near[i] == 0x200D;
        if (c == SN_CHAR_WORD || c == SN_CHAR_NONSPACING || c == SN_CHAR_MARK || joiner)
            return true;
    }
    return false;
}

typedef struct run {
    sn_encoding e;
    unsigned flags;
    sn_bytes buffer[2]; /* of normalizers */
} run;

static bool encode_piece(void *ctx, const char *text, size_t size) {
    run *r = ctx;
    return r->e.t->kind->encode(&r->e, text, size);
}

static bool encode_span(run *r, sn_leaves in, bool normalized);

/* Text without the added tokens of a set: normalized, or split and given to the model. */
static bool encode_rest(run *r, sn_leaves in, bool normalized) {
    if (in.size == 0) return true;
    if (normalized) return sn_steps_split(r->e.t, in, encode_piece, r, r->e.err);
    return sn_steps_normalize(r->e.t, &in, r->buffer, r->e.err) && encode_span(r, in, true);
}

static bool encode_span(run *r, sn_leaves in, bool normalized) {
    const sn_added_set *set = &r->e.t->added[normalized];
    const char *text = in.text;
    size_t done = 0;
    bool first = in.first;
    for (size_t at = 0; set->count && at < in.size;) {
        const sn_added *a = match_added(set, text + at, in.size - at, r->flags & SN_TOK_SPECIAL);
        if (!a || (a->single_word && inside_word(text, in.size, at, a->size))) {
            at += a ? a->size : 1;
            continue;
        }
        size_t end = at;
        if (a->lstrip) end -= sn_space_tail(text + done, at - done);
        if (!encode_rest(r, (sn_leaves){text + done, end - done, first}, normalized) ||
            !sn_ids_push(r->e.out, a->id, r->e.err))
            return false;
        at += a->size;
        if (a->rstrip) at += sn_space_run(text + at, in.size - at);
        done = at;
        first = a->begins;
    }
    return encode_rest(r, (sn_leaves){text + done, in.size - done, first}, normalized);
}

static bool encode_all(const sn_tokenizer *t, const char *text, size_t size, unsigned flags,
                       sn_ids *out, sn_error *err) {
    run r = {.e = {t, NULL, out, err}, .flags = flags};
    if (t->kind->scratch && !(r.e.scratch = calloc(1, t->kind->scratch)))
        return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
    size_t before = out->count;
    bool ok = encode_span(&r, (sn_leaves){text, size, true}, false);
    for (size_t i = before; t->end && i < out->count; i++)
        if (out->data[i] >= t->end) out->data[i] = t->special[SN_TOKEN_UNK];
    if (t->kind->clear) t->kind->clear(r.e.scratch);
    free(r.e.scratch);
    sn_bytes_free(&r.buffer[0]);
    sn_bytes_free(&r.buffer[1]);
    return ok;
}

/* The tokens that the post-processor adds on one side, or the token of a role. */
static bool push_special(const sn_tokenizer *t, sn_token_role role, sn_ids *out, sn_error *err) {
    const sn_ids *list = role == SN_TOKEN_BOS ? &t->before : &t->after;
    for (size_t i = 0; i < list->count; i++)
        if (!sn_ids_push(out, list->data[i], err)) return false;
    if (list->count) return true;
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
    if (flags & SN_TOK_TEMPLATE)
        flags |=
            (t->before.count || (!t->templated && t->special[SN_TOKEN_BOS] >= 0) ? SN_TOK_BOS : 0) |
            (t->after.count || (!t->templated && t->special[SN_TOKEN_EOS] >= 0) ? SN_TOK_EOS : 0);
    bool ok = (!(flags & SN_TOK_BOS) || push_special(t, SN_TOKEN_BOS, out, err)) &&
              (size == 0 || encode_all(t, text, size, flags, out, err)) &&
              (!(flags & SN_TOK_EOS) || push_special(t, SN_TOKEN_EOS, out, err));
    if (!ok) out->count = before;
    return ok;
}

/* ---- decoding ---- */

sn_text_stream sn_text_stream_begin(const sn_tokenizer *t, unsigned flags) {
    return (sn_text_stream){t, flags, false};
}

static bool begins_with(const char *text, size_t size, const char *with) {
    return size >= strlen(with) && !memcmp(text, with, strlen(with));
}

/* Hugging Face's cleanup of WordPiece: no space before these. */
static bool is_tight(const char *text, size_t size) {
    static const char *const tight[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    bool found = false;
    for (size_t i = 0; i < sizeof tight / sizeof *tight; i++)
        found = found || begins_with(text, size, tight[i]);
    return found;
}

static bool decode_text(sn_text_stream *d, const sn_entry *entry, const char *text, size_t size,
                        sn_bytes *out, sn_error *err) {
    const sn_decoding *how = &d->tokenizer->decoding;
    bool first = !d->started;
    d->started = true;
    if (entry->flags & SN_TOKEN_BYTE) {
        char byte = (char)strtol(text + 1, NULL, 16); /* "<0x0A>" */
        return sn_bytes_append(out, &byte, 1, err);
    }
    bool inside =
        how->prefix.size && size > how->prefix.size && begins_with(text, size, how->prefix.data);
    if (inside) text += how->prefix.size, size -= how->prefix.size;
    bool space = how->join && !first && !inside && !(how->cleanup && is_tight(text, size));
    size_t end = how->suffix.size;
    bool ends = end && size >= end && !memcmp(text + size - end, how->suffix.data, end);
    size_t skip = first && how->strip && size && text[0] == ' ';
    while (skip && how->strip_all && skip < size && text[skip] == ' ') skip++;
    if (skip == size && how->strip_all) d->started = false;
    return sn_bytes_append(out, " ", space, err) &&
           sn_bytes_append(out, text + skip, size - skip - (ends ? end : 0), err) &&
           sn_bytes_append(out, " ", ends, err);
}

bool sn_text_stream_next(sn_text_stream *d, int32_t id, sn_bytes *out, sn_error *err) {
    const sn_tokenizer *t = d->tokenizer;
    size_t size;
    const char *text = sn_vocab_text(&t->vocab, id, &size);
    if (!text)
        return sn_fail(err, SN_ERR_RANGE, "there is no token %d: the vocabulary has %zu", (int)id,
                       t->vocab.count);
    const sn_entry *e = sn_vocab_entry(&t->vocab, id);
    if (!(e->flags & SN_TOKEN_CONTROL)) return decode_text(d, e, text, size, out, err);
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
        return sn_fail(err, SN_ERR_USAGE,
                       "a tokenizer loaded from tokenizer.json, tokenizer.tables, a SentencePiece "
                       "model or a GGUF file cannot be saved: copy that file");
    return t->kind->save(t, dir, err);
}
