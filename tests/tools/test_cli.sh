#!/bin/sh
# test_cli.sh SINTER SOURCE_DIR SECTION: runs the real program. Every case checks the exit code, what
# is printed where, and that no sanitizer reports an error. Sections are the functions named check_*.
sinter=$1 source=$2 section=$3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG
stories=$source/examples/models/stories260K/stories260K.bin
nano=$source/examples/models/nano-gpt-sort/gpt-nano-sort-model.json
for part in run sampling folder mistakes; do
    . "$source/tests/tools/cli_$part.sh"
done

model() { # an imported model folder that may be spoiled
    rm -rf "$tmp/model"
    "$sinter" import "$stories" -o "$tmp/model" 2>/dev/null || fail "import"
}

check_generate() {
    run 0 import "$stories" -o "$tmp/m"
    for f in config.json model.safetensors tokenizer.bin; do
        [ -s "$tmp/m/$f" ] || fail "import wrote no $f"
    done
    # the 200 greedy tokens of the reference (int32 behind a header of 128 bytes), and their text
    tail -c +129 "$source/tests/data/reference/stories260K/greedy_ids.npy" | od -An -v -td4 |
        tr -s ' \n' '  ' | sed 's/^ //; s/ $//' >"$tmp/ids"
    echo >>"$tmp/ids"
    sed -n '/^Text:/,$p' "$source/tests/data/reference/stories260K/README.txt" | tail -n +2 >"$tmp/text"
    run 0 generate "$tmp/m" -n 200 --temperature 0
    same "$tmp/text"
    run 0 generate "$tmp/m" -n 200 --temperature 0 --print-ids --stats
    same "$tmp/ids"
    says 'recompilations 0'
    says 'tokens/s'
    # a file that import can read, directly; kernels now come from the cache
    run 0 generate "$stories" -n 200 --temperature 0 --print-ids --stats
    same "$tmp/ids"
    says 'warm'
    for level in 0 1 2 3 4; do
        run 0 generate "$tmp/m" -n 200 --temperature 0 --print-ids --level $level --backend native -t 1
        same "$tmp/ids"
    done
    run 0 generate "$tmp/m" -n 200 --temperature 0 --print-ids --backend native -t 2
    same "$tmp/ids"
    run 0 generate "$tmp/m" -n 200 --temperature 0 --print-ids --backend onednn -t 2
    same "$tmp/ids"
    run 0 generate "$tmp/m" -n 200 --temperature 0 --print-ids --target x86-64-v3
    same "$tmp/ids"
    # the prompt may be given in any form; the same seed gives the same text
    run 0 generate "$tmp/m" -p "Once upon a time" -n 190 --temperature 0
    head -c 400 "$tmp/text" >"$tmp/a" && head -c 400 "$tmp/out" >"$tmp/b" && cmp -s "$tmp/a" "$tmp/b" ||
        fail "a prompt of text"
    run 0 generate "$tmp/m" --prompt-ids "1, 403 407,261" -n 197 --temperature 0 --print-ids
    same "$tmp/ids"
    printf 'Once upon a time' >"$tmp/prompt"
    run 0 generate "$tmp/m" -f "$tmp/prompt" -n 20 --seed 3
    cp "$tmp/out" "$tmp/a"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 20 --seed 3 --temperature 1
    same "$tmp/a"
    run 0 generate "$tmp/m" -p 'Once upon a time' -n 20 --seed 4
    cmp -s "$tmp/out" "$tmp/a" && fail "another seed gives the same text"
    run 0 generate "$tmp/m" -n 5 --temperature inf --top-k 10 --top-p 0.9
    # tokens that end a text: a number or a list, in config.json and generation_config.json
    ended() { # ended WHERE JSON: the text ends before token 432, the third that is generated
        cp -r "$tmp/m" "$tmp/ends"
        case $1 in
        config.json) sed -i "s/\"eos_token_id\":.*2/\"eos_token_id\": $2/" "$tmp/ends/config.json" ;;
        *) echo "{\"eos_token_id\": $2}" >"$tmp/ends/$1" ;;
        esac
        run 0 generate "$tmp/ends" --prompt-ids "1 403 407" -n 9 --temperature 0 --print-ids
        [ "$(cat "$tmp/out")" = "1 403 407 261 378" ] || fail "$1 with eos_token_id $2: $what"
        rm -r "$tmp/ends"
    }
    ended config.json 432
    ended config.json '[7, 432, 99999]'
    ended generation_config.json 432
    ended generation_config.json '[7, 432]'
    # stops at the end of the context
    run 0 generate "$tmp/m" -p "Once upon a time" -n 3 --profile "$tmp/profile"
    says 'GFLOP/s' && says ' 10 .* gemm .*layers\.\*\.mlp\.down_proj'
    for entry in prefill decode; do
        grep -q "\"entry\":\"$entry\"" "$tmp/profile" || fail "the profile lacks $entry"
    done
    grep -q '"process_name"' "$tmp/profile" && grep -q '"thread_name"' "$tmp/profile" || fail "the profile has no names"
    if grep -q '"ts":-' "$tmp/profile"; then fail "an event of the profile lies before the first"; fi
    refused 1 '/none/x' generate "$tmp/m" -n 3 --profile "$tmp/none/x"
    run 0 generate "$tmp/m" --context 16 --temperature 0 --print-ids
    says 'context of 16 tokens is full'
    [ "$(wc -w <"$tmp/out")" = 17 ] || fail "17 tokens for a context of 16"
    run 0 generate "$nano" -p "0 2 1 1 0 2" -n 6 --temperature 0
    prints '^0 2 1 1 0 2 0 0 1 1 2 2$'
    run 0 generate "$nano" --prompt-ids "2,2,1,0,1,0" -n 6 --temperature 0 --level 0
    prints '^2 2 1 0 1 0 0 0 1 1 2 2$'
}

check_translate() {
    names=$source/examples/models/aren-transliteration/model.bin
    run 0 translate "$names" -p آتزمون
    prints '^atzmon$'
    printf 'آتزمون\nآزا\n' >"$tmp/lines"
    printf 'atzmon\nazza\n' >"$tmp/want"
    run 0 translate "$names" -f "$tmp/lines" --beams 4 --stats
    same "$tmp/want"
    says 'translate 2 lines'
    says 'recompilations 0'
    run 0 translate "$names" -f "$tmp/lines" --temperature 1e-3 --scores
    prints '^-1.06[12][0-9]*.atzmon$'
    run 0 import "$names" -o "$tmp/names"
    rm "$tmp/names/source_vocabulary.json"
    run 0 translate "$tmp/names" -p '31 10 19 13 5 7' -n 3
    prints '^3 11 23$'
    refused 2 'line 1: the source is empty' translate "$names" -p ''
    refused 2 'choose one' translate "$names" -p a --beams 2 --temperature 1
    refused 2 'not encoder-decoders' translate "$stories" -p a
    refused 2 'sinter translate' generate "$names" -p a
    refused 2 'sinter translate' eval "$names" "$tmp/lines"
    refused 1 'number 0. is outside the source vocabulary' translate "$tmp/names" -p '51'
}

