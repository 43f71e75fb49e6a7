/* remark.c: remarks of passes about nodes. */
#include "passes/passes.h"

#include <stdarg.h>

void sn_remark_add(sn_passes *p, const char *pass, const sn_node *n, bool missed, const char *fmt,
                   ...) {
    char text[1000]; /* with names of files and what to write instead */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->remark = sn_arena_grow(p->m, p->remark, sizeof *p->remark, p->n_remark, &p->cap_remark);
    p->remark[p->n_remark++] = (sn_remark){pass, n, missed, sn_arena_str(p->m, text)};
}
