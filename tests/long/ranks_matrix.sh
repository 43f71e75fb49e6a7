#!/bin/sh
# ranks_matrix.sh SINTER SOURCE_DIR MPIRUN [MODEL…]: ten steps of each model on 1, 2, 4 and 8 ranks, which have the whole
# model (data), divide it (ZeRO 1 to 3), or share it in pairs (tensor 2; on 4 ranks 2 x 2) and divide that, too. Prints a
# table. "=": losses and norms of all steps, weights, and the optimizer's states after another step have the bits of one
# process. A number: the largest relative difference to it (tests/support/close_runs.py), at most 1e-6, with products of
# bf16 3e-3; among the runs that share a model in pairs all bits must be equal. Models that predict the next token also
# run with rows that pairs of ranks divide, alone and with the model (2 x 2), which is compared with one process. "!":
# something else.
models=${4:+$(shift 3 && echo "$*")}
set -- "$1" "$2" "$3"
. "$2/tests/tools/ranks/ranks.sh"
: "${models:=gpt llama bert edt gpt+bf16 edt+bf16}"

# config NAME MODEL DATA [OPTIMIZER TOKENIZER]
config() {
    printf '{"model": {%s}, "data": {%s, "validation_part": 0}, "optimizer": {"clip": 0.5%s}, %s,
 "training": {"steps": 10, "batch": 8, "block": 16, "log_every": 1}}\n' "$2" "$3" "${4:-}" \
        "${5:-$letters}" >"$1.json"
}

head -c 40000 "$source/examples/data/tinyshakespeare.txt" >text.txt
text='"text": "text.txt"' letters='"tokenizer": {"kind": "char"}' words='"tokenizer": {"kind": "word", "vocab": 201}'
# The gradient of a bias of keys is 0 but for rounding, which Adam divides by its own size plus eps.
eps=', "eps": 1e-6'
# the first ten steps of the Shakespeare model, whose rate has risen to 9e-5 by then
sed "s|\"text\": \"[^\"]*\"|$text|; s|\"steps\": [0-9]*|\"log_every\": 1, \"steps\": 10|; s|\"batch\": [0-9]*|\"batch\": 8|
 s|\"validation_part\": [0-9.]*|\"validation_part\": 0|; s|\"validate_every\": [0-9]*, ||
 s|\"schedule\": {.*}|\"schedule\": {\"kind\": \"linear\", \"rate\": 9e-5, \"final\": 8e-5, \"warmup\": 9}|" \
    "$source/examples/train/shakespeare.json" >gpt.json
config llama '"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 50, "max_position_embeddings": 16' "$text"
config bert '"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "intermediate_size": 64, "max_position_embeddings": 16' "$text, \"documents\": \"paragraphs\"" "$eps" "$words"
config edt '"model_type": "edt", "d_model": 32, "ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2,
 "attention_heads": 4, "max_position_embeddings": 16' "$text, \"target\": \"text.txt\"" "$eps" "$words"

failed=0
# train FOLDER RANKS ARGUMENT…: the model's ten steps in that folder
train() {
    folder=$1 n=$2
    shift 2
    rm -rf "$folder"
    # shellcheck disable=SC2086
    timeout $((600 * SLOW)) "$mpirun" $options -n "$n" "$sinter" train $arguments -o "$folder" --slices 8 -t 1 "$@" >log 2>&1
}

# next FOLDER: one process makes another step with what the ranks have saved
# shellcheck disable=SC2086
next() { "$sinter" train $arguments -o "$1" --resume -n 11 -t 1 >log 2>&1; }

steps() { sed 's/"tokens_per_second".*//' "$1/metrics.jsonl"; }

# same A B: whether two runs of ten steps have the same bits
same() {
    steps "$1" >a && steps "$2" >b && cmp -s a b && cmp -s "$1/model.safetensors" "$2/model.safetensors"
}

# cell TEXT WHAT: prints a cell of the table; "!" is a failure of WHAT
cell() {
    printf ' %8s' "$1"
    [ "$1" != ! ] || { failed=1 && printf '\nFAILED: %s\n' "$2" && tail -5 log; }
}

# exact ARGUMENT…: a run with the bits of one process
exact() {
    word==
    train run "$n" "$@" && same one run && next run && cmp -s one.next/checkpoint.safetensors run/checkpoint.safetensors ||
        word=!
    cell $word "$model on $n ranks: $*"
}

# differs: sets word to how much the run differs from one process, if that is little
differs() {
    python3 "$source/tests/support/close_runs.py" one run $within >log 2>&1 &&
        word=$(tr ',' '\n' <log | awk '$2 > most { most = $2 } END { printf "%.0e", most }')
}

# shared ZERO: a run on pairs of ranks that share the model
shared() {
    word=!
    if train run "$n" --tensor 2 --zero "$1"; then
        if [ ! -d pair ]; then
            differs && mv run pair
        else
            same pair run && word='= pair'
        fi
    fi
    cell "$word" "$model on $n ranks: --tensor 2 --zero $1"
}

# rows ARGUMENT…: a run whose ranks divide rows; other models have none
rows() {
    word=-
    case $model in
    gpt* | llama)
        word=!
        train run "$n" --context 2 "$@" && differs
        ;;
    esac
    cell "$word" "$model on $n ranks: --context 2 $*"
}

printf '%-9s %5s %8s %8s %8s %8s | %8s %8s %8s %8s | %8s %8s %8s\n' model ranks data 'zero 1' 'zero 2' 'zero 3' \
    'tensor 2' '+ zero 1' '+ zero 2' '+ zero 3' 'rows 2' '2 x 2' '+ zero 3'
for model in $models; do
    rm -rf one one.next pair
    arguments=$model.json within=1e-6
    case $model in *+bf16) arguments="${model%+*}.json --compute bf16" within=3e-3 ;; esac
    # shellcheck disable=SC2086
    "$sinter" train $arguments -o one --slices 8 -t 2 >log 2>&1 || { cat log; fail "$model, one process"; }
    cp -r one one.next && next one.next || { cat log; fail "$model, one more step"; }
    for n in 1 2 4 8; do
        printf '%-9s %5s' $model $n
        for zero in 0 1 2 3; do exact --zero $zero; done
        printf ' |'
        [ $n = 1 ] || shared 0
        for zero in 1 2 3; do [ $n -lt 4 ] || shared $zero; done
        [ $n -ne 2 ] || printf '%27s' ''
        [ $n = 1 ] || printf ' |'
        [ $n = 1 ] || rows
        [ $n -lt 4 ] || rows --tensor 2
        [ $n -lt 4 ] || rows --tensor 2 --zero 3
        printf '\n'
    done
done
exit $failed
