/* numbers.c: files of tensors: safetensors, NumPy archives, weights of `sinter compile`; and config.json. */
#include "tests/hostile/hostile.h"
#include "codegen/aot/file.h"
#include "frontend/models.h"
#include "model/import/import.h"
#include "runtime/config.h"
#include "runtime/file.h"
#include "runtime/weights.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER_COMMANDS                                                                            \
    {                                                                                              \
        "inspect %", "generate % -p 0 -n 1", "quantize % -o ^ --text @", "explain %",              \
            "compile % -o ^"                                                                       \
    }

/* ---- safetensors ---- */

/* "HEADER|N": its size, it, N zeros; or words. */
static void make_tensors(const hostile_row *r, sn_bytes *out) {
    const char *bar = strrchr(r->text, '|');
    if (!bar) {
        hostile_words(r, out);
        return;
    }
    const uint64_t size = (uint64_t)(bar - r->text);
    hostile_put(out, &size, 8);
    hostile_put(out, r->text, size);
    for (unsigned long n = strtoul(bar + 1, NULL, 10); n; n--) hostile_put(out, "", 1);
}

static bool open_tensors(const char *path, sn_error *err) {
    sn_weights *w = sn_weights_open(path, err);
    sn_weights_close(w);
    return w != NULL;
}

#define T(name, shape, from, to)                                                                   \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static const hostile_row tensors[] = {
    {"control", NULL, "{" T("a", "2", "0", "8") "}|8", NULL},
    {"QuintinShaw/openasr#73: a header of 2^64 - 1 bytes", NULL, "0xffffffffffffffff/8 '{}",
     "header length"},
    {"paiml/aprender#1280: a header that wraps", NULL, "0xfffffffffffffff8/8 '{}", "header length"},
    {"a header of 2^60 bytes", NULL, "0x1000000000000000/8 '{}", "header length"},
    {"ml-explore/mlx#3363: shape beyond the data", NULL, "{" T("a", "1000,1000", "0", "4") "}|4",
     "need 4000000 bytes"},
    {"safetensors/safetensors#401: a name twice", NULL,
     "{" T("a", "1", "0", "4") "," T("a", "1", "4", "8") "}|8", "duplicate key"},
    {"ohdearquant/lattice#752: the same bytes twice", NULL,
     "{" T("a", "1", "0", "4") "," T("b", "1", "0", "4") "}|4", "overlaps another tensor"},
    {"antirez/h3.c#48: bytes of no tensor", NULL, "{" T("a", "1", "0", "4") "}|64",
     "belong to no tensor"},
    {"leejet/stable-diffusion.cpp#1754: end before begin", NULL, "{" T("a", "1", "8", "4") "}|8",
     "end before they begin"},
    {"promptfoo/modelaudit#1607: one element in no bytes", NULL, "{" T("a", "1", "0", "0") "}|0",
     "need 4 bytes"},
    {"kekzl/imp#1603: an unknown type, an offset beyond the file", NULL,
     "{\"a\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[1e15,1e15]}}|4", "is not supported"},
    {"elements wrap to 0", NULL, "{" T("a", "4294967296,4294967296", "0", "0") "}|0",
     "shape is too large"},
    {"bytes wrap to 0", NULL, "{" T("a", "4611686018427387904", "0", "0") "}|0",
     "not a valid size"},
    {"offsets of more than 53 bits", NULL,
     "{" T("a", "1", "18446744073709551612", "18446744073709551616") "}|4",
     "not a pair of byte positions"},
    {"a size below 0", NULL, "{" T("a", "-1", "0", "4") "}|4", "not a valid size"},
    {"an infinite size", NULL, "{" T("a", "1e999", "0", "4") "}|4", "a number out of range"},
    {"texts for sizes", NULL, "{" T("a", "\"1\"", "0", "4") "}|4", "not a valid size"},
    {"nine axes", NULL, "{" T("a", "1,1,1,1,1,1,1,1,1", "0", "4") "}|4", "more than 8 dimensions"},
    {"lists in lists", NULL, "{" T("a", "[[[[1]]]]", "0", "4") "}|4", "not a valid size"},
    {0}};

