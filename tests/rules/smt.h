/* smt.h: rows of rules as problems of SMT-LIB: unsatisfiable if the row is right. */
#ifndef SN_TEST_SMT_H
#define SN_TEST_SMT_H

#include "passes/rules/form.h"

/* Text of any length and arrays, which live until smt_free. */
const char *smt_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char **smt_array(int n);
void *smt_room(size_t bytes); /* zeros */
void smt_free(void);

/* What the command of a solver prints about the problems in a file. A solver that hangs is ended after a minute (with
 * SN_TEST_LONG an hour) and asked once more: z3's timer may wait for itself. */
const char *smt_solve(const char *command, const char *path);

/* Both sides of a row as graphs, whose nodes a solver gives values. */
enum { SMT_MAX_LINES = 96 };
typedef struct smt_line {
    const char *text, *sort, *term; /* term: of the value, NULL: it has none */
} smt_line;
typedef struct smt_graph {
    smt_line line[SMT_MAX_LINES];
    int n;
} smt_graph;
/* How a row was translated: the term of a node below the views `path`, NULL: it has none; its type and the term's
 * sort. */
typedef struct smt_view {
    void *ctx;
    const char *(*term)(void *ctx, const sn_term *t, const char *path, const char **type,
                        const char **sort);
    sn_op comparison;   /* that ~ stands for */
    bool follows_names; /* a name in the replacement is the operation of the pattern */
} smt_view;
smt_graph *smt_graph_of(const sn_form *form, const smt_view *view);
/* Commands that ask for the values, and the text with the answers, which are passed over. NULL: no values. */
const char *smt_graph_questions(const smt_graph *g);
const char *smt_graph_text(const smt_graph *g, const char **answer);

/* One problem for each assignment of types to the nodes of a row and each comparison that ~ stands
 * for; equal ones once. The row is right if no values satisfy the facts and the negated goal. */
typedef struct problems {
    const char **facts, **goal; /* [n] commands */
    const smt_graph **graph;    /* [n] whose values are a counterexample */
    int n;
    const char *why; /* what of the row cannot be said; NULL: nothing */
} problems;

/* The operation of this letter in a pattern; NULL: none. */
const sn_term *smt_operation(const sn_term *pattern, char letter);

/* rounds, finite: what the row claims. */
problems smt_elementwise(const sn_form *form, bool rounds, bool finite);
/* Rows with sums along an axis, in real numbers. */
problems smt_sums(const sn_form *form);
bool smt_has_sums(const sn_form *form);

#endif
