/* ranges.c: what the sizes of a run must fulfil beyond the ranges of their symbols: no axis and no
 * start is negative, slices and updates end inside their axis, an axis that indices select from is
 * not empty, every tensor can be counted. Conditions that the ranges prove are left out. The JIT
 * tests the others before a run; artefacts test the same list in generated code. */
#include "codegen/program/program.h"
#include "codegen/emit/dims.h"

#include <string.h>

/* ---- finding ---- */

typedef struct finder {
    sn_module *m;
    sn_range_check *check;
    int n, cap;
} finder;

static bool same_dims(int n, const sn_dim *a, const sn_dim *b) {
    return !n || !memcmp(a, b, sizeof *a * (size_t)n);
}

static void add(finder *f, sn_range_check k) {
    for (int i = 0; i < f->n; i++) {
        const sn_range_check *o = &f->check[i];
        bool sign = k.kind <= SN_RANGE_START && o->kind <= SN_RANGE_START;
        if ((sign || o->kind == k.kind) && o->low == k.low && o->high == k.high &&
            o->rank == k.rank && same_dims(k.rank, o->shape, k.shape))
            return;
    }
    f->check = sn_arena_grow(f->m, f->check, sizeof *f->check, f->n, &f->cap);
    f->check[f->n++] = k;
}

static void not_negative(finder *f, sn_range_kind kind, const sn_node *n, sn_dim d) {
    if (sn_dim_lo(f->m, d) < 0) add(f, (sn_range_check){.kind = kind, .high = d, .node = n});
}

static void at_most(finder *f, const sn_node *n, sn_dim end, sn_dim extent) {
    if (!sn_dim_le(f->m, end, extent))
        add(f, (sn_range_check){.kind = SN_RANGE_END, .low = end, .high = extent, .node = n});
}

/* The number of elements, an empty axis counted as 1; false: more than SN_MAX_ELEMENTS. */
static bool countable(int64_t *count, int64_t size) {
    int64_t n = size < 1 ? 1 : size;
    return !__builtin_mul_overflow(*count, n, count) && *count <= SN_MAX_ELEMENTS;
}

/* One condition for all tensors that differ by constant factors only: the largest of them. */
static void add_count(finder *f, const sn_node *n, int rank, const sn_dim *shape) {
    int64_t max_count = 1, value;
    bool proved = true;
    for (int i = 0; i < rank; i++)
        proved = proved && countable(&max_count, sn_dim_hi(f->m, shape[i]));
    if (proved) return;
    sn_dim *dim = sn_arena_alloc(f->m, sizeof *dim * (SN_MAX_RANK + 1));
    int n_dim = 0;
    int64_t factor = 1;
    for (int i = 0; i < rank; i++)
        if (!sn_dim_is_const(f->m, shape[i], &value))
            dim[n_dim++] = shape[i];
        else if (!countable(&factor, value))
            factor = SN_MAX_ELEMENTS + 1;
    dim[n_dim++] = factor;
    for (int i = 0; i < f->n; i++) {
        sn_range_check *o = &f->check[i];
        if (o->kind != SN_RANGE_COUNT || o->rank != n_dim || !same_dims(n_dim - 1, o->shape, dim))
            continue;
        if (o->shape[n_dim - 1] >= factor) return;
        o->shape = dim;
        o->node = n;
        return;
    }
    add(f, (sn_range_check){.kind = SN_RANGE_COUNT, .node = n, .rank = n_dim, .shape = dim});
}

static void add_shape(finder *f, const sn_node *n, int rank, const sn_dim *shape) {
    for (int i = 0; i < rank; i++) not_negative(f, SN_RANGE_SIZE, n, shape[i]);
    add_count(f, n, rank, shape);
}

static void add_window(finder *f, const sn_node *n, const sn_dim *size) {
    const sn_attr *start = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    for (int a = 0; a < n->in[0]->rank; a++) {
        int64_t by = step ? step->v[a] : 1;
        sn_dim last = sn_dim_mul(f->m, sn_dim_sub(f->m, size[a], 1), by);
        sn_dim end = sn_dim_add(f->m, sn_dim_add(f->m, start->v[a], last), 1);
        not_negative(f, SN_RANGE_START, n, start->v[a]);
        at_most(f, n, end, n->in[0]->shape[a]);
        /* of no elements `end` is before the start */
        if (by > 1 && sn_dim_lo(f->m, size[a]) < 1) at_most(f, n, start->v[a], n->in[0]->shape[a]);
    }
}

