/* comm.h: a communicator: ranks, which are processes of one program on one or many machines, and
 * their collective operations. MPI carries them; it is a plugin that sn_comm_open loads, so one
 * program runs with and without it. A simulated communicator runs its ranks as threads of one
 * process, for tests.
 *
 * Every rank calls the same operations in the same order; the order of all_gather and that of the
 * others are independent of each other. Started operations make progress while
 * others of the process run; at most one thread of a rank calls a communicator at a time. Threads may
 * use different communicators, which `split` makes, at the same time. */
#ifndef SN_COMM_H
#define SN_COMM_H

#include "runtime/base.h"

typedef struct sn_comm sn_comm;
typedef struct sn_comm_request sn_comm_request; /* an operation under way */

/* Where the parts of a buffer lie, one part a rank: [size] first byte and number of bytes. */
typedef struct sn_comm_parts {
    const size_t *at, *bytes;
} sn_comm_parts;

/* What an implementation provides. Buffers must stay as they are until the request is complete.
 * Each returns NULL, with the reason in err, if it cannot be started. A call moves at most
 * SN_COMM_MAX bytes. */
#define SN_COMM_MAX ((size_t)1 << 30)
typedef struct sn_comm_ops {
    /* part r of `send` goes to rank r; part r of `receive` comes from rank r */
    sn_comm_request *(*all_to_all)(sn_comm *c, const void *send, sn_comm_parts from, void *receive,
                                   sn_comm_parts to, sn_error *err);
    /* every rank gets part r of `data` from rank r */
    sn_comm_request *(*all_gather)(sn_comm *c, void *data, sn_comm_parts parts, sn_error *err);
    /* data[i] becomes the sum over ranks, in whatever order is fast */
    sn_comm_request *(*all_reduce)(sn_comm *c, float *data, size_t n, sn_error *err);
    sn_comm_request *(*broadcast)(sn_comm *c, void *data, size_t bytes, int root, sn_error *err);
    /* Whether the operation is complete; then the request is freed and *r is NULL. wait: waits until
     * it is. False: it failed. */
    bool (*test)(sn_comm *c, sn_comm_request **r, bool wait, sn_error *err);
    /* The ranks of c with the same color, in their order. All ranks call it; NULL: err. */
    sn_comm *(*split)(sn_comm *c, int color, sn_error *err);
    void (*abort)(sn_comm *c, int code); /* ends the processes of all ranks; does not return */
    void (*close)(sn_comm *c);
} sn_comm_ops;

struct sn_comm {
    const sn_comm_ops *ops;
    int rank, size;
    const char *const *host;    /* [size] names of the ranks' machines */
    int local_rank, local_size; /* among the ranks of this machine */
    const char *library;        /* "Open MPI", "MPICH", "simulated" */
    size_t sent;                /* bytes that this rank has sent to others */
};

/* The communicator of this process, if mpirun, mpiexec or srun started it; *out is NULL if not.
 * False: it was, but the plugin for that MPI is missing or does not start; the error says how to
 * get it. Call it once; close it with sn_comm_close. */
bool sn_comm_open(sn_comm **out, sn_error *err);
/* NULL is allowed. Every rank must call it, after its last operation. */
void sn_comm_close(sn_comm *c);
/* Whether variables of the environment say that a launcher of MPI started this process; its name in
 * *library ("openmpi", "mpich"). */
bool sn_comm_launched(const char **library);

/* n ranks of one process, in out[0 .. n-1]; each belongs to one thread, which closes it. */
bool sn_comm_simulate(int n, sn_comm **out, sn_error *err);

/* Waits until the operation is complete, and frees the request. False if it failed or r is NULL. */
bool sn_comm_wait(sn_comm *c, sn_comm_request *r, sn_error *err);
/* Any number of bytes from rank root to all. */
bool sn_comm_broadcast(sn_comm *c, void *data, size_t bytes, int root, sn_error *err);
/* data[r * bytes ...] from rank r to all; each gives `bytes`, in its place. */
bool sn_comm_gather(sn_comm *c, void *data, size_t bytes, sn_error *err);
/* data[bytes] of every rank to rank 0, which gets them one after another in *all (malloc'ed; NULL on
 * other ranks), size[rank] bytes each; size: [c->size], filled on all ranks. All together less than 2 GiB. */
bool sn_comm_collect(sn_comm *c, const void *data, size_t bytes, void **all, size_t *size,
                     sn_error *err);
/* Returns when every rank has called it. */
bool sn_comm_barrier(sn_comm *c, sn_error *err);

/* Whether ok on every rank. If not, all ranks get the error of the first rank that failed, with its
 * number and host before the message, unless all failed for the same reason. c NULL: ok. */
bool sn_comm_agree(sn_comm *c, bool ok, sn_error *err);

/* Something that must be equal on all ranks, as a hash, and what to do if it is not. */
typedef struct sn_comm_same {
    const char *what, *hint;
    uint64_t hash;
} sn_comm_same;
/* The error, of all ranks, names the first rank that differs from rank 0, and in what. c NULL: true. */
bool sn_comm_check_same(sn_comm *c, const sn_comm_same *list, int n, sn_error *err);

/* ---- sums in a fixed order ---- */

/* A sum of `leaves` terms is a tree: the sum of the first half (the larger one) plus the sum of the
 * rest. The tree depends on the number of terms only. Each rank owns one subtree, so the ranks'
 * sums are inner nodes of that tree, and results have the same bits for any number of ranks. */
