// Saves checkpoints in the background: the next step runs while the disk is busy.
#pragma once
#include <c10/core/Stream.h>

#include <optional>
#include <string>
#include <thread>

#include "src/checkpoint/checkpoint.h"

namespace lft::checkpoint {

class CheckpointWriter {
 public:
  /// dir and keep as save_checkpoint takes them. `behind`: save() only copies the tensors where
  /// they live and returns; else it writes first.
  CheckpointWriter(std::string dir, int64_t keep, bool behind);
  ~CheckpointWriter();  // waits for the write under way; its error is lost, so call wait() first
  CheckpointWriter(const CheckpointWriter&) = delete;

  /// One is written at a time: waits for the one before, and throws what that failed with.
  void save(Checkpoint checkpoint);
  /// Until everything is on the disk; throws what the write under way failed with, once.
  void wait();

 private:
  const std::string dir_;
  const int64_t keep_;
  const bool behind_;
  std::optional<c10::Stream> side_;  // of a GPU, for good: LibTorch hands out 32 in turn, and the
                                     // training's own is one of them
  std::thread thread_;
  std::exception_ptr error_;
};

}  // namespace lft::checkpoint
