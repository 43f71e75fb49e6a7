/* decomp_fused.c: the decompositions of fused kernels: their regions around the central primitive.
 * (flash is in decomp_attention.c.) */
#include "ir/decomp_impl.h"

#include <string.h>

int sn_panel_columns(sn_dtype t) {
    enum { PANEL_BYTES = 128 };
    return PANEL_BYTES / (int)sn_dtype_size(t == SN_F64 ? SN_F64 : SN_F32);
}

bool sn_dc_open_region(decomp *c, const sn_region *r, const char *what, int n_arg,
                       sn_node *const *arg) {
    if (r->n_arg != n_arg || r->n_out > SN_MAX_RESULTS)
        return sn_dc_fail(c, "its %s takes %d operands and gives %d, but has %d", what, r->n_arg,
                          r->n_out, n_arg);
    for (int i = 0; i < n_arg; i++)
        if (r->arg[i]->dtype != arg[i]->dtype || r->arg[i]->rank != arg[i]->rank ||
            (arg[i]->rank &&
             memcmp(r->arg[i]->shape, arg[i]->shape, sizeof(sn_dim) * arg[i]->rank)))
            return sn_dc_fail(c, "argument %d of its %s has another type than the operand", i,
                              what);
    sn_region_inline(r, arg, c->out);
    c->n_out = r->n_out;
    return !c->m->error.code;
}

bool decomp_map_reduce(decomp *c) {
    const sn_attr *body = sn_dc_attr(c, SN_A_body);
    if (!body) return sn_dc_fail(c, "attribute 'body' is missing");
    return sn_dc_open_region(c, body->r, "body", c->n_in, c->in);
}

bool decomp_primitive(decomp *c) {
    return decomp_map_reduce(c);
}

/* The number of row blocks only affects the order of sums over rows. */
bool decomp_row_blocked(decomp *c) {
    return decomp_map_reduce(c);
}

/* Axes of the right factor in the order of its matrix [K, N]: contracted axes, then the others; K
 * and N are their products. */
static bool matrix_order(decomp *c, int rank, const sn_dim *shape, int64_t *perm, sn_dim *k,
                         sn_dim *n) {
    const sn_attr *contract = sn_dc_attr(c, SN_A_contract_b);
    int at = 0;
    unsigned seen = 0;
    *k = *n = 1;
    for (int i = 0; contract && i < contract->n; i++) {
        int64_t axis = contract->v[i];
        if (axis < 0 || axis >= rank || seen & 1u << axis)
            return sn_dc_fail(
                c, "axis %lld to contract does not exist in the right factor, or is listed twice",
                (long long)axis);
        perm[at++] = axis;
        seen |= 1u << axis;
        *k = sn_dim_mul(c->m, *k, shape[axis]);
    }
    for (int a = 0; a < rank; a++)
        if (!(seen & 1u << a)) {
            perm[at++] = a;
            *n = sn_dim_mul(c->m, *n, shape[a]);
        }
    return true;
}

enum { FOUR_BIT = 8 }; /* numbers per i32 */

/* The lowest 4 bits of integers, from -8 to 7. */
static sn_node *signed_nibble(sn_node *x) {
    x = sn_b_scalar(SN_OP_mod, sn_b_scalar(SN_OP_add, x, 8), 16);
    return sn_b_scalar(SN_OP_sub, x, 8);
}

/* The 4 bits of doubled floats of 4 bits, i32: the largest of three lines is each magnitude. */
static sn_node *fp4_code(sn_node *x) {
    sn_node *a = sn_b_unary(SN_OP_abs, x);
    sn_node *half = sn_b_scalar(SN_OP_div, sn_b_scalar(SN_OP_add, a, 4), 2);
    sn_node *quarter = sn_b_scalar(SN_OP_div, sn_b_scalar(SN_OP_add, a, 16), 4);
    a = sn_b_binary(SN_OP_min, a, sn_b_binary(SN_OP_min, half, quarter));
    return sn_b_select(sn_b_scalar(SN_OP_lt, x, 0), sn_b_scalar(SN_OP_add, a, 8), a);
}

