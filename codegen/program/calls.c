/* calls.c: the kernel calls of a compiled entry as data: what each computes, where in the model, and
 * what it costs at given sizes. */
#include "codegen/program/calls.h"
#include "codegen/backend.h"
#include "codegen/program/sizes.h"
#include "codegen/program/visible.h"
#include "passes/plan/collectives.h"
#include "passes/plan/product.h"
#include "passes/plan/scan.h"

#include <stdarg.h>
#include <string.h>

/* Text that grows in a fixed buffer; what does not fit is cut. */
typedef struct text {
    char s[1024];
    size_t n;
} text;

static void add(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
    va_end(ap);
    t->n += n > 0 ? (size_t)n : 0;
    if (t->n >= sizeof t->s) t->n = sizeof t->s - 1;
}

/* ---- operations ---- */

/* What an epilogue's reductions are called; NULL: something else. The view that cuts rows in panels
 * for them has no name. */
static const char *name_along_rows(sn_op op) {
    return op == SN_OP_reduce_sum   ? "sums along rows"
           : op == SN_OP_reduce_max ? "maxima along rows"
           : op == SN_OP_reduce_min ? "minima along rows"
                                    : NULL;
}

/* "add, exp x2, mul": the operations of a region with their numbers. */
static void add_ops(text *t, sn_module *m, const sn_region *r, bool epilogue) {
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
        add(t, "%s%s", any ? ", " : "", sums ? sums : sn_ops[op].name);
        if (count[op] > 1) add(t, " x%d", count[op]);
        any = true;
    }
    if (!any) add(t, "copy");
}

static const sn_node *result_type(const sn_node *n) {
    return n->n_result > 1 ? n->result_type[0] : n;
}

static void add_fused(text *t, sn_module *m, const sn_node *n) {
    static const sn_attr_key regions[] = {SN_A_body, SN_A_prologue, SN_A_epilogue, SN_A_score,
                                          SN_A_mask};
    for (int r = 0; r < 5; r++) {
        const sn_region *region = sn_attr_region(n, regions[r]);
        if (!region) continue;
        add(t, "%s%s: ", t->n ? "  " : "", sn_attr_table[regions[r]].name);
        add_ops(t, m, region, regions[r] == SN_A_epilogue);
    }
    const sn_node *type = result_type(n);
    int64_t pair = sn_attr_int(n, SN_A_pair, 0);
    int64_t blocks = sn_attr_int(n, SN_A_blocks, 0), parts = blocks ? blocks : 1;
    bool gate = pair && type->shape[type->rank - 1] == pair / parts;
    if (pair && sn_kernel_of(n)->contraction)
        add(t, ", %s %lld %s", gate ? "gate of 2 x" : "pairs", (long long)pair,
            gate ? "columns" : "columns apart");
    if (blocks) add(t, "%s1 of %lld blocks for each row", t->n ? ", " : "", (long long)blocks);
}

/* The type of the factors of products, unless it is that of their sums. */
static void add_arithmetic(text *t, const sn_target *target, const sn_kernel *k) {
    const sn_node *n = k->step->node;
    const int64_t type = sn_attr_int(n, SN_A_compute, k->compute);
    const bool one = sn_kernel_of(n)->contraction,
               symmetric = one && sn_product_symmetric(k->m, k->step),
               tiles = target->amx && n->op == SN_OP_gemm && !symmetric;
    if (sn_kernel_of(n)->macs && type != (int64_t)k->compute)
        add(t, "product%s of %s%s\n", one ? "" : "s", sn_dtype_name((sn_dtype)type),
            tiles ? ", by AMX" : "");
    if (symmetric) add(t, "symmetric: multiplies one triangle\n");
}

