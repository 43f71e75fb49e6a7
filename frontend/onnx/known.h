/* known.h: arithmetic on elements that are known while a graph is imported: columns of the table. Internal. */
#ifndef SN_ONNX_KNOWN_H
#define SN_ONNX_KNOWN_H

#include "frontend/onnx/import.h"

onnx_known_fn onnx_k_add, onnx_k_sub, onnx_k_mul, onnx_k_div, onnx_k_mod, onnx_k_min, onnx_k_max,
    onnx_k_neg, onnx_k_abs, onnx_k_floor, onnx_k_ceil, onnx_k_sqrt, onnx_k_pow, onnx_k_equal,
    onnx_k_less, onnx_k_greater, onnx_k_less_equal, onnx_k_greater_equal, onnx_k_not, onnx_k_and,
    onnx_k_or, onnx_k_where, onnx_k_cast;
#endif
