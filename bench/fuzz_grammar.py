"""fuzz_grammar.py: random variants of transformer parts for fuzz_variants.py, as functions in C. Each family below draws
one variant: callbacks, and the statements of a function that ends with `return y;`. In a variant @ stands for its number,
so that several share a file."""

SIZES = [4, 8, 12, 16]


class Draw:
    """A variant under construction."""

    def __init__(self, r):
        self.r, self.code, self.lines = r, [], []
        self.heads = r.choice([1, 2, 3, 4])
        self.kv = self.heads
        self.width, self.values = r.choice(SIZES), r.choice([4, 8, 16])

    def add(self, line):
        self.lines.append(line)

    def callback(self, name, body, kind='sn_score_ctx *c'):
        self.code.append('static sn_tensor %s_@(const %s) {\n    return %s;\n}' % (name, kind, body))
        return '%s_@' % name

    def number(self, lo, hi):
        """One of a few, so that variants share kernels."""
        return '%.3g' % (lo + (hi - lo) * self.r.randrange(1, 8) / 8)

    def qkv(self):
        self.add('sn_tensor q = sn_input(m, "q@", SN_F32, B, H, T, D), k = sn_input(m, "k@", SN_F32, B, HK, T, D);')
        self.add('sn_tensor v = sn_input(m, "v@", SN_F32, B, HK, T, DV);')

    def maybe(self, p):
        return self.r.random() < p


# ---- attention with callbacks ----

DISTANCE = 'sn_cast(sn_query_key_distance(c), SN_F32)'


def float_of_head(d):
    return d.r.choice(['sn_cast(c->h, SN_F32)', 'sn_exp2(sn_sub(-1.0, sn_cast(c->h, SN_F32)))', 'sn_log1p(sn_cast(c->h, SN_F32))',
                       'sn_sqrt(sn_add(sn_cast(c->h, SN_F32), 1.0))'])


def term(d, depth):
    """A float scalar of a score callback."""
    if depth == 0:
        return d.r.choice(['c->score', 'c->score', 'sn_mul(%s, %s)' % (DISTANCE, d.number(-0.1, 0.1)), float_of_head(d),
                           'sn_at(c->captured[0], c->h)'])
    a, b = term(d, depth - 1), term(d, depth - 1)
    return d.r.choice(['sn_add(%s, %s)' % (a, b), 'sn_sub(%s, %s)' % (a, b), 'sn_mul(%s, sn_tanh(%s))' % (a, b),
                       'sn_mul(sn_tanh(sn_mul(%s, 0.2)), %s)' % (a, d.number(1, 6)), 'sn_max(%s, %s)' % (a, d.number(-2, 0)),
                       'sn_where(sn_lt(sn_query_key_distance(c), %d), %s, %s)' % (d.r.randrange(1, 40), a, b),
                       'sn_sub(%s, sn_log1p(sn_abs(%s)))' % (a, DISTANCE)])


