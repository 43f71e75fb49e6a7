/* graph.c: random graphs from the op table: elementwise ops by their rule, structural and
 * composite ops by one function each. Sizes are small and include 0, 1 and symbolic dims. */
#include "tests/support/fuzz/fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_POOL = 256, MAX_ELEMENTS = 2000 };

enum { /* sets of element types, by bit */
       FLOATS = 1 << SN_F32 | 1 << SN_F64 | 1 << SN_BF16 | 1 << SN_F16,
       INTS = 1 << SN_I32 | 1 << SN_I64 | 1 << SN_I8 | 1 << SN_U8,
       BOOLS = 1 << SN_BOOL,
       NUMBERS = FLOATS | INTS,
       ANY = NUMBERS | BOOLS,
};

typedef struct gen {
    sn_module *m;
    fuzz_rng r;
    unsigned allowed; /* element types of leaves and casts */
    bool composite;
    bool open;   /* sizes that may have to be rejected at run time */
    sn_dim t, u; /* symbolic dims; u: in open graphs only */
    sn_node *pool[MAX_POOL];
    int n, n_leaf;
    sn_op op[SN_OP_COUNT]; /* those of this graph */
    int n_op;
} gen;

int fuzz_below(fuzz_rng *r, int n) { /* splitmix64 */
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

static int below(gen *g, int n) {
    return fuzz_below(&g->r, n);
}

static bool chance(gen *g, int percent) {
    return below(g, 100) < percent;
}

/* ---- picking ---- */

static bool is_small(gen *g, int rank, const sn_dim *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= sn_dim_hi(g->m, shape[i]);
        if (n > MAX_ELEMENTS) return false;
    }
    return rank <= 6;
}

/* Adds n to the pool; skips NULL and tensors that are too large. */
static sn_node *keep(gen *g, sn_node *n) {
    if (n && g->n < MAX_POOL && n->n_result == 1 && is_small(g, n->rank, n->shape))
        g->pool[g->n++] = n;
    return n;
}

/* T - c, T - U, ...: 0 or negative in some runs. */
static sn_dim open_dim(gen *g) {
    sn_dim base = chance(g, 50) ? g->t : g->u, less = chance(g, 40) ? g->u : below(g, 4);
    if (chance(g, 20)) base = sn_dim_mul(g->m, base, 2);
    sn_dim d = sn_dim_sub(g->m, base, less);
    return sn_dim_hi(g->m, d) < 0 || !d ? g->t : d;
}

static sn_dim random_dim(gen *g) {
    if (g->open && chance(g, 35)) return open_dim(g);
    int k = below(g, 14);
    if (k < 10) return k < 1 ? 0 : k < 4 ? 1 : k - 2 < 6 ? k - 2 : 3;
    return k < 12 ? g->t : k < 13 ? sn_dim_add(g->m, g->t, 1) : sn_dim_mul(g->m, g->t, 2);
}

static int random_shape(gen *g, int max_rank, sn_dim *shape) {
    int rank = below(g, max_rank + 1);
    for (int i = 0; i < rank; i++) shape[i] = random_dim(g);
    return rank;
}

static sn_dtype random_type(gen *g, unsigned set) {
    set &= g->allowed;
    for (;;) {
        int t = below(g, SN_DTYPE_COUNT);
        if (set >> t & 1) return (sn_dtype)t;
    }
}

static sn_node *new_leaf(gen *g, sn_dtype t, int rank, const sn_dim *shape) {
    static const sn_op ops[] = {SN_OP_input, SN_OP_param, SN_OP_state};
    char name[16];
    snprintf(name, sizeof name, "x%d", g->n_leaf++);
    return keep(g, sn_node_new(g->m, ops[below(g, 3)], 0, NULL,
                               SN_ATTRS(SN_STR(name, name), SN_INT(dtype, t),
                                        SN_LIST(shape, rank, shape))));
}

/* A constant that its type represents exactly, often a neutral element. */
static sn_node *new_const(gen *g, sn_dtype t) {
    static const double values[] = {0, 1, 1, 0, -1, 2, 0.5, -2.25, 3};
    return sn_b_const(g->m, t, sn_round_to(t, values[below(g, 9)]));
}

/* A node of one of these types and at least this rank; prefers recent ones, so that graphs get
 * deep. */
static sn_node *pick(gen *g, unsigned set, int min_rank) {
    for (int i = 0; i < 8 && g->n; i++) {
        int young = g->n < 3 ? g->n : 3;
        sn_node *n = g->pool[chance(g, 60) ? g->n - 1 - below(g, young) : below(g, g->n)];
        if (set >> n->dtype & 1 && n->rank >= min_rank) return n;
    }
    sn_dim shape[4];
    int rank = random_shape(g, 3, shape);
    while (rank < min_rank) shape[rank++] = random_dim(g);
    return new_leaf(g, random_type(g, set), rank, shape);
}

