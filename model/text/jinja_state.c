/* jinja_state.c: variables and errors of a template that is being rendered. */
#include "model/text/jinja_state.h"

#include <string.h>

bool sn_jinja_fail(jinja_state *s, const char *what, const char *name, size_t size) {
    int line = 1;
    for (const char *p = s->source; p < s->at; p++) line += *p == '\n';
    if (s->err && s->err->code) return false;
    if (s->arena.failed) what = s->arena.failed, size = 0;
    return sn_fail(s->err, SN_ERR_FILE, "chat template, line %d: %s %.*s", line, what,
                   (int)(size < 60 ? size : 60), name);
}

jinja_value *sn_jinja_find(jinja_state *s, const char *name, size_t size) {
    for (size_t i = s->variables; i-- > 0;)
        if (s->variable[i].size == size && !memcmp(s->variable[i].name, name, size))
            return s->variable[i].value;
    return sn_jinja_new(&s->arena, JINJA_UNDEFINED);
}

bool sn_jinja_assign(jinja_state *s, const char *name, size_t size, jinja_value *value) {
    for (size_t i = s->variables; i-- > s->scope;)
        if (s->variable[i].size == size && !memcmp(s->variable[i].name, name, size)) {
            s->variable[i].value = value;
            return true;
        }
    if (s->variables == JINJA_VARIABLES) return sn_jinja_fail(s, "too many variables:", name, size);
    s->variable[s->variables++] = (jinja_variable){name, size, value};
    return true;
}
