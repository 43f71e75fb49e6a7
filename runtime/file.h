/* file.h: maps whole files for reading and replaces files atomically. A reader never sees a partly
 * written file; a failed or killed writer leaves the old file intact. */
#ifndef SN_FILE_H
#define SN_FILE_H

#include "runtime/base.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A regular file mapped read-only (private). For an empty file data is "" and size 0. */
typedef struct sn_mapping {
    const unsigned char *data;
    size_t size;
} sn_mapping;

/* Maps a file. Errors name the path and the reason. The pages are backed by the file: if another
 * process truncates it while it is mapped, access faults. So replace files by renaming, as below;
 * do not write into them. Release with sn_file_unmap. */
bool sn_file_map(const char *path, sn_mapping *out, sn_error *err);
void sn_file_unmap(sn_mapping *m);
/* A file that is a part of the program: its data, and its path behind SN_INSIDE. */
typedef struct sn_file_inside {
    const char *path;
    const unsigned char *data;
    uint64_t size;
} sn_file_inside;
#define SN_INSIDE "program:"
/* From now on sn_file_map and sn_file_exists find the files of this list, which ends with a path that is NULL and
 * must stay. To be called before other threads begin. */
void sn_file_take_inside(const sn_file_inside *list);
/* Removes the pages of these bytes, as far as they lie in m, from the process's memory; later reads
 * fetch them from the page cache. */
void sn_file_release(const sn_mapping *m, const void *data, size_t bytes);
/* Starts to read these bytes, as far as they lie in m, into the page cache. */
void sn_file_prefetch(const sn_mapping *m, const void *data, size_t bytes);

/* A file being written. Data goes to ".NAME.tmp" in the same folder, locked against other writers
 * of the same name; a leftover of a killed writer is overwritten. */
typedef struct sn_file sn_file;

/* Starts a new file that will replace `path`; it takes over the permissions of an existing file.
 * NULL on error. A symbolic link is replaced by a plain file; its target is not touched. End with
 * commit or discard. */
sn_file *sn_file_create(const char *path, sn_error *err);
/* The same; path "-": standard output, where commit only flushes and discard does nothing. */
sn_file *sn_file_output(const char *path, sn_error *err);
bool sn_file_write(sn_file *f, const void *data, size_t bytes, sn_error *err);
/* For fprintf: a write error makes the commit fail. Closed by commit or discard. */
FILE *sn_file_stream(sn_file *f);

/* Flushes, fsyncs, renames over `path`, fsyncs the folder and frees `f`. Fails if an earlier write
 * failed. On failure the old file is unchanged, the temporary file is removed, and `f` is freed
 * too. */
bool sn_file_commit(sn_file *f, sn_error *err);
void sn_file_discard(sn_file *f); /* removes the temporary file and frees f; NULL is allowed */

/* Creates, writes and commits in one call. */
bool sn_file_save(const char *path, const void *data, size_t bytes, sn_error *err);

/* Whether a regular file lies in the folder, also if the path is a link, or in ../../blobs seen from
 * the folder, where hub caches keep the files of a model. */
bool sn_folder_owns(const char *folder, const char *path);
/* Copies a file that the folder owns; others are an error: a folder may come from somebody else, and
 * a link in it may lead to any private file. */
bool sn_file_copy(const char *folder, const char *from, const char *to, sn_error *err);

/* Reads a stream to its end into malloc'ed memory, NUL-terminated; errors say `name`. A pipe may have
 * 256 MiB. NULL on error. */
char *sn_stream_read(FILE *f, const char *name, size_t *size, sn_error *err);

/* "dir/name", allocated; NULL if out of memory. */
char *sn_path_join(const char *dir, const char *name);
bool sn_file_exists(const char *path);
/* Whether a folder has a file or folder of that name. Allocates nothing, so it cannot fail. */
bool sn_folder_has(const char *folder, const char *name);

/* Creates a folder and its missing parents; an existing one is not an error. */
bool sn_folder_make(const char *path, sn_error *err);
/* The same, but a newly created folder (not its parents) has mode 0700. */
bool sn_folder_make_private(const char *path, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
