/* Whole files, config.json, .npy arrays and model folders: round trips and rejected input. */
#include "runtime/config.h"
#include "runtime/files/json.h"
#include "runtime/file.h"
#include "runtime/model_dir.h"
#include "runtime/npy.h"
#include "runtime/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/scratch.h"

static const float block[] = {1, -2, 3.5f, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const sn_weight samples[] = {{"odd", SN_U8, 1, {3}, block, 3, NULL, NULL},
                                    {"h.0.weight", SN_F32, 2, {4, 4}, block, 64, NULL, NULL}};
enum { SAMPLES = sizeof samples / sizeof *samples };

/* ---- atomic writing ---- */

/* The system calls of a commit in order: f a file synced, d a folder synced, r a rename. */
static char asked[16];

static void note(char what) {
    size_t n = strlen(asked);
    if (n + 1 < sizeof asked) asked[n] = what, asked[n + 1] = 0;
}

int fsync(int fd) {
    struct stat st;
    note(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? 'd' : 'f');
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to) {
    note('r');
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* The data is on disk before the rename, and the rename before the call returns. */
static void order_of_a_commit(void **state) {
    (void)state;
    sn_error e = {0};
    *asked = 0;
    assert_true(sn_file_save(scratch_path("synced"), "x", 1, &e));
    assert_string_equal(asked, "frd");
    unlink(scratch_path("synced"));
}

static void unusual_temporaries(void **state) {
    (void)state;
    sn_error e = {0};
    char path[256], temp[256], other[256];
    snprintf(path, sizeof path, "%s", scratch_path("target"));
    snprintf(temp, sizeof temp, "%s", scratch_path(".target.tmp"));
    snprintf(other, sizeof other, "%s", scratch_path("other"));
    /* opening a FIFO for writing blocks until there is a reader */
    assert_int_equal(mkfifo(temp, 0600), 0);
    alarm(20);
    assert_false(sn_file_save(path, "new", 3, &e));
    expect_error(&e, SN_ERR_FILE, path, "is not a regular file: remove it");
    int reader = open(temp, O_RDONLY | O_NONBLOCK); /* with a reader, open succeeds */
    e = (sn_error){0};
    assert_false(sn_file_save(path, "new", 3, &e));
    expect_error(&e, SN_ERR_FILE, path, "is not a regular file: remove it");
    close(reader);
    alarm(0);
    assert_int_equal(unlink(temp), 0);
    /* a hard link: the file is not modified through it */
    assert_true(scratch_write(other, "precious", 8));
    assert_int_equal(link(other, temp), 0);
    e = (sn_error){0};
    assert_true(sn_file_save(path, "new", 3, &e));
    sn_mapping m;
    assert_true(sn_file_map(other, &m, &e));
    assert_int_equal(m.size, 8);
    sn_file_unmap(&m);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(other, temp), 0);
    assert_false(sn_file_save(path, "new", 3, &e));
    expect_error(&e, SN_ERR_FILE, path, "is not a regular file: remove it");
    unlink(temp);
    /* a symbolic link at the target is replaced, its target is not */
    assert_int_equal(symlink(other, path), 0);
    e = (sn_error){0};
    assert_true(sn_file_save(path, "new", 3, &e));
    assert_true(sn_file_map(other, &m, &e));
    assert_int_equal(m.size, 8);
    sn_file_unmap(&m);
    unlink(path), unlink(other);
}

/* Files have a decimal point wherever the process is at home. */
static void decimal_comma(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\": 0.25, \"eps\": 1e-05, \"list\": [0.5], \"in\": {\"b\": 1.5}}";
    sn_error e = {0};
    size_t size = 0;
    set_comma_locale();
    sn_config *c = sn_config_parse("c.json", text, strlen(text), &e);
    if (!c) fail_msg("%s", e.message);
    assert_true(sn_config_float(c, "a", 0, 1) == 0.25 && sn_config_float(c, "eps", 0, 1) == 1e-5);
    char *printed = sn_config_print(c, &size);
    assert_non_null(printed);
    sn_config_free(c);
    static const char large[] = "{\"a\": 1.5e999}";
    assert_null(sn_config_parse("c.json", large, strlen(large), &e));
    expect_error(&e, SN_ERR_FILE, "c.json", "a number out of range");
    setlocale(LC_ALL, "C");
    e = (sn_error){0};
    printed = realloc(printed, size + 1);
    printed[size] = 0;
    assert_null(strstr(printed, "0,"));
    assert_non_null(strstr(printed, "0.25"));
    c = sn_config_parse("printed", printed, size, &e);
    if (!c) fail_msg("%s: %s", e.message, printed);
    sn_config *in = sn_config_section(c, "in");
    assert_true(sn_config_float(c, "a", 0, 1) == 0.25 && sn_config_float(c, "eps", 0, 1) == 1e-5);
    assert_true(sn_config_float(in, "b", 0, 2) == 1.5);
    sn_config_free(in);
    sn_config_free(c);
    free(printed);
}

/* A folder of a hub cache owns the files that its links lead to; private files are not copied. */
static void links_out_of_a_folder(void **state) {
    (void)state;
    static const struct {
        const char *name, *target; /* target: of a link; NULL: a file */
        bool owned;
    } rows[] = {{"plain", NULL, true},
                {"inner", "plain", true},
                {"deep/plain", NULL, true},
                {"deep/blob", "../../../blobs/b", true},
                {"blob", "../../blobs/b", true},
                {"beside", "../other/x", false},
                {"above", "../../x", false},
                {"missing", "nothing", false},
                {"passwd", "/etc/passwd", false},
                {"assets", "../other", false},
                {"assets/x", NULL, false},
                {"itself", "itself", false}};
    sn_error e = {0};
    char folder[600], path[700], root[512];
    snprintf(root, sizeof root, "%s", scratch_path("hub"));
    snprintf(folder, sizeof folder, "%s/snapshots/1", root);
    snprintf(path, sizeof path, "%s/deep", folder);
    assert_true(sn_folder_make(path, &e));
    static const char *const outside[] = {"blobs", "snapshots/other"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", root, outside[i]);
        assert_true(sn_folder_make(path, &e));
    }
    static const char *const files[] = {"blobs/b", "snapshots/other/x", "x"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        assert_true(scratch_write(path, "secret", 6));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, rows[i].name);
        if (rows[i].target)
            assert_int_equal(symlink(rows[i].target, path), 0);
        else
            assert_true(scratch_write(path, "data", 4));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, rows[i].name);
        if (sn_folder_owns(folder, path) != rows[i].owned) fail_msg("%s", rows[i].name);
        e = (sn_error){0};
        unlink(scratch_path("copy"));
        if (sn_file_copy(folder, path, scratch_path("copy"), &e) != rows[i].owned)
            fail_msg("%s: %s", rows[i].name, e.message);
        assert_int_equal(sn_file_exists(scratch_path("copy")), rows[i].owned);
    }
    unlink(scratch_path("copy"));
    assert_int_equal(symlink(folder, scratch_path("model")), 0);
    snprintf(path, sizeof path, "%s/blob", scratch_path("model"));
    assert_true(sn_folder_owns(scratch_path("model"), path));
    assert_true(sn_folder_owns("/", "/etc/passwd"));
    assert_false(sn_folder_owns("/tmp", "/etc/passwd"));
    unlink(scratch_path("model"));
    scratch_remove(root);
}

