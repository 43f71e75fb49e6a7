/* form.h: rows of rules as trees: read from their text by read.c, matched and built by rules.c, and proved by
 * tests/rules/. */
#ifndef SN_RULES_FORM_H
#define SN_RULES_FORM_H

#include "passes/rules/rules.h"

enum { SN_MAX_CONDITIONS = 6 };

/* A row of conditions.def. */
typedef struct sn_condition {
    const char *name;
    bool (*holds)(const sn_node *x, const sn_node *y, double v);
} sn_condition;

typedef struct sn_term {
    enum {
        SN_TERM_NUMBER,
        SN_TERM_CONSTANT,
        SN_TERM_NODE,
        SN_TERM_OP,
        SN_TERM_SPREAD,
        SN_TERM_REST,
        SN_TERM_CONDITION
    } kind;
    bool is_number;                /* consists of numbers and constants */
    bool negated;                  /* a condition */
    char letter;                   /* of a constant or node, or 0 */
    char like;                     /* m of f[m](x), or 0 */
    sn_op op;                      /* SN_OP_COUNT: any comparison */
    const sn_condition *condition; /* of a condition */
    double number;
    int n_in;
    const struct sn_term *in[3];
} sn_term;

typedef struct sn_form {
    const sn_term *pattern, *replacement, *when[SN_MAX_CONDITIONS];
    int n_when;
} sn_form;

bool sn_rule_compares(int op); /* may stand for ~ */
/* Whether the type `to` represents every value of the type `from`. */
bool sn_rule_widens(sn_dtype from, sn_dtype to);

#endif
