/* inspect_attention.c: draws attention maps: one square per head, queries as rows, keys as columns,
 * darker means a larger weight [PH22 A4 line 6]. */
#include "model/inspect/inspect.h"
#include "runtime/cli/json_out.h"
#include "runtime/cli/drawing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 256, GAP = 14, TITLE = 22, LABEL_LIMIT = 48 };

/* The names of the weights: sn_model_attention's tap, nano-gpt's, TSE-GPT's. */
static bool is_map(const inspect_options *o, const char *name) {
    (void)o;
    static const char *const last[] = {"attention", "attSm", "pattern"};
    const char *dot = strrchr(name, '.'), *base = dot ? dot + 1 : name;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        if (!strcmp(base, last[i])) return true;
    return false;
}

/* A map: all heads of one attention, [1, H, Tq, Tk] or, with one head, [1, Tq, Tk]. */
typedef struct map {
    const inspect_tensor *t;
    int64_t heads, rows, columns;
} map;

static map map_of(const inspect_tensor *t) {
    return (map){t, t->rank == 4 ? t->shape[1] : 1, t->shape[t->rank - 2], t->shape[t->rank - 1]};
}

/* ---- selection ---- */

typedef struct selection {
    int first, end;     /* of the maps */
    int64_t head, last; /* of each map */
} selection;

static bool reject(const look *l, const char *what, sn_error *err) {
    char names[512];
    size_t n = 0;
    for (int i = 0; i < l->n && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%d: %s", i ? ", " : "", i,
                              l->list[i].name);
    return sn_fail(err, SN_ERR_USAGE, "no attention layer '%s'; the layers are %s%s", what, names,
                   n < sizeof names ? "" : " …");
}

/* "all", or LAYER[:HEAD], LAYER a number or a prefix of a tap's name. */
static bool select_maps(const look *l, const char *what, selection *s, sn_error *err) {
    if (!l->n)
        return sn_fail(err, SN_ERR_USAGE, "a %s model has no attention maps", l->m->model.type);
    *s = (selection){0, l->n, 0, INT64_MAX};
    const char *colon = strrchr(what, ':');
    size_t size = colon ? (size_t)(colon - what) : strlen(what);
    char layer[256], *end;
    if (!size || size >= sizeof layer) return reject(l, what, err);
    memcpy(layer, what, size);
    layer[size] = 0;
    if (strcmp(layer, "all")) {
        long i = strtol(layer, &end, 10);
        if (*end)
            for (i = 0; i < l->n; i++)
                if (!strncmp(l->list[i].name, layer, size) &&
                    (l->list[i].name[size] == '.' || !l->list[i].name[size]))
                    break;
        if (i < 0 || i >= l->n) return reject(l, layer, err);
        s->first = (int)i, s->end = (int)i + 1;
    }
    if (!colon) return true;
    int64_t heads = map_of(&l->list[s->first]).heads;
    s->head = strtol(colon + 1, &end, 10);
    if (!colon[1] || *end || s->head < 0 || s->head >= heads)
        return sn_fail(err, SN_ERR_USAGE, "no head '%s': %s has heads 0 to %lld", colon + 1,
                       l->list[s->first].name, (long long)heads - 1);
    s->last = s->head;
    return true;
}

/* ---- the picture ---- */

static void print_escaped(FILE *f, const char *s) {
    for (; *s; s++) {
        const char *name = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : NULL;
        if (name)
            fputs(name, f);
        else
            fputc(*s, f);
    }
}

/* Draws one head at (x, y). Equal neighbours become one rectangle; weights below 1/200 are
 * omitted. */
static void draw_head(FILE *f, const map *p, int64_t head, int x, int y, int cell) {
    enum { SHADES = 100 };
    fprintf(f, "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#bbb'/>\n", x, y,
            (int)p->columns * cell, (int)p->rows * cell);
    for (int64_t r = 0; r < p->rows; r++) {
        const float *w = p->t->data + (head * p->rows + r) * p->columns;
        for (int64_t c = 0, n; c < p->columns; c += n) {
            int shade = (int)(w[c] * SHADES + 0.5f);
            for (n = 1; c + n < p->columns && (int)(w[c + n] * SHADES + 0.5f) == shade;) n++;
            if (shade > 0)
                fprintf(f,
                        "<rect x='%d' y='%d' width='%d' height='%d' fill='#0d47a1' "
                        "fill-opacity='%.2f'/>\n",
                        x + (int)c * cell, y + (int)r * cell, (int)n * cell, cell,
                        shade / (double)SHADES);
        }
    }
}

