#!/bin/sh
# test_averages.sh SINTER SOURCE_DIR: the folder of averaged weights in that of a training run: what is there before it is
# not lost, and nothing in it is of two runs.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C.UTF-8
unset SINTER_DEBUG
. "$source/tests/tools/cli_run.sh"

head -c 3000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
cat >"$tmp/plain.json" <<'END'
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
 "data": {"text": "text"}, "training": {"steps": 2, "batch": 4, "block": 16, "validate_every": 2}}
END
sed 's/ "data"/ "optimizer": {"average": 0.9},&/' "$tmp/plain.json" >"$tmp/mean.json"

run 0 train "$tmp/mean.json" -o "$tmp/m"
run 0 eval "$tmp/m/averaged" "$tmp/text"
refused 2 'contains the initial weights and would be overwritten' train "$tmp/m/averaged" --text "$tmp/text" -o "$tmp/m" --force
[ -s "$tmp/m/averaged/model.safetensors" ] || fail "the initial weights are gone"
touch "$tmp/m/averaged/tokenizer.json" "$tmp/m/averaged/notes" # of the run before, as it seems; of the user
run 0 train "$tmp/mean.json" -o "$tmp/m" --force
run 0 eval "$tmp/m/averaged" "$tmp/text"
run 0 train "$tmp/plain.json" -o "$tmp/m" --force
[ "$(ls "$tmp/m/averaged")" = notes ] || fail "averages of an older run: $(ls "$tmp/m/averaged")"

# A model that is not a run's, a link to one, a file
for kind in folder link file; do
    rm -rf "$tmp/other" "$tmp/o"
    mkdir "$tmp/other" "$tmp/o"
    cp "$tmp/m/model.safetensors" "$tmp/other"
    case $kind in
    folder) mv "$tmp/other" "$tmp/o/averaged" ;;
    link) ln -s ../other "$tmp/o/averaged" ;;
    file) touch "$tmp/o/averaged" ;;
    esac
    refused 2 'not from a training run: choose another folder' train "$tmp/mean.json" -o "$tmp/o"
    run 0 train "$tmp/plain.json" -o "$tmp/o"
    run 0 train "$tmp/plain.json" -o "$tmp/o" --force
    case $kind in
    folder) [ -s "$tmp/o/averaged/model.safetensors" ] || fail "a model that is not the run's is gone" ;;
    file) [ -e "$tmp/o/averaged" ] || fail "a file named averaged is gone" ;;
    link) [ -s "$tmp/other/model.safetensors" ] || fail "what a link names is gone" ;;
    esac
done

echo "$cases cases, $failures failed"
[ $failures = 0 ]
