#!/usr/bin/python3
# torch_train_chars.py TEXT [STEPS [THREADS]]: examples/train/shakespeare.json in PyTorch, for the
# time of a step and the loss: nanoGPT's model and its CPU setting (4 layers, 4 heads, width 128,
# block 64, batch 12, no dropout; GPT-2's biases). Tuned: memory is kept between steps (run with
# GLIBC_TUNABLES below), AdamW by lists of tensors (foreach), denormals are zeros, the mask is made
# once. Operations are so small that one thread may be faster than two: try both.
#   GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_models import Block, init, later

B, T, D, LAYERS, HEADS = 12, 64, 128, 4, 4
text = open(sys.argv[1], encoding="utf-8").read()
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
torch.set_flush_denormal(True)
torch.manual_seed(1337)

place = {c: i for i, c in enumerate(sorted(set(text)))}
data = torch.tensor([place[c] for c in text])
cut = len(data) - math.ceil(0.1 * len(data))
train, valid = data[:cut], data[cut:]


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(place), D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block(D, HEADS) for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(D)
        init(self)
        for name, p in self.named_parameters():
            if name.endswith(("proj.weight", "out.weight")):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS))
            if name.endswith("bias"):
                nn.init.zeros_(p)
        self.mask = later(T)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight
        for b in self.blocks:
            x = b(x, self.mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def rate(step):
    if step < 100:
        return 1e-3 * (step + 1) / 100
    u = (step + 1 - 100) / (2000 - 100)
    return 1e-4 + 0.5 * (1 + math.cos(math.pi * min(u, 1))) * 9e-4


def evaluate(model):
    rows = (len(valid) - 1) // T
    x, y = valid[:rows * T].view(rows, T), valid[1:rows * T + 1].view(rows, T)
    with torch.no_grad():
        return sum(model(x[i:i + B], y[i:i + B]).item() * len(x[i:i + B])
                   for i in range(0, rows, B)) / rows


model = GPT()
groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
          {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), foreach=True)
times = []
for step in range(steps):
    begun = time.perf_counter()
    for g in optimizer.param_groups:
        g["lr"] = rate(step)
    at = torch.randint(len(train) - T, (B,))
    x = torch.stack([train[i:i + T] for i in at])
    y = torch.stack([train[i + 1:i + 1 + T] for i in at])
    loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    times.append(time.perf_counter() - begun)
times.sort()
print(f"steps            {steps}\nloss             {loss.item():.5f}")
if steps >= 2000:
    print(f"validation_loss  {evaluate(model):.5f}")
print(f"ms_per_step      {1e3 * times[len(times) // 2]:.2f} (median; least {1e3 * times[0]:.2f})")
print(f"tokens_per_s     {B * T / times[len(times) // 2]:.0f}")
