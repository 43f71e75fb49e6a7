/* fuse.c: replaces every group of primitives by one FUSED node: `map_reduce` or `gemm` with the
 * group's operations as a region.
 *
 * Requires primitives only (after expand). Keeps values. Afterwards an entry consists of leaves,
 * views, FUSED nodes and primitives with a separate kernel. Terminates: each group is built
 * once. */
#include "passes/choice.h"
#include "passes/graph_util.h"
#include "passes/grouping.h"
#include "passes/kernels/costs.h"
#include "passes/int8_rows.h"
#include "passes/kernels/table.h"

#include <string.h>

typedef struct builder {
    sn_grouping *g;
    sn_module *m;
    sn_node **made; /* by old id: the replacement */
    int *uses;      /* by old id: users outside its group (roots count) */
    bool *bound;    /* by old id: one of them needs it in memory */
    int count;
    bool reported; /* why norms are not fused into products */
} builder;

static sn_node *build_value(builder *b, sn_node *n);

/* Whether n is computed inside the kernel of group k (a member, or something that every kernel
 * recomputes). */
static bool inside(const builder *b, int k, const sn_node *n) {
    if (n->id >= b->g->n_id) return false;
    if (b->g->group_of[n->id] == k) return true;
    return sn_group_absorbs(b->g, n) && b->g->group_of[n->id] < 0;
}

/* Cheap nodes that have a kernel (because they are needed in memory) are still recomputed here. */
static bool recomputed(const builder *b, const sn_node *n) {
    return n->id < b->g->n_id && sn_group_absorbs(b->g, n);
}

typedef struct cut_list {
    sn_node **node;
    int n, cap;
    uint8_t *seen;
} cut_list;

static void add_cut(builder *b, cut_list *c, sn_node *n) {
    c->node = sn_arena_grow(b->m, c->node, sizeof *c->node, c->n, &c->cap);
    c->node[c->n++] = n;
}

/* Whether n is a reduction along rows that its kernel, a product, makes over panels of columns first. */
static bool is_row_sum(const builder *b, const sn_node *n) {
    const sn_grouping *g = b->g;
    return g->in_panels[n->id] && g->group[g->group_of[n->id]].kernel == SN_KERNEL_gemm;
}

/* What n reduces over panels of columns in the epilogue of group k, a product; NULL: it does not. */
static sn_node *summed_by(const builder *b, int k, const sn_node *n) {
    bool inner = k >= 0 && b->g->group[k].kernel == SN_KERNEL_gemm && inside(b, k, n);
    if (!inner || !sn_reduces(n)) return NULL;
    return is_row_sum(b, n) ? n->in[0] : n->in[0]->in[0];
}

enum { WALKED = 1, IN_MEMORY };

/* Collects the tensors that the body reads, in the order of a walk from its results. */
static void find_cut(builder *b, int k, cut_list *c, sn_node *n, sn_node *stop) {
    if (c->seen[n->id]) return;
    c->seen[n->id] = WALKED;
    if (n == stop) return;
    bool in_body = inside(b, k, n) || recomputed(b, n) || n->op == SN_OP_broadcast;
    if (!in_body) {
        c->seen[n->id] = IN_MEMORY;
        add_cut(b, c, n);
        return;
    }
    sn_node *x = summed_by(b, k, n);
    if (x) { /* through the view that splits it into panels */
        find_cut(b, k, c, x, stop);
        return;
    }
    bool swap = b->g->group[k].kernel == SN_KERNEL_gemm; /* read by the epilogue from memory */
    for (int i = 0; i < n->n_in; i++) {
        if (swap || !sn_reads_far(n, i))
            find_cut(b, k, c, n->in[i], stop);
        else if (c->seen[n->in[i]->id] != IN_MEMORY) {
            /* random access: must be in memory, even if it could be computed here */
            c->seen[n->in[i]->id] = IN_MEMORY;
            add_cut(b, c, n->in[i]);
        }
    }
}

/* The group's results: members with users outside it; for a product, those of its shape first. */
static int find_results(builder *b, const sn_group *k, sn_node **out) {
    int n = 0;
    for (int sums = 0; sums < 2; sums++)
        for (int i = 0; i < k->n_member; i++) {
            bool sum = k->kernel == SN_KERNEL_gemm && sn_reduces(k->member[i]);
            if (b->uses[k->member[i]->id] && sum == sums) out[n++] = k->member[i];
        }
    return n;
}

static sn_node *map_reduce(int n_in, sn_node *const *in, sn_region *body) {
    return sn_node_new(body->out[0]->m, SN_OP_map_reduce, n_in, in, SN_ATTRS(SN_REG(body, body)));
}

