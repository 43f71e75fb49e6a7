/* aot.h: internals of sn_emit, shared by the files of this folder: the parts of an artefact.
 *
 * An artefact is one object. It contains, for each target, the same objects that the JIT would load
 * (as a group of local symbols), and a small object for the architecture's oldest CPU with the
 * functions that NAME.h declares. These check arguments, choose a target and make the call.
 *
 * For systems other than Linux, and if a listing or lines are asked for, they are bitcode, and code is generated
 * for all of it together. Pointers have 4 bytes in WebAssembly, but all structs and lists keep the
 * offsets below: a pointer is the lower half of its 8 bytes. */
#ifndef SN_AOT_H
#define SN_AOT_H

#include "codegen/aot/file.h"
#include "codegen/aot/elf_merge.h"
#include "codegen/aot/bitcode.h"
#include "codegen/emit/signature.h"
#include "codegen/program/program.h"

enum {
    SN_AOT_TARGETS = 8,
    SN_AOT_SYMBOLS = 16, /* symbolic dims of a module */
    SN_AOT_TESTS = 12,
    SN_AOT_ALIGN = 64,
    SN_AOT_LABEL = 255, /* bytes of a class name */
    SN_AOT_NEEDS = 300, /* of the features of a target */
    /* NAME_abi_version: to be increased if the struct NAME, NAME_threads, a function that every artefact
     * has, or a kind of error changes; new functions and kinds do not count */
    SN_AOT_ABI = 1,
};

/* A test of CPU features: bits of register `reg` (0..3: eax..edx) of a CPUID leaf on x86-64, of
 * Linux's getauxval(leaf) elsewhere. */
typedef struct sn_cpu_test {
    uint32_t leaf, sub;
    int reg;
    uint64_t mask;
} sn_cpu_test;

/* The tests that a CPU must pass to run code for t; returns their number, at most SN_AOT_TESTS.
 * xcr0: on x86-64 the register state that the operating system must save; 0: none. */
int sn_target_floor(const sn_target *t, sn_cpu_test *test, uint64_t *xcr0);

/* Writes the features that these tests require to `text`, separated by spaces, and returns it. */
const char *sn_target_needs(const sn_target *t, char *text, size_t size);

/* The oldest CPU of a target's architecture, on the same system, for code that runs before the CPU is known. */
const char *sn_target_base(sn_module *m, const sn_target *t);

/* A tensor in the weights file or in the state. */
typedef struct sn_aot_place {
    const char *name;
    sn_dtype dtype;
    size_t bytes, offset;
    const void *data;       /* weights: contents; states: first value, NULL: zeros */
    size_t from;            /* states with a first value: its offset in the weights file */
    const sn_node *trained; /* states that are trained parameters: the parameter; else NULL */
} sn_aot_place;

typedef struct sn_aot_variant {
    sn_target target;
    sn_program *program;
    size_t code_bytes;
} sn_aot_variant;

typedef struct sn_aot_entry {
    const char *name;
    int symbol[SN_AOT_SYMBOLS], n_symbol; /* the dims that a caller passes */
    const sn_binding *input, *output;
    int n_input, n_output;
    const char **dim_name, **input_name, **output_name; /* C parameters: names.c */
    bool has_state, writes_state;
} sn_aot_entry;

/* Detailed error messages. An error code has the kind in the low byte and 1 + index above. */
typedef struct sn_aot_message {
    int kind;
    const char *text;
} sn_aot_message;

typedef struct sn_aot {
    const sn_emit_options *o;
    sn_session *s;
    sn_module *m;
    char name[64], upper[64];
    bool openmp, workers; /* where its threads come from; neither: from the caller */
    sn_aot_variant variant[SN_AOT_TARGETS]; /* the most capable first */
    int n_variant;
    sn_aot_entry *entry;
    int n_entry;
    sn_aot_place *weight, *state;
    int n_weight, n_state, n_trained;
    size_t weight_bytes, state_bytes; /* weight_bytes: of the whole file, header included */
    size_t tensor_bytes;              /* of the tensors in the weights file */
    /* of the layout of weights and states, not 0: must agree between file, states and code. A state begins
     * with it, or with 0: zeroed memory. */
    uint64_t hash;
    sn_aot_message *message;
    int n_message, cap_message;
    int n_sum; /* the most sums over ranks of an entry; 0: the artefact is for one rank */
    const char *manifest;
    sn_elf *elf; /* all objects, or ... */
    sn_bitcode *bitcode;
    void *image; /* of embedded weights */
    sn_error *err;
} sn_aot;

