/* CTranslate2 models with int8 and int16 weights: the shipped model, quantised here as CTranslate2
 * does it, comes in with values within half a step. */
#include "model/import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>

#include "tests/support/scratch.h"

#define SHIPPED SN_SOURCE_DIR "/examples/models/aren-transliteration/"

/* A file that is written from front to back, and the shipped one that is read. */
typedef struct copying {
    const unsigned char *in;
    unsigned char *out;
    size_t at, size;
} copying;

static const unsigned char *copy(copying *c, size_t n) {
    memcpy(c->out + c->size, c->in + c->at, n);
    c->at += n;
    c->size += n;
    return c->in + c->at - n;
}

static void write_bytes(copying *c, const void *data, size_t n) {
    memcpy(c->out + c->size, data, n);
    c->size += n;
}

static uint32_t number(const unsigned char *p, int bytes) {
    uint32_t v = 0;
    memcpy(&v, p, (size_t)bytes);
    return v;
}

static void write_scales(copying *c, const char *name, uint32_t n, const float *scale) {
    char full[200];
    uint16_t length = (uint16_t)(snprintf(full, sizeof full, "%s_scale", name) + 1);
    write_bytes(c, &length, 2);
    write_bytes(c, full, length);
    write_bytes(c, n > 1 ? "\1" : "\0", 1); /* one number has no dimension */
    if (n > 1) write_bytes(c, &n, 4);
    write_bytes(c, "\4", 1);
    write_bytes(c, &n, 4);
    write_bytes(c, scale, 4 * n);
}

/* Copies a matrix as integers with its scales: one per row for int8, one in all for int16. */
static void quantise(copying *c, const char *name, const float *w, uint32_t rows, uint32_t cols,
                     int item_size) {
    static float scale[4096];
    uint32_t items = rows * cols, scales = item_size == 1 ? rows : 1;
    write_bytes(c, &item_size, 1);
    write_bytes(c, &items, 4);
    for (uint32_t s = 0; s < scales; s++) {
        float most = 1e-9f;
        for (uint32_t i = 0; i < items / scales; i++)
            most = fmaxf(most, fabsf(w[s * (items / scales) + i]));
        scale[s] = (item_size == 1 ? 127 : 32767) / most;
    }
    for (uint32_t i = 0; i < items; i++) {
        int q = (int)lrintf(w[i] * scale[i / (items / scales)]);
        write_bytes(c, &q, (size_t)item_size);
    }
    write_scales(c, name, scales, scale);
}

/* The shipped model with its matrices in items of this size. */
static void write_quantised(const char *path, int item_size) {
    sn_mapping m;
    sn_error e = {0};
    if (!sn_file_map(SHIPPED "model.bin", &m, &e)) fail_msg("%s", e.message);
    copying c = {.in = m.data, .out = malloc(m.size * 2)};
    copy(&c, 4);                      /* version */
    copy(&c, number(copy(&c, 2), 2)); /* spec */
    copy(&c, 4);                      /* revision */
    uint32_t count = number(copy(&c, 4), 4);
    size_t total = c.size - 4;
    uint32_t written = count;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = (const char *)copy(&c, number(copy(&c, 2), 2));
        uint32_t rank = *copy(&c, 1), dim[8] = {1, 1};
        for (uint32_t a = 0; a < rank; a++) dim[a] = number(copy(&c, 4), 4);
        uint32_t items = number(c.in + c.at + 1, 4);
        if (rank == 2) {
            float *w = malloc(4 * (size_t)items); /* as the file has them: at any address */
            memcpy(w, c.in + c.at + 5, 4 * (size_t)items);
            quantise(&c, name, w, dim[0], dim[1], item_size);
            free(w);
            written++;
            c.at += 5 + 4 * (size_t)items;
        } else {
            copy(&c, 5 + 4 * (size_t)items);
        }
    }
    memcpy(c.out + total, &written, 4);
    assert_int_equal(c.at, m.size);
    assert_true(scratch_write(path, c.out, c.size));
    sn_file_unmap(&m);
    free(c.out);
}

static sn_model_dir *import_to(const char *input, const char *output) {
    import_request r = {.input = input, .output = output};
    sn_error e = {0};
    if (!import_model(&r, NULL, &e)) fail_msg("%s", e.message);
    sn_model_dir *d = sn_model_dir_open(output, &e);
    if (!d) fail_msg("%s", e.message);
    return d;
}

/* The largest error of a tensor over its largest value. */
static float error_of(const sn_weight *a, const sn_weight *b) {
    const float *x = a->data, *y = b->data;
    float most = 0, error = 0;
    assert_int_equal(a->bytes, b->bytes);
    for (int64_t i = 0; i < sn_weight_elements(a); i++) {
        most = fmaxf(most, fabsf(x[i]));
        float d = fabsf(x[i] - y[i]);
        if (!(d <= error)) error = d; /* NaN stays */
    }
    return most ? error / most : error;
}

static void quantised_weights_become_f32(void **state) {
    (void)state;
    static const char *const files[] = {"source_vocabulary.txt", "target_vocabulary.txt"};
    sn_error e = {0};
    for (int i = 0; i < 2; i++) {
        char from[300];
        snprintf(from, sizeof from, SHIPPED "%s", files[i]);
        if (!import_copy(from, scratch_dir, files[i], &e)) fail_msg("%s", e.message);
    }
    sn_model_dir *f32 = import_to(SHIPPED "model.bin", scratch_path("f32"));
    for (int item_size = 1; item_size <= 2; item_size++) {
        char path[100];
        snprintf(path, sizeof path, "%s/model.bin", scratch_dir);
        write_quantised(path, item_size);
        sn_model_dir *d = import_to(path, scratch_path("narrow"));
        assert_int_equal(sn_weights_count(d->weights), sn_weights_count(f32->weights));
        for (size_t i = 0; i < sn_weights_count(f32->weights); i++) {
            const sn_weight *t = sn_weights_at(f32->weights, i);
            const sn_weight *q = sn_weights_find(d->weights, t->name);
            assert_non_null(q);
            float limit = t->rank < 2 ? 0 : item_size == 1 ? 0.501f / 127 : 0.52f * 4 / 32767;
            if (error_of(t, q) > limit) fail_msg("%s: %g", t->name, (double)error_of(t, q));
        }
        sn_model_dir_close(d);
        scratch_remove(scratch_path("narrow"));
    }
    sn_model_dir_close(f32);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quantised_weights_become_f32)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
