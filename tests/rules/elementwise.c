/* elementwise.c: rows without sums. A tensor is its element at one index, since both sides look at the same one: operations
 * on elements, and views that move them alike. Each node has one of the types that operations and
 * conditions allow; floats are the sort F of common.smt2, integers are Int and wrap around. */
#include "tests/rules/smt.h"

#include <math.h>
#include <string.h>

enum { MAX_TERMS = 64, MAX_LAWS = 64, MAX_PROBLEMS = 256, N_LETTERS = 26 };

typedef struct row {
    const sn_form *form;
    bool rounds, finite;
    sn_op comparison;               /* that ~ stands for */
    const sn_term *term[MAX_TERMS]; /* all terms of both sides, */
    int variable[MAX_TERMS];        /* and the variables that their types are */
    int n_term;
    int equal[MAX_TERMS]; /* [n_variable] another variable that is the same type; itself: none */
    int n_variable;
    int of_letter[N_LETTERS]; /* the variable of a node's type; -1: none yet */
    sn_dtype type[MAX_TERMS]; /* [n_variable] */
    bool is_bool[MAX_TERMS];  /* [n_variable] */
    const char *path;         /* the views above the term that is translated */
    const char *symbols;      /* declared so far: " x_a x_b " */
    const char *declarations; /* with what is known of them */
    const char *laws;         /* of the arithmetic that occurs */
    const char *exps[MAX_LAWS], *logs[MAX_LAWS];
    int n_exp, n_log;
    const char *why;
} row;

static const char *translate(row *r, const sn_term *t, sn_dtype type);

/* ---- types ---- */

static int find(const row *r, int v) {
    while (r->equal[v] != v) v = r->equal[v];
    return v;
}

static void unify(row *r, int a, int b) {
    a = find(r, a), b = find(r, b);
    r->is_bool[a] |= r->is_bool[b];
    r->equal[b] = a;
}

static int new_variable(row *r) {
    if (r->n_variable == MAX_TERMS) {
        r->why = "too many terms";
        return 0;
    }
    r->equal[r->n_variable] = r->n_variable;
    return r->n_variable++;
}

static bool gives_bool(const sn_term *t) {
    return t->kind == SN_TERM_OP && (t->op == SN_OP_COUNT || sn_rule_compares(t->op));
}

static int variable_of(const row *r, const sn_term *t) {
    int i = 0;
    while (i + 1 < r->n_term && r->term[i] != t) i++;
    return find(r, r->variable[i]);
}

static void infer(row *r, const sn_term *t) {
    if (r->n_term == MAX_TERMS) r->why = "too many terms";
    if (r->why) return;
    int *of = t->letter && t->kind != SN_TERM_CONSTANT ? &r->of_letter[t->letter - 'a'] : NULL;
    int v = of && *of >= 0 ? *of : new_variable(r);
    if (of) *of = v;
    r->term[r->n_term] = t;
    r->variable[r->n_term++] = v;
    const bool is_cast = t->kind == SN_TERM_OP && t->op == SN_OP_cast;
    for (int i = 0; i < t->n_in && !r->why; i++) {
        infer(r, t->in[i]);
        const int x = variable_of(r, t->in[i]);
        if (t->kind == SN_TERM_OP && t->op == SN_OP_select && !i)
            r->is_bool[x] = true;
        else if (!is_cast)
            unify(r, gives_bool(t) ? variable_of(r, t->in[0]) : v, x);
    }
    if (gives_bool(t)) r->is_bool[find(r, v)] = true;
}

static sn_dtype type_of(const row *r, const sn_term *t) {
    return r->type[variable_of(r, t)];
}

/* Whether ops.def has the op for this type of operands. */
static bool op_takes(const sn_term *t, sn_dtype type) {
    const char *rule = t->op == SN_OP_COUNT ? "cmp" : sn_ops[t->op].rule;
    if (!strcmp(rule, "num")) return type != SN_BOOL;
    if (!strcmp(rule, "flt")) return sn_dtype_is_float(type);
    if (!strcmp(rule, "boole")) return type == SN_BOOL;
    if (!strcmp(rule, "bits")) return type == SN_BOOL; /* of integers: no row */
    if (sn_ops[t->op == SN_OP_COUNT ? SN_OP_lt : t->op].kind == SN_COMP)
        return sn_dtype_is_float(type);
    return true;
}

