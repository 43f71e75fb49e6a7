/* What operations accept and refuse: each row has a line that is accepted and one that differs from it by what its
 * message names. Covers the rules of infer*.c and the checks of decompositions. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const char regions[] =
    "region @one (%0: f32[2,6]) { %1: f32[2,6] = exp %0 yield %1 }\n"
    "region @two (%0: f32[2,6], %1: f32[2,6]) { %2: f32[2,6] = add %0, %1 yield %2 }\n"
    "region @product (%0: f32[2,2]) { %1: f32[2,2] = exp %0 yield %1, %0 }\n"
    "region @step (%0: f32[2,6], %1: f32[2,6]) { %2: f32[2,6] = add %0, %1 yield %2, %2 }\n"
    "region @turn (%0: f32[2,6], %1: f32[2,6]) { %2: f32[6,2] = transpose %0 {perm=[1,0]} yield "
    "%2, %1 }\n"
#define INDEX "%1: i32[], %2: i32[], %3: i32[], %4: i32[]"
    "region @score (%0: f32[], " INDEX ") { %5: f32[] = exp %0 yield %5 }\n"
    "region @score_bool (%0: f32[], " INDEX ") { %5: bool[] = lt %3, %4 yield %5 }\n"
    "region @score_i32 (%0: i32[], " INDEX ") { %5: f32[] = cast %0 yield %5 }\n"
    "region @score_of_i64 (%0: f32[], %1: i32[], %2: i64[], %3: i32[], %4: i32[]) {\n"
    "  %5: f32[] = exp %0 yield %5 }\n"
    "region @table (%0: f32[], " INDEX ", %5: f32[2,6]) {\n"
    "  %6: f32[] = gather_nd %5, %1, %2 %7: f32[] = add %0, %6 yield %7 }\n"
    "region @mask (%0: i32[], %1: i32[], %2: i32[], %3: i32[]) { %4: bool[] = lt %3, %2 yield %4 "
    "}\n"
    "region @few (%0: i32[], %1: i32[], %2: i32[]) { %3: bool[] = lt %1, %2 yield %3 }\n";

/* Inputs that rows name. */
static const char *const inputs[][2] = {
    {"s", "f32[]"},          {"f", "f32[2,6]"},         {"g", "f32[3,6]"},
    {"h", "f64[2,6]"},       {"l", "bf16[2,6]"},        {"v", "f32[6]"},
    {"n", "i32[2,6]"},       {"i", "i32[2]"},           {"j", "i32[3]"},
    {"b", "bool[2,6]"},      {"bt", "bool[]"},          {"u", "f32[T,6]"},
    {"e", "f32[2,N]"},       {"z", "i64[2]"},           {"z3", "i64[3]"},
    {"q", "i8[2,6]"},        {"m", "f32[2,3,6]"},       {"sq", "f32[2,2]"},
    {"big", "f32[6,2]"},     {"p", "i32[2,3]"},         {"half", "f32[3]"},
    {"x", "f32[2,4,5,7]"},   {"w", "f32[6,4,3,3]"},     {"w2", "f32[6,2,3,3]"},
    {"w0", "f32[6,4,0,3]"},  {"xt", "f32[2,4,T,7]"},    {"xs", "f32[2,4,2*T,7]"},
    {"aq", "f32[1,4,3,8]"},  {"ak", "f32[1,2,5,8]"},    {"a3", "f32[1,3,5,8]"},
    {"a2", "f32[2,2,5,8]"},  {"aw", "f32[1,2,5,6]"},    {"as", "f32[1,4,3]"},
    {"row", "f32[1,4,3,1]"}, {"nh", "i32[3]"},          {"xl", "f32[2,4,T+2,7]"},
    {"xy", "f32[2,6,3,5]"},  {"parts", "f32[1,4,2,3]"}, {"bn", "f32[6,3]"},
    {"fs", "f32[3,2,6]"},    {"f4", "f32[4,2,6]"},      {"rs", "f32[2,4]"},
    {"rk", "f32[3,2]"},      {"rv", "f32[3,4]"},        {"rg", "f32[3,1]"},
    {"nv", "i32[3,4]"},
};

typedef struct row {
    const char *accepted, *refused, *message; /* accepted NULL: another row has it */
} row;

static int check_line(const char *line, bool raw, const char *message) {
    char text[sizeof regions + 4096];
    int at = snprintf(text, sizeof text, "module m dim T in [1, 64] dim N in [0, 8]\n%sentry e {\n",
                      regions);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%%%s: %s = input {name=\"%s\"}\n",
                       inputs[i][0], inputs[i][1], inputs[i][0]);
    snprintf(text + at, sizeof text - (size_t)at, "%%y: %s\n}", line);
    sn_error err = {0};
    sn_module *m = sn_parse(text, "t.sn", raw, &err);
    bool ok = message ? !m && strstr(err.message, message) : m && sn_verify(m);
    if (!ok)
        print_error("\"%s\", not \"%s\", from %s\n", m ? sn_module_error(m)->message : err.message,
                    message ? message : "", line);
    if (m) sn_module_free(m);
    return !ok;
}

static void check(const row *rows, size_t n) {
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].accepted) failed += check_line(rows[i].accepted, i & 1, NULL);
        failed += check_line(rows[i].refused, i & 1, rows[i].message);
    }
    assert_int_equal(failed, 0);
}
#define CHECK(rows) check(rows, sizeof(rows) / sizeof *(rows))

