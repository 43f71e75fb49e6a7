/* open.h: options of commands that compile or open a model, as rows for their tables, and what they
 * mean. Notes go to stderr. */
#ifndef SN_OPEN_H
#define SN_OPEN_H

#include "runtime/cli/args.h"
#include "driver/open.h"

/* Options of all commands that compile: rows for a member `compile` of the options struct T. */
typedef struct cmd_compile {
    int64_t level, threads;
    const char *backend, *target, *cache_dir, *off, *accept, *weights, *compute, *cache;
    const char *invariant, *tune_sizes;
    int64_t budget, weights_cache;
    bool strict, tune, check_nan;
} cmd_compile;
/* clang-format off */
#define CMD_TUNE_ARGS(T, in) \
    {"tune", 0, ARG_FLAG, offsetof(T, in tune), NULL, NULL, 0, 0, \
     "measure the possible kernels and cache the fastest choice"}, \
    {"tune-sizes", 0, ARG_TEXT, offsetof(T, in tune_sizes), "B=1,T=256", NULL, 0, 0, \
     "sizes for tuned choices; default: the middle of each range"}
#define CMD_ACCEPT_ARG(at) \
    {"accept", 0, ARG_TEXT, at, "FILE:LINE,…", NULL, 0, 0, \
     "with --strict: lines of a model in C whose operations may be unfused, as with sn_accept_unfused"}
#define CMD_COMPUTE_ARG(at) \
    {"compute", 0, ARG_CHOICE, at, "stored|auto|f32|bf16|bf16-unordered|int8", "stored", 0, 0, \
     "arithmetic of products; bf16: factors are rounded to bf16, sums are f32; " \
     "bf16-unordered: the same in any order of sums, by AMX where that is faster; int8: linear maps as " \
     "products of 8-bit integers, activations quantised by rows; " \
     "stored: what sinter quantize recorded in the folder, or f32; auto: the same, but bf16 where " \
     "nothing is recorded and it is at least 1.2 times as fast as f32"}
#define CMD_INVARIANT_ARG(at) \
    {"invariant", 0, ARG_TEXT, at, "batch,chunk", NULL, 0, 0, \
     "what must not change the bits of results; batch: how many rows are beside a row; chunk: into how many " \
     "calls a sequence is cut (prefill is slower)"}
#define CMD_COMPILE_ARGS(T) \
    {"level", 0, ARG_INT, offsetof(T, compile.level), "0..4", "4", 0, 4, "fusion level, 0: one kernel per operation"}, \
    {"backend", 0, ARG_CHOICE, offsetof(T, compile.backend), "auto|native|onednn", "auto", 0, 0, \
     "kernels: Sinter's own, oneDNN's, or the faster one of each"}, \
    {"weights", 0, ARG_CHOICE, offsetof(T, compile.weights), "stored|f32|bf16|int8|int4|auto", "stored", 0, 0, \
     "storage of the matrices; stored: as the file has them, GGUF's blocks too"}, \
    CMD_COMPUTE_ARG(offsetof(T, compile.compute)), \
    {"cache", 0, ARG_CHOICE, offsetof(T, compile.cache), "f32|bf16|int8", "f32", 0, 0, \
     "storage of keys and values while decoding"}, \
    CMD_INVARIANT_ARG(offsetof(T, compile.invariant)), \
    {"threads", 't', ARG_INT, offsetof(T, compile.threads), "N", "0", 0, 1024, \
     "threads, 0: all available CPUs"}, \
    {"target", 0, ARG_TEXT, offsetof(T, compile.target), "CPU", NULL, 0, 0, "x86-64-v3, x86-64-v4, …; default: this CPU"}, \
    {"cache-dir", 0, ARG_TEXT, offsetof(T, compile.cache_dir), "DIR|none", NULL, 0, 0, \
     "cache of compiled kernels and packed weights; default: ~/.cache/sinter"}, \
    {"weights-cache", 0, ARG_SIZE, offsetof(T, compile.weights_cache), "SIZE", "4G", 0, 1e15, \
     "keep packed weights of up to this size in the cache, so that the next start only maps them; 0: never"}, \
    {"off", 0, ARG_TEXT, offsetof(T, compile.off), "PASS,…", NULL, 0, 0, "passes to disable"}, \
    {"memory-budget", 0, ARG_SIZE, offsetof(T, compile.budget), "SIZE", NULL, 1, 1e15, \
     "512M, 2G: memory limit for activations; recomputes instead of storing more"}, \
    CMD_TUNE_ARGS(T, compile.), \
    {"strict", 0, ARG_FLAG, offsetof(T, compile.strict), NULL, NULL, 0, 0, \
     "the same as --strict-fusion"}, \
    {"strict-fusion", 0, ARG_FLAG, offsetof(T, compile.strict), NULL, NULL, 0, 0, \
     "fail if an expected fusion did not happen: where explain says `not fused`"}, \
    CMD_ACCEPT_ARG(offsetof(T, compile.accept))
