#!/bin/sh
# price.sh SOURCE_DIR CC [FLAG...]: what a new op costs, and a new kernel family. Adds an elementwise op, a composite and
# a family (a direct 2-D convolution without prologue and epilogue) to a copy of the tree, as CONTRIBUTING.md says, and
# counts beside their tests: 4 lines for the first, 3 places for the second, and for the family at most the lines and
# files that are given here, which only fall. What was added has to be enough: everything that expands the tables
# compiles, and no symbol is missing.
# price.sh SOURCE_DIR CC build: builds test_ops in the copy and runs the rows of the ops in every mode.
family_lines=125 family_files=8
[ $# -ge 2 ] || { echo "usage: tests/price.sh SOURCE_DIR CC [FLAG... | build]; ctest -L long -R '^price$' runs it" >&2; exit 2; }
source=$1 cc=$2
shift 2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/before" "$tmp/tree"
cd "$source" || exit 1
folders="ir frontend passes codegen runtime"
[ "$1" = build ] && folders="$folders driver model bench tools examples cmake docs tests CMakeLists.txt CMakePresets.json LICENSE README.md CONTRIBUTING.md"
# shellcheck disable=SC2086
cp -r --parents $folders tests/support "$tmp/tree" || exit 1
cd "$tmp/tree" || exit 1

after() { # after FILE PATTERN: inserts standard input after the line that matches
    cat >"$tmp/new"
    sed -i "/$2/r $tmp/new" "$1"
}

before() { # before FILE PATTERN: ... before the line
    cat >"$tmp/new"
    sed -i "/$2/e cat $tmp/new" "$1"
}

elementwise() {
    after ir/ops.def '^ELEM(erf,' <<'END'
ELEM(softsign_test, 1, flt, PROPAGATES_NAN | FINITE, "x / (1 + |x|)", x / (1 + fabs(x)))
END
    after ir/grad_elem.c '^RULE1(erf,' <<'END'
RULE1(softsign_test, OP2(div, OP2(mul, G, OP2(sub, sn_gr_fill(R, 1), OP1(abs, R))), OPC(add, OP1(abs, X), 1)))
END
    after codegen/emit/elem.c '^SAME(erf,' <<'END'
SAME(softsign_test, em_div(e, x[0], em_add(e, em_abs(e, x[0]), em_like(e, x[0], 1))))
END
    after tests/support/ops.def '^UNARY(erf,' <<'END'
UNARY(softsign_test, APART, 1e-6)
END
    after ir/field.def '^ODD(erf)' <<'END'
ODD(softsign_test)
END
}

composite() {
    after ir/ops.def '^COMP(softmax,' <<'END'
COMP(centre_test, 1, 1, 0, (sn_tensor x, int axis), "x - mean of x on {axis}")
END
    cat >>ir/decomp_nn.c <<'END'
bool decomp_centre_test(decomp *c) {
    int axis;
    if (!sn_dc_float(c, 0) || !sn_dc_axis(c, &axis)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    return sn_dc_done(c, sn_b_binary(SN_OP_sub, x, sn_b_mean(x, 1, (int64_t[]){axis})));
}
END
    cat >>frontend/nn.c <<'END'
sn_tensor sn_centre_test_at(sn_loc at, sn_tensor x, int axis) {
    FRONT_ENTER("centre_test", x);
    int a = front_axis(x->m, "centre_test", x, axis, x->rank);
    return a < 0 ? bad_ : SN_NODE(x->m, centre_test, SN_ATTRS(SN_INT(axis, a)), x);
}
END
}

composite_tests() {
    after tests/support/ops.def '^T(log_softmax, (IN(F32, HIDDEN' <<'END'
T(centre_test, (IN(F32, NORMAL, 3, LEN)), (INT(axis, 1)), TOL(1e-5))
T(centre_test, (IN(F32, NORMAL, 5, 17)), NONE, TOL(1e-5))
END
    cat >>tests/support/ref_ops.c <<'END'
void ref_centre_test(const ref_call *c) {
    rows r = rows_of(c->in[0], axis_of(c));
    for (int64_t i = 0; i < r.count; i++) {
        const double *x = c->in[0]->data + row_start(r, i);
        double sum = 0;
        for (int64_t k = 0; k < r.size; k++) sum += x[k * r.inner];
        for (int64_t k = 0; k < r.size; k++)
            c->out[row_start(r, i) + k * r.inner] = x[k * r.inner] - sum / (double)r.size;
    }
}
END
}

family() {
    after ir/ops.def '^COMP(conv2d,' <<'END'
FUSED(direct_conv, 0, "conv2d in one kernel, which reads x where it is; its operands and attributes")
END
    cat >>ir/decomp_conv.c <<'END'

bool decomp_direct_conv(decomp *c) {
    return decomp_conv2d(c);
}
END
    before passes/kernels/kernels.def '^COMPUTES(argsort,' <<'END'
COMPUTES(direct_conv, direct_conv)
KERNEL(direct_conv,
       .title = "convolution",
       .level = SN_LEVEL_GEMM,
       .region = SN_NO_REGION,
       .contiguous = true,
       .macs = sn_macs_direct_conv,
       .flops = sn_flops_elementwise)
END
    before passes/kernels/table.h '^sn_dim sn_flops_argsort' <<'END'
sn_dim sn_macs_direct_conv(sn_module *m, const struct sn_step *s);
END
    cat >>passes/plan/work.c <<'END'

sn_dim sn_macs_direct_conv(sn_module *m, const sn_step *s) {
    sn_dim terms = sn_dim_product(m, 3, s->in[1].shape + 1);
    return sn_dim_mul(m, sn_dim_product(m, 4, s->out[0].shape), terms);
}
END
    before passes/expand.c '^static bool has_kernel(' <<'END'
/* A convolution of f32 whose padding is known. */
static bool is_direct_conv(sn_passes *p, const sn_node *n) {
    if (n->op != SN_OP_conv2d || n->dtype != SN_F32 || sn_backend_wanted(p) ||
        !sn_level_reaches(p->o.level, sn_kernels[SN_KERNEL_direct_conv].level))
        return false;
    const sn_attr *low = sn_attr_get(n, SN_A_low);
    for (int a = 0; low && a < low->n; a++)
        if (!sn_dim_is_const(n->m, low->v[a], NULL)) return false;
    return true;
}

END
    before passes/expand.c '^    sn_node \*kernel = has_kernel(' <<'END'
    if (is_direct_conv(p, n))
        return sn_node_new(n->m, SN_OP_direct_conv, n->n_in, n->in, n->n_attr, n->attr);
END
    sed -i 's|rows/argsort.c|& rows/direct_conv.c|' codegen/CMakeLists.txt
    cat >codegen/rows/direct_conv.c <<'END'
/* direct_conv.c: a convolution that reads x where it is.
 *
 *   for each row (b, o, i) of y, divided among the threads
 *       for each vector j of the row
 *           acc = bias[o]
 *           for each c, p, q: acc += w[o, c, p, q] x[b, c, i step + p dilate - low, j step + q dilate - low]
 *           store acc */
#include "codegen/rows/lines.h"

typedef struct conv {
    const sn_kernel *k;
    const sn_view *x, *w, *y;
    int64_t step[2], low[2], dilate[2], groups;
    em_val b, o, i; /* of the row */
} conv;

static void numbers(const sn_node *n, sn_attr_key key, int64_t otherwise, int64_t *out) {
    const sn_attr *a = sn_attr_get(n, key);
    for (int i = 0; i < 2; i++) out[i] = a ? a->v[i] : otherwise;
}

static em_val extent(em *e, const conv *c, const sn_view *v, int axis) {
    return sn_line_extent(e, c->k, v, axis);
}

static em_val offset(em *e, const conv *c, const sn_view *v, int n, const em_val *index) {
    em_val at = em_i64(e, 0);
    for (int a = 0; a < n; a++)
        at = em_add(e, at, em_mul(e, index[a], sn_kernel_dim(e, c->k, v->stride[a])));
    return at;
}

/* One term of the vector that begins at column j. */
static em_val add_term(em *e, const conv *c, em_val acc, em_val j, em_val term) {
    em_val p = em_div(e, term, extent(e, c, c->w, 3)), q = em_rem(e, term, extent(e, c, c->w, 3));
    em_val in = em_div(e, p, extent(e, c, c->w, 2));
    p = em_rem(e, p, extent(e, c, c->w, 2));
    em_val part = em_div(e, extent(e, c, c->w, 0), c->groups);
    em_val channel = em_add(e, em_mul(e, em_div(e, c->o, part), extent(e, c, c->w, 1)), in);
    em_val row = em_add(e, em_mul(e, c->i, c->step[0]), em_sub(e, em_mul(e, p, c->dilate[0]), c->low[0]));
    em_val first = em_add(e, em_mul(e, j, c->step[1]), em_sub(e, em_mul(e, q, c->dilate[1]), c->low[1]));
    em_val lane = em_iota(e, e->i64, e->lanes), zero = em_like(e, lane, 0);
    em_val col = em_add(e, em_splat(e, first, e->lanes), em_mul(e, lane, em_like(e, lane, (double)c->step[1])));
    em_val inside = em_and(e, em_cmp(e, EM_GE, row, 0), em_cmp(e, EM_LT, row, extent(e, c, c->x, 2)));
    em_val mask = em_and(e, em_splat(e, inside, e->lanes), em_cmp(e, EM_GE, col, zero));
    mask = em_and(e, mask, em_cmp(e, EM_LT, col, em_splat(e, extent(e, c, c->x, 3), e->lanes)));
    mask = em_and(e, mask, em_tail_mask(e, em_sub(e, extent(e, c, c->y, 3), j), e->lanes));
    em_val at = offset(e, c, c->x, 3, (em_val[]){c->b, channel, row});
    em_val x = em_gather(e, c->x->dtype, em_gep(e, em_buf(e, 0), c->x->dtype, at), col, mask);
    at = offset(e, c, c->w, 4, (em_val[]){c->o, in, p, q});
    em_val w = em_load_splat(e, c->w->dtype, em_gep(e, em_buf(e, 1), c->w->dtype, at), e->lanes);
    return em_fma(e, w, x, acc);
}

static void emit_row(em *e, const conv *c) {
    const sn_step *s = c->k->step;
    em_val bias = em_vf(e, 0);
    if (s->node->n_in > 2)
        bias = em_load_splat(e, s->in[2].dtype, em_gep(e, em_buf(e, 2), s->in[2].dtype, c->o), e->lanes);
    em_loop col = em_for(e, 0, extent(e, c, c->y, 3), e->lanes);
    em_loop term = em_for(e, 0, sn_kernel_dim(e, c->k, sn_dim_product(c->k->m, 3, c->w->shape + 1)), 1);
    em_carries(e, &term, &bias, 1);
    bias = add_term(e, c, bias, col.i, term.i);
    em_end(e, &term);
    em_val at = em_add(e, offset(e, c, c->y, 3, (em_val[]){c->b, c->o, c->i}), col.i);
    em_val to = em_gep(e, em_buf(e, s->node->n_in), c->y->dtype, at);
    em_store_tail(e, c->y->dtype, to, bias, em_sub(e, extent(e, c, c->y, 3), col.i));
    em_end(e, &col);
}

static void emit_direct_conv(em *e, const sn_kernel *k) {
    const sn_step *s = k->step;
    conv c = {.k = k, .x = &s->in[0], .w = &s->in[1], .y = &s->out[0]};
    c.groups = sn_attr_int(s->node, SN_A_groups, 1);
    numbers(s->node, SN_A_step, 1, c.step);
    numbers(s->node, SN_A_low, 0, c.low);
    numbers(s->node, SN_A_dilate, 1, c.dilate);
    em_kernel(e, k->name);
    em_val lo, hi;
    em_share(e, sn_line_count(e, k, c.y, 3), &lo, &hi);
    em_loop row = em_for(e, lo, hi, 1);
    em_val rest = em_div(e, row.i, extent(e, &c, c.y, 2));
    c.i = em_rem(e, row.i, extent(e, &c, c.y, 2));
    c.o = em_rem(e, rest, extent(e, &c, c.y, 1));
    c.b = em_div(e, rest, extent(e, &c, c.y, 1));
    emit_row(e, &c);
    em_end(e, &row);
    em_end_kernel(e);
}

const sn_family sn_family_direct_conv = {.emit = emit_direct_conv};
END
}

family_tests() {
    after tests/support/ops.def '^T(conv2d, (IN(F32, NORMAL, 2, 3, 9, 8)' <<'END'
T(direct_conv, (IN(F32, NORMAL, 2, 3, 9, 8), IN(F32, NORMAL, 4, 3, 3, 2), IN(F32, NORMAL, 4)), (LIST(step, 2, 1), LIST(low, 1, 1), LIST(high, 2, 0), LIST(dilate, 2, 1)), TOL(1e-5))
T(direct_conv, (IN(F32, NORMAL, 1, 4, 17, 17), IN(F32, NORMAL, 6, 2, 3, 3)), (LIST(low, 1, 1), LIST(high, 1, 1), INT(groups, 2)), TOL(1e-5))
END
    cat >>tests/support/ref_ops.c <<'END'
void ref_direct_conv(const ref_call *c) {
    ref_conv2d(c);
}
END
}

save() {
    rm -rf "$tmp/before" && cp -r "$tmp/tree" "$tmp/before"
}

save
elementwise
lines=$(diff -r "$tmp/before" . | grep -c '^[<>]')
echo "an elementwise op: $lines lines"
save
composite
places=$(diff -rq "$tmp/before" . | grep -c .)
echo "a composite: $places places"
composite_tests
save
family
diff -rN "$tmp/before" . | grep '^[<>]' >"$tmp/added"
in_lines=$(grep -c . "$tmp/added") in_files=$(diff -rqN "$tmp/before" . | grep -c .)
echo "a kernel family: $in_lines lines in $in_files files"
family_tests
[ "$lines" = 5 ] && [ "$places" = 3 ] || { echo "FAILED: the price is 5 lines and 3 places"; exit 1; }
[ "$in_lines" -le $family_lines ] && [ "$in_files" -le $family_files ] ||
    { echo "FAILED: the price of a family is $family_lines lines in $family_files files"; exit 1; }

if [ "$1" = build ]; then
    {
        cmake -S . -B "$tmp/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="$cc" &&
            cmake --build "$tmp/build" --target test_ops
    } >"$tmp/log" 2>&1 || { tail -30 "$tmp/log"; exit 1; }
    for mode in evaluator jit targets; do
        for op in softsign_test centre_test direct_conv; do "$tmp/build/tests/test_ops" $mode $op || exit 1; done
    done
    exit 0
fi

mkdir -p include/frontend objects
awk -f frontend/ops.awk ir/ops.def >include/frontend/ops.h
cat >use.c <<'END'
#include "frontend/sinter.h"
sn_tensor use(sn_tensor x);
sn_tensor use(sn_tensor x) { return sn_centre_test(sn_softsign_test(x), -1); }
END
# shellcheck disable=SC2016
printf '%s\n' ir/*.c frontend/*.c passes/kernels/*.c passes/expand.c passes/plan/work.c codegen/rows/direct_conv.c \
    codegen/emit/elem.c tests/support/op_case.c tests/support/ref_ops.c use.c |
    CC=$cc FLAGS="-std=gnu11 -D_GNU_SOURCE -Werror=implicit-function-declaration -I. -Iinclude $*" xargs -P2 -n1 \
        sh -c '$CC $FLAGS -c "$1" -o "objects/$(echo "$1" | tr / _).o"' compile >"$tmp/log" 2>&1 || { head -30 "$tmp/log"; exit 1; }
nm objects/*.o | awk '/softsign_test|centre_test|direct_conv/ { if ($1 == "U") used[$2]; else made[$3] }
    END { for (name in used) if (!(name in made)) { print "FAILED: nobody defines " name; bad = 1 } exit bad }'
