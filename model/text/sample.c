/* sample.c: repetition penalty, temperature, top-k, top-p and min-p for one row of logits.
 * Filters rank tokens by (logit descending, index ascending); weights are exp((l - max)/tau). */
#include "model/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float logit, weight;
    int32_t token;
} candidate;

struct sn_sampler {
    sn_sample_options opt;
    size_t vocab;
    sn_rng rng;
    candidate *cand; /* [vocab] */
    /* only with a repetition penalty: */
    float *penalised; /* [vocab] the logits with the penalty */
    int32_t *seen;    /* [seen_count] ids that occurred */
    bool *is_seen;    /* [vocab] */
    size_t seen_count;
};

static bool penalises(const sn_sample_options *o) {
    return o->repetition_penalty > 0 && o->repetition_penalty != 1;
}

static bool check_options(const sn_sample_options *o, size_t vocab, sn_error *err) {
    if (!(o->temperature >= 0))
        return sn_fail(err, SN_ERR_RANGE, "sample: temperature %g must be 0 or more",
                       (double)o->temperature);
    if (o->top_k < 0)
        return sn_fail(err, SN_ERR_RANGE, "sample: top-k %d must be 0 (all tokens) or more",
                       (int)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return sn_fail(err, SN_ERR_RANGE, "sample: top-p %g must be greater than 0 and at most 1",
                       (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return sn_fail(err, SN_ERR_RANGE, "sample: min-p %g must be at least 0 and at most 1",
                       (double)o->min_p);
    if (!(o->repetition_penalty >= 0 && o->repetition_penalty < INFINITY))
        return sn_fail(err, SN_ERR_RANGE,
                       "sample: repetition penalty %g must be greater than 0 (1: none)",
                       (double)o->repetition_penalty);
    if (vocab == 0 || vocab > INT32_MAX)
        return sn_fail(err, SN_ERR_RANGE, "sample: vocabulary of %zu tokens", vocab);
    return true;
}

sn_sampler *sn_sampler_new(const sn_sample_options *options, size_t vocab, sn_error *err) {
    if (!sn_given(options, "sn_sampler_new", "the options", err) ||
        !check_options(options, vocab, err))
        return NULL;
    sn_sampler *s = calloc(1, sizeof *s);
    if (s) s->cand = calloc(vocab, sizeof *s->cand);
    if (s && penalises(options)) {
        s->penalised = malloc(vocab * sizeof *s->penalised);
        s->seen = malloc(vocab * sizeof *s->seen);
        s->is_seen = calloc(vocab, sizeof *s->is_seen);
    }
    if (!s || !s->cand || (penalises(options) && (!s->penalised || !s->seen || !s->is_seen))) {
        sn_sampler_free(s);
        sn_fail(err, SN_ERR_MEMORY, "sample: out of memory for %zu tokens", vocab);
        return NULL;
    }
    s->opt = *options;
    s->vocab = vocab;
    s->rng = (sn_rng){.seed = options->seed, .stream = SN_STREAM_SAMPLE};
    return s;
}

void sn_sampler_free(sn_sampler *s) {
    if (!s) return;
    free(s->cand);
    free(s->penalised);
    free(s->seen);
    free(s->is_seen);
    free(s);
}

sn_rng *sn_sampler_rng(sn_sampler *s) {
    return &s->rng;
}

static void note_seen(sn_sampler *s, int32_t id) {
    if (!s->is_seen || s->is_seen[id]) return;
    s->is_seen[id] = true;
    s->seen[s->seen_count++] = id;
}

bool sn_sampler_note(sn_sampler *s, const int32_t *ids, size_t n, sn_error *err) {
    if (!sn_given(s, "sn_sampler_note", "the sampler", err) ||
        (n && !sn_given(ids, "sn_sampler_note", "the list of ids", err)))
        return false;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= s->vocab)
            return sn_fail(err, SN_ERR_RANGE, "sample: token %d is outside the vocabulary 0..%zu",
                           (int)ids[i], s->vocab - 1);
    for (size_t i = 0; i < n; i++) note_seen(s, ids[i]);
    return true;
}

static const float *penalise(sn_sampler *s, const float *logits) {
    if (!s->penalised) return logits;
    memcpy(s->penalised, logits, s->vocab * sizeof *logits);
    const float penalty = s->opt.repetition_penalty;
    for (size_t i = 0; i < s->seen_count; i++) {
        float *l = &s->penalised[s->seen[i]];
        *l = *l > 0 ? *l / penalty : *l * penalty;
    }
    return s->penalised;
}

size_t sn_sample_largest(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i]))) best = i;
    return best;
}

static bool ranks_before(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/* Restores the heap order below position i of heap[n]; the top is the best candidate, or the
 * worst. */
static void sift_down(candidate *heap, size_t n, size_t i, bool best) {
    candidate c = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(heap[child + 1], heap[child]) == best) child++;
        if (ranks_before(heap[child], c) != best) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

static void make_heap(candidate *heap, size_t n, bool best) {
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i, best);
}

/* Moves the k best of cand[n] to the front, unsorted, using a heap of the best k so far. */
static void select_best(candidate *cand, size_t n, size_t k) {
    make_heap(cand, k, false);
    for (size_t i = k; i < n; i++)
        if (ranks_before(cand[i], cand[0])) {
            cand[0] = cand[i];
            sift_down(cand, k, 0, false);
        }
}

static double fill_weights(candidate *cand, size_t n, float max, double tau) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        /* computed in f64, where the difference is finite, so that tau = infinity makes every
         * weight 1 */
        cand[i].weight = expf((float)(((double)cand[i].logit - (double)max) / tau));
        sum += (double)cand[i].weight;
    }
    return sum;
}

