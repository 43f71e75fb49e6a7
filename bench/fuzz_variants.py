#!/usr/bin/env python3
"""fuzz_variants.py: writes random variants of transformer parts as models in C (fuzz_grammar.py) and runs `sinter check` on
them: results and gradients of every level against the evaluator, gradients against differences, equal bits for other
numbers of threads, and decoding against forward. Variants are attention with random scores, masks, weights, sinks and
block tables; the same in plain operations; recurrences and running sums; routes (experts, orders, chosen tokens,
adapters); rows; decoders.

usage: bench/fuzz_variants.py SINTER [COUNT [SEED]] [--seconds S] [--per-file N] [--slow] [--compute bf16]
                              [--exact] [--keep FOLDER]

    bench/fuzz_variants.py build/release/tools/sinter 5000
    bench/fuzz_variants.py build/release/tools/sinter 1 SEED --slow     the variant of one seed

Several variants share a file. A file is checked at levels 0, 4 and one between, one of four with other numbers of threads,
and its kernels are compiled without LLVM's optimisations (SINTER_DEBUG=quick), but for one file of 20; --slow: everything,
optimised. Each variant that fails a check or is refused is checked again alone, with other numbers too: a
failure that these do not have is reported as rare (rounding may change which element is chosen). --exact: all passes are
compared over finite fields instead, at small sizes, and nothing is compiled. Failures are printed with their seed and
kept in FOLDER (fuzz-variants). Exit code 1 if there is one."""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import fuzz_grammar

DECODERS = 24  # one file of so many is a decoder
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_decoder(seed):
    return seed % DECODERS == 0


def model(seeds):
    """A file with the variants of these seeds."""
    if len(seeds) == 1 and is_decoder(seeds[0]):
        return fuzz_grammar.decoder(random.Random(seeds[0]))
    parts = ['#include <math.h>', '#include <sinter/models.h>', '']
    parts += [fuzz_grammar.draw(random.Random(s), s) for s in seeds]
    parts.append('SN_MODEL(m, o) {\n    (void)o;\n    sn_dim B = sn_symbol(m, "B", 1, 4), T = sn_symbol(m, "T", 1, 128);')
    for s in seeds:
        parts.append('    sn_entry_begin(m, "v%d");\n    sn_scope_push(m, "v%d");\n    sn_output("y", build_%d(m, B, T));\n'
                     '    sn_scope_pop(m);' % (s, s, s))
    return '\n'.join(parts) + '\n}\n'


class Fuzzer:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.ran = self.failed = self.rare = 0
        shutil.copy(os.path.join(ROOT, 'examples', 'variants', 'small.h'), folder)

    def check(self, seeds, slow, *options):
        """The exit code and what was printed."""
        r = random.Random(seeds[0])
        if self.args.exact:
            options = ('--exact', '--sizes', 'B=2,T=7', *options)
        elif not slow:
            options = ('--levels', '0,%d,4' % r.randrange(1, 4), *options)
            if r.random() < 0.75:
                options = ('--no-threads', *options)
        path = os.path.join(self.folder, 'variants.c')
        text = model(seeds)
        if self.args.exact:  # products of these constants are fractions that the check knows, too
            text = re.sub(r'(?<![\w.])\d+\.\d{2,}(?![\de])', lambda x: str(max(1, round(float(x[0]) * 8)) / 8), text)
        with open(path, 'w') as f:
            f.write(text)
        debug = [] if slow else ['quick']
        env = dict(os.environ, SINTER_DEBUG=','.join(debug), OMP_WAIT_POLICY='passive')
        command = [self.args.sinter, 'check', path, '--quiet', '--cache-dir', os.path.join(self.folder, 'cache'), '--compute',
                   self.args.compute, *options]
        try:
            p = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
        except subprocess.TimeoutExpired:
            return 124, 'not finished after 600 s\n'
        return p.returncode, p.stdout + p.stderr

    def report(self, seed, code, text, slow):
        again = self.check([seed], slow, '--seed', '2', '--sizes', 'B=1,T=9' if self.args.exact else 'B=2,T=19')[0]
        what = 'failed' if again else 'rare'
        if what == 'failed':
            self.failed += 1
        else:
            self.rare += 1
        os.makedirs(self.args.keep, exist_ok=True)
        with open(os.path.join(self.args.keep, '%d.c' % seed), 'w') as f:
            f.write(model([seed]))
        print('seed %d: %s, exit code %d\n%s' % (seed, what, code, text), flush=True)

    def batch(self, seeds):
        slow = self.args.slow or random.Random(seeds[0]).random() < 0.05
        code, text = self.check(seeds, slow)
        self.ran += len(seeds)
        if code == 0:
            return
        for seed in seeds:
            code, text = self.check([seed], slow)
            if code:
                self.report(seed, code, text, slow)

    def run(self, first, count):
        start, seed, last = time.monotonic(), first, first + count
        while seed < last and time.monotonic() - start < self.args.seconds:
            seeds = [seed]
            while not is_decoder(seeds[0]) and len(seeds) < self.args.per_file and seeds[-1] + 1 < last:
                if is_decoder(seeds[-1] + 1):
                    break
                seeds.append(seeds[-1] + 1)
            self.batch(seeds)
            seed = seeds[-1] + 1
            if self.ran % 240 < len(seeds):
                shutil.rmtree(os.path.join(self.folder, 'cache'), ignore_errors=True)
                print('%d variants, %d failed, %d rare, up to seed %d, %.2f s each'
                      % (self.ran, self.failed, self.rare, seed - 1, (time.monotonic() - start) / self.ran), flush=True)
        print('%d variants, %d failed, %d rare, seeds %d to %d' % (self.ran, self.failed, self.rare, first, seed - 1))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('sinter')
    p.add_argument('count', nargs='?', type=int, default=100)
    p.add_argument('seed', nargs='?', type=int, default=random.randrange(1 << 30))
    p.add_argument('--seconds', type=float, default=float('inf'), help='stop after so long')
    p.add_argument('--per-file', type=int, default=10, help='variants in a file, at most 16')
    p.add_argument('--slow', action='store_true', help="with LLVM's optimisations")
    p.add_argument('--compute', default='f32', choices=['f32', 'bf16'], help='arithmetic of products')
    p.add_argument('--exact', action='store_true', help='passes over finite fields')
    p.add_argument('--keep', default='fuzz-variants', help='folder for variants that fail')
    args = p.parse_args()
    args.sinter = os.path.abspath(args.sinter)
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(args, folder)
        fuzzer.run(args.seed, args.count)
    return fuzzer.failed > 0


if __name__ == '__main__':
    sys.exit(main())
