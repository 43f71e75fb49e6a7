/* check_values.c: --check-nan: after each step its results are looked through. The first NaN that a
 * step makes is an error with the step's operations and the user's line, and so is the first
 * infinity, unless the step was told to make some (a masked score) or has read one. */
#include "codegen/program/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum finding { FINITE, INFINITE, NOT_A_NUMBER } finding;

static int64_t size_of(const sn_step_call *c, sn_dim d) {
    int64_t v;
    if (sn_dim_is_const(c->kernel->m, d, &v)) return v;
    return c->dim[sn_kernel_dim_slot(c->kernel, d)];
}

/* Is a float among n of them, `step` bytes apart, whose exponent is all ones? */
#define ANY_ODD(name, bits, exponent)                                                              \
    static bool name(const char *p, int64_t n, int64_t step) {                                     \
        bits any = 0, x;                                                                           \
        if (step == (int64_t)sizeof x) /* in vectors */                                            \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(&x, p + i * (int64_t)sizeof x, sizeof x);                                   \
                any |= (x & (exponent)) == (exponent);                                             \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(&x, p + i * step, sizeof x);                                                \
                any |= (x & (exponent)) == (exponent);                                             \
            }                                                                                      \
        return any;                                                                                \
    }
ANY_ODD(odd_f64, uint64_t, (uint64_t)0x7ff << 52)
ANY_ODD(odd_f32, uint32_t, (uint32_t)0xff << 23)
ANY_ODD(odd_bf16, uint16_t, 0xff << 7)
ANY_ODD(odd_f16, uint16_t, 0x1f << 10)

static bool any_odd(sn_dtype t, const char *p, int64_t n, int64_t step) {
    return t == SN_F64    ? odd_f64(p, n, step)
           : t == SN_F32  ? odd_f32(p, n, step)
           : t == SN_BF16 ? odd_bf16(p, n, step)
                          : odd_f16(p, n, step);
}

/* The worst that view v of buffer p holds; *at: the row-major number of the first such element. */
static finding look_through(const sn_step_call *c, const sn_view *v, const char *p, int64_t *at) {
    int64_t shape[SN_MAX_RANK], stride[SN_MAX_RANK], rows = 1, last = 1, step = 0;
    finding worst = FINITE;
    if (!sn_dtype_is_float(v->dtype)) return FINITE;
    for (int a = 0; a < v->rank; a++) {
        rows *= last;
        last = shape[a] = size_of(c, v->shape[a]);
        step = stride[a] = size_of(c, v->stride[a]) * (int64_t)sn_dtype_size(v->dtype);
    }
    for (int64_t r = 0; r < rows && worst != NOT_A_NUMBER; r++) {
        int64_t offset = 0, rest = r;
        for (int a = v->rank - 1; a-- > 0; rest /= shape[a]) offset += rest % shape[a] * stride[a];
        if (!any_odd(v->dtype, p + offset, last, step)) continue;
        for (int64_t i = 0; i < last && worst != NOT_A_NUMBER; i++) {
            double x = sn_dtype_load(v->dtype, p + offset + i * step, 0);
            finding f = isfinite(x) ? FINITE : isnan(x) ? NOT_A_NUMBER : INFINITE;
            if (f > worst) *at = r * last + i;
            if (f > worst) worst = f;
        }
    }
    return worst;
}

/* Does a region of the step write infinity on purpose? */
static bool means_infinity(const sn_node *n) {
    if (sn_kernel_of(n)->infinite_results) return true;
    for (int i = 0; i < n->n_attr; i++) {
        if (sn_attr_table[n->attr[i].key].kind != SN_AK_REGION) continue;
        sn_order order = sn_region_topo(n->m, n->attr[i].r);
        for (int k = 0; k < order.n; k++)
            if (isinf(sn_attr_flt(order.node[k], SN_A_value, 0)) ||
                order.node[k]->op == SN_OP_reduce_max || order.node[k]->op == SN_OP_reduce_min)
                return true;
    }
    return false;
}

