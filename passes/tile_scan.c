/* tile_scan.c: divides scans among threads and caches: finds the axes that the body treats
 * independently (batches, heads, channels) and lets it compute a part of them at a time, for the whole
 * sequence, so that the carries stay in the first cache.
 *
 * Axes of the body's nodes that go along are one class (union-find). A class is independent if
 * nothing sums, cuts or indexes it, and every carry and output has it once.
 *
 * Requires composites to be expanded. Keeps values. Terminates: a scan is tiled once. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

enum { NONE = -1, MAX_TILE = 4 };

/* A region's nodes: axis a of node order.node[i] is number first + i * SN_MAX_RANK + a. */
typedef struct part {
    const sn_region *region;
    sn_order order;
    int *place; /* by node id */
    int first;
    struct part **inner; /* by place: the body of a nested scan */
} part;

typedef struct tiling {
    sn_module *m;
    int *up; /* by number of an axis: union-find */
    bool *bad;
    int n, cap, cap_bad;
    int n_tile, tile[MAX_TILE]; /* the classes, by number of an axis in each */
    int64_t size[MAX_TILE];     /* of a part */
} tiling;

static int axis_of(const part *p, const sn_node *n, int a) {
    return p->first + p->place[n->id] * SN_MAX_RANK + a;
}

static int find(tiling *t, int x) {
    while (t->up[x] != x) x = t->up[x] = t->up[t->up[x]];
    return x;
}

static void join(tiling *t, int x, int y) {
    x = find(t, x);
    y = find(t, y);
    t->up[y] = x;
    t->bad[x] |= t->bad[y];
}

static void spoil(tiling *t, int x) {
    t->bad[find(t, x)] = true;
}

static void spoil_all(tiling *t, const part *p, const sn_node *n) {
    for (int a = 0; a < n->rank; a++) spoil(t, axis_of(p, n, a));
}

static bool listed(const sn_attr *list, int a) {
    for (int i = 0; list && i < list->n; i++)
        if (list->v[i] == a) return true;
    return false;
}

/* ---- one function per kind of node: which axes of n and its operands go along ---- */

static void along_same(tiling *t, const part *p, const sn_node *n, int but) {
    for (int i = 0; i < n->n_in; i++)
        for (int a = 0; a < n->rank; a++) {
            join(t, axis_of(p, n, a), axis_of(p, n->in[i], a));
            if (a == but) spoil(t, axis_of(p, n, a));
        }
}

static void along_elements(tiling *t, const part *p, const sn_node *n) {
    along_same(t, p, n, NONE);
}

static void along_axis(tiling *t, const part *p, const sn_node *n) {
    along_same(t, p, n, (int)sn_attr_int(n, SN_A_axis, 0));
}

static void along_iota(tiling *t, const part *p, const sn_node *n) {
    spoil(t, axis_of(p, n, (int)sn_attr_int(n, SN_A_axis, 0)));
}

static void along_broadcast(tiling *t, const part *p, const sn_node *n) {
    const sn_node *x = n->in[0];
    int missing = n->rank - x->rank;
    for (int a = 0; a < x->rank; a++)
        if (x->shape[a] == n->shape[a + missing])
            join(t, axis_of(p, n, a + missing), axis_of(p, x, a));
}

static void along_reshape(tiling *t, const part *p, const sn_node *n) {
    const sn_node *x = n->in[0];
    int i = 0, j = 0;
    while (i < x->rank && j < n->rank) {
        if (x->shape[i] == n->shape[j]) {
            join(t, axis_of(p, n, j++), axis_of(p, x, i++));
        } else if (x->shape[i] == 1) {
            i++;
        } else if (n->shape[j] == 1) {
            j++;
        } else { /* several axes become several others */
            int64_t from, to;
            sn_dim a = x->shape[i], b = n->shape[j];
            spoil(t, axis_of(p, x, i++));
            spoil(t, axis_of(p, n, j++));
            while (a != b && i <= x->rank && j <= n->rank) {
                bool known = sn_dim_is_const(t->m, a, &from) && sn_dim_is_const(t->m, b, &to);
                bool more = known ? from < to : j == n->rank;
                if (more && i < x->rank) {
                    a = sn_dim_mul(t->m, a, x->shape[i]);
                    spoil(t, axis_of(p, x, i++));
                } else if (j < n->rank) {
                    b = sn_dim_mul(t->m, b, n->shape[j]);
                    spoil(t, axis_of(p, n, j++));
                } else {
                    break;
                }
            }
        }
    }
    for (; i < x->rank; i++) spoil(t, axis_of(p, x, i));
    for (; j < n->rank; j++) spoil(t, axis_of(p, n, j));
}

