/* sinter.hpp: sinter.h and models.h for C++17: operators on tensors, lambdas as score and mask functions,
 * objects that free what they own, exceptions. It needs nothing but the C library, and both may be mixed: get() is
 * the C object, and a tensor, dim or builder can be made from one.
 *
 * Errors: functions that build a graph do not throw. As in C the first mistake is recorded in the module with your file
 * and line, and `program` throws it. Everything that opens, compiles, runs, reads or writes throws sinter::error.
 * An exception of a score or mask lambda passes through `attention`.
 *
 * Ownership, threads, layout and shapes are those of sinter.h. Objects that own something can be moved, not copied.
 *
 *   sinter::module m("example");
 *   sinter::dim T = m.symbol("T", 1, 512);
 *   m.entry("forward");
 *   sinter::tensor x = m.input("x", SN_F32, {T, 64});
 *   sinter::output("y", sinter::tanh(2 * x + 1) / T);
 *   sinter::program p(m);
 *   sinter::session s(p, {});
 *   s.run("forward", {sinter::array("x", values, {8, 64})}, {sinter::array("y", result, {8, 64})}); */
#ifndef SN_SINTER_HPP
#define SN_SINTER_HPP

#include "frontend/models.h"

#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/* The default of a last parameter `at`: the file and line of the call. */
#define SN_CALLER sinter::place(__builtin_FILE(), __builtin_LINE())

namespace sinter {

constexpr sn_loc place(const char *file, int line) {
    return sn_loc{file, line};
}

/* What a failed function says: what is wrong, where, what to do. */
class error : public std::runtime_error {
  public:
    explicit error(const sn_error &e) : std::runtime_error(e.message), code_(e.code) {}
    sn_code code() const { return code_; }

  private:
    sn_code code_;
};

inline void check(const sn_error &e) {
    if (e.code != SN_OK) throw error(e);
}

/* A node of a graph, which belongs to its module; a handle that is cheap to copy. */
class tensor {
  public:
    tensor() = default;
    tensor(sn_tensor t) : t_(t) {}
    sn_tensor get() const { return t_; }
    explicit operator bool() const { return t_ != nullptr; }
    sn_module *module() const { return sn_module_of(t_); }
    int rank() const { return sn_rank_of(t_); }
    sn_dtype dtype() const { return sn_dtype_of(t_); }

  private:
    sn_tensor t_ = nullptr;
};

/* A size: a number, or one that is known at run time. Sums, differences and products of sizes are sizes. */
class dim {
  public:
    template <class T, class = std::enable_if_t<std::is_integral_v<T> || std::is_enum_v<T>>>
    dim(T n) : d_(static_cast<sn_dim>(n)) {}
    dim(sn_module *m, sn_dim d) : m_(m), d_(d) {}
    sn_dim get() const { return d_; }
    friend dim operator+(dim a, dim b) { return join(a, b, sn_dim_add, a.d_ + b.d_); }
    friend dim operator-(dim a, dim b) { return join(a, b, sn_dim_sub, a.d_ - b.d_); }
    friend dim operator*(dim a, dim b) { return join(a, b, sn_dim_mul, a.d_ * b.d_); }