static void not_empty(finder *f, const sn_node *n, sn_dim size, const sn_node *index) {
    bool never = false;
    for (int i = 0; i < index->rank; i++) never |= index->shape[i] == 0;
    if (never || sn_dim_lo(f->m, size) >= 1) return;
    add(f, (sn_range_check){.kind = SN_RANGE_AXIS,
                            .low = 1,
                            .high = size,
                            .node = n,
                            .rank = index->rank,
                            .shape = index->shape});
}

static void find(finder *f, const sn_node *n) {
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    if (n->n_result < 2) add_shape(f, n, n->rank, n->shape);
    for (int i = 0; i < n->n_result && n->n_result > 1; i++)
        add_shape(f, n, n->result_type[i]->rank, n->result_type[i]->shape);
    if (n->op == SN_OP_slice) add_window(f, n, n->shape);
    if (n->op == SN_OP_argsort) at_most(f, n, n->shape[axis], n->in[0]->shape[axis]);
    if (n->op == SN_OP_update_slice) add_window(f, n, n->in[1]->shape);
    for (int a = 0; n->op == SN_OP_pad && a < n->rank; a++) {
        not_negative(f, SN_RANGE_START, n, sn_attr_get(n, SN_A_low)->v[a]);
        not_negative(f, SN_RANGE_START, n, sn_attr_get(n, SN_A_high)->v[a]);
    }
    if (n->op == SN_OP_gather) not_empty(f, n, n->in[0]->shape[axis], n->in[1]);
    if (n->op == SN_OP_scatter_add) not_empty(f, n, n->shape[axis], n->in[1]);
    for (int i = 1; n->op == SN_OP_gather_nd && i < n->n_in; i++)
        not_empty(f, n, n->in[0]->shape[i - 1], n->in[i]);
    for (int i = 1; n->op == SN_OP_scatter_nd_add && i < n->n_in; i++)
        not_empty(f, n, n->shape[i - 1], n->in[i]);
}

/* What n needs, and what it stands for: all of them have smaller ids. */
static void reach(bool *reached, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++) reached[n->in[i]->id] = true;
    if (n->decomposition) reached[n->decomposition->id] = true;
    for (int a = 0; sn_ops[n->op].kind == SN_FUSED && a < n->n_attr; a++) {
        const sn_region *r = n->attr[a].r;
        if (sn_attr_table[n->attr[a].key].kind != SN_AK_REGION) continue;
        for (int i = 0; i < r->n_out; i++) reached[r->out[i]->id] = true;
    }
}

int sn_ranges_find(sn_module *m, const sn_entry *e, sn_range_check **check) {
    finder f = {.m = m};
    sn_order order = sn_entry_topo(m, e);
    uint32_t count = sn_module_node_count(m);
    bool *reached = sn_arena_alloc(m, count + 1);
    memset(reached, 0, count + 1);
    for (int i = 0; i < order.n; i++) reached[order.node[i]->id] = true;
    for (uint32_t id = count; id-- > 0;)
        if (reached[id]) reach(reached, sn_module_node(m, id));
    for (uint32_t id = 0; id < count; id++)
        if (reached[id]) find(&f, sn_module_node(m, id));
    *check = f.check;
    return f.n;
}

int sn_range_dims(const sn_range_check *k, sn_dim dim[2 + SN_MAX_RANK]) {
    dim[0] = k->low;
    dim[1] = k->high;
    if (k->rank) memcpy(dim + 2, k->shape, sizeof *dim * (size_t)k->rank);
    return 2 + k->rank;
}

/* ---- words ---- */

typedef enum part { NONE, LOW, HIGH, INDICES, TENSOR } part;

static const struct {
    const char *before;
    part first;
    const char *between;
    part second;
    const char *after;
} words[] = {
    [SN_RANGE_SIZE] = {"the size ", HIGH, " of an axis is negative", NONE, ""},
    [SN_RANGE_START] = {"the start ", HIGH, " is negative", NONE, ""},
    [SN_RANGE_END] = {"the end ", LOW, " exceeds ", HIGH, ""},
    [SN_RANGE_AXIS] = {"the axis of size ", HIGH, " is empty, its indices ", INDICES, " are not"},
    [SN_RANGE_COUNT] = {"the tensor ", TENSOR, " has more than 2^48 elements", NONE, ""},
};

/* What users call the operation: an argsort of some elements only is made by sn_top_k. */
static const char *name_of(const sn_node *n) {
    return n->op == SN_OP_argsort && sn_attr_get(n, SN_A_size) ? "top_k" : sn_ops[n->op].name;
}

