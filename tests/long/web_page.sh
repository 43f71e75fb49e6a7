#!/bin/sh
# web_page.sh SINTER SOURCE_DIR: pages of WebAssembly modules in Chromium: the text of `sinter generate`, weights that the
# second visit takes from the browser's cache; the Shakespeare GPT learns a text and continues it.
set -u
sinter=$1 source=$2
model=$source/examples/models/stories260K/stories260K.bin tokenizer=$source/examples/models/stories260K/tok512.bin
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "SKIPPED: no Chromium"; exit 0; }
tmp=$(mktemp -d) server='' visit=''
trap 'kill $server $visit 2>/dev/null; wait; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
"$sinter" compile "$model" --tokenizer "$tokenizer" --name story -o out --target wasm32 --page || exit 1
"$sinter" compile --train "$source/examples/train/shakespeare.json" --entries cached --name training -o out --target wasm32 --page || exit 1
# what the page shows goes to the server's log
cat >out/check.html <<'END'
<iframe id="page"></iframe>
<script>
document.getElementById('page').src = location.search.slice(1) + '.html?text=' + encodeURIComponent('Once upon a time');
const wait = setInterval(() => {
  const page = document.getElementById('page').contentDocument;
  if (!page || !page.body || !page.body.dataset.done) return;
  clearInterval(wait);
  fetch('/result?' + encodeURIComponent(page.getElementById('out').textContent));
}, 100);
</script>
END
cat >serve.py <<'END'
import http.server, sys
handler = lambda *a: http.server.SimpleHTTPRequestHandler(*a, directory='out')
with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as s:
    print(s.server_port, file=open('port', 'w'), flush=True)
    s.serve_forever()
END
python3 serve.py 2>log &
server=$!
until [ -s port ]; do sleep 0.1; done
for n in 1 2 3; do
    page=story
    [ $n = 3 ] && page=training
    HOME=$tmp "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server \
        --user-data-dir="$tmp/browser" --remote-debugging-port=0 "http://127.0.0.1:$(cat port)/check.html?$page" 2>/dev/null &
    visit=$!
    for _ in $(seq 400); do
        [ "$(grep -c 'GET /result' log)" -ge $n ] && break
        sleep 0.5
    done
    kill $visit && wait $visit
done
"$sinter" generate "$model" --tokenizer "$tokenizer" -p "Once upon a time" --temperature 0 -n 256 >want
python3 - <<'END'
import re, urllib.parse
log = open('log').read()
want = open('want').read().rstrip('\n')
texts = [urllib.parse.unquote(t).rstrip('\n') for t in re.findall(r'GET /result\?(\S*)', log)]
assert texts[:2] == [want, want], (texts, want)
losses = [float(x) for x in re.findall(r'^step \d+: loss ([0-9.]+)$', texts[2], re.M)]
assert len(losses) == 10 and losses[0] > 4 and losses[-1] < 1, texts[2]
assert texts[2].split('\n')[10].startswith('Once upon'), texts[2]
assert log.count('GET /story.weights') == 1, 'the weights are not cached'
END
