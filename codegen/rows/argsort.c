/* argsort.c: the order of a row's elements. Threads share the rows, so that nothing depends on
 * their number.
 *
 * An element becomes a 64-bit key whose signed order is the wanted one: floats by the usual bijection
 * of their bits, with both zeros equal and NaN above all numbers; complemented for descending order.
 * Few indices (routers) are found by insertion into a sorted list, which looks at each element once
 * and orders equal keys by their indices; others by a radix sort from the lowest byte on, of those that
 * a bound does not rule out. Both are stable. If the list fits into registers, each lane of a vector has
 * the list of a row of its own. */
#include "codegen/rows/lines.h"
#include "codegen/tile/tile.h"

enum { BYTES = 16 /* a key, its index */ };

typedef struct sorter {
    const sn_kernel *k;
    const sn_view *x, *y;
    int axis, bits; /* of a key */
    bool descending;
    em_val n, size;    /* elements of a row, indices wanted */
    em_val x_at, y_at; /* offsets of the row's first element */
} sorter;

static em_val load(em *e, em_val list, em_val i) {
    return em_load_raw(e, e->i64, em_gep(e, list, SN_I64, i), 8);
}

static void store(em *e, em_val v, em_val list, em_val i) {
    em_store_raw(e, v, em_gep(e, list, SN_I64, i), 8);
}

static int key_bits(sn_dtype t) {
    return sn_dtype_size(t) == 8 ? 64 : 32;
}

/* Lists in scratch: of `n` keys, of their indices. */
typedef struct list {
    em_val key, index;
} list;

static list list_at(em *e, em_val bytes, em_val n) {
    em_val key = em_gep_bytes(e, e->scratch, bytes);
    return (list){key, em_gep(e, key, SN_I64, n)};
}

/* The keys of v's lanes, as integers of s->bits. */
static em_val float_key(em *e, const sorter *s, em_val v) {
    const int n = em_lanes_of(v);
    em_val zero = em_like(e, v, 0);
    v = em_select(e, em_cmp(e, EM_EQ, v, zero), zero, v);
    em_val b = em_bitcast(e, v, em_vec(s->bits == 64 ? e->i64 : e->i32, n));
    em_val sign = em_ashr(e, b, em_like(e, b, s->bits - 1));
    em_val key = em_xor(e, b, em_lshr(e, sign, em_like(e, b, 1)));
    em_val most = s->bits == 64 ? em_i64(e, INT64_MAX) : em_i32(e, INT32_MAX);
    return em_select(e, em_cmp(e, EM_NE, v, v), em_splat(e, most, n), key);
}

/* The keys of elements i, i + 1, … of the row, as integers of s->bits. */
static em_val keys_at(em *e, const sorter *s, em_val i, int lanes) {
    const sn_view *x = s->x;
    em_val step = sn_kernel_dim(e, s->k, x->stride[s->axis]);
    em_val at = em_gep(e, em_buf(e, 0), x->dtype, em_add(e, s->x_at, em_mul(e, i, step)));
    em_val v = tile_load(e, x->dtype, at, step, lanes, NULL), key;
    if (sn_dtype_is_float(x->dtype))
        key = float_key(e, s, v);
    else
        key = em_convert(e, v, x->dtype, s->bits == 64 ? SN_I64 : SN_I32);
    return s->descending ? em_not(e, key) : key;
}

static em_val key_at(em *e, const sorter *s, em_val i) {
    return em_idx(e, keys_at(e, s, i, 1));
}

static void store_index(em *e, const sorter *s, em_val i, em_val index) {
    em_val at = em_add(e, s->y_at, em_mul(e, i, sn_kernel_dim(e, s->k, s->y->stride[s->axis])));
    em_store(e, SN_I32, em_gep(e, em_buf(e, 1), SN_I32, at), em_int_cast(e, index, e->i32));
}