def mask(d, depth):
    """A bool scalar of a mask callback."""
    if depth == 0:
        n, r = d.r.randrange(1, 40), d.r
        return r.choice([
            'sn_ge(sn_query_key_distance(c), 0)', 'sn_lt(sn_abs(sn_query_key_distance(c)), %d)' % n,
            'sn_eq(sn_div(c->q, %d), sn_div(c->k, %d))' % (n, n), 'sn_eq(sn_mod(sn_query_key_distance(c), %d), 0)' % (n // 8 + 1),
            'sn_lt(c->k, %d)' % n, 'sn_le(sn_query_key_distance(c), sn_cast(sn_exp2(sn_add(%s, 2.0)), SN_I32))' % float_of_head(d),
            'sn_lt(%s, sn_mul(%s, %d))' % (DISTANCE, float_of_head(d), n),
            'sn_eq(sn_and(sn_xor(sn_shift_right(c->q, %d), sn_shift_right(c->k, %d)), 1), 0)' % (r.randrange(1, 6), r.randrange(1, 6)),
            'sn_lt(sn_mod(sn_mul(sn_add(c->k, c->h), 7), 11), %d)' % r.randrange(1, 11)])
    a, b = mask(d, depth - 1), mask(d, depth - 1)
    return d.r.choice(['sn_and(%s, %s)' % (a, b), 'sn_or(%s, %s)' % (a, b), 'sn_and(%s, sn_not(%s))' % (a, b),
                       'sn_where(sn_eq(sn_mod(c->h, 2), 0), %s, %s)' % (a, b)])


def block_table(d):
    """A table of the blocks of keys that a query, or a block of queries, sees, chosen at run time [B, H, T or blocks, blocks]:
    the statements, and the mask that reads it."""
    block, per_query = d.r.choice([4, 8, 16, 32]), d.maybe(0.5)
    blocks = -(-128 // block)
    d.add('sn_dim free = sn_dim_sub(m, 128, T);')
    d.add('sn_tensor means = sn_mean(sn_reshape(sn_pad(k, 2, 0, free, 0), B, HK, %d, %d, D), 3);' % (blocks, block))
    if per_query:
        d.add('sn_tensor of = q;')
    else:
        d.add('sn_tensor of = sn_mean(sn_reshape(sn_pad(q, 2, 0, free, 0), B, H, %d, %d, D), 3);' % (blocks, block))
    d.add('if (HK != H) means = sn_reshape(sn_broadcast(sn_expand(means, 2), B, HK, H / HK, %d, D), B, H, %d, D);' % (blocks, blocks))
    d.add('sn_tensor match = sn_matmul(of, sn_transpose(means, 0, 1, 3, 2)), index;')
    if d.maybe(0.7):
        d.add('sn_top_k(sn_stop_gradient(match), %d, &index);' % d.r.randrange(1, min(5, blocks)))
        d.add('sn_tensor table = sn_gt(sn_sum(sn_one_hot(index, %d, SN_F32), 3), 0);' % blocks)
    else:
        d.add('sn_tensor table = sn_gt(match, %s);' % d.number(-0.5, 0.5))
    row = 'c->q' if per_query else 'sn_div(c->q, %d)' % block
    return 'sn_at(c->captured[1], c->b, c->h, %s, sn_div(c->k, %d))' % (row, block)


def attention(d):
    d.kv = d.r.choice([h for h in (1, 2, 3, 4) if d.heads % h == 0])
    d.qkv()
    d.add('sn_tensor slope = sn_param(m, "slope", SN_F32, H);')
    options, captured, seen = [], 'slope', None
    if d.maybe(0.7):
        options.append('.score = ' + d.callback('score', term(d, d.r.randrange(1, 3))))
    if d.maybe(0.2):
        seen, captured = block_table(d), 'slope, table'
    elif d.maybe(0.75):
        seen = mask(d, d.r.randrange(0, 3))
    if seen:
        options.append('.mask = ' + d.callback('mask', seen))
    if d.maybe(0.5):
        options.append('.causal = true')
        if d.maybe(0.3):
            options.append('.window = %d' % d.r.randrange(1, 50))
    lse = False
    if d.maybe(0.4):
        weight = d.r.choice(['sn_sigmoid(c->score)', 'sn_square(sn_relu(c->score))', 'c->score', 'sn_exp(sn_min(c->score, 4.0))',
                             'sn_mul(c->score, sn_exp(sn_mul(sn_abs(%s), -0.2)))' % DISTANCE])
        options.append('.weight = ' + d.callback('weight', weight))
        positive = 'sigmoid' in weight or 'exp(sn_min' in weight
        options.append('.divide = SN_DIVIDE_BY_%s' % d.r.choice(['1', 'ABS_SUM'] + ['SUM'] * positive))
    elif d.maybe(0.3):
        options.append('.sink = slope')
    elif d.maybe(0.15):
        lse = True
        d.add('sn_tensor lse;')
        options.append('.lse = &lse')
    d.add('sn_tensor y = sn_attention(q, k, v, %s.captured = {%s});' % (''.join(o + ', ' for o in options), captured))
    if lse:
        d.add('y = sn_add(y, sn_max(lse, -50.0));')


# ---- attention in plain operations ----

def spell_scores(d):
    scale = d.number(0.1, 1)
    d.add(d.r.choice([
        'sn_tensor s = sn_mul(sn_einsum("bhqd,bhkd->bhqk", q, k), %s);' % scale,
        'sn_tensor s = sn_matmul(sn_mul(q, %s), sn_transpose(k, 0, 1, 3, 2));' % scale,
        'sn_tensor s = sn_div(sn_matmul(q, sn_swap(k, 2, 3)), sn_sqrt(sn_scalar(m, SN_F32, D)));',
        'sn_tensor s = sn_mul(sn_einsum("bhkd,bhqd->bhqk", k, q), %s);' % scale]))
    if d.maybe(0.4):
        d.add('s = sn_mul(sn_tanh(sn_div(s, 5.0)), 5.0);')
    if d.maybe(0.3):
        d.add('s = sn_add(s, sn_mul(sn_cast(sn_sub(sn_expand(sn_arange(m, SN_I32, T), 0), '
              'sn_expand(sn_arange(m, SN_I32, T), 1)), SN_F32), %s));' % d.number(-0.2, 0.2))


def spell_softmax(d, seen):
    """Softmax of s in one of its spellings, perhaps with a sink."""
    if seen:
        d.add(d.r.choice(['s = sn_mask_scores(s, %s);', 's = sn_where(%s, s, -INFINITY);', 's = sn_where(%s, s, -1e30);',
                          's = sn_add(s, sn_where(%s, 0, sn_scalar(m, SN_F32, -1e9)));']) % seen)
    if 'strict' in seen:  # a row without keys is 0 in a softmax; formulas make it NaN, or rounding of 1e30
        d.add('sn_tensor w = sn_softmax(s, -1);')
        return
    sink = 'sn_reshape(sn_param(m, "sink", SN_F32, H), 1, H, 1, 1)'
    d.add(d.r.choice([
        'sn_tensor w = sn_softmax(s, -1);', 'sn_tensor w = sn_softmax(s, -1);',
        'sn_tensor e = sn_exp(sn_sub(s, sn_amax_keep(s, -1))), w = sn_div(e, sn_sum_keep(e, -1));',
        'sn_tensor e = sn_exp(sn_sub(s, sn_amax_keep(s, -1))), w = sn_mul(e, sn_recip(sn_sum_keep(e, -1)));',
        'sn_tensor top = sn_max(sn_amax_keep(s, -1), %s), e = sn_exp(sn_sub(s, top));\n'
        '    sn_tensor w = sn_div(e, sn_add(sn_sum_keep(e, -1), sn_exp(sn_sub(%s, top))));' % (sink, sink),
        'sn_tensor w = sn_slice(sn_softmax(sn_concat(3, s, sn_broadcast(%s, B, H, T, 1)), -1), 3, 0, T);' % sink,
        'sn_tensor top = sn_max(sn_amax_keep(s, -1), 0), e = sn_exp(sn_sub(s, top));\n'
        '    sn_tensor w = sn_div(e, sn_add(sn_sum_keep(e, -1), sn_exp(sn_neg(top))));',
        'sn_tensor l = sn_expand(sn_logsumexp(s, -1), -1), w = sn_exp(sn_sub(s, l));',
        'sn_tensor w = sn_exp(sn_log_softmax(s, -1));']))


def plain(d):
    d.qkv()
    spell_scores(d)
    if d.maybe(0.3):
        d.add('s = sn_einsum("bhqk,hg->bgqk", s, sn_param(m, "mix", SN_F32, H, H));')
    seen = d.r.choice(['sn_causal_mask(m, T, T)', 'sn_window_mask(m, T, T, %d)' % d.r.randrange(1, 40), 'sn_strict_mask(m, T, T)', ''])
    kind = d.r.choice(['softmax', 'softmax', 'exp', 'sigmoid', 'linear', 'relu'])
    if kind == 'softmax':
        spell_softmax(d, seen)
    else:
        d.add('sn_tensor w = %s;' % {'exp': 'sn_exp(s)', 'sigmoid': 'sn_sigmoid(s)', 'linear': 's', 'relu': 'sn_square(sn_relu(s))'}[kind])
        if seen:
            d.add('w = sn_where(%s, w, 0);' % seen)
        if kind in ('exp', 'sigmoid') and d.maybe(0.6):
            d.add('w = sn_div(w, sn_add(sn_sum_keep(w, -1), %s));' % d.number(0.1, 1))
        elif kind == 'linear' and d.maybe(0.4):
            d.add('w = sn_div(w, sn_max(sn_abs(sn_sum_keep(w, -1)), 1));')
    if d.maybe(0.2):
        d.add('w = sn_einsum("bhqk,hg->bgqk", w, sn_param(m, "mix2", SN_F32, H, H));')
    d.add(d.r.choice(['sn_tensor y = sn_matmul(w, v);', 'sn_tensor y = sn_einsum("bhqk,bhkd->bhqd", w, v);',
                      'sn_tensor y = sn_einsum("bhqk,bhkd->bqhd", w, v);']))
    if d.maybe(0.2):
        d.add('y = sn_add(y, sn_sum_all(sn_square(w)));')


# ---- loops and recurrences ----

def matrix_step(d):
    """S <- decay S + k^T v, or a delta rule; y = q S."""
    r = d.r
    per_row = d.maybe(0.4)
    decay = r.choice(['sn_sigmoid(k)', 'sn_exp(sn_neg(sn_square(k)))', 'sn_exp(sn_mul(sn_sigmoid(k), -0.5))'])
    if not per_row:
        decay = decay.replace('(k)', '(sn_index(k, 3, 0))')
    d.add('sn_tensor decay = %s;' % decay)
    body = ['sn_tensor S = s->carry[0], k = s->x[1], v = s->x[2];']
    body.append('sn_tensor d = %s;' % ('sn_expand(s->x[3], -1)' if per_row else 'sn_expand(sn_expand(s->x[3], -1), -1)'))
    extra = ''
    if d.maybe(0.35):
        extra = ', sn_sigmoid(sn_index(q, 3, 1))'
        body.append('sn_tensor kn = sn_div(k, sn_sqrt(sn_add(sn_sum_keep(sn_square(k), -1), 0.1)));')
        body.append('S = sn_mul(S, d);' if d.maybe(0.6) else 'S = sn_add(S, 0);')
        body.append('sn_tensor old = sn_sum(sn_mul(S, sn_expand(kn, -1)), -2);')
        body.append('sn_tensor u = sn_mul(sn_sub(v, old), sn_expand(s->x[4], -1));')
        body.append('s->next[0] = sn_add(S, sn_mul(sn_expand(kn, -1), sn_expand(u, -2)));')
    else:
        body.append('sn_tensor kv = %s;' % r.choice(['sn_mul(sn_expand(k, -1), sn_expand(v, -2))', 'sn_einsum("bhk,bhv->bhkv", k, v)']))
        body.append('s->next[0] = sn_add(sn_mul(S, d), kv);')
    state = r.choice(['s->next[0]', 's->next[0]', 's->carry[0]'])
    body.append('s->y[0] = %s;' % r.choice(['sn_sum(sn_mul(sn_expand(s->x[0], -1), %s), -2)' % state,
                                            'sn_einsum("bhk,bhkv->bhv", s->x[0], %s)' % state,
                                            'sn_squeeze(sn_matmul(sn_expand(s->x[0], -2), %s), -2)' % state]))
    start = r.choice(['sn_full(m, SN_F32, 0, B, H, D, DV)', 'sn_full(m, SN_F32, 0.1, B, H, D, DV)',
                      'sn_broadcast(sn_param(m, "start", SN_F32, H, D, DV), B, H, D, DV)'])
    d.add('sn_scanned r = sn_scan(.carry = {%s}, .x = {q, k, v, decay%s}, .axis = 2, .reverse = %s, .body = step_@);'
          % (start, extra, r.choice(['true', 'false', 'false'])))
    d.add('sn_tensor y = r.y[0];')
    if d.maybe(0.2):
        d.add('y = sn_add(y, sn_sum_all(r.carry[0]));')
    return body


def vector_step(d):
    """Carries of vectors: elementwise recurrences, running maxima, a gate with a product in it."""
    r = d.r
    body = ['sn_tensor gate = sn_sigmoid(s->x[1]), h = s->carry[0];']
    kind = r.choice(['gate', 'product', 'max', 'index', 'two'])
    body.append({'gate': 's->next[0] = sn_add(sn_mul(h, gate), sn_mul(s->x[0], sn_sub(1, gate)));',
                 'product': 's->next[0] = sn_tanh(sn_add(s->x[0], sn_matmul(sn_expand(h, -2), (sn_tensor)s->user)));',
                 'max': 's->next[0] = sn_max(sn_mul(h, 0.9), s->x[0]);',
                 'index': 's->next[0] = sn_add(sn_mul(h, gate), sn_div(s->x[0], sn_add(sn_cast(s->index, SN_F32), 1.0)));',
                 'two': 's->next[0] = sn_add(sn_mul(h, gate), s->carry[1]);\n    s->next[1] = sn_mul(sn_add(s->carry[1], s->x[0]), 0.5);'
                 }[kind])
    if kind == 'product':
        body[-1] = ('sn_tensor w = (sn_tensor)(uintptr_t)s->user;\n    s->next[0] = sn_tanh(sn_add(s->x[0], sn_matmul(h, w)));')
    body.append('s->y[0] = %s;' % r.choice(['s->next[0]', 'sn_tanh(s->next[0])', 'sn_mul(h, s->x[0])', 'sn_mul(s->next[0], gate)']))
    zero = 'sn_full(m, SN_F32, 0, B, H, D)'
    d.add('sn_tensor w = sn_param(m, "w", SN_F32, D, D);')
    d.add('sn_scanned r = sn_scan(.carry = {%s}, .x = {q, k}, .axis = 2, .reverse = %s, .body = step_@, .user = w);'
          % (', '.join([zero] * (2 if kind == 'two' else 1)), r.choice(['true', 'false'])))
    d.add('sn_tensor y = %s;' % r.choice(['r.y[0]', 'sn_einsum("bhtd,bhte->bhde", r.y[0], v)', 'sn_mul(r.y[0], sn_silu(q))']))
    return body


def memory_step(d):
    """A matrix that is no linear recurrence: norms and sums over both of its axes in the loop, momentum, smaller carries."""
    r = d.r
    norms = ['e', 'sn_rms_norm(e, NULL, 1e-2)', 'sn_layer_norm(e, NULL, NULL, 1e-2)', 'sn_softmax(e, -1)',
             'sn_div(e, sn_add(sn_amax_keep(sn_abs(e), -1), 1))']
    carries = ['sn_full(m, SN_F32, 0.1, B, H, D, DV)']

    def carry(start, value):
        carries.append('sn_full(m, SN_F32, 0, %s)' % start)
        body.append('s->next[%d] = %s;' % (len(carries) - 1, value))

    body = ['sn_tensor S = s->carry[0], q = s->x[0], k = s->x[1], v = s->x[2];',
            'sn_tensor e = sn_sub(sn_sum(sn_mul(S, sn_expand(k, -1)), -2), v);', 'e = %s;' % r.choice(norms),
            'sn_tensor P = sn_mul(sn_mul(sn_expand(k, -1), sn_expand(e, -2)), -0.3);']
    if d.maybe(0.4):
        carry('B, H, D, DV', 'sn_add(sn_mul(s->carry[1], 0.7), P)')
        body.append('P = s->next[1];')
    body.append('S = sn_add(sn_mul(S, %s), P);' % r.choice(['0.9', 'sn_expand(sn_sigmoid(v), -2)', 'sn_expand(sn_sigmoid(k), -1)']))
    body.append(r.choice(['', '', 'S = sn_tanh(S);', 'S = sn_softmax(S, -2);', 'S = sn_softmax(S, -1);',
                          'S = sn_div(S, sn_add(sn_sum_keep(sn_abs(S), -1), 1));']))
    if d.maybe(0.3):
        carry('B, H', 'sn_add(sn_mul(s->carry[%d], 0.5), sn_mean(sn_mean(sn_square(S), -1), -1))' % len(carries))
        body.append('S = sn_div(S, sn_expand(sn_expand(sn_add(s->next[%d], 1), -1), -1));' % (len(carries) - 1))
    if d.maybe(0.3):
        carry('B, H, D', 'sn_add(sn_mul(s->carry[%d], 0.5), sn_mean(S, -1))' % len(carries))
        body.append('q = sn_add(q, s->carry[%d]);' % (len(carries) - 1))
    body.append('s->next[0] = S;')
    body.append('s->y[0] = %s;' % r.choice(['sn_sum(sn_mul(sn_expand(q, -1), S), -2)', 'sn_softmax(sn_sum(sn_mul(sn_expand(q, -1), S), -2), -1)',
                                            'sn_amax(S, -2)', 'sn_mul(q, sn_mean(S, -1))', 'sn_sum(sn_mul(q, sn_mean(S, -1)), -1)']))
    d.add('sn_scanned r = sn_scan(.carry = {%s}, .x = {q, k, v}, .axis = 2, .reverse = %s, .body = step_@);'
          % (', '.join(carries), r.choice(['true', 'false', 'false'])))
    d.add('sn_tensor y = r.y[0];')
    if d.maybe(0.2):
        d.add('y = sn_add(y, sn_sum_all(r.carry[%d]));' % r.randrange(len(carries)))
    return body


def recurrence(d):
    d.qkv()
    body = d.r.choice([matrix_step, matrix_step, vector_step, memory_step])(d)
    d.code.append('static void step_@(sn_scan_step *s) {\n%s\n}' % '\n'.join('    ' + line for line in body))


def sums(d):
    """Running sums, short convolutions, linear attention by running sums."""
    d.qkv()
    r = d.r
    d.add('sn_tensor y = %s;' % r.choice(['q', 'sn_exp(sn_mul(q, 0.3))', 'sn_relu(q)']))
    for _ in range(r.randrange(1, 4)):
        d.add(r.choice([
            'y = sn_cumsum(y, 2);', 'y = sn_cumsum(y, -1);', 'y = sn_flip(sn_cumsum(sn_flip(y, 2), 2), 2);',
            'y = sn_sub(sn_cumsum(y, 2), y);', 'y = sn_div(sn_cumsum(y, 2), sn_add(sn_expand(sn_arange(m, SN_F32, T), 1), 1.0));',
            'y = sn_add(sn_mul(y, 0.5), sn_slice(sn_pad(y, 2, 1, 0, 0), 2, 0, T));',
            'y = sn_add(sn_slice(sn_pad(y, 2, 2, 0, 0), 2, 0, T), sn_mul(y, sn_reshape(sn_param(m, "tap", SN_F32, H), H, 1, 1)));',
            'y = sn_mul(sn_flip(y, 3), sn_sigmoid(k));', 'y = sn_softmax(y, 2);', 'y = sn_rms_norm(y, NULL, 1e-5);']))
    if d.maybe(0.4):
        d.add('y = sn_einsum("bhtd,bhte->bhtde", y, v);')
        d.add('y = sn_einsum("bhtd,bhtde->bhte", k, sn_cumsum(y, 2));')


# ---- routes ----

def router(d, n, k):
    """Gates and indices [B, T, k] of n, for x [B, T, 16]."""
    r = d.r
    d.add('sn_tensor p = %s(sn_linear(x, sn_param(m, "router", SN_F32, %d, 16), NULL)%s), index;'
          % r.choice([('sn_softmax', n, ', -1'), ('sn_sigmoid', n, ''), ('', n, '')]))
    if d.maybe(0.7):
        d.add('sn_tensor gate = sn_top_k(p, %d, &index);' % k)
    else:
        d.add('index = sn_slice(sn_argsort(p, -1, true), 2, 0, %d);' % k)
        d.add('sn_tensor gate = sn_sum(sn_mul(sn_one_hot(index, %d, SN_F32), sn_expand(p, 2)), -1);' % n)
    d.add(r.choice(['gate = sn_div(gate, sn_add(sn_sum_keep(sn_abs(gate), -1), 0.1));', 'gate = sn_softmax(gate, -1);', '']))


def experts(d):
    r = d.r
    n, k, hidden, out = r.choice([2, 3, 4, 8]), r.choice([1, 2]), r.choice([8, 32, 40, 64]), r.choice([16, 32])
    act = r.choice(['sn_gelu', 'sn_silu', 'sn_relu'])
    router(d, n, k)
    d.add('sn_tensor up = sn_param(m, "up", SN_F32, %d, %d, 16), down = sn_param(m, "down", SN_F32, %d, %d, %d);'
          % (n, hidden, n, out, hidden))
    way = r.choice(['expert', 'expert', 'gated', 'grouped', 'gather', 'blocks', 'dispatch'])
    if way in ('expert', 'gated'):
        d.add('sn_tensor h = %s(sn_expert_linear(x, up, index));' % act)
        if way == 'gated':
            d.add('h = sn_mul(h, sn_expert_linear(x, sn_param(m, "gate", SN_F32, %d, %d, 16), index));' % (n, hidden))
        d.add('sn_tensor z = sn_expert_linear(h, down, index);')
    elif way == 'grouped':
        d.add('sn_tensor xs = sn_broadcast(sn_expand(x, 2), B, T, %d, 16);' % k)
        d.add('sn_tensor z = sn_grouped_matmul(%s(sn_grouped_matmul(xs, up, index)), down, index);' % act)
    elif way == 'gather':
        d.add('sn_tensor h = %s(sn_einsum("btkoi,bti->btko", sn_gather(up, 0, index), x));' % act)
        d.add('sn_tensor z = sn_einsum("btkoi,btki->btko", sn_gather(down, 0, index), h);')
    elif way == 'blocks':
        d.add('sn_tensor all = sn_linear(x, sn_reshape(up, %d, 16), NULL);' % (n * hidden))
        d.add('sn_tensor h = %s;' % r.choice(['%s(sn_take_blocks(all, index, %d))' % (act, n), 'sn_take_blocks(%s(all), index, %d)' % (act, n)]))
        d.add('sn_tensor z = sn_expert_linear(h, down, index);')
    else:
        d.add('sn_tensor h = %s(sn_einsum("eoi,bti->bteo", up, x)), all = sn_einsum("eoi,btei->bteo", down, h);' % act)
        d.add('sn_tensor z = sn_einsum("btke,bteo->btko", sn_one_hot(index, %d, SN_F32), all);' % n)
    d.add('sn_tensor y = %s;' % r.choice(['sn_sum(sn_mul(z, sn_expand(gate, 3)), 2)', 'sn_einsum("btko,btk->bto", z, gate)']))


def chosen_tokens(d):
    """Tokens are chosen, computed and put back: expert choice, mixture of depths."""
    r = d.r
    k = r.randrange(1, 5)
    d.add('x = sn_pad(x, 1, 0, 4, 0.1);')  # at least 4 rows
    d.add('sn_dim n = sn_dim_of(x, 1);')
    d.add('sn_tensor score = sn_squeeze(sn_linear(x, sn_param(m, "router", SN_F32, 1, 16), NULL), 2), index;')
    d.add('sn_tensor top = sn_top_k(%s(score), %d, &index);' % (r.choice(['sn_sigmoid', 'sn_tanh', '']), k))
    if d.maybe(0.3):
        d.add('index = sn_sort(index, -1, false);')
    d.add('sn_tensor row = sn_broadcast(sn_expand(sn_arange(m, SN_I32, B), 1), B, %d);' % k)
    d.add('sn_tensor flat = sn_add(sn_mul(row, n), index);')
    d.add('sn_dim all = sn_dim_mul(m, B, n);')
    d.add('sn_tensor part = sn_gather(sn_reshape(x, all, 16), 0, flat);')
    d.add('part = sn_linear(sn_gelu(sn_linear(part, sn_param(m, "up", SN_F32, 32, 16), NULL)), sn_param(m, "down", SN_F32, 16, 32), NULL);')
    d.add('part = sn_mul(part, sn_expand(top, 2));')
    d.add('sn_tensor y = sn_scatter_add(sn_reshape(part, sn_dim_mul(m, B, %d), 16), 0, sn_reshape(flat, sn_dim_mul(m, B, %d)), all);' % (k, k))
    d.add('y = sn_add(x, sn_reshape(y, B, n, 16));')


def orders(d):
    r = d.r
    d.add(r.choice(['sn_tensor s = x;', 'sn_tensor s = sn_linear(x, sn_param(m, "w", SN_F32, 24, 16), NULL);']))
    d.add(r.choice(['sn_tensor y = sn_sort(s, -1, %s);', 'sn_tensor y = sn_sort(s, 1, %s);',
                    'sn_tensor y = sn_mul(s, sn_cast(sn_argsort(s, -1, %s), SN_F32));']) % r.choice(['true', 'false']))
    if d.maybe(0.5):
        d.add('sn_tensor index, best = sn_top_k(y, %d, &index);' % r.randrange(1, 9))
        d.add('y = %s;' % r.choice(['sn_mul(best, sn_add(sn_cast(index, SN_F32), 1.0))',
                                    'sn_add(s, sn_sum_keep(best, -1))', 'sn_softmax(best, -1)']))


def adapters(d):
    r = d.r
    n, rank = r.choice([2, 4]), r.choice([2, 4, 8])
    d.add('sn_tensor group = sn_argmax(sn_linear(%s, sn_param(m, "pick", SN_F32, %d, 16), NULL), -1);'
          % (r.choice(['x', 'sn_mean(x, 1)']), n))
    d.add('if (sn_rank_of(group) == 1) group = sn_broadcast(sn_expand(group, 1), B, T);')
    d.add('sn_tensor a = sn_param(m, "a", SN_F32, %d, %d, 16), b = sn_param(m, "b", SN_F32, %d, 24, %d);' % (n, rank, n, rank))
    d.add('sn_tensor y = sn_linear(x, sn_param(m, "w", SN_F32, 24, 16), NULL);')
    d.add('y = sn_add(y, sn_mul(sn_grouped_matmul(sn_grouped_matmul(x, a, group), b, group), %s));' % d.number(0.5, 2))


def routes(d):
    d.add('sn_tensor x = sn_input(m, "x@", SN_F32, B, T, 16);')
    d.r.choice([experts, experts, experts, chosen_tokens, orders, adapters])(d)


# ---- rows: norms, gates, rotary positions, products ----

def rows(d):
    r = d.r
    d.qkv()
    d.add('sn_tensor pos = sn_arange(m, SN_I32, T), y = q;')
    for _ in range(r.randrange(1, 4)):
        d.add(r.choice([
            'y = sn_rope(y, pos, .halves = %s);' % r.choice(['true', 'false']),
            'y = sn_concat(3, sn_rope(sn_slice(y, 3, 0, D / 2), pos), sn_slice(y, 3, D / 2, D - D / 2));',
            'y = sn_rms_norm(y, sn_param(m, "gain", SN_F32, D), 1e-5);', 'y = sn_layer_norm(y, NULL, NULL, 1e-5);',
            'y = sn_mul(y, sn_sigmoid(k));', 'y = sn_add(y, sn_linear(y, sn_param(m, "square", SN_F32, D, D), NULL));',
            'y = sn_mul(y, sn_expand(sn_sigmoid(sn_sum(k, -1)), -1));', 'y = sn_sub(y, sn_mean_keep(y, 2));',
            'y = sn_where(sn_gt(y, k), y, sn_mul(k, 0.5));', 'y = sn_div(y, sn_add(sn_amax_keep(sn_abs(y), -1), 0.5));']))
    if d.maybe(0.6):
        d.add('y = sn_attention(y, sn_rope(k, pos), v, .causal = true);')
    else:
        d.add('y = sn_linear(sn_merge_heads(y), sn_param(m, "out", SN_F32, %d, H * D), NULL);' % r.choice([1, 3, 16, 40]))


FAMILIES = [(attention, 7), (plain, 5), (recurrence, 4), (routes, 5), (sums, 2), (rows, 2)]


def function(d, seed):
    """The callbacks and the function build_SEED(m, B, T) of a variant."""
    sizes = '    enum { H = %d, HK = %d, D = %d, DV = %d };' % (d.heads, d.kv, d.width, d.values)
    lines = [sizes] + ['    ' + line for line in d.lines if line] + ['    return y;']
    text = '\n'.join(d.code + ['static sn_tensor build_@(sn_module *m, sn_dim B, sn_dim T) {'] + lines + ['}', ''])
    return text.replace('@', str(seed))


def draw(r, seed):
    d = Draw(r)
    d.family = r.choices([f for f, _ in FAMILIES], [w for _, w in FAMILIES])[0]
    d.family(d)
    return function(d, seed)


# ---- models that decode: a part of small.h's decoder is random ----

def decoder(r):
    """A language model with forward, prefill and decode."""
    d = Draw(r)
    options = ['.causal = true']
    if d.maybe(0.6):
        options.append('.score = ' + d.callback('score', term(d, 2).replace('sn_at(c->captured[0], c->h)', 'c->score')))
    if d.maybe(0.5):
        options.append('.mask = ' + d.callback('mask', 'sn_or(sn_eq(sn_query_key_distance(c), 0), %s)' % r.choice(
            ['sn_lt(sn_query_key_distance(c), %d)' % r.randrange(1, 20), 'sn_lt(c->k, %d)' % r.randrange(1, 5),
             'sn_eq(sn_mod(sn_query_key_distance(c), 3), 0)', 'sn_eq(sn_mod(c->k, %d), 0)' % r.randrange(1, 5)])))
    if d.maybe(0.3):
        options.append('.weight = ' + d.callback('weight', 'sn_sigmoid(c->score)'))
    elif d.maybe(0.3):
        options.append('.sink = sn_param(s->m, "sink", SN_F32, HEADS)')
    lines = ['qkv p = project(x);']
    if d.maybe(0.4):
        lines.append('p.q = sn_rope(p.q, s->pos), p.k = sn_rope(p.k, s->pos);')
    lines.append('p = remember(s, p);')
    lines.append('return join(sn_attention(p.q, p.k, p.v, %s));' % ', '.join(options))
    feed = ''
    if d.maybe(0.5):
        feed = '''static sn_tensor feed_@(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor index, gate = sn_top_k(sn_softmax(sn_nn_linear(x, "router", 4, 0), -1), %d, &index);
    sn_tensor up = sn_param(s->m, "up", SN_F32, 4, %d, WIDTH), down = sn_param(s->m, "down", SN_F32, 4, WIDTH, %d);
    sn_tensor h = sn_expert_linear(sn_gelu(sn_expert_linear(x, up, index)), down, index);
    return sn_sum(sn_mul(h, sn_expand(gate, 3)), 2);
}
''' % (r.choice([1, 2]), *[r.choice([24, 32])] * 2)
    text = '\n'.join(['#define WIDTH 16', '#define VOCAB 32', '#define HEADS 2', '#define LAYERS 1', '#define CONTEXT 128',
                      '#include "small.h"', *d.code, 'static sn_tensor attend_@(const sn_forward_ctx *s, sn_tensor x) {',
                      *['    ' + line for line in lines], '}', feed + 'SN_MODEL(m, o) {',
                      '    small_model(m, o, &(small){.attend = attend_@%s, .positions = %s});'
                      % (', .feed = feed_@' if feed else '', r.choice(['true', 'false'])), '}', ''])
    return text.replace('_@', '')
