/* args.h: describes a command line by a table with one row per option; parsing, defaults, ranges
 * and help follow from it. Used by every subcommand of `sinter` and by deployed programs. The options
 * that all commands share are rows of sn_args_common; their values go to sn_screen(). */
#ifndef SN_ARGS_H
#define SN_ARGS_H

#include "runtime/base.h"
#include "runtime/cli/screen.h"

/* How a row's value is stored at `offset` in the caller's struct. */
typedef enum arg_kind {
    ARG_FLAG, /* bool: true if given */
    /* int64_t in [lo, hi]; -1 for "auto", where that is the default */
    ARG_INT,
    /* int64_t: bytes in [lo, hi], such as "500000", "64K", "512M", "2G" (powers of 1024) */
    ARG_SIZE,
    ARG_NUMBER,   /* double in [lo, hi]; "inf" is a number; NaN for "auto", as above */
    ARG_TEXT,     /* const char *: points into argv or to the default */
    ARG_TEXTS,    /* arg_texts: may be given several times */
    ARG_CHOICE,   /* const char *: one of `value`, "auto|native|onednn" */
    ARG_OPTIONAL, /* const char *: "" as --name, the text as --name=TEXT; `value` is "[=TEXT]" */
    ARG_PLACE,    /* const char *: a required positional argument */
    ARG_PLACE_OR_NONE /* const char *: an optional positional argument (NULL) */
} arg_kind;

enum { ARG_TEXTS_MAX = 16 };
typedef struct arg_texts {
    const char *item[ARG_TEXTS_MAX];
    int n;
} arg_texts;

typedef struct arg {
    const char *name; /* "top-k"; for positional arguments the name in the usage line, "MODEL" */
    char short_name;  /* 'k', or 0 */
    arg_kind kind;
    size_t offset;
    /* placeholder for the value in the help: "N"; NULL for flags. Of positional arguments the
     * choices, "bash|zsh|fish", for completion, or NULL */
    const char *value;
    const char *initial; /* the default in the form it is typed; NULL: false, 0 or NULL */
    double lo, hi;       /* range of numbers */
    const char *help;
} arg;

/* A key of the objects that a command prints with --json. The help lists them, and a test compares
 * them with what is printed. */
typedef struct arg_key {
    /* "loss"; "answers[].begin": of the elements of a list. A key that follows from the input, such as
     * a class, is "*" */
    const char *name;
    const char
        *type; /* text, integer, number, boolean, list, object; "number?": it may be absent */
    const char *help;
} arg_key;

typedef struct arg_command {
    const char *name;     /* "sinter generate" */
    const char *what;     /* one line */
    const char *more;     /* additional help, paragraphs and examples; or NULL */
    const arg *table;     /* terminated by a row without a name; positional rows in order */
    const char *examples; /* command lines, each on a line; or NULL */
    const arg_key *json;  /* terminated by a row without a name; NULL: the command has no --json */
} arg_command;

enum {
    ARGS_RUN = -1,     /* parsed: continue */
    EXIT_OK = 0,       /* success, or help was requested and printed */
    EXIT_WRONG = 1,    /* an error: a file, a model, memory */
    EXIT_USAGE = 2,    /* a wrong command line */
    EXIT_STOPPED = 130 /* interrupted by Ctrl-C; finished results are kept */
};

/* Options of every command: --json (where the command has keys for it), --quiet, --verbose, --color.
 * A command's own row with the same name, or letter, comes first. */
const arg *sn_args_common(void);
bool sn_args_has_common(const arg_command *c, const arg *a);
bool sn_args_is_common(const arg *a); /* is it a row of that table? */
#define ARGS_CHECK "--check-line"     /* of the program: sets screen_options.check_only */

/* Fills `out` (defaults first) from argv[1 ..]. Options may be anywhere, as "--name VALUE",
 * "--name=VALUE", "-n VALUE" or "-nVALUE"; "--" ends them; --help and -h print the help. Returns
 * ARGS_RUN; otherwise prints the error (and the nearest name) on stderr and returns the exit
 * code. */
int sn_args_parse(const arg_command *c, int argc, char **argv, void *out);

/* Prints what may stand in place of the last of n words after the command: candidates that begin
 * with it, one per line, with a tab and a description; ARGS_FILES: names of files. For shells;
 * sn_args_parse calls it if argv[1] is ARGS_COMPLETE. Returns the exit code. */
#define ARGS_COMPLETE "--complete"
#define ARGS_FILES ":files"
int sn_args_complete(const arg_command *c, int n, char *const *word);

/* Whether the options of a command line are compatible (args_conflicts.c); prints the conflict if
 * not. given[i]: the value of row i as typed, "" for a flag, NULL: not given. */
bool sn_args_agree(const arg_command *c, const char *const *given);

/* Reads a file ("-": stdin) into malloc'ed memory, NUL-terminated. NULL on error. */
char *sn_text_read(const char *path, size_t *size, sn_error *err);

#endif
