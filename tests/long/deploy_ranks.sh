#!/bin/sh
# deploy_ranks.sh SINTER SOURCE_DIR BUILD_DIR MPICC MPIRUN: examples/deploy/train_ranks.c on 2 and 4 ranks has the bits of
# `sinter train --slices`.
set -eu
sinter=$1 source=$2 build=$3 mpicc=$4 mpirun=$5
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
cd "$tmp"
options=
case $mpirun in *mpich*) ;; *) options='--oversubscribe --allow-run-as-root' ;; esac
config=$source/examples/train/shakespeare.json
for n in 2 4; do
    "$sinter" compile --train "$config" --slices $n --name training -o out -q
    # shellcheck disable=SC2046
    "$mpicc" -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 "$source/examples/deploy/train_ranks.c" -Iout -I"$build/api" \
        out/training.o "$build/model/libsinter_text.a" "$build/runtime/libsinter_rt.a" \
        $(pkg-config --libs libutf8proc libcjson libxxhash libpcre2-8) -lgomp -lm -o ranks
    # shellcheck disable=SC2086
    timeout 300 "$mpirun" $options -n $n ./ranks out "$source/examples/data/tinyshakespeare.txt" 10 | tail -1
    "$sinter" train "$config" --slices $n -n 10 -o trained.$n -q --threads 1
    python3 - trained.$n/model.safetensors out/training.model/model.safetensors <<'P'
import json, struct, sys
def read(path):
    with open(path, 'rb') as f:
        all = f.read()
    n = struct.unpack('<Q', all[:8])[0]
    begin = 8 + n
    return {name: all[begin + t['data_offsets'][0]:begin + t['data_offsets'][1]]
            for name, t in json.loads(all[8:begin]).items() if name != '__metadata__'}
a, b = map(read, sys.argv[1:])
sys.exit(0 if a and a == b else 'other bits')
P
    echo "$n ranks: same bits"
done
