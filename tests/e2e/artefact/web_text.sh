# shellcheck shell=sh
# web_text.sh: a part of test_deploy.sh web. The module reads tokenizer.json: ids of Hugging Face, text, classes and
# embeddings of the program.
pieces=$source/tests/data/tokenizers/pieces
same_ids="bert bert_cased bert_accents roberta llama3 digits llama gemma t5 xlm"
for kind in $same_ids words; do
    mkdir -p "tok/$kind" && cp "$pieces/$kind.json" "tok/$kind/tokenizer.json"
done
mkdir tok/vocab && cp "$source/tests/data/tokenizers/bert/vocab.txt" tok/vocab
mkdir tok/alone tok/refused
cat >tok/alone/tokenizer.json <<'END'
{"model": {"type": "BPE", "vocab": {"<m>": 0, "a": 1, "b": 2, "ab": 3, "\u200d": 4, "\u24d0": 5, "<": 6, "m": 7, ">": 8, " ": 9, "aba": 10},
  "merges": ["a b"], "ignore_merges": true}, "added_tokens": [{"id": 0, "content": "<m>", "single_word": true}]}
END
printf '<m>a\n<m> <m>\342\200\215\n<m> <m>\342\223\220\n<m> <m>\naba\nabab\n' >alone
printf '0\tThe dog\n1\tHello world, 12!\n0\tNaïve CAFÉ [MASK]\n1\t你好 12\n' >classes.txt
cut -f 2 classes.txt >lines
cat >classes.json <<'END'
{"model": {"model_type": "bert", "max_position_embeddings": 32, "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 2}, "tokenizer": {"path": "tok/bert"},
 "data": {"text": "classes.txt"}, "schedule": {"rate": 3e-3}, "training": {"steps": 40, "batch": 4, "block": 16}}
END
"$sinter" train classes.json -o kinds >out 2>&1 || fail "training: $(tail -1 out)"
"$sinter" compile kinds -o web --target wasm32 --entries forward,embed || fail "compile an encoder"
cat >web/text.js <<'END'
import fs from 'node:fs';
import http from 'node:http';
import { load } from './kinds.js';
const [pieces, other, ...kinds] = process.argv.slice(2), read = (file) => fs.readFileSync(file, 'utf8').split('\n');
const open = (kind) => load({ tokenizer: new URL(`../tok/${kind}/`, import.meta.url) });
const strings = fs.readFileSync(`${pieces}/strings.txt`, 'utf8').split('\n__ggml_vocab_test__\n').slice(0, -1);
for (const kind of kinds) {
  const m = await open(kind), want = read(`${pieces}/${kind}.ids`);
  const whole = (s) => [...m.tokenizer.before, ...m.encode(s), ...m.tokenizer.after].join(' ');
  const same = (s, i) => `${m.encode(s).join(' ')}\t${whole(s)}` === want[i];
  const back = kind !== 'llama3' || strings.every((s) => s.includes('<s>') || m.tokenizer.decode(m.encode(s)) === s);
  console.log(kind, strings.filter(same).length === strings.length, strings.length > 70, back);
  console.log('text', kind, JSON.stringify(m.tokenizer.decode(want[38].split('\t')[1].split(' ').map(Number))));
}
const alone = await open('alone');
for (const text of read('alone').slice(0, -1)) console.log('alone', alone.encode(text).join(' '));
const refused = [{ type: 'Replace', pattern: { String: '_' }, content: ' ' }, { type: 'Replace', pattern: { String: '\u2581' }, content: '' },
  { type: 'Strip', content: ' ', start: 2, stop: 0 }, { type: 'Strip', content: ' ', start: 1, stop: 1 },
  { type: 'Strip', content: '_', start: 1, stop: 0 }];
for (const decoder of refused) {
  fs.writeFileSync('tok/refused/tokenizer.json', JSON.stringify({ ...JSON.parse(fs.readFileSync('tok/alone/tokenizer.json')), decoder }));
  await open('refused').catch((e) => console.log('refused', e.message.includes('does not read a')));
}
// a server that fails is not one without a file
let status = 404;
const server = http.createServer((asked, answer) => {
  if (asked.url === '/tokenizer.json') answer.end(fs.readFileSync('tok/alone/tokenizer.json'));
  else answer.writeHead(status).end();
});
await new Promise((f) => server.listen(0, '127.0.0.1', f));
const remote = () => load({ tokenizer: `http://127.0.0.1:${server.address().port}/` });
console.log('served', (await remote()).encode('aba').join());
status = 503;
await remote().catch((e) => console.log('fails', e.message));
server.closeAllConnections();
server.close();
await open('words').catch((e) => console.log('words', e.message));
const vocab = await open('vocab'), texts = fs.readFileSync(`${other}/strings.txt`, 'utf8').split('\n__ggml_vocab_test__\n');
const ids = read(`${other}/bert/ids.txt`);
console.log('vocab', texts.slice(0, -1).findIndex((s, i) => vocab.encode(s).join(' ') !== ids[i].trim()));
const m = await load(), lines = read('lines').slice(0, -1);
for (const line of lines) console.log(`${m.classify(line)[0].label}  ${m.classify(line)[0].probability.toFixed(5)}`);
for (const line of lines) console.log('ids', m.encode(line).join(' '));
console.log('decoded', m.tokenizer.decode(m.encode(lines[1])));
const want = read('vectors').slice(0, -1).map((row) => row.split(' ').map(Number));
const far = want.map((row, i) => Math.max(...row.map((x, k) => Math.abs(x - m.embed(lines[i])[k]))));
console.log('near', far.length, Math.max(...far) < 1e-5);
for (const text of ['', 'x '.repeat(40)]) try { m.embed(text); } catch (e) { console.log(e.message); }
END
"$sinter" embed kinds -f lines --backend native >vectors
node web/text.js "$pieces" "$source/tests/data/tokenizers" $same_ids >web/out 2>&1 || fail "the encoder in Node ends with $?"
for kind in $same_ids; do
    grep -q "^$kind true true true" web/out || fail "ids of $kind"
done
same "single words, and pieces that are tokens" "$(grep '^alone ' web/out)" "$(while read -r line; do
    echo "alone $(printf '%s' "$line" | "$sinter" tokenizer encode tok/alone)"
done <alone)"
same "decoders that are refused" "$(grep -c '^refused true' web/out)" 5
for kind in llama t5; do # bos is between them
    text=$(sed -n 39p "$pieces/$kind.ids" | cut -f 2 | "$sinter" tokenizer decode "tok/$kind" | sed 's/\t/\\t/g')
    grep -qxF "text $kind \"$text\"" web/out || fail "text of $kind: $text"
