/* jinja_expr.c: reads and evaluates expressions of templates in one walk. What is not needed (a
 * branch that is not taken, the right side of a decided `and`) is read but not evaluated. */
#include "model/text/jinja_state.h"
#include "model/tokenizer/tok.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef jinja_value value;

/* ---- tokens ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

void sn_jinja_skip_space(jinja_state *s) {
    while (s->at < s->end && isspace((unsigned char)*s->at)) s->at++;
}

bool sn_jinja_take(jinja_state *s, const char *symbol) {
    sn_jinja_skip_space(s);
    size_t n = strlen(symbol), left = (size_t)(s->end - s->at);
    if (left < n || *s->at != *symbol || memcmp(s->at, symbol, n)) return false;
    if (is_word(*symbol) && left > n && is_word(s->at[n])) return false;
    s->at += n;
    return true;
}

bool sn_jinja_take_name(jinja_state *s, const char **name, size_t *size) {
    sn_jinja_skip_space(s);
    if (s->at == s->end || !is_word(*s->at) || isdigit((unsigned char)*s->at)) return false;
    for (*name = s->at; s->at < s->end && is_word(*s->at);) s->at++;
    *size = (size_t)(s->at - *name);
    return true;
}

static value *wrong(jinja_state *s, const char *what, const char *name, size_t size) {
    sn_jinja_fail(s, what, name, size);
    return NULL;
}

static value *unexpected(jinja_state *s) {
    size_t left = (size_t)(s->end - s->at);
    return wrong(s, left ? "unexpected" : "an expression ends too early, at", s->at,
                 left < 20 ? left : 20);
}

static value *nothing(jinja_state *s) {
    return sn_jinja_new(&s->arena, JINJA_UNDEFINED);
}

/* ---- literals ---- */

static value *read_string(jinja_state *s) {
    const char quote = *s->at++;
    sn_bytes text = {0};
    bool ok = sn_bytes_append(&text, "", 0, s->err);
    while (ok && s->at < s->end && *s->at != quote) {
        char c = *s->at++;
        if (c == '\\' && s->at < s->end) {
            static const char from[] = "ntr", to[] = "\n\t\r";
            const char *escape = memchr(from, *s->at, 3);
            c = escape ? to[escape - from] : *s->at;
            s->at++;
        }
        ok = sn_bytes_append(&text, &c, 1, s->err);
    }
    value *v = sn_jinja_text(&s->arena, text.data, text.size);
    sn_bytes_free(&text);
    if (!ok) return NULL;
    return s->at < s->end && s->at++ ? v : unexpected(s);
}

static value *read_number(jinja_state *s) {
    char *end;
    int64_t n = strtoll(s->at, &end, 10);
    s->at = end < s->end ? end : s->end;
    if (s->at < s->end && *s->at == '.' && s->at + 1 < s->end && isdigit((unsigned char)s->at[1]))
        return wrong(s, "numbers with a fraction are not supported:", s->at - 1, 3);
    return sn_jinja_int(&s->arena, n);
}

/* Elements up to the closing symbol; a dictionary has keys. */
static value *read_elements(jinja_state *s, const char *close, bool dict, bool live) {
    value *list = sn_jinja_new(&s->arena, dict ? JINJA_DICT : JINJA_LIST);
    while (!sn_jinja_take(s, close)) {
        value *v = sn_jinja_expression(s, live), *key = v;
        if (v && dict) v = sn_jinja_take(s, ":") ? sn_jinja_expression(s, live) : unexpected(s);
        if (!v) return NULL;
        if (live && dict && key->kind != JINJA_TEXT)
            return wrong(s, "keys of dictionaries must be texts:", close, 1);
        if (live && dict)
            sn_jinja_set(&s->arena, list, key->text, v);
        else if (live)
            sn_jinja_append(&s->arena, list, v);
        if (!sn_jinja_take(s, ",")) {
            if (!sn_jinja_take(s, close)) return unexpected(s);
            break;
        }
    }
    return list;
}

/* (a) is a; (a, b) a list. */
static value *read_parentheses(jinja_state *s, bool live) {
    value *v = sn_jinja_expression(s, live);
    if (!v || sn_jinja_take(s, ")")) return v;
    if (!sn_jinja_take(s, ",")) return unexpected(s);
    value *list = read_elements(s, ")", false, live), *all = sn_jinja_new(&s->arena, JINJA_LIST);
    if (!list) return NULL;
    if (live) sn_jinja_append(&s->arena, all, v);
    for (size_t i = 0; i < list->size; i++) sn_jinja_append(&s->arena, all, list->item[i]);
    return all;
}

/* ---- calls ---- */

enum { ARGUMENTS = 8 };

typedef struct arguments {
    value *item[ARGUMENTS];
    const char *name[ARGUMENTS]; /* of a keyword argument, or NULL */
    size_t name_size[ARGUMENTS];
    size_t count;
} arguments;

