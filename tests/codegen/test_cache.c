/* The object cache: what is stored comes back, what is spoilt does not, many processes at once, a
 * folder that cannot be written, and the least recently used objects going first. */
#include "codegen/jit/cache.h"
#include "codegen/emit/emit.h"
#include "codegen/aot/elf_merge.h"
#include "codegen/jit/jit.h"
#include "codegen/program/program.h"
#include "frontend/sinter.h"
#include "runtime/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <elf.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

static char dir[64];
static sn_target target;

static sn_cache *open_cache(int64_t max_bytes) {
    sn_error err = {0};
    sn_cache *c = sn_cache_open(dir, max_bytes, &err);
    assert_non_null(c);
    return c;
}

static sn_cache_key key_of(int i) {
    return sn_cache_make_key(&target, &i, sizeof i);
}

/* An object of `size` bytes that i determines. */
static sn_object make_bytes(int i, size_t size) {
    sn_object o = {malloc(size), size};
    assert_non_null(o.data);
    for (size_t k = 0; k < size; k++) o.data[k] = (uint8_t)(k * 31 + (size_t)i * 7);
    return o;
}

static void store(sn_cache *c, int i, size_t size) {
    sn_object o = make_bytes(i, size);
    sn_cache_put(c, SN_CACHE_OBJECT, key_of(i), &o);
    sn_object_free(&o);
}

static bool fetch(sn_cache *c, int i, size_t size) {
    sn_object got, want = make_bytes(i, size);
    bool found = sn_cache_get(c, SN_CACHE_OBJECT, key_of(i), &got);
    if (found) {
        assert_int_equal(got.size, want.size);
        assert_memory_equal(got.data, want.data, size);
    }
    sn_object_free(&got);
    sn_object_free(&want);
    return found;
}

/* Calls f(path) for each file of the folder; returns their number. */
static int for_files(void (*f)(const char *)) {
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (f) f(path);
        n++;
    }
    closedir(d);
    return n;
}

static void remove_file(const char *path) {
    unlink(path);
}

static int new_folder(void **state) {
    (void)state;
    sn_error err = {0};
    strcpy(dir, "/tmp/sinter-test-cache-XXXXXX");
    return !mkdtemp(dir) || !sn_target_init(&target, NULL, &err);
}

static int remove_folder(void **state) {
    (void)state;
    for_files(remove_file);
    return rmdir(dir);
}

static void round_trip(void **state) {
    (void)state;
    sn_cache *c = open_cache(0);
    assert_false(fetch(c, 1, 1000));
    store(c, 1, 1000);
    assert_true(fetch(c, 1, 1000));
    assert_false(fetch(c, 2, 1000));
    store(c, 1, 1000); /* replaces */
    assert_int_equal(for_files(NULL), 1);
    sn_cache_stats s = sn_cache_get_stats(c);
    assert_int_equal(s.hits, 1);
    assert_int_equal(s.misses, 2);
    assert_int_equal(s.stored, 2);
    assert_int_equal(s.corrupt, 0);
    assert_null(sn_cache_note(c));
    sn_cache_close(c);
    c = open_cache(0); /* another session */
    assert_true(fetch(c, 1, 1000));
    sn_cache_close(c);
}

/* The key depends on the text and on every part of the target. */
static void keys(void **state) {
    (void)state;
    sn_target other = target;
    sn_cache_key a = sn_cache_make_key(&target, "text", 4);
    sn_cache_key b = sn_cache_make_key(&target, "texu", 4);
    assert_true(a.low != b.low && a.high != b.high);
    b = sn_cache_make_key(&target, "text", 4);
    assert_true(a.low == b.low && a.high == b.high);
    strcat(other.features, ",-fma");
    b = sn_cache_make_key(&other, "text", 4);
    assert_true(a.low != b.low);
    other = target;
    strcpy(other.cpu, "generic");
    b = sn_cache_make_key(&other, "text", 4);
    assert_true(a.low != b.low);
}

static int spoil_at;

