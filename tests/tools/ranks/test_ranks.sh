#!/bin/sh
# test_ranks.sh SINTER SOURCE_DIR MPIRUN [long]: training on several ranks has the bits of one process, with the mpirun of
# Open MPI or MPICH. long: 1 to 8 ranks, more models, ranks that are killed.
. "$2/tests/tools/ranks/ranks.sh"

# ranks N ARGUMENT…: trains on N ranks, output in the file log
ranks() {
    n=$1
    shift
    # shellcheck disable=SC2086
    timeout 300 "$mpirun" $options -n "$n" "$sinter" train "$@" --threads 1 >log 2>&1
}

# same A B WHAT: the checkpoints, and so weights, moments, step, loss and norm, have equal bits
same() { cmp "$1/checkpoint.safetensors" "$2/checkpoint.safetensors" || fail "$3: other bits"; }

# refused TEXT STATUS: the last run must have failed, with this text
refused() {
    [ "$2" -ne 0 ] && grep -q "$1" log || { cat log; fail "expected: $1"; }
}

text=$source/examples/data/tinyshakespeare.txt
head -c 40000 "$text" >text.txt
printf '%s\n' '{
 "model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
 "data": {"text": "text.txt", "validation_part": 0.05},
 "optimizer": {"clip": 0.5},
 "training": {"steps": 4, "batch": 7, "block": 16, "dropout": 0.1, "accumulate": 2, "validate_every": 2}}' >gpt.json

"$sinter" train gpt.json -o one --slices 4 -t 2 >log 2>&1 || { cat log; fail "one process"; }
ranks 2 gpt.json -o two --slices 4 -n 2 || { cat log; fail "two ranks"; }
# over a slow network, which changes times only; a profile has a process for each rank
export SINTER_DEBUG=network=500:1
ranks 4 gpt.json -o two --resume --profile profile.json || { cat log; fail "four ranks resume what two began"; }
unset SINTER_DEBUG
for r in 0 1 2 3; do
    grep -q "\"pid\":$((r + 1)),\"args\":{\"name\":\"rank $r on " profile.json || fail "no rank $r in the profile"
    grep -q "\"cat\":\"network\",\"ph\":\"X\",\"pid\":$((r + 1))," profile.json || fail "no sums of rank $r in the profile"
done
tail -1 profile.json | grep -q '^],"otherData":{"calls_not_kept":0}}$' || fail "the end of the profile"
same one two "two ranks, then four"
sed 's/"tokens_per_second".*//' one/metrics.jsonl >a
sed 's/"tokens_per_second".*//' two/metrics.jsonl >b
cmp a b || fail "metrics differ"
cmp one/model.safetensors two/model.safetensors || fail "models differ"

# The optimizer's states and gradients, then parameters, too, are divided among the ranks; whoever has written the parts
# of the checkpoint, any number of ranks goes on. Products are of bf16. Matrices of optimizers that need all of their
# rows stay whole.
groups='[{"match": "*c_proj.weight", "kind": "normuon"}, {"match": "*c_fc.*", "kind": "adafactor", "rate": 10}]'
sed 's/"accumulate": 2, //; s/"batch": 7/"batch": 8/; s/"clip": 0.5/&, "average": 0.6, "groups": '"$groups/" gpt.json >zero.json
"$sinter" train zero.json --compute bf16 -o plain --slices 4 -n 3 >log 2>&1 && cp plain/model.safetensors first.safetensors &&
    cp plain/averaged/model.safetensors mean.safetensors &&
    "$sinter" train zero.json --compute bf16 -o plain --resume -n 4 >>log 2>&1 || { cat log; fail "one process"; }
export SINTER_DEBUG=network=500:1 # so that parameters are still on their way when the second step begins
ranks 2 zero.json --compute bf16 -o parts --slices 4 --zero 2 -n 2 || { cat log; fail "zero 2"; }
unset SINTER_DEBUG
grep -q 'zero 2: each rank has .* MB of the .* MB' log || { cat log; fail "zero 2 does not say its memory"; }
[ "$(ls parts/checkpoint-*)" = "$(printf 'parts/checkpoint-2-part-%d-of-2.safetensors\n' 1 2)" ] || fail "parts: $(ls parts)"
: >parts/checkpoint-3-part-1-of-3.safetensors # as a killed writer may leave them
: >parts/.checkpoint-3-part-2-of-3.safetensors.tmp
ranks 4 zero.json --compute bf16 -o parts --zero 3 -n 3 --resume || { cat log; fail "zero 3 resumes what zero 2 began"; }
grep -q 'zero 3: each rank has .*; at most .* MB of parameters are whole at a time' log ||
    { cat log; fail "zero 3 does not say its memory"; }