/* The first `size` indices are wanted, at least 1: keeps the best so far in order. */
static void emit_insertion(em *e, const sorter *s) {
    list best = list_at(e, em_i64(e, 0), s->size);
    em_loop l = em_for(e, 0, s->n, 1);
    em_val key = key_at(e, s, l.i), last = em_sub(e, s->size, 1);
    em_val room = em_cmp(e, EM_LT, l.i, s->size);
    em_branch full = em_if(e, em_not(e, room));
    em_val worst = load(e, best.key, last);
    em_endif(e, &full);
    em_val better = em_cmp(e, EM_LT, key, em_join(e, &full, worst, key));
    em_branch enters = em_if(e, em_or(e, room, better));
    em_loop j = em_for(e, 0, em_imin(e, l.i, s->size), 1);
    em_val k = key, index = l.i;
    em_carries(e, &j, &k, 1);
    em_carries(e, &j, &index, 1);
    em_val there = load(e, best.key, j.i), its = load(e, best.index, j.i);
    em_val first = em_and(e, em_cmp(e, EM_EQ, k, there), em_cmp(e, EM_LT, index, its));
    em_val before = em_or(e, em_cmp(e, EM_LT, k, there), first);
    store(e, em_select(e, before, k, there), best.key, j.i);
    store(e, em_select(e, before, index, its), best.index, j.i);
    k = em_select(e, before, there, k);
    index = em_select(e, before, its, index);
    em_end(e, &j);
    em_branch grows = em_if(e, room);
    store(e, k, best.key, l.i);
    store(e, index, best.index, l.i);
    em_endif(e, &grows);
    em_endif(e, &enters);
    em_end(e, &l);
    em_loop out = em_for(e, 0, s->size, 1);
    store_index(e, s, out.i, load(e, best.index, out.i));
    em_end(e, &out);
}

/* ---- the list of a row in each lane ---- */

enum {
    MAX_SELECTED = 8,
    MAX_LANES = 16,
    FEW_ROWS = 4 /* for which insertion row by row is as fast */
};

typedef struct selection {
    em_val key[MAX_SELECTED], index[MAX_SELECTED]; /* the best so far, i32 vectors */
    em_val at;                                     /* offsets of the rows' first elements */
    int n, size;                                   /* entries now, in the end */
} selection;

/* Element i of each row enters its list, before the entries with larger keys. */
static void emit_entry(em *e, const sorter *s, selection *b, em_val i) {
    const sn_view *x = s->x;
    const int lanes = em_lanes_of(b->at);
    em_val step = em_mul(e, i, sn_kernel_dim(e, s->k, x->stride[s->axis]));
    em_val at = em_add(e, b->at, em_splat(e, step, lanes));
    em_val v = em_gather(e, x->dtype, em_buf(e, 0), at, NULL), better[MAX_SELECTED];
    em_val key =
        sn_dtype_is_float(x->dtype) ? float_key(e, s, v) : em_convert(e, v, x->dtype, SN_I32);
    em_val index = em_splat(e, em_int_cast(e, i, e->i32), lanes);
    if (s->descending) key = em_not(e, key);
    for (int j = 0; j < b->n; j++) better[j] = em_cmp(e, EM_LT, key, b->key[j]);
    if (b->n < b->size) b->n++;
    for (int j = b->n - 1; j >= 0; j--) {
        em_val k = j ? em_select(e, better[j - 1], b->key[j - 1], key) : key;
        em_val its = j ? em_select(e, better[j - 1], b->index[j - 1], index) : index;
        b->key[j] = b->key[j] ? em_select(e, better[j], k, b->key[j]) : k;
        b->index[j] = b->index[j] ? em_select(e, better[j], its, b->index[j]) : its;
    }
}

