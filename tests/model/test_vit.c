/* The vision transformer: the shipped digits model against its reference logits, 858 of 1000 right
 * at every level; both norm orders and both poolings against the evaluator; gradients; the image
 * files; images that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "runtime/npy.h"
#include "model/sample.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"
#include "model/import/idx.h"
#include "model/open.h"

#include <math.h>

#define MODEL SN_SOURCE_DIR "/examples/models/mnist-vit/mnist_vit.npz"
#define DATA SN_SOURCE_DIR "/examples/data/mnist-1000-"
#define REFERENCE SN_SOURCE_DIR "/tests/data/reference/mnist-vit/logits_1000.npy"

enum { IMAGES = 1000, SIDE = 28, CLASSES = 10, BATCH = 250 };

static void digits(void **state) {
    (void)state;
    static const int levels[] = {0, 4};
    static float pixels[BATCH * SIDE * SIDE], logits[BATCH][CLASSES];
    sn_error err = {0};
    sn_idx x, y;
    sn_npy want;
    need(idx_open(DATA "images.idx3-ubyte", &x, &err), &err);
    need(idx_open(DATA "labels.idx1-ubyte", &y, &err), &err);
    need(sn_npy_open(REFERENCE, &want, &err), &err);
    assert_int_equal(x.shape[0], IMAGES);
    for (int l = 0; l < 2; l++) {
        open_options o = {.path = MODEL,
                          .entries = SN_FORWARD,
                          .any_model = true,
                          .needs = "forward",
                          .compile = sn_options_default()};
        o.compile.level = levels[l];
        open_model *m = lm_open(&o, &err);
        need(m != NULL, &err);
        int right = 0;
        for (int at = 0; at < IMAGES; at += BATCH) {
            const unsigned char *bytes = x.data + (size_t)at * SIDE * SIDE;
            for (int i = 0; i < BATCH * SIDE * SIDE; i++) pixels[i] = (float)bytes[i] / 255;
            sn_arg_binding in = SN_BIND("pixels", SN_F32, pixels, BATCH, 1, SIDE, SIDE);
            sn_arg_binding out = SN_BIND("logits", SN_F32, logits, BATCH, CLASSES);
            need(sn_run(m->session, "forward", &in, 1, &out, 1, &err), &err);
            for (int i = 0; i < BATCH; i++) {
                const float *row = (const float *)want.data + (at + i) * CLASSES;
                for (int c = 0; c < CLASSES; c++) assert_true(fabsf(logits[i][c] - row[c]) < 1e-4f);
                right += sn_sample_largest(logits[i], CLASSES) == y.data[at + i];
            }
        }
        assert_int_equal(right, 858);
        model_close(m);
    }
    sn_npy_free(&want);
    idx_close(&x);
    idx_close(&y);
}

#define VIT(more)                                                                                  \
    "{\"model_type\": \"vit\", \"image_size\": 8, \"patch_size\": 4, \"num_channels\": 3, "        \
    "\"num_labels\": 5, \"hidden_size\": 12, \"intermediate_size\": 20, \"num_hidden_layers\": "   \
    "2, "                                                                                          \
    "\"num_attention_heads\": 3" more "}"

static void both_forms(void **state) {
    (void)state;
    static const char *const texts[] = {
        VIT(""), VIT(", \"norm_order\": \"post\", \"use_cls_token\": false")};
    enum { B = 3, PIXELS = 3 * 8 * 8 };
    for (int i = 0; i < 2; i++) {
        static float pixels[B * PIXELS];
        int32_t targets[B] = {4, 0, 2};
        model_case c;
        fill_floats(pixels, B * PIXELS, 5);
        case_open(&c, texts[i], SN_LOSS);
        case_size(&c, "B", B);
        sn_arg_binding in[] = {SN_BIND("pixels", SN_F32, pixels, B, 3, 8, 8),
                               SN_BIND("targets", SN_I32, targets, B)};
        case_check(&c, i ? 4 : 1, "loss", "loss", in, 2, B);
        if (i == 0) case_check_grad(&c, "loss", "loss", in, 2);
        case_close(&c);
    }
}

/* Patches in raster order, each row by row. */
static void patches(void **state) {
    (void)state;
    float image[2 * 4 * 6], want[2 * 4 * 6];
    int n = 0;
    for (int r = 0; r < 2; r++)
        for (int q = 0; q < 3; q++)
            for (int ch = 0; ch < 2; ch++)
                for (int y = 0; y < 2; y++)
                    for (int x = 0; x < 2; x++)
                        want[n++] = (float)(ch * 24 + (2 * r + y) * 6 + 2 * q + x);
    for (int i = 0; i < 48; i++) image[i] = (float)i;
    sn_error err = {0};
    sn_module *m = sn_module_new("patches");
    sn_entry_begin(m, "cut");
    sn_output("y", sn_image_patches(sn_input(m, "x", SN_F32, 1, 2, 4, 6), 2));
    sn_program *p = sn_compile(m, NULL, &err);
    need(p != NULL, &err);
    sn_session *s = sn_session_new(p, NULL, &err);
    need(s != NULL, &err);
    float got[48];
    sn_arg_binding in = SN_BIND("x", SN_F32, image, 1, 2, 4, 6),
                   out = SN_BIND("y", SN_F32, got, 1, 6, 2, 2, 2);
    need(sn_run(s, "cut", &in, 1, &out, 1, &err), &err);
    assert_memory_equal(got, want, sizeof want);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void wrong_sizes(void **state) {
    (void)state;
    model_case c;
    sn_program *p;
    sn_error err = {0};
    float pixels[3 * 81] = {0}, logits[5];
    case_open(&c, VIT(""), SN_FORWARD);
    sn_session *s = case_compile(&c, 4, NULL, &p);
    sn_arg_binding in = SN_BIND("pixels", SN_F32, pixels, 1, 3, 9, 9),
                   out = SN_BIND("logits", SN_F32, logits, 1, 5);
    assert_false(sn_run(s, "forward", &in, 1, &out, 1, &err));
    assert_non_null(strstr(err.message, "pixels"));
    sn_session_free(s);
    sn_program_free(p);
    case_close(&c);
}

static void refuse_file(const char *bytes, size_t n, const char *why) {
    sn_error err = {0};
    sn_idx x;
    const char *path = scratch_path("x.idx");
    assert_true(scratch_write(path, bytes, n));
    assert_false(idx_open(path, &x, &err));
    if (!strstr(err.message, why)) fail_msg("wanted '%s' in: %s", why, err.message);
}

static void wrong_files(void **state) {
    (void)state;
    refuse_file("", 0, "not an IDX file");
    refuse_file("\x1f\x8b\0\0", 4, "gunzip");
    refuse_file("\0\0\x0d\1\0\0\0\1x", 9, "element type u8");
    refuse_file("\0\0\x08\1\0\0\0\2x", 9, "its length");
    refuse_file("\0\0\x08\1\0\0\0\1xy", 10, "its length");
    refuse_file("\0\0\x08\3\0\0\0\1", 8, "truncated");
    refuse_file("\0\0\x08\2\xff\xff\xff\xff\xff\xff\xff\xff", 12, "truncated");
    refuse_file("\0\0\x08\0", 4, "dimensions");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(digits), cmocka_unit_test(both_forms),
                                       cmocka_unit_test(patches), cmocka_unit_test(wrong_sizes),
                                       cmocka_unit_test(wrong_files)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
