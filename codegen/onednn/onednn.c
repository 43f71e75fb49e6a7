/* onednn.c: the only file that knows oneDNN. Each function describes its problem as a few numbers,
 * finds or makes the primitive for them, points its memories at the caller's data, runs it. */
#include "codegen/onednn/onednn.h"

int64_t sn_dnnl_conv_out(int64_t size, int64_t kernel, int64_t stride, int64_t dilate,
                         int64_t pad) {
    return (size + pad - (kernel - 1) * dilate - 1) / stride + 1;
}

#include "codegen/onednn/dnnl_compat.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 7, MAX_NUMBERS = 32, MAX_ENTRIES = 512, MAX_RANK = 5 };

typedef enum entry_kind {
    MATMUL = 1,
    ROUND,
    SOFTMAX,
    LAYER_NORM,
    CONVOLUTION,
    SOFTMAX_GRAD,
    LAYER_NORM_GRAD,
    CONVOLUTION_GRAD_X,
    CONVOLUTION_GRAD_W
} entry_kind;

/* A primitive with its arguments; data pointers are set at each run. */
typedef struct entry {
    int64_t key[MAX_NUMBERS]; /* kind, then its numbers, then zeros */
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    int n_args;
    dnnl_exec_arg_t args[MAX_ARGS];
    int64_t weight_bytes; /* matmul: of packed weights */
} entry;

/* A constant right factor in one of oneDNN's layouts. */
typedef struct packed {
    const float *from;
    int64_t k, n, row, col; /* of the plain layout */
    compat_md md;
    void *data; /* NULL: the plain layout is oneDNN's */
} packed;

struct sn_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    entry *entries; /* [MAX_ENTRIES] */
    int n, oldest;
    packed *packed; /* [n_packed] */
    int n_packed;
    struct {
        void *data;
        size_t size;
    } rounded[2]; /* the factors of a product, in bf16 */
};

static bool fail_with(sn_error *err, const char *what, dnnl_status_t status) {
    return sn_fail(err, SN_ERR_TARGET, "oneDNN: %s failed with status %d", what, (int)status);
}

sn_dnnl *sn_dnnl_create(sn_error *err) {
    sn_dnnl *d = calloc(1, sizeof *d);
    if (d) d->entries = calloc(MAX_ENTRIES, sizeof *d->entries);
    if (!d || !d->entries) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        sn_dnnl_destroy(d);
        return NULL;
    }
    dnnl_status_t status = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        fail_with(err, "creating an engine", status);
        sn_dnnl_destroy(d);
        return NULL;
    }
    return d;
}

static void clear_entry(entry *e) {
    for (int i = 0; i < e->n_args; i++)
        if (e->args[i].memory) dnnl_memory_destroy(e->args[i].memory);
    if (e->primitive) dnnl_primitive_destroy(e->primitive);
    if (e->pd) dnnl_primitive_desc_destroy(e->pd);
    *e = (entry){0};
}

void sn_dnnl_destroy(sn_dnnl *d) {
    if (!d) return;
    for (int i = 0; i < d->n; i++) clear_entry(&d->entries[i]);
    for (int i = 0; i < d->n_packed; i++) {
        compat_md_free(d->packed[i].md);
        free(d->packed[i].data);
    }
    free(d->packed);
    for (int i = 0; i < 2; i++) free(d->rounded[i].data);
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d->entries);
    free(d);
}

const char *sn_dnnl_version(void) {
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
    return TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
#undef TEXT
#undef TEXT_
}

/* --- entries ---------------------------------------------------------------------------------- */

/* The entry of this kind and numbers; *is_new: it was just made and is empty but for its key. */
static entry *find_entry(sn_dnnl *d, entry_kind kind, const void *numbers, size_t bytes,
                         bool *is_new) {
    int64_t key[MAX_NUMBERS] = {kind};
    memcpy(key + 1, numbers, bytes);
    for (int i = 0; i < d->n; i++)
        if (memcmp(d->entries[i].key, key, sizeof key) == 0) {
            *is_new = false;
            return &d->entries[i];
        }
    entry *e = &d->entries[d->n < MAX_ENTRIES ? d->n++ : d->oldest++ % MAX_ENTRIES];
    clear_entry(e);
    memcpy(e->key, key, sizeof key);
    *is_new = true;
    return e;
}