/* n, a reduction along rows, of that over panels. Panels of one row are far apart, rows of one panel are
 * contiguous: an epilogue has the latter at hand. */
static sn_node *end_row_sum(const sn_node *n, sn_node *panels) {
    int64_t last = panels->rank - 1, perm[SN_MAX_RANK] = {last - 1}, first = 0;
    for (int64_t a = 0; a < last - 1; a++) perm[a + 1] = a;
    perm[last] = last;
    sn_module_set_loc(n->m, n->loc);
    sn_node *x = sn_b_transpose(panels, panels->rank, perm);
    sn_node *arg = sn_arg(n->m, 0, (sn_dtype)x->dtype, x->rank, x->shape);
    sn_node *sum = sn_b_reduce((sn_op)n->op, arg, 1, &first);
    sn_region *body = sn_region_new(n->m, 1, &arg, 1, &sum);
    if (sum != arg) /* there are several panels */
        x = map_reduce(1, &x, body);
    return sn_b_reshape(x, n->rank, n->shape);
}

static void publish(builder *b, sn_node *fused, int n_out, sn_node *const *out) {
    for (int i = 0; i < n_out; i++) {
        sn_node *y = sn_b_result(fused, i);
        b->made[out[i]->id] = is_row_sum(b, out[i]) ? end_row_sum(out[i], y) : y;
    }
    b->count++;
}

enum { KERNEL_RESULTS = 8 };

/* A kernel has up to KERNEL_RESULTS results: a group with more becomes several kernels, and
 * each computes what it needs. */
static void build_results(builder *b, int k,
                          void (*build)(builder *, int k, int n_out, sn_node *const *out)) {
    const sn_group *g = &b->g->group[k];
    sn_node **out = sn_arena_alloc(b->m, sizeof *out * (size_t)g->n_member);
    int n = find_results(b, g, out);
    int whole = 0;
    for (int i = 0; i < n; i++) { /* selected blocks have a kernel of their own */
        if (g->kernel == SN_KERNEL_gemm && out[i]->op == SN_OP_take_blocks)
            build(b, k, 1, &out[i]);
        else
            out[whole++] = out[i];
    }
    for (int i = 0; i < whole; i += KERNEL_RESULTS)
        build(b, k, whole - i < KERNEL_RESULTS ? whole - i : KERNEL_RESULTS, out + i);
}

static void make_map_reduce(builder *b, int k, int n_out, sn_node *const *out) {
    cut_list c = {.seen = sn_marks_open(b->m)};
    for (int i = 0; i < n_out; i++) find_cut(b, k, &c, out[i], NULL);
    sn_marks_close(b->m, c.seen);
    sn_region *body = sn_region_extract(b->m, c.n, c.node, n_out, out);
    sn_node **in = sn_arena_alloc(b->m, sizeof *in * (size_t)(c.n + 1));
    for (int i = 0; i < c.n; i++) in[i] = build_value(b, c.node[i]);
    sn_module_set_loc(b->m, out[n_out - 1]->loc);
    publish(b, map_reduce(c.n, in, body), n_out, out);
}

static void build_map_reduce(builder *b, int k) {
    build_results(b, k, make_map_reduce);
}

/* ---- products ---- */

/* Factors of groups along K: scales and maybe minima. */
typedef struct factors {
    sn_node *of[2]; /* N times groups: scales, minima; NULL: none */
    sn_dtype stored;
} factors;

/* What the panels of a dot's right factor are packed from, and the stored type: a factor that was
 * narrowed and widened again is stored narrow. */
typedef struct panels {
    sn_node *source;
    sn_dtype stored;      /* of 4-bit integers in groups: i32 */
    sn_dim group;         /* integers that share factors; 0: no groups */
    factors inner, outer; /* of a group; of several groups, multiplying their inner */
    sn_dim super;         /* integers that share a outer factor; 0: none */
    int64_t nibble;       /* how 4 bits are an integer */
    bool quads;           /* of a product of 8-bit integers: 4 to an i32 */
    bool flat;            /* the source is [N, K], whatever axes the factor has for N */
    bool bf16;            /* of a product of bf16: pairs along K side by side */
} panels;

/* What y, f32 or f64, is widened from: the tensor that was narrowed to that type or, if there is
 * none, the narrow one. NULL: y is not widened, or panels of both differ in width. */
static sn_node *below_widening(const sn_node *y, sn_dtype *stored) {
    sn_node *x = y->op == SN_OP_cast ? y->in[0] : NULL;
    if (!x || (x->dtype != SN_BF16 && x->dtype != SN_F16 && x->dtype != SN_I8)) return NULL;
    *stored = (sn_dtype)x->dtype;
    if (x->op == SN_OP_cast) x = x->in[0];
    return sn_panel_columns((sn_dtype)x->dtype) == sn_panel_columns((sn_dtype)y->dtype) ? x : NULL;
}

