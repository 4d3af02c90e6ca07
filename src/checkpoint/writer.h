// Saves checkpoints in the background: the next step runs during the disk writes.
#pragma once
#include <c10/core/Stream.h>

#include <optional>
#include <string>
#include <thread>

#include "src/checkpoint/checkpoint.h"

namespace lft::checkpoint {

class CheckpointWriter {
 public:
  /// dir and keep as in save_checkpoint. `behind`: save() only copies the tensors on their device
  /// and returns; else it writes first.
  CheckpointWriter(std::string dir, int64_t keep, bool behind);
  ~CheckpointWriter();  // waits for a pending write; its error is lost, so call wait() first
  CheckpointWriter(const CheckpointWriter&) = delete;

  /// One write at a time: waits for the previous one, and throws its error.
  void save(Checkpoint checkpoint);
  /// Waits until everything is on disk; throws the error of the pending write once.
  void wait();

 private:
  const std::string dir_;
  const int64_t keep_;
  const bool behind_;
  std::optional<c10::Stream> side_;  // of a GPU, permanent: LibTorch's pool has 32, and the
                                     // training stream is one of them
  std::thread thread_;
  std::exception_ptr error_;
};

}  // namespace lft::checkpoint
