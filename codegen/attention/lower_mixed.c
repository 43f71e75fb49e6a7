/* lower_mixed.c: translates `flash_mixed` steps into specs of the generator. */
#include "codegen/attention/lower.h"
#include "codegen/attention/mixed.h"

#include <string.h>

static void make_spec(const sn_kernel *k, sn_attention_mixed *x) {
    int64_t mix = sn_attr_int(k->step->node, SN_A_mix, 0);
    att_make_spec(k, att_first_captured(k), &x->a);
    for (int i = 0, at = SN_FLASH_CAPTURED; i < 2; i++) {
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
    make_spec(k, &x);
    sn_attention_emit_mixed(e, k->name, &x);
}

static sn_dim mixed_scratch(const sn_kernel *k, const sn_target *t) {
    sn_attention_mixed x;
    make_spec(k, &x);
    return att_scratch_of_sizes(k, sn_attention_mixed_scratch(&x, t, k->compute, 1, 1),
                                sn_attention_mixed_scratch(&x, t, k->compute, ATT_MANY, 1),
                                sn_attention_mixed_scratch(&x, t, k->compute, 1, ATT_MANY));
}

static const sn_region *mixed_report(const sn_kernel *k, char *text, size_t size) {
    static const char *const where[] = {"", "before the softmax", "after the softmax",
                                        "before and after the softmax"};
    sn_attention_mixed x;
    make_spec(k, &x);
    sn_attention_explain(&x.a, text, size);
    size_t n = strlen(text);
    snprintf(text + n, size - n, "; heads mix %s, tile by tile",
             where[sn_attr_int(k->step->node, SN_A_mix, 0) & 3]);
    return NULL;
}

const sn_family sn_family_flash_mixed = {.emit = emit_mixed,
                                         .scratch = mixed_scratch,
                                         .report = mixed_report,
                                         .emit_tile_map = att_emit_flash_tile_map,
                                         .tile_size = att_flash_tile_size};
