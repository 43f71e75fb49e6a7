/* inside.c: lists and maps the files of a folder. */
#include "tools/artefact/inside.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int not_hidden(const struct dirent *e) {
    return *e->d_name != '.';
}

static bool add(inside *s, const char *dir, const char *folder, const char *name, sn_error *err) {
    sn_mapping m;
    if (s->n == INSIDE_FILES)
        return sn_fail(err, SN_ERR_FILE, "%s: more than %d files", folder, INSIDE_FILES);
    char *path = sn_path_join(folder, name);
    if (!path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    s->path[s->n] = path;
    s->file[s->n++] = (sn_file_inside){.path = path + strlen(dir) + 1};
    if (!sn_file_map(path, &m, err)) return false;
    s->file[s->n - 1].data = m.data;
    s->file[s->n - 1].size = m.size;
    return true;
}

bool inside_read(inside *s, const char *dir, const char *ending, bool optional, sn_error *err) {
    char part[160];
    struct dirent **entry = NULL;
    snprintf(part, sizeof part, "%s%s", s->name, ending);
    char *folder = sn_path_join(dir, part);
    if (!folder) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int n = scandir(folder, &entry, not_hidden, alphasort);
    bool ok =
        n >= 0 || (optional && errno == ENOENT) ||
        sn_fail(err, SN_ERR_FILE, "%s: its files cannot be listed: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        ok = ok && add(s, dir, folder, entry[i]->d_name, err);
        free(entry[i]);
    }
    free(entry);
    free(folder);
    return ok;
}

void inside_free(inside *s) {
    for (int i = 0; i < s->n; i++) {
        sn_file_unmap(&(sn_mapping){s->file[i].data, s->file[i].size});
        free(s->path[i]);
    }
}
