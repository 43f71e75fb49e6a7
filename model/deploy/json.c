/* json.c: a JSON parser (RFC 8259) with the part of cJSON's interface that the tokenizer uses;
 * programs link it instead of libcjson. Children are a list; strings are UTF-8; numbers are
 * doubles. Accepts what cJSON accepts, except its extensions. */
#include "runtime/base.h"

#include <cjson/cJSON.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 1000 };

typedef struct reader {
    const char *at, *end;
    int depth;
} reader;

void cJSON_free(void *p) {
    free(p);
}

void cJSON_Delete(cJSON *item) {
    while (item) {
        cJSON *next = item->next;
        cJSON_Delete(item->child);
        free(item->valuestring);
        free(item->string);
        free(item);
        item = next;
    }
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool take_word(reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n)) return false;
    r->at += n;
    return true;
}

/* ---- strings ---- */

static int hex4(reader *r) {
    int v = 0;
    if (r->end - r->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static char *put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(lead[more] | c >> 6 * more);
    while (more--) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return to;
}

/* After "\u": a character, or a surrogate pair. */
static char *unescape(reader *r, char *to) {
    int high = hex4(r);
    if (high < 0 || (high >= 0xdc00 && high < 0xe000)) return NULL;
    if (high < 0xd800 || high >= 0xe000) return high ? put_utf8(to, (uint32_t)high) : NULL;
    if (!take_word(r, "\\u")) return NULL;
    int low = hex4(r);
    if (low < 0xdc00 || low >= 0xe000) return NULL;
    return put_utf8(to, 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
}

static char *read_string(reader *r) {
    if (!take(r, '"')) return NULL;
    const char *end = r->at;
    while (end < r->end && *end != '"') end += *end == '\\' ? 2 : 1;
    if (end >= r->end) return NULL;
    char *s = malloc((size_t)(end - r->at) + 1), *to = s;
    while (to && r->at < end) {
        char c = *r->at++;
        if (c != '\\') {
            *to++ = c;
            continue;
        }
        static const char plain[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
        c = *r->at++;
        const char *p = c ? strchr(plain, c) : NULL;
        if (p)
            *to++ = means[p - plain];
        else
            to = c == 'u' ? unescape(r, to) : NULL;
    }
    if (!to) {
        free(s);
        return NULL;
    }
    *to = 0;
    r->at = end + 1;
    return s;
}

/* ---- values ---- */

static bool read_value(reader *r, cJSON *out);

static bool read_number(reader *r, cJSON *out) {
    char digits[64];
    size_t n = 0;
    while (r->at < r->end && n < sizeof digits - 1 && strchr("+-0123456789.eE", *r->at) && *r->at)
        digits[n++] = *r->at++;
    digits[n] = 0;
    char *end;
    out->type = cJSON_Number;
    out->valuedouble = sn_number_read(digits, &end);
    out->valueint = out->valuedouble >= INT32_MAX   ? INT32_MAX
                    : out->valuedouble <= INT32_MIN ? INT32_MIN
                                                    : (int)out->valuedouble;
    return n && !*end;
}

/* The members of an object or array, up to `close`. */
static bool read_members(reader *r, cJSON *out, char close, bool named) {
    cJSON *last = NULL;
    if (r->depth++ == DEPTH) return false;
    if (!take(r, close)) {
        do {
            cJSON *item = calloc(1, sizeof *item);
            if (!item) return false;
            item->prev = last;
            *(last ? &last->next : &out->child) = item;
            last = item;
            if (named && (!(item->string = read_string(r)) || !take(r, ':'))) return false;
            if (!read_value(r, item)) return false;
        } while (take(r, ','));
        if (!take(r, close)) return false;
    }
    if (out->child) out->child->prev = last; /* as in cJSON */
    r->depth--;
    return true;
}

static bool read_value(reader *r, cJSON *out) {
    skip_space(r);
    if (r->at == r->end) return false;
    switch (*r->at) {
    case '{':
        out->type = cJSON_Object;
        return take(r, '{') && read_members(r, out, '}', true);
    case '[':
        out->type = cJSON_Array;
        return take(r, '[') && read_members(r, out, ']', false);
    case '"':
        out->type = cJSON_String;
        return (out->valuestring = read_string(r)) != NULL;
    case 't':
        out->type = cJSON_True;
        return take_word(r, "true");
    case 'f':
        out->type = cJSON_False;
        return take_word(r, "false");
    case 'n':
        out->type = cJSON_NULL;
        return take_word(r, "null");
    default:
        return read_number(r, out);
    }
}

cJSON *cJSON_ParseWithLengthOpts(const char *text, size_t size, const char **end,
                                 cJSON_bool terminated) {
    reader r = {text, text + size, 0};
    cJSON *root = calloc(1, sizeof *root);
    (void)terminated;
    bool ok = root && read_value(&r, root);
    skip_space(&r);
    if (end) *end = r.at;
    if (ok) return root;
    if (root) cJSON_Delete(root);
    return NULL;
}

/* ---- lookup ---- */

static bool is(const cJSON *item, int type) {
    return item && (item->type & 0xff) == type;
}

cJSON_bool cJSON_IsArray(const cJSON *item) {
    return is(item, cJSON_Array);
}
cJSON_bool cJSON_IsObject(const cJSON *item) {
    return is(item, cJSON_Object);
}
cJSON_bool cJSON_IsString(const cJSON *item) {
    return is(item, cJSON_String);
}
cJSON_bool cJSON_IsNumber(const cJSON *item) {
    return is(item, cJSON_Number);
}
cJSON_bool cJSON_IsTrue(const cJSON *item) {
    return is(item, cJSON_True);
}
cJSON_bool cJSON_IsFalse(const cJSON *item) {
    return cJSON_IsBool(item) && !cJSON_IsTrue(item);
}
cJSON_bool cJSON_IsBool(const cJSON *item) {
    return is(item, cJSON_True) || is(item, cJSON_False);
}
cJSON_bool cJSON_IsNull(const cJSON *item) {
    return is(item, cJSON_NULL);
}

char *cJSON_GetStringValue(const cJSON *item) {
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

int cJSON_GetArraySize(const cJSON *array) {
    int n = 0;
    for (const cJSON *i = array ? array->child : NULL; i; i = i->next) n++;
    return n;
}

cJSON *cJSON_GetArrayItem(const cJSON *array, int index) {
    cJSON *i = array ? array->child : NULL;
    while (i && index-- > 0) i = i->next;
    return i;
}

cJSON *cJSON_GetObjectItemCaseSensitive(const cJSON *object, const char *name) {
    cJSON *i = object ? object->child : NULL;
    while (i && (!i->string || strcmp(i->string, name))) i = i->next;
    return i;
}
