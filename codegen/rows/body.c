/* body.c: the body of a map-reduce kernel over a domain of axes; see body.h. */
#include "codegen/rows/body.h"
#include "codegen/emit/philox.h"
#include "passes/graph_util.h"

#include <string.h>

/* ---- items ---- */

static int item_of(sn_body *b, sn_node *n, int shift);

static int operand_shift(const sn_node *n, int shift, int i) {
    const sn_node *x = n->in[i];
    if (n->op == SN_OP_gather) return shift + (int)sn_attr_int(n, SN_A_axis, 0);
    if (n->op == SN_OP_take_blocks) return shift;
    return shift + (n->rank - x->rank);
}

static const sn_view *view_of_arg(const sn_body *b, const sn_node *arg) {
    return &b->k->step->in[sn_attr_int(arg, SN_A_index, 0)];
}

static uint32_t axes_mask(const sn_node *n, int shift, int from, int to) {
    uint32_t m = 0;
    for (int a = from; a < to; a++)
        if (n->shape[a] != 1) m |= 1u << (a + shift);
    return m;
}

static void derive(sn_body *b, sn_item *it) {
    const sn_node *n = it->n;
    if (n->op == SN_OP_arg) {
        const sn_view *v = view_of_arg(b, n);
        for (int a = 0; a < n->rank; a++)
            if (n->shape[a] != 1 && v->stride[a] != 0) it->vary |= 1u << (a + it->shift);
        return;
    }
    for (int i = 0; i < n->n_in; i++) {
        if (it->op[i] < 0) continue;
        const sn_item *x = &b->item[it->op[i]];
        it->vary |= x->vary;
        if (x->stage > it->stage) it->stage = x->stage;
        it->cost = it->cost + x->cost < COST_MAX ? it->cost + x->cost : COST_MAX;
    }
    if (n->op == SN_OP_iota)
        it->vary |= axes_mask(n, it->shift, (int)sn_attr_int(n, SN_A_axis, 0),
                              (int)sn_attr_int(n, SN_A_axis, 0) + 1);
    if (n->op == SN_OP_random) it->vary = axes_mask(n, it->shift, 0, n->rank);
    if (n->op == SN_OP_gather) {
        int axis = (int)sn_attr_int(n, SN_A_axis, 0), after = axis + n->in[1]->rank;
        it->vary |= axes_mask(n, it->shift, 0, axis) | axes_mask(n, it->shift, after, n->rank);
    }
    if (n->op == SN_OP_take_blocks) it->vary |= axes_mask(n, it->shift, 0, n->rank);
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    for (int i = 0; axes && i < axes->n; i++) it->vary &= ~(1u << (axes->v[i] + it->shift));
    it->cost += sn_cost_of(n, n->op != SN_OP_broadcast);
}

static int item_of(sn_body *b, sn_node *n, int shift) {
    for (int i = 0; i < b->n_item; i++)
        if (b->item[i].n == n && b->item[i].shift == shift) return i;
    sn_item it = {.n = n, .shift = shift, .cache = -1, .out = -1};
    for (int i = 0; i < n->n_in; i++)
        it.op[i] = sn_reads_far(n, i) ? -1 : item_of(b, n->in[i], operand_shift(n, shift, i));
    for (int a = 0; a < n->rank; a++) it.domain_axis[a] = (uint8_t)(a + shift);
    derive(b, &it);
    b->item[b->n_item] = it;
    return b->n_item++;
}

/* ---- domain ---- */

static void widen(sn_body *b, const sn_node *n, int shift) {
    for (int a = 0; a < n->rank; a++)
        if (n->shape[a] != 1) b->domain[a + shift] = n->shape[a];
}

/* Stride of a view of shape `shape` along each axis of the domain; 0 where it does not vary. */
static void align(const sn_body *b, const sn_view *v, const sn_node *type, int shift,
                  sn_dim *stride) {
    for (int a = 0; a < b->rank; a++) stride[a] = 0;
    for (int a = 0; a < type->rank; a++)
        if (type->shape[a] != 1) stride[a + shift] = v->stride[a];
}

