# test_onnx_commands.py SINTER SOURCE: generate, embed, classify, translate and transcribe of ONNX files and folders by command
# line, compared with what `sinter call` gives for the graphs as they are (test_onnx compares these with torch).
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np

sinter, source = sys.argv[1:3]
data = source + "/tests/data/onnx/"
tmp = tempfile.mkdtemp()
cases = 0


def run(*args, code=0):
    done = subprocess.run([sinter, *args], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: exit {done.returncode}: {done.stderr}"
    return done.stderr if code else done.stdout


def call(model, **inputs):
    np.savez(tmp + "/in.npz", **inputs)
    run("call", model, "--entry", "forward", "-q", "-i", tmp + "/in.npz", "-o", tmp + "/out.npz")
    return np.load(tmp + "/out.npz")


def equal(what, found, wanted):
    global cases
    cases += 1
    assert found == wanted, f"{what}: {found}, not {wanted}"


def near(what, found, wanted, limit=1e-5):
    global cases
    cases += 1
    worst = np.abs(np.asarray(found) - np.asarray(wanted)).max()
    assert worst <= limit * np.abs(wanted).max(), f"{what}: differs by {worst}"


def ids_of(text):
    return [int(t) for t in text.split()]


def greedy(ids, n):
    """The tokens that the graph without past tokens continues with."""
    for _ in range(n):
        x = np.array([ids], np.int64)
        out = call(data + "llama.onnx", input_ids=x, attention_mask=np.ones_like(x), position_ids=np.arange(x.shape[1])[None])
        ids = ids + [int(out["logits"][0, -1].argmax())]
    return ids


def check_generate():
    prompts = [[1, 2, 3], [4], [10, 0, 5, 7, 7, 2], [9, 8]][: 4 if "SN_TEST_LONG" in os.environ else 2]
    alone = [greedy(p, 2) for p in prompts]
    equal("generate", ids_of(run("generate", data + "llama_past.onnx", "-p", "1 2 3", "-n", "2", "--temperature", "0")), alone[0])
    with open(tmp + "/prompts", "w") as f:
        f.write("".join(" ".join(map(str, p)) + "\n" for p in prompts))
    several = lambda *args: [json.loads(line)["ids"] for line in run(
        "generate", data + "llama_past.onnx", "-f", tmp + "/prompts", "--json", *args).splitlines()]
    sampled = several("-n", "12", "--temperature", "3", "--batch", "1")
    for batch in ("2", "4")[: len(prompts) // 2]:  # rows are taken again by other texts
        found = several("-n", "2", "--temperature", "0", "--batch", batch)
        equal(f"batch {batch}", [p + t for p, t in zip(prompts, found)], alone)
        equal(f"samples of batch {batch}", several("-n", "12", "--temperature", "3", "--batch", batch), sampled)
    beams = [run("generate", data + "llama_past.onnx", "-p", "1 2 3", "-n", "6", "--beams", "3", "--level", x) for x in "04"]
    equal("beams at levels 0 and 4", beams[0], beams[1])
    said = run("generate", data + "gpt_past.onnx", "-f", tmp + "/prompts", "--batch", "2", "-n", "2", code=2)
    equal("what is missing", "it has no input 'attention_mask'" in said, True)


def folder(name, config, **files):
    os.makedirs(f"{tmp}/{name}/onnx")
    with open(f"{tmp}/{name}/config.json", "w") as f:
        json.dump(config, f)
    for to, path in files.items():
        shutil.copy(data + path, f"{tmp}/{name}/onnx/{to}.onnx")
    return f"{tmp}/{name}"


def check_embed():
    ids = np.array([[1, 2, 3]], np.int64)
    hidden = call(data + "encoder.onnx", input_ids=ids, attention_mask=np.ones_like(ids),
                  token_type_ids=np.zeros_like(ids))["last_hidden_state"][0].mean(0)
    path = folder("embed", {"model_type": "bert", "max_position_embeddings": 64}, model="encoder.onnx")
    near("embed", [float(x) for x in run("embed", path, "-p", "1 2 3").split()], hidden / np.linalg.norm(hidden))


def write_png(path, pixels):
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    part = lambda name, x: struct.pack(">I", len(x)) + name + x + struct.pack(">I", zlib.crc32(name + x))
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


def check_classify():
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    path = folder("classify", {"model_type": "vit", "image_size": 32, "num_channels": 3,
                               "id2label": {str(i): f"class{i}" for i in range(10)}}, model="vit.onnx")
    with open(path + "/preprocessor_config.json", "w") as f:
        json.dump({"image_processor_type": "ViTImageProcessor", "do_resize": False, "do_rescale": True,
                   "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
                   "size": {"height": 32, "width": 32}}, f)
    write_png(tmp + "/x.png", pixels)
    x = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    logits = call(data + "vit.onnx", pixel_values=x.transpose(2, 0, 1)[None])["logits"][0].astype(np.float64)
    p = np.exp(logits - logits.max())
    p /= p.sum()
    out = json.loads(run("classify", path, "-i", tmp + "/x.png", "--json").splitlines()[0])["classes"][0]
    equal("classify", out["label"], f"class{p.argmax()}")
    near("its probability", [out["p"]], [p.max()], 1e-4)


def check_translate():
    ids = np.array([[9, 2, 8, 3, 9, 10]], np.int64)
    text = data + "text/"
    ones = np.ones_like(ids)
    hidden = call(text + "encoder_model.onnx", input_ids=ids, attention_mask=ones)["last_hidden_state"]
    wanted = [1]  # decoder_start_token_id
    while len(wanted) < 5 and wanted[-1] != 2:
        out = call(text + "decoder_model.onnx", input_ids=np.array([wanted], np.int64), encoder_hidden_states=hidden,
                   encoder_attention_mask=ones)
        wanted.append(int(out["logits"][0, -1].argmax()))
    wanted = [t for t in wanted[1:] if t != 2]
    equal("translate", ids_of(run("translate", data + "text", "-p", "9 2 8 3 9 10", "-n", "4", "--beams", "1")), wanted)


def check_transcribe():
    """A tone that begins late is a token, one from the start on is none (test_onnx_models compares the logits with torch)."""
    t = np.arange(3840)
    for what, begins, wanted in ("late", 2000, [0]), ("early", -1, []):
        sound = (9000 * np.sin(2 * np.pi * 800 * t / 16000) * (t > begins)).astype("<i2").tobytes()
        with open(tmp + "/x.wav", "wb") as f:
            f.write(b"RIFF" + struct.pack("<I", 36 + len(sound)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
                    + b"data" + struct.pack("<I", len(sound)) + sound)
        for level in ("0", "4") if "SN_TEST_LONG" in os.environ else "4":
            found = run("transcribe", data + "sound", tmp + "/x.wav", "--print-ids", "--level", level)
            equal(f"transcribe a {what} tone", ids_of(found), wanted)


try:
    for check in check_generate, check_embed, check_classify, check_translate, check_transcribe:
        check()
finally:
    shutil.rmtree(tmp)
print(f"{cases} cases, all hold")
