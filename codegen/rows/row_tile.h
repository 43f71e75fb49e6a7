/* row_tile.h: several rows of a reduction at a time. Where an operand is the same for neighbouring rows,
 * as the columns of a product are, the loop along the rows loads it once for all of them. */
#ifndef SN_ROW_TILE_H
#define SN_ROW_TILE_H

#include "codegen/rows/body.h"

/* The rows of a tile: `n_inner` of axis `inner`, all that it has, by `n_outer` of axis `outer`. */
typedef struct sn_row_tile {
    int inner, outer; /* axes of the domain; -1: none */
    int n_inner, n_outer;
    int positions; /* vectors of a row in an iteration of the loop, each with accumulators of its own */
} sn_row_tile;

/* Whether the body is one reduction along the row, of cheap operations, whose rows share an operand; and
 * the tile, for the target's registers. The order of every sum depends on the target and on which axes
 * have several rows: not on the tile of a row. */
bool sn_row_tile_choose(const sn_body *b, const sn_target *t, sn_row_tile *tile);

/* The kernel's loop over tiles [lo, hi) of the number that sn_row_tile_count says. */
em_val sn_row_tile_count(sn_body *b, const sn_row_tile *tile);
void sn_row_tile_emit(sn_body *b, const sn_row_tile *tile, em_val lo, em_val hi);

#endif