/* Kinds of errors of an artefact's functions: name, text of NAME_message. */
#define SN_AOT_ERRORS(_)                                                                           \
    _(OK, "no error")                                                                              \
    _(ARGUMENT, "an argument is NULL, not aligned to 64 bytes, or not allowed")                    \
    _(CLOSED, "the model is not open, or its struct was overwritten")                              \
    _(RANGE, "a length is out of range")                                                           \
    _(INDEX, "a token or another element of an input is out of range")                             \
    _(CPU, "this CPU, or its operating system, does not meet the requirements of any target of "   \
           "the artefact")                                                                         \
    _(FILE, "the weights file cannot be opened or mapped; errno (Windows: GetLastError) says why") \
    _(FORMAT, "not a weights file of Sinter, or one of another version")                           \
    _(SIZE, "the weights file is truncated or too long")                                           \
    _(MODEL, "the weights file belongs to another model or to other compile options")              \
    _(DAMAGED, "the weights file is corrupted: the checksum differs")                              \
    _(MEMORY, "a tensor of these lengths exceeds the limit")                                       \
    _(RANKS, "a function of the communicator failed")                                              \
    _(STATE, "the state belongs to another artefact, or was not initialised")
enum {
#define X(name, text) SN_AOT_##name,
    SN_AOT_ERRORS(X)
#undef X
        SN_AOT_ERROR_COUNT
};

static inline bool sn_aot_is(const sn_aot *a, sn_system system) {
    return a->variant[0].target.system == system;
}

/* Whether its code is written as text, too. */
static inline bool sn_aot_lists(const sn_aot *a) {
    return a->o->kinds & (SN_EMIT_ASSEMBLY | SN_EMIT_IR);
}
static inline bool sn_aot_has_lines(const sn_aot *a) {
    return a->o->kinds & SN_EMIT_LINES;
}

/* What the names of the code for target v begin with, in place of "sn_". */
const char *sn_aot_prefix(const sn_aot *a, int v, char text[96]);

/* parts.c. A field, aligned to 8 bytes, at an offset from a pointer. */
em_val sn_aot_get(em *e, em_val base, em_type t, int64_t offset);
void sn_aot_put(em *e, em_val base, int64_t offset, em_val v);
#define sn_aot_put(e, base, offset, v) (sn_aot_put)(e, base, offset, EM_INT(e, v))
/* Visible: NAME_name is a global symbol. */
em_val sn_aot_function(em *e, const sn_aot *a, const char *name, em_type ret, const em_type *params,
                       int n, bool visible);
/* SN_AOT_SIGNATURE(i32, choose, LIST) is EM_SIGNATURE_RETURNING (codegen/emit/signature.h) with
 *   choose_args q = choose_begin(e, a, "choose", visible)     begins NAME_choose */
