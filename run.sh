#!/bin/sh
# run.sh [OPTIONS]: installs what is missing, builds everything, and generates a story with a small
# trained model. Options go to `sinter generate`: ./run.sh -p "The cat" --temperature 0.8
set -e
cd "$(dirname "$0")"
tools/setup.sh
log=build/build.log
mkdir -p build
echo "building in build/release (log: $log)" >&2
if ! { cmake --preset release && cmake --build --preset release; } >"$log" 2>&1; then
    tail -40 "$log" >&2
    exit 1
fi
[ $# -gt 0 ] || set -- -n 250 --temperature 0
exec build/release/tools/sinter generate examples/models/stories260K/stories260K.bin --stats "$@"
