/* embedder.c: embeddings of texts, one at a time. */
#include "model/embedder.h"
#include "model/lm_impl.h"
#include "model/sentence.h"

#include <stdlib.h>
#include <string.h>

struct sn_embedder {
    lm *m;
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
    lm_options lo = lm_options_of(path, o);
    lo.entries = SN_EMBED;
    lo.needs = "embed";
    lo.any_model = true;
    sn_embedder *e = calloc(1, sizeof *e);
    if (!e) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    e->m = lm_open(&lo, err);
    if (e->m && sentence_open(e->m, &e->settings, err) && find_width(e, err)) return e;
    sn_embedder_close(e);
    return NULL;
}

void sn_embedder_close(sn_embedder *e) {
    if (!e) return;
    if (e->m) sentence_close(&e->settings);
    lm_close(e->m);
    free(e);
}

int64_t sn_embedder_width(const sn_embedder *e) {
    return e ? e->width : 0;
}

bool sn_embedder_embed(sn_embedder *e, const char *text, float *out, sn_error *err) {
    if (!e) return false;
    if (!text || !out) return sn_given(NULL, "sn_embedder_embed", "an argument", err);
    sn_ids ids = {0};
    float *found = NULL;
    int64_t width = 0;
    const char *prompt = sentence_prompt(&e->settings, NULL, err);
    bool ok =
        prompt &&
        sentence_read_text(e->m, &e->settings, prompt, text, strlen(text), false, &ids, err) &&
        encoder_run(e->m, "embed", "embedding", &ids, NULL, 1, &found, &width, NULL, err);
    if (ok) memcpy(out, found, sizeof *out * (size_t)e->width);
    free(found);
    sn_ids_free(&ids);
    return ok;
}
