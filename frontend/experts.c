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

bool expert_layer(const expert_mlp *e, int64_t layer) {
    if (!e->count || layer < e->first || (e->every && (layer + 1) % e->every)) return false;
    for (size_t i = 0; i < e->n_dense; i++)
        if (e->dense[i] == layer) return false;
    return true;
}

/* The weights of all experts [experts out, in]: a file has one matrix for each. */
static sn_tensor weights(const expert_mlp *e, sn_module *m, const char *name, int64_t out,
                         int64_t in) {
    sn_tensor *part = sn_arena_alloc(m, sizeof *part * (size_t)(e->count + 1));
    for (int64_t i = 0; i < e->count; i++) {
        sn_scope_push(m, "%s.%lld.%s", e->experts, (long long)i, name);
        part[i] = sn_param(m, "weight", SN_F32, out, in);
        sn_scope_pop(m);
    }
    return sn_concat_at(SN_HERE, 0, part);
}

/* A parameter of all experts [experts, out, in] as a matrix. */
static sn_tensor stacked(const expert_mlp *e, sn_module *m, const char *name, int64_t out,
                         int64_t in) {
    sn_tensor w = sn_param(m, name, SN_F32, e->count, out, in);
    return sn_reshape(w, e->count * out, in);
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
    sn_tensor score = sn_nn_linear(x, e->router, e->count, 0), choice, index;
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

static sn_tensor apply(const expert_mlp *e, sn_tensor x, sn_tensor w, sn_tensor index) {
    return front_expert_linear(SN_HERE, x, w, e->count, index);
}

sn_tensor expert_apply(const expert_mlp *e, sn_tensor x, sn_tensor (*act)(sn_loc, sn_tensor)) {
    sn_module *m = sn_module_of(x);
    int64_t d = sn_dim_of(x, -1); /* a number */
    sn_tensor factor, index = route(e, x, &factor);
    sn_tensor part[2], h, down;
    if (e->gate_up) {
        sn_split(apply(e, x, stacked(e, m, e->gate_up, 2 * e->d, d), index), 3, 2, part);
        down = stacked(e, m, e->all_down, d, e->d);
    } else {
        part[0] = apply(e, x, weights(e, m, e->gate, e->d, d), index);
        part[1] = apply(e, x, weights(e, m, e->up, e->d, d), index);
        down = weights(e, m, e->down, d, e->d);
    }
    h = sn_mul(act(SN_HERE, part[0]), part[1]);
    h = apply(e, h, down, index); /* [B, T, per_token, d] */
    sn_tensor y = sn_sum(sn_mul(h, sn_expand(factor, 3)), 2);
    if (!e->shared) return y;
    sn_scope_push(m, "%s", e->shared);
    h = act(SN_HERE, sn_nn_linear(x, e->gate, e->d_shared, 0));
    h = sn_nn_linear(sn_mul(h, sn_nn_linear(x, e->up, e->d_shared, 0)), e->down, d, 0);
    sn_scope_pop(m);
    if (e->shared_gate) h = sn_mul(h, sn_sigmoid(sn_nn_linear(x, e->shared_gate, 1, 0)));
    return sn_add(y, h);
}
