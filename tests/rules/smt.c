/* smt.c: text that lives until the end, and what a solver says. */
#include "tests/rules/smt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

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

const char *smt_solve(const char *command, const char *path) {
    enum { ENDED = 124, KILLED = 137 }; /* exit codes of timeout(1) */
    const int limit = getenv("SN_TEST_LONG") ? 3600 : 60;
    const char *text = "";
    char line[4096];
    for (int i = 0; i < 2; i++) {
        FILE *p = popen(smt_text("timeout -k 5 %d %s %s 2>&1", limit, command, path), "r");
        if (!p) abort();
        text = "";
        while (fgets(line, sizeof line, p)) text = smt_text("%s%s", text, line);
        const int status = pclose(p), code = WIFEXITED(status) ? WEXITSTATUS(status) : KILLED;
        if (code != ENDED && code != KILLED) break;
    }
    return text;
}

void smt_free(void) {
    for (size_t i = 0; i < n_all; i++) free(all[i]);
    free(all);
    all = NULL;
    n_all = 0;
}