/* Rows [first, first + lanes). Those from hi on are the last one once more. */
static void emit_selection(em *e, sorter s, int size, em_val first, em_val hi) {
    const int lanes = sn_target_lanes(e->target, SN_F32);
    selection b = {.size = size, .at = em_zero(em_vec(e->i64, lanes))};
    em_val y_at[MAX_LANES];
    for (int l = 0; l < lanes; l++) {
        em_val row = em_imin(e, em_add(e, first, l), em_sub(e, hi, 1));
        b.at = em_insert(e, b.at, sn_line_offset(e, s.k, s.x, s.axis, row), l);
        y_at[l] = sn_line_offset(e, s.k, s.y, s.axis, row);
    }
    for (int i = 0; i < size; i++) emit_entry(e, &s, &b, em_i64(e, i));
    em_loop l = em_for(e, size, s.n, 1);
    em_carries(e, &l, b.key, size);
    em_carries(e, &l, b.index, size);
    emit_entry(e, &s, &b, l.i);
    em_end(e, &l);
    for (int row = 0; row < lanes; row++) {
        s.y_at = y_at[row];
        for (int i = 0; i < size; i++)
            store_index(e, &s, em_i64(e, i), em_extract(e, b.index[i], row));
    }
}

/* Indices of a row, if each lane can have the list of one; 0: it cannot. */
static int selected(const sn_kernel *k, const sorter *s) {
    int64_t size = 0;
    bool fits = sn_dim_is_const(k->m, s->y->shape[s->axis], &size) && size <= MAX_SELECTED;
    return fits && s->bits == 32 ? (int)size : 0;
}

/* Begins with as many rows as vectors hold. Returns the first that is left. */
static em_val emit_selections(em *e, const sorter *s, int size, em_val lo, em_val hi) {
    const int lanes = sn_target_lanes(e->target, SN_F32);
    em_val rest = em_rem(e, em_sub(e, hi, lo), lanes), whole = em_sub(e, hi, rest);
    em_val end = em_select(e, em_cmp(e, EM_LT, rest, FEW_ROWS), whole, hi);
    em_loop row = em_for(e, lo, end, lanes);
    emit_selection(e, *s, size, row.i, hi);
    em_end(e, &row);
    return end;
}

/* ---- many indices ---- */

/* A byte of a key, as an index into the buckets. */
static em_val digit(em *e, em_val key, em_val shift) {
    return em_and(e, em_lshr(e, key, shift), SN_SORT_BUCKETS - 1);
}

/* One pass: `from` in the order of the byte at `shift`, into `to`. */
static void emit_pass(em *e, const sorter *s, em_val count, list from, list to, em_val shift) {
    em_loop clear = em_for(e, 0, SN_SORT_BUCKETS, 1);
    em_store_raw(e, 0, em_gep(e, count, SN_I64, clear.i), 8);
    em_end(e, &clear);
    em_loop l = em_for(e, 0, s->n, 1);
    em_val d = digit(e, load(e, from.key, l.i), shift);
    store(e, em_add(e, load(e, count, d), 1), count, d);
    em_end(e, &l);
    em_loop sum = em_for(e, 0, SN_SORT_BUCKETS, 1);
    em_val before = em_i64(e, 0);
    em_carries(e, &sum, &before, 1);
    em_val n = load(e, count, sum.i);
    store(e, before, count, sum.i);
    before = em_add(e, before, n);
    em_end(e, &sum);
    em_loop place = em_for(e, 0, s->n, 1);
    em_val key = load(e, from.key, place.i);
    d = digit(e, key, shift);
    em_val at = load(e, count, d);
    store(e, key, to.key, at);
    store(e, load(e, from.index, place.i), to.index, at);
    store(e, em_add(e, at, 1), count, d);
    em_end(e, &place);
}

/* The digit at `shift` of entry `left` in the order of the keys that begin with `head`, behind `head`; *left: how
 * many entries before it have this digit, too. */
