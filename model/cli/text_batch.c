/* text_batch.c: several texts at once: prompts of a file, candidates of one prompt, beams. */
#include "model/cli/text_gen.h"
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one of several texts ---- */

typedef struct job {
    const char *line; /* [size] the prompt */
    size_t size;
    sn_lm_sequence *s; /* NULL: not begun, or printed */
    sn_bytes text;     /* so far, without the prompt */
} job;

/* The next token of a job; false: it has ended, or an error. */
static bool advance(job *j, sn_error *err) {
    const char *text = sn_lm_next(j->s, err);
    return text && sn_bytes_append(&j->text, text, strlen(text), err);
}

/* The tokens of a result: all, or of a chat those of the answer; without the one that ended it. */
static void print_ids(const sn_lm_sequence *s, bool chat) {
    int64_t n, first = chat ? sn_lm_prompt_tokens(s) : 0;
    const int32_t *ids = sn_lm_tokens(s, &n);
    n -= sn_lm_ended(s) == SN_LM_END_TOKEN;
    for (int64_t i = first; i < n; i++) printf(i > first ? " %d" : "%d", (int)ids[i]);
}

static void print_job(const job *j, int64_t index, const text_options *o) {
    if (sn_screen()->json) {
        sn_text_print_json(j->s, index, j->text.data, NULL, 0, 0);
        return;
    }
    if (o->print_ids)
        print_ids(j->s, o->chat);
    else
        printf("%s%s", sn_lm_prompt_text(j->s), j->text.data ? j->text.data : "");
    putchar('\n');
    fflush(stdout);
}

static void free_job(job *j) {
    sn_lm_end(j->s);
    j->s = NULL;
    sn_bytes_free(&j->text);
}

/* ---- the lines of a file ---- */

/* The lines that are not empty; they point into text. NULL: out of memory. */
static job *split_lines(const char *text, size_t size, int64_t *n, sn_error *err) {
    size_t lines = 1;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
    job *j = calloc(lines, sizeof *j);
    if (!j) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *n = 0;
    for (size_t at = 0; j && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;
        if (length) j[(*n)++] = (job){.line = text + at, .size = length};
        at += length + 1;
    }
    return j;
}

/* Job i has the seed that it would have alone with --seed S+i. */
static bool begin_job(sn_lm *m, const text_options *o, job *j, int64_t i, sn_error *err) {
    text_options its = *o;
    sn_error why = {0};
    its.seed += i;
    j->s = sn_text_begin(m, &its, j->line, j->size, &why);
    return j->s || sn_fail(err, why.code, "prompt %lld: %s", (long long)i + 1, why.message);
}

/* Prints finished jobs in order, from *first on. */
static void print_finished(job *j, int64_t n, const text_options *o, int64_t *first) {
    for (; *first < n && j[*first].s; ++*first) {
        if (!sn_lm_ended(j[*first].s) && o->tokens && !sn_screen_stopped()) break;
        if (!o->print_ids && !sn_screen()->json) printf("==> %lld <==\n", (long long)*first + 1);
        print_job(&j[*first], *first, o);
        free_job(&j[*first]);
    }
}

static bool run_jobs(sn_lm *m, const text_options *o, job *j, int64_t n, sn_error *err) {
    int64_t begun = 0, printed = 0, live = 0;
    int64_t rows = o->batch < sn_lm_rows(m) ? o->batch : sn_lm_rows(m);
    while (printed < n && !ferror(stdout)) {
        for (; begun < n && live < rows; begun++, live++)
            if (!begin_job(m, o, &j[begun], begun, err)) return false;
        live = 0;
        for (int64_t i = printed; i < begun && o->tokens; i++) {
            if (sn_lm_ended(j[i].s)) continue;
            if (!advance(&j[i], err) && err->code) return false;
            live += !sn_lm_ended(j[i].s);
        }
        print_finished(j, begun, o, &printed);
        if (sn_screen_stopped() && printed < n)
            return sn_screen_interrupted(err, "%lld of %lld texts were begun", (long long)begun,
                                         (long long)n);
    }
    return true;
}

