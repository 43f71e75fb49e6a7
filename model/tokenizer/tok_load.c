/* tok_load.c: detects the tokenizer at a path: a directory's files in a fixed order, or one file by
 * its name and, for JSON, by its contents. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/files/gguf.h"
#include "runtime/str.h"
#include "model/tokenizer/tok.h"

typedef struct source {
    char dir[4096], path[4096], pair[4096]; /* pair: the merges next to a vocabulary */
    /* root: the parsed JSON of path, for loaders that need it */
    cJSON *config, *root;
} source;

static sn_tokenizer *load_tables(const source *s, sn_error *err) {
    return sn_tok_load_tables(s->path, err);
}

static sn_tokenizer *load_pair(const source *s, sn_error *err) {
    return sn_tok_load_gpt2(s->path, s->root, s->pair, s->config, err);
}

static sn_tokenizer *load_llama(const source *s, sn_error *err) {
    return sn_tok_load_llama(s->path, s->config, err);
}

static sn_tokenizer *load_sentencepiece(const source *s, sn_error *err) {
    return sn_tok_load_sentencepiece(s->path, s->config, err);
}

static sn_tokenizer *load_wordpiece(const source *s, sn_error *err) {
    return sn_tok_load_wordpiece(s->path, s->config, err);
}

static sn_tokenizer *load_symbols(const source *s, sn_error *err) {
    return sn_tok_load_symbols(s->path, s->root, err);
}

static sn_tokenizer *load_hf(const source *s, sn_error *err) {
    return sn_tok_load_hf(s->path, s->root, s->config, err);
}

static sn_tokenizer *load_gguf(const source *s, sn_error *err) {
    return sn_tok_load_gguf(s->path, err);
}

/* In order of preference. A file with another name matches the first row with its extension; a JSON
 * file, the first row whose key it contains. */
static const struct {
    const char *name, *pair, *ending, *key;
    sn_tokenizer *(*load)(const source *, sn_error *);
} formats[] = {
    {"tokenizer.tables", NULL, ".tables", NULL, load_tables},
    {"tokenizer.json", NULL, ".json", "model", load_hf},
    {"vocabulary.json", NULL, ".json", "tokens", load_symbols},
    {"vocab.json", "merges.txt", ".json", NULL, load_pair},
    {"encoder.json", "vocab.bpe", ".json", NULL, load_pair},
    {"tokenizer.model", NULL, ".model", NULL, load_sentencepiece},
    {"sentencepiece.bpe.model", NULL, ".model", NULL, load_sentencepiece},
    {"spiece.model", NULL, ".spm", NULL, load_sentencepiece},
    {"spm.model", NULL, ".spm", NULL, load_sentencepiece},
    {"source.spm", NULL, ".spm", NULL, load_sentencepiece},
    {"target.spm", NULL, ".spm", NULL, load_sentencepiece},
    {"tokenizer.bin", NULL, ".bin", NULL, load_llama},
    {"vocab.txt", NULL, ".txt", NULL, load_wordpiece},
    {"tokenizer.gguf", NULL, ".gguf", NULL, load_gguf},
};
enum { FORMATS = sizeof formats / sizeof *formats };

const char *sn_tokenizer_file(size_t i) {
    if (i < FORMATS) return formats[i].name;
    i -= FORMATS;
    for (size_t k = 0; k < FORMATS; k++)
        if (formats[k].pair && !i--) return formats[k].pair;
    return NULL;
}

static bool join_path(char *out, size_t size, const char *dir, const char *name, sn_error *err) {
    int n = snprintf(out, size, "%s/%s", dir, name);
    return (n > 0 && (size_t)n < size) ||
           sn_fail(err, SN_ERR_FILE, "path too long: %.200s.../%s", dir, name);
}

static sn_tokenizer *load_format(source *s, size_t format, sn_error *err) {
    char config[4096];
    sn_tokenizer *t = NULL;
    if (!join_path(config, sizeof config, s->dir, "tokenizer_config.json", err)) return NULL;
    const bool json = formats[format].key || formats[format].pair;
    if (json && !s->root && !(s->root = sn_json_read(s->path, err))) return NULL;
    sn_error why = {0};
    const bool complete = formats[format].load == load_tables; /* it holds what the config says */
    if (complete || !sn_file_exists(config) || (s->config = sn_json_read(config, &why)))
        t = formats[format].load(s, &why);
    const size_t path = strlen(s->path), dir = strlen(s->dir);
    const bool named = !strncmp(why.message, s->path, path) || /* or another file of its folder */
                       (!strncmp(why.message, s->dir, dir) && why.message[dir] == '/');
    if (!t) sn_fail(err, why.code, "%s%s%s", named ? "" : s->path, named ? "" : ": ", why.message);
    cJSON_Delete(s->config);
    return t;
}

