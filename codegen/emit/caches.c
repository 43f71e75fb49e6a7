/* caches.c: sizes of data caches: of this machine, as text, from text. */
#include "codegen/emit/caches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { LEVELS = 3 };

/* Smallest and largest believable size of a level. */
static const struct {
    int64_t least, most;
} bounds[LEVELS] = {{4 << 10, 1 << 20}, {64 << 10, 256 << 20}, {64 << 10, (int64_t)4 << 30}};

static int64_t *level_of(sn_caches *c, int level) {
    int64_t *const all[LEVELS] = {&c->l1, &c->l2, &c->l3};
    return all[level - 1];
}

/* A cache of `bytes` that `sharing` logical CPUs use. Hypervisors reserve more numbers for sharing
 * than there are CPUs. */
static void note(sn_caches *c, int level, int64_t bytes, int64_t sharing) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if ((unsigned)level - 1 >= LEVELS) return;
    if (cpus > 0 && sharing > cpus) sharing = cpus;
    bytes /= sharing > 0 ? sharing : 1;
    if (bytes >= bounds[level - 1].least && bytes <= bounds[level - 1].most)
        *level_of(c, level) = bytes;
}

#if defined(__x86_64__)
/* Intel SDM volume 2, CPUID leaf 4; AMD APM volume 3, leaf 0x8000001d, has the same layout. */
static bool read_leaf(sn_caches *c, unsigned leaf) {
    enum { DATA = 1, UNIFIED = 3, MAX_LEAVES = 16 };
    unsigned a, b, n, d;
    bool found = false;
    for (unsigned i = 0; i < MAX_LEAVES; i++) {
        if (!__get_cpuid_count(leaf, i, &a, &b, &n, &d)) return found;
        unsigned type = a & 31, level = a >> 5 & 7;
        if (!type) return found;
        if (type != DATA && type != UNIFIED) continue;
        int64_t line = (b & 0xfff) + 1, parts = (b >> 12 & 0x3ff) + 1, ways = (b >> 22) + 1;
        note(c, (int)level, line * parts * ways * ((int64_t)n + 1), (a >> 14 & 0xfff) + 1);
        found = true;
    }
    return found;
}

static bool read_cpuid(sn_caches *c) {
    enum { TOPOLOGY_EXTENSIONS = 1 << 22 };
    unsigned a, b, n, d;
    if (__get_cpuid(0x80000001, &a, &b, &n, &d) && n & TOPOLOGY_EXTENSIONS &&
        read_leaf(c, 0x8000001d))
        return true;
    return read_leaf(c, 4);
}
#else
static bool read_cpuid(sn_caches *c) {
    (void)c;
    return false;
}
#endif

/* The first line of a file of CPU 0's cache `index`; false: there is none. */
static bool read_line(int index, const char *name, char *text, int size) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(text, size, f) != NULL;
    fclose(f);
    return ok;
}

/* CPUs of a list such as "0-3,8". */
static int64_t count_cpus(const char *list) {
    int64_t n = 0;
    while (*list) {
        char *end;
        long first = strtol(list, &end, 10), last = first;
        if (end == list) break;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        n += last >= first ? last - first + 1 : 0;
        list = *end == ',' ? end + 1 : "";
    }
    return n;
}

static bool read_size(const char *text, int64_t *bytes, const char **end) {
    char *stop;
    long long n = strtoll(text, &stop, 10);
    int shift = *stop == 'K' ? 10 : *stop == 'M' ? 20 : *stop == 'G' ? 30 : 0;
    *end = stop + (shift > 0);
    if (stop == text || n < 1 || n > INT64_MAX >> 40) return false;
    *bytes = (int64_t)n << shift;
    return true;
}

static void read_sysfs(sn_caches *c) {
    char type[32], level[32], size[32], list[256];
    const char *end;
    for (int i = 0; read_line(i, "type", type, sizeof type); i++) {
        int64_t bytes;
        if (!strncmp(type, "Instruction", 11) || !read_line(i, "level", level, sizeof level) ||
            !read_line(i, "size", size, sizeof size) || !read_size(size, &bytes, &end))
            continue;
        bool shared = read_line(i, "shared_cpu_list", list, sizeof list);
        note(c, atoi(level), bytes, shared ? count_cpus(list) : 1);
    }
}

void sn_caches_host(sn_caches *c) {
    if (!read_cpuid(c)) read_sysfs(c);
}

bool sn_caches_set(sn_caches *c, const char *part, sn_error *err) {
    int level =
        part[0] == 'l' && part[1] >= '1' && part[1] <= '3' && part[2] == '=' ? part[1] - '0' : 0;
    const char *end = part;
    int64_t bytes = 0;
    if (!level || !read_size(part + 3, &bytes, &end) || *end)
        return sn_fail(err, SN_ERR_TARGET,
                       "'%s' is not the size of a cache; write l1=32K, l2=1M or l3=8M", part);
    if (bytes < bounds[level - 1].least || bytes > bounds[level - 1].most)
        return sn_fail(err, SN_ERR_TARGET, "'%s': an L%d cache has %lld to %lld KiB", part, level,
                       (long long)bounds[level - 1].least >> 10,
                       (long long)bounds[level - 1].most >> 10);
    *level_of(c, level) = bytes;
    return true;
}

const char *sn_caches_text(const sn_caches *c, char *text, size_t size) {
    char part[LEVELS][32];
    const int64_t all[LEVELS] = {c->l1, c->l2, c->l3};
    for (int i = 0; i < LEVELS; i++) {
        int shift = all[i] % (1 << 20) ? all[i] % (1 << 10) ? 0 : 10 : 20;
        const char *unit = shift == 20 ? "M" : shift == 10 ? "K" : "";
        snprintf(part[i], sizeof part[i], "l%d=%lld%s", i + 1, (long long)(all[i] >> shift), unit);
    }
    snprintf(text, size, "%s,%s,%s", part[0], part[1], part[2]);
    return text;
}
