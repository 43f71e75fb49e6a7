/* train.h: training entries, dropout, packed documents, initial weights. The entries are built from
 * logits alone, so any model that produces logits can be trained; the architectures of models.h
 * build them if SN_TRAIN is requested. [PH22 A11 to A13, sections 7, 8] */
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
    double dropout; /* fraction of hidden values dropped at each step; 0: none */
    /* gradient accumulation: number of batches per step, whose gradients are averaged; 0 and 1:
     * one */
    int64_t accumulate;
    /* size of the mesh axis "data": a batch is that many slices, whose gradients are summed by
     * all_reduce; 0 and 1: it is whole. */
    int64_t slices;
    /* what the ranks divide among themselves [ZeRO]; 0: nothing; 1: the optimizer's states; 2: the
     * gradients, too; 3: the parameters, too (sn_training_divide). ranks: their number, at most
     * slices. */
    int zero;
    int64_t ranks;
    /* decoders: tokens attend only within their document; see sn_training_documents */
    bool documents;
    /* train_step takes the learning rate as one more input, learning_rate, an f32 scalar of at least
     * 0, in place of the schedule's */
    bool takes_rate;
} sn_training;
/* AdamW with PyTorch's defaults, constant learning rate 1e-3, no dropout. */
sn_training sn_training_default(void);

/* sn_training_begin starts a training entry; then build inputs, model and logits [.., V] (f32);
 * sn_training_end completes it so that it trains the parameters of the logits:
 *   train_step  the inputs of the logits, and targets, i32 [..] -> loss, norm, rate: f32 scalars
 * loss is the mean of -ln P(target) over all targets in 0 .. V-1; other targets (-1) are ignored
 * [PH22 A11 line 4, A12 line 7, A13 line 5]. Every parameter that the logits depend on is updated.
 * norm is the global gradient norm before clipping, rate the learning rate of this step. With
 * accumulate = n > 1 there are two entries instead; run the first n times, then the second once:
 *   accumulate  the same inputs -> loss of this batch; adds its gradient / n to the states "gradient.NAME"
 *   train_step  no inputs -> norm, rate: makes the step and clears those states
 * With slices > 1 there are two entries, too, with one more input, weight, an f32 scalar: the share of
 * this slice (of one of n batches) in the step. Run the first for all batches but the last:
 *   accumulate  the same inputs, weight -> loss of this slice; adds gradient * weight to those states
 *   train_step  the same inputs, weight -> loss, norm, rate: adds as well, sums over the slices
 *               (all_reduce with the parameter's name), makes the step and clears the states
 * The other states are those of sn_optimize. Errors are recorded in the module.
 * With zero > 0 on several ranks a parameter with at least a row (of its last axis) for each rank is
 * updated in parts: rank r has ceil(rows / ranks) rows of the optimizer's states, which are matrices.
 * train_step sums its gradient by reduce_scatter and completes the parameter by all_gather. With
 * zero > 1 and accumulate <= 1, both entries sum over the ranks, and "accumulate" stores its sums in the
 * states, which are parts; whoever runs them adds the sums of later runs. If slices = ranks there is
 * only train_step. */
#define sn_training_begin(m, training) sn_training_begin_at(SN_HERE, m, training)
#define sn_training_end(logits, training) sn_training_end_at(SN_HERE, logits, training)
void sn_training_begin_at(sn_loc, sn_module *m, const sn_training *t);
void sn_training_end_at(sn_loc, sn_tensor logits, const sn_training *t);

/* With zero = 3, after the module is complete and its initial weights are drawn: a parameter that is
 * updated in parts becomes its part, a matrix [ceil(rows / ranks), last axis] with the same name.
 * Every entry gathers the whole where it needs it, so all ranks must run the same entries. Does
 * nothing otherwise. */
void sn_training_divide(sn_module *m, const sn_training *t);

/* Adds the scalar x to the loss that the training entry minimises and reports, such as the
 * load-balancing loss of a mixture of experts. Does nothing if t is NULL, so a model can always
 * call it. */
#define sn_training_add(x, t) sn_training_add_at(SN_HERE, x, t)
void sn_training_add_at(sn_loc, sn_tensor x, const sn_training *t);

/* x with the training's dropout, driven by the input rng, i64 [2]: seed and batch number. Returns x
 * if t is NULL or has no dropout. */
#define sn_training_dropout(x, t) sn_training_dropout_at(SN_HERE, x, t)
sn_tensor sn_training_dropout_at(sn_loc, sn_tensor x, const sn_training *t);

/* The input documents, i32 [B, T]: the document that each token belongs to. NULL if t is NULL or
 * has no documents. For sn_document_mask. */
sn_tensor sn_training_documents(sn_module *m, const sn_training *t, sn_dim B, sn_dim T);

/* Rules of weight decay for sn_optimizer.decays. The default, NULL: every parameter with two or
 * more axes, so neither norms nor biases. */
bool sn_decays_all(const char *name, int rank, const void *user);
/* matrices, except embeddings */
bool sn_decays_no_embedding(const char *name, int rank, const void *user);

/* ---- initial weights ---- */

/* Named tensors in memory. The list owns the data; the names belong to the module they come
 * from. */
typedef struct sn_parameters {
    sn_weight *weight; /* f32 */
    size_t count;
    int64_t elements; /* total number of elements */
} sn_parameters;

/* Initialises all parameters of the module's entries with the published rules of the architecture
 * `type` ("gpt2", …; others: the rules of GPT-2). `layers` scales the projections that are added to
 * the residual stream. A tensor's values depend only on the seed and its name. */
bool sn_parameters_draw(sn_module *m, const char *type, int64_t layers, uint64_t seed,
                        sn_parameters *out, sn_error *err);
/* The initial value of one of them, out [elements of w]. */
void sn_parameter_draw(const sn_weight *w, const char *type, int64_t layers, uint64_t seed,
                       float *out);
/* The same list without memory: every weight's data is NULL. */
bool sn_parameters_list(sn_module *m, sn_parameters *out, sn_error *err);
void sn_parameters_free(sn_parameters *p);

#ifdef __cplusplus
}
#endif
#endif
