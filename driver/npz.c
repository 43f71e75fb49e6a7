/* npz.c: see npz.h. Sources: PKWARE APPNOTE 6.3 sections 4.3.7, 4.3.12, 4.3.16; numpy.savez. */
#include "driver/npz.h"
#include "runtime/problems.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

enum { END_SIZE = 22, ENTRY_SIZE = 46, LOCAL_SIZE = 30, COMMENT_LIMIT = 65535 };

/* Limit on the total size of all arrays: this many bytes plus 64 per byte of the archive. Weights
 * hardly compress; a ratio near deflate's maximum, 1032 to 1, is a decompression bomb. */
#define UNPACKED_LIMIT ((uint64_t)64 << 20)

bool npz_is(const sn_mapping *m) {
    return m->size >= END_SIZE && !memcmp(m->data, "PK\3\4", 4);
}

static uint32_t read_u16(const unsigned char *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t read_u32(const unsigned char *p) {
    return read_u16(p) | read_u16(p + 2) << 16;
}

/* The end record: the last position in the file where one fits, including its comment. */
static const unsigned char *find_end(const sn_mapping *m) {
    for (size_t back = END_SIZE; back <= m->size && back <= END_SIZE + COMMENT_LIMIT; back++) {
        const unsigned char *p = m->data + m->size - back;
        if (!memcmp(p, "PK\5\6", 4) && read_u16(p + 20) == back - END_SIZE) return p;
    }
    return NULL;
}

/* A file in the archive, from its central directory entry. */
typedef struct member {
    char name[256]; /* without ".npy" */
    const unsigned char *packed;
    uint32_t method, crc, packed_size, size;
} member;

/* Reads the entry at *at and moves *at behind it; returns an error text, or NULL. */
static const char *read_member(const sn_mapping *m, const unsigned char **at,
                               const unsigned char *end, member *e) {
    const unsigned char *p = *at;
    if (end - p < ENTRY_SIZE || memcmp(p, "PK\1\2", 4)) return "malformed directory";
    size_t name = read_u16(p + 28), skip = read_u16(p + 30) + read_u16(p + 32);
    if ((size_t)(end - p) < ENTRY_SIZE + name + skip) return "malformed directory";
    *at = p + ENTRY_SIZE + name + skip;
    if (name >= sizeof e->name || name < 5 || memcmp(p + ENTRY_SIZE + name - 4, ".npy", 4) ||
        memchr(p + ENTRY_SIZE, 0, name))
        return "contains files other than .npy";
    memcpy(e->name, p + ENTRY_SIZE, name - 4);
    e->name[name - 4] = 0;
    e->method = read_u16(p + 10);
    e->crc = read_u32(p + 16);
    e->packed_size = read_u32(p + 20);
    e->size = read_u32(p + 24);
    uint64_t local = read_u32(p + 42);
    if (read_u16(p + 8) & 1) return "encrypted";
    if (e->size == UINT32_MAX || local == UINT32_MAX) return "larger than 4 GB (zip64)";
    if (local + LOCAL_SIZE > m->size || memcmp(m->data + local, "PK\3\4", 4))
        return "an entry lies outside the file";
    const unsigned char *h = m->data + local;
    uint64_t start = local + LOCAL_SIZE + read_u16(h + 26) + read_u16(h + 28);
    if (start > m->size || e->packed_size > m->size - start)
        return "an entry lies outside the file";
    e->packed = m->data + start;
    return NULL;
}

/* Decompresses a deflated member to exactly e->size bytes. */
static bool inflate_member(const member *e, unsigned char *out) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)e->packed,
                  .avail_in = e->packed_size,
                  .next_out = out,
                  .avail_out = e->size};
    if (inflateInit2(&z, -15) != Z_OK) return false;
    bool ok = inflate(&z, Z_FINISH) == Z_STREAM_END && z.total_out == e->size;
    inflateEnd(&z);
    return ok;
}

static bool read_array(const member *e, const char *path, npz_take *take, void *ctx,
                       sn_error *err) {
    char where[400], shown[120];
    snprintf(where, sizeof where, "%.250s: \"%s\"", path,
             sn_printable(shown, sizeof shown, e->name));
    const unsigned char *data = e->packed;
    unsigned char *unpacked = NULL;
    if (e->method == 8) {
        if (e->size / 1100 > e->packed_size) /* deflate's maximum ratio is 1032 to 1 */
            return sn_fail(err, SN_ERR_FILE, "%s: corrupted (impossible sizes)", where);
        unpacked = malloc((size_t)e->size + 1);
        if (!unpacked) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", where);
        data = unpacked;
    }
    sn_npy a = {0};
    bool ok = false;
    if (e->method != 8 && e->method != 0)
        sn_fail(err, SN_ERR_FILE, "%s: compression method %" PRIu32 " is not supported", where,
                e->method);
    else if (unpacked ? !inflate_member(e, unpacked) : e->packed_size != e->size)
        sn_fail(err, SN_ERR_FILE, "%s: corrupted (cannot be decompressed)", where);
    else if (crc32(0, data, e->size) != e->crc)
        sn_fail(err, SN_ERR_FILE, "%s: corrupted (wrong checksum)", where);
    else
        ok = sn_npy_parse(where, data, e->size, &a, err);
    free(unpacked);
    return ok && take(ctx, e->name, &a, err);
}

enum { MAX_SLOTS = 2 << 16 }; /* an archive has less than half as many members */

