/* updates_matrix.c: optimizers that see a parameter as a matrix: products make the momentum orthogonal
 * (Muon, NorMuon), or precondition it by the means of G G^T and G^T G (Shampoo, SOAP); second moments have
 * a row and a column (Adafactor). */
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

/* 1 where row OP column, else 0. */
static sn_node *where_index(const sn_node *like, sn_op op) {
    sn_node *row = sn_b_iota(like->m, SN_I32, 2, like->shape, 0);
    sn_node *column = sn_b_iota(like->m, SN_I32, 2, like->shape, 1);
    return sn_b_cast(sn_b_binary(op, row, column), (sn_dtype)like->dtype);
}
static sn_node *identity(const sn_node *like) {
    return where_index(like, SN_OP_eq);
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
                   "the optimizer updates matrices only, but parameter %s. Hint: "
                   "sn_optimizer_hidden gives it the matrices",
                   sn_node_text(p, text));
    return false;
}

static sn_node *momentum_of(const sn_update *u) {
    double momentum = u->o->momentum;
    sn_node *state = update_state(u, "m");
    sn_node *x = update_next(state, add(scale(state, momentum), u->gradient));
    return u->o->nesterov ? add(u->gradient, scale(x, momentum)) : x;
}

/* The orthogonal factor of the momentum, about: of X = U S V^T, U V^T. Keller Jordan 2024. */
static sn_node *orthogonal(const sn_update *u, const int64_t size[2]) {
    sn_node *x = momentum_of(u);
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

/* ---- Shampoo and SOAP: the mean of G G^T on the left, of G^T G on the right ---- */

/* The least divisor. Squares of numbers below 3e-23 are 0 in f32, and so is their norm. */
static const double tiny = 1e-18;

/* A side that is at least twice as long as the other is not preconditioned. */
static bool takes_side(const int64_t size[2], int axis) {
    return size[axis] < 2 * size[!axis];
}

static sn_node *statistics(const sn_update *u, int axis) {
    sn_node *gram = gram_of(u->gradient, axis == 0);
    sn_node *part = sn_b_const(u->m, (sn_dtype)gram->dtype, 1 - u->o->beta2);
    sn_node *state = update_square_state(u, axis ? "right" : "left", axis);
    if (sn_module_error(u->m)->code) return gram;
    state = update_towards(state, sn_b_reshape(gram, 1, state->shape), part);
    return sn_b_reshape(state, 2, gram->shape);
}

/* The coupled iteration [Higham 2008, (6.35)]: with M = Z Y and P = a + b M + c M^2, Y <- Y P and Z <- P Z
 * go from A and I to the root of A and its inverse. Y becomes the root; returns the inverse one. Five steps
 * of Polar Express from `first` on, for eigenvalues from 1e-6 (first 0) or 1e-3 (first 2) to 1, and two of
 * Newton and Schulz. M is symmetric but for rounding, which M M^T for M^2 would let grow. */
static sn_node *inverse_root(sn_node **y, int first) {
    static const coefficients newton = {1.875, -1.25, 0.375};
    sn_node *one = identity(*y), *z = one;
    for (int i = first; i < ITERATIONS + 2; i++) {
        const double *k = i < ITERATIONS ? polar_express[i] : newton;
        sn_node *m = i > first ? product(z, *y) : *y;
        sn_node *p = add(add(scale(one, k[0]), scale(m, k[1])), scale(product(m, m), k[2]));
        *y = product(*y, p), z = i > first ? product(p, z) : p;
    }
    return z;
}

/* Gupta, Koren & Singer 2018, algorithm 1, with running means: L^(-1/4) M R^(-1/4), or the inverse root of
 * one side. Means have the norm 1 and eps more of the identity. */
sn_node *update_shampoo(const sn_update *u) {
    int64_t size[2];
    if (!(u->o->eps >= 1e-6 && u->o->eps <= 1))
        return sn_module_fail(u->m, SN_ERR_USAGE,
                              "shampoo: eps is %g: its roots need 1e-6 to 1, usually 1e-5",
                              u->o->eps);
    if (!take_sizes(u, size)) return NULL;
    bool both = takes_side(size, 0) && takes_side(size, 1);
    sn_node *x = momentum_of(u);
    for (int axis = 0; axis < 2; axis++) {
        if (!takes_side(size, axis)) continue;
        sn_node *y = statistics(u, axis);
        y = add(over(y, at_least(scale(norm(y), 1.02), tiny)), scale(identity(y), u->o->eps));
        sn_node *z = inverse_root(&y, 0);
        if (both) z = inverse_root(&y, 2);
        x = axis ? product(x, z) : product(z, x);
    }
    double less = sqrt((double)(size[0] < size[1] ? size[0] : size[1]));
    return step_orthogonal(u, over(scale(x, less), at_least(norm(x), tiny)), size);
}

/* The step of an eigenbasis Q towards that of A, whose products suffice for. With H = Q^T A Q, a QR
 * factorisation of A Q in the order of H's diagonal moves Q to Q (I + K) to first order, K_ij = H_ij /
 * max(H_ii, H_jj) with the sign of H_jj - H_ii. K is bounded, and three steps of Newton and Schulz make the
 * sum orthogonal. The state is Q - I. */
static sn_node *eigenbasis(const sn_update *u, int axis) {
    sn_node *a = statistics(u, axis), *one = identity(a);
    sn_node *state = update_square_state(u, axis ? "right_basis" : "left_basis", axis);
    if (sn_module_error(u->m)->code) return a;
    sn_node *q = add(sn_b_reshape(state, 2, a->shape), one);
    sn_node *h = product(transposed(q), product(a, q));
    sn_node *d[2];
    for (int i = 0; i < 2; i++) d[i] = sn_b_reduce(SN_OP_reduce_sum, mul(h, one), 1, &axes[i]);
    sn_node *larger = add(sn_b_binary(SN_OP_max, d[0], d[1]), scale(norm(h), 1e-6));
    sn_node *k = over(h, at_least(larger, tiny));
    k = mul(sn_b_select(sn_b_binary(SN_OP_lt, d[0], d[1]), scale(k, -1), k),
            where_index(k, SN_OP_lt));
    k = sub(k, transposed(k));
    /* the largest singular value, which K has twice, is at most the root of |K K^T| / sqrt 2 */
    sn_node *bound = sn_b_unary(SN_OP_sqrt, scale(norm(gram_of(k, true)), sqrt(0.5)));
    k = scale(over(k, at_least(bound, 0.7)), 0.7);
    q = add(q, product(q, k));
    for (int i = 0; i < 3; i++) q = sub(scale(q, 1.5), scale(product(q, gram_of(q, false)), 0.5));
    update_next(state, sn_b_reshape(sub(q, one), 1, state->shape));
    return q;
}

/* Vyas et al. 2024, algorithm 3: Adam in the eigenbases of the means, here without a first step that only
 * finds them. */
sn_node *update_soap(const sn_update *u) {
    int64_t size[2];
    if (!take_sizes(u, size)) return NULL;
    sn_node *g = u->gradient, *m = update_mean(u, g), *q[2] = {NULL, NULL};
    for (int axis = 0; axis < 2; axis++)
        if (takes_side(size, axis)) q[axis] = eigenbasis(u, axis);
    if (q[0]) g = product(transposed(q[0]), g), m = product(transposed(q[0]), m);
    if (q[1]) g = product(g, q[1]), m = product(m, q[1]);
    sn_node *x = update_adam(u, m, g);
    if (q[0]) x = product(q[0], x);
    if (q[1]) x = product(x, transposed(q[1]));
    return sub(update_decayed(u), mul(x, u->rate));
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
