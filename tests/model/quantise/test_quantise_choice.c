/* What `sinter quantize` makes: matrices of 4 bits, the choice of those that keep more bits, and the folder. */
#include "model/quantise/choose.h"
#include "model/quantise/compensate.h"
#include "model/quantise/folder.h"
#include "model/quantise/gptq.h"
#include "model/quantise/moments.h"
#include "model/quantise/quantise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/scratch.h"
#include "tests/model/quantise/tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounding whole models ---- */

#define DAMPING 0.05

/* The original, as [n, k]. The caller frees it. */
static float *original_of(const subject *s, const subject_matrix *w) {
    const subject_param *p = &s->param[w->param];
    float *x = malloc(sizeof *x * (size_t)p->count);
    assert_non_null(x);
    for (int64_t i = 0; i < p->count; i++)
        x[i] = p->original[w->swapped ? i % w->k * w->n + i / w->k : i];
    return x;
}

/* The matrix in 4 bits, and the line with its errors; h: the Gram matrix of its inputs, NULL: of a table. */
static void check_rounded(const tiny *t, const subject_matrix *w, const double *h) {
    const subject_param *p = &t->s.param[w->param];
    const size_t square = sizeof(double) * (size_t)(w->k * w->k);
    sn_error err = {0};
    char line[256];
    double *u = NULL;
    float *got = subject_matrix_get(&t->s, w), *before = original_of(&t->s, w),
          *plain = original_of(&t->s, w), *want = original_of(&t->s, w);
    gptq_plain(plain, w->n, w->k);
    if (h) {
        u = malloc(square);
        memcpy(u, h, square);
        need(gptq_factor(u, w->k, DAMPING, &err), &err);
    }
    need(gptq_round(want, w->n, w->k, u, &err), &err);
    assert_memory_equal(got, want, sizeof *want * (size_t)p->count);
    for (int64_t i = 0; i < p->count; i++) plain[i] -= before[i], got[i] -= before[i];
    if (h)
        snprintf(line, sizeof line, "  %-52s int4   error %6.2f %% -> %6.2f %%\n", p->name,
                 100 * gptq_error(before, plain, w->n, w->k, h),
                 100 * gptq_error(before, got, w->n, w->k, h));
    else
        snprintf(line, sizeof line, "  %-52s int4   table\n", p->name);
    if (!strstr(t->lines, line)) fail_msg("%s is not a line of\n%s", line, t->lines);
    free(got), free(before), free(plain), free(want), free(u);
}

/* Every matrix and table in 4 bits: tables by themselves, then each matrix for the inputs that the rounded
 * ones before it make. */
static void compensation(void **state) {
    (void)state;
    static tiny t;
    sn_error err = {0};
    quantised out;
    double loss;
    const quantise_options o = {.weights = "int4",
                                .max_loss = 1e9,
                                .quick = true,
                                .smooth = true, /* has no effect */
                                .compensate = true,
                                .damping = DAMPING};
    tiny_open(&t, scratch_dir, GPT2);
    need(quantise(&t.s, &o, &t.progress, &out, &loss, &err), &err);
    assert_null(strstr(t.lines, "smooth"));
    assert_null(strstr(t.lines, "alone"));
    assert_int_equal(out.n_keep, 0);
    assert_string_equal(out.weights, "int4");
    for (int m = 0; m < t.s.n_matrix; m++) {
        const subject_matrix *w = &t.s.matrix[m];
        double *h = w->table ? NULL : moments_gram(&t.s, w->product, &err);
        need(w->table || h, &err);
        check_rounded(&t, w, h);
        free(h);
    }
    quantised_free(&out);
    tiny_close(&t);
}

/* ---- what keeps more bits ---- */

typedef struct one {
    const char *label;
    int param[4], n;
    double loss;
} one;

