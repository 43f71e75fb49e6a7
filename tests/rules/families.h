/* families.h: families of graphs for the rules that are functions: a function builds a graph from choices, and is called
 * with all of them, one after another. */
#ifndef SN_TEST_FAMILIES_H
#define SN_TEST_FAMILIES_H

#include "frontend/sinter.h"
#include "ir/ir.h"
#include "passes/rules/rules.h"

/* Why sizes 1 to 3 (loops: 3 elements) stand for all. Assumed of the functions in passes/simplify and passes/raise, whose laws
 * stand above them: of a size they ask only whether it is 1 and whether it equals another one, and into what they make
 * it goes unchanged or with offsets added. */
typedef enum size_argument {
    BY_INDEX, /* element i is made of elements whose index is i but for 0 on axes of size 1: sizes only bound i */
    BY_CUT, /* slices, pads, parts: an index counts by its order among the cuts, and all orders occur */
    BY_SUM, /* sums along an axis that the function keeps whole: another element is one more term of the same form */
    BY_STEP, /* loops: an element is made of the carry before it, so what holds for one holds for the next */
    N_SIZE_ARGUMENTS
} size_argument;

typedef struct family {
    const char *rule;
    sn_op op;                /* at whose nodes it looks; SN_OP_COUNT: any */
    sn_node *(*graph)(void); /* may return NULL: no graph for these choices */
    sn_claim claim;          /* EQUAL: operations may be any; ROUNDS_FINITE: in real numbers */
    size_argument sizes;
} family;

extern const family plain_families[], attention_families[];
extern const int n_plain_families, n_attention_families;

/* ---- parts of graphs ---- */

extern sn_module *m; /* in which they are built */

/* One of 0 … n - 1. */
int choose(int n);
void choose_sizes(int rank, sn_dim *size, int n); /* 1 … n each */
/* A random f32 tensor. */
sn_node *leaf(const char *name, int rank, const sn_dim *shape);
/* A product over axes cx and cy, n of them, along n_batch axes bx and by. */
sn_node *dot(sn_node *x, sn_node *y, int n_batch, int64_t bx, int64_t by, int n, int64_t cx,
             int64_t cy);
sn_node *in_any_order(sn_op op, sn_node *x, sn_node *y);

/* ---- trying ---- */

/* The rule of a family. */
const sn_rule_row *row_of(const family *f);
const family *family_of(const char *rule, sn_op op);
/* What the rule makes of the node; NULL: it does not apply. */
sn_node *applied(const sn_rule_row *rule, sn_node *n);
/* A value of an element of a leaf. */
typedef struct leaf_value {
    const char *name;
    int element;
    double value;
} leaf_value;
/* Element i in doubles, with these values. */
double family_element(sn_node *n, int64_t i, int n_given, const leaf_value *given);
/* Both graphs, and their values at element `at`. Static. */
const char *show_graphs(sn_node *x, sn_node *y, int64_t at, int n_given, const leaf_value *given);
/* Calls `visit` for graphs of the family that the rule changes, until it is false: the first `few` of them, then every one
 * whose number effort_takes with `every`; every 0: then as many with choices at random, and in the long run all. How
 * many. */
int visit_family(const family *f, const sn_rule_row *rule, size_t few, size_t every,
                 bool (*visit)(void *ctx, sn_node *x, sn_node *y), void *ctx);
/* The first element in which two nodes differ over finite fields; -1: they are equal. */
int64_t family_difference(sn_node *x, sn_node *y);
/* The values of symbolic sizes. */
extern const int64_t family_symbols[];
/* How many graphs of the family the rule changes. All are equal afterwards, or *wrong shows one: before, after, and the
 * first element that differs. Static. */
int try_family(const family *f, const sn_rule_row *rule, const char **wrong);

/* ---- wrong_functions.c ---- */

/* In place of the function of a family. change: of the nodes that the right one makes. */
typedef struct wrong_function {
    const char *rule;
    sn_op op;
    sn_rule_row row;
    sn_node *(*change)(void *ctx, sn_node *n);
} wrong_function;
extern const wrong_function wrong_functions[];
extern const int n_wrong_functions;
/* Number i as a rule. */
const sn_rule_row *wrong_row(int i);

#endif
