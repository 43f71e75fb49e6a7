/* sentence_modules.c: what a folder of Sentence-Transformers holds besides the encoder: modules.json
 * lists modules, each with a folder of its own that has a config.json and, for Dense, weights. */
#include "runtime/files/sentence_modules.h"
#include "runtime/file.h"
#include "runtime/files/json.h"
#include "runtime/files/weights_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The list in a modules.json, as {"modules": [...]}. */
static cJSON *read_list(const char *folder, sn_error *err) {
    char *path = sn_path_join(folder, SN_SENTENCE_MODULES), *text = NULL;
    sn_mapping map = {0};
    cJSON *root = NULL;
    bool ok = path && sn_file_map(path, &map, err);
    size_t size = map.size + 16;
    if (ok && map.size < (1 << 20) && (text = malloc(size))) {
        int n = snprintf(text, size, "{\"modules\":%.*s}", (int)map.size, (const char *)map.data);
        root = sn_json_parse(path, text, (size_t)n, err);
    }
    if (ok && !text) sn_fail(err, SN_ERR_FILE, "%s: too large", path);
    if (root && !cJSON_IsArray(cJSON_GetObjectItem(root, "modules"))) {
        sn_fail(err, SN_ERR_FILE, "%s: not a list of modules", path);
        cJSON_Delete(root);
        root = NULL;
    }
    if (ok) sn_file_unmap(&map);
    free(text);
    free(path);
    return root;
}

static const char *text_of(const cJSON *item, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(item, key));
    return text ? text : "";
}

/* The weights of a module, as NAME.linear.weight. */
static bool add_weights(const char *folder, const char *name, sn_weights *w, sn_error *err) {
    if (!sn_folder_has(folder, "model.safetensors"))
        return sn_fail(err, SN_ERR_FILE,
                       "%s: no model.safetensors here, which the embeddings need: convert the "
                       "module's pytorch_model.bin",
                       folder);
    char *path = sn_path_join(folder, "model.safetensors"), prefix[128];
    snprintf(prefix, sizeof prefix, "%s.", name);
    bool ok = path ? sn_weights_add(w, path, prefix, err)
                   : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", folder);
    free(path);
    return ok;
}

/* Adds module `item` as section `number` of `out`. */
static bool add_module(const char *folder, const cJSON *item, int number, sn_config *out,
                       sn_weights *w, sn_error *err) {
    const char *type = text_of(item, "type"), *name = text_of(item, "path");
    const char *kind = strrchr(type, '.') ? strrchr(type, '.') + 1 : type;
    char key[16];
    if (strchr(name, '/') || strchr(name, '.') || strlen(name) > 60)
        return sn_fail(err, SN_ERR_FILE, "%s/" SN_SENTENCE_MODULES ": \"%.60s\" is not a folder",
                       folder, name);
    char *inner = sn_path_join(folder, name),
         *path = sn_path_join(inner ? inner : "", "config.json");
    bool needs = strcmp(kind, "Normalize") != 0;
    sn_config *c = NULL;
    if (!inner || !path)
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", folder);
    else
        c = needs ? sn_config_open(path, err) : sn_config_new(SN_SENTENCE_MODULES);
    bool ok = c && (!w || strcmp(kind, "Dense") || add_weights(inner, name, w, err));
    if (ok) {
        sn_config_set_string(c, "module", kind);
        sn_config_set_string(c, "name", name);
        snprintf(key, sizeof key, "%d", number);
        sn_config_set_section(out, key, c);
    }
    sn_config_free(c);
    free(inner);
    free(path);
    return ok;
}

bool sn_sentence_modules_read(const char *folder, sn_config *config, sn_weights *w, sn_error *err) {
    if (!sn_folder_has(folder, SN_SENTENCE_MODULES)) return true;
    cJSON *root = read_list(folder, err);
    if (!root) return false;
    sn_config *out = sn_config_new(SN_SENTENCE_MODULES);
    bool ok = out || sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", folder);
    int n = 0;
    const cJSON *item, *list = cJSON_GetObjectItem(root, "modules");
    cJSON_ArrayForEach(item, list) {
        const char *type = text_of(item, "type");
        size_t size = strlen(type), e = sizeof ".Transformer" - 1;
        if (size >= e && !strcmp(type + size - e, ".Transformer")) continue;
        if (ok) ok = add_module(folder, item, n++, out, w, err);
    }
    if (ok) sn_config_set_section(config, "sentence_embedding", out);
    sn_config_free(out);
    cJSON_Delete(root);
    return ok;
}
