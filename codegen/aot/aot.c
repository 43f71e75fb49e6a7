/* aot.c: sn_emit: compiles a session to files. Chooses targets and entries, lays out weights and
 * state, writes the files. */
#include "codegen/aot/aot.h"
#include "passes/plan/collectives.h"
#include "runtime/file.h"
#include "runtime/manifest.h"
#include "runtime/memory.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

sn_emit_options sn_emit_options_default(void) {
    return (sn_emit_options){.kinds = SN_EMIT_OBJECT, .bos = -1, .compile = {.level = -1}};
}

/* ---- options ---- */

static bool take_name(sn_aot *a) {
    const char *name = a->o->name ? a->o->name : sn_module_name(a->m);
    bool ok = strlen(name) < sizeof a->name - 16 && (isalpha((unsigned char)*name) || *name == '_');
    for (const char *p = name; *p; p++) ok &= isalnum((unsigned char)*p) || *p == '_';
    if (ok && sn_aot_is_reserved(name))
        return sn_fail(a->err, SN_ERR_USAGE,
                       "artefact name '%s' is a word or macro of C or C++: choose another one",
                       name);
    if (!ok)
        return sn_fail(a->err, SN_ERR_USAGE,
                       "artefact name '%s': it begins every symbol, so it must be a C identifier "
                       "of at most %zu characters",
                       name, sizeof a->name - 17);
    snprintf(a->name, sizeof a->name, "%s", name);
    for (size_t i = 0; name[i]; i++) a->upper[i] = (char)toupper((unsigned char)name[i]);
    const char *threads = a->o->threads ? a->o->threads : "openmp";
    a->openmp = !strcmp(threads, "openmp");
    a->workers = !strcmp(threads, "workers");
    if (!a->openmp && !a->workers && strcmp(threads, "none"))
        return sn_fail(a->err, SN_ERR_USAGE,
                       "threads '%s': choose openmp or none, or workers for wasm32", threads);
    return sn_options_check_ahead(&a->o->compile, a->err);
}

static bool check_lists(sn_aot *a) {
    int known = SN_EMIT_OBJECT | SN_EMIT_ARCHIVE | SN_EMIT_ASSEMBLY | SN_EMIT_IR | SN_EMIT_LINES;
    if (a->o->kinds & ~known)
        return sn_fail(a->err, SN_ERR_USAGE,
                       "kinds %d: a sum of SN_EMIT_OBJECT, SN_EMIT_ARCHIVE, SN_EMIT_ASSEMBLY, "
                       "SN_EMIT_IR and SN_EMIT_LINES",
                       a->o->kinds);
    if (sn_aot_lists(a) && a->o->embed_weights)
        return sn_fail(a->err, SN_ERR_USAGE,
                       "a listing (--emit) excludes embedded weights: it would hold all of them as "
                       "text");
    if (a->o->n_label < 0 || (a->o->n_label && !a->o->label))
        return sn_fail(a->err, SN_ERR_USAGE, "%d labels%s: give a list and its length",
                       a->o->n_label, a->o->label ? "" : " without their names");
    return true;
}

static bool check_texts(sn_aot *a) {
    if (a->o->n_eos > SN_MANIFEST_EOS)
        return sn_fail(a->err, SN_ERR_USAGE, "%d tokens that end a text: at most %d are supported",
                       a->o->n_eos, SN_MANIFEST_EOS);
    for (int i = 0; i < a->o->n_label; i++) {
        const char *s = a->o->label[i];
        if (s && (strlen(s) > SN_AOT_LABEL || strcspn(s, "\r\n") < strlen(s)))
            return sn_fail(a->err, SN_ERR_USAGE,
                           "the name of class %d ('%.40s'): at most %d bytes without line breaks "
                           "are allowed; shorten it in \"id2label\"",
                           i, s, SN_AOT_LABEL);
    }
    return true;
}