static em_val emit_digit(em *e, const sorter *s, em_val count, list a, em_val head, int shift,
                         em_val *left) {
    em_val zero = em_like(e, s->n, 0);
    em_loop clear = em_for(e, 0, SN_SORT_BUCKETS, 1);
    store(e, zero, count, clear.i);
    em_end(e, &clear);
    em_loop l = em_for(e, 0, s->n, 1);
    em_val key = load(e, a.key, l.i), d = digit(e, key, em_i64(e, shift));
    em_val same = em_cmp(e, EM_EQ, em_lshr(e, key, em_i64(e, shift + SN_SORT_DIGIT)), head);
    if (shift + SN_SORT_DIGIT == s->bits) same = em_i1(e, true);
    store(e, em_add(e, load(e, count, d), LLVMBuildZExt(e->b, same, e->i64, "")), count, d);
    em_end(e, &l);
    em_loop find = em_for(e, 0, SN_SORT_BUCKETS, 1);
    em_val to[] = {zero, zero, zero}; /* entries so far; the digit, entries before it */
    em_carries(e, &find, to, 3);
    em_val next = em_add(e, to[0], load(e, count, find.i));
    em_val here = em_and(e, em_cmp(e, EM_LT, to[0], *left), em_cmp(e, EM_LE, *left, next));
    to[1] = em_select(e, here, find.i, to[1]);
    to[2] = em_select(e, here, to[0], to[2]);
    to[0] = next;
    em_end(e, &find);
    *left = em_sub(e, *left, to[2]);
    return em_or(e, em_shl(e, head, em_i64(e, SN_SORT_DIGIT)), to[1]);
}

static int64_t bias_of(const sorter *s) { /* makes the least key 0 */
    return s->bits == 64 ? INT64_MIN : INT64_C(1) << 31;
}

static em_val biased(em *e, const sorter *s, em_val key) {
    key = em_int_cast(e, key, e->i64);
    return em_add(e, key, em_splat(e, bias_of(s), em_lanes_of(key)));
}

/* Element i becomes entry n of the list. */
static void list_element(em *e, const sorter *s, list a, em_val i, em_val n) {
    store(e, biased(e, s, key_at(e, s, i)), a.key, n);
    store(e, i, a.index, n);
}

/* Lists the least keys of `width` groups, element i of each is `width` elements behind element i - 1, and the keys behind
 * their `size` elements. Returns how many. */
static em_val emit_minima(em *e, const sorter *s, list a, em_val size, em_val width, int lanes) {
    em_loop group = em_for(e, 0, width, lanes);
    em_val least = keys_at(e, s, group.i, lanes);
    em_loop l = em_for(e, 1, size, 1);
    em_carries(e, &l, &least, 1);
    em_val key = keys_at(e, s, em_add(e, group.i, em_mul(e, l.i, width)), lanes);
    least = em_imin(e, least, key);
    em_end(e, &l);
    em_store_raw(e, biased(e, s, least), em_gep(e, a.key, SN_I64, group.i), 8);
    em_end(e, &group);
    em_val whole = em_mul(e, size, width), left = em_sub(e, s->n, whole);
    em_loop rest = em_for(e, 0, left, 1);
    em_val k = biased(e, s, key_at(e, s, em_add(e, whole, rest.i)));
    store(e, k, a.key, em_add(e, width, rest.i));
    em_end(e, &rest);
    return em_add(e, width, left);
}

/* The elements of a vector whose keys are at most `bound` enter the list behind its first n; returns how many it has
 * then. */
static em_val list_lanes(em *e, const sorter *s, list a, em_val first, em_val bound, em_val n,
                         int lanes) {
    em_val below = em_cmp(e, EM_LE, keys_at(e, s, first, lanes), em_splat(e, bound, lanes));
    em_val set = em_bitcast(e, below, LLVMIntTypeInContext(e->ctx, (unsigned)lanes));
    set = LLVMBuildZExt(e->b, set, e->i64, "");
    em_loop l = em_for(e, 0, em_unary_intrinsic(e, "llvm.ctpop", set), 1);
    em_carries(e, &l, &n, 1);
    em_carries(e, &l, &set, 1);
    em_val args[] = {set, em_i1(e, true)};
    em_val lane = em_intrinsic(e, "llvm.cttz", &e->i64, 1, args, 2);
    list_element(e, s, a, em_add(e, first, lane), n);
    set = em_and(e, set, em_sub(e, set, 1));
    n = em_add(e, n, 1);
    em_end(e, &l);
    return n;
}

