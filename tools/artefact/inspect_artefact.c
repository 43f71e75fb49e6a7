/* inspect_artefact.c: describes an object, library, program or weights file of `sinter compile`. */
#include "tools/artefact/inspect_artefact.h"
#include "codegen/aot/file.h"
#include "runtime/file.h"
#include "runtime/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print_entry(const sn_manifest_entry *e) {
    printf("entry       %s%s\n", e->name, e->has_state ? " (reads and writes the state)" : "");
    for (int i = 0; i < e->n_dim; i++)
        printf("            %s: %" PRId64 " to %" PRId64 "\n", e->dim[i].name, e->dim[i].lo,
               e->dim[i].hi);
    for (int i = 0; i < e->n_tensor; i++) {
        const sn_manifest_tensor *t = &e->tensor[i];
        printf("            %s %s %s %s\n", t->is_output ? "->" : "  ", t->name,
               sn_dtype_name(t->dtype), t->shape);
    }
}

static void print_manifest(const sn_manifest *m) {
    printf("artefact    %s, by Sinter %s, threads: %s\n", m->name, m->version, m->threads);
    for (int i = 0; i < m->n_target; i++) {
        printf("target      %s (%s): %" PRId64 " bytes of code\n", m->target[i].name,
               m->target[i].triple, m->target[i].code_bytes);
        if (*m->target[i].needs) printf("            needs %s\n", m->target[i].needs);
    }
    printf("weights     %" PRId64 " bytes, %s, layout %016" PRIx64 "\n", m->weight_bytes,
           m->embedded ? "embedded" : "in a separate file to map", m->hash);
    printf("state       %" PRId64 " bytes per sequence; workspace: %s_ENTRY_workspace()\n",
           m->state_bytes, m->name);
    if (m->n_label) printf("classes     %d named\n", m->n_label);
    for (int i = 0; i < m->n_entry; i++) print_entry(&m->entry[i]);
}

static bool print_weights(const sn_mapping *map) {
    sn_aot_header h;
    if (map->size < sizeof h) return false;
    memcpy(&h, map->data, sizeof h);
    if (memcmp(h.magic, SN_AOT_MAGIC, sizeof h.magic)) return false;
    h.name[sizeof h.name - 1] = 0;
    sn_mask_controls(h.name, "");
    printf("weights     of artefact %s, %" PRIu64 " bytes, layout %016" PRIx64 "\n", h.name,
           h.bytes, h.hash);
    if (h.bytes != map->size || h.bytes < SN_AOT_PAGE || h.bytes % SN_AOT_UNIT)
        printf("            but the file has %zu bytes: it is corrupted\n", map->size);
    else
        printf("            checksum %s\n",
               sn_aot_checksum(map->data + SN_AOT_PAGE, map->size - SN_AOT_PAGE) == h.checksum
                   ? "right"
                   : "wrong: the contents are corrupted");
    return true;
}

static bool print_all(const sn_mapping *map, bool *found, sn_error *err) {
    sn_manifest *m = malloc(sizeof *m);
    bool ok = m != NULL || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *found = ok && print_weights(map);
    for (int k = 0; ok; k++) {
        const char *text = sn_manifest_find(map->data, map->size, k);
        if (!text) break;
        size_t room = map->size - (size_t)((const unsigned char *)text - map->data);
        if (!memchr(text, 0, room)) break; /* not one of Sinter's: these end with a terminator */
        ok = sn_manifest_parse(text, room, m, err);
        if (ok) print_manifest(m);
        *found |= ok;
    }
    free(m);
    return ok;
}

bool inspect_artefact(const char *path, bool *found, sn_error *err) {
    struct stat st;
    sn_mapping map;
    *found = false;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return true;
    if (!sn_file_map(path, &map, err)) return false;
    bool ok = print_all(&map, found, err);
    sn_file_unmap(&map);
    return ok;
}
