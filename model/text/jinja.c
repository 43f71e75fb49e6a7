/* jinja.c: cuts a template into texts, expressions and statements, and runs them. A block that is
 * not executed is walked over, so that what is missing in it does not matter. */
#include "model/text/jinja.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/text/jinja_state.h"
#include "model/tokenizer/tok.h"

/* ---- segments ---- */

typedef enum part_kind { PART_TEXT, PART_PRINT, PART_STATEMENT, PART_END } part_kind;

typedef struct part {
    part_kind kind;
    const char *from, *to; /* the text, or what is inside the braces */
} part;

typedef struct running {
    jinja_state s;
    part *part; /* [count], the last one is PART_END */
    size_t count, capacity;
    sn_bytes *out;
    int depth;
} running;

static bool add_part(running *r, part_kind kind, const char *from, const char *to) {
    if (!sn_grow(&r->part, &r->capacity, r->count + 1, sizeof *r->part, r->s.err)) return false;
    r->part[r->count++] = (part){kind, from, to};
    return true;
}

/* The end of a tag that begins before p: "}}", "%}" or "#}" outside of strings. NULL: none. */
static const char *find_close(const char *p, const char *end, const char *close) {
    char quote = 0;
    for (; end - p >= 2; p++) {
        if (quote && *p == '\\')
            p++;
        else if (quote)
            quote = *p == quote ? 0 : quote;
        else if (!memcmp(p, close, 2))
            return p;
        else if (*close != '#' && (*p == '\'' || *p == '"'))
            quote = *p;
    }
    return NULL;
}

/* Removes the blanks before a statement or comment that is alone on its line so far. */
static const char *strip_line(const char *from, const char *to, const char *source) {
    const char *p = to;
    while (p > from && (p[-1] == ' ' || p[-1] == '\t')) p--;
    return p == source || p[-1] == '\n' ? p : to;
}

/* One tag at `open` after the text from `from`; returns what follows it, NULL: error. */
static const char *cut_tag(running *r, const char *from, const char *open, const char *end) {
    const char kind = open[1], close[3] = {kind == '{' ? '}' : kind, '}', 0};
    const char *inside = open + 2, *stop = find_close(inside, end, close), *text_end = open;
    r->s.at = open;
    if (!stop) {
        sn_jinja_fail(&r->s, "a tag without end:", open, 2);
        return NULL;
    }
    const char *next = stop + 2;
    if (inside < stop && *inside == '-') {
        while (text_end > from && isspace((unsigned char)text_end[-1])) text_end--;
    } else if (kind != '{' && !(inside < stop && *inside == '+'))
        text_end = strip_line(from, open, r->s.source);
    if (inside < stop && (*inside == '-' || *inside == '+')) inside++;
    bool trim = stop > inside && stop[-1] == '-';
    bool keep = stop > inside && stop[-1] == '+';
    if (trim || keep) stop--;
    while (trim && next < end && isspace((unsigned char)*next)) next++;
    if (!trim && !keep && kind != '{' && next < end && *next == '\n') next++;
    if (!add_part(r, PART_TEXT, from, text_end)) return NULL;
    if (kind != '#' && !add_part(r, kind == '{' ? PART_PRINT : PART_STATEMENT, inside, stop))
        return NULL;
    return next;
}

static bool cut_source(running *r, const char *source) {
    const char *at = source, *end = source + strlen(source), *open;
    if (end > source && end[-1] == '\n') end--; /* keep_trailing_newline is off */
    for (open = at; end - open >= 2;) {
        if (*open != '{' || !strchr("{%#", open[1])) {
            open++;
            continue;
        }
        if (!(at = open = cut_tag(r, at, open, end))) return false;
    }
    return add_part(r, PART_TEXT, at, end) && add_part(r, PART_END, end, end);
}

/* ---- statements ---- */

/* Positions the reader at a statement, after its keyword if it is `word`. */
static bool is_statement(running *r, size_t at, const char *word) {
    r->s.at = r->part[at].from, r->s.end = r->part[at].to;
    return r->part[at].kind == PART_STATEMENT && sn_jinja_take(&r->s, word);
}

static bool unsupported(running *r, size_t at) {
    const part *p = &r->part[at];
    const char *word = p->from;
    while (word < p->to && isspace((unsigned char)*word)) word++;
    size_t n = 0;
    while (word + n < p->to && !isspace((unsigned char)word[n])) n++;
    r->s.at = word;
    return sn_jinja_fail(
        &r->s, p->kind == PART_END ? "a block without end" : "unsupported statement", word, n);
}

static bool ends(running *r) {
    sn_jinja_skip_space(&r->s);
    size_t left = (size_t)(r->s.end - r->s.at);
    return !left || sn_jinja_fail(&r->s, "unexpected", r->s.at, left);
}

/* Runs parts up to a statement that ends or continues a block; *at: its index. */
static bool run_block(running *r, size_t *at, bool live);

