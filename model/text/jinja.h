/* jinja.h: the part of the Jinja template language that chat templates of language models use.
 * Statements: for (with a condition and `loop`), if, set (also of a namespace). Expressions:
 * literals, operators, tests, filters, slices, conditional expressions, methods of texts and
 * dictionaries. White space as transformers configures it (trim_blocks, lstrip_blocks). What is
 * missing is an error that names the construct and its line, if the template gets there. */
#ifndef SN_JINJA_H
#define SN_JINJA_H

#include "model/tokenizer.h"

typedef struct sn_chat_message {
    const char *role, *content; /* "system", "user", "assistant" */
} sn_chat_message;

typedef struct sn_chat {
    const sn_chat_message *message; /* [count] */
    size_t count;
    bool add_generation_prompt; /* ends with the beginning of an answer */
    const char *bos, *eos;      /* texts of these tokens; NULL: undefined */
} sn_chat;

/* Appends the text that the template makes of a chat. False: the error names the construct and its
 * line, the limit that the template exceeds (10^7 steps, 64 MB, values nested 64 deep), or is the
 * template's own (raise_exception). */
bool sn_chat_render(const char *text, const sn_chat *chat, sn_bytes *out, sn_error *err);

#endif
