/* absorb.h: work on rows that becomes part of a recurrence's kernel, before it (fused_recurrence.c) or after
 * it (recurrence_results.c): which nodes, and the views between them and the kernel's rows. */
#ifndef SN_ABSORB_H
#define SN_ABSORB_H

#include "passes/passes.h"

/* Transposes and reshapes, one after another: the nearest one, and those beyond it. */
typedef struct sn_views {
    const sn_node *view;
    const struct sn_views *next;
} sn_views;

/* Whether rows stay rows. */
bool sn_views_keep_rows(const sn_views *v);
/* x moved as the view moves its operand, or back. Rows of x may have another length, such as 1. */
sn_node *sn_view_apply(const sn_node *view, sn_node *x);
sn_node *sn_view_undo(const sn_node *view, sn_node *x);

/* Elementwise, a sum along the last axis, or what spreads numbers, if the kernel can hold it. */
bool sn_is_row_work(const sn_node *n);
/* By node id: products, and what their epilogues compute. They leave what is only summed to others. */
bool *sn_find_in_products(sn_module *m, sn_order order, int n_root, sn_node *const *root);

/* Calls `absorb` once for each recurrence that it takes, of each entry by itself, as its kernels are: another
 * may need more in memory. The last one first: what is below the others stays. It changes the roots and
 * returns whether it has. Returns how often; 0: the level does not let recurrences absorb anything. */
typedef bool sn_absorb_fn(sn_module *m, sn_node *recurrence, int n_root, sn_node **root);
int sn_absorb_each(sn_passes *p, bool (*takes)(const sn_node *n), sn_absorb_fn *absorb);

#endif
