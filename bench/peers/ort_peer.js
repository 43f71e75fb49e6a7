// ort_peer.js: ONNX Runtime beside `sinter bench`; the protocol is in bench/peers.h. The package
// onnxruntime-node is looked for in $PEER_NODE_MODULES, then as usual. Model files are written by
// ort_models.py (python3-onnx; for whole models also python3-torch) into $PEER_MODELS or a folder of
// the system's temporary one, and kept there. Outputs are allocated beforehand, so no copy is timed.
const fs = require('fs'), os = require('os'), path = require('path');
const { execFileSync } = require('child_process');
const say = (a) => console.log(JSON.stringify(a));
let ort;
try {
  const dir = process.env.PEER_NODE_MODULES;
  ort = require(dir ? path.join(dir, 'onnxruntime-node') : 'onnxruntime-node');
} catch (e) {
  say({ absent: 'the npm package onnxruntime-node is not installed ($PEER_NODE_MODULES: its folder)' });
  process.exit(0);
}
const unfused = !!process.env.PEER_UNFUSED; // the graph as it is written
const threads = parseInt(process.env.PEER_THREADS || '2');
const models = process.env.PEER_MODELS || path.join(os.tmpdir(), `sinter-peers-${os.userInfo().uid}`);
fs.mkdirSync(models, { recursive: true });

let steps = [], last = null, ran = ''; // {session, feeds, fetches}, which run one after the other

// of requests, by the names of Sinter and of ort_models.py
const int64 = ['int64', BigInt64Array], float32 = ['float32', Float32Array];
const types = { float32, f32: float32, int64, i64: int64, i32: ['int32', Int32Array], bool: ['bool', Uint8Array] };

function input(spec) {
  const n = spec.dims.reduce((a, b) => a * b, 1);
  const [type, Values] = types[spec.type] || types.float32, x = new Values(n);
  for (let i = 0; i < n; i++) {
    const integer = spec.limit ? Math.floor(Math.random() * spec.limit) : spec.value ?? 1; // masks: all ones
    x[i] = type === 'float32' ? Math.random() * 2 - 1 : type === 'int64' ? BigInt(integer) : integer;
  }
  return new ort.Tensor(type, x, spec.dims);
}

// The size of a dim by the name that exporters give it: "batch_size", "past_sequence_length + 1", "encoder_sequence_length".
function size(dim, of) {
  if (typeof dim === 'number') return dim;
  if (/batch/.test(dim)) return of.batch;
  if (/past.*\+|total/.test(dim)) return of.past + of.tokens;
  if (/past/.test(dim)) return of.past;
  return /encoder/.test(dim) ? of.source : of.tokens;
}

// Inputs of a file for one step of a decoder, or an encoder.
function inputs(session, of) {
  const found = {};
  for (const v of session.inputMetadata)
    found[v.name] = {
      type: v.type,
      dims: v.name === 'input_features' ? [of.batch, of.mel, of.frames] : v.shape.map((d) => size(d, of)),
      limit: /(^|_)input_ids$/.test(v.name) ? of.limit || 2 : 0,
      value: /position/.test(v.name) ? of.past : v.name === 'use_cache_branch' ? Number(of.past > 0) : 1 };
  return found;
}

// The files of a request with their inputs: its own, or those of a graph that is written for it.
function find(request) {
  if (request.work === 'files') return request.files.map((of) => ({ file: of.path, of }));
  if (request.work === 'file') return [{ file: request.path, spec: request }];
  const { threads: ignored, ...asked } = request;
  const key = JSON.stringify(unfused ? { ...asked, unfused } : asked);
  const file = path.join(models, key.replace(/[^a-z0-9]+/gi, '_') + '.onnx');
  if (!fs.existsSync(file + '.json'))
    execFileSync('/usr/bin/python3', [path.join(__dirname, 'ort_models.py'), key, file],
      { stdio: ['ignore', 'ignore', 'pipe'] });
  const spec = JSON.parse(fs.readFileSync(file + '.json'));
  return spec.skip ? [] : [{ file, spec }];
}

// What a session ran, by its profile: its provider, and the most frequent operators.
async function path_of(file, settings, feeds) {
  const prefix = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'sinter-peer-')), 'p');
  const session = await ort.InferenceSession.create(file, { ...settings, enableProfiling: true, profileFilePrefix: prefix });
  await session.run(feeds);
  session.endProfiling();
  await session.release();
  const folder = path.dirname(prefix), count = new Map();
  for (const name of fs.readdirSync(folder))
    for (const e of JSON.parse(fs.readFileSync(path.join(folder, name))))
      if (e.args && e.args.op_name && e.args.provider && /kernel_time$/.test(e.name)) {
        const what = `${e.args.op_name} (${e.args.provider.replace('ExecutionProvider', '')})`;
        count.set(what, (count.get(what) || 0) + 1);
      }
  fs.rmSync(folder, { recursive: true });
  return [...count].sort((a, b) => b[1] - a[1]).slice(0, 5).map(([what, n]) => `${n} ${what}`).join(', ');
}

async function open(request) {
  for (const step of steps) await step.session.release();
  steps = [];
  ran = '';
  for (const { file, spec, of } of find(request)) {
    const settings = { intraOpNumThreads: threads, interOpNumThreads: 1,
      graphOptimizationLevel: unfused ? 'disabled' : 'all', executionMode: 'sequential' };
    const session = await ort.InferenceSession.create(file, settings);
    const feeds = {}, fetches = {}, wanted = spec ? spec.inputs : inputs(session, of);
    for (const name in wanted) feeds[name] = input(wanted[name]);
    const out = await session.run(feeds);
    if (!steps.length) ran = await path_of(file, settings, feeds);
    for (const k in out)
      fetches[k] = new ort.Tensor(out[k].type, new out[k].data.constructor(out[k].data.length), out[k].dims);
    steps.push({ session, feeds, fetches });
  }
}

async function run() {
  for (const { session, feeds, fetches } of steps) await session.run(feeds, fetches);
}

async function answer(request) {
  const repeats = request.repeats;
  delete request.repeats;
  const key = JSON.stringify(request);
  if (key !== last) {
    await open(request);
    last = key;
  }
  if (!steps.length) return { skip: 'not known here' };
  if (repeats) await run();
  const runs = repeats || 1, start = process.hrtime.bigint();
  for (let i = 0; i < runs; i++) await run();
  return { seconds: Number(process.hrtime.bigint() - start) * 1e-9 / runs, path: ran };
}

const version = (() => { try { return require(path.join(process.env.PEER_NODE_MODULES || '', 'onnxruntime-node', 'package.json')).version; } catch (e) { return '?'; } })();
say({ setup: `ONNX Runtime ${version}, ${threads} threads, ${unfused ? 'no' : 'all'} graph optimizations, outputs allocated beforehand` });
(async () => {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    let a;
    try { a = await answer(JSON.parse(line)); } catch (e) { last = null; a = { error: String(e.stderr || e).slice(-300) }; }
    say(a);
  }
})();
