"""Small valid files for tests/long/fuzz_files.c: models of llama2.c and CTranslate2, vocabularies, and an object
with a manifest.

    python3 tests/data/fuzz/make_seeds.py"""
import json
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, INNER, LAYERS, HEADS, VOCAB, POSITIONS = 8, 8, 1, 8, 4, 4


def write_llama2c():
    dim, heads, kv_heads, vocab, positions = 4, 2, 1, 3, 2
    kv = dim // heads * kv_heads
    layer = dim + 2 * dim * dim + 2 * kv * dim + dim + 3 * dim * INNER
    floats = 2 * vocab * dim + LAYERS * layer + dim + 2 * positions * (dim // heads // 2)
    header = struct.pack("<7i", dim, INNER, LAYERS, heads, kv_heads, -vocab, positions)
    (HERE / "llama2c.bin").write_bytes(header + struct.pack(f"<{floats}f", *[0.5] * floats))


def text(s):
    return struct.pack("<H", len(s) + 1) + s.encode() + b"\0"


def tensor(name, shape, code="f"):
    n = 1
    for size in shape:
        n *= size
    data = struct.pack(f"<{n}{code}", *[1] * n)
    return text(name) + struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, struct.calcsize(code), n) + data


def write_ctranslate2():
    d, f, v = WIDTH, INNER, VOCAB
    attention = {"layer_norm/gamma": [d], "layer_norm/beta": [d], "linear_0/weight": [3 * d, d], "linear_0/bias": [3 * d],
                 "linear_1/weight": [d, d], "linear_1/bias": [d]}
    cross = {**attention, "linear_0/weight": [d, d], "linear_0/bias": [d], "linear_1/weight": [2 * d, d],
             "linear_1/bias": [2 * d], "linear_2/weight": [d, d], "linear_2/bias": [d]}
    ffn = {"layer_norm/gamma": [d], "layer_norm/beta": [d], "linear_0/weight": [f, d], "linear_0/bias": [f],
           "linear_1/weight": [d, f], "linear_1/bias": [d]}
    tensors = {"decoder/projection/weight": [v, d], "decoder/projection/bias": [v]}
    for stack in ("encoder", "decoder"):
        tensors |= {f"{stack}/embeddings/weight": [v, d], f"{stack}/layer_norm/gamma": [d], f"{stack}/layer_norm/beta": [d]}
        parts = {"self_attention": attention, "ffn": ffn} | ({"attention": cross} if stack == "decoder" else {})
        tensors |= {f"{stack}/layer_0/{part}/{name}": shape for part in parts for name, shape in parts[part].items()}
    codes = {"decoder/projection/weight": "b", "encoder/embeddings/weight": "h"}
    scales = {f"{name}_scale": [v] if code == "b" else [1] for name, code in codes.items()}
    body = b"".join(tensor(n, shape, codes.get(n, "f")) for n, shape in (tensors | scales).items())
    head = struct.pack("<I", 2) + text("TransformerBase") + struct.pack("<II", 3, len(tensors) + len(scales))
    (HERE / "ctranslate2.bin").write_bytes(head + body)
    for name, tokens in (("source", "ab"), ("target", "cd")):
        (HERE / f"{name}_vocabulary.txt").write_text("<s>\n" + "\n".join(tokens) + "\n")


def write_merges():
    """A byte-level BPE: all bytes as the characters that GPT-2 has for them, then what the merges make."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    tokens = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]
    merges = ["h e", "l l", "he ll", "hell o", "\u0120 b", "i n", "in g", "1 2", "\u0120b r"]
    tokens += [m.replace(" ", "") for m in merges] + ["<|endoftext|>"]
    (HERE / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (HERE / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}, separators=(",", ":")))
    (HERE / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] hello ##ing fox".split()) + "\n")


MANIFEST = """SINTER-ARTEFACT 1
name m
version 0.1.0
threads none
weights 45056 file cbfbe809e30dd420
state 64
text bare
target x86-64-v2 x86_64-unknown-linux-gnu 99738
  needs sse3 ssse3 sse4.1 sse4.2 popcnt (x86-64-v2)
entry forward state
  dim T 1 32
  about T tokens per sequence, padding included
  in tokens i32 [B,T]
  about tokens token ids
  out logits f32 [B,T,268]
label 0 cat
label 1 dog
bos 1
eos 2
source 7
"""


def write_artefact():
    code = "int m_v0_a(int x) { return x * 3; }\nint m_open(int x) { return m_v0_a(x) + 1; }\n"
    quoted = MANIFEST.replace("\n", "\\n")
    to = HERE / "artefact.elf"
    subprocess.run(["gcc", "-Os", "-c", "-ffunction-sections", "-fno-asynchronous-unwind-tables", "-fno-ident", "-xc", "-",
                    "-o", to], input=f'const char m_manifest[] = "{quoted}";\n{code}', text=True, check=True)
    subprocess.run(["strip", "--strip-unneeded", to], check=True)


write_llama2c()
write_merges()
write_artefact()
write_ctranslate2()