/* Adds a name to the hashes seen[slots], a power of two. False: it is there. */
static bool is_new(uint64_t *seen, size_t slots, const char *name) {
    uint64_t hash = XXH3_64bits(name, strlen(name)) | 1;
    size_t i = (hash >> 1) & (slots - 1);
    while (seen[i] && seen[i] != hash) i = (i + 1) & (slots - 1);
    bool fresh = !seen[i];
    seen[i] = hash;
    return fresh;
}

static bool read_archive(const sn_mapping *m, const char *path, npz_take *take, void *ctx,
                         uint64_t *seen, size_t slots, sn_error *err) {
    const unsigned char *end = find_end(m);
    if (!end) return sn_fail(err, SN_ERR_FILE, "%s: not a complete zip archive: truncated?", path);
    uint64_t count = read_u16(end + 10), size = read_u32(end + 12), start = read_u32(end + 16);
    if (start + size > (uint64_t)(end - m->data))
        return sn_fail(err, SN_ERR_FILE, "%s: malformed zip archive", path);
    const unsigned char *at = m->data + start;
    uint64_t packed = 0, unpacked = 0;
    for (uint64_t i = 0; i < count; i++) {
        member e;
        const char *why = read_member(m, &at, m->data + start + size, &e);
        packed += why ? 0 : e.packed_size;
        unpacked += why ? 0 : e.size;
        if (!why && !is_new(seen, slots, e.name)) why = "duplicate name";
        if (!why && packed > m->size) why = "entries share their data";
        if (!why && unpacked > UNPACKED_LIMIT + 64 * (uint64_t)m->size)
            why = "the arrays are too large for the size of the archive";
        if (why) return sn_fail(err, SN_ERR_FILE, "%s: entry %" PRIu64 ": %s", path, i, why);
        if (!read_array(&e, path, take, ctx, err)) return false;
    }
    return at == m->data + start + size ||
           sn_fail(err, SN_ERR_FILE, "%s: malformed zip archive", path);
}

bool npz_read(const char *path, npz_take *take, void *ctx, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    size_t slots = 16;
    while (slots < MAX_SLOTS && slots <= 2 * (m.size / ENTRY_SIZE)) slots *= 2;
    uint64_t *seen = calloc(slots, sizeof *seen); /* names */
    bool ok = seen ? read_archive(&m, path, take, ctx, seen, slots, err)
                   : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    free(seen);
    sn_file_unmap(&m);
    return ok;
}

/* ---- writing ---- */

static void put(unsigned char *p, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(v >> 8 * i);
}

typedef struct placed { /* an array in the file that is written */
    size_t offset, size;
    uint32_t crc;
} placed;

/* What local headers and the directory say alike: version, no flags, stored, no time. */
static void put_facts(unsigned char *p, const placed *a, size_t name) {
    put(p, 20, 2);
    put(p + 10, a->crc, 4);
    put(p + 14, a->size, 4);
    put(p + 18, a->size, 4);
    put(p + 22, name, 2);
}

static bool write_name(sn_file *f, const char *name, sn_error *err) {
    return sn_file_write(f, name, strlen(name), err) && sn_file_write(f, ".npy", 4, err);
}

static bool write_member(sn_file *f, const npz_array *a, placed *at, sn_error *err) {
    unsigned char local[LOCAL_SIZE] = "PK\3\4";
    char head[SN_NPY_HEADER];
    size_t header = sn_npy_header(a->dtype, a->rank, a->shape, head);
    at->size = header + a->bytes;
    if (at->offset + at->size > UINT32_MAX)
        return sn_fail(err, SN_ERR_FILE,
                       "the arrays are too large for an .npz file (4 GB): write "
                       "them to a folder");
    at->crc = (uint32_t)crc32_z(crc32(0, (const Bytef *)head, (uInt)header), a->data, a->bytes);
    put_facts(local + 4, at, strlen(a->name) + 4);
    return sn_file_write(f, local, sizeof local, err) && write_name(f, a->name, err) &&
           sn_file_write(f, head, header, err) && sn_file_write(f, a->data, a->bytes, err);
}

static bool write_directory(sn_file *f, const npz_array *list, const placed *at, int n,
                            size_t start, sn_error *err) {
    size_t size = 0;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        unsigned char entry[ENTRY_SIZE] = "PK\1\2";
        put(entry + 4, 20, 2);
        put_facts(entry + 6, &at[i], strlen(list[i].name) + 4);
        put(entry + 42, at[i].offset, 4);
        ok = sn_file_write(f, entry, sizeof entry, err) && write_name(f, list[i].name, err);
        size += sizeof entry + strlen(list[i].name) + 4;
    }
    unsigned char end[END_SIZE] = "PK\5\6";
    put(end + 8, (uint64_t)n, 2);
    put(end + 10, (uint64_t)n, 2);
    put(end + 12, size, 4);
    put(end + 16, start, 4);
    return ok && sn_file_write(f, end, sizeof end, err);
}

bool npz_write(const char *path, const npz_array *list, int n, sn_error *err) {
    sn_file *f = sn_file_output(path, err);
    placed *at = calloc((size_t)n + 1, sizeof *at);
    bool ok = f && (at || sn_fail(err, SN_ERR_MEMORY, "out of memory"));
    size_t offset = 0;
    for (int i = 0; ok && i < n; i++) {
        at[i].offset = offset;
        ok = write_member(f, &list[i], &at[i], err);
        offset += LOCAL_SIZE + strlen(list[i].name) + 4 + at[i].size;
    }
    ok = ok && write_directory(f, list, at, n, offset, err);
    free(at);
    if (ok) return sn_file_commit(f, err);
    sn_file_discard(f);
    return false;
}
