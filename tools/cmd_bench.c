/* cmd_bench.c: `sinter bench`: measures kernels and models beside the machine's limits and other
 * systems. */
#include "bench/benches.h"
#include "bench/claims.h"
#include "bench/neighbour.h"
#include "bench/noise.h"
#include "bench/peers.h"
#include "bench/processes.h"
#include "frontend/models.h"
#include "runtime/cli/drawing.h"
#include "runtime/clock.h"
#include "tools/cmd.h"
#include "tools/evidence.h"
#include "tools/model/open.h"
#include "driver/installed.h"
#include "driver/model_source.h"
#include "driver/open.h"
#include "runtime/problems.h"
#include "runtime/model_dir.h"
#include "runtime/str.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct options {
    const char *levels, *backends, *weights, *compute, *cache, *precision, *peers, *peer_dir,
        *target, *cache_dir, *invariant, *evidence, *json, *plot, *profile, *with;
    int64_t threads, processes, rounds;
    double seconds, clip, threshold;
    bool cold, warm, claims, no_check, direct, tune, backward, gradient;
    const char *names, *shape, *mask, *model, *tokens, *sizes, *entry, *optimizer;
    int64_t batch, neighbour;
    bool decode, sweep;
} options;

/* clang-format off */
#define ROUNDS \
    {"rounds", 0, ARG_INT, offsetof(options, rounds), "N", NULL, 5, SN_BENCH_ROUNDS, \
     "interleaved rounds of a process, and up to twice as many until 5 count; default: 9, in several processes 5"}, \
    {"seconds", 0, ARG_NUMBER, offsetof(options, seconds), "S", "0.02", 0, 60, "minimum time per variant and round"}, \
    {"threads", 't', ARG_INT, offsetof(options, threads), "N", "0", 0, 1024, "0: all available CPUs"}, \
    {"json", 0, ARG_TEXT, offsetof(options, json), "FILE", NULL, 0, 0, "one record per line; -: standard output, instead of the tables; docs/bench.md lists the keys"}, \
    {"plot", 0, ARG_TEXT, offsetof(options, plot), "FILE.svg", NULL, 0, 0, \
     "SVG, or PNG if FILE ends so: roofline with one point per record, bars of time with speed-ups"}, \
    {"with", 0, ARG_TEXT, offsetof(options, with), "OLD.json", NULL, 0, 0, \
     "also compare with the records of an earlier run (--json)"}, \
    {"threshold", 0, ARG_NUMBER, offsetof(options, threshold), "PERCENT", "0", 0, 100, \
     "with a comparison: exit code 1 if something is slower by more than this; 0: never"}
/* Not for attention, which has no constant matrix, nor for training, where no matrix is
 * constant. */
#define WEIGHTS \
    {"weights", 0, ARG_CHOICE, offsetof(options, weights), "f32|bf16|int8|int4", NULL, 0, 0, \
     "storage type of constant matrices; the errors then include rounding; default: f32"}, \
    {"compute", 0, ARG_CHOICE, offsetof(options, compute), "f32|bf16|bf16-unordered|int8", "f32", 0, 0, \
     "arithmetic of products; bf16: factors are rounded to bf16; bf16-unordered: by AMX if " \
     "there is one; int8: of products with constant matrices, " \
     "which are stored as int8"}
#define COMPUTE \
    {"compute", 0, ARG_CHOICE, offsetof(options, compute), "f32|bf16|bf16-unordered", "f32", 0, 0, \
     "arithmetic of products, forward and backward; bf16-unordered: by AMX if there is one"}
#define WORK(levels_, backends_) \
    {"levels", 0, ARG_TEXT, offsetof(options, levels), "L,…|L..L", levels_, 0, 0, "fusion levels, 0 to 4"}, \
    {"backends", 0, ARG_TEXT, offsetof(options, backends), "B,…", backends_, 0, 0, "native, onednn, auto"}, \
    {"tune", 0, ARG_FLAG, offsetof(options, tune), NULL, NULL, 0, 0, "also measure tuned variants of native and auto"}, \
    {"peers", 0, ARG_TEXT, offsetof(options, peers), "all|none|P,…", "none", 0, 0, \
     "openblas, torch, torch-malloc, onnxruntime, onnxruntime-unfused (its graph optimizations are off)"}, \
    {"peer-dir", 0, ARG_TEXT, offsetof(options, peer_dir), "DIR", NULL, 0, 0, \
     "folder of the peers' scripts; default: the installed ones, or bench/peers in the sources"}, \
    {"cold", 0, ARG_FLAG, offsetof(options, cold), NULL, NULL, 0, 0, "flush the caches before each sample, which is one run"}, \
    {"warm", 0, ARG_FLAG, offsetof(options, warm), NULL, NULL, 0, 0, "caches as the run before left them, the default"}, \
    {"no-check", 0, ARG_FLAG, offsetof(options, no_check), NULL, NULL, 0, 0, "do not compare with the f64 evaluator"}, \
    {"target", 0, ARG_TEXT, offsetof(options, target), "CPU", NULL, 0, 0, "x86-64-v3; native,l2=256K (as if caches were so large), …; default: this CPU"}, \
    {"neighbour", 0, ARG_INT, offsetof(options, neighbour), "N", "0", 0, 64, \
     "measure again while N threads walk through memory, as another program would; 0: only alone"}, \
    {"evidence", 0, ARG_TEXT, offsetof(options, evidence), "DIR", NULL, 0, 0, \
     "write a new folder with all samples, the machine's state, and repeat.sh, which measures again and compares verdicts"}, \
    {"processes", 0, ARG_INT, offsetof(options, processes), "N", "0", 0, SN_BENCH_PROCESSES, \
     "measure in N fresh processes, so that intervals cover how they differ; 0: 3 with --evidence, else in this one"}, \
    CMD_INVARIANT_ARG(offsetof(options, invariant)), \
    CMD_PROFILE_ARG(options), \
    {"cache-dir", 0, ARG_TEXT, offsetof(options, cache_dir), "DIR|none", NULL, 0, 0, \
     "cache of compiled kernels; default: ~/.cache/sinter"}, \
    ROUNDS