#define SN_AOT_SIGNATURE(result, fn, LIST)                                                         \
    EM_SIGNATURE_RETURNING(result, fn, LIST)                                                       \
    static inline fn##_args fn##_begin(em *e, const sn_aot *a, const char *name, bool visible) {   \
        const em_type types[] = {LIST(EM_SIGNATURE_TYPE)};                                         \
        static const char *const names[] = {LIST(EM_SIGNATURE_NAME)};                              \
        em_name_params(sn_aot_function(e, a, name, e->result, types, fn##_n_params, visible),      \
                       names, fn##_n_params);                                                      \
        return fn##_params(e);                                                                     \
    }
/* Constant data with a name within the object; numbers: n constants of type i64. */
em_val sn_aot_constant(em *e, const char *name, em_val init);
em_val sn_aot_numbers(em *e, const char *name, em_val *number, int n);
/* status: an i32, 0 as long as nothing failed; the first code stays. */
void sn_aot_fail_if(em *e, em_var status, em_val cond, int code);
em_val sn_aot_is_ok(em *e, em_var status);
/* Fails with SN_AOT_CLOSED unless m is open; m must not be NULL if nothing failed before. */
void sn_aot_check_open(em *e, const sn_aot *a, em_val m, em_var status);
/* The pointer argument p of a function is NULL, or, if it must be, not aligned to 64 bytes. */
void sn_aot_check_pointer(em *e, sn_aot *a, em_var status, em_val p, bool aligned, const char *fn,
                          const char *name);
/* The code of a reason; its text goes to the artefact's messages. */
int sn_aot_code(sn_aot *a, int kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* verify.c: NAME_weights_verify and NAME_verify. */
void sn_aot_emit_verify(em *e, sn_aot *a);

/* entry.c: the functions of entries; glue.c: the object with these and the other public functions. */
void sn_aot_emit_entry(em *e, sn_aot *a, int i);
void sn_aot_emit_threads(em *e, const sn_aot *a);
em_val sn_aot_default_threads(em *e, const sn_aot *a); /* i16, of the calling thread */
void sn_aot_take_pool(
    em *e, em_val m); /* gives a model the pool of the module's workers, if there are some */
bool sn_aot_emit_glue(sn_aot *a, sn_object *out);

/* Fields of the caller's struct NAME, by offset. */
enum {
    SN_AOT_WEIGHTS = 0,
    SN_AOT_BYTES = 8,
    SN_AOT_THREADS = 16,
    SN_AOT_POOL = 24,
    SN_AOT_VARIANT = 32,     /* i32: 1 + index; 0: closed */
    SN_AOT_MAPPED = 36,      /* i16 */
    SN_AOT_MAX_THREADS = 38, /* i16: most threads that workspaces have room for */
    SN_AOT_COMM = 40         /* only if there are sums over ranks */
};
static inline int64_t sn_aot_struct_bytes(const sn_aot *a) {
    return a->n_sum ? 48 : 40;
}

/* ranks.c: sums over ranks, by functions of the caller. Counts them; false: an entry needs other
 * collectives. */
bool sn_aot_count_sums(sn_aot *a);
/* sn_call.step of an entry for target v, with the caller's communicator (or NULL) as host; NULL: the
 * entry calls nothing outside. */
em_val sn_aot_emit_sums(em *e, const sn_aot *a, const sn_compiled_entry *c, int v);
/* The communicator's type, before the struct of the model. */
extern const char sn_aot_comm_type[];

/* weights.c */
bool sn_aot_write_weights(sn_aot *a, const char *path);
void sn_aot_fill_header(const sn_aot *a, sn_aot_header *h);
void *sn_aot_weights_image(sn_aot *a); /* all of the file, malloc'ed; NULL: out of memory */

/* listing.c: the artefact's code as text; above each kernel a comment says where in the model and in its
 * source it computes. Freed by sn_object_free. */
bool sn_aot_listing(sn_aot *a, sn_form form, sn_object *out);
/* Gives the lines of the model's source to the bitcode. Before sn_bitcode_finish. */
bool sn_aot_add_lines(sn_aot *a);

/* names.c. A list of names in use: zero-initialised, memory of the module. */
typedef struct sn_aot_names {
    const char **name;
    int n, capacity;
} sn_aot_names;
bool sn_aot_is_reserved(const char *name); /* a word or macro of C or C++ */
const char *sn_aot_identifier(const sn_aot *a, const char *name);
/* A name in a comment of C or a line of words: '_' for blanks, control characters and '*'. */
const char *sn_aot_word(const sn_aot *a, const char *name);
/* The name, with the suffix or a number behind it if it is in use or reserved; then it is
 * in use. */
const char *sn_aot_unique(const sn_aot *a, sn_aot_names *used, const char *name,
                          const char *suffix);
bool sn_aot_name_entries(sn_aot *a); /* checks names of entries, names their parameters */

/* header.c */
bool sn_aot_print_header(sn_aot *a, FILE *f);
const char *sn_aot_c_type(sn_dtype t);
bool sn_aot_print_manifest(sn_aot *a, FILE *f);

#endif
