/* Mutated files of every format that Sinter reads. Each case copies a good file and changes some
 * bytes, or writes one by a grammar (fuzz_grammar.h), and reads the result: it must be accepted or
 * refused with a message, within limits of time and memory.
 *
 *   fuzz_files [SEED [CASES [FORMAT [FILE]]]]
 *
 * SEED 0: from the clock. CASES "30s": as many as 30 s of CPU time allow, for each format. FILE: a case of FORMAT; when one
 * fails, its bytes are saved as fuzz_files.case. With -DSN_COVER=ON it also changes the cases that reached new
 * code (fuzz_cover.h). */
#include "frontend/models.h"
#include "frontend/onnx/onnx.h"
#include "frontend/sinter.h"
#include "passes/opt.h"
#include "passes/passes.h"
#include "runtime/config.h"
#include "runtime/file.h"
#include "runtime/manifest.h"
#include "runtime/model_dir.h"
#include "runtime/npy.h"
#include "model/text/generation_impl.h"
#include "model/text/jinja.h"
#include "runtime/files/sentence_modules.h"
#include "model/tokenizer.h"
#include "runtime/weights.h"
#include "model/import/idx.h"
#include "model/media/audio.h"
#include "model/media/picture.h"
#include "model/import/import.h"
#include "tools/artefact/inspect_artefact.h"
#include "model/train/train.h"
#include "tests/long/fuzz_change.h"
#include "tests/long/fuzz_cover.h"
#include "tests/long/fuzz_grammar.h"
#include "tests/long/fuzz_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <cmocka.h>
#include "tests/support/scratch.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { SECONDS_PER_CASE = 30, CASES_PER_ALARM = 64, MAX_SEEDS = 6, MAX_SEED = 4 << 20 };

static char file[128], folder[128];
static FILE *nowhere;
static volatile unsigned sink;
static bool is_refused; /* the case, by one of its readers */
static bool is_changed; /* it is not as a grammar wrote it */
static struct {
    const char *format;
    unsigned long long seed;
} now;

/* ---- what is done with each file ---- */

/* A failure must carry a code and a message. */
static void explained(const sn_error *e) {
    if (!e->code || !e->message[0]) abort();
}

static void refused(const sn_error *e) {
    explained(e);
    is_refused = true;
}

static void read_weights(const char *path) {
    sn_error e = {0};
    sn_weights *w = sn_weights_open(path, &e);
    if (!w) {
        refused(&e);
        return;
    }
    for (size_t i = 0; i < sn_weights_count(w); i++) {
        const sn_weight *t = sn_weights_at(w, i);
        if (t->bytes) /* what lies behind the file faults */
            sink += ((const unsigned char *)t->data)[0] +
                    ((const unsigned char *)t->data)[t->bytes - 1];
        float *f = malloc(4 * (size_t)sn_weight_elements(t) + 1);
        if (f) sn_weight_to_f32(t, f);
        free(f);
    }
    sn_weights_close(w);
}

static bool build_config(sn_config *c, int entries) {
    const sn_model_options o = {.entries = entries};
    sn_model m = {0};
    sn_error e = {0};
    const bool ok = sn_model_build(c, &o, &m, &e);
    if (!ok) refused(&e);
    sn_module_free(m.module);
    return ok;
}

static void read_config(const char *path) {
    sn_error e = {0};
    sn_config *c = sn_config_open(path, &e);
    if (!c) refused(&e);
    if (c && build_config(c, 0) && now.seed % 4 == 0) build_config(c, SN_TRAIN);
    sn_config_free(c);
}

static void read_tokenizer(const char *path) {
    static const char text[] =
        "Hello, 123\n  brown\tfox\xff\xc3\x28 \xe4\xbd\xa0 <|endoftext|> ##ing \0zz";
    sn_error e = {0};
    sn_tokenizer *t = sn_tokenizer_load(path, &e);
    if (!t) {
        refused(&e);
        return;
    }
    for (unsigned k = 0; k < 16;
         k += 5) { /* each flag on and off; in four cases all sets of them */
        const unsigned flags = k ^ (unsigned)(now.seed % 4);
        sn_ids ids = {0};
        sn_bytes bytes = {0};
        if (sn_tokenizer_encode(t, text, sizeof text - 1, flags, &ids, &e)) {
            for (size_t i = 0; i < ids.count; i++)
                if (ids.data[i] < 0 || ids.data[i] >= sn_tokenizer_vocab_size(t)) abort();
            if (!sn_tokenizer_decode(t, ids.data, ids.count, flags, &bytes, &e)) explained(&e);
        } else
            explained(&e); /* the vocabulary does not have all characters */
        sn_bytes_free(&bytes);
        sn_ids_free(&ids);
    }
    sn_tokenizer_free(t);
}

