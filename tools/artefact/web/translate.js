// translate.js: what an encoder-decoder makes of a text, as `sinter translate` does: beam search (model/text/beam.c) under
// the rules of generation_config.json (model/text/token_rules.h), which the artefact has.

const inputsOf = (name) => artefact.entries.find((e) => e.name === name)?.inputs.map((t) => t.name).sort().join();
const translates = inputsOf('prefill') === 'lengths,source' && inputsOf('decode') === 'lengths,tokens' &&
  inputsOf('reorder') === 'parents';

// Changes the scores of the token after `tokens`, which begin with the start token.
function applyRules(r, tokens, most, scores) {
  const n = tokens.length, forced = n === 1 && r.first >= 0 ? r.first : n === most ? r.last : -1;
  const forbid = (id) => { scores[id] = -Infinity; }, ends = (row) => row.every((id, i) => tokens[n - row.length + i] === id);
  if (forced >= 0 && forced < scores.length) {
    scores.fill(-Infinity)[forced] = 0;
    return;
  }
  if (r.repetition !== 1)
    for (const id of new Set(tokens)) scores[id] = scores[id] < 0 ? scores[id] * r.repetition : scores[id] / r.repetition;
  for (let i = 0; r.noRepeat && i + r.noRepeat <= n; i++)
    if (ends(tokens.slice(i, i + r.noRepeat - 1))) forbid(tokens[i + r.noRepeat - 1]);
  for (const row of r.never) if (ends(row.slice(0, -1))) forbid(row[row.length - 1]);
  if (n < r.least) forbid(artefact.eos[0]);
  if (n === (r.first >= 0 ? 2 : 1)) r.neverFirst.forEach(forbid);
}

// The logarithm of the sum of e^x, as the largest x and the rest.
function logSum(x) {
  const most = x[argmax(x)];
  const rest = Math.log(x.reduce((sum, y) => sum + Math.exp(y - most), 0));
  if (!Number.isFinite(most + rest)) throw new SinterError('the logits contain NaN or +infinity, or are all -infinity');
  return [most, rest];
}

// Inserts an item into a list, the greatest value first, at most `limit` long. Equal ones keep their order.
function keepBest(list, limit, item) {
  let at = Math.min(list.length, limit - 1);
  if (list.length === limit && !(item.value > list[at].value)) return;
  for (; at > 0 && item.value > list[at - 1].value; at--) list[at] = list[at - 1];
  list[at] = item;
}

// One step of the search: the best continuations, two for each row, because one may end.
function continuations(live, rows, scoresOf, normal) {
  const best = [];
  live.forEach((h, parent) => {
    const x = scoresOf(parent), [most, rest] = logSum(x), norm = normal ? 0 : most + rest;
    for (let token = 0; token < x.length; token++) {
      const value = h.value + (x[token] - norm);
      if (x[token] > -Infinity && (best.length < 2 * rows || value > best[best.length - 1].value))
        keepBest(best, 2 * rows, { value, parent, tokens: h.tokens, token });
    }
  });
  return best;
}

Object.assign(Model.prototype, {
  /** Whether it is an encoder-decoder of tokens. */
  translates: () => translates,

  /** Token ids of a source in, those of the best result out. */
  translateTokens(ids, { maxTokens, lengthPenalty } = {}) {
    if (!translates) throw new SinterError('not an encoder-decoder of tokens: call its entries with run');
    if (!ids.length) throw new SinterError('the source is empty: there is nothing to translate');
    if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && maxTokens >= 1))
      throw new SinterError(`maxTokens: ${maxTokens} is not a number of tokens, 1 or more`);
    if (lengthPenalty !== undefined && !(Number.isFinite(lengthPenalty) && lengthPenalty >= 0))
      throw new SinterError(`lengthPenalty: ${lengthPenalty} is not a number, 0 or more`);
    const { rules = { stop: 'sure', penalty: 0 } } = artefact, most = Math.min(maxTokens || rules.most || Infinity, artefact.context);
    const rows = Number(this.entry('decode').outputs[0].shape[0]), S = ids.length, state = this.newState(), finished = [];
    const penalty = lengthPenalty ?? rules.penalty, score = (value, n) => value / n ** penalty;
    const finish = (value, tokens, n) => keepBest(finished, rows, { value: score(value, n), tokens });
    const normal = rules.changes && rows > 1;
    let live = [{ value: 0, tokens: [], token: artefact.bos, parent: 0 }];
    try {
      this.call('prefill', { S }, { source: ids, lengths: [S] }, state);
      for (let P = 0; live.length; P++) {
        const row = (what) => Array.from({ length: rows }, (_, i) => (live[i] ?? live[0])[what]), parents = row('parent');
        if (P && parents.some((p, i) => p !== i)) this.call('reorder', {}, { parents }, state);
        const { logits } = this.call('decode', { S, P }, { lengths: [S], tokens: row('token') }, state);
        const best = continuations(live, rows, (i) => {
          const x = logits.slice(i * artefact.vocab, (i + 1) * artefact.vocab), [largest, rest] = normal ? logSum(x) : [];
          if (normal) x.forEach((y, k) => { x[k] = y - largest - rest; });
          if (rules.changes) applyRules(rules, [artefact.bos, ...live[i].tokens], most, x);
          return x;
        }, normal);
        live = [];
        for (let i = 0; i < best.length && live.length < rows; i++) {
          const { value, token, parent, tokens: before } = best[i], tokens = [...before, token];
          if (token !== artefact.eos[0] && tokens.length < most) live.push({ value, token, parent, tokens });
          else if (token !== artefact.eos[0]) finish(value, tokens, tokens.length);
          else if (i < rows || rules.stop === 'sure') finish(value, before, tokens.length);
        }
        if (!live.length || finished.length < rows) continue;
        const reach = rules.stop === 'sure' ? score(live[0].value, most) : score(best[0].value, live[0].tokens.length);
        if (rules.stop === 'full' || (rules.stop !== 'sure' && rows === 1) || reach <= finished[rows - 1].value) break;
      }
      return finished[0].tokens;
    } finally {
      state.free();
    }
  },

  /** A text in, its translation, summary or answer out. */
  translate(text, options) {
    const { source = this.tokenizer } = this;
    if (!this.tokenizer) throw new SinterError('no tokenizer was compiled with the model: use translateTokens');
    const { before = [], after = [] } = source;
    return this.tokenizer.decode(this.translateTokens([...before, ...source.encode(text), ...after], options));
  },
});
