/* wrong_functions.c: functions that must not pass for rules. */
#include "tests/rules/families.h"
#include "passes/graph_util.h"
#include "passes/raise/raise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static sn_node *as_broadcast(sn_node *x, sn_node *n) {
    for (int a = 0; a < x->rank && x->rank <= n->rank; a++)
        if (x->shape[a] != 1 && x->shape[a] != n->shape[n->rank - x->rank + a]) return NULL;
    return x->rank <= n->rank ? sn_b_broadcast_like(x, n) : NULL;
}

static sn_node *wrong_slice_slice(sn_node *n) { /* forgets where the inner one starts */
    return n->in[0]->op == SN_OP_slice
               ? sn_node_new(m, SN_OP_slice, 1, n->in[0]->in, n->n_attr, n->attr)
               : NULL;
}

static sn_node *wrong_sink_broadcast(sn_node *n) { /* operands in the other order */
    if (n->op != SN_OP_sub || n->in[0]->op != SN_OP_broadcast || n->in[1]->op != SN_OP_broadcast)
        return NULL;
    sn_node *y = sn_b_binary(SN_OP_sub, n->in[1]->in[0], n->in[0]->in[0]);
    return as_broadcast(y, n);
}

static sn_node *wrong_transpose_units(sn_node *n) { /* any transpose is a reshape */
    return sn_b_reshape(n->in[0], n->rank, n->shape);
}

static sn_node *wrong_reshape_broadcast(sn_node *n) { /* aligns axes at the end */
    return n->in[0]->op == SN_OP_broadcast ? as_broadcast(n->in[0]->in[0], n) : NULL;
}

static sn_node *wrong_concat_slices(sn_node *n) { /* whatever the slices are */
    const sn_node *s = n->in[0];
    if (s->op != SN_OP_slice || n->shape[0] > s->in[0]->shape[0] ||
        n->shape[1] > s->in[0]->shape[1])
        return NULL;
    const sn_attr *start = sn_attr_get(s, SN_A_start);
    for (int a = 0; a < 2; a++)
        if (start->v[a] + n->shape[a] > s->in[0]->shape[a]) return NULL;
    return SN_NODE(m, slice, SN_ATTRS(SN_LIST(start, 2, start->v), SN_LIST(size, 2, n->shape)),
                   s->in[0]);
}

static sn_node *wrong_dot_scale(sn_node *n) { /* drops the scale */
    if (n->in[0]->op != SN_OP_mul) return NULL;
    return sn_node_with(n, (sn_node *[]){n->in[0]->in[0], n->in[1]});
}

static sn_node *wrong_dot_transpose(sn_node *n) { /* keeps the axes */
    sn_node *x = n->in[0]->op == SN_OP_transpose ? n->in[0]->in[0] : NULL;
    return x && sn_shapes_equal(x, n->in[0]) ? sn_node_with(n, (sn_node *[]){x, n->in[1]}) : NULL;
}

static sn_node *wrong_silu(sn_node *n) { /* sigmoid(x) sigmoid(x) x, too */
    for (int i = 0; i < 2; i++)
        if (n->in[i]->op == SN_OP_sigmoid) return sn_b_unary(SN_OP_silu, n->in[i]->in[0]);
    return NULL;
}

static sn_node *wrong_quotient(sn_node *n) { /* forgets what is added to the sum */
    sn_node *w = n->in[0];
    return w->op == SN_OP_exp ? sn_b_softmax(w->in[0], NULL, 1) : NULL;
}

static sn_node *wrong_norm(sn_node *n) { /* with another eps */
    sn_node *y = sn_raise_norm(n);
    if (!y || (y->op != SN_OP_rms_norm && y->op != SN_OP_layer_norm)) return NULL;
    return sn_node_new(m, (sn_op)y->op, y->n_in, y->in, SN_ATTRS(SN_FLT(eps, 0.25)));
}

/* ---- wrong functions of attention: what the right one makes, changed ---- */

