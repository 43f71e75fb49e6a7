/* family_folder.c: model folders made from a reference file. */
#include "tests/e2e/family_folder.h"
#include "runtime/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/model_case.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 32 bits for element i of the tensor. */
static uint32_t hash(const char *name, size_t i) {
    uint32_t h = 2166136261u;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    uint32_t x = h + (uint32_t)i * 2654435761u;
    for (int k = 0; k < 2; k++) x = (x ^ x >> 16) * 0x45d9f3bu;
    return x ^ x >> 16;
}

float family_value(const char *name, int rank, size_t i) {
    const uint32_t x = hash(name, i);
    float u = (float)(x >> 26) - 32;
    return rank > 1 ? u / 64 : u / 128 + (float)sn_ends_with(name, "weight");
}

/* x is a multiple of 1/128 of at most 1.25: nothing is rounded. */
static uint16_t narrow(float x, sn_dtype t) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (t == SN_BF16) return (uint16_t)(bits >> 16);
    if (x == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 |
                      (bits >> 13 & 0x3ff));
}

/* Blocks of MXFP4 and their scales. */
static bool is_bytes(const char *name) {
    return sn_ends_with(name, "_blocks") || sn_ends_with(name, "_scales");
}

static void *make_bytes(sn_weight *w) {
    const bool blocks = sn_ends_with(w->name, "_blocks");
    w->dtype = SN_U8, w->bytes = (size_t)sn_weight_elements(w);
    unsigned char *data = malloc(w->bytes);
    assert_non_null(data);
    for (size_t i = 0; i < w->bytes; i++) {
        const uint32_t x = hash(w->name, i);
        data[i] = (unsigned char)(blocks ? x >> 24 : 123 + (x >> 30));
    }
    return data;
}

static void *make_data(sn_weight *w) {
    if (is_bytes(w->name)) return make_bytes(w);
    size_t n = (size_t)sn_weight_elements(w);
    w->bytes = n * (w->dtype == SN_F32 ? 4 : 2);
    void *data = malloc(w->bytes);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        float x = family_value(w->name, w->rank, i);
        if (w->dtype == SN_F32)
            ((float *)data)[i] = x;
        else
            ((uint16_t *)data)[i] = narrow(x, w->dtype);
    }
    return data;
}

/* Values of the blocks of `from`: two in a byte, the low half first, times 2^(scale - 127). */
static float *unpack(const sn_weight *from, const sn_weight *scales) {
    static const float fp4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float *value = malloc(2 * sizeof *value * from->bytes);
    assert_non_null(value);
    for (size_t i = 0; i < 2 * from->bytes; i++) {
        int q = ((const unsigned char *)from->data)[i / 2] >> i % 2 * 4 & 15;
        int e = ((const unsigned char *)scales->data)[i / 32] - 127;
        value[i] = ldexpf(q & 8 ? -fp4[q & 7] : fp4[q], e);
    }
    return value;
}

void family_read(const char *folder, const char *name, sn_dtype t, family_folder *out) {
    char path[512];
    snprintf(path, sizeof path, SN_SOURCE_DIR "/tests/data/%s/%s.json", folder, name);
    char *text = file_text(path);
    *out = (family_folder){.json = cJSON_Parse(text)};
    free(text);
    assert_non_null(out->json);
    const cJSON *item, *size;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(out->json, "tensors")) {
        assert_true(out->n_tensor < FAMILY_TENSORS);
        sn_weight *w = &out->tensor[out->n_tensor++];
        *w = (sn_weight){.name = item->string, .dtype = t};
        cJSON_ArrayForEach(size, item) w->shape[w->rank++] = size->valueint;
        w->data = make_data(w);
        if (sn_ends_with(w->name, "_scales")) out->value[out->n_tensor - 2] = unpack(w - 1, w);
        if (is_bytes(w->name)) continue;
        size_t n = (size_t)sn_weight_elements(w);
        float *value = out->value[out->n_tensor - 1] = malloc(sizeof *value * n);
        assert_non_null(value);
        for (size_t i = 0; i < n; i++) value[i] = family_value(w->name, w->rank, i);
    }
}

void family_free(family_folder *f) {
    for (size_t i = 0; i < f->n_tensor; i++) {
        free((void *)(uintptr_t)f->tensor[i].data);
        free(f->value[i]);
    }
    cJSON_Delete(f->json);
}

void family_set_key(family_folder *f, const char *key, const char *json) {
    cJSON *config = cJSON_GetObjectItem(f->json, "config"), *value = cJSON_Parse(json);
    assert_non_null(value);
    cJSON_DeleteItemFromObjectCaseSensitive(config, key);
    cJSON_AddItemToObject(config, key, value);
}

void family_write_file(const char *dir, const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Every other tensor in a file of its own kind: two shards and their index. */
static void write_shards(const char *dir, const family_folder *f) {
    static const char *const names[] = {"model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    sn_error err = {0};
    cJSON *index = cJSON_CreateObject(), *map = cJSON_AddObjectToObject(index, "weight_map");
    for (int k = 0; k < 2; k++) {
        sn_weight part[FAMILY_TENSORS];
        size_t n = 0;
        char path[600];
        for (size_t i = (size_t)k; i < f->n_tensor; i += 2) {
            part[n++] = f->tensor[i];
            cJSON_AddStringToObject(map, f->tensor[i].name, names[k]);
        }
        snprintf(path, sizeof path, "%s/%s", dir, names[k]);
        need(sn_weights_save(path, part, n, NULL, 0, &err), &err);
    }
    char *text = cJSON_Print(index);
    family_write_file(dir, "model.safetensors.index.json", text);
    cJSON_free(text);
    cJSON_Delete(index);
}

void family_write(const char *dir, const family_folder *f, bool shards) {
    sn_error err = {0};
    char path[600];
    char *config = cJSON_Print(cJSON_GetObjectItem(f->json, "config"));
    family_write_file(dir, "config.json", config);
    cJSON_free(config);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (shards)
        write_shards(dir, f);
    else
        need(sn_weights_save(path, f->tensor, f->n_tensor, NULL, 0, &err), &err);
}

void family_compare(const family_folder *f, const char *output, int64_t at, int64_t n,
                    const float *got, const char *where) {
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(f->json, output), (int)at);
    double most = 0, off = 0;
    for (int64_t i = 0; i < n; i++, item = item->next) {
        assert_non_null(item);
        most = fmax(most, fabs(item->valuedouble));
        double d = fabs(got[i] - item->valuedouble);
        if (!(d <= off)) off = d; /* NaN stays */
    }
    if (!(off <= 1e-4 * most))
        fail_msg("%s: %s from %lld on are %.3g away, the largest is %.3g", where, output,
                 (long long)at, off, most);
}
