/* npy.c: reads and writes the .npy header (a Python dictionary in a fixed form) and its data. */
#include "runtime/npy.h"
#include "runtime/file.h"
#include "runtime/problems.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr;
    sn_dtype dtype;
} descrs[] = {{"<f4", SN_F32}, {"<f8", SN_F64}, {"<f2", SN_F16}, {"<i4", SN_I32},
              {"<i8", SN_I64}, {"|i1", SN_I8},  {"|u1", SN_U8},  {"|b1", SN_BOOL}};

/* A position in the header text; readers return false on anything unknown. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n')) c->at++;
}

static bool take(cursor *c, const char *word) {
    skip_space(c);
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
    c->at += n;
    return true;
}

static bool take_size(cursor *c, int64_t *out) {
    skip_space(c);
    const char *first = c->at;
    int64_t n = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *c->at - '0', &n))
            return false;
    *out = n;
    return c->at > first;
}

/* 'text', without escapes. */
static bool take_string(cursor *c, char *out, size_t size) {
    if (!take(c, "'")) return false;
    size_t n = 0;
    for (; c->at < c->end && *c->at != '\''; c->at++) {
        if (n + 1 >= size) return false;
        out[n++] = *c->at;
    }
    out[n] = 0;
    return take(c, "'");
}

/* (), (3,) or (2, 3). */
static bool take_shape(cursor *c, sn_npy *a) {
    if (!take(c, "(")) return false;
    a->rank = 0;
    while (!take(c, ")")) {
        if (a->rank == SN_NPY_RANK || !take_size(c, &a->shape[a->rank])) return false;
        a->rank++;
        if (!take(c, ",")) return take(c, ")");
    }
    return true;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } in any order. */
static bool take_header(cursor *c, sn_npy *a, char *descr, size_t descr_size, bool *fortran) {
    bool got_descr = false, got_order = false, got_shape = false;
    if (!take(c, "{")) return false;
    while (!take(c, "}")) {
        char key[24];
        if (!take_string(c, key, sizeof key) || !take(c, ":")) return false;
        if (!strcmp(key, "descr") && !got_descr)
            got_descr = take_string(c, descr, descr_size);
        else if (!strcmp(key, "fortran_order") && !got_order)
            got_order = (*fortran = take(c, "True")) || take(c, "False");
        else if (!strcmp(key, "shape") && !got_shape)
            got_shape = take_shape(c, a);
        else
            return false;
        if (!take(c, ",")) {
            if (!take(c, "}")) return false;
            break;
        }
    }
    skip_space(c);
    return got_descr && got_order && got_shape && c->at == c->end;
}

static bool find_dtype(const char *descr, sn_dtype *out) {
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++)
        if (!strcmp(descr, descrs[i].descr)) {
            *out = descrs[i].dtype;
            return true;
        }
    return false;
}

/* Computes elements and bytes from the shape; false on overflow. */
static bool find_size(sn_npy *a) {
    int64_t n = 1, bytes;
    for (int i = 0; i < a->rank; i++)
        if (__builtin_mul_overflow(n, a->shape[i], &n)) return false;
    if (__builtin_mul_overflow(n, (int64_t)sn_dtype_size(a->dtype), &bytes)) return false;
    a->count = n;
    a->bytes = (size_t)bytes;
    return true;
}

bool sn_npy_parse(const char *name, const void *data, size_t bytes, sn_npy *out, sn_error *err) {
    const unsigned char *p = data;
    *out = (sn_npy){0};
    if (bytes < 10 || memcmp(p, "\x93NUMPY", 6))
        return sn_fail(err, SN_ERR_FILE, "%s: not a .npy file", name);
    if (p[6] < 1 || p[6] > 3)
        return sn_fail(err, SN_ERR_FILE, "%s: .npy version %d is not supported", name, p[6]);
    size_t start = p[6] == 1 ? 10 : 12;
    size_t length = 0;
    for (size_t i = start; i > 8 && bytes >= start; i--) length = length << 8 | p[i - 1];
    if (bytes < start || length > bytes - start)
        return sn_fail(err, SN_ERR_FILE, "%s: truncated header", name);
    cursor c = {(const char *)p + start, (const char *)p + start + length};
    sn_npy a = {0};
    char descr[16], shown[24];
    bool fortran = false;
    if (!take_header(&c, &a, descr, sizeof descr, &fortran))
        return sn_fail(err, SN_ERR_FILE, "%s: malformed .npy header", name);
    if (!find_dtype(descr, &a.dtype))
        return sn_fail(err, SN_ERR_FILE, "%s: element type '%s' is not supported", name,
                       sn_printable(shown, sizeof shown, descr));
    if (fortran && a.rank > 1)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: in Fortran order; save numpy.ascontiguousarray(x) instead", name);
    size_t have = bytes - start - length;
    if (!find_size(&a) || a.bytes != have)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: the header does not match the %zu bytes of data: truncated?", name,
                       have);
    a.data = aligned_alloc(64, (a.bytes + 64) / 64 * 64);
    if (!a.data) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", name);
    memcpy(a.data, p + start + length, a.bytes);
    *out = a;
    return true;
}

bool sn_npy_open(const char *path, sn_npy *out, sn_error *err) {
    sn_mapping m;
    *out = (sn_npy){0};
    if (!sn_file_map(path, &m, err)) return false;
    bool ok = sn_npy_parse(path, m.data, m.size, out, err);
    sn_file_unmap(&m);
    return ok;
}

void sn_npy_free(sn_npy *a) {
    free(a->data);
    *a = (sn_npy){0};
}

size_t sn_npy_header(sn_dtype t, int rank, const int64_t *shape, char out[SN_NPY_HEADER]) {
    enum { PREFIX = 10, ALIGN = 64 }; /* data starts at a multiple of 64 bytes */
    const char *descr = "|V1";
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++)
        if (descrs[i].dtype == t) descr = descrs[i].descr;
    char *text = out + PREFIX;
    int room = SN_NPY_HEADER - PREFIX - ALIGN;
    int n =
        snprintf(text, (size_t)room, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < rank; i++)
        n += snprintf(text + n, (size_t)(room - n), "%lld,", (long long)shape[i]);
    n += snprintf(text + n, (size_t)(room - n), "), }");
    int header = (PREFIX + n + 1 + ALIGN - 1) / ALIGN * ALIGN - PREFIX;
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)(header & 255), out[9] = (char)(header >> 8);
    memset(text + n, ' ', (size_t)(header - n - 1));
    text[header - 1] = '\n';
    return (size_t)(PREFIX + header);
}

bool sn_npy_save(const char *path, sn_dtype t, int rank, const int64_t *shape, const void *data,
                 sn_error *err) {
    char head[SN_NPY_HEADER];
    size_t header = sn_npy_header(t, rank, shape, head), bytes = sn_dtype_size(t);
    for (int i = 0; i < rank; i++) bytes *= (size_t)shape[i];
    sn_file *f = sn_file_output(path, err);
    if (!f) return false;
    if (sn_file_write(f, head, header, err) && sn_file_write(f, data, bytes, err))
        return sn_file_commit(f, err);
    sn_file_discard(f);
    return false;
}

bool sn_npy_save_f32(const char *path, int rank, const int64_t *shape, const float *data,
                     sn_error *err) {
    return sn_npy_save(path, SN_F32, rank, shape, data, err);
}
