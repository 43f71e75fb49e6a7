/* classifier.h: shared by variants that choose among all tokens of a row, and so cannot continue texts: a
 * classifier of byte sequences [B, T] into CLASSES classes. */
#ifndef CLASSIFIER_H
#define CLASSIFIER_H

#include "small.h"

enum { CLASSES = 5, CHOSEN = 4 /* tokens that are chosen at a time; T is at least that */ };

/* Logits [B, CLASSES]; each layer is `layer`: x [B, T, WIDTH] -> the same. */
static inline sn_tensor classify(const sn_forward_ctx *s, part_fn *layer) {
    sn_tensor x = embed(s, true);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        x = layer(s, x);
        sn_scope_pop(s->m);
    }
    x = sn_mean(sn_nn_layer_norm(x, "norm", 1e-5), 1);
    return sn_nn_linear(x, "classes", CLASSES, SN_BIAS);
}

/* The rows of tokens `index` [B, ..] of each sequence, in a tensor of all sequences' rows. */
static inline sn_tensor rows_of(const sn_forward_ctx *s, sn_tensor index) {
    sn_tensor first = sn_mul(sn_arange(s->m, SN_I32, s->B), s->T);
    for (int a = 1; a < sn_rank_of(index); a++) first = sn_expand(first, -1);
    return sn_add(index, first);
}

static inline sn_tensor take_rows(const sn_forward_ctx *s, sn_tensor x, sn_tensor rows) {
    return sn_gather(sn_reshape(x, sn_dim_mul(s->m, s->B, s->T), WIDTH), 0, rows);
}

/* What y [n, WIDTH] adds to the rows [n] of all tokens: [B, T, WIDTH]. */
static inline sn_tensor add_rows(const sn_forward_ctx *s, sn_tensor y, sn_tensor rows) {
    sn_tensor sum = sn_scatter_add(y, 0, rows, sn_dim_mul(s->m, s->B, s->T));
    return sn_reshape(sum, s->B, s->T, WIDTH);
}

static inline void classifier(sn_module *m, const sn_model_options *o, part_fn *layer) {
    sn_forward_ctx s = {.m = m,
                        .B = sn_symbol(m, "B", 1, o->max_batch),
                        .T = sn_symbol(m, "T", CHOSEN, o->context ? o->context : CONTEXT)};
    s.tokens = sn_input(m, "tokens", SN_I32, s.B, s.T);
    s.pos = sn_arange(m, SN_I32, s.T);
    if (o->entries & SN_FORWARD) {
        sn_entry_begin(m, "forward");
        sn_output("logits", classify(&s, layer));
    }
    if (o->entries & SN_LOSS) {
        sn_entry_begin(m, "loss");
        sn_tensor targets = sn_input(m, "targets", SN_I32, s.B);
        sn_output("loss", sn_cross_entropy(classify(&s, layer), targets));
    }
    if (o->entries & SN_TRAIN) {
        sn_training_begin(m, o->training);
        s.training = o->training;
        sn_training_end(classify(&s, layer), o->training);
    }
}

#endif
