#!/usr/bin/python3
# make_classes.py: makes classes.json: for classes of transformers with a SentencePiece model, the files of a folder and the
# ids of strings: those of the pieces, and with what the class adds. Pieces come from Debian's python3-sentencepiece
# (0.1.97); their numbers follow the documentation of the classes. Models: those of make_pieces.py, and pegasus.model.
import json
import os

import sentencepiece as spm

HERE = os.path.dirname(os.path.abspath(__file__))
PIECES = os.path.join(HERE, "pieces")
STRINGS = open(os.path.join(PIECES, "strings.txt"), newline="").read().split("\n__ggml_vocab_test__\n")[:34]
FAIRSEQ = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
NLLB = ["ace_Arab", "eng_Latn", "fra_Latn"]


def load(name):
    return spm.SentencePieceProcessor(model_file=os.path.join(PIECES, name + ".model"))


def train_pegasus():
    text = "the quick brown fox jumps over the lazy dog. hello world, hello there: 1234 caf\u00e9s\n" * 20
    with open("/tmp/pegasus.txt", "w") as f:
        f.write(text)
    spm.SentencePieceTrainer.train(input="/tmp/pegasus.txt", model_prefix="/tmp/pegasus", model_type="unigram", vocab_size=60,
                                   pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False, num_threads=1, normalization_rule_name="identity",
                                   minloglevel=2)
    open(os.path.join(PIECES, "pegasus.model"), "wb").write(open("/tmp/pegasus.model", "rb").read())


def pieces(sp):
    return [sp.id_to_piece(i) for i in range(sp.get_piece_size())]


def fairseq(sp, piece, offset=1, first=FAIRSEQ):
    n = sp.piece_to_id(piece)
    return first[piece] if piece in first else n + offset if n else 3


def joint_vocabulary(models):
    names = ["</s>", "<unk>", ">>fra<<"]
    for sp in models:
        names += [p for p in pieces(sp) if p not in names and p not in ("<s>", "<c1>")]
    names = [p for i, p in enumerate(names) if i < 3 or i % 9]  # some pieces have no number
    return {p: i for i, p in enumerate(names + ["<pad>"])}


def m2m_vocabulary(sp):
    names = ["<s>", "<pad>", "</s>", "<unk>"] + [p for i, p in enumerate(pieces(sp)[3:]) if i % 11] + ["\u2581other"]
    return {p: i for i, p in enumerate(names)}


def main():
    train_pegasus()
    uni, bpe, pegasus = load("unigram"), load("bpe"), load("pegasus")
    n, marian, m2m = uni.get_piece_size(), joint_vocabulary([uni, bpe]), m2m_vocabulary(bpe)
    camembert = {"<s>NOTUSED": 0, "<pad>": 1, "</s>NOTUSED": 2, "<unk>": 3, "<unk>NOTUSED": 4}
    classes = [  # class, its model and file, the number of a piece, before and after a text, config, vocab.json
        ("T5Tokenizer", uni, "unigram", "spiece.model", uni.piece_to_id, [], [2], {"extra_ids": 100}, None),
        ("PegasusTokenizer", pegasus, "pegasus", "spiece.model", lambda p: pegasus.piece_to_id(p) + 103, [], [1], {}, None),
        ("XLMRobertaTokenizer", uni, "unigram", "sentencepiece.bpe.model", lambda p: fairseq(uni, p), [0], [2], {}, None),
        ("CamembertTokenizerFast", uni, "unigram", "sentencepiece.bpe.model", lambda p: fairseq(uni, p, 4, camembert), [5], [6],
         {}, None),
        ("MBartTokenizer", uni, "unigram", "sentencepiece.bpe.model", lambda p: fairseq(uni, p), [], [2, n + 1 + 7],
         {"src_lang": "fr_XX"}, None),
        ("MBart50Tokenizer", uni, "unigram", "sentencepiece.bpe.model", lambda p: fairseq(uni, p), [n + 1 + 3], [2], {}, None),
        ("NllbTokenizer", bpe, "bpe", "sentencepiece.bpe.model", lambda p: fairseq(bpe, p), [bpe.get_piece_size() + 1 + 2], [2],
         {"src_lang": "fra_Latn", "additional_special_tokens": NLLB}, None),
        ("M2M100Tokenizer", bpe, "bpe", "sentencepiece.bpe.model", lambda p: m2m.get(p, 3), [len(m2m) + 18], [2], {}, m2m),
        ("MarianTokenizer", uni, "unigram", "source.spm", lambda p: marian.get(p, 1), [], [0], {}, marian),
        ("MarianTokenizer", bpe, "bpe", "target.spm", lambda p: marian.get(p, 1), [], [0], {}, marian),
    ]
    out = []
    for name, sp, model, file, number, before, after, config, vocab in classes:
        ids = [[number(p) for p in sp.encode(s, out_type=str)] for s in STRINGS]
        out.append({"class": name, "model": model, "file": file, "config": {"tokenizer_class": name, **config}, "vocab": vocab,
                    "before": before, "after": after, "ids": ids})
    with open(os.path.join(HERE, "classes.json"), "w") as f:
        f.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out) + "]\n")


main()