const hostile_format hostile_safetensors = {.name = "safetensors",
                                            .file = "model.safetensors",
                                            .make = make_tensors,
                                            .open = open_tensors,
                                            .command = FOLDER_COMMANDS,
                                            .row = tensors};

/* ---- archives ---- */

static bool open_archive(const char *path, sn_error *err) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s.imported", path);
    const import_request r = {.input = path, .output = folder};
    return import_model(&r, "npz", err);
}

/* An entry: its sizes in the local header (twice) and in the directory, its name; the place of its header. */
#define LOCAL(size, name) "'PK\3\4 20/2 0/2 0/2 0/4 0/4 " size "/4 " size "/4 5/2 0/2 '" name
#define ENTRY(method, packed, size, at, name)                                                      \
    "'PK\1\2 20/2 20/2 0/2 " method "/2 0/4 0/4 " packed "/4 " size                                \
    "/4 5/2 0/2 0/2 0/2 0/2 0/4 " at "/4 '" name
#define END(n, bytes, at) "'PK\5\6 0/2 0/2 " n "/2 " n "/2 " bytes "/4 " at "/4 0/2"

static const hostile_row archives[] = {
    {"no directory", NULL, LOCAL("0", "a.npy") " *40", "not a complete zip archive"},
    {"65535 entries in no bytes", NULL, LOCAL("0", "a.npy") " " END("65535", "0", "35"),
     "entry 0: malformed directory"},
    {"a directory of 4 GiB", NULL, LOCAL("0", "a.npy") " " END("1", "0xffffffff", "35"),
     "malformed zip archive"},
    {"a directory behind the end", NULL, LOCAL("0", "a.npy") " " END("1", "51", "0xfffffff0"),
     "malformed zip archive"},
    {"an entry behind the end", NULL,
     LOCAL("0", "a.npy") " " ENTRY("0", "128", "128", "0xfffffff0", "a.npy") " " END("1", "51",
                                                                                     "35"),
     "lies outside the file"},
    {"4 GiB in 35 bytes", NULL,
     LOCAL("0", "a.npy") " " ENTRY("0", "0xffffffff", "0xffffffff", "0", "a.npy") " " END("1", "51",
                                                                                          "35"),
     "larger than 4 GB"},
    {"a bomb: 4 GiB from 16 bytes", NULL,
     LOCAL("16", "a.npy") " *16 " ENTRY("8", "16", "0xfffffffe", "0", "a.npy") " " END("1", "51",
                                                                                       "51"),
     "too large for the size of the archive"},
    {"an unknown method", NULL,
     LOCAL("16", "a.npy") " *16 " ENTRY("99", "16", "16", "0", "a.npy") " " END("1", "51", "51"),
     "compression method 99"},
    {"a name of 64 KiB", NULL,
     LOCAL("0", "a.npy") " 'PK\1\2 *24 0xffff/2 *20 'a.npy " END("1", "51", "35"),
     "entry 0: malformed directory"},
    {0}};

const hostile_format hostile_npz = {
    .name = "npz",
    .file = "m.npz",
    .make = hostile_words,
    .open = open_archive,
    .command = {"import @ -o ^", "generate @ -p a -n 1", "explain @", "compile @ -o ^"},
    .row = archives};

/* ---- weights of artefacts ---- */

static bool open_artefact(const char *path, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(path, &m, err)) return false;
    const bool ok =
        sn_aot_is_whole(m.data, m.size) || sn_fail(err, SN_ERR_FILE, "%s: corrupted", path);
    sn_file_unmap(&m);
    return ok;
}

#define HEADER(bytes, tensors) "'SNWGHT01 3/4 4096/4 7/8 0/8 " bytes "/8 " tensors "/8 'm ^4096"

