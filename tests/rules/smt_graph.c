/* smt_graph.c: both sides of a row as graphs, in the notation of ir/print.c, with a value for each node. */
#include "tests/rules/smt.h"

#include <string.h>

enum { MAX_LINES = 64 };

typedef struct writer {
    const sn_form *form;
    const smt_view *view;
    smt_graph *to;
    const char *line[MAX_LINES]; /* of this side, by number */
    int n;
} writer;

/* The number of the node with this text. */
static int add_line(writer *w, const char *type, const char *text, const char *sort,
                    const char *term) {
    const char *line = smt_text("%s[] = %s", type, text);
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->line[i], line)) return i;
    if (w->n == MAX_LINES || w->to->n == SMT_MAX_LINES) return -1;
    w->line[w->n] = line;
    w->to->line[w->to->n++] =
        (smt_line){.text = smt_text("  %%%d: %s", w->n, line), .sort = sort, .term = term};
    return w->n++;
}

static int add_term(writer *w, const sn_term *t, const char *path) {
    const sn_term *op = t->kind == SN_TERM_NODE ? smt_operation(w->form->pattern, t->letter) : NULL;
    const char *operands = "", *type, *sort;
    if (t->kind == SN_TERM_SPREAD) return add_term(w, t->in[0], path);
    if (op && w->view->follows_names) return add_term(w, op, path);
    const char *term = w->view->term(w->view->ctx, t, path, &type, &sort);
    if (t->kind == SN_TERM_NUMBER)
        return add_line(w, type, smt_text("const {value=%g}", t->number), sort, term);
    if (t->is_number && t->kind == SN_TERM_CONSTANT)
        return add_line(w, type, smt_text("const {name=\"#%c\"}", t->letter), sort, term);
    if (t->kind == SN_TERM_NODE)
        return add_line(w, type, smt_text("input {name=\"%c%s\"}", t->letter, path), sort, term);
    const sn_op of = t->op == SN_OP_COUNT ? w->view->comparison : t->op;
    const bool moves = of == SN_OP_reshape || of == SN_OP_transpose || of == SN_OP_broadcast;
    for (int i = 0; i < t->n_in; i++) {
        if (t->in[i]->kind == SN_TERM_REST) continue;
        const int at =
            add_term(w, t->in[i], moves ? smt_text("%s.%s", path, sn_ops[of].name) : path);
        operands = smt_text("%s%s%%%d", operands, i ? ", " : " ", at);
    }
    return add_line(w, type, smt_text("%s%s", sn_ops[of].name, operands), sort, term);
}

static void add_side(smt_graph *g, const sn_form *form, const smt_view *view, const char *name,
                     const sn_term *t) {
    writer w = {.form = form, .view = view, .to = g};
    if (g->n + 3 > SMT_MAX_LINES) return;
    g->line[g->n++].text = smt_text("%s {", name);
    const int at = add_term(&w, t, "");
    if (g->n + 2 > SMT_MAX_LINES) return;
    g->line[g->n] = (smt_line){.text = smt_text("  output %%%d", at)};
    const char *type, *term = view->term(view->ctx, t, "", &type, &g->line[g->n].sort);
    g->line[g->n++].term = term;
    g->line[g->n++].text = "}";
}

smt_graph *smt_graph_of(const sn_form *form, const smt_view *view) {
    smt_graph *g = smt_room(sizeof *g);
    add_side(g, form, view, "before", form->pattern);
    add_side(g, form, view, "after", form->replacement);
    return g;
}

const char *smt_graph_questions(const smt_graph *g) {
    const char *text = "";
    for (int i = 0; i < g->n; i++)
        if (g->line[i].term)
            text = smt_text("%s(define-fun g%d () %s %s)\n", text, i, g->line[i].sort,
                            g->line[i].term);
    for (int i = 0; i < g->n; i++)
        if (g->line[i].term) text = smt_text("%s(get-value (g%d))\n", text, i);
    return text;
}

/* ---- values ---- */

static const char *skip(const char *s) {
    while (*s == ' ' || *s == ')') s++;
    return s;
}

/* The value at *s as people write it. */
static const char *value_at(const char **s) {
    static const struct {
        const char *solver, *text;
    } words[] = {{"(zero false)", "0"},  {"(zero true)", "-0"}, {"(inf false)", "inf"},
                 {"(inf true)", "-inf"}, {"nan", "nan"},        {"true", "true"},
                 {"false", "false"}};
    *s = skip(*s);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(*s, words[i].solver, strlen(words[i].solver)))
            return *s += strlen(words[i].solver), words[i].text;
    if (!strncmp(*s, "(fin ", 5)) return *s += 5, value_at(s);
    if (!strncmp(*s, "(- ", 3)) return *s += 3, smt_text("-%s", value_at(s));
    if (!strncmp(*s, "(/ ", 3)) {
        *s += 3;
        const char *above = value_at(s), *below = value_at(s);
        return smt_text("%s/%s", above, below);
    }
    const size_t n = strcspn(*s, " )\n"), whole = strspn(*s, "0123456789");
    const char *text =
        smt_text("%.*s", (int)(!strncmp(*s + whole, ".0", 2) && n == whole + 2 ? whole : n), *s);
    *s += n;
    return text;
}

const char *smt_graph_text(const smt_graph *g, const char **answer) {
    const char *text = "";
    for (int i = 0; i < g->n; i++) {
        const char *value = "";
        if (g->line[i].term) {
            const char *at = strchr(*answer, ' '), *end = strchr(*answer, '\n');
            if (!at || !end || strncmp(*answer, "((g", 3)) return NULL;
            value = smt_text("  -> %s", value_at(&at));
            *answer = end + 1;
        }
        text = smt_text("%s%s%s\n", text, g->line[i].text, value);
    }
    return text;
}
