// tokenizer.js: tokenizers, from the files in the artefact's folder.

const utf8 = new TextEncoder();

async function readBytes(url) {
  if (isFile(url)) {
    const fs = await import('node:fs/promises');
    return fs.readFile(url).then((b) => new Uint8Array(b), () => null);
  }
  const response = await fetch(url);
  if (response.ok) return new Uint8Array(await response.arrayBuffer());
  if (response.status < 500) return null; // some servers say 403 of files that do not exist
  throw new SinterError(`${url}: the server says ${response.status} ${response.statusText}`);
}

// Merges the neighbours of the best rank until no pair has one. rank(a, b): a number, less is better; or undefined.
function mergePairs(parts, rank) {
  for (;;) {
    let best = Infinity, at = -1;
    for (let i = 0; i + 1 < parts.length; i++) {
      const r = rank(parts[i], parts[i + 1]);
      if (r !== undefined && r < best) {
        best = r;
        at = i;
      }
    }
    if (at < 0) return parts;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
}

// Bytes of tokens to text, piece by piece: a piece may end inside a character.
class Decoder {
  constructor(bytesOf, strip) {
    this.bytesOf = bytesOf;
    this.text = new TextDecoder();
    this.strip = strip;
  }
  push(id) {
    let bytes = this.bytesOf(id);
    if (this.strip && bytes.length) {
      if (bytes[0] === 32) bytes = bytes.subarray(1);
      this.strip = false;
    }
    return this.text.decode(bytes, { stream: true });
  }
  end() {
    return this.text.decode();
  }
}

// A part of UTF-8 text as a string. For a few ASCII characters a decoder takes many times as long.
function textOf(decoder, data, from, to) {
  let ascii = true;
  for (let i = from; ascii && i < to; i++) ascii = data[i] < 128;
  const bytes = data.subarray(from, to);
  return ascii && to - from < 64 ? String.fromCharCode.apply(null, bytes) : decoder.decode(bytes);
}

const byteToken = /^<0x([0-9A-F]{2})>$/;

// SentencePiece's byte-pair encoding in llama2.c's tokenizer.bin: merges by score, bytes for what has no token.
class LlamaTokenizer {
  constructor(data) {
    const view = new DataView(data.buffer, data.byteOffset, data.length), text = new TextDecoder();
    this.token = [];
    this.id = new Map();
    this.score = [];
    for (let at = 4; at + 8 <= data.length;) {
      const score = view.getFloat32(at, true), size = view.getInt32(at + 4, true), id = this.token.length;
      const piece = textOf(text, data, at + 8, at + 8 + size);
      at += 8 + size;
      this.token.push(piece);
      this.score.push(score);
      if (id > 2 && !this.id.has(piece)) this.id.set(piece, id);
    }
  }
  encode(text) {
    if (!text) return [];
    const parts = mergePairs(Array.from(` ${text}`), (a, b) => {
      const id = this.id.get(a + b);
      return id === undefined ? undefined : -this.score[id];
    });
    return parts.flatMap((part) => {
      const id = this.id.get(part);
      if (id !== undefined) return [id];
      return Array.from(utf8.encode(part), (b) =>
        this.id.get(`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`) ?? 0);
    });
  }
  bytes(id) {
    if (id < 3) return new Uint8Array(0);
    const byte = byteToken.exec(this.token[id]);
    return byte ? Uint8Array.of(parseInt(byte[1], 16)) : utf8.encode(this.token[id]);
  }
  decode(ids) {
    const d = this.decoder([]);
    return ids.map((id) => d.push(id)).join('') + d.end();
  }
  // after: ids whose text the next ones continue
  decoder(after) {
    return new Decoder((id) => this.bytes(id), !after.some((id) => id > 2));
  }
}

// Sinter's vocabulary.json of characters.
class CharTokenizer {
  constructor({ kind, tokens, special = {} }) {
    if (kind !== 'char') throw new SinterError(`vocabulary.json: the module reads characters, not kind '${kind}'`);
    const ids = new Set(Object.values(special));
    this.token = tokens.map((text, id) => (ids.has(id) ? '' : text));
    this.id = new Map(tokens.map((text, id) => [text, id]).filter(([, id]) => !ids.has(id)));
    this.unk = special.unk;
  }
  encode(text) {
    return Array.from(text, (c) => {
      const id = this.id.get(c) ?? this.unk;
      if (id === undefined) throw new SinterError(`the vocabulary has no token for '${c}' and no unk token`);
      return id;
    });
  }
  decode(ids) {
    return ids.map((id) => this.token[id]).join('');
  }
  decoder() {
    return { push: (id) => this.token[id], end: () => '' };
  }
}

async function loadTokenizer(folder) {
  const file = (name) => readBytes(new URL(name, folder)), text = (data) => new TextDecoder().decode(data);
  const config = async () => JSON.parse(text(await file('tokenizer_config.json') ?? utf8.encode('null')));
  const kinds = [
    ['tokenizer.json', async (data) => new JsonTokenizer(JSON.parse(text(data)), await config())],
    ['tokenizer.bin', (data) => new LlamaTokenizer(data)],
    ['vocab.txt', async (data) => vocabTxt(text(data), await config())],
    ['vocabulary.json', (data) => new CharTokenizer(JSON.parse(text(data)))],
  ];
  for (const [name, make] of kinds) {
    const data = await file(name);
    if (data) return make(data);
  }
  throw new SinterError(`${folder}: the module reads ${kinds.map((k) => k[0]).join(', ')}, and none of these is ` +
    'there: load with { tokenizer: false } and use token ids');
}
