/* drawing.c: pictures as SVG or PNG, see drawing.h. */
#include "runtime/cli/drawing.h"
#include "runtime/str.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Programs that read an SVG from standard input and write a PNG to standard output. */
static const char *const converters[][4] = {{"rsvg-convert"}, {"magick", "svg:-", "png:-"}};
enum { CONVERTERS = sizeof converters / sizeof *converters };

/* Runs the first converter that is there, between the two files. */
static bool convert(int from, int to, const char *path, sn_error *err) {
    posix_spawn_file_actions_t files;
    int status = 0, missing = posix_spawn_file_actions_init(&files);
    pid_t pid = 0;
    if (!missing) missing = posix_spawn_file_actions_adddup2(&files, from, STDIN_FILENO);
    if (!missing) missing = posix_spawn_file_actions_adddup2(&files, to, STDOUT_FILENO);
    for (int i = 0; i < CONVERTERS && !pid; i++) {
        char *const *argv = (char *const *)(uintptr_t)converters[i];
        missing = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
        if (missing) pid = 0;
    }
    posix_spawn_file_actions_destroy(&files);
    if (missing)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: a PNG needs rsvg-convert (Debian: librsvg2-bin); without it, name the "
                       "file .svg",
                       path);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return !status || sn_fail(err, SN_ERR_FILE, "%s: the conversion to PNG failed", path);
}

/* The text as a file without a name that begins at 0; -1 on error. */
static int file_of(const char *text, size_t size) {
    int fd = memfd_create("picture", MFD_CLOEXEC);
    size_t done = 0;
    for (ssize_t n; fd >= 0 && done < size && (n = write(fd, text + done, size - done)) > 0;)
        done += (size_t)n;
    if (fd >= 0 && done == size && lseek(fd, 0, SEEK_SET) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

bool sn_drawing_named(const char *path, sn_error *err) {
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    if (!name || !strchr(name, '.') || sn_ends_with(path, ".svg") || sn_ends_with(path, ".png"))
        return true;
    return sn_fail(err, SN_ERR_USAGE, "%s: pictures are SVG or PNG: name the file .svg or .png",
                   path);
}

bool sn_drawing_open(drawing *p, const char *path, sn_error *err) {
    *p = (drawing){.path = path};
    if (!sn_drawing_named(path, err) || !(p->file = sn_file_output(path, err))) return false;
    p->f =
        sn_ends_with(path, ".png") ? open_memstream(&p->text, &p->size) : sn_file_stream(p->file);
    if (p->f) return true;
    sn_file_discard(p->file);
    return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
}

bool sn_drawing_close(drawing *p, sn_error *err) {
    FILE *out = sn_file_stream(p->file);
    if (p->f == out) return sn_file_commit(p->file, err);
    bool ok = fclose(p->f) == 0;
    int from = ok ? file_of(p->text, p->size) : -1;
    free(p->text);
    ok = (from >= 0 && out) || sn_fail(err, SN_ERR_MEMORY, "out of memory for a picture");
    ok = ok && convert(from, fileno(out), p->path, err);
    if (from >= 0) close(from);
    if (ok) return sn_file_commit(p->file, err);
    sn_file_discard(p->file);
    return false;
}

bool sn_drawing_convert(const char *svg, const char *png, sn_error *err) {
    int from = open(svg, O_RDONLY | O_CLOEXEC);
    if (from < 0) return sn_fail(err, SN_ERR_FILE, "%s: %s", svg, strerror(errno));
    sn_file *file = sn_file_create(png, err);
    FILE *out = file ? sn_file_stream(file) : NULL;
    bool ok = out && convert(from, fileno(out), png, err);
    close(from);
    if (ok) return sn_file_commit(file, err);
    sn_file_discard(file);
    return false;
}
