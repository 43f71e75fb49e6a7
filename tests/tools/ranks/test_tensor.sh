#!/bin/sh
# test_tensor.sh SINTER SOURCE_DIR MPIRUN [long]: ranks that share a model write the tokens of one process, with the mpirun
# of Open MPI or MPICH. long: 1 to 8 ranks, sampling, batches, beams, storage types, more models, failures.
. "$2/tests/tools/ranks/ranks.sh"

# ranks N ARGUMENT…: generates on N ranks, output in the files out and log
ranks() {
    n=$1
    shift
    # shellcheck disable=SC2086
    timeout $((120 * SLOW)) "$mpirun" $options -n "$n" "$sinter" generate "$@" -t 1 >out 2>log </dev/null
}

# equal N ARGUMENT…: N ranks write what one process writes
equal() {
    n=$1
    shift
    "$sinter" generate "$@" -t 1 >want 2>log </dev/null || { cat log; fail "one process: $*"; }
    ranks "$n" "$@" || { cat log; fail "$n ranks: $*"; }
    cmp want out || { cat want out; fail "$n ranks write other tokens: $*"; }
}

stories=$source/examples/models/stories260K
"$sinter" import "$stories/stories260K.bin" -o stories --tokenizer "$stories/tok512.bin" >log 2>&1 || { cat log; fail import; }
equal 2 stories -p 'Once upon a time' -n 24 --temperature 0
equal 2 "$source/tests/data/gguf/qwen2.gguf" --prompt-ids 5,7,9,11,30,44 -n 24 --temperature 0 --print-ids # blocks, their scales
ranks 3 stories -p 'Once' -n 4 && fail "8 heads on 3 ranks"
grep -q '8 heads cannot be divided among 3 ranks' log || { cat log; fail "8 heads on 3 ranks: the error"; }

# differ WHAT MODEL TARGET: rank 1 runs another model, or on another CPU
differ() {
    # shellcheck disable=SC2086
    timeout 100 "$mpirun" $options -n 1 "$sinter" generate stories -p Once -n 4 -t 1 --target x86-64-v2 : \
        -n 1 "$sinter" generate "$2" -p Once -n 4 -t 1 --target "$3" >out 2>log </dev/null
    [ $? -ne 0 ] && grep -q "rank 1 on .* has not the same $1 as rank 0" log || { cat log; fail "another $1"; }
}
if [ "$(uname -m)" = x86_64 ]; then differ 'CPU features' stories x86-64-v3; fi
# train N ARGUMENT…: trains on N ranks
train() {
    n=$1
    shift
    # shellcheck disable=SC2086
    timeout 300 "$mpirun" $options -n "$n" "$sinter" train "$@" -t 1 >log 2>&1
}

# close A B WHAT: losses, norms and weights of two runs are equal within 1e-6
close() {
    python3 "$source/tests/support/close_runs.py" "$1" "$2" >close.log 2>&1 || { cat close.log; fail "$3: other values"; }
}

head -c 20000 "$source/examples/data/tinyshakespeare.txt" >text.txt
printf '%s\n' '{
 "model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4},
 "data": {"text": "text.txt", "validation_part": 0.05},
 "optimizer": {"clip": 0.5, "average": 0.6},
 "training": {"steps": 4, "batch": 4, "block": 16, "validate_every": 2, "log_every": 1}}' >gpt.json
"$sinter" train gpt.json -o one --slices 2 >log 2>&1 || { cat log; fail "train on one"; }
train 2 gpt.json -o two --slices 2 --tensor 2 -n 2 || { cat log; fail "train --tensor 2"; }
train 4 gpt.json -o two --resume --tensor 2 --zero 3 || { cat log; fail "train --tensor 2 --zero 3 --resume"; }
grep -q 'zero 3: each rank has 0.1214 MB of the 0.4475 MB' log || { cat log; fail "2 x 2 with --zero 3: the memory"; }
close one two "--tensor 2, then 2 x 2 with --zero 3"
train 2 gpt.json -o rows --slices 2 --context 2 || { cat log; fail "train --context 2"; }
close one rows "--context 2"
[ -z "$long" ] && exit 0

