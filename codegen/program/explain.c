/* explain.c: for every kernel of an entry what it does and what was fused into it, then what was
 * not fused and why. */
#include "codegen/backend.h"
#include "codegen/program/program.h"
#include "passes/choice.h"
#include "passes/plan/row_blocks.h"

#include <string.h>

/* What an epilogue's reductions are called; NULL: something else. The view that cuts rows in panels
 * for them has no name. */
static const char *name_along_rows(sn_op op) {
    return op == SN_OP_reduce_sum   ? "sums along rows"
           : op == SN_OP_reduce_max ? "maxima along rows"
           : op == SN_OP_reduce_min ? "minima along rows"
                                    : NULL;
}

/* "add, exp x2, mul": the operations of a region, most used first in order of appearance. */
static void print_ops(FILE *f, sn_module *m, const sn_region *r, bool epilogue) {
    int count[SN_OP_COUNT] = {0};
    if (!r) return;
    sn_order order = sn_region_topo(m, r);
    for (int i = 0; i < order.n; i++) {
        sn_op op = (sn_op)order.node[i]->op;
        bool moves = op == SN_OP_arg || op == SN_OP_broadcast || op == SN_OP_slice;
        if (op != SN_OP_const && !moves) count[op]++;
    }
    bool any = false;
    for (int op = 0; op < SN_OP_COUNT; op++) {
        if (!count[op] || (epilogue && op == SN_OP_reshape)) continue;
        const char *sums = epilogue ? name_along_rows((sn_op)op) : NULL;
        fprintf(f, "%s%s", any ? ", " : "", sums ? sums : sn_ops[op].name);
        if (count[op] > 1) fprintf(f, " x%d", count[op]);
        any = true;
    }
    if (!any) fputs("copy", f);
}

/* Tiles of attention; for its gradient what the score's derivative costs and which captured tensors
 * get theirs from it. */
static void print_report(FILE *f, sn_module *m, const sn_kernel *k) {
    char tiles[240];
    const sn_region *derivative = k->family->report(k, tiles, sizeof tiles);
    const sn_attr *wrt = sn_attr_get(k->step->node, SN_A_wrt);
    fprintf(f, "        %s\n", tiles);
    double rate = sn_attr_flt(k->step->node, SN_A_rate, 0);
    if (rate > 0) fprintf(f, "        drops %.3g of the weights, by counter\n", rate);
    if (derivative) {
        fputs("        score and its derivative: ", f);
        print_ops(f, m, derivative, false);
        fputc('\n', f);
    }
    for (int i = 0; wrt && i < wrt->n; i++)
        fprintf(f, "        adds up the gradient of captured tensor %lld\n", (long long)wrt->v[i]);
}

static void print_step(FILE *f, sn_module *m, const sn_entry_code *u, int i) {
    const sn_step *s = &u->plan->step[i];
    const sn_node *n = s->node;
    char shape[128];
    const sn_node *type = n->n_result > 1 ? n->result_type[0] : n;
    sn_shape_print(m, type->rank, type->shape, shape, sizeof shape);
    fprintf(f, "%s%4d  %-10s %s%s", s->barrier ? "      --- barrier\n" : "", i,
            sn_kernel_family_name(&u->kernel[i]), sn_dtype_name((sn_dtype)type->dtype), shape);
    static const sn_attr_key regions[] = {SN_A_body, SN_A_prologue, SN_A_epilogue, SN_A_score,
                                          SN_A_mask};
    for (int r = 0; r < 5; r++) {
        const sn_region *region = sn_attr_region(n, regions[r]);
        if (!region) continue;
        fprintf(f, "  %s: ", sn_attr_table[regions[r]].name);
        print_ops(f, m, region, regions[r] == SN_A_epilogue);
    }
    int64_t pair = sn_attr_int(n, SN_A_pair, 0);
    bool gate = pair && type->shape[type->rank - 1] == pair;
    if (pair && sn_kernel_of(n)->contraction)
        fprintf(f, ", %s %lld %s", gate ? "gate of 2 x" : "pairs", (long long)pair,
                gate ? "columns" : "columns apart");
    fputs(sn_row_blocks_iteration(s->iteration), f);
    if (n->loc.file) fprintf(f, "   (%s:%d)", n->loc.file, n->loc.line);
    if (sn_step_is_extern(s))
        fprintf(f, "\n        primitive of %s %s\n", sn_backend_library()->title,
                sn_backend_library_version());
    else
        fprintf(f, "\n        kernel %s%s\n", u->kernel[i].name,
                u->kernel[i].tuned ? u->kernel[i].tuned : "");
    if (u->kernel[i].family->report) print_report(f, m, &u->kernel[i]);
}

static void print_entry(FILE *f, const sn_program *p, const sn_compiled_entry *c) {
    const sn_plan *plan = c->code.plan;
    int barriers = 0;
    for (int i = 0; i < plan->n_step; i++) barriers += plan->step[i].barrier;
    fprintf(f, "entry %s: %d kernel calls, %d barriers, %d memory slots\n", plan->entry->name,
            plan->n_step, barriers, plan->n_slot);
    char products[256];
    sn_dim_print(p->m, c->code.products, products, sizeof products);
    if (c->code.products) fprintf(f, "  products: %s multiplications\n", products);
    for (int i = 0; i < plan->n_step; i++) {
        const sn_row_loop *loop = sn_row_blocks_loop(plan, i);
        if (loop && i == loop->first) {
            char rows[128];
            sn_dim_print(p->m, loop->rows, rows, sizeof rows);
            fprintf(f, "      --- %lld of %s rows at a time, up to call %d:\n",
                    (long long)loop->block_rows, rows, loop->last - 1);
        }
        print_step(f, p->m, &c->code, i);
    }
}

/* Where several kernels would be right, which one was taken, who said so and why. */
static void print_choices(FILE *f, const sn_passes *p) {
    static const char *const taken[] = {"native kernel", "native kernels, not fused", "library"};
    for (int i = 0; i < p->n_choice; i++) {
        const sn_choice *q = p->choice[i];
        char shape[2][128] = {"", ""};
        for (int k = 0; k < 2 && k < q->node->n_in; k++)
            sn_shape_print(p->m, q->node->in[k]->rank, q->node->in[k]->shape, shape[k],
                           sizeof shape[k]);
        bool two = q->node->n_in > 1;
        fprintf(f, "choice, %s %s%s%s: %s", sn_ops[q->node->op].name, shape[0], two ? " " : "",
                shape[1], taken[q->chosen]);
        fprintf(f, " (%s)\n", q->why);
    }
}

void sn_program_explain(const sn_program *p, const char *entry, FILE *f) {
    if (!p || !f) return;
    for (int i = 0; i < p->n_entry; i++)
        if (!entry || !strcmp(entry, p->entry[i].code.plan->entry->name) ||
            (!strcmp(entry, SN_PREPARE) && sn_compiled_prepares(&p->entry[i])))
            print_entry(f, p, &p->entry[i]);
    print_choices(f, &p->passes);
    for (int i = 0; i < p->passes.n_remark; i++) {
        const sn_remark *r = &p->passes.remark[i];
        fprintf(f, "%s %s: ", r->missed ? "not fused," : "note,", r->pass);
        if (r->node->loc.file) fprintf(f, "%s:%d: ", r->node->loc.file, r->node->loc.line);
        fprintf(f, "%s: %s\n", sn_ops[r->node->op].name, r->text);
    }
}
