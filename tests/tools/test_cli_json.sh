#!/bin/sh
# test_cli_json.sh SINTER SOURCE_DIR PYTHON: with --json, each command prints the objects that its help documents.
sinter=$1 source=$2 python=$3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C.UTF-8
unset SINTER_DEBUG
. "$source/tests/tools/cli_run.sh"
stories=$source/examples/models/stories260K/stories260K.bin
variant=$source/examples/variants/alibi.c

# json LINES COMMAND ARGS…: the output has this many lines (0: any number); its keys are compared at the end
json() {
    lines=$1
    shift
    run 0 "$@" --json
    [ -s "$tmp/keys/$1.help" ] || "$sinter" "$1" --help >"$tmp/keys/$1.help"
    { echo "$*" && cat "$tmp/out"; } >"$tmp/keys/$1.$cases"
    [ "$lines" = 0 ] || [ "$(wc -l <"$tmp/out")" = "$lines" ] || fail "$lines lines: $what"
}
mkdir "$tmp/keys"

head -c 3000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
printf '5 6 7\n5 6 8 9 10\n' >"$tmp/ids"
json 1 version
json 1 env
json 0 models
json 1 import "$stories" -o "$tmp/m"
json 0 import --list-formats
json 1 generate "$tmp/m" -p 'Once upon' -n 4 --temperature 0
prints '"text": " a time, there"'
printf 'Once\nThe "cat"\n' >"$tmp/prompts"
json 2 generate "$tmp/m" -f "$tmp/prompts" --batch 2 -n 3
prints '"prompt": "The ..cat.."'
json 1 generate "$tmp/m" -p Once -n 3 --beams 2
prints '"end": "search"'
json 1 generate "$tmp/m" -p Once -n 3 --best-of 2
json 1 eval "$tmp/m" "$tmp/text" --limit 200
prints '"complete": true'
loss=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$tmp/out")
json 1 eval "$tmp/m" "$tmp/text" --limit 200 --weights int4 # stored so, at a small loss
other=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$tmp/out")
awk "BEGIN { d = $other / $loss - 1; exit !(d != 0 && d < 0.2 && d > -0.2) }" || fail "loss $other, $loss in f32"
printf 'آتزمون\nآزا\n' >"$tmp/names"
json 2 translate "$source/examples/models/aren-transliteration/model.bin" -f "$tmp/names"
prints '"source": "آتزمون", "text": "atzmon"'
digits=$source/examples/data/mnist-1000
vit=$source/examples/models/mnist-vit/mnist_vit.npz
json 1000 classify "$vit" -i "$digits-images.idx3-ubyte"
json 1 classify "$vit" -i "$digits-images.idx3-ubyte" --labels "$digits-labels.idx1-ubyte"
prints '"right": 858'
json 1 fill --preset bert-tiny -p '5 9 1 7' --mask 9 -n 3
json 2 embed --preset bert-tiny -f "$tmp/ids"
printf '5 6 7\n5 6 8 9 10\n8 6 7\n' >"$tmp/three"
for batch in 1 32; do
    "$sinter" embed --preset bert-tiny -f "$tmp/three" --batch $batch --json >"$tmp/batch$batch" || fail "--batch $batch"
done
cmp -s "$tmp/batch1" "$tmp/batch32" || fail "embeddings depend on the batch"
json 2 embed --preset bert-tiny -f "$tmp/ids" -p '5 6 7'
json 2 embed --preset bert-tiny -f "$tmp/ids" --similarity
json 1 tokenizer train --kind word "$tmp/text" -o "$tmp/words"
{ echo encode && echo 'a b' | "$sinter" tokenizer encode "$tmp/m" --json; } >"$tmp/keys/tokenizer.encode"
{ echo decode && echo '1 403' | "$sinter" tokenizer decode "$tmp/m" --json; } >"$tmp/keys/tokenizer.decode"
cat >"$tmp/scale.c" <<'END'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_entry_begin(m, "scale");
    sn_output("y", sn_mul(sn_input(m, "x", SN_F32, 5), sn_param(m, "w", SN_F32, 5)));
}
END
json 1 check "$tmp/scale.c" --levels 4 --no-gradients --no-threads
json 5 check "$tmp/scale.c" --exact --no-gradients
json 10 check "$tmp/scale.c" --exact
grep -c '"verdict": "equal"' "$tmp/out" | grep -qx 10 || fail "check --exact: not equal"
json 2 call "$tmp/scale.c" --gradient w
json 1 cache
json 1 cache --clear tuned
json 1 inspect "$tmp/m"
json 1 inspect "$tmp/m" --tensors
json 0 inspect "$tmp/m" --taps
tap=$(sed -n 's/.*"name": "\([^"]*\)".*/\1/p' "$tmp/out" | head -1)
json 1 inspect "$tmp/m" --tap "$tap" -p Once
json 6 inspect "$tmp/m" --logit-lens -p Once
json 3 inspect "$tmp/m" --near time --top 3
json 1 inspect "$tmp/m" --attention 0 -p Once -o "$tmp/map.svg"
if command -v rsvg-convert >/dev/null; then
    json 1 inspect "$tmp/m" --attention 0 -p Once -o "$tmp/map.png"
    head -c 8 "$tmp/map.png" | grep -q PNG || fail "no PNG"
