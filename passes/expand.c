/* expand.c: replaces composites by primitives, except where the level has a kernel for the whole.
 *
 * Requires nothing. Keeps values. Breaks: no COMP node is left. Records the composite that each new
 * node came from (p->origin): a level that does not fuse across the user's operations still makes
 * one kernel per composite. */
#include "passes/backend.h"
#include "passes/choice.h"
#include "passes/graph_util.h"
#include "passes/grouped.h"
#include "passes/int8_rows.h"
#include "passes/kernels/table.h"
#include "passes/passes.h"

#include <math.h>
#include <string.h>

static void set_origin(sn_passes *p, const sn_node *n, uint32_t origin) {
    if (n->id >= p->n_origin) {
        uint32_t size = 2 * sn_module_node_count(p->m) + 64;
        uint32_t *grown = sn_arena_alloc(p->m, sizeof *grown * size);
        if (p->n_origin) memcpy(grown, p->origin, sizeof *grown * p->n_origin);
        p->origin = grown;
        p->n_origin = size;
    }
    if (!p->origin[n->id]) p->origin[n->id] = origin;
}

static sn_node *expand_comp(sn_passes *p, sn_node *n, uint32_t origin);
static sn_node *rule(void *ctx, sn_node *n);

/* Row kernels reduce the last axis, column kernels any others. A reduction over both becomes two,
 * rows first; where only axes of size 1 follow the last reduced one, those are moved to the
 * front. */
static sn_node *split_reduce(sn_node *n) {
    if (!sn_reduces(n) || sn_reduces_rows(n)) return n;
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    if (!axes->n) return n->in[0];
    if (axes->n > 1 && sn_dtype_size((sn_dtype)n->dtype) == 2) { /* no rounding between the two */
        sn_node *wide = sn_b_cast(n->in[0], SN_F32);
        wide = split_reduce(sn_b_reduce((sn_op)n->op, wide, axes->n, axes->v));
        return sn_b_cast(wide, (sn_dtype)n->dtype);
    }
    int end = (int)axes->v[axes->n - 1], ones = n->rank - 1 - end;
    if (!ones) {
        sn_node *rows = sn_b_reduce((sn_op)n->op, n->in[0], 1, &axes->v[axes->n - 1]);
        return split_reduce(sn_b_reduce((sn_op)n->op, rows, axes->n - 1, axes->v));
    }
    for (int a = end + 1; a < n->rank; a++)
        if (n->shape[a] != 1) return n;
    sn_dim shape[SN_MAX_RANK];
    int64_t moved[SN_MAX_RANK];
    for (int a = 0; a < n->rank; a++) shape[a] = a < ones ? 1 : n->in[0]->shape[a - ones];
    for (int i = 0; i < axes->n; i++) moved[i] = axes->v[i] + ones;
    sn_node *x = sn_b_reshape(n->in[0], n->rank, shape);
    x = split_reduce(sn_b_reduce((sn_op)n->op, x, axes->n, moved));
    return sn_b_reshape(x, n->rank, n->shape);
}

/* x with its axes in the order batch, others, contracted, each group merged into one axis, and an
 * axis of size 1 at `one`. */
static sn_node *as_factor(sn_node *x, const sn_attr *batch, const sn_attr *contract, int one) {
    int64_t perm[SN_MAX_RANK];
    sn_dim size[3] = {1, 1, 1}, shape[4];
    unsigned used = 0;
    int n = 0;
    for (int i = 0; contract && i < contract->n; i++) used |= 1u << contract->v[i];
    for (int i = 0; batch && i < batch->n; i++) used |= 1u << (perm[n++] = batch->v[i]);
    int n_batch = n;
    for (int a = 0; a < x->rank; a++)
        if (!(used >> a & 1)) perm[n++] = a;
    int n_free = n;
    for (int i = 0; contract && i < contract->n; i++) perm[n++] = contract->v[i];
    for (int i = 0; i < n; i++) {
        sn_dim *s = &size[i < n_batch ? 0 : i < n_free ? 1 : 2];
        *s = sn_dim_mul(x->m, *s, x->shape[perm[i]]);
    }
    for (int i = 0, k = 0; i < 4; i++) shape[i] = i == one ? 1 : size[k++];
    return sn_b_reshape(sn_b_transpose(x, x->rank, perm), 4, shape);
}

