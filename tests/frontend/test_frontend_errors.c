/* Mistakes in the DSL: the message names the op, the shapes, the user's file and line, and says
 * what to do; the first one sticks; nothing crashes afterwards. */
#include "frontend/models.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

static sn_module *m;
static sn_tensor x23, x32, ids, flags, w47;

static int start(void **state) {
    (void)state;
    m = sn_module_new("test");
    x23 = sn_input(m, "x23", SN_F32, 2, 3);
    x32 = sn_input(m, "x32", SN_F32, 3, 2);
    ids = sn_input(m, "ids", SN_I32, 4);
    flags = sn_input(m, "flags", SN_BOOL, 2, 3);
    w47 = sn_param(m, "h.0.weight", SN_F32, 4, 7);
    return m ? 0 : -1;
}

static int finish(void **state) {
    (void)state;
    sn_module_free(m);
    return 0;
}

/* The module's error names this file and line and all words. */
static void check(int line, const char *const *words) {
    char place[64];
    sn_error err = {0};
    snprintf(place, sizeof place, "test_frontend_errors.c:%d: ", line);
    assert_false(sn_module_ok(m, &err));
    if (!strstr(err.message, place)) fail_msg("wanted %s in: %s", place, err.message);
    for (; *words; words++)
        if (!strstr(err.message, *words)) fail_msg("wanted '%s' in: %s", *words, err.message);
    finish(NULL);
    start(NULL);
}
#define EXPECT_ERROR(expr, ...)                                                                    \
    do {                                                                                           \
        expr;                                                                                      \
        check(__LINE__, (const char *const[]){__VA_ARGS__, NULL});                                 \
    } while (0)

/* The body of a scan is not a callback of attention, and what stands for its operands has names. */
static int body_line;
static void reads_early(sn_scan_step *s) {
    body_line = __LINE__ + 1;
    s->next[0] = sn_mul(s->x[0], s->next[0]);
}
static void wrong_shapes(sn_scan_step *s) {
    body_line = __LINE__ + 1;
    s->next[0] = sn_matmul(s->carry[0], s->x[0]);
}
static void scans(void **state) {
    (void)state;
    sn_scan(.carry = {sn_full(m, SN_F32, 0, 3)}, .x = {x23}, .body = reads_early);
    check(body_line, (const char *const[]){"mul: operand 2 is NULL, in the body of a scan", NULL});
    sn_scan(.carry = {sn_full(m, SN_F32, 0, 4, 2)}, .x = {sn_input(m, "x", SN_F32, 5, 4, 3)},
            .body = wrong_shapes);
    check(body_line, (const char *const[]){"'carry[0]'", "f32[4,3] 'x[0]'", NULL});
    EXPECT_ERROR(sn_scan(.carry = {sn_full(m, SN_F32, 0, 3)}, .x = {x23, x32}, .body = reads_early),
                 "sequence 1 is f32[3,2] 'x32': its axis 0 must be as long as axis 0 of the first "
                 "one, f32[2,3] 'x23'");
    EXPECT_ERROR(sn_scan(.carry = {x23}, .body = reads_early), "neither .x nor .count is given");
    EXPECT_ERROR(sn_scan(.carry = {x23}, .x = {x32}, .count = 3, .body = reads_early),
                 ".x and .count are both given");
    EXPECT_ERROR(sn_scan(.carry = {x23}, .count = -3, .body = reads_early), "cannot be negative");
}

/* Integers and masks that are floats. */
static void wrong_types(void **state) {
    (void)state;
    EXPECT_ERROR(sn_gather(w47, 0, x23), "f32[2,3] 'x23' are not integers. Hint: sn_cast");
    EXPECT_ERROR(sn_mask_scores(x23, x23), "mask_scores: the mask", "is not bool. Hint: sn_ne");
}