/* An entry that could not be made must not be found again. */
static entry *drop_entry(entry *e) {
    clear_entry(e);
    e->key[0] = -1;
    return NULL;
}

static dnnl_status_t add_arg(sn_dnnl *d, entry *e, int arg, compat_const_md md) {
    dnnl_exec_arg_t *a = &e->args[e->n_args];
    a->arg = arg;
    dnnl_status_t status = dnnl_memory_create(&a->memory, md, d->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success) e->n_args++;
    return status;
}

/* pointers: one an argument, in the order of add_arg; oneDNN's interface knows no const. */
static bool run_entry(sn_dnnl *d, entry *e, const void *const *pointers, sn_error *err) {
    for (int i = 0; i < e->n_args; i++) {
        dnnl_status_t status =
            dnnl_memory_set_data_handle(e->args[i].memory, (void *)(uintptr_t)pointers[i]);
        if (status != dnnl_success) return fail_with(err, "setting an argument", status);
    }
    dnnl_status_t status = dnnl_primitive_execute(e->primitive, d->stream, e->n_args, e->args);
    if (status == dnnl_success) status = dnnl_stream_wait(d->stream);
    return status == dnnl_success || fail_with(err, "running a primitive", status);
}

/* --- matrix product --------------------------------------------------------------------------- */

static dnnl_data_type_t factor_type(const sn_matmul *s) {
    return s->factors == SN_I8 ? dnnl_s8 : s->factors == SN_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* One operand: batch sizes (1 where it repeats), then rows x cols. */
static compat_md operand_md(const sn_matmul *s, dnnl_data_type_t type, const int64_t *batch,
                            int64_t rows, int64_t cols, int64_t row, int64_t col, bool any) {
    dnnl_dims_t dims = {0}, strides = {0};
    int n = (int)s->n_batch;
    for (int i = 0; i < n; i++) {
        dims[i] = batch[i] ? s->batch[i] : 1;
        strides[i] = batch[i] ? batch[i] : rows * cols;
    }
    dims[n] = rows;
    dims[n + 1] = cols;
    strides[n] = row;
    strides[n + 1] = col;
    return any ? compat_md_tag(type, n + 2, dims, dnnl_format_tag_any)
               : compat_md_strides(type, n + 2, dims, strides);
}

static compat_md bias_md(const sn_matmul *s) {
    if (!s->bias) return NULL;
    dnnl_dims_t dims = {0}, strides = {0};
    int n = (int)s->n_batch;
    for (int i = 0; i <= n; i++) {
        dims[i] = 1;
        strides[i] = s->n;
    }
    dims[n + 1] = s->n;
    strides[n + 1] = 1;
    return compat_md_strides(dnnl_f32, n + 2, dims, strides);
}

static dnnl_status_t make_matmul(sn_dnnl *d, entry *e, const sn_matmul *s, compat_md a, compat_md b,
                                 compat_md bias, compat_md c) {
    if (!a || !b || !c || (s->bias && !bias)) return dnnl_invalid_arguments;
    dnnl_status_t status = compat_matmul(&e->pd, d->engine, a, b, bias, c, NULL);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_create(&e->primitive, e->pd);
    if (status != dnnl_success) return status;
    compat_const_md weights = dnnl_primitive_desc_query_md(e->pd, dnnl_query_weights_md, 0);
    e->weight_bytes = (int64_t)dnnl_memory_desc_get_size(weights);
    status = add_arg(d, e, DNNL_ARG_SRC, a);
    if (status == dnnl_success) status = add_arg(d, e, DNNL_ARG_WEIGHTS, weights);
    if (status == dnnl_success) status = add_arg(d, e, DNNL_ARG_DST, c);
    if (status == dnnl_success && bias) status = add_arg(d, e, DNNL_ARG_BIAS, bias);
    return status;
}

static entry *find_matmul(sn_dnnl *d, const sn_matmul *s, sn_error *err) {
    bool is_new;
    entry *e = find_entry(d, MATMUL, s, sizeof *s, &is_new);
    if (!is_new) return e;
    compat_md a = operand_md(s, factor_type(s), s->a_batch, s->m, s->k, s->a_row, s->a_col, false);
    compat_md b =
        operand_md(s, factor_type(s), s->b_batch, s->k, s->n, s->b_row, s->b_col, s->packed != 0);
    compat_md c = operand_md(s, dnnl_f32, s->c_batch, s->m, s->n, s->c_row, s->c_col, false);
    compat_md bias = bias_md(s);
    dnnl_status_t status = make_matmul(d, e, s, a, b, bias, c);
    compat_md_free(a);
    compat_md_free(b);
    compat_md_free(c);
    compat_md_free(bias);
    if (status == dnnl_success) return e;
    fail_with(err, "creating a matrix product", status);
    return drop_entry(e);
}

/* Products without elements or without terms, which oneDNN refuses: true if that was all. */
static bool run_empty(const sn_matmul *s, const float *bias, float *c) {
    int64_t batches = 1;
    for (int i = 0; i < s->n_batch; i++) batches *= s->batch[i];
    if (batches && s->m && s->n && s->k) return false;
    for (int64_t g = 0; g < batches; g++) {
        int64_t at = 0, rest = g;
        for (int i = (int)s->n_batch - 1; i >= 0; rest /= s->batch[i--])
            at += rest % s->batch[i] * s->c_batch[i];
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++)
                c[at + i * s->c_row + j * s->c_col] = s->bias ? bias[j] : 0;
    }
    return true;
}