/* Whether only the last axis of the right factor is contracted. */
static bool sums_rows(const sn_node *dot) {
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_b);
    return contract && contract->n == 1 && contract->v[0] == dot->in[1]->rank - 1;
}

/* What x, of 16 bits, is narrowed from, because packing narrows; else x, in any shape. */
static sn_node *before_narrowing(sn_node *x) {
    x = sn_below_reshapes(x);
    return x->op == SN_OP_cast && x->in[0]->dtype == SN_F32 ? sn_below_reshapes(x->in[0]) : x;
}

/* Takes operand i of d as factors of groups: of 16 bits, or of 8 that are multiplied with f16. */
static bool take_factors(const builder *b, panels *p, const sn_node *d, int i) {
    sn_node *x = d->in[i];
    const sn_node *n = sn_dequantised(b->g->p, x);
    if (n && (n->n_in > 2 || n->in[1]->dtype != SN_F16)) return false;
    if (n) {
        p->outer.of[i - 1] = before_narrowing(n->in[1]);
        p->outer.stored = SN_F16;
        p->super = sn_attr_int(d, SN_A_group, 0) * sn_attr_int(n, SN_A_group, 0);
        x = n->in[0];
    }
    p->inner.stored = (sn_dtype)x->dtype;
    p->inner.of[i - 1] = n ? sn_below_reshapes(x) : before_narrowing(x);
    return n || p->inner.stored == SN_BF16 || p->inner.stored == SN_F16;
}

/* [N, K], or with several axes for N, of integers in groups. */
static bool find_groups(const builder *b, const sn_node *dot, panels *found) {
    const sn_node *y = dot->in[1], *d = sn_dequantised(b->g->p, y);
    const sn_attr *group = d ? sn_attr_get(d, SN_A_group) : NULL;
    panels p = {.stored = SN_I8, .flat = true};
    if (!group || d->rank != 2 || y->shape[y->rank - 1] != d->shape[1] || !sums_rows(dot))
        return false;
    for (int i = 1; i < d->n_in; i++)
        if (!take_factors(b, &p, d, i) || d->in[i]->dtype != d->in[1]->dtype) return false;
    if (sn_attr_int(d, SN_A_bits, 8) <= 4) p.stored = SN_I32;
    p.nibble = p.stored == SN_I32 ? sn_attr_int(d, SN_A_nibble, 0) : 0;
    p.group = group->i;
    p.source = sn_below_reshapes(d->in[0]);
    *found = p;
    return true;
}

/* y, widened from i8: the integers or, if they are made by narrowing, what they are made of. */
static sn_node *below_i8(sn_node *y) {
    sn_node *x = y->op == SN_OP_cast && y->in[0]->dtype == SN_I8 ? y->in[0] : NULL;
    return x && x->op == SN_OP_cast && x->in[0]->dtype == SN_F32 ? x->in[0] : x;
}

/* The left factor of a product as its kernel reads it: with integers on the right as i8. */
static sn_node *left_factor(const sn_node *dot, const panels *p) {
    sn_node *x = dot->in[0];
    bool integers = dot->dtype == SN_I32 || p->group;
    return integers && x->op == SN_OP_cast && x->in[0]->dtype == SN_I8 ? x->in[0] : x;
}

/* x, if y is x of 16 bits widened to f32, which packing does itself; else y. */
static sn_node *without_widening(sn_node *y) {
    const sn_node *x = y->op == SN_OP_cast ? y->in[0] : y;
    return y->dtype == SN_F32 && (x->dtype == SN_BF16 || x->dtype == SN_F16) ? y->in[0] : y;
}

static panels stored_panels(const builder *b, const sn_node *dot) {
    sn_node *y = dot->in[1];
    panels p = {.source = y, .stored = (sn_dtype)y->dtype};
    if (!sn_group_packs(b->g, dot) || find_groups(b, dot, &p)) return p;
    if (y->op == SN_OP_reshape && sums_rows(dot) && y->in[0]->rank == 2 &&
        y->in[0]->shape[1] == y->shape[y->rank - 1]) {
        y = y->in[0];
        p.source = y;
        p.flat = true;
    }
    if (dot->dtype == SN_I32 && (p.source = below_i8(y))) {
        p.stored = SN_I32;
        p.quads = true;
        return p;
    }
    p.source = y;
    sn_dtype stored;
    sn_node *source = y->op == SN_OP_cast && y->in[0]->op == SN_OP_cast
                          ? below_widening(y, &stored)
                          : NULL; /* narrowed, not read in that type */
    if (source) p.source = source, p.stored = stored;
    p.source = without_widening(p.source);
    return p;
}

