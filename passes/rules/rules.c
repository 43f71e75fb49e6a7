/* rules.c: matches nodes with the patterns of rules, and builds replacements. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/rules/form.h"

#include <string.h>

enum { MAX_OPERANDS = 8, N_LETTERS = 26 };

/* ---- matching ---- */

typedef struct match {
    const sn_form *form;
    sn_node *root; /* what is replaced */
    sn_node *node[N_LETTERS];
    double number[N_LETTERS];
    bool has_number[N_LETTERS];
    sn_op comparison;       /* that ~ stands for; SN_OP_COUNT: not met yet */
    const sn_node *further; /* whose operands from n_first on are ... */
    int n_first;
} match;

/* What is to be matched, after which the rest of the list. */
typedef struct goal {
    const sn_term *t;
    sn_node *n;
    const struct goal *next;
} goal;

static double value_of(const match *k, const sn_term *t) {
    double v[3] = {0};
    if (t->kind == SN_TERM_NUMBER) return t->number;
    if (t->kind == SN_TERM_CONSTANT) return k->number[t->letter - 'a'];
    for (int i = 0; i < t->n_in; i++) v[i] = value_of(k, t->in[i]);
    return sn_elem_ref(t->op, false, v[0], v[1], v[2]);
}

static bool conditions_hold(const match *k) {
    for (int i = 0; i < k->form->n_when; i++) {
        const sn_term *t = k->form->when[i];
        const sn_node *x[3] = {k->root};
        double v = 0;
        for (int j = 0, n = 0; j < t->n_in; j++)
            if (t->in[j]->is_number)
                v = value_of(k, t->in[j]);
            else
                x[n++] = k->node[t->in[j]->letter - 'a'];
        if (t->condition->holds(x[0], x[1], v) == t->negated) return false;
    }
    return true;
}

/* Whether all goals of the list match, and the conditions hold. */
static bool reach(match *k, const goal *g);

static bool bind_number(match *k, char letter, double v, const goal *next) {
    const int i = letter - 'a';
    if (k->has_number[i]) return k->number[i] == v && reach(k, next);
    k->number[i] = v;
    k->has_number[i] = true;
    return reach(k, next) || (k->has_number[i] = false);
}

static bool match_operands(match *k, const sn_term *t, sn_node *n, const goal *next) {
    const bool further = t->n_in && t->in[t->n_in - 1]->kind == SN_TERM_REST;
    const int n_in = t->n_in - further;
    const bool commutes = n_in == 2 && t->op != SN_OP_COUNT && sn_ops[t->op].flags & SN_OPF_COMM;
    if (further ? n->n_in < n_in || n->n_in > MAX_OPERANDS : n->n_in != n_in) return false;
    if (further) k->further = n, k->n_first = n_in;
    for (int order = 0; order <= commutes; order++) {
        goal g[3];
        for (int i = 0; i < n_in; i++)
            g[i] = (goal){t->in[i], n->in[order ? 1 - i : i], i + 1 < n_in ? &g[i + 1] : next};
        if (reach(k, n_in ? g : next)) return true;
    }
    return false;
}

static bool match_op(match *k, const sn_term *t, sn_node *n, const goal *next) {
    if (t->op == n->op) return match_operands(k, t, n, next);
    if (t->op == SN_OP_mul && t->in[1]->kind == SN_TERM_CONSTANT && n->op == SN_OP_neg &&
        sn_is_float(n)) {
        const goal x = {t->in[0], n->in[0], next};
        return bind_number(k, t->in[1]->letter, -1, &x);
    }
    const sn_op before = k->comparison;
    bool fits = before == SN_OP_COUNT ? sn_rule_compares(n->op) : before == n->op;
    if (t->op != SN_OP_COUNT || !fits) return false;
    k->comparison = (sn_op)n->op;
    if (match_operands(k, t, n, next)) return true;
    k->comparison = before;
    return false;
}

static bool reach(match *k, const goal *g) {
    double v;
    if (!g) return conditions_hold(k);
    const sn_term *t = g->t;
    if (t->kind == SN_TERM_CONSTANT)
        return sn_match_const(g->n, &v) && bind_number(k, t->letter, v, g->next);
    if (t->is_number) return sn_match_value(g->n, value_of(k, t)) && reach(k, g->next);
    if (t->kind == SN_TERM_SPREAD)
        return reach(k, &(goal){t->in[0], sn_match_below(g->n), g->next});
    if (t->kind == SN_TERM_OP && !t->letter) return match_op(k, t, g->n, g->next);
    sn_node **bound = &k->node[t->letter - 'a'], *before = *bound;
    if (before && before != g->n) return false;
    *bound = g->n;
    if (t->kind == SN_TERM_OP ? match_op(k, t, g->n, g->next) : reach(k, g->next)) return true;
    *bound = before;
    return false;
}

/* ---- replacements ---- */

static sn_node *build(const match *k, const sn_term *t) {
    sn_node *in[MAX_OPERANDS + 3], *root = k->root;
    const sn_node *typed = root; /* whose type constants have */
    int n = 0;
    if (t->kind == SN_TERM_NODE) return k->node[t->letter - 'a'];
    for (int i = 0; i < t->n_in; i++) {
        if (t->in[i]->is_number || t->in[i]->kind == SN_TERM_REST) continue;
        in[i] = build(k, t->in[i]);
        if (i || t->op != SN_OP_select) typed = in[i];
    }
    for (; n < t->n_in && t->in[n]->kind != SN_TERM_REST; n++)
        if (t->in[n]->is_number)
            in[n] = sn_b_const(root->m, (sn_dtype)typed->dtype, value_of(k, t->in[n]));
    for (int i = k->n_first; n < t->n_in && i < k->further->n_in; i++) in[n++] = k->further->in[i];
    const sn_op op = t->op == SN_OP_COUNT ? k->comparison : t->op;
    const sn_node *like = t->like ? k->node[t->like - 'a'] : root->op == op ? root : NULL;
    if (op == SN_OP_cast) return sn_b_cast(in[0], (sn_dtype)root->dtype);
    if (op == SN_OP_broadcast) return sn_b_broadcast_like(in[0], root);
    if (op == SN_OP_select) return sn_b_select(in[0], in[1], in[2]);
    if (sn_ops[op].kind == SN_ELEM)
        return n == 1 ? sn_b_unary(op, in[0]) : sn_b_binary(op, in[0], in[1]);
    if (root->op == op && like == root && root->n_in == n) return sn_node_with(root, in);
    return sn_node_new(root->m, op, n, in, like ? like->n_attr : 0, like ? like->attr : NULL);
}

sn_node *sn_rules_apply(const sn_rules *rules, struct sn_raiser *r, int level, sn_node *n) {
    if (!rules->of_op) sn_module_fail(n->m, SN_ERR_MEMORY, "out of memory for the rewrite rules");
    for (int i = rules->begin[n->op]; i < rules->begin[n->op + 1]; i++) {
        const sn_rule_row *rule = &rules->rule[rules->of_op[i]];
        const sn_form *f = &rules->form[rules->of_op[i]];
        sn_node *y = NULL;
        if (!sn_level_reaches(level, rule->level)) continue;
        if (rule->row) {
            match k = {.form = f, .root = n, .comparison = SN_OP_COUNT};
            if (reach(&k, &(goal){f->pattern, n, NULL})) y = build(&k, f->replacement);
        } else {
            y = rule->rewrite ? rule->rewrite(n) : rule->raise(r, n);
        }
        if (y && y != n && y->dtype == n->dtype && sn_shapes_equal(y, n)) return y;
    }
    return NULL;
}
