/* tok_unigram.c: the unigram model: Viterbi search over the positions of a text, O(n * longest
 * token). Ties go to the segmentation that is found first, as in SentencePiece and Hugging Face. */
#include "model/tokenizer/tok_unigram.h"

#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_serial.h"
#include "model/tokenizer/utf8.h"

sn_unigram *sn_unigram_new(sn_error *err) {
    sn_unigram *u = (sn_unigram *)sn_tok_new(&sn_tok_unigram, err);
    if (!u) return NULL;
    for (int i = 0; i < 256; i++) u->byte_id[i] = -1;
    return u;
}

static void destroy_unigram(sn_tokenizer *t) {
    sn_unigram *u = (sn_unigram *)t;
    free(u->score);
    free(u->order);
}

bool sn_unigram_score(sn_unigram *u, int32_t id, double score, sn_error *err) {
    size_t n = (size_t)id + 1;
    if (!(score > -1e30 && score < 1e30))
        return sn_fail(err, SN_ERR_FILE, "score of token %d is not a number", (int)id);
    if (!sn_grow(&u->score, &u->score_capacity, n, sizeof *u->score, err)) return false;
    while (u->scores < n) u->score[u->scores++] = 0;
    u->score[id] = score;
    return true;
}

/* ---- the sorted vocabulary ---- */

typedef struct text_id {
    const char *text;
    uint32_t size;
    int32_t id;
} text_id;

