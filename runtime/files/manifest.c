/* manifest.c: one fact per line; the first word of a line is its key. */
#include "runtime/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static sn_manifest_entry *last_entry(sn_manifest *m) {
    return m->n_entry ? &m->entry[m->n_entry - 1] : NULL;
}

static bool read_target(sn_manifest *m, const char *s) {
    if (m->n_target == SN_MANIFEST_TARGETS) return false;
    int k = m->n_target++;
    return sscanf(s, "%127s %127s %" SCNd64, m->target[k].name, m->target[k].triple,
                  &m->target[k].code_bytes) >= 2;
}

static bool read_entry(sn_manifest *m, const char *s) {
    char state[8] = "";
    if (m->n_entry == SN_MANIFEST_ENTRIES) return false;
    sn_manifest_entry *e = &m->entry[m->n_entry++];
    int n = sscanf(s, "%127s %7s", e->name, state);
    e->has_state = !strcmp(state, "state");
    return n >= 1;
}

static bool read_dim(sn_manifest *m, const char *s) {
    sn_manifest_entry *e = last_entry(m);
    if (!e || e->n_dim == SN_MANIFEST_DIMS) return false;
    int k = e->n_dim++;
    return sscanf(s, "%127s %" SCNd64 " %" SCNd64, e->dim[k].name, &e->dim[k].lo, &e->dim[k].hi) ==
           3;
}

static bool read_tensor(sn_manifest *m, const char *s, bool is_output) {
    sn_manifest_entry *e = last_entry(m);
    char type[16];
    if (!e || e->n_tensor == SN_MANIFEST_TENSORS) return false;
    sn_manifest_tensor *t = &e->tensor[e->n_tensor++];
    t->is_output = is_output;
    return sscanf(s, "%127s %15s %127s", t->name, type, t->shape) == 3 &&
           sn_dtype_parse(type, &t->dtype);
}

static bool read_input(sn_manifest *m, const char *s) {
    return read_tensor(m, s, false);
}

static bool read_output(sn_manifest *m, const char *s) {
    return read_tensor(m, s, true);
}

static bool read_name(sn_manifest *m, const char *s) {
    return sscanf(s, "%127s", m->name) == 1;
}

static bool read_version(sn_manifest *m, const char *s) {
    return sscanf(s, "%31s", m->version) == 1;
}

static bool read_threads(sn_manifest *m, const char *s) {
    return sscanf(s, "%15s", m->threads) == 1;
}

static bool read_weights(sn_manifest *m, const char *s) {
    char where[16];
    int n = sscanf(s, "%" SCNd64 " %15s %" SCNx64, &m->weight_bytes, where, &m->hash);
    m->embedded = n == 3 && !strcmp(where, "embedded");
    return n == 3;
}

static bool read_state(sn_manifest *m, const char *s) {
    return sscanf(s, "%" SCNd64, &m->state_bytes) == 1;
}

static bool read_text(sn_manifest *m, const char *s) {
    m->no_bos = !strcmp(s, "bare");
    return m->no_bos;
}

static bool read_needs(sn_manifest *m, const char *s) {
    if (!m->n_target || strlen(s) >= sizeof m->target->needs) return false;
    snprintf(m->target[m->n_target - 1].needs, sizeof m->target->needs, "%s", s);
    return true;
}

static bool read_bos(sn_manifest *m, const char *s) {
    return sscanf(s, "%" SCNd32, &m->bos) == 1;
}

static bool read_eos(sn_manifest *m, const char *s) {
    return m->n_eos < SN_MANIFEST_EOS && sscanf(s, "%" SCNd32, &m->eos[m->n_eos++]) == 1;
}

static bool read_source(sn_manifest *m, const char *s) {
    return sscanf(s, "%" SCNd64, &m->source_vocab) == 1;
}

static bool read_label(sn_manifest *m, const char *s) {
    int at = 0;
    m->n_label++;
    return sscanf(s, "%*u %n", &at) == 0 && at > 0;
}

