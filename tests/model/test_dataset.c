/* Batches of the four tasks: contents, every row once per epoch, reproducibility by number, masking
 * probabilities, separation of documents, rejected data. */
#include "model/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 50 };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static void append(sn_documents *d, const int32_t *ids, size_t n) {
    sn_error err = {0};
    d->ids.data = realloc(d->ids.data, (d->ids.count + n + 1) * sizeof *ids);
    assert_non_null(d->ids.data);
    for (size_t i = 0; i < n; i++) d->ids.data[d->ids.count++] = ids[i];
    d->ids.capacity = d->ids.count + 1;
    need(sn_documents_close(d, &err), &err);
}

/* n documents of growing length: document i has tokens 10 i mod 40, +1, …, 1 + i mod 5 of them. */
static sn_documents small(size_t n) {
    sn_documents d = {0};
    for (size_t i = 0; i < n; i++) {
        int32_t ids[5];
        for (size_t j = 0; j < 5; j++) ids[j] = (int32_t)(10 * i % 40 + j);
        append(&d, ids, 1 + i % 5);
    }
    return d;
}

static sn_documents counting(int32_t n) {
    sn_documents d = {0};
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int32_t i = 0; i < n; i++) ids[i] = i % V;
    append(&d, ids, (size_t)n);
    free(ids);
    return d;
}

static sn_dataset *open_set(const sn_dataset_options *o, const sn_documents *d,
                            const sn_documents *translation, const int32_t *label) {
    sn_error err = {0};
    sn_document_range none = {0};
    sn_dataset *s = sn_dataset_new(o, sn_documents_all(d),
                                   translation ? sn_documents_all(translation) : none, label, &err);
    need(s != NULL, &err);
    return s;
}

static sn_batch batch_of(const sn_dataset *s, int64_t number) {
    sn_batch b = {0};
    sn_error err = {0};
    need(sn_dataset_batch(s, number, &b, &err), &err);
    return b;
}

/* A row needs one token more, the last target. */
static void test_rows_of_lengths(void **unused) {
    (void)unused;
    static const int32_t lengths[][2] = {
        {8, 1}, {14, 1}, {15, 2}, {21, 2}, {22, 3}}; /* rows of 7 */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        sn_documents d = counting(lengths[i][0]);
        sn_dataset_options o = sn_dataset_options_default();
        o.batch = 1, o.block = 7, o.vocab = V;
        sn_dataset *s = open_set(&o, &d, NULL, NULL);
        assert_int_equal(sn_dataset_rows(s), lengths[i][1]);
        sn_dataset_free(s);
        sn_documents_free(&d);
    }
}

static void test_next_tokens(void **unused) {
    (void)unused;
    sn_documents d = counting(200);
    sn_dataset_options o = sn_dataset_options_default();
    o.batch = 3, o.block = 7, o.vocab = V, o.seed = 5;
    sn_dataset *s = open_set(&o, &d, NULL, NULL);
    assert_int_equal(sn_dataset_rows(s), 28); /* 199 / 7 */
    assert_int_equal(sn_dataset_batches(s), 9);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int seen[28] = {0}, in_order = 0;
        for (int64_t n = 0; n < 9; n++) {
            sn_batch b = batch_of(s, epoch * 9 + n), again = batch_of(s, epoch * 9 + n);
            assert_true(b.B == 3 && b.T == 7 && b.predicted == 21);
            assert_memory_equal(b.tokens, again.tokens, 21 * sizeof(int32_t));
            assert_true(!b.types && !b.source && !b.documents && !b.lengths);
            for (int i = 0; i < 3; i++) {
                for (int t = 0; t < 7; t++)
                    assert_int_equal(b.targets[7 * i + t], (b.tokens[7 * i + t] + 1) % V);
                int row = -1; /* rows start at multiples of 7, which differ mod 50 */
                for (int r = 0; r < 28; r++)
                    if (7 * r % V == b.tokens[7 * i]) row = r;
                assert_true(row >= 0);
                seen[row]++, in_order += row == 3 * n + i;
            }
            sn_batch_free(&b), sn_batch_free(&again);
        }
        for (int r = 0; r < 28; r++) assert_true(seen[r] <= 1);
        assert_true(in_order < 10);
    }
    sn_batch a = batch_of(s, 0), b = batch_of(s, 9);
    assert_true(memcmp(a.tokens, b.tokens, 21 * sizeof(int32_t)) != 0); /* another order */
    sn_batch_free(&a), sn_batch_free(&b);
    sn_dataset_free(s);
    sn_documents_free(&d);
}