/* clang-format on */

/* Unless --processes and --rounds say otherwise. */
enum { EVIDENCE_PROCESSES = 3, ALONE_ROUNDS = 9 };

static const char roofline_name[] = "sinter bench roofline", gemm_name[] = "sinter bench gemm",
                  kernel_name[] = "sinter bench kernel",
                  attention_name[] = "sinter bench attention", model_name[] = "sinter bench model",
                  train_name[] = "sinter bench train";

static const char columns_help[] =
    "Every round times every variant once, in rotating order. Between them it measures the "
    "f32\nmultiply-add peak and, for memory-bound work, the bandwidth of streaming the same number "
    "of\nbytes. '% roof' is the larger of the times that these two limits allow, divided by the "
    "measured\ntime: a median of ratios within rounds. 'rel RMS' and 'max ulp' compare a reduced "
    "problem with\nan evaluator in double precision.\n";

static const arg roofline_table[] = {ROUNDS, {0}};
static const arg gemm_table[] = {{"shape", 0, ARG_TEXT, offsetof(options, shape), "M,N,K …", NULL,
                                  0, 0, "shapes separated by spaces; default: a built-in list"},
                                 {"direct", 0, ARG_FLAG, offsetof(options, direct), NULL, NULL, 0,
                                  0, "also the time in kernels alone"},
                                 WEIGHTS,
                                 WORK("4", "native"),
                                 {0}};
static const arg kernel_table[] = {{"NAMES", 0, ARG_PLACE_OR_NONE, offsetof(options, names), NULL,
                                    NULL, 0, 0, "layer_norm,softmax,…; default: all"},
                                   {"shape", 0, ARG_TEXT, offsetof(options, shape), "ROWSxWIDTH",
                                    NULL, 0, 0, "replaces the sizes of the table"},
                                   WEIGHTS,
                                   WORK("0..4", "native"),
                                   {0}};
static const arg attention_table[] = {
    {"mask", 0, ARG_TEXT, offsetof(options, mask), "MASK,…", NULL, 0, 0,
     "full, causal, window:N, prefix:N, alibi, softcap, documents, dilated:N, strided:N (the last "
     "N, then every N-th), blocks:N, neighbours:N (pixels of an image N wide), dense (a boolean "
     "table), bias, biases (one per head), relative (a number per head and distance), buckets "
     "(T5's), swin:N (a number per head, rows and columns, N wide), decode (one query, T keys); "
     "default: full,causal"},
    {"sweep", 0, ARG_FLAG, offsetof(options, sweep), NULL, NULL, 0, 0,
     "every mask from 16 to 4096 tokens, level 4 against level 2"},
    {"shape", 0, ARG_TEXT, offsetof(options, shape), "B,H,T,D …", NULL, 0, 0,
     "shapes separated by spaces; B,H,HK,T,D: fewer K/V heads"},
    {"direct", 0, ARG_FLAG, offsetof(options, direct), NULL, NULL, 0, 0,
     "also the time in kernels alone"},
    {"backward", 0, ARG_FLAG, offsetof(options, backward), NULL, NULL, 0, 0,
     "forward and backward: includes the gradients of q, k and v"},
    COMPUTE,
    WORK("0..4", "native"),
    {0}};
static const arg model_table[] = {
    {"MODEL", 0, ARG_PLACE, offsetof(options, model), NULL, NULL, 0, 0,
     "gpt2, gpt2-medium, …, a model folder or GGUF file (its config), a model in C or an ONNX "
     "file; "
     "weights are random"},
    {"tokens", 0, ARG_TEXT, offsetof(options, tokens), "N,…", NULL, 0, 0,
     "tokens per sequence [64,256,1024]; with --decode tokens in the cache [64,512]"},
    {"batch", 0, ARG_INT, offsetof(options, batch), "N", "1", 1, 1024, "batch size"},
    {"sizes", 0, ARG_TEXT, offsetof(options, sizes), "B=1,N=64", NULL, 0, 0,
     "sizes of dimensions of any name, instead of --tokens and --batch; without an input `tokens` "
     "the numbers of tokens are the sizes of all dimensions but B and batch…"},
    {"decode", 0, ARG_FLAG, offsetof(options, decode), NULL, NULL, 0, 0,
     "decode one token at a time with a KV cache"},
    {"entry", 'e', ARG_TEXT, offsetof(options, entry), "NAME", NULL, 0, 0,
     "another entry; default: forward, or encode, or the only one"},
    {"gradient", 0, ARG_FLAG, offsetof(options, gradient), NULL, NULL, 0, 0,
     "the gradients of the sum of the entry's outputs, with respect to parameters and float "
     "inputs, and what they need of the entry"},
    {"cache", 0, ARG_CHOICE, offsetof(options, cache), "f32|bf16|int8", "f32", 0, 0,
     "with --decode: storage of keys and values"},
    WEIGHTS,
    WORK("0..4", "native"),
    {0}};