bool sn_dnnl_run_matmul(sn_dnnl *d, const sn_matmul *s, const void *a, const void *b,
                        const float *bias, float *c, sn_error *err) {
    if (run_empty(s, bias, c)) return true;
    entry *e = find_matmul(d, s, err);
    return e && run_entry(d, e, (const void *[]){a, b, c, bias}, err);
}

const char *sn_dnnl_code(sn_dnnl *d, const sn_matmul *s) {
    sn_error none = {0};
    const char *name = NULL;
    entry *e = find_matmul(d, s, &none);
    if (e) dnnl_primitive_desc_query(e->pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "";
}

int64_t sn_dnnl_packed_bytes(sn_dnnl *d, const sn_matmul *s, sn_error *err) {
    entry *e = find_matmul(d, s, err);
    return e ? e->weight_bytes : -1;
}

static dnnl_status_t make_reorder(sn_dnnl *d, entry *e, compat_const_md from, compat_const_md to) {
    if (!from || !to) return dnnl_out_of_memory;
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&e->pd, from, d->engine, to, d->engine, NULL);
    if (status == dnnl_success) status = dnnl_primitive_create(&e->primitive, e->pd);
    if (status == dnnl_success) status = add_arg(d, e, DNNL_ARG_FROM, from);
    if (status == dnnl_success) status = add_arg(d, e, DNNL_ARG_TO, to);
    return status;
}

/* b has numbers of this type. */
static bool pack_from(sn_dnnl *d, const sn_matmul *s, dnnl_data_type_t type, const void *b,
                      void *packed, sn_error *err) {
    entry *product = find_matmul(d, s, err);
    if (!product) return false;
    compat_const_md to = dnnl_primitive_desc_query_md(product->pd, dnnl_query_weights_md, 0);
    compat_md from = operand_md(s, type, s->b_batch, s->k, s->n, s->b_row, s->b_col, false);
    entry e = {0};
    dnnl_status_t status = make_reorder(d, &e, from, to);
    bool ok = status == dnnl_success ? run_entry(d, &e, (const void *[]){b, packed}, err)
                                     : fail_with(err, "packing weights", status);
    compat_md_free(from);
    clear_entry(&e);
    return ok;
}

