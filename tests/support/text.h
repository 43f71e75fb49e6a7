/* text.h: a module, the output of explain, or a file as text. The caller frees it; out of memory
 * and a missing file end the test. */
#ifndef SN_TESTS_TEXT_H
#define SN_TESTS_TEXT_H

#include "frontend/sinter.h"
#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct text_stream {
    FILE *f;
    char *text;
    size_t size;
} text_stream;

static inline void text_open(text_stream *s) {
    s->f = open_memstream(&s->text, &s->size);
    if (!s->f) abort();
}

static inline char *text_close(text_stream *s) {
    if (fclose(s->f)) abort();
    return s->text;
}

static inline char *module_text(sn_module *m) {
    text_stream s;
    text_open(&s);
    sn_print_module(s.f, m);
    return text_close(&s);
}

/* entry NULL: all. */
static inline char *explain_text(const sn_program *p, const char *entry) {
    text_stream s;
    text_open(&s);
    sn_program_explain(p, entry, s.f);
    return text_close(&s);
}

static inline char *file_text(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot open %s\n", path);
        abort();
    }
    text_stream s;
    text_open(&s);
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) fwrite(part, 1, n, s.f);
    fclose(f);
    return text_close(&s);
}

#endif
