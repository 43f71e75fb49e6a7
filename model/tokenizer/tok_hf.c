/* tok_hf.c: Hugging Face's tokenizer.json: the model (BPE, Unigram, WordPiece or WordLevel), added
 * tokens and what the post-processor adds. The other steps are in tok_hf_steps.c. */
#include "model/tokenizer/tok_hf.h"

#include <string.h>

#include "model/tokenizer/tok_bpe.h"
#include "model/tokenizer/tok_unigram.h"
#include "model/tokenizer/tok_wordpiece.h"

typedef sn_hf_reading reading;

/* ---- vocabulary and merges ---- */

/* Converts a text of the file to the vocabulary's form, into r->text. */
static bool plain_text(reading *r, const char *text, size_t size) {
    if (r->byte_level) return sn_gpt2_decode_chars(text, size, &r->text, r->err);
    r->text.size = 0;
    return r->t->swapped ? sn_swap_spaces(text, size, &r->text, r->err)
                         : sn_bytes_append(&r->text, text, size, r->err);
}

static bool read_vocab(reading *r, sn_tokenizer *t) {
    const cJSON *vocab = sn_hf_get(r->model, "vocab");
    if (!cJSON_IsObject(vocab))
        return sn_fail(r->err, SN_ERR_FILE, "%s: model.vocab must be an object", r->path);
    int32_t limit = sn_vocab_limit((size_t)cJSON_GetArraySize(vocab)), id;
    for (const cJSON *e = vocab->child; e; e = e->next) {
        if (!sn_json_int(e, 0, limit, &id))
            return sn_fail(r->err, SN_ERR_FILE, "%s: id of \"%.60s\" is not an integer in 0..%d",
                           r->path, e->string, (int)limit);
        if (!plain_text(r, e->string, strlen(e->string)) ||
            !sn_vocab_set(&t->vocab, id, r->text.data, r->text.size, 0, r->err))
            return false;
    }
    return true;
}

/* One merge, "a b" or ["a", "b"]. */
static bool read_merge(reading *r, const cJSON *merge, sn_bytes part[2]) {
    const char *text[2] = {cJSON_GetStringValue(merge), NULL};
    size_t size[2] = {0, 0};
    if (text[0]) {
        text[1] = strchr(text[0], ' ');
        if (text[1]) size[0] = (size_t)(text[1]++ - text[0]);
    } else if (cJSON_GetArraySize(merge) == 2) {
        text[0] = cJSON_GetStringValue(merge->child);
        text[1] = cJSON_GetStringValue(merge->child->next);
        if (text[0]) size[0] = strlen(text[0]);
    }
    if (!text[0] || !text[1]) return sn_fail(r->err, SN_ERR_FILE, "expected two tokens");
    size[1] = strlen(text[1]);
    for (int i = 0; i < 2; i++) {
        part[i].size = 0;
        if (!plain_text(r, text[i], size[i]) ||
            !sn_bytes_append(&part[i], r->text.data, r->text.size, r->err))
            return false;
    }
    return sn_bpe_add_merge((sn_bpe *)r->t, &part[0], &part[1], r->err);
}

static bool read_merges(reading *r) {
    const cJSON *merges = sn_hf_get(r->model, "merges");
    sn_bytes part[2] = {{0}, {0}};
    sn_error why = {0}, *err = r->err;
    if (!cJSON_IsArray(merges))
        return sn_fail(err, SN_ERR_FILE, "%s: model.merges must be an array", r->path);
    bool ok = true;
    size_t number = 0;
    r->err = &why;
    for (const cJSON *e = merges->child; ok && e; e = e->next, number++)
        ok = read_merge(r, e, part);
    r->err = err;
    if (!ok) sn_fail(err, why.code, "%s: merge %zu: %s", r->path, number - 1, why.message);
    sn_bytes_free(&part[0]);
    sn_bytes_free(&part[1]);
    return ok;
}

