/* answers.c: the most likely answers of an encoder that was trained for question answering [Devlin et
 * al. 2019, section 4.2]: the begin and the end of the answer have a logit at every token. */
#include "model/answers.h"
#include "model/sample.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    open_model *m;
    int64_t top, longest;
    sn_ids question, ids; /* ids of the text, at place[i] */
    sn_place *place;
    text_answer *best; /* [count], the most likely first */
    int64_t count;
} job;

/* Keeps the answer if it is among the best; the same bytes count once. */
static void keep(job *j, text_answer a) {
    int64_t at = j->count;
    for (int64_t i = 0; i < j->count; i++)
        if (j->best[i].begin == a.begin && j->best[i].end == a.end) {
            if (j->best[i].p >= a.p) return;
            at = i;
            break;
        }
    if (at == j->count && j->count < j->top) j->count++;
    if (at == j->top) {
        if (j->best[--at].p >= a.p) return;
    }
    for (; at > 0 && j->best[at - 1].p < a.p; at--) j->best[at] = j->best[at - 1];
    j->best[at] = a;
}

/* The bytes of tokens first..last, up to the ends of their words. */
static text_answer span(const job *j, size_t first, size_t last, float p) {
    while (first > 0 && j->place[first].continues) first--;
    while (last + 1 < j->ids.count && j->place[last + 1].continues) last++;
    return (text_answer){p, j->place[first].begin, j->place[last].end};
}

/* Probabilities of the tokens [at, at + n) of a sequence, and of its first, which means that there is
 * no answer: column 0 begin, 1 end. p: [n + 1], the first token's last. */
static void probabilities(const float *logits, int column, size_t at, size_t n, float *p) {
    for (size_t i = 0; i < n; i++) p[i] = logits[2 * (at + i) + (size_t)column];
    p[n] = logits[column];
    sn_sample_softmax(p, (int64_t)n + 1);
}

/* Reads n tokens of the text from `first` on. */
static bool read_part(job *j, size_t first, size_t n, sn_error *err) {
    sn_ids ids = {0}, types = {0};
    float *logits = NULL, *p = malloc(2 * (n + 1) * sizeof *p);
    int64_t each;
    size_t at = 0;
    bool ok = (p || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
              sn_tokenizer_join(j->m->io->tokenizer, &j->question, j->ids.data + first, n, &ids,
                                &types, &at, err) &&
              encoder_run(j->m, "forward", "logits", &ids, &types, 1, &logits, &each, NULL, err);
    float *end = p + n + 1;
    for (int column = 0; ok && column < 2; column++)
        probabilities(logits, column, at, n, column ? end : p);
    for (size_t b = 0; ok && b < n; b++)
        for (size_t e = b; e < n && e < b + (size_t)j->longest; e++)
            if (j->count < j->top || p[b] * end[e] > j->best[j->count - 1].p)
                keep(j, span(j, first + b, first + e, p[b] * end[e]));
    free(p);
    free(logits);
    sn_ids_free(&ids);
    sn_ids_free(&types);
    return ok;
}

/* Models are trained on sequences of this length. */
enum { LONGEST_SEQUENCE = 384 };

static bool read_all(job *j, sn_error *err) {
    sn_ids ids = {0}, types = {0};
    bool ok =
        sn_tokenizer_join(j->m->io->tokenizer, &j->question, NULL, 0, &ids, &types, NULL, err);
    int64_t longest = j->m->model.context;
    if (longest > LONGEST_SEQUENCE) longest = LONGEST_SEQUENCE;
    size_t taken = ids.count, all = (size_t)longest;
    sn_ids_free(&ids);
    sn_ids_free(&types);
    if (!ok) return false;
    if (!j->question.count || !j->ids.count)
        return sn_fail(err, SN_ERR_USAGE, "the question or the text is empty");
    if (taken + 8 > all)
        return sn_fail(err, SN_ERR_RANGE,
                       "the question has %zu tokens, but the model reads only %zu with the text: "
                       "shorten it",
                       j->question.count, all);
    size_t part = all - taken, step = part > 256 ? part - 128 : part / 2;
    for (size_t at = 0; ok; at += step) {
        size_t rest = j->ids.count - at;
        ok = read_part(j, at, rest < part ? rest : part, err);
        if (rest <= part) break;
    }
    return ok;
}

bool encoder_answers(open_model *m, const char *question, const char *text, size_t size,
                     int64_t longest, int64_t top, text_answer *out, int64_t *n, sn_error *err) {
    job j = {.m = m, .top = top, .longest = longest, .best = out};
    *n = 0;
    if (!m->model.spans)
        return sn_fail(err, SN_ERR_USAGE,
                       "this model was not trained for question answering: it has no qa_outputs");
    if (!m->io->tokenizer) return sn_fail(err, SN_ERR_USAGE, "this needs a model with a tokenizer");
    bool ok = sn_tokenizer_encode(m->io->tokenizer, question, strlen(question), SN_TOK_SPECIAL,
                                  &j.question, err) &&
              sn_tokenizer_encode(m->io->tokenizer, text, size, SN_TOK_SPECIAL, &j.ids, err);
    if (ok) j.place = calloc(j.ids.count + 1, sizeof *j.place);
    ok = ok && (j.place || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
         sn_tokenizer_locate(m->io->tokenizer, text, size, &j.ids, j.place, err) &&
         read_all(&j, err);
    sn_ids_free(&j.question);
    sn_ids_free(&j.ids);
    free(j.place);
    *n = ok ? j.count : 0;
    return ok;
}