static void test_random_rows(void **unused) {
    (void)unused;
    sn_documents d = counting(200);
    sn_dataset_options o = sn_dataset_options_default();
    o.batch = 4, o.block = 7, o.vocab = V, o.order = SN_ORDER_RANDOM;
    sn_dataset *s = open_set(&o, &d, NULL, NULL);
    int seen[V] = {0};
    for (int64_t n = 0; n < 200; n++) {
        sn_batch b = batch_of(s, n);
        for (int i = 0; i < 4; i++) {
            seen[b.tokens[7 * i]]++;
            for (int t = 0; t < 7; t++)
                assert_int_equal(b.targets[7 * i + t], (b.tokens[7 * i + t] + 1) % V);
        }
        sn_batch_free(&b);
    }
    for (int i = 0; i < V; i++) assert_true(seen[i] > 3 && seen[i] < 40); /* 16 each */
    sn_dataset_free(s);
    sn_documents_free(&d);

    d = counting(10); /* three rows, the last one up to the last token */
    s = open_set(&o, &d, NULL, NULL);
    memset(seen, 0, sizeof seen);
    for (int64_t n = 0; n < 20; n++) {
        sn_batch b = batch_of(s, n);
        for (int i = 0; i < 4; i++) seen[b.tokens[7 * i]]++;
        sn_batch_free(&b);
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[0] + seen[1] + seen[2] == 80);
    sn_dataset_free(s);
    sn_documents_free(&d);
}

/* In the order of the data, shorter at the end: for validation. */
static void test_given_order(void **unused) {
    (void)unused;
    sn_documents d = counting(36);
    sn_dataset_options o = sn_dataset_options_default();
    o.batch = 2, o.block = 7, o.vocab = V, o.order = SN_ORDER_GIVEN;
    sn_dataset *s = open_set(&o, &d, NULL, NULL);
    assert_int_equal(sn_dataset_batches(s), 3);
    int next = 0;
    for (int64_t n = 0; n < 3; n++) {
        sn_batch b = batch_of(s, n);
        assert_int_equal(b.B, n == 2 ? 1 : 2);
        for (int64_t i = 0; i < b.B * 7; i++) assert_int_equal(b.tokens[i], next++);
        sn_batch_free(&b);
    }
    sn_dataset_free(s);
    sn_documents_free(&d);
}

static void test_packed_documents(void **unused) {
    (void)unused;
    sn_documents d = small(7);
    sn_dataset_options o = sn_dataset_options_default();
    o.batch = 2, o.block = 8, o.vocab = V, o.order = SN_ORDER_GIVEN;
    o.documents = true, o.bos = 48, o.eos = 49;
    sn_dataset *s = open_set(&o, &d, NULL, NULL);
    sn_batch b = batch_of(s, 0);
    static const int32_t tokens[] = {48, 0,  49, 48, 10, 11, 49, 48, /* */
                                     20, 21, 22, 49, 48, 30, 31, 32};
    static const int32_t documents[] = {0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3};
    static const int32_t targets[] = {0,  49, -1, 10, 11, 49, -1, 20, /* */
                                      21, 22, 49, -1, 30, 31, 32, 33};
    assert_memory_equal(b.tokens, tokens, sizeof tokens);
    assert_memory_equal(b.documents, documents, sizeof documents);
    assert_memory_equal(b.targets, targets, sizeof targets);
    assert_int_equal(b.predicted, 13);
    sn_batch_free(&b);
    sn_dataset_free(s);
    sn_documents_free(&d);
}

