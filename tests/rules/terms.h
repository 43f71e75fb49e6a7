/* terms.h: the elements of tensors as terms over the elements of leaves, for a solver: numbers of an evaluator (sn_numbers,
 * ir/ir.h), so that structure is evaluated and arithmetic stays. Equal terms are one node.
 *
 * Free terms know no law: an operation is any function of its operands, so that what is equal is the same bits. The others
 * are real numbers. Infinities and what follows from constants alone are numbers at once; a constant is the simple
 * fraction or the root of one nearby, as in ir/field.h. The operands of functions other than + and * are in normal form:
 * sums of products with rational factors. e^ of a sum is a product of e^ of its terms; 1 / (x y) is the product of 1 / x
 * and 1 / y. A solver checks each normal form. */
#ifndef SN_TEST_TERMS_H
#define SN_TEST_TERMS_H

#include "ir/ir.h"

typedef enum term_kind {
    T_NUMBER, /* value; up to T_NAN below: fixed */
    T_LEAF,   /* element b of the leaf `name` */
    T_ADD,
    T_MUL,
    T_RECIP,
    T_EXP, /* e^ of a product */
    T_LOG,
    T_ROOT,
    T_CALL, /* op(a, b, c): max, abs and what has no law; free: any */
    T_IF,   /* a ? b : c */
    T_LESS, /* bools: a < b, a <= b, a = b, not a, a and b */
    T_LESS_EQUAL,
    T_EQUAL,
    T_NOT,
    T_AND,
} term_kind;

enum { T_ZERO, T_ONE, T_INF, T_MINUS_INF, T_NAN, T_FIXED };
enum { TERMS_MAX = 1 << 17, TERM_MAX_FACTORS = 24 };

typedef struct rational {
    int64_t p, q; /* q 0: none */
} rational;

typedef struct term {
    term_kind kind;
    int a, b, c;    /* operands; -1: none */
    int op;         /* of T_CALL: sn_op, free: and the type of the result, 16 op + type */
    bool known;     /* it has no leaves */
    double real;    /* of what is known */
    rational value; /* of T_NUMBER */
    int of_root;    /* T_NUMBER without value: its square; -1: none */
    const char *name;
} term;

extern const sn_numbers term_numbers;

/* Begins anew: no terms. */
void terms_begin(bool free);
const term *term_at(int t);
int terms_count(void);
/* Why a term is missing; NULL: none is. */
const char *terms_failed(void);

int term_number(double x, bool exact);
int term_add(int x, int y);
int term_mul(int x, int y);
int term_minus(int x);
int term_exp(int x);
/* A sum of products, equal to t; t, if it is too long. */
int term_normal(int t);
/* Whether the normal form of t has a logarithm among its products. */
bool term_has_log(int t);

/* A sum or product of e^ and numbers above 0. */
bool term_is_positive(int t);

/* t as num / (den[0] den[1] ...), which are not fractions. */
typedef struct fraction {
    int num, n;
    const int *den;
} fraction;
fraction term_fraction(int t);

/* Terms x and their normal forms y, which were used. */
typedef struct term_pair {
    int x, y;
} term_pair;
int terms_pairs(const term_pair **pairs);

/* ---- terms_smt.c ---- */

enum { TERM_MAX_LEAVES = 64 };

/* The question whether no values make something untrue, as commands; variable v[i] is the element term leaf[i]. Names do not
 * depend on the tensors, so that equal questions are equal texts. */
typedef struct term_question {
    const char *text; /* of smt_text */
    int n_leaf, leaf[TERM_MAX_LEAVES], variable[TERM_MAX_LEAVES];
} term_question;

/* Whether element x before equals y after; terms from `after` on are not part of the graph before. */
term_question term_ask_equal(int x, int y, int after);
/* The same of free terms. */
term_question term_ask_free(int x, int y);
/* Whether pair i is equal, and whether the term t has a value, if its operand has (1 / 0, ln 0). text NULL: no question. */
term_question term_ask_pair(int i, int after);
term_question term_ask_defined(int t, int after);

#endif