[ "$(find parts -name '*checkpoint-*' | wc -l)" -eq 4 ] || fail "parts are left: $(ls -A parts)"
cmp first.safetensors parts/model.safetensors || fail "zero 3: the model"
cmp mean.safetensors parts/averaged/model.safetensors || fail "zero 3: the averages"
"$sinter" train zero.json --compute bf16 -o parts --resume -n 4 >log 2>&1 || { cat log; fail "one process resumes parts"; }
same plain parts "ZeRO"
sed 's/normuon/muon/' zero.json >muon.json
"$sinter" train muon.json --compute bf16 -o parts --resume -n 5 >log 2>&1
refused 'other settings, .*: normuon .*; now: muon ' $?
[ "$(find parts -name '*checkpoint-*' | wc -l)" -eq 0 ] || fail "parts are left: $(ls -A parts)"

# What a rank keeps falls with their number.
memory() { "$sinter" explain one --training --slices 8 "$@" -e train_step | sed -n 's/^memory of a rank: //p'; }
[ "$(memory)" = "parameters 0.1119 MB, optimizer states 0.2238 MB, gradients 0.1119 MB" ] &&
    [ "$(memory --zero 1 --ranks 8)" = "parameters 0.1119 MB, optimizer states 0.03431 MB, gradients 0.1119 MB" ] &&
    [ "$(memory --zero 2 --ranks 4)" = "parameters 0.1119 MB, optimizer states 0.06145 MB, gradients 0.03072 MB" ] &&
    [ "$(memory --zero 3 --ranks 8)" = "parameters 0.01715 MB, optimizer states 0.03431 MB, gradients 0 MB, at most 0.0983 MB of parameters gathered" ] ||
    fail "memory: $(memory --zero 3 --ranks 8)"

"$sinter" train gpt.json -o two --resume -n 5 >log 2>&1 || { cat log; fail "resume without ranks"; }
# differ WHAT SINTER ARGUMENT…: rank 1 runs SINTER with these arguments, rank 0 the usual ones
differ() {
    what=$1 other=$2
    shift 2
    # shellcheck disable=SC2086
    timeout 100 "$mpirun" $options -n 1 "$sinter" train gpt.json -o other --target x86-64-v2 : -n 1 "$other" train "$@" \
        -o other >log 2>&1
    refused "rank 1 on .* has not the same $what as rank 0" $?
}
differ settings "$sinter" gpt.json --seed 2 --target x86-64-v2
if [ "$(uname -m)" = x86_64 ]; then differ 'CPU features' "$sinter" gpt.json --target x86-64-v3; fi
if [ -n "$long" ]; then
    cp "$sinter" other.sinter && echo >>other.sinter
    for plugin in "$(dirname "$sinter")"/sinter-*.so; do cp "$plugin" .; done
    differ 'program sinter' ./other.sinter gpt.json --target x86-64-v2
    sed 's/"n_embd": 32/"n_embd": 64/' gpt.json >wide.json
    differ model "$sinter" wide.json --target x86-64-v2
    head -c 39000 text.txt | tail -c 38000 >less.txt
    sed 's/text.txt/less.txt/' gpt.json >less.json
    differ text "$sinter" less.json --target x86-64-v2
fi
[ ! -e other/checkpoint.safetensors ] || fail "a refused run has written a checkpoint"
[ -z "$long" ] && exit 0

ranks 3 zero.json -o rounds --slices 4 --zero 2
refused '3 ranks sums the gradients of as many slices .* --slices 6' $?

ranks 2 gpt.json -o many --slices 1
refused '2 ranks: a batch has only 1 slices' $?
printf '%s\n' '{
 "model": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16},
 "data": {"text": "text.txt", "validation_part": 0},
 "training": {"steps": 10, "batch": 8, "block": 16, "precision": "bf16"}}' >llama.json
printf '%s\n' '{
 "model": {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "intermediate_size": 64, "max_position_embeddings": 16},
 "tokenizer": {"kind": "word", "vocab": 200},
 "data": {"text": "text.txt", "documents": "paragraphs", "validation_part": 0},
 "training": {"steps": 10, "batch": 8, "block": 16}}' >bert.json
sed 's/"steps": 4/"steps": 10/; s/"batch": 7/"batch": 8/' gpt.json >gpt8.json
printf '%s\n' '{
 "model": {"model_type": "edt", "max_position_embeddings": 16, "d_model": 32, "ffn_dim": 64, "encoder_layers": 2,
  "decoder_layers": 2, "attention_heads": 2},
 "tokenizer": {"kind": "word", "vocab": 200},
 "data": {"text": "text.txt", "target": "text.txt", "validation_part": 0},
 "training": {"steps": 10, "batch": 8, "block": 16}}' >edt.json
