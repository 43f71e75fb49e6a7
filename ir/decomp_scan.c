/* decomp_scan.c: what a fused_scan computes, as scans: one for the carries that are recomputed, which
 * keeps their values before each element, one for the rest, and sums of blocks. And a fused_recurrence. */
#include "ir/decomp_impl.h"

#include <string.h>

static sn_node *scan_over(decomp *c, int n_carry, int n_sequence, bool reverse, int n_in,
                          sn_node *const *in, sn_node *const *arg, int n_out, sn_node *const *out) {
    sn_region *body = sn_region_extract(c->m, n_in, arg, n_out, out);
    sn_attr attr[] = {SN_INT(carries, n_carry), SN_INT(sequences, n_sequence), SN_REG(body, body),
                      SN_INT(reverse, 1)};
    return sn_node_new(c->m, SN_OP_scan, n_in, in, 3 + reverse, attr);
}

/* The recomputed carries before each element: results n_again to 2 n_again - 1. */
static sn_node *history(decomp *c, const sn_scan *s) {
    int n_again = s->n_again, first = s->n_carry - n_again;
    sn_node *out[2 * SN_MAX_RESULTS];
    for (int i = 0; i < n_again; i++) {
        out[i] = s->body->out[first + i];
        out[n_again + i] = s->body->arg[first + i];
    }
    return scan_over(c, n_again, s->n_sequence, !s->reverse, s->n_in - first, c->in + first,
                     s->body->arg + first, 2 * n_again, out);
}

/* Sums of blocks of the axis, an element each. */
static sn_node *sum_blocks(decomp *c, sn_node *x, int axis) {
    int64_t size, axes = axis + 1;
    sn_dim shape[SN_MAX_RANK + 1];
    if (axis < 0 || axis >= x->rank || x->rank == SN_MAX_RANK ||
        !sn_dc_number(c, "the summed axis", x->shape[axis], &size))
        return NULL;
    int64_t blocks = (size + SN_SCAN_BLOCK - 1) / SN_SCAN_BLOCK,
            more = blocks * SN_SCAN_BLOCK - size;
    if (more) {
        sn_dim extra[SN_MAX_RANK];
        for (int a = 0; a < x->rank; a++) extra[a] = a == axis ? more : x->shape[a];
        sn_node *zero = sn_b_const(c->m, (sn_dtype)x->dtype, 0);
        x = sn_b_concat(c->m, 2, (sn_node *[]){x, sn_b_broadcast(zero, x->rank, extra)}, axis);
    }
    for (int a = 0, b = 0; a < x->rank; a++) {
        shape[b++] = a == axis ? blocks : x->shape[a];
        if (a == axis) shape[b++] = SN_SCAN_BLOCK;
    }
    x = sn_b_reduce(SN_OP_reduce_sum, sn_b_reshape(x, x->rank + 1, shape), 1, &axes);
    for (int a = axis + 1; a + 1 < x->rank; a++) shape[a] = shape[a + 1];
    return sn_b_reshape(x, x->rank - 1, shape);
}

bool decomp_cumulate(decomp *c) {
    return decomp_fused_scan(c);
}

bool decomp_fused_scan(decomp *c) {
    sn_scan s;
    int n_in = 0;
    if (!sn_dc_attr(c, SN_A_carries) || !sn_dc_attr(c, SN_A_sequences) || !sn_dc_attr(c, SN_A_body))
        return sn_dc_fail(c, "attributes of a scan are missing");
    const char *fault = sn_scan_read(c->n_in, c->n_attr, c->attr, &s);
    if (fault) return sn_dc_fail(c, "%s", fault);
    int n_again = s.n_again, n_own = s.n_carry - n_again, n_out = s.body->n_out - n_again;
    if (2 * n_again > SN_MAX_RESULTS)
        return sn_dc_fail(c, "it recomputes more than %d carries", SN_MAX_RESULTS / 2);
    sn_node *all = NULL;
    if (!n_again) {
        all = scan_over(c, s.n_carry, s.n_sequence, s.reverse, s.n_in, c->in, s.body->arg, n_out,
                        s.body->out);
    } else {
        sn_node *before = history(c, &s), *out[SN_MAX_RESULTS];
        if (c->m->error.code) return false;
        sn_node **in = sn_arena_alloc(c->m, 2 * sizeof *in * (size_t)s.n_in), **arg = in + s.n_in;
        for (int i = 0; i < n_own; i++) in[n_in] = c->in[i], arg[n_in++] = s.body->arg[i];
        for (int i = 0; i < n_again; i++)
            in[n_in] = sn_b_result(before, n_again + i), arg[n_in++] = s.body->arg[n_own + i];
        for (int i = s.n_carry; i < s.n_in; i++) in[n_in] = c->in[i], arg[n_in++] = s.body->arg[i];
        for (int i = 0; i < n_out; i++) out[i] = s.body->out[i < n_own ? i : i + n_again];
        all = scan_over(c, n_own, n_again + s.n_sequence, s.reverse, n_in, in, arg, n_out, out);
    }
    for (int i = 0; i < n_out && !c->m->error.code; i++) {
        c->out[i] = sn_b_result(all, i);
        int64_t axis = s.sums && i >= n_own ? s.sums[i - n_own] : -1;
        if (axis >= 0 && !(c->out[i] = sum_blocks(c, c->out[i], (int)axis + 1))) return false;
    }
    c->n_out = n_out;
    return !c->m->error.code;
}

bool decomp_fused_recurrence(decomp *c) {
    const sn_attr *pro = sn_dc_attr(c, SN_A_prologue), *epi = sn_dc_attr(c, SN_A_epilogue);
    sn_node *in[SN_MAX_REC_IN] = {c->n_in ? c->in[0] : NULL}, **row = in + 1, **arg;
    sn_attr attr[SN_ATTR_COUNT];
    const sn_attr *gradient = sn_dc_attr(c, SN_A_gradient);
    const int n_end = gradient && gradient->i, n_source = c->n_in - 1 - n_end;
    int n_attr = 0, n_row = pro ? pro->r->n_out : 0;
    if (n_source < 0 || !pro || n_row > SN_MAX_REC_IN - 1 - n_end)
        return sn_dc_fail(c, "its prologue is missing or has too many results");
    if (!sn_dc_open_region(c, pro->r, "prologue", n_source, c->in + 1)) return false;
    memcpy(row, c->out, sizeof *row * (size_t)n_row);
    if (n_end) row[n_row++] = c->in[c->n_in - 1];
    for (int i = 0; i < c->n_attr; i++)
        if (c->attr[i].key != SN_A_prologue && c->attr[i].key != SN_A_epilogue)
            attr[n_attr++] = c->attr[i];
    sn_node *all = sn_node_new(c->m, SN_OP_recurrence, 1 + n_row, in, n_attr, attr);
    if (c->m->error.code) return false;
    c->n_out = all->n_result;
    for (int i = 0; i < c->n_out; i++) c->out[i] = sn_b_result(all, i);
    if (!epi || c->m->error.code) return !c->m->error.code;
    arg = sn_arena_alloc(c->m, sizeof *arg * (size_t)(c->n_out + c->n_in));
    memcpy(arg, c->out, sizeof *arg * (size_t)c->n_out);
    memcpy(arg + c->n_out, c->in + 1, sizeof *arg * (size_t)n_source);
    return sn_dc_open_region(c, epi->r, "epilogue", c->n_out + n_source, arg);
}
