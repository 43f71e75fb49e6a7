/* tok_vocab.c: the vocabulary: texts in one pool, looked up by id or by hash. */
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL /* header-only: deployed programs link no xxHash library */
#include <xxhash.h>

#include "model/tokenizer/tok.h"

static const sn_entry no_entry = {.offset = SN_NO_TEXT};

static uint32_t hash_of(const char *text, size_t size) {
    return (uint32_t)XXH3_64bits(text, size);
}

static size_t first_slot(uint32_t hash, size_t slots) {
    return (size_t)((uint64_t)hash * slots >> 32);
}

const sn_entry *sn_vocab_entry(const sn_vocab *v, int32_t id) {
    if (id < 0 || (size_t)id >= v->count) return &no_entry;
    const sn_entry *e = &v->entry[id];
    size_t end = (size_t)e->offset + e->size;
    return e->offset != SN_NO_TEXT && end < v->pool.size && !v->pool.data[end] ? e : &no_entry;
}

/* The slot of this text, or the free slot where it would be inserted; NULL: neither. */
static sn_slot *find_slot(const sn_vocab *v, uint32_t hash, const char *text, size_t size) {
    size_t at = first_slot(hash, v->slots);
    for (size_t n = v->slots; n--; at = at + 1 < v->slots ? at + 1 : 0) {
        sn_slot *s = &v->slot[at];
        if (!s->id) return s;
        if (s->hash != hash) continue;
        const sn_entry *e = sn_vocab_entry(v, (int32_t)(s->id - 1));
        if (e->offset != SN_NO_TEXT && e->size == size &&
            !memcmp(v->pool.data + e->offset, text, size))
            return s;
    }
    return NULL;
}

/* A table with so many slots, allocated. */
static bool rehash(sn_vocab *v, size_t slots, sn_error *err) {
    sn_slot *slot = calloc(slots, sizeof *slot);
    if (!slot) return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory for %zu tokens", slots);
    for (size_t i = 0; i < v->slots; i++) { /* the texts differ */
        size_t at = first_slot(v->slot[i].hash, slots);
        if (!v->slot[i].id) continue;
        while (slot[at].id) at = at + 1 < slots ? at + 1 : 0;
        slot[at] = v->slot[i];
    }
    v->slot = slot, v->slots = slots;
    return true;
}

static bool grow_slots(sn_vocab *v, sn_error *err) {
    sn_slot *old = v->slot;
    if (!rehash(v, v->slots ? v->slots * 4 : 1024, err)) return false;
    free(old);
    return true;
}

bool sn_vocab_tighten(sn_vocab *v, sn_error *err) {
    size_t used = 0;
    for (size_t i = 0; i < v->slots; i++) used += v->slot[i].id != 0;
    return rehash(v, used + used / 3 + 1, err);
}

bool sn_vocab_set(sn_vocab *v, int32_t id, const char *text, size_t size, uint32_t flags,
                  sn_error *err) {
    size_t at = (size_t)id;
    if (at < v->count && v->entry[at].offset != SN_NO_TEXT)
        return sn_fail(err, SN_ERR_FILE, "id %d has two texts: \"%s\" and \"%.*s\"", (int)id,
                       v->pool.data + v->entry[at].offset, (int)(size < 80 ? size : 80), text);
    if (size >= INT32_MAX || v->pool.size + size + 1 >= SN_NO_TEXT)
        return sn_fail(err, SN_ERR_RANGE, "vocabulary: more than 4 GiB of text");
    if (!sn_grow(&v->entry, &v->capacity, at + 1, sizeof *v->entry, err)) return false;
    if (v->used * 2 >= v->slots && !grow_slots(v, err)) return false;
    sn_entry e = {(uint32_t)v->pool.size, (uint32_t)size, flags};
    if (!sn_bytes_append(&v->pool, text, size, err) || !sn_bytes_append(&v->pool, "", 1, err))
        return false;
    for (; v->count <= at; v->count++) v->entry[v->count] = no_entry;
    v->entry[at] = e;
    if (size > v->longest) v->longest = (uint32_t)size;
    if (size) v->begins[(unsigned char)*text / 8] |= (uint8_t)(1u << (unsigned char)*text % 8);
    uint32_t hash = hash_of(text, size);
    sn_slot *slot = find_slot(v, hash, text, size);
    if (!slot->id) *slot = (sn_slot){(uint32_t)at + 1, hash}, v->used++;
    return true;
}

int32_t sn_vocab_find(const sn_vocab *v, const char *text, size_t size) {
    if (size > v->longest || !v->slots) return -1;
    const sn_slot *s = find_slot(v, hash_of(text, size), text, size);
    return s ? (int32_t)(s->id - 1) : -1;
}

const char *sn_vocab_text(const sn_vocab *v, int32_t id, size_t *size) {
    const sn_entry *e = sn_vocab_entry(v, id);
    *size = e->size;
    return e->offset == SN_NO_TEXT ? NULL : v->pool.data + e->offset;
}

int32_t sn_vocab_prefix(const sn_vocab *v, const char *text, size_t size) {
    unsigned char byte = size ? (unsigned char)*text : 0;
    if (!size || !(v->begins[byte / 8] >> byte % 8 & 1)) return -1;
    int32_t id = -1;
    for (size_t n = size < v->longest ? size : v->longest; n && id < 0; n--)
        id = sn_vocab_find(v, text, n);
    return id;
}

static const char hex[] = "0123456789ABCDEF";

bool sn_is_byte_token(const char *text, size_t size) {
    return size == 6 && !memcmp(text, "<0x", 3) && memchr(hex, text[3], 16) &&
           memchr(hex, text[4], 16) && text[5] == '>';
}

void sn_vocab_find_bytes(sn_vocab *v, int32_t byte_id[256]) {
    for (int i = 0; i < 256; i++) {
        char name[] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>'};
        byte_id[i] = sn_vocab_find(v, name, sizeof name);
        if (byte_id[i] >= 0) v->entry[byte_id[i]].flags |= SN_TOKEN_BYTE;
    }
}

void sn_vocab_free(sn_vocab *v) {
    free(v->entry);
    free(v->slot);
    sn_bytes_free(&v->pool);
    *v = (sn_vocab){0};
}
