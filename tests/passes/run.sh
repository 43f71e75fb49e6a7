#!/bin/sh
# run.sh SINTER FILECHECK FILE: runs the passes that the first line names and checks the text.
set -e
passes=$(sed -n '1s/^; test passes=//p' "$3")
[ -n "$passes" ] || { echo "$3: the first line must be '; test passes=NAMES'" >&2; exit 1; }
"$1" opt --passes="$passes" "$3" | "$2" "$3"
