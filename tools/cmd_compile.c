/* cmd_compile.c: `sinter compile`: compiles a model to an object, a header and weights, or to a
 * program. */
#include "tools/cmd.h"
#include "codegen/emit/target.h"
#include "driver/entries.h"
#include "driver/temporary.h"
#include "runtime/file.h"
#include "runtime/str.h"
#include "tools/artefact/inside.h"
#include "tools/artefact/link.h"
#include "tools/artefact/spdx.h"
#include "tools/artefact/web.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "sinter compile"

typedef struct options {
    cmd_model model;
    const char *dir, *name, *target, *entries, *threads, *weights, *compute, *cache, *cache_dir,
        *off, *accept, *cc, *train, *emit, *invariant;
    int64_t level, beams, sequences, slices;
    bool list_targets, archive, shared, embed, exe, is_static, strict, page, spdx, rate, lines;
    int listings;    /* SN_EMIT_… of --emit */
    sn_target first; /* of the list: all are for its system */
} options;

#define AT(field) offsetof(options, field)
static const arg table[] = {
    CMD_MODEL_ARGS(options),
    {"output", 'o', ARG_TEXT, AT(dir), "DIR", ".", 0, 0, "output folder"},
    {"name", 0, ARG_TEXT, AT(name), "NAME", NULL, 0, 0,
     "prefix of all symbols and file names; default: the model's name"},
    {"target", 0, ARG_TEXT, AT(target), "CPU,…", "native", 0, 0,
     "target CPUs, with features, caches and system: x86-64-v2,x86-64-v4,+avx512vnni,l2=2M; "
     "x86-64-v3,os=windows; neoverse-v1,sve=256"},
    {"list-targets", 0, ARG_FLAG, AT(list_targets), NULL, NULL, 0, 0,
     "list the names for --target"},
    {"entries", 0, ARG_TEXT, AT(entries), "NAME,…", NULL, 0, 0,
     "entries: forward, loss, cached (prefill, decode), step, encode, embed; default: cached and "
     "step, or encode (and forward of a classifier, with --exe embed of others)"},
    {"train", 0, ARG_TEXT, AT(train), "CONFIG", NULL, 0, 0,
     "instead of MODEL: compile the training step of a `sinter train` config, with its initial "
     "weights; --entries adds others, which use what was trained"},
    {"slices", 0, ARG_INT, AT(slices), "N", "0", 0, 1 << 20,
     "with --train: slices of a batch, whose gradients the step sums, also over ranks by functions "
     "of "
     "yours; 0: as in the config"},
    {"rate-argument", 0, ARG_FLAG, AT(rate), NULL, NULL, 0, 0,
     "with --train: the step takes the learning rate as an argument, learning_rate, in place of "
     "the config's schedule"},
    {"threads", 0, ARG_CHOICE, AT(threads), "openmp|none|workers", NULL, 0, 0,
     "thread runtime; your own pool is possible with openmp and none; workers: those of browsers "
     "and Node, for wasm32; default: openmp, but none for wasm32 and a program for Windows, which "
     "has its own threads"},
    {"archive", 0, ARG_FLAG, AT(archive), NULL, NULL, 0, 0, "also write NAME.a"},
    {"emit", 0, ARG_TEXT, AT(emit), "asm,ll", NULL, 0, 0,
     "also write the object's code as text: asm: assembler, NAME.s; ll: LLVM's IR, NAME.ll; "
     "comments "
     "name each kernel's place in the model"},
    {"lines", 'g', ARG_FLAG, AT(lines), NULL, NULL, 0, 0,
     "tell gdb and perf from which line of the model's source each kernel comes (DWARF)"},
    {"shared", 0, ARG_FLAG, AT(shared), NULL, NULL, 0, 0,
     "also link NAME.so (with the C compiler)"},
    {"exe", 0, ARG_FLAG, AT(exe), NULL, NULL, 0, 0,
     "also link NAME (for Windows NAME.exe, with MinGW), a program that generates, translates, "
     "classifies or encodes text"},
    {"page", 0, ARG_FLAG, AT(page), NULL, NULL, 0, 0,
     "wasm32: also write NAME.html, a page that generates, translates, classifies, embeds or "
     "trains in the browser"},
    {"beams", 0, ARG_INT, AT(beams), "N", "auto", 1, 1024,
     "encoder-decoders: number of beams, 1: greedy; auto: of generation_config.json, or 1"},
    {"sequences", 0, ARG_INT, AT(sequences), "N", "1", 1, 4096,
     "decoders: number of sequences at once, each with its own caches and length"},
    {"static", 0, ARG_FLAG, AT(is_static), NULL, NULL, 0, 0, "link the program statically"},
    {"embed-weights", 0, ARG_FLAG, AT(embed), NULL, NULL, 0, 0,
     "embed weights and tokenizer in the object instead of writing NAME.weights; in a program, "
     "too"},
    {"spdx", 0, ARG_FLAG, AT(spdx), NULL, NULL, 0, 0,
     "also write NAME.spdx.json, a bill of materials: hashes of the files of model and artefact, "
     "licence of the weights, tools, libraries"},
    {"cc", 0, ARG_TEXT, AT(cc), "PROGRAM", NULL, 0, 0,
     "compiler that links NAME.so and the program; default: cc, or TARGET-linux-gnu-gcc; for "
     "Windows x86_64-w64-mingw32-gcc; for wasm32 "
     "the linker, default: wasm-ld-19 or wasm-ld"},
    {"weights", 0, ARG_CHOICE, AT(weights), "stored|f32|bf16|int8|int4", "stored", 0, 0,
     "storage of the matrices; stored: as the file has them, GGUF's blocks too"},
    CMD_COMPUTE_ARG(AT(compute)),
    {"cache", 0, ARG_CHOICE, AT(cache), "f32|bf16|int8", "f32", 0, 0,
     "storage of keys and values while decoding"},
    CMD_INVARIANT_ARG(AT(invariant)),
    {"level", 0, ARG_INT, AT(level), "0..4", "4", 0, 4, "fusion level"},
    {"cache-dir", 0, ARG_TEXT, AT(cache_dir), "DIR|none", NULL, 0, 0,
     "cache of compiled kernels; default: ~/.cache/sinter"},
    {"off", 0, ARG_TEXT, AT(off), "PASS,…", NULL, 0, 0, "passes to disable"},
    {"strict", 0, ARG_FLAG, AT(strict), NULL, NULL, 0, 0,
     "fail if an expected fusion did not happen: where explain says `not fused`"},
    CMD_ACCEPT_ARG(AT(accept)),
    {0},
};

