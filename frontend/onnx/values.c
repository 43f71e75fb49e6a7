/* values.c: the values of a graph while it is imported: arrays of the file as weights or numbers, values that
 * are known as tensors; attributes and inputs of nodes. */
#include "frontend/onnx/load.h"

#include "runtime/file.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

bool onnx_fail(onnx_call *c, const char *fmt, ...) {
    char why[512], op[48], name[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!c->node) return sn_fail(c->im->err, SN_ERR_FILE, "%s: %s", c->im->path, why);
    const char *domain = c->node->domain && *c->node->domain ? c->node->domain : "ai.onnx";
    const char *of = c->node->name && *c->node->name ? c->node->name
                     : c->node->out.n                ? ONNX_AT(c->node->out, const char *, 0)
                                                     : "";
    return sn_fail(c->im->err, SN_ERR_FILE, "%s: %s '%s' (node %d, %s, version %lld): %s",
                   c->im->path, sn_printable(op, sizeof op, c->node->op ? c->node->op : ""),
                   sn_printable(name, sizeof name, of), c->at.line, domain, (long long)c->opset,
                   why);
}

/* ---- types and elements ---- */

/* Integers of types that the DSL does not have are of a wider one, with the same values. */
static const struct type {
    signed char type;           /* sn_dtype; -1: not supported */
    unsigned char stored, bits; /* bytes in files; of a narrower integer, 0: as it is */
} types[ONNX_TYPES] = {
    [ONNX_UNDEFINED] = {-1, 0, 0},     [ONNX_FLOAT] = {SN_F32, 4, 0},
    [ONNX_UINT8] = {SN_U8, 1, 0},      [ONNX_INT8] = {SN_I8, 1, 0},
    [ONNX_UINT16] = {SN_I32, 2, 16},   [ONNX_INT16] = {SN_I32, 2, 16},
    [ONNX_INT32] = {SN_I32, 4, 0},     [ONNX_INT64] = {SN_I64, 8, 0},
    [ONNX_STRING] = {-1, 0, 0},        [ONNX_BOOL] = {SN_BOOL, 1, 0},
    [ONNX_FLOAT16] = {SN_F16, 2, 0},   [ONNX_DOUBLE] = {SN_F64, 8, 0},
    [ONNX_UINT32] = {SN_I64, 4, 32},   [ONNX_UINT64] = {SN_I64, 8, 0},
    [ONNX_COMPLEX64] = {-1, 0, 0},     [ONNX_COMPLEX128] = {-1, 0, 0},
    [ONNX_BFLOAT16] = {SN_BF16, 2, 0},
};

bool onnx_dtype(int64_t type, sn_dtype *out) {
    if (type < 0 || type >= ONNX_TYPES || types[type].type < 0) return false;
    *out = (sn_dtype)types[type].type;
    return true;
}

sn_tensor onnx_wrap(onnx_call *c, sn_tensor x, onnx_type narrow) {
    const double size = exp2(types[narrow].bits);
    if (!types[narrow].bits || (int)sn_dtype_of(x) != types[narrow].type) return x;
    const bool is_signed = narrow == ONNX_INT16;
    sn_tensor y = sn_and(is_signed ? sn_add(x, size / 2) : x, size - 1);
    return is_signed ? sn_sub(y, size / 2) : y;
}

onnx_elem onnx_elem_dim(sn_dim d) {
    return (onnx_elem){true, d, 0};
}

onnx_elem onnx_elem_number(sn_dtype type, double x) {
    if (sn_dtype_is_float(type)) return (onnx_elem){false, 0, type == SN_F64 ? x : (float)x};
    const double limit = 0x1p39; /* below are handles of polynomials */
    return (onnx_elem){true, x < -limit ? (sn_dim)-limit : x > 0x1p62 ? INT64_MAX : (sn_dim)x, 0};
}

bool onnx_elem_value(const onnx_elem *e, double *x) {
    *x = e->poly ? (double)e->d : e->x;
    return !e->poly || e->d > -((sn_dim)1 << 40);
}