static bool steps_together(sn_module *m, const sn_dim *stride, const sn_dim *domain, int a) {
    return stride[a] == sn_dim_mul(m, stride[a + 1], domain[a + 1]);
}

/* Whether axes a and a + 1 can be merged: all operands and results step through both in one stride,
 * and no op needs their indices. */
static bool mergeable(const sn_body *b, int a) {
    sn_module *m = b->k->m;
    uint32_t pair = 3u << a;
    if (b->reduces && a + 1 == b->row) return false;
    for (int i = 0; i < b->n_item; i++) {
        const sn_item *it = &b->item[i];
        const sn_node *n = it->n;
        if (n->op == SN_OP_random) return false;
        bool looks = n->op == SN_OP_iota || n->op == SN_OP_gather || n->op == SN_OP_take_blocks ||
                     sn_attr_get(n, SN_A_axes);
        const sn_attr *axes = sn_attr_get(n, SN_A_axes);
        uint32_t at = it->vary;
        for (int j = 0; axes && j < axes->n; j++) at |= 1u << it->domain_axis[axes->v[j]];
        if (axes && !(at & ~it->vary & pair)) continue; /* a reduction of other axes */
        if (looks && (at & pair)) return false;
        if (n->op == SN_OP_arg && !steps_together(m, it->stride, b->domain, a)) return false;
        if (n->op != SN_OP_arg && (it->vary & pair) && (it->vary & pair) != pair &&
            b->domain[a] != 1 && b->domain[a + 1] != 1)
            return false;
    }
    for (int o = 0; o < b->region->n_out; o++)
        if (!steps_together(m, b->out_stride[o], b->domain, a)) return false;
    return true;
}

static void drop_axis(sn_dim *list, int a, int rank) {
    memmove(&list[a], &list[a + 1], sizeof *list * (size_t)(rank - a - 1));
}

static void merge(sn_body *b, int a) {
    b->domain[a + 1] = sn_dim_mul(b->k->m, b->domain[a], b->domain[a + 1]);
    for (int i = 0; i < b->n_factor[a + 1]; i++)
        b->factor[a][b->n_factor[a]++] = b->factor[a + 1][i];
    for (int i = a; i + 1 < b->rank; i++) {
        if (i > a) memcpy(b->factor[i], b->factor[i + 1], sizeof b->factor[i]);
        b->n_factor[i] = i > a ? b->n_factor[i + 1] : b->n_factor[i];
    }
    drop_axis(b->domain, a, b->rank);
    for (int i = 0; i < b->n_item; i++) drop_axis(b->item[i].stride, a, b->rank);
    for (int i = 0; i < b->region->n_out; i++) drop_axis(b->out_stride[i], a, b->rank);
    for (int i = 0; i < b->n_item; i++) {
        uint32_t low = b->item[i].vary & ((1u << a) - 1), high = b->item[i].vary >> (a + 1);
        high |= b->item[i].vary >> a & 1;
        b->item[i].vary = low | high << a;
        for (int x = 0; x < b->item[i].n->rank; x++)
            b->item[i].domain_axis[x] -= b->item[i].domain_axis[x] > a;
    }
    b->rank--;
    if (b->row > a) b->row--;
}

static void merge_axes(sn_body *b) {
    for (int a = b->rank - 2; a >= 0; a--)
        if (mergeable(b, a)) merge(b, a);
}

static void find_stages(sn_body *b) {
    for (int i = 0; i < b->n_item; i++) { /* operands precede their users */
        sn_item *it = &b->item[i];
        it->stage = 0;
        for (int j = 0; j < it->n->n_in; j++)
            if (it->op[j] >= 0 && b->item[it->op[j]].stage > it->stage)
                it->stage = b->item[it->op[j]].stage;
        if (sn_attr_get(it->n, SN_A_axes)) it->stage++;
        if (it->stage > b->n_stage) b->n_stage = it->stage;
    }
}