static bool same_shape(const sn_node *n, int rank, const sn_dim *shape) {
    return n->rank == rank && (!rank || !memcmp(n->shape, shape, sizeof *shape * (size_t)rank));
}

/* A node of this type and shape: from the pool, a constant, a broadcast, or a leaf. */
static sn_node *like(gen *g, sn_dtype t, int rank, const sn_dim *shape) {
    int from = g->n ? below(g, g->n) : 0;
    for (int i = 0; i < g->n && chance(g, 90); i++) {
        sn_node *n = g->pool[(from + i) % g->n];
        if (n->dtype == t && same_shape(n, rank, shape)) return n;
    }
    sn_dim smaller[SN_MAX_RANK];
    switch (below(g, 3)) {
    case 0:
        return sn_b_broadcast(new_const(g, t), rank, shape);
    case 1: { /* leading axes missing, others 1 */
        int skip = below(g, rank + 1);
        for (int i = skip; i < rank; i++) smaller[i - skip] = chance(g, 50) ? 1 : shape[i];
        return sn_b_broadcast(new_leaf(g, t, rank - skip, smaller), rank, shape);
    }
    default:
        return new_leaf(g, t, rank, shape);
    }
}

static sn_node *like_node(gen *g, const sn_node *x) {
    return like(g, (sn_dtype)x->dtype, x->rank, x->shape);
}

/* |x| + 1/2: a nonzero divisor */
static sn_node *away_from_zero(sn_node *x) {
    return sn_b_scalar(SN_OP_add, sn_b_unary(SN_OP_abs, x), 0.5);
}

/* Integers of this shape in [0, size): anything modulo size. */
static sn_node *new_index(gen *g, sn_dim size, int rank, const sn_dim *shape) {
    sn_node *x = like(g, SN_I32, rank, shape);
    if (size >= 0)
        x = sn_b_scalar(SN_OP_mod, x, (double)size);
    else
        x = sn_b_binary(SN_OP_mod, x, sn_b_broadcast(sn_b_dim(g->m, SN_I32, size), rank, shape));
    return chance(g, 70) ? x : sn_b_cast(x, SN_I64);
}

/* An axis with a fixed size of at least 1, in open graphs one that may be 1 or more; -1: none. */
static int pick_index_axis(gen *g, int rank, const sn_dim *shape) {
    int from = rank ? below(g, rank) : 0;
    for (int i = 0; i < rank; i++) {
        sn_dim d = shape[(from + i) % rank];
        if (d >= 1 || (g->open && sn_dim_hi(g->m, d) >= 1)) return (from + i) % rank;
    }
    return -1;
}

/* ---- elementwise ops, by rule ---- */

typedef struct elem_rule {
    const char *name;
    unsigned types; /* of the first operand */
} elem_rule;

static const elem_rule elem_rules[] = {{"num", NUMBERS},       {"flt", FLOATS}, {"boole", BOOLS},
                                       {"cast", ANY},          {"any", ANY},    {"cmp", ANY},
                                       {"bits", INTS | BOOLS}, {"shift", INTS}};

static sn_node *make_select(gen *g) {
    sn_node *x = pick(g, ANY, 0);
    sn_node *in[] = {like(g, SN_BOOL, x->rank, x->shape), x, like_node(g, x)};
    return sn_node_new(g->m, SN_OP_select, 3, in, SN_NO_ATTRS);
}

static sn_node *make_elem(gen *g, sn_op op) {
    size_t k = 0;
    while (k < sizeof elem_rules / sizeof *elem_rules &&
           strcmp(sn_ops[op].rule, elem_rules[k].name))
        k++;
    if (op == SN_OP_select) return make_select(g);
    /* a new rule that is not handled here */
    if (k == sizeof elem_rules / sizeof *elem_rules) return NULL;
    sn_node *x = pick(g, elem_rules[k].types, 0), *in[3] = {x, x, x};
    for (int i = 1; i < sn_ops[op].max_in; i++) in[i] = like_node(g, x);
    if (sn_ops[op].max_in == 2 && chance(g, 50)) {
        in[0] = in[1];
        in[1] = x;
    }
    bool is_float = sn_dtype_is_float((sn_dtype)x->dtype);
    if (op == SN_OP_recip || op == SN_OP_rsqrt || op == SN_OP_pow) in[0] = away_from_zero(in[0]);
    if ((op == SN_OP_div || op == SN_OP_ieee_div) && is_float) in[1] = away_from_zero(in[1]);
    if (op == SN_OP_cast) return sn_b_cast(x, random_type(g, ANY));
    return sn_node_new(g->m, op, sn_ops[op].max_in, in, SN_NO_ATTRS);
}