/* Back from the lowest 4 bits. */
static sn_node *fp4_value(sn_node *x) {
    sn_node *a = sn_b_scalar(SN_OP_and, x, 7);
    sn_node *twice = sn_b_scalar(SN_OP_sub, sn_b_scalar(SN_OP_mul, a, 2), 4);
    sn_node *four = sn_b_scalar(SN_OP_sub, sn_b_scalar(SN_OP_mul, a, 4), 16);
    a = sn_b_binary(SN_OP_max, a, sn_b_binary(SN_OP_max, twice, four));
    sn_node *plus = sn_b_scalar(SN_OP_lt, sn_b_scalar(SN_OP_and, x, 15), 8);
    return sn_b_select(plus, a, sn_b_unary(SN_OP_neg, a));
}

/* x [.., 8, columns] of 4-bit integers as words [.., columns]: the last number carries the sign. */
static sn_node *join_words(decomp *c, sn_node *x) {
    x = sn_b_cast(x, SN_I32);
    if (sn_dc_int(c, SN_A_nibble, 0) == SN_NIBBLE_FP4) x = fp4_code(x);
    int64_t axis = x->rank - 2;
    sn_node *sum = NULL;
    double weight = 1;
    for (int64_t j = 0; j < FOUR_BIT; j++, weight *= 16) {
        sn_node *part = sn_b_slice(x, (int)axis, j, 1);
        part = sn_b_scalar(SN_OP_and, part, 15);
        if (j + 1 == FOUR_BIT) part = signed_nibble(part);
        part = sn_b_scalar(SN_OP_mul, part, weight);
        sum = sum ? sn_b_binary(SN_OP_add, sum, part) : part;
    }
    return sum;
}

/* The 8 numbers of every word [panels, k / 8, columns]: [panels, k, columns]. */
static sn_node *split_words(decomp *c, sn_node *words) {
    const int64_t nibble = sn_dc_int(c, SN_A_nibble, 0);
    const sn_dim one[] = {words->shape[0], words->shape[1], 1, words->shape[2]};
    sn_node *part[FOUR_BIT], *w = sn_b_reshape(words, 4, one);
    double weight = 1;
    for (int j = 0; j < FOUR_BIT; j++, weight *= 16) {
        sn_node *v = sn_b_scalar(SN_OP_div, w, weight); /* rounds towards -inf */
        part[j] = nibble == SN_NIBBLE_FP4        ? fp4_value(v)
                  : nibble == SN_NIBBLE_UNSIGNED ? sn_b_scalar(SN_OP_and, v, 15)
                                                 : signed_nibble(v);
    }
    sn_node *all = sn_node_new(c->m, SN_OP_concat, FOUR_BIT, part, SN_ATTRS(SN_INT(axis, 2)));
    const sn_dim shape[] = {words->shape[0], sn_dim_mul(c->m, words->shape[1], FOUR_BIT),
                            words->shape[2]};
    return sn_b_reshape(all, 3, shape);
}

enum { EIGHT_BIT = 4 }; /* numbers per i32 */

/* x [panels, 4 k, columns] of 8-bit integers as words [panels, 1 + k, columns]: first the sums of
 * the columns times -128, then 4 numbers a word, whose last carries the sign. */
