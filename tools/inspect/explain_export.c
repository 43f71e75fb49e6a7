/* explain_export.c: the calls of entries as JSON and as a Graphviz graph. */
#include "tools/inspect/explain.h"

#include <stdlib.h>
#include <string.h>

/* Each returns false when out of memory. */
static bool text(cJSON *to, const char *key, const char *value) {
    return cJSON_AddStringToObject(to, key, value) != NULL;
}

static bool number(cJSON *to, const char *key, double value) {
    return cJSON_AddNumberToObject(to, key, value) != NULL;
}

static bool put(cJSON *list, cJSON *item) {
    if (item && cJSON_AddItemToArray(list, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool add_tiles(cJSON *call, const explain_tiles *t, const char *sizes) {
    if (!(t->skipped + t->partial + t->full > 0)) return true;
    cJSON *o = cJSON_AddObjectToObject(call, "tiles");
    return o && text(o, "sizes", sizes) && number(o, "skipped", t->skipped) &&
           number(o, "partial", t->partial) && number(o, "full", t->full);
}

static bool add_call(cJSON *list, const explain_entry *e, int i) {
    const sn_kernel_call *c = &e->call[i];
    cJSON *o = cJSON_CreateObject();
    if (!o || !put(list, o)) return false;
    cJSON *reads = cJSON_CreateIntArray(c->reads, c->n_reads);
    bool ok = number(o, "call", i) && text(o, "kernel", c->family) && text(o, "where", c->name) &&
              text(o, "result", c->result) && text(o, "fused", c->fused) &&
              text(o, "notes", c->notes) && text(o, "loop", c->loop) && text(o, "when", c->when) &&
              text(o, "symbol", c->kernel) && text(o, "file", c->file) &&
              number(o, "line", c->line) && cJSON_AddBoolToObject(o, "barrier", c->barrier) &&
              number(o, "flop", c->flops) && number(o, "bytes", c->bytes) &&
              number(o, "result_bytes", c->result_bytes) && number(o, "share", explain_share(e, i));
    if (ok && e->seconds)
        ok = number(o, "ms", 1e3 * e->seconds[i]) && number(o, "min_ms", 1e3 * e->least[i]);
    if (ok && e->tiles) ok = add_tiles(o, &e->tiles[i], e->tile_sizes);
    if (!ok || !reads || !cJSON_AddItemToObject(o, "reads", reads)) {
        cJSON_Delete(reads);
        return false;
    }
    return true;
}

static bool add_folds(cJSON *o, const explain_entry *e) {
    cJSON *list = cJSON_AddArrayToObject(o, "folds");
    for (int i = 0; list && i < e->n_fold; i++) {
        cJSON *d = cJSON_CreateObject();
        if (!d || !put(list, d) || !number(d, "first", e->fold[i].first) ||
            !number(d, "period", e->fold[i].period) || !number(d, "times", e->fold[i].times))
            return false;
    }
    return list != NULL;
}

static bool add_run(cJSON *o, const explain_entry *e) {
    return number(o, "run_ms", 1e3 * e->run_seconds) &&
           number(o, "run_min_ms", 1e3 * e->run_least) && number(o, "peak_gflops", e->peak) &&
           number(o, "others_pct", e->others) && number(o, "stolen_pct", e->stolen);
}

static bool fill_entry(cJSON *o, const explain_entry *e) {
    if (!text(o, "entry", e->name) || !text(o, "sizes", e->sizes) || !number(o, "flop", e->flops) ||
        !number(o, "bytes", e->bytes) ||
        !cJSON_AddBoolToObject(o, "measured", e->seconds != NULL) || !add_folds(o, e) ||
        (e->pairs && (!number(o, "attention_pairs", e->pairs) ||
                      !number(o, "attention_fused", explain_fused(e)))) ||
        (e->seconds && !add_run(o, e)))
        return false;
    cJSON *calls = cJSON_AddArrayToObject(o, "calls");
    for (int i = 0; calls && i < e->n; i++)
        if (!add_call(calls, e, i)) return false;
    return calls != NULL;
}

cJSON *explain_entry_json(const explain_entry *e) {
    cJSON *o = cJSON_CreateObject();
    if (o && fill_entry(o, e)) return o;
    cJSON_Delete(o);
    return NULL;
}

bool explain_json(FILE *f, const explain_entry *e, int n, const char *const *remark, int n_remark) {
    cJSON *root = cJSON_CreateObject();
    cJSON *entries = root ? cJSON_AddArrayToObject(root, "entries") : NULL;
    bool ok = entries != NULL;
    for (int i = 0; ok && i < n; i++) ok = put(entries, explain_entry_json(&e[i]));
    cJSON *remarks = ok ? cJSON_AddArrayToObject(root, "remarks") : NULL;
    for (int i = 0; remarks && ok && i < n_remark; i++)
        ok = put(remarks, cJSON_CreateString(remark[i]));
    char *out = ok && remarks ? cJSON_Print(root) : NULL;
    if (out) fprintf(f, "%s\n", out);
    free(out);
    cJSON_Delete(root);
    return out != NULL;
}

/* ---- Graphviz ---- */

static void print_quoted(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        fputc(*s, f);
    }
}

static void print_node(FILE *f, const explain_entry *e, int i, const char *name) {
    const sn_kernel_call *c = &e->call[i];
    fprintf(f, "    c%d [label=\"", i);
    if (*name) {
        print_quoted(f, name);
        fputs("\\n", f);
    }
    print_quoted(f, c->family);
    fputc(' ', f);
    print_quoted(f, c->result);
    if (*c->fused) {
        fputs("\\n", f);
        print_quoted(f, c->fused);
    }
    fprintf(f, "\\n%.1f %%\", tooltip=\"%s:%d\"];\n", 100 * explain_share(e, i), c->file, c->line);
}

/* The call that stands for call i: of a folded group the one in its first repetition. */
static int shown_as(const explain_entry *e, int i) {
    for (int k = 0; k < e->n_fold; k++) {
        const inspect_fold *d = &e->fold[k];
        if (i >= d->first && i < d->first + d->period * d->times)
            return d->first + (i - d->first) % d->period;
    }
    return i;
}

static bool in_last_repetition(const explain_entry *e, int i) {
    for (int k = 0; k < e->n_fold; k++) {
        const inspect_fold *d = &e->fold[k];
        int last = d->first + d->period * (d->times - 1);
        if (i >= d->first && i < last) return false;
    }
    return true;
}

void explain_dot(FILE *f, const explain_entry *e) {
    fprintf(f,
            "digraph \"%s\" {\n    rankdir=TB;\n"
            "    node [shape=box, style=rounded, fontname=\"sans-serif\", fontsize=11];\n",
            e->name);
    for (int i = 0; i < e->n; i++) {
        const inspect_fold *d = explain_fold_at(e, i);
        if (d) {
            fprintf(f, "    subgraph cluster_%d {\n    label=\"%d times\";\n", i, d->times);
            for (int k = 0; k < d->period; k++) print_node(f, e, i + k, e->folded[i + k]);
            fputs("    }\n", f);
            i += d->period * d->times - 1;
        } else {
            print_node(f, e, i, e->call[i].name);
        }
    }
    for (int i = 0; i < e->n; i++) {
        bool drawn = shown_as(e, i) == i; /* later repetitions are the same */
        for (int k = 0; drawn && k < e->call[i].n_reads; k++) {
            int from = e->call[i].reads[k];
            if (shown_as(e, from) == from || in_last_repetition(e, from))
                fprintf(f, "    c%d -> c%d;\n", shown_as(e, from), i);
        }
    }
    fputs("}\n", f);
}
