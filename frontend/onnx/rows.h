/* rows.h: past tokens in states, of one sequence or of several. Internal. */
#ifndef SN_ONNX_ROWS_H
#define SN_ONNX_ROWS_H

#include "frontend/onnx/asked.h"

/* What an input of past tokens [rows, .., past, ..] became. */
typedef struct onnx_past onnx_past;
struct onnx_past {
    onnx_past *next;
    const char *name; /* of the input and the state */
    sn_tensor past;   /* what the graph reads */
    sn_tensor state;  /* [sequences, .., context, ..] */
    int axis;         /* of tokens */
    sn_tensor filled; /* what it reads once new tokens are there; NULL: they are not */
};

/* Tokens that each row holds, i32 [B], in the entry that decodes several sequences: the input "past"; NULL: others.
 * There, as exporters pad, all rows end at the same position: that of row b begins at P - past[b]. */
sn_tensor onnx_row_tokens(const onnx_call *c);
/* i32 [B, n]: the token of its row that position k of row b is, from below 0 for those before it. */
sn_tensor onnx_row_positions(const onnx_call *c, sn_dim n);

/* The input's value, from a state of the shape; the shape [SN_MAX_RANK + 1] is the input's. */
sn_tensor onnx_past_new(const onnx_asked *g, const sn_dim *shape, int axis);
onnx_past *onnx_past_named(const onnx_import *im, const char *name);
/* Writes new tokens behind the past ones; `filled` is what p->past and they are. */
sn_tensor onnx_past_append(onnx_call *c, onnx_past *p, sn_tensor x);
#endif
