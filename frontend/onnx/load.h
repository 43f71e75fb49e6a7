/* load.h: the state of an import, shared by load.c, values.c and run.c. Internal. */
#ifndef SN_ONNX_LOAD_H
#define SN_ONNX_LOAD_H

#include "frontend/onnx/import.h"
#include "runtime/config.h"

/* What was learnt about a symbolic dim: it equals a polynomial, or is at most `hi`. */
typedef struct onnx_fact {
    const char *name;
    const char *is; /* or NULL */
    int64_t lo, hi;
} onnx_fact;

enum { ONNX_FACTS = 64, ONNX_NEST = 24 };

/* What the graph of a role is in a model. */
typedef enum onnx_part {
    ONNX_ALONE,
    /* of an encoder-decoder (pairs.c) */
    ONNX_SOURCE, /* its encoder */
    ONNX_BEGIN,  /* its decoder without past tokens, for the keys and values of the source */
    ONNX_NEXT    /* its decoder of one token after others */
} onnx_part;

/* How an entry takes the inputs and outputs of a graph. */
typedef struct onnx_role {
    const char *entry;
    onnx_part part;
    bool joins; /* the graph continues the entry of the role before it */
    bool extra; /* it and those after it are left out where they cannot be made */
    bool
        renames; /* symbolic dims of the file get other names: another graph of the module has them */
    const char *path;  /* of the graph's file; NULL: the file that is loaded */
    onnx_model *model; /* what load.c reads from it */
    /* The graph's input of this type, with these dims, ended by SN_END. NULL: the call failed, or the import starts again. */
    onnx_value *(*input)(onnx_call *c, const char *name, sn_dtype type, const sn_dim *shape);
    bool (*output)(onnx_call *c, const char *name, onnx_value *v);
    /* of entries that models.h describes (roles.c) */
    const char *result; /* the graph's output that is wanted */
    int64_t context, channels, image;
    bool state; /* past tokens are in states */
    bool one;   /* one token in each run */
    int64_t
        sequences; /* that have rows in the states; 0: one sequence, and the states have one row */
    sn_config *config;         /* or NULL */
    struct onnx_seq2seq *pair; /* of encoder-decoders; or NULL */
} onnx_role;

enum { ONNX_ROLES = 4 };

struct onnx_import {
    const char *path;
    const onnx_role *role;  /* of the graph that is being imported */
    struct onnx_past *past; /* of this graph (rows.h) */
    sn_tensor between;      /* what a graph gives to the one that joins it */
    int64_t size_max;
    sn_module *arena; /* lives as long as the import: the file, facts */
    sn_module *m;     /* being built */
    onnx_model *model;
    sn_weights *weights;
    sn_weight *weight; /* [n_weight] that tensors were made from, for `weights` */
    int n_weight, cap_weight;
    int n_kept; /* of them, those of the entries before this one */
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
/* A size that the file names: onnx_parse_dim, or a symbol of that name. Where a role names B, P, R, S and T, the file's symbols
 * of these names have another one, as do all symbols of a graph that joins another. */
sn_dim onnx_file_dim(onnx_import *im, const char *text);
/* The same with bounds, which may have become tighter. */
sn_dim onnx_symbol_in(onnx_import *im, const char *name, int64_t lo, int64_t hi);

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
/* load.c: adds the entries whose roles `choose` writes to roles[ONNX_ROLES] when it has seen the graph of the path; it
 * returns their number, 0 with an error. */
typedef int onnx_choose(void *ctx, const onnx_graph *g, onnx_role *roles, sn_error *err);
sn_weights *onnx_load_with(sn_module *m, const char *path, int64_t size_max, onnx_choose *choose,
                           void *ctx, sn_error *err);
/* Inputs and outputs as they are. */
onnx_value *onnx_plain_input(onnx_call *c, const char *name, sn_dtype type, const sn_dim *shape);
bool onnx_plain_output(onnx_call *c, const char *name, onnx_value *v);
/* Every operator of the graph, its subgraphs and the functions it calls is in the table. */
bool onnx_check_operators(onnx_import *im);
#endif
