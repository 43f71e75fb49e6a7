#!/bin/sh
# run.sh SINTER FILECHECK FILE: runs the passes named in the first line and checks the text.
set -e
passes=$(sed -n '1s/^; test passes=\([^ ]*\).*/\1/p' "$3")
options=$(sed -n '1s/^; test passes=[^ ]* *//p' "$3") # of sinter opt
[ -n "$passes" ] || { echo "$3: the first line must be '; test passes=NAMES [OPTIONS]'" >&2; exit 1; }
"$1" opt --passes="$passes" $options "$3" | "$2" "$3"