static bool run_if(running *r, size_t *at, bool live) {
    bool done = false;
    for (bool first = true;; first = false) {
        bool now = live && !done;
        if (first || is_statement(r, *at, "elif")) {
            jinja_value *v = sn_jinja_expression(&r->s, now);
            if (!v || !ends(r)) return false;
            now = now && sn_jinja_true(v);
        } else if (is_statement(r, *at, "endif")) {
            return true;
        } else if (!is_statement(r, *at, "else"))
            return unsupported(r, *at);
        done = done || now;
        ++*at;
        if (!run_block(r, at, now)) return false;
    }
}

typedef struct loop {
    const char *name[2];
    size_t size[2];
    int names;
    const char *condition, *end; /* NULL: none */
    jinja_value *list;
} loop;

static bool read_loop(running *r, loop *l, bool live) {
    jinja_state *s = &r->s;
    *l = (loop){.names = 0};
    do {
        if (l->names == 2 || !sn_jinja_take_name(s, &l->name[l->names], &l->size[l->names]))
            return sn_jinja_fail(s, "unsupported variables of", "for", 3);
        l->names++;
    } while (sn_jinja_take(s, ","));
    if (!sn_jinja_take(s, "in")) return sn_jinja_fail(s, "expected `in` after", "for", 3);
    if (!(l->list = sn_jinja_operand(s, live))) return false;
    if (sn_jinja_take(s, "if")) {
        l->condition = s->at, l->end = s->end;
        if (!sn_jinja_expression(s, false)) return false;
    }
    return ends(r);
}

static bool bind(running *r, const loop *l, jinja_value *item) {
    if (l->names == 1) return sn_jinja_assign(&r->s, l->name[0], l->size[0], item);
    if (item->kind != JINJA_LIST || item->size != 2)
        return sn_jinja_fail(&r->s, "cannot unpack into", l->name[0], l->size[0]);
    return sn_jinja_assign(&r->s, l->name[0], l->size[0], item->item[0]) &&
           sn_jinja_assign(&r->s, l->name[1], l->size[1], item->item[1]);
}

/* The items for which the condition holds. */
static jinja_value *select_items(running *r, const loop *l) {
    jinja_value *chosen = sn_jinja_new(&r->s.arena, JINJA_LIST);
    const bool dict = l->list->kind == JINJA_DICT;
    for (size_t i = 0; l->list->kind >= JINJA_LIST && i < l->list->size; i++) {
        jinja_value *item = dict ? l->list->key[i] : l->list->item[i], *holds = NULL;
        if (l->condition) {
            r->s.at = l->condition, r->s.end = l->end;
            if (!bind(r, l, item) || !(holds = sn_jinja_expression(&r->s, true))) return NULL;
        }
        if (!holds || sn_jinja_true(holds)) sn_jinja_append(&r->s.arena, chosen, item);
    }
    return chosen;
}

static bool bind_loop(running *r, const jinja_value *list, size_t i) {
    jinja_arena *a = &r->s.arena;
    jinja_value *v = sn_jinja_new(a, JINJA_DICT);
    sn_jinja_set(a, v, "index", sn_jinja_int(a, (int64_t)i + 1));
    sn_jinja_set(a, v, "index0", sn_jinja_int(a, (int64_t)i));
    sn_jinja_set(a, v, "first", sn_jinja_bool(a, i == 0));
    sn_jinja_set(a, v, "last", sn_jinja_bool(a, i + 1 == list->size));
    sn_jinja_set(a, v, "length", sn_jinja_int(a, (int64_t)list->size));
    if (i) sn_jinja_set(a, v, "previtem", list->item[i - 1]);
    if (i + 1 < list->size) sn_jinja_set(a, v, "nextitem", list->item[i + 1]);
    return sn_jinja_assign(&r->s, "loop", 4, v);
}

static bool run_for(running *r, size_t *at, bool live) {
    loop l;
    jinja_state *s = &r->s;
    size_t body = *at + 1, variables = s->variables, scope = s->scope;
    if (!read_loop(r, &l, live)) return false;
    s->scope = s->variables;
    jinja_value *list = live ? select_items(r, &l) : sn_jinja_new(&s->arena, JINJA_LIST);
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < list->size; i++) {
        s->variables = s->scope;
        *at = body;
        ok = bind(r, &l, list->item[i]) && bind_loop(r, list, i) && run_block(r, at, true);
    }
    s->variables = variables, s->scope = scope;
    if (!ok) return false;
    *at = body;
    if (!run_block(r, at, false)) return false;
    if (is_statement(r, *at, "else")) {
        ++*at;
        if (!run_block(r, at, live && !list->size)) return false;
    }
    return is_statement(r, *at, "endfor") || unsupported(r, *at);
}

/* After "set": name = expression, or a member of a namespace. */
static bool run_set(running *r, size_t at, bool live) {
    jinja_state *s = &r->s;
    const char *name, *member = NULL;
    size_t size, member_size = 0;
    if (!sn_jinja_take_name(s, &name, &size)) return unsupported(r, at);
    if (sn_jinja_take(s, ".") && !sn_jinja_take_name(s, &member, &member_size))
        return unsupported(r, at);
    if (!sn_jinja_take(s, "="))
        return sn_jinja_fail(s, "unsupported statement: set without =, of", name, size);
    jinja_value *v = sn_jinja_expression(s, live);
    if (!v || !ends(r)) return false;
    if (!live) return true;
    if (!member) return sn_jinja_assign(s, name, size, v);
    jinja_value *space = sn_jinja_find(s, name, size);
    jinja_value *key = sn_jinja_text(&s->arena, member, member_size);
    if (space->kind != JINJA_DICT) return sn_jinja_fail(s, "not a namespace:", name, size);
    if (key->kind == JINJA_TEXT) sn_jinja_set(&s->arena, space, key->text, v);
    return true;
}

