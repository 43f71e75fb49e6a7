/* protobuf.h: messages in the wire format of protocol buffers, for tests that write ONNX files of a few nodes. Include it
 * after cmocka.h. */
#ifndef SN_TEST_PROTOBUF_H
#define SN_TEST_PROTOBUF_H

#include <stdint.h>
#include <string.h>

typedef struct bytes {
    size_t n;
    unsigned char data[4096];
} bytes;

static inline void put(bytes *b, const void *data, size_t n) {
    assert_true(n <= sizeof b->data - b->n);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void put_varint(bytes *b, uint64_t x) {
    for (; x > 127; x >>= 7) put(b, &(unsigned char){(unsigned char)(x | 128)}, 1);
    put(b, &(unsigned char){(unsigned char)x}, 1);
}

static inline void put_int(bytes *b, int field, int64_t x) {
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)x);
}

static inline void put_bytes(bytes *b, int field, const void *data, size_t n) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    put(b, data, n);
}

static inline void put_text(bytes *b, int field, const char *text) {
    put_bytes(b, field, text, strlen(text));
}

static inline void put_message(bytes *b, int field, const bytes *inner) {
    put_bytes(b, field, inner->data, inner->n);
}

#endif
