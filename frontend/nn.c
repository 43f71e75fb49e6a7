/* nn.c: products, look-ups, norms, positions and losses of the DSL, and layers that declare
 * parameters. Checks operands and explains errors; ir/decomp.c defines the composites. */
#include "frontend/front.h"

#include <math.h>
#include <string.h>

/* "op: x, y: why. Hint: hint" */
static sn_tensor fail_pair(const char *op, sn_tensor x, sn_tensor y, const char *why) {
    char a[SN_NODE_TEXT], b[SN_NODE_TEXT];
    return sn_module_fail(x->m, SN_ERR_SHAPE, "%s: %s and %s: %s", op, sn_node_text(x, a),
                          sn_node_text(y, b), why);
}

/* ---- products ---- */

sn_tensor sn_matmul_at(sn_loc at, sn_tensor x, sn_tensor y) {
    FRONT_ENTER("matmul", x, y);
    if (x->rank < 2 || y->rank < 2)
        return fail_pair("matmul", x, y, "both need at least two axes. Hint: sn_expand a vector");
    if (x->dtype != y->dtype)
        return fail_pair("matmul", x, y, "element types differ. Hint: sn_cast one of them");
    if (x->shape[x->rank - 1] != y->shape[y->rank - 2])
        return fail_pair("matmul", x, y,
                         x->shape[x->rank - 1] == y->shape[y->rank - 1]
                             ? "x's last axis must equal y's last but one. Hint: transpose y, "
                               "sn_swap(y, -1, -2), or sn_linear for a weight [out, in]"
                             : "x's last axis must equal y's last but one");
    return SN_NODE(x->m, matmul, SN_NO_ATTRS, x, y);
}

sn_tensor sn_linear_at(sn_loc at, sn_tensor x, sn_tensor w, sn_tensor b) {
    sn_tensor in[3] = {x, w, b}, bad;
    if (!front_enter(at, "linear", 3, 2, in, &bad)) return bad;
    if (x->rank < 1 || w->rank != 2)
        return fail_pair("linear", x, w, "x needs an axis, the weight two: [out, in]");
    if (!sn_dtype_is_float((sn_dtype)x->dtype) || !sn_dtype_is_float((sn_dtype)w->dtype))
        return fail_pair("linear", x, w, "both need a float type. Hint: sn_cast");
    if (x->shape[x->rank - 1] != w->shape[1])
        return fail_pair("linear", x, w,
                         x->shape[x->rank - 1] == w->shape[0]
                             ? "x's last axis must equal the weight's last, [out, in]. Hint: this "
                               "weight looks like [in, out]: sn_swap(w, 0, 1)"
                             : "x's last axis must equal the weight's last, [out, in]");
    if (b && (b->rank != 1 || b->shape[0] != w->shape[0]))
        return fail_pair("linear", w, b, "the bias must be [out]");
    return sn_node_new(x->m, SN_OP_linear, b ? 3 : 2, in, SN_NO_ATTRS);
}

/* Position of a label in s[0..n), or -1. */
static int find_label(const char *s, int n, char label) {
    const char *p = n > 0 ? memchr(s, label, (size_t)n) : NULL;
    return p ? (int)(p - s) : -1;
}

static bool labels_ok(const char *s, int n) {
    for (int i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z')) ||
            find_label(s, i, s[i]) >= 0)
            return false;
    return true;
}

/* x, whose axis i is called label[i], as a tensor with the axes of c, broadcast to shape. */
static sn_node *spread(sn_node *x, const char *label, const char *c, int rank,
                       const sn_dim *shape) {
    int64_t perm[SN_MAX_RANK];
    sn_dim size[SN_MAX_RANK];
    for (int i = 0, n = 0; i < rank; i++) {
        int axis = find_label(label, x->rank, c[i]);
        size[i] = axis < 0 ? 1 : shape[i];
        if (axis >= 0) perm[n++] = axis;
    }
    sn_node *y = sn_b_reshape(sn_b_transpose(x, x->rank, perm), rank, size);
    return sn_b_broadcast(y, rank, shape);
}

static sn_tensor fail_label(const char *spec, char label, sn_tensor x, int i, sn_tensor y, int j) {
    char size[2][64];
    sn_dim_print(x->m, x->shape[i], size[0], sizeof size[0]);
    sn_dim_print(x->m, y->shape[j], size[1], sizeof size[1]);
    return fail_pair("einsum", x, y,
                     sn_arena_printf(x->m, "label %c of '%s' has the sizes %s and %s", label, spec,
                                     size[0], size[1]));
}

