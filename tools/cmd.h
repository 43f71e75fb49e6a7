/* cmd.h: the subcommands of `sinter` and what they share. A subcommand is a file cmd_NAME.c with
 * one function that parses its own option table, and a row of a table: the compiler's in sinter.c, or
 * that of the library of models, which main gives. */
#ifndef SN_CMD_H
#define SN_CMD_H

#include "frontend/sinter.h"
#include "runtime/cli/args.h"
#include "runtime/cli/json_out.h"
#include "tools/model/open.h"

/* argv[0] is the subcommand's name. Returns the exit code. Results go to stdout, everything else
 * to stderr. */
typedef int cmd_fn(int argc, char **argv);
cmd_fn cmd_bench, cmd_cache, cmd_call, cmd_check, cmd_compile_ahead, cmd_completion, cmd_env,
    cmd_explain, cmd_opt, cmd_report, cmd_run, cmd_version;

typedef struct cmd_row {
    const char *name, *what;
    cmd_fn *run;
    bool threads;     /* runs models */
    const char *verb; /* what `sinter run MODEL.c NAME` does; NULL: it takes no model in C */
} cmd_row;

/* What the library of models knows of an artefact (`sinter compile`). */
typedef struct cmd_artefact {
    sn_emit_pixels pixels;
    char resize[256];
    const char **label;     /* class names: a list that the caller frees */
    bool tokenizer, source; /* folders beside a program */
    bool unicode, regex;    /* a program needs the tables of Unicode, PCRE2 */
    bool static_gomp;       /* libgomp became a part of the program */
} cmd_artefact;

/* What the library of models adds to the program. */
typedef struct cmd_library {
    const cmd_row *rows; /* the last one has no name */
    const open_hooks *open;
    /* Fills what NAME.h and a program say of tokens, pictures and classes; *a must outlive eo. */
    bool (*describe)(open_model *m, sn_emit_options *eo, cmd_artefact *a, sn_error *err);
    /* Prints which tokens a module may choose, a value with the key "rules"; NULL m: a training step. */
    void (*rules)(const open_model *m, json_out *j);
    /* Writes what a program reads beside its weights; tables: its tokenizers ready for use. */
    bool (*save)(const open_model *m, const char *dir, const char *name, bool tables,
                 sn_error *err);
    /* Emits the training step of a config; rate: that takes the learning rate as an argument. */
    bool (*train)(const char *config, int entries, int64_t slices, bool rate, sn_emit_options *eo,
                  sn_error *err);
} cmd_library;

extern const cmd_library *cmd_models; /* NULL: this program has none */
#define CMD_NO_MODELS "this program has no library of models (SN_MODELS=OFF)"

/* The program. */
int cmd_main(int argc, char **argv, const cmd_library *models);

/* Row i of the tables, that of the models first; NULL after the last. */
const cmd_row *cmd_row_at(int i);
/* The row of a subcommand, or of one with a `verb`. NULL: there is none; `tell` says so, and which name
 * is near. */
const cmd_row *cmd_find(const char *name, bool verb, bool tell);

/* For shells: prints the names that complete `word`, or the last element of its comma-separated list.
 * name(i) is NULL after the last. */
void cmd_offer(const char *word, const char *(*name)(int i));

/* Opens a model with these options. On failure prints the error and returns NULL with the exit code
 * in *code. Notes of the compilation go to stderr. */
open_model *cmd_open(const char *name, const cmd_model *model, const cmd_compile *compile,
                     open_options o, int *code);

/* Prints the entries of a model in C: inputs, outputs, sizes. Returns the exit code. */
int cmd_describe_source(const char *name, const char *path);

/* Prints the error as "sinter NAME: MESSAGE"; returns the exit code, EXIT_STOPPED after Ctrl-C. */
int cmd_fail(const char *name, const sn_error *err);

/* EXIT_OK, or a failure if the output could not be written (such as a full disk). */
int cmd_finish(const char *name);

/* --profile FILE: a row for options with a member `profile`, and the calls around the runs.
 * cmd_profile_begin returns NULL without a path, or on error (err->code is set); cmd_profile_end
 * writes the file and accepts NULL. */
/* clang-format off */
#define CMD_PROFILE_ARG(T) \
    {"profile", 0, ARG_TEXT, offsetof(T, profile), "FILE.json", NULL, 0, 0, \
     "timeline of every kernel on every thread; opens in Perfetto"}
/* clang-format on */
sn_trace *cmd_profile_begin(const char *path, sn_session *s, sn_error *err);
bool cmd_profile_end(const char *path, sn_trace *t, sn_error *err);
/* The same if `path` has been written. */
bool cmd_profile_wrote(const char *path, sn_trace *t);

/* Threads of this rank, if the user did not say how many: the machine's CPUs, divided among its ranks,
 * unless the launcher has bound each rank to some. c NULL: one rank, `wanted`. */
struct sn_comm;
int cmd_rank_threads(const struct sn_comm *c, int wanted);

/* "0..4", "4", "0,3,4": fusion levels as bits. */
bool cmd_read_levels(const char *text, unsigned *levels, sn_error *err);

/* Whether the file can be written (NULL: no file); checked before minutes of work. */
bool cmd_can_write(const char *path, sn_error *err);

/* "sinter: compile …" lines for --stats. */
void cmd_print_model(const open_model *m);

/* The path itself; for "-" one under which standard input, read to its end, can be opened and mapped as
 * a regular file for as long as the process runs. NULL on error. Call it once for "-". */
const char *cmd_input_path(const char *path, sn_error *err);

/* Whether a module has an entry; NULL: true. err lists those that it has. */
bool cmd_has_entry(sn_module *m, const char *entry, sn_error *err);

#endif
