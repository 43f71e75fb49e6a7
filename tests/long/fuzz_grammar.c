/* fuzz_grammar.c: implements fuzz_grammar.h. */
#include "tests/long/fuzz_grammar.h"

#include "codegen/aot/file.h"
#include "frontend/onnx/onnx.h"
#include "model/tokenizer/tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <zlib.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

uint64_t grammar_below(uint64_t *s, uint64_t n) {
    return next_random(s) % n;
}

#define PICK(s, list) (list)[grammar_below(s, sizeof(list) / sizeof *(list))]

static void put(sn_bytes *out, const void *data, size_t size) {
    if (!sn_bytes_append(out, data, size, NULL)) abort();
}

static void print(sn_bytes *out, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(out, text, (size_t)n);
}

static void put_int(sn_bytes *out, uint64_t x, int bytes) { /* little endian */
    unsigned char le[8];
    for (int i = 0; i < bytes; i++) le[i] = (unsigned char)(x >> (8 * i));
    put(out, le, (size_t)bytes);
}

static void put_zeros(sn_bytes *out, size_t n) {
    static const char zeros[4096];
    for (size_t k; n; n -= k) put(out, zeros, k = n < sizeof zeros ? n : sizeof zeros);
}

/* ---- shapes ---- */

/* A zero beside a huge size has no elements, whatever the product of the sizes wraps to. */
typedef struct shape {
    int rank;
    uint64_t size[4];
    uint64_t count; /* elements; 0 if they are too many to write */
} shape;

static shape make_shape(uint64_t *s) {
    static const uint64_t small[] = {0, 1, 2, 3, 32, 64}, huge[] = {4096,
                                                                    4097,
                                                                    20000000,
                                                                    UINT64_C(1) << 31,
                                                                    UINT64_C(1) << 32,
                                                                    UINT64_C(1) << 60,
                                                                    UINT64_C(1) << 61,
                                                                    (UINT64_C(1) << 61) + 1,
                                                                    UINT64_C(1) << 62,
                                                                    INT64_MAX,
                                                                    UINT64_C(1) << 63,
                                                                    UINT64_MAX};
    shape x = {.rank = (int)grammar_below(s, 5), .count = 1};
    for (int a = 0; a < x.rank; a++)
        x.size[a] = grammar_below(s, 3) ? PICK(s, small) : PICK(s, huge);
    if (x.rank && grammar_below(s, 4)) x.size[grammar_below(s, (uint64_t)x.rank)] = 0;
    for (int a = 0; a < x.rank; a++)
        x.count = x.size[a] > 4096 || x.count * x.size[a] > 65536 ? 0 : x.count * x.size[a];
    return x;
}

static void print_shape(const shape *x, const char *after, sn_bytes *out) {
    for (int a = 0; a < x->rank; a++)
        print(out, "%s%llu", a ? ", " : "", (unsigned long long)x->size[a]);
    if (x->rank) print(out, "%s", after);
}

static void put_name(sn_bytes *out, const char *name) {
    put_int(out, strlen(name), 8);
    put(out, name, strlen(name));
}

/* "%d" is the place of an expert's number; a file may have such a name, too. */
void grammar_gguf(uint64_t *s, sn_bytes *out) {
    static const char *const names[] = {"x%d.weight", "token_embd.weight",
                                        "blk.0.ffn_gate_exps.weight", "blk.0.ffn_up.%d.weight",
                                        "blk.0.attn_q.weight"};
    static const uint64_t types[] = {0, 1, 2, 8}; /* f32, f16, Q4_0, Q8_0 */
    enum { STRING = 8, ALIGN = 32 };
    uint64_t n = 1 + grammar_below(s, 2), bytes = 0;
    put(out, "GGUF\3\0\0\0", 8);
    put_int(out, n, 8), put_int(out, 1, 8);
    put_name(out, "general.architecture");
    put_int(out, STRING, 4);
    put_name(out, grammar_below(s, 2) ? "llama" : "qwen2moe");
    for (uint64_t i = 0; i < n; i++) {
        shape x = make_shape(s);
        put_name(out, PICK(s, names));
        put_int(out, (uint64_t)x.rank, 4);
        for (int a = x.rank; a-- > 0;) put_int(out, x.size[a], 8);
        put_int(out, PICK(s, types), 4), put_int(out, bytes, 8);
        bytes += (4 * x.count + ALIGN - 1) / ALIGN * ALIGN;
    }
    put_zeros(out, (ALIGN - out->size % ALIGN) % ALIGN + bytes);
}

