/* terms_smt.c: terms as problems of SMT-LIB. Sums and products of fractions are multiplied out to the comparison of two
 * products without fractions. e^x is any number above 0, a root is not below 0 and its square is known, other functions are
 * any. What the graph before divides by is not 0; what that of after divides by must not be. */
#include "tests/rules/terms.h"
#include "tests/rules/smt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int name[TERMS_MAX]; /* of a term in this question; 0: none */
static int named[TERMS_MAX], n_named;
static char *text;
static size_t length;
static FILE *out;
static bool free_sort, declared[16 * SN_OP_COUNT]; /* free: operations */
static term_question question;

static void begin(bool free) {
    for (int i = 0; i < n_named; i++) name[named[i]] = 0;
    n_named = 0;
    memset(declared, 0, sizeof declared);
    free_sort = free;
    question = (term_question){0};
    out = open_memstream(&text, &length);
    if (!out) abort();
    if (free) fputs("(declare-sort V 0)\n", out);
}

static term_question end(void) {
    if (fclose(out)) abort();
    question.text = smt_text("%s", text);
    free(text);
    return question;
}

static int new_name(int t) {
    named[n_named++] = t;
    return name[t] = n_named;
}

static const char *emit(int t);

static const char *number(rational r) {
    const long long p = r.p < 0 ? -r.p : r.p, q = r.q;
    const char *size = q == 1 ? smt_text("%lld.0", p) : smt_text("(/ %lld.0 %lld.0)", p, q);
    return r.p < 0 ? smt_text("(- %s)", size) : size;
}

/* The fraction t as operands of a comparison: both times the denominator's factors. */
static void emit_relation(const char *format, int x, int y) {
    fraction a = term_fraction(x), b = term_fraction(y);
    int p = a.num, q = b.num;
    bool taken[TERM_MAX_FACTORS] = {false};
    for (int i = 0; i < a.n; i++) {
        int k = 0;
        while (k < b.n && (taken[k] || b.den[k] != a.den[i])) k++;
        if (k < b.n)
            taken[k] = true;
        else
            q = term_mul(q, a.den[i]);
    }
    for (int k = 0; k < b.n; k++)
        if (!taken[k]) p = term_mul(p, b.den[k]);
    const char *left = emit(p), *right = emit(q);
    fprintf(out, format, left, right);
}

static bool is_plain(int t) {
    return !term_fraction(t).n;
}

/* What is known of a new variable. */
static void emit_laws(int t, const char *v) {
    const term x = *term_at(t);
    if (x.kind == T_EXP) fprintf(out, "(assert (> %s 0.0))\n", v);
    if (x.kind == T_ROOT) {
        fprintf(out, "(assert (>= %s 0.0))\n", v);
        emit_relation(smt_text("(assert (= (* %s %s %%s) %%s))\n", v, v), T_ONE, x.a);
    }
    if (x.kind == T_NUMBER && x.of_root >= 0)
        fprintf(out, "(assert (and (> %s 0.0) (= (* %s %s) %s)))\n", v, v, v, emit(x.of_root));
    else if (x.kind == T_NUMBER)
        fprintf(out, "(assert (< %.80f %s %.80f))\n", x.real * (1 - 0x1p-17), v,
                x.real * (1 + 0x1p-17));
    if (x.kind == T_CALL && (x.op == SN_OP_max || x.op == SN_OP_min) && is_plain(x.a) &&
        is_plain(x.b)) {
        const char *a = emit(x.a), *b = emit(x.b);
        fprintf(out, "(assert (= %s (ite (%s %s %s) %s %s)))\n", v, x.op == SN_OP_max ? "<" : ">",
                a, b, b, a);
    }
    if (x.kind == T_CALL && x.op == SN_OP_abs && is_plain(x.a)) {
        const char *a = emit(x.a);
        fprintf(out, "(assert (= %s (ite (< %s 0.0) (- %s) %s)))\n", v, a, a, a);
    }
}

static const char *emit_variable(int t, const char *sort) {
    const int k = new_name(t);
    const char *v = smt_text("v%d", k);
    if (term_at(t)->kind == T_LEAF && question.n_leaf < TERM_MAX_LEAVES) {
        question.leaf[question.n_leaf] = t;
        question.variable[question.n_leaf++] = k;
    }
    fprintf(out, "(declare-const %s %s)\n", v, sort);
    if (!free_sort) emit_laws(t, v);
    return v;
}

static const char *define(int t, const char *sort, const char *is) {
    const int k = new_name(t);
    fprintf(out, "(define-fun v%d () %s %s)\n", k, sort, is);
    return smt_text("v%d", k);
}

