/* tok_train_bpe.c: trains byte-level BPE (Sennrich et al. 2016, algorithm 1): repeatedly, the most
 * frequent pair of adjacent symbols becomes a token. The distinct words of the text form one array
 * of symbols; every pair knows its positions. A heap with possibly outdated counts gives the best
 * pair, so the cost of a merge is proportional to what it changes. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/tok_train.h"

typedef struct symbol {
    int32_t id, prev, next; /* neighbours in the word, -1: none; id -1: merged away */
    int32_t word;
} symbol;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *position; /* positions where it occurs, or occurred */
    size_t n_position, capacity;
    bool grown; /* the count increased in this round: needs a new heap entry */
} pair;

typedef struct ranked {
    int64_t count; /* when it was pushed */
    int32_t pair;
} ranked;

typedef struct trainer {
    sn_counter words;
    symbol *sym;
    size_t symbols;
    pair *pair;
    size_t pairs, pair_capacity;
    sn_pairs index; /* (left, right) -> index in pair[], as its `merged` */
    ranked *heap;
    size_t heaped, heap_capacity;
    int32_t *grown; /* pairs with `grown` set */
    size_t growns, grown_capacity;
    sn_bpe *bpe;
    sn_error *err;
} trainer;

/* ---- heap: highest count first; ties by the lower ids ---- */

