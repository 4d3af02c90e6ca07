#include "src/checkpoint/writer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace lft::checkpoint {
namespace {

/// A copy on the tensor's device that is not written by others: fast on a GPU, so that the next
/// step does not wait for the transfer to the host. If the GPU has no memory for it, the copy is
/// made on the host synchronously.
at::Tensor copy_of(const at::Tensor& tensor) {
  try {
    return tensor.clone();
  } catch (const c10::OutOfMemoryError&) {
    if (tensor.device().is_cpu()) throw;
    return tensor.cpu();
  }
}

void detach_from_run(std::map<std::string, at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors) tensor = copy_of(tensor);
}

at::Device device_of(const Checkpoint& checkpoint) {
  return checkpoint.trainables.empty() ? at::Device(at::kCPU)
                                       : checkpoint.trainables.begin()->second.device();
}

/// A stream besides the training stream, which waits until the copies of detach_from_run() are
/// complete. None on a CPU.
class SideStream {
 public:
  explicit SideStream(std::optional<c10::Stream> stream) : stream_(stream) {
    if (!stream_) return;
    made_.emplace(stream_->device_type());
    made_->record(c10::impl::VirtualGuardImpl(stream_->device_type()).getStream(stream_->device()));
  }
  /// Call it first in the copying thread: a thread starts on device 0, where its first call would
  /// create a context.
  void enter() const {
    if (stream_) c10::impl::VirtualGuardImpl(stream_->device_type()).setDevice(stream_->device());
  }
  void bring_to_host(std::map<std::string, at::Tensor>& tensors) {
    const c10::OptionalStreamGuard current(stream_);
    if (made_) made_->block(*stream_);
    for (auto& [name, tensor] : tensors) tensor = tensor.cpu();
  }

 private:
  std::optional<c10::Event> made_;
  const std::optional<c10::Stream> stream_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string dir, int64_t keep, bool behind)
    : dir_(std::move(dir)), keep_(keep), behind_(behind) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::save(Checkpoint checkpoint) {
  wait();
  if (!behind_) return save_checkpoint(dir_, checkpoint, keep_);
  if (const at::Device device = device_of(checkpoint); !device.is_cpu() && !side_) {
    side_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  detach_from_run(checkpoint.trainables);
  detach_from_run(checkpoint.moments);
  auto side = std::make_shared<SideStream>(side_);
  thread_ = std::thread([this, side, taken = std::move(checkpoint)]() mutable {
    try {
      side->enter();
      side->bring_to_host(taken.trainables);
      side->bring_to_host(taken.moments);
      save_checkpoint(dir_, taken, keep_);
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lft::checkpoint