/* How a product's constant right factor is stored, unless it is as wide as the product. */
static void add_storage(text *t, const sn_target *target, const sn_kernel *k) {
    const sn_step *s = k->step;
    const sn_node *n = s->node;
    if (n->op == SN_OP_pack_b || !sn_attr_get(n, SN_A_packed) || s->in[1].dtype == k->compute)
        return;
    int64_t group = sn_attr_int(n, SN_A_group, 0);
    if (sn_attr_get(n, SN_A_compute) && s->in[1].dtype == SN_BF16) return;
    if (!group) {
        bool int8 = s->in[1].dtype == SN_I32;
        add(t, int8 ? "weights: i8, product of 8-bit integers\n" : "weights: %s\n",
            sn_dtype_name(s->in[1].dtype));
        return;
    }
    const char *how = s->in[0].dtype != SN_I8              ? ""
                      : sn_target_multiplies_bytes(target) ? "; sums of integers"
                                                           : "; widened to f32";
    add(t, "weights: int%d in groups of %lld with %s of %s%s%s\n", s->in[1].dtype == SN_I8 ? 8 : 4,
        (long long)group, sn_attr_get(n, SN_A_minima) ? "scales and minima" : "scales",
        sn_dtype_name(s->in[2].dtype), sn_attr_get(n, SN_A_super) ? " times f16" : "", how);
}

/* ' "bias"' if the operand is a parameter, input or state, or a view of one; else "". */
static const char *leaf_name(sn_module *m, const sn_node *n) {
    while (n->n_in == 1 && (sn_ops[n->op].flags & SN_OPF_VIEW || n->op == SN_OP_cast)) n = n->in[0];
    const char *name = n->n_in ? NULL : sn_attr_str(n, SN_A_name, NULL);
    return name ? sn_arena_printf(m, " \"%s\"", name) : "";
}

/* Tiles of attention; for its gradient what the score's derivative costs and which captured tensors
 * get theirs from it. */
/* What a collective joins, and what runs while its bytes move. */
static void add_ranks(text *fused, text *notes, const sn_entry_code *u, int i) {
    const sn_step *s = u->plan->call[i];
    int wait = sn_plan_wait_of(u->plan, i), start;
    add(fused, "%s%s over %lld of \"%s\"", s->wait ? "wait for " : "", sn_ops[s->node->op].name,
        (long long)sn_attr_int(s->node, SN_A_ranks, 1), sn_attr_str(s->node, SN_A_mesh, ""));
    if (!s->wait) {
        if (wait > i + 1) add(notes, "calls %d to %d run meanwhile\n", i + 1, wait - 1);
        return;
    }
    for (start = i - 1; start >= 0 && u->plan->call[start]->node != s->node;) start--;
    if (s->wait == SN_WAIT_LEFT) {
        add(notes, "started by the run before, if it is still under way\n");
        return;
    }
    add(notes, "started by call %d\n", start);
    if (s->wait == SN_WAIT_LEAVE) add(notes, "may be left to the next run\n");
}

static void add_notes(text *t, const sn_program *p, const sn_kernel *k) {
    sn_module *m = p->m;
    char tiles[240];
    const sn_node *n = k->step->node;
    add_arithmetic(t, &p->target, k);
    add_storage(t, &p->target, k);
    if (!k->family->report) return;
    const sn_region *derivative = k->family->report(k, tiles, sizeof tiles);
    const sn_attr *wrt = sn_attr_get(n, SN_A_wrt);
    add(t, "%s\n", tiles);
    double rate = sn_attr_flt(n, SN_A_rate, 0);
    if (rate > 0) add(t, "drops %.3g of the weights, by counter\n", rate);
    if (derivative) {
        add(t, "score and its derivative: ");
        add_ops(t, m, derivative, false);
        add(t, "\n");
    }
    for (int i = 0; wrt && i < wrt->n; i++)
        add(t, "adds up the gradient of captured tensor %lld%s\n", (long long)wrt->v[i],
            leaf_name(m, n->in[SN_FLASH_GRAD_CAPTURED + wrt->v[i]]));
}

/* ---- costs ---- */

/* Elements that a view steps over; broadcast axes count once. */
static sn_dim view_elements(sn_module *m, const sn_view *v) {
    sn_dim n = 1;
    for (int i = 0; i < v->rank; i++)
        if (v->stride[i] != 0) n = sn_dim_mul(m, n, v->shape[i]);
    return n;
}

