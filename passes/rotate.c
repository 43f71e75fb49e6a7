/* rotate.c: moves rotary embeddings to the product whose heads they rotate, so that queries and
 * keys are rotated in its registers (fuse.c).
 *
 * Requires composites, after merge. Keeps values. Splits the columns of a linear map into blocks: its
 * heads, or the rotated part of each. One `rope` rotates every block; a select keeps the blocks that
 * are not rotated; a factor for each block scales. Rotated tensors, and slices of the others, become
 * views of the result. All rotations must be by the same positions, and weights must never change:
 * otherwise the product does not get them in panels, where the two halves of a block are side by
 * side. Terminates: one walk. */
#include "passes/backend.h"
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/match.h"
#include "passes/passes.h"
#include "passes/view.h"

#include <string.h>

enum { MAX_RANGES = 8 };

/* The attributes and operands that must be equal for ropes to be merged. Of `step` blocks of `width`
 * columns block `block` is rotated. */
typedef struct rotation {
    sn_node *pos, *freq; /* freq: NULL: base tells */
    double base;
    int64_t width, step, block, interleaved;
    int axis; /* axis of the positions in the map's result */
} rotation;

/* Blocks of columns, the last excluded; factor on those that are rotated. */
typedef struct range {
    int64_t first, last;
    double scale;
} range;

/* A linear map with heads that are rotated. */
typedef struct product {
    sn_node *map;
    rotation rotation;
    range range[MAX_RANGES]; /* of whole heads, ascending, disjoint */
    int n_range;
    /* results: [.., blocks, width]; the rotated ones in the shape of the map's result */
    sn_node *whole, *rotated;
} product;

typedef struct rotator {
    sn_passes *p;
    sn_module *m;
    product *product;
    int n_product, cap_product;
    int *product_of; /* by old id of a map: 1 + index */
    /* by old id of a rope, or of a slice of heads that are not rotated: the same */
    int *member_of;
    sn_node **made; /* by old id */
} rotator;

static bool is_renaming(const sn_node *n) {
    return n->op == SN_OP_reshape || n->op == SN_OP_transpose || n->op == SN_OP_slice;
}

static sn_node *below_renaming(sn_node *n) {
    while (is_renaming(n)) n = n->in[0];
    return n;
}

/* The columns that a view of the map's result has of every row: [first, last). axis_of: for each
 * axis of the view the map's axis, -1: none (part of the columns, or size 1). False: it does not
 * have all rows. */
static bool columns_of(sn_module *m, const sn_view *v, const sn_node *map, int *axis_of,
                       int64_t *first, int64_t *last) {
    sn_view y = sn_view_whole(m, 0, (sn_dtype)map->dtype, map->rank, map->shape, NULL);
    unsigned found = 0;
    if (!sn_dim_is_const(m, v->offset, first)) return false;
    *last = *first + 1;
    for (int i = 0; i < v->rank; i++) {
        int64_t size, stride;
        axis_of[i] = -1;
        if (v->shape[i] == 1) continue;
        for (int a = 0; a < map->rank - 1 && axis_of[i] < 0; a++)
            if (!(found >> a & 1) && y.shape[a] == v->shape[i] && y.stride[a] == v->stride[i])
                axis_of[i] = a;
        if (axis_of[i] >= 0) {
            found |= 1u << axis_of[i];
            continue;
        }
        if (!sn_dim_is_const(m, v->shape[i], &size) || !sn_dim_is_const(m, v->stride[i], &stride) ||
            stride < 1)
            return false;
        *last += (size - 1) * stride;
    }
    int64_t width;
    for (int a = 0; a < map->rank - 1; a++)
        if (!(found >> a & 1) && y.shape[a] != 1) return false;
    return sn_dim_is_const(m, map->shape[map->rank - 1], &width) && *last <= width;
}

/* Weights that the product will get in panels. */
static bool has_panels(const sn_node *map) {
    return map->op == SN_OP_linear && !sn_attr_get(map, SN_A_size) && sn_match_float(map) &&
           map->in[0]->dtype == map->dtype && map->in[1]->dtype == map->dtype &&
           sn_from_params_only(map->in[1]) && sn_static_shape(map->in[1]) &&
           !sn_is_fixed(map->in[0]);
}

