/* args_complete.c: what may follow on a command line, for the completion of shells. */
#include "runtime/cli/args.h"

#include <stdio.h>
#include <string.h>

static bool starts(const char *s, const char *with) {
    return !strncmp(s, with, strlen(with));
}

static bool is_place(const arg *a) {
    return a->kind == ARG_PLACE || a->kind == ARG_PLACE_OR_NONE;
}

/* "a|b|c": those that begin with `word`. False: the row has no choices. */
static bool print_choices(const arg *a, const char *word) {
    bool choices = a->value && (a->kind == ARG_CHOICE || is_place(a) || strchr(a->value, '|'));
    if (!choices) return false;
    for (const char *s = a->value; *s;) {
        int n = (int)strcspn(s, "|");
        if (!strncmp(s, word, strlen(word)) && strlen(word) <= (size_t)n) printf("%.*s\n", n, s);
        s += n + (s[n] == '|');
    }
    return true;
}

/* Do values of the option name a file or a folder? */
static bool takes_path(const arg *a) {
    static const char *const names[] = {"FILE", "DIR", "PATH", ".json", ".svg", ".npy"};
    for (size_t i = 0; a->value && i < sizeof names / sizeof *names; i++)
        if (strstr(a->value, names[i])) return true;
    return false;
}

static const arg *awaits_among(const arg *a, const char *word) {
    for (; a->name; a++) {
        if (is_place(a) || a->kind == ARG_FLAG || a->kind == ARG_OPTIONAL) continue;
        bool by_name = starts(word, "--") && !strcmp(word + 2, a->name);
        if (by_name || (word[0] == '-' && word[1] && word[1] == a->short_name && !word[2]))
            return a;
    }
    return NULL;
}

/* The option that waits for a value after this word; NULL: none. */
static const arg *awaits_value(const arg_command *c, const char *word) {
    const arg *own = awaits_among(c->table, word);
    return own ? own : awaits_among(sn_args_common(), word);
}

/* The positional row that the next word fills; NULL: no more. */
static const arg *next_place(const arg_command *c, int n, char *const *word) {
    const arg *a = c->table;
    int filled = 0;
    for (int i = 0; i + 1 < n; i++)
        filled += word[i][0] != '-' && !(i && awaits_value(c, word[i - 1]));
    for (; a->name; a++)
        if (is_place(a) && !filled--) return a;
    return NULL;
}

int sn_args_complete(const arg_command *c, int n, char *const *word) {
    const char *last = n > 0 ? word[n - 1] : "";
    const arg *option = n > 1 ? awaits_value(c, word[n - 2]) : NULL;
    if (option) {
        if (!print_choices(option, last) && takes_path(option)) puts(ARGS_FILES);
        return EXIT_OK;
    }
    if (last[0] != '-') {
        const arg *place = next_place(c, n, word);
        if (place && !print_choices(place, last)) puts(ARGS_FILES);
        return EXIT_OK;
    }
    for (const arg *a = c->table; a->name; a++)
        if (!is_place(a) && starts(a->name, last + (last[1] == '-' ? 2 : 1)))
            printf("--%s\t%s\n", a->name, a->help);
    for (const arg *a = sn_args_common(); a->name; a++)
        if (sn_args_has_common(c, a) && starts(a->name, last + (last[1] == '-' ? 2 : 1)))
            printf("--%s\t%s\n", a->name, a->help);
    if (starts("--help", last)) puts("--help\tprint this help");
    return EXIT_OK;
}
