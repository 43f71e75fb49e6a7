/* Safetensors files: round trips, hostile headers, mutated bytes, sets of files, a full disk. */
#include "runtime/file.h"
#include "runtime/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/support/scratch.h"

static const float block[] = {1, -2, 3.5f, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const int64_t longs[] = {INT64_MIN, -1, INT64_MAX};
static const uint8_t bytes3[] = {1, 0, 1};

static const sn_weight samples[] = {{"odd", SN_BOOL, 1, {3}, bytes3, 3, NULL, NULL},
                                    {"h.0.weight", SN_F32, 2, {4, 4}, block, 64, NULL, NULL},
                                    {"longs", SN_I64, 1, {3}, longs, 24, NULL, NULL},
                                    {"none", SN_F16, 2, {0, 7}, block, 0, NULL, NULL},
                                    {"scalar", SN_F32, 0, {0}, block, 4, NULL, NULL},
                                    {"h.1.weight", SN_BF16, 3, {2, 4, 4}, block, 64, NULL, NULL},
                                    {"näme \"q\" \n", SN_U8, 1, {1}, bytes3, 1, NULL, NULL}};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void safetensors_round_trip(void **state) {
    (void)state;
    sn_error e = {0};
    const sn_meta meta[] = {{"step", "17"}, {"note", "a \"b\""}};
    const char *path = scratch_path("round.safetensors");
    assert_true(sn_weights_save(path, samples, SAMPLES, meta, 2, &e));
    sn_weights *w = sn_weights_open(path, &e);
    assert_non_null(w);
    assert_int_equal(sn_weights_count(w), SAMPLES);
    assert_string_equal(sn_weights_path(w), path);
    for (int i = 0; i < SAMPLES; i++) {
        const sn_weight *t = sn_weights_find(w, samples[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, samples[i].dtype);
        assert_int_equal(t->rank, samples[i].rank);
        assert_memory_equal(t->shape, samples[i].shape, sizeof(int64_t) * (size_t)t->rank);
        assert_int_equal(t->bytes, samples[i].bytes);
        if (t->bytes) assert_memory_equal(t->data, samples[i].data, t->bytes);
        assert_int_equal((uintptr_t)t->data % sn_dtype_size(t->dtype), 0);
        if (t->bytes % 64 == 0) assert_int_equal((uintptr_t)t->data % 64, 0);
    }
    for (size_t i = 1; i < SAMPLES; i++) /* file order */
        assert_true((uintptr_t)sn_weights_at(w, i)->data >=
                    (uintptr_t)sn_weights_at(w, i - 1)->data);
    assert_null(sn_weights_find(w, "absent"));
    assert_string_equal(sn_weights_meta(w, "step"), "17");
    assert_string_equal(sn_weights_meta(w, "note"), "a \"b\"");
    assert_string_equal(sn_weights_meta(w, "format"), "pt");
    assert_null(sn_weights_meta(w, "absent"));
    assert_int_equal(sn_weights_meta_count(w), 3);
    assert_string_equal(sn_weights_meta_at(w, 0).key, "step");
    sn_weights_close(w);
    unlink(path);
}

static void many_tensors_are_found(void **state) {
    (void)state;
    enum { N = 5000 };
    static char names[N][24];
    static sn_weight t[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.w", i);
        t[i] = (sn_weight){names[i], SN_F32, 1, {1 + i % 16}, block, 4 * (size_t)(1 + i % 16),
                           NULL,     NULL};
    }
    sn_error e = {0};
    const char *path = scratch_path("many.safetensors");
    assert_true(sn_weights_save(path, t, N, NULL, 0, &e));
    sn_weights *w = sn_weights_open(path, &e);
    assert_non_null(w);
    for (int i = 0; i < N; i++) {
        const sn_weight *f = sn_weights_find(w, names[i]);
        assert_non_null(f);
        assert_int_equal(f->shape[0], 1 + i % 16);
    }
    sn_weights_close(w);
    unlink(path);
}

static void wrong_tensors_are_not_saved(void **state) {
    (void)state;
    static const struct {
        sn_weight t;
        const char *what;
    } bad[] = {
        {{"__metadata__", SN_F32, 1, {1}, block, 4, NULL, NULL}, "reserved"},
        {{"a", SN_F32, 1, {2}, block, 4, NULL, NULL}, "does not match"},
        {{"a", SN_F32, 2, {-1, 1}, block, 4, NULL, NULL}, "does not match"},
        {{"a", SN_F32, 3, {INT64_MAX, INT64_MAX, 4}, block, 4, NULL, NULL}, "does not match"},
        {{"a", SN_F32, 9, {1}, block, 4, NULL, NULL}, "0 to 8 dimensions"},
        {{"odd", SN_U8, 1, {1}, block, 1, NULL, NULL}, "occurs twice"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_weight two[2] = {samples[0], bad[i].t};
        sn_error e = {0};
        assert_false(sn_weights_save(scratch_path("bad.st"), two, 2, NULL, 0, &e));
        assert_non_null(strstr(e.message, bad[i].what));
        assert_int_equal(scratch_count(), 0);
    }
}

/* Writes header and data to a file and opens it. */
static sn_weights *open_raw(const char *header, size_t data_bytes, uint64_t length, sn_error *e) {
    char file[4096] = {0};
    memcpy(file, &length, 8);
    memcpy(file + 8, header, strlen(header));
    const char *path = scratch_path("hostile.safetensors");
    if (!scratch_write(path, file, 8 + strlen(header) + data_bytes)) return NULL;
    return sn_weights_open(path, e);
}

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void hostile_headers_are_rejected(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *what;
    } cases[] = {
        {"{\"a\":" T("F32", "[2]", 0, 8) "}", 4, "truncated"},
        {"{\"a\":" T("F32", "[1]", 0, 4) "}", 5, "1 bytes at the end belong to no tensor"},
        {"{\"a\":" T("F32", "[2]", 0, 4) "}", 4, "need 8 bytes, but data_offsets give 4"},
        {"{\"a\":" T("F32", "[1]", 4, 8) "}", 8, "bytes before it belong to no tensor"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 2, 6) "}", 6, "overlap"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 0, 4) "}", 4, "overlap"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",\"a\":" T("F32", "[1]", 4, 8) "}", 8,
         "duplicate key \"a\""},
        {"{\"a\":" T("F32", "[1]", 4, 0) "}", 4, "end before they begin"},
        {"{\"a\":" T("F32", "[1]", -4, 0) "}", 4, "not a pair of byte positions"},
        {"{\"a\":" T("F32", "[1]", 0.5, 4.5) "}", 4, "not a pair of byte positions"},
        {"{\"a\":" T("F32", "[1]", 0, 1e300) "}", 4, "not a pair of byte positions"},
        {"{\"a\":" T("F32", "[1]", 0, 9007199254740992) "}", 4, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "not a pair"},
        {"{\"a\":" T("F32", "[4294967296,4294967296,1]", 0, 0) "}", 0, "shape is too large"},
        {"{\"a\":" T("F32", "[4611686018427387904]", 0, 0) "}", 0, "not a valid size"},
        {"{\"a\":" T("F32", "[2305843009213693952,2]", 0, 0) "}", 0, "not a valid size"},
        {"{\"a\":" T("F64", "[1073741824,2147483648]", 0, 0) "}", 0, "shape is too large"},
        {"{\"a\":" T("F32", "[-1]", 0, 4) "}", 4, "not a valid size"},
        {"{\"a\":" T("F32", "[\"1\"]", 0, 4) "}", 4, "not a valid size"},
        {"{\"a\":" T("F32", "{}", 0, 4) "}", 4, "shape is not an array"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "more than 8 dimensions"},
        {"{\"a\":" T("F12", "[1]", 0, 4) "}", 4, "dtype \"F12\" is not supported; allowed: F32"},
        {"{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "dtype \"f32\" is not supported"},
        {"{\"a\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype is not a string"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "lacks dtype, shape or data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "duplicate key \"shape\""},
        {"{\"a\":[1]}", 0, "not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ is not an object of strings"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate key \"__metadata__\""},
        {"[]", 0, "not valid JSON"},
        {"{\"a\":", 0, "not valid JSON"},
        {"{} x", 0, "not valid JSON"},
        {" {}", 0, "not valid JSON"},
        {"", 0, "not valid JSON"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_error e = {0};
        assert_null(open_raw(cases[i].header, cases[i].data, strlen(cases[i].header), &e));
        expect_error(&e, SN_ERR_FILE, "hostile.safetensors", cases[i].what);
    }
}

static void wrong_header_lengths_are_rejected(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 1000, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        sn_error e = {0};
        assert_null(open_raw("{}  ", 0, lengths[i], &e));
        expect_error(&e, SN_ERR_FILE, "hostile.safetensors", i ? "header length" : "belong to no");
    }
    for (uint64_t n = 5; n <= 13; n++) { /* of 12 bytes */
        sn_error e = {0};
        assert_null(open_raw("{}  ", 0, n, &e));
        expect_error(&e, SN_ERR_FILE, "hostile.safetensors", "header length");
    }
    sn_error e = {0};
    assert_true(scratch_write(scratch_path("hostile.safetensors"), "1234567", 7));
    assert_null(sn_weights_open(scratch_path("hostile.safetensors"), &e));
    expect_error(&e, SN_ERR_FILE, "hostile.safetensors", "too short");

    /* A header over the limit, in a sparse file of sufficient size. */
    const char *path = scratch_path("hostile.safetensors");
    uint64_t huge = (16u << 20) + 1;
    assert_true(scratch_write(path, &huge, 8));
    assert_int_equal(truncate(path, 20 << 20), 0);
    e = (sn_error){0};
    assert_null(sn_weights_open(path, &e));
    expect_error(&e, SN_ERR_FILE, path, "over the limit");
    unlink(path);
}