/* Divides heads of a number of columns, from column `at` of the map on, into blocks
 * as wide as what is rotated. False: the rotated columns would not be one of the blocks. */
static bool divide_heads(const sn_node *rope, int64_t head, int64_t at, rotation *t) {
    const sn_attr *columns = sn_attr_get(rope, SN_A_columns);
    int64_t first = columns ? columns->v[0] : 0;
    t->width = columns ? columns->v[1] - first : head;
    t->step = head / t->width;
    t->block = (at + first) / t->width % t->step;
    return head % t->width == 0 && first % t->width == 0 && at % t->width == 0;
}

/* Says that an elementwise operation on the heads of a product keeps it from rotating them. */
static void report_between(const rotator *r, const sn_node *rope, const sn_node *between) {
    const sn_node *map = between;
    if (!sn_is_elementwise(between)) return;
    while (map->n_in && (is_renaming(map) || sn_is_elementwise(map))) map = map->in[0];
    if (!has_panels(map)) return;
    sn_remark_add(
        r->p, "rotate", rope, true,
        "positions are rotated in a separate kernel: %s stands between the product and the "
        "rotation. Instead: rotate the product's result, and do this afterwards if it is "
        "the same for both numbers of a pair",
        sn_name_with_place(between));
}

/* Reads a rope: its parameters, its map and the blocks. False: not such a rope. */
static bool read_rotation(rotator *r, const sn_node *rope, rotation *t, range *range) {
    sn_node *x = rope->in[0], *map = below_renaming(x);
    int axis_of[SN_MAX_RANK], time = x->rank - 2;
    int64_t first, last, all, head;
    sn_view v;
    report_between(r, rope, map);
    if (rope->op != SN_OP_rope || sn_attr_get(rope, SN_A_axis) || rope->dtype != map->dtype ||
        !has_panels(map) || !sn_view_over(x, map, &v) ||
        !columns_of(r->m, &v, map, axis_of, &first, &last))
        return false;
    *t = (rotation){.pos = rope->in[1],
                    .freq = rope->n_in > 2 ? rope->in[2] : NULL,
                    .base = sn_attr_flt(rope, SN_A_base, 10000),
                    .interleaved = sn_attr_int(rope, SN_A_interleaved, 0),
                    .axis = axis_of[time]};
    if (!sn_dim_is_const(r->m, v.shape[time + 1], &head) || v.stride[time + 1] != 1) return false;
    for (int i = 0; i <= time; i++) /* heads side by side */
        if (axis_of[i] < 0 && v.shape[i] != 1 && v.stride[i] != head) return false;
    for (int a = map->rank - 2; a >= 0 && v.shape[time] == 1 && t->axis < 0; a--)
        if (map->shape[a] == 1) t->axis = a;
    bool items = t->pos->rank == 2; /* positions for each item of the first axis of both */
    if (t->axis < items || (items && axis_of[0] != 0 && (v.shape[0] != 1 || map->shape[0] != 1)))
        return false;
    sn_dim_is_const(r->m, map->shape[map->rank - 1], &all);
    if ((last - first) % head || map->rank >= SN_MAX_RANK) return false;
    if (!divide_heads(rope, head, first, t) || all % t->width) {
        sn_remark_add(
            r->p, "rotate", rope, true,
            "positions are rotated in a separate kernel: heads of %lld columns from column "
            "%lld of %lld on are not blocks of %lld with one that is rotated",
            (long long)head, (long long)first, (long long)all, (long long)t->width);
        return false;
    }
    range->first = first / t->width;
    range->last = last / t->width;
    range->scale = sn_attr_flt(rope, SN_A_scale, 1);
    return true;
}

static bool same_rotation(const rotation *a, const rotation *b) {
    return a->pos == b->pos && a->freq == b->freq && a->base == b->base && a->width == b->width &&
           a->step == b->step && a->block == b->block && a->interleaved == b->interleaved &&
           a->axis == b->axis;
}

/* Adds a range; adjoining ranges with the same factor are merged. False: too many, or some blocks are
 * already rotated. */
