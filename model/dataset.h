/* dataset.h: training batches from tokenised documents. A batch is a pure function of the data, the
 * options and its number: random numbers are counter-based (runtime/rng.h), so the position in the
 * data is a single integer, and a run can stop and resume anywhere. [PH22 A11 to A13, section 8:
 * chunking, shuffling, mini-batches, validation] */
#ifndef SN_DATASET_H
#define SN_DATASET_H

#include "model/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Concatenated documents. Initialise with {0}; free with sn_documents_free. */
typedef struct sn_documents {
    sn_ids ids;
    size_t *end; /* [count] end of each document in ids */
    size_t count, capacity;
} sn_documents;
void sn_documents_free(sn_documents *d);
/* Ends a document: it consists of the ids appended since the last call (it may be empty). */
bool sn_documents_close(sn_documents *d, sn_error *err);
/* Splits the documents into those before `first` and those from `first` on. Both parts share the
 * ids: do not free them, and do not use them after the original is freed. A single document is
 * split inside. part: the fraction of tokens (one document) or documents (several) that go to
 * *rest; at least one each. */
typedef struct sn_document_range {
    const int32_t *ids;  /* of all documents */
    const size_t *end;   /* [count] */
    size_t begin, count; /* ids before `begin` are not part of the range */
} sn_document_range;
sn_document_range sn_documents_all(const sn_documents *d);
bool sn_documents_split(const sn_documents *d, double part, sn_document_range *first,
                        sn_document_range *rest, size_t cut_end[2], sn_error *err);

typedef enum sn_task {
    SN_TASK_NEXT, /* tokens, targets [B, T]: rows of the concatenated documents [PH22 A13] */
    /* tokens, types, targets [B, T], lengths [B]: chunks of each document with masked tokens; only
     * those are targets [PH22 A12] */
    SN_TASK_MASKED,
    SN_TASK_PAIRS,   /* source [B, S], lengths [B]; tokens, targets [B, T] [PH22 A11] */
    SN_TASK_CLASSES, /* tokens, types [B, T], lengths [B]; targets [B] [PH22 section 3] */
} sn_task;

typedef enum sn_row_order {
    SN_ORDER_SHUFFLED, /* every row once per epoch, in a new random order */
    SN_ORDER_RANDOM,   /* rows are sampled at random; for SN_TASK_NEXT from any position */
    SN_ORDER_GIVEN     /* in the order of the data; the last batch of an epoch may be smaller */
} sn_row_order;

typedef struct sn_dataset_options {
    sn_task task;
    sn_row_order order;
    int64_t batch, block; /* rows per batch; maximum row length, also of sources */
    int32_t vocab;        /* ids are 0 .. vocab - 1 */
    /* SN_TASK_NEXT: adds documents [B, T]; the first token of a document is then not a target of
     * the preceding document */
    bool documents;
    int32_t bos, eos; /* added around each document [PH22 section 4]; -1: none */
    int32_t mask;     /* SN_TASK_MASKED: the mask token */
    double p_mask;    /* probability that a token is a target (0.15); a target is replaced by */
    double p_replace, p_random; /* the mask token (0.8) or a random token (0.1), else kept */
    uint64_t seed;
} sn_dataset_options;
/* Shuffled, the probabilities above, no bos and eos. */
sn_dataset_options sn_dataset_options_default(void);

typedef struct sn_dataset sn_dataset;

/* data; for SN_TASK_PAIRS the translated documents; for SN_TASK_CLASSES label [data.count]. All are
 * borrowed and must outlive the dataset. NULL with the reason: no data, too little for a row, an id
 * outside the vocabulary, or inconsistent options. */
sn_dataset *sn_dataset_new(const sn_dataset_options *o, sn_document_range data,
                           sn_document_range translation, const int32_t *label, sn_error *err);
void sn_dataset_free(sn_dataset *d); /* NULL is allowed */

int64_t sn_dataset_rows(const sn_dataset *d);    /* per epoch */
int64_t sn_dataset_batches(const sn_dataset *d); /* per epoch, at least 1 */
/* number of documents (pairs, classes) that were truncated */
int64_t sn_dataset_cut(const sn_dataset *d);

/* Arrays that a task does not use are NULL. Padding tokens are 0, ignored targets -1. Initialise
 * with {0}, may be reused, free with sn_batch_free. */
typedef struct sn_batch {
    int64_t B, S, T;
    int32_t *tokens, *targets, *source, *types, *lengths, *documents;
    int64_t predicted; /* number of targets that count */
    int32_t *memory;
    size_t capacity;
} sn_batch;
void sn_batch_free(sn_batch *b);

/* Fills batch 0, 1, … counted over the whole training. */
bool sn_dataset_batch(const sn_dataset *d, int64_t number, sn_batch *out, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