bool sn_dnnl_pack(sn_dnnl *d, const sn_matmul *s, const void *b, void *packed, sn_error *err) {
    return pack_from(d, s, factor_type(s), b, packed, err);
}

/* ---- factors of f32 of a product of bf16 ---- */

bool sn_dnnl_multiplies_bf16(void) {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

/* A factor as a matrix in a batch. */
typedef struct factor {
    int64_t rows, cols;
    int64_t *row, *col, *batch; /* strides of s */
} factor;

static factor factor_of(sn_matmul *s, int which) {
    return which ? (factor){s->k, s->n, &s->b_row, &s->b_col, s->b_batch}
                 : (factor){s->m, s->k, &s->a_row, &s->a_col, s->a_batch};
}

/* s with dense strides of this factor; *size: its numbers. An axis that it repeats keeps 0. */
static sn_matmul make_dense(const sn_matmul *s, int which, size_t *size) {
    sn_matmul dense = *s;
    factor f = factor_of(&dense, which);
    *size = (size_t)f.rows * (size_t)f.cols;
    *f.row = f.cols;
    *f.col = 1;
    for (int i = (int)s->n_batch; i-- > 0;)
        if (f.batch[i]) {
            f.batch[i] = (int64_t)*size;
            *size *= (size_t)s->batch[i];
        }
    return dense;
}

static entry *find_round(sn_dnnl *d, sn_matmul *s, sn_matmul *dense, int which, sn_error *err) {
    factor f = factor_of(s, which), to = factor_of(dense, which);
    int64_t key[2 + 2 * SN_MATMUL_BATCH + 4] = {s->n_batch, f.rows, f.cols, *f.row, *f.col};
    for (int i = 0; i < s->n_batch; i++) {
        key[5 + 2 * i] = s->batch[i];
        key[6 + 2 * i] = f.batch[i];
    }
    bool is_new;
    entry *e = find_entry(d, ROUND, key, sizeof key, &is_new);
    if (!is_new) return e;
    compat_md x = operand_md(s, dnnl_f32, f.batch, f.rows, f.cols, *f.row, *f.col, false);
    compat_md y = operand_md(dense, dnnl_bf16, to.batch, f.rows, f.cols, *to.row, *to.col, false);
    dnnl_status_t status = make_reorder(d, e, x, y);
    compat_md_free(x);
    compat_md_free(y);
    if (status == dnnl_success) return e;
    fail_with(err, "rounding a factor to bf16", status);
    return drop_entry(e);
}

bool sn_dnnl_round_factor(sn_dnnl *d, sn_matmul *s, int which, const void **x, sn_error *err) {
    size_t size;
    sn_matmul dense = make_dense(s, which, &size);
    if (size > d->rounded[which].size) {
        free(d->rounded[which].data);
        size_t bytes = (size * 2 + 63) / 64 * 64;
        void *data = d->rounded[which].data = aligned_alloc(64, bytes);
        d->rounded[which].size = data ? bytes / 2 : 0;
        if (!data)
            return sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for a factor in bf16",
                           bytes);
    }
    void *to = d->rounded[which].data;
    entry *e = size ? find_round(d, s, &dense, which, err) : NULL;
    if (size && (!e || !run_entry(d, e, (const void *[]){*x, to}, err))) return false;
    *s = dense;
    *x = to;
    return true;
}

static const packed *find_packed(const sn_dnnl *d, const sn_matmul *s, const float *b,
                                 compat_const_md md) {
    for (int i = 0; i < d->n_packed; i++) {
        const packed *p = &d->packed[i];
        if (p->from == b && p->k == s->k && p->n == s->n && p->row == s->b_row &&
            p->col == s->b_col && dnnl_memory_desc_equal(p->md, md))
            return p;
    }
    return NULL;
}

