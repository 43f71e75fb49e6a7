#!/usr/bin/python3
# make_encoder_refs.py DIR: more encoders than make_refs.py has, in the same files: DeBERTa v2 and v3 [He et al. 2021],
# ModernBERT [Warner et al. 2024], CamemBERT, and heads for question answering and for replaced tokens (ELECTRA).
# Written from the papers and Hugging Face's model documentation, apart from Sinter's code. Needs numpy.
import math
import sys

import numpy as np

from make_refs import (ACTS, ALBERT, BERT, DISTILBERT, ELECTRA, ROBERTA, SIZES, encoder_hidden, encoder_logits,
                       encoder_reference, gelu, heads, labelled, layer_norm, linear, merge, plain, rope, write_encoders)


def softmax(s):
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True)


# ---- DeBERTa ----

def relative_row(back, span, buckets, far):
    """Row of the table for a key `back` tokens before the query: one row each up to span / 2, then logarithmic"""
    if buckets > 0 and abs(back) > buckets // 2:
        mid = buckets // 2
        row = mid + math.ceil(math.log(abs(back) / mid) / math.log((far - 1) / mid) * (mid - 1) - 1e-12)
        back = row if back > 0 else -row
    return min(max(back + span, 0), 2 * span - 1)


def deberta_hidden(p, c, tokens, types):
    d, H, n, eps = c["hidden_size"], c["num_attention_heads"], len(tokens), c["layer_norm_eps"]
    pre, e = "deberta.", c.get("embedding_size", d)
    x = p(pre + "embeddings.word_embeddings.weight", c["vocab_size"], e)[tokens]
    if c["position_biased_input"]:
        x = x + p(pre + "embeddings.position_embeddings.weight", c["max_position_embeddings"], e)[:n]
    if c["type_vocab_size"]:
        x = x + p(pre + "embeddings.token_type_embeddings.weight", c["type_vocab_size"], e)[types]
    if e != d:
        x = linear(p, pre + "embeddings.embed_proj", x, d)
    x = layer_norm(p, pre + "embeddings.LayerNorm", x, eps)
    far = c["max_relative_positions"] if c["max_relative_positions"] > 0 else c["max_position_embeddings"]
    buckets = c.get("position_buckets", -1)
    span = buckets if buckets > 0 else far
    table = p(pre + "encoder.rel_embeddings.weight", 2 * span, d)
    if c["norm_rel_ebd"] == "layer_norm":
        table = layer_norm(p, pre + "encoder.LayerNorm", table, eps)
    kinds = c["pos_att_type"].split("|") if isinstance(c["pos_att_type"], str) else c["pos_att_type"]
    row = np.array([[relative_row(q - k, span, buckets, far) for k in range(n)] for q in range(n)])
    at = np.arange(n)
    for l in range(c["num_hidden_layers"]):
        h = pre + f"encoder.layer.{l}.attention."
        q, k, v = (heads(linear(p, h + f"self.{i}_proj", x, d, True), H) for i in ("query", "key", "value"))
        s = q @ k.transpose(0, 2, 1)
        own = "" if c.get("share_att_key") else "pos_"
        if "c2p" in kinds:
            pos_k = heads(linear(p, h + f"self.{own}key_proj", table, d, True), H)
            s = s + (q @ pos_k.transpose(0, 2, 1))[:, at[:, None], row]
        if "p2c" in kinds:
            pos_q = heads(linear(p, h + f"self.{own}query_proj", table, d, True), H)
            s = s + (k @ pos_q.transpose(0, 2, 1))[:, at[None], row]
        y = softmax(s / math.sqrt(d // H * (1 + len(kinds)))) @ v
        x = layer_norm(p, h + "output.LayerNorm", x + linear(p, h + "output.dense", merge(y), d, True), eps)
        h = pre + f"encoder.layer.{l}."
        y = ACTS[c["hidden_act"]](linear(p, h + "intermediate.dense", x, c["intermediate_size"], True))
        x = layer_norm(p, h + "output.LayerNorm", x + linear(p, h + "output.dense", y, d, True), eps)
    return x


def deberta_logits(p, c, x, head):
    d = x.shape[1]
    if head == "classes":
        return linear(p, "classifier", gelu(linear(p, "pooler.dense", x[:1], d, True)), 3, True)
    pre = "cls.predictions.transform." if c.get("legacy", True) else "lm_predictions.lm_head."
    e = c.get("embedding_size", d)
    x = layer_norm(p, pre + "LayerNorm", ACTS[c["hidden_act"]](linear(p, pre + "dense", x, e, True)), c["layer_norm_eps"])
    bias = "cls.predictions.bias" if c.get("legacy", True) else "lm_predictions.lm_head.bias"
    return x @ p("deberta.embeddings.word_embeddings.weight", c["vocab_size"], e).T + p(bias, c["vocab_size"])


# ---- ModernBERT ----

def modern_norm(p, c, name, x):
    return layer_norm(p, name, x, c["norm_eps"], c["norm_bias"])


def modern_hidden(p, c, tokens, types):
    d, H, n = c["hidden_size"], c["num_attention_heads"], len(tokens)
    x = modern_norm(p, c, "model.embeddings.norm", p("model.embeddings.tok_embeddings.weight", c["vocab_size"], d)[tokens])
    away = np.abs(np.arange(n)[:, None] - np.arange(n))
    for l in range(c["num_hidden_layers"]):
        h = f"model.layers.{l}."
        local = c["layer_types"][l] == "sliding_attention" if "layer_types" in c else l % c["global_attn_every_n_layers"]
        y = modern_norm(p, c, h + "attn_norm", x) if l else x
        q, k, v = (heads(y, H) for y in np.split(linear(p, h + "attn.Wqkv", y, 3 * d, c["attention_bias"]), 3, -1))
        angles = plain(d // H, c["local_rope_theta" if local else "global_rope_theta"])
        s = rope(q, angles) @ rope(k, angles).transpose(0, 2, 1) / math.sqrt(d // H)
        s = np.where(away <= c["local_attention"] // 2, s, -np.inf) if local else s
        x = x + linear(p, h + "attn.Wo", merge(softmax(s) @ v), d, c["attention_bias"])
        y = linear(p, h + "mlp.Wi", modern_norm(p, c, h + "mlp_norm", x), 2 * c["intermediate_size"], c["mlp_bias"])
        a, gate = np.split(y, 2, -1)
        x = x + linear(p, h + "mlp.Wo", ACTS[c["hidden_activation"]](a) * gate, d, c["mlp_bias"])
    return modern_norm(p, c, "model.final_norm", x)


def modern_logits(p, c, x, head):
    if head == "classes":
        x = x.mean(0, keepdims=True) if c["classifier_pooling"] == "mean" else x[:1]
    x = ACTS[c["classifier_activation"]](linear(p, "head.dense", x, x.shape[1], c["classifier_bias"]))
    x = modern_norm(p, c, "head.norm", x)
    if head != "masked":
        return linear(p, "classifier", x, 2 if head == "spans" else 3, True)
    y = x @ p("model.embeddings.tok_embeddings.weight", c["vocab_size"], x.shape[1]).T
    return y + p("decoder.bias", c["vocab_size"]) if c["decoder_bias"] else y


# ---- Nomic BERT ----

def nomic_hidden(p, c, tokens, types):
    d, H, n, eps = c["n_embd"], c["n_head"], len(tokens), c["layer_norm_epsilon"]
    multiple = c["pad_vocab_size_multiple"]
    rows = (c["vocab_size"] + multiple - 1) // multiple * multiple
    x = p("bert.embeddings.word_embeddings.weight", rows, d)[tokens]
    if not c["rotary_emb_fraction"]:
        x = x + p("bert.embeddings.position_embeddings.weight", c["n_positions"], d)[:n]
    x = x + p("bert.embeddings.token_type_embeddings.weight", c["type_vocab_size"], d)[types]
    x = layer_norm(p, "bert.emb_ln", x, eps)
    angles = plain(d // H, c["rotary_emb_base"])
    for l in range(c["n_layer"]):
        h = f"bert.encoder.layers.{l}."
        q, k, v = (heads(y, H) for y in np.split(linear(p, h + "attn.Wqkv", x, 3 * d, c["qkv_proj_bias"]), 3, -1))
        if c["rotary_emb_fraction"]:
            q, k = rope(q, angles), rope(k, angles)
        y = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(d // H)) @ v
        x = layer_norm(p, h + "norm1", x + linear(p, h + "attn.out_proj", merge(y), d, c["qkv_proj_bias"]), eps)
        up, gate = (linear(p, h + "mlp." + i, x, c["n_inner"], c["mlp_fc1_bias"]) for i in ("fc11", "fc12"))
        y = up * NOMIC_ACTS[c["activation_function"]](gate)
        x = layer_norm(p, h + "norm2", x + linear(p, h + "mlp.fc2", y, d, c["mlp_fc2_bias"]), eps)
    return x


def nomic_logits(p, c, x, head):
    d = x.shape[1]
    if head == "classes":
        return linear(p, "classifier", np.tanh(linear(p, "bert.pooler.dense", x[:1], d, True)), 3, True)
    act = NOMIC_ACTS[c["activation_function"]]
    x = act(linear(p, "cls.predictions.transform.dense", x, d, c["mlp_fc1_bias"]))
    x = layer_norm(p, "cls.predictions.transform.layer_norm", x, c["layer_norm_epsilon"])
    table = p["bert.embeddings.word_embeddings.weight"]
    return x @ table.T + (p("cls.predictions.decoder.bias", len(table)) if c["mlp_fc1_bias"] else 0)


NOMIC_ACTS = {"swiglu": ACTS["silu"], "geglu": gelu}


# ---- heads ----

KINDS = {"deberta-v2": (deberta_hidden, deberta_logits), "modernbert": (modern_hidden, modern_logits),
         "nomic_bert": (nomic_hidden, nomic_logits)}


def reference(c, head):
    hidden, logits = KINDS.get(c["model_type"], (encoder_hidden, encoder_logits))
    if c["model_type"] == "camembert":
        c = {**c, "model_type": "roberta"}

    def head_of(p, c, x, head):
        if head == "replaced":
            x = ACTS[c["hidden_act"]](linear(p, "discriminator_predictions.dense", x, x.shape[1], True))
            return linear(p, "discriminator_predictions.dense_prediction", x, 1, True)
        if head == "spans" and logits is not modern_logits:
            return linear(p, "qa_outputs", x, 2, True)
        if head == "tokens" and logits is deberta_logits:
            return linear(p, "classifier", x, 3, True)
        return logits(p, c, x, head)
    return encoder_reference(c, head, hidden, head_of)


DEBERTA = {**SIZES, "model_type": "deberta-v2", "intermediate_size": 20, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
           "hidden_act": "gelu", "pad_token_id": 0, "relative_attention": True, "max_relative_positions": -1,
           "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
           "position_biased_input": False, "pooler_dropout": 0, "pooler_hidden_act": "gelu", "pooler_hidden_size": 16}
MODERN = {**SIZES, "model_type": "modernbert", "num_hidden_layers": 4, "intermediate_size": 12, "norm_eps": 1e-5,
          "norm_bias": False, "attention_bias": False, "mlp_bias": False, "classifier_bias": False, "decoder_bias": True,
          "hidden_activation": "gelu", "classifier_activation": "gelu", "classifier_pooling": "mean",
          "global_rope_theta": 1000.0, "local_rope_theta": 100.0, "local_attention": 6, "global_attn_every_n_layers": 3}
NOMIC = {"model_type": "nomic_bert", "vocab_size": 23, "pad_vocab_size_multiple": 8, "n_positions": 32, "n_embd": 16,
         "n_layer": 2, "n_head": 4, "n_inner": 20, "activation_function": "swiglu", "layer_norm_epsilon": 1e-12,
         "type_vocab_size": 2, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False,
         "parallel_block": False, "parallel_block_tied_norm": False, "causal": False, "use_rms_norm": False,
         "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
         "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "max_trained_positions": 20,
         "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "use_flash_attn": True,
         "use_xentropy": True, "dense_seq_output": True, "fused_bias_fc": True, "fused_dropout_add_ln": True,
         "architectures": ["NomicBertForPreTraining"]}

CASES = {
    "deberta": (DEBERTA, "masked"),
    "deberta_own_maps": ({**DEBERTA, "position_buckets": -1, "max_relative_positions": 6, "norm_rel_ebd": "none",
                          "share_att_key": False, "position_biased_input": True, "type_vocab_size": 2,
                          "embedding_size": 8, "legacy": False}, "masked"),
    "deberta_one_term": (labelled({**DEBERTA, "pos_att_type": ["c2p"]}, "DebertaV2ForSequenceClassification"), "classes"),
    "deberta_other_term": ({**DEBERTA, "pos_att_type": ["p2c"]}, "tokens"),
    "deberta_spans": ({**DEBERTA, "position_buckets": 4}, "spans"),
    "modernbert": (MODERN, "masked"),
    "modernbert_biases": ({**MODERN, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
                           "decoder_bias": False, "classifier_activation": "relu", "num_hidden_layers": 2,
                           "layer_types": ["sliding_attention", "full_attention"]}, "masked"),
    "modernbert_classes": (labelled(MODERN, "ModernBertForSequenceClassification"), "classes"),
    "modernbert_first": (labelled({**MODERN, "classifier_pooling": "cls"}, "ModernBertForSequenceClassification"), "classes"),
    "modernbert_tokens": (labelled(MODERN, "ModernBertForTokenClassification"), "tokens"),
    "modernbert_spans": ({**MODERN, "architectures": ["ModernBertForQuestionAnswering"]}, "spans"),
    "nomic_bert": (NOMIC, "masked"),
    "nomic_bert_table": ({**NOMIC, "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True,
                          "activation_function": "geglu", "rotary_emb_fraction": 0.0}, "masked"),
    "nomic_bert_classes": (labelled({**NOMIC, "rotary_scaling_factor": 2}, "NomicBertForSequenceClassification"),
                           "classes"),
    "camembert": ({**ROBERTA, "model_type": "camembert"}, "masked"),
    "camembert_tokens": (labelled({**ROBERTA, "model_type": "camembert"}, "CamembertForTokenClassification"), "tokens"),
    "electra_replaced": ({**ELECTRA, "architectures": ["ElectraForPreTraining"]}, "replaced"),
    "bert_spans": ({**BERT, "architectures": ["BertForQuestionAnswering"]}, "spans"),
    "roberta_spans": (ROBERTA, "spans"),
    "distilbert_spans": (DISTILBERT, "spans"),
    "albert_spans": (ALBERT, "spans"),
}


if __name__ == "__main__":
    write_encoders(sys.argv[1], CASES, reference)
