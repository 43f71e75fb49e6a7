/* What `sinter quantize` finds out about a model: sequences, products, their inputs, what scales these, and losses, against
 * the reference evaluator; smoothing against its formulas. */
#include "model/quantise/moments.h"
#include "model/quantise/origin.h"
#include "model/quantise/smooth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/scratch.h"
#include "tests/model/quantise/tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the reference evaluator ---- */

/* The value of a node for a text, with the parameters as they are, or were if old; but those with now[i]
 * as they are. The caller frees it. */
static double *evaluate(const subject *s, const sn_node *n, const subject_text *t, bool old,
                        const bool *now, int64_t *count) {
    int64_t symbol[8] = {0};
    for (int i = 0; i < sn_symbol_count(s->module); i++) {
        char c = *sn_symbol_at(s->module, i)->name;
        symbol[i] = c == 'B' ? 1 : c == 'T' ? t->n : c == 'S' ? t->n_source : 0;
    }
    sn_eval *ev = sn_eval_new(s->module, symbol);
    assert_non_null(ev);
    for (int i = 0; i < s->n_param; i++) {
        const subject_param *p = &s->param[i];
        const float *x = old && !(now && now[i]) ? p->original : p->data;
        assert_true(sn_eval_bind(ev, p->name, x, sizeof *x * (size_t)p->count));
    }
    int32_t zeros[32] = {0}, length = (int32_t)(t->source ? t->n_source : t->n);
    const size_t bytes = sizeof(int32_t) * (size_t)t->n;
    sn_eval_bind(ev, "tokens", t->tokens, bytes);
    sn_eval_bind(ev, "types", zeros, bytes);
    sn_eval_bind(ev, "lengths", &length, sizeof length);
    if (t->targets) sn_eval_bind(ev, "targets", t->targets, bytes);
    if (t->source) sn_eval_bind(ev, "source", t->source, sizeof(int32_t) * (size_t)t->n_source);
    const sn_value *v = sn_eval_node(ev, (sn_node *)(uintptr_t)n);
    need(v != NULL, sn_module_error(s->module));
    double *out = malloc(sizeof *out * (size_t)v->n);
    assert_non_null(out);
    memcpy(out, v->data, sizeof *out * (size_t)v->n);
    *count = v->n;
    sn_eval_free(ev);
    return out;
}

static double cosine_of(const double *x, const double *y, int64_t n) {
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) xy += x[i] * y[i], xx += x[i] * x[i], yy += y[i] * y[i];
    return xy / sqrt(xx * yy);
}

/* Of one row of logits in f32, and now: the lead of the best token over the next, before and now. */
static bool leads_of(const double *before, const double *now, int64_t vocab, double *lead,
                     double *lead_now) {
    int64_t best = 0, next = 1, best_now = 0;
    if (before[1] > before[0]) best = 1, next = 0;
    for (int64_t v = 2; v < vocab; v++) {
        if (before[v] > before[best])
            next = best, best = v;
        else if (before[v] > before[next])
            next = v;
    }
    for (int64_t v = 1; v < vocab; v++)
        if (now[v] > now[best_now]) best_now = v;
    *lead = before[best] - before[next];
    *lead_now = now[best] - now[next];
    return best == best_now;
}

/* subject_measure's definition: perplexity over that in f32, minus 1; 1 minus the mean cosine; the part of
 * greedy tokens that are others, at least what leads and the deviation of their changes let expect. */
static double loss_of(const subject *s, bool old, const bool *changed) {
    double sum = 0, lead[64], squares = 0;
    int64_t n, positions = 0, others = 0, vocab = s->m->model.vocab;
    for (int i = s->n_text - s->n_held; i < s->n_text; i++) {
        double *before = evaluate(s, s->measured, &s->text[i], true, NULL, &n),
               *now = evaluate(s, s->measured, &s->text[i], old, changed, &n), lead_now;
        if (s->kind == SUBJECT_COSINE) sum += 1 - cosine_of(before, now, n);
        for (int64_t j = 0; s->kind == SUBJECT_LOSS && j < n; j++, positions++)
            sum += now[j] - before[j];
        for (int64_t j = 0; s->kind == SUBJECT_GREEDY && j < n; j += vocab, positions++) {
            assert_true(positions < 64);
            others += !leads_of(before + j, now + j, vocab, &lead[positions], &lead_now);
            squares += pow(lead_now - lead[positions], 2);
        }
        free(before), free(now);
    }
    if (s->kind == SUBJECT_COSINE) return sum / s->n_held;
    if (s->kind == SUBJECT_LOSS) return expm1(sum / (double)positions);
    double expected = 0;
    for (int64_t i = 0; i < positions; i++)
        expected += erfc(lead[i] / sqrt(2 * squares / (double)positions)) / 2;
    return fmax(expected, (double)others) / (double)positions;
}

