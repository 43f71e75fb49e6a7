/* visible.h: how much of an attention its mask shows, for counts of operations. */
#ifndef SN_PROGRAM_VISIBLE_H
#define SN_PROGRAM_VISIBLE_H

#include "codegen/program/program.h"

/* What a mask may read: inputs with data, and the memory of a session (NULL: there is none). */
typedef struct sn_mask_inputs {
    sn_module *m;
    const sn_session *s;
    const sn_arg_binding *in;
    int n_in;
    const int64_t *symbol;
} sn_mask_inputs;

enum {
    SN_MASK_POSITIONS = 4
}; /* arguments of a mask's region before its captured tensors: b, h, q, k */

/* Whether the region reads its argument number `arg`. */
bool sn_mask_reads(sn_module *m, const sn_region *mask, int arg);
/* Binds the leaves below n. NULL, or why the evaluator cannot compute n soon. */
const char *sn_mask_bind(const sn_mask_inputs *q, sn_eval *ev, sn_node *n);

/* The latest mask that reads positions only: layers that have the same one share its count. */
typedef struct sn_visible_cache {
    const char *mask;
    int64_t size[4];
    double share;
} sn_visible_cache;

/* The share of pairs of a query and a key that the mask of n shows, 0 to 1; n: an attention or its
 * gradient, as a composite or a kernel's node. 1: n has no mask, or its mask reads what is not known
 * before a run. Up to 2^20 pairs are counted; of more, rows at equal distances from both ends. Adds nodes to the module. */
double sn_visible_share(const sn_mask_inputs *q, const sn_node *n, sn_visible_cache *cache);

#endif
