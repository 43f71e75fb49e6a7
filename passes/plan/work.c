/* work.c: the columns `macs` and `flops` of the table of kernels. */
#include "passes/kernels/costs.h"
#include "passes/kernels/table.h"
#include "passes/plan/product.h"

static sn_dim result_elements(sn_module *m, const sn_step *s) {
    sn_dim n = 0;
    for (int i = 0; i < s->n_out; i++)
        n = sn_dim_add(m, n, sn_dim_product(m, s->out[i].rank, s->out[i].shape));
    return n;
}

sn_dim sn_flops_elementwise(sn_module *m, const sn_step *s) {
    enum { PER_ELEMENT = 8 };
    return sn_dim_mul(m, result_elements(m, s), PER_ELEMENT);
}

/* The same, and an operation or two for each element that is summed. */
sn_dim sn_flops_rows(sn_module *m, const sn_step *s) {
    sn_dim flops = sn_flops_elementwise(m, s);
    sn_order order = sn_region_topo(m, sn_attr_region(s->node, SN_A_body));
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (!sn_attr_get(n, SN_A_axes)) continue;
        sn_dim elements = sn_dim_product(m, n->in[0]->rank, n->in[0]->shape);
        flops = sn_dim_add(m, flops, sn_dim_mul(m, elements, 2));
    }
    return flops;
}

/* A sort works on one number at a time: each of its operations counts as a vector of them. */
sn_dim sn_flops_argsort(sn_module *m, const sn_step *s) {
    enum { VECTOR = 16, OF_INSERTION = 32, OF_PASS = 18, OF_BUCKET = 6 };
    const sn_view *x = &s->in[0], *y = &s->out[0];
    const int axis = (int)sn_attr_int(s->node, SN_A_axis, 0);
    int64_t size, pass = (int64_t)(8 * sn_dtype_size(x->dtype) / SN_SORT_DIGIT), of_row = 0;
    bool few = sn_dim_is_const(m, y->shape[axis], &size) && size <= SN_SORT_INSERTED;
    sn_dim rows = 1;
    for (int a = 0; a < x->rank; a++)
        if (a != axis) rows = sn_dim_mul(m, rows, x->shape[a]);
    int64_t of_element = few ? OF_INSERTION : OF_PASS * pass;
    if (!few) of_row = OF_BUCKET * pass * SN_SORT_BUCKETS;
    sn_dim row = sn_dim_add(m, sn_dim_mul(m, x->shape[axis], of_element * VECTOR), of_row * VECTOR);
    return sn_dim_mul(m, rows, row);
}

/* Half of the products of the matrix with the result, two operations each. */
sn_dim sn_flops_solve(sn_module *m, const sn_step *s) {
    const sn_view *x = &s->out[0];
    return sn_dim_mul(m, result_elements(m, s), x->shape[x->rank - 2]);
}

sn_dim sn_macs_solve(sn_module *m, const sn_step *s) {
    sn_dim half, flops = sn_flops_solve(m, s);
    return sn_dim_div(m, flops, 2, &half) ? half : flops;
}

sn_dim sn_macs_gemm(sn_module *m, const sn_step *s) {
    return sn_product_work(m, s);
}

sn_dim sn_flops_gemm(sn_module *m, const sn_step *s) {
    return sn_dim_mul(m, 2, sn_macs_gemm(m, s));
}

/* Rows times both other sizes: of the matrices, or of the rows that are multiplied. */
sn_dim sn_macs_grouped(sn_module *m, const sn_step *s) {
    const sn_view *z = &s->in[2], *y = &s->in[1], *out = &s->out[0];
    sn_dim rows = sn_dim_mul(m, z->shape[0], z->shape[1]);
    return sn_dim_mul(m, sn_dim_mul(m, rows, out->shape[1]), y->shape[y->rank - 1]);
}

sn_dim sn_flops_grouped(sn_module *m, const sn_step *s) {
    return sn_dim_mul(m, 2, sn_macs_grouped(m, s));
}

/* ---- attention: q [.., Tq, d], k [.., Tk, d], v [.., Tk, dv] ---- */

static sn_dim keys(const sn_step *s) {
    const sn_view *k = &s->in[SN_FLASH_K];
    return k->shape[k->rank - 2];
}

