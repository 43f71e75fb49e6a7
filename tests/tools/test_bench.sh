#!/bin/sh
# test_bench.sh SINTER SECTION [LIBRARY]: `sinter bench` on tiny problems: exit codes, keys and ranges of the
# JSON records, the picture, messages for wrong options. Sections are the functions named check_*.
# LIBRARY: the back end besides the native one. Nothing here depends on speed.
sinter=$1 section=$2 library=$3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
cases=0 failures=0
quick="--rounds 5 --seconds 0 -t 1"

fail() {
    failures=$((failures + 1))
    echo "FAILED: $1" >&2
    echo "  stdout: $(head -c 300 "$tmp/out" | tr '\n' '~')" >&2
    echo "  stderr: $(head -c 600 "$tmp/err" | tr '\n' '~')" >&2
}
run() { # CODE ARGS…
    want=$1
    shift
    cases=$((cases + 1)) what="$*"
    "$sinter" bench "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    [ $code = "$want" ] || fail "exit code $code, not $want: $what"
    if grep -q -e 'Sanitizer' -e 'runtime error:' "$tmp/err"; then fail "sanitizer: $what"; fi
}
prints() { grep -q -e "$1" "$tmp/out" || fail "stdout lacks '$1': $what"; }
refused() { # CODE PATTERN ARGS…
    expected=$1 pattern=$2
    shift 2
    run "$expected" "$@"
    grep -q -e "$pattern" "$tmp/err" || fail "stderr lacks '$pattern': $what"
    [ ! -s "$tmp/out" ] || fail "printed something: $what"
}
keys='name level backend threads dtype shape ms_median ms_low ms_high ms_min ms_max round_ms round_cpu_ms round_switches round_waited_pct round_process cpu_ms switches preempted warm_up floor_pct cycles instructions cache_misses page_faults unfused gflops gbytes_s pct_roofline
speedup_vs_level0 rel_rms max_ulp peak_bytes kind rounds flop bytes peak_gflops stream_gbytes_s bound
max_rel checked compile_ms tokens_s setup'
# records NUMBER: $tmp/json has this many, each with every key; times are positive and ordered
records() {
    [ "$(grep -c '^{"kind":"machine"' "$tmp/json")" = 1 ] || fail "no machine record: $what"
    grep -v '^{"kind":"machine"' "$tmp/json" >"$tmp/records"
    [ "$(wc -l <"$tmp/records")" = "$1" ] || fail "$(wc -l <"$tmp/records") records, not $1: $what"
    for key in $keys; do
        [ "$(grep -c "\"$key\":" "$tmp/records")" = "$1" ] || fail "key $key is missing: $what"
    done
    # an interval over processes, by Student's t, may be wider than all times
    case $what in *--processes*) wide=1 ;; *) wide=0 ;; esac
    awk -v wide=$wide -F'"ms_median":|,"ms_low":|,"ms_high":|,"ms_min":|,"ms_max":|,"flop":' \
        '!($5 > 0 && $5 <= $2 && $2 <= $6 && $3 <= $2 && $2 <= $4 && (wide || $5 <= $3 && $4 <= $6)) { exit 1 }' "$tmp/records" ||
        fail "times are not in order: $what"
}
# exact LIMIT: every record was compared with the evaluator, with errors below the limit
exact() {
    awk -v limit="$1" -F'"rel_rms":|,"max_ulp":' \
        '!($2 != "null" && $2 + 0 <= limit) { exit 1 }' "$tmp/records" ||
        fail "errors over $1: $what"
}

