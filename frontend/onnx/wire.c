/* wire.c: reads the wire format of protobufs (protobuf.dev/programming-guides/encoding) into the structures of
 * file.h, by tables of their fields. Files are untrusted: every length is checked before use. A library of
 * protobufs would copy the weights. */
#include "frontend/onnx/file.h"

#include <string.h>

enum { MAX_DEPTH = 32, MAX_MESSAGES = 1 << 20 };

typedef enum kind { INT, FLOAT, DOUBLE, TEXT, BYTES, MESSAGE } kind;

typedef struct field {
    uint32_t number;
    kind kind;
    bool many;
    size_t at;                    /* of the member in the structure */
    const struct message *fields; /* of MESSAGE */
} field;

typedef struct message {
    size_t size; /* of the structure */
    const field *field;
} message;

#define ONE(number, kind, T, member)                                                               \
    { number, kind, false, offsetof(T, member), NULL }
#define MANY(number, kind, T, member)                                                              \
    { number, kind, true, offsetof(T, member), NULL }
#define SUB(number, T, member, of)                                                                 \
    { number, MESSAGE, false, offsetof(T, member), &(of) }
#define SUBS(number, T, member, of)                                                                \
    { number, MESSAGE, true, offsetof(T, member), &(of) }
#define FIELDS(name, T, ...)                                                                       \
    static const message name = {sizeof(T), (const field[]){__VA_ARGS__, {0}}}

/* The numbers are those of onnx.proto. */
static const message graph_fields;
FIELDS(pair_fields, onnx_pair, ONE(1, TEXT, onnx_pair, key), ONE(2, TEXT, onnx_pair, value));
FIELDS(tensor_fields, onnx_tensor, MANY(1, INT, onnx_tensor, dims), ONE(2, INT, onnx_tensor, type),
       MANY(4, FLOAT, onnx_tensor, floats), MANY(5, INT, onnx_tensor, ints),
       MANY(7, INT, onnx_tensor, longs), ONE(8, TEXT, onnx_tensor, name),
       ONE(9, BYTES, onnx_tensor, raw), MANY(10, DOUBLE, onnx_tensor, doubles),
       MANY(11, INT, onnx_tensor, big), SUBS(13, onnx_tensor, external, pair_fields),
       ONE(14, INT, onnx_tensor, location));
FIELDS(attribute_fields, onnx_attribute, ONE(1, TEXT, onnx_attribute, name),
       ONE(2, FLOAT, onnx_attribute, f), ONE(3, INT, onnx_attribute, i),
       ONE(4, TEXT, onnx_attribute, text), SUB(5, onnx_attribute, tensor, tensor_fields),
       SUB(6, onnx_attribute, graph, graph_fields), MANY(7, FLOAT, onnx_attribute, floats),
       MANY(8, INT, onnx_attribute, ints), MANY(9, TEXT, onnx_attribute, texts),
       ONE(20, INT, onnx_attribute, type), ONE(21, TEXT, onnx_attribute, refers));
FIELDS(node_fields, onnx_node, MANY(1, TEXT, onnx_node, in), MANY(2, TEXT, onnx_node, out),
       ONE(3, TEXT, onnx_node, name), ONE(4, TEXT, onnx_node, op),
       SUBS(5, onnx_node, attribute, attribute_fields), ONE(7, TEXT, onnx_node, domain));
FIELDS(dim_fields, onnx_dim, ONE(1, INT, onnx_dim, value), ONE(2, TEXT, onnx_dim, param));
FIELDS(shape_fields, onnx_shape, SUBS(1, onnx_shape, dim, dim_fields));
FIELDS(tensor_type_fields, onnx_tensor_type, ONE(1, INT, onnx_tensor_type, element),
       SUB(2, onnx_tensor_type, shape, shape_fields));
FIELDS(value_type_fields, onnx_value_type, SUB(1, onnx_value_type, tensor, tensor_type_fields));
FIELDS(value_info_fields, onnx_value_info, ONE(1, TEXT, onnx_value_info, name),
       SUB(2, onnx_value_info, type, value_type_fields));
static const message graph_fields = {
    sizeof(onnx_graph), (const field[]){SUBS(1, onnx_graph, node, node_fields),
                                        ONE(2, TEXT, onnx_graph, name),
                                        SUBS(5, onnx_graph, init, tensor_fields),
                                        SUBS(11, onnx_graph, input, value_info_fields),
                                        SUBS(12, onnx_graph, output, value_info_fields),
                                        MANY(15, BYTES, onnx_graph, sparse),
                                        {0}}};