/* Whether a factor is integers, which have products of their own. */
static bool is_integers(const sn_node *x) {
    return x->op == SN_OP_cast && !sn_dtype_is_float((sn_dtype)x->in[0]->dtype);
}

/* Whether rows of the right factor are read as i8 by products of bf16. */
static bool has_units(const sn_node *dot) {
    enum { UNIT = 16 };
    const sn_node *y = dot->in[1];
    int64_t k;
    return sums_rows(dot) && sn_dim_is_const(y->m, y->shape[y->rank - 1], &k) && k % UNIT == 0;
}

static panels panels_of(const builder *b, const sn_node *dot) {
    panels p = stored_panels(b, dot);
    p.bf16 = b->g->p->o.bf16_compute && dot->dtype == SN_F32 && !is_integers(dot->in[0]);
    if (!p.bf16 || p.group || (p.stored == SN_I8 && has_units(dot))) return p;
    if (p.stored == SN_F16 || p.stored == SN_I8) /* rounded twice */
        p.source = without_widening(p.flat ? dot->in[1]->in[0] : dot->in[1]);
    p.stored = SN_BF16;
    return p;
}

/* How several integers share a word of panels: by which attribute of pack_b. */
#define SN_NO_WORDS SN_ATTR_COUNT

static sn_node *pack(builder *b, const sn_node *dot, sn_node *x, bool flat, sn_dtype stored,
                     sn_attr_key words, int64_t of_word, int64_t nibble, int64_t pair) {
    const sn_attr *cb = sn_attr_get(dot, SN_A_contract_b);
    const int64_t last[] = {1};
    sn_attr attr[5] = {SN_INT(dtype, stored),
                       SN_LIST(contract_b, cb ? cb->n : 0, cb ? cb->v : NULL)};
    int n = 2;
    if (flat) attr[1] = SN_LIST(contract_b, 1, last);
    if (words != SN_NO_WORDS) attr[n++] = (sn_attr){.key = words, .i = of_word};
    if (nibble) attr[n++] = SN_INT(nibble, nibble);
    if (pair) attr[n++] = SN_INT(pair, pair);
    return sn_node_new(b->m, SN_OP_pack_b, 1, &x, n, attr);
}

/* Panels of factors: a row for each group, or with minima two. */
static sn_node *pack_factors(builder *b, const sn_node *dot, const factors *f, int64_t pair) {
    const sn_node *y = dot->in[1];
    sn_node *of[2] = {NULL}, *x;
    sn_dim rows = sn_dim_product(b->m, y->rank - 1, y->shape), groups = 0;
    int n = 0;
    for (; n < 2 && f->of[n]; n++) {
        x = build_value(b, f->of[n]);
        groups = sn_dim_product(b->m, x->rank, x->shape) / rows;
        of[n] = sn_b_reshape(x, 3, (const sn_dim[]){rows, groups, 1});
    }
    x = n > 1 ? sn_b_concat(b->m, n, of, 2) : of[0];
    x = sn_b_reshape(x, 2, (const sn_dim[]){rows, groups * n});
    return pack(b, dot, x, true, f->stored, SN_NO_WORDS, 0, false, pair);
}

/* ---- prologues: the norm of a product's left factor, computed when its rows are packed ---- */

/* One number per column, or one for all. */
static bool is_row_vector(const sn_node *n) {
    for (int i = 0; i < n->rank - 1; i++)
        if (n->shape[i] != 1) return false;
    return true;
}

/* The group whose only result is `out`, used as left factor of this product only; -1: none. */
static int feeding_group(const builder *b, const sn_node *out) {
    int h = out->id < b->g->n_id ? b->g->group_of[out->id] : -1;
    if (h < 0 || b->g->group[h].kernel != SN_KERNEL_map_reduce || !b->g->group[h].reductions)
        return -1;
    for (int i = 0; i < b->g->group[h].n_member; i++) {
        const sn_node *n = b->g->group[h].member[i];
        if (b->uses[n->id] != (n == out)) return -1;
    }
    return h;
}

/* The norm that the product `dot` computes itself, as a region of (x, vectors ..); c: the vectors.
 * NULL: the left factor is read from memory. Only if the normalised rows have no other user, and
 * each row is packed once. */