/* [["text", score], ...]: the index is the id. */
static bool read_scores(reading *r, sn_unigram *u) {
    const cJSON *vocab = sn_hf_get(r->model, "vocab");
    int32_t id = 0;
    double least = 0;
    if (!cJSON_IsArray(vocab))
        return sn_fail(r->err, SN_ERR_FILE, "%s: model.vocab of a Unigram must be an array",
                       r->path);
    for (const cJSON *e = vocab->child; e; e = e->next, id++) {
        const char *text = cJSON_GetStringValue(e->child);
        const cJSON *score = e->child ? e->child->next : NULL;
        if (!text || !cJSON_IsNumber(score))
            return sn_fail(r->err, SN_ERR_FILE, "%s: token %d is not a pair of text and score",
                           r->path, (int)id);
        if (!plain_text(r, text, strlen(text)) ||
            !sn_vocab_set(&u->base.vocab, id, r->text.data, r->text.size, 0, r->err) ||
            !sn_unigram_score(u, id, score->valuedouble, r->err))
            return false;
        if (id == 0 || score->valuedouble < least) least = score->valuedouble;
    }
    u->unk_score = least - 10; /* kUnkPenalty of SentencePiece */
    const cJSON *unk = sn_hf_get(r->model, "unk_id");
    return !unk || cJSON_IsNull(unk) ||
           sn_json_int(unk, 0, id - 1, &u->base.special[SN_TOKEN_UNK]) ||
           sn_fail(r->err, SN_ERR_FILE, "%s: unk_id is not the id of a token", r->path);
}

/* ---- added tokens ---- */

static bool read_added(reading *r) {
    const cJSON *list = sn_hf_get(r->root, "added_tokens");
    int32_t limit = sn_vocab_limit(r->t->vocab.count), id;
    for (const cJSON *e = cJSON_IsArray(list) ? list->child : NULL; e; e = e->next) {
        if (!sn_hf_text(e, "content") || !sn_json_int(sn_hf_get(e, "id"), 0, limit, &id))
            return sn_fail(r->err, SN_ERR_FILE,
                           "%s: an added token needs a content and an id in 0..%d", r->path,
                           (int)limit);
        if (!sn_tok_take_added(r->t, r->path, id, e, r->err)) return false;
    }
    return true;
}

/* ---- special tokens ---- */

static void take_role(sn_tokenizer *t, sn_token_role role, const char *name) {
    if (name && t->special[role] < 0)
        t->special[role] = sn_vocab_find(&t->vocab, name, strlen(name));
}

/* A special token of a template stands for the ids that "special_tokens" gives. */
static bool take_special(reading *r, const cJSON *step, const char *name, sn_ids *list) {
    const cJSON *ids = sn_hf_get(sn_hf_get(sn_hf_get(step, "special_tokens"), name), "ids");
    int32_t id = sn_vocab_find(&r->t->vocab, name, strlen(name));
    if (!cJSON_IsArray(ids) || !ids->child)
        return id < 0 || sn_ids_push(list, id, r->err); /* without a token: nothing is added */
    for (const cJSON *e = ids->child; e; e = e->next)
        if (!sn_json_int(e, 0, (int32_t)r->t->vocab.count - 1, &id))
            return sn_fail(r->err, SN_ERR_FILE,
                           "%s: post_processor: an id of \"%.60s\" is not in the vocabulary",
                           r->path, name);
        else if (!sn_ids_push(list, id, r->err))
            return false;
    return true;
}

/* ["[CLS]", 101]: RoBERTa has two [SEP] between texts, and one token type */
static bool take_pair(reading *r, const cJSON *pair, sn_token_role role, bool roberta) {
    sn_tokenizer *t = r->t;
    const char *name = cJSON_IsArray(pair) ? cJSON_GetStringValue(pair->child) : NULL;
    int32_t id;
    if (!name) return true;
    take_role(r->t, role, name);
    if (!sn_json_int(pair->child->next, 0, (int32_t)r->t->vocab.count - 1, &id))
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: post_processor: the id of \"%.60s\" is not in the "
                       "vocabulary",
                       r->path, name);
    if (role == SN_TOKEN_BOS)
        return sn_ids_push(&t->before, id, r->err) && sn_ids_push(&t->pair[0], id, r->err);
    t->paired = true;
    t->second_type = !roberta;
    return sn_ids_push(&t->after, id, r->err) && sn_ids_push(&t->pair[1], id, r->err) &&
           (!roberta || sn_ids_push(&t->pair[1], id, r->err)) &&
           sn_ids_push(&t->pair[2], id, r->err);
}

