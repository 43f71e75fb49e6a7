/* raise.c: recognises composites in plain operations, however they are written. The rules are rows
 * of rules.def; each node is simplified before and after (simplify.h), so a rule has one form to match.
 *
 * Requires nothing; runs best after simplify. Keeps dtype and shape, and values up to rounding
 * where they are finite: a row that is entirely hidden becomes 0 instead of NaN (as softmax is
 * defined), and overflows that the composite avoids disappear. Taps are raised too, but do not
 * count as users.
 *
 * Terminates: each rule replaces primitives by one composite that contains them, or moves a factor
 * or summand into a composite; no rule expands one, except matmul, once. */
#include "passes/raise/raise.h"
#include "passes/graph_util.h"
#include "passes/grouped.h"
#include "passes/simplify/simplify.h"

#include <pthread.h>
#include <string.h>

enum { MAX_STEPS = 32 }; /* maximum number of consecutive rewrites of a node: guards against bugs */
enum { MAX_ROUNDS = 20 };

static void add_uses(sn_raiser *r, const sn_node *n, uint32_t count) {
    if (n->id >= r->n_uses) {
        uint32_t size = n->id + n->id / 2 + 64;
        uint32_t *grown = sn_arena_alloc(r->m, sizeof *grown * size);
        if (r->n_uses) memcpy(grown, r->uses, sizeof *grown * r->n_uses);
        r->uses = grown;
        r->n_uses = size;
    }
    r->uses[n->id] += count;
}

static const sn_rule_row list[] = {
#define RULE(...) SN_RULE_ROW(__VA_ARGS__),
#define CODE(id, from, on)                                                                         \
    {.name = #id, .level = SN_LEVEL_##from, .op = SN_OP_##on, .rewrite = sn_raise_##id},
#define RAISE(id, from, on)                                                                        \
    {.name = #id, .level = SN_LEVEL_##from, .op = SN_OP_##on, .raise = sn_raise_##id},
#include "passes/raise/rules.def"
};

sn_rules sn_raise_rules = {.rule = list, .n = sizeof list / sizeof *list};

static void read_rules(void) {
    sn_rules_read(&sn_raise_rules);
}

static sn_node *raise_node(sn_raiser *r, sn_node *n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int level = sn_passes_level(r->p);
    pthread_once(&once, read_rules);
    n = sn_simplify_node(n, level);
    if (r->for_gradient && n->op == SN_OP_scan)
        n = sn_simplify_regions(n, level); /* as the pass has done */
    for (int step = 0; step < MAX_STEPS && !sn_module_error(r->m)->code; step++) {
        sn_node *x = sn_rules_apply(&sn_raise_rules, r, level, n);
        if (!x) break;
        n = sn_simplify_node(x, level);
    }
    return r->for_gradient && n->op == SN_OP_dot ? sn_group_lookup(n) : n;
}

/* Adds an entry with these results to what uses are counted in. */
static void count_in_entry(sn_raiser *r, int n, sn_node *const *root, uint32_t *uses,
                           uint32_t *maximum) {
    const sn_order order = r->of_entry[r->n_entry++] = sn_topo(r->m, n, root);
    for (int i = 0; i < order.n; i++) uses[order.node[i]->id] = 0;
    for (int i = 0; i < n; i++) uses[root[i]->id]++;
    for (int i = 0; i < order.n; i++)
        for (int j = 0; j < order.node[i]->n_in; j++) uses[order.node[i]->in[j]->id]++;
    for (int i = 0; i < order.n; i++) {
        const uint32_t id = order.node[i]->id;
        if (uses[id] > maximum[id]) maximum[id] = uses[id];
    }
}

/* The users of each node, by id, and what each entry needs. more: a result beside those of the last entry,
 * which is probably the one that is being built; or NULL. */
static uint32_t *count_uses(sn_raiser *r, sn_node *more) {
    sn_module *m = r->m;
    size_t bytes = sizeof(uint32_t) * sn_module_node_count(m);
    uint32_t *maximum = sn_arena_alloc(m, bytes), *uses = sn_arena_alloc(m, bytes);
    const int n_entry = sn_entry_count(m), last = n_entry ? n_entry - 1 : 0;
    r->of_entry = sn_arena_alloc(m, sizeof *r->of_entry * (size_t)(n_entry + 1));
    for (int k = 0; k < n_entry || (more && k == last); k++) {
        const sn_entry none = {.n_output = 0}, *e = n_entry ? sn_entry_at(m, k) : &none;
        int n = 0;
        sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(e->n_output + e->n_assign + 1));
        for (int i = 0; i < e->n_output; i++) root[n++] = e->output[i].node;
        for (int i = 0; i < e->n_assign; i++) root[n++] = e->assign[i].node;
        if (more && k == last) root[n++] = more;
        count_in_entry(r, n, root, uses, maximum);
    }
    return maximum;
}

static sn_node *instead_of(void *ctx, sn_node *n) {
    const sn_raiser *r = ctx;
    return n->id < r->n_old && r->replacement[n->id] ? r->replacement[n->id] : n;
}

/* What each node below the roots becomes, by id. */
static sn_node **raise_all(sn_raiser *r, int n_root, sn_node *const *root, const uint32_t *uses,
                           int *count) {
    sn_module *m = r->m;
    sn_node **made = sn_arena_alloc(m, sizeof *made * sn_module_node_count(m));
    sn_order order = r->order = sn_topo(m, n_root, root);
    sn_loc loc = sn_module_loc(m);
    r->users = uses;
    r->n_old = sn_module_node_count(m);
    r->replacement = sn_arena_alloc(m, sizeof *r->replacement * r->n_old);
    for (int i = 0; i < order.n && !sn_module_error(m)->code; i++) {
        sn_node *old = order.node[i], *n = old;
        if (old->n_in) {
            sn_node **in = sn_arena_alloc(m, sizeof *in * old->n_in);
            for (int j = 0; j < old->n_in; j++) in[j] = made[old->in[j]->id];
            n = sn_node_with(old, in);
        }
        sn_module_set_loc(m, old->loc);
        made[old->id] = raise_node(r, n);
        add_uses(r, made[old->id], uses[old->id]);
        *count += made[old->id] != n;
    }
    sn_module_set_loc(m, loc);
    if (!r->has_replacement || sn_module_error(m)->code) return made;
    sn_node **all = sn_arena_alloc(m, sizeof *all * (size_t)order.n);
    for (int i = 0; i < order.n; i++) all[i] = made[order.node[i]->id];
    *count += sn_rewrite(m, order.n, all, instead_of, r);
    for (int i = 0; i < order.n; i++) made[order.node[i]->id] = all[i];
    return made;
}

static bool raise_nodes(const sn_raiser *outside, int n, sn_node **root) {
    sn_module *m = outside->m;
    bool any = false;
    for (int round = 0, count = 1; round < MAX_ROUNDS && count; round++) {
        size_t bytes = sizeof(uint32_t) * sn_module_node_count(m);
        uint32_t *maximum = sn_arena_alloc(m, bytes);
        sn_raiser r = {.p = outside->p,
                       .m = m,
                       .for_gradient = outside->for_gradient,
                       .raise_nodes = raise_nodes};
        r.of_entry = sn_arena_alloc(m, sizeof *r.of_entry);
        count_in_entry(&r, n, root, sn_arena_alloc(m, bytes), maximum);
        count = 0;
        sn_node **made = raise_all(&r, n, root, maximum, &count);
        if (sn_module_error(m)->code) return false;
        for (int i = 0; i < n; i++) root[i] = made[root[i]->id];
        any |= count;
    }
    return any;
}

/* A round reports again what still prevents a match. */
static void forget_remarks(sn_passes *p) {
    int n = 0;
    for (int i = 0; i < p->n_remark; i++)
        if (strcmp(p->remark[i].pass, "raise") != 0) p->remark[n++] = p->remark[i];
    p->n_remark = n;
}

int sn_pass_raise(sn_passes *p) {
    sn_module *m = p->m;
    forget_remarks(p);
    int n_live, n_root = sn_module_roots(m, NULL, &n_live, false), count = 0;
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n_root + 1));
    sn_module_roots(m, root, &n_live, false);
    sn_raiser r = {.p = p, .m = m, .raise_nodes = raise_nodes};
    uint32_t n_old = sn_module_node_count(m);
    sn_node **made = raise_all(&r, n_root, root, count_uses(&r, NULL), &count);
    if (sn_module_error(m)->code) return count;
    sn_lineage_add_map(m, made, n_old);
    for (int i = 0; i < n_root; i++) root[i] = made[root[i]->id];
    sn_module_roots(m, root, &n_live, true);
    if (!count && sn_raise_wants_attention(&r)) sn_raise_report(&r, n_live, root);
    return count;
}

