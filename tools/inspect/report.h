/* report.h: the data of `sinter report`: one JSON document (docs/report.md describes it) that the
 * page shows. Each report_*.c adds a part of an entry. */
#ifndef SN_INSPECT_REPORT_H
#define SN_INSPECT_REPORT_H

#include "bench/noise.h"
#include "tools/inspect/explain.h"
#include "tools/inspect/inputs.h"

enum { REPORT_VERSION = 1 };

typedef struct report {
    cJSON *root;
    cJSON *files; /* sources that nodes and calls name */
    bool full;    /* out of memory: the document is incomplete */
    cJSON *machine;
    sn_bench_noise noise; /* since the first run */
    double gflops,
        gbytes; /* the machine's limits with the program's threads: 1e9 FLOP and B a second */
} report;

/* ---- report_json.c: a call with to NULL, or out of memory, sets r->full and has no effect ---- */

bool report_begin(report *r, sn_error *err);
void report_text(report *r, cJSON *to, const char *key, const char *value);
void report_number(report *r, cJSON *to, const char *key, double value); /* not finite: null */
void report_flag(report *r, cJSON *to, const char *key, bool value);
cJSON *report_list(report *r, cJSON *to, const char *key);
cJSON *report_object(report *r, cJSON *to, const char *key); /* key NULL: `to` is a list */
void report_add_number(report *r, cJSON *list, double value);
void report_add_text(report *r, cJSON *list, const char *value);
void report_put(report *r, cJSON *to, const char *key, cJSON *value); /* value is r's from now on */

/* ---- report_source.c ---- */

/* The number of a source in the document, with its text if it can be read; -1: name is empty. */
int report_file(report *r, const char *name);

/* ---- parts of an entry's object ---- */

/* report_graph.c: nodes, and the graph after each pass (the program was compiled with
 * keep_stages). */
bool report_graph(report *r, cJSON *entry, const sn_program *p, const char *name, sn_error *err);
/* report_calls.c: the kernel calls: costs, what each took and why it ends there. */
void report_calls(report *r, cJSON *entry, const sn_program *p, const explain_entry *e);
/* report_memory.c: the workspace: each temporary's place and life. symbol: [sn_symbol_count]. */
bool report_memory(report *r, cJSON *entry, const sn_program *p, const char *name,
                   const int64_t *symbol, sn_error *err);
/* report_run.c: measures the entry of the session: fills e->seconds; adds the timeline of one run,
 * if `entry` is not NULL; *seconds: of a run. */
bool report_run(report *r, cJSON *entry, explain_entry *e, sn_session *s, const inspect_inputs *in,
                double *seconds, sn_error *err);

/* report_mask.c: the tiles of each attention, at the sizes of these inputs. */
bool report_masks(report *r, cJSON *entry, const sn_program *p, const sn_session *s,
                  const explain_entry *e, const inspect_inputs *in, sn_error *err);

/* ---- report_page.c ---- */

/* The page with the document in it, or the document alone. False: err. */
bool report_write(FILE *f, const report *r, bool json_only, sn_error *err);

#endif
