/* lower.c: translates `flash` and `flash_grad` steps into specs of the attention generator. */
#include "codegen/attention/lower.h"
#include "codegen/emit/family.h"

#include <math.h>
#include <string.h>

sn_attention_operand att_operand_of(const sn_kernel *k, const sn_view *v, int buf) {
    return (sn_attention_operand){.buf = buf,
                                  .dtype = v->dtype,
                                  .offset = EM_SIZE_CONST(0),
                                  .batch = sn_kernel_size(k, v->stride[0]),
                                  .head = sn_kernel_size(k, v->stride[1]),
                                  .row = sn_kernel_size(k, v->stride[2])};
}

static em_val run_time_dim(void *ctx, em *e, sn_dim d) {
    return sn_kernel_dim(e, ctx, d);
}

static sn_attention_captured captured_of(const sn_kernel *k, const sn_view *v, int buf) {
    sn_attention_captured c = {
        .buf = buf, .dtype = v->dtype, .offset = EM_SIZE_CONST(0), .rank = v->rank};
    for (int a = 0; a < v->rank; a++) {
        c.shape[a] = sn_kernel_size(k, v->shape[a]);
        c.stride[a] = sn_kernel_size(k, v->stride[a]);
    }
    return c;
}

int att_first_captured(const sn_kernel *k) {
    int64_t mix = sn_attr_int(k->step->node, SN_A_mix, 0);
    return SN_FLASH_CAPTURED + (int)(mix & 1) + (int)(mix >> 1 & 1);
}

void att_make_spec(const sn_kernel *k, int first, sn_attention *a) {
    const sn_step *s = k->step;
    const sn_view *scale = sn_attr_int(s->node, SN_A_row_scales, 0) ? &s->in[first] : NULL;
    if (scale) first += 2;
    const sn_view *q = &s->in[SN_FLASH_Q], *key = &s->in[SN_FLASH_K], *v = &s->in[SN_FLASH_V];
    const sn_attr *rate = sn_attr_get(s->node, SN_A_rate);
    bool sinks = sn_attr_int(s->node, SN_A_sink, 0) != 0;
    int n_captured = s->n_in - first - (rate != NULL) - sinks, sink = first + n_captured;
    sn_attention_captured *captured =
        sn_arena_alloc(k->m, sizeof *captured * (size_t)(n_captured + 1));
    for (int i = 0; i < n_captured; i++) captured[i] = captured_of(k, &s->in[first + i], first + i);
    *a = (sn_attention){.d = (int)q->shape[3],
                        .dv = (int)v->shape[3],
                        .heads = (int)q->shape[1],
                        .gqa_ratio = (int)(q->shape[1] / key->shape[1]),
                        .batch = sn_kernel_size(k, q->shape[0]),
                        .tq = sn_kernel_size(k, q->shape[2]),
                        .tk = sn_kernel_size(k, key->shape[2]),
                        .scale = sn_attr_flt(s->node, SN_A_scale, 1 / sqrt((double)q->shape[3])),
                        .q = att_operand_of(k, q, 0),
                        .k = att_operand_of(k, key, 1),
                        .v = att_operand_of(k, v, 2),
                        .out = att_operand_of(k, &s->out[0], s->n_in),
                        .lse_buf = s->n_in + 1,
                        .lse_parts = 2,
                        .weights = (sn_weights_kind)sn_attr_int(s->node, SN_A_weights, 0),
                        .score = sn_attr_region(s->node, SN_A_score),
                        .mask = sn_attr_region(s->node, SN_A_mask),
                        .n_captured = n_captured,
                        .captured = captured,
                        .rate = rate ? rate->f : 0,
                        .stream = (uint32_t)sn_attr_int(s->node, SN_A_stream, 0),
                        .seed_buf = s->n_in - 1,
                        .tile = k->tile,
                        .dim = run_time_dim,
                        .ctx = (void *)(uintptr_t)k};
    a->bf16 = sn_attr_get(s->node, SN_A_compute) != NULL;
    a->unsplit = sn_kernel_invariant(k);
    a->by_query = sn_kernel_keeps_chunks(k);
    a->sinks = sinks;
    if (sinks) a->sink = att_operand_of(k, &s->in[sink], sink);
    if (scale) {
        a->row_scales = true;
        a->k_scale = att_operand_of(k, &scale[0], first - 2);
        a->v_scale = att_operand_of(k, &scale[1], first - 1);
    }
    if (rate) a->seed_stride = sn_kernel_size(k, s->in[s->n_in - 1].stride[0]);
}