/* Helpers of models report the line that calls them. */
static void caches(void **state) {
    (void)state;
    sn_dim T = sn_symbol(m, "T", 1, 8);
    sn_forward_ctx s = {.m = m, .B = 1, .T = T, .past = sn_symbol(m, "P", 0, 8), .capacity = 8};
    EXPECT_ERROR(sn_append_kv(&s, sn_input(m, "k", SN_F32, 1, T, 4, 1), "c"), "must be a number");
    s = (sn_forward_ctx){.m = m, .B = 1, .T = 2, .capacity = 8, .rows = 3};
    EXPECT_ERROR(sn_append_kv(&s, sn_input(m, "k", SN_F32, 1, 9, 4), "c"), "8");
}

static void elementwise(void **state) {
    (void)state;
    EXPECT_ERROR(sn_add(x23, x32), "add", "f32[2,3] 'x23'", "f32[3,2] 'x32'", "axis -1 is 3");
    EXPECT_ERROR(sn_mul(sn_exp(x23), x32), "mul", "(exp, test_frontend_errors.c:");
    EXPECT_ERROR(sn_add(sn_amax(x32, 1), x32), "add", "sn_expand(x, -1)");
    EXPECT_ERROR(sn_add(x23, ids), "element types differ", "sn_cast");
    EXPECT_ERROR(sn_add(ids, 0.5), "add", "0.5", "i32");
    EXPECT_ERROR(sn_exp(ids), "exp", "float");
    EXPECT_ERROR(sn_add(flags, flags), "add", "bool");
    EXPECT_ERROR(sn_not(x23), "not", "bool");
    EXPECT_ERROR(sn_shift_left(flags, flags), "shift_left", "needs an integer type");
    EXPECT_ERROR(sn_shift_right(x23, x23), "shift_right", "needs an integer type");
    EXPECT_ERROR(sn_lt(x23, x32), "lt", "[3,2]");
    EXPECT_ERROR(sn_where(x23, x23, 0), "select", "bool", "sn_ne");
    EXPECT_ERROR(sn_where(flags, x32, 0), "select", "[2,3]", "[3,2]");
    EXPECT_ERROR(sn_add(x23, (sn_tensor){NULL}), "add", "operand", "NULL");
}

static void two_modules(void **state) {
    (void)state;
    sn_module *other = sn_module_new("other");
    sn_tensor y = sn_input(other, "y", SN_F32, 2, 3);
    EXPECT_ERROR(sn_add(x23, y), "add", "'test'", "'other'");
    sn_module_free(other);
}

static void shapes(void **state) {
    (void)state;
    sn_tensor part[2];
    sn_dim T = sn_symbol(m, "T", 1, 8);
    EXPECT_ERROR(sn_reshape(x23, 4, 2), "reshape", "6 elements", "8");
    EXPECT_ERROR(sn_reshape(x23, 4, SN_REST), "reshape", "SN_REST");
    EXPECT_ERROR(sn_reshape(x23, SN_REST, SN_REST), "twice");
    EXPECT_ERROR(sn_reshape(x23, 3, -2), "reshape", "axis 1", "negative");
    EXPECT_ERROR(sn_reshape(x23, 1, 1, 1, 1, 1, 1, 1, 2, 3), "more than 8 axes");
    EXPECT_ERROR(sn_input(m, "z", SN_F32, 2, -1), "axis 1", "negative");
    EXPECT_ERROR(sn_broadcast(x23, INT64_MIN + 5, 3), "axis 0", "another module");
    EXPECT_ERROR(sn_slice(x23, 0, INT64_MIN + 5, 1), "another module");
    EXPECT_ERROR(sn_slice(x23, 0, -2, 1), "slice", "from -2");
    EXPECT_ERROR(sn_transpose(x23, 0), "transpose", "1 axes");
    EXPECT_ERROR(sn_transpose(x23, 0, 0), "transpose", "twice");
    EXPECT_ERROR(sn_sum(x23, 2), "reduce_sum", "axis 2", "-2..1");
    EXPECT_ERROR(sn_sum(x23, 0, -2), "twice");
    EXPECT_ERROR(sn_squeeze(x23, 0), "squeeze", "is not 1");
    EXPECT_ERROR(sn_slice(x23, 1, 2, 2), "slice", "2 elements from 2");
    EXPECT_ERROR(sn_split(x23, 1, 2, part), "split", "2 equal parts");
    EXPECT_ERROR(sn_concat(0, x23, x32), "concat", "operand 2", "[3,2]");
    EXPECT_ERROR(sn_update(x23, x32, 0, 0), "update_slice");
    EXPECT_ERROR(sn_update(x23, x32, 0), "update_slice", "1 starts");
    EXPECT_ERROR(sn_dim_of(x23, 5), "axis 5");
    EXPECT_ERROR(sn_broadcast(x23, 2, 4), "broadcast", "3", "4");
    EXPECT_ERROR(sn_iota(m, SN_I32, 1, 4), "iota", "axis 1");
    EXPECT_ERROR(sn_dim_quot(m, 7, 2), "7", "multiple of 2");
    (void)T;
    EXPECT_ERROR(sn_symbol(m, "Z", 5, 2), "Z");
}

