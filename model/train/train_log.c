/* train_log.c: metrics.jsonl, one object per line, and the plot loss.svg. */
#include "model/train/train.h"

#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool add_point(train_log *l, train_point p, sn_error *err) {
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 256;
        train_point *grown = realloc(l->point, capacity * sizeof *grown);
        if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        l->point = grown, l->capacity = capacity;
    }
    l->point[l->count++] = p;
    return true;
}

static double value_of(const char *line, const char *key) {
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

/* Truncates the lines of an earlier run after step `keep`, and reads the others. */
static bool keep_lines(train_log *l, int64_t keep, sn_error *err) {
    FILE *old = fopen(l->jsonl, "r");
    if (!old)
        return errno == ENOENT ||
               sn_fail(err, SN_ERR_FILE, "%s: cannot read: %s", l->jsonl, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    off_t size = 0;
    bool ok = true;
    for (ssize_t n; ok && (n = getline(&line, &room, old)) > 0; size += n) {
        double step = value_of(line, "\"step\": ");
        if (!(step <= (double)keep) || line[n - 1] != '\n') break;
        train_point p = {.step = (int64_t)step,
                         .loss = value_of(line, "\"loss\": "),
                         .validation = value_of(line, "\"validation_loss\": ")};
        ok = add_point(l, p, err);
    }
    free(line);
    fclose(old);
    if (ok && truncate(l->jsonl, size) != 0)
        ok = sn_fail(err, SN_ERR_FILE, "%s: cannot truncate: %s", l->jsonl, strerror(errno));
    return ok;
}

bool train_log_open(train_log *l, const char *folder, int64_t keep, sn_error *err) {
    *l = (train_log){.jsonl = sn_path_join(folder, TRAIN_LOG),
                     .svg = sn_path_join(folder, "loss.svg")};
    if (!l->jsonl || !l->svg) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (keep > 0 && !keep_lines(l, keep, err)) return false;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | (keep > 0 ? 0 : O_TRUNC);
    int fd = open(l->jsonl, flags, 0666);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        l->fd = fd + 1;
        return true;
    }
    sn_fail(err, SN_ERR_FILE, "%s: cannot write: %s", l->jsonl,
            fd < 0 ? strerror(errno) : "not a regular file");
    if (fd >= 0) close(fd);
    return false;
}

static void print_value(FILE *f, const char *key, double v, const char *format) {
    if (!isfinite(v)) return; /* JSON has no NaN */
    fprintf(f, ", \"%s\": ", key);
    fprintf(f, format, v);
}

/* Appends the line; a partly written line is removed again. */
static bool write_line(train_log *l, const char *line, size_t size, sn_error *err) {
    if (!l->fd) return true;
    struct stat st;
    int fd = l->fd - 1;
    bool known = fstat(fd, &st) == 0;
    ssize_t n = write(fd, line, size);
    if (n == (ssize_t)size) return true;
    int why = n < 0 ? errno : ENOSPC;
    if (n > 0 && (!known || ftruncate(fd, st.st_size))) { /* do not append to a partial line */
        close(fd);
        l->fd = 0;
    }
    return sn_fail(err, SN_ERR_FILE, "%s: cannot write: %s", l->jsonl, strerror(why));
}

bool train_log_add(train_log *l, const train_metrics *m, sn_error *err) {
    char *line = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&line, &size);
    if (!f) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    fprintf(f, "{\"step\": %lld", (long long)m->at.step);
    print_value(f, "loss", m->at.loss, "%.9g");
    print_value(f, "validation_loss", m->at.validation, "%.9g");
    print_value(f, "norm", m->norm, "%.6g");
    print_value(f, "rate", m->rate, "%.6g");
    print_value(f, "tokens_per_second", m->tokens_per_second, "%.0f");
    print_value(f, "gflops", m->gflops, "%.2f");
    print_value(f, "seconds", m->seconds, "%.6f");
    fprintf(f, ", \"precision\": \"%s\"}\n", m->precision);
    bool ok = fclose(f) == 0 || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && l->sink) l->sink(l->sink_ctx, line);
    ok = ok && write_line(l, line, size, err);
    free(line);
    return add_point(l, m->at, err) && ok;
}

/* ---- the curve ---- */

enum { LEFT = 60, TOP = 52, WIDTH = 640, HEIGHT = 360 };

typedef struct range {
    double lo, hi, last; /* losses, steps */
} range;

static double place_x(const range *r, double step) {
    return LEFT + WIDTH * step / r->last;
}

static double place_y(const range *r, double loss) {
    return TOP + HEIGHT * (r->hi - loss) / (r->hi - r->lo);
}

