/* report_mask.c: the tiles of each attention: skipped, computed with the mask, or without. */
#include "codegen/attention/attention.h"
#include "codegen/program/tile_map.h"
#include "tools/inspect/report.h"

#include <stdlib.h>
#include <string.h>

/* Rows of a head, a text each: a digit for each tile. */
static void add_rows(report *r, cJSON *list, const sn_tile_map *map, int64_t head) {
    char *row = calloc((size_t)map->tiles + 1, 1);
    if (!row) r->full = true;
    for (int64_t b = 0; row && b < map->blocks; b++) {
        const int64_t *kind = map->kind + (head * map->blocks + b) * map->tiles;
        for (int64_t t = 0; t < map->tiles; t++) row[t] = (char)('0' + kind[t]);
        report_add_text(r, list, row);
    }
    free(row);
}

static bool same_heads(const sn_tile_map *map, int64_t a, int64_t b) {
    size_t n = (size_t)(map->blocks * map->tiles);
    return !memcmp(map->kind + (size_t)a * n, map->kind + (size_t)b * n, n * sizeof *map->kind);
}

/* Heads with the same tiles are one map. Batches other than the first are counted, not drawn. */
static void add_map(report *r, cJSON *o, const sn_tile_map *map) {
    double count[SN_TILE_KINDS] = {0};
    int64_t all = map->batch * map->heads * map->blocks * map->tiles;
    for (int64_t i = 0; i < all; i++) count[map->kind[i]]++;
    report_number(r, o, "skipped", count[SN_TILE_SKIPPED]);
    report_number(r, o, "partial", count[SN_TILE_PARTIAL]);
    report_number(r, o, "full", count[SN_TILE_FULL]);
    cJSON *maps = report_list(r, o, "maps");
    for (int64_t h = 0; h < map->heads && !r->full; h++) {
        int64_t first = 0;
        while (!same_heads(map, first, h)) first++;
        if (first < h) continue;
        cJSON *m = report_object(r, maps, NULL), *heads = report_list(r, m, "heads");
        for (int64_t k = h; k < map->heads; k++)
            if (same_heads(map, h, k)) report_add_number(r, heads, (double)k);
        add_rows(r, report_list(r, m, "rows"), map, h);
    }
}

bool report_masks(report *r, cJSON *entry, const sn_program *p, const sn_session *s,
                  const explain_entry *e, const inspect_inputs *in, sn_error *err) {
    enum { MAX_MAPS = 24 };
    cJSON *list = report_list(r, entry, "attention");
    int n = 0;
    for (int i = 0; s && i < e->n && n < MAX_MAPS; i++) {
        sn_tile_map map;
        sn_error failed = {0};
        if (explain_repeats(e, i)) continue;
        if (!sn_tile_map_make(p, s, e->name, i, in->arg, in->n, in->symbol, &map, &failed)) {
            if (failed.code) return sn_fail(err, failed.code, "%s", failed.message);
            continue;
        }
        n++;
        cJSON *o = report_object(r, list, NULL);
        report_number(r, o, "call", i);
        report_number(r, o, "queries", (double)map.tq);
        report_number(r, o, "keys", (double)map.tk);
        report_number(r, o, "batch", (double)map.batch);
        report_number(r, o, "tile_queries", map.queries);
        report_number(r, o, "tile_keys", map.keys);
        if (map.known)
            add_map(r, o, &map);
        else
            report_text(r, o, "unknown", map.why);
        free(map.kind);
    }
    return !r->full || sn_fail(err, SN_ERR_MEMORY, "out of memory for the report");
}