static sn_region *find_prologue(builder *b, sn_node *dot, cut_list *c) {
    sn_node *out = dot->in[0], **node;
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_a);
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_a);
    int64_t length;
    int h = feeding_group(b, out);
    const sn_kernel_traits *gemm = &sn_kernels[SN_KERNEL_gemm];
    if (b->g->p->o.invariant & SN_INVARIANT_CHUNK)
        return NULL; /* many rows have a kernel for the norm, which sums in another order */
    if (h < 0 || !sn_kernel_holds(gemm, SN_HOLDS_ROW_PROLOGUE, b->g->p->o.level) ||
        sn_group_choice(b->g, dot) != SN_CHOOSE_FUSED || !sn_group_packs(b->g, dot) ||
        (batch && batch->n) || !contract || contract->n != 1 || contract->v[0] != out->rank - 1 ||
        out->dtype != dot->dtype)
        return NULL;
    if (!sn_dim_is_const(b->m, out->shape[out->rank - 1], &length) || length < 2 ||
        length * (int64_t)sn_dtype_size((sn_dtype)out->dtype) > gemm->prologue.row_bytes)
        return NULL;
    find_cut(b, h, c, out, NULL);
    int x = -1;
    for (int i = 0; i < c->n; i++) {
        bool rows = sn_shapes_equal(c->node[i], out) && !sn_from_params_only(c->node[i]);
        if (rows && x >= 0) return NULL;
        if (rows) x = i;
        if (!rows && !is_row_vector(c->node[i])) return NULL;
    }
    if (x < 0) return NULL;
    node = c->node;
    sn_node *first = node[x];
    memmove(node + 1, node, sizeof *node * (size_t)x);
    node[0] = first;
    sn_region *r = sn_region_extract(b->m, c->n, node, 1, &out);
    sn_order order = sn_region_topo(b->m, r);
    sn_group in_rows = sn_group_for(b->g, SN_KERNEL_NONE, out);
    in_rows.kernel = SN_KERNEL_gemm;
    in_rows.member = &dot;
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (sn_kernel_refuses(&in_rows, SN_IN_PROLOGUE, n) || n->op == SN_OP_reduce_max)
            return NULL; /* a softmax before a product has not been measured */
        in_rows.reductions += n->op == SN_OP_reduce_sum;
    }
    if (!in_rows.reductions) return NULL;
    sn_dim rows = sn_dim_product(b->m, out->rank - 1, out->shape);
    if (sn_dim_hi(b->m, rows) <= gemm->prologue.rows) return r;
    if (!b->reported)
        sn_remark_add(b->g->p, "fuse", dot, false,
                      "a norm before a product of more than %d rows is a separate kernel: cost "
                      "model: equally fast",
                      gemm->prologue.rows);
    b->reported = true;
    return NULL;
}

static const sn_node *below_broadcast(const sn_node *n) {
    while (n->op == SN_OP_broadcast) n = n->in[0];
    return n;
}

/* ---- prologues: 8-bit integers, made of rows when these are packed ---- */

/* What quantises the left factor of `dot`, group k, if only that product needs it: the region
 * (x) -> (q, scale). NULL: the left factor is read from memory, because others need it too, or the
 * kernel that makes x has the integers at hand. */
static sn_region *find_quantising(builder *b, int k, const sn_node *dot, const panels *p,
                                  sn_node **scale, sn_node **source) {
    const sn_kernel_traits *gemm = &sn_kernels[SN_KERNEL_gemm];
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_a);
    sn_node *q = left_factor(dot, p), *x = sn_int8_rows_source(q, scale);
    if (!x || x->shape[x->rank - 1] == 1 ||
        !sn_kernel_holds(gemm, SN_HOLDS_ROW_PROLOGUE, b->g->p->o.level) ||
        sn_group_choice(b->g, dot) != SN_CHOOSE_FUSED || !contract || contract->n != 1 ||
        contract->v[0] != x->rank - 1 || b->uses[q->id] != 1)
        return NULL;
    int h = b->g->group_of[q->id];
    if (h < 0 || inside(b, h, x) || recomputed(b, x)) return NULL;
    int uses = 0;
    for (int i = 0; i < b->g->group[k].n_member; i++) {
        const sn_node *n = b->g->group[k].member[i];
        for (int j = 0; j < n->n_in; j++) uses += below_broadcast(n->in[j]) == *scale;
    }
    if (!uses || b->uses[(*scale)->id] != uses) return NULL;
    *source = x;
    return sn_region_extract(b->m, 1, &x, 2, (sn_node *[]){q, *scale});
}