FIELDS(opset_fields, onnx_opset, ONE(1, TEXT, onnx_opset, domain),
       ONE(2, INT, onnx_opset, version));
FIELDS(function_fields, onnx_function, ONE(1, TEXT, onnx_function, name),
       MANY(4, TEXT, onnx_function, in), MANY(5, TEXT, onnx_function, out),
       SUBS(7, onnx_function, node, node_fields), SUBS(9, onnx_function, opset, opset_fields),
       ONE(10, TEXT, onnx_function, domain));
FIELDS(model_fields, onnx_model, ONE(1, INT, onnx_model, ir_version),
       SUB(7, onnx_model, graph, graph_fields), SUBS(8, onnx_model, opset, opset_fields),
       SUBS(25, onnx_model, function, function_fields));

static const size_t item_size[] = {
    [INT] = sizeof(int64_t), [FLOAT] = sizeof(float),      [DOUBLE] = sizeof(double),
    [TEXT] = sizeof(char *), [BYTES] = sizeof(onnx_bytes), [MESSAGE] = 0};
/* Wire types: what follows a field's number. */
enum { VARINT = 0, EIGHT = 1, LENGTH = 2, FOUR = 5 };
static const unsigned char wire_of[] = {[INT] = VARINT,  [FLOAT] = FOUR,   [DOUBLE] = EIGHT,
                                        [TEXT] = LENGTH, [BYTES] = LENGTH, [MESSAGE] = LENGTH};

typedef struct reader {
    sn_module *m; /* whose arena holds the structures */
    const char *path;
    onnx_bytes file;
    int64_t messages; /* read so far */
    sn_error *err;
} reader;

/* Bytes of the file that are still to be read. */
typedef struct range {
    const unsigned char *at, *end;
} range;

static bool damaged(const reader *r, const unsigned char *at, const char *why) {
    return sn_fail(r->err, SN_ERR_FILE, "%s: byte %zu: %s: not an ONNX file, or damaged", r->path,
                   (size_t)(at - r->file.data), why);
}

static bool take_varint(const reader *r, range *s, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 70 && s->at < s->end; shift += 7) {
        const unsigned char c = *s->at++;
        *out |= shift < 64 ? (uint64_t)(c & 127) << shift : 0;
        if (!(c & 128)) return true;
    }
    return damaged(r, s->at, "a number does not end");
}

/* What follows a field's number: a number, or the bytes of the field. */
typedef struct content {
    uint64_t number;
    range bytes;
} content;

static bool take_content(const reader *r, range *s, unsigned wire, content *c) {
    uint64_t size = wire == FOUR ? 4 : 8;
    c->bytes = *s;
    if (wire == VARINT) {
        bool ok = take_varint(r, s, &c->number);
        c->bytes.end = s->at;
        return ok;
    }
    if (wire != LENGTH && wire != FOUR && wire != EIGHT)
        return damaged(r, s->at, "an unknown wire type");
    if (wire == LENGTH && !take_varint(r, s, &size)) return false;
    if (size > (uint64_t)(s->end - s->at)) return damaged(r, s->at, "a field exceeds its message");
    c->bytes = (range){s->at, s->at + size};
    s->at += size;
    return true;
}

/* The next field of a message: its row in the table, or NULL if nothing reads it. */
static bool take_field(const reader *r, range *s, const message *of, const field **f, content *c,
                       unsigned *wire) {
    uint64_t key;
    if (!take_varint(r, s, &key)) return false;
    *wire = key & 7;
    for (*f = of->field; (*f)->number && (*f)->number != key >> 3;) ++*f;
    if (!(*f)->number) *f = NULL;
    if (!take_content(r, s, *wire, c)) return false;
    if (*f && *wire != wire_of[(*f)->kind] && !(*wire == LENGTH && (*f)->many && (*f)->kind < TEXT))
        return damaged(r, s->at, "a field has another type than in onnx.proto");
    return true;
}

