// tokenizer_json.js: Hugging Face's tokenizers: WordPiece (BERT) and byte-level byte-pair encoding (GPT-2, Llama 3) of
// a tokenizer.json (sentencepiece.js has others), and BERT's vocab.txt. Ids are those of `sinter tokenizer encode`.

const unsupported = (what, value) => new SinterError(`tokenizer.json: the module does not read ${what} ` +
  `"${value ?? '(no type)'}": load with { tokenizer: false } and use token ids`);

// The steps of a "Sequence", or the step.
const listSteps = (step, list) =>
  !step ? [] : step.type === 'Sequence' ? step[list].flatMap((s) => listSteps(s, list)) : [step];

// Their functions, which the table makes.
function makeSteps(steps, what, table) {
  return steps.map((step) => {
    if (!Object.hasOwn(table, step.type)) throw unsupported(what, step.type);
    return table[step.type](step);
  });
}

// ---- normalizers: text to text ----

const chinese = new RegExp('[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2B73F}' +
  '\\u{2B740}-\\u{2CEAF}\\uF900-\\uFAFF\\u{2F800}-\\u{2FA1F}]', 'gu');

// Character by character: the lower case of a final sigma does not depend on its place.
const lowerCase = (text) => Array.from(text, (c) => c.toLowerCase()).join('');

function bertNormalizer(step) {
  const lower = step.lowercase ?? true, strip = step.strip_accents ?? lower;
  return (given) => {
    let text = given;
    if (step.clean_text ?? true)
      text = text.replace(/[\0\uFFFD]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}]/gu, '').replace(/\p{White_Space}/gu, ' ');
    if (step.handle_chinese_chars ?? true) text = text.replace(chinese, ' $& ');
    if (strip) text = text.normalize('NFD').replace(/\p{Mn}/gu, '');
    return lower ? lowerCase(text) : text;
  };
}

const unicodeForm = (step) => (text) => text.normalize(step.type);
const normalizers = {
  NFC: unicodeForm, NFD: unicodeForm, NFKC: unicodeForm, NFKD: unicodeForm, BertNormalizer: bertNormalizer,
  Lowercase: () => lowerCase,
  StripAccents: () => (text) => text.replace(/\p{M}/gu, ''),
};

// ---- patterns: those of PCRE, as C reads them, in JavaScript ----

const space = '\\t-\\r\\x85\\u180E\\p{Z}';
const otherCases = { s: '\\u017F', k: '\\u212A' };

function eitherCase(letter, inClass) {
  const lower = letter.toLowerCase(), all = lower + letter.toUpperCase() + (otherCases[lower] ?? '');
  return inClass ? all : `[${all}]`;
}

// An escape: classes know all of Unicode; what needs no escape has none.
function translateEscape(text, inClass) {
  const c = text[1];
  if (c === 's') return inClass ? space : `[${space}]`;
  if (c === 'S' && !inClass) return `[^${space}]`;
  if (c === 'd') return '\\p{Nd}';
  if ('pP'.includes(c) && text.length === 3) return `\\${c}{${text[2]}}`;
  if ('wWbBDS'.includes(c)) throw unsupported('the pattern', text);
  return /[\w^$\\.*+?()[\]{}|/]/.test(c) || (c === '-' && inClass) ? text : c;
}

