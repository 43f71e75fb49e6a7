/* lm.c: runs language models with the JIT. */
#include "model/lm_impl.h"

#include <stdlib.h>

static bool feed(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                 float *logits, sn_error *err) {
    lm *m = model;
    (void)row;
    if (!past && m->past) lm_reset(m);
    return lm_append(m, past, ids, n, logits, err);
}

static void close_model(void *model) {
    lm_close(model);
}

sn_lm *lm_new(lm *m, sn_error *err) {
    const sn_lm_parts parts = {
        .engine = {m, 1, m->model.vocab, m->model.context, feed, NULL, NULL, close_model},
        .tokenizer = m->tokenizer,
        .eos = m->eos,
        .n_eos = m->n_eos,
        .no_bos = !lm_begins_with_bos(m),
        .folder = m->dir ? m->dir->path : NULL};
    return sn_lm_new(&parts, err);
}

sn_lm *sn_lm_open(const char *path, const sn_lm_options *o, sn_error *err) {
    static const sn_lm_options usual = {0};
    if (!sn_given(path, "sn_lm_open", "the path", err)) return NULL;
    if (!o) o = &usual;
    lm_options lo = {.path = path,
                     .checkpoint = o->checkpoint,
                     .tokenizer = o->tokenizer,
                     .entries = SN_CACHED,
                     .context = o->context,
                     .compile = o->compile ? *o->compile : sn_options_default()};
    if (o->threads) lo.compile.threads = o->threads;
    if (o->weights) lo.compile.weights = o->weights;
    lm *m = lm_open(&lo, err);
    sn_lm *out = m ? lm_new(m, err) : NULL;
    if (m && !out) lm_close(m);
    return out;
}
