/* store_bf16.c: stores in bf16 what the forward part of a training step keeps for its backward part
 * (option `precision`), and what only products of bf16 read (option `compute`); sums, weights and
 * optimizer states stay f32.
 *
 * Requires fused nodes, native or oneDNN's (after choose), because only those determine what is
 * stored. The forward part is what the output "loss" depends on. A tensor that a forward kernel
 * stores and another part reads is rounded in the epilogue of the kernel that computes it, and
 * widened by its readers: in the bodies of loops and epilogues by a cast; as a factor of a product
 * and as an operand of attention by those kernels. The gradients computed by attention are
 * narrowed, too: they have the types of its operands. Breaks values by the rounding, on purpose:
 * casts and types express it, so the evaluator computes exactly what the kernels do. A factor of
 * products of bf16 keeps its value: they would round it. A tensor with a reader that cannot widen it
 * stays f32. Terminates: one walk. */
#include "passes/choice.h"
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/passes.h"

#include <string.h>

enum {
    MIN_ROW = 16,      /* minimum length of the last axis for a tensor to count as large */
    MIN_ELEMENTS = 512 /* minimum number of elements if the size is known */
};

typedef struct narrower {
    sn_module *m;
    sn_order order;
    uint8_t *forward; /* by id: the loss depends on it */
    uint8_t *crosses; /* by id: read outside the forward part */
    uint8_t *wide;    /* by id: has a reader that needs f32 */
    uint8_t *other;   /* by id: has a reader that is not a product of bf16 */
    uint32_t *needed; /* by id of a node with several results: bit i: result i is needed in f32 */
    uint32_t *exact;  /* ... bit i: has a reader that is not a product of bf16 */
    uint32_t *narrow; /* by id of a kernel: bit i: store result i in bf16 */
    sn_node **made;   /* by id: the replacement */
    int count;
} narrower;

bool sn_narrow_knows(const char *name) {
    return !strcmp(name, "bf16");
}

static bool renames(const sn_node *n) { /* has its operands' type, and computes nothing */
    return n->op != SN_OP_result && (sn_is_view(n) || n->op == SN_OP_concat);
}

/* ---- readers ---- */

static bool looks_up(const sn_region *r, int arg) {
    sn_order order = sn_region_topo(r->out[0]->m, r);
    for (int i = 0; i < order.n; i++)
        if (sn_reads_far(order.node[i], 0) && sn_below_views(order.node[i]->in[0]) == r->arg[arg])
            return true;
    return false;
}

static bool
is_primitive(const sn_node *kernel) { /* writes f32; reads it, but for factors of bf16 */
    return sn_attr_get(kernel, SN_A_backend) != NULL;
}

static bool is_factor(const sn_node *n, int i) { /* of a product of bf16 */
    return i < 32 && sn_kernel_of(n)->factors >> i & 1 && sn_attr_get(n, SN_A_compute);
}

/* Whether the kernel n can widen operand i. */
static bool widens(const narrower *w, const sn_node *n, int i) {
    const sn_kernel_traits *kernel = sn_kernel_of(n);
    const sn_region *body = sn_attr_region(n, SN_A_body);
    if (is_primitive(n)) return is_factor(n, i);
    if (sn_attr_get(n, SN_A_prologue) || (body && looks_up(body, i))) return false;
    bool takes = kernel->widens == SN_ALL_OPERANDS || (i < 32 && kernel->widens >> i & 1);
    return takes && !(i < kernel->result_types && w->needed[n->id] >> i & 1);
}

/* Whether operand i is a factor that n rounds to bf16 and a result that gets its type is another one. */
static bool rounds_factor(const narrower *w, const sn_node *n, int i) {
    const sn_kernel_traits *kernel = sn_kernel_of(n);
    return is_factor(n, i) && !(i < kernel->result_types && w->exact[n->id] >> i & 1);
}

