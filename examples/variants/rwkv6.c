/* rwkv6.c: the time mixing of RWKV-6: a carried matrix with decays by rows that depend on the token. It
 * is read before the token is added; a bonus adds the token itself. All inputs are mixed with the
 * previous token, by shares from a low-rank map. Peng et al. 2024, "Eagle and Finch". formula: y =
 * r (S + (ρ ∘ k)ᵀ v), S ← w ∘ S + kᵀ v, w = e^(−e^(x W)) */
#include "recurrent.h"

enum { NARROW = (WIDTH + 15) / 16 };

static void step(sn_scan_step *s) { /* x: r, k, v, w */
    const sn_tensor *bonus = s->user;
    sn_tensor own = sn_sum_keep(sn_mul(sn_mul(s->x[0], *bonus), s->x[1]), -1);
    s->y[0] = sn_add(times_state(s->x[0], s->carry[0]), sn_mul(own, s->x[2]));
    s->next[0] = sn_add(sn_mul(col(s->x[3]), s->carry[0]), sn_mul(col(s->x[1]), row(s->x[2])));
}

/* A linear map of x, mixed with the token before; as heads. */
static sn_tensor mixed(const sn_forward_ctx *s, sn_tensor x, sn_tensor before, const char *name) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor share = sn_param(s->m, "mix", SN_F32, WIDTH), less = sn_sub(before, x);
    sn_tensor low = sn_tanh(sn_nn_linear(sn_add(x, sn_mul(less, share)), "low", NARROW, 0));
    share = sn_nn_linear(low, "high", WIDTH, SN_BIAS);
    sn_tensor y = sn_nn_linear(sn_add(x, sn_mul(less, share)), "map", WIDTH, SN_BIAS);
    sn_scope_pop(s->m);
    return sn_split_heads(y, HEADS);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor before = sn_slice(with_past(s, x, "past", 1), 1, 0, s->T);
    sn_tensor r = mixed(s, x, before, "r"), k = mixed(s, x, before, "k"),
              v = mixed(s, x, before, "v"), w = mixed(s, x, before, "w");
    sn_tensor bonus = sn_param(s->m, "bonus", SN_F32, HEADS, HEAD);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, &bonus,
                        (sn_tensor[]){r, k, v, sn_exp(sn_neg(sn_exp(w))), NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
