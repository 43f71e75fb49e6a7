/* explain_why.c: why a tensor is in memory: who writes and reads it, its size, how long it lives, what
 * would remove it. */
#include "codegen/program/why.h"
#include "ir/ir.h"
#include "runtime/cli/screen.h"
#include "runtime/problems.h"
#include "runtime/str.h"
#include "tools/inspect/explain.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 4096, SHOWN = 6 };

typedef struct query {
    const sn_program *p;
    const explain_entry *e;
    const char *text;
    /* what the text means, besides a name: a call's number (-1: none), a source line (0: none) */
    int call, line;
    char path[256]; /* the end of the line's file; "": any */
    char type[160]; /* of a named tensor, whose line it is; "": no name of a tensor */
} query;

/* "7" or "call 7"; "alibi.c:12" or ":12"; a tap's name is the line that it names. */
static query read_query(const sn_program *p, const sn_module *m, const explain_entry *e,
                        const char *text) {
    query q = {.p = p, .e = e, .text = text, .call = -1};
    const char *digits = strncmp(text, "call ", 5) ? text : text + 5, *colon = strrchr(text, ':');
    if (*digits && !digits[strspn(digits, "0123456789")]) q.call = atoi(digits);
    if (colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789")]) {
        q.line = atoi(colon + 1);
        snprintf(q.path, sizeof q.path, "%.*s", (int)(colon - text), text);
    }
    const sn_entry *entry = sn_entry_get((sn_module *)(uintptr_t)m, e->name);
    for (int i = 0; entry && i < entry->n_tap; i++)
        if (!strcmp(entry->tap[i].name, text) && entry->tap[i].node->loc.file) {
            q.line = entry->tap[i].node->loc.line;
            snprintf(q.path, sizeof q.path, "%s", entry->tap[i].node->loc.file);
            const sn_node *n = entry->tap[i].node;
            char shape[128];
            sn_shape_print(m, n->rank, n->shape, shape, sizeof shape);
            snprintf(q.type, sizeof q.type, "%s%s", sn_dtype_name((sn_dtype)n->dtype), shape);
        }
    return q;
}

/* "mlp.gate_proj" is meant by itself and, of a merged product, in "mlp.gate_proj+up_proj". */
static bool names_module(const char *where, const char *text) {
    size_t n = strlen(text);
    return !strncmp(where, text, n) && (!where[n] || where[n] == '+');
}

static bool is_meant(const query *q, const sn_stored *t) {
    if (!strcmp(t->name, q->text)) return true;
    for (int i = 0; i < t->n_writes; i++) {
        const sn_kernel_call *c = &q->e->call[t->writes[i]];
        if (t->writes[i] == q->call || names_module(c->name, q->text)) return true;
        bool typed = !*q->type || !strcmp(q->type, t->type);
        if (q->line && typed && c->line == q->line && sn_ends_with(c->file, q->path)) return true;
    }
    return false;
}

static const char *bytes_text(double v, char buf[32]) {
    static const char *const unit[] = {"bytes", "kB", "MB", "GB", "TB"};
    int k = 0;
    while (v >= 999.5 && k < 4) v /= 1000, k++;
    snprintf(buf, 32, "%.3g %s", v, unit[k]);
    return buf;
}

static void print_calls(FILE *f, const char *what, const query *q, const int *list, int n) {
    if (!n) return;
    fprintf(f, "  %-11s", what);
    for (int i = 0; i < n && i < SHOWN; i++) {
        const sn_kernel_call *c = &q->e->call[list[i]];
        fprintf(f, "%scall %d, %s%s%s", i ? "\n             " : "", list[i], c->family,
                *c->name ? " " : "", c->name);
        if (*c->file) fprintf(f, " (%s:%d)", c->file, c->line);
    }
    if (n > SHOWN) fprintf(f, "\n             and %d more", n - SHOWN);
    fputc('\n', f);
}

