/* tokenizer_folder.c: copies the files of a tokenizer, or writes them. */
#include "tools/artefact/tokenizer_folder.h"
#include "runtime/file.h"
#include "runtime/files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool tokenizer_folder_copy(const char *folder, const char *from, const char *name, bool *copied,
                           sn_error *err) {
    if (!sn_folder_has(from, name)) return true;
    char *source = sn_path_join(from, name), *target = sn_path_join(folder, name);
    bool ok = source && target ? sn_file_copy(from, source, target, err)
                               : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (copied) *copied = true;
    free(source);
    free(target);
    return ok;
}

/* The files of a tokenizer: one of `kinds` and, of a SentencePiece model, what is beside it. */
static bool copy_files(const char *folder, const char *from, const char *only, bool *copied,
                       sn_error *err) {
    static const char *const kinds[] = {"tokenizer.json",
                                        "tokenizer.model",
                                        "sentencepiece.bpe.model",
                                        "spiece.model",
                                        "spm.model",
                                        "source.spm",
                                        "target.spm"},
                             *const beside[] = {"vocab.json", "target_vocab.json",
                                                "added_tokens.json", "special_tokens_map.json",
                                                "config.json"};
    size_t kind = 0, n = sizeof kinds / sizeof *kinds;
    bool ok = true;
    for (; ok && kind < n && !*copied; kind++)
        if (!only || !strcmp(only, kinds[kind]))
            ok = tokenizer_folder_copy(folder, from, kinds[kind], copied, err);
    bool pieces = *copied && kind > 1;
    for (size_t i = 0; ok && pieces && i < sizeof beside / sizeof *beside; i++)
        ok = tokenizer_folder_copy(folder, from, beside[i], NULL, err);
    return ok &&
           (!*copied || tokenizer_folder_copy(folder, from, "tokenizer_config.json", NULL, err));
}

bool tokenizer_folder_save(const char *folder, const sn_tokenizer *t, const char *from,
                           sn_error *err) {
    struct stat st;
    const char *slash = strrchr(from, '/');
    bool is_folder = stat(from, &st) == 0 && S_ISDIR(st.st_mode), copied = false;
    char *parent = is_folder ? strdup(from)
                   : slash   ? strndup(from, (size_t)(slash - from))
                             : strdup(".");
    if (!parent) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    const char *name = slash ? slash + 1 : from;
    bool ok = sn_folder_make(folder, err) &&
              copy_files(folder, parent, is_folder ? NULL : name, &copied, err);
    free(parent);
    if (!ok || copied) return ok;
    if (!sn_gguf_is_file(from)) return sn_tokenizer_save(t, folder, err);
    char *to = sn_path_join(folder, "tokenizer.gguf");
    ok = to ? sn_gguf_save_keys(from, to, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(to);
    return ok;
}