static bool is_boundary(running *r, size_t at) {
    static const char *const words[] = {"endif", "endfor", "else", "elif"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_statement(r, at, words[i])) return true;
    return r->part[at].kind == PART_END;
}

static bool run_statement(running *r, size_t *at, bool live) {
    if (is_statement(r, *at, "if")) return run_if(r, at, live);
    if (is_statement(r, *at, "for")) return run_for(r, at, live);
    if (is_statement(r, *at, "set")) return run_set(r, *at, live);
    /* what marks the answers of the assistant for training */
    if (is_statement(r, *at, "generation") || is_statement(r, *at, "endgeneration")) return true;
    return !live || unsupported(r, *at);
}

static bool run_block(running *r, size_t *at, bool live) {
    if (r->depth >= JINJA_DEPTH) return sn_jinja_fail(&r->s, "blocks are nested too deeply", "", 0);
    r->depth++;
    jinja_arena *a = &r->s.arena;
    bool ok = true;
    for (; ok && !is_boundary(r, *at); ++*at) {
        const part *p = &r->part[*at];
        const size_t size = (size_t)(p->to - p->from);
        r->s.at = p->from, r->s.end = p->to;
        if (!sn_jinja_spend(a, 1 + size / 64, live && p->kind == PART_TEXT ? size : 0)) {
            ok = sn_jinja_fail(&r->s, "", "", 0);
        } else if (p->kind == PART_STATEMENT) {
            ok = run_statement(r, at, live);
        } else if (p->kind == PART_TEXT) {
            ok = !live || sn_bytes_append(r->out, p->from, size, r->s.err);
        } else if (live) {
            jinja_value *v = sn_jinja_expression(&r->s, true);
            ok = v && ends(r) && (sn_jinja_print(a, v, r->out) || sn_jinja_fail(&r->s, "", "", 0));
        }
    }
    r->depth--;
    return ok;
}

/* ---- the chat ---- */

static jinja_value *text_or_undefined(jinja_arena *a, const char *text) {
    return text ? sn_jinja_text(a, text, strlen(text)) : sn_jinja_new(a, JINJA_UNDEFINED);
}

static bool bind_chat(running *r, const sn_chat *chat) {
    jinja_arena *a = &r->s.arena;
    jinja_value *list = sn_jinja_new(a, JINJA_LIST);
    for (size_t i = 0; i < chat->count; i++) {
        jinja_value *message = sn_jinja_new(a, JINJA_DICT);
        sn_jinja_set(a, message, "role", text_or_undefined(a, chat->message[i].role));
        sn_jinja_set(a, message, "content", text_or_undefined(a, chat->message[i].content));
        sn_jinja_append(a, list, message);
    }
    return sn_jinja_assign(&r->s, "messages", 8, list) &&
           sn_jinja_assign(&r->s, "add_generation_prompt", 21,
                           sn_jinja_bool(a, chat->add_generation_prompt)) &&
           sn_jinja_assign(&r->s, "tools", 5, sn_jinja_new(a, JINJA_NONE)) &&
           sn_jinja_assign(&r->s, "documents", 9, sn_jinja_new(a, JINJA_NONE)) &&
           sn_jinja_assign(&r->s, "bos_token", 9, text_or_undefined(a, chat->bos)) &&
           sn_jinja_assign(&r->s, "eos_token", 9, text_or_undefined(a, chat->eos));
}

bool sn_chat_render(const char *text, const sn_chat *chat, sn_bytes *out, sn_error *err) {
    if (!sn_given(text, "sn_chat_render", "the template", err) ||
        !sn_given(chat, "sn_chat_render", "the chat", err) ||
        !sn_given(out, "sn_chat_render", "the buffer for the text", err))
        return false;
    sn_error why = {0};
    running *r = calloc(1, sizeof *r);
    if (!r) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    r->s.source = r->s.at = text;
    r->s.err = &why;
    r->out = out;
    size_t at = 0, before = out->size;
    bool ok = sn_bytes_append(out, "", 0, &why) && cut_source(r, text) && bind_chat(r, chat) &&
              run_block(r, &at, true) && (r->part[at].kind == PART_END || unsupported(r, at)) &&
              (!r->s.arena.failed || sn_jinja_fail(&r->s, "", "", 0));
    if (!ok && out->data) out->data[out->size = before] = 0;
    if (!ok)
        sn_fail(err, why.code ? why.code : SN_ERR_MEMORY, "%s",
                why.code ? why.message : "out of memory");
    sn_jinja_free(&r->s.arena);
    free(r->part);
    free(r);
    return ok;
}