  private:
    static dim join(dim a, dim b, sn_dim (*f)(sn_module *, sn_dim, sn_dim), sn_dim numbers) {
        sn_module *m = a.m_ ? a.m_ : b.m_;
        return m ? dim(m, f(m, a.d_, b.d_)) : dim(nullptr, numbers);
    }
    sn_module *m_ = nullptr; /* nullptr: a number */
    sn_dim d_;
};

inline dim size(tensor x, int axis, sn_loc at = SN_CALLER) {
    return dim(x.module(), sn_dim_of_at(at, x.get(), axis));
}

/* An operand of arithmetic: a tensor, a number, or a size; with the place where it is written. */
class operand {
  public:
    operand(tensor t, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : at_{file, line} {
        o_.kind = SN_IS_TENSOR, o_.tensor = t.get();
    }
    operand(dim d, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : at_{file, line} {
        o_.kind = SN_IS_DIM, o_.dim = d.get();
    }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>>>
    operand(T x, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : at_{file, line} {
        o_.kind = SN_IS_NUMBER, o_.number = static_cast<double>(x);
    }
    sn_operand get() const { return o_; }
    sn_loc at() const { return at_; }

  private:
    sn_operand o_ = {};
    sn_loc at_;
};

/* ---- operations: the rows of the op table, as sinter::tanh(x) or sinter::softmax(x, -1) ---- */

} // namespace sinter
#include "frontend/ops.hpp"
namespace sinter {

inline tensor operator+(operand x, operand y) {
    return add(x, y);
}
inline tensor operator-(operand x, operand y) {
    return sub(x, y);
}
inline tensor operator*(operand x, operand y) {
    return mul(x, y);
}
inline tensor operator/(operand x, operand y) {
    return div(x, y);
}
inline tensor operator%(operand x, operand y) {
    return mod(x, y);
}
inline tensor operator-(tensor x) {
    return neg(x);
}
/* bool tensors */
inline tensor operator<(operand x, operand y) {
    return lt(x, y);
}
inline tensor operator<=(operand x, operand y) {
    return le(x, y);
}
inline tensor operator>(operand x, operand y) {
    return lt(y, x);
}
inline tensor operator>=(operand x, operand y) {
    return le(y, x);
}
inline tensor operator==(operand x, operand y) {
    return eq(x, y);
}
inline tensor operator!=(operand x, operand y) {
    return ne(x, y);
}
inline tensor operator&(operand x, operand y) {
    return logical_and(x, y);
}
inline tensor operator|(operand x, operand y) {
    return logical_or(x, y);
}
inline tensor operator^(operand x, operand y) {
    return logical_xor(x, y);
}
inline tensor operator!(tensor x) {
    return logical_not(x);
}

inline tensor cast(tensor x, sn_dtype t, sn_loc at = SN_CALLER) {
    return sn_cast_at(at, x.get(), t);
}
inline tensor square(tensor x, sn_loc at = SN_CALLER) {
    return sn_square_at(at, x.get());
}
inline tensor powi(tensor x, int n, sn_loc at = SN_CALLER) {
    return sn_powi_at(at, x.get(), n);
}
inline tensor log_sigmoid(tensor x, sn_loc at = SN_CALLER) {
    return sn_log_sigmoid_at(at, x.get());
}
inline tensor asin(tensor x, sn_loc at = SN_CALLER) {
    return sn_asin_at(at, x.get());
}
inline tensor acos(tensor x, sn_loc at = SN_CALLER) {
    return sn_acos_at(at, x.get());
}
inline tensor flip(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_flip_at(at, x.get(), axis);
}
inline tensor take_along(tensor x, int axis, tensor ids, sn_loc at = SN_CALLER) {
    return sn_take_along_at(at, x.get(), axis, ids.get());
}
inline tensor smooth_cross_entropy(tensor x, tensor target, double smoothing,
                                   sn_loc at = SN_CALLER) {
    return sn_smooth_cross_entropy_at(at, x.get(), target.get(), smoothing);
}
/* condition ? x : y, element by element */
inline tensor where(tensor condition, operand x, operand y) {
    return sn_where_at(x.at(), condition.get(), x.get(), y.get());
}

namespace detail {
inline std::vector<sn_dim> dims(std::initializer_list<dim> list) {
    std::vector<sn_dim> d;
    for (dim n : list) d.push_back(n.get());
    d.push_back(SN_END);
    return d;
}
inline std::vector<int> axes(std::initializer_list<int> list) {
    std::vector<int> a(list);
    a.push_back(INT_MIN);
    return a;
}
template <class List> std::vector<sn_tensor> tensors(const List &list) {
    std::vector<sn_tensor> t;
    for (const tensor &x : list) t.push_back(x.get());
    t.push_back(nullptr);
    return t;
}
} // namespace detail

/* Reductions over the listed axes; without a list over all. keep: the axes remain with size 1. */
#define SN_CXX_REDUCTION(name)                                                                     \
    inline tensor name(tensor x, std::initializer_list<int> axes, bool keep = false,               \
                       sn_loc at = SN_CALLER) {                                                    \
        return sn_##name##_at(at, x.get(), detail::axes(axes).data(), keep);                       \
    }                                                                                              \
    inline tensor name(tensor x, sn_loc at = SN_CALLER) {                                          \
        return sn_##name##_at(at, x.get(), nullptr, false);                                        \
    }
SN_CXX_REDUCTION(sum)
SN_CXX_REDUCTION(mean)
SN_CXX_REDUCTION(variance)
SN_CXX_REDUCTION(amax)
SN_CXX_REDUCTION(amin)
#undef SN_CXX_REDUCTION

inline tensor argmax(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_argmax_at(at, x.get(), axis);
}
inline tensor sort(tensor x, int axis, bool descending = false, sn_loc at = SN_CALLER) {
    return sn_sort_at(at, x.get(), axis, descending);
}
inline tensor argsort(tensor x, int axis, bool descending = false, sn_loc at = SN_CALLER) {
    return sn_argsort_at(at, x.get(), axis, descending);
}
inline tensor reshape(tensor x, std::initializer_list<dim> shape, sn_loc at = SN_CALLER) {
    return sn_reshape_at(at, x.get(), detail::dims(shape).data());
}
inline tensor transpose(tensor x, std::initializer_list<int> axes, sn_loc at = SN_CALLER) {
    return sn_transpose_at(at, x.get(), detail::axes(axes).data());
}
inline tensor broadcast(tensor x, std::initializer_list<dim> shape, sn_loc at = SN_CALLER) {
    return sn_broadcast_at(at, x.get(), detail::dims(shape).data());
}
inline tensor expand(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_expand_at(at, x.get(), axis);
}
inline tensor slice(tensor x, int axis, dim start, dim n, int64_t step = 1, sn_loc at = SN_CALLER) {
    return sn_slice_at(at, x.get(), axis, start.get(), n.get(), step);
}
inline std::vector<tensor> split(tensor x, int axis, int n, sn_loc at = SN_CALLER) {
    std::vector<sn_tensor> part(static_cast<size_t>(n));
    sn_split_at(at, x.get(), axis, n, part.data());
    return std::vector<tensor>(part.begin(), part.end());
}
inline tensor concat(int axis, std::initializer_list<tensor> list, sn_loc at = SN_CALLER) {
    return sn_concat_at(at, axis, detail::tensors(list).data());
}
inline tensor gather(tensor x, int axis, tensor ids, sn_loc at = SN_CALLER) {
    return sn_gather_at(at, x.get(), axis, ids.get());
}
/* The k largest elements along the last axis and, if wanted, their indices. */
inline tensor top_k(tensor x, dim k, tensor *index = nullptr, sn_loc at = SN_CALLER) {
    sn_tensor order = nullptr;
    tensor best = sn_top_k_at(at, x.get(), k.get(), index ? &order : nullptr);
    if (index) *index = order;
    return best;
}
inline tensor take_blocks(tensor x, tensor index, int64_t blocks, sn_loc at = SN_CALLER) {
    return sn_take_blocks_at(at, x.get(), index.get(), blocks);
}
inline tensor expert_linear(tensor x, tensor w, tensor index, sn_loc at = SN_CALLER) {
    return sn_expert_linear_at(at, x.get(), w.get(), index.get());
}
inline tensor grouped_matmul(tensor x, tensor w, tensor group, sn_loc at = SN_CALLER) {
    return sn_grouped_matmul_at(at, x.get(), w.get(), group.get());
}
inline tensor einsum(const char *spec, tensor x, tensor y, sn_loc at = SN_CALLER) {
    return sn_einsum_at(at, spec, x.get(), y.get());
}
/* Single elements: one index for each axis. */
inline tensor at(tensor x, std::initializer_list<tensor> index, sn_loc here = SN_CALLER) {
    return sn_at_at(here, x.get(), detail::tensors(index).data());
}
inline tensor split_heads(tensor x, int64_t heads, sn_loc at = SN_CALLER) {
    return sn_split_heads_at(at, x.get(), heads);
}
inline tensor merge_heads(tensor x, sn_loc at = SN_CALLER) {
    return sn_merge_heads_at(at, x.get());
}
/* Layers that declare their parameters. */
inline tensor nn_linear(tensor x, const char *name, int64_t n_out, int flags = 0,
                        sn_loc at = SN_CALLER) {
    return sn_nn_linear_at(at, x.get(), name, n_out, flags);
}
inline tensor nn_embedding(tensor ids, const char *name, int64_t n, int64_t d,
                           sn_loc at = SN_CALLER) {
    return sn_nn_embedding_at(at, ids.get(), name, n, d);
}
inline tensor nn_layer_norm(tensor x, const char *name, double eps = 1e-5, sn_loc at = SN_CALLER) {
    return sn_nn_layer_norm_at(at, x.get(), name, eps);
}
inline tensor nn_rms_norm(tensor x, const char *name, double eps = 1e-6, sn_loc at = SN_CALLER) {
    return sn_nn_rms_norm_at(at, x.get(), name, eps);
}

/* ---- attention ---- */

/* One score and its indices, as scalars: what a lambda is called with, once, when the graph is built. */
class score_context {
  public:
    explicit score_context(const sn_score_ctx *c)
        : score(c->score), b(c->b), h(c->h), q(c->q), k(c->k), n_q(c->m, c->n_q), n_k(c->m, c->n_k),
          c_(c) {}
    tensor score;      /* not in a mask */
    tensor b, h, q, k; /* i32: batch, query head, query, key */
    dim n_q, n_k;
    tensor distance(sn_loc at = SN_CALLER) const { /* from the key to the query, i32 */
        return sn_query_key_distance_at(at, c_);
    }
    tensor captured(int i) const { return c_->captured[i]; } /* read it with at(captured(i), {h}) */

  private:
    const sn_score_ctx *c_;
};
using score_function = std::function<tensor(const score_context &)>;

struct attention_options {
    double scale = 0; /* 0: 1 / sqrt(d) */
    bool causal = false;
    int64_t window = 0;
    tensor past;
    score_function score, mask; /* empty: none */
    std::vector<tensor> captured;
    double dropout = 0;
    tensor rng;
    score_function weight; /* of a score, instead of the softmax; empty: softmax */
    sn_row_divisor divide = SN_DIVIDE_BY_1;
    tensor sink, mix_scores, mix_weights;
    tensor *lse = nullptr; /* receives the log-sum-exp of each query */
};

namespace detail {
struct callbacks {
    const attention_options &o;
    std::exception_ptr thrown;
    template <score_function attention_options::*F> static sn_tensor call(const sn_score_ctx *c) {
        auto *self = static_cast<callbacks *>(const_cast<void *>(c->user));
        try {
            return (self->o.*F)(score_context(c)).get();
        } catch (...) { /* C code is between here and attention() */
            self->thrown = std::current_exception();
            return nullptr;
        }
    }
};
/* Calls attend(args) with the options as the C library takes them. */
template <class Attend>
tensor with_arguments(tensor q, tensor k, tensor v, const attention_options &o, Attend attend) {
    callbacks calls{o, nullptr};
    sn_attention_args a = {};
    a.q = q.get(), a.k = k.get(), a.v = v.get();
    a.scale = o.scale, a.causal = o.causal, a.window = o.window, a.past = o.past.get();
    if (o.score) a.score = callbacks::call<&attention_options::score>;
    if (o.mask) a.mask = callbacks::call<&attention_options::mask>;
    if (o.weight) a.weight = callbacks::call<&attention_options::weight>;
    sn_tensor lse = nullptr;
    a.divide = o.divide, a.sink = o.sink.get(), a.lse = o.lse ? &lse : nullptr;
    a.mix_scores = o.mix_scores.get(), a.mix_weights = o.mix_weights.get();
    if (o.captured.size() > SN_MAX_CAPTURED)
        throw std::length_error("attention: more than SN_MAX_CAPTURED captured tensors");
    for (size_t i = 0; i < o.captured.size(); i++) a.captured[i] = o.captured[i].get();
    a.dropout = o.dropout, a.rng = o.rng.get(), a.user = &calls;
    tensor y = attend(&a);
    if (calls.thrown) std::rethrow_exception(calls.thrown);
    if (o.lse) *o.lse = tensor(lse);
    return y;
}
} // namespace detail

/* sn_attention: q [B, H, Tq, d], k [B, Hk, Tk, d], v [B, Hk, Tk, dv] -> [B, H, Tq, dv]. */
inline tensor attention(tensor q, tensor k, tensor v, const attention_options &o = {},
                        sn_loc at = SN_CALLER) {
    return detail::with_arguments(
        q, k, v, o, [at](const sn_attention_args *a) { return sn_attention_at(at, a); });
}
/* The same in a decoder: with the dropout and the documents of its training. */
inline tensor attention(const sn_forward_ctx *s, tensor q, tensor k, tensor v,
                        const attention_options &o = {}, sn_loc at = SN_CALLER) {
    return detail::with_arguments(q, k, v, o, [s, at](const sn_attention_args *a) {
        return sn_forward_attention_at(at, s, a);
    });
}
/* sn_append_kv: with caches all rows so far, otherwise x. */
inline tensor append_kv(const sn_forward_ctx *s, tensor x, const char *name,
                        sn_loc at = SN_CALLER) {
    return sn_append_kv_at(at, s, x.get(), name);
}

/* ---- loops over an axis ---- */

/* One iteration of a scan: what a lambda is called with, once, when the graph is built. It sets `next`,
 * which has an item for each carry, and may add to `y`. */
struct scan_step {
    std::vector<tensor> carry, x;
    tensor index;
    std::vector<tensor> next, y;
};
struct scanned {
    std::vector<tensor> carry, y;
};

namespace detail {
struct scan_body {
    const std::function<void(scan_step &)> &body;
    size_t carries, sequences, outputs;
    std::exception_ptr thrown;
    static void call(sn_scan_step *s) {
        auto *self = static_cast<scan_body *>(const_cast<void *>(s->user));
        try {
            scan_step one;
            one.carry.assign(s->carry, s->carry + self->carries);
            one.x.assign(s->x, s->x + self->sequences);
            one.index = s->index;
            one.next.resize(self->carries);
            self->body(one);
            if (one.next.size() > SN_MAX_SCAN || one.y.size() > SN_MAX_SCAN)
                throw std::length_error("scan: more than SN_MAX_SCAN carries or outputs");
            for (size_t i = 0; i < one.next.size(); i++) s->next[i] = one.next[i].get();
            for (size_t i = 0; i < one.y.size(); i++) s->y[i] = one.y[i].get();
            self->outputs = one.y.size();
        } catch (...) { /* C code is between here and scan() */
            self->thrown = std::current_exception();
        }
    }
};
} // namespace detail

/* sn_scan: calls body(scan_step &) for the elements of the sequences x on the axis; x = {}: count times. */
inline scanned scan(const std::vector<tensor> &carry, const std::vector<tensor> &x, int axis,
                    const std::function<void(scan_step &)> &body, bool reverse = false,
                    dim count = 0, sn_loc at = SN_CALLER) {
    if (carry.size() > SN_MAX_SCAN || x.size() > SN_MAX_SCAN)
        throw std::length_error("scan: more than SN_MAX_SCAN carries or sequences");
    detail::scan_body calls{body, carry.size(), x.size(), 0, nullptr};
    sn_scan_args a = {};
    for (size_t i = 0; i < carry.size(); i++) a.carry[i] = carry[i].get();
    for (size_t i = 0; i < x.size(); i++) a.x[i] = x[i].get();
    a.count = count.get(), a.axis = axis, a.reverse = reverse, a.body = detail::scan_body::call,
    a.user = &calls;
    sn_scanned r = sn_scan_at(at, &a);
    if (calls.thrown) std::rethrow_exception(calls.thrown);
    scanned all;
    all.carry.assign(r.carry, r.carry + carry.size());
    all.y.assign(r.y, r.y + calls.outputs);
    return all;
}
/* Running products, maxima, minima and log-sum-exps along the axis; sums in other orders by sn_cumulate. */
inline tensor cumprod(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_cumprod_at(at, x.get(), axis);
}
inline tensor cummax(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_cummax_at(at, x.get(), axis);
}
inline tensor cummin(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_cummin_at(at, x.get(), axis);
}
inline tensor cumlogsumexp(tensor x, int axis, sn_loc at = SN_CALLER) {
    return sn_cumlogsumexp_at(at, x.get(), axis);
}

/* ---- modules ---- */

/* Ends a scope of names. */
class scope {
  public:
    scope(sn_module *m, const std::string &name, sn_loc at) : m_(m), at_(at) {
        sn_scope_push_at(at, m, "%s", name.c_str());
    }
    ~scope() { sn_scope_pop_at(at_, m_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    sn_module *m_;
    sn_loc at_;
};

/* Builds into a module that somebody else owns, such as that of SN_MODEL. */
class builder {
  public:
    explicit builder(sn_module *m) : m_(m) {}
    sn_module *get() const { return m_; }
    dim symbol(const char *name, int64_t lo, int64_t hi, sn_loc at = SN_CALLER) {
        return dim(m_, sn_new_symbol_at(at, m_, name, lo, hi));
    }
    /* what the symbol is, for those who use the model; returns it */
    dim describe(dim symbol, const char *text, sn_loc at = SN_CALLER) {
        return dim(m_, sn_describe_dim_at(at, m_, symbol.get(), text));
    }
    void entry(const char *name, sn_loc at = SN_CALLER) { sn_entry_begin_at(at, m_, name); }
    /* auto s = m.in("layer0"): names have this prefix as long as s exists */
    [[nodiscard]] scope in(const std::string &name, sn_loc at = SN_CALLER) {
        return scope(m_, name, at);
    }
    tensor input(const char *name, sn_dtype t, std::initializer_list<dim> shape,
                 sn_loc at = SN_CALLER) {
        return sn_input_at(at, m_, name, t, detail::dims(shape).data());
    }
    tensor param(const char *name, sn_dtype t, std::initializer_list<dim> shape,
                 sn_loc at = SN_CALLER) {
        return sn_param_at(at, m_, name, t, detail::dims(shape).data());
    }
    tensor state(const char *name, sn_dtype t, std::initializer_list<dim> shape,
                 sn_loc at = SN_CALLER) {
        return sn_state_at(at, m_, name, t, detail::dims(shape).data());
    }
    tensor array(sn_dtype t, std::initializer_list<double> values, std::initializer_list<dim> shape,
                 sn_loc at = SN_CALLER) {
        return sn_array_at(at, m_, t, (int64_t)values.size(), values.begin(),
                           detail::dims(shape).data());
    }
    tensor full(sn_dtype t, double value, std::initializer_list<dim> shape, sn_loc at = SN_CALLER) {
        return sn_full_at(at, m_, t, value, detail::dims(shape).data());
    }
    tensor arange(sn_dtype t, dim n, sn_loc at = SN_CALLER) {
        return sn_iota_at(at, m_, t, 0, detail::dims({n}).data());
    }

  protected:
    sn_module *m_;
};

/* A module that frees its graph. */
class module : public builder {
  public:
    explicit module(const char *name) : builder(sn_module_new(name)), own_(m_) {
        if (!m_) throw std::bad_alloc();
    }

  private:
    struct release {
        void operator()(sn_module *m) const { sn_module_free(m); }
    };
    std::unique_ptr<sn_module, release> own_;
};

/* x, whose axis is divided among the ranks of the mesh axis; see sn_shard. parts: each is divided. */
inline tensor shard(tensor x, int axis, const char *mesh, std::initializer_list<int64_t> parts = {},
                    sn_loc at = SN_CALLER) {
    std::vector<sn_dim> list(parts);
    list.push_back(SN_END);
    return sn_shard_at(at, x.get(), axis, mesh, list.data());
}

inline void output(const char *name, tensor x, sn_loc at = SN_CALLER) {
    sn_output_at(at, name, x.get());
}
/* what x is, for those who use the model: see sn_describe; returns x */
inline tensor describe(tensor x, const char *text, sn_loc at = SN_CALLER) {
    return sn_describe_at(at, x.get(), text);
}
inline void assign(tensor state, tensor x, sn_loc at = SN_CALLER) {
    sn_assign_at(at, state.get(), x.get());
}

/* ---- gradients and training ---- */

inline std::vector<tensor> parameters_of(tensor x) {
    std::vector<sn_tensor> p(static_cast<size_t>(sn_params_of(x.get(), 0, nullptr)));
    sn_params_of(x.get(), static_cast<int>(p.size()), p.data());
    return std::vector<tensor>(p.begin(), p.end());
}
inline std::vector<tensor> grad(tensor loss, const std::vector<tensor> &wrt,
                                sn_loc at = SN_CALLER) {
    std::vector<sn_tensor> in = detail::tensors(wrt), out(wrt.size());
    sn_grad_at(at, loss.get(), static_cast<int>(wrt.size()), in.data(), out.data());
    return std::vector<tensor>(out.begin(), out.end());
}
/* Adds a step of the optimizer on these parameters to the entry; returns the gradient's norm. */
inline tensor optimize(tensor loss, tensor rate, const std::vector<tensor> &parameters,
                       const sn_optimizer &o, sn_loc at = SN_CALLER) {
    std::vector<sn_tensor> p = detail::tensors(parameters);
    return sn_optimize_at(at, loss.get(), rate.get(), static_cast<int>(parameters.size()), p.data(),
                          &o);
}

/* ---- compiling and running ---- */

struct options : sn_options {
    options() : sn_options(sn_options_default()) {}
};

/* Compiled entries. The constructor throws the module's first error. */
class program {
  public:
    explicit program(const builder &m, const sn_options &o = options()) {
        sn_error e = {};
        p_.reset(sn_compile(m.get(), &o, &e));
        check(e);
    }
    sn_program *get() const { return p_.get(); }

  private:
    struct release {
        void operator()(sn_program *p) const { sn_program_free(p); }
    };
    std::unique_ptr<sn_program, release> p_;
};

namespace detail {
template <class T> struct dtype_of;
template <> struct dtype_of<float> : std::integral_constant<sn_dtype, SN_F32> {};
template <> struct dtype_of<double> : std::integral_constant<sn_dtype, SN_F64> {};
template <> struct dtype_of<int32_t> : std::integral_constant<sn_dtype, SN_I32> {};
template <> struct dtype_of<int64_t> : std::integral_constant<sn_dtype, SN_I64> {};
template <> struct dtype_of<int8_t> : std::integral_constant<sn_dtype, SN_I8> {};
template <> struct dtype_of<uint8_t> : std::integral_constant<sn_dtype, SN_U8> {};
template <> struct dtype_of<bool> : std::integral_constant<sn_dtype, SN_BOOL> {};
} // namespace detail

/* A named buffer of yours, row-major, for one call or for the session. */
class array {
  public:
    template <class T>
    array(const char *name, T *data, std::initializer_list<int64_t> shape)
        : name_(name), type_(detail::dtype_of<std::remove_const_t<T>>::value), shape_(shape),
          data_(const_cast<std::remove_const_t<T> *>(data)) {}
    /* SN_BF16 or SN_F16, as bits; otherwise std::invalid_argument. */
    array(const char *name, sn_dtype type, uint16_t *data, std::initializer_list<int64_t> shape)
        : name_(name), type_(type), shape_(shape), data_(data) {
        if (type != SN_BF16 && type != SN_F16)
            throw std::invalid_argument(std::string(name) +
                                        ": numbers of 16 bits are SN_BF16 or SN_F16");
    }
    /* A vector has as many elements as the shape says; otherwise std::length_error. */
    template <class T>
    array(const char *name, std::vector<T> &data, std::initializer_list<int64_t> shape)
        : array(name, data.data(), shape) {
        fits(data.size());
    }
    template <class T>
    array(const char *name, const std::vector<T> &data, std::initializer_list<int64_t> shape)
        : array(name, data.data(), shape) {
        fits(data.size());
    }
    sn_arg_binding get() const {
        sn_arg_binding b = {};
        b.name = name_, b.dtype = type_, b.rank = static_cast<int>(shape_.size());
        b.shape = shape_.data(), b.data = data_;
        return b;
    }

  private:
    void fits(size_t n) const {
        int64_t want = 1;
        for (int64_t s : shape_) want *= s;
        if (static_cast<int64_t>(n) != want)
            throw std::length_error(std::string(name_) + ": the vector has " + std::to_string(n) +
                                    " elements, the shape " + std::to_string(want));
    }
    const char *name_;
    sn_dtype type_;
    std::vector<int64_t> shape_;
    void *data_;
};

/* Weights and states for one user of a program. Weights must outlive it. */
class session {
  public:
    session(const program &p, const std::vector<array> &weights) {
        std::vector<sn_arg_binding> b = bindings(weights);
        sn_error e = {};
        s_.reset(sn_session_new_arrays(p.get(), b.data(), static_cast<int>(b.size()), &e));
        check(e);
    }
    session(const program &p, const sn_weights *weights) {
        sn_error e = {};
        s_.reset(sn_session_new(p.get(), weights, &e));
        check(e);
    }
    void run(const char *entry, const std::vector<array> &in, const std::vector<array> &out) {
        std::vector<sn_arg_binding> i = bindings(in), o = bindings(out);
        sn_error e = {};
        sn_run(s_.get(), entry, i.data(), static_cast<int>(i.size()), o.data(),
               static_cast<int>(o.size()), &e);
        check(e);
    }
    void reset() { sn_session_reset(s_.get()); }
    /* Ahead of time: writes NAME.o, NAME.h and NAME.weights (sn_emit). */
    void emit(const sn_emit_options &o) const {
        sn_error e = {};
        sn_emit(s_.get(), &o, &e);
        check(e);
    }
    /* A state, or a parameter that an entry assigns. */
    template <class T> void read(const char *name, std::vector<T> &values) const {
        sn_error e = {};
        sn_state_read(s_.get(), name, values.data(), values.size() * sizeof(T), &e);
        check(e);
    }
    template <class T> void write(const char *name, const std::vector<T> &values) {
        sn_error e = {};
        sn_state_write(s_.get(), name, values.data(), values.size() * sizeof(T), &e);
        check(e);
    }
    sn_session *get() const { return s_.get(); }

  private:
    static std::vector<sn_arg_binding> bindings(const std::vector<array> &list) {
        std::vector<sn_arg_binding> b;
        for (const array &a : list) b.push_back(a.get());
        return b;
    }
    struct release {
        void operator()(sn_session *s) const { sn_session_free(s); }
    };
    std::unique_ptr<sn_session, release> s_;
};

} // namespace sinter
#endif