/* ---- texts ---- */

/* "tokens>targets<source" of each text, as digits or letters from a = 10 on; those to measure after "|". */
static void describe(const subject *s, char *out) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    for (int i = 0; i < s->n_text; i++) {
        const subject_text *t = &s->text[i];
        *out++ = i == s->n_text - s->n_held ? '|' : ' ';
        for (int64_t j = 0; j < t->n; j++) *out++ = digits[t->tokens[j]];
        if (t->targets) *out++ = '>';
        for (int64_t j = 0; t->targets && j < t->n; j++) *out++ = digits[t->targets[j]];
        if (t->source) *out++ = '<';
        for (int64_t j = 0; t->source && j < t->n_source; j++) *out++ = digits[t->source[j]];
    }
    *out = 0;
}

/* Texts become sequences; the last fifth measures; at most `tokens` are kept, at even distances, and a
 * quarter of that to measure, but one text at least. what: begins with '!' if it is refused. */
static void texts(void **state) {
    (void)state;
    static const struct {
        kind k;
        int64_t window, tokens;
        const char *text, *target, *what;
        int skipped;
    } rows[] = {
        {LLAMA, 8, 999, "abcdefghijabcdefg", NULL, " 01234567>12345678|89012345>90123456", 0},
        {LLAMA, 64, 999, "abcdefghijabcdefg", NULL, " 01234567>12345678|89012345>90123456", 0},
        {LLAMA, 9, 999, "abcdefghijabcdefghi", NULL, " 012345678>123456789|901234567>012345678", 0},
        {LLAMA, 4, 999, "abcdefghijabcdefghij", NULL, " 0123>1234 4567>5678 8901>9012|2345>3456",
         0},
        {LLAMA, 2, 8, "abcdefghijabcdefghijabcdefghij", NULL, " 45>56 01>12 67>78 23>34|67>78",
         0}, /* 12 and 2 of windows of 2 */
        {LLAMA, 8, 999, "abcdefghijabcdef", NULL, "!has only 16 tokens: give a longer one", 0},
        {LLAMA, 8, 999, "abcdefghijabcdefg", "a", "!--target is for encoder-decoders", 0},
        {BERT, 8, 999, NULL, NULL, " 256783 26783 273 2853 256563 28763 2663 2573 25553|27883 263",
         1},
        {BERT, 8, 10, NULL, NULL, " 273 2663|263", 1},
        {BERT, 8, 999, "a b\n", NULL, "!gives only 1 sequence that fits the model", 0},
        {BERT, 8, 999, "\r\n\n", NULL, "!gives only 0 sequences that fit the model", 0},
        {EDT, 8, 999, NULL, NULL,
         " 823>239<012 84>49<12 8>9<34 812>129<0 8234>2349<4501 8765>7659<2 860>609<3 "
         "8012345>0123459<56|81>19<70",
         2},
        {EDT, 8, 999, "ab\nc\n", "a\n", "!text and target have different numbers of lines", 0},
        {EDT, 8, 999, "ab\n", "a\nb\n", "!text and target have different numbers of lines", 0},
        {EDT, 8, 999, "a\nb\n", "", "!text and target have different numbers of lines", 0},
        {EDT, 8, 999, "a\nb\n", "-", "!give the results of the lines of text, too", 0}};
    static model_case made[KINDS];
    char got[1024];
    for (kind k = 0; k < KINDS; k++) tiny_make(scratch_dir, k, &made[k]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        subject s;
        sn_error err = {0};
        subject_options o = tiny_options(scratch_dir, rows[i].k);
        o.window = rows[i].window;
        o.tokens = rows[i].tokens;
        if (rows[i].text) o.text = (subject_file){"text", rows[i].text, strlen(rows[i].text)};
        if (rows[i].target)
            o.target = (subject_file){"target", rows[i].target, strlen(rows[i].target)};
        if (rows[i].target && *rows[i].target == '-') o.target.data = NULL;
        bool ok = subject_open(&s, &o, &err);
        if (*rows[i].what == '!') {
            if (ok || !strstr(err.message, rows[i].what + 1))
                fail_msg("row %zu: %s", i, ok ? "accepted" : err.message);
        } else {
            need(ok, &err);
            describe(&s, got);
            assert_string_equal(got, rows[i].what);
            assert_int_equal(s.skipped, rows[i].skipped);
            int64_t n[2] = {0};
            for (int j = 0; j < s.n_text; j++)
                n[j >= s.n_text - s.n_held] += s.text[j].n + s.text[j].n_source;
            assert_int_equal(s.tokens, n[0]);
            assert_int_equal(s.held_tokens, n[1]);
        }
        subject_close(&s);
    }
    for (kind k = 0; k < KINDS; k++) case_close(&made[k]);
}