onnx_value *onnx_new_value(onnx_import *im, const char *name) {
    onnx_value *v = sn_arena_alloc(im->arena, sizeof *v);
    v->name = name;
    return v;
}

onnx_value *onnx_tensor_value(onnx_import *im, const char *name, sn_tensor t) {
    onnx_value *v = onnx_new_value(im, name);
    v->t = t;
    v->type = sn_dtype_of(t);
    v->rank = sn_rank_of(t);
    for (int i = 0; i < v->rank; i++) v->shape[i] = sn_dim_of_at((sn_loc){0}, t, i);
    return v;
}

int64_t onnx_count(const onnx_value *v) {
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        if (v->shape[i] < 0 || __builtin_mul_overflow(n, v->shape[i], &n)) return -1;
    return n;
}

/* ---- arrays of the file ---- */

/* A number of decimal digits; text NULL: `otherwise`. */
static bool take_number(onnx_call *c, const char *text, uint64_t otherwise, const char *what,
                        uint64_t *out) {
    char *end = NULL;
    *out = otherwise;
    if (!text) return true;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return (*text >= '0' && *text <= '9' && !*end && !errno) ||
           onnx_fail(c, "the %s of external data is \"%.40s\", not a number of bytes", what, text);
}

/* The bytes of a tensor that lie in another file: "location", "offset", "length". */
static bool find_external(onnx_call *c, const onnx_tensor *t, onnx_bytes *out) {
    const char *location = NULL, *number[2] = {NULL, NULL};
    for (int i = 0; i < t->external.n; i++) {
        const onnx_pair *p = &ONNX_AT(t->external, onnx_pair, i);
        if (!p->key || !p->value) continue;
        if (!strcmp(p->key, "location")) location = p->value;
        if (!strcmp(p->key, "offset")) number[0] = p->value;
        if (!strcmp(p->key, "length")) number[1] = p->value;
    }
    if (!location || !*location || *location == '/' || strstr(location, ".."))
        return onnx_fail(c, "the file of the data of '%s' is not in the model's folder", t->name);
    const char *slash = strrchr(c->im->path, '/');
    char *folder = slash ? strndup(c->im->path, (size_t)(slash - c->im->path) + 1) : strdup(".");
    char *path = folder ? sn_path_join(folder, location) : NULL;
    sn_mapping map = {0};
    bool ok = path ? sn_folder_owns(folder, path) ||
                         onnx_fail(c,
                                   "%s: the file of the data of '%s' is missing, or outside of "
                                   "the model's folder",
                                   location, t->name)
                   : sn_fail(c->im->err, SN_ERR_MEMORY, "out of memory");
    ok = ok && sn_weights_map(c->im->weights, path, &map, c->im->err);
    free(path);
    free(folder);
    if (!ok) return false;
    uint64_t at, size;
    if (!take_number(c, number[0], 0, "offset", &at)) return false;
    if (at > map.size)
        return onnx_fail(c, "the data of '%s' begin behind the end of %s", t->name, location);
    if (!take_number(c, number[1], map.size - at, "length", &size)) return false;
    if (size > map.size - at)
        return onnx_fail(c, "the data of '%s' end behind the end of %s", t->name, location);
    *out = (onnx_bytes){map.data + at, (size_t)size};
    return true;
}