static void begin_code(sn_body *b);

bool sn_body_init(sn_body *b, em *e, const sn_kernel *k, bool reduce_rows) {
    const sn_step *s = k->step;
    const sn_region *r = sn_attr_region(s->node, SN_A_body);
    sn_order order = sn_region_topo(k->m, r);
    *b = (sn_body){.e = e, .k = k, .region = r, .quarter = -1};
    b->item = sn_arena_alloc(k->m, sizeof *b->item * (size_t)(order.n * (SN_MAX_RANK + 1)));
    for (int o = 0; o < r->n_out; o++)
        if (r->out[o]->rank > b->rank) b->rank = r->out[o]->rank;
    for (int o = 0; o < r->n_out; o++) {
        b->out_item[o] = item_of(b, r->out[o], b->rank - r->out[o]->rank);
        b->item[b->out_item[o]].out = o;
    }
    if (b->rank == 0) b->rank = 1;
    b->full_rank = b->rank;
    for (int a = 0; a < b->rank; a++) b->domain[a] = 1;
    for (int i = 0; i < b->n_item; i++) {
        widen(b, b->item[i].n, b->item[i].shift);
        b->reduces |= reduce_rows && sn_attr_get(b->item[i].n, SN_A_axes) != NULL;
    }
    for (int i = 0; i < b->n_item; i++)
        if (b->item[i].n->op == SN_OP_arg)
            align(b, view_of_arg(b, b->item[i].n), b->item[i].n, b->item[i].shift,
                  b->item[i].stride);
    for (int o = 0; o < r->n_out; o++)
        align(b, &s->out[o], r->out[o], b->rank - r->out[o]->rank, b->out_stride[o]);
    for (int a = 0; a < b->rank; a++) {
        b->factor[a][0] = b->domain[a];
        b->n_factor[a] = 1;
    }
    b->row = b->rank - 1;
    if (!b->reduces) { /* the last axis along which something happens; of a column reduction, that
                          stays */
        int row = b->row;
        while (row > 0 && (b->domain[row] == 1 || (!reduce_rows && b->out_stride[0][row] == 0)))
            row--;
        if (reduce_rows || (b->domain[row] != 1 && b->out_stride[0][row] != 0)) b->row = row;
    }
    find_stages(b);
    merge_axes(b);
    for (int o = 0; o < r->n_out; o++) b->out_row[o] = b->out_stride[o][b->row] != 0;
    b->lanes = e ? e->lanes : 0;
    begin_code(b);
    return true;
}

/* ---- emission: addresses ---- */

em_val sn_body_extent(sn_body *b, int axis) {
    em_val size = em_i64(b->e, 1);
    for (int i = 0; i < b->n_factor[axis]; i++)
        size = em_mul(b->e, size, sn_kernel_dim(b->e, b->k, b->factor[axis][i]));
    return size;
}

void sn_body_split(sn_body *b, uint32_t axes, em_val flat) {
    em *e = b->e;
    for (int a = b->rank - 1; a >= 0; a--) {
        if (!(axes >> a & 1)) continue;
        em_val n = sn_body_extent(b, a);
        b->index[a] = em_rem(e, flat, n);
        flat = em_div(e, flat, n);
    }
}

static em_val address(sn_body *b, em_val base, sn_dtype t, const sn_dim *stride) {
    em_val at = em_i64(b->e, 0);
    for (int a = 0; a < b->rank; a++)
        if (a != b->row && stride[a] != 0)
            at = em_add(b->e, at, em_mul(b->e, b->index[a], sn_kernel_dim(b->e, b->k, stride[a])));
    return em_gep(b->e, base, t, at);
}

void sn_body_pointers(sn_body *b) {
    const sn_step *s = b->k->step;
    for (int i = 0; i < b->n_item; i++) {
        sn_item *it = &b->item[i];
        if (it->n->op != SN_OP_arg) continue;
        int arg = (int)sn_attr_int(it->n, SN_A_index, 0);
        it->ptr = address(b, em_buf(b->e, arg), s->in[arg].dtype, it->stride);
    }
    for (int o = 0; o < s->n_out; o++)
        b->out_ptr[o] = address(b, em_buf(b->e, s->n_in + o), s->out[o].dtype, b->out_stride[o]);
}

