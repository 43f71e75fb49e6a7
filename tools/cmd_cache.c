/* cmd_cache.c: `sinter cache`: shows and clears the disk cache. */
#include "tools/cmd.h"
#include "codegen/jit/cache.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "sinter cache"

typedef struct options {
    const char *dir, *clear;
} options;

static const arg table[] = {
    {"cache-dir", 0, ARG_TEXT, offsetof(options, dir), "DIR", NULL, 0, 0,
     "the cache folder; default: ~/.cache/sinter"},
    {"clear", 0, ARG_CHOICE, offsetof(options, clear), "tuned|kernels|models|weights|all", NULL, 0,
     0,
     "delete the tuned choices, the compiled kernels, the compiled models in C, the packed "
     "weights, or all"},
    {0},
};

static const arg_key keys[] = {
    {"folder", "text", "the cache folder"},
    {"kernels", "object?", "compiled kernels: count and bytes, or removed"},
    {"models", "object?", "compiled models in C, likewise"},
    {"weights", "object?", "packed weights, likewise"},
    {"tuned", "object?", "choices that --tune measured, likewise"},
    {"choices", "list?", "the measured choices, a text each"},
    {0}};

static const arg_command command = {
    NAME,
    "show or clear the cache of compiled kernels, models, packed weights and tuned choices",
    "Prints the folder, the numbers of compiled kernels, of models in C and of models whose "
    "packed\n"
    "weights are kept, and a line for every choice that --tune measured: the kernel, the sizes, "
    "and\n"
    "the winner. Deleted entries are compiled or packed, and with --tune measured, again when "
    "they\n"
    "are needed.\n",
    table,
    .examples = "sinter cache\nsinter cache --clear kernels\n",
    .json = keys};

static const struct {
    sn_cache_kind kind;
    const char *name;
} kinds[] = {{SN_CACHE_OBJECT, "kernels"},
             {SN_CACHE_MODEL, "models"},
             {SN_CACHE_WEIGHTS, "weights"},
             {SN_CACHE_CHOICE, "tuned"}};

static void add_bytes(void *ctx, const sn_object *o) {
    *(int64_t *)ctx += (int64_t)o->size;
}

/* "answer N of M: WHY", then the question on a line. */
static void print_choice(void *ctx, const sn_object *o) {
    const char *text = (const char *)o->data, *end = memchr(text, '\n', o->size);
    const char *why = end ? memchr(text, ':', (size_t)(end - text)) : NULL;
    if (!why) return;
    size_t rest = o->size - (size_t)(end + 1 - text);
    const char *stop = memchr(end + 1, '\n', rest);
    char line[400];
    snprintf(line, sizeof line, "%.*s:%.*s", (int)(stop ? stop - end - 1 : (ptrdiff_t)rest),
             end + 1, (int)(end - why - 1), why + 1);
    sn_mask_controls(line, "");
    if (ctx)
        sn_json_text(ctx, NULL, line);
    else
        puts(line);
}

static void clear(sn_cache *c, const char *what, json_out *j) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(what, kinds[i].name) != 0 && strcmp(what, "all") != 0) continue;
        int64_t n = sn_cache_clear(c, kinds[i].kind);
        if (!j) printf("%-8s %lld removed\n", kinds[i].name, (long long)n);
        if (!j) continue;
        sn_json_object(j, kinds[i].name);
        sn_json_integer(j, "removed", n);
        sn_json_close(j);
    }
}

static void show(sn_cache *c, json_out *j) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t bytes = 0, n = kinds[i].kind == SN_CACHE_WEIGHTS
                                   ? sn_cache_count_weights(c, &bytes)
                                   : sn_cache_each(c, kinds[i].kind, add_bytes, &bytes);
        if (j) {
            sn_json_object(j, kinds[i].name);
            sn_json_integer(j, "count", n);
            sn_json_integer(j, "bytes", bytes);
            sn_json_close(j);
            continue;
        }
        printf("%-8s %lld", kinds[i].name, (long long)n);
        if (kinds[i].kind != SN_CACHE_CHOICE) printf(", %lld KB", (long long)(bytes >> 10));
        putchar('\n');
    }
    if (j) sn_json_list(j, "choices");
    sn_cache_each(c, SN_CACHE_CHOICE, print_choice, j);
    if (j) sn_json_close(j);
}

int cmd_cache(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    if (o.dir && access(o.dir, F_OK)) {
        sn_fail(&err, SN_ERR_FILE, "--cache-dir %s: %s", o.dir, strerror(errno));
        return cmd_fail(NAME, &err);
    }
    sn_cache *c = sn_cache_open(o.dir, 0, &err);
    const char *note = sn_cache_note(c);
    if (!c || note) {
        if (note) sn_fail(&err, SN_ERR_FILE, "%s", note);
        code = cmd_fail(NAME, &err);
    } else {
        json_out lines, *j = sn_screen()->json ? &lines : NULL;
        if (j) {
            lines = sn_json_begin(stdout);
            sn_json_text(j, "folder", sn_cache_folder(c));
        } else
            printf("folder   %s\n", sn_cache_folder(c));
        if (o.clear)
            clear(c, o.clear, j);
        else
            show(c, j);
        if (j) sn_json_end(j);
        code = cmd_finish(NAME);
    }
    sn_cache_close(c);
    return code;
}