static sn_node *join_quads(decomp *c, sn_node *x) {
    const int64_t rows = 1;
    const sn_dim k = x->shape[1] / EIGHT_BIT;
    x = sn_b_cast(x, SN_I32);
    sn_node *sum = sn_b_scalar(SN_OP_mul, sn_b_reduce(SN_OP_reduce_sum, x, 1, &rows), -128);
    sn_node *all = NULL;
    x = sn_b_reshape(x, 4, (const sn_dim[]){x->shape[0], k, EIGHT_BIT, x->shape[2]});
    double weight = 1;
    for (int64_t j = 0; j < EIGHT_BIT; j++, weight *= 256) {
        sn_node *part = sn_b_slice(x, 2, j, 1);
        if (j + 1 < EIGHT_BIT) part = sn_b_scalar(SN_OP_and, part, 255);
        part = sn_b_scalar(SN_OP_mul, part, weight);
        all = all ? sn_b_binary(SN_OP_add, all, part) : part;
    }
    sn_node *both[] = {sum, sn_b_reshape(all, 3, (const sn_dim[]){x->shape[0], k, x->shape[3]})};
    return sn_b_concat(c->m, 2, both, 1);
}

/* The numbers of such words: [panels, 4 k, columns]. */
static sn_node *split_quads(decomp *c, sn_node *words) {
    const sn_dim k = words->shape[1] - 1;
    words = sn_b_slice(words, 1, 1, k);
    const sn_dim one[] = {words->shape[0], k, 1, words->shape[2]};
    sn_node *part[EIGHT_BIT], *w = sn_b_reshape(words, 4, one);
    double weight = 1;
    for (int j = 0; j < EIGHT_BIT; j++, weight *= 256) {
        sn_node *v = sn_b_scalar(SN_OP_div, w, weight); /* rounds towards -inf */
        v = sn_b_scalar(SN_OP_and, sn_b_scalar(SN_OP_add, v, 128), 255);
        part[j] = sn_b_scalar(SN_OP_sub, v, 128);
    }
    sn_node *all = sn_b_concat(c->m, EIGHT_BIT, part, 2);
    return sn_b_reshape(all, 3, (const sn_dim[]){words->shape[0], EIGHT_BIT * k, words->shape[2]});
}

/* x [K, N] with zeros below, up to a multiple of n rows. */
static sn_node *pad_rows(decomp *c, sn_node *x, int64_t n) {
    int64_t k = 0;
    if (!sn_dc_number(c, "the number of rows", x->shape[0], &k)) return x;
    sn_dim low[2] = {0}, high[2] = {(n - k % n) % n};
    return SN_NODE(c->m, pad,
                   SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, 2, low), SN_LIST(high, 2, high)), x);
}

/* Panels x [P, n size, columns] as [P, n, size, columns]. */
static sn_node *grouped(decomp *c, sn_node *x, int64_t size) {
    int64_t rows;
    if (x->rank != 3 || !sn_dim_is_const(c->m, x->shape[1], &rows) || rows % size) {
        sn_dc_fail(c, "%lld rows do not fit its groups", (long long)size);
        return x;
    }
    return sn_b_reshape(x, 4, (const sn_dim[]){x->shape[0], rows / size, size, x->shape[2]});
}

static sn_node *ungrouped(decomp *c, sn_node *x) {
    sn_dim rows = sn_dim_mul(c->m, x->shape[1], x->shape[2]);
    return sn_b_reshape(x, 3, (const sn_dim[]){x->shape[0], rows, x->shape[3]});
}

/* The factors of operand 2: panels [P, n, {scale} or {scale, minimum}, columns], times those of
 * operand 3, which `many` groups share. */
static sn_node *group_factors(decomp *c, int64_t parts, int64_t many) {
    sn_node *f = grouped(c, sn_b_cast(c->in[2], SN_F32), parts);
    if (many < 1 || c->m->error.code) return f;
    sn_node *s = grouped(c, sn_b_cast(c->in[3], SN_F32), parts);
    if (c->m->error.code || sn_dim_mul(c->m, s->shape[1], many) != f->shape[1]) {
        sn_dc_fail(c, "the factors have the wrong shape");
        return f;
    }
    const sn_dim *d = f->shape;
    f = sn_b_reshape(f, 5, (const sn_dim[]){d[0], s->shape[1], many, parts, d[3]});
    s = sn_b_reshape(s, 5, (const sn_dim[]){d[0], s->shape[1], 1, parts, d[3]});
    return sn_b_reshape(sn_b_binary(SN_OP_mul, f, s), 4, d);
}