static void good_corner_cases_open(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data, count;
    } cases[] = {{"{}", 0, 0},
                 {"{} \n\t ", 0, 0},
                 {"{\"__metadata__\":{}}", 0, 0},
                 {"{\"a\":" T("F32", "[]", 0, 4) "}", 4, 1},
                 {"{\"b\":" T("F32", "[1]", 4, 8) ",\"a\":" T("F32", "[1]", 0, 4) "}", 8, 2},
                 {"{\"b\":" T("F32", "[0,9007199254740992]", 0, 0) "}", 0, 1},
                 {"{\"b\":" T("F32", "[0]", 4, 4) ",\"a\":" T("F32", "[1]", 0, 4) "}", 4, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_error e = {0};
        sn_weights *w = open_raw(cases[i].header, cases[i].data, strlen(cases[i].header), &e);
        if (!w) fail_msg("%s", e.message);
        assert_int_equal(sn_weights_count(w), cases[i].count);
        sn_weights_close(w);
    }
    unlink(scratch_path("hostile.safetensors"));
}

/* A header of odd length misaligns all tensors: their data stays in the file's pages. */
static void misaligned_tensors_are_usable(void **state) {
    (void)state;
    static const char head[] =
        "{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F64", "[1]", 8, 16) ",\"c\":" T(
            "BF16", "[1]", 16, 18) ",\"d\":" T("U8", "[1]", 18, 19) "}";
    static const unsigned char data[19] = {0, 0, 0xc0, 0x3f, 0, 0,    0,    0xc0, 0, 0,
                                           0, 0, 0,    0,    8, 0x40, 0x80, 0x40, 42};
    for (size_t pad = 0; pad < 8; pad++) {
        char file[256];
        uint64_t n = sizeof head - 1 + pad;
        memcpy(file, &n, 8);
        memset(file + 8, ' ', n);
        memcpy(file + 8, head, sizeof head - 1);
        memcpy(file + 8 + n, data, sizeof data);
        const char *path = scratch_path("misaligned.safetensors");
        assert_true(scratch_write(path, file, 8 + n + sizeof data));
        sn_error e = {0};
        sn_weights *w = sn_weights_open(path, &e);
        assert_non_null(w);
        float a[2], b, c;
        assert_true(sn_weight_to_f32(sn_weights_find(w, "a"), a) && a[0] == 1.5f && a[1] == -2);
        assert_true(sn_weight_to_f32(sn_weights_find(w, "b"), &b) && b == 3);
        assert_true(sn_weight_to_f32(sn_weights_find(w, "c"), &c) && c == 4);
        const uint8_t *d = sn_weights_find(w, "d")->data;
        assert_int_equal(*d, 42);
        assert_ptr_equal(sn_weights_find(w, "a")->data, d - 18);
        sn_weights_close(w);
        unlink(path);
    }
}