void sn_body_forget_vectors(sn_body *b) {
    memset(b->code.value + b->n_item, 0, (size_t)b->n_item * sizeof *b->code.value);
}

void sn_body_forget_row(sn_body *b) {
    sn_region_forget(&b->code, ~0u);
    for (int i = 0; i < b->n_item; i++) b->item[i].available = b->item[i].filled = false;
}

em_val sn_body_cache_ptr(sn_body *b, int item) {
    em_val row = em_mul(b->e, sn_body_extent(b, b->row), b->item[item].cache);
    return em_gep(b->e, b->e->scratch, b->k->compute, row);
}

/* ---- emission: values ---- */

/* Index of domain axis `axis` here: a scalar, or a vector of positions along the row. */
static em_val axis_index(sn_body *b, int axis, bool vector) {
    em *e = b->e;
    if (axis != b->row) return b->index[axis];
    if (!vector) return em_i64(e, 0);
    return em_add(e, em_splat(e, b->j, b->lanes), em_iota(e, e->i64, b->lanes));
}

static em_val clamp_index(sn_body *b, em_val i, sn_dim size) {
    em *e = b->e;
    em_val top = em_sub(e, sn_kernel_dim(e, b->k, size), 1);
    int n = em_lanes_of(i);
    return em_imax(e, em_imin(e, i, em_splat(e, top, n)), em_splat(e, 0, n));
}

/* The index that item holds, as an i64. */
static em_val index_value(sn_body *b, int item, bool vector) {
    em_val i = sn_region_at(&b->code, item, vector);
    return em_convert(b->e, i, (sn_dtype)b->item[item].n->dtype, SN_I64);
}

static em_val load_at(sn_body *b, const sn_view *v, em_val base, em_val offset) {
    em *e = b->e;
    if (em_lanes_of(offset) > 1) return em_gather(e, v->dtype, base, offset, b->mask);
    return em_load(e, v->dtype, em_gep(e, base, v->dtype, offset), 1);
}

static em_val emit_arg(sn_body *b, sn_item *it, bool vector) {
    em *e = b->e;
    sn_dtype t = view_of_arg(b, it->n)->dtype;
    em_val p = it->ptr;
    if (!vector || !(it->vary & 1u << b->row)) return sn_emit_loaded(e, t, em_load(e, t, p, 1));
    em_val stride = sn_kernel_dim(e, b->k, it->stride[b->row]);
    p = em_gep(e, p, t, em_mul(e, b->j, stride));
    return sn_emit_loaded(e, t, tile_load(e, t, p, stride, b->lanes, b->mask));
}

static em_val emit_iota(sn_body *b, sn_item *it, bool vector) {
    int axis = it->domain_axis[sn_attr_int(it->n, SN_A_axis, 0)];
    if (!it->vary) return sn_emit_const(b->e, (sn_dtype)it->n->dtype, 0); /* an axis of size 1 */
    return sn_emit_integer(b->e, (sn_dtype)it->n->dtype, axis_index(b, axis, vector));
}

/* x's slice at an index: the result's axes are x's before `axis`, the index tensor's, x's
 * after it. */