/* After "(". */
static bool read_arguments(jinja_state *s, arguments *a, bool live) {
    a->count = 0;
    while (!sn_jinja_take(s, ")")) {
        const char *start, *name = NULL;
        size_t size = 0;
        sn_jinja_skip_space(s);
        start = s->at;
        bool keyword =
            sn_jinja_take_name(s, &name, &size) && sn_jinja_take(s, "=") && *s->at != '=';
        if (!keyword) s->at = start;
        if (a->count == ARGUMENTS) return sn_jinja_fail(s, "too many arguments, at", start, 1);
        a->name[a->count] = keyword ? name : NULL;
        a->name_size[a->count] = keyword ? size : 0;
        if (!(a->item[a->count++] = sn_jinja_expression(s, live))) return false;
        if (!sn_jinja_take(s, ",")) return sn_jinja_take(s, ")") || unexpected(s);
    }
    return true;
}

static bool is(const char *name, size_t size, const char *want) {
    return strlen(want) == size && !memcmp(name, want, size);
}

static value *make_namespace(jinja_state *s, const arguments *a) {
    value *v = sn_jinja_new(&s->arena, JINJA_DICT);
    for (size_t i = 0; i < a->count; i++) {
        if (!a->name[i]) return wrong(s, "namespace takes keyword arguments only", "", 0);
        value *key = sn_jinja_text(&s->arena, a->name[i], a->name_size[i]);
        if (key->kind == JINJA_TEXT) sn_jinja_set(&s->arena, v, key->text, a->item[i]);
    }
    return v;
}

static value *make_range(jinja_state *s, const arguments *a) {
    value *list = sn_jinja_new(&s->arena, JINJA_LIST);
    int64_t from = a->count > 1 ? a->item[0]->number : 0;
    int64_t to = a->count ? a->item[a->count > 1]->number : 0;
    if (a->count < 1 || a->count > 2 || (from < to && (uint64_t)to - (uint64_t)from > 100000))
        return wrong(s, "unsupported arguments of", "range", 5);
    for (; from < to; from++) sn_jinja_append(&s->arena, list, sn_jinja_int(&s->arena, from));
    return list;
}

static value *call_function(jinja_state *s, const char *name, size_t size, bool live) {
    arguments a;
    const char *start = s->at;
    if (!read_arguments(s, &a, live)) return NULL;
    if (!live) return nothing(s);
    if (is(name, size, "namespace") || is(name, size, "dict")) return make_namespace(s, &a);
    if (is(name, size, "range")) return make_range(s, &a);
    if (is(name, size, "raise_exception") && a.count && a.item[0]->kind == JINJA_TEXT) {
        sn_fail(s->err, SN_ERR_USAGE, "the chat template refuses: %.300s", a.item[0]->text);
        return NULL;
    }
    s->at = start;
    return wrong(s, "unsupported function", name, size);
}

/* ---- members, filters, tests ---- */

static value *member(jinja_state *s, const value *v, const char *name, size_t size) {
    value *found = sn_jinja_get(&s->arena, v, name, size);
    return found ? found : nothing(s);
}

/* A filter (after "|") or a method (after "."), with its arguments if there are any. */
static value *apply(jinja_state *s, const value *v, const char *name, size_t size, bool live) {
    arguments a = {.count = 0};
    if (sn_jinja_take(s, "(") && !read_arguments(s, &a, live)) return NULL;
    if (!live) return nothing(s);
    if (a.count && a.name[a.count - 1] &&
        is(a.name[a.count - 1], a.name_size[a.count - 1], "ensure_ascii"))
        a.count--;
    value *result = sn_jinja_apply(&s->arena, name, size, v, a.item, a.count);
    return result ? result : wrong(s, "unsupported filter or method, or its operand:", name, size);
}

static value *read_dot(jinja_state *s, const value *v, bool live) {
    const char *name;
    size_t size;
    if (!sn_jinja_take_name(s, &name, &size)) return unexpected(s);
    sn_jinja_skip_space(s);
    if (s->at < s->end && *s->at == '(') return apply(s, v, name, size, live);
    return live ? member(s, v, name, size) : nothing(s);
}

static bool is_integer(const value *v) {
    return !v || v->kind == JINJA_INT || v->kind == JINJA_BOOL;
}

