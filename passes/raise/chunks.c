/* chunks.c: the chunkwise form of a linear recurrence [Yang et al. 2024, "Gated linear attention",
 * "Parallelizing linear transformers with the delta rule"; Dao & Gu 2024, "Transformers are SSMs"]: within a
 * chunk of C elements all pairs, as products of matrices; from chunk to chunk a scan of the carry, so
 * that what a chunk needs stays in the cache.
 *
 * With G the sums of g from the chunk's beginning, u = a S and S the carry at the chunk's beginning:
 *     u_t = (a_t e^(G_t - g_t)) S + sum over j < t of (a_t e^(G_t - g_t - G_j)) . (b_j u_j + k_j v_j)
 *     y_t = (q_t e^G_t) S + sum over j <= t of (q_t e^(G_t - G_j)) . (b_j u_j + k_j v_j)
 * The first is a triangular system, whose inverse is made by halves. */
#include "passes/raise/chunks.h"

enum { CHUNK = 64, LEAST = 8 };
static const double SMALLEST_LOG = -20; /* 2e-9: below the rounding of what is added */

#define OP2(op, x, y) sn_b_binary(SN_OP_##op, x, y)
#define OPC(op, x, c) sn_b_scalar(SN_OP_##op, x, c)

bool sn_chunks_fit(const sn_recurrence *r) {
    sn_module *m = r->k->m;
    sn_dim n;
    int64_t k, v;
    return sn_dim_is_const(m, r->K, &k) && sn_dim_is_const(m, r->V, &v) && k >= LEAST &&
           v >= LEAST && r->n_lead + 5 <= SN_MAX_RANK && sn_dim_lo(m, r->T) >= CHUNK &&
           (sn_dim_is_const(m, r->T, NULL) || sn_dim_div(m, r->T, CHUNK, &n));
}