static void products(void **state) {
    (void)state;
    EXPECT_ERROR(sn_matmul(x23, x23), "matmul", "[2,3]", "sn_swap");
    EXPECT_ERROR(sn_matmul(x23, ids), "matmul: f32[2,3] 'x23' and i32[4] 'ids': ", "two axes");
    EXPECT_ERROR(sn_matmul(ids, x23), "matmul: i32[4] 'ids' and f32[2,3] 'x23': ", "two axes");
    EXPECT_ERROR(sn_matmul(x23, flags),
                 "matmul: f32[2,3] 'x23' and bool[2,3] 'flags': ", "element types differ");
    EXPECT_ERROR(sn_linear(x23, w47, NULL), "linear", "f32[4,7] 'h.0.weight'", "[out, in]");
    EXPECT_ERROR(sn_linear(x23, x32, NULL), "linear", "sn_swap(w, 0, 1)");
    EXPECT_ERROR(sn_linear(x23, x23, ids), "linear", "[out]");
    EXPECT_ERROR(sn_solve_triangular(x23, x23), "solve_triangular", "[.., T, T]");
    EXPECT_ERROR(sn_conv2d(x23, w47, NULL), "conv2d", "[B, C, H, W]");
    sn_tensor image = sn_input(m, "image", SN_F32, 1, 4, 9, 9);
    EXPECT_ERROR(sn_conv2d(image, sn_param(m, "k", SN_F32, 4, 3, 3, 3), NULL), "conv2d", "groups");
    image = sn_input(m, "image", SN_F32, 1, 3, 9, 9);
    EXPECT_ERROR(sn_conv2d(image, sn_param(m, "k", SN_F32, 4, 3, 11, 3), NULL), "conv2d",
                 "spans 11");
    image = sn_input(m, "image", SN_F32, 1, 3, 9, sn_symbol(m, "W", 1, 100));
    EXPECT_ERROR(sn_conv2d(image, sn_param(m, "k", SN_F32, 4, 3, 1, 1), NULL, .stride = {1, 2}),
                 "conv2d", "symbolic size");
    image = sn_input(m, "image", SN_F32, 1, 3, 9, 9);
    EXPECT_ERROR(sn_conv3d(image, x23, NULL), "conv3d", "[B, C, D, H, W]");
    EXPECT_ERROR(sn_einsum("ij,jk", x23, x32), "einsum", "ij,jk");
    EXPECT_ERROR(sn_einsum("ij,kl->ik", x23, x32), "einsum", "label j");
    EXPECT_ERROR(sn_einsum("ij,jk->iz", x23, x32), "einsum", "z");
    EXPECT_ERROR(sn_einsum("ij,ij->ij", x23, x32), "einsum", "label i of", "sizes 2 and 3",
                 "f32[2,3] 'x23' and f32[3,2] 'x32': ");
    EXPECT_ERROR(sn_embedding(x32, x23), "embedding", "integers");
    EXPECT_ERROR(sn_embedding(ids, ids), "embedding", "two axes");
    EXPECT_ERROR(sn_gather(x23, 0, x23), "gather", "integers");
    EXPECT_ERROR(sn_at(x23, ids), "at", "1 indices", "[2,3]");
    EXPECT_ERROR(sn_layer_norm(x23, ids, NULL, 1e-5), "layer_norm", "gain", "'ids'");
    EXPECT_ERROR(sn_rms_norm(x23, w47, 1e-5), "rms_norm", "gain");
    EXPECT_ERROR(sn_rope(x23, ids), "rope", "positions");
    EXPECT_ERROR(sn_cross_entropy(x23, ids), "cross_entropy", "targets");
    EXPECT_ERROR(sn_dropout(x23, ids, 1.5), "dropout", "1.5");
    EXPECT_ERROR(sn_uniform(ids, 4), "random", "i64[2]");
}

