/* posix.h: included first in each file of a program for Windows: what these files use of POSIX and MinGW
 * lacks. posix.c has the functions. */
#ifndef SN_WINDOWS_POSIX_H
#define SN_WINDOWS_POSIX_H

#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

/* Files are opened as binary, are not inherited, and open does not block. */
#define O_CLOEXEC 0
#define O_NONBLOCK 0

/* Maps a whole file to read it, or fails. */
enum { PROT_READ = 1, MAP_PRIVATE = 2 };
#define MAP_FAILED ((void *)-1)
#define mmap sn_windows_mmap
#define munmap sn_windows_munmap
void *sn_windows_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int sn_windows_munmap(void *p, size_t size);

/* Advice is for Linux; Windows has none for mapped files. */
enum { MADV_DONTNEED, MADV_WILLNEED, _SC_PAGESIZE };
static inline int madvise(void *p, size_t size, int advice) {
    (void)p, (void)size, (void)advice;
    return 0;
}
static inline long sysconf(int name) {
    (void)name;
    return 4096;
}

#define strndup sn_windows_strndup
#define memmem sn_windows_memmem
char *sn_windows_strndup(const char *s, size_t n);
void *sn_windows_memmem(const void *text, size_t size, const void *word, size_t n);

/* A handler that signal() sets is called once, as with SA_RESETHAND. */
enum { SA_RESETHAND = 1 };
struct sigaction {
    void (*sa_handler)(int);
    int sa_flags, sa_mask;
};
static inline int sigemptyset(int *set) {
    return *set = 0;
}
static inline int sigaction(int number, const struct sigaction *act, struct sigaction *before) {
    (void)before;
    return signal(number, act->sa_handler) == SIG_ERR ? -1 : 0;
}

/* Programs do not call setlocale, so numbers are those of the locale "C". */
typedef int locale_t;
#define LC_ALL_MASK 0
static inline locale_t newlocale(int mask, const char *name, locale_t base) {
    (void)mask, (void)name;
    return base;
}
static inline locale_t uselocale(locale_t l) {
    return l;
}

#endif
