/* translate.c: runs an encoder-decoder with the JIT: the entries prefill, decode and reorder. */
#include "model/translate.h"

static bool encode_source(void *model, const int32_t *source, int32_t n, sn_error *err) {
    open_model *m = model;
    sn_arg_binding in[] = {SN_BIND("source", SN_I32, (void *)(uintptr_t)source, 1, n),
                           SN_BIND("lengths", SN_I32, &n, 1)};
    sn_session_reset(m->session);
    return sn_run(m->session, "prefill", in, 2, NULL, 0, err);
}

static bool next_logits(void *model, const int32_t *tokens, int64_t past, int32_t n, float *logits,
                        sn_error *err) {
    open_model *m = model;
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)tokens, m->beams, 1),
                           SN_BIND("lengths", SN_I32, &n, 1), SN_BIND_DIM("P", past),
                           SN_BIND_DIM("S", n)};
    sn_arg_binding out = SN_BIND("logits", SN_F32, logits, m->beams, m->model.vocab);
    return sn_run(m->session, "decode", in, 4, &out, 1, err);
}

static bool follow_parents(void *model, const int32_t *parents, sn_error *err) {
    open_model *m = model;
    sn_arg_binding in = SN_BIND("parents", SN_I32, (void *)(uintptr_t)parents, m->beams);
    return sn_run(m->session, "reorder", &in, 1, NULL, 0, err);
}

bool translate_model(open_model *m, seq2seq_model *out, sn_error *err) {
    *out = (seq2seq_model){.model = m,
                           .rows = m->beams,
                           .context = m->model.context,
                           .vocab = m->model.vocab,
                           .source_vocab = m->model.source_vocab,
                           .rules = &m->io->rules,
                           .encode = encode_source,
                           .next = next_logits,
                           .follow = follow_parents};
    return translate_ends(m, &out->bos, &out->eos, err);
}

bool translate(open_model *m, const int32_t *source, int64_t n, const seq2seq_options *o,
               sn_ids *out, double *log_p, sn_error *err) {
    seq2seq_model p;
    return translate_model(m, &p, err) && sn_seq2seq_translate(&p, source, n, o, out, log_p, err);
}
