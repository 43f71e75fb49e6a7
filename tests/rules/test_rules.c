/* Every row of the tables of rules is proved: a solver finds no values for which its two sides differ, for any of the types
 * that its conditions allow. Wrong rows are refuted. Without a solver both are skipped. A second one, whose command SN_SOLVER
 * names, need not prove every row, but must not contradict. */
#include "passes/raise/raise.h"
#include "passes/simplify/simplify.h"
#include "tests/rules/smt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

enum { N_TABLES = 2, MAX_ASKED = 2048, MAX_FUNCTIONS = 57 };

static sn_rules table[N_TABLES];
static const char *second; /* SN_SOLVER */

/* ---- the solver ---- */

/* What must be read before the problems of a row. */
typedef enum logic { IN_TYPES, IN_REALS, IN_SUMS, N_LOGICS } logic;

static const char *const preludes[N_LOGICS][6] = {
    {"common", "exact", "arithmetic", "exact_functions"},
    {"common", "reals", "arithmetic", "reals_functions"},
    {"sums"}};

static const char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("cannot read %s", path);
    char line[1024];
    const char *text = "";
    while (fgets(line, sizeof line, f)) text = smt_text("%s%s", text, line);
    fclose(f);
    return text;
}

static FILE *begin(const char *path, logic l) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("(set-logic ALL)\n", f);
    for (int i = 0; preludes[l][i]; i++)
        fputs(read_text(smt_text(SN_SOURCE_DIR "/tests/rules/%s.smt2", preludes[l][i])), f);
    return f;
}

/* What the solver prints. */
static const char *run_solver(const char *path) {
    return smt_solve(second ? second : SN_SMT_SOLVER, path);
}

/* ---- rows ---- */

typedef struct asked {
    const sn_rule_row *rule;
    logic logic;
    const char *facts, *goal;
    const smt_graph *graph;
    bool possible, refuted; /* the facts may hold; the negated goal holds somewhere */
    bool proved;
} asked;

static asked ask[MAX_ASKED];
static int n_asked;

static void add(const sn_rule_row *rule, const sn_form *form) {
    const bool sums = smt_has_sums(form), rounds = rule->claim >= SN_CLAIM_ROUNDS,
               finite = rule->claim == SN_CLAIM_FINITE || rule->claim == SN_CLAIM_ROUNDS_FINITE;
    const problems p = sums ? smt_sums(form) : smt_elementwise(form, rounds, finite);
    if (p.why) fail_msg("%s: no translation for %s", rule->name, p.why);
    assert_true(n_asked + p.n <= MAX_ASKED);
    for (int i = 0; i < p.n; i++)
        ask[n_asked++] = (asked){.rule = rule,
                                 .logic = sums     ? IN_SUMS
                                          : rounds ? IN_REALS
                                                   : IN_TYPES,
                                 .facts = p.facts[i],
                                 .goal = p.goal[i],
                                 .graph = p.graph[i]};
}

static void answer_all(logic l) {
    const char *path = smt_text("%s/rules.smt2", scratch_dir), *line;
    FILE *f = begin(path, l);
    for (int i = 0; i < n_asked; i++)
        if (ask[i].logic == l)
            fprintf(f, "(push 1)\n%s(check-sat)\n%s(check-sat)\n(pop 1)\n", ask[i].facts,
                    ask[i].goal);
    fclose(f);
    line = run_solver(path);
    for (int i = 0; i < n_asked; i++)
        for (int k = 0; k < 2 && ask[i].logic == l; k++) {
            const bool no = !strncmp(line, "unsat\n", 6), yes = !strncmp(line, "sat\n", 4);
            if (!no && !yes && strncmp(line, "unknown\n", 8) && strncmp(line, "timeout\n", 8))
                fail_msg("%s: the solver says: %.200s", ask[i].rule->name, line);
            if (k)
                ask[i].proved = no, ask[i].refuted = yes;
            else
                ask[i].possible = !no;
            line = strchr(line, '\n') + 1;
        }
    assert_string_equal(line, "");
}

