/* inspect_artefact.c: describes an object, library, program or weights file of `sinter compile`. */
#include "tools/artefact/inspect_artefact.h"
#include "codegen/aot/file.h"
#include "codegen/jit/object.h"
#include "ir/ir.h"
#include "runtime/file.h"
#include "runtime/cli/json_out.h"
#include "runtime/cli/screen.h"
#include "runtime/manifest.h"

#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What it means, if the manifest says so, and the end of the line. */
static void print_about(const char *manifest, const char *entry, const char *name) {
    int n;
    const char *text = sn_manifest_about(manifest, entry, name, &n);
    if (text) {
        char about[SN_MAX_TEXT + 1];
        snprintf(about, sizeof about, "%.*s", n, text);
        sn_mask_controls(about, "");
        printf(" (%s)", about);
    }
    putchar('\n');
}

static void print_entry(const char *manifest, const sn_manifest_entry *e) {
    printf("entry       %s%s\n", e->name, e->has_state ? " (has a state)" : "");
    for (int i = 0; i < e->n_dim; i++) {
        printf("            %s: %" PRId64 " to %" PRId64, e->dim[i].name, e->dim[i].lo,
               e->dim[i].hi);
        print_about(manifest, e->name, e->dim[i].name);
    }
    for (int i = 0; i < e->n_tensor; i++) {
        const sn_manifest_tensor *t = &e->tensor[i];
        printf("            %s %s %s %s", t->is_output ? "->" : "  ", t->name,
               sn_dtype_name(t->dtype), t->shape);
        print_about(manifest, e->name, t->name);
    }
}

static void json_about(json_out *j, const char *manifest, const char *entry, const char *name) {
    int n;
    const char *text = sn_manifest_about(manifest, entry, name, &n);
    if (text) sn_json_bytes(j, "about", text, (size_t)n);
}

static void json_tensors(json_out *j, const char *manifest, const sn_manifest_entry *e,
                         bool outputs) {
    sn_json_list(j, outputs ? "outputs" : "inputs");
    for (int i = 0; i < e->n_tensor; i++) {
        const sn_manifest_tensor *t = &e->tensor[i];
        if (t->is_output != outputs) continue;
        sn_json_object(j, NULL);
        sn_json_text(j, "name", t->name);
        sn_json_text(j, "type", sn_dtype_name(t->dtype));
        sn_json_text(j, "shape", t->shape);
        json_about(j, manifest, e->name, t->name);
        sn_json_close(j);
    }
    sn_json_close(j);
}

/* Sizes have the same bounds in all entries. */
static void json_sizes(json_out *j, const sn_manifest *m) {
    sn_json_list(j, "sizes");
    for (int i = 0; i < m->n_entry; i++)
        for (int d = 0; d < m->entry[i].n_dim; d++) {
            bool seen = false;
            for (int k = 0; k < i; k++)
                for (int x = 0; x < m->entry[k].n_dim; x++)
                    seen |= !strcmp(m->entry[k].dim[x].name, m->entry[i].dim[d].name);
            if (seen) continue;
            sn_json_object(j, NULL);
            sn_json_text(j, "name", m->entry[i].dim[d].name);
            sn_json_integer(j, "min", m->entry[i].dim[d].lo);
            sn_json_integer(j, "max", m->entry[i].dim[d].hi);
            sn_json_close(j);
        }
    sn_json_close(j);
}

/* ---- code, function by function ---- */

typedef struct function {
    const char *name;
    uint64_t bytes;
} function;

static int by_size(const void *x, const void *y) {
    const function *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* Kernels and other functions of an ELF object, each with the helpers in its section, the largest first; *n:
 * their number. Allocated; NULL: it is no such file. */
static function *list_functions(const sn_mapping *map, size_t *n) {
    static const char prefix[] = ".text.";
    const sn_object o = {(uint8_t *)(uintptr_t)map->data, map->size};
    *n = 0;
    if (!sn_object_check(&o, true, NULL)) return NULL;
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)map->data;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(map->data + h->e_shoff);
    const char *names = (const char *)map->data + s[h->e_shstrndx].sh_offset;
    function *list = malloc((h->e_shnum + 1u) * sizeof *list);
    for (int i = 0; list && i < h->e_shnum; i++) {
        const char *name = names + s[i].sh_name;
        if (s[i].sh_flags & SHF_EXECINSTR && !strncmp(name, prefix, sizeof prefix - 1))
            list[(*n)++] = (function){name + sizeof prefix - 1, s[i].sh_size};
    }
    if (list) qsort(list, *n, sizeof *list, by_size);
    return list;
}

static void json_functions(json_out *j, const sn_mapping *map) {
    size_t n;
    function *list = list_functions(map, &n);
    sn_json_list(j, "functions");
    for (size_t i = 0; i < n; i++) {
        sn_json_object(j, NULL);
        sn_json_text(j, "name", list[i].name);
        sn_json_integer(j, "bytes", (int64_t)list[i].bytes);
        sn_json_close(j);
    }
    sn_json_close(j);
    free(list);
}

