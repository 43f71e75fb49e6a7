/* pass.c: the driver: runs passes.def in order, verifies, dumps changes, collects remarks. */
#include "passes/passes.h"

#include <string.h>

const sn_pass_info sn_pass_table[] = {
#define PASS(name, level, fixpoint, ...) {SN_STAGE_##name, fixpoint, sn_pass_##name},
#define PART(...)
#include "passes/passes.def"
#undef PART
#undef PASS
};
const int sn_pass_count = (int)(sizeof sn_pass_table / sizeof *sn_pass_table);

/* Limit for fixpoint passes: each round shrinks the graph, so this only guards against bugs. */
enum { MAX_ROUNDS = 20 };

static const char *name_of(int i) {
    return sn_stages[sn_pass_table[i].stage].name;
}

/* Whether `name` is in `list` (separated by '+' or ','). */
static bool listed(const char *list, const char *name) {
    size_t len = strlen(name);
    for (const char *s = list; s && *s;) {
        size_t n = strcspn(s, "+,");
        if (n == len && !strncmp(s, name, len)) return true;
        s += n;
        if (*s) s++;
    }
    return false;
}

static bool check_list(sn_module *m, const char *where, const char *list) {
    for (const char *s = list; s && *s;) {
        size_t n = strcspn(s, "+,");
        bool known = n == 0;
        for (int i = 0; i < sn_pass_count && !known; i++)
            known = strlen(name_of(i)) == n && !strncmp(s, name_of(i), n);
        if (!known) {
            const char *names = name_of(0);
            for (int i = 1; i < sn_pass_count; i++)
                names = sn_arena_printf(m, "%s, %s", names, name_of(i));
            sn_module_set_loc(m, (sn_loc){0}); /* not caused by a line of the model */
            sn_module_fail(m, SN_ERR_USAGE, "%sthere is no pass '%.*s'; passes are %s", where,
                           (int)n, s, names);
            return false;
        }
        s += n;
        if (*s) s++;
    }
    return true;
}

static void dump(sn_passes *p, int number, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%02d-%s.sn", p->o.dump, number, name);
    FILE *f = fopen(path, "w");
    if (!f) return; /* a failing dump does not stop the compilation */
    sn_print_module(f, p->m);
    fclose(f);
}

static void record(sn_passes *p, const sn_pass_info *pass, int rewrites) {
    const sn_lineage *unused;
    if (!p->o.history) return;
    p->record = sn_arena_grow(p->m, p->record, sizeof *p->record, p->n_record, &p->cap_record);
    p->record[p->n_record++] =
        (sn_pass_record){pass, rewrites, sn_entries_save(p->m), sn_lineage_list(p->m, &unused)};
}

static bool run_table(sn_passes *p) {
    const sn_debug *dbg = sn_debug_get();
    const sn_pass_options *o = &p->o;
    sn_module *m = p->m;
    const bool verify = o->verify || dbg->verify;
    uint32_t checked = 0;
    for (int i = 0; i < sn_pass_count && !sn_module_error(m)->code; i++) {
        const sn_pass_info *pass = &sn_pass_table[i];
        bool run = o->only ? listed(o->only, name_of(i))
                           : sn_level_reaches(o->level, sn_stages[pass->stage].level);
        if (!run || listed(o->off, name_of(i)) || (dbg->off && listed(dbg->off, name_of(i))))
            continue;
        double start = sn_stage_begin();
        int total = 0, rounds = 0, n;
        do {
            p->n_entries_of = 0; /* nodes change */
            n = pass->run(p);
            total += n;
            if (verify && n && !sn_verify_new(m, &checked)) return false;
        } while (pass->fixpoint && n && ++rounds < MAX_ROUNDS && !sn_module_error(m)->code);
        sn_stage_end(pass->stage, start, total);
        if (total) record(p, pass, total);
        if (o->dump && total) dump(p, i + 1, name_of(i));
    }
    p->n_entries_of = 0;
    return !sn_module_error(m)->code && (!verify || sn_verify(m));
}

bool sn_passes_run(sn_passes *p, sn_module *m, const sn_pass_options *o) {
    *p = (sn_passes){.m = m, .o = *o};
    const sn_note *note;
    int n_note = sn_module_notes(m, &note);
    for (int i = 0; i < n_note; i++)
        sn_remark_add(p, "gradient", note[i].about, false, "%s", note[i].text);
    const sn_debug *dbg = sn_debug_get();
    if (!p->o.dump) p->o.dump = dbg->dump;
    if (!check_list(m, "", o->off) || !check_list(m, "", o->only) ||
        !check_list(m, "SINTER_DEBUG=off: ", dbg->off))
        return false;
    if (p->o.dump) dump(p, 0, "input");
    sn_lineage_keep(m, o->history);
    record(p, NULL, 0);
    sn_loc loc = sn_module_loc(m); /* what a pass makes is not of the model's last line */
    sn_module_set_loc(m, (sn_loc){0});
    bool ok = run_table(p) && sn_remarks_settle(p);
    sn_module_set_loc(m, loc);
    sn_lineage_keep(m, false);
    return ok;
}
