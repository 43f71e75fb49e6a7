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

sn_node *sn_block_param(const sn_passes *p, sn_node *w, sn_weight_part part) {
    const sn_block_format *f = sn_file_storage(p, w).block;
    sn_dtype dtype;
    int count = f ? sn_block_part(f, part, &dtype) : 0;
    if (!count || w->rank != 2) return NULL;
    if (w->op == SN_OP_concat && sn_attr_int(w, SN_A_axis, 0) == 0) {
        sn_node **in = sn_arena_alloc(w->m, sizeof *in * w->n_in);
        for (int i = 0; i < w->n_in; i++)
            if (!(in[i] = sn_block_param(p, w->in[i], part))) return NULL;
        return sn_b_concat(w->m, w->n_in, in, 0);
    }
    if (w->op != SN_OP_param) return NULL;
    const char *name =
        sn_arena_printf(w->m, SN_BLOCKS "%d.%s", (int)part, sn_attr_str(w, SN_A_name, ""));
    const sn_dim shape[] = {w->shape[0], w->shape[1] / f->elements * count};
    return sn_param_as(w, name, dtype, shape);
}

const char *sn_block_param_tensor(const char *name, sn_weight_part *part) {
    size_t n = sizeof SN_BLOCKS - 1;
    if (strncmp(name, SN_BLOCKS, n)) return NULL;
    *part = (sn_weight_part)(name[n] - '0');
    return name + n + 2;
}
