/* lora_adapters.c: the sequences of a batch use different low-rank adapters of one model; of the
 * adapters only those in use are read and computed. Hu et al. 2021, "LoRA"; Sheng et al. 2023,
 * "S-LoRA". formula: W x + B_a A_a x, a: the adapter of the sequence */
#include "small.h"

enum { ADAPTERS = 4, RANK = 8 };

/* The adapter of each token [B, T]: an input for sequences without caches. A sequence that decodes uses
 * the first one. */
static sn_tensor adapter_of(const sn_forward_ctx *s) {
    sn_tensor none = sn_mul(s->tokens, 0);
    if (s->capacity || s->training) return none;
    return sn_add(none, sn_expand(sn_input(s->m, "adapters", SN_I32, s->B), 1));
}

static sn_tensor adapted(const sn_forward_ctx *s, sn_tensor x, const char *name, int64_t n_out) {
    int64_t n_in = n_out == WIDTH ? HIDDEN : WIDTH;
    sn_tensor y = sn_nn_linear(x, name, n_out, SN_BIAS), a = adapter_of(s);
    sn_scope_push(s->m, "%s", name);
    sn_tensor down = sn_param(s->m, "adapter_down", SN_F32, ADAPTERS, RANK, n_in);
    sn_tensor up = sn_param(s->m, "adapter_up", SN_F32, ADAPTERS, n_out, RANK);
    sn_scope_pop(s->m);
    return sn_add(y, sn_grouped_matmul(sn_grouped_matmul(x, down, a), up, a));
}

static sn_tensor feed(const sn_forward_ctx *s, sn_tensor x) {
    return adapted(s, sn_gelu(adapted(s, x, "up", HIDDEN)), "down", WIDTH);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = causal_attention, .feed = feed, .positions = true});
}