static void test_masked(void **unused) {
    (void)unused;
    sn_documents d = counting(40000);
    sn_dataset_options o = sn_dataset_options_default();
    o.task = SN_TASK_MASKED, o.batch = 16, o.block = 32, o.vocab = V + 3;
    o.mask = V, o.bos = V + 1, o.eos = V + 2;
    sn_dataset *s = open_set(&o, &d, NULL, NULL);
    double all = 0, targets = 0, masked = 0, kept = 0;
    for (int64_t n = 0; n < sn_dataset_batches(s); n++) {
        sn_batch b = batch_of(s, n);
        int64_t counted = 0;
        for (int64_t i = 0; i < b.B; i++) {
            const int32_t *row = b.tokens + i * b.T, *goal = b.targets + i * b.T;
            assert_int_equal(row[0], o.bos);
            assert_int_equal(row[b.lengths[i] - 1], o.eos);
            for (int64_t t = 0; t < b.T; t++) {
                assert_int_equal(b.types[i * b.T + t], 0);
                bool inner = t > 0 && t < b.lengths[i] - 1;
                all += inner;
                if (t >= b.lengths[i]) assert_int_equal(row[t], 0);
                if (goal[t] < 0) continue;
                assert_true(inner && goal[t] < V);
                counted++, targets++, masked += row[t] == o.mask, kept += row[t] == goal[t];
            }
        }
        assert_int_equal(counted, b.predicted);
        sn_batch_free(&b);
    }
    assert_true(fabs(targets / all - 0.15) < 0.01);
    assert_true(fabs(masked / targets - 0.8) < 0.03);
    assert_true(fabs(kept / targets - 0.1 - 0.1 / 53) < 0.03);
    sn_dataset_free(s);
    sn_documents_free(&d);
}

static void test_pairs(void **unused) {
    (void)unused;
    sn_documents d = small(5), e = {0};
    for (int32_t i = 0; i < 5; i++) {
        int32_t ids[9] = {i, i, i, i, i, i, i, i, i};
        append(&e, ids, i == 4 ? 9 : (size_t)i); /* the first is empty, the last too long */
    }
    sn_dataset_options o = sn_dataset_options_default();
    o.task = SN_TASK_PAIRS, o.batch = 2, o.block = 6, o.vocab = V, o.order = SN_ORDER_GIVEN;
    o.bos = 48, o.eos = 49;
    sn_dataset *s = open_set(&o, &d, &e, NULL);
    assert_int_equal(sn_dataset_rows(s), 4);
    assert_int_equal(sn_dataset_cut(s), 1);
    sn_batch b = batch_of(s, 0);
    static const int32_t source[] = {48, 10, 11, 49, 0, 48, 20, 21, 22, 49};
    static const int32_t tokens[] = {48, 1, 0, 48, 2, 2}, targets[] = {1, 49, -1, 2, 2, 49};
    assert_true(b.S == 5 && b.T == 3 && b.lengths[0] == 4 && b.lengths[1] == 5);
    assert_memory_equal(b.source, source, sizeof source);
    assert_memory_equal(b.tokens, tokens, sizeof tokens);
    assert_memory_equal(b.targets, targets, sizeof targets);
    assert_int_equal(b.predicted, 5);
    sn_batch_free(&b);
    b = batch_of(s, 1);
    assert_true(b.T == 6 && b.S == 6); /* five of the nine, and eos */
    assert_int_equal(b.targets[11], 49);
    assert_int_equal(b.targets[10], 4);
    sn_batch_free(&b);
    sn_dataset_free(s);
    sn_documents_free(&d), sn_documents_free(&e);
}

