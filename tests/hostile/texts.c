/* texts.c: tokenizers, chat templates and graphs as text. */
#include "tests/hostile/hostile.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "model/text/jinja.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

#define TEN(x) x x x x x x x x x x

static bool open_tokenizer(const char *path, sn_error *err) {
    static const char text[] = "ab \xff <s> \xe2\x96\x81";
    sn_ids ids = {0};
    sn_tokenizer *t = sn_tokenizer_load(path, err);
    const bool ok = t && sn_tokenizer_encode(t, text, sizeof text - 1, 0, &ids, err);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    return ok;
}

static char *read_text(const char *path) {
    sn_mapping m;
    if (!sn_file_map(path, &m, NULL)) return NULL;
    char *text = strndup((const char *)m.data, m.size);
    sn_file_unmap(&m);
    return text;
}

/* ---- tokenizer.json ---- */

#define BPE(vocab, merges)                                                                         \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}}"
#define WITH(part)                                                                                 \
    "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1}}," part "}"

static const hostile_row tokenizers[] = {
    {"an id of 2^31", NULL, BPE("\"a\":2147483648", ""), "is not an integer in 0.."},
    {"an id of 2^30 in one entry", NULL, BPE("\"a\":1073741824", ""), "is not an integer in 0.."},
    {"an id below 0", NULL, BPE("\"a\":-1", ""), "is not an integer in 0.."},
    {"half an id", NULL, BPE("\"a\":0.5", ""), "is not an integer in 0.."},
    {"an infinite id", NULL, BPE("\"a\":1e999", ""), "a number out of range"},
    {"a token twice", NULL, BPE("\"a\":0,\"a\":1", ""), "duplicate key"},
    {"an id twice", NULL, BPE("\"a\":0,\"b\":0", ""), "id 0 has two texts"},
    {"a list of tokens", NULL, "{\"model\":{\"type\":\"BPE\",\"vocab\":[\"a\"],\"merges\":[]}}",
     "vocab must be an object"},
    {"EricLBuehler/mistral.rs#2215: a merge without separator", NULL,
     BPE("\"a\":0,\"b\":1", "\"ab\""), "expected two tokens"},
    {"a merge of tokens that are not there", NULL, BPE("\"a\":0,\"b\":1", "\"c d\""),
     "the first is not in the vocabulary"},
    {"a merge whose result is not there", NULL, BPE("\"a\":0,\"b\":1", "\"a b\""),
     "the result is not in the vocabulary"},
    {"half a pattern", NULL,
     WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}"),
     "missing closing parenthesis"},
    {"an added token of 2^31", NULL,
     WITH("\"added_tokens\":[{\"id\":2147483647,\"content\":\"<s>\"}]"), "an id in 0.."},
    {"a charsmap that is shorter than it says", NULL,
     WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////fw==\"}"),
     "precompiled_charsmap, 4 bytes"},
    {"1000 steps in steps", NULL,
     "{\"normalizer\":" TEN(TEN(TEN("{\"type\":\"Sequence\",\"normalizers\":["))) "1",
     "nested more than 1000 deep"},
    {"an unknown step", NULL, WITH("\"normalizer\":{\"type\":\"Exec\"}"), "Exec"},
    {0}};

const hostile_format hostile_tokenizer = {.name = "tokenizer.json",
                                          .file = "tokenizer.json",
                                          .make = hostile_plain,
                                          .open = open_tokenizer,
                                          .command = {"generate % -p a -n 1", "tokenizer encode @"},
                                          .row = tokenizers};

/* ---- SentencePiece ---- */

/* Pieces: 1 text, 2 score, 3 kind (2: unk, 6: byte). 2: the trainer, with 3: unigram 1, BPE 2; 3: the
 * normalizer, with 2: the charsmap. */
#define PIECE(text, kind) "1{ 1:" text " 2~0xbf800000 3=" kind " } "
#define UNK PIECE("<unk>", "2")
#define UNIGRAM "2{ 3=1 } "

