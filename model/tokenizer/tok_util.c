/* tok_util.c: growing buffers, spaces, and JSON helpers for tokenizer files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/steps.h"
#include "model/tokenizer/utf8.h"

bool sn_grow(void *data, size_t *capacity, size_t need, size_t size, sn_error *err) {
    if (need <= *capacity) return true;
    size_t n = *capacity + *capacity / 2;
    if (n < need) n = need;
    if (n < 16) n = 16;
    void *p; /* data is the address of a pointer of any type */
    memcpy(&p, data, sizeof p);
    p = n <= PTRDIFF_MAX / size ? realloc(p, n * size) : NULL;
    if (!p) return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory for %zu entries", n);
    memcpy(data, &p, sizeof p);
    *capacity = n;
    return true;
}

bool sn_ids_push(sn_ids *ids, int32_t id, sn_error *err) {
    if (!sn_grow(&ids->data, &ids->capacity, ids->count + 1, sizeof *ids->data, err)) return false;
    ids->data[ids->count++] = id;
    return true;
}

bool sn_bytes_append(sn_bytes *bytes, const char *data, size_t size, sn_error *err) {
    if (size >= PTRDIFF_MAX - bytes->size)
        return sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory for %zu bytes", size);
    if (!sn_grow(&bytes->data, &bytes->capacity, bytes->size + size + 1, 1, err)) return false;
    if (size) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    bytes->data[bytes->size] = 0;
    return true;
}

void sn_ids_free(sn_ids *ids) {
    free(ids->data);
    *ids = (sn_ids){0};
}

void sn_bytes_free(sn_bytes *bytes) {
    free(bytes->data);
    *bytes = (sn_bytes){0};
}

bool sn_tok_write(const char *dir, const char *name, const sn_bytes *data, sn_error *err) {
    char *path = sn_path_join(dir, name);
    bool ok = path ? sn_file_save(path, data->data, data->size, err)
                   : sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
    free(path);
    return ok;
}

cJSON *sn_json_read(const char *path, sn_error *err) {
    sn_mapping file;
    if (!sn_file_map(path, &file, err)) return NULL;
    cJSON *root = sn_json_parse(path, (const char *)file.data, file.size, err);
    sn_file_unmap(&file);
    return root;
}

bool sn_json_int(const cJSON *item, int32_t lo, int32_t hi, int32_t *out) {
    if (!cJSON_IsNumber(item)) return false;
    double v = item->valuedouble;
    if (!(v >= lo && v <= hi) || v != floor(v)) return false;
    *out = (int32_t)v;
    return true;
}

bool sn_json_quote(sn_bytes *out, const char *text, size_t size, sn_error *err) {
    bool ok = sn_bytes_append(out, "\"", 1, err);
    for (size_t i = 0; ok && i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        char code[8];
        if (c == '"' || c == '\\') {
            char pair[2] = {'\\', (char)c};
            ok = sn_bytes_append(out, pair, 2, err);
        } else if (c < 0x20) {
            snprintf(code, sizeof code, "\\u%04x", c);
            ok = sn_bytes_append(out, code, 6, err);
        } else {
            ok = sn_bytes_append(out, text + i, 1, err);
        }
    }
    return ok && sn_bytes_append(out, "\"", 1, err);
}

size_t sn_space_run(const char *text, size_t size) {
    size_t at = 0;
    uint32_t cp;
    for (size_t n; at < size; at += n) {
        n = sn_utf8_next(text + at, size - at, &cp);
        if (!sn_is_space(cp)) break;
    }
    return at;
}

size_t sn_space_tail(const char *text, size_t size) {
    size_t end = size;
    uint32_t cp;
    while (end) {
        size_t at = sn_utf8_back(text, end);
        sn_utf8_next(text + at, end - at, &cp);
        if (!sn_is_space(cp)) break;
        end = at;
    }
    return size - end;
}

bool sn_swap_spaces(const char *text, size_t size, sn_bytes *out, sn_error *err) {
    bool ok = sn_bytes_append(out, "", 0, err);
    for (size_t at = 0, end; ok && at < size; at = end) {
        bool mark = size - at >= 3 && !memcmp(text + at, SN_METASPACE, 3);
        end = at + (mark ? 3 : 1);
        if (mark) {
            ok = sn_bytes_append(out, " ", 1, err);
        } else if (text[at] == ' ') {
            ok = sn_bytes_append(out, SN_METASPACE, 3, err);
        } else {
            while (end < size && text[end] != ' ' && text[end] != SN_METASPACE[0]) end++;
            ok = sn_bytes_append(out, text + at, end - at, err);
        }
    }
    return ok;
}

bool sn_json_flag(const cJSON *object, const char *key, bool otherwise) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}