typedef struct sn_leaves {
    int64_t first, last; /* leaves [first, last) */
} sn_leaves;
/* The two halves of a span of at least two leaves. */
void sn_leaves_split(sn_leaves all, sn_leaves half[2]);
/* The leaves of a rank. leaves >= size; equally many for all ranks if both are powers of 2. */
sn_leaves sn_leaves_of_rank(int64_t leaves, int size, int rank);
/* a[i] += b[i], as kernels add: round to nearest, subnormals are 0. */
void sn_comm_add(float *a, const float *b, size_t n);

typedef enum sn_reduction {
    SN_REDUCE_EXACT, /* the fixed tree: the same bits for any number of ranks */
    SN_REDUCE_FAST,  /* what the library takes for fastest; bits depend on ranks and library */
} sn_reduction;

/* A sum over ranks: data[n] becomes the sum of all ranks' data. leaves: of the tree; each rank
 * has a subtree of it. Exact sums take two rounds: all-to-all of parts, then, after the sum of the
 * own part, all-gather. A rank sends 2 n (size - 1) / size floats, as a ring does. Each round can
 * also be had alone. The object may be started again after it is complete. Zero-initialise. */
typedef struct sn_comm_sum {
    sn_comm *c;
    float *data, *part; /* part: what other ranks sent, for the own part */
    float *out; /* of the first round alone: where the own part of the sum goes; else NULL */
    size_t n, room, padding;
    bool adds; /* has a first round */
    int64_t leaves;
    sn_comm_request *request;
    int round;                       /* 0: none; 1, 2: under way */
    size_t *at, *bytes, *from, *own; /* [size] each */
} sn_comm_sum;
bool sn_comm_sum_start(sn_comm_sum *s, sn_comm *c, sn_reduction how, int64_t leaves, float *data,
                       size_t n, sn_error *err);
/* A tensor of n floats in equal parts: element i of rank r's is data[r * part + i]. Where that lies
 * behind n it is 0, and not stored. part * size >= n. */
typedef struct sn_comm_shares {
    float *data;
    size_t n, part;
} sn_comm_shares;
/* The first round alone (reduce-scatter), for elements [first, first + count) of each part: out[i]
 * becomes element first + i of the own part of the exact sum; data stays. */
bool sn_comm_scatter_start(sn_comm_sum *s, sn_comm *c, int64_t leaves, sn_comm_shares x,
                           size_t first, size_t count, float *out, sn_error *err);
/* The second round alone (all-gather) for these elements: the other ranks' go into data. It begins
 * with sn_comm_sum_test. */
bool sn_comm_gather_start(sn_comm_sum *s, sn_comm *c, sn_comm_shares x, size_t first, size_t count,
                          sn_error *err);
/* Goes on if it can; *done: the sum is complete. wait: until it is. */
bool sn_comm_sum_test(sn_comm_sum *s, bool wait, bool *done, sn_error *err);
void sn_comm_sum_free(sn_comm_sum *s);

/* ---- sums beside computation ---- */

/* A thread that carries sums over ranks. Only it uses the communicator from the first
 * sn_comm_engine_start until all sums have been waited for. All ranks start the same sums in the same
 * order; scatters and gathers count as sums. */
typedef struct sn_comm_engine sn_comm_engine;
sn_comm_engine *sn_comm_engine_new(sn_comm *c, sn_reduction how, int64_t leaves, sn_error *err);
void sn_comm_engine_free(sn_comm_engine *e); /* NULL is allowed */
/* data[n] becomes the sum; untouched by the caller until sn_comm_engine_wait with this key. */
bool sn_comm_engine_start(sn_comm_engine *e, const void *key, float *data, size_t n, sn_error *err);
/* out[x.part] becomes the own part of the sum of the ranks' x. */
bool sn_comm_engine_scatter(sn_comm_engine *e, const void *key, sn_comm_shares x, float *out,
                            sn_error *err);
/* x becomes all ranks' parts; the own one is in place. */
bool sn_comm_engine_gather(sn_comm_engine *e, const void *key, sn_comm_shares x, sn_error *err);
/* What the next operation is called in its span: borrowed, for as long as spans are read. */
void sn_comm_engine_label(sn_comm_engine *e, const char *label);
bool sn_comm_engine_wait(sn_comm_engine *e, const void *key, sn_error *err);
/* Whether an operation with this key has been started and not waited for. */
bool sn_comm_engine_carries(sn_comm_engine *e, const void *key);
/* Waits for all operations. */
bool sn_comm_engine_settle(sn_comm_engine *e, sn_error *err);
/* Sums take at least as long as over a network of that latency (seconds a sum) and bandwidth (bytes
 * a second and rank), one after another; for measurements on one machine. */
void sn_comm_engine_delay(sn_comm_engine *e, double latency, double bandwidth);
/* Since the engine was made. busy: time in which sums were under way; waited: of it, time that the
 * program waited; so 1 - waited / busy was hidden behind computation. */
typedef struct sn_comm_times {
    double bytes; /* sent by this rank */
    double busy, waited;
    double begun; /* internal */
} sn_comm_times;
sn_comm_times sn_comm_engine_times(const sn_comm_engine *e);

/* From now on the engine keeps when sums were under way; the first `n` of them. */
void sn_comm_engine_record(sn_comm_engine *e, size_t n);
typedef struct sn_comm_span {
    const char *label; /* NULL: none */
    double begin, end; /* by sn_clock */
} sn_comm_span;
/* Returns their number; *list belongs to the engine, until the next sum. */
size_t sn_comm_engine_spans(const sn_comm_engine *e, const sn_comm_span **list);

/* ---- the plugin ---- */

/* What a plugin exports as sn_comm_plugin. built: sizeof(sn_comm_ops) of the program. */
typedef sn_comm *sn_comm_plugin_fn(size_t built, sn_error *err);

#endif