/* "log, mul": what the step does, each operation once. */
static void list_ops(const sn_node *n, char *text, size_t size) {
    bool seen[SN_OP_COUNT] = {false};
    size_t at =
        (size_t)snprintf(text, size, "%s", n->op == SN_OP_map_reduce ? "" : sn_ops[n->op].name);
    for (int i = 0; i < n->n_attr; i++) {
        if (sn_attr_table[n->attr[i].key].kind != SN_AK_REGION) continue;
        sn_order order = sn_region_topo(n->m, n->attr[i].r);
        for (int k = 0; k < order.n; k++) {
            sn_op op = (sn_op)order.node[k]->op;
            bool plain = op == SN_OP_arg || op == SN_OP_const || op == SN_OP_broadcast;
            if (seen[op] || plain || at + 32 > size) continue;
            seen[op] = true;
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", sn_ops[op].name);
        }
    }
    if (!at) snprintf(text, size, "copy");
}

static const char *user_name(const sn_buffer *b) {
    return b->kind == SN_BUF_TEMP || b->kind == SN_BUF_OUTPUT ? NULL : b->name;
}

sn_value_check *sn_value_checks(sn_module *m, const sn_plan *plan) {
    sn_value_check *check = sn_arena_alloc(m, sizeof *check * (size_t)(plan->n_call + 1));
    for (int i = 0; i < plan->n_call; i++) {
        char ops[256];
        list_ops(plan->call[i]->node, ops, sizeof ops);
        check[i] =
            (sn_value_check){means_infinity(plan->call[i]->node), sn_arena_printf(m, "%s", ops)};
    }
    return check;
}

/* The result of a step that is written only in part; -1: none. */
static int partly_written(const sn_node *n) {
    int (*of)(const sn_node *n) = sn_kernel_of(n)->partly_written;
    return of ? of(n) : -1;
}

static bool is_partly_written(const sn_plan *plan, int buffer) {
    for (int i = 0; i < plan->n_call; i++) {
        const int result = partly_written(plan->call[i]->node);
        if (result >= 0 && plan->call[i]->out[result].buffer == buffer) return true;
    }
    return false;
}

bool sn_check_values(const sn_plan *plan, const sn_value_check *check, const sn_step_call *c,
                     sn_error *err) {
    static const char *const what[] = {"", "infinity", "NaN"};
    const sn_step *s = c->kernel->step;
    finding worst = FINITE, read = FINITE;
    int64_t at = 0, where = 0;
    int result = 0;
    for (int i = 0; i < s->n_out; i++) {
        if (i == partly_written(s->node)) continue;
        finding f = look_through(c, &s->out[i], c->buf[s->n_in + i], &at);
        if (f > worst) where = at, result = i;
        if (f > worst) worst = f;
    }
    if (worst == FINITE) return true;
    for (int i = 0; i < s->n_in; i++) {
        if (is_partly_written(plan, s->in[i].buffer)) continue;
        finding f = look_through(c, &s->in[i], c->buf[i], &at);
        const char *name = user_name(&plan->buffer[s->in[i].buffer]);
        if (f == NOT_A_NUMBER && name)
            return sn_fail(err, SN_ERR_RANGE,
                           "check-nan: entry %s: the input '%s' has a NaN at element %lld",
                           plan->entry->name, name, (long long)at);
        if (f > read) read = f;
    }
    if (worst == INFINITE && (read == INFINITE || check[s->first].infinity)) return true;
    char shape[128];
    const sn_view *v = &s->out[result];
    sn_shape_print(c->kernel->m, v->rank, v->shape, shape, sizeof shape);
    return sn_fail(
        err, SN_ERR_RANGE,
        "check-nan: entry %s: the first %s is produced by kernel %d (%s), in element %lld of its "
        "result %s%s (%s:%d). Hint: at --level 0 each operation is a separate kernel",
        plan->entry->name, what[worst], s->first, check[s->first].ops, (long long)where,
        sn_dtype_name(v->dtype), shape, s->node->loc.file ? s->node->loc.file : "?",
        s->node->loc.line);
}
