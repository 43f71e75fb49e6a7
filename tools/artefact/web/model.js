// model.js: loads a module with its weights, and calls its entries.

const arrays = {
  f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array,
  i32: Int32Array, i64: BigInt64Array, i8: Int8Array, u8: Uint8Array, bool: Uint8Array,
};
const PAGE = 65536, ALIGN = 64, SLOT = 8, MODEL_BYTES = 64, LENGTH_BYTES = 4;

/** What an entry or a loader reports. `kind` is the number of the error's kind; 0: the caller's mistake. */
export class SinterError extends Error {
  constructor(message, code = 0) {
    super(`${artefact.name}: ${message}`);
    this.name = 'SinterError';
    this.kind = code & 255;
  }
}

// The value of a size such as "2*T+ceil(P/4)".
function evaluate(text, dims) {
  let at = 0;
  const take = (c) => text[at] === c && ++at > 0;
  const word = () => {
    const start = at;
    while (at < text.length && !'+-*/(),'.includes(text[at])) at++;
    return text.slice(start, at);
  };
  const factor = () => {
    const name = word();
    if (/^\d+$/.test(name)) return Number(name);
    if (name === 'ceil' || name === '') {
      take('(');
      let value = sum();
      if (take('/')) value = Math.ceil(value / Number(word()));
      take(')');
      return value;
    }
    if (!(name in dims)) throw new SinterError(`the size '${name}' is not given`);
    return Number(dims[name]);
  };
  const product = () => {
    let value = factor();
    while (take('*')) value *= factor();
    return value;
  };
  const sum = () => {
    let value = take('-') ? -product() : product();
    for (;;) {
      if (take('+')) value += product();
      else if (take('-')) value -= product();
      else return value;
    }
  };
  return sum();
}

// Memory behind the module's own: first fit, in units of 64 bytes.
class Heap {
  constructor(memory, start) {
    this.memory = memory;
    this.free = [];
    this.end = Math.ceil(start / ALIGN) * ALIGN;
  }
  allocate(bytes) {
    const size = Math.max(1, Math.ceil(bytes / ALIGN)) * ALIGN;
    const i = this.free.findIndex((f) => f.size >= size);
    if (i >= 0) {
      const f = this.free[i], at = f.at;
      f.at += size;
      f.size -= size;
      if (!f.size) this.free.splice(i, 1);
      return { at, size };
    }
    const at = this.end, missing = at + size - this.memory.buffer.byteLength;
    try {
      if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE));
    } catch {
      throw new SinterError(`out of memory: ${bytes} more bytes do not fit beside ${at}; wasm32 has 4 GiB, ` +
        'and a browser may allow less');
    }
    this.end = at + size;
    return { at, size };
  }
  release(block) {
    this.free.push(block);
    this.free.sort((a, b) => a.at - b.at);
    this.free = this.free.reduce((list, f) => {
      const last = list[list.length - 1];
      if (last && last.at + last.size === f.at) last.size += f.size;
      else list.push({ at: f.at, size: f.size });
      return list;
    }, []);
  }
}

// The bytes of an ArrayBuffer or of a view of one, such as Node's Buffer; null: neither.
function bytesOf(data) {
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return data instanceof ArrayBuffer ? new Uint8Array(data) : null;
}

/** Caches of one sequence, or the parameters and optimizer states of a training step. */
export class State {
  constructor(model) {
    this.model = model;
    this.block = model.heap.allocate(artefact.stateBytes);
    this.length = 0;
    model.check(model.exports.state_init(model.at, this.block.at));
  }
  // Its place in the memory of a model.
  addressIn(model) {
    if (this.model !== model) throw new SinterError('the state belongs to another model: use newState() of this one');
    if (!this.block) throw new SinterError('the state was freed: make another with newState()');
    return this.block.at;
  }
  bytes() {
    return new Uint8Array(this.model.memory.buffer, this.addressIn(this.model), artefact.stateBytes);
  }
  /** A copy with the length, which `restore` takes, of this state or another. */
  save() {
    const copy = new Uint8Array(artefact.stateBytes + LENGTH_BYTES);
    copy.set(this.bytes());
    new DataView(copy.buffer).setUint32(artefact.stateBytes, this.length, true);
    return copy;
  }
  restore(saved) {
    const target = this.bytes(), bytes = bytesOf(saved);
    if (!bytes || bytes.length !== target.length + LENGTH_BYTES)
      throw new SinterError(`a saved state has ${target.length + LENGTH_BYTES} bytes, not ${bytes && bytes.length}: ` +
        'give what save() of the same model returned');
    target.set(bytes.subarray(0, target.length));
    this.length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(target.length, true);
  }
  free() {
    if (this.block) this.model.heap.release(this.block);
    this.block = null;
  }
}