static bool has_constant(const sn_term *t) {
    bool any = t->kind == SN_TERM_CONSTANT;
    for (int i = 0; i < t->n_in; i++) any |= has_constant(t->in[i]);
    return any;
}

static double value_of(const sn_term *t) {
    double v[3] = {0};
    if (t->kind == SN_TERM_NUMBER) return t->number;
    for (int i = 0; i < t->n_in; i++) v[i] = value_of(t->in[i]);
    return sn_elem_ref(t->op, false, v[0], v[1], v[2]);
}

/* No bool is a number, and no integer infinite. */
static bool number_fits(const sn_term *t, sn_dtype type) {
    return type != SN_BOOL && (sn_dtype_is_float(type) || has_constant(t) ||
                               (isfinite(value_of(t)) && value_of(t) == floor(value_of(t))));
}

static bool types_fit(const row *r) {
    for (int i = 0; i < r->n_term; i++) {
        const sn_term *t = r->term[i];
        if (t->kind == SN_TERM_OP && t->n_in && t->op != SN_OP_cast &&
            !op_takes(t, type_of(r, t->in[t->op == SN_OP_select])))
            return false;
        if (t->is_number && !number_fits(t, type_of(r, t))) return false;
        if (r->is_bool[variable_of(r, t)] && type_of(r, t) != SN_BOOL) return false;
    }
    return true;
}

/* ---- conditions ---- */

