/* jinja_state.h: a template that is being rendered: its segments, its variables, the place where an
 * expression is read. Internal. */
#ifndef SN_JINJA_STATE_H
#define SN_JINJA_STATE_H

#include "model/text/jinja_value.h"

typedef struct jinja_variable {
    const char *name;
    size_t size;
    jinja_value *value;
} jinja_variable;

enum { JINJA_VARIABLES = 256 };

typedef struct jinja_state {
    const char *source, *at, *end; /* the expression that is read */
    jinja_arena arena;
    jinja_variable variable[JINJA_VARIABLES];
    size_t variables, scope; /* scope: the first variable of the innermost loop */
    int depth;
    sn_error *err;
} jinja_state;

/* Fails with the line of `at`. A limit that was exceeded is named instead. */
bool sn_jinja_fail(jinja_state *s, const char *what, const char *name, size_t size);

/* The value of a variable; undefined if there is none. */
jinja_value *sn_jinja_find(jinja_state *s, const char *name, size_t size);
/* Sets a variable of the innermost scope. */
bool sn_jinja_assign(jinja_state *s, const char *name, size_t size, jinja_value *value);

/* ---- reading (jinja_expr.c) ---- */

void sn_jinja_skip_space(jinja_state *s);
/* Takes a symbol ("=", "(") or a whole word ("in"); false: something else follows. */
bool sn_jinja_take(jinja_state *s, const char *symbol);
/* Takes a name; false: none follows. */
bool sn_jinja_take_name(jinja_state *s, const char **name, size_t *size);
/* Reads an expression and evaluates it if `live`. NULL: error. */
jinja_value *sn_jinja_expression(jinja_state *s, bool live);
/* The same without a conditional expression, as the list of a for statement is. */
jinja_value *sn_jinja_operand(jinja_state *s, bool live);

#endif