/* n with another attribute; without it, if there is none of the key. */
static sn_node *with_attr(const sn_node *n, sn_attr_key key, const sn_attr *instead) {
    sn_attr attr[32];
    int k = 0;
    assert_true(n->n_attr < 32);
    for (int i = 0; i < n->n_attr; i++)
        if (n->attr[i].key != key) attr[k++] = n->attr[i];
    if (instead) attr[k++] = *instead;
    return sn_node_new(m, (sn_op)n->op, n->n_in, n->in, k, attr);
}

static sn_node *other_base(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_rope ? with_attr(n, SN_A_base, &SN_FLT(base, 300)) : n;
}

static sn_node *scale_lost(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_rope ? with_attr(n, SN_A_scale, NULL) : n;
}

static sn_node *first_columns(void *ctx, sn_node *n) {
    (void)ctx;
    const sn_attr *c = n->op == SN_OP_rope ? sn_attr_get(n, SN_A_columns) : NULL;
    if (!c) return n;
    const int64_t columns[] = {0, c->v[1] - c->v[0]};
    return with_attr(n, SN_A_columns, &SN_LIST(columns, 2, columns));
}

static sn_node *maximum(void *ctx, sn_node *n) {
    (void)ctx;
    const int64_t axis = sn_attr_int(n, SN_A_axis, n->rank - 1);
    return n->op == SN_OP_logsumexp ? sn_b_reduce(SN_OP_reduce_max, n->in[0], 1, &axis) : n;
}

static sn_node *minus_sink(void *ctx, sn_node *n) {
    (void)ctx;
    if (n->op != SN_OP_softmax || n->n_in < 2) return n;
    return sn_node_with(n, (sn_node *[]){n->in[0], sn_b_unary(SN_OP_neg, n->in[1])});
}

/* Operands i and j of attention the other way around. */
static sn_node *exchanged(sn_node *n, int i, int j) {
    sn_node *in[16];
    if (n->op != SN_OP_attention || n->n_in > 16 || !sn_shapes_equal(n->in[i], n->in[j])) return n;
    memcpy(in, n->in, sizeof *in * n->n_in);
    in[i] = n->in[j], in[j] = n->in[i];
    return sn_node_with(n, in);
}

static sn_node *values_for_keys(void *ctx, sn_node *n) {
    (void)ctx;
    return exchanged(n, 1, 2);
}

static sn_node *mask_lost(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_attention ? with_attr(n, SN_A_mask, NULL) : n;
}

static sn_node *divisor_lost(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_attention ? with_attr(n, SN_A_weights, &SN_INT(weights, SN_WEIGHTS_PLAIN))
                                    : n;
}

static sn_node *matrix_transposed(void *ctx, sn_node *n) {
    (void)ctx;
    sn_node *in[16];
    if (n->op != SN_OP_mixed_attention || n->n_in > 16) return n;
    for (int i = 0; i < n->n_in; i++)
        in[i] = n->in[i]->rank == 2 ? sn_b_transpose(n->in[i], 2, (int64_t[]){1, 0}) : n->in[i];
    return sn_node_with(n, in);
}

static sn_node *minus_lost(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_const && sn_attr_flt(n, SN_A_value, 0) < 0
               ? with_attr(n, SN_A_value, &SN_FLT(value, 1))
               : n;
}

static sn_node *doubled_lse(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_attention_lse ? sn_b_binary(SN_OP_add, n, n) : n;
}

static sn_node *state_too_early(void *ctx, sn_node *n) {
    (void)ctx;
    if (n->op != SN_OP_recurrence || sn_attr_int(n, SN_A_reads, 0) != SN_READS_AFTER) return n;
    return with_attr(n, SN_A_reads, &SN_INT(reads, SN_READS_BEFORE));
}

static sn_node *other_direction(void *ctx, sn_node *n) {
    (void)ctx;
    const int64_t reverse = !sn_attr_int(n, SN_A_reverse, 0);
    return n->op == SN_OP_recurrence ? with_attr(n, SN_A_reverse, &SN_INT(reverse, reverse)) : n;
}

static int which; /* of wrong_functions */

static sn_node *changed_result(sn_raiser *r, sn_node *n) {
    const sn_rule_row *rule =
        row_of(family_of(wrong_functions[which].rule, wrong_functions[which].op));
    sn_node *y = rule->rewrite ? rule->rewrite(n) : rule->raise(r, n);
    if (y) sn_rewrite(m, 1, &y, wrong_functions[which].change, NULL);
    return y;
}

