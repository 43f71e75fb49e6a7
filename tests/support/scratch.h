/* scratch.h: shared by tests of files: a temporary folder that is removed at the end, checks of
 * error messages, random bytes. Include after cmocka.h. */
#ifndef SN_TEST_SCRATCH_H
#define SN_TEST_SCRATCH_H

#include "runtime/base.h"

#include <dirent.h>
#include <ftw.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_dir[64];

/* A program that is started by hand keeps its kernels there too; ctest names a cache for all. */
static inline int scratch_make(void **state) {
    (void)state;
    strcpy(scratch_dir, "/tmp/sn_test_XXXXXX");
    return mkdtemp(scratch_dir) && !setenv("XDG_CACHE_HOME", scratch_dir, 0) ? 0 : -1;
}

static int scratch_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* Removes a folder with its contents. */
static void scratch_remove(const char *path) {
    nftw(path, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline int scratch_end(void **state) {
    (void)state;
    scratch_remove(scratch_dir);
    return 0;
}

/* scratch_dir/name; valid until the fourth next call. */
static inline const char *scratch_path(const char *name) {
    static char buf[4][512];
    static int next;
    char *b = buf[next = (next + 1) % 4];
    snprintf(b, sizeof buf[0], "%s/%s", scratch_dir, name);
    return b;
}

/* Writes a file plainly; returns whether that worked. */
static inline bool scratch_write(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool ok = fwrite(data, 1, bytes, f) == bytes;
    return fclose(f) == 0 && ok;
}

/* Number of entries of the scratch folder, to detect left-over temporary files. */
static inline int scratch_count(void) {
    int n = -2; /* . and .. */
    DIR *dir = opendir(scratch_dir);
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}
/* Checks that the error has this code and names both the file and the problem. */
static inline void expect_error(const sn_error *e, sn_code code, const char *file,
                                const char *what) {
    if (e->code != code || !strstr(e->message, file) || !strstr(e->message, what))
        fail_msg("wanted \"%s\" about %s, got code %d: %s", what, file, e->code, e->message);
}

/* Sets a locale whose decimal point is a comma; setlocale(LC_ALL, "C") ends it. Needs scratch_make, but
 * no locale of the system: this is LC_NUMERIC of de_DE as glibc's localedef writes it. */
static inline void set_comma_locale(void) {
    static const uint32_t head[] = {0x20031114, 6, 32, 34, 36, 40, 44, 48};
    static const char values[] = ",\0.\0\3\3\0\0,\0\0\0.\0\0\0UTF-8";
    char data[sizeof head + sizeof values], folder[128], text[8];
    memcpy(data, head, sizeof head);
    memcpy(data + sizeof head, values, sizeof values);
    snprintf(folder, sizeof folder, "%s/comma", scratch_dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(folder, sizeof folder, "%s/comma/LC_NUMERIC", scratch_dir);
    assert_true(scratch_write(folder, data, sizeof data));
    assert_int_equal(setenv("LOCPATH", scratch_dir, 1), 0);
    assert_non_null(setlocale(LC_NUMERIC, "comma"));
    snprintf(folder, sizeof folder, "%s/comma", scratch_dir);
    scratch_remove(folder);
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
}

/* xorshift64; *s must not be 0. */
static inline uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return *s;
}
#endif