# Ctrl-C: finished records are printed and written; the exit code is 130.
check_stop() {
    what="kernel, interrupted"
    "$sinter" bench kernel --shape 64x256 --levels 4 --rounds 101 --seconds 0.01 -t 1 --no-check \
        --json "$tmp/json" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 1.5
    kill -INT $pid
    wait $pid
    code=$?
    cases=$((cases + 1))
    [ $code = 130 ] || fail "exit code $code, not 130"
    if grep -q 'records are complete' "$tmp/err"; then [ -s "$tmp/json" ] || fail "no records"; fi
    # only the parent gets the signal: it passes it on
    what="processes, interrupted" begin=$(date +%s)
    "$sinter" bench kernel softmax --shape 64x256 --levels 4 --rounds 101 --seconds 0.2 -t 1 --no-check --processes 3 \
        >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 1.5
    kill -INT $pid
    wait $pid
    code=$?
    cases=$((cases + 1))
    [ $code = 130 ] || fail "exit code $code, not 130"
    [ $(($(date +%s) - begin)) -lt 20 ] || fail "the process that measures was not stopped"
}

check_kernel() {
    run 0 kernel --shape 6x32x20 --levels 0,4 $quick --json "$tmp/json" --plot "$tmp/svg"
    records $((2 * $("$sinter" bench kernel nothing 2>&1 | grep -o 'kernels are: .*' | tr -cd ',' | wc -c) + 2))
    exact 1e-5
    prints 'layer_norm *6x32'
    prints 'x level 0' && prints 'layer_norm 6x32x20: native level 4 over native level 0 '
    head -c 4 "$tmp/svg" | grep -q '<svg' && tail -c 8 "$tmp/svg" | grep -q '</svg>' || fail "no picture"
    [ "$(grep -c '<circle' "$tmp/svg")" -gt 20 ] || fail "too few points"
    grep -q 'main memory [0-9.]* GB/s' "$tmp/svg" || fail "no slope of memory"
    # of fused kernels an arrow to the right: they read and write fewer bytes
    [ "$(grep -o "class='fusion' x1='[0-9.]*' y1='[0-9.]*' x2='[0-9.]*'" "$tmp/svg" |
        awk -F"'" '$8 > $4 + 20' | wc -l)" -gt 5 ] || fail "levels at the same bytes"
}
# What is measured is no question here: on a busy machine verdicts may differ (exit code 1), or be refused (2).
check_evidence() {
    cat >"$tmp/it's mine.c" <<'C'
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim B = sn_symbol(m, "B", 1, 64);
    sn_entry_begin(m, "forward");
    sn_output("y", sn_softmax(sn_input(m, "x", SN_F32, B, 8), 1));
}
C
    run 0 model "$tmp/it's mine.c" --sizes B=5 --levels 0,4 $quick --evidence "$tmp/dir"
    grep -q "wrote $tmp/dir: $tmp/dir/repeat.sh repeats" "$tmp/err" || fail "nothing is said of the folder: $what"
    [ "$(cd "$tmp/dir" && echo *)" = "claims.txt files.sha256 model records.json repeat.sh" ] || fail "other files: $what"
    cmp -s "$tmp/it's mine.c" "$tmp/dir/model/it's mine.c" || fail "no copy of the model"
    grep -q "it's mine forward B=5: native level 4 over native level 0 " "$tmp/dir/claims.txt" || fail "no claims"
    grep -q '"command":"' "$tmp/dir/records.json" || fail "no command"
    grep -q '"processes":3,.*"process_busy_pct":\[[0-9.e-]*,[0-9.e-]*,[0-9.e-]*\]' "$tmp/dir/records.json" || fail "not three processes"
    grep -q ' --processes 3 ' "$tmp/dir/repeat.sh" && grep -q 'in 3 processes' "$tmp/dir/claims.txt" || fail "not three processes again"
    [ "$(grep -c '"round_process":\[0,0,0,0,0.*1,1,1,1,1.*2,2,2,2,2.*\]' "$tmp/dir/records.json")" = 2 ] || fail "no rounds of each process"
    mv "$tmp/it's mine.c" "$tmp/away.c" # the folder has all that is needed
    (cd "$tmp" && SINTER=$sinter dir/repeat.sh again.json) >"$tmp/out" 2>"$tmp/err"
    [ $? -le 2 ] || fail "the measurement is not repeated"
    prints "level 4 over native level 0 .*\(equal\|different\) verdict\|level 4 over native level 0 .*refused: "
    [ -s "$tmp/again.json" ] || fail "no records of the repetition"
    echo >>"$tmp/dir/model/it's mine.c"
    SINTER=$sinter "$tmp/dir/repeat.sh" >"$tmp/out" 2>"$tmp/err"
    [ $? = 2 ] && grep -q "mine.c: FAILED\|WARNING" "$tmp/out" "$tmp/err" || fail "a changed file is measured"
    # a peer that says what it ran, and is compared with level 0
    mkdir "$tmp/peers"
    cat >"$tmp/peers/torch_peer.py" <<'P'
