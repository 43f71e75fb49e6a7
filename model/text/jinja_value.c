/* jinja_value.c: values of templates: constructors, comparison, printing, filters, methods, tests. */
#include "model/text/jinja_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/steps.h"

/* ---- memory ---- */

struct jinja_block {
    jinja_block *before;
    size_t used, size;
    max_align_t data[];
};

static jinja_value undefined = {.kind = JINJA_UNDEFINED};

void sn_jinja_free(jinja_arena *a) {
    for (jinja_block *b = a->last, *before; b; b = before) {
        before = b->before;
        free(b);
    }
    *a = (jinja_arena){0};
}

bool sn_jinja_spend(jinja_arena *a, size_t steps, size_t bytes) {
    if (a->failed) return false;
    if (steps > JINJA_STEPS - a->steps)
        a->failed = "the template takes more than 10000000 steps";
    else if (bytes > JINJA_BYTES - a->bytes)
        a->failed = "the template needs more than 64 MB";
    else
        a->steps += steps, a->bytes += bytes;
    return !a->failed;
}

/* A value inside another one; a namespace may hold itself. */
static bool enter(jinja_arena *a) {
    if (a->depth == JINJA_DEPTH && !a->failed) a->failed = "values are nested too deeply";
    if (a->failed) return false;
    a->depth++;
    return true;
}

static void *take(jinja_arena *a, size_t size) {
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!a->last || a->last->size - a->last->used < size) {
        size_t room = size > 16384 ? size : 16384;
        jinja_block *b = sn_jinja_spend(a, 0, room) ? malloc(sizeof *b + room) : NULL;
        if (!b) {
            if (!a->failed) a->failed = "out of memory";
            return NULL;
        }
        *b = (jinja_block){a->last, 0, room};
        a->last = b;
    }
    char *at = (char *)a->last->data + a->last->used;
    a->last->used += size;
    return memset(at, 0, size);
}

jinja_value *sn_jinja_new(jinja_arena *a, jinja_kind kind) {
    jinja_value *v = take(a, sizeof *v);
    if (!v) return &undefined;
    v->kind = kind;
    return v;
}

jinja_value *sn_jinja_int(jinja_arena *a, int64_t n) {
    jinja_value *v = sn_jinja_new(a, JINJA_INT);
    if (v != &undefined) v->number = n;
    return v;
}

jinja_value *sn_jinja_bool(jinja_arena *a, bool b) {
    jinja_value *v = sn_jinja_int(a, b);
    if (v != &undefined) v->kind = JINJA_BOOL;
    return v;
}

jinja_value *sn_jinja_text(jinja_arena *a, const char *text, size_t size) {
    jinja_value *v = sn_jinja_new(a, JINJA_TEXT);
    char *copy = take(a, size + 1);
    if (!copy || v == &undefined) return &undefined;
    if (size) memcpy(copy, text, size);
    v->text = copy, v->size = size;
    return v;
}

static bool grow(jinja_arena *a, jinja_value *v) {
    if (v->size < v->capacity) return true;
    size_t capacity = v->capacity ? 2 * v->capacity : 8;
    jinja_value **item = take(a, capacity * sizeof *item);
    jinja_value **key = v->kind == JINJA_DICT ? take(a, capacity * sizeof *key) : NULL;
    if (!item || (v->kind == JINJA_DICT && !key)) return false;
    if (v->size) memcpy(item, v->item, v->size * sizeof *item);
    if (v->size && key) memcpy(key, v->key, v->size * sizeof *key);
    v->item = item, v->key = key, v->capacity = capacity;
    return true;
}

void sn_jinja_append(jinja_arena *a, jinja_value *list, jinja_value *item) {
    if (list != &undefined && grow(a, list)) list->item[list->size++] = item;
}

static jinja_value **find(jinja_arena *a, const jinja_value *dict, const char *key, size_t size) {
    bool some = dict->kind == JINJA_DICT && sn_jinja_spend(a, dict->size / 8, 0);
    for (size_t i = 0; some && i < dict->size; i++)
        if (dict->key[i]->size == size && !memcmp(dict->key[i]->text, key, size))
            return &dict->item[i];
    return NULL;
}

