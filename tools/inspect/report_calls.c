/* report_calls.c: the kernel calls of an entry: what each costs, which operations it took by which
 * rule, and why its result is in memory. */
#include "codegen/program/calls.h"
#include "tools/inspect/report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- which rules fused the operations of a kernel ---- */

static const char *const rules[SN_HOLDS_COUNT] = {
    [SN_HOLDS_ELEMENTWISE] = "elementwise operations on the kernel's elements",
    [SN_HOLDS_RANDOM] = "random numbers are made where they are used",
    [SN_HOLDS_ROWS] = "reductions along rows and look-ups on the kernel's rows",
    [SN_HOLDS_PANEL_REDUCTION] = "reductions over a panel of columns that is in registers",
    [SN_HOLDS_COLUMN_SWAP] = "swaps of columns that are in registers (rotary embeddings)",
    [SN_HOLDS_HALVES] = "operations that join two halves of the columns (a gate and its values)",
    [SN_HOLDS_ROW_PROLOGUE] = "a norm of the left factor's rows, while they are packed",
    [SN_HOLDS_OPERAND] = "the operation that makes the operand of a reduction",
};

/* One rule with the operations that it brought in: "add, mul x2". */
static void add_rule(report *r, cJSON *why, const char *rule, int level, const int *count) {
    char text[400];
    size_t n = 0;
    text[0] = 0;
    for (int op = 0; op < SN_OP_COUNT; op++) {
        if (!count[op] || n + 64 > sizeof text) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", sn_ops[op].name);
        if (count[op] > 1) n += (size_t)snprintf(text + n, sizeof text - n, " x%d", count[op]);
    }
    if (!n) return;
    cJSON *o = report_object(r, why, NULL);
    report_text(r, o, "rule", rule);
    report_number(r, o, "level", level);
    report_text(r, o, "operations", text);
}

static bool is_work(const sn_node *n) {
    sn_op_kind kind = sn_ops[n->op].kind;
    return n->n_in > 0 && n->op != SN_OP_broadcast && n->op != SN_OP_slice &&
           n->op != SN_OP_reshape && (kind == SN_ELEM || kind == SN_PRIM);
}

static void add_region_rules(report *r, cJSON *why, sn_module *m, const sn_kernel *k,
                             const sn_region *region) {
    int count[SN_HOLDS_COUNT][SN_OP_COUNT] = {{0}};
    sn_order order = sn_region_topo(m, region);
    for (int i = 0; i < order.n; i++)
        if (is_work(order.node[i])) count[sn_kernel_part(order.node[i])][order.node[i]->op]++;
    for (int h = 0; h < SN_HOLDS_COUNT; h++)
        add_rule(r, why, rules[h], k->traits->holds[h], count[h]);
}

static void add_rules(report *r, cJSON *call, sn_module *m, const sn_kernel *k) {
    static const struct {
        sn_attr_key key;
        const char *rule;
    } regions[] = {{SN_A_score, "the score of attention is part of its loops"},
                   {SN_A_mask,
                    "the mask of attention is part of its loops; tiles that it hides are "
                    "skipped where the analysis of intervals shows it"}};
    cJSON *why = report_list(r, call, "why");
    const sn_node *n = k->step->node;
    const sn_region *body = sn_attr_region(n, k->traits->region);
    if (body) add_region_rules(r, why, m, k, body);
    const sn_region *prologue = sn_attr_region(n, SN_A_prologue);
    for (int i = -1; i < 2; i++) {
        const sn_region *region = i < 0 ? prologue : sn_attr_region(n, regions[i].key);
        int count[SN_OP_COUNT] = {0};
        if (!region) continue;
        sn_order order = sn_region_topo(m, region);
        for (int k2 = 0; k2 < order.n; k2++) count[order.node[k2]->op] += is_work(order.node[k2]);
        add_rule(r, why, i < 0 ? rules[SN_HOLDS_ROW_PROLOGUE] : regions[i].rule,
                 i < 0 ? (int)k->traits->holds[SN_HOLDS_ROW_PROLOGUE] : (int)SN_LEVEL_ATTENTION,
                 count);
    }
}

/* ---- why a result is in memory, and not in the kernel that reads it ---- */

typedef struct reasons {
    report *r;
    cJSON *list;
    const sn_program *p;
    const sn_compiled_entry *c;
    const explain_entry *e;
    int last; /* reader of the latest reason */
} reasons;

static void because(reasons *q, int reader, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void because(reasons *q, int reader, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cJSON *o = report_object(q->r, q->list, NULL);
    report_number(q->r, o, "reader", reader);
    report_text(q->r, o, "because", text);
}

static bool reduces(sn_module *m, const sn_region *body) {
    if (!body) return false;
    sn_order order = sn_region_topo(m, body);
    for (int i = 0; i < order.n; i++)
        if (sn_kernel_part(order.node[i]) == SN_HOLDS_ROWS && is_work(order.node[i])) return true;
    return false;
}

static int count_readers(const explain_entry *e, int call) {
    int n = 0;
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->call[i].n_reads; k++) n += e->call[i].reads[k] == call;
    return n;
}