static sn_tensor not_a_scalar(const sn_score_ctx *c) {
    return c->captured[0];
}
static sn_tensor nothing(const sn_score_ctx *c) {
    (void)c;
    return NULL;
}
static sn_tensor outside(const sn_score_ctx *c) {
    return sn_add(c->score, sn_input(c->m, "stray", SN_F32, SN_SCALAR));
}

static int mistake_line; /* in a callback */
static sn_tensor forgotten(const sn_score_ctx *c) {
    mistake_line = __LINE__ + 1;
    return sn_le(sn_at(c->captured[0], c->q), 0);
}
static sn_tensor score_in_mask(const sn_score_ctx *c) {
    mistake_line = __LINE__ + 1;
    return sn_lt(c->score, sn_cast(c->q, SN_F32));
}

static sn_tensor slope_of_head(const sn_score_ctx *c) {
    mistake_line = __LINE__ + 1;
    return sn_mul(c->score, sn_at(c->captured[0], c->h));
}
static sn_tensor seen_by_head(const sn_score_ctx *c) {
    mistake_line = __LINE__ + 1;
    return sn_at(c->captured[0], c->q, c->h);
}

static void names(void **state) {
    (void)state;
    sn_tensor param[1];
    assert_int_equal(sn_params_of(sn_tanh(w47), 1, param), 1);
    assert_string_equal(sn_name_of(param[0]), "h.0.weight");
    assert_null(sn_name_of(sn_tanh(w47)));
    assert_null(sn_name_of(NULL));
}

static sn_tensor whole(const sn_score_ctx *c) {
    return c->score;
}

static void attention(void **state) {
    (void)state;
    sn_tensor q, k, v, narrow;
#define HEADS()                                                                                    \
    q = sn_input(m, "q", SN_F32, 1, 4, 5, 8), k = sn_input(m, "k", SN_F32, 1, 2, 6, 8),            \
    v = sn_input(m, "v", SN_F32, 1, 2, 6, 3), narrow = sn_input(m, "narrow", SN_F32, 1, 3, 6, 8)
    HEADS();
    EXPECT_ERROR(sn_attention(x23, k, v), "attention", "4 axes", "'x23'");
    HEADS();
    EXPECT_ERROR(sn_attention(q, narrow, v), "keys and values", "'narrow'");
    HEADS();
    EXPECT_ERROR(sn_attention(q, narrow, narrow), "does not divide");
    HEADS();
    EXPECT_ERROR(sn_attention(q, v, v), "widths");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .score = nothing), "score callback", "NULL");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .mask = not_a_scalar, .captured = {x23}), "mask callback",
                 "f32[2,3]");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .score = outside), "captured");
    HEADS();
    sn_attention(q, k, v, .mask = forgotten);
    check(mistake_line, (const char *const[]){"at: operand 1 is NULL", "mask callback", NULL});
    HEADS();
    sn_attention(q, k, v, .mask = score_in_mask);
    check(mistake_line, (const char *const[]){"mask callback", "c->score", NULL});
    HEADS(); /* a row less than there are heads */
    sn_attention(q, k, v, .score = slope_of_head, .captured = {sn_input(m, "s", SN_F32, 3)});
    check(mistake_line, (const char *const[]){"f32[3] 's'", "axis 0 has 3 rows for 4 heads", NULL});
    HEADS();
    sn_attention(q, k, v, .mask = seen_by_head, .captured = {sn_input(m, "s", SN_BOOL, 5, 3)});
    check(mistake_line, (const char *const[]){"'s'", "axis 1 has 3 rows for 4 heads", NULL});
    HEADS();
    sn_attention(q, k, v, .score = slope_of_head, .captured = {sn_input(m, "s", SN_F32, 4)});
    assert_true(sn_module_ok(m, NULL));
    finish(NULL), start(NULL);
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .scale = -1), "attention", "scale");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .scale = NAN), "attention", "scale");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .window = 4), "attention", "needs .causal");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .causal = true, .window = -4), "attention", "negative");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .dropout = 0.1), "attention", "dropout needs .rng");
    HEADS();
    EXPECT_ERROR(sn_attention(q, k, v, .dropout = 1), "attention", "dropout rate");
    EXPECT_ERROR(sn_split_heads(x23, 2), "split_heads");
    (void)narrow;
}

