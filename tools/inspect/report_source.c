/* report_source.c: the text of the sources that a report names: from the file system, or of
 * Sinter's own architectures from what the build embedded. */
#include "tools/inspect/report.h"
#include "tools/embed/embedded.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 };

/* Without the way from the folder of the build: "frontend/gpt2.c". */
static const char *plain_name(const char *name) {
    while (!strncmp(name, "../", 3)) name += 3;
    return name;
}

static char *read_source(const char *name) {
    sn_mapping file;
    sn_error unreadable = {0};
    char *text = NULL;
    if (!sn_file_map(name, &file, &unreadable)) return NULL;
    if (file.size <= MAX_BYTES && !memchr(file.data, 0, file.size)) text = malloc(file.size + 1);
    if (text) {
        if (file.size) memcpy(text, file.data, file.size);
        text[file.size] = 0;
    }
    sn_file_unmap(&file);
    return text;
}

int report_file(report *r, const char *name) {
    int i = 0;
    if (!name || !*name || !r->files) return -1;
    const char *plain = plain_name(name);
    for (const cJSON *f = r->files->child; f; f = f->next, i++)
        if (!strcmp(cJSON_GetObjectItem(f, "name")->valuestring, plain)) return i;
    const char *known = embedded_text(plain);
    char *text = known ? NULL : read_source(name);
    cJSON *o = report_object(r, r->files, NULL);
    report_text(r, o, "name", plain);
    report_text(r, o, "text", known ? known : text ? text : "");
    free(text);
    return r->full ? -1 : i;
}