/* Panels [P, K, columns]: integers times their groups' scales, plus minima. */
static sn_node *scale_groups(decomp *c, int64_t group) {
    int64_t parts = sn_dc_int(c, SN_A_minima, 0) ? 2 : 1, super = sn_dc_int(c, SN_A_super, 0);
    sn_node *x = c->in[1]->dtype == SN_I32 ? split_words(c, c->in[1]) : c->in[1];
    x = grouped(c, sn_b_cast(x, SN_F32), group);
    if (c->m->error.code) return NULL;
    sn_node *f = group_factors(c, parts, super / group);
    if (c->m->error.code) return NULL;
    if (f->shape[1] != x->shape[1]) {
        sn_dc_fail(c, "the scales have the wrong shape");
        return NULL;
    }
    x = sn_b_binary(SN_OP_mul, x, sn_b_slice(f, 2, 0, 1));
    if (parts > 1) x = sn_b_binary(SN_OP_add, x, sn_b_slice(f, 2, 1, 1));
    return ungrouped(c, x);
}

/* Panels whose halves are {pair} columns apart: the columns form blocks of two halves, and
 * each half fills half panels. */
static bool find_pairs(decomp *c, int64_t n, int64_t half, int64_t *pair, int64_t *parts) {
    *pair = sn_dc_int(c, SN_A_pair, 0);
    *parts = (*pair + half - 1) / half;
    if (*pair > 0 && n % (2 * *pair) == 0 && (n == 2 * *pair || *pair % half == 0)) return true;
    return sn_dc_fail(c, "N=%lld is not a multiple of 2 × pair distance (%lld)", (long long)n,
                      (long long)*pair);
}

static sn_node *pad_columns(decomp *c, sn_node *x, sn_dim to) {
    const int axis = x->rank - 1;
    sn_dim low[4] = {0}, high[4] = {0};
    high[axis] = sn_dim_sub(c->m, to, x->shape[axis]);
    return SN_NODE(
        c->m, pad,
        SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, x->rank, low), SN_LIST(high, x->rank, high)), x);
}

/* The columns of x [K, n] in the order of these panels, zero-padded. */
static sn_node *pair_columns(decomp *c, sn_node *x, int64_t n, int64_t half) {
    int64_t pair, parts;
    if (!find_pairs(c, n, half, &pair, &parts)) return NULL;
    const sn_dim k = x->shape[0], blocks = n / (2 * pair);
    x = sn_b_reshape(x, 4, (const sn_dim[]){k, blocks, 2, pair});
    x = pad_columns(c, x, parts * half);
    x = sn_b_reshape(x, 5, (const sn_dim[]){k, blocks, 2, parts, half});
    x = sn_b_transpose(x, 5, (const int64_t[]){0, 1, 3, 2, 4});
    return sn_b_reshape(x, 2, (const sn_dim[]){k, blocks * parts * 2 * half});
}

/* The inverse: x [K, columns of all panels] as [K, n]. */
static sn_node *part_columns(decomp *c, sn_node *x, int64_t n, int64_t half) {
    int64_t pair, parts;
    if (!find_pairs(c, n, half, &pair, &parts)) return NULL;
    const sn_dim k = x->shape[0], blocks = n / (2 * pair);
    x = sn_b_reshape(x, 5, (const sn_dim[]){k, blocks, parts, 2, half});
    x = sn_b_transpose(x, 5, (const int64_t[]){0, 1, 3, 2, 4});
    x = sn_b_reshape(x, 4, (const sn_dim[]){k, blocks, 2, parts * half});
    return sn_b_reshape(sn_b_slice(x, 3, 0, pair), 2, (const sn_dim[]){k, n});
}

