/* backend.h: who computes a kernel. The native back end, which is the code generator, computes every
 * node. A library computes some products and composites as a whole, outside the generated code. The
 * program gives the passes the library that it was built with (sn_pass_options.library); codegen
 * has the list (codegen/backend.h). */
#ifndef SN_BACKEND_H
#define SN_BACKEND_H

#include "passes/passes.h"

struct sn_step_call;    /* one step at run time (codegen/backend.h) */
struct sn_backend_gemm; /* products of matrices without a graph, for `bench` (the same) */

/* What the library's implementation of an op costs. */
typedef struct sn_backend_cost {
    double time;        /* as a share of the native kernel's time for the same work */
    bool deterministic; /* same bits for any number of threads */
    const char *why;    /* why the native kernel is taken nevertheless, for `explain` */
} sn_backend_cost;

typedef struct sn_backend {
    const char *name;  /* of the option, and attribute `backend` of nodes that it computes */
    const char *title; /* "oneDNN" */
    const char *(*version)(void);
    /* Does it compute the node: a composite, a product (dot), or a contraction's kernel? If it
     * computes other nodes of this op, *why is the reason that it does not. */
    bool (*supports)(const sn_node *n, const char **why);
    /* Does it compute n, which reads the product, together with the product? */
    bool (*epilogue)(const sn_node *product, const sn_node *n);
    /* NULL: it does not compute this op. */
    const sn_backend_cost *(*cost)(sn_op op);
    /* A state per session, and a step. NULL: its steps are generated code. */
    void *(*open)(sn_error *err);
    void (*close)(void *state);
    bool (*run)(void *state, const struct sn_step_call *c, sn_error *err);
    const struct sn_backend_gemm *gemm; /* NULL: none */
} sn_backend;

extern const sn_backend sn_backend_native;

/* The library, if the user wants it wherever it computes something; else NULL. */
const sn_backend *sn_backend_wanted(const sn_passes *p);
/* Does the library compute this node? */
bool sn_backend_supports(const sn_passes *p, const sn_node *n);
/* The composite as one node `primitive` of the library; NULL: it does not compute it. A remark says
 * why not if it computes others of its op. */
sn_node *sn_backend_primitive(sn_passes *p, sn_node *comp);

#endif
