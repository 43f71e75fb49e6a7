/* dataset.c: rows, their order, and batches for the four training tasks. */
#include "model/dataset.h"
#include "runtime/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- documents ---- */

void sn_documents_free(sn_documents *d) {
    sn_ids_free(&d->ids);
    free(d->end);
    *d = (sn_documents){0};
}

bool sn_documents_close(sn_documents *d, sn_error *err) {
    if (d->count == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : 64;
        size_t *grown = realloc(d->end, capacity * sizeof *grown);
        if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        d->end = grown, d->capacity = capacity;
    }
    d->end[d->count++] = d->ids.count;
    return true;
}

sn_document_range sn_documents_all(const sn_documents *d) {
    return (sn_document_range){.ids = d->ids.data, .end = d->end, .count = d->count};
}

bool sn_documents_split(const sn_documents *d, double part, sn_document_range *first,
                        sn_document_range *rest, size_t cut_end[2], sn_error *err) {
    if (!(part > 0 && part < 1))
        return sn_fail(err, SN_ERR_USAGE,
                       "the fraction of the data is %g, but must lie between 0 and 1", part);
    *first = *rest = sn_documents_all(d);
    size_t all = d->count == 1 ? d->ids.count : d->count, n = (size_t)ceil(part * (double)all);
    if (all < 2)
        return sn_fail(err, SN_ERR_FILE, "%zu %s%s cannot be split in two", all,
                       d->count == 1 ? "token" : "document", all == 1 ? "" : "s");
    if (n >= all) n = all - 1;
    if (d->count > 1) {
        first->count = d->count - n;
        rest->begin = d->end[d->count - n - 1];
        rest->end += d->count - n, rest->count = n;
        return true;
    }
    cut_end[0] = rest->begin = all - n, cut_end[1] = all;
    first->end = &cut_end[0], rest->end = &cut_end[1];
    return true;
}

static size_t start_of(const sn_document_range *r, size_t i) {
    return i ? r->end[i - 1] : r->begin;
}

/* ---- the dataset ---- */

typedef struct row {
    size_t start, size; /* a range of ids */
    size_t document;
} row;

struct sn_dataset {
    sn_dataset_options o;
    sn_document_range data, translation;
    const int32_t *label;
    row *row; /* [rows]; not for SN_TASK_NEXT */
    int64_t rows, cut;
    int32_t *stream, *document; /* [length], for SN_TASK_NEXT: the concatenated documents */
    int64_t length;
};

sn_dataset_options sn_dataset_options_default(void) {
    return (sn_dataset_options){
        .bos = -1, .eos = -1, .mask = -1, .p_mask = 0.15, .p_replace = 0.8, .p_random = 0.1};
}

static bool check_ids(const sn_document_range *r, const char *what, int32_t vocab, sn_error *err) {
    size_t from = r->begin, to = r->count ? r->end[r->count - 1] : from;
    if (to == from) return sn_fail(err, SN_ERR_FILE, "%s is empty: no tokens", what);
    for (size_t i = from; i < to; i++)
        if (r->ids[i] < 0 || r->ids[i] >= vocab)
            return sn_fail(err, SN_ERR_RANGE,
                           "%s: token %d (number %zu) is outside the vocabulary 0..%d", what,
                           (int)r->ids[i], i - from, (int)vocab - 1);
    return true;
}

static bool check_special(int32_t id, const char *what, const sn_dataset_options *o,
                          sn_error *err) {
    if (id >= 0 && id < o->vocab) return true;
    return sn_fail(err, SN_ERR_RANGE,
                   "the vocabulary of %d tokens has no %s token, but this task needs one",
                   (int)o->vocab, what);
}

static bool check_options(const sn_dataset_options *o, sn_error *err) {
    bool chances = o->p_mask > 0 && o->p_mask <= 1 && o->p_replace >= 0 && o->p_random >= 0 &&
                   o->p_replace + o->p_random <= 1;
    if (o->batch < 1 || o->block < 1 || o->vocab < 1)
        return sn_fail(err, SN_ERR_USAGE, "invalid batch: %lld rows of %lld tokens, vocabulary %d",
                       (long long)o->batch, (long long)o->block, (int)o->vocab);
    if (o->task == SN_TASK_MASKED && !chances)
        return sn_fail(err, SN_ERR_USAGE,
                       "masking probabilities %g, %g and %g must lie between 0 and 1, and so must "
                       "the sum of the last two",
                       o->p_mask, o->p_replace, o->p_random);
    if (o->task == SN_TASK_MASKED && !check_special(o->mask, "mask", o, err)) return false;
    if (o->bos >= o->vocab || o->eos >= o->vocab)
        return sn_fail(err, SN_ERR_RANGE, "bos %d or eos %d is outside the vocabulary 0..%d",
                       (int)o->bos, (int)o->eos, (int)o->vocab - 1);
    if (o->task == SN_TASK_PAIRS)
        return check_special(o->bos, "beginning-of-text", o, err) &&
               check_special(o->eos, "end-of-text", o, err);
    return true;
}

