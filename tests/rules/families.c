/* families.c: see families.h. */
#include "tests/rules/families.h"
#include "ir/field.h"
#include "passes/graph_util.h"
#include "passes/raise/raise.h"
#include "passes/simplify/simplify.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

sn_module *m;

/* ---- all choices of a family, one after another ---- */

enum { MAX_CHOICES = 64 };

static struct { int digit[MAX_CHOICES], base[MAX_CHOICES], n, at; } choices;

static bool draws; /* choices are drawn */

int choose(int n) {
    static uint64_t state = 1;
    if (draws) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (int)((state >> 33) % (uint64_t)n);
    }
    if (choices.at == choices.n) {
        assert_true(choices.n < MAX_CHOICES);
        choices.digit[choices.n] = 0;
        choices.base[choices.n++] = n;
    }
    return choices.digit[choices.at++];
}

static bool next_choices(void) {
    while (choices.n && ++choices.digit[choices.n - 1] == choices.base[choices.n - 1]) choices.n--;
    choices.at = 0;
    return choices.n > 0;
}

void choose_sizes(int rank, sn_dim *size, int n) {
    for (int i = 0; i < rank; i++) size[i] = 1 + choose(n);
}

/* ---- parts of graphs ---- */

sn_node *leaf(const char *name, int rank, const sn_dim *shape) {
    sn_dim list[SN_MAX_RANK + 1];
    for (int i = 0; i < rank; i++) list[i] = shape[i];
    list[rank] = SN_END;
    return sn_input_at(SN_HERE, m, name, SN_F32, list);
}

sn_node *dot(sn_node *x, sn_node *y, int n_batch, int64_t bx, int64_t by, int n, int64_t cx,
             int64_t cy) {
    return SN_NODE(m, dot,
                   SN_ATTRS(SN_LIST(batch_a, n_batch, &bx), SN_LIST(batch_b, n_batch, &by),
                            SN_LIST(contract_a, n, &cx), SN_LIST(contract_b, n, &cy)),
                   x, y);
}

sn_node *in_any_order(sn_op op, sn_node *x, sn_node *y) {
    return choose(2) ? sn_b_binary(op, x, y) : sn_b_binary(op, y, x);
}

/* ---- rules ---- */

const sn_rule_row *row_of(const family *f) {
    static const sn_rules *const table[] = {&sn_simplify_rules, &sn_raise_rules};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < table[t]->n; i++) {
            const sn_rule_row *r = &table[t]->rule[i];
            if (!r->row && !strcmp(r->name, f->rule) && r->op == f->op) return r;
        }
    fail_msg("no rule %s of %s", f->rule, f->op == SN_OP_COUNT ? "any" : sn_ops[f->op].name);
    return NULL;
}

const family *family_of(const char *rule, sn_op op) {
    for (int i = 0; i < n_plain_families + n_attention_families; i++) {
        const bool plain = i < n_plain_families;
        const family *f = plain ? &plain_families[i] : &attention_families[i - n_plain_families];
        if (!strcmp(f->rule, rule) && f->op == op) return f;
    }
    return NULL;
}

static sn_node *attention_at(void *ctx, sn_node *n) {
    sn_node *y = n->op == SN_OP_dot ? sn_raise_attention(ctx, n) : NULL;
    return y ? y : n;
}

/* What the pass does with the body of a loop: attention becomes one operation. */
static bool raise_body(const sn_raiser *outside, int n, sn_node **root) {
    sn_raiser r = {.p = outside->p, .m = m};
    return sn_rewrite(m, n, root, attention_at, &r) > 0;
}

sn_node *applied(const sn_rule_row *rule, sn_node *n) {
    sn_passes p = {.m = m, .o = {.level = SN_LEVEL_HIGHEST, .backend = "native"}};
    sn_raiser r = {.p = &p, .m = m, .order = sn_topo(m, 1, &n), .raise_nodes = raise_body};
    r.n_old = sn_module_node_count(m);
    r.users = sn_arena_alloc(m, sizeof *r.users * r.n_old);
    sn_node *y = rule->rewrite ? rule->rewrite(n) : rule->raise(&r, n);
    return y && y != n && y->dtype == n->dtype && sn_shapes_equal(y, n) ? y : NULL;
}

/* ---- what differs ---- */

const int64_t family_symbols[] = {2, 3}; /* of join_scores: queries and keys */

/* Numbers for the float leaves of n: those that are given, others from -2 to 2. */
static void bind_numbers(sn_eval *ev, sn_node *n, int n_given, const leaf_value *given) {
    enum { MAX = 64 };
    const sn_order order = sn_topo(m, 1, &n);
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        if (!(sn_ops[x->op].flags & SN_OPF_EXTERNAL) || !sn_is_float(x)) continue;
        const char *name = sn_attr_str(x, SN_A_name, "");
        double number[MAX];
        int64_t size = 1;
        for (int a = 0; a < x->rank; a++) size *= sn_dim_eval(m, x->shape[a], family_symbols);
        assert_true(size <= MAX);
        for (int k = 0; k < size; k++) number[k] = (k * 37 + *name * 11) % 64 / 16.0 - 2;
        for (int k = 0; k < n_given; k++)
            if (!strcmp(given[k].name, name)) number[given[k].element] = given[k].value;
        assert_true(sn_eval_bind_f64(ev, name, number, size));
    }
}