import sys
print('{"setup": "Fake 1.0"}', flush=True)
for line in sys.stdin:
    print('{"seconds": 0.001, "path": "2 fast kernels"}', flush=True)
P
    if [ -x /usr/bin/python3 ]; then
        run 0 kernel softmax --shape 6x32 --levels 0,4 $quick --peers torch --peer-dir "$tmp/peers" --json "$tmp/json"
        prints '^ *torch .*(unfused)$' && prints '^torch: Fake 1.0, .*; it ran 2 fast kernels$'
        prints 'softmax 6x32: native level 0 over torch ' && prints 'softmax 6x32: native level 4 over torch '
        prints '^machine: other programs .* clock in GHz .* spread of .* counters '
        for key in compiler llvm cpu_flags l1d_bytes ghz_before ghz_after load_before load_after probe_spread_pct counters_missing; do
            grep -q "^{\"kind\":\"machine\".*\"$key\":" "$tmp/json" || fail "the machine record lacks $key"
        done
    fi
    # the folder is there even if a comparison fails
    run 1 kernel softmax --shape 6x32 --levels 0,4 $quick --with "$tmp/none.json" --processes 1 --evidence "$tmp/kept"
    [ -x "$tmp/kept/repeat.sh" ] || fail "a comparison that fails loses the evidence: $what"
    refused 2 "$tmp/dir exists: name a new folder" gemm --evidence "$tmp/dir"
    refused 1 "cannot make the folder $tmp/none/dir" gemm --evidence "$tmp/none/dir"
    run 2 kernel softmax --shape 6x32 --levels 4 $quick --processes 1 --evidence "$tmp/nothing"
    grep -q 'the run claims nothing: measure two levels' "$tmp/err" || fail "evidence of nothing: $what"
    (trap '' XFSZ && ulimit -f 4 && "$sinter" bench kernel softmax --shape 6x32 --levels 0,4 $quick --processes 1 --cache-dir none \
        --evidence "$tmp/full") >"$tmp/out" 2>"$tmp/err"
    [ $? = 1 ] && grep -q 'full.*File too large' "$tmp/err" || fail "no error of a full disk"
    [ "$(cd "$tmp" && echo full* nothing* none*)" = "full* nothing* none*" ] || fail "a part of a folder is left"
}
check_cold() {
    run 0 gemm --shape 20,30,40 --levels 4 --cold --no-check $quick --json "$tmp/json"
    prints 'caches cold' && grep -q '"caches":"cold"' "$tmp/json" || fail "no cold caches: $what"
}
check_processes() {
    run 0 kernel softmax --shape 6x32 --levels 4 $quick --invariant chunk --processes 2 --json "$tmp/json"
    records 2
    prints ', in 2 processes' && prints 'native-free *4 ' && prints 'native level 4 over native-free level 4 '
    grep -q '^{"kind":"machine".*"invariant":"chunk"' "$tmp/json" || fail "the option is not recorded: $what"
    run 1 kernel softmax --shape 6x32 --levels 0 $quick --invariant chunk --processes 2
    grep -q 'process 1 of 2 that measured: exit code' "$tmp/err" || fail "a process fails without an error: $what"
    run 0 kernel softmax --shape 6x32 --levels 4 $quick --processes 2 --profile "$tmp/profile.json"
    [ -s "$tmp/profile.json" ] || fail "no profile: $what"
}
check_neighbour() {
    run 0 gemm --shape 20,30,40 --no-check $quick --neighbour 2 --json "$tmp/json"
    prints 'product, neighbour'
    prints 'the neighbour.s threads read and wrote'
    [ "$(grep -c '"name":"product, neighbour"' "$tmp/json")" = "$(grep -c '"name":"product"' "$tmp/json")" ] ||
        fail "not every product was measured beside the neighbour: $what"
    refused 2 'at most\|to 64' gemm --neighbour 65
}

