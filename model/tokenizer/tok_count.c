/* tok_count.c: what the trainers share: counts of texts, special tokens. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/tok_train.h"

bool sn_count_text(sn_counter *c, const char *text, size_t size, sn_error *err) {
    int32_t id = sn_vocab_find(&c->texts, text, size);
    if (id < 0) {
        id = (int32_t)c->texts.count;
        if (id == INT32_MAX - 1) return sn_fail(err, SN_ERR_RANGE, "too many distinct words");
        if (!sn_grow(&c->count, &c->capacity, (size_t)id + 1, sizeof *c->count, err) ||
            !sn_vocab_set(&c->texts, id, text, size, 0, err))
            return false;
        c->count[id] = 0;
    }
    c->count[id]++;
    return true;
}

void sn_counter_free(sn_counter *c) {
    sn_vocab_free(&c->texts);
    free(c->count);
    *c = (sn_counter){0};
}

bool sn_train_finish(sn_tokenizer *t, sn_error *err) {
    static const struct {
        sn_token_role role;
        const char *name;
    } specials[SN_TRAIN_SPECIALS] = {
        {SN_TOKEN_MASK, "<|mask|>"}, {SN_TOKEN_BOS, "<|bos|>"}, {SN_TOKEN_EOS, "<|eos|>"}};
    for (int i = 0; i < SN_TRAIN_SPECIALS; i++) {
        const char *name = specials[i].name;
        int32_t id = t->special[specials[i].role] = (int32_t)t->vocab.count;
        if (!sn_vocab_set(&t->vocab, id, name, strlen(name), 0, err)) return false;
    }
    return sn_tok_finish(t, NULL, err);
}
