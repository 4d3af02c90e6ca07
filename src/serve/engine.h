// Answers of many requests at once: a queue, and one thread that decodes up to so many of them
// together, each joining as soon as there is a place.
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

/// What one request gets: written by the engine, read by the thread that answers its client.
class Answer {
 public:
  struct News {
    std::vector<int64_t> ids;  // new ones
    bool ended = false, by_limit = false, by_end_token = false;
    std::optional<Error> error;  // ended by it
  };
  /// What came since the last call; after `time` without any, nothing.
  News wait(std::chrono::milliseconds time);
  /// Nobody waits any more; the engine leaves it out from its next token on.
  void cancel() { cancelled_ = true; }

 private:
  friend class Engine;
  void add(int64_t id);
  void end(const infer::Ended& how, std::optional<Error> error = {});

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  std::atomic<bool> cancelled_ = false;
};

struct EngineLimits {
  size_t batch = 8;    // answers that grow together
  size_t queue = 256;  // requests that wait
};

class Engine {
 public:
  /// `model` and `encode` must outlive it, and nobody else uses the model meanwhile.
  Engine(family::Model& model, const data::EncodeOptions& encode, at::ScalarType compute,
         const EngineLimits& limits);
  /// What is open or waits ends with an error.
  ~Engine();
  Engine(const Engine&) = delete;
  /// Null: the queue is full. options.on_token is the engine's own.
  std::shared_ptr<Answer> ask(data::Sample prompt, infer::GenerateOptions options);

 private:
  struct Waiting {
    data::Sample prompt;
    infer::GenerateOptions options;
    std::shared_ptr<Answer> answer;
  };
  void run();
  /// Those that wait and have a place, as far as padding them to one length does not double their
  /// positions; waits for one where no answer is open. None at the end.
  std::vector<Waiting> next();
  void begin(std::vector<Waiting> requests);
  void end(const std::vector<infer::Ended>& ended);
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
