/* choice.h: where one result has several right kernels: own code or a primitive, one kernel or its
 * parts. expand and fuse ask here; the answer is the cost model's, or that of a chooser who has
 * measured. One answer for equal structures. */
#ifndef SN_CHOICE_H
#define SN_CHOICE_H

#include "passes/passes.h"

typedef enum sn_answer {
    SN_CHOOSE_FUSED,    /* own code, one kernel for all that can be in it */
    SN_CHOOSE_APART,    /* own code: the product alone, or attention by its parts */
    SN_CHOOSE_PRIMITIVE /* oneDNN's */
} sn_answer;
extern const char *const sn_answer_names[3];

/* A structure with more than one right kernel. */
typedef struct sn_question {
    const sn_node *node; /* the product or composite on operands of its own: equal for equal
                            structures, its hash is an identity */
    unsigned allowed;    /* bits of answers */
    sn_answer model;     /* the cost model's answer, */
    const char *why;     /* and its reason; a chooser may replace both */
    sn_answer answer;
    /* The first place of it in the module: results, and the nodes that belong to it. */
    int n_out, n_member;
    sn_node *const *out, *const *member;
} sn_question;

/* Somebody who knows better than the model: sets answer and why if so. */
typedef struct sn_chooser {
    void (*ask)(void *ctx, sn_question *q);
    void *ctx;
} sn_chooser;

/* For a product (dot, or the gemm node made of it) and for a composite. */
sn_answer sn_choose(sn_passes *p, const sn_node *n);
/* Tells where the question of this dot is met: the results and members of its group. */
void sn_choice_sample(sn_passes *p, const sn_node *dot, int n_out, sn_node *const *out,
                      int n_member, sn_node *const *member);

#endif
