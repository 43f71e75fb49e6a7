/* rows.c: between memory and the tiles of a chunk: vectors of its elements, results, carries. */
#include "codegen/emit/vmath.h"
#include "codegen/recurrence/impl.h"
#include "runtime/memory.h"

/* ---- operands and results ---- */

int rec_n_views(const rec_plan *p) {
    return p->k->step->n_in + p->k->step->n_out;
}

const sn_view *rec_view(const rec_plan *p, int i) {
    const sn_step *s = p->k->step;
    return i < s->n_in ? &s->in[i] : &s->out[i - s->n_in];
}

static em_val last_stride(em *e, const rec_plan *p, const sn_view *v) {
    return sn_kernel_dim(e, p->k, v->stride[v->rank - 1]);
}

static bool is_carry(const rec_plan *p, int i) {
    return i == SN_REC_START || i == p->k->step->n_in + 1;
}

static bool is_turned_result(const rec_plan *p, int i) {
    int result = i - p->k->step->n_in;
    return (!result && p->r.silent) || result > 1 + p->r.delta;
}

/* V-wide operands and results, of which a unit has a block of columns. */
static bool is_of_columns(const rec_plan *p, int i) {
    if (is_carry(p, i) || i == SN_REC_V) return true;
    if (i >= p->k->step->n_in) return !is_turned_result(p, i);
    return i >= sn_recurrence_turned(&p->r, 0) || (i == SN_REC_A && !p->r.delta);
}

int64_t rec_row_size(const rec_plan *p, int i) {
    const sn_view *v = rec_view(p, i);
    if (is_carry(p, i) || rec_constant(p->k, v->shape[v->rank - 1]) == 1) return !is_carry(p, i);
    return is_of_columns(p, i) ? p->cols : p->K;
}

/* Mask of the vector from element i on of `n` elements, which are `count` if that is not NULL; NULL: all
 * lanes. */
static em_val mask_of(em *e, const rec_plan *p, em_val i, int64_t n, em_val count) {
    if (!count && n % p->align == 0) return NULL;
    return em_tail_mask(e, em_sub(e, count ? count : em_i64(e, n), i), p->lanes);
}

/* A vector of view v from element i of the row at `row` on. */
static em_val load_vector(em *e, const rec_plan *p, const sn_view *v, em_val row, em_val i,
                          em_val mask) {
    em_val stride = last_stride(e, p, v), from = em_gep(e, row, v->dtype, em_mul(e, i, stride));
    if (v->stride[v->rank - 1] == 1) return em_load_mask(e, v->dtype, from, p->lanes, mask, NULL);
    em_val index = em_mul(e, em_iota(e, e->i64, p->lanes), em_splat(e, stride, p->lanes));
    return em_gather(e, v->dtype, from, index, mask);
}

/* Vectors that are moved in one turn of a loop over n elements. */
static int at_once(const rec_plan *p, int64_t n) {
    return n % (4 * p->lanes) ? 1 : 4;
}

/* Copies a row of n elements of operand i to a tile. */
static void load_row(em *e, const rec_plan *p, int i, em_val row, int64_t n, em_val count,
                     rec_tile tile, em_val to_row, int64_t to_col) {
    int64_t whole = SN_ROUND_UP(n, p->align);
    int turns = at_once(p, whole);
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, whole), em_i64(e, (int64_t)turns * p->lanes));
    for (int k = 0; k < turns; k++) {
        em_val at = em_addi(e, l.i, (int64_t)k * p->lanes);
        em_val x = load_vector(e, p, rec_view(p, i), row, at, mask_of(e, p, at, n, count));
        rec_store(e, p, rec_at(e, p, tile, to_row, em_addi(e, at, to_col)), x);
    }
    em_end(e, &l);
}

