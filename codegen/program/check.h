/* check.h: sn_options.check_nan: looks through the results of every step of a run. */
#ifndef SN_CHECK_H
#define SN_CHECK_H

#include "codegen/backend.h"

/* What the check of a step's results needs to know; made at compile time, because a run must not
 * write to the module. */
typedef struct sn_value_check {
    bool infinity;   /* the step writes infinity on purpose */
    const char *ops; /* "log, mul": what it does, each operation once */
} sn_value_check;

/* One for each step, in arena memory. */
sn_value_check *sn_value_checks(sn_module *m, const sn_plan *plan);

/* Looks through the results of a step that has just run. False: err names the first NaN, or the
 * first infinity that the step was not told to make. */
bool sn_check_values(const sn_plan *plan, const sn_value_check *check, const sn_step_call *c,
                     sn_error *err);

#endif
