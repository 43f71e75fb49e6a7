/* args_common.c: the options that every command has, and the files that options name. */
#include "runtime/cli/args.h"
#include "runtime/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const arg common[] = {
    {"json", 0, ARG_FLAG, offsetof(screen_options, json), NULL, NULL, 0, 0,
     "print the result as JSON, one object per line"},
    {"quiet", 'q', ARG_FLAG, offsetof(screen_options, quiet), NULL, NULL, 0, 0,
     "print the result and errors only"},
    {"verbose", 'v', ARG_FLAG, offsetof(screen_options, verbose), NULL, NULL, 0, 0,
     "print what is done, also where standard error is not a terminal"},
    {"color", 0, ARG_CHOICE, offsetof(screen_options, color), "auto|always|never", NULL, 0, 0,
     "colours; default: on terminals, unless NO_COLOR is set"},
    {0}};

const arg *sn_args_common(void) {
    return common;
}

bool sn_args_has_common(const arg_command *c, const arg *a) {
    for (const arg *own = c->table; own->name; own++)
        if (!strcmp(own->name, a->name)) return false;
    return strcmp(a->name, "json") != 0 || c->json;
}

bool sn_args_is_common(const arg *a) {
    return a >= common && a < common + sizeof common / sizeof *common;
}

/* ---- files ---- */

char *sn_text_read(const char *path, size_t *size, sn_error *err) {
    if (!strcmp(path, "-")) return sn_stream_read(stdin, "standard input", size, err);
    FILE *f = fopen(path, "rb");
    if (!f) {
        sn_fail(err, SN_ERR_FILE, "%s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    char *data = sn_stream_read(f, path, size, err);
    fclose(f);
    return data;
}
