/* train.h: how a model is trained: its training entries, dropout, packed documents, initial
 * weights. The entries come from logits alone, so that any model that gives logits can be trained;
 * the architectures of models.h do so when SN_TRAIN is asked for. [PH22 A11 to A13, sections
 * 7, 8] */
#ifndef SN_TRAIN_H
#define SN_TRAIN_H

#include "frontend/sinter.h"
#include "runtime/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_training {
    sn_optimizer optimizer;
    sn_schedule schedule;
    double dropout;     /* part of the hidden values that each step drops; 0: none */
    int64_t accumulate; /* batches a step, whose gradients are averaged; 0 and 1: one */
    bool documents;     /* decoders: a token sees its own document only; see below */
} sn_training;
/* AdamW with PyTorch's defaults, a constant rate of 1e-3, no dropout. */
sn_training sn_training_default(void);

/* A training entry is what stands between these two: `begin` starts it, then inputs, model and
 * logits [.., V] (f32) are built, then `end` makes it train the parameters of the logits:
 *   train_step  what logits are made of, and targets, i32 [..] -> loss, norm, rate: f32 scalars
 * loss is the mean of -ln P(target) over all targets in 0 .. V-1; other targets (-1) do not count
 * [PH22 A11 line 4, A12 line 7, A13 line 5]. Then every parameter that logits depend on makes a
 * step; norm is the length of the gradient before clipping, rate the learning rate of this step.
 * With accumulate = n > 1 there are two entries instead, to be run n times and once a step:
 *   accumulate  the same inputs -> loss of this batch; its gradient / n is added to states
 *               "gradient.NAME"
 *   train_step  nothing -> norm, rate: makes the step and empties those states
 * The other states are those of sn_optimize. Mistakes stay in the module. */
#define sn_training_begin(m, training) sn_training_begin_at(SN_HERE, m, training)
#define sn_training_end(logits, training) sn_training_end_at(SN_HERE, logits, training)
void sn_training_begin_at(sn_loc, sn_module *m, const sn_training *t);
void sn_training_end_at(sn_loc, sn_tensor logits, const sn_training *t);

/* Adds the scalar x to the loss that the training entry minimises (and reports), as a mixture of
 * experts does to balance its experts. Does nothing where t is NULL: a model may always call it. */
#define sn_training_add(x, t) sn_training_add_at(SN_HERE, x, t)
void sn_training_add_at(sn_loc, sn_tensor x, const sn_training *t);

/* x with the training's dropout, which reads the input rng, i64 [2]: seed and number of the batch.
 * x itself where t is NULL or without dropout. */
#define sn_training_dropout(x, t) sn_training_dropout_at(SN_HERE, x, t)
sn_tensor sn_training_dropout_at(sn_loc, sn_tensor x, const sn_training *t);

/* The input documents, i32 [B, T]: which document each token belongs to; NULL where t is NULL or
 * without documents. For sn_document_mask. */
sn_tensor sn_training_documents(sn_module *m, const sn_training *t, sn_dim B, sn_dim T);

/* Rules of weight decay for sn_optimizer.decays. The default, NULL, is every parameter with two
 * axes or more: no norms, no biases. */
bool sn_decays_all(const char *name, int rank, const void *user);
bool sn_decays_no_embedding(const char *name, int rank, const void *user); /* nor embeddings */

/* ---- initial weights ---- */

/* Named tensors in memory: data belongs to the list, names to the module that they came from. */
typedef struct sn_parameters {
    sn_weight *weight; /* f32 */
    size_t count;
    int64_t elements; /* of all together */
} sn_parameters;

/* Draws all parameters of the module's entries, as the architecture `type` ("gpt2", …; others:
 * the rules of GPT-2) is published. `layers` scales what is added to the residual stream. Each
 * tensor's values depend on the seed and its own name only. */
bool sn_parameters_draw(sn_module *m, const char *type, int64_t layers, uint64_t seed,
                        sn_parameters *out, sn_error *err);
void sn_parameters_free(sn_parameters *p);

#ifdef __cplusplus
}
#endif
#endif