static void print_one(FILE *f, const query *q, const sn_stored *t) {
    char bytes[32];
    const char *name = *t->name ? t->name : t->n_writes ? q->e->call[t->writes[0]].name : "";
    fprintf(f, "%s%s%s%s%s, %s, %s (entry %s, %s)\n", sn_screen_color(f, STYLE_HEADING), name,
            *name ? ": " : "", t->what, sn_screen_color(f, STYLE_NONE), t->type,
            bytes_text(t->bytes, bytes), q->e->name, q->e->sizes);
    print_calls(f, "written by", q, t->writes, t->n_writes);
    print_calls(f, "read by", q, t->reads, t->n_reads);
    if (t->kind == SN_BUF_TEMP)
        fprintf(f,
                "  alive      from call %d to %d of %d; %d other tensor%s use%s the same memory\n",
                t->first, t->last, q->e->n, t->shares, t->shares == 1 ? "" : "s",
                t->shares == 1 ? "s" : "");
    for (int i = 0; i < t->n_reason; i++)
        fprintf(f, "  %-11s%s\n", i ? "" : "because", t->reason[i]);
    fprintf(f, "  %-11s%s\n", "removed by",
            *t->remedy               ? t->remedy
            : t->kind == SN_BUF_TEMP ? "nothing that Sinter does"
                                     : "nothing");
}

/* The tensor is not in memory, but a line that kernels compute in registers. */
static int print_in_registers(FILE *f, const query *q) {
    int shown = 0, all = 0;
    for (int i = -1;
         q->line && (i = sn_program_computes(q->p, q->e->name, *q->path ? q->path : NULL, q->line,
                                             i + 1)) >= 0;
         all++) {
        const sn_kernel_call *c = &q->e->call[i];
        if (shown == SHOWN) continue;
        shown++;
        fprintf(
            f,
            "%s: not in memory: call %d (%s%s%s) computes it on the way to its result %s and keeps "
            "it in registers\n",
            q->text, i, c->family, *c->name ? " " : "", c->name, c->result);
    }
    if (all > shown) fprintf(f, "and %d more calls\n", all - shown);
    return all;
}

/* A named tensor that no call stores: its line alone does not tell which layer's operation it is. */
static int print_named(FILE *f, const query *q) {
    fprintf(f,
            "%s: no call of entry %s stores it as it is (%s, %s:%d): its operation was merged, "
            "fused or "
            "rewritten; `sinter explain` shows the calls, `sinter inspect --tap %s` makes it an "
            "output\n",
            q->text, q->e->name, q->type, q->path, q->line, q->text);
    return 1;
}

/* ---- the nearest name ---- */

typedef struct names {
    const char *list[MAX_NAMES + 1];
    int n;
} names;

static void add_name(names *l, const char *name) {
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->list[i], name)) return;
    if (*name && l->n < MAX_NAMES) l->list[l->n++] = name;
}

static bool unknown(const explain_entry *e, int n, const sn_program *p, sn_module *m,
                    const char *text, sn_error *err) {
    names *l = calloc(1, sizeof *l);
    if (!l) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        const sn_stored *list;
        int count = sn_program_stored(p, e[i].name, NULL, &list, NULL);
        for (int k = 0; k < count; k++) add_name(l, list[k].name);
        for (int k = 0; k < e[i].n; k++) add_name(l, e[i].call[k].name);
        const sn_entry *entry = sn_entry_get(m, e[i].name);
        for (int k = 0; entry && k < entry->n_tap; k++) add_name(l, entry->tap[k].name);
    }
    const char *near = sn_nearest_name(text, l->list);
    sn_fail(
        err, SN_ERR_USAGE,
        "--why '%s': no tensor, kernel or source line is called so%s%s; give a parameter, a named "
        "tensor, a place of `sinter explain` (layers.0.mlp.down_proj), its call number, or "
        "FILE:LINE",
        text, near ? "; did you mean " : "", near ? near : "");
    free(l);
    return false;
}

bool explain_why(FILE *f, const explain_entry *e, int n, const sn_program *p, sn_module *m,
                 const char *text, sn_error *err) {
    int found = 0;
    for (int i = 0; i < n; i++) {
        const query q = read_query(p, m, &e[i], text);
        const sn_stored *list;
        int count = sn_program_stored(p, e[i].name, e[i].sizes, &list, err), here = 0;
        if (count < 0) return false;
        for (int k = 0; k < count; k++)
            if (is_meant(&q, &list[k]) && here++ < SHOWN) print_one(f, &q, &list[k]);
        if (here > SHOWN) fprintf(f, "and %d more\n", here - SHOWN);
        if (!here) here = (*q.type ? print_named : print_in_registers)(f, &q);
        found += here;
    }
    return found || unknown(e, n, p, m, text, err);
}
