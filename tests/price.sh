#!/bin/sh
# price.sh SOURCE_DIR CC [FLAG...]: what a new op costs. Adds an elementwise op and a composite to a copy of the tree,
# as CONTRIBUTING.md says, and counts: 4 lines for the one, 3 places for the other (beside its tests). What was added has
# to be enough: everything that expands the op table compiles, and no symbol of the two ops is missing.
# price.sh SOURCE_DIR CC build: builds test_ops in the copy and runs the rows of the two ops in every mode.
[ $# -ge 2 ] || { echo "usage: tests/price.sh SOURCE_DIR CC [FLAG... | build]; ctest -R '^price$' runs it" >&2; exit 2; }
source=$1 cc=$2
shift 2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/before" "$tmp/tree"
cd "$source" || exit 1
folders="ir frontend passes codegen runtime"
[ "$1" = build ] && folders="$folders model bench tools examples cmake docs tests CMakeLists.txt CMakePresets.json LICENSE README.md CONTRIBUTING.md"
# shellcheck disable=SC2086
cp -r --parents $folders tests/support "$tmp/tree" || exit 1
cd "$tmp/tree" || exit 1

after() { # after FILE PATTERN: inserts standard input after the line that matches
    cat >"$tmp/new"
    sed -i "/$2/r $tmp/new" "$1"
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
[ "$lines" = 4 ] && [ "$places" = 3 ] || { echo "FAILED: the price is 4 lines and 3 places"; exit 1; }

if [ "$1" = build ]; then
    {
        cmake -S . -B "$tmp/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="$cc" &&
            cmake --build "$tmp/build" --target test_ops
    } >"$tmp/log" 2>&1 || { tail -30 "$tmp/log"; exit 1; }
    for mode in evaluator jit targets; do
        "$tmp/build/tests/test_ops" $mode softsign_test && "$tmp/build/tests/test_ops" $mode centre_test || exit 1
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
printf '%s\n' ir/*.c frontend/*.c codegen/emit/elem.c tests/support/op_case.c tests/support/ref_ops.c use.c |
    CC=$cc FLAGS="-std=gnu11 -D_GNU_SOURCE -Werror=implicit-function-declaration -I. -Iinclude $*" xargs -P2 -n1 \
        sh -c '$CC $FLAGS -c "$1" -o "objects/$(echo "$1" | tr / _).o"' compile >"$tmp/log" 2>&1 || { head -30 "$tmp/log"; exit 1; }
nm objects/*.o | awk '/softsign_test|centre_test/ { if ($1 == "U") used[$2]; else made[$3] }
    END { for (name in used) if (!(name in made)) { print "FAILED: nobody defines " name; bad = 1 } exit bad }'
