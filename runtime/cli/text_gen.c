/* text_gen.c: processes the prompt, then generates token by token and prints the text as it appears
 * [PH22 A14]. */
#include "runtime/cli/text_gen.h"
#include "runtime/clock.h"
#include "runtime/sample.h"

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

static bool append_id(sn_ids *out, int32_t id, sn_error *err) {
    if (out->count == out->capacity) {
        size_t capacity = out->capacity ? 2 * out->capacity : 64;
        int32_t *more = realloc(out->data, capacity * sizeof *more);
        if (!more) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        out->data = more;
        out->capacity = capacity;
    }
    out->data[out->count++] = id;
    return true;
}

static bool read_numbers(const char *text, size_t size, sn_ids *out, sn_error *err) {
    for (size_t i = 0; i < size;) {
        if (strchr(" \t\r\n,", text[i])) {
            i++;
            continue;
        }
        int64_t v = 0;
        size_t from = i;
        while (i < size && text[i] >= '0' && text[i] <= '9' && v <= INT32_MAX)
            v = 10 * v + (text[i++] - '0');
        bool ends = i > from && (i == size || strchr(" \t\r\n,", text[i]));
        if (!ends || v > INT32_MAX)
            return sn_fail(
                err, SN_ERR_USAGE,
                "token ids are integers separated by spaces or commas; error at character %zu",
                i + 1);
        if (!append_id(out, (int32_t)v, err)) return false;
    }
    return true;
}

bool text_encode(const sn_tokenizer *t, const char *text, size_t size, bool bos, sn_ids *out,
                 sn_error *err) {
    sn_error wrong = {0};
    if (!t) {
        if (read_numbers(text, size, out, &wrong)) return true;
        return sn_fail(
            err, wrong.code,
            "this model has no tokenizer: pass token ids, or a tokenizer with --tokenizer (%s)",
            wrong.message);
    }
    bool has = sn_tokenizer_special(t, SN_TOKEN_BOS) >= 0;
    return sn_tokenizer_encode(t, text, size, SN_TOK_SPECIAL | (bos && has ? SN_TOK_BOS : 0), out,
                               err);
}

static bool append_text(sn_bytes *out, const char *data, size_t size, sn_error *err) {
    if (out->size + size + 1 > out->capacity) {
        size_t capacity = 2 * (out->size + size) + 64;
        char *more = realloc(out->data, capacity);
        if (!more) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        out->data = more;
        out->capacity = capacity;
    }
    if (size) memcpy(out->data + out->size, data, size);
    out->data[out->size += size] = 0;
    return true;
}

typedef struct run {
    const char *name;
    const text_model *m;
    const text_options *o;
    sn_sampler *sampler;
    sn_ids ids; /* the prompt */
    sn_text_stream stream;
    sn_bytes piece;
    sn_bytes held; /* generated text that is not printed yet: it may begin a stop text */
    bool first;
    int64_t made, past;
    const float *logits; /* after the last token so far */
    text_times *times;
} run;

/* ---- the prompt ---- */

static bool read_prompt(run *r, sn_error *err) {
    const text_options *o = r->o;
    if (o->ids) return read_numbers(o->ids, strlen(o->ids), &r->ids, err);
    size_t size = 0;
    char *text =
        o->prompt_file ? text_read(o->prompt_file, &size, err) : strdup(o->prompt ? o->prompt : "");
    if (!text) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!o->prompt_file) size = strlen(text);
    bool ok = o->chat
                  ? text_encode_chat(r->m, o->system, text, &r->ids, err)
                  : text_encode(r->m->tokenizer, text, size, !size || !r->m->no_bos, &r->ids, err);
    free(text);
    return ok;
}

static bool check_prompt(const run *r, sn_error *err) {
    long long n = (long long)r->ids.count, room = (long long)r->m->context;
    if (!n)
        return sn_fail(err, SN_ERR_USAGE,
                       "the prompt is empty and this model has no BOS token to start with: give "
                       "--prompt or --prompt-ids");
    if (n > room)
        return sn_fail(err, SN_ERR_RANGE,
                       "the prompt has %lld tokens, but the context holds only %lld: shorten it", n,
                       room);
    return true;
}

/* ---- output ---- */

/* Appends the text of a token to r->piece. */
static bool spell(run *r, int32_t id, sn_error *err) {
    size_t size;
    char number[16];
    r->piece.size = 0;
    if (sn_tokenizer_text(r->m->tokenizer, id, &size))
        return sn_text_stream_next(&r->stream, id, &r->piece, err);
    /* vocabularies padded to a round size have ids without text */
    int n = snprintf(number, sizeof number, "<%d>", (int)id);
    return append_text(&r->piece, number, (size_t)n, err);
}

static bool show(run *r, int32_t id, sn_error *err) {
    if (r->m->tokenizer && !spell(r, id, err)) return false;
    if (r->o->print_ids || !r->m->tokenizer) {
        printf(r->first ? "%d" : " %d", (int)id);
        r->first = false;
    } else if (r->piece.size)
        fwrite(r->piece.data, 1, r->piece.size, stdout);
    return true;
}