static const arg_key keys[] = {
    {"name", "text", "prefix of the symbols and files"},
    {"target", "text", "as --target"},
    {"files", "list", "what was written"},
    {"files[].path", "text", "the file, or a folder: of a program's tokenizer"},
    {"files[].bytes", "integer", "its size"},
    {0}};

static const arg_command command = {
    NAME,
    "compile a model to an object, a library or a program",
    "Writes NAME.o (for Windows NAME.obj), NAME.h and NAME.weights, which need neither Sinter nor "
    "LLVM; NAME.h documents\n"
    "the calls. With several targets the program selects one at start. All kernels are Sinter's\n"
    "own: there is no --backend, because oneDNN's would need its library.\n",
    table,
    .examples = "sinter compile MODEL -o out --target x86-64-v2,x86-64-v3,x86-64-v4\n"
                "sinter compile MODEL -o out --target wasm32 --page\n"
                "sinter compile MODEL -o out --exe --static --threads none\n",
    .json = keys};

static int list_targets(void) {
    for (size_t i = 0; sn_target_known(i); i++) puts(sn_target_known(i));
    return cmd_finish(NAME);
}

/* ---- options ---- */

/* The last component of the path, of a file without its ending, or the preset; with underscores in
 * place of characters that are not allowed in an identifier. */
static void default_name(const options *o, char out[48]) {
    const char *path = o->model.preset ? o->model.preset : o->model.path;
    const char *s = sn_base_name(path), *dot = strrchr(s, '.');
    size_t end = strcspn(s, "/"), n = 0;
    struct stat st;
    if (!o->model.preset && dot > s && stat(path, &st) == 0 && S_ISREG(st.st_mode))
        end = (size_t)(dot - s);
    if (!isalpha((unsigned char)*s)) out[n++] = 'm';
    for (size_t i = 0; i < end && n < 47; i++) out[n++] = isalnum((unsigned char)s[i]) ? s[i] : '_';
    out[n] = 0;
}