static const packed *add_packed(sn_dnnl *d, const sn_matmul *s, const float *b, compat_const_md md,
                                sn_error *err) {
    packed p = {b, s->k, s->n, s->b_row, s->b_col, compat_md_clone(md), NULL};
    packed *grown = realloc(d->packed, sizeof *grown * (size_t)(d->n_packed + 1));
    if (grown) d->packed = grown;
    compat_md plain = operand_md(s, dnnl_f32, s->b_batch, s->k, s->n, s->b_row, s->b_col, false);
    bool ok = (grown && p.md && plain) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && !dnnl_memory_desc_equal(plain, md)) {
        size_t bytes = (dnnl_memory_desc_get_size(md) + 63) / 64 * 64;
        p.data = aligned_alloc(64, bytes);
        ok = p.data ? pack_from(d, s, dnnl_f32, b, p.data, err)
                    : sn_fail(err, SN_ERR_MEMORY, "out of memory: %zu bytes for packed weights",
                              bytes);
    }
    compat_md_free(plain);
    if (ok) {
        d->packed[d->n_packed] = p;
        return &d->packed[d->n_packed++];
    }
    compat_md_free(p.md);
    free(p.data);
    return NULL;
}

bool sn_dnnl_run_constant(sn_dnnl *d, const sn_matmul *s, const void *a, const float *b,
                          const float *bias, float *c, sn_error *err) {
    if (run_empty(s, bias, c)) return true;
    entry *e = find_matmul(d, s, err);
    if (!e) return false;
    compat_const_md md = dnnl_primitive_desc_query_md(e->pd, dnnl_query_weights_md, 0);
    const packed *p = find_packed(d, s, b, md);
    if (!p && !(p = add_packed(d, s, b, md, err))) return false;
    return run_entry(d, e, (const void *[]){a, p->data ? p->data : b, c, bias}, err);
}

/* --- softmax, layer norm ---------------------------------------------------------------------- */

/* Makes the primitive of a description that was made well, and its arguments in this order; ends
 * with 0. */
static dnnl_status_t finish_entry(sn_dnnl *d, entry *e, dnnl_status_t status, const int *arg,
                                  const compat_md *md) {
    if (status == dnnl_success) status = dnnl_primitive_create(&e->primitive, e->pd);
    for (; status == dnnl_success && *arg; arg++, md++) status = add_arg(d, e, *arg, *md);
    return status;
}

static dnnl_status_t make_rows(sn_dnnl *d, entry *e, compat_md x, compat_md v, compat_md stat,
                               float eps, unsigned flags) {
    bool gain = flags & dnnl_use_scale;
    int vector[3] = {gain ? DNNL_ARG_SCALE : DNNL_ARG_SHIFT,
                     gain && flags & dnnl_use_shift ? DNNL_ARG_SHIFT : 0};
    if (!flags) vector[0] = 0;
    switch ((entry_kind)e->key[0]) {
    case SOFTMAX:
        return finish_entry(d, e, compat_softmax(&e->pd, d->engine, x, 1),
                            (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST, 0}, (compat_md[]){x, x});
    case SOFTMAX_GRAD:
        return finish_entry(d, e, compat_softmax_backward(&e->pd, d->engine, x, 1),
                            (const int[]){DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, 0},
                            (compat_md[]){x, x, x});
    case LAYER_NORM:
        return finish_entry(d, e, compat_layer_norm(&e->pd, d->engine, x, eps, flags),
                            (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST, vector[0], vector[1], 0},
                            (compat_md[]){x, x, v, v});
    default:
        return finish_entry(
            d, e, compat_layer_norm_backward(&e->pd, d->engine, x, stat, eps, flags),
            (const int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_MEAN,
                          DNNL_ARG_VARIANCE, vector[0], DNNL_ARG_DIFF_SCALE, 0},
            (compat_md[]){x, x, x, stat, stat, v, v});
    }
}

