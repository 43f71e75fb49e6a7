#!/bin/sh
# test_cli_quantize.sh SINTER SOURCE_DIR: sinter quantize, and what other commands make of its folders.
sinter=$1 stories=$2/examples/models/stories260K/stories260K.bin
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG
. "$2/tests/tools/cli_run.sh"

# value NAME: of a line of eval's output
value() { sed -n "s/^$1 *//p" "$tmp/out"; }
# differs A B PART: whether |A / B - 1| > PART
differs() { awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { d = a / b - 1; exit !(d > p || d < -p) }'; }

run 0 import "$stories" -o "$tmp/model"
echo '{"note": 1}' >"$tmp/model/generation_config.json"
for seed in 1 2 3; do "$sinter" generate "$tmp/model" -n 400 --seed $seed >>"$tmp/text" || fail generate; done
run 0 eval "$tmp/model" "$tmp/text" --weights f32
loss=$(value loss)
run 0 inspect "$tmp/model" -p "One day" --tap lm_head -o "$tmp/before.npy"

# links may lead out of a folder that somebody else made; those of a hub cache lead to its blobs
mkdir -p "$tmp/cache/snapshots" "$tmp/cache/blobs" "$tmp/secret" "$tmp/model/sub"
mv "$tmp/model" "$tmp/cache/snapshots/1"
ln -s cache/snapshots/1 "$tmp/model"
echo secret >"$tmp/secret/key"
echo blob >"$tmp/cache/blobs/b"
ln -s ../../../secret "$tmp/model/assets"
ln -s ../../../../secret/key "$tmp/model/sub/notes.txt"
ln -s ../../../blobs/b "$tmp/model/sub/blob.txt"
ln -s /etc/passwd "$tmp/model/README.txt"

# int8: results in f32 stay the same to the last bit
run 0 quantize "$tmp/model" --text "$tmp/text" -o "$tmp/int8" --tokens 256
prints 'tokens to calibrate' && prints 'layers.0.mlp.down_proj  *smooth' && prints 'alone  *perplexity'
says "wrote .*int8 ("
says 'note: not copied, .*/README.txt' && says '/sub/notes.txt' && says '/assets'
[ -e "$tmp/int8/assets" ] || [ -e "$tmp/int8/sub/notes.txt" ] || [ -e "$tmp/int8/README.txt" ] && fail 'links were followed'
[ "$(cat "$tmp/int8/sub/blob.txt")" = blob ] || fail 'the blob was not copied'
rm "$tmp/model/assets" "$tmp/model/sub/notes.txt" "$tmp/model/README.txt"
[ -e "$tmp/int8.tmp" ] && fail 'the staged folder is left'
cmp -s "$tmp/model/tokenizer.bin" "$tmp/int8/tokenizer.bin" || fail 'tokenizer'
cmp "$tmp/model/generation_config.json" "$tmp/int8/generation_config.json" || fail 'generation_config.json'
cmp -s "$tmp/model/model.safetensors" "$tmp/int8/model.safetensors" && fail 'nothing was smoothed'
run 0 inspect "$tmp/int8"
prints 'quantised   weights int8, compute int8, '
run 0 inspect "$tmp/int8" --weights f32 -p "One day" --tap lm_head -o "$tmp/after.npy"
cmp "$tmp/before.npy" "$tmp/after.npy" || fail 'smoothing changes results in f32'
run 0 eval "$tmp/int8" "$tmp/text"
differs "$(value loss)" "$loss" 0.01 && fail 'the loss in int8'
cp "$tmp/out" "$tmp/recorded"
# what is recorded holds unless an option says otherwise
for compute in int8 stored auto; do
    run 0 eval "$tmp/int8" "$tmp/text" --compute $compute
    same "$tmp/recorded"
done
run 0 eval "$tmp/int8" "$tmp/text" --compute f32
cmp -s "$tmp/out" "$tmp/recorded" && fail '--compute f32 has no effect'
run 0 eval "$tmp/int8" "$tmp/text" --weights f32
[ "$(value loss)" = "$loss" ] || fail 'the loss with --weights f32'

# int4: the folder's numbers are the integers that weights int4 find, so f32 gives the same results
run 0 quantize "$tmp/model" --text "$tmp/text" -o "$tmp/int4" --tokens 256 --weights int4 --max-loss 20% --quick
prints 'self_attn.q_proj.weight  *int4   error' && prints 'perplexity .* with int4 (at most 20 %)'
run 0 inspect "$tmp/int4" --tensors
prints 'quantised   weights int4, 0 matrices'
run 0 explain "$tmp/int4"
prints 'weights: int4 in groups of 32'
run 0 eval "$tmp/int4" "$tmp/text"
small=$(value loss)
differs "$small" "$loss" 0.15 && fail 'the loss in int4'
run 0 eval "$tmp/int4" "$tmp/text" --weights int8
run 0 eval "$tmp/int4" "$tmp/text" --weights f32
differs "$small" "$(value loss)" 0.005 && fail 'weights f32 and int4 of the same folder'
ln -s "$(command -v cc)" "$tmp/the user's cc" # a name is not read by a shell
run 0 compile "$tmp/int4" -o "$tmp/artefact" --name q --exe --level 1 --cc "$tmp/the user's cc"
ldd "$tmp/artefact/q" 2>/dev/null | grep -q pcre2 && [ -e "$(cc -print-file-name=libpcre2-8.a)" ] && fail 'not linked with archives'
run 0 generate "$tmp/int4" -p "One day" -n 8 --temperature 0 --level 1
cp "$tmp/out" "$tmp/continued"
"$tmp/artefact/q" -p "One day" -n 8 --temperature 0 >"$tmp/out" 2>"$tmp/err"
same "$tmp/continued"

# refusals: nothing is written
run 2 quantize "$tmp/model" -o "$tmp/none"
says 'give the calibration text: --text FILE'
run 2 quantize "$tmp/model" --text "$tmp/text"
says 'give the output folder: -o DIR'
run 2 quantize "$tmp/model" --text "$tmp/text" -o "$tmp/int8"
says 'contains a quantised model: choose another folder, or replace it with --force'
run 2 quantize "$tmp/model" --text "$tmp/text" -o "$tmp/model" --force
says 'not a folder that sinter quantize wrote'
run 2 quantize "$tmp/model" --text "$tmp/text" -o "$tmp/none" --max-loss much
says 'give percent, such as 0.5%'
run 2 quantize "$tmp/model" --text "$tmp/text" --target "$tmp/text" -o "$tmp/none"
says 'is for encoder-decoders'
run 1 quantize "$tmp/model" --text "$tmp/missing" -o "$tmp/none"
echo word >"$tmp/short"
run 2 quantize "$tmp/model" --text "$tmp/short" -o "$tmp/none"
says 'the text has only'
run 2 train "$2/examples/train/shakespeare.json" -o "$tmp/none" --compute int8
says 'training computes in f32'
[ -e "$tmp/none" ] || [ -e "$tmp/none.tmp" ] && fail 'a refusal wrote something'
mkdir "$tmp/busy.tmp"
flock "$tmp/busy.tmp" "$sinter" quantize "$tmp/model" --text "$tmp/text" -o "$tmp/busy" >"$tmp/out" 2>"$tmp/err"
says 'another process is writing this folder'
sed 's/"int4"/"int3"/' "$tmp/int4/config.json" >"$tmp/config" && cp "$tmp/config" "$tmp/int4/config.json"
run 1 eval "$tmp/int4" "$tmp/text"
says '"weights" is "int3"; allowed'

# a signal ends it without a trace; --force replaces a quantised folder
"$sinter" quantize "$tmp/model" --text "$tmp/text" -o "$tmp/stopped" >"$tmp/out" 2>"$tmp/err" &
pid=$!
while ! grep -q 'to calibrate' "$tmp/out" && kill -0 $pid 2>/dev/null; do sleep 0.05; done
kill -TERM $pid
wait $pid
[ $? = 143 ] || fail 'the exit code of a stopped run'
says 'interrupted: nothing was written'
[ -e "$tmp/stopped" ] || [ -e "$tmp/stopped.tmp" ] && fail 'a stopped run left something'
run 0 quantize "$tmp/model" --text "$tmp/text" -o "$tmp/int4" --tokens 256 --no-smooth --quick --force --json
prints '^{"output": ".*int4", "weights": "int8", "tokens": [0-9]*, .*"measure": "perplexity", "lost": .*"kept": \[.*\]}$'
[ "$(wc -l <"$tmp/out")" = 1 ] || fail "more than the result with --json"
run 0 inspect "$tmp/int4"
prints 'quantised   weights int8'
[ -e "$tmp/int4.tmp" ] && fail 'the old folder is left'

# encoder-decoders are measured by their greedy tokens, which stay the same
if [ -n "${SN_TEST_LONG-}" ]; then
    run 0 import "$2/examples/models/aren-transliteration/model.bin" -o "$tmp/pairs"
    printf '%s\n' محمد أحمد فاطمة سعيد خالد ياسر كريم جميل حسن حسين سليم عمر علي زينب مريم يوسف لندن باريس روما برلين >"$tmp/source"
    "$sinter" translate "$tmp/pairs" -f "$tmp/source" >"$tmp/target" || fail translate
    run 0 quantize "$tmp/pairs" --text "$tmp/source" --target "$tmp/target" -o "$tmp/pairs8"
    prints 'alone  *greedy tokens' && prints '^greedy tokens .* with int8 (at most 0.05 %)'
    run 0 translate "$tmp/pairs8" -f "$tmp/source"
    same "$tmp/target"
fi

echo "$cases runs, $failures failures"
[ $failures = 0 ]
