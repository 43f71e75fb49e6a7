/* header.c: writes NAME.h, the C interface of an artefact, and the manifest, a text inside the
 * object, which `sinter inspect` reads. */
#include "codegen/aot/aot.h"
#include "runtime/manifest.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

const char *sn_aot_c_type(sn_dtype t) {
    static const char *const types[SN_DTYPE_COUNT] = {
        [SN_F32] = "float",    [SN_F64] = "double",  [SN_BF16] = "uint16_t",
        [SN_F16] = "uint16_t", [SN_I32] = "int32_t", [SN_I64] = "int64_t",
        [SN_I8] = "int8_t",    [SN_U8] = "uint8_t",  [SN_BOOL] = "uint8_t"};
    return types[t];
}

static const char *shape_of(const sn_aot *a, const sn_node *n) {
    char text[512];
    sn_shape_print(a->m, n->rank, n->shape, text, sizeof text);
    return sn_arena_printf(a->m, "%s", text);
}

static void print_dims(const sn_aot_entry *t, FILE *f) {
    for (int k = 0; k < t->n_symbol; k++) fprintf(f, ", int64_t %s", t->dim_name[k]);
}

/* What the model says about an argument (sn_describe), or the caller of sn_emit; NULL: nothing. */
static const char *meaning(const sn_aot *a, const sn_aot_entry *t, sn_text_kind kind,
                           const char *name) {
    const char *text = sn_module_text(a->m, kind, t->name, name);
    return text || !a->o->describe ? text : a->o->describe(t->name, name);
}

/* The parameter or state that the text is about; NULL: it is about something else. */
static const sn_node *leaf_of(const sn_aot *a, const sn_text *t) {
    for (uint32_t i = 0; t->kind == SN_TEXT_LEAF && i < sn_module_node_count(a->m); i++) {
        const sn_node *x = sn_module_node(a->m, i);
        if ((x->op == SN_OP_param || x->op == SN_OP_state) &&
            !strcmp(sn_attr_str(x, SN_A_name, ""), t->name))
            return x;
    }
    return NULL;
}

static void print_meaning(const sn_aot *a, const sn_aot_entry *t, sn_text_kind kind,
                          const char *name, FILE *f) {
    const char *text = meaning(a, t, kind, name);
    fprintf(f, text ? ": %s\n" : "\n", text);
}

/* Bounds of an input's elements, which are checked. */
static void print_limits(const sn_aot *a, const sn_compiled_entry *c, const char *input, FILE *f) {
    char low[128], high[128], text[300], last[300] = "";
    for (int i = 0; i < c->n_limit; i++) {
        const sn_element_limit *l = &c->limit[i];
        if (strcmp(l->input, input)) continue;
        sn_dim_print(a->m, l->low, low, sizeof low);
        sn_dim_print(a->m, l->high, high, sizeof high);
        snprintf(text, sizeof text, l->open ? ", at least %s" : ", %s to %s", low, high);
        if (strcmp(text, last)) fputs(text, f); /* several operations read the same indices */
        snprintf(last, sizeof last, "%s", text);
    }
}

static sn_text_kind kind_of(const sn_aot_entry *t, const sn_binding *b) {
    return b >= t->input && b < t->input + t->n_input ? SN_TEXT_INPUT : SN_TEXT_OUTPUT;
}

static void print_tensor(const sn_aot *a, const sn_aot_entry *t, const sn_binding *b,
                         const char *name, const char *role, FILE *f) {
    fprintf(f, " *   %-10s %s %s, %s", name, sn_dtype_name((sn_dtype)b->node->dtype),
            shape_of(a, b->node), role);
    sn_text_kind kind = kind_of(t, b);
    if (kind == SN_TEXT_INPUT)
        print_limits(a, sn_program_entry(a->variant[0].program, t->name), b->name, f);
    print_meaning(a, t, kind, b->name, f);
}

