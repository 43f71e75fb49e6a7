/* read.c: reads rows of rules into trees, and says which conditions there are. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/rules/form.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- conditions ---- */

static bool fits_f32(double v) {
    return v == 0 || (fabs(v) > 1e-37 && fabs(v) < 1e38);
}

static bool is_constant(const sn_node *x) {
    double v;
    return sn_match_const(x, &v);
}

bool sn_rule_widens(sn_dtype from, sn_dtype to) {
    static const uint16_t wider[SN_DTYPE_COUNT] = {
        [SN_BOOL] = 0xffff,
        [SN_BF16] = 1 << SN_F32 | 1 << SN_F64,
        [SN_F16] = 1 << SN_F32 | 1 << SN_F64,
        [SN_F32] = 1 << SN_F64,
        [SN_I8] = 1 << SN_I32 | 1 << SN_I64 | 1 << SN_F32 | 1 << SN_F64,
        [SN_U8] = 1 << SN_I32 | 1 << SN_I64 | 1 << SN_F32 | 1 << SN_F64,
        [SN_I32] = 1 << SN_I64 | 1 << SN_F64,
    };
    return wider[from] >> to & 1;
}

static sn_dim count_of(const sn_node *sum) {
    const sn_attr *axes = sn_attr_get(sum, SN_A_axes);
    sn_dim n = sn_dim_const(sum->m, 1);
    for (int i = 0; i < axes->n; i++) n = sn_dim_mul(sum->m, n, sum->in[0]->shape[axes->v[i]]);
    return n;
}

/* Whether c times the n-th power of the number of elements of each sum is 1. */
static bool averages(const sn_node *sum, double c, int n) {
    int64_t size;
    return sn_dim_is_const(sum->m, count_of(sum), &size) && size > 0 &&
           sn_match_near(c * pow((double)size, n), 1);
}

/* Whether x is the number of elements of each sum, possibly broadcast or cast. */
static bool counts(const sn_node *x, const sn_node *sum) {
    while (x->op == SN_OP_broadcast || x->op == SN_OP_cast || x->op == SN_OP_reshape) x = x->in[0];
    return x->op == SN_OP_dim_value && sn_attr_get(x, SN_A_dim)->i == count_of(sum);
}

static bool counts_inverse(const sn_node *x, const sn_node *sum) {
    while (x->op == SN_OP_broadcast || x->op == SN_OP_reshape) x = x->in[0];
    return x->op == SN_OP_recip && counts(x->in[0], sum);
}

static bool same_list(const sn_attr *a, const sn_attr *b) {
    return a->n == b->n && (!a->n || !memcmp(a->v, b->v, sizeof *a->v * (size_t)a->n));
}

/* Whether c is one of the conditions that x joins by `and`; each may be broadcast. */
static bool joins(const sn_node *x, const sn_node *c) {
    return sn_match_below((sn_node *)(uintptr_t)x) == sn_match_below((sn_node *)(uintptr_t)c) ||
           (x->op == SN_OP_and && (joins(x->in[0], c) || joins(x->in[1], c)));
}

/* Whether x has one value along the axis of y. */
static bool constant_along(const sn_node *x, const sn_node *y) {
    int axis = (int)sn_attr_int(y, SN_A_axis, y->rank - 1);
    return sn_match_row((sn_node *)(uintptr_t)x, x, axis);
}

#define CONDITION(name, expression)                                                                \
    static bool holds_##name(const sn_node *x, const sn_node *y, double v) {                       \
        (void)x, (void)y, (void)v;                                                                 \
        return expression;                                                                         \
    }
#include "passes/rules/conditions.def"
#undef CONDITION

static const sn_condition conditions[] = {
#define CONDITION(name, expression) {#name, holds_##name},
#include "passes/rules/conditions.def"
#undef CONDITION
};

/* ---- reading ---- */

typedef struct reader {
    const char *at;
    sn_term *next; /* a term has at least one character */
    bool failed;
} reader;