static void elementwise(void **state) {
    (void)state;
    static const row rows[] = {
        {"f32[2,6] = sub %f, %f", "f32[2,6] = sub %f, %g",
         "sub: shapes differ; operands: f32[2,6] \"f\", f32[3,6] \"g\""},
        {NULL, "f32[2,6] = add %f, %v", "shapes differ"},
        {NULL, "f32[2,6] = add %f, %h", "element types differ; cast one of them"},
        {"i32[2,6] = neg %n", "bool[2,6] = neg %b", "needs numbers, not bool"},
        {"f32[2,6] = exp %f", "i32[2,6] = exp %n", "needs a float type; cast first"},
        {"bool[2,6] = not %b", "i32[2,6] = not %n", "needs bool; compare first"},
        {"i32[2,6] = xor %n, %n", "f32[2,6] = xor %f, %f", "needs bool or an integer type"},
        {"bool[2,6] = xor %b, %b", "bool[2,6] = shift_left %b, %b", "needs an integer type"},
        {"i32[2,6] = shift_left %n, %n", "f32[2,6] = shift_left %f, %f", "needs an integer type"},
        {"bool[2,6] = lt %f, %f", "bool[2,6] = lt %f, %h", "element types differ"},
        {NULL, "bool[2,6] = eq %f, %g", "shapes differ"},
        {"f32[2,6] = select %b, %f, %f", "f32[2,6] = select %n, %f, %f",
         "the condition must be bool"},
        {NULL, "f32[2,6] = select %bt, %f, %f", "shapes differ"},
        {NULL, "f32[3,6] = select %b, %g, %g", "shapes differ"},
        {NULL, "f32[2,6] = select %b, %f, %h", "element types differ"},
        {"i64[] = dim_value {dim=T}", "bool[] = dim_value {dim=T}",
         "a dimension's value is a number"},
        {"i32[2,6] = iota {axis=1}", "bool[2,6] = iota {axis=1}", "needs a number type"},
        {NULL, "i32[2,6] = iota {axis=2}", "axis 2 is outside 0..1"},
        {NULL, "i32[2,6] = iota {axis=-1}", "axis -1 is outside 0..1"},
        {NULL, "i32[2,6] = iota", "attribute 'axis' is missing"},
        {"f32[5] = random %z {stream=1}", "f32[5] = random %z3 {stream=1}",
         "must be i64[2]: seed, step"},
        {NULL, "f32[5] = random %i {stream=1}", "must be i64[2]: seed, step"},
        {NULL, "f32[5] = random %z", "attribute 'stream' is missing"},
        {NULL, "f32[] = const", "attribute 'value' is missing"},
    };
    CHECK(rows);
}

static void movement(void **state) {
    (void)state;
    static const row rows[] = {
        {"f32[4,2,6] = broadcast %f", "f32[6] = broadcast %f", "cannot drop axes"},
        {NULL, "f32[2,7] = broadcast %f", "axis 1 of size 6 cannot become 7"},
        {"f32[3,4] = reshape %f", "f32[3,5] = reshape %f", "12 elements cannot become 15"},
        {NULL, "f32[6,T,T] = reshape %u", "6*T elements cannot become 6*T"},
        {NULL, "f32[N-9,2] = reshape %f", "axis 0 of the shape is negative: N-9"},
        {"f32[6,2] = transpose %f {perm=[1,0]}", "f32[6,2] = transpose %f {perm=[1]}",
         "perm has 1 axes, but the operand 2"},
        {NULL, "f32[6,6] = transpose %f {perm=[1,1]}", "axis 1 is listed twice in perm"},
        {NULL, "f32[6,2] = transpose %f {perm=[1,2]}", "axis 2 is outside 0..1"},
        {NULL, "f32[6,2] = transpose %f", "attribute 'perm' is missing"},
        {"f32[1,4] = slice %f {start=[1,2], size=[1,4]}",
         "f32[1,5] = slice %f {start=[1,2], size=[1,5]}", "axis 1: 5 elements from 2 exceed 6"},
        {"f32[2,3] = slice %f {start=[0,1], size=[2,3], step=[1,2]}",
         "f32[2,3] = slice %f {start=[0,2], size=[2,3], step=[1,2]}",
         "axis 1: 3 elements from 2 exceed 6"},
        {"f32[2,0] = slice %f {start=[0,6], size=[2,0]}",
         "f32[2,1] = slice %f {start=[0,-1], size=[2,1]}", "axis 1: 1 elements from -1 exceed 6"},
        {NULL, "f32[2,3] = slice %f {start=[0,0], size=[2,3], step=[1,0]}",
         "step on axis 1 must be at least 1"},
        {NULL, "f32[2] = slice %f {start=[0], size=[2]}",
         "start, size and step need one number per axis"},
        {NULL, "f32[2,3] = slice %f {start=[0,0], size=[2,3], step=[1]}",
         "start, size and step need one number per axis"},
        {NULL, "f32[2,3] = slice %f {start=[0,0,0], size=[2,3]}",
         "start, size and step need one number per axis"},
        {NULL, "f32[65,6] = slice %u {start=[0,0], size=[65,6]}",
         "axis 0: 65 elements from 0 exceed T"},
        {"f32[64,6] = slice %u {start=[0,0], size=[64,6]}", "f32[2,6] = slice %u {size=[2,6]}",
         "attribute 'start' is missing"},
        {"f32[5,6] = concat %f, %g {axis=0}", "f32[2,12] = concat %f, %g {axis=1}",
         "axis 0 of operand 1 differs"},
        {NULL, "f32[4,6] = concat %f, %h {axis=0}", "operand 1 has another element type or rank"},
        {NULL, "f32[3,6] = concat %f, %v {axis=0}", "operand 1 has another element type or rank"},
        {NULL, "f32[4,6] = concat %f, %f {axis=2}", "axis 2 is outside 0..1"},
        {"f32[3,7] = pad %f {value=0, low=[1,0], high=[0,1]}",
         "f32[1,7] = pad %f {value=0, low=[-1,0], high=[0,1]}",
         "padding of axis 0 is negative; use slice"},
        {NULL, "f32[3,5] = pad %f {value=0, low=[1,0], high=[0,-1]}",
         "padding of axis 1 is negative; use slice"},
        {NULL, "f32[3,6] = pad %f {value=0, low=[1,0], high=[0]}",
         "low and high need one number per axis"},
        {NULL, "f32[3,6] = pad %f {value=0, low=[1], high=[0,0]}",
         "low and high need one number per axis"},
        {NULL, "f32[3,6] = pad %f {low=[1,0], high=[0,0]}", "attribute 'value' is missing"},
        {"f32[3,6] = update_slice %g, %f {start=[1,0]}",
         "f32[3,6] = update_slice %g, %f {start=[2,0]}",
         "the update extends past the end of axis 0"},
        {NULL, "f32[3,6] = update_slice %g, %f {start=[-1,0]}",
         "the start -1 on axis 0 is negative"},
        {NULL, "f32[3,6] = update_slice %g, %h {start=[0,0]}",
         "both operands need the same element type and rank"},
        {NULL, "f32[3,6] = update_slice %g, %v {start=[0,0]}",
         "both operands need the same element type and rank"},
        {NULL, "f32[3,6] = update_slice %g, %f {start=[0]}", "start needs one number per axis"},
        {"f32[3,6] = update_rows %g, %f, %i {axis=1}", "f32[3,6] = update_rows %g, %f, %i {axis=0}",
         "the rows themselves cannot be the axis"},
        {NULL, "f32[3,6] = update_rows %g, %f, %j {axis=1}",
         "needs an integer for each row of the update"},
        {NULL, "f32[2,6] = update_rows %f, %g, %j {axis=1}", "the update does not fit into axis 0"},
        {NULL, "f32[3,6] = update_rows %g, %h, %i {axis=1}",
         "both operands need the same element type and rank"},
        {NULL, "f32[3,6] = update_rows %g, %f, %half {axis=1}",
         "needs an integer for each row of the update"},
        {NULL, "f32[2,3,6] = update_rows %m, %m, %i {axis=3}", "axis 3 is outside 0..2"},
        {NULL, "f32[2,3] = update_rows %sq, %f, %i {axis=1}",
         "the update does not fit into axis 1"},
    };
    CHECK(rows);
}

