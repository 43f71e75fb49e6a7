/* tile_map.h: for reports: which KV tiles an attention kernel skips, computes with its mask, or
 * without, at given sizes and inputs. The kernel's own analysis of intervals decides, compiled as a
 * kernel of its own. */
#ifndef SN_PROGRAM_TILE_MAP_H
#define SN_PROGRAM_TILE_MAP_H

#include "codegen/program/program.h"

typedef struct sn_tile_map {
    bool known; /* false: `why` says why there is no map */
    char why[200];
    int queries, keys; /* of a tile; the last ones have fewer */
    int64_t tq, tk, batch, heads, blocks,
        tiles;     /* all queries and keys; blocks of queries, tiles */
    int64_t *kind; /* [batch, heads, blocks, tiles] sn_tile_kind; the caller frees it */
} sn_tile_map;

/* Of a call of the entry. in: its inputs, with data; other tensors that the mask reads are computed
 * by the evaluator, or read from the session (NULL: there is none), if that is cheap. False: err, or another kernel than
 * attention (out->kind is NULL, err->code 0). */
bool sn_tile_map_make(const sn_program *p, const sn_session *s, const char *entry, int call,
                      const sn_arg_binding *in, int n_in, const int64_t *symbol, sn_tile_map *out,
                      sn_error *err);

#endif