check_gemm() {
    backends=native${library:+,$library}
    run 0 gemm --shape "20,30,40 33,7,19" --levels 0,4 --backends "$backends" $quick --json "$tmp/json"
    records "$([ "$library" ] && echo 10 || echo 4)"
    grep -v packed "$tmp/records" >"$tmp/own" && mv "$tmp/own" "$tmp/records"
    exact 1e-6
}
# same_flop FILE KERNEL MASK: the same for attention of a model in `explain` and alone
same_flop() {
    run 0 attention --mask "$3" --shape 1,4,256,16 --levels 4 --no-check $quick --json "$tmp/json"
    local alone model
    alone=$(grep -o '"flop":[0-9]*' "$tmp/json" | tr -cd 0-9)
    model=$("$sinter" explain "$(dirname "$0")/../../examples/variants/$1" --entry forward --sizes B=1,T=256 --json - -t 1 \
        2>/dev/null | awk -v k="\"$2\"," '$1 == "\"kernel\":" { found = $2 == k } found && $1 == "\"flop\":" { print $2 + 0; exit }')
    [ "$alone" = "$model" ] || fail "$3: $alone FLOP alone, $model in $1"
}
check_attention() {
    same_flop alibi.c flash alibi
    same_flop talking_heads.c flash_mixed talking-causal
    masks=full,window:5,alibi,dense n=8
    [ -z "${SN_TEST_LONG:-}" ] || masks=full,causal,window:5,prefix:3,alibi,softcap,documents,dense,strided:3 n=18
    run 0 attention --mask "$masks" --shape 1,2,24,16 --levels 0,4 $quick --json "$tmp/json"
    records $n
    exact 1e-5
    prints 'window:5' && prints '^1 thread, medians'
    run 0 attention --mask causal,alibi --shape 2,4,2,9,8 --levels 4 $quick --json "$tmp/json"
    records 2
    exact 1e-5
    run 0 attention --mask causal,softcap --shape 1,2,24,16 --levels 4 --direct --no-check $quick
    prints 'native-kernels'
}
check_model() {
    cat >"$tmp/config.json" <<'C'
{"model_type": "gpt2", "vocab_size": 97, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 3}
C
    run 0 model "$tmp" --tokens 4,32 --levels 0,4 $quick --json "$tmp/json"
    records 4
    exact 1e-4
    prints 'tokens/s'
    cat >"$tmp/mine.c" <<'C' # an entry reads a parameter that forward does not
#include <sinter/models.h>
SN_MODEL(m, o) {
    (void)o;
    sn_dim B = sn_symbol(m, "B", 1, 64);
    sn_tensor x = sn_input(m, "x", SN_F32, B, 8);
    sn_entry_begin(m, "forward");
    sn_output("y", sn_linear(x, sn_param(m, "a", SN_F32, 6, 8), NULL));
    sn_entry_begin(m, "other");
    sn_output("z", sn_linear(x, sn_param(m, "b", SN_F32, 4, 8), NULL));
}
C
    run 0 model "$tmp/mine.c" --sizes B=5 --levels 4 $quick --json "$tmp/json"
    records 1
    grep -q '"flop":480,' "$tmp/records" || fail "not 2 x 5 x 6 x 8 FLOP"
    run 0 model "$tmp/mine.c" --entry other --gradient --sizes B=5 --levels 0,4 $quick --json "$tmp/json" --peers torch
    prints 'mine other gradient *B=5' && prints 'note: no peer computes mine other\|note: torch skipped'
    records 2
    exact 1e-5
    refused 2 "no entry 'third'; it has: forward, other" model "$tmp/mine.c" --entry third $quick
    run 0 model "$tmp" --decode --tokens 5,31 --levels 4 $quick --json "$tmp/json"
    # the weights' own memory was streamed beside it
    [ "$(grep -c '"stream_gbytes_s": *[0-9]' "$tmp/json")" = 2 ] || fail "no streaming: $what"
    records 2
    exact 1e-4
    run 0 model "$tmp" --decode --tokens 5 --levels 4 --weights int8 $quick --json "$tmp/json"
    records 1
    exact 0.1
    grep -q '"dtype":"int8"' "$tmp/records" || fail "the storage of weights is not recorded"
}
check_train() {
    cat >"$tmp/config.json" <<END
{"model_type": "gpt2", "vocab_size": 97, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 3}
END
    run 0 train "$tmp" --tokens 4,32 --batch 2 --levels 0,4 $quick --json "$tmp/json"
    prints 'train_step'
    records 4
    exact 1e-4
    run 0 train "$tmp" --tokens 4 --batch 2 --clip 0.5 --optimizer muon $quick --json "$tmp/json"
    prints 'train_step clipped muon'
    exact 1e-4
    refused 2 'clip' train "$tmp" --clip -1
    refused 2 'one of sgd, rmsprop' train "$tmp" --optimizer muons
    refused 2 'neither a folder' train gpt9
    refused 2 'exceed the context' train gpt2 --tokens 5000 $quick
}