/* Lists the elements that may be wanted, in order; returns how many. If few are wanted, the size-th of the least keys
 * of groups is a bound: so many groups have an element up to it. The first two digits of it are enough. */
static em_val emit_candidates(em *e, const sorter *s, em_val count, list a) {
    enum { GROUPS = 4 }; /* for each wanted element */
    const int lanes = sn_target_lanes(e->target, s->bits == 64 ? SN_F64 : SN_F32);
    em_val left = em_imax(e, s->size, 1), head = em_like(e, left, 0), stay = head;
    em_val of_group = em_div(e, s->n, em_mul(e, left, GROUPS));
    em_branch few = em_if(e, em_cmp(e, EM_GT, of_group, 0));
    em_val width = em_round_down(e, em_div(e, s->n, of_group), lanes);
    sorter least = *s;
    least.n = emit_minima(e, s, a, of_group, width, lanes);
    int shift = s->bits;
    for (int i = 0; i < 2; i++)
        head = emit_digit(e, &least, count, a, head, shift -= SN_SORT_DIGIT, &left);
    em_val bound = em_shl(e, em_add(e, head, 1), em_i64(e, shift)); /* behind it */
    bound = em_sub(e, bound, em_i64(e, (int64_t)((uint64_t)bias_of(s) + 1)));
    if (s->bits == 32) bound = em_int_cast(e, bound, e->i32);
    em_val whole = em_round_down(e, s->n, lanes);
    em_loop l = em_for(e, 0, whole, lanes);
    em_carries(e, &l, &stay, 1);
    stay = list_lanes(e, s, a, l.i, bound, stay, lanes);
    em_end(e, &l);
    em_loop rest = em_for(e, whole, s->n, 1);
    em_carries(e, &rest, &stay, 1);
    stay = list_lanes(e, s, a, rest.i, bound, stay, 1);
    em_end(e, &rest);
    em_else(e, &few);
    em_loop all = em_for(e, 0, s->n, 1);
    list_element(e, s, a, all.i, all.i);
    em_end(e, &all);
    em_endif(e, &few);
    return em_join(e, &few, stay, s->n);
}

/* Sorts the list of s->n entries by passes over digits. */
static void emit_radix(em *e, const sorter *s, em_val count, list a, list b) {
    em_loop pass = em_for(e, 0, s->bits, 2 * SN_SORT_DIGIT);
    emit_pass(e, s, count, a, b, pass.i);
    emit_pass(e, s, count, b, a, em_add(e, pass.i, SN_SORT_DIGIT));
    em_end(e, &pass);
    em_loop out = em_for(e, 0, s->size, 1);
    store_index(e, s, out.i, load(e, a.index, out.i));
    em_end(e, &out);
}

/* The place of each entry is the number of those before it: with few entries faster than passes over digits. */
static void emit_ranks(em *e, const sorter *s, list a) {
    const int lanes = sn_target_lanes(e->target, SN_F64);
    em_val none = em_splat(e, -1, lanes); /* above all keys */
    em_store_raw(e, none, em_gep(e, a.key, SN_I64, s->n), 8);
    em_loop l = em_for(e, 0, s->n, 1);
    em_val key = load(e, a.key, l.i), keys = em_splat(e, key, lanes);
    em_val self = em_splat(e, l.i, lanes), one = em_like(e, keys, 1);
    em_val before = em_like(e, keys, 0), zero = before;
    em_loop j = em_for(e, 0, s->n, lanes);
    em_carries(e, &j, &before, 1);
    em_val other = em_load_raw(e, em_vec(e->i64, lanes), em_gep(e, a.key, SN_I64, j.i), 8);
    em_val index = em_add(e, em_splat(e, j.i, lanes), em_iota(e, e->i64, lanes));
    em_val tie = em_and(e, em_cmp(e, EM_EQ, other, keys), em_cmp(e, EM_LT, index, self));
    em_val less = LLVMBuildICmp(e->b, LLVMIntULT, other, keys, "");
    before = em_add(e, before, em_select(e, em_or(e, less, tie), one, zero));
    em_end(e, &j);
    em_val rank = em_reduce(e, EM_SUM, before);
    em_branch wanted = em_if(e, em_cmp(e, EM_LT, rank, s->size));
    store_index(e, s, rank, load(e, a.index, l.i));
    em_endif(e, &wanted);
    em_end(e, &l);
}

