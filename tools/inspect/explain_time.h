/* explain_time.h: measured times for `sinter explain --time`. */
#ifndef SN_EXPLAIN_TIME_H
#define SN_EXPLAIN_TIME_H

#include "tools/inspect/explain.h"

/* Fills e->seconds: runs the entry of the session's program, p, a few times at e's
 * sizes with made-up inputs (inputs.h). Changes the session's states. */
bool explain_measure(explain_entry *e, sn_session *s, const sn_program *p, sn_error *err);

#endif
