/* args.c: parses a command line according to its table, prints help, and suggests the nearest
 * option for a misspelt one. */
#include "runtime/cli/args.h"
#include "runtime/problems.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORD = 32, MAX_ROWS = 64, HELP_COLUMN = 30 };

static bool is_place(const arg *a) {
    return a->kind == ARG_PLACE || a->kind == ARG_PLACE_OR_NONE;
}

/* Characters, not bytes, of a UTF-8 string. */
static int width_of(const char *s) {
    int n = 0;
    for (; *s; s++) n += (*s & 0xC0) != 0x80;
    return n;
}

static void print_row(const arg *a) {
    char left[80];
    int n = a->short_name ? snprintf(left, sizeof left, "  -%c, --%s", a->short_name, a->name)
                          : snprintf(left, sizeof left, "      --%s", a->name);
    const char *gap = a->kind == ARG_OPTIONAL ? "" : " ";
    if (a->value) snprintf(left + n, sizeof left - (size_t)n, "%s%s", gap, a->value);
    int space = HELP_COLUMN - width_of(left);
    if (space < 2) /* man.sh tells the columns apart by two spaces */
        printf("%s\n%*s%s", left, HELP_COLUMN, "", a->help);
    else
        printf("%s%*s%s", left, space, "", a->help);
    if (a->initial && *a->initial) printf(" [%s]", a->initial);
    putchar('\n');
}

/* ---- help ---- */

/* The row as the command shows it: without a letter that one of its own rows has. */
static arg shown(const arg_command *c, const arg *a) {
    arg row = *a;
    for (const arg *own = c->table; own->name; own++)
        if (!is_place(own) && own->short_name == row.short_name) row.short_name = 0;
    return row;
}

static void print_heading(const char *before, const char *text, const char *after) {
    printf("%s%s%s%s%s", before, sn_screen_color(stdout, STYLE_HEADING), text,
           sn_screen_color(stdout, STYLE_NONE), after);
}

static void print_keys(const arg_key *k) {
    print_heading("\n", "json:", " the keys of each object that --json prints\n");
    for (; k->name; k++) {
        int space = 24 - width_of(k->name);
        printf("  %s%*s%-12s%s\n", k->name, space > 1 ? space : 2, "", k->type, k->help);
    }
}

static void print_help(const arg_command *c) {
    printf("%s%s%s: %s\n\n", sn_screen_color(stdout, STYLE_HEADING), c->name,
           sn_screen_color(stdout, STYLE_NONE), c->what);
    print_heading("", "usage:", " ");
    printf("%s", c->name);
    for (const arg *a = c->table; a->name; a++)
        if (is_place(a)) printf(a->kind == ARG_PLACE ? " %s" : " [%s]", a->name);
    printf(" [options]\n");
    bool first = true;
    for (const arg *a = c->table; a->name; a++) {
        if (!is_place(a)) continue;
        printf("%s  %-*s%s\n", first ? "\n" : "", HELP_COLUMN - 2, a->name, a->help);
        first = false;
    }
    print_heading("\n", "options:", "\n");
    for (const arg *a = c->table; a->name; a++)
        if (!is_place(a)) print_row(a);
    for (const arg *a = sn_args_common(); a->name; a++) {
        arg row = shown(c, a);
        if (sn_args_has_common(c, a)) print_row(&row);
    }
    printf("%-*s%s\n", HELP_COLUMN, "  -h, --help", "print this help");
    if (c->more) printf("\n%s", c->more);
    if (c->examples) {
        print_heading("\n", "examples:", "\n");
        for (const char *s = c->examples; *s;) {
            int n = (int)strcspn(s, "\n");
            printf("  %.*s\n", n, s);
            s += n + (s[n] == '\n');
        }
    }
    if (c->json) print_keys(c->json);
}

/* ---- values ---- */

static int complain(const arg_command *c) {
    fprintf(stderr, "(%s --help lists all options)\n", c->name);
    return EXIT_USAGE;
}

static void *slot_of(const arg *a, void *out) {
    return (char *)out + a->offset;
}

static void show_range(const arg *a) {
    if (isinf(a->hi))
        fprintf(stderr, ", at least %.15g\n", a->lo);
    else
        fprintf(stderr, " from %.15g to %.15g\n", a->lo, a->hi);
}

/* "auto" is a value where it is the default. */
static bool is_auto(const arg *a, const char *text) {
    return a->initial && !strcmp(a->initial, "auto") && !strcmp(text, "auto");
}