# Losses and norms of every step, weights, and, by one more step of one process, the optimizer's states. Other numbers
# of ranks: tests/long/ranks_matrix.sh.
for model in gpt8 llama bert edt; do
    sed 's/"steps"/"log_every": 1, "steps"/; s/"accumulate": 2, //' $model.json >each.json
    "$sinter" train each.json -o $model.1 --slices 8 >log 2>&1 || { cat log; fail "$model, one process"; }
    sed 's/"tokens_per_second".*//' $model.1/metrics.jsonl >a
    cp -r $model.1 $model.next
    "$sinter" train each.json -o $model.next --resume -n 11 >log 2>&1 || { cat log; fail "$model, one more step"; }
    for zero in 0 1; do
        ranks 3 each.json -o $model.ranks --zero $zero --force || { cat log; fail "$model, 3 ranks, zero $zero"; }
        sed 's/"tokens_per_second".*//' $model.ranks/metrics.jsonl >b
        cmp a b || fail "$model, 3 ranks, zero $zero: other losses or norms"
        cmp $model.1/model.safetensors $model.ranks/model.safetensors || fail "$model, 3 ranks, zero $zero: weights"
        "$sinter" train each.json -o $model.ranks --resume -n 11 >log 2>&1 || { cat log; fail "$model: resume"; }
        same $model.next $model.ranks "$model, 3 ranks, zero $zero"
    done
done
# A rank sends what sinter plan predicts: the parameters as often as the algorithm needs, within 2 %.
sed "s|\"text\": \"[^\"]*\"|\"text\": \"$text\"|; s|\"validation_part\": [0-9.]*|\"validation_part\": 0|" \
    "$source/examples/train/shakespeare.json" >bytes.json
for n in 2 4; do
    for zero in 0 1 2 3; do
        ranks $n bytes.json -o bytes -n 2 --warmup 1 --slices $n --zero $zero --force || { cat log; fail "bytes"; }
        sent=$(sed -n 's/^each rank sent \([0-9.]*\) MB.*/\1/p' log)
        planned=$("$sinter" plan bytes.json --ranks $n --slices $n --zero $zero --speed roofline --json |
            sed -n 's/.*"sent_mb": \([0-9.]*\),.*/\1/p')
        awk -v sent="$sent" -v planned="$planned" -v n=$n -v zero=$zero 'BEGIN {
            whole = 0.8104 * 4 * (n - 1) / n * (zero == 3 ? 3 : 2); off = sent / planned - 1
            exit !(sent < 1.02 * whole && off < 0.01 && off > -0.01) }' ||
            fail "$n ranks, zero $zero: sent $sent MB, planned $planned"
    done
done
# With whole gradients of several batches.
"$sinter" train gpt8.json -o gpt8.1 --slices 8 --force >log 2>&1 || { cat log; fail "accumulate, one process"; }
for zero in 0 1 2 3; do
    ranks 4 gpt8.json -o accumulate --zero $zero --force || { cat log; fail "accumulate, zero $zero"; }
    cmp gpt8.1/model.safetensors accumulate/model.safetensors || fail "accumulate, zero $zero"
done
ranks 4 gpt8.json -o fast --reduction fast || { cat log; fail "fast"; }

export SINTER_DEBUG=network=fast
ranks 2 gpt8.json -o slow
refused 'network=fast' $?
unset SINTER_DEBUG

# A rank is killed: all end within seconds, the checkpoint is whole, and the run goes on with the same bits.
sed 's/"steps": 4/"steps": 2000/; s/"validate_every": 2/"validate_every": 2000, "save_every": 5/; s/0.05/0/' gpt.json >kill.json
saved() { stat -c '%i %.Y' killed/checkpoint.safetensors 2>/dev/null; }
"$sinter" train kill.json -o whole --slices 4 >log 2>&1 || { cat log; fail "whole"; }
i=0
while [ $i -lt 5 ]; do
    i=$((i + 1))
    resume=''
    [ -e killed/checkpoint.safetensors ] && resume=--resume
    before=$(saved)
    rm -f rank.*.pid
    # shellcheck disable=SC2016,SC2086
    timeout 100 "$mpirun" $options -n 2 sh -c 'echo $$ >"rank.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.pid"; exec "$@"' - \
        "$sinter" train kill.json -o killed --slices 4 -t 1 $resume >log 2>&1 &
    all=$!
    n=0
    while [ "$(saved)" = "$before" ] && [ $n -lt 600 ]; do n=$((n + 1)) && sleep 0.05; done
    sleep 0.$i
    kill -9 "$(cat rank.$((i % 2)).pid)" || { cat log; fail "the run ended before its rank was killed"; }
    begin=$(date +%s)
    wait $all
    [ $(($(date +%s) - begin)) -le 10 ] || fail "ranks hang after one was killed"
done
ranks 2 kill.json -o killed --slices 4 --resume || ranks 2 kill.json -o killed --slices 4 || { cat log; fail "after kills"; }
same whole killed "after kills"