static range find_range(const train_log *l) {
    range r = {INFINITY, -INFINITY, 1};
    for (size_t i = 0; i < l->count; i++) {
        const double v[] = {l->point[i].loss, l->point[i].validation};
        for (int k = 0; k < 2; k++) {
            if (!isfinite(v[k])) continue;
            if (v[k] < r.lo) r.lo = v[k];
            if (v[k] > r.hi) r.hi = v[k];
        }
        if ((double)l->point[i].step > r.last) r.last = (double)l->point[i].step;
    }
    if (!(r.lo <= r.hi)) r.lo = 0, r.hi = 1;
    double margin = 0.05 * (r.hi - r.lo) + 1e-3;
    r.lo -= margin, r.hi += margin;
    return r;
}

/* A tick distance of 1, 2 or 5 times a power of ten, so that about `n` fit. */
static double grid_step(double span, int n) {
    double unit = pow(10, floor(log10(span / n))), part = span / n / unit;
    return unit * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static void draw_grid(FILE *f, const range *r) {
    double dy = grid_step(r->hi - r->lo, 6), dx = grid_step(r->last, 8);
    for (double v = ceil(r->lo / dy) * dy; v <= r->hi; v += dy)
        fprintf(f,
                "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.4g</text>\n",
                LEFT, place_y(r, v), WIDTH, LEFT - 6, place_y(r, v) + 4, v);
    for (double s = 0; s <= r->last; s += dx)
        fprintf(f,
                "<path d=\"M%.1f %dv%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%.0f</text>\n",
                place_x(r, s), TOP, HEIGHT, place_x(r, s), TOP + HEIGHT + 18, s);
}

/* The validations are few and have dots, as has a single loss, which makes no line. */
static void draw_line(FILE *f, const train_log *l, const range *r, bool validation) {
    const char *colour = validation ? "#e65100" : "#1976d2";
    size_t n = 0;
    fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" d=\"", colour,
            validation ? "2" : "1");
    for (size_t i = 0; i < l->count; i++) {
        double v = validation ? l->point[i].validation : l->point[i].loss;
        if (isfinite(v))
            fprintf(f, "%s%.1f %.1f", n++ ? "L" : "M", place_x(r, (double)l->point[i].step),
                    place_y(r, v));
    }
    fputs("\"/>\n", f);
    for (size_t i = 0; (validation || n == 1) && i < l->count; i++) {
        double v = validation ? l->point[i].validation : l->point[i].loss;
        if (isfinite(v))
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    place_x(r, (double)l->point[i].step), place_y(r, v), colour);
    }
}

/* The title, and a ring around the best point: of the validation loss, or else of the training loss. */
static void draw_best(FILE *f, const train_log *l, const range *r) {
    const train_point *best = NULL;
    bool validated = false;
    for (size_t i = 0; i < l->count; i++) validated |= isfinite(l->point[i].validation);
    double least = INFINITY;
    for (size_t i = 0; i < l->count; i++) {
        double v = validated ? l->point[i].validation : l->point[i].loss;
        if (v < least) best = &l->point[i], least = v;
    }
    fprintf(f, "<text x=\"%d\" y=\"20\" font-size=\"16\">%s", LEFT, l->title ? l->title : "");
    if (best)
        fprintf(f, ": best %s loss %.4f at step %lld", validated ? "validation" : "training", least,
                (long long)best->step);
    fputs("</text>\n", f);
    if (best)
        fprintf(f,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"none\" stroke=\"%s\" "
                "stroke-width=\"2\"/>\n",
                place_x(r, (double)best->step), place_y(r, least),
                validated ? "#e65100" : "#1976d2");
}

bool train_log_draw(const train_log *l, sn_error *err) {
    sn_file *file = l->svg ? sn_file_create(l->svg, err) : NULL;
    if (!file) return false;
    FILE *f = sn_file_stream(file);
    range r = find_range(l);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            LEFT + WIDTH + 20, TOP + HEIGHT + 40);
    draw_grid(f, &r);
    draw_line(f, l, &r, false);
    draw_line(f, l, &r, true);
    draw_best(f, l, &r);
    fprintf(f,
            "<text x=\"%d\" y=\"40\" fill=\"#1976d2\">training loss</text>"
            "<text x=\"%d\" y=\"40\" fill=\"#e65100\">validation loss</text>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>\n"
            "<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">loss: mean of "
            "-ln P of the targets</text>\n</svg>\n",
            LEFT, LEFT + 110, LEFT + WIDTH, TOP + HEIGHT + 34, TOP + HEIGHT / 2);
    return sn_file_commit(file, err);
}

void train_log_close(train_log *l) {
    if (l->fd) close(l->fd - 1);
    free(l->jsonl), free(l->svg), free(l->point);
    *l = (train_log){0};
}
