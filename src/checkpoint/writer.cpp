#include "src/checkpoint/writer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace lft {
namespace {

/// Copies that nobody else writes to, where the tensors live: on a GPU a moment's work, so that the next step need not wait for the way to
/// the host.
void detach_from_run(std::map<std::string, at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
}

at::Device device_of(const Checkpoint& checkpoint) {
  return checkpoint.trainables.empty() ? at::Device(at::kCPU) : checkpoint.trainables.begin()->second.device();
}

/// A stream beside the one that trains, which waits until the copies of detach_from_run() are made.
class SideStream {
 public:
  explicit SideStream(at::Device device) {
    if (device.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    made_.emplace(device.type());
    made_->record(guard.getStream(device));
    stream_ = guard.getStreamFromGlobalPool(device);
  }
  void bring_to_host(std::map<std::string, at::Tensor>& tensors) {
    const c10::OptionalStreamGuard current(stream_);
    if (made_) made_->block(*stream_);
    for (auto& [name, tensor] : tensors) tensor = tensor.cpu();
  }

 private:
  std::optional<c10::Event> made_;
  std::optional<c10::Stream> stream_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string dir, int64_t keep, bool behind) : dir_(std::move(dir)), keep_(keep), behind_(behind) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::save(Checkpoint checkpoint) {
  wait();
  if (!behind_) return save_checkpoint(dir_, checkpoint, keep_);
  detach_from_run(checkpoint.trainables);
  detach_from_run(checkpoint.moments);
  auto side = std::make_shared<SideStream>(device_of(checkpoint));
  thread_ = std::thread([this, side, taken = std::move(checkpoint)]() mutable {
    try {
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

}  // namespace lft