/* ---- structural primitives ---- */

static sn_node *make_const(gen *g, sn_op op) {
    (void)op;
    sn_dim shape[4];
    int rank = random_shape(g, 2, shape);
    return sn_b_broadcast(new_const(g, random_type(g, ANY)), rank, shape);
}

static sn_node *make_dim_value(gen *g, sn_op op) {
    (void)op;
    sn_dim d = sn_dim_add(g->m, sn_dim_mul(g->m, g->t, 1 + below(g, 3)), below(g, 2));
    if (g->open) d = open_dim(g);
    return sn_b_dim(g->m, chance(g, 50) ? SN_I32 : SN_F64, d);
}

static sn_node *make_iota(gen *g, sn_op op) {
    (void)op;
    sn_dim shape[4];
    int rank = random_shape(g, 2, shape);
    shape[rank++] = random_dim(g);
    return sn_b_iota(g->m, random_type(g, NUMBERS), rank, shape, below(g, rank));
}

static sn_node *make_random(gen *g, sn_op op) {
    (void)op;
    static const sn_dim two = 2;
    sn_dim shape[4];
    int rank = random_shape(g, 2, shape);
    return sn_b_cast(SN_NODE(g->m, random,
                             SN_ATTRS(SN_INT(stream, below(g, 3)), SN_LIST(shape, rank, shape)),
                             new_leaf(g, SN_I64, 1, &two)),
                     random_type(g, FLOATS));
}

static sn_node *make_broadcast(gen *g, sn_op op) {
    (void)op;
    sn_node *x = pick(g, ANY, 0);
    sn_dim shape[SN_MAX_RANK];
    int lead = x->rank < 4 ? below(g, 2) : 0;
    for (int i = 0; i < lead; i++) shape[i] = random_dim(g);
    for (int i = 0; i < x->rank; i++)
        shape[lead + i] = x->shape[i] == 1 && chance(g, 60) ? random_dim(g) : x->shape[i];
    return sn_b_broadcast(x, lead + x->rank, shape);
}

static sn_node *make_reshape(gen *g, sn_op op) {
    (void)op;
    sn_node *x = pick(g, ANY, 0);
    sn_dim shape[SN_MAX_RANK + 1];
    int rank = 0, at = x->rank ? below(g, x->rank) : 0, kind = below(g, 4);
    if (kind == 0) { /* flat */
        shape[rank++] = sn_dim_product(g->m, x->rank, x->shape);
        return sn_b_reshape(x, rank, shape);
    }
    for (int i = 0; i < x->rank; i++) {
        if (i == at && kind == 1) shape[rank++] = 1;
        sn_dim d = x->shape[i], half;
        if (i == at && kind == 2 && i + 1 < x->rank) d = sn_dim_mul(g->m, d, x->shape[++i]);
        if (i == at && kind == 3 && sn_dim_div(g->m, d, 2, &half)) {
            shape[rank++] = half;
            d = 2;
        }
        shape[rank++] = d;
    }
    return rank > 5 ? NULL : sn_b_reshape(x, rank, shape);
}

static sn_node *make_transpose(gen *g, sn_op op) {
    (void)op;
    sn_node *x = pick(g, ANY, 1);
    int64_t perm[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) perm[i] = i;
    for (int i = x->rank - 1; i > 0; i--) {
        int j = below(g, i + 1);
        int64_t swap = perm[i];
        perm[i] = perm[j];
        perm[j] = swap;
    }
    return sn_b_transpose(x, x->rank, perm);
}

/* A window inside an axis: fixed axes anywhere, symbolic ones whole or without the first
 * element. */
static void random_window(gen *g, sn_dim extent, sn_dim *start, sn_dim *size) {
    if (g->open && chance(g, 60)) {
        *start = chance(g, 50) ? below(g, 3) : open_dim(g);
        *size = chance(g, 30) ? below(g, 4) : chance(g, 50) ? open_dim(g) : extent;
        if (*size == extent) *size = sn_dim_sub(g->m, extent, *start);
        sn_dim rest = sn_dim_sub(g->m, sn_dim_sub(g->m, extent, *start), *size);
        if (sn_dim_hi(g->m, *size) >= 0 && sn_dim_hi(g->m, rest) >= 0) return;
    }
    *start = 0;
    *size = extent;
    if (sn_dim_lo(g->m, extent) < 1 || chance(g, 40)) return;
    *start = extent < 0 ? 1 : below(g, (int)extent + 1);
    *size = sn_dim_sub(g->m, extent, *start);
    if (*size > 0 && extent >= 0) *size -= below(g, (int)*size + 1);
}