static int64_t flash_shared(const sn_kernel *k, const sn_target *t) {
    sn_attention a;
    att_make_spec(k, att_first_captured(k), &a);
    return sn_attention_split_bytes(&a, t, k->compute);
}

static int flash_tiles(const sn_kernel *k) {
    sn_attention a;
    att_make_spec(k, att_first_captured(k), &a);
    return sn_attention_tiles(&a, k->compute);
}

static void emit_flash(em *e, const sn_kernel *k) {
    sn_attention a;
    att_make_spec(k, att_first_captured(k), &a);
    if (flash_shared(k, e->target)) a.splits_buf = k->step->n_in + k->step->n_out;
    sn_attention_emit(e, k->name, &a);
}

enum { MANY = ATT_MANY, SLACK = 256 };

sn_dim att_scratch_of_sizes(const sn_kernel *k, int64_t one, int64_t queries, int64_t keys) {
    sn_dim sum = sn_dim_const(k->m, one);
    for (int i = 0; i < 2; i++) {
        int64_t slope = ((i ? keys : queries) - one + MANY - 1) / MANY;
        if (!slope) continue;
        sn_dim n = sn_dim_add(k->m, k->step->in[i].shape[2], sn_dim_const(k->m, SLACK));
        sum = sn_dim_add(k->m, sum, sn_dim_mul(k->m, n, sn_dim_const(k->m, slope)));
    }
    return sum;
}

static sn_dim flash_scratch(const sn_kernel *k, const sn_target *t) {
    sn_attention a;
    att_make_spec(k, att_first_captured(k), &a);
    return att_scratch_of_sizes(k, sn_attention_scratch(&a, t, k->compute, 1, 1),
                                sn_attention_scratch(&a, t, k->compute, MANY, 1),
                                sn_attention_scratch(&a, t, k->compute, 1, MANY));
}

/* --- the gradient: q, k, v, out, lse, dout, captured -> dq, dk, dv, partial gradients of tables */

static void make_tables(const sn_kernel *k, sn_attention_grad *g) {
    const sn_step *s = k->step;
    const sn_attr *wrt = sn_attr_get(s->node, SN_A_wrt);
    int n = wrt ? wrt->n : 0;
    sn_attention_table *table = sn_arena_alloc(k->m, sizeof *table * (size_t)(n + 1));
    sn_dim size[2] = {s->in[0].shape[0], s->in[0].shape[1]};
    for (int i = 0; i < n; i++) {
        table[i].captured = (int)wrt->v[i];
        table[i].parts = captured_of(k, &s->out[3 + i], s->n_in + 3 + i);
        sn_score_axes(g->a.score, table[i].captured, size, table[i].axis);
    }
    g->table = table;
    g->n_table = n;
}

