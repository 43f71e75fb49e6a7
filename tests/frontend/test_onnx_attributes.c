/* Attributes of ONNX's operators that a node leaves out have the value that the operator's schema gives them. */
#include "frontend/onnx/onnx.h"
#include "ir/ir.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "tests/support/protobuf.h"
#include <math.h>
#include <stdlib.h>

#include "tests/support/scratch.h"

/* ---- a file of one node ---- */

enum { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, MAX_NUMBERS = 8 };

/* Inputs, named by a letter: x [2, 4, 6, 6] and its like, a vector of its channels, a matrix, bytes, indices; constants: the
 * numbers of k, q and others are integers, those of s are scales. */
static const struct {
    char name;
    int type, rank;
    int64_t shape[4];
    double number[MAX_NUMBERS];
    bool constant;
} inputs[] = {
    {'x', FLOAT, 4, {2, 4, 6, 6}, {0}, false},
    {'v', FLOAT, 1, {4}, {0}, false},
    {'r', FLOAT, 1, {6}, {0}, false},
    {'m', FLOAT, 2, {4, 4}, {0}, false},
    {'w', FLOAT, 4, {4, 4, 3, 3}, {0}, false},
    {'t', FLOAT, 3, {1, 4, 8}, {0}, false},
    {'c', FLOAT, 2, {4, 4}, {0}, false},
    {'h', FLOAT, 4, {1, 2, 4, 8}, {0}, false},
    {'b', UINT8, 2, {4, 4}, {0}, false},
    {'u', UINT8, 1, {4}, {0}, false},
    {'i', INT64, 4, {2, 4, 6, 6}, {0}, false},
    {'j', INT64, 2, {4, 1}, {0}, false},
    {'g', INT64, 3, {2, 4, 1}, {0}, false},
    {'n', INT64, 1, {1}, {0}, false},
    {'k', INT64, 1, {1}, {2}, true},
    {'a', INT64, 0, {0}, {1}, true},
    {'s', FLOAT, 1, {4}, {1, 1, 1.5, 2}, true},
    {'z', INT64, 4, {4}, {0, 0, 0, 0}, true},
    {'o', INT64, 0, {0}, {5}, true},
    {'p', INT64, 1, {4}, {0, 4, 36, 0}, true},
    {'d', FLOAT, 3, {4, 6, 6}, {0}, false},
    {'e', FLOAT, 3, {1, 4, 4}, {0}, false},
    {'f', FLOAT, 1, {8}, {0}, false},
    {'l', INT32, 1, {1}, {0}, false},
    {'W', FLOAT, 2, {8, 24}, {0}, false},
    {'B', FLOAT, 1, {24}, {0}, false},
    {'q', INT64, 1, {8}, {0, 1, 0, 0, 0, 0, 0, 1}, true},
};

static void put_type(bytes *info, int type, int rank, const int64_t *shape) {
    bytes dims = {0}, tensor = {0}, all = {0};
    for (int i = 0; i < rank; i++) {
        bytes dim = {0};
        put_int(&dim, 1, shape[i]);
        put_message(&dims, 1, &dim);
    }
    put_int(&tensor, 1, type);
    if (shape) put_message(&tensor, 2, &dims);
    put_message(&all, 1, &tensor);
    put_message(info, 2, &all);
}

static void put_input(bytes *graph, char name) {
    size_t i = 0;
    while (inputs[i].name != name) assert_true(++i < sizeof inputs / sizeof *inputs);
    bytes t = {0};
    if (!inputs[i].constant) {
        put_bytes(&t, 1, &name, 1);
        put_type(&t, inputs[i].type, inputs[i].rank, inputs[i].shape);
        put_message(graph, 11, &t);
        return;
    }
    int64_t n = inputs[i].rank ? inputs[i].shape[0] : 1;
    if (inputs[i].rank) put_int(&t, 1, n);
    put_int(&t, 2, inputs[i].type);
    for (int64_t k = 0; k < n; k++) {
        float f = (float)inputs[i].number[k];
        if (inputs[i].type == FLOAT)
            put_bytes(&t, 4, &f, sizeof f);
        else
            put_int(&t, 7, (int64_t)inputs[i].number[k]);
    }
    put_bytes(&t, 8, &name, 1);
    put_message(graph, 5, &t);
}

