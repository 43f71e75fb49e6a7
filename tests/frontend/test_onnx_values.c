/* What nodes of ONNX files compute, by the reference evaluator, against values of the operators' definitions: sizes and
 * shapes that are computed, and modes and forms of operators that few models use. */
#include "frontend/onnx/onnx.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/protobuf.h"
#include "tests/support/scratch.h"

#include <ctype.h>
#include <math.h>

/* ---- graphs as text ----
 *
 * Lines "in x f n,3 1 2 3": an input, its type, sizes (names: open ones) and values; "is k l 2 7 8": an
 * initialiser; "y = Op(a,b,,c) name=3 name=1.5 name=[1,2] name='text'": a node of the domain ai.onnx, or of
 * com.microsoft with "y = ms.Op". The graph's outputs are y and, if there is one, z. */

enum { MAX_WORDS = 64, MAX_VALUES = 256 };

typedef struct tensor {
    char name[16], type;
    int rank, n;
    char dim[8][8]; /* as text */
    int64_t size[8];
    double value[MAX_VALUES];
} tensor;

static const struct {
    char letter;
    int type;
    sn_dtype dtype;
} types[] = {{'f', 1, SN_F32}, {'B', 2, SN_U8},  {'b', 3, SN_I8},
             {'i', 6, SN_I32}, {'l', 7, SN_I64}, {'?', 9, SN_BOOL}};

static int type_of(char letter) {
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
        if (types[i].letter == letter) return i;
    fail_msg("type %c", letter);
    return 0;
}

/* "f 2,3 1 2 3 4 5 6"; one size may be open: it follows from the number of values. "0": a scalar. */
static void read_tensor(char *text, tensor *t) {
    char *save, *word = strtok_r(text, " ", &save), *sizes = strtok_r(NULL, " ", &save), *more;
    t->type = *word;
    for (char *d = strtok_r(sizes, ",", &more); d; d = strtok_r(NULL, ",", &more))
        snprintf(t->dim[t->rank++], sizeof t->dim[0], "%s", d);
    if (t->rank == 1 && !strcmp(t->dim[0], "0")) t->rank = 0;
    while ((word = strtok_r(NULL, " ", &save))) t->value[t->n++] = strtod(word, NULL);
    int64_t known = 1;
    for (int i = 0; i < t->rank; i++)
        if (isdigit((unsigned char)*t->dim[i])) known *= t->size[i] = strtoll(t->dim[i], NULL, 10);
    for (int i = 0; i < t->rank; i++)
        if (!isdigit((unsigned char)*t->dim[i])) t->size[i] = t->n / known;
}

/* The values in the tensor's type. */
static size_t store(const tensor *t, unsigned char *out) {
    const sn_dtype type = types[type_of(t->type)].dtype;
    for (int i = 0; i < t->n; i++) sn_dtype_store(type, out, i, t->value[i]);
    return (size_t)t->n * sn_dtype_size(type);
}