/* Whether the contracted axes of a factor are its last ones, in order, and in memory: a row kernel
 * then reads contiguous elements. Constant arithmetic on parameters (integers and scales) is not. */
static bool is_row_factor(const sn_node *x, const sn_attr *contract) {
    int n = contract ? contract->n : 0;
    for (int i = 0; i < n; i++)
        if (contract->v[i] != x->rank - n + i) return false;
    while (x->op == SN_OP_reshape || x->op == SN_OP_cast) x = x->in[0];
    return n && !sn_is_view(x) && (sn_is_leaf(x) || !sn_from_params_only(x));
}

/* A product with few columns is sums along the rows of x: a panel of a GEMM would be empty but for
 * these. Short rows are left to the GEMM, whose microtiles hold several. */
static bool is_column(sn_passes *p, const sn_node *n) {
    enum { LEAST = 64, MAX_COLUMNS = 4 };
    const sn_attr *ca = sn_attr_get(n, SN_A_contract_a), *cb = sn_attr_get(n, SN_A_contract_b),
                  *batch = sn_attr_get(n, SN_A_batch_b);
    if (!sn_level_reaches(p->o.level, SN_LEVEL_ROWS) || sn_backend_wanted(p)) return false;
    int64_t columns = 1, size, k = 1;
    for (int a = 0; a < n->in[1]->rank; a++) {
        bool other = false, summed = false;
        for (int i = 0; batch && i < batch->n; i++) other |= batch->v[i] == a;
        for (int i = 0; cb && i < cb->n; i++) summed |= cb->v[i] == a;
        if (other) continue;
        if (!sn_dim_is_const(n->m, n->in[1]->shape[a], &size)) return false;
        *(summed ? &k : &columns) *= size;
    }
    return columns <= MAX_COLUMNS && k >= LEAST && is_row_factor(n->in[0], ca) &&
           is_row_factor(n->in[1], cb);
}

/* Products that row kernels compute, over [batch, rows, columns, K]: those of integers, which no
 * other kernel does except of 8 bits, and those with few columns. */
static sn_node *spell_dot(sn_passes *p, sn_node *n) {
    if (n->op != SN_OP_dot) return n;
    sn_dtype t = (sn_dtype)n->dtype;
    if (!sn_dtype_is_float(t) && sn_is_int8_product(p, n)) return n;
    bool narrow = sn_dtype_is_float(t) && sn_dtype_size(t) == 2; /* sums are f32 */
    sn_node *grouped =
        sn_group_lookup(n); /* a row kernel would have to copy the matrix of each row */
    if (grouped != n) return grouped;
    if (sn_dtype_is_float(t) && !is_column(p, n)) return n;
    sn_node *x =
        as_factor(n->in[0], sn_attr_get(n, SN_A_batch_a), sn_attr_get(n, SN_A_contract_a), 2);
    sn_node *y =
        as_factor(n->in[1], sn_attr_get(n, SN_A_batch_b), sn_attr_get(n, SN_A_contract_b), 1);
    if (narrow) x = sn_b_cast(x, SN_F32), y = sn_b_cast(y, SN_F32);
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, x, y), 1, &(int64_t){3});
    return sn_b_reshape(narrow ? sn_b_cast(sum, t) : sum, n->rank, n->shape);
}

/* The index of the first maximum: the smallest index whose element equals the maximum. */
static sn_node *spell_argmax(sn_node *n) {
    if (n->op != SN_OP_argmax) return n;
    sn_node *x = n->in[0];
    int64_t axis = sn_attr_int(n, SN_A_axis, 0);
    sn_node *top = sn_b_reduce(SN_OP_reduce_max, x, 1, &axis);
    sn_node *hit = sn_b_binary(SN_OP_eq, x, top);
    if (sn_dtype_is_float((sn_dtype)x->dtype)) /* NaN counts as the maximum, but compares unequal */
        hit = sn_b_binary(SN_OP_or, hit, sn_b_binary(SN_OP_ne, x, x));
    sn_node *index = sn_b_iota(n->m, SN_I32, x->rank, x->shape, (int)axis);
    sn_node *none = sn_b_const(n->m, SN_I32, 2147483647.0);
    sn_node *first = sn_b_reduce(SN_OP_reduce_min, sn_b_select(hit, index, none), 1, &axis);
    return sn_b_select(sn_b_binary(SN_OP_eq, first, none), sn_b_const(n->m, SN_I32, 0), first);
}

