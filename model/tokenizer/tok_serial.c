/* tok_serial.c: writes and reads fields and lists of tokenizer.tables (tok_serial.h). */
#include "model/tokenizer/tok_serial.h"

#include <stdlib.h>
#include <string.h>

bool sn_serial_fail(sn_serial *c, const char *what) {
    return sn_fail(c->err, SN_ERR_FILE,
                   "%s is damaged, or was written by another version of Sinter: compile the model "
                   "again",
                   what);
}

bool sn_serial_field(sn_serial *c, void *field, size_t size) {
    if (!c->reads) return sn_bytes_append(&c->fields, field, size, c->err);
    if (size > c->fields.size - c->at) return sn_serial_fail(c, "the file ends too early: it");
    memcpy(field, c->fields.data + c->at, size);
    c->at += size;
    return true;
}

bool sn_serial_bool(sn_serial *c, bool *field) {
    unsigned char byte = c->reads ? 0 : *field;
    bool ok = sn_serial_field(c, &byte, 1);
    *field = byte != 0;
    return ok;
}

bool sn_serial_count(sn_serial *c, size_t *count, size_t limit) {
    uint64_t n = *count;
    if (!SN_SERIAL(c, n)) return false;
    if (c->reads && n > limit) return sn_serial_fail(c, "a number in it is too large: the file");
    *count = (size_t)n;
    return true;
}

bool sn_serial_list(sn_serial *c, void *data, size_t *count, size_t size) {
    static const char zeros[SN_TABLE_ALIGN];
    uint64_t at = (c->lists.size + SN_TABLE_ALIGN - 1) / SN_TABLE_ALIGN * SN_TABLE_ALIGN;
    void *p; /* data is the address of a pointer of any type */
    memcpy(&p, data, sizeof p);
    bool ok = c->reads || sn_bytes_append(&c->lists, zeros, at - c->lists.size, c->err);
    ok = ok && SN_SERIAL(c, at) && sn_serial_count(c, count, c->lists.size / size);
    if (!ok) return false;
    if (!c->reads) return sn_bytes_append(&c->lists, p, *count * size, c->err);
    if (at % SN_TABLE_ALIGN || at > c->lists.size || *count * size > c->lists.size - at)
        return sn_serial_fail(c, "a list in it lies outside: the file");
    p = *count ? c->lists.data + at : NULL;
    memcpy(data, &p, sizeof p);
    return true;
}

bool sn_serial_bytes(sn_serial *c, sn_bytes *bytes) {
    size_t count = bytes->data ? bytes->size + 1 : 0;
    if (!sn_serial_list(c, &bytes->data, &count, 1)) return false;
    if (!c->reads) return true;
    if (count && bytes->data[count - 1])
        return sn_serial_fail(c, "a text in it has no end: the file");
    bytes->size = count ? count - 1 : 0;
    return true;
}

bool sn_serial_index(sn_serial *c, uint32_t first[257], size_t count) {
    bool ok = sn_serial_field(c, first, 257 * sizeof *first);
    for (int i = 0; ok && i < 257; i++)
        if (first[i] > count || (i && first[i] < first[i - 1]))
            ok = sn_serial_fail(c, "the order of its tokens");
    return ok;
}

bool sn_serial_vocab(sn_serial *c, sn_vocab *v) {
    sn_vocab tight = *v;
    if (!c->reads && !sn_vocab_tighten(&tight, c->err)) return false;
    bool ok = sn_serial_list(c, &tight.entry, &tight.count, sizeof *tight.entry) &&
              sn_serial_list(c, &tight.slot, &tight.slots, sizeof *tight.slot) &&
              sn_serial_bytes(c, &tight.pool) && SN_SERIAL(c, tight.longest) &&
              SN_SERIAL(c, tight.begins);
    if (!c->reads) free(tight.slot);
    if (c->reads) *v = tight;
    return ok;
}
