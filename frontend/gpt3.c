/* gpt3.c: GPT-3: [PH22 A10] with line 6 replaced in every second layer by sparse attention, in
 * which a token sees only the last `window_size` ones, itself included (Brown et al. 2020,
 * section 2.1: "alternating dense and locally banded sparse attention patterns in the layers"; the
 * patterns are those of Child et al. 2019). Tiles outside the band are skipped, so the work is T
 * window, not T^2. Config keys: GPT-2's, and GPT-Neo's "window_size". */
#include "frontend/decoder.h"

/* Line 6: dense in layers 0, 2, …; locally banded in 1, 3, … */
static sn_tensor attend(const decoder *g, const sn_forward_ctx *s, sn_tensor x, int layer) {
    decoder line = *g;
    if (layer % 2 == 0) line.window = 0;
    return gpt2_attend(&line, s, x, layer);
}

void sn_gpt3_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    decoder g = decoder_read(c, o);
    g.window = sn_config_int_or(c, "window_size", 256, 1, 1 << 24);
    g.attend = attend;
    decoder_build(&g, c, o, out);
}
