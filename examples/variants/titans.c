/* titans.c: a memory matrix M that learns while it reads: each token is a gradient step with momentum S that
 * makes M map its key to v − k under a layer norm. The gradients of CHUNK tokens are those of the matrix F
 * before them. Behrouz et al. 2025, "Titans: learning to memorize at test time", linear memory.
 * formula: S ← η S − 2 θ kᵀ e, M ← (1 − α) M + S, e = ∇_u of ½ |LN(u) − (v − k)|², u = k F, y = q M + LN(q M) */
#include "recurrent.h"

enum { CHUNK = 16 };
static const double EPS = 1e-2; /* for the gradients of an empty memory */

typedef struct norm {
    sn_tensor gain, bias; /* [HEADS, HEAD] */
    sn_dim past;
} norm;

static sn_tensor gradient(const norm *n, sn_tensor u, sn_tensor wanted) {
    sn_tensor away = sn_sub(u, sn_mean_keep(u, -1));
    sn_tensor scale = sn_rsqrt(sn_add(sn_mean_keep(sn_square(away), -1), EPS));
    sn_tensor unit = sn_mul(away, scale);
    sn_tensor g = sn_sub(sn_add(sn_mul(unit, n->gain), n->bias), wanted);
    g = sn_mul(g, n->gain);
    sn_tensor along = sn_mul(unit, sn_mean_keep(sn_mul(g, unit), -1));
    return sn_mul(sn_sub(sn_sub(g, sn_mean_keep(g, -1)), along), scale);
}

static void step(sn_scan_step *s) { /* carry: M, S, F; x: q, k, v − k, 2 θ, 1 − α, η */
    const norm *n = s->user;
    sn_tensor e = gradient(n, times_state(s->x[1], s->carry[2]), s->x[2]);
    sn_tensor pair = sn_mul(col(s->x[1]), row(sn_mul(e, col(s->x[3]))));
    s->next[1] = sn_sub(sn_mul(sn_expand(col(s->x[5]), -1), s->carry[1]), pair);
    s->next[0] = sn_add(sn_mul(sn_expand(col(s->x[4]), -1), s->carry[0]), s->next[1]);
    sn_tensor tokens = sn_add(sn_add(s->index, n->past), 1);
    s->next[2] = sn_where(sn_eq(sn_mod(tokens, CHUNK), 0), s->next[0], s->carry[2]);
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor rate(sn_tensor x, const char *name, double more) {
    return by_head(sn_sigmoid(sn_add(sn_nn_linear(x, name, HEADS, SN_BIAS), more)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor k = unit(p.k);
    norm n = {sn_param(s->m, "gain", SN_F32, HEADS, HEAD),
              sn_param(s->m, "bias", SN_F32, HEADS, HEAD), s->past};
    sn_tensor theta = sn_mul(rate(x, "theta", 0), 0.2), keep = sn_sub(1, rate(x, "alpha", -4));
    sn_tensor M[3];
    const char *const names[] = {"memory", "momentum", "frozen"};
    for (int i = 0; i < 3; i++) M[i] = carry_of(s, names[i], HEADS, HEAD, HEAD);
    sn_scanned r = sn_scan(.carry = {M[0], M[1], M[2]}, .axis = 2, .body = step, .user = &n,
                           .x = {unit(p.q), k, sn_sub(p.v, k), theta, keep, rate(x, "eta", 0)});
    for (int i = 0; i < 3 && s->capacity; i++) sn_assign(M[i], r.carry[i]);
    sn_tensor away = sn_layer_norm(r.y[0], NULL, NULL, EPS);
    sn_tensor y = sn_add(sn_mul(away, sn_expand(n.gain, 1)), sn_expand(n.bias, 1));
    return gated_output(sn_add(r.y[0], y), x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