static int compare_texts(const void *a, const void *b) {
    const text_id *x = a, *y = b;
    int c = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (c) return c;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

bool sn_unigram_finish(sn_unigram *u, sn_error *err) {
    const sn_vocab *v = &u->base.vocab;
    text_id *list = malloc((v->count + 1) * sizeof *list);
    u->order = malloc((v->count + 1) * sizeof *u->order);
    if (!list || !u->order) {
        free(list);
        return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory for %zu tokens", v->count);
    }
    size_t n = 0;
    for (size_t id = 0; id < v->count && id < u->scores; id++) {
        const sn_entry *e = &v->entry[id];
        if (e->offset == SN_NO_TEXT || e->size == 0 ||
            e->flags & (SN_TOKEN_NO_TEXT | SN_TOKEN_UNUSED))
            continue;
        list[n++] = (text_id){v->pool.data + e->offset, e->size, (int32_t)id};
    }
    qsort(list, n, sizeof *list, compare_texts);
    u->ordered = 0;
    for (size_t i = 0; i < n; i++) /* of equal texts the last id counts */
        if (i + 1 == n || list[i].size != list[i + 1].size ||
            memcmp(list[i].text, list[i + 1].text, list[i].size))
            u->order[u->ordered++] = list[i].id;
    free(list);
    for (size_t byte = 0, i = 0; byte <= 256; byte++) {
        while (i < u->ordered && (unsigned char)v->pool.data[v->entry[u->order[i]].offset] < byte)
            i++;
        u->begin[byte] = (uint32_t)i;
    }
    return true;
}

/* The tokens order[lo, hi) begin with the same `depth` bytes. Narrows the range to those with
 * `byte` next: those that end here come first. */
static size_t next_bound(const sn_unigram *u, size_t lo, size_t hi, size_t depth, unsigned limit) {
    const sn_vocab *v = &u->base.vocab;
    while (lo < hi) { /* the first token whose next byte is at least `limit` */
        size_t mid = lo + (hi - lo) / 2;
        const sn_entry *e = sn_vocab_entry(v, u->order[mid]);
        if (e->size <= depth || (unsigned char)v->pool.data[e->offset + depth] < limit)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- encoding ---- */

typedef struct node {
    double score;  /* of the best path that ends here */
    uint32_t size; /* of its last token; 0: no path yet */
    int32_t id;
} node;

typedef struct lattice {
    node *node;
    size_t capacity;
    uint32_t *end; /* of the tokens of the best path, last first */
    size_t ends_capacity;
} lattice;

static void clear_lattice(void *scratch) {
    lattice *l = scratch;
    free(l->node);
    free(l->end);
}

static void offer(const sn_unigram *u, node *from, uint32_t size, int32_t id, double score) {
    double total = from->score + score;
    node *to = from + size;
    if (to->size && !(total > to->score)) return;
    *to = (node){u->floats ? (double)(float)total : total, size, id};
}

static double score_of(const sn_unigram *u, int32_t id) {
    if (sn_vocab_entry(&u->base.vocab, id)->flags & SN_TOKEN_USER) return -0.1;
    return (size_t)id < u->scores ? u->score[id] : u->unk_score;
}

/* Offers all tokens that begin at text[0], and unk if none is one character long. */
static void extend(const sn_unigram *u, node *from, const char *text, size_t size) {
    const sn_vocab *v = &u->base.vocab;
    uint32_t cp;
    size_t len = sn_utf8_next(text, size, &cp);
    bool single = false;
    size_t lo = u->begin[(unsigned char)*text], hi = u->begin[(unsigned char)*text + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (sn_vocab_entry(v, u->order[lo])->size == depth) {
            offer(u, from, (uint32_t)depth, u->order[lo], score_of(u, u->order[lo]));
            single = single || depth == len;
            lo++;
        }
        if (depth == size) break;
        unsigned byte = (unsigned char)text[depth];
        lo = next_bound(u, lo, hi, depth, byte);
        hi = next_bound(u, lo, hi, depth, byte + 1);
    }
    if (!single) offer(u, from, (uint32_t)len, -1, u->unk_score);
}

/* A text without a token: its bytes, or one unk for all that follow each other. */
static bool push_unknown(sn_encoding *e, const char *text, size_t size, bool after_unk) {
    const sn_unigram *u = (const sn_unigram *)e->t;
    bool spelled = true;
    for (size_t i = 0; i < size; i++) spelled = spelled && u->byte_id[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; spelled && i < size; i++)
        if (!sn_ids_push(e->out, u->byte_id[(unsigned char)text[i]], e->err)) return false;
    int32_t unk = e->t->special[SN_TOKEN_UNK];
    if (spelled || after_unk) return true;
    if (unk >= 0) return sn_ids_push(e->out, unk, e->err);
    return sn_fail(e->err, SN_ERR_RANGE,
                   "the vocabulary has no token for \"%.*s\" and no unk token", (int)size, text);
}

static bool encode_unigram(sn_encoding *e, const char *text, size_t size) {
    const sn_unigram *u = (const sn_unigram *)e->t;
    lattice *l = e->scratch;
    size_t ends = 0;
    if (size > INT32_MAX)
        return sn_fail(e->err, SN_ERR_RANGE, "a piece of %zu bytes is too long", size);
    if (!sn_grow(&l->node, &l->capacity, size + 1, sizeof *l->node, e->err)) return false;
    memset(l->node, 0, (size + 1) * sizeof *l->node);
    uint32_t cp;
    for (size_t at = 0; at < size; at += sn_utf8_next(text + at, size - at, &cp))
        extend(u, &l->node[at], text + at, size - at);
    for (size_t at = size; at; at -= l->node[at].size) {
        if (!sn_grow(&l->end, &l->ends_capacity, ends + 1, sizeof *l->end, e->err)) return false;
        l->end[ends++] = (uint32_t)at;
    }
    for (bool after_unk = false; ends--;) {
        const node *n = &l->node[l->end[ends]];
        if (!(n->id >= 0 ? sn_ids_push(e->out, n->id, e->err)
                         : push_unknown(e, text + l->end[ends] - n->size, n->size, after_unk)))
            return false;
        after_unk = n->id < 0;
    }
    return true;
}

static bool serialise_unigram(sn_serial *c, sn_tokenizer *t) {
    sn_unigram *u = (sn_unigram *)t;
    return sn_serial_list(c, &u->score, &u->scores, sizeof *u->score) &&
           sn_serial_list(c, &u->order, &u->ordered, sizeof *u->order) &&
           SN_SERIAL(c, u->unk_score) && SN_SERIAL(c, u->byte_id) &&
           sn_serial_index(c, u->begin, u->ordered) && sn_serial_bool(c, &u->floats);
}

const sn_tok_kind sn_tok_unigram = {.name = "unigram",
                                    .size = sizeof(sn_unigram),
                                    .scratch = sizeof(lattice),
                                    .encode = encode_unigram,
                                    .clear = clear_lattice,
                                    .destroy = destroy_unigram,
                                    .serialise = serialise_unigram};
