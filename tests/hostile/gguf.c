/* gguf.c: GGUF files: those of published attacks on other readers, and what was found here. */
#include "tests/hostile/hostile.h"
#include "model/open.h"
#include "runtime/file.h"
#include "runtime/files/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#define GOOD SN_SOURCE_DIR "/tests/data/gguf/llama.gguf"
#define START(tensors, keys) "'GGUF 3/4 " tensors "/8 " keys "/8 "
#define LLAMA "s:general.architecture 8/4 s:llama "
#define ONE_KEY(bytes) "file", "'GGUF 3/4 0/8 1/8 " bytes
/* A file of one tensor, or two: name, rank, sizes (fastest first), type, offset. */
#define ONE_TENSOR(bytes) "file", START("1", "1") LLAMA bytes " ^32 *64"
#define TWO_TENSORS(bytes) "file", START("2", "1") LLAMA bytes " ^32 *64"
#define TOKENS "key tokenizer.ggml.tokens"
#define SCORES "key tokenizer.ggml.scores"
#define TYPES "key tokenizer.ggml.token_type"
#define ALIGNMENT "must be a power of two from 8 to 2^20"
#define NO_FIT "its shape does not fit its type"

static const hostile_row rows[] = {
    {"control", "key general.name", "8/4 s:other", NULL},
    {"control", "key tokenizer.ggml.pre", "8/4 s:default", NULL},
    {"control", "tensor output_norm.weight", "s:output_norm.weight 1/4 32/8 0/4 @", NULL},

    /* sizes that wrap */
    {"CVE-2026-33298: elements times bytes wraps to 4",
     ONE_TENSOR("s:a 1/4 0x4000000000000001/8 0/4 0/8"), NO_FIT},
    {"CVE-2024-21802: the product of the sizes wraps",
     ONE_TENSOR("s:a 2/4 0x100000001/8 0x100000000/8 0/4 0/8"), NO_FIT},
    {"zackshen/gguf#15", ONE_TENSOR("s:a 4/4 0xffffffffffffffff/8 2/8 1/8 1/8 0/4 0/8"),
     "its shape is too large"},
    {"ggml-org/llama.cpp#27200: 64-bit product of Q4_0 is 2 bytes",
     ONE_TENSOR("s:a 1/4 5124095576030431008/8 2/4 0/8"), "ends behind the end of the file"},
    {"CVE-2025-53630: the sum of the sizes wraps",
     TWO_TENSORS("s:a 1/4 0x1fffffffffffffff/8 0/4 0/8 s:b 1/4 0x2000000000000000/8 0/4 "
                 "0x7fffffffffffffe0/8"),
     "ends behind the end of the file"},
    {"ggml-org/llama.cpp#24759: padding the size wraps",
     TWO_TENSORS("s:a 1/4 0x3fffffffffffffff/8 0/4 0/8 s:b 1/4 8/8 0/4 0/8"),
     "ends behind the end of the file"},
    {"size and offset wrap",
     TWO_TENSORS("s:a 1/4 8/8 0/4 0/8 s:b 1/4 0x3fffffffffffffff/8 0/4 32/8"),
     "ends behind the end of the file"},
    {"ggml-org/llama.cpp#19072: a size below 0", ONE_TENSOR("s:a 1/4 -4/8 0/4 0/8"),
     "its shape is too large"},
    {"CVE-2026-7482: sizes beyond the file",
     ONE_TENSOR("s:token_embd.weight 2/4 32/8 1000000/8 0/4 0/8"),
     "ends behind the end of the file"},
    {"part of a block", ONE_TENSOR("s:a 1/4 33/8 2/4 0/8"), NO_FIT},
    {"2^61 + 1 slices without elements",
     ONE_TENSOR("s:x%d.weight 2/4 0/8 0x2000000000000001/8 0/4 0/8"), "not empty", true},
    {"2^61 slices without elements",
     ONE_TENSOR("s:x%d.weight 2/4 0/8 0x2000000000000000/8 0/4 0/8"), "not empty", true},
    {"20 million slices without elements", ONE_TENSOR("s:x%d.weight 2/4 0/8 20000000/8 0/4 0/8"),
     "not empty", true},
    {"a model without elements", "tensor output_norm.weight", "s:output_norm.weight 1/4 0/8 0/4 @",
     "has shape [0]|is not an f32 array", true},

    /* counts and lengths */
    {"CVE-2024-21836: number of tensors", "file", START("0x6666666666666667", "0"), "truncated"},
    {"CVE-2024-23605: number of keys", "file", START("0", "0x1555555555555556"), "truncated"},
    {"antonellof/ferrox#24: 24 bytes, 500 million keys", "file", START("0", "500000000"),
     "truncated"},
    {"antirez/ds4#545: 24 bytes, 2^32 keys", "file", START("0", "0x100000000"), "truncated"},
    {"ggml-org/llama.cpp#15711: tensors below SIZE_MAX / size", "file",
     START("0x00b60b60b60b60b6", "0"), "truncated"},
    {"as many tensors as bytes", "file", START("64", "0") "*64", "truncated"},
    {"as many keys as bytes", "file", START("0", "64") "*64", "truncated"},
    {"ggml-org/llama.cpp#27188: number of keys 2^63", "file", START("0", "0x8000000000000000"),
     "truncated"},
    {"ggml-org/llama.cpp#19003", "file",
     "'GGUF 3/4 0x46554747/8 2/8 *3 'GGU 1/1 2/1 *6 8/1 *7 8/8 *1", "truncated"},
    {"CVE-2024-23496: length of a string", ONE_KEY("s:a 8/4 0xffffffffffffffff/8"), "truncated"},
    {"CVE-2025-66960: length of a name", ONE_KEY("0x7fffffffffffffff/8 'abcdefgh"), "truncated"},
    {"ggml-org/ggml#1516: 160 bytes, a string of 1 GiB", ONE_KEY("s:a 8/4 0x40000000/8 *120"),
     "truncated"},
    {"CVE-2024-21825: strings in a list", ONE_KEY("s:a 9/4 8/4 0x2000000000000000/8 *8"),
     "truncated"},
    {"ggml-org/llama.cpp#27188: 43 bytes, a list of 2^63",
     ONE_KEY("s:a 9/4 4/4 0x8000000000000000/8"), "truncated"},
    {"huggingface/candle#3533: 2^32 elements", ONE_KEY("s:a 9/4 0/4 0x100000000/8"), "truncated"},
    {"gittensor-ai-lab/sparkinfer#6: bytes of a list wrap",
     ONE_KEY("s:a 9/4 10/4 0x2000000000000001/8 *8"), "truncated"},
    {"zackshen/gguf#15: number of sizes", ONE_TENSOR("s:a 0xffffffff/4 1/8 0/4 0/8"),
     "more than 8 dimensions"},
    {"a name without text", ONE_KEY("0/8 4/4 1/4"), "is empty, too long or contains NUL"},
    {"a name with NUL", ONE_KEY("3/8 'a 0/1 'b 4/4 1/4 *9"), "is empty, too long or contains NUL"},

    /* types */
    {"ggml-org/llama.cpp#27188: a list of lists of 2^62",
     ONE_KEY("s:a 9/4 9/4 0x4000000000000000/8 9/4"), "truncated"},
    {"gittensor-ai-lab/sparkinfer#6: an unknown element type", ONE_KEY("s:a 9/4 77/4 1/8 *8"),
     "is an array of unknown type 77"},
    {"an unknown type", ONE_KEY("s:a 13/4 *8"), "has an unknown type 13"},
    {"lists in lists", ONE_KEY("s:a 9/4 9/4 1/8 9/4 1/8 9/4 1/8 9/4 1/8 9/4 1/8 0/4 0/8 *64"),
     "array of unknown type"},
    {"ggml-org/llama.cpp#19856: a type of tensor below 0", ONE_TENSOR("s:a 1/4 8/8 -1/4 0/8"),
     "is not supported"},
    {"gpustack/gpustack#1686: a list for a number", "key llama.attention.head_count",
     "9/4 4/4 2/8 2/4 2/4", "must be one finite number", true},
    {"NahButch, EricLBuehler/mistral.rs#2215: a text for a number", "key llama.block_count",
     "8/4 s:2", "must be one finite number", true},
    {"EricLBuehler/mistral.rs#2215: split.count is a text", "key split.count", "8/4 s:2",
     "split.count"},
    {"half a file", "key split.count", "6/4 0x3fc00000/4", "split.count"},
    {"a number for the architecture", "key general.architecture", "4/4 1/4", "must be a text"},
    {"a list for the architecture", "key general.architecture", "9/4 8/4 1/8 s:llama",
     "must be a text"},
    {"a list for rope.dimension_count", "key llama.rope.dimension_count", "9/4 4/4 1/8 16/4",
     "must be one number", true},
    {"a text for rope.scaling.factor", "key llama.rope.scaling.factor", "8/4 s:4",
     "must be one number", true},
    {"infinite base", "key llama.rope.freq_base", "6/4 0x7f800000/4", "must be one finite number",
     true},

    /* alignment */
    {"ggml-org/ggml#1516: 2^30", "key general.alignment", "4/4 0x40000000/4", ALIGNMENT},
    {"ggml-org/llama.cpp#24997: 2^31", "key general.alignment", "4/4 0x80000000/4", ALIGNMENT},
    {"ggml-org/llama.cpp#19856: 0", "key general.alignment", "4/4 0/4", ALIGNMENT},
    {"no power of two", "key general.alignment", "4/4 48/4", ALIGNMENT},
    {"64 bits, 0 in the lower 32", "key general.alignment", "10/4 0x100000000/8", ALIGNMENT},
    {"a fraction", "key general.alignment", "6/4 0x41040000/4", "must be a whole number"},
    {"ggml-org/llama.cpp#26318: another type", "key general.alignment", "8/4 s:32",
     "must be a whole number"},
    {"a list", "key general.alignment", "9/4 4/4 1/8 32/4", "must be a whole number"},

    /* places and names */
    {"ggml-org/llama.cpp#19856: a key twice", "file", START("0", "2") "s:a 4/4 1/4 s:a 4/4 1/4",
     "occurs twice"},
    {"a tensor twice", TWO_TENSORS("s:a 1/4 8/8 0/4 0/8 s:a 1/4 8/8 0/4 32/8"), "occurs twice"},
    {"one tensor in another", TWO_TENSORS("s:a 1/4 16/8 0/4 0/8 s:b 1/4 8/8 0/4 32/8"),
     "overlaps another tensor"},
    {"an offset behind the end", ONE_TENSOR("s:a 1/4 8/8 0/4 96/8"),
     "ends behind the end of the file"},
    {"an offset that wraps", ONE_TENSOR("s:a 1/4 8/8 0/4 0xffffffffffffffe0/8"),
     "ends behind the end of the file"},
    {"an offset within a block", ONE_TENSOR("s:a 1/4 8/8 0/4 4/8"),
     "not a multiple of the alignment"},
    {"version 1", "file", "'GGUF 1/4 0/4 0/4 *8", "version 1 is not supported"},
    {"big endian", "file", "'GGUF 0/3 3/1 0/8 0/8", "version 50331648 is not supported"},

    /* vocabularies */
    {"ggml-org/llama.cpp#27226: <0x-1>", TOKENS, "9/4 8/4 3/8 s:<0x-1> s:b s:c",
     "\"tokenizer.ggml.", true},
    {"ggml-org/llama.cpp#24888: scores of one byte", SCORES, "9/4 1/4 299/8 *299",
     "scores\" must be a list"},
    {"ggml-org/llama.cpp#24888: types of one float", TYPES, "9/4 6/4 299/8 *1196",
     "token_type\" must be a list"},
    {"ggml-org/llama.cpp#20735: fewer scores than tokens", SCORES, "9/4 6/4 298/8 *1192", "299",
     true},
    {"ggml-org/llama.cpp#20735: fewer types than tokens", TYPES, "9/4 5/4 298/8 *1192",
     "298 elements", true},
    {"ggml-org/llama.cpp#26690: texts for scores", SCORES, "9/4 8/4 2/8 s:a s:b",
     "scores\" must be a list"},
    {"ggml-org/llama.cpp#18118: numbers for tokens", TOKENS, "9/4 5/4 299/8 *1196",
     "tokens\" must be a list"},
    {"CVE-2025-49847: a token of 2^31 bytes", TOKENS, "9/4 8/4 1/8 0x80000000/8 *64", "truncated"},
    {"a token for tokens", TOKENS, "8/4 s:a", "tokens\" must be a list"},
    {"lists for tokens", TOKENS, "9/4 9/4 1/8 0/4 1/8 *1", "tokens\" must be a list"},
    {"no tokens", TOKENS, "9/4 8/4 0/8", "is missing, empty or too long", true},
    {"scores of NaN", SCORES, "9/4 6/4 299/8 0x7fc00000/4 *1192", "NaN", true},
    {"ggml-org/llama.cpp#25475: a token that is not there", "key tokenizer.ggml.bos_token_id",
     "4/4 299/4", "but there are 299 tokens", true},
    {"ggml-org/llama.cpp#25475: a token below 0", "key tokenizer.ggml.unknown_token_id", "5/4 -2/4",
     "but there are 299 tokens", true},
    {"a text for a token", "key tokenizer.ggml.eos_token_id", "8/4 s:2", "must be a whole number"},
    {"a list for a switch", "key tokenizer.ggml.add_space_prefix", "9/4 7/4 1/8 1/1",
     "must be true or false"},
    {"a text for a switch", "key tokenizer.ggml.add_bos_token", "8/4 s:1", "must be true or false",
     true},
    {"numbers for the kind of vocabulary", "key tokenizer.ggml.model", "9/4 8/4 1/8 s:llama",
     "must be a text"},
    {"a list for the template", "key tokenizer.chat_template", "9/4 8/4 1/8 s:a", "must be a text",
     true},
    {0}};

