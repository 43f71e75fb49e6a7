/* Files that become a part of an object, and the private folder in which they are made. */
#include "driver/temporary.h"
#include "runtime/file.h"
#include "tools/artefact/inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/support/scratch.h"

/* The files of both folders. */
static bool read_all(inside *s, sn_error *err) {
    *s = (inside){.name = "m"};
    return inside_read(s, scratch_dir, ".tokenizer", false, err) &&
           inside_read(s, scratch_dir, ".source.tokenizer", true, err);
}

static void expect_refused(const char *what) {
    sn_error err = {0};
    inside s;
    assert_false(read_all(&s, &err));
    expect_error(&err, SN_ERR_FILE, what, "cannot be listed");
    inside_free(&s);
}

/* Only the source's tokenizer may be missing; what is there must be a folder that can be listed. */
static void lists_folders(void **state) {
    (void)state;
    sn_error err = {0};
    expect_refused("m.tokenizer: ");
    assert_int_equal(mkdir(scratch_path("m.tokenizer"), 0700), 0);
    assert_true(scratch_write(scratch_path("m.tokenizer/bpe"), "ab", 2));
    assert_true(scratch_write(scratch_path("m.source.tokenizer"), "", 0));
    expect_refused("m.source.tokenizer: ");
    assert_int_equal(remove(scratch_path("m.source.tokenizer")), 0);
    inside s;
    if (!read_all(&s, &err)) fail_msg("%s", err.message);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.file[0].path, "m.tokenizer/bpe");
    assert_int_equal(s.file[0].size, 2);
    assert_memory_equal(s.file[0].data, "ab", 2);
    inside_free(&s);
}

static void make_folder(temporary *t, char *part, size_t size) {
    sn_error err = {0};
    char file[600];
    if (!temporary_make(t, &err)) fail_msg("%s", err.message);
    snprintf(part, size, "%s/m.tokenizer", t->path);
    snprintf(file, sizeof file, "%s/bpe", part);
    assert_int_equal(mkdir(part, 0700), 0);
    assert_true(scratch_write(file, "ab", 2));
}

/* Folders go with what is in them; a link goes, and what it names stays. */
static void removes_folders(void **state) {
    (void)state;
    temporary t;
    char path[sizeof t.path], part[560], link[560];
    make_folder(&t, part, sizeof part);
    strcpy(path, t.path);
    assert_int_equal(mkdir(scratch_path("mine"), 0700), 0);
    assert_true(scratch_write(scratch_path("mine/file"), "ab", 2));
    snprintf(link, sizeof link, "%s/link", t.path);
    assert_int_equal(symlink(scratch_path("mine"), link), 0);
    temporary_remove(&t);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(scratch_path("mine/file"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_folders),
                                       cmocka_unit_test(removes_folders)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