check_encoders() {
    digits=$source/examples/data/mnist-1000
    vit=$source/examples/models/mnist-vit/mnist_vit.npz
    run 0 classify "$vit" --images "$digits-images.idx3-ubyte" --labels "$digits-labels.idx1-ubyte"
    prints '^858 of 1000$'
    run 0 classify "$vit" -i "$digits-images.idx3-ubyte" --batch 999
    [ "$(wc -l <"$tmp/out")" = 1000 ] || fail "a line for every image"
    printf '\0\0\10\3\0\0\0\1\0\0\0\2\0\0\0\2abcd' >"$tmp/small"
    refused 1 'takes images of 28 x 28 pixels and 1 channels, but these have 2 x 2' classify "$vit" -i "$tmp/small"
    refused 1 'its 1 dimension do not describe images' classify "$vit" -i "$digits-labels.idx1-ubyte"
    refused 1 'one label for each' classify "$vit" -i "$digits-images.idx3-ubyte" --labels "$digits-images.idx3-ubyte"
    refused 2 'this model classifies images' classify "$vit" -p a
    refused 2 'give one of' classify "$vit"
    refused 2 'do not predict the next token' generate "$vit" --prompt-ids 1
    # random weights: what is printed is of the right form
    run 0 fill --preset bert-tiny -p '5 9 1 7' --mask 9 -n 3
    [ "$(wc -l <"$tmp/out")" = 3 ] || fail "three candidates"
    refused 2 'no mask token (id 9)' fill --preset bert-tiny -p '5 1 7' --mask 9
    refused 2 'needs --mask' fill --preset bert-tiny -p '5 1 7'
    refused 1 'has only 512 positions' fill --preset bert-tiny --mask 9 -p "$(seq -s ' ' 600)"
    refused 2 'text is empty' fill --preset bert-tiny --mask 9 -p ''
    refused 2 'not trained for question answering' answer --preset bert-tiny -q a -p b
    refused 2 'give a --question' answer --preset bert-tiny -p b
    refused 2 "have no head for 'embed'" embed "$stories" -p a
    printf '5 6 7\n5 6 8 9 10\n5 6 7\n' >"$tmp/lines"
    run 0 embed --preset bert-tiny -f "$tmp/lines" --similarity
    prints '^1.00000 -*0.[0-9]* 1.00000$'
    run 0 embed --preset bert-tiny -f "$tmp/lines" -p '5 6 8 9 10'
    head -1 "$tmp/out" | grep -q '1.00000  5 6 8 9 10' || fail "the sentence itself is not first"
    run 0 embed "$source/examples/use_lite.c" -f "$tmp/lines" --similarity
    prints '^1.00000 -*0.[0-9]* 1.00000$'
    refused 1 'sentence 1: token 99999 is outside' embed --preset bert-tiny -f "$tmp/lines" -p '99999'
}

check_eval() {
    head -c 9000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
    run 0 eval "$stories" "$tmp/text" --stats
    prints '^bytes *9000$'
    prints '^perplexity *[0-9]'
    prints '^bits_per_byte'
    says 'tokens/s'
    loss=$(sed -n 's/^loss *//p' "$tmp/out")
    awk "BEGIN { exit !($loss > 2 && $loss < 6) }" || fail "loss $loss of Shakespeare"
    for level in 0 2; do # the levels agree to four places
        run 0 eval "$stories" "$tmp/text" --level $level -t 1
        other=$(sed -n 's/^loss *//p' "$tmp/out")
        awk "BEGIN { d = $loss - $other; exit !(d < 2e-4 && d > -2e-4) }" || fail "loss $other, $loss"
    done
    # its own kind of text is more likely, and more so with more context
    sed -n '/^Text:/,$p' "$source/tests/data/reference/stories260K/README.txt" | tail -n +2 >"$tmp/story"
    run 0 eval "$stories" "$tmp/story"
    own=$(sed -n 's/^loss *//p' "$tmp/out")
    awk "BEGIN { exit !($own < 1) }" || fail "loss $own of the model's own text"
    run 0 eval "$stories" "$tmp/story" --context 32
    short=$(sed -n 's/^loss *//p' "$tmp/out")
    run 0 eval "$stories" "$tmp/story" --context 32 --stride 8
    slid=$(sed -n 's/^loss *//p' "$tmp/out")
    awk "BEGIN { exit !($own < $slid && $slid < $short) }" || fail "losses $own, $slid, $short"
    run 0 eval "$stories" "$tmp/text" --limit 100
    prints '^tokens *99$'
    refused 2 'stride 64 is longer' eval "$stories" "$tmp/story" --context 32 --stride 64
    : >"$tmp/empty"
    refused 1 'fewer than 2 tokens' eval "$stories" "$tmp/empty"
    refused 1 'cannot open' eval "$stories" "$tmp/none"
    refused 1 'cannot read' eval "$stories" "$tmp"
    refused 2 'missing FILE (' eval "$stories"
    head -c 4096 "$sinter" >"$tmp/binary"
    run 0 eval "$stories" "$tmp/binary"
}

