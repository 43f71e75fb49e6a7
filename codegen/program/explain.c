/* explain.c: for every kernel of an entry what it does and what was fused into it, then what was
 * not fused and why. */
#include "codegen/program/program.h"
#include "passes/choice.h"

#include <string.h>

static void print_call(FILE *f, int i, const sn_kernel_call *c) {
    if (*c->loop) fprintf(f, "      --- %s:\n", c->loop);
    fprintf(f, "%s%4d  %-10s %s%s%s", c->barrier ? "      --- barrier\n" : "", i, c->family,
            c->name, *c->name ? "  " : "", c->result);
    if (*c->fused) fprintf(f, "  %s", c->fused);
    fputs(c->when, f);
    if (*c->file) fprintf(f, "   (%s:%d)", c->file, c->line);
    fprintf(f, "\n        %s%s\n", strncmp(c->kernel, "sn_", 3) ? "" : "kernel ", c->kernel);
    for (const char *s = c->notes; *s;) {
        int n = (int)strcspn(s, "\n");
        fprintf(f, "        %.*s\n", n, s);
        s += n + (s[n] == '\n');
    }
}

static void print_entry(FILE *f, const sn_program *p, const sn_compiled_entry *c) {
    const sn_plan *plan = c->code.plan;
    int barriers = 0;
    for (int i = 0; i < plan->n_call; i++) barriers += plan->call[i]->barrier;
    fprintf(f, "entry %s: %d kernel calls, %d barriers, %d memory slots\n", plan->entry->name,
            plan->n_call, barriers, plan->n_slot);
    char products[256];
    sn_dim_print(p->m, c->code.products, products, sizeof products);
    if (c->code.products) fprintf(f, "  products: %s multiplications\n", products);
    const sn_kernel_call *call;
    sn_error err = {0};
    int n = sn_program_calls(p, plan->entry->name, NULL, &call, &err);
    if (n < 0) fprintf(f, "  %s\n", err.message);
    for (int i = 0; i < n; i++) print_call(f, i, &call[i]);
}

typedef struct lines {
    const sn_program *p;
    uint64_t entries; /* remarks and choices of others are left out */
    bool choices;
    const char **text;
    int n, cap;
} lines;

static void add_line(lines *l, const char *text) {
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->text[i], text)) return;
    l->text = sn_arena_grow(l->p->m, l->text, sizeof *l->text, l->n, &l->cap);
    l->text[l->n++] = text;
}

/* Where several kernels would be right: which one was taken, who said so and why. */
static void add_choice(lines *l, const sn_choice *q) {
    static const char *const taken[] = {"native kernel", "native kernels, not fused", "library"};
    sn_module *m = l->p->m;
    char shape[2][128] = {"", ""};
    bool two = q->node->n_in > 1;
    for (int k = 0; k < 2 && k < q->node->n_in; k++)
        sn_shape_print(m, q->node->in[k]->rank, q->node->in[k]->shape, shape[k], sizeof shape[k]);
    add_line(l, sn_arena_printf(m, "choice, %s %s%s%s: %s (%s)", sn_ops[q->node->op].name, shape[0],
                                two ? " " : "", shape[1], taken[q->chosen], q->why));
}

static void add_remark(lines *l, const sn_remark *r) {
    sn_module *m = l->p->m;
    const char *kind = !r->missed                                ? "note"
                       : sn_remark_is_accepted(&l->p->passes, r) ? "accepted"
                                                                 : "not fused";
    const char *place = r->node->loc.file
                            ? sn_arena_printf(m, "%s:%d: ", r->node->loc.file, r->node->loc.line)
                            : "";
    add_line(l, sn_arena_printf(m, "%s, %s: %s%s: %s", kind, r->pass, place,
                                sn_ops[r->node->op].name, r->text));
}

static void collect_remarks(void *ctx) {
    lines *l = ctx;
    const sn_passes *p = &l->p->passes;
    for (int i = 0; l->choices && i < p->n_choice; i++)
        if (p->choice[i]->entries & l->entries) add_choice(l, p->choice[i]);
    for (int i = 0; i < p->n_remark; i++)
        if (p->remark[i].entries & l->entries) add_remark(l, &p->remark[i]);
}

/* The bit of an entry, all bits without a name, 0 if there is none of that name. */
static uint64_t bits_of(const sn_program *p, const char *entry) {
    if (!entry) return ~(uint64_t)0;
    for (int i = 0; i < sn_entry_count(p->m); i++)
        if (!strcmp(sn_entry_at(p->m, i)->name, entry)) return sn_entry_bit(i);
    return 0;
}

int sn_program_remarks(const sn_program *p, const char *entry, bool choices,
                       const char *const **list, sn_error *err) {
    if (!p || !list) {
        sn_fail(err, SN_ERR_USAGE, "sn_program_remarks: the program or the list is NULL");
        return -1;
    }
    lines l = {.p = p, .entries = bits_of(p, entry), .choices = choices};
    if (!l.entries) {
        sn_fail(err, SN_ERR_USAGE, "sn_program_remarks: there is no entry '%s'", entry);
        return -1;
    }
    if (!sn_module_try(p->m, collect_remarks, &l)) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for the remarks");
        return -1;
    }
    *list = l.text;
    return l.n;
}

void sn_program_explain(const sn_program *p, const char *entry, FILE *f) {
    if (!p || !f) return;
    for (int i = 0; i < p->n_entry; i++)
        if (!entry || !strcmp(entry, p->entry[i].code.plan->entry->name) ||
            (!strcmp(entry, SN_PREPARE) && sn_compiled_prepares(&p->entry[i])))
            print_entry(f, p, &p->entry[i]);
    const char *const *text;
    const bool prepares = entry && !strcmp(entry, SN_PREPARE); /* those for all entries */
    int n = sn_program_remarks(p, prepares ? NULL : entry, true, &text, NULL);
    for (int i = 0; i < n; i++) fprintf(f, "%s\n", text[i]);
}
