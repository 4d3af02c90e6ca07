#include "src/hf/fill_weights_device.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cmath>

#include "models/ops/core/dispatch.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"

namespace lft::hf {
namespace {

/// A host buffer and the event after which no copy reads it.
struct Slot {
  at::Tensor host;
  std::optional<c10::Event> copied;
};

/// Two pinned buffers and a separate stream: one buffer is read into while the other is copied to
/// the device.
class DeviceFiller : public PieceFiller {
 public:
  DeviceFiller(const FillPlan& plan, at::Device device,
               const std::optional<c10::Event>& targets_ready,
               const std::map<at::ScalarType, at::Tensor>& extremes)
      : plan_(plan), extremes_(extremes) {
    if (!device.is_cpu()) {
      stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
      targets_ready->block(*stream_);
    }
    for (Slot& slot : slots_) {
      slot.host = at::empty({plan.options.piece_bytes},
                            at::TensorOptions(at::kByte).pinned_memory(ops::runs_kernels(device)));
      if (stream_) slot.copied.emplace(device.type());
    }
  }

  bool fill(size_t piece) override {
    const WeightJob& job = plan_.job(piece);
    const at::ScalarType stored = to_scalar_type(job.info->dtype);
    const at::Tensor target = plan_.target(piece);
    Slot& slot = slots_[turn_++ % slots_.size()];
    if (slot.copied) slot.copied->synchronize();
    const int64_t size = io::dtype_size(job.info->dtype), bytes = target.numel() * size;
    plan_.read(piece, static_cast<uint64_t>(plan_.pieces[piece].begin * size),
               static_cast<uint64_t>(bytes), slot.host.data_ptr());

    const c10::OptionalStreamGuard current(stream_);
    const bool same = target.scalar_type() == stored;
    const at::Tensor arrived =
        same ? target : landing(target.device()).narrow(0, 0, bytes).view(stored);
    arrived.copy_(slot.host.narrow(0, 0, bytes).view(stored), /*non_blocking=*/true);
    if (slot.copied) slot.copied->record(*stream_);
    if (plan_.options.check_finite) {
      const at::Tensor extremes = extremes_.at(stored).select(0, static_cast<int64_t>(piece));
      at::Tensor least = extremes.select(0, 0), most = extremes.select(0, 1);
      at::aminmax_out(least, most, arrived);
    }
    if (!same) target.copy_(arrived);
    return true;
  }

  void finish() override {
    if (stream_) stream_->synchronize();
  }

 private:
  /// Device memory for a piece as stored, before its conversion.
  const at::Tensor& landing(at::Device device) {
    if (!landing_.defined())
      landing_ =
          at::empty({plan_.options.piece_bytes}, at::TensorOptions(at::kByte).device(device));
    return landing_;
  }

  const FillPlan& plan_;
  const std::map<at::ScalarType, at::Tensor>& extremes_;
  std::optional<c10::Stream> stream_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
  at::Tensor landing_;
};

}  // namespace

DeviceRange::DeviceRange(const FillPlan& plan, at::Device device) : plan_(plan), device_(device) {
  const auto count = static_cast<int64_t>(plan.pieces.size());
  for (const WeightJob& job : plan.jobs) {
    at::Tensor& extremes = extremes_[to_scalar_type(job.info->dtype)];
    if (!extremes.defined())
      extremes =
          at::zeros({count, 2}, at::TensorOptions(to_scalar_type(job.info->dtype)).device(device));
  }
  if (device.is_cpu()) return;
  targets_ready_.emplace(device.type());
  targets_ready_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::unique_ptr<PieceFiller> DeviceRange::filler() {
  return std::make_unique<DeviceFiller>(plan_, device_, targets_ready_, extremes_);
}

/// aminmax propagates NaN, an infinity is an extreme, and rounding to F16 preserves the order.
std::vector<size_t> DeviceRange::bad_pieces() const {
  std::map<at::ScalarType, at::Tensor> host;
  for (const auto& [type, extremes] : extremes_) host[type] = extremes.to(at::kCPU).to(at::kFloat);
  std::vector<size_t> bad;
  for (size_t i = 0; i < plan_.pieces.size(); ++i) {
    const WeightJob& job = plan_.job(i);
    if (job.take) continue;
    const float* ends = host.at(to_scalar_type(job.info->dtype)).const_data_ptr<float>() + 2 * i;
    const auto is_allowed = [&](float end) {
      return std::isfinite(
          job.target.scalar_type() == at::kHalf ? static_cast<float>(c10::Half(end)) : end);
    };
    if (!is_allowed(ends[0]) || !is_allowed(ends[1])) bad.push_back(i);
  }
  return bad;
}

}  // namespace lft::hf
