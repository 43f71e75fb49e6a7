/* Operations on tensors that two ranks divide, along each axis, in one part, in several, or in zigzag: values and
 * gradients of every rank's graph, by the evaluator, are those of the graph of one rank. */
#include "frontend/sinter.h"
#include "passes/passes.h"
#include "runtime/comm/comm.h"
#include "tests/support/effort.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 2, A = 5 /* does not divide */, B = 8, C = 12, SIZE = A * B * C, OUTPUTS = 3 };

/* ---- operations on x and w [A,B,C], ids [A,B] < 5 ---- */

typedef struct operands {
    sn_module *m;
    sn_tensor x, w, ids;
} operands;

typedef struct operation {
    const char *name;
    sn_tensor (*build)(const operands *o);
} operation;

#define OP(name, expression)                                                                       \
    static sn_tensor name(const operands *o) {                                                     \
        sn_tensor x = o->x, w = o->w, ids = o->ids;                                                \
        (void)x, (void)w, (void)ids;                                                               \
        return expression;                                                                         \
    }

static sn_tensor matrix(sn_tensor w) { /* [B,C] */
    return sn_reshape(sn_slice(w, 0, 1, 1), B, C);
}
static sn_tensor joined(sn_tensor x, sn_tensor w) { /* [A,B,2C], divided within its halves */
    return sn_concat(2, x, w);
}
static sn_tensor heads_of(sn_tensor x) { /* [A,2,4,C] */
    return sn_reshape(x, A, 2, 4, C);
}

OP(add, sn_add(x, w))
OP(add_number, sn_add(sn_mul(x, 2), 1))
OP(where, sn_where(sn_gt(x, w), x, sn_exp(w)))
OP(divide, sn_div(x, sn_add(sn_square(w), 1)))
OP(activations, sn_mul(sn_silu(x), sn_add(sn_relu(w), sn_softplus(x))))
OP(integers, sn_cast(sn_mul(sn_cast(sn_mul(x, 10), SN_I32), 3), SN_F32))
OP(rows_added, sn_add(x, sn_index(w, 0, 2)))
OP(columns_added, sn_mul(x, sn_slice(w, 2, 3, 1)))
OP(blocks_added, sn_mul(x, sn_sum_keep(w, 1)))

OP(shape_ab, sn_sin(sn_reshape(x, A *B, C)))
OP(shape_bc, sn_sin(sn_reshape(x, A, B *C)))
OP(shape_all, sn_sin(sn_reshape(x, SIZE)))
OP(shape_heads, sn_sin(sn_reshape(x, A, B, 3, 4)))
OP(shape_b, sn_sin(sn_reshape(x, A, 2, 4, C)))
OP(shape_b4, sn_sin(sn_reshape(x, A, 4, 2, C)))
OP(shape_move, sn_sin(sn_reshape(x, A, 4, 24)))
OP(shape_split, sn_sin(sn_reshape(x, A, 16, 6)))
OP(shape_halves, sn_sin(sn_reshape(x, A, B, 2, 6)))
OP(shape_ones, sn_sin(sn_reshape(x, 1, A, B, 1, C, 1)))
OP(shape_joined, sn_sin(sn_reshape(joined(x, w), A, B, 2, C)))
OP(shape_joined_heads, sn_sin(sn_reshape(joined(x, w), A, B, 6, 4)))
OP(shape_and_back, sn_reshape(sn_sin(sn_reshape(x, A, 2, 48)), A, B, C))
OP(swap_ab, sn_sin(sn_swap(x, 0, 1)))
OP(swap_bc, sn_sin(sn_swap(x, 1, 2)))
OP(transposed, sn_sin(sn_transpose(x, 2, 0, 1)))
OP(merge_heads, sn_sin(sn_reshape(sn_swap(heads_of(x), 1, 2), A, 4, 2 * C)))