static bool add_target(sn_aot *a, const char **list) {
    if (a->n_variant == SN_AOT_TARGETS)
        return sn_fail(a->err, SN_ERR_TARGET, "more than %d targets in one artefact",
                       SN_AOT_TARGETS);
    sn_target *t = &a->variant[a->n_variant].target;
    if (!sn_target_take(t, list, a->err)) return false;
    const sn_target *first = &a->variant[0].target;
    if (t->arch != first->arch || t->system != first->system)
        return sn_fail(
            a->err, SN_ERR_TARGET,
            "targets '%s' and '%s' have different architectures or systems; compile each "
            "into a separate folder",
            a->variant[0].target.name, t->name);
    sn_target m1;
    if (t->system == SN_MACOS && t->arch == SN_ARCH_AARCH64 &&
        (!sn_target_init(&m1, "apple-m1", a->err) || t->feature_set & ~m1.feature_set))
        return sn_fail(
            a->err, SN_ERR_TARGET,
            "target '%s': NAME_open does not ask macOS for features that apple-m1 lacks: "
            "compile for apple-m1,os=macos",
            t->name);
    for (int i = 0; i < a->n_variant; i++)
        if (!strcmp(a->variant[i].target.name, t->name))
            return sn_fail(a->err, SN_ERR_TARGET, "target '%s' is given twice", t->name);
    a->n_variant++;
    return true;
}

static int popcount(uint64_t x) {
    return __builtin_popcountll(x);
}

/* The most capable first: wider vectors, then more features. */
static int by_capability(const void *x, const void *y) {
    const sn_target *a = &((const sn_aot_variant *)x)->target,
                    *b = &((const sn_aot_variant *)y)->target;
    if (a->vector_bytes != b->vector_bytes) return b->vector_bytes - a->vector_bytes;
    return popcount(b->feature_set) - popcount(a->feature_set);
}

static bool take_targets(sn_aot *a) {
    const char *list = a->o->targets && *a->o->targets ? a->o->targets : "native";
    while (*list)
        if (!add_target(a, &list)) return false;
    qsort(a->variant, (size_t)a->n_variant, sizeof *a->variant, by_capability);
    a->openmp = a->openmp && !sn_aot_is(a, SN_BROWSER);
    const unsigned uses = (a->o->kinds & SN_EMIT_ARCHIVE ? SN_USE_ARCHIVE : 0) |
                          (a->o->embed_weights ? SN_USE_EMBED : 0) |
                          (a->o->program ? SN_USE_PROGRAM : 0) | (a->workers ? SN_USE_WORKERS : 0) |
                          (a->n_variant > 1 ? SN_USE_TARGETS : 0);
    return sn_target_allows(&a->variant[0].target, uses, a->err);
}

/* ---- code ---- */

typedef struct group {
    const sn_aot *a;
    int index;
    char prefix[96];
} group;

static bool add_object(const sn_aot *a, int group, const char *prefix, const sn_object *o,
                       sn_error *err) {
    return a->bitcode ? sn_bitcode_add(a->bitcode, prefix, o, err)
                      : sn_elf_add(a->elf, group, prefix, o, err);
}

static bool keep_object(void *ctx, const sn_object *o, sn_error *err) {
    const group *g = ctx;
    return add_object(g->a, g->index, g->prefix, o, err);
}

static sn_options compile_options(const sn_aot *a, const char *target) {
    sn_options o = a->o->compile;
    if (!o.source) o.source = sn_session_weights(a->s);
    o.target = target;
    o.backend = "native"; /* a deployed program has no oneDNN */
    return o;
}

/* The prefix must live as long as the merge. */
static bool compile_variant(sn_aot *a, int v, group *g) {
    sn_aot_prefix(a, v, g->prefix);
    const sn_object_sink sink = {keep_object, g, a->bitcode != NULL};
    sn_options o = compile_options(a, a->variant[v].target.name);
    a->variant[v].program = sn_program_make(a->m, &o, &sink, NULL, a->err);
    if (a->elf) a->variant[v].code_bytes = sn_elf_code_bytes(a->elf, v);
    return a->variant[v].program != NULL;
}

/* ---- entries ---- */

/* Sizes and strides are the kernels' dims, but where a view begins is not. */
static void want_offsets(const sn_module *m, const sn_step *s, bool *used) {
    for (int i = 0; i < s->n_in + s->n_out; i++) sn_dim_symbols(m, sn_view_of(s, i)->offset, used);
    for (int i = 0; i < s->n_inner; i++) want_offsets(m, &s->inner[i], used);
}

