/* tile_scan.c: divides scans among threads and caches: finds the axes that the body treats
 * independently (batches, heads, channels) and lets it compute a part of them at a time, for the whole
 * sequence, so that the carries stay in the first cache.
 *
 * Axes of the body's nodes that go along are one class (union-find). A class is independent if
 * nothing sums, cuts or indexes it, and every carry and output has it once.
 *
 * Requires composites to be expanded. Keeps values. Terminates: a scan is tiled once. */
#include "passes/axes.h"
#include "passes/passes.h"

#include <string.h>

enum { NONE = -1, MAX_TILE = 4, PACKED_ROWS = 256 };

typedef sn_axes_body part;

typedef struct tiling {
    sn_axes a;
    int n_tile, tile[MAX_TILE]; /* the classes, by number of an axis in each */
    int64_t size[MAX_TILE];     /* of a part */
} tiling;

/* ---- which classes, how large parts ---- */

static bool once_or_never(tiling *t, const part *p, int class) {
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (sn_axes_in_class(&t->a, p, n, class) == -2) return false;
        if (n->op == SN_OP_scan && !once_or_never(t, p->inner[p->index[n->id]], class))
            return false;
    }
    return true;
}

static bool is_independent(tiling *t, const part *p, int class) {
    if (t->a.fate[class] || !once_or_never(t, p, class)) return false;
    for (int i = 0; i < p->region->n_out; i++)
        if (sn_axes_in_class(&t->a, p, p->region->out[i], class) < 0) return false;
    return true;
}

/* Elements of the largest tensor in the body; axes of unknown size count as 1. */
static int64_t largest(const part *p) {
    int64_t found = 1, size;
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        int64_t count = 1;
        if (n->op == SN_OP_scan) count = largest(p->inner[p->index[n->id]]);
        for (int a = 0; a < n->rank && n->op != SN_OP_scan; a++)
            if (sn_dim_is_const(n->m, n->shape[a], &size)) count *= size;
        if (count > found) found = count;
    }
    return found;
}

static bool has_product(const part *p) {
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (n->op == SN_OP_dot || (n->op == SN_OP_scan && has_product(p->inner[p->index[n->id]])))
            return true;
    }
    return false;
}

/* The chosen class of axis a of n, if any. */
static int tile_at(tiling *t, const part *p, const sn_node *n, int a) {
    for (int k = 0; k < t->n_tile; k++)
        if (sn_axes_class(&t->a, sn_axes_number(p, n, a)) == t->tile[k]) return k;
    return NONE;
}

/* Fewest rows of a product that has the class in one factor only: each part may pack the other one again. 0: there is no
 * such product; axes of unknown size count as 1. */
static int64_t count_rows(tiling *t, const part *p, int class) {
    int64_t least = 0, size;
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (n->op != SN_OP_dot) continue;
        bool left = sn_axes_in_class(&t->a, p, n->in[0], class) >= 0;
        if (left == (sn_axes_in_class(&t->a, p, n->in[1], class) >= 0)) continue;
        const sn_node *x = n->in[!left];
        const sn_attr *sums = sn_attr_get(n, left ? SN_A_contract_a : SN_A_contract_b);
        int64_t rows = 1;
        for (int a = 0; a < x->rank; a++) {
            bool summed = false;
            for (int k = 0; sums && k < sums->n; k++) summed |= sums->v[k] == a;
            if (summed || !sn_dim_is_const(n->m, x->shape[a], &size)) continue;
            int k = tile_at(t, p, x, a);
            rows *= k < 0 ? size : t->size[k];
        }
        if (!least || rows < least) least = rows;
    }
    return least;
}

/* Classes from the outermost axis of the first result on, in parts that are as small as possible but
 * keep a call of a kernel busy: about 8 KiB, 16 KiB with products, and of many rows as many as packing a matrix pays for. */
static void choose(tiling *t, const part *p, const part *again) {
    const sn_node *y = p->region->out[0];
    int64_t work = largest(p), least = has_product(p) ? 4096 : 2048, size;
    for (int a = 0; a < y->rank && t->n_tile < MAX_TILE; a++) {
        int class = sn_axes_class(&t->a, sn_axes_number(p, y, a));
        bool known = sn_dim_is_const(t->a.m, y->shape[a], &size);
        if (!is_independent(t, p, class) || (again && !is_independent(t, again, class)) ||
            (known && (size < 2 || work <= least)))
            continue;
        int64_t each = 1, rows = known ? count_rows(t, p, class) : 0;
        bool packs = rows >= 2 * PACKED_ROWS;
        while (known && each < size &&
               (size % each || work / size * each < least ||
                (packs && rows / size * each < PACKED_ROWS)))
            each++;
        if (known && each == size) continue;
        if (known) work = work / size * each;
        t->tile[t->n_tile] = class;
        t->size[t->n_tile++] = each;
    }
}

