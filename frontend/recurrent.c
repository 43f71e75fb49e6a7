/* recurrent.c: carries of recurrent layers, and four such layers, see recurrent.h. */
#include "frontend/recurrent.h"
#include "frontend/front.h"

#include <math.h>

/* ---- carries ---- */

/* The state of all rows. */
static sn_tensor state_of(const sn_forward_ctx *s, const char *name, int rank,
                          const sn_dim *shape) {
    sn_dim all[SN_MAX_RANK + 1] = {s->rows ? s->rows : s->B};
    for (int a = 1; a < rank; a++) all[a] = shape[a];
    all[rank] = SN_END;
    return sn_state_at(SN_HERE, s->m, name, SN_F32, all);
}

/* Whether a token precedes the first one, [1 or B, 1, ..] of this rank. */
static sn_tensor has_past(const sn_forward_ctx *s, int rank) {
    sn_tensor first = s->each ? s->each : sn_slice(s->pos, 0, 0, 1);
    for (int a = 1; a < rank; a++) first = sn_expand(first, -1);
    return sn_lt(0, first);
}

sn_tensor start_carry(const sn_forward_ctx *s, const char *name, const sn_dim *shape) {
    sn_dim all[SN_MAX_RANK + 1] = {s->B};
    int rank = 1;
    for (; shape[rank - 1] != SN_END; rank++) all[rank] = shape[rank - 1];
    all[rank] = SN_END;
    if (s->documents || s->ranks > 1)
        return sn_module_fail(
            s->m, SN_ERR_USAGE,
            "recurrent layers cannot be trained on sequences of several documents, nor "
            "on parts of sequences (the mesh axis \"" FRONT_CONTEXT "\")");
    if (!s->capacity) return sn_full_at(SN_HERE, s->m, SN_F32, 0, all);
    sn_tensor state = state_of(s, name, rank, all);
    if (!s->rows) return state;
    state = sn_slice(state, 0, s->each ? 0 : s->row, s->B);
    return sn_where(has_past(s, rank), state, 0);
}

void keep_carry(const sn_forward_ctx *s, const char *name, sn_tensor last) {
    sn_dim shape[SN_MAX_RANK + 1], start[SN_MAX_RANK + 1] = {s->each || !s->rows ? 0 : s->row};
    int rank = sn_rank_of(last);
    if (!s->capacity || !sn_module_ok(s->m, NULL)) return;
    for (int a = 0; a < rank; a++) shape[a] = sn_dim_of(last, a);
    start[rank] = SN_END;
    sn_tensor state = state_of(s, name, rank, shape);
    sn_assign(state, s->rows ? sn_update_at(SN_HERE, state, last, start) : last);
}

sn_tensor short_conv(const sn_forward_ctx *s, sn_tensor x, const char *name, int64_t kernel,
                     bool bias) {
    sn_dim C = sn_dim_of(x, 2);
    sn_scope_push(s->m, "%s", name);
    sn_tensor w = sn_reshape(sn_param(s->m, "weight", SN_F32, C, 1, kernel), C, kernel), y = NULL;
    const sn_dim past[] = {kernel - 1, C, SN_END};
    sn_tensor all = kernel > 1 ? sn_concat(1, start_carry(s, "past", past), x) : x;
    if (kernel > 1) keep_carry(s, "past", sn_slice(all, 1, s->T, kernel - 1));
    w = sn_swap(w, 0, 1);
    for (int64_t i = 0; i < kernel; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, i, s->T), sn_slice(w, 0, i, 1));
        y = y ? sn_add(y, term) : term;
    }
    if (bias) y = sn_add(y, sn_param(s->m, "bias", SN_F32, C));
    sn_scope_pop(s->m);
    return sn_silu(y);
}

sn_tensor recur(const sn_forward_ctx *s, int64_t heads, int64_t rows, int64_t columns,
                sn_scan_fn body, const sn_tensor *x) {
    const sn_dim shape[] = {heads, rows, columns, SN_END};
    sn_scan_args a = {.carry = {start_carry(s, "state", shape)}, .axis = 2, .body = body};
    for (int i = 0; x[i]; i++) a.x[i] = x[i];
    sn_scanned r = sn_scan_at(SN_HERE, &a);
    keep_carry(s, "state", r.carry[0]);
    return r.y[0];
}

