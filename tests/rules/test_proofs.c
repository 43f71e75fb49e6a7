/* The rules that are functions, proved on families of graphs (families.h): a solver finds no values of the leaves for
 * which an element differs before and after. Equal questions are asked once. Wrong functions are refuted. Without a solver
 * both are skipped. A second one, whose command SN_SOLVER names, need not prove all, but must not contradict. */
#include "passes/raise/raise.h"
#include "passes/simplify/simplify.h"
#include "tests/rules/families.h"
#include "tests/rules/smt.h"
#include "tests/rules/terms.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

enum { MAX_QUESTIONS = 1 << 14, MAX_EXCEPTIONS = 0, FEW = 15 };

typedef struct question {
    const char *text;
    const family *f;
    int graph, element; /* its number; element -1: about a normal form or a condition */
    int n_leaf, variable[TERM_MAX_LEAVES];
    leaf_value *leaf;
    bool free, proved, refuted;
} question;

static question ask[MAX_QUESTIONS];
static int n_ask, slot[2 * MAX_QUESTIONS];
static int n_graph, n_element, n_identical;
static const char *second; /* SN_SOLVER */

/* ---- questions ---- */

static void forget(void) {
    memset(slot, 0, sizeof slot);
    n_ask = n_graph = n_element = n_identical = 0;
}

static void add(const family *f, int element, bool free, const term_question *q) {
    uint64_t h = 0;
    if (!q->text) return;
    for (const char *c = q->text; *c; c++)
        h = (h ^ (uint8_t)*c) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    size_t at = h % (2 * MAX_QUESTIONS);
    for (; slot[at]; at = (at + 1) % (2 * MAX_QUESTIONS))
        if (!strcmp(ask[slot[at] - 1].text, q->text)) return;
    assert_true(n_ask < MAX_QUESTIONS);
    question *new = &ask[n_ask];
    *new = (question){.text = q->text,
                      .f = f,
                      .graph = n_graph,
                      .element = element,
                      .free = free,
                      .n_leaf = q->n_leaf,
                      .leaf = smt_room(sizeof *new->leaf *(size_t)(q->n_leaf + 1))};
    for (int i = 0; i < q->n_leaf; i++) {
        const term *t = term_at(q->leaf[i]);
        new->leaf[i] = (leaf_value){.name = smt_text("%s", t->name), .element = t->b};
        new->variable[i] = q->variable[i];
    }
    slot[at] = ++n_ask;
}

typedef struct translation {
    const family *f;
    bool free, right; /* right: with normal forms and conditions */
} translation;

static bool translate(void *ctx, sn_node *x, sn_node *y) {
    const translation *t = ctx;
    terms_begin(t->free);
    sn_eval *ev = sn_eval_new(m, family_symbols);
    assert_non_null(ev);
    sn_eval_set_numbers(ev, &term_numbers, NULL);
    const sn_value *a = sn_eval_node(ev, x);
    const int after = terms_count();
    const sn_value *b = a ? sn_eval_node(ev, y) : NULL;
    if (!b) fail_msg("%s: %s", t->f->rule, sn_module_error(m)->message);
    n_graph++;
    for (int64_t i = 0; i < a->n; i++) {
        const int p = (int)a->data[i], q = (int)b->data[i]; /* of bools: T_ZERO, T_ONE or terms */
        n_element++;
        n_identical += p == q;
        if (p == q && !t->right) continue;
        assert_true(sn_dtype_is_float(a->dtype) || a->dtype == SN_BOOL || t->free);
        const term_question e = t->free ? term_ask_free(p, q) : term_ask_equal(p, q, after);
        add(t->f, (int)i, t->free, &e);
    }
    const term_pair *pair;
    for (int i = 0; t->right && i < terms_pairs(&pair); i++) {
        const term_question e = term_ask_pair(i, after);
        add(t->f, -1, t->free, &e);
    }
    for (int i = after; t->right && i < terms_count(); i++) {
        const term_question e = term_ask_defined(i, after);
        add(t->f, -1, t->free, &e);
    }
    sn_eval_free(ev);
    if (terms_failed()) fail_msg("%s, graph %d: no terms: %s", t->f->rule, n_graph, terms_failed());
    return true;
}

/* ---- the solver ---- */

static const char *run_solver(const char *path) {
    return smt_solve(second ? second : SN_SMT_SOLVER, path);
}

