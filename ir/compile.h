/* compile.h: compiling and running a module: options, programs, sessions, artefacts, tests of gradients.
 * Part of the public interface: include frontend/sinter.h, which says who owns what, and how errors and
 * threads are handled. codegen/program/ and codegen/aot/ implement it. */
#ifndef SN_COMPILE_H
#define SN_COMPILE_H

#include "runtime/base.h"
#include "runtime/weights.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_module sn_module;
typedef struct sn_node *sn_tensor;

/* ---- compile and run ---- */

typedef struct sn_program sn_program; /* compiled entries; immutable, may be used by any thread */
/* bound weights, states and workspace for one user of a program */
typedef struct sn_session sn_session;

/* A matrix that needs more bits than the options of the whole program say. */
typedef struct sn_keep {
    const char *param; /* name of the parameter */
    /* its storage, if it is wider than that of the option `weights`: "int8", "bf16", "f32"; NULL: any */
    const char *weights;
    bool products; /* with the option compute "int8": products with it are computed in f32 */
} sn_keep;

typedef struct sn_options {
    int level;           /* fusion level 0 to 4; -1: the default, 4 */
    int threads;         /* to compile and to run; 0: the number of CPUs available to the process */
    const char *backend; /* "auto" (or NULL), "native", "onednn" */
    const char *target;  /* NULL: this CPU; or a name such as "x86-64-v3", "native,l2=1M" */
    /* storage type of constant matrices: "f32" (or NULL), "bf16", "int8", "int4", or "stored": what
     * each has in `source`: f32, f16, bf16, or a GGUF file's blocks of integers with factors */
    const char *weights;
    /* [n_keep] matrices with more bits, such as `sinter quantize` finds; only needed during
     * sn_compile. They have no effect on weights "stored". */
    const sn_keep *keep;
    int n_keep;
    /* arithmetic of products: "f32" (or NULL); "bf16": factors are rounded to bf16 (nearest even), sums
     * are f32: pairs along K, the product of the odd one first, each with one rounding, and what is
     * subnormal is 0. So results have the same bits on every CPU with FMA. Forward and in gradients; not
     * for products of integers. Those inside attention and recurrences depend on the vectors' width
     * besides. "int8": of linear
     * maps with constant weights: products of 8-bit integers with exact sums, of rows that are quantised when the program runs (one scale a row)
     * and of weights stored as int8 (one scale a column). Then `weights` is NULL or "int8", which
     * store all matrices as int8; "int4", or "stored", which keeps blocks of integers and stores the
     * file's floats as int8: then the sums of a group are products of integers.
     * Gradients are not affected: the weights of training entries are not constant.
     * "bf16-unordered": "bf16", but products may be summed in any order: where this CPU has AMX they are,
     * with the same bits for any number of threads. Artefacts compute "bf16". */
    const char *compute;
    /* The file that sessions of the program will be opened with; NULL: unknown. Its matrices of
     * bf16 or f16 are then packed and looked up without an f32 copy. Sessions of other files work
     * if the types in them are the same. Only needed during sn_compile. */
    const sn_weights *source;
    /* Storage type of large activations in training entries (entries that assign and have an output
     * "loss"): "f32" (or NULL) or "bf16". Affects what the forward part keeps for the backward
     * part, and the results of attention's gradient. Accumulators, parameters and optimizer states
     * remain f32. */
    const char *precision;
    /* Storage type of the caches of keys and values that decoding keeps from call to call, that is of
     * states of f32 to which an entry adds whole rows and that attention or a product reads: "f32"
     * (or NULL), "bf16", or "int8" with one factor for each position and head. sn_state_read then
     * gives, and sn_state_write takes, values of that type. */
    const char *cache;
    /* What must not change the bits of results: NULL, "batch", "chunk" or "batch,chunk". "batch": the
     * number of rows beside a row. "chunk": into how many calls a sequence is cut; implies "batch". They
     * concern attention, mixed heads, recurrences, running sums, and weights of int4 and GGUF's blocks. With
     * "batch" the keys of a head are not split among threads, and one row is multiplied as several are, so
     * that decoding with such weights is slower. With "chunk" each query and each element of a recurrence is
     * computed as in decoding, so that prefill is slower. Other kernels sum in the same order anyway, except
     * sums over a sequence that the model spells out. The back end is native; "chunk" needs level 3 or 4.
     * `sinter check MODEL --invariant=chunk` tests a model, `sinter bench --invariant` measures the cost. */
    const char *invariant;
    /* disk cache; NULL: the user's cache directory; "none" or "": no cache (a folder called none is
     * "./none") */
    const char *cache_dir;
    /* The disk cache keeps the packed weights of a session that was opened from files, if they take
     * at most this many bytes (and at least 64 MiB), and all such files together at most twice as
     * many: the next session maps them. 0: 4 GiB; -1: never. Written by a thread, for which
     * sn_session_free waits. */
    int64_t weights_cache;
    const char *passes; /* NULL; or "-name,-name": disables these passes */
    /* [n_taps] names of tensors to read out, "*": all; they become outputs */
    const char *const *taps;
    int n_taps;
    bool strict_fusion; /* it is an error if an op that should have been fused was not */
    /* With strict_fusion: lines, "FILE:LINE,FILE:LINE", whose operations may be unfused, as with
     * sn_accept_unfused; a name of a file without folders stands for files of this name in all
     * folders. It is an error if nothing in such a line is unfused. NULL: none. */
    const char *accept;
    /* Where several kernels are possible, measure them and take the fastest, unless the disk cache
     * holds a choice for these sizes; the cache must be usable. Adds seconds to compilation.
     * Choices in the cache are also used without this option. */
    bool tune;
    /* Typical sizes for tuning: "B=1,T=256". Dimensions that are not listed default to the
     * geometric mean of their bounds. */
    const char *tune_sizes;
    /* Called with a line for each measured choice, and with "" at the end; NULL: no progress. */
    void (*progress)(void *ctx, const char *line);
    void *progress_ctx;
    /* Called by the thread that compiles or opens a session as its work proceeds: "compile" and "load
     * weights", with the share that is done, 0 to 1; each begins with 0 and ends with 1. NULL: never.
     * Sessions of the program call it too, so the context must outlive their opening. */
    void (*advance)(void *ctx, const char *what, double done);
    void *advance_ctx;
    /* debug check: stop after the kernel that produces the first NaN or unintended infinity (the
     * -inf of masked scores is intended), and report it. Slow. */
    bool check_nan;
    /* debug check: stop before anything is written if an index is out of range (gather, scatter,
     * sn_at, embeddings, targets of cross entropy), and report it. Slow. Without it, out-of-range
     * indices are clamped. */
    bool check_index;
    /* Memory budget in bytes for the tensors between the kernels of an entry (not counting the
     * threads' scratch memory); 0: unlimited. Within the budget, results are recomputed instead of
     * stored: slower, bit-identical. */
    int64_t memory_budget;
    /* sizes for which the budget must hold, "B=12,T=64"; others (NULL: all) count at their upper
     * bounds */
    const char *budget_sizes;
    /* keeps the graph after every pass in the module's memory, for `sinter report` */
    bool keep_stages;
    /* makes no code: the program can be explained, but sn_session_new refuses it. Many times as fast. */
    bool plan_only;
} sn_options;
sn_options sn_options_default(void);

