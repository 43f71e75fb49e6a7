/* ends.c: the tokens that start and end texts, from the tokenizer, config.json and
 * generation_config.json. */
#include "model/open.h"
#include "runtime/file.h"

#include <stdlib.h>

/* Ignores ids outside the vocabulary, which occur in configs of truncated models. */
static void add_end(open_model *m, int64_t id) {
    for (int i = 0; i < m->io->n_eos; i++)
        if (m->io->eos[i] == id) return;
    if (id >= 0 && (!m->model.vocab || id < m->model.vocab) && m->io->n_eos < LM_ENDS)
        m->io->eos[m->io->n_eos++] = (int32_t)id;
}

static bool add_ends(open_model *m, sn_config *c, sn_error *err) {
    int64_t id[LM_ENDS];
    size_t n = sn_config_int_list(c, "eos_token_id", id, LM_ENDS, INT32_MIN, INT32_MAX);
    for (size_t i = 0; i < n; i++) add_end(m, id[i]);
    return sn_config_check(c, err);
}

bool lm_open_ends(open_model *m, const char *folder, sn_error *err) {
    if (m->config && !add_ends(m, m->config, err)) return false;
    char *path = folder ? sn_path_join(folder, "generation_config.json") : NULL;
    if (folder && !path) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (path && sn_file_exists(path)) {
        sn_config *c = sn_config_open(path, err);
        bool ok = c && add_ends(m, c, err);
        sn_config_free(c);
        if (!ok) {
            free(path);
            return false;
        }
    }
    free(path);
    if (m->io->tokenizer) add_end(m, sn_tokenizer_special(m->io->tokenizer, SN_TOKEN_EOS));
    return true;
}

int32_t lm_bos(const open_model *m) {
    return m->io->tokenizer ? sn_tokenizer_special(m->io->tokenizer, SN_TOKEN_BOS) : -1;
}

static bool fail_token(const char *role, const char *key, sn_error *err) {
    return sn_fail(
        err, SN_ERR_USAGE,
        "the vocabulary has no %s token, and config.json no \"%s\": a result could not %s", role,
        key, role);
}

/* The token that starts a result: the config's token must be in the vocabulary. */
static bool find_begin(const open_model *m, const char *key, int32_t *out, sn_error *err) {
    int64_t id = sn_config_has(m->config, key)
                     ? sn_config_int(m->config, key, 0, m->model.vocab - 1)
                 : m->io->tokenizer ? lm_bos(m)
                                    : m->model.vocab - 2;
    *out = (int32_t)id;
    return sn_config_check(m->config, err) && (id >= 0 || fail_token("begin", key, err));
}

bool translate_ends(const open_model *m, int32_t *bos, int32_t *eos, sn_error *err) {
    bool start = sn_config_has(m->config, "decoder_start_token_id");
    if (m->io->rules.start >= 0 && m->io->rules.start < m->model.vocab)
        *bos = m->io->rules.start;
    else if (!find_begin(m, start ? "decoder_start_token_id" : "bos_token_id", bos, err))
        return false;
    int64_t id[LM_ENDS];
    size_t n = sn_config_int_list(m->config, "eos_token_id", id, LM_ENDS, 0, m->model.vocab - 1);
    if (m->io->rules.eos >= 0 && m->io->rules.eos < m->model.vocab) n = 1, id[0] = m->io->rules.eos;
    *eos = n                  ? (int32_t)id[0]
           : m->io->n_eos     ? m->io->eos[0]
           : m->io->tokenizer ? sn_tokenizer_special(m->io->tokenizer, SN_TOKEN_EOS)
                              : (int32_t)m->model.vocab - 1;
    return sn_config_check(m->config, err) && (*eos >= 0 || fail_token("end", "eos_token_id", err));
}