static void make_gemm(builder *b, int k, int n_out, sn_node *const *results) {
    sn_node *dot = b->g->group[k].member[0];
    sn_node *take = results[0]->op == SN_OP_take_blocks ? results[0] : NULL;
    sn_node *const *out = take ? &take->in[0] : results;
    cut_list c = {.seen = sn_marks_open(b->m)}, rows = {.seen = sn_marks_open(b->m)};
    /* argument 0 is the product */
    add_cut(b, &c, dot);
    panels p = panels_of(b, dot);
    sn_node *source = NULL, *scale;
    sn_region *pro = take ? NULL : find_quantising(b, k, dot, &p, &scale, &source);
    if (pro) {
        c.seen[scale->id] = IN_MEMORY; /* the last argument, without an operand */
        add_cut(b, &rows, source);
    }
    for (int i = 0; i < n_out; i++) find_cut(b, k, &c, out[i], dot);
    if (pro) add_cut(b, &c, scale);
    if (!pro && !take) pro = find_prologue(b, dot, &rows);
    sn_marks_close(b->m, c.seen);
    sn_marks_close(b->m, rows.seen);
    sn_node **in = sn_arena_alloc(b->m, sizeof *in * (size_t)(c.n + rows.n + 5));
    int64_t pair = b->g->group[k].pair;
    int n_in = 2;
    in[0] = build_value(b, pro ? rows.node[0] : left_factor(dot, &p));
    in[1] = build_value(b, p.source);
    const factors *both[] = {&p.inner, &p.outer};
    for (int i = 0; i < 2; i++)
        if (both[i]->of[0]) in[n_in++] = pack_factors(b, dot, both[i], pair);
    if (take) in[n_in++] = build_value(b, take->in[1]);
    for (int i = 1; pro && i < rows.n; i++) in[n_in++] = build_value(b, rows.node[i]);
    for (int i = 1; i < c.n - (source != NULL); i++) in[n_in++] = build_value(b, c.node[i]);

    sn_attr attr[16];
    int n_attr = 0;
    if (take) attr[n_attr++] = *sn_attr_get(take, SN_A_blocks);
    if (p.bf16) attr[n_attr++] = SN_INT(compute, SN_BF16);
    if (pro) {
        attr[n_attr++] = SN_REG(prologue, pro);
        attr[n_attr++] = SN_INT(n_pro, rows.n - 1);
    }
    static const sn_attr_key axes[] = {SN_A_batch_a, SN_A_batch_b, SN_A_contract_a,
                                       SN_A_contract_b};
    for (int i = 0; i < 4; i++) { /* all four, even if empty, because gemm has defaults */
        const sn_attr *a = sn_attr_get(dot, axes[i]);
        attr[n_attr++] = a ? *a : (sn_attr){.key = axes[i]};
    }
    if (n_out > 1 || out[0] != dot) {
        sn_node *y[KERNEL_RESULTS];
        for (int i = 0; i < n_out; i++)
            y[i] = is_row_sum(b, out[i]) ? sn_panel_sum_of(out[i]) : out[i];
        sn_region *epi = sn_region_extract(b->m, c.n, c.node, n_out, y);
        attr[n_attr++] = SN_REG(epilogue, epi);
    }
    sn_module_set_loc(b->m, dot->loc);
    if (sn_group_packs(b->g, dot)) {
        const sn_node *y = dot->in[1];
        attr[n_attr++] = SN_LIST(packed, y->rank, y->shape);
        if (p.group) {
            sn_dim k = y->shape[y->rank - 1];
            sn_dim rows = sn_dim_product(b->m, y->rank - 1, y->shape);
            in[1] = sn_b_reshape(in[1], 2, (const sn_dim[]){rows, k});
            attr[n_attr++] = SN_INT(group, p.group);
            if (p.nibble) attr[n_attr++] = SN_INT(nibble, p.nibble);
            if (p.inner.of[1]) attr[n_attr++] = SN_INT(minima, 1);
            if (p.super) attr[n_attr++] = SN_INT(super, p.super);
        }
        bool pairs = p.bf16 && p.stored == SN_BF16;
        sn_attr_key words = pairs                ? SN_A_compute
                            : p.quads            ? SN_A_quads
                            : p.stored == SN_I32 ? SN_A_group
                                                 : SN_NO_WORDS;
        in[1] = pack(b, dot, in[1], p.flat, p.stored, words, pairs ? SN_BF16 : 1, p.nibble, pair);
        if (pair) attr[n_attr++] = SN_INT(pair, pair);
    }
    publish(b, sn_node_new(b->m, SN_OP_gemm, n_in, in, n_attr, attr), n_out, results);
}

static void build_gemm(builder *b, int k) {
    build_results(b, k, make_gemm);
}

static sn_node *build_primitive(builder *b, sn_node *n) {
    for (int i = 0; i < n->n_in; i++) build_value(b, n->in[i]);
    return b->made[n->id] = sn_node_from(n, b->made);
}

static void build_single(builder *b, int k) {
    build_primitive(b, b->g->group[k].member[0]);
}

