/* op_case.h: one row of tests/support/ops.def: an op, its operands with generators, attributes,
 * tolerance and expected values. Shared by the modes of the test program: builds a module and data
 * for a row. */
#ifndef OP_CASE_H
#define OP_CASE_H

#include "ir/ir.h"

#define MAX_IN 10
#define MAX_CASE_ATTR 6

/* An open size: the row runs with the symbolic dimension T at several values. */
#define LEN (INT64_MIN + 1)

/* Operand generators: a kind in the low byte, its parameter above. */
enum {
    GEN_NORMAL,   /* standard normal */
    GEN_POSITIVE, /* in (0.1, 4) */
    GEN_UNIT,     /* in (-1, 1) */
    GEN_SMALL,    /* in (-0.1, 0.1) */
    GEN_DECAY,    /* in (-2, 0) */
    /* normal, at least 0.1 away from every multiple of 0.5: avoids points without derivative */
    GEN_APART,
    GEN_COUNT,   /* 0, 1, 2, … */
    GEN_IDS,     /* integers in [0, n) */
    GEN_BOOL,    /* 0 or 1 */
    GEN_SPECIAL, /* zeros, infinities, NaN, subnormals, extremes of the range */
    GEN_HIDDEN,  /* normal with some -inf, and one row entirely -inf */
};

typedef struct case_in {
    bool used;
    sn_dtype dtype;
    int64_t gen;
    int rank;
    int64_t shape[SN_MAX_RANK];
} case_in;

/* A region for an attribute, and the same function in plain C: x is the score, at = b, h, q, k. */
typedef struct case_region {
    const sn_region *(*make)(sn_module *m, int n_in, sn_node *const *in);
    double (*plain)(double x, const int64_t *at, const sn_value *const *in);
} case_region;

typedef struct case_attr {
    bool used;
    sn_attr attr;
    const case_region *region;
} case_attr;

typedef struct ref_call {
    const sn_node *n;
    const struct op_case *row;
    const sn_value *const *in;
    const sn_value *result; /* writes the shape of the result */
    double *out;
} ref_call;
typedef void (*ref_fn)(const ref_call *c);

typedef struct op_case {
    sn_op op;
    int line; /* line in tests/support/ops.def */
    case_in in[MAX_IN + 1];
    case_attr attr[MAX_CASE_ATTR + 1];
    double tol; /* f32 against exact arithmetic: |a - b| <= tol (1 + |b|) */
    const double *want;
    int n_want;
    ref_fn ref;
    sn_op of;         /* a row of `result`: the op … */
    int index;        /* … and which of its results */
    bool only_sum;    /* kernels need not give the values of the decomposition, … */
    int64_t sum_axis; /* … only their sums over this axis */
    bool as_is;       /* no mode takes f64 for f32: the layout of panels depends on the type */
} op_case;

extern const op_case op_cases[];
extern const int op_case_count;

/* The textbook formula of every composite (ref_ops.c). NULL: the row must have WANT. */
ref_fn ref_of(sn_op op);

int op_case_n_in(const op_case *row);
bool op_case_is_symbolic(const op_case *row);
/* Builds the row in m: inputs x0, x1, … and the node. wide: f64 instead of f32. params: bit i makes
 * operand i a parameter if its shape is fixed. */
sn_node *op_case_build(const op_case *row, sn_module *m, bool wide, unsigned params, sn_node **in);
/* The same beside other rows: names of inputs end in _ and the row's number. */
sn_node *op_case_build_beside(const op_case *row, sn_module *m, bool wide, unsigned params,
                              sn_node **in);
/* The elements of input i for T = len, in its dtype; the same for every call. The caller frees
 * them. */
void *op_case_data(const op_case *row, int i, bool wide, int64_t len, size_t *bytes);
/* An evaluator for the row with all inputs bound. */
sn_eval *op_case_eval(const op_case *row, sn_module *m, bool wide, int64_t len);
/* |a - b| <= tol (1 + |b|); infinities and NaN must match. */
bool op_case_close(double a, double b, double tol);

/* A mode: checks a row for one value of T; fails the cmocka test. */
typedef struct op_mode {
    const char *name;
    void (*run)(const op_case *row, int64_t len);
    int64_t len[4]; /* of rows with an open length */
    int n_len;
} op_mode;
extern const op_mode op_compiled_modes[];
extern const int op_compiled_count;
/* Whether rows may share modules. 0, or the modes cannot run. */
int op_compiled_begin(bool together);
void op_compiled_end(void);

/* Whether the row has a gradient to check: f32 floats without special values. (op_grad.c) */
bool op_grad_takes(const op_case *row);
/* Checks the gradient of the row's result, and the gradient of that, against differences in f64. */
void op_grad_check(const op_case *row, int64_t len);

#endif
