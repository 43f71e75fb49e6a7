/* dataset.h: documents of tokens as batches to train on. A batch is a pure function of the data,
 * the options and its number: all randomness is counted (runtime/rng.h), so the position in the
 * data is one integer and a run can stop and go on anywhere. [PH22 A11 to A13, section 8: chunking,
 * shuffling, mini-batches, validation] */
#ifndef SN_DATASET_H
#define SN_DATASET_H

#include "runtime/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Documents one after the other. Start with {0}; sn_documents_free. */
typedef struct sn_documents {
    sn_ids ids;
    size_t *end; /* [count] where each document ends in ids */
    size_t count, capacity;
} sn_documents;
void sn_documents_free(sn_documents *d);
/* Makes a document of the ids that were appended since the last one (it may be empty). */
bool sn_documents_close(sn_documents *d, sn_error *err);
/* The part of the documents from `first` on and the part before it as lists of their own that share
 * the ids: never free those, nor let them live longer. A single document is cut inside. part: of
 * the tokens (one document) or documents (several) that go to *rest; at least one each. */
typedef struct sn_document_range {
    const int32_t *ids;  /* of all documents */
    const size_t *end;   /* [count] */
    size_t begin, count; /* ids before `begin` belong to nobody */
} sn_document_range;
sn_document_range sn_documents_all(const sn_documents *d);
bool sn_documents_split(const sn_documents *d, double part, sn_document_range *first,
                        sn_document_range *rest, size_t cut_end[2], sn_error *err);

typedef enum sn_task {
    SN_TASK_NEXT,    /* tokens, targets [B, T]: rows of the joined documents [PH22 A13] */
    SN_TASK_MASKED,  /* tokens, types, targets [B, T], lengths [B]: chunks of each document, some
                        tokens masked, which only are targets [PH22 A12] */
    SN_TASK_PAIRS,   /* source [B, S], lengths [B]; tokens, targets [B, T] [PH22 A11] */
    SN_TASK_CLASSES, /* tokens, types [B, T], lengths [B]; targets [B] [PH22 section 3] */
} sn_task;

typedef enum sn_row_order {
    SN_ORDER_SHUFFLED, /* every row once an epoch, in an order of that epoch's own */
    SN_ORDER_RANDOM,   /* rows are drawn; of SN_TASK_NEXT they begin anywhere */
    SN_ORDER_GIVEN     /* as the data has them; the last batch of an epoch may be short */
} sn_row_order;

typedef struct sn_dataset_options {
    sn_task task;
    sn_row_order order;
    int64_t batch, block; /* rows of a batch; their longest length, of sources too */
    int32_t vocab;        /* ids are 0 .. vocab - 1 */
    bool documents;       /* SN_TASK_NEXT: also documents [B, T], and the first token of a document
                             is no target of the last one of another */
    int32_t bos, eos;     /* around each document [PH22 section 4]; -1: not */
    int32_t mask;         /* SN_TASK_MASKED: the mask token */
    double p_mask;        /* chance of a token to be a target (0.15), and of a target to become: */
    double p_replace, p_random; /* the mask token (0.8), any token (0.1); else it stays */
    uint64_t seed;
} sn_dataset_options;
/* Shuffled, the chances above, no bos and eos. */
sn_dataset_options sn_dataset_options_default(void);

typedef struct sn_dataset sn_dataset;

/* data, and of SN_TASK_PAIRS the documents that they are translated to, of SN_TASK_CLASSES label
 * [data.count]: all belong to the caller and must stay. NULL with the reason: no data, not enough
 * for a row, an id outside the vocabulary, options that make no sense. */
sn_dataset *sn_dataset_new(const sn_dataset_options *o, sn_document_range data,
                           sn_document_range translation, const int32_t *label, sn_error *err);
void sn_dataset_free(sn_dataset *d); /* NULL is allowed */

int64_t sn_dataset_rows(const sn_dataset *d);
int64_t sn_dataset_batches(const sn_dataset *d); /* of an epoch, at least 1 */
int64_t sn_dataset_cut(const sn_dataset *d);     /* documents of pairs and classes that were cut */

/* Arrays that a task does not have are NULL. Tokens of no meaning are 0, targets that do not count
 * -1. Start with {0}, reuse, sn_batch_free. */
typedef struct sn_batch {
    int64_t B, S, T;
    int32_t *tokens, *targets, *source, *types, *lengths, *documents;
    int64_t predicted; /* targets that count */
    int32_t *memory;
    size_t capacity;
} sn_batch;
void sn_batch_free(sn_batch *b);

/* Fills batch number 0, 1, … of the whole training. */
bool sn_dataset_batch(const sn_dataset *d, int64_t number, sn_batch *out, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