static bool set_int(const arg_command *c, const arg *a, const char *text, void *out) {
    if (is_auto(a, text)) {
        *(int64_t *)out = -1;
        return true;
    }
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (*text && !*end && !errno && (double)v >= a->lo && (double)v <= a->hi) {
        *(int64_t *)out = v;
        return true;
    }
    sn_screen_error(c->name, "--%s is '%s'; allowed: an integer", a->name, text);
    show_range(a);
    return false;
}

static bool set_size(const arg_command *c, const arg *a, const char *text, void *slot) {
    static const char units[] = "KMG";
    errno = 0;
    char *end;
    double v = strtod(text, &end);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++) v *= 1024;
    if (end == text || errno || (*end && (!unit || end[1])) || !(v >= a->lo && v <= a->hi)) {
        sn_screen_error(c->name, "--%s %s: a number of bytes is expected, such as 512M or 2G\n",
                        a->name, text);
        return false;
    }
    *(int64_t *)slot = (int64_t)v;
    return true;
}

static bool set_number(const arg_command *c, const arg *a, const char *text, void *out) {
    if (is_auto(a, text)) {
        *(double *)out = NAN;
        return true;
    }
    char *end;
    double v = strtod(text, &end);
    if (*text && !*end && v >= a->lo && v <= a->hi) {
        *(double *)out = v;
        return true;
    }
    sn_screen_error(c->name, "--%s is '%s'; allowed: a number", a->name, text);
    show_range(a);
    return false;
}

static bool set_choice(const arg_command *c, const arg *a, const char *text, void *out) {
    size_t n = strlen(text);
    for (const char *p = a->value; p && *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && !strncmp(p, text, n)) {
            *(const char **)out = text;
            return true;
        }
        p += len + (p[len] == '|');
    }
    sn_screen_error(c->name, "--%s is '%s'; allowed: %s\n", a->name, text, a->value);
    return false;
}

static bool set_flag(const arg_command *c, const arg *a, const char *text, void *out) {
    (void)c, (void)a, (void)text;
    *(bool *)out = true;
    return true;
}

static bool set_text(const arg_command *c, const arg *a, const char *text, void *out) {
    (void)c, (void)a;
    *(const char **)out = text;
    return true;
}

static bool set_optional(const arg_command *c, const arg *a, const char *text, void *out) {
    return set_text(c, a, text ? text : "", out);
}

static bool set_texts(const arg_command *c, const arg *a, const char *text, void *out) {
    arg_texts *list = out;
    if (list->n < ARG_TEXTS_MAX) {
        list->item[list->n++] = text;
        return true;
    }
    sn_screen_error(c->name, "--%s may be given %d times\n", a->name, ARG_TEXTS_MAX);
    return false;
}

static bool set_value(const arg_command *c, const arg *a, const char *text, void *out) {
    static bool (*const setters[])(const arg_command *, const arg *, const char *, void *) = {
        [ARG_FLAG] = set_flag,          [ARG_INT] = set_int,       [ARG_NUMBER] = set_number,
        [ARG_TEXT] = set_text,          [ARG_CHOICE] = set_choice, [ARG_PLACE] = set_text,
        [ARG_PLACE_OR_NONE] = set_text, [ARG_SIZE] = set_size,     [ARG_TEXTS] = set_texts,
        [ARG_OPTIONAL] = set_optional};
    return setters[a->kind](c, a, text, slot_of(a, out));
}

static void clear_value(const arg *a, void *out) {
    static const size_t sizes[] = {[ARG_FLAG] = sizeof(bool),
                                   [ARG_INT] = sizeof(int64_t),
                                   [ARG_NUMBER] = sizeof(double),
                                   [ARG_TEXT] = sizeof(char *),
                                   [ARG_CHOICE] = sizeof(char *),
                                   [ARG_PLACE] = sizeof(char *),
                                   [ARG_PLACE_OR_NONE] = sizeof(char *),
                                   [ARG_SIZE] = sizeof(int64_t),
                                   [ARG_TEXTS] = sizeof(arg_texts),
                                   [ARG_OPTIONAL] = sizeof(char *)};
    memset(slot_of(a, out), 0, sizes[a->kind]);
}

static bool set_defaults(const arg_command *c, void *out) {
    for (const arg *a = c->table; a->name; a++) {
        clear_value(a, out);
        if (a->initial && !set_value(c, a, a->initial, out)) return false;
    }
    return true;
}

/* ---- parsing ---- */

static const arg *find_long(const arg_command *c, const char *name, size_t n) {
    for (const arg *a = c->table; a->name; a++)
        if (!is_place(a) && strlen(a->name) == n && !strncmp(a->name, name, n)) return a;
    for (const arg *a = sn_args_common(); a->name; a++)
        if (strlen(a->name) == n && !strncmp(a->name, name, n) && sn_args_has_common(c, a))
            return a;
    return NULL;
}

