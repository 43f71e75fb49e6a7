// text.js: text in, text out: generates, classifies, embeds.

function argmax(values, from = 0, to = values.length) {
  let best = from, most = values[from];
  for (let i = from + 1; i < to; i++) if (values[i] > most) most = values[best = i];
  return best - from;
}

// splitmix64, of which the upper 53 bits are a number below 1.
function randomNumbers(seed) {
  let state = BigInt.asUintN(64, BigInt(seed));
  return () => {
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
    let z = state;
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return Number((z ^ (z >> 31n)) >> 11n) / 2 ** 53;
  };
}

function softmax(logits, temperature = 1) {
  const p = new Float64Array(logits.length), most = logits[argmax(logits)];
  let sum = 0;
  for (let i = 0; i < p.length; i++) sum += p[i] = Math.exp((logits[i] - most) / temperature);
  for (let i = 0; i < p.length; i++) p[i] /= sum;
  return p;
}

// The likeliest topK (0: all), of those that make up topP of the probability. Only likely ones are sorted: tokens below
// (1 - topP) / n make up less than 1 - topP together, and of all of them the order does not matter.
function likeliest(p, topK, topP) {
  const least = topK > 0 ? Float64Array.from(p).sort()[Math.max(0, p.length - topK)] : (1 - topP) / p.length;
  const order = [];
  for (let i = 0; i < p.length; i++) if (p[i] >= least) order.push(i);
  if (topK <= 0 && topP >= 1) return order;
  order.sort((a, b) => p[b] - p[a]);
  if (topK > 0) order.length = Math.min(topK, order.length);
  let sum = 0;
  const last = order.findIndex((i) => (sum += p[i]) >= topP);
  return last < 0 ? order : order.slice(0, last + 1);
}

// A token by temperature.
function draw(logits, { temperature, topK, topP }, random) {
  const p = softmax(logits, temperature), kept = likeliest(p, topK, topP);
  let left = random() * kept.reduce((sum, i) => sum + p[i], 0);
  for (const i of kept) if ((left -= p[i]) < 0) return i;
  return kept[kept.length - 1];
}

const sampling = { temperature: 0, topK: 0, topP: 1, seed: 1, maxTokens: 256 };