OP(slice_half, sn_sin(sn_slice(x, 1, 4, 4)))
OP(slice_middle, sn_sin(sn_slice(x, 1, 2, 4)))
OP(slice_odd, sn_sin(sn_slice(x, 1, 1, 3)))
OP(slice_part, sn_sin(sn_slice(x, 2, 4, 8)))
OP(slice_parts, sn_sin(sn_slice(x, 2, 2, 8)))
OP(slice_rows, sn_sin(sn_slice(x, 0, 1, 3)))
OP(slice_step, sn_sin(sn_slice_step(x, 1, 1, 3, 2)))
OP(slice_joined, sn_sin(sn_slice(joined(x, w), 2, C, C)))
OP(slice_padded, sn_sin(sn_slice(sn_pad(x, 1, 4, 4, 0), 1, 2, 10)))
OP(slice_gap, sn_sin(sn_slice(sn_pad(x, 1, 4, 4, 0), 1, 0, 2)))
OP(slice_of_ends, sn_sin(sn_slice(sn_pad(x, 1, 4, 4, 0), 1, 3, 10)))
OP(concat_a, sn_sin(sn_concat(0, x, w)))
OP(concat_b, sn_sin(sn_concat(1, x, w, x)))
OP(concat_c, sn_sin(sn_concat(2, x, sn_slice(w, 2, 0, 3))))
OP(pad_a, sn_cos(sn_pad(x, 0, 2, 2, 0)))
OP(pad_b, sn_cos(sn_pad(x, 1, 2, 0, 0)))
OP(pad_odd, sn_cos(sn_pad(x, 1, 1, 3, 0)))
OP(pad_value, sn_cos(sn_pad(x, 2, 2, 2, 0.5)))
OP(flip, sn_sin(sn_flip(x, 1)))
OP(update, sn_update(x, sn_slice(w, 1, 2, 4), 0, 3, 0))
OP(update_first, sn_update(x, sn_slice(w, 2, 0, 6), 0, 0, 0))
OP(update_rows, sn_update_rows(x, 1, sn_slice(w, 1, 0, 2), sn_reshape(sn_slice(ids, 1, 0, 1), A)))

OP(sum_a, sn_sin(sn_sum(x, 0)))
OP(sum_b, sn_sin(sn_sum(x, 1)))
OP(sum_c, sn_mul(sn_sum_keep(x, 2), w))
OP(sum_ac, sn_sin(sn_sum(x, 0, 2)))
OP(sum_squares, sn_sqrt(sn_sum_all(sn_square(x))))
OP(sum_twice, sn_mul(sn_sum(sn_sum(x, 0), 0), 3))
OP(sum_differences, sn_add(sn_sub(sn_sum_all(x), sn_sum_all(w)), 2))
OP(sum_halves, sn_neg(sn_div(sn_sum_all(sn_mul(x, w)), 2)))
OP(max_a, sn_sin(sn_amax(x, 0)))
OP(max_b, sn_sub(x, sn_amax_keep(x, 1)))
OP(min_a, sn_sin(sn_amin(x, 0)))
OP(min_c, sn_sin(sn_amin(sn_exp(x), 2)))
OP(mean_b, sn_sin(sn_mean(x, 1)))
OP(mean_all, sn_mean_all(sn_exp(x)))
OP(variance_c, sn_variance(x, 2))
OP(variance_a, sn_variance(sn_add(x, w), 0))
OP(cumsum_a, sn_sin(sn_cumsum(x, 0)))
OP(cumsum_b, sn_sin(sn_cumsum(x, 1)))
OP(argmax_b, sn_cast(sn_argmax(x, 1), SN_F32))
OP(argmax_c, sn_cast(sn_argmax(x, 2), SN_F32))
OP(softmax_b, sn_softmax(x, 1))
OP(softmax_c, sn_mul(sn_softmax(x, 2), w))
OP(log_softmax_a, sn_log_softmax(x, 0))
OP(logsumexp_c, sn_logsumexp(x, 2))
OP(layer_norm, sn_layer_norm(x, sn_index(sn_index(w, 0, 1), 0, 1), NULL, 1e-5))
OP(rms_norm, sn_mul(sn_rms_norm(x, sn_index(sn_index(w, 0, 1), 0, 1), 1e-5), w))
OP(cross_entropy, sn_cross_entropy(sn_mul(x, w), ids))
OP(rope, sn_rope(x, sn_arange(o->m, SN_I32, B)))
OP(rope_heads, sn_rope(heads_of(x), sn_arange(o->m, SN_I32, 4)))

OP(linear, sn_linear(x, matrix(w), NULL))
OP(linear_bias, sn_linear(x, matrix(w), sn_index(sn_index(w, 0, 1), 1, 1)))
OP(linear_joined, sn_linear(joined(x, w), sn_concat(1, matrix(w), matrix(w)), NULL))
OP(matmul, sn_matmul(x, sn_swap(w, 1, 2)))
OP(matmul_transposed, sn_matmul(sn_swap(x, 1, 2), w))
OP(matmul_one, sn_matmul(x, sn_swap(matrix(w), 0, 1)))
OP(dot_ab, sn_einsum("abc,abd->acd", x, w))
OP(dot_a, sn_einsum("abc,adc->abd", x, w))
OP(dot_free, sn_einsum("abc,dbc->ad", x, w))
OP(dot_two, sn_einsum("abc,abd->cd", x, w))
OP(dot_batches, sn_einsum("abc,abc->ab", x, w))
OP(dot_middle, sn_einsum("abc,abc->b", x, w))
OP(dot_outer, sn_einsum("abc,dec->abde", x, w))
OP(dot_crossed, sn_einsum("abc,bdc->abd", x, sn_swap(w, 0, 1)))
OP(gather_a, sn_gather(x, 0, ids))
OP(gather_b, sn_gather(x, 1, ids))
OP(gather_c, sn_gather(sn_mul(x, w), 2, ids))
OP(embedding, sn_embedding(sn_reshape(x, A *B, C), ids))
OP(embedding_rows, sn_embedding(sn_index(x, 0, 2), ids))
OP(take_along, sn_take_along(x, 2, sn_expand(ids, 2)))
OP(attend, sn_attention(heads_of(x), heads_of(w), heads_of(sn_mul(x, w)), .causal = true))
OP(attend_one_head, sn_attention(heads_of(x), sn_reshape(w, A, 1, B, C), sn_reshape(w, A, 1, B, C)))