static void reductions(void **state) {
    (void)state;
    static const row rows[] = {
        {"f32[1,3,1] = reduce_sum %m {axes=[0,2]}", "f32[1,3,1] = reduce_sum %m {axes=[2,0]}",
         "axes must be in ascending order"},
        {NULL, "f32[1,3,6] = reduce_sum %m {axes=[0,0]}", "axes must be in ascending order"},
        {NULL, "f32[2,3,6] = reduce_sum %m {axes=[3]}", "axis 3 is outside 0..2"},
        {NULL, "bool[2,1] = reduce_max %b {axes=[1]}", "needs numbers, not bool"},
        {"i32[2,1] = argmax %f {axis=1}", "i32[2,6] = argmax %f {axis=2}",
         "axis 2 is outside 0..1"},
        {"i32[2,6] = argsort %f {axis=1, size=[6]}", "i32[2,7] = argsort %f {axis=1, size=[7]}",
         "7 indices of 6 elements"},
        {"i32[2,0] = argsort %f {axis=1, size=[0]}", "i32[2,1] = argsort %f {axis=1, size=[-1]}",
         "-1 indices of 6 elements"},
        {NULL, "i32[2,6] = argsort %f {axis=1, size=[2,6]}", "size is one number of indices"},
        {"f32[2,1] = mean %f {axes=[1]}", "f32[2,1] = mean %f {axes=[2]}", "there is no axis 2"},
        {NULL, "f32[2,1] = mean %f {axes=[-1]}", "there is no axis -1"},
        {NULL, "f32[2,1] = variance %f", "attribute 'axes' is missing"},
        {NULL, "i32[2,1] = variance %n {axes=[1]}",
         "operand 0 must have a float type; cast it first"},
        {NULL, "i32[2,1] = mean %n {axes=[1]}", "operand 0 must have a float type; cast it first"},
        {"f32[2,6] = softmax %f {axis=0}", "f32[2,6] = softmax %f {axis=2}", "there is no axis 2"},
        {NULL, "f32[2,6] = log_softmax %f {axis=-1}", "there is no axis -1"},
        {NULL, "i32[2,6] = softmax %n", "operand 0 must have a float type"},
        {NULL, "i32[2,6] = log_softmax %n", "operand 0 must have a float type"},
        {NULL, "i32[2,6] = logsumexp %n", "operand 0 must have a float type"},
        {NULL, "f32[2,6] = softmax %f, %g",
         "the sink must have the shape of x, with size 1 on the axis"},
        {NULL, "f32[2,6] = softmax %f, %v",
         "the sink must have the shape of x, with size 1 on the axis"},
        {"f32[2,6] = layer_norm %f, %v, %v", "f32[3] = layer_norm %half, %v",
         "operand 1 must have the shape [3]"},
        {NULL, "f32[2,6] = layer_norm %f, %v, %half", "operand 2 must have the shape [6]"},
        {NULL, "f32[2,6] = rms_norm %f, %f", "operand 1 must have the shape [6]"},
        {NULL, "f32[] = rms_norm %s", "operand 0 needs at least 1 axes"},
        {NULL, "f32[] = layer_norm %s", "operand 0 needs at least 1 axes"},
        {NULL, "i32[2,6] = layer_norm %n", "operand 0 must have a float type"},
        {NULL, "i32[2,6] = rms_norm %n", "operand 0 must have a float type"},
        {NULL, "i32[2,6] = silu %n", "operand 0 must have a float type"},
        {NULL, "i32[2,6] = softplus %n", "operand 0 must have a float type"},
        {"f32[2,6] = softmax_grad %f, %f", "f32[2,6] = softmax_grad %f, %g",
         "operands 0 and 1 must have the same shape"},
        {"f32[2,6] = layer_norm_grad %f, %f, %v", "f32[2,6] = layer_norm_grad %f, %g",
         "operands 0 and 1 must have the same shape"},
    };
    CHECK(rows);
}

