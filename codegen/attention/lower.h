/* lower.h: what the files share that translate steps into specs of the attention generators. */
#ifndef SN_ATTENTION_LOWER_H
#define SN_ATTENTION_LOWER_H

#include "codegen/attention/attention.h"
#include "codegen/emit/family.h"

sn_attention_operand att_operand_of(const sn_kernel *k, const sn_view *v, int buf);
/* The first captured tensor among the operands of flash or flash_mixed. */
int att_first_captured(const sn_kernel *k);
/* The spec of a step whose operands and attributes are those of attention. first: the first captured
 * tensor among the operands, unless the factors of k and v precede it. */
void att_make_spec(const sn_kernel *k, int first, sn_attention *a);
/* Upper bound of the scratch as a polynomial of the sizes. The generators' scratch is a constant plus
 * whole tiles of keys and blocks of queries; the arguments are the bytes for one key and one query,
 * for ATT_MANY queries, for ATT_MANY keys. */
enum { ATT_MANY = 1 << 20 };
sn_dim att_scratch_of_sizes(const sn_kernel *k, int64_t one, int64_t queries, int64_t keys);

void att_emit_flash_tile_map(em *e, const sn_kernel *k);
void att_flash_tile_size(const sn_kernel *k, const sn_target *t, int *queries, int *keys);

#endif