/* Of the file beside it that it belongs to. */
static void read_merges(const char *path) {
    char vocab[160];
    (void)path;
    snprintf(vocab, sizeof vocab, "%s/vocab.json", scratch_dir);
    read_tokenizer(vocab);
}

static void read_tokenizer_config(const char *path) {
    char vocab[160];
    read_merges(path);
    snprintf(vocab, sizeof vocab, "%s/vocab.txt", scratch_dir);
    read_tokenizer(vocab);
}

static void read_gguf(const char *path) {
    sn_error e = {0};
    read_weights(path);
    read_tokenizer(path);
    sn_model_dir *d = sn_model_dir_open(path, &e);
    if (!d) {
        refused(&e);
        return;
    }
    const sn_model_options o = {.weights = d->weights};
    sn_model m = {0};
    if (now.seed % 4 == 0 && !sn_model_build(d->config, &o, &m, &e)) refused(&e);
    sn_module_free(m.module);
    sn_model_dir_close(d);
}

static void import_file(const char *path, const char *format) {
    sn_error e = {0};
    import_request r = {.input = path, .output = folder};
    if (!import_model(&r, format, &e)) refused(&e);
}
static void import_c2(const char *path) {
    import_file(path, "ctranslate2");
}
static void import_l2c(const char *path) {
    import_file(path, "llama2c");
}
static void import_zip(const char *path) {
    import_file(path, "npz");
}
static void import_json(const char *path) {
    import_file(path, "json-tensors");
}

static void read_picture_rules(const char *path) {
    sn_error e = {0};
    char text[512];
    sn_config *c = sn_config_open(path, &e);
    const picture_rules r = c && picture_rules_in(c) ? picture_rules_read(c) : (picture_rules){0};
    if (!c || !sn_config_check(c, &e)) refused(&e);
    picture_rules_print(&r, text, sizeof text);
    sink += (unsigned)picture_rules_side(&r);
    sn_config_free(c);
}

static void read_defaults(const char *path) {
    sn_error e = {0};
    lm_defaults d;
    (void)path;
    if (!sn_lm_defaults_read(scratch_dir, &d, &e)) refused(&e);
}

static void read_modules(const char *path) {
    sn_error e = {0};
    sn_config *c = sn_config_new(path);
    if (c && !sn_sentence_modules_read(scratch_dir, c, NULL, &e)) refused(&e);
    sn_config_free(c);
}

static void read_npy(const char *path) {
    sn_error e = {0};
    sn_npy a;
    if (!sn_npy_open(path, &a, &e)) {
        refused(&e);
        return;
    }
    for (size_t i = 0; i < a.bytes; i++) sink += ((unsigned char *)a.data)[i];
    sn_npy_free(&a);
}

static void read_idx(const char *path) {
    sn_error e = {0};
    sn_idx x;
    if (!idx_open(path, &x, &e)) {
        refused(&e);
        return;
    }
    int64_t n = 1;
    for (int i = 0; i < x.rank; i++) n *= x.shape[i];
    if (n) sink += x.data[0] + x.data[n - 1];
    idx_close(&x);
}

static char *text_of(const char *path) {
    sn_error e = {0};
    sn_mapping m;
    if (!sn_file_map(path, &m, &e)) return NULL;
    char *text = strndup((const char *)m.data, m.size);
    sn_file_unmap(&m);
    return text;
}

static void run_passes(const char *path) {
    char all[1024] = "", *text = text_of(path);
    sn_error e = {0};
    for (int i = 0; i < sn_pass_count; i++) {
        if (i) strcat(all, ",");
        strcat(all, sn_stages[sn_pass_table[i].stage].name);
    }
    if (text && !sn_opt(text, "case.sn", all, SN_LEVEL_HIGHEST, NULL, nowhere, &e)) refused(&e);
    free(text);
}

