/* plain.c: attention in plain operations, for the attention bench: weights that are not a softmax, and
 * a sink in four spellings. The compiler recognises each of them from level 3 on. */
#include "bench/graph_case.h"

#include <math.h>

static sn_tensor far_of(const sn_bench_plain *p) {
    return sn_cast(
        sn_sub(sn_iota(p->m, SN_I32, 0, p->T, p->T), sn_iota(p->m, SN_I32, 1, p->T, p->T)), SN_F32);
}

static sn_tensor scores(const sn_bench_plain *p) {
    return sn_div(sn_matmul(p->q, sn_swap(p->k, -1, -2)), sqrt((double)p->d));
}

static sn_tensor visible(const sn_bench_plain *p) {
    return sn_causal_mask(p->m, p->T, p->T);
}

static sn_tensor shown(const sn_bench_plain *p) {
    return sn_mask_scores(scores(p), visible(p));
}

/* the quotient of Sun et al. 2023, "Retentive Network", equation 5 */
sn_tensor sn_bench_plain_retention(const sn_bench_plain *p) {
    sn_tensor decay = sn_where(visible(p), sn_exp(sn_mul(far_of(p), log(0.99))), 0);
    sn_tensor w = sn_mul(scores(p), decay);
    return sn_matmul(sn_div(w, sn_max(sn_abs(sn_sum_keep(w, -1)), 1)), p->v);
}

sn_tensor sn_bench_plain_sigmoid(const sn_bench_plain *p) {
    return sn_matmul(sn_mul(sn_sigmoid(scores(p)), sn_cast(visible(p), SN_F32)), p->v);
}

sn_tensor sn_bench_plain_relu2(const sn_bench_plain *p) {
    return sn_matmul(sn_square(sn_relu(shown(p))), p->v);
}

/* The sink of each head as a column [1,H,1,1]. */
static sn_tensor sink(const sn_bench_plain *p) {
    return sn_reshape(sn_input(p->m, "sink", SN_F32, p->H), 1, p->H, 1, 1);
}

sn_tensor sn_bench_sink_column(const sn_bench_plain *p) {
    sn_tensor a = sn_concat(-1, shown(p), sn_broadcast(sink(p), p->B, p->H, p->T, 1));
    return sn_matmul(sn_slice(sn_softmax(a, -1), -1, 0, p->T), p->v);
}

sn_tensor sn_bench_sink_term(const sn_bench_plain *p) {
    sn_tensor s = shown(p), z = sink(p), top = sn_max(sn_amax_keep(s, -1), z);
    sn_tensor e = sn_exp(sn_sub(s, top));
    return sn_matmul(sn_div(e, sn_add(sn_sum_keep(e, -1), sn_exp(sn_sub(z, top)))), p->v);
}

sn_tensor sn_bench_sink_gate(const sn_bench_plain *p) {
    sn_tensor s = shown(p), total = sn_expand(sn_logsumexp(s, -1), -1);
    return sn_mul(sn_matmul(sn_softmax(s, -1), p->v), sn_sigmoid(sn_sub(total, sink(p))));
}

sn_tensor sn_bench_sink_one(const sn_bench_plain *p) {
    sn_tensor e = sn_where(visible(p), sn_exp(scores(p)), 0);
    return sn_div(sn_matmul(e, p->v), sn_add(sn_sum_keep(e, -1), 1));
}

/* Shazeer et al. 2020, "Talking-heads attention": heads mix before and after the softmax. */
static sn_tensor talk(const sn_bench_plain *p, bool causal) {
    sn_tensor before = sn_input(p->m, "before", SN_F32, p->H, p->H);
    sn_tensor after = sn_input(p->m, "after", SN_F32, p->H, p->H);
    sn_tensor s = sn_einsum("gh,bhqk->bgqk", before, scores(p));
    if (causal) s = sn_mask_scores(s, visible(p));
    return sn_matmul(sn_einsum("gh,bhqk->bgqk", after, sn_softmax(s, -1)), p->v);
}

sn_tensor sn_bench_talking(const sn_bench_plain *p) {
    return talk(p, false);
}

sn_tensor sn_bench_talking_causal(const sn_bench_plain *p) {
    return talk(p, true);
}
