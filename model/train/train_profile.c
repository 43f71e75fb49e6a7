/* train_profile.c: one timeline of all ranks: a process for each, with its threads and the sums that were
 * under way. Clocks of machines differ, so times count from a barrier that all ranks leave together. */
#include "model/train/train_ranks.h"

#include "runtime/clock.h"
#include "runtime/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPANS = 1 << 17 };

void train_profile_record(train_ranks *r) {
    if (r->engine) sn_comm_engine_record(r->engine, SPANS);
}

/* Overlapping sums are on several tracks: the first one that is free. */
static int find_track(double *free_at, int n, double begin) {
    int i = 0;
    while (i < n - 1 && free_at[i] > begin) i++;
    return i;
}

static int by_begin(const void *a, const void *b) {
    const sn_comm_span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* False: out of memory. */
static bool print_sums(const train_ranks *r, FILE *f, int process, double zero) {
    enum { TRACKS = 32, FIRST = 1000 /* after the threads */ };
    const sn_comm_span *kept = NULL;
    size_t n = r->engine ? sn_comm_engine_spans(r->engine, &kept) : 0;
    double free_at[TRACKS] = {0};
    sn_comm_span *span = malloc((n + 1) * sizeof *span);
    if (!span) return false;
    if (n) memcpy(span, kept, n * sizeof *span);
    qsort(span, n, sizeof *span, by_begin); /* they were kept as they were waited for */
    for (size_t i = 0; i < n; i++) {
        int track = find_track(free_at, TRACKS, span[i].begin);
        if (!(free_at[track] > 0))
            fprintf(f,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                    "\"name\":\"sums "
                    "%d\"}}",
                    process, FIRST + track, track);
        free_at[track] = span[i].end;
        const char *name = span[i].label ? span[i].label : "";
        fprintf(
            f,
            ",\n{\"name\":\"sum of %.*s%s\",\"cat\":\"network\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,"
            "\"ts\":%.3f,\"dur\":%.3f}",
            (int)strcspn(name, "\n\"\\"), name, strchr(name, '\n') ? " and others" : "", process,
            FIRST + track, 1e6 * (span[i].begin - zero), 1e6 * (span[i].end - span[i].begin));
    }
    free(span);
    return true;
}

/* The lines of this rank; NULL: err. */
static char *print_rank(const train_ranks *r, const sn_trace *t, double zero, size_t *size,
                        sn_error *err) {
    const sn_comm *c = r->comm;
    char *text = NULL, name[320];
    FILE *f = open_memstream(&text, size);
    if (!f) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    snprintf(name, sizeof name, "rank %d on %s", c->rank, c->host[c->rank]);
    bool ok = sn_trace_print_process(t, f, c->rank + 1, name, sn_trace_first(t) - zero, err);
    if (ok && !print_sums(r, f, c->rank + 1, zero))
        ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    fputs(c->rank + 1 < c->size ? ",\n" : "\n", f);
    if (fclose(f)) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) return text;
    free(text);
    return NULL;
}

static bool save(const char *path, const void *all, const size_t *size, int n, size_t lost,
                 sn_error *err) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += size[i];
    sn_file *file = sn_file_output(path, err);
    if (!file) return false;
    FILE *f = sn_file_stream(file);
    fputs("{\"traceEvents\":[\n", f);
    fwrite(all, 1, bytes, f);
    fprintf(f, "],\"otherData\":{\"calls_not_kept\":%zu}}\n", lost);
    return sn_file_commit(file, err);
}

bool train_profile_write(train_ranks *r, const sn_trace *t, const char *path, sn_error *err) {
    sn_comm *c = r->comm;
    if (!c) return sn_trace_write(t, path, err);
    size_t *size = calloc((size_t)c->size, sizeof *size), bytes = 0;
    void *all = NULL;
    bool ok = size || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = train_ranks_agree(r, ok, err) && sn_comm_barrier(c, err);
    double now = sn_clock(), since = now - sn_trace_first(t); /* of rank 0: all count from there */
    ok = ok && sn_comm_broadcast(c, &since, sizeof since, 0, err);
    char *text = ok ? print_rank(r, t, now - since, &bytes, err) : NULL;
    ok = ok && train_ranks_agree(r, text != NULL, err) &&
         sn_comm_collect(c, text, bytes, &all, size, err);
    bool leads = train_ranks_leads(r);
    ok = ok &&
         train_ranks_agree(r, !leads || save(path, all, size, c->size, sn_trace_lost(t), err), err);
    free(all);
    free(text);
    free(size);
    return ok;
}
