/* encoder.c: text in, vectors out: the mean over the tokens, or one a token. */
#include "deploy/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_text(const program *p, sn_ids *ids, sn_error *err) {
    const text_options *o = &p->o->text;
    size_t size = 0;
    if (o->ids) return text_encode(NULL, o->ids, strlen(o->ids), false, ids, err);
    if (!o->prompt && !o->prompt_file)
        return sn_fail(err, SN_ERR_USAGE, "give a text: --prompt, --prompt-file or --prompt-ids");
    char *text = o->prompt_file ? text_read(o->prompt_file, &size, err) : strdup(o->prompt);
    if (!text) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!o->prompt_file) size = strlen(text);
    unsigned flags = SN_TOK_SPECIAL;
    for (int r = 0; p->tokenizer && r < 2; r++) /* [CLS] text [SEP], where there are such */
        if (sn_tokenizer_special(p->tokenizer, r ? SN_TOKEN_EOS : SN_TOKEN_BOS) >= 0)
            flags |= r ? SN_TOK_EOS : SN_TOK_BOS;
    bool ok = p->tokenizer ? sn_tokenizer_encode(p->tokenizer, text, size, flags, ids, err)
                           : text_encode(NULL, text, size, false, ids, err);
    free(text);
    return ok && (ids->count || sn_fail(err, SN_ERR_USAGE, "the text has no tokens"));
}

static void print_row(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) printf(i ? " %.6g" : "%.6g", x[i]);
    putchar('\n');
}

/* rows x d: all, or their mean in the first. */
static void print_hidden(const program *p, float *x, int64_t rows, int64_t d) {
    if (p->o->all) {
        for (int64_t r = 0; r < rows; r++) print_row(x + r * d, d);
        return;
    }
    for (int64_t i = 0; i < d; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += x[r * d + i];
        x[i] = (float)(sum / (double)rows);
    }
    print_row(x, d);
}

/* Inputs by name: the ids, their number, anything else (segments) zeros. */
static void *input_of(const sn_manifest_tensor *t, const sn_ids *ids, int32_t *count,
                      int32_t *zeros) {
    bool is_ids = !strcmp(t->name, "tokens") || !strcmp(t->name, "source");
    return is_ids ? ids->data : !strcmp(t->name, "lengths") ? count : zeros;
}

bool program_encode(program *p, sn_error *err) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, "encode");
    sn_ids ids = {0};
    if (!read_text(p, &ids, err)) {
        sn_ids_free(&ids);
        return false;
    }
    int64_t dims[SN_MANIFEST_DIMS], d = 0;
    for (int i = 0; i < e->n_dim; i++)
        dims[i] = strcmp(e->dim[i].name, "B") ? (int64_t)ids.count : 1;
    const char *comma = strrchr(e->tensor[e->n_tensor - 1].shape, ',');
    if (comma) d = strtoll(comma + 1, NULL, 10);
    int32_t count = (int32_t)ids.count, *zeros = calloc(ids.count, sizeof *zeros);
    float *hidden = calloc(ids.count, sizeof *hidden * (size_t)(d > 0 ? d : 1));
    void *args[SN_MANIFEST_TENSORS];
    for (int i = 0; i < e->n_tensor; i++)
        args[i] = e->tensor[i].is_output ? hidden : input_of(&e->tensor[i], &ids, &count, zeros);
    bool ok = (zeros && hidden && d > 0) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && program_call(p, "encode", dims, args, err);
    if (ok) print_hidden(p, hidden, count, d);
    free(zeros);
    free(hidden);
    sn_ids_free(&ids);
    return ok;
}
