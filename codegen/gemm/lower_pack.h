/* lower_pack.h: what quantises a matrix while a pack step packs it (lower_pack.c). */
#ifndef SN_LOWER_PACK_H
#define SN_LOWER_PACK_H

#include "codegen/emit/family.h"
#include "codegen/gemm/gemm.h"

/* Sets g->prologue if the step has a prologue; memory is the module's. */
void gemm_lower_pack(em *e, const sn_kernel *k, sn_gemm_pack *g);

#endif
