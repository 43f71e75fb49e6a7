/* checked.c: what fortified objects of static libraries (Debian's libpcre2-8.a) call, for C libraries that
 * do not have it, such as musl. */
#include <stdlib.h>
#include <string.h>

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room) {
    if (n > room) abort();
    return memcpy(to, from, n);
}
