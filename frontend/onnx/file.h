/* file.h: an ONNX file as structures. The file is a protobuf of the messages of onnx.proto; fields that
 * nothing reads are left out. Tensors' data stay in the mapped file. Internal. */
#ifndef SN_ONNX_FILE_H
#define SN_ONNX_FILE_H

#include "ir/ir.h"
#include "runtime/files/weights_impl.h"

/* A repeated field. */
typedef struct onnx_list {
    int n;
    void *item; /* [n] of the field's C type */
} onnx_list;
#define ONNX_AT(list, type, i) (((type *)(list).item)[i])

typedef struct onnx_bytes {
    const unsigned char *data; /* in the mapped file; NULL: the field is missing */
    size_t size;
} onnx_bytes;

typedef struct onnx_pair {
    const char *key, *value;
} onnx_pair;

/* The element types of TensorProto, in its order. */
typedef enum onnx_type {
    ONNX_UNDEFINED,
    ONNX_FLOAT,
    ONNX_UINT8,
    ONNX_INT8,
    ONNX_UINT16,
    ONNX_INT16,
    ONNX_INT32,
    ONNX_INT64,
    ONNX_STRING,
    ONNX_BOOL,
    ONNX_FLOAT16,
    ONNX_DOUBLE,
    ONNX_UINT32,
    ONNX_UINT64,
    ONNX_COMPLEX64,
    ONNX_COMPLEX128,
    ONNX_BFLOAT16,
    ONNX_TYPES
} onnx_type;

typedef struct onnx_tensor {
    const char *name;
    int64_t type, location; /* location 1: in another file */
    onnx_list dims;         /* int64_t */
    onnx_bytes raw;
    onnx_list floats, doubles; /* float, double */
    onnx_list ints, longs,
        big;            /* int64_t; of i32 and smaller types and of f16, of i64, of u32 and u64 */
    onnx_list external; /* onnx_pair */
} onnx_tensor;

struct onnx_graph;
/* AttributeProto.type says which of the fields holds the value. */
enum {
    ONNX_A_FLOAT = 1,
    ONNX_A_INT,
    ONNX_A_TEXT,
    ONNX_A_TENSOR,
    ONNX_A_GRAPH,
    ONNX_A_FLOATS,
    ONNX_A_INTS
};
typedef struct onnx_attribute {
    const char *name, *text, *refers; /* refers: to an attribute of the function around it */
    int64_t type, i;
    float f;
    struct onnx_tensor *tensor;
    struct onnx_graph *graph;
    onnx_list floats, ints, texts; /* float, int64_t, const char * */
} onnx_attribute;

typedef struct onnx_node {
    const char *name, *op, *domain;
    onnx_list in, out; /* const char *; "": not given */
    onnx_list attribute;
} onnx_node;

typedef struct onnx_dim {
    int64_t value;
    const char *param; /* a name or expression; NULL: value, or if that is 0 unknown */
} onnx_dim;

typedef struct onnx_shape {
    onnx_list dim;
} onnx_shape;
typedef struct onnx_tensor_type {
    int64_t element;
    onnx_shape *shape; /* NULL: unknown */
} onnx_tensor_type;
typedef struct onnx_value_type {
    onnx_tensor_type *tensor; /* NULL: not a tensor */
} onnx_value_type;
typedef struct onnx_value_info {
    const char *name;
    onnx_value_type *type;
} onnx_value_info;

typedef struct onnx_graph {
    const char *name;
    onnx_list node, init, input, output; /* onnx_node, onnx_tensor, onnx_value_info */
    onnx_list sparse;                    /* initialisers; not supported */
} onnx_graph;

typedef struct onnx_opset {
    const char *domain;
    int64_t version;
} onnx_opset;

typedef struct onnx_function {
    const char *name, *domain;
    onnx_list in, out; /* const char * */
    onnx_list node, opset;
} onnx_function;

typedef struct onnx_model {
    int64_t ir_version;
    onnx_list opset, function;
    onnx_graph *graph;
} onnx_model;

/* Reads a mapped file. Everything but tensors' data is a copy in m's arena; lengths, nesting (at most 32
 * messages), UTF-8 names without NUL and the number of items are checked, not the meaning. NULL: err names
 * the path and the byte. */
onnx_model *onnx_read(sn_module *m, const char *path, onnx_bytes file, sn_error *err);

#endif
