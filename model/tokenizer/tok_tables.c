/* tok_tables.c: tokenizer.tables: any tokenizer as the tables that it works with, which are mapped and
 * used in place: opening neither reads nor copies the vocabulary.
 *
 *   char magic[8]; u32 version; u32 kind; u64 bytes of fields, u64 bytes of lists;
 *   u64 XXH3 of the head and the fields, u64 XXH3 of the lists; zeros up to byte 64
 *   fields, in the order of the functions below; a list is an offset and a count
 *   lists, each at a multiple of 64 bytes; little endian
 *
 * Opening compares the size and the hash of the fields. Lists are not read then: whoever uses an
 * index or an offset of theirs checks it, so a damaged file gives other ids at worst, and
 * sn_tokenizer_verify finds the damage. */
#include "model/tokenizer/tok_serial.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "model/tokenizer/steps.h"
#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/tok_symbols.h"
#include "model/tokenizer/tok_unigram.h"
#include "model/tokenizer/tok_wordpiece.h"

enum { VERSION = 2, HEAD = 64, ALIGN = SN_TABLE_ALIGN };

typedef struct head {
    char magic[8];
    uint32_t version, kind;
    uint64_t fields, lists, hash, lists_hash;
} head;

static const char magic[8] = "SNTABLE";
static const char name[] = "tokenizer.tables";

/* The number of a kind in the file is its place here. */
static const sn_tok_kind *const kinds[] = {&sn_tok_gpt2,   &sn_tok_llama,     &sn_tok_char,
                                           &sn_tok_word,   &sn_tok_wordpiece, &sn_tok_wordlevel,
                                           &sn_tok_unigram};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The same for normalizers. */
static bool (*const norms[])(const sn_norm *, sn_leaves, sn_bytes *, sn_error *) = {
    sn_norm_form,    sn_norm_lower, sn_norm_strip_accents, sn_norm_nmt,  sn_norm_prepend,
    sn_norm_replace, sn_norm_strip, sn_norm_precompiled,   sn_norm_bert, sn_norm_sentencepiece};
enum { NORMS = sizeof norms / sizeof *norms };

/* ---- fields ---- */

static bool serialise_bools(sn_serial *c, bool *const *field, size_t n) {
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = sn_serial_bool(c, field[i]);
    return ok;
}
#define BOOLS(c, ...)                                                                              \
    serialise_bools(c, (bool *const[]){__VA_ARGS__},                                               \
                    sizeof((bool *const[]){__VA_ARGS__}) / sizeof(bool *))

/* Ids that a post-processor adds: a copy, which sn_tokenizer_set_language may change. */
static bool serialise_ids(sn_serial *c, sn_ids *ids) {
    sn_ids list = *ids;
    if (!sn_serial_list(c, &list.data, &list.count, sizeof *list.data)) return false;
    for (size_t i = 0; c->reads && i < list.count; i++)
        if (!sn_ids_push(ids, list.data[i], c->err)) return false;
    return true;
}

/* ---- what all kinds have ---- */

static bool serialise_regex(sn_serial *c, sn_regex **regex) {
    sn_bytes pattern = {0};
    if (!c->reads && *regex)
        pattern.data = (char *)(uintptr_t)sn_regex_pattern(*regex, &pattern.size);
    if (!sn_serial_bytes(c, &pattern)) return false;
    if (c->reads && pattern.data) *regex = sn_regex_new(pattern.data, pattern.size, c->err);
    return !pattern.data || *regex;
}

static bool serialise_norm(sn_serial *c, sn_norm *n) {
    uint32_t run = 0, form = (uint32_t)n->form;
    while (!c->reads && run < NORMS && norms[run] != n->run) run++;
    if (!SN_SERIAL(c, run) || !SN_SERIAL(c, form)) return false;
    if (run >= NORMS || form > SN_NFKD) return sn_serial_fail(c, "a normalizer in it");
    n->run = norms[run], n->form = (sn_form)form;
    return sn_serial_bytes(c, &n->text) && serialise_regex(c, &n->regex) &&
           sn_serial_bytes(c, &n->map.trie) && sn_serial_bytes(c, &n->map.texts) &&
           sn_serial_vocab(c, &n->users) &&
           BOOLS(c, &n->left, &n->right, &n->clean, &n->chinese, &n->strip, &n->lower, &n->prefix,
                 &n->suffix, &n->collapse, &n->escape);
}

