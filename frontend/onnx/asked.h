/* asked.h: inputs that a graph asks for, where a model's entry has others. Internal. */
#ifndef SN_ONNX_ASKED_H
#define SN_ONNX_ASKED_H

#include "frontend/onnx/load.h"

#define ONNX_PAST "past_key_values"

/* An input of the graph that is to be made from those of the entry. */
typedef struct onnx_asked {
    onnx_call *c;
    const char *name;
    sn_dtype type;
    const sn_dim *shape; /* in the file, ended by SN_END */
    sn_dim rows, tokens, past;
} onnx_asked;

/* Whether the input has these dims: symbolic ones of the file become them. */
bool onnx_agrees(const onnx_asked *g, const sn_dim *dims);
bool onnx_same_dim(const onnx_call *c, sn_dim a, sn_dim b);

/* The only axis behind the first whose size is not a number, and the sizes [SN_MAX_RANK + 1]; -1: there is none, -2: several. */
int onnx_free_axis(const onnx_asked *g, sn_dim *shape);
#endif
