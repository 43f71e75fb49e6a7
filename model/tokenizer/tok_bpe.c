/* tok_bpe.c: the merge loop of byte-pair encoding in O(n log n): symbols in a linked list,
 * candidate merges in a heap ordered by (rank or score, position). A candidate whose symbols have
 * changed is discarded when it is popped. Ties go left to right, as in encoder.py and
 * SentencePiece. */
#include "model/tokenizer/tok_bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_serial.h"
#include "model/tokenizer/utf8.h"

/* The slot of a pair, or the free one where it would be inserted; NULL: neither. */
static sn_pair *pair_slot(const sn_pairs *p, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t hash = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32);
    size_t at = (size_t)((uint64_t)hash * p->slots >> 32);
    for (size_t n = p->slots; n--; at = at + 1 < p->slots ? at + 1 : 0) {
        sn_pair *e = &p->slot[at];
        if (e->left < 0 || (e->left == left && e->right == right)) return e;
    }
    return NULL;
}

/* A table with so many slots, allocated. */
static bool rehash_pairs(sn_pairs *p, size_t slots, sn_error *err) {
    sn_pairs n = {.slots = slots, .used = p->used};
    n.slot = malloc(n.slots * sizeof *n.slot);
    if (!n.slot)
        return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory for %zu merges", p->used);
    for (size_t i = 0; i < n.slots; i++) n.slot[i] = (sn_pair){.left = -1};
    for (size_t i = 0; i < p->slots; i++)
        if (p->slot[i].left >= 0) *pair_slot(&n, p->slot[i].left, p->slot[i].right) = p->slot[i];
    *p = n;
    return true;
}

static bool grow_pairs(sn_pairs *p, sn_error *err) {
    sn_pair *old = p->slot;
    if (!rehash_pairs(p, p->slots ? p->slots * 2 : 1024, err)) return false;
    free(old);
    return true;
}

bool sn_pairs_add(sn_pairs *p, int32_t left, int32_t right, int32_t merged, sn_error *err) {
    if (p->used * 2 >= p->slots && !grow_pairs(p, err)) return false;
    sn_pair *e = pair_slot(p, left, right);
    if (e->left < 0) *e = (sn_pair){left, right, (int32_t)p->used++, merged};
    return true;
}

const sn_pair *sn_pairs_find(const sn_pairs *p, int32_t left, int32_t right) {
    const sn_pair *e = pair_slot(p, left, right);
    return e && e->left >= 0 ? e : NULL;
}

bool sn_bpe_score(sn_bpe *b, int32_t id, float score, sn_error *err) {
    size_t n = (size_t)id + 1;
    if (!sn_grow(&b->score, &b->score_capacity, n, sizeof *b->score, err)) return false;
    while (b->scores < n) b->score[b->scores++] = 0;
    b->score[id] = score;
    return true;
}

bool sn_bpe_add_merge(sn_bpe *b, const sn_bytes *left, const sn_bytes *right, sn_error *err) {
    sn_bytes both = {0};
    size_t skip = b->prefix.size;
    if (right->size < skip || (skip && memcmp(right->data, b->prefix.data, skip))) skip = 0;
    if (!sn_bytes_append(&both, left->data, left->size, err) ||
        !sn_bytes_append(&both, right->data + skip, right->size - skip, err)) {
        sn_bytes_free(&both);
        return false;
    }
    int32_t l = sn_vocab_find(&b->base.vocab, left->data, left->size);
    int32_t r = sn_vocab_find(&b->base.vocab, right->data, right->size);
    int32_t merged = sn_vocab_find(&b->base.vocab, both.data, both.size);
    bool known = l >= 0 && r >= 0 && merged >= 0;
    if (!known)
        sn_fail(err, SN_ERR_FILE, "merge of \"%.60s\" and \"%.60s\": %s is not in the vocabulary",
                left->data, right->data,
                l < 0   ? "the first"
                : r < 0 ? "the second"
                        : "the result");
    sn_bytes_free(&both);
    return known && sn_pairs_add(&b->pairs, l, r, merged, err);
}

sn_bpe *sn_bpe_new(const sn_tok_kind *kind, sn_error *err) {
    sn_bpe *b = (sn_bpe *)sn_tok_new(kind, err);
    if (b)
        for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
    return b;
}

void sn_bpe_destroy(sn_tokenizer *t) {
    sn_bpe *b = (sn_bpe *)t;
    sn_vocab_free(&b->users);
    sn_bytes_free(&b->prefix);
    sn_bytes_free(&b->suffix);
    free(b->pairs.slot);
    free(b->score);
}

/* ---- merging one piece ---- */

typedef struct symbol {
    int32_t id, prev, next; /* indices into the list, -1: end */
    uint32_t start, size;   /* bytes of the piece; size 0: merged into the left neighbour */
    bool whole;             /* a user-defined symbol: not merged */
} symbol;

typedef struct candidate {
    double order; /* smaller first: rank, or negative score */
    int32_t left, merged;
    uint32_t size; /* of both symbols */
} candidate;

