/* rows.c: past tokens in states. Of several sequences, each has a row, whose tokens begin at position 0 of the state; what a
 * graph reads of the rows that decode together is gathered so that they end at one position. */
#include "frontend/onnx/rows.h"

#include <string.h>

/* ---- several sequences ---- */

static bool decodes_rows(const onnx_call *c) {
    return c->im->role->sequences && c->im->role->one;
}

sn_tensor onnx_row_tokens(const onnx_call *c) {
    const onnx_role *r = c->im->role;
    if (!decodes_rows(c)) return NULL;
    return front_input(c->m, "past", SN_I32, SN_DIMS(onnx_symbol_in(c->im, "B", 1, r->sequences)),
                       0, onnx_symbol_in(c->im, "P", 0, r->context - 1));
}

sn_tensor onnx_row_positions(const onnx_call *c, sn_dim n) {
    const sn_dim longest = onnx_symbol_in(c->im, "P", 0, c->im->role->context - 1);
    sn_tensor skipped = sn_sub(sn_dim_tensor(c->m, SN_I32, longest), onnx_row_tokens(c));
    return sn_sub(sn_arange(c->m, SN_I32, n), sn_expand(skipped, 1));
}

/* n positions of the rows, padded: x [rows, .., context, ..]. */
static sn_tensor gather_rows(onnx_call *c, sn_tensor x, int axis, sn_dim n) {
    sn_tensor at = sn_max(onnx_row_positions(c, n), 0); /* [B, n] */
    const sn_dim context = sn_dim_of(x, axis);
    const int rank = sn_rank_of(x);
    sn_dim table[SN_MAX_RANK + 1];
    int64_t slices = 1;
    sn_tensor first = sn_arange(
        c->m, SN_I32, sn_dim_of(at, 0)); /* [B, ..]: the row, and the axes before that of tokens */
    for (int i = 1; i < axis; i++) {
        sn_tensor here = sn_arange(c->m, SN_I32, sn_dim_of(x, i));
        first = sn_add(sn_expand(sn_mul(first, (double)sn_dim_of(x, i)), i), here);
        at = sn_expand(at, 1);
    }
    for (int i = 0; i <= axis; i++) slices *= sn_dim_of(x, i);
    if (slices > INT32_MAX) {
        onnx_fail(c, "a cache of %lld rows is too large for several sequences", (long long)slices);
        return NULL;
    }
    table[0] = slices;
    for (int i = axis + 1; i < rank; i++) table[i - axis] = sn_dim_of(x, i);
    table[rank - axis] = SN_END;
    sn_tensor ids = sn_add(sn_expand(sn_mul(first, (double)context), axis), at);
    return sn_gather_at(c->at, sn_reshape_at(c->at, x, table), 0, ids);
}

/* ---- inputs ---- */

/* The first n tokens of x, the state or its next value. */
static sn_tensor read(onnx_call *c, sn_tensor x, int axis, sn_dim n) {
    const onnx_role *r = c->im->role;
    if (decodes_rows(c)) return gather_rows(c, x, axis, n);
    if (r->sequences) x = sn_slice_at(c->at, x, 0, sn_symbol(c->m, "R", 0, r->sequences - 1), 1, 1);
    return sn_slice_at(c->at, x, axis, 0, n, 1);
}

sn_tensor onnx_past_new(const onnx_asked *g, const sn_dim *shape, int axis) {
    onnx_call *c = g->c;
    const onnx_role *r = c->im->role;
    sn_dim of[SN_MAX_RANK + 1];
    int n = 0;
    for (; shape[n] != SN_END; n++) of[n] = shape[n];
    of[n] = SN_END;
    of[axis] = r->context;
    if (r->sequences) of[0] = r->sequences;
    onnx_past *p = sn_arena_alloc(c->im->arena, sizeof *p);
    sn_tensor state = sn_state_at(c->at, c->m, g->name, g->type, of);
    *p = (onnx_past){.next = c->im->past,
                     .name = sn_arena_str(c->im->arena, g->name),
                     .past = read(c, state, axis, g->past),
                     .state = state,
                     .axis = axis};
    c->im->past = p;
    return p->past;
}

onnx_past *onnx_past_named(const onnx_import *im, const char *name) {
    onnx_past *p = im->past;
    while (p && strcmp(p->name, name) != 0) p = p->next;
    return p;
}

sn_tensor onnx_past_append(onnx_call *c, onnx_past *p, sn_tensor x) {
    const onnx_role *r = c->im->role;
    const int rank = sn_rank_of(p->state);
    const sn_dim past = onnx_symbol_in(c->im, "P", 0, r->context - 1);
    sn_tensor tokens = onnx_row_tokens(c), next;
    if (tokens)
        next = sn_update_rows_at(c->at, p->state, p->axis, x, tokens);
    else {
        sn_dim start[SN_MAX_RANK + 1] = {0};
        if (r->sequences) start[0] = sn_symbol(c->m, "R", 0, r->sequences - 1);
        start[p->axis] = past;
        start[rank] = SN_END;
        next = sn_update_at(c->at, p->state, x, start);
    }
    sn_assign_at(c->at, p->state, next);
    p->filled = read(c, next, p->axis, sn_dim_add(c->m, past, sn_dim_of(x, p->axis)));
    return p->filled;
}

sn_tensor onnx_after_past(onnx_call *c, int axis, sn_tensor past, sn_tensor x) {
    onnx_past *p = c->im->past;
    while (p && (p->past != past || p->axis != axis || p->filled)) p = p->next;
    if (!p || sn_rank_of(past) != sn_rank_of(x)) return sn_concat(axis, past, x);
    return onnx_past_append(c, p, x);
}
