/* report_memory.c: the plan of the workspace: where each temporary lies, and from which call to
 * which. */
#include "codegen/program/program.h"
#include "tools/inspect/report.h"

typedef struct request {
    report *r;
    cJSON *entry;
    const sn_program *p;
    const sn_plan *plan;
    const int64_t *symbol;
} request;

static int writer_of(const sn_plan *plan, int buffer) {
    for (int i = 0; i < plan->n_call; i++)
        for (int k = 0; k < plan->call[i]->n_out; k++)
            if (plan->call[i]->out[k].buffer == buffer) return i;
    return -1;
}

static void add_plan(void *ctx) {
    const request *q = ctx;
    const sn_plan *plan = q->plan;
    report *r = q->r;
    int64_t *offset = sn_arena_alloc(q->p->m, sizeof *offset * (size_t)(plan->n_slot + 1));
    int64_t kept[SN_BUF_TEMP + 1] = {0};
    sn_plan_offsets(plan, q->symbol, offset);
    for (int i = 0; i < plan->n_buffer; i++) {
        const sn_buffer *b = &plan->buffer[i];
        if (b->kind < SN_BUF_TEMP || (b->kind == SN_BUF_TEMP && b->first >= 0))
            kept[b->kind] += sn_buffer_bytes(q->p->m, b, q->symbol);
    }
    cJSON *o = report_object(r, q->entry, "memory");
    report_number(r, o, "calls", plan->n_call);
    report_number(r, o, "slots", plan->n_slot);
    report_number(r, o, "workspace_bytes", (double)offset[plan->n_slot]);
    report_number(r, o, "temporaries_bytes", (double)kept[SN_BUF_TEMP]);
    report_number(r, o, "parameters_bytes", (double)kept[SN_BUF_PARAM]);
    report_number(r, o, "states_bytes", (double)kept[SN_BUF_STATE]);
    report_number(r, o, "inputs_bytes", (double)kept[SN_BUF_INPUT]);
    report_number(r, o, "outputs_bytes", (double)kept[SN_BUF_OUTPUT]);
    cJSON *list = report_list(r, o, "buffers");
    for (int i = 0; i < plan->n_buffer && !r->full; i++) {
        const sn_buffer *b = &plan->buffer[i];
        if (b->kind != SN_BUF_TEMP || b->first < 0) continue;
        cJSON *item = report_object(r, list, NULL);
        report_number(r, item, "call", writer_of(plan, i));
        report_number(r, item, "slot", b->slot);
        report_number(r, item, "offset", (double)offset[b->slot]);
        report_number(r, item, "bytes", (double)sn_buffer_bytes(q->p->m, b, q->symbol));
        report_number(r, item, "first", b->first);
        report_number(r, item, "last", b->last);
    }
}

bool report_memory(report *r, cJSON *entry, const sn_program *p, const char *name,
                   const int64_t *symbol, sn_error *err) {
    const sn_compiled_entry *c = sn_program_entry(p, name);
    if (!c) return sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'", name);
    request q = {r, entry, p, c->code.plan, symbol};
    return (sn_module_try(p->m, add_plan, &q) && !r->full) ||
           sn_fail(err, SN_ERR_MEMORY, "out of memory for the memory plan of '%s'", name);
}
