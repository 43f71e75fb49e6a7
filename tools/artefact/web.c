/* web.c: prints NAME.js: the description of the artefact as JSON, then the files of web/; its types;
 * the page. */
#include "tools/artefact/web.h"
#include "codegen/aot/file.h"
#include "runtime/cli/json_out.h"
#include "runtime/file.h"
#include "runtime/manifest.h"
#include "tools/embed/embedded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tools/artefact/web/"

typedef struct web {
    const web_request *r;
    const sn_emit_options *o;
    sn_manifest manifest;
    char *text; /* the manifest, allocated */
    sn_aot_header weights;
    sn_error *err;
} web;

static char *path_of(const web *w, const char *ending) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", w->o->name, ending);
    char *path = sn_path_join(w->o->dir ? w->o->dir : ".", name);
    if (!path) sn_fail(w->err, SN_ERR_MEMORY, "out of memory");
    return path;
}

/* ---- what was emitted ---- */

static bool map_file(const web *w, const char *ending, sn_mapping *map) {
    char *path = path_of(w, ending);
    bool ok = path && sn_file_map(path, map, w->err);
    free(path);
    return ok;
}

static bool read_manifest(web *w) {
    sn_mapping map;
    if (!map_file(w, ".wasm.o", &map)) return false;
    const char *text = sn_manifest_find(map.data, map.size, 0);
    bool ok = text ? sn_manifest_parse(text, map.size - (size_t)(text - (const char *)map.data),
                                       &w->manifest, w->err)
                   : sn_fail(w->err, SN_ERR_INTERNAL, "the objects have no manifest");
    if (ok && !(w->text = strdup(text))) ok = sn_fail(w->err, SN_ERR_MEMORY, "out of memory");
    sn_file_unmap(&map);
    return ok;
}

static bool read_weights(web *w) {
    sn_mapping map;
    if (!map_file(w, ".weights", &map)) return false;
    memcpy(&w->weights, map.data, sizeof w->weights);
    sn_file_unmap(&map);
    return true;
}

/* ---- description ---- */

/* "[B,2*T]" as a list of texts. */
static void print_shape(json_out *j, const char *shape) {
    sn_json_list(j, "shape");
    for (const char *s = shape + 1; *s && *s != ']';) {
        size_t n = strcspn(s, ",]");
        sn_json_bytes(j, NULL, s, n);
        s += n + (s[n] == ',');
    }
    sn_json_close(j);
}

static void print_tensors(json_out *j, const sn_manifest_entry *e, bool outputs) {
    sn_json_list(j, outputs ? "outputs" : "inputs");
    for (int i = 0; i < e->n_tensor; i++) {
        if (e->tensor[i].is_output != outputs) continue;
        sn_json_object(j, NULL);
        sn_json_text(j, "name", e->tensor[i].name);
        sn_json_text(j, "type", sn_dtype_name(e->tensor[i].dtype));
        print_shape(j, e->tensor[i].shape);
        sn_json_close(j);
    }
    sn_json_close(j);
}

static void print_entry(json_out *j, const sn_manifest_entry *e) {
    sn_json_object(j, NULL);
    sn_json_text(j, "name", e->name);
    sn_json_bool(j, "state", e->has_state);
    sn_json_list(j, "dims");
    for (int i = 0; i < e->n_dim; i++) {
        sn_json_object(j, NULL);
        sn_json_text(j, "name", e->dim[i].name);
        sn_json_integer(j, "min", e->dim[i].lo);
        sn_json_integer(j, "max", e->dim[i].hi);
        sn_json_close(j);
    }
    sn_json_close(j);
    print_tensors(j, e, false);
    print_tensors(j, e, true);
    sn_json_close(j);
}

static void print_channels(json_out *j, const char *key, const double *value, int64_t n) {
    sn_json_list(j, key);
    for (int64_t i = 0; i < n; i++) sn_json_number(j, NULL, value[i]);
    sn_json_close(j);
}

static void print_pixels(json_out *j, const sn_emit_pixels *p) {
    if (!p) {
        sn_json_text(j, "pixels", NULL);
        return;
    }
    sn_json_object(j, "pixels");
    sn_json_integer(j, "side", p->side);
    sn_json_integer(j, "channels", p->channels);
    sn_json_number(j, "scale", p->factor);
    print_channels(j, "mean", p->mean, p->channels);
    print_channels(j, "std", p->std, p->channels);
    sn_json_close(j);
}

static void print_tokens(json_out *j, const web *w) {
    const sn_emit_options *o = w->o;
    char folder[160];
    snprintf(folder, sizeof folder, "%s%s", o->name, w->r->tokenizer ? w->r->tokenizer : "");
    sn_json_text(j, "tokenizer", w->r->tokenizer ? folder : NULL);
    snprintf(folder, sizeof folder, "%s.source.tokenizer", o->name);
    if (w->r->source) sn_json_text(j, "source", folder);
    sn_json_integer(j, "vocab", o->vocab);
    sn_json_integer(j, "context", o->context);
    sn_json_integer(j, "bos", o->bos);
    sn_json_bool(j, "noBos", o->no_bos);
    sn_json_ids(j, "eos", o->eos, o->n_eos);
    if (w->r->rules) w->r->rules(w->r->model, j);
    sn_json_list(j, "labels");
    for (int i = 0; i < o->n_label; i++) sn_json_text(j, NULL, o->label[i]);
    sn_json_close(j);
}