check_compare() {
    run 0 compare kernel softmax --shape 6x32 $quick --json "$tmp/json" --plot "$tmp/svg"
    prints 'base ms *ms speed-up *95 % interval'
    prints '^speed-up: median of the ratios in each round; same: within 1 %'
    for key in version commit microarchitecture kernel l2_bytes page_bytes load_after context_switches backends; do
        grep -q "^{\"kind\":\"machine\".*\"$key\":" "$tmp/json" || fail "the machine record lacks $key"
    done
    sed -i 's/"others_pct":[0-9.e-]*,"stolen_pct":[0-9.e-]*/"others_pct":0,"stolen_pct":0/' "$tmp/json"
    prints 'softmax *6x32 *native level 4'
    grep -q '×' "$tmp/svg" || fail "no speed-up in the picture"
    [ "$(grep -c "class='whisker'" "$tmp/svg")" = 2 ] || fail "no intervals in the picture"
    grep -q '"round_ms":\[[0-9.e-]*,[0-9.e,-]*\]' "$tmp/json" || fail "no times of rounds"
    # as if nothing had been preempted, and the same a thousand seconds slower
    sed -i 's/"round_waited_pct":\[[^]]*\]/"round_waited_pct":[0,0,0,0,0]/g' "$tmp/json"
    sed 's/"round_ms":\[[^]]*\]/"round_ms":[1000,1001,1002,1003,1004]/g' "$tmp/json" >"$tmp/slow.json"
    sed -i 's/"round_ms":\[[^]]*\]/"round_ms":[1.000,1.001,1.002,1.003,1.004]/g' "$tmp/json"
    run 0 compare "$tmp/json" "$tmp/slow.json"
    prints 'native level 4.*slower'
    run 1 compare "$tmp/json" "$tmp/slow.json" --threshold 5
    grep -q '2 measurements are slower by more than 5 %' "$tmp/err" || fail "no verdict"
    run 0 compare "$tmp/slow.json" "$tmp/json" --threshold 5
    sed 's/"others_pct":0/"others_pct":80/' "$tmp/json" >"$tmp/busy.json"
    run 0 compare "$tmp/slow.json" "$tmp/busy.json" --plot "$tmp/busy.svg"
    grep -q 'other programs used 80 %' "$tmp/busy.svg" || fail "the picture does not say that the machine was busy"
    prints 'native level 4.*refused' && prints 'this run: the machine was not idle: other programs used 80 %'
    sed 's/6x32/7x32/' "$tmp/json" >"$tmp/other.json"
    run 1 compare "$tmp/json" "$tmp/other.json" --threshold 5
    grep -q 'nothing to compare' "$tmp/err" || fail "no pairs pass a threshold"
    run 0 kernel softmax --shape 6x32 --levels 4 $quick --with "$tmp/slow.json" --threshold 5
    prints 'native level 4.*faster\|native level 4.*refused' # on a busy machine
    run 0 compare "$(dirname "$0")/../../examples/variants/alibi.c" --tokens 4 --levels 2,4 --no-check $quick \
        --json "$tmp/kernels.json"
    prints 'alibi forward *1x4 *native level 4'
    prints 'kernels of the levels, .*entry forward (T=4,B=1,P=0)' && prints 'calls of gemm' && prints 'their time, µs'
    echo '{"kind":' >"$tmp/bad.json"
    refused 1 'bad.json:1: no record' compare "$tmp/bad.json" "$tmp/json"
    refused 1 'none.json' compare "$tmp/json" "$tmp/none.json"
    refused 2 'missing OLD.json' compare
    # verdicts on the claims of two runs
    run 0 compare "$tmp/json" "$tmp/slow.json" --claims
    prints 'softmax 6x32: native level 4 over native level 0 .* not distinguishable .* equal verdict'
    awk '/"level":4/ { sub(/"round_ms":\[[^]]*\]/, "\"round_ms\":[2000,2001,2002,2003,2004]") } 1' "$tmp/slow.json" |
        sed '/"level":4/s/\("again".*"round_ms":\)\[[^]]*\]/\1[2000,2001,2002,2003,2004]/' >"$tmp/slower.json"
    run 1 compare "$tmp/json" "$tmp/slower.json" --claims
    prints 'not distinguishable .* supported: slower .* different verdict'
    grep -q '1 verdicts differ' "$tmp/err" || fail "no verdict on verdicts: $what"
    sed 's/"others_pct":0/"others_pct":80/' "$tmp/slower.json" >"$tmp/busy.json"
    run 2 compare "$tmp/json" "$tmp/busy.json" --claims
    grep -q 'all 1 verdicts are refused' "$tmp/err" || fail "nothing says that all are refused: $what"
    prints 'refused: other programs used 80 % of the CPU time'
    grep -v '"level":4' "$tmp/json" >"$tmp/one.json"
    refused 2 'no claims' compare "$tmp/one.json" "$tmp/json" --claims
    refused 2 'claims contradicts --plot' compare "$tmp/json" "$tmp/json" --claims --threshold 5
    refused 2 'claims contradicts --plot' compare "$tmp/json" "$tmp/json" --claims --plot "$tmp/x.svg"
    sed 's/"caches":"warm"/"caches":"cold"/' "$tmp/json" >"$tmp/cold.json"
    run 2 compare "$tmp/json" "$tmp/cold.json" --claims
    prints 'refused: the caches were warm before, and are cold now'
    run 0 compare "$tmp/cold.json" "$tmp/json"
    prints 'native level 4.*refused: the caches were cold before, and are warm now'
    # a work twice: the second belongs to the second
    grep -h '"level":4' "$tmp/json" "$tmp/slow.json" >"$tmp/twice.json"
    run 0 compare "$tmp/twice.json" "$tmp/twice.json"
    [ "$(grep -c ' 1\.000 .* same$\| 1\.000 .* same ' "$tmp/out")" = 2 ] || fail "the second is compared with the first: $what"
    # records of one work, as in files without numbers of measurements
    for i in $(seq 40); do grep '"level":4' "$tmp/json" | sed 's/"measurement":[0-9]*,//'; done >"$tmp/many.json"
    run 0 compare "$tmp/many.json" "$tmp/many.json" --claims
    prints 'equal verdict'
}