/* ---- before a gradient ---- */

/* One round; outputs before the gradient count as users, too. */
static sn_node **raise_below(sn_passes *p, sn_node *loss, int *count) {
    sn_module *m = p->m;
    sn_raiser r = {.p = p, .m = m, .for_gradient = true, .raise_nodes = raise_nodes};
    return raise_all(&r, 1, &loss, count_uses(&r, loss), count);
}

sn_node *sn_raise_loss(sn_node *loss) {
    sn_module *m = loss->m;
    sn_passes p = {.m = m, .o = {.level = SN_LEVEL_HIGHEST, .backend = "native"}};
    sn_order order = sn_topo(m, 1, &loss);
    sn_node **now = sn_arena_alloc(m, sizeof *now * (size_t)order.n), *raised = loss;
    for (int i = 0; i < order.n; i++) now[i] = order.node[i];
    for (int round = 0, count = 1; round < MAX_ROUNDS && count; round++) {
        count = 0;
        uint32_t n_old = sn_module_node_count(m);
        sn_node **made = raise_below(&p, raised, &count);
        if (sn_module_error(m)->code) return loss;
        for (int i = 0; i < order.n; i++) /* what the loss no longer needs is unchanged */
            if (now[i]->id < n_old && made[now[i]->id]) now[i] = made[now[i]->id];
        raised = now[order.n - 1];
    }
    if (sn_whole_gradients_below(m, 1, &loss) == sn_whole_gradients_below(m, 1, &raised))
        return loss;
    for (int i = 0; i < order.n; i++) sn_replace(order.node[i], now[i]);
    return raised;
}

int sn_pass_replace(sn_passes *p) {
    return sn_replace_module(p->m);
}