/* The items of the subject: tables, then products. */
static int list_items(const subject *s, one *list) {
    int n = 0;
    for (int i = 0; i < s->n_matrix; i++)
        if (s->matrix[i].product < 0)
            list[n++] = (one){s->param[s->matrix[i].param].name, {s->matrix[i].param}, 1, 0};
    for (int i = 0; i < s->n_product; i++) {
        const subject_product *p = &s->product[i];
        one *x = &list[n++];
        *x = (one){.label = p->label, .n = p->n_matrix};
        for (int j = 0; j < x->n; j++) x->param[j] = s->matrix[p->matrix[j]].param;
    }
    return n;
}

/* The loss with items from .. to - 1, or all others, kept as `wider`, and original. */
static double loss_with(tiny *t, const one *list, int n, int from, int to, bool others,
                        const char *weights, const char *wider) {
    subject *s = &t->s;
    sn_error err = {0};
    subject_session x;
    sn_keep keep[32];
    bool *changed = calloc((size_t)s->n_param, sizeof *changed);
    sn_options o = s->compile;
    o.weights = weights;
    o.compute = strcmp(weights, "int8") ? NULL : "int8";
    o.keep = keep;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < list[i].n; j++)
            if ((i >= from && i < to) != others)
                keep[o.n_keep++] = (sn_keep){s->param[list[i].param[j]].name, wider, true};
            else
                changed[list[i].param[j]] = true;
    double loss = 0;
    need(subject_session_open(s, &x, &o, true, changed, &err), &err);
    need(subject_measure(s, &x, &loss, &err), &err);
    subject_session_close(&x);
    free(changed);
    return loss;
}

static int by_loss(const void *a, const void *b) {
    double x = ((const one *)a)->loss, y = ((const one *)b)->loss;
    return (x < y) - (x > y);
}

/* The fewest items keep more bits so that the loss is small enough, those that cost the most alone. */
static void check_choice(tiny *t, const char *weights, double max_loss, int least, int most) {
    const char *wider = strcmp(weights, "int4") ? "bf16" : "int8";
    subject *s = &t->s;
    sn_error err = {0};
    one list[32];
    double loss;
    char line[256];
    quantised out = {0};
    int n = list_items(s, list), kept = 0, entries = 0;
    for (int i = 0; i < n; i++)
        list[i].loss = loss_with(t, list, n, i, i + 1, true, weights, "f32");
    const choose_options o = {weights, strcmp(weights, "int8") ? NULL : "int8", max_loss, false};
    *t->lines = 0;
    need(choose_bits(s, &o, &t->progress, &out, &loss, &err), &err);
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "  %-52s alone  1 - cosine %+.3f %%\n", list[i].label,
                 100 * list[i].loss);
        assert_non_null(strstr(t->lines, line));
    }
    qsort(list, (size_t)n, sizeof *list, by_loss);
    for (const char *at = t->lines; (at = strstr(at, " kept   ")); at++) kept++;
    assert_true(kept >= least && kept <= most);
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "  %-52s kept   %s\n", list[i].label, wider);
        assert_int_equal(strstr(t->lines, line) != NULL, i < kept);
        for (int j = 0; i < kept && j < list[i].n; j++, entries++) {
            const subject_param *p = &s->param[list[i].param[j]];
            assert_string_equal(out.keep[entries].param, p->name);
            assert_string_equal(out.keep[entries].weights, wider);
            assert_true(out.keep[entries].products);
        }
        for (int j = 0; j < list[i].n; j++) {
            const subject_param *p = &s->param[list[i].param[j]];
            assert_int_equal(p->data == p->original, i < kept || !strcmp(weights, "int8"));
        }
    }
    assert_int_equal(out.n_keep, entries);
    expect_close(loss, loss_with(t, list, n, 0, kept, false, weights, wider), 1e-9, "the loss");
    if (kept < n) assert_true(loss <= max_loss);
    if (kept) assert_true(loss_with(t, list, n, 0, kept - 1, false, weights, wider) > max_loss);
    quantised_free(&out);
}

