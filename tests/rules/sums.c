/* sums.c: rows with sums along an axis, in real numbers. All sums run along the same axis, which the row's conditions
 * ensure. A tensor is its element at one column of a row of any length. A value is a polynomial: its coefficients are the
 * same along the row, and its atoms differ. Sums are linear: the sum of a polynomial is each coefficient times the sum of
 * its atoms' product. These sums may be any numbers, but those of e^x are positive. */
#include "tests/rules/smt.h"

#include <math.h>
#include <string.h>

enum { MAX_MONOMIALS = 32, MAX_ATOMS = 6, MAX_EXPONENTS = 16, N_LETTERS = 26 };

typedef struct monomial {
    const char *coefficient, *atom[MAX_ATOMS]; /* atoms: symbols, in alphabetical order */
    int n;
} monomial;

typedef struct value {
    monomial term[MAX_MONOMIALS];
    int n;
    const char *mask; /* an atom: the value is -inf where that is 0; NULL: nowhere */
} value;

typedef struct row {
    const sn_form *form;
    bool constant[N_LETTERS]; /* the node has one value along the row */
    char implies[2];          /* letters: the first condition implies the second */
    struct exponent {
        const char *symbol; /* of the atom e^value */
        value value;
    } exponent[MAX_EXPONENTS];
    int n_exponent;
    const char *factor[MAX_EXPONENTS]; /* numbers a whose e^a are coefficients */
    int n_factor;
    const char *sum[MAX_EXPONENTS]; /* sums of positive atoms */
    int n_sum;
    const char *symbols, *facts;
    const char *why;
} row;

static value evaluate(row *r, const sn_term *t);

static void assume(row *r, const char *fact) {
    r->facts = smt_text("%s(assert %s)\n", r->facts, fact);
}

static const char *declare(row *r, const char *symbol) {
    if (strstr(r->symbols, smt_text(" %s ", symbol))) return symbol;
    r->symbols = smt_text("%s%s ", r->symbols, symbol);
    r->facts = smt_text("%s(declare-const %s Real)\n", r->facts, symbol);
    if (*symbol == 'c') assume(r, smt_text("(or (= %s 0.0) (= %s 1.0))", symbol, symbol));
    if (*symbol == 'e') assume(r, smt_text("(> %s 0.0)", symbol));
    return symbol;
}

/* ---- polynomials ---- */

static value constant(const char *text) {
    return (value){.term = {{.coefficient = text}}, .n = 1};
}

static value atom(row *r, const char *symbol) {
    return (value){.term = {{"1.0", {declare(r, symbol)}, 1}}, .n = 1};
}

static bool is_constant(const value *v) {
    for (int i = 0; i < v->n; i++)
        if (v->term[i].n) return false;
    return !v->mask;
}

static bool same_atoms(const monomial *a, const monomial *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->atom[i], b->atom[i])) return false;
    return true;
}

static void add_monomial(row *r, value *to, monomial m) {
    for (int i = 0; i < to->n; i++)
        if (same_atoms(&to->term[i], &m)) {
            to->term[i].coefficient = smt_text("(+ %s %s)", to->term[i].coefficient, m.coefficient);
            return;
        }
    if (to->n == MAX_MONOMIALS)
        r->why = "too many terms";
    else
        to->term[to->n++] = m;
}

static value scaled(const value *v, const char *by) {
    value y = *v;
    for (int i = 0; i < y.n; i++)
        y.term[i].coefficient = smt_text("(* %s %s)", by, y.term[i].coefficient);
    return y;
}

static value plus(row *r, const value *a, const value *b) {
    value y = *a;
    if (a->mask || b->mask) r->why = "a sum of masked values";
    for (int i = 0; i < b->n; i++) add_monomial(r, &y, b->term[i]);
    return y;
}

/* 0 or 1: its square is itself; and what it implies is 1 beside it. */
static bool absorbs(const row *r, const char *a, const char *b) {
    if (*a != 'c' || *b != 'c') return false;
    return !strcmp(a, b) || (r->implies[0] && a[2] == r->implies[0] && b[2] == r->implies[1]);
}

static void add_atom(row *r, monomial *m, const char *symbol) {
    int at = 0;
    for (int i = 0; i < m->n; i++) {
        if (absorbs(r, m->atom[i], symbol)) return;
        if (absorbs(r, symbol, m->atom[i])) {
            m->atom[i] = symbol;
            return;
        }
        if (strcmp(m->atom[i], symbol) < 0) at = i + 1;
    }
    if (m->n == MAX_ATOMS) {
        r->why = "too many factors";
        return;
    }
    memmove(m->atom + at + 1, m->atom + at, sizeof *m->atom * (size_t)(m->n - at));
    m->atom[at] = symbol;
    m->n++;
}

