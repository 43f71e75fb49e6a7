/* smt.c: text that lives until the end. */
#include "tests/rules/smt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void **all;
static size_t n_all;

static void *keep(void *p) {
    all = realloc(all, (n_all + 1) * sizeof *all);
    if (!p || !all) abort();
    return all[n_all++] = p;
}

const char *smt_text(const char *format, ...) {
    va_list list;
    char *text = NULL;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0) abort();
    va_end(list);
    return keep(text);
}

void *smt_room(size_t bytes) {
    return keep(calloc(1, bytes));
}

const char **smt_array(int n) {
    return smt_room((size_t)n * sizeof(char *));
}

void smt_free(void) {
    for (size_t i = 0; i < n_all; i++) free(all[i]);
    free(all);
    all = NULL;
    n_all = 0;
}