static sn_node *spell_prim(sn_passes *p, sn_node *n) {
    return split_reduce(spell_dot(p, spell_argmax(n)));
}

/* Memo of one expansion: decompositions are small, a list is enough. */
typedef struct memo {
    sn_passes *p;
    const sn_node *top;
    uint32_t origin;
    sn_node **from, **to;
    int n, cap;
} memo;

static sn_node *expand_below(memo *w, sn_node *n) {
    for (int i = 0; i < w->top->n_in; i++)
        if (w->top->in[i] == n) return n;
    for (int i = 0; i < w->n; i++)
        if (w->from[i] == n) return w->to[i];
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 1));
    for (int i = 0; i < n->n_in; i++) in[i] = expand_below(w, n->in[i]);
    sn_node *made = n->n_in ? sn_node_with(n, in) : n;
    made = sn_ops[made->op].kind == SN_COMP ? expand_comp(w->p, made, w->origin)
                                            : spell_prim(w->p, made);
    if (w->origin && !sn_is_leaf(made)) set_origin(w->p, made, w->origin);
    int cap = w->cap; /* of both */
    w->from = sn_arena_grow(n->m, w->from, sizeof *w->from, w->n, &cap);
    w->to = sn_arena_grow(n->m, w->to, sizeof *w->to, w->n, &w->cap);
    w->from[w->n] = n;
    w->to[w->n++] = made;
    return made;
}

/* The attention kernel is specialised for the number of heads and their sizes. */
static bool flash_fits(const sn_node *n) {
    for (int i = 0; i < 3; i++)
        if (!sn_dim_is_const(n->m, n->in[i]->shape[1], NULL) ||
            !sn_dim_is_const(n->m, n->in[i]->shape[3], NULL))
            return false;
    return true;
}

static const sn_attr_key none[2] = {SN_ATTR_COUNT, SN_ATTR_COUNT};

/* n's attributes except `but`; regions are expanded to primitives. Returns their number. */
static int kernel_attrs(sn_passes *p, const sn_node *n, const sn_attr_key but[2], sn_attr *out) {
    int count = 0;
    for (int i = 0; i < n->n_attr; i++) {
        if (n->attr[i].key == but[0] || n->attr[i].key == but[1]) continue;
        sn_attr *a = &out[count++];
        *a = n->attr[i];
        if (sn_attr_table[a->key].kind != SN_AK_REGION) continue;
        sn_node **y = sn_arena_alloc(n->m, sizeof *y * (size_t)a->r->n_out);
        for (int k = 0; k < a->r->n_out; k++) y[k] = a->r->out[k];
        if (sn_rewrite(n->m, a->r->n_out, y, rule, p))
            a->r = sn_region_new(n->m, a->r->n_arg, a->r->arg, a->r->n_out, y);
    }
    return count;
}

/* Rows of 16 bits that x is widened from; NULL: it is something else. */
static sn_node *half_rows(const sn_node *x) {
    if (x->op != SN_OP_cast || x->dtype != SN_F32 || x->in[0]->dtype != SN_BF16) return NULL;
    return x->in[0];
}

const sn_node *sn_dequantised(const sn_passes *p, const sn_node *x) {
    x = sn_below_reshapes(x);
    if (x->id >= p->n_origin || !p->origin[x->id]) return NULL;
    const sn_node *n = sn_module_node(p->m, p->origin[x->id] - 1);
    return n->op == SN_OP_dequantise && sn_below_reshapes(n->decomposition) == x ? n : NULL;
}

