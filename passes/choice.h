/* choice.h: which of several correct kernels computes a product or composite: the native one with
 * all that can be fused into it, native ones unfused, or a library's. expand and fuse ask here. The
 * cost model chooses, or a chooser that has measured. Equal structures have one choice. */
#ifndef SN_CHOICE_H
#define SN_CHOICE_H

#include "passes/passes.h"

typedef enum sn_candidate {
    SN_CHOOSE_FUSED,   /* native, one kernel for all that it can hold */
    SN_CHOOSE_UNFUSED, /* native: the product alone, or attention as several kernels */
    SN_CHOOSE_LIBRARY  /* a library's */
} sn_candidate;
extern const char *const sn_candidate_names[3];

/* A structure that several kernels can compute. */
typedef struct sn_choice {
    const sn_node *node; /* the product or composite on placeholders: equal for equal structures,
                            its hash is an identity */
    unsigned candidates; /* bits of sn_candidate */
    sn_candidate model;  /* what the cost model chooses, */
    const char *why;     /* and its reason; a chooser may replace both */
    sn_candidate chosen;
    uint64_t entries; /* sn_entries_of all such nodes */
    /* Its first occurrence in the module: results, and the nodes that belong to it. */
    int n_out, n_member;
    sn_node *const *out, *const *member;
} sn_choice;

/* Overrides the model by measurements: sets `chosen` and `why` if it knows. */
typedef struct sn_chooser {
    void (*ask)(void *ctx, sn_choice *q);
    void *ctx;
} sn_chooser;

/* For a product (dot, or the gemm node made of it) and for a composite. */
sn_candidate sn_choose(sn_passes *p, const sn_node *n);
/* Records where this dot occurs: the results and members of its group. */
void sn_choice_sample(sn_passes *p, const sn_node *dot, int n_out, sn_node *const *out,
                      int n_member, sn_node *const *member);

#endif
