/* cmd_cache.c: `sinter cache`: what the disk cache holds, and throwing it away. */
#include "tools/cmd.h"
#include "codegen/jit/cache.h"

#include <stdio.h>
#include <string.h>

#define NAME "sinter cache"

typedef struct options {
    const char *dir, *clear;
} options;

static const arg table[] = {
    {"cache-dir", 0, ARG_TEXT, offsetof(options, dir), "DIR", NULL, 0, 0,
     "the folder; else ~/.cache/sinter"},
    {"clear", 0, ARG_CHOICE, offsetof(options, clear), "tuned|kernels|all", NULL, 0, 0,
     "throw away the tuned choices, the compiled kernels, or both"},
    {0},
};

static const arg_command command = {
    NAME, "compiled kernels and tuned choices on disk: show, clear",
    "Prints the folder, how many compiled kernels it holds, and a line for every choice that\n"
    "--tune has measured: what it is about, for which sizes, and what won. What is cleared is\n"
    "compiled, and with --tune measured, again when it is needed.\n",
    table};

typedef struct sums {
    int64_t bytes;
} sums;

static void add_kernel(void *ctx, const sn_object *o) {
    ((sums *)ctx)->bytes += (int64_t)o->size;
}

/* "answer N of M: WHY", then what it is about on a line. */
static void print_choice(void *ctx, const sn_object *o) {
    (void)ctx;
    const char *text = (const char *)o->data, *end = memchr(text, '\n', o->size);
    const char *why = end ? memchr(text, ':', (size_t)(end - text)) : NULL;
    if (!why) return;
    size_t rest = o->size - (size_t)(end + 1 - text);
    const char *stop = memchr(end + 1, '\n', rest);
    printf("%.*s:%.*s\n", (int)(stop ? stop - end - 1 : (ptrdiff_t)rest), end + 1,
           (int)(end - why - 1), why + 1);
}

static void clear(sn_cache *c, const char *what) {
    if (strcmp(what, "tuned") != 0)
        printf("kernels  %lld removed\n", (long long)sn_cache_clear(c, SN_CACHE_OBJECT));
    if (strcmp(what, "kernels") != 0)
        printf("tuned    %lld removed\n", (long long)sn_cache_clear(c, SN_CACHE_CHOICE));
}

static void show(sn_cache *c) {
    sums s = {0};
    int64_t n = sn_cache_each(c, SN_CACHE_OBJECT, add_kernel, &s);
    printf("kernels  %lld, %lld KB\n", (long long)n, (long long)(s.bytes >> 10));
    printf("tuned    %lld\n", (long long)sn_cache_each(c, SN_CACHE_CHOICE, NULL, NULL));
    sn_cache_each(c, SN_CACHE_CHOICE, print_choice, NULL);
}

int cmd_cache(int argc, char **argv) {
    options o = {0};
    int code = args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    sn_cache *c = sn_cache_open(o.dir, 0, &err);
    const char *note = sn_cache_note(c);
    if (!c || note) {
        if (note) sn_fail(&err, SN_ERR_FILE, "%s", note);
        code = cmd_fail(NAME, &err);
    } else {
        printf("folder   %s\n", sn_cache_folder(c));
        if (o.clear)
            clear(c, o.clear);
        else
            show(c);
        code = cmd_finish(NAME);
    }
    sn_cache_close(c);
    return code;
}
