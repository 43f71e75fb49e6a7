/* tok_added.c: added tokens as Hugging Face's files describe them. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer/steps.h"

bool sn_tok_take_added(sn_tokenizer *t, const char *path, int32_t id, const cJSON *token,
                       sn_error *err) {
    const char *content = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(token, "content"));
    size_t size;
    if (!content)
        return sn_fail(err, SN_ERR_FILE, "%s: the added token %d has no content", path, (int)id);
    bool special = sn_json_flag(token, "special", false);
    sn_added a = {.id = id,
                  .special = special,
                  .lstrip = sn_json_flag(token, "lstrip", false),
                  .rstrip = sn_json_flag(token, "rstrip", false),
                  .single_word = sn_json_flag(token, "single_word", false),
                  .normalized = sn_json_flag(token, "normalized", !special) && t->norms};
    if (a.single_word && !sn_unicode_need(t, err)) return false;
    if (!sn_vocab_text(&t->vocab, id, &size) &&
        !sn_vocab_set(&t->vocab, id, content, strlen(content), 0, err))
        return false;
    if (special) t->vocab.entry[id].flags |= SN_TOKEN_CONTROL;
    sn_bytes buffer[2] = {{0}, {0}};
    sn_leaves text = {content, strlen(content), true};
    bool ok = !a.normalized || sn_steps_normalize(t, &text, buffer, err);
    a.text = (char *)(uintptr_t)text.text, a.size = text.size;
    ok = ok && sn_tok_add(t, &a, err);
    sn_bytes_free(&buffer[0]);
    sn_bytes_free(&buffer[1]);
    return ok;
}

bool sn_tok_read_added(sn_tokenizer *t, const char *path, const cJSON *config, sn_error *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder");
    int32_t limit = sn_vocab_limit(t->vocab.count);
    for (const cJSON *e = cJSON_IsObject(list) ? list->child : NULL; e; e = e->next) {
        char *end;
        long id = strtol(e->string, &end, 10);
        if (*end || end == e->string || id < 0 || id > limit)
            return sn_fail(err, SN_ERR_FILE,
                           "%s: tokenizer_config.json: \"%.60s\" in added_tokens_decoder is not an "
                           "id in 0..%d",
                           path, e->string, (int)limit);
        bool known = false;
        for (int set = 0; set < 2; set++)
            for (size_t i = 0; i < t->added[set].count; i++)
                known = known || t->added[set].item[i].id == id;
        if (!known && !sn_tok_take_added(t, path, (int32_t)id, e, err)) return false;
    }
    return true;
}
