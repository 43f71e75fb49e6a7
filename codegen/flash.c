/* flash.c: a `flash` step in the terms of the attention generator. */
#include "codegen/attention.h"
#include "codegen/kernel.h"

#include <math.h>

static sn_attention_operand operand_of(const sn_kernel *k, const sn_view *v, int buf) {
    return (sn_attention_operand){.buf = buf,
                                  .dtype = v->dtype,
                                  .offset = SN_GEMM_CONST(0),
                                  .batch = sn_kernel_size(k, v->stride[0]),
                                  .head = sn_kernel_size(k, v->stride[1]),
                                  .row = sn_kernel_size(k, v->stride[2])};
}

static em_val run_time_dim(void *ctx, em *e, sn_dim d) {
    return sn_kernel_dim(e, ctx, d);
}

static sn_attention_captured captured_of(const sn_kernel *k, const sn_view *v, int buf) {
    sn_attention_captured c = {
        .buf = buf, .dtype = v->dtype, .offset = SN_GEMM_CONST(0), .rank = v->rank};
    for (int a = 0; a < v->rank; a++) {
        c.shape[a] = sn_kernel_size(k, v->shape[a]);
        c.stride[a] = sn_kernel_size(k, v->stride[a]);
    }
    return c;
}

static void make_spec(const sn_kernel *k, sn_attention *a) {
    const sn_step *s = k->step;
    const sn_view *q = &s->in[0], *key = &s->in[1], *v = &s->in[2];
    int n_captured = s->n_in - 3;
    sn_attention_captured *captured =
        sn_arena_alloc(k->m, sizeof *captured * (size_t)(n_captured + 1));
    for (int i = 0; i < n_captured; i++) captured[i] = captured_of(k, &s->in[3 + i], 3 + i);
    *a = (sn_attention){.d = (int)q->shape[3],
                        .dv = (int)v->shape[3],
                        .heads = (int)q->shape[1],
                        .group = (int)(q->shape[1] / key->shape[1]),
                        .batch = sn_kernel_size(k, q->shape[0]),
                        .tq = sn_kernel_size(k, q->shape[2]),
                        .tk = sn_kernel_size(k, key->shape[2]),
                        .scale = sn_attr_flt(s->node, SN_A_scale, 1 / sqrt((double)q->shape[3])),
                        .q = operand_of(k, q, 0),
                        .k = operand_of(k, key, 1),
                        .v = operand_of(k, v, 2),
                        .out = operand_of(k, &s->out[0], s->n_in),
                        .lse_buf = s->n_in + 1,
                        .score = sn_attr_region(s->node, SN_A_score),
                        .mask = sn_attr_region(s->node, SN_A_mask),
                        .n_captured = n_captured,
                        .captured = captured,
                        .dim = run_time_dim,
                        .ctx = (void *)(uintptr_t)k};
}

static void emit_flash(em *e, const sn_kernel *k) {
    sn_attention a;
    make_spec(k, &a);
    sn_attention_emit(e, k->name, &a);
}

/* The generator's scratch is a constant plus blocks of keys; as a polynomial it is bounded from
 * above. */
static sn_dim flash_scratch(const sn_kernel *k, const sn_target *t) {
    enum { MANY = 1 << 20, SLACK = 256 };
    sn_attention a;
    make_spec(k, &a);
    int64_t none = sn_attention_scratch(&a, t, k->compute, 1);
    int64_t slope = (sn_attention_scratch(&a, t, k->compute, MANY) - none + MANY - 1) / MANY;
    sn_dim keys = sn_dim_add(k->m, k->step->in[1].shape[2], sn_dim_const(k->m, SLACK));
    return sn_dim_add(k->m, sn_dim_const(k->m, none),
                      sn_dim_mul(k->m, keys, sn_dim_const(k->m, slope)));
}

const sn_family sn_family_flash = {"flash", emit_flash, flash_scratch};
