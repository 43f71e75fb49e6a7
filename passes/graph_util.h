/* graph_util.h: predicates on nodes that several passes use. */
#ifndef SN_GRAPH_UTIL_H
#define SN_GRAPH_UTIL_H

#include "ir/ir.h"

/* n with the operands that to[] has for its own, by id. */
sn_node *sn_node_from(sn_node *n, sn_node *const *to);
/* sn_rewrite that replaces one node. */
int sn_rewrite_node(sn_module *m, int n_root, sn_node **root, sn_node *from, sn_node *to);
int sn_by_depth(const void *a, const void *b); /* compares nodes in lists for qsort */
/* moves elements of its first operand only, or selects a result */
bool sn_is_view(const sn_node *n);
/* a transpose or a reshape: a view of all elements, each once */
bool sn_moves(const sn_node *n);
/* The first node from n downwards that is not a view, does not move, or is not a reshape. */
sn_node *sn_below_views(const sn_node *n);
sn_node *sn_below_moves(const sn_node *n);
sn_node *sn_below_reshapes(const sn_node *n);
/* input, param, state, const, iota, dim_value: nothing has to be computed before */
bool sn_is_leaf(const sn_node *n);
/* Whether the decomposition of root, above root's operands, contains the op. */
bool sn_contains_op(sn_module *m, sn_node *root, sn_op op);
bool sn_reduces(const sn_node *n);      /* a reduce_* */
bool sn_reduces_rows(const sn_node *n); /* over the last axis only */
/* random access to operand i, which must be in memory */
bool sn_reads_far(const sn_node *n, int i);
/* Does n select blocks of columns that may be whole panels of a product? */
bool sn_selects_panels(const sn_node *n);
/* The same, also if it is not merged with another product. */
bool sn_selects_whole_panels(const sn_node *n);
bool sn_static_shape(const sn_node *n); /* all sizes are numbers */
/* The parameter n with another name, type and shape of the same rank: the same share, if it is one. */
sn_node *sn_param_as(const sn_node *n, const char *name, sn_dtype t, const sn_dim *shape);
/* elementwise, or a composite that a loop over elements spells out */
bool sn_is_inline(const sn_node *n);
/* Is `on` n, or below it? */
bool sn_depends_on(sn_module *m, sn_node *n, const sn_node *on);
/* Depends on parameters and constants only, and on at least one parameter. */
bool sn_from_params_only(const sn_node *n);
/* Depends on parameters and constants only, so computing it costs nothing at run time. */
bool sn_is_fixed(const sn_node *n);
/* "`cumsum` (model.c:12)"; in arena memory */
const char *sn_name_with_place(const sn_node *n);
/* Replaces the outputs and assignments of the entry by f(ctx, root). */
void sn_entry_map(sn_entry *e, sn_node *(*f)(void *, sn_node *), void *ctx);
/* The roots of the module: outputs and assignments of all entries, which are the first *n_live,
 * then taps. root NULL: only counts; store: writes them back. Returns their number. */
int sn_module_roots(sn_module *m, sn_node **root, int *n_live, bool store);
/* The *n roots of one entry: its outputs and assignments, then, if wanted, its taps; arena memory. */
sn_node **sn_entry_roots(sn_module *m, sn_entry *e, bool taps, int *n);
void sn_entry_set_roots(sn_entry *e, bool taps, sn_node **root);
/* Replaces them by what made[] has for each, by id. */
void sn_entry_become(sn_entry *e, bool taps, sn_node *const *made);

#endif
