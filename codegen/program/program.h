/* program.h: the inside of a compiled program, shared by the files of codegen/program/ and codegen/aot/. */
#ifndef SN_PROGRAM_H
#define SN_PROGRAM_H

#include "codegen/entry.h"
#include "codegen/jit/jit.h"
#include "ir/compile.h"
#include "ir/lookups.h"
#include "runtime/threads.h"

#include <stdatomic.h>

typedef int32_t sn_entry_fn(const sn_call *call);
typedef int64_t sn_workspace_fn(const int64_t *symbol, int64_t threads);

/* What the elements of an input must be: indices of a table, or what the input's {bounds} say. Floats
 * are single numbers with a constant `low`, and `open`. */
typedef struct sn_element_limit {
    const char *input;
    sn_dim low, high;
    bool open; /* no finite element is too large */
} sn_element_limit;

/* What must hold of the sizes of a run and does not follow from the ranges of the symbols. */
typedef enum sn_range_kind {
    SN_RANGE_SIZE,  /* 0 <= high: an axis of a tensor */
    SN_RANGE_START, /* 0 <= high: where a slice, an update or a padding begins */
    SN_RANGE_END,   /* low <= high: where a slice or an update ends, the axis */
    SN_RANGE_AXIS,  /* 1 <= high, or no index: an axis that indices select from */
    SN_RANGE_COUNT  /* the node has at most SN_MAX_ELEMENTS elements */
} sn_range_kind;

typedef struct sn_range_check {
    sn_range_kind kind;
    sn_dim low, high;
    const sn_node *node; /* the operation */
    int rank;            /* AXIS: of the indices. COUNT: number of factors */
    const sn_dim *shape; /* [rank] */
} sn_range_check;

/* check_index: a look-up, and the companion entry's outputs that hold the extremes of its index. */
typedef struct sn_index_lookup {
    sn_lookup of;
    const char *least, *greatest;
} sn_index_lookup;

typedef struct sn_compiled_entry {
    sn_entry_code code;
    sn_entry_fn *run;
    sn_workspace_fn *workspace;
    sn_element_limit *limit;
    int n_limit;
    sn_range_check *range;
    int n_range;
    sn_index_lookup *lookup; /* [n_lookup] that the companion, entry number `companion`, computes */
    int n_lookup, companion; /* 0: no companion */
} sn_compiled_entry;

/* A parameter or state that sessions give memory to, each name once. */
typedef struct sn_leaf {
    const char *name;
    const sn_node *node; /* its type */
    bool state;
    bool stays; /* not only preparations read it, which come last */
} sn_leaf;

struct sn_program;
/* The most bytes of parameters, of those that ranks divide, that an entry has gathered at a time. */
int64_t sn_program_gathered(const struct sn_program *p);

/* Complete when sn_compile returns: sessions and runs only read it and its module, on any number of
 * threads. */
struct sn_program {
    sn_module *m;      /* the program is one of its owners */
    atomic_int owners; /* the user and every session; the last one frees */
    sn_passes passes;
    sn_target target;
    sn_jit *jit;
    sn_compiled_entry *entry; /* arena memory; those that prepare weights come last */
    int n_entry;
    int threads;
    const sn_node *
        *trained; /* [n_trained] parameters that an entry assigns: states when compiled */
    int n_trained;
    sn_leaf *leaf; /* [n_leaf] parameters first; arena memory */
    int n_leaf;
    const char *cache_dir; /* of the disk cache, as in sn_options; arena memory */
    int64_t packed_limit;  /* bytes of packed weights that are kept there; 0: none */
    void (*advance)(void *ctx, const char *what, double done); /* of sn_options; or NULL */
    void *advance_ctx;
    sn_stats stats;
};

/* Where a program's code goes instead of into this process: every object once, kernels before the
 * entry that calls them. */
typedef struct sn_object_sink {
    bool (*add)(void *ctx, const sn_object *o, sn_error *err);
    void *ctx;
    bool bitcode; /* objects are bitcode, whatever the system */
} sn_object_sink;

/* sn_compile, for any target if there is a sink; then entries have no addresses and no session can
 * be made. forced: answers to all choices; NULL: those that are remembered. */
struct sn_chooser;
sn_program *sn_program_make(sn_module *m, const sn_options *o, const sn_object_sink *sink,
                            const struct sn_chooser *forced, sn_error *err);

/* options.c: whether every option may be, and all of them together; for sn_emit. False: err. */
bool sn_options_check(const sn_options *o, sn_error *err);
bool sn_options_check_ahead(const sn_options *o, sn_error *err);
/* Whether `compute` asks for products of integers. */
bool sn_computes_int8(const sn_options *o);
bool sn_computes_bf16(const sn_options *o); /* "bf16" or "bf16-unordered" */
bool sn_computes_unordered(const sn_options *o);
/* o->invariant as a sum of SN_INVARIANT_; -1: it is not one. */
int sn_options_invariant(const sn_options *o);

/* Does the entry prepare weights when a session is made? */
bool sn_compiled_prepares(const sn_compiled_entry *c);
sn_compiled_entry *sn_program_entry(const sn_program *p, const char *name);

/* The binding with this name; NULL: there is none. */
const sn_arg_binding *sn_find_arg(const sn_arg_binding *list, int n, const char *name);
/* codegen/program/bindings.c. A list that a caller gave: names, types, ranks, shapes, data if with_data,
 * each name once. `what`: "input", for messages. False: err. */
