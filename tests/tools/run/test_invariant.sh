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

# A running sum of many rows, attention in a loop, and weights of 4 bits, whose single row has a kernel of its own.
cat >"$tmp/more.c" <<'END'
#include <sinter/models.h>
static void step(sn_scan_step *s) {
    sn_tensor k = *(const sn_tensor *)s->user;
    s->next[0] = sn_add(sn_attention(s->carry[0], k, k), s->carry[0]);
}
SN_MODEL(m, o) {
    (void)o;
    sn_dim B = sn_symbol(m, "B", 1, 8), N = sn_symbol(m, "N", 1, 4096);
    sn_entry_begin(m, "sums");
    sn_output("y", sn_cumsum(sn_input(m, "x", SN_F32, B, N, 31), 1));
    sn_entry_begin(m, "loop");
    sn_tensor k = sn_input(m, "k", SN_F32, B, 1, N, 16), q = sn_input(m, "q", SN_F32, B, 1, 1, 16);
    sn_output("y", sn_scan(.carry = {q}, .count = 3, .body = step, .user = &k).carry[0]);
    sn_entry_begin(m, "map");
    sn_output("y", sn_nn_linear(sn_input(m, "rows", SN_F32, B, 256), "map", 128, 0));
}
END
for entry in sums loop; do
    [ -n "$SN_TEST_LONG" ] || continue
    run 0 check "$tmp/more.c" --entry $entry --invariant --levels 4 --sizes N=4096
    prints "^differs: $entry, results, batch: 'y', row "
done
for entry in sums loop; do
    run 0 check "$tmp/more.c" --entry $entry --invariant=batch --levels 4 --sizes N=4096
    prints "^$entry  *results  *equal  *equal  *equal"
    [ -n "$SN_TEST_LONG" ] || break
done
run 0 check "$tmp/more.c" --entry map --invariant --levels 4 --weights int4
prints "^differs: map, results, batch: 'y', row "
run 0 check "$tmp/more.c" --entry map --invariant=batch --levels 4 --weights int4
prints '^map  *results  *equal  *equal  *equal'
refused 2 '--weights and --compute int8 need --invariant' check "$tmp/more.c" --weights int4
refused 2 '--weights and --compute int8 need --invariant' check "$tmp/more.c" --compute int8

# Heads that mix, decoded and all at once, and with tokens behind; the long run has all variants.
# Their entries add a state to a sum over the elements of a call, or compress blocks that end in another call.
except=" heavily_compressed_attention mamba3 mamba3_mimo mlstm path_attention prefix_lm "
some=talking_heads
[ -z "$SN_TEST_LONG" ] || some=$(cd "$source/examples/variants" && ls ./*.c | sed 's|^./||; s|\.c$||')
decoded=0
for name in $some; do
    expected=0
    case $except in *" $name "*) expected=1 ;; esac
    run $expected check "$source/examples/variants/$name.c" --invariant=chunk --levels 4
    if grep -q '^decode' "$tmp/out"; then decoded=$((decoded + 1)); fi
    [ $expected = 0 ] || prints '^differs: decode, results, chunk'
done
[ $decoded -ge 1 ] || fail "$decoded models decode"

# The header of an artefact says what it was compiled to keep.
run 0 compile "$tmp/step.c" --invariant chunk -o "$tmp/artefact" --name few
grep -q '^#define FEW_INVARIANT "session,threads,batch,chunk"$' "$tmp/artefact/few.h" || fail "header: $what"

refused 2 "invariant 'bits': choose batch, chunk or batch,chunk" check "$tmp/step.c" --invariant=bits
refused 2 "invariant 'batch,': choose batch, chunk or batch,chunk" generate --preset gpt2 --invariant batch,
refused 2 "invariant without the pass" generate --preset gpt2 --invariant batch --off invariant
refused 2 "invariant 'chunk' below level 3" generate --preset gpt2 --invariant chunk --level 2
refused 2 "invariant with compute 'bf16-unordered'" check "$tmp/step.c" --invariant=batch --compute bf16-unordered
refused 2 "invariant with backend 'onednn'" generate --preset gpt2 --invariant batch --backend onednn

echo "$cases cases, $failures failed"
[ $failures = 0 ]
