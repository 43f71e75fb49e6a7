/* import_onnx.c: an ONNX file becomes a folder as training makes of a model in C: "source" in the config, the
 * graph as text (SN_MODEL_GRAPH), and the initialisers that it reads, with their names and types. */
#include "model/import/import.h"
#include "frontend/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The format has no magic number: a file begins with field 1, the version of the format, and a later field of
 * the message. */
bool onnx_matches(const sn_mapping *m) {
    return m->size > 4 && m->data[0] == 0x08 && m->data[1] > 0 && m->data[1] < 64 && m->data[2] &&
           memchr("\x12\x1a\x22\x28\x32\x3a\x42", m->data[2], 7);
}

/* Copies no data: they stay in the mapped file. */
static void list_weights(const sn_weights *w, import_list *l) {
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        import_add(l, t->name, t->dtype, t->rank, t->shape, t->data);
    }
}

static bool save(const import_request *r, const char *file, const sn_model *model,
                 const sn_weights *w, sn_error *err) {
    import_list l = {0};
    list_weights(w, &l);
    sn_config *c = sn_config_new("config.json");
    if (c) sn_config_set_string(c, "source", file);
    bool ok = import_save_graph(r->output, model->module, err) && import_save(r, c, &l, err);
    sn_config_free(c);
    import_list_free(&l);
    return ok;
}

bool import_onnx(const import_request *r, sn_error *err) {
    const char *slash = strrchr(r->input, '/'), *file = slash ? slash + 1 : r->input;
    char *name = strndup(file, strcspn(file, "."));
    sn_model model;
    sn_weights *w;
    bool ok = name ? sn_model_build_onnx(r->input, name, NULL, NULL, &model, &w, err)
                   : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
    free(name);
    if (!ok) return false;
    ok = save(r, file, &model, w, err);
    sn_weights_close(w);
    sn_module_free(model.module);
    return ok;
}
