/* json.c: validates JSON by recursive descent, then lets cJSON build the tree. */
#define XXH_INLINE_ALL
#include "runtime/files/json.h"
#include "runtime/problems.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { DEPTH = 1000, NUMBER_SIZE = 63 }; /* cJSON's limits */

typedef struct scanner {
    const char *at, *end;
    int depth;
    const char *why; /* the first problem, at `at` */
} scanner;

static bool wrong(scanner *s, const char *why) {
    if (!s->why) s->why = why;
    return false;
}

static int peek(const scanner *s) {
    return s->at < s->end ? (unsigned char)*s->at : -1;
}

static void skip_space(scanner *s) {
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\n' || peek(s) == '\r') s->at++;
}

static bool take(scanner *s, char c) {
    bool found = peek(s) == c;
    s->at += found;
    return found;
}

/* ---- scalars ---- */

static bool scan_word(scanner *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return wrong(s, "a value is expected");
    s->at += n;
    return true;
}

static bool scan_digits(scanner *s) {
    const char *begin = s->at;
    while (peek(s) >= '0' && peek(s) <= '9') s->at++;
    return s->at > begin || wrong(s, "a digit is expected");
}

static bool scan_number(scanner *s) {
    const char *begin = s->at;
    take(s, '-');
    if (!take(s, '0') && !scan_digits(s)) return false;
    if (take(s, '.') && !scan_digits(s)) return false;
    bool exponent = take(s, 'e') || take(s, 'E');
    if (exponent) {
        if (!take(s, '-')) take(s, '+');
        if (!scan_digits(s)) return false;
    }
    size_t n = (size_t)(s->at - begin);
    if (n <= NUMBER_SIZE && !exponent) return true;
    char copy[NUMBER_SIZE + 1] = "";
    if (n <= NUMBER_SIZE) memcpy(copy, begin, n);
    if (n <= NUMBER_SIZE && isfinite(sn_number_read(copy, NULL))) return true;
    s->at = begin;
    return wrong(s,
                 n > NUMBER_SIZE ? "a number of more than 63 characters" : "a number out of range");
}

