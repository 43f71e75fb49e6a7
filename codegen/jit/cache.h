/* cache.h: the disk cache: objects, so that a kernel is not compiled again by every process; choices
 * of the tuner, so that they are measured once; models in C as shared objects; packed weights, which
 * are mapped instead of packed again. The key covers
 * everything that the code depends on. Several processes may use a cache at a time. The cache never
 * makes a call fail: what cannot be read is compiled, what cannot be written is not stored, and a
 * note says so once. Since stored code is executed later, a folder that others can write is not
 * used. */
#ifndef SN_CACHE_H
#define SN_CACHE_H

#include "codegen/jit/object.h"

typedef struct sn_cache_key {
    uint64_t low, high;
} sn_cache_key;

/* XXH3-128 of the target (triple, CPU, tuning, features, form of objects), the versions of Sinter and LLVM, the default pass
 * pipeline, and `text`: everything else that determines the code. */
sn_cache_key sn_cache_make_key(const sn_target *t, const void *text, size_t bytes);

typedef struct sn_cache sn_cache;

/* Opens the cache in a folder, which is created with mode 0700 if it does not exist. dir NULL:
 * $XDG_CACHE_HOME/sinter, or ~/.cache/sinter. max_bytes <= 0: 256 MiB. The folder must belong to
 * the effective user, must not be writable by others, and must not be a symbolic link; otherwise
 * nothing is read or written. An unusable folder is not an error, see sn_cache_note; the result is
 * NULL only when out of memory. Not thread-safe. All functions below accept a NULL cache, which is
 * empty and stores nothing. */
sn_cache *sn_cache_open(const char *dir, int64_t max_bytes, sn_error *err);

/* Whether a cache_dir of sn_options asks for no disk cache: "none", or "". */
bool sn_cache_is_off(const char *dir);
void sn_cache_close(sn_cache *c);

/* Objects are relocatable ELF files, choices are texts (tune.c), models are shared objects
 * (driver/model_source.c); all are kept in the same way. */
typedef enum sn_cache_kind {
    SN_CACHE_OBJECT,
    SN_CACHE_CHOICE,
    SN_CACHE_MODEL,
    SN_CACHE_WEIGHTS /* with a limit of their own; read by sn_cache_map_weights */
} sn_cache_kind;

/* The object with this key, after its checksum was verified; false if there is none. The caller
 * frees it with sn_object_free. */
bool sn_cache_get(sn_cache *c, sn_cache_kind kind, sn_cache_key key, sn_object *out);

/* Removes the object that sn_cache_get returned because it is unusable, and counts it as corrupt. */
void sn_cache_drop(sn_cache *c, sn_cache_kind kind, sn_cache_key key);

/* Stores an object, replacing any with the same key. Over the size limit, removes the least recently
 * used ones until the cache is down to three quarters of the limit. */
void sn_cache_put(sn_cache *c, sn_cache_kind kind, sn_cache_key key, const sn_object *o);

/* Weights of exactly this size, mapped read-only at a page; `threads` compare the checksum. NULL:
 * there are none, or they were damaged and are removed. */
const void *sn_cache_map_weights(sn_cache *c, sn_cache_key key, size_t bytes, int threads);
void sn_cache_unmap_weights(const void *data, size_t bytes); /* NULL is allowed */
/* What all packed weights may take, in bytes; 0 (the default): sn_cache_put stores none. Before it
 * stores any it removes the least recently used ones, and it stores none if the disk would have
 * less free space left than they take. */
void sn_cache_limit_weights(sn_cache *c, int64_t bytes);
/* The number of files with weights and the size of all of them. */
int64_t sn_cache_count_weights(sn_cache *c, int64_t *bytes);

/* Whether stored objects will be found again; the folder's name, NULL if there is none. */
bool sn_cache_usable(const sn_cache *c);
const char *sn_cache_folder(const sn_cache *c);

/* Calls fn (NULL: only counts) for every valid file of a kind. Returns their number. */
typedef void sn_cache_fn(void *ctx, const sn_object *o);
int64_t sn_cache_each(sn_cache *c, sn_cache_kind kind, sn_cache_fn *fn, void *ctx);
/* Removes all files of a kind, corrupt ones too. Returns their number. */
int64_t sn_cache_clear(sn_cache *c, sn_cache_kind kind);

/* A message for the user (unwritable folder, full disk), returned once; NULL if there is nothing
 * new. Valid until the cache is closed. */
const char *sn_cache_note(sn_cache *c);

typedef struct sn_cache_stats {
    int64_t hits, misses, corrupt; /* corrupt ones count as misses too */
    int64_t stored, evicted;
} sn_cache_stats;
sn_cache_stats sn_cache_get_stats(const sn_cache *c);

#endif