static void describe_entry(sn_aot *a, const sn_compiled_entry *c, sn_aot_entry *t) {
    bool used[SN_AOT_SYMBOLS] = {false};
    const sn_plan *plan = c->code.plan;
    *t = (sn_aot_entry){.name = plan->entry->name,
                        .input = plan->input,
                        .n_input = plan->n_input,
                        .output = plan->entry->output,
                        .n_output = plan->entry->n_output,
                        .writes_state = plan->entry->n_assign > 0};
    for (int i = 0; i < t->n_input + t->n_output; i++) {
        const sn_node *n = i < t->n_input ? t->input[i].node : t->output[i - t->n_input].node;
        for (int d = 0; d < n->rank; d++) sn_dim_symbols(a->m, n->shape[d], used);
    }
    for (int k = 0; k < plan->n_step; k++) want_offsets(a->m, &plan->step[k], used);
    for (int k = 0; k < plan->n_call; k++)
        for (int d = 0; d < c->code.kernel[k].n_dim; d++)
            sn_dim_symbols(a->m, c->code.kernel[k].dim[d], used);
    for (int i = 0; i < plan->n_buffer; i++) {
        t->has_state |= plan->buffer[i].kind == SN_BUF_STATE;
        sn_dim_symbols(a->m, plan->buffer[i].count, used);
    }
    for (int i = 0; i < c->n_range; i++) {
        sn_dim dim[2 + SN_MAX_RANK];
        int n = sn_range_dims(&c->range[i], dim);
        for (int d = 0; d < n; d++) sn_dim_symbols(a->m, dim[d], used);
    }
    for (int s = 0; s < sn_symbol_count(a->m); s++)
        if (used[s]) t->symbol[t->n_symbol++] = s;
}

static bool describe_entries(sn_aot *a) {
    const sn_program *p = a->variant[0].program;
    if (sn_symbol_count(a->m) > SN_AOT_SYMBOLS)
        return sn_fail(a->err, SN_ERR_USAGE, "a module has at most %d symbolic dimensions",
                       SN_AOT_SYMBOLS);
    a->entry = sn_arena_alloc(a->m, sizeof *a->entry * (size_t)(p->n_entry + 1));
    for (int i = 0; i < p->n_entry; i++)
        if (!sn_compiled_prepares(&p->entry[i]))
            describe_entry(a, &p->entry[i], &a->entry[a->n_entry++]);
    return sn_aot_name_entries(a);
}

/* ---- weights and state ---- */

static bool add_place(sn_aot *a, sn_aot_place **list, int *n, const sn_buffer *b, size_t *end) {
    int64_t count;
    for (int i = 0; i < *n; i++)
        if (!strcmp((*list)[i].name, b->name)) return true;
    if (!sn_dim_is_const(a->m, b->count, &count))
        return sn_fail(a->err, SN_ERR_SHAPE, "'%s' has a symbolic shape", b->name);
    size_t bytes = (size_t)count * sn_dtype_size(b->dtype);
    sn_aot_place *grown = sn_arena_alloc(a->m, sizeof *grown * (size_t)(*n + 1));
    if (*n) memcpy(grown, *list, sizeof *grown * (size_t)*n);
    grown[*n] = (sn_aot_place){.name = b->name, .dtype = b->dtype, .bytes = bytes, .offset = *end};
    *list = grown;
    ++*n;
    *end += SN_ROUND_UP(bytes, SN_AOT_ALIGN);
    return true;
}

/* States whose first value is stored: in a training program the parameters and the optimizer's
 * states, as the session's steps left them. Caches start empty. */
static bool has_first_value(const sn_aot *a, const sn_aot_place *p) {
    const sn_program *program = a->variant[0].program;
    const char *now = sn_session_memory(a->s, p->name);
    if (!program->n_trained || !now) return false;
    if (sn_program_trained(program, p->name)) return true;
    for (size_t i = 0; i < p->bytes; i++)
        if (now[i]) return true;
    return false;
}

