/* row_blocks.c: see row_blocks.h. Tensors of the body without other readers have room for one block
 * of rows only. */
#include "passes/plan/row_blocks.h"
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/plan/edit.h"
#include "passes/plan/in_place.h"
#include "passes/view.h"

#include <string.h>

/* ---- sums over rows: written in the first iteration, added to in later ones ---- */

static sn_region *sum_of_two(sn_module *m, sn_dtype t, int rank, const sn_dim *shape) {
    sn_node *arg[2] = {sn_arg(m, 0, t, rank, shape), sn_arg(m, 1, t, rank, shape)};
    sn_node *sum = sn_b_binary(SN_OP_add, arg[0], arg[1]);
    return sn_region_new(m, 2, arg, 1, &sum);
}

sn_node *sn_row_blocks_add_product(sn_node *gemm) {
    sn_module *m = gemm->m;
    sn_node **in = sn_arena_alloc(m, sizeof *in * (size_t)(gemm->n_in + 1));
    sn_attr *attr = sn_arena_alloc(m, sizeof *attr * (size_t)(gemm->n_attr + 1));
    memcpy(in, gemm->in, sizeof *in * gemm->n_in);
    in[gemm->n_in] = gemm; /* by its type */
    memcpy(attr, gemm->attr, sizeof *attr * gemm->n_attr);
    attr[gemm->n_attr] =
        SN_REG(epilogue, sum_of_two(m, (sn_dtype)gemm->dtype, gemm->rank, gemm->shape));
    return sn_node_new(m, SN_OP_gemm, gemm->n_in + 1, in, gemm->n_attr + 1, attr);
}

sn_node *sn_row_blocks_add(sn_module *m, const sn_view *type) {
    sn_node *x = sn_node_new(m, SN_OP_input, 0, NULL,
                             SN_ATTRS(SN_STR(name, "sum"), SN_INT(dtype, type->dtype),
                                      SN_LIST(shape, type->rank, type->shape)));
    sn_region *body = sum_of_two(m, type->dtype, type->rank, type->shape);
    return sn_node_new(m, SN_OP_map_reduce, 2, (sn_node *[]){x, x}, SN_ATTRS(SN_REG(body, body)));
}

/* Whether n is a result of the body and a reduction along rows that nothing in the body reads. */
static bool is_row_sum(const sn_region *body, sn_order order, const sn_node *n) {
    bool result = false;
    if (!sn_reduces_rows(n)) return false;
    for (int i = 0; i < body->n_out; i++) result |= body->out[i] == n;
    for (int k = 0; k < order.n; k++)
        for (int i = 0; i < order.node[k]->n_in; i++) result &= order.node[k]->in[i] != n;
    return result;
}

/* Whether the epilogue of the product can compute the body of `consumer`, which has a domain already:
 * reductions along rows over panels. Indices of columns, and swaps, have not occurred. */
static bool holds_body(sn_node *gemm, const sn_node *consumer) {
    const sn_region *body = sn_attr_region(consumer, SN_A_body);
    sn_order order = sn_region_topo(consumer->m, body);
    sn_group k = {.kernel = SN_KERNEL_gemm, .fused = true, .member = &gemm};
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        if (is_row_sum(body, order, n) && sn_shapes_equal(n->in[0], gemm)) n = sn_panel_sum_of(n);
        if (!n || n->op == SN_OP_iota || sn_reads_far(n, 0)) return false;
        k.rank = n->rank;
        if (n->rank) memcpy(k.domain, n->shape, sizeof *n->shape * n->rank);
        if (sn_kernel_refuses(&k, SN_IN_EPILOGUE, n)) return false;
    }
    for (int i = 0; i < body->n_out; i++)
        if (!sn_shapes_equal(body->out[i], gemm) && !is_row_sum(body, order, body->out[i]))
            return false;
    return true;
}