/* Rows of int8 that x is made from, and their factors; NULL: it is something else. */
static sn_node *integer_rows(const sn_passes *p, const sn_node *x, sn_node **scale) {
    const sn_node *n = sn_dequantised(p, x);
    if (!n || n->n_in > 2 || n->rank != 4 || !sn_shapes_equal(n, x) || n->in[1]->shape[3] != 1 ||
        n->in[1]->dtype != SN_F32)
        return NULL;
    *scale = n->in[1];
    return n->in[0];
}

/* The kernel reads keys and values in fewer bits as they are stored (cache.c). Returns the number
 * of operands in `in`, whether they come with factors in *scales. */
static int narrow_operands(const sn_passes *p, const sn_node *n, sn_node **in, bool *scales) {
    sn_node *s[2], *k = integer_rows(p, n->in[1], &s[0]), *v = integer_rows(p, n->in[2], &s[1]);
    *scales = k && v;
    if (!*scales) k = half_rows(n->in[1]), v = half_rows(n->in[2]);
    in[0] = n->in[0];
    in[1] = k && v ? k : n->in[1];
    in[2] = k && v ? v : n->in[2];
    int first = 3;
    for (int i = 0; i < 2 && *scales; i++) in[first++] = s[i];
    for (int i = 3; i < n->n_in; i++) in[first + i - 3] = n->in[i];
    return first + n->n_in - 3;
}

/* Products in bf16 have f32 sums. Returns the number of attributes added. */
static int compute_attr(const sn_passes *p, const sn_node *n, sn_attr *attr) {
    if (!p->o.bf16_compute) return 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype == SN_F64) return 0;
    attr[0] = SN_INT(compute, SN_BF16);
    return 1;
}

static sn_node *expand_attention(sn_passes *p, sn_node *n) {
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 2));
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 2));
    bool scales;
    int n_attr = kernel_attrs(p, n, none, attr), n_in = narrow_operands(p, n, in, &scales);
    if (scales) attr[n_attr++] = SN_INT(row_scales, 1);
    n_attr += compute_attr(p, n, attr + n_attr);
    return sn_b_result(sn_node_new(n->m, SN_OP_flash, n_in, in, n_attr, attr), 0);
}

/* One query of a few needs no kernel for all heads: its scores are small, and the products share the
 * heads out among the threads. With `chunk` it has the kernel all the same, since products sum in another order. */
static bool mixed_fits(const sn_passes *p, const sn_node *n) {
    enum { FEW = 8 };
    int64_t rows;
    sn_dtype t = (sn_dtype)n->in[0]->dtype; /* rows are read where they are */
    return (t == SN_F32 || t == SN_F64) && n->in[1]->dtype == t && n->in[2]->dtype == t &&
           (p->o.invariant & SN_INVARIANT_CHUNK ||
            !(sn_dim_is_const(n->m, n->in[0]->shape[2], &rows) && rows < FEW));
}

static sn_node *expand_mixed_attention(sn_passes *p, sn_node *n) {
    if (!mixed_fits(p, n)) return NULL;
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    int n_attr = kernel_attrs(p, n, none, attr);
    return sn_b_result(sn_node_new(n->m, SN_OP_flash_mixed, n->n_in, n->in, n_attr, attr), 0);
}

/* Into how many parts the queries are divided, each with sums for all keys in memory: a power of
 * two, so that threads have work where the batches are few. */
static int64_t count_query_parts(const sn_node *n) {
    enum { ITEMS = 8, ROWS = 256, FEW = 96, UNKNOWN = 2 };
    int64_t batch, rows = 2 * ROWS, parts = 2;
    if (!sn_dim_is_const(n->m, n->in[0]->shape[0], &batch)) return UNKNOWN;
    sn_dim_is_const(n->m, n->in[0]->shape[2], &rows);
    while (parts * 2 * ROWS <= rows) parts *= 2;
    while (parts > 1 && parts * batch > ITEMS) parts /= 2;
    return rows < FEW ? 1 : parts;
}