/* Decides o->compute "auto" and says how in note[size]. It becomes "bf16" where a product of bf16 is at
 * least 1.2 times as fast as one of f32, else "f32". targets NULL: on this machine, by o->target; both are
 * measured on one thread in some milliseconds, once: the disk cache keeps them. Otherwise nothing is
 * measured: targets as in sn_emit_options, for other machines; "bf16" if all of them have
 * avx512bf16, and none has amx-bf16. "bf16-unordered" becomes "bf16" unless AMX is at least 1.2 times as fast as f32
 * and bf16 on this machine. Other values of o->compute stay; for "bf16" the note says whether it is not
 * faster than f32 here. note "": there is nothing to say. */
bool sn_choose_compute(sn_options *o, const char *targets, char *note, size_t size, sn_error *err);

/* Compiles all entries. Returns NULL and sets err to the module's first error, an invalid option,
 * or a kernel that could not be generated. o NULL: defaults. */
sn_program *sn_compile(sn_module *m, const sn_options *o, sn_error *err);
void sn_program_free(sn_program *p); /* sessions hold a reference; NULL is allowed */

typedef struct sn_stats {
    int kernels;                  /* distinct kernels in the program */
    int compiled, cached;         /* compiled now; loaded from the disk cache */
    int onednn;                   /* calls of oneDNN primitives */
    int measured;                 /* choices measured by this compilation */
    int tuned;                    /* measured choices in use, including those from the cache */
    int changed;                  /* of these, choices that differ from the cost model's */
    int recompilations;           /* after sn_compile: 0 for all sizes */
    double seconds;               /* total time of sn_compile */
    double passes, codegen, load; /* parts of it; codegen: of all threads together */
    size_t code_bytes;
    const char *note; /* a warning for the user (such as an unusable cache folder), or NULL */
} sn_stats;
sn_stats sn_program_stats(const sn_program *p);
/* For every op of an entry (NULL: all entries): its kernel, what was fused into it, and what
 * prevented further fusion. */