static const char *emit_bool(int t) {
    static const char *const relation[] = {[T_LESS] = "<", [T_LESS_EQUAL] = "<=", [T_EQUAL] = "="};
    const term x = *term_at(t);
    if (name[t]) return smt_text("v%d", name[t]);
    if (x.kind == T_NOT) return define(t, "Bool", smt_text("(not %s)", emit_bool(x.a)));
    if (x.kind == T_AND) {
        const char *a = emit_bool(x.a);
        return define(t, "Bool", smt_text("(and %s %s)", a, emit_bool(x.b)));
    }
    if (!is_plain(x.a) || !is_plain(x.b)) return emit_variable(t, "Bool");
    const char *a = emit(x.a), *b = emit(x.b);
    return define(t, "Bool", smt_text("(%s %s %s)", relation[x.kind], a, b));
}

/* A choice as a variable that equals one of two fractions. */
static const char *emit_choice(int t) {
    const term x = *term_at(t);
    const char *c = emit_bool(x.a), *v = emit_variable(t, "Real");
    emit_relation(smt_text("(assert (=> %s (= (* %s %%s) %%s)))\n", c, v), T_ONE, x.b);
    emit_relation(smt_text("(assert (or %s (= (* %s %%s) %%s)))\n", c, v), T_ONE, x.c);
    return v;
}

static const char *emit_free(int t) {
    const term x = *term_at(t);
    if (name[t]) return smt_text("v%d", name[t]);
    if (x.kind != T_CALL) return emit_variable(t, "V");
    const char *in = "";
    const int operand[] = {x.a, x.b, x.c};
    int n = 0;
    for (; n < 3 && operand[n] >= 0; n++) in = smt_text("%s %s", in, emit_free(operand[n]));
    if (!declared[x.op]) fprintf(out, "(declare-fun f%d (%.*s) V)\n", x.op, 2 * n - 1, "V V V");
    declared[x.op] = true;
    return define(t, "V", smt_text("(f%d%s)", x.op, in));
}

static const char *emit(int t) {
    const term x = *term_at(t);
    if (name[t]) return smt_text("v%d", name[t]);
    if (x.kind == T_NUMBER && x.value.q) return number(x.value);
    if (x.kind == T_IF) return emit_choice(t);
    if (x.kind != T_ADD && x.kind != T_MUL) return emit_variable(t, "Real");
    const char *a = emit(x.a), *b = emit(x.b);
    return define(t, "Real", smt_text("(%c %s %s)", x.kind == T_ADD ? '+' : '*', a, b));
}

/* ---- questions ---- */

/* A condition for the term's value, as a test of fractions; NULL: it always has one. */
static const char *condition(int t) {
    switch (term_at(t)->kind) {
    case T_RECIP:
        return "(distinct %s 0.0)";
    case T_LOG:
        return "(> %s 0.0)";
    case T_ROOT:
        return "(>= %s 0.0)";
    default:
        return NULL;
    }
}

/* The operand's fraction has the sign of num times each factor of den. */
static const char *emit_condition(int t) {
    const fraction f = term_fraction(term_at(t)->a);
    int sign = f.num;
    for (int i = 0; term_at(t)->kind != T_RECIP && i < f.n; i++) sign = term_mul(sign, f.den[i]);
    return smt_text(condition(t), emit(sign));
}

/* The graph before has finite values only. */
static void assume(int after) {
    for (int t = 0; t < after; t++)
        if (condition(t) && !term_is_positive(term_at(t)->a))
            fprintf(out, "(assert %s)\n", emit_condition(t));
}

term_question term_ask_equal(int x, int y, int after) {
    const bool special = (x >= T_INF && x < T_FIXED) || (y >= T_INF && y < T_FIXED);
    begin(false);
    if (special || x == y) {
        fprintf(out, "(assert (distinct %d %d))\n", x == y ? 0 : x, x == y ? 0 : y);
        return end();
    }
    assume(after);
    const int minus = term_add(x, term_minus(y));
    if (term_has_log(minus))
        emit_relation("(assert (distinct %s %s))\n", term_exp(minus), T_ONE);
    else
        emit_relation("(assert (distinct %s %s))\n", x, y);
    return end();
}

term_question term_ask_free(int x, int y) {
    begin(true);
    const char *a = emit_free(x), *b = emit_free(y);
    fprintf(out, "(assert (distinct %s %s))\n", a, b);
    return end();
}

term_question term_ask_pair(int i, int after) {
    const term_pair *p;
    terms_pairs(&p);
    begin(false);
    assume(after);
    emit_relation("(assert (distinct %s %s))\n", p[i].x, p[i].y);
    return end();
}

term_question term_ask_defined(int t, int after) {
    if (!condition(t)) return (term_question){.text = NULL};
    begin(false);
    assume(after);
    fprintf(out, "(assert (not %s))\n", emit_condition(t));
    return end();
}
