/* module.c: a module's life, its errors, notes and settings. */
#include "ir/module_impl.h"

#include <stdarg.h>
#include <string.h>

sn_module *sn_module_new(const char *name) {
    sn_module *m = sn_arena_begin();
    if (!m) return NULL;
    atomic_init(&m->owners, 1);
    m->name = sn_arena_str(m, name ? name : "module");
    m->error_node = sn_arena_alloc(m, sizeof *m->error_node);
    *m->error_node = (sn_node){.m = m, .op = SN_OP_const, .n_result = 1, .id = UINT32_MAX};
    return m;
}

void sn_module_free(sn_module *m) {
    if (!m || atomic_fetch_sub(&m->owners, 1) > 1) return;
    sn_arena_end(m);
}

sn_module *sn_module_retain(sn_module *m) {
    atomic_fetch_add(&m->owners, 1);
    return m;
}

const char *sn_module_name(const sn_module *m) {
    return m->name;
}

sn_error *sn_module_error(sn_module *m) {
    static _Thread_local sn_error none;
    if (m) return &m->error;
    none = (sn_error){SN_ERR_USAGE, "the module is NULL"};
    return &none;
}

bool sn_module_ok(sn_module *m, sn_error *err) {
    if (!m) return sn_fail(err, SN_ERR_MEMORY, "the module is NULL: sn_module_new failed");
    const sn_error *e = sn_module_error(m);
    return !e->code || sn_fail(err, e->code, "%s", e->message);
}

sn_node *sn_module_error_node(sn_module *m) {
    return m->error_node;
}

struct sn_dims *sn_module_dims(const sn_module *m) {
    return (struct sn_dims *)&m->dims;
}

void sn_module_set_loc(sn_module *m, sn_loc loc) {
    m->loc = loc;
}

void sn_module_set_callback(sn_module *m, const char *name) {
    m->callback = name;
}

const char *sn_module_callback(const sn_module *m) {
    return m->callback;
}

sn_loc sn_module_loc(const sn_module *m) {
    return m->loc;
}

void **sn_module_frontend(sn_module *m) {
    return &m->frontend;
}

void sn_module_set_raw(sn_module *m, bool raw) {
    m->raw = raw;
}

void sn_module_note(sn_module *m, const sn_node *about, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < m->n_note; i++)
        if (m->note[i].about == about && !strcmp(m->note[i].text, text)) return;
    if ((m->n_note & (m->n_note - 1)) == 0) /* full at every power of two */
        m->note = sn_arena_resize(m, m->note, (size_t)m->n_note,
                                  m->n_note ? 2 * (size_t)m->n_note : 1, sizeof *m->note);
    m->note[m->n_note++] = (sn_note){about, sn_arena_str(m, text)};
}

int sn_module_notes(const sn_module *m, const sn_note **list) {
    *list = m->note;
    return m->n_note;
}

void sn_module_accept(sn_module *m, const sn_node *x, sn_loc at) {
    m->accepted =
        sn_arena_grow(m, m->accepted, sizeof *m->accepted, m->n_accepted, &m->cap_accepted);
    m->accepted[m->n_accepted++] = (sn_accepted){x, at};
}

int sn_module_accepted(const sn_module *m, const sn_accepted **list) {
    *list = m->accepted;
    return m->n_accepted;
}

const char *sn_text_problem(sn_module *m, const char *text) {
    size_t n = text ? strlen(text) : 0;
    if (!n || n > SN_MAX_TEXT) return sn_arena_printf(m, "must have 1 to %d bytes", SN_MAX_TEXT);
    if (text[0] == ' ' || text[n - 1] == ' ') return "must not begin or end with a space";
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return "must be one line without tabs";
    return strstr(text, "/*") || strstr(text, "*/") ? "must not contain /* or */" : NULL;
}

static sn_text *find_text(const sn_module *m, sn_text_kind kind, const char *entry,
                          const char *name) {
    for (int i = 0; i < m->n_text; i++) {
        sn_text *t = &m->text[i];
        if (t->kind == kind && !strcmp(t->name, name) &&
            (entry ? t->entry && !strcmp(t->entry, entry) : !t->entry))
            return t;
    }
    return NULL;
}

void sn_module_describe(sn_module *m, sn_text_kind kind, const char *entry, const char *name,
                        const char *text) {
    sn_text *t = find_text(m, kind, entry, name);
    if (!t) {
        m->text = sn_arena_grow(m, m->text, sizeof *m->text, m->n_text, &m->cap_text);
        t = &m->text[m->n_text++];
    }
    *t = (sn_text){kind, entry ? sn_arena_str(m, entry) : NULL, sn_arena_str(m, name),
                   sn_arena_str(m, text)};
}

int sn_module_texts(const sn_module *m, const sn_text **list) {
    *list = m->text;
    return m->n_text;
}

const char *sn_module_text(const sn_module *m, sn_text_kind kind, const char *entry,
                           const char *name) {
    const sn_text *t = entry ? find_text(m, kind, entry, name) : NULL;
    if (!t) t = find_text(m, kind, NULL, name);
    return t ? t->text : NULL;
}

const char *sn_module_text_in(const sn_module *m, sn_text_kind kind, const char *entry,
                              const char *name, char to[SN_TEXT_IN]) {
    const char *text = sn_module_text(m, kind, entry, name);
    snprintf(to, SN_TEXT_IN, text ? " (%s)" : "", text);
    return to;
}

sn_node *sn_module_fail(sn_module *m, sn_code code, const char *fmt, ...) {
    if (m->error.code) return m->error_node;
    char text[sizeof m->error.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (m->loc.file)
        sn_fail(&m->error, code, "%s:%d: %.900s", m->loc.file, m->loc.line, text);
    else
        sn_fail(&m->error, code, "%s", text);
    return m->error_node;
}
