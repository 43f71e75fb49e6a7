/* tok_language.c: tokens that stand for the language of a text. */
#include <stdio.h>
#include <string.h>

#include "model/tokenizer/tok.h"

bool sn_tokenizer_has_template(const sn_tokenizer *t) {
    return t->templated;
}

int32_t sn_tokenizer_language(const sn_tokenizer *t, const char *code) {
    char name[64];
    int32_t id = sn_vocab_find(&t->vocab, code, strlen(code));
    if (sn_tokenizer_is_language(t, id)) return id;
    snprintf(name, sizeof name, "__%.50s__", code);
    id = sn_vocab_find(&t->vocab, name, strlen(name));
    return sn_tokenizer_is_language(t, id) ? id : -1;
}

bool sn_tokenizer_is_language(const sn_tokenizer *t, int32_t id) {
    size_t size;
    const char *text = sn_vocab_text(&t->vocab, id, &size);
    return size && sn_vocab_entry(&t->vocab, id)->flags & SN_TOKEN_CONTROL && *text != '<' &&
           *text != '[';
}

bool sn_tokenizer_set_language(sn_tokenizer *t, int32_t id, sn_error *err) {
    sn_ids *const sides[] = {&t->before, &t->after};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < sides[side]->count; i++)
            if (sn_tokenizer_is_language(t, sides[side]->data[i])) {
                sides[side]->data[i] = id;
                return true;
            }
    if (!sn_ids_push(&t->before, id, err)) return false;
    memmove(t->before.data + 1, t->before.data, sizeof id * (t->before.count - 1));
    t->before.data[0] = id;
    return true;
}