static void products(void **state) {
    (void)state;
#define DOT " {contract_a=[1], contract_b=[1]}"
    static const row rows[] = {
        {"f32[2,3] = dot %f, %g" DOT, "f32[2,2] = dot %f, %h" DOT,
         "element types differ; cast one of them"},
        {NULL, "bool[2,2] = dot %b, %b" DOT, "needs numbers, not bool"},
        {NULL, "f32[2,2] = dot %f, %sq" DOT, "contracted axes 1 and 1 have sizes 6 and 2"},
        {NULL, "f32[2,6] = dot %f, %g {contract_a=[1]}", "the numbers of contracted axes differ"},
        {NULL, "f32[2,6] = dot %f, %g {contract_a=[1], contract_b=[1,0]}",
         "the numbers of contracted axes differ"},
        {NULL, "f32[2,3] = dot %f, %g {batch_a=[0], contract_a=[1], contract_b=[1]}",
         "the numbers of batch axes differ"},
        {NULL, "f32[2] = dot %f, %g {batch_a=[0], batch_b=[0], contract_a=[1], contract_b=[1]}",
         "batch axes 0 and 0 have sizes 2 and 3"},
        {NULL, "f32[2] = dot %f, %f {batch_a=[1], batch_b=[0], contract_a=[1], contract_b=[1]}",
         "axis 1 is listed twice"},
        {NULL, "f32[2] = dot %f, %f {contract_a=[2], contract_b=[1]}", "axis 2 is outside 0..1"},
        {"f32[2,3] = dot %f, %g {contract_a=[1], contract_b=[1], compute=bf16}",
         "f64[2,2] = dot %h, %h {contract_a=[1], contract_b=[1], compute=bf16}",
         "only factors of f32 are multiplied in another type, bf16"},
        {NULL, "f32[2,3] = dot %f, %g {contract_a=[1], contract_b=[1], compute=f16}",
         "only factors of f32 are multiplied in another type, bf16"},
        {"f32[2,3] = linear %f, %g, %half", "f32[2,2] = linear %f, %sq",
         "the weight must be [out, in] for x [.., in]"},
        {NULL, "f32[2,3] = linear %f, %m", "the weight must be [out, in] for x [.., in]"},
        {NULL, "f32[2,3] = linear %f, %g, %v", "operand 2 must have the shape [3]"},
        {NULL, "i32[2,2] = linear %n, %f", "operand 0 must have a float type"},
        {NULL, "f32[3] = linear %s, %g", "operand 0 needs at least 1 axes"},
        {"f32[2,3,1] = linear %f, %g {size=[3,1]}", "f32[2,2,2] = linear %f, %g {size=[2,2]}",
         "attribute 'size' must be the axes of W's out"},
        {"f32[2,2] = matmul %sq, %sq", "f32[2,6] = matmul %f, %f",
         "x [.., m, k] needs y [.., k, n] with the same k"},
        {"f32[2,6] = matmul %sq, %f", "f32[2,6] = matmul %n, %f", "element types differ"},
        {NULL, "f32[2,6] = matmul %s, %f", "operand 0 needs at least 1 axes"},
        {NULL, "f32[2,6] = matmul %f, %s", "operand 1 needs at least 1 axes"},
        {"f32[2,4,5,7] = add %x, %x", "f32[2,4,5,5] = matmul %m, %x", "with the same k"},
    };
    CHECK(rows);
}

static void indices(void **state) {
    (void)state;
    static const row rows[] = {
        {"f32[2,6,6] = gather %f, %n {axis=0}", "f32[2,6,6] = gather %f, %f {axis=0}",
         "indices must be integers"},
        {NULL, "f32[2,6,6] = gather %f, %b {axis=0}", "indices must be integers"},
        {NULL, "f32[2,6,6] = gather %f, %n {axis=2}", "axis 2 is outside 0..1"},
        {"f32[9,6] = scatter_add %f, %i {axis=0}", "f32[9,6] = scatter_add %f, %half {axis=0}",
         "indices must be integers"},
        {NULL, "f32[9,6] = scatter_add %f, %j {axis=0}", "axis 0 of the rows does not match"},
        {NULL, "f32[9,7] = scatter_add %f, %i {axis=0}", "axis 1 of the rows does not match"},
        {NULL, "f32[9] = scatter_add %f, %i {axis=0}", "the rank of the rows does not match"},
        {NULL, "f32[9,6] = scatter_add %f, %i {axis=2}", "axis 2 is outside 0..1"},
        {"bool[9,6] = scatter_add %b, %i {axis=0}",
         "bool[9,6] = scatter_add %b, %i {axis=0, combine=1}", "rows of bool can only be added"},
        {"f32[2] = gather_nd %f, %i, %i", "f32[2] = gather_nd %f, %i",
         "needs 2 indices, one per axis"},
        {NULL, "f32[2] = gather_nd %f, %i, %half", "indices must be integers"},
        {NULL, "f32[2] = gather_nd %f, %i, %j", "the indices' shapes differ"},
        {NULL, "f32[2] = gather_nd %s, %i", "a scalar has no elements to index"},
        {"f32[9,9] = scatter_nd_add %half, %j, %j", "f32[9,9] = scatter_nd_add %half, %i, %i",
         "needs one element per index"},
        {NULL, "f32[] = scatter_nd_add %half, %j", "a scalar has no elements to index"},
        {NULL, "f32[9,9] = scatter_nd_add %half, %j", "needs 2 indices, one per axis"},
        {"f32[2,3,2] = take_blocks %f, %p {blocks=3}", "f32[2,3,1] = take_blocks %f, %p {blocks=4}",
         "the last axis is not a multiple of 4 blocks"},
        {NULL, "f32[2,3,1] = take_blocks %f, %p {blocks=0}",
         "the last axis is not a multiple of 0 blocks"},
        {NULL, "f32[2,3,2] = take_blocks %f, %i {blocks=3}", "needs indices of the same rank"},
        {NULL, "f32[2,3,2] = take_blocks %f, %f {blocks=3}", "indices must be integers"},
        {NULL, "f32[3,3,2] = take_blocks %g, %p {blocks=3}",
         "axis 0 of the indices does not match"},
        {NULL, "f32[2,N,2] = take_blocks %e, %p {blocks=3}",
         "the last axis is not a multiple of 3 blocks"},
        {"f32[2,6] = solve_triangular %sq, %f", "f32[3,6] = solve_triangular %sq, %g",
         "needs a matrix [.., T, T] and a right side [.., T, n]"},
        {NULL, "f32[2,6] = solve_triangular %f, %f",
         "needs a matrix [.., T, T] and a right side [.., T, n]"},
        {NULL, "f64[2,6] = solve_triangular %sq, %h",
         "needs a matrix and a right side of f32 or of f64"},
        {NULL, "i32[2,6] = solve_triangular %n, %n",
         "needs a matrix and a right side of f32 or of f64"},
        {"f32[6,3] = grouped_dot %f, %m, %p", "f32[6,3] = grouped_dot %h, %m, %p",
         "needs floats [M, k], [E, n, k] and integers [M, J]"},
        {"f32[6,3] = grouped_dot %l, %m, %p", "f32[6,3] = grouped_dot %f, %m, %sq",
         "needs floats [M, k], [E, n, k] and integers [M, J]"},
        {NULL, "f32[6,3] = grouped_dot %g, %m, %p",
         "needs floats [M, k], [E, n, k] and integers [M, J]"},
        {NULL, "f32[6,3] = grouped_dot %f, %g, %p",
         "needs floats [M, k], [E, n, k] and integers [M, J]"},
        {NULL, "f32[4,3] = grouped_dot %sq, %m, %p",
         "needs floats [M, k], [E, n, k] and integers [M, J]"},
        {"f32[4,2,6] = ragged_dot %big, %f, %p {blocks=4}",
         "f32[4,6,6] = ragged_dot %f, %f, %p {blocks=4}",
         "needs floats [M J, n], [M, k] and integers [M, J]"},
        {NULL, "f32[4,2,6] = ragged_dot %big, %g, %p {blocks=4}",
         "needs floats [M J, n], [M, k] and integers [M, J]"},
        {NULL, "f32[4,2,6] = ragged_dot %big, %f, %p {blocks=-1}",
         "needs floats [M J, n], [M, k] and integers [M, J]"},
        {NULL, "f32[4,2,6] = ragged_dot %big, %f, %p",
         "needs floats [M J, n], [M, k] and integers [M, J]"},
    };
    CHECK(rows);
}

