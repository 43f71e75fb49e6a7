/* same.c: hashes of the program, the CPU, kernels and weights. */
#include "tools/model/same.h"

#include "codegen/emit/target.h"
#include "ir/ir.h"
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

bool same_machine(const char *target, sn_comm_same out[SAME_MACHINE], sn_error *err) {
    out[0] = (sn_comm_same){"program sinter", "install the same version on every machine",
                            hash_program()};
    out[1] = (sn_comm_same){"CPU features",
                            "name a target that all machines have, such as --target x86-64-v3", 0};
    return hash_target(target, &out[1].hash, err);
}

static bool is_listed(const char *name, const char *const *list) {
    if (!list) return true;
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

bool same_kernels(const sn_program *p, const char *const *entries, sn_comm_same *out,
                  sn_error *err) {
    *out = (sn_comm_same){"kernels", "use the same options, without --tune or after tuning on each",
                          0};
    for (int e = 0; e < sn_entry_count(p->m); e++) {
        const sn_kernel_call *call;
        const char *name = sn_entry_at(p->m, e)->name;
        int n = *name != '@' && is_listed(name, entries)
                    ? sn_program_calls(p, name, NULL, &call, err)
                    : 0;
        for (int i = 0; i < n; i++)
            out->hash = XXH3_64bits_withSeed(call[i].kernel, strlen(call[i].kernel), out->hash);
        if (n < 0) return false;
    }
    return true;
}

/* The first, middle and last bytes of a tensor's data. */
static uint64_t hash_samples(const sn_weight *w, uint64_t h) {
    enum { BYTES = 4096 };
    size_t n = w->bytes < BYTES ? w->bytes : BYTES;
    const size_t at[] = {0, (w->bytes - n) / 2, w->bytes - n};
    for (size_t i = 0; w->data && i < sizeof at / sizeof *at; i++)
        h = XXH3_64bits_withSeed((const char *)w->data + at[i], n, h);
    return h;
}

sn_comm_same same_model(const open_model *m) {
    const sn_weights *w = model_weights(m);
    uint64_t h = 0;
    for (size_t i = 0; w && i < sn_weights_count(w); i++) {
        const sn_weight *x = sn_weights_at(w, i);
        const int64_t type[] = {(int64_t)x->dtype, x->rank, (int64_t)x->bytes};
        h = XXH3_64bits_withSeed(x->name, strlen(x->name), h);
        h = XXH3_64bits_withSeed(type, sizeof type, h);
        h = XXH3_64bits_withSeed(x->shape, sizeof *x->shape * (size_t)x->rank, h);
        h = hash_samples(x, h);
    }
    return (sn_comm_same){"model", "every rank must read the same model folder", h};
}
