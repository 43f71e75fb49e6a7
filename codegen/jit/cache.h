/* cache.h: objects on disk, so that a kernel is compiled once and not once a process, choices that
 * were measured, so that they are measured once, and models in C as shared objects.
 * Keyed by everything the code depends on; safe between processes; never a reason to fail: what
 * cannot be read is compiled, what cannot be written is left, with a note to show once. What is
 * stored is executed later, so a folder that others can write is not used at all. */
#ifndef SN_CACHE_H
#define SN_CACHE_H

#include "codegen/jit/object.h"

typedef struct sn_cache_key {
    uint64_t low, high;
} sn_cache_key;

/* XXH3-128 of the target (triple, CPU, features), the versions of Sinter, LLVM and the usual pass
 * pipeline, and `text`: whatever determines the kernel besides, another pipeline included. */
sn_cache_key sn_cache_make_key(const sn_target *t, const void *text, size_t bytes);

typedef struct sn_cache sn_cache;

/* Opens the cache in a folder, which is made if need be, with mode 0700. dir NULL:
 * $XDG_CACHE_HOME/sinter, or ~/.cache/sinter. max_bytes <= 0: 256 MiB. The folder must belong to
 * the effective user, be writable by nobody else, and be no symbolic link; else nothing is read
 * from it and nothing is written. A folder that cannot be used is no error, see sn_cache_note; NULL
 * only when out of memory. One thread at a time. A NULL cache is allowed in all functions below and
 * holds nothing: that is how to switch it off. */
sn_cache *sn_cache_open(const char *dir, int64_t max_bytes, sn_error *err);

/* Whether a cache_dir of sn_options asks for no disk cache: "none", or "". */
bool sn_cache_is_off(const char *dir);
void sn_cache_close(sn_cache *c);

/* Objects are relocatable ELF files, choices are texts (tune.c), models are shared objects
 * (tools/model/model_source.c); all are kept in the same way. */
typedef enum sn_cache_kind { SN_CACHE_OBJECT, SN_CACHE_CHOICE, SN_CACHE_MODEL } sn_cache_kind;

/* A sound object of this key, to be freed by sn_object_free; false if there is none. */
bool sn_cache_get(sn_cache *c, sn_cache_kind kind, sn_cache_key key, sn_object *out);

/* Removes what sn_cache_get has just given, because it turned out to be unusable; it then counts as
 * corrupt. */
void sn_cache_drop(sn_cache *c, sn_cache_kind kind, sn_cache_key key);

/* Stores an object, replacing one of the same key; then, over the size limit, removes those not
 * used for longest until three quarters of it are left. */
void sn_cache_put(sn_cache *c, sn_cache_kind kind, sn_cache_key key, const sn_object *o);

/* Whether what is put will be found again; and the folder's name, NULL if there is none. */
bool sn_cache_usable(const sn_cache *c);
const char *sn_cache_folder(const sn_cache *c);

/* Calls fn (NULL: only counts) for every sound file of a kind. Returns their number. */
typedef void sn_cache_fn(void *ctx, const sn_object *o);
int64_t sn_cache_each(sn_cache *c, sn_cache_kind kind, sn_cache_fn *fn, void *ctx);
/* Removes all files of a kind, spoilt ones too. Returns how many went. */
int64_t sn_cache_clear(sn_cache *c, sn_cache_kind kind);

/* What the user should know (an unwritable folder, a full disk), once: NULL when there is nothing,
 * or nothing new. Valid until the cache is closed. */
const char *sn_cache_note(sn_cache *c);

typedef struct sn_cache_stats {
    int64_t hits, misses, corrupt; /* corrupt ones are counted as misses too */
    int64_t stored, evicted;
} sn_cache_stats;
sn_cache_stats sn_cache_get_stats(const sn_cache *c);

#endif