static bool add_range(product *k, range added) {
    range *of = k->range;
    int at = 0;
    while (at < k->n_range && of[at].first < added.first) at++;
    if (k->n_range == MAX_RANGES || (at && of[at - 1].last > added.first) ||
        (at < k->n_range && added.last > of[at].first))
        return false;
    memmove(&of[at + 1], &of[at], sizeof *of * (size_t)(k->n_range - at));
    of[at] = added;
    k->n_range++;
    for (int i = 0; i + 1 < k->n_range;) {
        if (of[i].last != of[i + 1].first || of[i].scale != of[i + 1].scale) {
            i++;
            continue;
        }
        of[i].last = of[i + 1].last;
        memmove(&of[i + 1], &of[i + 2], sizeof *of * (size_t)(k->n_range - i - 2));
        k->n_range--;
    }
    return true;
}

static void find_rope(rotator *r, sn_node *rope) {
    rotation t;
    range range;
    sn_node *map = below_renaming(rope->in[0]);
    if (!read_rotation(r, rope, &t, &range)) return;
    if (!sn_panels_swap((sn_dtype)rope->dtype, t.interleaved ? 1 : t.width / 2)) {
        sn_remark_add(r->p, "rotate", rope, true,
                      "positions are rotated in a separate kernel: %lld rotated numbers neither "
                      "divide %d nor are a multiple of it",
                      (long long)t.width, sn_panel_columns((sn_dtype)rope->dtype));
        return;
    }
    if (!r->product_of[map->id]) {
        if (sn_depends_on(r->m, t.pos, map)) return;
        r->product =
            sn_arena_grow(r->m, r->product, sizeof *r->product, r->n_product, &r->cap_product);
        r->product[r->n_product] = (product){.map = map, .rotation = t};
        r->product_of[map->id] = ++r->n_product;
    }
    product *k = &r->product[r->product_of[map->id] - 1];
    if (!same_rotation(&k->rotation, &t) || !add_range(k, range)) {
        bool merged = map->in[1]->op == SN_OP_concat; /* not by the user */
        sn_remark_add(r->p, "rotate", rope, !merged,
                      "positions are rotated in a separate kernel: other heads of %s are rotated "
                      "differently%s",
                      merged ? "the product that this one was joined with" : "this product",
                      merged ? "" : ". Instead: rotate the same columns of all of them");
        return;
    }
    r->member_of[rope->id] = r->product_of[map->id];
}

/* A slice of heads that no rope rotates is read from the rotated result, too, so that the original
 * is not stored. */
static void find_rest(rotator *r, sn_node *slice) {
    sn_node *map = below_renaming(slice);
    int axis_of[SN_MAX_RANK];
    int64_t first, last;
    sn_view v;
    if (slice->op != SN_OP_slice || !r->product_of[map->id] || !sn_view_over(slice, map, &v) ||
        !columns_of(r->m, &v, map, axis_of, &first, &last))
        return;
    const product *k = &r->product[r->product_of[map->id] - 1];
    for (int i = 0; i < k->n_range; i++)
        if (first < k->range[i].last * k->rotation.width &&
            k->range[i].first * k->rotation.width < last)
            return;
    r->member_of[slice->id] = r->product_of[map->id];
}

static sn_node *build(rotator *r, sn_node *old);

/* Which of the blocks are rotated in range i, [blocks, 1]; NULL: all. */
static sn_node *rotated_blocks(rotator *r, const product *k, int i, sn_dim blocks) {
    const rotation *t = &k->rotation;
    const range *of = &k->range[i];
    const sn_dim shape[2] = {blocks, 1};
    sn_node *at = sn_b_iota(r->m, SN_I32, 2, shape, 0), *in = NULL;
    if (of->last < blocks) in = sn_b_scalar(SN_OP_lt, at, (double)of->last);
    if (of->first > 0) {
        sn_node *from = sn_b_unary(SN_OP_not, sn_b_scalar(SN_OP_lt, at, (double)of->first));
        in = in ? sn_b_binary(SN_OP_and, in, from) : from;
    }
    if (t->step > 1) {
        sn_node *block = sn_b_scalar(SN_OP_mod, at, (double)t->step);
        sn_node *one = sn_b_scalar(SN_OP_eq, block, (double)t->block);
        in = in ? sn_b_binary(SN_OP_and, in, one) : one;
    }
    return in;
}