# models in C, without a main program
check_run() {
    export XDG_CACHE_HOME="$tmp/cache" # its files are counted and spoilt
    variant=$source/examples/variants/alibi.c
    # the spin limit of OpenMP's threads applies to this program only
    printf '#!/bin/sh\necho "${GOMP_SPINCOUNT-unset}" >>"%s/spin"\nexec cc "$@"\n' "$tmp" >"$tmp/cc"
    chmod +x "$tmp/cc"
    (unset OMP_WAIT_POLICY && CC=$tmp/cc run 0 run "$variant" explain --cache-dir "$tmp/spins")
    [ "$(sort -u "$tmp/spin")" = unset ] || fail "a compiler inherits GOMP_SPINCOUNT: $(cat "$tmp/spin")"
    for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do # it is /proc/self/exe then
        [ ! -x $loader ] || (unset OMP_WAIT_POLICY && $loader "$sinter" run --help >/dev/null) || fail "$loader $sinter"
    done
    run 0 run "$variant"
    prints 'model       alibi: 132864 parameters'
    prints 'output   logits       f32.B,T,256.'
    run 0 run "$variant" explain --entry decode
    prints 'flash .*score: exp2.*alibi.c:[0-9]'
    run 0 run "$variant" generate --prompt-ids "72 101 108" -n 5 --temperature 0 --stats
    says 'alibi, 0.1329 M parameters, context 256, vocabulary 256, random weights'
    cp "$tmp/out" "$tmp/first"
    run 0 generate "$variant" --prompt-ids "72 101 108" -n 5 --temperature 0
    same "$tmp/first"
    echo "1 2 3 4" >"$tmp/ids"
    run 0 run "$variant" eval "$tmp/ids"
    prints '^tokens'
    # a shared object compiled from it, tied to the version of the headers
    ${CC:-cc} -std=gnu11 -shared -fPIC -I"$(dirname "$sinter")/../api" "$variant" -o "$tmp/alibi.so"
    run 0 run "$tmp/alibi.so" generate --prompt-ids "72 101 108" -n 5 --temperature 0
    same "$tmp/first"
    # trained, then with its weights and its tokenizer
    head -c 3000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
    what="train from standard input" && cases=$((cases + 1))
    "$sinter" run "$variant" train --text - -o "$tmp/trained" -n 2 <"$tmp/text" >"$tmp/out" 2>"$tmp/err" || fail 'exit code'
    prints '^loss'
    run 0 run "$variant" generate --checkpoint "$tmp/trained" -p "First" -n 2 --temperature 0
    prints '^First'
    cp -r "$tmp/trained" "$tmp/broken" && echo '{' >"$tmp/broken/config.json"
    refused 1 'broken/config.json' run "$variant" generate --checkpoint "$tmp/broken" -p "First" -n 2
    # its folder is data; the user names the source, and training continues from its weights
    refused 2 'are not run' train "$tmp/trained" --text "$tmp/text" -o "$tmp/more" -n 2
    refused 2 'a model in C is a .c or .so file' train "$tmp/trained" --source "$tmp/text" --text "$tmp/text" -o "$tmp/more"
    run 0 train "$tmp/trained" --source "$variant" --text "$tmp/text" -o "$tmp/more" -n 2
    refused 2 'has no named tensors' run "$variant" inspect --taps
    run 0 inspect "$variant"
    prints 'output   logits       f32.B,T,256.'
    run 0 inspect "$tmp/trained"
    prints 'model       in C: .*alibi.c'
    trained_folder_alone
    # the suggested command works, whatever the command
    advised() { # advised COMMAND ARGS…: the folder alone is refused; the command of the message runs
        command=$1
        shift
        refused 2 "sinter $command .*alibi.c --checkpoint $tmp/trained" "$command" "$tmp/trained" "$@"
        run 0 $(sed -n "s|.*\($command \)alibi.c \(--checkpoint .*\)|\1$variant \2|p" "$tmp/err") "$@"
    }
    cp "$tmp/text" "$tmp/small" && advised eval "$tmp/small"
    advised generate -p First -n 2 --temperature 0
    advised inspect --near e --top 3
    advised compile -o "$tmp/made"
    says 'for native'
    says 'made/alibi.weights ([1-9][0-9.]* KB)'
    if grep -q 'weights are random' "$tmp/err"; then fail "a note about random weights: $what"; fi
    for f in alibi.o alibi.h alibi.weights; do [ -s "$tmp/made/$f" ] || fail "compile wrote no $f"; done
    run 0 run "$variant" compile -o "$tmp/random"
    says 'note: the weights are random; load trained ones with --checkpoint'
    cmp -s "$tmp/made/alibi.weights" "$tmp/random/alibi.weights" && fail "compile ignores --checkpoint"
    refused 1 'no-such-folder' compile "$variant" -o "$tmp/x" --checkpoint "$tmp/no-such-folder"
    # errors
    model_c() { printf '#include <sinter/models.h>\n%s\n' "$1" >"$tmp/bad.c"; }
    model_c 'SN_MODEL(m, o) { sn_nothing(m, o); }'
    refused 2 'bad.c does not compile:' run "$tmp/bad.c"
    says 'bad.c:2:.*sn_nothing'
    model_c 'void sn_nothing(void); SN_MODEL(m, o) { (void)m, (void)o; sn_nothing(); }'
    refused 2 'bad.c: undefined symbol: sn_nothing' run "$tmp/bad.c"
    model_c 'int x;'
    refused 2 'does not define a model: .* SN_MODEL' run "$tmp/bad.c"
    model_c '#undef SN_MODEL_VERSION
#define SN_MODEL_VERSION 1000
SN_MODEL(m, o) { (void)m, (void)o; }'
    refused 2 'was compiled for version 1000' run "$tmp/bad.c"
    model_c 'SN_MODEL(m, o) { (void)m, (void)o; }'
    refused 1 "the model 'bad' has none of the requested entries" run "$tmp/bad.c"
    model_c 'SN_MODEL(m, o) { (void)o; sn_entry_begin(m, "forward"); sn_add(sn_input(m, "x", SN_F32, 2), sn_input(m, "y", SN_F32, 3)); }'
    refused 1 'bad.c:2: add: ' run "$tmp/bad.c"
    long=$(printf 'a%.0s' $(seq 70)).c # a name that is longer than what is kept of it
    cp "$variant" "$tmp/$long"
    CFLAGS="-O1 -I$source/examples/variants" run 0 run "$tmp/$long"
    prints 'model       a*: '
    # cached models: counted, recompiled when corrupted, cleared
    run 0 cache
    prints '^models   [1-9]'
    for f in "$XDG_CACHE_HOME"/sinter/*.snm; do : >"$f"; done
    run 0 cache
    prints '^models   0,'
    run 0 run "$variant"
    run 0 cache
    prints '^models   1,'
    run 0 cache --clear models
    prints '^models   [1-9][0-9]* removed'
    # without a cache, several at once; leaves no files
    mkdir "$tmp/none"
    for i in 1 2 3 4; do
        TMPDIR="$tmp/none" "$sinter" explain "$variant" --entry decode --cache-dir none >"$tmp/out$i" 2>&1 || fail "explain $i" &
    done
    wait
    for i in 2 3 4; do cmp -s "$tmp/out1" "$tmp/out$i" || fail "one source, no cache, $i"; done
    [ -z "$(ls -A "$tmp/none")" ] || fail "left in TMPDIR: $(ls -A "$tmp/none")"
    # files of a killed process are removed by the next one; others stay
    mkdir -m 700 "$tmp/none/sinter-tmp-abcdef" "$tmp/none/sinter-tmp-notours" "$tmp/none/sinter-tmp-abcdef/m.tokenizer"
    echo weights | tee "$tmp/none/sinter-tmp-abcdef/model.safetensors" >"$tmp/none/sinter-tmp-abcdef/m.tokenizer/bpe"
    touch -d '1 hour ago' "$tmp/none"/*
    export TMPDIR="$tmp/none"
    run 0 generate "$stories" -n 1
    unset TMPDIR
    [ "$(ls "$tmp/none")" = sinter-tmp-notours ] || fail "in TMPDIR: $(ls "$tmp/none")"
    printf 'no object' >"$tmp/bad.so"
    refused 2 'bad.so' run "$tmp/bad.so"
    refused 1 'missing.c: No such file' run "$tmp/missing.c"
    refused 2 'is not a model in C' run "$source"
    refused 2 'did you mean explain' run "$variant" expalin
    refused 2 'not a command that takes a model' run "$variant" cache
    refused 2 'checkpoint is for models in C' generate "$source" --checkpoint "$tmp"
    refused 1 'none.safetensors' run "$variant" generate --checkpoint "$tmp/none.safetensors"
    CC="$tmp/none/cc" refused 2 'cannot run .*/none/cc' run "$variant"
    run 0 run --help
    prints 'SN_MODEL'
}

