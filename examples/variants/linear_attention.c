/* linear_attention.c: weights f(q) f(k) with f(x) = elu(x) + 1 instead of the softmax. All earlier
 * tokens then fit into a state of fixed size, the sums of f(k) v^T and of f(k): there is no KV
 * cache. Katharopoulos et al. 2020, "Transformers are RNNs". Tokens of the same run interact
 * through the masked product, those of earlier runs through the state. */
#include "small.h"

static sn_tensor feature(sn_tensor x) {
    return sn_where(sn_gt(x, 0), sn_add(x, 1), sn_exp(sn_min(x, 0)));
}

/* state <- state + x; returns the value before that */
static sn_tensor accumulate(const char *name, sn_tensor x) {
    sn_tensor state =
        sn_state(sn_module_of(x), name, SN_F32, sn_dim_of(x, 0), HEADS, HEAD, sn_dim_of(x, 3));
    sn_assign(state, sn_add(state, x));
    return state;
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor q = feature(p.q), k = feature(p.k), past_kv = NULL, past_k = NULL;
    if (s->capacity) {
        past_kv = accumulate("kv", sn_einsum("bhtd,bhte->bhde", k, p.v));
        past_k = accumulate("k", sn_expand(sn_sum(k, 2), 3));
    }
    sn_tensor weight = sn_matmul(q, sn_swap(k, 2, 3));
    weight = sn_where(sn_causal_mask(s->m, s->T, s->T), weight, 0);
    sn_tensor y = sn_matmul(weight, p.v), norm = sn_sum_keep(weight, 3);
    if (s->capacity) {
        y = sn_add(y, sn_matmul(q, past_kv));
        norm = sn_add(norm, sn_matmul(q, past_k));
    }
    return join(sn_div(y, norm));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
