# shellcheck shell=sh
# cli_run.sh: runs the program "$sinter" and checks what it says; for scripts that source it and have set $tmp. It
# counts $cases and $failures.
cases=0 failures=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $1" >&2
    echo "  stdout: $(head -c 300 "$tmp/out" | tr '\n' '~')" >&2
    echo "  stderr: $(head -c 600 "$tmp/err" | tr '\n' '~')" >&2
}

# run CODE ARGS…: runs the program into $tmp/out and $tmp/err
run() {
    want=$1
    shift
    cases=$((cases + 1)) what="$*"
    "$sinter" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    [ $code = "$want" ] || fail "exit code $code, not $want: $what"
    if grep -q -e 'Sanitizer' -e 'runtime error:' "$tmp/err"; then fail "sanitizer: $what"; fi
}
says() { grep -q -e "$1" "$tmp/err" || fail "stderr lacks '$1': $what"; }
prints() { grep -q -e "$1" "$tmp/out" || fail "stdout lacks '$1': $what"; }
says_nothing() { [ ! -s "$tmp/err" ] || fail "stderr is not empty: $what"; }
same() { cmp -s "$tmp/out" "$1" || fail "stdout is not $1: $what"; }
# refused CODE PATTERN ARGS…: fails with a message and prints nothing
refused() {
    expected=$1 pattern=$2
    shift 2
    run "$expected" "$@"
    says "$pattern"
    [ ! -s "$tmp/out" ] || fail "printed something: $what"
}
# spoil FILE: makes the last 512 floats of a safetensors file NaN
spoil() {
    head -c 2048 /dev/zero | tr '\0' '\377' | dd of="$1" bs=1 conv=notrunc seek=$(($(wc -c <"$1") - 2048)) 2>/dev/null
}