/* Decays of an element: e^g. */
static void load_decays(em *e, const rec_plan *p, em_val row, em_val to_row) {
    const sn_view *v = rec_view(p, SN_REC_G);
    if (p->decays == REC_ONE) { /* e^g is computed for the whole chunk */
        em_store(e, p->t, rec_at_const(e, p, p->decay, 0, to_row), em_load(e, v->dtype, row, 1));
        return;
    }
    int turns = at_once(p, p->decay.ld);
    em_loop l =
        em_for(e, em_i64(e, 0), em_i64(e, p->decay.ld), em_i64(e, (int64_t)turns * p->lanes));
    for (int k = 0; k < turns; k++) {
        em_val at = em_addi(e, l.i, (int64_t)k * p->lanes);
        em_val mask = mask_of(e, p, at, p->K, NULL);
        em_val d = sn_vmath_emit(e, SN_V_EXP, load_vector(e, p, v, row, at, mask));
        rec_store(e, p, rec_at(e, p, p->decay, to_row, at), d);
    }
    em_end(e, &l);
}

/* What zeros are for an element that does not exist. */
static void clear_decays(em *e, const rec_plan *p, em_val row) {
    if (p->decays == REC_ONE)
        em_store(e, p->t, rec_at_const(e, p, p->decay, 0, row), em_f(e, 0));
    else
        rec_fill(e, p, p->decay, row, 0, p->decay.ld, 1);
}

/* Copies n elements of a tile's row to a row of result i. */
static void store_row(em *e, const rec_plan *p, int i, em_val row, int64_t n, em_val count,
                      rec_tile tile, em_val from_row) {
    const sn_view *v = rec_view(p, i);
    if (v->stride[v->rank - 1] == 1) {
        int turns = at_once(p, n);
        em_loop l = em_for(e, em_i64(e, 0), em_i64(e, n), em_i64(e, (int64_t)turns * p->lanes));
        for (int k = 0; k < turns; k++) {
            em_val at = em_addi(e, l.i, (int64_t)k * p->lanes);
            em_store_mask(e, v->dtype, em_gep(e, row, v->dtype, at),
                          rec_load(e, p, rec_at(e, p, tile, from_row, at)),
                          mask_of(e, p, at, n, count));
        }
        em_end(e, &l);
        return;
    }
    em_loop l = em_for(e, em_i64(e, 0), count ? count : em_i64(e, n), em_i64(e, 1));
    em_val to = em_gep(e, row, v->dtype, em_mul(e, l.i, last_stride(e, p, v)));
    em_store(e, v->dtype, to, em_load(e, p->t, rec_at(e, p, tile, from_row, l.i), 1));
    em_end(e, &l);
}

/* Row t of operand or result i. */
static em_val element(em *e, const rec_plan *p, const rec_unit *u, int i, em_val t) {
    const sn_view *v = rec_view(p, i);
    return em_gep(e, u->base[i], v->dtype, em_mul(e, t, sn_kernel_dim(e, p->k, v->stride[0])));
}

em_val rec_position(em *e, const rec_plan *p, const rec_unit *u, em_val i, em_val *exists) {
    em_val t = em_add(e, u->chunk, i);
    *exists = em_cmp(e, EM_LT, t, u->T);
    return p->r.reverse ? em_sub(e, em_subi(e, u->T, 1), t) : t;
}

/* Element t of memory to row `to` of the tiles. */
static void load_element(em *e, const rec_plan *p, const rec_unit *u, em_val t, em_val to) {
    em_val key[REC_PAIRS], v = em_addi(e, to, rec_first_of(p, 0));
    for (int i = 0; i < p->pairs; i++) key[i] = em_addi(e, to, rec_first_of(p, i));
    if (!p->r.silent)
        load_row(e, p, SN_REC_Q, element(e, p, u, SN_REC_Q, t), p->K, NULL, p->left, to, p->first);
    for (int i = 0; i < p->n_turned; i++) {
        int x = sn_recurrence_turned(&p->r, i);
        load_row(e, p, x, element(e, p, u, x, t), p->cols, u->columns, p->x,
                 em_addi(e, to, i * REC_CHUNK), 0);
    }
    load_row(e, p, SN_REC_K, element(e, p, u, SN_REC_K, t), p->K, NULL, p->key, key[0], 0);
    load_row(e, p, SN_REC_V, element(e, p, u, SN_REC_V, t), p->cols, u->columns, p->right, v, 0);
    load_decays(e, p, element(e, p, u, SN_REC_G, t), to);
    if (p->pairs > 1)
        load_row(e, p, SN_REC_B, element(e, p, u, SN_REC_B, t), p->K, NULL, p->key, key[1], 0);
    if (p->r.delta)
        load_row(e, p, SN_REC_A, element(e, p, u, SN_REC_A, t), p->K, NULL, p->left_u, to,
                 p->first);
    else if (p->r.second)
        load_row(e, p, SN_REC_A, element(e, p, u, SN_REC_A, t), p->cols, u->columns, p->right,
                 key[1], 0);
}

