/* graph_util.h: small questions about nodes that several passes ask. */
#ifndef SN_GRAPH_UTIL_H
#define SN_GRAPH_UTIL_H

#include "ir/ir.h"

bool sn_shapes_equal(const sn_node *a, const sn_node *b);
bool sn_is_view(const sn_node *n); /* renames elements of its first operand, or selects a result */
bool sn_is_leaf(
    const sn_node *n); /* input, param, state, const, iota, dim_value: nothing to compute first */
bool sn_contains_op(sn_module *m, sn_node *root,
                    sn_op op); /* in the decomposition of root, down to root's operands */
bool sn_reduces(const sn_node *n, bool *last_axis); /* a reduce_*; over the last axis only? */
bool sn_reads_far(const sn_node *n, int i);         /* operand i anywhere: it has to be in memory */
bool sn_static_shape(const sn_node *n);             /* every size is a number */
/* Made of parameters and constants only, and of at least one parameter. */
bool sn_from_params_only(const sn_node *n);
/* Made of parameters and constants only: what is done to it costs nothing at run time. */
bool sn_is_fixed(const sn_node *n);
/* Replaces every root of the entry (outputs, assignments, taps) by f(ctx, root). */
void sn_entry_map(sn_entry *e, sn_node *(*f)(void *, sn_node *), void *ctx);
/* Every root of the module: outputs and assignments of all entries, which are the first *n_live,
 * then taps. root NULL: only counts; store: writes them back. Returns their number. */
int sn_module_roots(sn_module *m, sn_node **root, int *n_live, bool store);

#endif