void sn_jinja_set(jinja_arena *a, jinja_value *dict, const char *key, jinja_value *value) {
    size_t n = strlen(key);
    jinja_value **found = find(a, dict, key, n);
    if (found) {
        *found = value;
        return;
    }
    jinja_value *name = sn_jinja_text(a, key, n);
    if (name == &undefined || dict == &undefined || !grow(a, dict)) return;
    dict->key[dict->size] = name;
    dict->item[dict->size++] = value;
}

jinja_value *sn_jinja_get(jinja_arena *a, const jinja_value *dict, const char *key, size_t size) {
    jinja_value **found = find(a, dict, key, size);
    return found ? *found : NULL;
}

/* ---- comparison ---- */

bool sn_jinja_true(const jinja_value *v) {
    if (v->kind == JINJA_BOOL || v->kind == JINJA_INT) return v->number != 0;
    return v->kind >= JINJA_TEXT && v->size > 0;
}

static bool is_number(const jinja_value *v) {
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT;
}

bool sn_jinja_equal(jinja_arena *a, const jinja_value *x, const jinja_value *y) {
    if (!sn_jinja_spend(a, 1 + x->size / 64, 0)) return false;
    if (is_number(x) && is_number(y)) return x->number == y->number;
    if (x->kind != y->kind || x->size != y->size) return false;
    if (x->kind == JINJA_TEXT) return !memcmp(x->text, y->text, x->size);
    if (x->kind < JINJA_LIST) return true;
    if (!enter(a)) return false;
    bool equal = true;
    for (size_t i = 0; equal && i < x->size; i++) {
        const jinja_value *other = x->kind == JINJA_LIST
                                       ? y->item[i]
                                       : sn_jinja_get(a, y, x->key[i]->text, x->key[i]->size);
        equal = other && sn_jinja_equal(a, x->item[i], other);
    }
    a->depth--;
    return equal;
}

bool sn_jinja_contains(jinja_arena *a, const jinja_value *in, const jinja_value *v) {
    if (!sn_jinja_spend(a, 1 + in->size / 64, 0)) return false;
    if (in->kind == JINJA_TEXT)
        return v->kind == JINJA_TEXT && (!v->size || memmem(in->text, in->size, v->text, v->size));
    if (in->kind == JINJA_DICT)
        return v->kind == JINJA_TEXT && sn_jinja_get(a, in, v->text, v->size) != NULL;
    for (size_t i = 0; in->kind == JINJA_LIST && !a->failed && i < in->size; i++)
        if (sn_jinja_equal(a, in->item[i], v)) return true;
    return false;
}

/* ---- printing ---- */

static bool put_bytes(jinja_arena *a, sn_bytes *out, const char *text, size_t size) {
    if (!sn_jinja_spend(a, 0, size)) return false;
    if (!sn_bytes_append(out, text, size, NULL)) a->failed = "out of memory";
    return !a->failed;
}

static bool put(jinja_arena *a, sn_bytes *out, const char *text) {
    return put_bytes(a, out, text, strlen(text));
}

static bool put_value(jinja_arena *a, const jinja_value *v, bool json, sn_bytes *out);

bool sn_jinja_print(jinja_arena *a, const jinja_value *v, sn_bytes *out) {
    if (v->kind == JINJA_TEXT) return put_bytes(a, out, v->text, v->size);
    if (v->kind == JINJA_UNDEFINED) return true;
    if (v->kind == JINJA_NONE) return put(a, out, "None");
    if (v->kind == JINJA_BOOL) return put(a, out, v->number ? "True" : "False");
    return put_value(a, v, false, out);
}

/* As JSON has it, or as Python prints it in a list. */
static bool put_quoted(jinja_arena *a, const jinja_value *v, bool json, sn_bytes *out) {
    static const char from[] = "\\\n\t\r", to[] = "\\ntr";
    enum { LONGEST = 8 }; /* "\u0000", the last quote */
    const bool plain = memchr(v->text, '\'', v->size) && !memchr(v->text, '"', v->size);
    const unsigned char quote = json || plain ? '"' : '\'';
    char piece[256] = {(char)quote};
    size_t n = 1;
    bool ok = true;
    for (size_t i = 0; ok && i < v->size; i++) {
        const unsigned char c = (unsigned char)v->text[i];
        const char *at = c < ' ' || c == '\\' ? memchr(from, c, sizeof from - 1) : NULL;
        if (at || c < ' ' || c == quote) piece[n++] = '\\';
        piece[n++] = at ? to[at - from] : c >= ' ' ? (char)c : json ? 'u' : 'x';
        if (!at && c < ' ') n += (size_t)snprintf(piece + n, LONGEST, json ? "%04x" : "%02x", c);
        if (n > sizeof piece - LONGEST) ok = put_bytes(a, out, piece, n), n = 0;
    }
    piece[n++] = (char)quote;
    return ok && put_bytes(a, out, piece, n);
}

