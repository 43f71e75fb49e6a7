#!/bin/sh
# exact_examples.sh SINTER SOURCE_DIR: the passes of levels 2 and 4 keep what every example computes, over finite fields.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C.UTF-8
unset SINTER_DEBUG
. "$source/tests/tools/cli_run.sh"
for example in "$source"/examples/variants/*.c; do
    case $example in
    */mesanet.c) sizes='--sizes T=3,B=1' ;; # conjugate gradients: two sequences of 13 tokens need more than 4 GiB of exact numbers
    *) sizes='' ;;
    esac
    # shellcheck disable=SC2086
    run 0 check "$example" --exact --levels 2,4 $sizes
    prints ' 0 failed$'
done
[ $cases -ge 50 ] || fail "$cases examples"
echo "$cases cases, $failures failed"
[ $failures = 0 ]