static void lookups(void **state) {
    (void)state;
#define ROPE "f32[2,6] = rope %f, "
    static const row rows[] = {
        {"f32[2,6,6] = embedding %f, %n", "f32[2,6,6] = embedding %f, %f",
         "operand 1 must have an integer type"},
        {NULL, "f32[2,6,6] = embedding %f, %b", "operand 1 must have an integer type"},
        {NULL, "f32[2,6] = embedding %v, %n", "the table must have the shape [n, d]"},
        {"f32[2,3] = take_sorted %f, %p {axis=1}", "f32[3,6] = take_sorted %m, %p {axis=0}",
         "x and the indices differ in rank"},
        {NULL, "f32[2,3] = take_sorted %g, %p {axis=1}", "axis 0 differs"},
        {NULL, "f32[2,3] = take_sorted %f, %p {axis=0}", "axis 1 differs"},
        {NULL, "f32[2,6] = take_sorted %f, %f {axis=1}", "operand 1 must have an integer type"},
        {NULL, "f32[2,6] = take_sorted %f, %n {axis=2}", "there is no axis 2"},
        {"f32[2,3,5] = one_hot %p {size=[5]}", "f32[2,6,5] = one_hot %f {size=[5]}",
         "operand 0 must have an integer type"},
        {NULL, "f32[2,3,5] = one_hot %p", "attribute 'size' needs one number of columns"},
        {NULL, "f32[2,3,5] = one_hot %p {size=[5,5]}",
         "attribute 'size' needs one number of columns"},
        {"f32[2,4] = sinusoid %i {size=[4]}", "f32[2,5] = sinusoid %i {size=[5]}",
         "size must be even, not 5"},
        {NULL, "f32[2,T] = sinusoid %i {size=[T]}", "size must be a fixed number, not T"},
        {NULL, "f32[2,4] = sinusoid %i", "attribute 'size' needs one number of columns"},
        {"i8[2,6] = quantise_rows %f", "i8[2,6] = quantise_rows %n",
         "operand 0 must have a float type"},
        {NULL, "i8[] = quantise_rows %s", "operand 0 needs at least 1 axes"},
        {"f32[2] = cross_entropy %f, %i", "f32[2] = cross_entropy %f, %j",
         "targets must have x's shape without its last axis"},
        {NULL, "f32[2] = cross_entropy %f, %p",
         "targets must have x's shape without its last axis"},
        {NULL, "f32[2] = cross_entropy %sq, %half", "operand 1 must have an integer type"},
        {NULL, "f32[] = cross_entropy %s, %i", "operand 0 needs at least 1 axes"},
        {NULL, "f32[2] = cross_entropy %n, %i", "operand 0 must have a float type"},
        {"f32[2,6] = dropout %f, %z {rate=1}", "f32[2,6] = dropout %f, %z {rate=1.01}",
         "rate 1.01 is not in [0, 1]"},
        {"f32[2,6] = dropout %f, %z {rate=0}", "f32[2,6] = dropout %f, %z {rate=-0.01}",
         "rate -0.01 is not in [0, 1]"},
        {NULL, "f32[2,6] = dropout %f, %z {rate=nan}", "rate nan is not in [0, 1]"},
        {NULL, "i32[2,6] = dropout %n, %z {rate=0.5}", "operand 0 must have a float type"},
        {NULL, "f32[2,6] = dropout %f, %i {rate=0.5}", "the operand must be i64[2]: seed, step"},
        {ROPE "%i", ROPE "%j", "positions must be [T] or [B, T] for x [B, .., T, d]"},
        {NULL, ROPE "%p", "positions must be [T] or [B, T] for x [B, .., T, d]"},
        {ROPE "%i, %half", ROPE "%i, %v", "frequencies must be floats [3], half the width of x"},
        {NULL, ROPE "%i, %nh", "frequencies must be floats [3], half the width of x"},
        {NULL, ROPE "%i, %sq", "frequencies must be floats [3], half the width of x"},
        {ROPE "%i {columns=[2,6]}", ROPE "%i {columns=[2,8]}",
         "x of width 6 has no columns 2 to 7"},
        {ROPE "%i {columns=[0,4]}", ROPE "%i {columns=[-2,4]}",
         "x of width 6 has no columns -2 to 3"},
        {NULL, ROPE "%i {columns=[2,2]}", "x of width 6 has no columns 2 to 1"},
        {NULL, ROPE "%i {columns=[2,5]}", "the width of what is rotated must be even, not 3"},
        {NULL, ROPE "%i {columns=[2]}", "needs the first column and the first after it"},
        {NULL, ROPE "%i {axis=1}", "there is no axis 1 before the last"},
        {NULL, ROPE "%i {axis=-1}", "there is no axis -1 before the last"},
        {NULL, "f32[6] = rope %v, %i", "operand 0 needs at least 2 axes"},
        {NULL, "i32[2,6] = rope %n, %i", "operand 0 must have a float type"},
        {NULL, "f32[2,N] = rope %e, %i", "the width of x must be a fixed number, not N"},
        {NULL, "f32[2,4,5,7] = rope %x, %n", "the width of what is rotated must be even, not 7"},
    };
    CHECK(rows);
}

