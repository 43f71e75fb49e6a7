/* rope_scaling.h: the frequencies of rotary positions beyond the context that a model was first
 * trained for, as config.json's "rope_scaling" (or "rope_parameters") describes them. Not public. */
#ifndef SN_ROPE_SCALING_H
#define SN_ROPE_SCALING_H

#include "frontend/sinter.h"
#include "runtime/config.h"

enum { MAX_ROTARY_PAIRS = 512 };

typedef struct rope_scaling {
    bool scaled;                   /* else the frequencies are base^(-2i/d) */
    double freq[MAX_ROTARY_PAIRS]; /* angle of pair i per position */
    double scale;                  /* factor of rotated queries and keys */
    double local_base;             /* of the layers with a window, if the section says; else 0 */
} rope_scaling;

/* What the frequencies depend on besides the section of the config. */
typedef struct rope_shape {
    int64_t width;   /* rotated elements of a head: twice the number of pairs */
    int64_t context; /* longest position of the config */
    int64_t used;    /* longest position in use; 0: not asked for */
} rope_shape;

/* Reads the section: *base is the config's "rope_theta" and may be replaced by the section's.
 * *context becomes the context to use where none was asked for. Mistakes are recorded in c. */
void rope_scaling_read(sn_config *c, const rope_shape *shape, double *base, int64_t *context,
                       rope_scaling *out);
/* What "rope_parameters" says is the rotated part of a head; `usual` where it says nothing. */
double rope_rotary_part(sn_config *c, double usual);
/* x [B, H, T, d]: rotates the first `width` elements of each head, as pairs (i, i + width / 2) or,
 * interleaved, (2i, 2i + 1). */
sn_tensor rope_apply(sn_tensor x, sn_tensor pos, int64_t width, bool interleaved, double base,
                     const rope_scaling *r);

#endif