/* Opens a mutated copy and reads every byte that it exposes, for the sanitizers. */
static size_t open_and_read(const char *path, const unsigned char *file, size_t bytes) {
    size_t sum = 0;
    sn_error e = {0};
    assert_true(scratch_write(path, file, bytes));
    sn_weights *w = sn_weights_open(path, &e);
    if (!w) {
        assert_int_equal(e.code, SN_ERR_FILE);
        assert_non_null(strstr(e.message, path));
        return 0;
    }
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        assert_ptr_equal(sn_weights_find(w, t->name), t);
        for (size_t k = 0; k < t->bytes; k++) sum += ((const unsigned char *)t->data)[k];
    }
    sn_weights_close(w);
    return sum + 1;
}

static void mutated_files_never_crash(void **state) {
    (void)state;
    sn_error e = {0};
    const char *path = scratch_path("mutant.safetensors");
    assert_true(sn_weights_save(path, samples, SAMPLES, NULL, 0, &e));
    sn_mapping m;
    assert_true(sn_file_map(path, &m, &e));
    assert_true(m.size < 2048);
    unsigned char whole[2048], copy[2048];
    size_t n = m.size, opened = 0;
    memcpy(whole, m.data, n);
    sn_file_unmap(&m);
    for (size_t cut = 0; cut < n; cut += cut < 16 ? 1 : 13) /* every truncation is detected */
        assert_int_equal(open_and_read(path, whole, cut), 0);
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 4000; i++) {
        memcpy(copy, whole, n);
        for (uint64_t k = next_random(&seed) % 3 + 1; k; k--)
            copy[next_random(&seed) % n] = (unsigned char)next_random(&seed);
        opened += open_and_read(path, copy, n) != 0;
    }
    /* changed data is accepted, changed structure is not */
    assert_true(opened > 0 && opened < 4000);
    unlink(path);
}

