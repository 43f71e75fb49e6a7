/* rwkv7.c: the time mixing of RWKV-7: a carried matrix with decays by rows and a delta rule. Removal
 * key, replacement rate and new key are maps of the token; a bonus adds the token itself. All inputs are
 * mixed with the previous token. Peng et al. 2025, "RWKV-7 Goose".
 * formula: S ← w ∘ S − (a ∘ κ)ᵀ (κ S) + kᵀ v, y = r S + (r ∘ ρ · k) v */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: r, k, v, w, κ, a κ */
    sn_tensor S = s->carry[0], removed = sn_mul(col(s->x[5]), row(times_state(s->x[4], S)));
    S = sn_sub(sn_mul(col(s->x[3]), S), removed);
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* A linear map of x, mixed with the token before by a factor of each channel; as heads. */
static sn_tensor mixed(const sn_forward_ctx *s, sn_tensor x, sn_tensor last, const char *name) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor share = sn_param(s->m, "mix", SN_F32, WIDTH);
    sn_tensor y = sn_nn_linear(sn_add(x, sn_mul(sn_sub(last, x), share)), "map", WIDTH, SN_BIAS);
    sn_scope_pop(s->m);
    return sn_split_heads(y, HEADS);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor last = before(s, x, "past");
    sn_tensor r = mixed(s, x, last, "r"), k = mixed(s, x, last, "k"), v = mixed(s, x, last, "v"),
              a = sn_sigmoid(mixed(s, x, last, "a"));
    sn_tensor w = sn_exp(sn_mul(sn_sigmoid(mixed(s, x, last, "w")), -0.606531));
    sn_tensor kappa = unit(sn_mul(k, sn_param(s->m, "removal", SN_F32, HEADS, 1, HEAD)));
    sn_tensor rate = sn_param(s->m, "rate", SN_F32, HEADS, 1, HEAD);
    k = sn_mul(k, sn_add(1.0, sn_mul(sn_sub(a, 1.0), rate)));
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){r, k, v, w, kappa, sn_mul(a, kappa), NULL});
    sn_tensor bonus = sn_mul(sn_mul(r, k), sn_param(s->m, "bonus", SN_F32, HEADS, 1, HEAD));
    return gated_output(sn_add(y, sn_mul(sn_sum_keep(bonus, -1), v)), x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
