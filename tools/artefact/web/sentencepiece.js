// sentencepiece.js: what tokenizer.json has of SentencePiece's models (T5, XLM-R, Llama 2, Gemma): unigrams, pairs of
// characters with bytes for what has no token, and their steps. A space is written U+2581.

const SPACE = '\u2581', clusters = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

// A double array (darts-clone): find(bytes) is what stands for the shortest prefix that the table has; null: none.
function readCharsmap(base64) {
  const data = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)), view = new DataView(data.buffer), text = new TextDecoder();
  const size = view.getUint32(0, true), texts = data.subarray(4 + size);
  const unit = (i) => (4 * i < size ? view.getUint32(4 + 4 * i, true) : 2 ** 31), offset = (u) => (u >>> 10) << ((u & 512) >> 6);
  return (bytes) => {
    let at = offset(unit(0));
    for (const byte of bytes) {
      const u = unit(at ^= byte);
      if ((u & 0x800000ff) !== byte) return null;
      at ^= offset(u);
      if (!(u >> 8 & 1)) continue;
      const from = unit(at) & 0x7fffffff;
      return text.decode(texts.subarray(from, texts.indexOf(0, from)));
    }
    return null;
  };
}

// A short cluster is replaced as a whole if the table has a prefix of it, else each of its characters.
function precompiled({ precompiled_charsmap: map }) {
  if (!map) return (text) => text;
  const find = readCharsmap(map), replaced = (c) => find(utf8.encode(c)) ?? c;
  return (text) => Array.from(clusters.segment(text), ({ segment: c }) => {
    const bytes = utf8.encode(c), whole = bytes.length < 6 ? find(bytes) : null;
    return whole ?? Array.from(c, replaced).join('');
  }).join('');
}