sn_node *sn_row_blocks_epilogue(sn_node *gemm, const sn_node *consumer, int i) {
    sn_module *m = gemm->m;
    const sn_region *body = sn_attr_region(consumer, SN_A_body);
    if (gemm->rank != 2 || !holds_body(gemm, consumer)) return NULL;
    int n = consumer->n_in, n_in = 2, n_arg = 1;
    sn_node **in = sn_arena_alloc(m, sizeof *in * (size_t)(n + 2));
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)n); /* of the epilogue */
    sn_node **place =
        sn_arena_alloc(m, sizeof *place * (size_t)n); /* in the order of the consumer */
    memcpy(in, gemm->in, sizeof *in * 2);
    for (int k = 0; k < n; k++) {
        const sn_node *x = body->arg[k];
        int at = k == i ? 0 : n_arg++;
        place[k] = arg[at] = sn_arg(m, at, (sn_dtype)x->dtype, x->rank, x->shape);
        if (k != i) in[n_in++] = consumer->in[k];
    }
    sn_node *out[SN_MAX_RESULTS];
    sn_region_inline(body, place, out);
    for (int k = 0; k < body->n_out; k++)
        if (!sn_shapes_equal(out[k], gemm)) out[k] = sn_panel_sum_of(out[k]);
    sn_attr *attr = sn_arena_alloc(m, sizeof *attr * (size_t)(gemm->n_attr + 1));
    memcpy(attr, gemm->attr, sizeof *attr * gemm->n_attr);
    attr[gemm->n_attr] = SN_REG(epilogue, sn_region_new(m, n, arg, body->n_out, out));
    return sn_node_new(m, SN_OP_gemm, n_in, in, gemm->n_attr + 1, attr);
}

sn_node *sn_row_blocks_end_sums(const sn_node *panels, sn_op op) {
    const int64_t first = 0;
    const sn_dim shape[] = {panels->shape[1], panels->shape[0]};
    sn_node *x = sn_node_new(
        panels->m, SN_OP_input, 0, NULL,
        SN_ATTRS(SN_STR(name, "panels"), SN_INT(dtype, panels->dtype), SN_LIST(shape, 2, shape)));
    sn_node *arg = sn_arg(panels->m, 0, (sn_dtype)panels->dtype, 2, shape);
    sn_node *sum = sn_b_reduce(op, arg, 1, &first);
    sn_region *body = sn_region_new(panels->m, 1, &arg, 1, &sum);
    return sn_node_new(panels->m, SN_OP_map_reduce, 1, &x, SN_ATTRS(SN_REG(body, body)));
}

sn_step *sn_row_blocks_product(const sn_step *whole, int index) {
    for (int i = 0; i < whole->n_inner; i++) {
        sn_step *s = &whole->inner[i];
        if (s->when == SN_IF_FIRST && sn_kernel_of(s->node)->contraction &&
            s->out[0].buffer == whole->n_in + index)
            return s;
    }
    return NULL;
}

/* ---- results in the place of operands ---- */

static bool reads_buffer(const sn_step *s, int buffer, int but) {
    for (int i = 0; i < s->n_in + s->n_out; i++)
        if (i != but && sn_view_of(s, i)->buffer == buffer) return true;
    return false;
}

typedef struct body { /* steps from `first` on, and the buffers that were created for them alone */
    sn_plan *p;
    int first, first_buffer, n_result;
    const sn_view *result;
} body;

static bool is_local(const body *b, int buffer) {
    bool local = buffer >= b->first_buffer;
    for (int i = 0; i < b->n_result; i++) local &= b->result[i].buffer != buffer;
    return local;
}

/* Writes result o of step `at` over operand i. */
static bool may_overwrite(const body *b, int at, int i, int o) {
    const sn_step *s = &b->p->step[at];
    const sn_view *from = &s->in[i], *to = &s->out[o];
    if (!is_local(b, from->buffer) || !is_local(b, to->buffer) || !sn_view_matches(from, to) ||
        b->p->buffer[from->buffer].count != b->p->buffer[to->buffer].count ||
        reads_buffer(s, from->buffer, i))
        return false;
    for (int k = at + 1; k < b->p->n_step; k++)
        if (reads_buffer(&b->p->step[k], from->buffer, -1)) return false;
    return sn_reads_before(sn_attr_region(s->node, SN_A_body), i, o);
}