Object.assign(Model.prototype, {
  /**
   * Token ids in, token ids out, as an iterator: continues `ids`, or, with a state that has read others, the text
   * in it. temperature 0 (the default) takes the likeliest token.
   */
  * generateTokens(ids, options = {}) {
    if (!this.has('prefill') || !this.has('decode'))
      throw new SinterError('generating needs the entries prefill and decode (--entries cached)');
    const o = { ...sampling, ...options }, state = o.state || this.newState();
    const random = randomNumbers(o.seed);
    try {
      if (state.length + ids.length > artefact.context)
        throw new SinterError(`${state.length + ids.length} tokens exceed the context of ${artefact.context}`);
      if (!ids.length) throw new SinterError('an empty text cannot be continued: give a token');
      let logits = this.call('prefill', { T: ids.length, P: state.length }, { tokens: ids }, state).logits;
      state.length += ids.length;
      for (let n = 0; n < o.maxTokens; n++) {
        const token = o.temperature > 0 ? draw(logits, o, random) : argmax(logits);
        if (artefact.eos.includes(token)) return;
        yield token;
        if (state.length >= artefact.context || n + 1 === o.maxTokens) return;
        logits = this.call('decode', { P: state.length }, { tokens: [token] }, state).logits;
        state.length++;
      }
    } finally {
      if (!o.state) state.free();
    }
  },

  /**
   * Calls the entries of a decoder once: JavaScript compiles functions when they are called, and better ones once they
   * have worked for a while, and memory for a state and for calls is mapped. Other models do nothing.
   */
  warmUp() {
    if (!(artefact.context > 0) || !this.readsTokens('prefill', 'P,T') || !this.readsTokens('decode', 'P')) return;
    const state = this.newState();
    try {
      for (const name of ['prefill', 'decode']) {
        const entry = this.entry(name), dims = {};
        for (const d of entry.dims) dims[d.name] = Math.max(d.min, Math.min(d.name === 'T' ? 8 : 0, d.max));
        const count = entry.inputs[0].shape.reduce((n, size) => n * evaluate(size, dims), 1);
        this.run(name, dims, { tokens: new Array(count).fill(0) }, state);
      }
    } finally {
      state.free();
    }
  },

  // Whether there is this entry, with these lengths and inputs, sorted.
  readsTokens(name, lengths, inputs = 'tokens') {
    const names = (list) => list.map((x) => x.name).sort().join();
    return this.has(name) && names(this.entry(name).inputs) === inputs && names(this.entry(name).dims) === lengths;
  },

  encode(text) {
    if (!this.tokenizer) throw new SinterError('no tokenizer was compiled with the model: use token ids');
    return this.tokenizer.encode(text);
  },

  // With what the tokenizer adds to a text, such as [CLS] and [SEP].
  encodeWhole(text) {
    const ids = this.encode(text), { before = [], after = [] } = this.tokenizer;
    if (!ids.length) throw new SinterError('the text is empty: no tokens');
    return [...before, ...ids, ...after];
  },

  /** Text in, pieces of text out, as an iterator. Options as of generateTokens. */
  * generate(prompt, options = {}) {
    const ids = this.encode(prompt);
    if (!artefact.noBos && artefact.bos >= 0 && ids[0] !== artefact.bos) ids.unshift(artefact.bos);
    const decoder = this.tokenizer.decoder(ids);
    for (const token of this.generateTokens(ids, options)) yield decoder.push(token);
    yield decoder.end();
  },

  /** Whether `train_step` takes tokens and targets of T and B, as train needs. */
  trains() {
    return this.readsTokens('train_step', 'B,T', 'targets,tokens');
  },

  /**
   * Trains on a text, as an iterator over the losses of its steps: rows of `block` tokens, from anywhere in the text,
   * whose targets are the next ones.
   */
  * train(text, state, { steps = 100, batch = 4, block = 32, seed = 1 } = {}) {
    if (!this.trains()) throw new SinterError('no training step of tokens and targets: call its entries with run');
    const ids = this.encode(text), random = randomNumbers(seed);
    const { max } = this.entry('train_step').dims.find((d) => d.name === 'T'), T = Math.min(block, max, ids.length - 1);
    if (T < 1) throw new SinterError('the text has fewer than two tokens');
    for (let step = 0; step < steps; step++) {
      const at = Array.from({ length: batch }, () => Math.floor(random() * (ids.length - T)));
      const rows = (shift) => at.flatMap((from) => ids.slice(from + shift, from + shift + T));
      yield this.run('train_step', { T, B: batch }, { tokens: rows(0), targets: rows(1) }, state).loss[0];
    }
  },

  // Logits become classes, the likeliest first.
  classes(logits) {
    return Array.from(softmax(logits), (probability, i) => ({ label: artefact.labels[i] ?? String(i), index: i, probability }))
      .sort((a, b) => b.probability - a.probability);
  },

  /** Whether `forward` gives logits [B, labels]. */
  classifies() {
    const logits = this.has('forward') && this.entry('forward').outputs.find((t) => t.name === 'logits');
    if (!logits || logits.shape.length !== 2 || logits.shape[0] !== 'B') return false;
    return artefact.labels.length ? logits.shape[1] === String(artefact.labels.length) : /^\d+$/.test(logits.shape[1]);
  },

  /** The classes of a text, or of an image (pixels: Float32Array [channels, rows, columns], see `pixels`). */
  classify(input) {
    if (!this.classifies())
      throw new SinterError('not a classifier: no entry forward with logits [B, labels]; call its entries with run');
    const given = typeof input === 'string' ? this.textInputs('forward', input) : this.imageInputs('forward', input);
    return this.classes(this.run('forward', given.dims, given.inputs).logits);
  },

  // The inputs of an encoder for one text.
  textInputs(name, text) {
    const entry = this.entry(name), ids = this.encodeWhole(text), dims = {}, inputs = {};
    for (const d of entry.dims) dims[d.name] = d.name === 'B' ? 1 : ids.length;
    for (const t of entry.inputs) {
      const count = t.shape.reduce((n, size) => n * evaluate(size, dims), 1);
      inputs[t.name] = t.name === 'tokens' ? ids : t.name === 'lengths' ? [ids.length] : new Array(count).fill(0);
    }
    return { dims, inputs };
  },

  imageInputs(name, pixels) {
    const entry = this.entry(name), dims = {};
    for (const d of entry.dims) dims[d.name] = 1;
    return { dims, inputs: { [entry.inputs[0].name]: pixels } };
  },

  /** The embedding of a text. */
  embed(text) {
    const given = this.textInputs('embed', text);
    return Object.values(this.run('embed', given.dims, given.inputs))[0];
  },

  /**
   * Pixels as the model takes them, of bytes RGBA (ImageData.data) of artefact.pixels.side rows and columns. A model
   * of one channel gets the mean of red, green and blue.
   */
  pixels(rgba) {
    const p = artefact.pixels;
    if (!p) throw new SinterError('not a model of images');
    const n = p.side * p.side, out = new Float32Array(n * p.channels);
    if (rgba.length !== 4 * n) throw new SinterError(`${rgba.length} bytes; ${p.side} x ${p.side} pixels have ${4 * n}`);
    for (let c = 0; c < p.channels; c++)
      for (let i = 0; i < n; i++) {
        const at = 4 * i;
        const x = p.channels === 1 ? (rgba[at] + rgba[at + 1] + rgba[at + 2]) / 3 : rgba[at + c];
        out[c * n + i] = (x * p.scale - p.mean[c]) / p.std[c];
      }
    return out;
  },
});
