/* lower_mixed.c: translates `flash_mixed` and `flash_mixed_grad` steps into specs of the generators. */
#include "codegen/attention/lower.h"
#include "codegen/attention/mixed.h"

#include <string.h>

/* first: the first matrix among the operands */
static void make_spec(const sn_kernel *k, int first, sn_attention_mixed *x) {
    int64_t mix = sn_attr_int(k->step->node, SN_A_mix, 0);
    att_make_spec(k, first + att_first_captured(k) - SN_FLASH_CAPTURED, &x->a);
    x->counter_buf = k->step->n_in + k->step->n_out;
    for (int i = 0, at = first; i < 2; i++) {
        x->mix[i] = (sn_head_matrix){.buf = -1};
        if (!(mix >> i & 1)) continue;
        const sn_view *v = &k->step->in[at];
        x->mix[i] = (sn_head_matrix){.buf = at++,
                                     .dtype = v->dtype,
                                     .row = sn_kernel_size(k, v->stride[0]),
                                     .column = sn_kernel_size(k, v->stride[1])};
    }
}

static void emit_mixed(em *e, const sn_kernel *k) {
    sn_attention_mixed x;
    make_spec(k, SN_FLASH_CAPTURED, &x);
    sn_attention_emit_mixed(e, k->name, &x);
}

static sn_dim mixed_scratch(const sn_kernel *k, const sn_target *t) {
    sn_attention_mixed x;
    make_spec(k, SN_FLASH_CAPTURED, &x);
    return att_scratch_of_sizes(k, sn_attention_mixed_scratch(&x, t, k->compute, 1, 1),
                                sn_attention_mixed_scratch(&x, t, k->compute, ATT_MANY, 1),
                                sn_attention_mixed_scratch(&x, t, k->compute, 1, ATT_MANY));
}

static const sn_region *mixed_report(const sn_kernel *k, char *text, size_t size) {
    static const char *const where[] = {"", "before the softmax", "after the softmax",
                                        "before and after the softmax"};
    sn_attention_mixed x;
    make_spec(k, SN_FLASH_CAPTURED, &x);
    sn_attention_explain(&x.a, text, size);
    size_t n = strlen(text);
    snprintf(text + n, size - n, "; heads mix %s, tile by tile",
             where[sn_attr_int(k->step->node, SN_A_mix, 0) & 3]);
    return NULL;
}

const sn_family sn_family_flash_mixed = {.emit = emit_mixed,
                                         .scratch = mixed_scratch,
                                         .dynamic = true,
                                         .report = mixed_report,
                                         .emit_tile_map = att_emit_flash_tile_map,
                                         .tile_size = att_flash_tile_size};

/* --- the gradient: q, k, v, lse, dout, matrices, captured -> dq, parts of dk, dv and the matrices */

static void make_gradient(const sn_kernel *k, sn_attention_mixed_grad *g) {
    enum { PARTS = 3 };
    const sn_step *s = k->step;
    make_spec(k, SN_MIXED_GRAD_MATRICES, &g->x);
    g->x.a.lse_buf = SN_MIXED_LSE;
    g->dout = att_operand_of(k, &s->in[SN_MIXED_COTANGENT], SN_MIXED_COTANGENT);
    g->dq = att_operand_of(k, &s->out[0], s->n_in);
    g->dk_buf = s->n_in + 1, g->dv_buf = s->n_in + 2;
    g->n_part = (int)sn_attr_int(s->node, SN_A_query_parts, 1);
    for (int i = 0, at = PARTS; i < 2; i++)
        g->sums_buf[i] = g->x.mix[i].buf >= 0 ? s->n_in + at++ : -1;
}

static void emit_mixed_grad(em *e, const sn_kernel *k) {
    sn_attention_mixed_grad g;
    make_gradient(k, &g);
    sn_attention_emit_mixed_grad(e, k->name, &g);
}

static sn_dim mixed_grad_scratch(const sn_kernel *k, const sn_target *t) {
    sn_attention_mixed_grad g;
    make_gradient(k, &g);
    return att_scratch_of_sizes(k, sn_attention_mixed_grad_scratch(&g, t, k->compute, 1, 1),
                                sn_attention_mixed_grad_scratch(&g, t, k->compute, ATT_MANY, 1),
                                sn_attention_mixed_grad_scratch(&g, t, k->compute, 1, ATT_MANY));
}

const sn_family sn_family_flash_mixed_grad = {
    .emit = emit_mixed_grad, .scratch = mixed_grad_scratch, .dynamic = true};