/* The shape of what the kernel picks from operand i by index; NULL: it reads all of it. */
static const sn_node *picked(sn_module *m, const sn_node *n, int i) {
    const sn_region *r = sn_attr_region(n, sn_kernel_of(n)->region);
    int arg = sn_kernel_region_arg(n, i);
    if (!r || arg < 0 || arg >= r->n_arg) return NULL;
    const sn_node *pick = NULL;
    sn_order order = sn_region_topo(m, r);
    for (int k = 0; k < order.n; k++) {
        const sn_node *x = order.node[k];
        for (int j = 0; j < x->n_in; j++) {
            if (x->in[j] != r->arg[arg]) continue;
            if (j > 0 || pick || !(sn_ops[x->op].flags & SN_OPF_RANDOM_ACCESS)) return NULL;
            pick = x;
        }
    }
    return pick;
}

static sn_call_operand operand(sn_module *m, const sn_plan *plan, const sn_view *v,
                               const sn_node *pick, bool result) {
    sn_dim n = pick ? sn_dim_product(m, pick->rank, pick->shape) : view_elements(m, v);
    return (sn_call_operand){n, &plan->buffer[v->buffer], sn_dtype_size(v->dtype), result};
}

/* Operand i of n holds weights of blocks of columns, and each row of y needs one of them: as many blocks
 * as y has rows, though not more than there are. */
static void count_blocks(sn_module *m, const sn_node *n, int i, const sn_view *y,
                         sn_call_operand *o) {
    int64_t blocks = sn_attr_int(n, SN_A_blocks, 0), all;
    bool weights = i > 0 && i < sn_kernel_prologue_operand(n) - 1;
    if (!blocks || !weights || !sn_dim_is_const(m, o->elements, &all)) return;
    o->elements = sn_dim_mul(m, all / blocks, sn_dim_product(m, y->rank - 1, y->shape));
}

sn_call_formula sn_call_formula_of(const sn_program *p, const sn_entry_code *u, int i) {
    const sn_kernel *k = &u->kernel[i];
    const sn_step *s = k->step;
    sn_module *m = p->m;
    sn_call_formula q = {.flops = k->traits->flops ? k->traits->flops(m, s) : 0,
                         .visible = 1,
                         .product = k->traits->macs != NULL,
                         .when = s->when,
                         .only_several = s->rows != 0,
                         .rows = s->rows,
                         .block_rows = s->block_rows};
    const sn_step *loop = sn_step_within(s, SN_STEP_ROWS);
    if (loop) q.rows = loop->rows, q.block_rows = loop->block_rows;
    if (q.product) q.flops = sn_dim_mul(m, 2, k->traits->macs(m, s));
    q.iterations = sn_scan_iterations(m, s, &q.segments);
    q.operand = sn_arena_alloc(m, sizeof *q.operand * (size_t)(s->n_in + s->n_out + 1));
    for (int o = 0; o < s->n_out; o++)
        q.operand[q.n_operand++] = operand(m, u->plan, &s->out[o], NULL, true);
    for (int o = 0; o < s->n_in; o++) {
        q.operand[q.n_operand] = operand(m, u->plan, &s->in[o], picked(m, s->node, o), false);
        count_blocks(m, s->node, o, &s->out[0], &q.operand[q.n_operand++]);
    }
    return q;
}

/* Whether a call runs depending on the iterations of a loop over rows. */
static bool counts_rows(sn_when w) {
    return w == SN_IF_FIRST || w == SN_IF_LATER || w == SN_IF_SINGLE || w == SN_IF_SEVERAL;
}

/* The share of the rows of a loop that a call in it computes; after it, whether it runs. */
static double share_of_rows(const sn_program *p, const sn_call_formula *q, const int64_t *symbol) {
    if (!counts_rows(q->when)) return 1;
    double rows = (double)sn_dim_eval(p->m, q->rows, symbol), first = (double)q->block_rows;
    bool several = rows > first;
    if (q->when == SN_IF_SINGLE) return !several;
    if (q->when == SN_IF_SEVERAL) return several;
    if (!several) return q->when == SN_IF_FIRST && !q->only_several;
    return q->when == SN_IF_FIRST ? first / rows : (rows - first) / rows;
}

