/* bindings.c: what callers give to runs and sessions as named tensors, checked before anything is
 * read through it. */
#include "codegen/program/program.h"

#include <string.h>

/* The number of elements; -1: a size is negative, or the number overflows. */
static int64_t elements(const sn_arg_binding *a) {
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] < 0 || __builtin_mul_overflow(n, a->shape[i], &n)) return -1;
    return n;
}

static bool check_one(const sn_arg_binding *a, int i, const char *what, bool with_data,
                      sn_error *err) {
    if (!a->name) return sn_fail(err, SN_ERR_USAGE, "%s %d has no name (NULL)", what, i + 1);
    if ((int)a->dtype < 0 || a->dtype >= SN_DTYPE_COUNT)
        return sn_fail(err, SN_ERR_USAGE, "%s '%s': %d is not an element type", what, a->name,
                       (int)a->dtype);
    if (a->rank < 0 || a->rank > SN_MAX_RANK)
        return sn_fail(err, SN_ERR_USAGE, "%s '%s': rank %d; the maximum is %d", what, a->name,
                       a->rank, SN_MAX_RANK);
    if (a->rank && !a->shape)
        return sn_fail(err, SN_ERR_USAGE, "%s '%s' has %d axes, but its shape is NULL", what,
                       a->name, a->rank);
    if (elements(a) < 0)
        return sn_fail(err, SN_ERR_SHAPE, "%s '%s': a size is negative, or the product overflows",
                       what, a->name);
    if (with_data && !a->data && elements(a))
        return sn_fail(err, SN_ERR_USAGE, "%s '%s' has no data (NULL)", what, a->name);
    return true;
}

bool sn_bindings_check(const sn_arg_binding *list, int n, const char *what, bool with_data,
                       sn_error *err) {
    if (n < 0 || (n && !list))
        return sn_fail(err, SN_ERR_USAGE, "a list of %d %ss%s", n, what,
                       list ? "" : " that is NULL");
    for (int i = 0; i < n; i++) {
        if (!check_one(&list[i], i, what, with_data, err)) return false;
        for (int j = 0; j < i; j++)
            if (!strcmp(list[j].name, list[i].name))
                return sn_fail(err, SN_ERR_USAGE, "%s '%s' is bound twice", what, list[i].name);
    }
    return true;
}

static bool overlap(const sn_arg_binding *a, const sn_arg_binding *b) {
    size_t n = (size_t)elements(a) * sn_dtype_size(a->dtype),
           k = (size_t)elements(b) * sn_dtype_size(b->dtype);
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return n && k && (x < y ? y - x < n : x - y < k);
}

bool sn_bindings_check_overlap(const sn_arg_binding *in, int n_in, const sn_arg_binding *out,
                               int n_out, sn_error *err) {
    for (int i = 0; i < n_out; i++) {
        for (int k = 0; k < n_in; k++)
            if (overlap(&out[i], &in[k]))
                return sn_fail(err, SN_ERR_USAGE,
                               "output '%s' overlaps input '%s' in memory; use a separate buffer: "
                               "kernels run in any order",
                               out[i].name, in[k].name);
        for (int k = 0; k < i; k++)
            if (overlap(&out[i], &out[k]))
                return sn_fail(err, SN_ERR_USAGE, "outputs '%s' and '%s' overlap in memory",
                               out[k].name, out[i].name);
    }
    return true;
}

const sn_arg_binding *sn_find_arg(const sn_arg_binding *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}
