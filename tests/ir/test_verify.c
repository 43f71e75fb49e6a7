/* The verifier: passes what the constructors make, and finds every way in which a test breaks a
 * node by hand; its message shows the neighbourhood and the user's line. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const char graph[] = "module m\n"
                            "dim T in [1, 64]\n"
                            "region @r0 (%0: f32[], %1: i32[], %2: i32[], %3: i32[], %4: i32[]) {\n"
                            "  %5: f32[] = cast %4\n"
                            "  %6: f32[] = mul %0, %5\n"
                            "  yield %6\n"
                            "}\n"
                            "region @r1 (%0: f32[1,2,T,8]) {\n"
                            "  %1: f32[1,2,T,8] = exp %0\n"
                            "  yield %1, %0\n"
                            "}\n"
                            "entry e {\n"
                            "  %0: f32[1,2,T,8] = input {name=\"x\"}\n"
                            "  %1: f32[1,2,T,8] = state {name=\"s\"}\n"
                            "  %2: f32[1,2,T,8] = add %0, %1\n"
                            "  %3: f32[1,2,T,8] = attention %2, %0, %0 {score=@r0}\n"
                            "  %4: (f32[1,2,T,8], f32[1,2,T,8]) = map_reduce %3 {body=@r1}\n"
                            "  %5: f32[1,2,T,8] = result %4 {index=0}\n"
                            "  %6: f32[1,2,T,8] = relu %5\n"
                            "  %7: f32[1,2,T,1] = reduce_sum %6 {axes=[3]}\n"
                            "  output \"y\" = %7\n"
                            "  assign \"s\" = %6\n"
                            "}\n";

static sn_module *new_graph(void) {
    sn_error err = {0};
    sn_module *m = sn_parse(graph, "g.sn", true, &err);
    if (!m) fail_msg("%s", err.message);
    if (!sn_verify(m)) fail_msg("%s", sn_module_error(m)->message);
    return m;
}

static sn_node *find(sn_module *m, sn_op op) { /* the youngest */
    for (uint32_t id = sn_module_node_count(m); id-- > 0;)
        if (sn_module_node(m, id)->op == op) return sn_module_node(m, id);
    fail_msg("no node %s", sn_ops[op].name);
    return NULL;
}

/* The broken module must fail with `message` and the marked line of `bad` (NULL: no node). */
static void expect(sn_module *m, const sn_node *bad, const char *message) {
    assert_false(sn_verify(m));
    const sn_error *e = sn_module_error(m);
    assert_int_equal(e->code, SN_ERR_INTERNAL);
    if (!strstr(e->message, message)) fail_msg("\"%s\" without \"%s\"", e->message, message);
    if (bad) {
        char mark[32];
        snprintf(mark, sizeof mark, "\n> %%%u: ", bad->id);
        if (!strstr(e->message, mark)) fail_msg("\"%s\" without \"%s\"", e->message, mark);
    }
    sn_module_free(m);
}

static void wrong_shape(void **state) {
    (void)state;
    static const sn_dim wrong[] = {1, 2, 3, 8};
    static const sn_op ops[] = {SN_OP_reduce_sum, SN_OP_relu, SN_OP_result};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        sn_module *m = new_graph();
        sn_node *n = find(m, ops[i]);
        n->shape = wrong;
        expect(m, n, "should have type f32[1,2,T,");
    }
    sn_module *m = new_graph();
    sn_node *n = find(m, SN_OP_add);
    n->dtype = SN_F64;
    expect(m, n, "should have type f32[1,2,T,8] (result 0)");
    m = new_graph();
    n = find(m, SN_OP_map_reduce);
    const sn_node *types[] = {n->result_type[0], find(m, SN_OP_reduce_sum)};
    n->result_type = types;
    expect(m, n, "(result 1)");
    m = new_graph();
    n = find(m, SN_OP_exp);
    n->dtype = SN_DTYPE_COUNT;
    expect(m, n, "invalid type");
    m = new_graph();
    n = find(m, SN_OP_exp);
    n->rank = SN_MAX_RANK + 1;
    expect(m, n, "invalid type");
}

static void operands(void **state) {
    (void)state;
    sn_module *m = new_graph();
    sn_node *n = find(m, SN_OP_relu), *in[] = {find(m, SN_OP_reduce_sum), NULL};
    n->in = in;
    expect(m, n, "larger id");
    m = new_graph();
    n = find(m, SN_OP_relu);
    n->in = in + 1;
    expect(m, n, "operand that is not a node of this module");
    sn_module *other = new_graph();
    m = new_graph();
    n = find(m, SN_OP_relu);
    in[0] = find(other, SN_OP_add);
    n->in = in;
    expect(m, n, "operand that is not a node of this module");
    sn_module_free(other);
    m = new_graph();
    n = find(m, SN_OP_add);
    n->n_in = 1;
    expect(m, n, "wrong number of operands");
    m = new_graph();
    n = find(m, SN_OP_relu);
    in[0] = find(m, SN_OP_map_reduce);
    n->in = in;
    expect(m, n, "has an operand with several results");
    m = new_graph();
    n = find(m, SN_OP_reduce_sum); /* inference finds it */
    in[0] = find(m, SN_OP_input);
    sn_node *flag = sn_b_cast(in[0], SN_BOOL);
    sn_node *late = sn_b_reduce(SN_OP_reduce_sum, find(m, SN_OP_add), 1, (int64_t[]){0});
    late->in = &flag;
    expect(m, late, "needs numbers, not bool");
}