static void along_transpose(tiling *t, const part *p, const sn_node *n) {
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    for (int a = 0; a < n->rank; a++)
        join(t, axis_of(p, n, a), axis_of(p, n->in[0], (int)perm->v[a]));
}

/* Axes that keep their size: of a slice or a pad, all of them. */
static void along_window(tiling *t, const part *p, const sn_node *n) {
    const sn_attr *start = sn_attr_get(n, n->op == SN_OP_slice ? SN_A_start : SN_A_low);
    for (int a = 0; a < n->rank; a++) {
        join(t, axis_of(p, n, a), axis_of(p, n->in[0], a));
        if (n->shape[a] != n->in[0]->shape[a] || start->v[a]) spoil(t, axis_of(p, n, a));
    }
}

static void along_reduce(tiling *t, const part *p, const sn_node *n) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    for (int a = 0; a < n->rank; a++)
        if (listed(axes, a))
            spoil(t, axis_of(p, n->in[0], a));
        else
            join(t, axis_of(p, n, a), axis_of(p, n->in[0], a));
}

static void along_dot(tiling *t, const part *p, const sn_node *n) {
    static const sn_attr_key keys[2][2] = {{SN_A_batch_a, SN_A_contract_a},
                                           {SN_A_batch_b, SN_A_contract_b}};
    int at = 0;
    for (int i = 0; i < 2; i++) {
        const sn_attr *batch = sn_attr_get(n, keys[i][0]), *sum = sn_attr_get(n, keys[i][1]);
        for (int k = 0; batch && k < batch->n; k++)
            join(t, axis_of(p, n, k), axis_of(p, n->in[i], (int)batch->v[k]));
        if (!i) at = batch ? batch->n : 0;
        for (int a = 0; a < n->in[i]->rank; a++) {
            if (listed(sum, a))
                spoil(t, axis_of(p, n->in[i], a));
            else if (!listed(batch, a))
                join(t, axis_of(p, n, at++), axis_of(p, n->in[i], a));
        }
    }
}

static part *read_region(tiling *t, const sn_region *r);

static void join_carries(tiling *t, const part *p, const sn_scan *s) {
    for (int i = 0; i < s->n_carry; i++)
        for (int a = 0; a < s->body->arg[i]->rank; a++)
            join(t, axis_of(p, s->body->arg[i], a), axis_of(p, s->body->out[i], a));
}

/* A nested scan; its results are read where a `result` selects them. */
static void along_scan(tiling *t, const part *p, const sn_node *n) {
    sn_scan s = sn_scan_of(n);
    part *body = p->inner[p->place[n->id]] = read_region(t, s.body);
    for (int i = 0; i < s.n_in; i++) {
        int skip = sn_scan_is_sequence(&s, i);
        for (int a = 0; a < s.body->arg[i]->rank; a++)
            join(t, axis_of(p, n->in[i], a + skip), axis_of(body, s.body->arg[i], a));
        if (skip) spoil(t, axis_of(p, n->in[i], 0));
    }
    join_carries(t, body, &s);
}

static void along_result_of_scan(tiling *t, const part *p, const sn_node *n, const sn_node *scan,
                                 int index) {
    sn_scan s = sn_scan_of(scan);
    const part *body = p->inner[p->place[scan->id]];
    int more = index >= s.n_carry;
    if (more) spoil(t, axis_of(p, n, 0));
    for (int a = more; a < n->rank; a++)
        join(t, axis_of(p, n, a), axis_of(body, s.body->out[index], a - more));
}

typedef void (*along_fn)(tiling *t, const part *p, const sn_node *n);