/* ---- stop texts ---- */

static void print_held(run *r, size_t size) {
    if (size && !r->o->print_ids) fwrite(r->held.data, 1, size, stdout);
    if (size) memmove(r->held.data, r->held.data + size, r->held.size - size);
    r->held.size -= size;
}

/* The first place in the held text where a whole stop text begins or, if there is none, where the
 * text ends with the beginning of one; its end: neither. */
static size_t find_stop(const run *r, bool *whole) {
    size_t found[2] = {r->held.size, r->held.size};
    for (size_t at = r->held.size; at-- > 0;)
        for (int i = 0; i < r->o->stop.n; i++) {
            const char *stop = r->o->stop.item[i];
            size_t n = strlen(stop), left = r->held.size - at;
            if (n && !memcmp(r->held.data + at, stop, n < left ? n : left)) found[n > left] = at;
        }
    *whole = found[0] < r->held.size;
    return found[!*whole];
}

/* Prints what cannot belong to a stop text. *stop: there is one. */
static bool show_until_stop(run *r, int32_t id, bool *stop, sn_error *err) {
    *stop = false;
    if (!r->o->stop.n || !r->m->tokenizer) return show(r, id, err);
    if (r->o->print_ids ? !show(r, id, err) : !spell(r, id, err)) return false;
    if (!append_text(&r->held, r->piece.data, r->piece.size, err)) return false;
    print_held(r, find_stop(r, stop));
    return true;
}

static bool is_end(const run *r, int32_t id) {
    const sn_tokenizer *t = r->m->tokenizer;
    if (r->o->ignore_eos) return false;
    for (int i = 0; i < r->m->n_eos; i++)
        if (id == r->m->eos[i]) return true;
    return t && (id == sn_tokenizer_special(t, SN_TOKEN_EOS) ||
                 id == sn_tokenizer_special(t, SN_TOKEN_BOS));
}

/* ---- generation ---- */

static bool feed(run *r, const int32_t *ids, int64_t n, double *seconds, sn_error *err) {
    double start = sn_clock();
    r->logits = r->m->feed(r->m->model, ids, n, err);
    *seconds += sn_clock() - start;
    r->past += n;
    return r->logits != NULL;
}

static bool decode(run *r, sn_error *err) {
    while (r->made < r->o->tokens) {
        int32_t id = sn_sampler_next(r->sampler, r->logits, err);
        if (id < 0) return false;
        r->made++;
        if (is_end(r, id)) return true;
        bool stop;
        if (!show_until_stop(r, id, &stop, err)) return false;
        if (stop) r->held.size = 0;
        if (stop) return true;
        fflush(stdout);
        if (ferror(stdout)) return true; /* reported at the end */
        if (r->made == r->o->tokens) return true;
        if (r->past == r->m->context) {
            fprintf(stderr, "\n%s: note: the context of %lld tokens is full\n", r->name,
                    (long long)r->m->context);
            return true;
        }
        if (!feed(r, &id, 1, &r->times->decode, err)) return false;
        r->times->steps++;
    }
    return true;
}

static bool generate(run *r, sn_error *err) {
    if (!read_prompt(r, err) || !check_prompt(r, err)) return false;
    r->times->prompt = (int64_t)r->ids.count;
    if (!feed(r, r->ids.data, r->times->prompt, &r->times->prefill, err)) return false;
    for (size_t i = 0; i < r->ids.count && !r->o->chat; i++)
        if (!show(r, r->ids.data[i], err)) return false;
    bool ok = sn_sampler_note(r->sampler, r->ids.data, r->ids.count, err) && decode(r, err);
    print_held(r, r->held.size);
    putchar('\n');
    return ok;
}

bool text_generate(const char *name, const text_model *m, const text_options *o, text_times *times,
                   sn_error *err) {
    text_options resolved = *o;
    *times = (text_times){0};
    if (!text_resolve(&resolved, m->folder, err)) return false;
    o = &resolved;
    sn_sample_options so = {.temperature = (float)o->temperature,
                            .top_k = (int32_t)o->top_k,
                            .top_p = (float)o->top_p,
                            .min_p = (float)o->min_p,
                            .repetition_penalty = (float)o->repetition_penalty,
                            .seed = (uint64_t)o->seed};
    run r = {.name = name, .m = m, .o = o, .first = true, .times = times};
    r.sampler = sn_sampler_new(&so, (size_t)m->vocab, err);
    if (m->tokenizer) r.stream = sn_text_stream_begin(m->tokenizer, 0);
    bool ok = r.sampler && generate(&r, err);
    sn_sampler_free(r.sampler);
    sn_ids_free(&r.ids);
    sn_bytes_free(&r.piece);
    sn_bytes_free(&r.held);
    return ok;
}

void text_print_times(const text_times *t) {
    fprintf(stderr, "prefill   %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)t->prompt,
            t->prefill * 1e3, (double)t->prompt / t->prefill);
    if (t->steps)
        fprintf(stderr, "decode    %lld tokens in %.2f ms: %.0f tokens/s\n", (long long)t->steps,
                t->decode * 1e3, (double)t->steps / t->decode);
}