const isFile = (url) => url.protocol === 'file:';

// Reads a byte of each page, which maps it now and not during the first token. The result keeps the loop alive.
let touched = 0;
const touch = (bytes) => {
  for (let i = 0; i < bytes.length; i += 4096) touched ^= bytes[i];
};

// Pieces are touched while the next one is read.
async function readFile(url, total, sink) {
  const fs = await import('node:fs/promises');
  const file = await fs.open(url).catch((e) => { throw new SinterError(`${url.pathname}: ${e.message}`); });
  try {
    const { size } = await file.stat();
    const target = sink(size);
    const read = (at) => file.read(target, at, Math.min(size - at, 1 << 22), at);
    for (let done = 0, reading = read(0); done < size;) {
      const { bytesRead } = await reading;
      if (!bytesRead) break;
      const piece = target.subarray(done, done += bytesRead);
      if (done < size) (reading = read(done)).catch(() => {}); // `total` may throw first
      touch(piece);
      total(done, size);
    }
    return target;
  } finally {
    await file.close();
  }
}

async function openCache(wanted) {
  if (!wanted || typeof caches === 'undefined') return null;
  try {
    return await caches.open('sinter');
  } catch {
    return null; // private windows, pages without https
  }
}

const keyOf = (url) => {
  const key = new URL(url);
  key.searchParams.set('sinter', artefact.checksum);
  return key.href;
};

// Reads a response into what sink(size) returns, as it arrives.
async function readResponse(response, url, total, sink) {
  if (!response.ok) throw new SinterError(`${url}: the server says ${response.status} ${response.statusText}`);
  const target = sink(artefact.weightBytes);
  const reader = response.body.getReader();
  for (let done = 0;;) {
    const { value, done: last } = await reader.read();
    if (last) {
      if (done !== target.length)
        throw new SinterError(`${url}: ${done} bytes of weights, expected ${target.length}: ` +
          'the download is incomplete, or the file belongs to another model');
      return target;
    }
    if (done + value.length > target.length)
      throw new SinterError(`${url}: more than ${target.length} bytes of weights: the file belongs to another model`);
    target.set(value, done);
    done += value.length;
    total(done, target.length);
  }
}

// What checksum of its contents a weights file says that it has.
const checksumOf = (bytes) =>
  new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(artefact.checksumAt, true).toString(16).padStart(16, '0');

// Puts a copy of the weights into the cache, in place of what it has of the same path.
async function keep(cache, key, bytes) {
  const headers = { 'content-type': 'application/octet-stream', 'content-length': String(bytes.length) };
  const pathOf = (url) => url.split('?')[0];
  try {
    for (const old of await cache.keys()) if (pathOf(old.url) === pathOf(key)) await cache.delete(old);
    await cache.put(key, new Response(bytes.slice(), { headers }));
  } catch {
    // no memory or no room: the next visit fetches them again
  }
}

async function fetchWeights(url, options, sink) {
  const total = options.onProgress || (() => {});
  if (isFile(url)) return readFile(url, total, sink);
  const cache = await openCache(options.cache !== false);
  const key = keyOf(url), stored = cache && await cache.match(key);
  const response = stored || await fetch(url).catch((e) => { throw new SinterError(`${url}: ${e.message}`); });
  const bytes = await readResponse(response, url, total, sink);
  if (cache && !stored && checksumOf(bytes) === artefact.checksum) await keep(cache, key, bytes);
  return bytes;
}

