/* pass_check.c: translation validation: a graph as text, evaluated before and after passes on the
 * same random inputs. */
#include "tests/support/pass_check.h"
#include "passes/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool pass_run(sn_module *m, const char *passes, char *why, size_t size) {
    sn_passes p;
    sn_pass_options o = {
        .level = 4, .backend = "native", .only = passes, .verify = true, .constant_params = true};
    sn_module_set_raw(m, false);
    if (sn_passes_run(&p, m, &o)) return true;
    snprintf(why, size, "passes: %s", sn_module_error(m)->message);
    return false;
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t hash_name(const char *s) {
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 1099511628211u;
    return h;
}

/* A value of the symbol near its lower bound; depends on the name only. */
static void set_symbols(const sn_module *m, int64_t *value) {
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        int64_t v = s->lo + 2 + (int64_t)(hash_name(s->name) % 3);
        value[i] = v > s->hi ? s->hi : v;
    }
}

static void store_value(void *data, sn_dtype t, int64_t i, uint64_t bits) {
    double v = (double)(bits >> 11) * 0x1p-53 * 4 - 2;
    float f = (float)v;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    switch (t) {
    case SN_F32:
        ((float *)data)[i] = f;
        break;
    case SN_F64:
        ((double *)data)[i] = v;
        break;
    case SN_BF16:
        ((uint16_t *)data)[i] = (uint16_t)(word >> 16);
        break;
    case SN_F16: /* +-1.mmm: exponent 0 */
        ((uint16_t *)data)[i] = (uint16_t)(0x3c00 | (bits & 0x8380));
        break;
    case SN_I32:
        ((int32_t *)data)[i] = (int32_t)(bits >> 62);
        break;
    case SN_I64:
        ((int64_t *)data)[i] = (int64_t)(bits >> 62);
        break;
    default: /* bytes */
        ((uint8_t *)data)[i] = (uint8_t)(t == SN_BOOL ? bits >> 63 : bits >> 62);
    }
}

static void bind_leaf(sn_eval *ev, sn_module *m, const sn_node *n, const int64_t *symbols) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    int64_t count = 1;
    for (int i = 0; i < n->rank; i++) count *= sn_dim_eval(m, n->shape[i], symbols);
    size_t bytes = (size_t)count * sn_dtype_size((sn_dtype)n->dtype);
    void *data = calloc(1, bytes + 1);
    if (!data) abort();
    uint64_t state = hash_name(name);
    for (int64_t i = 0; i < count; i++)
        store_value(data, (sn_dtype)n->dtype, i, next_random(&state));
    sn_eval_bind(ev, name, data, bytes);
    free(data);
}

static sn_eval *new_eval(sn_module *m, const sn_order *order) {
    int64_t symbols[64];
    set_symbols(m, symbols);
    sn_eval *ev = sn_eval_new(m, symbols);
    if (!ev) abort();
    for (int i = 0; i < order->n; i++) {
        const sn_node *n = order->node[i];
        if (sn_ops[n->op].flags & SN_OPF_EXTERNAL) bind_leaf(ev, m, n, symbols);
    }
    return ev;
}

/* Outputs, assignments and taps of an entry. */
static int list_roots(sn_entry *e, sn_node **root, int cap) {
    const sn_binding *list[] = {e->output, e->assign, e->tap};
    int size[] = {e->n_output, e->n_assign, e->n_tap}, n = 0;
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < size[l] && n < cap; i++) root[n++] = list[l][i].node;
    return n;
}

static bool close_to(double x, double y, double tolerance) {
    if (isnan(x) || x == y) return true;
    if (isinf(x) || isinf(y)) return false;
    return fabs(x - y) <= tolerance * (1 + fabs(x));
}

static bool compare(int root, const sn_value *x, const sn_value *y, double tolerance,
                    bool allow_nan, char *why, size_t size) {
    bool same = x->dtype == y->dtype && x->rank == y->rank && x->n == y->n &&
                (!x->rank || !memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)x->rank));
    int64_t nan = 0;
    if (!same) snprintf(why, size, "root %d has another type", root);
    for (int64_t i = 0; i < x->n && same; i++) {
        nan += isnan(x->data[i]);
        if (!close_to(x->data[i], y->data[i], tolerance)) {
            snprintf(why, size, "root %d, element %lld of %lld: %.17g became %.17g", root,
                     (long long)i, (long long)x->n, x->data[i], y->data[i]);
            return false;
        }
    }
    if (!allow_nan && nan > 1 && nan == x->n) {
        snprintf(why, size, "root %d is NaN everywhere: nothing is compared", root);
        return false;
    }
    return same;
}

enum { MAX_ROOTS = 256 };

static bool compare_entry(sn_module *a, sn_module *b, int entry, double tolerance, bool allow_nan,
                          char *why, size_t size) {
    sn_node *ra[MAX_ROOTS], *rb[MAX_ROOTS];
    int n = list_roots(sn_entry_at(a, entry), ra, MAX_ROOTS);
    if (list_roots(sn_entry_at(b, entry), rb, MAX_ROOTS) != n) {
        snprintf(why, size, "results were lost");
        return false;
    }
    sn_order oa = sn_topo(a, n, ra), ob = sn_topo(b, n, rb);
    sn_eval *ea = new_eval(a, &oa), *eb = new_eval(b, &ob);
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        const sn_value *x = sn_eval_node(ea, ra[i]), *y = x ? sn_eval_node(eb, rb[i]) : NULL;
        ok = x && y;
        if (!ok)
            snprintf(why, size, "evaluation %s: %s", x ? "after" : "before",
                     sn_module_error(x ? b : a)->message);
        else
            ok = compare(i, x, y, tolerance, allow_nan, why, size);
    }
    sn_eval_free(ea);
    sn_eval_free(eb);
    return ok;
}

bool pass_check(const char *text, const char *passes, double tolerance, bool allow_nan, char *why,
                size_t size) {
    sn_error err = {0};
    sn_module *a = sn_parse(text, "before", true, &err);
    sn_module *b = a ? sn_parse(text, "after", true, &err) : NULL;
    bool ok = b != NULL;
    if (!ok) snprintf(why, size, "%s", err.message);
    ok = ok && pass_run(b, passes, why, size);
    for (int i = 0; ok && i < sn_entry_count(a); i++)
        ok = compare_entry(a, b, i, tolerance, allow_nan, why, size);
    sn_module_free(a);
    sn_module_free(b);
    return ok;
}