/* Each of the conditions on the options, by itself. */
static void attention_options(void **state) {
    (void)state;
    sn_tensor q, k, v, narrow;
#define BAD(what, ...)                                                                             \
    do {                                                                                           \
        HEADS();                                                                                   \
        EXPECT_ERROR(sn_attention(q, k, v, __VA_ARGS__), "attention", what);                       \
    } while (0)
    sn_tensor lse;
    const char *const mixes = ".mix_scores and .mix_weights go with neither";
    BAD("have no log-sum-exp", .lse = &lse, .weight = whole);
    BAD("there is no .lse", .lse = &lse, .sink = sn_input(m, "s", SN_F32, 4));
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? ".mix_weights" : ".mix_scores";
        sn_tensor a = NULL, b = NULL;
#define MIX(rows, columns)                                                                         \
    *(i ? &b : &a) = sn_input(m, "mix", SN_F32, rows, columns), *(i ? &a : &b) = NULL
        MIX(4, 4);
        BAD(mixes, .mix_scores = a, .mix_weights = b, .weight = whole);
        MIX(4, 4);
        BAD(mixes, .mix_scores = a, .mix_weights = b, .sink = sn_input(m, "s", SN_F32, 4));
        MIX(4, 4);
        BAD(mixes, .mix_scores = a, .mix_weights = b, .dropout = 0.1);
        MIX(4, 4);
        BAD(mixes, .mix_scores = a, .mix_weights = b, .lse = &lse);
        MIX(4, 4);
        BAD(mixes, .mix_scores = a, .mix_weights = b, .mesh = "d", .ranks = 2);
        MIX(4, 3);
        BAD(name, .mix_scores = a, .mix_weights = b);
        MIX(2, 2);
        BAD(name, .mix_scores = a, .mix_weights = b);
        MIX(4, 4); /* k and v have fewer heads */
        BAD(name, .mix_scores = a, .mix_weights = b);
    }
    BAD(".ranks is not positive", .mesh = "d");
    BAD("need rows that are not divided", .mesh = "d", .ranks = 2, .weight = whole);
    BAD("need rows that are not divided", .mesh = "d", .ranks = 2, .dropout = 0.1);
    BAD("need rows that are not divided", .mesh = "d", .ranks = 2, .lse = &lse);
    BAD("a divisor needs .weight", .divide = SN_DIVIDE_BY_ABS_SUM);
    BAD("the divisor is unknown", .weight = whole, .divide = (sn_row_divisor)9);
    BAD("a sink needs .divide", .weight = whole, .sink = sn_input(m, "s", SN_F32, 4));
    (void)narrow;
}