// A stream is compiled while it arrives, and browsers keep its code for the next visit. They take no other type, also none
// with parameters.
async function readCode(url) {
  if (isFile(url)) return WebAssembly.compile(await (await import('node:fs/promises')).readFile(url));
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the server says ${response.status} ${response.statusText}`);
  const type = response.headers.get('content-type') || '', streams = /^\s*application\/wasm\s*$/i.test(type);
  return streams ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

async function compileCode(url) {
  try {
    return await readCode(url);
  } catch (e) {
    throw new SinterError(`${url}: ${e.message}; it needs the code, ${artefact.name}.wasm, beside the script or as ` +
      `load({ code }), and a browser or Node with the instructions of ${artefact.target}`);
  }
}

const besides = (name, given) => new URL(given || name, import.meta.url);

export class Model {
  constructor(module) {
    const { exports } = new WebAssembly.Instance(module, Model.imports());
    this.threads = 1;
    this.exports = exports;
    this.memory = exports.memory;
    this.heap = new Heap(this.memory, exports.__heap_base.value);
    this.at = this.heap.allocate(MODEL_BYTES).at;
    this.scratch = null;
  }

  // A module with workers has others of these three (workers.js).
  static imports() {
    return {};
  }
  async start() {}
  close() {}

  /** Memory for weights of `bytes`: fill it, then call `open`. */
  weightsView(bytes) {
    if (bytes !== artefact.weightBytes)
      throw new SinterError(`${bytes} bytes of weights, expected ${artefact.weightBytes}: ` +
        'the file is incomplete, or belongs to another model');
    this.weights = this.heap.allocate(bytes);
    return new Uint8Array(this.memory.buffer, this.weights.at, bytes);
  }

  /** Checks that the weights belong to the code; with `verify` their checksum, too. */
  open(verify) {
    this.check(this.exports.init(this.at, this.weights.at, BigInt(artefact.weightBytes)));
    if (verify) this.check(this.exports.verify(this.at));
  }

  check(code) {
    if (!code) return;
    const bytes = new Uint8Array(this.memory.buffer), at = this.exports.message(code) >>> 0;
    throw new SinterError(new TextDecoder().decode(bytes.slice(at, bytes.indexOf(0, at))), code);
  }

  newState() {
    return new State(this);
  }

  entry(name) {
    const entry = artefact.entries.find((e) => e.name === name);
    if (!entry)
      throw new SinterError(`no entry '${name}': there are ${artefact.entries.map((e) => e.name).join(', ')}`);
    return entry;
  }

  has(name) {
    return artefact.entries.some((e) => e.name === name);
  }

  // Room for a call: it stays for the next one.
  reserve(bytes) {
    if (this.scratch && this.scratch.size >= bytes) return this.scratch.at;
    if (this.scratch) this.heap.release(this.scratch);
    this.scratch = null;
    this.scratch = this.heap.allocate(bytes);
    return this.scratch.at;
  }

  layOut(entry, dims) {
    let end = Math.ceil((entry.dims.length * SLOT) / ALIGN) * ALIGN;
    const args = end;
    end += (entry.inputs.length + entry.outputs.length) * SLOT;
    const places = [...entry.inputs, ...entry.outputs].map((t) => {
      const count = t.shape.reduce((n, size) => n * evaluate(size, dims), 1);
      const at = Math.ceil(end / ALIGN) * ALIGN;
      end = at + count * arrays[t.type].BYTES_PER_ELEMENT;
      return { ...t, count, at };
    });
    return { args, places, workspace: Math.ceil(end / ALIGN) * ALIGN };
  }

  fill(base, place, inputs) {
    const type = arrays[place.type], given = inputs[place.name];
    if (given === undefined) throw new SinterError(`the input '${place.name}' is missing`);
    const values = typeof given === 'number' || typeof given === 'bigint' ? [given] : given;
    if (values.length !== place.count)
      throw new SinterError(`'${place.name}' has ${values.length} elements; [${place.shape}] are ${place.count}`);
    const room = new type(this.memory.buffer, base + place.at, place.count);
    if (place.type === 'f32' || place.type === 'f64') room.set(values);
    else this.fillIntegers(room, place, values);
  }

  // A typed array would take NaN as 0, and drop fractions and upper bits.
  fillIntegers(room, place, values) {
    for (let i = 0; i < room.length; i++) {
      const x = Number(values[i]), whole = Number.isInteger(x);
      if (whole) room[i] = place.type === 'i64' ? BigInt(values[i]) : x;
      if (!whole || Number(room[i]) !== x)
        throw new SinterError(`element ${i} of '${place.name}' is ${values[i]}, not an integer of type ${place.type}`);
    }
  }

  /**
   * Runs an entry. dims: its lengths by name; inputs: typed arrays (or lists, or a number) by name, row-major.
   * Returns typed arrays by name, which are copies.
   */
  run(name, dims = {}, inputs = {}, state = null) {
    const results = this.call(name, dims, inputs, state);
    for (const output in results) results[output] = results[output].slice();
    return results;
  }

  // The same; the results are in the module's memory until the next call.
  call(name, dims, inputs, state) {
    const entry = this.entry(name);
    if (entry.state && !(state instanceof State)) throw new SinterError(`${name} needs a state: model.newState()`);
    const stateAt = entry.state ? state.addressIn(this) : 0;
    const lengths = entry.dims.map((d) => {
      const value = Number(dims[d.name]);
      if (!Number.isInteger(value) || value < d.min || value > d.max)
        throw new SinterError(`${name}: ${d.name} is ${dims[d.name]}, not ${d.min} to ${d.max}`);
      return BigInt(value);
    });
    const plan = this.layOut(entry, dims);
    let base = this.reserve(plan.workspace + ALIGN);
    const setLengths = () => new BigInt64Array(this.memory.buffer, base, lengths.length).set(lengths);
    setLengths();
    const need = Number(this.exports[`workspace_${name}`](this.at, base));
    if (need < 0) this.check(-need);
    base = this.reserve(plan.workspace + need);
    setLengths();
    const slots = new DataView(this.memory.buffer, base + plan.args);
    plan.places.forEach((place, i) => {
      slots.setBigUint64(i * SLOT, BigInt(base + place.at), true);
      if (i < entry.inputs.length) this.fill(base, place, inputs);
    });
    this.check(this.exports[`run_${name}`](this.at, stateAt, base + plan.workspace, base,
      base + plan.args));
    const results = {};
    for (const place of plan.places.slice(entry.inputs.length))
      results[place.name] = new arrays[place.type](this.memory.buffer, base + place.at, place.count);
    return results;
  }
}

/**
 * Loads the module and its weights from beside this file. Options: code, weights, tokenizer, source (URLs; weights may
 * be bytes), onProgress(bytes, of), cache (false: not in the browser's Cache), verify (reads all weights), warmUp (false: see
 * Model.warmUp), threads (with workers: how many).
 */
export async function load(options = {}) {
  const { weights } = options, reads = artefact.tokenizer && options.tokenizer !== false;
  const texts = Promise.all(['tokenizer', 'source'].map((which) => reads && artefact[which] &&
    loadTokenizer(besides(`./${artefact[which]}/`, options[which]))));
  texts.catch(() => {}); // what fails first is reported
  const module = await compileCode(besides(`./${artefact.name}.wasm`, options.code)), model = new Model(module);
  try {
    const bytes = bytesOf(weights), started = model.start(module, options.threads);
    started.catch(() => {}); // as above
    if (bytes) model.weightsView(bytes.length).set(bytes);
    else await fetchWeights(besides(`./${artefact.name}.weights`, weights), options, (size) => model.weightsView(size));
    await started;
    model.open(options.verify);
    if (options.warmUp !== false) model.warmUp();
    for (const [i, what] of (await texts).entries()) if (what) model[['tokenizer', 'source'][i]] = what;
    return model;
  } catch (e) {
    model.close();
    throw e;
  }
}