/* A template's pair of texts: what is before, between and after them. */
static bool read_pair(reading *r, const cJSON *step) {
    sn_tokenizer *t = r->t;
    const cJSON *pair = sn_hf_get(step, "pair");
    int seen = 0;
    for (const cJSON *e = cJSON_IsArray(pair) ? pair->child : NULL; e; e = e->next) {
        const cJSON *sequence = sn_hf_get(e, "Sequence"), *type = sn_hf_get(sequence, "type_id");
        const char *name = sn_hf_text(sn_hf_get(e, "SpecialToken"), "id");
        seen += sequence != NULL;
        if (sequence && seen == 2) t->second_type = cJSON_IsNumber(type) && type->valueint == 1;
        if (name && seen < 3 && !take_special(r, step, name, &t->pair[seen])) return false;
    }
    t->paired |= seen == 2;
    return true;
}

/* What the post-processor adds to a single text: a template, or BERT's and RoBERTa's cls and sep.
 * ByteLevel adds nothing. The first token before the text is bos, the first after it eos. */
static bool read_template(reading *r, const cJSON *step, int depth) {
    const cJSON *list = sn_hf_get(step, "processors"), *single = sn_hf_get(step, "single");
    const char *type = sn_hf_text(step, "type");
    static const char *const known[] = {"Sequence", "TemplateProcessing", "BertProcessing",
                                        "RobertaProcessing", "ByteLevel"};
    bool found = !step || cJSON_IsNull(step);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found = found || (type && !strcmp(type, known[i]));
    if (!found) return sn_hf_refuse(r, "post_processor", type);
    for (const cJSON *e = cJSON_IsArray(list) && depth < 4 ? list->child : NULL; e; e = e->next)
        if (!read_template(r, e, depth + 1)) return false;
    sn_token_role role = SN_TOKEN_BOS;
    for (const cJSON *e = cJSON_IsArray(single) ? single->child : NULL; e; e = e->next) {
        const char *name = sn_hf_text(sn_hf_get(e, "SpecialToken"), "id");
        if (sn_hf_get(e, "Sequence")) role = SN_TOKEN_EOS;
        if (name) take_role(r->t, role, name);
        if (name &&
            !take_special(r, step, name, role == SN_TOKEN_BOS ? &r->t->before : &r->t->after))
            return false;
    }
    bool roberta = type && !strcmp(type, "RobertaProcessing");
    return read_pair(r, step) && take_pair(r, sn_hf_get(step, "cls"), SN_TOKEN_BOS, roberta) &&
           take_pair(r, sn_hf_get(step, "sep"), SN_TOKEN_EOS, roberta);
}

/* ---- the models ---- */

static bool read_affix(reading *r, const char *key, sn_bytes *out) {
    const char *affix = sn_hf_text(r->model, key);
    return sn_bytes_append(out, affix ? affix : "", affix ? strlen(affix) : 0, r->err);
}

static bool read_bpe(reading *r) {
    sn_bpe *b = (sn_bpe *)r->t;
    b->byte_level = r->byte_level;
    if (b->byte_level) b->base.kind = &sn_tok_gpt2;
    b->whole_first = sn_hf_bool(r->model, "ignore_merges", false);
    b->fuse_unk = sn_hf_bool(r->model, "fuse_unk", false);
    if (!read_affix(r, "continuing_subword_prefix", &b->prefix) ||
        !read_affix(r, "end_of_word_suffix", &b->suffix) || !read_vocab(r, &b->base) ||
        !read_merges(r))
        return false;
    sn_bytes *end = &b->base.decoding.suffix;
    if (b->suffix.size && !end->size && !read_affix(r, "end_of_word_suffix", end)) return false;
    if (!b->byte_level && sn_hf_bool(r->model, "byte_fallback", false))
        sn_vocab_find_bytes(&b->base.vocab, b->byte_id);
    sn_error why = {0};
    if (b->byte_level && !sn_gpt2_find_bytes(b, &why))
        return sn_fail(r->err, why.code, "%s: %s", r->path, why.message);
    return true;
}