static void conversions_to_f32(void **state) {
    (void)state;
    const double wide[] = {1, -0.5};
    const uint16_t half[] = {sn_f32_to_f16(1), sn_f32_to_f16(-0.5f)};
    const uint16_t brain[] = {sn_f32_to_bf16(1), sn_f32_to_bf16(-0.5f)};
    const float plain[] = {1, -0.5f};
    const sn_weight t[] = {{"a", SN_F64, 1, {2}, wide, 16, NULL, NULL},
                           {"b", SN_F16, 1, {2}, half, 4, NULL, NULL},
                           {"c", SN_BF16, 1, {2}, brain, 4, NULL, NULL},
                           {"d", SN_F32, 1, {2}, plain, 8, NULL, NULL}};
    for (int i = 0; i < 4; i++) {
        float out[2] = {0};
        assert_true(sn_weight_to_f32(&t[i], out));
        assert_true(out[0] == 1 && out[1] == -0.5f);
    }
    float out[3];
    assert_false(sn_weight_to_f32(&samples[0], out));
}

/* Two blocks a row, and a byte for each: the tensor has an element for each half of a byte. */
static void blocks_with_scales_apart(void **state) {
    (void)state;
    enum { ROWS = 3, BLOCKS = 2, K = 32 * BLOCKS };
    static const float fp4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint8_t bytes[ROWS * K / 2], scales[ROWS * BLOCKS];
    float x[ROWS * K];
    for (int i = 0; i < ROWS * K / 2; i++) bytes[i] = (uint8_t)(37 * i + 11);
    for (int i = 0; i < ROWS * BLOCKS; i++) scales[i] = (uint8_t)(125 + i);
    const sn_weight parts[] = {
        {"w_blocks", SN_U8, 3, {ROWS, BLOCKS, 16}, bytes, sizeof bytes, NULL, NULL},
        {"w_scales", SN_U8, 2, {ROWS, BLOCKS}, scales, sizeof scales, NULL, NULL}};
    sn_error e = {0};
    const char *path = scratch_path("blocks.safetensors");
    assert_true(sn_weights_save(path, parts, 2, NULL, 0, &e));
    sn_weights *w = sn_weights_open(path, &e);
    if (!w) fail_msg("%s", e.message);
    assert_int_equal(sn_weights_count(w), 1);
    const sn_weight *t = sn_weights_find(w, "w_blocks");
    assert_non_null(t);
    assert_true(t->dtype == SN_F32 && t->rank == 2 && t->shape[0] == ROWS && t->shape[1] == K);
    assert_true(sn_weight_to_f32(t, x));
    for (int i = 0; i < ROWS * K; i++) {
        const int q = bytes[i / 2] >> i % 2 * 4;
        assert_true(x[i] == ldexpf(q & 8 ? -fp4[q & 7] : fp4[q & 7], scales[i / 32] - 127));
    }
    sn_weights_close(w);
    unlink(path);
}

