#!/bin/sh
# test_cli_explain.sh SINTER SOURCE_DIR: the views of `sinter explain`.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG
. "$2/tests/tools/cli_run.sh"
model="$source/examples/models/stories260K/stories260K.bin"

run 0 explain "$model" --entry decode
prints '^entry decode:' && prints 'causal_lm.c:'
prints '4 times the same 7'
prints 'gemm .*layers\.\*\.mlp\.gate_proj+up_proj '
prints 'flash .*layers\.\*\.attention '
prints 'empty tiles are skipped\|no mask'
run 0 explain "$model" --entry decode --full
prints 'kernel sn_gemm_' && prints '^choice, '
run 0 explain "$model" --entry decode --time --sizes P=9
prints 'share  *ms  *min  *GFLOP/s  *GB/s '
prints '^a run took [0-9.]* ms (minimum [0-9.]*), its calls [0-9.]* ('
run 0 import "$source/examples/models/aren-transliteration/model.bin" -o "$tmp/aren"
run 0 explain "$source/examples/variants/block_top_k.c" -e forward --time
prints "flash layer0.attention: the run decides which pairs its mask shows"
run 0 explain "$tmp/aren" --entry encode --time
prints 'share  *ms ' && says_nothing
run 0 explain "$model" --entry decode --sort cost
[ "$(grep -c '^ *[0-9]*  [a-z]' "$tmp/out")" -gt 9 ] && prints 'share  times ' || fail 'rows by cost'
awk '/%/ && $1 ~ /^[0-9]+$/ { for (i = 1; i <= NF; i++) if ($i ~ /%$/) { if (seen && $i + 0 > last) bad = 1; last = $i + 0; seen = 1; break } }
     END { exit bad || !seen }' "$tmp/out" || fail 'the most expensive calls are not first'
run 0 explain "$model" --entry decode --dot -
prints '^digraph "decode"' && prints 'c0 -> '
run 0 explain "$model" --json "$tmp/explain.json" --sizes T=64
grep -q '"where":.*"model.layers.0.attention"' "$tmp/explain.json" && grep -q '"skipped":' "$tmp/explain.json" || fail 'explain.json'
run 0 explain "$model" --entry prefill
prints '^note, ' # of this entry: decoding has no product of many rows
run 0 explain "$model" --entry decode
grep '^note, ' "$tmp/out" && fail 'remarks of other entries'
run 0 explain "$model" --entry prefill --diff 0,4
prints 'kernel calls .* times'
run 0 explain --preset gpt2 --level 0 -e forward
prints '^entry forward:' && prints '12 times the same'
# softmaxes before products: one operation whose weights are an output, spelled out with the division before and behind the
# product, and no softmax
cat >"$tmp/pairs.c" <<'END'
#include <sinter/models.h>
static sn_tensor power(sn_tensor q, sn_tensor k) {
    sn_tensor s = sn_mul(sn_matmul(q, sn_transpose(k, 0, 1, 3, 2)), 0.25);
    return sn_exp(sn_sub(s, sn_amax_keep(s, 3)));
}
SN_MODEL(m, o) {
    (void)o;
    sn_entry_begin(m, "forward");
    sn_tensor q = sn_input(m, "q", SN_F32, 2, 4, 64, 16), k = sn_input(m, "k", SN_F32, 2, 4, 64, 16);
    sn_tensor w = sn_softmax(sn_matmul(q, sn_transpose(k, 0, 1, 3, 2)), 3), y = sn_matmul(w, k);
    sn_output("weights", w);
    sn_tensor p = power(y, k);
    p = power(sn_matmul(sn_div(p, sn_sum_keep(p, 3)), k), k);
    sn_output("y", sn_div(sn_matmul(p, k), sn_sum_keep(p, 3)));
    p = power(q, q);
    sn_output("none", sn_mul(sn_matmul(p, k), sn_sum_keep(p, 3)));
}
END
run 0 explain "$tmp/pairs.c"
prints 'attention: 2 of 3 softmax-product pairs fused'
run 0 explain "$tmp/pairs.c" --level 0 --json -
prints '"attention_pairs":.3' && prints '"attention_fused":.0'
# why a tensor is in memory
run 0 explain "$source/examples/variants/alibi.c" --entry forward
prints 'of [0-9]* tiles [0-9.]* % are skipped, [0-9.]* % run without mask, [0-9.]* % with it (T=256'
cp "$tmp/out" "$tmp/table"
run 0 explain "$model" --entry decode --why model.layers.0.mlp.gate_proj+up_proj
prints 'between kernels' && prints 'written by call .*gate_proj' && prints 'read by .*down_proj'
prints 'because .*is a product: it reads each element of a factor many times' && prints 'alive .*from call'
call=$(sed -n 's/.*written by *call \([0-9]*\),.*/\1/p' "$tmp/out")
cp "$tmp/out" "$tmp/first"
run 0 explain "$model" --entry decode --why "call $call"
same "$tmp/first"
run 0 explain "$model" --entry decode --why model.norm.weight
prints 'a parameter' && prints 'comes from the weights'
tap=$("$sinter" inspect "$model" --taps | awk 'NR == 1 {print $2}')
run 0 explain "$model" --entry forward --why "$tap"
prints 'no call of entry forward stores it as it is (f32.B,T,64., .*causal_lm.c:'
line=$(sed -n 's/.*add, mul.*(\([^ ]*small.h:[0-9]*\)).*/\1/p' "$tmp/table" | head -1)
run 0 explain "$source/examples/variants/alibi.c" --entry forward --why "${line##*/}"
run 0 explain "$model" --entry decode --why model.layers.0.mlp.gate_proj --level 0
prints 'level 0 fuses only' && prints 'removed by .*--level 4'
run 0 explain "$source/examples/variants/alibi.c" --training -e train_step --why layer0.up
prints 'the backward part reads it' && prints 'removed by .*memory-budget'
refused 2 'did you mean model.norm.weight' explain "$model" --why model.norm.wieght
refused 2 'why contradicts --full' explain "$model" --full --why x
run 0 explain --stages
prints '^  3  *attention is one kernel' && prints '^  simplify  *0 ' && prints '^  memory  *0 '
run 0 explain "$(ls "$source"/tests/passes/text/*.sn | head -1)"
refused 2 'two levels from 0 to 4' explain "$model" --diff 0,5
refused 2 'dot contradicts --json' explain "$model" --dot - --json -
refused 2 'choose it with --entry' explain "$model" --dot -
refused 2 'needs a model' explain "$(ls "$source"/tests/passes/text/*.sn | head -1)" --time
refused 2 "no dimension 'X'" explain "$model" --sizes X=1
refused 2 "no entry 'decod'; there are: forward, .*decode" explain "$model" -e decod
run 1 explain "$model" --sizes T=99999
says 'T = 99999 is outside'