/* Multiply-adds of of_d products that contract d and of_dv products that contract dv. */
static sn_dim macs_of_pairs(sn_module *m, const sn_step *s, sn_dim of_d, sn_dim of_dv) {
    const sn_view *q = &s->in[SN_FLASH_Q], *v = &s->in[SN_FLASH_V];
    sn_dim pairs = sn_dim_mul(m, sn_dim_product(m, q->rank - 1, q->shape), keys(s));
    return sn_dim_mul(m, pairs,
                      sn_dim_add(m, sn_dim_mul(m, of_d, q->shape[q->rank - 1]),
                                 sn_dim_mul(m, of_dv, v->shape[v->rank - 1])));
}

sn_dim sn_macs_flash(sn_module *m, const sn_step *s) {
    return macs_of_pairs(m, s, 1, 1);
}

/* The products of attention, and the sums over heads for each mixed score or weight. */
static sn_dim macs_of_heads(sn_module *m, const sn_step *s, int of_k, int of_v, int sums) {
    int64_t mix = sn_attr_int(s->node, SN_A_mix, 0), n = (mix & 1) + (mix >> 1 & 1);
    sn_dim heads = sn_dim_mul(m, s->in[SN_FLASH_Q].shape[1], sn_dim_const(m, n * sums));
    sn_dim pairs = sn_dim_mul(m, sn_dim_product(m, 3, s->in[SN_FLASH_Q].shape), keys(s));
    return sn_dim_add(m, macs_of_pairs(m, s, of_k, of_v), sn_dim_mul(m, pairs, heads));
}

sn_dim sn_macs_flash_mixed(sn_module *m, const sn_step *s) {
    return macs_of_heads(m, s, 1, 1, 1);
}

sn_dim sn_macs_flash_mixed_grad(sn_module *m, const sn_step *s) {
    return macs_of_heads(m, s, 3, 2, 3);
}

sn_dim sn_macs_flash_grad(sn_module *m, const sn_step *s) {
    return macs_of_pairs(m, s, 3, 2);
}

sn_dim sn_flops_flash(sn_module *m, const sn_step *s) {
    return sn_dim_mul(m, result_elements(m, s), sn_dim_mul(m, 4, keys(s)));
}

/* Five products for the two of the forward kernel. */
sn_dim sn_flops_flash_grad(sn_module *m, const sn_step *s) {
    const sn_view *q = &s->in[SN_FLASH_Q];
    return sn_dim_mul(m, sn_dim_product(m, q->rank, q->shape), sn_dim_mul(m, 10, keys(s)));
}

/* ---- scans ---- */

/* What the body computes for one element, times their number. */
sn_dim sn_flops_fused_scan(sn_module *m, const sn_step *s) {
    sn_scan scan = sn_scan_of(s->node);
    sn_order order = sn_region_topo(m, scan.body);
    sn_dim one = 0;
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i], *x = n->op == SN_OP_dot || n->n_in == 0 ? n : n->in[0];
        bool counts = n->n_in && !(sn_ops[n->op].flags & SN_OPF_VIEW);
        sn_dim each = sn_cost_of(n, counts);
        one = sn_dim_add(m, one, sn_dim_mul(m, each, sn_dim_product(m, x->rank, x->shape)));
    }
    return sn_dim_mul(m, one, s->in[scan.n_carry].shape[0]);
}

/* ---- recurrences ---- */

/* Forward q S and S'; with a second pair its product, with a delta rule a S. A gradient computes S again,
 * and has k R, w R^T, dy S^T and R', of a delta rule also q^T dy beside a^T du, du S^T and u R^T. */
static int64_t reads_and_products(const sn_recurrence *r) {
    const int second = r->second && !r->same;
    return r->gradient ? 5 + 2 * r->delta + 3 * second : 2 + r->delta + second;
}

sn_dim sn_macs_recurrence(sn_module *m, const sn_step *s) {
    sn_recurrence r = sn_recurrence_of(s->node);
    const sn_view *start = &s->in[sn_recurrence_carry(&r, s->n_in)];
    sn_dim elements =
        sn_dim_mul(m, s->out[0].shape[0], sn_dim_product(m, start->rank, start->shape));
    return sn_dim_mul(m, elements, reads_and_products(&r));
}

int sn_states_of_recurrence(const sn_node *n) {
    const sn_recurrence r = sn_recurrence_of(n);
    return r.gradient ? -1 : sn_recurrence_states(&r);
}

sn_dim sn_flops_recurrence(sn_module *m, const sn_step *s) {
    return sn_dim_mul(m, 2, sn_macs_recurrence(m, s));
}
