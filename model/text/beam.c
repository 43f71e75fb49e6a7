/* beam.c: beam search over logits. Sequences are linked lists from the last token backwards, so
 * hypotheses with a common prefix share its memory. */
#include "model/text/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A token and the link before it; -1: none. */
typedef struct link {
    int32_t token;
    int64_t before;
} link;

typedef struct hypothesis {
    double log_p, score; /* score: the rank of finished hypotheses */
    int64_t last;        /* last link; -1: no token yet */
    int64_t tokens;
} hypothesis;

/* A continuation of row `parent`. */
typedef struct candidate {
    double log_p;
    int32_t parent, token;
} candidate;

struct sn_beam {
    sn_beam_options o;
    size_t vocab;
    hypothesis *live, *next, *finished; /* [beams] each */
    int32_t n_live, n_finished;
    double best_log_p; /* of the last step's continuations, ends included */
    candidate *best;   /* [ranked] */
    int32_t ranked;    /* enough for `beams` that go on: as many may end as rows times end tokens */
    link *link;
    size_t links, capacity;
};

sn_beam *sn_beam_new(const sn_beam_options *o, size_t vocab, sn_error *err) {
    if (o->beams < 1 || o->beams > 1 << 16 || o->max_tokens < 1 || !(o->length_penalty >= 0) ||
        !vocab || vocab > INT32_MAX) {
        sn_fail(err, SN_ERR_USAGE,
                "beam search: needs 1 to 65536 beams, at least 1 token and a length penalty of at "
                "least 0");
        return NULL;
    }
    size_t n = (size_t)o->beams;
    sn_beam *b = calloc(1, sizeof *b);
    if (b) {
        b->o = *o;
        b->vocab = vocab;
        b->n_live = 1;
        b->live = calloc(n, sizeof *b->live);
        b->next = calloc(n, sizeof *b->next);
        b->finished = calloc(n, sizeof *b->finished);
        b->ranked = o->beams * (1 + (o->n_eos > 1 ? o->n_eos : 1));
        b->best = calloc((size_t)b->ranked, sizeof *b->best);
    }
    if (b && b->live && b->next && b->finished && b->best) {
        b->live[0].last = -1;
        return b;
    }
    sn_beam_free(b);
    sn_fail(err, SN_ERR_MEMORY, "beam search: out of memory");
    return NULL;
}

void sn_beam_free(sn_beam *b) {
    if (!b) return;
    free(b->live);
    free(b->next);
    free(b->finished);
    free(b->best);
    free(b->link);
    free(b);
}

/* ---- one step ---- */

/* ln of the sum of e^x; false if x is not a valid distribution. */
static bool log_sum(const float *x, size_t n, double *out) {
    double max_x = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]) || x[i] == INFINITY) return false;
        max_x = x[i] > max_x ? x[i] : max_x;
    }
    if (max_x == -INFINITY) return false;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max_x);
    *out = max_x + log(sum);
    return true;
}

/* Inserts c into best[0 .. *n), sorted, at most `limit` long; ties keep their order. */
static void keep_best(candidate *best, int32_t *n, int32_t limit, candidate c) {
    if (*n == limit && !(c.log_p > best[limit - 1].log_p)) return;
    int32_t at = *n < limit ? (*n)++ : limit - 1;
    for (; at > 0 && c.log_p > best[at - 1].log_p; at--) best[at] = best[at - 1];
    best[at] = c;
}

static bool rank_candidates(sn_beam *b, const float *logits, int32_t *n, sn_error *err) {
    *n = 0;
    for (int32_t row = 0; row < b->n_live; row++) {
        const float *x = logits + (size_t)row * b->vocab;
        double norm;
        if (!log_sum(x, b->vocab, &norm))
            return sn_fail(
                err, SN_ERR_RANGE,
                "beam search: the logits of row %d contain NaN or +infinity, or are all -infinity",
                (int)row);
        if (b->o.log_probabilities) norm = 0;
        for (size_t v = 0; v < b->vocab; v++)
            if (x[v] > -INFINITY)
                keep_best(b->best, n, b->ranked,
                          (candidate){b->live[row].log_p + (x[v] - norm), row, (int32_t)v});
    }
    return true;
}

