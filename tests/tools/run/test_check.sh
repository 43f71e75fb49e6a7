#!/bin/sh
# test_check.sh SINTER SOURCE_DIR: sinter check and sinter call, and bench of models without tokens.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C.UTF-8
unset SINTER_DEBUG
. "$source/tests/tools/cli_run.sh"

cat >"$tmp/plain.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim N = sn_symbol(m, "N", 1, 128);
    sn_tensor x = sn_input(m, "features", SN_F32, N, 4), ids = sn_input(m, "ids", SN_I32, N);
    sn_entry_begin(m, "double");
    sn_tensor y = sn_add(x, sn_mul(x, sn_input(m, "factor", SN_F32, SN_SCALAR)));
    sn_output("y", sn_add(y, sn_param(m, "bias", SN_F32, 4)));
    sn_output("row", sn_nn_embedding(ids, "table", 5, 2));
}
END
# all kinds of checks hold; a row for results and one for gradients
run 0 check "$tmp/plain.c" --levels 0,4
prints '^double  *results  *[0-9.e+-]*  *[0-9.e+-]*  *same bits'
prints '^double  *gradients .*[0-9]e-[0-9]*$'
prints '^7 checks, 0 failed$'
run 0 run "$tmp/plain.c" check --levels 4 --no-gradients --no-threads --sizes N=3 --json
prints '^{"entry": "double", "of": "results", "check": "level 4", "error": [0-9.e-]*, "limit": [0-9.e-]*, "holds": true}$'
# products of bf16 err by more than those of f32; f64 has none
cat >"$tmp/product.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    for (int t = SN_F32; t <= SN_F64; t++) {
        sn_tensor x = sn_input(m, "x", (sn_dtype)t, 5, 70);
        sn_entry_begin(m, t == SN_F32 ? "single" : "double");
        sn_output("y", sn_matmul(x, sn_transpose(x, 1, 0)));
    }
}
END
run 0 check "$tmp/product.c" --compute bf16 --no-gradients --levels 0,4
prints '^single  *results  *[0-9.]*e-0[34]  *[0-9.]*e-0[34]  *same bits'
prints '^double  *results  *[0-9.]*e[-+][01][0-9]  *[0-9.]*e[-+][01][0-9]  *same bits'
run 0 check "$tmp/product.c" --compute bf16-unordered --no-gradients --levels 4
prints '^single  *results  *[0-9.]*e-0[34]  *same bits'
refused 2 "no input or parameter 'nobody'; its inputs: features, ids, factor$" check "$tmp/plain.c" --levels 4 -i nobody=1
refused 2 "there is no entry 'none'" check "$tmp/plain.c" --entry none

# what is wrong is found: a decode that adds 0.01, an operation without a gradient
cat >"$tmp/wrong.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_tensor all = sn_input(m, "x", SN_F32, 1, T, 3);
    sn_entry_begin(m, "forward");
    sn_output("y", sn_update_rows(all, 1, sn_slice(all, 1, 0, 1), sn_full(m, SN_I32, 0, 1)));
    sn_entry_begin(m, "decode");
    sn_output("y", sn_add(all, sn_mul(WRONG, sn_tanh(all))));
}
END
for wrong in 0 0.01; do
    sed "s/WRONG/$wrong/" "$tmp/wrong.c" >"$tmp/wrong$wrong.c"
    run $([ $wrong = 0 ]; echo $?) check "$tmp/wrong$wrong.c" --levels 4 --no-gradients --no-threads
done
prints "^FAILED: decode, results, forward: error .*'y' of token [0-9]* of 64 differs by 0.0"
run 1 check "$tmp/wrong0.c" --entry forward --levels 4 --no-threads
prints "^FAILED: forward, gradients, differences: .*gradient of 'x': slope 0"

# a decode that goes wrong after a number of tokens: past the default length, which grows with what positions are compared with
cat >"$tmp/late.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim T = sn_symbol(m, "T", 1, 2048), P = sn_symbol(m, "P", 0, 2047);
    sn_entry_begin(m, "forward");
    sn_output("y", sn_input(m, "x", SN_F32, 1, T, 3));
    sn_entry_begin(m, "decode");
    sn_tensor late = sn_cast(sn_ge(sn_add(sn_arange(m, SN_I32, 1), P), LATE), SN_F32);
    sn_output("y", sn_add(sn_input(m, "x", SN_F32, 1, 1, 3), sn_mul(late, 0.01)));
}
END
for late in 40 700; do
    sed "s/LATE/$late/" "$tmp/late.c" >"$tmp/late$late.c"
    run 1 check "$tmp/late$late.c" --levels 4 --no-gradients --no-threads
    prints "^FAILED: decode, results, forward: error .*'y' of token [0-9]* of $([ $late = 40 ] && echo 256 || echo 764) differs by 0.01"