static const char *upper(const sn_aot *a, const char *name) {
    const char *id = sn_aot_identifier(a, name);
    char *s = sn_arena_alloc(a->m, strlen(id) + 1);
    for (size_t i = 0; id[i]; i++) s[i] = (char)toupper((unsigned char)id[i]);
    return s;
}

/* A size in C, of constants and the entry's lengths; NULL: it is something else. */
static const char *size_in_c(const sn_aot *a, const sn_aot_entry *t, sn_dim d, bool *uses) {
    int64_t n;
    char text[128];
    if (sn_dim_is_const(a->m, d, &n)) return sn_arena_printf(a->m, "%lld", (long long)n);
    sn_dim_print(a->m, d, text, sizeof text);
    for (int k = 0; k < t->n_symbol; k++)
        if (!strcmp(text, sn_symbol_at(a->m, t->symbol[k])->name)) {
            uses[k] = true;
            return sn_arena_printf(a->m, "(int64_t)(%s)", t->dim_name[k]);
        }
    return NULL;
}

/* NAME_ENTRY_OUTPUT: the number of elements, with lengths as arguments if it depends on them. */
static void print_count(const sn_aot *a, const sn_aot_entry *t, int i, sn_aot_names *macros,
                        FILE *f) {
    int64_t count;
    bool uses[SN_AOT_SYMBOLS] = {false};
    const char *product = "", *names = "";
    const sn_node *n = t->output[i].node;
    if (sn_dim_is_const(a->m, sn_dim_product(a->m, n->rank, n->shape), &count))
        product = sn_arena_printf(a->m, "%lld", (long long)count);
    else
        for (int d = 0; d < n->rank && product; d++) {
            const char *size = size_in_c(a, t, n->shape[d], uses);
            product = size ? sn_arena_printf(a->m, d ? "%s * %s" : "%s%s", product, size) : NULL;
        }
    if (!product) return;
    for (int k = 0; k < t->n_symbol; k++)
        if (uses[k])
            names = sn_arena_printf(a->m, "%s%s%s", names, *names ? ", " : "", t->dim_name[k]);
    if (*names) product = sn_arena_printf(a->m, "(%s)", product);
    const char *name =
        sn_arena_printf(a->m, "%s_%s_%s", a->upper, upper(a, t->name), upper(a, t->output_name[i]));
    fprintf(f, "#define %s", sn_aot_unique(a, macros, name, "_COUNT"));
    fprintf(f, *names ? "(%s)" : "%s", names);
    fprintf(f, " %s /* elements */\n", product);
}

static void print_lengths(const sn_aot *a, const sn_aot_entry *t, FILE *f) {
    const sn_compiled_entry *c = sn_program_entry(a->variant[0].program, t->name);
    for (int i = 0; i < t->n_symbol; i++) {
        const sn_symbol *s = sn_symbol_at(a->m, t->symbol[i]);
        fprintf(f, " *   %-10s a length, %lld to %lld", t->dim_name[i], (long long)s->lo,
                (long long)s->hi);
        print_meaning(a, t, SN_TEXT_DIM, s->name, f);
    }
    for (int i = 0; i < c->n_range; i++) {
        const sn_range_check *k = &c->range[i];
        char low[128], high[128];
        sn_dim_print(a->m, k->low, low, sizeof low);
        sn_dim_print(a->m, k->high, high, sizeof high);
        if (k->kind == SN_RANGE_END)
            fprintf(f, " *   %s is at most %s\n", low, high);
        else if (k->kind != SN_RANGE_COUNT)
            fprintf(f, " *   %s is at least %s\n", high, low);
    }
}