double family_element(sn_node *n, int64_t i, int n_given, const leaf_value *given) {
    sn_eval *ev = sn_eval_new(m, family_symbols);
    assert_non_null(ev);
    bind_numbers(ev, n, n_given, given);
    const sn_value *v = sn_eval_node(ev, n);
    if (!v) fail_msg("%s", sn_module_error(m)->message);
    const double x = v->data[i];
    sn_eval_free(ev);
    return x;
}

static void print_graph(FILE *f, const char *name, sn_node *n) {
    sn_entry *e = sn_entry_add(m, name);
    sn_entry_output(m, e, "y", n);
    sn_print_entry(f, m, e);
}

const char *show_graphs(sn_node *x, sn_node *y, int64_t at, int n, const leaf_value *given) {
    static char text[16384];
    FILE *f = fmemopen(text, sizeof text, "w");
    assert_non_null(f);
    print_graph(f, "before", x);
    print_graph(f, "after", y);
    fprintf(f, "element [");
    const sn_dim *shape = x->shape;
    for (int a = 0; a < x->rank; a++) {
        int64_t below = 1;
        for (int b = a + 1; b < x->rank; b++) below *= sn_dim_eval(m, shape[b], family_symbols);
        fprintf(f, a ? ",%lld" : "%lld",
                (long long)(at / below % sn_dim_eval(m, shape[a], family_symbols)));
    }
    fprintf(f, "]: %.9g before, %.9g after, with leaves of -2 to 2",
            family_element(x, at, n, given), family_element(y, at, n, given));
    for (int i = 0; i < n; i++)
        fprintf(f, ", %s[%d] = %.9g", given[i].name, given[i].element, given[i].value);
    fputc('\n', f);
    fclose(f);
    return text;
}

/* A field serves some graphs, because its memory only grows. */
int64_t family_difference(sn_node *x, sn_node *y) {
    enum { GRAPHS = 500 };
    static sn_field *f;
    static int used;
    if (used++ % GRAPHS == 0) {
        sn_field_free(f);
        f = sn_field_new(1);
    }
    sn_eval *ev = sn_eval_new(m, family_symbols);
    assert_true(f && ev);
    sn_eval_set_field(ev, f);
    const sn_value *a = sn_eval_node(ev, x), *b = a ? sn_eval_node(ev, y) : NULL;
    if (!b) fail_msg("%s", sn_module_error(m)->message);
    int64_t at = -1;
    for (int64_t i = 0; i < a->n && at < 0; i++)
        if (sn_dtype_is_float(a->dtype) ? !sn_field_same(f, a->data[i], b->data[i])
                                        : a->data[i] != b->data[i])
            at = i;
    sn_eval_free(ev);
    return at;
}

/* Calls `visit` for the graph of the current choices; whether the rule changes it. */
static bool visit_graph(const family *f, const sn_rule_row *rule, bool asked, bool *more,
                        bool (*visit)(void *ctx, sn_node *x, sn_node *y), void *ctx) {
    m = sn_module_new("m");
    sn_module_set_raw(m, true);
    sn_node *x = f->graph();
    sn_module_set_raw(m, false);
    if (sn_module_error(m)->code) fail_msg("%s: %s", f->rule, sn_module_error(m)->message);
    sn_node *y = x && (f->op == SN_OP_COUNT || x->op == f->op) ? applied(rule, x) : NULL;
    if (sn_module_error(m)->code) fail_msg("%s: %s", f->rule, sn_module_error(m)->message);
    if (y && asked) *more = visit(ctx, x, y);
    sn_module_free(m);
    return y != NULL;
}

int visit_family(const family *f, const sn_rule_row *rule, size_t few, size_t every,
                 bool (*visit)(void *ctx, sn_node *x, sn_node *y), void *ctx) {
    enum { MAX_DRAWS = 8 }; /* for a graph that the rule changes */
    size_t changed = 0;
    int n = 0;
    bool more = true;
    choices.n = choices.at = 0;
    draws = false;
    do {
        const bool asked = changed < few || !every || effort_takes(changed + 1, every);
        const bool changes = visit_graph(f, rule, asked, &more, visit, ctx);
        changed += changes;
        n += changes && asked;
    } while (more && next_choices() && (every || effort_is_long() || changed < few));
    if (every || effort_is_long() || choices.n == 0) return n;
    draws = true;
    size_t drawn = 0;
    for (size_t i = 0; more && drawn < few && i < MAX_DRAWS * few; i++)
        drawn += visit_graph(f, rule, true, &more, visit, ctx);
    n += (int)drawn;
    draws = false;
    return n;
}

static bool compare(void *ctx, sn_node *x, sn_node *y) {
    const char **wrong = ctx;
    const int64_t at = family_difference(x, y);
    if (at >= 0) *wrong = show_graphs(x, y, at, 0, NULL);
    return at < 0;
}

int try_family(const family *f, const sn_rule_row *rule, const char **wrong) {
    enum { FEW = 150, EVERY = 17 }; /* of what comes after these the default run takes a sample */
    *wrong = NULL;
    return visit_family(f, rule, FEW, EVERY, compare, wrong);
}
