/* args.h: command lines as tables: one row an option, from which parsing, defaults, ranges and help
 * follow. No global state; used by every subcommand of `sinter`. */
#ifndef SN_ARGS_H
#define SN_ARGS_H

#include "runtime/base.h"

/* What a row's value is stored as, at `offset` of the caller's struct. */
typedef enum arg_kind {
    ARG_FLAG,   /* bool: true when given */
    ARG_INT,    /* int64_t in [lo, hi] */
    ARG_SIZE,   /* int64_t: bytes in [lo, hi], as "500000", "64K", "512M", "2G" (powers of 1024) */
    ARG_NUMBER, /* double in [lo, hi]; "inf" is a number */
    ARG_TEXT,   /* const char *: points into argv or to the default */
    ARG_CHOICE, /* const char *: one of `value`, "auto|own|onednn" */
    ARG_PLACE,  /* const char *: a positional argument that must be there */
    ARG_PLACE_OR_NONE /* const char *: a positional argument that may be left out (NULL) */
} arg_kind;

typedef struct arg {
    const char *name; /* "top-k"; of positional arguments what usage shows, "MODEL" */
    char letter;      /* 'k', or 0 */
    arg_kind kind;
    size_t offset;
    const char *value;   /* what help shows for the value: "N"; NULL for flags and places */
    const char *initial; /* the default as one would type it; NULL: false, 0 or NULL */
    double lo, hi;       /* of numbers */
    const char *help;
} arg;

typedef struct arg_command {
    const char *name; /* "sinter generate" */
    const char *what; /* one line */
    const char *more; /* further help, paragraphs and examples; or NULL */
    const arg *table; /* ended by a row without name; positional rows in their order */
} arg_command;

enum {
    ARGS_RUN = -1,     /* all is set: go on */
    EXIT_OK = 0,       /* done, or help was asked for and printed on stdout */
    EXIT_WRONG = 1,    /* something failed: a file, a model, memory */
    EXIT_USAGE = 2,    /* a wrong command line */
    EXIT_STOPPED = 130 /* interrupted by Ctrl-C, what was finished is kept */
};

/* Fills `out` (defaults first) from argv[1 ..]. Options may stand anywhere, as "--name VALUE",
 * "--name=VALUE", "-n VALUE" or "-nVALUE"; "--" ends them; --help and -h print the help. Returns
 * ARGS_RUN, or the exit code after printing what is wrong (and the nearest name) on stderr. */
int args_parse(const arg_command *c, int argc, char **argv, void *out);

/* Whether the options of a command line may stand together (args_conflicts.c); says what does not.
 * given[i]: the value of row i as typed, "" of a flag, NULL: not given. */
bool args_agree(const arg_command *c, const char *const *given);

/* The name of `list` (ended by NULL) that is most like `word`; NULL if none is near. */
const char *args_nearest(const char *word, const char *const *list);

#endif
