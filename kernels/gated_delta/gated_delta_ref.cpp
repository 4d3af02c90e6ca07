#include <cmath>
#include <vector>

#include "kernels/gated_delta/gated_delta.h"

namespace lft {
namespace {

using Numbers = std::vector<double>;

/// A vector divided by its length.
struct Unit {
  Numbers value;
  double inverse = 0;

  Unit(const GatedDeltaArgs& args, const void* from, int64_t first) {
    double squares = 0;
    for (int64_t i = 0; i < args.d; ++i) {
      value.push_back(load_float(args.type, from, first + i));
      squares += value.back() * value.back();
    }
    inverse = 1 / std::sqrt(squares + 1e-6);
    for (double& x : value) x *= inverse;
  }
  /// Adds the gradient of the vector, given that of `value`, to `sum`.
  void add_gradient(const Numbers& dvalue, double* sum) const {
    double along = 0;
    for (size_t i = 0; i < value.size(); ++i) along += value[i] * dvalue[i];
    for (size_t i = 0; i < value.size(); ++i) sum[i] += inverse * (dvalue[i] - value[i] * along);
  }
};

/// A value head of a sequence. The states of all tokens are kept.
struct Head {
  const GatedDeltaArgs& args;
  int64_t head, key_head, first, count;
  std::vector<Numbers> states;  // [count + 1][d e], after each token
  std::vector<Numbers> errors;  // [count][e]

  Head(const GatedDeltaArgs& args, int64_t sequence, int64_t head)
      : args(args),
        head(head),
        key_head(head * args.key_heads / args.heads),
        first(args.starts[sequence]),
        count(args.starts[sequence + 1] - first) {
    Numbers state(static_cast<size_t>(args.d * args.e), 0.0);
    const int64_t at = (sequence * args.heads + head) * args.d * args.e;
    for (size_t i = 0; i < state.size() && args.state != nullptr; ++i)
      state[i] = args.state[at + static_cast<int64_t>(i)];
    states.push_back(state);
  }
  Unit key(int64_t i) const {
    return {args, args.k, (first + i) * args.k_stride + key_head * args.d};
  }
  Unit query(int64_t i) const {
    return {args, args.q, (first + i) * args.q_stride + key_head * args.d};
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(args.d)); }
  double decay(int64_t i) const {
    return std::exp(double{args.g[(first + i) * args.heads + head]});
  }
  double beta(int64_t i) const { return args.beta[(first + i) * args.heads + head]; }
  int64_t value_index(int64_t i) const { return ((first + i) * args.heads + head) * args.e; }

  void run(void* out) {
    for (int64_t i = 0; i < count; ++i) {
      const Unit k = key(i), q = query(i);
      Numbers state = states.back(), error;
      for (double& x : state) x *= decay(i);
      for (int64_t c = 0; c < args.e; ++c) {
        double value =
            load_float(args.type, args.v, (first + i) * args.v_stride + head * args.e + c);
        for (int64_t r = 0; r < args.d; ++r) value -= k.value[r] * state[r * args.e + c];
        error.push_back(value);
        double sum = 0;
        for (int64_t r = 0; r < args.d; ++r) {
          state[r * args.e + c] += beta(i) * k.value[r] * value;
          sum += q.value[r] * state[r * args.e + c];
        }
        if (out != nullptr)
          store_float(args.type, out, value_index(i) + c, static_cast<float>(sum * scale()));
      }
      states.push_back(state);
      errors.push_back(error);
    }
  }

  /// Adds to dq and dk [tokens, key_heads, d].
  void run_backward(const GatedDeltaGradients& of, Numbers& dq, Numbers& dk) const {
    Numbers dstate(states[0].size(), 0.0);
    for (int64_t i = count - 1; i >= 0; --i) {
      const Unit k = key(i), q = query(i);
      Numbers dquery(args.d, 0.0), dkey(args.d, 0.0);
      double dbeta = 0, dg = 0;
      for (int64_t c = 0; c < args.e; ++c) {
        const double dy = load_float(args.type, of.dout, value_index(i) + c) * scale(),
                     error = errors[i][c];
        double dwrite = 0;  // of beta * error
        for (int64_t r = 0; r < args.d; ++r) {
          const int64_t at = r * args.e + c;
          dquery[r] += states[i + 1][at] * dy;
          dstate[at] += q.value[r] * dy;
          dwrite += k.value[r] * dstate[at];
          dkey[r] += dstate[at] * beta(i) * error;
        }
        store_float(args.type, of.dv, value_index(i) + c, static_cast<float>(beta(i) * dwrite));
        dbeta += dwrite * error;
        for (int64_t r = 0; r < args.d; ++r) {
          const int64_t at = r * args.e + c;
          const double decayed = decay(i) * states[i][at];
          dkey[r] -= beta(i) * dwrite * decayed;
          dstate[at] -= beta(i) * dwrite * k.value[r];
          dg += dstate[at] * decayed;
          dstate[at] *= decay(i);
        }
      }
      of.dg[(first + i) * args.heads + head] = static_cast<float>(dg);
      of.dbeta[(first + i) * args.heads + head] = static_cast<float>(dbeta);
      const int64_t at = ((first + i) * args.key_heads + key_head) * args.d;
      q.add_gradient(dquery, dq.data() + at);
      k.add_gradient(dkey, dk.data() + at);
    }
  }
};

}  // namespace

void gated_delta_ref(const GatedDeltaArgs& args, void* out, float* last) {
  for (int64_t s = 0; s < args.sequences; ++s) {
    for (int64_t h = 0; h < args.heads; ++h) {
      Head head(args, s, h);
      head.run(out);
      const Numbers& state = head.states.back();
      for (size_t i = 0; i < state.size() && last != nullptr; ++i)
        last[(s * args.heads + h) * args.d * args.e + static_cast<int64_t>(i)] =
            static_cast<float>(state[i]);
    }
  }
}

void gated_delta_backward_ref(const GatedDeltaArgs& args, const GatedDeltaGradients& of) {
  const size_t keys = static_cast<size_t>(args.tokens * args.key_heads * args.d);
  Numbers dq(keys, 0.0), dk(keys, 0.0);
  for (int64_t s = 0; s < args.sequences; ++s) {
    for (int64_t h = 0; h < args.heads; ++h) {
      Head head(args, s, h);
      head.run(nullptr);
      head.run_backward(of, dq, dk);
    }
  }
  for (size_t i = 0; i < keys; ++i) {
    store_float(args.type, of.dq, static_cast<int64_t>(i), static_cast<float>(dq[i]));
    store_float(args.type, of.dk, static_cast<int64_t>(i), static_cast<float>(dk[i]));
  }
}

}  // namespace lft
