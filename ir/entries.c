/* entries.c: the entries of a module and what is bound to them by name. */
#include "ir/module_impl.h"

#include <string.h>

sn_entry *sn_entry_get(sn_module *m, const char *name) {
    for (int i = 0; i < m->n_entry; i++)
        if (!strcmp(m->entry[i]->name, name)) return m->entry[i];
    return NULL;
}

sn_entry *sn_entry_add(sn_module *m, const char *name) {
    sn_entry *e = sn_entry_get(m, name);
    if (e) return e;
    if (m->n_entry == m->cap_entry) {
        m->cap_entry = m->cap_entry ? m->cap_entry * 2 : 4;
        m->entry = sn_arena_resize(m, m->entry, (size_t)m->n_entry, (size_t)m->cap_entry,
                                   sizeof *m->entry);
    }
    e = m->entry[m->n_entry++] = sn_arena_alloc(m, sizeof *e);
    e->name = sn_arena_str(m, name);
    return e;
}

int sn_entry_count(const sn_module *m) {
    return m->n_entry;
}

void sn_entry_remove(sn_module *m, int i) {
    m->n_entry--;
    for (; i < m->n_entry; i++) m->entry[i] = m->entry[i + 1];
}

sn_entry *sn_entry_at(const sn_module *m, int i) {
    return m->entry[i];
}

/* Adds or replaces by name; the array doubles at powers of two. */
static void bind(sn_module *m, sn_binding **list, int *n, const char *name, sn_node *node) {
    for (int i = 0; i < *n; i++)
        if (!strcmp((*list)[i].name, name)) {
            (*list)[i].node = node;
            return;
        }
    if ((*n & (*n - 1)) == 0)
        *list = sn_arena_resize(m, *list, (size_t)*n, *n ? 2 * (size_t)*n : 1, sizeof **list);
    (*list)[(*n)++] = (sn_binding){sn_arena_str(m, name), node};
}

void sn_entry_output(sn_module *m, sn_entry *e, const char *name, sn_node *n) {
    bind(m, &e->output, &e->n_output, name, n);
}

void sn_entry_assign(sn_module *m, sn_entry *e, const char *state, sn_node *value) {
    bind(m, &e->assign, &e->n_assign, state, value);
}

void sn_entry_tap(sn_module *m, sn_entry *e, const char *name, sn_node *n) {
    bind(m, &e->tap, &e->n_tap, name, n);
}

static sn_binding *copy_bindings(sn_module *m, const sn_binding *list, int n) {
    size_t cap = 1;
    while (cap < (size_t)n) cap *= 2; /* as bind() grows it */
    return n ? sn_arena_resize(m, (void *)(uintptr_t)list, (size_t)n, cap, sizeof *list) : NULL;
}

/* Includes the capacity that sn_replace relies on. */
static sn_node **copy_replaced(sn_module *m) {
    size_t cap = 1, size = 2 * sizeof *m->replaced;
    while (cap < (size_t)m->n_replaced) cap *= 2;
    return m->n_replaced ? sn_arena_resize(m, m->replaced, (size_t)m->n_replaced, cap, size) : NULL;
}

sn_entries *sn_entries_save(sn_module *m) {
    sn_entries *s = sn_arena_alloc(m, sizeof *s);
    s->n = m->n_entry;
    s->entry = sn_arena_alloc(m, sizeof *s->entry * (size_t)(m->n_entry + 1));
    for (int i = 0; i < m->n_entry; i++) {
        sn_entry *e = s->entry[i] = sn_arena_alloc(m, sizeof *e);
        *e = *m->entry[i];
        e->output = copy_bindings(m, e->output, e->n_output);
        e->assign = copy_bindings(m, e->assign, e->n_assign);
        e->tap = copy_bindings(m, e->tap, e->n_tap);
    }
    s->n_replaced = m->n_replaced;
    s->replaced = copy_replaced(m);
    return s;
}

void sn_entries_restore(sn_module *m, sn_entries *saved) {
    m->entry = saved->entry;
    m->n_entry = saved->n;
    m->cap_entry = saved->n; /* the next addition allocates a new array */
    m->replaced = saved->replaced;
    m->n_replaced = saved->n_replaced;
}

void sn_entries_clear(sn_module *m) {
    m->n_entry = m->cap_entry = 0; /* the next addition allocates a new array */
}