/* Values for which the sides of some problems of a logic differ, as graphs; NULL: the solver gives none. */
static void find_counterexamples(logic l, int n, const asked *const *a, const char **text) {
    const char *path = smt_text("%s/wrong.smt2", scratch_dir), *answer;
    FILE *f = begin(path, l);
    for (int i = 0; i < n; i++)
        fprintf(f, "(push 1)\n%s%s(check-sat)\n%s(pop 1)\n", a[i]->facts, a[i]->goal,
                smt_graph_questions(a[i]->graph));
    fclose(f);
    answer = run_solver(path);
    for (int i = 0; i < n; i++) {
        text[i] = NULL;
        if (strncmp(answer, "sat\n", 4)) return;
        answer += 4;
        if (!(text[i] = smt_graph_text(a[i]->graph, &answer))) return;
    }
}

static const char *counterexample(const asked *a) {
    const char *text = NULL;
    find_counterexamples(a->logic, 1, &a, &text);
    return text ? text : "the solver has no values\n";
}

static void answer(void) {
    for (int l = 0; l < N_LOGICS; l++) answer_all((logic)l);
}

static void read_tables(void) {
    table[0] = sn_simplify_rules, table[1] = sn_raise_rules;
    for (int t = 0; t < N_TABLES; t++) {
        sn_rules_read(&table[t]);
        assert_null(table[t].wrong);
    }
}

static void rows_are_proved(void **state) {
    (void)state;
    if (!*SN_SMT_SOLVER) skip();
    n_asked = 0;
    for (int t = 0; t < N_TABLES; t++)
        for (int i = 0; i < table[t].n; i++)
            if (table[t].rule[i].row) add(&table[t].rule[i], &table[t].form[i]);
    answer();
    int proved = 0;
    for (int i = 0; i < n_asked; i++) {
        proved += ask[i].proved;
        if (!ask[i].possible)
            fail_msg("%s: no values fulfil the conditions:\n%s", ask[i].rule->name, ask[i].facts);
        if (second ? ask[i].refuted : !ask[i].proved)
            fail_msg("%s: %s\nis not proved:\n%s%s%s", ask[i].rule->name, ask[i].rule->row,
                     ask[i].facts, ask[i].goal, counterexample(&ask[i]));
    }
    print_message("%d of %d problems proved\n", proved, n_asked);
    assert_true(proved >= n_asked * 4 / 5);
}

/* ---- wrong rows ---- */