static void compile_text(const char *path) {
    char *text = text_of(path);
    sn_error e = {0};
    sn_module *m = text ? sn_parse(text, "case.sn", false, &e) : NULL;
    sn_options o = sn_options_default();
    o.cache_dir = "", o.threads = 1, o.level = m ? (int)(strlen(text) % 5) : 0;
    sn_program *p = m ? sn_compile(m, &o, &e) : NULL;
    if (text && !p) refused(&e);
    if (p) sn_program_explain(p, NULL, nowhere);
    sn_program_free(p);
    sn_module_free(m);
    free(text);
}

static void read_training(const char *path) {
    sn_error e = {0};
    train_settings s = {0};
    if (train_settings_read(path, NULL, &s, &e))
        train_settings_free(&s);
    else
        refused(&e);
}

static void inspect(const char *path) {
    sn_error e = {0};
    bool found = false;
    if (!inspect_artefact(path, &found, &e))
        refused(&e);
    else
        is_refused = !found;
}

/* It has limits of its own, so that the memory of the machine is never what ends it. */
static void render_template(const char *path) {
    static const sn_chat_message message[] = {{"system", "b"}, {"user", "a"}, {"assistant", "aa"}};
    const sn_chat chat = {message, 3, true, "<s>", "</s>"};
    char *text = text_of(path), *end = text ? strstr(text, "#}") : NULL;
    const char *want = end && !is_changed && !strncmp(text, "{#", 2) ? text + 2 : NULL;
    sn_bytes out = {0};
    sn_error e = {0};
    bool ok = text && sn_chat_render(text, &chat, &out, &e);
    if (text && !ok) refused(&e);
    if (e.code == SN_ERR_MEMORY) abort();
    if (ok && want && (out.size != (size_t)(end - want) || memcmp(out.data, want, out.size)))
        abort();
    sn_bytes_free(&out);
    free(text);
}

static void load_onnx(const char *path) {
    sn_error e = {0};
    sn_module *m = sn_module_new("onnx");
    sn_weights *w = sn_onnx_load(m, path, NULL, &e);
    if (!w) refused(&e);
    sn_weights_close(w);
    sn_module_free(m);
}

static void read_picture(const char *path) {
    sn_error e = {0};
    picture p;
    if (picture_read(path, 3, &p, &e))
        picture_free(&p);
    else
        refused(&e);
}

static void read_audio(const char *path) {
    sn_error e = {0};
    audio a;
    if (audio_read(path, &a, &e))
        audio_free(&a);
    else
        refused(&e);
}

/* ---- formats ---- */

/* seeds: files below the source folder, or text after "text:". name: what the reader expects;
 * without seeds, `grammars` has the format. */
