/* levels.c: see levels.h. */
#include "passes/kernels/levels.h"

enum { DEFAULT = -1 };

const char *const sn_level_text[SN_LEVEL_COUNT] = {
#define LEVEL(name, text) text,
#include "passes/kernels/levels.def"
#undef LEVEL
};

bool sn_level_reaches(int level, sn_level from) {
    return level >= (int)from;
}

bool sn_level_fuses(int level) {
    return level > SN_LEVEL_NONE;
}

bool sn_level_exists(int level) {
    return level >= DEFAULT && level < SN_LEVEL_COUNT;
}

int sn_level_or_highest(int level) {
    return level == DEFAULT ? SN_LEVEL_HIGHEST : level;
}
