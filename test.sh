#!/bin/sh
# test.sh [PRESET…]: installs what is missing, builds and runs the tests; the last line counts them.
# Presets: release (the default), debug, asan (leaves out the tests of large models), and long: the release build with
# every case and the tests that take minutes (fuzzers with new seeds, kills, failing allocations).
cd "$(dirname "$0")" || exit 1
tools/setup.sh --dev || exit 1
[ $# -gt 0 ] || set -- release
export OMP_WAIT_POLICY=passive # tests run side by side: a waiting thread should not take a core
passed=0 failed=0
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
for preset in "$@"; do
    log=build/test-$preset.log
    case $preset in
    long) build=release select='' SN_TEST_LONG=1 limit=3600 ;;
    asan) build=asan select='-LE long|large' limit=600 ;;
    *) build=$preset select='-LE long' limit=600 ;;
    esac
    if [ "$preset" = long ]; then export SN_TEST_LONG; else unset SN_TEST_LONG; fi
    mkdir -p build
    echo "building $preset (log: $log)"
    if ! { cmake --preset "$build" && cmake --build --preset "$build"; } >"$log" 2>&1; then
        tail -40 "$log"
        failed=$((failed + 1))
        continue
    fi
    # shellcheck disable=SC2086
    ctest --test-dir "build/$build" -j "$jobs" --output-on-failure --timeout "$limit" $select | tee "$log"
    # "98% tests passed, 1 tests failed out of 43"
    counts=$(sed -n 's/.* tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")
    bad=${counts% *} all=${counts#* }
    if [ -z "$counts" ]; then bad=1 all=1; fi
    failed=$((failed + bad)) passed=$((passed + all - bad))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
