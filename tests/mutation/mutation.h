/* Included before every file of a tree with planted mistakes (plant.py): SN_MISTAKE=ID chooses the mistake, SN_MISTAKES_SEEN
 * names a file of 64 KB in which the byte of each place that runs is set. Weak definitions: files stay separate. */
#if !defined SN_MISTAKE_H && !defined __ASSEMBLER__
#define SN_MISTAKE_H
#if defined __linux__ && defined __x86_64__
extern int sn_mistake_libc_open(const char *, int, ...) __asm__("open");
extern int sn_mistake_libc_close(int) __asm__("close");
extern void *sn_mistake_libc_mmap(void *, unsigned long, int, int, int, long) __asm__("mmap");
extern char *sn_mistake_libc_getenv(const char *) __asm__("getenv");
extern int sn_mistake_libc_atoi(const char *) __asm__("atoi");
__attribute__((weak)) int sn_mistake_chosen = -2; /* -2: the environment was not read yet */
__attribute__((weak)) unsigned char *sn_mistakes_seen = 0;

__attribute__((weak)) void sn_mistake_open(void) {
    const char *id = sn_mistake_libc_getenv("SN_MISTAKE"),
               *path = sn_mistake_libc_getenv("SN_MISTAKES_SEEN");
    int file = path ? sn_mistake_libc_open(path, 2 /* O_RDWR */) : -1;
    if (file >= 0) {
        void *map =
            sn_mistake_libc_mmap(0, 1 << 16, 3 /* read and write */, 1 /* shared */, file, 0);
        if (map != (void *)-1) sn_mistakes_seen = (unsigned char *)map;
        sn_mistake_libc_close(file);
    }
    sn_mistake_chosen = id ? sn_mistake_libc_atoi(id) : -1;
}

static inline __attribute__((unused)) int sn_mistake(int id) {
    if (sn_mistake_chosen == -2) sn_mistake_open();
    if (sn_mistakes_seen) sn_mistakes_seen[id] = 1;
    return sn_mistake_chosen == id;
}
#else
#define sn_mistake(id) 0 /* programs for other systems have none */
#endif
#endif
