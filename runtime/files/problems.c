/* problems.c: collects problems and reports them as one error message. */
#include "runtime/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sn_problem(sn_problems *p, const char *fmt, ...) {
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p->count++;
    size_t n = strlen(line), sep = p->shown ? 2 : 0;
    if (p->shown + 1 < p->count || p->len + sep + n + 1 > sizeof p->text) return;
    memcpy(p->text + p->len, "; ", sep);
    memcpy(p->text + p->len + sep, line, n + 1);
    p->len += sep + n;
    p->shown++;
}

bool sn_problems_check(const sn_problems *p, const char *head, sn_code code, sn_error *err) {
    if (!p->count) return true;
    char more[32] = "";
    if (p->shown < p->count) snprintf(more, sizeof more, "; … and %d more", p->count - p->shown);
    return sn_fail(err, code, "%.250s: %s%s", head, p->text, more);
}

const char *sn_printable(char *buf, size_t size, const char *s) {
    size_t n = 0;
    for (; s[n] && n + 4 < size; n++) buf[n] = s[n];
    buf[n] = 0;
    sn_mask_controls(buf, "");
    strcpy(buf + n, s[n] ? "..." : "");
    return buf;
}