static void print_artefact(const web *w, FILE *f) {
    const sn_manifest *m = &w->manifest;
    char sum[20];
    snprintf(sum, sizeof sum, "%016" PRIx64, w->weights.checksum);
    json_out j = sn_json_begin(f);
    sn_json_text(&j, "name", m->name);
    sn_json_text(&j, "version", m->version);
    sn_json_text(&j, "target", m->target[0].name);
    if (w->r->memory) sn_json_integer(&j, "memory", w->r->memory);
    sn_json_integer(&j, "weightBytes", m->weight_bytes);
    sn_json_integer(&j, "stateBytes", m->state_bytes);
    sn_json_text(&j, "checksum", sum);
    sn_json_integer(&j, "checksumAt", (int64_t)offsetof(sn_aot_header, checksum));
    print_tokens(&j, w);
    print_pixels(&j, w->o->pixels);
    sn_json_list(&j, "entries");
    for (int i = 0; i < m->n_entry; i++) print_entry(&j, &m->entry[i]);
    sn_json_close(&j);
    sn_json_end(&j);
}

/* ---- files ---- */

/* The text of a file of web/, with the artefact's name for each NAME. */
static bool print_text(const web *w, const char *file, FILE *f) {
    const char *text = embedded_text(file);
    if (!text) return sn_fail(w->err, SN_ERR_INTERNAL, "%s is not in the program", file);
    for (const char *at; (at = strstr(text, "NAME")); text = at + 4) {
        fwrite(text, 1, (size_t)(at - text), f);
        fputs(w->o->name, f);
    }
    fputs(text, f);
    return true;
}

static bool print_module(const web *w, FILE *f) {
    const struct {
        const char *file;
        bool wanted;
    } parts[] = {{FOLDER "model.js", true},
                 {FOLDER "tokenizer.js", true},
                 {FOLDER "tokenizer_json.js", true},
                 {FOLDER "sentencepiece.js", true},
                 {FOLDER "text.js", true},
                 {FOLDER "translate.js", true},
                 {FOLDER "workers.js", w->r->memory > 0}};
    fprintf(f, "// %s.js: made by Sinter %s.\n\nexport const artefact = ", w->o->name,
            w->manifest.version);
    print_artefact(w, f);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].wanted) continue;
        fputs("\n", f);
        if (!print_text(w, parts[i].file, f)) return false;
    }
    return true;
}

static const char *array_of(sn_dtype t) {
    static const char *const arrays[SN_DTYPE_COUNT] = {
        [SN_F32] = "Float32Array", [SN_F64] = "Float64Array", [SN_BF16] = "Uint16Array",
        [SN_F16] = "Uint16Array",  [SN_I32] = "Int32Array",   [SN_I64] = "BigInt64Array",
        [SN_I8] = "Int8Array",     [SN_U8] = "Uint8Array",    [SN_BOOL] = "Uint8Array",
    };
    return arrays[t];
}

/* What a name means, in a comment that is open, and the comment's end. */
static void print_about(const web *w, const char *entry, const char *name, FILE *f) {
    int n = 0;
    const char *text = sn_manifest_about(w->text, entry, name, &n);
    fprintf(f, text ? ": %.*s */" : " */", n, text);
}

static void print_entry_types(const web *w, const sn_manifest_entry *e, FILE *f) {
    fprintf(f, "  %s: {\n    dims: {", e->name);
    for (int i = 0; i < e->n_dim; i++) {
        fprintf(f, "\n      /** %" PRId64 " to %" PRId64, e->dim[i].lo, e->dim[i].hi);
        print_about(w, e->name, e->dim[i].name, f);
        fprintf(f, " %s: number;", e->dim[i].name);
    }
    for (int outputs = 0; outputs < 2; outputs++) {
        fprintf(f, "\n    };\n    %s: {", outputs ? "outputs" : "inputs");
        for (int i = 0; i < e->n_tensor; i++) {
            const sn_manifest_tensor *t = &e->tensor[i];
            if (t->is_output != outputs) continue;
            fprintf(f, "\n      /** %s", t->shape);
            print_about(w, e->name, t->name, f);
            fprintf(f, " '%s': %s%s;", t->name, array_of(t->dtype),
                    outputs              ? ""
                    : t->dtype == SN_I64 ? " | bigint[]"
                                         : " | number[] | number");
        }
    }
    fprintf(f, "\n    };\n  };\n");
}

static bool print_types(const web *w, FILE *f) {
    fprintf(f,
            "// %s.d.ts: the types of %s.js. Arrays are row-major; f16 and bf16 are their bits.\n\n"
            "/** Lengths, inputs and outputs of the entries. */\nexport interface Entries {\n",
            w->o->name, w->o->name);
    for (int i = 0; i < w->manifest.n_entry; i++) print_entry_types(w, &w->manifest.entry[i], f);
    fputs("}\n", f);
    return print_text(w, FOLDER "types.d.ts", f);
}

static bool print_page(const web *w, FILE *f) {
    return print_text(w, FOLDER "page.html", f);
}

static bool save(const web *w, const char *ending, bool (*print)(const web *w, FILE *f)) {
    char *text = NULL, *path = path_of(w, ending);
    size_t size = 0;
    FILE *f = path ? open_memstream(&text, &size) : NULL;
    bool ok = f && print(w, f);
    if (f && fclose(f)) ok = false;
    if (ok)
        ok = sn_file_save(path, text, size, w->err);
    else if (!w->err->code)
        sn_fail(w->err, SN_ERR_MEMORY, "out of memory");
    free(text);
    free(path);
    return ok;
}

bool web_write(const web_request *r, sn_error *err) {
    web *w = calloc(1, sizeof *w);
    if (!w) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *w = (web){.r = r, .o = r->emitted, .err = err};
    bool ok = read_manifest(w) && read_weights(w) && save(w, ".js", print_module) &&
              save(w, ".d.ts", print_types) && (!r->page || save(w, ".html", print_page));
    free(w->text);
    free(w);
    return ok;
}