void sn_program_explain(const sn_program *p, const char *entry, FILE *f);
/* What a caller that builds its arguments at run time needs to know, a line each, whose fields are separated by tabs:
 * "dim NAME LEAST LARGEST", "param NAME TYPE [SIZE,SIZE]" and "state ..." of all entries; then for each "entry NAME", and
 * after it "in ..." and "out ..." as params. Sizes are numbers, dimensions, or polynomials of them such as 2*B*T+1. */
void sn_program_signature(const sn_program *p, FILE *f);

/* One kernel call of an entry. Text is never NULL and belongs to the program. */
typedef struct sn_kernel_call {
    /* where in the model: the modules whose parameters it reads, "h.0.attn.c_attn" or
     * "layers.3.attn.q_proj+k_proj+v_proj"; attention by its layer; "": unknown */
    const char *name;
    const char *family; /* what computes it: "gemm", "flash", …, or the name of a library */
    const char *result; /* type and shape: "f32[B,T,768]" */
    const char *fused;  /* its operations: "epilogue: gelu_tanh, add" */
    const char *when;   /* in which iterations of a loop it runs; "": in every one */
    const char *
        notes; /* lines about stored weights, tiles, dropout, gradients; each ends with a newline */
    const char *kernel; /* symbol of the function, or the library and its version */
    const char *file;   /* source line of its operation; "" and 0: unknown */
    int line;
    bool barrier;     /* waits for all threads first */
    const char *loop; /* a loop over rows begins here: "128 of B*T rows at a time, up to call 9" */
    /* 2 for each multiply-add of matrix products and linear recurrences, of attention those of the
     * pairs that its mask shows; 0: other kernels */
    double flops;
    double operations; /* the same, and roughly those of other kernels: for estimates */
    double bytes;      /* read and written: each operand and result once */
    double result_bytes;
    const int *reads; /* [n_reads] earlier calls whose results it reads, ascending */
    int n_reads;
} sn_kernel_call;

/* The kernel calls of an entry, with costs at these sizes: "B=1,T=256"; dimensions that are not
 * listed (NULL: all) have the geometric mean of their bounds. A mask that reads inputs counts as if it
 * showed everything. Returns their number; *list belongs to
 * the program. -1: err (no such entry, sizes out of range, no memory). Works in the module, as
 * sn_program_explain does. */
int sn_program_calls(const sn_program *p, const char *entry, const char *sizes,
                     const sn_kernel_call **list, sn_error *err);
/* What the passes say about an entry (NULL: all entries), one text each, equal ones once: what was not
 * fused and why; with `choices` first where several kernels were possible, which one was taken and
 * why. Returns their number; *list belongs to the program. -1: err (no such entry, no memory). Works
 * in the module. */
int sn_program_remarks(const sn_program *p, const char *entry, bool choices,
                       const char *const **list, sn_error *err);

/* The cost of one run: multiply-adds of all matrix products of an entry, including attention
 * (counted in full, regardless of masks), for inputs of these sizes (data may be NULL). `explain`
 * prints it as a formula in the symbolic dims. Returns -1 and sets err on error. */
struct sn_arg_binding;
int64_t sn_program_macs(const sn_program *p, const char *entry, const struct sn_arg_binding *in,
                        int n_in, sn_error *err);

/* A named buffer. The name of a symbolic dim binds its value (rank 0, i64). This is needed only for
 * dims that no input shape determines: SN_BIND_DIM("P", 17). */
typedef struct sn_arg_binding {
    const char *name;
    sn_dtype dtype;
    int rank;
    const int64_t *shape;
    void *data; /* row-major; input data is not modified */
} sn_arg_binding;
#define SN_BIND(name_, dtype_, data_, ...)                                                         \
    ((sn_arg_binding){.name = (name_),                                                             \
                      .dtype = (dtype_),                                                           \
                      .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),           \
                      .shape = (const int64_t[]){__VA_ARGS__},                                     \
                      .data = (data_)})
