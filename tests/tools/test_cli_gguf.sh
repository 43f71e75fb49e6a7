#!/bin/sh
# test_cli_gguf.sh SINTER SOURCE_DIR: commands with a GGUF file in place of a model folder.
sinter=$1 data=$2/tests/data/gguf
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG
. "$2/tests/tools/cli_run.sh"

run 0 inspect "$data/llama.gguf" --tensors
prints 'llama: 2 layers' && prints 'llama-bpe, 299 tokens' && prints 'llama.rope.freq_base  *10000'
prints 'layers.0.mlp.down_proj.weight  *Q4_K  \[32,256\] 4608'
run 0 inspect "$data/formats.gguf"
prints 'cannot run: .*the architecture is "none"' && prints 'Q6_K'
run 1 generate "$tmp/missing.gguf" -p a
says 'missing.gguf: cannot open the file: No such file or directory'
run 0 explain "$data/llama.gguf" --entry decode
prints ' model.layers.0.self_attn.q_proj  ' && prints 'weights: int4 in groups of 32'
grep -q '@' "$tmp/out" && fail 'names of stored tensors'
run 0 eval "$data/llama.gguf" "$data/llama.json" --level 1
run 0 generate "$data/gpt2.gguf" -p "the cat" -n 4 --level 1
cp "$tmp/out" "$tmp/text"
run 0 generate "$data/qwen2.gguf" --chat -p "the" -n 2 --level 1 --temperature 0
run 1 generate "$data/gpt2.gguf" --chat -p "the" -n 2 --level 1
says 'tokenizer.chat_template'
run 0 compile "$data/gpt2.gguf" -o "$tmp/artefact" --name g --exe --level 1
"$tmp/artefact/g" -p "the cat" -n 4 >"$tmp/out" 2>"$tmp/err"
same "$tmp/text"
for i in 1 2 3 4; do echo "the cat the cat"; done >"$tmp/cat.txt"
run 0 train "$data/qwen2.gguf" -o "$tmp/tuned" --text "$tmp/cat.txt" --steps 1 --block 2 --level 1
run 0 tokenizer encode "$tmp/tuned"
run 0 inspect "$tmp/tuned"
prints 'qwen2: 1 layers' && prints 'gpt2-bpe, 268 tokens'

echo "$cases runs, $failures failures"
[ $failures = 0 ]