/* Takes the best of cand[n], whose total weight is *sum, until they reach the fraction p of it;
 * returns their number. They end up at the end of the array, the best one last; *sum becomes their
 * total weight. */
static size_t take_nucleus(candidate *cand, size_t *count, double p, double *sum) {
    /* If a candidate lighter than (1-p)/(n-1) of the total were needed, all candidates as light as
     * it would together weigh more than 1-p. So such candidates need not be sorted (as in
     * llama2.c). The best one has weight 1 and is kept. */
    double target = p * *sum, light = 0.999 * (1 - p) * *sum / (double)*count;
    size_t n = 0;
    for (size_t i = 0; i < *count; i++)
        if ((double)cand[i].weight >= fmin(light, 1)) cand[n++] = cand[i];
    size_t left = *count = n;
    make_heap(cand, n, true);
    for (*sum = 0; left && *sum < target;) {
        candidate top = cand[0];
        cand[0] = cand[--left];
        if (left) sift_down(cand, left, 0, true);
        cand[left] = top;
        *sum += (double)top.weight;
    }
    return n - left;
}

/* The largest logit. -infinity and an error if one is NaN or +infinity, or if all are -infinity.
 * Computed in lanes, so that the compiler can vectorise it. */
static float check_logits(const float *logits, size_t n, sn_error *err) {
    enum { LANES = 16 };
    float max[LANES], best = -INFINITY;
    int bad[LANES] = {0}, any = 0;
    for (int k = 0; k < LANES; k++) max[k] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            bad[k] |= !(logits[i + k] < INFINITY);
            max[k] = logits[i + k] > max[k] ? logits[i + k] : max[k];
        }
    for (int k = 0; k < LANES; k++) {
        any |= bad[k];
        best = max[k] > best ? max[k] : best;
    }
    for (; i < n; i++) {
        any |= !(logits[i] < INFINITY);
        best = logits[i] > best ? logits[i] : best;
    }
    for (i = 0; any && i < n; i++)
        if (!(logits[i] < INFINITY)) {
            sn_fail(
                err, SN_ERR_RANGE,
                "sample: the logit of token %zu is %s (--check-nan, or check_nan of sn_options, "
                "names the operation)",
                i, logits[i] == INFINITY ? "infinite" : "NaN");
            return -INFINITY;
        }
    if (best == -INFINITY) sn_fail(err, SN_ERR_RANGE, "sample: all %zu logits are -infinity", n);
    return best;
}

/* Keeps the candidates whose weight is at least `least` of the best one's, which is 1; *sum becomes
 * their total weight. Returns their number. */
static size_t keep_likely(candidate *cand, size_t n, float least, double *sum) {
    size_t kept = 0;
    *sum = 0;
    for (size_t i = 0; i < n; i++)
        if (cand[i].weight >= least) {
            *sum += (double)cand[i].weight;
            cand[kept++] = cand[i];
        }
    return kept;
}

/* A token by the weights of cand[n], whose sum is positive. */
static int32_t draw(sn_sampler *s, const candidate *cand, size_t n, double sum) {
    double mark = sn_rng_uniform53(&s->rng) * sum, acc = 0;
    /* last token of positive weight, chosen if rounding leaves a rest of the sum */
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        if (cand[i].weight > 0) last = i;
        if ((acc += (double)cand[i].weight) > mark) return cand[i].token;
    }
    return cand[last].token;
}

static int32_t choose(sn_sampler *s, const float *logits, float max) {
    candidate *cand = s->cand;
    size_t n = 0;
    if (s->opt.temperature == 0) {
        int32_t token = 0;
        while (logits[token] != max) token++;
        return token;
    }
    for (size_t i = 0; i < s->vocab; i++)
        if (logits[i] > -INFINITY) cand[n++] = (candidate){logits[i], 0, (int32_t)i};
    if (s->opt.top_k > 0 && (size_t)s->opt.top_k < n) {
        select_best(cand, n, (size_t)s->opt.top_k);
        n = (size_t)s->opt.top_k;
    }
    double sum = fill_weights(cand, n, max, (double)s->opt.temperature);
    if (s->opt.top_p < 1) {
        size_t kept = take_nucleus(cand, &n, (double)s->opt.top_p, &sum);
        cand += n - kept;
        n = kept;
    }
    if (s->opt.min_p > 0) n = keep_likely(cand, n, s->opt.min_p, &sum);
    return draw(s, cand, n, sum);
}

int32_t sn_sampler_next(sn_sampler *s, const float *logits, sn_error *err) {
    if (!sn_given(s, "sn_sampler_next", "the sampler", err) ||
        !sn_given(logits, "sn_sampler_next", "the list of logits", err))
        return -1;
    logits = penalise(s, logits);
    float max = check_logits(logits, s->vocab, err);
    if (max == -INFINITY) return -1;
    int32_t token = choose(s, logits, max);
    note_seen(s, token);
    return token;
}

double sn_sample_log_p(const float *x, int64_t n, int32_t token) {
    double sum = 0, largest = x[sn_sample_largest(x, (size_t)n)];
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - largest);
    return x[token] - largest - log(sum);
}

void sn_sample_softmax(float *x, int64_t n) {
    float max_x = x[0];
    double sum = 0;
    for (int64_t i = 1; i < n; i++) max_x = x[i] > max_x ? x[i] : max_x;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max_x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(exp(x[i] - max_x) / sum);
}
