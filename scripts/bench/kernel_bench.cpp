// Times the CUDA kernels against a device copy of the same bytes, for scripts/bench/gpu kernels.
// One JSON line per kernel:
// {"kernel", "bytes", "ms", "gb_per_s", "of_copy"}; bytes: the minimum the operation must move.
// LLaVA-1.5-7B's shapes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw8/adamw8.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/common/launch.h"
#include "kernels/dropout/dropout.h"
#include "kernels/fp8/fp8.h"
#include "kernels/gated_delta/gated_delta.h"
#include "kernels/grad_stats/grad_stats.h"
#include "kernels/nf4/nf4.h"
#include "kernels/quick_gelu/quick_gelu.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/token_logprob/token_logprob.h"

namespace lft {
namespace {

constexpr int kWarmUps = 5, kRounds = 25;

/// Device memory filled with nonzero values, since some arithmetic is faster on zeros.
class Buffer {
 public:
  explicit Buffer(size_t bytes) {
    check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
    std::vector<uint16_t> pattern(1 << 20);
    for (size_t i = 0; i < pattern.size(); ++i)
      pattern[i] = static_cast<uint16_t>(0x3C00 + (i * 2654435761u >> 22) % 512);  // near 1
    for (size_t at = 0; at < bytes; at += pattern.size() * 2) {
      check_cuda(cudaMemcpy(static_cast<char*>(data_) + at, pattern.data(),
                            std::min(bytes - at, pattern.size() * 2), cudaMemcpyHostToDevice),
                 "cudaMemcpy");
    }
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  template <class T = void>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// Median milliseconds of one call, measured with events.
double milliseconds(const std::function<void()>& call) {
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < kWarmUps + kRounds; ++i) {
    check_cuda(cudaEventRecord(begin, nullptr), "cudaEventRecord");
    call();
    check_cuda(cudaEventRecord(end, nullptr), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= kWarmUps) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double copy_rate = 0;  // bytes per millisecond, read and written

void report(const char* kernel, double bytes, const std::function<void()>& call) {
  const double ms = milliseconds(call), rate = bytes / ms;
  std::printf(
      "{\"kernel\": \"%s\", \"bytes\": %.0f, \"ms\": %.5f, \"gb_per_s\": %.1f, \"of_copy\": "
      "%.3f}\n",
      kernel, bytes, ms, rate / 1e6, copy_rate > 0 ? rate / copy_rate : 1.0);
  std::fflush(stdout);
}

void bench_copy() {
  constexpr size_t kBytes = size_t{2} << 30;
  Buffer from(kBytes), to(kBytes);
  const auto copy = [&] {
    check_cuda(cudaMemcpyAsync(to.as(), from.as(), kBytes, cudaMemcpyDeviceToDevice, nullptr),
               "copy");
  };
  report("copy", 2.0 * kBytes, copy);
  copy_rate = 2.0 * kBytes / milliseconds(copy);
}

/// The step's two kernels over LLaVA-1.5-7B's adapters at rank r: 224 A and 224 B in float32.
void bench_step(int64_t rank) {
  std::vector<int64_t> counts;
  for (int layer = 0; layer < 32; ++layer) {
    for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{4096, 4096},
                                                                          {4096, 4096},
                                                                          {4096, 4096},
                                                                          {4096, 4096},
                                                                          {4096, 11008},
                                                                          {4096, 11008},
                                                                          {11008, 4096}}) {
      counts.push_back(rank * in);
      counts.push_back(rank * out);
    }
  }
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  Buffer gradients(total * 4), masters(total * 4), first(total * 4), second(total * 4);
  std::vector<GradTensor> tensors;
  std::vector<AdamWItem> items;
  int64_t at = 0;
  AdamWArgs update;
  for (const int64_t count : counts) {
    GradTensor tensor;
    tensor.data = gradients.as<float>() + at;
    tensor.count = count;
    tensors.push_back(tensor);
    AdamWItem item;
    item.param = masters.as<float>() + at;
    item.exp_avg = first.as<float>() + at;
    item.exp_avg_sq = second.as<float>() + at;
    item.grad = tensor.data;
    item.count = count;
    set_rates(item, update, 2e-4, 0, 10);
    items.push_back(item);
    at += count;
  }
  GradStatsArgs check;
  check.count = update.count = static_cast<int64_t>(counts.size());
  check.chunks = number_chunks(tensors);
  update.chunks = number_chunks(items);
  Buffer table(tensors.size() * sizeof(GradTensor)), rows(items.size() * sizeof(AdamWItem)),
      squares(counts.size() * 8);
  Buffer partials(check.chunks * 8), control(sizeof(GradControl));
  check_cuda(cudaMemcpy(table.as(), tensors.data(), tensors.size() * sizeof(GradTensor),
                        cudaMemcpyHostToDevice),
             "cudaMemcpy");
  check_cuda(
      cudaMemcpy(rows.as(), items.data(), items.size() * sizeof(AdamWItem), cudaMemcpyHostToDevice),
      "cudaMemcpy");
  check.tensors = table.as<GradTensor>();
  check.squares = squares.as<double>();
  check.control = control.as<GradControl>();
  update.control = check.control;
  check.max_norm = 1;
  check.inv_scale = 1;
  update.items = rows.as<AdamWItem>();
  const double bytes = 4.0 * static_cast<double>(total);
  const auto both = [&] {
    grad_stats(check, partials.as<double>(), nullptr);
    adamw(update, nullptr);
  };
  const std::string rank_text = ", r=" + std::to_string(rank);
  report(("grad_stats" + rank_text).c_str(), bytes,
         [&] { grad_stats(check, partials.as<double>(), nullptr); });
  report(("adamw" + rank_text).c_str(), 7 * bytes, [&] { adamw(update, nullptr); });
  report(("grad_stats + adamw" + rank_text).c_str(), 8 * bytes, both);
}

/// The layer's elementwise kernels on 16,384 tokens in BF16.
void bench_layer() {
  constexpr int64_t kTokens = 16384, kHidden = 4096, kInner = 11008, kHeads = 32, kHalf = 64;
  constexpr FloatType kType = FloatType::kBF16;
  constexpr double kRow = 2.0 * kTokens * kHidden, kWide = 2.0 * kTokens * kInner;
  Buffer a(kWide), b(kWide), c(kWide), d(kWide), e(kWide), weight(kHidden * 2), rstd(kTokens * 4),
      angles(kTokens * kHalf * 8);
  RmsNormArgs norm{.rows = kTokens,
                   .cols = kHidden,
                   .eps = 1e-5f,
                   .x_type = kType,
                   .y_type = kType,
                   .w_type = kType};
  norm.x = a.as();
  norm.w = weight.as();
  norm.rstd = rstd.as<float>();
  report("rms_norm", 2 * kRow, [&] { rms_norm(norm, nullptr, nullptr, b.as(), nullptr); });
  report("rms_norm with residual", 4 * kRow,
         [&] { rms_norm(norm, c.as(), d.as(), b.as(), nullptr); });
  report("rms_norm_backward", 3 * kRow,
         [&] { rms_norm_backward(norm, b.as(), nullptr, d.as(), nullptr); });
  report("rms_norm_backward with residual", 4 * kRow,
         [&] { rms_norm_backward(norm, b.as(), c.as(), d.as(), nullptr); });
  RopeArgs turn{.type = kType,
                .rows = kTokens,
                .heads = kHeads,
                .half = kHalf,
                .positions = kTokens,
                .angle_stride = 0};
  turn.cos = angles.as<float>();
  turn.sin = angles.as<float>() + kTokens * kHalf;
  report("rope", 2 * kRow + kTokens * kHalf * 8.0, [&] { rope(turn, a.as(), b.as(), nullptr); });
  report("swiglu", 3 * kWide, [&] {
    swiglu({kType, kTokens * kInner, a.as(), b.as()}, c.as(), nullptr);
  });
  const DropoutArgs drop{.seed = 1, .stream = 2, .threshold = 3277, .scale = 1.05f};
  const int64_t wide = kTokens * kInner;
  report("swiglu with dropout", 4 * kWide, [&] {
    swiglu_dropout({kType, wide, a.as(), b.as()}, c.as(), d.as(), drop, nullptr);
  });
  report("quick_gelu", 2 * kWide, [&] { quick_gelu(kType, a.as(), b.as(), wide, nullptr); });
  report("quick_gelu_backward", 3 * kWide,
         [&] { quick_gelu_backward(kType, c.as(), a.as(), b.as(), wide, nullptr); });
  report("swiglu_backward", 5 * kWide, [&] {
    swiglu_backward({kType, wide, a.as(), b.as()}, c.as(), d.as(), e.as(), nullptr, nullptr);
  });
  Buffer f(kWide);
  report("swiglu_backward with y", 6 * kWide, [&] {
    swiglu_backward({kType, wide, a.as(), b.as()}, c.as(), d.as(), e.as(), f.as(), nullptr);
  });
}

/// Cost of the quantized formats: a 7B layer's largest weight dequantised, 16,384 tokens as FP8
/// rows, a dropped input, Adam's 8-bit moments.
void bench_codes() {
  constexpr int64_t kTokens = 16384, kHidden = 4096, kWeights = 11008 * kHidden;
  Buffer dense(2 * kWeights), codes(2 * kWeights), scales(4 * kWeights), values(256 * 4);
  Nf4Weight weight{.count = kWeights,
                   .codes = codes.as<uint8_t>(),
                   .scale_codes = codes.as<uint8_t>() + kWeights};
  weight.scale_absmax = scales.as<float>();
  report("nf4_dequantize", kWeights * (2 + 0.5 + 1.0 / 64), [&] {
    nf4_dequantize(weight, values.as<float>(), FloatType::kBF16, {0, kWeights}, dense.as(),
                   nullptr);
  });
  Fp8Rows rows{.rows = kTokens, .cols = kHidden, .type = FloatType::kBF16};
  Buffer x(2 * kTokens * kHidden), y(2 * kTokens * kHidden);
  rows.x = x.as();
  rows.codes = y.as<uint8_t>();
  rows.scales = scales.as<float>();
  report("fp8_quantize_rows", 3.0 * kTokens * kHidden, [&] { fp8_quantize_rows(rows, nullptr); });
  const DropoutArgs drop{.seed = 1, .stream = 2, .threshold = 3277, .scale = 1.05f};
  report("dropout", 4.0 * kTokens * kHidden,
         [&] { dropout(FloatType::kBF16, x.as(), y.as(), kTokens * kHidden, drop, nullptr); });
  DropoutArgs masked_add = drop;
  masked_add.add = true;
  report("dropout, added", 6.0 * kTokens * kHidden, [&] {
    dropout(FloatType::kBF16, x.as(), y.as(), kTokens * kHidden, masked_add, nullptr);
  });

  Buffer master(4 * kWeights), gradient(4 * kWeights), maps(sizeof(CodeMaps)),
      control(sizeof(GradControl)), item(sizeof(AdamW8Item));
  check_cuda(cudaMemcpy(maps.as(), &code_maps(), sizeof(CodeMaps), cudaMemcpyHostToDevice),
             "cudaMemcpy");
  check_cuda(cudaMemset(control.as(), 0, sizeof(GradControl)), "cudaMemset");
  AdamW8Args args;
  AdamW8Item tensor;
  tensor.param = master.as<float>();
  tensor.exp_avg = codes.as<uint8_t>();
  tensor.exp_avg_sq = codes.as<uint8_t>() + kWeights;
  tensor.exp_avg_absmax = scales.as<float>();
  tensor.exp_avg_sq_absmax = scales.as<float>() + kWeights / kMomentBlock;
  tensor.grad = gradient.as();
  tensor.count = kWeights;
  set_rates(tensor, args, 1e-4, 0, 10);
  std::vector<AdamW8Item> items = {tensor};
  args.chunks = number_chunks(items);
  args.count = 1;
  check_cuda(cudaMemcpy(item.as(), items.data(), sizeof(AdamW8Item), cudaMemcpyHostToDevice),
             "cudaMemcpy");
  args.items = item.as<AdamW8Item>();
  args.control = control.as<GradControl>();
  args.maps = maps.as<CodeMaps>();
  report("adamw8", kWeights * (4 * 3 + 2 * 2 + 4.0 * 4 / kMomentBlock),
         [&] { adamw8(args, nullptr); });
}

void bench_head() {
  constexpr int64_t kRows = 4096, kVocab = 32064;
  Buffer logits(kRows * kVocab * 2), result(kRows * 4), scale(kRows * 4), targets(kRows * 8);
  check_cuda(cudaMemset(targets.as(), 0, kRows * 8), "cudaMemset");
  TokenLogprobArgs args{
      .type = FloatType::kBF16, .rows = kRows, .vocab = kVocab, .logits = logits.as()};
  args.targets = targets.as<int64_t>();
  args.scale = scale.as<float>();
  args.result = result.as<float>();
  report("token_logprob with gradient", 2.0 * kRows * kVocab * 2,
         [&] { token_logprob(args, nullptr); });
}

/// A Gated DeltaNet layer of Qwen3.5-9B, and the convolution of its values, on 4 sequences of 2,048
/// tokens. The bytes are those of
/// inputs and results; the kernel computes more than it moves.
void bench_delta() {
  constexpr int64_t kTokens = 8192, kSequences = 4, kKeyHeads = 16, kHeads = 32, kSize = 128;
  constexpr int64_t kKeys = kTokens * kKeyHeads * kSize, kValues = kTokens * kHeads * kSize;
  Buffer q(2 * kKeys), k(2 * kKeys), v(2 * kValues), out(2 * kValues), dout(2 * kValues),
      dq(2 * kKeys), dk(2 * kKeys), dv(2 * kValues), starts((kSequences + 1) * 4),
      scalars(4 * 4 * kTokens * kHeads);
  std::vector<int32_t> first;
  for (int64_t s = 0; s <= kSequences; ++s)
    first.push_back(static_cast<int32_t>(s * (kTokens / kSequences)));
  check_cuda(cudaMemcpy(starts.as(), first.data(), first.size() * 4, cudaMemcpyHostToDevice),
             "cudaMemcpy");
  std::vector<float> decays(kTokens * kHeads, -0.1f), strengths(kTokens * kHeads, 0.5f);
  float* const g = scalars.as<float>();
  float* const beta = g + kTokens * kHeads;
  check_cuda(cudaMemcpy(g, decays.data(), decays.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
  check_cuda(cudaMemcpy(beta, strengths.data(), strengths.size() * 4, cudaMemcpyHostToDevice),
             "cudaMemcpy");
  const GatedDeltaArgs args{.type = FloatType::kBF16,
                            .tokens = kTokens,
                            .sequences = kSequences,
                            .key_heads = kKeyHeads,
                            .heads = kHeads,
                            .d = kSize,
                            .e = kSize,
                            .q_stride = kKeyHeads * kSize,
                            .k_stride = kKeyHeads * kSize,
                            .v_stride = kHeads * kSize,
                            .q = q.as(),
                            .k = k.as(),
                            .v = v.as(),
                            .g = g,
                            .beta = beta,
                            .starts = starts.as<int32_t>()};
  Buffer workspace(4 * gated_delta_workspace(args));
  const GatedDeltaGradients gradients{
      dout.as(), dq.as(), dk.as(), dv.as(), beta + kTokens * kHeads, beta + 2 * kTokens * kHeads};
  const CausalConvArgs conv{.type = FloatType::kBF16,
                            .tokens = kTokens,
                            .channels = kHeads * kSize,
                            .taps = 4,
                            .sequences = kSequences,
                            .x = v.as(),
                            .weight = g,
                            .starts = starts.as<int32_t>(),
                            .before = k.as()};
  report("causal_conv", 2.0 * 2 * kValues, [&] { causal_conv(conv, out.as(), nullptr); });
  report("causal_conv_backward", 2.0 * 3 * kValues,
         [&] { causal_conv_backward(conv, dout.as(), dv.as(), nullptr, nullptr, nullptr); });
  report("gated_delta", 2.0 * (2 * kKeys + 2 * kValues),
         [&] { gated_delta(args, out.as(), nullptr, nullptr); });
  report("gated_delta_backward", 2.0 * (4 * kKeys + 3 * kValues),
         [&] { gated_delta_backward(args, gradients, workspace.as<float>(), nullptr); });
}

}  // namespace
}  // namespace lft

int main() {
  try {
    lft::bench_copy();
    lft::bench_step(16);
    lft::bench_step(128);
    lft::bench_layer();
    lft::bench_head();
    lft::bench_codes();
    lft::bench_delta();
  } catch (const lft::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