done
run 0 check "$tmp/late40.c" --levels 4 --no-gradients --no-threads --sizes T=40
prints '^decoding was compared over 40 tokens$'
run 1 check "$tmp/late40.c" --levels 4 --no-gradients --no-threads --sizes T=2,P=40
run 1 check "$tmp/late40.c" --levels 4 --no-gradients --no-threads --sizes T=41 --json
prints '"holds": false, "tokens": 41'

# NaN shows nothing, on both sides either
cat >"$tmp/nan.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_entry_begin(m, "forward");
    sn_output("y", sn_log(sn_sub(sn_input(m, "x", SN_F32, 4), 9)));
}
END
run 1 check "$tmp/nan.c" --levels 0,4 --no-gradients --no-threads
prints "^FAILED: forward, results, level 0: error inf, .*'y', element 0 of 4: NaN, in the evaluator too"
prints '^2 checks, 2 failed$'
run 1 check "$tmp/nan.c" --levels 0 --no-threads
prints "gradient of 'x': slope [-.0-9a-z]*, difference nan "
run 0 check "$tmp/nan.c" --levels 0,4 --no-gradients --no-threads --allow-nan
run 0 call "$tmp/nan.c"
prints '^y \[4\] mean nan, deviation nan, min nan, max nan$'
run 0 call "$tmp/nan.c" -i x=9.5..10
prints '^y \[4\] mean -[0-9.]*, deviation'
run 0 bench model "$tmp/nan.c" --levels 4 --rounds 5 --seconds 0.0001
prints '  inf'

# every command opens a folder as strictly as generate does: here with a layer more than its config has
run 0 import "$source/examples/models/stories260K/stories260K.bin" -o "$tmp/strict"
sed -i 's/"num_hidden_layers":.5/"num_hidden_layers": 4/' "$tmp/strict/config.json"
for command in "call --sizes T=4" check explain "report -o $tmp/r.html" "bench compare --tokens 4" "bench model --tokens 4" generate "eval $tmp/nan.c"; do
    # shellcheck disable=SC2086
    set -- $command
    [ "$1" = bench ] && one="$1 $2" && shift 2 || one=$1 && [ "$one" = "$1" ] && shift
    # shellcheck disable=SC2086
    refused 1 'llama models have no parameters for 9 of the tensors (model.layers.4' $one "$tmp/strict" "$@"
done

# gradients of any number of entries; an input that the program need not read; arrays of an archive that others read
cat >"$tmp/many.c" <<'END'
#include <sinter/models.h>
static void step(sn_scan_step *s) { s->y[0] = s->next[0] = sn_add(s->carry[0], s->x[0]); }
SN_MODEL(m, o) {
    (void)o;
    sn_tensor x = sn_input(m, "x", SN_F32, 3), k = sn_input(m, "k", SN_F32, 3);
    char name[] = "an_entry_with_a_long_name_a";
    for (; name[26] < 'r'; name[26]++) {
        sn_entry_begin(m, name);
        if (name[26] == 'a') sn_output("y", sn_scan(.carry = {sn_scalar(m, SN_F32, 0)}, .x = {x, k}, .body = step).y[0]);
        else sn_output("y", name[26] == 'b' ? sn_add(x, k) : x);
    }
}
END
run 0 check "$tmp/many.c" --levels 4 --no-threads
prints '^an_entry_with_a_long_name_a gradients  *[0-9.e+-]*  *[0-9.e+-]*$'
prints '^an_entry_with_a_long_name_q gradients '
sed 's/else sn_output("y"/else sn_output("k", k), sn_output("x"/; s/else /else { /; s/: x);/: x); }/' "$tmp/many.c" >"$tmp/both.c"
run 0 call "$tmp/both.c" --entry an_entry_with_a_long_name_b -i x=1 -i k=2 -o "$tmp/all.npz"
run 0 call "$tmp/many.c" --entry an_entry_with_a_long_name_c -i "$tmp/all.npz"
prints '^y \[3\] mean 3'
says "'k' of the archive is not read: only entry 'an_entry_with_a_long_name_a' does"
refused 2 "entry 'an_entry_with_a_long_name_a' does: --entry an" call "$tmp/many.c" --entry an_entry_with_a_long_name_c -i k=1