/* ---- linear maps and what scales their inputs ---- */

/* -1: name is NULL */
static int param_of(const subject *s, const char *name) {
    for (int i = 0; name && i < s->n_param; i++)
        if (!strcmp(s->param[i].name, name)) return i;
    return -1;
}

/* Products of the four models, with their matrices as "n" or "t" (stored as [k, n]) and "T" (looked up, too),
 * and what makes their inputs: vectors, or a matrix whose rows are the channels. NULL: nothing does. */
typedef struct product_row {
    kind k;
    const char *label, *form, *gain, *bias, *matrix;
    int64_t width, first, count, size, share;
} product_row;
static const product_row product_rows[] = {
#define L "model.layers.0."
    {LLAMA, L "self_attn.q_proj+k_proj+v_proj", "nnn", L "input_layernorm.weight", NULL, NULL, 32,
     0, 32, 32, 1},
    {LLAMA, L "self_attn.o_proj", "n", NULL, NULL, L "self_attn.v_proj.weight", 64, 0, 32, 32, 2},
    {LLAMA, L "mlp.gate_proj+up_proj", "nn", L "post_attention_layernorm.weight", NULL, NULL, 32, 0,
     32, 32, 1},
    {LLAMA, L "mlp.down_proj", "n", NULL, NULL, L "mlp.up_proj.weight", 64, 0, 64, 64, 1},
    {LLAMA, "lm_head", "n", "model.norm.weight", NULL, NULL, 32, 0, 32, 32, 1},
    {GPT2, "h.0.attn.c_attn", "t", "h.0.ln_1.weight", "h.0.ln_1.bias", NULL, 32, 0, 32, 32, 1},
    {GPT2, "h.0.attn.c_proj", "t", NULL, NULL, NULL, 32, 0, 0, 0, 0},
    {GPT2, "h.0.mlp.c_fc", "t", "h.0.ln_2.weight", "h.0.ln_2.bias", NULL, 32, 0, 32, 32, 1},
    {GPT2, "h.0.mlp.c_proj", "t", NULL, NULL, NULL, 128, 0, 0, 0, 0},
    {GPT2, "wte", "T", NULL, NULL, NULL, 32, 0, 0, 0, 0},
    {PHI3, L "self_attn.qkv_proj", "n", L "input_layernorm.weight", NULL, NULL, 32, 0, 32, 32, 1},
    {PHI3, L "self_attn.o_proj", "n", NULL, NULL, L "self_attn.qkv_proj.weight", 32, 64, 32, 8, 1},
    {PHI3, L "mlp.down_proj", "n", NULL, NULL, L "mlp.gate_up_proj.weight", 64, 64, 64, 64, 1},
#define B "encoder.layer.0."
    {BERT, B "attention.self.query+key+value", "nnn", NULL, NULL, NULL, 32, 0, 0, 0, 0},
    {BERT, B "attention.output.dense", "n", B "attention.self.value.bias", NULL,
     B "attention.self.value.weight", 32, 0, 32, 16, 1},
    {BERT, B "intermediate.dense", "n", NULL, NULL, NULL, 32, 0, 0, 0, 0},
    {BERT, B "output.dense", "n", NULL, NULL, NULL, 64, 0, 0, 0, 0},
    {EDT, "encoder.0.mlp2", "n", "encoder.0.mlp1.bias", NULL, "encoder.0.mlp1.weight", 64, 0, 64,
     64, 1},
    {EDT, "decoder.0.cross.v+k", "nn", "encoder.0.norm2.weight", "encoder.0.norm2.bias", NULL, 32,
     0, 32, 32, 1},
    {EDT, "decoder.0.cross.q", "n", NULL, NULL, NULL, 32, 0, 0, 0, 0},
    {EDT, "embed_tokens", "T", NULL, NULL, NULL, 32, 0, 0, 0, 0}};

