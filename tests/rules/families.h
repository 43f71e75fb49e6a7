/* families.h: families of graphs for the rules that are functions: a function builds a graph from choices, and is called
 * with all of them, one after another. */
#ifndef SN_TEST_FAMILIES_H
#define SN_TEST_FAMILIES_H

#include "frontend/sinter.h"
#include "ir/ir.h"
#include "passes/rules/rules.h"

typedef struct family {
    const char *rule;
    sn_op op;                /* at whose nodes it looks; SN_OP_COUNT: any */
    sn_node *(*graph)(void); /* may return NULL: no graph for these choices */
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
/* What the rule makes of the node; NULL: it does not apply. */
sn_node *applied(const sn_rule_row *rule, sn_node *n);
/* How many graphs of the family the rule changes. All are equal afterwards, or *wrong shows one: before, after, and the
 * first element that differs. Static. */
int try_family(const family *f, const sn_rule_row *rule, const char **wrong);

#endif