# training steps of layers above each other: a recurrence gets its epilogue once
cat >"$tmp/memory.c" <<'END'
#include "SOURCE/examples/variants/recurrent.h"
static void memory_step(sn_scan_step *s) {
    sn_tensor f = sn_log_sigmoid(s->x[3]), in = s->x[4], m = sn_max(sn_add(f, s->carry[2]), in);
    sn_tensor keep = col(sn_exp(sn_sub(sn_add(f, s->carry[2]), m))), take = col(sn_exp(sn_sub(in, m)));
    s->next[0] = sn_add(sn_mul(col(keep), s->carry[0]), sn_mul(col(sn_mul(take, s->x[1])), row(s->x[2])));
    s->next[1] = sn_add(sn_mul(keep, s->carry[1]), sn_mul(take, s->x[1]));
    s->next[2] = m;
    sn_tensor n = sn_abs(sn_sum_keep(sn_mul(s->next[1], s->x[0]), -1));
    s->y[0] = sn_div(times_state(s->x[0], s->next[0]), sn_max(n, sn_exp(sn_neg(col(m)))));
}
static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor in = by_head(sn_nn_linear(x, "in", HEADS, SN_BIAS)), f = by_head(sn_nn_linear(x, "forget", HEADS, SN_BIAS));
    sn_tensor S = carry_of(s, "S", HEADS, HEAD, HEAD), n = carry_of(s, "n", HEADS, HEAD), m = carry_of(s, "m", HEADS);
    sn_scanned r = sn_scan(.carry = {S, n, m}, .x = {p.q, p.k, p.v, f, in}, .axis = 2, .body = memory_step);
    if (s->capacity) { sn_assign(S, r.carry[0]); sn_assign(n, r.carry[1]); sn_assign(m, r.carry[2]); }
    return gated_output(r.y[0], x);
}
SN_MODEL(m, o) { small_model(m, o, &(small){.attend = attend}); }
END
sed -i "s:SOURCE:$(cd "$source" && pwd):" "$tmp/memory.c"
run 0 explain "$tmp/memory.c" --training
prints 'recurrence '

# strict fusion, and lines that it lets pass
loop="$source/tests/variants/recurrent/slstm.c"
refused 1 'slstm.c:22: not fused (strict)' explain "$loop" --strict
run 0 explain "$loop" --strict --accept slstm.c:22
refused 2 "accept 'slstm.c:6': no line of this name" explain "$loop" --strict --accept slstm.c:6
refused 2 'accept without strict fusion' explain "$model" --accept model.c:1

# the README shows what the command prints
run 0 explain "$source/examples/variants/alibi.c" --entry forward
grep -qF "$(grep '^entry forward' "$tmp/out")" "$source/README.md" || fail 'README.md shows another explanation'

echo "$cases runs, $failures failures"
[ $failures = 0 ]