static void check_product(const subject *s, int product, const product_row *row, const int *users) {
    const subject_product *p = &s->product[product];
    origin o;
    assert_int_equal(p->k, row->width);
    assert_int_equal(p->n_matrix, strlen(row->form));
    for (int m = 0; m < p->n_matrix; m++) {
        const subject_matrix *w = &s->matrix[p->matrix[m]];
        assert_int_equal(w->swapped, row->form[m] == 't');
        assert_int_equal(w->table, row->form[m] == 'T');
        assert_int_equal(w->k, p->k);
        assert_int_equal(w->product, product);
    }
    assert_int_equal(origin_find(s, product, users, &o), row->count > 0);
    if (!row->count) return;
    assert_int_equal(o.vector[0], param_of(s, row->gain));
    assert_int_equal(o.vector[1], param_of(s, row->bias));
    assert_int_equal(o.matrix, param_of(s, row->matrix));
    const int64_t got[] = {o.first, o.count, o.size, o.share};
    assert_memory_equal(got, &row->first, sizeof got);
    assert_false(o.swapped);
}

static void products(void **state) {
    (void)state;
    static const int count[KINDS] = {5, 5, 5, 4, 12};
    for (kind k = 0; k < KINDS; k++) {
        static tiny t;
        tiny_open(&t, scratch_dir, k);
        int *users = origin_users(&t.s);
        assert_int_equal(t.s.n_product, count[k]);
        for (size_t i = 0; i < sizeof product_rows / sizeof *product_rows; i++) {
            const product_row *row = &product_rows[i];
            int j = 0;
            if (row->k != k) continue;
            while (j < t.s.n_product && strcmp(t.s.product[j].label, row->label)) j++;
            if (j == t.s.n_product) fail_msg("there is no product %s", row->label);
            check_product(&t.s, j, row, users);
        }
        free(users);
        tiny_close(&t);
    }
}

/* Sums, squares and extremes of inputs over the texts to calibrate with, against the evaluator. */
static void inputs(void **state) {
    (void)state;
    static const kind some[] = {LLAMA, EDT};
    for (size_t q = 0; q < sizeof some / sizeof *some; q++) {
        static tiny t;
        static double sum[128 * 128], most[128], square[128];
        sn_error err = {0};
        moments x;
        tiny_open(&t, scratch_dir, some[q]);
        need(moments_make(&t.s, &x, &err), &err);
        for (int i = 0; i < t.s.n_product; i++) {
            const subject_product *p = &t.s.product[i];
            int64_t k = p->k, n;
            int texts = t.s.n_text - t.s.n_held;
            memset(sum, 0, sizeof sum), memset(most, 0, sizeof most),
                memset(square, 0, sizeof square);
            for (int j = 0; j < texts; j++) {
                double *v = evaluate(&t.s, p->input, &t.s.text[j], false, NULL, &n);
                for (int64_t r = 0; r < n; r += k)
                    for (int64_t a = 0; a < k; a++) {
                        most[a] = fmax(most[a], fabs(v[r + a]));
                        square[a] += v[r + a] * v[r + a] * (double)k / (double)n / texts;
                        for (int64_t b = 0; b < k; b++) sum[a * k + b] += v[r + a] * v[r + b];
                    }
                free(v);
            }
            double *gram = i % 3 ? NULL : moments_gram(&t.s, i, &err), largest = 0;
            for (int64_t a = 0; a < k; a++) {
                expect_close((double)x.most[i][a], most[a], 1e-4, p->label);
                expect_close((double)x.square[i][a], square[a], 1e-4, p->label);
                largest = fmax(largest, sum[a * k + a]);
            }
            for (int64_t a = 0; gram && a < k * k; a++)
                assert_true(fabs(gram[a] - sum[a]) <= 1e-5 * largest);
            free(gram);
        }
        moments_free(&x);
        tiny_close(&t);
    }
}