static void along(tiling *t, const part *p, const sn_node *n) {
    static const along_fn table[SN_OP_COUNT] = {
#define ELEM(name, ...) [SN_OP_##name] = along_elements,
#include "ir/ops.def"
        [SN_OP_iota] = along_iota,         [SN_OP_broadcast] = along_broadcast,
        [SN_OP_reshape] = along_reshape,   [SN_OP_transpose] = along_transpose,
        [SN_OP_slice] = along_window,      [SN_OP_pad] = along_window,
        [SN_OP_concat] = along_axis,       [SN_OP_cumsum] = along_axis,
        [SN_OP_reduce_sum] = along_reduce, [SN_OP_reduce_max] = along_reduce,
        [SN_OP_reduce_min] = along_reduce, [SN_OP_dot] = along_dot,
        [SN_OP_scan] = along_scan,         [SN_OP_argsort] = along_axis,
    };
    if (!n->n_in && n->op != SN_OP_iota) return;
    if (n->op == SN_OP_result && n->in[0]->op == SN_OP_scan) {
        along_result_of_scan(t, p, n, n->in[0], (int)sn_attr_int(n, SN_A_index, 0));
    } else if (table[n->op]) {
        table[n->op](t, p, n);
        if (n->op == SN_OP_scan && n->n_result == 1) along_result_of_scan(t, p, n, n, 0);
    } else {
        spoil_all(t, p, n);
        for (int i = 0; i < n->n_in; i++) spoil_all(t, p, n->in[i]);
    }
}

static part *read_region(tiling *t, const sn_region *r) {
    sn_module *m = t->m;
    part *p = sn_arena_alloc(m, sizeof *p);
    *p = (part){.region = r, .order = sn_region_topo(m, r), .first = t->n};
    p->place = sn_arena_alloc(m, sizeof *p->place * sn_module_node_count(m));
    p->inner = sn_arena_alloc(m, sizeof(part *) * (size_t)(p->order.n + r->n_arg + 1));
    int n = 0;
    for (int i = 0; i < r->n_arg; i++) p->place[r->arg[i]->id] = n++;
    for (int i = 0; i < p->order.n; i++)
        if (p->order.node[i]->op != SN_OP_arg) p->place[p->order.node[i]->id] = n++;
    for (int i = 0; i < n * SN_MAX_RANK; i++) {
        int cap = t->cap;
        t->up = sn_arena_grow(m, t->up, sizeof *t->up, t->n, &cap);
        t->bad = sn_arena_grow(m, t->bad, sizeof *t->bad, t->n, &t->cap_bad);
        t->cap = cap;
        t->up[t->n] = t->n;
        t->bad[t->n++] = false;
    }
    for (int i = 0; i < p->order.n; i++) along(t, p, p->order.node[i]);
    return p;
}

/* ---- which classes, how large parts ---- */

/* The axis of n in the class; NONE: none, -2: several. */
static int axis_in_class(tiling *t, const part *p, const sn_node *n, int class) {
    int at = NONE;
    for (int a = 0; a < n->rank; a++)
        if (find(t, axis_of(p, n, a)) == class) at = at == NONE ? a : -2;
    return at;
}

static bool once_or_never(tiling *t, const part *p, int class) {
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (axis_in_class(t, p, n, class) == -2) return false;
        if (n->op == SN_OP_scan && !once_or_never(t, p->inner[p->place[n->id]], class))
            return false;
    }
    return true;
}

static bool is_independent(tiling *t, const part *p, int class) {
    if (t->bad[class] || !once_or_never(t, p, class)) return false;
    for (int i = 0; i < p->region->n_out; i++)
        if (axis_in_class(t, p, p->region->out[i], class) < 0) return false;
    return true;
}

/* Elements of the largest tensor in the body; axes of unknown size count as 1. */
static int64_t largest(const part *p) {
    int64_t found = 1, size;
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        int64_t count = 1;
        if (n->op == SN_OP_scan) count = largest(p->inner[p->place[n->id]]);
        for (int a = 0; a < n->rank && n->op != SN_OP_scan; a++)
            if (sn_dim_is_const(n->m, n->shape[a], &size)) count *= size;
        if (count > found) found = count;
    }
    return found;
}

static bool has_product(const part *p) {
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (n->op == SN_OP_dot || (n->op == SN_OP_scan && has_product(p->inner[p->place[n->id]])))
            return true;
    }
    return false;
}

/* Classes from the outermost axis of the first result on, in parts that are as small as possible but
 * keep a call of a kernel busy: about 8 KiB, 16 KiB with products. */
static void choose(tiling *t, const part *p) {
    const sn_node *y = p->region->out[0];
    int64_t work = largest(p), least = has_product(p) ? 4096 : 2048, size;
    for (int a = 0; a < y->rank && t->n_tile < MAX_TILE; a++) {
        int class = find(t, axis_of(p, y, a));
        bool known = sn_dim_is_const(t->m, y->shape[a], &size);
        if (!is_independent(t, p, class) || (known && (size < 2 || work <= least))) continue;
        int64_t each = 1;
        while (known && (size % each || work / size * each < least)) each++;
        if (known && each == size) continue;
        if (known) work = work / size * each;
        t->tile[t->n_tile] = class;
        t->size[t->n_tile++] = each;
    }
}