/* The map with an axis of blocks, some of them rotated. */
static void build_product(rotator *r, product *k) {
    const sn_node *map = k->map;
    const rotation *t = &k->rotation;
    int64_t all;
    sn_node *in[3];
    const sn_attr attr[3] = {SN_INT(axis, t->axis), SN_FLT(base, t->base),
                             SN_INT(interleaved, t->interleaved)};
    sn_dim_is_const(r->m, map->shape[map->rank - 1], &all);
    sn_dim blocks = all / t->width, size[2] = {blocks, t->width};
    for (int i = 0; i < map->n_in; i++) in[i] = build(r, map->in[i]);
    k->whole = sn_node_new(r->m, SN_OP_linear, map->n_in, in, SN_ATTRS(SN_LIST(size, 2, size)));
    sn_node *rope = sn_node_new(
        r->m, SN_OP_rope, t->freq ? 3 : 2,
        (sn_node *[]){k->whole, build(r, t->pos), t->freq ? build(r, t->freq) : NULL}, 3, attr);
    sn_node *y = k->whole;
    for (int i = 0; i < k->n_range; i++) {
        sn_node *in_range = rotated_blocks(r, k, i, blocks);
        sn_node *rotated = sn_b_scalar(SN_OP_mul, rope, k->range[i].scale);
        y = in_range ? sn_b_select(in_range, rotated, y) : rotated;
    }
    k->rotated = sn_b_reshape(y, map->rank, map->shape);
}

/* n, a view of a map's result, as the same view of `of`. */
static sn_node *view_again(const sn_node *n, const sn_node *map, sn_node *of) {
    if (n == map) return of;
    sn_node *below = view_again(n->in[0], map, of);
    return sn_node_with(n, &below);
}

static sn_node *build(rotator *r, sn_node *old) {
    if (r->made[old->id]) return r->made[old->id];
    sn_module_set_loc(r->m, old->loc);
    int map = r->product_of[old->id], member = r->member_of[old->id];
    sn_node *made;
    if (map) {
        product *k = &r->product[map - 1];
        build_product(r, k);
        made = sn_b_reshape(k->whole, old->rank, old->shape);
    } else if (member) {
        const product *k = &r->product[member - 1];
        build(r, k->map);
        made = view_again(old->op == SN_OP_rope ? old->in[0] : old, k->map, k->rotated);
    } else {
        for (int i = 0; i < old->n_in; i++) build(r, old->in[i]);
        made = sn_node_from(old, r->made);
    }
    return r->made[old->id] = made;
}

int sn_pass_rotate(sn_passes *p) {
    sn_module *m = p->m;
    if (!p->o.constant_params || sn_backend_wanted(p)) return 0;
    int n_live, n_root = sn_module_roots(m, NULL, &n_live, false);
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n_root + 1));
    sn_module_roots(m, root, &n_live, false);
    sn_order live = sn_topo(m, n_live, root), order = sn_topo(m, n_root, root);
    uint32_t n_old = sn_module_node_count(m);
    rotator r = {.p = p, .m = m};
    r.product_of = sn_arena_alloc(m, sizeof *r.product_of * n_old);
    r.member_of = sn_arena_alloc(m, sizeof *r.member_of * n_old);
    r.made = sn_arena_alloc(m, sizeof *r.made * n_old);
    for (int i = 0; i < live.n; i++)
        if (live.node[i]->op == SN_OP_rope) find_rope(&r, live.node[i]);
    if (!r.n_product) return 0;
    for (int i = 0; i < live.n; i++) find_rest(&r, live.node[i]);
    sn_loc loc = sn_module_loc(m);
    for (int i = 0; i < order.n; i++) build(&r, order.node[i]);
    sn_module_set_loc(m, loc);
    if (sn_module_error(m)->code) return 0;
    for (int i = 0; i < n_root; i++) root[i] = r.made[root[i]->id];
    sn_module_roots(m, root, &n_live, true);
    sn_lineage_add_map(m, r.made, n_old);
    return r.n_product;
}
