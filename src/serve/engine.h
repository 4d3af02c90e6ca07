// Answers many requests: a queue, and one thread that decodes several of them together; a request
// joins as soon as there is a slot.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/common/error.h"
#include "src/infer/decoding.h"

namespace lft::serve {

/// The state of one answer: written by the engine, read by the thread that serves its client.
class Answer {
 public:
  struct Update {
    std::vector<int64_t> ids;  // new ids
    bool ended = false, by_limit = false, by_end_token = false;
    std::optional<Error> error;  // the error that ended it
  };
  /// The updates since the last call, or nothing after `time`.
  Update wait(std::chrono::milliseconds time);
  /// Cancels the answer; the engine stops it at the next token.
  void cancel() { cancelled_ = true; }

 private:
  friend class Engine;
  void add(int64_t id);
  void end(const infer::FinishedAnswer& how, std::optional<Error> error = {});

  std::mutex mutex_;
  std::condition_variable changed_;
  Update update_;
  std::atomic<bool> cancelled_ = false;
};

struct EngineLimits {
  size_t batch = 8;    // answers that are decoded together
  size_t queue = 256;  // limit of waiting requests
};

class Engine {
 public:
  /// `model` and `encode` must outlive it, and the model must not be used elsewhere.
  Engine(family::Model& model, const data::EncodeOptions& encode, at::ScalarType compute,
         const EngineLimits& limits);
  /// Open and waiting answers end with an error.
  ~Engine();
  Engine(const Engine&) = delete;
  /// Returns null if the queue is full. The engine sets options.on_token.
  std::shared_ptr<Answer> ask(data::Sample prompt, infer::GenerateOptions options);

 private:
  struct Waiting {
    data::Sample prompt;
    infer::GenerateOptions options;
    std::shared_ptr<Answer> answer;
  };
  void run();
  /// Takes waiting requests for which there is a slot, as long as padding them to one length does
  /// not double their positions; waits for one if no answer is open. Empty at the end.
  std::vector<Waiting> next();
  void begin(std::vector<Waiting> requests);
  void end(const std::vector<infer::FinishedAnswer>& ended);
  void drop_cancelled();
  void fail_all(const Error& error);

  infer::Decoding decoding_;
  const at::ScalarType compute_;
  const EngineLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::map<size_t, std::shared_ptr<Answer>> open_;
  size_t next_key_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace lft::serve