static bool make_gradient(const sn_kernel *k, sn_attention_grad *g) {
    const sn_step *s = k->step;
    const sn_attr *wrt = sn_attr_get(s->node, SN_A_wrt);
    *g = (sn_attention_grad){.score = NULL};
    att_make_spec(k, SN_FLASH_GRAD_CAPTURED, &g->a);
    g->a.out = att_operand_of(k, &s->in[SN_FLASH_RESULT], SN_FLASH_RESULT);
    g->a.lse_buf = SN_FLASH_LSE;
    g->a.lse_parts = (int)s->in[SN_FLASH_LSE].shape[2];
    g->dout = att_operand_of(k, &s->in[SN_FLASH_COTANGENT], SN_FLASH_COTANGENT);
    g->dq = att_operand_of(k, &s->out[0], s->n_in);
    g->dk = att_operand_of(k, &s->out[1], s->n_in + 1);
    g->dv = att_operand_of(k, &s->out[2], s->n_in + 2);
    if (!g->a.score) return true;
    sn_score_grad *score = sn_arena_alloc(k->m, sizeof *score);
    g->score = score;
    if (!sn_score_gradient(k->m, g->a.score, wrt ? wrt->n : 0, wrt ? wrt->v : NULL, score))
        return false;
    make_tables(k, g);
    return true;
}

static void emit_flash_grad(em *e, const sn_kernel *k) {
    sn_attention_grad g;
    if (make_gradient(k, &g))
        sn_attention_emit_grad(e, k->name, &g);
    else
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: the score region is not differentiable", k->name);
}

static sn_dim flash_grad_scratch(const sn_kernel *k, const sn_target *t) {
    sn_attention_grad g;
    if (!make_gradient(k, &g)) return sn_dim_const(k->m, 0);
    return att_scratch_of_sizes(k, sn_attention_grad_scratch(&g, t, k->compute, 1, 1),
                                sn_attention_grad_scratch(&g, t, k->compute, MANY, 1),
                                sn_attention_grad_scratch(&g, t, k->compute, 1, MANY));
}

static const sn_region *flash_report(const sn_kernel *k, char *tiles, size_t size) {
    sn_attention_grad g = {.score = NULL};
    bool grad = k->family == &sn_family_flash_grad;
    if (!grad) att_make_spec(k, att_first_captured(k), &g.a);
    if (grad && !make_gradient(k, &g)) return NULL;
    sn_attention_explain(&g.a, tiles, size);
    const sn_region *derivative = g.score ? g.score->region : NULL;
    int rows = sn_attention_relative_terms(&g.a, derivative);
    int sums = sn_attention_separable_terms(&g.a, derivative);
    size_t n = strlen(tiles);
    if (g.a.weights) n += (size_t)snprintf(tiles + n, size - n, "; weights without softmax");
    if (g.a.sinks) n += (size_t)snprintf(tiles + n, size - n, "; a sink in the divisor");
    if (!(grad && g.n_table) && sn_attention_gathers(&g.a))
        n += (size_t)snprintf(tiles + n, size - n, "; queries that see a tile are gathered");
    if (rows)
        n += (size_t)snprintf(tiles + n, size - n,
                              "; %d value%s of the distance, computed once for each", rows,
                              rows > 1 ? "s" : "");
    if (sums)
        snprintf(tiles + n, size - n, "; %d sum%s of a query's part and a key's", sums,
                 sums > 1 ? "s" : "");
    return derivative;
}

void att_emit_flash_tile_map(em *e, const sn_kernel *k) {
    sn_attention a;
    att_make_spec(k, att_first_captured(k), &a);
    sn_attention_emit_tile_map(e, k->name, &a, k->step->n_in + k->step->n_out);
}

void att_flash_tile_size(const sn_kernel *k, const sn_target *t, int *queries, int *keys) {
    sn_attention a;
    att_make_spec(k, att_first_captured(k), &a);
    sn_attention_tile_size(&a, t, k->compute, queries, keys);
}

const sn_family sn_family_flash = {.emit = emit_flash,
                                   .scratch = flash_scratch,
                                   .shared = flash_shared,
                                   .tiles = flash_tiles,
                                   .tile_name = sn_attention_tile_name,
                                   .report = flash_report,
                                   .emit_tile_map = att_emit_flash_tile_map,
                                   .tile_size = att_flash_tile_size};
const sn_family sn_family_flash_grad = {
    .emit = emit_flash_grad, .scratch = flash_grad_scratch, .report = flash_report};