static void put_value(bytes *graph, int field, const char *name, const tensor *t) {
    bytes shape = {0}, of = {0}, type = {0}, info = {0};
    for (int i = 0; t && i < t->rank; i++) {
        bytes dim = {0};
        if (isdigit((unsigned char)*t->dim[i]))
            put_int(&dim, 1, t->size[i]);
        else
            put_text(&dim, 2, t->dim[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&of, 1, t ? types[type_of(t->type)].type : 1);
    if (t) put_message(&of, 2, &shape);
    put_message(&type, 1, &of);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

static void put_weight(bytes *graph, const tensor *t) {
    bytes w = {0};
    unsigned char data[8 * MAX_VALUES];
    for (int i = 0; i < t->rank; i++) put_int(&w, 1, t->size[i]);
    put_int(&w, 2, types[type_of(t->type)].type);
    put_text(&w, 8, t->name);
    put_bytes(&w, 9, data, store(t, data));
    put_message(graph, 5, &w);
}

/* "name=3", "name=1.5", "name=[1,2]", "name='text'" */
static void put_attribute(bytes *node, char *text) {
    enum { FLOAT = 1, INT, STRING, INTS = 7 };
    bytes a = {0};
    char *value = strchr(text, '='), *end;
    *value++ = 0;
    put_text(&a, 1, text);
    int kind = *value == '[' ? INTS : *value == '\'' ? STRING : strchr(value, '.') ? FLOAT : INT;
    if (kind == INTS)
        for (char *at = value + 1; *at && *at != ']'; at = end + (*end == ','))
            put_int(&a, 8, strtoll(at, &end, 10));
    if (kind == STRING) put_bytes(&a, 4, value + 1, strlen(value) - 2);
    if (kind == INT) put_int(&a, 3, strtoll(value, NULL, 10));
    if (kind == FLOAT) {
        const float x = strtof(value, NULL);
        put_varint(&a, 2 << 3 | 5);
        put(&a, &x, 4);
    }
    put_int(&a, 20, kind);
    put_message(node, 5, &a);
}

/* "y,z = Op(a,b) …" */
static void put_node(bytes *graph, char *line) {
    bytes node = {0};
    char *save, *more, *out = strtok_r(line, " =", &save), *op = strtok_r(NULL, " =(", &save),
                       *in = save;
    char *rest = strchr(in, ')');
    *rest++ = 0;
    for (char *end; in; in = end) {
        end = strchr(in, ',');
        if (end) *end++ = 0;
        if (*in || end) put_text(&node, 1, in);
    }
    for (char *o = strtok_r(out, ",", &more); o; o = strtok_r(NULL, ",", &more))
        put_text(&node, 2, strcmp(o, "-") ? o : "");
    const bool ms = !strncmp(op, "ms.", 3);
    put_text(&node, 4, op + 3 * ms);
    if (ms) put_text(&node, 7, "com.microsoft");
    for (char *a = strtok_r(rest, " ", &save); a; a = strtok_r(NULL, " ", &save))
        put_attribute(&node, a);
    put_message(graph, 1, &node);
}

static const char *write_graph(const char *text, tensor *in, int *n_in) {
    static bytes graph, model;
    char copy[1500], *save;
    bytes set = {0}, ms = {0};
    graph.n = model.n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    *n_in = 0;
    const bool two = strstr(text, "z =");
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const bool input = !strncmp(line, "in ", 3);
        if (!input && strncmp(line, "is ", 3)) {
            put_node(&graph, line);
            continue;
        }
        tensor weight = {0}, *t = input ? &in[(*n_in)++] : &weight;
        *t = (tensor){0};
        snprintf(t->name, sizeof t->name, "%.*s", (int)strcspn(line + 3, " "), line + 3);
        read_tensor(line + 3 + strlen(t->name) + 1, t);
        if (input)
            put_value(&graph, 11, t->name, t);
        else
            put_weight(&graph, t);
    }
    put_value(&graph, 12, "y", NULL);
    if (two) put_value(&graph, 12, "z", NULL);
    put_int(&set, 2, strstr(text, "BitCast") ? 26 : 23);
    put_text(&ms, 1, "com.microsoft");
    put_int(&ms, 2, 1);
    put_int(&model, 1, 10);
    put_message(&model, 8, &set);
    put_message(&model, 8, &ms);
    put_message(&model, 7, &graph);
    const char *path = scratch_path("m.onnx");
    assert_true(scratch_write(path, model.data, model.n));
    return path;
}

/* ---- evaluating ---- */

static void check_output(const char *text, const sn_value *v, const char *want) {
    char copy[1000];
    tensor t = {0};
    snprintf(copy, sizeof copy, "%s", want);
    read_tensor(copy, &t);
    bool same = v->dtype == types[type_of(t.type)].dtype && v->rank == t.rank && v->n == t.n;
    for (int i = 0; same && i < t.rank; i++) same = v->shape[i] == t.size[i];
    for (int i = 0; same && i < t.n; i++)
        same = v->data[i] == t.value[i] || (isnan(v->data[i]) && isnan(t.value[i])) ||
               fabs(v->data[i] - t.value[i]) <= 1e-5 * (1 + fabs(t.value[i]));
    if (same) return;
    print_error("%s\nshape", text);
    for (int i = 0; i < v->rank; i++) print_error(" %d", (int)v->shape[i]);
    print_error(", type %s:", sn_dtype_name(v->dtype));
    for (int64_t i = 0; i < v->n; i++) print_error(" %.7g", v->data[i]);
    fail_msg("not %s", want);
}

static void check_graph(const char *text, const char *const want[2]) {
    static tensor in[8];
    static unsigned char data[8 * MAX_VALUES];
    int n_in;
    int64_t symbol[16] = {0};
    sn_error err = {0};
    sn_module *m = sn_module_new("m");
    sn_weights *w = sn_onnx_load(m, write_graph(text, in, &n_in), NULL, &err);
    if (!w) fail_msg("%s\n%s", text, err.message);
    for (int i = 0; i < n_in; i++)
        for (int k = 0; k < in[i].rank; k++) {
            const int at = sn_symbol_find(m, in[i].dim[k]);
            if (at >= 0) symbol[at] = in[i].size[k];
        }
    sn_eval *ev = sn_eval_new(m, symbol);
    for (int i = 0; i < n_in; i++) sn_eval_bind(ev, in[i].name, data, store(&in[i], data));
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        sn_eval_bind(ev, t->name, t->data, t->bytes);
    }
    const sn_entry *e = sn_entry_get(m, "forward");
    for (int i = 0; i < e->n_output; i++) {
        const sn_value *v = sn_eval_node(ev, e->output[i].node);
        if (!v) fail_msg("%s\n%s", text, sn_module_error(m)->message);
        check_output(text, v, want[*e->output[i].name == 'z']);
    }
    sn_eval_free(ev);
    sn_weights_close(w);
    sn_module_free(m);
}

typedef struct row {
    const char *text, *want[2];
} row;

static void check_rows(const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) check_graph(rows[i].text, rows[i].want);
}

/* ---- numbers that are known when the graph is imported ---- */

/* n: the first size of x, 4, as a number that shapes are made of. */
#define N4                                                                                         \
    "in x f n,2 1 2 3 4 5 6 7 8\nis zero l 0 0\nis k l 0 3\nis one l 0 1\ns = Shape(x)\nn = "      \
    "Gather(s,zero)\nd = Add(n,n)\nm = Add(n,one)\n"