static const hostile_row pieces[] = {
    {"control", NULL, UNK PIECE("a", "1") PIECE("b", "1") UNIGRAM "3{ 1:identity }", NULL},
    {"CVE-2026-1260: a charsmap whose trie is longer than it", NULL,
     UNK PIECE("a", "1") UNIGRAM "3{ 1:n 2:\xff\xff\xff\x7f }", "charsmap"},
    {"ggml-org/llama.cpp#24888: a charsmap of two bytes", NULL,
     UNK PIECE("a", "1") UNIGRAM "3{ 1:n 2:ab }", "charsmap"},
    {"a trie without texts behind it", NULL,
     UNK PIECE("a", "1") UNIGRAM "3{ 1:n 2:\x04\x01\x01\x01 }", "charsmap"},
    {"ggml-org/llama.cpp#27226: <0x-1>", NULL, UNK PIECE("<0x-1>", "6") UNIGRAM, "<0x-1>"},
    {"ggml-org/llama.cpp#25969: <0xZZ>", NULL, UNK PIECE("<0xZZ>", "6") UNIGRAM, "<0xZZ>"},
    {"a byte of three digits", NULL, UNK PIECE("<0x100>", "6") UNIGRAM, "<0x100>"},
    {"a piece of 2^31 bytes", NULL, UNK "1{ 1<0x80000000 }", "a piece is malformed"},
    {"a message of 2^63", NULL, UNK "1<0x8000000000000000", "the file is malformed"},
    {"a piece without text", NULL, UNK "1{ 1: 2~0 3=1 } " UNIGRAM, "a piece is malformed"},
    {"a piece twice", NULL, UNK PIECE("a", "1") PIECE("a", "1") UNIGRAM, "occurs twice"},
    {"no unk", NULL, PIECE("a", "1") PIECE("b", "1") UNIGRAM, "0 pieces stand for unknown text"},
    {"two unks", NULL, UNK PIECE("b", "2") UNIGRAM, "2 pieces stand for unknown text"},
    {"an unknown kind", NULL, UNK PIECE("a", "77") UNIGRAM, "a piece is malformed"},
    {"a score of NaN", NULL, UNK "1{ 1:a 2~0x7fc00000 3=1 } " UNIGRAM,
     "score of token 1 is not a number"},
    {"an infinite score", NULL, UNK "1{ 1:a 2~0x7f800000 3=1 } " UNIGRAM,
     "score of token 1 is not a number"},
    {"an unknown algorithm", NULL, UNK PIECE("a", "1") "2{ 3=9 }", "model type 9"},
    {0}};

const hostile_format hostile_pieces = {.name = "tokenizer.model",
                                       .file = "tokenizer.model",
                                       .make = hostile_words,
                                       .open = open_tokenizer,
                                       .command = {"generate % -p a -n 1", "tokenizer encode @"},
                                       .row = pieces};

/* ---- chat templates ---- */

static bool open_template(const char *path, sn_error *err) {
    static const sn_chat_message message[] = {{"user", "a"}};
    const sn_chat chat = {message, 1, true, "<s>", "</s>"};
    sn_bytes out = {0};
    char *text = read_text(path);
    const bool ok = text && sn_chat_render(text, &chat, &out, err);
    sn_bytes_free(&out);
    free(text);
    return ok;
}

#define LOOP(n, body) "{% for i in range(" n ") %}" body "{% endfor %}"