static bool serialise_split(sn_serial *c, sn_split *s) {
    uint32_t behavior = (uint32_t)s->behavior, prefix = (uint32_t)s->prefix;
    bool ok = serialise_regex(c, &s->regex) && SN_SERIAL(c, behavior) && SN_SERIAL(c, prefix) &&
              SN_SERIAL(c, s->space) && BOOLS(c, &s->invert, &s->unless, &s->spell);
    if (ok && (behavior > SN_MERGED_WITH_NEXT || prefix > SN_PREFIX_ALWAYS ||
               s->space[sizeof s->space - 1]))
        return sn_serial_fail(c, "a pre-tokenizer in it");
    s->behavior = (sn_behavior)behavior, s->prefix = (sn_prefix)prefix;
    return ok;
}

static bool serialise_steps(sn_serial *c, sn_tokenizer *t) {
    size_t n_norm = t->norms, n_split = t->splits;
    bool ok = sn_serial_count(c, &n_norm, SIZE_MAX) && sn_serial_count(c, &n_split, SIZE_MAX);
    for (size_t i = 0; ok && i < n_norm; i++) {
        sn_norm *n = c->reads ? sn_tok_add_norm(t, c->err) : &t->norm[i];
        ok = n && serialise_norm(c, n);
    }
    for (size_t i = 0; ok && i < n_split; i++) {
        sn_split *s = c->reads ? sn_tok_add_split(t, NULL, SN_ISOLATED, c->err) : &t->split[i];
        ok = s && serialise_split(c, s);
    }
    return ok;
}

static bool serialise_token(sn_serial *c, sn_added *a) {
    sn_bytes text = {.data = a->text, .size = a->size};
    bool ok =
        sn_serial_bytes(c, &text) && SN_SERIAL(c, a->id) &&
        BOOLS(c, &a->special, &a->lstrip, &a->rstrip, &a->single_word, &a->normalized, &a->begins);
    if (ok && !text.size) return sn_serial_fail(c, "an added token in it has no text: the file");
    a->text = text.data, a->size = text.size;
    return ok;
}

static bool serialise_added(sn_serial *c, sn_added_set *set) {
    size_t count = set->count;
    bool ok = sn_serial_count(c, &count, c->fields.size - c->at) &&
              (!c->reads || !count ||
               sn_grow(&set->item, &set->capacity, count, sizeof *set->item, c->err));
    if (ok && c->reads && count) memset(set->item, 0, count * sizeof *set->item);
    for (size_t i = 0; ok && i < count; i++) ok = serialise_token(c, &set->item[i]);
    ok = ok && sn_serial_index(c, set->first, count);
    if (c->reads) set->count = ok ? count : 0;
    return ok;
}

static bool serialise_tokenizer(sn_serial *c, sn_tokenizer *t) {
    sn_decoding *d = &t->decoding;
    int32_t second = t->second_type;
    bool ok = SN_SERIAL(c, t->special) && SN_SERIAL(c, t->end) && SN_SERIAL(c, second) &&
              BOOLS(c, &t->unicode, &t->spelled, &t->swapped, &t->templated, &t->paired, &t->no_bos,
                    &d->strip, &d->strip_all, &d->join, &d->cleanup) &&
              sn_serial_vocab(c, &t->vocab) && sn_serial_bytes(c, &d->prefix) &&
              sn_serial_bytes(c, &d->suffix) && serialise_ids(c, &t->before) &&
              serialise_ids(c, &t->after);
    for (int i = 0; ok && i < 3; i++) ok = serialise_ids(c, &t->pair[i]);
    for (int set = 0; ok && set < 2; set++) ok = serialise_added(c, &t->added[set]);
    t->second_type = second;
    return ok && (!t->unicode || sn_unicode_need(t, c->err)) && serialise_steps(c, t) &&
           (!t->kind->serialise || t->kind->serialise(c, t));
}