sn_tensor for_heads(sn_tensor x, int64_t heads, bool tiled) {
    sn_dim B = sn_dim_of(x, 0), T = sn_dim_of(x, 1), groups = sn_dim_of(x, 2), n = sn_dim_of(x, 3);
    x = sn_swap(x, 1, 2);
    if (groups == heads) return x;
    if (tiled)
        x = sn_broadcast(sn_expand(x, 1), B, heads / groups, groups, T, n);
    else
        x = sn_broadcast(sn_expand(x, 2), B, groups, heads / groups, T, n);
    return sn_reshape(x, B, heads, T, n);
}

/* ---- parts ---- */

static sn_tensor col(sn_tensor x) {
    return sn_expand(x, -1);
}
static sn_tensor row(sn_tensor x) {
    return sn_expand(x, -2);
}
static sn_tensor times_state(sn_tensor q, sn_tensor S) {
    return sn_squeeze(sn_matmul(row(q), S), -2);
}

static sn_tensor unit(sn_tensor x) {
    return sn_div(x, sn_sqrt(sn_add(sn_sum_keep(sn_square(x), -1), 1e-6)));
}

/* One number for each head, [B, T, heads] as [B, heads, T]. */
static sn_tensor by_head(sn_tensor x) {
    return sn_swap(x, 1, 2);
}

/* -e^a_log, from the parameter. */
static sn_tensor rate_of(const recurrent_layer *r, sn_tensor a_log) {
    return r->rates ? a_log : sn_neg(sn_exp(a_log));
}

/* What a step keeps of the state, e^(-e^a_log softplus(x + dt_bias)), and softplus(..) itself, for x
 * [B, T, heads]: [B, heads, T] each. */
static sn_tensor decay(const recurrent_layer *r, sn_tensor x, sn_tensor *dt) {
    sn_module *m = sn_module_of(x);
    *dt = by_head(sn_softplus(sn_add(x, sn_param(m, "dt_bias", SN_F32, r->heads))));
    sn_tensor rate = col(rate_of(r, sn_param(m, "A_log", SN_F32, r->heads)));
    return sn_exp(sn_mul(rate, *dt));
}

static sn_tensor split(sn_tensor x, int axis, int64_t *at, int64_t n) {
    sn_tensor y = sn_slice(x, axis, *at, n);
    *at += n;
    return y;
}

/* ---- Gated DeltaNet ---- */

