#!/usr/bin/python3
# make_pieces.py: makes pieces/: tiny tokenizers of the kinds that models use, and for each the ids
# of the strings in pieces/strings.txt: NAME.ids, a line for each string, then a tab and the ids with what
# the post-processor adds. Models: Debian's python3-sentencepiece (0.1.97). tokenizer.json: the npm
# package "tokenizers" (0.23), Hugging Face's own; the folder with its node_modules is the argument.
import base64
import json
import os
import random
import subprocess
import sys

import sentencepiece as spm

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pieces")
NODE = sys.argv[1]
MARK = "\n__ggml_vocab_test__\n"
random.seed(1)

CORPUS = """the quick brown fox jumps over the lazy dog. the dog was not amused, but the fox didn't care.
a tokenizer splits text into pieces; pieces become numbers: 1, 22, 333, 4444 and 2024-11-22.
caf\u00e9 na\u00efve \u2460\u2461 \ufb01ne \u2163 \u4f60\u597d \u4e16\u754c \u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440
def main(argc, argv): return argv[0] if argc > 1 else None  # code has brackets {and} (more)
she said hello world hello world hello there, where were we when the weather was better?
""" * 12

STRINGS = ["", " ", "  ", "hello world", " hello  world ", "Hello World!", "the dog's 12 caf\u00e9s", "a\tb\nc\r\nd",
           "na\u00efve nai\u0308ve", "\ufb01ne \u2460\u2461 \u2163 \uff71\uff72 \uff48i", "\u4f60\u597d\u4e16\u754cabc\u4f60", "\u2581a\u2581\u2581b",
           "<s>hello</s>", "<0x41>", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 x", "it's DON'T we'll I'VE",
           "x<u1>y <u2> z<u1><u1>", "1234567 3.14 \u00b2\u00b3 \u0663", "a...b,,c!?", "\u00a0nbsp\u3000ideo\u200bzw", "\u0130I\u0131 \u00df\u1e9e \u03a3\u03c2",
           "[MASK] mask[MASK]", "hello <mask>  there <mask>!", "new newer anew new", "\u0000\u0001\u007f\u00ad\ufffd", "\ud55c\uad6d\uc5b4 e\u0301\u0301 \u1100\u1161",
           "   three spaces", "trailing   ", "\n\n\n", "tab\t\ttab", "caf\u00e9 cafe\u0301 CAF\u00c9", "(argc > 1) {x}[0]", "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "http://x.y/zz?q=22&r", "_under_score__ a_b", "$a+b=c^d|e~f`g"]
ALPHABET = list(" \u2581\u3000\t\nabAB<eh\u00e9\u0301\ufb01\u2460\u2026\u00ad\u4f60z1.'") + ["<u1>", "  ", "<s>", "new", "<mask>", "the "]
STRINGS += ["".join(random.choice(ALPHABET) for _ in range(random.randint(3, 25))) for _ in range(40)]
open(os.path.join(HERE, "strings.txt"), "w").write("".join(s + MARK for s in STRINGS))


def write_ids(name, ids, full):
    with open(os.path.join(HERE, name + ".ids"), "w") as f:
        for i, x in zip(ids, full):
            f.write(" ".join(map(str, i)) + "\t" + " ".join(map(str, x)) + "\n")


# ---- SentencePiece ----

def rule(a, b):
    return " ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n"


RULES = [("\ufb01", "fi"), ("\u2460", "1"), ("\u2461", "2"), ("\u2163", "IV"), ("e\u0301", "\u00e9"), ("\u3000", " "), ("\t", " "), ("\n", " "),
         ("\u00ad", ""), ("A", "a"), ("AB", "x"), ("\u2026", "...")]


def train(name, **options):
    with open("/tmp/pieces.txt", "w") as f:
        f.write(CORPUS)
    with open("/tmp/rules.tsv", "w") as f:
        f.writelines(rule(a, b) for a, b in RULES)
    spm.SentencePieceTrainer.train(input="/tmp/pieces.txt", model_prefix="/tmp/" + name, hard_vocab_limit=False,
                                   num_threads=1, minloglevel=2, character_coverage=0.98, **options)
    data = open("/tmp/" + name + ".model", "rb").read()
    open(os.path.join(HERE, name + ".model"), "wb").write(data)
    sp = spm.SentencePieceProcessor(model_proto=data)
    ids = [sp.encode(s) for s in STRINGS]
    write_ids(name, ids, [[1] + i + [2] for i in ids])
    return sp, data


own = dict(normalization_rule_tsv="/tmp/rules.tsv")
plain = dict(normalization_rule_name="identity")
uni, uni_data = train("unigram", model_type="unigram", vocab_size=260, control_symbols=["<c1>"],
                      user_defined_symbols=["<u1>", "<u2>", "ab\u2581ab"], **own)
train("unigram_bytes", model_type="unigram", vocab_size=480, byte_fallback=True, remove_extra_whitespaces=False, pad_id=3,
      **plain)
bpe, _ = train("bpe_bytes", model_type="bpe", vocab_size=480, byte_fallback=True, remove_extra_whitespaces=False,
               user_defined_symbols=["<u1>", "<u2>"], **plain)
train("bpe", model_type="bpe", vocab_size=260, add_dummy_prefix=False, **own)
train("bpe_suffix", model_type="bpe", vocab_size=260, treat_whitespace_as_suffix=True, **own)


def charsmap(data):
    """normalizer_spec.precompiled_charsmap of a ModelProto."""
    def fields(b):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = b[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(b):
            tag = varint()
            if tag & 7 == 0:
                yield tag >> 3, varint()
            elif tag & 7 == 5:
                at += 4
            else:
                n = varint()
                yield tag >> 3, b[at:at + n]
                at += n
    spec = dict(f for f in fields(data) if f[0] == 3)[3]
    return base64.b64encode(dict(f for f in fields(spec) if f[0] == 2)[2]).decode()


# ---- tokenizer.json ----

def token(i, content, **more):
    t = dict(id=i, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    t.update(more)
    return t


def seq(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def template(single, tokens):
    def part(s):
        return {"Sequence": {"id": s[1:], "type_id": 0}} if s[0] == "$" else {"SpecialToken": {"id": s, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [part(s) for s in single.split()],
            "pair": [part("$A"), part("$B")],
            "special_tokens": {k: {"id": k, "ids": v, "tokens": [k] * len(v)} for k, v in tokens.items()}}


def make(name, model, added=(), normalizer=None, pre=None, post=None, decoder=None):
    root = dict(version="1.0", truncation=None, padding=None, added_tokens=list(added), normalizer=normalizer,
                pre_tokenizer=pre, post_processor=post, decoder=decoder, model=model)
    path = os.path.join(HERE, name + ".json")
    with open(path, "w") as f:
        json.dump(root, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    script = ("const {Tokenizer}=require('tokenizers'),fs=require('fs');(async()=>{const t=Tokenizer.fromString("
              "fs.readFileSync(process.argv[1],'utf8'));for(const s of JSON.parse(fs.readFileSync(0,'utf8'))){const r=[];"
              "for(const add of [false,true])r.push(Array.from((await t.encode(s,null,{addSpecialTokens:add})).getIds()).join(' '));"
              "console.log(r.join('\\t'))}})().catch(e=>{console.error(e);process.exit(1)})")
    out = subprocess.run(["node", "-e", script, path], input=json.dumps(STRINGS).encode(), stdout=subprocess.PIPE, cwd=NODE,
                         check=True).stdout.decode()
    open(os.path.join(HERE, name + ".ids"), "w").write(out)


def letters():
    keep = list(range(33, 127)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 256))
    rest = [b for b in range(256) if b not in keep]
    return {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}


LETTERS = letters()


def learn(words, symbols, merges):
    """A few merges by frequency, ties by the text."""
    words = [list(w) for w in words]
    made = []
    for _ in range(merges):
        count = {}
        for w in words:
            for p in zip(w, w[1:]):
                count[p] = count.get(p, 0) + 1
        if not count:
            break
        best = max(count, key=lambda p: (count[p], p))
        made.append(best)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [w[i] + w[i + 1]]
                i += 1
    vocab = list(symbols)
    for a, b in made:
        if a + b not in vocab:
            vocab.append(a + b)
    return vocab, made


def byte_bpe(merges=60, suffix=None, specials=()):
    text = CORPUS[:700].lower()
    words = [w for w in text.replace("\n", " ").split(" ") if w]
    spelled = [[LETTERS[b] for b in (("" if suffix else " ") + w).encode()] for w in words]
    symbols = [LETTERS[b] for b in range(256)]
    if suffix:
        symbols += [s + suffix for s in symbols]
        for w in spelled:
            w[-1] += suffix
    vocab, made = learn(spelled, symbols, merges)
    vocab += list(specials)
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": suffix,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(vocab)}, "merges": [" ".join(m) for m in made]}


def byte_level(prefix=False, words=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": words}


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme, words=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": words}


BL = byte_level(True)
UNK = "<unk>"
scores = [[uni.id_to_piece(i), uni.get_score(i)] for i in range(uni.get_piece_size())]
unigram = {"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": False}
N = len(scores)
basic = [token(0, UNK), token(1, "<s>"), token(2, "</s>")]
decode = metaspace("always")
make("t5", unigram, basic + [token(N, "<extra_0>")], {"type": "Precompiled", "precompiled_charsmap": charsmap(uni_data)},
     seq("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always")), template("$A </s>", {"</s>": [2]}), decode)
make("xlm", unigram, basic + [token(N, "<mask>", lstrip=True, normalized=True)],
     seq("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, {"type": "Strip", "strip_left": False, "strip_right": True},
         {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}),
     metaspace("first"), template("<s> $A </s>", {"<s>": [1], "</s>": [2]}), decode)

# Merges of the BPE, in the order of the scores.
pieces = {bpe.id_to_piece(i): i for i in range(bpe.get_piece_size())}
merges = []
for p, i in sorted(pieces.items(), key=lambda x: x[1]):
    if i < 261 or bpe.is_control(i):
        continue
    cuts = [(p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in pieces and p[k:] in pieces]
    merges += sorted(cuts, key=lambda c: (pieces[c[0]], pieces[c[1]]))
fallback = {"type": "BPE", "dropout": None, "unk_token": UNK, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": pieces,
            "merges": [" ".join(m) for m in merges]}
to_space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
from_space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
fused = [to_space, {"type": "ByteFallback"}, {"type": "Fuse"}]
make("llama", fallback, basic, seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, from_space), None,
     template("<s> $A", {"<s>": [1]}), seq("decoders", *fused, {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
make("gemma", fallback, basic + [token(3, "<u1>", special=False), token(4, "<u2>", special=False, normalized=True)], from_space,
     split(" ", "MergedWithPrevious", kind="String"), template("<s> $A", {"<s>": [1]}), seq("decoders", *fused))

model = byte_bpe(specials=["<s>", "</s>", "<mask>"])
k = model["vocab"]["<s>"]
marks = [token(k, "<s>"), token(k + 1, "</s>"), token(k + 2, "<mask>", lstrip=True)]
make("roberta", model, marks, None, byte_level(True),
     {"type": "RobertaProcessing", "sep": ["</s>", k + 1], "cls": ["<s>", k], "trim_offsets": True, "add_prefix_space": True}, BL)
model = dict(byte_bpe(specials=["<s>", "</s>"]), ignore_merges=True)
make("llama3", model, marks[:2], None,
     seq("pretokenizers", split(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                                "Isolated"), byte_level(False, False)),
     seq("processors", byte_level(), template("<s> $A", {"<s>": [k]})), BL)
make("falcon", byte_bpe(), [], None,
     seq("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(False),
         {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]", "Isolated")), None, BL)
make("digits", byte_bpe(), [], {"type": "NFC"},
     seq("pretokenizers", {"type": "Digits", "individual_digits": True}, split("\\s?\\p{L}+", "MergedWithNext"),
         byte_level(True, False)), byte_level(), BL)
model = byte_bpe(60, "</w>", ["<s>", "</s>"])
k = model["vocab"]["<s>"]
make("clip", model, [token(k, "<s>"), token(k + 1, "</s>")],
     seq("normalizers", {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}),
     seq("pretokenizers", split(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "Removed", True), byte_level()),
     {"type": "RobertaProcessing", "sep": ["</s>", k + 1], "cls": ["<s>", k], "trim_offsets": False, "add_prefix_space": False}, BL)

wp = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted(set(CORPUS.lower().replace("\n", " "))) + \
     ["##" + c for c in "abcdefghijklmnopqrstuvwxyz0123456789"] + ["the", "dog", "hello", "world", "##llo", "cafe", "caf\u00e9", "naive", "'"]
wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 20,
             "vocab": {t: i for i, t in enumerate(dict.fromkeys(wp))}}
brackets = [token(i, wp[i]) for i in range(5)]
bert_post = template("[CLS] $A [SEP]", {"[CLS]": [2], "[SEP]": [3]})
for name, lower, accents in (("bert", True, None), ("bert_cased", False, None), ("bert_accents", True, False)):
    make(name, wordpiece, brackets, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                     "strip_accents": accents, "lowercase": lower},
         {"type": "BertPreTokenizer"}, bert_post if lower else {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
         {"type": "WordPiece", "prefix": "##", "cleanup": True})
words = ["[UNK]"] + sorted(set(CORPUS.lower().split())) + ["[MASK]", ".", ",", "'", "a", "b", "cafe", "naive", "don", "t", "i"]
level = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {t: i for i, t in enumerate(dict.fromkeys(words))}}
make("words", level, [token(0, "[UNK]")], seq("normalizers", {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}),
     {"type": "Whitespace"})
make("delimiter", level, [token(0, "[UNK]")], {"type": "Strip", "strip_left": True, "strip_right": True},
     seq("pretokenizers", {"type": "CharDelimiterSplit", "delimiter": " "}, {"type": "Punctuation", "behavior": "Removed"}))
# Added tokens: spaces, whole words, normalized content.
free = max(level["vocab"].values()) + 1
make("added", level, [token(0, "[UNK]"), token(free, "new", special=False, single_word=True), token(free + 1, "<mask>", lstrip=True, rstrip=True),
                      token(free + 2, "CAF\u00c9", special=False, normalized=True), token(free + 3, "<u1>", special=False, rstrip=True),
                      token(free + 4, "Hello World", special=False, normalized=True, single_word=True),
                      token(free + 5, "<s>", normalized=True), token(level["vocab"]["a"], "a", special=False, single_word=True, normalized=True)],
     seq("normalizers", {"type": "NFKD"}, {"type": "Lowercase"}), {"type": "WhitespaceSplit"},
     template("<s> <u1> $A [UNK] </s>", {"<s>": [free + 5], "<u1>": [free + 3, 1], "[UNK]": [0], "</s>": [2]}))
