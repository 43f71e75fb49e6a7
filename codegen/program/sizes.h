/* sizes.h: values of a module's symbolic dimensions, for tuning, budgets and reports. */
#ifndef SN_PROGRAM_SIZES_H
#define SN_PROGRAM_SIZES_H

#include "ir/ir.h"

/* The geometric mean of each dimension's bounds. symbol: [sn_symbol_count]. */
void sn_sizes_middle(const sn_module *m, int64_t *symbol);

/* Reads "B=12,T=64" into symbol; dimensions that are not listed keep their values. text NULL: none.
 * `what` names the sizes in messages. False: err. */
bool sn_sizes_read(const sn_module *m, const char *what, const char *text, int64_t *symbol,
                   sn_error *err);

#endif