# A command never runs code that a model folder names.
check_plain() { # a model without tokens and without names
    printf '%s\n' '#include <sinter/models.h>' 'SN_MODEL(m, o) {' '    sn_entry_begin(m, "forward");' \
        '    sn_output("y", sn_exp(sn_input(m, "x", SN_F32, 4)));' '}' >"$tmp/plain.c"
    run 0 run "$tmp/plain.c" bench --rounds 5 --seconds 0 && prints 'plain forward'
    refused 2 'plain has no named tensors; name them in its code: sn_name' inspect "$tmp/plain.c" --taps
}

check_folder_is_data() {
    printf '#include <fcntl.h>\n__attribute__((constructor)) static void f(void) { creat("%s/pwned", 0600); }\n' "$tmp" >"$tmp/evil.c"
    ${CC:-cc} -shared -fPIC "$tmp/evil.c" -o "$tmp/evil.so" || fail "cc"
    run 2 run "$tmp/evil.so"
    [ -e "$tmp/pwned" ] || fail "the constructor makes no file"
    rm "$tmp/pwned"
    head -c 3000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
    for evil in "$tmp/evil.c" ../evil.so evil.so "$tmp/evil.so"; do
        model
        cp "$tmp/evil.so" "$tmp/model/"
        sed -i "1s|{|{\"source\": \"$evil\",|" "$tmp/model/config.json"
        refused 2 'are not run: name the C file, --source' train "$tmp/model" --text "$tmp/text" -o "$tmp/x"
        refused 2 'are not run' compile --train "$tmp/model" -o "$tmp/x"
    done
    for line in 'generate M -n 1' 'eval M T' 'explain M' 'compile M -o X' 'compile M --exe -o X' \
        'bench model M' 'translate M T' 'embed M T' 'fill M T' 'classify M T' 'answer M T' 'inspect M' \
        'inspect M -p a --logits' 'run M' 'tokenizer encode M' 'import M -o X' 'opt M'; do
        line=$(echo "$line" | sed "s|M|$tmp/model|; s|T|$tmp/text|; s|X|$tmp/x|")
        # shellcheck disable=SC2086
        timeout 3 "$sinter" $line >"$tmp/out" 2>"$tmp/err" </dev/null
        cases=$((cases + 1)) what=$line
        [ ! -e "$tmp/pwned" ] || fail "ran code of a folder: $line"
    done
    [ ! -e "$tmp/pwned" ] || fail "ran code of a folder"
}

check_other_commands() {
    run 0 --version
    prints '^sinter [0-9]'
    run 0 --help
    for c in generate eval import inspect explain bench opt train tokenizer cache; do
        prints "^  $c "
    done
    for c in generate eval import inspect explain opt; do
        run 0 help $c
        cp "$tmp/out" "$tmp/a"
        prints "^usage: sinter $c"
        run 0 $c --help
        same "$tmp/a"
    done
    model
    run 0 inspect "$tmp/model" --tensors
    prints 'llama: 5 layers'
    prints 'llama-bpe, 512 tokens'
    prints 'model.layers.4.mlp.down_proj.weight.*f32.*\[64,172\]'
    mkdir "$tmp/stale"
    echo '{}' >"$tmp/stale/tokenizer.json"
    refused 1 'stale/tokenizer.json would take precedence over' import "$stories" -o "$tmp/stale"
    [ ! -e "$tmp/stale/model.safetensors" ] || fail "imported beside another tokenizer"
    run 0 import --list-formats
    prints '^llama2c'
    # the commands in SOURCE.txt of the shipped models
    for f in "$source"/examples/models/*/SOURCE.txt; do
        line=$(sed -n 's/^Import: sinter //p' "$f" | sed "s|examples/|$source/examples/|g; s|OUT|$tmp/shipped|")
        # shellcheck disable=SC2086
        run 0 $line
        run 0 inspect "$tmp/shipped"
        prints '^weights  *[0-9]* tensors'
        rm -rf "$tmp/shipped"
    done
    run 0 opt --list-passes
    prints '^simplify'
    sn=$(ls "$source"/tests/passes/text/*.sn | head -1)
    run 0 opt "$sn"
    prints '^entry'
    refused 2 "nopass" opt --passes=nopass "$sn"
    # deep graphs do not grow the C stack
    awk 'BEGIN { print "module deep\nentry f {\n  %0: f32[8] = input {name=\"x\"}"
        for (i = 1; i < 30000; i++) printf "  %%%d: f32[8] = tanh %%%d\n", i, i - 1
        print "  output \"y\" = %29999\n}" }' >"$tmp/deep.sn"
    (ulimit -s 512 && "$sinter" opt --passes=simplify,raise,expand,hoist "$tmp/deep.sn" >/dev/null 2>"$tmp/err") ||
        fail "a chain of 30000 operations"
    echo 'nonsense' >"$tmp/bad.sn"
    refused 1 'bad.sn:1' opt "$tmp/bad.sn"
    refused 1 'bad.sn:1' explain "$tmp/bad.sn"
}

# Inspecting a model while it reads: weights sum to 1, the lens ends at the prediction.
check_inspect() {
    model
    run 0 inspect "$tmp/model" --taps
    prints 'forward *layers.4.attention *f32\[B,8,T,T\]'
    run 0 inspect "$tmp/model" -p "Once upon a time there was" --tap layers.2.attention -o "$tmp/map.npy"
    prints 'layers.2.attention \[1,8,7,7\]'
    tail -c +129 "$tmp/map.npy" | od -An -v -w28 -tf4 | awk '
        { s = 0; for (i = 1; i <= NF; i++) s += $i; if (s < 0.99999 || s > 1.00001 || NF != 7) bad++ }
        { row = (NR - 1) % 7; for (i = row + 2; i <= NF; i++) if ($i != 0) bad++ }
        END { exit bad || NR != 56 }' || fail "rows of attention weights"
    run 0 inspect "$tmp/model" -p "Once upon a time there was" --tap layers.2.attention --level 0
    run 0 inspect "$tmp/model" -p "Once upon a time there was" --logit-lens --top 2
    prints '^after . was.:$'
    prints "^layer 4 .* 0.9[0-9]* ' a'"
    [ "$(wc -l <"$tmp/out")" = 7 ] || fail "a line for the embedding and each layer"
    run 0 inspect "$tmp/model" -p "Once upon a time" --logit-lens --position 1
    prints "^after ' Once':"
    run 0 inspect "$tmp/model" -p "Once upon a time there was" --attention all -o "$tmp/all.svg"
    prints '5 attention layers, 7 tokens'
    [ "$(grep -c "fill='none'" "$tmp/all.svg")" = 40 ] || fail "a square for each of 40 heads"
    run 0 inspect "$tmp/model" -p "Once upon a time there was" --attention layers.2:1 -o "$tmp/one.svg"
    grep -q 'layers.2.attention' "$tmp/one.svg" && grep -q '>head 1<' "$tmp/one.svg" || fail "the picture's title"
    # little space is left empty beside the squares
    wide=$(sed -n "1s/.* width='\([0-9]*\)'.*/\1/p" "$tmp/all.svg")
    right=$(sed -n "s/.*x='\([0-9]*\)'.* width='\([0-9]*\)'.*fill='none'.*/\1 \2/p" "$tmp/all.svg" |
        awk '$1 + $2 > r { r = $1 + $2 } END { print r }')
    [ $((wide - right)) -lt $((wide / 10)) ] || fail "a picture of $wide, used to $right"
    run 0 inspect "$tmp/model" --near he --top 1
    prints "358  ' she'"
    run 0 inspect "$tmp/model" --analogy "he his she" --top 1
    prints "311  ' her'"
    run 0 import "$source/examples/models/aren-transliteration/model.bin" -o "$tmp/aren"
    run 0 inspect "$tmp/aren" -p آتزمون --result atzmon --attention decoder.4.cross:2 -o "$tmp/cross.svg"
    [ "$(grep -c '<text' "$tmp/cross.svg")" = 17 ] || fail "labels: title, scale, layer, head, 6 keys, 7 queries"
    run 0 inspect "$tmp/aren" --near ا --top 1
    prints "in encoder.embed_tokens.weight"
    refused 2 'is for encoder-decoders' inspect "$tmp/model" -p a --result b --attention 0
    refused 2 'not a single token' inspect "$tmp/model" --near zebra
    refused 2 'three words' inspect "$tmp/model" --analogy "he his"
    refused 2 'one query at a time' inspect "$tmp/model" --taps --near he
    refused 2 'no attention layer' inspect "$tmp/model" -p a --attention 5
    refused 2 'has heads 0 to 7' inspect "$tmp/model" -p a --attention 0:8
    refused 2 'no tensor named' inspect "$tmp/model" -p a --tap nothing
    refused 2 'no text to read' inspect "$tmp/model" --attention 0
    refused 1 'position 9 is outside a text' inspect "$tmp/model" -p a --logit-lens --position 9
    refused 1 'cannot' inspect "$tmp/model" -p a --attention 0 -o "$tmp/none/map.svg"
    refused 2 'random weights' inspect --preset gpt2 --near he
}