static void known_numbers(void **state) {
    (void)state;
    static const row rows[] = {
        {N4 "y = Div(d,n)", {"l 0 2"}},
        {N4 "y = Div(d,k)", {"l 0 2"}},
        {N4 "p = Mul(n,k)\ny = Div(p,k)", {"l 0 4"}},
        {N4 "y = Mod(d,n)", {"l 0 0"}},
        {N4 "y = Mod(d,k)", {"l 0 2"}},
        {N4 "y = Min(n,m)", {"l 0 4"}},
        {N4 "y = Min(m,n)", {"l 0 4"}},
        {N4 "y = Max(n,m)", {"l 0 5"}},
        {N4 "y = Max(m,n)", {"l 0 5"}},
        {N4 "y = Max(n,one)", {"l 0 4"}},
        {N4 "y = Max(one,n)", {"l 0 4"}},
        {N4 "y = Min(n,one)", {"l 0 1"}},
        {N4 "y = Min(n,k)", {"l 0 3"}},
        {N4 "is most l 0 9223372036854774784\ny = Min(n,most)", {"l 0 4"}},
        {"is a l 0 9223372036854774784\ny = Identity(a)", {"l 0 9223372036854774784"}},
        {"is a l 0 -9223372036854775808\ny = Identity(a)", {"l 0 -9223372036854775808"}},
        {"is a l 2 1 -9223372036854775808\ny = Identity(a)", {"l 2 1 -9223372036854775808"}},
        {N4 "y = Less(n,m)", {"? 0 1"}},
        {N4 "y = Less(m,n)", {"? 0 0"}},
        {N4 "y = Less(n,n)", {"? 0 0"}},
        {N4 "y = LessOrEqual(n,n)", {"? 0 1"}},
        {N4 "y = LessOrEqual(m,n)", {"? 0 0"}},
        {N4 "y = Greater(m,n)", {"? 0 1"}},
        {N4 "y = Greater(n,n)", {"? 0 0"}},
        {N4 "y = GreaterOrEqual(n,m)", {"? 0 0"}},
        {N4 "y = GreaterOrEqual(n,one)", {"? 0 1"}},
        {N4 "y = Equal(n,m)", {"? 0 0"}},
        {N4 "y = Equal(n,n)", {"? 0 1"}},
        {N4 "y = Cast(n) to=9", {"? 0 1"}},
        {N4 "f = Cast(n) to=1\ny = Cast(f) to=7", {"l 0 4"}},
        {N4 "y = Cast(n) to=1", {"f 0 4"}},
        {N4 "f = Cast(n) to=1\ng = Floor(f)\nh = Ceil(g)\ny = Cast(h) to=6", {"i 0 4"}},
        {N4 "c = Less(m,n)\ny = Where(c,one,d)", {"l 0 8"}},
        {N4 "y = Neg(n)", {"l 0 -4"}},
        {N4 "y = Sub(n,m)", {"l 0 -1"}},
        {N4 "y = Abs(n)", {"l 0 4"}},
        {N4 "y = ReduceProd(s) keepdims=0", {"l 0 8"}},
        {N4 "y = Concat(s,s) axis=0", {"l 4 4 2 4 2"}},
        /* numbers alone */
        {"is a l 4 7 -7 7 -7\nis b l 4 2 2 -2 -2\ny = Div(a,b)", {"l 4 3 -3 -3 3"}},
        {"is a l 4 7 -7 7 -7\nis b l 4 3 3 -3 -3\ny = Mod(a,b)", {"l 4 1 2 -2 -1"}},
        {"is a l 4 7 -7 7 -7\nis b l 4 3 3 -3 -3\ny = Mod(a,b) fmod=1", {"l 4 1 -1 1 -1"}},
        {"is a f 0 9\ny = Sqrt(a)", {"f 0 3"}},
        {"is a f 0 -9\ny = Sqrt(a)", {"f 0 nan"}},
        {"is a f 0 2\nis b f 0 -3\ny = Pow(a,b)", {"f 0 0.125"}},
        {"is a f 0 -2.5\ny = Cast(a) to=7", {"l 0 -2"}},
        {"is a f 0 -2.5\ny = Floor(a)", {"f 0 -3"}},
        {"is a f 0 -2.5\ny = Ceil(a)", {"f 0 -2"}},
        {"is a l 2 -1 300\ny = Cast(a) to=9", {"? 2 1 1"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* ---- numbers that are computed when the program runs ---- */

#define AB "in a i n 7 -7 7 -7 6 0\nin b i n 2 2 -2 -2 3 5\n"
#define X23 "in x f n,3 1 2 3 4 5 6\n"

static void numbers(void **state) {
    (void)state;
    static const row rows[] = {
        {AB "y = Div(a,b)", {"i 6 3 -3 -3 3 2 0"}},
        {AB "y = Mod(a,b)", {"i 6 1 1 -1 -1 0 0"}},
        {AB "y = Mod(a,b) fmod=1", {"i 6 1 -1 1 -1 0 0"}},
        {"in a i n,1 7 -7\nis b i 2 2 -3\ny = Div(a,b)", {"i 2,2 3 -2 -3 2"}},
        {"in a i n,1 7 -7\nis b i 2 2 -3\ny = Mod(a,b) fmod=1", {"i 2,2 1 1 -1 -1"}},
        {"in a B n 0 127 128 255\ny = BitCast(a) to=3", {"b 4 0 127 -128 -1"}},
        {"in a b n 0 127 -128 -1\ny = BitCast(a) to=2", {"B 4 0 127 128 255"}},
        {"in a ? n,2 0 0 1 0 1 1\nis ax l 1 1\ny = ReduceMax(a,ax) keepdims=0", {"? 3 0 1 1"}},
        {"in a ? n,2 0 0 1 0 1 1\nis ax l 1 1\ny = ReduceMin(a,ax) keepdims=0", {"? 3 0 0 1"}},
        {X23 "is ax l 1 0\ny = ReduceProd(x,ax) keepdims=0", {"f 3 4 10 18"}},
        {X23 "is ax l 1 0\ny = ReduceSum(x,ax) keepdims=1", {"f 1,3 5 7 9"}},
        {X23 "is i l 0 -1\ny = Gather(x,i) axis=0", {"f 3 4 5 6"}},
        {X23 "is i l 2 -1 0\ny = Gather(x,i) axis=1", {"f 2,2 3 1 6 4"}},
        {X23 "is i l 3 -2 1 0\ny = Gather(x,i) axis=0", {"f 3,3 1 2 3 4 5 6 1 2 3"}},
        {X23 "in i l m -1 0\ny = Gather(x,i) axis=1", {"f 2,2 3 1 6 4"}},
        {"is x f 3 1 2 3\nis i l 2 -1 0\ny = Gather(x,i)", {"f 2 3 1"}},
        {X23 "is p l 4 0 2 0 2\ny = Pad(x,p) mode='edge'", {"f 2,7 1 1 1 2 3 3 3 4 4 4 5 6 6 6"}},
        {X23 "is p l 4 0 2 0 1\ny = Pad(x,p) mode='reflect'", {"f 2,6 3 2 1 2 3 2 6 5 4 5 6 5"}},
        {X23 "is p l 4 0 2 0 1\ny = Pad(x,p) mode='wrap'", {"f 2,6 2 3 1 2 3 1 5 6 4 5 6 4"}},
        {X23 "is p l 4 1 0 1 0\ny = Pad(x,p) mode='reflect'", {"f 4,3 4 5 6 1 2 3 4 5 6 1 2 3"}},
        {X23 "is p l 4 0 1 0 -1\nis v f 0 9\ny = Pad(x,p,v)", {"f 2,3 9 1 2 9 4 5"}},
        {X23 "y,z = Split(x) axis=1 num_outputs=2", {"f 2,2 1 2 4 5", "f 2,1 3 6"}},
        {"in x f n,2 1 2 3 4 5 6 7 8\nd = Concat(x,x) axis=0\ny,z = Split(d) axis=0 num_outputs=2",
         {"f 4,2 1 2 3 4 5 6 7 8", "f 4,2 1 2 3 4 5 6 7 8"}},
        {X23 "y = Trilu(x) upper=0", {"f 2,3 1 0 0 4 5 0"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

static void products(void **state) {
    (void)state;
    static const row rows[] = {
        {X23 "is w f 3,2 1 0 0 1 1 1\ny = Einsum(x,w) equation='ij,jk'", {"f 2,2 4 5 10 11"}},
        {X23 "is w f 3,2 1 0 0 1 1 1\ny = Einsum(x,w) equation='bj,ja'", {"f 2,2 4 10 5 11"}},
        {X23 "y = Einsum(x) equation='ba'", {"f 3,2 1 4 2 5 3 6"}},
        {X23 "y = Einsum(x) equation='ij->'", {"f 0 21"}},
        {X23 "y = Einsum(x,x) equation='ij,ij'", {"f 0 91"}},
        {X23 "y = Einsum(x,x) equation='ij,ij->i'", {"f 2 14 77"}},
        {"in x f n,1,3 1 2 3 4 5 6\nis w f 3,2 1 0 0 1 1 1\ny = Einsum(x,w) equation='...ij,jk'",
         {"f 2,1,2 4 5 10 11"}},
        {"in x f n,1,3 1 2 3 4 5 6\nis w f 3,2 1 0 0 1 1 1\ny = Einsum(x,w) "
         "equation='...ij,jk->k...i'",
         {"f 2,2,1 4 10 5 11"}},
        {"in x f 1,2,n 1 3 5 2 2 8\nis g f 2 1 2\nis b f 2 0 1\ny = InstanceNormalization(x,g,b) "
         "epsilon=0.0",
         {"f 1,2,3 -1.2247449 0 1.2247449 -0.4142136 -0.4142136 3.8284271"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

#define X5 "in x f 1,1,5 1 2 3 4 5\n"
#define X3 "in x f 1,1,3 1 2 3\nis w f 1,1,2 1 10\n"

/* Where windows lie, and what is behind the edges. */
static void windows(void **state) {
    (void)state;
    static const row rows[] = {
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w)", {"f 1,1,4 21 32 43 54"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) auto_pad='SAME_UPPER'", {"f 1,1,5 21 32 43 54 5"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) auto_pad='SAME_LOWER'", {"f 1,1,5 10 21 32 43 54"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) auto_pad='SAME_UPPER' strides=[2]",
         {"f 1,1,3 21 43 5"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) dilations=[2]", {"f 1,1,3 31 42 53"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) dilations=[2] auto_pad='SAME_LOWER'",
         {"f 1,1,5 20 31 42 53 4"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) pads=[2,0]", {"f 1,1,6 0 10 21 32 43 54"}},
        {X5 "is w f 1,1,2 1 10\ny = Conv(x,w) pads=[0,1] strides=[2]", {"f 1,1,3 21 43 5"}},
        {X5 "is w f 1,1,2 1 10\nis b f 1 7\ny = Conv(x,w,b) strides=[3]", {"f 1,1,2 28 61"}},
        {X3 "y = ConvTranspose(x,w) strides=[2]", {"f 1,1,6 1 10 2 20 3 30"}},
        {X3 "y = ConvTranspose(x,w) strides=[2] output_padding=[1]", {"f 1,1,7 1 10 2 20 3 30 0"}},
        {X3 "y = ConvTranspose(x,w) strides=[2] pads=[1,0]", {"f 1,1,5 10 2 20 3 30"}},
        {X3 "y = ConvTranspose(x,w) strides=[2] pads=[0,1]", {"f 1,1,5 1 10 2 20 3"}},
        {X3 "y = ConvTranspose(x,w) dilations=[2]", {"f 1,1,5 1 2 13 20 30"}},
        {X3 "y = ConvTranspose(x,w) auto_pad='SAME_UPPER'", {"f 1,1,3 1 12 23"}},
        {X3 "y = ConvTranspose(x,w) auto_pad='SAME_LOWER'", {"f 1,1,3 12 23 30"}},
        {X3 "y = ConvTranspose(x,w) output_shape=[3]", {"f 1,1,3 12 23 30"}},
        {X3 "y = ConvTranspose(x,w) output_shape=[3] auto_pad='SAME_UPPER'", {"f 1,1,3 1 12 23"}},
        {X3 "y = ConvTranspose(x,w) output_shape=[5]", {"f 1,1,5 1 12 23 30 0"}},
        {X5 "y = MaxPool(x) kernel_shape=[2]", {"f 1,1,4 2 3 4 5"}},
        {X5 "y = MaxPool(x) kernel_shape=[2] strides=[2]", {"f 1,1,2 2 4"}},
        {X5 "y = MaxPool(x) kernel_shape=[2] strides=[2] ceil_mode=1", {"f 1,1,3 2 4 5"}},
        {X5 "y = MaxPool(x) kernel_shape=[2] strides=[3] ceil_mode=1", {"f 1,1,2 2 5"}},
        {X5 "y = MaxPool(x) kernel_shape=[1] strides=[3] ceil_mode=1", {"f 1,1,2 1 4"}},
        {X5 "y = MaxPool(x) kernel_shape=[2] dilations=[3]", {"f 1,1,2 4 5"}},
        {X5 "n = Neg(x)\ny = MaxPool(n) kernel_shape=[2] pads=[1,1]",
         {"f 1,1,6 -1 -1 -2 -3 -4 -5"}},
        {X5 "y = AveragePool(x) kernel_shape=[2] pads=[1,1]", {"f 1,1,6 1 1.5 2.5 3.5 4.5 5"}},
        {X5 "y = AveragePool(x) kernel_shape=[2] pads=[1,1] count_include_pad=1",
         {"f 1,1,6 0.5 1.5 2.5 3.5 4.5 2.5"}},
        {X5 "y = AveragePool(x) kernel_shape=[2] strides=[2] ceil_mode=1", {"f 1,1,3 1.5 3.5 5"}},
        {X5 "y = AveragePool(x) kernel_shape=[2] strides=[2] ceil_mode=1 count_include_pad=1",
         {"f 1,1,3 1.5 3.5 5"}},
        {X5 "y = AveragePool(x) kernel_shape=[2] auto_pad='SAME_LOWER'",
         {"f 1,1,5 1 1.5 2.5 3.5 4.5"}},
        {X5 "is s f 3 1 1 1.6\ny = Resize(x,,s) mode='linear'",
         {"f 1,1,8 1 1.4375 2.0625 2.6875 3.3125 3.9375 4.5625 5"}},
        {X5 "is s l 3 1 1 10\ny = Resize(x,,,s) mode='linear'",
         {"f 1,1,10 1 1.25 1.75 2.25 2.75 3.25 3.75 4.25 4.75 5"}},
        {X5 "is s l 3 1 1 9\ny = Resize(x,,,s) mode='linear' "
            "coordinate_transformation_mode='align_corners'",
         {"f 1,1,9 1 1.5 2 2.5 3 3.5 4 4.5 5"}},
        {X5 "is s l 3 1 1 10\ny = Resize(x,,,s) mode='linear' "
            "coordinate_transformation_mode='asymmetric'",
         {"f 1,1,10 1 1.5 2 2.5 3 3.5 4 4.5 5 5"}},
        {X5 "is s l 3 1 1 10\ny = Resize(x,,,s)", {"f 1,1,10 1 1 2 2 3 3 4 4 5 5"}},
        {X5 "is s l 3 1 1 2\ny = Resize(x,,,s) nearest_mode='ceil'", {"f 1,1,2 2 5"}},
        {X5 "is s l 3 1 1 2\ny = Resize(x,,,s) nearest_mode='floor'", {"f 1,1,2 1 4"}},
        {"in x f 1,1,4 1 2 3 4\nis s l 3 1 1 8\ny = Resize(x,,,s) mode='cubic'",
         {"f 1,1,8 0.8945312 1.191406 1.667969 2.296875 2.703125 3.332031 3.808594 4.105469"}},
        {"in x f 1,1,4 1 2 3 4\nis s l 3 1 1 8\ny = Resize(x,,,s) mode='cubic' exclude_outside=1",
         {"f 1,1,8 0.8636364 1.173145 1.645283 2.296875 2.703125 3.354717 3.826855 4.136364"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* Attributes whose values change what most models do not ask for. */
static void settings(void **state) {
    (void)state;
    static const row rows[] = {
        {X23 "is w f 3,2 1 0 0 1 1 1\nis b f 2 10 20\ny = Gemm(x,w,b)", {"f 2,2 14 25 20 31"}},
        {X23 "is w f 3,2 1 0 0 1 1 1\nis b f 2 10 20\ny = Gemm(x,w,b) alpha=2.0",
         {"f 2,2 18 30 30 42"}},
        {X23 "is w f 3,2 1 0 0 1 1 1\nis b f 2 10 20\ny = Gemm(x,w,b) beta=2.0",
         {"f 2,2 24 45 30 51"}},
        {"in x f 2,3 1 2 3 4 5 6\nis w f 3,2 1 0 0 1 1 1\nis b f 2,1 10 20\ny = Gemm(x,w,b)",
         {"f 2,2 14 15 30 31"}},
        {X23 "is w f 2,2 1 2 3 4\ny = Gemm(x,w) transA=1", {"f 3,2 13 18 17 24 21 30"}},
        {X23 "y = CumSum(x,a) reverse=1\nis a l 0 1", {"f 2,3 6 5 3 15 11 6"}},
        {X23 "y = CumSum(x,a) exclusive=1\nis a l 0 1", {"f 2,3 0 1 3 0 4 9"}},
        {X23 "y = CumSum(x,a) exclusive=1 reverse=1\nis a l 0 0", {"f 2,3 4 5 6 0 0 0"}},
        {"in x f 1,4 2 3 3 1\ny = ArgMax(x) axis=1", {"l 1,1 1"}},
        {"in x f 1,4 2 3 3 1\ny = ArgMax(x) axis=1 select_last_index=1 keepdims=0", {"l 1 2"}},
        {"in x f 1,4 2 1 1 3\ny = ArgMin(x) axis=1 select_last_index=1", {"l 1,1 2"}},
        {"in x f 1,4 2 3 3 1\ny = Hardmax(x)", {"f 1,4 0 1 0 0"}},
        {"in x f 1,4 2 9 3 1\nis k l 1 2\ny,z = TopK(x,k)", {"f 1,2 9 3", "l 1,2 1 2"}},
        {"in x f 1,4 2 9 3 1\nis k l 1 2\ny,z = TopK(x,k) largest=0", {"f 1,2 1 2", "l 1,2 3 0"}},
        {"in x f 3 1 inf -inf\ny = IsInf(x)", {"? 3 0 1 1"}},
        {"in x f 3 1 inf -inf\ny = IsInf(x) detect_negative=0", {"? 3 0 1 0"}},
        {"in x f 3 1 inf -inf\ny = IsInf(x) detect_positive=0", {"? 3 0 0 1"}},
        {X23 "y = Flatten(x) axis=0", {"f 1,6 1 2 3 4 5 6"}},
        {X23 "y = Flatten(x) axis=2", {"f 6,1 1 2 3 4 5 6"}},
        {X23 "y = Flatten(x) axis=-1", {"f 2,3 1 2 3 4 5 6"}},
        {X23 "y = ReduceSum(x) noop_with_empty_axes=1", {"f 2,3 1 2 3 4 5 6"}},
        {X23 "y = ReduceSum(x)", {"f 1,1 21"}},
        {X23 "is a l 1 -1\ny = ReduceLogSumExp(x,a) keepdims=0", {"f 2 3.4076059 6.4076059"}},
        {X23 "is a l 1 -1\ny = ReduceL1(x,a) keepdims=0", {"f 2 6 15"}},
        {X23 "is a l 1 -1\ny = ReduceL2(x,a) keepdims=0", {"f 2 3.7416574 8.774964"}},
        {X23 "is a l 1 -1\ny = ReduceLogSum(x,a) keepdims=0", {"f 2 1.7917595 2.7080502"}},
        {X23 "is s l 1 2\nis e l 1 -9223372036854775808\nis a l 1 1\nis t l 1 -1\ny = "
             "Slice(x,s,e,a,t)",
         {"f 2,3 3 2 1 6 5 4"}},
        /* n k j elements, which may be more than the least end can count */
        {"in x f n,1 1 2\nin w f 1,k 1 3\nin v f 1,j 1 10\nis s l 1 -1\nis e l 1 "
         "-9223372036854775808\n"
         "is a l 1 1\nis t l 1 -1\np = MatMul(x,w)\nq = Flatten(p) axis=2\nr = MatMul(q,v)\n"
         "u = Flatten(r) axis=0\ny = Slice(u,s,e,a,t)",
         {"f 1,8 60 6 20 2 30 3 10 1"}},
        {X23 "is s l 1 -1\nis e l 1 0\nis a l 1 1\nis t l 1 -2\ny = Slice(x,s,e,a,t)",
         {"f 2,1 3 6"}},
        {X23 "is s l 1 1\nis e l 1 9223372036854774784\nis a l 1 1\nis t l 1 2\ny = "
             "Slice(x,s,e,a,t)",
         {"f 2,1 2 5"}},
        {"in x f 2,3 1 2 3 4 5 6\nis s l 2 -9 1\nis e l 2 1 -1\ny = Slice(x,s,e)", {"f 1,1 2"}},
        {X23 "is k l 0 1\ny = Trilu(x,k)", {"f 2,3 0 2 3 0 0 6"}},
        {X23 "is k l 0 -1\ny = Trilu(x,k) upper=0", {"f 2,3 0 0 0 4 0 0"}},
        {"in x f 2,2,2 1 2 3 4 5 6 7 8\nis i l 2,1 1 0\ny = GatherND(x,i) batch_dims=1",
         {"f 2,2 3 4 5 6"}},
        {"in x f 2,2,2 1 2 3 4 5 6 7 8\nis i l 2,2 1 0 0 -1\ny = GatherND(x,i)", {"f 2,2 5 6 3 4"}},
        {"in x f n,2 1 2 3 4\nis i l 2,2 1 0 0 1\ny = GatherElements(x,i) axis=1",
         {"f 2,2 2 1 3 4"}},
        {"in i l n 1 -1 0\nis d l 0 3\nis v f 2 5 9\ny = OneHot(i,d,v)",
         {"f 3,3 5 9 5 5 5 9 9 5 5"}},
        {"in i l n 1 -1 0\nis d l 0 3\nis v f 2 5 9\ny = OneHot(i,d,v) axis=0",
         {"f 3,3 5 5 9 9 5 5 5 9 5"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

static void elements(void **state) {
    (void)state;
    static const row rows[] = {
        {"in x f 4 -1 -0.4 0.4 1\ny = Shrink(x) bias=0.25", {"f 4 -0.75 0 0 0.75"}},
        {"in x f 3 -1 0.5 2\ny = ThresholdedRelu(x)", {"f 3 0 0 2"}},
        {"in x f 3 -1 0 2\ny = LeakyRelu(x)", {"f 3 -0.01 0 2"}},
        {"in x f 3 -1 0 2\ny = Elu(x) alpha=2.0", {"f 3 -1.2642411 0 2"}},
        {"in x f 3 -1 0 2\ny = Celu(x) alpha=2.0", {"f 3 -0.7869387 0 2"}},
        {"in x f 3 -1 0 2\ny = Selu(x)", {"f 3 -1.1113307 0 2.1014020"}},
        {"in x f 3 -5 1 5\ny = HardSigmoid(x)", {"f 3 0 0.7 1"}},
        {"in x f 3 -5 1 5\ny = HardSwish(x)", {"f 3 0 0.6666667 5"}},
        {"in x f 2,2 1 2 3 4\nis s f 2 1 2\nis z B 2 10 20\ny = QuantizeLinear(x,s,z)",
         {"B 2,2 11 21 13 22"}},
        {"in x f 2,2 1 2 3 4\nis s f 2 1 2\nis z B 2 10 20\ny = QuantizeLinear(x,s,z) axis=0",
         {"B 2,2 11 12 22 22"}},
        {"in x B 2,2 11 21 13 22\nis s f 2 1 2\nis z B 2 10 20\ny = DequantizeLinear(x,s,z)",
         {"f 2,2 1 2 3 4"}},
        {"in x B 2,2 11 21 13 22\nis s f 2 1 2\nis z B 2 10 20\ny = DequantizeLinear(x,s,z) "
         "axis=0",
         {"f 2,2 1 11 -14 4"}},
        {"in x f 1,4,1,1 1 2 3 4\ny = DepthToSpace(x) blocksize=2", {"f 1,1,2,2 1 2 3 4"}},
        {"in x f 1,8,1,1 1 2 3 4 5 6 7 8\ny = DepthToSpace(x) blocksize=2",
         {"f 1,2,2,2 1 3 5 7 2 4 6 8"}},
        {"in x f 1,8,1,1 1 2 3 4 5 6 7 8\ny = DepthToSpace(x) blocksize=2 mode='CRD'",
         {"f 1,2,2,2 1 2 3 4 5 6 7 8"}},
        {X23 "is s l 3 0 -1 1\ny = Reshape(x,s)", {"f 2,3,1 1 2 3 4 5 6"}},
        {"in x f 3 1 2 3\nis g f 3 1 2 3\ny = RMSNormalization(x,g) epsilon=0.0",
         {"f 3 0.4629100 1.8516402 4.1661902"}},
        {"in x f 2 3 4\ny = LpNormalization(x)", {"f 2 0.6 0.8"}},
        {"in x f 2 3 -4\ny = LpNormalization(x) p=1", {"f 2 0.4285714 -0.5714286"}},
        {"in a B 3 1 2 255\nis b B 3 1 2 3\ny = BitShift(a,b) direction='RIGHT'", {"B 3 0 0 31"}},
        {"in a B 3 1 2 3\nis b B 3 1 2 3\ny = BitShift(a,b) direction='LEFT'", {"B 3 2 8 24"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* Integers with zero points, and norms of com.microsoft. */
static void integers_and_norms(void **state) {
    (void)state;
#define A22 "in a B n,2 1 2 3 4\n"
    static const row rows[] = {
        {A22 "is w B 2,2 5 6 7 8\nis p B 0 1\nis q B 0 2\ny = MatMulInteger(a,w,p,q)",
         {"i 2,2 5 6 21 26"}},
        {A22 "is w B 2,2 5 6 7 8\ny = MatMulInteger(a,w)", {"i 2,2 19 22 43 50"}},
        {A22 "is w B 2,2 5 6 7 200\nis q B 0 128\ny = MatMulInteger(a,w,,q)",
         {"i 2,2 -365 22 -853 -78"}},
        {A22 "is w b 2,2 -5 6 7 -8\nis p B 0 1\ny = MatMulInteger(a,w,p)", {"i 2,2 7 -8 11 -12"}},
        {A22 "is w b 2,2 -5 6 7 -8\nis q b 2 1 -1\ny = MatMulInteger(a,w,,q)", {"i 2,2 6 -7 6 -7"}},
        {"in a b n,2 1 -2 3 4\nis w b 2,2 5 6 7 8\nis p b 0 -1\ny = MatMulInteger(a,w,p)",
         {"i 2,2 3 4 55 64"}},
        {A22 "in w B 2,2 5 6 7 8\nis p B 0 1\nis q B 0 2\ny = MatMulInteger(a,w,p,q)",
         {"i 2,2 5 6 21 26"}},
        {A22 "is s f 0 0.5\nis p B 0 1\nis w B 2,2 5 6 7 8\nis t f 0 0.5\nis q B 0 2\nis u f 0 "
             "0.25\nis r B 0 10\ny = QLinearMatMul(a,s,p,w,t,q,u,r)",
         {"B 2,2 15 16 31 36"}},
        {"in x B 1,1,4 1 2 3 4\nis w B 1,1,2 1 10\nis p B 0 1\ny = ConvInteger(x,w,p)",
         {"i 1,1,3 10 21 32"}},
        {"in x f n,2 1 2\nis s f 1,2 2 2\nis g f 2 1 1\ny = "
         "ms.SkipSimplifiedLayerNormalization(x,s,g) epsilon=0.0",
         {"f 1,2 0.8485281 1.1313708"}},
        {"in x f n,2 1 2\nis s f 1,2 0 0\nis g f 2 1 1\nis b f 2 2 2\ny,-,-,z = "
         "ms.SkipSimplifiedLayerNormalization(x,s,g,b) epsilon=0.0",
         {"f 1,2 0.8485281 1.1313708", "f 1,2 3 4"}},
        {"in x f n,2 1 2\nis s f 1,2 2 2\nis g f 2 1 1\nis b f 2 10 20\nis c f 2 0 2\ny,-,-,z = "
         "ms.SkipLayerNormalization(x,s,g,b,c) epsilon=0.0",
         {"f 1,2 9 21", "f 1,2 3 6"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* One query of one head, two keys: scores 1 and 0, or what caps and masks make of them, as an output, too. */
#define HEAD                                                                                       \
    "in q f 1,1,1,2 1 0\nis k f 1,1,2,2 1 0 0 1\nis v f 1,1,2,2 2 4 6 8\nis b f 1,2 0.5 "          \
    "2\ny,-,-,z = "

static void scores(void **state) {
    (void)state;
    static const row rows[] = {
        {HEAD "Attention(q,k,v) scale=1.0 qk_matmul_output_mode=0",
         {"f 1,1,1,2 3.0757657 5.0757657", "f 1,1,1,2 1 0"}},
        {HEAD "Attention(q,k,v) scale=2.0 qk_matmul_output_mode=3",
         {"f 1,1,1,2 2.4768117 4.4768117", "f 1,1,1,2 0.8807971 0.1192029"}},
        {HEAD "Attention(q,k,v,b) scale=1.0 qk_matmul_output_mode=3",
         {"f 1,1,1,2 4.4898377 6.4898377", "f 1,1,1,2 0.3775407 0.6224593"}},
        {HEAD "Attention(q,k,v) scale=2.0 qk_matmul_output_mode=3 right_window_size=0",
         {"f 1,1,1,2 2 4", "f 1,1,1,2 1 0"}},
        {HEAD "Attention(q,k,v) scale=2.0 qk_matmul_output_mode=3 right_window_size=1",
         {"f 1,1,1,2 2.4768117 4.4768117", "f 1,1,1,2 0.8807971 0.1192029"}},
        {HEAD "Attention(q,k,v) scale=2.0 qk_matmul_output_mode=3 left_window_size=0",
         {"f 1,1,1,2 2.4768117 4.4768117", "f 1,1,1,2 0.8807971 0.1192029"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* Resize with sizes that keep the ratio of the axes: 4 x 2 fits 6 x 6 with the factor 1.5, covers it with 3. */
static void ratios(void **state) {
    (void)state;
    static const row rows[] = {
        {"in x f 1,1,4,2 1 2 3 4 5 6 7 8\nis s l 2 6 6\nr = Resize(x,,,s) axes=[2,3] "
         "mode='nearest' "
         "keep_aspect_ratio_policy='not_larger'\ny = Shape(r)",
         {"l 4 1 1 6 3"}},
        {"in x f 1,1,4,2 1 2 3 4 5 6 7 8\nis s l 2 6 6\nr = Resize(x,,,s) axes=[2,3] "
         "mode='nearest' "
         "keep_aspect_ratio_policy='not_smaller'\ny = Shape(r)",
         {"l 4 1 1 12 6"}},
        {"in x f 1,1,4,2 1 2 3 4 5 6 7 8\nis s l 2 6 6\nr = Resize(x,,,s) axes=[2,3] "
         "mode='nearest' "
         "\ny = Shape(r)",
         {"l 4 1 1 6 6"}},
        {"in x f 1,1,2,2 1 2 3 4\nis s l 2 3 4\ny = Resize(x,,,s) axes=[2,3] mode='nearest' "
         "nearest_mode='floor' coordinate_transformation_mode='asymmetric' "
         "keep_aspect_ratio_policy='not_smaller'",
         {"f 1,1,4,4 1 1 2 2 1 1 2 2 3 3 4 4 3 3 4 4"}},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_numbers),
                                       cmocka_unit_test(numbers),
                                       cmocka_unit_test(products),
                                       cmocka_unit_test(ratios),
                                       cmocka_unit_test(scores),
                                       cmocka_unit_test(windows),
                                       cmocka_unit_test(settings),
                                       cmocka_unit_test(elements),
                                       cmocka_unit_test(integers_and_norms)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