static const struct {
    const char *format, *name;
    void (*use)(const char *path);
    const char *seeds[MAX_SEEDS];
} formats[] = {
    {"template", "t.jinja", render_template, {NULL}},
    {"gguf-shapes", "m.gguf", read_gguf, {NULL}},
    {"safetensors-shapes", "m.safetensors", read_weights, {NULL}},
    {"json-shapes", "m.json", import_json, {NULL}},
    {"npy-shapes", "a.npy", read_npy, {NULL}},
    {"npz-shapes", "m.npz", import_zip, {NULL}},
    {"idx-shapes", "a.idx", read_idx, {NULL}},
    {"llama2c-sizes", "m.bin", import_l2c, {NULL}},
    {"wav", "a.wav", read_audio, {NULL}},
    {"gguf-keys", "m.gguf", read_gguf, {NULL}},
    {"onnx-graphs", "m.onnx", load_onnx, {NULL}},
    {"artefact-sizes", "a.weights", inspect, {NULL}},
    {"safetensors", "m.safetensors", read_weights, {"tests/data/training/bert.safetensors"}},
    {"index",
     "m.safetensors.index.json",
     read_weights,
     {"text:{\"metadata\":{\"total_size\":8},\"weight_map\":{\"in.tokens\":\"bert.safetensors\"}"
      "}"}},
    {"gguf",
     "m.gguf",
     read_gguf,
     {"tests/data/gguf/formats.gguf", "tests/data/gguf/gpt2.gguf", "tests/data/gguf/llama.gguf",
      "tests/data/gguf/kimi-linear.gguf", "tests/data/gguf/jamba.gguf",
      "tests/data/gguf/granitehybrid.gguf"}},
    {"config",
     "config.json",
     read_config,
     {"text:{\"model_type\":\"gpt2\",\"vocab_size\":19,\"n_positions\":8,\"n_embd\":12,\"n_head\":"
      "3,"
      "\"n_layer\":1}",
      "text:{\"model_type\":\"llama\",\"vocab_size\":19,\"max_position_embeddings\":8,\"hidden_"
      "size\":"
      "12,\"intermediate_size\":20,\"num_hidden_layers\":1,\"num_attention_heads\":3}",
      "text:{\"model_type\":\"vit\",\"image_size\":8,\"patch_size\":4,\"num_labels\":5,\"hidden_"
      "size\":"
      "12,\"intermediate_size\":20,\"num_hidden_layers\":1,\"num_attention_heads\":3}"}},
    {"tokenizer.json",
     "tokenizer.json",
     read_tokenizer,
     {"tests/data/tokenizers/pieces/t5.json", "tests/data/tokenizers/pieces/added.json",
      "tests/data/tokenizers/pieces/clip.json", "tests/data/tokenizers/pieces/bert.json"}},
    {"tokenizer.model",
     "tokenizer.model",
     read_tokenizer,
     {"tests/data/tokenizers/pieces/unigram.model", "tests/data/tokenizers/pieces/bpe_bytes.model",
      "tests/data/tokenizers/pieces/bpe_suffix.model"}},
    {"tokenizer.bin", "tokenizer.bin", read_tokenizer, {"examples/models/stories260K/tok512.bin"}},
    {"vocab.txt",
     "vocab.txt",
     read_tokenizer,
     {"text:[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##ing\nfox\n"}},
    {"vocabulary.json",
     "vocabulary.json",
     read_tokenizer,
     {"text:{\"format\":\"sinter-vocabulary\",\"version\":1,\"kind\":\"char\",\"tokens\":[\"<u>\","
      "\"a\",\"b\",\"c\"],\"special\":{\"unk\":0}}",
      "text:{\"format\":\"sinter-vocabulary\",\"version\":1,\"kind\":\"word\",\"tokens\":[\"<u>\","
      "\"Hello\",\",\"],\"special\":{\"unk\":0,\"pad\":1}}"}},
    {"merges.txt", "merges.txt", read_merges, {"tests/data/fuzz/merges.txt"}},
    {"vocab.json", "vocab.json", read_merges, {"tests/data/fuzz/vocab.json"}},
    {"tokenizer_config",
     "tokenizer_config.json",
     read_tokenizer_config,
     {"text:{\"do_lower_case\":true,\"add_prefix_space\":true,\"bos_token\":\"<s>\",\"eos_token\":{"
      "\"content\":\"</"
      "s>\"},\"unk_token\":\"[UNK]\",\"added_tokens_decoder\":{\"3\":{\"content\":\"<s>\","
      "\"special\":true,\"lstrip\":false}},\"tokenizer_class\":\"GPT2Tokenizer\",\"strip_accents\":"
      "null,\"model_max_length\":512,\"add_bos_token\":true,\"clean_up_tokenization_spaces\":"
      "false}"}},
    {"preprocessor",
     "preprocessor_config.json",
     read_picture_rules,
     {"text:{\"image_processor_type\":\"CLIPImageProcessor\",\"do_resize\":true,\"size\":{"
      "\"shortest_edge\":24},\"resample\":3,\"do_center_crop\":true,\"crop_size\":{\"height\":24,"
      "\"width\":24},\"do_rescale\":true,\"rescale_factor\":0.00392156862745098,\"do_normalize\":"
      "true,\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.5,0.5,0.5]}",
      "text:{\"image_processor_type\":\"ViTImageProcessor\",\"size\":{\"height\":24,\"width\":24},"
      "\"resample\":2,\"do_resize\":true,\"do_normalize\":true,\"image_mean\":[0.5,0.5,0.5],"
      "\"image_std\":[0.5,0.5,0.5]}"}},
    {"generation",
     "generation_config.json",
     read_defaults,
     {"text:{\"do_sample\":true,\"temperature\":0.7,\"top_k\":40,\"top_p\":0.9,\"repetition_"
      "penalty\":1.1,\"max_new_tokens\":64,\"bos_token_id\":1,\"eos_token_id\":[2,3],\"num_beams\":"
      "1}"}},
    {"modules",
     "modules.json",
     read_modules,
     {"text:[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_transformers.models."
      "Transformer\"},{\"idx\":1,\"name\":\"1\",\"path\":\"1_Normalize\",\"type\":\"sentence_"
      "transformers.models.Normalize\"}]"}},
    {"llama2c", "m.bin", import_l2c, {"tests/data/fuzz/llama2c.bin"}},
    {"ctranslate2", "model.bin", import_c2, {"tests/data/fuzz/ctranslate2.bin"}},
    {"npz",
     "m.npz",
     import_zip,
     {"tests/data/mnist_vit_deflated.npz", "examples/models/mnist-vit/mnist_vit.npz"}},
    {"json-tensors", "m.json", import_json, {"tests/data/gpt_one.json"}},
    {"onnx",
     "m.onnx",
     load_onnx,
     {"tests/data/onnx/bert.onnx", "tests/data/onnx/gpt_past.onnx", "tests/data/onnx/t5.onnx",
      "tests/data/onnx/vit.onnx", "tests/data/onnx/operators.onnx"}},
    {"npy", "a.npy", read_npy, {"tests/data/reference/stories260K/greedy_ids.npy"}},
    {"picture",
     "a.png",
     read_picture,
     {"tests/data/pictures/rgb.png", "tests/data/pictures/palette.png",
      "tests/data/pictures/bits.png", "tests/data/pictures/gray.jpg",
      "tests/data/pictures/turned.jpg"}},
    {"idx", "a.idx", read_idx, {"examples/data/mnist-1000-labels.idx1-ubyte"}},
    {"passes",
     "a.sn",
     run_passes,
     {"tests/passes/text/fuse_gate.sn", "tests/passes/text/raise_attention.sn",
      "tests/passes/text/simplify_move.sn", "tests/passes/text/fuse_norm_grad.sn"}},
    {"compile",
     "a.sn",
     compile_text,
     {"tests/passes/text/fuse_row_sums.sn", "tests/passes/text/raise_norm.sn",
      "tests/passes/text/simplify_move.sn", "tests/passes/text/simplify_index.sn"}},
    {"training",
     "t.json",
     read_training,
     {"examples/train/shakespeare.json", "examples/train/bert-masked.json"}},
    {"artefact",
     "a.o",
     inspect,
     {"tests/data/fuzz/artefact.elf", "text:SNWGHT01\1\1\1\1aaaabbbbccccddddeeeeffffgggg"}},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Files that a case's reader opens, too. */
static const struct {
    const char *format, *file;
} beside[] = {
    {"index", "tests/data/training/bert.safetensors"},
    {"merges.txt", "tests/data/fuzz/vocab.json"},
    {"vocab.json", "tests/data/fuzz/merges.txt"},
    {"tokenizer_config", "tests/data/fuzz/vocab.json"},
    {"tokenizer_config", "tests/data/fuzz/merges.txt"},
    {"tokenizer_config", "tests/data/fuzz/vocab.txt"},
    {"npz", "examples/models/mnist-vit/import.json"},
    {"ctranslate2", "tests/data/fuzz/source_vocabulary.txt"},
    {"ctranslate2", "tests/data/fuzz/target_vocabulary.txt"},
};

static const struct {
    const char *format;
    void (*make)(uint64_t *s, sn_bytes *out);
} grammars[] = {{"template", grammar_template},
                {"gguf-shapes", grammar_gguf},
                {"safetensors-shapes", grammar_safetensors},
                {"json-shapes", grammar_json_tensors},
                {"npy-shapes", grammar_npy},
                {"npz-shapes", grammar_npz},
                {"idx-shapes", grammar_idx},
                {"llama2c-sizes", grammar_llama2c},
                {"wav", grammar_wav},
                {"gguf-keys", grammar_gguf_keys},
                {"onnx-graphs", grammar_onnx},
                {"artefact-sizes", grammar_artefact}};

/* ---- running ---- */

/* Says which case failed, and saves it; everything in it is safe in a signal handler. */
static void save_case(void) {
    char text[160];
    int n = snprintf(text, sizeof text, "failed: fuzz_files %llu 1 %s; fuzz_files.case\n", now.seed,
                     now.format),
        to = open("fuzz_files.case", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const sn_mapping *bytes = fuzz_memory_held();
    if (write(2, text, (size_t)n) < 0 || write(to, bytes->data, bytes->size) < 0) _exit(2);
}

static void on_signal(int number) {
    save_case();
    signal(number, SIG_DFL);
    raise(number);
}

/* The k-th seed of a format, which has at least one. They stay in memory. NULL: there is no such file. */
static const sn_mapping *seed_of(int f, uint64_t k) {
    static sn_mapping loaded[FORMATS][MAX_SEEDS];
    uint64_t n = 0;
    while (n < MAX_SEEDS && formats[f].seeds[n]) n++;
    const char *seed = formats[f].seeds[k % n];
    sn_mapping *m = &loaded[f][k % n];
    if (m->data) return m;
    char path[512];
    sn_error e = {0};
    snprintf(path, sizeof path, "%s/%s", SN_SOURCE_DIR, seed);
    if (!strncmp(seed, "text:", 5))
        *m = (sn_mapping){(const unsigned char *)seed + 5, strlen(seed + 5)};
    else if (!sn_file_map(path, m, &e))
        return fprintf(stderr, "%s\n", e.message), NULL;
    return m;
}

/* A file of a few kilobytes needs little memory. Sanitizers reserve more. */
static void limit_memory(void) {
#ifndef __SANITIZE_ADDRESS__
    setrlimit(RLIMIT_AS, &(struct rlimit){UINT64_C(8) << 30, RLIM_INFINITY});
#endif
}

/* Writes the case into memory: of a grammar, or a seed, or a case before that was kept, changed. */
static bool make_case(int f, uint64_t seed) {
    static unsigned char changed[MAX_SEED];
    uint64_t s = seed * 0x9e3779b97f4a7c15u + (uint64_t)f;
    const sn_mapping *from = fuzz_cover_kept(next_random(&s));
    if (from && grammar_below(&s, 2)) from = NULL;
    if (!from && formats[f].seeds[0] && !(from = seed_of(f, next_random(&s)))) return false;
    is_changed = from != NULL;
    if (from) {
        if (from->size > MAX_SEED) return false;
        memcpy(changed, from->data, from->size);
        size_t size = strstr(formats[f].name, ".json")
                          ? fuzz_change_json(changed, from->size, MAX_SEED, &s)
                          : fuzz_change_bytes(changed, from->size, &s);
        if (strstr(formats[f].name, ".png")) fuzz_mend_png(changed, size);
        return fuzz_memory_file(file, changed, size);
    }
    sn_bytes made = {0};
    int g = 0;
    while (strcmp(grammars[g].format, formats[f].format)) g++;
    grammars[g].make(&s, &made);
    bool ok = fuzz_memory_file(file, made.data, made.size);
    sn_bytes_free(&made);
    return ok;
}

/* CPU time, which waiting for a CPU does not use up; 0: no limit. */
static void limit_time(long seconds) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = seconds}}, NULL);
}

