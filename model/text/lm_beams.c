/* lm_beams.c: beam search with the rows of a language model; the search itself is beam.c. */
#include "model/text/beam.h"
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <stdlib.h>

typedef struct search {
    sn_lm *m;
    sn_beam *beam;
    int64_t rows;
    sn_ids prompt;
    int32_t *parents, *found; /* [rows]; [max_tokens] */
} search;

static bool follow_parents(search *s, int64_t past, sn_error *err) {
    const sn_lm_engine *e = &s->m->parts.engine;
    bool same = true;
    for (int64_t i = 0; i < s->rows; i++) same &= s->parents[i] == i;
    return same || e->reorder(e->model, 0, s->rows, s->parents, past, err);
}

/* After each step the rows hold `past` tokens, and m->ids those to run next. */
static bool run(search *s, sn_error *err) {
    sn_lm *m = s->m;
    int64_t past = (int64_t)s->prompt.count;
    bool ok = sn_lm_run_row(m, 0, 0, s->prompt.data, past, m->logits, err);
    for (; ok; past++) {
        ok = sn_beam_step(s->beam, m->logits, m->ids, s->parents, err);
        if (!ok || sn_beam_done(s->beam)) return ok;
        for (int64_t i = 0; i < s->rows; i++) m->past[i] = (int32_t)past;
        ok = follow_parents(s, past, err) && sn_lm_run_step(m, s->rows, s->rows, err);
    }
    return false;
}

static bool begin(search *s, const sn_lm_request *r, const sn_lm_search *how, sn_error *err) {
    sn_lm *m = s->m;
    int64_t room;
    if (how->beams < 1 || how->beams > m->parts.engine.rows)
        return sn_fail(err, SN_ERR_RANGE,
                       "%lld beams: the model was opened for %lld sequence%s at once",
                       (long long)how->beams, (long long)m->parts.engine.rows,
                       m->parts.engine.rows == 1 ? "" : "s");
    for (int64_t i = 0; i < m->used; i++)
        if (m->row[i])
            return sn_fail(err, SN_ERR_USAGE,
                           "beam search needs all rows: end all sequences first");
    if (!sn_lm_read_prompt(m, r, &s->prompt, err)) return false;
    /* the last token is not run */
    room = m->parts.engine.context - (int64_t)s->prompt.count + 1;
    int64_t most = sn_lm_max_tokens(m, r) < room ? sn_lm_max_tokens(m, r) : room;
    sn_beam_options o = {.beams = (int32_t)how->beams,
                         .eos = m->parts.eos,
                         .n_eos = r->ignore_eos ? 0 : m->parts.n_eos,
                         .max_tokens = most,
                         .length_penalty = how->length_penalty};
    s->beam = sn_beam_new(&o, (size_t)m->parts.engine.vocab, err);
    if (!s->beam) return false;
    s->parents = calloc((size_t)s->rows, sizeof *s->parents);
    s->found = calloc((size_t)most, sizeof *s->found);
    return (s->parents && s->found) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

bool sn_lm_search_beams(sn_lm *m, const sn_lm_request *r, const sn_lm_search *how, sn_ids *out,
                        double *log_p, sn_error *err) {
    if (!m) return false;
    if (!r || !how || !out) return sn_given(NULL, "sn_lm_search_beams", "an argument", err);
    search s = {.m = m, .rows = how->beams};
    bool ok = begin(&s, r, how, err) && run(&s, err);
    size_t n = ok ? sn_beam_result(s.beam, 0, s.found, log_p) : 0;
    for (size_t i = 0; ok && i < n; i++) ok = sn_ids_push(out, s.found[i], err);
    sn_beam_free(s.beam);
    sn_ids_free(&s.prompt);
    free(s.parents);
    free(s.found);
    return ok;
}