/* The bytes of a tensor's description. */
static size_t tensor_size(const sn_weight *t) {
    return 8 + strlen(t->name) + 4 + 8 * (size_t)t->rank + 4 + 8;
}

/* `old` bytes at `at` of the header become `text`, in which "@" is the offset that was there; the tensors
 * stay aligned behind it. */
static void replace(const sn_gguf *g, size_t at, size_t old, size_t more_keys, const char *text,
                    sn_bytes *out) {
    enum { KEYS = 16, ALIGN = 32 };
    const unsigned char *d = g->map.data;
    size_t end = g->keys_end;
    for (size_t i = 0; i < g->tensor_count; i++) end += tensor_size(&g->tensor[i]);
    const size_t body = (end + ALIGN - 1) / ALIGN * ALIGN;
    const uint64_t keys = g->key_count + more_keys;
    hostile_put(out, d, KEYS);
    hostile_put(out, &keys, 8);
    hostile_put(out, d + KEYS + 8, at - KEYS - 8);
    char words[512];
    const char *place = strchr(text, '@');
    snprintf(words, sizeof words, "%.*s", place ? (int)(place - text) : (int)sizeof words - 1,
             text);
    hostile_assemble(words, out);
    if (place) hostile_put(out, d + at + old - 8, 8);
    hostile_put(out, d + at + old, end - at - old);
    while (out->size % ALIGN) hostile_put(out, "", 1);
    hostile_put(out, d + body, g->map.size - body);
}