static const arg train_table[] = {
    {"MODEL", 0, ARG_PLACE, offsetof(options, model), NULL, NULL, 0, 0,
     "gpt2, edt-base, … or a model folder or GGUF file (its config; weights are random)"},
    {"tokens", 0, ARG_TEXT, offsetof(options, tokens), "N,…", NULL, 0, 0,
     "tokens per sequence [64,256]"},
    {"batch", 0, ARG_INT, offsetof(options, batch), "N", "4", 1, 1024, "batch size"},
    {"precision", 0, ARG_CHOICE, offsetof(options, precision), "f32|bf16", "f32", 0, 0,
     "precision of activations stored for the backward pass"},
    COMPUTE,
    {"clip", 0, ARG_NUMBER, offsetof(options, clip), "NORM", "0", 0, INFINITY,
     "maximum global gradient norm; 0 disables clipping"},
    {"optimizer", 0, ARG_TEXT, offsetof(options, optimizer), "KIND", "adamw", 0, 0,
     "adamw, muon, … (as in a sinter train config); muon, normuon, shampoo, soap: AdamW for "
     "embeddings, heads and vectors"},
    WORK("4", "native"),
    {0}};

static bool run_roofline(const options *o, const sn_bench_options *b, sn_bench_report *r,
                         sn_error *err) {
    (void)o;
    return sn_bench_roofline(b, r, err);
}
static bool run_gemm(const options *o, const sn_bench_options *b, sn_bench_report *r,
                     sn_error *err) {
    return sn_bench_gemms(b, o->shape, r, err);
}
static bool run_kernel(const options *o, const sn_bench_options *b, sn_bench_report *r,
                       sn_error *err) {
    return sn_bench_kernels(b, o->names, o->shape, r, err);
}
static bool run_attention(const options *o, const sn_bench_options *b, sn_bench_report *r,
                          sn_error *err) {
    return o->sweep ? sn_bench_sweep(b, r, err)
                    : sn_bench_masks(b, o->mask, o->shape, o->backward, r, err);
}
/* Whether a folder or GGUF file is one that other commands accept. A folder may have a config only. */
static bool check_folder(const char *path, sn_error *err) {
    if (access(path, F_OK) || !sn_model_dir_has_weights(path)) return true;
    const open_options o = {.path = path,
                            .hooks = cmd_hooks,
                            .entries = SN_ALL_ENTRIES,
                            .any_model = true,
                            .build_only = true};
    open_model *m = model_open(&o, err);
    model_close(m);
    return m;
}

static bool build_source(void *source, const sn_model_options *o, sn_model *out, sn_error *err) {
    return model_source_build(source, o, out, err);
}

/* A model in C, or an ONNX file with the config of its folder. */
static bool bench_source(const char *path, const sn_bench_options *b, sn_bench_model *what,
                         sn_bench_report *r, sn_error *err) {
    model_source code = {0};
    bool ok = model_source_open(path, b->cache_dir, &code, err);
    char *folder = ok && code.onnx ? model_source_folder(code.onnx) : NULL;
    sn_error none = {0}; /* a graph without a config is measured as it is */
    if (folder) code.config = sn_model_dir_config(folder, &none);
    what->model = code.name;
    what->build = build_source;
    what->source = &code;
    what->file = code.onnx;
    ok = ok && sn_bench_models(b, what, r, err);
    free(folder);
    sn_config_free(code.config);
    model_source_close(&code);
    return ok;
}

static bool run_mode(const options *o, const sn_bench_options *b, sn_bench_mode mode,
                     sn_bench_report *r, sn_error *err) {
    sn_bench_model what = {.model = o->model,
                           .tokens = o->tokens,
                           .batch = o->batch,
                           .mode = mode,
                           .clip = o->clip,
                           .optimizer = o->optimizer,
                           .entry = o->entry,
                           .gradient = o->gradient,
                           .sizes = o->sizes};
    if (model_source_is(o->model)) return bench_source(o->model, b, &what, r, err);
    char *onnx = model_source_in(o->model, mode == SN_BENCH_DECODE);
    bool ok = onnx ? bench_source(onnx, b, &what, r, err)
                   : (!b->total->counting || check_folder(o->model, err)) &&
                         sn_bench_models(b, &what, r, err);
    free(onnx);
    return ok;
}
static bool run_model(const options *o, const sn_bench_options *b, sn_bench_report *r,
                      sn_error *err) {
    return run_mode(o, b, o->decode ? SN_BENCH_DECODE : SN_BENCH_FORWARD, r, err);
}
static bool run_train(const options *o, const sn_bench_options *b, sn_bench_report *r,
                      sn_error *err) {
    return run_mode(o, b, SN_BENCH_TRAIN, r, err);
}

