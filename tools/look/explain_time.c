/* explain_time.c: measures the kernel calls of an entry, on random weights or the model's. */
#include "tools/look/explain_time.h"
#include "tools/look/inputs.h"

#include <stdlib.h>

enum { RUNS = 5, EVENTS = 1 << 18 };

static bool run(sn_session *s, const char *entry, const look_inputs *in, int times, sn_error *err) {
    bool ok = true;
    for (int i = 0; ok && i < times; i++) ok = look_inputs_run(in, s, entry, err);
    return ok;
}

bool explain_measure(explain_entry *e, sn_session *s, const sn_program *p, sn_error *err) {
    look_inputs *in = calloc(1, sizeof *in);
    e->seconds = calloc((size_t)e->n + 1, sizeof *e->seconds);
    bool ok = (in && e->seconds) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && look_inputs_make(in, p, e->name, e->sizes, err) && run(s, e->name, in, 1, err);
    sn_trace *t = ok ? sn_trace_begin(s, e->name, EVENTS, err) : NULL;
    ok = t && run(s, e->name, in, RUNS, err);
    if (ok) sn_trace_seconds(t, e->seconds, e->n);
    sn_trace_end(t);
    if (in) look_inputs_free(in);
    free(in);
    return ok;
}
