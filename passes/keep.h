/* keep.h: matrices that need more bits than the options of the whole program say. */
#ifndef SN_KEEP_PASS_H
#define SN_KEEP_PASS_H

#include "passes/passes.h"

/* The storage of w: that of the option `weights`, or a wider one if the list `keep` names a parameter
 * that w is made of. "f32": as it is. */
const char *sn_keep_weights(const sn_passes *p, const sn_node *w);
/* Whether the list says that products with w are computed in f32. */
bool sn_keep_products(const sn_passes *p, const sn_node *w);

#endif
