/* words.c: factors of products in bf16, as words of two (codegen/tile/bf16.c). Sums run over elements of the
 * chunk, and over rows of the state; a word has two that follow each other.
 *
 *   right   rows 2 i and 2 i + 1 of [values; state] in row i of `words`. The state stays as it is: what
 *           is read of it is rounded, what is added to is not.
 *   keys    rows 2 i and 2 i + 1 in row 2 i, in place.
 *   left    columns c and c + 1 in column CHUNK / 2 + c / 2, in place, after whatever weights_u has of u in
 *           f32 for the substitution. */
#include "codegen/recurrence/impl.h"

enum { OF_LEFT = REC_CHUNK / 2 };

em_val(rec_left_column)(em *e, const rec_plan *p, em_val col) {
    return p->bf16 ? em_add(e, em_lshr(e, col, 1), OF_LEFT) : col;
}

void rec_store_left(em *e, const rec_plan *p, rec_tile tile, int t, em_val col, em_val v) {
    em_store(e, p->t, rec_at(e, p, tile, t, rec_left_column(e, p, col)),
             p->bf16 ? tile_bf16_words(e, v) : v);
}

void rec_store_key(em *e, const rec_plan *p, int row, em_val col, em_val v, em_val other) {
    const bool odd = row % 2;
    if (!p->bf16)
        rec_store(e, p, rec_at(e, p, p->key, row, col), v);
    else if (other)
        rec_store(e, p, rec_at(e, p, p->key, row - odd, col),
                  tile_bf16_join(e, odd ? other : v, odd ? v : other));
}

void rec_store_words(em *e, const rec_plan *p, em_val row, em_val col, em_val even, em_val odd) {
    if (p->bf16) rec_store(e, p, rec_at(e, p, p->words, row, col), tile_bf16_join(e, even, odd));
}

/* n rows of a tile from `first` on, to rows of `words` from `to` on. */
static void join(em *e, const rec_plan *p, rec_tile from, int64_t first, int64_t n, int64_t to) {
    em_loop l = em_for(e, 0, n / 2, 1), c = rec_for_vectors(e, p, p->cols);
    em_val row = em_add(e, em_mul(e, l.i, 2), first),
           even = rec_load(e, p, rec_at(e, p, from, row, c.i)),
           odd = rec_load(e, p, rec_at(e, p, from, em_add(e, row, 1), c.i));
    rec_store_words(e, p, em_add(e, l.i, to), c.i, even, odd);
    em_end(e, &c);
    em_end(e, &l);
}

void rec_join_values(em *e, const rec_plan *p) {
    const int known = p->r.delta ? REC_CHUNK : 0; /* u, or v + u, is not */
    if (p->bf16 && known < p->update_rows)
        join(e, p, p->values_and_state, known, p->update_rows - known, known / 2);
}

void rec_join_state(em *e, const rec_plan *p) {
    if (p->bf16) join(e, p, p->state, 0, p->inner, p->update_rows / 2);
}
