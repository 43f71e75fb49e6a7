// next.cc: the same model from C++, with RAII wrappers: the logits of the token
// that follows some ids.
//   c++ -std=c++17 next.cc -Iout out/story.o -lgomp -lm -o next && ./next out/story.weights 1 403 407
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "story.h"

namespace {

void check(int code) {
    if (code) throw std::runtime_error(story_message(code));
}

struct Free {
    void operator()(void *p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

Memory allocate(int64_t bytes) {
    const auto rounded = static_cast<size_t>((bytes + STORY_ALIGN - 1) / STORY_ALIGN * STORY_ALIGN);
    return Memory(std::aligned_alloc(STORY_ALIGN, rounded));
}

struct Model {
    story m{};
    explicit Model(const char *path) { check(story_open(&m, path)); }
    ~Model() { story_close(&m); }
};

}  // namespace

int main(int argc, char **argv) try {
    if (argc < 3) throw std::runtime_error("usage: next WEIGHTS TOKEN...");
    Model model(argv[1]);
    std::vector<int32_t> tokens;
    for (int i = 2; i < argc; i++) tokens.push_back(std::atoi(argv[i]));
    const auto n = static_cast<int64_t>(tokens.size());
    const int64_t bytes = story_prefill_workspace(&model.m, n, 0);
    if (bytes < 0) check(static_cast<int>(-bytes));
    const Memory state = allocate(STORY_STATE_BYTES), workspace = allocate(bytes);
    check(story_state_init(&model.m, state.get()));
    std::vector<float> logits(STORY_PREFILL_LOGITS);
    check(story_prefill(&model.m, state.get(), workspace.get(), n, 0, tokens.data(), logits.data()));
    std::printf("%td\n", std::max_element(logits.begin(), logits.end()) - logits.begin());
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
