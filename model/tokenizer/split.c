/* split.c: runs the steps before the model: normalizers, then pre-tokenizers. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/steps.h"
#include "model/tokenizer/tok_letters.h"

enum { MAX_STEPS = 16 };

sn_norm *sn_tok_add_norm(sn_tokenizer *t, sn_error *err) {
    if (!t->norm && !(t->norm = calloc(MAX_STEPS, sizeof *t->norm))) {
        sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
        return NULL;
    }
    if (t->norms < MAX_STEPS) return &t->norm[t->norms++];
    sn_fail(err, SN_ERR_FILE, "more than %d normalizers", MAX_STEPS);
    return NULL;
}

sn_split *sn_tok_add_split(sn_tokenizer *t, const char *pattern, sn_behavior behavior,
                           sn_error *err) {
    if (!t->split && !(t->split = calloc(MAX_STEPS, sizeof *t->split))) {
        sn_fail(err, SN_ERR_MEMORY, "tokenizer: out of memory");
        return NULL;
    }
    if (t->splits == MAX_STEPS) {
        sn_fail(err, SN_ERR_FILE, "more than %d pre-tokenizers", MAX_STEPS);
        return NULL;
    }
    sn_regex *regex = pattern ? sn_regex_new(pattern, strlen(pattern), err) : NULL;
    if (pattern && !regex) return NULL;
    sn_split *s = &t->split[t->splits++];
    *s = (sn_split){.regex = regex, .behavior = behavior};
    return s;
}

void sn_steps_free(sn_tokenizer *t) {
    for (size_t i = 0; i < t->norms; i++) {
        sn_bytes_free(&t->norm[i].text);
        sn_regex_free(t->norm[i].regex);
        sn_charsmap_free(&t->norm[i].map);
        sn_vocab_free(&t->norm[i].users);
    }
    for (size_t i = 0; i < t->splits; i++) sn_regex_free(t->split[i].regex);
    free(t->norm);
    free(t->split);
}

bool sn_tokenizer_needs_regex(const sn_tokenizer *t) {
    bool needs = false;
    for (size_t i = 0; i < t->norms; i++) needs |= t->norm[i].regex != NULL;
    for (size_t i = 0; i < t->splits; i++) needs |= t->split[i].regex != NULL;
    return needs;
}

bool sn_steps_normalize(const sn_tokenizer *t, sn_leaves *in, sn_bytes buffer[2], sn_error *err) {
    for (size_t i = 0; i < t->norms; i++) {
        sn_bytes *out = &buffer[i % 2];
        out->size = 0;
        if (!sn_bytes_append(out, "", 0, err) || !t->norm[i].run(&t->norm[i], *in, out, err))
            return false;
        in->text = out->data, in->size = out->size;
    }
    return true;
}

/* ---- splitting ---- */

typedef struct splitting {
    const sn_tokenizer *t;
    sn_bytes buffer[MAX_STEPS + 1]; /* of each step; the last swaps spaces */
    sn_piece fn;
    void *ctx;
    sn_error *err;
} splitting;

/* What one step does with one piece. */
typedef struct stage {
    splitting *run;
    size_t level;
    bool first;
    const char *start;
    /* a piece that may grow; size 0: none */
    const char *held;
    size_t held_size;
    bool held_match;
} stage;

static bool run_level(splitting *run, size_t level, sn_leaves in);

static bool send(stage *s, const char *text, size_t size) {
    if (!size) return true;
    return run_level(s->run, s->level + 1, (sn_leaves){text, size, s->first && text == s->start});
}

/* Sends the piece that was held and holds another one. */
static bool hold(stage *s, const char *text, size_t size, bool match) {
    const char *before = s->held;
    size_t before_size = s->held_size;
    s->held = text, s->held_size = size, s->held_match = match;
    return send(s, before, before_size);
}

static bool take_piece(void *ctx, const char *text, size_t size, bool matched) {
    stage *s = ctx;
    const sn_split *step = &s->run->t->split[s->level];
    bool match = matched != step->invert, grow;
    switch (step->behavior) {
    case SN_REMOVED:
        return match || send(s, text, size);
    case SN_CONTIGUOUS:
        grow = s->held_size && s->held_match == match;
        break;
    case SN_MERGED_WITH_PREVIOUS: /* a match joins what precedes it, but no other match */
        grow = s->held_size && match && !s->held_match;
        break;
    case SN_MERGED_WITH_NEXT:
        grow = s->held_size && !match && s->held_match;
        break;
    default:
        return send(s, text, size);
    }
    if (!grow) return hold(s, text, size, match);
    s->held_size += size, s->held_match = match;
    return true;
}

/* Spells bytes as letters, or replaces spaces by the step's text and adds the prefix. */
static bool prepare(const sn_split *s, sn_leaves *in, sn_bytes *out, sn_error *err) {
    if (s->spell) {
        out->size = 0;
        bool ok = sn_gpt2_spell(in->text, in->size, out, err);
        in->text = out->data, in->size = out->size;
        return ok;
    }
    const char *space = *s->space ? s->space : " ";
    size_t n = strlen(space);
    bool begins = in->text[0] == ' ' || (in->size >= n && !memcmp(in->text, space, n));
    bool prefix = (s->prefix == SN_PREFIX_ALWAYS || (s->prefix == SN_PREFIX_FIRST && in->first)) &&
                  !(s->unless && begins);
    if (!prefix && !*s->space) return true;
    out->size = 0;
    if (!sn_bytes_append(out, space, prefix ? n : 0, err)) return false;
    for (size_t at = 0, end; at < in->size; at = end) {
        for (end = at; end < in->size && in->text[end] != ' ';) end++;
        if (!sn_bytes_append(out, in->text + at, end - at, err) ||
            (end < in->size && (end++, !sn_bytes_append(out, space, n, err))))
            return false;
    }
    in->text = out->data, in->size = out->size;
    return true;
}

/* Gives the model a piece as the texts of the vocabulary are written. */
static bool emit_piece(splitting *run, sn_leaves in) {
    const sn_tokenizer *t = run->t;
    sn_bytes *out = &run->buffer[MAX_STEPS];
    out->size = 0;
    if (t->spelled && !sn_gpt2_decode_chars(in.text, in.size, out, run->err)) return false;
    if (t->swapped && !sn_swap_spaces(in.text, in.size, out, run->err)) return false;
    bool changed = t->spelled || t->swapped;
    return run->fn(run->ctx, changed ? out->data : in.text, changed ? out->size : in.size);
}

static bool run_level(splitting *run, size_t level, sn_leaves in) {
    if (level == run->t->splits) return emit_piece(run, in);
    const sn_split *step = &run->t->split[level];
    if (!prepare(step, &in, &run->buffer[level], run->err)) return false;
    stage s = {.run = run, .level = level, .first = in.first, .start = in.text};
    if (!step->regex) return send(&s, in.text, in.size);
    return sn_regex_split(step->regex, in.text, in.size, take_piece, &s, run->err) &&
           send(&s, s.held, s.held_size);
}

bool sn_steps_split(const sn_tokenizer *t, sn_leaves in, sn_piece fn, void *ctx, sn_error *err) {
    splitting run = {.t = t, .fn = fn, .ctx = ctx, .err = err};
    bool ok = in.size == 0 || run_level(&run, 0, in);
    for (size_t i = 0; i <= MAX_STEPS; i++) sn_bytes_free(&run.buffer[i]);
    return ok;
}
