/* carry.h: carries a session's collectives over communicators. */
#ifndef SN_CARRY_H
#define SN_CARRY_H

#include "codegen/program/program.h"
#include "runtime/comm/comm.h"

/* An axis of the mesh and its ranks. All is borrowed. */
typedef struct sn_carrier_axis {
    const char *mesh; /* its name; NULL: any */
    sn_comm *comm;    /* its ranks; NULL: this process alone */
    /* Carries sums and parts of f32, over another communicator of the same ranks; NULL: the thread that
     * runs the session does, over comm, as it does all else. */
    sn_comm_engine *engine;
    /* Adds terms that this process has itself to x, which n sums: before the sum over the ranks, and once
     * more after it (summed). Then the number of ranks of an all_reduce is that of all terms. NULL:
     * there are none. */
    bool (*terms)(void *ctx, const sn_node *n, bool summed, float *x, sn_error *err);
    void *ctx;
    /* With an engine: all_gather that a run may leave goes on between runs, until the next one needs
     * its result or sn_carrier_settle. */
    bool leaves;
} sn_carrier_axis;

/* The collectives of an entry's run: each starts where the plan has put it and goes on while others of
 * the process compute. They go along the first axis of a tensor. Sums are exact: their order depends
 * on the number of terms only. NULL: err. */
typedef struct sn_carrier sn_carrier;
sn_carrier *sn_carrier_new(int n, const sn_carrier_axis *axis, sn_error *err);
/* Waits for what runs have left: then states have their values. k NULL: there is nothing. */
bool sn_carrier_settle(sn_carrier *k, sn_error *err);
void sn_carrier_free(sn_carrier *k);                   /* NULL is allowed */
sn_collectives *sn_carrier_collectives(sn_carrier *k); /* for sn_session_set_collectives */

#endif
