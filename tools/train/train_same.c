/* train_same.c: what must be equal on all ranks for their steps to have the same bits: the program,
 * what the CPU computes with, the run, the initial weights, the kernels. */
#include "tools/train/train_ranks.h"
#include "tools/train/train.h"

#include "codegen/emit/target.h"
#include "runtime/file.h"

#include <string.h>
#include <xxhash.h>

static uint64_t hash_program(void) {
    sn_mapping m;
    if (!sn_file_map("/proc/self/exe", &m, NULL)) return 0; /* no such file system on any rank */
    uint64_t h = XXH3_64bits(m.data, m.size);
    sn_file_unmap(&m);
    return h;
}

/* What decides the code, except the sizes of caches, which never change a result. */
static bool hash_target(const char *spec, uint64_t *out, sn_error *err) {
    sn_target t;
    if (!sn_target_init(&t, spec, err)) return false;
    const uint64_t part[] = {XXH3_64bits(t.cpu, strlen(t.cpu)), t.feature_set,
                             (uint64_t)t.vector_bytes, (uint64_t)t.vector_regs, (uint64_t)t.arch};
    *out = XXH3_64bits(part, sizeof part);
    return true;
}

static uint64_t hash_weights(const sn_parameters *p) {
    uint64_t h = 0;
    for (size_t i = 0; i < p->count; i++) {
        h = XXH3_64bits_withSeed(p->weight[i].name, strlen(p->weight[i].name), h);
        h = XXH3_64bits_withSeed(p->weight[i].data, p->weight[i].bytes, h);
    }
    return h;
}

bool train_check_same(train_ranks *r, const char *target, const train_identity *id,
                      const sn_parameters *parameters, sn_error *err) {
    static const char *const hints[TRAIN_PARTS] = {
        "start every rank with the same command", "every rank must read the same config and model",
        "every rank must read the same tokenizer, or learn it from the same text",
        "every rank must read the same text", "every rank must read the same validation text"};
    enum { FIRST = 2, MORE = FIRST + 1 };
    train_same list[TRAIN_PARTS + MORE] = {
        {"program sinter", "install the same version on every machine", hash_program()},
        {"CPU features", "name a target that all machines have, such as --target x86-64-v3", 0},
        {"initial weights", "every rank must read the same model folder",
         hash_weights(parameters)}};
    bool ok = !r->comm || hash_target(target, &list[1].hash, err);
    if (!train_ranks_agree(r, ok, err)) return false;
    for (int p = 0; p < TRAIN_PARTS; p++)
        list[FIRST + p] = (train_same){train_parts[p].what, hints[p],
                                       XXH3_64bits(id->part[p], strlen(id->part[p]))};
    list[FIRST + TRAIN_PARTS] = (train_same){
        "initial weights", "every rank must read the same model folder", hash_weights(parameters)};
    return train_ranks_same(r, list, TRAIN_PARTS + MORE, err);
}

/* Tuning, or another cache of choices, may have led to other kernels. */
bool train_check_kernels(train_ranks *r, const sn_program *p, sn_error *err) {
    static const char *const entries[] = {"accumulate", "train_step"};
    uint64_t h = 0;
    bool ok = true;
    for (int e = 0; r->comm && ok && e < 2; e++) {
        const sn_kernel_call *call;
        bool there = sn_entry_get(p->m, entries[e]);
        int n = there ? sn_program_calls(p, entries[e], NULL, &call, err) : 0;
        for (int i = 0; i < n; i++)
            h = XXH3_64bits_withSeed(call[i].kernel, strlen(call[i].kernel), h);
        ok = n >= 0;
    }
    train_same list = {"kernels", "use the same options, without --tune or after tuning on each",
                       h};
    return train_ranks_agree(r, ok, err) && train_ranks_same(r, &list, 1, err);
}

/* Of what all ranks have. */
static uint64_t hash_tensors(const train_ranks *r, const train_tensors *t) {
    uint64_t h = 0;
    for (size_t i = 0; r->comm && i < t->count; i++)
        if (!t->tensor[i].divided)
            h = XXH3_64bits_withSeed(t->tensor[i].memory, train_tensor_bytes(&t->tensor[i]), h);
    return h;
}

/* Equal on all ranks after every step; if not, a machine computes or stores wrongly. */
bool train_check_tensors(train_ranks *r, const train_tensors *t, sn_error *err) {
    train_same list = {"weights after this step",
                       "its memory, CPU or network has made an error. The last checkpoint is whole",
                       hash_tensors(r, t)};
    return train_ranks_same(r, &list, 1, err);
}

bool train_check_begin(train_ranks *r, const train_tensors *t, const train_state *state,
                       sn_error *err) {
    const int64_t part[] = {state->step, state->best_step, state->pending};
    train_same list = {"checkpoint",
                       "with --zero or --tensor every rank must reach the same output folder",
                       XXH3_64bits_withSeed(part, sizeof part, hash_tensors(r, t))};
    return train_ranks_same(r, &list, 1, err);
}
