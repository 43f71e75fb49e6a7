/* product.c: gemm and pack_b steps in the terms of the GEMM generator, with the epilogue's region
 * emitted on its tiles. */
#include "codegen/elem.h"
#include "codegen/gemm.h"
#include "codegen/kernel.h"

#include <string.h>

/* An operand [batch.., rows, columns]. */
static sn_gemm_operand operand_of(const sn_kernel *k, const sn_view *v, int buf) {
    sn_gemm_operand o = {.buf = buf, .dtype = v->dtype, .offset = SN_GEMM_CONST(0)};
    for (int i = 0; i < SN_GEMM_BATCH; i++) o.batch[i] = SN_GEMM_CONST(0);
    for (int i = 0; i < v->rank - 2; i++) o.batch[i] = sn_kernel_size(k, v->stride[i]);
    o.row = sn_kernel_size(k, v->stride[v->rank - 2]);
    o.col = sn_kernel_size(k, v->stride[v->rank - 1]);
    return o;
}

typedef struct epilogue {
    const sn_kernel *k;
    const sn_region *region;
    sn_order order;
    int first; /* operand of the step that is the region's argument 1 */
} epilogue;

/* Element offset of a row's first element, and of column `col` if columns are neighbours. */
static em_val row_offset(em *e, const sn_kernel *k, const sn_view *v, const sn_gemm_at *at) {
    int n_batch = v->rank - 2;
    em_val off = em_mul(e, at->row, sn_kernel_dim(e, k, v->stride[n_batch]));
    for (int i = 0; i < n_batch; i++)
        if (v->stride[i] != 0)
            off = em_add(e, off, em_mul(e, at->batch[i], sn_kernel_dim(e, k, v->stride[i])));
    return off;
}

/* Elements of view v at a tile's place: a vector along the columns, or a scalar that is the same
 * for all lanes. */
static em_val load_tile(em *e, const sn_kernel *k, const sn_view *v, int buf,
                        const sn_gemm_at *at) {
    em_val off = row_offset(e, k, v, at), base = em_buf(e, buf);
    sn_dim step = v->stride[v->rank - 1];
    if (step == 0)
        return sn_emit_loaded(e, v->dtype, em_load(e, v->dtype, em_at(e, base, v->dtype, off), 1));
    if (step == 1) {
        em_val p = em_at(e, base, v->dtype, em_add(e, off, at->col));
        return sn_emit_loaded(e, v->dtype, em_load_mask(e, v->dtype, p, at->lanes, at->mask, NULL));
    }
    em_val col = em_add(e, em_splat(e, at->col, at->lanes), em_iota(e, e->i64, at->lanes));
    em_val index =
        em_add(e, em_splat(e, off, at->lanes), em_mul(e, col, sn_kernel_dim(e, k, step)));
    return sn_emit_loaded(e, v->dtype, em_gather(e, v->dtype, base, index, at->mask));
}

/* Is the operand read once, along its rows? */
static bool is_streamed(const sn_view *v) {
    return v->stride[v->rank - 1] == 1 && v->stride[v->rank - 2] != 0;
}

/* Cache lines of one row of a panel. */
static int lines_of(const sn_view *v, sn_dtype compute) {
    return (sn_gemm_panel(compute) * (int)sn_dtype_size(v->dtype) + 63) / 64;
}

static void touch_operands(void *ctx, em *e, const sn_gemm_at *at, em_val *line) {
    const epilogue *x = ctx;
    const sn_step *s = x->k->step;
    for (int i = x->first, n = 0; i < s->n_in; i++) {
        const sn_view *v = &s->in[i];
        if (!is_streamed(v)) continue;
        em_val off = em_add(e, row_offset(e, x->k, v, at), at->col);
        em_val p = em_at(e, em_buf(e, i), v->dtype, off);
        for (int l = 0; l < lines_of(v, x->k->compute); l++)
            line[n++] = em_at_bytes(e, p, em_i64(e, l * 64));
    }
}

static void store_tile(em *e, const sn_kernel *k, int out, em_val v, const sn_gemm_at *at) {
    const sn_view *w = &k->step->out[out];
    em_val off = row_offset(e, k, w, at);
    if (em_lanes_of(v) == 1) v = em_splat(e, v, at->lanes);
    em_val base = em_buf(e, k->step->n_in + out);
    if (w->stride[w->rank - 1] == 1) {
        em_store_mask(e, w->dtype, em_at(e, base, w->dtype, em_add(e, off, at->col)), v, at->mask);
        return;
    }
    em_val step = sn_kernel_dim(e, k, w->stride[w->rank - 1]);
    for (int lane = 0; lane < at->lanes; lane++) {
        em_branch br = {0};
        if (at->mask) br = em_if(e, em_extract(e, at->mask, lane));
        em_val place = em_add(e, off, em_mul(e, em_add(e, at->col, em_i64(e, lane)), step));
        em_store(e, w->dtype, em_at(e, base, w->dtype, place), em_extract(e, v, lane));
        if (at->mask) em_endif(e, &br);
    }
}