/* ---- smoothing ---- */

/* Exponents of equation 4 of the paper, rounded, one for all channels of the product that share one of the
 * origin; then the expected error of int8: rounding x by a scale a row, W by a scale a row, each uniformly. */
static double smoothed(const subject *s, const subject_product *p, const origin *o,
                       const float *most, const float *square, double alpha, int *exponent) {
    double x[128] = {0}, w[128] = {0}, energy[128] = {0}, all = 0, high_x = 0, moved = 0, mean = 0,
           rows = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int m = 0; m < p->n_matrix; m++) {
            const subject_matrix *a = &s->matrix[p->matrix[m]];
            float *v = subject_matrix_get(s, a);
            for (int64_t r = 0; r < a->n; r++) {
                double high = 0;
                for (int64_t j = 0; j < p->k; j++) {
                    double y = fabs((double)v[r * p->k + j]);
                    int64_t at = origin_channel(o, j);
                    if (!pass) w[at] = fmax(w[at], y), energy[j] += y * y;
                    high = fmax(high, ldexp(y, exponent[j]));
                }
                if (pass) rows += high * high;
            }
            free(v);
            if (pass || m < p->n_matrix - 1) continue;
            for (int64_t j = 0; j < p->k; j++)
                x[origin_channel(o, j)] = fmax(x[origin_channel(o, j)], (double)most[j]);
            for (int64_t j = 0; j < p->k; j++) {
                int64_t at = origin_channel(o, j);
                double factor = pow(x[at], alpha) / pow(w[at], 1 - alpha);
                exponent[j] = alpha > 0 && x[at] > 0 && w[at] > 0 ? (int)rint(log2(factor)) : 0;
            }
        }
    for (int64_t j = 0; j < p->k; j++) {
        high_x = fmax(high_x, ldexp((double)most[j], -exponent[j]));
        moved += ldexp(energy[j], 2 * exponent[j]);
        mean += ldexp((double)square[j], -2 * exponent[j]);
        all += energy[j] * (double)square[j];
    }
    return (high_x * high_x * moved + rows * mean) / (12 * 127 * 127 * all);
}

/* Multiplies what the product reads, and divides what makes its inputs. */
static void move(const subject *s, const subject_product *p, const origin *o, const int *exponent,
                 float **want) {
    for (int m = 0; m < p->n_matrix; m++) {
        const subject_matrix *w = &s->matrix[p->matrix[m]];
        for (int64_t i = 0; i < w->n * w->k; i++) {
            float *x = &want[w->param][i];
            *x = ldexpf(*x, exponent[w->swapped ? i / w->n : i % w->k]);
        }
    }
    for (int64_t at = 0; at < o->count; at++) {
        int64_t j = 0, n = o->matrix < 0 ? 0 : s->param[o->matrix].node->shape[1];
        while (origin_channel(o, j) != at) j++;
        for (int v = 0; v < 2; v++)
            if (o->vector[v] >= 0) {
                float *x = &want[o->vector[v]][o->first + at];
                *x = ldexpf(*x, -exponent[j]);
            }
        for (int64_t i = 0; i < n; i++) {
            float *x = &want[o->matrix][(o->first + at) * n + i];
            *x = ldexpf(*x, -exponent[j]);
        }
    }
}