static bool put_value(jinja_arena *a, const jinja_value *v, bool json, sn_bytes *out) {
    char number[24];
    if (!json && v->kind <= JINJA_BOOL) return sn_jinja_print(a, v, out);
    if (v->kind <= JINJA_NONE) return put(a, out, "null");
    if (v->kind == JINJA_BOOL) return put(a, out, v->number ? "true" : "false");
    if (v->kind == JINJA_INT) {
        snprintf(number, sizeof number, "%lld", (long long)v->number);
        return put(a, out, number);
    }
    if (v->kind == JINJA_TEXT) return put_quoted(a, v, json, out);
    if (!enter(a)) return false;
    bool dict = v->kind == JINJA_DICT, ok = put(a, out, dict ? "{" : "[");
    for (size_t i = 0; ok && i < v->size; i++)
        ok = put(a, out, i ? ", " : "") &&
             (!dict || (put_quoted(a, v->key[i], json, out) && put(a, out, ": "))) &&
             put_value(a, v->item[i], json, out);
    a->depth--;
    return ok && put(a, out, dict ? "}" : "]");
}

bool sn_jinja_json(jinja_arena *a, const jinja_value *v, sn_bytes *out) {
    return put_value(a, v, true, out);
}

/* ---- elements ---- */

/* Bytes of the text before character n. */
static size_t bytes_before(const jinja_value *v, int64_t n) {
    size_t at = 0;
    while (at < v->size && (((unsigned char)v->text[at] & 0xC0) == 0x80 || n-- > 0)) at++;
    return at;
}

/* Characters of a text, elements. */
static int64_t length_of(const jinja_value *v) {
    int64_t n = (int64_t)v->size;
    for (size_t i = 0; v->kind == JINJA_TEXT && i < v->size; i++)
        n -= ((unsigned char)v->text[i] & 0xC0) == 0x80;
    return n;
}

static jinja_value *part_of(jinja_arena *a, const jinja_value *v, int64_t from, int64_t to) {
    const size_t first = bytes_before(v, from), end = bytes_before(v, to);
    return sn_jinja_text(a, v->text + first, end > first ? end - first : 0);
}

jinja_value *sn_jinja_at(jinja_arena *a, const jinja_value *v, int64_t i) {
    const bool has = v->kind == JINJA_TEXT || v->kind == JINJA_LIST;
    const int64_t n = has && sn_jinja_spend(a, 1 + v->size / 64, 0) ? length_of(v) : 0;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return sn_jinja_new(a, JINJA_UNDEFINED);
    return v->kind == JINJA_LIST ? v->item[i] : part_of(a, v, i, i + 1);
}

/* ---- filters and methods ---- */

typedef struct call {
    jinja_arena *a;
    const jinja_value *v;
    jinja_value *const *arg;
    size_t count;
} call;

static bool is_text(const jinja_value *v) {
    return v->kind == JINJA_TEXT;
}

static const jinja_value *text_arg(const call *c, size_t i) {
    return i < c->count && is_text(c->arg[i]) ? c->arg[i] : NULL;
}

static jinja_value *strip(const call *c, bool left, bool right) {
    if (!is_text(c->v)) return NULL;
    const jinja_value *set = text_arg(c, 0);
    const char *at = c->v->text, *end = at + c->v->size;
    if (!set) {
        if (left) at += sn_space_run(at, (size_t)(end - at));
        if (right) end -= sn_space_tail(at, (size_t)(end - at));
    }
    bool in[256] = {false};
    for (size_t i = 0; set && i < set->size; i++) in[(unsigned char)set->text[i]] = true;
    while (set && left && at < end && in[(unsigned char)*at]) at++;
    while (set && right && at < end && in[(unsigned char)end[-1]]) end--;
    return sn_jinja_text(c->a, at, (size_t)(end - at));
}

static jinja_value *do_strip(const call *c) {
    return strip(c, true, true);
}
static jinja_value *do_lstrip(const call *c) {
    return strip(c, true, false);
}
static jinja_value *do_rstrip(const call *c) {
    return strip(c, false, true);
}

