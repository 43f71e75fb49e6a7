#!/bin/sh
# repeat.sh [NEW.json]: measures again, and compares the verdicts with those of records.json.
# Exit code 1: a verdict differs; 2: there was no measurement, or all verdicts are refused. SINTER: the program.
sinter=${SINTER:-sinter} new=${1:-$(mktemp)}
case $sinter in /*) ;; */*) sinter=$PWD/$sinter ;; esac
case $new in /*) ;; *) new=$PWD/$new ;; esac
[ $# -gt 0 ] || trap 'rm -f "$new"' EXIT
cd "$(dirname "$0")" || exit 2
sha256sum -c files.sha256 >/dev/null || exit 2
"$sinter" bench 'gemm' --threads 2 --rounds 5 --processes 3 --json "$new" || exit 2
"$sinter" bench compare records.json "$new" --claims
