/* explain.h: views of the kernel calls of a program, for `sinter explain`: a table with equal layers
 * folded, JSON, a Graphviz graph, and a comparison of two fusion levels. */
#ifndef SN_EXPLAIN_H
#define SN_EXPLAIN_H

#include "frontend/sinter.h"
#include "tools/inspect/inputs.h"

#include <cjson/cJSON.h>

/* KV tiles of an attention by what its kernel does with them; all 0: of other kernels, or if `why`
 * says why they are not known. */
typedef struct explain_tiles {
    double skipped, partial, full;
    char why[200];
} explain_tiles;

/* `times` runs of `period` items, alike except for the number of the layer. */
typedef struct inspect_fold {
    int first, period, times;
} inspect_fold;

/* Finds disjoint folds in a list of n items, in order; fold has room for n. alike: whether items i
 * and j are the same but for the layer. Returns their number. */
int inspect_folds_find(int n, int max_period, bool (*alike)(const void *ctx, int i, int j),
                       const void *ctx, inspect_fold *fold);

typedef struct explain_entry {
    const char *name;
    const char *given;          /* sizes, as the user gave them; NULL: none */
    char sizes[LOOK_SIZES];     /* for costs and times */
    const sn_kernel_call *call; /* [n], the program's */
    int n;
    char **folded; /* [n] of calls in the first run of a fold: name with numbers that vary as "*" */
    inspect_fold *fold;
    int n_fold;
    explain_tiles *tiles; /* [n]; NULL: not asked for */
    char tile_sizes[LOOK_SIZES];
    double *seconds,
        *least; /* [n] measured time of each call: median and minimum; NULL: not measured */
    double run_seconds, run_least; /* the same of the whole entry */
    double peak;                   /* GFLOP/s of multiply-adds, probed before and after the runs */
    double others, stolen;         /* how busy the machine was, see bench/noise.h */
    double flops, bytes;           /* of all calls */
    int pairs;                     /* explain_pairs; 0: not counted */
} explain_entry;

/* Attentions of an entry, and softmaxes whose result reaches a product through operations that move, choose or cast
 * elements, before the module is compiled; a softmax may be spelled out as exponentials and the division by their sum,
 * also behind the product. -1: out of memory. */
int explain_pairs(sn_module *m, const sn_entry *e);
/* How many of e->pairs have become kernels of attention. */
int explain_fused(const explain_entry *e);

/* Fills e for an entry of p. False: err. Free with explain_close in either case. */
bool explain_open(explain_entry *e, const sn_program *p, const char *name, const char *sizes,
                  sn_error *err);
void explain_close(explain_entry *e);
/* Whether calls i and j of ctx, an explain_entry, are the same except for numbers in names. */
bool explain_alike(const void *ctx, int i, int j);
/* Finds the folds: calls [i, i + n) are the same as [i + n, i + 2n) except for numbers in names. */
bool explain_find_folds(explain_entry *e, sn_error *err);
/* Whether call i repeats one of a layer before it. */
bool explain_repeats(const explain_entry *e, int i);
/* The fold that begins at call i; NULL: none. */
const inspect_fold *explain_fold_at(const explain_entry *e, int i);

/* Fills e->tiles and e->tile_sizes for the calls that are shown, after explain_find_folds: the
 * kernel's own analysis of the mask, on made-up inputs. */
bool explain_find_tiles(explain_entry *e, const sn_program *p, sn_error *err);

/* The estimated time of a call, in the time of a byte: as if it were bound by either its operations or its bytes,
 * with 16 operations in the time of a byte. It ranks calls on a CPU with wide vectors; --time measures. */
double explain_estimate(const sn_kernel_call *c);

/* Share of call i in the entry's time, 0 to 1: measured, or estimated from operations and bytes. */
double explain_share(const explain_entry *e, int i);

/* Whether the queries of a call choose their keys in a run: its operations are those of all pairs. */
bool explain_chooses(const sn_kernel_call *c);

/* Whether a measured call in f32 is more than 2 % faster than the f32 peak allows: the probe was
 * interrupted. Products of integers and of bf16 may be, and choices. */
bool explain_above_peak(const explain_entry *e, int i);

/* by_cost: the most expensive calls first, equal layers as one row. */
void explain_table(FILE *f, const explain_entry *e, bool by_cost);
/* One JSON document for n entries and the remarks. False: out of memory. */
bool explain_json(FILE *f, const explain_entry *e, int n, const char *const *remark, int n_remark);
/* An entry as in that document: an object that the caller owns; NULL: out of memory. */
cJSON *explain_entry_json(const explain_entry *e);
/* Calls as boxes, an edge where one reads what another wrote; folded layers are one cluster. */
void explain_dot(FILE *f, const explain_entry *e);
/* Why the tensor `text` (a name, a place in the model, a call's number, FILE:LINE) is in memory, in each
 * of n entries that have it; m: their module. False: err; an unknown name gets the nearest one. */
bool explain_why(FILE *f, const explain_entry *e, int n, const sn_program *p, sn_module *m,
                 const char *text, sn_error *err);
/* Two programs of one model, at two levels: calls, barriers, operations, bytes. */
void explain_diff(FILE *f, const explain_entry *a, const explain_entry *b, const char *name_a,
                  const char *name_b);

#endif