static void find_readers(narrower *w, const sn_entry *e) {
    for (int i = 0; i < e->n_output; i++) w->wide[e->output[i].node->id] = 1;
    for (int i = 0; i < e->n_assign; i++) w->wide[e->assign[i].node->id] = 1;
    for (int k = w->order.n; k-- > 0;) {
        const sn_node *n = w->order.node[k];
        bool backward = !w->forward[n->id];
        for (int i = 0; i < n->n_in; i++) {
            uint32_t x = n->in[i]->id;
            if (n->op == SN_OP_result) {
                int64_t at = sn_attr_int(n, SN_A_index, 0);
                w->needed[x] |= (uint32_t)w->wide[n->id] << at;
                w->exact[x] |= (uint32_t)w->other[n->id] << at;
                continue;
            }
            bool through = renames(n);
            w->wide[x] |= through ? w->wide[n->id] : !widens(w, n, i);
            w->crosses[x] |= through ? w->crosses[n->id] : backward;
            w->other[x] |= through ? w->other[n->id] : !rounds_factor(w, n, i);
        }
    }
}

static void mark_forward(narrower *w, const sn_node *loss) {
    w->forward[loss->id] = 1;
    for (int k = w->order.n; k-- > 0;) {
        const sn_node *n = w->order.node[k];
        for (int i = 0; w->forward[n->id] && i < n->n_in; i++) w->forward[n->in[i]->id] = 1;
    }
}

/* ---- what is stored narrow ---- */

static bool is_large(const sn_node *n) {
    int64_t count;
    if (n->rank < 2 || sn_dim_hi(n->m, n->shape[n->rank - 1]) < MIN_ROW) return false;
    return !sn_dim_is_const(n->m, sn_dim_product(n->m, n->rank, n->shape), &count) ||
           count >= MIN_ELEMENTS;
}

static void choose(narrower *w) {
    for (int k = 0; k < w->order.n; k++) {
        const sn_node *n = w->order.node[k], *kernel = n->op == SN_OP_result ? n->in[0] : n;
        bool rounds = sn_kernel_of(kernel)->rounds && !is_primitive(kernel);
        bool kept = w->forward[kernel->id] && w->crosses[n->id];
        if (!rounds || n->n_result > 1 || n->dtype != SN_F32 || (!kept && w->other[n->id]) ||
            w->wide[n->id] || !is_large(n))
            continue;
        w->narrow[kernel->id] |= 1u << (n == kernel ? 0 : sn_attr_int(n, SN_A_index, 0));
        w->count++;
    }
}

/* ---- rebuilding kernels ---- */

/* The region for operands `in` (arguments `first` and up), some of them narrower than
 * before, with casts of the results that are stored narrow. */
static sn_region *refit(sn_module *m, const sn_region *r, int first, sn_node *const *in,
                        uint32_t narrow) {
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)(r->n_arg + 1));
    sn_node **wide = sn_arena_alloc(m, sizeof *wide * (size_t)(r->n_arg + 1));
    sn_node **out = sn_arena_alloc(m, sizeof *out * (size_t)r->n_out);
    for (int i = 0; i < r->n_arg; i++) {
        const sn_node *old = r->arg[i];
        sn_dtype t = (sn_dtype)(i < first ? old : in[i - first])->dtype;
        arg[i] = sn_arg(m, i, t, old->rank, old->shape);
        wide[i] = sn_b_cast(arg[i], (sn_dtype)old->dtype);
    }
    sn_region_inline(r, wide, out);
    for (int i = 0; i < r->n_out; i++)
        if (narrow >> i & 1) out[i] = sn_b_cast(out[i], SN_BF16);
    return sn_region_new(m, r->n_arg, arg, r->n_out, out);
}

/* The identity epilogue: it defines the type of the product of narrow factors. */
static sn_region *plain_epilogue(const sn_node *gemm) {
    sn_node *product = sn_arg(gemm->m, 0, (sn_dtype)gemm->dtype, gemm->rank, gemm->shape);
    return sn_region_new(gemm->m, 1, &product, 1, &product);
}