static em_val emit_gather(sn_body *b, sn_item *it, bool vector) {
    em *e = b->e;
    const sn_node *n = it->n, *x = n->in[0];
    int64_t arg = sn_attr_int(x, SN_A_index, 0);
    const sn_view *v = &b->k->step->in[arg];
    int axis = (int)sn_attr_int(n, SN_A_axis, 0), n_index = n->in[1]->rank;
    em_val i = index_value(b, it->op[1], vector);
    i = clamp_index(b, i, v->shape[axis]);
    int lanes = em_lanes_of(i);
    em_val at = em_mul(e, i, em_splat(e, sn_kernel_dim(e, b->k, v->stride[axis]), lanes));
    bool along_row = false;
    for (int a = 0; a < x->rank; a++) {
        if (a == axis || x->shape[a] == 1) continue;
        int d = it->domain_axis[a < axis ? a : a + n_index - 1];
        if (d == b->row && vector) {
            along_row = true;
            if (v->stride[a] == 1 && lanes == 1)
                continue; /* consecutive elements: one load below */
        }
        em_val step = em_mul(e, axis_index(b, d, vector), sn_kernel_dim(e, b->k, v->stride[a]));
        at = em_add(e, at, step);
    }
    em_val base = em_buf(e, (int)arg);
    if (along_row && em_lanes_of(at) == 1)
        return sn_emit_loaded(e, v->dtype,
                              em_load_mask(e, v->dtype,
                                           em_gep(e, base, v->dtype, em_add(e, at, b->j)), b->lanes,
                                           b->mask, NULL));
    return sn_emit_loaded(e, v->dtype, load_at(b, v, base, at));
}

static em_val emit_gather_nd(sn_body *b, sn_item *it, bool vector) {
    em *e = b->e;
    int64_t arg = sn_attr_int(it->n->in[0], SN_A_index, 0);
    const sn_view *v = &b->k->step->in[arg];
    em_val at = em_i64(e, 0);
    for (int a = 0; a < v->rank; a++) {
        em_val i = clamp_index(b, index_value(b, it->op[a + 1], vector), v->shape[a]);
        at = em_add(e, at, em_mul(e, i, sn_kernel_dim(e, b->k, v->stride[a])));
    }
    return sn_emit_loaded(e, v->dtype, load_at(b, v, em_buf(e, (int)arg), at));
}

/* A block of a row of x: element d of block i is column i size + d. */
static em_val emit_take_blocks(sn_body *b, sn_item *it, bool vector) {
    em *e = b->e;
    const sn_node *n = it->n, *x = n->in[0];
    int64_t arg = sn_attr_int(x, SN_A_index, 0);
    int last = x->rank - 1;
    const sn_view *v = &b->k->step->in[arg];
    em_val i = index_value(b, it->op[1], vector);
    i = clamp_index(b, i, sn_attr_int(n, SN_A_blocks, 1));
    em_val size = em_splat(e, sn_kernel_dim(e, b->k, n->shape[n->rank - 1]), em_lanes_of(i));
    int d = it->domain_axis[n->rank - 1];
    em_val col = em_mul(e, i, size);
    bool along_row = vector && d == b->row && n->shape[n->rank - 1] != 1;
    bool row_load = along_row && v->stride[last] == 1 && em_lanes_of(col) == 1;
    if (!row_load && n->shape[n->rank - 1] != 1) col = em_add(e, col, axis_index(b, d, vector));
    em_val at = em_mul(e, col, sn_kernel_dim(e, b->k, v->stride[last]));
    for (int a = 0; a < last; a++) {
        if (x->shape[a] == 1) continue;
        em_val row = axis_index(b, it->domain_axis[a], vector);
        at = em_add(e, at, em_mul(e, row, sn_kernel_dim(e, b->k, v->stride[a])));
    }
    em_val base = em_buf(e, (int)arg);
    if (!row_load) return sn_emit_loaded(e, v->dtype, load_at(b, v, base, at));
    em_val from = em_gep(e, base, v->dtype, em_add(e, at, b->j));
    return sn_emit_loaded(e, v->dtype, em_load_mask(e, v->dtype, from, b->lanes, b->mask, NULL));
}

/* A row of the random tensor begins at a multiple of 64, or is the only one: so does every 64th
 * position on it. */
