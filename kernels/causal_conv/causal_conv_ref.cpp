#include <cmath>
#include <vector>

#include "kernels/causal_conv/causal_conv.h"

namespace lft {
namespace {

/// A channel of a sequence.
struct Channel {
  const CausalConvArgs& args;
  int64_t sequence, channel, first, count;

  Channel(const CausalConvArgs& args, int64_t sequence, int64_t channel)
      : args(args),
        sequence(sequence),
        channel(channel),
        first(args.starts[sequence]),
        count(args.starts[sequence + 1] - first) {}

  int64_t index(int64_t i) const { return (first + i) * args.channels + channel; }
  double weight(int64_t tap) const { return args.weight[tap * args.channels + channel]; }
  /// The input of a tap for output i.
  double input(int64_t i, int64_t tap) const {
    const int64_t at = i - (args.taps - 1) + tap;
    if (at >= 0) return load_float(args.type, args.x, index(at));
    const int64_t row = sequence * (args.taps - 1) + at + args.taps - 1;
    return load_float(args.type, args.before, row * args.channels + channel);
  }
  double sum(int64_t i) const {
    double z = 0;
    for (int64_t j = 0; j < args.taps; ++j) z += weight(j) * input(i, j);
    float rounded = 0;
    store_float(args.type, &rounded, 0, static_cast<float>(z));
    return load_float(args.type, &rounded, 0);
  }
};

template <class Body>
void for_each_channel(const CausalConvArgs& args, const Body& body) {
  for (int64_t s = 0; s < args.sequences; ++s) {
    for (int64_t c = 0; c < args.channels; ++c) body(Channel(args, s, c));
  }
}

}  // namespace

void causal_conv_ref(const CausalConvArgs& args, void* out) {
  for_each_channel(args, [&](const Channel& of) {
    for (int64_t i = 0; i < of.count; ++i) {
      const double z = of.sum(i);
      store_float(args.type, out, of.index(i), static_cast<float>(z / (1 + std::exp(-z))));
    }
  });
}

void causal_conv_backward_ref(const CausalConvArgs& args, const void* dout, void* dx,
                              float* dweight) {
  std::vector<double> dw(static_cast<size_t>(args.taps * args.channels), 0.0);
  for_each_channel(args, [&](const Channel& of) {
    std::vector<double> sums(static_cast<size_t>(of.count), 0.0);
    for (int64_t i = 0; i < of.count; ++i) {
      const double z = of.sum(i), s = 1 / (1 + std::exp(-z)),
                   dz = load_float(args.type, dout, of.index(i)) * s * (1 + z * (1 - s));
      for (int64_t j = 0; j < args.taps; ++j) {
        const int64_t at = i - (args.taps - 1) + j;
        if (at >= 0) sums[static_cast<size_t>(at)] += of.weight(j) * dz;
        dw[static_cast<size_t>(j * args.channels + of.channel)] += dz * of.input(i, j);
      }
    }
    for (int64_t i = 0; i < of.count; ++i)
      store_float(args.type, dx, of.index(i), static_cast<float>(sums[static_cast<size_t>(i)]));
  });
  for (size_t i = 0; i < dw.size() && dweight != nullptr; ++i)
    dweight[i] = static_cast<float>(dw[i]);
}

}  // namespace lft