static const struct {
    arg_command command;
    bool (*run)(const options *o, const sn_bench_options *b, sn_bench_report *r, sn_error *err);
} kinds[] = {
    {{roofline_name, "the machine's limits: multiply-add peak, and bandwidth of each memory level",
      NULL, roofline_table, .examples = "sinter bench roofline --plot roofline.svg\n"},
     run_roofline},
    {{gemm_name, "matrix products y = x w^T beside oneDNN with packed weights", columns_help,
      gemm_table,
      .examples = "sinter bench gemm --shape \"128,768,768 1,3072,768\" --levels 0,4\n"},
     run_gemm},
    {{kernel_name, "single kernels: norms, softmax, activations, fused products, look-ups",
      columns_help, kernel_table,
      .examples = "sinter bench kernel softmax,layer_norm --json kernels.json\n"},
     run_kernel},
    {{attention_name,
      "attention with any mask or score function, fused (level 3 and up) and unfused", columns_help,
      attention_table,
      .examples = "sinter bench attention --mask causal,alibi --shape 1,12,512,64\n"
                  "sinter bench attention --mask window:256 --backward\n"},
     run_attention},
    {{model_name, "whole models, forward or decoding", columns_help, model_table,
      .examples = "sinter bench model gpt2 --tokens 256 --peers torch --plot gpt2.svg\n"
                  "sinter bench model MODEL --decode --weights int8\n"},
     run_model},
    {{train_name, "whole training steps: forward, backward and the optimizer", columns_help,
      train_table, .examples = "sinter bench train gpt2 --tokens 64 --batch 2 --json train.json\n"},
     run_train},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *kind_of(int i) {
    return kinds[i].command.name + strlen("sinter bench ");
}

static void print_help(FILE *f) {
    fprintf(f, "sinter bench: measure kernels and models beside the machine's limits and other "
               "systems\n\nusage: sinter bench WHAT [arguments]\n\n");
    for (int i = 0; i < N_KINDS; i++) fprintf(f, "  %-12s%s\n", kind_of(i), kinds[i].command.what);
    fprintf(f, "  %-12s%s\n", "compare",
            "levels of any of these, or two files: speed-up, interval, verdict");
    fprintf(f, "  %-12s%s\n", "MODEL", "as model MODEL, if there is such a file, folder or preset");
    fprintf(f,
            "\nsinter bench WHAT --help explains a benchmark.\n\nexamples:\n  sinter bench compare "
            "MODEL --levels 0,4\n  sinter bench compare attention --with old.json\n  sinter "
            "bench compare old.json new.json\n");
}

static int find_kind(const char *name) {
    const char *names[N_KINDS + 1] = {NULL};
    for (int i = 0; i < N_KINDS; i++) {
        if (!strcmp(kind_of(i), name)) return i;
        names[i] = kind_of(i);
    }
    const char *near = sn_nearest_name(name, names);
    fprintf(stderr, "sinter bench: unknown benchmark '%s'", name);
    if (near) fprintf(stderr, "; did you mean %s?", near);
    fprintf(stderr, "\n(sinter bench --help lists all benchmarks)\n");
    return -1;
}

static bool read_list(const char *option, const char *text, const char *const *known,
                      sn_error *err) {
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ",");
        bool found = false;
        for (int i = 0; known[i]; i++)
            found |= strlen(known[i]) == len && !strncmp(known[i], p, len);
        if (!found || (!p[len] && !len))
            return sn_fail(err, SN_ERR_USAGE, "--%s is '%s'; '%.*s' is not in the list of --help",
                           option, text, (int)len, p);
        p += len + (p[len] == ',');
    }
    if (!*text) return sn_fail(err, SN_ERR_USAGE, "--%s is empty", option);
    return true;
}

/* Lists must not be empty, and no two outputs may be the same file. */
static bool check_texts(const options *o, sn_error *err) {
    const struct {
        const char *name, *text;
    } list[] = {
        {"NAMES", o->names}, {"--shape", o->shape}, {"--mask", o->mask}, {"--tokens", o->tokens}};
    const struct {
        const char *name, *path;
    } file[] = {{"--json", o->json}, {"--plot", o->plot}, {"--profile", o->profile}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].text && !list[i].text[strspn(list[i].text, " ")])
            return sn_fail(err, SN_ERR_USAGE, "%s is empty", list[i].name);
    for (size_t i = 0; i < sizeof file / sizeof *file; i++)
        for (size_t j = 0; j < i; j++)
            if (file[i].path && file[j].path && !strcmp(file[i].path, file[j].path))
                return sn_fail(err, SN_ERR_USAGE, "%s and %s are the same file: '%s'", file[j].name,
                               file[i].name, file[i].path);
    return true;
}

static const char *find_peers(void) {
    static char path[PATH_MAX + 64];
    installed_folder(SN_PEER_DIR, "peers", "torch_peer.py", path, sizeof path);
    return path;
}

static bool shows_progress(void) {
    return !sn_screen()->quiet && (sn_screen()->verbose || isatty(STDERR_FILENO));
}