/* A value as it is written here: a text, an integer, a number with a point, or integers in brackets. */
static void put_attribute(bytes *node, const char *name, size_t n_name, const char *value) {
    bytes a = {0};
    char *end;
    put_bytes(&a, 1, name, n_name);
    if (*value == '[') {
        for (value++; *value && *value != ']'; value = *end == ',' ? end + 1 : end)
            put_int(&a, 8, strtoll(value, &end, 10));
        put_int(&a, 20, 7);
    } else if (strchr("-0123456789", *value)) {
        const size_t n = strcspn(value, ";");
        const float f = strtof(value, &end);
        if (memchr(value, '.', n)) {
            put_varint(&a, 2 << 3 | 5);
            put(&a, &f, sizeof f);
        } else
            put_int(&a, 3, strtoll(value, NULL, 10));
        put_int(&a, 20, memchr(value, '.', n) ? 1 : 2);
    } else {
        put_bytes(&a, 4, value, strcspn(value, ";"));
        put_int(&a, 20, 3);
    }
    put_message(node, 5, &a);
}

/* NAME=VALUE;NAME=VALUE */
static void put_attributes(bytes *node, const char *text) {
    while (*text) {
        const char *equals = strchr(text, '=');
        put_attribute(node, text, (size_t)(equals - text), equals + 1);
        text = equals + 1 + strcspn(equals + 1, ";");
        text += *text == ';';
    }
}

/* op: perhaps with its domain, the version if it is not 17, the outputs if there are others than y, as DOMAIN.OP/VERSION:yz.
 * A space: it is left out. */
typedef struct row {
    const char *op, *in;
    const char *more; /* attributes that it needs */
    const char *key, *usual, *other;
} row;

static void put_opset(bytes *model, const char *domain, int64_t version) {
    bytes opset = {0};
    if (domain) put_text(&opset, 1, domain);
    put_int(&opset, 2, version);
    put_message(model, 8, &opset);
}

static const char *write_model(const row *r, const char *value) {
    static const char ms[] = "com.microsoft";
    bytes graph = {0}, node = {0}, model = {0};
    const char *dot = strrchr(r->op, '.'), *op = dot ? dot + 1 : r->op;
    const char *version = strchr(op, '/'), *colon = strchr(op, ':'), *out = colon ? colon + 1 : "y";
    for (const char *in = r->in; *in; in++) {
        if (*in != ' ' && !memchr(r->in, *in, (size_t)(in - r->in))) put_input(&graph, *in);
        put_bytes(&node, 1, in, *in != ' ');
    }
    for (const char *o = out; *o; o++) {
        bytes info = {0};
        put_bytes(&node, 2, o, *o != ' ');
        put_bytes(&info, 1, o, 1);
        put_type(&info, FLOAT, 0, NULL);
        if (*o != ' ') put_message(&graph, 12, &info);
    }
    put_bytes(&node, 4, op, strcspn(op, "/:"));
    put_attributes(&node, r->more);
    if (value) put_attribute(&node, r->key, strlen(r->key), value);
    if (dot) put_text(&node, 7, ms);
    put_message(&graph, 1, &node);
    put_int(&model, 1, 8);
    put_opset(&model, NULL, version ? atoi(version + 1) : 17);
    put_opset(&model, ms, 1);
    put_message(&model, 7, &graph);
    const char *path = scratch_path("m.onnx");
    assert_true(scratch_write(path, model.data, model.n));
    return path;
}

/* value: of the key; NULL: it is left out */
static char *graph_of(const row *r, const char *value) {
    sn_error err = {0};
    sn_module *m = sn_module_new("one node");
    sn_weights *w = sn_onnx_load(m, write_model(r, value), NULL, &err);
    if (!w) fail_msg("%s, %s: %s: %s", r->op, r->key, value ? value : "left out", err.message);
    char *text = module_text(m);
    sn_weights_close(w);
    sn_module_free(m);
    return text;
}

