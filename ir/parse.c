/* parse.c: modules from text (print.c documents the form). Types in the text are compared with the
 * inferred ones. Malformed text is an error: nothing here recurses except parentheses in
 * dimensions, whose depth dim.c limits. */
#include "ir/module_impl.h"
#include "ir/text_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_LIST = 16, MAX_NESTING = 16 };

/* Names in a scope: %names of nodes or @names of regions. */
typedef struct name_entry {
    const char *key;
    size_t length;
    sn_node *node;
    const sn_region *region;
    int depth; /* nesting of regions */
} name_entry;

typedef struct names {
    name_entry *slot;
    size_t size, used;
} names;

typedef struct parser {
    sn_module *m;
    const char *file, *p, *line_start;
    int line;
    sn_error *err;
    names nodes, regions;
    int region_depth; /* of the scope being read */
    sn_node **list;   /* operands or results of the current line */
    int n_list, cap_list;
} parser;

static bool fail_at(parser *ps, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail_at(parser *ps, const char *at, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sn_fail(ps->err, SN_ERR_FILE, "%.200s:%d:%d: %s", ps->file, ps->line,
                   (int)(at - ps->line_start) + 1, text);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips blanks, `// comments` and `; FileCheck lines`; returns the next character. */
static char peek(parser *ps) {
    for (;; ps->p++) {
        if (*ps->p == ';' || (ps->p[0] == '/' && ps->p[1] == '/'))
            while (*ps->p && *ps->p != '\n') ps->p++;
        if (!is_blank(*ps->p)) return *ps->p;
        if (*ps->p == '\n') {
            ps->line++;
            ps->line_start = ps->p + 1;
        }
    }
}

static bool fail_expected(parser *ps, const char *what) {
    char found[24];
    int n = 0;
    peek(ps);
    for (; n < 20 && ps->p[n] && !is_blank(ps->p[n]); n++)
        found[n] = isprint((unsigned char)ps->p[n]) ? ps->p[n] : '?';
    found[n] = 0;
    return n ? fail_at(ps, ps->p, "expected %s, found '%s'", what, found)
             : fail_at(ps, ps->p, "expected %s, found the end of the text", what);
}

/* The module's message contains file and line. */
static bool module_ok(parser *ps) {
    const sn_error *e = sn_module_error(ps->m);
    return !e->code || sn_fail(ps->err, e->code, "%s", e->message);
}

static bool accept(parser *ps, char c) {
    if (peek(ps) != c) return false;
    ps->p++;
    return true;
}

static bool expect(parser *ps, char c) {
    char what[] = {'\'', c, '\'', 0};
    return accept(ps, c) || fail_expected(ps, what);
}

/* A word of name characters; empty: none. */
static size_t read_word(parser *ps, const char **word) {
    peek(ps);
    *word = ps->p;
    while (sn_text_name_char(*ps->p)) ps->p++;
    return (size_t)(ps->p - *word);
}

static bool word_is(const char *word, size_t n, const char *what) {
    return strlen(what) == n && !memcmp(word, what, n);
}

static bool accept_word(parser *ps, const char *what) {
    const char *word;
    size_t n = read_word(ps, &word);
    if (word_is(word, n, what)) return true;
    ps->p = word;
    return false;
}

static char *arena_copy(parser *ps, const char *s, size_t n) {
    char *copy = sn_arena_alloc(ps->m, n + 1);
    memcpy(copy, s, n);
    return copy;
}

static bool parse_string(parser *ps, const char **out) {
    if (peek(ps) != '"') return fail_expected(ps, "a string in quotes");
    const char *end = ps->p + 1;
    while (*end && *end != '"' && *end != '\n') end += 1 + (*end == '\\' && end[1]);
    if (*end != '"') return fail_at(ps, ps->p, "this string is not closed on its line");
    char *s = sn_arena_alloc(ps->m, (size_t)(end - ps->p)), *to = s;
    for (ps->p++; ps->p < end; ps->p++) {
        if (*ps->p != '\\') {
            *to++ = *ps->p;
            continue;
        }
        ps->p++;
        char hex[3] = {ps->p[0] == 'x' ? ps->p[1] : 0, ps->p[0] == 'x' && ps->p[1] ? ps->p[2] : 0,
                       0};
        if (*ps->p == '"' || *ps->p == '\\')
            *to++ = *ps->p;
        else if (isxdigit((unsigned char)hex[0]) && isxdigit((unsigned char)hex[1]) &&
                 strcmp(hex, "00")) {
            *to++ = (char)strtol(hex, NULL, 16);
            ps->p += 2;
        } else
            return fail_at(ps, ps->p - 1, "escapes are \\\", \\\\ and \\xHH (not \\x00)");
    }
    ps->p = end + 1;
    *out = s;
    return true;
}

static bool parse_name(parser *ps, const char *what, const char **out) {
    if (peek(ps) == '"') return parse_string(ps, out);
    const char *word;
    size_t n = read_word(ps, &word);
    *out = arena_copy(ps, word, n);
    return n || fail_expected(ps, what);
}

static bool parse_int(parser *ps, int64_t *out) {
    char c = peek(ps);
    char *end;
    if (c != '-' && !isdigit((unsigned char)c)) return fail_expected(ps, "an integer");
    errno = 0;
    long long v = strtoll(ps->p, &end, 10);
    if (end == ps->p || errno) return fail_expected(ps, "an integer of 64 bits");
    ps->p = end;
    *out = v;
    return true;
}

static bool parse_double(parser *ps, double *out) {
    char *end;
    peek(ps);
    if (!strncmp(ps->p, "nan:0x", 6)) {
        uint64_t bits = strtoull(ps->p + 6, &end, 16);
        memcpy(out, &bits, sizeof bits);
        if (!isnan(*out) || end == ps->p + 6) return fail_expected(ps, "the bits of a NaN");
    } else {
        *out = sn_number_read(ps->p, &end);
        if (end == ps->p) return fail_expected(ps, "a number");
        if (isnan(*out)) *out = NAN; /* not -nan, nan(...) */
    }
    ps->p = end;
    return true;
}

static bool parse_dtype(parser *ps, sn_dtype *out) {
    const char *word;
    char name[8] = "";
    size_t n = read_word(ps, &word);
    if (n < sizeof name) memcpy(name, word, n);
    if (sn_dtype_parse(name, out)) return true;
    ps->p = word;
    return fail_expected(ps, "an element type like f32");
}

static bool parse_dim(parser *ps, sn_dim *out) {
    peek(ps);
    return sn_dim_parse(ps->m, &ps->p, out) ||
           (module_ok(ps) && fail_expected(ps, "a dimension (numbers, declared dims, + - *)"));
}

/* "[a,b,...]" of dims or integers, at most `max`. */
static bool parse_list(parser *ps, bool dims, int max, int64_t *out, int *n) {
    *n = 0;
    if (!expect(ps, '[')) return false;
    if (accept(ps, ']')) return true;
    do {
        if (*n == max) return fail_at(ps, ps->p, "more than %d numbers in a list", max);
        if (!(dims ? parse_dim(ps, &out[*n]) : parse_int(ps, &out[*n]))) return false;
        ++*n;
    } while (accept(ps, ','));
    return expect(ps, ']');
}

static bool parse_type(parser *ps, sn_type *t) {
    return parse_dtype(ps, &t->dtype) && parse_list(ps, true, SN_MAX_RANK, t->shape, &t->rank);
}

/* ---- names ---- */

static name_entry *find_name(const names *t, const char *key, size_t length) {
    for (uint64_t i = XXH3_64bits(key, length);; i++) {
        name_entry *e = &t->slot[i & (t->size - 1)];
        if (!e->key || (e->length == length && !memcmp(e->key, key, length))) return e;
    }
}

static void clear_names(names *t) {
    if (t->slot) memset(t->slot, 0, t->size * sizeof *t->slot);
    t->used = 0;
}

static name_entry *lookup(const names *t, const char *key, size_t length) {
    if (!t->size) return NULL;
    name_entry *e = find_name(t, key, length);
    return e->key ? e : NULL;
}

/* The name after % or @; 0: none. */
static size_t parse_ref(parser *ps, char sigil, const char **name) {
    if (!expect(ps, sigil)) return 0;
    size_t n = sn_text_name_char(*ps->p) ? read_word(ps, name) : 0;
    if (!n) fail_expected(ps, sigil == '%' ? "a number after '%'" : "a name after '@'");
    return n;
}

/* A name to be defined here. add_name adds it afterwards. */
static size_t parse_new_ref(parser *ps, const names *t, char sigil, const char **name) {
    size_t n = parse_ref(ps, sigil, name);
    if (n && lookup(t, *name, n)) {
        fail_at(ps, *name - 1, "%c%.*s is defined twice", sigil, (int)(n < 99 ? n : 99), *name);
        return 0;
    }
    return n;
}

static void add_name(parser *ps, names *t, name_entry e) {
    if (t->used * 2 >= t->size) {
        names old = *t;
        t->size = old.size ? old.size * 2 : 64;
        t->slot = sn_arena_alloc(ps->m, t->size * sizeof *t->slot);
        for (size_t i = 0; i < old.size; i++)
            if (old.slot[i].key) *find_name(t, old.slot[i].key, old.slot[i].length) = old.slot[i];
    }
    *find_name(t, e.key, e.length) = e;
    t->used++;
}

/* A name that must already be defined. */
static const name_entry *parse_known_ref(parser *ps, const names *t, char sigil) {
    const char *name;
    size_t n = parse_ref(ps, sigil, &name);
    const name_entry *e = n ? lookup(t, name, n) : NULL;
    if (n && !e)
        fail_at(ps, name - 1, "%c%.*s is not defined above", sigil, (int)(n < 99 ? n : 99), name);
    return e;
}

static bool push_node(parser *ps, sn_node *n) {
    if (ps->n_list == UINT16_MAX) return fail_at(ps, ps->p, "more than 65535 operands");
    if (ps->n_list == ps->cap_list) {
        int cap = ps->cap_list ? 2 * ps->cap_list : 32;
        sn_node **grown = sn_arena_alloc(ps->m, (size_t)cap * sizeof *grown);
        if (ps->n_list) memcpy(grown, ps->list, (size_t)ps->n_list * sizeof *grown);
        ps->list = grown;
        ps->cap_list = cap;
    }
    ps->list[ps->n_list++] = n;
    return true;
}

/* "%1, %2, ..." into ps->list */
static bool parse_node_list(parser *ps) {
    ps->n_list = 0;
    do {
        const name_entry *e = parse_known_ref(ps, &ps->nodes, '%');
        if (!e || !push_node(ps, e->node)) return false;
    } while (accept(ps, ','));
    return true;
}

/* ---- nodes ---- */

typedef struct attr_list {
    int n;
    sn_attr attr[SN_ATTR_COUNT];
    int64_t list[SN_ATTR_COUNT][MAX_LIST];
} attr_list;

static bool parse_attr_value(parser *ps, sn_attr *a, int64_t *list) {
    sn_dtype t;
    const name_entry *e;
    switch (sn_attr_table[a->key].kind) {
    case SN_AK_INT:
        return parse_int(ps, &a->i);
    case SN_AK_FLT:
        return parse_double(ps, &a->f);
    case SN_AK_STR:
        return parse_string(ps, &a->s);
    case SN_AK_DTYPE:
        if (!parse_dtype(ps, &t)) return false;
        a->i = t;
        return true;
    case SN_AK_DIM:
        return parse_dim(ps, &a->i);
    case SN_AK_DIMS:
    case SN_AK_INTS:
        a->v = list;
        return parse_list(ps, sn_attr_table[a->key].kind == SN_AK_DIMS, MAX_LIST, list, &a->n);
    case SN_AK_REGION:
        if (!(e = parse_known_ref(ps, &ps->regions, '@'))) return false;
        if (e->depth > ps->region_depth) ps->region_depth = e->depth;
        a->r = e->region;
        return true;
    }
    return false;
}

static bool parse_attrs(parser *ps, attr_list *l) {
    if (!accept(ps, '{') || accept(ps, '}')) return true;
    do {
        const char *word;
        size_t n = read_word(ps, &word);
        int key = 0;
        while (key < SN_ATTR_COUNT && !word_is(word, n, sn_attr_table[key].name)) key++;
        ps->p = word;
        if (key == SN_ATTR_COUNT) return fail_expected(ps, "the name of an attribute");
        for (int i = 0; i < l->n; i++)
            if ((int)l->attr[i].key == key) return fail_at(ps, word, "duplicate attribute");
        ps->p += n;
        sn_attr *a = &l->attr[l->n];
        *a = (sn_attr){.key = (sn_attr_key)key};
        if (!expect(ps, '=') || !parse_attr_value(ps, a, l->list[l->n])) return false;
        l->n++;
    } while (accept(ps, ','));
    return expect(ps, '}');
}

/* Adds attributes that the type implies, unless given. */
static void add_type_attrs(attr_list *l, sn_op op, const sn_type *t) {
    bool dtype = sn_text_in_type[op] & SN_TYPE_HAS_DTYPE,
         shape = sn_text_in_type[op] & SN_TYPE_HAS_SHAPE;
    for (int i = 0; i < l->n; i++) {
        dtype &= l->attr[i].key != SN_A_dtype;
        shape &= l->attr[i].key != SN_A_shape;
    }
    if (dtype) l->attr[l->n++] = SN_INT(dtype, t->dtype);
    if (shape) l->attr[l->n++] = SN_LIST(shape, t->rank, t->shape);
}

static bool type_is(const sn_node *n, const sn_type *t) {
    return n->dtype == t->dtype && n->rank == t->rank &&
           (!t->rank || !memcmp(n->shape, t->shape, (size_t)t->rank * sizeof *t->shape));
}

static bool check_types(parser *ps, const char *at, const sn_node *n, int n_type,
                        const sn_type *t) {
    if (n_type != n->n_result)
        return fail_at(ps, at, "%s has %d results, but %d types are given", sn_ops[n->op].name,
                       n->n_result, n_type);
    for (int i = 0; i < n_type; i++) {
        const sn_node *is = n_type > 1 ? n->result_type[i] : n;
        char shape[256];
        if (type_is(is, &t[i])) continue;
        sn_shape_print(ps->m, is->rank, is->shape, shape, sizeof shape);
        return fail_at(ps, at, "the type of %s is %s%s, but another type is given",
                       sn_ops[n->op].name, sn_dtype_name((sn_dtype)is->dtype), shape);
    }
    return true;
}

/* "type = op operands {attributes}" after "%name:" */
static bool parse_definition(parser *ps, sn_node **out) {
    sn_type type[SN_MAX_RESULTS];
    int n_type = 0;
    const char *at = (peek(ps), ps->p), *word;
    bool several = accept(ps, '(');
    do {
        if (n_type == SN_MAX_RESULTS) return fail_at(ps, at, "too many results");
        if (!parse_type(ps, &type[n_type++])) return false;
    } while (several && accept(ps, ','));
    if ((several && !expect(ps, ')')) || !expect(ps, '=')) return false;
    char name[32] = "";
    size_t n = read_word(ps, &word);
    if (n < sizeof name) memcpy(name, word, n);
    sn_op op;
    if (!sn_op_parse(name, &op)) {
        ps->p = word;
        return fail_expected(ps, "the name of an op");
    }
    sn_module_set_loc(ps->m, (sn_loc){ps->file, ps->line});
    int line = ps->line;
    const char *line_start = ps->line_start;
    attr_list l;
    l.n = ps->n_list = 0;
    if ((peek(ps) == '%' && !parse_node_list(ps)) || !parse_attrs(ps, &l)) return false;
    add_type_attrs(&l, op, &type[0]);
    sn_node *made = sn_node_new(ps->m, op, ps->n_list, ps->list, l.n, l.attr);
    if (!module_ok(ps)) return false;
    ps->line = line; /* "of the type", for the message */
    ps->line_start = line_start;
    *out = made;
    return check_types(ps, at, made, n_type, type);
}

/* The lines "%name: ..." of a scope. */
static bool parse_nodes(parser *ps) {
    while (peek(ps) == '%') {
        name_entry e = {0};
        e.length = parse_new_ref(ps, &ps->nodes, '%', &e.key);
        if (!e.length || !expect(ps, ':') || !parse_definition(ps, &e.node)) return false;
        add_name(ps, &ps->nodes, e);
    }
    return true;
}

/* ---- modules ---- */

static bool parse_symbol(parser *ps) {
    const char *name;
    int64_t lo, hi = INT64_MAX;
    sn_module_set_loc(ps->m, (sn_loc){ps->file, ps->line});
    if (!parse_name(ps, "the name of a dim", &name)) return false;
    if (!accept_word(ps, "in")) return fail_expected(ps, "'in [low, high]'");
    if (!expect(ps, '[') || !parse_int(ps, &lo) || !expect(ps, ',')) return false;
    if (!accept_word(ps, "inf") && !parse_int(ps, &hi)) return false;
    sn_symbol_add(ps->m, name, lo, hi);
    return module_ok(ps) && expect(ps, ']');
}

static bool parse_region(parser *ps) {
    name_entry region = {0};
    region.length = parse_new_ref(ps, &ps->regions, '@', &region.key);
    sn_module_set_loc(ps->m, (sn_loc){ps->file, ps->line});
    if (!region.length) return false;
    clear_names(&ps->nodes);
    ps->region_depth = ps->n_list = 0;
    if (!expect(ps, '(')) return false;
    for (bool more = peek(ps) != ')'; more; more = accept(ps, ',')) {
        sn_type t;
        name_entry e = {0};
        e.length = parse_new_ref(ps, &ps->nodes, '%', &e.key);
        if (!e.length || !expect(ps, ':') || !parse_type(ps, &t)) return false;
        e.node = sn_arg(ps->m, ps->n_list, t.dtype, t.rank, t.shape);
        if (!module_ok(ps) || !push_node(ps, e.node)) return false;
        add_name(ps, &ps->nodes, e);
    }
    int n_arg = ps->n_list;
    sn_node **arg = sn_arena_alloc(ps->m, (size_t)(n_arg + 1) * sizeof *arg);
    if (n_arg) memcpy(arg, ps->list, (size_t)n_arg * sizeof *arg);
    if (!expect(ps, ')') || !expect(ps, '{') || !parse_nodes(ps)) return false;
    if (!accept_word(ps, "yield")) return fail_expected(ps, "'%number:' or 'yield'");
    if (!parse_node_list(ps) || !expect(ps, '}')) return false;
    region.region = sn_region_new(ps->m, n_arg, arg, ps->n_list, ps->list);
    region.depth = ps->region_depth + 1;
    if (region.depth > MAX_NESTING)
        return fail_at(ps, ps->p, "regions nest deeper than %d", MAX_NESTING);
    add_name(ps, &ps->regions, region);
    return module_ok(ps);
}

static bool parse_entry(parser *ps) {
    static const struct {
        const char *word;
        void (*add)(sn_module *, sn_entry *, const char *, sn_node *);
    } kinds[] = {{"output", sn_entry_output}, {"assign", sn_entry_assign}, {"tap", sn_entry_tap}};
    const size_t n_kind = sizeof kinds / sizeof *kinds;
    const char *name, *at = (peek(ps), ps->p);
    const name_entry *n;
    if (!parse_name(ps, "the name of an entry", &name)) return false;
    if (sn_entry_get(ps->m, name)) return fail_at(ps, at, "duplicate entry");
    sn_entry *e = sn_entry_add(ps->m, name);
    clear_names(&ps->nodes);
    if (!expect(ps, '{')) return false;
    while (!accept(ps, '}')) {
        if (!parse_nodes(ps)) return false;
        if (peek(ps) == '}') continue;
        size_t k = 0;
        while (k < n_kind && !accept_word(ps, kinds[k].word)) k++;
        if (k == n_kind) return fail_expected(ps, "'%number:', output, assign, tap or '}'");
        if (!parse_string(ps, &name) || !expect(ps, '=') ||
            !(n = parse_known_ref(ps, &ps->nodes, '%')))
            return false;
        if (n->node->n_result > 1)
            return fail_at(ps, n->key - 1, "%%%.*s has several results; select one with result",
                           (int)n->length, n->key);
        kinds[k].add(ps->m, e, name, n->node);
    }
    return true;
}

/* describe KIND "ENTRY" "NAME" "TEXT", as sn_module_describe; "": any entry */
static bool parse_text(parser *ps) {
    const char *entry, *name, *text;
    int kind = 0;
    while (kind < SN_TEXT_KINDS && !accept_word(ps, sn_text_kinds[kind])) kind++;
    if (kind == SN_TEXT_KINDS) return fail_expected(ps, "leaf, input, output or dim");
    if (!parse_string(ps, &entry) || !parse_string(ps, &name) || !parse_string(ps, &text))
        return false;
    const char *why = sn_text_problem(ps->m, text);
    if (why) return fail_at(ps, ps->p, "a description %s", why);
    sn_module_describe(ps->m, (sn_text_kind)kind, *entry ? entry : NULL, name, text);
    return true;
}

static bool parse_items(parser *ps) {
    static const struct {
        const char *word;
        bool (*parse)(parser *);
    } items[] = {{"dim", parse_symbol},
                 {"region", parse_region},
                 {"entry", parse_entry},
                 {"describe", parse_text}};
    const size_t n_item = sizeof items / sizeof *items;
    while (peek(ps)) {
        size_t i = 0;
        while (i < n_item && !accept_word(ps, items[i].word)) i++;
        if (i == n_item) return fail_expected(ps, "dim, region, entry or describe");
        if (!items[i].parse(ps)) return false;
    }
    return true;
}

/* NULL and err on malformed text: "file:line:column: expected ..., found ...". The module keeps the
 * setting of raw. */
sn_module *sn_parse(const char *text, const char *file_name, bool raw, sn_error *err) {
    parser ps = {.p = text, .line_start = text, .line = 1, .err = err};
    ps.m = sn_module_new(NULL);
    if (!ps.m) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory for a module");
        return NULL;
    }
    ps.file = sn_arena_str(ps.m, file_name ? file_name : "text");
    sn_module_set_raw(ps.m, raw);
    const char *name;
    bool ok = (accept_word(&ps, "module") || fail_expected(&ps, "'module'")) &&
              parse_name(&ps, "the name of the module", &name);
    if (ok) ps.m->name = sn_arena_str(ps.m, name);
    if (ok && parse_items(&ps)) return ps.m;
    sn_module_free(ps.m);
    return NULL;
}