static void convolutions(void **state) {
    (void)state;
#define CONV "f32[2,6,3,5] = conv2d %x, %w"
    static const row rows[] = {
        {CONV ", %v", CONV ", %half", "operand 2 must have the shape [6]"},
        {NULL, "f32[2,6,3,5] = conv2d %x, %w2", "O and C multiples of groups = 1"},
        {"f32[2,6,3,5] = conv2d %x, %w2 {groups=2}", "f32[2,6,3,5] = conv2d %x, %w2 {groups=4}",
         "O and C multiples of groups = 4"},
        {NULL, CONV " {groups=0}", "O and C multiples of groups = 0"},
        {NULL, "f32[2,6] = conv2d %x, %f",
         "x must be [B, C, H, W] and the kernel [O, C / groups, kh, kw]"},
        {NULL, "f32[2,6] = conv2d %m, %w",
         "x must be [B, C, H, W] and the kernel [O, C / groups, kh, kw]"},
        {NULL, "f32[2,6,6,5] = conv2d %x, %w0", "the kernel is empty"},
        {"f32[2,6,2,3] = conv2d %x, %w {step=[2,2]}", CONV " {step=[0,2]}",
         "attribute 'step' must be positive"},
        {NULL, CONV " {step=[2]}", "attribute 'step' needs two numbers"},
        {NULL, CONV " {dilate=[1,0]}", "attribute 'dilate' must be positive"},
        {"f32[2,6,1,3] = conv2d %x, %w {dilate=[2,2]}", CONV " {dilate=[3,1]}",
         "the kernel spans 7 elements on axis 2, but x with its padding may be smaller"},
        {"f32[2,6,1,5] = conv2d %x, %w {dilate=[3,1], low=[1,0], high=[1,0]}",
         CONV " {dilate=[1,4]}", "the kernel spans 9 elements on axis 3"},
        {NULL, CONV " {dilate=[4611686018427387904,1]}",
         "the dilation 4611686018427387904 is too large"},
        {NULL, CONV " {low=[-1,0]}", "attribute 'low' must not be negative"},
        {NULL, CONV " {high=[0,-1]}", "attribute 'high' must not be negative"},
        {NULL, CONV " {high=[0]}", "attribute 'high' needs two numbers"},
        {"f32[2,6,T,5] = conv2d %xl, %w", "f32[2,6,T-2,5] = conv2d %xt, %w",
         "but x with its padding may be smaller"},
        {"f32[2,6,T,5] = conv2d %xs, %w {step=[2,1], low=[1,0], high=[0,0]}",
         "f32[2,6,T,5] = conv2d %xs, %w {step=[2,1], low=[1,0], high=[1,0]}",
         "axis 2 has a symbolic size that stride 2 does not divide exactly"},
        {"f32[2,4,5,7] = conv2d_grad %x, %w, %xy {index=0}",
         "f32[2,4,5,7] = conv2d_grad %x, %w, %x {index=0}",
         "operand 2 must have the shape of the convolution"},
        {"f32[6,4,3,3] = conv2d_grad %x, %w, %xy {index=1}",
         "f32[2,4,5,7] = conv2d_grad %x, %w, %xy {index=2}", "index must be 0 or 1"},
    };
    CHECK(rows);
}

static void attentions(void **state) {
    (void)state;
#define QKV "attention %aq, %ak, %ak"
#define RING "f32[1,4,3,8] = ring_attention %aq, %ak, %ak {"
#define GRAD "f32[1,4,3,8] = attention_grad %aq, %ak, %ak, %aq, %aq"
#define FLASH_GRAD "(f32[1,4,3,8], f32[1,2,5,8], f32[1,2,5,8]) = flash_grad %aq, %ak, %ak, %aq, "
    static const row rows[] = {
        {"f32[1,4,3,8] = " QKV, "f32[1,4,3,8] = attention %aq, %a3, %a3",
         "is not a multiple of the number of K/V heads"},
        {"f32[1,4,3,6] = attention %aq, %ak, %aw", "f32[1,4,3,8] = attention %aq, %aw, %ak",
         "queries and keys have different widths"},
        {NULL, "f32[1,4,3,8] = attention %aq, %a2, %a2", "the batch sizes of q, k and v differ"},
        {NULL, "f32[1,4,3,8] = attention %aq, %ak, %a2", "the batch sizes of q, k and v differ"},
        {NULL, "f32[1,4,3,8] = attention %aq, %ak, %a3",
         "keys and values differ in number, or in the number of heads"},
        {"f32[1,4,3,8] = " QKV ", %as {sink=1}", "f32[1,4,3,8] = " QKV ", %as {sink=1, weights=1}",
         "a sink needs weights that are divided by their sum"},
        {"f32[1,4,3,8] = " QKV " {score=@score, mask=@mask}",
         "f32[1,4,3,8] = " QKV " {score=@score_bool}",
         "the result of the score region must be a scalar f32"},
        {NULL, "f32[1,4,3,8] = " QKV " {score=@score_i32}",
         "argument 0 of the score region must be a scalar float"},
        {NULL, "f32[1,4,3,8] = " QKV " {score=@score_of_i64}",
         "argument 2 of the score region must be a scalar i32"},
        {NULL, "f32[1,4,3,8] = " QKV " {mask=@few}", "the mask region has 3 arguments"},
        {"f32[1,4,3,8] = " QKV ", %f {score=@table}", "f32[1,4,3,8] = " QKV ", %g {score=@table}",
         "captured tensor 0 and the score region's argument have different types"},
        {NULL, "f32[1,4,3,8] = " QKV ", %h {score=@table}",
         "captured tensor 0 and the score region's argument have different types"},
        {NULL, "f32[1,4,3,8] = " QKV ", %f {score=@score}",
         "it takes score, b, h, q, k and 1 captured"},
        {"f32[1,4,3,1] = attention_lse %aq, %aq, %ak, %ak",
         "f32[1,4,3,1] = attention_lse %aq, %aq, %ak, %ak {weights=1}",
         "only a softmax without a sink has a log-sum-exp"},
        {NULL, "f32[1,4,3,1] = attention_lse %aq, %aq, %ak, %ak, %as {sink=1}",
         "only a softmax without a sink has a log-sum-exp"},
        {RING "mesh=\"r\", ranks=2, behind=0, piece=1}", RING "ranks=2}",
         "the mesh axis and the number of its ranks are needed"},
        {NULL, RING "mesh=\"r\"}", "the mesh axis and the number of its ranks are needed"},
        {NULL, RING "mesh=\"r\", ranks=0}", "the mesh axis and the number of its ranks are needed"},
        {NULL, RING "mesh=\"r\", ranks=2, weights=1}",
         "needs weights that are a softmax, without dropout and sink"},
        {NULL, RING "mesh=\"r\", ranks=2, behind=-1}", "hides the keys of its own rank"},
        {NULL, RING "mesh=\"r\", ranks=2, piece=0}", "a piece has no bytes"},
        {NULL, RING "mesh=\"r\", ranks=2, zigzag=1}",
         "zigzag needs an even number of rows, of keys as of queries"},
        {NULL, "f32[1,4,3] = ring_attention %as, %ak, %ak {mesh=\"r\", ranks=2}",
         "q, k and v need 4 axes"},
        {GRAD " {index=0}", "f32[1,4,3,8] = attention_grad %aq, %ak, %ak, %row, %aq {index=0}",
         "the result does not have the shape of attention's"},
        {NULL, "f32[1,4,3,8] = attention_grad %aq, %ak, %ak, %aq, %row {index=0}",
         "the cotangent does not have the shape of attention's"},
        {NULL, GRAD " {index=3}", "attention has no float operand 3"},
        {NULL, GRAD " {index=-1}", "attention has no float operand -1"},
        {GRAD ", %row, %row {index=0, lse=1}", GRAD " {index=0, lse=1}",
         "the log-sum-exp and its cotangent are missing"},
        {NULL, GRAD ", %aq, %row {index=0, lse=1}",
         "the log-sum-exp does not have the shape of attention's"},
        {NULL, GRAD ", %row, %aq {index=0, lse=1}",
         "its cotangent does not have the shape of attention's"},
        {FLASH_GRAD "%parts, %aq", FLASH_GRAD "%parts", "operands are missing"},
        {NULL, FLASH_GRAD "%parts, %aq {lse=1}",
         "the log-sum-exp and its cotangent must be [B, H, 3, Tq]"},
        {NULL, FLASH_GRAD "%parts, %aq, %f {wrt=[0]}", "captured tensor 0 has no gradient"},
        {NULL, FLASH_GRAD "%parts, %aq, %f {score=@table, wrt=[1]}",
         "captured tensor 1 has no gradient"},
    };
    CHECK(rows);
}

