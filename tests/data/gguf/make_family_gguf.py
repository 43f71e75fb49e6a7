#!/usr/bin/python3
"""Writes GGUF files of the tiny models of tests/data/families, as llama.cpp's converter stores them:
names and keys of each architecture, rows of queries and keys in its order, f16. NAME.json has tokens
and the logits after the last, computed by make_refs.py. Needs NumPy.

    make_family_gguf.py [FOLDER]      default: the folder of this script
"""
import json
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "families"))
import make_encoder_refs  # noqa: E402
import make_expert_refs  # noqa: E402
import make_refs  # noqa: E402
from make_gguf import F16, F32, MXFP4, write_gguf  # noqa: E402

EMBED = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
ATTN = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm"}
GATED = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
LLAMA = {**ATTN, **GATED, "post_attention_layernorm": "ffn_norm"}
FUSED = {"query_key_value": "attn_qkv", "dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up",
         "mlp.dense_4h_to_h": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "ln_attn": "attn_norm_2", "ln_mlp": "attn_norm"}


def pairs(w, n):
    """Rows of each head from halves (i, i + d/2) to neighbours (2i, 2i + 1)."""
    return w.reshape(n, 2, w.shape[0] // n // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def apart(w, heads, groups):
    """Rows by groups (queries, key, value) to all queries, all keys, all values."""
    each = heads // groups
    g = w.reshape(groups, each + 2, w.shape[0] // groups // (each + 2), *w.shape[1:])
    return np.concatenate([g[:, :each].reshape(-1, *w.shape[1:]), g[:, each].reshape(-1, *w.shape[1:]),
                           g[:, each + 1].reshape(-1, *w.shape[1:])])


def usual(c, eps, rms=False):
    heads = c["num_attention_heads"]
    return {"context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
            "block_count": c["num_hidden_layers"], "attention.head_count": heads,
            "attention.head_count_kv": c.get("num_key_value_heads", heads),
            "attention.layer_norm_rms_epsilon" if rms else "attention.layer_norm_epsilon": float(c[eps]),
            "rope.freq_base": float(c.get("rope_theta", 10000.0)),
            "rope.dimension_count": int(c["hidden_size"] // heads * c.get("partial_rotary_factor", 1))}


def ffn(c):
    return {"feed_forward_length": c["intermediate_size"]}


def fused(scope, layer):
    return {"layer": layer, "names": {"transformer.word_embeddings": "token_embd", "transformer.ln_f": "output_norm",
                                      "transformer.word_embeddings_layernorm": "token_embd_norm"},
            "layers": {(scope + "." + k if k in ("query_key_value", "dense") else k): v for k, v in FUSED.items()}}


# case, architecture, keys, names, layers, what else changes
MODELS = {
    "phi2": ("phi", "phi2", lambda c: {**usual(c, "layer_norm_eps"), **ffn(c)},
             {"layer": "model.layers.", "names": {**EMBED, "model.final_layernorm": "output_norm"},
              "layers": {**ATTN, "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}}),
    "starcoder2": ("starcoder2", "starcoder2", lambda c: {**usual(c, "norm_epsilon"), **ffn(c)},
                   {"layer": "model.layers.", "names": EMBED,
                    "layers": {**LLAMA, "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}}),
    "stablelm": ("stablelm", "stablelm", lambda c: {**usual(c, "layer_norm_eps"), **ffn(c),
                                                    "use_parallel_residual": False},
                 {"layer": "model.layers.", "names": EMBED, "layers": LLAMA}),
    "command-r": ("cohere", "command-r", lambda c: {**usual(c, "layer_norm_eps"), **ffn(c), "rope.scaling.type": "none",
                                                    "logit_scale": c["logit_scale"]},
                  {"layer": "model.layers.", "names": EMBED, "layers": LLAMA}),
    "granite": ("granite", "granite", lambda c: {
        **usual(c, "rms_norm_eps", True), **ffn(c), "attention.scale": c["attention_multiplier"],
        "embedding_scale": c["embedding_multiplier"], "residual_scale": c["residual_multiplier"],
        "logit_scale": c["logits_scaling"]}, {"layer": "model.layers.", "names": EMBED, "layers": LLAMA, "permute": True}),
    "olmo2": ("olmo2", "olmo2", lambda c: {**usual(c, "rms_norm_eps", True), **ffn(c)},
              {"layer": "model.layers.", "names": EMBED,
               "layers": {**LLAMA, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
                          "post_attention_layernorm": "post_attention_norm",
                          "post_feedforward_layernorm": "post_ffw_norm"}}),
    "gptneox": ("gpt_neox", "gptneox", lambda c: {
        "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
        "block_count": c["num_hidden_layers"], "attention.head_count": c["num_attention_heads"], **ffn(c),
        "attention.layer_norm_epsilon": c["layer_norm_eps"], "use_parallel_residual": True,
        "rope.dimension_count": int(c["rotary_pct"] * (c["hidden_size"] // c["num_attention_heads"]))},
        {"layer": "gpt_neox.layers.", "names": {"gpt_neox.embed_in": "token_embd", "embed_out": "output",
                                                "gpt_neox.final_layer_norm": "output_norm"},
         "layers": {("attention." + k if k in ("query_key_value", "dense") else k): v for k, v in FUSED.items()}}),
    "bloom": ("bloom", "bloom", lambda c: {
        "context_length": c["seq_length"], "embedding_length": c["n_embed"], "block_count": c["n_layer"],
        "feed_forward_length": 4 * c["n_embed"], "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": c["num_attention_heads"], "attention.layer_norm_epsilon": c["layer_norm_epsilon"]},
        fused("self_attention", "transformer.h.")),
    "falcon": ("falcon", "falcon", lambda c: falcon(c), fused("self_attention", "transformer.h.")),
    "falcon40b": ("falcon_groups", "falcon", lambda c: falcon(c), fused("self_attention", "transformer.h.")),
    "mpt": ("mpt", "mpt", lambda c: {
        "context_length": c["max_seq_len"], "embedding_length": c["d_model"], "block_count": c["n_layers"],
        "feed_forward_length": c["expansion_ratio"] * c["d_model"], "attention.head_count": c["n_heads"],
        "attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": c["attn_config"]["clip_qkv"],
        "attention.max_alibi_bias": float(c["attn_config"]["alibi_bias_max"])},
        {"layer": "transformer.blocks.", "names": {"transformer.wte": "token_embd", "transformer.norm_f": "output_norm"},
         "layers": {"norm_1": "attn_norm", "norm_2": "ffn_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
                    "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"}}),
}


def falcon(c):
    heads = c["num_attention_heads"]
    return {"context_length": 32, "tensor_data_layout": "jploski", "embedding_length": c["hidden_size"],
            "feed_forward_length": 4 * c["hidden_size"], "block_count": c["num_hidden_layers"],
            "attention.head_count": heads, "attention.head_count_kv": c.get("num_kv_heads", 1),
            "attention.layer_norm_epsilon": c["layer_norm_epsilon"]}


def groups_of(name, c):
    """Key heads of a matrix that is stored by groups; 0: it is not."""
    if "query_key_value" not in name:
        return 0
    if c["model_type"] == "falcon":
        return c.get("num_kv_heads", 1)
    return c["num_attention_heads"]


def rename(name, t):
    if t["layer"].startswith("transformer.") and not name.startswith(("transformer.", "lm_head")):
        name = "transformer." + name
    stem, end = name.rsplit(".", 1)
    if stem.startswith(t["layer"]):
        layer, rest = stem[len(t["layer"]):].split(".", 1)
        return "blk.%s.%s.%s" % (layer, t["layers"][rest], end)
    return "%s.%s" % (t["names"][stem], end)


def write_split(folder, keys, tensors):
    """The keys in the first of two files, half of the tensors in each, as llama-gguf-split does."""
    names = list(tensors)
    for no, part in enumerate((names[:5], names[5:])):
        split = {"split.no": no, "split.count": 2, "split.tensors.count": len(names)}
        write_gguf(os.path.join(folder, "split-%05d-of-00002.gguf" % (no + 1)),
                   {**keys, **split} if no == 0 else split, {n: tensors[n] for n in part})


def write(folder, out, case, name, keys, t):
    run, c = make_refs.CASES[case][:2]
    c = json.loads(json.dumps(c))
    if c["model_type"] == "mpt":
        c["attn_config"]["softmax_scale"] = None  # not in these files
        if c["expansion_ratio"] * c["d_model"] != 4 * c["d_model"]:
            c["expansion_ratio"] = 4
    c.pop("sliding_window", None)
    tokens = [5, 1, 17, 9, 22, 0, 13, 4]
    p = make_refs.Params()
    logits = run(p, c, np.array(tokens))[-1]
    tensors = {}
    for key, w in p.items():
        if key == "lm_head.weight" and c.get("tie_word_embeddings"):
            continue
        if groups_of(key, c):
            w = apart(w, c["num_attention_heads"], groups_of(key, c))
        if t.get("permute") and (".q_proj." in key or ".k_proj." in key):
            w = pairs(w, c["num_attention_heads"] if ".q_proj." in key else c["num_key_value_heads"])
        kind, dtype = (F16, np.float16) if w.ndim > 1 else (F32, np.float32)
        tensors[rename(key, t)] = (list(w.shape), kind, w.astype(dtype).tobytes())
    all_keys = {"general.architecture": name, **{name + "." + k: v for k, v in keys(c).items()}}
    write_gguf(os.path.join(folder, out + ".gguf"), all_keys, tensors)
    if out == "olmo2":
        write_split(folder, all_keys, tensors)
    with open(os.path.join(folder, out + ".json"), "w") as f:
        json.dump({"tokens": tokens, "logits": [round(float(v), 7) for v in logits], "texts": []}, f)
        f.write("\n")


NOMIC = {"layer": "bert.encoder.layers.",
         "names": {"bert.embeddings.word_embeddings": "token_embd", "bert.emb_ln": "token_embd_norm",
                   "bert.embeddings.token_type_embeddings": "token_types"},
         "layers": {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm",
                    "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down", "norm2": "layer_output_norm"}}


def write_nomic(folder):
    """An encoder; "logits" are the states of all tokens."""
    c, p, tokens = make_encoder_refs.NOMIC, make_refs.Params(), [5, 1, 17, 9, 22, 0, 13, 4]
    states = make_encoder_refs.nomic_hidden(p, c, np.array(tokens), np.zeros(len(tokens), int))
    keys = {"context_length": c["n_positions"], "embedding_length": c["n_embd"], "block_count": c["n_layer"],
            "feed_forward_length": c["n_inner"], "attention.head_count": c["n_head"],
            "attention.layer_norm_epsilon": c["layer_norm_epsilon"], "attention.causal": False, "pooling_type": 1,
            "rope.freq_base": float(c["rotary_emb_base"])}
    f32 = ("norm", "_ln", "token_type")
    write_gguf(os.path.join(folder, "nomic-bert.gguf"),
               {"general.architecture": "nomic-bert", **{"nomic-bert." + k: v for k, v in keys.items()}},
               {rename(k, NOMIC): (list(w.shape), F32, w.astype(np.float32).tobytes()) if any(n in k for n in f32) else
                (list(w.shape), F16, w.astype(np.float16).tobytes()) for k, w in p.items()})
    with open(os.path.join(folder, "nomic-bert.json"), "w") as f:
        json.dump({"tokens": tokens, "logits": [round(float(v), 7) for v in states.ravel()], "texts": []}, f)
        f.write("\n")


GPT_OSS = {"layer": "model.layers.", "names": EMBED,
           "layers": {**ATTN, "self_attn.": "attn_sinks", "mlp.router": "ffn_gate_inp", "post_attention_layernorm":
                      "post_attention_norm"}}


def oss_tensors(name, w, p):
    """What llama.cpp's converter makes of a tensor of gpt-oss: gate and up apart, blocks with their scales, and the
    halves of a block's values in the halves of its bytes. name -> (shape, type, array)"""
    block, stem, kind = re.match(r"(model\.layers\.\d+)\.mlp\.experts\.(gate_up|down)_proj_(.*)", name).groups()
    block = block.replace("model.layers", "blk")
    if kind == "blocks":
        w = w.astype(np.uint8)
        values = np.stack([w & 15, w >> 4], -1).reshape(*w.shape[:-1], 32)
        scales = p[name.replace("_blocks", "_scales")].astype(np.uint8)[..., None]
        w = np.concatenate([scales, values[..., :16] | values[..., 16:] << 4], -1)
        made = ("weight", MXFP4, w)
    else:
        made = ("bias", F32, w.astype(np.float32))
    parts = {"ffn_gate": made[2][:, 0::2], "ffn_up": made[2][:, 1::2]} if stem == "gate_up" else {"ffn_down": made[2]}
    return {f"{block}.{part}_exps.{made[0]}":
            ([*x.shape[:2], x.shape[2] * 32] if kind == "blocks" else list(x.shape), made[1],
             np.ascontiguousarray(x).tobytes()) for part, x in parts.items()}


def write_oss(folder):
    """gpt-oss with experts in blocks of MXFP4."""
    run, c = make_expert_refs.CASES["gpt_oss_mxfp4"]
    c, p, tokens, tensors = {**c, "num_hidden_layers": 2}, make_refs.Params(), [5, 1, 17, 9, 22, 0, 13, 4], {}
    logits, r = run(p, c, np.array(tokens))[-1], c["rope_scaling"]
    for name, w in p.items():
        if ".experts." in name:
            tensors.update({} if name.endswith("_scales") else oss_tensors(name, w, p))
            continue
        kind, dtype = (F16, np.float16) if w.ndim > 1 and "router" not in name else (F32, np.float32)
        stem = name.replace("self_attn.sinks", "self_attn..weight")
        tensors[rename(stem, GPT_OSS)] = (list(w.shape), kind, w.astype(dtype).tobytes())
    keys = {**usual(c, "rms_norm_eps", True), **ffn(c), "expert_feed_forward_length": c["intermediate_size"],
            "expert_count": c["num_local_experts"], "expert_used_count": c["num_experts_per_tok"],
            "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"],
            "attention.sliding_window": c["sliding_window"], "rope.scaling.type": r["rope_type"],
            "rope.scaling.factor": r["factor"], "rope.scaling.yarn_beta_fast": r["beta_fast"],
            "rope.scaling.yarn_beta_slow": r["beta_slow"],
            "rope.scaling.original_context_length": r["original_max_position_embeddings"]}
    del keys["rope.dimension_count"]
    write_gguf(os.path.join(folder, "gpt-oss.gguf"),
               {"general.architecture": "gpt-oss", **{"gpt-oss." + k: v for k, v in keys.items()}}, tensors)
    with open(os.path.join(folder, "gpt-oss.json"), "w") as f:
        json.dump({"tokens": tokens, "logits": [round(float(v), 7) for v in logits], "texts": []}, f)
        f.write("\n")


if __name__ == "__main__":
    for out, row in MODELS.items():
        write(sys.argv[1] if len(sys.argv) > 1 else HERE, out, *row)
    write_oss(sys.argv[1] if len(sys.argv) > 1 else HERE)
    write_nomic(sys.argv[1] if len(sys.argv) > 1 else HERE)