/* All parameters and states that an entry of any target uses. */
static bool lay_out(sn_aot *a) {
    size_t weights = SN_AOT_PAGE, state = SN_AOT_ALIGN; /* the layout's hash comes first */
    for (int v = 0; v < a->n_variant; v++) {
        const sn_program *p = a->variant[v].program;
        for (int i = 0; i < p->n_entry; i++) {
            const sn_plan *plan = p->entry[i].code.plan;
            for (int k = 0; k < plan->n_buffer && !sn_compiled_prepares(&p->entry[i]); k++) {
                const sn_buffer *b = &plan->buffer[k];
                if ((b->kind == SN_BUF_PARAM &&
                     !add_place(a, &a->weight, &a->n_weight, b, &weights)) ||
                    (b->kind == SN_BUF_STATE && !add_place(a, &a->state, &a->n_state, b, &state)))
                    return false;
            }
        }
    }
    for (int i = 0; i < a->n_state; i++)
        if (has_first_value(a, &a->state[i])) {
            a->state[i].from = weights;
            weights += SN_ROUND_UP(a->state[i].bytes, SN_AOT_ALIGN);
        }
    for (int i = 0; i < a->n_state; i++) {
        a->state[i].trained = sn_program_trained(a->variant[0].program, a->state[i].name);
        a->n_trained += a->state[i].trained != NULL;
    }
    a->tensor_bytes = SN_ROUND_UP(weights, SN_AOT_PAGE) - SN_AOT_PAGE;
    a->weight_bytes = SN_AOT_PAGE + a->tensor_bytes + sn_aot_sums_bytes(a->tensor_bytes);
    a->state_bytes = SN_ROUND_UP(state, SN_AOT_ALIGN);
    return true;
}

/* Hash of the kernels that prepare the weights, in order, continued from `seed`. Two programs of a
 * module can share a weights file if their hashes are equal. */
static uint64_t hash_preparation(const sn_program *p, uint64_t seed) {
    for (int e = 0; e < p->n_entry; e++) {
        const sn_entry_code *u = &p->entry[e].code;
        for (int i = 0; sn_compiled_prepares(&p->entry[e]) && i < u->plan->n_call; i++)
            seed = XXH3_64bits_withSeed(u->kernel[i].name, strlen(u->kernel[i].name), seed);
    }
    return seed;
}

static bool same_preparation(const sn_program *x, const sn_program *y) {
    return hash_preparation(x, 0) == hash_preparation(y, 0);
}

static void hash_layout(sn_aot *a) {
    XXH64_hash_t h =
        hash_preparation(a->variant[0].program, XXH3_64bits(SN_VERSION, strlen(SN_VERSION)));
    for (int i = 0; i < a->n_weight + a->n_state; i++) {
        const sn_aot_place *p = i < a->n_weight ? &a->weight[i] : &a->state[i - a->n_weight];
        const uint64_t place[] = {p->bytes, p->offset, p->from, (uint64_t)p->dtype};
        h = XXH3_64bits_withSeed(p->name, strlen(p->name), h);
        h = XXH3_64bits_withSeed(place, sizeof place, h);
    }
    a->hash = h ? h : 1;
}

static bool find_contents(sn_aot *a, const sn_session *s) {
    for (int i = 0; i < a->n_weight; i++) {
        a->weight[i].data = sn_session_memory(s, a->weight[i].name);
        if (!a->weight[i].data)
            return sn_fail(a->err, SN_ERR_INTERNAL, "no contents for '%s'", a->weight[i].name);
    }
    for (int i = 0; i < a->n_state; i++)
        if (a->state[i].from) a->state[i].data = sn_session_memory(a->s, a->state[i].name);
    return true;
}

/* ---- files ---- */

/* What `print` writes, malloc'ed; NULL: a->err. */
static char *text_of(sn_aot *a, bool (*print)(sn_aot *a, FILE *f), size_t *size) {
    char *text = NULL;
    FILE *f = open_memstream(&text, size);
    bool ok = f && print(a, f);
    if (f && fclose(f)) ok = false;
    if (ok) return text;
    free(text);
    if (!a->err->code) sn_fail(a->err, SN_ERR_MEMORY, "out of memory");
    return NULL;
}