check_options() {
    refused 2 'cold contradicts --warm' gemm --cold --warm
    refused 2 'did you mean gemm' gem
    refused 2 'unknown benchmark' everything
    refused 2 'sinter bench model: .*nonsense' "$(dirname "$0")/../../examples/variants/alibi.c" --nonsense
    run 2
    run 0 --help
    prints 'roofline'
    run 0 gemm --help
    prints '--backends'
    refused 2 'at least\|from 5' gemm --rounds 4
    refused 2 'at most\|to 9' gemm --processes 10
    refused 2 "invariant 'rows': choose batch" kernel softmax --shape 6x32 --levels 4 $quick --invariant rows
    refused 2 'write 0..4' kernel --levels 5
    refused 2 'write 0..4' kernel --levels 3..1
    refused 2 'not in the list' kernel --backends native,cuda
    refused 2 'not in the list' kernel --peers mkl
    refused 2 'contradicts itself' kernel --peers none,torch
    refused 2 'no effect without --peers' kernel --peer-dir /tmp
    refused 2 'unknown option' roofline --mask causal
    refused 2 "no kernel 'norm'" kernel norm
    refused 2 'ROWSxWIDTH' kernel softmax --shape 12
    refused 2 'M,N,K' gemm --shape 1,2
    refused 2 'M,N,K' gemm --shape 0,2,3
    refused 2 "no mask 'triangle'" attention --mask triangle
    refused 2 'needs a size' attention --mask window
    refused 2 'takes no size' attention --mask causal:4
    refused 2 'sweep contradicts --mask' attention --sweep --mask full
    refused 2 'B,H,T,D' attention --shape 1,2,3
    refused 2 'multiple of HK' attention --shape 1,4,3,8,8
    refused 2 'neither a folder' model gpt9
    refused 2 'sinter bench model: unknown option' gpt2 --token 8
    refused 2 'sinter bench compare model: unknown option' compare gpt2 --token 8
    refused 2 'missing MODEL (' model
    refused 2 'exceed the context' model gpt2 --tokens 5000 $quick
    refused 2 'exceed the context' model gpt2 --decode --tokens 1024 $quick
    refused 2 'write numbers' model gpt2 --tokens 4,
    for empty in gemm attention; do refused 2 'shape is empty' $empty --shape ''; done
    refused 2 'mask is empty' attention --mask ' '
    refused 2 'same file' kernel --json "$tmp/x" --plot "$tmp/x"
    refused 2 'unknown option' attention --weights int8
    refused 2 'unknown option' train gpt2 --weights int8
    refused 1 'cannot write' kernel --json "$tmp/none/x.json"
    refused 1 'cannot write' kernel --plot "$tmp/none/x.svg"
    refused 2 'x.pdf: pictures are SVG or PNG: name the file .svg or .png' kernel --plot "$tmp/x.pdf"
}
check_peers() { # whatever is installed: one that is absent is a note, not an error
    run 0 gemm --shape 20,9,10 --peers all --levels 4 $quick --json "$tmp/json"
    [ -z "$library" ] || prints 'onednn-packed'
    if grep -q 'level -' "$tmp/err"; then fail "a peer has no level: $what"; fi
    run 0 gemm --shape 20,9,10 --peers torch --peer-dir "$tmp/none" --levels 4 $quick
    prints 'note: torch skipped: .*peer-dir'
    # an ONNX file is a request of its own; without the package it is a note
    PEER_NODE_MODULES=$tmp/none run 0 model "$(dirname "$0")/../data/onnx/gpt.onnx" --batch 1 --tokens 4 --levels 4 \
        --peers onnxruntime $quick
    prints 'gpt forward *batch=1,sequence=4 ' && prints 'note: onnxruntime skipped: '
    # of encoder-decoders in files: the encoder, steps of the decoder
    for mode in '' --decode; do
        PEER_NODE_MODULES=$tmp/none run 0 model "$(dirname "$0")/../data/onnx/text" --tokens 4 --levels 4 \
            --peers onnxruntime $mode $quick
        if [ -z "$mode" ]; then prints ' prefill '; else prints ' decode  1x1 after 4 '; fi
        prints 'note: onnxruntime skipped: '
    done
    # the peer gets the file whose step is measured, and its past tokens; this one only writes down what it is asked
    mkdir -p "$tmp/bin"
    cat >"$tmp/bin/node" <<EOF
#!/bin/sh
echo '{"setup": "a peer that computes nothing"}'
while read -r line; do echo "\$line" >>"$tmp/asked"; echo '{"seconds": 0.001}'; done
EOF
    chmod +x "$tmp/bin/node"
    for mode in '' --decode; do
        rm -f "$tmp/asked"
        PATH=$tmp/bin:$PATH run 0 model "$(dirname "$0")/../data/onnx/text" --tokens 4 --levels 4 --peers onnxruntime $mode $quick
        files=$(grep -o '[a-z_]*model.onnx\|"past":[0-9]*' "$tmp/asked" | sort -u | tr '\n' ' ')
        case "$mode$files" in
            '"past":0 decoder_model.onnx encoder_model.onnx ' | '--decode"past":4 decoder_with_past_model.onnx ') ;;
            *) fail "other files are asked for: $mode $files" ;;
        esac
    done
    # the environment may name slow kernels; the fastest are named beside the ratio
    OPENBLAS_CORETYPE=Prescott run 0 gemm --shape 20,9,10 --peers openblas --levels 4 $quick
    if ! grep -q 'note: openblas skipped' "$tmp/out"; then
        prints '^ *openblas .*([A-Za-z ]* kernels)$' && prints 'the fastest of those tried'
        if grep -q 'Prescott kernels' "$tmp/out"; then fail "slow kernels: $what"; fi
    fi
}
check_claims() { # every claim finds its records; how fast they are is not the question here
    claims=$(dirname "$0")/../../bench/claims.py cases=2 what=claims.py
    "$claims" --sinter "$sinter" kernels >"$tmp/out" 2>"$tmp/err"
    [ $? -le 1 ] || fail "claims.py failed"
    [ "$(grep -c '^| kernels | .* >= 85' "$tmp/out")" = 4 ] || fail "not a row a claim"
    if grep -q 'not measured' "$tmp/out"; then fail "a claim has no record"; fi
    if "$claims" nothing 2>"$tmp/err"; then fail "an unknown run is no error"; fi
    grep -q "no run 'nothing'" "$tmp/err" || fail "the unknown run is not named"
    if "$claims" --sinter /bin/false kernels >"$tmp/out" 2>"$tmp/err"; then fail "a failed run is no error"; fi
    grep -q "claims.py: the run 'kernels' failed: " "$tmp/err" || fail "the failed run is not named"
    against=$(dirname "$0")/../../bench/against.py
    "$against" "$tmp/none" "$sinter" kernels 2>&1 | grep -q "error: there is no program at $tmp/none" || fail "against.py: no program"
    "$against" "$sinter" "$sinter" nothing 2>&1 | grep -q "no run 'nothing'; the runs are: gpt2, " || fail "against.py: no run"
    "$against" /bin/false "$sinter" kernels --rounds 1 2>&1 | grep -q 'against.py: /bin/false bench .*: exit code 1' || fail "against.py: exit code"
}

"check_$section"
echo "$cases cases, $failures failures"
[ $failures = 0 ]