void grammar_safetensors(uint64_t *s, sn_bytes *out) {
    static const char *const types[] = {"F32", "F64", "BF16", "I64", "U8"};
    sn_bytes head = {0};
    shape x = make_shape(s);
    print(&head, "{\"a\":{\"dtype\":\"%s\",\"shape\":[", PICK(s, types));
    print_shape(&x, "", &head);
    print(&head, "],\"data_offsets\":[0,%llu]}}", (unsigned long long)(4 * x.count));
    put_int(out, head.size, 8);
    put(out, head.data, head.size);
    put_zeros(out, 4 * x.count);
    sn_bytes_free(&head);
}

void grammar_json_tensors(uint64_t *s, sn_bytes *out) {
    shape x = make_shape(s);
    print(out, "{\"config\":{\"model_type\":\"tse_gpt\"},\"a\":{\"shape\":[");
    print_shape(&x, "", out);
    print(out, "],\"dtype\":\"torch.float32\",\"data\":\"");
    for (uint64_t i = 0; i < (4 * x.count + 2) / 3; i++) put(out, "AAAA", 4); /* base64 */
    print(out, "\"}}");
}

void grammar_npy(uint64_t *s, sn_bytes *out) {
    static const char *const types[] = {"<f4", "<f8", "<i8", "|u1", "|b1"};
    sn_bytes head = {0};
    shape x = make_shape(s);
    print(&head, "{'descr': '%s', 'fortran_order': False, 'shape': (", PICK(s, types));
    print_shape(&x, ",", &head);
    print(&head, "), }");
    while ((head.size + 11) % 64) print(&head, " ");
    print(&head, "\n");
    put(out, "\x93NUMPY\1\0", 8);
    put_int(out, head.size, 2);
    put(out, head.data, head.size);
    put_zeros(out, 4 * x.count);
    sn_bytes_free(&head);
}

/* Arrays without compression. */
void grammar_npz(uint64_t *s, sn_bytes *out) {
    static const char *const names[] = {"config.npy", "pos_embed.npy"};
    sn_bytes directory = {0};
    for (int i = 0; i < 2; i++) {
        sn_bytes array = {0}, entry = {0};
        const size_t at = out->size, name = strlen(names[i]);
        grammar_npy(s, &array);
        put(&entry, "\24\0\0\0\0\0\0\0\0\0", 10); /* version, flags, method, time */
        put_int(&entry, crc32(0, (const Bytef *)array.data, (uInt)array.size), 4);
        put_int(&entry, array.size, 4), put_int(&entry, array.size, 4);
        put_int(&entry, name, 2), put_int(&entry, 0, 2);
        put(out, "PK\3\4", 4);
        put(out, entry.data, entry.size);
        put(out, names[i], name);
        put(out, array.data, array.size);
        put(&directory, "PK\1\2\24\0", 6);
        put(&directory, entry.data, entry.size);
        put_zeros(&directory, 10); /* comment, disk, attributes */
        put_int(&directory, at, 4);
        put(&directory, names[i], name);
        sn_bytes_free(&array), sn_bytes_free(&entry);
    }
    const size_t at = out->size;
    put(out, directory.data, directory.size);
    put(out, "PK\5\6\0\0\0\0\2\0\2\0", 12);
    put_int(out, directory.size, 4), put_int(out, at, 4), put_int(out, 0, 2);
    sn_bytes_free(&directory);
}

