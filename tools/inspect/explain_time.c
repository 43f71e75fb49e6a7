/* explain_time.c: measures the kernel calls of an entry, on random weights or the model's. */
#include "tools/inspect/explain_time.h"
#include "tools/inspect/inputs.h"
#include "tools/inspect/report.h"

#include <stdlib.h>

bool explain_measure(explain_entry *e, sn_session *s, const sn_program *p, sn_error *err) {
    inspect_inputs *in = calloc(1, sizeof *in);
    report none = {.root = NULL}; /* its times only, no document */
    double seconds;
    bool ok = in || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && inspect_inputs_make(in, p, e->name, e->sizes, err) &&
         report_run(&none, NULL, e, s, in, &seconds, err) &&
         (!none.full || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    if (in) inspect_inputs_free(in);
    free(in);
    return ok;
}
