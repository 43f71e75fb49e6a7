/* listing.c: assembler text and LLVM's IR of an artefact. A comment above each kernel lists its calls:
 * entries, place in the model, family, result, what is fused, and the line of the model's source. */
#include "codegen/aot/aot.h"
#include "codegen/program/calls.h"
#include "runtime/str.h"

#include <stdlib.h>
#include <string.h>

typedef struct row { /* calls of a kernel that are alike but for numbers in their names */
    const char *kernel, *entry, *rest;
    char *name; /* malloc'ed */
    int n;
} row;

typedef struct listing {
    sn_aot *a;
    row *row; /* arena memory */
    int n, cap;
    const char *comment;
    bool ir;
    FILE *out;
} listing;

/* All of a call but its name. */
static const char *describe(sn_module *m, const sn_kernel_call *c) {
    const char *s = sn_arena_printf(m, "%s %s", c->family, c->result);
    if (*c->fused) s = sn_arena_printf(m, "%s, %s", s, c->fused);
    if (*c->file) s = sn_arena_printf(m, "%s, %s:%d", s, sn_base_name(c->file), c->line);
    return s;
}

static bool add_call(listing *l, const char *kernel, const char *entry, const sn_kernel_call *c) {
    sn_module *m = l->a->m;
    const char *rest = describe(m, c);
    for (int i = 0; i < l->n; i++) {
        row *r = &l->row[i];
        if (strcmp(r->kernel, kernel) || strcmp(r->entry, entry) || strcmp(r->rest, rest) ||
            !sn_call_similar_names(r->name, c->name))
            continue;
        char *common = sn_call_common_name(r->name, c->name);
        if (!common) return false;
        free(r->name);
        r->name = common;
        r->n++;
        return true;
    }
    char *name = strdup(c->name);
    if (!name) return false;
    l->row = sn_arena_grow(m, l->row, sizeof *l->row, l->n, &l->cap);
    l->row[l->n++] = (row){kernel, entry, rest, name, 1};
    return true;
}

static bool add_entry(listing *l, int v, const char *entry) {
    const sn_kernel_call *list;
    char prefix[96];
    int n = sn_program_calls(l->a->variant[v].program, entry, NULL, &list, l->a->err);
    sn_aot_prefix(l->a, v, prefix);
    for (int i = 0; i < n; i++) {
        if (strncmp(list[i].kernel, "sn_", 3)) continue; /* a call of the communicator */
        const char *kernel = sn_arena_printf(l->a->m, "%s%s", prefix, list[i].kernel + 3);
        if (!add_call(l, kernel, entry, &list[i]))
            return sn_fail(l->a->err, SN_ERR_MEMORY, "out of memory for a listing");
    }
    return n >= 0;
}

/* The function whose definition begins in this line; false: none. */
static bool defines(const listing *l, const char *line, size_t n, char name[256]) {
    const char *from = line, *end;
    if (l->ir) {
        if (n < 7 || strncmp(line, "define ", 7)) return false;
        from = memchr(line, '@', n);
        end = from ? memchr(from, '(', n - (size_t)(from - line)) : NULL;
        from = from ? from + 1 : line;
    } else {
        if (!n || strchr(" \t.#/;", *line)) return false;
        end = memchr(line, ':', n);
    }
    if (!end || end - from >= 256) return false;
    snprintf(name, 256, "%.*s", (int)(end - from), from);
    return true;
}

static bool alike(const row *x, const row *y) {
    return !strcmp(x->kernel, y->kernel) && !strcmp(x->name, y->name) &&
           !strcmp(x->rest, y->rest) && x->n == y->n;
}

/* One line for calls that several entries make alike. */
static void print_calls(const listing *l, const char *name) {
    for (int i = 0; i < l->n; i++) {
        const row *r = &l->row[i];
        bool printed = false;
        /* Mach-O's names begin with an underscore */
        if (strcmp(r->kernel, name) && (*name != '_' || strcmp(r->kernel, name + 1))) continue;
        for (int k = 0; k < i; k++) printed |= alike(&l->row[k], r);
        if (printed) continue;
        fprintf(l->out, "%s %s", l->comment, r->entry);
        for (int k = i + 1; k < l->n; k++)
            if (alike(&l->row[k], r)) fprintf(l->out, ", %s", l->row[k].entry);
        fprintf(l->out, ": %s%s%s", r->name, *r->name ? ": " : "", r->rest);
        fprintf(l->out, r->n > 1 ? " (%d calls)\n" : "\n", r->n);
    }
}

static void annotate(const listing *l, const sn_object *text) {
    const char *s = (const char *)text->data, *end = s + text->size;
    char name[256];
    for (size_t n; s < end; s += n) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        n = stop ? (size_t)(stop + 1 - s) : (size_t)(end - s);
        if (defines(l, s, n, name)) print_calls(l, name);
        fwrite(s, 1, n, l->out);
    }
}

static bool write_text(listing *l, const sn_object *plain, sn_object *out) {
    char *text = NULL;
    l->out = open_memstream(&text, &out->size);
    if (l->out) {
        fprintf(l->out, "%s %s%s by Sinter %s\n", l->comment, l->a->name, l->ir ? ".ll" : ".s",
                SN_VERSION);
        annotate(l, plain);
    }
    bool ok = l->out && !ferror(l->out);
    if (l->out && fclose(l->out)) ok = false;
    out->data = (uint8_t *)text;
    return ok || sn_fail(l->a->err, SN_ERR_MEMORY, "out of memory for a listing");
}

bool sn_aot_listing(sn_aot *a, sn_form form, sn_object *out) {
    const sn_target *t = &a->variant[0].target;
    sn_object plain = {0};
    listing l = {.a = a, .ir = form == SN_FORM_IR};
    l.comment = l.ir ? ";" : t->arch == SN_ARCH_AARCH64 ? "//" : "#";
    bool ok = sn_bitcode_write(a->bitcode, t, form, &plain, a->err);
    for (int v = 0; v < a->n_variant; v++)
        for (int i = 0; ok && i < a->n_entry; i++) ok = add_entry(&l, v, a->entry[i].name);
    ok = ok && write_text(&l, &plain, out);
    for (int i = 0; i < l.n; i++) free(l.row[i].name);
    sn_object_free(&plain);
    return ok;
}

static bool take_lines(sn_aot *a, int v, const char *entry, sn_source_line **line, int *n,
                       int *cap) {
    const sn_kernel_call *list;
    int calls = sn_program_calls(a->variant[v].program, entry, NULL, &list, a->err);
    for (int i = 0; i < calls; i++) {
        if (strncmp(list[i].kernel, "sn_", 3) || !*list[i].file) continue;
        *line = sn_arena_grow(a->m, *line, sizeof **line, *n, cap);
        (*line)[(*n)++] = (sn_source_line){list[i].kernel + 3, list[i].file, list[i].line};
    }
    return calls >= 0;
}

bool sn_aot_add_lines(sn_aot *a) {
    sn_source_line *line = NULL;
    int n = 0, cap = 0;
    for (int v = 0; v < a->n_variant; v++)
        for (int i = 0; i < a->n_entry; i++)
            if (!take_lines(a, v, a->entry[i].name, &line, &n, &cap)) return false;
    return sn_bitcode_add_lines(a->bitcode, line, n, a->err);
}
