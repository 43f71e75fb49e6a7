#!/usr/bin/env python3
"""cache_loss.py: what narrow caches of keys and values cost: perplexity of a model by decoding, beside f32.

usage: bench/cache_loss.py MODEL [--text FILE] [--texts N] [--tokens N] [--cache LIST]

The texts are the model's own (seeds 1 to N), or those of --text FILE, cut into windows. At each position the
logits are those that decoding would give: every row that attention reads has been stored in the cache. Prints a
table: storage, perplexity, its ratio to f32's, the largest and the mean difference of the logits."""
import argparse
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))


def log_probability(logits, token):
    top = logits.max()
    return logits[token] - top - np.log(np.exp(logits - top).sum())


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--text")
    a.add_argument("--texts", type=int, default=8)
    a.add_argument("--tokens", type=int, default=200)
    a.add_argument("--cache", default="f32,bf16,int8")
    args = a.parse_args()
    import sinter
    windows, first = None, None
    for cache in dict.fromkeys(["f32"] + args.cache.split(",")):
        with sinter.Model(args.model, cache=cache) as m:
            if windows is None:
                if args.text:
                    ids = m.encode(open(args.text, encoding="utf-8").read())
                    windows = [ids[i:i + args.tokens] for i in range(0, args.texts * args.tokens, args.tokens)]
                else:
                    texts = [m.generate([1], tokens=args.tokens, temperature=0.8, seed=s + 1) for s in range(args.texts)]
                    windows = [m.encode(t)[:args.tokens] for t in texts]
            rows = [(m.logits(w[:i]), w[i]) for w in windows for i in range(1, len(w))]
        loss = -np.mean([log_probability(x.astype(np.float64), t) for x, t in rows])
        if first is None:
            first = loss, rows
            print(f"{len(rows)} tokens\n| cache | perplexity | of f32 | mean and largest difference of a logit |\n|---|---|---|---|")
        apart = [np.abs(x - y).astype(np.float64) for (x, _), (y, _) in zip(rows, first[1])]
        print(f"| {cache} | {np.exp(loss):.4f} | {np.exp(loss - first[0]):.5f} | {np.mean(apart):.5f}, "
              f"{np.max(apart):.3f} |", flush=True)


if __name__ == "__main__":
    main()