/* The targets, unless the only one is this machine. */
static const char *other_machines(const options *o) {
    return strcmp(o->target, "native") ? o->target : NULL;
}

static open_model *load_model(const options *o, int named, const sn_options *compile,
                              sn_error *err) {
    int usual = SN_CACHED | (o->sequences > 1 ? 0 : SN_STEP) | SN_ENCODE | SN_CLASSIFY |
                (o->exe ? SN_SENTENCES : 0);
    open_options lo = {.entries = named ? named : usual,
                       .named = named,
                       .any_model = true,
                       .targets = other_machines(o),
                       .compile = *compile};
    if (o->beams > 0) lo.beams = o->beams;
    if (o->sequences > 1) lo.sequences = o->sequences;
    return cmd_open_model(NAME, &o->model, lo, err);
}

static bool is_wasm(const options *o) {
    return o->first.system == SN_BROWSER;
}

static bool has_workers(const options *o) {
    return o->threads && !strcmp(o->threads, "workers");
}

/* SN_EMIT_… of "asm,ll"; -1: err. */
static int read_listings(const options *o, sn_error *err) {
    static const struct {
        const char *name;
        int kind;
    } known[] = {{"asm", SN_EMIT_ASSEMBLY}, {"ll", SN_EMIT_IR}};
    int kinds = 0;
    for (const char *s = o->emit; s && *s;) {
        size_t n = strcspn(s, ","), i = 0;
        while (i < 2 && (strlen(known[i].name) != n || strncmp(s, known[i].name, n))) i++;
        if (i == 2) {
            sn_fail(err, SN_ERR_USAGE, "--emit '%s': asm, ll or asm,ll", o->emit);
            return -1;
        }
        kinds |= known[i].kind;
        s += n + (s[n] == ',');
    }
    return kinds;
}

/* Before the model is read: whether the system of the targets has what is asked for. */
static bool check_target(options *o, sn_error *err) {
    const char *list = o->target;
    o->listings = read_listings(o, err);
    if (o->listings < 0) return false;
    if (o->listings && o->embed)
        return sn_fail(err, SN_ERR_USAGE, "--emit excludes --embed-weights: leave one out");
    const unsigned uses = (o->archive ? SN_USE_ARCHIVE : 0) | (o->shared ? SN_USE_SHARED : 0) |
                          (o->exe ? SN_USE_PROGRAM : 0) | (o->is_static ? SN_USE_STATIC : 0) |
                          (o->embed ? SN_USE_EMBED : 0) | (o->page ? SN_USE_PAGE : 0);
    if (!sn_target_take(&o->first, &list, err)) return false;
    if (!o->threads) o->threads = o->exe && o->first.system == SN_WINDOWS ? "none" : "openmp";
    return sn_target_allows(
               &o->first,
               uses | (*list ? SN_USE_TARGETS : 0) | (has_workers(o) ? SN_USE_WORKERS : 0), err) &&
           (!is_wasm(o) || link_wasm_linker(o->cc, err));
}

/* Whether a vocabulary.json is one of characters, the only kind that the script reads. */
static bool has_characters(const char *path) {
    sn_error ignored = {0};
    sn_config *c = sn_config_open(path, &ignored);
    bool yes = c && !strcmp(sn_config_string_or(c, "kind", ""), "char");
    sn_config_free(c);
    return yes;
}

/* Whether the script reads what is in the folder NAME and `ending` (loadTokenizer in web/tokenizer.js). */
static bool web_tokenizer(const options *o, const char *name, const char *ending) {
    static const char *const known[] = {"tokenizer.json", "tokenizer.bin", "vocab.txt",
                                        "vocabulary.json"};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char file[160];
        snprintf(file, sizeof file, "%s%s/%s", name, ending, known[i]);
        char *path = sn_path_join(o->dir, file);
        bool there = path && access(path, F_OK) == 0;
        found |= !path || (there && (i < 3 || has_characters(path)));
        free(path);
    }
    if (!found)
        sn_screen_note(
            NAME,
            "%s.js does not read this tokenizer (it reads tokenizer.json, tokenizer.bin, "
            "vocab.txt and characters)%s: %suse token ids",
            name,
            !o->page   ? ""
            : o->train ? ", so the page cannot train"
                       : ", so the page cannot load",
            o->train ? "" : "load it with { tokenizer: false } and ");
    return found;
}

