/* passes.h: from the user's graph to kernels: graph to graph, then graph to a plan (plan.h). A pass
 * is `int sn_pass_NAME(sn_passes *p)`: it works on p->m, returns the number of rewrites, and
 * documents what it requires, keeps and breaks. passes.def defines the order. */
#ifndef SN_PASSES_H
#define SN_PASSES_H

#include "ir/compile.h"
#include "ir/ir.h"
#include "passes/stages.h"
#include "runtime/weights.h"

typedef struct sn_pass_options {
    int level;                        /* fusion level (kernels/levels.h) */
    const char *backend;              /* "auto", "native" or the library's name */
    const struct sn_backend *library; /* backend.h; NULL: native code only */
    const char *off;  /* names of passes to skip, separated by '+' or ','; NULL: none */
    bool verify;      /* what each pass makes, and all at the end */
    const char *only; /* run exactly these passes (for `sinter opt`), same separators; NULL: all of
                         the level */
    const char *dump; /* folder for the text after every pass that changed something; NULL: none */
    const char *weights; /* "bf16", "int8", "int4", "stored"; NULL: f32 */
    const sn_keep *keep; /* [n_keep] matrices that need more bits */
    int n_keep;
    const char *accept; /* sn_options.accept */
    bool int8_compute;  /* linear maps of int8 weights are products of integers */
    bool bf16_compute;  /* products of f32 are computed in bf16 */
    int invariant;      /* sum of SN_INVARIANT_BATCH, SN_INVARIANT_CHUNK: sn_options.invariant */
    const char *cache;  /* of keys and values: "bf16", "int8"; NULL: as declared */
    /* "bf16": type in which training stores activations for its backward part; NULL: f32 */
    const char *precision;
    bool history;             /* keeps the graph after every pass that changed it, for reports */
    bool constant_params;     /* parameters do not change between calls: hoist what depends on
                           * them only */
    const sn_weights *source; /* the file that parameters will come from; NULL: unknown */
    const struct sn_chooser *chooser; /* choice.h; NULL: the cost model alone */
} sn_pass_options;

/* Entries that prepare weights, and the parameters that they produce: SN_PREPARE ".0", SN_PREPARED
 * "0" and so on (hoist.c). */
#define SN_PREPARE "@prepare"
#define SN_PREPARED "@prepared."
/* What precedes the name of a parameter that is read in the type of its file (stored.c). */
#define SN_STORED "@stored."
/* The name without it. */
const char *sn_stored_param_tensor(const char *name);

/* States with the factors of another state's rows: SN_SCALES "NAME" (cache.c). */
#define SN_SCALES "@scales."

/* Parameters that are a part of a quantised tensor of the file: SN_BLOCKS "0.NAME", where 0 is a
 * sn_weight_part (file_blocks.c). */
#define SN_BLOCKS "@blocks."
/* The tensor that parameter `name` is a part of; NULL: it is none. */
const char *sn_block_param_tensor(const char *name, sn_weight_part *part);

/* A remark for `explain`: what became of a node, or why something was not fused. */
typedef struct sn_remark {
    const char *pass;
    const sn_node *node; /* may be dead by now; only its location and op are used */
    bool missed;         /* true: an expected fusion did not happen */
    const char *text;
    uint64_t entries; /* sn_entries_of the node */
} sn_remark;

/* The graph before the passes, and after each one that changed it. */
typedef struct sn_pass_record {
    const struct sn_pass_info *pass; /* NULL: before the passes */
    int rewrites;
    sn_entries *graph;
    int n_lineage; /* sn_lineage_list has this many when the pass ends */
} sn_pass_record;

typedef struct sn_passes {
    sn_module *m;
    sn_pass_options o;
    sn_remark *remark; /* [n_remark], arena memory */
    int n_remark, cap_remark;
    uint64_t
        *entries_of; /* [n_entries_of] by node id, for sn_entries_of; n_entries_of 0: unknown */
    uint32_t n_entries_of;
    /* [n_origin] by node id: 1 + id of the composite that the node came from; 0: none (set by
     * expand) */
    uint32_t *origin;
    uint32_t n_origin;
    struct sn_choice **choice, **choice_of; /* choice.h: [n_choice]; by node id, NULL: not asked */
    int n_choice, cap_choice, cap_choice_of;
    sn_pass_record *record; /* [n_record] with o.history; arena memory */
    int n_record, cap_record;
} sn_passes;

typedef struct sn_pass_info {
    sn_stage_id stage; /* name, level and reason: sn_stages */
    bool fixpoint;
    int (*run)(sn_passes *);
} sn_pass_info;
extern const sn_pass_info sn_pass_table[];
extern const int sn_pass_count;

/* Runs the pipeline on every entry. False: sn_module_error has the reason. */
bool sn_passes_run(sn_passes *p, sn_module *m, const sn_pass_options *o);

void sn_remark_add(sn_passes *p, const char *pass, const sn_node *n, bool missed, const char *fmt,
                   ...) __attribute__((format(printf, 5, 6)));
/* Whether it is a missed fusion that the user accepts. */
bool sn_remark_is_accepted(const sn_passes *p, const sn_remark *r);
/* The level whose rules apply: all, where the passes are named. */
static inline int sn_passes_level(const sn_passes *p) {
    return p->o.only ? SN_LEVEL_HIGHEST : p->o.level;
}
/* Adds notes on what is accepted in vain by the model. False and a failed module: by sn_pass_options.accept. */
bool sn_remarks_settle(sn_passes *p);
/* The `dequantise` that x was expanded from, up to the shape of either; NULL: none. */
const sn_node *sn_dequantised(const sn_passes *p, const sn_node *x);

/* Bit i: entry i computes n, or may. The last bit stands for all entries from there on. */
uint64_t sn_entries_of(sn_passes *p, const sn_node *n);
/* The same bits for the entry of this number. */
uint64_t sn_entry_bit(int entry);

/* The loss raised to ops with the flag RAISE_LOSS, whose gradient has a kernel; the loss itself if
 * there are none in it. Keeps values. Intermediate nodes may disappear, so only gradients
 * with respect to leaves may be taken of the result. Records the replacements (sn_replace). */
sn_node *sn_raise_loss(sn_node *loss);

/* Whether quantise.c supports this storage of weights. */
bool sn_quantise_knows(const char *name);
/* Whether a matrix may be kept in this storage (keep.c). */
bool sn_keep_knows(const char *weights);
/* Whether store_bf16.c supports this precision. */
bool sn_narrow_knows(const char *name);

#define PASS(name, ...) int sn_pass_##name(sn_passes *p);
#define PART(...)
#include "passes/passes.def"
#undef PART
#undef PASS

#endif
