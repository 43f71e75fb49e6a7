/* load.h: the state of an import, shared by load.c, values.c and run.c. Internal. */
#ifndef SN_ONNX_LOAD_H
#define SN_ONNX_LOAD_H

#include "frontend/onnx/import.h"

/* What was learnt about a symbolic dim: it equals a polynomial, or is at most `hi`. */
typedef struct onnx_fact {
    const char *name;
    const char *is; /* or NULL */
    int64_t lo, hi;
} onnx_fact;

enum { ONNX_FACTS = 64, ONNX_NEST = 24 };

struct onnx_import {
    const char *path;
    const char *entry;
    int64_t size_max;
    sn_module *arena; /* lives as long as the import: the file, facts */
    sn_module *m;     /* being built */
    onnx_model *model;
    sn_weights *weights;
    sn_weight *weight; /* [n_weight] that tensors were made from, for `weights` */
    int n_weight, cap_weight;
    onnx_fact fact[ONNX_FACTS];
    int n_fact;
    /* onnx_run_graph (run.c), which looks operators up in the table, whose functions call it */
    bool (*run_graph)(onnx_call *c, const onnx_graph *g, int n_in, onnx_value *const *in,
                      onnx_value **values);
    bool again; /* a fact was learnt: start again */
    int depth;  /* of graphs and functions that are running */
    int number; /* of the last node */
    sn_error *err;
};

struct onnx_scope {
    onnx_scope *up;         /* of the graph around a subgraph; NULL: a graph or a function */
    const onnx_call *call;  /* of a function: the node that calls it, for its attributes */
    const onnx_list *opset; /* onnx_opset */
    onnx_value **slot;      /* [size] */
    size_t size, used;
};

/* sizes.c */
sn_dim onnx_parse_dim(onnx_import *im, const char *text, bool *ok);
/* may_be_empty: its size may be 0. */
sn_dim onnx_symbol(onnx_import *im, const char *name, bool may_be_empty);

/* values.c */
onnx_value *onnx_new_value(onnx_import *im, const char *name);
onnx_value *onnx_tensor_value(onnx_import *im, const char *name, sn_tensor t);

/* run.c */
onnx_scope *onnx_scope_new(onnx_import *im, onnx_scope *up, const onnx_call *call,
                           const onnx_list *opset);
bool onnx_scope_add(onnx_import *im, onnx_scope *s, const char *name, onnx_value *v);
onnx_value *onnx_scope_find(const onnx_scope *s, const char *name);
bool onnx_run_nodes(onnx_import *im, onnx_scope *s, const onnx_list *nodes);
bool onnx_add_initialisers(onnx_import *im, onnx_scope *s, const onnx_graph *g);
/* Runs a subgraph's nodes in a scope of its own. in: [n_in] its inputs; values: [outputs], for the outputs. */
bool onnx_run_graph(onnx_call *c, const onnx_graph *g, int n_in, onnx_value *const *in,
                    onnx_value **values);
/* Every operator of the graph, its subgraphs and the functions it calls is in the table. */
bool onnx_check_operators(onnx_import *im);
#endif
