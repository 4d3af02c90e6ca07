#include "src/train/grad_check.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lft {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements; sums of a chunk are added in order, so threads change no bit
constexpr int64_t kLanes = 8;

/// Finite exactly when every element is: the square of a float32 fits a double with room for 2^23 of them.
double chunk_squares(const float* data, int64_t count) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(data[i + lane]) * static_cast<double>(data[i + lane]);
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

double squared_norm(const at::Tensor& gradient) {
  const at::Tensor flat = gradient.to(at::kCPU, at::kFloat).contiguous();
  const float* data = flat.const_data_ptr<float>();
  const int64_t count = flat.numel(), chunks = (count + kChunk - 1) / kChunk;
  std::vector<double> sums(chunks);
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) sums[c] = chunk_squares(data + c * kChunk, std::min(kChunk, count - c * kChunk));
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// On an accelerator: one copy to the host for all tensors.
std::vector<double> device_squares(const std::vector<at::Tensor>& gradients) {
  const std::vector<at::Tensor> norms = at::_foreach_norm(gradients, 2, at::kDouble);
  const at::Tensor host = at::stack(norms).to(at::kCPU, at::kDouble);
  std::vector<double> squares(host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel());
  for (double& value : squares) value *= value;
  return squares;
}

}  // namespace

GradCheck check_gradients(const std::vector<at::Tensor>& gradients) {
  GradCheck check;
  check.norms.assign(gradients.size(), 0.0);
  std::vector<at::Tensor> present;
  std::vector<size_t> index;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
    present.push_back(gradients[i]);
    index.push_back(i);
  }
  std::vector<double> squares;
  if (!present.empty() && present[0].is_cpu()) {
    for (const at::Tensor& gradient : present) squares.push_back(squared_norm(gradient));
  } else if (!present.empty()) {
    squares = device_squares(present);
  }
  double sum = 0;
  for (size_t i = 0; i < squares.size(); ++i) {
    if (!std::isfinite(squares[i]) && check.first_bad < 0) check.first_bad = static_cast<int64_t>(index[i]);
    check.norms[index[i]] = std::sqrt(squares[i]);
    sum += squares[i];
  }
  check.norm = std::sqrt(sum);
  return check;
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

}  // namespace lft
