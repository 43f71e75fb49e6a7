/* decomp_fused.c: what the fused kernels of the passes stand for: their regions opened around the
 * primitive at their heart. (flash is in decomp_attention.c.) */
#include "ir/decomp_impl.h"

#include <string.h>

#define PANEL 32 /* columns of a panel of the packed right factor */

static bool open_region(decomp *c, const sn_region *r, const char *what, int n_arg,
                        sn_node *const *arg) {
    if (r->n_arg != n_arg || r->n_out > SN_MAX_RESULTS)
        return sn_dc_fail(c, "its %s takes %d operands and gives %d, but has %d", what, r->n_arg,
                          r->n_out, n_arg);
    for (int i = 0; i < n_arg; i++)
        if (r->arg[i]->dtype != arg[i]->dtype || r->arg[i]->rank != arg[i]->rank ||
            (arg[i]->rank &&
             memcmp(r->arg[i]->shape, arg[i]->shape, sizeof(sn_dim) * arg[i]->rank)))
            return sn_dc_fail(c, "argument %d of its %s has another type than the operand", i,
                              what);
    sn_region_inline(r, arg, c->out);
    c->n_out = r->n_out;
    return !c->m->error.code;
}

bool decomp_loops(decomp *c) {
    const sn_attr *body = sn_dc_attr(c, SN_A_body);
    if (!body) return sn_dc_fail(c, "attribute 'body' is missing");
    return open_region(c, body->r, "body", c->n_in, c->in);
}

/* The right factor [K, N] (or [N, K] where contract_b says so) in panels [N / 32, K, 32], the last
 * one filled up with zeros. */
bool decomp_pack_b(decomp *c) {
    const sn_attr *k = sn_dc_attr(c, SN_A_contract_b);
    int64_t n;
    if (c->n_in != 1 || c->in[0]->rank != 2) return sn_dc_fail(c, "one matrix is needed");
    sn_node *x = c->in[0];
    if (k && k->n == 1 && k->v[0] == 1) x = sn_b_transpose(x, 2, (const int64_t[]){1, 0});
    if (!sn_dc_number(c, "the number of columns", x->shape[1], &n)) return false;
    sn_dim panels = (n + PANEL - 1) / PANEL;
    x = SN_NODE(c->m, pad,
                SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, 2, ((const sn_dim[]){0, 0})),
                         SN_LIST(high, 2, ((const sn_dim[]){0, panels * PANEL - n}))),
                x);
    if (c->m->error.code) return false;
    x = sn_b_reshape(x, 3, (const sn_dim[]){x->shape[0], panels, PANEL});
    c->out[0] = sn_b_transpose(x, 3, (const int64_t[]){1, 0, 2});
    return !c->m->error.code;
}

/* Panels [P, K, 32] as the matrix [K, n] that was packed. */
static sn_node *unpack(const decomp *c, sn_node *panels, sn_dim n) {
    int64_t count;
    if (panels->rank != 3 || !sn_dc_number(c, "the number of panels", panels->shape[0], &count)) {
        sn_dc_fail(c, "a packed right factor has the shape [panels, k, %d]", PANEL);
        return NULL;
    }
    sn_node *x = sn_b_transpose(panels, 3, (const int64_t[]){1, 0, 2});
    x = sn_b_reshape(x, 2, (const sn_dim[]){panels->shape[1], count * PANEL});
    return sn_b_slice(x, 1, 0, n);
}

/* Operands: left, right, {n_pro} of the prologue, the rest for the epilogue. The product is a dot
 * with the node's batch and contract axes, by default the last of the left and the first of the
 * right factor. {size} = [N]: the right factor is packed and has N columns. */
bool decomp_gemm(decomp *c) {
    const sn_attr *pro = sn_dc_attr(c, SN_A_prologue), *epi = sn_dc_attr(c, SN_A_epilogue);
    const sn_attr *size = sn_dc_attr(c, SN_A_size);
    int n_pro = (int)sn_dc_int(c, SN_A_n_pro, 0);
    if (c->n_in < 2 + n_pro || n_pro < 0) return sn_dc_fail(c, "operands are missing");
    sn_node *left = c->in[0], *right = c->in[1];
    sn_node **arg = sn_arena_alloc(c->m, sizeof *arg * (size_t)c->n_in);
    if (pro) {
        arg[0] = left;
        if (n_pro) memcpy(arg + 1, c->in + 2, sizeof *arg * (size_t)n_pro);
        if (!open_region(c, pro->r, "prologue", 1 + n_pro, arg)) return false;
        left = c->out[0];
    }
    if (size && !(right = unpack(c, right, size->v[0]))) return false;
    int64_t last = left->rank - 1, first = 0;
    sn_attr dot[4];
    int n = 0;
    static const sn_attr_key keys[] = {SN_A_batch_a, SN_A_batch_b, SN_A_contract_a,
                                       SN_A_contract_b};
    for (int i = 0; i < 4; i++)
        if (sn_dc_attr(c, keys[i])) dot[n++] = *sn_dc_attr(c, keys[i]);
    if (!sn_dc_attr(c, SN_A_contract_a)) {
        dot[n++] = SN_LIST(contract_a, 1, &last);
        dot[n++] = SN_LIST(contract_b, 1, &first);
    }
    c->out[0] = sn_node_new(c->m, SN_OP_dot, 2, (sn_node *[]){left, right}, n, dot);
    c->n_out = 1;
    if (!epi || c->m->error.code) return !c->m->error.code;
    int n_epi = c->n_in - 2 - n_pro;
    arg[0] = c->out[0];
    if (n_epi) memcpy(arg + 1, c->in + 2 + n_pro, sizeof *arg * (size_t)n_epi);
    return open_region(c, epi->r, "epilogue", 1 + n_epi, arg);
}