static bool fill_manifest(sn_aot *a) {
    size_t size;
    char *text = text_of(a, sn_aot_print_manifest, &size);
    if (text) a->manifest = sn_arena_printf(a->m, "%s", text);
    free(text);
    return text != NULL;
}

static char *path_of(const sn_aot *a, const char *ending) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", a->name, ending);
    char *path = sn_path_join(a->o->dir ? a->o->dir : ".", name);
    if (!path) sn_fail(a->err, SN_ERR_MEMORY, "out of memory");
    return path;
}

static bool save(const sn_aot *a, const char *ending, const void *data, size_t bytes) {
    char *path = path_of(a, ending);
    bool ok = path && sn_file_save(path, data, bytes, a->err);
    free(path);
    return ok;
}

static bool save_header(sn_aot *a) {
    size_t size;
    char *text = text_of(a, sn_aot_print_header, &size);
    bool ok = text && save(a, ".h", text, size);
    free(text);
    return ok;
}

/* names: of the object, for an archive. */
static bool save_code(sn_aot *a, const sn_object *o, const sn_object *names) {
    const sn_system_facts *system = sn_target_system(&a->variant[0].target);
    char member[72];
    sn_object archive = {0};
    snprintf(member, sizeof member, "%s%s", a->name, system->object);
    if (a->o->kinds & SN_EMIT_OBJECT && !save(a, system->object, o->data, o->size)) return false;
    if (!(a->o->kinds & SN_EMIT_ARCHIVE)) return true;
    bool ok = sn_archive(o, names, member, &archive, a->err) &&
              save(a, system->archive, archive.data, archive.size);
    sn_object_free(&archive);
    return ok;
}

static bool save_listings(sn_aot *a) {
    static const struct {
        int kind;
        sn_form form;
        const char *ending;
    } texts[] = {{SN_EMIT_ASSEMBLY, SN_FORM_ASSEMBLY, ".s"}, {SN_EMIT_IR, SN_FORM_IR, ".ll"}};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof texts / sizeof *texts; i++) {
        sn_object text = {0};
        if (!(a->o->kinds & texts[i].kind)) continue;
        ok = sn_aot_listing(a, texts[i].form, &text) &&
             save(a, texts[i].ending, text.data, text.size);
        sn_object_free(&text);
    }
    return ok;
}

/* Removes the old header first and writes the new one last: if the process is killed in between, the
 * files of two artefacts do not look like a complete set. (A weights file with another layout is
 * refused when it is opened.) */
static bool remove_header(const sn_aot *a) {
    char *path = path_of(a, ".h");
    bool ok =
        path && (unlink(path) == 0 || errno == ENOENT ||
                 sn_fail(a->err, SN_ERR_FILE, "%s: cannot be replaced: %s", path, strerror(errno)));
    free(path);
    return ok;
}

static bool write_weights(sn_aot *a) {
    char *path = path_of(a, ".weights");
    bool ok = path && sn_aot_write_weights(a, path);
    free(path);
    return ok;
}

/* Memory of 32-bit addresses also holds the state, workspaces and the stack. */
static bool check_memory(const sn_aot *a) {
    const int64_t all = INT64_C(1) << 32;
    int64_t need = (int64_t)(a->weight_bytes + a->state_bytes);
    return need < all || !sn_aot_is(a, SN_BROWSER) ||
           sn_fail(
               a->err, SN_ERR_TARGET,
               "%lld MiB of weights and state: wasm32 has 4096 MiB of memory; store the weights "
               "in fewer bits (--weights int8), or take a smaller model",
               (long long)need >> 20);
}

static bool add_weights(sn_aot *a) {
    char name[96];
    if (!a->o->embed_weights) return write_weights(a);
    snprintf(name, sizeof name, "%s_weights_image", a->name);
    void *image = a->image = sn_aot_weights_image(a);
    if (!image) return false;
    return a->bitcode
               ? sn_bitcode_add_data(a->bitcode, name, image, a->weight_bytes, SN_AOT_PAGE, a->err)
               : sn_elf_add_data(a->elf, name, image, a->weight_bytes, SN_AOT_PAGE, a->err);
}