static bool is_type_condition(const char *name) {
    static const char *const names[] = {"float",  "real",      "bool", "integer",
                                        "signed", "same_type", "exact"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

/* Those that say only where a row is worth while. */
static bool is_preference(const char *name) {
    static const char *const names[] = {"constant",   "constants", "one",      "hidden",
                                        "reciprocal", "minus_one", "same_rank"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static sn_dtype type_of_letter(const row *r, char letter) {
    return r->type[find(r, r->of_letter[letter - 'a'])];
}

static bool type_conditions_hold(const row *r) {
    for (int i = 0; i < r->form->n_when; i++) {
        const sn_term *t = r->form->when[i];
        sn_node x[2] = {{.dtype = (uint8_t)type_of(r, r->form->pattern)}};
        if (!is_type_condition(t->condition->name)) continue;
        for (int j = 0; j < t->n_in && j < 2; j++)
            x[j].dtype = (uint8_t)type_of_letter(r, t->in[j]->letter);
        if (t->condition->holds(&x[0], &x[1], 0) == t->negated) return false;
    }
    return true;
}

/* ---- text ---- */

static bool is_float(sn_dtype t) {
    return sn_dtype_is_float(t);
}

static const struct {
    sn_dtype type;
    const char *low, *span;
} integers[] = {{SN_I8, "(- 128)", "256"},
                {SN_U8, "0", "256"},
                {SN_I32, "(- 2147483648)", "4294967296"},
                {SN_I64, "(- 9223372036854775808)", "18446744073709551616"}};

static const char *low_of(sn_dtype t) {
    size_t i = 0;
    while (i + 1 < sizeof integers / sizeof *integers && integers[i].type != t) i++;
    return integers[i].low;
}

static const char *span_of(sn_dtype t) {
    size_t i = 0;
    while (i + 1 < sizeof integers / sizeof *integers && integers[i].type != t) i++;
    return integers[i].span;
}

/* The integer v modulo 2^bits. */
static const char *wrapped(sn_dtype t, const char *v) {
    return smt_text("(wrap %s %s %s)", low_of(t), span_of(t), v);
}

static const char *in_range(sn_dtype t, const char *v) {
    return smt_text("(in.range %s %s %s)", low_of(t), span_of(t), v);
}

static void add_law(row *r, const char *law) {
    r->laws = smt_text("%s(assert %s)\n", r->laws, law);
}

static const char *number(double v, sn_dtype type) {
    const char *digits = smt_text("%.17g", fabs(v));
    if (!is_float(type)) return smt_text(v < 0 ? "(- %s)" : "%s", digits);
    if (isinf(v)) return v < 0 ? "(inf true)" : "(inf false)";
    if (v == 0) return "(zero false)";
    if (!strchr(digits, '.')) digits = smt_text("%s.0", digits);
    return smt_text(v < 0 ? "(fin (- %s))" : "(fin %s)", digits);
}

/* An expression of constants, computed in double, which rounds integers of more than 53 bits. */
static const char *constant(const sn_term *t, sn_dtype type) {
    if (!has_constant(t)) return number(value_of(t), type);
    if (t->kind == SN_TERM_CONSTANT)
        return smt_text(is_float(type) ? "k_%c" : "(to_int (real k_%c))", t->letter);
    const char *x = constant(t->in[0], type), *y = t->n_in > 1 ? constant(t->in[1], type) : "";
    if (is_float(type)) return smt_text("(f.%s %s %s)", sn_ops[t->op].name, x, y);
    const char *sign = t->op == SN_OP_add ? "+" : t->op == SN_OP_mul ? "*" : "-";
    return smt_text("(double (%s %s %s))", sign, x, y);
}

/* ---- operations ---- */

/* A number outside the range of integers has no defined result. */
static const char *cast(row *r, const char *x, sn_dtype from, sn_dtype to) {
    if (from == to) return x;
    if (from == SN_BOOL)
        return smt_text(is_float(to) ? "(ite %s one (zero false))" : "(ite %s 1 0)", x);
    if (to == SN_BOOL)
        return smt_text(is_float(from) ? "(not (is.zero %s))" : "(distinct %s 0)", x);
    const bool exact = sn_rule_widens(from, to);
    if (is_float(from) && is_float(to))
        return exact ? x : smt_text("(round_%s %s)", sn_dtype_name(to), x);
    if (is_float(to))
        return smt_text(exact ? "(of.real (to_real %s))" : "(round_%s (of.real (to_real %s)))",
                        exact ? x : sn_dtype_name(to), x);
    if (is_float(from)) {
        add_law(r, smt_text("(and (finite %s) %s)", x,
                            in_range(to, smt_text("(truncate (real %s))", x))));
        return smt_text("(truncate (real %s))", x);
    }
    return exact ? x : wrapped(to, x);
}

/* The exponents for which reals_functions.smt2 has powers. */
static const struct {
    double exponent;
    const char *name;
} powers[] = {{0.5, "root"}, {-0.5, "inverse.root"}, {-1, "inverse"}, {2, "square"},
              {3, "cube"},   {4, "fourth"}};

static const char *power(row *r, const char *x, const sn_term *exponent) {
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++)
        if (exponent->is_number && !has_constant(exponent) &&
            value_of(exponent) == powers[i].exponent) {
            add_law(r, smt_text("(law.sqrt %s)", x));
            return smt_text("(f.%s %s)", powers[i].name, x);
        }
    r->why = "a power";
    return "";
}

static void add_exp(row *r, const char *x) {
    add_law(r, smt_text("(law.exp %s)", x));
    if (r->n_exp < MAX_LAWS) r->exps[r->n_exp++] = x;
}

static void add_log(row *r, const char *x) {
    add_law(r, smt_text("(law.log %s)", x));
    if (r->n_log < MAX_LAWS) r->logs[r->n_log++] = x;
}

static void add_laws(row *r, sn_op op, const char *x, const char *y) {
    const char *const name = sn_ops[op].name;
    if (op == SN_OP_add || op == SN_OP_sub || op == SN_OP_mul || op == SN_OP_div ||
        op == SN_OP_recip)
        add_law(r, smt_text("(law.rnd (f.%s.v %s %s))", name, x, y));
    if (op == SN_OP_exp || op == SN_OP_expm1 || op == SN_OP_softplus) add_exp(r, x);
    if (op == SN_OP_sigmoid) add_exp(r, smt_text("(f.neg %s)", x));
    if (op == SN_OP_log) add_log(r, x);
    if (op == SN_OP_log1p) add_log(r, smt_text("(f.add %s one)", x));
    if (op == SN_OP_softplus) add_log(r, smt_text("(f.add (f.exp %s) one)", x));
    if (op == SN_OP_sqrt || op == SN_OP_rsqrt) add_law(r, smt_text("(law.sqrt %s)", x));
}

static const char *float_op(row *r, const sn_term *t, sn_op op, const char *x, const char *y) {
    if (op == SN_OP_pow) return power(r, x, t->in[1]);
    if (!strstr(" neg abs add sub mul div recip max min lt le eq ne exp expm1 log log1p sqrt rsqrt "
                "sigmoid relu softplus ",
                smt_text(" %s ", sn_ops[op].name)))
        r->why = smt_text("%s", sn_ops[op].name);
    add_laws(r, op, x, y);
    return smt_text("(f.%s %s %s)", sn_ops[op].name, x, y);
}

static const char *integer_op(row *r, sn_dtype type, sn_op op, const char *x, const char *y) {
    switch (op) {
    case SN_OP_neg:
        return wrapped(type, smt_text("(- %s)", x));
    case SN_OP_add:
        return wrapped(type, smt_text("(+ %s %s)", x, y));
    case SN_OP_sub:
        return wrapped(type, smt_text("(- %s %s)", x, y));
    case SN_OP_mul:
        return wrapped(type, smt_text("(* %s %s)", x, y));
    case SN_OP_max:
        return smt_text("(ite (< %s %s) %s %s)", x, y, y, x);
    case SN_OP_min:
        return smt_text("(ite (< %s %s) %s %s)", x, y, x, y);
    case SN_OP_lt:
        return smt_text("(< %s %s)", x, y);
    case SN_OP_le:
        return smt_text("(<= %s %s)", x, y);
    case SN_OP_eq:
        return smt_text("(= %s %s)", x, y);
    case SN_OP_ne:
        return smt_text("(distinct %s %s)", x, y);
    default:
        r->why = smt_text("%s of integers", sn_ops[op].name);
        return "";
    }
}

static const char *bool_op(row *r, sn_op op, const char *x, const char *y) {
    switch (op) {
    case SN_OP_not:
        return smt_text("(not %s)", x);
    case SN_OP_and:
        return smt_text("(and %s %s)", x, y);
    case SN_OP_or:
        return smt_text("(or %s %s)", x, y);
    case SN_OP_lt:
        return smt_text("(and (not %s) %s)", x, y);
    case SN_OP_le:
        return smt_text("(or (not %s) %s)", x, y);
    case SN_OP_eq:
        return smt_text("(= %s %s)", x, y);
    case SN_OP_ne:
        return smt_text("(xor %s %s)", x, y);
    default:
        r->why = smt_text("%s of bool", sn_ops[op].name);
        return "";
    }
}

/* ---- terms ---- */

/* Whether it was not declared before. */
static bool declare(row *r, const char *symbol, const char *sort) {
    if (strstr(r->symbols, smt_text(" %s ", symbol))) return false;
    r->symbols = smt_text("%s%s ", r->symbols, symbol);
    r->declarations = smt_text("%s(declare-const %s %s)\n", r->declarations, symbol, sort);
    return true;
}

static void assume(row *r, const char *fact) {
    r->declarations = smt_text("%s(assert %s)\n", r->declarations, fact);
}

static const char *node(row *r, char letter, sn_dtype type) {
    const char *x = smt_text("x_%c%s", letter, r->path);
    if (!declare(r, x, is_float(type) ? "F" : type == SN_BOOL ? "Bool" : "Int")) return x;
    if (is_float(type)) assume(r, smt_text("(and (number %s) (of.type %s))", x, x));
    if (is_float(type) && r->finite) assume(r, smt_text("(plain %s)", x));
    if (!is_float(type) && type != SN_BOOL) assume(r, in_range(type, x));
    return x;
}

static void declare_constants(row *r, const sn_term *t, sn_dtype type) {
    for (int i = 0; i < t->n_in; i++) declare_constants(r, t->in[i], type);
    if (t->kind != SN_TERM_CONSTANT) return;
    const char *k = smt_text("k_%c", t->letter);
    if (declare(r, k, "F")) {
        assume(r, smt_text("(and (number %s) (of.type %s))", k, k));
        if (r->finite) assume(r, smt_text("(plain %s)", k));
    }
    if (!is_float(type))
        assume(r, smt_text("(and (is.integer %s) %s)", k,
                           in_range(type, smt_text("(to_int (real %s))", k))));
}

static const char *translate_view(row *r, const sn_term *t, sn_dtype type) {
    const char *path = r->path;
    r->path = smt_text("%s.%s", path, sn_ops[t->op].name);
    const char *x = translate(r, t->in[0], type);
    r->path = path;
    return x;
}

static bool keeps_values(sn_dtype from, sn_dtype to) {
    return from == to || sn_rule_widens(from, to);
}

/* A cast rounds; but not a value that another cast took from a type whose values it keeps. */
static const char *translate_cast(row *r, const sn_term *t, const char *x, sn_dtype type) {
    const sn_term *inner = t->in[0];
    const sn_dtype between = type_of(r, inner);
    const char *v = is_float(between) ? x : smt_text("(of.real (to_real %s))", x);
    if (inner->kind == SN_TERM_OP && inner->op == SN_OP_cast && is_float(type) &&
        !keeps_values(between, type)) {
        const sn_dtype first = type_of(r, inner->in[0]);
        if (keeps_values(first, between) && keeps_values(first, type))
            add_law(r, smt_text("(= (round_%s %s) %s)", sn_dtype_name(type), v, v));
    }
    return cast(r, x, between, type);
}

static const char *translate_op(row *r, const sn_term *t, sn_dtype type) {
    const sn_op op = t->op == SN_OP_COUNT ? r->comparison : t->op;
    if (op == SN_OP_reshape || op == SN_OP_transpose || op == SN_OP_broadcast)
        return translate_view(r, t, type);
    const char *in[3] = {"", "", ""};
    const sn_dtype operand = type_of(r, t->in[op == SN_OP_select ? 1 : 0]);
    for (int i = 0; i < t->n_in; i++)
        in[i] = translate(r, t->in[i], op == SN_OP_select && !i ? SN_BOOL : operand);
    if (op == SN_OP_cast) return translate_cast(r, t, in[0], type);
    if (op == SN_OP_select) return smt_text("(ite %s %s %s)", in[0], in[1], in[2]);
    return is_float(operand)    ? float_op(r, t, op, in[0], in[1])
           : operand == SN_BOOL ? bool_op(r, op, in[0], in[1])
                                : integer_op(r, operand, op, in[0], in[1]);
}

static const char *translate(row *r, const sn_term *t, sn_dtype type) {
    if (t->is_number) {
        declare_constants(r, t, type);
        return constant(t, type);
    }
    switch (t->kind) {
    case SN_TERM_NODE:
        return node(r, t->letter, type);
    case SN_TERM_SPREAD:
        return translate(r, t->in[0], type);
    case SN_TERM_OP:
        return translate_op(r, t, type);
    default:
        r->why = "further operands";
        return "";
    }
}

/* ---- what conditions mean ---- */

static const sn_term *named(const row *r, char letter) {
    for (int i = 0; i < r->n_term; i++)
        if (r->term[i]->letter == letter && r->term[i]->kind == SN_TERM_OP) return r->term[i];
    for (int i = 0; i < r->n_term; i++)
        if (r->term[i]->letter == letter && r->term[i]->kind == SN_TERM_NODE) return r->term[i];
    return r->form->pattern;
}

/* An index and its operands are small, and nothing wraps around. */
static const char *index_law(row *r, const sn_term *t) {
    const char *x = translate(r, t, type_of(r, t));
    const char *law =
        strncmp(x, "(wrap ", 6) ? smt_text("(is.small %s)", x) : smt_text("(fits %s", x + 6);
    for (int i = 0; i < t->n_in; i++) law = smt_text("(and %s %s)", law, index_law(r, t->in[i]));
    return law;
}

static void add_condition(row *r, const sn_term *t) {
    const char *name = t->condition->name, *fact = NULL;
    const sn_term *a = t->n_in ? t->in[0] : NULL, *b = t->n_in > 1 ? t->in[1] : NULL;
    if (is_type_condition(name) || is_preference(name)) return;
    if (!strcmp(name, "index")) {
        const sn_term *x = a ? named(r, a->letter) : r->form->pattern;
        fact = index_law(r, x);
    } else if (!strcmp(name, "joins")) {
        fact = smt_text("(=> %s %s)", translate(r, a, SN_BOOL), translate(r, b, SN_BOOL));
    } else if (!strcmp(name, "has_value")) {
        const char *k = smt_text("k_%c", b->letter);
        fact = smt_text("(and (is.integer %s) %s)", k,
                        in_range(type_of_letter(r, a->letter), smt_text("(to_int (real %s))", k)));
    } else if (a && a->is_number) {
        const char *v = (declare_constants(r, a, SN_F32), constant(a, SN_F32));
        fact = !strcmp(name, "negative")     ? smt_text("(f.lt %s (zero false))", v)
               : !strcmp(name, "invertible") ? smt_text("(is.fin %s)", v)
               : !strcmp(name, "tame")       ? smt_text("(finite %s)", v)
               : !strcmp(name, "small")
                   ? smt_text("(and (finite %s) (< (- 1073741824.0) (real %s)) (< (real %s) "
                              "1073741824.0))",
                              v, v, v)
                   : NULL;
    }
    if (!fact) {
        r->why = smt_text("the condition %s", name);
        return;
    }
    assume(r, t->negated ? smt_text("(not %s)", fact) : fact);
}

/* ---- problems ---- */

static const char *term_of(void *ctx, const sn_term *t, const char *path, const char **type,
                           const char **sort) {
    row *r = ctx;
    const char *before = r->path;
    const sn_dtype d = type_of(r, t);
    *type = sn_dtype_name(d);
    *sort = is_float(d) ? "F" : d == SN_BOOL ? "Bool" : "Int";
    r->path = path;
    const char *term = translate(r, t, d);
    r->path = before;
    return term;
}

static void add_problem(problems *p, row *r) {
    const sn_form *f = r->form;
    const sn_dtype type = type_of(r, f->pattern);
    r->laws = r->declarations = r->path = "", r->symbols = " ";
    r->n_exp = r->n_log = 0;
    const char *x = translate(r, f->pattern, type), *y = translate(r, f->replacement, type);
    for (int i = 0; i < f->n_when; i++) add_condition(r, f->when[i]);
    for (int i = 0; i < r->n_log; i++)
        for (int j = 0; j < r->n_log && r->rounds; j++)
            for (int k = 0; k < r->n_exp && i != j; k++)
                add_law(r, smt_text("(law.log.exp %s %s)", r->logs[j], r->exps[k]));
    const char *laws = r->laws;
    const smt_graph *graph =
        smt_graph_of(f, &(smt_view){.ctx = r, .term = term_of, .comparison = r->comparison});
    const char *facts = smt_text("%s%s", r->declarations, laws),
               *goal = smt_text("(assert (not (%s %s %s)))\n", is_float(type) ? "same" : "=", x, y);
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->facts[i], facts) && !strcmp(p->goal[i], goal)) return;
    p->facts[p->n] = facts;
    p->goal[p->n] = goal;
    p->graph[p->n++] = graph;
}

static void add_types(problems *p, row *r, int variable) {
    while (variable < r->n_variable && find(r, variable) != variable) variable++;
    if (r->why || p->n == MAX_PROBLEMS) return;
    if (variable == r->n_variable) {
        if (types_fit(r) && type_conditions_hold(r)) add_problem(p, r);
        return;
    }
    for (int t = 0; t < SN_DTYPE_COUNT; t++) {
        r->type[variable] = (sn_dtype)t;
        add_types(p, r, variable + 1);
    }
}

static bool has_any_comparison(const sn_term *t) {
    bool any = t->kind == SN_TERM_OP && t->op == SN_OP_COUNT;
    for (int i = 0; i < t->n_in; i++) any |= has_any_comparison(t->in[i]);
    return any;
}

problems smt_elementwise(const sn_form *form, bool rounds, bool finite) {
    static const sn_op comparisons[] = {SN_OP_lt, SN_OP_le, SN_OP_eq, SN_OP_ne};
    problems p = {.facts = smt_array(MAX_PROBLEMS),
                  .goal = smt_array(MAX_PROBLEMS),
                  .graph = smt_room(MAX_PROBLEMS * sizeof(smt_graph *))};
    row r = {.form = form, .rounds = rounds, .finite = finite};
    for (int i = 0; i < N_LETTERS; i++) r.of_letter[i] = -1;
    infer(&r, form->pattern);
    infer(&r, form->replacement);
    if (!r.why) unify(&r, variable_of(&r, form->pattern), variable_of(&r, form->replacement));
    for (int i = 0; i < (has_any_comparison(form->pattern) ? 4 : 1); i++) {
        r.comparison = comparisons[i];
        add_types(&p, &r, 0);
    }
    p.why = r.why ? r.why : p.n ? NULL : "no types fit";
    return p;
}
