/* config.c: typed access to a JSON object over cJSON; every problem names key, value and the
 * allowed values. */
#include "runtime/config.h"
#include "runtime/file.h"
#include "runtime/files/json.h"
#include "runtime/problems.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_LIMIT = 16 << 20, KEY_LIMIT = 4096 };

struct sn_config {
    char *name;
    cJSON *root;
    cJSON *was_read; /* an object with the keys that were read and exist */
    sn_problems problems;
};

void sn_config_free(sn_config *c) {
    if (!c) return;
    cJSON_Delete(c->root);
    cJSON_Delete(c->was_read);
    free(c->name);
    free(c);
}

sn_config *sn_config_new(const char *name) {
    sn_config *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->name = strdup(name);
    c->root = cJSON_CreateObject();
    c->was_read = cJSON_CreateObject();
    if (c->name && c->root && c->was_read) return c;
    sn_config_free(c);
    return NULL;
}

sn_config *sn_config_parse(const char *name, const char *text, size_t bytes, sn_error *err) {
    if (bytes > CONFIG_LIMIT) {
        sn_fail(err, SN_ERR_FILE, "%s: %zu bytes is too long for a config (at most %d)", name,
                bytes, CONFIG_LIMIT);
        return NULL;
    }
    if (bytes && !sn_given(text, "sn_config_parse", "the text", err)) return NULL;
    cJSON *root = sn_json_parse(name, text, bytes, err);
    if (!root) return NULL;
    if (cJSON_GetArraySize(root) > KEY_LIMIT) {
        sn_fail(err, SN_ERR_FILE, "%s: more than %d keys", name, KEY_LIMIT);
        cJSON_Delete(root);
        return NULL;
    }
    sn_config *c = sn_config_new(name);
    if (!c) {
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", name);
        cJSON_Delete(root);
        return NULL;
    }
    cJSON_Delete(c->root);
    c->root = root;
    return c;
}

sn_config *sn_config_open(const char *path, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return NULL;
    sn_config *c = sn_config_parse(path, (const char *)m.data, m.size, err);
    sn_file_unmap(&m);
    return c;
}

const char *sn_config_name(const sn_config *c) {
    return c->name;
}

/* The value of a key; NULL when absent or null. */
static const cJSON *find_value(const sn_config *c, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(c->root, key);
    if (v && !cJSON_GetObjectItemCaseSensitive(c->was_read, key))
        cJSON_AddNullToObject(c->was_read, key);
    return v && !cJSON_IsNull(v) ? v : NULL;
}

const char *sn_config_unread(const sn_config *c, int i) {
    for (const cJSON *v = c->root->child; v; v = v->next)
        if (!cJSON_GetObjectItemCaseSensitive(c->was_read, v->string) && i-- == 0) return v->string;
    return NULL;
}

bool sn_config_has(const sn_config *c, const char *key) {
    return find_value(c, key) != NULL;
}

bool sn_config_is_object(const sn_config *c, const char *key) {
    return cJSON_IsObject(find_value(c, key));
}

/* Records: "key" is VALUE; allowed: WHAT. */
static void complain(sn_config *c, const char *key, const cJSON *v, const char *allowed) {
    char shown[80], *json = v ? cJSON_PrintUnformatted(v) : NULL;
    if (!v)
        sn_problem(&c->problems, "\"%s\" is missing; allowed: %s", key, allowed);
    else
        sn_problem(&c->problems, "\"%s\" is %s; allowed: %s", key,
                   json ? sn_printable(shown, sizeof shown, json) : "?", allowed);
    cJSON_free(json);
}

