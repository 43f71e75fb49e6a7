/* ranks.h: a language model that several ranks run together (runtime/comm/comm.h), each with its share
 * of heads, MLPs and vocabulary (the mesh axis "tensor"). Rank 0 leads: it uses the model as if it was
 * alone, and sends each call to the others, which do nothing else. */
#ifndef SN_MODEL_RANKS_H
#define SN_MODEL_RANKS_H

#include "codegen/program/program.h"
#include "runtime/comm/comm.h"
#include "model/generation.h"

typedef struct lm_ranks lm_ranks;
/* c: one rank for each of the axis; borrowed, as nobody else uses it meanwhile. NULL: err. */
lm_ranks *lm_ranks_new(sn_comm *c, const char *mesh, sn_error *err);
void lm_ranks_free(lm_ranks *r); /* NULL is allowed */
/* Sums and gathers of the session's runs go over the ranks; r must outlive the session. */
void lm_ranks_bind(lm_ranks *r, sn_session *s);

/* Makes *e, of rank 0, run each call on all ranks; an error of any rank is an error of the call. Closing
 * it ends lm_ranks_serve of the others. Borrows r. */
void lm_ranks_lead(lm_ranks *r, sn_lm_engine *e);
/* The other ranks: runs what rank 0 sends on e until rank 0 closes its engine. False: err; then the
 * other ranks wait for this one and must be ended. Errors of calls are reported by rank 0. */
bool lm_ranks_serve(lm_ranks *r, const sn_lm_engine *e, sn_error *err);

#endif