/* One result of the kernel that computes all gradients. */
static sn_node *expand_mixed_attention_grad(sn_passes *p, sn_node *n) {
    static const sn_attr_key index[2] = {SN_A_index, SN_A_index};
    enum { COTANGENT = 4, MORE = 2 };
    if (!mixed_fits(p, n)) return NULL;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 1));
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 2));
    int n_attr = kernel_attrs(p, n, index, attr), which = (int)sn_attr_int(n, SN_A_index, 0);
    int64_t first = 0, second = 1, query_parts = count_query_parts(n);
    for (int i = 0; i < n->n_in - MORE; i++) in[i] = n->in[i < 3 ? i : i + MORE];
    sn_node *flash = sn_node_new(n->m, SN_OP_flash_mixed, n->n_in - MORE, in, n_attr, attr);
    for (int i = 3; i < n->n_in; i++) in[i] = n->in[i];
    in[SN_MIXED_LSE] = sn_b_result(flash, 1);
    in[SN_MIXED_COTANGENT] = n->in[COTANGENT];
    if (query_parts > 1) attr[n_attr++] = SN_INT(query_parts, query_parts);
    sn_node *all = sn_node_new(n->m, SN_OP_flash_mixed_grad, n->n_in, in, n_attr, attr);
    sn_node *parts = sn_b_result(all, which);
    if (!which) return parts;
    parts = sn_b_reduce(SN_OP_reduce_sum, parts, 1, &first);
    if (which > 2) parts = sn_b_reduce(SN_OP_reduce_sum, parts, 1, &second);
    sn_dim keys_first[4] = {n->shape[0], n->shape[2], n->shape[1], n->shape[3]};
    parts = which > 2 ? sn_b_reshape(parts, 2, n->shape)
                      : sn_b_transpose(sn_b_reshape(parts, 4, keys_first), 4,
                                       (const int64_t[]){0, 2, 1, 3});
    return sn_b_cast(parts, (sn_dtype)n->dtype);
}

/* Of the kernel that computes the attention; NULL: it is not one kernel. */
static sn_node *expand_attention_lse(sn_passes *p, sn_node *n) {
    (void)p;
    const sn_node *of = n->in[0];
    if (of->op != SN_OP_result || sn_kernel_of(of->in[0]) != &sn_kernels[SN_KERNEL_flash])
        return NULL;
    sn_node *rows = sn_b_result(of->in[0], 1), *part[2];
    for (int i = 0; i < 2; i++)
        part[i] = sn_b_slice(rows, 2, sn_dim_const(n->m, i), sn_dim_const(n->m, 1));
    return sn_b_reshape(sn_b_binary(SN_OP_add, part[0], part[1]), 4, n->shape);
}

/* A log-sum-exp in the two parts of flash, and its cotangent: [B, H, 3, Tq]. */
static sn_node *given_rows(sn_node *lse, sn_node *cotangent) {
    sn_module *m = lse->m;
    sn_dim row[4] = {lse->shape[0], lse->shape[1], 1, lse->shape[2]};
    sn_node *none = sn_b_scalar(SN_OP_eq, lse, -INFINITY);
    sn_node *empty = sn_b_const(m, (sn_dtype)lse->dtype, -INFINITY);
    sn_node *rest = sn_b_select(none, empty, sn_b_const(m, (sn_dtype)lse->dtype, 0));
    sn_node *part[3] = {lse, rest, sn_b_cast(cotangent, (sn_dtype)lse->dtype)};
    for (int i = 0; i < 3; i++) part[i] = sn_b_reshape(part[i], 4, row);
    return sn_b_concat(m, 3, part, 2);
}

/* The forward kernel that the gradient reads from: the one that computed the result, if it still
 * exists; otherwise a new one. */
static sn_node *flash_of_gradient(sn_passes *p, sn_node *n) {
    static const sn_attr_key of_gradient[2] = {SN_A_index, SN_A_wrt};
    enum { RESULT = 3, MORE = 2 };
    sn_node *made = n->in[RESULT]->op == SN_OP_result ? n->in[RESULT]->in[0] : NULL;
    bool same = made && sn_kernel_of(made) == &sn_kernels[SN_KERNEL_flash];
    for (int i = 0; i < 3 && same; i++) same = made->in[i] == n->in[i];
    if (same) return made;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * n->n_in);
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    int n_attr = kernel_attrs(p, n, of_gradient, attr);
    n_attr += compute_attr(p, n, attr + n_attr);
    for (int i = 0; i < n->n_in - MORE; i++) in[i] = n->in[i < RESULT ? i : i + MORE];
    return sn_node_new(n->m, SN_OP_flash, n->n_in - MORE, in, n_attr, attr);
}

