#!/usr/bin/env python3
"""fuzz_variants.py SINTER [COUNT [SEED]]: writes COUNT random variants (100) as models in C and runs `sinter check` on each:
random scores, masks, weights, sinks, recurrences and spellings. Prints each variant that fails a check or is refused, with
its seed, and keeps its file in fuzz-variants/. Exit code 1 if there is one.

    bench/fuzz_variants.py build/release/tools/sinter 5000
    bench/fuzz_variants.py build/release/tools/sinter 1 SEED        the variant of one seed"""
import os
import random
import subprocess
import sys
import tempfile

HEAD = """#include <sinter/models.h>
enum { H = %(heads)d, HK = %(kv)d, D = %(width)d, DV = %(values)d };
"""
MODEL = """SN_MODEL(m, o) {
    (void)o;
    sn_dim B = sn_symbol(m, "B", 1, 4), T = sn_symbol(m, "T", 1, 128);
    sn_tensor q = sn_input(m, "q", SN_F32, B, H, T, D), k = sn_input(m, "k", SN_F32, B, HK, T, D);
    sn_tensor v = sn_input(m, "v", SN_F32, B, HK, T, DV);
    sn_tensor slope = sn_param(m, "slope", SN_F32, H);
    (void)slope;
    sn_entry_begin(m, "forward");
%s
    sn_output("y", y);
}
"""


def number(r, lo, hi):
    return '%.3g' % r.uniform(lo, hi)


def distance(r):
    return 'sn_cast(sn_query_key_distance(c), SN_F32)'


def float_of_head(r):
    return r.choice(['sn_cast(c->h, SN_F32)', 'sn_exp2(sn_sub(-1.0, sn_cast(c->h, SN_F32)))',
                     'sn_log1p(sn_cast(c->h, SN_F32))', 'sn_sqrt(sn_add(sn_cast(c->h, SN_F32), 1.0))'])


def term(r, depth):
    """A float scalar of a score callback."""
    if depth == 0:
        return r.choice(['c->score', 'c->score', 'sn_mul(%s, %s)' % (distance(r), number(r, -0.1, 0.1)), float_of_head(r),
                         'sn_at(c->captured[0], c->h)'])
    a, b = term(r, depth - 1), term(r, depth - 1)
    return r.choice(['sn_add(%s, %s)' % (a, b), 'sn_sub(%s, %s)' % (a, b), 'sn_mul(%s, sn_tanh(%s))' % (a, b),
                     'sn_mul(sn_tanh(sn_mul(%s, 0.2)), %s)' % (a, number(r, 1, 6)), 'sn_max(%s, %s)' % (a, number(r, -2, 0)),
                     'sn_where(sn_lt(sn_query_key_distance(c), %d), %s, %s)' % (r.randrange(1, 40), a, b),
                     'sn_sub(%s, sn_log1p(sn_abs(%s)))' % (a, distance(r))])


