#!/bin/sh
# web_page.sh SINTER SOURCE_DIR: pages of WebAssembly modules in Chromium: the text of `sinter generate`, weights that the
# second visit takes from the browser's cache; the Shakespeare GPT learns a text and continues it; with workers the same text
# on several threads, and on one where pages are not isolated; a name in other letters.
set -u
sinter=$1 source=$2
model=$source/examples/models/stories260K/stories260K.bin tokenizer=$source/examples/models/stories260K/tok512.bin
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "SKIPPED: no Chromium"; exit 0; }
tmp=$(mktemp -d) server='' plain='' visit=''
trap 'kill $server $plain $visit 2>/dev/null; wait; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
"$sinter" compile "$model" --tokenizer "$tokenizer" --name story -o out --target wasm32 --page || exit 1
"$sinter" compile --train "$source/examples/train/shakespeare.json" --entries cached --name training -o out --target wasm32 --page || exit 1
"$sinter" compile "$model" --tokenizer "$tokenizer" --name workers -o out --target wasm32 --threads workers --page || exit 1
"$sinter" compile "$source/examples/models/aren-transliteration/model.bin" --name names -o out --target wasm32 --page || exit 1
# what the page shows goes to the server's log
cat >out/check.html <<'END'
<iframe id="page"></iframe>
<script>
const [name, text = 'Once upon a time'] = decodeURIComponent(location.search.slice(1)).split('=');
document.getElementById('page').src = name + '.html?text=' + encodeURIComponent(text);
const wait = setInterval(() => {
  const page = document.getElementById('page').contentDocument;
  if (!page || !page.body || !page.body.dataset.done) return;
  clearInterval(wait);
  fetch('/result?' + encodeURIComponent(page.getElementById('out').textContent));
}, 100);
</script>
END
cat >out/count.html <<'END'
<script type="module">
import { load } from './workers.js';
const ids = Array.from({ length: 200 }, (_, i) => (7 * i) % 500 + 1), said = [];
for (const threads of [1, 2, 3]) {
  const m = await load({ threads }).catch((e) => e);
  said.push([m.threads, m.message || [...m.generateTokens(ids, { maxTokens: 20 })].join(' ')]);
  m.close?.();
}
fetch('/result?' + encodeURIComponent(JSON.stringify(said)));
</script>
END
python3 "$source/examples/deploy/serve.py" out 0 >url 2>log &
server=$!
python3 -u -m http.server -d out --bind 127.0.0.1 0 >port 2>plain.log &
plain=$!
until [ -s url ] && [ -s port ]; do sleep 0.1; done
isolated=$(cat url) shared=http://127.0.0.1:$(sed 's/.* port \([0-9]*\) .*/\1/' port)
n=0
for page in $isolated/check.html?story $isolated/check.html?story $isolated/check.html?training $isolated/check.html?workers \
    "$isolated/check.html?names=آتزمون" $isolated/count.html $shared/check.html?workers $shared/count.html; do
    n=$((n + 1))
    HOME=$tmp "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-proxy-server \
        --user-data-dir="$tmp/browser" --remote-debugging-port=0 "$page" 2>/dev/null &
    visit=$!
    for _ in $(seq 400); do
        [ "$(cat log plain.log | grep -c 'GET /result')" -ge $n ] && break
        sleep 0.5
    done
    kill $visit && wait $visit
done
"$sinter" generate "$model" --tokenizer "$tokenizer" -p "Once upon a time" --temperature 0 -n 256 >want
python3 - <<'END'
import json, re, urllib.parse
log, plain = open('log').read(), open('plain.log').read()
want = open('want').read().rstrip('\n')
texts = [urllib.parse.unquote(t).rstrip('\n') for t in re.findall(r'GET /result\?(\S*)', log + plain)]
assert len(texts) == 8, texts
assert texts.pop(4) == 'atzmon', texts
assert texts[:2] == [want, want], (texts, want)
losses = [float(x) for x in re.findall(r'^step \d+: loss ([0-9.]+)$', texts[2], re.M)]
assert len(losses) == 10 and losses[0] > 4 and losses[-1] < 1, texts[2]
assert texts[2].split('\n')[10].startswith('Once upon'), texts[2]
assert texts[3] == texts[5] == want, (texts, want)
counts = [json.loads(texts[i]) for i in (4, 6)]
assert [[n for n, _ in c] for c in counts] == [[1, 2, 3], [1, 1, 1]], counts
assert len({tokens for c in counts for _, tokens in c}) == 1 and counts[0][0][1].count(' ') > 10, counts
assert log.count('GET /story.weights') == 1, 'the weights are not cached'
END