done
[ "$(grep '^[01]  ' web/out | sort -u | wc -l)" -gt 1 ] || fail "all texts have one probability"
same "classes" "$(grep '^[01]  ' web/out)" "$("$sinter" classify kinds -f lines --backend native)"
while read -r line; do
    ids=$(printf '%s' "$line" | "$sinter" tokenizer encode kinds --special)
    grep -q "^ids $ids\$" web/out || fail "ids of $line"
done <lines
for line in "served 10" "fails .*tokenizer_config.json: the server says 503" "words .*does not read .*token ids" "vocab -1" "decoded hello world, 12$" "near 4 true" "kinds: the text is empty" \
    "kinds: embed: T is 42, not 1 to 32"; do
    grep -q "^$line" web/out || fail "no line \"$line\""
done
[ $failed = 0 ] || cat web/out
# training in the module: characters and a context shorter than the rows asked for; words have no tokenizer there
for _ in 1 2 3 4; do echo 'to be, or not to be, that is the question'; done >saying.txt
for kind in char word; do
    cat >saying.json <<JSON
{"model": {"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}, "tokenizer": {"kind": "$kind"},
 "data": {"text": "saying.txt", "validation_part": 0}, "schedule": {"rate": 1e-2}, "training": {"steps": 1, "batch": 1, "block": 4}}
JSON
    "$sinter" compile --train saying.json --name "by_$kind" -o web --target wasm32 >out 2>&1 || fail "training of ${kind}s: $(tail -1 out)"
    cat >web/learn.js <<JS
import { load } from './by_$kind.js';
const m = await load();
console.log(m.tokenizer ? m.trains() : 'ids only');
if (m.tokenizer) { const l = [...m.train('to be, or not to be, that is', m.newState(), { steps: 20, batch: 2 })]; console.log(l.length, l[19] < l[0]); }
JS
    node web/learn.js >web/learned 2>&1 || cat web/learned
    if [ $kind = char ]; then want='true 20 true'; else want='ids only'; fi
    same "training of ${kind}s in Node" "$(tr '\n' ' ' <web/learned)" "$want "
done
grep -q "does not read this tokenizer.*: use token ids" out || fail "no note of words: $(cat out)"