static const struct {
    const char *sign;
    int rank; /* those with a higher one bind more */
    sn_op op;
} signs[] = {{"|", 1, SN_OP_or},  {"&", 2, SN_OP_and}, {"==", 3, SN_OP_eq},   {"!=", 3, SN_OP_ne},
             {"<=", 3, SN_OP_le}, {"<", 3, SN_OP_lt},  {"~", 3, SN_OP_COUNT}, {"+", 4, SN_OP_add},
             {"-", 4, SN_OP_sub}, {"*", 5, SN_OP_mul}, {"/", 5, SN_OP_div}};

static bool accept(reader *r, const char *sign) {
    r->at += strspn(r->at, " ");
    bool is_next = !strncmp(r->at, sign, strlen(sign));
    if (is_next) r->at += strlen(sign);
    return is_next;
}

static void expect(reader *r, const char *sign) {
    r->failed |= !accept(r, sign);
}

static char read_letter(reader *r) {
    r->failed |= !islower((unsigned char)*r->at);
    return r->failed ? 'a' : *r->at++;
}

static sn_term *make(reader *r, sn_term t) {
    *r->next = t;
    return r->next++;
}

static sn_term *make_op(reader *r, sn_op op, int n, const sn_term *const *in) {
    sn_term *t = make(r, (sn_term){.kind = SN_TERM_OP, .op = op, .n_in = n, .is_number = n > 0});
    for (int i = 0; i < n; i++) {
        t->in[i] = in[i];
        t->is_number &= in[i]->is_number;
    }
    return t;
}

static sn_term *read_term(reader *r);

