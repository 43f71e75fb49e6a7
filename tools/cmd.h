/* cmd.h: the subcommands of `sinter` and what they share. A subcommand is a file cmd_NAME.c with
 * one function that parses its own option table, and a row in sinter.c. */
#ifndef SN_CMD_H
#define SN_CMD_H

#include "frontend/sinter.h"
#include "runtime/cli/args.h"
#include "runtime/cli/json_out.h"
#include "tools/model/open.h"

/* argv[0] is the subcommand's name. Returns the exit code. Results go to stdout, everything else
 * to stderr. */
typedef int cmd_fn(int argc, char **argv);
cmd_fn cmd_cache, cmd_call, cmd_check, cmd_models, cmd_compile_ahead, cmd_generate, cmd_eval,
    cmd_import, cmd_inspect, cmd_explain, cmd_report, cmd_opt, cmd_plan, cmd_bench, cmd_run,
    cmd_tokenizer, cmd_train, cmd_transcribe, cmd_translate, cmd_quantize, cmd_embed, cmd_fill,
    cmd_completion, cmd_classify, cmd_answer, cmd_env, cmd_version;

/* Runs the subcommand argv[0], which is in the table of sinter.c; returns the exit code. */
int cmd_dispatch(int argc, char **argv);

/* For shells: prints the names that complete `word`, or the last element of its comma-separated list.
 * name(i) is NULL after the last. */
void cmd_offer(const char *word, const char *(*name)(int i));

/* Opens a model with these options. On failure prints the error and returns NULL with the exit code
 * in *code. Notes of the compilation go to stderr. run false: compiles only, without weights. */
open_model *cmd_open(const char *name, const cmd_model *model, const cmd_compile *compile,
                     int entries, bool run, int *code);

/* The same for running a decoder with this many sequences at once; 0 or 1: one. */
open_model *cmd_open_rows(const char *name, const cmd_model *model, const cmd_compile *compile,
                          int64_t sequences, int *code);

/* The same for running an encoder-decoder with this many beams. */
open_model *cmd_open_pair(const char *name, const cmd_model *model, const cmd_compile *compile,
                          int64_t beams, int *code);
/* The same for speech to text. */
open_model *cmd_open_speech(const char *name, const cmd_model *model, const cmd_compile *compile,
                            int64_t beams, int *code);

/* The same for running an encoder: builds `entries`; `needs` must be among them. */
open_model *cmd_open_encoder(const char *name, const cmd_model *model, const cmd_compile *compile,
                             int entries, const char *needs, int *code);

/* Prints the entries of a model in C: inputs, outputs, sizes. */
bool cmd_describe_source(const char *path, sn_error *err);

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

/* Reads a file ("-": stdin) into malloc'ed memory, NUL-terminated. NULL on error. */
char *cmd_read_text(const char *path, size_t *size, sn_error *err);

#endif