/* After "[": an index, or from:to:step. */
static value *read_index(jinja_state *s, const value *v, bool live) {
    value *part[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (!sn_jinja_take(s, "]")) {
        if (sn_jinja_take(s, ":")) {
            if (++colons > 2) return unexpected(s);
        } else if (part[colons] || !(part[colons] = sn_jinja_expression(s, live)))
            return part[colons] ? unexpected(s) : NULL;
    }
    if (!live) return nothing(s);
    if (!colons && part[0] && part[0]->kind == JINJA_TEXT)
        return member(s, v, part[0]->text, part[0]->size);
    if (!is_integer(part[0]) || !is_integer(part[1]) || !is_integer(part[2]))
        return wrong(s, "unsupported index, before", s->at, 1);
    if (colons) {
        int64_t step = part[2] ? part[2]->number : 1;
        value *list = step ? sn_jinja_slice(&s->arena, v, part[0], part[1], step) : NULL;
        return list ? list : wrong(s, "unsupported slice, before", s->at, 1);
    }
    return part[0] ? sn_jinja_at(&s->arena, v, part[0]->number) : unexpected(s);
}

static value *read_primary(jinja_state *s, bool live);

static value *read_test(jinja_state *s, const value *v, bool live) {
    bool no = sn_jinja_take(s, "not"), result;
    const char *name;
    size_t size;
    if (!sn_jinja_take_name(s, &name, &size)) return unexpected(s);
    bool equal = is(name, size, "equalto") || is(name, size, "eq") || is(name, size, "sameas");
    if (equal || is(name, size, "in")) {
        const value *other = read_primary(s, live);
        if (!other) return NULL;
        result = live && (equal ? sn_jinja_equal(&s->arena, v, other)
                                : sn_jinja_contains(&s->arena, other, v));
    } else {
        int holds = sn_jinja_test(name, size, v);
        if (holds < 0) return wrong(s, "unsupported test", name, size);
        result = holds;
    }
    return sn_jinja_bool(&s->arena, result != no);
}

static value *read_primary(jinja_state *s, bool live) {
    const char *name;
    size_t size;
    sn_jinja_skip_space(s);
    if (s->at == s->end) return unexpected(s);
    if (*s->at == '\'' || *s->at == '"') return read_string(s);
    if (isdigit((unsigned char)*s->at)) return read_number(s);
    if (sn_jinja_take(s, "(")) return read_parentheses(s, live);
    if (sn_jinja_take(s, "[")) return read_elements(s, "]", false, live);
    if (sn_jinja_take(s, "{")) return read_elements(s, "}", true, live);
    if (!sn_jinja_take_name(s, &name, &size)) return unexpected(s);
    if (is(name, size, "true") || is(name, size, "True")) return sn_jinja_bool(&s->arena, true);
    if (is(name, size, "false") || is(name, size, "False")) return sn_jinja_bool(&s->arena, false);
    if (is(name, size, "none") || is(name, size, "None"))
        return sn_jinja_new(&s->arena, JINJA_NONE);
    if (sn_jinja_take(s, "(")) return call_function(s, name, size, live);
    return live ? sn_jinja_find(s, name, size) : nothing(s);
}

static value *read_postfix(jinja_state *s, bool live) {
    const char *name;
    size_t size;
    value *v = read_primary(s, live);
    while (v) {
        if (sn_jinja_take(s, "."))
            v = read_dot(s, v, live);
        else if (sn_jinja_take(s, "["))
            v = read_index(s, v, live);
        else if (sn_jinja_take(s, "|"))
            v = sn_jinja_take_name(s, &name, &size) ? apply(s, v, name, size, live) : unexpected(s);
        else if (sn_jinja_take(s, "is"))
            v = read_test(s, v, live);
        else
            break;
    }
    return v;
}

/* ---- operators ---- */

static value *read_unary(jinja_state *s, bool live) {
    if (!sn_jinja_take(s, "-")) return read_postfix(s, live);
    value *v = read_postfix(s, live);
    if (!v || !live) return v;
    return is_integer(v) ? sn_jinja_int(&s->arena, (int64_t)(0 - (uint64_t)v->number))
                         : wrong(s, "unsupported operand of", "-", 1);
}

static value *join_texts(jinja_state *s, const value *a, const value *b) {
    sn_bytes text = {0};
    bool ok = sn_jinja_print(&s->arena, a, &text) && sn_jinja_print(&s->arena, b, &text);
    value *v = sn_jinja_text(&s->arena, text.data, text.size);
    sn_bytes_free(&text);
    return ok ? v : wrong(s, "", "", 0);
}

static value *arithmetic(jinja_state *s, char op, const value *a, const value *b) {
    if (op == '~' || (op == '+' && a->kind == JINJA_TEXT && b->kind == JINJA_TEXT))
        return join_texts(s, a, b);
    if (op == '+' && a->kind == JINJA_LIST && b->kind == JINJA_LIST) {
        value *list = sn_jinja_new(&s->arena, JINJA_LIST);
        for (size_t i = 0; i < a->size; i++) sn_jinja_append(&s->arena, list, a->item[i]);
        for (size_t i = 0; i < b->size; i++) sn_jinja_append(&s->arena, list, b->item[i]);
        return list;
    }
    if (!is_integer(a) || !is_integer(b) || (op == '%' && b->number <= 0))
        return wrong(s, "unsupported operands of", &op, 1);
    uint64_t x = (uint64_t)a->number, y = (uint64_t)b->number;
    if (op == '%') {
        const int64_t rest = a->number % b->number;
        return sn_jinja_int(&s->arena, rest < 0 ? rest + b->number : rest);
    }
    return sn_jinja_int(&s->arena, (int64_t)(op == '+' ? x + y : op == '-' ? x - y : x * y));
}

/* Operators of one precedence, tightest first. */
static value *read_arithmetic(jinja_state *s, int level, bool live) {
    static const char *const ops[] = {"*%", "~", "+-"};
    if (level < 0) return read_unary(s, live);
    value *v = read_arithmetic(s, level - 1, live);
    while (v) {
        sn_jinja_skip_space(s);
        if (s->at == s->end || !strchr(ops[level], *s->at)) break;
        char op = *s->at++;
        value *right = read_arithmetic(s, level - 1, live);
        v = !right ? NULL : live ? arithmetic(s, op, v, right) : v;
    }
    return v;
}

static value *compare(jinja_state *s, int op, const value *a, const value *b) {
    const bool numbers = is_integer(a) && is_integer(b);
    if (op <= 1) return sn_jinja_bool(&s->arena, sn_jinja_equal(&s->arena, a, b) == !op);
    if (op >= 6) return sn_jinja_bool(&s->arena, sn_jinja_contains(&s->arena, b, a) == (op == 6));
    if (!numbers) return wrong(s, "unsupported operands of", "<", 1);
    const bool results[] = {a->number <= b->number, a->number >= b->number, (a->number < b->number),
                            (a->number > b->number)};
    return sn_jinja_bool(&s->arena, results[op - 2]);
}

static int take_comparison(jinja_state *s) {
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">", "in"};
    const char *start = s->at;
    for (int i = 0; i < 7; i++)
        if (sn_jinja_take(s, ops[i])) return i;
    if (sn_jinja_take(s, "not") && sn_jinja_take(s, "in")) return 7;
    s->at = start;
    return -1;
}