static bool read_options(const options *o, sn_bench_options *b, double *shown, sn_error *err) {
    static const char *const backends[] = {"native", "onednn", "auto", NULL};
    const char *peers[SN_BENCH_MAX_PEERS + 3] = {"all", "none"};
    for (int i = 0; sn_bench_peer_name(i); i++) peers[i + 2] = sn_bench_peer_name(i);
    bool int8 = o->compute && !strcmp(o->compute, "int8");
    int processes = (int)o->processes;
    if (!processes) processes = o->evidence ? EVIDENCE_PROCESSES : 1;
    cmd_note_threads(o->threads);
    *b = (sn_bench_options){.backends = o->backends,
                            .peers = o->peers,
                            .peer_dir = o->peer_dir ? o->peer_dir : find_peers(),
                            .target = o->target,
                            .weights = int8 && !o->weights ? "int8" : o->weights,
                            .compute = o->compute,
                            .cache = o->cache,
                            .precision = o->precision,
                            .invariant = o->invariant,
                            .cache_dir = o->cache_dir,
                            .threads = (int)o->threads,
                            .processes = processes,
                            .rounds = o->rounds       ? (int)o->rounds
                                      : processes > 1 ? SN_BENCH_ENOUGH
                                                      : ALONE_ROUNDS,
                            .seconds = o->seconds,
                            .check = !o->no_check,
                            .direct = o->direct,
                            .tune = o->tune,
                            .cold = o->cold,
                            .profile = o->profile,
                            .progress = shows_progress() ? stderr : NULL,
                            .shown = shown};
    if (o->cold && o->warm) return sn_fail(err, SN_ERR_USAGE, "--cold contradicts --warm");
    if (!check_texts(o, err)) return false;
    if (!o->levels) return true; /* roofline has no lists */
    if (!cmd_read_levels(o->levels, &b->levels, err) ||
        !read_list("backends", o->backends, backends, err) ||
        !read_list("peers", o->peers, peers, err))
        return false;
    if (sn_bench_listed(o->peers, "none") && strcmp(o->peers, "none") != 0)
        return sn_fail(err, SN_ERR_USAGE, "--peers '%s' contradicts itself", o->peers);
    if (o->peer_dir && !strcmp(o->peers, "none"))
        return sn_fail(err, SN_ERR_USAGE, "--peer-dir has no effect without --peers");
    return true;
}

/* ---- comparisons ---- */

static bool within(sn_bench_compared c, double threshold, sn_error *err) {
    if (threshold <= 0) return true;
    if (!c.pairs)
        return sn_fail(err, SN_ERR_RANGE,
                       "--threshold: there is nothing to compare: no measurement "
                       "has a counterpart");
    return !c.slower || sn_fail(err, SN_ERR_RANGE, "%d measurements are slower by more than %g %%",
                                c.slower, threshold);
}

/* With a picture; old NULL: levels of one run. */
static bool compare(const options *o, const sn_bench_report *r, const sn_bench_report *old,
                    const char *where, sn_error *err) {
    const char *const color[SN_BENCH_VERDICTS + 1] = {
        "", sn_screen_color(stdout, STYLE_FASTER), sn_screen_color(stdout, STYLE_SLOWER), "",
        "", sn_screen_color(stdout, STYLE_NONE)};
    sn_bench_compared c = sn_bench_print_comparison(r, old, o->threshold, color, stdout);
    return (!o->plot || sn_bench_write_svg(r, old, where, o->plot, err)) &&
           within(c, o->threshold, err);
}

static bool compare_with(const options *o, const sn_bench_report *r, const char *where,
                         sn_error *err) {
    sn_bench_report old = {0};
    bool ok = sn_bench_read_json(o->with, &old, err);
    if (ok)
        printf("\nagainst %s (%s %s, %s%s%.16s)\n", o->with, old.cpu, old.microarchitecture,
               old.commit, *old.commit ? ", " : "", old.date);
    ok = ok && compare(o, r, &old, where, err);
    sn_bench_report_free(&old);
    return ok;
}

static const char compare_name[] = "sinter bench compare";
static const arg compare_table[] = {
    {"OLD.json", 0, ARG_PLACE, offsetof(options, with), NULL, NULL, 0, 0, "records of a run"},
    {"NEW.json", 0, ARG_PLACE, offsetof(options, names), NULL, NULL, 0, 0,
     "records of another run"},
    {"claims", 0, ARG_FLAG, offsetof(options, claims), NULL, NULL, 0, 0,
     "compare the verdicts of both runs instead; exit code 1 if one differs, 2 if all are refused"},
    {"plot", 0, ARG_TEXT, offsetof(options, plot), "FILE.svg", NULL, 0, 0,
     "SVG, or PNG if FILE ends so: roofline with one point per new record, bars of time with "
     "speed-ups"},
    {"threshold", 0, ARG_NUMBER, offsetof(options, threshold), "PERCENT", "0", 0, 100,
     "exit code 1 if something is slower by more than this; 0: never"},
    {0}};
static const arg_command compare_command = {
    compare_name, "compare two files of records, or the fusion levels of a benchmark",
    "sinter bench compare MODEL|WHAT … measures as sinter bench WHAT does (levels 0 and 4 unless "
    "--levels\nsays otherwise) and compares the levels; a name that is not a benchmark is a model. "
    "It "
    "takes the options\nof that benchmark, such as --levels 0,2,4 and --tokens 256. --with "
    "OLD.json "
    "compares with the records\nof another commit, machine or set of options. A verdict needs the "
    "whole "
    "interval of the speed-up to be\n1 %, or --threshold, away from 1 (faster, slower) or within "
    "it "
    "(same); otherwise it is unclear. It is refused,\nwith the reason, if the machine was "
    "not quiet enough.\n",
    compare_table,
    .examples = "sinter bench compare MODEL\n"
                "sinter bench compare MODEL --levels 4 --weights int8 --with old.json\n"
                "sinter bench compare attention --mask causal --levels 0,2,4\n"
                "sinter bench compare old.json new.json --threshold 5\n"};

