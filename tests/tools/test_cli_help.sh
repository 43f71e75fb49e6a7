#!/bin/sh
# test_cli_help.sh SINTER SOURCE_DIR: the options of every command, and the examples of every help text.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG NO_COLOR
cd "$source" || exit 1
. "$source/tests/tools/cli_run.sh"
nano=$source/examples/models/nano-gpt-sort/gpt-nano-sort-model.json

refused 2 'verbose contradicts --quiet' models -q -v
run 0 eval --help --color always
run 2 generate "$nano" -p a --color always --levl 3
says "$(printf '\033')"
NO_COLOR=1 run 2 generate "$nano" --levl 3
if grep -q "$(printf '\033')" "$tmp/err"; then fail "colours where there is no terminal"; fi
run 0 import "$nano" -o "$tmp/quiet"
says 'wrote .*/quiet (. files, .* KB)'
refused 1 'quiet holds a model: config.json exists' import "$nano" -o "$tmp/quiet" -q
run 0 import "$nano" -o "$tmp/quiet" -q --force
says_nothing
run 0 answer --help
prints '  -q, --question' && prints '      --quiet'
run 0 generate "$nano" -p "0 2 1" -n 1 --temperature 0 -v
says '^compile  *[0-9.]* s'

# arithmetic by measured rates; without an instruction for it bf16 is not faster
run 0 generate "$nano" -p "0 2 1" -n 1 --temperature 0 --compute auto
says '^sinter generate: note: compute auto: .*: a thread has .* GFLOP/s in bf16, .* in f32\(, [0-9]* by AMX\( (bf16-unordered)\)\?\)\?$'
run 0 generate "$nano" -p "0 2 1" -n 1 --temperature 0 --compute bf16 --target x86-64-v3
says '^sinter generate: note: compute bf16: not faster than f32 on this machine: a thread has .* GFLOP/s in bf16'
run 0 generate "$nano" -p "0 2 1" -n 1 --temperature 0 --compute bf16-unordered
says '^sinter generate: note: compute bf16-unordered: \(AMX\|as bf16\): a thread has .* GFLOP/s in bf16'
refused 2 'compute is .half.; allowed: stored|auto|f32|bf16|bf16-unordered|int8' generate "$nano" -p 0 --compute half
refused 2 'compute int8 contradicts --backend onednn' generate "$nano" -p 0 --compute int8 --backend onednn
run 0 env
grep -q '^oneDNN  *none' "$tmp/out" || run 0 generate "$nano" -p "0 2 1" -n 1 --temperature 0 --compute bf16 --backend onednn
run 0 compile "$nano" -o "$tmp/auto" --compute auto --target znver5,x86-64-v3
says 'note: compute auto: f32, not measured; target x86-64-v3: it has no avx512bf16'

# what does not compile does not load LLVM, nor oneDNN
if ! ldd "$sinter" | grep -q libLLVM; then
    for line in --version 'help eval' 'generate --levl 3' 'import none -o none' "tokenizer encode $source/examples/models/stories260K"; do
        # shellcheck disable=SC2086
        LD_DEBUG=files "$sinter" $line >"$tmp/out" 2>&1 </dev/null
        cases=$((cases + 1)) what=$line
        grep -q 'libc.so' "$tmp/out" && ! grep -q -e libLLVM -e libdnnl "$tmp/out" || fail "a library that is not needed"
    done
fi

# files from standard input
digits=$source/examples/data/mnist-1000
cases=$((cases + 1)) what='classify -i -'
"$sinter" classify "$source/examples/models/mnist-vit/mnist_vit.npz" -i - --labels "$digits-labels.idx1-ubyte" \
    <"$digits-images.idx3-ubyte" >"$tmp/out" 2>"$tmp/err" || fail 'exit code'
prints '^858 of 1000$'

# Ctrl-C keeps what is done, with exit code 130
stories=$source/examples/models/stories260K/stories260K.bin
stopped() { # as soon as the program catches SIGINT
    cases=$((cases + 1)) what="$*, interrupted"
    "$sinter" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
    child=$!
    i=0
    while [ $i -lt 300 ] && ! awk '/^Name/ {on = $2 == "sinter"} /^SigCgt/ {exit !(on && substr($2, 16) ~ /[2367abef]/)}' \
        "/proc/$child/status" 2>/dev/null; do
        sleep 0.1
        i=$((i + 1))
    done
    sleep 0.5
    kill -INT $child 2>/dev/null
    (sleep 20 && kill -KILL $child) >/dev/null 2>&1 & # a program that ignores it must not last
    guard=$!
    wait $child
    code=$?
    kill $guard 2>/dev/null
    [ $code = 130 ] || fail "exit code $code"
    says 'interrupted: '
}
yes 'Once upon a time there was a dog.' | head -n 30000 >"$tmp/many"
if [ -r /proc/self/status ]; then
    stopped generate "$stories" -f "$tmp/many" --batch 1 -n 3
    prints '^==> 1 <=='
    stopped eval "$stories" "$tmp/many" --json
    prints '"complete": false'
fi

# every command has examples, and each of them is a right command line
all=$("$sinter" help | awk '/^  [a-z]+  / {print $1}')
what=$("$sinter" bench --help | awk '/^  [a-z]+  / {print "bench " $1}')
echo "$all
$what" >"$tmp/commands"
while read -r command; do
    [ "$command" = bench ] && continue
    # shellcheck disable=SC2086
    "$sinter" $command --help | awk '/^examples:/ {on = 1; next} on && /^  / {print substr($0, 3); next} {on = 0}' >"$tmp/lines"
    [ -s "$tmp/lines" ] || fail "no examples: $command"
    # shellcheck disable=SC2086
    "$sinter" $command --help | grep -E '^ {2,6}-' | grep -E '^.{28}[^ ] [^ ]' && fail "a single space after an option"
    while read -r line; do
        cases=$((cases + 1)) what=$line
        (
            sinter() { "$sinter" --check-line "$@"; }
            dot() { cat; }
            source() { cat; }
            eval "$line"
        ) >"$tmp/out" 2>"$tmp/err" </dev/null || fail "a wrong example"
        [ ! -s "$tmp/err" ] || fail "a wrong example"
    done <"$tmp/lines"
done <"$tmp/commands"

echo "$cases runs, $failures failures"
[ $failures = 0 ] && [ $cases -gt 40 ]
