/* ops_loop.c: Scan and Loop, whose graphs become the bodies of loops over an axis. */
#include "frontend/onnx/load.h"
#include "frontend/onnx/ops.h"

#include <math.h>

/* The inputs of the graph are, for Loop, the iteration and a condition, then states, then elements. Its outputs
 * are, for Loop, the condition, then states, then elements of outputs. */
typedef struct body {
    onnx_call *c;
    const onnx_graph *g;
    int states, elements, outputs;
    bool loop, ok;
} body;

static bool run_body(body *b, const sn_scan_step *s) {
    onnx_call *c = b->c;
    onnx_value *in[2 + 2 * SN_MAX_SCAN], *out[ONNX_OUT_MAX] = {NULL};
    int n = 0, k = 0;
    double go;
    if (b->loop) {
        onnx_elem *yes = sn_arena_alloc(c->im->arena, sizeof *yes);
        *yes = onnx_elem_dim(1);
        in[n++] = onnx_tensor_value(c->im, NULL, sn_cast(s->index, SN_I64));
        in[n] = onnx_new_value(c->im, NULL);
        in[n]->type = SN_BOOL;
        in[n++]->known = yes;
    }
    for (int i = 0; i < b->states; i++) in[n++] = onnx_tensor_value(c->im, NULL, s->carry[i]);
    for (int i = 0; i < b->elements; i++) in[n++] = onnx_tensor_value(c->im, NULL, s->x[i]);
    if (!c->im->run_graph(c, b->g, n, in, out)) return false;
    if (b->loop && (!onnx_number(c, out[k++], &go) || go != 1))
        return onnx_fail(c, "its number of iterations depends on data: the condition that its "
                            "graph computes is not always true");
    for (int i = 0; i < b->states; i++) {
        s->next[i] = onnx_tensor_of(c, out[k++]);
        if (!front_same_shape(s->next[i], s->carry[i]))
            return onnx_fail(c, "the shape of state %d changes from one iteration to the next", i);
    }
    for (int i = 0; i < b->outputs; i++) s->y[i] = onnx_tensor_of(c, out[k++]);
    return true;
}

static void step(sn_scan_step *s) {
    body *b = (body *)s->user;
    b->ok = run_body(b, s);
    for (int i = 0; s->carry[i] && i < SN_MAX_SCAN; i++)
        if (!b->ok || i >= b->states) s->next[i] = s->carry[i];
}

static bool find_body(onnx_call *c, body *b) {
    const onnx_attribute *a = onnx_attr(c, "body");
    const int more = b->loop ? 2 : 0;
    if (!a || !a->graph) return onnx_fail(c, "its body is missing");
    b->g = a->graph;
    b->outputs = b->g->output.n - b->states - (b->loop ? 1 : 0);
    if (b->states < 0 || b->outputs < 0 || b->g->input.n != more + b->states + b->elements)
        return onnx_fail(c, "its body has another number of inputs or outputs");
    if (b->states > SN_MAX_SCAN || b->elements > SN_MAX_SCAN || b->outputs > SN_MAX_SCAN)
        return onnx_fail(c, "more than %d states or outputs", SN_MAX_SCAN);
    return true;
}

/* The axis and whether the last element is first: element i of two attributes. */
static bool direction(onnx_call *c, const char *axes, const char *directions, int i, int rank,
                      int *axis, bool *reverse) {
    int64_t list[2 * SN_MAX_SCAN] = {0};
    const int n = onnx_ints(c, axes, list, 2 * SN_MAX_SCAN);
    const int64_t at = i < n ? list[i] : 0;
    *reverse = i < onnx_ints(c, directions, list, 2 * SN_MAX_SCAN) && list[i];
    return onnx_axis(c, at, rank, axis);
}

/* Axis `from` of x as axis `to`. */
static sn_tensor move_axis(onnx_call *c, sn_tensor x, int from, int to) {
    int perm[SN_MAX_RANK + 1], n = 0;
    const int rank = sn_rank_of(x);
    for (int i = 0; i < rank; i++)
        if (i != from) perm[n++] = i;
    for (int i = rank - 1; i > to; i--) perm[i] = perm[i - 1];
    perm[to] = from;
    perm[rank] = INT_MIN;
    return from == to ? x : sn_transpose_at(c->at, x, perm);
}

bool onnx_scan(onnx_call *c) {
    body b = {.c = c, .elements = (int)onnx_int(c, "num_scan_inputs", 0)};
    sn_scan_args a = {.axis = 0, .body = step, .user = &b};
    int axis;
    bool reverse;
    b.states = c->n_in - b.elements;
    if (b.elements < 1) return onnx_fail(c, "num_scan_inputs is missing");
    if (!find_body(c, &b)) return false;
    for (int i = 0; i < b.states; i++) a.carry[i] = onnx_in(c, i);
    for (int i = 0; i < b.elements; i++) {
        sn_tensor x = onnx_in(c, b.states + i);
        if (!direction(c, "scan_input_axes", "scan_input_directions", i, sn_rank_of(x), &axis,
                       &reverse))
            return false;
        x = move_axis(c, x, axis, 0);
        a.x[i] = reverse ? sn_flip(x, 0) : x;
        if (i && !onnx_equal(c, sn_dim_of(a.x[0], 0), sn_dim_of(x, 0)) && onnx_again(c))
            return false;
    }
    sn_scanned r = sn_scan_at(c->at, &a);
    if (!b.ok) return false;
    for (int i = 0; i < b.states; i++)
        if (!onnx_set_narrow(c, i, r.carry[i], c->in[i]->narrow)) return false;
    for (int i = 0; i < b.outputs; i++) {
        sn_tensor y = r.y[i];
        if (!y || !direction(c, "scan_output_axes", "scan_output_directions", i, sn_rank_of(y),
                             &axis, &reverse))
            return false;
        y = move_axis(c, reverse ? sn_flip(y, 0) : y, 0, axis);
        if (!onnx_set_narrow(c, b.states + i, y, ONNX_UNDEFINED)) return false;
    }
    return true;
}

bool onnx_loop(onnx_call *c) {
    body b = {.c = c, .loop = true, .states = c->n_in - 2};
    sn_scan_args a = {.axis = 0, .body = step, .user = &b};
    double go = 1;
    if (!onnx_given(c, 0) || !c->in[0]->known || onnx_count(c->in[0]) != 1)
        return onnx_fail(c, "its number of iterations depends on data");
    if (onnx_given(c, 1) && (!onnx_number(c, c->in[1], &go) || go != 1))
        return onnx_fail(c, "whether it runs depends on data");
    a.count = c->in[0]->known[0].d;
    if (a.count > INT32_MAX) return onnx_fail(c, "its number of iterations is not known");
    if (!a.count) return onnx_fail(c, "it runs 0 times");
    if (!find_body(c, &b)) return false;
    for (int i = 0; i < b.states; i++) a.carry[i] = onnx_in(c, i + 2);
    if (!b.states) a.carry[0] = sn_scalar(c->m, SN_F32, 0);
    sn_scanned r = sn_scan_at(c->at, &a);
    if (!b.ok) return false;
    for (int i = 0; i < b.states; i++)
        if (!onnx_set(c, i, r.carry[i])) return false;
    for (int i = 0; i < b.outputs; i++)
        if (!onnx_set(c, b.states + i, r.y[i])) return false;
    return true;
}