/* Of two runs of the same. */
static bool compare_claims(const options *o, const sn_bench_report *r, sn_error *err) {
    sn_bench_report old = {0};
    sn_bench_repeated c = {0};
    bool ok = sn_bench_read_json(o->with, &old, err);
    if (ok) c = sn_bench_print_repeated(&old, r, stdout);
    sn_bench_report_free(&old);
    if (ok && !c.equal && !c.different && !c.refused)
        return sn_fail(err, SN_ERR_USAGE, "%s: no claims: no work was timed with two entrants",
                       o->with);
    if (ok && !c.equal && !c.different)
        return sn_fail(err, SN_ERR_USAGE, "nothing is repeated: all %d verdicts are refused",
                       c.refused);
    return ok && (!c.different || sn_fail(err, SN_ERR_RANGE, "%d verdicts differ", c.different));
}

static int compare_files(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&compare_command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    sn_bench_report r = {0};
    bool ok = (!o.claims || (!o.plot && o.threshold <= 0) ||
               sn_fail(&err, SN_ERR_USAGE, "--claims contradicts --plot and --threshold")) &&
              sn_drawing_named(o.plot, &err) && cmd_can_write(o.plot, &err) &&
              sn_bench_read_json(o.names, &r, &err) &&
              (o.claims ? compare_claims(&o, &r, &err) : compare_with(&o, &r, r.cpu, &err));
    sn_bench_report_free(&r);
    return ok ? cmd_finish(compare_name) : cmd_fail(compare_name, &err);
}

/* Bytes of the probe of main memory beside a picture: more than the last-level cache of most CPUs. */
enum { MEMORY_PROBE = 128 << 20 };

/* The folder to repeat a measurement from; argv: as it was run. */
static bool write_evidence(const options *o, int argc, char **argv, const sn_bench_options *b,
                           const sn_bench_report *r, sn_error *err) {
    if (!o->evidence) return true;
    if (!evidence_write(o->evidence, argc, argv, o->model, r, b, err)) return false;
    sn_screen_say("sinter bench", "wrote %s: %s/repeat.sh repeats the measurement", o->evidence,
                  o->evidence);
    return true;
}

/* Prints and writes the measured records; the folder before comparisons, which may fail. argv NULL: no folder. */
static bool report(const options *o, int argc, char **argv, const sn_bench_options *b,
                   sn_bench_report *r, bool levels, sn_error *err) {
    sn_bench_judge(r);
    sn_bench_identify(r);
    if (o->plot) r->read_gbytes_s = sn_probe_read_bandwidth(sn_bench_threads(b), MEMORY_PROBE);
    const bool records = o->json && !strcmp(o->json, "-"); /* in place of the tables */
    if (!levels && !records) {
        sn_bench_print(r, stdout);
        sn_bench_print_claims(r, stdout);
    }
    if (o->json && !sn_bench_write_json(r, b, o->json, err)) return false;
    sn_screen_wrote("sinter bench", o->json);
    char where[480];
    sn_bench_describe(r, b, where, sizeof where);
    bool kept = !argv || write_evidence(o, argc, argv, b, r, err);
    bool ok = !records && o->with  ? compare_with(o, r, where, err)
              : !records && levels ? compare(o, r, NULL, where, err)
                                   : !o->plot || sn_bench_write_svg(r, NULL, where, o->plot, err);
    if (ok) sn_screen_wrote("sinter bench", o->plot);
    return ok && kept;
}

static bool is_kind(const char *name) {
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(kind_of(i), name)) return true;
    return false;
}

static char model_word[] = "model";

/* `compare WHAT …` becomes `WHAT … --levels 0,4`, `compare MODEL …` `model MODEL …`. argv has room
 * for three more. Returns the number of arguments. */
static int compared(int argc, char **argv) {
    static char levels[] = "--levels", both[] = "0,4";
    bool known = is_kind(argv[2]), given = false;
    for (int i = 2; i < argc; i++) given |= !strncmp(argv[i], levels, sizeof levels - 1);
    argv[1] = known ? argv[2] : model_word;
    for (int i = 2; known && i + 1 < argc; i++) argv[i] = argv[i + 1];
    argc -= known;
    if (!given) {
        argv[argc++] = levels;
        argv[argc++] = both;
    }
    argv[argc] = NULL;
    return argc;
}

/* Alone, and with --neighbour once more beside it; the names of these records say so. */
static bool run_states(int kind, const options *o, const sn_bench_options *b, sn_bench_report *r,
                       sn_error *err) {
    if (!kinds[kind].run(o, b, r, err)) return false;
    if (!o->neighbour) return true;
    int alone = r->n;
    double start = sn_clock();
    sn_bench_neighbour *other = sn_bench_neighbour_start((int)o->neighbour, err);
    bool ok = other && kinds[kind].run(o, b, r, err);
    double seconds = sn_clock() - start, bytes = sn_bench_neighbour_stop(other);
    for (int i = alone; i < r->n; i++) {
        char *name = r->list[i].name;
        size_t n = strlen(name);
        snprintf(name + n, sizeof r->list[i].name - n, ", neighbour");
    }
    if (ok)
        sn_bench_note(r, "the neighbour's threads read and wrote %.1f GB/s",
                      bytes / seconds * 1e-9);
    return ok;
}