"$sinter" train gpt.json -o two --resume -n 8 >log 2>&1 || { cat log; fail "one rank resumes what two shared"; }
train 4 gpt.json -o four --slices 2 --tensor 2 || { cat log; fail "2 x 2"; }
close one four "2 x 2"
train 2 gpt.json -o again --slices 2 --tensor 2 || { cat log; fail "--tensor 2 again"; }
cmp again/model.safetensors four/model.safetensors || fail "the number of groups changes bits"
cmp again/averaged/model.safetensors four/averaged/model.safetensors || fail "the number of groups changes averages"
for zero in 1 2 3; do
    train 4 gpt.json -o zero --slices 2 --tensor 2 --zero $zero -n 2 --force || { cat log; fail "2 x 2, zero $zero"; }
    if [ $zero = 2 ]; then # what 2 x 2 divide, one group goes on with
        train 2 gpt.json -o zero --tensor 2 --resume || { cat log; fail "2 x 2, zero $zero, resumed by 2"; }
    else
        train 4 gpt.json -o zero --tensor 2 --zero $zero --resume || { cat log; fail "2 x 2, zero $zero, resumed"; }
    fi
    cmp zero/model.safetensors four/model.safetensors || fail "2 x 2, zero $zero: other bits"
    cmp zero/averaged/model.safetensors four/averaged/model.safetensors || fail "2 x 2, zero $zero: other averages"
done
# An initial folder, of which each rank takes its part.
"$sinter" train four -o further --text text.txt --slices 2 -n 2 --block 16 >log 2>&1 || { cat log; fail "further, one process"; }
train 4 four -o further.parts --text text.txt --slices 2 -n 2 --block 16 --tensor 2 --zero 3 || { cat log; fail "further, zero 3"; }
close further further.parts "further, zero 3"
train 3 gpt.json -o three --tensor 2 && fail "--tensor 2 on 3 ranks"
grep -q -- '--tensor 2: 3 ranks cannot be divided' log || { cat log; fail "--tensor 2 on 3 ranks: the error"; }
printf '%s\n' '{
 "model": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 50, "max_position_embeddings": 16},
 "data": {"text": "text.txt", "validation_part": 0},
 "training": {"steps": 10, "batch": 4, "block": 16, "log_every": 1}}' >llama.json
# The tokens of a row, divided, with the optimizer's states and gradients, too.
"$sinter" train llama.json -o whole --slices 2 >log 2>&1 || { cat log; fail "llama on one"; }
for shape in 2:2:0 4:4:0 4:2:0 4:2:1 4:2:2 8:8:0 8:4:1; do
    rest=${shape#*:}
    train ${shape%%:*} llama.json -o parts.$shape --slices 2 --context ${rest%:*} --zero ${rest#*:} || { cat log; fail "llama, context $shape"; }
    close whole parts.$shape "llama, context $shape"
done
# Rows that four halves do not divide: one part a rank.
"$sinter" train llama.json -o whole.plain --slices 2 --block 12 >log 2>&1 || { cat log; fail "llama on one, 12 tokens"; }
train 4 llama.json -o parts.plain --slices 2 --block 12 --context 4 || { cat log; fail "llama, 12 tokens"; }
close whole.plain parts.plain "llama, 12 tokens"
train 2 gpt.json -o rows.odd --context 2 --block 15 && fail "rows of 15 tokens"
grep -q -- '--context 2 must divide the tokens of a row' log || { cat log; fail "rows of 15 tokens: the error"; }
train 4 llama.json -o rows.both --slices 2 --context 2 --tensor 2 || { cat log; fail "--context with --tensor"; }
close whole rows.both "--context with --tensor"
train 8 llama.json -o rows.eight --slices 2 --context 2 --tensor 2 || { cat log; fail "2 x 2 x 2"; }
close whole rows.eight "2 x 2 x 2"
train 2 gpt.json -o rows.few --context 2 --tensor 2 && fail "--context with --tensor on 2 ranks"
grep -q -- '--tensor 2 with --context: 2 ranks cannot be divided into groups of 4' log || { cat log; fail "--context with --tensor on 2 ranks: the error"; }
# A model in C says it with sn_forward_attention.
cp "$source/examples/variants/small.h" .
printf '%s\n' '#include "small.h"' 'static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {' \
    '    sn_tensor p[3];' '    sn_split(sn_nn_linear(x, "qkv", 3 * WIDTH, 0), 2, 3, p);' \
    '    qkv h = remember(s, (qkv){sn_split_heads(p[0], HEADS), sn_split_heads(p[1], HEADS), sn_split_heads(p[2], HEADS)});' \
    '    return join(sn_forward_attention(s, h.q, h.k, h.v, .causal = true));' '}' \
    'SN_MODEL(m, o) { small_model(m, o, &(small){.attend = attend, .positions = true}); }' >own.c
own='own.c --text text.txt -n 2 --batch 4 --block 16 --slices 2'
# shellcheck disable=SC2086
"$sinter" train $own -o own.one >log 2>&1 || { cat log; fail "a model in C on one"; }
# shellcheck disable=SC2086
train 4 $own -o own.rows --context 2 || { cat log; fail "a model in C, --context 2"; }
# Adam with its usual eps enlarges rounding where gradients are small
python3 "$source/tests/support/close_runs.py" own.one own.rows 1e-5 >close.log 2>&1 || { cat close.log; fail "a model in C, --context 2"; }
printf '%s\n' '{
 "model": {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 64, "max_position_embeddings": 16},
 "tokenizer": {"kind": "word", "vocab": 200},
 "data": {"text": "text.txt", "documents": "paragraphs", "validation_part": 0},
 "training": {"steps": 10, "batch": 4, "block": 16, "log_every": 1}}' >bert.json
# The gradient of a bias of keys is 0 but for rounding, which Adam divides by its own size plus eps.
printf '%s\n' '{
 "optimizer": {"eps": 1e-6},
 "model": {"model_type": "edt", "d_model": 32, "ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2,
  "attention_heads": 4, "max_position_embeddings": 16},
 "tokenizer": {"kind": "word", "vocab": 200},
 "data": {"text": "text.txt", "target": "text.txt", "validation_part": 0},
 "training": {"steps": 10, "batch": 4, "block": 16, "log_every": 1}}' >edt.json