/* Links the module, writes what goes with it, and removes the objects. m: NULL for a training step, whose tokenizer is in
 * the folder for the trained parameters. */
static bool make_web(const options *o, const open_model *m, const cmd_artefact *a,
                     const sn_emit_options *eo, sn_error *err) {
    const link_request r = {
        .dir = o->dir, .name = eo->name, .cc = o->cc, .workers = has_workers(o)};
    web_request w = {.emitted = eo,
                     .rules = cmd_models ? cmd_models->rules : NULL,
                     .model = m,
                     .tokenizer = a->tokenizer ? ".tokenizer" : NULL,
                     .source = a->source,
                     .page = o->page,
                     .memory = has_workers(o) ? LINK_WASM_MEMORY : 0};
    char file[160];
    bool ok = (!cmd_models || !a->tokenizer || cmd_models->save(m, o->dir, eo->name, false, err)) &&
              link_wasm(&r, err);
    if (ok && a->tokenizer && web_tokenizer(o, eo->name, w.tokenizer) && w.source)
        web_tokenizer(o, eo->name, ".source.tokenizer");
    if (ok && !m && web_tokenizer(o, eo->name, ".model")) w.tokenizer = ".model";
    ok = ok && web_write(&w, err);
    snprintf(file, sizeof file, "%s.wasm.o", eo->name);
    char *path = sn_path_join(o->dir, file);
    if (path) remove(path);
    free(path);
    return ok;
}

static link_request request(const options *o, cmd_artefact *a, const char *name) {
    return (link_request){.dir = o->dir,
                          .name = name,
                          .target = o->target,
                          .cc = o->cc,
                          .openmp = !strcmp(o->threads, "openmp"),
                          .is_static = o->is_static,
                          .windows = o->first.system == SN_WINDOWS,
                          .unicode = a->unicode,
                          .regex = a->regex,
                          .static_gomp = &a->static_gomp};
}

/* Reads the tokenizer's tables, for the object. */
static bool read_tokenizer(const open_model *m, inside *files, sn_error *err) {
    temporary t;
    if (!temporary_make(&t, err)) return false;
    bool ok = cmd_models->save(m, t.path, files->name, true, err) &&
              inside_read(files, t.path, ".tokenizer", false, err) &&
              inside_read(files, t.path, ".source.tokenizer", true, err);
    temporary_remove(&t);
    return ok;
}

/* m: NULL for a training step. */
static bool link_parts(const options *o, const open_model *m, cmd_artefact *a,
                       const sn_emit_options *eo, sn_error *err) {
    const char *name = eo->name;
    if (is_wasm(o)) return make_web(o, m, a, eo, err);
    const link_request r = request(o, a, name);
    if (o->shared && !link_shared(&r, err)) return false;
    if (!o->exe) return true;
    return (!cmd_models || (o->embed && a->tokenizer) ||
            cmd_models->save(m, o->dir, name, true, err)) &&
           link_program(&r, err);
}

static sn_emit_options emit_options(const options *o, const char *name) {
    sn_emit_options eo = sn_emit_options_default();
    eo.compile.level = (int)o->level;
    eo.compile.weights = o->weights;
    eo.compile.compute = cmd_compute(o->compute);
    eo.compile.cache = o->cache;
    eo.compile.invariant = o->invariant;
    eo.compile.passes = o->off;
    eo.compile.strict_fusion = o->strict;
    eo.compile.accept = o->accept;
    eo.compile.backend = "native";
    eo.compile.cache_dir = o->cache_dir;
    eo.compile.advance = cmd_advance;
    eo.name = o->name ? o->name : name;
    eo.dir = o->dir;
    eo.targets = o->target;
    eo.kinds = SN_EMIT_OBJECT | (o->archive ? SN_EMIT_ARCHIVE : 0) |
               (o->lines ? SN_EMIT_LINES : 0) | o->listings;
    eo.threads = o->threads;
    eo.embed_weights = o->embed;
    eo.program = o->exe;
    return eo;
}

