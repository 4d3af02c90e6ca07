// The state of a request's answers: written by the engine, read by the thread that serves its
// client.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/common/error.h"
#include "src/infer/decoding.h"

namespace lft::serve {

struct NewToken {
  int64_t id = 0;
  infer::TokenScores scores = {};  // if the request wants them
};

/// One answer or several, which are called draws and are numbered from 0.
class Answers {
 public:
  explicit Answers(size_t draws) : updates_(draws), cancelled_(draws) {}

  /// What happened to a draw since the last call; `ended` and the values after it are kept.
  struct Update {
    std::vector<NewToken> tokens = {};
    bool ended = false, by_limit = false, by_end_token = false;
    std::optional<Error> error = {};  // the error that ended it
  };
  /// The updates of all draws; without news after `time`.
  std::vector<Update> wait(std::chrono::milliseconds time);
  /// The engine stops the draw, or all of them, at the next token.
  void cancel(size_t draw) { cancelled_[draw] = true; }
  void cancel();

  // For the engine.
  bool is_cancelled(size_t draw) const { return cancelled_[draw]; }
  void add(size_t draw, NewToken token);
  void end(size_t draw, const infer::FinishedAnswer& how, std::optional<Error> error = {});

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_news_ = false;
  std::vector<Update> updates_;
  std::vector<std::atomic<bool>> cancelled_;
};

}  // namespace lft::serve
