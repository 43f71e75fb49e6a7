/* program.c: main of a deployed program: opens the artefact that it is linked with, then generates,
 * translates, classifies, embeds or encodes text. */
#include "model/deploy/program.h"
#include "runtime/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT(field) offsetof(options, field)
#define COMMON_ARGS                                                                                \
    {"weights",   0,      ARG_TEXT,                                                                \
     AT(weights), "FILE", NULL,                                                                    \
     0,           0,      "default: embedded, or NAME.weights next to the program"},               \
        {"tokenizer",                                                                              \
         0,                                                                                        \
         ARG_TEXT,                                                                                 \
         AT(tokenizer),                                                                            \
         "PATH",                                                                                   \
         NULL,                                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         "default: NAME.tokenizer next to the program; without one, text is token ids"},           \
        {"verify",   0,    ARG_FLAG,                                                               \
         AT(verify), NULL, NULL,                                                                   \
         0,          0,    "read weights and tokenizer at start and verify their checksums"},      \
        {"copy-weights",                                                                           \
         0,                                                                                        \
         ARG_FLAG,                                                                                 \
         AT(copy),                                                                                 \
         NULL,                                                                                     \
         NULL,                                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         "read the file into huge pages at start: slower start, faster tokens"},                   \
        {"target",   0,     ARG_TEXT,                                                              \
         AT(target), "CPU", NULL,                                                                  \
         0,          0,     "one of those listed by --info; default: the best for this CPU"},      \
        {"threads",   't',  ARG_INT,                                                               \
         AT(threads), "N",  "0",                                                                   \
         0,           1024, "0: all CPUs available to the process"},                               \
    {                                                                                              \
        "info", 0, ARG_FLAG, AT(info), NULL, NULL, 0, 0, "print a description of this program"     \
    }
#define ALL_ARG                                                                                    \
    { "all", 0, ARG_FLAG, AT(all), NULL, NULL, 0, 0, "print a vector for each token instead" }
static const arg text_table[] = {TEXT_ARGS(options), COMMON_ARGS, {0}},
                 pair_table[] = {SEQ2SEQ_ARGS(options), COMMON_ARGS, {0}},
                 embed_table[] = {EMBED_ARGS(options), ALL_ARG, COMMON_ARGS, {0}},
                 lines_table[] = {TEXT_ROW(options, "prompt", 'p', ARG_TEXT, prompt, "TEXT", NULL,
                                           0, 0, "a text"),
                                  TEXT_ROW(options, "prompt-file", 'f', ARG_TEXT, prompt_file,
                                           "FILE", NULL, 0, 0,
                                           "a text per line; -: standard input"),
                                  TEXT_ROW(options, "prompt-ids", 0, ARG_TEXT, ids, "IDS", NULL, 0,
                                           0, "a text as token ids: \"1 403 407\""),
                                  ALL_ARG,
                                  COMMON_ARGS,
                                  {0}};

/* ---- language models ---- */

/* A value for each dimension of the entry. */
typedef struct dim_value {
    const char *name;
    int64_t value;
} dim_value;

static bool call(program *p, const char *entry, const dim_value *values, void *const *args,
                 sn_error *err) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, entry);
    int64_t dims[SN_MANIFEST_DIMS] = {0};
    for (int i = 0; i < e->n_dim; i++)
        for (const dim_value *v = values; v->name; v++)
            if (!strcmp(v->name, e->dim[i].name)) dims[i] = v->value;
    return sn_program_call(p, entry, dims, args, err);
}

/* With one sequence, tokens come one at a time through `decode`. */
static bool feed(void *model, int64_t row, int64_t past, const int32_t *ids, int64_t n,
                 float *logits, sn_error *err) {
    program *p = model;
    const dim_value values[] = {{"P", past}, {"T", n}, {"R", row}, {NULL, 0}};
    void *args[] = {(void *)(uintptr_t)ids, logits};
    return call(p, n == 1 && p->sequences == 1 ? "decode" : "prefill", values, args, err);
}