/* Of commands that run what they compile. */
#define CMD_CHECK_NAN_ARG(T) \
    {"check-nan", 0, ARG_FLAG, offsetof(T, compile.check_nan), NULL, NULL, 0, 0, \
     "stop at the kernel that produces the first NaN or infinity, and name its operations"}
/* clang-format on */
sn_options cmd_options(const cmd_compile *c);
/* sn_options.compute of the option --compute: NULL if it is stored; maybe auto. */
const char *cmd_compute(const char *option);
/* Decides "auto" for a program that this machine runs, or for the targets of an artefact (--target of
 * `sinter compile`; else NULL), where no folder is opened. Notes what there is to say. */
bool cmd_choose_compute(const char *name, sn_options *o, const char *target, sn_error *err);
/* For sn_options.advance: a line of progress. */
void cmd_advance(void *ctx, const char *what, double done);
/* Warns once if n threads are more than the CPUs available to this process. */
void cmd_note_threads(int64_t n);

extern const open_hooks *cmd_hooks; /* of the library of models; NULL: there is none */

/* Options that select a model: rows for a member `model` of T (MODEL itself is a positional
 * argument). */
typedef struct cmd_model {
    const char *path, *preset, *tokenizer, *checkpoint;
    int64_t context;
} cmd_model;
/* clang-format off */
#define CMD_CHECKPOINT_ARG(T) \
    {"checkpoint", 0, ARG_TEXT, offsetof(T, model.checkpoint), "PATH", NULL, 0, 0, \
     "weights of a model in C: .safetensors or a folder; default: random"}
#define CMD_MODEL_ARGS(T) \
    {"MODEL", 0, ARG_PLACE_OR_NONE, offsetof(T, model.path), NULL, NULL, 0, 0, \
     "model folder, GGUF file, file that `sinter import` can read, or model in C (sinter run --help)"}, \
    CMD_CHECKPOINT_ARG(T), \
    {"preset", 0, ARG_TEXT, offsetof(T, model.preset), "NAME", NULL, 0, 0, \
     "instead of MODEL: gpt2, gpt2-medium, … with random weights"}, \
    {"tokenizer", 0, ARG_TEXT, offsetof(T, model.tokenizer), "PATH", NULL, 0, 0, \
     "tokenizer file or folder; default: the model's"}, \
    {"context", 0, ARG_INT, offsetof(T, model.context), "N", "0", 0, 1 << 24, "maximum sequence length; 0: the model's"}
/* clang-format on */

/* Opens a model. o: all fields except those that select the model. Every command that takes a MODEL
 * uses this function. Notes (random weights, notes of the compilation) go to stderr. NULL on
 * error. */
open_model *cmd_open_model(const char *name, const cmd_model *model, open_options o, sn_error *err);

#endif