/* flags: of a layer norm, which of gain and bias there are */
static entry *find_rows(sn_dnnl *d, entry_kind kind, int64_t rows, int64_t n, float eps,
                        unsigned flags, sn_error *err) {
    bool is_new;
    int64_t numbers[4] = {rows, n, 0, flags};
    memcpy(&numbers[2], &eps, sizeof eps);
    entry *e = find_entry(d, kind, numbers, sizeof numbers, &is_new);
    if (!is_new) return e;
    compat_md x = compat_md_tag(dnnl_f32, 2, (dnnl_dims_t){rows, n}, dnnl_ab);
    compat_md v = compat_md_tag(dnnl_f32, 1, (dnnl_dims_t){n}, dnnl_a);
    compat_md stat = compat_md_tag(dnnl_f32, 1, (dnnl_dims_t){rows}, dnnl_a);
    dnnl_status_t status =
        !x || !v || !stat ? dnnl_out_of_memory : make_rows(d, e, x, v, stat, eps, flags);
    compat_md_free(x);
    compat_md_free(v);
    compat_md_free(stat);
    if (status == dnnl_success) return e;
    bool soft = kind == SOFTMAX || kind == SOFTMAX_GRAD;
    fail_with(err, soft ? "creating a softmax" : "creating a layer norm", status);
    return drop_entry(e);
}

bool sn_dnnl_run_softmax(sn_dnnl *d, int64_t rows, int64_t n, const float *x, float *y,
                         sn_error *err) {
    entry *e = find_rows(d, SOFTMAX, rows, n, 0, 0, err);
    return e && run_entry(d, e, (const void *[]){x, y}, err);
}

bool sn_dnnl_run_layer_norm(sn_dnnl *d, int64_t rows, int64_t n, float eps, const float *x,
                            const float *gain, const float *bias, float *y, sn_error *err) {
    unsigned flags = (gain ? dnnl_use_scale : 0) | (bias ? dnnl_use_shift : 0);
    entry *e = find_rows(d, LAYER_NORM, rows, n, eps, flags, err);
    return e && run_entry(d, e, (const void *[]){x, y, gain ? gain : bias, bias}, err);
}

bool sn_dnnl_run_softmax_grad(sn_dnnl *d, int64_t rows, int64_t n, const float *y, const float *g,
                              float *dx, sn_error *err) {
    entry *e = find_rows(d, SOFTMAX_GRAD, rows, n, 0, 0, err);
    return e && run_entry(d, e, (const void *[]){y, g, dx}, err);
}

/* The primitive wants what its forward half may leave behind. */
static void row_statistics(int64_t n, const float *x, float *mean, float *variance) {
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    for (int64_t i = 0; i < n; i++)
        square += ((double)x[i] - sum / (double)n) * ((double)x[i] - sum / (double)n);
    *mean = (float)(sum / (double)n);
    *variance = (float)(square / (double)n);
}

bool sn_dnnl_run_layer_norm_grad(sn_dnnl *d, int64_t rows, int64_t n, float eps, const float *x,
                                 const float *g, const float *gain, float *dx, sn_error *err) {
    entry *e = find_rows(d, LAYER_NORM_GRAD, rows, n, eps, gain ? dnnl_use_scale : 0, err);
    if (!e) return false;
    size_t room = 2 * (size_t)rows + (size_t)n;
    float *mean = malloc(room * sizeof *mean), *variance = mean + rows;
    if (!mean) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int64_t r = 0; r < rows; r++) row_statistics(n, x + r * n, mean + r, variance + r);
    float *of_gain = variance + rows; /* our kernels sum that up where it is wanted */
    bool ok = run_entry(d, e, (const void *[]){x, g, dx, mean, variance, gain, of_gain}, err);
    free(mean);
    return ok;
}

/* --- convolution ------------------------------------------------------------------------------ */