/* Panels [P, k, width] of x [k, n]. */
static sn_node *in_panels(decomp *c, sn_node *x, int64_t n, int64_t width) {
    sn_dim k = x->shape[0], panels = n / width + (n % width != 0);
    if (sn_dc_attr(c, SN_A_pair) && !(x = pair_columns(c, x, n, width / 2))) return NULL;
    x = pad_columns(c, x, sn_dim_mul(c->m, panels, width));
    if (c->m->error.code) return NULL;
    x = sn_b_reshape(x, 3, (const sn_dim[]){k, panels, width});
    return sn_b_transpose(x, 3, (const int64_t[]){1, 0, 2});
}

/* pack_b's prologue: *x becomes what is packed; numbers of groups are results, some in panels. */
static bool open_pack_prologue(decomp *c, sn_node **x) {
    const sn_attr *pro = sn_dc_attr(c, SN_A_prologue);
    int64_t panels = sn_dc_int(c, SN_A_panels, 0), n;
    if (!pro) return true;
    if (!sn_dc_open_region(c, pro->r, "prologue", 1, x)) return false;
    if (c->out[0]->rank != (*x)->rank || panels >= c->n_out)
        return sn_dc_fail(c, "its prologue does not give a matrix of the operand's shape");
    *x = c->out[0];
    for (int i = 1; i <= panels; i++) {
        sn_node *f = c->out[i];
        if (f->rank != (*x)->rank || f->shape[f->rank - 1] != 1 ||
            !sn_dc_number(c, "the number of columns", f->shape[0], &n))
            return sn_dc_fail(c, "numbers of groups have the shape [N, groups, 1]");
        sn_dim groups = sn_dim_product(c->m, f->rank - 1, f->shape + 1);
        f = sn_b_reshape(f, 2, (const sn_dim[]){f->shape[0], groups});
        f = sn_b_transpose(f, 2, (const int64_t[]){1, 0});
        c->out[i] = in_panels(c, f, n, sn_panel_columns((sn_dtype)(*x)->dtype));
        if (!c->out[i]) return false;
    }
    return true;
}

/* Panels [P, 2 k, width] as [P, k, 2 width]: both elements of each column. */
static sn_node *join_pairs(sn_node *x) {
    const sn_dim p = x->shape[0], k = x->shape[1] / 2, width = x->shape[2];
    x = sn_b_reshape(x, 4, (const sn_dim[]){p, k, 2, width});
    x = sn_b_transpose(x, 4, (const int64_t[]){0, 1, 3, 2});
    return sn_b_reshape(x, 3, (const sn_dim[]){p, k, 2 * width});
}

static sn_node *split_pairs(sn_node *x) {
    const sn_dim p = x->shape[0], k = x->shape[1], width = x->shape[2] / 2;
    x = sn_b_reshape(x, 4, (const sn_dim[]){p, k, width, 2});
    x = sn_b_transpose(x, 4, (const int64_t[]){0, 1, 3, 2});
    return sn_b_reshape(x, 3, (const sn_dim[]){p, 2 * k, width});
}

