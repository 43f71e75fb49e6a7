/* cumulate.c: running sums, and running results of other operations. Threads share rows; a thread visits the
 * elements of a row in order. Running results of a long axis are computed in blocks that do not depend on the
 * threads, so the bits do not depend on their number. */
#include "codegen/emit/elem.h"
#include "codegen/rows/lines.h"

static void emit_cumsum(em *e, const sn_kernel *k) {
    const sn_view *x = &k->step->in[0], *y = &k->step->out[0];
    int axis = (int)sn_attr_int(k->step->node, SN_A_axis, 0);
    em_kernel(e, k->name);
    em_val lo, hi;
    em_share(e, sn_line_count(e, k, x, axis), &lo, &hi);
    em_loop row = em_for(e, lo, hi, 1);
    em_val from = sn_line_offset(e, k, x, axis, row.i), to = sn_line_offset(e, k, y, axis, row.i);
    em_type t = sn_dtype_is_float(x->dtype) ? e->ft : em_mem_type(e, x->dtype);
    em_loop step = em_for(e, 0, sn_line_extent(e, k, x, axis), 1);
    em_val sum = em_zero(t);
    em_carries(e, &step, &sum, 1);
    em_val at = em_add(e, from, em_mul(e, step.i, sn_kernel_dim(e, k, x->stride[axis])));
    sum = em_add(e, sum, em_load(e, x->dtype, em_gep(e, em_buf(e, 0), x->dtype, at), 1));
    at = em_add(e, to, em_mul(e, step.i, sn_kernel_dim(e, k, y->stride[axis])));
    em_store(e, y->dtype, em_gep(e, em_buf(e, 1), y->dtype, at), sum);
    em_end(e, &step);
    em_end(e, &row);
    em_end_kernel(e);
}

/* ---- running results: a scan whose carry is combined with each element ----
 *
 * The axis is divided into blocks, by its length and the number of rows only. The first half of the kernel
 * combines the elements of each block but the last; the second one begins each block with what comes before it,
 * and combines within vectors by shifts of 1, 2, 4, ... lanes. Where results must not depend on the number of
 * rows there is one block; where they must not depend on the length, either, elements are combined one by one. */

enum { MAX_BLOCKS = 64, MAX_ROWS = 64, LEAST_BLOCK = 2048, CHAINS = 4 };

typedef struct running {
    em *e;
    const sn_kernel *k;
    const sn_region *body; /* its first result combines the carry and an element */
    sn_region_code code;   /* of this result */
    bool reverse;
    em_val T, rows, block, n_block;
} running;

static em_val combined(const running *r, em_val before, em_val x) {
    sn_region_code c = r->code;
    const em_val arg[] = {before, x};
    sn_region_forget(&c, ~0u);
    for (int i = 0; i < 2; i++) sn_region_arg(&c, i, arg[i], 0);
    sn_region_emit(&c, ~0u);
    em_val y = sn_region_value(&c, 0);
    int lanes = em_lanes_of(before);
    return em_lanes_of(y) == lanes ? y : em_splat(r->e, y, lanes);
}

static running running_of(em *e, const sn_kernel *k) {
    sn_scan s = sn_scan_of(k->step->node);
    const sn_view *x = &k->step->in[1];
    running r = {.e = e, .k = k, .body = s.body, .reverse = s.reverse};
    if (sn_region_begin(&r.code, e, s.body)) sn_region_only(&r.code, s.body->out, 1, NULL, 0);
    r.T = sn_line_extent(e, k, x, 0);
    r.rows = sn_line_count(e, k, x, 0);
    em_val size = em_mul(e, em_ceil_div(e, em_ceil_div(e, r.T, MAX_BLOCKS), 64), 64);
    size = em_imax(e, size, LEAST_BLOCK);
    em_val all = em_imax(e, r.T, 1);
    em_val many = em_cmp(e, EM_GE, r.rows, sn_kernel_invariant(k) ? 0 : MAX_ROWS);
    r.block = em_select(e, many, all, size);
    em_val n = em_div(e, em_sub(e, em_add(e, r.T, r.block), 1), r.block);
    r.n_block = em_imax(e, n, 1);
    return r;
}

/* The address of n elements of a row from element i on, in the order of memory. */
static em_val elements_at(const running *r, const sn_view *v, em_val row, em_val i, int n) {
    em *e = r->e;
    if (r->reverse) i = em_sub(e, em_sub(e, r->T, n), i);
    return em_gep(e, row, v->dtype, em_mul(e, i, sn_kernel_dim(e, r->k, v->stride[0])));
}

static em_val reversed(const running *r, em_val v, int n) {
    int lane[64];
    for (int i = 0; i < n; i++) lane[i] = n - 1 - i;
    return r->reverse && n > 1 ? em_shuffle(r->e, v, v, lane, n) : v;
}

