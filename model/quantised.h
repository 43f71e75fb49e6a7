/* quantised.h: what `sinter quantize` records in the config.json of the folders that it writes:
 *
 *   "sinter_quantization": {
 *     "weights": "int4",                         how the matrices are stored, unless told otherwise
 *     "compute": "int8",                         how products are computed, unless told otherwise
 *     "keep_weights": {"NAME": "int8", ...},     matrices that need more bits than that
 *     "keep_products": {"NAME": "f32", ...}}     products that stay f32 when others are int8
 *
 * Every key may be absent. */
#ifndef SN_QUANTISED_H
#define SN_QUANTISED_H

#include "ir/compile.h"
#include "runtime/config.h"

#define SN_QUANTISED_KEY "sinter_quantization"

typedef struct quantised {
    const char *weights, *compute; /* NULL: not recorded */
    sn_keep *keep;
    int n_keep;
    sn_config *parts[3]; /* hold the strings */
} quantised;

/* Reads the key of a config; without it, or without a config, *out is empty. Freed by
 * quantised_free, in any case. */
bool quantised_read(sn_config *config, quantised *out, sn_error *err);
void quantised_free(quantised *q);
/* Replaces the key of a config by this. */
bool quantised_write(const quantised *q, sn_config *config, sn_error *err);
/* Whether this value of the option `weights` or `compute` leaves the choice to the folder. */
bool quantised_is_open(const char *option);

#endif