/* x y^T, x^T y or x y over the last two axes; the others go along. */
static sn_node *product(sn_node *x, sn_node *y, bool turn_x, bool turn_y) {
    static const int64_t batch[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    int n = x->rank - 2;
    int64_t cx = turn_x ? n : n + 1, cy = turn_y ? n + 1 : n;
    return sn_node_new(x->m, SN_OP_dot, 2, (sn_node *[]){x, y},
                       SN_ATTRS(SN_LIST(batch_a, n, batch), SN_LIST(batch_b, n, batch),
                                SN_LIST(contract_a, 1, &cx), SN_LIST(contract_b, 1, &cy)));
}

static sn_node *resized(sn_node *x, int axis, sn_dim size, sn_dim before) {
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    shape[axis] = size;
    if (axis) shape[axis - 1] = before;
    return sn_b_reshape(x, x->rank, shape);
}

/* Rows: the axis before the last. Two halves of them as twice as many blocks of the axis before. */
static sn_node *halves(sn_node *x) {
    int rows = x->rank - 2;
    return resized(x, rows, x->shape[rows] / 2, sn_dim_mul(x->m, x->shape[rows - 1], 2));
}

/* One of the two halves of the rows: [.., C, d] -> [.., C / 2, d]. */
static sn_node *half(sn_node *x, int which) {
    int rows = x->rank - 2;
    return sn_b_slice(x, rows, which * (x->shape[rows] / 2), x->shape[rows] / 2);
}

/* Block `which` of those that `halves` made: [.., 2 B, h, w] -> [.., B, h, w]. */
static sn_node *every_second(sn_node *x, int which) {
    int axis = x->rank - 3;
    sn_dim shape[SN_MAX_RANK], b;
    sn_dim_div(x->m, x->shape[axis], 2, &b);
    for (int i = 0; i < axis; i++) shape[i] = x->shape[i];
    shape[axis] = b;
    shape[axis + 1] = 2;
    shape[axis + 2] = x->shape[axis + 1];
    shape[axis + 3] = x->shape[axis + 2];
    x = sn_b_slice(sn_b_reshape(x, x->rank + 1, shape), axis + 1, which, 1);
    for (int i = axis + 1; i < x->rank - 1; i++) shape[i] = shape[i + 1];
    return sn_b_reshape(x, x->rank - 1, shape);
}

static sn_node *zeros_like(sn_node *x) {
    return sn_b_broadcast_like(sn_b_const(x->m, (sn_dtype)x->dtype, 0), x);
}

/* [[first, 0], [low, second]] of `diagonal`, blocks of two halves. */
static sn_node *lower_blocks(sn_node *diagonal, sn_node *low) {
    sn_module *m = low->m;
    int axis = low->rank - 1;
    sn_node *zero = zeros_like(low), *first = every_second(diagonal, 0),
            *second = every_second(diagonal, 1);
    sn_node *rows[2] = {sn_b_concat(m, 2, (sn_node *[]){first, zero}, axis),
                        sn_b_concat(m, 2, (sn_node *[]){low, second}, axis)};
    return sn_b_concat(m, 2, rows, axis - 1);
}

/* x [.., C, C] with zeros where column >= row (strict), > row. */
static sn_node *lower_part(sn_node *x, bool strict) {
    const sn_dim shape[2] = {x->shape[x->rank - 2], x->shape[x->rank - 1]};
    sn_node *i = sn_b_iota(x->m, SN_I32, 2, shape, 0), *j = sn_b_iota(x->m, SN_I32, 2, shape, 1);
    sn_node *keep = sn_b_binary(strict ? SN_OP_lt : SN_OP_le, j, i);
    return sn_b_select(sn_b_broadcast(keep, x->rank, x->shape), x, zeros_like(x));
}

static sn_node *row_of(sn_node *x, sn_dim row) {
    return sn_b_slice(x, x->rank - 2, row, 1);
}

static sn_node *exp_of(sn_node *x, sn_node *y) {
    return sn_b_unary(SN_OP_exp, OP2(sub, x, y));
}

/* (x_t e^(X_t - Y_j)) . y_j for j < t (strict) or j <= t, 0 elsewhere; X [.., C, 1 or d]. */
static sn_node *pairs(sn_node *x, sn_node *y, sn_node *X, sn_node *Y, bool strict) {
    int64_t rows = x->shape[x->rank - 2];
    if (X->shape[X->rank - 1] == 1) { /* one decay for all: of each pair */
        int64_t perm[SN_MAX_RANK];
        for (int i = 0; i < Y->rank; i++) perm[i] = i;
        perm[Y->rank - 2] = Y->rank - 1;
        perm[Y->rank - 1] = Y->rank - 2;
        sn_node *p = product(x, y, false, true);
        sn_node *d = OP2(sub, sn_b_broadcast(X, p->rank, p->shape),
                         sn_b_broadcast(sn_b_transpose(Y, Y->rank, perm), p->rank, p->shape));
        d = sn_b_unary(SN_OP_exp, lower_part(d, strict));
        return lower_part(OP2(mul, p, d), strict);
    }
    if (rows <= LEAST) { /* from the middle: at most rows / 2 decays in either direction */
        sn_node *at = row_of(Y, rows / 2 - 1);
        return lower_part(
            product(OP2(mul, x, exp_of(X, at)), OP2(mul, y, exp_of(at, Y)), false, true), strict);
    }
    sn_node *at = row_of(Y, rows / 2 - 1);
    sn_node *low = product(OP2(mul, half(x, 1), exp_of(half(X, 1), at)),
                           OP2(mul, half(y, 0), exp_of(at, half(Y, 0))), false, true);
    return lower_blocks(pairs(halves(x), halves(y), halves(X), halves(Y), strict), low);
}

/* The diagonal blocks of x [.., C, C], twice as many of half the size. */
static sn_node *diagonal(sn_node *x) {
    int axis = x->rank - 3;
    int64_t h = x->shape[x->rank - 1] / 2;
    sn_node *block[2];
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    shape[axis + 1] = 1;
    shape[axis + 2] = shape[axis + 3] = h;
    for (int i = 0; i < 2; i++) {
        block[i] = sn_b_slice(sn_b_slice(x, axis + 1, i * h, h), axis + 2, i * h, h);
        block[i] = sn_b_reshape(block[i], x->rank + 1, shape);
    }
    sn_node *both = sn_b_concat(x->m, 2, block, axis + 1);
    shape[axis] = sn_dim_mul(x->m, x->shape[axis], 2);
    shape[axis + 1] = shape[axis + 2] = h;
    return sn_b_reshape(both, x->rank, shape);
}

/* (I - L)^-1 for L [.., C, C] with zeros on and above the diagonal. */
static sn_node *inverse(sn_node *L) {
    int64_t rows = L->shape[L->rank - 1];
    if (rows <= LEAST) { /* (I + L) (I + L^2) (I + L^4) */
        const sn_dim shape[2] = {rows, rows};
        sn_node *i = sn_b_iota(L->m, SN_I32, 2, shape, 0);
        sn_node *one =
            sn_b_cast(OP2(eq, i, sn_b_iota(L->m, SN_I32, 2, shape, 1)), (sn_dtype)L->dtype);
        sn_node *power = L, *sum = OP2(add, L, sn_b_broadcast_like(one, L));
        for (int64_t n = 2; n < rows; n *= 2) {
            power = product(power, power, false, false);
            sum = OP2(add, sum, product(sum, power, false, false));
        }
        return sum;
    }
    sn_node *low = sn_b_slice(half(L, 1), L->rank - 1, 0, rows / 2);
    sn_node *blocks = inverse(diagonal(L));
    low = product(product(every_second(blocks, 1), low, false, false), every_second(blocks, 0),
                  false, false);
    return lower_blocks(blocks, low);
}

/* [T, lead, d] -> [N, lead, 1, C, d], zeros after the last element. The axis of size 1 is for blocks
 * of rows, so that the others stay what they are. */
static sn_node *chunked(const sn_recurrence *r, sn_node *x) {
    sn_module *m = x->m;
    int64_t perm[SN_MAX_RANK], T;
    sn_dim shape[SN_MAX_RANK], n;
    if (sn_dim_is_const(m, r->T, &T) && T % CHUNK) {
        sn_dim low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {CHUNK - T % CHUNK};
        x = sn_node_new(
            m, SN_OP_pad, 1, &x,
            SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, x->rank, low), SN_LIST(high, x->rank, high)));
    }
    sn_dim_div(m, x->shape[0], CHUNK, &n);
    shape[0] = n;
    shape[1] = CHUNK;
    for (int i = 1; i < x->rank; i++) shape[i + 1] = x->shape[i];
    x = sn_b_reshape(x, x->rank + 1, shape);
    for (int i = 0, at = 0; i < x->rank; i++) {
        if (i == x->rank - 2) perm[at++] = 1;
        if (i < x->rank - 2) perm[at++] = i ? i + 1 : 0;
    }
    perm[x->rank - 1] = x->rank - 1;
    x = sn_b_transpose(x, x->rank, perm);
    for (int i = 0, at = 0; i < x->rank; i++) {
        if (i == x->rank - 2) shape[at++] = 1;
        shape[at++] = x->shape[i];
    }
    return sn_b_reshape(x, x->rank + 1, shape);
}