/* Numbers of typed fields as an array of the type. */
static const void *copy_numbers(onnx_call *c, const onnx_tensor *t, sn_dtype type, int64_t n) {
    const onnx_list *list = t->longs.n ? &t->longs : t->ints.n ? &t->ints : &t->big;
    const size_t size = sn_dtype_size(type);
    if (type == SN_F32 && t->floats.n == n) return t->floats.item;
    if (type == SN_F64 && t->doubles.n == n) return t->doubles.item;
    if (list->n != n || type == SN_F32 || type == SN_F64) return NULL;
    char *out = sn_arena_alloc(c->im->arena, size * (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) /* little-endian */
        memcpy(out + size * (size_t)i, &ONNX_AT(*list, int64_t, i), size);
    return out;
}

/* The same integers in the wider type that they become. */
static const void *widen(onnx_call *c, const onnx_tensor *t, const unsigned char *from, int64_t n) {
    const size_t stored = types[t->type].stored,
                 size = sn_dtype_size((sn_dtype)types[t->type].type);
    char *out = sn_arena_alloc(c->im->arena, size * (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = 0;
        memcpy(&x, from + stored * (size_t)i, stored); /* little-endian */
        if (t->type == ONNX_INT16) x = (int16_t)x;
        memcpy(out + size * (size_t)i, &x, size);
    }
    return out;
}

static bool find_data(onnx_call *c, const onnx_tensor *t, sn_weight *w) {
    onnx_bytes bytes = t->raw;
    const int64_t n = sn_weight_elements(w);
    const size_t stored = types[t->type].stored;
    if (n < 0 || __builtin_mul_overflow((size_t)n, sn_dtype_size(w->dtype), &w->bytes))
        return onnx_fail(c, "the shape of '%s' is too large", w->name);
    if (t->location && !find_external(c, t, &bytes)) return false;
    if (bytes.data && bytes.size != (size_t)n * stored)
        return onnx_fail(c, "'%s' has %zu bytes, but its shape needs %zu", w->name, bytes.size,
                         (size_t)n * stored);
    if (bytes.data && stored != sn_dtype_size(w->dtype)) bytes.data = widen(c, t, bytes.data, n);
    w->data = bytes.data ? bytes.data : n ? copy_numbers(c, t, w->dtype, n) : "";
    return w->data || onnx_fail(c, "'%s' has not as many elements as its shape needs", w->name);
}

/* The elements of an array that decide what the graph is: integers, and single numbers. */
static const onnx_elem *read_known(onnx_call *c, const sn_weight *w, int64_t n) {
    const size_t size = sn_dtype_size(w->dtype);
    if (n < 0 || n > ONNX_KNOWN_MAX || (n > 1 && sn_dtype_is_float(w->dtype))) return NULL;
    onnx_elem *e = sn_arena_alloc(c->im->arena, sizeof *e * (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t one = 0;
        memcpy(&one, (const char *)w->data + size * (size_t)i, size);
        e[i] = onnx_elem_number(w->dtype, sn_dtype_load(w->dtype, &one, 0));
        if (w->dtype == SN_I64 && one < 0x1p62 && one > -0x1p39) e[i].d = one;
    }
    return e;
}

onnx_value *onnx_file_value(onnx_call *c, const onnx_tensor *t, const char *name) {
    sn_weight *w = sn_arena_alloc(c->im->arena, sizeof *w);
    onnx_value *v = onnx_new_value(c->im, name);
    *w = (sn_weight){.name = name, .rank = t->dims.n};
    if (!onnx_dtype(t->type, &w->dtype))
        onnx_fail(c, "'%s' has the element type %lld, which is not supported", name,
                  (long long)t->type);
    else if (t->dims.n > SN_MAX_RANK || t->dims.n > SN_WEIGHT_RANK)
        onnx_fail(c, "'%s' has more than %d axes", name, SN_MAX_RANK);
    else {
        v->type = w->dtype;
        v->narrow = (onnx_type)t->type;
        v->rank = w->rank;
        for (int i = 0; i < w->rank; i++) v->shape[i] = w->shape[i] = ONNX_AT(t->dims, int64_t, i);
        if (!find_data(c, t, w)) return NULL;
        v->weight = w;
        v->known = read_known(c, w, onnx_count(v));
        return v;
    }
    return NULL;
}

/* ---- values as tensors ---- */

/* A table [.., rows, columns] that has one value where column <= row + *offset and another elsewhere. */
static bool is_causal(const sn_weight *w, int64_t *offset, double value[2]) {
    const size_t size = sn_dtype_size(w->dtype);
    const int r = w->rank;
    if (r < 2 || w->shape[r - 2] < 2 || w->shape[r - 1] < 3) return false;
    for (int i = 0; i < r - 2; i++)
        if (w->shape[i] != 1) return false;
    const int64_t rows = w->shape[r - 2], columns = w->shape[r - 1];
    const char *data = w->data, *low = data, *high = data + size * (size_t)(columns - 1);
    int64_t n = 0, one = 0;
    while (n < columns && !memcmp(data + size * (size_t)n, low, size)) n++;
    if (n == columns || !memcmp(low, high, size)) return false;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++, data += size)
            if (memcmp(data, k < n + i ? low : high, size) != 0) return false;
    for (int i = 0; i < 2; i++) {
        memcpy(&one, i ? high : low, size);
        value[i] = sn_dtype_load(w->dtype, &one, 0);
    }
    *offset = n - 1;
    return true;
}

static sn_tensor make_causal(onnx_call *c, const onnx_value *v, int64_t offset,
                             const double *value) {
    const sn_dim rows = v->shape[v->rank - 2], columns = v->shape[v->rank - 1];
    sn_dim shape[SN_MAX_RANK + 1];
    memcpy(shape, v->shape, sizeof *shape * (size_t)v->rank);
    shape[v->rank] = SN_END;
    sn_tensor q = sn_iota(c->m, SN_I32, 0, rows, columns);
    sn_tensor k = sn_iota(c->m, SN_I32, 1, rows, columns);
    sn_tensor sees = sn_reshape_at(c->at, sn_le(k, sn_add(q, (double)offset)), shape);
    if (v->type == SN_BOOL && value[0] == 1) return sees;
    sn_tensor yes = sn_scalar(c->m, v->type, value[0]), no = sn_scalar(c->m, v->type, value[1]);
    return sn_where(sees, yes, no);
}

/* A parameter; its name is unique among those of the module. */
static sn_tensor make_weight(onnx_call *c, const onnx_value *v) {
    onnx_import *im = c->im;
    sn_dim shape[SN_MAX_RANK + 1];
    memcpy(shape, v->shape, sizeof *shape * (size_t)v->rank);
    shape[v->rank] = SN_END;
    if (im->n_weight == im->cap_weight) {
        const int cap = im->cap_weight ? 2 * im->cap_weight : 64;
        sn_weight *more = realloc(im->weight, sizeof *more * (size_t)cap);
        if (!more) {
            sn_fail(im->err, SN_ERR_MEMORY, "out of memory");
            return sn_module_error_node(c->m);
        }
        im->weight = more;
        im->cap_weight = cap;
    }
    sn_weight *w = &im->weight[im->n_weight];
    *w = *v->weight;
    char name[300];
    snprintf(name, sizeof name, "%s%.200s", *w->name == '@' || !*w->name ? "_" : "", w->name);
    for (char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '_';
    for (int i = 0; i < im->n_weight; i++) {
        if (strcmp(im->weight[i].name, name) != 0) continue;
        if (im->weight[i].data == w->data)
            return sn_param_at(c->at, c->m, im->weight[i].name, w->dtype, shape);
        snprintf(name + strlen(name), sizeof name - strlen(name), "#%d", im->n_weight);
        break;
    }
    w->name = sn_arena_str(im->arena, name);
    im->n_weight++;
    return sn_param_at(c->at, c->m, w->name, w->dtype, shape);
}

/* start, start + 1, … along the only axis that is longer than 1. */
static bool is_range(const onnx_value *v, int64_t n, int *axis) {
    *axis = -1;
    for (int i = 0; i < v->rank; i++)
        if (v->shape[i] == n) *axis = i;
    if (n < 3 || *axis < 0 || v->type == SN_BOOL) return false;
    for (int64_t i = 0; i < n; i++)
        if (v->known[i].d < 0 || v->known[i].d - i != v->known[0].d) return false;
    return true;
}

static sn_tensor make_known(onnx_call *c, const onnx_value *v) {
    const int64_t n = onnx_count(v);
    double number[ONNX_ARRAY_MAX] = {0};
    bool symbolic = false;
    sn_dim shape[SN_MAX_RANK + 1];
    int axis;
    memcpy(shape, v->shape, sizeof *shape * (size_t)v->rank);
    shape[v->rank] = SN_END;
    for (int64_t i = 0; i < n && i < ONNX_ARRAY_MAX; i++) {
        symbolic |= !onnx_elem_value(&v->known[i], &number[i]);
        if (v->weight && v->known[i].poly && fabs(number[i]) >= 0x1p39) return make_weight(c, v);
    }
    if (!symbolic && n < 2) return sn_full_at(c->at, c->m, v->type, number[0], shape);
    if (!symbolic && !sn_dtype_is_float(v->type) && is_range(v, n, &axis))
        return sn_add(sn_iota_at(c->at, c->m, v->type, axis, shape), (double)v->known[0].d);
    if (n > ONNX_ARRAY_MAX || (symbolic && n > ONNX_ARRAY_MAX / 4)) {
        if (v->weight) return make_weight(c, v);
        onnx_fail(c, "'%s' has %lld elements that are computed from shapes, more than %d", v->name,
                  (long long)n, ONNX_ARRAY_MAX);
        return sn_module_error_node(c->m);
    }
    if (!symbolic) return sn_array_at(c->at, c->m, v->type, n, number, shape);
    sn_tensor each[ONNX_ARRAY_MAX / 4 + 1];
    for (int64_t i = 0; i < n; i++)
        each[i] = v->known[i].poly
                      ? sn_dim_tensor(c->m, v->type == SN_BOOL ? SN_I32 : v->type, v->known[i].d)
                      : sn_scalar(c->m, v->type, v->known[i].x);
    each[n] = NULL;
    return sn_reshape_at(c->at, sn_stack_at(c->at, 0, each), shape);
}

sn_tensor onnx_tensor_of(onnx_call *c, onnx_value *v) {
    int64_t offset;
    double value[2];
    if (v->t) return v->t;
    if (v->weight && is_causal(v->weight, &offset, value))
        v->t = make_causal(c, v, offset, value);
    else if (v->known)
        v->t = make_known(c, v);
    else
        v->t = make_weight(c, v);
    return v->t;
}

/* ---- inputs, outputs, attributes ---- */

bool onnx_given(const onnx_call *c, int i) {
    return i < c->n_in && c->in[i];
}

sn_tensor onnx_in_or_null(onnx_call *c, int i) {
    return onnx_given(c, i) ? onnx_tensor_of(c, c->in[i]) : NULL;
}

sn_tensor onnx_in(onnx_call *c, int i) {
    sn_tensor t = onnx_in_or_null(c, i);
    if (t) return t;
    onnx_fail(c, "input %d is missing", i);
    return sn_module_error_node(c->m);
}

bool onnx_set(onnx_call *c, int i, sn_tensor t) {
    const onnx_type narrow = i == 0 && c->n_in && c->in[0] ? c->in[0]->narrow : ONNX_UNDEFINED;
    return onnx_set_narrow(c, i, t, narrow);
}

bool onnx_set_narrow(onnx_call *c, int i, sn_tensor t, onnx_type narrow) {
    if (!t || sn_module_error(c->m)->code || (c->im->err && c->im->err->code)) return false;
    if (i >= ONNX_OUT_MAX) return onnx_fail(c, "more than %d outputs", ONNX_OUT_MAX);
    c->out[i] = onnx_tensor_value(c->im, NULL, onnx_wrap(c, t, narrow));
    if ((int)c->out[i]->type == types[narrow].type) c->out[i]->narrow = narrow;
    return true;
}

bool onnx_set_known(onnx_call *c, int i, sn_dtype type, int rank, const sn_dim *shape,
                    const onnx_elem *e) {
    onnx_value *v = onnx_new_value(c->im, NULL);
    v->type = type;
    v->rank = rank;
    if (rank) memcpy(v->shape, shape, sizeof *shape * (size_t)rank);
    v->known = e;
    c->out[i] = v;
    return !sn_module_error(c->m)->code;
}

bool onnx_set_value(onnx_call *c, int i, onnx_value *v) {
    c->out[i] = v;
    return v != NULL;
}

const onnx_attribute *onnx_attr(const onnx_call *c, const char *name) {
    for (int i = 0; i < c->node->attribute.n; i++) {
        const onnx_attribute *a = &ONNX_AT(c->node->attribute, onnx_attribute, i);
        if (!a->name || strcmp(a->name, name) != 0) continue;
        const onnx_call *outer = c->scope ? c->scope->call : NULL; /* of the function around it */
        return a->refers && *a->refers ? outer ? onnx_attr(outer, a->refers) : NULL : a;
    }
    return NULL;
}

int64_t onnx_int(const onnx_call *c, const char *name, int64_t other) {
    const onnx_attribute *a = onnx_attr(c, name);
    return a ? a->i : other;
}

double onnx_float(const onnx_call *c, const char *name, double other) {
    const onnx_attribute *a = onnx_attr(c, name);
    return a ? a->f : other;
}

const char *onnx_text(const onnx_call *c, const char *name, const char *other) {
    const onnx_attribute *a = onnx_attr(c, name);
    return a && a->text ? a->text : other;
}

int onnx_ints(const onnx_call *c, const char *name, int64_t *out, int max) {
    const onnx_attribute *a = onnx_attr(c, name);
    if (!a) return -1;
    const int n = a->ints.n < max ? a->ints.n : max;
    for (int i = 0; i < n; i++) out[i] = ONNX_AT(a->ints, int64_t, i);
    return n;
}

bool onnx_number(onnx_call *c, const onnx_value *v, double *out) {
    (void)c;
    return v && v->known && onnx_count(v) == 1 && onnx_elem_value(v->known, out);
}

bool onnx_dims(onnx_call *c, int i, int *n, sn_dim *out) {
    const onnx_value *v = onnx_given(c, i) ? c->in[i] : NULL;
    const int64_t count = v ? onnx_count(v) : 0;
    if (!v) return onnx_fail(c, "input %d is missing", i);
    if (!v->known || sn_dtype_is_float(v->type))
        return onnx_fail(
            c,
            "input %d, '%s', which says a shape or index, is computed from data: sizes must "
            "follow from the sizes of the inputs",
            i, v->name ? v->name : "");
    if (count > SN_MAX_RANK) return onnx_fail(c, "more than %d axes", SN_MAX_RANK);
    for (int64_t k = 0; k < count; k++) out[k] = v->known[k].d;
    *n = (int)count;
    return true;
}

bool onnx_one_dim(onnx_call *c, int i, const char *what, sn_dim *out) {
    sn_dim list[SN_MAX_RANK];
    int n;
    if (!onnx_dims(c, i, &n, list)) return false;
    if (n != 1) return onnx_fail(c, "%s is not one number", what);
    *out = *list;
    return true;
}

bool onnx_numbers(onnx_call *c, const char *name, int i, int *n, int64_t *out) {
    *n = name ? onnx_ints(c, name, out, SN_MAX_RANK) : -1;
    if (*n >= 0 || !onnx_given(c, i)) return true;
    if (!onnx_dims(c, i, n, out)) return false;
    for (int k = 0; k < *n; k++)
        if (out[k] <= -((sn_dim)1 << 40))
            return onnx_fail(c, "input %d must not depend on the sizes of the inputs", i);
    return true;
}

bool onnx_axis(onnx_call *c, int64_t axis, int rank, int *out) {
    if (axis < -rank || axis >= rank)
        return onnx_fail(c, "axis %lld of a tensor with %d axes", (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

bool onnx_broadcasts(onnx_call *c, sn_tensor x, sn_tensor y) {
    const int p = sn_rank_of(x), q = sn_rank_of(y);
    for (int i = 1; i <= p && i <= q; i++) {
        const sn_dim a = sn_dim_of(x, -i), b = sn_dim_of(y, -i);
        if (a != b && a != 1 && b != 1 && !onnx_equal(c, a, b) && c->im->again) return false;
    }
    return true; /* or the DSL explains why not */
}
