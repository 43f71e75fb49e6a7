/* text_json.c: generated texts as JSON. */
#include "runtime/cli/json_out.h"
#include "model/cli/text_gen.h"

const arg_key sn_text_keys[] = {
    {"index", "integer", "number of the prompt, from 0"},
    {"prompt", "text", "as the tokenizer decodes it; empty for a chat, and with --beams"},
    {"text", "text", "what follows the prompt"},
    {"ids", "list", "token ids of the text, without the one that ended it"},
    {"prompt_tokens", "integer", "number of tokens of the prompt"},
    {"end", "text", "why the text ends: token, stop, tokens, context, search, interrupted"},
    {0}};

void sn_text_print_json(const sn_lm_sequence *s, int64_t index, const char *text,
                        const int32_t *ids, int64_t n, int64_t prompt) {
    static const char *const ends[] = {[SN_LM_RUNNING] = "tokens",
                                       [SN_LM_END_TOKEN] = "token",
                                       [SN_LM_STOP] = "stop",
                                       [SN_LM_TOKENS] = "tokens",
                                       [SN_LM_CONTEXT] = "context"};
    const char *end = s ? ends[sn_lm_ended(s)] : "search";
    if (s) {
        ids = sn_lm_tokens(s, &n);
        prompt = sn_lm_prompt_tokens(s);
        n -= sn_lm_ended(s) == SN_LM_END_TOKEN;
        if (!sn_lm_ended(s) && sn_screen_stopped()) end = "interrupted";
    }
    json_out j = sn_json_begin(stdout);
    sn_json_integer(&j, "index", index);
    sn_json_text(&j, "prompt", s ? sn_lm_prompt_text(s) : "");
    sn_json_text(&j, "text", text ? text : "");
    sn_json_ids(&j, "ids", ids + prompt, n > prompt ? n - prompt : 0);
    sn_json_integer(&j, "prompt_tokens", prompt);
    sn_json_text(&j, "end", end);
    sn_json_end(&j);
}