/* ---- the file ---- */

static uint64_t hash_fields(const head *h, const char *fields) {
    head without = *h;
    without.hash = 0;
    return XXH3_64bits_withSeed(fields, h->fields, XXH3_64bits(&without, sizeof without));
}

bool sn_tokenizer_save_tables(const sn_tokenizer *t, const char *dir, sn_error *err) {
    static const char zeros[HEAD];
    sn_serial c = {.err = err};
    sn_bytes file = {0};
    head h = {.version = VERSION};
    memcpy(h.magic, magic, sizeof magic);
    while (h.kind < KINDS && kinds[h.kind] != t->kind) h.kind++;
    if (h.kind == KINDS)
        return sn_fail(err, SN_ERR_INTERNAL, "%s: no tables for '%s'", name, t->kind->name);
    /* writing does not change what is written */
    bool ok = serialise_tokenizer(&c, (sn_tokenizer *)(uintptr_t)t) &&
              sn_bytes_append(&c.fields, zeros, (ALIGN - c.fields.size % ALIGN) % ALIGN, err) &&
              sn_bytes_append(&c.lists, "", 0, err);
    if (ok) {
        h.fields = c.fields.size, h.lists = c.lists.size;
        h.lists_hash = XXH3_64bits(c.lists.data, c.lists.size);
        h.hash = hash_fields(&h, c.fields.data);
        ok = sn_bytes_append(&file, (char *)&h, sizeof h, err) &&
             sn_bytes_append(&file, zeros, HEAD - sizeof h, err) &&
             sn_bytes_append(&file, c.fields.data, c.fields.size, err) &&
             sn_bytes_append(&file, c.lists.data, c.lists.size, err) &&
             sn_tok_write(dir, name, &file, err);
    }
    sn_bytes_free(&c.fields);
    sn_bytes_free(&c.lists);
    sn_bytes_free(&file);
    return ok;
}

/* Whether the head fits the file and the fields are as they were written. */
static bool check_head(const head *h, const char *path, const sn_mapping *file, sn_error *err) {
    if (file->size < HEAD || memcmp(h->magic, magic, sizeof magic))
        return sn_fail(err, SN_ERR_FILE, "%s: not the tables of a tokenizer, or cut off", path);
    if (h->version != VERSION)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: has version %u, but this program reads %d: compile the model again",
                       path, (unsigned)h->version, VERSION);
    const uint64_t rest = file->size - HEAD;
    if (h->fields > rest || h->fields % ALIGN || h->lists != rest - h->fields)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: has %zu bytes, not those that it says: it is cut off or damaged", path,
                       file->size);
    return (h->kind < KINDS && h->hash == hash_fields(h, (const char *)file->data + HEAD)) ||
           sn_serial_fail(&(sn_serial){.err = err}, path);
}

sn_tokenizer *sn_tok_load_tables(const char *path, sn_error *err) {
    sn_mapping file;
    head h = {.version = 0};
    if (!sn_file_map(path, &file, err)) return NULL;
    memcpy(&h, file.data, file.size < sizeof h ? file.size : sizeof h);
    sn_tokenizer *t = check_head(&h, path, &file, err) ? sn_tok_new(kinds[h.kind], err) : NULL;
    if (!t) {
        sn_file_unmap(&file);
        return NULL;
    }
    char *fields = (char *)(uintptr_t)file.data + HEAD;
    sn_serial c = {.reads = true,
                   .fields = {.data = fields, .size = h.fields},
                   .lists = {.data = fields + h.fields, .size = h.lists},
                   .err = err};
    t->foreign = true;
    t->image = file;
    if (serialise_tokenizer(&c, t)) return t;
    sn_tokenizer_free(t);
    return NULL;
}

bool sn_tokenizer_verify(const sn_tokenizer *t, sn_error *err) {
    if (!t->image.data) return true;
    head h;
    memcpy(&h, t->image.data, sizeof h);
    return h.lists_hash == XXH3_64bits(t->image.data + HEAD + h.fields, h.lists) ||
           sn_serial_fail(&(sn_serial){.err = err}, name);
}