#define SN_BIND_DIM(name_, value_)                                                                 \
    ((sn_arg_binding){.name = (name_), .dtype = SN_I64, .data = &(int64_t){value_}})

/* Opens a session: binds every parameter by name, checks the shapes (the error lists all
 * mismatches), allocates the states (zero; pages are not touched until written), and packs or
 * quantises the weights one at a time, dropping the originals where only the packed form is used.
 * SN_ERR_MEMORY, before any work, if the weights need more memory than is available. `w` must
 * outlive the session and is not modified: parameters that an entry assigns are copied. */
sn_session *sn_session_new(sn_program *p, const sn_weights *w, sn_error *err);
/* The same from n arrays, which must outlive the session. */
sn_session *sn_session_new_arrays(sn_program *p, const sn_arg_binding *param, int n, sn_error *err);
void sn_session_free(sn_session *s);  /* NULL is allowed */
void sn_session_reset(sn_session *s); /* sets all states to zero, but not the parameters */
/* Timeline of every kernel on every thread in Chrome's trace-event format (opens in Perfetto).
 * Begin before the runs of interest. The first `events` kernel calls are kept; sn_trace_lost counts
 * the rest. entry NULL: all entries. sn_trace_write returns false, and leaves no file, if writing
 * fails. */
typedef struct sn_trace sn_trace;
sn_trace *sn_trace_begin(sn_session *s, const char *entry, size_t events, sn_error *err);
bool sn_trace_write(const sn_trace *t, const char *path, sn_error *err);
/* The same as a table, the most expensive kernel first, with the time that threads waited at
 * barriers: share of the time, milliseconds, calls, GFLOP/s and GB/s (from the sizes of the runs),
 * where in the model, source line. Works in the
 * module, as sn_program_explain does, and so does sn_trace_write. */
void sn_trace_print(const sn_trace *t, FILE *f);
/* Mean time over all runs of each of the first n calls of the traced entry, in seconds, from the
 * first thread's begin to the last one's end; 0: the call was not traced. seconds: [n]. */
void sn_trace_seconds(const sn_trace *t, double *seconds, int n);
/* What happened on each thread: kernel calls, and waiting for other threads at barriers and at the
 * end of a run. By run, thread and time; seconds from the first event. Returns their number; *list
 * is the caller's, to be freed. -1: out of memory. */
typedef struct sn_trace_event {
    int run, thread;
    int call; /* number of the call in its entry; waiting: -1 */
    double begin, end;
} sn_trace_event;
long sn_trace_events(const sn_trace *t, sn_trace_event **list);
size_t sn_trace_lost(const sn_trace *t);
void sn_trace_end(sn_trace *t);

/* Copies a state out or in; `bytes` must equal its size. */
bool sn_state_read(const sn_session *s, const char *name, void *data, size_t bytes, sn_error *err);
bool sn_state_write(sn_session *s, const char *name, const void *data, size_t bytes, sn_error *err);

/* Runs an entry. Symbolic dims are derived from the input shapes. All sizes are checked before
 * anything is read or written: bounds of dims, negative sizes and starts, ends of slices and
 * updates, indices into an empty axis (SN_ERR_RANGE), tensors of more than 2^48 elements
 * (SN_ERR_MEMORY). Outputs and taps that are not bound are not copied out; bound inputs that the
 * entry does not have are ignored. Outputs must not overlap inputs or each other, nor the weights
 * that the session was opened with (the latter is not checked). Kernels run with round-to-nearest
 * and subnormals flushed to zero; the caller's floating-point environment is restored. */
bool sn_run(sn_session *s, const char *entry, const sn_arg_binding *in, int n_in,
            const sn_arg_binding *out, int n_out, sn_error *err);
/* Shape of an output for the given inputs (data may be NULL). Returns its rank, or -1 and sets err.
 * Checks sizes as sn_run does. */
int sn_output_shape(const sn_program *p, const char *entry, const sn_arg_binding *in, int n_in,
                    const char *output, int64_t shape[8], sn_error *err);

/* ---- ahead of time ---- */

enum {
    SN_EMIT_OBJECT = 1,
    SN_EMIT_ARCHIVE = 2,
    SN_EMIT_ASSEMBLY = 4,
    SN_EMIT_IR = 8,
    SN_EMIT_LINES = 16
};

/* What the pixels of a model's images are: (byte * factor - mean) / std by channel. */
typedef struct sn_emit_pixels {
    int64_t side, channels;
    double factor, mean[3], std[3];
    const char *resize; /* how pictures get their size, in words */
    bool normalises;    /* the model does it: pixels are 0 .. 1 */
} sn_emit_pixels;