bool decomp_pack_b(decomp *c) {
    if (c->n_in != 1 && !sn_dc_attr(c, SN_A_prologue))
        return sn_dc_fail(c, "exactly one operand is required");
    sn_node *x = c->n_in > 1 ? sn_b_concat(c->m, c->n_in, c->in, 0) : c->in[0];
    if (c->m->error.code) return false;
    int64_t perm[SN_MAX_RANK], n;
    sn_dim k, columns;
    if (!open_pack_prologue(c, &x)) return false;
    const int64_t width = sn_panel_columns((sn_dtype)x->dtype);
    if (!matrix_order(c, x->rank, x->shape, perm, &k, &columns) ||
        !sn_dc_number(c, "the number of columns", columns, &n))
        return false;
    bool words = sn_dc_int(c, SN_A_group, 0) > 0;
    bool quads = sn_dc_int(c, SN_A_quads, 0) > 0;
    bool pairs = sn_dc_attr(c, SN_A_compute);
    if (quads) x = sn_b_cast(x, SN_I8);
    if (!words && !quads) x = sn_b_cast(x, (sn_dtype)sn_dc_int(c, SN_A_dtype, x->dtype));
    x = sn_b_reshape(sn_b_transpose(x, x->rank, perm), 2, (const sn_dim[]){k, n});
    if (quads) x = pad_rows(c, x, EIGHT_BIT);
    if (pairs) x = pad_rows(c, x, 2);
    if (c->m->error.code || !(x = in_panels(c, x, n, width))) return false;
    if (quads) x = join_quads(c, x);
    if (pairs) x = join_pairs(x);
    if (words) {
        const sn_dim panels = x->shape[0];
        int64_t rows;
        if (!sn_dc_number(c, "the number of rows", k, &rows)) return false;
        if (rows % FOUR_BIT) return sn_dc_fail(c, "K is not a multiple of %d", FOUR_BIT);
        x = sn_b_reshape(x, 4, (const sn_dim[]){panels, rows / FOUR_BIT, FOUR_BIT, width});
        x = sn_b_reshape(join_words(c, x), 3, (const sn_dim[]){panels, rows / FOUR_BIT, width});
    }
    c->out[0] = x;
    return !c->m->error.code;
}

/* Unpacks panels [P, K, width] into a tensor of shape {packed}. */
static sn_node *unpack(decomp *c, sn_node *panels, int width, const sn_attr *packed,
                       bool integers) {
    int64_t perm[SN_MAX_RANK], back[SN_MAX_RANK];
    sn_dim k, n, shape[SN_MAX_RANK];
    const bool pairs = sn_dc_attr(c, SN_A_compute);
    if (pairs && panels->rank == 3 && panels->shape[2] == 2 * width) panels = split_pairs(panels);
    if (panels->rank != 3 || panels->shape[2] != width || packed->n > SN_MAX_RANK) {
        sn_dc_fail(c, "a packed right factor has the shape [panels, k, %d]", width);
        return NULL;
    }
    if (!matrix_order(c, packed->n, packed->v, perm, &k, &n)) return NULL;
    if (integers) panels = split_quads(c, panels);
    if (integers || pairs) panels = sn_b_slice(panels, 1, 0, k);
    sn_node *x = sn_b_transpose(panels, 3, (const int64_t[]){1, 0, 2});
    x = sn_b_reshape(x, 2, (const sn_dim[]){k, sn_dim_mul(c->m, panels->shape[0], width)});
    if (sn_dc_attr(c, SN_A_pair)) {
        int64_t columns;
        if (!sn_dc_number(c, "the number of columns", n, &columns)) return NULL;
        if (!(x = part_columns(c, x, columns, width / 2))) return NULL;
    } else
        x = sn_b_slice(x, 1, 0, n);
    for (int i = 0; i < packed->n; i++) {
        shape[i] = packed->v[perm[i]];
        back[perm[i]] = i;
    }
    return sn_b_transpose(sn_b_reshape(x, packed->n, shape), packed->n, back);
}

/* Operands: left, right, with {group} its factors, with {super} theirs, with {blocks} indices, {n_pro}
 * of the prologue, the rest for the epilogue, whose last argument is the prologue's second result, if it
 * has one. The product is a dot with the node's batch and contract axes, by default the last of
 * the left and the first of the right factor. {packed}: the right factor is packed in panels and
 * had that shape before. */