static jinja_value *change_case(const call *c, bool upper, bool first_only) {
    if (!is_text(c->v)) return NULL;
    jinja_value *v = sn_jinja_text(c->a, c->v->text, c->v->size);
    for (size_t i = 0; i < v->size; i++) {
        char *p = (char *)(uintptr_t)v->text + i, from = upper && (!first_only || !i) ? 'a' : 'A';
        if (*p >= from && *p <= from + 25) *p = (char)(*p ^ 0x20);
    }
    return v;
}

static jinja_value *do_upper(const call *c) {
    return change_case(c, true, false);
}
static jinja_value *do_lower(const call *c) {
    return change_case(c, false, false);
}
static jinja_value *do_capitalize(const call *c) {
    return change_case(c, true, true);
}

static jinja_value *do_length(const call *c) {
    return c->v->kind < JINJA_TEXT ? NULL : sn_jinja_int(c->a, length_of(c->v));
}

static jinja_value *do_startswith(const call *c) {
    const jinja_value *with = text_arg(c, 0);
    if (!is_text(c->v) || !with) return NULL;
    return sn_jinja_bool(c->a,
                         with->size <= c->v->size && !memcmp(c->v->text, with->text, with->size));
}

static jinja_value *do_endswith(const call *c) {
    const jinja_value *with = text_arg(c, 0);
    if (!is_text(c->v) || !with) return NULL;
    return sn_jinja_bool(c->a,
                         with->size <= c->v->size &&
                             !memcmp(c->v->text + c->v->size - with->size, with->text, with->size));
}

static jinja_value *do_split(const call *c) {
    const jinja_value *by = text_arg(c, 0);
    if (!is_text(c->v) || !by || !by->size) return NULL;
    jinja_value *list = sn_jinja_new(c->a, JINJA_LIST);
    const char *at = c->v->text, *end = at + c->v->size, *next;
    while ((next = memmem(at, (size_t)(end - at), by->text, by->size))) {
        sn_jinja_append(c->a, list, sn_jinja_text(c->a, at, (size_t)(next - at)));
        at = next + by->size;
    }
    sn_jinja_append(c->a, list, sn_jinja_text(c->a, at, (size_t)(end - at)));
    return list;
}

static jinja_value *do_join(const call *c) {
    const jinja_value *by = text_arg(c, 0);
    if (c->v->kind != JINJA_LIST) return NULL;
    sn_bytes text = {0};
    for (size_t i = 0; i < c->v->size && !c->a->failed; i++) {
        if (i && by) sn_jinja_print(c->a, by, &text);
        sn_jinja_print(c->a, c->v->item[i], &text);
    }
    jinja_value *v = sn_jinja_text(c->a, text.data, text.size);
    sn_bytes_free(&text);
    return v;
}

static jinja_value *do_replace(const call *c) {
    const jinja_value *from = text_arg(c, 0), *to = text_arg(c, 1);
    if (!from || !to || !from->size || !is_text(c->v)) return NULL;
    const call split = {c->a, c->v, c->arg, 1}, join = {c->a, do_split(&split), c->arg + 1, 1};
    return do_join(&join);
}

static jinja_value *do_items(const call *c) {
    if (c->v->kind != JINJA_DICT) return NULL;
    jinja_value *list = sn_jinja_new(c->a, JINJA_LIST);
    for (size_t i = 0; i < c->v->size; i++) {
        jinja_value *pair = sn_jinja_new(c->a, JINJA_LIST);
        sn_jinja_append(c->a, pair, c->v->key[i]);
        sn_jinja_append(c->a, pair, c->v->item[i]);
        sn_jinja_append(c->a, list, pair);
    }
    return list;
}

static jinja_value *do_get(const call *c) {
    const jinja_value *key = text_arg(c, 0);
    if (c->v->kind != JINJA_DICT || !key) return NULL;
    jinja_value *found = sn_jinja_get(c->a, c->v, key->text, key->size);
    return found ? found : c->count > 1 ? c->arg[1] : sn_jinja_new(c->a, JINJA_NONE);
}

static jinja_value *do_default(const call *c) {
    bool falsy = c->count > 1 && sn_jinja_true(c->arg[1]) && !sn_jinja_true(c->v);
    bool missing = c->v->kind == JINJA_UNDEFINED || falsy;
    return missing ? (c->count ? c->arg[0] : sn_jinja_text(c->a, "", 0))
                   : (jinja_value *)(uintptr_t)c->v;
}

