/* screen.c: colours, notes, progress and Ctrl-C of programs on a terminal. */
#include "runtime/cli/screen.h"
#include "runtime/clock.h"
#include "runtime/file.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

screen_options *sn_screen(void) {
    static screen_options chosen;
    return &chosen;
}

/* ---- colours ---- */

static bool has_color(FILE *f) {
    const char *when = sn_screen()->color, *off = getenv("NO_COLOR"), *term = getenv("TERM");
    if (when && strcmp(when, "auto") != 0) return !strcmp(when, "always");
    return !(off && *off) && !(term && !strcmp(term, "dumb")) && isatty(fileno(f));
}

const char *sn_screen_color(FILE *f, screen_style style) {
    static const char *const codes[] = {
        [STYLE_NONE] = "\033[0m",    [STYLE_ERROR] = "\033[1;31m", [STYLE_NOTE] = "\033[33m",
        [STYLE_HEADING] = "\033[1m", [STYLE_FASTER] = "\033[32m",  [STYLE_SLOWER] = "\033[31m"};
    return has_color(f) ? codes[style] : "";
}

/* ---- lines ---- */

static void print_name(const char *name, screen_style style) {
    fprintf(stderr, "%s%s:%s ", sn_screen_color(stderr, style), name,
            sn_screen_color(stderr, STYLE_NONE));
}

void sn_screen_error(const char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_name(name, STYLE_ERROR);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

void sn_screen_note(const char *name, const char *fmt, ...) {
    if (sn_screen()->quiet) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", name);
    print_name("note", STYLE_NOTE);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

void sn_screen_say(const char *name, const char *fmt, ...) {
    if (sn_screen()->quiet) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* Regular files in a folder, and their bytes. */
static int count_files(const char *path, double *bytes) {
    DIR *d = opendir(path);
    int n = 0;
    *bytes = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        char *file = sn_path_join(path, e->d_name);
        if (file && !stat(file, &st) && S_ISREG(st.st_mode)) {
            *bytes += (double)st.st_size;
            n++;
        }
        free(file);
    }
    if (d) closedir(d);
    return n;
}

int64_t sn_screen_wrote(const char *name, const char *path) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    struct stat st;
    if (!path || !strcmp(path, "-") || stat(path, &st)) return 0;
    double bytes = (double)st.st_size;
    int n = S_ISDIR(st.st_mode) ? count_files(path, &bytes) : -1, unit = 0;
    const int64_t all = (int64_t)bytes;
    while (bytes >= 999.5 && unit < 4) bytes /= 1000, unit++;
    char files[32] = "";
    if (n >= 0) snprintf(files, sizeof files, "%d file%s, ", n, n == 1 ? "" : "s");
    sn_screen_say(name, "wrote %s (%s%.3g %s)", path, files, bytes, units[unit]);
    return all;
}

/* ---- progress ---- */

bool sn_screen_progress_due(screen_progress *p) {
    const screen_options *o = sn_screen();
    bool terminal = isatty(STDERR_FILENO);
    double now = sn_clock();
    if (!p->begin) p->begin = p->shown = now;
    if (o->quiet || (!terminal && !o->verbose)) return false;
    if (terminal && !p->any) return now - p->begin >= 1;
    return now - p->shown >= (terminal ? 0.1 : 10);
}

static void show(screen_progress *p, const char *fmt, va_list ap) {
    bool terminal = isatty(STDERR_FILENO);
    p->shown = sn_clock();
    p->any = terminal;
    if (terminal) fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, ap);
    if (!terminal) fputc('\n', stderr);
    fflush(stderr);
}

void sn_screen_progress_show(screen_progress *p, const char *fmt, ...) {
    if (!sn_screen_progress_due(p)) return;
    va_list ap;
    va_start(ap, fmt);
    show(p, fmt, ap);
    va_end(ap);
}

/* "3 s", "12 min", "2 h 5 min" */
static const char *duration(double s, char buf[32]) {
    long long m = llround(s / 60);
    if (s < 99.5)
        snprintf(buf, 32, "%.0f s", fmax(s, 1));
    else if (m < 100)
        snprintf(buf, 32, "%lld min", m);
    else
        snprintf(buf, 32, "%lld h %lld min", m / 60, m % 60);
    return buf;
}

void sn_screen_progress_of(screen_progress *p, const char *what, double done, double total) {
    if (!sn_screen_progress_due(p)) return;
    char left[64] = "", text[32];
    double passed = sn_clock() - p->begin;
    if (done > 0 && passed > 0.5)
        snprintf(left, sizeof left, ", %s left", duration(passed * (total - done) / done, text));
    if (total == 100)
        sn_screen_progress_show(p, "%s: %.0f %%%s", what, done, left);
    else
        sn_screen_progress_show(p, "%s: %.0f of %.0f%s", what, done, total, left);
}

void sn_screen_progress_end(screen_progress *p) {
    if (p->any) fputs("\r\033[K", stderr);
    *p = (screen_progress){0};
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t stopped;

static void note_stop(int number) {
    (void)number;
    stopped = 1;
}

void sn_screen_catch_stop(void) {
    struct sigaction act = {.sa_handler = note_stop, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
}

bool sn_screen_stopped(void) {
    return stopped;
}

bool sn_screen_interrupted(sn_error *err, const char *fmt, ...) {
    int n = snprintf(err->message, sizeof err->message, "interrupted: ");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message + n, sizeof err->message - (size_t)n, fmt, ap);
    va_end(ap);
    err->code = SN_OK;
    return false;
}
