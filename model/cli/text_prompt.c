/* text_prompt.c: the prompt and the request that a command line asks for. */
#include "model/cli/text_gen.h"
#include "model/text/generation_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the request ---- */

/* An option that is 0 on the command line says 0; in a request, it has the model's default. */
static int64_t number(int64_t value) {
    return value < 0 ? 0 : value ? value : -1;
}

static double fraction(double value) {
    return isnan(value) ? 0 : value > 0 ? value : -1;
}

sn_lm_request sn_text_request(const text_options *o) {
    return (sn_lm_request){.chat = o->chat,
                           .tokens = o->tokens < 0 ? 0
                                     : o->tokens   ? o->tokens
                                                   : 1,
                           .greedy = o->temperature == 0,
                           .temperature = isnan(o->temperature) ? 0 : o->temperature,
                           .top_p = isnan(o->top_p) ? 0 : o->top_p,
                           .min_p = fraction(o->min_p),
                           .top_k = number(o->top_k),
                           .repetition_penalty =
                               isnan(o->repetition_penalty) ? 0 : o->repetition_penalty,
                           .seed = (uint64_t)o->seed,
                           .stop = o->stop.item,
                           .n_stop = o->stop.n,
                           .ignore_eos = o->ignore_eos,
                           .scores = o->best_of > 0};
}

bool sn_text_read_prompt(const sn_lm *m, const text_options *o, const char *line, size_t size,
                         sn_ids *out, sn_error *err) {
    if (o->ids && !line) return sn_lm_read_ids(o->ids, strlen(o->ids), out, err);
    char *text = line             ? strndup(line, size)
                 : o->prompt_file ? sn_text_read(o->prompt_file, &size, err)
                                  : strdup(o->prompt ? o->prompt : "");
    if (!text) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!line && !o->prompt_file) size = strlen(text);
    const sn_lm_request chat = {.prompt = text, .chat = true, .system = o->system};
    bool ok =
        o->chat ? sn_lm_read_prompt(m, &chat, out, err) : sn_lm_encode(m, text, size, out, err);
    free(text);
    return ok;
}

sn_lm_sequence *sn_text_begin(sn_lm *m, const text_options *o, const char *line, size_t size,
                              sn_error *err) {
    static const int32_t none;
    sn_lm_request r = sn_text_request(o);
    sn_ids ids = {0};
    bool ok = sn_text_read_prompt(m, o, line, size, &ids, err);
    r.ids = ids.data ? ids.data : &none;
    r.n_ids = (int64_t)ids.count;
    sn_lm_sequence *s = ok ? sn_lm_begin(m, &r, err) : NULL;
    sn_ids_free(&ids);
    return s;
}