/* The kernel n for operands `in`, with its body or epilogue adapted. */
static sn_node *with_region(narrower *w, const sn_node *n, sn_node *const *in) {
    sn_attr_key key = sn_kernel_of(n)->region;
    int first = sn_kernel_region_operand(n);
    const sn_region *r = sn_attr_region(n, key);
    sn_attr *attr = sn_arena_alloc(w->m, sizeof *attr * (size_t)(n->n_attr + 1));
    int count = 0;
    for (int i = 0; i < n->n_attr; i++)
        if (n->attr[i].key != key) attr[count++] = n->attr[i];
    if (!r) r = plain_epilogue(n);
    r = refit(w->m, r, sn_kernel_region_arg(n, first), in + first, w->narrow[n->id]);
    attr[count++] = (sn_attr){.key = key, .r = r};
    return sn_node_new(w->m, (sn_op)n->op, n->n_in, in, count, attr);
}

/* The operands of a concat must have one type. */
static void widen_parts(int n, sn_node **in) {
    bool differ = false;
    for (int i = 1; i < n; i++) differ |= in[i]->dtype != in[0]->dtype;
    for (int i = 0; differ && i < n; i++) {
        if (in[i]->dtype == SN_F32) continue;
        sn_node *x = in[i], *y = sn_b_cast(x, SN_F32);
        in[i] = sn_node_new(x->m, SN_OP_map_reduce, 1, &x,
                            SN_ATTRS(SN_REG(body, sn_region_extract(x->m, 1, &x, 1, &y))));
    }
}

static sn_node *rebuild(narrower *w, sn_node *n) {
    sn_node **in = sn_arena_alloc(w->m, sizeof *in * (size_t)(n->n_in + 1));
    bool same = !w->narrow[n->id];
    for (int i = 0; i < n->n_in; i++) {
        in[i] = w->made[n->in[i]->id];
        same &= in[i]->dtype == n->in[i]->dtype;
    }
    sn_module_set_loc(w->m, n->loc);
    if (n->op == SN_OP_concat) widen_parts(n->n_in, in);
    bool only_factors =
        rounds_factor(w, n, 0) && !w->narrow[n->id] && !sn_attr_region(n, SN_A_epilogue);
    if (!same && sn_kernel_of(n)->rounds && !only_factors) return with_region(w, n, in);
    return n->n_in ? sn_node_with(n, in) : n;
}

static const sn_node *loss_of(const sn_entry *e) {
    for (int i = 0; e->n_assign && i < e->n_output; i++)
        if (!strcmp(e->output[i].name, "loss")) return e->output[i].node;
    return NULL;
}

/* loss NULL: only for products of bf16. */
static int narrow_entry(sn_module *m, sn_entry *e, const sn_node *loss) {
    uint32_t n = sn_module_node_count(m);
    narrower w = {.m = m, .order = sn_entry_topo(m, e)};
    w.forward = sn_arena_alloc(m, n);
    w.crosses = sn_arena_alloc(m, n);
    w.wide = sn_arena_alloc(m, n);
    w.other = sn_arena_alloc(m, n);
    w.needed = sn_arena_alloc(m, sizeof *w.needed * n);
    w.exact = sn_arena_alloc(m, sizeof *w.exact * n);
    w.narrow = sn_arena_alloc(m, sizeof *w.narrow * n);
    w.made = sn_arena_alloc(m, sizeof *w.made * n);
    if (loss) mark_forward(&w, loss);
    find_readers(&w, e);
    choose(&w);
    if (!w.count) return 0;
    for (int i = 0; i < w.order.n && !sn_module_error(m)->code; i++)
        w.made[w.order.node[i]->id] = rebuild(&w, w.order.node[i]);
    if (!sn_module_error(m)->code) sn_entry_become(e, false, w.made);
    sn_lineage_add_map(m, w.made, n);
    return w.count;
}

int sn_pass_store_bf16(sn_passes *p) {
    sn_loc loc = sn_module_loc(p->m);
    int count = 0;
    if (!p->o.precision && !p->o.bf16_compute) return 0;
    for (int i = 0; i < sn_entry_count(p->m); i++) {
        sn_entry *e = sn_entry_at(p->m, i);
        const sn_node *loss = p->o.precision ? loss_of(e) : NULL;
        if (loss || p->o.bf16_compute) count += narrow_entry(p->m, e, loss);
    }
    sn_module_set_loc(p->m, loc);
    return count;
}