check_command_line() {
    refused 2 'usage: sinter COMMAND'
    refused 2 "unknown command 'generat'; did you mean generate" generat
    refused 2 "unknown command 'xyzzy'" xyzzy
    refused 2 "unknown command 'nothing'" help nothing
    refused 2 'did you mean --temperature' generate "$nano" --temprature 0
    refused 2 "unknown option '--lenght'$" generate "$nano" --lenght 3
    refused 2 "unknown option '-Q'" generate "$nano" -Q
    refused 2 'needs a value' generate "$nano" -p
    refused 2 'takes no value' generate "$nano" --stats=1
    refused 2 'unexpected argument' generate "$nano" "$nano"
    refused 2 'an integer' generate "$nano" -n many
    refused 2 'an integer from 0' generate "$nano" -n -1
    refused 2 'an integer' generate "$nano" -n 99999999999999999999
    refused 2 'a number' generate "$nano" --temperature nan
    refused 2 'a number' generate "$nano" --temperature -1
    refused 2 'from 0 to 4' generate "$nano" --level 5
    refused 2 'auto|native|onednn' generate "$nano" --backend mine
    refused 2 'a number from' generate "$nano" -p 0 --top-p 0
    refused 2 'give a model' generate
    refused 2 'not both' generate "$nano" --preset gpt2
    refused 2 'known: gpt2' generate --preset gpt5
    refused 2 'do not predict the next token' generate --preset bert-base --prompt-ids 0
    refused 2 'prompt contradicts --prompt-ids' generate "$nano" -p 0 --prompt-ids 0
    # tuned choices are measured, cached, shown and deleted
    run 0 generate "$nano" -p "0 2 1 1 0 2" -n 2 --tune --cache-dir "$tmp/cache"
    run 0 cache --cache-dir "$tmp/cache"
    prints '^kernels  *[1-9]'
    prints '^tuned  *[0-9]'
    run 0 cache --cache-dir "$tmp/cache" --clear all
    prints '^kernels  *[1-9][0-9]* removed'
    run 0 cache --cache-dir "$tmp/cache"
    prints '^kernels  *0'
    prints '^tuned  *0'
    : >"$tmp/file"
    refused 1 'compiled kernels are not cached' cache --cache-dir "$tmp/file"
    refused 1 "cache-dir $tmp/nosuch: No such file" cache --cache-dir "$tmp/nosuch"
    [ ! -e "$tmp/nosuch" ] || fail "'sinter cache' made a folder"
    # one value per option; threads and CPUs; SINTER_DEBUG=help ends the program
    refused 2 "prompt is given twice, 'a' and 'b'" generate "$nano" -p a -p b
    refused 2 'missing INPUT (' tokenizer train
    run 0 explain "$nano" --threads 1024
    says 'note: 1024 threads share [0-9]* CPUs'
    SINTER_DEBUG=help run 0 generate "$nano" -p a
    says '^  dump='
    [ ! -s "$tmp/out" ] || fail 'SINTER_DEBUG=help: ran as well'
    # contradictions, also among options of the compiler
    refused 2 'tune contradicts --cache-dir none: tuned choices are stored' generate "$nano" -p 0 --tune --cache-dir none
    refused 2 'tune contradicts --backend onednn' eval "$nano" "$tmp/text" --tune --backend onednn
    refused 2 'backend onednn contradicts --weights int8' generate "$nano" -p 0 --weights int8 --backend onednn
    refused 2 'strict-fusion contradicts --level 0' explain "$nano" --level 0 --strict-fusion
    refused 2 'strict-fusion contradicts --off raise' explain "$nano" --off raise --strict-fusion
    refused 2 'resume contradicts --force' train "$nano" -o "$tmp/x" --resume --force
    refused 2 'resume contradicts --seed' train "$nano" -o "$tmp/x" --resume --seed 3
    refused 2 'train contradicts --exe' compile --train "$tmp/config" --exe
    refused 2 'static has no effect without --exe' compile "$nano" --static -o "$tmp/x"
    refused 2 'position has no effect without --logit-lens' inspect "$nano" --position 3
    refused 2 'labels has no effect without --images' classify "$nano" -p a --labels "$tmp/x"
    refused 2 'sweep contradicts --mask' bench attention --sweep --mask causal
    refused 2 'tune contradicts --backends onednn' bench model gpt2 --tune --backends onednn
    refused 2 'an integer from 0' generate "$nano" -p 0 --threads -1
    refused 2 'looked up in the cache' generate "$nano" -p 0 --tune-sizes T=8 --cache-dir none
    refused 2 'tune sizes .T.: write them' generate "$nano" -p 0 --tune-sizes T
    refused 2 "no dimension 'X'" generate "$nano" -p 0 --tune-sizes X=3
    refused 2 'give a model folder' inspect
    for version in version -V --version; do
        run 0 $version
        prints '^sinter [0-9]'
    done
    run 0 help bench model
    prints '^usage: sinter bench model'
    run 0 bench help
    refused 2 "unknown benchmark 'modle'; did you mean model" bench modle
    # cached kernels are recompiled if a dump is requested
    for turn in 1 2; do
        mkdir "$tmp/dump$turn"
        SINTER_DEBUG=dump="$tmp/dump$turn" "$sinter" generate "$nano" -p "0 2 1" -n 1 >/dev/null 2>&1
    done
    [ "$(ls "$tmp/dump1" | grep -c '\.ll$')" = "$(ls "$tmp/dump2" | grep -c '\.ll$')" ] || fail "dump of a warm cache lacks kernels"
    [ -n "$(ls "$tmp/dump2" | grep '\.ll$')" ] || fail "no LLVM IR was dumped"
    # - is standard input for texts, never an output
    refused 1 'standard input is not supported here' import "$stories" -o "$tmp/x" --tokenizer -
    refused 1 'standard output is not a folder' import "$stories" -o -
    echo x >"$tmp/m.gguf"
    refused 1 'a GGUF file begins with' generate "$tmp/m.gguf" -p a
    refused 1 'preset gpt2 is this size' generate gpt2 -p a
    refused 2 'give the output folder' import "$stories"
    refused 2 'unknown import format' import "$stories" -o "$tmp/x" --format pickle
}

