/* deployed.h: the table through which a main program calls the artefact that it is linked with. */
#ifndef SN_DEPLOYED_H
#define SN_DEPLOYED_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The struct NAME of every artefact, filled by the caller. */
typedef struct sn_deployed_model {
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target;
    int16_t mapped, max_threads;
} sn_deployed_model;

/* An entry of NAME.h with its dimensions, inputs and outputs, as arrays in their order. */
typedef struct sn_deployed_entry {
    const char *name;
    int32_t (*call)(const sn_deployed_model *m, void *state, void *workspace, const int64_t *dims,
                    void *const *args);
    int64_t (*workspace)(const sn_deployed_model *m, const int64_t *dims);
} sn_deployed_entry;

typedef struct sn_deployed {
    int32_t (*open)(sn_deployed_model *m, const char *path);
    int32_t (*init)(sn_deployed_model *m, const void *weights, int64_t bytes);
    void (*close)(sn_deployed_model *m);
    int32_t (*verify)(const sn_deployed_model *m);
    int32_t (*choose)(sn_deployed_model *m, int32_t target);
    int32_t (*set_threads)(sn_deployed_model *m, int64_t n);
    int32_t (*state_init)(const sn_deployed_model *m, void *state);
    const char *(*message)(int32_t code);
    const char *manifest;
    int64_t n_entry;
    const sn_deployed_entry *entry;     /* [n_entry] */
    const struct sn_file_inside *files; /* as sn_file_take_inside takes them; NULL: none */
} sn_deployed;

extern const sn_deployed sn_deployed_artefact;

#ifdef __cplusplus
}
#endif
#endif
