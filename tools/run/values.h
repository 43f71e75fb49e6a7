/* values.h: the values with which commands run a model's entries: what the user gives by name, and made-up
 * numbers for the rest. */
#ifndef SN_RUN_VALUES_H
#define SN_RUN_VALUES_H

#include "driver/open.h"
#include "runtime/cli/args.h"
#include "runtime/npy.h"
#include "tools/inspect/inputs.h"

enum { RUN_GIVEN = 64 };

/* --input. A row without an array is a range of random numbers, or one number (lo = hi). */
typedef struct run_given {
    struct run_value {
        char *name;
        sn_npy array; /* data NULL: a range */
        double lo, hi;
        bool random; /* the range that the command chooses */
        bool used;
        bool of_archive; /* given with all other arrays of an archive */
    } item[RUN_GIVEN];
    int n;
} run_given;

/* Reads "NAME=FILE.npy", "NAME=FILE.npz" (its array NAME), "NAME=FILE.npz:ARRAY", "FILE.npz" (all of its
 * arrays), "NAME=random", "NAME=LO..HI", "NAME=NUMBER". False: err. Free in either case. */
bool run_given_read(const arg_texts *text, run_given *out, sn_error *err);
void run_given_free(run_given *g);
/* After a run: false: err names one that nothing has read. Those of a whole archive that another entry
 * reads are a note of `command` only. */
bool run_given_used(const run_given *g, sn_module *m, const char *model, const char *command,
                    sn_error *err);

/* The parameters of a module: from weights if the model has them, else random numbers that spread more
 * than initial weights do, so that nothing stays hidden behind zeros; equal names have equal values. */
typedef struct run_params {
    sn_arg_binding *list; /* [n] */
    int n;
    void **own; /* [n] their data */
} run_params;
bool run_params_make(run_params *p, const open_model *m, run_given *g, uint64_t seed,
                     sn_error *err);
void run_params_free(run_params *p);

/* Sizes for an entry: those given, those of the given inputs, else one sequence of `length`, or two if
 * `batch` is 2. past: with as many earlier tokens. */
bool run_sizes(const sn_module *m, const sn_entry *e, const run_given *g, int64_t length,
               int64_t batch, bool past, const char *sizes, char *text, size_t size, sn_error *err);

/* Inputs (inspect_inputs_make) with what is given in their places. vocab: bound of targets; 0: none. */
bool run_inputs_make(inspect_inputs *in, const sn_program *p, const char *entry, const char *sizes,
                     run_given *g, int64_t vocab, sn_error *err);

/* Puts what is given in the places of inputs that exist. */
bool run_inputs_given(inspect_inputs *in, run_given *g, sn_error *err);

/* Elements of a state before a run: floats from 0 to 1, integers 0. */
void run_state_fill(const sn_node *state, int64_t n, void *data);

#endif
