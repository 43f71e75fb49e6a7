/* str.h: questions about strings that several folders ask. */
#ifndef SN_STR_H
#define SN_STR_H

#include <stdbool.h>
#include <string.h>

static inline bool sn_ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

#endif