static void test_classes(void **unused) {
    (void)unused;
    sn_documents d = small(5);
    static const int32_t label[] = {3, 1, 4, 1, 5};
    sn_dataset_options o = sn_dataset_options_default();
    o.task = SN_TASK_CLASSES, o.batch = 5, o.block = 4, o.vocab = V, o.bos = 48;
    o.order = SN_ORDER_GIVEN;
    sn_dataset *s = open_set(&o, &d, NULL, label);
    sn_batch b = batch_of(s, 7); /* every epoch is the same */
    assert_true(b.B == 5 && b.T == 4);
    assert_memory_equal(b.targets, label, sizeof label);
    static const int32_t last[] = {48, 0, 1, 2};
    assert_memory_equal(b.tokens + 16, last, sizeof last); /* cut: five tokens after bos */
    assert_int_equal(b.lengths[0], 2);
    assert_int_equal(sn_dataset_cut(s), 2);
    sn_batch_free(&b);
    sn_dataset_free(s);
    sn_documents_free(&d);
}

static void test_split(void **unused) {
    (void)unused;
    sn_document_range a, b;
    size_t cut[2];
    sn_error err = {0};
    sn_documents one = counting(100), many = small(10);
    need(sn_documents_split(&one, 0.1, &a, &b, cut, &err), &err);
    assert_true(a.begin == 0 && a.count == 1 && a.end[0] == 90 && b.begin == 90 && b.end[0] == 100);
    need(sn_documents_split(&many, 0.25, &a, &b, cut, &err), &err);
    assert_true(a.count == 7 && b.count == 3 && b.begin == many.end[6] && b.end[2] == many.end[9]);
    /* both parts have a document, or a token, whatever the fraction */
    static const double parts[] = {1e-9, 0.001, 0.999, 0.9999999};
    for (int i = 0; i < 4; i++) {
        need(sn_documents_split(&many, parts[i], &a, &b, cut, &err), &err);
        assert_true(a.count == (i < 2 ? 9 : 1) && a.count + b.count == 10);
        assert_ptr_equal(b.end, a.end + a.count);
        need(sn_documents_split(&one, parts[i], &a, &b, cut, &err), &err);
        assert_true(a.end[0] == b.begin && b.end[0] == 100);
        assert_int_equal(b.begin, i == 3 ? 1 : i == 2 ? 1 : 99);
    }
    static const double wrong[] = {1.5, 1, 0, -0.1, NAN};
    for (int i = 0; i < 5; i++) assert_false(sn_documents_split(&one, wrong[i], &a, &b, cut, &err));
    sn_documents_free(&one), sn_documents_free(&many);
}

static void refuse(const sn_dataset_options *o, const sn_documents *d, const char *say) {
    sn_error err = {0};
    sn_document_range none = {0};
    assert_null(sn_dataset_new(o, sn_documents_all(d), none, NULL, &err));
    if (!strstr(err.message, say)) fail_msg("'%s' does not say '%s'", err.message, say);
}

static void test_refusals(void **unused) {
    (void)unused;
    sn_dataset_options o = sn_dataset_options_default();
    o.batch = 2, o.block = 64, o.vocab = V;
    sn_documents none = {0}, empty = {0}, few = counting(37), wrong = counting(200);
    append(&empty, NULL, 0);
    wrong.ids.data[150] = V;
    refuse(&o, &none, "is empty");
    refuse(&o, &empty, "is empty");
    refuse(&o, &few, "the data has 37 tokens, but a row of block = 64 needs 65");
    refuse(&o, &wrong, "token 50 (number 150) is outside the vocabulary 0..49");
    wrong.ids.data[150] = -1;
    refuse(&o, &wrong, "token -1");
    o.task = SN_TASK_MASKED;
    refuse(&o, &few, "no mask token");
    o.mask = 3, o.p_mask = 1.5;
    refuse(&o, &few, "masking probabilities");
    o.task = SN_TASK_PAIRS;
    refuse(&o, &few, "no beginning-of-text token");
    o.bos = 1, o.eos = 2;
    refuse(&o, &few, "the translation is empty");
    o.task = SN_TASK_MASKED, o.p_mask = 0.1, o.block = 2;
    refuse(&o, &few, "no room between bos and eos");
    sn_documents_free(&empty), sn_documents_free(&few), sn_documents_free(&wrong);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_lengths),
        cmocka_unit_test(test_next_tokens),
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_given_order),
        cmocka_unit_test(test_packed_documents),
        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
