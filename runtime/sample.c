/* sample.c: temperature, top-k and top-p over one row of logits.
 * Filters rank tokens by (logit descending, index ascending); weights are exp((l - max)/tau). */
#include "runtime/sample.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

struct sn_sampler {
    sn_sample_options opt;
    size_t vocab;
    sn_rng rng;
    candidate *cand; /* [vocab] */
    float *weight;   /* [vocab], by place in cand */
};

static bool check_options(const sn_sample_options *o, size_t vocab, sn_error *err) {
    if (!(o->temperature >= 0))
        return sn_fail(err, SN_ERR_RANGE, "sample: temperature %g must be 0 or more",
                       (double)o->temperature);
    if (o->top_k < 0)
        return sn_fail(err, SN_ERR_RANGE, "sample: top-k %d must be 0 (all tokens) or more",
                       (int)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return sn_fail(err, SN_ERR_RANGE, "sample: top-p %g must be above 0 and at most 1",
                       (double)o->top_p);
    if (vocab == 0 || vocab > INT32_MAX)
        return sn_fail(err, SN_ERR_RANGE, "sample: vocabulary of %zu tokens", vocab);
    return true;
}

sn_sampler *sn_sampler_new(const sn_sample_options *options, size_t vocab, sn_error *err) {
    if (!check_options(options, vocab, err)) return NULL;
    sn_sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->cand = calloc(vocab, sizeof *s->cand);
        s->weight = calloc(vocab, sizeof *s->weight);
    }
    if (!s || !s->cand || !s->weight) {
        sn_sampler_free(s);
        sn_fail(err, SN_ERR_MEMORY, "sample: no memory for %zu tokens", vocab);
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
    free(s->weight);
    free(s);
}

sn_rng *sn_sampler_rng(sn_sampler *s) {
    return &s->rng;
}

size_t sn_argmax(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i]))) best = i;
    return best;
}

static bool ranks_before(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static int compare_rank(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return ranks_before(*x, *y) ? -1 : 1; /* tokens differ, so never equal */
}

/* Restores the heap (worst candidate on top) below place i of heap[n]. */
static void sift_down(candidate *heap, size_t n, size_t i) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(heap[child], heap[child + 1])) child++;
        if (!ranks_before(heap[i], heap[child])) return;
        candidate t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* Moves the k best of cand[n] to its front, in no order: a heap of the best k seen so far. */
static void select_best(candidate *cand, size_t n, size_t k) {
    for (size_t i = k / 2; i-- > 0;) sift_down(cand, k, i);
    for (size_t i = k; i < n; i++)
        if (ranks_before(cand[i], cand[0])) {
            cand[0] = cand[i];
            sift_down(cand, k, 0);
        }
}

static double fill_weights(sn_sampler *s, size_t n, float max) {
    double sum = 0;
    double tau = (double)s->opt.temperature;
    for (size_t i = 0; i < n; i++) {
        /* in f64 the difference is finite, so that tau = infinity makes every weight 1 */
        s->weight[i] = expf((float)(((double)s->cand[i].logit - (double)max) / tau));
        sum += (double)s->weight[i];
    }
    return sum;
}

/* Keeps the nucleus of cand[n], sorted; returns its size and its mass in *sum. */
static size_t keep_nucleus(sn_sampler *s, size_t n, float max, double *sum) {
    /* If a token lighter than (1-p)/(n-1) of the mass were needed, the lighter rest would outweigh
     * 1-p; so only the others are sorted (as llama2.c does). The best one always stays. */
    double p = (double)s->opt.top_p, target = p * *sum;
    double light = n > 1 ? (1 - p) * *sum / (double)(n - 1) * 0.999 : 0;
    size_t kept = 0, best = 0;
    for (size_t i = 1; i < n; i++)
        if (ranks_before(s->cand[i], s->cand[best])) best = i;
    for (size_t i = 0; i < n; i++)
        if (i == best || (double)s->weight[i] >= light) s->cand[kept++] = s->cand[i];
    qsort(s->cand, kept, sizeof *s->cand, compare_rank);
    fill_weights(s, kept, max);
    *sum = 0;
    for (size_t i = 0; i < kept; i++)
        if ((*sum += (double)s->weight[i]) >= target) return i + 1;
    return kept;
}

int32_t sn_sampler_next(sn_sampler *s, const float *logits, sn_error *err) {
    float max = -INFINITY;
    size_t n = 0;
    for (size_t i = 0; i < s->vocab; i++) {
        float l = logits[i];
        if (isnan(l) || l == INFINITY) {
            sn_fail(err, SN_ERR_RANGE, "sample: logit of token %zu is %f", i, (double)l);
            return -1;
        }
        if (l == -INFINITY) continue;
        if (l > max) max = l;
        s->cand[n++] = (candidate){l, (int32_t)i};
    }
    if (n == 0) {
        sn_fail(err, SN_ERR_RANGE, "sample: all %zu logits are -infinity", s->vocab);
        return -1;
    }
    if (s->opt.temperature == 0) return (int32_t)sn_argmax(logits, s->vocab);
    if (s->opt.top_k > 0 && (size_t)s->opt.top_k < n) {
        select_best(s->cand, n, (size_t)s->opt.top_k);
        n = (size_t)s->opt.top_k;
    }
    double sum = fill_weights(s, n, max);
    if (s->opt.top_p < 1) n = keep_nucleus(s, n, max, &sum);
    double mark = sn_rng_uniform53(&s->rng) * sum, acc = 0;
    size_t last = 0; /* of positive weight: what a rounding of the sum may leave to it */
    for (size_t i = 0; i < n; i++) {
        if (s->weight[i] > 0) last = i;
        if ((acc += (double)s->weight[i]) > mark) return s->cand[i].token;
    }
    return s->cand[last].token;
}
