// Answers many requests: a queue, and one thread that decodes several of them together; a request
// joins as soon as there is a slot.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/encode_options.h"
#include "src/infer/decoding.h"
#include "src/serve/answer.h"

namespace lft::serve {

/// A model with one of its adapters, or without, under the name that requests use.
struct Variant {
  std::string name;
  const data::EncodeOptions* encode = nullptr;
};

/// Everything must outlive the engine, which has sole use of the model.
struct EngineModel {
  family::Model& model;
  std::vector<Variant> variants;       // at least one
  std::function<void(size_t)> attach;  // makes the model compute this variant; null: there is one
  at::ScalarType compute = at::kFloat;
};

struct EngineLimits {
  size_t batch = 8;    // answers that are decoded together
  size_t queue = 256;  // limit of waiting answers
};

/// An answer to be drawn; a prompt may be shared.
struct Draw {
  std::shared_ptr<const data::Sample> prompt;
  infer::GenerateOptions options;
};

/// Answers of one variant share a step of decoding; the variants take turns.
class Engine {
 public:
  Engine(EngineModel served, const EngineLimits& limits);
  /// Open and waiting answers end with an error.
  ~Engine();
  Engine(const Engine&) = delete;
  /// Returns null if the queue is full. The draws of one request are accepted together. With
  /// `scores` the log-probabilities of each token are computed. The engine sets the callbacks of
  /// the options.
  std::shared_ptr<Answers> ask(size_t variant, const std::vector<Draw>& draws, bool scores);

 private:
  struct Place {
    std::shared_ptr<Answers> answers;
    size_t draw = 0;
    bool is_cancelled() const { return answers->is_cancelled(draw); }
  };
  struct Waiting {
    Draw draw;
    Place place;
    size_t variant = 0;
  };
  void run();
  /// Takes waiting requests of one variant for which there is a slot, as long as padding them to
  /// one length does not double their positions; waits for one if no answer is open. Empty at the
  /// end.
  std::vector<Waiting> next();
  void begin(std::vector<Waiting> requests);
  void step();
  void attach(size_t variant) const;
  void end(const std::vector<infer::FinishedAnswer>& ended);
  void drop_cancelled();
  /// Ends the open answers of a variant, or of all.
  void fail(const Error& error, std::optional<size_t> variant = {});

  const EngineModel served_;
  const EngineLimits limits_;
  std::vector<infer::Decoding> decodings_;  // one for each variant
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  struct Open {
    Place place;
    size_t variant = 0;
  };
  std::map<size_t, Open> open_;
  size_t next_key_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace lft::serve