static sn_node *make_slice(gen *g, sn_op op) {
    (void)op;
    sn_node *x = pick(g, ANY, 1);
    sn_dim start[SN_MAX_RANK], size[SN_MAX_RANK];
    int64_t step[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        random_window(g, x->shape[i], &start[i], &size[i]);
        bool fixed = sn_dim_is_const(g->m, x->shape[i], NULL) || !g->open;
        step[i] = size[i] > 1 && fixed && chance(g, 30) ? 2 : 1;
        if (step[i] == 2) size[i] = (size[i] + 1) / 2;
    }
    sn_attr attrs[] = {SN_LIST(start, x->rank, start), SN_LIST(size, x->rank, size),
                       SN_LIST(step, x->rank, step)};
    return sn_node_new(g->m, SN_OP_slice, 1, &x, 2 + below(g, 2), attrs);
}

static sn_node *make_concat(gen *g, sn_op op) {
    (void)op;
    sn_node *in[3] = {pick(g, ANY, 1)};
    int n = 1 + below(g, 3), axis = below(g, in[0]->rank);
    for (int i = 1; i < n; i++) {
        sn_dim shape[SN_MAX_RANK];
        memcpy(shape, in[0]->shape, sizeof *shape * in[0]->rank);
        if (chance(g, 50)) shape[axis] = random_dim(g);
        in[i] = like(g, (sn_dtype)in[0]->dtype, in[0]->rank, shape);
    }
    return sn_b_concat(g->m, n, in, axis);
}

static sn_node *make_pad(gen *g, sn_op op) {
    sn_node *x = pick(g, ANY, 0);
    sn_dim low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) {
        low[i] = chance(g, 50) ? 0 : below(g, 3);
        high[i] = chance(g, 50) ? 0 : chance(g, 80) ? below(g, 3) : g->t;
        if (g->open && chance(g, 25)) low[i] = open_dim(g);
    }
    double value = sn_round_to((sn_dtype)x->dtype, below(g, 3));
    return sn_node_new(
        g->m, op, 1, &x,
        SN_ATTRS(SN_FLT(value, value), SN_LIST(low, x->rank, low), SN_LIST(high, x->rank, high)));
}

static sn_node *make_update_slice(gen *g, sn_op op) {
    sn_node *x = pick(g, ANY, 0);
    sn_dim start[SN_MAX_RANK] = {0}, size[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) random_window(g, x->shape[i], &start[i], &size[i]);
    sn_node *in[] = {x, like(g, (sn_dtype)x->dtype, x->rank, size)};
    return sn_node_new(g->m, op, 2, in, SN_ATTRS(SN_LIST(start, x->rank, start)));
}

static sn_node *make_reduce(gen *g, sn_op op) {
    sn_node *x = pick(g, sn_ops[op].kind == SN_COMP ? FLOATS : NUMBERS, 0);
    int64_t axes[SN_MAX_RANK] = {0};
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (chance(g, 50)) axes[n++] = i;
    return sn_b_reduce(op, x, n, axes);
}

/* Ops that keep the shape or one size, with an {axis}. */
static sn_node *make_on_axis(gen *g, sn_op op) {
    sn_node *x = pick(g, sn_ops[op].kind == SN_COMP ? FLOATS : NUMBERS, 1);
    return sn_node_new(g->m, op, 1, &x, SN_ATTRS(SN_INT(axis, below(g, x->rank))));
}

static sn_node *make_dot(gen *g, sn_op op) {
    sn_node *x = pick(g, NUMBERS, 0), *in[] = {x, like_node(g, x)};
    int64_t axes[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) axes[i] = i;
    int n_batch = x->rank ? below(g, x->rank) : 0, left = x->rank - n_batch;
    int n_sum = left ? below(g, left + 1) : 0;
    if (n_batch + 2 * (left - n_sum) > 5) return NULL;
    const int64_t *sum = axes + x->rank - n_sum; /* the last ones of the left factor */
    if (n_sum && left > 1 && chance(g, 50)) {    /* the right factor with transposed axes */
        int64_t perm[SN_MAX_RANK];
        for (int i = 0; i < x->rank; i++)
            perm[i] = i < n_batch ? i : n_batch + (i - n_batch + left - n_sum) % left;
        in[1] = sn_b_transpose(in[1], x->rank, perm);
        sum = axes + n_batch;
    }
    return sn_node_new(g->m, op, 2, in,
                       SN_ATTRS(SN_LIST(batch_a, n_batch, axes), SN_LIST(batch_b, n_batch, axes),
                                SN_LIST(contract_a, n_sum, axes + x->rank - n_sum),
                                SN_LIST(contract_b, n_sum, sum)));
}