static void fused(void **state) {
    (void)state;
#define GEMM "f32[2,2] = gemm %f, %big"
    static const row rows[] = {
        {"f32[2,6] = map_reduce %f {body=@one}", "f32[2,6] = map_reduce %f",
         "attribute 'body' is missing"},
        {NULL, "f32[2,6] = map_reduce %f, %f {body=@one}",
         "its body takes 1 operands and gives 1, but has 2"},
        {"f32[2,6] = map_reduce %f, %f {body=@two}", "f32[2,6] = map_reduce %f, %g {body=@two}",
         "argument 1 of its body has another type than the operand"},
        {NULL, "f32[2,6] = map_reduce %h {body=@one}",
         "argument 0 of its body has another type than the operand"},
        {GEMM, "f32[2,2] = gemm %f", "operands are missing"},
        {NULL, GEMM " {n_pro=1}", "operands are missing"},
        {NULL, GEMM " {n_pro=-1}", "operands are missing"},
        {NULL, GEMM " {group=2}", "operands are missing"},
        {NULL, GEMM ", %big {group=2}", "scales need a packed right factor"},
        {NULL, GEMM " {pair=2}", "a pair distance needs a packed right factor"},
        {NULL, GEMM " {packed=[6,2]}", "a packed right factor has the shape [panels, k, 32]"},
        {GEMM " {prologue=@one}", GEMM " {prologue=@two}",
         "its prologue takes 2 operands and gives 1, but has 1"},
        {NULL, "f64[2,2] = gemm %h, %big {prologue=@one}",
         "argument 0 of its prologue has another type than the operand"},
        {"(f32[2,2], f32[2,2]) = gemm %f, %big {epilogue=@product}", GEMM " {epilogue=@one}",
         "argument 0 of its epilogue has another type than the operand"},
        {NULL, GEMM ", %f {epilogue=@product}",
         "its epilogue takes 1 operands and gives 2, but has 2"},
        {"f32[2,3,1] = gemm %f, %bn, %p {blocks=3}",
         "(f32[2,3,1], f32[2,3,1]) = gemm %f, %big, %p {blocks=3, epilogue=@product}",
         "blocks are of one result"},
        {NULL, "f32[2,3,1] = gemm %f, %bn {blocks=3}", "operands are missing"},
        {"f32[1,6,32] = pack_b %bn {contract_b=[0]}", "f32[1,6,32] = pack_b %bn {contract_b=[2]}",
         "axis 2 to contract does not exist in the right factor, or is listed twice"},
        {NULL, "f32[1,6,32] = pack_b %bn {contract_b=[0,0]}", "is listed twice"},
        {NULL, "f32[1,6,32] = pack_b %u {contract_b=[1]}",
         "the number of columns must be a fixed number, not T"},
        {NULL, "i32[1,1,32] = pack_b %q {contract_b=[1], group=2}", "K is not a multiple of 8"},
        {NULL, "f32[1,2,32] = pack_b %f {contract_b=[0], pair=2}", "N=6 is not a multiple of 2"},
    };
    CHECK(rows);
}

