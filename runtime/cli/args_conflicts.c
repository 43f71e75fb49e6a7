/* args_conflicts.c: which options of a command line contradict each other, or are nothing without
 * another: one table for all commands, which holds for those that have both. */
#include "runtime/cli/args.h"

#include <stdio.h>
#include <string.h>

enum relation { EXCLUDES, NEEDS };

/* `value`: only these values of the option, "a|b"; NULL: whenever it is given. */
static const struct conflict {
    const char *a, *a_value;
    enum relation relation;
    const char *b, *b_value, *why;
} conflicts[] = {
    {"tune", NULL, EXCLUDES, "cache-dir", "none", "choices are remembered in the cache folder"},
    {"tune-sizes", NULL, EXCLUDES, "cache-dir", "none",
     "choices for these sizes are looked up in the cache folder"},
    {"tune", NULL, EXCLUDES, "backend", "onednn", "that has chosen already: auto or own"},
    {"tune", NULL, EXCLUDES, "backends", "onednn", "that has chosen already: auto or own"},
    {"backend", "onednn", EXCLUDES, "weights", "bf16|int8|int4",
     "its products take weights of f32 only"},
    {"backends", "onednn", EXCLUDES, "weights", "bf16|int8|int4",
     "its products take weights of f32 only"},
    {"strict-fusion", NULL, EXCLUDES, "level", "0", "that level fuses nothing"},
    {"strict-fusion", NULL, EXCLUDES, "off", "raise|merge",
     "what these passes would have made cannot fuse"},
    {"prompt", NULL, EXCLUDES, "prompt-file", NULL, "there is one prompt"},
    {"prompt", NULL, EXCLUDES, "prompt-ids", NULL, "there is one prompt"},
    {"prompt-file", NULL, EXCLUDES, "prompt-ids", NULL, "there is one prompt"},
    {"images", NULL, EXCLUDES, "prompt", NULL, "a model classifies images or texts"},
    {"images", NULL, EXCLUDES, "file", NULL, "a model classifies images or texts"},
    {"labels", NULL, NEEDS, "images", NULL, "it has the classes of images"},
    {"resume", NULL, EXCLUDES, "force", NULL, "a run goes on or begins anew"},
    {"resume", NULL, EXCLUDES, "seed", NULL, "a run goes on with its own"},
    {"train", NULL, EXCLUDES, "preset", NULL, "the config says which model"},
    {"train", NULL, EXCLUDES, "exe", NULL, "there is no program for training"},
    {"train", NULL, EXCLUDES, "entries", NULL, "its entry is the training step"},
    {"static", NULL, NEEDS, "exe", NULL, "a library has nothing to link"},
    {"position", NULL, NEEDS, "logit-lens", NULL, "it says of which token"},
    {"sweep", NULL, EXCLUDES, "mask", NULL, "it has masks and shapes of its own, forward"},
    {"sweep", NULL, EXCLUDES, "shape", NULL, "it has masks and shapes of its own, forward"},
    {"sweep", NULL, EXCLUDES, "backward", NULL, "it has masks and shapes of its own, forward"},
};

static bool is_one_of(const char *value, const char *list) {
    size_t n = strlen(value);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && !strncmp(p, value, n)) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

/* -1: the command has no such option. */
static int row_of(const arg *table, const char *name) {
    for (int i = 0; table[i].name; i++)
        if (table[i].kind != ARG_PLACE && table[i].kind != ARG_PLACE_OR_NONE &&
            !strcmp(table[i].name, name))
            return i;
    return -1;
}

static void print_option(const char *name, const char *given) {
    fprintf(stderr, "--%s%s%s", name, *given ? " " : "", given);
}

bool args_agree(const arg_command *c, const char *const *given) {
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++) {
        const struct conflict *x = &conflicts[i];
        int a = row_of(c->table, x->a), b = row_of(c->table, x->b);
        if (a < 0 || b < 0 || !given[a] || (x->a_value && !is_one_of(given[a], x->a_value)))
            continue;
        bool also = given[b] && (!x->b_value || is_one_of(given[b], x->b_value));
        if (also != (x->relation == EXCLUDES)) continue;
        fprintf(stderr, "%s: ", c->name);
        print_option(x->a, x->a_value ? given[a] : "");
        fputs(also ? " contradicts " : " is of no use without ", stderr);
        print_option(x->b, x->b_value ? given[b] : "");
        fprintf(stderr, ": %s\n", x->why);
        return false;
    }
    return true;
}