static sn_node *make_gather(gen *g, sn_op op) {
    sn_node *x = pick(g, ANY, 1);
    sn_dim shape[4];
    int axis = pick_index_axis(g, x->rank, x->shape), rank = random_shape(g, 2, shape);
    if (axis < 0) return NULL;
    sn_node *in[] = {x, new_index(g, x->shape[axis], rank, shape)};
    return sn_node_new(g->m, op, 2, in, SN_ATTRS(SN_INT(axis, axis)));
}

static sn_node *make_take_blocks(gen *g, sn_op op) {
    sn_node *x = pick(g, ANY, 1);
    sn_dim shape[8];
    int64_t columns, blocks = 1 + below(g, 3);
    if (x->rank > 5 || !sn_dim_is_const(g->m, x->shape[x->rank - 1], &columns) || !columns ||
        columns % blocks)
        return NULL;
    for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    shape[x->rank - 1] = 1 + below(g, 3);
    sn_node *in[] = {x, new_index(g, blocks, x->rank, shape)};
    return sn_node_new(g->m, op, 2, in, SN_ATTRS(SN_INT(blocks, blocks)));
}

/* x [M, k], w [E, n, k], z [M, J]; or rows and sums over them. */
static sn_node *make_grouped(gen *g, sn_op op) {
    bool sums = op == SN_OP_ragged_dot;
    sn_dim m = g->open && chance(g, 50) ? open_dim(g) : below(g, 9), j = 1 + below(g, 3);
    sn_dim blocks = 1 + below(g, 3), k = 1 + below(g, 40), n = 1 + below(g, 40);
    sn_node *z = new_index(g, blocks, 2, (const sn_dim[]){m, j});
    if (!sums) {
        sn_node *x = like(g, SN_F32, 2, (const sn_dim[]){m, k});
        sn_node *in[] = {x, like(g, SN_F32, 3, (const sn_dim[]){blocks, n, k}), z};
        return sn_node_new(g->m, op, 3, in, SN_NO_ATTRS);
    }
    sn_node *x = like(g, SN_F32, 2, (const sn_dim[]){sn_dim_mul(g->m, m, j), n});
    sn_node *in[] = {x, like(g, SN_F32, 2, (const sn_dim[]){m, k}), z};
    return sn_node_new(g->m, op, 3, in, SN_ATTRS(SN_INT(blocks, blocks)));
}

static sn_node *make_scatter_add(gen *g, sn_op op) {
    sn_dim shape[4], index[2], rows[8];
    int rank = random_shape(g, 2, shape), n_index = random_shape(g, 2, index), n = 0;
    shape[rank++] = g->open && chance(g, 50) ? open_dim(g) : 1 + below(g, 4);
    int axis = pick_index_axis(g, rank, shape);
    for (int i = 0; i < rank; i++)
        for (int j = 0; j < (i == axis ? n_index : 1); j++)
            rows[n++] = i == axis ? index[j] : shape[i];
    sn_node *in[] = {like(g, random_type(g, NUMBERS), n, rows),
                     new_index(g, shape[axis], n_index, index)};
    sn_attr attr[] = {SN_INT(axis, axis), SN_LIST(shape, rank, shape),
                      SN_INT(combine, 1 + below(g, 2))};
    bool adds = in[0]->dtype == SN_U8 || chance(g, 60);
    return sn_node_new(g->m, op, 2, in, adds ? 2 : 3, attr);
}

static sn_node *make_update_rows(gen *g, sn_op op) {
    sn_dim x[3] = {1 + below(g, 4), 1 + below(g, 5), 1 + below(g, 4)},
           y[3] = {1 + below(g, (int)x[0]), 1 + below(g, (int)x[1]), x[2]};
    sn_dtype t = random_type(g, NUMBERS);
    sn_node *in[] = {like(g, t, 3, x), like(g, t, 3, y), new_index(g, x[1] - y[1] + 1, 1, y)};
    return sn_node_new(g->m, op, 3, in, SN_ATTRS(SN_INT(axis, 1)));
}

