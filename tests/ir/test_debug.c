/* SINTER_DEBUG: switches are set, mistakes are named on stderr once and change nothing. It is
 * parsed once a process, so every case runs in a child. */
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Runs `check` in a child with SINTER_DEBUG=text (NULL: unset); what it wrote to stderr
 * into out. */
static void run(const char *text, bool (*check)(const sn_debug *), char *out, size_t size) {
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(fd[1], STDERR_FILENO);
        close(fd[0]);
        if (text)
            setenv("SINTER_DEBUG", text, 1);
        else
            unsetenv("SINTER_DEBUG");
        const sn_debug *d = sn_debug_get();
        _exit(d == sn_debug_get() && check(d) ? 0 : 1);
    }
    close(fd[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(fd[0], out + n, size - 1 - n)) > 0;) n += (size_t)got;
    out[n] = 0;
    close(fd[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool nothing_set(const sn_debug *d) {
    return !d->help && !d->time && !d->verify && !d->dump && !d->off;
}

static bool three_set(const sn_debug *d) {
    return !d->help && d->time && d->verify && d->dump && strstr(d->dump, "/x=y") && !d->off;
}

static bool dump_set(const sn_debug *d) {
    return d->dump && !d->time;
}

static bool help_set(const sn_debug *d) {
    return d->help && !d->time && d->off && !strcmp(d->off, "fuse+memory");
}

static void switches(void **state) {
    (void)state;
    char out[8192];
    run(NULL, nothing_set, out, sizeof out);
    assert_string_equal(out, "");
    run("", nothing_set, out, sizeof out);
    assert_string_equal(out, "");
    char folder[] = "/tmp/sn_debug_XXXXXX", text[100];
    assert_non_null(mkdtemp(folder));
    snprintf(text, sizeof text, "time,dump=%s/x=y,,verify", folder);
    for (int again = 0; again < 2; again++) { /* makes the folder, or finds it */
        run(text, three_set, out, sizeof out);
        assert_string_equal(out, "");
    }
    snprintf(text, sizeof text, "%s/x=y", folder);
    assert_int_equal(rmdir(text), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void help(void **state) {
    (void)state;
    char out[8192];
    run("off=fuse+memory,help", help_set, out, sizeof out);
    const char *table = strstr(out, "print this table");
    assert_non_null(table);
    assert_null(strstr(table + 1, "print this table"));
    assert_non_null(strstr(out, "dump=..."));
}

static void mistakes(void **state) {
    (void)state;
    char out[8192];
    run("tmie", nothing_set, out, sizeof out);
    assert_non_null(strstr(out, "\"tmie\""));
    assert_non_null(strstr(out, "verify"));
    run("time=1", nothing_set, out, sizeof out);
    assert_non_null(strstr(out, "time takes no value"));
    run("time,verify,dump=/proc/no/x=y", three_set, out, sizeof out);
    assert_non_null(strstr(out, "dump=/proc/no/x=y: cannot make folder"));
    run("time,verify,dump=/proc/version/x=y", three_set, out, sizeof out);
    assert_non_null(strstr(out, "cannot make folder"));
    run("dump=/proc/version", dump_set, out, sizeof out);
    assert_non_null(strstr(out, "dump=/proc/version: cannot write to it: Not a directory"));
    run("dump", nothing_set, out, sizeof out);
    assert_non_null(strstr(out, "dump takes a value"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(switches),
        cmocka_unit_test(help),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
