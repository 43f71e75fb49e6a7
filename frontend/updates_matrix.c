/* updates_matrix.c: optimizers that see a parameter as a matrix: products make the momentum orthogonal
 * (Muon, NorMuon), second moments have a row and a column (Adafactor). */
#include "frontend/updates.h"

#include <math.h>

static const int64_t axes[] = {0, 1};

static sn_node *square(sn_node *x) {
    return mul(x, x);
}

static sn_node *norm(sn_node *x) {
    return sn_b_unary(SN_OP_sqrt, sn_b_reduce(SN_OP_reduce_sum, square(x), x->rank, axes));
}

static sn_node *at_least(sn_node *x, double k) {
    return sn_b_scalar(SN_OP_max, x, k);
}

/* A state that follows the mean of x [rows, columns] for each index of one axis, as [rows, 1] or
 * [1, columns]. */
static sn_node *mean_along(const sn_update *u, const char *what, int axis, sn_node *x,
                           sn_node *part) {
    sn_node *mean = sn_b_mean(x, 1, &axes[!axis]);
    sn_node *state = sn_update_axis_state(u, what, axis);
    if (sn_module_error(u->m)->code) return mean;
    state = update_towards(state, sn_b_reshape(mean, 1, state->shape), part);
    return sn_b_reshape(state, 2, mean->shape);
}

/* ---- Muon ---- */

static sn_node *product(sn_node *x, sn_node *y) {
    return SN_NODE(x->m, matmul, SN_NO_ATTRS, x, y);
}

static sn_node *transposed(sn_node *x) {
    return sn_b_transpose(x, 2, (int64_t[]){1, 0});
}

/* The smaller of X X^T and X^T X. */
static sn_node *gram_of(sn_node *x, bool wide) {
    return wide ? product(x, transposed(x)) : product(transposed(x), x);
}

static sn_node *identity(const sn_node *like) {
    sn_node *row = sn_b_iota(like->m, SN_I32, 2, like->shape, 0);
    sn_node *column = sn_b_iota(like->m, SN_I32, 2, like->shape, 1);
    return sn_b_cast(sn_b_binary(SN_OP_eq, row, column), (sn_dtype)like->dtype);
}

enum { ITERATIONS = 5 };
/* X <- a X + (b A + c A^2) X with A = X X^T moves the singular values of X towards 1. */
typedef double coefficients[3];
static const coefficients jordan = {3.4445, -4.7750, 2.0315};
static const coefficients polar_express[ITERATIONS] = {{8.1566, -22.4833, 15.8788},
                                                       {4.0429, -2.8089, 0.5000},
                                                       {3.8917, -2.7725, 0.5061},
                                                       {3.2858, -2.3681, 0.4645},
                                                       {2.3465, -1.7098, 0.4232}};

/* b A + c A^2: A is symmetric, and of A A^T one triangle is multiplied. */
static sn_node *polynomial(sn_node *a, const double *k) {
    return add(scale(a, k[1]), scale(gram_of(a, true), k[2]));
}

static sn_node *iterate(sn_node *x, bool wide, const sn_optimizer *o) {
    for (int i = 0; i < ITERATIONS; i++) {
        const double *k = o->polar ? polar_express[i] : jordan;
        sn_node *p = polynomial(gram_of(x, wide), k);
        x = add(scale(x, k[0]), wide ? product(p, x) : product(x, p));
    }
    return x;
}

/* The same with A alone: with P = a + b A + c A^2, which commutes with A, the next A is P A P. X is
 * multiplied by the product of all P at the end. */
static sn_node *iterate_gram(sn_node *x, bool wide, const sn_optimizer *o) {
    sn_node *a = gram_of(x, wide), *all = identity(a);
    for (int i = 0; i < ITERATIONS; i++) {
        const double *k = o->polar ? polar_express[i] : jordan;
        sn_node *p = polynomial(a, k);
        all = i ? add(scale(all, k[0]), product(p, all)) : add(scale(all, k[0]), p);
        if (i == ITERATIONS - 1) break;
        a = add(scale(a, k[0]), product(p, a));
        a = add(scale(a, k[0]), product(a, p));
    }
    return wide ? product(all, x) : product(x, all);
}

