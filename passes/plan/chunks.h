/* chunks.h: the kernel calls of a chunks node, which run for some rows at a time: first one
 * step of the plan (so that what is computed again, or reordered, is all of it), in the end
 * a loop. */
#ifndef SN_PLAN_CHUNKS_H
#define SN_PLAN_CHUNKS_H

#include "passes/plan/plan.h"

/* The steps from `first` on as one, with `inner`: they compute the body of n, result i into
 * result[i], with buffers from `first_buffer` on made for them. Takes them off the plan. Views of
 * inner steps have for buffer the number of an operand or result of the step. */
sn_step sn_chunks_fold(sn_plan *p, sn_node *n, int first, int first_buffer, const sn_view *result);

/* Every such step becomes a loop. */
void sn_chunks_unfold(sn_plan *p);

/* A product of rows as a node that adds itself to its last operand, of its own type; a kernel that
 * adds two tensors of that type. */
sn_node *sn_chunks_add_product(sn_node *gemm);
sn_node *sn_chunks_add(sn_module *m, const sn_view *type);

/* The product whose epilogue is what `taker`, a loops node, makes of its operand i: the product's
 * result. Operands: the product's two, then the taker's others in their order. Of a reduction along
 * rows it makes those over panels. NULL: an epilogue cannot. */
sn_node *sn_chunks_epilogue(const sn_node *gemm, const sn_node *taker, int i);
/* The kernel that makes a reduction along rows [1, M] of those over panels, [M, panels, 1], from
 * these as [panels, M]. */
sn_node *sn_chunks_end_sums(const sn_node *panels, sn_op op);

/* The first turn's product that makes result `index` of a folded step; NULL: none. */
sn_step *sn_chunks_product(const sn_step *whole, int index);

/* The loop that step i is in; NULL: none. */
const sn_row_loop *sn_chunks_loop(const sn_plan *p, int i);

/* ", first turn": when a step runs, in words; "": always. */
const char *sn_chunks_turn(sn_turn t);

/* Elements of a buffer at these values of the symbolic dims. */
int64_t sn_buffer_elements(sn_module *m, const sn_buffer *b, const int64_t *symbol);

#endif