// JavaScript before 2025 has no (?i:…), so it is written out.
function translatePattern(pattern) {
  let out = '', inClass = false, depth = 0, folded = Infinity; // folded: the depth from which case does not matter
  if (/\[\^?\]|\[\[:/.test(pattern)) throw unsupported('the pattern', pattern);
  for (const [t] of pattern.matchAll(/\\[pP]\{[^}]*\}|\\[pP].|\\.|\(\?i:|./gsu)) {
    if (t[0] === '\\') {
      out += translateEscape(t, inClass);
      continue;
    }
    if (!inClass && t[0] === '(') depth++;
    if (t === '(?i:') folded = Math.min(folded, depth);
    if (folded <= depth && inClass && t === '-') throw unsupported('the pattern', pattern);
    if (t === '(?i:') out += '(?:';
    else if (!inClass && t === '.') out += '[^\\n]';
    else out += folded <= depth && /[a-z]/i.test(t) ? eitherCase(t, inClass) : t;
    if (!inClass && t === ')' && --depth < folded) folded = Infinity;
    if (t === '[') inClass = true;
    if (t === ']') inClass = false;
  }
  return out;
}

function compilePattern(pattern) {
  try {
    return new RegExp(translatePattern(pattern), 'gu');
  } catch (e) {
    throw e instanceof SinterError ? e : unsupported('the pattern', pattern);
  }
}

const literally = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

// ---- pre-tokenizers: text to pieces ----

// Whether a piece joins the one before it: whether they match.
const joins = {
  Isolated: () => false, Removed: () => false, Contiguous: (a, b) => a === b, MergedWithPrevious: (a, b) => !a && b,
  MergedWithNext: (a, b) => a && !b,
};

// Pieces that match (Removed: are dropped), and what is between them.
function splitText(text, regex, behavior, invert) {
  const pieces = [];
  let done = 0, before; // whether the last piece matches
  const push = (end, matched) => {
    const piece = text.slice(done, end), match = matched !== invert;
    done = end;
    if (!piece || (behavior === 'Removed' && match)) return;
    if (pieces.length && joins[behavior](before, match)) pieces[pieces.length - 1] += piece;
    else pieces.push(piece);
    before = match;
  };
  for (const m of text.matchAll(regex)) {
    if (!m[0]) continue;
    push(m.index, false);
    push(m.index + m[0].length, true);
  }
  push(text.length, false);
  return pieces;
}

function makeSplit(step) {
  const { Regex, String: string } = step.pattern, behavior = step.behavior ?? 'Isolated';
  if (!Object.hasOwn(joins, behavior)) throw unsupported('the split behavior', behavior);
  const regex = Regex ? compilePattern(Regex) : new RegExp(literally(string), 'gu');
  return (text) => splitText(text, regex, behavior, step.invert ?? false);
}

const gpt2Pattern = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const bertPattern = /[!-/:-@[-`{-~\p{P}]|[^\p{White_Space}!-/:-@[-`{-~\p{P}]+/gu;

function makeByteLevel(step) {
  const regex = step.use_regex ?? true ? compilePattern(gpt2Pattern) : null, prefix = step.add_prefix_space ?? true;
  return (text) => {
    const all = prefix && text[0] !== ' ' ? ` ${text}` : text;
    return regex ? splitText(all, regex, 'Isolated', false) : [all];
  };
}

const preTokenizers = {
  BertPreTokenizer: () => (text) => text.match(bertPattern) ?? [],
  ByteLevel: makeByteLevel,
  Split: makeSplit,
  Digits: (step) => (text) => splitText(text, step.individual_digits ? /\p{N}/gu : /\p{N}+/gu, 'Isolated', false),
};

// ---- models: a piece to ids ----

const isPrintable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
const byteLetters = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(isPrintable(b) ? b : next++));
})();
const letterBytes = new Map(byteLetters.map((letter, b) => [letter, b]));
const spellBytes = (text) => Array.from(utf8.encode(text), (b) => byteLetters[b]).join('');

function refuseAffixes(model) {
  for (const affix of ['continuing_subword_prefix', 'end_of_word_suffix'])
    if (model[affix]) throw unsupported(affix, model[affix]);
}

// Byte-level byte-pair encoding. The vocabulary writes bytes as letters.
class BytePairs {
  constructor(t, model) {
    refuseAffixes(model);
    this.t = t;
    this.wholeFirst = model.ignore_merges ?? false;
    this.rank = new Map();
    this.made = new Set(byteLetters);
    for (const merge of model.merges) {
      const at = Array.isArray(merge) ? 0 : merge.indexOf(' ');
      const [a, b] = (Array.isArray(merge) ? merge : [merge.slice(0, at), merge.slice(at + 1)]).map(this.key);
      if (!this.rank.has(`${a} ${b}`)) this.rank.set(`${a} ${b}`, this.rank.size);
      this.made.add(a + b);
    }
  }
  // A text, and a text of the file, as the vocabulary has them.
  write(text) {
    return spellBytes(text);
  }
  // Texts with other characters (such as an added token) are taken literally.
  key(text) {
    return Array.from(text).every((c) => letterBytes.has(c)) ? text : spellBytes(text);
  }
  check() {
    for (const text of this.made)
      if (!this.t.id.has(text)) throw new SinterError(`tokenizer.json: "${text}" is not in the vocabulary`);
  }
  encode(piece) {
    const text = spellBytes(piece), whole = this.t.id.get(text);
    if (this.wholeFirst && whole !== undefined && !this.t.control.has(whole)) return [whole];
    return mergePairs(text.split(''), (a, b) => this.rank.get(`${a} ${b}`)).map((part) => this.t.id.get(part));
  }
  decoder() {
    const bytes = (id) => {
      const text = this.t.textOf(id);
      return Uint8Array.from(this.t.control.has(id) ? '' : text, (c) => letterBytes.get(c));
    };
    return new Decoder(bytes, false);
  }
}

// The longest known pieces of a word, from the left.
class WordPieces {
  constructor(t, model, decoder) {
    this.t = t;
    this.prefix = model.continuing_subword_prefix ?? '##';
    this.most = model.max_input_chars_per_word ?? 100;
    this.joined = decoder ? decoder.prefix ?? '##' : this.prefix;
    this.cleanup = decoder ? decoder.cleanup ?? true : false;
  }
  write(text) {
    return text;
  }
  key(text) {
    return text;
  }
  check() {}
  encode(word) {
    const chars = Array.from(word), ids = [];
    for (let at = 0, end; at < chars.length && chars.length <= this.most; at = end) {
      let id;
      for (end = Math.min(chars.length, at + this.t.longest); end > at; end--) {
        id = this.t.id.get((at ? this.prefix : '') + chars.slice(at, end).join(''));
        if (id !== undefined && !this.t.control.has(id)) break;
      }
      if (end === at) break;
      ids.push(id);
      if (end === chars.length) return ids;
    }
    if (this.t.roles.unk === undefined) throw new SinterError(`no token for "${word}" and no unk token`);
    return [this.t.roles.unk]; // if part of a word is unknown, the whole word is
  }
  decoder(after) {
    let first = !after.some((id) => !this.t.control.has(id));
    const push = (id) => {
      let text = this.t.textOf(id);
      if (this.t.control.has(id)) {
        if (id === this.t.roles.bos) first = true;
        return '';
      }
      const inside = this.joined && text.length > this.joined.length && text.startsWith(this.joined);
      if (inside) text = text.slice(this.joined.length);
      const apart = !first && !inside && !(this.cleanup && /^([.?!,]|n't|'m|'s|'ve|'re)/.test(text));
      first = false;
      return (apart ? ' ' : '') + text;
    };
    return { push, end: () => '' };
  }
}

// ---- the tokenizer ----

// Keys of tokenizer_config.json, and usual names, of the tokens with a role.
const roleKeys = { bos: ['bos_token', 'cls_token'], eos: ['eos_token', 'sep_token'], mask: ['mask_token'],
  unk: ['unk_token'], pad: ['pad_token'] };
const roleNames = {
  bos: ['<|bos|>', '[CLS]', '<s>', '<|begin_of_text|>', '<|startoftext|>', '<|endoftext|>'],
  eos: ['<|eos|>', '[SEP]', '</s>', '<|end_of_text|>', '<|endoftext|>'],
  mask: ['<|mask|>', '[MASK]', '<mask>'], unk: ['<|unk|>', '[UNK]', '<unk>'], pad: ['<|pad|>', '[PAD]', '<pad>'],
};
const letter = '[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]';
const wordEnd = new RegExp(`${letter}$`, 'u'), wordStart = new RegExp(`^${letter}`, 'u');
const spaceEnd = /\p{White_Space}+$/u, spaceStart = /^\p{White_Space}*/u;

function modelType(model) {
  return model.type ?? (model.merges ? 'BPE' : Array.isArray(model.vocab) ? 'Unigram' : 'WordPiece');
}

class JsonTokenizer {
  // config: tokenizer_config.json or null; templated: the file says what a text begins and ends with
  constructor(root, config, templated = true) {
    const splits = listSteps(root.pre_tokenizer, 'pretokenizers');
    this.normalize = makeSteps(listSteps(root.normalizer, 'normalizers'), 'the normalizer', normalizers);
    this.id = new Map();
    this.token = [];
    this.control = new Set();
    this.roles = {};
    this.before = [];
    this.after = [];
    this.makeModel(root, splits.findIndex((s) => s.type === 'ByteLevel'), splits.length - 1);
    this.split = makeSteps(splits, 'the pre_tokenizer', preTokenizers);
    const { vocab } = root.model, texts = Array.isArray(vocab) ? vocab.map(([text], id) => [text, id]) : Object.entries(vocab);
    for (const [text, id] of texts) this.addText(id, this.model.key(text));
    this.model.check();
    this.longest = this.token.reduce((n, text) => Math.max(n, text.length), 1);
    const added = (root.added_tokens ?? []).map((a) => this.takeAdded(a));
    if (root.model.unk_token) this.takeRole('unk', root.model.unk_token);
    this.readProcessor(root.post_processor);
    this.finish(added, config ?? {}, templated);
  }
  makeModel({ model, decoder }, byteLevel, last) {
    const type = modelType(model), pieces = { BPE: CharPairs, Unigram: Unigrams }[type];
    if (pieces && byteLevel < 0) {
      this.model = new pieces(this, model, decoder);
      return;
    }
    if (type !== 'BPE' && type !== 'WordPiece') throw unsupported('the model', type);
    if (byteLevel >= 0 && (type !== 'BPE' || byteLevel !== last)) throw unsupported('steps after', 'ByteLevel');
    const wanted = type === 'BPE' ? 'ByteLevel' : 'WordPiece';
    if (decoder && decoder.type !== wanted) throw unsupported('the decoder', decoder.type);
    this.model = type === 'BPE' ? new BytePairs(this, model) : new WordPieces(this, model, decoder);
  }
  addText(id, text) {
    this.token[id] = text;
    if (!this.id.has(text)) this.id.set(text, id);
  }
  find(text) {
    return this.id.get(this.model.write(text));
  }
  textOf(id) {
    const text = this.token[id];
    if (text === undefined) throw new SinterError(`there is no token ${id}`);
    return text;
  }
  normalized(text) {
    return this.normalize.reduce((t, step) => step(t), text);
  }
  takeAdded(a) {
    if (this.token[a.id] === undefined) this.addText(a.id, this.model.write(a.content));
    if (a.special) this.control.add(a.id);
    const late = (a.normalized ?? !a.special) && this.normalize.length > 0;
    return { ...a, late, text: late ? this.normalized(a.content) : a.content };
  }
  takeRole(role, name) {
    this.roles[role] ??= this.find(name);
  }
  // What is added to a text: a template, or BERT's and RoBERTa's cls and sep.
  readProcessor(step) {
    if (!step) return;
    if (!['Sequence', 'TemplateProcessing', 'BertProcessing', 'RobertaProcessing', 'ByteLevel'].includes(step.type))
      throw unsupported('the post_processor', step.type);
    (step.processors ?? []).forEach((s) => this.readProcessor(s));
    const take = (role, name, ids) => {
      this.takeRole(role, name);
      (role === 'bos' ? this.before : this.after).push(...ids.filter((id) => id !== undefined));
    };
    let role = 'bos';
    for (const part of step.single ?? []) {
      if (part.Sequence) role = 'eos';
      const name = part.SpecialToken?.id;
      if (name) take(role, name, step.special_tokens?.[name]?.ids ?? [this.find(name)]);
    }
    if (step.cls) take('bos', step.cls[0], [step.cls[1]]);
    if (step.sep) take('eos', step.sep[0], [step.sep[1]]);
  }
  finish(added, config, templated) {
    const named = (key) => config[key]?.content ?? config[key], all = [...added];
    const names = Object.values(roleKeys).flat().map(named).filter((name) => typeof name === 'string');
    for (const role of Object.keys(roleKeys)) {
      for (const key of roleKeys[role]) if (typeof named(key) === 'string') this.takeRole(role, named(key));
      for (const name of roleNames[role]) this.takeRole(role, name);
      const id = this.roles[role];
      if (id === undefined) continue;
      this.control.add(id);
      const name = [...names, ...templated ? [] : roleNames[role]].find((n) => this.find(n) === id);
      if (name !== undefined && !all.some((a) => a.id === id)) all.push({ id, text: name });
    }
    if (!templated) for (const [list, role] of [[this.before, 'bos'], [this.after, 'eos']])
      if (this.roles[role] !== undefined) list.push(this.roles[role]);
    this.added = [false, true].map((late) => this.matcher(all.filter((a) => Boolean(a.late) === late && a.text)));
  }
  // The longest text counts; of equal ones, the smallest id.
  matcher(list) {
    const sorted = [...list].sort((a, b) => b.text.length - a.text.length || a.id - b.id), tokens = new Map();
    for (const a of sorted) if (!tokens.has(a.text)) tokens.set(a.text, a);
    return { tokens, regex: tokens.size ? new RegExp([...tokens.keys()].map(literally).join('|'), 'gu') : null };
  }
  // Added tokens stand for themselves; the text between them is normalized, searched again, then split.
  encodeSpan(text, late, out, whole) {
    const { tokens, regex } = this.added[late];
    let done = 0, first = whole; // first: the text begins here
    for (let at = 0; regex;) {
      regex.lastIndex = at;
      const m = regex.exec(text);
      if (!m) break;
      const a = tokens.get(m[0]);
      at = m.index + m[0].length;
      if (a.single_word && (wordEnd.test(text.slice(Math.max(0, m.index - 2), m.index)) ||
          wordStart.test(text.slice(at, at + 2)))) continue;
      const left = text.slice(done, m.index);
      this.encodeRest(a.lstrip ? left.replace(spaceEnd, '') : left, late, out, first);
      first = false;
      out.push(a.id);
      if (a.rstrip) at += spaceStart.exec(text.slice(at))[0].length;
      done = at;
    }
    this.encodeRest(text.slice(done), late, out, first);
  }
  encodeRest(text, late, out, first) {
    if (!text) return;
    const apply = (list, step) => list.flatMap((piece, i) => step(piece, first && !i));
    if (!late) this.encodeSpan(this.normalized(text), 1, out, first);
    else for (const piece of this.split.reduce(apply, [text]))
      for (const id of this.model.encode(piece)) out.push(id);
  }
  encode(text) {
    const out = [];
    this.encodeSpan(text.replace(/\p{Cs}/gu, '\uFFFD'), 0, out, true);
    return out;
  }
  decode(ids) {
    const d = this.decoder([]);
    return ids.map((id) => d.push(id)).join('') + d.end();
  }
  decoder(after) {
    return this.model.decoder(after);
  }
}

// BERT's vocab.txt: a token a line. Uncased if no token outside brackets has a capital.
function vocabTxt(text, config) {
  const lines = text.split('\n').map((line) => line.replace(/\r$/, ''));
  if (!lines[lines.length - 1]) lines.pop();
  const lower = config?.do_lower_case ?? !lines.some((t) => /^[^[<]/.test(t) && /[A-Z]/.test(t));
  const root = {
    model: { type: 'WordPiece', vocab: Object.fromEntries(lines.map((t, id) => [t, id])) },
    normalizer: { type: 'BertNormalizer', lowercase: lower, strip_accents: config?.strip_accents ?? lower,
      handle_chinese_chars: config?.tokenize_chinese_chars ?? true },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    added_tokens: Object.entries(config?.added_tokens_decoder ?? {}).map(([id, a]) => ({ ...a, id: Number(id) })),
  };
  return new JsonTokenizer(root, config, false);
}