/* A merge that gives an unused token, which is taken apart again at the end. */
typedef struct cut {
    int32_t id;
    uint32_t left; /* size of its left part */
} cut;

/* Scratch of one encode call, reused for every piece. */
typedef struct merging {
    const sn_bpe *bpe;
    sn_ids *out;
    sn_error *err;
    const char *text;
    symbol *sym;
    size_t count, sym_capacity;
    candidate *heap;
    size_t heaped, heap_capacity;
    cut *cut;
    size_t cuts, cut_capacity;
    sn_bytes spelled; /* a symbol with prefix and suffix */
} merging;

static_assert(sizeof(merging) <= SN_BPE_SCRATCH, "room for the scratch of a call");

void sn_bpe_clear(void *scratch) {
    merging *m = scratch;
    free(m->sym);
    free(m->heap);
    free(m->cut);
    sn_bytes_free(&m->spelled);
}

static bool comes_before(const candidate *a, const candidate *b) {
    return a->order < b->order || (a->order == b->order && a->left < b->left);
}

static bool push_candidate(merging *m, candidate c) {
    if (!sn_grow(&m->heap, &m->heap_capacity, m->heaped + 1, sizeof c, m->err)) return false;
    size_t i = m->heaped++;
    for (; i && comes_before(&c, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
    return true;
}

static candidate pop_candidate(merging *m) {
    candidate top = m->heap[0], last = m->heap[--m->heaped];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->heaped; i = child) {
        if (child + 1 < m->heaped && comes_before(&m->heap[child + 1], &m->heap[child])) child++;
        if (!comes_before(&m->heap[child], &last)) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

/* Pushes the merge of the symbol at `left` with its right neighbour, if there is one. */
static bool consider(merging *m, int32_t left) {
    if (left < 0 || m->sym[left].next < 0) return true;
    const sn_bpe *b = m->bpe;
    const symbol *l = &m->sym[left], *r = &m->sym[l->next];
    if (l->whole || r->whole) return true;
    candidate c = {.left = left, .size = l->size + r->size};
    if (b->by_score) {
        c.merged = sn_vocab_find(&b->base.vocab, m->text + l->start, c.size);
        if (c.merged < 0 || (size_t)c.merged >= b->scores) return true;
        const unsigned flags = sn_vocab_entry(&b->base.vocab, c.merged)->flags;
        if (flags & SN_TOKEN_NO_TEXT) return true;
        if (flags & SN_TOKEN_UNUSED) {
            if (!sn_grow(&m->cut, &m->cut_capacity, m->cuts + 1, sizeof *m->cut, m->err))
                return false;
            m->cut[m->cuts++] = (cut){c.merged, l->size};
        }
        c.order = -(double)b->score[c.merged];
    } else {
        const sn_pair *p = sn_pairs_find(&b->pairs, l->id, r->id);
        if (!p) return true;
        c.merged = p->merged;
        c.order = p->rank;
    }
    return push_candidate(m, c);
}

static bool merge_symbols(merging *m) {
    m->heaped = 0;
    for (size_t i = 0; i + 1 < m->count; i++)
        if (!consider(m, (int32_t)i)) return false;
    while (m->heaped) {
        candidate c = pop_candidate(m);
        symbol *l = &m->sym[c.left];
        /* symbols only grow: if either has changed, the sizes no longer add up */
        if (!l->size || l->next < 0 || l->size + m->sym[l->next].size != c.size) continue;
        symbol *r = &m->sym[l->next];
        l->id = c.merged, l->size = c.size, l->next = r->next;
        r->size = 0;
        if (l->next >= 0) m->sym[l->next].prev = c.left;
        if (!consider(m, l->prev) || !consider(m, c.left)) return false;
    }
    return true;
}

static bool add_symbol(merging *m, int32_t id, size_t start, size_t size) {
    if (!sn_grow(&m->sym, &m->sym_capacity, m->count + 1, sizeof *m->sym, m->err)) return false;
    int32_t n = (int32_t)m->count++;
    m->sym[n] = (symbol){id, n - 1, n + 1, (uint32_t)start, (uint32_t)size, false};
    return true;
}

/* Encodes bytes start..start+size of the piece as byte tokens, or as one unk if the vocabulary has
 * none. */
static bool add_bytes(merging *m, size_t start, size_t size) {
    const int32_t *byte_id = m->bpe->byte_id;
    const unsigned char *at = (const unsigned char *)m->text + start;
    bool spelled = true;
    for (size_t i = 0; i < size; i++) spelled = spelled && byte_id[at[i]] >= 0;
    for (size_t i = 0; spelled && i < size; i++)
        if (!add_symbol(m, byte_id[at[i]], start + i, 1)) return false;
    int32_t unk = m->bpe->base.special[SN_TOKEN_UNK];
    if (!spelled && unk < 0)
        return sn_fail(m->err, SN_ERR_RANGE,
                       "the vocabulary has no token for \"%.*s\" and no unk token", (int)size,
                       m->text + start);
    if (!spelled && m->bpe->fuse_unk && m->count && m->sym[m->count - 1].id == unk) {
        m->sym[m->count - 1].size += (uint32_t)size;
        return true;
    }
    return spelled || add_symbol(m, unk, start, size);
}

/* The token of a character or byte; its text may have a prefix or a suffix. */
static bool find_symbol(merging *m, size_t at, size_t len, size_t size, int32_t *id) {
    const sn_bpe *b = m->bpe;
    const char *text = m->text + at;
    bool inside = b->prefix.size && at, last = b->suffix.size && at + len == size;
    if (inside || last) {
        m->spelled.size = 0;
        if ((inside && !sn_bytes_append(&m->spelled, b->prefix.data, b->prefix.size, m->err)) ||
            !sn_bytes_append(&m->spelled, text, len, m->err) ||
            (last && !sn_bytes_append(&m->spelled, b->suffix.data, b->suffix.size, m->err)))
            return false;
        text = m->spelled.data, len = m->spelled.size;
    } else if (b->byte_level) {
        *id = b->byte_id[(unsigned char)*text];
        return true;
    }
    *id = sn_vocab_find(&b->base.vocab, text, len);
    if (sn_vocab_entry(&b->base.vocab, *id)->flags & SN_TOKEN_NO_TEXT) *id = -1;
    return true;
}

static bool split_symbols(merging *m, size_t size) {
    const sn_bpe *b = m->bpe;
    m->count = 0;
    for (size_t at = 0, len; at < size; at += len) {
        uint32_t cp;
        int32_t id = sn_vocab_prefix(&b->users, m->text + at, size - at);
        if (id >= 0) {
            sn_vocab_text(&b->users, id, &len);
            id = sn_vocab_find(&b->base.vocab, m->text + at, len);
            if (!add_symbol(m, id, at, len)) return false;
            m->sym[m->count - 1].whole = true;
            continue;
        }
        len = b->byte_level ? 1 : sn_utf8_next(m->text + at, size - at, &cp);
        if (!find_symbol(m, at, len, size, &id) ||
            !(id >= 0 ? add_symbol(m, id, at, len) : add_bytes(m, at, len)))
            return false;
    }
    m->sym[m->count - 1].next = -1;
    return true;
}

/* The id of text[size]; an unused token is taken apart where it was last merged. */
static bool push_token(merging *m, int32_t id, const char *text, size_t size) {
    const sn_vocab *v = &m->bpe->base.vocab;
    size_t i = sn_vocab_entry(v, id)->flags & SN_TOKEN_UNUSED ? m->cuts : 0;
    while (i && m->cut[i - 1].id != id) i--;
    if (!i) return sn_ids_push(m->out, id < 0 ? m->bpe->base.special[SN_TOKEN_UNK] : id, m->err);
    size_t left = m->cut[i - 1].left;
    return push_token(m, sn_vocab_find(v, text, left), text, left) &&
           push_token(m, sn_vocab_find(v, text + left, size - left), text + left, size - left);
}

bool sn_bpe_encode(sn_encoding *e, const char *text, size_t size) {
    merging *m = e->scratch;
    m->bpe = (const sn_bpe *)e->t, m->out = e->out, m->err = e->err, m->text = text;
    m->cuts = 0;
    if (size > INT32_MAX)
        return sn_fail(e->err, SN_ERR_RANGE, "a piece of %zu bytes is too long", size);
    if (m->bpe->whole_first) {
        int32_t id = sn_vocab_find(&m->bpe->base.vocab, text, size);
        if (id >= 0 && !(sn_vocab_entry(&m->bpe->base.vocab, id)->flags & SN_TOKEN_NO_TEXT))
            return sn_ids_push(e->out, id, e->err);
    }
    if (!split_symbols(m, size) || !merge_symbols(m)) return false;
    for (int32_t i = 0; i >= 0; i = m->sym[i].next)
        if (!push_token(m, m->sym[i].id, text + m->sym[i].start, m->sym[i].size)) return false;
    return true;
}

bool sn_bpe_serialise(sn_serial *c, sn_tokenizer *t) {
    sn_bpe *b = (sn_bpe *)t;
    sn_pairs tight = b->pairs;
    tight.used = 0;
    for (size_t i = 0; !c->reads && i < tight.slots; i++) tight.used += tight.slot[i].left >= 0;
    if (!c->reads && !rehash_pairs(&tight, tight.used + tight.used / 3 + 1, c->err)) return false;
    bool ok = sn_serial_list(c, &tight.slot, &tight.slots, sizeof *tight.slot);
    if (!c->reads) free(tight.slot);
    if (c->reads) b->pairs = tight;
    return ok && sn_serial_list(c, &b->score, &b->scores, sizeof *b->score) &&
           SN_SERIAL(c, b->byte_id) && sn_serial_vocab(c, &b->users) &&
           sn_serial_bytes(c, &b->prefix) && sn_serial_bytes(c, &b->suffix) &&
           sn_serial_bool(c, &b->by_score) && sn_serial_bool(c, &b->byte_level) &&
           sn_serial_bool(c, &b->whole_first) && sn_serial_bool(c, &b->fuse_unk);
}
