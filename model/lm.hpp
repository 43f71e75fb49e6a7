/* lm.hpp: lm.h for C++17, beside sinter.hpp. */
#ifndef SN_LM_HPP
#define SN_LM_HPP

#include "frontend/sinter.hpp"
#include "model/lm.h"

namespace sinter {

/* A model folder, a GGUF file, or what sn_lm_open opens otherwise. */
class language_model {
  public:
    explicit language_model(const std::string &path, const sn_lm_options &o = {}) {
        sn_error e = {};
        m_.reset(sn_lm_open(path.c_str(), &o, &e));
        check(e);
    }
    /* Continues the prompt; what says how (its prompt is ignored). piece: called with each piece of text. */
    std::string generate(const std::string &prompt, sn_lm_request what = {},
                         const std::function<void(const char *)> &piece = nullptr) {
        sn_error e = {};
        what.prompt = prompt.c_str();
        std::unique_ptr<sn_lm_sequence, end> s(sn_lm_begin(m_.get(), &what, &e));
        std::string text;
        for (const char *t; (t = sn_lm_next(s.get(), &e));) {
            text += t;
            if (piece) piece(t);
        }
        check(e);
        return text;
    }
    sn_lm *get() const { return m_.get(); }

  private:
    struct end {
        void operator()(sn_lm_sequence *s) const { sn_lm_end(s); }
    };
    struct close {
        void operator()(sn_lm *m) const { sn_lm_close(m); }
    };
    std::unique_ptr<sn_lm, close> m_;
};

} // namespace sinter
#endif