/* Zeros, which change nothing, as row `to` of the tiles. */
static void clear_element(em *e, const rec_plan *p, em_val to) {
    if (!p->r.silent) rec_fill(e, p, p->left, to, p->first, p->inner, 0);
    for (int i = 0; i < p->n_turned; i++)
        rec_fill(e, p, p->x, em_addi(e, to, i * REC_CHUNK), 0, p->cols, 0);
    rec_fill(e, p, p->right, em_addi(e, to, rec_first_of(p, 0)), 0, p->cols, 0);
    clear_decays(e, p, to);
    for (int i = 0; i < p->pairs; i++)
        rec_fill(e, p, p->key, em_addi(e, to, rec_first_of(p, i)), 0, p->inner, 0);
    if (p->r.delta) rec_fill(e, p, p->left_u, to, p->first, p->inner, 0);
    if (p->r.second && !p->r.delta)
        rec_fill(e, p, p->right, em_addi(e, to, rec_first_of(p, 1)), 0, p->cols, 0);
}

void rec_load_elements(em *e, const rec_plan *p, const rec_unit *u) {
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, REC_CHUNK), em_i64(e, 1));
    em_val exists, t = rec_position(e, p, u, l.i, &exists);
    em_branch br = em_if(e, exists);
    load_element(e, p, u, t, l.i);
    em_else(e, &br);
    clear_element(e, p, l.i);
    em_endif(e, &br);
    em_end(e, &l);
}

em_val rec_y_at(em *e, const rec_plan *p, const rec_unit *u, em_val row, em_val col) {
    em_val exists, t, tile = rec_at(e, p, p->out, row, col);
    if (!p->direct) return tile;
    t = rec_position(e, p, u, row, &exists);
    em_val memory = em_gep(e, element(e, p, u, p->k->step->n_in, t), p->t, col);
    return em_select(e, exists, memory, tile);
}

/* Row `from` of a tile to element t of result i. */
static void store_result(em *e, const rec_plan *p, const rec_unit *u, int i, rec_tile tile,
                         em_val t, em_val from) {
    i += p->k->step->n_in;
    em_val count = is_turned_result(p, i) ? NULL : u->columns;
    store_row(e, p, i, element(e, p, u, i, t), rec_row_size(p, i), count, tile, from);
}

void rec_store_elements(em *e, const rec_plan *p, const rec_unit *u) {
    if (p->direct && !p->stores_u && !p->n_turned) return;
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, REC_CHUNK), em_i64(e, 1));
    em_val exists, t = rec_position(e, p, u, l.i, &exists);
    em_branch br = em_if(e, exists);
    if (!p->direct && !p->r.silent) store_result(e, p, u, 0, p->out, t, l.i);
    if (p->stores_u) store_result(e, p, u, 2, p->out_u, t, l.i);
    for (int i = 0; i < p->n_turned; i++)
        store_result(e, p, u, sn_recurrence_turned_result(&p->r, i), p->z, t,
                     em_addi(e, l.i, i * REC_CHUNK));
    em_endif(e, &br);
    em_end(e, &l);
}

void rec_load_element(em *e, const rec_plan *p, const rec_unit *u, em_val i) {
    em_val exists;
    load_element(e, p, u, rec_position(e, p, u, i, &exists), em_i64(e, 0));
}

void rec_store_element(em *e, const rec_plan *p, const rec_unit *u, em_val i) {
    em_val exists, t = rec_position(e, p, u, i, &exists), first = em_i64(e, 0);
    store_result(e, p, u, 0, p->out, t, first);
    if (p->stores_u) store_result(e, p, u, 2, p->out_u, t, first);
}