static bool finish_object(sn_aot *a, sn_object *all, sn_object *names) {
    const sn_target *t = &a->variant[0].target;
    if (a->bitcode)
        return (!sn_aot_has_lines(a) || sn_aot_add_lines(a)) &&
               sn_bitcode_finish(a->bitcode, t, names, a->err) &&
               sn_bitcode_write(a->bitcode, t, SN_FORM_OBJECT, all, a->err);
    return sn_elf_finish(a->elf, all, a->err) && sn_elf_names(all, names, a->err);
}

static bool finish(sn_aot *a) {
    sn_object glue = {0}, all = {0}, names = {0};
    bool ok = check_memory(a) && fill_manifest(a) && sn_aot_emit_glue(a, &glue) &&
              add_object(a, SN_AOT_TARGETS, NULL, &glue, a->err) && remove_header(a) &&
              add_weights(a) && finish_object(a, &all, &names) && save_code(a, &all, &names) &&
              save_listings(a) && (sn_aot_is(a, SN_BROWSER) || save_header(a));
    sn_object_free(&all);
    sn_object_free(&names);
    sn_object_free(&glue);
    free(a->image);
    return ok;
}

/* A target whose preparation kernels this machine can run: the artefact's first one that runs here,
 * for this system, or else this machine. */
static const char *preparing_target(const sn_aot *a) {
    for (int v = 0; v < a->n_variant; v++) {
        sn_target t;
        sn_error none = {0};
        const char *name = sn_arena_printf(a->m, "%s,os=linux", a->variant[v].target.name);
        if (sn_target_init(&t, name, &none) && sn_target_runs_here(&t)) return name;
    }
    return "native";
}

static bool begin_object(sn_aot *a) {
    if (!sn_aot_is(a, SN_LINUX) || sn_aot_lists(a) || sn_aot_has_lines(a))
        return (a->bitcode = sn_bitcode_new(a->err)) != NULL;
    a->elf = sn_elf_new();
    return a->elf || sn_fail(a->err, SN_ERR_MEMORY, "out of memory for an object file");
}

static bool emit(sn_aot *a, group *g) {
    for (int v = 0; v < a->n_variant; v++) {
        g[v] = (group){.a = a, .index = v};
        if (!compile_variant(a, v, &g[v])) return false;
        if (!same_preparation(a->variant[0].program, a->variant[v].program))
            return sn_fail(a->err, SN_ERR_TARGET,
                           "targets '%s' and '%s' need different weight layouts; compile each into "
                           "a separate folder",
                           a->variant[0].target.name, a->variant[v].target.name);
    }
    if (!sn_aot_count_sums(a) || !describe_entries(a) || !lay_out(a)) return false;
    hash_layout(a);
    sn_options o = compile_options(a, preparing_target(a));
    sn_program *p = sn_compile(a->m, &o, a->err);
    sn_session *s = p ? sn_session_new_like(p, a->s, a->err) : NULL;
    bool ok = s && (same_preparation(p, a->variant[0].program) ||
                    sn_fail(a->err, SN_ERR_TARGET,
                            "this machine packs weights in a layout that target '%s' does not "
                            "read; compile on a machine that can run the target",
                            a->variant[0].target.name));
    ok = ok && find_contents(a, s) && finish(a);
    sn_session_free(s);
    sn_program_free(p);
    return ok;
}

bool sn_emit(sn_session *s, const sn_emit_options *o, sn_error *err) {
    sn_error local = {0};
    if (!sn_given(s, "sn_emit", "the session", err) || !sn_given(o, "sn_emit", "the options", err))
        return false;
    sn_aot a = {.o = o, .s = s, .m = sn_session_program(s)->m, .err = &local};
    group *g = calloc(SN_AOT_TARGETS, sizeof *g);
    bool ok = g || sn_fail(&local, SN_ERR_MEMORY, "out of memory");
    ok = ok && take_name(&a) && check_lists(&a) && check_texts(&a) && take_targets(&a) &&
         begin_object(&a) && (!o->dir || sn_folder_make(o->dir, &local)) && emit(&a, g);
    for (int v = 0; v < a.n_variant; v++) sn_program_free(a.variant[v].program);
    sn_elf_free(a.elf);
    sn_bitcode_free(a.bitcode);
    free(g);
    return ok || sn_fail(err, local.code, "%s", local.message);
}