/* The gradient of the sink: its own weight times 0 - sum(weights dp), and dp sums to out dout. What
 * flash has stored of a row is m and log l, or without softmax 1 / the divisor and its slope. */
static sn_node *sink_gradient(const sn_node *n, sn_node *flash, int operand) {
    enum { COTANGENT = 4 };
    sn_module *m = n->m;
    int64_t width = 3;
    sn_node *y = sn_b_result(flash, 0), *stored = sn_b_result(flash, 1), *part[2];
    sn_node *z = sn_b_cast(n->in[operand], (sn_dtype)stored->dtype);
    sn_node *dy = sn_b_cast(n->in[COTANGENT], (sn_dtype)stored->dtype);
    sn_node *dp = sn_b_binary(SN_OP_mul, sn_b_cast(y, (sn_dtype)stored->dtype), dy);
    dp = sn_b_reshape(sn_b_reduce(SN_OP_reduce_sum, dp, 1, &width), z->rank, z->shape);
    for (int i = 0; i < 2; i++)
        part[i] = sn_b_reshape(sn_b_slice(stored, 2, i, 1), z->rank, z->shape);
    sn_node *weight;
    if (sn_attr_int(n, SN_A_weights, SN_WEIGHTS_SOFTMAX)) {
        weight = sn_b_binary(SN_OP_mul, part[0], part[1]);
    } else {
        sn_node *log = sn_b_binary(SN_OP_sub, sn_b_binary(SN_OP_sub, z, part[0]), part[1]);
        weight = sn_b_select(sn_b_scalar(SN_OP_eq, z, -INFINITY),
                             sn_b_const(m, (sn_dtype)z->dtype, 0), sn_b_unary(SN_OP_exp, log));
    }
    dp = sn_b_unary(SN_OP_neg, sn_b_binary(SN_OP_mul, weight, dp));
    return sn_b_cast(dp, (sn_dtype)n->dtype);
}

/* One result of the kernel that computes all gradients. */
static sn_node *expand_attention_grad(sn_passes *p, sn_node *n) {
    static const sn_attr_key index[2] = {SN_A_index, SN_A_index};
    bool given = sn_attr_int(n, SN_A_lse, 0) != 0;
    sn_node *flash = given ? NULL : flash_of_gradient(p, n);
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 1));
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    int which = (int)sn_attr_int(n, SN_A_index, 0), n_attr = kernel_attrs(p, n, index, attr),
        n_in = 6;
    int sink = sn_attr_int(n, SN_A_sink, 0) ? n->n_in - 1 - (sn_attr_get(n, SN_A_rate) != NULL) : 0;
    if (sink && which == sink - 2) return sink_gradient(n, flash, sink);
    for (int i = 0; i < 3; i++) in[i] = n->in[i];
    in[3] = given ? n->in[3] : sn_b_result(flash, 0);
    in[4] = given ? given_rows(n->in[5], n->in[6]) : sn_b_result(flash, 1);
    in[5] = n->in[4];
    for (int i = given ? 7 : 5; i < n->n_in; i++) in[n_in++] = n->in[i];
    n_attr += compute_attr(p, n, attr + n_attr);
    sn_node *all = sn_node_new(n->m, SN_OP_flash_grad, n_in, in, n_attr, attr);
    if (which < 3) return sn_b_result(all, which);
    const sn_attr *wrt = sn_attr_get(n, SN_A_wrt);
    int place = 0;
    while (wrt && place < wrt->n - 1 && wrt->v[place] != which - 3) place++;
    sn_node *parts = sn_b_result(all, 3 + place);
    for (int64_t axis = 1; axis >= 0; axis--)
        parts = sn_b_reduce(SN_OP_reduce_sum, parts, 1, &axis);
    return sn_b_cast(sn_b_reshape(parts, n->rank, n->shape), (sn_dtype)n->dtype);
}