static void print_json(const sn_mapping *map, const char *text, const sn_manifest *m) {
    char layout[20];
    json_out j = sn_json_begin(stdout);
    sn_json_text(&j, "name", m->name);
    sn_json_text(&j, "version", m->version);
    sn_json_text(&j, "threads", m->threads);
    sn_json_integer(&j, "weight_bytes", m->weight_bytes);
    sn_json_integer(&j, "state_bytes", m->state_bytes);
    snprintf(layout, sizeof layout, "%016" PRIx64, m->hash);
    sn_json_text(&j, "layout", layout);
    sn_json_bool(&j, "embedded", m->embedded);
    sn_json_list(&j, "targets");
    for (int i = 0; i < m->n_target; i++) {
        sn_json_object(&j, NULL);
        sn_json_text(&j, "name", m->target[i].name);
        sn_json_text(&j, "triple", m->target[i].triple);
        if (m->target[i].code_bytes) sn_json_integer(&j, "code_bytes", m->target[i].code_bytes);
        sn_json_text(&j, "needs", m->target[i].needs);
        sn_json_close(&j);
    }
    sn_json_close(&j);
    sn_json_list(&j, "entries");
    for (int i = 0; i < m->n_entry; i++) {
        sn_json_object(&j, NULL);
        sn_json_text(&j, "name", m->entry[i].name);
        sn_json_bool(&j, "state", m->entry[i].has_state);
        json_tensors(&j, text, &m->entry[i], false);
        json_tensors(&j, text, &m->entry[i], true);
        sn_json_close(&j);
    }
    sn_json_close(&j);
    json_sizes(&j, m);
    json_functions(&j, map);
    sn_json_end(&j);
}

static void print_manifest(const sn_mapping *map, const char *text, const sn_manifest *m) {
    if (sn_screen()->json) {
        print_json(map, text, m);
        return;
    }
    printf("artefact    %s, by Sinter %s, threads: %s\n", m->name, m->version, m->threads);
    for (int i = 0; i < m->n_target; i++) {
        printf("target      %s (%s)", m->target[i].name, m->target[i].triple);
        if (m->target[i].code_bytes) printf(": %" PRId64 " bytes of code", m->target[i].code_bytes);
        putchar('\n');
        if (*m->target[i].needs) printf("            needs %s\n", m->target[i].needs);
    }
    printf("weights     %" PRId64 " bytes, %s, layout %016" PRIx64 "\n", m->weight_bytes,
           m->embedded ? "embedded" : "in a separate file to map", m->hash);
    printf("state       %" PRId64 " bytes per sequence; workspace: %s_ENTRY_workspace()\n",
           m->state_bytes, m->name);
    if (m->n_label) printf("classes     %d named\n", m->n_label);
    for (int i = 0; i < m->n_entry; i++) print_entry(text, &m->entry[i]);
}

static bool print_weights(const sn_mapping *map) {
    sn_aot_header h;
    if (map->size < sizeof h) return false;
    memcpy(&h, map->data, sizeof h);
    if (memcmp(h.magic, SN_AOT_MAGIC, sizeof h.magic) || h.version != SN_AOT_FILE_VERSION)
        return false;
    h.name[sizeof h.name - 1] = 0;
    sn_mask_controls(h.name, "");
    if (sn_screen()->json) {
        char layout[20];
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "name", h.name);
        sn_json_integer(&j, "weight_bytes", (int64_t)h.bytes);
        snprintf(layout, sizeof layout, "%016" PRIx64, h.hash);
        sn_json_text(&j, "layout", layout);
        sn_json_bool(&j, "checksum", sn_aot_is_whole(map->data, map->size));
        sn_json_end(&j);
        return true;
    }
    printf("weights     of artefact %s, %" PRIu64 " bytes, layout %016" PRIx64 "\n", h.name,
           h.bytes, h.hash);
    if (h.bytes != map->size)
        printf("            but the file has %zu bytes: it is corrupted\n", map->size);
    else
        printf("            checksum %s\n", sn_aot_is_whole(map->data, map->size)
                                                ? "right"
                                                : "wrong: the contents are corrupted");
    return true;
}

static void print_functions(const sn_mapping *map) {
    size_t n;
    uint64_t all = 0;
    function *list = list_functions(map, &n);
    for (size_t i = 0; i < n; i++) all += list[i].bytes;
    if (n) printf("code        %" PRIu64 " bytes in %zu functions\n", all, n);
    for (size_t i = 0; i < n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%s", list[i].name);
        sn_mask_controls(name, "");
        printf("%11" PRIu64 " %s\n", list[i].bytes, name);
    }
    free(list);
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
        if (ok) print_manifest(map, text, m);
        if (ok && !sn_screen()->json) print_functions(map);
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
