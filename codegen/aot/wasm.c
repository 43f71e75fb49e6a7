/* wasm.c: writes the archive. Formats: ar(5); WebAssembly Core Specification 2.0, section 5.5. */
#include "codegen/aot/wasm.h"

#include <stdlib.h>
#include <string.h>

static const char magic[] = "!<arch>\n";
enum { MAGIC = sizeof magic - 1, HEAD = 60, CODE = 10 /* number of a section */ };

struct sn_wasm {
    char *data;
    size_t size, capacity, code;
    int n;
};

static bool put(sn_wasm *w, const void *data, size_t size, sn_error *err) {
    if (size > w->capacity - w->size) {
        size_t capacity = 2 * w->capacity + size;
        char *grown = realloc(w->data, capacity);
        if (!grown) return sn_fail(err, SN_ERR_MEMORY, "out of memory for an object file");
        w->data = grown;
        w->capacity = capacity;
    }
    memcpy(w->data + w->size, data, size);
    w->size += size;
    return true;
}

sn_wasm *sn_wasm_new(void) {
    sn_wasm *w = calloc(1, sizeof *w);
    if (!w || put(w, magic, MAGIC, NULL)) return w;
    free(w);
    return NULL;
}

void sn_wasm_free(sn_wasm *w) {
    if (w) free(w->data);
    free(w);
}

/* The size of the code section of an object that sn_object_check found well formed. */
static size_t code_of(const sn_object *o) {
    sn_wasm_section s = {0};
    while (sn_wasm_next(o, &s))
        if (s.id == CODE) return s.size;
    return 0;
}

bool sn_wasm_add(sn_wasm *w, const sn_object *o, sn_error *err) {
    char head[HEAD + 1], name[17];
    if (!sn_object_check(o, true, NULL))
        return sn_fail(err, SN_ERR_INTERNAL, "a kernel's object is not WebAssembly, or corrupted");
    snprintf(name, sizeof name, "%d.o/", w->n++);
    snprintf(head, sizeof head, "%-16s%-12d%-6d%-6d%-8o%-10zu`\n", name, 0, 0, 0, 0644, o->size);
    w->code += code_of(o);
    return put(w, head, HEAD, err) && put(w, o->data, o->size, err) &&
           put(w, "\n", w->size % 2, err);
}

size_t sn_wasm_code_bytes(const sn_wasm *w) {
    return w->code;
}

sn_object sn_wasm_archive(const sn_wasm *w) {
    return (sn_object){(uint8_t *)w->data, w->size};
}