static bool join_documents(sn_dataset *d, sn_error *err) {
    const sn_document_range *r = &d->data;
    size_t extra = (size_t)(d->o.bos >= 0) + (size_t)(d->o.eos >= 0);
    size_t n = r->end[r->count - 1] - r->begin + extra * r->count;
    d->stream = malloc(n * sizeof *d->stream);
    d->document = d->o.documents ? malloc(n * sizeof *d->document) : NULL;
    if (!d->stream || (d->o.documents && !d->document))
        return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu tokens", n);
    for (size_t i = 0; i < r->count; i++) {
        int64_t before = d->length;
        if (d->o.bos >= 0) d->stream[d->length++] = d->o.bos;
        for (size_t j = start_of(r, i); j < r->end[i]; j++) d->stream[d->length++] = r->ids[j];
        if (d->o.eos >= 0) d->stream[d->length++] = d->o.eos;
        for (int64_t j = before; d->document && j < d->length; j++) d->document[j] = (int32_t)i;
    }
    d->rows = (d->length - 1) / d->o.block;
    if (d->rows > 0) return true;
    return sn_fail(err, SN_ERR_FILE,
                   "the data has %lld tokens, but a row of block = %lld needs %lld: use a smaller "
                   "block or more text",
                   (long long)d->length, (long long)d->o.block, (long long)d->o.block + 1);
}

/* Number of document tokens that fit in a row between bos and eos. */
static int64_t room(const sn_dataset *d) {
    return d->o.block - (d->o.bos >= 0) - (d->o.eos >= 0);
}

static bool make_rows(sn_dataset *d, sn_error *err) {
    const sn_document_range *r = &d->data;
    size_t max_length = (size_t)room(d);
    if (room(d) < 1)
        return sn_fail(err, SN_ERR_USAGE, "block = %lld leaves no room between bos and eos",
                       (long long)d->o.block);
    size_t tokens = r->end[r->count - 1] - r->begin, count = r->count + tokens / max_length + 1;
    d->row = malloc(count * sizeof *d->row);
    if (!d->row) return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu rows", count);
    bool chunks = d->o.task == SN_TASK_MASKED;
    for (size_t i = 0; i < r->count; i++) {
        size_t start = start_of(r, i), n = r->end[i] - start;
        size_t other =
            d->o.task == SN_TASK_PAIRS ? d->translation.end[i] - start_of(&d->translation, i) : 1;
        if (n == 0 || other == 0) continue; /* skips empty lines */
        if (!chunks && (n > max_length || other > (size_t)d->o.block - 1)) d->cut++;
        for (size_t at = 0; at < n && (chunks || !at); at += max_length)
            d->row[d->rows++] = (row){start + at, n - at < max_length ? n - at : max_length, i};
    }
    return d->rows > 0 || sn_fail(err, SN_ERR_FILE, "the data contains only empty documents");
}

static bool open_dataset(sn_dataset *d, sn_error *err) {
    if (!check_options(&d->o, err) || !check_ids(&d->data, "the data", d->o.vocab, err))
        return false;
    if (d->o.task == SN_TASK_NEXT) return join_documents(d, err);
    if (d->o.task == SN_TASK_PAIRS) {
        if (!check_ids(&d->translation, "the translation", d->o.vocab, err)) return false;
        if (d->translation.count != d->data.count)
            return sn_fail(err, SN_ERR_FILE, "%zu texts but %zu translations: each text needs one",
                           d->data.count, d->translation.count);
    }
    return make_rows(d, err);
}

sn_dataset *sn_dataset_new(const sn_dataset_options *o, sn_document_range data,
                           sn_document_range translation, const int32_t *label, sn_error *err) {
    sn_dataset *d = calloc(1, sizeof *d);
    if (!d) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    d->o = *o, d->data = data, d->translation = translation, d->label = label;
    if (open_dataset(d, err)) return d;
    sn_dataset_free(d);
    return NULL;
}

void sn_dataset_free(sn_dataset *d) {
    if (!d) return;
    free(d->row), free(d->stream), free(d->document);
    free(d);
}

int64_t sn_dataset_rows(const sn_dataset *d) {
    return d->rows;
}

int64_t sn_dataset_batches(const sn_dataset *d) {
    int64_t n = d->o.order == SN_ORDER_GIVEN ? (d->rows + d->o.batch - 1) / d->o.batch
                                             : d->rows / d->o.batch;
    return n > 0 ? n : 1;
}

int64_t sn_dataset_cut(const sn_dataset *d) {
    return d->cut;
}