/* The gradient of logits overwrites them. */
static void overwrite(const body *b) {
    for (int at = b->first; at < b->p->n_step; at++) {
        const sn_step *s = &b->p->step[at];
        for (int o = 0; s->node->op == SN_OP_map_reduce && o < s->n_out; o++)
            for (int i = 0; i < s->n_in; i++) {
                if (!may_overwrite(b, at, i, o)) continue;
                sn_plan_rename(b->p, s->out[o].buffer, s->in[i].buffer, b->first, b->p->n_step);
                break;
            }
    }
}

/* ---- one step ---- */

static sn_dim step_of_rows(const sn_view *v, sn_dim rows) {
    for (int a = 0; a < v->rank; a++)
        if (v->shape[a] == rows) return v->stride[a];
    return 0;
}

/* The index of the buffer among the operands and results of the whole step, which grow. */
static int place_of(sn_plan *p, sn_step *whole, int buffer, bool made) {
    for (int i = 0; i < whole->n_in + whole->n_out; i++)
        if (sn_view_of(whole, i)->buffer == buffer) return i;
    if (!made) {
        sn_module_fail(p->m, SN_ERR_INTERNAL,
                       "row_blocked: a kernel reads something that is not an operand");
        return 0;
    }
    whole->out[whole->n_out++] = (sn_view){
        .buffer = buffer, .dtype = p->buffer[buffer].dtype, .rank = 1, .shape = {1}, .stride = {1}};
    return whole->n_in + whole->n_out - 1;
}

sn_step *sn_row_blocks_fold(sn_planner *planner, sn_node *n, int first, int first_buffer,
                            const sn_view *result) {
    sn_plan *p = planner->plan;
    sn_module *m = p->m;
    sn_dim rows = sn_attr_get(n, SN_A_dim)->i, each;
    const body b = {p, first, first_buffer, n->n_result, result};
    overwrite(&b);
    int n_read = 0;
    for (int i = first; i < p->n_step; i++) n_read += p->step[i].n_in;
    sn_step *whole = sn_planner_fold(planner, SN_STEP_ROWS, n, first);
    whole->rows = rows;
    whole->block_rows = sn_attr_int(n, SN_A_rows, 1);
    whole->n_out = n->n_result;
    int n_views = whole->n_out + p->n_buffer - first_buffer;
    whole->out = sn_arena_alloc(m, sizeof *whole->out * (size_t)(n_views + 1));
    whole->in = sn_arena_alloc(m, sizeof *whole->in * (size_t)(n_read + 1));
    memcpy(whole->out, result, sizeof *result * (size_t)whole->n_out);
    for (int i = 0; i < whole->n_inner; i++) /* operands, before results are numbered */
        for (int k = 0; k < whole->inner[i].n_in; k++) {
            const sn_view *v = &whole->inner[i].in[k];
            bool known = v->buffer >= first_buffer;
            for (int j = 0; j < whole->n_in && !known; j++)
                known = whole->in[j].buffer == v->buffer;
            if (!known) whole->in[whole->n_in++] = *v;
        }
    for (int k = first_buffer; k < p->n_buffer; k++)
        if (is_local(&b, k) && sn_dim_div(m, p->buffer[k].count, rows, &each))
            p->buffer[k].max_count = sn_dim_mul(m, each, whole->block_rows);
    for (int i = 0; i < whole->n_inner; i++) {
        sn_step *t = &whole->inner[i];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            sn_view *v = sn_view_of(t, k);
            if (!p->buffer[v->buffer].max_count) v->row_stride = step_of_rows(v, rows);
            v->buffer = place_of(p, whole, v->buffer, v->buffer >= first_buffer);
        }
    }
    return whole;
}

void sn_row_blocks_bind(const sn_step *whole) {
    for (int i = 0; i < whole->n_inner; i++) {
        sn_step *t = &whole->inner[i];
        for (int k = 0; k < t->n_in + t->n_out; k++) {
            sn_view *v = sn_view_of(t, k);
            v->buffer = sn_view_of(whole, v->buffer)->buffer;
        }
    }
}