/* x, inf, f(x, y), f[m](x) or a condition */
static sn_term *read_named(reader *r) {
    char name[32] = "";
    size_t n = strspn(r->at, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (n < sizeof name) memcpy(name, r->at, n);
    r->at += n;
    if (n == 1) return make(r, (sn_term){.kind = SN_TERM_NODE, .letter = *name});
    if (!strcmp(name, "inf"))
        return make(r, (sn_term){.kind = SN_TERM_NUMBER, .is_number = true, .number = INFINITY});
    sn_term t = {.kind = strcmp(name, "spread") ? SN_TERM_OP : SN_TERM_SPREAD};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        if (!strcmp(name, conditions[i].name))
            t.kind = SN_TERM_CONDITION, t.condition = &conditions[i];
    r->failed |= t.kind == SN_TERM_OP && !sn_op_parse(name, &t.op);
    if (accept(r, "[")) {
        t.like = read_letter(r);
        expect(r, "]");
    }
    if (accept(r, "(")) {
        do t.in[t.n_in++] = read_term(r);
        while (t.n_in < 3 && !r->failed && accept(r, ","));
        expect(r, ")");
    }
    return make(r, t);
}

static sn_term *read_operand(reader *r) {
    static sn_term nothing;
    sn_term *t = &nothing;
    if (r->failed) return t;
    if (accept(r, "-")) {
        t = read_operand(r);
        if (t->kind != SN_TERM_NUMBER) return make_op(r, SN_OP_neg, 1, (const sn_term *[]){t});
        t->number = -t->number;
    } else if (accept(r, "(")) {
        t = read_term(r);
        expect(r, ")");
    } else if (accept(r, "...")) {
        t = make(r, (sn_term){.kind = SN_TERM_REST});
    } else if (accept(r, "#")) {
        t = make(r,
                 (sn_term){.kind = SN_TERM_CONSTANT, .is_number = true, .letter = read_letter(r)});
    } else if (isdigit((unsigned char)*r->at)) {
        char *end;
        t = make(r, (sn_term){.kind = SN_TERM_NUMBER,
                              .is_number = true,
                              .number = (double)strtol(r->at, &end, 10)});
        r->at = end;
    } else if (*r->at && r->at[1] == '@') {
        char letter = read_letter(r);
        expect(r, "@");
        t = read_operand(r);
        t->letter = letter;
        r->failed |= t->kind != SN_TERM_OP;
    } else {
        t = read_named(r);
    }
    return t;
}

/* Operands joined by signs of this rank or a higher one. */
static sn_term *read_joined(reader *r, int rank) {
    sn_term *t = read_operand(r);
    for (size_t i = 0; i < sizeof signs / sizeof *signs && !r->failed; i++) {
        if (signs[i].rank < rank || !accept(r, signs[i].sign)) continue;
        t = make_op(r, signs[i].op, 2, (const sn_term *[]){t, read_joined(r, signs[i].rank + 1)});
        i = (size_t)-1;
    }
    return t;
}

static sn_term *read_term(reader *r) {
    sn_term *t = read_joined(r, 1);
    if (r->failed || !accept(r, "?")) return t;
    const sn_term *in[3] = {t, read_term(r)};
    expect(r, ":");
    in[2] = read_term(r);
    return make_op(r, SN_OP_select, 3, in);
}

/* The letters that a term mentions, nodes and constants apart. */
static uint64_t letters_of(const sn_term *t) {
    uint64_t all =
        t->letter ? UINT64_C(1) << (t->letter - 'a' + 32 * (t->kind == SN_TERM_CONSTANT)) : 0;
    if (t->like) all |= UINT64_C(1) << (t->like - 'a');
    for (int i = 0; i < t->n_in; i++) all |= letters_of(t->in[i]);
    return all;
}

static void read_row(reader *r, const sn_rule_row *rule, sn_form *f) {
    r->at = rule->row;
    f->pattern = read_term(r);
    expect(r, "=");
    f->replacement = read_term(r);
    r->failed |= *r->at || f->pattern->kind != SN_TERM_OP || f->replacement->is_number;
    uint64_t used = letters_of(f->replacement);
    for (r->at = rule->when; *r->at && !r->failed && f->n_when < SN_MAX_CONDITIONS;) {
        const bool negated = accept(r, "!");
        sn_term *t = read_operand(r);
        t->negated = negated;
        for (int i = 0; i < t->n_in; i++)
            r->failed |= !t->in[i]->is_number && t->in[i]->kind != SN_TERM_NODE;
        r->failed |= t->kind != SN_TERM_CONDITION || (*r->at && !accept(r, ","));
        used |= letters_of(f->when[f->n_when++] = t);
    }
    r->failed |= *r->at || used & ~letters_of(f->pattern);
}

bool sn_rule_compares(int op) {
    return op == SN_OP_lt || op == SN_OP_le || op == SN_OP_eq || op == SN_OP_ne;
}

void sn_rules_read(sn_rules *rules) {
    enum { SPARE = 64 }; /* for a row with a mistake */
    size_t size = 0;
    int count = 0;
    for (int i = 0; i < rules->n; i++)
        if (rules->rule[i].row) size += strlen(rules->rule[i].row) + strlen(rules->rule[i].when);
    reader r = {.next = calloc(size + SPARE, sizeof *r.next)};
    rules->form = calloc((size_t)rules->n, sizeof *rules->form);
    if (r.next && rules->form)
        rules->of_op = calloc((size_t)rules->n * SN_OP_COUNT, sizeof *rules->of_op);
    rules->wrong = rules->of_op ? NULL : "";
    for (int i = 0; i < rules->n && !rules->wrong; i++) {
        if (rules->rule[i].row) read_row(&r, &rules->rule[i], &rules->form[i]);
        if (r.failed) rules->wrong = rules->rule[i].name;
    }
    for (int op = 0; op < SN_OP_COUNT && !rules->wrong; op++) {
        for (int i = 0; i < rules->n; i++) {
            const sn_term *p = rules->form[i].pattern;
            const sn_op head = p ? p->op : rules->rule[i].op;
            bool any = head == SN_OP_COUNT && (!p || sn_rule_compares(op));
            if (head == (sn_op)op || any) rules->of_op[count++] = (uint16_t)i;
        }
        rules->begin[op + 1] = count;
    }
}