static bool shares_random(const sn_body *b, const sn_item *it) {
    const sn_node *n = it->n;
    int64_t width;
    if (n->op != SN_OP_random || !n->rank || it->domain_axis[n->rank - 1] != b->row) return false;
    bool only = true;
    for (int a = 0; a < n->rank - 1; a++) only &= n->shape[a] == 1;
    return only ||
           (sn_dim_is_const(b->k->m, n->shape[n->rank - 1], &width) && width % RANDOM_GROUP == 0);
}

bool sn_body_shares_random(const sn_body *b) {
    bool any = false;
    for (int i = 0; i < b->n_item; i++) any |= shares_random(b, &b->item[i]);
    return any;
}

/* Four words of bits for the row-major position `at` in the random tensor. */
static void emit_philox(sn_body *b, const sn_item *it, em_val at, em_val word[RANDOM_WORDS]) {
    em *e = b->e;
    const sn_node *n = it->n;
    const sn_view *seed = view_of_arg(b, n->in[0]);
    em_val base = em_buf(e, (int)sn_attr_int(n->in[0], SN_A_index, 0));
    em_val key = em_load(e, SN_I64, base, 1);
    em_val step =
        em_load(e, SN_I64, em_gep(e, base, SN_I64, sn_kernel_dim(e, b->k, seed->stride[0])), 1);
    em_val block = em_shl(e, em_lshr(e, at, em_like(e, at, 6)), em_like(e, at, 4));
    block = em_or(e, block, em_and(e, at, em_like(e, at, RANDOM_BLOCKS - 1)));
    word[0] = em_int_cast(e, block, e->i32);
    word[1] = em_int_cast(e, em_lshr(e, block, em_like(e, block, 32)), e->i32);
    word[2] = em_like(e, word[0], (double)(int32_t)sn_attr_int(n, SN_A_stream, 0));
    word[3] = em_splat(e, em_int_cast(e, step, e->i32), em_lanes_of(at));
    sn_emit_philox(e, word, key);
}

/* As runtime/rng.h defines it: element i is word i >> 4 & 3 of Philox4x32-10 (counter = (i >> 6 << 4
 * | i & 15), stream, step; key = seed), and its value is the 24 high bits times 2^-24. */
static em_val emit_random(sn_body *b, sn_item *it, bool vector) {
    em *e = b->e;
    const sn_node *n = it->n;
    bool grouped = vector && b->quarter >= 0 && shares_random(b, it);
    em_val w;
    if (grouped && b->quarter > 0)
        w = it->word[b->quarter];
    else {
        em_val at = em_i64(e, 0); /* row-major position in the random tensor */
        for (int a = 0; a < n->rank; a++) {
            at = em_mul(e, at, sn_kernel_dim(e, b->k, n->shape[a]));
            if (n->shape[a] != 1) at = em_add(e, at, axis_index(b, it->domain_axis[a], vector));
        }
        emit_philox(b, it, at, it->word);
        w = it->word[grouped ? 0 : RANDOM_WORDS - 1];
        em_val which = em_and(e, em_lshr(e, at, em_like(e, at, 4)), em_like(e, at, 3));
        for (int i = RANDOM_WORDS - 2; i >= 0 && !grouped; i--)
            w = em_select(e, em_cmp(e, EM_EQ, which, em_like(e, which, i)), it->word[i], w);
    }
    em_val u = em_convert(e, em_lshr(e, w, em_like(e, w, 8)), SN_I32, e->compute);
    return em_mul(e, u, em_like(e, u, 0x1p-24));
}

static em_val emit_dim(sn_body *b, sn_item *it, bool vector) {
    (void)vector;
    return sn_kernel_leaf(b->e, b->k, it->n);
}

static em_val load_cached(sn_body *b, int item) {
    sn_item *it = &b->item[item];
    em *e = b->e;
    em_val p = it->cache >= 0 ? sn_body_cache_ptr(b, item) : b->out_ptr[it->out];
    return em_load_mask(e, b->k->compute, em_gep(e, p, b->k->compute, b->j), b->lanes, b->mask,
                        NULL);
}

