/* tile.h: what kernels of several families are made of, between their programs and the instructions of
 * emit.h: products of tiles, vectors of strided rows, schedules. A tile in registers is an array of
 * vectors, row by row, which a loop over the products' terms carries (em_carries). */
#ifndef SN_TILE_H
#define SN_TILE_H

#include "codegen/emit/emit.h"

/* acc[i] += x y[i] for n vectors; an acc[i] that is NULL begins with the product. */
void tile_add(em *e, em_val *acc, int n, em_val x, const em_val *y);
/* A term of a product: acc[i][v] += left[i] right[v] for `rows` rows of n vectors. left[i] points to an
 * element of t, right to n vectors of such elements, aligned to `align` bytes. bf16: elements are words of
 * two, and a term adds two products. */
void tile_add_product(em *e, sn_dtype t, unsigned align, em_val *acc, int rows, int n,
                      const em_val *left, em_val right);

/* ---- bf16.c: products of bf16 with f32 sums. A word of two bf16 lies in a lane of f32 ---- */

bool tile_bf16_is_native(const sn_target *t); /* an instruction adds both products of a word */
/* Words of f32 elements: of two vectors; of neighbours in a vector. */
em_val tile_bf16_join(em *e, em_val even, em_val odd);
em_val tile_bf16_words(em *e, em_val x);
/* Words as factors of tile_bf16_add, x[2]; returns how many values they are. */
int tile_bf16_terms(em *e, em_val words, em_val *x);
/* The same of one word, in all lanes, for AArch64 with bf16. */
void tile_bf16_lane(em *e, em_val words, int lane, em_val *x);
void tile_bf16_widen(em *e, em_val words, em_val *x); /* the odd elements, the even ones, as f32 */
em_val tile_bf16_round(em *e, em_val x);              /* f32, to what bf16 has */
em_val tile_bf16_add(em *e, const em_val *a, const em_val *b, em_val acc); /* acc + a b */

/* ---- amx.c: tiles 0 to 7 of AMX, rows of 16 words; `stride`: bytes between rows ---- */

/* rows: of tiles 0 to 5; words: i32, of K: of a row of tiles 4 and 5, and the rows of tiles 6 and 7. Clears the tiles. */
void tile_amx_configure(em *e, int rows, em_val words);
void tile_amx_release(em *e); /* before other code than that of tiles runs for long */
void tile_amx_zero(em *e, int tile);
void tile_amx_load(em *e, int tile, em_val at, em_val stride);
void tile_amx_store(em *e, int tile, em_val at, em_val stride);
void tile_amx_add(em *e, int c, int a, int b); /* c += a b */

/* n elements from p on, `stride` (i64, elements) apart, as em_load_mask loads them. */
em_val tile_load(em *e, sn_dtype t, em_val p, em_val stride, int n, em_val mask);
/* The lanes of v, or those that the mask (NULL: all) has, to such elements. */
void tile_store(em *e, sn_dtype t, em_val p, em_val stride, em_val v, em_val mask);

/* Whether item i is that of thread tid of n, if items are dealt in snake order: 0 1 2 2 1 0 0 ... (i1) */
em_val tile_is_mine(em *e, em_val i, em_val n, em_val tid);
/* The next number of a counter in memory if `counts` (i1), else `otherwise`. */
em_val tile_take(em *e, em_val counts, em_val counter, em_val otherwise);
#define tile_take(e, counts, counter, otherwise)                                                   \
    (tile_take)(e, counts, counter, EM_INT(e, otherwise))

#endif