static void unusual_targets(void **state) {
    (void)state;
    sn_error e = {0};
    assert_false(sn_file_save("/dev/full", "x", 1, &e));
    expect_error(&e, SN_ERR_FILE, "/dev/full", "not a regular file");
    e = (sn_error){0};
    assert_false(sn_file_save(scratch_path("no/such/file"), "x", 1, &e));
    expect_error(&e, SN_ERR_FILE, "no/such/file", "No such file");
    e = (sn_error){0};
    assert_false(sn_file_save(scratch_dir, "x", 1, &e));
    expect_error(&e, SN_ERR_FILE, scratch_dir, "not a regular file");

    /* The temporary file of a killed writer is overwritten, that of a living writer is
     * respected. */
    const char *path = scratch_path("file"), *temp = scratch_path(".file.tmp");
    assert_true(scratch_write(temp, "stale and long", 14));
    e = (sn_error){0};
    int fd = open(temp, O_WRONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_false(sn_file_save(path, "new", 3, &e));
    expect_error(&e, SN_ERR_FILE, path, "another process is writing this file");
    close(fd);
    e = (sn_error){0};
    assert_true(sn_file_save(path, "new", 3, &e));
    sn_mapping m;
    assert_true(sn_file_map(path, &m, &e));
    assert_int_equal(m.size, 3);
    assert_memory_equal(m.data, "new", 3);
    sn_file_unmap(&m);
    assert_int_equal(scratch_count(), 1);

    /* A private file stays private. */
    struct stat st;
    assert_int_equal(chmod(path, 0600), 0);
    assert_true(sn_file_save(path, "new", 3, &e));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    /* Discarding leaves the old file and nothing else. */
    sn_file *f = sn_file_create(path, &e);
    assert_non_null(f);
    assert_true(sn_file_write(f, "half", 4, &e));
    sn_file_discard(f);
    assert_int_equal(scratch_count(), 1);
    unlink(path);
}

static void files_that_cannot_be_mapped(void **state) {
    (void)state;
    const char *const paths[][2] = {{scratch_path("none/x"), "No such file"},
                                    {"/tmp", "not a regular file"},
                                    {"/dev/null", "not a regular file"}};
    for (int i = 0; i < 3; i++) {
        sn_error e = {0};
        assert_null(sn_weights_open(paths[i][0], &e));
        expect_error(&e, SN_ERR_FILE, paths[i][0], paths[i][1]);
    }
    sn_error e = {0};
    const char *fifo = scratch_path("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_null(sn_weights_open(fifo, &e));
    expect_error(&e, SN_ERR_FILE, fifo, "not a regular file");
    unlink(fifo);
}

static void folders(void **state) {
    (void)state;
    sn_error e = {0};
    assert_true(sn_folder_make(scratch_path("a/b//c/"), &e));
    assert_true(sn_folder_make(scratch_path("a/b/c"), &e));
    assert_true(sn_file_exists(scratch_path("a/b/c")));
    assert_true(sn_file_save(scratch_path("a/f"), "x", 1, &e));
    assert_false(sn_folder_make(scratch_path("a/f/g"), &e));
    expect_error(&e, SN_ERR_FILE, "a/f", "is not a folder");
    scratch_remove(scratch_path("a"));
}

/* ---- config.json ---- */

static sn_config *parse(const char *text, sn_error *e) {
    return sn_config_parse("config.json", text, strlen(text), e);
}

static void config_values(void **state) {
    (void)state;
    static const char *const kinds[] = {"gelu", "relu", NULL};
    sn_error e = {0};
    sn_config *c =
        parse("{\"n\": 12, \"eps\": 1e-5, \"tie\": true, \"act\": \"relu\", \"no\": null,"
              "\"list\": [1, 2, 3], \"neg\": -7}\n",
              &e);
    assert_non_null(c);
    assert_string_equal(sn_config_name(c), "config.json");
    assert_int_equal(sn_config_int(c, "n", 1, 12), 12);
    assert_int_equal(sn_config_int(c, "neg", -7, 0), -7);
    assert_int_equal(sn_config_int_or(c, "n", 3, 1, 100), 12);
    assert_int_equal(sn_config_int_or(c, "absent", 3, 1, 100), 3);
    assert_int_equal(sn_config_int_or(c, "no", 4, 1, 100), 4);
    assert_true(sn_config_float(c, "eps", 0, 1) == 1e-5);
    assert_true(sn_config_float_or(c, "absent", 0.5, 0, 1) == 0.5);
    assert_true(sn_config_bool(c, "tie"));
    assert_true(sn_config_bool_or(c, "absent", true));
    assert_string_equal(sn_config_string(c, "act"), "relu");
    assert_string_equal(sn_config_string_or(c, "absent", "x"), "x");
    assert_int_equal(sn_config_choice(c, "act", kinds), 1);
    assert_int_equal(sn_config_choice_or(c, "absent", kinds, 0), 0);
    int64_t list[3];
    assert_string_equal(sn_config_unread(c, 0), "list");
    assert_null(sn_config_unread(c, 1));
    assert_int_equal(sn_config_int_list(c, "list", list, 3, 1, 3), 3);
    assert_null(sn_config_unread(c, 0));
    assert_int_equal(list[2], 3);
    assert_int_equal(sn_config_int_list(c, "absent", list, 3, 1, 3), 0);
    assert_int_equal(sn_config_int_list(c, "n", list, 1, 1, 100), 1); /* a bare number */
    assert_int_equal(list[0], sn_config_int(c, "n", 1, 100));
    assert_true(sn_config_has(c, "n"));
    assert_false(sn_config_has(c, "no"));
    assert_true(sn_config_check(c, &e));
    sn_config_free(c);
}

static void config_complaints(void **state) {
    (void)state;
    static const char *const kinds[] = {"gelu", "relu", NULL};
    sn_error e = {0};
    sn_config *c =
        parse("{\"n\": -3, \"f\": 1.5, \"s\": \"x\", \"big\": 1e300, \"list\": [1, 9]}", &e);
    assert_int_equal(sn_config_int(c, "n", 1, 8), 1);
    sn_config_int(c, "f", 1, 8);
    sn_config_int(c, "gone", 1, 8);
    sn_config_float(c, "big", 0, 1);
    sn_config_bool(c, "s");
    sn_config_string(c, "n");
    sn_config_choice(c, "s", kinds);
    int64_t list[2];
    assert_int_equal(sn_config_int_list(c, "list", list, 2, 1, 8), 0);
    sn_config_problem(c, "\"n\" and \"%s\" belong together", "s");
    sn_config_divides(c, "n", 2, "d", 4);
    sn_config_divides(c, "n", -3, "d", 4);
    assert_false(sn_config_check(c, &e));
    static const char *const wanted[] = {
        "config.json: \"n\" is -3; allowed: an integer from 1 to 8",
        "\"f\" is 1.5; allowed: an integer from 1 to 8",
        "\"gone\" is missing; allowed: an integer from 1 to 8",
        "\"big\" is 1e+300; allowed: a number from 0 to 1",
        "\"s\" is \"x\"; allowed: true or false",
        "\"n\" is -3; allowed: a string",
        "\"s\" is \"x\"; allowed: one of \"gelu\", \"relu\"",
        "\"list\" is [1,9]; allowed: at most 2 integers from 1 to 8",
        "\"n\" and \"s\" belong together; \"n\" = -3 does not divide \"d\" = 4"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        expect_error(&e, SN_ERR_FILE, "config.json", wanted[i]);
    sn_config_free(c);
}

/* Each text is rejected at the first wrong byte, and nothing after the text is read: it ends where
 * its memory ends, which the sanitizers check. */
static void json_texts(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "column 1: unexpected end of the text"},
        {"{\"a\":1,", "column 8: a string is expected"},
        {"{\"a\" 1}", "column 6: ':' is expected"},
        {"{\"a\":[1 2]}", "column 9: ',' or ']' is expected"},
        {"{\"a\":1]", "column 7: ',' or '}' is expected"},
        {"{\"a\":01}", "',' or '}' is expected"},
        {"{\"a\":+1}", "a value is expected"},
        {"{\"a\":1.}", "a digit is expected"},
        {"{\"a\":1e999}", "column 6: a number out of range"},
        {"{\"a\":nul}", "a value is expected"},
        {"{\"a\":\"x", "an unterminated string"},
        {"{\"a\":\"\\x\"}", "an unknown escape"},
        {"{\"a\":\"\\", "an unknown escape"},
        {"{\"a\":\"b\\u0000c\"}", "\\u0000 in a string"},
        {"{\"a\":\"\\ud800\"}", "an unpaired surrogate"},
        {"{\"a\":\"\\ud800\\udbff\"}", "an unpaired surrogate"},
        {"{\"a\":\"\\ud800\\ue000\"}", "an unpaired surrogate"},
        {"{\"a\":\"\\udc00\\udc00\"}", "an unpaired surrogate"},
        {"{\"a\":\"\\u12\"}", "four hexadecimal digits"},
        {"{\"a\":\"\n\"}", "a control character"},
        {"{\"a\":1}\n{", "line 2, column 1: text after the value"},
        {"{\"a\":1,\"b\":{\"c\":1,\"\\u0063\":2}}", "duplicate key \"c\""},
        {"[1]", "not a JSON object"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n = strlen(bad[i][0]);
        char *exact = malloc(n + !n);
        memcpy(exact, bad[i][0], n);
        sn_error e = {0};
        assert_null(sn_json_parse("name.json", exact, n, &e));
        expect_error(&e, SN_ERR_FILE, "name.json", bad[i][1]);
        free(exact);
    }
    char deep[2100];
    for (int depth = 999; depth <= 1000; depth++) { /* nesting of arrays in an object */
        int n = snprintf(deep, sizeof deep, "{\"a\":");
        memset(deep + n, '[', (size_t)depth);
        memset(deep + n + depth, ']', (size_t)depth);
        deep[n + 2 * depth] = '}';
        sn_error e = {0};
        cJSON *root = sn_json_parse("deep", deep, (size_t)(n + 2 * depth + 1), &e);
        assert_int_equal(root != NULL, depth == 999);
        cJSON_Delete(root);
    }
    static const char good[] =
        "\xef\xbb\xbf {\"a\": [-0.5e+3, 0, \"\\ud83d\\ude00\"], \"b\": {}} \n";
    sn_error e = {0};
    cJSON *root = sn_json_parse("good", good, sizeof good - 1, &e);
    assert_non_null(root);
    assert_true(root->child->child->valuedouble == -500);
    assert_string_equal(root->child->child->prev->valuestring, "\xf0\x9f\x98\x80");
    cJSON_Delete(root);
}

static int allocations_left;

static void *failing_malloc(size_t size) {
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

/* Whichever allocation fails, the error is out of memory, not a malformed file. */
static void json_without_memory(void **state) {
    (void)state;
    static const char text[] = "{\"a\": [1, \"two\", {\"three\": 3}], \"b\": null}";
    cJSON_Hooks hooks = {failing_malloc, free};
    cJSON *root = NULL;
    int failures = 0;
    cJSON_InitHooks(&hooks);
    for (int n = 0; !root && n < 100; n++, failures++) {
        sn_error e = {0};
        allocations_left = n;
        root = sn_json_parse("name.json", text, sizeof text - 1, &e);
        if (!root) expect_error(&e, SN_ERR_MEMORY, "name.json", "out of memory");
    }
    cJSON_InitHooks(NULL);
    assert_non_null(root);
    assert_true(failures > 8);
    cJSON_Delete(root);
}

static void config_files(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {"{\"a\": 1,\n\"b\": }", "line 2, column 6: a value is expected"},
        {"{} {}", "not valid JSON"},
        {"[1]", "not a JSON object"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_error e = {0};
        assert_null(parse(bad[i][0], &e));
        expect_error(&e, SN_ERR_FILE, "config.json", bad[i][1]);
    }
    sn_error e = {0};
    assert_null(sn_config_open(scratch_path("none/config.json"), &e));
    expect_error(&e, SN_ERR_FILE, "/none/config.json", "No such file");

    e = (sn_error){0};
    sn_config *c = sn_config_new("new");
    sn_config_set_int(c, "n", 1);
    sn_config_set_int(c, "n", (int64_t)1 << 53);
    sn_config_set_float(c, "eps", 1e-5);
    sn_config_set_float(c, "third", 1.0 / 3);
    sn_config_set_bool(c, "tie", false);
    sn_config_set_string(c, "model_type", "llama \"2\"");
    const char *path = scratch_path("config.json");
    assert_true(sn_config_save(c, path, &e));
    sn_config_free(c);
    c = sn_config_open(path, &e);
    assert_non_null(c);
    assert_int_equal(sn_config_int(c, "n", 0, INT64_MAX), (int64_t)1 << 53);
    assert_true(sn_config_float(c, "eps", 0, 1) == 1e-5);
    assert_true(sn_config_float(c, "third", 0, 1) == 1.0 / 3);
    assert_false(sn_config_bool(c, "tie"));
    assert_string_equal(sn_config_string(c, "model_type"), "llama \"2\"");
    assert_true(sn_config_check(c, &e));
    sn_config_free(c);
    unlink(path);
}

static void mutated_configs_never_crash(void **state) {
    (void)state;
    static const char text[] =
        "{\"n\": 12, \"eps\": 1e-5, \"s\": \"a\\u00e4\\n\", \"l\": [1, [2, {\"x\": null}]]}";
    uint64_t seed = 1234567;
    int good = 0;
    for (int i = 0; i < 5000; i++) {
        char copy[sizeof text];
        memcpy(copy, text, sizeof text);
        for (uint64_t k = next_random(&seed) % 3; k; k--)
            copy[next_random(&seed) % (sizeof text - 1)] = (char)next_random(&seed);
        sn_error e = {0};
        char *heap = malloc(sizeof text - 1); /* exact size, for the sanitizer */
        memcpy(heap, copy, sizeof text - 1);
        sn_config *c = sn_config_parse("m.json", heap, sizeof text - 1, &e);
        free(heap);
        if (!c) {
            expect_error(&e, SN_ERR_FILE, "m.json", "JSON");
            continue;
        }
        good++;
        sn_config_int(c, "n", 12, 12);
        sn_config_float(c, "eps", 0, 1);
        sn_config_string(c, "s");
        sn_config_bool(c, "l");
        assert_false(sn_config_check(c, &e));
        sn_config_free(c);
    }
    assert_true(good > 0);
}

/* ---- .npy ---- */

/* Builds a version 1 file: header text padded as NumPy does, then data. */
static size_t make_npy(unsigned char *out, const char *header, const void *data, size_t bytes) {
    size_t n = strlen(header), total = (10 + n + 1 + 63) / 64 * 64;
    memcpy(out, "\x93NUMPY\1\0", 8);
    memset(out + 10, ' ', total - 10);
    memcpy(out + 10, header, n);
    out[8] = (unsigned char)(total - 10), out[9] = (unsigned char)((total - 10) >> 8);
    out[total - 1] = '\n';
    if (bytes) memcpy(out + total, data, bytes);
    return total + bytes;
}

/* Version 2 has four bytes for the size of its header. */
static void npy_of_version_2(void **state) {
    (void)state;
    enum { START = 12, LONG = 70000 };
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
    unsigned char *file = malloc(START + LONG + 12);
    assert_non_null(file);
    const uint32_t size = LONG;
    memcpy(file, "\x93NUMPY\2\0", 8);
    memcpy(file + 8, &size, 4);
    memset(file + START, ' ', LONG);
    memcpy(file + START, text, sizeof text - 1);
    memcpy(file + START + LONG, block, 12);
    sn_npy a;
    sn_error e = {0};
    if (!sn_npy_parse("x.npy", file, START + LONG + 12, &a, &e)) fail_msg("%s", e.message);
    assert_memory_equal(a.data, block, 12);
    sn_npy_free(&a);
    assert_false(sn_npy_parse("x.npy", file, START - 1, &a, &e));
    expect_error(&e, SN_ERR_FILE, "x.npy", "truncated header");
    free(file);
}

static void npy_arrays(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        const char *what; /* NULL: valid */
        int rank;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, NULL, 2},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, NULL, 1},
        {"{'shape': (), 'descr': '<f8', 'fortran_order': False}", 8, NULL, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }", 24, NULL, 1},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 5), }", 0, NULL, 2},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24, "Fortran order", 0},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", 24, "'>f4'", 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", 24, "does not match", 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", 24, "does not match", 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,), }", 4,
         "does not match", 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4,
         "malformed", 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4, "malformed",
         0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, "malformed", 0},
        {"{'descr': '<f4', 'fortran_order': False}", 4, "malformed", 0},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "malformed",
         0},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4, "malformed", 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, "malformed", 0},
        {"", 0, "malformed", 0}};
    unsigned char file[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = make_npy(file, cases[i].header, block, cases[i].bytes);
        sn_npy a;
        sn_error e = {0};
        bool ok = sn_npy_parse("x.npy", file, n, &a, &e);
        if (cases[i].what) {
            assert_false(ok);
            expect_error(&e, SN_ERR_FILE, "x.npy", cases[i].what);
            continue;
        }
        if (!ok) fail_msg("%s", e.message);
        assert_int_equal(a.rank, cases[i].rank);
        assert_int_equal(a.bytes, cases[i].bytes);
        assert_int_equal(a.count * (int64_t)sn_dtype_size(a.dtype), cases[i].bytes);
        if (a.bytes) assert_memory_equal(a.data, block, a.bytes);
        sn_npy_free(&a);
        assert_null(a.data);
    }
}

