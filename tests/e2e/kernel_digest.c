/* kernel_digest [--list] [TARGET…]: a digest of the machine code of every kernel and entry that the
 * rows of the specification and the presets are compiled to, at all fusion levels, forward,
 * decoding and training. A change that is meant to leave the generated code alone leaves the digest
 * alone; names of symbols do not count. --list prints each function's digest with its name, to find
 * what differs. Targets: x86-64-v4 and x86-64-v3 if none is named. */
#include "codegen/jit/cache.h"
#include "tests/e2e/spec_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

typedef struct digests {
    uint64_t *value;
    size_t count, capacity;
    bool list, failed;
} digests;

static void add(digests *d, uint64_t value) {
    if (d->count == d->capacity) {
        size_t more = d->capacity ? 2 * d->capacity : 1024;
        uint64_t *grown = realloc(d->value, more * sizeof *grown);
        if (!grown) {
            d->failed = true;
            return;
        }
        d->value = grown;
        d->capacity = more;
    }
    d->value[d->count++] = value;
}

/* The bytes of each function of an object, relocations open. */
static void add_object(void *ctx, const sn_object *o) {
    digests *d = ctx;
    const char *base = (const char *)o->data;
    const Elf64_Ehdr *h = (const void *)o->data;
    const Elf64_Shdr *section = (const void *)(base + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbol = (const void *)(base + section[i].sh_offset);
        const char *names = base + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol; k++) {
            if (ELF64_ST_TYPE(symbol[k].st_info) != STT_FUNC || !symbol[k].st_size) continue;
            const char *code = base + section[symbol[k].st_shndx].sh_offset + symbol[k].st_value;
            uint64_t value = XXH3_64bits(code, symbol[k].st_size);
            if (d->list)
                printf("%016llx %6llu %s\n", (unsigned long long)value,
                       (unsigned long long)symbol[k].st_size, names + symbol[k].st_name);
            add(d, value);
        }
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Compiles a model once for each level; what it is compiled to stays in the cache folder. */
static bool compile_model(const spec_row *row, const char *config, int entries, const char *target,
                          const char *folder) {
    sn_training t = {.optimizer = sn_optimizer_of(SN_ADAM),
                     .schedule = {.kind = SN_CONSTANT, .peak = 1e-2}};
    sn_model_options mo = {.entries = entries, .training = &t};
    for (int level = 0; level <= 4; level++) {
        sn_error err = {0};
        sn_model model = {0};
        sn_config *c = config ? sn_config_parse("config.json", config, strlen(config), &err) : NULL;
        bool ok = config ? c && sn_model_build(c, &mo, &model, &err)
                         : sn_model_build_with(row->define, row->name, &mo, &model, &err);
        sn_options o = sn_options_default();
        o.level = level, o.threads = 2, o.target = target, o.cache_dir = folder,
        o.backend = "native";
        sn_program *p = ok ? sn_compile(model.module, &o, &err) : NULL;
        if (!p)
            fprintf(stderr, "%s, level %d: %s\n", row ? row->name : "preset", level, err.message);
        sn_program_free(p);
        sn_module_free(model.module);
        sn_config_free(c);
        if (!p) return false;
    }
    return true;
}

static bool compile_all(const char *target, const char *folder) {
    const spec_row *const groups[] = {spec_components, spec_models, spec_variants};
    bool ok = true;
    for (int g = 0; g < 3; g++)
        for (const spec_row *r = groups[g]; r->name; r++) {
            const char *config = r->define ? NULL : r->config;
            ok &= compile_model(r, config, SN_FORWARD | SN_CACHED, target, folder);
            ok &= compile_model(r, config, SN_LOSS | SN_TRAIN, target, folder);
        }
    for (int i = 0; sn_model_preset_name(i); i++)
        ok &= compile_model(NULL, sn_model_preset(sn_model_preset_name(i)), SN_FORWARD | SN_CACHED,
                            target, folder);
    return ok;
}

static bool print_digest(const char *target, bool list) {
    digests d = {.list = list};
    sn_error err = {0};
    if (scratch_make(NULL) || !compile_all(target, scratch_dir)) return false;
    sn_cache *cache = sn_cache_open(scratch_dir, 0, &err);
    sn_cache_each(cache, SN_CACHE_OBJECT, add_object, &d);
    sn_cache_close(cache);
    scratch_end(NULL);
    size_t n = 0;
    if (d.count) qsort(d.value, d.count, sizeof *d.value, by_value);
    for (size_t i = 0; i < d.count; i++) /* equal code under two names counts once */
        if (!i || d.value[i] != d.value[i - 1]) d.value[n++] = d.value[i];
    printf("%-12s %6zu functions  %016llx\n", target, n,
           (unsigned long long)XXH3_64bits(d.value, n * sizeof *d.value));
    free(d.value);
    return n && !d.failed;
}

int main(int argc, char **argv) {
    int first = argc > 1 && !strcmp(argv[1], "--list") ? 2 : 1;
    bool ok = true;
    for (int i = first; i < argc; i++) ok &= print_digest(argv[i], first == 2);
    if (first == argc)
        ok = print_digest("x86-64-v4", first == 2) && print_digest("x86-64-v3", first == 2);
    return !ok;
}