static void smoothing(void **state) {
    (void)state;
    for (kind k = 0; k < KINDS; k++) {
        static tiny t;
        sn_error err = {0};
        moments x;
        tiny_open(&t, scratch_dir, k);
        subject *s = &t.s;
        int *users = origin_users(s), moved = 0;
        float **want = calloc((size_t)s->n_param, sizeof *want);
        char lines[4096] = "";
        need(moments_make(s, &x, &err), &err);
        for (int i = 0; i < s->n_param; i++) {
            want[i] = malloc(sizeof(float) * (size_t)s->param[i].count);
            memcpy(want[i], s->param[i].data, sizeof(float) * (size_t)s->param[i].count);
        }
        for (int i = 0; i < s->n_product; i++) {
            const subject_product *p = &s->product[i];
            int exponent[128] = {0}, best[128] = {0};
            origin o;
            if (!origin_find(s, i, users, &o)) continue;
            double before = smoothed(s, p, &o, x.most[i], x.square[i], 0, best), least = before,
                   alpha = 0;
            for (int step = 1; step < 4; step++) {
                double e = smoothed(s, p, &o, x.most[i], x.square[i], 0.25 * step, exponent);
                if (e >= least) continue;
                least = e, alpha = 0.25 * step;
                memcpy(best, exponent, sizeof best);
            }
            move(s, p, &o, best, want);
            moved += alpha > 0;
            sprintf(lines + strlen(lines),
                    "  %-52s smooth alpha %.2f, expected error of int8 %5.2f %% -> %5.2f %%\n",
                    p->label, alpha, 100 * sqrt(before), 100 * sqrt(least));
        }
        assert_true(moved > 0);
        need(subject_reference(s, &err), &err);
        int64_t n;
        double *old = evaluate(s, s->measured, s->text, false, NULL, &n);
        need(smooth_outliers(s, &t.progress, &err), &err);
        assert_string_equal(t.lines, lines);
        double *new = evaluate(s, s->measured, s->text, false, NULL, &n);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabs(new[i] - old[i]) <= 1e-9 * fabs(old[i]) + 1e-12);
        for (int i = 0; i < s->n_param; i++) {
            assert_memory_equal(s->param[i].data, want[i],
                                sizeof(float) * (size_t)s->param[i].count);
            assert_ptr_equal(s->param[i].original, s->param[i].data);
            free(want[i]);
        }
        free(want), free(users), free(old), free(new);
        moments_free(&x);
        tiny_close(&t);
    }
}

/* ---- measuring ---- */

/* The loss of parameters that changed a little, much, and of some that changed while others count as they
 * were, against its definition. */
static void losses(void **state) {
    (void)state;
    static const char *const names[] = {"perplexity", "1 - cosine", "greedy tokens"};
    for (kind k = 0; k < KINDS; k++) {
        static tiny t;
        sn_error err = {0};
        subject_session x;
        double loss, last = -1;
        tiny_open(&t, scratch_dir, k);
        subject *s = &t.s;
        assert_string_equal(subject_measure_name(s), names[k < BERT ? 0 : k - 2]);
        need(subject_reference(s, &err), &err);
        bool *changed = calloc((size_t)s->n_param, sizeof *changed);
        for (int step = 0; step < 3; step++) {
            for (int m = 0; m < s->n_matrix; m++) {
                const subject_matrix *w = &s->matrix[m];
                float *v = subject_matrix_get(s, w);
                for (int64_t i = 0; i < w->n * w->k; i++)
                    v[i] += (step ? 0.4f : 0.004f) * tiny_noise((uint32_t)(i + 9999 * m));
                need(subject_matrix_set(s, w, v, &err), &err);
                free(v);
                changed[w->param] = m % 2;
            }
            bool some = step == 2;
            need(subject_session_open(s, &x, &s->compile, some, some ? changed : NULL, &err), &err);
            need(subject_measure(s, &x, &loss, &err), &err);
            expect_close(loss, loss_of(s, some, changed), 2e-3, s->output);
            assert_true(k == EDT || loss != last); /* a part of few tokens */
            last = loss;
            subject_session_close(&x);
        }
        for (int i = 0; i < s->n_param; i++) subject_restore(s, i);
        need(subject_session_open(s, &x, &s->compile, false, NULL, &err), &err);
        need(subject_measure(s, &x, &loss, &err), &err);
        assert_true(fabs(loss) < 1e-6);
        subject_session_close(&x);
        subject_param_edit(s, s->n_param - 1, &err)[0] = NAN;
        for (int i = 0; i < s->n_param; i++)
            if (s->param[i].node->rank == 1) subject_param_edit(s, i, &err)[0] = NAN;
        need(subject_session_open(s, &x, &s->compile, false, NULL, &err), &err);
        assert_false(subject_measure(s, &x, &loss, &err));
        assert_non_null(strstr(err.message, "are not finite"));
        subject_session_close(&x);
        free(changed);
        tiny_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(products),
                                       cmocka_unit_test(inputs), cmocka_unit_test(smoothing),
                                       cmocka_unit_test(losses)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