static bool add_link(sn_beam *b, int32_t token, int64_t before, int64_t *out, sn_error *err) {
    if (b->links == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 256;
        link *more = realloc(b->link, capacity * sizeof *more);
        if (!more) return sn_fail(err, SN_ERR_MEMORY, "beam search: out of memory");
        b->link = more;
        b->capacity = capacity;
    }
    *out = (int64_t)b->links;
    b->link[b->links++] = (link){token, before};
    return true;
}

static double score_of(const sn_beam *b, double log_p, int64_t tokens) {
    return log_p / pow((double)tokens, b->o.length_penalty);
}

/* Adds h to the finished hypotheses if it is good enough; `length` counts the end token. */
static void finish(sn_beam *b, hypothesis h, int64_t length) {
    h.score = score_of(b, h.log_p, length);
    int32_t limit = b->o.beams, at;
    if (b->n_finished == limit && !(h.score > b->finished[limit - 1].score)) return;
    at = b->n_finished < limit ? b->n_finished++ : limit - 1;
    for (; at > 0 && h.score > b->finished[at - 1].score; at--)
        b->finished[at] = b->finished[at - 1];
    b->finished[at] = h;
}

static bool is_end(const sn_beam *b, int32_t token) {
    for (int i = 0; i < b->o.n_eos; i++)
        if (token == b->o.eos[i]) return true;
    return false;
}

bool sn_beam_step(sn_beam *b, const float *logits, int32_t *tokens, int32_t *parents,
                  sn_error *err) {
    int32_t n, live = 0;
    if (!rank_candidates(b, logits, &n, err)) return false;
    b->best_log_p = n ? b->best[0].log_p : -INFINITY;
    for (int32_t i = 0; i < n && live < b->o.beams; i++) {
        candidate c = b->best[i];
        hypothesis h = b->live[c.parent];
        h.log_p = c.log_p;
        if (is_end(b, c.token)) {
            if (i < b->o.beams || b->o.stop == SN_BEAM_STOP_SURE) finish(b, h, h.tokens + 1);
            continue;
        }
        if (!add_link(b, c.token, h.last, &h.last, err)) return false;
        if (++h.tokens == b->o.max_tokens) {
            finish(b, h, h.tokens);
            continue;
        }
        tokens[live] = c.token;
        parents[live] = c.parent;
        b->next[live++] = h;
    }
    for (int32_t i = live; i < b->o.beams; i++) {
        tokens[i] = live ? tokens[0] : 0;
        parents[i] = live ? parents[0] : 0;
    }
    hypothesis *old = b->live;
    b->live = b->next;
    b->next = old;
    b->n_live = live;
    return true;
}

/* A live hypothesis can only lose probability; its best score is that of ending at the maximum
 * length. */
bool sn_beam_done(const sn_beam *b) {
    if (!b->n_live) return true;
    if (b->n_finished < b->o.beams) return false;
    if (b->o.stop == SN_BEAM_STOP_FULL || (b->o.stop && b->o.beams == 1)) return true;
    double reach = b->o.stop == SN_BEAM_STOP_SURE ? score_of(b, b->live[0].log_p, b->o.max_tokens)
                                                  : score_of(b, b->best_log_p, b->live[0].tokens);
    return reach <= b->finished[b->n_finished - 1].score;
}

/* ---- results ---- */

int32_t sn_beam_count(const sn_beam *b) {
    return b->n_finished;
}

size_t sn_beam_result(const sn_beam *b, int32_t i, int32_t *out, double *log_p) {
    const hypothesis *h = &b->finished[i];
    int64_t at = h->last;
    for (int64_t n = h->tokens; n > 0; n--, at = b->link[at].before) out[n - 1] = b->link[at].token;
    if (log_p) *log_p = h->log_p;
    return (size_t)h->tokens;
}
