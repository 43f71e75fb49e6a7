/* jinja_value.h: values of templates, in an arena that is freed as a whole. Internal. */
#ifndef SN_JINJA_VALUE_H
#define SN_JINJA_VALUE_H

#include "model/text/jinja.h"

typedef enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_DICT
} jinja_kind;

typedef struct jinja_value jinja_value;
struct jinja_value {
    jinja_kind kind;
    int64_t number; /* also of a boolean */
    const char *text;
    size_t size;        /* of the text, the list, the dictionary */
    jinja_value **item; /* [size] of a list or a dictionary */
    jinja_value **key;  /* [size] of a dictionary: texts */
    size_t capacity;
};

typedef struct jinja_block jinja_block;

/* A template comes with a model: it may be broken or hostile. The limits are those of one rendering;
 * a step is an expression, a part of the template, a comparison, or 64 bytes that are looked at. */
enum { JINJA_DEPTH = 64, JINJA_STEPS = 10000000, JINJA_BYTES = 64 << 20 };

typedef struct jinja_arena {
    jinja_block *last;
    size_t steps, bytes; /* used so far; bytes: of values and texts */
    int depth;           /* of the value that is compared or printed */
    const char *failed;  /* which limit is exceeded, or that memory is; NULL: none */
} jinja_arena;

/* Counts steps and bytes. False: a limit is exceeded, now or before. */
bool sn_jinja_spend(jinja_arena *a, size_t steps, size_t bytes);
void sn_jinja_free(jinja_arena *a);

/* Constructors; never NULL: beyond a limit the arena has failed and the value is undefined. */
jinja_value *sn_jinja_new(jinja_arena *a, jinja_kind kind);
jinja_value *sn_jinja_bool(jinja_arena *a, bool b);
jinja_value *sn_jinja_int(jinja_arena *a, int64_t n);
jinja_value *sn_jinja_text(jinja_arena *a, const char *text, size_t size); /* copied */
void sn_jinja_append(jinja_arena *a, jinja_value *list, jinja_value *item);
/* Sets a member of a dictionary; key: NUL-terminated. */
void sn_jinja_set(jinja_arena *a, jinja_value *dict, const char *key, jinja_value *value);
/* NULL: there is none. */
jinja_value *sn_jinja_get(jinja_arena *a, const jinja_value *dict, const char *key, size_t size);

bool sn_jinja_true(const jinja_value *v); /* as Python's bool() */
/* The following four stop where the arena fails; then their result does not matter. */
bool sn_jinja_equal(jinja_arena *a, const jinja_value *x, const jinja_value *y);
/* Whether `in` holds: a part of a text, an element of a list, a key of a dictionary. */
bool sn_jinja_contains(jinja_arena *a, const jinja_value *in, const jinja_value *v);
/* Appends what {{ v }} prints: texts as they are. */
bool sn_jinja_print(jinja_arena *a, const jinja_value *v, sn_bytes *out);
/* Appends v as JSON, as json.dumps writes it without ensure_ascii. */
bool sn_jinja_json(jinja_arena *a, const jinja_value *v, sn_bytes *out);

/* The filter or method of this name applied to v; NULL: unknown. args: [count]. */
jinja_value *sn_jinja_apply(jinja_arena *a, const char *name, size_t size, const jinja_value *v,
                            jinja_value *const *args, size_t count);
/* The test of this name: 0 or 1; -1: unknown. */
int sn_jinja_test(const char *name, size_t size, const jinja_value *v);
/* v[i], from the end if i is negative, of a text a character; undefined: there is none. */
jinja_value *sn_jinja_at(jinja_arena *a, const jinja_value *v, int64_t i);
/* v[from:to:step]; missing bounds are NULL. */
jinja_value *sn_jinja_slice(jinja_arena *a, const jinja_value *v, const jinja_value *from,
                            const jinja_value *to, int64_t step);

#endif