static void emit_many(em *e, const sorter *all) {
    sorter rest = *all, *s = &rest;
    em_val count = e->scratch, lists = em_i64(e, SN_SORT_BUCKETS * 8);
    em_val room = em_add(e, s->n, MAX_LANES);
    list a = list_at(e, lists, room);
    list b = list_at(e, em_add(e, lists, em_mul(e, room, BYTES)), room);
    s->n = emit_candidates(e, s, count, a);
    em_branch few = em_if(e, em_cmp(e, EM_LE, s->n, SN_SORT_RANKED));
    emit_ranks(e, s, a);
    em_else(e, &few);
    emit_radix(e, s, count, a, b);
    em_endif(e, &few);
}

static bool inserts(const sn_kernel *k) {
    int64_t size;
    const sn_view *y = &k->step->out[0];
    int axis = (int)sn_attr_int(k->step->node, SN_A_axis, 0);
    return sn_dim_is_const(k->m, y->shape[axis], &size) && size <= SN_SORT_INSERTED;
}

static void emit_argsort(em *e, const sn_kernel *k) {
    const sn_node *node = k->step->node;
    em_kernel(e, k->name);
    sorter s = {.k = k,
                .x = &k->step->in[0],
                .y = &k->step->out[0],
                .axis = (int)sn_attr_int(node, SN_A_axis, 0),
                .descending = sn_attr_int(node, SN_A_descending, 0) != 0};
    s.bits = key_bits(s.x->dtype);
    s.n = sn_kernel_dim(e, k, s.x->shape[s.axis]);
    s.size = sn_kernel_dim(e, k, s.y->shape[s.axis]);
    if (inserts(k)) s.n = em_select(e, em_cmp(e, EM_GT, s.size, 0), s.n, 0);
    em_val lo, hi;
    em_share(e, sn_line_count(e, k, s.x, s.axis), &lo, &hi);
    const int size = selected(k, &s);
    if (size) lo = emit_selections(e, &s, size, lo, hi);
    em_loop row = em_for(e, lo, hi, 1);
    s.x_at = sn_line_offset(e, k, s.x, s.axis, row.i);
    s.y_at = sn_line_offset(e, k, s.y, s.axis, row.i);
    if (inserts(k))
        emit_insertion(e, &s);
    else
        emit_many(e, &s);
    em_end(e, &row);
    em_end_kernel(e);
}

static sn_dim argsort_scratch(const sn_kernel *k, const sn_target *t) {
    (void)t;
    const sn_view *x = &k->step->in[0];
    int axis = (int)sn_attr_int(k->step->node, SN_A_axis, 0);
    if (inserts(k)) return sn_dim_const(k->m, SN_SORT_INSERTED * BYTES);
    sn_dim room = sn_dim_add(k->m, x->shape[axis], sn_dim_const(k->m, MAX_LANES));
    sn_dim lists = sn_dim_mul(k->m, room, sn_dim_const(k->m, 2 * BYTES));
    return sn_dim_add(k->m, lists, sn_dim_const(k->m, SN_SORT_BUCKETS * 8));
}

const sn_family sn_family_argsort = {.emit = emit_argsort, .scratch = argsort_scratch};