static void make(const hostile_row *r, sn_bytes *out) {
    sn_error e = {0};
    if (!strcmp(r->edit, "file")) {
        hostile_words(r, out);
        return;
    }
    sn_gguf *g = sn_gguf_open(GOOD, &e);
    if (!g) fail_msg("%s", e.message);
    const char *name = strchr(r->edit, ' ') + 1;
    const sn_gguf_key *k = *r->edit == 'k' ? sn_gguf_find(g, name) : NULL;
    size_t at = g->keys_end;
    if (*r->edit == 't') {
        size_t i = 0;
        while (strcmp(g->tensor[i].name, name)) at += tensor_size(&g->tensor[i++]);
        replace(g, at, tensor_size(&g->tensor[i]), 0, r->text, out);
    } else if (k) {
        at = (size_t)(k->data - g->map.data) - (k->array ? 16 : 4);
        replace(g, at, (size_t)(k->data - g->map.data) + k->bytes - at, 0, r->text, out);
    } else {
        char text[512];
        snprintf(text, sizeof text, "s:%s %s", name, r->text);
        replace(g, at, 0, 1, text, out);
    }
    sn_gguf_close(g);
}

static bool open_it(const char *path, sn_error *err) {
    const open_options o = {
        .path = path, .entries = SN_CACHED, .compile = {.backend = "native", .threads = 1}};
    open_model *m = lm_open(&o, err);
    model_close(m);
    return m != NULL;
}

const hostile_format hostile_gguf = {.name = "gguf",
                                     .file = "m.gguf",
                                     .make = make,
                                     .open = open_it,
                                     .command = {"inspect @", "generate @ -p a -n 1",
                                                 "quantize @ -o ^ --text @", "explain @",
                                                 "compile @ -o ^"},
                                     .row = rows};
