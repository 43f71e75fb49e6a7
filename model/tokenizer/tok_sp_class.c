/* tok_sp_class.c: transformers' tokenizer classes with a SentencePiece model. Fairseq's vocabularies
 * (XLM-R, mBART, NLLB) begin with tokens of their own, Pegasus' with 103; M2M-100 and Marian number
 * pieces by vocab.json; ALBERT removes accents and capitals. What is before the model's normalizer
 * follows the "Fast" classes. */
#include <stdio.h>
#include <string.h>

#include "model/tokenizer/steps.h"
#include "model/tokenizer/tok_sp_class.h"

typedef enum template_kind {
    TEXT_EOS,
    BOS_TEXT_EOS,
    LANGUAGE_TEXT_EOS,
    TEXT_EOS_LANGUAGE,
    CLS_TEXT_SEP
} template_kind;

/* What happens to texts before the model's own normalizer. */
typedef enum cleaning {
    NOTHING,
    MAY_LOWER, /* lower case, if do_lower_case says so */
    ALBERTS /* quotes, no accents unless keep_accents, lower case unless do_lower_case is false */
} cleaning;

struct sn_sp_class {
    const char *name, *model_type; /* tokenizer_class without "Fast"; of config.json, or NULL */
    const char *first[6];          /* tokens 0, 1, … */
    int32_t skip, offset;          /* the first pieces are not tokens; others are moved by offset */
    template_kind template;
    const char *language, *languages; /* usual one; all, or NULL: those of the config */
    const char *language_name;        /* form of their tokens */
    bool by_vocabulary;               /* pieces are numbered by vocab.json */
    int32_t spare;                    /* tokens without meaning at the end */
    const char *mask;                 /* the last token, or NULL */
    int32_t extra_ids;                /* <extra_id_N - 1> … <extra_id_0> at the end */
    cleaning cleaning;
};

#define MBART_LANGUAGES                                                                            \
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "   \
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN "
#define MBART50_LANGUAGES                                                                          \
    MBART_LANGUAGES                                                                                \
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF "   \
    "pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI "
#define M2M_100_LANGUAGES                                                                          \
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu " \
    "ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr "  \
    "ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr "   \
    "uk ur uz vi wo xh yi yo zh zu "
#define FAIRSEQ .first = {"<s>", "<pad>", "</s>", "<unk>"}, .skip = 3, .offset = 1, .mask = "<mask>"