static const arg *find_short(const arg_command *c, char short_name) {
    for (const arg *a = c->table; a->name; a++)
        if (!is_place(a) && a->short_name && a->short_name == short_name) return a;
    for (const arg *a = sn_args_common(); a->name; a++)
        if (a->short_name && a->short_name == short_name && sn_args_has_common(c, a)) return a;
    return NULL;
}

static int report_unknown(const arg_command *c, const char *word, const char *name, size_t n) {
    const char *names[64] = {"help"};
    char meant[MAX_WORD + 1];
    int count = 1;
    for (const arg *a = c->table; a->name && count < 63; a++)
        if (!is_place(a)) names[count++] = a->name;
    for (const arg *a = sn_args_common(); a->name && count < 63; a++)
        if (sn_args_has_common(c, a)) names[count++] = a->name;
    snprintf(meant, sizeof meant, "%.*s", (int)(n < MAX_WORD ? n : MAX_WORD), name);
    const char *near = word[1] == '-' ? sn_nearest_name(meant, names) : NULL;
    sn_screen_error(c->name, "unknown option '%s'", word);
    if (near) fprintf(stderr, "; did you mean --%s?", near);
    fputc('\n', stderr);
    return complain(c);
}

/* Parses the option at argv[*i]; skips its value if that is a separate argument. */
static int parse_option(const arg_command *c, int argc, char **argv, int *i, const char **given,
                        void *out) {
    const char *word = argv[*i], *name = word + 1, *value = NULL;
    size_t n = 1;
    const arg *a;
    if (word[1] == '-') {
        name = word + 2;
        n = strcspn(name, "=");
        if (name[n]) value = name + n + 1;
        a = find_long(c, name, n);
    } else {
        a = find_short(c, *name);
        if (name[1]) value = name + 1;
    }
    if (!a) return report_unknown(c, word, name, n);
    if (a->kind == ARG_FLAG && value) {
        sn_screen_error(c->name, "--%s takes no value\n", a->name);
        return complain(c);
    }
    if (a->kind != ARG_FLAG && a->kind != ARG_OPTIONAL && !value) {
        if (*i + 1 >= argc) {
            sn_screen_error(c->name, "--%s needs a value: %s\n", a->name, a->value);
            return complain(c);
        }
        value = argv[++*i];
    }
    bool known = !sn_args_is_common(a) && a - c->table < MAX_ROWS;
    if (known && value && given[a - c->table] && a->kind != ARG_TEXTS) {
        sn_screen_error(c->name, "--%s is given twice, '%s' and '%s': it takes one value\n",
                        a->name, given[a - c->table], value);
        return complain(c);
    }
    if (!set_value(c, a, value, sn_args_is_common(a) ? (void *)sn_screen() : out))
        return complain(c);
    if (known) given[a - c->table] = value ? value : "";
    return ARGS_RUN;
}

static int finish_places(const arg_command *c, const arg *place) {
    for (; place->name; place++) {
        if (place->kind != ARG_PLACE) continue;
        sn_screen_error(c->name, "missing %s (%s)\n", place->name, place->help);
        return complain(c);
    }
    return ARGS_RUN;
}

int sn_args_parse(const arg_command *c, int argc, char **argv, void *out) {
    bool options = true;
    const char *given[MAX_ROWS] = {NULL};
    const arg *place = c->table;
    if (argc > 1 && !strcmp(argv[1], ARGS_COMPLETE)) return sn_args_complete(c, argc - 2, argv + 2);
    if (!set_defaults(c, out)) return EXIT_USAGE;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--"))
            break;
        else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(c);
            return EXIT_OK;
        }
    for (int i = 1; i < argc; i++) {
        if (options && !strcmp(argv[i], "--")) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            int code = parse_option(c, argc, argv, &i, given, out);
            if (code != ARGS_RUN) return code;
        } else {
            while (place->name && !is_place(place)) place++;
            if (!place->name) {
                sn_screen_error(c->name, "unexpected argument '%s'\n", argv[i]);
                return complain(c);
            }
            *(const char **)slot_of(place++, out) = argv[i];
        }
    }
    int code = finish_places(c, place);
    if (code == ARGS_RUN && !sn_args_agree(c, given)) code = complain(c);
    if (code == ARGS_RUN && sn_screen()->quiet && sn_screen()->verbose) {
        sn_screen_error(c->name, "--verbose contradicts --quiet\n");
        code = complain(c);
    }
    return code == ARGS_RUN && sn_screen()->check_only ? EXIT_OK : code;
}
