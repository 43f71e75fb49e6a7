#!/bin/sh
# gemm_plans.sh FOLDER_OF_TEST_PROGRAMS: the GEMM plans of the specification's rows and the presets, at all fusion levels,
# are among the combinations that test_gemm_plans runs.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$1/test_gemm_plans" --list | LC_ALL=C sort -u >"$dir/tested" || exit 1
SINTER_DEBUG=gemm "$1/kernel_digest" x86-64-v4 2>&1 >/dev/null | sed -n 's/^gemm plan: //p' | LC_ALL=C sort -u >"$dir/used"
[ -s "$dir/used" ] || { echo "no GEMM was compiled" && exit 1; }
untested=$(LC_ALL=C comm -23 "$dir/used" "$dir/tested")
echo "$(grep -c . "$dir/used") combinations are used, $(grep -c . "$dir/tested") are tested"
[ -z "$untested" ] || { echo "never run by test_gemm_plans: widen its axes:"; echo "$untested"; exit 1; }
