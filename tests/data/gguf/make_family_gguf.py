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
import make_hybrid_refs  # noqa: E402
import make_refs  # noqa: E402
from make_gguf import F16, F32, MXFP4, U32, write_gguf  # noqa: E402

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


DELTA = {"layer": "model.layers.", "names": EMBED, "layers": {
    **ATTN, **GATED, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}}


def tiled(w, c, axis, width):
    """Value heads of a group from neighbours to the distance of the number of groups, along the end of an axis."""
    w = np.moveaxis(w, axis, 0)
    G, H = c["linear_num_key_heads"], c["linear_num_value_heads"]
    same, heads = w[:len(w) - H * width], w[len(w) - H * width:]
    heads = heads.reshape(G, H // G, width, *w.shape[1:]).swapaxes(0, 1).reshape(heads.shape)
    return np.moveaxis(np.concatenate([same, heads]), 0, axis)


def delta_tensors(c, name, w):
    """What llama.cpp's converter makes of a tensor of Qwen3-Next or Qwen 3.5: name -> array."""
    K, V, G, H = (c["linear_" + k] for k in ("key_head_dim", "value_head_dim", "num_key_heads", "num_value_heads"))
    block = re.sub(r"model\.layers\.(\d+)\..*", r"blk.\1.", name)
    part = name.split(".", 3)[-1].replace(".weight", "")
    if ".experts." in name:
        if part.endswith("gate_up_proj"):
            gate, up = np.split(w, 2, axis=1)
            return {block + "ffn_gate_exps.weight": gate, block + "ffn_up_exps.weight": up}
        if part.endswith("experts.down_proj"):
            return {block + "ffn_down_exps.weight": w}
        e, kind = re.search(r"experts\.(\d+)\.(gate|up|down)_proj", part).groups()
        return {(block + f"ffn_{kind}_exps.weight", int(e)): w}
    if "in_proj_qkvz" in part:
        z = w.reshape(G, -1, w.shape[1])
        q, k, v, gate = (y.reshape(-1, w.shape[1]) for y in np.split(z, [K, 2 * K, 2 * K + H // G * V], axis=1))
        return {block + "attn_qkv.weight": np.concatenate([q, k, v]), block + "attn_gate.weight": gate}
    if c["model_type"] != "qwen3_next" and part.startswith("linear_attn.") and part != "linear_attn.norm":
        one = part.endswith(("in_proj_a", "in_proj_b", "A_log", "dt_bias"))
        w = tiled(w, c, 1 if part.endswith("out_proj") else 0, 1 if one else V)
    if part == "linear_attn.A_log":
        return {block + "ssm_a": -np.exp(w)}
    if part == "linear_attn.dt_bias":
        return {block + "ssm_dt.bias": w}
    if part == "linear_attn.conv1d" or part == "mlp.shared_expert_gate":
        w = w.squeeze()
    elif name.endswith("norm.weight") and part != "linear_attn.norm":
        w = w + 1
    return {rename(name, DELTA): w}


def write_delta(folder, case, arch):
    run, c = make_hybrid_refs.CASES[case]
    p, tokens, arrays = make_refs.Params(), [5, 1, 17, 9, 22, 0, 13, 4], {}
    logits = run(p, c, np.array(tokens))[-1]
    for name, w in p.items():
        for key, x in delta_tensors(c, name, w).items():
            if isinstance(key, tuple):
                arrays.setdefault(key[0], {})[key[1]] = x
            else:
                arrays[key] = x
    arrays = {k: np.stack([x[i] for i in sorted(x)]) if isinstance(x, dict) else x for k, x in arrays.items()}
    exact = ("norm", "ssm_a", "ssm_dt", "conv1d", "gate_inp")
    tensors = {k: (list(w.shape), *((F32, w.astype(np.float32).tobytes()) if any(e in k for e in exact) else
                                    (F16, w.astype(np.float16).tobytes()))) for k, w in arrays.items()}
    r = c.get("rope_parameters", c)
    keys = {**usual({**c, "rope_theta": r["rope_theta"]}, "rms_norm_eps", True), "attention.key_length": c["head_dim"],
            "feed_forward_length": c.get("intermediate_size", 0),
            "attention.value_length": c["head_dim"], "rope.dimension_count": int(c["head_dim"] * r["partial_rotary_factor"]),
            "ssm.conv_kernel": c["linear_conv_kernel_dim"], "ssm.state_size": c["linear_key_head_dim"],
            "ssm.group_count": c["linear_num_key_heads"], "ssm.time_step_rank": c["linear_num_value_heads"],
            "ssm.inner_size": c["linear_num_value_heads"] * c["linear_value_head_dim"],
            "full_attention_interval": c["full_attention_interval"]}
    if "num_experts" in c:
        keys.update({"expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"],
                     "expert_feed_forward_length": c["moe_intermediate_size"],
                     "expert_shared_feed_forward_length": c["shared_expert_intermediate_size"]})
    write_gguf(os.path.join(folder, arch + ".gguf"),
               {"general.architecture": arch, **{arch + "." + k: v for k, v in keys.items()}}, tensors)
    with open(os.path.join(folder, arch + ".json"), "w") as f:
        json.dump({"tokens": tokens, "logits": [round(float(v), 7) for v in logits], "texts": []}, f)
        f.write("\n")


LATENT = {"layer": "model.layers.", "names": EMBED, "layers": {
    **LLAMA, "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.q_conv1d": "ssm_conv1d_q", "self_attn.k_conv1d": "ssm_conv1d_k", "self_attn.v_conv1d": "ssm_conv1d_v",
    "self_attn.f_a_proj": "ssm_f_a", "self_attn.f_b_proj": "ssm_f_b", "self_attn.g_a_proj": "ssm_g_a", "self_attn.g_b_proj": "ssm_g_b",
    "self_attn.b_proj": "ssm_beta", "self_attn.o_norm": "ssm_norm"}}
PARTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def latent_tensors(c, name, w, old):
    """What llama.cpp's converter makes of a tensor of DeepSeek or Kimi-Linear; old: as before it split kv_b_proj."""
    block = re.sub(r"model\.layers\.(\d+)\..*", r"blk.\1.", name)
    part = name.split(".", 3)[-1].replace(".weight", "")
    if ".experts." in name:
        e, kind = re.search(r"experts\.(\d+)\.(\w+)", part).groups()
        return {(block + f"ffn_{PARTS[kind]}_exps.weight", int(e)): w}
    if "shared_experts" in part:
        return {block + f"ffn_{PARTS[part.split('.')[-1]]}_shexp.weight": w}
    if part.endswith("e_score_correction_bias"):
        return {block + "exp_probs_b.bias": w}
    if part.endswith(("mlp.gate", "block_sparse_moe.gate")):
        return {block + "ffn_gate_inp.weight": w}
    if part == "self_attn.A_log":
        return {block + "ssm_a": -np.exp(w)}
    if part == "self_attn.dt_bias":
        return {block + "ssm_dt.bias": w}
    if part.endswith("conv1d"):
        w = w.reshape(1, w.shape[0], 1, -1)
    if part == "self_attn.kv_b_proj" and not old:
        plain = c["qk_nope_head_dim"]
        kv = w.reshape(c["num_attention_heads"], plain + c["v_head_dim"], -1)
        return {block + "attn_k_b.weight": kv[:, :plain].swapaxes(1, 2), block + "attn_v_b.weight": kv[:, plain:]}
    return {rename(name, LATENT): w}


def latent_keys(c, old):
    rot = c["qk_rope_head_dim"]
    sizes = (c["qk_nope_head_dim"] + rot, c["v_head_dim"])
    keys = {**usual({**c, "num_key_value_heads": 1, "rope_theta": 10000.0, "max_position_embeddings": 32}, "rms_norm_eps", True),
            **ffn(c), "rope.dimension_count": rot, "attention.kv_lora_rank": c["kv_lora_rank"],
            "leading_dense_block_count": c["first_k_dense_replace"], "expert_weights_scale": float(c["routed_scaling_factor"]),
            "expert_feed_forward_length": c["moe_intermediate_size"]}
    if c["q_lora_rank"]:
        keys["attention.q_lora_rank"] = c["q_lora_rank"]
    if old:
        keys.update({"attention.key_length": sizes[0], "attention.value_length": sizes[1],
                     "attention.head_count_kv": c["num_attention_heads"]})
    else:
        keys.update({"attention.key_length": c["kv_lora_rank"] + rot, "attention.value_length": c["kv_lora_rank"],
                     "attention.key_length_mla": sizes[0], "attention.value_length_mla": sizes[1]})
    if "linear_attn_config" in c:
        L = c["linear_attn_config"]
        keys.update({"attention.head_count_kv": (U32, [int(l + 1 in L["full_attn_layers"]) for l in range(c["num_hidden_layers"])]),
                     "ssm.conv_kernel": L["short_conv_kernel_size"], "kda.head_dim": L["head_dim"],
                     "expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_token"],
                     "expert_shared_count": c["num_shared_experts"]})
        return keys
    keys.update({"expert_count": c["n_routed_experts"], "expert_used_count": c["num_experts_per_tok"],
                 "expert_shared_count": c["n_shared_experts"], "expert_weights_norm": c["norm_topk_prob"],
                 "expert_gating_func": 2 if c["model_type"] == "deepseek_v3" else 1})
    if c["n_group"] > 1:
        keys.update({"expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"]})
    r = c.get("rope_scaling")
    if r:
        keys.update({"rope.scaling.type": "yarn", "rope.scaling.factor": r["factor"],
                     "rope.scaling.yarn_beta_fast": float(r["beta_fast"]), "rope.scaling.yarn_beta_slow": float(r["beta_slow"]),
                     "rope.scaling.original_context_length": r["original_max_position_embeddings"],
                     "rope.scaling.yarn_log_multiplier": 0.1 * r["mscale_all_dim"]})
    return keys


def write_latent(folder, out, arch, run, c, old=False):
    write_arrays(folder, out, arch, run, c, lambda name, w: latent_tensors(c, name, w, old), latent_keys(c, old))


def write_arrays(folder, out, arch, run, c, tensors_of, keys):
    p, tokens, arrays = make_refs.Params(), [5, 1, 17, 9, 22, 0, 13, 4], {}
    logits = run(p, c, np.array(tokens))[-1]
    for name, w in p.items():
        for key, x in tensors_of(name, w).items():
            if isinstance(key, tuple):
                arrays.setdefault(key[0], {})[key[1]] = x
            else:
                arrays[key] = x
    arrays = {k: np.stack([x[i] for i in sorted(x)]) if isinstance(x, dict) else x for k, x in arrays.items()}
    exact = ("norm", "ssm_a", "ssm_d", "ssm_x", "conv1d", "gate_inp", "exp_probs")
    tensors = {k: (list(w.shape), *((F32, w.astype(np.float32).tobytes()) if any(e in k for e in exact) else
                                    (F16, w.astype(np.float16).tobytes()))) for k, w in arrays.items()}
    write_gguf(os.path.join(folder, out + ".gguf"),
               {"general.architecture": arch, **{arch + "." + k: v for k, v in keys.items()}}, tensors)
    with open(os.path.join(folder, out + ".json"), "w") as f:
        json.dump({"tokens": tokens, "logits": [round(float(v), 7) for v in logits], "texts": []}, f)
        f.write("\n")


STATE = {"layer": "model.layers.", "names": {**EMBED, "model.final_layernorm": "output_norm", "backbone.embeddings": "token_embd",
                                              "backbone.norm_f": "output_norm"}, "layers": {
    **LLAMA, "pre_ff_layernorm": "ffn_norm", "norm": "attn_norm", "feed_forward.router": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp", **{"feed_forward." + k: "ffn_" + v for k, v in PARTS.items()},
    "shared_mlp.output_linear": "ffn_down_shexp",
    **{scope + k: "ssm_" + v for scope in ("mamba.", "mixer.") for k, v in {
        "in_proj": "in", "conv1d": "conv1d", "x_proj": "x", "dt_proj": "dt", "dt_layernorm": "dt_norm", "b_layernorm": "b_norm",
        "c_layernorm": "c_norm", "norm": "norm", "out_proj": "out"}.items()}}}


def state_tensors(c, name, w):
    """What llama.cpp's converter makes of a tensor of Mamba, Mamba-2, Jamba or Granite 4."""
    name = name.replace("backbone.layers.", "model.layers.")
    block = re.sub(r"model\.layers\.(\d+)\..*", r"blk.\1.", name)
    part = name.split(".", 3)[-1].replace(".weight", "")
    second = c["model_type"] in ("mamba2", "granitemoehybrid")
    if ".experts." in name:
        e, kind = re.search(r"experts\.(\d+)\.(\w+)", part).groups()
        return {(block + f"ffn_{PARTS[kind]}_exps.weight", int(e)): w}
    if part == "block_sparse_moe.output_linear":
        return {block + "ffn_down_exps.weight": w}
    for joined, ending in (("block_sparse_moe.input_linear", "exps"), ("shared_mlp.input_linear", "shexp")):
        if part == joined:
            gate, up = np.split(w, 2, axis=-2)
            return {block + f"ffn_gate_{ending}.weight": gate, block + f"ffn_up_{ending}.weight": up}
    if part.endswith(".A_log"):
        return {block + "ssm_a": -np.exp(w[:, None] if second else w)}
    if part.endswith(".D"):
        return {block + "ssm_d": w[:, None] if second else w}
    if part.endswith(".dt_bias"):
        return {block + "ssm_dt.bias": w}
    if part in ("mamba.norm", "mixer.norm"):
        w = w.reshape(c.get("n_groups", 1), -1)
    return {rename(name, STATE): w.squeeze() if part.endswith("conv1d") else w}


def state_keys(c):
    kind, layers = c["model_type"], c["num_hidden_layers"]
    get = lambda k, pure: c.get("mamba_" + k, c.get(pure))
    keys = {"context_length": c.get("max_position_embeddings", 1 << 20), "embedding_length": c["hidden_size"], "block_count": layers,
            "feed_forward_length": c["intermediate_size"] if "mamba_d_state" in c else 0,
            "attention.head_count": c.get("num_attention_heads", 0), "ssm.conv_kernel": get("d_conv", "conv_kernel"),
            "ssm.state_size": get("d_state", "state_size"), "ssm.inner_size": c.get("mamba_expand", c.get("expand")) * c["hidden_size"],
            "ssm.time_step_rank": c.get("mamba_n_heads", c.get("mamba_dt_rank", c.get("num_heads", c.get("time_step_rank")))),
            "attention.layer_norm_rms_epsilon": float(c.get("rms_norm_eps", c.get("layer_norm_epsilon")))}
    if kind == "mamba":
        keys["ssm.dt_b_c_rms"] = False
    if kind in ("mamba2", "granitemoehybrid"):
        keys["ssm.group_count"] = get("n_groups", "n_groups")
    if kind == "jamba":
        attends = [l % c["attn_layer_period"] == c["attn_layer_offset"] for l in range(layers)]
        keys.update({"expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"]})
    if kind == "granitemoehybrid":
        attends = [t == "attention" for t in c["layer_types"]]
        keys.update({"expert_count": c["num_local_experts"], "expert_used_count": c["num_experts_per_tok"],
                     "expert_shared_feed_forward_length": c["shared_intermediate_size"], "rope.scaling.finetuned": False,
                     "attention.scale": c["attention_multiplier"], "embedding_scale": c["embedding_multiplier"],
                     "residual_scale": c["residual_multiplier"], "logit_scale": c["logits_scaling"]})
    if "num_key_value_heads" in c:
        keys["attention.head_count_kv"] = (U32, [c["num_key_value_heads"] * a for a in attends])
    return keys