bool sn_text_generate_batch(sn_lm *m, const text_options *o, sn_error *err) {
    size_t size;
    int64_t n = 0;
    char *text = sn_text_read(o->prompt_file, &size, err);
    job *j = text ? split_lines(text, size, &n, err) : NULL;
    bool ok = j && run_jobs(m, o, j, n, err);
    for (int64_t i = 0; i < n; i++) free_job(&j[i]);
    free(j);
    free(text);
    return ok;
}

/* ---- the best of several ---- */

static double score(const sn_lm_sequence *s) {
    int64_t n;
    sn_lm_tokens(s, &n);
    n -= sn_lm_prompt_tokens(s);
    return n ? sn_lm_log_p(s) / (double)n : 0;
}

bool sn_text_generate_best(sn_lm *m, const text_options *o, sn_error *err) {
    job *j = calloc((size_t)o->best_of, sizeof *j);
    bool ok = j || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_lm_request r = sn_text_request(o);
    for (int64_t i = 0; ok && i < o->best_of; i++, r.seed++) {
        j[i].s = i ? sn_lm_fork(j[0].s, &r, err) : sn_text_begin(m, o, NULL, 0, err);
        ok = j[i].s != NULL;
    }
    for (bool any = ok && o->tokens; any && ok && !sn_screen_stopped();) {
        any = false;
        for (int64_t i = 0; ok && i < o->best_of; i++) {
            any |= advance(&j[i], err);
            ok = !err->code;
        }
    }
    int64_t best = 0;
    for (int64_t i = 1; ok && i < o->best_of; i++)
        if (score(j[i].s) > score(j[best].s)) best = i;
    if (ok) print_job(&j[best], 0, o);
    if (ok && sn_screen_stopped()) ok = sn_screen_interrupted(err, "this is the best text so far");
    for (int64_t i = 0; j && i < o->best_of; i++) free_job(&j[i]);
    free(j);
    return ok;
}

/* ---- beams ---- */

/* ids: of the prompt, then of the result. */
static bool print_found(const sn_lm *m, const sn_ids *ids, int64_t prompt, const text_options *o,
                        sn_error *err) {
    sn_bytes text = {0};
    const bool json = sn_screen()->json;
    int64_t n = (int64_t)ids->count, first = o->chat || json ? prompt : 0;
    if ((!o->print_ids || json) && !sn_lm_spell(m, ids->data + first, n - first, 0, &text, err))
        return false;
    if (json) sn_text_print_json(NULL, 0, text.data, ids->data, n, prompt);
    for (int64_t i = first; i < n && o->print_ids && !json; i++)
        printf(i > first ? " %d" : "%d", (int)ids->data[i]);
    if (!json) printf("%s\n", text.data ? text.data : "");
    sn_bytes_free(&text);
    return true;
}

bool sn_text_generate_beams(sn_lm *m, const text_options *o, sn_error *err) {
    sn_ids ids = {0};
    bool ok = sn_text_read_prompt(m, o, NULL, 0, &ids, err);
    int64_t prompt = (int64_t)ids.count;
    sn_ids copy = {0};
    for (int64_t i = 0; ok && i < prompt; i++) ok = sn_ids_push(&copy, ids.data[i], err);
    sn_lm_request r = sn_text_request(o);
    r.ids = copy.data, r.n_ids = prompt;
    const sn_lm_search how = {.beams = o->beams, .length_penalty = o->length_penalty};
    ok = ok && (!o->tokens || sn_lm_search_beams(m, &r, &how, &ids, NULL, err)) &&
         print_found(m, &ids, prompt, o, err);
    sn_ids_free(&ids);
    sn_ids_free(&copy);
    return ok;
}