void sn_call_cost(const sn_program *p, const sn_call_formula *q, const int64_t *symbol,
                  sn_kernel_call *call) {
    int64_t length = sn_dim_eval(p->m, q->segments, symbol), each = sn_scan_segment(length);
    double iterations = (double)sn_dim_eval(p->m, q->iterations, symbol);
    if (q->segments) iterations *= (double)((length + each - 1) / each);
    double share = share_of_rows(p, q, symbol), one = (double)sn_dim_eval(p->m, q->flops, symbol);
    call->operations = iterations * share * q->visible * one;
    call->flops = q->product ? call->operations : 0;
    call->bytes = call->result_bytes = 0;
    for (int i = 0; i < q->n_operand && share > 0; i++) {
        const sn_call_operand *o = &q->operand[i];
        int64_t n = sn_dim_eval(p->m, o->elements, symbol);
        int64_t all = sn_buffer_elements(p->m, o->buffer, symbol);
        double bytes = iterations * (double)(n < all ? n : all) * (double)o->element_bytes;
        call->bytes += bytes;
        if (o->result) call->result_bytes += bytes;
    }
}

/* ---- calls ---- */

/* The last call before i that writes the buffer; -1: none. */
static int writer(const sn_plan *plan, int i, int buffer) {
    while (--i >= 0)
        for (int k = 0; k < plan->call[i]->n_out; k++)
            if (plan->call[i]->out[k].buffer == buffer) return i;
    return -1;
}

static void add_reads(sn_module *m, const sn_plan *plan, int i, sn_kernel_call *call) {
    const sn_step *s = plan->call[i];
    int *list = sn_arena_alloc(m, sizeof *list * (size_t)(s->n_in + 1)), n = 0;
    for (int k = 0; k < s->n_in; k++) {
        int from = writer(plan, i, s->in[k].buffer), at = n;
        while (at > 0 && list[at - 1] > from) at--;
        if (from < 0 || (at > 0 && list[at - 1] == from)) continue;
        memmove(list + at + 1, list + at, sizeof *list * (size_t)(n - at));
        list[at] = from;
        n++;
    }
    call->reads = list;
    call->n_reads = n;
}

/* The loop that begins with the call, the outermost one. */
static const char *loop_of(sn_module *m, const sn_step *call) {
    const sn_step *loop = NULL, *s = call;
    char n[128], parts[128];
    for (; s->around && s->around->first == call->first; s = s->around)
        if (s->around->rows || s->around->scan) loop = s->around;
    if (!loop) return "";
    const sn_scan_loop *l = loop->scan;
    sn_dim_print(m, l ? l->length : loop->rows, n, sizeof n);
    if (!l)
        return sn_arena_printf(m, "%lld of %s rows at a time, up to call %d",
                               (long long)loop->block_rows, n, loop->last - 1);
    const sn_step *again = sn_scan_elements(loop)->inner;
    sn_dim_print(m, sn_dim_product(m, l->n_tile, l->parts), parts, sizeof parts);
    const char *text = !l->recomputes
                           ? ""
                           : sn_arena_printf(m,
                                             "; carries of the loop in the other direction: the "
                                             "first of each segment of sqrt(%s) elements is "
                                             "stored, calls %d to %d compute the others again",
                                             n, again->first, again->last - 1);
    return sn_arena_printf(
        m, "scan: for each of %s elements, in %s independent parts, up to call %d%s", n, parts,
        loop->last - 1, text);
}

