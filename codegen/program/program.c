/* program.c: a compiled program: who owns it, and what it holds under a name. */
#include "codegen/program/program.h"
#include "passes/plan/collectives.h"

#include <stdlib.h>
#include <string.h>

void sn_program_free(sn_program *p) {
    if (!p || atomic_fetch_sub(&p->owners, 1) > 1) return;
    if (p->jit) sn_jit_destroy(p->jit);
    sn_module_free(p->m);
    free(p);
}

sn_program *sn_program_retain(sn_program *p) {
    atomic_fetch_add(&p->owners, 1);
    return p;
}

sn_stats sn_program_stats(const sn_program *p) {
    return p ? p->stats : (sn_stats){0};
}

bool sn_compiled_prepares(const sn_compiled_entry *c) {
    return !strncmp(c->code.plan->entry->name, SN_PREPARE ".", sizeof SN_PREPARE);
}

sn_compiled_entry *sn_program_entry(const sn_program *p, const char *name) {
    for (int i = 0; i < p->n_entry; i++)
        if (!strcmp(p->entry[i].code.plan->entry->name, name)) return &p->entry[i];
    return NULL;
}

int64_t sn_program_gathered(const sn_program *p) {
    int64_t maximum = 0;
    for (int e = 0; e < p->n_entry; e++) {
        int64_t bytes = sn_plan_gathered(p->entry[e].code.plan);
        maximum = bytes > maximum ? bytes : maximum;
    }
    return maximum;
}

const sn_node *sn_program_trained(const sn_program *p, const char *name) {
    for (int i = 0; i < p->n_trained; i++)
        if (!strcmp(sn_attr_str(p->trained[i], SN_A_name, ""), name)) return p->trained[i];
    return NULL;
}
