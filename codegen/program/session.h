/* session.h: the inside of a session, shared by run.c, bind.c and session.c. Each calls only those
 * before it. */
#ifndef SN_SESSION_H
#define SN_SESSION_H

#include "codegen/program/program.h"
#include "codegen/backend.h"
#include "codegen/program/share.h"
#include "runtime/memory.h"
#include "runtime/problems.h"
#include "runtime/weights.h"

#include <pthread.h>

typedef struct block { /* memory of the session */
    void *data;
    size_t size;
} block;

typedef struct source { /* a parameter's value as it was given: in a file, in an array */
    const void *data;
    sn_dtype dtype;
    size_t bytes;
    const sn_block_format *block; /* NULL: an array */
    const unsigned char *scales;  /* of blocks that keep them apart */
    bool split;                   /* the value is one part of the blocks */
    sn_weight_part part;
    sn_share share; /* of a divided parameter: what this rank has of the tensor */
    bool run;       /* which begins at data: the rest of the tensor is not looked at */
} source;

typedef struct bound { /* a parameter or state by name */
    const char *name;
    sn_dtype dtype;
    size_t bytes;
    void *data;  /* NULL: a parameter of another type in the file that only preparations read */
    bool owned;  /* data is memory of the session */
    source from; /* no data: a prepared parameter, a state that begins with zeros */
} bound;

typedef struct packed { /* the owned parameters in the disk cache */
    const void *data;   /* the mapped file; NULL: they are in memory of the session */
    void *source;       /* what the thread stores */
    size_t bytes;
    pthread_t thread;
    bool storing; /* the thread was started */
} packed;

struct sn_session {
    sn_program *p;     /* the session is one of its owners */
    atomic_int owners; /* the user and every trace */
    atomic_bool busy;  /* a run is under way */
    sn_threads threads;
    bound *param, *state;
    int n_param, n_state;
    const sn_weights *weights; /* the file of the parameters; NULL: arrays */
    block memory, states;      /* mappings; memory: prepared and converted parameters */
    packed packed;
    block workspace, spare; /* spare: outputs that the caller does not want */
    void ***fixed;          /* [p->n_entry]: buffer tables with parameters and states filled in */
    void *library_state;    /* of sn_backend_library, made by the first step that it runs */
    sn_profile *profile;
    sn_collectives *collectives;      /* NULL: none */
    const sn_compiled_entry *running; /* for host steps */
    sn_error host_error;
};

/* Where parameters come from: a file, arrays, or what another session has. */
typedef struct origin {
    const sn_session *like;
    const sn_weights *weights;
    const sn_arg_binding *array;
    int n_array;
    sn_problems problems;
} origin;

/* bind.c: gives every parameter and state of the program its memory and its first value, and runs
 * the preparation of weights. False: err. */
bool sn_session_bind(sn_session *s, origin *o, sn_error *err);
bound *sn_session_find(bound *list, int n, const char *name); /* NULL if absent */
bool sn_session_is_prepared(const char *name);

/* packed.c: whether the owned parameters of all that many bytes are worth a file in the disk
 * cache. */
bool sn_packed_is_wanted(const sn_session *s, size_t bytes);
/* The owned parameters of all that many bytes, mapped from the disk cache; NULL: they must
 * be prepared. */
const void *sn_packed_map(sn_session *s, size_t bytes);
/* Begins to store them, unless they are not worth it. They stay as they are until
 * sn_packed_close, which waits for the end. */
void sn_packed_store(sn_session *s, void *data, size_t bytes);
void sn_packed_close(sn_session *s);

/* run.c: makes the block at least that large; what it held is lost. */
bool sn_session_grow(block *b, size_t size, sn_error *err);
/* run.c: runs an entry that prepares weights, which sn_run refuses. */
bool sn_session_prepare(sn_session *s, const sn_compiled_entry *c, const sn_arg_binding *out,
                        int n_out, sn_error *err);

#endif
