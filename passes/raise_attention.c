#include "passes/raise.h"
const sn_raising sn_raise_attention[] = {{SN_OP_COUNT, NULL}};
