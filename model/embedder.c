/* embedder.c: embeddings of texts. */
#include "model/embedder.h"
#include "model/lm_impl.h"
#include "model/sentence_batch.h"

#include <stdlib.h>
#include <string.h>

struct sn_embedder {
    open_model *m;
    sentence_settings settings;
    int64_t width;
};

/* The width of the output `embedding`, from a text of one token. */
static bool find_width(sn_embedder *e, sn_error *err) {
    int32_t one = 1;
    int64_t shape[8] = {0};
    sn_arg_binding in[] = {SN_BIND("tokens", SN_I32, NULL, 1, 1),
                           SN_BIND("lengths", SN_I32, &one, 1),
                           SN_BIND("types", SN_I32, NULL, 1, 1)};
    int n_in = lm_has_input(e->m->model.module, "types") ? 3 : 2;
    int rank = sn_output_shape(e->m->program, "embed", in, n_in, "embedding", shape, err);
    e->width = rank == 2 ? shape[1] : 0;
    return rank == 2;
}

sn_embedder *sn_embedder_open(const char *path, const sn_lm_options *o, sn_error *err) {
    if (!sn_given(path, "sn_embedder_open", "the path", err)) return NULL;
    open_options lo = lm_options_of(path, o);
    lo.entries = SN_EMBED;
    lo.needs = "embed";
    lo.any_model = true;
    sn_embedder *e = calloc(1, sizeof *e);
    if (!e) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    e->m = lm_open(&lo, err);
    if (e->m && sentence_settings_of(e->m, &e->settings, err) && find_width(e, err)) return e;
    sn_embedder_close(e);
    return NULL;
}

void sn_embedder_close(sn_embedder *e) {
    if (!e) return;
    if (e->m) sn_sentence_close(&e->settings);
    model_close(e->m);
    free(e);
}

int64_t sn_embedder_width(const sn_embedder *e) {
    return e ? e->width : 0;
}

bool sn_embedder_embed(sn_embedder *e, const char *text, float *out, sn_error *err) {
    if (!e) return false;
    if (!text || !out) return sn_given(NULL, "sn_embedder_embed", "an argument", err);
    return sn_embedder_embed_texts(e, &text, 1, out, err);
}

bool sn_embedder_embed_texts(sn_embedder *e, const char *const *texts, int64_t n, float *out,
                             sn_error *err) {
    if (!e) return false;
    if (n < 0 || (n && (!texts || !out)))
        return sn_given(NULL, "sn_embedder_embed_texts", "an argument", err);
    sn_ids *ids = calloc((size_t)n + 1, sizeof *ids);
    float *found = NULL;
    int64_t width = 0, done;
    const char *prompt = sn_sentence_prompt(&e->settings, NULL, err);
    bool ok = prompt && (ids || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    for (int64_t i = 0; ok && i < n; i++) {
        sn_error why = {0};
        ok = texts[i] ? sn_sentence_read_text(&e->settings, prompt, texts[i], strlen(texts[i]),
                                              false, &ids[i], &why)
                      : sn_given(NULL, "sn_embedder_embed_texts", "a text", &why);
        if (!ok && n > 1)
            sn_fail(err, why.code, "text %lld: %s", (long long)i, why.message);
        else if (!ok)
            sn_fail(err, why.code, "%s", why.message);
    }
    ok = ok && sentence_embed_texts(e->m, ids, n, 0, NULL, NULL, &found, &width, &done, err);
    if (ok && n) memcpy(out, found, sizeof *out * (size_t)(n * width));
    for (int64_t i = 0; ids && i < n; i++) sn_ids_free(&ids[i]);
    free(ids);
    free(found);
    return ok;
}
