/* rows.c: attention whose rows (positions) are divided among ranks.
 *
 * If keys are divided as queries are, it becomes ring_attention: keys and values travel from rank to
 * rank. Keys that are whole, or that must be, are attended to where they are; then only the positions
 * of queries change. */
#include "passes/shard/shard.h"

#include <string.h>

enum { ROWS = 2, CAPTURED = 3, CAPTURED_OF_GRAD = 5 };

typedef struct rows {
    sh_layout q, kv;
    bool zigzag, ring; /* ring: keys are divided, too */
    int64_t n_q;       /* queries of all ranks */
} rows;

static bool is_by_rows(const sh_local *x) {
    return sh_is_split(x, ROWS) && (sh_is_one_part(&x->at) || sh_is_zigzag(&x->at));
}

/* That many keys, divided as the queries are; false: they cannot be. */
static bool divide_keys(sharder *s, const sn_node *k, const rows *r, sh_layout *out) {
    int64_t n;
    if (!sh_divides(s, k->shape[ROWS], &n) || (r->zigzag && n != r->n_q)) return false;
    *out = r->zigzag ? r->q : sh_split_layout(s, ROWS, n);
    return true;
}

/* How n, attention or its gradient, is divided; false: it cannot be. Dropout would need other random
 * numbers. */
static bool divide_rows(sharder *s, const sn_node *n, rows *r) {
    sh_local q = sh_local_of(s, n->in[0]);
    *r = (rows){.q = q.at};
    if (sn_attr_get(n, SN_A_rate) || sn_attr_get(n, SN_A_sink) || sn_attr_get(n, SN_A_lse) ||
        sn_attr_get(n, SN_A_mesh) || n->in[0]->rank != 4 || !is_by_rows(&q) ||
        sh_is_padded(s, &q.at))
        return false;
    r->zigzag = sh_is_zigzag(&q.at);
    r->n_q = sh_size(&q.at);
    r->ring = !sn_attr_get(n, SN_A_weights) && divide_keys(s, n->in[1], r, &r->kv);
    for (int i = 1; i < 3; i++) {
        sh_local x = sh_local_of(s, n->in[i]);
        r->ring &= is_by_rows(&x);
    }
    return true;
}

/* ---- keys that are whole ---- */

/* The position of this rank's query `i`. */
static sn_node *position(sharder *s, const rows *r, sn_node *i) {
    int64_t half = r->n_q / s->ranks / 2;
    if (!r->zigzag) return sn_b_binary(SN_OP_add, i, sh_first(s, 2 * half, i));
    sn_dim last = sn_dim_sub(
        s->m, sn_dim_const(s->m, (2 * s->ranks - 2) * half),
        sn_dim_mul(s->m, s->rank, sn_dim_const(s->m, half))); /* less the first half's rows */
    sn_node *second = sn_b_binary(SN_OP_add, i, sn_b_dim(s->m, (sn_dtype)i->dtype, last));
    return sn_b_select(sn_b_scalar(SN_OP_lt, i, (double)half),
                       sn_b_binary(SN_OP_add, i, sh_first(s, half, i)), second);
}

/* The region of whole positions as one of this rank's queries. query: which argument they are. */
static const sn_region *place_queries(sharder *s, const rows *r, const sn_region *of, int query) {
    sn_node **a = sn_arena_alloc(s->m, sizeof *a * (size_t)of->n_arg),
            **out = sn_arena_alloc(s->m, sizeof *out * (size_t)of->n_out);
    memcpy(a, of->arg, sizeof *a * (size_t)of->n_arg);
    sn_node *local = a[query];
    a[query] = position(s, r, local);
    sn_region_inline(of, a, out);
    a[query] = local;
    return sn_region_new(s->m, of->n_arg, a, of->n_out, out);
}

/* ---- attention and its gradient ---- */

static sn_node *local_node(sharder *s, const sn_node *n, const rows *r, sn_node **in) {
    enum { MORE = 4, SCORE_QUERY = 3, MASK_QUERY = 2 };
    sn_attr *attr = sn_arena_alloc(s->m, sizeof *attr * (size_t)(n->n_attr + MORE));
    bool grad = n->op == SN_OP_attention_grad;
    int k = n->n_attr;
    memcpy(attr, n->attr, sizeof *attr * (size_t)k);
    for (int i = 0; i < k && !r->ring; i++) {
        if (attr[i].key == SN_A_score) attr[i].r = place_queries(s, r, attr[i].r, SCORE_QUERY);
        if (attr[i].key == SN_A_mask) attr[i].r = place_queries(s, r, attr[i].r, MASK_QUERY);
    }
    if (!r->ring) return sn_node_new(s->m, (sn_op)n->op, n->n_in, in, k, attr);
    int64_t behind;
    attr[k++] = SN_STR(mesh, s->mesh);
    attr[k++] = SN_INT(ranks, s->ranks);
    if (r->zigzag) attr[k++] = SN_INT(zigzag, 1);
    if (n->in[1]->shape[ROWS] == n->in[0]->shape[ROWS] &&
        sh_find_behind(s, sn_attr_region(n, SN_A_mask), r->n_q, r->zigzag ? 2 : 1, &behind))
        attr[k++] = SN_INT(behind, behind);
    return sn_node_new(s->m, grad ? SN_OP_attention_grad : SN_OP_ring_attention, n->n_in, in, k,
                       attr);
}

static sn_node *attend(sharder *s, const sn_node *n, const rows *r, int captured) {
    sn_node **in = sn_arena_alloc(s->m, sizeof *in * (size_t)(n->n_in + 1));
    for (int i = 0; i < n->n_in; i++) {
        bool keys = i == 1 || i == 2;
        in[i] = i >= captured || (keys && !r->ring) ? sh_whole(s, n->in[i])
                                                    : sh_split(s, n->in[i], keys ? &r->kv : &r->q);
    }
    return local_node(s, n, r, in);
}

bool sh_attention_rows(sharder *s, sn_node *n, sh_local *out) {
    rows r;
    return divide_rows(s, n, &r) && sh_done(out, attend(s, n, &r, CAPTURED), r.q);
}

bool sh_attention_grad_rows(sharder *s, sn_node *n, sh_local *out) {
    rows r;
    int64_t index = sn_attr_int(n, SN_A_index, 0);
    if (!divide_rows(s, n, &r)) return false;
    sn_node *y = attend(s, n, &r, CAPTURED_OF_GRAD);
    if (index == 0) return sh_done(out, y, r.q);
    return sh_done(out, y, index < 3 && r.ring ? r.kv : sh_partial_layout());
}