static void choice(void **state) {
    (void)state;
    static const char *const weights[] = {"int8", "int4"};
    for (int w = 0; w < 2; w++) {
        static tiny t;
        sn_error err = {0};
        quantised out;
        double whole;
        tiny_open(&t, scratch_dir, BERT);
        const quantise_options o = {.weights = weights[w],
                                    .compute = w ? NULL : "int8",
                                    .max_loss = 1,
                                    .quick = true,
                                    .damping = 0.01};
        need(quantise(&t.s, &o, &t.progress, &out, &whole, &err), &err);
        assert_true(whole > 0 && whole < 1);
        assert_int_equal(out.n_keep, 0);
        quantised_free(&out);
        for (int m = 0; m < t.s.n_matrix; m++) { /* int8 is for the numbers as they are */
            const subject_matrix *x = &t.s.matrix[m];
            float *want = original_of(&t.s, x), *got = subject_matrix_get(&t.s, x);
            if (w) gptq_plain(want, x->n, x->k);
            assert_memory_equal(got, want, sizeof *want * (size_t)(x->n * x->k));
            free(want), free(got);
        }
        check_choice(&t, weights[w], whole / 3, 1, 5);
        if (w) { /* those that were kept are the originals now */
            need(compensate(&t.s, false, 0.01, &t.progress, &err), &err);
            check_choice(&t, weights[w], -1, 6, 6);
        }
        t.stop = true;
        assert_false(compensate(&t.s, false, 0.01, &t.progress, &err));
        assert_string_equal(err.message, "interrupted");
        tiny_close(&t);
    }
}

/* ---- the folder ---- */

/* Whether every number fits the type, whose subnormals may or may not count. */
static bool fits(const float *x, int64_t n, sn_dtype t) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        float a = fabsf(x[i]);
        if (t == SN_BF16 ? bits & 0xffff : bits & 0x1fff || (a != 0 && a < 0x1p-14f) || a > 65504)
            return false;
    }
    return true;
}

static const struct {
    const char *name;
    bool copied;
} rest[] = {{"notes.txt", true},
            {"tokenizer.gguf", true},
            {"sub/model.onnx", true},
            {"sub/.hidden", false},
            {"sub/a/b/c/deep.txt", true},
            {"sub/a/b/c/d/deeper.txt", false},
            {"inside.txt", true},
            {"outside.txt", false},
            {".hidden", false},
            {"pytorch_model-00001.bin", false},
            {"sub/pytorch_model.bin", false},
            {"tf_model.h5", false},
            {"model.onnx", false},
            {"flax_model.msgpack", false},
            {"checkpoint.safetensors", false},
            {"old.tmp", false},
            {"weights.gguf", false},
            {"rust_model.ot", false},
            {"model.pt", false},
            {"model.pth", false},
            {"other.index.json", false},
            {"keras.h5", false}};

/* Files beside the model's. */
static void make_rest(void) {
    static const char *const folders[] = {"",         "/sub",       "/sub/a",
                                          "/sub/a/b", "/sub/a/b/c", "/sub/a/b/c/d"};
    char folder[512], path[600], to[600];
    snprintf(folder, sizeof folder, "%s", scratch_path("gpt2"));
    snprintf(to, sizeof to, "%s", scratch_path("elsewhere"));
    for (size_t i = 1; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s", folder, folders[i]);
        mkdir(path, 0700);
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, rest[i].name);
        if (!strcmp(rest[i].name, "inside.txt"))
            assert_int_equal(symlink("notes.txt", path), 0);
        else if (!strcmp(rest[i].name, "outside.txt"))
            assert_true(scratch_write(to, "x", 1) && !symlink(to, path));
        else
            assert_true(scratch_write(path, "text", 4));
    }
}

