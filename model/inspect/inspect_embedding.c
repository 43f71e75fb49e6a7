/* inspect_embedding.c: queries on the embedding table: nearest neighbours by cosine similarity, and
 * analogies as sums of unit vectors (Mikolov et al. 2013, section 4). */
#include "model/inspect/inspect.h"
#include "ir/ir.h"
#include "runtime/cli/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct space {
    open_model *m;
    const sn_tokenizer *words;
    const char *name; /* name of the table's parameter */
    int64_t n, d;
    float *unit; /* [n, d] rows of norm 1, or 0 */
} space;

/* The table that is indexed by the tokens (encoder-decoders: by the source). */
static const sn_node *find_table(sn_module *m) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_gather || n->in[0]->op != SN_OP_param) continue;
        const char *index = n->in[1]->op == SN_OP_input ? sn_attr_str(n->in[1], SN_A_name, "") : "";
        if (!strcmp(index, "tokens") || !strcmp(index, "source")) return n->in[0];
    }
    return NULL;
}

static bool open_space(space *s, const inspect_options *o, sn_error *err) {
    open_options lo = {.entries = SN_FORWARD | SN_ENCODE, .build_only = true};
    if (!(s->m = cmd_open_model("sinter inspect", &o->model, lo, err))) return false;
    if (!model_weights(s->m))
        return sn_fail(err, SN_ERR_USAGE, "random weights have no neighbours");
    s->words = s->m->io->source ? s->m->io->source : s->m->io->tokenizer;
    if (!s->words) return sn_fail(err, SN_ERR_USAGE, "the model has no tokenizer");
    const sn_node *table = find_table(s->m->model.module);
    if (!table) return sn_fail(err, SN_ERR_USAGE, "the model does not embed tokens");
    s->name = sn_attr_str(table, SN_A_name, "");
    const sn_weight *w = sn_weights_find(model_weights(s->m), s->name);
    if (!w || w->rank != 2)
        return sn_fail(err, SN_ERR_FILE, "the weights have no matrix '%s'", s->name);
    s->n = w->shape[0], s->d = w->shape[1];
    s->unit = malloc((size_t)(s->n * s->d) * sizeof *s->unit + 1);
    if (!s->unit) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!sn_weight_to_f32(w, s->unit))
        return sn_fail(err, SN_ERR_FILE, "'%s' does not have a float type", s->name);
    for (int64_t i = 0; i < s->n; i++) {
        float *row = s->unit + i * s->d;
        double square = 0;
        for (int64_t c = 0; c < s->d; c++) square += (double)row[c] * row[c];
        float scale = square > 0 ? (float)(1 / sqrt(square)) : 0;
        for (int64_t c = 0; c < s->d; c++) row[c] *= scale;
    }
    return true;
}

static void close_space(space *s) {
    free(s->unit);
    model_close(s->m);
}

/* The token of a word that begins with a space, " king", if there is one; otherwise of the text
 * itself. */
static int32_t find_word(const space *s, const char *word, size_t size, sn_error *err) {
    char spaced[256];
    const sn_tokenizer *t = s->words;
    int n = snprintf(spaced, sizeof spaced, " %.*s", (int)size, word);
    int32_t id = n < (int)sizeof spaced ? sn_tokenizer_id(t, spaced, (size_t)n) : -1;
    if (id < 0) id = sn_tokenizer_id(t, word, size);
    if (id >= 0 && id < s->n) return id;
    sn_ids pieces = {0};
    char list[400] = "", text[64];
    size_t used = 0;
    if (sn_tokenizer_encode(t, word, size, 0, &pieces, NULL))
        for (size_t i = 0; i < pieces.count && used < sizeof list; i++)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s'%s'", i ? ", " : "",
                                     inspect_token(s->words, pieces.data[i], text));
    sn_ids_free(&pieces);
    sn_fail(err, SN_ERR_USAGE, "'%.*s' is not a single token of this vocabulary but %s", (int)size,
            word, *list ? list : "none of its words");
    return -1;
}

typedef struct scored {
    double score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->id - y->id;
}

/* Prints the rows most similar to `v`, except those in the query. */
static bool print_nearest(const space *s, const double *v, const int32_t *query, int n_query,
                          int64_t top, sn_error *err) {
    scored *list = malloc(sizeof *list * (size_t)s->n + 1);
    if (!list) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    double square = 0;
    for (int64_t c = 0; c < s->d; c++) square += v[c] * v[c];
    double scale = square > 0 ? 1 / sqrt(square) : 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        bool skip = false;
        for (int k = 0; k < n_query; k++) skip |= query[k] == i;
        if (skip) continue;
        double dot = 0;
        for (int64_t c = 0; c < s->d; c++) dot += v[c] * s->unit[i * s->d + c];
        list[n++] = (scored){dot * scale, (int32_t)i};
    }
    qsort(list, (size_t)n, sizeof *list, by_score);
    char text[64];
    for (int64_t i = 0; i < n && i < top && sn_screen()->json; i++) {
        json_out j = sn_json_begin(stdout);
        sn_json_integer(&j, "id", list[i].id);
        sn_json_text(&j, "text", inspect_token(s->words, list[i].id, text));
        sn_json_number(&j, "score", list[i].score);
        sn_json_end(&j);
    }
    for (int64_t i = 0; i < n && i < top && !sn_screen()->json; i++)
        printf("%8.4f  %6d  '%s'\n", list[i].score, (int)list[i].id,
               inspect_token(s->words, list[i].id, text));
    free(list);
    return true;
}

/* weighted sum of the unit vectors of the words */
static bool inspect_words(const inspect_options *o, const char *words, int n_words,
                          const double *sign, const char *usage, sn_error *err) {
    space s = {0};
    enum { MAX_WORDS = 3 };
    int32_t id[MAX_WORDS] = {0};
    bool ok = open_space(&s, o, err);
    const char *at = words;
    for (int i = 0; ok && i < n_words; i++) {
        at += strspn(at, " ");
        size_t size = n_words == 1 ? strlen(at) : strcspn(at, " ");
        ok = size ? (id[i] = find_word(&s, at, size, err)) >= 0
                  : sn_fail(err, SN_ERR_USAGE, "%s", usage);
        at += size;
    }
    if (ok && at[strspn(at, " ")]) ok = sn_fail(err, SN_ERR_USAGE, "%s", usage);
    double *v = ok ? calloc((size_t)s.d + 1, sizeof *v) : NULL;
    if (ok && !v) ok = sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; ok && i < n_words; i++)
        for (int64_t c = 0; c < s.d; c++) v[c] += sign[i] * s.unit[id[i] * s.d + c];
    if (ok && !sn_screen()->json) {
        char text[64];
        printf("cosine      id  in %s, of", s.name);
        for (int i = 0; i < n_words; i++)
            printf(" %s'%s'",
                   sign[i] < 0 ? "- "
                   : i         ? "+ "
                               : "",
                   inspect_token(s.words, id[i], text));
        printf("\n");
    }
    ok = ok && print_nearest(&s, v, id, n_words, o->top, err);
    free(v);
    close_space(&s);
    return ok;
}

bool inspect_near(const inspect_options *o, sn_error *err) {
    return inspect_words(o, o->near, 1, (const double[]){1}, "--near needs a word", err);
}

/* A is to B as C is to B - A + C */
bool inspect_analogy(const inspect_options *o, sn_error *err) {
    return inspect_words(o, o->analogy, 3, (const double[]){-1, 1, 1},
                         "--analogy needs three words: \"man king woman\"", err);
}
