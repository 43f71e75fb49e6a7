/* results.h: what a run of an entry gives: its outputs, then the states that it assigns. */
#ifndef SN_RUN_RESULTS_H
#define SN_RUN_RESULTS_H

#include "frontend/sinter.h"
#include "ir/ir.h"
#include "tools/inspect/inputs.h"

typedef struct run_tensor {
    const char *name; /* owned by the module */
    sn_node *node;
    bool state;
    int64_t shape[SN_MAX_RANK], n;
    void *data; /* of the node's type, row-major */
} run_tensor;

typedef struct run_results {
    run_tensor *list;
    int n;
} run_results;

/* Fills the states that the entry reads or assigns (run_state_fill; zeros if not `filled`), runs it and
 * reads everything. False: err. Free in either case. */
bool run_entry(sn_session *s, sn_module *m, const sn_entry *e, const inspect_inputs *in,
               bool filled, run_results *out, sn_error *err);
void run_results_free(run_results *r);

#endif