static void ranks(void **state) {
    (void)state;
#define TWO "mesh=\"r\", ranks=2"
    static const row rows[] = {
        {"f32[2,6] = all_reduce %f {" TWO "}", "f32[2,6] = all_reduce %f {mesh=\"r\"}",
         "attribute 'ranks' is missing"},
        {NULL, "f32[2,6] = all_reduce %f {ranks=2}", "attribute 'mesh' is missing"},
        {NULL, "f32[2,6] = all_reduce %f {mesh=\"r\", ranks=0}",
         "0 ranks: there must be at least one"},
        {NULL, "i32[2,6] = all_reduce %n {" TWO "}", "needs floats"},
        {"f32[2,6] = collective_permute %f {" TWO ", shift=-1}",
         "f32[2,6] = collective_permute %f {" TWO ", shift=2}", "a shift by 2 among 2 ranks"},
        {NULL, "f32[2,6] = collective_permute %f {" TWO ", shift=-2}",
         "a shift by -2 among 2 ranks"},
        {NULL, "f32[2,6] = collective_permute() {" TWO ", shift=1}",
         "0 operands given, expected at least 1"},
        {"f32[2,6] = collective_broadcast %f {" TWO ", root=1}",
         "f32[2,6] = collective_broadcast %f {" TWO ", root=2}", "there is no rank 2 among 2"},
        {"f32[2,6] = collective_reduce %f {" TWO ", root=0}",
         "f32[2,6] = collective_reduce %f {" TWO ", root=-1}", "there is no rank -1 among 2"},
        {"f32[4,6] = all_gather %f {axis=0, " TWO "}", "f32[4,6] = all_gather %f {axis=2, " TWO "}",
         "axis 2 is outside 0..1"},
        {"f32[3,6] = all_gather %f {axis=0, " TWO ", extent=3}",
         "f32[5,6] = all_gather %f {axis=0, " TWO ", extent=5}",
         "5 elements are not those of 2 such parts"},
        {NULL, "f32[0,6] = all_gather %f {axis=0, " TWO ", extent=0}",
         "0 elements are not those of 2 such parts"},
        {NULL, "f32[3,6] = all_gather %u {axis=0, " TWO ", extent=3}",
         "3 elements are not those of 2 such parts"},
        {"f32[2,6] = all_to_all %f {axis=1, " TWO "}", "f32[3,6] = all_to_all %g {axis=0, " TWO "}",
         "3 elements cannot be divided among 2 ranks"},
        {"f32[T,6] = all_to_all %u {axis=0, mesh=\"r\", ranks=1}",
         "f32[T,6] = all_to_all %u {axis=0, " TWO "}", "the size of the axis must be a constant"},
        {"f32[2,6] = reduce_scatter %g {axis=0, " TWO "}",
         "f32[2,6] = reduce_scatter %g {axis=2, " TWO "}", "axis 2 is outside 0..1"},
        {NULL, "f32[T,6] = reduce_scatter %u {axis=0, " TWO "}",
         "the size of the axis must be a constant"},
        {"f32[2,6] = shard %f {axis=1, " TWO "}",
         "f32[2,6] = shard %f {axis=1, mesh=\"r\", ranks=7}",
         "6 elements cannot be divided among 7 ranks"},
        {"f32[2,6] = shard %f {axis=1, mesh=\"r\", ranks=6}",
         "f32[2,6] = shard %f {axis=1, mesh=\"r\", ranks=0}",
         "0 ranks: there must be at least one"},
        {"f32[2,6] = shard %f {axis=1, " TWO ", parts=[4,2]}",
         "f32[2,6] = shard %f {axis=1, " TWO ", parts=[3,3]}",
         "a part of 3 elements cannot be divided among 2 ranks"},
        {NULL, "f32[2,6] = shard %f {axis=1, " TWO ", parts=[4,4]}",
         "the parts have 8 elements, the axis 6"},
        {NULL, "f32[2,6] = shard %f {axis=1, " TWO ", parts=[6,0]}",
         "a part of 0 elements cannot be divided among 2 ranks"},
        {NULL, "f32[2,6] = shard %f {axis=1, " TWO ", zigzag=1}",
         "6 elements cannot be divided among 2 ranks, two halves each"},
        {"f32[6,2] = shard %big {axis=0, mesh=\"r\", ranks=3, zigzag=1}",
         "f32[T,6] = shard %u {axis=0, " TWO "}", "the size of a divided axis must be a constant"},
    };
    CHECK(rows);
}

static void scans(void **state) {
    (void)state;
#define SCAN "(f32[2,6], f32[3,2,6]) = scan %f, %fs"
#define LOOP "carries=1, sequences=1, body=@step"
#define REC "(f32[3,4], f32[2,4], f32[67,1]) = recurrence "
    static const row rows[] = {
        {SCAN " {" LOOP "}", SCAN " {carries=1, sequences=0, body=@step}",
         "it needs at least one sequence"},
        {NULL, SCAN " {carries=2, sequences=1, body=@step}", "operands are missing"},
        {NULL, SCAN " {carries=-1, sequences=1, body=@step}", "operands are missing"},
        {NULL, SCAN ", %f {" LOOP "}", "the body takes another number of tensors"},
        {NULL, SCAN " {sequences=1, body=@step}", "attribute 'carries' is missing"},
        {NULL, SCAN " {carries=1, sequences=1}", "attribute 'body' is missing"},
        {NULL, SCAN " {carries=2, sequences=0, body=@two}", "it needs at least one sequence"},
        {"(f32[3,2,6]) = scan %fs, %f {carries=0, sequences=1, body=@two}",
         "f32[2,3] = scan %s, %f {carries=0, sequences=1, body=@two}",
         "sequence 0 is a scalar; it needs an axis"},
        {"f32[3,2,6] = scan %fs, %fs {carries=0, sequences=2, body=@two}",
         "f32[3,2,6] = scan %fs, %f4 {carries=0, sequences=2, body=@two}",
         "sequence 1 has another length than the first"},
        {NULL, "(f32[3,6], f32[3,2,6]) = scan %g, %fs {" LOOP "}",
         "axis 0 of operand 0 is not what the body takes"},
        {NULL, "(f64[2,6], f32[3,2,6]) = scan %h, %fs {" LOOP "}",
         "operand 0 is not what the body takes"},
        {NULL, "(f32[2,6], f32[2,6]) = scan %f, %f {" LOOP "}",
         "operand 1 is not what the body takes"},
        {NULL, "(f32[2,6], f32[3,2,6]) = scan %f, %fs {carries=1, sequences=1, body=@turn}",
         "the body must return carry 0 with the type that it has at the start"},
        {NULL, SCAN " {" LOOP ", tiles=[1,0]}", "attribute 'tiles' has the wrong length"},
        {REC "%rs, %rk, %rk, %rv, %rg", REC "%rs, %rk, %rk, %rk, %rg",
         "operand 3 does not fit the carry"},
        {REC "%rs, %rk, %rk, %rv, %rk", REC "%rs, %rk, %rk, %rv, %rv",
         "operand 4 does not fit the carry"},
        {NULL, REC "%rs, %rk, %rv, %rv, %rg", "operand 2 does not fit the carry"},
        {NULL, REC "%rs, %rk, %rk, %rv", "it needs 5 operands"},
        {NULL, REC "%s, %rk, %rk, %rv, %rg", "no matrix is carried"},
        {NULL, REC "%rs, %rk, %rk, %rv, %rg {reads=9}", "must be 0 or 1"},
        {NULL, REC "%rs, %rk, %rk, %rv, %rg, %rv, %rv {delta=2}", "b must be k"},
        {NULL, REC "%rs, %rk, %rk, %nv, %rg", "all operands must have one float type"},
    };
    CHECK(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),  cmocka_unit_test(movement),   cmocka_unit_test(reductions),
        cmocka_unit_test(products),     cmocka_unit_test(indices),    cmocka_unit_test(lookups),
        cmocka_unit_test(convolutions), cmocka_unit_test(attentions), cmocka_unit_test(fused),
        cmocka_unit_test(ranks),        cmocka_unit_test(scans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