/* ---- carries ---- */

/* Row k of a carry, operand or result i. */
static em_val carry_row(em *e, const rec_plan *p, const rec_unit *u, int i, em_val k) {
    const sn_view *v = rec_view(p, i);
    em_val by = em_mul(e, k, sn_kernel_dim(e, p->k, v->stride[v->rank - 2]));
    return em_gep(e, u->base[i], v->dtype, by);
}

void rec_load_carry(em *e, const rec_plan *p, const rec_unit *u) {
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->K), em_i64(e, 1));
    load_row(e, p, SN_REC_START, carry_row(e, p, u, SN_REC_START, l.i), p->cols, u->columns,
             p->right, em_addi(e, l.i, p->first), 0);
    em_end(e, &l);
    for (int64_t k = p->K; k < p->inner; k++)
        rec_fill(e, p, p->right, em_i64(e, p->first + k), 0, p->cols, 0);
}

void rec_store_carry(em *e, const rec_plan *p, const rec_unit *u) {
    int i = p->k->step->n_in + 1;
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->K), em_i64(e, 1));
    store_row(e, p, i, carry_row(e, p, u, i, l.i), p->cols, u->columns, p->right,
              em_addi(e, l.i, p->first));
    em_end(e, &l);
}

/* ---- units ---- */

/* Pointers to unit `item`: the carry item / n_block, block item % n_block. */
static void point_to(em *e, const rec_plan *p, em_val item, em_val *base, em_val *col) {
    const sn_step *s = p->k->step;
    em_val block = em_rem(e, item, em_i64(e, p->n_block));
    em_val lead = em_div(e, item, em_i64(e, p->n_block));
    *col = em_muli(e, block, p->cols);
    for (int i = 0; i < rec_n_views(p); i++) {
        const sn_view *v = rec_view(p, i);
        em_val off = em_i64(e, 0), rest = lead;
        for (int a = p->r.n_lead - 1; a >= 0; a--) {
            em_val n = sn_kernel_dim(e, p->k, s->in[SN_REC_START].shape[a]);
            em_val by = sn_kernel_dim(e, p->k, v->stride[a + !is_carry(p, i)]);
            off = em_add(e, off, em_mul(e, em_rem(e, rest, n), by));
            rest = em_div(e, rest, n);
        }
        if (is_of_columns(p, i) && rec_constant(p->k, v->shape[v->rank - 1]) != 1)
            off = em_add(e, off, em_mul(e, *col, last_stride(e, p, v)));
        base[i] = em_gep(e, em_buf(e, i), v->dtype, off);
    }
}

void rec_begin_unit(em *e, rec_plan *p, rec_unit *u, em_val first, em_val i) {
    em_val col;
    point_to(e, p, em_add(e, first, i), u->base, &col);
    if (p->n_block * p->cols != p->V)
        u->columns = em_imin(e, em_sub(e, em_i64(e, p->V), col), em_i64(e, p->cols));
    p->unit = em_gep(e, e->scratch, p->t, em_addi(e, em_muli(e, i, p->each), p->elements));
}

/* The same block of the next unit, or the next block of the first. */
void rec_find_next(em *e, const rec_plan *p, rec_unit *u, em_val first, em_val i, em_val n) {
    em_val col, more = em_addi(e, i, 1), last = em_cmp(e, EM_EQ, more, n);
    em_val item = em_add(e, first, em_select(e, last, em_i64(e, 0), more));
    em_val ahead =
        em_select(e, last, em_i64(e, p->r.reverse ? -REC_BLOCK : REC_BLOCK), em_i64(e, 0));
    point_to(e, p, item, u->next, &col);
    for (int k = 0; k < rec_n_views(p); k++) {
        const sn_view *v = rec_view(p, k);
        em_val by = em_mul(e, ahead, sn_kernel_dim(e, p->k, v->stride[0]));
        if (!is_carry(p, k)) u->next[k] = em_gep(e, u->next[k], v->dtype, by);
    }
}