/* spoil_at >= 0: flips a bit there; -1: cuts the last byte; -2: empties; -3: appends. */
static void spoil(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    if (spoil_at < 0 && spoil_at > -3) {
        assert_int_equal(truncate(path, spoil_at == -1 ? st.st_size - 1 : 0), 0);
        return;
    }
    int fd = open(path, O_RDWR);
    char byte = 'x';
    off_t at = spoil_at == -3 ? st.st_size : spoil_at;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) >= 0);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void corruption(void **state) {
    (void)state;
    sn_cache *c = open_cache(0);
    int64_t corrupt = 0;
    for (spoil_at = -3; spoil_at < 40 + 300; spoil_at += spoil_at < 45 ? 1 : 60) {
        store(c, 3, 300);
        assert_int_equal(for_files(spoil), 1);
        assert_false(fetch(c, 3, 300));
        assert_int_equal(sn_cache_get_stats(c).corrupt, ++corrupt);
        store(c, 3, 300);
        assert_true(fetch(c, 3, 300)); /* replaced */
    }
    sn_cache_close(c);
}

/* A file in the place of the folder, and a name in the folder that is not a file. */
static void unusable_folder(void **state) {
    (void)state;
    sn_error err = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/file", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    strcat(path, "/cache");
    sn_cache *c = sn_cache_open(path, 0, &err);
    assert_non_null(c);
    store(c, 1, 100);
    assert_false(fetch(c, 1, 100));
    const char *note = sn_cache_note(c);
    assert_non_null(note);
    assert_non_null(strstr(note, path));
    assert_null(sn_cache_note(c)); /* once */
    sn_cache_close(c);

    setenv("XDG_CACHE_HOME", dir, 1); /* the folder by default */
    c = sn_cache_open(NULL, 0, &err);
    store(c, 1, 100);
    assert_true(fetch(c, 1, 100));
    sn_cache_close(c);
    strcat(dir, "/sinter");
    assert_int_equal(for_files(remove_file), 1);
    rmdir(dir);
    *strrchr(dir, '/') = 0;
    unsetenv("XDG_CACHE_HOME");
    store(NULL, 1, 100); /* switched off */
    assert_false(fetch(NULL, 1, 100));
    assert_null(sn_cache_note(NULL));
}

/* A folder without write permission (root may write everywhere, so root does not see this). */
static void read_only_folder(void **state) {
    (void)state;
    sn_cache *c = open_cache(0);
    store(c, 1, 100);
    sn_cache_close(c);
    if (geteuid() == 0) return;
    chmod(dir, 0500);
    c = open_cache(0);
    assert_true(fetch(c, 1, 100));
    store(c, 2, 100);
    assert_false(fetch(c, 2, 100));
    assert_non_null(sn_cache_note(c));
    sn_cache_close(c);
    chmod(dir, 0700);
}