bool sn_bindings_check(const sn_arg_binding *list, int n, const char *what, bool with_data,
                       sn_error *err);
/* No output shares memory with an input or another output. */
bool sn_bindings_check_overlap(const sn_arg_binding *in, int n_in, const sn_arg_binding *out,
                               int n_out, sn_error *err);

/* One more owner, who calls sn_program_free too; any thread. The same for a session. */
sn_program *sn_program_retain(sn_program *p);
sn_session *sn_session_retain(sn_session *s);

/* codegen/program/check_index.c: adds e's companion to the module, unless e looks nothing up. Returns the
 * number of lookups, innermost first. */
int sn_check_index_add(sn_module *m, sn_entry *e, sn_index_lookup **lookup);
/* extremes: the least and the greatest index. False: err names the one that is outside. */
bool sn_check_index_report(const sn_module *m, const char *entry, const sn_index_lookup *l,
                           const int64_t *symbol, const int64_t extremes[2], sn_error *err);

/* codegen/program/ranges.c: what e's sizes must fulfil at run time, each condition once, in arena memory.
 * Returns their number. */
int sn_ranges_find(sn_module *m, const sn_entry *e, sn_range_check **check);
/* False: err tells the operation, its line and the sizes. symbol: [sn_symbol_count]. */
bool sn_range_holds(const sn_range_check *k, const char *entry, const int64_t *symbol,
                    sn_error *err);
/* The dims that the condition depends on; returns their number. */
int sn_range_dims(const sn_range_check *k, sn_dim dim[2 + SN_MAX_RANK]);
/* In words that the condition does not hold: operation, line, sizes. symbol: NULL if unknown. */
void sn_range_print(const sn_range_check *k, const int64_t *symbol, char *buf, size_t size);
/* Generated code: i1, true if the condition does not hold. symbols: pointer to their values. */
em_val sn_range_emit(em *e, const sn_range_check *k, em_val symbols);

/* The parameter of that name, if an entry assigns it; NULL otherwise. */
const sn_node *sn_program_trained(const sn_program *p, const char *name);

/* A session of p, another program of the same module, with the parameters that `like` has now. Both
 * read the same file or arrays, which must outlive them. */
sn_session *sn_session_new_like(sn_program *p, const sn_session *like, sn_error *err);

/* Memory that a session holds for a parameter (as bound, or prepared) or a state. NULL: none of
 * that name, or a parameter that was only needed to prepare others. */
const void *sn_session_memory(const sn_session *s, const char *name);
size_t sn_session_bytes(const sn_session *s, const char *name); /* of it */

/* Which share of a divided parameter or state a session has; ranks 0: all of it. */
struct sn_share;
struct sn_share sn_session_share(const sn_session *s, const char *name);

/* Writes the value of a parameter as it was given to the session, n elements, as f32. False: there is
 * none, or it has another size, or is not of a float type. */
bool sn_session_parameter(const sn_session *s, const char *name, float *out, int64_t n);

/* Number i (from 0) of the parameters that were prepared (packed, widened, quantised) when the
 * session was made, in memory of its own, and its bytes. NULL: no more. */
const void *sn_session_prepared(const sn_session *s, int i, size_t *bytes);

/* The entry that is running, or else the one that ran last. */
const sn_compiled_entry *sn_session_running(const sn_session *s);
const sn_program *sn_session_program(const sn_session *s);
/* The file of its parameters; NULL: they are arrays. */
const sn_weights *sn_session_weights(const sn_session *s);

/* A session's kernels report to `profile` from now on; NULL: no more. */
void sn_session_set_profile(sn_session *s, sn_profile *profile);
sn_profile *sn_session_profile(const sn_session *s);

/* Bytes of working memory that the session's runs have needed so far (temporaries, scratch of all
 * threads), without weights, states, inputs and outputs. */
size_t sn_session_workspace(const sn_session *s);

/* codegen/program/trace.c: events of a trace as lines of JSON, joined by commas, as those of process number
 * `process`; `later`: seconds that are added to all times. False: err. */
bool sn_trace_print_process(const sn_trace *t, FILE *f, int process, const char *name, double later,
                            sn_error *err);
/* When the first event began, by sn_clock; infinity: there is none. */
double sn_trace_first(const sn_trace *t);

/* Collectives of a session, whoever carries the bytes: `start` begins an operation, for which `wait`
 * then waits; several may be under way. An operation that a run may leave is waited for at its end
 * (SN_WAIT_LEAVE), which may do nothing, and in later runs before its result is used (SN_WAIT_LEFT), whether
 * it is still under way or not. NULL in the session: an entry with collectives fails. */
typedef struct sn_collective {
    const sn_node *node; /* tells several apart; its attributes say what is asked for */
    const void *in;      /* contiguous, as `out`; in may equal out */
    void *out;
    size_t n, n_out; /* elements */
    sn_wait kind;    /* of a wait */
} sn_collective;
typedef struct sn_collectives {
    bool (*start)(struct sn_collectives *self, const sn_collective *c, sn_error *err);
    bool (*wait)(struct sn_collectives *self, const sn_collective *c, sn_error *err);
} sn_collectives;
/* Borrowed; must outlive the session's runs. */
void sn_session_set_collectives(sn_session *s, sn_collectives *c);

/* The primitive behind an extern step: sn_call.step with the session as host. */
int32_t sn_host_step(void *host, int64_t step, void *const *buf, const int64_t *dim);

#endif