#define O(f)                                                                                       \
    { #f, f }
static const operation operations[] = {
    O(add),
    O(add_number),
    O(where),
    O(divide),
    O(activations),
    O(integers),
    O(rows_added),
    O(columns_added),
    O(blocks_added),
    O(shape_ab),
    O(shape_bc),
    O(shape_all),
    O(shape_heads),
    O(shape_b),
    O(shape_b4),
    O(shape_move),
    O(shape_split),
    O(shape_halves),
    O(shape_ones),
    O(shape_joined),
    O(shape_joined_heads),
    O(shape_and_back),
    O(swap_ab),
    O(swap_bc),
    O(transposed),
    O(merge_heads),
    O(slice_half),
    O(slice_middle),
    O(slice_odd),
    O(slice_part),
    O(slice_parts),
    O(slice_rows),
    O(slice_step),
    O(slice_joined),
    O(slice_padded),
    O(slice_gap),
    O(slice_of_ends),
    O(concat_a),
    O(concat_b),
    O(concat_c),
    O(pad_a),
    O(pad_b),
    O(pad_odd),
    O(pad_value),
    O(flip),
    O(update),
    O(update_first),
    O(update_rows),
    O(sum_a),
    O(sum_b),
    O(sum_c),
    O(sum_ac),
    O(sum_squares),
    O(sum_twice),
    O(sum_differences),
    O(sum_halves),
    O(max_a),
    O(max_b),
    O(min_a),
    O(min_c),
    O(mean_b),
    O(mean_all),
    O(variance_c),
    O(variance_a),
    O(cumsum_a),
    O(cumsum_b),
    O(argmax_b),
    O(argmax_c),
    O(softmax_b),
    O(softmax_c),
    O(log_softmax_a),
    O(logsumexp_c),
    O(layer_norm),
    O(rms_norm),
    O(cross_entropy),
    O(rope),
    O(rope_heads),
    O(linear),
    O(linear_bias),
    O(linear_joined),
    O(matmul),
    O(matmul_transposed),
    O(matmul_one),
    O(dot_ab),
    O(dot_a),
    O(dot_free),
    O(dot_two),
    O(dot_batches),
    O(dot_middle),
    O(dot_outer),
    O(dot_crossed),
    O(gather_a),
    O(gather_b),
    O(gather_c),
    O(embedding),
    O(embedding_rows),
    O(take_along),
    O(attend),
    O(attend_one_head),
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* ---- how x and w are divided ---- */

typedef enum manner { WHOLE, ONE_PART, PARTS, ZIGZAG } manner;
typedef struct layout {
    manner how;
    int axis;
} layout;

static const layout layouts[][2] = {
    {{ONE_PART, 0}, {WHOLE, 0}},    {{ONE_PART, 1}, {WHOLE, 0}},    {{ONE_PART, 2}, {WHOLE, 0}},
    {{WHOLE, 0}, {ONE_PART, 0}},    {{WHOLE, 0}, {ONE_PART, 1}},    {{WHOLE, 0}, {ONE_PART, 2}},
    {{ONE_PART, 0}, {ONE_PART, 0}}, {{ONE_PART, 1}, {ONE_PART, 1}}, {{ONE_PART, 2}, {ONE_PART, 2}},
    {{ONE_PART, 1}, {ONE_PART, 2}}, {{ONE_PART, 2}, {ONE_PART, 0}}, {{ONE_PART, 0}, {ONE_PART, 1}},
    {{PARTS, 1}, {PARTS, 1}},       {{PARTS, 2}, {PARTS, 2}},       {{PARTS, 2}, {ONE_PART, 2}},
    {{ZIGZAG, 1}, {ZIGZAG, 1}},     {{ZIGZAG, 2}, {WHOLE, 0}},      {{ZIGZAG, 1}, {PARTS, 1}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static sn_tensor divided(sn_tensor x, layout l) {
    return l.how == WHOLE      ? x
           : l.how == ONE_PART ? sn_shard(x, l.axis, "r")
           : l.how == ZIGZAG   ? sn_shard_zigzag(x, l.axis, "r")
           : l.axis == 1       ? sn_shard_parts(x, 1, "r", 2, 4, 2)
                               : sn_shard_parts(x, 2, "r", 2, 4, 4, 2);
}

/* ---- evaluation ---- */

typedef struct job {
    const operation *of;
    const layout *at; /* of x and w */
    int rank, ranks;
    sn_comm *comm;
    int64_t size[OUTPUTS];
    double data[OUTPUTS][4 * SIZE * B];
    sn_error err;
} job;

static void evaluate(job *j, sn_module *m) {
    static const char *const names[] = {"x", "w", "ids"};
    int64_t symbol[4] = {0};
    sn_module_place(m, symbol, NULL);
    sn_eval *ev = sn_eval_new(m, symbol);
    const sn_entry *e = sn_entry_get(m, "e");
    double value[SIZE];
    sn_eval_set_comm(ev, "r", j->comm);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < SIZE; k++)
            value[k] = i == 2 ? (double)(k * 7 % 5) : sin(1.3 * k + i) * 0.9;
        sn_eval_bind_f64(ev, names[i], value, i == 2 ? A * B : SIZE);
    }
    for (int i = 0; i < e->n_output; i++) {
        const sn_value *v = sn_eval_node(ev, e->output[i].node);
        if (!v) break;
        j->size[i] = v->n;
        memcpy(j->data[i], v->data, (size_t)v->n * sizeof *v->data);
    }
    sn_eval_free(ev);
}

static void *run(void *arg) {
    job *j = arg;
    sn_module *m = sn_module_new("m");
    sn_mesh(m, "r", j->ranks);
    sn_mesh_place(m, j->rank);
    sn_entry_begin(m, "e");
    sn_tensor leaf[2] = {sn_input(m, "x", SN_F32, A, B, C), sn_input(m, "w", SN_F32, A, B, C)},
              d[2];
    const operands o = {m, divided(leaf[0], j->at[0]), divided(leaf[1], j->at[1]),
                        sn_input(m, "ids", SN_I32, A, B)};
    sn_tensor y = j->of->build(&o);
    sn_output("y", y);
    sn_grad(sn_sum_all(sn_mul(sn_sin(y), y)), 2, leaf, d);
    sn_output("dx", d[0]);
    sn_output("dw", d[1]);
    const sn_pass_options options = {
        .level = SN_LEVEL_HIGHEST, .backend = "native", .only = "replace,shard", .verify = true};
    sn_passes p;
    if (sn_module_ok(m, &j->err) && sn_passes_run(&p, m, &options)) evaluate(j, m);
    if (!j->err.code) j->err = *sn_module_error(m);
    sn_module_free(m);
    return NULL;
}

static void compare(const job *want, const job *got) {
    const layout *l = got->at;
    if (want->err.code || got->err.code)
        fail_msg("%s: %s%s", got->of->name, want->err.message, got->err.message);
    for (int i = 0; i < OUTPUTS; i++) {
        assert_int_equal(want->size[i], got->size[i]);
        for (int64_t k = 0; k < want->size[i]; k++)
            if (!(fabs(want->data[i][k] - got->data[i][k]) <= 1e-9 * (1 + fabs(want->data[i][k]))))
                fail_msg("%s, rank %d, layouts %d:%d and %d:%d: output %d [%lld] is %g, not %g",
                         got->of->name, got->rank, (int)l[0].how, l[0].axis, (int)l[1].how,
                         l[1].axis, i, (long long)k, got->data[i][k], want->data[i][k]);
    }
}

static void equal_values(void **state) {
    (void)state;
    static const layout whole[2] = {{WHOLE, 0}, {WHOLE, 0}};
    job *one = calloc(1 + RANKS, sizeof *one), *j = one + 1;
    for (int i = 0; i < OPERATIONS; i++) {
        *one = (job){.of = &operations[i], .at = whole, .ranks = 1};
        run(one);
        for (size_t k = 0; k < LAYOUTS; k++) {
            sn_comm *comm[RANKS];
            pthread_t thread[RANKS];
            if (!effort_takes((size_t)i + k, 2)) continue;
            assert_true(sn_comm_simulate(RANKS, comm, NULL));
            for (int r = 0; r < RANKS; r++) {
                j[r] = (job){.of = &operations[i],
                             .at = layouts[k],
                             .rank = r,
                             .ranks = RANKS,
                             .comm = comm[r]};
                assert_int_equal(pthread_create(&thread[r], NULL, run, &j[r]), 0);
            }
            for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
            for (int r = 0; r < RANKS; r++) {
                compare(one, &j[r]);
                sn_comm_close(comm[r]);
            }
        }
    }
    free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