static sn_node *make_at(gen *g, sn_op op) {
    sn_dim table[3], shape[4];
    int rank = 1 + below(g, 3), n = random_shape(g, 2, shape);
    for (int i = 0; i < rank; i++)
        table[i] = g->open && chance(g, 40) ? open_dim(g) : 1 + below(g, 3);
    sn_dtype t = random_type(g, NUMBERS);
    sn_node *in[4] = {op == SN_OP_gather_nd ? like(g, t, rank, table) : like(g, t, n, shape)};
    for (int i = 0; i < rank; i++) in[1 + i] = new_index(g, table[i], n, shape);
    sn_attr a = SN_LIST(shape, rank, table);
    return sn_node_new(g->m, op, 1 + rank, in, op == SN_OP_gather_nd ? 0 : 1, &a);
}

/* ---- composite and fused ops ---- */

static sn_node *make_activation(gen *g, sn_op op) {
    sn_node *x = pick(g, FLOATS, 0);
    return sn_node_new(g->m, op, 1, &x, SN_NO_ATTRS);
}

static sn_node *make_norm(gen *g, sn_op op) {
    sn_node *in[3] = {pick(g, FLOATS, 1)};
    int n = sn_ops[op].min_in + below(g, sn_ops[op].max_in - sn_ops[op].min_in + 1);
    const sn_dim *last = &in[0]->shape[in[0]->rank - 1];
    for (int i = 1; i < n; i++) in[i] = like(g, SN_F64, 1, last);
    return sn_node_new(g->m, op, n, in, SN_ATTRS(SN_FLT(eps, 1e-3)));
}

static sn_node *make_product(gen *g, sn_op op) { /* linear, matmul, gemm */
    sn_node *in[3] = {pick(g, FLOATS, op == SN_OP_gemm ? 2 : 1)};
    sn_dim shape[2] = {in[0]->shape[in[0]->rank - 1], random_dim(g)};
    if (op == SN_OP_linear) {
        shape[1] = shape[0];
        shape[0] = random_dim(g);
    }
    in[1] = like(g, (sn_dtype)in[0]->dtype, 2, shape);
    in[2] = like(g, (sn_dtype)in[0]->dtype, 1, &shape[0]);
    return sn_node_new(g->m, op, op == SN_OP_linear ? 2 + below(g, 2) : 2, in, SN_NO_ATTRS);
}

static sn_node *make_embedding(gen *g, sn_op op) {
    sn_dim table[2] = {1 + below(g, 5), random_dim(g)}, shape[4];
    if (g->open && chance(g, 50)) table[0] = open_dim(g);
    int rank = random_shape(g, 2, shape);
    sn_node *in[] = {like(g, SN_F64, 2, table), new_index(g, table[0], rank, shape)};
    return sn_node_new(g->m, op, 2, in, SN_NO_ATTRS);
}

static sn_node *make_one_hot(gen *g, sn_op op) {
    sn_node *x = pick(g, 1 << SN_I32 | 1 << SN_I64, 0);
    sn_dim size = random_dim(g);
    return sn_node_new(g->m, op, 1, &x, SN_ATTRS(SN_LIST(size, 1, &size), SN_INT(dtype, SN_F64)));
}

static sn_node *make_rope(gen *g, sn_op op) {
    sn_dim shape[3] = {random_dim(g), random_dim(g), 2 * (1 + below(g, 3))};
    sn_node *in[] = {like(g, SN_F64, 3, shape), like(g, SN_I32, 1, &shape[1])};
    return sn_node_new(g->m, op, 2, in, SN_ATTRS(SN_INT(interleaved, below(g, 2))));
}

static sn_node *make_sinusoid(gen *g, sn_op op) {
    sn_dim t = random_dim(g), size = 2 * (1 + below(g, 3));
    sn_node *pos = like(g, SN_I32, 1, &t);
    return sn_node_new(
        g->m, op, 1, &pos,
        SN_ATTRS(SN_LIST(size, 1, &size), SN_INT(vaswani, below(g, 2)), SN_INT(dtype, SN_F64)));
}

static sn_node *make_cross_entropy(gen *g, sn_op op) {
    sn_node *x = pick(g, FLOATS, 1);
    sn_node *in[] = {x, like(g, SN_I32, x->rank - 1, x->shape)};
    return sn_node_new(g->m, op, 2, in, SN_NO_ATTRS);
}

static sn_node *make_dropout(gen *g, sn_op op) {
    static const sn_dim two = 2;
    sn_node *in[] = {pick(g, FLOATS, 0), new_leaf(g, SN_I64, 1, &two)};
    return sn_node_new(g->m, op, 2, in,
                       SN_ATTRS(SN_FLT(rate, 0.25 * below(g, 5)), SN_INT(stream, below(g, 2))));
}

