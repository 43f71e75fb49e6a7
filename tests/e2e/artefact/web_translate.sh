# shellcheck shell=sh
# web_translate.sh: parts of test_deploy.sh translator and seq2seq: modules of encoder-decoders have the tokens of
# `sinter translate`.
can_run_modules() {
    command -v node >/dev/null 2>&1 && { command -v wasm-ld-19 >/dev/null 2>&1 || command -v wasm-ld >/dev/null 2>&1; }
}

# Beams and text: the names in `lines`.
web_names() {
    can_run_modules || return
    "$sinter" compile "$names" --name tr -o web --beams 3 --target wasm32 || fail "a module"
    mv web/tr.js web/tr.mjs
    mv web/tr.source.tokenizer moved
    cat >web/run.mjs <<'END'
import fs from 'node:fs';
import { load } from './tr.mjs';
const m = await load({ source: new URL('../moved/', import.meta.url) }), options = { lengthPenalty: 1 };
for (const line of fs.readFileSync('lines', 'utf8').trim().split('\n')) console.log(m.translate(line, options));
console.log(m.translates(), m.tokenizer.decode(m.translateTokens(m.source.encode('آتزمون'), { ...options, maxTokens: 3 })));
const refused = (f) => { try { f(); } catch (e) { console.log(e.message); } };
for (const wrong of ['', 'آ'.repeat(257)]) refused(() => m.translate(wrong));
for (const wrong of [{ maxTokens: 0 }, { maxTokens: 1.5 }, { lengthPenalty: -1 }, { lengthPenalty: NaN }]) refused(() => m.translate('آ', wrong));
const { call } = m;
for (const x of [NaN, Infinity]) {
  m.call = (...args) => { const r = call.apply(m, args); if (r.logits) r.logits[7] = x; return r; };
  refused(() => m.translate('آ'));
}
END
    same "beams in a module" "$(node web/run.mjs 2>&1)" "$("$sinter" translate "$names" -f lines --beams 3 --length-penalty 1 --backend native)
true $("$sinter" translate "$names" -p آتزمون --beams 3 --length-penalty 1 -n 3 --backend native)
tr: the source is empty: there is nothing to translate
tr: prefill: S is 257, not 1 to 256
tr: maxTokens: 0 is not a number of tokens, 1 or more
tr: maxTokens: 1.5 is not a number of tokens, 1 or more
tr: lengthPenalty: -1 is not a number, 0 or more
tr: lengthPenalty: NaN is not a number, 0 or more
tr: the logits contain NaN or +infinity, or are all -infinity
tr: the logits contain NaN or +infinity, or are all -infinity"
}

# A module applies the rules of generation_config.json to ids: here all of them, but those that exclude each other.
web_rules() {
    can_run_modules || return
    cat >ids/generation_config.json <<'END'
{"max_length": 14, "min_length": 5, "bad_words_ids": [[107], [117, 117]], "suppress_tokens": [311], "begin_suppress_tokens": [9],
 "no_repeat_ngram_size": 3, "repetition_penalty": 1.7, "decoder_start_token_id": 1, "eos_token_id": 226, "forced_eos_token_id": 3,
 "forced_bos_token_id": 9, "length_penalty": 2, "early_stopping": true}
END
    "$sinter" compile ids --name tr -o rules --target wasm32 --beams 3 >out 2>&1 || fail "a module: $(cat out)"
    cat >rules/run.mjs <<'END'
import { load } from './tr.mjs';
const m = await load({ tokenizer: false });
console.log(m.translateTokens([5, 6, 7, 8, 9]).join(' '));
console.log(m.translateTokens([40, 3, 2], { lengthPenalty: 0.5, maxTokens: 6 }).join(' '));
END
    mv rules/tr.js rules/tr.mjs
    same "rules in a module" "$(node rules/run.mjs 2>&1)" "$(translate ids -p "5 6 7 8 9" --beams 3 --print-ids
        translate ids -p "40 3 2" --beams 3 --print-ids --length-penalty 0.5 -n 6)"
}
