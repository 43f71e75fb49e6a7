/* weights_read.c: reads tensors past the page cache (O_DIRECT), straight into memory of the caller.
 *
 * For data that is needed once. The page cache would take as much memory again, whose pages the
 * system has to find, to fill one after another, and to map; with a fast disk most of the time
 * goes there. Linux; elsewhere and on file systems without it nothing is read. */
#include "runtime/files/weights_impl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* BLOCK: what positions and sizes are multiples of; no usual disk asks for more. */
enum { BLOCK = 4096, CHUNK = 16 << 20, SAMPLES = 32 };

size_t sn_weights_read_room(size_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK + BLOCK;
}

#if defined(__linux__) && defined(O_DIRECT)

/* Whether most of these pages are in the page cache. */
static bool is_cached(const sn_weights_file *f, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = f->offset / page,
           n = (f->offset + bytes - 1) / page - first + 1, each = n / SAMPLES ? n / SAMPLES : 1;
    int asked = 0, found = 0;
    for (size_t i = 0; i < n; i += each, asked++) {
        unsigned char in = 0;
        char *at = (char *)(uintptr_t)f->map.data + (first + i) * page;
        if (mincore(at, 1, &in) != 0) return true;
        found += in & 1;
    }
    return 8 * found > 7 * asked;
}

static bool read_blocks(int fd, char *to, size_t from, size_t end) {
    while (from < end) {
        size_t want = (end - from + BLOCK - 1) / BLOCK * BLOCK;
        ssize_t n = pread(fd, to, want < CHUNK ? want : CHUNK, (off_t)from);
        if (n <= 0 || ((size_t)n < end - from && n % BLOCK)) return false;
        from += (size_t)n;
        to += n;
    }
    return true;
}

const void *sn_weights_read(const sn_weights *w, const void *data, size_t bytes, void *room) {
    sn_weights_file f;
    struct stat st;
    if (!bytes || !sn_weights_file_of(w, data, bytes, &f) || is_cached(&f, bytes)) return NULL;
    int fd = open(f.path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return NULL;
    bool same = fstat(fd, &st) == 0 && sn_file_identity(&st) == f.identity;
    bool ok = same && read_blocks(fd, room, f.offset / BLOCK * BLOCK, f.offset + bytes);
    close(fd);
    return ok ? (char *)room + f.offset % BLOCK : NULL;
}

#else

const void *sn_weights_read(const sn_weights *w, const void *data, size_t bytes, void *room) {
    (void)w, (void)data, (void)bytes, (void)room;
    return NULL;
}

#endif