fi
what="a PNG without a converter" && cases=$((cases + 1))
PATH="$tmp/none" "$sinter" inspect "$tmp/m" -p Once --attention 0:0 -o "$tmp/two.png" >"$tmp/out" 2>"$tmp/err" && fail "exit code"
says 'a PNG needs rsvg-convert' && [ ! -e "$tmp/two.png" ] || fail "a file"
json 1 inspect "$variant"
json 1 compile "$variant" --name al -o "$tmp/made"
json 1 inspect "$tmp/made/al.o"
json 1 inspect "$tmp/made/al.weights"
prints '"checksum": true'
json 0 opt --list-passes
json 1 opt "$(ls "$source"/tests/passes/text/*.sn | head -1)"
cat >"$tmp/run.json" <<'END'
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
 "data": {"text": "text"}, "training": {"steps": 20, "batch": 4, "block": 16, "validate_every": 10}}
END
json 0 train "$tmp/run.json" -o "$tmp/trained"
prints '"step": 20' && prints '^{"steps": 20'
json 1 plan "$tmp/run.json" --ranks 1,2,8 --per-machine 2 -t 1 --net 1Gbit,50us --plot "$tmp/plan.svg"
prints '"speed": "step"' && prints '"ranks": 8, "machines": 4, "batch": 8'
grep -q '^</svg>' "$tmp/plan.svg" || fail "no picture"
json 1 plan "$tmp/run.json" --ranks 2 --speed roofline --zero 3
prints '"speed": "roofline"' && prints '"memory_mb": 0.165288, "sent_mb": 0.047856,'
if [ "$SN_TEST_LONG" ]; then json 1 plan "$tmp/run.json" --ranks 2 --speed roofline --tensor 2; fi
refused 2 'cannot be divided into groups' plan "$tmp/run.json" --ranks 3 --tensor 2
refused 2 'ascending numbers' plan "$tmp/run.json" --ranks 4,2
# each command that has --json is in this test
for command in $("$sinter" help | awk '/^  [a-z]+  / {print $1}'); do
    "$sinter" "$command" --help | grep -q '^json:' || continue
    case $command in
    answer | transcribe) continue ;; # their models are not shipped: test_text_heads, test_whisper
    quantize) continue ;;            # cli_quantize
    esac
    grep -q "^json [0-9]* $command" "$0" || fail "no test of $command --json"
done
# FILE options: - is standard output, which then holds nothing else
run 0 explain "$tmp/m" --entry decode --json -
{ echo "explain --json -" && tr -d '\n' <"$tmp/out" && echo; } >"$tmp/keys/any.explain"
run 0 bench kernel softmax --shape 4x16 --levels 4 --rounds 5 --seconds 0 --no-check --json -
{ echo "bench --json -" && cat "$tmp/out"; } >"$tmp/keys/any.bench"
run 0 inspect "$tmp/m" --attention 0 -p Once -o - -q
grep -q '^<svg' "$tmp/out" && says_nothing
# errors are plain text, whatever the output
refused 1 'cannot open' eval "$tmp/m" "$tmp/none" --json
"$python" "$source/tests/tools/json_keys.py" "$tmp/keys" || fail "what --json prints is not what the help says"

echo "$cases runs, $failures failures"
[ $failures = 0 ]