/* ---- the new body ---- */

static void part_shape(tiling *t, const part *p, const sn_node *n, sn_dim *shape) {
    for (int a = 0; a < n->rank; a++) {
        int k = tile_at(t, p, n, a);
        shape[a] = k < 0 ? n->shape[a] : t->size[k];
    }
}

static sn_region *part_region(tiling *t, const part *p);

static sn_node *part_node(tiling *t, const part *p, const sn_node *n, sn_node *const *in) {
    static const sn_attr_key shape_key[SN_OP_COUNT] = {[SN_OP_broadcast] = SN_A_shape,
                                                       [SN_OP_reshape] = SN_A_shape,
                                                       [SN_OP_iota] = SN_A_shape,
                                                       [SN_OP_slice] = SN_A_size};
    sn_attr *attr = sn_arena_alloc(t->a.m, sizeof *attr * (size_t)(n->n_attr + 1));
    sn_dim shape[SN_MAX_RANK];
    part_shape(t, p, n, shape);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (shape_key[n->op] && attr[i].key == shape_key[n->op]) attr[i].v = shape;
        if (n->op == SN_OP_scan && attr[i].key == SN_A_body)
            attr[i].r = part_region(t, p->inner[p->index[n->id]]);
    }
    sn_module_set_loc(t->a.m, n->loc);
    return sn_node_new(t->a.m, (sn_op)n->op, n->n_in, in, n->n_attr, attr);
}

static sn_region *part_region(tiling *t, const part *p) {
    const sn_region *r = p->region;
    sn_node **to = sn_arena_alloc(t->a.m, sizeof *to * (size_t)(p->order.n + r->n_arg + 1));
    sn_node **arg = sn_arena_alloc(t->a.m, sizeof *arg * (size_t)(r->n_arg + 1));
    sn_node **out = sn_arena_alloc(t->a.m, sizeof *out * (size_t)(r->n_out + 1));
    for (int i = 0; i < r->n_arg; i++) {
        sn_dim shape[SN_MAX_RANK];
        const sn_node *a = r->arg[i];
        part_shape(t, p, a, shape);
        to[p->index[a->id]] = arg[i] = sn_arg(t->a.m, i, (sn_dtype)a->dtype, a->rank, shape);
    }
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (n->op == SN_OP_arg) continue;
        sn_node **in = sn_arena_alloc(t->a.m, sizeof *in * (size_t)(n->n_in + 1));
        for (int k = 0; k < n->n_in; k++) in[k] = to[p->index[n->in[k]->id]];
        to[p->index[n->id]] = part_node(t, p, n, in);
    }
    for (int i = 0; i < r->n_out; i++) out[i] = to[p->index[r->out[i]->id]];
    return sn_region_new(t->a.m, r->n_arg, arg, r->n_out, out);
}

static sn_node *tiled(tiling *t, const part *p, const part *again, sn_node *n) {
    sn_scan s = sn_scan_of(n);
    int n_row = s.n_in + s.body->n_out, k = 0;
    int64_t *tiles = sn_arena_alloc(t->a.m, sizeof *tiles * (size_t)(1 + t->n_tile * n_row));
    sn_attr *attr = sn_arena_alloc(t->a.m, sizeof *attr * (size_t)(n->n_attr + 1));
    tiles[k++] = t->n_tile;
    for (int i = 0; i < n_row; i++)
        for (int j = 0; j < t->n_tile; j++)
            tiles[k++] = sn_axes_in_class(
                &t->a, p, i < s.n_in ? s.body->arg[i] : s.body->out[i - s.n_in], t->tile[j]);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (attr[i].key == SN_A_body) attr[i].r = part_region(t, p);
        if (attr[i].key == SN_A_again) attr[i].r = part_region(t, again);
    }
    attr[n->n_attr] = SN_LIST(tiles, k, tiles);
    return sn_node_new(t->a.m, SN_OP_scan, n->n_in, n->in, n->n_attr + 1, attr);
}

static sn_node *rule(void *ctx, sn_node *n) {
    tiling t = {.a.m = n->m};
    (void)ctx;
    if (n->op != SN_OP_scan || sn_attr_get(n, SN_A_tiles)) return n;
    sn_loc loc = sn_module_loc(n->m);
    sn_scan s = sn_scan_of(n);
    const part *p = sn_axes_read(&t.a, s.body), *again = NULL;
    sn_axes_join_carries(&t.a, p, &s);
    if (s.again) sn_axes_join_again(&t.a, p, again = sn_axes_read(&t.a, s.again), &s);
    choose(&t, p, again);
    sn_node *r = t.n_tile ? tiled(&t, p, again, n) : n;
    sn_module_set_loc(n->m, loc);
    return r;
}

int sn_pass_tile_scan(sn_passes *p) {
    return sn_rewrite_module(p->m, rule, NULL);
}