/* "T-5 = -4"; without values "T-5". */
static void print_dim(const sn_module *m, sn_dim d, const int64_t *symbol, char *buf, size_t size) {
    int at = sn_dim_print(m, d, buf, size);
    if (symbol && !sn_dim_is_const(m, d, NULL) && at > 0 && (size_t)at < size)
        snprintf(buf + at, size - (size_t)at, " = %lld", (long long)sn_dim_eval(m, d, symbol));
}

static void print_shape(const sn_module *m, int rank, const sn_dim *shape, const int64_t *symbol,
                        char *buf, size_t size) {
    int at = sn_shape_print(m, rank, shape, buf, size);
    bool open = false;
    for (int i = 0; i < rank; i++) open |= !sn_dim_is_const(m, shape[i], NULL);
    for (int i = 0; i < rank && symbol && open && (size_t)at + 24 < size; i++)
        at += snprintf(buf + at, size - (size_t)at, "%s%lld%s", i ? "," : " = [",
                       (long long)sn_dim_eval(m, shape[i], symbol), i + 1 < rank ? "" : "]");
}

static void print_part(const sn_range_check *k, part what, const int64_t *symbol, char buf[128]) {
    const sn_module *m = k->node->m;
    *buf = 0;
    if (what == LOW || what == HIGH)
        print_dim(m, what == LOW ? k->low : k->high, symbol, buf, 128);
    else if (what == INDICES)
        print_shape(m, k->rank, k->shape, symbol, buf, 128);
    else if (what == TENSOR)
        print_shape(m, k->node->rank, k->node->shape, symbol, buf, 128);
}

void sn_range_print(const sn_range_check *k, const int64_t *symbol, char *buf, size_t size) {
    char first[128], second[128];
    const char *file = k->node->loc.file ? k->node->loc.file : "?", *slash = strrchr(file, '/');
    print_part(k, words[k->kind].first, symbol, first);
    print_part(k, words[k->kind].second, symbol, second);
    snprintf(buf, size, "%s (%s:%d): %s%s%s%s%s", name_of(k->node), slash ? slash + 1 : file,
             k->node->loc.line, words[k->kind].before, first, words[k->kind].between, second,
             words[k->kind].after);
}

/* ---- testing ---- */

static bool holds(const sn_range_check *k, const int64_t *symbol) {
    const sn_module *m = k->node->m;
    int64_t count = 1;
    bool ok = true, empty = false;
    if (k->kind == SN_RANGE_COUNT) {
        for (int i = 0; i < k->rank && ok; i++)
            ok = countable(&count, sn_dim_eval(m, k->shape[i], symbol));
        return ok;
    }
    if (sn_dim_eval(m, k->low, symbol) <= sn_dim_eval(m, k->high, symbol)) return true;
    for (int i = 0; i < k->rank; i++) empty |= sn_dim_eval(m, k->shape[i], symbol) == 0;
    return empty;
}

bool sn_range_holds(const sn_range_check *k, const char *entry, const int64_t *symbol,
                    sn_error *err) {
    if (holds(k, symbol)) return true;
    char text[400];
    sn_range_print(k, symbol, text, sizeof text);
    return sn_fail(err, k->kind == SN_RANGE_COUNT ? SN_ERR_MEMORY : SN_ERR_RANGE, "%s: %s", entry,
                   text);
}

/* ---- generated code ---- */

em_val sn_range_emit(em *e, const sn_range_check *k, em_val symbols) {
    const sn_module *m = k->node->m;
    em_var overflow = em_let(e, em_i1(e, false));
    em_val empty = em_i1(e, false), count = em_i64(e, 1);
    bool counts = k->kind == SN_RANGE_COUNT;
    for (int i = 0; i < k->rank; i++) {
        em_val size = sn_dim_emit(e, m, k->shape[i], symbols, &overflow);
        if (counts) count = em_mul_checked(e, count, em_imax(e, size, 1), &overflow);
        empty = em_or(e, empty, em_cmp(e, EM_EQ, size, 0));
    }
    em_val low = counts ? count : sn_dim_emit(e, m, k->low, symbols, &overflow),
           high =
               counts ? em_i64(e, SN_MAX_ELEMENTS) : sn_dim_emit(e, m, k->high, symbols, &overflow);
    em_val broken = em_or(e, em_cmp(e, EM_GT, low, high), em_get(e, overflow));
    return k->kind == SN_RANGE_AXIS ? em_and(e, broken, em_not(e, empty)) : broken;
}