/* The inverse of `chunked`. */
static sn_node *joined(const sn_recurrence *r, sn_node *x) {
    int64_t perm[SN_MAX_RANK];
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0, at = 0; i < x->rank; i++)
        if (i != x->rank - 3) shape[at++] = x->shape[i];
    x = sn_b_reshape(x, x->rank - 1, shape);
    perm[0] = 0;
    perm[1] = x->rank - 2;
    for (int i = 2; i < x->rank - 1; i++) perm[i] = i - 1;
    perm[x->rank - 1] = x->rank - 1;
    x = sn_b_transpose(x, x->rank, perm);
    shape[0] = sn_dim_mul(x->m, x->shape[0], CHUNK);
    for (int i = 2; i < x->rank; i++) shape[i - 1] = x->shape[i];
    x = sn_b_reshape(x, x->rank - 1, shape);
    return shape[0] == r->T ? x : sn_b_slice(x, 0, 0, r->T);
}

/* x with an axis of size 1 before the last two, or without it. */
static sn_node *with_blocks(sn_node *x, bool with) {
    sn_dim shape[SN_MAX_RANK];
    int at = 0;
    for (int i = 0; i < x->rank; i++) {
        if (with && i == x->rank - 2) shape[at++] = 1;
        if (with || i != x->rank - 3) shape[at++] = x->shape[i];
    }
    return sn_b_reshape(x, at, shape);
}