static void print_entry(const sn_aot *a, const sn_aot_entry *t, sn_aot_names *macros, FILE *f) {
    fprintf(f, "\n/* %s\n", t->name);
    print_lengths(a, t, f);
    for (int i = 0; i < t->n_input; i++)
        print_tensor(a, t, &t->input[i], t->input_name[i], "read", f);
    for (int i = 0; i < t->n_output; i++)
        print_tensor(a, t, &t->output[i], t->output_name[i], "written", f);
    if (t->has_state)
        fprintf(f, t->writes_state ? " * Reads and writes the state.\n"
                                   : " * Only reads the state: several threads may share it.\n");
    fprintf(f, " */\n");
    for (int i = 0; i < t->n_output; i++) print_count(a, t, i, macros, f);
    fprintf(f, "int %s_%s(const %s *m", a->name, t->name, a->name);
    if (t->has_state) fprintf(f, t->writes_state ? ", void *state" : ", const void *state");
    fprintf(f, ", void *workspace");
    print_dims(t, f);
    for (int i = 0; i < t->n_input; i++)
        fprintf(f, ", const %s *%s", sn_aot_c_type((sn_dtype)t->input[i].node->dtype),
                t->input_name[i]);
    for (int i = 0; i < t->n_output; i++)
        fprintf(f, ", %s *%s", sn_aot_c_type((sn_dtype)t->output[i].node->dtype),
                t->output_name[i]);
    fprintf(f, ");\nint64_t %s_%s_workspace(const %s *m", a->name, t->name, a->name);
    print_dims(t, f);
    fprintf(f, ");\n");
}

static void print_targets(const sn_aot *a, FILE *f) {
    fprintf(f, " * Targets, the most capable first (the CPU must meet the requirements of one of "
               "them):\n");
    char needs[SN_AOT_NEEDS];
    for (int i = 0; i < a->n_variant; i++) {
        const sn_target *t = &a->variant[i].target;
        fprintf(f, " *   %d  %s%s%s: %s\n", i + 1, t->name,
                strcmp(t->name, "native") ? "" : ", compiled on ",
                strcmp(t->name, "native") ? "" : t->cpu, sn_target_needs(t, needs, sizeof needs));
    }
}

/* A string of C; bytes that are not plain ASCII in octal. */
static void print_string(const char *text, FILE *f) {
    fputc('"', f);
    for (; *text; text++) {
        bool plain = *text >= ' ' && *text <= '~' && !strchr("\"\\\\?", *text);
        fprintf(f, plain ? "%c" : "\\%03o", (unsigned char)*text);
    }
    fputc('"', f);
}

static void print_channels(const sn_aot *a, const char *name, const double *value, FILE *f) {
    fprintf(f, "#define %s_IMAGE_%s {", a->upper, name);
    for (int64_t c = 0; c < a->o->pixels->channels; c++)
        fprintf(f, c ? ", %.9g" : "%.9g", value[c]);
    fputs("}\n", f);
}

/* What a caller does with a picture. */
static void print_pixels(const sn_aot *a, FILE *f) {
    const sn_emit_pixels *p = a->o->pixels;
    const char *N = a->upper;
    fputs("/* Pixels: ", f);
    if (p->normalises) fputs("x / 255 of bytes x, because the model normalises them itself: ", f);
    fprintf(f, "(x * %s_IMAGE_SCALE - %s_IMAGE_MEAN[c]) / %s_IMAGE_STD[c]\n * in channel c. ", N, N,
            N);
    fprintf(f, "Pictures of another size: %s. */\n", p->resize);
    fprintf(f, "#define %s_IMAGE_SIDE %lld /* rows, and columns */\n", a->upper,
            (long long)p->side);
    fprintf(f, "#define %s_IMAGE_CHANNELS %lld%s\n", a->upper, (long long)p->channels,
            p->channels == 3 ? " /* red, green, blue */" : "");
    fprintf(f,
            fabs(p->factor * 255 - 1) < 1e-9 ? "#define %s_IMAGE_SCALE (1 / 255.0)\n"
                                             : "#define %s_IMAGE_SCALE %.17g\n",
            a->upper, p->factor);
    print_channels(a, "MEAN", p->mean, f);
    print_channels(a, "STD", p->std, f);
}