static em_val region_node(em *e, const epilogue *x, em_val *value, int i, const em_val *acc,
                          const sn_gemm_at *at) {
    const sn_node *n = x->order.node[i];
    em_val in[4];
    for (int j = 0; j < n->n_in && j < 4; j++)
        for (int p = 0; p < i; p++)
            if (x->order.node[p] == n->in[j]) in[j] = value[p];
    switch (n->op) {
    case SN_OP_arg: {
        int arg = (int)sn_attr_int(n, SN_A_index, 0), buf = x->first + arg - 1;
        if (arg == 0) return acc[0];
        return load_tile(e, x->k, &x->k->step->in[buf], buf, at);
    }
    case SN_OP_const:
        return sn_emit_const(e, (sn_dtype)n->dtype, sn_attr_flt(n, SN_A_value, 0));
    case SN_OP_dim_value:
        return sn_emit_integer(e, (sn_dtype)n->dtype,
                               sn_kernel_dim(e, x->k, sn_attr_int(n, SN_A_dim, 0)));
    case SN_OP_broadcast:
        return in[0];
    default:
        return sn_emit_elem(e, n, in);
    }
}

static em_val emit_epilogue(void *ctx, em *e, const em_val *acc, const sn_gemm_at *at) {
    const epilogue *x = ctx;
    em_val *value = sn_arena_alloc(x->k->m, sizeof *value * (size_t)(x->order.n + 1));
    for (int i = 0; i < x->order.n; i++) value[i] = region_node(e, x, value, i, acc, at);
    em_val first = acc[0];
    for (int o = x->region->n_out - 1; o >= 0; o--)
        for (int i = 0; i < x->order.n; i++)
            if (x->order.node[i] == x->region->out[o]) {
                if (o)
                    store_tile(e, x->k, o, value[i], at);
                else
                    first = value[i];
            }
    return em_lanes_of(first) == 1 && at->lanes > 1 ? em_splat(e, first, at->lanes) : first;
}

static void make_spec(const sn_kernel *k, sn_gemm *g, epilogue *x) {
    const sn_step *s = k->step;
    const sn_view *a = &s->in[0], *c = &s->out[0];
    int n_batch = a->rank - 2;
    *g = (sn_gemm){.n_batch = n_batch, .ctx = x, .tile = k->tile};
    for (int i = 0; i < n_batch; i++) g->batch[i] = sn_kernel_size(k, a->shape[i]);
    g->m = sn_kernel_size(k, a->shape[n_batch]);
    g->k = sn_kernel_size(k, a->shape[n_batch + 1]);
    g->n = sn_kernel_size(k, c->shape[n_batch + 1]);
    g->a = operand_of(k, a, 0);
    g->c = operand_of(k, c, s->n_in);
    g->b_packed = sn_attr_get(s->node, SN_A_packed) != NULL;
    if (g->b_packed) {
        g->b = (sn_gemm_operand){.buf = 1, .dtype = s->in[1].dtype};
        g->b.offset = g->b.row = g->b.col = SN_GEMM_CONST(0);
        for (int i = 0; i < SN_GEMM_BATCH; i++) g->b.batch[i] = SN_GEMM_CONST(0);
    } else
        g->b = operand_of(k, &s->in[1], 1);
    g->group = (int)sn_attr_int(s->node, SN_A_group, 0);
    if (g->group) g->factor_buf = 2;
    const sn_region *epi = sn_attr_region(s->node, SN_A_epilogue);
    if (epi) {
        *x = (epilogue){k, epi, sn_region_topo(k->m, epi), g->group ? 3 : 2};
        g->epilogue = emit_epilogue;
        for (int i = x->first; i < s->n_in; i++)
            if (is_streamed(&s->in[i])) g->n_touch += lines_of(&s->in[i], k->compute);
        if (g->n_touch) g->touch = touch_operands;
    }
}

static void emit_gemm(em *e, const sn_kernel *k) {
    sn_gemm g;
    epilogue x;
    make_spec(k, &g, &x);
    sn_gemm_emit(e, k->name, &g);
}

static sn_dim gemm_scratch(const sn_kernel *k, const sn_target *t) {
    sn_gemm g;
    epilogue x;
    make_spec(k, &g, &x);
    return sn_dim_const(k->m, sn_gemm_scratch(&g, t, k->compute));
}

static void emit_pack(em *e, const sn_kernel *k) {
    const sn_view *v = &k->step->in[0];
    sn_gemm_pack p = {.dtype = v->dtype,
                      .k = sn_kernel_size(k, v->shape[0]),
                      .n = sn_kernel_size(k, v->shape[1]),
                      .row = sn_kernel_size(k, v->stride[0]),
                      .col = sn_kernel_size(k, v->stride[1])};
    p.narrow_dtype = k->step->out[0].dtype;
    p.narrow = p.narrow_dtype != k->compute;
    p.group = (int)sn_attr_int(k->step->node, SN_A_group, 0);
    sn_gemm_emit_pack(e, k->name, &p);
}

static int gemm_tiles(const sn_kernel *k) {
    sn_gemm g;
    epilogue x;
    make_spec(k, &g, &x);
    return sn_gemm_tiles(&g);
}

const sn_family sn_family_gemm = {.name = "gemm",
                                  .emit = emit_gemm,
                                  .scratch = gemm_scratch,
                                  .tiles = gemm_tiles,
                                  .tile_name = sn_gemm_tile_name};
const sn_family sn_family_pack = {.name = "pack", .emit = emit_pack};
