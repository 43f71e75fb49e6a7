/* carry.h: carries a session's collectives over a communicator. */
#ifndef SN_CARRY_H
#define SN_CARRY_H

#include "codegen/program/program.h"
#include "runtime/comm/comm.h"

/* Exchanges (all_to_all, collective_permute) of an entry's run: each starts where the plan has put it
 * and goes on while others of the process compute. The mesh has one axis, which is the communicator's
 * ranks. Only the thread that runs the session uses the communicator meanwhile. */
typedef struct sn_carrier sn_carrier;
sn_carrier *sn_carrier_new(sn_comm *c, sn_error *err);
void sn_carrier_free(sn_carrier *k);                   /* NULL is allowed */
sn_collectives *sn_carrier_collectives(sn_carrier *k); /* for sn_session_set_collectives */

#endif
