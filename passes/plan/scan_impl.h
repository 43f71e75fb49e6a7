/* scan_impl.h: what scan.c, scan_recompute.c and scan_parts.c share. */
#ifndef SN_SCAN_IMPL_H
#define SN_SCAN_IMPL_H

#include "passes/plan/planner.h"
#include "passes/plan/scan.h"

/* A carry as windows of one local: what an iteration reads, and what it writes for the next one. */
typedef struct scan_carry {
    int now, next;
} scan_carry;

/* A scan that is being planned: its steps are those from `first` on. */
typedef struct scan_plan {
    sn_scan s;
    sn_scan_loop *loop;
    const sn_view *in, *out; /* of the scan */
    scan_carry *carry;
    int n_recomputed; /* sequences, the first ones, that are carries which are computed again */
    uint32_t saved;   /* bits of results that are stored for the first element of each segment */
    sn_order order;   /* of the body */
    int first;
} scan_plan;

/* scan_parts.c. A window of operand (or result) i of the scan: what one iteration sees. */
sn_view sn_scan_operand_window(sn_planner *p, scan_plan *c, int i, const sn_node *type,
                               sn_index index);
/* A window of one of the tensors of this type that lie in a local `step` elements apart. */
int sn_scan_local_window(sn_planner *p, scan_plan *c, int local, const sn_node *type, sn_dim step,
                         sn_index index);
/* The body's result x is to be in `to`: written there by its kernel, or copied. */
void sn_scan_deliver(sn_planner *p, const scan_plan *c, const sn_node *x, sn_view to);
sn_view sn_scan_whole(sn_planner *p, int buffer, const sn_node *t);
scan_carry sn_scan_new_carry(sn_planner *p, scan_plan *c, const sn_node *t);
/* Clears the views of a region's nodes and returns what they were, with those of its arguments. */
sn_view **sn_scan_take_views(sn_planner *p, const sn_region *r, sn_order order);
void sn_scan_restore_views(sn_planner *p, const sn_region *r, sn_order order,
                           sn_view *const *before);

/* scan_recompute.c. Whether the sequences of n that `again` gives are in memory for the first element of
 * each segment only; which results of n are such (bits); whether a result is, or an operand. */
bool sn_scan_recomputes(const sn_planner *p, const sn_node *n);
uint32_t sn_scan_find_saved(const sn_planner *p, const sn_node *n);
bool sn_scan_keeps(const scan_plan *c, int result);
bool sn_scan_computes(const scan_plan *c, int operand);
/* Steps that keep these results; steps that compute these operands, whose views in the body they set. */
void sn_scan_plan_saved(sn_planner *p, scan_plan *c);
void sn_scan_plan_again(sn_planner *p, scan_plan *c);

#endif
