/* remark.c: remarks of passes about nodes, and the entries that they concern. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_BIT = 63 };

uint64_t sn_entry_bit(int entry) {
    return (uint64_t)1 << (entry < LAST_BIT ? entry : LAST_BIT);
}

static void find_entries(sn_passes *p) {
    p->n_entries_of = sn_module_node_count(p->m);
    p->entries_of = sn_arena_alloc(p->m, sizeof *p->entries_of * p->n_entries_of);
    for (int k = 0; k < sn_entry_count(p->m); k++) {
        sn_entry *e = sn_entry_at(p->m, k);
        int n;
        sn_node **root = sn_entry_roots(p->m, e, true, &n);
        sn_order order = sn_topo(p->m, n, root);
        for (int i = 0; i < order.n; i++) p->entries_of[order.node[i]->id] |= sn_entry_bit(k);
    }
}

/* A node that no entry reads yet is of the entries of its operands. */
uint64_t sn_entries_of(sn_passes *p, const sn_node *n) {
    if (!p->n_entries_of) find_entries(p);
    while (n->id >= p->n_entries_of || !p->entries_of[n->id]) {
        if (!n->n_in) return ~(uint64_t)0;
        n = n->in[0];
    }
    return p->entries_of[n->id];
}

void sn_remark_add(sn_passes *p, const char *pass, const sn_node *n, bool missed, const char *fmt,
                   ...) {
    char text[1000]; /* with names of files and what to write instead */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->remark = sn_arena_grow(p->m, p->remark, sizeof *p->remark, p->n_remark, &p->cap_remark);
    p->remark[p->n_remark++] =
        (sn_remark){pass, n, missed, sn_arena_str(p->m, text), sn_entries_of(p, n)};
}

/* ---- what the user accepts ---- */

static bool same_line(sn_loc a, sn_loc b) {
    return a.file && b.file && a.line == b.line && !strcmp(a.file, b.file);
}

/* Whether the first of the lines, "FILE:LINE,..", is that of the remark. *n: how many characters it has. */
static bool is_named(const char *lines, const sn_remark *r, size_t *n) {
    const sn_loc at = r->node->loc;
    *n = strcspn(lines, ",");
    const char *colon = memrchr(lines, ':', *n), *file = at.file;
    if (!colon || !file || atoi(colon + 1) != at.line) return false;
    const size_t given = (size_t)(colon - lines), whole = strlen(file);
    if (whole < given || strncmp(file + whole - given, lines, given) != 0) return false;
    return whole == given || file[whole - given - 1] == '/';
}

bool sn_remark_is_accepted(const sn_passes *p, const sn_remark *r) {
    const sn_accepted *list;
    const int n = sn_module_accepted(p->m, &list);
    for (int i = 0; r->missed && i < n; i++)
        if (same_line(list[i].x->loc, r->node->loc)) return true;
    size_t used;
    for (const char *s = p->o.accept; r->missed && s && *s; s += used + (s[used] == ','))
        if (is_named(s, r, &used)) return true;
    return false;
}

/* "model.c:9, model.c:13": what is missed, to choose from. */
static const char *missed_lines(const sn_passes *p) {
    const char *all = "";
    for (int i = 0; i < p->n_remark; i++) {
        const sn_loc at = p->remark[i].node->loc;
        bool again = false;
        for (int k = 0; k < i; k++)
            again |= p->remark[k].missed && same_line(p->remark[k].node->loc, at);
        if (p->remark[i].missed && at.file && !again)
            all = sn_arena_printf(p->m, "%s%s%s:%d", all, *all ? ", " : "", at.file, at.line);
    }
    return *all ? all : "nothing";
}

bool sn_remarks_settle(sn_passes *p) {
    const sn_accepted *list;
    const int n = sn_module_accepted(p->m, &list), n_remark = p->n_remark;
    for (int i = 0; i < n; i++) {
        bool any = !sn_level_reaches(p->o.level, SN_LEVEL_HIGHEST);
        for (int k = 0; k < n_remark && !any; k++)
            any = p->remark[k].missed && same_line(list[i].x->loc, p->remark[k].node->loc);
        if (!any)
            sn_remark_add(
                p, "accept", list[i].x, false,
                "nothing in this line is unfused: sn_accept_unfused (%s:%d) has no effect",
                list[i].at.file, list[i].at.line);
    }
    size_t used = 0;
    for (const char *s = p->o.accept; s && *s; s += used + (s[used] == ',')) {
        bool any = false;
        used = strcspn(s, ",");
        for (int k = 0; k < n_remark && !any; k++)
            any = p->remark[k].missed && is_named(s, &p->remark[k], &used);
        if (any) continue;
        sn_module_fail(p->m, SN_ERR_USAGE,
                       "accept '%.*s': no line of this name, FILE:LINE, is reported as not fused; "
                       "there is: %s",
                       (int)used, s, missed_lines(p));
        return false;
    }
    return true;
}