static em_val load_elements(const running *r, em_val row, em_val i, int n) {
    em *e = r->e;
    const sn_view *x = &r->k->step->in[1];
    em_val p = elements_at(r, x, row, i, n);
    if (n == 1 || x->stride[0] == 1) return reversed(r, em_load(e, x->dtype, p, n), n);
    em_val at =
        em_mul(e, em_iota(e, e->i64, n), em_splat(e, sn_kernel_dim(e, r->k, x->stride[0]), n));
    return reversed(r, em_gather(e, x->dtype, p, at, NULL), n);
}

static void store_elements(const running *r, const sn_view *y, em_val row, em_val i, em_val v,
                           int n) {
    em *e = r->e;
    em_val p = elements_at(r, y, row, i, n);
    v = reversed(r, v, n);
    if (n == 1 || y->stride[0] == 1) {
        em_store(e, y->dtype, p, v);
        return;
    }
    for (int lane = 0; lane < n; lane++) {
        em_val by = em_mul(e, sn_kernel_dim(e, r->k, y->stride[0]), lane);
        em_store(e, y->dtype, em_gep(e, p, y->dtype, by), em_extract(e, v, lane));
    }
}

/* All lanes of a vector, in order. */
static em_val folded(const running *r, em_val v, int n) {
    em *e = r->e;
    for (; n > 1; n /= 2) {
        int lane[2][64];
        for (int i = 0; i < n; i++) lane[i % 2][i / 2] = i;
        v = combined(r, em_shuffle(e, v, v, lane[0], n / 2), em_shuffle(e, v, v, lane[1], n / 2));
    }
    return v;
}

/* CHAINS vectors from element i on, in order. */
static em_val folded_chains(const running *r, em_val row, em_val i) {
    em *e = r->e;
    em_val sum = NULL;
    for (int k = 0; k < CHAINS; k++) {
        em_val v = load_elements(r, row, em_add(e, i, (int64_t)k * e->lanes), e->lanes);
        v = folded(r, v, e->lanes);
        sum = sum ? combined(r, sum, v) : v;
    }
    return sum;
}

/* The same as total_of for operations that do not commute. */
static em_val total_in_order(const running *r, em_val row, em_val from) {
    em *e = r->e;
    int64_t each = (int64_t)CHAINS * e->lanes;
    em_val sum = folded_chains(r, row, from);
    em_loop l = em_for(e, em_add(e, from, each), em_add(e, from, r->block), each);
    em_carries(e, &l, &sum, 1);
    sum = combined(r, sum, folded_chains(r, row, l.i));
    em_end(e, &l);
    return sum;
}

/* All elements of the block that begins at element `from`: several chains of vectors in turn. */
static em_val total_of(const running *r, em_val row, em_val from) {
    em *e = r->e;
    int n = e->lanes;
    em_val sum[CHAINS];
    for (int i = 0; i < CHAINS; i++) sum[i] = load_elements(r, row, em_add(e, from, i * n), n);
    em_val first = em_add(e, from, CHAINS * n), end = em_add(e, from, r->block);
    em_loop l = em_for(e, first, end, CHAINS * n);
    em_carries(e, &l, sum, CHAINS);
    for (int i = 0; i < CHAINS; i++) {
        em_val x = load_elements(r, row, em_add(e, l.i, i * n), n);
        sum[i] = combined(r, sum[i], x);
    }
    em_end(e, &l);
    for (int i = 1; i < CHAINS; i++) sum[0] = combined(r, sum[0], sum[i]);
    while ((n /= 2) >= 1) sum[0] = combined(r, em_part(e, sum[0], 0, n), em_part(e, sum[0], n, n));
    return sum[0];
}

/* Each lane with all lanes before it. */
static em_val within_vector(const running *r, em_val v, int n) {
    em *e = r->e;
    em_val index = em_iota(e, e->i32, n);
    for (int by = 1; by < n; by *= 2) {
        int lane[64];
        for (int i = 0; i < n; i++) lane[i] = i < by ? i : i - by;
        em_val later = em_cmp(e, EM_GE, index, em_splat(e, em_i32(e, by), n));
        v = em_select(e, later, combined(r, em_shuffle(e, v, v, lane, n), v), v);
    }
    return v;
}

/* n elements from i on; returns the carry after them. */
static em_val run_elements(const running *r, const em_val *row, em_val i, int n, em_val before) {
    em *e = r->e;
    const sn_scan s = sn_scan_of(r->k->step->node);
    em_val v = within_vector(r, load_elements(r, row[0], i, n), n);
    v = combined(r, em_splat(e, before, n), v);
    em_val after = n > 1 ? em_extract(e, v, n - 1) : v;
    for (int y = 1; y < s.body->n_out; y++) {
        em_val out = v;
        if (s.body->out[y]->op == SN_OP_arg) { /* the carry before the element */
            int lane[64];
            for (int k = 0; k < n; k++) lane[k] = k ? k - 1 : 0;
            out = n > 1 ? em_insert(e, em_shuffle(e, v, v, lane, n), before, 0) : before;
        }
        store_elements(r, &r->k->step->out[y], row[y], i, out, n);
    }
    return after;
}