sn_tensor sn_einsum_at(sn_loc at, const char *spec, sn_tensor x, sn_tensor y) {
    FRONT_ENTER("einsum", x, y);
    if (!spec) return sn_module_fail(x->m, SN_ERR_USAGE, "einsum: the specification is NULL");
    const char *comma = strchr(spec, ','), *arrow = strstr(spec, "->");
    if (!comma || !arrow || arrow < comma)
        return sn_module_fail(x->m, SN_ERR_USAGE, "einsum: '%s' is not of the form ab,bc->ac",
                              spec);
    const char *a = spec, *b = comma + 1, *c = arrow + 2;
    int na = (int)(comma - a), nb = (int)(arrow - b), nc = (int)strlen(c);
    if (!labels_ok(a, na) || !labels_ok(b, nb) || !labels_ok(c, nc) || nc > SN_MAX_RANK)
        return sn_module_fail(
            x->m, SN_ERR_USAGE,
            "einsum: '%s': each axis is a single letter, at most once per operand", spec);
    if (na != x->rank || nb != y->rank)
        return fail_pair("einsum", x, y, "the number of labels must equal the number of axes");
    int64_t batch_a[SN_MAX_RANK], batch_b[SN_MAX_RANK], sum_a[SN_MAX_RANK], sum_b[SN_MAX_RANK];
    char order[2 * SN_MAX_RANK + 1];
    int n_batch = 0, n_sum = 0, n = 0;
    for (int i = 0; i < na; i++) {
        int j = find_label(b, nb, a[i]), k = find_label(c, nc, a[i]);
        if (j >= 0 && x->shape[i] != y->shape[j]) return fail_label(spec, a[i], x, i, y, j);
        if (j >= 0 && k >= 0) {
            batch_a[n_batch] = i;
            batch_b[n_batch++] = j;
            order[n++] = a[i];
        } else if (j >= 0) {
            sum_a[n_sum] = i;
            sum_b[n_sum++] = j;
        } else if (k < 0) {
            return sn_module_fail(x->m, SN_ERR_USAGE,
                                  "einsum: '%s': label %c appears in only one operand and not in "
                                  "the result; sum over it first with sn_sum",
                                  spec, a[i]);
        }
    }
    for (int i = 0; i < na; i++)
        if (find_label(b, nb, a[i]) < 0) order[n++] = a[i];
    for (int i = 0; i < nb; i++) {
        if (find_label(a, na, b[i]) >= 0) continue;
        if (find_label(c, nc, b[i]) < 0)
            return sn_module_fail(x->m, SN_ERR_USAGE,
                                  "einsum: '%s': label %c appears in only one operand and not in "
                                  "the result; sum over it first with sn_sum",
                                  spec, b[i]);
        order[n++] = b[i];
    }
    int64_t perm[SN_MAX_RANK] = {0};
    bool moved = false, complete = n == nc;
    for (int i = 0; i < nc && complete; i++) {
        perm[i] = find_label(order, n, c[i]);
        moved |= perm[i] != i;
        complete = perm[i] >= 0;
    }
    if (!complete)
        return sn_module_fail(x->m, SN_ERR_USAGE,
                              "einsum: '%s': the result has a label that no operand has", spec);
    sn_node *z =
        SN_NODE(x->m, dot,
                SN_ATTRS(SN_LIST(batch_a, n_batch, batch_a), SN_LIST(batch_b, n_batch, batch_b),
                         SN_LIST(contract_a, n_sum, sum_a), SN_LIST(contract_b, n_sum, sum_b)),
                x, y);
    if (z == bad_) return z;
    if (moved) z = sn_b_transpose(z, nc, perm);
    if (n_sum) return z;
    /* nothing is summed: an elementwise product, which kernels of its neighbours can compute */
    return sn_b_binary(SN_OP_mul, spread(x, a, c, nc, z->shape), spread(y, b, c, nc, z->shape));
}

/* ---- look-ups ---- */

static sn_tensor fail_ids(const char *op, sn_tensor ids) {
    char t[SN_NODE_TEXT];
    return sn_module_fail(ids->m, SN_ERR_SHAPE,
                          "%s: the indices %s are not integers. Hint: sn_cast them to SN_I32", op,
                          sn_node_text(ids, t));
}

