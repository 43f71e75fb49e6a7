/* fuzz_grammar.c: implements fuzz_grammar.h. */
#include "tests/long/fuzz_grammar.h"

#include "model/tokenizer/tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
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
    for (int i = 0; i < bytes; i++) put(out, &(unsigned char){(unsigned char)(x >> (8 * i))}, 1);
}

static void put_zeros(sn_bytes *out, size_t n) {
    while (n--) put(out, "", 1);
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
    for (uint64_t i = 0; i < (4 * x.count + 2) / 3; i++) print(out, "AAAA"); /* base64 */
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

static uint32_t find_crc(const sn_bytes *b) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < b->size; i++) {
        crc ^= (unsigned char)b->data[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
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
        put_int(&entry, find_crc(&array), 4);
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

void grammar_llama2c(uint64_t *s, sn_bytes *out) {
    static const uint64_t sizes[] = {0,     1,          2,          4,          8,         64,
                                     65536, 0x7fffffff, 0x40000000, 0x80000000, 0xffffffff};
    for (int i = 0; i < 7; i++) put_int(out, PICK(s, sizes), 4);
    put_zeros(out, grammar_below(s, 4096));
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
      "(n.l + n.l)", "[X]", "[n.l]", "[n, m]", "range(I, I)", "range(30)", "range(100000)",
      "n|items|list"}},
    {'X',
     {"l", "I", "T", "L", "n", "m", "(X == X)", "(n == m)", "(X in L)", "(L)[I]", "namespace(a=X)",
      "n.a", "{'a': X}"}},
    {'S',
     {"{{ I }}", "{{ X }}", "{{ L }}", "{% set l = L %}", "{% set n.a = X %}", "{% set n.s = T %}",
      "{% set n.l = L %}", "{% set n.a = n %}", "{% set m.a = n %}", "{% set m.a = m %}",
      "{% for i in L %}P{% endfor %}", "{% for i in range(40) %}S{% endfor %}",
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
    for (uint64_t i = 1 + grammar_below(s, 6); i--;) expand(s, 'P', &(int){40}, out);
}
