/* inspect_lens.c: the prediction after each layer: the residual stream passed through the final norm
 * and the unembedding ("logit lens"). */
#include "model/inspect/inspect.h"

#include "runtime/cli/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Indices of the k largest of x[n], largest first. */
static void find_top(const float *x, int64_t n, int k, int32_t *out) {
    int have = 0;
    for (int64_t i = 0; i < n; i++) {
        if (have == k && !(x[i] > x[out[k - 1]])) continue;
        int at = have < k ? have++ : k - 1;
        for (; at && x[i] > x[out[at - 1]]; at--) out[at] = out[at - 1];
        out[at] = (int32_t)i;
    }
}

static void print_layer(const look *l, const float *logits, int64_t vocab, int64_t layer, int top) {
    int32_t best[16];
    find_top(logits, vocab, top, best);
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - logits[best[0]]);
    json_out j;
    if (sn_screen()->json) {
        j = sn_json_begin(stdout);
        sn_json_integer(&j, "layer", layer - 1);
        sn_json_list(&j, "tokens");
    } else if (layer)
        printf("layer %-3lld", (long long)layer - 1);
    else
        printf("embedded ");
    for (int i = 0; i < top; i++) {
        char text[64];
        const char *token = inspect_token(l->m->io->tokenizer, best[i], text);
        if (sn_screen()->json) {
            sn_json_object(&j, NULL);
            sn_json_integer(&j, "id", best[i]);
            sn_json_text(&j, "text", token);
            sn_json_number(&j, "p", exp((double)logits[best[i]] - logits[best[0]]) / sum);
            sn_json_close(&j);
        } else
            printf("  %.3f '%s'", exp((double)logits[best[i]] - logits[best[0]]) / sum, token);
    }
    if (sn_screen()->json)
        sn_json_end(&j);
    else
        printf("\n");
}

bool inspect_lens(const inspect_options *o, sn_error *err) {
    look l = {0};
    bool ok = inspect_run(&l, o, SN_LENS, NULL, "logits", err);
    if (ok) { /* [layers + 1, 1, T, V] */
        const int64_t *shape = l.list->shape, T = shape[2], V = shape[3];
        int64_t at = o->position < 0 ? T - 1 : o->position;
        int top = (int)(o->top < V ? o->top : V);
        if (top > 16) top = 16;
        if (at >= T)
            ok = sn_fail(err, SN_ERR_RANGE, "position %lld is outside a text of %lld tokens",
                         (long long)at, (long long)T);
        char text[64];
        if (ok && !sn_screen()->json)
            printf("after '%s':\n", inspect_token(l.m->io->tokenizer, l.tokens.data[at], text));
        for (int64_t i = 0; ok && i < shape[0]; i++)
            print_layer(&l, l.list->data + (i * T + at) * V, V, i, top);
    }
    inspect_close(&l);
    return ok;
}
