#!/bin/sh
# test_cpp.sh SINTER SOURCE_DIR CXX BUILD_DIR: sinter.hpp: the examples in C++ build without a warning and run; a score
# lambda becomes part of the kernel; errors name the line of the user's file; wrong uses throw.
sinter=$1 source=$2 cxx=$3 build=$4
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}"
cd "$tmp" || exit 1
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
compile() { # compile FILE OUTPUT FLAG…
    file=$1 output=$2
    shift 2
    "$cxx" -std=c++17 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror -I"$build/api" "$file" -o "$output" "$@" || fail "$file"
}
linked="-L$build -lsinter -Wl,-rpath,$build"
examples=$source/examples/cpp
compile "$examples/variant.cpp" variant.so -shared -fPIC &
# shellcheck disable=SC2086
compile "$examples/train.cpp" learn $linked
# shellcheck disable=SC2086
compile "$examples/generate.cpp" generate $linked
wait
[ -e variant.so ] || fail "variant.cpp"
told=$(./learn) || fail "train.cpp: $told"
./generate "$source/examples/models/stories260K/stories260K.bin" "Once upon a time" | grep -q '^, there was a little girl' || fail "generate.cpp"
if told=$(./generate no/such/model 2>&1); then fail "a missing model is no error"; fi
case $told in *no/such/model*) ;; *) fail "the error of a missing model: $told" ;; esac
"$sinter" explain variant.so --entry forward >told || fail "explain variant.so"
grep -q 'flash .*score: exp2, tanh, .*variant.cpp:' told || fail "the score is not in the kernel: $(grep flash told)"
"$sinter" run variant.so generate --prompt-ids "72 101 108" -n 3 --temperature 0 >told 2>log || fail "run variant.so: $(cat log)"