typedef enum answer { UNKNOWN, POSSIBLE, IMPOSSIBLE } answer;

/* The answers to n problems. */
static void solve(int n, const char *const *problem, answer *out) {
    const char *path = smt_text("%s/functions.smt2", scratch_dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++) fprintf(f, "(reset)\n%s(check-sat)\n", problem[i]);
    fclose(f);
    const char *line = run_solver(path);
    for (int i = 0; i < n; i++) {
        out[i] = !strncmp(line, "unsat\n", 6) ? IMPOSSIBLE
                 : !strncmp(line, "sat\n", 4) ? POSSIBLE
                                              : UNKNOWN;
        if (!out[i] && strncmp(line, "unknown\n", 8) && strncmp(line, "timeout\n", 8))
            fail_msg("the solver says: %.200s\n%s", line, problem[i]);
        line = strchr(line, '\n') + 1;
    }
    assert_string_equal(line, "");
}

static void answer_all(void) {
    const char **problem = smt_room(sizeof *problem * (size_t)n_ask);
    answer *got = smt_room(sizeof *got * (size_t)n_ask);
    for (int i = 0; i < n_ask; i++)
        problem[i] = smt_text("(set-logic %s)\n%s", ask[i].free ? "QF_UF" : "QF_NRA", ask[i].text);
    solve(n_ask, problem, got);
    for (int i = 0; i < n_ask; i++)
        ask[i].proved = got[i] == IMPOSSIBLE, ask[i].refuted = got[i] == POSSIBLE;
}

/* What the proofs in real numbers assume, which is all but their last line, can be true: else they say nothing. Of equal
 * ones one is asked. */
static void assumptions_are_possible(void) {
    const char **problem = smt_room(sizeof *problem * (size_t)n_ask);
    int n = 0, count[3] = {0};
    for (int i = 0; i < n_ask; i++) {
        const char *last = strrchr(ask[i].text, '(');
        while (strncmp(last, "(assert ", 8)) last--;
        problem[n] = smt_text("(set-logic QF_NRA)\n%.*s", (int)(last - ask[i].text), ask[i].text);
        bool new = !ask[i].free;
        for (int k = 0; k < n && new; k++) new = strcmp(problem[k], problem[n]) != 0;
        n += new;
    }
    answer *got = smt_room(sizeof *got * (size_t)n);
    solve(n, problem, got);
    for (int i = 0; i < n; i++) {
        count[got[i]]++;
        if (got[i] == IMPOSSIBLE) fail_msg("a proof assumes what cannot be:\n%s", problem[i]);
    }
    print_message("%d of %d different assumptions can be true, of %d it is not known\n",
                  count[POSSIBLE], n, count[UNKNOWN]);
    assert_true(second || count[POSSIBLE] == n);
}

/* ---- right functions ---- */

static const family *family_at(int i) {
    return i < n_plain_families ? &plain_families[i] : &attention_families[i - n_plain_families];
}

static void functions_are_proved(void **state) {
    (void)state;
    const int n = n_plain_families + n_attention_families;
    int by[N_SIZE_ARGUMENTS] = {0}, equal = 0, rows = 0, proved = 0;
    if (!*SN_SMT_SOLVER) skip();
    forget();
    for (int i = 0; i < n; i++) {
        const family *f = family_at(i);
        translation t = {f, f->claim == SN_CLAIM_EQUAL, true};
        assert_true(visit_family(f, row_of(f), FEW, 0, translate, &t) > 0);
        by[f->sizes]++;
        equal += t.free;
    }
    answer_all();
    assumptions_are_possible();
    for (int i = 0; i < n_ask; i++) {
        proved += ask[i].proved;
        if (second ? ask[i].refuted : !ask[i].proved)
            fail_msg("%s is not proved: graph %d, element %d:\n%s", ask[i].f->rule, ask[i].graph,
                     ask[i].element, ask[i].text);
    }
    for (int i = 0; i < sn_simplify_rules.n; i++) rows += sn_simplify_rules.rule[i].row != NULL;
    for (int i = 0; i < sn_raise_rules.n; i++) rows += sn_raise_rules.rule[i].row != NULL;
    print_message("%d functions: %d graphs, %d elements, %d of them the same term\n", n, n_graph,
                  n_element, n_identical);
    print_message(
        "%d functions for any operations, %d in real numbers; sizes by index %d, by cut %d, "
        "by sum %d, by step %d\n",
        equal, n - equal, by[BY_INDEX], by[BY_CUT], by[BY_SUM], by[BY_STEP]);
    print_message("%d of %d questions proved; %d of %d rules\n", proved, n_ask, rows + n,
                  sn_simplify_rules.n + sn_raise_rules.n);
    assert_true(proved >= n_ask * 4 / 5);
    assert_int_equal(rows + n + MAX_EXCEPTIONS, sn_simplify_rules.n + sn_raise_rules.n);
    for (int i = 0; i < n; i++) /* no rule has two families, so each has one */
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(row_of(family_at(i)), row_of(family_at(k)));
}