/* After `compare MODEL`: the kernels of the lowest and the highest level by family, with their times and
 * bytes, as `sinter explain --diff` prints them. Returns its exit code. */
static int compare_kernels(const options *o, const sn_bench_record *measured) {
    const char *first = o->levels, *last = first + strlen(first) - 1;
    const char *tokens = o->tokens ? o->tokens : "64";
    if (o->decode || *first == *last) return EXIT_OK;
    const char *space = strrchr(measured->name, ' '); /* the name ends with the entry */
    char diff[8], sizes[64], threads[24], entry[64];
    snprintf(entry, sizeof entry, "%s", space ? space + 1 : "forward");
    snprintf(diff, sizeof diff, "%c,%c", *first, *last);
    snprintf(sizes, sizeof sizes, "B=%lld,T=%.*s", (long long)o->batch,
             (int)strspn(tokens, "0123456789"), tokens);
    if (o->sizes || strchr(measured->shape, '='))
        snprintf(sizes, sizeof sizes, "%s", o->sizes ? o->sizes : measured->shape);
    snprintf(threads, sizeof threads, "%lld", (long long)o->threads);
    const char *line[24] = {"explain", "--time", "--entry", entry,       "--diff", diff,
                            "--sizes", sizes,    "-q",      "--threads", threads};
    int n = 11;
    const char *const more[][2] = {{"--weights", o->weights},
                                   {"--compute", o->compute},
                                   {"--invariant", o->invariant},
                                   {"--target", o->target},
                                   {"--cache-dir", o->cache_dir}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i][1]) line[n++] = more[i][0], line[n++] = more[i][1];
    if (access(o->model, F_OK))
        line[n++] = "--preset";
    else if (!model_source_is(o->model) && !sn_model_dir_has_weights(o->model))
        return sn_screen_note(model_name, "%s has no weights, so its kernels are not listed",
                              o->model),
               EXIT_OK;
    line[n++] = o->model;
    printf("\nkernels of the levels, ");
    fflush(stdout);
    return cmd_explain(n, (char **)(uintptr_t)line);
}

/* The command of a process that measures; count: its rounds. Only the first one computes errors, which are equal, and
 * writes the profile. NULL: out of memory; free it. */
static char **process_command(int argc, char **argv, char *count, bool check, bool first) {
    static char program[] = "sinter", bench[] = "bench", processes[] = "--processes", one[] = "1",
                json[] = "--json", out[] = "-", rounds[] = "--rounds", unchecked[] = "--no-check",
                profile[] = "--profile";
    char *const last[] = {processes, one, json, out, rounds, count, unchecked};
    char **line = calloc((size_t)argc + 10, sizeof *line);
    int n = 0;
    if (!line) return NULL;
    line[n++] = program;
    line[n++] = bench;
    for (int i = 1, skipped; i < argc; i += skipped ? skipped : 1) {
        const char *value = argv[i] + sizeof profile - 1;
        skipped = evidence_leaves_out(argv[i], false);
        if (!first && !strncmp(argv[i], profile, sizeof profile - 1) && (!*value || *value == '='))
            skipped = *value ? 1 : 2;
        if (!skipped) line[n++] = argv[i];
    }
    memcpy(line + n, last, sizeof last - (first || !check) * sizeof *last);
    return line;
}

/* In fresh processes, which get the same arguments. */
static bool run_processes(int argc, char **argv, const sn_bench_options *b, sn_bench_report *r,
                          bool *stopped, sn_error *err) {
    char count[16];
    snprintf(count, sizeof count, "%d", b->rounds);
    char **line[] = {process_command(argc, argv, count, b->check, true),
                     process_command(argc, argv, count, b->check, false)};
    bool ok = line[0] && line[1] ? sn_bench_run_processes(b->processes, line, EXIT_STOPPED, b->stop,
                                                          r, stopped, err)
                                 : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(line[0]);
    free(line[1]);
    return ok;
}

/* In this process, beside the peers. */
static bool run_here(int kind, const options *o, sn_bench_options *b, sn_bench_report *r,
                     sn_error *err) {
    sn_bench_noise noise = sn_bench_noise_begin();
    double switches = sn_bench_usage_of(0).switches;
    sn_bench_look(r, 0);
    b->started = sn_bench_peers_start(b, r);
    bool ok = run_states(kind, o, b, r, err);
    sn_bench_peers_stop(b->started);
    sn_bench_noise_end(&noise, &r->others, &r->stolen);
    sn_bench_look(r, 1);
    r->switches = sn_bench_usage_of(0).switches - switches;
    return ok;
}

