# shellcheck shell=sh
# web_workers.sh: a part of test_deploy.sh web. A module with workers: the bits of the one without for any number of threads,
# which all work; it ends them, and says what is wrong.
compile workers --target wasm32 --threads workers --entries cached
echo '{"type": "module"}' >workers/package.json
"$sinter" inspect workers/story.wasm | grep -q "threads: workers" || fail "inspect a module with workers"
cat >workers/run.js <<'END'
import fs from 'node:fs';
import { load as plain } from '../web/story.js';
import { load } from './story.js';
const ids = Array.from({ length: 60 }, (_, i) => (7 * i) % 500 + 1), open = (threads) => load({ tokenizer: false, threads });
const bits = (m) => {
  const s = m.newState(), prefill = m.run('prefill', { T: 60, P: 0 }, { tokens: ids }, s).logits;
  const decode = m.run('decode', { P: 60 }, { tokens: [5] }, s).logits;
  s.free();
  return Buffer.concat([prefill, decode].map((x) => Buffer.from(x.buffer))).toString('hex');
};
const single = await plain({ tokenizer: false }), want = bits(single), models = [];
single.close();
console.log('alone', single.threads, bits(single) === want, new Set(want).size);
for (const n of [1, 2, 3]) {
  const m = models[n] = await open(n), bytes = m.exports.__stack_pointer.value;
  const stack = (i) => new Uint8Array(m.memory.buffer, Math.ceil(m.exports.__heap_base.value / 64) * 64 + 64 + i * bytes, bytes);
  let same = true;
  for (let i = 0; i < 2; i++) same &&= bits(m) === want;
  const worked = Array.from({ length: n - 1 }, (_, i) => stack(i).some((x) => x));
  console.log('threads', m.threads, same, ...worked);
}
models[2].close();
console.log('closed', models[2].threads, bits(models[2]) === want);
const { exports } = models[3];
models[3].exports = { ...exports, run_decode: () => { throw new WebAssembly.RuntimeError('trapped'); } };
try { bits(models[3]); } catch (e) { console.log(e.message, models[3].threads); }
models[3].exports = exports;
console.log('trapped', bits(models[3]) === want);
for (const n of [0, 1.5, 65]) await open(n).catch((e) => console.log(e.message));
globalThis.crossOriginIsolated = false;
console.log('page', (await open(3)).threads);
delete globalThis.crossOriginIsolated;
await open(3); // its workers wait when this script ends
const usual = await open();
console.log('usual', usual.threads >= 1 && usual.threads <= 8);
// a script that is gone cannot be a worker; what has started ends, also when the weights are wrong
await load({ tokenizer: false, threads: 2, weights: new Uint8Array(9) }).catch((e) => console.log(e.message));
fs.rmSync('workers/story.js');
await open(3).catch((e) => console.log(e.message.replace(/[12] of 2/, 'N')));
END
timeout 60 node workers/run.js >workers/out 2>&1 || fail "workers in Node end with $?"
for line in "alone 1 true 16" "threads 1 true" "threads 2 true true" "threads 3 true true true" "closed 1 true" "trapped 1" "trapped true" \
    "story: threads: 0 is not" "story: threads: 1.5 is not" "story: threads: 65 is not" "page 1" "usual true" \
    "story: 9 bytes of weights" "story: worker N does not start: .*load({ threads: 1 })"; do
    grep -q "^$line" workers/out || fail "no line \"$line\" in: $(cat workers/out)"
done
