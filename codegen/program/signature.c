/* signature.c: what the entries of a program take and return, as text. */
#include "codegen/program/program.h"

static void print_tensor(FILE *f, const char *role, const char *name, const sn_node *n) {
    char shape[512];
    sn_shape_print(n->m, n->rank, n->shape, shape, sizeof shape);
    fprintf(f, "%s\t%s\t%s\t%s\n", role, name, sn_dtype_name((sn_dtype)n->dtype), shape);
}

void sn_program_signature(const sn_program *p, FILE *f) {
    if (!p || !f) return;
    for (int s = 0; s < sn_symbol_count(p->m); s++) {
        const sn_symbol *symbol = sn_symbol_at(p->m, s);
        fprintf(f, "dim\t%s\t%lld\t%lld\n", symbol->name, (long long)symbol->lo,
                (long long)symbol->hi);
    }
    for (int i = 0; i < p->n_leaf; i++) {
        const sn_leaf *leaf = &p->leaf[i];
        bool state = leaf->state && !sn_program_trained(p, leaf->name);
        print_tensor(f, state ? "state" : "param", leaf->name, leaf->node);
    }
    for (int e = 0; e < p->n_entry; e++) {
        if (sn_compiled_prepares(&p->entry[e])) continue;
        const sn_plan *plan = p->entry[e].code.plan;
        fprintf(f, "entry\t%s\n", plan->entry->name);
        for (int i = 0; i < plan->n_input; i++)
            print_tensor(f, "in", plan->input[i].name, plan->input[i].node);
        for (int i = 0; i < plan->entry->n_output; i++)
            print_tensor(f, "out", plan->entry->output[i].name, plan->entry->output[i].node);
    }
}