Object.assign(normalizers, {
  Precompiled: precompiled,
  Nmt: () => (text) => text.replace(/[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/g, '')
    .replace(/[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g, ' '),
  Prepend: ({ prepend }) => (text) => text && prepend + text,
  Replace: ({ pattern, content }) => {
    const regex = pattern.Regex ? compilePattern(pattern.Regex) : new RegExp(literally(pattern.String), 'gu');
    return (text) => text.replace(regex, () => content);
  },
  Strip: ({ strip_left: left = true, strip_right: right = true }) => (text) => {
    const rest = left ? text.replace(spaceStart, '') : text;
    return right ? rest.replace(spaceEnd, '') : rest;
  },
});

const schemeOf = (step) => (['first', 'never'].includes(step.prepend_scheme) ? step.prepend_scheme
  : step.add_prefix_space ?? true ? 'always' : 'never');

function metaspace(step) {
  const scheme = schemeOf(step);
  if (step.replacement !== SPACE) throw unsupported('replacement', step.replacement);
  return (text, first) => {
    const prefix = (scheme === 'always' || (scheme === 'first' && first)) && !/^[ \u2581]/.test(text);
    const all = (prefix ? SPACE : '') + text.replaceAll(' ', SPACE);
    return step.split ?? true ? all.match(/\u2581[^\u2581]*|[^\u2581]+/g) ?? [] : [all];
  };
}

Object.assign(preTokenizers, {
  Metaspace: metaspace, WhitespaceSplit: () => (text) => text.match(/\P{White_Space}+/gu) ?? [],
});

// What a decoder's step does for a text's beginning: true: it drops a space there. Spaces are written as texts say.
const decoders = {
  ByteFallback: () => false, Fuse: () => false, Metaspace: (step) => schemeOf(step) !== 'never',
  Replace: ({ pattern, content }) => {
    if (pattern?.String !== SPACE || content !== ' ') throw unsupported('a decoder that replaces', pattern?.String);
    return false;
  },
  Strip: ({ content, start, stop }) => {
    if (content !== ' ' || ![0, 1].includes(start) || stop !== 0) throw unsupported('a strip of', content);
    return start > 0;
  },
};

// What the models share: bytes or unk for what has no token, and the way back.
class Pieces {
  constructor(t, model, decoder) {
    this.t = t;
    this.fallback = model.byte_fallback ?? false;
    this.strip = makeSteps(listSteps(decoder, 'decoders'), 'the decoder', decoders).includes(true);
  }
  write(text) {
    return text;
  }
  key(text) {
    return text;
  }
  check() {}
  // Ids of parts, [text, id]; those without an id: undefined.
  spell(parts, fuse) {
    const ids = [], { unk } = this.t.roles;
    let afterUnk = false;
    for (const [text, known] of parts) {
      const bytes = this.fallback && known === undefined ? Array.from(utf8.encode(text), (b) =>
        this.t.id.get(`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`)) : [known], spelled = !bytes.includes(undefined);
      if (!spelled && unk === undefined) throw new SinterError(`no token for "${text}" and no unk token`);
      if (spelled) ids.push(...bytes);
      else if (!fuse || !afterUnk) ids.push(unk);
      afterUnk = !spelled;
    }
    return ids;
  }
  decoder(after) {
    const decoder = new Decoder((id) => {
      const text = this.t.textOf(id), control = this.t.control.has(id), byte = this.fallback && byteToken.exec(text);
      if (control && id === this.t.roles.bos) decoder.strip = this.strip; // a new text begins
      return byte ? Uint8Array.of(parseInt(byte[1], 16)) : utf8.encode(control ? '' : text.replaceAll(SPACE, ' '));
    }, this.strip && !after.some((id) => !this.t.control.has(id)));
    return decoder;
  }
}

class CharPairs extends Pieces {
  constructor(t, model, decoder) {
    super(t, model, decoder);
    refuseAffixes(model);
    this.fuse = model.fuse_unk ?? false;
    this.wholeFirst = model.ignore_merges ?? false;
    this.rank = new Map();
    for (const merge of model.merges) {
      const pair = Array.isArray(merge) ? merge.join(' ') : merge;
      if (!this.rank.has(pair)) this.rank.set(pair, this.rank.size);
    }
  }
  encode(piece) {
    const whole = this.t.id.get(piece);
    if (this.wholeFirst && whole !== undefined && !this.t.control.has(whole)) return [whole];
    const parts = mergePairs(Array.from(piece), (a, b) => this.rank.get(`${a} ${b}`));
    return this.spell(parts.map((part) => [part, this.t.id.get(part)]), this.fuse);
  }
}

// The likeliest path of tokens; of equal ones the first that is found.
class Unigrams extends Pieces {
  constructor(t, model, decoder) {
    super(t, model, decoder);
    this.piece = new Map(model.vocab.map(([text, score], id) => [text, { id, score }]));
    this.unkScore = model.vocab.reduce((least, [, score]) => Math.min(least, score), Infinity) - 10;
    if (model.unk_id !== null) t.roles.unk = model.unk_id;
  }
  encode(text) {
    const best = new Array(text.length + 1);
    best[0] = { score: 0 };
    const offer = (at, end, score, id) => {
      const total = best[at].score + score;
      if (!best[end] || total > best[end].score) best[end] = { score: total, at, id };
    };
    for (let at = 0, size; at < text.length; at += size) {
      size = text.codePointAt(at) > 0xffff ? 2 : 1;
      let single = false;
      for (let end = at + 1; end <= Math.min(text.length, at + this.t.longest); end++) {
        const found = this.piece.get(text.slice(at, end));
        if (!found || this.t.control.has(found.id)) continue;
        offer(at, end, found.score, found.id);
        single ||= end === at + size;
      }
      if (!single) offer(at, at + size, this.unkScore);
    }
    const parts = [];
    for (let end = text.length; end; end = best[end].at) parts.push([text.slice(best[end].at, end), best[end].id]);
    return this.spell(parts.reverse(), true);
  }
}