/* Which tokens label the axes: in an encoder-decoder, the encoder's maps have the source on both
 * axes, the decoder's cross-attention has the source as keys. */
static bool reads_source(const look *l, const char *name, bool query) {
    if (!l->source.count) return false;
    return !strncmp(name, "encoder.", 8) || (!query && strstr(name, ".cross."));
}

/* The text of token i of an axis. */
static const char *label_of(const look *l, bool source, size_t i, char text[64]) {
    const sn_ids *ids = source ? &l->source : &l->tokens;
    const sn_tokenizer *t = source && l->m->io->source ? l->m->io->source : l->m->io->tokenizer;
    return i < ids->count ? inspect_token(t, ids->data[i], text) : "";
}

static void draw_queries(FILE *f, const look *l, const map *p, int x, int y, int cell) {
    char text[64];
    for (int i = 0; i < p->rows; i++) {
        fprintf(f, "<text x='%d' y='%d' text-anchor='end'>", x - 4, y + i * cell + cell / 2 + 4);
        print_escaped(f, label_of(l, reads_source(l, p->t->name, true), (size_t)i, text));
        fputs("</text>\n", f);
    }
}

static void draw_keys(FILE *f, const look *l, const map *p, int x, int y, int cell) {
    char text[64];
    for (int i = 0; i < p->columns; i++) {
        fprintf(f, "<text transform='translate(%d,%d) rotate(-60)'>", x + i * cell + cell / 2 + 3,
                y - 4);
        print_escaped(f, label_of(l, reads_source(l, p->t->name, false), (size_t)i, text));
        fputs("</text>\n", f);
    }
}

/* Sizes of a picture: every layer is a row of panels, one for each head. */
typedef struct layout {
    int cell, square, left, above; /* above: captions and labels of a row of panels */
    bool labels;                   /* of each row and column; else a strip lists the tokens */
    int heads;                     /* panels in a row */
    int strip;                     /* lines of the strip */
} layout;

static layout plan_layout(const look *l, const selection *s) {
    enum { LEAST_LABELLED = 9, PER_LINE = 16 };
    int64_t side = 1;
    layout k = {0};
    for (int i = s->first; i < s->end; i++) {
        map p = map_of(&l->list[i]);
        int64_t drawn = (s->last < p.heads ? s->last + 1 : p.heads) - s->head;
        k.heads = drawn > k.heads ? (int)drawn : k.heads;
        side = p.rows > side ? p.rows : side;
        side = p.columns > side ? p.columns : side;
    }
    bool single = k.heads == 1 && s->end - s->first == 1;
    k.cell =
        single ? (side <= 32 ? 18 : 576 / (int)side + 1) : (side <= 16 ? 13 : 200 / (int)side + 1);
    k.labels = k.cell >= LEAST_LABELLED && side <= LABEL_LIMIT;
    k.square = (int)side * k.cell;
    k.left = k.labels ? 110 : 20;
    k.above = TITLE + (k.labels ? 56 : 4);
    k.strip = k.labels ? 0 : (int)((l->tokens.count + PER_LINE - 1) / PER_LINE);
    return k;
}

/* "0 The  1 cat  …": what the rows and columns of unlabelled panels are. */
static void draw_strip(FILE *f, const look *l, const layout *k, int y) {
    for (int line = 0; line < k->strip; line++) {
        fprintf(f, "<text x='20' y='%d' fill='#555'>", y + 16 * line);
        for (size_t i = (size_t)line * 16; i < (size_t)(line + 1) * 16 && i < l->tokens.count;
             i++) {
            char text[64];
            fprintf(f, "<tspan font-size='8' dx='7'>%zu</tspan> ", i);
            print_escaped(f, label_of(l, false, i, text));
        }
        fputs("</text>\n", f);
    }
}

