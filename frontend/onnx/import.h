/* import.h: shared by the files of frontend/onnx: the values of a graph while it is imported, and what the
 * functions of operators are given. Internal. */
#ifndef SN_ONNX_IMPORT_H
#define SN_ONNX_IMPORT_H

#include "frontend/front.h"
#include "frontend/onnx/file.h"
#include "runtime/problems.h"

/* An element that is known while the graph is built: a polynomial of symbolic dims, as the shapes that
 * exported graphs compute have, or a number. Integers and bools are always polynomials. */
typedef struct onnx_elem {
    bool poly;
    sn_dim d;
    double x; /* !poly */
} onnx_elem;

enum { ONNX_KNOWN_MAX = 4096, ONNX_ARRAY_MAX = 256 }; /* elements of values that are known */

typedef struct onnx_value {
    const char *name;
    sn_dtype type;
    onnx_type narrow; /* the type in the file: `type` may be a wider one; 0: `type` itself */
    int rank;
    sn_dim shape[SN_MAX_RANK];
    sn_tensor t;             /* NULL: not made yet (onnx_tensor_of) */
    const onnx_elem *known;  /* of all elements, row-major; or NULL */
    const sn_weight *weight; /* an array of the file; or NULL */
} onnx_value;

typedef struct onnx_scope onnx_scope;
typedef struct onnx_import onnx_import;

enum { ONNX_OUT_MAX = 64 };
/* A node whose operator is to be expressed in calls of the DSL. */
typedef struct onnx_call {
    onnx_import *im;
    sn_module *m;
    sn_loc at; /* the file, and the number of the node */
    const onnx_node *node;
    const struct onnx_row *row;
    onnx_scope *scope;
    int64_t opset; /* of the operator's domain */
    int n_in;
    onnx_value *const *in; /* [n_in]; NULL: not given */
    onnx_value *out[ONNX_OUT_MAX];
} onnx_call;

/* The macros of the DSL record the node as the source location of the operations. */
#undef SN_HERE
#define SN_HERE (c->at)

/* ---- the table of operators (table.c) ---- */

typedef bool onnx_known_fn(onnx_call *c, const onnx_elem *x, onnx_elem *out);
typedef struct onnx_row {
    const char *name, *domain; /* domain "": ai.onnx */
    int since, until; /* versions of the domain; until 0: no later one is known that differs */
    bool (*make)(onnx_call *c);
    /* what `make` calls, if several operators share it */
    sn_tensor (*unary)(sn_loc, sn_tensor);
    sn_tensor (*binary)(sn_loc, sn_operand, sn_operand);
    onnx_known_fn *known; /* of elements that are known; NULL: they become tensors */
    int flag;
} onnx_row;
/* NULL: not supported; *near: a row of other versions, or NULL. */
const onnx_row *onnx_find_row(const char *domain, const char *op, int64_t version,
                              const onnx_row **near);
const onnx_row *onnx_row_at(int i); /* NULL: no more */

/* ---- for the functions of operators ---- */

/* Records why a node cannot be imported; returns false. */
bool onnx_fail(onnx_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool onnx_given(const onnx_call *c, int i);
/* Input i as a tensor; the error tensor if it is missing. */
sn_tensor onnx_in(onnx_call *c, int i);
sn_tensor onnx_in_or_null(onnx_call *c, int i);
sn_tensor onnx_tensor_of(onnx_call *c, onnx_value *v);
/* Sets output i. False: the module has an error. */
bool onnx_set(onnx_call *c, int i, sn_tensor t);
/* The same of a type of ONNX's; onnx_set takes input 0's, for output 0. */
bool onnx_set_narrow(onnx_call *c, int i, sn_tensor t, onnx_type narrow);
bool onnx_set_known(onnx_call *c, int i, sn_dtype type, int rank, const sn_dim *shape,
                    const onnx_elem *e);
/* Output i is the value itself. */
bool onnx_set_value(onnx_call *c, int i, onnx_value *v);

const onnx_attribute *onnx_attr(const onnx_call *c, const char *name);
int64_t onnx_int(const onnx_call *c, const char *name, int64_t other);
double onnx_float(const onnx_call *c, const char *name, double other);
const char *onnx_text(const onnx_call *c, const char *name, const char *other);
/* Integers of an attribute, at most max; -1: it is missing. */
int onnx_ints(const onnx_call *c, const char *name, int64_t *out, int max);
bool onnx_dtype(int64_t type, sn_dtype *out);
/* x modulo the range of integers of the type, if x is of a wider one. */
sn_tensor onnx_wrap(onnx_call *c, sn_tensor x, onnx_type narrow);

/* Dims that input i lists, at most SN_MAX_RANK; false with a refusal, since they depend on data. */
bool onnx_dims(onnx_call *c, int i, int *n, sn_dim *out);
/* The same of one dim, called `what` in the refusal. */
bool onnx_one_dim(onnx_call *c, int i, const char *what, sn_dim *out);
/* Numbers from an attribute, or from input i; *n = -1: neither is given. */
bool onnx_numbers(onnx_call *c, const char *name, int i, int *n, int64_t *out);
/* A number that is known: of a value with one element. */
bool onnx_number(onnx_call *c, const onnx_value *v, double *out);
/* An axis of a tensor with this rank, counted from the front. */
bool onnx_axis(onnx_call *c, int64_t axis, int rank, int *out);
int64_t onnx_count(const onnx_value *v); /* of elements; -1: symbolic */

/* Makes two sizes equal: symbolic dims that are necessarily equal become one dim (sizes.c). False:
 * they differ, or what was learnt means that the import starts again. */
bool onnx_equal(onnx_call *c, sn_dim a, sn_dim b);
/* Whether something was learnt, so that the import starts again. */
bool onnx_again(const onnx_call *c);
/* The same for the axes of tensors that broadcast. */
bool onnx_broadcasts(onnx_call *c, sn_tensor x, sn_tensor y);
/* A symbolic dim whose terms in d are not divisible becomes `times` another one, and the import starts again. */
void onnx_divides(onnx_call *c, sn_dim d, int64_t times);
/* a is at most n: for the bounds of symbolic dims. */
void onnx_at_most(onnx_call *c, sn_dim a, sn_dim n);
void onnx_at_least(onnx_call *c, sn_dim a, int64_t n);

/* A weight for a tensor of the file; its name is unique. NULL: the call failed. */
onnx_value *onnx_file_value(onnx_call *c, const onnx_tensor *t, const char *name);

/* `past` and then x along the axis. Where `past` is what a state holds so far, x is written to the state behind it,
 * from which the result is read (rows.c). */
sn_tensor onnx_after_past(onnx_call *c, int axis, sn_tensor past, sn_tensor x);

/* known.c: the elements of x as `row->known` gives them, with broadcasting. False: not all are known. */
bool onnx_fold(onnx_call *c, sn_dtype type, bool *done);
/* Elements start + sum of index strides of input v, of a new shape of numbers. */
bool onnx_known_view(onnx_call *c, int out, const onnx_value *v, int rank, const sn_dim *shape,
                     const int64_t *stride, int64_t start);
/* Row-major strides of a value with numbers as sizes. */
void onnx_strides(const onnx_value *v, int64_t *stride);
onnx_elem onnx_elem_dim(sn_dim d);
onnx_elem onnx_elem_number(sn_dtype type, double x);
bool onnx_elem_value(const onnx_elem *e, double *x); /* false: symbolic */
#endif