static int measure(int argc, char **argv, bool levels) {
    const char *what = argc > 1 ? argv[1] : NULL;
    if (!what || !strcmp(what, "--help") || !strcmp(what, "-h") || !strcmp(what, "help")) {
        print_help(what ? stdout : stderr);
        return what ? cmd_finish("sinter bench") : EXIT_USAGE;
    }
    int kind = find_kind(what);
    if (kind < 0) return EXIT_USAGE;
    options o = {0};
    arg_command named = kinds[kind].command, *c = &named;
    char name[64];
    snprintf(name, sizeof name, "%s %s", compare_name, kind_of(kind));
    if (levels) named.name = name;
    int code = sn_args_parse(c, argc - 1, argv + 1, &o);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    sn_bench_options b;
    sn_bench_report r = {0};
    double shown = sn_clock();
    bool stopped = false;
    bool ok = read_options(&o, &b, &shown, &err) && cmd_can_write(o.json, &err) &&
              sn_drawing_named(o.plot, &err) && cmd_can_write(o.plot, &err) &&
              cmd_can_write(o.profile, &err) && evidence_can(o.evidence, &err);
    char *command = evidence_command(argc, argv, NULL, NULL, &b);
    b.command = command;
    if (ok) {
        sn_bench_total total = {.counting = kind > 0}; /* roofline is one work */
        sn_bench_report none = {0};
        b.total = &total;
        ok = !total.counting || kinds[kind].run(&o, &b, &none, &err);
        sn_bench_report_free(&none);
        total.counting = false;
        total.begin = sn_clock();
        b.stop = sn_screen_stopped;
        sn_screen_catch_stop();
        r.cold = b.cold;
        if (ok)
            ok = b.processes > 1 ? run_processes(argc, argv, &b, &r, &stopped, &err)
                                 : run_here(kind, &o, &b, &r, &err);
        sn_bench_progress_end(&b);
    }
    stopped |= sn_screen_stopped();
    const bool partial = (!ok || stopped) && (stopped || b.processes > 1) && r.n > 0;
    sn_error failed = {0};
    if (partial) {
        sn_screen_say(c->name, "%s%d records are complete", stopped ? "interrupted: " : "", r.n);
        if (!stopped) failed = err;
        err = (sn_error){0};
    }
    if (ok || partial) ok = report(&o, argc, partial ? NULL : argv, &b, &r, levels, &err);
    if (ok && failed.code) err = failed, ok = false;
    free(command);
    bool printed = !o.json || strcmp(o.json, "-") != 0; /* tables, beside the records */
    bool kernels = ok && levels && printed && r.n && !o.gradient && !strcmp(kind_of(kind), "model");
    code = ok ? cmd_finish(c->name) : cmd_fail(c->name, &err);
    if (stopped)
        code = EXIT_STOPPED;
    else if (kernels && code == EXIT_OK)
        code = compare_kernels(&o, &r.list[0]);
    sn_bench_report_free(&r);
    return code;
}

/* sinter --complete bench WORD: the benchmarks; after `compare` models and files, too. */
static int complete_first(const char *word, bool compares) {
    for (int i = 0; i < N_KINDS; i++)
        if (!strncmp(kind_of(i), word, strlen(word)))
            printf("%s\t%s\n", kind_of(i), kinds[i].command.what);
    if (!compares && !strncmp("compare", word, strlen(word)))
        printf("compare\t%s\n", compare_command.what);
    if (compares) cmd_offer(word, sn_model_preset_name);
    if (compares) puts(ARGS_FILES);
    return EXIT_OK;
}

/* sinter --complete bench WORDS…: benchmarks, or the words of one. `compare` takes those of the benchmark
 * that it measures, or files. */
static int complete(int argc, char **argv) {
    const bool compares = argc > 3 && !strcmp(argv[2], "compare");
    char *last = argv[argc - 1], **word = argv + 2 + compares;
    int n = argc - 2 - compares;
    if (n == 1 && *last != '-') return complete_first(last, compares);
    if (!strcmp(argv[argc - 2], "--mask")) return cmd_offer(last, sn_bench_mask_name), EXIT_OK;
    if (!strcmp(argv[argc - 2], "--peers")) return cmd_offer(last, sn_bench_peer_name), EXIT_OK;
    if (compares && (n == 1 || sn_ends_with(word[0], ".json")))
        return sn_args_complete(&compare_command, n, word);
    const bool known = is_kind(word[0]); /* another word is a model */
    const arg_command *c = &kinds[find_kind(known ? word[0] : model_word)].command;
    if (known && n == 2 && *last != '-' && !strcmp(c->table->name, "MODEL"))
        cmd_offer(last, sn_model_preset_name);
    return sn_args_complete(c, n - known, word + known);
}

/* `bench FILE` and `bench PRESET` become `bench model …`. */
static bool is_model(const char *name) {
    return !is_kind(name) && name[0] != '-' && (sn_model_preset(name) || !access(name, F_OK));
}

int cmd_bench(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], ARGS_COMPLETE)) return complete(argc, argv);
    bool compares = argc > 1 && !strcmp(argv[1], "compare"), model = argc > 1 && is_model(argv[1]);
    if (!compares && !model) return measure(argc, argv, false);
    bool help = compares && (argc < 3 || argv[2][0] == '-');
    if (help || (compares && argc > 3 && !is_kind(argv[2]) && argv[3][0] != '-')) /* two files */
        return compare_files(argc - 1, argv + 1);
    char **list = calloc((size_t)argc + 4, sizeof *list);
    if (!list) return cmd_fail(compare_name, &(sn_error){SN_ERR_MEMORY, "out of memory"});
    memcpy(list + model, argv, sizeof *list * (size_t)argc);
    if (model) list[0] = argv[0], list[1] = model_word;
    int code = measure(model ? argc + 1 : compared(argc, list), list, compares);
    free(list);
    return code;
}
