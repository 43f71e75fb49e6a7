/* rules.h: rewrite rules as rows of tables. A row says in algebra what becomes of what, and under which conditions;
 * what is not algebra (axes, attributes, shapes) is a function in the same table.
 *
 *   RULE(name, LEVEL, CLAIM, "pattern = replacement", "conditions")   from this fusion level on
 *   CODE(name, LEVEL, op)                                             promises a function; COUNT: for all ops
 *
 * A pattern consists of
 *   x                  any node; a second x is the same node
 *   2, 1 / 2, -inf     this constant;  #c any constant;  a constant has any shape
 *   f(x), - * / + ...  an op of ir/ops.def by its name or sign (| & == != < <= + - * /, c ? x : y); the operands of
 *                      commutative ops in both orders, first as written. Constants stand on the right of these
 *   x ~ y              any of < <= == !=; the same one in the replacement
 *   x * #c             also -x, with c = -1, in floats
 *   spread(p)          p, or p broadcast
 *   m@p                p, whose node is called m
 *   f(x, ...)          further operands, or none; the same in the replacement
 *
 * In a replacement, an expression of constants is one constant, computed in double, with the type of what it meets.
 * Operands are broadcast where their shapes differ; broadcast(x) has the shape of the node that is replaced, cast(x)
 * its type. An op with attributes has those of m in f[m](x), otherwise those of the node that is replaced.
 *
 * Conditions (conditions.def) are separated by commas and all hold; "!" negates one. Without operand it is about the
 * node that is replaced. If one does not hold, other orders of operands are tried.
 *
 * A row claims how equal both sides are; tests/rules/ proves it for all types that its conditions allow (all NaN are one
 * number; two zeros are equal, whatever their signs):
 *   EQUAL          the same number, in every type and for every operand
 *   FINITE         ... where operands are neither infinite nor NaN nor -0
 *   ROUNDS         the same in real numbers with infinities, where nothing overflows: it rounds elsewhere
 *   ROUNDS_FINITE  both
 *
 * A replacement must have the type and shape of the node: otherwise the next rule is tried. */
#ifndef SN_RULES_H
#define SN_RULES_H

#include "ir/ir.h"
#include "passes/kernels/levels.h"

struct sn_raiser;

typedef enum sn_claim {
    SN_CLAIM_EQUAL,
    SN_CLAIM_FINITE,
    SN_CLAIM_ROUNDS,
    SN_CLAIM_ROUNDS_FINITE
} sn_claim;

typedef struct sn_rule_row {
    const char *name;
    sn_level level;
    sn_claim claim;         /* of a row with text */
    const char *row, *when; /* NULL: a function */
    sn_op op;               /* at whose nodes it looks */
    sn_node *(*rewrite)(sn_node *n);
    sn_node *(*raise)(struct sn_raiser *r, sn_node *n);
} sn_rule_row;

/* RULE as a row of a table in C. */
#define SN_RULE_ROW(id, from, how, text, conditions)                                               \
    {                                                                                              \
        .name = #id, .level = SN_LEVEL_##from, .claim = SN_CLAIM_##how, .row = text,               \
        .when = conditions                                                                         \
    }

/* A table and what sn_rules_read makes of it. */
typedef struct sn_rules {
    const sn_rule_row *rule; /* [n] */
    int n;
    struct sn_form *form;       /* [n] the rows as trees */
    uint16_t *of_op;            /* for each op the numbers of its rules, in order, */
    int begin[SN_OP_COUNT + 1]; /* from here on */
    const char *wrong;          /* the first rule with a mistake; NULL: none */
} sn_rules;

/* Once for each table, before it is applied. Without memory of_op is NULL, and applying it fails the
 * module: without rules its results would have other bits. */
void sn_rules_read(sn_rules *rules);
/* What the first rule makes of n that applies at the level, or NULL. r: for rules that need it. */
sn_node *sn_rules_apply(const sn_rules *rules, struct sn_raiser *r, int level, sn_node *n);

#endif