/* The sizes of a matrix; false: u->param is not one. */
static bool take_sizes(const sn_update *u, int64_t size[2]) {
    char text[SN_NODE_TEXT];
    const sn_node *p = u->param;
    if (p->rank == 2 && sn_dim_is_const(u->m, p->shape[0], &size[0]) &&
        sn_dim_is_const(u->m, p->shape[1], &size[1]))
        return true;
    sn_module_fail(u->m, SN_ERR_USAGE,
                   "Muon updates matrices, but parameter %s. Hint: sn_optimizer_hidden gives it "
                   "the matrices only",
                   sn_node_text(p, text));
    return false;
}

/* The orthogonal factor of the momentum, about: of X = U S V^T, U V^T. Keller Jordan 2024. */
static sn_node *orthogonal(const sn_update *u, const int64_t size[2]) {
    double momentum = u->o->momentum;
    sn_node *state = update_state(u, "m");
    sn_node *x = update_next(state, add(scale(state, momentum), u->gradient));
    if (u->o->nesterov) x = add(u->gradient, scale(x, momentum));
    x = over(x, at_least(norm(x), u->o->eps));
    if (u->o->polar) x = scale(x, 1 / 1.02);
    bool wide = size[0] <= size[1];
    int64_t less = size[!wide], more = size[wide];
    /* products of less^2 times a size, half of each symmetric one: 5 (1.5 more + 0.5 less) against
     * 14.5 less + 1.5 more */
    return (more >= 2 * less ? iterate_gram : iterate)(x, wide, u->o);
}

/* p (1 - rate decay) - rate x, with x scaled to the root mean square of AdamW's steps [Liu et al.
 * 2025, Moonlight]. */
static sn_node *step_orthogonal(const sn_update *u, sn_node *x, const int64_t size[2]) {
    double rms = 0.2 * sqrt((double)(size[0] > size[1] ? size[0] : size[1]));
    return sub(update_decayed(u), mul(scale(x, rms), u->rate));
}

sn_node *update_muon(const sn_update *u) {
    int64_t size[2];
    return take_sizes(u, size) ? step_orthogonal(u, orthogonal(u, size), size) : NULL;
}

/* Li et al. 2025: rows of equal size, and the norm as before */
sn_node *update_normuon(const sn_update *u) {
    int64_t size[2];
    if (!take_sizes(u, size)) return NULL;
    sn_node *x = orthogonal(u, size);
    sn_node *part = sn_b_const(u->m, (sn_dtype)x->dtype, 1 - u->o->beta2);
    sn_node *v = mean_along(u, "v", 0, square(x), part);
    sn_node *y = over(x, plus(sn_b_unary(SN_OP_sqrt, v), u->o->eps));
    y = mul(y, over(norm(x), at_least(norm(y), u->o->eps)));
    return step_orthogonal(u, y, size);
}

/* ---- Adafactor ---- */

/* The running mean of g^2; of a matrix, the product of those of its rows and columns. */
static sn_node *second_moment(const sn_update *u, sn_node *part) {
    sn_node *power = square(u->gradient);
    if (u->param->rank != 2) return update_towards(update_state(u, "v"), power, part);
    sn_node *row = mean_along(u, "row", 0, power, part);
    sn_node *column = mean_along(u, "column", 1, power, part);
    return over(mul(row, column), at_least(sn_b_mean(row, 1, axes), u->o->eps));
}

static sn_node *root_mean_square(sn_node *x) {
    static const int64_t all[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sn_node *power = square(x);
    return sn_b_unary(SN_OP_sqrt, x->rank ? sn_b_mean(power, x->rank, all) : power);
}

/* Shazeer & Stern 2018, algorithms 4 and 5, without momentum, as torch.optim.Adafactor with d = 1,
 * eps2 = 1e-3 and beta2_decay = -0.8 */
sn_node *update_adafactor(const sn_update *u) {
    double eps = u->o->eps;
    sn_node *part =
        sn_b_unary(SN_OP_exp, scale(sn_b_unary(SN_OP_log, u->step), -0.8)); /* step^-0.8 */
    sn_node *rate = sn_b_binary(SN_OP_min, u->rate, sn_b_unary(SN_OP_rsqrt, u->step));
    rate = mul(rate, at_least(root_mean_square(u->param), 1e-3));
    sn_node *v = at_least(second_moment(u, part), eps * eps);
    sn_node *x = mul(u->gradient, sn_b_unary(SN_OP_rsqrt, v));
    return sub(update_decayed(u), mul(x, over(rate, at_least(root_mean_square(x), 1))));
}