sn_tensor sn_embedding_at(sn_loc at, sn_tensor table, sn_tensor ids) {
    FRONT_ENTER("embedding", table, ids);
    if (!front_is_integer(ids)) return fail_ids("embedding", ids);
    if (table->rank != 2)
        return fail_pair("embedding", table, ids, "the table needs two axes: [entries, width]");
    return SN_NODE(table->m, embedding, SN_NO_ATTRS, table, ids);
}

sn_tensor sn_gather_at(sn_loc at, sn_tensor x, int axis, sn_tensor ids) {
    FRONT_ENTER("gather", x, ids);
    int a = front_axis(x->m, "gather", x, axis, x->rank);
    if (a < 0) return bad_;
    if (!front_is_integer(ids)) return fail_ids("gather", ids);
    return SN_NODE(x->m, gather, SN_ATTRS(SN_INT(axis, a)), x, ids);
}

/* combine: of op scatter_add; name: of the operation, for messages */
static sn_tensor scatter(sn_loc at, const char *name, int64_t combine, sn_tensor x, int axis,
                         sn_tensor ids, sn_dim n) {
    FRONT_ENTER(name, x, ids);
    if (!front_is_integer(ids)) return fail_ids(name, ids);
    int rank = x->rank - ids->rank + 1;
    int a = rank < 1 ? -1 : front_axis(x->m, name, x, axis, rank);
    bool fits = a >= 0;
    for (int i = 0; fits && i < ids->rank; i++) fits = x->shape[a + i] == ids->shape[i];
    if (!fits) return fail_pair(name, x, ids, "x must have the indices' axes in place of the axis");
    sn_dim shape[SN_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) shape[i] = i == a ? n : x->shape[i < a ? i : i + ids->rank - 1];
    sn_attr attr[3] = {SN_LIST(shape, rank, shape), SN_INT(axis, a), SN_INT(combine, combine)};
    return sn_node_new(x->m, SN_OP_scatter_add, 2, (sn_node *[]){x, ids}, combine ? 3 : 2, attr);
}

sn_tensor sn_scatter_add_at(sn_loc at, sn_tensor x, int axis, sn_tensor ids, sn_dim n) {
    return scatter(at, "scatter_add", 0, x, axis, ids, n);
}

sn_tensor sn_scatter_max_at(sn_loc at, sn_tensor x, int axis, sn_tensor ids, sn_dim n) {
    return scatter(at, "scatter_max", 1, x, axis, ids, n);
}

sn_tensor sn_scatter_product_at(sn_loc at, sn_tensor x, int axis, sn_tensor ids, sn_dim n) {
    return scatter(at, "scatter_product", 2, x, axis, ids, n);
}

sn_tensor sn_at_at(sn_loc at, sn_tensor x, const sn_tensor *index) {
    sn_tensor in[SN_MAX_RANK + 1] = {x}, bad;
    int n = front_tensors(index), rank = 0;
    sn_dim shape[SN_MAX_RANK];
    char t[SN_NODE_TEXT];
    if (!x || n != x->rank) {
        sn_tensor first[] = {x, n ? index[0] : NULL}; /* at least the module is known */
        if (!front_enter(at, "at", 2, 1, first, &bad)) return bad;
        return sn_module_fail(x->m, SN_ERR_SHAPE, "at: %d indices for %s; expected one per axis", n,
                              sn_node_text(x, t));
    }
    if (n) memcpy(in + 1, index, sizeof *in * (size_t)n);
    if (!front_enter(at, "at", n + 1, n + 1, in, &bad)) return bad;
    for (int i = 1; i <= n; i++) { /* indices broadcast to a common shape */
        if (!front_is_integer(in[i])) return fail_ids("at", in[i]);
        sn_node so_far = {.rank = (uint8_t)rank, .shape = shape};
        sn_dim wider[SN_MAX_RANK];
        if (!sn_b_common_shape(x->m, &so_far, in[i], &rank, wider))
            return fail_pair("at", in[1], in[i], "the shapes of the indices do not broadcast");
        memcpy(shape, wider, sizeof(sn_dim) * (size_t)rank);
    }
    for (int i = 1; i <= n; i++) in[i] = sn_b_broadcast(in[i], rank, shape);
    return sn_node_new(x->m, SN_OP_gather_nd, n + 1, in, SN_NO_ATTRS);
}

sn_tensor sn_one_hot_at(sn_loc at, sn_tensor x, int64_t n, sn_dtype t) {
    FRONT_ENTER("one_hot", x);
    if (!front_is_integer(x)) return fail_ids("one_hot", x);
    return SN_NODE(x->m, one_hot, SN_ATTRS(SN_INT(dtype, (int64_t)t), SN_LIST(size, 1, &n)), x);
}