static void shape_of_node(void **state) {
    (void)state;
    sn_module *m = new_graph();
    sn_node *n = find(m, SN_OP_relu);
    n->op = SN_OP_COUNT;
    expect(m, n, "unknown op");
    m = new_graph();
    n = find(m, SN_OP_relu);
    n->id = 0;
    expect(m, NULL, "is not a node of this module");
    m = new_graph();
    n = find(m, SN_OP_relu);
    n->decomposition = NULL;
    expect(m, n, "has no decomposition");
    m = new_graph();
    n = find(m, SN_OP_map_reduce);
    n->n_result = 1;
    expect(m, n, "wrong number of results");
    m = new_graph();
    n = find(m, SN_OP_input);
    sn_attr swapped[] = {n->attr[1], n->attr[0], n->attr[2]};
    n->attr = swapped;
    expect(m, n, "attributes that are out of order");
    m = new_graph();
    n = find(m, SN_OP_reduce_sum);
    sn_attr axes = SN_LIST(axes, 1, ((int64_t[]){4}));
    n->attr = &axes;
    expect(m, n, "axis 4 is outside");
    m = new_graph();
    n = find(m, SN_OP_reduce_sum);
    axes.key = SN_ATTR_COUNT;
    n->attr = &axes;
    expect(m, n, "unknown attribute");
}

static void regions(void **state) {
    (void)state;
    sn_module *m = new_graph();
    sn_node *n = find(m, SN_OP_map_reduce), *x = find(m, SN_OP_add);
    sn_region *body = (sn_region *)sn_attr_region(n, SN_A_body), good = *body;
    sn_node *open[] = {good.out[0], x};
    body->out = open;
    expect(m, n, "region that is not closed");
    m = new_graph();
    n = find(m, SN_OP_map_reduce);
    body = (sn_region *)sn_attr_region(n, SN_A_body);
    body->n_arg = 0;
    expect(m, n, "region that is not closed");
    m = new_graph();
    n = find(m, SN_OP_map_reduce);
    x = find(m, SN_OP_add);
    body = (sn_region *)sn_attr_region(n, SN_A_body);
    body->arg = &x;
    expect(m, n, "arguments are not numbered from 0");
    m = new_graph();
    n = find(m, SN_OP_map_reduce);
    sn_attr none = SN_REG(body, NULL);
    n->attr = &none;
    expect(m, n, "empty region");
    m = new_graph();
    n = find(m, SN_OP_map_reduce);
    body = (sn_region *)sn_attr_region(n, SN_A_body);
    body->n_out = 0;
    expect(m, n, "region without results");
}

static void entries(void **state) {
    (void)state;
    sn_module *m = new_graph();
    sn_entry *e = sn_entry_get(m, "e");
    e->output[0].node = NULL;
    expect(m, NULL, "entry e: output \"y\" is not a node");
    m = new_graph();
    e = sn_entry_get(m, "e");
    sn_entry_tap(m, e, "t", sn_module_error_node(m));
    expect(m, NULL, "entry e: tap \"t\" is not a node");
    m = new_graph();
    sn_node *n = find(m, SN_OP_map_reduce);
    sn_entry_output(m, sn_entry_get(m, "e"), "z", n);
    expect(m, n, "several results");
    m = new_graph();
    n = find(m, SN_OP_reduce_sum);
    sn_entry_assign(m, sn_entry_get(m, "e"), "s", n);
    expect(m, n, "assigned to a state of another type");
}

static void neighbourhood(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_node *x;
    sn_module_set_raw(m, true);
    x = sn_b_const(m, SN_F32, 0);
    for (int i = 0; i < 30; i++) {
        sn_module_set_loc(m, (sn_loc){"user.c", i + 1});
        x = sn_node_new(m, SN_OP_tanh, 1, &x, SN_NO_ATTRS);
    }
    assert_true(sn_verify(m));
    sn_node *bad = sn_module_node(m, sn_module_node_count(m) - 10);
    bad->dtype = SN_I32;
    assert_false(sn_verify(m));
    const char *text = sn_module_error(m)->message;
    assert_non_null(strstr(text, "user.c:21: verify: "));
    int lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++) lines++;
    assert_int_equal(lines, 10);
    assert_false(sn_verify(m)); /* the first error sticks */
    sn_module_free(m);
}

/* sn_verify_new sees what was made since, sn_verify all nodes. */
static void only_new(void **state) {
    (void)state;
    for (int old = 0; old < 2; old++) {
        sn_module *m = new_graph();
        uint32_t checked = 0;
        assert_true(sn_verify_new(m, &checked));
        assert_int_equal(checked, sn_module_node_count(m));
        sn_node *x = find(m, SN_OP_relu), *made = sn_node_new(m, SN_OP_tanh, 1, &x, SN_NO_ATTRS);
        (old ? find(m, SN_OP_reduce_sum) : made)->dtype = SN_I32;
        assert_int_equal(sn_verify_new(m, &checked), old);
        assert_false(sn_verify(m));
        sn_module_free(m);
    }
}

/* What is said about a node twice is kept once. */
static void notes(void **state) {
    (void)state;
    sn_module *m = new_graph();
    const sn_node *a = find(m, SN_OP_relu), *b = find(m, SN_OP_add);
    const sn_note *list;
    for (int i = 0; i < 3; i++) {
        sn_module_note(m, a, "slow by %d", 7);
        sn_module_note(m, b, "slow by %d", 7);
        sn_module_note(m, a, "slow by %d", 8);
    }
    assert_int_equal(sn_module_notes(m, &list), 3);
    assert_ptr_equal(list[1].about, b);
    assert_string_equal(list[2].text, "slow by 8");
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_shape), cmocka_unit_test(operands), cmocka_unit_test(shape_of_node),
        cmocka_unit_test(regions),     cmocka_unit_test(entries),  cmocka_unit_test(neighbourhood),
        cmocka_unit_test(only_new),    cmocka_unit_test(notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
