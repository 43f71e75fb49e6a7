/* zero.c: tensors divided among the ranks of data parallelism [Rajbhandari et al. 2020, ZeRO]:
 * matrices by rows, in equal parts; the last may not be full. A row belongs to one rank, so
 * what is computed row by row has the same bits for any number of ranks. */
#include "frontend/zero.h"
#include "frontend/front.h"
#include "frontend/train.h"

#include <string.h>

enum { GROUP = 32 }; /* tensors whose sums of rows share a message */

static int64_t rows_of(const sn_node *x) {
    int64_t rows = 1, size;
    for (int a = 0; a < x->rank - 1; a++) {
        if (!sn_dim_is_const(x->m, x->shape[a], &size)) return 0;
        rows *= size;
    }
    return rows;
}

bool zero_divides(const sn_node *p, int64_t ranks) {
    return ranks > 1 && p->rank > 1 && rows_of(p) >= ranks;
}

void zero_part_shape(const sn_node *p, int64_t ranks, sn_dim shape[2]) {
    shape[0] = sn_dim_const(p->m, (rows_of(p) + ranks - 1) / ranks);
    shape[1] = p->shape[p->rank - 1];
}

/* x [.., d] as rows [R, d] */
static sn_node *as_rows(sn_node *x) {
    sn_dim shape[2] = {sn_dim_const(x->m, rows_of(x)), x->shape[x->rank - 1]};
    return sn_b_reshape(x, 2, shape);
}

static const char *name_of(const sn_node *p) {
    return sn_attr_str(p, SN_A_name, "");
}

static sn_node *part(sn_op op, sn_node *x, const sn_node *p, int64_t ranks) {
    sn_node *rows = as_rows(x);
    return sn_node_new(x->m, op, 1, &rows,
                       SN_ATTRS(SN_STR(name, name_of(p)), SN_INT(axis, 0), SN_STR(mesh, ZERO_MESH),
                                SN_INT(ranks, ranks)));
}

sn_node *zero_sum_part(sn_node *x, const sn_node *p, int64_t ranks) {
    return part(SN_OP_reduce_scatter, x, p, ranks);
}

sn_node *zero_own_part(sn_node *p, int64_t ranks) {
    return part(SN_OP_own_part, p, p, ranks);
}

/* The rows of p, whose parts x the ranks have. */
static sn_node *whole_rows(sn_node *x, const sn_node *p, int64_t ranks) {
    return sn_node_new(x->m, SN_OP_all_gather, 1, &x,
                       SN_ATTRS(SN_STR(name, name_of(p)), SN_INT(axis, 0), SN_STR(mesh, ZERO_MESH),
                                SN_INT(ranks, ranks), SN_INT(extent, rows_of(p))));
}

sn_node *zero_whole(sn_node *x, const sn_node *p, int64_t ranks) {
    return sn_b_reshape(whole_rows(x, p, ranks), p->rank, p->shape);
}

/* The shape of sums of p's rows. */
static sn_node *as_sums(sn_node *x, const sn_node *p) {
    sn_dim shape[SN_MAX_RANK];
    for (int a = 0; a < p->rank - 1; a++) shape[a] = p->shape[a];
    shape[p->rank - 1] = 1;
    return sn_b_reshape(x, p->rank, shape);
}

/* The sums of squares of rows, x[i] [rows of a part, 1], of all ranks as whole[i] [.., 1]. */
static void gather_sums(int n, sn_node *const *x, const sn_node *const *p, int64_t ranks,
                        sn_node **whole) {
    sn_module *m = x[0]->m;
    sn_node *flat[GROUP];
    int64_t at = 0, total = 0, size[GROUP];
    for (int i = 0; i < n; i++) {
        if (!sn_dim_is_const(m, x[i]->shape[0], &size[i])) size[i] = 0;
        flat[i] = sn_b_reshape(x[i], 2, (sn_dim[]){1, x[i]->shape[0]});
        total += size[i];
    }
    sn_node *all = n > 1 ? sn_b_concat(m, n, flat, 1) : flat[0];
    all = sn_node_new(m, SN_OP_all_gather, 1, &all,
                      SN_ATTRS(SN_INT(axis, 0), SN_STR(mesh, ZERO_MESH), SN_INT(ranks, ranks)));
    for (int i = 0; i < n; at += size[i], i++) {
        sn_dim parts = sn_dim_const(m, ranks * size[i]);
        sn_node *y = sn_b_slice(all, 1, sn_dim_const(m, at), sn_dim_const(m, size[i]));
        y = sn_b_reshape(y, 1, &parts);
        y = sn_b_slice(y, 0, 0, sn_dim_const(m, rows_of(p[i])));
        whole[i] = as_sums(y, p[i]);
    }
}