/* The arguments in the order of NAME.h: inputs by name, then the output. */
static bool step(void *model, int64_t n, const int32_t *ids, const int32_t *past, float *logits,
                 sn_error *err) {
    program *p = model;
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, "decode");
    int64_t longest = 0;
    for (int64_t i = 0; i < n; i++) longest = past[i] > longest ? past[i] : longest;
    const dim_value values[] = {{"P", longest}, {"B", n}, {NULL, 0}};
    void *tokens = (void *)(uintptr_t)ids, *before = (void *)(uintptr_t)past;
    bool first = !strcmp(e->tensor[0].name, "tokens");
    void *args[] = {first ? tokens : before, first ? before : tokens, logits};
    return call(p, "decode", values, args, err);
}

static bool reorder(void *model, int64_t first, int64_t n, const int32_t *parents, int64_t past,
                    sn_error *err) {
    program *p = model;
    int32_t *result = malloc(sizeof *result * (size_t)n);
    if (!result) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int64_t longest = 0; /* the last position of a full context is never read again */
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, "reorder");
    for (int i = 0; i < e->n_dim; i++)
        if (!strcmp(e->dim[i].name, "P")) longest = e->dim[i].hi;
    const dim_value values[] = {
        {"P", past < longest ? past : longest}, {"B", n}, {"R", first}, {NULL, 0}};
    void *args[] = {(void *)(uintptr_t)parents, result};
    bool ok = call(p, "reorder", values, args, err);
    free(result);
    return ok;
}

/* Looks for "FOLDER/NAME.ending" next to the program; false if there is no such file. */
static bool beside(const program *p, const char *ending, char *path, size_t size) {
    int n = snprintf(path, size, "%s/%s%s", p->folder, p->manifest.name, ending);
    return n > 0 && (size_t)n < size && access(path, F_OK) == 0;
}

/* Looks for a tokenizer in the program, and then beside it: its folder, and the path to load. */
static bool find_tokenizer(const program *p, const char *ending, char *folder, char *path,
                           size_t size) {
    snprintf(folder, size, SN_INSIDE "%s%s", p->manifest.name, ending);
    int n = snprintf(path, size, "%s/tokenizer.tables", folder);
    if (n > 0 && (size_t)n < size && sn_file_exists(path)) return true;
    return beside(p, ending, folder, size) && snprintf(path, size, "%s", folder) > 0;
}

static int64_t last_number(const char *shape) {
    const char *comma = strrchr(shape, ',');
    return comma ? strtoll(comma + 1, NULL, 10) : 0;
}

static bool generate(program *p, sn_error *err) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, "prefill");
    const sn_manifest_entry *d = sn_manifest_get(&p->manifest, "decode");
    p->sequences = 1;
    for (int i = 0; i < d->n_dim; i++)
        if (!strcmp(d->dim[i].name, "B")) p->sequences = d->dim[i].hi;
    bool many = p->sequences > 1;
    sn_lm_parts parts = {.engine = {.model = p,
                                    .rows = p->sequences,
                                    .feed = feed,
                                    .step = many ? step : NULL,
                                    .reorder = many ? reorder : NULL},
                         .tokenizer = p->tokenizer,
                         .eos = p->manifest.eos,
                         .n_eos = p->manifest.n_eos,
                         .no_bos = p->manifest.no_bos};
    for (int i = 0; i < e->n_dim; i++)
        if (!strcmp(e->dim[i].name, "T")) parts.engine.context = e->dim[i].hi;
    parts.engine.vocab = last_number(e->tensor[e->n_tensor - 1].shape);
    if (*p->settings) parts.folder = p->settings;
    sn_lm *m = sn_lm_new(&parts, err);
    bool ok = m && sn_text_check(&p->o->text, err) &&
              sn_text_generate(p->manifest.name, m, &p->o->text, err);
    if (ok && p->o->text.stats) sn_text_print_times(m);
    sn_lm_close(m);
    return ok;
}

/* ---- opening ---- */

static void find_folder(program *p) {
    sn_program_path(p->folder, sizeof p->folder);
    char *slash = strrchr(p->folder, '/');
    snprintf(slash ? slash : p->folder, 2, slash == p->folder ? "/" : slash ? "" : ".");
}