/* ---- wrong functions ---- */

/* The number at *s: 2.0, (- 2.0), (/ 1.0 3.0). */
static double value_at(const char **s) {
    *s += strspn(*s, " ");
    if (!strncmp(*s, "(- ", 3)) {
        *s += 3;
        return -value_at(s);
    }
    if (!strncmp(*s, "(/ ", 3)) {
        *s += 3;
        const double above = value_at(s);
        return above / value_at(s);
    }
    char *end;
    const double x = strtod(*s, &end);
    *s = end + strspn(end, "?)");
    return x;
}

/* The solver's values of the leaves for which the question's elements differ, if it finds them in a second. */
static bool find_values(question *q) {
    const char *path = smt_text("%s/wrong.smt2", scratch_dir), *s;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("(set-option :pp.decimal true)\n(set-option :timeout 1000)\n(set-logic QF_NRA)\n", f);
    fprintf(f, "%s(check-sat)\n", q->text);
    for (int i = 0; i < q->n_leaf; i++) fprintf(f, "(get-value (v%d))\n", q->variable[i]);
    fclose(f);
    s = run_solver(path);
    if (strncmp(s, "sat\n", 4)) return false;
    for (int i = 0; i < q->n_leaf; i++) {
        s = strchr(s, '\n');
        if (!s || strncmp(s, "\n((v", 4)) return false;
        const char *at = strchr(s + 1, ' ');
        q->leaf[i].value = value_at(&at);
        s++;
    }
    return true;
}

typedef struct refutation {
    const family *f;
    const char *text; /* NULL: none */
} refutation;

/* Of the first graph that differs over finite fields, with values for which it differs in doubles, too. */
static bool refute(void *ctx, sn_node *x, sn_node *y) {
    refutation *r = ctx;
    translation t = {r->f, false, false};
    if (family_difference(x, y) < 0) return true;
    forget();
    translate(&t, x, y);
    for (int i = 0; i < n_ask && i < 2 && !r->text; i++) {
        const question *q = &ask[i];
        if (!find_values(&ask[i])) continue;
        const double a = family_element(x, q->element, q->n_leaf, q->leaf),
                     b = family_element(y, q->element, q->n_leaf, q->leaf);
        if (!(fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b))))
            r->text = show_graphs(x, y, q->element, q->n_leaf, q->leaf);
    }
    return false;
}

/* All but those for which the solver is too slow: a carry behind several e^. */
static void wrong_functions_are_refuted(void **state) {
    enum { AT_LEAST = 25 };
    int refuted = 0;
    (void)state;
    if (!*SN_SMT_SOLVER || second) skip();
    for (int i = 0; i < n_wrong_functions; i++) {
        const wrong_function *w = &wrong_functions[i];
        refutation r = {family_of(w->rule, w->op), NULL};
        visit_family(r.f, wrong_row(i), 150, 17, refute, &r);
        refuted += r.text != NULL;
        if (!r.text) print_message("no values for wrong %s\n", w->rule);
        if (r.text && (!strstr(r.text, "entry before {") || !strstr(r.text, "entry after {") ||
                       !strstr(r.text, " before, ")))
            fail_msg("%s is not shown:\n%s", w->rule, r.text);
    }
    print_message("%d of %d wrong functions refuted\n", refuted, n_wrong_functions);
    assert_true(refuted >= AT_LEAST);
}

static int begin_test(void **state) {
    second = getenv("SN_SOLVER");
    return scratch_make(state);
}

static int end_test(void **state) {
    smt_free();
    return scratch_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_are_proved),
                                       cmocka_unit_test(wrong_functions_are_refuted)};
    return cmocka_run_group_tests(tests, begin_test, end_test);
}