static jinja_value *do_tojson(const call *c) {
    if (c->count) return NULL; /* indentation */
    sn_bytes text = {0};
    sn_jinja_json(c->a, c->v, &text);
    jinja_value *v = sn_jinja_text(c->a, text.data, text.size);
    sn_bytes_free(&text);
    return v;
}

static jinja_value *do_string(const call *c) {
    sn_bytes text = {0};
    sn_jinja_print(c->a, c->v, &text);
    jinja_value *v = sn_jinja_text(c->a, text.data, text.size);
    sn_bytes_free(&text);
    return v;
}

static jinja_value *do_list(const call *c) {
    return c->v->kind == JINJA_LIST ? (jinja_value *)(uintptr_t)c->v : NULL;
}

static jinja_value *do_first(const call *c) {
    return sn_jinja_at(c->a, c->v, 0);
}

static jinja_value *do_last(const call *c) {
    return sn_jinja_at(c->a, c->v, -1);
}

static const struct {
    const char *name;
    jinja_value *(*apply)(const call *c);
} functions[] = {{"trim", do_strip},
                 {"strip", do_strip},
                 {"lstrip", do_lstrip},
                 {"rstrip", do_rstrip},
                 {"upper", do_upper},
                 {"lower", do_lower},
                 {"capitalize", do_capitalize},
                 {"length", do_length},
                 {"count", do_length},
                 {"startswith", do_startswith},
                 {"endswith", do_endswith},
                 {"split", do_split},
                 {"join", do_join},
                 {"replace", do_replace},
                 {"items", do_items},
                 {"get", do_get},
                 {"default", do_default},
                 {"tojson", do_tojson},
                 {"string", do_string},
                 {"safe", do_string},
                 {"list", do_list},
                 {"first", do_first},
                 {"last", do_last}};

jinja_value *sn_jinja_apply(jinja_arena *a, const char *name, size_t size, const jinja_value *v,
                            jinja_value *const *args, size_t count) {
    const call c = {a, v, args, count};
    if (!sn_jinja_spend(a, 1 + v->size / 64, 0)) return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == size && !memcmp(functions[i].name, name, size))
            return functions[i].apply(&c);
    return NULL;
}

int sn_jinja_test(const char *name, size_t size, const jinja_value *v) {
    const struct {
        const char *name;
        bool holds;
    } tests[] = {{"defined", v->kind != JINJA_UNDEFINED},
                 {"undefined", v->kind == JINJA_UNDEFINED},
                 {"none", v->kind == JINJA_NONE},
                 {"string", v->kind == JINJA_TEXT},
                 {"mapping", v->kind == JINJA_DICT},
                 {"iterable", v->kind >= JINJA_TEXT},
                 {"sequence", v->kind >= JINJA_TEXT},
                 {"number", is_number(v)},
                 {"boolean", v->kind == JINJA_BOOL},
                 {"true", v->kind == JINJA_BOOL && v->number},
                 {"false", v->kind == JINJA_BOOL && !v->number}};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strlen(tests[i].name) == size && !memcmp(tests[i].name, name, size))
            return tests[i].holds;
    return -1;
}

jinja_value *sn_jinja_slice(jinja_arena *a, const jinja_value *v, const jinja_value *from,
                            const jinja_value *to, int64_t step) {
    if (!sn_jinja_spend(a, 1 + v->size / 64, 0)) return NULL;
    const int64_t n = length_of(v);
    step = step > n ? n + 1 : step < -n ? -n - 1 : step; /* i + step must not overflow */
    int64_t lo = step > 0 ? 0 : n - 1, hi = step > 0 ? n : -1;
    if (from) lo = from->number < 0 ? from->number + n : from->number;
    if (to) hi = to->number < 0 ? to->number + n : to->number;
    const int64_t min = step > 0 ? 0 : -1, max = step > 0 ? n : n - 1;
    lo = lo < min ? min : lo > max ? max : lo;
    hi = hi < min ? min : hi > max ? max : hi;
    if (v->kind == JINJA_TEXT && step == 1) return part_of(a, v, lo, hi);
    if (v->kind != JINJA_LIST) return NULL;
    jinja_value *list = sn_jinja_new(a, JINJA_LIST);
    for (int64_t i = lo; step > 0 ? i < hi : i > hi; i += step)
        sn_jinja_append(a, list, v->item[i]);
    return list;
}