static void delta_step(sn_scan_step *s) { /* x: q, k, v, decay of each row or of all, beta */
    sn_tensor S = sn_mul(col(s->x[3]), s->carry[0]);
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[1], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(sn_mul(col(s->x[4]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* Queries, keys and values side by side, gates, and before their functions betas and decays [B, T, ..]. */
typedef struct delta_parts {
    sn_tensor qkv, gate, beta, decay;
} delta_parts;

/* Of each group its heads' betas, and decays. */
static void take_ba(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x,
                    delta_parts *p) {
    int64_t G = r->key_heads, H = r->heads, per = H / G;
    sn_dim B = s->B, T = s->T;
    sn_tensor ba = sn_reshape(sn_nn_linear(x, "in_proj_ba", 2 * H, 0), B, T, G, 2 * per);
    p->beta = sn_reshape(sn_slice(ba, 3, 0, per), B, T, H);
    p->decay = sn_reshape(sn_slice(ba, 3, per, per), B, T, H);
}

/* As Qwen3-Next has them: of each group a query, a key, and its heads' values and gates, in one map. */
static delta_parts parts_by_group(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x) {
    int64_t G = r->key_heads, H = r->heads, per = H / G, K = r->key, V = r->value, at = 0;
    sn_dim B = s->B, T = s->T;
    sn_tensor all = sn_nn_linear(x, "in_proj_qkvz", 2 * G * K + 2 * H * V, 0);
    all = sn_reshape(all, B, T, G, 2 * K + 2 * per * V);
    sn_tensor q = sn_reshape(split(all, 3, &at, K), B, T, G * K),
              k = sn_reshape(split(all, 3, &at, K), B, T, G * K),
              v = sn_reshape(split(all, 3, &at, per * V), B, T, H * V),
              z = sn_reshape(split(all, 3, &at, per * V), B, T, H * V);
    delta_parts p = {.qkv = sn_concat(2, q, k, v), .gate = z};
    take_ba(r, s, x, &p);
    return p;
}

static delta_parts separate_parts(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x) {
    int64_t H = r->heads, V = r->value;
    delta_parts p = {.qkv = sn_nn_linear(x, "in_proj_qkv", 2 * r->key_heads * r->key + H * V, 0),
                     .gate = sn_nn_linear(x, "in_proj_z", H * V, 0)};
    if (r->ba) {
        take_ba(r, s, x, &p);
        return p;
    }
    p.beta = sn_nn_linear(x, "in_proj_b", H, 0);
    p.decay = sn_nn_linear(x, "in_proj_a", H, 0);
    return p;
}

sn_tensor gated_delta_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x) {
    int64_t G = r->key_heads, H = r->heads, K = r->key, V = r->value, at = 0;
    sn_dim B = s->B, T = s->T;
    delta_parts p = r->separate ? separate_parts(r, s, x) : parts_by_group(r, s, x);
    sn_tensor beta = by_head(sn_sigmoid(p.beta)), dt, kept = decay(r, p.decay, &dt), q, k, v;
    sn_tensor all = short_conv(s, p.qkv, "conv1d", r->kernel, false);
    q = unit(sn_reshape(split(all, 2, &at, G * K), B, T, G, K));
    k = unit(sn_reshape(split(all, 2, &at, G * K), B, T, G, K));
    v = sn_split_heads(split(all, 2, &at, H * V), H);
    q = sn_mul(q, 1 / sqrt((double)K));
    sn_tensor y = recur(s, H, K, V, delta_step,
                        (sn_tensor[]){for_heads(q, H, r->tiled), for_heads(k, H, r->tiled), v,
                                      col(kept), beta, NULL});
    y = sn_merge_heads(sn_nn_rms_norm(y, "norm", r->eps));
    return sn_nn_linear(sn_mul(y, sn_silu(p.gate)), "out_proj", sn_dim_of(x, 2), 0);
}

/* ---- Kimi Delta Attention ---- */

static sn_tensor two_maps(sn_tensor x, const char *down, const char *up, int64_t n, int64_t out) {
    return sn_nn_linear(sn_nn_linear(x, down, n, 0), up, out, 0);
}

sn_tensor kimi_delta_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x) {
    static const char *const map[] = {"q_proj", "k_proj", "v_proj"}, *const conv[] = {"q_conv1d",
                                                                                      "k_conv1d",
                                                                                      "v_conv1d"};
    int64_t H = r->heads, K = r->key, W = H * K;
    sn_tensor part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = short_conv(s, sn_nn_linear(x, map[i], W, 0), conv[i], r->kernel, false);
        part[i] = sn_split_heads(part[i], H);
    }
    sn_tensor q = sn_mul(unit(part[0]), 1 / sqrt((double)K));
    sn_tensor f = two_maps(x, "f_a_proj", "f_b_proj", K, W);
    f = sn_softplus(sn_add(f, sn_param(s->m, "dt_bias", SN_F32, W)));
    sn_tensor rate = sn_reshape(sn_param(s->m, "A_log", SN_F32, 1, 1, H, 1), H, 1, 1);
    sn_tensor kept = sn_exp(sn_mul(rate_of(r, rate), sn_split_heads(f, H)));
    sn_tensor beta = by_head(sn_sigmoid(sn_nn_linear(x, "b_proj", H, 0)));
    sn_tensor y =
        recur(s, H, K, K, delta_step, (sn_tensor[]){q, unit(part[1]), part[2], kept, beta, NULL});
    y = sn_merge_heads(sn_nn_rms_norm(y, "o_norm", r->eps));
    sn_tensor gate = two_maps(x, "g_a_proj", "g_b_proj", K, W);
    return sn_nn_linear(sn_mul(y, sn_sigmoid(gate)), "o_proj", sn_dim_of(x, 2), 0);
}

/* ---- Mamba-2 ---- */

static void state_space_step(sn_scan_step *s) { /* x: C, B, dt x, decay */
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

sn_tensor mamba2_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x) {
    int64_t G = r->key_heads, H = r->heads, K = r->key, V = r->value, at = 0;
    sn_dim B = s->B, T = s->T;
    int bias = r->bias ? SN_BIAS : 0;
    sn_tensor all = sn_nn_linear(x, "in_proj", 2 * H * V + 2 * G * K + H, bias), dt;
    sn_tensor gate = split(all, 2, &at, H * V), in = split(all, 2, &at, H * V + 2 * G * K);
    sn_tensor kept = decay(r, split(all, 2, &at, H), &dt);
    in = short_conv(s, in, "conv1d", r->kernel, r->conv_bias);
    at = 0;
    sn_tensor u = sn_split_heads(split(in, 2, &at, H * V), H);
    sn_tensor k = for_heads(sn_reshape(split(in, 2, &at, G * K), B, T, G, K), H, false);
    sn_tensor q = for_heads(sn_reshape(split(in, 2, &at, G * K), B, T, G, K), H, false);
    sn_tensor y =
        recur(s, H, K, V, state_space_step, (sn_tensor[]){q, k, sn_mul(u, col(dt)), kept, NULL});
    sn_tensor skip = sn_reshape(sn_param(s->m, "D", SN_F32, H), H, 1, 1);
    y = sn_merge_heads(sn_add(y, sn_mul(skip, u)));
    y = sn_mul(y, sn_silu(gate));
    if (r->norm_groups) {
        sn_scope_push(s->m, "norm");
        sn_tensor gain = sn_reshape(sn_param(s->m, "weight", SN_F32, H * V), G, H * V / G);
        sn_scope_pop(s->m);
        y = sn_mul(sn_rms_norm(sn_reshape(y, B, T, G, H * V / G), NULL, r->eps), gain);
        y = sn_reshape(y, B, T, H * V);
    } else
        y = sn_nn_rms_norm(y, "norm", r->eps);
    return sn_nn_linear(y, "out_proj", sn_dim_of(x, 2), bias);
}

/* ---- Mamba ---- */

static void selective_step(sn_scan_step *s) { /* x: x and dt of each channel; B, C of the token */
    const sn_tensor *a = s->user;
    sn_tensor dt = col(s->x[1]), in = sn_mul(sn_mul(dt, col(s->x[0])), row(s->x[2]));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(dt, *a)), s->carry[0]), in);
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[3])), -1);
}