/* score + c (q - k), or score * table[h] */
static sn_region *make_score(gen *g, int n_captured, const sn_dim *heads) {
    sn_node *a[6] = {sn_arg(g->m, 0, SN_F64, 0, NULL)};
    for (int i = 1; i < 5; i++) a[i] = sn_arg(g->m, i, SN_I32, 0, NULL);
    sn_node *away = sn_b_cast(sn_b_binary(SN_OP_sub, a[3], a[4]), SN_F64), *out;
    if (n_captured) {
        a[5] = sn_arg(g->m, 5, SN_F64, 1, heads);
        out = sn_b_binary(SN_OP_mul, a[0], SN_NODE(g->m, gather_nd, SN_NO_ATTRS, a[5], a[2]));
    } else
        out = sn_b_binary(SN_OP_add, a[0], sn_b_scalar(SN_OP_mul, away, 0.25 * below(g, 3)));
    return sn_region_new(g->m, 5 + n_captured, a, 1, &out);
}

/* k <= q + c, or q + T - U; or a window */
static sn_region *make_mask(gen *g, int n_captured, const sn_dim *heads) {
    sn_node *a[5];
    for (int i = 0; i < 4; i++) a[i] = sn_arg(g->m, i, SN_I32, 0, NULL);
    if (n_captured) a[4] = sn_arg(g->m, 4, SN_F64, 1, heads);
    sn_node *last;
    if (g->open && chance(g, 50)) /* an offset that may be negative */
        last = sn_b_binary(SN_OP_add, a[2], sn_b_dim(g->m, SN_I32, open_dim(g)));
    else
        last = sn_b_scalar(SN_OP_add, a[2], (double)below(g, 3) - 1);
    sn_node *out = sn_b_binary(SN_OP_le, a[3], last);
    if (chance(g, 40))
        out = sn_b_binary(SN_OP_and, out,
                          sn_b_scalar(SN_OP_lt, sn_b_binary(SN_OP_sub, a[2], a[3]), 2));
    return sn_region_new(g->m, 4 + n_captured, a, 1, &out);
}

static sn_node *make_attention(gen *g, sn_op op) {
    sn_dim group = 1 + below(g, 2), kv_heads = 1 + below(g, 2), heads = group * kv_heads;
    sn_dim tq = random_dim(g), tk = random_dim(g), width = 1 + below(g, 3);
    sn_dim q[] = {1 + below(g, 2), heads, tq, width}, k[] = {q[0], kv_heads, tk, width};
    sn_dim v[] = {q[0], kv_heads, tk, 1 + below(g, 3)};
    int n_captured = below(g, 2), n = 0;
    sn_node *in[] = {like(g, SN_F64, 4, q), like(g, SN_F64, 4, k), like(g, SN_F64, 4, v),
                     like(g, SN_F64, 1, &heads)};
    sn_attr attrs[3];
    if (chance(g, 50)) attrs[n++] = SN_FLT(scale, 0.5);
    if (chance(g, 60)) attrs[n++] = SN_REG(score, make_score(g, n_captured, &heads));
    if (chance(g, 60)) attrs[n++] = SN_REG(mask, make_mask(g, n_captured, &heads));
    sn_node *y = sn_node_new(g->m, op, 3 + n_captured, in, n, attrs);
    if (op == SN_OP_flash) {
        keep(g, sn_b_result(y, 1));
        y = sn_b_result(y, 0);
    }
    return y;
}

static sn_node *make_pack_b(gen *g, sn_op op) {
    sn_dim shape[2] = {1 + below(g, 3), 1 + below(g, 3)};
    sn_node *x = like(g, SN_F64, 2, shape);
    int64_t sum = below(g, 2), n = shape[1 - sum];
    sn_attr attr[] = {SN_LIST(contract_b, 1, &sum), SN_INT(pair, n / 2)};
    return sn_node_new(g->m, op, 1, &x, n % 2 ? 1 : 2, attr);
}

/* ---- the table ---- */