static const hostile_row artefacts[] = {
    {"a wrong checksum", NULL, HEADER("8192", "64") " *4096", "corrupted", true},
    {"tensors of 2^63 bytes", NULL, HEADER("8192", "0x8000000000000000") " *4096", "corrupted",
     true},
    {"tensors whose pages wrap", NULL, HEADER("8192", "0xffffffffffffffff") " *4096", "corrupted",
     true},
    {"tensors beyond the file", NULL, HEADER("8192", "0x40000000") " *4096", "corrupted", true},
    {"checksums beyond the file", NULL, HEADER("8192", "4096") " *4096", "corrupted", true},
    {"half a page", NULL, "'SNWGHT01 3/4 4096/4 7/8 0/8 4096/8 0/8",
     "corrupted|a model is a folder"},
    {"another size", NULL, HEADER("0x4000000000000000", "0") " *4096", "corrupted", true},
    {0}};

const hostile_format hostile_artefact = {.name = "weights of an artefact",
                                         .file = "m.weights",
                                         .make = hostile_words,
                                         .open = open_artefact,
                                         .command = {"inspect @"},
                                         .row = artefacts};

/* ---- configs ---- */

static bool open_config(const char *path, sn_error *err) {
    sn_config *c = sn_config_open(path, err);
    const sn_model_options o = {.entries = SN_CACHED};
    sn_model m = {0};
    const bool ok = c && sn_model_build(c, &o, &m, err);
    sn_module_free(m.module);
    sn_config_free(c);
    return ok;
}

#define GPT2(keys) "{\"model_type\":\"gpt2\"," keys "}"
#define SIZES(vocab, context, width, heads, layers)                                                \
    GPT2("\"vocab_size\":" vocab ",\"n_positions\":" context ",\"n_embd\":" width                  \
         ",\"n_head\":" heads ",\"n_layer\":" layers)
#define TEN(x) x x x x x x x x x x

static const hostile_row configs[] = {
    {"control", NULL, SIZES("19", "8", "12", "3", "1"), NULL},
    {"a billion layers", NULL, SIZES("19", "8", "12", "3", "1000000000"), "n_layer", true},
    {"products of sizes that wrap", NULL, SIZES("19", "8", "4294967296", "1", "1"), "n_embd", true},
    {"a vocabulary of 2^62", NULL, SIZES("4611686018427387904", "8", "12", "3", "1"), "vocab_size",
     true},
    {"no heads", NULL, SIZES("19", "8", "12", "0", "1"), "n_head", true},
    {"-3 heads", NULL, SIZES("19", "8", "12", "-3", "1"), "n_head", true},
    {"heads that do not divide the width", NULL, SIZES("19", "8", "12", "5", "1"), "n_head", true},
    {"an infinite width", NULL, SIZES("19", "8", "1e999", "3", "1"), "a number out of range"},
    {"half a layer", NULL, SIZES("19", "8", "12", "3", "0.5"), "n_layer", true},
    {"a text for a size", NULL, SIZES("19", "8", "\"12\"", "3", "1"), "n_embd", true},
    {"a list for a size", NULL, SIZES("19", "8", "[12]", "3", "1"), "n_embd", true},
    {"an object for the type", NULL, "{\"model_type\":{\"a\":1}}", "model_type", true},
    {"keys twice", NULL, "{\"model_type\":\"gpt2\",\"model_type\":\"llama\"}", "duplicate key"},
    {"1000 lists in lists", NULL, "{\"a\":" TEN(TEN(TEN("["))) "[", "nested more than 1000 deep"},
    {"a text without end", NULL, "{\"model_type\":\"gpt2", "an unterminated string"},
    {"code to import", NULL,
     GPT2("\"auto_map\":{\"AutoModel\":\"evil.Model\"},\"n_embd\":12,\"n_head\":5"), "n_head",
     true},
    {0}};

const hostile_format hostile_config = {.name = "config.json",
                                       .file = "config.json",
                                       .make = hostile_plain,
                                       .open = open_config,
                                       .command = FOLDER_COMMANDS,
                                       .row = configs};
