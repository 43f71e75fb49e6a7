/* Pictures: PNG and JPEG files through the steps of preprocessor_config.json, compared with Pillow
 * and NumPy (tests/data/pictures); orientations; files and configs that do not fit. */
#include "model/media/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/model_case.h"
#include "tests/support/scratch.h"
#include "tests/support/text.h"

#include <cjson/cJSON.h>
#include <math.h>

#define FOLDER SN_SOURCE_DIR "/tests/data/pictures/"

static sn_config *parse(const char *text) {
    sn_error err = {0};
    sn_config *c = sn_config_parse("preprocessor_config.json", text, strlen(text), &err);
    need(c, &err);
    return c;
}

static void check_case(const cJSON *item) {
    sn_error err = {0};
    const char *file = cJSON_GetObjectItem(item, "file")->valuestring;
    const cJSON *want = cJSON_GetObjectItem(item, "pixels");
    char path[600], *text = cJSON_Print(cJSON_GetObjectItem(item, "config"));
    int channels = cJSON_GetObjectItem(item, "channels")->valueint, n = cJSON_GetArraySize(want);
    int side = (int)lround(sqrt(n / channels));
    sn_config *c = parse(text);
    picture_rules r = picture_rules_read(c);
    need(sn_config_check(c, &err), &err);
    assert_true(picture_rules_side(&r) == side || r.shortest);
    float *got = malloc(sizeof *got * (size_t)n);
    assert_non_null(got);
    snprintf(path, sizeof path, FOLDER "%s", file);
    need(picture_pixels(path, &r, channels, side, got, &err), &err);
    int i = 0;
    const cJSON *x;
    cJSON_ArrayForEach(x, want) {
        if (!(fabs(got[i] - x->valuedouble) <= 1e-5))
            fail_msg("%s, %s: pixel %d is %g, not %g", file, text, i, got[i], x->valuedouble);
        i++;
    }
    free(got);
    cJSON_free(text);
    sn_config_free(c);
}

static void against_pillow(void **state) {
    (void)state;
    char *text = file_text(FOLDER "pictures.json");
    cJSON *all = cJSON_Parse(text);
    const cJSON *item;
    assert_true(cJSON_GetArraySize(all) >= 15);
    cJSON_ArrayForEach(item, all) check_case(item);
    cJSON_Delete(all);
    free(text);
}

/* The corners of 3 x 2 pixels, 1 to 6 in raster order, after each orientation [EXIF 2.3, 4.6.4]. */
static void orientations(void **state) {
    (void)state;
    static const char *const want[] = {"123456", "321654", "654321", "456123",
                                       "142536", "415263", "635241", "362514"};
    for (int o = 1; o <= 8; o++) {
        picture p;
        sn_error err = {0};
        need(picture_new(&p, 3, 2, 1, &err), &err);
        for (int i = 0; i < 6; i++) p.data[i] = (unsigned char)('1' + i);
        need(picture_orient(&p, o, &err), &err);
        assert_int_equal(p.width, o > 4 ? 2 : 3);
        assert_memory_equal(p.data, want[o - 1], 6);
        picture_free(&p);
    }
}

static void refuse_file(const char *bytes, size_t n, const char *why) {
    sn_error err = {0};
    picture p;
    const char *path = scratch_path("x");
    assert_true(scratch_write(path, bytes, n));
    assert_false(picture_read(path, 3, &p, &err));
    assert_null(p.data);
    expect_error(&err, SN_ERR_FILE, path, why);
}

/* Every prefix of a file is an error, and so is a byte changed anywhere or the result a picture. */
static void damaged(void **state) {
    (void)state;
    static const char *const names[] = {"small.png", "palette.png", "gray.jpg"};
    for (int k = 0; k < 3; k++) {
        sn_error err = {0};
        sn_mapping m;
        char path[600];
        snprintf(path, sizeof path, FOLDER "%s", names[k]);
        need(sn_file_map(path, &m, &err), &err);
        char *copy = malloc(m.size);
        assert_non_null(copy);
        memcpy(copy, m.data, m.size);
        for (size_t n = 8; n < m.size - (k == 2 ? 2 : 12); n += 1 + n / 16)
            refuse_file(copy, n, ":");
        for (size_t i = 2; i < m.size; i += 1 + i / 32) {
            picture p;
            copy[i] = (char)(copy[i] ^ 0x41);
            assert_true(scratch_write(scratch_path("y"), copy, m.size));
            if (picture_read(scratch_path("y"), 3, &p, &err)) picture_free(&p);
            copy[i] = (char)(copy[i] ^ 0x41);
        }
        free(copy);
        sn_file_unmap(&m);
    }
    refuse_file("GIF89a", 6, "neither a PNG nor a JPEG");
    refuse_file("", 0, "neither");
}

static void wrong_configs(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"{\"image_processor_type\": \"ConvNextImageProcessor\"}", "ConvNext"},
        {"{\"size\": {\"longest_edge\": 4}}", "longest_edge"},
        {"{\"size\": {\"height\": 4}}", "width"},
        {"{\"size\": 0}", "size"},
        {"{\"resample\": 0}", "resample"},
        {"{\"image_std\": [1, 0, 1]}", "image_std"},
        {"{\"image_mean\": [1, 0]}", "image_mean"},
        {"{\"do_pad\": true}", "do_pad"},
        {"{\"do_sharpen\": true}", "do_sharpen"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_error err = {0};
        sn_config *c = parse(rows[i][0]);
        picture_rules_read(c);
        assert_false(sn_config_check(c, &err));
        if (!strstr(err.message, rows[i][1])) fail_msg("%s: %s", rows[i][0], err.message);
        sn_config_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_pillow),
                                       cmocka_unit_test(orientations), cmocka_unit_test(damaged),
                                       cmocka_unit_test(wrong_configs)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