static sn_node *(*const makers[SN_OP_COUNT])(gen *, sn_op) = {
#define ELEM(name, ...) [SN_OP_##name] = make_elem,
#include "ir/ops.def"
    [SN_OP_const] = make_const,
    [SN_OP_dim_value] = make_dim_value,
    [SN_OP_iota] = make_iota,
    [SN_OP_random] = make_random,
    [SN_OP_broadcast] = make_broadcast,
    [SN_OP_reshape] = make_reshape,
    [SN_OP_transpose] = make_transpose,
    [SN_OP_slice] = make_slice,
    [SN_OP_concat] = make_concat,
    [SN_OP_pad] = make_pad,
    [SN_OP_update_slice] = make_update_slice,
    [SN_OP_update_rows] = make_update_rows,
    [SN_OP_reduce_sum] = make_reduce,
    [SN_OP_reduce_max] = make_reduce,
    [SN_OP_reduce_min] = make_reduce,
    [SN_OP_argmax] = make_on_axis,
    [SN_OP_cumsum] = make_on_axis,
    [SN_OP_argsort] = make_on_axis,
    [SN_OP_dot] = make_dot,
    [SN_OP_gather] = make_gather,
    [SN_OP_scatter_add] = make_scatter_add,
    [SN_OP_gather_nd] = make_at,
    [SN_OP_take_blocks] = make_take_blocks,
    [SN_OP_grouped_dot] = make_grouped,
    [SN_OP_ragged_dot] = make_grouped,
    [SN_OP_scatter_nd_add] = make_at,
    [SN_OP_relu] = make_activation,
    [SN_OP_silu] = make_activation,
    [SN_OP_softplus] = make_activation,
    [SN_OP_mean] = make_reduce,
    [SN_OP_variance] = make_reduce,
    [SN_OP_softmax] = make_on_axis,
    [SN_OP_log_softmax] = make_on_axis,
    [SN_OP_logsumexp] = make_on_axis,
    [SN_OP_layer_norm] = make_norm,
    [SN_OP_rms_norm] = make_norm,
    [SN_OP_linear] = make_product,
    [SN_OP_matmul] = make_product,
    [SN_OP_gemm] = make_product,
    [SN_OP_embedding] = make_embedding,
    [SN_OP_one_hot] = make_one_hot,
    [SN_OP_rope] = make_rope,
    [SN_OP_sinusoid] = make_sinusoid,
    [SN_OP_attention] = make_attention,
    [SN_OP_flash] = make_attention,
    [SN_OP_cross_entropy] = make_cross_entropy,
    [SN_OP_dropout] = make_dropout,
    [SN_OP_pack_b] = make_pack_b,
};

/* Whether a rounding error can change a result by more than a few roundings. Ops without a gradient are among
 * them: comparisons, floor, orders. */
static bool may_jump(sn_op op) {
    return (sn_ops[op].flags & SN_OPF_NOGRAD) || op == SN_OP_mod || op == SN_OP_cast;
}

/* Most graphs use few ops, so that these interact (swarm testing, Groce et al. 2012). Those with `products`
 * are compared although each rounds in another order, and so have no jumps. */
static void choose_ops(gen *g, bool products) {
    sn_op all[SN_OP_COUNT];
    int n = 0, few = 2 + below(g, 6);
    for (int op = 0; op < SN_OP_COUNT; op++) {
        bool big = sn_ops[op].kind == SN_COMP || sn_ops[op].kind == SN_FUSED;
        bool fits = (!big || g->composite) && !(products && may_jump((sn_op)op));
        if (makers[op] && fits) all[n++] = (sn_op)op;
    }
    if (chance(g, 30)) few = n;
    for (; g->n_op < few; g->n_op++) g->op[g->n_op] = few == n ? all[g->n_op] : all[below(g, n)];
}

sn_module *fuzz_graph(uint64_t seed, fuzz_kind kind) {
    const bool open = kind == FUZZ_OPEN, products = kind == FUZZ_PRODUCTS;
    gen g = {.m = sn_module_new("fuzz"), .r = {seed}, .open = open};
    if (!g.m) return NULL;
    sn_module_set_raw(g.m, true);
    g.composite = products || seed % 2 == 0;
    const sn_dtype floats = products ? SN_F32 : SN_F64;
    g.allowed = g.composite ? 1 << floats | 1 << SN_I32 | 1 << SN_I64 | BOOLS : ANY;
    g.t = sn_symbol_add(g.m, "T", open ? 0 : below(&g, 2), open ? 6 : 3);
    if (open) g.u = sn_symbol_add(g.m, "U", 0, 4);
    choose_ops(&g, products);
    if (products) g.op[0] = SN_OP_dot, g.op[1] = below(&g, 2) ? SN_OP_linear : SN_OP_matmul;
    int steps = 2 + below(&g, 22);
    for (int i = 0; i < steps && !sn_module_error(g.m)->code; i++) {
        sn_op op = g.op[below(&g, g.n_op)];
        keep(&g, makers[op](&g, op));
    }
    if (!g.n) new_leaf(&g, SN_F64, 0, NULL);
    sn_entry *e = sn_entry_add(g.m, "f");
    int n_out = 1 + below(&g, 3);
    for (int i = 0; i < n_out; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        sn_entry_output(g.m, e, name, g.pool[i ? below(&g, g.n) : g.n - 1]);
    }
    return g.m;
}