sed 's/"steps": 4/"steps": 10, "dropout": 0.1/' gpt.json >dropout.json
sed 's/"gpt2"/"gopher"/' gpt.json >gopher.json
train 2 gopher.json -o rows.gopher --context 2 && fail "--context with gopher"
grep -q 'cannot divide a gopher model' log || { cat log; fail "--context with gopher: the error"; }
train 2 bert.json -o rows.bert --context 2 && fail "--context with bert"
grep -q -- '--context 2 needs a model that predicts the next token' log || { cat log; fail "--context with bert: the error"; }
for model in llama bert edt dropout; do
    "$sinter" train $model.json -o $model.1 --slices 4 >log 2>&1 || { cat log; fail "$model on one"; }
    for shape in 2:2 4:4 4:2; do # pairs, as ranks_matrix.sh has them, with dropout only
        [ $shape = 4:4 ] || [ $model = dropout ] || continue
        train ${shape%:*} $model.json -o $model.$shape --slices 4 --tensor ${shape#*:} || { cat log; fail "$model $shape"; }
        close $model.1 $model.$shape "$model $shape"
    done
done

if [ "$(uname -m)" = x86_64 ]; then
    cp -r stories other
    printf '\001\002\003' | dd of=other/model.safetensors bs=1 seek=$(($(stat -c %s stories/model.safetensors) - 3)) conv=notrunc 2>log
    differ model other x86-64-v2
fi
for n in 2 4; do
    equal $n stories -p 'Once upon a time' -n 60 --seed 7
    equal $n stories -p 'Once upon a time' -n 30 --beams 3
    equal $n stories -p 'Once upon a time' -n 30 --best-of 3
    equal $n stories -p 'Once upon a time' -n 30 --temperature 0 --weights bf16
    equal $n stories -p 'Once upon a time' -n 30 --temperature 0 --cache bf16 --level 0
    printf 'Once\nThe dog\nA red ball\n' >prompts
    equal $n stories -f prompts --batch 2 -n 20 --temperature 0
done
equal 8 stories -p 'Once upon a time' -n 30 --temperature 0 # more ranks than heads of keys

# model NAME CONFIG: a model with the weights of a first training step
model() {
    head -c 20000 "$source/examples/data/tinyshakespeare.txt" >text.txt
    printf '{"model": {%s}, "data": {"text": "text.txt", "validation_part": 0},
 "training": {"steps": 20, "batch": 4, "block": 16}}' "$2" >"$1.json"
    "$sinter" train "$1.json" -o "$1" >log 2>&1 || { cat log; fail "$1"; }
}
model gpt2 '"model_type": "gpt2", "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4'
model gqa '"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 1, "intermediate_size": 52, "max_position_embeddings": 64'
model gopher '"model_type": "gopher", "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4'
for name in gpt2 gqa gopher; do
    for n in 2 4; do
        equal $n $name -p 'First' -n 30 --temperature 0
        equal $n $name -p 'First' -n 30 --seed 3
    done
done

ranks 2 stories -p "$(printf 'a%.0s' $(seq 3000))" -n 4 && fail "a prompt that is too long"
grep -q 'context' log || { cat log; fail "a prompt that is too long: the error"; }
ranks 2 none -p 'a' && fail "no model"
[ "$(grep -c 'cannot open model folder' log)" -eq 1 ] || { cat log; fail "no model: one message"; }
exit 0