static em_val total_at(const running *r, em_val row, em_val block) {
    em *e = r->e;
    sn_dtype t = r->k->step->in[1].dtype;
    em_val at = em_add(e, em_mul(e, row, MAX_BLOCKS), block);
    return em_gep(e, em_buf(e, r->k->step->n_in + r->k->step->n_out), t, at);
}

static void emit_totals(em *e, const sn_kernel *k) {
    em_kernel(e, k->name);
    running r = running_of(e, k);
    const sn_view *x = &k->step->in[1];
    em_val lo, hi, each = em_sub(e, r.n_block, 1);
    em_share(e, em_mul(e, r.rows, each), &lo, &hi);
    em_loop item = em_for(e, lo, hi, 1);
    em_val safe = em_imax(e, each, 1), row = em_div(e, item.i, safe), b = em_rem(e, item.i, safe);
    em_val from = em_gep(e, em_buf(e, 1), x->dtype, sn_line_offset(e, k, x, 0, row));
    bool commutes =
        sn_topo(k->m, 1, r.body->out).n == 3 && sn_ops[r.body->out[0]->op].flags & SN_OPF_COMM;
    em_val start = em_mul(e, b, r.block);
    em_store(e, x->dtype, total_at(&r, row, b),
             commutes ? total_of(&r, from, start) : total_in_order(&r, from, start));
    em_end(e, &item);
    em_end_kernel(e);
}

/* The carry at the start of a block. */
static em_val carry_at(const running *r, em_val row, em_val block) {
    em *e = r->e;
    const sn_view *first = &r->k->step->in[0];
    em_val at = sn_line_offset(e, r->k, first, -1, row);
    em_val sum = em_load(e, first->dtype, em_gep(e, em_buf(e, 0), first->dtype, at), 1);
    em_loop l = em_for(e, 0, block, 1);
    em_carries(e, &l, &sum, 1);
    sum = combined(r, sum, em_load(e, first->dtype, total_at(r, row, l.i), 1));
    em_end(e, &l);
    return sum;
}

static void emit_blocks(em *e, const sn_kernel *k, const char *name) {
    em_kernel(e, name);
    running r = running_of(e, k);
    em_val lo, hi, row_of[SN_MAX_RESULTS];
    int n_out = sn_scan_of(k->step->node).body->n_out;
    em_share(e, em_mul(e, r.rows, r.n_block), &lo, &hi);
    em_loop item = em_for(e, lo, hi, 1);
    em_val row = em_div(e, item.i, r.n_block), b = em_rem(e, item.i, r.n_block);
    for (int i = 0; i < n_out; i++) { /* 0: of the sequence */
        const sn_view *v = i ? &k->step->out[i] : &k->step->in[1];
        em_val base = em_buf(e, i ? k->step->n_in + i : 1);
        row_of[i] = em_gep(e, base, v->dtype, sn_line_offset(e, k, v, 0, row));
    }
    em_val from = em_mul(e, b, r.block), end = em_imin(e, em_add(e, from, r.block), r.T);
    em_val whole = em_add(e, from, em_round_down(e, em_sub(e, end, from), e->lanes));
    if (sn_kernel_keeps_chunks(k)) whole = from;
    em_val sum = carry_at(&r, row, b);
    em_loop main = em_for(e, from, whole, e->lanes);
    em_carries(e, &main, &sum, 1);
    sum = run_elements(&r, row_of, main.i, e->lanes, sum);
    em_end(e, &main);
    em_loop rest = em_for(e, whole, end, 1);
    em_carries(e, &rest, &sum, 1);
    sum = run_elements(&r, row_of, rest.i, 1, sum);
    em_end(e, &rest);
    em_branch last = em_if(e, em_cmp(e, EM_EQ, b, em_sub(e, r.n_block, 1)));
    const sn_view *carry = &k->step->out[0];
    em_val to =
        em_gep(e, em_buf(e, k->step->n_in), carry->dtype, sn_line_offset(e, k, carry, -1, row));
    em_store(e, carry->dtype, to, sum);
    em_endif(e, &last);
    em_end(e, &item);
    em_end_kernel(e);
}

static void emit_cumulate(em *e, const sn_kernel *k) {
    char name[64];
    snprintf(name, sizeof name, "%s_finish", k->name);
    emit_totals(e, k);
    emit_blocks(e, k, name);
}

static int64_t cumulate_shared(const sn_kernel *k, const sn_target *t) {
    (void)t;
    return MAX_ROWS * MAX_BLOCKS * (int64_t)sn_dtype_size(k->step->in[1].dtype);
}

const sn_family sn_family_cumulate = {.emit = emit_cumulate, .shared = cumulate_shared};
const sn_family sn_family_cumsum = {.emit = emit_cumsum};