static dnnl_status_t make_conv(sn_dnnl *d, entry *e, const sn_dnnl_conv *s, compat_md x,
                               compat_md w, compat_md bias, compat_md y) {
    if (!x || !w || !y || (s->bias && !bias)) return dnnl_out_of_memory;
    dnnl_dims_t step = {s->stride_h, s->stride_w}, dilate = {s->dilate_h - 1, s->dilate_w - 1};
    dnnl_dims_t before = {s->pad_top, s->pad_left}, after = {s->pad_bottom, s->pad_right};
    if (e->key[0] == CONVOLUTION)
        return finish_entry(
            d, e, compat_convolution(&e->pd, d->engine, x, w, bias, y, step, dilate, before, after),
            (const int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, bias ? DNNL_ARG_BIAS : 0,
                          0},
            (compat_md[]){x, w, y, bias});
    bool of_weights = e->key[0] == CONVOLUTION_GRAD_W;
    dnnl_status_t status = compat_convolution_backward(&e->pd, d->engine, of_weights, x, w, y, step,
                                                       dilate, before, after);
    return of_weights ? finish_entry(d, e, status,
                                     (const int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS,
                                                   DNNL_ARG_DIFF_DST, 0},
                                     (compat_md[]){x, w, y})
                      : finish_entry(d, e, status,
                                     (const int[]){DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS,
                                                   DNNL_ARG_DIFF_DST, 0},
                                     (compat_md[]){x, w, y});
}

static entry *find_conv(sn_dnnl *d, entry_kind kind, const sn_dnnl_conv *s, sn_error *err) {
    bool is_new;
    entry *e = find_entry(d, kind, s, sizeof *s, &is_new);
    if (!is_new) return e;
    int64_t out_h = sn_dnnl_conv_out(s->height, s->kernel_h, s->stride_h, s->dilate_h,
                                     s->pad_top + s->pad_bottom);
    int64_t out_w = sn_dnnl_conv_out(s->width, s->kernel_w, s->stride_w, s->dilate_w,
                                     s->pad_left + s->pad_right);
    dnnl_dims_t xd = {s->batch, s->in, s->height, s->width};
    bool grouped = s->groups > 1;
    dnnl_dims_t wd = {s->out, s->in, s->kernel_h, s->kernel_w};
    dnnl_dims_t gd = {s->groups, grouped ? s->out / s->groups : 0, grouped ? s->in / s->groups : 0,
                      s->kernel_h, s->kernel_w};
    dnnl_dims_t yd = {s->batch, s->out, out_h, out_w}, bd = {s->out};
    compat_md xm = compat_md_tag(dnnl_f32, 4, xd, dnnl_nchw),
              wm = grouped ? compat_md_tag(dnnl_f32, 5, gd, dnnl_goihw)
                           : compat_md_tag(dnnl_f32, 4, wd, dnnl_oihw);
    compat_md ym = compat_md_tag(dnnl_f32, 4, yd, dnnl_nchw);
    compat_md bm = s->bias ? compat_md_tag(dnnl_f32, 1, bd, dnnl_a) : NULL;
    dnnl_status_t status = make_conv(d, e, s, xm, wm, bm, ym);
    compat_md_free(xm);
    compat_md_free(wm);
    compat_md_free(ym);
    compat_md_free(bm);
    if (status == dnnl_success) return e;
    fail_with(err, "creating a convolution", status);
    return drop_entry(e);
}

bool sn_dnnl_run_conv(sn_dnnl *d, const sn_dnnl_conv *s, const float *x, const float *w,
                      const float *bias, float *y, sn_error *err) {
    entry *e = find_conv(d, CONVOLUTION, s, err);
    return e && run_entry(d, e, (const void *[]){x, w, y, bias}, err);
}

bool sn_dnnl_run_conv_grad_x(sn_dnnl *d, const sn_dnnl_conv *s, const float *w, const float *g,
                             float *dx, sn_error *err) {
    entry *e = find_conv(d, CONVOLUTION_GRAD_X, s, err);
    return e && run_entry(d, e, (const void *[]){dx, w, g}, err);
}

bool sn_dnnl_run_conv_grad_w(sn_dnnl *d, const sn_dnnl_conv *s, const float *x, const float *g,
                             float *dw, sn_error *err) {
    entry *e = find_conv(d, CONVOLUTION_GRAD_W, s, err);
    return e && run_entry(d, e, (const void *[]){x, dw, g}, err);
}