/* What was written is what the subject has: tensors in the narrowest type, the choice, other files. */
static void check_folder(const subject *s, const char *path) {
    sn_error err = {0};
    quantised q;
    char file[600];
    sn_model_dir *d = sn_model_dir_open(path, &err);
    need(d != NULL, &err);
    for (int i = 0; i < s->n_param; i++) {
        const subject_param *p = &s->param[i];
        const sn_weight *w = sn_weights_find(d->weights, p->name);
        assert_non_null(w);
        float *x = malloc(sizeof *x * (size_t)p->count);
        assert_true(sn_weight_to_f32(w, x));
        assert_memory_equal(x, p->data, sizeof *x * (size_t)p->count);
        free(x);
        sn_dtype want = !p->changed                                             ? SN_F32
                        : fits(p->data, p->count, SN_BF16)                      ? SN_BF16
                        : w->dtype == SN_F16 || fits(p->data, p->count, SN_F16) ? SN_F16
                                                                                : SN_F32;
        assert_int_equal(w->dtype, want);
    }
    need(quantised_read(d->config, &q, &err), &err);
    assert_string_equal(q.weights, "int4");
    assert_null(q.compute);
    assert_int_equal(q.n_keep, 1);
    assert_string_equal(q.keep[0].param, s->param[1].name);
    assert_string_equal(q.keep[0].weights, "int8");
    assert_true(q.keep[0].products);
    quantised_free(&q);
    sn_model_dir_close(d);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        snprintf(file, sizeof file, "%s/%s", path, rest[i].name);
        if ((access(file, F_OK) == 0) != rest[i].copied) fail_msg("%s", rest[i].name);
    }
}

static void refuse_folder(const char *path, bool force, const char *what) {
    quantise_folder f;
    sn_error err = {0};
    if (quantise_folder_open(&f, path, force, &err) || !strstr(err.message, what))
        fail_msg("%s: %s", path, err.message);
    quantise_folder_close(&f);
}

static void folder(void **state) {
    (void)state;
    static tiny t;
    sn_error err = {0};
    quantise_folder f;
    char out[512], left[600];
    tiny_open(&t, scratch_dir, GPT2);
    subject *s = &t.s;
    need(compensate(s, true, 0.01, &t.progress, &err), &err);
    make_rest();
    for (int i = 0, vectors = 0; i < s->n_param; i++) { /* numbers of bf16, and of no 16 bits */
        if (s->param[i].node->rank != 1) continue;
        float *x = subject_param_edit(s, i, &err), value = vectors++ % 2 ? 1.0f / 3 : 1.5f;
        for (int64_t j = 0; j < s->param[i].count; j++) x[j] = value;
    }
    snprintf(out, sizeof out, "%s", scratch_path("out"));
    sn_keep keep = {s->param[1].name, "int8", true};
    const quantised q = {.weights = "int4", .keep = &keep, .n_keep = 1};

    refuse_folder(scratch_path("gpt2/notes.txt"), true, "is a file");
    refuse_folder(scratch_path("gpt2"), true, "not a folder that sinter quantize wrote");
    for (int again = 0; again < 2; again++) {
        snprintf(left, sizeof left, "%s.tmp", out);
        mkdir(left, 0700);
        snprintf(left, sizeof left, "%s.tmp/left", out); /* of a killed process */
        assert_true(scratch_write(left, "x", 1));
        if (!again) mkdir(out, 0700); /* empty */
        need(quantise_folder_open(&f, again ? out : scratch_path("out//"), again, &err), &err);
        assert_int_not_equal(access(left, F_OK), 0);
        refuse_folder(out, true, "another process is writing this folder");
        need(quantise_folder_save(&f, s, &q, &err), &err);
        assert_int_equal(f.left_out.count, 2);
        assert_non_null(strstr(f.left_out.text, "gpt2/outside.txt"));
        assert_non_null(strstr(f.left_out.text, "gpt2/sub/a/b/c/d"));
        quantise_folder_close(&f);
        *strrchr(left, '/') = 0;
        assert_int_not_equal(access(left, F_OK), 0);
        check_folder(s, out);
        refuse_folder(out, false, "replace it with --force");
        assert_int_not_equal(access(left, F_OK), 0);
    }
    need(quantise_folder_open(&f, scratch_path("given_up"), false, &err), &err);
    quantise_folder_close(&f);
    assert_int_not_equal(access(scratch_path("given_up"), F_OK), 0);
    assert_int_not_equal(access(scratch_path("given_up.tmp"), F_OK), 0);
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(compensation), cmocka_unit_test(choice),
                                       cmocka_unit_test(folder)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