static bool ranks_before(const trainer *t, ranked a, ranked b) {
    if (a.count != b.count) return a.count > b.count;
    const pair *p = &t->pair[a.pair], *q = &t->pair[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static bool push_pair(trainer *t, int32_t index) {
    ranked r = {t->pair[index].count, index};
    if (!sn_grow(&t->heap, &t->heap_capacity, t->heaped + 1, sizeof r, t->err)) return false;
    size_t i = t->heaped++;
    for (; i && ranks_before(t, r, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = r;
    return true;
}

static ranked pop_pair(trainer *t) {
    ranked top = t->heap[0], last = t->heap[--t->heaped];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heaped; i = child) {
        if (child + 1 < t->heaped && ranks_before(t, t->heap[child + 1], t->heap[child])) child++;
        if (!ranks_before(t, t->heap[child], last)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* ---- pairs ---- */

static int64_t weight(const trainer *t, int32_t position) {
    return t->words.count[t->sym[position].word];
}

/* The pair at `position` was created. */
static bool add_pair(trainer *t, int32_t position) {
    int32_t left = t->sym[position].id, right = t->sym[t->sym[position].next].id;
    const sn_pair *known = sn_pairs_find(&t->index, left, right);
    int32_t i = known ? known->merged : (int32_t)t->pairs;
    if (!known) {
        if (!sn_grow(&t->pair, &t->pair_capacity, t->pairs + 1, sizeof *t->pair, t->err) ||
            !sn_pairs_add(&t->index, left, right, i, t->err))
            return false;
        t->pair[t->pairs++] = (pair){.left = left, .right = right};
    }
    pair *p = &t->pair[i];
    if (!sn_grow(&p->position, &p->capacity, p->n_position + 1, sizeof *p->position, t->err))
        return false;
    p->position[p->n_position++] = position;
    p->count += weight(t, position);
    if (p->grown) return true;
    if (!sn_grow(&t->grown, &t->grown_capacity, t->growns + 1, sizeof *t->grown, t->err))
        return false;
    p->grown = true;
    t->grown[t->growns++] = i;
    return true;
}

/* The pair at `position` no longer exists; its position stays in the list and is recognised as
 * stale. */
static void drop_pair(trainer *t, int32_t position) {
    int32_t left = t->sym[position].id, right = t->sym[t->sym[position].next].id;
    t->pair[sn_pairs_find(&t->index, left, right)->merged].count -= weight(t, position);
}

static bool push_grown(trainer *t) {
    for (size_t i = 0; i < t->growns; i++) {
        t->pair[t->grown[i]].grown = false;
        if (!push_pair(t, t->grown[i])) return false;
    }
    t->growns = 0;
    return true;
}

/* ---- words to symbols ---- */

static bool count_word(void *ctx, const char *text, size_t size, bool matched) {
    (void)matched;
    trainer *t = ctx;
    return sn_count_text(&t->words, text, size, t->err);
}

static bool make_symbols(trainer *t) {
    size_t total = t->words.texts.pool.size - t->words.texts.count; /* without the NULs */
    if (total > INT32_MAX)
        return sn_fail(t->err, SN_ERR_RANGE, "more than 2 GiB of distinct words");
    t->sym = malloc((total + 1) * sizeof *t->sym);
    if (!t->sym) return sn_fail(t->err, SN_ERR_MEMORY, "out of memory for %zu symbols", total);
    for (size_t w = 0; w < t->words.texts.count; w++) {
        size_t size;
        const char *text = sn_vocab_text(&t->words.texts, (int32_t)w, &size);
        for (size_t i = 0; i < size; i++) {
            int32_t at = (int32_t)t->symbols++;
            t->sym[at] = (symbol){t->bpe->byte_id[(unsigned char)text[i]], i ? at - 1 : -1,
                                  i + 1 < size ? at + 1 : -1, (int32_t)w};
        }
    }
    for (size_t i = 0; i < t->symbols; i++)
        if (t->sym[i].next >= 0 && !add_pair(t, (int32_t)i)) return false;
    return push_grown(t);
}

/* ---- merging ---- */

/* The token of a merged pair: a new one, or an existing one with the same text; -1: out of
 * memory. */
static int32_t make_token(trainer *t, const pair *p) {
    sn_vocab *v = &t->bpe->base.vocab;
    sn_bytes text = {0};
    size_t size;
    int32_t id = -1;
    const int32_t part[2] = {p->left, p->right};
    bool ok = true;
    for (int i = 0; ok && i < 2; i++) {
        const char *piece = sn_vocab_text(v, part[i], &size);
        ok = sn_bytes_append(&text, piece, size, t->err);
    }
    if (ok && (id = sn_vocab_find(v, text.data, text.size)) < 0) {
        id = (int32_t)v->count;
        ok = sn_vocab_set(v, id, text.data, text.size, 0, t->err);
    }
    sn_bytes_free(&text);
    return ok && sn_pairs_add(&t->bpe->pairs, p->left, p->right, id, t->err) ? id : -1;
}

static int compare_position(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Replaces the pair by the token at all remaining positions, left to right. */
static bool merge_pair(trainer *t, int32_t index, int32_t token) {
    pair p = t->pair[index]; /* a copy: pair[] grows below */
    bool ok = true;
    t->pair[index].position = NULL;
    t->pair[index].n_position = t->pair[index].capacity = 0;
    qsort(p.position, p.n_position, sizeof *p.position, compare_position);
    for (size_t i = 0; ok && i < p.n_position; i++) {
        int32_t at = p.position[i], right = t->sym[at].next;
        if (t->sym[at].id != p.left || right < 0 || t->sym[right].id != p.right) continue;
        int32_t before = t->sym[at].prev, after = t->sym[right].next;
        drop_pair(t, at);
        if (before >= 0) drop_pair(t, before);
        if (after >= 0) drop_pair(t, right);
        t->sym[at].id = token;
        t->sym[at].next = after;
        t->sym[right].id = -1;
        if (after >= 0) t->sym[after].prev = at;
        ok = (before < 0 || add_pair(t, before)) && (after < 0 || add_pair(t, at));
    }
    free(p.position);
    return ok && push_grown(t);
}

static bool learn_merges(trainer *t, size_t tokens, int64_t min_count) {
    while (t->heaped && t->bpe->base.vocab.count < 256 + tokens) {
        ranked best = pop_pair(t);
        int64_t now = t->pair[best.pair].count;
        if (now < min_count) continue;
        if (now != best.count) { /* increased counts have their own entry */
            if (now < best.count && !push_pair(t, best.pair)) return false;
            continue;
        }
        pair p = t->pair[best.pair];
        int32_t token = make_token(t, &p);
        if (token < 0 || !merge_pair(t, best.pair, token)) return false;
    }
    return true;
}

/* ---- entry ---- */

/* Ids 0..255 in the order of their characters in vocab.json, as in GPT-2. */
static bool add_bytes(sn_bpe *b, sn_error *err) {
    int32_t id = 0;
    for (uint32_t letter = 0; id < 256; letter++)
        for (unsigned byte = 0; byte < 256; byte++) {
            char c = (char)byte;
            if (sn_gpt2_byte_char(byte) == letter &&
                !sn_vocab_set(&b->base.vocab, id++, &c, 1, 0, err))
                return false;
        }
    return sn_gpt2_find_bytes(b, err);
}

sn_tokenizer *sn_train_bpe(const char *text, size_t size, size_t tokens, int64_t min_count,
                           sn_error *err) {
    trainer t = {.bpe = sn_bpe_new(&sn_tok_gpt2, err), .err = err};
    if (!t.bpe) return NULL;
    t.bpe->byte_level = true;
    bool ok = sn_tok_add_split(&t.bpe->base, sn_gpt2_pattern, SN_ISOLATED, err) &&
              add_bytes(t.bpe, err) &&
              sn_regex_split(t.bpe->base.split[0].regex, text, size, count_word, &t, err) &&
              make_symbols(&t) && learn_merges(&t, tokens, min_count) &&
              sn_train_finish(&t.bpe->base, err);
    for (size_t i = 0; i < t.pairs; i++) free(t.pair[i].position);
    free(t.pair);
    free(t.sym);
    free(t.heap);
    free(t.grown);
    free(t.index.slot);
    sn_counter_free(&t.words);
    if (ok) return &t.bpe->base;
    sn_tokenizer_free(&t.bpe->base);
    return NULL;
}