/* ---- the new body ---- */

static int tile_at(tiling *t, const part *p, const sn_node *n, int a) {
    for (int k = 0; k < t->n_tile; k++)
        if (find(t, axis_of(p, n, a)) == t->tile[k]) return k;
    return NONE;
}

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
    sn_attr *attr = sn_arena_alloc(t->m, sizeof *attr * (size_t)(n->n_attr + 1));
    sn_dim shape[SN_MAX_RANK];
    part_shape(t, p, n, shape);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (shape_key[n->op] && attr[i].key == shape_key[n->op]) attr[i].v = shape;
        if (n->op == SN_OP_scan && attr[i].key == SN_A_body)
            attr[i].r = part_region(t, p->inner[p->place[n->id]]);
    }
    sn_module_set_loc(t->m, n->loc);
    return sn_node_new(t->m, (sn_op)n->op, n->n_in, in, n->n_attr, attr);
}

static sn_region *part_region(tiling *t, const part *p) {
    const sn_region *r = p->region;
    sn_node **to = sn_arena_alloc(t->m, sizeof *to * (size_t)(p->order.n + r->n_arg + 1));
    sn_node **arg = sn_arena_alloc(t->m, sizeof *arg * (size_t)(r->n_arg + 1));
    sn_node **out = sn_arena_alloc(t->m, sizeof *out * (size_t)(r->n_out + 1));
    for (int i = 0; i < r->n_arg; i++) {
        sn_dim shape[SN_MAX_RANK];
        const sn_node *a = r->arg[i];
        part_shape(t, p, a, shape);
        to[p->place[a->id]] = arg[i] = sn_arg(t->m, i, (sn_dtype)a->dtype, a->rank, shape);
    }
    for (int i = 0; i < p->order.n; i++) {
        const sn_node *n = p->order.node[i];
        if (n->op == SN_OP_arg) continue;
        sn_node **in = sn_arena_alloc(t->m, sizeof *in * (size_t)(n->n_in + 1));
        for (int k = 0; k < n->n_in; k++) in[k] = to[p->place[n->in[k]->id]];
        to[p->place[n->id]] = part_node(t, p, n, in);
    }
    for (int i = 0; i < r->n_out; i++) out[i] = to[p->place[r->out[i]->id]];
    return sn_region_new(t->m, r->n_arg, arg, r->n_out, out);
}

static sn_node *tiled(tiling *t, const part *p, sn_node *n) {
    sn_scan s = sn_scan_of(n);
    int n_row = s.n_in + s.body->n_out, k = 0;
    int64_t *tiles = sn_arena_alloc(t->m, sizeof *tiles * (size_t)(1 + t->n_tile * n_row));
    sn_attr *attr = sn_arena_alloc(t->m, sizeof *attr * (size_t)(n->n_attr + 1));
    tiles[k++] = t->n_tile;
    for (int i = 0; i < n_row; i++)
        for (int j = 0; j < t->n_tile; j++)
            tiles[k++] = axis_in_class(t, p, i < s.n_in ? s.body->arg[i] : s.body->out[i - s.n_in],
                                       t->tile[j]);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (attr[i].key == SN_A_body) attr[i].r = part_region(t, p);
    }
    attr[n->n_attr] = SN_LIST(tiles, k, tiles);
    return sn_node_new(t->m, SN_OP_scan, n->n_in, n->in, n->n_attr + 1, attr);
}

static sn_node *rule(void *ctx, sn_node *n) {
    tiling t = {.m = n->m};
    (void)ctx;
    if (n->op != SN_OP_scan || sn_attr_get(n, SN_A_tiles)) return n;
    sn_loc loc = sn_module_loc(n->m);
    sn_scan s = sn_scan_of(n);
    const part *p = read_region(&t, s.body);
    join_carries(&t, p, &s);
    choose(&t, p);
    sn_node *r = t.n_tile ? tiled(&t, p, n) : n;
    sn_module_set_loc(n->m, loc);
    return r;
}

int sn_pass_tile_scan(sn_passes *p) {
    return sn_rewrite_module(p->m, rule, NULL);
}
