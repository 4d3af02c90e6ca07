#include "kernels/causal_conv/causal_conv.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/sigmoid.cuh"
#include "kernels/common/types.cuh"

namespace lft {
namespace {

// A thread has one channel of kRun tokens; adjacent threads have adjacent channels. The inputs of a
// token are in registers and move by one with each token.

constexpr int kThreads = 128;
constexpr int kRun = 64;
constexpr int kTaps = int(kMostConvTaps);

int64_t runs_of(const CausalConvArgs& args) { return (args.tokens + kRun - 1) / kRun; }

/// The channel and the run of a thread.
struct Place {
  int64_t channel, run, first, end;  // tokens first .. end - 1
  bool live;

  __device__ explicit Place(const CausalConvArgs& args) {
    const int64_t groups = (args.channels + kThreads - 1) / kThreads;
    channel = int64_t(blockIdx.x) % groups * kThreads + threadIdx.x;
    run = int64_t(blockIdx.x) / groups;
    first = run * kRun;
    end = first + kRun < args.tokens ? first + kRun : args.tokens;
    live = channel < args.channels;
  }
};

/// One token after the other of a channel, with the inputs of its taps. The last tap is at index
/// kTaps - 1 for every number of taps.
template <class T>
class Walk {
 public:
  __device__ Walk(const CausalConvArgs& args, int64_t channel, int64_t token)
      : args_(args), channel_(channel) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      const int64_t tap = j - (kTaps - args.taps);
      weight[j] = tap >= 0 ? args.weight[tap * args.channels + channel] : 0.f;
    }
    int64_t low = 0, high = args.sequences - 1;  // the last sequence that begins at or before token
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (args.starts[middle] <= token) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    enter(low);
#pragma unroll
    for (int j = 0; j < kTaps; ++j) input[j] = value(token - kTaps + j);
    next_ = token;
  }

  /// The next token's inputs.
  __device__ void advance() {
    if (next_ >= end_) {
      int64_t sequence = sequence_ + 1;
      while (args_.starts[sequence + 1] <= next_) ++sequence;  // without tokens
      enter(sequence);
#pragma unroll
      for (int j = 0; j < kTaps; ++j) input[j] = value(next_ - kTaps + j);
    }
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) input[j] = input[j + 1];
    input[kTaps - 1] = value(next_);
    ++next_;
  }
  __device__ int64_t first() const { return first_; }
  __device__ int64_t end() const { return end_; }

  /// The convolution, rounded to T.
  __device__ float sum() const {
    float z = 0;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) z += weight[j] * input[j];
    return float(T(z));
  }

  float weight[kTaps], input[kTaps];

 private:
  __device__ void enter(int64_t sequence) {
    sequence_ = sequence;
    first_ = args_.starts[sequence];
    end_ = args_.starts[sequence + 1];
  }
  /// The input of a token, perhaps before the sequence.
  __device__ float value(int64_t token) const {
    if (token >= first_)
      return float(static_cast<const T*>(args_.x)[token * args_.channels + channel_]);
    const int64_t row = token - first_ + args_.taps - 1;
    if (row < 0) return 0.f;  // of no tap
    return float(static_cast<const T*>(
        args_.before)[(sequence_ * (args_.taps - 1) + row) * args_.channels + channel_]);
  }

  const CausalConvArgs& args_;
  int64_t channel_, sequence_, first_, end_, next_;
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(CausalConvArgs args, T* out) {
  const Place place(args);
  if (!place.live) return;
  Walk<T> walk(args, place.channel, place.first);
  for (int64_t i = place.first; i < place.end; ++i) {
    walk.advance();
    const float z = walk.sum();
    out[i * args.channels + place.channel] = T(z * sigmoid(z));
  }
}

/// Element j of `sums` is the gradient of the input of weight[j] at the last token; it is complete
/// when it leaves the array, or when its sequence ends. A run also reads the tokens after it that
/// read its inputs. partials [runs, taps, channels] may be null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(CausalConvArgs args, const T* dout, T* dx, float* partials) {
  const Place place(args);
  if (!place.live) return;
  Walk<T> walk(args, place.channel, place.first);
  float sums[kTaps] = {}, dweight[kTaps] = {};
  const auto write = [&](int64_t token, float sum) {
    if (token >= place.first && token >= walk.first() && token < place.end)
      dx[token * args.channels + place.channel] = T(sum);
  };
  const int64_t last = place.end + kTaps - 1 < args.tokens ? place.end + kTaps - 1 : args.tokens;
  for (int64_t i = place.first;; ++i) {
    const bool ended = i == last || i >= walk.end();
    if (ended) {
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        write(i - kTaps + j, sums[j]);
        sums[j] = 0;
      }
      if (i == last || i >= place.end) break;
    } else {
      write(i - kTaps, sums[0]);
    }
#pragma unroll
    for (int j = 0; j < kTaps; ++j) sums[j] = j + 1 < kTaps ? sums[j + 1] : 0.f;
    walk.advance();
    const float z = walk.sum(), s = sigmoid(z),
                dz = float(dout[i * args.channels + place.channel]) * s * (1.f + z * (1.f - s));
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      sums[j] += walk.weight[j] * dz;
      if (i < place.end) dweight[j] += walk.input[j] * dz;
    }
  }
  if (partials == nullptr) return;
#pragma unroll
  for (int j = 0; j < kTaps; ++j) {
    const int64_t tap = j - (kTaps - args.taps);
    if (tap >= 0)
      partials[(place.run * args.taps + tap) * args.channels + place.channel] = dweight[j];
  }
}

/// The sum of all runs' parts, in their order.
__global__ void __launch_bounds__(kThreads)
    weight_kernel(int64_t runs, int64_t count, const float* partials, float* dweight) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  float sum = 0;
  for (int64_t run = 0; run < runs; ++run) sum += partials[run * count + at];
  dweight[at] = sum;
}

unsigned blocks_of(const CausalConvArgs& args) {
  return unsigned(runs_of(args) * ((args.channels + kThreads - 1) / kThreads));
}

}  // namespace

void causal_conv(const CausalConvArgs& args, void* out, Stream stream) {
  if (args.tokens == 0 || args.channels == 0) return;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    launch("causal_conv launch", forward_kernel<T>, blocks_of(args), kThreads, stream, args,
           static_cast<T*>(out));
  });
}

int64_t causal_conv_workspace(const CausalConvArgs& args) {
  return runs_of(args) * args.taps * args.channels;
}

void causal_conv_backward(const CausalConvArgs& args, const void* dout, void* dx, float* dweight,
                          float* workspace, Stream stream) {
  if (args.channels == 0) return;
  float* const partials = dweight == nullptr ? nullptr : workspace;
  if (args.tokens > 0) {
    with_type(args.type, [&](auto type) {
      using T = decltype(type);
      launch("causal_conv backward launch", backward_kernel<T>, blocks_of(args), kThreads, stream,
             args, static_cast<const T*>(dout), static_cast<T*>(dx), partials);
    });
  }
  if (dweight == nullptr) return;
  const int64_t count = args.taps * args.channels;
  launch("causal_conv weight launch", weight_kernel, unsigned((count + kThreads - 1) / kThreads),
         kThreads, stream, runs_of(args), count, static_cast<const float*>(workspace), dweight);
}

}  // namespace lft