/* Whether ranks share the model, too: then they divide tensors in different ways, whose sums do not fit
 * into one message. */
static bool is_shared(const sn_module *m) {
    const sn_mesh_axis *mesh;
    bool shared = false;
    for (int i = sn_module_mesh(m, &mesh); i-- > 0;) shared |= mesh[i].size > 1;
    return shared;
}

void zero_squares(int n, sn_node *const *g, const sn_node *const *p, int64_t ranks, sn_node **sum) {
    static const int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sn_node *row[GROUP], *whole[GROUP];
    const int together = n && is_shared(p[0]->m) ? 1 : GROUP;
    for (int first = 0; first < n; first += together) {
        int count = n - first < together ? n - first : together;
        for (int i = 0; i < count; i++)
            row[i] = sn_b_reduce(SN_OP_reduce_sum,
                                 sn_b_binary(SN_OP_mul, g[first + i], g[first + i]), 1, &axes[1]);
        if (together > 1)
            gather_sums(count, row, p + first, ranks, whole);
        else
            whole[0] = as_sums(whole_rows(row[0], p[first], ranks), p[first]);
        for (int i = 0; i < count; i++)
            sum[first + i] = sn_b_reduce(SN_OP_reduce_sum, whole[i], p[first + i]->rank - 1, axes);
    }
}

/* ---- parameters in parts ---- */

static bool is_whole_of_parts(const sn_node *n) {
    return n->op == SN_OP_all_gather && sn_attr_int(n, SN_A_extent, 0) > 0;
}

/* What an assignment's whole value is made of; NULL: it is not made of parts. */
static sn_node *part_of(const sn_binding *a) {
    sn_node *x = a->node;
    while (x->op == SN_OP_reshape) x = x->in[0];
    return is_whole_of_parts(x) ? x->in[0] : NULL;
}

static bool is_updated_in_parts(sn_module *m, const char *name) {
    bool found = false;
    for (int e = 0; e < sn_entry_count(m); e++) {
        const sn_entry *entry = sn_entry_at(m, e);
        for (int i = 0; i < entry->n_assign; i++)
            found |= !strcmp(entry->assign[i].name, name) && part_of(&entry->assign[i]);
    }
    return found;
}

/* A divided parameter becomes the whole of its parts; the own part of a whole, what it was made of. */
static sn_node *divide(void *ctx, sn_node *n) {
    const sn_training *t = ctx;
    if (n->op == SN_OP_own_part && is_whole_of_parts(n->in[0])) return n->in[0]->in[0];
    if (n->op != SN_OP_param || !zero_divides(n, t->ranks) ||
        !is_updated_in_parts(n->m, name_of(n)))
        return n;
    sn_dim shape[2];
    zero_part_shape(n, t->ranks, shape);
    sn_node *piece = sn_node_new(
        n->m, SN_OP_param, 0, NULL,
        SN_ATTRS(SN_STR(name, name_of(n)), SN_INT(dtype, n->dtype), SN_LIST(shape, 2, shape)));
    return zero_whole(piece, n, t->ranks);
}

void sn_training_divide(sn_module *m, const sn_training *t) {
    if (!m || !t || t->zero < 3 || t->ranks < 2 || sn_module_error(m)->code) return;
    sn_rewrite_module(m, divide, (void *)(uintptr_t)t);
    for (int e = 0; e < sn_entry_count(m); e++) {
        sn_entry *entry = sn_entry_at(m, e);
        for (int i = 0; i < entry->n_assign; i++) {
            sn_node *part = part_of(&entry->assign[i]);
            if (part) entry->assign[i].node = part;
        }
    }
}