/* Leaves of a loop body. */
static em_val (*const leaves[SN_OP_COUNT])(sn_body *b, sn_item *it, bool vector) = {
    [SN_OP_arg] = emit_arg,
    [SN_OP_dim_value] = emit_dim,
    [SN_OP_iota] = emit_iota,
    [SN_OP_gather] = emit_gather,
    [SN_OP_gather_nd] = emit_gather_nd,
    [SN_OP_take_blocks] = emit_take_blocks,
    [SN_OP_random] = emit_random,
};

static em_val emit_leaf(const sn_region_code *c, int item, int copy) {
    sn_body *b = c->ctx;
    sn_item *it = &b->item[item];
    if (copy && it->available) return load_cached(b, item);
    return leaves[it->n->op] ? leaves[it->n->op](b, it, copy) : NULL;
}

static void begin_code(sn_body *b) {
    sn_module *m = b->k->m;
    size_t n = (size_t)b->n_item;
    sn_region_code *c = &b->code;
    *c = (sn_region_code){.e = b->e, .copies = 2, .leaf = emit_leaf, .ctx = b};
    c->order = (sn_order){sn_arena_alloc(m, n * sizeof *c->order.node), b->n_item};
    c->operand = sn_arena_alloc(m, n * sizeof *c->operand);
    c->once = sn_arena_alloc(m, n * sizeof *c->once);
    c->value = sn_arena_alloc(m, 2 * n * sizeof *c->value);
    for (int i = 0; i < b->n_item; i++) {
        c->order.node[i] = b->item[i].n;
        c->operand[i] = b->item[i].op;
        c->once[i] = !(b->item[i].vary >> b->row & 1);
    }
}

/* Operands precede their users in item[]. */
void sn_body_uniforms(sn_body *b, int item) {
    bool *needed = sn_arena_alloc(b->k->m, sizeof *needed * (size_t)(item + 1));
    needed[item] = true;
    for (int at = item; at >= 0; at--) {
        sn_item *it = &b->item[at];
        if (!needed[at]) continue;
        if (!(it->vary & 1u << b->row))
            sn_region_at(&b->code, at, 0);
        else
            for (int i = 0; i < it->n->n_in && !it->available; i++)
                if (it->op[i] >= 0) needed[it->op[i]] = true;
    }
}

em_val sn_body_vector(sn_body *b, int item) {
    return sn_region_at(&b->code, item, 1);
}

void sn_body_store(sn_body *b, int out, em_val v) {
    em *e = b->e;
    sn_dtype t = b->k->step->out[out].dtype;
    em_val p = b->out_ptr[out];
    if (!b->out_row[out]) { /* one element per row */
        em_store(e, t, p, em_lanes_of(v) > 1 ? em_extract(e, v, 0) : v);
        return;
    }
    v = em_splat(e, v, em_lanes_of(v) > 1 ? 1 : b->lanes);
    em_val stride = sn_kernel_dim(e, b->k, b->out_stride[out][b->row]);
    tile_store(e, t, em_gep(e, p, t, em_mul(e, b->j, stride)), stride, v, b->mask);
}

static void prefetch_next(sn_body *b, em_val row, sn_dtype t, const sn_dim *stride, bool write) {
    em *e = b->e;
    int a = b->rank - 1;
    while (a >= 0 && (a == b->row || b->domain[a] == 1)) a--;
    if (a < 0 || stride[a] == 0 || stride[b->row] != 1) return;
    em_val at = em_add(e, b->j, sn_kernel_dim(e, b->k, stride[a]));
    em_prefetch(e, em_gep(e, row, t, at), write, 3);
}

void sn_body_prefetch_next(sn_body *b, int item) {
    const sn_item *it = &b->item[item];
    if (it->n->op == SN_OP_arg && it->ptr)
        prefetch_next(b, it->ptr, view_of_arg(b, it->n)->dtype, it->stride, false);
}

void sn_body_prefetch_next_out(sn_body *b, int out) {
    if (b->out_row[out])
        prefetch_next(b, b->out_ptr[out], b->k->step->out[out].dtype, b->out_stride[out], true);
}
