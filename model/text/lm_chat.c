/* lm_chat.c: the prompt of a chat, by the template that belongs to the model. */
#include "runtime/files/gguf.h"
#include "model/text/jinja.h"
#include "model/text/generation_impl.h"
#include "model/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

/* The template in a tokenizer_config.json: a text, or that of the list that is called "default". */
static const char *find_template(const cJSON *config) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    for (const cJSON *e = cJSON_IsArray(item) ? item->child : NULL; e; e = e->next) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "name"));
        if (name && !strcmp(name, "default"))
            return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "template"));
    }
    return cJSON_GetStringValue(item);
}

static char *template_of_config(const char *path, sn_error *err) {
    cJSON *config = sn_json_read(path, err);
    const char *found = config ? find_template(config) : NULL;
    char *copy = found ? strdup(found) : NULL;
    if (config && !found)
        sn_fail(err, SN_ERR_FILE,
                "%s has no \"chat_template\": this model has no chat template; write the prompt as "
                "the model expects it, without --chat",
                path);
    cJSON_Delete(config);
    return copy;
}

static char *read_file(const char *path, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return NULL;
    char *text = strndup((const char *)m.data, m.size);
    if (!text) sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_file_unmap(&m);
    return text;
}

static char *template_of_gguf(const char *path, sn_error *err) {
    const char *text;
    size_t at = 0, size;
    sn_gguf *g = sn_gguf_open(path, err);
    bool has = g && sn_gguf_string(sn_gguf_find(g, "tokenizer.chat_template"), &at, &text, &size);
    char *copy = has ? strndup(text, size) : NULL;
    if (g && !copy)
        sn_fail(err, has ? SN_ERR_MEMORY : SN_ERR_FILE,
                has ? "%s: out of memory"
                    : "%s has no key \"tokenizer.chat_template\": this model has no chat template; "
                      "write the prompt as the model expects it, without --chat",
                path);
    sn_gguf_close(g);
    return copy;
}

/* folder: may be a GGUF file. */
static char *read_template(const char *folder, sn_error *err) {
    if (folder && sn_gguf_is_file(folder)) return template_of_gguf(folder, err);
    char *file = folder ? sn_path_join(folder, "chat_template.jinja") : NULL;
    char *config = folder ? sn_path_join(folder, "tokenizer_config.json") : NULL;
    char *text = NULL;
    if (file && sn_file_exists(file))
        text = read_file(file, err);
    else if (config && sn_file_exists(config))
        text = template_of_config(config, err);
    else
        sn_fail(err, SN_ERR_FILE,
                "this model has no chat template: neither a chat_template.jinja nor a "
                "tokenizer_config.json beside it; write the prompt as the model expects it, "
                "without --chat");
    free(file);
    free(config);
    return text;
}

static const char *role_text(const sn_tokenizer *t, sn_token_role role) {
    size_t size;
    return sn_tokenizer_text(t, sn_tokenizer_special(t, role), &size);
}

bool sn_lm_encode_chat(const sn_tokenizer *t, const char *folder, const char *system,
                       const char *user, sn_ids *out, sn_error *err) {
    if (!t) return sn_fail(err, SN_ERR_USAGE, "a chat needs a model with a tokenizer");
    char *text = read_template(folder, err);
    if (!text) return false;
    const sn_chat_message message[] = {{"system", system}, {"user", user}};
    const sn_chat chat = {.message = system ? message : message + 1,
                          .count = system ? 2 : 1,
                          .add_generation_prompt = true,
                          .bos = role_text(t, SN_TOKEN_BOS),
                          .eos = role_text(t, SN_TOKEN_EOS)};
    sn_bytes prompt = {0};
    bool ok = sn_chat_render(text, &chat, &prompt, err) &&
              sn_tokenizer_encode(t, prompt.data, prompt.size, SN_TOK_SPECIAL, out, err);
    sn_bytes_free(&prompt);
    free(text);
    return ok;
}