sn_tensor mamba_mix(const recurrent_layer *r, const sn_forward_ctx *s, sn_tensor x) {
    static const char *const norms[] = {"dt_layernorm", "b_layernorm", "c_layernorm"};
    const int64_t V = r->value, K = r->key, widths[] = {r->rank, K, K};
    int bias = r->bias ? SN_BIAS : 0;
    sn_tensor all = sn_nn_linear(x, "in_proj", 2 * V, bias), part[3];
    sn_tensor u = short_conv(s, sn_slice(all, 2, 0, V), "conv1d", r->kernel, r->conv_bias);
    sn_tensor select = sn_nn_linear(u, "x_proj", r->rank + 2 * K, 0);
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        part[i] = split(select, 2, &at, widths[i]);
        if (r->norms) part[i] = sn_nn_rms_norm(part[i], norms[i], r->eps);
    }
    sn_tensor dt = sn_softplus(sn_nn_linear(part[0], "dt_proj", V, SN_BIAS));
    sn_tensor a = rate_of(r, sn_param(s->m, "A_log", SN_F32, V, K));
    const sn_dim shape[] = {V, K, SN_END};
    sn_scanned y = sn_scan(.carry = {start_carry(s, "state", shape)}, .axis = 1,
                           .body = selective_step, .user = &a, .x = {u, dt, part[1], part[2]});
    keep_carry(s, "state", y.carry[0]);
    sn_tensor out = sn_add(y.y[0], sn_mul(u, sn_param(s->m, "D", SN_F32, V)));
    out = sn_mul(out, sn_silu(sn_slice(all, 2, V, V)));
    return sn_nn_linear(out, "out_proj", sn_dim_of(x, 2), bias);
}