/* Links the files beside a format's into the folder, or removes the links. */
static bool link_beside(int f, bool add) {
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        char from[512], to[512];
        if (strcmp(beside[i].format, formats[f].format)) continue;
        snprintf(from, sizeof from, "%s/%s", SN_SOURCE_DIR, beside[i].file);
        snprintf(to, sizeof to, "%s%s", scratch_dir, strrchr(from, '/'));
        if (add ? symlink(from, to) || !fuzz_memory_beside(to) : unlink(to)) return false;
    }
    if (!add) fuzz_memory_alone();
    return true;
}

/* Without a change one of them must be accepted, else changes try nothing but the first checks. */
static bool seeds_are_good(int f) {
    bool good = !formats[f].seeds[0];
    for (uint64_t k = 0; !good && k < MAX_SEEDS && formats[f].seeds[k]; k++) {
        const sn_mapping *from = seed_of(f, k);
        if (!from || !fuzz_memory_file(file, from->data, from->size)) return false;
        is_refused = false;
        formats[f].use(file);
        good = !is_refused;
    }
    if (!good) fprintf(stderr, "%s: no seed is accepted\n", formats[f].format);
    return good;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the case in memory; true: accepted. */
static bool use_case(int f) {
    const sn_mapping *bytes = fuzz_memory_held();
    is_refused = false;
    fuzz_cover_begin();
    formats[f].use(file);
    fuzz_cover_end(bytes->data, bytes->size);
    return !is_refused;
}

/* `seconds`: of CPU time for all cases; 0: no limit. */
static bool run_cases(int f, uint64_t seed, long cases, double seconds) {
    const double begin = cpu_seconds();
    long accepted = 0, i = 0;
    now.format = formats[f].format;
    fuzz_cover_clear();
    for (; i < cases; i++) {
        now.seed = seed + (uint64_t)i;
        if (i % CASES_PER_ALARM == 0) {
            if (seconds && cpu_seconds() - begin > seconds) break;
            limit_time(SECONDS_PER_CASE);
        }
        if (!make_case(f, now.seed)) return false;
        accepted += use_case(f);
    }
    limit_time(0);
    fprintf(stderr, "%-18s %9ld cases, %9ld accepted, %9ld refused, %7.1f s", now.format, i,
            accepted, i - accepted, cpu_seconds() - begin);
    if (fuzz_cover_reached()) fprintf(stderr, ", %ld branches", fuzz_cover_reached());
    fputc('\n', stderr);
    return true;
}

static bool run_format(int f, uint64_t seed, long cases, double seconds, const char *path) {
    snprintf(file, sizeof file, "%s/%s", scratch_dir, formats[f].name);
    FILE *empty = fopen(file, "wb"); /* for those who ask whether it exists */
    bool ok = empty && !fclose(empty) && link_beside(f, true) && seeds_are_good(f);
    sn_mapping one = {0};
    if (ok && path) {
        ok = sn_file_map(path, &one, NULL) && fuzz_memory_file(file, one.data, one.size);
        now.format = formats[f].format;
        for (now.seed = 0; ok && now.seed < 4; now.seed++) /* readers may depend on it */
            fprintf(stderr, "%s\n", use_case(f) ? "accepted" : "refused");
    } else
        ok = ok && run_cases(f, seed, cases, seconds);
    return !unlink(file) && link_beside(f, false) && ok;
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    char *unit = "";
    long cases = argc > 2 ? strtol(argv[2], &unit, 0) : 100;
    const double seconds = *unit == 's' ? (double)cases : 0;
    if (seconds) cases = LONG_MAX;
    if (!seed) seed = (uint64_t)time(NULL) << 20;
    strcpy(scratch_dir, "/dev/shm/sn_test_XXXXXX"); /* in memory, where that is possible */
    if (!mkdtemp(scratch_dir) && scratch_make(NULL)) return 1;
    if (!(nowhere = fopen("/dev/null", "w"))) return 1;
    if (!freopen("/dev/null", "w", stdout)) return 1; /* `inspect` prints what it finds */
    snprintf(folder, sizeof folder, "%s/out", scratch_dir);
    mkdir(folder, 0700);
    static const int caught[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPROF};
    static char stack[1 << 16]; /* that of the program may be what is full */
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    for (int i = 0; i < 6; i++)
        sigaction(caught[i], &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_ONSTACK},
                  NULL);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(save_case);
#endif
    limit_memory();
    mallopt(M_MMAP_THRESHOLD, 1 << 25), mallopt(M_TRIM_THRESHOLD, 1 << 30); /* few system calls */
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    bool ok = true;
    for (int f = 0; f < FORMATS; f++) {
        if (argc > 3 && strcmp(argv[3], formats[f].format)) continue;
        ok = ok && run_format(f, seed, cases, seconds, argc > 4 ? argv[4] : NULL);
    }
    fclose(nowhere);
    scratch_end(NULL);
    return !ok;
}
