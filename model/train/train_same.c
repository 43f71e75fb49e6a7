/* train_same.c: what must be equal on all ranks for their steps to have the same bits: the program,
 * what the CPU computes with, the run, the initial weights, the kernels. */
#include "model/train/train_ranks.h"
#include "model/train/train.h"

#include "tools/model/same.h"

#include <string.h>
#include <xxhash.h>

bool train_check_same(train_ranks *r, const char *target, const train_identity *id,
                      const train_start *start, sn_error *err) {
    static const char *const hints[TRAIN_PARTS] = {
        "start every rank with the same command", "every rank must read the same config and model",
        "every rank must read the same tokenizer, or learn it from the same text",
        "every rank must read the same text", "every rank must read the same validation text"};
    enum { FIRST = SAME_MACHINE, MORE = FIRST + 1 };
    sn_comm_same list[TRAIN_PARTS + MORE];
    if (!r->comm) return true;
    if (!train_ranks_agree(r, same_machine(target, list, err), err)) return false;
    for (int p = 0; p < TRAIN_PARTS; p++)
        list[FIRST + p] = (sn_comm_same){train_parts[p].what, hints[p],
                                         XXH3_64bits(id->part[p], strlen(id->part[p]))};
    list[FIRST + TRAIN_PARTS] = (sn_comm_same){
        "initial weights", "every rank must read the same model folder", start->hash};
    return train_ranks_same(r, list, TRAIN_PARTS + MORE, err);
}

/* What each of several ranks measures may differ: they go by rule. */
bool train_choose_compute(const train_request *r, train_settings *s, sn_error *err) {
    sn_options o = r->compile;
    const char *target = o.target ? o.target : "native";
    char note[200];
    if (o.compute && !strcmp(o.compute, "int8"))
        return sn_fail(
            err, SN_ERR_USAGE,
            "--compute int8: training computes in f32 or bf16, validation included; use it "
            "with generate or eval afterwards");
    if (!sn_choose_compute(&o, r->comm && r->comm->size > 1 ? target : NULL, note, sizeof note,
                           err))
        return false;
    if (*note && r->event) r->event(r->ctx, note);
    s->compute = o.compute && strcmp(o.compute, "f32") ? o.compute : NULL;
    return true;
}

/* Tuning, or another cache of choices, may have led to other kernels. */
bool train_check_kernels(train_ranks *r, const sn_program *p, sn_error *err) {
    static const char *const entries[] = {"accumulate", "train_step", NULL};
    sn_comm_same list;
    if (!r->comm) return true;
    return train_ranks_agree(r, same_kernels(p, entries, &list, err), err) &&
           train_ranks_same(r, &list, 1, err);
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
    sn_comm_same list = {
        "weights after this step",
        "its memory, CPU or network has made an error. The last checkpoint is whole",
        hash_tensors(r, t)};
    return train_ranks_same(r, &list, 1, err);
}

bool train_check_begin(train_ranks *r, const train_tensors *t, const train_state *state,
                       sn_error *err) {
    const int64_t part[] = {state->step, state->best_step, state->pending};
    sn_comm_same list = {"checkpoint",
                         "with --zero or --tensor every rank must reach the same output folder",
                         XXH3_64bits_withSeed(part, sizeof part, hash_tensors(r, t))};
    return train_ranks_same(r, &list, 1, err);
}