# call: arrays of any name in and out; y = 2 x + bias
run 0 run "$tmp/plain.c" -i features=-3..3 -i factor=1 -i bias=0 -i ids=2 --sizes N=6 -o "$tmp/a.npz" --gradient all --loss y
prints '^y \[6,4\] mean'
prints '^gradient.features \[6,4\] mean 2, deviation 0,'
prints '^gradient.bias \[4\] mean 6, deviation 0,'
run 0 call "$tmp/plain.c" -i "features=$tmp/a.npz:y" -i factor=0 -i bias=0 -i ids=2 -o "$tmp/b"
[ "$(ls "$tmp/b")" = "row.npy
y.npy" ] || fail "files $(ls "$tmp/b")"
run 0 call "$tmp/plain.c" -i "features=$tmp/b/y.npy" -i factor=0 -i bias=0 -i ids=2 -o "$tmp/c"
cmp -s "$tmp/b/y.npy" "$tmp/c/y.npy" || fail "an array changed on its way through files"
refused 1 "'features' is f32\[6,4\], but f32\[6,2\] is given" call "$tmp/plain.c" -i "features=$tmp/b/row.npy"
refused 1 "element 0 of 'ids' is 7, outside 0..4" call "$tmp/plain.c" -i ids=7
# a tensor that the file lacks is not made up
header='{"bias":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s1234567890123456" "$header" >"$tmp/part.safetensors"
refused 1 'tensor "table.weight" is missing in the weights' call "$tmp/plain.c" --checkpoint "$tmp/part.safetensors" -i ids=1
run 0 call "$tmp/plain.c" --checkpoint "$tmp/part.safetensors" -i ids=1 -i table.weight=random
refused 1 'has no array' call "$tmp/plain.c" -i "features=$tmp/a.npz:z"
refused 2 'write NAME=FILE.npy' call "$tmp/plain.c" -i features
refused 2 "gives 'ids' twice" call "$tmp/plain.c" -i ids=1 -i ids=2

# names that are nearly right; numbers that an integer cannot hold
refused 2 "no input or parameter 'table.wieght'; did you mean 'table.weight'?; its inputs: features, ids" call "$tmp/plain.c" -i table.wieght=1
refused 2 "did you mean 'features'?" call "$tmp/plain.c" --gradient featrues
refused 2 "'y' in entry 'double'; there are features, factor, bias" call "$tmp/plain.c" --gradient y
refused 1 "'ids' is i32, which cannot hold 1.5" call "$tmp/plain.c" -i ids=1.5
refused 1 "'ids' is i32, which cannot hold 3e+09" call "$tmp/plain.c" -i ids=0..3e9
# sizes follow from arrays, also where an axis is more than a symbol; two arrays may disagree
cat >"$tmp/chunks.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim C = sn_symbol(m, "C", 1, 128), N = sn_symbol(m, "N", 1, 128);
    sn_entry_begin(m, "forward");
    sn_output("y", sn_neg(sn_input(m, "x", SN_F32, sn_dim_mul(m, C, 16), N)));
    sn_output("z", sn_neg(sn_input(m, "z", SN_F32, N)));
    sn_output("top", sn_top_k(sn_input(m, "w", SN_F32, N), 3, NULL));
}
END
run 0 call "$tmp/chunks.c" --sizes C=3,N=5 -o "$tmp/five.npz"
prints '^y \[48,5\]'
run 0 call "$tmp/chunks.c" -i "x=$tmp/five.npz:y"
prints '^y \[48,5\]'
prints '^z \[5\]'
run 0 call "$tmp/chunks.c" --sizes C=1,N=7 -o "$tmp/seven.npz"
refused 1 "arrays disagree about N: 'x' says 5, but axis 0 of 'z' says 7" call "$tmp/chunks.c" -i "x=$tmp/five.npz:y" -i "z=$tmp/seven.npz:z"
run 0 call "$tmp/plain.c" --sizes N=17 -o "$tmp/odd.npz"
refused 1 "axis 0 of 'x' is 16\*C, which is 17 for no C in 1..128" call "$tmp/chunks.c" -i "x=$tmp/odd.npz:y"
refused 1 'top_k (chunks.c:8): the end 3 exceeds N = 2' call "$tmp/chunks.c" --sizes N=2
says 'sizes of the run: C=13,N=2; --sizes sets'

# bits: what only changes signs is the same everywhere, products have an order for each kind of vectors
run 0 check "$tmp/chunks.c" --invariant --levels 0,4 --sizes C=3,N=5
prints '^forward  *results  *equal  *equal  *equal'
prints ' 0 failed$'
if grep -q differs "$tmp/out"; then fail "bits differ: $what"; fi
run 0 check "$tmp/product.c" --invariant --levels 4 --entry single
prints '^single  *results  *equal  *equal'
if [ "$(uname -m)" = x86_64 ]; then prints "^differs: single, results, x86-64-v2: 'y', element .* for x86-64-v2"; fi
refused 2 'exact and --invariant: give one of them' check "$tmp/plain.c" --exact --invariant

# bench: sizes of any name
run 0 bench model "$tmp/plain.c" --sizes N=7 --levels 4 --rounds 5 --seconds 0.0001
prints '^plain double  *N=7 '
# the kernels of a comparison are those of the entry that was measured
run 0 bench compare "$tmp/plain.c" --sizes N=7 --levels 0,4 --rounds 5 --seconds 0.0001
prints '^kernels of the levels, entry double (N=7)'
# a folder with a config only is measured with random weights; its kernels cannot be listed
mkdir "$tmp/config"
cp "$tmp/strict/config.json" "$tmp/config"
run 0 bench compare "$tmp/config" --tokens 4 --levels 0,4 --rounds 5 --seconds 0.0001
says 'config has no weights, so its kernels are not listed'
echo "$cases runs, $failures failures"
[ $failures = 0 ]