void grammar_idx(uint64_t *s, sn_bytes *out) {
    shape x = make_shape(s);
    put(out, (char[]){0, 0, 8, (char)x.rank}, 4);
    for (int a = 0; a < x.rank; a++)
        for (int i = 24; i >= 0; i -= 8) put_int(out, x.size[a] >> i, 1);
    put_zeros(out, x.count);
}

/* Chunks of RIFF: formats, samples, others, of right and wrong sizes. */
void grammar_wav(uint64_t *s, sn_bytes *out) {
    static const uint64_t sizes[] = {0, 1, 15, 16, 17, 25, 26, 40, 0x7fffffff, 0xffffffff},
                          formats[] = {1, 1, 1, 3, 3, 0xfffe, 0, 0xffff},
                          channels[] = {1, 1, 2, 2, 3, 64, 65, 0}, bits[] = {8, 16, 16, 24, 32, 64},
                          rates[] = {1000, 16000, 16000, 44100, 44100, 0, 0xffffffff};
    static const char *const names[] = {"data", "data", "LIST", "fmt ", "\xff\xff\xff\xff"};
    print(out, "RIFF"), put_int(out, PICK(s, sizes), 4), print(out, "WAVE");
    if (grammar_below(s, 8)) {
        print(out, "fmt "), put_int(out, grammar_below(s, 4) ? 16 : PICK(s, sizes), 4);
        put_int(out, PICK(s, formats), 2), put_int(out, PICK(s, channels), 2);
        put_int(out, PICK(s, rates), 4), put_zeros(out, 6), put_int(out, PICK(s, bits), 2);
    }
    for (uint64_t chunks = grammar_below(s, 4); chunks--;) {
        uint64_t n = grammar_below(s, 4) ? grammar_below(s, 64) : PICK(s, sizes);
        put(out, PICK(s, names), 4), put_int(out, n, 4);
        for (uint64_t i = 0; i < 64 && i < n; i++) put_int(out, next_random(s), 1);
    }
}

void grammar_llama2c(uint64_t *s, sn_bytes *out) {
    static const uint64_t sizes[] = {0,     1,          2,          4,          8,         64,
                                     65536, 0x7fffffff, 0x40000000, 0x80000000, 0xffffffff};
    for (int i = 0; i < 7; i++)
        put_int(out, grammar_below(s, 8) ? UINT64_C(1) << grammar_below(s, 4) : PICK(s, sizes), 4);
    put_zeros(out, grammar_below(s, 4096));
}

/* ---- keys of GGUF files ---- */

static void put_value(uint64_t *s, uint64_t type, int depth, sn_bytes *out) {
    enum { STRING = 8, ARRAY = 9 };
    static const char *const texts[] = {"llama",  "gpt2",   "bert", "a b",
                                        "<0x-1>", "<0x0A>", "",     "yarn"};
    static const int size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    static const uint64_t numbers[] = {0,          1,          2,          3,         8,         32,
                                       0x3f800000, 0x7f800000, 0x7fc00000, INT64_MAX, UINT64_MAX};
    if (type == STRING) {
        put_name(out, PICK(s, texts));
    } else if (type == ARRAY) {
        const uint64_t each = depth < 3 ? grammar_below(s, 13) : 0, n = grammar_below(s, 6);
        put_int(out, each, 4), put_int(out, grammar_below(s, 16) ? n : PICK(s, numbers), 8);
        for (uint64_t i = 0; i < n; i++) put_value(s, each, depth + 1, out);
    } else
        put_int(out, PICK(s, numbers), type < 13 ? size[type] : 4);
}