static const sn_sp_class classes[] = {
    {"T5", "t5", .template = TEXT_EOS, .extra_ids = 100},
    {"Pegasus", "pegasus", .first = {"<pad>", "</s>", "<mask_1>", "<mask_2>"}, .skip = 2,
     .offset = 103, .template = TEXT_EOS},
    {"XLMRoberta", "xlm-roberta", FAIRSEQ, .template = BOS_TEXT_EOS},
    {"Camembert", "camembert",
     .first = {"<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"}, .skip = 1,
     .offset = 4, .mask = "<mask>", .template = BOS_TEXT_EOS},
    {"MBart50", NULL, FAIRSEQ, .template = LANGUAGE_TEXT_EOS, .language = "en_XX",
     .languages = MBART50_LANGUAGES, .language_name = "%s"},
    {"MBart", "mbart", FAIRSEQ, .template = TEXT_EOS_LANGUAGE, .language = "en_XX",
     .languages = MBART_LANGUAGES, .language_name = "%s"},
    {"Nllb", NULL, FAIRSEQ, .template = LANGUAGE_TEXT_EOS, .language = "eng_Latn",
     .language_name = "%s"},
    {"M2M100", "m2m_100", .by_vocabulary = true, .template = LANGUAGE_TEXT_EOS, .language = "en",
     .languages = M2M_100_LANGUAGES, .language_name = "__%s__", .spare = 8},
    {"Marian", "marian", .by_vocabulary = true, .template = TEXT_EOS},
    {"Albert", "albert", .template = CLS_TEXT_SEP, .cleaning = ALBERTS},
    {"DebertaV2", "deberta-v2", .template = CLS_TEXT_SEP, .mask = "[MASK]", .cleaning = MAY_LOWER},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Classes that do what this file and sn_sp_class do not say. */
static const char numbers[] = "numbers tokens differently from this file";
static const struct {
    const char *name, *model_type, *what;
} others[] = {
    {"Barthez", NULL, numbers},
    {"XLNet", NULL, numbers},
    {"XGLM", NULL, numbers},
    {"Reformer", NULL, numbers},
    {"Siglip", "siglip",
     "changes texts to lower case without punctuation before this file is used"},
};

/* ---- the class ---- */

static const char *text_of(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static cJSON *read_beside(const sn_sp_numbering *n, const char *name, bool *ok, sn_error *err) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", n->folder, name);
    if (!sn_file_exists(path)) return NULL;
    cJSON *root = sn_json_read(path, err);
    *ok = *ok && root;
    return root;
}

static bool is_class(const char *name, const char *class) {
    size_t n = strlen(class);
    const char *rest = strncmp(name, class, n) ? "" : name + n;
    return !strcmp(rest, "Tokenizer") || !strcmp(rest, "TokenizerFast");
}

static bool find_class(sn_sp_numbering *n, const char *path, sn_error *err) {
    const char *name = text_of(n->config, "tokenizer_class");
    bool ok = true;
    cJSON *model = name ? NULL : read_beside(n, "config.json", &ok, err);
    const char *type = text_of(model, "model_type");
    for (int i = 0; ok && i < CLASSES && !n->class; i++)
        if (name ? is_class(name, classes[i].name)
                 : type && classes[i].model_type && !strcmp(type, classes[i].model_type))
            n->class = &classes[i];
    for (size_t i = 0; ok && i < sizeof others / sizeof *others; i++)
        if (name ? is_class(name, others[i].name)
                 : type && others[i].model_type && !strcmp(type, others[i].model_type))
            ok = sn_fail(err, SN_ERR_FILE,
                         "%s: %s %s: the folder needs the tokenizer.json of the model", path,
                         name ? name : type, others[i].what);
    cJSON_Delete(model);
    return ok;
}

static bool read_names(sn_sp_numbering *n, const char *path, sn_error *err) {
    bool ok = true;
    int32_t id;
    const char *file = strrchr(path, '/'), *own = "target_vocab.json";
    bool target = !strcmp(file ? file + 1 : path, "target.spm") && sn_folder_has(n->folder, own);
    cJSON *root = read_beside(n, target ? own : "vocab.json", &ok, err);
    if (!root)
        return ok && sn_fail(err, SN_ERR_FILE, "%s: a %s tokenizer needs vocab.json beside it",
                             path, n->class->name);
    int32_t limit = sn_vocab_limit((size_t)cJSON_GetArraySize(root));
    for (const cJSON *e = root->child; ok && e; e = e->next)
        ok = (sn_json_int(e, 0, limit, &id) ||
              sn_fail(err, SN_ERR_FILE, "%s/vocab.json: the id of \"%.60s\" is not in 0..%d",
                      n->folder, e->string, (int)limit)) &&
             sn_vocab_set(&n->names, id, e->string, strlen(e->string), 0, err);
    cJSON_Delete(root);
    return ok;
}

bool sn_sp_begin(sn_sp_numbering *n, const char *path, const cJSON *config, sn_error *err) {
    const char *slash = strrchr(path, '/');
    *n = (sn_sp_numbering){.config = config};
    if (strlen(path) >= sizeof n->folder)
        return sn_fail(err, SN_ERR_FILE, "path too long: %.200s...", path);
    snprintf(n->folder, sizeof n->folder, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
    return find_class(n, path, err) &&
           (!n->class || !n->class->by_vocabulary || read_names(n, path, err));
}

void sn_sp_end(sn_sp_numbering *n) {
    sn_vocab_free(&n->names);
}

/* ---- what happens to texts first ---- */

static sn_norm *add_step(sn_tokenizer *t,
                         bool (*run)(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err),
                         sn_error *err) {
    sn_norm *n = sn_tok_add_norm(t, err);
    if (n) n->run = run;
    return n && sn_unicode_need(t, err) ? n : NULL;
}

/* `` and '' become ", and accents are separated from letters and removed. */
static bool add_albert(const sn_sp_numbering *n, sn_tokenizer *t, sn_error *err) {
    static const char pattern[] = "``|''";
    sn_norm *quotes = add_step(t, sn_norm_replace, err), *form;
    if (!quotes || !sn_bytes_append(&quotes->text, "\"", 1, err) ||
        !(quotes->regex = sn_regex_new(pattern, sizeof pattern - 1, err)))
        return false;
    if (sn_json_flag(n->config, "keep_accents", false)) return true;
    if (!(form = add_step(t, sn_norm_form, err))) return false;
    form->form = SN_NFKD;
    return add_step(t, sn_norm_strip_accents, err);
}

bool sn_sp_add_steps(const sn_sp_numbering *n, sn_tokenizer *t, sn_error *err) {
    const cleaning how = n->class ? n->class->cleaning : NOTHING;
    if (how != NOTHING && sn_json_flag(n->config, "split_by_punct", false))
        return sn_fail(err, SN_ERR_FILE,
                       "%s/tokenizer_config.json: \"split_by_punct\" is not supported: the folder "
                       "needs the tokenizer.json of the model",
                       n->folder);
    return (how != ALBERTS || add_albert(n, t, err)) &&
           (how == NOTHING || !sn_json_flag(n->config, "do_lower_case", how == ALBERTS) ||
            add_step(t, sn_norm_lower, err));
}

/* ---- pieces ---- */

/* The number of languages in a list, each followed by a space. */
static int32_t count_languages(const char *list) {
    int32_t n = 0;
    for (; list && *list; list++) n += *list == ' ';
    return n;
}

/* The token after those of vocab.json, its languages and spare tokens. */
static int32_t end_of_names(const sn_sp_numbering *n) {
    return (int32_t)n->names.count + count_languages(n->class->languages) + n->class->spare;
}

int32_t sn_sp_next(sn_sp_numbering *n, const char *piece, size_t size, bool is_text) {
    const int32_t number = n->pieces++;
    const sn_sp_class *c = n->class;
    if (!c) return number;
    if (!c->by_vocabulary) return number < c->skip ? -1 : number + c->offset;
    if (!is_text) return -1; /* added with the other names */
    int32_t id = sn_vocab_find(&n->names, piece, size);
    return id >= 0 ? id : end_of_names(n) + n->unknown++;
}

/* ---- other tokens ---- */

/* Sets the text of a token unless it has one; matched in texts if they may contain special
 * tokens. */
static bool add_special(sn_tokenizer *t, int32_t id, const char *name, bool strip, sn_error *err) {
    size_t size;
    if (!sn_vocab_text(&t->vocab, id, &size) &&
        !sn_vocab_set(&t->vocab, id, name, strlen(name), SN_TOKEN_CONTROL, err))
        return false;
    t->vocab.entry[id].flags |= SN_TOKEN_CONTROL;
    const sn_added a = {(char *)(uintptr_t)name, strlen(name),    .id = id,
                        .special = true,         .lstrip = strip, .rstrip = strip,
                        .begins = *name == '>'};
    return sn_tok_add(t, &a, err);
}

/* Tokens that are not pieces of this model. */
static bool add_names(const sn_sp_numbering *n, sn_tokenizer *t, sn_error *err) {
    static const char *const specials[] = {"<s>", "</s>", "<unk>", "<pad>"};
    sn_bytes text = {0};
    bool ok = true;
    size_t size, other;
    for (int32_t id = 0; ok && id < (int32_t)n->names.count; id++) {
        const char *name = sn_vocab_text(&n->names, id, &size);
        if (!name || sn_vocab_text(&t->vocab, id, &other)) continue;
        bool special = size > 4 && !memcmp(name, ">>", 2) && !memcmp(name + size - 2, "<<", 2);
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
            special = special || !strcmp(name, specials[i]);
        text.size = 0;
        ok = special ? add_special(t, id, name, false, err)
                     : sn_swap_spaces(name, size, &text, err) &&
                           sn_vocab_set(&t->vocab, id, text.data, text.size, SN_TOKEN_OTHER, err);
    }
    sn_bytes_free(&text);
    return ok;
}

static bool add_listed(const sn_sp_class *c, sn_tokenizer *t, int32_t *id, sn_error *err) {
    for (const char *at = c->languages; at && *at; at = strchr(at, ' ') + 1) {
        char code[32], name[48];
        snprintf(code, sizeof code, "%.*s", (int)(strchr(at, ' ') - at), at);
        snprintf(name, sizeof name, strcmp(c->language_name, "%s") ? "__%s__" : "%s", code);
        if (!add_special(t, (*id)++, name, false, err)) return false;
    }
    return true;
}

/* NLLB's languages: additional_special_tokens of tokenizer_config.json or special_tokens_map.json,
 * in the order of their tokens. */
static bool add_configured(const sn_sp_numbering *n, sn_tokenizer *t, int32_t *id, sn_error *err) {
    static const char key[] = "additional_special_tokens";
    bool ok = true;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(n->config, key);
    cJSON *map = list ? NULL : read_beside(n, "special_tokens_map.json", &ok, err);
    if (map) list = cJSON_GetObjectItemCaseSensitive(map, key);
    for (const cJSON *e = cJSON_IsArray(list) ? list->child : NULL; ok && e; e = e->next) {
        const char *name = cJSON_IsObject(e) ? text_of(e, "content") : cJSON_GetStringValue(e);
        ok = name && add_special(t, (*id)++, name, false, err);
    }
    cJSON_Delete(map);
    return ok;
}

static bool add_extra_ids(const sn_sp_numbering *n, sn_tokenizer *t, int32_t id, sn_error *err) {
    int32_t count = n->class->extra_ids;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(n->config, "extra_ids");
    if (item && !sn_json_int(item, 0, 1 << 16, &count))
        return sn_fail(err, SN_ERR_FILE, "%s/tokenizer_config.json: \"extra_ids\" is not a count",
                       n->folder);
    while (count-- > 0) {
        char name[32];
        snprintf(name, sizeof name, "<extra_id_%d>", (int)count);
        if (!add_special(t, id++, name, true, err)) return false;
    }
    return true;
}

/* What transformers' earlier versions put beside a vocabulary: {"token": id, …}. */
static bool add_added(const sn_sp_numbering *n, sn_tokenizer *t, sn_error *err) {
    bool ok = true;
    int32_t id, limit = sn_vocab_limit(t->vocab.count);
    cJSON *root = read_beside(n, "added_tokens.json", &ok, err);
    for (const cJSON *e = root ? root->child : NULL; ok && e; e = e->next) {
        size_t size;
        if (!sn_json_int(e, 0, limit, &id))
            ok = sn_fail(err, SN_ERR_FILE,
                         "%s/added_tokens.json: the id of \"%.60s\" is not in 0..%d", n->folder,
                         e->string, (int)limit);
        else if (!sn_vocab_text(&t->vocab, id, &size)) {
            const sn_added a = {e->string, strlen(e->string), .id = id};
            ok = sn_vocab_set(&t->vocab, id, a.text, a.size, 0, err) && sn_tok_add(t, &a, err);
        }
    }
    cJSON_Delete(root);
    return ok;
}

static bool push_named(const sn_tokenizer *t, sn_ids *list, const char *name, sn_error *err) {
    int32_t id = sn_vocab_find(&t->vocab, name, strlen(name));
    return id < 0 || sn_ids_push(list, id, err);
}

static bool make_template(const sn_sp_numbering *n, sn_tokenizer *t, sn_error *err) {
    const sn_sp_class *c = n->class;
    const char *chosen = text_of(n->config, "src_lang");
    char language[64];
    snprintf(language, sizeof language,
             c->language_name && strcmp(c->language_name, "%s") ? "__%.50s__" : "%.50s",
             chosen        ? chosen
             : c->language ? c->language
                           : "");
    bool old = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(n->config, "legacy_behaviour"));
    bool last = c->template == TEXT_EOS_LANGUAGE || (c->template == LANGUAGE_TEXT_EOS && old);
    t->templated = true;
    if (c->template == CLS_TEXT_SEP)
        return push_named(t, &t->before, "[CLS]", err) && push_named(t, &t->after, "[SEP]", err);
    return (c->template != BOS_TEXT_EOS || push_named(t, &t->before, "<s>", err)) &&
           (!c->language || last || push_named(t, &t->before, language, err)) &&
           push_named(t, &t->after, "</s>", err) &&
           (!c->language || !last || push_named(t, &t->after, language, err));
}

bool sn_sp_finish(sn_sp_numbering *n, sn_tokenizer *t, sn_error *err) {
    const sn_sp_class *c = n->class;
    if (!c) return add_added(n, t, err);
    int32_t id = c->by_vocabulary ? (int32_t)n->names.count : n->pieces + c->offset;
    bool ok = true;
    char name[32];
    for (int32_t i = 0; ok && i < 6 && c->first[i]; i++)
        ok = add_special(t, i, c->first[i], false, err);
    for (int32_t i = 4; ok && c->offset > 100 && i < c->offset + 2; i++) { /* Pegasus */
        snprintf(name, sizeof name, "<unk_%d>", (int)i - 2);
        ok = add_special(t, i, name, false, err);
    }
    ok = ok && add_names(n, t, err) && add_listed(c, t, &id, err) &&
         (!c->language || c->languages || add_configured(n, t, &id, err));
    for (int32_t i = 0; ok && i < c->spare; i++) {
        snprintf(name, sizeof name, "madeupword%d", (int)i);
        ok = sn_vocab_set(&t->vocab, id++, name, strlen(name), SN_TOKEN_CONTROL, err);
    }
    ok = ok &&
         (!c->mask || sn_vocab_find(&t->vocab, c->mask, strlen(c->mask)) >= 0 ||
          add_special(t, id, c->mask, false, err)) &&
         (!c->extra_ids || add_extra_ids(n, t, id, err)) && add_added(n, t, err);
    if (n->unknown) t->end = end_of_names(n);
    return ok && make_template(n, t, err);
}
