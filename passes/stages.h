/* stages.h: the stages of a compilation (stages.def), and their times. */
#ifndef SN_STAGES_H
#define SN_STAGES_H

#include "passes/kernels/levels.h"

#include <stdio.h>

typedef enum sn_stage_kind {
    SN_STAGE_MODEL,
    SN_STAGE_PROGRAM,
    SN_STAGE_PASS,
    SN_STAGE_PART,
    SN_STAGE_PLAN
} sn_stage_kind;

typedef enum sn_stage_id {
#define STAGE(kind, name, ...) SN_STAGE_##name,
#define PASS(name, ...) SN_STAGE_##name,
#define PART(name, ...) SN_STAGE_##name,
#include "passes/stages.def"
#undef PART
#undef PASS
#undef STAGE
    SN_STAGE_COUNT
} sn_stage_id;

typedef struct sn_stage {
    sn_stage_kind kind;
    const char *name;
    sn_level level; /* from which on it runs */
    const char *file, *function, *purpose;
} sn_stage;
extern const sn_stage sn_stages[SN_STAGE_COUNT];

/* SINTER_DEBUG=time prints a line when a stage ends: its name and time. rewrites: of a pass; -1: no
 * pass. begin: of sn_stage_begin. */
double sn_stage_begin(void);
void sn_stage_end(sn_stage_id stage, double begin, int rewrites);

void sn_stages_print(FILE *f);

#endif
