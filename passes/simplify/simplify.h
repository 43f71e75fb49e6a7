/* simplify.h: the simplification rules, for the pass and for passes that build nodes in simplified
 * form. */
#ifndef SN_SIMPLIFY_H
#define SN_SIMPLIFY_H

#include "passes/rules/rules.h"

extern sn_rules sn_simplify_rules; /* rules.def; read once a pass has run */
#define CODE(name, ...) sn_node *sn_simplify_##name(sn_node *n);
#include "passes/simplify/rules.def"

/* The node after all rules of the level; its operands are not changed. */
sn_node *sn_simplify_node(sn_node *n, int level);
/* The region with its results simplified until nothing changes; same arguments. */
const sn_region *sn_simplify_region(sn_module *m, const sn_region *r, int level);
/* Attention or a scan with such regions; any other node as it is. */
sn_node *sn_simplify_regions(sn_node *n, int level);

#endif