static sn_tokenizer *load_directory(source *s, sn_error *err) {
    for (size_t i = 0; i < FORMATS; i++) {
        if (!join_path(s->path, sizeof s->path, s->dir, formats[i].name, err)) return NULL;
        if (!sn_file_exists(s->path)) continue;
        if (!formats[i].pair) return load_format(s, i, err);
        if (!join_path(s->pair, sizeof s->pair, s->dir, formats[i].pair, err)) return NULL;
        if (sn_file_exists(s->pair)) return load_format(s, i, err);
    }
    char expected[512] = "";
    for (size_t i = 0, at = 0; i < FORMATS && at < sizeof expected; i++)
        at += (size_t)snprintf(expected + at, sizeof expected - at, "%s%s%s%s", i ? ", " : "",
                               formats[i].name, formats[i].pair ? " with " : "",
                               formats[i].pair ? formats[i].pair : "");
    sn_fail(err, SN_ERR_FILE, "%s: no tokenizer found; expected one of %s", s->dir, expected);
    return NULL;
}

/* Finds the merges that belong to a vocabulary, or the vocabulary that belongs to merges, in the
 * same folder. */
static bool find_pair(source *s, const char *name, sn_error *err) {
    for (size_t i = 0; i < FORMATS; i++) {
        if (!formats[i].pair) continue;
        bool merges = !strcmp(name, formats[i].pair);
        if (merges && !join_path(s->path, sizeof s->path, s->dir, formats[i].name, err))
            return false;
        if (!join_path(s->pair, sizeof s->pair, s->dir, formats[i].pair, err)) return false;
        if (sn_file_exists(s->path) && sn_file_exists(s->pair)) return true;
    }
    return sn_fail(err, SN_ERR_FILE,
                   "%s/%s: a byte-level BPE needs both vocabulary and merges in one directory: "
                   "vocab.json with merges.txt, or encoder.json with vocab.bpe",
                   s->dir, name);
}

static sn_tokenizer *load_file(source *s, const char *name, sn_error *err) {
    for (size_t i = 0; i < FORMATS; i++) {
        bool merges = formats[i].pair && !strcmp(name, formats[i].pair);
        if (!merges && !sn_ends_with(name, formats[i].ending)) continue;
        if (formats[i].key) {
            if (!s->root && !(s->root = sn_json_read(s->path, err))) return NULL;
            /* in a vocab.json this key can be a token, whose value is a number */
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(s->root, formats[i].key);
            if (!cJSON_IsObject(item) && !cJSON_IsArray(item)) continue;
        }
        if (formats[i].pair && !find_pair(s, name, err)) return NULL;
        return load_format(s, i, err);
    }
    sn_fail(err, SN_ERR_FILE,
            "%s: unrecognised tokenizer file: expected .json, .model (SentencePiece), .bin "
            "(llama2.c), .txt (WordPiece), .tables or .gguf",
            s->path);
    return NULL;
}

sn_tokenizer *sn_tokenizer_load(const char *path, sn_error *err) {
    if (!sn_given(path, "sn_tokenizer_load", "the path", err)) return NULL;
    struct stat st;
    source s = {.root = NULL};
    sn_tokenizer *t = NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strlen(path) >= sizeof s.path - 32) {
        sn_fail(err, SN_ERR_FILE, "path too long: %.200s...", path);
    } else if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        strcpy(s.dir, path);
        t = load_directory(&s, err);
    } else if (!sn_file_exists(path)) {
        sn_fail(err, SN_ERR_FILE, "%s: no such file or directory", path);
    } else if (sn_gguf_is_file(path)) {
        t = sn_tok_load_gguf(path, err);
    } else {
        strcpy(s.path, path);
        snprintf(s.dir, sizeof s.dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
        t = load_file(&s, name, err);
    }
    cJSON_Delete(s.root);
    return t;
}
