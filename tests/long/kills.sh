#!/bin/bash
# kills.sh SINTER SOURCE_DIR [KILLS]: kills a training run at random moments, resumes it each time, and compares
# the end with a run that was never interrupted: model, checkpoint and metrics must be equal byte by byte.
# Then --force is killed at random moments: the folder must hold one run, the old or the new.
sinter=$1 source=$2 kills=${3:-30}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=$tmp/cache LC_ALL=C
head -c 20000 "$source/examples/data/tinyshakespeare.txt" >"$tmp/text"
config() { # config WIDTH
    cat <<J
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": $1, "n_head": 2, "n_layer": 1}, "tokenizer": {"kind": "char"},
 "data": {"text": "text", "validation_part": 0.1}, "training": {"steps": 400, "batch": 2, "block": 16, "validate_every": 20}}
J
}
config 16 >"$tmp/a.json"
config 32 >"$tmp/b.json"
echo "seed ${SEED:=$(date +%s)}"
RANDOM=$SEED
pause() { sleep "0.$(printf %03d $((RANDOM % 1000)))"; }
die() {
    echo "FAILED: $*"
    exit 1
}

"$sinter" train "$tmp/a.json" -o "$tmp/whole" -t 1 >"$tmp/log" 2>&1 || die "train: $(tail -1 "$tmp/log")"
"$sinter" train "$tmp/b.json" -o "$tmp/other" -t 1 --steps 2 >"$tmp/log" 2>&1 || die "train: $(tail -1 "$tmp/log")"
resume=
for _ in $(seq "$kills"); do
    # shellcheck disable=SC2086
    "$sinter" train "$tmp/a.json" -o "$tmp/killed" -t 1 $resume >"$tmp/log" 2>&1 &
    pause
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    resume=
    [ -f "$tmp/killed/checkpoint.safetensors" ] && resume=--resume
    [ -n "$resume" ] || rm -rf "$tmp/killed"
done
# shellcheck disable=SC2086
"$sinter" train "$tmp/a.json" -o "$tmp/killed" -t 1 $resume >"$tmp/log" 2>&1 || die "resume: $(tail -1 "$tmp/log")"
for f in config.json model.safetensors checkpoint.safetensors; do
    cmp "$tmp/whole/$f" "$tmp/killed/$f" || die "$f differs after $kills kills"
done
strip() { sed 's/"\(seconds\|tokens_per_second\|time\)": *[0-9.e+-]*,\{0,1\}//g' "$1"; }
[ "$(strip "$tmp/whole/metrics.jsonl" | wc -l)" = "$(strip "$tmp/killed/metrics.jsonl" | wc -l)" ] || die "metrics differ"
echo "$kills kills, same bits"

for _ in $(seq "$kills"); do
    rm -rf "$tmp/forced"
    cp -r "$tmp/whole" "$tmp/forced"
    "$sinter" train "$tmp/b.json" -o "$tmp/forced" -t 1 --force >"$tmp/log" 2>&1 &
    pause
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    [ -f "$tmp/forced/model.safetensors" ] || continue # the old run is gone, the new one has no model yet
    "$sinter" generate "$tmp/forced" -p "A" -n 2 >/dev/null 2>"$tmp/err" || die "--force, killed: $(tail -1 "$tmp/err")"
done
echo "$kills kills of --force, no mixed folder"