check_bad_models() {
    # nothing in the folder is ignored silently
    model
    sed -i 's/"num_hidden_layers":.*5/"num_hidden_layers": 4/' "$tmp/model/config.json"
    refused 1 'no parameters for 9 of the tensors (model.layers.4' generate "$tmp/model" -p a
    for key in '"sliding_window": 16' '"quantization_config": {}' '"attn_logit_softcapping": 30.0' \
        '"partial_rotary_factor": 0.5' '"use_qk_norm": true'; do
        model
        sed -i "s/^{/{$key,/" "$tmp/model/config.json"
        name=${key#\"}
        refused 1 "\"${name%%\"*}\"" generate "$tmp/model" -p a -n 1
    done
    model
    sed -i 's/^{/{"sliding_window": 4096, "final_logit_softcapping": null, "partial_rotary_factor": 1.0,/' "$tmp/model/config.json"
    run 0 generate "$tmp/model" -p a -n 1 --temperature 0
    says_nothing
    model # keys that nobody reads are told, harmless ones and null not
    sed -i 's/^{/{"n_hed": 4, "rms_norm_epsilon": null, "architectures": ["LlamaForCausalLM"], "_name_or_path": "x", "transformers_version": "4.40", "use_cache": true, "initializer_range": 0.02, "attention_dropout": 0.0, "pad_token_id": 0,/' "$tmp/model/config.json"
    run 0 generate "$tmp/model" -p a -n 1 --temperature 0
    says 'config.json: "n_hed" has no effect on llama models: is it misspelt?$'
    [ "$(wc -l <"$tmp/err")" = 1 ] || fail "more than one note: $what"
    refused 1 'cannot open model folder' generate "$tmp/none"
    mkdir "$tmp/empty"
    refused 1 'no config.json' generate "$tmp/empty"
    : >"$tmp/file"
    refused 1 'the file is empty' generate "$tmp/file"
    head -c 4000 "$sinter" >"$tmp/file"
    refused 1 'known' generate "$tmp/file"
    for size in 10 27 28 5000 1056539; do # a checkpoint cut off anywhere
        head -c $size "$stories" >"$tmp/cut.bin"
        refused 1 'cut.bin' import "$tmp/cut.bin" -o "$tmp/x"
        [ ! -e "$tmp/x/config.json" ] || fail "import of a truncated file wrote a model"
    done
    refused 1 'none' import "$tmp/none" -o "$tmp/x"
    refused 1 'none' import "$stories" -o "$tmp/x" --tokenizer "$tmp/none"
    refused 1 'file' import "$stories" -o "$tmp/file/x"

    model # what does not belong together is known before anything is compiled
    sed 's/"num_hidden_layers":[^,]*/"num_hidden_layers": 4000/' "$tmp/model/config.json" >"$tmp/c" && mv "$tmp/c" "$tmp/model/config.json"
    refused 1 'the weights have only [0-9]* tensors' generate "$tmp/model"
    sed 's/"num_hidden_layers": 4000/"num_hidden_layers": 6/' "$tmp/model/config.json" >"$tmp/c" && mv "$tmp/c" "$tmp/model/config.json"
    refused 1 'layers.5.*is missing' generate "$tmp/model" --cache-dir "$tmp/cold"
    [ -z "$(find "$tmp/cold" -type f 2>/dev/null)" ] || fail "kernels were compiled for weights of another model"

    model # the folder's files, spoiled one by one
    head -c 900000 "$tmp/model/model.safetensors" >"$tmp/cut" && mv "$tmp/cut" "$tmp/model/model.safetensors"
    refused 1 'model.safetensors' generate "$tmp/model"
    model
    printf '\377\377\377\377\377\377\377\177' | dd of="$tmp/model/model.safetensors" conv=notrunc 2>/dev/null
    refused 1 'model.safetensors' generate "$tmp/model"
    model
    sed -i 's/"shape":\[512,64\]/"shape":[64,512]/' "$tmp/model/model.safetensors"
    refused 1 'embed_tokens.weight" has shape .64, 512., expected .512, 64.$' generate "$tmp/model"
    model
    sed -i 's/"dtype":"F32","shape":\[512,64\]/"dtype":"I32","shape":[512,64]/' "$tmp/model/model.safetensors"
    refused 1 'embed_tokens.weight.*i32' generate "$tmp/model"
    model
    sed -i 's/model.norm.weight/model.norm.wright/' "$tmp/model/model.safetensors"
    refused 1 'model.norm.weight' generate "$tmp/model"
    model
    echo '{"model_type": ' >"$tmp/model/config.json"
    refused 1 'not valid JSON' generate "$tmp/model"
    model
    sed -i 's/"num_attention_heads":.*,/"num_attention_heads": 7,/' "$tmp/model/config.json"
    refused 1 'num_attention_heads' generate "$tmp/model"
    model
    sed -i 's/"model_type":.*,/"model_type": "gpt9",/' "$tmp/model/config.json"
    refused 1 'gpt9' generate "$tmp/model"
    model
    sed -i 's/"hidden_size":.*,/"hidden_size": 128,/' "$tmp/model/config.json"
    refused 1 'embed_tokens.weight' generate "$tmp/model"
    model
    head -c 1000 "$tmp/model/tokenizer.bin" >"$tmp/cut" && mv "$tmp/cut" "$tmp/model/tokenizer.bin"
    refused 1 'tokenizer.bin' generate "$tmp/model"
    model
    refused 1 'do not match' generate "$tmp/model" --tokenizer "$source/tests/data/tokenizers/gpt2"
    refused 1 'no such file' generate "$tmp/model" --tokenizer "$tmp/none"
}

check_bad_requests() {
    i=0
    while [ $i -lt 80 ]; do
        printf 'a long story without an end, and on it goes; '
        i=$((i + 1))
    done >"$tmp/long"
    refused 1 'but the context holds only 512' generate "$stories" -f "$tmp/long"
    refused 1 'but the context holds only 4' generate "$stories" -p 'Once upon a time' --context 4
    refused 1 'requested context of 600 exceeds' generate "$stories" --context 600
    refused 1 'token 512 (number 1) is outside the vocabulary 0..511' generate "$stories" --prompt-ids '1 512'
    refused 2 'error at character 3' generate "$stories" --prompt-ids '1 x'
    refused 2 'error at character 1' generate "$stories" --prompt-ids '-1'
    refused 2 'has no tokenizer: pass token ids.*integers' generate "$nano" -p 'sort this'
    refused 1 'outside the vocabulary 0..2' generate "$nano" -p '0 1 3'
    refused 2 'the prompt is empty' generate "$nano"
    refused 1 'cannot open' generate "$stories" -f "$tmp/none"
    # a context costs what is used; one that must fit and does not is refused
    run 0 import "$stories" -o "$tmp/far"
    sed -i 's/\("max_position_embeddings":\)[^,]*/\1 16777216/' "$tmp/far/config.json"
    run 0 generate "$tmp/far" -n 3 --temperature 0
    limit=$(ulimit -S -v)
    if ! grep -q __asan_init "$sinter" && ulimit -S -v 16000000 2>/dev/null; then # 21 GB in 16
        refused 1 'needs .* GB of memory for keys and values' generate "$tmp/far" -n 3 --context 16777216
        ulimit -S -v "$limit"
    fi
    : >"$tmp/file" # a cache that cannot be: works, with a note
    run 0 generate "$stories" -n 3 --temperature 0 --cache-dir "$tmp/file/cache"
    prints '^Once'
    says 'note: .*cache'
    run 0 generate "$stories" -n 3 --temperature 0 --cache-dir none
    # targets: slower but working without AVX-512; others cannot run here
    run 0 generate "$nano" -p "0 2 1 1 0 2" -n 6 --temperature 0 --target x86-64-v2
    prints '0 0 1 1 2 2$'
    refused 1 'aarch64' generate "$nano" -p 0 --target aarch64
    refused 2 '^sinter generate: there is no pass .fuze.; passes are .*fuse' generate "$nano" -p 0 --off fuze
    for off in 'raise+fuze' fuse; do
        export SINTER_DEBUG=off=$off
        case $off in fuse) names='without expand and fuse' ;; *) names='there is no pass .fuze.; passes are .*fuse' ;; esac
        refused 2 "$names" generate "$nano" -p 0
        unset SINTER_DEBUG
    done
    refused 1 'pentium9' generate "$nano" -p 0 --target pentium9
    if [ -c /dev/full ]; then
        "$sinter" generate "$nano" -p 0 -n 2 >/dev/full 2>"$tmp/err"
        [ $? = 1 ] || fail "a full disk is not noticed"
        says 'cannot write'
    fi
    # a file size limit: an error, and no partly written file
    mkdir -p "$tmp/disk"
    run 0 import "$nano" -o "$tmp/nano"
    (trap '' XFSZ && ulimit -f 4 && "$sinter" generate "$tmp/nano" -p 0 -n 2 --cache-dir none \
        --profile "$tmp/disk/profile.json" >"$tmp/out" 2>"$tmp/err")
    [ $? = 1 ] || fail "a profile that is cut off is not noticed"
    says 'profile.json: write failed'
    [ -z "$(ls -A "$tmp/disk")" ] || fail "part of a profile is left"
    if [ -c /dev/zero ]; then # no end
        refused 1 '256 MiB: write the text to a file' generate "$nano" -f /dev/zero
        refused 1 'not a regular file' import /dev/zero -o "$tmp/none"
    fi
}

