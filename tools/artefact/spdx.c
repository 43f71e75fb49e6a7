/* spdx.c: collects files and their hashes, finds the licence of the weights, writes the document. Files
 * are packages with filesAnalyzed false, which need one checksum; names are relative, without folders of
 * this machine. */
#include "tools/artefact/spdx.h"
#include "codegen/jit/object.h"
#include "runtime/cli/json_out.h"
#include "runtime/file.h"
#include "runtime/str.h"
#include "tools/artefact/sha256.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

enum { LICENSE_BYTES = 1 << 16, LINE = 256 };
#define REFERENCE "LicenseRef-" /* begins the identifier of a licence that SPDX does not list */

typedef struct item {
    char *name;
    char hash[65];
    bool made; /* of the artefact; else of the model */
} item;

typedef struct bill {
    const spdx_request *r;
    item *item;
    size_t n, cap;
    char license[LINE], base[LINE]; /* of the weights, and what they were made from; "": unknown */
    char *text;                     /* of a licence without an SPDX identifier; NULL: none */
    sn_error *err;
} bill;

/* ---- files ---- */

static bool add_file(bill *b, const char *path, const char *name, bool made) {
    sn_mapping map;
    if (b->n == b->cap) {
        size_t cap = 2 * b->cap + 16;
        item *grown = realloc(b->item, cap * sizeof *grown);
        if (!grown) return sn_fail(b->err, SN_ERR_MEMORY, "out of memory");
        b->item = grown;
        b->cap = cap;
    }
    if (!sn_file_map(path, &map, b->err)) return false;
    item *i = &b->item[b->n];
    *i = (item){.name = strdup(name), .made = made};
    sha256 s = sha256_begin();
    sha256_add(&s, map.data, map.size);
    sha256_end(&s, i->hash);
    sn_file_unmap(&map);
    b->n += i->name != NULL;
    return i->name || sn_fail(b->err, SN_ERR_MEMORY, "out of memory");
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Folders of a model's folder that models are read from: "onnx", and "1_Pooling" and the like of
 * Sentence-Transformers. Others may be anything, as the folder of the artefact. */
static bool is_part(const char *name) {
    return !strcmp(name, "onnx") || (isdigit((unsigned char)*name) && name[1] == '_');
}

/* The visible files of a folder whose names begin with `start`; with parts also those of such folders in
 * it. prefix: put before their names. */
static bool add_folder(bill *b, const char *path, const char *prefix, const char *start, bool parts,
                       bool made) {
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, alphasort);
    bool ok = n >= 0 || sn_fail(b->err, SN_ERR_FILE, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *base = entry[i]->d_name;
        char name[600];
        bool wanted = ok && *base != '.' && !strncmp(base, start, strlen(start));
        char *file = wanted ? sn_path_join(path, base) : NULL;
        bool inner = file && parts && is_part(base) && is_folder(file);
        snprintf(name, sizeof name, "%s%s%s", prefix, base, inner ? "/" : "");
        if (inner)
            ok = add_folder(b, file, name, "", false, made);
        else if (file && is_file(file))
            ok = add_file(b, file, name, made);
        else if (wanted && !file)
            ok = sn_fail(b->err, SN_ERR_MEMORY, "out of memory");
        free(file);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return ok;
}

static void folder_of(const char *path, char out[4400]) {
    size_t n = (size_t)(sn_base_name(path) - path);
    snprintf(out, 4400, "%.*s", n ? (int)n : 1, n ? path : ".");
}

/* Files of a folder are under "FOLDER/" in the artefact, under their names in the model. Other files of
 * an ONNX model are those whose names begin with its name. */
static bool add_path(bill *b, const char *path, bool made) {
    const char *base = sn_base_name(path);
    char text[4400];
    struct stat st;
    if (stat(path, &st)) return sn_fail(b->err, SN_ERR_FILE, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        snprintf(text, sizeof text, "%s/", base);
        return add_folder(b, path, made ? text : "", "", !made, made);
    }
    if (made || *base == '.' || !sn_ends_with(base, ".onnx")) return add_file(b, path, base, made);
    folder_of(path, text);
    return add_folder(b, text, "", base, false, made);
}

/* What `sha256sum FILES | sha256sum` prints: one hash for all files of the model, or of the artefact. */
static void hash_all(const bill *b, bool made, char hex[65]) {
    sha256 s = sha256_begin();
    for (size_t i = 0; i < b->n; i++) {
        if (b->item[i].made != made) continue;
        sha256_add(&s, b->item[i].hash, 64);
        sha256_add(&s, "  ", 2);
        sha256_add(&s, b->item[i].name, strlen(b->item[i].name));
        sha256_add(&s, "\n", 1);
    }
    sha256_end(&s, hex);
}

/* ---- the licence of the weights ---- */

/* "key: value" of a line, without quotation marks. */
static void take_value(const char *line, const char *key, char out[LINE]) {
    size_t n = strlen(key);
    if (*out || strncmp(line, key, n)) return;
    line += n + strspn(line + n, " \t'\"");
    size_t end = strcspn(line, "\r\n");
    while (end && strchr(" \t'\"", line[end - 1])) end--;
    snprintf(out, LINE, "%.*s", (int)(end < LINE ? end : LINE - 1), line);
}

/* The front matter of a model card: lines between two of "---". */
static void read_card(bill *b, FILE *f) {
    char line[1024], name[LINE] = "", base[LINE] = "";
    if (!fgets(line, sizeof line, f) || strncmp(line, "---", 3)) return;
    while (fgets(line, sizeof line, f) && strncmp(line, "---", 3)) {
        take_value(line, "license:", b->license);
        take_value(line, "license_name:", name);
        take_value(line, "base_model:", base);
    }
    if (*base) snprintf(b->base, sizeof b->base, "base model: %.200s", base);
    if (!strcasecmp(b->license, "other") && *name) memcpy(b->license, name, LINE);
}

static void read_text(bill *b, FILE *f) {
    char *text = malloc(LICENSE_BYTES + 1);
    if (!text) return;
    text[fread(text, 1, LICENSE_BYTES, f)] = 0;
    free(b->text);
    b->text = text;
}

/* All licences that are known, with any case of letters, and without "-only". Any other one becomes a
 * LicenseRef. */
static const char *const identifiers[] = {
    "Apache-2.0",      "MIT",          "BSD-2-Clause", "BSD-3-Clause",  "CC0-1.0",
    "CC-BY-2.0",       "CC-BY-3.0",    "CC-BY-4.0",    "CC-BY-SA-3.0",  "CC-BY-SA-4.0",
    "CC-BY-NC-2.0",    "CC-BY-NC-3.0", "CC-BY-NC-4.0", "CC-BY-ND-4.0",  "CC-BY-NC-SA-4.0",
    "CC-BY-NC-ND-4.0", "GPL-2.0-only", "GPL-3.0-only", "LGPL-2.1-only", "LGPL-3.0-only",
    "AGPL-3.0-only",   "MPL-2.0",      "EPL-2.0",      "OFL-1.1",       "Artistic-2.0",
    "Unlicense",       "Zlib",         "WTFPL",        "ISC",           "BSD-3-Clause-Clear"};

/* The SPDX identifier, or "LicenseRef-NAME". */
static void identify(const char *name, char out[LINE + 16]) {
    for (size_t i = 0; i < sizeof identifiers / sizeof *identifiers; i++) {
        const char *only = strstr(identifiers[i], "-only");
        size_t n = strlen(name);
        bool same =
            !strcasecmp(name, identifiers[i]) ||
            (only && (size_t)(only - identifiers[i]) == n && !strncasecmp(name, identifiers[i], n));
        if (same) snprintf(out, LINE + 16, "%s", identifiers[i]);
        if (same) return;
    }
    size_t n = (size_t)snprintf(out, LINE + 16, REFERENCE);
    for (; *name && n < LINE + 15; name++)
        out[n++] = isalnum((unsigned char)*name) || *name == '.' ? *name : '-';
    out[n] = 0;
}

/* Whether the text of the licence is wanted: it has no SPDX identifier. */
static bool needs_text(const bill *b) {
    char id[LINE + 16];
    identify(b->license, id);
    return !b->text && !strncmp(id, REFERENCE, sizeof REFERENCE - 1);
}

/* folder: of the weights. */
static void find_license(bill *b, const char *folder) {
    static const struct {
        const char *name;
        void (*take)(bill *b, FILE *f);
    } files[] = {{"README.md", read_card},
                 {"LICENSE", read_text},
                 {"LICENSE.txt", read_text},
                 {"LICENSE.md", read_text}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = needs_text(b) ? sn_path_join(folder, files[i].name) : NULL;
        FILE *f = path && is_file(path) ? fopen(path, "r") : NULL;
        if (f) files[i].take(b, f);
        if (f) fclose(f);
        free(path);
    }
    if (!*b->license && b->text) snprintf(b->license, LINE, "weights");
}

/* Beside the weights, or in their folder. */
static void find_terms(bill *b) {
    const char *path = b->r->weights;
    char folder[4400];
    if (!path) return;
    folder_of(path, folder);
    find_license(b, is_folder(path) ? path : folder);
}

/* ---- the document ---- */

static void text_or_none(json_out *j, const char *key, const char *s) {
    sn_json_text(j, key, s && *s ? s : "NOASSERTION");
}

/* id: without "SPDXRef-". hash NULL: none. */
static void put_package(json_out *j, const char *id, const char *name, const char *version,
                        const char *license, const char *hash, const char *comment) {
    char full[80];
    snprintf(full, sizeof full, "SPDXRef-%s", id);
    sn_json_object(j, NULL);
    sn_json_text(j, "SPDXID", full);
    sn_json_text(j, "name", name);
    if (version) sn_json_text(j, "versionInfo", version);
    sn_json_text(j, "downloadLocation", "NOASSERTION");
    sn_json_bool(j, "filesAnalyzed", false);
    sn_json_text(j, "licenseConcluded", "NOASSERTION");
    text_or_none(j, "licenseDeclared", license);
    sn_json_text(j, "copyrightText", "NOASSERTION");
    if (comment && *comment) sn_json_text(j, "comment", comment);
    if (hash) {
        sn_json_list(j, "checksums");
        sn_json_object(j, NULL);
        sn_json_text(j, "algorithm", "SHA256");
        sn_json_text(j, "checksumValue", hash);
        sn_json_close(j);
        sn_json_close(j);
    }
    sn_json_close(j);
}

static const struct {
    unsigned part; /* 0: always */
    const char *id, *name, *license, *relation, *comment;
} parts[] = {
    {0, "LLVM", "LLVM", "Apache-2.0 WITH LLVM-exception", "BUILD_TOOL_OF", NULL},
    {SPDX_LLD, "LLD", "LLD", "Apache-2.0 WITH LLVM-exception", "BUILD_TOOL_OF", NULL},
    {SPDX_PCRE2, "PCRE2", "PCRE2", "BSD-3-Clause", "STATIC_LINK", NULL},
    {SPDX_UTF8PROC, "utf8proc", "utf8proc", "MIT", "STATIC_LINK", NULL},
    {SPDX_GOMP, "libgomp", "libgomp", "GPL-3.0-or-later WITH GCC-exception-3.1", "DYNAMIC_LINK",
     NULL},
    {SPDX_STATIC_GOMP, "libgomp", "libgomp", "GPL-3.0-or-later WITH GCC-exception-3.1",
     "STATIC_LINK", NULL},
    {SPDX_STATIC_LIBC, "libc", "libc", NULL, "STATIC_LINK",
     "libc and libm of the compiler that linked the program; glibc is LGPL-2.1-or-later, "
     "MinGW-w64's is under several permissive licences"},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static bool has_part(const bill *b, int i) {
    return !parts[i].part || b->r->parts & parts[i].part;
}

static void put_packages(const bill *b, json_out *j, const char *license) {
    char hash[65], id[32], version[32] = "";
    const char *made_by = sn_codegen_version(), *llvm = strstr(made_by, "llvm-");
    if (llvm) snprintf(version, sizeof version, "%.*s", (int)strcspn(llvm + 5, " "), llvm + 5);
    sn_json_list(j, "packages");
    hash_all(b, true, hash);
    put_package(j, "Artefact", b->r->name, NULL, NULL, hash, b->r->options);
    hash_all(b, false, hash);
    bool any = false;
    for (size_t i = 0; i < b->n; i++) any |= !b->item[i].made;
    put_package(j, "Model", b->r->model, NULL, license, any ? hash : NULL,
                any ? b->base : "random weights");
    for (size_t i = 0; i < b->n; i++) {
        snprintf(id, sizeof id, "File-%zu", i + 1);
        put_package(j, id, b->item[i].name, NULL, b->item[i].made ? NULL : license, b->item[i].hash,
                    NULL);
    }
    put_package(j, "Sinter", "Sinter", sn_version(), "Apache-2.0", NULL, made_by);
    for (int i = 0; i < N_PARTS; i++)
        if (has_part(b, i))
            put_package(j, parts[i].id, parts[i].name, parts[i].part ? NULL : version,
                        parts[i].license, NULL, parts[i].comment);
    sn_json_close(j);
}

static void relate(json_out *j, const char *from, const char *how, const char *to) {
    char id[80];
    sn_json_object(j, NULL);
    snprintf(id, sizeof id, "SPDXRef-%s", from);
    sn_json_text(j, "spdxElementId", id);
    sn_json_text(j, "relationshipType", how);
    snprintf(id, sizeof id, "SPDXRef-%s", to);
    sn_json_text(j, "relatedSpdxElement", id);
    sn_json_close(j);
}

static void put_relations(const bill *b, json_out *j) {
    char id[32];
    sn_json_list(j, "relationships");
    relate(j, "DOCUMENT", "DESCRIBES", "Artefact");
    relate(j, "Artefact", "GENERATED_FROM", "Model");
    for (size_t i = 0; i < b->n; i++) {
        snprintf(id, sizeof id, "File-%zu", i + 1);
        relate(j, b->item[i].made ? "Artefact" : "Model", "CONTAINS", id);
    }
    relate(j, "Sinter", "BUILD_TOOL_OF", "Artefact");
    if (b->r->parts & SPDX_SINTER) relate(j, "Artefact", "STATIC_LINK", "Sinter");
    for (int i = 0; i < N_PARTS; i++) {
        bool tool = !strcmp(parts[i].relation, "BUILD_TOOL_OF");
        if (has_part(b, i))
            relate(j, tool ? parts[i].id : "Artefact", parts[i].relation,
                   tool ? "Artefact" : parts[i].id);
    }
    sn_json_close(j);
}

static void put_creation(json_out *j) {
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t t = epoch ? (time_t)strtoll(epoch, NULL, 10) : 0;
    struct tm tm;
    char date[40] = "1970-01-01T00:00:00Z", tool[64];
    if (gmtime_r(&t, &tm)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(tool, sizeof tool, "Tool: sinter-%s", sn_version());
    sn_json_object(j, "creationInfo");
    sn_json_text(j, "created", date);
    sn_json_list(j, "creators");
    sn_json_text(j, NULL, tool);
    sn_json_close(j);
    sn_json_close(j);
}

static void put_document(const bill *b, FILE *f) {
    char license[LINE + 16] = "", name[LINE], all[65], space[LINE + 128];
    if (*b->license) identify(b->license, license);
    hash_all(b, true, all);
    snprintf(name, sizeof name, "%.200s", b->r->name);
    snprintf(space, sizeof space, "https://spdx.org/spdxdocs/%s-%s", name, all);
    json_out j = sn_json_begin(f);
    sn_json_text(&j, "spdxVersion", "SPDX-2.3");
    sn_json_text(&j, "dataLicense", "CC0-1.0");
    sn_json_text(&j, "SPDXID", "SPDXRef-DOCUMENT");
    sn_json_text(&j, "name", name);
    sn_json_text(&j, "documentNamespace", space);
    put_creation(&j);
    put_packages(b, &j, license);
    put_relations(b, &j);
    if (!strncmp(license, REFERENCE, sizeof REFERENCE - 1)) {
        sn_json_list(&j, "hasExtractedLicensingInfos");
        sn_json_object(&j, NULL);
        sn_json_text(&j, "licenseId", license);
        sn_json_text(&j, "name", b->license);
        sn_json_text(&j, "extractedText", b->text ? b->text : b->license);
        sn_json_close(&j);
        sn_json_close(&j);
    }
    sn_json_end(&j);
}

static bool write_document(const bill *b) {
    char name[160];
    snprintf(name, sizeof name, "%s.spdx.json", b->r->name);
    char *path = sn_path_join(b->r->dir ? b->r->dir : ".", name);
    sn_file *f = path ? sn_file_create(path, b->err) : NULL;
    if (f) put_document(b, sn_file_stream(f));
    free(path);
    return f ? sn_file_commit(f, b->err) : sn_fail(b->err, SN_ERR_MEMORY, "out of memory");
}

bool spdx_write(const spdx_request *r, sn_error *err) {
    bill b = {.r = r, .err = err};
    bool ok = true;
    for (int i = 0; ok && i < r->n_made; i++) ok = add_path(&b, r->made[i], true);
    for (int i = 0; ok && i < r->n_read; i++)
        if (r->read[i]) ok = add_path(&b, r->read[i], false);
    if (ok) find_terms(&b);
    ok = ok && write_document(&b);
    for (size_t i = 0; i < b.n; i++) free(b.item[i].name);
    free(b.item);
    free(b.text);
    return ok;
}
