/* opt.h: passes on text, for `sinter opt` and the tests of passes. */
#ifndef SN_OPT_H
#define SN_OPT_H

#include "runtime/base.h"

#include <stdio.h>

/* Parses `text` without folding, runs the passes named in `passes` ("simplify,raise"; in the order
 * of passes.def, as at fusion level `level`; NULL or "": none), verifies after each one and prints
 * the module. precision: "bf16" for the pass store_bf16; NULL: f32. `file` is the name of the text
 * in messages. False: err describes the error in the text, the names or the graph. */
bool sn_opt(const char *text, const char *file, const char *passes, int level,
            const char *precision, FILE *out, sn_error *err);

#endif
