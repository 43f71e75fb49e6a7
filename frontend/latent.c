/* latent.c: projections of multi-head latent attention, see latent.h. */
#include "frontend/latent.h"

enum { LAST = 3 };
static const double eps = 1e-6; /* of the latents' norms, whatever the config's */

/* norm(x W), of the first `rank` columns. */
static sn_tensor normed(sn_tensor x, int64_t rank, const char *name) {
    return sn_nn_rms_norm(sn_slice(x, 2, 0, rank), name, eps);
}

latent_parts latent_project(const latent_attention *a, sn_tensor x, int64_t heads) {
    int bias = a->bias ? SN_BIAS : 0;
    int64_t width = a->plain + a->rotary;
    sn_tensor query =
        a->q_rank ? normed(sn_nn_linear(x, a->q_down, a->q_rank, bias), a->q_rank, a->q_norm) : x;
    sn_tensor q =
        sn_split_heads(sn_nn_linear(query, a->q_rank ? a->q_up : a->q, heads * width, 0), heads);
    sn_tensor down = sn_nn_linear(x, a->kv_down, a->kv_rank + a->rotary, bias);
    return (latent_parts){
        .q = {sn_slice(q, LAST, 0, a->plain), sn_slice(q, LAST, a->plain, a->rotary)},
        .query = query,
        .latent = sn_expand(normed(down, a->kv_rank, a->kv_norm), 1),
        .key = sn_expand(sn_slice(down, 2, a->kv_rank, a->rotary), 1)};
}

sn_tensor latent_row(const latent_parts *p) {
    return sn_concat(LAST, p->latent, p->key);
}

void latent_take_rows(const latent_attention *a, latent_parts *p, sn_tensor rows) {
    p->latent = sn_slice(rows, LAST, 0, a->kv_rank);
    p->key = sn_slice(rows, LAST, a->kv_rank, a->rotary);
}

/* [B, H, T, ..]: x and y; y may have one head. */
static sn_tensor join(sn_tensor x, sn_tensor y) {
    sn_dim B = sn_dim_of(x, 0), H = sn_dim_of(x, 1), T = sn_dim_of(x, 2);
    return sn_concat(LAST, x, sn_broadcast(y, B, H, T, sn_dim_of(y, LAST)));
}

/* The map from latents to keys, or to values, of each head, [H, n, kv_rank]. */
static sn_tensor map_of(const latent_attention *a, sn_module *m, int64_t heads, bool values) {
    int64_t rows = a->plain + a->value;
    sn_tensor map;
    sn_scope_push(m, "%s", a->kv_up);
    if (!a->separate)
        map = sn_slice(sn_reshape(sn_param(m, "weight", SN_F32, heads * rows, a->kv_rank), heads,
                                  rows, a->kv_rank),
                       1, values ? a->plain : 0, values ? a->value : a->plain);
    else if (values)
        map = sn_param(m, "values", SN_F32, heads, a->value, a->kv_rank);
    else
        map = sn_swap(sn_param(m, "keys", SN_F32, heads, a->kv_rank, a->plain), 1, 2);
    sn_scope_pop(m);
    return map;
}

/* Keys that are not rotated, [B, H, T, plain], and values of every head. */
static void expand(const latent_attention *a, sn_tensor latent, int64_t heads, sn_tensor part[2]) {
    latent =
        sn_reshape(latent, sn_dim_of(latent, 0), sn_dim_of(latent, 2), sn_dim_of(latent, LAST));
    if (a->separate) {
        for (int i = 0; i < 2; i++)
            part[i] =
                sn_einsum("btr,hdr->bhtd", latent, map_of(a, sn_module_of(latent), heads, i == 1));
        return;
    }
    sn_tensor kv = sn_nn_linear(latent, a->kv_up, heads * (a->plain + a->value), 0);
    kv = sn_split_heads(kv, heads);
    part[0] = sn_slice(kv, LAST, 0, a->plain);
    part[1] = sn_slice(kv, LAST, a->plain, a->value);
}

void latent_expand(const latent_attention *a, const latent_parts *p, int64_t heads,
                   sn_tensor part[3]) {
    expand(a, p->latent, heads, part + 1);
    part[0] = join(p->q[0], p->q[1]);
    part[1] = join(part[1], p->key);
}

void latent_absorb(const latent_attention *a, const latent_parts *p, int64_t heads,
                   sn_tensor part[3]) {
    sn_tensor keys = map_of(a, sn_module_of(p->latent), heads, false);
    part[0] = sn_concat(LAST, sn_einsum("bhtd,hdr->bhtr", p->q[0], keys), p->q[1]);
    part[1] = latent_row(p);
    part[2] = p->latent;
}

sn_tensor latent_values(const latent_attention *a, sn_tensor y, int64_t heads) {
    return sn_einsum("bhtr,hdr->bhtd", y, map_of(a, sn_module_of(y), heads, true));
}