/* [.., 1, d] -> [.., d, 1] */
static sn_node *as_column(sn_node *x) {
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    shape[x->rank - 2] = x->shape[x->rank - 1];
    shape[x->rank - 1] = 1;
    return sn_b_reshape(x, x->rank, shape);
}

enum { START, DECAY, KEY, VALUE, QUERY, DELTA_A, DELTA_B, OPERANDS };

/* One chunk: x[START] is the carry before it. Sets the carry after it, and y if there is a query. */
static void one_chunk(const sn_recurrence *r, sn_node *const *x, sn_node **next, sn_node **y) {
    sn_node *S = with_blocks(x[START], true), *k = x[KEY], *v = x[VALUE], *q = x[QUERY];
    sn_node *g = x[DECAY], *u = NULL;
    sn_node *G = sn_node_new(g->m, SN_OP_cumsum, 1, &g, SN_ATTRS(SN_INT(axis, g->rank - 2)));
    sn_node *last = row_of(G, CHUNK - 1), *before = OP2(sub, G, g), *to_end = exp_of(last, G);
    sn_node *end = OP2(mul, S, sn_b_broadcast_like(as_column(sn_b_unary(SN_OP_exp, last)), S));
    end = OP2(add, end, product(OP2(mul, k, to_end), v, true, false));
    if (x[DELTA_A]) {
        sn_node *a = x[DELTA_A], *b = x[DELTA_B];
        u = product(OP2(mul, a, sn_b_unary(SN_OP_exp, before)), S, false, false);
        u = OP2(add, u, product(pairs(a, k, before, G, true), v, false, false));
        u = product(inverse(pairs(a, b, before, G, true)), u, false, false);
        end = OP2(add, end, product(OP2(mul, b, to_end), u, true, false));
    }
    *next = with_blocks(end, false);
    if (!q) return;
    sn_node *Q = r->before ? before : G;
    *y = product(OP2(mul, q, sn_b_unary(SN_OP_exp, Q)), S, false, false);
    *y = OP2(add, *y, product(pairs(q, k, Q, G, r->before), v, false, false));
    if (u) *y = OP2(add, *y, product(pairs(q, x[DELTA_B], Q, G, r->before), u, false, false));
}

void sn_chunks_make(sn_recurrence *r) {
    sn_module *m = r->k->m;
    sn_node *const from[OPERANDS] = {[DECAY] = OPC(max, r->g, SMALLEST_LOG),
                                     [KEY] = r->k,
                                     [VALUE] = r->v,
                                     [QUERY] = r->q,
                                     [DELTA_A] = r->a,
                                     [DELTA_B] = r->b};
    sn_node *in[OPERANDS] = {r->start}, *arg[OPERANDS], *place[OPERANDS] = {NULL}, *out[2] = {NULL};
    int n = 1;
    for (int i = DECAY; i < OPERANDS; i++)
        if (from[i]) in[n++] = chunked(r, from[i]);
    for (int i = 0, at = 0; i < OPERANDS; i++) {
        if (i && !from[i]) continue;
        place[i] = arg[at] = sn_arg(m, at, (sn_dtype)in[at]->dtype, in[at]->rank - (at > 0),
                                    in[at]->shape + (at > 0));
        at++;
    }
    one_chunk(r, place, &out[0], &out[1]);
    sn_region *body = sn_region_new(m, n, arg, r->q ? 2 : 1, out);
    sn_node *scan =
        sn_node_new(m, SN_OP_scan, n, in,
                    SN_ATTRS(SN_INT(carries, 1), SN_INT(sequences, n - 1), SN_REG(body, body)));
    r->end = sn_b_result(scan, 0);
    r->y = r->q ? joined(r, sn_b_result(scan, 1)) : NULL;
}