cat >wrong.cpp <<'END'
#include <sinter/sinter.hpp>
#include <cstdio>
#include <cstring>
template <class F> static bool throws(const char *text, F f) {
    try { f(); } catch (const std::exception &e) {
        if (std::strstr(e.what(), text)) return true;
        std::printf("\"%s\" is not in: %s\n", text, e.what());
        return false;
    }
    std::printf("no exception: %s\n", text);
    return false;
}
int main() {
    bool ok = throws("wrong.cpp:19: add", [] { /* the line of the operator */
        sinter::module m("wrong");
        m.entry("forward");
        sinter::tensor x = m.input("x", SN_F32, {4, 8}), y = m.input("y", SN_F32, {3, 8});
        sinter::output("z", sinter::tanh(
            x + y));
        sinter::program p(m);
    });
    ok &= throws("wrong.cpp:25: softmax", [] {
        sinter::module m("wrong");
        m.entry("forward");
        sinter::output("z", sinter::softmax(m.input("x", SN_F32, {4}), 7));
        sinter::program p(m);
    });
    ok &= throws("of the user", [] {
        sinter::module m("thrown");
        m.entry("forward");
        sinter::tensor x = m.input("x", SN_F32, {1, 2, 4, 8});
        sinter::attention_options o;
        o.score = [](const sinter::score_context &) -> sinter::tensor { throw std::runtime_error("of the user"); };
        sinter::attention(x, x, x, o);
    });
    ok &= throws("3 elements, the shape 4", [] { std::vector<float> v(3); sinter::array("v", v, {2, 2}); });
    /* masks, comparisons, sizes as numbers */
    sinter::module m("right");
    sinter::dim T = m.describe(m.symbol("T", 1, 64), "rows");
    m.entry("forward");
    sinter::tensor x = sinter::describe(m.input("x", SN_F32, {1, 1, T, 8}), "heights");
    sinter::attention_options o;
    int every = 2;
    o.mask = [=](const sinter::score_context &c) { return c.k <= c.q & c.k % every == 0; };
    sinter::output("y", sinter::where(x > 0, sinter::attention(x, x, x, o), -1) / (T + 1));
    sinter::program p(m);
    sinter::session s(p, std::vector<sinter::array>{});
    std::vector<float> in(16, 1), out(16);
    in[3] = -1;
    s.run("forward", {sinter::array("x", in, {1, 1, 2, 8})}, {sinter::array("y", out, {1, 1, 2, 8})});
    ok &= out[0] == 1.0f / 3 && out[3] == -1.0f / 3 && out[8] == 1.0f / 3;
    ok &= throws("'x' (heights) must be", [&] { s.run("forward", {sinter::array("x", in, {16})}, {}); });
    ok &= throws("y", [&] { s.run("forward", {sinter::array("x", in, {1, 1, 2, 8})}, {sinter::array("y", out, {1, 1, 4, 4})}); });
    /* a loop over the elements; a lambda that throws */
    sinter::module loops("loops");
    loops.entry("forward");
    sinter::tensor q = loops.input("q", SN_F32, {4, 2}), h = loops.input("h", SN_F32, {2});
    float half = 0.5f;
    sinter::scanned r = sinter::scan({h}, {q}, 0, [=](sinter::scan_step &t) {
        t.next[0] = half * t.carry[0] + t.x[0];
        t.y.push_back(t.next[0] * 2);
    });
    sinter::output("all", sinter::cummax(r.y.at(0), 0));
    sinter::output("last", r.carry.at(0));
    sinter::output("counted", sinter::scan({h}, {}, 0, [](sinter::scan_step &t) {
        t.next[0] = t.carry[0] + sinter::cast(t.index, SN_F32);
    }, false, sinter::size(q, 0)).carry.at(0));
    sinter::program scans(loops);
    sinter::session run(scans, std::vector<sinter::array>{});
    std::vector<float> x4 = {1, 8, 2, 0, 3, 0, 0, 0}, h2 = {4, 0}, all(8), last(2), counted(2);
    run.run("forward", {sinter::array("q", x4, {4, 2}), sinter::array("h", h2, {2})},
            {sinter::array("all", all, {4, 2}), sinter::array("last", last, {2}), sinter::array("counted", counted, {2})});
    ok &= all[0] == 6 && all[4] == 9.5f && all[6] == 9.5f && all[7] == 16 && last[0] == 2.375f && last[1] == 1 && counted[0] == 10;
    ok &= throws("of the body", [&] {
        sinter::module wrong("thrown");
        wrong.entry("forward");
        sinter::tensor y = wrong.input("x", SN_F32, {4});
        sinter::scan({}, {y}, 0, [](sinter::scan_step &) { throw std::runtime_error("of the body"); });
    });
    /* weights that are no softmax, the log-sum-exp, numbers of 16 bits; an artefact */
    sinter::module more("more");
    more.entry("forward");
    sinter::tensor v = sinter::cast(more.input("v", SN_BF16, {1, 1, 2, 4}), SN_F32), lse;
    sinter::attention_options linear, soft;
    linear.weight = [](const sinter::score_context &c) { return c.score * 0 + 1; };
    linear.divide = SN_DIVIDE_BY_SUM;
    soft.lse = &lse;
    soft.sink = sinter::tensor();
    sinter::output("mean", sinter::attention(v, v, v, linear));
    sinter::output("soft", sinter::attention(v, v, v, soft));
    sinter::output("lse", lse);
    sinter::options compiled;
    compiled.backend = "native";
    sinter::program several(more, compiled);
    sinter::session mean(several, std::vector<sinter::array>{});
    std::vector<uint16_t> bits = {0x3f80, 0, 0, 0, 0x4040, 0, 0, 0}; /* 1, 3 */
    std::vector<float> y(8), soft_y(8), sums(2);
    mean.run("forward", {sinter::array("v", SN_BF16, bits.data(), {1, 1, 2, 4})},
             {sinter::array("mean", y, {1, 1, 2, 4}), sinter::array("soft", soft_y, {1, 1, 2, 4}),
              sinter::array("lse", sums, {1, 1, 2, 1})});
    ok &= y[0] == 2 && y[4] == 2 && soft_y[0] > 2 && sums[0] > 1.5f && sums[0] < 2.5f;
    ok &= throws("SN_BF16 or SN_F16", [&] { sinter::array("v", SN_F32, bits.data(), {8}); });
    sn_emit_options artefact = sn_emit_options_default();
    artefact.name = "more";
    artefact.threads = "none";
    mean.emit(artefact);
    artefact.name = "1st";
    ok &= throws("C identifier", [&] { mean.emit(artefact); });
    return ok ? 0 : 1;
}
/* a macro of the C interface that passes the caller's line */
sn_tensor appended(const sn_forward_ctx *s, sn_tensor x) { return sn_append_kv(s, x, "keys"); }
END
# shellcheck disable=SC2086
compile wrong.cpp wrong -Wno-parentheses $linked
./wrong || fail "wrong.cpp"
grep -q '^int more_forward(' more.h || fail "no artefact"
exit $failed