static bool decomp_product(decomp *c, int first) {
    const sn_attr *pro = sn_dc_attr(c, SN_A_prologue), *epi = sn_dc_attr(c, SN_A_epilogue);
    const sn_attr *packed = sn_dc_attr(c, SN_A_packed);
    int64_t n_pro_attr = sn_dc_int(c, SN_A_n_pro, 0), group = sn_dc_int(c, SN_A_group, 0);
    if (n_pro_attr < 0 || n_pro_attr > c->n_in - first)
        return sn_dc_fail(c, "operands are missing");
    int n_pro = (int)n_pro_attr;
    sn_node *left = c->in[0], *right = c->in[1], *of_rows = NULL;
    sn_node **arg = sn_arena_alloc(c->m, sizeof *arg * (size_t)(c->n_in + 1));
    if (pro) {
        arg[0] = left;
        if (n_pro) memcpy(arg + 1, c->in + first, sizeof *arg * (size_t)n_pro);
        if (!sn_dc_open_region(c, pro->r, "prologue", 1 + n_pro, arg)) return false;
        left = c->out[0];
        if (c->n_out > 1) of_rows = c->out[1];
    }
    if (group > 0 && !packed) return sn_dc_fail(c, "scales need a packed right factor");
    if (sn_dc_attr(c, SN_A_pair) && !packed)
        return sn_dc_fail(c, "a pair distance needs a packed right factor");
    if (group > 0 && !(right = scale_groups(c, group))) return false;
    sn_dtype type = (sn_dtype)(epi && epi->r->n_arg ? epi->r->arg[0] : left)->dtype;
    if (type == SN_I8) type = group > 0 ? SN_F32 : SN_I32;
    if (sn_dc_attr(c, SN_A_compute)) type = SN_F32;
    if (packed && !(right = unpack(c, right, sn_panel_columns(type), packed, type == SN_I32)))
        return false;
    /* both may be stored in a narrower type than the product is computed in */
    left = sn_b_cast(left, type);
    right = sn_b_cast(right, type);
    int64_t last = left->rank - 1, row = 0;
    sn_attr dot[5];
    int n = 0;
    static const sn_attr_key keys[] = {SN_A_batch_a, SN_A_batch_b, SN_A_contract_a, SN_A_contract_b,
                                       SN_A_compute};
    for (int i = 0; i < 5; i++)
        if (sn_dc_attr(c, keys[i])) dot[n++] = *sn_dc_attr(c, keys[i]);
    if (!sn_dc_attr(c, SN_A_contract_a)) {
        dot[n++] = SN_LIST(contract_a, 1, &last);
        dot[n++] = SN_LIST(contract_b, 1, &row);
    }
    c->out[0] = sn_node_new(c->m, SN_OP_dot, 2, (sn_node *[]){left, right}, n, dot);
    c->n_out = 1;
    if (!epi || c->m->error.code) return !c->m->error.code;
    int n_epi = c->n_in - first - n_pro;
    arg[0] = c->out[0];
    if (n_epi) memcpy(arg + 1, c->in + first + n_pro, sizeof *arg * (size_t)n_epi);
    if (of_rows) arg[++n_epi] = of_rows;
    return sn_dc_open_region(c, epi->r, "epilogue", 1 + n_epi, arg);
}

/* {blocks}: of the columns of the result, each row keeps those that its indices name. */
bool decomp_gemm(decomp *c) {
    int64_t blocks = sn_dc_int(c, SN_A_blocks, 0);
    bool group = sn_dc_int(c, SN_A_group, 0) > 0;
    int first = 2 + group + (group && sn_dc_int(c, SN_A_super, 0) > 0) + (blocks > 0);
    if (c->n_in < first) return sn_dc_fail(c, "operands are missing");
    if (!decomp_product(c, first)) return false;
    if (blocks <= 0) return true;
    if (c->n_out != 1) return sn_dc_fail(c, "blocks are of one result");
    c->out[0] =
        SN_NODE(c->m, take_blocks, SN_ATTRS(SN_INT(blocks, blocks)), c->out[0], c->in[first - 1]);
    return !c->m->error.code;
}