static sn_node *unscaled(sn_raiser *r, sn_node *n) { /* drops the factor */
    (void)r;
    return n->in[0]->op == SN_OP_attention ? n->in[0] : n->in[1];
}

static sn_node *keys_for_queries(void *ctx, sn_node *n) {
    sn_node *y = n->op == SN_OP_dot ? sn_raise_attention(ctx, n) : NULL;
    return y ? exchanged(y, 0, 1) : n;
}

static bool wrong_nodes(const sn_raiser *outside, int n, sn_node **root) {
    sn_raiser r = {.p = outside->p, .m = m};
    return sn_rewrite(m, n, root, keys_for_queries, &r) > 0;
}

static sn_node *wrong_body(sn_raiser *r, sn_node *n) { /* in the loop */
    r->raise_nodes = wrong_nodes;
    return sn_raise_body(r, n);
}

/* ---- the table ---- */

const wrong_function wrong_functions[] = {
    {"slice_slice", SN_OP_slice, .row = {.rewrite = wrong_slice_slice}},
    {"sink_broadcast", SN_OP_COUNT, .row = {.rewrite = wrong_sink_broadcast}},
    {"transpose_units", SN_OP_transpose, .row = {.rewrite = wrong_transpose_units}},
    {"reshape_broadcast", SN_OP_reshape, .row = {.rewrite = wrong_reshape_broadcast}},
    {"concat_slices", SN_OP_concat, .row = {.rewrite = wrong_concat_slices}},
    {"dot_scale", SN_OP_dot, .row = {.rewrite = wrong_dot_scale}},
    {"dot_transpose", SN_OP_dot, .row = {.rewrite = wrong_dot_transpose}},
    {"silu", SN_OP_mul, .row = {.rewrite = wrong_silu}},
    {"quotient", SN_OP_div, .row = {.rewrite = wrong_quotient}},
    {"norm", SN_OP_mul, .row = {.rewrite = wrong_norm}},
    {"rope", SN_OP_add, .row = {.raise = changed_result}, .change = other_base},
    {"scaled_rope", SN_OP_mul, .row = {.raise = changed_result}, .change = scale_lost},
    {"scaled_rope", SN_OP_neg, .row = {.raise = changed_result}, .change = scale_lost},
    {"rope_of_scaled", SN_OP_rope, .row = {.raise = changed_result}, .change = scale_lost},
    {"rope_of_columns", SN_OP_concat, .row = {.raise = changed_result}, .change = first_columns},
    {"logsumexp", SN_OP_log, .row = {.raise = changed_result}, .change = maximum},
    {"gate_by_logsumexp", SN_OP_mul, .row = {.raise = changed_result}, .change = minus_sink},
    {"mixed", SN_OP_dot, .row = {.raise = changed_result}, .change = matrix_transposed},
    {"attention", SN_OP_dot, .row = {.raise = changed_result}, .change = values_for_keys},
    {"attention", SN_OP_dot, .row = {.raise = changed_result}, .change = mask_lost},
    {"divide_attention", SN_OP_mul, .row = {.raise = changed_result}, .change = divisor_lost},
    {"settle_attention", SN_OP_attention, .row = {.raise = changed_result}, .change = mask_lost},
    {"settle_lse", SN_OP_attention_lse, .row = {.raise = changed_result}, .change = doubled_lse},
    {"difference", SN_OP_dot, .row = {.raise = changed_result}, .change = minus_lost},
    {"result", SN_OP_result, .row = {.raise = changed_result}, .change = state_too_early},
    {"scan", SN_OP_scan, .row = {.raise = changed_result}, .change = other_direction},
    {"scale_weights", SN_OP_mul, .row = {.raise = unscaled}},
    {"body", SN_OP_scan, .row = {.raise = wrong_body}},
};
const int n_wrong_functions = sizeof wrong_functions / sizeof *wrong_functions;

const sn_rule_row *wrong_row(int i) {
    which = i;
    return &wrong_functions[i].row;
}