static bool choose_target(program *p, sn_error *err) {
    for (int i = 0; i < p->manifest.n_target; i++)
        if (!strcmp(p->manifest.target[i].name, p->o->target)) {
            int32_t code = p->a->choose(&p->model, i + 1);
            return !code || sn_program_fail(p, code, err);
        }
    return sn_fail(err, SN_ERR_USAGE,
                   "this program has no variant for target '%s': --info lists them", p->o->target);
}

/* Reads the whole file into huge pages, from which weights stream 3 to 7 % faster than from the
 * small pages of a mapped file. */
static bool copy_weights(program *p, const char *path, sn_error *err) {
    enum { PIECE = 1 << 30 }; /* Windows reads no more than 2 GB at once */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a FIFO */
    struct stat st;
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 1) {
        if (fd >= 0) close(fd);
        return sn_fail(err, SN_ERR_FILE, "%s: cannot be opened, is empty, or is not a regular file",
                       path);
    }
    p->copied = st.st_size;
    p->copy = sn_program_allocate(st.st_size);
    ssize_t n = p->copy ? 1 : 0;
    for (int64_t done = 0; n > 0 && done < st.st_size; done += n)
        n = read(fd, (char *)p->copy + done,
                 st.st_size - done < PIECE ? (size_t)(st.st_size - done) : PIECE);
    close(fd);
    if (n > 0) return true;
    return sn_fail(err, p->copy ? SN_ERR_FILE : SN_ERR_MEMORY, "%s: %s", path,
                   p->copy ? "cannot be read" : "out of memory");
}

static bool open_model(program *p, sn_error *err) {
    char path[sizeof p->settings] = "", folder[sizeof p->settings];
    const char *weights = p->o->weights;
    if (!weights && !p->manifest.embedded) {
        beside(p, ".weights", path, sizeof path);
        weights = path;
    }
    if (weights && p->o->copy && !copy_weights(p, weights, err)) return false;
    errno = 0; /* says more about a file that cannot be opened */
    int32_t code =
        p->copy ? p->a->init(&p->model, p->copy, p->copied) : p->a->open(&p->model, weights);
    if (!code && p->o->verify) code = p->a->verify(&p->model);
    if (code && weights && !errno)
        (void)!access(weights, R_OK); /* Windows: open leaves errno alone */
    if (code)
        return sn_fail(err, SN_ERR_FILE, "%s: %s%s%s", weights ? weights : p->manifest.name,
                       p->a->message(code), errno ? ": " : "", errno ? strerror(errno) : "");
    sn_program_populate_weights(p);
    if (!sn_program_threads(p, err)) return false;
    if (p->o->target && !choose_target(p, err)) return false;
    p->state = sn_program_allocate_state(p->manifest.state_bytes);
    if (!p->state) return sn_fail(err, SN_ERR_MEMORY, "out of memory for the state");
    const char *tokenizer = p->o->tokenizer;
    if (!find_tokenizer(p, ".tokenizer", p->settings, path, sizeof path)) *p->settings = 0;
    if (!tokenizer && *p->settings) tokenizer = path;
    if (tokenizer && !(p->tokenizer = sn_tokenizer_load(tokenizer, err))) return false;
    const char *settings = *p->settings ? p->settings : NULL;
    if (sn_program_is_translator(p) && !sn_token_rules_read(&p->rules, settings, err)) return false;
    if (find_tokenizer(p, ".source.tokenizer", folder, path, sizeof path) &&
        !(p->source = sn_tokenizer_load(path, err)))
        return false;
    return !p->o->verify || ((!p->tokenizer || sn_tokenizer_verify(p->tokenizer, err)) &&
                             (!p->source || sn_tokenizer_verify(p->source, err)));
}

static void close_all(program *p) {
    sn_tokenizer_free(p->tokenizer);
    sn_tokenizer_free(p->source);
    sn_token_rules_free(&p->rules);
    sn_program_release(p->workspace, p->room);
    sn_program_release(p->state, p->manifest.state_bytes);
    p->a->close(&p->model);
    sn_program_release(p->copy, p->copied);
}

/* Whether the entry exists, takes text and has an output of this rank. A classifier's forward gives
 * [B, labels]; the prefill of an encoder-decoder gives [batch, S, d], unlike a decoder's. */