static void all_missing_tensors_in_one_error(void **state) {
    (void)state;
    sn_error e = {0};
    const char *path = scratch_path("need.safetensors");
    assert_true(sn_weights_save(path, samples, SAMPLES, NULL, 0, &e));
    sn_weights *w = sn_weights_open(path, &e);
    sn_problems p = {0};
    const int64_t any[] = {4, -1}, wrong[] = {4, 5}, one[] = {16};
    assert_non_null(sn_weights_need(w, "h.0.weight", 2, any, &p));
    assert_true(sn_problems_check(&p, path, SN_ERR_FILE, &e));
    assert_null(sn_weights_need(w, "h.7.weight", 2, any, &p));
    assert_null(sn_weights_need(w, "h.0.weight", 2, wrong, &p));
    assert_null(sn_weights_need(w, "h.0.weight", 1, one, &p));
    assert_false(sn_problems_check(&p, path, SN_ERR_FILE, &e));
    expect_error(&e, SN_ERR_FILE, path, "tensor \"h.7.weight\" is missing");
    expect_error(&e, SN_ERR_FILE, path, "\"h.0.weight\" has shape [4, 4], expected [4, 5]");
    expect_error(&e, SN_ERR_FILE, path, "expected [16]");
    for (int i = 0; i < 1000; i++) sn_weights_need(w, "another.tensor", 1, one, &p);
    e = (sn_error){0};
    assert_false(sn_problems_check(&p, path, SN_ERR_FILE, &e));
    assert_non_null(strstr(e.message, "more"));
    sn_weights_close(w);
    unlink(path);
}