/* NAME_label, if any class has a name. */
static void print_labels(const sn_aot *a, FILE *f) {
    const sn_emit_options *o = a->o;
    bool any = false;
    for (int i = 0; i < o->n_label; i++) any |= o->label[i] != NULL;
    if (!any) return;
    fprintf(f,
            "#define %s_LABELS %d\n/* The name of a class; NULL: it has none. */\n"
            "static inline const char *%s_label(int64_t i) {\n"
            "    static const char *const names[] = {",
            a->upper, o->n_label, a->name);
    for (int i = 0; i < o->n_label; i++) {
        fputs(i ? ",\n        " : "\n        ", f);
        if (o->label[i])
            print_string(o->label[i], f);
        else
            fputs("NULL", f);
    }
    fprintf(f, "};\n    return i >= 0 && i < %s_LABELS ? names[i] : NULL;\n}\n\n", a->upper);
}

/* Constants that a caller of a language model needs. `macros` starts with the names that every
 * header has. */
static void print_constants(const sn_aot *a, sn_aot_names *macros, FILE *f) {
    static const char *const names[] = {"VERSION",       "ABI_VERSION",  "STATE_BYTES",
                                        "WEIGHT_BYTES",  "ALIGN",        "ARTEFACT_H",
                                        "ERROR_KIND",    "SOURCE_VOCAB", "VOCAB",
                                        "PARAMETERS",    "CONTEXT",      "BOS",
                                        "EOS",           "EOS_LIST",     "SUMS",
                                        "LABELS",        "IMAGE_SIDE",   "IMAGE_CHANNELS",
                                        "IMAGE_SCALE",   "IMAGE_MEAN",   "IMAGE_STD",
#define X(name, text) #name, "ERROR_" #name,
                                        SN_AOT_ERRORS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sn_aot_unique(a, macros, sn_arena_printf(a->m, "%s_%s", a->upper, names[i]), NULL);
    const sn_emit_options *o = a->o;
    const char *N = a->upper;
    if (o->vocab)
        fprintf(f, "#define %s_VOCAB %lld /* token ids are less than this */\n", N,
                (long long)o->vocab);
    if (o->source_vocab)
        fprintf(f, "#define %s_SOURCE_VOCAB %lld /* the same, for the text to translate */\n", N,
                (long long)o->source_vocab);
    if (o->context)
        fprintf(f, "#define %s_CONTEXT %lld /* maximum sequence length in tokens */\n", N,
                (long long)o->context);
    if (o->bos >= 0) fprintf(f, "#define %s_BOS %d /* starts a text */\n", N, (int)o->bos);
    if (o->n_eos) fprintf(f, "#define %s_EOS %d /* ends a text */\n", N, (int)o->eos[0]);
    if (o->n_eos > 1) {
        fprintf(f, "#define %s_EOS_LIST {", N);
        for (int i = 0; i < o->n_eos; i++) fprintf(f, i ? ", %d" : "%d", (int)o->eos[i]);
        fprintf(f, "} /* any of these ends a text, too */\n");
    }
    if (o->pixels) print_pixels(a, f);
    fputc('\n', f);
}

/* "$x" in a text stands for a string of the list. */
typedef struct word {
    char key;
    const char *text;
} word;

static void expand(const char *text, const word *list, FILE *f) {
    for (; *text; text++) {
        const word *w = list;
        while (*text == '$' && w->key && w->key != text[1]) w++;
        if (*text != '$' || !w->key) {
            fputc(*text, f);
            continue;
        }
        fputs(w->text, f);
        text++;
    }
}

static const char top[] =
    "#ifndef $N_ARTEFACT_H\n"
    "#define $N_ARTEFACT_H\n\n"
    "#include <stddef.h>\n"
    "#include <stdint.h>\n"
    "#include <string.h>\n\n"
    "#ifdef __cplusplus\n"
    "extern \"C\" {\n"
    "#endif\n\n"
    "#define $N_VERSION \"$v\"\n"
    "/* What must agree, and who compares it:\n"
    " *   struct $n, $n_threads, functions of every artefact, kinds of errors: this number, with\n"
    " *     $n_abi_version() of the object; you, if header and object may be of different builds\n"
    " *   entries: their arguments depend on the model and the options; use the object's header\n"
    " *   weights file: layout of the weights and $N_VERSION; $n_open and $n_init compare a hash\n"
    " *     of them\n"
    " *   state: a copy of its bytes fits any target of an artefact with the same weights file\n"
    " *   size of a workspace: ask again with every new object\n"
    " *   bits of results: the same target and $N_VERSION, any CPU that runs it, any number of\n"
    " *     threads; another target may round differently */\n"
    "#define $N_ABI_VERSION $a\n"
    "/* What leaves the bits of results as they are: sessions and threads always, how many rows a "
    "batch\n"
    " * has (batch) and into how many calls a sequence is cut (chunk) if it was compiled so. */\n"
    "#define $N_INVARIANT \"session,threads$i\"\n"
    "#define $N_STATE_BYTES INT64_C($s)\n"
    "#define $N_WEIGHT_BYTES INT64_C($w) /* of the file */\n"
    "#define $N_ALIGN 64 /* of state, workspace and of weights that you load yourself */\n";

static const char structs[] =
    "/* Your own threads: `run` calls fn(arg, t, n) for every t in [0, n), all at the same time, "
    "and\n"
    " * returns when all have returned; `barrier` returns when all n threads have called it. "
    "`self` "
    "is the\n"
    " * pointer that you stored in `pool`, so this struct may be the first member of yours. A call "
    "with\n"
    " * little work does not use the pool. Calls at the same time need pools of their own. */\n"
    "typedef struct $n_threads {\n"
    "    int64_t n;\n"
    "    void (*run)(struct $n_threads *self, void (*fn)(void *arg, int64_t t, int64_t n),\n"
    "                void *arg);\n"
    "    void (*barrier)(struct $n_threads *self, int64_t t);\n"
    "    void *state;\n"
    "} $n_threads;\n\n"
    "/* An open model. Entries only read it. */\n"
    "typedef struct $n {\n"
    "    const void *weights;\n"
    "    int64_t bytes;\n"
    "    int64_t threads;     /* you may set it: $t */\n"
    "    $n_threads *pool;   /* you may set it: your threads, at most max_threads; NULL: the "
    "built-in way */\n"
    "    int32_t target;      /* 1 + index of the target in use; 0: closed; $n_choose sets it */\n"
    "    int16_t mapped;\n"
    "    int16_t max_threads; /* every workspace has room for them; $n_set_threads sets it */\n$c"
    "} $n;\n\n";

static const char middle[] =
    "};\n"
    "#define $N_ERROR_KIND(code) ((code) & 255)\n"
    "/* The error in words; a string of the program. */\n"
    "const char *$n_message(int code);\n\n"
    "/* Maps the weights file and checks that it belongs to this code (not its contents)$e.\n"
    " * Chooses the most capable target that this CPU runs. */\n"
    "int $n_open($n *m, const char *path);\n"
    "/* The same with weights that are in memory, which must stay there$m. */\n"
    "int $n_init($n *m, const void *weights, int64_t bytes);\n"
    "void $n_close($n *m);\n"
    "/* Maps all pages of the weights file at once, and reads them from the disk if need be, so "
    "that entries\n"
    " * do not wait for page after page; takes as long as reading the file. On Linux 5.14 and "
    "later,\n"
    " * and for a file that $n_open mapped; otherwise it does nothing. */\n"
    "void $n_populate(const $n *m);\n"
    "/* Reads all of the weights and compares their checksums: one for each 64 KiB, and one for "
    "these.\n"
    " * They find what disks, copies and memory damage, not what is changed on purpose. */\n"
    "int $n_verify(const $n *m);\n"
    "/* The same of the blocks of 64 KiB that hold bytes offset .. offset + bytes - 1 of the file, "
    "so that\n"
    " * a program can begin before all is read, or share the work among threads. Each call also "
    "reads\n"
    " * the first page and all checksums (1/8192 of the file), so take parts of some MiB. */\n"
    "int $n_weights_verify(const $n *m, int64_t offset, int64_t bytes);\n"
    "/* $N_ABI_VERSION of the header that belongs to the object. */\n"
    "int $n_abi_version(void);\n"
    "/* Another target than open's choice, 1 is the first of the list above. */\n"
    "int $n_choose($n *m, int target);\n"
    "/* Sets max_threads to n, 1 to 1024; 0: $d, as open does. From then on\n"
    " * workspaces need other sizes: ask for them again. Sets threads to 0. */\n"
    "int $n_set_threads($n *m, int64_t n);\n"
    "/* What is in this artefact, as text. */\n"
    "const char *$n_manifest(void);\n\n";

static const char of_state[] =
    "/* Initialises state[$N_STATE_BYTES]. $f\n"
    " * A state holds no pointers. A copy of its bytes (memcpy, or a file) goes on where it\n"
    " * was, also in another process and with another target of this artefact. Its first 64\n"
    " * bytes hold a hash of the layout of weights and states: entries refuse a state of\n"
    " * another layout. */\n"
    "int $n_state_init(const $n *m, void *state);\n\n";

static const char of_entries[] =
    "/* The entries. workspace: scratch memory of a call. Its size in bytes is returned by the\n * "
    "_workspace function for these lengths (negative: minus an error code). It never shrinks\n * "
    "when a length grows, so ask for the largest once. It is enough for every target, and for "
    "any\n * "
    "number of threads up to max_threads. */\n";

static const char files[] =
    "/* The files in the object, up to one whose path is NULL. The same struct as sn_file_inside "
    "of\n"
    " * Sinter's runtime library: after sn_file_take_inside((const sn_file_inside *)$n_files())\n"
    " * sn_tokenizer_load finds one as \"program:\" and its path. */\n"
    "typedef struct $n_file {\n"
    "    const char *path;\n"
    "    const unsigned char *data;\n"
    "    uint64_t bytes;\n"
    "} $n_file;\n"
    "const $n_file *$n_files(void);\n\n";

static const char parameters[] =
    "\n/* A trained parameter: where it lies in the state after any step. The rest of the state "
    "belongs "
    "to\n"
    " * the optimizer. The same struct as sn_weight_place of Sinter's runtime library, whose\n"
    " * sn_weights_save_state writes them to a model.safetensors. */\n"
    "typedef struct $n_parameter {\n"
    "    const char *name;\n"
    "    int32_t dtype; /* $y */\n"
    "    int32_t rank;\n"
    "    int64_t shape[8];\n"
    "    int64_t offset, bytes; /* in the state */\n"
    "} $n_parameter;\n"
    "#define $N_PARAMETERS $p /* rows of the table */\n"
    "const $n_parameter *$n_parameters(void);\n\n"
    "/* The values of the parameter `name` in the state, to read or to write between calls; "
    "*bytes\n"
    " * (may be NULL): their size. NULL: there is no such parameter. */\n"
    "static inline void *$n_param(void *state, const char *name, int64_t *bytes) {\n"
    "    const $n_parameter *p = $n_parameters(), *end = p + $N_PARAMETERS;\n"
    "    while (p < end && strcmp(p->name, name)) p++;\n"
    "    if (p == end) return NULL;\n"
    "    if (bytes) *bytes = p->bytes;\n"
    "    return (char *)state + p->offset;\n"
    "}\n";

/* What the model says about parameters and states. */
static void print_leaves(const sn_aot *a, FILE *f) {
    const sn_text *t;
    bool any = false;
    for (int n = sn_module_texts(a->m, &t); n--; t++) {
        const sn_node *x = leaf_of(a, t);
        if (!x) continue;
        if (!any) fputs("/* Parameters and states:\n", f);
        any = true;
        fprintf(f, " *   %-10s %s %s, %s", sn_aot_word(a, t->name),
                sn_dtype_name((sn_dtype)x->dtype), shape_of(a, x),
                x->op == SN_OP_param ? "a parameter" : "a state");
        for (int i = 0; i < a->n_state; i++)
            if (!strcmp(a->state[i].name, t->name))
                fprintf(f, ", from byte %zu of the state on", a->state[i].offset);
        fprintf(f, ": %s\n", t->text);
    }
    if (any) fputs(" */\n\n", f);
}

/* "0 f32, 1 f64, …" */
static const char *dtype_numbers(const sn_aot *a) {
    const char *s = "";
    for (int t = 0; t < SN_DTYPE_COUNT; t++)
        s = sn_arena_printf(a->m, "%s%s%d %s", s, t ? ", " : "", t, sn_dtype_name((sn_dtype)t));
    return s;
}

static const char bottom[] = "\n#ifdef __cplusplus\n"
                             "}\n"
                             "#endif\n"
                             "#endif\n";

bool sn_aot_print_header(sn_aot *a, FILE *f) {
    static const char *const kinds[] = {
#define X(name, text) #name,
        SN_AOT_ERRORS(X)
#undef X
    };
    static const char *const texts[] = {
#define X(name, text) text,
        SN_AOT_ERRORS(X)
#undef X
    };
    bool first_values = false;
    for (int i = 0; i < a->n_state; i++) first_values |= a->state[i].data != NULL;
    fprintf(f,
            "/* %s.h: a model compiled ahead of time by Sinter %s.\n * Needs %s%s. No "
            "function allocates memory, prints, or has global state;\n * several threads may use "
            "one open model at once, each with its own state and workspace.\n * Functions return 0 "
            "or an error code, for %s_message. Tensors are row-major.\n",
            a->name, SN_VERSION,
            sn_aot_is(a, SN_WINDOWS) ? "kernel32, a C runtime (of MSVC or MinGW)" : "libc, libm",
            a->openmp ? " and an OpenMP runtime (-lgomp)" : "", a->name);
    print_targets(a, f);
    fprintf(f, " */\n");
    static const char *const kept[] = {"", ",batch", NULL, ",batch,chunk"};
    const word words[] = {
        {'n', a->name},
        {'N', a->upper},
        {'v', SN_VERSION},
        {'s', sn_arena_printf(a->m, "%zu", a->state_bytes)},
        {'w', sn_arena_printf(a->m, "%zu", a->weight_bytes)},
        {'t',
         a->openmp ? "of a call, if fewer than max_threads; 0: these" : "ignored in this artefact"},
        {'d', a->openmp ? "OpenMP's default number for the calling thread" : "1"},
        {'e', a->o->embed_weights ? ";\n * path NULL: the weights that are in the object" : ""},
        {'m', a->o->embed_weights ? "; NULL: those in the object" : ""},
        {'f', first_values ? "Zeroed memory is not sufficient: the state contains parameters."
                           : "Zeroed memory (calloc, mmap) needs no call."},
        {'p', sn_arena_printf(a->m, "%d", a->n_trained)},
        {'a', sn_arena_printf(a->m, "%d", SN_AOT_ABI)},
        {'i', kept[sn_options_invariant(&a->o->compile)]},
        {'r', sn_arena_printf(a->m, "%d", a->n_sum)},
        {'c',
         a->n_sum
             ? sn_arena_printf(
                   a->m,
                   "    %s_comm *comm; /* you may set it: ranks; NULL: this is the only one */\n",
                   a->name)
             : ""},
        {'y', dtype_numbers(a)},
        {0, NULL}};
    sn_aot_names macros = {0};
    expand(top, words, f);
    print_constants(a, &macros, f);
    if (a->n_sum) expand(sn_aot_comm_type, words, f);
    expand(structs, words, f);
    fprintf(f, "enum { /* kinds of errors */\n");
    for (int i = 0; i < SN_AOT_ERROR_COUNT; i++)
        fprintf(f, "    %s_%s%s = %d, /* %s */\n", a->upper, i ? "ERROR_" : "", kinds[i], i,
                texts[i]);
    expand(middle, words, f);
    print_labels(a, f);
    if (a->o->n_file) expand(files, words, f);
    if (a->n_state) expand(of_state, words, f);
    print_leaves(a, f);
    expand(of_entries, words, f);
    for (int i = 0; i < a->n_entry; i++) print_entry(a, &a->entry[i], &macros, f);
    if (a->n_trained) expand(parameters, words, f);
    fputs(bottom, f);
    return !ferror(f) || sn_fail(a->err, SN_ERR_FILE, "cannot write the header");
}

static void manifest_about(const sn_aot *a, const sn_aot_entry *t, sn_text_kind kind,
                           const char *name, const char *argument, FILE *f) {
    const char *text = meaning(a, t, kind, argument);
    if (text) fprintf(f, "  about %s %s\n", name, text);
}

static void manifest_tensor(const sn_aot *a, const sn_aot_entry *t, const char *role,
                            const sn_binding *b, const char *name, FILE *f) {
    fprintf(f, "  %s %s %s %s\n", role, name, sn_dtype_name((sn_dtype)b->node->dtype),
            shape_of(a, b->node));
    manifest_about(a, t, kind_of(t, b), name, b->name, f);
}

bool sn_aot_print_manifest(sn_aot *a, FILE *f) {
    fprintf(f, SN_MANIFEST_MARK "name %s\nversion %s\n", a->name, SN_VERSION);
    fprintf(f, "threads %s\nweights %zu %s %016llx\nstate %zu",
            a->openmp    ? "openmp"
            : a->workers ? "workers"
                         : "none",
            a->weight_bytes, a->o->embed_weights ? "embedded" : "file", (unsigned long long)a->hash,
            a->state_bytes);
    fprintf(f, a->n_trained ? " %d\n" : "\n", a->n_trained); /* rows of NAME_parameters */
    if (a->o->no_bos) fprintf(f, "text bare\n");
    for (int i = 0; i < a->o->n_label; i++)
        if (a->o->label[i] && *a->o->label[i]) fprintf(f, "label %d %s\n", i, a->o->label[i]);
    if (a->o->bos >= 0) fprintf(f, "bos %d\n", (int)a->o->bos);
    if (a->o->source_vocab) fprintf(f, "source %lld\n", (long long)a->o->source_vocab);
    for (int i = 0; i < a->o->n_eos; i++) fprintf(f, "eos %d\n", (int)a->o->eos[i]);
    for (int i = 0; i < a->n_variant; i++) {
        const sn_target *t = &a->variant[i].target;
        char needs[SN_AOT_NEEDS];
        fprintf(f, "target %s %s", t->name, t->triple);
        if (a->elf) fprintf(f, " %zu", a->variant[i].code_bytes);
        fputc('\n', f);
        fprintf(f, "  needs %s (%s)\n", sn_target_needs(t, needs, sizeof needs),
                *t->tune ? t->tune : t->cpu);
    }
    const sn_text *text;
    for (int n = sn_module_texts(a->m, &text); n--; text++)
        if (leaf_of(a, text)) fprintf(f, "about %s %s\n", sn_aot_word(a, text->name), text->text);
    for (int i = 0; i < a->n_entry; i++) {
        const sn_aot_entry *t = &a->entry[i];
        fprintf(f, "entry %s%s\n", t->name, t->has_state ? " state" : "");
        for (int k = 0; k < t->n_symbol; k++) {
            const sn_symbol *s = sn_symbol_at(a->m, t->symbol[k]);
            fprintf(f, "  dim %s %lld %lld\n", t->dim_name[k], (long long)s->lo, (long long)s->hi);
            manifest_about(a, t, SN_TEXT_DIM, t->dim_name[k], s->name, f);
        }
        for (int k = 0; k < t->n_input; k++)
            manifest_tensor(a, t, "in", &t->input[k], t->input_name[k], f);
        for (int k = 0; k < t->n_output; k++)
            manifest_tensor(a, t, "out", &t->output[k], t->output_name[k], f);
    }
    return true;
}
