/* cmd.c: shared by the subcommands: errors, progress, reading text. */
#include "tools/cmd.h"
#include "runtime/clock.h"
#include "runtime/comm/comm.h"
#include "ir/ir.h"
#include "runtime/file.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cmd_fail(const char *name, const sn_error *err) {
    fflush(stdout);
    bool stopped = sn_screen_stopped() && err->code == SN_OK;
    if (stopped) {
        sn_screen_say(name, "%s", err->message);
        return EXIT_STOPPED;
    }
    sn_screen_error(name, "%s\n", err->message);
    return err->code == SN_ERR_USAGE ? EXIT_USAGE : EXIT_WRONG;
}

int cmd_finish(const char *name) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_OK;
    sn_screen_error(name, "cannot write the output: %s\n", errno ? strerror(errno) : "write error");
    return EXIT_WRONG;
}

void cmd_offer(const char *word, const char *(*name)(int i)) {
    const char *comma = strrchr(word, ','), *part = comma ? comma + 1 : word;
    for (int i = 0; name(i); i++)
        if (!strncmp(name(i), part, strlen(part)))
            printf("%.*s%s\n", (int)(part - word), word, name(i));
}

open_model *cmd_open(const char *name, const cmd_model *model, const cmd_compile *compile,
                     open_options o, int *code) {
    sn_error err = {0};
    o.compile = cmd_options(compile);
    open_model *m = cmd_open_model(name, model, o, &err);
    *code = m ? EXIT_OK : cmd_fail(name, &err);
    if (m && sn_screen()->verbose) cmd_print_model(m);
    return m;
}

int cmd_rank_threads(const sn_comm *c, int wanted) {
    cpu_set_t set;
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    if (!c || wanted || sched_getaffinity(0, sizeof set, &set)) return wanted;
    if (CPU_COUNT(&set) < all) return CPU_COUNT(&set);
    return all > c->local_size ? (int)(all / c->local_size) : 1;
}

bool cmd_read_levels(const char *text, unsigned *levels, sn_error *err) {
    *levels = 0;
    for (const char *p = text; *p;) {
        int from = p[0] - '0', to = from, used = 1;
        if (p[1] == '.' && p[2] == '.') to = p[3] - '0', used = 4;
        bool ok = from >= 0 && to <= 4 && from <= to && (p[used] == 0 || p[used] == ',');
        if (!ok) break;
        for (int l = from; l <= to; l++) *levels |= 1u << l;
        p += used;
        if (!*p) return true;
        p++;
    }
    return sn_fail(err, SN_ERR_USAGE, "--levels is '%s'; write 0..4, 4 or 0,3,4", text);
}

bool cmd_can_write(const char *path, sn_error *err) {
    sn_file *f = path ? sn_file_output(path, err) : NULL;
    sn_file_discard(f);
    return f || !path;
}

sn_trace *cmd_profile_begin(const char *path, sn_session *s, sn_error *err) {
    enum { EVENTS = 1 << 20 };
    return path && cmd_can_write(path, err) ? sn_trace_begin(s, NULL, EVENTS, err) : NULL;
}

bool cmd_profile_wrote(const char *path, sn_trace *t) {
    if (t && sn_trace_lost(t))
        sn_screen_note("profile", "%s contains the first kernel calls only; %zu more were dropped",
                       path, sn_trace_lost(t));
    if (t && !sn_screen()->quiet) sn_trace_print(t, stderr);
    if (t) sn_screen_wrote("profile", path);
    sn_trace_end(t);
    return true;
}

bool cmd_profile_end(const char *path, sn_trace *t, sn_error *err) {
    if (!t || sn_trace_write(t, path, err)) return cmd_profile_wrote(path, t);
    sn_trace_end(t);
    return false;
}

void cmd_print_model(const open_model *m) {
    sn_stats s = sn_program_stats(m->program);
    fprintf(stderr, "model     %s, %.4g M parameters, ", m->model.type,
            (double)model_parameters(m) * 1e-6);
    if (m->model.layers) fprintf(stderr, "%lld layers, ", (long long)m->model.layers);
    fprintf(stderr, "context %lld, vocabulary %lld%s\n", (long long)m->model.context,
            (long long)m->model.vocab, model_weights(m) ? "" : ", random weights");
    fprintf(stderr,
            "compile   %.3f s (passes %.3f, code %.3f, load %.3f), %s: %d kernels, %d objects "
            "compiled, %d from the cache, %d oneDNN primitives, %zu KB of code\n",
            s.seconds, s.passes, s.codegen, s.load, s.compiled ? "cold" : "warm", s.kernels,
            s.compiled, s.cached, s.onednn, s.code_bytes >> 10);
}

const char *cmd_input_path(const char *path, sn_error *err) {
    static char name[32];
    size_t size = 0;
    if (strcmp(path, "-") != 0) return path;
    char *data = sn_text_read(path, &size, err);
    if (data && !size) sn_fail(err, SN_ERR_FILE, "standard input is empty");
    int fd = data && size ? memfd_create("standard input", MFD_CLOEXEC) : -1;
    size_t done = 0;
    for (ssize_t n; fd >= 0 && done < size && (n = write(fd, data + done, size - done)) > 0;)
        done += (size_t)n;
    free(data);
    if (fd >= 0 && done == size) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        return name;
    }
    if (!err->code)
        sn_fail(err, SN_ERR_FILE, "standard input: cannot keep it: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
}

bool cmd_has_entry(sn_module *m, const char *entry, sn_error *err) {
    char names[200] = "";
    if (!entry || sn_entry_get(m, entry)) return true;
    for (int i = 0, n = 0; i < sn_entry_count(m) && n < 150; i++)
        if (sn_entry_at(m, i)->name[0] != '@')
            n += snprintf(names + n, sizeof names - (size_t)n, "%s%.40s", n ? ", " : "",
                          sn_entry_at(m, i)->name);
    return sn_fail(err, SN_ERR_USAGE, "there is no entry '%s'; there are: %s", entry, names);
}