static bool read_unigram(reading *r) {
    sn_unigram *u = (sn_unigram *)r->t;
    if (!read_scores(r, u)) return false;
    if (sn_hf_bool(r->model, "byte_fallback", false))
        sn_vocab_find_bytes(&u->base.vocab, u->byte_id);
    return true;
}

static bool read_wordpiece(reading *r) {
    sn_wordpiece *w = (sn_wordpiece *)r->t;
    const cJSON *max = sn_hf_get(r->model, "max_input_chars_per_word");
    if (max && !sn_json_int(max, 1, INT32_MAX, &w->max_chars))
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: max_input_chars_per_word is not a positive integer", r->path);
    return read_vocab(r, r->t);
}

static bool read_wordlevel(reading *r) {
    r->t->decoding.join = true;
    return read_vocab(r, r->t);
}

static sn_tokenizer *new_bpe(const reading *r) {
    return (sn_tokenizer *)sn_bpe_new(&sn_tok_llama, r->err);
}

static sn_tokenizer *new_unigram(const reading *r) {
    return (sn_tokenizer *)sn_unigram_new(r->err);
}

static sn_tokenizer *new_wordpiece(const reading *r) {
    const char *prefix = sn_hf_text(r->model, "continuing_subword_prefix");
    return (sn_tokenizer *)sn_wordpiece_new(prefix ? prefix : "##", r->err);
}

static sn_tokenizer *new_wordlevel(const reading *r) {
    return sn_tok_new(&sn_tok_wordlevel, r->err);
}

static const struct {
    const char *type;
    sn_tokenizer *(*make)(const reading *r);
    bool (*read)(reading *r);
} models[] = {{"BPE", new_bpe, read_bpe},
              {"Unigram", new_unigram, read_unigram},
              {"WordPiece", new_wordpiece, read_wordpiece},
              {"WordLevel", new_wordlevel, read_wordlevel}};

/* The model's vocabulary comes after the steps, which say how it spells texts. */
static bool load(reading *r, size_t model, const cJSON *config) {
    if (!(r->t = models[model].make(r)) || !sn_hf_read_steps(r)) return false;
    if (r->byte_level && model)
        return sn_hf_refuse(r, "ByteLevel with the model", models[model].type);
    if (!models[model].read(r) || !read_added(r)) return false;
    r->t->foreign = r->t->templated = true;
    if (r->t->vocab.count == 0) return sn_fail(r->err, SN_ERR_FILE, "%s: no tokens", r->path);
    take_role(r->t, SN_TOKEN_UNK, sn_hf_text(r->model, "unk_token"));
    return read_template(r, sn_hf_get(r->root, "post_processor"), 0) &&
           sn_tok_finish(r->t, config, r->err) &&
           (models[model].read != read_unigram || sn_unigram_finish((sn_unigram *)r->t, r->err));
}

sn_tokenizer *sn_tok_load_hf(const char *path, const cJSON *root, const cJSON *config,
                             sn_error *err) {
    reading r = {.path = path, .root = root, .model = sn_hf_get(root, "model"), .err = err};
    const char *type = sn_hf_text(r.model, "type");
    /* files of old versions have no type */
    if (!type)
        type = sn_hf_get(r.model, "merges")                 ? "BPE"
               : cJSON_IsArray(sn_hf_get(r.model, "vocab")) ? "Unigram"
                                                            : "WordPiece";
    enum { MODELS = sizeof models / sizeof *models };
    size_t model = 0;
    while (model < MODELS && strcmp(models[model].type, type)) model++;
    bool ok = model < MODELS ? load(&r, model, config) : sn_hf_refuse(&r, "model", type);
    sn_bytes_free(&r.text);
    if (ok) return r.t;
    sn_tokenizer_free(r.t);
    return NULL;
}