static void sharded_sets(void **state) {
    (void)state;
    sn_error e = {0};
    assert_true(sn_weights_save(scratch_path("s1.safetensors"), samples, 2, NULL, 0, &e));
    assert_true(sn_weights_save(scratch_path("s2.safetensors"), samples + 2, 3, NULL, 0, &e));
    static const struct {
        const char *index, *what;
    } cases[] = {{"{\"weight_map\":{\"odd\":\"s1.safetensors\",\"h.0.weight\":\"s1.safetensors\","
                  "\"longs\":\"s2.safetensors\"}}",
                  NULL},
                 {"{\"weight_map\":{\"odd\":\"s1.safetensors\",\"gone\":\"s2.safetensors\"}}",
                  "\"gone\": is in none of the files"},
                 {"{\"weight_map\":{\"odd\":\"../s1.safetensors\"}}", "must not contain folders"},
                 {"{\"weight_map\":{\"odd\":7}}", "must not contain folders"},
                 {"{\"weight_map\":{\"odd\":\"s3.safetensors\"}}", "s3.safetensors: cannot open"},
                 {"{\"weight_map\":[]}", "weight_map"},
                 {"{", "not valid JSON"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path("model.safetensors.index.json");
        assert_true(scratch_write(path, cases[i].index, strlen(cases[i].index)));
        e = (sn_error){0};
        sn_weights *w = sn_weights_open(path, &e);
        if (cases[i].what) {
            assert_null(w);
            expect_error(&e, SN_ERR_FILE, scratch_dir, cases[i].what);
            continue;
        }
        assert_non_null(w);
        assert_int_equal(sn_weights_count(w), 5);
        assert_memory_equal(sn_weights_find(w, "h.0.weight")->data, block, 64);
        assert_memory_equal(sn_weights_find(w, "longs")->data, longs, 24);
        sn_weights_close(w);
    }
    unlink(scratch_path("s1.safetensors"));
    unlink(scratch_path("s2.safetensors"));
    unlink(scratch_path("model.safetensors.index.json"));
}

/* In a child with a file size limit (to simulate a full disk): saving fails with a message, keeps
 * the old file and leaves nothing else. */
static void full_disk_keeps_the_old_file(void **state) {
    (void)state;
    sn_error e = {0};
    static float big[65536];
    const sn_weight large = {"big", SN_F32, 1, {65536}, big, sizeof big, NULL, NULL};
    const char *path = scratch_path("kept.safetensors");
    assert_true(sn_weights_save(path, samples, SAMPLES, NULL, 0, &e));
    for (rlim_t limit = 16; limit < 300000; limit = limit * 5 + 1) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit r = {limit, limit};
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &r);
            bool saved = sn_weights_save(path, &large, 1, NULL, 0, &e);
            _exit(!saved && e.code == SN_ERR_FILE && strstr(e.message, path) &&
                          strstr(e.message, "write failed: File too large")
                      ? 0
                      : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == (limit < sizeof big ? 0 : 1));
        assert_int_equal(scratch_count(), 1);
        sn_weights *w = sn_weights_open(path, &e);
        assert_non_null(w);
        assert_int_equal(sn_weights_count(w), limit < sizeof big ? SAMPLES : 1);
        sn_weights_close(w);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(safetensors_round_trip),
                                       cmocka_unit_test(many_tensors_are_found),
                                       cmocka_unit_test(wrong_tensors_are_not_saved),
                                       cmocka_unit_test(hostile_headers_are_rejected),
                                       cmocka_unit_test(wrong_header_lengths_are_rejected),
                                       cmocka_unit_test(good_corner_cases_open),
                                       cmocka_unit_test(misaligned_tensors_are_usable),
                                       cmocka_unit_test(mutated_files_never_crash),
                                       cmocka_unit_test(conversions_to_f32),
                                       cmocka_unit_test(blocks_with_scales_apart),
                                       cmocka_unit_test(all_missing_tensors_in_one_error),
                                       cmocka_unit_test(sharded_sets),
                                       cmocka_unit_test(full_disk_keeps_the_old_file)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
