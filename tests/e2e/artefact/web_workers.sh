# shellcheck shell=sh
# web_workers.sh: a part of test_deploy.sh web. A module with workers: the bits of the one without for any number of threads,
# which all work; it ends them, and says what is wrong.
compile workers --target wasm32 --threads workers --entries cached
echo '{"type": "module"}' >workers/package.json
"$sinter" inspect workers/story.wasm | grep -q "threads: workers" || fail "inspect a module with workers"
cat >workers/run.js <<'END'
import crypto from 'node:crypto';
import fs from 'node:fs';
import { load as plain } from '../web/story.js';
import { Model, load } from './story.js';
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
// calls of a model that a thread has left are refused
const refused = (m) => { try { bits(m); } catch (e) { return e.message; } }, turn = () => new Promise((f) => setTimeout(f));
await models[3].workers[1].terminate();
await turn();
console.log('lost', refused(models[3]), models[3].threads);
const { startWorker } = Model.prototype;
Model.prototype.startWorker = function (module, number) { // the stack of one lies outside the memory
  const { heap } = this;
  if (number === 2) this.heap = { allocate: (size) => ({ at: 2 ** 32 - 2 * size }) };
  try { return startWorker.call(this, module, number); } finally { this.heap = heap; }
};
const trapping = await load({ tokenizer: false, threads: 3, warmUp: false });
Model.prototype.startWorker = startWorker;
console.log('trapped', refused(trapping));
await turn();
console.log('ended', refused(trapping), trapping.threads);
const sum = (m) => crypto.createHash('sha256').update(new Uint8Array(m.memory.buffer, m.weights.at, m.weights.size)).digest('hex');
let same = true;
for (let i = 0; i < 6; i++) {
  const m = await open(4), before = sum(m), s = m.newState(), t = single.newState();
  const go = (on, state, P, T) => Buffer.from(on.run('prefill', { T, P }, { tokens: ids.slice(0, T) }, state).logits.buffer);
  same &&= go(m, s, 0, 60).equals(go(single, t, 0, 60));
  m.close();
  for (const P of [60, 80, 100]) same &&= go(m, s, P, 20).equals(go(single, t, P, 20));
  await turn();
  same &&= before === sum(m) && Buffer.from(s.bytes()).equals(Buffer.from(t.bytes()));
  [s, t].forEach((x) => x.free());
}
console.log('at once', same);
// a worker that comes to the next run after close() waits there
const late = await open(1);
late.exports.team(3, 1);
late.close();
await late.startWorker(await WebAssembly.compile(fs.readFileSync('workers/story.wasm')), 1);
await new Promise((f) => setTimeout(f, 30));
console.log('late', late.ended);
late.close();
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
for line in "alone 1 true 16" "threads 1 true" "threads 2 true true" "threads 3 true true true" "closed 1 true" \
    "lost story: worker 2 of 2 is lost (it has ended): load the model again 1" "trapped unreachable" "at once true" "late undefined" \
    "ended story: a call failed (unreachable): load the model again 1" \
    "story: threads: 0 is not" "story: threads: 1.5 is not" "story: threads: 65 is not" "page 1" "usual true" \
    "story: 9 bytes of weights" "story: worker N does not start: .*load({ threads: 1 })"; do
    grep -q "^$line" workers/out || fail "no line \"$line\" in: $(cat workers/out)"
done
