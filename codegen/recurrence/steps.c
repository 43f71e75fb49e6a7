/* steps.c: a few elements, one after the other: decoding, and the last ones of a sequence. The vectors
 * of an element are in the first rows of the chunk's tiles. Each block of columns of the state is read
 * and written once; with a delta rule it is read before for u. */
#include "codegen/emit/vmath.h"
#include "codegen/recurrence/impl.h"

enum { MAX_VECTORS = 4 /* vectors in a block */ };

typedef struct step {
    const rec_plan *p;
    int64_t col; /* first column */
    int n;       /* vectors */
    em_val decay[MAX_VECTORS], v[MAX_VECTORS], u[MAX_VECTORS], y[MAX_VECTORS];
} step;

static em_val column(em *e, const step *s, int j) {
    return em_i64(e, s->col + (int64_t)j * s->p->lanes);
}

static void load_vectors(em *e, const step *s, rec_tile tile, int row, em_val *v) {
    for (int j = 0; j < s->n; j++)
        v[j] = rec_load(e, s->p, rec_at(e, s->p, tile, row, column(e, s, j)));
}

static void store_vectors(em *e, const step *s, rec_tile tile, int row, const em_val *v) {
    for (int j = 0; j < s->n; j++)
        rec_store(e, s->p, rec_at(e, s->p, tile, row, column(e, s, j)), v[j]);
}

/* Element i of a row of vectors. */
static em_val splat(em *e, const step *s, rec_tile tile, int row, em_val i) {
    return em_load_splat(e, s->p->t, rec_at(e, s->p, tile, row, i), s->p->lanes);
}

/* ---- loops over the rows of the state ---- */

typedef struct rows {
    em_loop l;
    em_val S[MAX_VECTORS]; /* the row */
} rows;

static em_val row_at(em *e, const step *s, const rows *r, int j) {
    return rec_at(e, s->p, s->p->values_and_state, em_add(e, r->l.i, s->p->update_rows),
                  column(e, s, j));
}

static void begin(em *e, const step *s, rows *r, em_val *sum) {
    r->l = em_for(e, 0, s->p->K, 1);
    em_carries(e, &r->l, sum, s->n);
    for (int j = 0; j < s->n; j++) r->S[j] = rec_load(e, s->p, row_at(e, s, r, j));
}

static void end(em *e, const step *s, rows *r, bool store) {
    for (int j = 0; j < s->n && store; j++) rec_store(e, s->p, row_at(e, s, r, j), r->S[j]);
    em_end(e, &r->l);
}

static em_val query(em *e, const step *s, rec_tile left, const rows *r) {
    return splat(e, s, left, 0, em_add(e, r->l.i, s->p->update_rows));
}

static em_val key(em *e, const step *s, int pair, const rows *r) {
    return splat(e, s, s->p->key, rec_update_row(s->p, pair), r->l.i);
}

/* sum += x S, where x is in a row of `weights_y` */
static void read_state(em *e, const step *s, rec_tile left, em_val *sum) {
    rows r;
    begin(e, s, &r, sum);
    tile_add(e, sum, s->n, query(e, s, left, &r), r.S);
    end(e, s, &r, false);
}

/* S = e^g S + k^T v + b^T u; y += q S as it was, or as it is then. */
static void change_state(em *e, step *s) {
    const bool after = s->p->order == REC_READS_AFTER;
    rows r;
    begin(e, s, &r, s->y);
    em_val q = query(e, s, s->p->weights_y, &r), d = NULL;
    if (s->p->decays == REC_ROWS) d = splat(e, s, s->p->decay, 0, r.l.i);
    if (!after) tile_add(e, s->y, s->n, q, r.S);
    for (int j = 0; j < s->n; j++) r.S[j] = em_mul(e, r.S[j], d ? d : s->decay[j]);
    tile_add(e, r.S, s->n, key(e, s, 0, &r), s->v);
    if (s->p->n_update > 1) tile_add(e, r.S, s->n, key(e, s, 1, &r), s->u);
    if (after) tile_add(e, s->y, s->n, q, r.S);
    end(e, s, &r, true);
}

/* ---- an element ---- */

/* The columns of n vectors from number `vector` on. */
static void emit_columns(em *e, const rec_plan *p, int vector, int n) {
    step s = {.p = p, .col = (int64_t)vector * p->lanes, .n = n};
    em_val one = NULL;
    if (p->decays == REC_ONE)
        one = sn_vmath_emit(e, SN_V_EXP,
                            em_load_splat(e, p->t, rec_at(e, p, p->decay, 0, 0), p->lanes));
    load_vectors(e, &s, p->values_and_state, rec_update_row(p, 0), s.v);
    for (int j = 0; j < n; j++) {
        s.y[j] = s.u[j] = em_vf(e, 0);
        if (one) s.decay[j] = one;
    }
    if (p->r.delta) {
        read_state(e, &s, p->weights_u, s.u);
        store_vectors(e, &s, p->out_u, 0, s.u);
    } else if (p->n_update > 1) {
        load_vectors(e, &s, p->values_and_state, rec_update_row(p, 1), s.u);
    }
    for (int j = 0; j < n && p->r.same; j++) s.v[j] = em_add(e, s.v[j], s.u[j]);
    change_state(e, &s);
    store_vectors(e, &s, p->out, 0, s.y);
}

void rec_emit_steps(em *e, const rec_plan *p, const rec_unit *u, em_val n) {
    em_loop l = em_for(e, 0, n, 1);
    rec_load_element(e, p, u, l.i);
    for (int v = 0, n; v < p->cols / p->lanes; v += n) {
        n = rec_vectors_at(e, p, v);
        emit_columns(e, p, v, n);
    }
    rec_store_element(e, p, u, l.i);
    em_end(e, &l);
}