/* Each of the conditions on ranks, by itself. */
static void ranks(void **state) {
    (void)state;
#define MESH(call, name)                                                                           \
    EXPECT_ERROR(call(NULL, 2), name, "the mesh axis is NULL");                                    \
    EXPECT_ERROR(call("d", 0), name, "there must be at least one rank")
#define REDUCE(mesh, n) sn_all_reduce(x23, mesh, n)
#define GATHER(mesh, n) sn_all_gather(x23, 0, mesh, n)
#define SCATTER(mesh, n) sn_reduce_scatter(x23, 0, mesh, n)
#define PERMUTE(mesh, n) sn_collective_permute(x23, 0, true, mesh, n)
#define BROADCAST(mesh, n) sn_collective_broadcast(x23, 0, mesh, n)
#define REDUCE_TO(mesh, n) sn_collective_reduce(x23, 0, mesh, n)
    MESH(REDUCE, "all_reduce");
    MESH(GATHER, "all_gather");
    MESH(SCATTER, "reduce_scatter");
    MESH(PERMUTE, "collective_permute");
    MESH(BROADCAST, "collective_broadcast");
    MESH(REDUCE_TO, "collective_reduce");
    EXPECT_ERROR(sn_all_gather(x23, 2, "d", 2), "all_gather", "axis 2");
    EXPECT_ERROR(sn_collective_permute(x23, 2, true, "d", 2), "is not between -ranks and ranks");
    EXPECT_ERROR(sn_collective_permute(x23, -2, true, "d", 2), "is not between -ranks and ranks");
    EXPECT_ERROR(sn_collective_broadcast(x23, 2, "d", 2), "collective_broadcast");
    EXPECT_ERROR(sn_collective_broadcast(x23, -1, "d", 2), "collective_broadcast");
    EXPECT_ERROR(sn_collective_reduce(x23, 2, "d", 2), "collective_reduce");
    EXPECT_ERROR(sn_slice(x23, 2, 0, 1), "slice", "axis 2");
    EXPECT_ERROR(sn_slice(x23, -3, 0, 1), "slice", "axis -3");
    EXPECT_ERROR(sn_cumulate(x23, .op = (sn_cumulation)9), ".op is none of SN_CUMSUM");
    EXPECT_ERROR(sn_cumulate(flags, .op = SN_CUMSUM), "cumulate", "use sn_cast");
    EXPECT_ERROR(sn_cumulate(flags, .op = SN_CUMMIN), "cumulate", "use sn_cast");
}

static void names_and_entries(void **state) {
    (void)state;
    EXPECT_ERROR(sn_output("y", x23), "sn_entry_begin");
    EXPECT_ERROR(sn_name(x23, "y"), "sn_entry_begin");
    EXPECT_ERROR(sn_scope_pop(m), "sn_scope_pop");
    EXPECT_ERROR(sn_scope_push(m, "%s", ""), "name");
    EXPECT_ERROR(sn_param(m, "h.0.weight", SN_F32, 4, 8), "param f32[4,8] 'h.0.weight'",
                 "f32[4,7]");
    EXPECT_ERROR(sn_state(m, "h.0.weight", SN_F32, 4, 7), "is already used by the param");
    EXPECT_ERROR(sn_input(m, "x23", SN_F32, 2, 4), "input", "f32[2,3]");
    EXPECT_ERROR(sn_input(m, "", SN_F32, 2), "needs a name");
    EXPECT_ERROR(sn_input(m, "deep", SN_F32, 1, 1, 1, 1, 1, 1, 1, 1, 1), "more than 8 axes");
    sn_entry_begin(m, "e");
    EXPECT_ERROR(sn_assign(x23, x23), "not a state");
    sn_entry_begin(m, "e");
    sn_tensor s = sn_state(m, "s", SN_F32, 3);
    EXPECT_ERROR(sn_assign(s, x23), "f32[3] 's'", "f32[2,3] 'x23'");
    sn_entry_begin(m, "e");
    sn_output("y", x23);
    EXPECT_ERROR(sn_output("y", x32), "'y'", "another tensor");
    sn_entry_begin(m, "e");
    sn_name(x23, "t");
    EXPECT_ERROR(sn_name(x32, "t"), "'t'", "another tensor");
}