static const hostile_row templates[] = {
    {"control", NULL, "{{ messages[0].content }}", NULL},
    {"ggml-org/llama.cpp#24140: a range of 10^9", NULL, LOOP("1000000000", "a"), "range"},
    {"deepset-ai/haystack#9402: 25000 times 25000", NULL, LOOP("25000", LOOP("25000", "x")),
     "more than 64 MB"},
    {"coze-dev/coze-loop#491: 10^7 times 10^5", NULL, LOOP("10000000", LOOP("100000", "x")),
     "range"},
    {"ggml-org/llama.cpp#26387: a macro of itself", NULL,
     "{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}", "unsupported statement macro"},
    {"ggml-org/llama.cpp#19087: 1000 parentheses", NULL, "{{ " TEN(TEN(TEN("("))) "1 }}",
     "nested too deeply"},
    {"ggml-org/llama.cpp#26387: 1000 blocks", NULL, TEN(TEN(TEN("{% if true %}"))),
     "nested too deeply"},
    {"mitsuhiko/minijinja#924: a repeated text", NULL, "{{ '-' * 10000000000 }}",
     "unsupported operands of *"},
    {"ai-dynamo/dynamo#10555: lists that grow", NULL,
     "{% set n = namespace(l=[1]) %}" LOOP("40", "{% set n.l = n.l + n.l %}") "{{ n.l }}",
     "more than 64 MB"},
    {"texts that double", NULL,
     "{% set n = namespace(s='a') %}" LOOP("40", "{% set n.s = n.s ~ n.s %}"), "more than 64 MB"},
    {"a namespace in itself", NULL, "{% set n = namespace(a=1) %}{% set n.a = n %}{{ n }}",
     "deeply"},
    {"CVE-2024-34359: classes of Python", NULL, "{{ ''.__class__.__mro__[1].__subclasses__() }}",
     "__subclasses__"},
    {"CVE-2026-5760: attributes through a filter", NULL, "{{ messages | attr('__class__') }}",
     "attr"},
    {"a range that wraps", NULL, "{{ range(-9223372036854775807, 9223372036854775807) }}", "range"},
    {"division by zero", NULL, "{{ 1 % 0 }}", "unsupported operands of %"},
    {0}};

const hostile_format hostile_template = {.name = "chat template",
                                         .file = "chat_template.jinja",
                                         .make = hostile_plain,
                                         .open = open_template,
                                         .row = templates};

/* ---- graphs ---- */

static bool open_graph(const char *path, sn_error *err) {
    char *text = read_text(path);
    sn_module *m = text ? sn_parse(text, path, false, err) : NULL;
    sn_options o = sn_options_default();
    o.plan_only = true;
    sn_program *p = m ? sn_compile(m, &o, err) : NULL;
    sn_program_free(p);
    sn_module_free(m);
    free(text);
    return p != NULL;
}

#define GRAPH(lines) "module m\nentry f {\n" lines "\n}\n"
#define IN(shape) "  %0: f32[" shape "] = input {name=\"x\"}\n"
#define OUT(x) "  output \"y\" = " x

static const hostile_row graphs[] = {
    {"control", NULL, GRAPH(IN("2,3") "  %1: f32[2,3] = exp %0\n" OUT("%1")), NULL},
    {"elements that wrap", NULL, GRAPH(IN("4294967296,4294967296,4294967296") OUT("%0")),
     "a dimension overflows 64 bits"},
    {"a size below 0", NULL, GRAPH(IN("-2,3") OUT("%0")), "is negative: -2"},
    {"a size above 64 bits", NULL, GRAPH(IN("99999999999999999999") OUT("%0")),
     "found '99999999999999999999'"},
    {"an unknown size", NULL, GRAPH(IN("T") OUT("%0")), "found 'T]'"},
    {"a value that is not there", NULL, GRAPH(IN("2") "  %1: f32[2] = exp %7\n" OUT("%1")),
     "%7 is not defined above"},
    {"a value of itself", NULL, GRAPH(IN("2") "  %1: f32[2] = exp %1\n" OUT("%1")),
     "%1 is not defined above"},
    {"an unknown operation", NULL, GRAPH(IN("2") "  %1: f32[2] = system %0\n" OUT("%1")),
     "expected the name of an op"},
    {"an entry without end", NULL, "module m\nentry f {\n" IN("2"), "found the end of the text"},
    {"a range without numbers", NULL,
     "module m\ndim T in [9, 1]\nentry f {\n" IN("T") OUT("%0") "\n}\n", "must ascend"},
    {"axes beyond the rank", NULL,
     GRAPH(IN("2,3") "  %1: f32[2,1] = reduce_sum %0 {axes=[99]}\n" OUT("%1")),
     "axis 99 is outside 0..1"},
    {"no text", NULL, "\1\2\3", "expected 'module'"},
    {0}};

const hostile_format hostile_graph = {.name = "graph",
                                      .file = "g.sn",
                                      .make = hostile_plain,
                                      .open = open_graph,
                                      .command = {"explain @", "call @", "compile @ -o ^"},
                                      .row = graphs};