static bool read_about(sn_manifest *m, const char *s) {
    (void)m; /* sn_manifest_about reads it */
    return *s != 0;
}

static const struct {
    const char *word;
    bool (*read)(sn_manifest *m, const char *rest);
} facts[] = {
    {"name", read_name},       {"version", read_version}, {"threads", read_threads},
    {"weights", read_weights}, {"state", read_state},     {"text", read_text},
    {"target", read_target},   {"entry", read_entry},     {"dim", read_dim},
    {"in", read_input},        {"out", read_output},      {"label", read_label},
    {"needs", read_needs},     {"bos", read_bos},         {"eos", read_eos},
    {"source", read_source},   {"about", read_about},
};

/* cut: it is the beginning of a line. */
static bool read_line(sn_manifest *m, const char *line, bool cut) {
    while (*line == ' ') line++;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        size_t n = strlen(facts[i].word);
        if (!strncmp(line, facts[i].word, n) && line[n] == ' ')
            return (!cut || facts[i].read == read_about) && facts[i].read(m, line + n + 1);
    }
    return false;
}

bool sn_manifest_parse(const char *text, size_t size, sn_manifest *out, sn_error *err) {
    const size_t mark = sizeof SN_MANIFEST_MARK - 1;
    *out = (sn_manifest){.bos = -1};
    if (size < mark || memcmp(text, SN_MANIFEST_MARK, mark))
        return sn_fail(err, SN_ERR_FILE, "not an artefact of this version of Sinter");
    int number = 2;
    for (size_t at = mark; at < size && text[at]; number++) {
        char line[512];
        size_t n = 0;
        while (at + n < size && text[at + n] && text[at + n] != '\n') n++;
        snprintf(line, sizeof line, "%.*s", (int)n, text + at);
        sn_mask_controls(line, "\t");
        if (!read_line(out, line, n >= sizeof line))
            return sn_fail(err, SN_ERR_FILE,
                           "the artefact's manifest has an error in line %d: %.60s", number, line);
        at += n + (at + n < size && text[at + n] == '\n');
    }
    return true;
}

const char *sn_manifest_find(const void *data, size_t size, int k) {
    const char *p = data, *end = p + size;
    while (p && p < end) {
        const size_t n = sizeof SN_MANIFEST_MARK - 1;
        p = memmem(p, (size_t)(end - p), SN_MANIFEST_MARK, n);
        /* programs that link this file also contain the mark alone, as a string constant */
        if (p && (size_t)(end - p) > n && p[n] && k-- == 0) return p;
        if (p) p++;
    }
    return NULL;
}

const char *sn_manifest_label(const char *manifest, int64_t i, int *length) {
    char begin[40];
    snprintf(begin, sizeof begin, "\nlabel %" PRId64 " ", i);
    const char *p = strstr(manifest, begin);
    if (!p) return NULL;
    p += strlen(begin);
    *length = (int)strcspn(p, "\n");
    return p;
}

/* What follows the word and a space; NULL: the text begins otherwise. */
static const char *after(const char *s, const char *word) {
    size_t n = strlen(word);
    return !strncmp(s, word, n) && s[n] == ' ' ? s + n + 1 : NULL;
}

const char *sn_manifest_about(const char *manifest, const char *entry, const char *name,
                              int *length) {
    bool inside = false;
    for (const char *s = manifest; *s; s += *s == '\n') {
        s += strspn(s, " ");
        size_t n = strcspn(s, "\n");
        const char *rest = after(s, "entry");
        if (rest) {
            size_t word = strcspn(rest, " \n");
            inside = word == strlen(entry) && !strncmp(rest, entry, word);
        }
        if (inside && (rest = after(s, "about")) && (rest = after(rest, name))) {
            *length = (int)(s + n - rest);
            return rest;
        }
        s += n;
    }
    return NULL;
}

const sn_manifest_entry *sn_manifest_get(const sn_manifest *m, const char *entry) {
    for (int i = 0; i < m->n_entry; i++)
        if (!strcmp(m->entry[i].name, entry)) return &m->entry[i];
    return NULL;
}