/* Schemas: onnx/onnx, docs/Operators.md and docs/Changelog.md; microsoft/onnxruntime, docs/ContribOperators.md. */
static const row rows[] = {
    {"ArgMax", "x", "", "axis", "0", "1"},
    {"ArgMax", "x", "", "keepdims", "1", "0"},
    {"ArgMax", "x", "", "select_last_index", "0", "1"},
    {"ArgMin", "x", "", "axis", "0", "1"},
    {"ArgMin", "x", "", "keepdims", "1", "0"},
    {"ArgMin", "x", "", "select_last_index", "0", "1"},
    {"AveragePool", "x", "kernel_shape=[3,3];strides=[2,2];pads=[1,1,1,1]", "count_include_pad",
     "0", "1"},
    {"AveragePool", "x", "kernel_shape=[3,3];strides=[2,2]", "ceil_mode", "0", "1"},
    {"AveragePool", "x", "kernel_shape=[3,3];strides=[2,2]", "auto_pad", "NOTSET", "SAME_UPPER"},
    {"AveragePool", "x", "kernel_shape=[3,3]", "strides", "[1,1]", "[2,2]"},
    {"AveragePool", "x", "kernel_shape=[3,3]", "pads", "[0,0,0,0]", "[1,0,0,1]"},
    {"AveragePool/19", "x", "kernel_shape=[3,3]", "dilations", "[1,1]", "[2,1]"},
    {"MaxPool", "x", "kernel_shape=[3,3]", "strides", "[1,1]", "[2,2]"},
    {"MaxPool", "x", "kernel_shape=[3,3]", "pads", "[0,0,0,0]", "[1,0,0,1]"},
    {"MaxPool", "x", "kernel_shape=[3,3]", "dilations", "[1,1]", "[2,1]"},
    {"MaxPool", "x", "kernel_shape=[3,3];strides=[2,2]", "ceil_mode", "0", "1"},
    {"BatchNormalization", "xvvvv", "", "epsilon", "0.00001", "0.001"},
    {"Celu", "x", "", "alpha", "1.0", "2.0"},
    {"Conv", "xw", "", "strides", "[1,1]", "[2,2]"},
    {"Conv", "xw", "", "pads", "[0,0,0,0]", "[1,1,1,1]"},
    {"Conv", "xw", "", "dilations", "[1,1]", "[2,1]"},
    {"Conv", "xw", "", "auto_pad", "NOTSET", "SAME_UPPER"},
    {"ConvTranspose", "xw", "", "strides", "[1,1]", "[2,2]"},
    {"ConvTranspose", "xw", "", "pads", "[0,0,0,0]", "[1,1,1,1]"},
    {"ConvTranspose", "xw", "strides=[2,2]", "output_padding", "[0,0]", "[1,1]"},
    {"ConvTranspose", "xw", "", "dilations", "[1,1]", "[2,1]"},
    {"ConvTranspose", "xw", "", "group", "1", "2"},
    {"CumSum", "xa", "", "exclusive", "0", "1"},
    {"CumSum", "xa", "", "reverse", "0", "1"},
    {"DepthToSpace", "x", "blocksize=2", "mode", "DCR", "CRD"},
    {"Elu", "x", "", "alpha", "1.0", "2.0"},
    {"EyeLike", "m", "", "k", "0", "1"},
    {"Flatten", "x", "", "axis", "1", "2"},
    {"Gather", "xn", "", "axis", "0", "1"},
    {"GatherElements", "xi", "", "axis", "0", "1"},
    {"GatherND", "xg", "", "batch_dims", "0", "1"},
    {"Gelu/20", "x", "", "approximate", "none", "tanh"},
    {"Gemm", "mcv", "", "alpha", "1.0", "2.0"},
    {"Gemm", "mcv", "", "beta", "1.0", "2.0"},
    {"Gemm", "mcv", "", "transA", "0", "1"},
    {"Gemm", "mcv", "", "transB", "0", "1"},
    {"GroupNormalization/21", "xvv", "num_groups=2", "epsilon", "0.00001", "0.001"},
    {"HardSigmoid", "x", "", "alpha", "0.2", "0.3"},
    {"HardSigmoid", "x", "", "beta", "0.5", "0.6"},
    {"Hardmax", "x", "", "axis", "-1", "1"},
    {"Hardmax/11", "x", "", "axis", "1", "3"},
    {"InstanceNormalization", "xvv", "", "epsilon", "0.00001", "0.001"},
    {"IsInf", "x", "", "detect_positive", "1", "0"},
    {"IsInf", "x", "", "detect_negative", "1", "0"},
    {"LayerNormalization", "xr", "", "epsilon", "0.00001", "0.001"},
    {"LayerNormalization", "xd", "axis=1", "epsilon", "0.00001", "0.001"},
    {"LayerNormalization", "xr", "", "axis", "-1", "2"},
    {"LeakyRelu", "x", "", "alpha", "0.01", "0.1"},
    {"LogSoftmax", "x", "", "axis", "-1", "1"},
    {"LogSoftmax/11", "x", "", "axis", "1", "3"},
    {"Softmax", "x", "", "axis", "-1", "1"},
    {"Softmax/11", "x", "", "axis", "1", "3"},
    {"LpNormalization", "x", "", "axis", "-1", "1"},
    {"LpNormalization", "x", "", "p", "2", "1"},
    {"MeanVarianceNormalization", "x", "", "axes", "[0,2,3]", "[1]"},
    {"Mod", "xx", "", "fmod", "0", "1"},
    {"OneHot", "nos", "", "axis", "-1", "0"},
    {"Pad", "xq", "", "mode", "constant", "edge"},
    {"QuantizeLinear", "mvu", "", "axis", "1", "0"},
    {"DequantizeLinear", "bvu", "", "axis", "1", "0"},
    {"ReduceL1", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceL2", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceLogSum", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceLogSumExp", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceMax", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceMean", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceMin", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceProd", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceSum", "xk", "", "keepdims", "1", "0"},
    {"ReduceSum", "x", "", "noop_with_empty_axes", "0", "1"},
    {"ReduceSumSquare", "x", "axes=[1]", "keepdims", "1", "0"},
    {"ReduceMean", "x", "", "axes", "[0,1,2,3]", "[1]"},
    {"Resize", "x  s", "", "mode", "nearest", "linear"},
    {"Resize", "x s", "mode=linear", "coordinate_transformation_mode", "half_pixel", "asymmetric"},
    {"Resize", "x s", "mode=cubic", "cubic_coeff_a", "-0.75", "-0.5"},
    {"Resize", "x s", "mode=cubic", "exclude_outside", "0", "1"},
    {"Resize", "x s", "", "nearest_mode", "round_prefer_floor", "ceil"},
    {"Selu", "x", "", "alpha", "1.67326319217681884765625", "1.0"},
    {"Selu", "x", "", "gamma", "1.05070102214813232421875", "1.0"},
    {"Shrink", "x", "", "bias", "0.0", "1.0"},
    {"Shrink", "x", "", "lambd", "0.5", "1.0"},
    {"Split:yz", "x", "", "axis", "0", "1"},
    {"Swish/24", "x", "", "alpha", "1.0", "2.0"},
    {"ThresholdedRelu", "x", "", "alpha", "1.0", "2.0"},
    {"TopK:yz", "xk", "", "axis", "-1", "1"},
    {"TopK:yz", "xk", "", "largest", "1", "0"},
    {"Transpose", "x", "", "perm", "[3,2,1,0]", "[0,1,2,3]"},
    {"Trilu", "m", "", "upper", "1", "0"},
    {"ScatterElements", "xix", "", "axis", "0", "1"},
    {"ScatterElements", "xix", "", "reduction", "none", "add"},
    {"RMSNormalization/23", "xr", "", "epsilon", "0.00001", "0.001"},
    {"RMSNormalization/23", "xr", "", "axis", "-1", "2"},
    {"Attention/23", "hhh", "", "is_causal", "0", "1"},
    {"Attention/23", "hhh", "", "softcap", "0.0", "5.0"},
    {"Attention/23", "hhh", "", "scale", "0.35355338", "1.0"},
    {"Attention/23:y  z", "hhh", "softcap=5.0", "qk_matmul_output_mode", "0", "1"},
    {"RotaryEmbedding/23", "hee", "", "interleaved", "0", "1"},
    {"com.microsoft.QuickGelu", "x", "", "alpha", "1.702", "1.0"},
    {"com.microsoft.SkipLayerNormalization", "ttf", "", "epsilon", "0.000000000001", "0.00001"},
    {"com.microsoft.FusedMatMul", "mc", "", "alpha", "1.0", "2.0"},
    {"com.microsoft.FusedMatMul", "mc", "", "transA", "0", "1"},
    {"com.microsoft.FusedMatMul", "mc", "", "transB", "0", "1"},
    {"com.microsoft.MultiHeadAttention", "ttt", "num_heads=2", "unidirectional", "0", "1"},
    {"com.microsoft.GroupQueryAttention", "ttt  lo", "num_heads=2;kv_num_heads=2", "softcap", "0.0",
     "5.0"},
    {"com.microsoft.GroupQueryAttention", "ttt  lo", "num_heads=2;kv_num_heads=2",
     "local_window_size", "-1", "2"},
    {"com.microsoft.RotaryEmbedding", "hncc", "", "interleaved", "0", "1"},
    {"com.microsoft.Attention", "tWB", "num_heads=2", "unidirectional", "0", "1"},
    {"SimplifiedLayerNormalization", "xr", "", "epsilon", "0.00001", "0.001"},
    {"SimplifiedLayerNormalization", "xr", "", "axis", "-1", "2"},
};

/* Whether the texts are the same but for what attributes lose as f32. */
static bool is_same(const char *a, const char *b) {
    while (*a && *b) {
        char *a_end, *b_end;
        const double x = strtod(a, &a_end), y = strtod(b, &b_end);
        const bool number = a_end > a && b_end > b;
        if (number ? fabs(x - y) > 1e-6 * fabs(x) : *a != *b) return false;
        a = number ? a_end : a + 1, b = number ? b_end : b + 1;
    }
    return *a == *b;
}

static void attributes_that_are_left_out(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        char *without = graph_of(r, NULL), *usual = graph_of(r, r->usual),
             *other = graph_of(r, r->other);
        if (!is_same(without, usual))
            fail_msg("%s: without %s the graph is not that of %s", r->op, r->key, r->usual);
        if (is_same(without, other))
            fail_msg("%s: %s = %s makes no difference", r->op, r->key, r->other);
        free(without), free(usual), free(other);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(attributes_that_are_left_out)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
