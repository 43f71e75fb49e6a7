/* screen.h: what a program shows its user: colours, notes, progress, the files that it wrote, and the
 * end by Ctrl-C. The options that all commands share (--json, --quiet, --verbose, --color) are kept
 * here, once for the process; sn_args_parse sets them. Everything but results goes to stderr. */
#ifndef SN_SCREEN_H
#define SN_SCREEN_H

#include "runtime/base.h"

#include <stdio.h>

typedef struct screen_options {
    bool json;       /* print results as JSON, one object per line */
    bool quiet;      /* print errors only */
    bool check_only; /* sn_args_parse returns EXIT_OK for a right command line, and nothing runs */
    bool verbose;    /* print what is done, also where stderr is not a terminal */
    const char *color; /* "always", "never"; "auto" or NULL: on terminals, unless NO_COLOR is set */
} screen_options;
screen_options *sn_screen(void);

/* ---- colours ---- */

typedef enum screen_style {
    STYLE_NONE, /* ends any other */
    STYLE_ERROR,
    STYLE_NOTE,
    STYLE_HEADING,
    STYLE_FASTER,
    STYLE_SLOWER
} screen_style;
/* The escape sequence that begins a style in this stream; "" if it has no colours. */
const char *sn_screen_color(FILE *f, screen_style style);

/* ---- lines on stderr ---- */

/* "NAME: TEXT", for errors; without the end of the line. */
void sn_screen_error(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "NAME: note: TEXT" on a line of its own; nothing if quiet. */
void sn_screen_note(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "NAME: TEXT" on a line of its own; nothing if quiet. */
void sn_screen_say(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "NAME: wrote PATH (12.3 KB)"; of a folder "NAME: wrote PATH (3 files, 1.2 MB)". Nothing if quiet,
 * if path is NULL, or if it is "-". Returns the bytes; 0: there is no such file. */
int64_t sn_screen_wrote(const char *name, const char *path);

/* ---- progress ---- */

/* One line on a terminal, replaced at most ten times per second, from one second after the first
 * call on; with --verbose elsewhere a line every ten seconds; nothing if quiet. Zero-initialise. */
typedef struct screen_progress {
    double begin, shown;
    bool any;
} screen_progress;
/* Is it time for another line? Callers whose line is expensive ask first. */
bool sn_screen_progress_due(screen_progress *p);
void sn_screen_progress_show(screen_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* "WHAT: 12 of 40, 3 s left": `done` of `total` units of work since the first call; "WHAT: 30 %, 3 s
 * left" if total is 100. */
void sn_screen_progress_of(screen_progress *p, const char *what, double done, double total);
void sn_screen_progress_end(screen_progress *p); /* clears the line */

/* ---- Ctrl-C ---- */

/* From now on the first SIGINT is noted, and loops that ask sn_screen_stopped end early and keep what
 * is done; the second one ends the process. */
void sn_screen_catch_stop(void);
bool sn_screen_stopped(void);
/* What a function returns that ended early because of sn_screen_stopped: false, with "interrupted: TEXT"
 * as message and SN_OK as code. Programs print it and exit with EXIT_STOPPED. */
bool sn_screen_interrupted(sn_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
