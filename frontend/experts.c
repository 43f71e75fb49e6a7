/* experts.c: mixtures of experts, see experts.h. */
#include "frontend/experts.h"
#include "frontend/front.h"

void expert_check(sn_config *c, const expert_mlp *e) {
    if (!e->count) return;
    if (e->per_token > e->count)
        sn_config_problem(c, "a token cannot use %lld of %lld experts", (long long)e->per_token,
                          (long long)e->count);
    if (e->groups &&
        (e->count % e->groups || e->groups_chosen < 1 || e->groups_chosen > e->groups ||
         e->groups_chosen * (e->count / e->groups) < e->per_token))
        sn_config_problem(c, "%lld of %lld groups of %lld experts do not fit %lld per token",
                          (long long)e->groups_chosen, (long long)e->groups, (long long)e->count,
                          (long long)e->per_token);
    if (e->groups && e->two_of_group && e->count / e->groups < 2)
        sn_config_problem(c, "groups of one expert have no best two");
}

void expert_read_shared(sn_config *c, expert_mlp *e, const char *key) {
    int64_t n = sn_config_int_or(c, key, 0, 0, 1 << 12);
    e->d_shared = n * e->d;
    if (!n) e->shared = NULL;
    if (sn_config_int_or(c, "moe_layer_freq", 1, 1, 1 << 12) != 1)
        sn_config_problem(c, "\"moe_layer_freq\" must be 1");
}

bool expert_layer(const expert_mlp *e, int64_t layer) {
    if (!e->count || layer < e->first || (e->every && (layer + 1) % e->every)) return false;
    for (size_t i = 0; i < e->n_dense; i++)
        if (e->dense[i] == layer) return false;
    return true;
}

/* What all experts have of a part, stacked along the first axis; a file has one for each. in 0: of a
 * bias. */
static sn_tensor of_each(const expert_mlp *e, sn_module *m, const char *name, int64_t out,
                         int64_t in) {
    sn_tensor *part = sn_arena_alloc(m, sizeof *part * (size_t)(e->count + 1));
    for (int64_t i = 0; i < e->count; i++) {
        sn_scope_push(m, "%s.%lld.%s", e->experts, (long long)i, name);
        part[i] = in ? sn_param(m, "weight", SN_F32, out, in) : sn_param(m, "bias", SN_F32, out);
        sn_scope_pop(m);
    }
    return sn_concat_at(SN_HERE, 0, part);
}

/* The matrix of all experts [experts out, in], and their biases [experts, out] or NULL. */
typedef struct expert_map {
    sn_tensor w, bias;
} expert_map;

static expert_map separate(const expert_mlp *e, sn_module *m, const char *name, int64_t out,
                           int64_t in) {
    expert_map map = {of_each(e, m, name, out, in), NULL};
    if (e->biases) map.bias = sn_reshape(of_each(e, m, name, out, 0), e->count, out);
    return map;
}

/* x [experts, out, ..]: its rows part, part + n, .. of each expert, or, not alternating, the part-th of
 * n pieces. */
static sn_tensor rows_of(const expert_mlp *e, sn_tensor x, int part, int n) {
    if (n == 1) return x;
    int64_t out = sn_dim_of(x, 1) / n, in = x->rank > 2 ? sn_dim_of(x, 2) : 1; /* numbers */
    sn_tensor y = e->paired ? sn_slice(sn_reshape(x, e->count, out, n, in), 2, part, 1)
                            : sn_slice(sn_reshape(x, e->count, n, out, in), 1, part, 1);
    return x->rank > 2 ? sn_reshape(y, e->count, out, in) : sn_reshape(y, e->count, out);
}

/* The maps that one parameter of all experts holds: n, of `out` rows each; bias: its name or NULL. */
static void stacked(const expert_mlp *e, sn_module *m, const char *name, const char *bias, int n,
                    int64_t out, int64_t in, expert_map *map) {
    sn_tensor w = e->in_out ? sn_swap(sn_param(m, name, SN_F32, e->count, in, n * out), 1, 2)
                            : sn_param(m, name, SN_F32, e->count, n * out, in);
    sn_tensor b = bias ? sn_param(m, bias, SN_F32, e->count, n * out) : NULL;
    for (int i = 0; i < n; i++) {
        map[i].w = sn_reshape(rows_of(e, w, i, n), e->count * out, in);
        map[i].bias = b ? rows_of(e, b, i, n) : NULL;
    }
}