def mask(r, depth):
    """A bool scalar of a mask callback."""
    if depth == 0:
        n = r.randrange(1, 40)
        return r.choice([
            'sn_ge(sn_query_key_distance(c), 0)', 'sn_lt(sn_abs(sn_query_key_distance(c)), %d)' % n,
            'sn_eq(sn_div(c->q, %d), sn_div(c->k, %d))' % (n, n), 'sn_eq(sn_mod(sn_query_key_distance(c), %d), 0)' % (n // 8 + 1),
            'sn_lt(c->k, %d)' % n, 'sn_le(sn_query_key_distance(c), sn_cast(sn_exp2(sn_add(%s, 2.0)), SN_I32))' % float_of_head(r),
            'sn_lt(%s, sn_mul(%s, %d))' % (distance(r), float_of_head(r), n),
            'sn_eq(sn_and(sn_xor(sn_shift_right(c->q, %d), sn_shift_right(c->k, %d)), 1), 0)' % (r.randrange(1, 6), r.randrange(1, 6)),
            'sn_lt(sn_mod(sn_mul(sn_add(c->k, c->h), 7), 11), %d)' % r.randrange(1, 11)])
    a, b = mask(r, depth - 1), mask(r, depth - 1)
    return r.choice(['sn_and(%s, %s)' % (a, b), 'sn_or(%s, %s)' % (a, b), 'sn_and(%s, sn_not(%s))' % (a, b),
                     'sn_where(sn_eq(sn_mod(c->h, 2), 0), %s, %s)' % (a, b)])


def callback(kind, name, body):
    return 'static sn_tensor %s(const sn_score_ctx *c) {\n    return %s;\n}\n' % (name, body), '.%s = %s' % (kind, name)


def attention(r):
    code, options = '', []
    if r.random() < 0.7:
        text, option = callback('score', 'score', term(r, r.randrange(1, 3)))
        code, options = code + text, options + [option]
    if r.random() < 0.8:
        text, option = callback('mask', 'mask', mask(r, r.randrange(0, 3)))
        code, options = code + text, options + [option]
    if r.random() < 0.5:
        options.append('.causal = true')
        if r.random() < 0.3:
            options.append('.window = %d' % r.randrange(1, 50))
    if r.random() < 0.4:
        weight = r.choice(['sn_sigmoid(c->score)', 'sn_square(sn_relu(c->score))', 'c->score', 'sn_exp(sn_min(c->score, 4.0))',
                           'sn_mul(c->score, sn_exp(sn_mul(sn_abs(%s), -0.2)))' % distance(r)])
        text, option = callback('weight', 'weight', weight)
        code, options = code + text, options + [option]
        positive = 'sigmoid' in weight or 'exp(sn_min' in weight
        options.append('.divide = SN_DIVIDE_BY_%s' % r.choice(['1', 'ABS_SUM'] + ['SUM'] * positive))
    elif r.random() < 0.3:
        options.append('.sink = slope')
    options.append('.captured = {slope}')
    return code, '    sn_tensor y = sn_attention(q, k, v, %s);' % ', '.join(options)


def plain(r):
    """Attention in plain operations, with a random spelling; heads may be mixed."""
    lines = ['sn_tensor s = sn_mul(sn_einsum("bhqd,bhkd->bhqk", q, k), %s);' % number(r, 0.1, 1)]
    if r.random() < 0.5:
        lines.append('s = sn_mul(sn_tanh(sn_div(s, 5.0)), 5.0);')
    if r.random() < 0.4:
        lines.append('s = sn_einsum("bhqk,hg->bgqk", s, sn_param(m, "mix", SN_F32, H, H));')
    seen = r.choice(['sn_causal_mask(m, T, T)', 'sn_window_mask(m, T, T, %d)' % r.randrange(1, 40), 'sn_strict_mask(m, T, T)', ''])
    kind = r.choice(['softmax', 'exp', 'sigmoid', 'linear'])
    if kind == 'softmax':
        if seen:
            lines.append('s = sn_mask_scores(s, %s);' % seen if r.random() < 0.5 else 's = sn_where(%s, s, -INFINITY);' % seen)
        lines.append('sn_tensor w = sn_softmax(s, -1);')
    else:
        lines.append('sn_tensor w = %s;' % {'exp': 'sn_exp(s)', 'sigmoid': 'sn_sigmoid(s)', 'linear': 's'}[kind])
        if seen:
            lines.append('w = sn_where(%s, w, 0);' % seen)
        if kind != 'linear' and r.random() < 0.6:
            lines.append('w = sn_div(w, sn_add(sn_sum_keep(w, -1), %s));' % number(r, 0.1, 1))
    if r.random() < 0.3:
        lines.append('w = sn_einsum("bhqk,hg->bgqk", w, sn_param(m, "mix2", SN_F32, H, H));')
    lines.append('sn_tensor y = sn_matmul(w, v);' if r.random() < 0.5 else 'sn_tensor y = sn_einsum("bhqk,bhkd->bhqd", w, v);')
    return '#include <math.h>\n', '\n'.join('    ' + line for line in lines)


def recurrence(r):
    """A scan over the tokens: S <- decay S + k^T v, y = q S, or elementwise."""
    decay = r.choice(['sn_sigmoid(sn_index(q, 3, 0))', 'sn_exp(sn_neg(sn_square(sn_index(k, 3, 0))))'])
    if r.random() < 0.5:
        code = '''static void step(sn_scan_step *s) {
    sn_tensor d = sn_expand(sn_expand(s->x[3], -1), -1);
    sn_tensor kv = sn_mul(sn_expand(s->x[1], -1), sn_expand(s->x[2], -2));
    s->next[0] = sn_add(sn_mul(s->carry[0], d), kv);
    s->y[0] = sn_sum(sn_mul(sn_expand(s->x[0], -1), %s), -2);
}
''' % r.choice(['s->next[0]', 's->carry[0]'])
        carry = 'sn_full(m, SN_F32, %s, B, H, D, DV)' % r.choice(['0', '0.1'])
        return code, ('    sn_tensor y = sn_scan(.carry = {%s}, .x = {q, k, v, %s}, .axis = 2, .reverse = %s, .body = step).y[0];'
                      % (carry, decay, r.choice(['true', 'false'])))
    code = '''static void step(sn_scan_step *s) {
    s->next[0] = sn_add(sn_mul(s->carry[0], sn_sigmoid(s->x[1])), %s);
    s->y[0] = %s;
}
''' % (r.choice(['sn_tanh(s->x[0])', 's->x[0]']), r.choice(['s->next[0]', 'sn_tanh(s->next[0])', 'sn_mul(s->carry[0], s->x[0])']))
    return code, '''    sn_tensor y = sn_scan(.carry = {sn_full(m, SN_F32, 0, B, H, D)}, .x = {q, k}, .axis = 2, .body = step).y[0];
    y = sn_matmul(sn_softmax(y, -1), sn_flip(sn_slice(sn_pad(v, 2, 0, D, 0), 2, 0, D), %d));''' % r.choice([2, 3])


def variant(seed):
    r = random.Random(seed)
    make = r.choices([attention, plain, recurrence], [6, 3, 2])[0]
    heads = r.choice([1, 2, 3, 4])
    kv = heads if make is not attention else r.choice([h for h in (1, 2, 3, 4) if heads % h == 0])
    code, body = make(r)
    return HEAD % {'heads': heads, 'kv': kv, 'width': r.choice([4, 8, 12, 16]), 'values': r.choice([4, 8, 16])} + code + MODEL % body


def main():
    sinter = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    first = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'variant.c')
        for seed in range(first, first + count):
            text = variant(seed)
            with open(path, 'w') as f:
                f.write(text)
            p = subprocess.run([sinter, 'check', path, '--quiet'], capture_output=True, text=True)
            if p.returncode == 0:
                continue
            failed += 1
            os.makedirs('fuzz-variants', exist_ok=True)
            with open('fuzz-variants/%d.c' % seed, 'w') as f:
                f.write(text)
            print('seed %d: exit code %d\n%s%s' % (seed, p.returncode, p.stdout, p.stderr), flush=True)
    print('%d variants, %d failed, seeds from %d on' % (count, failed, first))
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