static value times(row *r, const value *a, const value *b) {
    value y = {0};
    if (a->mask || b->mask) r->why = "a product of masked values";
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            monomial m = a->term[i];
            m.coefficient = smt_text("(* %s %s)", m.coefficient, b->term[j].coefficient);
            for (int k = 0; k < b->term[j].n; k++) add_atom(r, &m, b->term[j].atom[k]);
            add_monomial(r, &y, m);
        }
    return y;
}

/* The value at the column. */
static const char *text_of(const value *v) {
    const char *text = "(+ 0.0 0.0";
    for (int i = 0; i < v->n; i++) {
        text = smt_text("%s (* %s", text, v->term[i].coefficient);
        for (int j = 0; j < v->term[i].n; j++) text = smt_text("%s %s", text, v->term[i].atom[j]);
        text = smt_text("%s 1.0)", text);
    }
    return smt_text("%s)", text);
}

/* ---- sums and functions ---- */

/* The sum over the row of a product of atoms. */
static const char *moment(row *r, const monomial *m) {
    const char *symbol = "sum";
    bool positive = true, masked = false;
    for (int i = 0; i < m->n; i++) {
        symbol = smt_text("%s.%s", symbol, m->atom[i]);
        masked |= *m->atom[i] == 'c';
        positive &= *m->atom[i] == 'e' || *m->atom[i] == 'c';
    }
    if (!m->n) return "N";
    if (strstr(r->symbols, smt_text(" %s ", symbol))) return symbol;
    declare(r, symbol);
    if (positive) assume(r, smt_text(masked ? "(>= %s 0.0)" : "(> %s 0.0)", symbol));
    if (positive && !masked && r->n_sum < MAX_EXPONENTS) r->sum[r->n_sum++] = symbol;
    return symbol;
}

static value sum(row *r, const value *v) {
    value y = {0};
    if (v->mask) r->why = "a sum of masked values";
    for (int i = 0; i < v->n; i++)
        add_monomial(r, &y,
                     (monomial){.coefficient = smt_text("(* %s %s)", v->term[i].coefficient,
                                                        moment(r, &v->term[i]))});
    return y;
}

static value mean(row *r, const value *v) {
    const value s = sum(r, v);
    return scaled(&s, "(/ 1.0 N)");
}

static value variance(row *r, const value *v) {
    const value m = mean(r, v), minus = scaled(&m, "(- 1.0)"), away = plus(r, v, &minus),
                square = times(r, &away, &away);
    return mean(r, &square);
}

/* The atom e^v. Two exponents with the same coefficients of the same atoms are the same one. */
static value exponential_atom(row *r, const value *v) {
    for (int i = 0; i < r->n_exponent; i++)
        if (!strcmp(text_of(&r->exponent[i].value), text_of(v)))
            return atom(r, r->exponent[i].symbol);
    if (r->n_exponent == MAX_EXPONENTS) {
        r->why = "too many exponents";
        return *v;
    }
    const char *symbol = smt_text("e%d", r->n_exponent);
    r->exponent[r->n_exponent++] = (struct exponent){symbol, *v};
    return atom(r, symbol);
}

/* e^(a + b) = e^a e^b, where a is the same along the row. */
static value exponential(row *r, const value *v) {
    value fixed = {0}, varying = {0}, y = constant("1.0");
    for (int i = 0; i < v->n; i++) add_monomial(r, v->term[i].n ? &varying : &fixed, v->term[i]);
    if (varying.n) y = exponential_atom(r, &varying);
    if (fixed.n && r->n_factor < MAX_EXPONENTS) {
        const char *a = r->factor[r->n_factor++] = text_of(&fixed);
        y = scaled(&y, smt_text("(E %s)", a));
    }
    if (v->mask) add_atom(r, &y.term[0], v->mask);
    return y;
}

/* ln(c e^b) = ln c + b, where c is the same along the row. */
static value logarithm(row *r, const value *v) {
    value y = {0};
    if (v->n != 1 || v->mask || v->term[0].n > 1) {
        r->why = "a logarithm";
        return y;
    }
    const monomial *m = &v->term[0];
    y = constant(smt_text("(L %s)", m->coefficient));
    if (!m->n) return y;
    for (int i = 0; i < r->n_exponent; i++)
        if (!strcmp(r->exponent[i].symbol, m->atom[0])) return plus(r, &y, &r->exponent[i].value);
    r->why = "a logarithm";
    return y;
}

