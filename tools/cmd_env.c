/* cmd_env.c: `sinter version` and `sinter env`: what this installation and this machine are. */
#include "codegen/backend.h"
#include "codegen/emit/target.h"
#include "codegen/jit/cache.h"
#include "runtime/threads.h"
#include "tools/cmd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const arg no_options[] = {{0}};

static const arg_key version_keys[] = {{"version", "text", "of Sinter"}, {0}};

static const arg_command version_command = {
    "sinter version",    "print the version", NULL, no_options, .examples = "sinter version\n",
    .json = version_keys};

int cmd_version(int argc, char **argv) {
    char none;
    int code = sn_args_parse(&version_command, argc, argv, &none);
    if (code != ARGS_RUN) return code;
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "version", sn_version());
        sn_json_end(&j);
    } else
        printf("sinter %s\n", sn_version());
    return cmd_finish("sinter version");
}

static const arg_key env_keys[] = {
    {"version", "text", "of Sinter"},
    {"onednn", "text", "version of oneDNN; none: built without it"},
    {"target", "text", "CPU, as --target native sees it"},
    {"triple", "text", "architecture and system"},
    {"vector_bytes", "integer", "width of its vectors"},
    {"features", "list", "CPU features that kernels use"},
    {"threads", "integer", "default of --threads: CPUs that this process may use"},
    {"cache", "text", "cache folder"},
    {"cache_problem", "text?", "why it cannot be used"},
    {0}};

static const arg_command env_command = {
    "sinter env",
    "describe this machine and installation, as a report of a problem should",
    "Prints the versions of Sinter and of what it uses, the CPU with the features that matter to "
    "kernels,\nthe number of threads and the cache folder.\n",
    no_options,
    .examples = "sinter env\nsinter env --json\n",
    .json = env_keys};

/* Has a row for each line of the description: NULL ends. */
static void print_features(json_out *j, const sn_target *t) {
    static const char *const names[] = {"avx2",       "fma",        "f16c",       "avx512f",
                                        "avx512vnni", "avx512bf16", "avx512fp16", "avxvnni",
                                        "amx-int8",   "amx-bf16",   "neon",       "dotprod",
                                        "i8mm",       "bf16",       "fullfp16",   "sve"};
    if (j) sn_json_list(j, "features");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char on[40];
        snprintf(on, sizeof on, "+%s,", names[i]);
        size_t n = strlen(on) - 1, end = strlen(t->features);
        bool last = end >= n && !strncmp(t->features + end - n, on, n);
        if (!strstr(t->features, on) && !last) continue;
        if (j)
            sn_json_text(j, NULL, names[i]);
        else
            printf(" %s", names[i]);
    }
    if (j) sn_json_close(j);
}

static void print_all(const sn_target *t, sn_cache *c) {
    const char *problem = sn_cache_note(c), *folder = sn_cache_folder(c);
    const int threads = sn_threads_default(0);
    if (sn_screen()->json) {
        json_out j = sn_json_begin(stdout);
        sn_json_text(&j, "version", sn_version());
        sn_json_text(&j, "onednn", sn_backend_library_version());
        sn_json_text(&j, "target", t->cpu);
        sn_json_text(&j, "triple", t->triple);
        sn_json_integer(&j, "vector_bytes", t->vector_bytes);
        print_features(&j, t);
        sn_json_integer(&j, "threads", threads);
        sn_json_text(&j, "cache", folder ? folder : "");
        if (problem) sn_json_text(&j, "cache_problem", problem);
        sn_json_end(&j);
        return;
    }
    printf("sinter    %s\noneDNN    %s\nCPU       %s (%s), vectors of %d bytes\nfeatures ",
           sn_version(), sn_backend_library_version(), t->cpu, t->triple, t->vector_bytes);
    print_features(NULL, t);
    printf("\nthreads   %d\ncache     %s\n", threads, problem ? problem : folder ? folder : "none");
}

int cmd_env(int argc, char **argv) {
    char none;
    int code = sn_args_parse(&env_command, argc, argv, &none);
    if (code != ARGS_RUN) return code;
    sn_error err = {0};
    sn_target t;
    sn_cache *c = sn_cache_open(NULL, 0, &err);
    bool ok = c && sn_target_init(&t, NULL, &err);
    if (ok) print_all(&t, c);
    sn_cache_close(c);
    return ok ? cmd_finish("sinter env") : cmd_fail("sinter env", &err);
}