check_tokenizer() {
    text=$source/examples/data/tinyshakespeare.txt
    head -c 20000 "$text" >"$tmp/text"
    for kind in bpe word char; do
        run 0 tokenizer train --kind $kind --vocab 400 "$tmp/text" -o "$tmp/$kind"
        prints '^vocabulary  *[0-9]'
        "$sinter" tokenizer encode "$tmp/$kind" <"$tmp/text" >"$tmp/ids" 2>"$tmp/err" || fail "encode"
        "$sinter" tokenizer decode "$tmp/$kind" <"$tmp/ids" >"$tmp/out" 2>"$tmp/err" || fail "decode"
        [ $kind = bpe ] && ! cmp -s "$tmp/out" "$tmp/text" && fail "bpe: another text comes back"
    done
    refused 2 "'learn': expected train" tokenizer learn "$tmp/text"
    refused 2 'no output folder' tokenizer train "$tmp/text"
    refused 1 'is empty' tokenizer train - -o "$tmp/none"
    refused 1 'no_such' tokenizer encode "$tmp/no_such"
}

check_train() {
    head -c 6000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
    cat >"$tmp/run.json" <<'END'
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
 "data": {"text": "text"}, "training": {"steps": 30, "batch": 4, "block": 16, "validate_every": 10}}
