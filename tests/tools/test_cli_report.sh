#!/bin/sh
# test_cli_report.sh SINTER SOURCE_DIR: `sinter report`: its data, its errors, and its page in a browser.
sinter=$1 source=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}" LC_ALL=C
unset SINTER_DEBUG
. "$2/tests/tools/cli_run.sh"
cp "$source"/examples/variants/window_sinks.c "$source"/examples/variants/small.h "$tmp"
model="$tmp/window_sinks.c"

# attention: the window, the sinks, and what lies between them
tiles() { grep -q '"heads":\[0,1,2,3\],"rows":\["10*",.*"10*10*1"' "$tmp/page.html" || fail 'tiles of attention'; }
# The data: stages, kernels of nodes, levels, timeline with waiting, memory.
run 0 report "$model" -e forward --levels 0 --threads 2 -o "$tmp/page.html"
says 'wrote .*page.html (.* KB)'
run 0 report "$model" -e forward --levels none --threads 1 --sizes T=64 --json -o -
prints '^{"format":"sinter report","version":1,'
prints '"text":"/\* window_sinks.c: each token sees' # the model's own lines
prints '"name":"as written"' && prints '"name":"fuse"' && prints '"name":"layer0.qkv.weight"'
prints '"folds":\[{"first":[0-9]*,"period":[0-9]*,"times":2}'
prints '"rule":"elementwise operations on the kernel.s elements","level":4,"operations":"[a-z, ]*gelu'
prints '"because":"it is the left factor of a product'
prints '"timeline":{"threads":1,' && prints '"buffers":\[{"call":0,"slot":0,"offset":0,"bytes":'
tiles
grep -q '"errors":\[{"output":"logits","elements":[0-9]*,"rms":[0-9.e-]*,"rel_rms":[0-9.]*e-0*[78],' "$tmp/page.html" ||
    fail 'errors against double precision'
run 0 report "$(ls "$source"/tests/passes/text/*.sn | head -1)" --json -o - # a graph without weights
prints '"stages":\[{"name":"as written"'

refused 2 "no entry 'forwards'; there are: forward" report "$model" -e forwards
refused 2 'give levels from 0 to 4' report "$model" --levels 0,7
refused 2 'did you mean --levels' report "$model" --levls 0,4
refused 1 'cannot' report "$model" -o "$tmp/none/page.html"
refused 1 'cannot open' report "$tmp/none"
refused 2 "no dimension 'X'" report "$model" --levels none --sizes X=1

# The page: opens without errors, every view shows something, search finds a tensor, hovering names a kernel.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ]; then
    what='the page in a browser'
    fail 'there is no Chromium to test the page with: tools/setup.sh --dev installs it'
else
    HOME=$tmp timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$tmp/browser" --window-size=1400,900 --virtual-time-budget=30000 --dump-dom \
        "file://$tmp/page.html#selftest" 2>"$tmp/err" | sed -n 's/.*<pre id="selftest"[^>]*>\(.*\)<\/pre>.*/\1/p' >"$tmp/out"
    what='the page tests itself'
    prints '"errors":\[\]' && prints '"version":1'
    for view in graph kernels levels timeline memory attention errors; do
        prints "\"forward/$view\":[1-9][0-9][0-9]*[,}]"
    done
    prints '"hover_graph":"kernel 19: gemm  head' && prints '"hover_kernels":"kernel 0: map_reduce  embed+layer0.norm1'
    prints '"search":"embed.weight","found":"embed.weight","found_detail":true'
    prints '"opens":1,"brackets":\["2 × layer"\],"brackets_seen":true'
    prints '"deterministic":true'
    prints '"slowest_frame_ms":[0-9]\{1,3\}[.,]'     # loosely: a frame of 1 s is not fluid
    prints '"layout_5000_ms":[0-9]\{1,4\}[.,]'
    prints '"frame_5000_ms":[0-9]\{1,3\}[.,]'
fi
[ $failures = 0 ] && echo "report: $cases runs" && exit 0
exit 1