typedef struct sn_emit_options {
    /* C identifier: prefix of all symbols and the name of the files; NULL: the module's name */
    const char *name;
    const char *dir; /* output folder, created if missing; NULL: the current one */
    /* NULL: this CPU. Or a comma-separated list for one architecture,
     * "x86-64-v2,x86-64-v4,+avx512vnni,l2=2M": the program selects a variant at start */
    const char *targets;
    /* SN_EMIT_OBJECT for NAME.o, SN_EMIT_ARCHIVE for NAME.a; with SN_EMIT_ASSEMBLY NAME.s and with
     * SN_EMIT_IR NAME.ll (LLVM's IR) list the code of the object, with comments; not with embed_weights. SN_EMIT_LINES
     * tells debuggers (DWARF) from which line of the model's source each kernel comes */
    int kinds;
    const char *threads; /* "openmp" (or NULL), "none"; for wasm32 "workers" */
    /* adds the table through which the main program of libsinter_program calls the entries */
    bool program;
    /* Describes an input, output or dimension in a comment of NAME.h; may return NULL. NULL: no
     * comments. */
    const char *(*describe)(const char *entry, const char *argument);
    int64_t source_vocab; /* encoder-decoders: vocabulary size of the source; 0: none */
    /* constants in NAME.h: vocabulary size, maximum sequence length; 0: omitted */
    int64_t vocab, context;
    int32_t bos;        /* the token that starts a text; -1 (the default): none */
    const int32_t *eos; /* [n_eos] tokens that end a text, at most 16 */
    int n_eos;
    bool no_bos;                  /* tells the main program not to start texts with BOS */
    const sn_emit_pixels *pixels; /* constants in NAME.h; NULL: not known, or no images */
    /* [n_label] class names for NAME.h and the main program: one line each, at most 255 bytes; NULL:
     * none */
    const char *const *label;
    int n_label;
    /* [n_file] files that are put into the object, such as a tokenizer: NAME_files() lists them */
    const struct sn_file_inside *file;
    int n_file;
    bool embed_weights; /* embeds the weights in the object instead of writing NAME.weights */
    /* uses level, weights, passes, cache_dir; ignores target; backend must not be onednn; tune and
     * checks must not be set */
    sn_options compile;
} sn_emit_options;
sn_emit_options sn_emit_options_default(void);

/* Writes the session's program as NAME.o and/or NAME.a, NAME.h with one C function per entry, and
 * NAME.weights: the session's current parameters in packed form, to be mapped into memory. The
 * object needs libc, libm and (unless threads is "none") an OpenMP runtime; neither LLVM nor
 * Sinter. For the same target its results are bit-identical to this process's. The session's module
 * must still exist.
 * Target wasm32: NAME.wasm.a, whose members wasm-ld links to a module (all of them: --whole-archive), and
 * NAME.weights; kinds do not matter. With threads "workers" the module imports its memory, which threads share, as
 * env.memory (wasm-ld --import-memory --shared-memory); tools/artefact/web/workers.js shows how they start. */
bool sn_emit(sn_session *s, const sn_emit_options *o, sn_error *err);

/* ---- gradient checking ---- */

/* Checks sn_grad(loss, n, wrt): for two random directions per tensor, compares the directional
 * derivative with the central difference of the loss. Everything runs as compiled code in f64, on a
 * copy of the graph in which every float is f64. A NaN in a gradient counts as infinite error.
 * Attention with a score callback is also checked at fusion level 0, which skips nothing that a
 * mask hides. value: inputs, parameters, states and dimensions (SN_BIND_DIM) of the loss, in their
 * own types; missing float tensors are filled with random values. *worst: the largest error.
 * Returns false with the reason if nothing can be compared: an error in the module, or an integer
 * input without a value. */
typedef struct sn_grad_error {
    /* |derivative - difference| / gradient norm: about 1e-8 when correct; of up to three steps the
     * one that agrees best. A gradient below 1e-6 of what others change in the loss counts as 0 */
    double error;
    double slope, difference; /* along the direction with the largest error */
    int index;                /* index into wrt; -1: n is 0 */
} sn_grad_error;
bool sn_check_grad(sn_tensor loss, int n, const sn_tensor *wrt, const sn_arg_binding *value,
                   int n_value, sn_grad_error *worst, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