/* A row without positive terms gives 0. */
static value softmax(row *r, const value *v) {
    const value e = exponential(r, v), s = sum(r, &e);
    return scaled(&e, smt_text("(part.of %s)", text_of(&s)));
}

static value logsumexp(row *r, const value *v) {
    const value e = exponential(r, v), s = sum(r, &e);
    return logarithm(r, &s);
}

static value negative(const value *v) {
    return scaled(v, "(- 1.0)");
}

static value log_softmax(row *r, const value *v) {
    const value l = logsumexp(r, v), minus = negative(&l);
    return plus(r, v, &minus);
}

static value quotient(row *r, const value *x, const value *y) {
    if (!is_constant(y)) r->why = "a quotient";
    return scaled(x, smt_text("(/ 1.0 %s)", text_of(y)));
}

/* x / sqrt(v + eps) */
static value normalised(const value *x, const value *v) {
    return scaled(x, smt_text("(/ 1.0 (Q (+ %s eps)))", text_of(v)));
}

/* ---- terms ---- */

static value layer_norm(row *r, const value *x) {
    const value m = mean(r, x), minus = negative(&m), away = plus(r, x, &minus), v = variance(r, x);
    return normalised(&away, &v);
}

static value rms_norm(row *r, const value *x) {
    const value square = times(r, x, x), v = mean(r, &square);
    return normalised(x, &v);
}

static value select(row *r, const sn_term *t) {
    const value c = evaluate(r, t->in[0]), x = evaluate(r, t->in[1]);
    const sn_term *other = t->in[2];
    value y = times(r, &c, &x);
    if (other->kind != SN_TERM_NUMBER || (other->number != 0 && !(other->number < -1e300)))
        r->why = "a select";
    else if (other->number != 0 && c.n == 1 && c.term[0].n == 1)
        y = x, y.mask = c.term[0].atom[0];
    return y;
}

static value by_op(row *r, const sn_term *t) {
    if (t->op == SN_OP_select) return select(r, t);
    const value x = evaluate(r, t->in[0]);
    value y = t->n_in > 1 && t->in[1]->kind != SN_TERM_REST ? evaluate(r, t->in[1]) : (value){0};
    const value minus = negative(&y), gain = atom(r, "x.gain");
    switch (t->op) {
    case SN_OP_add:
        return plus(r, &x, &y);
    case SN_OP_sub:
        return plus(r, &x, &minus);
    case SN_OP_mul:
        return times(r, &x, &y);
    case SN_OP_div:
        return quotient(r, &x, &y);
    case SN_OP_cast:
        return x;
    case SN_OP_exp:
        return exponential(r, &x);
    case SN_OP_log:
        return logarithm(r, &x);
    case SN_OP_reduce_sum:
        return sum(r, &x);
    case SN_OP_mean:
        return mean(r, &x);
    case SN_OP_variance:
        return variance(r, &x);
    case SN_OP_softmax:
        return softmax(r, &x);
    case SN_OP_log_softmax:
        return log_softmax(r, &x);
    case SN_OP_logsumexp:
        return logsumexp(r, &x);
    case SN_OP_layer_norm:
        y = layer_norm(r, &x);
        return times(r, &y, &gain);
    case SN_OP_rms_norm:
        y = rms_norm(r, &x);
        return times(r, &y, &gain);
    default:
        r->why = smt_text("%s beside sums", sn_ops[t->op].name);
        return x;
    }
}

const sn_term *smt_operation(const sn_term *t, char letter) {
    if (t->kind == SN_TERM_OP && t->letter == letter) return t;
    for (int i = 0; i < t->n_in; i++) {
        const sn_term *found = smt_operation(t->in[i], letter);
        if (found) return found;
    }
    return NULL;
}

/* Conditions are called c and k in these rows. */
static bool is_condition(char letter) {
    return letter == 'c' || letter == 'k';
}

static value evaluate(row *r, const sn_term *t) {
    const sn_term *op = smt_operation(r->form->pattern, t->letter); /* of a name */
    switch (t->kind) {
    case SN_TERM_NUMBER:
        return constant(smt_text("%.17g", t->number));
    case SN_TERM_CONSTANT:
        return constant(declare(r, smt_text("k_%c", t->letter)));
    case SN_TERM_SPREAD:
        return evaluate(r, t->in[0]);
    case SN_TERM_NODE:
        if (op) return by_op(r, op);
        if (r->constant[t->letter - 'a']) return constant(declare(r, smt_text("x_%c", t->letter)));
        return atom(r, smt_text("%c_%c", is_condition(t->letter) ? 'c' : 'x', t->letter));
    case SN_TERM_OP:
        return by_op(r, t);
    default:
        r->why = "further operands";
        return (value){0};
    }
}