static bool whole_number(const cJSON *v, int64_t *out) {
    if (!cJSON_IsNumber(v) || !(fabs(v->valuedouble) <= 0x1p53) ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (int64_t)v->valuedouble;
    return true;
}

static int64_t get_int(sn_config *c, const char *key, const cJSON *v, int64_t lo, int64_t hi) {
    int64_t x;
    if (v && whole_number(v, &x) && x >= lo && x <= hi) return x;
    char allowed[80];
    snprintf(allowed, sizeof allowed, "an integer from %" PRId64 " to %" PRId64, lo, hi);
    complain(c, key, v, allowed);
    return lo;
}

int64_t sn_config_int(sn_config *c, const char *key, int64_t lo, int64_t hi) {
    return get_int(c, key, find_value(c, key), lo, hi);
}

int64_t sn_config_int_or(sn_config *c, const char *key, int64_t dflt, int64_t lo, int64_t hi) {
    const cJSON *v = find_value(c, key);
    return v ? get_int(c, key, v, lo, hi) : dflt;
}

static double get_float(sn_config *c, const char *key, const cJSON *v, double lo, double hi) {
    if (v && cJSON_IsNumber(v) && v->valuedouble >= lo && v->valuedouble <= hi)
        return v->valuedouble;
    char allowed[80];
    snprintf(allowed, sizeof allowed, "a number from %g to %g", lo, hi);
    complain(c, key, v, allowed);
    return lo;
}

double sn_config_float(sn_config *c, const char *key, double lo, double hi) {
    return get_float(c, key, find_value(c, key), lo, hi);
}

double sn_config_float_or(sn_config *c, const char *key, double dflt, double lo, double hi) {
    const cJSON *v = find_value(c, key);
    return v ? get_float(c, key, v, lo, hi) : dflt;
}

bool sn_config_bool(sn_config *c, const char *key) {
    const cJSON *v = find_value(c, key);
    if (v && cJSON_IsBool(v)) return cJSON_IsTrue(v);
    complain(c, key, v, "true or false");
    return false;
}

bool sn_config_bool_or(sn_config *c, const char *key, bool dflt) {
    return find_value(c, key) ? sn_config_bool(c, key) : dflt;
}

const char *sn_config_string(sn_config *c, const char *key) {
    const cJSON *v = find_value(c, key);
    if (v && cJSON_IsString(v)) return v->valuestring;
    complain(c, key, v, "a string");
    return "";
}

const char *sn_config_string_or(sn_config *c, const char *key, const char *dflt) {
    return find_value(c, key) ? sn_config_string(c, key) : dflt;
}

int sn_config_choice(sn_config *c, const char *key, const char *const *names) {
    const cJSON *v = find_value(c, key);
    char allowed[240] = "one of";
    size_t n = strlen(allowed);
    for (int i = 0; names[i]; i++) {
        if (v && cJSON_IsString(v) && !strcmp(v->valuestring, names[i])) return i;
        if (n < sizeof allowed)
            n += (size_t)snprintf(allowed + n, sizeof allowed - n, "%s \"%s\"", i ? "," : "",
                                  names[i]);
    }
    complain(c, key, v, allowed);
    return 0;
}

int sn_config_choice_or(sn_config *c, const char *key, const char *const *names, int dflt) {
    return find_value(c, key) ? sn_config_choice(c, key, names) : dflt;
}

size_t sn_config_int_list(sn_config *c, const char *key, int64_t *out, size_t max, int64_t lo,
                          int64_t hi) {
    const cJSON *v = find_value(c, key), *item;
    if (!v) return 0;
    size_t n = 0;
    bool list = cJSON_IsArray(v), good = list;
    if (!list && max && (good = whole_number(v, out) && *out >= lo && *out <= hi)) return 1;
    cJSON_ArrayForEach(item, (list ? v : NULL)) {
        int64_t x;
        good = n < max && whole_number(item, &x) && x >= lo && x <= hi;
        if (!good) break;
        out[n++] = x;
    }
    if (good) return n;
    char allowed[120];
    snprintf(allowed, sizeof allowed, "at most %zu integers from %" PRId64 " to %" PRId64, max, lo,
             hi);
    complain(c, key, v, allowed);
    return 0;
}

size_t sn_config_float_list(sn_config *c, const char *key, double *out, size_t max, double lo,
                            double hi) {
    const cJSON *v = find_value(c, key), *item;
    size_t n = 0;
    bool good = cJSON_IsArray(v);
    cJSON_ArrayForEach(item, (good ? v : NULL)) {
        good =
            n < max && cJSON_IsNumber(item) && item->valuedouble >= lo && item->valuedouble <= hi;
        if (!good) break;
        out[n++] = item->valuedouble;
    }
    if (good || !v) return n;
    char allowed[120];
    snprintf(allowed, sizeof allowed, "at most %zu numbers from %g to %g", max, lo, hi);
    complain(c, key, v, allowed);
    return 0;
}

static int index_of(const cJSON *v, const char *const *names) {
    for (int i = 0; names[i] && cJSON_IsString(v); i++)
        if (!strcmp(v->valuestring, names[i])) return i;
    return -1;
}

size_t sn_config_choice_list(sn_config *c, const char *key, const char *const *names, int *out,
                             size_t max) {
    const cJSON *v = find_value(c, key), *item;
    size_t n = 0;
    bool good = cJSON_IsArray(v);
    if (!good && max && index_of(v, names) >= 0) {
        *out = index_of(v, names);
        return 1;
    }
    cJSON_ArrayForEach(item, (good ? v : NULL)) {
        good = n < max && index_of(item, names) >= 0;
        if (!good) break;
        out[n++] = index_of(item, names);
    }
    if (good || !v) return n;
    char allowed[240];
    size_t at = (size_t)snprintf(allowed, sizeof allowed, "a list of at most %zu of", max);
    for (int i = 0; names[i] && at < sizeof allowed; i++)
        at += (size_t)snprintf(allowed + at, sizeof allowed - at, "%s \"%s\"", i ? "," : "",
                               names[i]);
    complain(c, key, v, allowed);
    return 0;
}

bool sn_config_equals(const sn_config *c, const char *key, const char *json) {
    cJSON *want = cJSON_Parse(json);
    bool same = cJSON_Compare(cJSON_GetObjectItemCaseSensitive(c->root, key), want, true);
    cJSON_Delete(want);
    return same;
}

/* A copy of object v, or an empty one for NULL. */
static sn_config *copy_of(const char *name, const cJSON *v) {
    sn_config *out = sn_config_new(name);
    cJSON *copy = out && v ? cJSON_Duplicate(v, true) : NULL;
    if (out && v && !copy) {
        sn_config_free(out);
        return NULL;
    }
    if (copy) {
        cJSON_Delete(out->root);
        out->root = copy;
    }
    return out;
}

sn_config *sn_config_section(sn_config *c, const char *key) {
    const cJSON *v = find_value(c, key);
    if (v && !cJSON_IsObject(v)) {
        complain(c, key, v, "an object {...}");
        return NULL;
    }
    char name[256];
    snprintf(name, sizeof name, "%s: \"%s\"", c->name, key);
    return copy_of(name, v);
}

sn_config *sn_config_item(sn_config *c, const char *key, size_t i, size_t max) {
    const cJSON *v = find_value(c, key), *item = NULL;
    size_t n = v && cJSON_IsArray(v) ? (size_t)cJSON_GetArraySize(v) : 0;
    if (v && i < n) item = cJSON_GetArrayItem(v, (int)i);
    if (v && (!cJSON_IsArray(v) || n > max || (item && !cJSON_IsObject(item)))) {
        char allowed[64];
        snprintf(allowed, sizeof allowed, "an array of at most %zu objects {...}", max);
        complain(c, key, v, allowed);
        return NULL;
    }
    char name[256];
    snprintf(name, sizeof name, "%s: \"%s\"[%zu]", c->name, key, i);
    return item ? copy_of(name, item) : NULL;
}

void sn_config_only(sn_config *c, const char *const *names) {
    char shown[80];
    for (const cJSON *v = c->root->child; v; v = v->next) {
        int i = 0;
        while (names[i] && strcmp(names[i], v->string) != 0) i++;
        if (names[i]) continue;
        sn_problem(&c->problems, "unknown key \"%s\"",
                   sn_printable(shown, sizeof shown, v->string));
    }
}

void sn_config_problem(sn_config *c, const char *fmt, ...) {
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    sn_problem(&c->problems, "%s", line);
}

void sn_config_divides(sn_config *c, const char *key, int64_t part, const char *whole_key,
                       int64_t whole) {
    if (whole % part)
        sn_config_problem(c, "\"%s\" = %lld does not divide \"%s\" = %lld", key, (long long)part,
                          whole_key, (long long)whole);
}

bool sn_config_check(const sn_config *c, sn_error *err) {
    return sn_problems_check(&c->problems, c->name, SN_ERR_FILE, err);
}

static void set_value(sn_config *c, const char *key, cJSON *v) {
    bool ok = v && (cJSON_GetObjectItemCaseSensitive(c->root, key)
                        ? cJSON_ReplaceItemInObjectCaseSensitive(c->root, key, v)
                        : cJSON_AddItemToObject(c->root, key, v));
    if (ok) return;
    cJSON_Delete(v);
    sn_problem(&c->problems, "out of memory for \"%s\"", key);
}

void sn_config_set_int(sn_config *c, const char *key, int64_t value) {
    set_value(c, key, cJSON_CreateNumber((double)value));
}

void sn_config_set_float(sn_config *c, const char *key, double value) {
    set_value(c, key, cJSON_CreateNumber(value));
}

void sn_config_set_bool(sn_config *c, const char *key, bool value) {
    set_value(c, key, cJSON_CreateBool(value));
}

void sn_config_set_string(sn_config *c, const char *key, const char *value) {
    set_value(c, key, cJSON_CreateString(value));
}

void sn_config_set_section(sn_config *c, const char *key, const sn_config *section) {
    set_value(c, key, cJSON_Duplicate(section->root, true));
}

void sn_config_merge(sn_config *c, const sn_config *from) {
    const cJSON *v;
    cJSON_ArrayForEach(v, from->root) set_value(c, v->string, cJSON_Duplicate(v, true));
}

/* cJSON prints 15 digits; raw text gets the shortest representation that reads back exactly. */
static bool spell_number(cJSON *v) {
    char text[32];
    for (int digits = 15; digits <= 17; digits += 2) {
        sn_number_print(text, sizeof text, digits, v->valuedouble);
        if (sn_number_read(text, NULL) == v->valuedouble) break;
    }
    v->valuestring = cJSON_malloc(strlen(text) + 1);
    if (!v->valuestring) return false;
    strcpy(v->valuestring, text);
    v->type = cJSON_Raw;
    return true;
}

char *sn_config_print(const sn_config *c, size_t *bytes) {
    cJSON *copy = cJSON_Duplicate(c->root, true), *v;
    bool ok = copy != NULL;
    cJSON_ArrayForEach(v, copy) ok = ok && (!cJSON_IsNumber(v) || spell_number(v));
    char *json = ok ? cJSON_Print(copy) : NULL;
    cJSON_Delete(copy);
    if (!json) return NULL;
    *bytes = strlen(json) + 1;
    json[*bytes - 1] = '\n'; /* replaces the terminator */
    return json;
}

bool sn_config_save(sn_config *c, const char *path, sn_error *err) {
    if (!sn_config_check(c, err)) return false;
    size_t bytes = 0;
    char *json = sn_config_print(c, &bytes);
    if (!json) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    bool ok = sn_file_save(path, json, bytes, err);
    cJSON_free(json);
    return ok;
}
