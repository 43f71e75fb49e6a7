/* translator.c: an encoder-decoder: translates lines of text with the entries prefill, decode and
 * reorder. */
#include "model/deploy/program.h"

#include <stdlib.h>
#include <string.h>

typedef struct translator {
    program *p;
    float *hidden; /* the encoder's result; the decoder reads it from the state */
    int32_t *moved;
} translator;

/* Sets the entry's dims P and S, in its order. */
static void set_dims(const program *p, const char *entry, int64_t past, int64_t n, int64_t *dims) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, entry);
    for (int i = 0; i < e->n_dim; i++) dims[i] = strcmp(e->dim[i].name, "P") ? n : past;
}

typedef struct argument {
    const char *name;
    void *data;
} argument;

enum { MAX_ARGUMENTS = 3 };

static const argument *find(const argument *list, const char *name) {
    for (int i = 0; i < MAX_ARGUMENTS && list[i].name; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

/* Calls an entry that has exactly these tensors, in whatever order. */
static bool call(translator *t, const char *entry, const int64_t *dims, const argument *list,
                 sn_error *err) {
    const sn_manifest_entry *e = sn_manifest_get(&t->p->manifest, entry);
    void *args[MAX_ARGUMENTS];
    for (int i = 0; i < e->n_tensor; i++) args[i] = find(list, e->tensor[i].name)->data;
    return sn_program_call(t->p, entry, dims, args, err);
}

static bool encode(void *model, const int32_t *source, int32_t n, sn_error *err) {
    translator *t = model;
    int64_t dims[SN_MANIFEST_DIMS];
    const argument args[MAX_ARGUMENTS] = {
        {"source", (void *)(uintptr_t)source}, {"lengths", &n}, {"hidden", t->hidden}};
    set_dims(t->p, "prefill", 0, n, dims);
    t->p->a->state_init(&t->p->model, t->p->state);
    return call(t, "prefill", dims, args, err);
}

static bool next(void *model, const int32_t *tokens, int64_t past, int32_t n, float *logits,
                 sn_error *err) {
    translator *t = model;
    int64_t dims[SN_MANIFEST_DIMS];
    const argument args[MAX_ARGUMENTS] = {
        {"tokens", (void *)(uintptr_t)tokens}, {"lengths", &n}, {"logits", logits}};
    set_dims(t->p, "decode", past, n, dims);
    return call(t, "decode", dims, args, err);
}

static bool follow(void *model, const int32_t *parents, sn_error *err) {
    translator *t = model;
    const argument args[MAX_ARGUMENTS] = {{"parents", (void *)(uintptr_t)parents},
                                          {"parents_out", t->moved}};
    return call(t, "reorder", NULL, args, err);
}

/* Whether the entry has exactly these tensors. */
static bool has_tensors(const program *p, const char *entry, const argument *list) {
    const sn_manifest_entry *e = sn_manifest_get(&p->manifest, entry);
    int n = 0;
    while (n < MAX_ARGUMENTS && list[n].name) n++;
    if (!e || e->n_tensor != n) return false;
    for (int i = 0; i < n; i++)
        if (!find(list, e->tensor[i].name)) return false;
    return true;
}

bool sn_program_is_translator(const program *p) {
    static const argument prefill[MAX_ARGUMENTS] = {{.name = "source"},
                                                    {.name = "lengths"},
                                                    {.name = "hidden"}},
                          decode[MAX_ARGUMENTS] = {{.name = "tokens"},
                                                   {.name = "lengths"},
                                                   {.name = "logits"}},
                          reorder[MAX_ARGUMENTS] = {{.name = "parents"}, {.name = "parents_out"}};
    return has_tensors(p, "prefill", prefill) && has_tensors(p, "decode", decode) &&
           has_tensors(p, "reorder", reorder);
}

/* The numbers of a shape such as "[4,43]". */
static void read_shape(const char *shape, int64_t *first, int64_t *last) {
    const char *comma = strrchr(shape, ',');
    *first = strtoll(shape + 1, NULL, 10);
    *last = comma ? strtoll(comma + 1, NULL, 10) : *first;
}

bool sn_program_translate(program *p, sn_error *err) {
    const sn_manifest_entry *prefill = sn_manifest_get(&p->manifest, "prefill"),
                            *decode = sn_manifest_get(&p->manifest, "decode");
    translator t = {.p = p};
    seq2seq_model m = {.model = &t,
                       .context = prefill->dim[0].hi,
                       .source_vocab = p->manifest.source_vocab,
                       .bos = p->manifest.bos,
                       .eos = p->manifest.n_eos ? p->manifest.eos[0] : -1,
                       .rules = &p->rules,
                       .encode = encode,
                       .next = next,
                       .follow = follow};
    seq2seq_totals totals = {0};
    int64_t one, width;
    read_shape(decode->tensor[2].shape, &m.rows, &m.vocab);
    read_shape(prefill->tensor[2].shape, &one, &width);
    t.hidden = calloc((size_t)(m.context * width) + 1, sizeof *t.hidden);
    t.moved = calloc((size_t)m.rows + 1, sizeof *t.moved);
    sn_tokenizer *source = p->source ? p->source : p->tokenizer;
    bool ok = ((t.hidden && t.moved) || sn_fail(err, SN_ERR_MEMORY, "out of memory")) &&
              sn_seq2seq_run(&m, source, p->tokenizer, &p->o->pair, &totals, err);
    if (ok && p->o->pair.stats) sn_seq2seq_print_totals(&totals);
    free(t.hidden);
    free(t.moved);
    return ok;
}
