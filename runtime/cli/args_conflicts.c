/* args_conflicts.c: options that contradict each other or require another one. One table for all
 * commands; a row applies to commands that have both options. */
#include "runtime/cli/args.h"

#include <stdio.h>
#include <string.h>

enum relation { EXCLUDES, NEEDS };

/* `value`: applies to these values of the option only, "a|b"; NULL: whenever it is given. */
static const struct conflict {
    const char *a, *a_value;
    enum relation relation;
    const char *b, *b_value, *why;
} conflicts[] = {
    {"tune", NULL, EXCLUDES, "cache-dir", "none", "tuned choices are stored in the cache folder"},
    {"tune-sizes", NULL, EXCLUDES, "cache-dir", "none",
     "tuned choices for these sizes are looked up in the cache folder"},
    {"tune", NULL, EXCLUDES, "backend", "onednn", "it fixes the choice: use auto or native"},
    {"tune", NULL, EXCLUDES, "backends", "onednn", "it fixes the choice: use auto or native"},
    {"backend", "onednn", EXCLUDES, "weights", "bf16|int8|int4",
     "its products support f32 weights only"},
    {"backends", "onednn", EXCLUDES, "weights", "bf16|int8|int4",
     "its products support f32 weights only"},
    {"compute", "int8", EXCLUDES, "weights", "f32|bf16", "its products read weights of 8 bits"},
    {"compute", "int8", EXCLUDES, "backend", "onednn", "its products are of f32 or bf16"},
    {"cache", "bf16|int8", NEEDS, "decode", NULL, "only decoding keeps keys and values"},
    {"strict-fusion", NULL, EXCLUDES, "level", "0", "that level fuses nothing"},
    {"strict-fusion", NULL, EXCLUDES, "off", "raise|merge",
     "the ops of disabled passes cannot fuse"},
    {"prompt", NULL, EXCLUDES, "prompt-file", NULL, "only one prompt is allowed"},
    {"prompt", NULL, EXCLUDES, "prompt-ids", NULL, "only one prompt is allowed"},
    {"prompt-file", NULL, EXCLUDES, "prompt-ids", NULL, "only one prompt is allowed"},
    {"all", NULL, EXCLUDES, "similarity", NULL, "it prints vectors of tokens"},
    {"all", NULL, EXCLUDES, "prompt-name", NULL, "it prints vectors of tokens"},
    {"all", NULL, EXCLUDES, "truncate", NULL, "it prints vectors of tokens"},
    {"chat", NULL, EXCLUDES, "prompt-ids", NULL, "a message is a text"},
    {"system", NULL, NEEDS, "chat", NULL, "it is a message of a chat"},
    {"labels", NULL, NEEDS, "images", NULL, "it reads the classes of images"},
    {"resume", NULL, EXCLUDES, "force", NULL, "a run is either resumed or restarted"},
    {"resume", NULL, EXCLUDES, "seed", NULL, "a resumed run keeps its own"},
    {"train", NULL, EXCLUDES, "preset", NULL, "the config names the model"},
    {"train", NULL, EXCLUDES, "exe", NULL, "programs cannot train"},
    {"train", NULL, EXCLUDES, "checkpoint", NULL, "the config names it: \"start\""},
    {"train", NULL, EXCLUDES, "tokenizer", NULL, "the config names the tokenizer"},
    {"train", NULL, EXCLUDES, "context", NULL, "the config names it"},
    {"train", NULL, EXCLUDES, "weights", "bf16|int8|int4", "what is trained is f32"},
    {"train", NULL, EXCLUDES, "compute", "int8", "what is trained is f32"},
    {"train", NULL, EXCLUDES, "beams", NULL, "its entries decode a single sequence"},
    {"train", NULL, EXCLUDES, "sequences", NULL, "its entries decode a single sequence"},
    {"slices", NULL, NEEDS, "train", NULL, "only a training step has slices"},
    {"rate-argument", NULL, NEEDS, "train", NULL, "only a training step has a learning rate"},
    {"static", NULL, NEEDS, "exe", NULL, "a library is not linked"},
    {"position", NULL, NEEDS, "logit-lens", NULL, "it selects the token to inspect"},
    {"sweep", NULL, EXCLUDES, "mask", NULL, "it has its own masks and shapes, forward only"},
    {"sweep", NULL, EXCLUDES, "shape", NULL, "it has its own masks and shapes, forward only"},
    {"sweep", NULL, EXCLUDES, "backward", NULL, "it has its own masks and shapes, forward only"},
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

/* -1: the command does not have the option. */
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

bool sn_args_agree(const arg_command *c, const char *const *given) {
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++) {
        const struct conflict *x = &conflicts[i];
        int a = row_of(c->table, x->a), b = row_of(c->table, x->b);
        if (a < 0 || b < 0 || !given[a] || (x->a_value && !is_one_of(given[a], x->a_value)))
            continue;
        bool also = given[b] && (!x->b_value || is_one_of(given[b], x->b_value));
        if (also != (x->relation == EXCLUDES)) continue;
        sn_screen_error(c->name, "%s", "");
        print_option(x->a, x->a_value ? given[a] : "");
        fputs(also ? " contradicts " : " has no effect without ", stderr);
        print_option(x->b, x->b_value ? given[b] : "");
        fprintf(stderr, ": %s\n", x->why);
        return false;
    }
    return true;
}
