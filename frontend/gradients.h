/* gradients.h: an entry with the gradients of another one, to call, to check and to time. */
#ifndef SN_GRADIENTS_H
#define SN_GRADIENTS_H

#include "ir/ir.h"

/* Adds the entry `name`: the gradients of the sum of all float outputs of e, or of `output` alone, with
 * respect to the parameters and float inputs that it depends on, or to `wrt` alone, as outputs
 * "gradient.NAME". weighted: each output's elements are multiplied by an input "weights.OUTPUT" first.
 * *loss, if not NULL: the scalar. wrt_out: [returned number] the nodes, in the arena, unless NULL. -1: err,
 * or there is nothing to differentiate (err->code is SN_OK then). */
int sn_entry_gradient(sn_module *m, const sn_entry *e, const char *name, const char *output,
                      const char *wrt, bool weighted, sn_node **loss, sn_node ***wrt_out,
                      sn_error *err);

#endif
