#!/bin/sh
# test_invariant.sh SINTER SOURCE_DIR: sn_options.invariant makes bits independent of what it names. With SN_TEST_LONG
# set, of all variants that decode.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C.UTF-8
unset SINTER_DEBUG
. "$source/tests/tools/cli_run.sh"

# The keys of few heads are split among threads, by the number of heads of all rows.
cat >"$tmp/step.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim B = sn_symbol(m, "B", 1, 8), N = sn_symbol(m, "N", 1, 4096);
    sn_entry_begin(m, "step");
    sn_tensor q = sn_input(m, "q", SN_F32, B, 1, 1, 16), k = sn_input(m, "k", SN_F32, B, 1, N, 16);
    sn_output("y", sn_attention(q, k, sn_input(m, "v", SN_F32, B, 1, N, 16)));
}
END
run 0 check "$tmp/step.c" --invariant --levels 4 --sizes N=2048
prints "^differs: step, results, batch: 'y', row "
run 0 check "$tmp/step.c" --invariant=batch --levels 4 --sizes N=2048
prints '^step  *results  *equal  *equal  *equal'

# Heads that mix; a recurrence; attention with running sums: decoding and all at once, and tokens behind.
# Their entries add a state to a sum over the elements of a call, or compress blocks that end in another call.
except=" heavily_compressed_attention mamba3 mamba3_mimo mlstm path_attention prefix_lm "
some="talking_heads gated_linear_attention forgetting_transformer"
[ -z "$SN_TEST_LONG" ] || some=$(cd "$source/examples/variants" && ls ./*.c | sed 's|^./||; s|\.c$||')
decoded=0
for name in $some; do
    expected=0
    case $except in *" $name "*) expected=1 ;; esac
    run $expected check "$source/examples/variants/$name.c" --invariant=chunk --levels 4
    if grep -q '^decode' "$tmp/out"; then decoded=$((decoded + 1)); fi
    [ $expected = 0 ] || prints '^differs: decode, results, chunk'
done
[ $decoded -ge 3 ] || fail "$decoded models decode"

refused 2 "invariant 'bits': choose batch, chunk or batch,chunk" check "$tmp/step.c" --invariant=bits
refused 2 "invariant 'chunk' below level 3" generate --preset gpt2 --invariant chunk --level 2
refused 2 "invariant with backend 'onednn'" generate --preset gpt2 --invariant batch --backend onednn

echo "$cases cases, $failures failed"
[ $failures = 0 ]
