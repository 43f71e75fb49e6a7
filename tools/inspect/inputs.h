/* inputs.h: made-up inputs for an entry, so that reports can run it: tokens and other indices at
 * random within the tables that they index, floats at random in -1 to 1, four documents of
 * equal length, texts with a quarter of padding, everything else zero. The same for the same sizes. */
#ifndef SN_INSPECT_INPUTS_H
#define SN_INSPECT_INPUTS_H

#include "frontend/sinter.h"
#include "ir/ir.h"

/* LOOK_LENGTH: tokens of costs and runs, LOOK_MAP_LENGTH: of maps of attention's tiles, unless the
 * user says otherwise. */
enum {
    LOOK_INPUTS = 64,
    LOOK_SYMBOLS = 16,
    LOOK_LENGTH = 256,
    LOOK_MAP_LENGTH = 512,
    LOOK_SIZES = 400 /* characters of sizes as text */
};

typedef struct inspect_inputs {
    sn_arg_binding arg[LOOK_INPUTS]; /* the inputs, then the symbolic dimensions */
    int64_t shape[LOOK_INPUTS][SN_MAX_RANK];
    void *data[LOOK_INPUTS]; /* of inputs */
    int64_t symbol[LOOK_SYMBOLS];
    int n, n_data;
} inspect_inputs;

/* Whether an entry has states, so that there may be earlier tokens. */
bool inspect_inputs_past(const sn_module *m, const sn_entry *e);

/* Sizes of all dimensions as text: those of the user's `sizes` (or NULL), otherwise one sequence, and
 * `length` or the maximum of the other dimensions; past: with room for as many earlier tokens, otherwise
 * with none (P=0). False: err, `sizes` is wrong. */
bool inspect_inputs_sizes(const sn_module *m, int64_t length, bool past, const char *sizes,
                          char text[LOOK_SIZES], sn_error *err);

/* The inputs of the entry as it is written, also those that its program does not read. sizes: "B=1,T=128";
 * dimensions that are not listed have the middle of their range. False: err.
 * Free with inspect_inputs_free in either case. */
bool inspect_inputs_make(inspect_inputs *in, const sn_program *p, const char *entry,
                         const char *sizes, sn_error *err);
/* The same without a program: of an entry that exists, as it is written. */
bool inspect_inputs_written(inspect_inputs *in, sn_module *m, const char *entry, const char *sizes,
                            sn_error *err);
void inspect_inputs_free(inspect_inputs *in);

/* Runs the entry on them. */
bool inspect_inputs_run(const inspect_inputs *in, sn_session *s, const char *entry, sn_error *err);

#endif
