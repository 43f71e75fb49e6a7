/* eval_field.c: elements of finite fields as the numbers of an evaluator. */
#include "ir/field.h"

static double number(void *of, double x, bool exact) {
    return sn_field_number(of, x, exact);
}

static void leaf(void *of, const char *name, int64_t n, double *out) {
    sn_field_leaf(of, name, n, out);
}

static double elem(void *of, sn_op op, sn_dtype in, sn_dtype out, double x, double y, double z) {
    return sn_field_elem(of, op, in, out, x, y, z);
}

static double dot(void *of, const double *x, const double *y, int64_t n) {
    return sn_field_dot(of, x, y, n);
}

static double to_bool(void *of, double x) {
    (void)of;
    return sn_round_to(SN_BOOL, x);
}

static bool failed(const void *of) {
    return sn_field_failed(of);
}

void sn_eval_set_field(sn_eval *ev, sn_field *f) {
    static const sn_numbers numbers = {number, leaf, elem, dot, to_bool, failed};
    sn_eval_set_numbers(ev, f ? &numbers : NULL, f);
}
