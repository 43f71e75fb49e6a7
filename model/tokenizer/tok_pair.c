/* tok_pair.c: joins two texts to one sequence, as post-processors do. */
#include "model/tokenizer/tok.h"

#include "runtime/problems.h"

#include <string.h>

/* Appends ids of one token type. */
static bool push(sn_ids *out, sn_ids *types, const int32_t *ids, size_t n, int type,
                 sn_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!sn_ids_push(out, ids[i], err) || !sn_ids_push(types, type, err)) return false;
    return true;
}

static int type_of_second(const sn_tokenizer *t) {
    return t->paired ? t->second_type : strcmp(t->kind->name, "gpt2-bpe") != 0;
}

/* What is before (0), between (1) and after (2) the texts: as the file says; else what a single text
 * gets, and twice eos between texts of byte-level BPE. */
static bool push_part(const sn_tokenizer *t, int part, sn_ids *out, sn_ids *types, sn_error *err) {
    bool bytes = !strcmp(t->kind->name, "gpt2-bpe");
    const sn_ids *usual = part ? &t->after : &t->before;
    int32_t special = t->special[part ? SN_TOKEN_EOS : SN_TOKEN_BOS];
    int type = part == 2 ? type_of_second(t) : 0;
    if (t->paired) return push(out, types, t->pair[part].data, t->pair[part].count, type, err);
    for (int i = 0; i < (part == 1 && bytes ? 2 : 1); i++)
        if (usual->count
                ? !push(out, types, usual->data, usual->count, type, err)
                : !t->templated && special >= 0 && !push(out, types, &special, 1, type, err))
            return false;
    return true;
}

bool sn_tokenizer_join(const sn_tokenizer *t, const sn_ids *first, const int32_t *second, size_t n,
                       sn_ids *out, sn_ids *types, size_t *at, sn_error *err) {
    if (!sn_given(t, "sn_tokenizer_join", "the tokenizer", err) ||
        !sn_given(first, "sn_tokenizer_join", "the first text", err) ||
        !sn_given(out, "sn_tokenizer_join", "the list for the ids", err) ||
        !sn_given(types, "sn_tokenizer_join", "the list for the types", err))
        return false;
    size_t before = out->count, before_types = types->count;
    bool ok = push_part(t, 0, out, types, err) &&
              push(out, types, first->data, first->count, 0, err) &&
              push_part(t, 1, out, types, err);
    if (ok && at) *at = out->count - before;
    ok = ok && push(out, types, second, n, type_of_second(t), err) &&
         push_part(t, 2, out, types, err);
    if (ok) return true;
    out->count = before;
    types->count = before_types;
    return false;
}