enum { MAX_FILES = 16 };

/* The files and folders that were written, allocated. False: out of memory. */
static bool list_files(const options *o, const cmd_artefact *a, const char *name, char **path,
                       int *n) {
    const bool web = is_wasm(o);
    const bool beside = (o->exe && !o->embed) || web; /* the tokenizer */
    const sn_system_facts *system = sn_target_system(&o->first);
    const struct {
        const char *ending;
        bool made;
    } files[] = {{system->object, !web},
                 {".h", !web},
                 {".wasm", web},
                 {".js", web},
                 {".d.ts", web},
                 {".html", o->page},
                 {".s", o->listings & SN_EMIT_ASSEMBLY},
                 {".ll", o->listings & SN_EMIT_IR},
                 {".weights", !o->embed},
                 {system->archive, o->archive},
                 {".so", o->shared},
                 {system->program, o->exe},
                 {".tokenizer", beside && a->tokenizer},
                 {".source.tokenizer", beside && a->source}};
    _Static_assert(sizeof files / sizeof *files <= MAX_FILES, "all files have room");
    *n = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char file[160];
        if (!files[i].made) continue;
        snprintf(file, sizeof file, "%s%s", name, files[i].ending);
        if (!(path[*n] = sn_path_join(o->dir, file))) return false;
        ++*n;
    }
    return true;
}

static bool write_bill(const options *o, const cmd_artefact *a, const char *name, char *const *path,
                       int n, sn_error *err) {
    const bool web = is_wasm(o), openmp = !strcmp(o->threads, "openmp") && !web;
    const cmd_model *m = &o->model;
    const char *const read[] = {m->path, m->checkpoint, m->tokenizer, o->train};
    const char *what = sn_base_name(m->path ? m->path : m->preset ? m->preset : o->train);
    const bool is_static = o->exe && (o->is_static || o->first.system == SN_WINDOWS);
    const bool inside =
        is_static || a->static_gomp; /* of the program; libraries need the shared one */
    const unsigned gomp = (inside ? SPDX_STATIC_GOMP : 0) | (!inside || o->shared ? SPDX_GOMP : 0);
    char options[600], model[300];
    snprintf(model, sizeof model, "%.*s", (int)strcspn(what, "/"), what);
    snprintf(options, sizeof options, "target %s, weights %s, compute %s, cache %s, threads %s",
             o->target, o->weights, o->compute, o->cache, o->threads);
    const spdx_request r = {
        .name = name,
        .dir = o->dir,
        .options = options,
        .model = model,
        .made = (const char *const *)path,
        .n_made = n,
        .read = read,
        .n_read = sizeof read / sizeof *read,
        .weights = m->checkpoint ? m->checkpoint
                   : m->path     ? m->path
                                 : o->train,
        .parts = (o->exe || web ? SPDX_SINTER : 0) | (o->exe && a->regex ? SPDX_PCRE2 : 0) |
                 (o->exe && a->unicode ? SPDX_UTF8PROC : 0) | (openmp ? gomp : 0) |
                 (is_static ? SPDX_STATIC_LIBC : 0) | (web ? SPDX_LLD : 0)};
    return spdx_write(&r, err);
}

static void print_list(const options *o, const char *name, char *const *path, int n) {
    json_out j;
    if (sn_screen()->json) {
        j = sn_json_begin(stdout);
        sn_json_text(&j, "name", name);
        sn_json_text(&j, "target", o->target);
        sn_json_list(&j, "files");
    }
    sn_screen_say(NAME, "for %s", o->target);
    for (int i = 0; i < n; i++) {
        int64_t bytes = sn_screen_wrote(NAME, path[i]);
        if (!sn_screen()->json) continue;
        sn_json_object(&j, NULL);
        sn_json_text(&j, "path", path[i]);
        sn_json_integer(&j, "bytes", bytes);
        sn_json_close(&j);
    }
    if (sn_screen()->json) sn_json_end(&j);
}

