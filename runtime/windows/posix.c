/* posix.c: posix.h for Windows, the clock, and what a program sets at its start. With the manifest beside it
 * names of files and arguments are UTF-8. */
#include "runtime/clock.h"
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

int _dowildcard = 0; /* arguments are not patterns of file names */

static UINT code_page; /* of the console, before */

static void end(void) {
    SetConsoleOutputCP(code_page);
}

/* Texts are UTF-8 with lines that end as on Linux; consoles know the codes of colours. */
static __attribute__((constructor)) void begin(void) {
    DWORD mode;
    _fmode = _O_BINARY;
    for (int file = 0; file < 3; file++) {
        HANDLE h = (HANDLE)_get_osfhandle(file);
        _setmode(file, _O_BINARY);
        if (file && GetConsoleMode(h, &mode))
            SetConsoleMode(h, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
    code_page = GetConsoleOutputCP();
    if (code_page && SetConsoleOutputCP(CP_UTF8)) atexit(end);
}

double sn_clock(void) {
    LARGE_INTEGER ticks, second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&second);
    return (double)ticks.QuadPart / (double)second.QuadPart;
}

void *sn_windows_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    (void)at, (void)protection, (void)flags, (void)offset;
    HANDLE map = CreateFileMappingA((HANDLE)_get_osfhandle(file), NULL, PAGE_READONLY, 0, 0, NULL);
    void *p = map ? MapViewOfFile(map, FILE_MAP_READ, 0, 0, size) : NULL;
    if (map) CloseHandle(map);
    if (!p) errno = ENOMEM;
    return p ? p : MAP_FAILED;
}

int sn_windows_munmap(void *p, size_t size) {
    (void)size;
    return UnmapViewOfFile(p) ? 0 : -1;
}

char *sn_windows_strndup(const char *s, size_t n) {
    const size_t size = strnlen(s, n);
    char *copy = malloc(size + 1);
    if (!copy) return NULL;
    copy[size] = 0;
    return memcpy(copy, s, size);
}

void *sn_windows_memmem(const void *text, size_t size, const void *word, size_t n) {
    for (const char *s = text; size >= n; s++, size--)
        if (!memcmp(s, word, n)) return (void *)(uintptr_t)s;
    return NULL;
}

/* What tokenizers save with. */
bool sn_file_save(const char *path, const void *data, size_t bytes, sn_error *err) {
    (void)data, (void)bytes;
    return sn_fail(err, SN_ERR_FILE, "%s: programs for Windows do not write files", path);
}
