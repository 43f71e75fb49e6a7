/* train.cpp: defines a small regression, trains it with Adam, prints the loss and predicts, in one program.
 *
 *   g++ -std=c++17 train.cpp $(pkg-config --cflags --libs sinter) -o train */
#include <sinter/sinter.hpp>

#include <cmath>
#include <cstdio>

int main() try {
    enum { HIDDEN = 32, BATCH = 64, STEPS = 300 };
    sinter::module m("sine");
    sinter::dim B = m.symbol("B", 1, 1024);
    auto model = [&] { /* sin, from x in [-2, 2] */
        sinter::tensor h = sinter::nn_linear(m.input("x", SN_F32, {B, 1}), "in", HIDDEN, SN_BIAS);
        return sinter::nn_linear(sinter::tanh(h), "out", 1, SN_BIAS);
    };
    m.entry("predict");
    sinter::output("y", model());
    m.entry("train");
    sinter::tensor loss = sinter::mean(sinter::square(model() - m.input("target", SN_F32, {B, 1})));
    sinter::output("loss", loss);
    sinter::optimize(loss, m.full(SN_F32, 0.01, {}), sinter::parameters_of(loss), sn_optimizer_of(SN_ADAM));

    sinter::program program(m); /* throws the first error of the graph */
    std::vector<float> w(HIDDEN), b(HIDDEN), v(HIDDEN), c(1), x(BATCH), target(BATCH), y(1), value(1);
    for (int i = 0; i < HIDDEN; i++) w[size_t(i)] = std::sin(float(3 * i)), v[size_t(i)] = std::cos(float(5 * i)) / 8;
    sinter::session s(program, {sinter::array("in.weight", w, {HIDDEN, 1}), sinter::array("in.bias", b, {HIDDEN}),
                                sinter::array("out.weight", v, {1, HIDDEN}), sinter::array("out.bias", c, {1})});
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCH; i++) {
            x[size_t(i)] = std::fmod(float(step * BATCH + i) * 0.618034f, 4.0f) - 2;
            target[size_t(i)] = std::sin(x[size_t(i)]);
        }
        s.run("train", {sinter::array("x", x, {BATCH, 1}), sinter::array("target", target, {BATCH, 1})},
              {sinter::array("loss", value, {})});
        if (step % 100 == 0 || step + 1 == STEPS) std::printf("step %d: loss %.5f\n", step, double(value[0]));
    }
    const std::vector<float> one = {1};
    s.run("predict", {sinter::array("x", one, {1, 1})}, {sinter::array("y", y, {1, 1})});
    std::printf("sin 1 = %.3f\n", double(y[0]));
    s.read("out.bias", c); /* parameters that an entry assigns are read and written by name */
    return std::fabs(y[0] - std::sin(1.0f)) < 0.05f ? 0 : 1;
} catch (const sinter::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