/* Processes that store and fetch the same keys: each sees whole objects or none. */
static void processes(void **state) {
    (void)state;
    enum { CHILDREN = 6, ROUNDS = 60, KEYS = 5 };
    pid_t child[CHILDREN];
    for (int p = 0; p < CHILDREN; p++) {
        child[p] = fork();
        if (child[p]) continue;
        sn_error err = {0};
        sn_cache *c = sn_cache_open(dir, 20000, &err); /* small: evictions happen as well */
        int bad = !c;
        for (int r = 0; c && r < ROUNDS; r++) {
            int i = (r + p) % KEYS;
            size_t size = 3000 + 500 * (size_t)i;
            sn_object got, o = make_bytes(i, size);
            if (sn_cache_get(c, SN_CACHE_OBJECT, key_of(i), &got)) {
                bad |= got.size != size || memcmp(got.data, o.data, size) != 0;
                sn_object_free(&got);
            }
            sn_cache_put(c, SN_CACHE_OBJECT, key_of(i), &o);
            sn_object_free(&o);
        }
        bad |= !c || sn_cache_get_stats(c).corrupt != 0 || sn_cache_note(c) != NULL;
        sn_cache_close(c);
        _exit(bad);
    }
    for (int p = 0; p < CHILDREN; p++) {
        int status = -1;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_true(for_files(NULL) <= KEYS); /* no temporary is left */
}

static int age; /* seconds that `make_old` puts a file back */

static void make_old(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct timespec t[2] = {{st.st_mtime - age, 0}, {st.st_mtime - age, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void eviction(void **state) {
    (void)state;
    sn_cache *c = open_cache(10 * 1100);
    char stale[128];
    snprintf(stale, sizeof stale, "%s/.sinter-1-0.tmp", dir); /* left by a writer that was killed */
    FILE *f = fopen(stale, "w");
    assert_non_null(f);
    fclose(f);
    age = 7200;
    make_old(stale);
    age = 100;
    for (int i = 0; i < 9; i++) {
        store(c, i, 1000);
        for_files(make_old); /* the earlier, the older */
    }
    assert_int_equal(for_files(NULL), 9);
    assert_int_not_equal(access(stale, F_OK), 0);
    assert_true(fetch(c, 0, 1000)); /* used now, so it stays */
    for (int i = 9; i < 12; i++) store(c, i, 1000);
    sn_cache_stats s = sn_cache_get_stats(c);
    assert_true(s.evicted >= 2);
    assert_int_equal(for_files(NULL), 12 - s.evicted);
    assert_true(fetch(c, 0, 1000));
    assert_true(fetch(c, 11, 1000));
    assert_false(fetch(c, 1, 1000));
    assert_false(fetch(c, 2, 1000));
    sn_cache_close(c);
}

static bool exists(const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* Only what the cache itself can have left is removed. */
static void files_of_others(void **state) {
    (void)state;
    static const char *const names[] = {"thesis.tmp",         ".1-0x1-0.tmp",      ".sinter-1.tmp",
                                        ".sinter-1-0.tmp.gz", ".x.sinter-1-0.tmp", "a.sno",
                                        ".sinter-1-0.tmp",    ".sinter-999-42.tmp"};
    enum { N = sizeof names / sizeof *names, OURS = 2 };
    for (int i = 0; i < N; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        fclose(fopen(path, "w"));
    }
    age = 7200;
    for_files(make_old);
    sn_cache *c = open_cache(0);
    assert_int_equal(sn_cache_each(c, SN_CACHE_OBJECT, NULL, NULL), 0);
    for (int kind = 0; kind <= SN_CACHE_MODEL; kind++)
        assert_int_equal(sn_cache_clear(c, (sn_cache_kind)kind), 0);
    sn_cache_close(c);
    for (int i = 0; i < N; i++) assert_int_equal(exists(names[i]), i < N - OURS);
}

static void distrusted(const char *path, const char *why) {
    sn_error err = {0};
    sn_cache *c = sn_cache_open(path, 0, &err);
    assert_non_null(c);
    assert_false(fetch(c, 1, 100));
    store(c, 2, 100);
    assert_false(fetch(c, 2, 100));
    assert_false(sn_cache_usable(c));
    const char *note = sn_cache_note(c);
    if (!note || !strstr(note, why)) fail_msg("'%s' does not say '%s'", note, why);
    sn_cache_close(c);
}

/* What is in the folder is executed: one that others can write is not even read. */
static void folders_of_others(void **state) {
    (void)state;
    sn_cache *c = open_cache(0);
    store(c, 1, 100);
    sn_cache_close(c);
    assert_int_equal(chmod(dir, 0720), 0);
    distrusted(dir, "writable by other users");
    assert_int_equal(chmod(dir, 01777), 0);
    distrusted(dir, "writable by other users");
    assert_int_equal(chmod(dir, 0755), 0); /* others may read */
    c = open_cache(0);
    assert_true(fetch(c, 1, 100));
    sn_cache_close(c);
    if (geteuid() == 0) { /* only root can give a folder away */
        assert_int_equal(chown(dir, 12345, (gid_t)-1), 0);
        distrusted(dir, "belongs to another user");
        assert_int_equal(chown(dir, 0, (gid_t)-1), 0);
    }
    char link[80];
    snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(symlink(dir, link), 0);
    distrusted(link, "it is a symbolic link");
    strcat(link, "/");
    distrusted(link, "it is a symbolic link");
    /* one that cannot be made: what prevents it, not that it is missing */
    distrusted("/proc/none/sinter", "/proc/none: cannot make folder: ");
    distrusted("/dev/null/sinter", "/dev/null: is not a folder");
    /* one that is made is the user's alone */
    char own[80];
    struct stat st;
    snprintf(own, sizeof own, "%s/own", dir);
    sn_error err = {0};
    mode_t mask = umask(0);
    sn_cache_close(sn_cache_open(own, 0, &err));
    umask(mask);
    assert_int_equal(stat(own, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(rmdir(own), 0);
}

/* The way of a kernel: compiled and stored by one session, loaded by the next. */
static void kernels(void **state) {
    (void)state;
    sn_error err = {0};
    int32_t x = 0;
    for (int session = 0; session < 2; session++) {
        sn_cache *c = open_cache(0);
        sn_jit *jit = sn_jit_create(&target, NULL, &err);
        assert_non_null(jit);
        sn_cache_key key = sn_cache_make_key(&target, "add 1", 5);
        sn_object o;
        bool found = sn_cache_get(c, SN_CACHE_OBJECT, key, &o);
        assert_int_equal(found, session);
        if (found) {
            assert_true(sn_jit_add_object(jit, &o, &err));
        } else {
            em e;
            assert_true(em_init(&e, &target, "m", SN_F32, &err));
            em_kernel(&e, "add_1");
            em_val p = em_buf(&e, 0);
            em_store(&e, SN_I32, p, em_add(&e, em_load(&e, SN_I32, p, 1), em_i32(&e, 1)));
            em_end_kernel(&e);
            assert_non_null(em_finish(&e, &err));
            assert_true(sn_jit_compile(jit, e.mod, &o, &err));
            em_free(&e);
            sn_cache_put(c, SN_CACHE_OBJECT, key, &o);
        }
        sn_object_free(&o);
        void *p = sn_jit_lookup(jit, "add_1", &err);
        assert_non_null(p);
        sn_kernel_fn *f;
        memcpy(&f, &p, sizeof f);
        f((void *[]){&x}, NULL, NULL, 0, 1);
        assert_int_equal(x, session + 1);
        sn_jit_destroy(jit);
        sn_cache_close(c);
    }
}

/* ---- objects that pass the checksum but are not what their name says ---- */

static sn_module *three_products(void) {
    sn_module *m = sn_module_new("forged");
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "b", "c"};
        sn_entry_begin(m, names[i]);
        sn_tensor x = sn_input(m, "x", SN_F32, 3 + i, 8);
        sn_output("y", i == 0 ? sn_exp(x) : i == 1 ? sn_softmax(x, 1) : sn_mul(x, x));
    }
    assert_int_equal(sn_module_error(m)->code, 0);
    return m;
}

/* Compiles and runs; returns what the cache gave. */
static sn_stats compile_and_run(const char *cache_dir) {
    sn_error err = {0};
    sn_module *m = three_products();
    sn_options o = sn_options_default();
    o.cache_dir = cache_dir, o.threads = 1;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    sn_stats s = sn_program_stats(p);
    sn_session *session = sn_session_new(p, NULL, &err);
    float x[40], y[40];
    for (int i = 0; i < 40; i++) x[i] = (float)i / 8;
    sn_arg_binding in = SN_BIND("x", SN_F32, x, 5, 8), out = SN_BIND("y", SN_F32, y, 5, 8);
    if (!session || !sn_run(session, "c", &in, 1, &out, 1, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < 40; i++) assert_true(y[i] == x[i] * x[i]);
    sn_session_free(session);
    sn_program_free(p);
    sn_module_free(m);
    return s;
}

/* Neither name of "no disk cache" makes a folder or finds what one has. */
static void no_cache(void **state) {
    (void)state;
    char here[400];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(dir), 0);
    sn_stats a = compile_and_run("none"), b = compile_and_run(""), c = compile_and_run("none");
    assert_int_equal(chdir(here), 0);
    assert_true(a.compiled > 0 && b.compiled == a.compiled && c.compiled == a.compiled);
    assert_false(exists("none"));
}

enum { MAX_FILES = 64, HEADER = 40, AT_SIZE = 24, AT_SUM = 32 };
static struct {
    char path[MAX_FILES][400];
    sn_object whole[MAX_FILES]; /* header included */
    int n;
} files;

static void take_file(const char *path) {
    sn_mapping map;
    sn_error err = {0};
    if (!strstr(path, ".sno")) return;
    assert_true(files.n < MAX_FILES && sn_file_map(path, &map, &err));
    sn_object *o = &files.whole[files.n];
    *o = (sn_object){malloc(map.size), map.size};
    memcpy(o->data, map.data, map.size);
    snprintf(files.path[files.n++], sizeof files.path[0], "%s", path);
    sn_file_unmap(&map);
}

/* Writes the file with the header of file `i`, other contents and a right checksum. */
static void forge(int i, const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(HEADER + size);
    uint64_t bytes = size, sum = XXH3_64bits(data, size);
    memcpy(copy, files.whole[i].data, HEADER);
    memcpy(copy + AT_SIZE, &bytes, 8);
    memcpy(copy + AT_SUM, &sum, 8);
    memcpy(copy + HEADER, data, size);
    sn_error err = {0};
    assert_true(sn_file_save(files.path[i], copy, HEADER + size, &err));
    free(copy);
}

static void expect_refused(const sn_object *o, const char *name, const char *why) {
    if (sn_object_check(o, true, name)) fail_msg("accepted: %s", why);
}

/* Changes that only one condition refuses. Counts the objects with relocations and with several symbols. */
static void forge_fields(const sn_object *o, int *relocated, int *several) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)o->data;
    Elf64_Shdr *section = (Elf64_Shdr *)(o->data + head->e_shoff);
    assert_true(sn_object_check(o, true, NULL));
    for (Elf64_Shdr *s = section; s < section + head->e_shnum; s++) {
        Elf64_Rela *r = (Elf64_Rela *)(o->data + s->sh_offset);
        Elf64_Sym *y = (Elf64_Sym *)(o->data + s->sh_offset), *last = y + s->sh_size / sizeof *y;
        char *names = (char *)o->data + section[s->sh_link].sh_offset;
        if (s->sh_type == SHT_RELA && s->sh_size) {
            Elf64_Rela before = *r;
            r->r_offset = section[s->sh_info].sh_size;
            expect_refused(o, NULL, "a relocation behind its section");
            *r = before, (*relocated)++;
        }
        if (s->sh_type != SHT_SYMTAB) continue;
        char *end = names + section[s->sh_link].sh_size - 1;
        *end = 'x';
        expect_refused(o, NULL, "names without an end");
        *end = 0;
        for (Elf64_Sym *a = y + s->sh_info; a < last; a++)
            for (Elf64_Sym *b = y + s->sh_info; b < last; b++) {
                const char *name = names + a->st_name;
                char *other = names + b->st_name, *at = other + strlen(name);
                bool defined = a->st_shndx && b->st_shndx;
                if (!defined || strncmp(other, name, strlen(name)) || *at != '_') continue;
                assert_true(sn_object_check(o, true, name));
                *at = 'x';
                expect_refused(o, name, "a symbol that is not the entry's");
                *at = '_', (*several)++;
            }
    }
}

static void forged_objects(void **state) {
    (void)state;
    sn_stats first = compile_and_run(dir);
    files.n = 0;
    for_files(take_file);
    assert_true(files.n >= 6);
    assert_int_equal(files.n, first.compiled);
    /* each holds what belongs to the next: other symbols are defined, its own is missing */
    for (int i = 0; i < files.n; i++) {
        sn_object *o = &files.whole[(i + 1) % files.n];
        forge(i, o->data + HEADER, o->size - HEADER);
    }
    sn_stats s = compile_and_run(dir);
    assert_int_equal(s.cached, 0);
    assert_int_equal(s.compiled, files.n);
    s = compile_and_run(dir); /* mended by the run before */
    assert_int_equal(s.cached, files.n);
    /* no object at all; an ELF head and nothing else; cut off */
    const size_t sizes[] = {1, 64, files.whole[0].size - HEADER - 1};
    for (int k = 0; k < 3; k++) {
        forge(0, files.whole[0].data + HEADER, sizes[k]);
        assert_int_equal(compile_and_run(dir).cached, files.n - 1);
    }
    /* every byte of the object changed: refused, or loaded and merged without reading outside */
    sn_object o = files.whole[0];
    sn_object copy = {malloc(o.size - HEADER), o.size - HEADER};
    int refused = 0;
    for (size_t at = 0; at < copy.size; at++) {
        memcpy(copy.data, o.data + HEADER, copy.size);
        copy.data[at] ^= (uint8_t)(at % 2 ? 0xff : 0x15);
        refused += !sn_object_check(&copy, true, NULL);
        sn_error err = {0};
        sn_elf *e = sn_elf_new();
        sn_object merged;
        if (sn_elf_add(e, 0, NULL, &copy, &err) && sn_elf_finish(e, &merged, &err))
            sn_object_free(&merged);
        sn_elf_free(e);
    }
    assert_true(refused > 50);
    int relocated = 0, several = 0;
    for (int i = 0; i < files.n; i++) {
        sn_object each = {malloc(files.whole[i].size - HEADER), files.whole[i].size - HEADER};
        memcpy(each.data, files.whole[i].data + HEADER, each.size);
        forge_fields(&each, &relocated, &several);
        sn_object_free(&each);
    }
    assert_true(relocated > 0 && several > 0);
    sn_object_free(&copy);
    for (int i = 0; i < files.n; i++) sn_object_free(&files.whole[i]);
}

/* ---- sizes ---- */

/* Runs y = x (2 n + 1) + 3 n; other: the module has the second size before the first, and one more
 * kernel. */
static sn_stats run_sizes(bool other) {
    sn_error err = {0};
    sn_module *m = sn_module_new("sizes");
    sn_dim n = sn_symbol(m, "n", 1, 64), size[2];
    sn_tensor at[2] = {NULL};
    size[0] = sn_dim_add(m, sn_dim_mul(m, n, sn_dim_const(m, 2)), sn_dim_const(m, 1));
    size[1] = sn_dim_mul(m, n, sn_dim_const(m, 3));
    sn_entry_begin(m, "f");
    for (int i = 0; i < 2; i++) {
        int k = i ^ other;
        at[k] = sn_dim_tensor(m, SN_F32, size[k]);
    }
    sn_tensor x = sn_input(m, "x", SN_F32, n);
    sn_output("y", sn_add(sn_mul(x, at[0]), at[1]));
    if (other) sn_output("z", sn_softmax(x, 0));
    sn_options o = sn_options_default();
    o.cache_dir = dir, o.threads = 1;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    sn_stats s = sn_program_stats(p);
    sn_session *session = sn_session_new(p, NULL, &err);
    float in[5] = {1, 2, 3, 4, 5}, out[5], z[5];
    sn_arg_binding arg = SN_BIND("x", SN_F32, in, 5);
    sn_arg_binding result[] = {SN_BIND("y", SN_F32, out, 5), SN_BIND("z", SN_F32, z, 5)};
    if (!session || !sn_run(session, "f", &arg, 1, result, 1 + other, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < 5; i++) assert_true(out[i] == in[i] * 11 + 15);
    sn_session_free(session);
    sn_program_free(p);
    sn_module_free(m);
    return s;
}

/* A kernel takes sizes by number: what another module compiled takes them in the same order. */
static void sizes_of_others(void **state) {
    (void)state;
    assert_int_equal(run_sizes(false).cached, 0);
    sn_stats s = run_sizes(true);
    assert_int_equal(s.cached, 1);
    assert_int_equal(s.compiled, 2); /* the other kernel, and the entry */
}

#define T(f) cmocka_unit_test_setup_teardown(f, new_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {T(round_trip),       T(keys),
                                       T(corruption),       T(unusable_folder),
                                       T(read_only_folder), T(processes),
                                       T(eviction),         T(kernels),
                                       T(files_of_others),  T(folders_of_others),
                                       T(no_cache),         T(forged_objects),
                                       T(sizes_of_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
