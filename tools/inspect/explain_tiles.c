/* explain_tiles.c: how many KV tiles each attention of an entry skips, for `sinter explain`. */
#include "codegen/attention/attention.h"
#include "codegen/program/tile_map.h"
#include "tools/inspect/explain.h"
#include "tools/inspect/inputs.h"

#include <stdlib.h>

static void count(explain_tiles *t, const sn_tile_map *map) {
    double n[SN_TILE_KINDS] = {0};
    int64_t all = map->batch * map->heads * map->blocks * map->tiles;
    for (int64_t i = 0; map->known && i < all; i++) n[map->kind[i]]++;
    t->skipped = n[SN_TILE_SKIPPED];
    t->partial = n[SN_TILE_PARTIAL];
    t->full = n[SN_TILE_FULL];
    if (!map->known && map->blocks) snprintf(t->why, sizeof t->why, "%s", map->why);
}

static bool find(explain_entry *e, const sn_program *p, inspect_inputs *in, sn_error *err) {
    if (!inspect_inputs_sizes(p->m, LOOK_MAP_LENGTH, false, e->given, e->tile_sizes, err) ||
        !inspect_inputs_make(in, p, e->name, e->tile_sizes, err))
        return false;
    for (int i = 0; i < e->n; i++) {
        sn_tile_map map;
        sn_error failed = {0};
        if (explain_repeats(e, i)) continue;
        if (sn_tile_map_make(p, NULL, e->name, i, in->arg, in->n, in->symbol, &map, &failed)) {
            count(&e->tiles[i], &map);
            free(map.kind);
        } else if (failed.code) {
            return sn_fail(err, failed.code, "%s", failed.message);
        }
    }
    return true;
}

bool explain_find_tiles(explain_entry *e, const sn_program *p, sn_error *err) {
    inspect_inputs *in = calloc(1, sizeof *in);
    e->tiles = calloc((size_t)e->n + 1, sizeof *e->tiles);
    bool ok = (in && e->tiles) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && find(e, p, in, err);
    if (in) inspect_inputs_free(in);
    free(in);
    return ok;
}