/* Numbers of a repeated field: packed, or one. */
static int64_t count_of(const field *f, const content *c, unsigned wire) {
    if (wire != LENGTH || f->kind >= TEXT) return 1;
    int64_t n = 0;
    if (f->kind != INT) return (c->bytes.end - c->bytes.at) / (int64_t)item_size[f->kind];
    for (const unsigned char *p = c->bytes.at; p < c->bytes.end; p++) n += !(*p & 128);
    return n;
}

static bool take_message(reader *r, range s, const message *of, int depth, void *out);

static bool take_text(const reader *r, const content *c, const char **out) {
    const size_t size = (size_t)(c->bytes.end - c->bytes.at);
    char *copy = sn_arena_alloc(r->m, size + 1);
    if (size) memcpy(copy, c->bytes.at, size);
    copy[size] = 0;
    *out = copy;
    return true;
}

static bool take_item(reader *r, const field *f, const content *c, int depth, void *out) {
    if (f->kind == INT) memcpy(out, &c->number, sizeof c->number);
    if (f->kind == FLOAT || f->kind == DOUBLE) memcpy(out, c->bytes.at, item_size[f->kind]);
    if (f->kind == TEXT) return take_text(r, c, out);
    if (f->kind == BYTES)
        *(onnx_bytes *)out = (onnx_bytes){c->bytes.at, (size_t)(c->bytes.end - c->bytes.at)};
    return f->kind != MESSAGE || take_message(r, c->bytes, f->fields, depth + 1, out);
}

/* Adds a field, or the numbers that are packed in it, to a list that has room for them. */
static bool take_items(reader *r, const field *f, content *c, unsigned wire, int depth,
                       onnx_list *list) {
    const size_t size = f->kind == MESSAGE ? f->fields->size : item_size[f->kind];
    if (wire != LENGTH || f->kind >= TEXT)
        return take_item(r, f, c, depth, (char *)list->item + size * (size_t)list->n++);
    for (range s = c->bytes; s.at < s.end;) {
        content each;
        if (!take_content(r, &s, wire_of[f->kind], &each)) return false;
        if (!take_item(r, f, &each, depth, (char *)list->item + size * (size_t)list->n++))
            return false;
    }
    return true;
}

/* Makes room in the lists for the items of the message. */
static bool reserve(reader *r, range s, const message *of, void *out) {
    const field *f;
    content c;
    unsigned wire;
    for (range t = s; t.at < t.end;) {
        if (!take_field(r, &t, of, &f, &c, &wire)) return false;
        if (!f) continue;
        onnx_list *list = (onnx_list *)((char *)out + f->at);
        const int64_t n = count_of(f, &c, wire);
        r->messages += f->kind >= TEXT;
        if (r->messages > MAX_MESSAGES || (f->many && n > INT32_MAX - list->n))
            return damaged(r, t.at, "too many nodes or numbers");
        if (f->many) list->n += (int)n;
    }
    for (f = of->field; f->number; f++) {
        onnx_list *list = (onnx_list *)((char *)out + f->at);
        const size_t size = f->kind == MESSAGE ? f->fields->size : item_size[f->kind];
        if (f->many && list->n) list->item = sn_arena_alloc(r->m, size * (size_t)list->n);
        if (f->many) list->n = 0;
    }
    return true;
}

static bool take_message(reader *r, range s, const message *of, int depth, void *out) {
    const field *f;
    content c;
    unsigned wire;
    if (depth > MAX_DEPTH) return damaged(r, s.at, "messages are nested too deeply");
    if (!reserve(r, s, of, out)) return false;
    while (s.at < s.end) {
        if (!take_field(r, &s, of, &f, &c, &wire)) return false;
        if (!f) continue;
        void *place = (char *)out + f->at;
        if (f->kind == MESSAGE && !f->many) {
            void **one = place;
            if (!*one) *one = sn_arena_alloc(r->m, f->fields->size);
            place = *one;
        }
        if (f->many ? !take_items(r, f, &c, wire, depth, place)
                    : !take_item(r, f, &c, depth, place))
            return false;
    }
    return true;
}

onnx_model *onnx_read(sn_module *m, const char *path, onnx_bytes file, sn_error *err) {
    reader r = {m, path, file, 0, err};
    onnx_model *model = sn_arena_alloc(m, sizeof *model);
    if (!take_message(&r, (range){file.data, file.data + file.size}, &model_fields, 0, model))
        return NULL;
    if (model->graph) return model;
    damaged(&r, file.data, "it has no graph");
    return NULL;
}
