// web_peers.mjs JOB.json: one side of bench/web_peers.py, in a process of its own: loads a model, continues token ids greedily,
// and prints JSON. {"kind": "sinter", "script": FILE, ...}: a module of `sinter compile --target wasm32`.
// {"kind": "ort", "modules": DIR, "model": FILE, "layers", "heads", "head": numbers, ...}: the npm package onnxruntime-web, with
// the graph of web_peers.py. Both: {"ids": [...], "steps": N, "prompt": N (ids of the prompt that is read again and again),
// "threads": N (default 1)}.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const PROMPTS = 9; // times that the prompt is read; the figure is the median
const job = JSON.parse(fs.readFileSync(process.argv[2]));

async function sinter() {
  const { load } = await import(pathToFileURL(job.script));
  return async () => {
    const model = await load({ tokenizer: false, threads: job.threads });
    return (ids, n) => model.generateTokens(ids, { maxTokens: n, temperature: 0 });
  };
}

async function ort() {
  const require = createRequire(path.join(job.modules, 'index.js')), web = require('onnxruntime-web');
  web.env.wasm.numThreads = job.threads || 1;
  const tensor = (type, values, dims) => new web.Tensor(type, values, dims);
  const largest = (x) => x.reduce((best, value, i) => (value > x[best] ? i : best), 0);
  return async () => {
    const session = await web.InferenceSession.create(fs.readFileSync(job.model), { graphOptimizationLevel: 'all' });
    return async function* (ids, n) {
      let caches = {}, length = ids.length, tokens = ids;
      for (let i = 0; i < job.layers; i++)
        for (const what of 'kv') caches[what + i] = tensor('float32', new Float32Array(0), [1, job.heads, 0, job.head]);
      for (let step = 0; step < n; step++, length++) {
        const found = await session.run({ tokens: tensor('int64', BigInt64Array.from(tokens, BigInt), [1, tokens.length]),
          last: tensor('int32', Int32Array.of(length - 1), [1, 1]), length: tensor('int32', Int32Array.of(length), [1]), ...caches });
        tokens = [largest(found.logits.data)];
        yield tokens[0];
        for (const name in caches) caches[name] = found[name + '_next'];
      }
    };
  };
}

let code = 0; // bytes of the module that was compiled last
for (const name of ['compile', 'instantiate']) {
  const compile = WebAssembly[name];
  WebAssembly[name] = (source, ...rest) => {
    code = source.byteLength || code;
    return compile.call(WebAssembly, source, ...rest);
  };
}
const opened = await { sinter, ort }[job.kind]();
const times = [performance.now()], found = [], mark = () => times.push(performance.now());
let used;
const continued = await opened();
mark();
for await (const id of continued(job.ids, job.steps)) {
  found.push(id);
  mark();
  if (found.length === 1) used = process.cpuUsage();
}
const busy = process.cpuUsage(used);
const prompts = [], prompt = Array.from({ length: job.prompt }, (_, i) => job.ids[i % job.ids.length]);
for (let i = 0; i < PROMPTS; i++) {
  const start = performance.now();
  for await (const _ of continued(prompt, 1));
  prompts.push(performance.now() - start);
}
prompts.sort((a, b) => a - b);
const [begin, loaded, first] = times, end = times[times.length - 1];
console.log(JSON.stringify({ load: loaded - begin, first: first - loaded, rate: (found.length - 1) / ((end - first) / 1000),
  cpu: ((found.length - 1) / (busy.user + busy.system)) * 1e6, ids: found, code,
  prompt: prompts[PROMPTS >> 1] }));
process.exit(); // ONNX Runtime's threads do not end