/* ---- selection: routers and experts ---- */

sn_tensor sn_take_blocks_at(sn_loc at, sn_tensor x, sn_tensor index, int64_t blocks) {
    FRONT_ENTER("take_blocks", x, index);
    if (!front_is_integer(index)) return fail_ids("take_blocks", index);
    bool fits = index->rank == x->rank && x->rank > 0 && x->rank < SN_MAX_RANK;
    for (int i = 0; fits && i < x->rank - 1; i++) fits = x->shape[i] == index->shape[i];
    if (!fits) return fail_pair("take_blocks", x, index, "all axes but the last must be the same");
    int64_t columns;
    if (blocks < 1 || !sn_dim_is_const(x->m, x->shape[x->rank - 1], &columns) || columns % blocks)
        return fail_pair("take_blocks", x, index, "x's last axis must be a multiple of the blocks");
    return SN_NODE(x->m, take_blocks, SN_ATTRS(SN_INT(blocks, blocks)), x, index);
}

/* The blocks that index selects, each with its row of bias [experts, out]; NULL: none. */
static sn_tensor take_biased(sn_loc at, sn_tensor y, sn_tensor bias, int64_t experts,
                             sn_tensor index) {
    y = sn_take_blocks_at(at, y, index, experts);
    return bias ? sn_b_binary(SN_OP_add, y, sn_gather_at(at, bias, 0, index)) : y;
}

sn_tensor front_expert_linear(sn_loc at, sn_tensor x, sn_tensor w, sn_tensor bias, int64_t experts,
                              sn_tensor index) {
    FRONT_ENTER("expert_linear", x, w, index);
    if (index->rank < 1 || (x->rank != index->rank && x->rank != index->rank + 1))
        return fail_pair("expert_linear", x, index, "x is [.., in] or [.., k, in], index [.., k]");
    sn_tensor y = sn_linear_at(at, x, w, NULL);
    if (x->rank == index->rank) return take_biased(at, y, bias, experts, index);
    if (x->rank == SN_MAX_RANK)
        return fail_pair("expert_linear", x, index, "x has too many axes: sn_reshape it");
    sn_dim shape[SN_MAX_RANK + 1];
    for (int i = 0; i < index->rank; i++) shape[i] = index->shape[i];
    shape[index->rank] = 1;
    y = take_biased(at, y, bias, experts, sn_b_reshape(index, index->rank + 1, shape));
    shape[index->rank] = y->shape[y->rank - 1];
    return sn_b_reshape(y, x->rank, shape);
}

sn_tensor sn_expert_linear_at(sn_loc at, sn_tensor x, sn_tensor w, sn_tensor index) {
    FRONT_ENTER("expert_linear", x, w, index);
    int64_t experts;
    if (w->rank != 3 || !sn_dim_is_const(x->m, w->shape[0], &experts))
        return fail_pair("expert_linear", x, w, "the weight must be [experts, out, in]");
    if (x->rank && x->shape[x->rank - 1] != w->shape[2])
        return fail_pair("expert_linear", x, w,
                         "x's last axis must equal the weight's last, [experts, out, in]");
    sn_dim rows[2] = {sn_dim_mul(x->m, experts, w->shape[1]), w->shape[2]};
    return front_expert_linear(at, x, sn_b_reshape(w, 2, rows), NULL, experts, index);
}