/* The shades from 0 to 1, from x to the right. */
static void draw_scale(FILE *f, int x, int y) {
    fprintf(f, "<text x='%d' y='%d' text-anchor='end'>weight 0</text>", x - 4, y + 10);
    for (int i = 0; i <= 20; i++)
        fprintf(f, "<rect x='%d' y='%d' width='6' height='12' fill='#0d47a1' fill-opacity='%.2f'/>",
                x + 6 * i, y, i / 20.0);
    fprintf(f, "<text x='%d' y='%d'>1</text>\n", x + 130, y + 10);
}

static void draw_row(FILE *f, const look *l, const selection *s, const layout *k, const map *p,
                     int y) {
    int64_t last = s->last < p->heads ? s->last : p->heads - 1;
    fprintf(f, "<text x='%d' y='%d' font-weight='bold'>", k->left, y);
    print_escaped(f, p->t->name);
    fputs("</text>\n", f);
    for (int64_t h = s->head; h <= last; h++) {
        int x = k->left + (int)(h - s->head) * (k->square + GAP + (k->labels ? 24 : 0));
        fprintf(f, "<text x='%d' y='%d'>head %lld</text>\n", x, y + 13, (long long)h);
        draw_head(f, p, h, x, y + k->above, k->cell);
        if (k->labels) draw_keys(f, l, p, x, y + k->above, k->cell);
        if (k->labels && h == s->head) draw_queries(f, l, p, x, y + k->above, k->cell);
    }
}

static void draw(FILE *f, const look *l, const selection *s) {
    enum { HEAD = 56, LEAST_WIDTH = 780 };
    layout k = plan_layout(l, s);
    int pitch = k.square + GAP + (k.labels ? 24 : 0), top = HEAD + 16 * k.strip;
    int width = k.left + k.heads * pitch + 40, row = k.above + k.square + 2 * GAP;
    fprintf(
        f,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
        "font-family='sans-serif' font-size='11'>\n"
        "<rect width='100%%' height='100%%' fill='white'/>\n"
        "<text x='20' y='24' font-size='14'>Attention of a %s model, %zu tokens; rows: queries, "
        "columns: keys</text>\n",
        width > LEAST_WIDTH ? width : LEAST_WIDTH, top + (s->end - s->first) * row + 20,
        l->m->model.type, l->tokens.count);
    draw_scale(f, (width > LEAST_WIDTH ? width : LEAST_WIDTH) - 160, 12);
    draw_strip(f, l, &k, HEAD);
    for (int i = s->first; i < s->end; i++) {
        map p = map_of(&l->list[i]);
        draw_row(f, l, s, &k, &p, top + (i - s->first) * row);
    }
    fputs("</svg>\n", f);
}

static bool write_picture(const look *l, const selection *s, const char *path, sn_error *err) {
    drawing p;
    if (!sn_drawing_open(&p, path, err)) return false;
    draw(p.f, l, s);
    return sn_drawing_close(&p, err);
}

bool inspect_attention(const inspect_options *o, sn_error *err) {
    look l = {0};
    selection s = {0};
    const char *path = o->output ? o->output : "attention.svg";
    bool ok = inspect_run(&l, o, SN_FORWARD | SN_ENCODE, is_map, NULL, err) &&
              select_maps(&l, o->attention, &s, err);
    size_t count = l.tokens.count > l.source.count ? l.tokens.count : l.source.count;
    if (ok && count > MAX_TOKENS)
        ok = sn_fail(err, SN_ERR_USAGE, "%zu tokens are too many for a picture: the maximum is %d",
                     count, MAX_TOKENS);
    if (ok) ok = write_picture(&l, &s, path, err);
    if (ok && sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "output", path);
        sn_json_integer(&j, "layers", s.end - s.first);
        sn_json_end(&j);
    } else if (ok)
        printf("%s: %d attention layer%s, %zu tokens\n", path, s.end - s.first,
               s.end - s.first > 1 ? "s" : "", count);
    inspect_close(&l);
    return ok;
}