/* Operand `operand` of call `reader` is a result of call `writer`. */
static void explain_read(reasons *q, int writer, int reader, int operand) {
    const sn_kernel *w = &q->c->code.kernel[writer], *k = &q->c->code.kernel[reader];
    const sn_node *n = k->step->node;
    sn_module *m = q->p->m;
    int level = q->p->passes.o.level, readers = count_readers(q->e, writer);
    sn_level rows = k->traits->holds[SN_HOLDS_ROWS];
    static const char *const flash[] = {"queries", "keys", "values"};
    if (k->traits->contraction && operand < 2) {
        because(q, reader, "it is the %s factor of a product, which reads it once for every %s",
                operand ? "right" : "left", operand ? "block of rows" : "panel of columns");
    } else if (k->traits->unit_rows && operand < 3) {
        because(q, reader, "attention reads its %s once for every block of queries or keys",
                flash[operand]);
    } else if (k->traits->contraction) {
        because(q, reader, "the epilogue of a product reads it; one kernel computes one product%s",
                w->traits->contraction ? "" : ", and no other rows");
    } else if (w->traits->contraction && reduces(m, sn_attr_region(n, k->traits->region))) {
        because(q, reader,
                "a product has one panel of columns at a time, but '%s' reduces whole "
                "rows",
                k->traits->name);
    } else if (w->traits->contraction) {
        because(q, reader,
                level < (int)SN_LEVEL_GEMM
                    ? "products have epilogues from level %d on"
                    : "the product has other readers, or its epilogue cannot hold this "
                      "(level %d)",
                (int)SN_LEVEL_GEMM);
    } else if (level < (int)rows || !sn_level_fuses(level)) {
        because(q, reader, "level %d does not join these operations", level);
    } else if (readers > 1) {
        because(q, reader, "%d kernels read it: computing it in each would cost more", readers);
    } else {
        because(q, reader, "the kernels work on different rows or have another order of reduction");
    }
}

static void explain_result(reasons *q, int i) {
    const sn_plan *plan = q->c->code.plan;
    const sn_step *s = plan->call[i];
    for (int o = 0; o < s->n_out; o++) {
        const sn_buffer *b = &plan->buffer[s->out[o].buffer];
        if (b->kind == SN_BUF_OUTPUT) because(q, -1, "it is the output '%s' of the entry", b->name);
        if (b->kind == SN_BUF_STATE) because(q, -1, "it is the state '%s'", b->name);
        for (int j = i + 1; j < plan->n_call; j++) {
            const sn_step *t = plan->call[j];
            bool read = false, written = false;
            for (int k = 0; k < t->n_in && !read; k++) {
                read = t->in[k].buffer == s->out[o].buffer;
                if (read && b->kind == SN_BUF_TEMP) explain_read(q, i, j, k);
            }
            for (int k = 0; k < t->n_out; k++) written |= t->out[k].buffer == s->out[o].buffer;
            if (written) break;
        }
    }
}

/* ---- the share of the roofline ---- */

/* The least seconds that the machine needs for the call's operations or bytes, and which they are. */
static void add_roof(report *r, cJSON *call, const sn_kernel_call *c, double seconds) {
    if (!(r->gflops > 0) || !(r->gbytes > 0)) return;
    double compute = c->flops / (1e9 * r->gflops), memory = c->bytes / (1e9 * r->gbytes);
    report_text(r, call, "bound", compute > memory ? "operations" : "bytes");
    report_number(r, call, "least_ms", 1e3 * fmax(compute, memory));
    if (seconds > 0) report_number(r, call, "roof", fmax(compute, memory) / seconds);
}

typedef struct request {
    report *r;
    cJSON *entry;
    const sn_program *p;
    const explain_entry *e;
} request;

static void add_calls(void *ctx) {
    request *q = ctx;
    report *r = q->r;
    const sn_compiled_entry *c = sn_program_entry(q->p, q->e->name);
    int i = 0;
    for (cJSON *o = cJSON_GetObjectItem(q->entry, "calls")->child; o && !r->full;
         o = o->next, i++) {
        add_rules(r, o, q->p->m, &c->code.kernel[i]);
        reasons w = {.r = r, .list = report_list(r, o, "in_memory"), .p = q->p, .c = c, .e = q->e};
        explain_result(&w, i);
        add_roof(r, o, &q->e->call[i], q->e->seconds ? q->e->seconds[i] : 0);
        if (q->e->seconds) report_flag(r, o, "above_peak", explain_above_peak(q->e, i));
        int file = report_file(r, q->e->call[i].file);
        if (file >= 0) report_number(r, o, "source", file);
    }
}

/* Moves the members of `from` to `to`. */
static void take_members(report *r, cJSON *to, cJSON *from) {
    for (cJSON *o; from && (o = from->child);) {
        cJSON_DetachItemViaPointer(from, o);
        char key[64];
        snprintf(key, sizeof key, "%s", o->string ? o->string : "");
        report_put(r, to, key, o);
    }
    if (!from) r->full = true;
    cJSON_Delete(from);
}

void report_calls(report *r, cJSON *entry, const sn_program *p, const explain_entry *e) {
    request q = {r, entry, p, e};
    take_members(r, entry, explain_entry_json(e));
    if (r->full) return;
    if (!sn_module_try(p->m, add_calls, &q)) r->full = true;
}
