#!/bin/bash
# allocations.sh SINTER SOURCE_DIR FAILING_MALLOC [STEP]: makes every STEP-th allocation of whole commands fail, one per run.
# Each run must end with the right result or with an error message: no signal, no hang, no silent loss.
sinter=$1 source=$2 shim=$3 step=${4:-7}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=$tmp/cache LC_ALL=C FAIL_LIBS=cjson
stories=$source/examples/models/stories260K/stories260K.bin
times='/^\(seconds\|gflops\|tokens_per_s\) /d' # what training prints of its speed
runs=0 bad=0

# sweep NAME RESULT COMMAND…: RESULT is a shell command that prints the output files of COMMAND
sweep() {
    name=$1 result=$2
    shift 2
    rm -rf "$tmp/out"
    "$@" >"$tmp/want" 2>/dev/null || { echo "$name does not run"; exit 1; }
    sed -i "$times" "$tmp/want"
    eval "$result" >>"$tmp/want"
    rm -rf "$tmp/out"
    FAIL_COUNT=$tmp/count LD_PRELOAD=$shim "$@" >/dev/null 2>&1
    total=$(cat "$tmp/count") failed=0 same=0
    for mode in one from; do
        n=1
        while [ "$n" -le "$total" ]; do
            rm -rf "$tmp/out"
            if [ $mode = from ]; then export FAIL_FROM=1; else unset FAIL_FROM; fi
            FAIL_AT=$n LD_PRELOAD=$shim timeout 60 "$@" >"$tmp/got" 2>"$tmp/err"
            code=$?
            runs=$((runs + 1))
            if [ $code = 0 ]; then
                sed -i "$times" "$tmp/got"
                eval "$result" >>"$tmp/got"
                same=$((same + 1))
                cmp -s "$tmp/want" "$tmp/got" || { bad=$((bad + 1)); echo "$name: allocation $n ($mode): success with another result"; }
            elif [ $code -gt 2 ]; then
                bad=$((bad + 1)); echo "$name: allocation $n ($mode): exit code $code: $(tail -1 "$tmp/err")"
            elif ! grep -qi memory "$tmp/err"; then
                bad=$((bad + 1)); echo "$name: allocation $n ($mode): not called a lack of memory: $(tail -1 "$tmp/err")"
            else
                failed=$((failed + 1))
            fi
            n=$((n + step))
            [ $mode = one ] || n=$((n + 9 * step))
        done
    done
    echo "$name: $total allocations, $failed errors, $same right results"
}

sweep generate true "$sinter" generate "$stories" -n 3 --temperature 0 -t 1
sweep import 'cat "$tmp"/out/*' "$sinter" import "$stories" -o "$tmp/out" --force
cat >"$tmp/train.json" <<'J'
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_head": 2, "n_layer": 1},
 "tokenizer": {"kind": "char"}, "training": {"steps": 2, "batch": 2, "block": 8}}
J
head -c 4000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
rm -rf "$tmp/out" # train refuses a folder that holds a model
if "$sinter" train "$tmp/train.json" --text "$tmp/text" -o "$tmp/out" -t 1 >/dev/null 2>"$tmp/err"; then
    sweep train 'cat "$tmp"/out/*.safetensors' "$sinter" train "$tmp/train.json" --text "$tmp/text" -o "$tmp/out" -t 1
else
    bad=$((bad + 1)); echo "train does not run: $(cat "$tmp/err")"
fi
sweep compile 'cat "$tmp"/out/*' "$sinter" compile "$stories" --name m -o "$tmp/out"
echo "$runs runs, $bad wrong"
[ $bad = 0 ]