sn_tensor sn_grouped_matmul_at(sn_loc at, sn_tensor x, sn_tensor w, sn_tensor group) {
    FRONT_ENTER("grouped_matmul", x, w, group);
    if (group->rank == SN_MAX_RANK || x->rank != group->rank + 1)
        return fail_pair("grouped_matmul", x, group, "x is [.., in], group [..]");
    sn_tensor y = sn_expert_linear_at(at, x, w, sn_b_column(group));
    if (y == bad_ || y->rank != x->rank + 1) return y;
    sn_dim shape[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        shape[i] = i + 1 < x->rank ? y->shape[i] : y->shape[y->rank - 1];
    return sn_b_reshape(y, x->rank, shape);
}

/* ---- norms, positions, losses ---- */

static bool norm_ok(const char *op, sn_tensor x, sn_tensor p, const char *what) {
    if (x->rank < 1)
        fail_pair(op, x, x, "a scalar has no axis to normalise");
    else if (p && (p->rank != 1 || p->shape[0] != x->shape[x->rank - 1]))
        fail_pair(op, x, p, what);
    else
        return true;
    return false;
}

sn_tensor sn_layer_norm_at(sn_loc at, sn_tensor x, sn_tensor gain, sn_tensor bias, double eps) {
    sn_tensor in[3] = {x, gain, bias}, bad;
    if (!front_enter(at, "layer_norm", 3, 1, in, &bad)) return bad;
    if (!norm_ok("layer_norm", x, gain, "the gain must be [last axis of x]") ||
        !norm_ok("layer_norm", x, bias, "the bias must be [last axis of x]"))
        return bad;
    if (bias && !gain) /* the op requires them in order */
        in[1] = sn_b_broadcast(sn_b_const(x->m, (sn_dtype)x->dtype, 1), 1, bias->shape);
    return sn_node_new(x->m, SN_OP_layer_norm,
                       bias   ? 3
                       : gain ? 2
                              : 1,
                       in, SN_ATTRS(SN_FLT(eps, eps)));
}

sn_tensor sn_rms_norm_at(sn_loc at, sn_tensor x, sn_tensor gain, double eps) {
    sn_tensor in[2] = {x, gain}, bad;
    if (!front_enter(at, "rms_norm", 2, 1, in, &bad)) return bad;
    if (!norm_ok("rms_norm", x, gain, "the gain must be [last axis of x]")) return bad;
    return sn_node_new(x->m, SN_OP_rms_norm, gain ? 2 : 1, in, SN_ATTRS(SN_FLT(eps, eps)));
}

sn_tensor sn_rope_at(sn_loc at, sn_tensor x, sn_rope_options o) {
    sn_tensor in[3] = {x, o.pos, o.freq}, bad;
    if (!front_enter(at, "rope", o.freq ? 3 : 2, 2, in, &bad)) return bad;
    sn_dim half;
    bool fits = x->rank >= 2 && (o.pos->rank == 1 || (o.pos->rank == 2 && x->rank > 2)) &&
                o.pos->shape[o.pos->rank - 1] == x->shape[x->rank - 2] &&
                (o.pos->rank == 1 || o.pos->shape[0] == x->shape[0]);
    if (!fits)
        return fail_pair("rope", x, o.pos,
                         "x must be [B, .., T, d] and the positions [T] or "
                         "[B, T]");
    if (!sn_dim_div(x->m, x->shape[x->rank - 1], 2, &half))
        return fail_pair("rope", x, o.pos, "x's last axis must be even");
    sn_attr attr[] = {SN_FLT(base, o.base > 0 ? o.base : 10000),
                      SN_INT(interleaved, o.halves ? 0 : 1)};
    int base = o.freq ? 0 : 1; /* not together */
    return sn_node_new(x->m, SN_OP_rope, 3 - base, in, 1 + base, attr + 1 - base);
}

sn_tensor sn_sinusoid_at(sn_loc at, sn_tensor pos, int64_t d, double base, bool vaswani) {
    FRONT_ENTER("sinusoid", pos);
    char t[SN_NODE_TEXT];
    if (pos->rank != 1 || d < 2 || d % 2)
        return sn_module_fail(pos->m, SN_ERR_SHAPE,
                              "sinusoid: positions %s, width %lld; expected [T] and an even width",
                              sn_node_text(pos, t), (long long)d);
    return SN_NODE(pos->m, sinusoid,
                   SN_ATTRS(SN_LIST(size, 1, &d), SN_FLT(base, base), SN_INT(vaswani, vaswani)),
                   pos);
}

sn_tensor sn_cross_entropy_at(sn_loc at, sn_tensor x, sn_tensor target) {
    FRONT_ENTER("cross_entropy", x, target);
    if (!front_is_integer(target)) return fail_ids("cross_entropy", target);
    bool fits = x->rank == target->rank + 1;
    for (int i = 0; fits && i < target->rank; i++) fits = x->shape[i] == target->shape[i];
    if (!fits)
        return fail_pair("cross_entropy", x, target,
                         "the targets must have x's axes except the last");
    return SN_NODE(x->m, cross_entropy, SN_NO_ATTRS, x, target);
}

sn_tensor sn_dropout_at(sn_loc at, sn_tensor x, sn_tensor rng, double rate) {
    FRONT_ENTER("dropout", x, rng);
    if (!(rate >= 0 && rate < 1))
        return sn_module_fail(x->m, SN_ERR_USAGE, "dropout: rate %g is not in [0, 1)", rate);
    if (rate == 0) return x;
    return SN_NODE(x->m, dropout, SN_ATTRS(SN_INT(stream, front_stream(x->m)), SN_FLT(rate, rate)),
                   x, rng);
}

/* ---- layers with parameters ---- */

static sn_tensor layer_param(sn_loc at, sn_tensor like, sn_dtype t, const char *name,
                             const char *part, const sn_dim *shape) {
    return sn_param_at(at, like->m, sn_arena_printf(like->m, "%s.%s", name, part), t, shape);
}

/* A parameter whose axis is divided among the ranks of "tensor", in these parts. */
static sn_tensor divide(sn_loc at, sn_tensor w, int axis, int n, const int64_t *parts) {
    sn_dim list[FRONT_MAX_PARTS + 1];
    for (int i = 0; i < n; i++) list[i] = parts[i];
    list[n] = SN_END;
    return sn_shard_at(at, w, axis, FRONT_TENSOR, list);
}

sn_tensor front_linear(sn_loc at, sn_tensor x, const char *name, int flags, int n,
                       const int64_t *parts) {
    FRONT_ENTER("linear", x);
    sn_dim in = sn_dim_of_at(at, x, -1);
    sn_dtype t = (sn_dtype)x->dtype;
    bool in_out = flags & SN_IN_OUT;
    int64_t n_out = 0;
    for (int i = 0; i < n; i++) n_out += parts[i];
    sn_tensor w = in_out ? layer_param(at, x, t, name, "weight", SN_DIMS(in, n_out))
                         : layer_param(at, x, t, name, "weight", SN_DIMS(n_out, in));
    sn_tensor b = flags & SN_BIAS ? layer_param(at, x, t, name, "bias", SN_DIMS(n_out)) : NULL;
    if (flags & SN_COLUMNS) {
        w = divide(at, w, in_out, n, parts);
        b = b ? divide(at, b, 0, n, parts) : NULL;
    } else if (flags & SN_ROWS) {
        w = sn_shard_at(at, w, !in_out, FRONT_TENSOR, NULL);
    }
    return sn_linear_at(at, x, in_out ? sn_swap_at(at, w, 0, 1) : w, b);
}

sn_tensor sn_nn_linear_at(sn_loc at, sn_tensor x, const char *name, int64_t n_out, int flags) {
    return front_linear(at, x, name, flags, 1, &n_out);
}

sn_tensor front_vocabulary(sn_loc at, sn_tensor ids, const char *name, int64_t n, int64_t d) {
    FRONT_ENTER("embedding", ids);
    sn_tensor table = layer_param(at, ids, SN_F32, name, "weight", SN_DIMS(n, d));
    return sn_embedding_at(at, sn_shard_at(at, table, 0, FRONT_TENSOR, NULL), ids);
}

sn_tensor sn_nn_embedding_at(sn_loc at, sn_tensor ids, const char *name, int64_t n, int64_t d) {
    FRONT_ENTER("embedding", ids);
    return sn_embedding_at(at, layer_param(at, ids, SN_F32, name, "weight", SN_DIMS(n, d)), ids);
}

sn_tensor sn_nn_layer_norm_at(sn_loc at, sn_tensor x, const char *name, double eps) {
    FRONT_ENTER("layer_norm", x);
    sn_dim d = sn_dim_of_at(at, x, -1);
    sn_dtype t = (sn_dtype)x->dtype;
    return sn_layer_norm_at(at, x, layer_param(at, x, t, name, "weight", SN_DIMS(d)),
                            layer_param(at, x, t, name, "bias", SN_DIMS(d)), eps);
}

sn_tensor sn_nn_rms_norm_at(sn_loc at, sn_tensor x, const char *name, double eps) {
    FRONT_ENTER("rms_norm", x);
    sn_dim d = sn_dim_of_at(at, x, -1);
    return sn_rms_norm_at(at, x, layer_param(at, x, (sn_dtype)x->dtype, name, "weight", SN_DIMS(d)),
                          eps);
}

sn_tensor sn_glu_at(sn_loc at, sn_tensor x, sn_tensor gate, sn_tensor up, sn_tensor down,
                    sn_tensor (*act)(sn_loc, sn_tensor)) {
    sn_tensor g = act(at, sn_linear_at(at, x, gate, NULL)), u = sn_linear_at(at, x, up, NULL);
    sn_tensor h = sn_mul_at(at, sn_operand_tensor(g), sn_operand_tensor(u));
    return sn_linear_at(at, h, down, NULL);
}
