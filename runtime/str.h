/* str.h: questions about strings that several folders ask. */
#ifndef SN_STR_H
#define SN_STR_H

#include <stdbool.h>
#include <string.h>

static inline bool sn_ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* The last component of a path, with the slashes at its end if there are any. "" of "/". */
static inline const char *sn_base_name(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    return path + n;
}

#endif