/* ---- order ---- */

/* Position i of a permutation of 0 .. n-1: a six-round Feistel network on the next power of four,
 * repeated until the result is in range (cycle walking; Black & Rogaway, "Ciphers with arbitrary
 * finite domains", 2002). */
static uint64_t shuffled(const sn_rng *key, uint64_t i, uint64_t n) {
    unsigned half = 1;
    while (half < 31 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t low = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & low;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t mixed = left ^ (sn_rng_at(key, round << 32 | right) & low);
            left = right, right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

static sn_rng stream(const sn_dataset *d, sn_stream which, int64_t step) {
    return (sn_rng){.seed = d->o.seed, .stream = which, .step = (uint32_t)step};
}

/* The row at position i of batch `number`; each epoch uses every row once. */
static int64_t row_at(const sn_dataset *d, int64_t number, int64_t i) {
    int64_t batches = sn_dataset_batches(d), epoch = number / batches;
    int64_t place = (number % batches * d->o.batch + i) % d->rows;
    if (d->o.order == SN_ORDER_GIVEN) return place;
    if (d->o.order == SN_ORDER_RANDOM) {
        sn_rng rng = stream(d, SN_STREAM_DATA, number);
        return (int64_t)((uint64_t)sn_rng_at(&rng, (uint64_t)i) * (uint64_t)d->rows >> 32);
    }
    sn_rng key = stream(d, SN_STREAM_DATA, epoch);
    return (int64_t)shuffled(&key, (uint64_t)place, (uint64_t)d->rows);
}

static int64_t rows_of_batch(const sn_dataset *d, int64_t number) {
    if (d->o.order != SN_ORDER_GIVEN) return d->o.batch;
    int64_t left = d->rows - number % sn_dataset_batches(d) * d->o.batch;
    return left < d->o.batch ? left : d->o.batch;
}

/* ---- batches ---- */

void sn_batch_free(sn_batch *b) {
    free(b->memory);
    *b = (sn_batch){0};
}

enum { N_ARRAYS = 6 };

/* Allocates six arrays of B rows of the maximum length. */
static bool reserve(const sn_dataset *d, sn_batch *b, sn_error *err) {
    size_t need = (size_t)(N_ARRAYS * d->o.batch * d->o.block);
    if (need <= b->capacity) return true;
    int32_t *grown = realloc(b->memory, need * sizeof *grown);
    if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory: a batch of %zu numbers", need);
    b->memory = grown, b->capacity = need;
    return true;
}

static int32_t *array(const sn_dataset *d, sn_batch *b, int which) {
    return b->memory + which * d->o.batch * d->o.block;
}

/* Start of a row of SN_TASK_NEXT in the stream. */
static int64_t offset_of(const sn_dataset *d, int64_t number, int64_t i) {
    if (d->o.order != SN_ORDER_RANDOM) return row_at(d, number, i) * d->o.block;
    sn_rng rng = stream(d, SN_STREAM_DATA, number);
    uint64_t bits = (uint64_t)sn_rng_at(&rng, 2 * (uint64_t)i) << 20 |
                    sn_rng_at(&rng, 2 * (uint64_t)i + 1) >> 12; /* 52 bits */
    return (int64_t)((double)bits * 0x1p-52 * (double)(d->length - d->o.block));
}

static void fill_next(const sn_dataset *d, int64_t number, sn_batch *b) {
    int64_t T = d->o.block;
    b->T = T;
    b->tokens = array(d, b, 0), b->targets = array(d, b, 1);
    b->documents = d->document ? array(d, b, 2) : NULL;
    for (int64_t i = 0; i < b->B; i++) {
        int64_t at = offset_of(d, number, i);
        memcpy(b->tokens + i * T, d->stream + at, (size_t)T * sizeof *b->tokens);
        memcpy(b->targets + i * T, d->stream + at + 1, (size_t)T * sizeof *b->tokens);
        b->predicted += T;
        for (int64_t t = 0; d->document && t < T; t++) {
            b->documents[i * T + t] = d->document[at + t];
            if (d->document[at + t] == d->document[at + t + 1]) continue;
            b->targets[i * T + t] = -1;
            b->predicted--;
        }
    }
}

/* Writes [bos] ids [eos] to the row and pads it with zeros; returns the length. */
static int64_t wrap(const sn_dataset *d, const int32_t *ids, size_t n, int32_t *out,
                    int64_t width) {
    int64_t at = 0;
    if (d->o.bos >= 0) out[at++] = d->o.bos;
    memcpy(out + at, ids, n * sizeof *out);
    at += (int64_t)n;
    if (d->o.eos >= 0) out[at++] = d->o.eos;
    memset(out + at, 0, (size_t)(width - at) * sizeof *out);
    return at;
}

static int64_t longest(const sn_dataset *d, int64_t number, int64_t B) {
    size_t n = 0;
    for (int64_t i = 0; i < B; i++) {
        const row *r = &d->row[row_at(d, number, i)];
        if (r->size > n) n = r->size;
    }
    return (int64_t)n + (d->o.bos >= 0) + (d->o.eos >= 0);
}

/* Chooses targets among the row's inner tokens and replaces most of them by the mask token. */
static void mask_row(const sn_dataset *d, sn_batch *b, int64_t i, const sn_rng *rng) {
    int32_t *tokens = b->tokens + i * b->T, *targets = b->targets + i * b->T;
    int64_t from = d->o.bos >= 0, to = b->lengths[i] - (d->o.eos >= 0);
    for (int64_t t = 0; t < b->T; t++) {
        uint64_t at = 3 * (uint64_t)(i * d->o.block + t);
        targets[t] = -1;
        if (t < from || t >= to || sn_bits_uniform(sn_rng_at(rng, at)) >= d->o.p_mask) continue;
        targets[t] = tokens[t];
        b->predicted++;
        double fate = sn_bits_uniform(sn_rng_at(rng, at + 1));
        uint64_t any = (uint64_t)sn_rng_at(rng, at + 2) * (uint64_t)d->o.vocab >> 32;
        if (fate < d->o.p_replace)
            tokens[t] = d->o.mask;
        else if (fate < d->o.p_replace + d->o.p_random)
            tokens[t] = (int32_t)any;
    }
}

static void fill_encoder(const sn_dataset *d, int64_t number, sn_batch *b) {
    int64_t T = b->T = longest(d, number, b->B);
    b->tokens = array(d, b, 0), b->targets = array(d, b, 1), b->types = array(d, b, 2);
    b->lengths = array(d, b, 3);
    memset(b->types, 0, (size_t)(b->B * T) * sizeof *b->types);
    bool again = d->o.order == SN_ORDER_GIVEN; /* the same masks in every epoch */
    sn_rng rng = stream(d, SN_STREAM_MASK, again ? number % sn_dataset_batches(d) : number);
    for (int64_t i = 0; i < b->B; i++) {
        const row *r = &d->row[row_at(d, number, i)];
        b->lengths[i] = (int32_t)wrap(d, d->data.ids + r->start, r->size, b->tokens + i * T, T);
        if (d->o.task == SN_TASK_MASKED)
            mask_row(d, b, i, &rng);
        else
            b->targets[i] = d->label[r->document], b->predicted++;
    }
}

static size_t translation_size(const sn_dataset *d, size_t document) {
    size_t n = d->translation.end[document] - start_of(&d->translation, document);
    return n < (size_t)d->o.block - 1 ? n : (size_t)d->o.block - 1;
}

/* tokens: bos x; targets: x eos */
static void fill_pairs(const sn_dataset *d, int64_t number, sn_batch *b) {
    int64_t S = b->S = longest(d, number, b->B);
    b->source = array(d, b, 0), b->lengths = array(d, b, 1);
    b->tokens = array(d, b, 2), b->targets = array(d, b, 3);
    b->T = 0;
    for (int64_t i = 0; i < b->B; i++) {
        int64_t n = (int64_t)translation_size(d, d->row[row_at(d, number, i)].document) + 1;
        if (n > b->T) b->T = n;
    }
    for (int64_t i = 0; i < b->B; i++) {
        const row *r = &d->row[row_at(d, number, i)];
        const int32_t *x = d->translation.ids + start_of(&d->translation, r->document);
        int64_t n = (int64_t)translation_size(d, r->document);
        b->lengths[i] = (int32_t)wrap(d, d->data.ids + r->start, r->size, b->source + i * S, S);
        for (int64_t t = 0; t < b->T; t++) {
            b->tokens[i * b->T + t] = t == 0 ? d->o.bos : t <= n ? x[t - 1] : 0;
            b->targets[i * b->T + t] = t < n ? x[t] : t == n ? d->o.eos : -1;
        }
        b->predicted += n + 1;
    }
}

bool sn_dataset_batch(const sn_dataset *d, int64_t number, sn_batch *out, sn_error *err) {
    static void (*const fill[])(const sn_dataset *, int64_t,
                                sn_batch *) = {[SN_TASK_NEXT] = fill_next,
                                               [SN_TASK_MASKED] = fill_encoder,
                                               [SN_TASK_PAIRS] = fill_pairs,
                                               [SN_TASK_CLASSES] = fill_encoder};
    if (number < 0) return sn_fail(err, SN_ERR_RANGE, "batch number %lld", (long long)number);
    if (!reserve(d, out, err)) return false;
    *out =
        (sn_batch){.B = rows_of_batch(d, number), .memory = out->memory, .capacity = out->capacity};
    fill[d->o.task](d, number, out);
    return true;
}