/* Values of any type under names that readers know; "A." stands for the architecture. */
void grammar_gguf_keys(uint64_t *s, sn_bytes *out) {
    static const char *const architectures[] = {"llama",         "deepseek2", "kimi-linear",
                                                "granitehybrid", "jamba",     "mamba2"};
    static const char *const names[] = {"general.alignment",
                                        "split.count",
                                        "split.no",
                                        "A.block_count",
                                        "A.context_length",
                                        "A.embedding_length",
                                        "A.attention.head_count",
                                        "A.rope.scaling.type",
                                        "A.rope.scaling.factor",
                                        "A.rope.dimension_count",
                                        "A.expert_count",
                                        "tokenizer.chat_template",
                                        "tokenizer.ggml.pre",
                                        "tokenizer.ggml.merges",
                                        "tokenizer.ggml.scores",
                                        "tokenizer.ggml.token_type",
                                        "tokenizer.ggml.bos_token_id",
                                        "tokenizer.ggml.add_space_prefix",
                                        "tokenizer.ggml.add_bos_token",
                                        "A.attention.head_count_kv",
                                        "A.attention.kv_lora_rank",
                                        "A.attention.key_length",
                                        "A.expert_gating_func",
                                        "A.ssm.inner_size",
                                        "A.ssm.state_size"};
    static const uint64_t fitting[] = {4, 4, 4, 4, 4, 4, 4, 8, 6, 4, 4, 8, 8,
                                       9, 9, 9, 4, 7, 7, 9, 4, 4, 4, 4, 4};
    const uint64_t n = sizeof names / sizeof *names, from = grammar_below(s, n),
                   count = grammar_below(s, 8);
    put(out, "GGUF\3\0\0\0", 8);
    put_int(out, 0, 8), put_int(out, count + 3, 8);
    const char *architecture = PICK(s, architectures);
    put_name(out, "general.architecture"), put_int(out, 8, 4), put_name(out, architecture);
    put_name(out, "tokenizer.ggml.model"), put_int(out, 8, 4), put_value(s, 8, 0, out);
    put_name(out, "tokenizer.ggml.tokens"), put_int(out, 9, 4);
    put_int(out, 8, 4), put_int(out, 4, 8);
    for (int i = 0; i < 4; i++) put_value(s, 8, 0, out);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t k = (from + i) % n,
                       type = grammar_below(s, 3) ? fitting[k] : grammar_below(s, 14);
        char name[64];
        const bool own = !strncmp(names[k], "A.", 2);
        snprintf(name, sizeof name, "%s%s", own ? architecture : "", names[k] + own);
        put_name(out, name), put_int(out, type, 4);
        put_value(s, type, 0, out);
    }
}

/* ---- ONNX ---- */

static void put_varint(sn_bytes *out, uint64_t x) {
    for (; x > 127; x >>= 7) put_int(out, x | 128, 1);
    put_int(out, x, 1);
}

static void put_field(sn_bytes *out, uint64_t field, uint64_t x) {
    put_varint(out, field << 3), put_varint(out, x);
}

/* A field of bytes, freed here. Its size is rarely another one. */
static void put_part(uint64_t *s, sn_bytes *out, uint64_t field, sn_bytes *part) {
    static const uint64_t sizes[] = {0, 1, 127, UINT64_C(1) << 31, UINT64_C(1) << 63, UINT64_MAX};
    put_varint(out, field << 3 | 2);
    put_varint(out, grammar_below(s, 4000) ? part->size : PICK(s, sizes));
    put(out, part->data, part->size);
    sn_bytes_free(part);
}

static void put_text(uint64_t *s, sn_bytes *out, uint64_t field, const char *text) {
    sn_bytes part = {0};
    put(&part, text, strlen(text));
    put_part(s, out, field, &part);
}