static void mutated_npy_never_crashes(void **state) {
    (void)state;
    unsigned char whole[256];
    size_t n =
        make_npy(whole, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", block, 24);
    uint64_t seed = 42;
    for (int i = 0; i < 6000; i++) {
        size_t size = i < (int)n ? (size_t)i : n;
        unsigned char *copy = malloc(size + 1);
        memcpy(copy, whole, size);
        if (size == n)
            for (uint64_t k = next_random(&seed) % 3 + 1; k; k--)
                copy[next_random(&seed) % n] = (unsigned char)next_random(&seed);
        unsigned char *exact = realloc(copy, size ? size : 1);
        sn_npy a;
        sn_error e = {0};
        if (sn_npy_parse("m.npy", exact, size, &a, &e)) {
            assert_true(size == n);
            sn_npy_free(&a);
        } else
            expect_error(&e, SN_ERR_FILE, "m.npy", "");
        free(exact);
    }
}

/* ---- model folders ---- */

static void model_folders(void **state) {
    (void)state;
    sn_error e = {0};
    char dir[128];
    snprintf(dir, sizeof dir, "%s", scratch_path("model"));
    sn_config *c = sn_config_new("config");
    sn_config_set_string(c, "model_type", "gpt2");
    assert_true(sn_model_dir_save(dir, c, samples, SAMPLES, &e));
    sn_config_free(c);
    sn_model_dir *m = sn_model_dir_open(dir, &e);
    assert_non_null(m);
    assert_string_equal(sn_config_string(m->config, "model_type"), "gpt2");
    assert_int_equal(sn_weights_count(m->weights), SAMPLES);
    assert_null(sn_model_dir_file(m, "tokenizer.json"));
    char *p = sn_model_dir_file(m, "config.json");
    assert_non_null(p);
    free(p);
    sn_model_dir_close(m);

    /* Another name is accepted if it is the only file. */
    assert_int_equal(rename(scratch_path("model/model.safetensors"),
                            scratch_path("model/model.fp16.safetensors")),
                     0);
    m = sn_model_dir_open(dir, &e);
    assert_non_null(m);
    sn_model_dir_close(m);
    assert_true(sn_weights_save(scratch_path("model/b.safetensors"), samples, 1, NULL, 0, &e));
    assert_null(sn_model_dir_open(dir, &e));
    expect_error(&e, SN_ERR_FILE, dir, "several .safetensors files");
    unlink(scratch_path("model/b.safetensors"));
    unlink(scratch_path("model/model.fp16.safetensors"));
    e = (sn_error){0};
    assert_null(sn_model_dir_open(dir, &e));
    expect_error(&e, SN_ERR_FILE, dir, "no model.safetensors here");

    /* A set of several files. */
    static const char index[] = "{\"weight_map\":{\"odd\":\"m1.safetensors\"}}";
    e = (sn_error){0};
    assert_true(sn_weights_save(scratch_path("model/m1.safetensors"), samples, 1, NULL, 0, &e));
    assert_true(
        scratch_write(scratch_path("model/model.safetensors.index.json"), index, sizeof index - 1));
    m = sn_model_dir_open(dir, &e);
    assert_non_null(m);
    assert_non_null(sn_weights_find(m->weights, "odd"));
    sn_model_dir_close(m);
    c = sn_config_new("config");
    assert_false(sn_model_dir_save(dir, c, samples, SAMPLES, &e));
    expect_error(&e, SN_ERR_FILE, dir, "several files");
    sn_config_free(c);

    unlink(scratch_path("model/config.json"));
    e = (sn_error){0};
    assert_null(sn_model_dir_open(dir, &e));
    expect_error(&e, SN_ERR_FILE, dir, "no config.json here");
    e = (sn_error){0};
    assert_null(sn_model_dir_open(scratch_path("absent"), &e));
    expect_error(&e, SN_ERR_FILE, "absent", "No such file");
    e = (sn_error){0};
    assert_null(sn_model_dir_open(scratch_path("model/m1.safetensors"), &e));
    expect_error(&e, SN_ERR_FILE, "m1.safetensors", "a model is a folder");
    scratch_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decimal_comma),
                                       cmocka_unit_test(links_out_of_a_folder),
                                       cmocka_unit_test(unusual_targets),
                                       cmocka_unit_test(order_of_a_commit),
                                       cmocka_unit_test(unusual_temporaries),
                                       cmocka_unit_test(files_that_cannot_be_mapped),
                                       cmocka_unit_test(folders),
                                       cmocka_unit_test(config_values),
                                       cmocka_unit_test(config_complaints),
                                       cmocka_unit_test(json_texts),
                                       cmocka_unit_test(json_without_memory),
                                       cmocka_unit_test(config_files),
                                       cmocka_unit_test(mutated_configs_never_crash),
                                       cmocka_unit_test(npy_arrays),
                                       cmocka_unit_test(npy_of_version_2),
                                       cmocka_unit_test(mutated_npy_never_crashes),
                                       cmocka_unit_test(model_folders)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