/* Four hexadecimal digits; -1: there are none. */
static int scan_hex(scanner *s) {
    int v = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int c = peek(s), lower = c | 0x20;
        int d = c >= '0' && c <= '9'           ? c - '0'
                : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                               : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* After "\u". */
static bool scan_code(scanner *s) {
    int high = scan_hex(s);
    if (high == 0) return wrong(s, "\\u0000 in a string");
    if (high < 0) return wrong(s, "four hexadecimal digits are expected");
    if (high < 0xd800 || high >= 0xe000) return true;
    bool pair = high < 0xdc00 && take(s, '\\') && take(s, 'u');
    int low = pair ? scan_hex(s) : 0;
    return (low >= 0xdc00 && low < 0xe000) || wrong(s, "an unpaired surrogate");
}

static bool scan_string(scanner *s) {
    if (!take(s, '"')) return wrong(s, "a string is expected");
    for (;;) {
        int c = peek(s);
        if (c < 0) return wrong(s, "an unterminated string");
        if (c < 0x20) return wrong(s, "a control character in a string");
        s->at++;
        if (c == '"') return true;
        if (c != '\\') continue;
        c = peek(s);
        if (c <= 0 || !strchr("\"\\/bfnrtu", c)) return wrong(s, "an unknown escape in a string");
        s->at++;
        if (c == 'u' && !scan_code(s)) return false;
    }
}

/* ---- structure ---- */

static bool scan_value(scanner *s);

static bool scan_member(scanner *s, bool named) {
    skip_space(s);
    if (named) {
        if (!scan_string(s)) return false;
        skip_space(s);
        if (!take(s, ':')) return wrong(s, "':' is expected");
        skip_space(s);
    }
    return scan_value(s);
}

/* After the opening bracket. */
static bool scan_members(scanner *s, char close) {
    if (s->depth == DEPTH) return wrong(s, "nested more than 1000 deep");
    s->depth++;
    skip_space(s);
    if (!take(s, close)) {
        do {
            if (!scan_member(s, close == '}')) return false;
            skip_space(s);
        } while (take(s, ','));
        if (!take(s, close))
            return wrong(s, close == '}' ? "',' or '}' is expected" : "',' or ']' is expected");
    }
    s->depth--;
    return true;
}

static bool scan_value(scanner *s) {
    switch (peek(s)) {
    case '{':
        s->at++;
        return scan_members(s, '}');
    case '[':
        s->at++;
        return scan_members(s, ']');
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case -1:
        return wrong(s, "unexpected end of the text");
    default:
        return peek(s) == '-' || (peek(s) >= '0' && peek(s) <= '9')
                   ? scan_number(s)
                   : wrong(s, "a value is expected");
    }
}

/* ---- keys ---- */

/* A hash set of strings, reused for all objects. */
typedef struct key_set {
    const char **slot;
    size_t slots; /* a power of two, or 0 */
} key_set;

/* Finds a duplicate key; *no_memory: the set could not be allocated. */
static const char *find_twice(const cJSON *object, key_set *set, bool *no_memory) {
    size_t need = 16, mask;
    for (const cJSON *v = object->child; v; v = v->next) need += 2;
    if (need > set->slots) {
        size_t slots = set->slots ? set->slots : 16;
        while (slots < need) slots *= 2;
        free((void *)set->slot);
        set->slot = malloc(slots * sizeof *set->slot);
        set->slots = set->slot ? slots : 0;
        if ((*no_memory = !set->slot)) return NULL;
    }
    /* keeps small objects cheap: little to clear */
    for (mask = 15; mask + 1 < need;) mask = 2 * mask + 1;
    memset((void *)set->slot, 0, (mask + 1) * sizeof *set->slot);
    for (const cJSON *v = object->child; v; v = v->next) {
        size_t at = XXH3_64bits(v->string, strlen(v->string)) & mask;
        for (; set->slot[at]; at = (at + 1) & mask)
            if (!strcmp(set->slot[at], v->string)) return v->string;
        set->slot[at] = v->string;
    }
    return NULL;
}

static const char *find_twice_below(const cJSON *v, key_set *set, bool *no_memory) {
    const char *twice = cJSON_IsObject(v) ? find_twice(v, set, no_memory) : NULL;
    for (const cJSON *c = v->child; c && !twice && !*no_memory; c = c->next)
        if (c->child) twice = find_twice_below(c, set, no_memory);
    return twice;
}

/* ---- whole texts ---- */

/* Line and column of a position, from 1; columns are bytes. */
static bool fail_at(const char *name, const char *text, const char *at, const char *why,
                    sn_error *err) {
    size_t line = 1;
    const char *begin = text;
    for (const char *p = text; p < at; p++)
        if (*p == '\n') {
            line++;
            begin = p + 1;
        }
    return sn_fail(err, SN_ERR_FILE, "%s: not valid JSON: line %zu, column %zu: %s", name, line,
                   (size_t)(at - begin) + 1, why);
}

static bool check_text(const char *name, const char *text, size_t size, sn_error *err) {
    scanner s = {text, text + size, 0, NULL};
    skip_space(&s);
    if (scan_value(&s)) {
        skip_space(&s);
        if (s.at < s.end) wrong(&s, "text after the value");
    }
    return !s.why || fail_at(name, text, s.at, s.why, err);
}

cJSON *sn_json_parse(const char *name, const char *text, size_t size, sn_error *err) {
    if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, size -= 3;
    if (!check_text(name, text, size, err)) return NULL;
    const char *end;
    cJSON *root = cJSON_ParseWithLengthOpts(text, size, &end, false);
    key_set set = {0};
    bool no_memory = !root;
    char shown[80];
    const char *twice = root ? find_twice_below(root, &set, &no_memory) : NULL;
    free((void *)set.slot);
    bool ok = false;
    if (no_memory)
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", name);
    else if (twice)
        sn_fail(err, SN_ERR_FILE, "%s: duplicate key \"%s\"", name,
                sn_printable(shown, sizeof shown, twice));
    else
        ok = cJSON_IsObject(root) ||
             sn_fail(err, SN_ERR_FILE, "%s: not a JSON object ({...})", name);
    if (ok) return root;
    cJSON_Delete(root);
    return NULL;
}