static const char *const values[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
static const uint64_t sizes[] = {
    0, 1, 2, 3, 4, 8, (uint64_t)-1, (uint64_t)-2, UINT64_C(1) << 31, UINT64_C(1) << 62, INT64_MAX};

/* A tensor of i64 or f32. */
static void put_tensor(uint64_t *s, sn_bytes *out, uint64_t field, const char *name) {
    sn_bytes t = {0};
    const uint64_t rank = grammar_below(s, 3), type = grammar_below(s, 2) ? 7 : 1;
    uint64_t n = 1;
    for (uint64_t i = 0; i < rank; i++) {
        const uint64_t size = PICK(s, sizes);
        put_field(&t, 1, size);
        n = size > 8 ? 0 : n * size;
    }
    put_field(&t, 2, grammar_below(s, 20) ? type : grammar_below(s, 24));
    for (uint64_t i = 0; i < n; i++)
        if (type == 7)
            put_field(&t, 7, PICK(s, sizes));
        else
            put_varint(&t, 4 << 3 | 5), put_int(&t, 0x3f800000, 4);
    put_text(s, &t, 8, name);
    put_part(s, out, field, &t);
}

static const char *const attributes[] = {"axis",
                                         "axes",
                                         "perm",
                                         "to",
                                         "keepdims",
                                         "shape",
                                         "kernel_shape",
                                         "pads",
                                         "strides",
                                         "dilations",
                                         "group",
                                         "blocksize",
                                         "num_outputs",
                                         "split",
                                         "value",
                                         "equation",
                                         "mode",
                                         "epsilon",
                                         "allowzero",
                                         "start",
                                         "end",
                                         "starts",
                                         "ends",
                                         "alpha",
                                         "beta",
                                         "gamma",
                                         "scale",
                                         "num_heads",
                                         "kv_num_heads",
                                         "q_num_heads",
                                         "k",
                                         "auto_pad",
                                         "unidirectional",
                                         "softcap",
                                         "rotary_embedding_dim",
                                         "reverse",
                                         "min",
                                         "max",
                                         "interleaved",
                                         "fmod",
                                         "exclusive",
                                         "dtype",
                                         "do_rotary",
                                         "block_size",
                                         "activation",
                                         "value_ints",
                                         "value_int",
                                         "value_float",
                                         "upper",
                                         "update_rule",
                                         "transA",
                                         "transB",
                                         "transBatchA",
                                         "transBatchB",
                                         "select_last_index",
                                         "reduction",
                                         "qkv_hidden_sizes",
                                         "paddings",
                                         "p",
                                         "output_shape",
                                         "output_padding",
                                         "output_dtype",
                                         "num_groups",
                                         "noop_with_empty_axes",
                                         "local_window_size",
                                         "left_window_size",
                                         "largest",
                                         "is_causal",
                                         "direction",
                                         "causal",
                                         "bits",
                                         "batch_dims",
                                         "antialias",
                                         "ceil_mode",
                                         "count_include_pad",
                                         "K",
                                         "N"};

static void put_attribute(uint64_t *s, sn_bytes *out) {
    sn_bytes a = {0};
    put_text(s, &a, 1, PICK(s, attributes));
    const uint64_t kind = grammar_below(s, 5);
    if (kind == 4) put_varint(&a, 2 << 3 | 5), put_int(&a, next_random(s), 4), put_field(&a, 20, 1);
    if (kind == 0) put_field(&a, 3, PICK(s, sizes)), put_field(&a, 20, 2);
    if (kind == 1) put_tensor(s, &a, 5, ""), put_field(&a, 20, 4);
    if (kind == 2)
        put_text(s, &a, 4, grammar_below(s, 2) ? "ij,jk->ik" : "SAME_UPPER"), put_field(&a, 20, 3);
    for (uint64_t i = grammar_below(s, 5); kind == 3 && i--;) put_field(&a, 8, PICK(s, sizes));
    if (kind == 3) put_field(&a, 20, 7);
    put_part(s, out, 5, &a);
}

/* An input or output: f32 or i64 of up to three sizes, or dims with names. */
static void put_info(uint64_t *s, sn_bytes *out, uint64_t field, const char *name) {
    sn_bytes info = {0}, type = {0}, tensor = {0}, shape = {0};
    put_text(s, &info, 1, name);
    put_field(&tensor, 1, grammar_below(s, 3) ? 1 : 7);
    for (uint64_t i = grammar_below(s, 4); i--;) {
        sn_bytes dim = {0};
        if (grammar_below(s, 3))
            put_field(&dim, 1, grammar_below(s, 8) ? 1 + grammar_below(s, 8) : PICK(s, sizes));
        else
            put_text(s, &dim, 2, PICK(s, values));
        put_part(s, &shape, 1, &dim);
    }
    put_part(s, &tensor, 2, &shape);
    put_part(s, &type, 1, &tensor);
    put_part(s, &info, 2, &type);
    put_part(s, out, field, &info);
}

/* Graphs of a few nodes: any operators, attributes and constants. */
void grammar_onnx(uint64_t *s, sn_bytes *out) {
    sn_bytes graph = {0}, opset = {0};
    int operators = 0;
    sn_onnx_operator op;
    while (sn_onnx_operator_at(operators, &op)) operators++;
    const uint64_t n = 1 + grammar_below(s, 4);
    for (uint64_t i = 0; i < n; i++) { /* node i computes value 4 + i */
        sn_bytes node = {0};
        sn_onnx_operator_at((int)grammar_below(s, (uint64_t)operators), &op);
        for (uint64_t k = 1 + grammar_below(s, 3); k--;)
            put_text(s, &node, 1, values[grammar_below(s, 4 + i)]);
        put_text(s, &node, 2, values[4 + i]);
        put_text(s, &node, 4, op.name);
        for (uint64_t k = grammar_below(s, 4); k--;) put_attribute(s, &node);
        put_text(s, &node, 7, op.domain);
        put_part(s, &graph, 1, &node);
    }
    for (int i = 0; i < 4; i++)
        if (grammar_below(s, 2))
            put_tensor(s, &graph, 5, values[i]);
        else
            put_info(s, &graph, 11, values[i]);
    put_info(s, &graph, 12, values[3 + n]);
    put_field(out, 1, 9);
    put_field(&opset, 2, 13 + grammar_below(s, 9));
    put_part(s, out, 8, &opset);
    put_part(s, out, 7, &graph);
}

/* ---- weights of artefacts ---- */

void grammar_artefact(uint64_t *s, sn_bytes *out) {
    static const uint64_t sizes[] = {
        0, 4096, 8192, 4095, 65536, UINT64_C(1) << 31, UINT64_C(1) << 63, UINT64_MAX - 4095};
    const uint64_t pages = grammar_below(s, 4);
    put(out, SN_AOT_MAGIC, 8);
    put_int(out, SN_AOT_FILE_VERSION, 4), put_int(out, SN_AOT_PAGE, 4);
    put_int(out, next_random(s), 8), put_int(out, next_random(s), 8);
    put_int(out, grammar_below(s, 4) ? pages * SN_AOT_PAGE : PICK(s, sizes), 8);
    put_int(out, PICK(s, sizes), 8);
    put_zeros(out, pages * SN_AOT_PAGE > out->size ? pages * SN_AOT_PAGE - out->size : 0);
}

/* ---- chat templates ---- */

static const char *const integers[] = {"0",
                                       "1",
                                       "-1",
                                       "2",
                                       "-2",
                                       "3",
                                       "-3",
                                       "9223372036854775807",
                                       "-9223372036854775807",
                                       "9223372036854775806",
                                       "6917529027641081855"};

__extension__ typedef __int128 wide;

static wide value_of(const char *text) {
    return text ? strtoll(text, NULL, 10) : 0;
}

/* The rest of a division, with the sign of the divisor, as in Python. */
static void put_rest(uint64_t *s, sn_bytes *out) {
    const char *a = PICK(s, integers), *b = PICK(s, integers);
    wide x = value_of(a), y = value_of(b);
    if (y > 0) print(out, "{#%lld#}", (long long)((x % y + y) % y));
    print(out, "{{ (%s) %% (%s) }}", a, b);
}

/* A slice of [0, 1, ...] as Python defines it. */
static void put_slice(uint64_t *s, sn_bytes *out) {
    const char *part[3];
    const int n = (int)grammar_below(s, 6);
    for (int i = 0; i < 3; i++) part[i] = grammar_below(s, 3) ? PICK(s, integers) : NULL;
    const wide step = part[2] ? value_of(part[2]) : 1, min = step > 0 ? 0 : -1, max = n + min;
    wide at = step > 0 ? min : max, end = step > 0 ? max : min;
    wide *const bound[] = {&at, &end};
    for (int i = 0; i < 2; i++) {
        wide x = part[i] ? value_of(part[i]) : *bound[i];
        if (part[i] && x < 0) x += n;
        *bound[i] = x < min ? min : x > max ? max : x;
    }
    if (step) print(out, "{#[");
    for (int k = 0; step && (step > 0 ? at < end : at > end); at += step)
        print(out, "%s%d", k++ ? ", " : "", (int)at);
    if (step) print(out, "]#}");
    print(out, "{{ [");
    for (int i = 0; i < n; i++) print(out, "%s%d", i ? ", " : "", i);
    print(out, "][%s:%s:%s] }}", part[0] ? part[0] : "", part[1] ? part[1] : "",
          part[2] ? part[2] : "1");
}

/* Letters in a rule stand for one of the rules of that name; the first ones have none. */
static const struct {
    char name;
    const char *rule[16];
} rules[] = {
    {'I',
     {"1", "0", "-1", "3", "9223372036854775807", "(-9223372036854775807 - 1)",
      "6917529027641081855", "(I + I)", "(I * I)", "(I % I)", "L|length", "T|length"}},
    {'T',
     {"'a'", "n.s", "'abc'", "(T ~ T)", "(n.s ~ n.s)", "n.s.replace('a', 'aa')", "(T)[I:I]",
      "L|join(T)", "X|tojson", "T|upper", "X|string", "T.split('a')|join('bb')"}},
    {'L',
     {"[1, 2]", "l", "n.l", "messages", "(L)[I:I:I]", "(L)[::I]", "(L)[I:]", "(L + L)",
      "(n.l + n.l)", "[X]", "[n.l]", "[n, m]", "range(I, I)", "range(9)", "range(300)",
      "n|items|list"}},
    {'X',
     {"l", "I", "T", "L", "n", "m", "(X == X)", "(n == m)", "(X in L)", "(L)[I]", "namespace(a=X)",
      "n.a", "{'a': X}"}},
    {'S',
     {"{{ I }}", "{{ X }}", "{{ L }}", "{% set l = L %}", "{% set n.a = X %}", "{% set n.s = T %}",
      "{% set n.l = L %}", "{% set n.a = n %}", "{% set m.a = n %}", "{% set m.a = m %}",
      "{% for i in L %}P{% endfor %}", "{% for i in range(6) %}S{% endfor %}",
      "{% if X %}P{% endif %}", "{{ n ~ m }}"}},
    {'P', {"S", "SS", "SSS", "SSSS"}},
};

static void expand(uint64_t *s, char name, int *fuel, sn_bytes *out) {
    size_t r = 0, n = 0;
    while (rules[r].name != name) r++;
    while (n < 16 && rules[r].rule[n]) n++;
    const char *rule = rules[r].rule[--*fuel > 0 ? grammar_below(s, n) : 0];
    for (; *rule; rule++)
        if (*rule >= 'A' && *rule <= 'Z')
            expand(s, *rule, fuel, out);
        else
            put(out, rule, 1);
}

void grammar_template(uint64_t *s, sn_bytes *out) {
    const uint64_t kind = grammar_below(s, 8);
    if (kind == 0) put_rest(s, out);
    if (kind > 0 && kind < 4) put_slice(s, out);
    if (kind < 4) return;
    print(out, "{%% set l = [1, 2, 3] %%}{%% set n = namespace(a=1, s='a', l=[1]) %%}"
               "{%% set m = namespace(a=1) %%}");
    for (uint64_t i = 1 + grammar_below(s, 4);
         i--;) { /* long loops are rare: they take most of the time */
        const uint64_t a = grammar_below(s, 5), b = grammar_below(s, 5);
        expand(s, 'P', &(int){4 << (a < b ? a : b)}, out);
    }
}