/* The composites that one kernel computes. Below its level each of their parts has an origin of its
 * own. */
static sn_node *(*const kernels[SN_OP_COUNT])(sn_passes *p, sn_node *n) = {
    [SN_OP_attention] = expand_attention,
    [SN_OP_mixed_attention] = expand_mixed_attention,
    [SN_OP_mixed_attention_grad] = expand_mixed_attention_grad,
    [SN_OP_attention_lse] = expand_attention_lse,
    [SN_OP_attention_grad] = expand_attention_grad,
};

static bool has_kernel(sn_passes *p, const sn_node *n) {
    return kernels[n->op] && sn_level_reaches(p->o.level, sn_kernels[SN_KERNEL_flash].level) &&
           !sn_backend_wanted(p) && flash_fits(n) && sn_choose(p, n) == SN_CHOOSE_FUSED;
}

static sn_node *expand_comp(sn_passes *p, sn_node *n, uint32_t origin) {
    sn_node *whole = sn_choose(p, n) == SN_CHOOSE_LIBRARY ? sn_backend_primitive(p, n) : NULL;
    if (whole) return whole;
    sn_node *kernel = has_kernel(p, n) ? kernels[n->op](p, n) : NULL;
    if (kernel) return kernel;
    if (!origin && !kernels[n->op]) origin = n->id + 1;
    memo w = {.p = p, .top = n, .origin = origin};
    return expand_below(&w, n->decomposition);
}

/* The body of a scan is expanded as an entry is. */
static sn_node *expand_scan(sn_passes *p, sn_node *n) {
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * n->n_attr);
    return sn_node_new(n->m, SN_OP_scan, n->n_in, n->in, kernel_attrs(p, n, none, attr), attr);
}

/* sn_grad makes recurrences before a level is known. Below the level of their kernel they become loops. */
static sn_node *expand_recurrence(sn_passes *p, sn_node *n) {
    const sn_node *of = n->in[0];
    if (sn_kernel_of(of) != &sn_kernels[SN_KERNEL_recurrence] || sn_attr_get(of, SN_A_prologue) ||
        sn_level_reaches(p->o.level, SN_LEVEL_ATTENTION))
        return n;
    const sn_recurrence r = sn_recurrence_of(of);
    if (!r.gradient && sn_attr_int(n, SN_A_index, 0) == sn_recurrence_states(&r))
        return n; /* loops keep theirs */
    sn_node *y = sn_recurrence_by_scan(&r, of->in, (int)sn_attr_int(n, SN_A_index, 0));
    sn_rewrite(p->m, 1, &y, rule, p);
    return y;
}

/* With the option, n has products of bf16. */
static sn_node *with_compute(const sn_passes *p, sn_node *n) {
    sn_attr attr[SN_ATTR_COUNT];
    if (!p->o.bf16_compute || n->dtype != SN_F32 || sn_attr_get(n, SN_A_compute)) return n;
    memcpy(attr, n->attr, sizeof *attr * n->n_attr);
    attr[n->n_attr] = SN_INT(compute, SN_BF16);
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr + 1, attr);
}

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    if (sn_kernel_of(n) == &sn_kernels[SN_KERNEL_recurrence])
        return sn_level_reaches(p->o.level, SN_LEVEL_ATTENTION) ? with_compute(p, n) : n;
    if (n->op == SN_OP_result) return expand_recurrence(p, n);
    if (n->op == SN_OP_scan) return expand_scan(p, n);
    return sn_ops[n->op].kind == SN_COMP ? expand_comp(p, n, 0) : spell_prim(p, n);
}

static sn_node *grouped_rule(void *ctx, sn_node *n) {
    const sn_kernel_traits *k = sn_kernel_of(n);
    bool grouped = k == &sn_kernels[SN_KERNEL_grouped] || k == &sn_kernels[SN_KERNEL_ragged];
    return grouped ? with_compute(ctx, n) : n;
}

int sn_pass_expand(sn_passes *p) {
    int n = sn_rewrite_module(p->m, rule, p);
    n += sn_group_products(p);
    return n + sn_rewrite_module(p->m, grouped_rule, p);
}