/* The first error sticks, later ones change nothing, and every call takes the error tensor. */
static void errors_stick(void **state) {
    (void)state;
    sn_error first = {0}, later = {0};
    sn_entry_begin(m, "e");
    sn_tensor y = sn_add(x23, x32), part[3];
    assert_false(sn_module_ok(m, &first));
    sn_split(y, 0, 3, part);
    sn_tensor z = sn_softmax(sn_linear(sn_mul(y, 2), sn_transpose(part[2], 1, 0), y), -1);
    z = sn_reshape(sn_concat(0, z, y), sn_dim_of(z, 3), SN_REST);
    z = sn_attention(z, y, part[1], .causal = true, .captured = {y});
    z = sn_where(z, sn_layer_norm(z, y, NULL, 0), sn_einsum("i,i->", y, z));
    z = sn_nn_linear(sn_rope(z, y), "fc", 3, SN_BIAS);
    sn_output("y", sn_name(z, "z"));
    sn_matmul(x23, x23);
    assert_ptr_equal(sn_module_of(z), m);
    assert_true(sn_dim_of(z, 0) == 1 && sn_rank_of(z) == 0);
    assert_false(sn_module_ok(m, &later));
    assert_string_equal(first.message, later.message);
}

/* An operation with NULL operands only is an error of the module whose entry the thread began last. */
static void null_operands(void **state) {
    (void)state;
    sn_module *a = sn_module_new("a"), *b = sn_module_new("b");
    sn_entry_begin(a, "e");
    sn_output("y", sn_tanh(NULL));
    sn_null_op_report(b);
    assert_true(sn_module_ok(b, NULL));
    sn_null_op_report(a);
    assert_non_null(strstr(sn_module_error(a)->message, ": tanh: operand 1 is NULL"));
    sn_tanh(NULL);
    sn_entry_begin(b, "e"); /* forgets it */
    sn_null_op_report(b);
    assert_true(sn_module_ok(b, NULL));
    sn_tanh(NULL);
    sn_module_free(b);
    b = sn_module_new("c"); /* where the freed one was */
    sn_null_op_report(b);
    assert_true(sn_module_ok(b, NULL));
    sn_module_free(a);
    sn_module_free(b);
}

/* Without a module (out of memory) every call gives NULL and takes NULL. */
static void no_module(void **state) {
    (void)state;
    sn_error err = {0};
    sn_tensor x = sn_input(NULL, "x", SN_F32, 2, 3), part[2];
    assert_null(x);
    sn_entry_begin(NULL, "e");
    sn_scope_push(NULL, "h");
    sn_scope_pop(NULL);
    sn_split(x, 0, 2, part);
    assert_null(sn_add(sn_exp(x), 1));
    assert_null(sn_add(1, 2));
    assert_null(sn_matmul(x, part[1]));
    assert_null(sn_concat(0, x, x));
    assert_null(sn_attention(x, x, x));
    assert_null(sn_reshape(sn_sum(x, 0), 3));
    assert_null(sn_nn_linear(x, "fc", 3, 0));
    assert_null(sn_where(x, 1, 2));
    sn_output("y", sn_name(x, "y"));
    sn_assign(x, x);
    assert_true(sn_dim_of(x, 1) == 1);
    assert_false(sn_module_ok(NULL, &err));
    assert_int_equal(err.code, SN_ERR_MEMORY);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, finish)
    const struct CMUnitTest tests[] = {
        TEST(scans),         TEST(wrong_types),
        TEST(caches),        TEST(elementwise),
        TEST(two_modules),   TEST(shapes),
        TEST(products),      TEST(names),
        TEST(attention),     TEST(attention_options),
        TEST(ranks),         TEST(names_and_entries),
        TEST(errors_stick),  TEST(no_module),
        TEST(null_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
