/* simplify.h: the simplification rules, for the pass and for passes that build nodes in simplified
 * form. */
#ifndef SN_SIMPLIFY_H
#define SN_SIMPLIFY_H

#include "ir/ir.h"
#include "passes/kernels/levels.h"

/* A rule: the replacement with the same dtype and shape, or NULL. `op` = SN_OP_COUNT: any op. */
typedef struct sn_simplification {
    sn_op op;
    sn_node *(*rule)(sn_node *n);
} sn_simplification;
extern const sn_simplification sn_simplify_arith[], sn_simplify_quotient[], sn_simplify_mask[],
    sn_simplify_move[], sn_simplify_dot[]; /* each list ends with a NULL rule */

/* The node after all rules of the level; its operands are not changed. */
sn_node *sn_simplify_node(sn_node *n, int level);
/* The region with its results simplified until nothing changes; same arguments. */
const sn_region *sn_simplify_region(sn_module *m, const sn_region *r, int level);
/* Attention or a scan with such regions; any other node as it is. */
sn_node *sn_simplify_regions(sn_node *n, int level);

#endif
