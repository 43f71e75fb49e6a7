/* stages.c: the table of stages, printed and timed. */
#include "passes/stages.h"
#include "ir/ir.h"
#include "runtime/clock.h"

const sn_stage sn_stages[SN_STAGE_COUNT] = {
#define STAGE(kind, name, level, file, function, purpose)                                          \
    {SN_STAGE_##kind, #name, level, file, function, purpose},
#define PASS(name, level, fixpoint, file, why)                                                     \
    {SN_STAGE_PASS, #name, level, file, "sn_pass_" #name, why},
#define PART(name, level, file, function, purpose)                                                 \
    {SN_STAGE_PART, #name, level, file, function, purpose},
#include "passes/stages.def"
#undef PART
#undef PASS
#undef STAGE
};

double sn_stage_begin(void) {
    return sn_debug_get()->time ? sn_clock() : 0;
}

void sn_stage_end(sn_stage_id stage, double begin, int rewrites) {
    if (!sn_debug_get()->time) return;
    fprintf(stderr, "sinter: stage %-10s %7.2f ms", sn_stages[stage].name,
            (sn_clock() - begin) * 1e3);
    if (rewrites >= 0) fprintf(stderr, ", %d rewrites", rewrites);
    fputc('\n', stderr);
}

void sn_stages_print(FILE *f) {
    static const char *const indent[] = {
        [SN_STAGE_MODEL] = "",    [SN_STAGE_PROGRAM] = "", [SN_STAGE_PASS] = "  ",
        [SN_STAGE_PART] = "    ", [SN_STAGE_PLAN] = "  ",
    };
    fprintf(f, "%-15slevel  what it does (where)\n", "stage");
    for (int i = 0; i < SN_STAGE_COUNT; i++) {
        const sn_stage *s = &sn_stages[i];
        int width = 15 - fprintf(f, "%s%s", indent[s->kind], s->name);
        fprintf(f, "%*s%d      %s (%s: %s)\n", width, "", s->level, s->purpose, s->file,
                s->function);
    }
    fprintf(f, "\nlevel          what it fuses besides what the levels below it fuse\n");
    for (int i = 0; i < SN_LEVEL_COUNT; i++)
        if (sn_level_exists(i)) fprintf(f, "  %-13d%s\n", i, sn_level_text[i]);
}