static bool gives(const program *p, const char *entry, int rank) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, entry);
    bool reads = false;
    int dims = 1;
    for (int i = 0; e && i < e->n_tensor; i++)
        reads |= !strcmp(e->tensor[i].name, "tokens") || !strcmp(e->tensor[i].name, "source");
    if (!reads) return false;
    for (const char *s = e->tensor[e->n_tensor - 1].shape; *s; s++) dims += *s == ',';
    return dims == rank;
}

static bool continues(const program *p) {
    return gives(p, "prefill", 2) && sn_manifest_get(&p->manifest, "decode");
}

static bool classifies(const program *p) {
    return gives(p, "forward", 2);
}

static bool embeds(const program *p) {
    return gives(p, "embed", 2);
}

static bool encodes(const program *p) {
    return gives(p, "encode", 3);
}

/* What programs do, by the entries of their artefact; the first row that fits. */
static const struct kind {
    bool (*fits)(const program *p);
    bool (*run)(program *p, sn_error *err);
    const char *more;
    const arg *table;
    const arg_key *json;
} kinds[] = {
    {sn_program_is_translator, sn_program_translate,
     "Translates each line. The number of beams was fixed by --beams when the program was\n"
     "compiled.\n",
     pair_table, sn_seq2seq_keys},
    {continues, generate, "Continues a text.\n", text_table, sn_text_keys},
    {classifies, sn_program_classify, "Prints the class of each text, and its probability.\n",
     lines_table, NULL},
    {embeds, sn_program_embed,
     "Prints the embedding of each sentence, similarities (cosines), or sentences ranked by "
     "their\nsimilarity to one, as `sinter embed` does.\n",
     embed_table, sn_embed_keys},
    {encodes, sn_program_encode, "Prints the mean of the vectors of each text.\n", lines_table,
     NULL},
};

static const struct kind *kind_of(const program *p) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].fits(p)) return &kinds[i];
    return NULL;
}

static bool run(program *p, const struct kind *kind, sn_error *err) {
    if (p->o->info) {
        fputs(p->a->manifest, stdout);
        return true;
    }
    if (p->o->all && !encodes(p))
        return sn_fail(err, SN_ERR_USAGE, "--all needs the entry encode, which was not compiled");
    if (p->o->all && sn_screen()->json)
        return sn_fail(err, SN_ERR_USAGE, "--all contradicts --json: it prints vectors only");
    return open_model(p, err) && (p->o->all ? sn_program_encode : kind->run)(p, err);
}

static int run_main(program *p, options *o, int argc, char **argv) {
    sn_error err = {0};
    p->a = &sn_deployed_artefact;
    p->o = o;
    const struct kind *kind = NULL;
    if (sn_manifest_parse(p->a->manifest, strlen(p->a->manifest), &p->manifest, &err) &&
        !(kind = kind_of(p)))
        sn_fail(&err, SN_ERR_USAGE, "no entry of this artefact can be called by a program");
    if (!kind) {
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
        return EXIT_WRONG;
    }
    const arg_command command = {p->manifest.name, "a model compiled by Sinter", kind->more,
                                 kind->table, .json = kind->json};
    int code = sn_args_parse(&command, argc, argv, o);
    if (code != ARGS_RUN) return code;
    if (!strcmp(p->manifest.threads, "openmp")) sn_threads_limit_spinning(argv);
    find_folder(p);
    bool ok = run(p, kind, &err);
    close_all(p);
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (ok && written) return EXIT_OK;
    if (!ok && !err.code && sn_screen_stopped()) {
        sn_screen_say(p->manifest.name, "%s", err.message);
        return EXIT_STOPPED;
    }
    sn_screen_error(p->manifest.name, "%s\n", ok ? "cannot write the output" : err.message);
    return err.code == SN_ERR_USAGE ? EXIT_USAGE : EXIT_WRONG;
}

int main(int argc, char **argv) {
    sn_program_use_huge_pages();
    sn_file_take_inside(sn_deployed_artefact.files);
    options o = {0}; /* programs take some of them */
    program *p = calloc(1, sizeof *p);
    if (!p) return EXIT_WRONG;
    int code = run_main(p, &o, argc, argv);
    free(p);
    return code;
}
