/* generate.cpp: continues a text with a published language model: a folder or a GGUF file.
 *
 *   g++ -std=c++17 generate.cpp $(pkg-config --cflags --libs sinter) -o generate
 *   ./generate MODEL "Once upon a time" */
#include <sinter/lm.hpp>

#include <cstdio>

int main(int argc, char **argv) try {
    sinter::language_model model(argc > 1 ? argv[1] : "model");
    sn_lm_request how = {};
    how.tokens = 50, how.greedy = true;
    model.generate(argc > 2 ? argv[2] : "", how, [](const char *piece) { std::fputs(piece, stdout); });
    std::puts("");
} catch (const sinter::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
