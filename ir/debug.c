/* debug.c: SINTER_DEBUG=name,name=value, parsed once into the switches of debug.def. The only place
 * that reads this environment variable. */
#include "ir/ir.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLAG, TEXT };

static const struct {
    const char *name, *doc;
    int kind;
    size_t offset; /* in sn_debug */
} switches[] = {
#define DEBUG(name, kind, doc) {#name, doc, kind, offsetof(sn_debug, name)},
#include "ir/debug.def"
#undef DEBUG
};

static const size_t n_switch = sizeof switches / sizeof *switches;
static sn_debug debug;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void print_switches(void) {
    for (size_t i = 0; i < n_switch; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s%s", switches[i].name, switches[i].kind == TEXT ? "=..." : "");
        fprintf(stderr, "  %-12s %s\n", key, switches[i].doc);
    }
}

/* false: there is no switch of that name. */
static bool set_switch(const char *name, const char *value) {
    size_t i = 0;
    while (i < n_switch && strcmp(name, switches[i].name)) i++;
    if (i == n_switch)
        fprintf(stderr, "SINTER_DEBUG: unknown switch \"%s\" ignored\n", name);
    else if ((switches[i].kind == TEXT) != (value != NULL))
        fprintf(stderr, "SINTER_DEBUG: %s takes %s value; ignored\n", name, value ? "no" : "a");
    else if (value)
        *(const char **)((char *)&debug + switches[i].offset) = value;
    else
        *(bool *)((char *)&debug + switches[i].offset) = true;
    return i < n_switch;
}

static bool is_writable_folder(const char *path) {
    struct stat st;
    if (stat(path, &st)) return false;
    if (!S_ISDIR(st.st_mode)) errno = ENOTDIR;
    return S_ISDIR(st.st_mode) && !access(path, W_OK | X_OK);
}

static void parse_environment(void) {
    const char *text = getenv("SINTER_DEBUG");
    static char *copy; /* the values point into it, so it is never freed */
    copy = text ? strdup(text) : NULL;
    if (!copy) return;
    char *rest = copy;
    bool known = true;
    for (char *item; (item = strsep(&rest, ","));) {
        if (!*item) continue;
        char *value = strchr(item, '=');
        if (value) *value++ = 0;
        known &= set_switch(item, value);
    }
    if (debug.dump && mkdir(debug.dump, 0777) && errno != EEXIST)
        fprintf(stderr, "SINTER_DEBUG: dump=%s: cannot make folder: %s\n", debug.dump,
                strerror(errno));
    else if (debug.dump && !is_writable_folder(debug.dump))
        fprintf(stderr, "SINTER_DEBUG: dump=%s: cannot write to it: %s\n", debug.dump,
                strerror(errno));
    if (known && !debug.help) return;
    fprintf(stderr, "SINTER_DEBUG=name,name=value,... with\n");
    print_switches();
}

/* The switches, parsed from the environment on the first call. Thread-safe. */
const sn_debug *sn_debug_get(void) {
    pthread_once(&once, parse_environment);
    return &debug;
}
