#!/bin/sh
# web_page.sh SINTER SOURCE_DIR: the page of a WebAssembly module in Chromium: the text of `sinter generate`, and
# weights that the second visit takes from the browser's cache.
set -u
sinter=$1 source=$2
model=$source/examples/models/stories260K/stories260K.bin tokenizer=$source/examples/models/stories260K/tok512.bin
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "SKIPPED: no Chromium"; exit 0; }
tmp=$(mktemp -d) server='' visit=''
trap 'kill $server $visit 2>/dev/null; wait; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
"$sinter" compile "$model" --tokenizer "$tokenizer" --name story -o out --target wasm32 --page || exit 1
# what the page shows goes to the server's log
cat >out/check.html <<'END'
<iframe id="page" src="story.html?text=Once%20upon%20a%20time"></iframe>
<script>
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
for n in 1 2; do
    HOME=$tmp "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server \
        --user-data-dir="$tmp/browser" --remote-debugging-port=0 "http://127.0.0.1:$(cat port)/check.html" 2>/dev/null &
    visit=$!
    for _ in $(seq 120); do
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
assert texts == [want, want], (texts, want)
assert log.count('GET /story.weights') == 1, 'the weights are not cached'
END