static sn_node *build_value(builder *b, sn_node *n) {
    if (b->made[n->id]) return b->made[n->id];
    int k = b->g->group_of[n->id];
    if (k >= 0) {
        static void (*const build[SN_KERNEL_COUNT])(builder *, int) = {
            [SN_KERNEL_map_reduce] = build_map_reduce,
            [SN_KERNEL_column] = build_map_reduce,
            [SN_KERNEL_gemm] = build_gemm,
            [SN_KERNEL_NONE] = build_single};
        build[b->g->group[k].kernel](b, k);
        return b->made[n->id];
    }
    if (sn_group_absorbs(b->g, n) &&
        !sn_is_view(n)) { /* needed in memory: an index table, an output */
        make_map_reduce(b, sn_group_add(b->g, SN_KERNEL_map_reduce, n), 1, &n);
        return b->made[n->id];
    }
    return build_primitive(b, n);
}

/* n reads x; NULL: an entry does. */
static void use(builder *b, const sn_node *n, const sn_node *x) {
    const sn_grouping *g = b->g;
    const sn_node *y = below_broadcast(x);
    int k = g->group_of[y->id], by = n ? g->group_of[n->id] : -1;
    if (k < 0 || k == by) return;
    b->uses[y->id]++;
    b->bound[y->id] |= y != x || by < 0 || g->group[by].kernel != SN_KERNEL_map_reduce ||
                       (sn_reads_far(n, 0) && x == n->in[0]);
}

/* Views that only products and their epilogues read: those take the node below instead. */
static uint8_t *find_bypassed(builder *b) {
    sn_grouping *g = b->g;
    uint8_t *bypassed = sn_arena_alloc(b->m, g->n_id), *read = sn_arena_alloc(b->m, g->n_id);
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        for (int j = 0; j < n->n_in; j++) {
            bool around = (n->op == SN_OP_dot && j == 1 && panels_of(b, n).group) ||
                          (summed_by(b, g->group_of[n->id], n) && !is_row_sum(b, n));
            (around ? bypassed : read)[n->in[j]->id] = 1;
        }
    }
    for (int i = 0; i < g->n_root; i++) read[g->root[i]->id] = 1;
    for (uint32_t i = 0; i < g->n_id; i++) bypassed[i] &= !read[i];
    return bypassed;
}

/* Counts the users of every member outside its kernel. The users of a broadcast count instead of
 * the broadcast. */
static void count_uses(builder *b) {
    sn_grouping *g = b->g;
    const uint8_t *bypassed = find_bypassed(b);
    for (int i = 0; i < g->n_root; i++) use(b, NULL, g->root[i]);
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        if (n->op == SN_OP_broadcast || bypassed[n->id]) continue;
        for (int j = 0; j < n->n_in; j++) {
            panels p = {.source = n->in[j]};
            if (n->op == SN_OP_dot) p = panels_of(b, n);
            if (n->op == SN_OP_dot && j == 0) p = (panels){.source = left_factor(n, &p)};
            use(b, n, p.source);
            for (int k = 0; k < 2; k++) {
                if (p.inner.of[k]) use(b, n, p.inner.of[k]);
                if (p.outer.of[k]) use(b, n, p.outer.of[k]);
            }
        }
    }
}

/* The only operand of n that is not cheap; NULL: there are several. */
static const sn_node *only_operand(const sn_grouping *g, const sn_node *n) {
    const sn_node *x = NULL;
    for (int i = 0; i < n->n_in; i++) {
        if (g->cheap[n->in[i]->id] || n->in[i] == x) continue;
        if (x) return NULL;
        x = n->in[i];
    }
    return x;
}

/* A cheap operation on a value that is stored anyway, such as 1 - sigmoid x, whose result only other
 * kernels need: each computes it again, and reads the value instead. */
static void leave_to_readers(builder *b) {
    sn_grouping *g = b->g;
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        int k = g->group_of[n->id];
        if (k < 0 || g->group[k].kernel != SN_KERNEL_map_reduce || !sn_is_elementwise(n) ||
            sn_is_expensive(n) || !b->uses[n->id] || b->bound[n->id])
            continue;
        const sn_node *x = only_operand(g, n);
        if (!x || g->group_of[x->id] != k || !b->uses[x->id] || !sn_shapes_equal(x, n) ||
            x->dtype != n->dtype)
            continue;
        b->uses[x->id] += b->uses[n->id];
        b->uses[n->id] = 0;
        g->cheap[n->id] = SN_CHEAP;
    }
}

static sn_node *replace(void *ctx, sn_node *n) {
    return build_value(ctx, n);
}

/* Passes the groups of products to the chooser. */
static void show_products(builder *b) {
    for (int k = 0; k < b->g->n_group; k++) {
        const sn_group *g = &b->g->group[k];
        if (g->kernel != SN_KERNEL_gemm || b->g->selected[g->member[0]->id]) continue;
        sn_node **out = sn_arena_alloc(b->m, sizeof *out * (size_t)(g->n_member + 1));
        int n = find_results(b, g, out);
        sn_choice_sample(b->g->p, g->member[0], n, out, g->n_member, g->member);
    }
}