/* Writes the bill of materials, if it is wanted, and lists what was written. */
static bool finish_files(const options *o, const cmd_artefact *a, const char *name, sn_error *err) {
    char *path[MAX_FILES + 1], file[160];
    int n;
    bool ok = list_files(o, a, name, path, &n) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && o->spdx) {
        ok = write_bill(o, a, name, path, n, err);
        snprintf(file, sizeof file, "%s.spdx.json", name);
        if (ok && (path[n] = sn_path_join(o->dir, file))) n++;
    }
    if (ok) print_list(o, name, path, n);
    for (int i = 0; i < n; i++) free(path[i]);
    return ok;
}

static bool compile_training(const options *o, int entries, sn_error *err) {
    cmd_artefact a = {.tokenizer = false};
    if (o->model.path)
        return sn_fail(err, SN_ERR_USAGE, "--train excludes MODEL: the config names the model");
    if (o->exe)
        return sn_fail(err, SN_ERR_USAGE,
                       "--train excludes --exe: a training step is called from your own program");
    if (!cmd_models) return sn_fail(err, SN_ERR_USAGE, "--train: " CMD_NO_MODELS);
    sn_emit_options eo = emit_options(o, "training");
    eo.describe = sn_model_describe;
    if (!cmd_choose_compute(NAME, &eo.compile, other_machines(o), err) ||
        !cmd_models->train(o->train, entries, o->slices, o->rate, &eo, err) ||
        !link_parts(o, NULL, &a, &eo, err) || !finish_files(o, &a, eo.name, err))
        return false;
    sn_screen_say(NAME, "%s/%s.model: config.json and tokenizer, for the trained parameters",
                  o->dir ? o->dir : ".", eo.name);
    return true;
}

static bool emit(const options *o, open_model *m, sn_emit_options *eo, sn_error *err) {
    cmd_artefact a = {.tokenizer = false};
    if (!m->session)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: a graph as text has no values for its parameters: compile the model "
                       "that it was made from",
                       m->graph);
    if (o->beams > 1 && !m->model.source_vocab)
        return sn_fail(err, SN_ERR_USAGE, "--beams is for encoder-decoders, not for %s models",
                       m->model.type);
    eo->describe = sn_model_describe;
    eo->vocab = m->model.vocab;
    eo->context = m->model.context;
    eo->source_vocab = m->model.source_vocab;
    bool ok = !cmd_models || cmd_models->describe(m, eo, &a, err);
    const char *spoiled = ok ? model_nan_parameter(m, err) : NULL;
    if (spoiled)
        sn_screen_note(NAME, "'%s' contains NaN, and so will results that depend on it", spoiled);
    eo->compile.weights = m->compiled.weights;
    eo->compile.compute = m->compiled.compute;
    eo->compile.keep = m->compiled.keep;
    eo->compile.n_keep = m->compiled.n_keep;
    const link_request r = request(o, &a, eo->name);
    ok = ok && !err->code && (!o->exe || link_program_possible(&r, err));
    inside files = {.name = eo->name};
    ok = ok && (!cmd_models || !o->embed || !a.tokenizer || read_tokenizer(m, &files, err));
    eo->file = files.file;
    eo->n_file = files.n;
    ok = ok && sn_emit(m->session, eo, err) && link_parts(o, m, &a, eo, err) &&
         finish_files(o, &a, eo->name, err);
    inside_free(&files);
    free(a.label);
    return ok;
}

static bool compile(options *o, sn_error *err) {
    int entries;
    char name[48];
    if (!model_entries_read(o->entries, &entries, err) || !check_target(o, err)) return false;
    if (o->train) return compile_training(o, entries, err);
    sn_emit_options eo = emit_options(o, name);
    open_model *m = load_model(o, entries, &eo.compile, err);
    if (!m) return false;
    if (!o->name) default_name(o, name);
    bool ok = emit(o, m, &eo, err);
    model_close(m);
    return ok;
}

int cmd_compile_ahead(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    if (o.list_targets || !strcmp(o.target, "help")) return list_targets();
    sn_error err = {0};
    return compile(&o, &err) ? cmd_finish(NAME) : cmd_fail(NAME, &err);
}
