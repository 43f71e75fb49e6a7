#!/bin/bash
# kill_ranks.sh SINTER SOURCE_DIR MPIRUN [KILLS]: kills a random rank of a training run at random moments, from its
# start to its end, and resumes it each time. All ranks must end within 10 seconds of a kill, a checkpoint must never be
# broken, and in the end model and checkpoint must equal, byte by byte, those of a run that was never interrupted.
sinter=$1 source=$2 mpirun=$3 kills=${4:-50} ranks=3
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=$tmp/cache LC_ALL=C OMP_WAIT_POLICY=passive
options=
case $mpirun in *mpich*) ;; *) options='--oversubscribe --allow-run-as-root' ;; esac
cd "$tmp" || exit 1
head -c 20000 "$source/examples/data/tinyshakespeare.txt" >text
cat >config.json <<'J'
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_head": 2, "n_layer": 1}, "tokenizer": {"kind": "char"},
 "data": {"text": "text", "validation_part": 0},
 "training": {"steps": 1500, "batch": 4, "block": 16, "save_every": 10, "slices": 4, "log_every": 500}}
J
echo "seed ${SEED:=$(date +%s)}"
RANDOM=$SEED
die() {
    echo "FAILED: $*"
    [ -f log ] && tail -5 log
    exit 1
}
saved() { stat -c '%i %.Y' killed/checkpoint.safetensors 2>/dev/null; }
now() { date +%s%N; }
# whether any rank of the last launch is still there (a process that has ended may wait for its launcher)
ranks_live() {
    for f in rank.*.pid; do
        [ -s "$f" ] && state=$(sed 's/.*) //' "/proc/$(cat "$f")/stat" 2>/dev/null) && [ "${state%% *}" != Z ] && return 0
    done
    return 1
}
ended() { grep -q '"step": 1500' killed/metrics.jsonl 2>/dev/null; }

"$sinter" train config.json -o whole -t 1 -q >log 2>&1 || die "train"
longest=0 done=0 fresh=0 stuck=0
while [ $done -lt "$kills" ]; do
    if ended; then # a run is over: it must be right; the next one begins
        "$sinter" train config.json -o killed -t 1 --resume -q >log 2>&1 || die "the checkpoint is broken"
        cmp whole/checkpoint.safetensors killed/checkpoint.safetensors || die "other bits after $done kills"
        rm -rf killed
        fresh=$((fresh + 1))
    fi
    resume=
    [ -e killed/checkpoint.safetensors ] && resume=--resume
    [ -n "$resume" ] || rm -rf killed
    rm -f rank.*.pid
    # shellcheck disable=SC2016,SC2086
    "$mpirun" $options -n $ranks sh -c 'echo $$ >"rank.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.pid"; exec "$@"' - \
        "$sinter" train config.json -o killed -t 1 -q $resume >log 2>&1 &
    all=$!
    victim=rank.$((RANDOM % ranks)).pid
    for _ in $(seq 400); do [ -s "$victim" ] && break || sleep 0.05; done
    # half of the kills at any moment of the start, half after the first checkpoint of this run
    if [ $((RANDOM % 2)) = 0 ]; then
        before=$(saved)
        for _ in $(seq 400); do
            [ "$(saved)" = "$before" ] && kill -0 $all 2>/dev/null && sleep 0.02 || break
        done
    fi
    sleep "0.$(printf %03d $((RANDOM % 1000)))"
    kill -9 "$(cat "$victim")" 2>/dev/null
    hit=$?
    begin=$(now)
    while ranks_live; do
        [ $((($(now) - begin) / 1000000)) -le 10000 ] || die "ranks live 10 s after one was killed"
        sleep 0.02
    done
    ms=$((($(now) - begin) / 1000000))
    # some versions of a launcher hang when all of its processes have ended
    for _ in $(seq 100); do kill -0 $all 2>/dev/null && sleep 0.05 || break; done
    kill -9 $all 2>/dev/null && stuck=$((stuck + 1))
    wait $all 2>/dev/null
    code=$?
    [ $hit = 0 ] || continue # it had ended
    done=$((done + 1))
    [ $code != 0 ] || ended || die "exit code 0 although a rank was killed"
    [ $ms -gt $longest ] && longest=$ms
    if [ -e killed/checkpoint.safetensors ]; then # one process can read it, at any moment; it has no step to make
        "$sinter" train config.json -o killed --resume --steps 1 -t 1 -q >log 2>&1 || die "a broken checkpoint"
    fi
done
resume=
[ -e killed/checkpoint.safetensors ] && resume=--resume
# shellcheck disable=SC2086
"$sinter" train config.json -o killed -t 1 -q $resume >log 2>&1 || die "resume"
for f in model.safetensors checkpoint.safetensors config.json; do
    cmp whole/$f killed/$f || die "$f differs after $kills kills"
done
echo "$kills kills in $((fresh + 1)) runs, same bits; the ranks ended at most $longest ms after a kill; \
the launcher was stuck $stuck times"