/* For reports: nodes that are not results became the kernel of one that is. */
static void record_members(const builder *b) {
    sn_lineage_add_map(b->m, b->made, b->g->n_id);
    for (int k = 0; k < b->g->n_group; k++) {
        const sn_group *g = &b->g->group[k];
        const sn_node *fused = NULL;
        for (int i = 0; i < g->n_member && !fused; i++) fused = b->made[g->member[i]->id];
        for (int i = 0; i < g->n_member && fused; i++)
            if (!b->made[g->member[i]->id]) sn_lineage_add(g->member[i], fused);
    }
}

/* A look-up of rows of a table whose result group h turns into x's shape; NULL: there is none. */
static const sn_node *rows_of(const sn_group *h, const sn_node *x) {
    for (int i = 0; i < h->n_member; i++) {
        const sn_node *n = h->member[i];
        if (n->op == SN_OP_gather && sn_shapes_equal(n, x) &&
            sn_attr_int(n, SN_A_axis, 0) < n->in[0]->rank - 1)
            return n;
    }
    return NULL;
}

/* Rows that are looked up for a sum, in another kernel. */
static void report_rows(builder *b) {
    const sn_grouping *g = b->g;
    for (int i = 0; sn_level_reaches(g->p->o.level, SN_LEVEL_ROWS) && i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        if (!n->n_in || !sn_reduces(n)) continue;
        const sn_node *x = sn_below_views(n->in[0]);
        const int h = x->id < g->n_id ? g->group_of[x->id] : -1;
        const sn_node *rows = h >= 0 && h != g->group_of[n->id] ? rows_of(&g->group[h], x) : NULL;
        char shape[128];
        if (!rows) continue;
        sn_shape_print(b->m, x->rank, x->shape, shape, sizeof shape);
        sn_remark_add(g->p, "fuse", n, false, "%s%s, rows of %s, stays in memory before this sum",
                      sn_dtype_name((sn_dtype)x->dtype), shape, sn_name_with_place(rows));
    }
}

static int fuse_entry(sn_passes *p, sn_entry *e, bool body) {
    sn_loc loc = sn_module_loc(p->m);
    sn_grouping *g = sn_group_entry(p, e, !body);
    builder b = {.g = g, .m = p->m};
    b.made = sn_arena_alloc(p->m, sizeof *b.made * g->n_id);
    b.uses = sn_arena_alloc(p->m, sizeof *b.uses * g->n_id);
    b.bound = sn_arena_alloc(p->m, g->n_id);
    count_uses(&b);
    leave_to_readers(&b);
    if (p->o.chooser && !body) show_products(&b);
    report_rows(&b);
    sn_entry_map(e, replace, &b);
    record_members(&b);
    e->n_tap = 0; /* taps have become outputs by now */
    sn_module_set_loc(p->m, loc);
    return b.count;
}

static sn_node *fuse_regions(void *ctx, sn_node *n);

/* The body of a row_blocked node or a scan is fused like an entry whose inputs are its arguments. */
static sn_region *fuse_region(sn_passes *p, const sn_region *body) {
    sn_binding result[SN_MAX_RESULTS];
    sn_node *out[SN_MAX_RESULTS];
    sn_entry inside = {.name = "body", .output = result, .n_output = body->n_out};
    memcpy(out, body->out, sizeof *out * (size_t)body->n_out);
    sn_rewrite(p->m, body->n_out, out, fuse_regions, p); /* nested ones */
    for (int i = 0; i < body->n_out; i++) result[i] = (sn_binding){"", out[i]};
    fuse_entry(p, &inside, true);
    for (int i = 0; i < body->n_out; i++) out[i] = result[i].node;
    return sn_region_new(p->m, body->n_arg, body->arg, body->n_out, out);
}

static sn_node *fuse_regions(void *ctx, sn_node *n) {
    if (n->op != SN_OP_row_blocked && n->op != SN_OP_scan) return n;
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (sn_attr_table[attr[i].key].kind == SN_AK_REGION)
            attr[i].r = fuse_region(ctx, attr[i].r);
    }
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr, attr);
}

int sn_pass_fuse(sn_passes *p) {
    int count = sn_rewrite_module(p->m, fuse_regions, p);
    for (int i = 0; i < sn_entry_count(p->m); i++) {
        count += fuse_entry(p, sn_entry_at(p->m, i), false);
        if (sn_module_error(p->m)->code) return count;
    }
    return count;
}
