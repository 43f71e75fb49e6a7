/* share.c: which elements of a divided tensor a rank holds. */
#include "codegen/program/share.h"

sn_share sn_share_of(const sn_node *n) {
    const sn_attr *parts = sn_attr_get(n, SN_A_parts);
    sn_share s = {0};
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    if (!parts || n->op == SN_OP_shard) return s;
    s = (sn_share){.ranks = sn_attr_int(n, SN_A_ranks, 1),
                   .rank = sn_module_mesh_axis(n->m, sn_attr_str(n, SN_A_mesh, "")).rank,
                   .outer = 1,
                   .inner = 1,
                   .n_part = parts->n,
                   .part = parts->v,
                   .nested = sn_attr_int(n, SN_A_nested, 0)};
    for (int i = 0; i < parts->n; i++) s.size += parts->v[i];
    for (int i = 0; i < n->rank; i++)
        if (i != axis) *(i < axis ? &s.outer : &s.inner) *= n->shape[i];
    return s;
}

/* How many of n elements one of these ranks has; 0: all. */
static int64_t part_of(int64_t n, int64_t ranks) {
    return ranks ? (n + ranks - 1) / ranks : n;
}

void sn_share_whole(const sn_node *n, sn_dim shape[SN_MAX_RANK]) {
    sn_share s = sn_share_of(n);
    for (int i = 0; i < n->rank; i++) shape[i] = n->shape[i];
    if (s.ranks) shape[sn_attr_int(n, SN_A_axis, 0)] = part_of(s.size, s.nested);
}

static int64_t piece_of(const sn_share *s, int part) {
    return part_of(s->part[part], s->ranks);
}

bool sn_share_is_run(const sn_share *s, int64_t *first, int64_t *count) {
    if (s->outer > 1 || s->n_part > 1 || s->size % s->ranks) return false;
    *count = s->size / s->ranks * s->inner;
    *first = s->rank * *count;
    return true;
}

int64_t sn_share_elements(const sn_share *s) {
    int64_t n = 0;
    for (int k = 0; k < s->n_part; k++) n += piece_of(s, k);
    return s->outer * part_of(n, s->nested) * s->inner;
}

int64_t sn_share_runs(const sn_share *s) {
    return s->outer * s->n_part;
}

sn_elements sn_share_run(const sn_share *s, int64_t i) {
    int part = (int)(i % s->n_part);
    int64_t row = i / s->n_part, before = 0, mine = 0, all = 0;
    for (int k = 0; k < s->n_part; k++) {
        all += piece_of(s, k);
        if (k < part) before += s->part[k], mine += piece_of(s, k);
    }
    int64_t piece = piece_of(s, part), at = s->rank * piece, left = s->part[part] - at;
    int64_t count = left < 0 ? 0 : left < piece ? left : piece;
    return (sn_elements){(row * s->size + before + at) * s->inner, (row * all + mine) * s->inner,
                         count * s->inner, (piece - count) * s->inner};
}