def write_states(folder):
    for out, case, more in (("mamba", "mamba", {}), ("mamba2", "mamba2", {"norm_groups": 2}), ("jamba", "jamba", {}),
                            ("granitehybrid", "granite_hybrid", {"mamba_n_groups": 1})):
        run, c = make_hybrid_refs.CASES[case]
        c = {**c, **more}
        write_arrays(folder, out, out, run, c, lambda name, w: state_tensors(c, name, w), state_keys(c))


def write_latents(folder):
    v2, v2_lite, v3 = (make_expert_refs.CASES["deepseek_" + v] for v in ("v2", "v2_lite", "v3"))
    kimi, c = make_hybrid_refs.CASES["kimi_linear"]
    write_latent(folder, "deepseek2", "deepseek2", *v3)
    write_latent(folder, "deepseek2_yarn", "deepseek2", *v2)
    write_latent(folder, "deepseek2_old", "deepseek2", *v2_lite, True)
    write_latent(folder, "kimi-linear", "kimi-linear", kimi, {**c, "linear_attn_config": {**c["linear_attn_config"], "num_heads": 4}})


if __name__ == "__main__":
    for out, row in MODELS.items():
        write(sys.argv[1] if len(sys.argv) > 1 else HERE, out, *row)
    write_oss(sys.argv[1] if len(sys.argv) > 1 else HERE)
    write_nomic(sys.argv[1] if len(sys.argv) > 1 else HERE)
    for case, arch in (("qwen3_next", "qwen3next"), ("qwen3_5", "qwen35"), ("qwen3_5_moe", "qwen35moe")):
        write_delta(sys.argv[1] if len(sys.argv) > 1 else HERE, case, arch)
    write_latents(sys.argv[1] if len(sys.argv) > 1 else HERE)
    write_states(sys.argv[1] if len(sys.argv) > 1 else HERE)
