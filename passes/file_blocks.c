/* file_blocks.c: parameters as the weights file stores them. */
#include "passes/file_blocks.h"
#include "passes/graph_util.h"

#include <string.h>

static bool is_stored(const sn_passes *p) {
    return p->o.source && p->o.weights && !strcmp(p->o.weights, "stored");
}

bool sn_storage_equal(sn_storage a, sn_storage b) {
    return a.dtype == b.dtype && a.block == b.block;
}

static bool moves(const sn_node *n) {
    return n->op == SN_OP_concat || n->op == SN_OP_transpose || n->op == SN_OP_reshape ||
           n->op == SN_OP_slice;
}

sn_storage sn_file_storage(const sn_passes *p, const sn_node *w) {
    const sn_storage plain = {(sn_dtype)w->dtype, NULL};
    if (!is_stored(p) || w->dtype != SN_F32) return plain;
    const sn_attr *parts = sn_attr_get(w, SN_A_parts);
    if (parts && (parts->n > 1 || sn_attr_int(w, SN_A_axis, 0) ||
                  parts->v[0] % sn_attr_int(w, SN_A_ranks, 1)))
        return plain; /* a rank's share is not a run of rows */
    if (w->op == SN_OP_param) {
        const sn_weight *t = sn_weights_find(p->o.source, sn_attr_str(w, SN_A_name, ""));
        return t && t->rank == w->rank ? (sn_storage){t->dtype, t->block} : plain;
    }
    if (!moves(w)) return plain;
    sn_storage first = sn_file_storage(p, w->in[0]);
    for (int i = 1; i < w->n_in; i++)
        if (!sn_storage_equal(first, sn_file_storage(p, w->in[i]))) return plain;
    return first;
}

/* The last axis of w, which becomes `row` elements. */
static const sn_dim *shape_of_part(const sn_node *w, sn_dim row) {
    sn_dim *shape = sn_arena_alloc(w->m, sizeof *shape * (size_t)w->rank);
    memcpy(shape, w->shape, sizeof *shape * (size_t)w->rank);
    shape[w->rank - 1] = row;
    return shape;
}

/* Whether w moves rows of its operands, which it does not cut. */
static bool moves_rows(const sn_node *w) {
    const sn_node *x = w->in[0];
    const int last = w->rank - 1;
    if (w->op == SN_OP_concat) return sn_attr_int(w, SN_A_axis, 0) != last;
    return (w->op == SN_OP_reshape || w->op == SN_OP_slice) && x->rank > 1 && w->rank > 1 &&
           x->shape[x->rank - 1] == w->shape[last];
}

/* w, which moves rows, of operands whose rows have `row` elements. */
static sn_node *moved(const sn_node *w, sn_node **in, sn_dim row) {
    sn_attr *attr = sn_arena_alloc(w->m, sizeof *attr * (size_t)(w->n_attr + 1));
    const sn_dim *shape = shape_of_part(w, row);
    if (w->op == SN_OP_reshape) return sn_b_reshape(in[0], w->rank, shape);
    for (int i = 0; i < w->n_attr; i++) {
        attr[i] = w->attr[i];
        if (attr[i].key == SN_A_size) attr[i].v = shape;
    }
    return sn_node_new(w->m, (sn_op)w->op, w->n_in, in, w->n_attr, attr);
}

sn_node *sn_block_param(const sn_passes *p, sn_node *w, sn_weight_part part) {
    const sn_block_format *f = sn_file_storage(p, w).block;
    sn_dtype dtype;
    int count = f ? sn_block_part(f, part, &dtype) : 0;
    if (!count || w->rank < 2) return NULL;
    sn_dim row = w->shape[w->rank - 1] / f->elements * count;
    if (w->op == SN_OP_param) {
        const char *name =
            sn_arena_printf(w->m, SN_BLOCKS "%d.%s", (int)part, sn_attr_str(w, SN_A_name, ""));
        return sn_param_as(w, name, dtype, shape_of_part(w, row));
    }
    if (!moves_rows(w)) return NULL;
    sn_node **in = sn_arena_alloc(w->m, sizeof *in * w->n_in);
    for (int i = 0; i < w->n_in; i++)
        if (!(in[i] = sn_block_param(p, w->in[i], part))) return NULL;
    return moved(w, in, row);
}

const char *sn_block_param_tensor(const char *name, sn_weight_part *part) {
    size_t n = sizeof SN_BLOCKS - 1;
    if (strncmp(name, SN_BLOCKS, n)) return NULL;
    *part = (sn_weight_part)(name[n] - '0');
    return name + n + 2;
}