/* Scores for the choice [B, T, experts], without those of groups that are not among the best. */
static sn_tensor best_groups(const expert_mlp *e, sn_tensor score) {
    int64_t size = e->count / e->groups;
    sn_dim B = sn_dim_of(score, 0), T = sn_dim_of(score, 1);
    sn_tensor group = sn_reshape(score, B, T, e->groups, size), chosen;
    sn_tensor best = e->two_of_group ? sn_sum(sn_top_k(group, 2, NULL), 3) : sn_amax(group, 3);
    sn_top_k(best, (int)e->groups_chosen, &chosen);
    sn_tensor seen = sn_sum(sn_one_hot(chosen, e->groups, SN_F32), 2); /* [B, T, groups] */
    group = sn_where(sn_eq(sn_expand(seen, 3), 1), group, 0);
    return sn_reshape(group, B, T, e->count);
}

/* The experts of each token [B, T, per_token], and their factors. */
static sn_tensor route(const expert_mlp *e, sn_tensor x, sn_tensor *factor) {
    sn_module *m = sn_module_of(x);
    sn_tensor score = sn_nn_linear(x, e->router, e->count, e->router_bias ? SN_BIAS : 0);
    sn_tensor choice, index;
    choice = score = e->sigmoid ? sn_sigmoid(score) : sn_softmax(score, -1);
    if (e->bias) {
        sn_scope_push(m, "%s", e->router);
        choice = sn_add(score, sn_param(m, e->bias, SN_F32, e->count));
        sn_scope_pop(m);
    }
    if (e->groups) choice = best_groups(e, choice);
    sn_tensor top = sn_top_k(choice, (int)e->per_token, &index);
    sn_dim B = sn_dim_of(x, 0), T = sn_dim_of(x, 1);
    if (choice != score)
        top = sn_reshape(sn_take_blocks(score, index, e->count), B, T, e->per_token);
    if (e->normed) top = sn_div(top, sn_add(sn_sum_keep(top, -1), 1e-20));
    if (e->scale > 0) top = sn_mul(top, e->scale);
    *factor = top;
    return index;
}

static sn_tensor apply(const expert_mlp *e, sn_tensor x, const expert_map *map, sn_tensor index) {
    return front_expert_linear(SN_HERE, x, map->w, map->bias, e->count, index);
}

static sn_tensor gate(const expert_mlp *e, sn_tensor g, sn_tensor u,
                      sn_tensor (*act)(sn_loc, sn_tensor)) {
    if (!(e->limit > 0)) return sn_mul(act(SN_HERE, g), u);
    g = sn_min(g, e->limit), u = sn_max(sn_min(u, e->limit), -e->limit);
    return sn_mul(sn_mul(g, sn_sigmoid(sn_mul(g, e->slope))), sn_add(u, 1));
}

sn_tensor expert_apply(const expert_mlp *e, sn_tensor x, sn_tensor (*act)(sn_loc, sn_tensor)) {
    sn_module *m = sn_module_of(x);
    int64_t d = sn_dim_of(x, -1); /* a number */
    sn_tensor factor, index = route(e, x, &factor), h;
    expert_map in[2], down;
    if (e->gate_up) {
        stacked(e, m, e->gate_up, e->gate_up_bias, 2, e->d, d, in);
        stacked(e, m, e->all_down, e->down_bias, 1, d, e->d, &down);
    } else {
        in[0] = separate(e, m, e->gate, e->d, d);
        in[1] = separate(e, m, e->up, e->d, d);
        down = separate(e, m, e->down, d, e->d);
    }
    h = gate(e, apply(e, x, &in[0], index), apply(e, x, &in[1], index), act);
    h = apply(e, h, &down, index); /* [B, T, per_token, d] */
    sn_tensor y = sn_sum(sn_mul(h, sn_expand(factor, 3)), 2);
    if (!e->shared) return y;
    const char *const same[] = {e->gate, e->up, e->down};
    const char *const *name = e->shared_gate_up_down[0] ? e->shared_gate_up_down : same;
    sn_scope_push(m, "%s", e->shared);
    h = act(SN_HERE, sn_nn_linear(x, name[0], e->d_shared, 0));
    h = sn_nn_linear(sn_mul(h, sn_nn_linear(x, name[1], e->d_shared, 0)), name[2], d, 0);
    sn_scope_pop(m);
    if (e->shared_gate) h = sn_mul(h, sn_sigmoid(sn_nn_linear(x, e->shared_gate, 1, 0)));
    return sn_add(y, h);
}