#define WRONG(how, text, conditions)                                                               \
    { .name = text, .claim = SN_CLAIM_##how, .row = text, .when = conditions }
static const sn_rule_row wrong[] = {
    WRONG(ROUNDS, "x - y = y - x", "float"),
    WRONG(EQUAL, "x - #c = x + -#c", ""), /* of narrow integers: -#c is not one of them */
    WRONG(EQUAL, "(x + #c) + #d = x + (#c + #d)", "float, tame(#c), tame(#d)"),
    WRONG(EQUAL, "(x + #c) + #d = x + (#c + #d)", "signed, !float, tame(#c), tame(#d)"),
    WRONG(ROUNDS, "x * a + x * b = x * (a + b)", "float"),
    WRONG(ROUNDS_FINITE, "x * a + x * b = x * (a - b)", "float"),
    WRONG(ROUNDS, "exp(x) + 1 = expm1(x)", "float"),
    WRONG(ROUNDS, "y / (exp(x * #c) + 1) = y * sigmoid(x * #c)", "negative(#c)"),
    WRONG(ROUNDS, "x / sqrt(y) = x * sqrt(y)", "float"),
    WRONG(ROUNDS, "sqrt(recip(x)) = rsqrt(x)", ""),
    WRONG(ROUNDS_FINITE, "pow(x, 3) = x * x", ""),
    WRONG(EQUAL, "cast(y@cast(x)) = cast(x)", ""),
    WRONG(EQUAL, "transpose(-x) = -x", ""),
    WRONG(EQUAL, "not(x < y) = y <= x", ""),
    WRONG(EQUAL, "not(x & y) = not(x) & not(y)", ""),
    WRONG(EQUAL, "a@cast(x) ~ cast(y) = x ~ y", "integer(x), same_type(x, y)"),
    WRONG(EQUAL, "x <= #c = x < #c + 1", "signed(x), integer(x)"),
    WRONG(EQUAL, "d@(x - y) < #c = x < y + #c", "integer(d), index(d)"),
    WRONG(EQUAL, "x <= s@(y + -1) = x <= y", "integer(x), signed(x), index(s), index(x)"),
    WRONG(EQUAL, "c ? (d ? x : y) : y = (c | d) ? x : y", ""),
    WRONG(EQUAL, "spread(c ? 0 : -inf) + x = c ? x : -inf", ""),
    WRONG(EQUAL, "0 < x ? x : 0 = max(x, 0)", ""),
    WRONG(EQUAL, "cast(c) * cast(d) = cast(c | d)", "bool(c), bool(d)"),
    WRONG(ROUNDS_FINITE, "s@reduce_sum(x) * #c = mean[s](x)", "real"),
    WRONG(ROUNDS_FINITE, "r@mean(x * x) - m@mean(x) = variance[r](x)", "real, same_axes(r, m)"),
    WRONG(ROUNDS_FINITE, "s@softmax(x - m) = softmax(x)", ""),
    WRONG(ROUNDS_FINITE, "l@logsumexp(x - spread(m)) - m = logsumexp[l](x)", ""),
    WRONG(ROUNDS_FINITE, "spread(cast(c)) * s@softmax(k ? x : -inf, ...) = s", "bool(c)"),
};

/* Whether both graphs are there and their results differ. */
static bool shows_difference(const char *text) {
    const char *after = text ? strstr(text, "after {") : NULL;
    const char *x = text ? strstr(text, "  output %") : NULL,
               *y = after ? strstr(after, "  output %") : NULL;
    if (!x || !y || strncmp(text, "before {", 8) || !(x = strstr(x, "-> ")) ||
        !(y = strstr(y, "-> ")))
        return false;
    const size_t n = strcspn(x, "\n");
    return n != strcspn(y, "\n") || strncmp(x, y, n) != 0;
}

static void wrong_rows_are_refuted(void **state) {
    (void)state;
    if (!*SN_SMT_SOLVER) skip();
    enum { N = sizeof wrong / sizeof *wrong };
    static sn_rules rules = {.rule = wrong, .n = N};
    const asked *shown[N_LOGICS][N];
    int n_shown[N_LOGICS] = {0};
    sn_rules_read(&rules);
    assert_null(rules.wrong);
    n_asked = 0;
    for (int i = 0; i < N; i++) add(&wrong[i], &rules.form[i]);
    answer();
    for (int i = 0; i < N; i++) {
        const asked *refuted = NULL;
        bool proved = true;
        for (int k = 0; k < n_asked; k++) {
            if (!refuted && ask[k].rule == &wrong[i] && ask[k].refuted) refuted = &ask[k];
            proved &= ask[k].rule != &wrong[i] || ask[k].proved;
        }
        if (second ? proved : !refuted) fail_msg("not refuted: %s", wrong[i].row);
        if (refuted) shown[refuted->logic][n_shown[refuted->logic]++] = refuted;
    }
    for (int l = 0; l < N_LOGICS && !second; l++) {
        const char *text[N] = {NULL};
        find_counterexamples((logic)l, n_shown[l], shown[l], text);
        for (int i = 0; i < n_shown[l]; i++)
            if (!shows_difference(text[i]))
                fail_msg("%s: no graph shows it:\n%s", shown[l][i]->rule->row,
                         text[i] ? text[i] : "");
    }
}

/* Functions are proved for families of graphs only (test_proofs). Their number only falls; what is algebra is written as
 * a row. */
static void functions_become_fewer(void **state) {
    (void)state;
    int n = 0;
    for (int t = 0; t < N_TABLES; t++)
        for (int i = 0; i < table[t].n; i++) n += !table[t].rule[i].row;
    assert_int_equal(n, MAX_FUNCTIONS);
}

static int begin_test(void **state) {
    second = getenv("SN_SOLVER");
    read_tables();
    return scratch_make(state);
}

static int end_test(void **state) {
    smt_free();
    return scratch_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_proved),
                                       cmocka_unit_test(wrong_rows_are_refuted),
                                       cmocka_unit_test(functions_become_fewer)};
    return cmocka_run_group_tests(tests, begin_test, end_test);
}
