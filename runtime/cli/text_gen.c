/* text_gen.c: continues the text that a command line gives, and prints it. */
#include "runtime/cli/text_gen.h"
#include "runtime/text/lm_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- input ---- */

/* A pipe has no known size and may be endless. */
enum { MAX_PIPE_BYTES = 1 << 28 };

static bool may_read(FILE *f, size_t n, const char *path, sn_error *err) {
    struct stat st;
    if (n + 1 < MAX_PIPE_BYTES || (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode))) return true;
    return sn_fail(err, SN_ERR_FILE, "%s: more than 256 MiB: write the text to a file", path);
}

static char *read_stream(FILE *f, size_t *size, sn_error *err, const char *path) {
    char *data = NULL;
    size_t capacity = 0, n = 0;
    do {
        if (n + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            bool may = may_read(f, n, path, err);
            char *more = may ? realloc(data, capacity) : NULL;
            if (!more) {
                free(data);
                if (may) sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
                return NULL;
            }
            data = more;
        }
        n += fread(data + n, 1, capacity - 1 - n, f);
    } while (!feof(f) && !ferror(f));
    if (ferror(f)) {
        sn_fail(err, SN_ERR_FILE, "%s: cannot read: %s", path, strerror(errno));
        free(data);
        return NULL;
    }
    data[n] = 0;
    *size = n;
    return data;
}

char *text_read(const char *path, size_t *size, sn_error *err) {
    if (!strcmp(path, "-")) return read_stream(stdin, size, err, "standard input");
    FILE *f = fopen(path, "rb");
    if (!f) {
        sn_fail(err, SN_ERR_FILE, "%s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    char *data = read_stream(f, size, err, path);
    fclose(f);
    return data;
}

/* ---- the request ---- */

/* An option that is 0 on the command line says 0; in a request, it has the model's default. */
static int64_t number(int64_t value) {
    return value < 0 ? 0 : value ? value : -1;
}

static double fraction(double value) {
    return isnan(value) ? 0 : value > 0 ? value : -1;
}

static sn_lm_request request_of(const text_options *o) {
    return (sn_lm_request){.chat = o->chat,
                           .system = o->system,
                           .tokens = o->tokens < 0 ? 0
                                     : o->tokens   ? o->tokens
                                                   : 1,
                           .greedy = o->temperature == 0,
                           .temperature = isnan(o->temperature) ? 0 : o->temperature,
                           .top_p = isnan(o->top_p) ? 0 : o->top_p,
                           .min_p = fraction(o->min_p),
                           .top_k = number(o->top_k),
                           .repetition_penalty =
                               isnan(o->repetition_penalty) ? 0 : o->repetition_penalty,
                           .seed = (uint64_t)o->seed,
                           .stop = o->stop.item,
                           .n_stop = o->stop.n,
                           .ignore_eos = o->ignore_eos};
}

/* Begins the sequence that the options ask for. */
static sn_lm_sequence *begin(sn_lm *m, const text_options *o, sn_error *err) {
    sn_lm_request r = request_of(o);
    sn_ids ids = {0};
    size_t size = 0;
    char *text = NULL;
    bool ok = true;
    if (o->ids) {
        ok = lm_read_ids(o->ids, strlen(o->ids), &ids, err);
    } else if (o->prompt_file) {
        ok = (text = text_read(o->prompt_file, &size, err)) != NULL;
        if (ok && !o->chat) ok = sn_lm_encode(m, text, size, &ids, err); /* may contain NUL */
    }
    if (ids.count || (o->ids && ok)) r.ids = ids.data, r.n_ids = (int64_t)ids.count;
    r.prompt = text ? text : o->prompt;
    sn_lm_sequence *s = ok ? sn_lm_begin(m, &r, err) : NULL;
    sn_ids_free(&ids);
    free(text);
    return s;
}

/* ---- one text, as it appears ---- */

static void print_ids(const int32_t *ids, int64_t n, bool first) {
    for (int64_t i = 0; i < n; i++) printf(first && i == 0 ? "%d" : " %d", (int)ids[i]);
}

static bool stream(const char *name, sn_lm *m, sn_lm_sequence *s, const text_options *o,
                   sn_error *err) {
    int64_t n;
    const int32_t *ids = sn_lm_tokens(s, &n);
    bool as_ids = o->print_ids, first = o->chat;
    if (as_ids && !o->chat) print_ids(ids, n, true);
    if (!as_ids) fputs(sn_lm_prompt_text(s), stdout);
    for (const char *text; o->tokens && !ferror(stdout) && (text = sn_lm_next(s, err));) {
        ids = sn_lm_tokens(s, &n);
        if (!as_ids)
            fputs(text, stdout);
        else if (sn_lm_ended(s) != SN_LM_END_TOKEN)
            print_ids(ids + n - 1, 1, first), first = false;
        fflush(stdout);
    }
    putchar('\n');
    if (sn_lm_ended(s) == SN_LM_CONTEXT)
        fprintf(stderr, "%s: note: the context of %lld tokens is full\n", name,
                (long long)sn_lm_context(m));
    return !err->code;
}

bool text_generate(const char *name, sn_lm *m, const text_options *o, sn_error *err) {
    sn_lm_sequence *s = begin(m, o, err);
    bool ok = s && stream(name, m, s, o, err);
    sn_lm_end(s);
    return ok;
}

void text_print_times(const sn_lm *m) {
    const sn_lm_times t = sn_lm_measured(m);
    fprintf(stderr, "prefill   %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)t.prompt,
            t.prefill * 1e3, (double)t.prompt / t.prefill);
    if (t.steps)
        fprintf(stderr, "decode    %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)t.decoded,
                t.decode * 1e3, (double)t.decoded / t.decode);
}
