/* file.h: files as whole things: mapped for reading, replaced atomically when written.
 * A reader never sees half a file; a failed or killed writer leaves the old file as it was. */
#ifndef SN_FILE_H
#define SN_FILE_H

#include "runtime/base.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A regular file mapped read-only (private). An empty file has data "" and size 0. */
typedef struct sn_mapping {
    const unsigned char *data;
    size_t size;
} sn_mapping;

/* Maps a file. Errors name the path and the reason. The pages are the file's own: whoever shortens
 * the file while it is mapped makes the process fail on access, so replace files by renaming, as
 * below, never by writing into them. Release with sn_file_unmap. */
bool sn_file_map(const char *path, sn_mapping *out, sn_error *err);
void sn_file_unmap(sn_mapping *m);
/* Takes the pages of these bytes, as far as they lie in m, out of the process's memory; who reads
 * them again gets them from the system's copy of the file. */
void sn_file_release(const sn_mapping *m, const void *data, size_t bytes);

/* A file being written. Bytes go to ".NAME.tmp" in the same folder, locked against other writers of
 * the same name; what a killed writer left there is overwritten by the next one. */
typedef struct sn_file sn_file;

/* Starts a new file that will replace `path`, and takes over its permissions if there is one; NULL
 * on error. A symbolic link is replaced by a plain file, what it leads to stays as it was. End with
 * commit or discard. */
sn_file *sn_file_create(const char *path, sn_error *err);
bool sn_file_write(sn_file *f, const void *data, size_t bytes, sn_error *err);
/* For fprintf: what fails there fails the commit. Closed by commit or discard. */
FILE *sn_file_stream(sn_file *f);

/* Flushes, fsyncs, renames over `path`, fsyncs the folder and frees `f`, also on failure. On
 * failure the old file, if there was one, is unchanged and the temporary is gone. Refuses if a
 * write failed before. */
bool sn_file_commit(sn_file *f, sn_error *err);
void sn_file_discard(sn_file *f); /* removes the temporary and frees; NULL is allowed */

/* All of it at once. */
bool sn_file_save(const char *path, const void *data, size_t bytes, sn_error *err);

/* "dir/name", allocated; NULL when out of memory. */
char *sn_path_join(const char *dir, const char *name);
bool sn_file_exists(const char *path);
/* Whether a folder has a file or folder of that name. Needs no memory, so "no" means no. */
bool sn_folder_has(const char *folder, const char *name);

/* Makes a folder, and its missing parents; one that exists is fine. */
bool sn_folder_make(const char *path, sn_error *err);
/* The same, but a folder that is made (not its parents) has mode 0700. */
bool sn_folder_make_private(const char *path, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
