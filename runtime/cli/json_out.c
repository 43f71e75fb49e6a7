/* json_out.c: JSON lines. */
#include "runtime/cli/json_out.h"

#include <math.h>
#include <string.h>

/* The length of the UTF-8 character at s, 1 to 4; 0: not one. */
static size_t character(const unsigned char *s, size_t n) {
    size_t size = s[0] < 0x80       ? 1
                  : s[0] >> 5 == 6  ? 2
                  : s[0] >> 4 == 14 ? 3
                  : s[0] >> 3 == 30 ? 4
                                    : 0;
    if (!size || size > n) return 0;
    for (size_t i = 1; i < size; i++)
        if (s[i] >> 6 != 2) return 0;
    if (size == 2 && s[0] < 0xC2) return 0;
    if (size == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))) return 0;
    if (size == 4 &&
        ((s[0] == 0xF0 && s[1] < 0x90) || s[0] > 0xF4 || (s[0] == 0xF4 && s[1] > 0x8F)))
        return 0;
    return size;
}

static void put_string(FILE *f, const char *text, size_t n) {
    static const char names[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', f);
    for (size_t i = 0; i < n;) {
        size_t size = character(s + i, n - i);
        const char *escape = s[i] ? strchr(names, s[i]) : NULL;
        if (!size)
            fputs("\xEF\xBF\xBD", f);
        else if (escape)
            fprintf(f, "\\%c", letters[escape - names]);
        else if (s[i] < 0x20 || s[i] == 0x7F)
            fprintf(f, "\\u%04x", s[i]);
        else
            fwrite(s + i, 1, size, f);
        i += size ? size : 1;
    }
    fputc('"', f);
}

static void begin_value(json_out *j, const char *key) {
    if (!j->first) fputs(", ", j->f);
    j->first = false;
    if (!key) return;
    put_string(j->f, key, strlen(key));
    fputs(": ", j->f);
}

static void open_with(json_out *j, char opens, char closes) {
    fputc(opens, j->f);
    if (j->depth < (int)sizeof j->closes - 1) j->closes[j->depth] = closes;
    j->depth++;
    j->first = true;
}

json_out sn_json_begin(FILE *f) {
    json_out j = {.f = f};
    open_with(&j, '{', '}');
    return j;
}

void sn_json_object(json_out *j, const char *key) {
    begin_value(j, key);
    open_with(j, '{', '}');
}

void sn_json_list(json_out *j, const char *key) {
    begin_value(j, key);
    open_with(j, '[', ']');
}

void sn_json_close(json_out *j) {
    fputc(j->closes[--j->depth], j->f);
    j->first = false;
}

void sn_json_end(json_out *j) {
    while (j->depth > 0) sn_json_close(j);
    fputc('\n', j->f);
    fflush(j->f);
}

void sn_json_bytes(json_out *j, const char *key, const char *s, size_t n) {
    begin_value(j, key);
    put_string(j->f, s, n);
}

void sn_json_text(json_out *j, const char *key, const char *s) {
    begin_value(j, key);
    if (s)
        put_string(j->f, s, strlen(s));
    else
        fputs("null", j->f);
}

void sn_json_integer(json_out *j, const char *key, int64_t v) {
    begin_value(j, key);
    fprintf(j->f, "%lld", (long long)v);
}

void sn_json_number(json_out *j, const char *key, double v) {
    begin_value(j, key);
    if (isfinite(v))
        fprintf(j->f, "%.9g", v);
    else
        fputs("null", j->f);
}

void sn_json_bool(json_out *j, const char *key, bool v) {
    begin_value(j, key);
    fputs(v ? "true" : "false", j->f);
}

void sn_json_ids(json_out *j, const char *key, const int32_t *ids, int64_t n) {
    sn_json_list(j, key);
    for (int64_t i = 0; i < n; i++) sn_json_integer(j, NULL, ids[i]);
    sn_json_close(j);
}