static value *read_comparison(jinja_state *s, bool live) {
    value *v = read_arithmetic(s, 2, live);
    for (int op; v && (op = take_comparison(s)) >= 0;) {
        value *right = read_arithmetic(s, 2, live);
        v = !right ? NULL : live ? compare(s, op, v, right) : v;
    }
    return v;
}

static value *read_not(jinja_state *s, bool live) {
    int n = 0;
    while (sn_jinja_take(s, "not")) n++;
    value *v = read_comparison(s, live);
    return v && n && live ? sn_jinja_bool(&s->arena, sn_jinja_true(v) != (n % 2 == 1)) : v;
}

static value *read_and(jinja_state *s, bool live) {
    value *v = read_not(s, live);
    while (v && sn_jinja_take(s, "and")) {
        bool needed = live && sn_jinja_true(v);
        value *right = read_not(s, needed);
        v = !right ? NULL : needed ? right : v;
    }
    return v;
}

value *sn_jinja_operand(jinja_state *s, bool live) {
    const char *start = s->at;
    value *v = read_and(s, live);
    while (v && sn_jinja_take(s, "or")) {
        bool needed = live && !sn_jinja_true(v);
        value *right = read_and(s, needed);
        v = !right ? NULL : needed ? right : v;
    }
    if (!sn_jinja_spend(&s->arena, 1 + (size_t)(s->at - start) / 64, 0)) return wrong(s, "", "", 0);
    return v;
}

/* a, or a if condition else b: a is read first and evaluated when the condition is known. */
static value *read_conditional(jinja_state *s, bool live) {
    const char *start = s->at;
    value *v = sn_jinja_operand(s, false);
    if (!v) return NULL;
    if (!sn_jinja_take(s, "if")) {
        if (!live) return v;
        s->at = start;
        return sn_jinja_operand(s, true);
    }
    value *condition = sn_jinja_operand(s, live);
    if (!condition) return NULL;
    bool first = live && sn_jinja_true(condition);
    const char *after = s->at;
    s->at = start;
    if (first && !(v = sn_jinja_operand(s, true))) return NULL;
    s->at = after;
    if (!sn_jinja_take(s, "else")) return first ? v : nothing(s);
    value *other = sn_jinja_expression(s, live && !first);
    return !other ? NULL : first ? v : other;
}

value *sn_jinja_expression(jinja_state *s, bool live) {
    if (s->depth >= JINJA_DEPTH) return wrong(s, "expressions are nested too deeply", "", 0);
    s->depth++;
    value *v = read_conditional(s, live);
    s->depth--;
    return v && s->arena.failed ? wrong(s, "", "", 0) : v;
}