static void describe(const sn_program *p, const sn_compiled_entry *c, int i,
                     const sn_mask_inputs *in, sn_visible_cache *cache, sn_kernel_call *call) {
    const sn_plan *plan = c->code.plan;
    const sn_kernel *k = &c->code.kernel[i];
    const sn_node *n = k->step->node, *type = result_type(n);
    sn_module *m = p->m;
    char shape[128];
    sn_shape_print(m, type->rank, type->shape, shape, sizeof shape);
    text fused = {.n = 0}, notes = {.n = 0};
    add_fused(&fused, m, n);
    if (k->step->why)
        add(&fused, " (%s)", k->step->why);
    else if (!k->step->n_in && !strcmp(fused.s, "body: copy"))
        add(&fused, " (a constant, for a kernel that reads it from memory)");
    add_notes(&notes, p, k);
    if (sn_step_is_collective(k->step)) add_ranks(&fused, &notes, &c->code, i);
    *call = (sn_kernel_call){
        .name = sn_call_name(p, c, i),
        .family = sn_kernel_family_name(k),
        .result = sn_arena_printf(m, "%s%s", sn_dtype_name((sn_dtype)type->dtype), shape),
        .fused = sn_arena_str(m, fused.s),
        .when = sn_when_text(k->step->when),
        .notes = sn_arena_str(m, notes.s),
        .file = n->loc.file ? n->loc.file : "",
        .line = n->loc.line,
        .barrier = k->step->barrier};
    call->kernel = sn_step_is_collective(k->step) ? (k->step->wait ? "wait" : "start")
                   : sn_step_is_extern(k->step)
                       ? sn_arena_printf(m, "primitive of %s %s", sn_backend_library()->title,
                                         sn_backend_library_version())
                       : sn_arena_printf(m, "%s%s", k->name, k->tuned ? k->tuned : "");
    call->loop = loop_of(m, k->step);
    add_reads(m, plan, i, call);
    sn_call_formula cost = sn_call_formula_of(p, &c->code, i);
    cost.visible = sn_visible_share(in, n, cache);
    sn_call_cost(p, &cost, in->symbol, call);
}

typedef struct request {
    const sn_program *p;
    const sn_compiled_entry *c;
    const char *sizes;
    const sn_arg_binding *in;
    int n_in;
    sn_kernel_call *list; /* the result */
    sn_error *err;
} request;

static void collect(void *ctx) {
    request *r = ctx;
    sn_module *m = r->p->m;
    int n = r->c->code.plan->n_call;
    int64_t *symbol = sn_arena_alloc(m, sizeof *symbol * (size_t)(sn_symbol_count(m) + 1));
    sn_sizes_middle(m, symbol);
    if (!sn_sizes_read(m, "sizes", r->sizes, symbol, r->err)) return;
    sn_kernel_call *list = sn_arena_alloc(m, sizeof *list * (size_t)(n + 1));
    const sn_mask_inputs in = {m, NULL, r->in, r->n_in, symbol};
    sn_visible_cache cache = {0};
    for (int i = 0; i < n; i++) describe(r->p, r->c, i, &in, &cache, &list[i]);
    r->list = list;
}

int sn_program_calls(const sn_program *p, const char *entry, const char *sizes,
                     const sn_kernel_call **list, sn_error *err) {
    return sn_program_calls_on(p, entry, sizes, NULL, 0, list, err);
}

int sn_program_calls_on(const sn_program *p, const char *entry, const char *sizes,
                        const sn_arg_binding *in, int n_in, const sn_kernel_call **list,
                        sn_error *err) {
    sn_error local = {0};
    if (!p || !list || !entry) {
        sn_fail(err, SN_ERR_USAGE, "sn_program_calls: the program, the entry or the list is NULL");
        return -1;
    }
    request r = {p, sn_program_entry(p, entry), sizes, in, n_in, NULL, &local};
    if (!r.c) sn_fail(&local, SN_ERR_USAGE, "there is no entry '%s'", entry);
    if (r.c && !sn_module_try(p->m, collect, &r))
        sn_fail(&local, SN_ERR_MEMORY, "out of memory for a report on '%s'", entry);
    if (local.code) {
        sn_fail(err, local.code, "%s", local.message);
        return -1;
    }
    *list = r.list;
    return r.c->code.plan->n_call;
}