/* ---- conditions ---- */

/* A node directly below spread has one value along the row. */
static void find_constants(row *r, const sn_term *t) {
    for (int i = 0; i < t->n_in; i++) {
        if (t->kind == SN_TERM_SPREAD && t->in[0]->kind == SN_TERM_NODE)
            r->constant[t->in[0]->letter - 'a'] = true;
        find_constants(r, t->in[i]);
    }
}

static void add_condition(row *r, const sn_term *t) {
    /* types, and those that say that all sums run along the row */
    static const char *const known[] = {"float",     "real",           "bool",     "constant",
                                        "same_axes", "over_last_axis", "same_rank"};
    const char *name = t->condition->name;
    const char first = t->n_in ? t->in[0]->letter : 'a';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], name)) return;
    if (!strcmp(name, "averages"))
        assume(r, smt_text("(= (* k_%c N) 1.0)", t->in[1]->letter));
    else if (!strcmp(name, "averages_square"))
        assume(r, smt_text("(= (* k_%c N N) 1.0)", t->in[1]->letter));
    else if (!strcmp(name, "counts"))
        assume(r, smt_text("(= x_%c N)", first));
    else if (!strcmp(name, "counts_inverse"))
        assume(r, smt_text("(= (* x_%c N) 1.0)", first));
    else if (strcmp(name, "joins") && strcmp(name, "constant_along"))
        r->why = smt_text("the condition %s", name);
}

static void prepare(row *r, const sn_term *t) {
    const char *name = t->condition->name;
    if (!strcmp(name, "joins")) r->implies[0] = t->in[0]->letter, r->implies[1] = t->in[1]->letter;
    if (!strcmp(name, "counts") || !strcmp(name, "counts_inverse") ||
        !strcmp(name, "constant_along"))
        r->constant[t->in[0]->letter - 'a'] = true;
}

/* What is known of e^a, ln and sums. */
static void add_laws(row *r) {
    for (int i = 0; i < r->n_factor; i++) {
        const char *a = r->factor[i];
        assume(r, smt_text("(and (> (E %s) 0.0) (= (L (E %s)) %s))", a, a, a));
        for (int j = 0; j < r->n_sum; j++)
            assume(r, smt_text("(= (L (* (E %s) %s)) (+ %s (L %s)))", a, r->sum[j], a, r->sum[j]));
    }
    for (int i = 0; i < r->n_sum; i++) {
        const char *s = r->sum[i];
        assume(r, smt_text("(and (= (E (- (L %s))) (/ 1.0 %s)) (= (L (part.of %s)) (- (L %s))))", s,
                           s, s, s));
    }
}

static bool sums(const sn_term *t) {
    bool any = t->kind == SN_TERM_OP && t->op != SN_OP_COUNT &&
               strstr(" reduce_sum mean variance softmax log_softmax logsumexp rms_norm ",
                      smt_text(" %s ", sn_ops[t->op].name));
    for (int i = 0; i < t->n_in; i++) any |= sums(t->in[i]);
    return any;
}

bool smt_has_sums(const sn_form *form) {
    return sums(form->pattern);
}

static const char *term_of(void *ctx, const sn_term *t, const char *path, const char **type,
                           const char **sort) {
    (void)path;
    const value v = evaluate(ctx, t);
    *type = "f32";
    *sort = "Real";
    return v.mask || (t->kind == SN_TERM_NUMBER && !isfinite(t->number)) ? NULL : text_of(&v);
}

problems smt_sums(const sn_form *form) {
    row r = {.form = form, .symbols = " ", .facts = ""};
    problems p = {.facts = smt_array(1),
                  .goal = smt_array(1),
                  .graph = smt_room(sizeof(smt_graph *)),
                  .n = 1};
    declare(&r, "N");
    declare(&r, "eps");
    assume(&r, "(and (>= N 1.0) (> eps 0.0))");
    find_constants(&r, form->pattern);
    for (int i = 0; i < form->n_when; i++) prepare(&r, form->when[i]);
    const value x = evaluate(&r, form->pattern), y = evaluate(&r, form->replacement);
    for (int i = 0; i < form->n_when; i++) add_condition(&r, form->when[i]);
    p.graph[0] = smt_graph_of(form, &(smt_view){.ctx = &r, .term = term_of, .follows_names = true});
    add_laws(&r);
    if (x.mask || y.mask) r.why = "a masked result";
    p.facts[0] = r.facts;
    p.goal[0] = smt_text("(assert (not (= %s %s)))\n", text_of(&x), text_of(&y));
    p.why = r.why;
    return p;
}