END
    run 0 train "$tmp/run.json" -o "$tmp/m"
    prints '^validation_loss  [0-9]'
    says 'step 20  loss [0-9.]*  validation [0-9.]*'
    for f in config.json model.safetensors vocabulary.json checkpoint.safetensors metrics.jsonl loss.svg; do
        [ -s "$tmp/m/$f" ] || fail "train wrote no $f"
    done
    grep -q '^{"step": 30, .*"validation_loss": [0-9.]*.*}$' "$tmp/m/metrics.jsonl" || fail "metrics"
    run 0 generate "$tmp/m" -p 'First' -n 10 --seed 2
    prints '^First'
    run 0 eval "$tmp/m" "$tmp/text"
    run 0 inspect "$tmp/m"
    refused 2 'contains a training run' train "$tmp/run.json" -o "$tmp/m"
    run 0 train "$tmp/run.json" -o "$tmp/m" --resume --steps 10
    says 'nothing to do: .* already at step 30'
    ! grep -q -e nan -e gflops "$tmp/out" || fail "numbers of no step: $what"
    run 0 train "$tmp/run.json" -o "$tmp/m" --resume --steps 35
    prints '^steps  *35$'; refused 2 'other settings.* compute bf16' train "$tmp/run.json" -o "$tmp/m" --resume --compute bf16
    sed 's/"n_layer"/"n_layrs": 2, &/' "$tmp/run.json" >"$tmp/typo.json"
    run 0 train "$tmp/typo.json" -o "$tmp/typo" --steps 1
    says 'note: "model": "n_layrs" has no effect on a gpt2'
    # Ctrl-C and the other signals save; more steps than any machine makes before the signal
    sed 's/"steps": 30/"steps": 1000000000/' "$tmp/run.json" >"$tmp/long.json"
    for signal in INT:130 TERM:143 HUP:129; do # under nohup the tests themselves ignore HUP
        rm -rf "$tmp/n"
        env --default-signal=HUP "$sinter" train "$tmp/long.json" -o "$tmp/n" >"$tmp/out" 2>"$tmp/err" &
        child=$!
        until [ -s "$tmp/n/metrics.jsonl" ] || ! kill -0 $child 2>/dev/null; do
            sleep 0.1
        done
        if [ $signal = INT:130 ]; then # meanwhile nobody else trains there
            "$sinter" train "$tmp/run.json" -o "$tmp/n" --force >"$tmp/out2" 2>"$tmp/err2"
            [ $? = 1 ] && grep -q 'another process is training in this folder' "$tmp/err2" || fail "two trainers"
        fi
        kill -${signal%:*} $child
        wait $child
        code=$? what="train, interrupted by $signal"
        [ $code = ${signal#*:} ] || fail "exit code $code: $what"
        says 'interrupted after step .*--resume'
        [ -s "$tmp/n/model.safetensors" ] || fail "no model: $what"
        [ -s "$tmp/n/checkpoint.safetensors" ] || fail "no checkpoint: $what"
    done
    run 0 train "$tmp/long.json" -o "$tmp/n" --resume -n 1
    # before the first step a signal ends the process at once
    "$sinter" train "$tmp/long.json" -o "$tmp/early" --cache-dir none >"$tmp/out" 2>"$tmp/err" &
    child=$!
    kill -TERM $child
    wait $child
    code=$? what="train, ended at once"
    [ $code = 143 ] || fail "exit code $code: $what"
    # nohup: survives the loss of the terminal
    (trap '' HUP; exec "$sinter" train "$tmp/long.json" -o "$tmp/nohup") >"$tmp/out" 2>"$tmp/err" &
    child=$!
    until [ -s "$tmp/nohup/metrics.jsonl" ] || ! kill -0 $child 2>/dev/null; do
        sleep 0.1
    done
    kill -HUP $child
    sleep 0.2
    kill -0 $child 2>/dev/null || fail "nohup: SIGHUP ended the run"
    kill -TERM $child
    wait $child
    # a trained model is fine-tuned with its own tokenizer, and stays unchanged
    run 0 train "$tmp/m" --text "$tmp/text" --steps 3 --seed 5 -o "$tmp/further"
    says 'fine-tunes .*/m at a rate of 5e-05 after a warm-up of 100 steps'
    run 0 generate "$tmp/further" -p 'First' -n 3
    run 0 import "$stories" -o "$tmp/stories"
    run 0 eval "$tmp/stories" "$tmp/text"
    before=$(sed -n 's/^loss  *//p' "$tmp/out")
    run 0 train "$tmp/stories" --text "$tmp/text" -n 10 -o "$tmp/tuned" --block 32 --batch 2
    run 0 eval "$tmp/tuned" "$tmp/text"
    after=$(sed -n 's/^loss  *//p' "$tmp/out")
    awk "BEGIN { exit !($before > 1 && $after < $before + 0.01) }" || fail "fine-tuning: loss $before, then $after"
    # overrides on the command line
    run 0 train "$tmp/m" --text "$tmp/text" -n 4 -o "$tmp/flags" --rate 0.01 --warmup 2 --batch 3 --block 8 --validate-every 2 --optimizer muon --profile "$tmp/profile"
    says '0.01 after a warm-up of 2 steps'
    says ' 4 .* gemm ' && says 'waiting at barriers'
    grep -q '"entry":"train_step"' "$tmp/profile" || fail '--profile'
    says 'rows of 8 tokens'
    says 'step 2 .*validation'
    grep -q '"step": 4, .*"rate": 0.01,' "$tmp/flags/metrics.jsonl" || fail "--rate"
    refused 2 'created with other settings' train "$tmp/m" --text "$tmp/text" -n 5 -o "$tmp/flags" --resume
    run 0 train "$tmp/m" --text "$tmp/text" -n 6 -o "$tmp/flags" --rate 0.01 --warmup 2 --batch 3 --block 8 --validate-every 2 --optimizer muon --resume
    refused 2 'would be overwritten' train "$tmp/m" --text "$tmp/text" -o "$tmp/m" --force
    refused 2 'is not from a training run' train "$tmp/run.json" -o "$tmp/stories"
    run 0 help train
    prints 'docs/training.md'
    refused 2 'no output folder' train "$tmp/run.json"
    refused 2 'training stores weights as f32' train "$tmp/run.json" -o "$tmp/x" --weights int8
    refused 1 'no_such' train "$tmp/no_such.json" -o "$tmp/x"
    echo '{"model": ' >"$tmp/bad.json"
    refused 1 'not valid JSON' train "$tmp/bad.json" -o "$tmp/x"
}

"check_$section"
echo "$section: $cases runs, $failures failures"
[ $failures = 0 ] && [ $cases -gt 0 ]
