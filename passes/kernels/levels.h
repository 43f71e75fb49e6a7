/* levels.h: the fusion levels (levels.def) and what code asks about them. */
#ifndef SN_LEVELS_H
#define SN_LEVELS_H

#include <stdbool.h>

typedef enum sn_level {
#define LEVEL(name, text) SN_LEVEL_##name,
#include "passes/kernels/levels.def"
#undef LEVEL
    SN_LEVEL_COUNT,
    SN_LEVEL_HIGHEST = SN_LEVEL_COUNT - 1
} sn_level;

extern const char *const sn_level_text[SN_LEVEL_COUNT]; /* what is fused */

/* Does `level` fuse what is fused from level `from` on? */
bool sn_level_reaches(int level, sn_level from);
/* Does it fuse anything across the user's operations? If not, results are rounded as written. */
bool sn_level_fuses(int level);
/* Is it a level, or -1, which stands for the highest? */
bool sn_level_exists(int level);
int sn_level_or_highest(int level);

#endif
