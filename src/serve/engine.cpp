#include "src/serve/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "src/base/log.h"

namespace lft::serve {
namespace {

Error as_error(const std::exception& thrown) {
  const auto* const known = dynamic_cast<const Error*>(&thrown);
  return known != nullptr ? *known : Error(ErrorKind::kInternal, thrown.what());
}

}  // namespace

Engine::Engine(EngineModel served, const EngineLimits& limits)
    : served_(std::move(served)), limits_(limits) {
  decodings_.reserve(served_.variants.size());
  for (const Variant& variant : served_.variants)
    decodings_.emplace_back(served_.model, *variant.encode, served_.compute);
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::shared_ptr<Answers> Engine::ask(size_t variant, const std::vector<Draw>& draws, bool scores) {
  const auto answers = std::make_shared<Answers>(draws.size());
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= limits_.queue)
      std::erase_if(waiting_, [](const Waiting& one) { return one.place.is_cancelled(); });
    if (waiting_.size() >= limits_.queue) return nullptr;
    for (size_t number = 0; number < draws.size(); ++number) {
      Draw draw = draws[number];
      const auto held = std::make_shared<infer::TokenScores>();
      draw.options.on_token = [answers, number, held](size_t, int64_t id) {
        answers->add(number, {.id = id, .scores = std::move(*held)});
      };
      if (scores) {
        draw.options.on_scores = [held](size_t, infer::TokenScores its) { *held = std::move(its); };
      }
      waiting_.push_back({std::move(draw), {answers, number}, variant});
    }
  }
  changed_.notify_one();
  return answers;
}

std::vector<Engine::Waiting> Engine::next() {
  std::unique_lock lock(mutex_);
  if (open_.empty()) changed_.wait(lock, [&] { return stops_ || !waiting_.empty(); });
  std::vector<Waiting> first;
  size_t longest = 0, sum = 0;
  while (!stops_ && !waiting_.empty() && open_.size() + first.size() < limits_.batch) {
    const Waiting& candidate = waiting_.front();
    const size_t length = candidate.draw.prompt->input_ids.size();
    longest = std::max(longest, length);
    sum += length;
    if (longest * (first.size() + 1) > 2 * sum) break;
    if (!first.empty() && first.front().variant != candidate.variant) break;
    first.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return first;
}

void Engine::attach(size_t variant) const {
  if (served_.attach) served_.attach(variant);
}

void Engine::begin(std::vector<Waiting> requests) {
  std::erase_if(requests, [](const Waiting& one) { return one.place.is_cancelled(); });
  if (requests.empty()) return;
  const size_t first = next_key_, variant = requests.front().variant;
  std::vector<infer::Decoding::Prompt> prompts;
  for (const Waiting& request : requests) {
    const size_t key = next_key_++;
    open_[key] = {request.place, variant};
    prompts.push_back(
        {.key = key, .sample = request.draw.prompt.get(), .options = request.draw.options});
  }
  try {
    attach(variant);
    end(decodings_[variant].begin(prompts));
  } catch (const std::exception& thrown) {  // only for these: the others are not affected
    for (size_t i = 0; i < requests.size(); ++i) open_.erase(first + i);
    const Error error = as_error(thrown);
    if (requests.size() > 1 && error.kind() == ErrorKind::kInput) {  // none has started
      for (Waiting& request : requests) {
        std::vector<Waiting> alone;
        alone.push_back(std::move(request));
        begin(std::move(alone));
      }
      return;
    }
    for (const Waiting& request : requests)
      request.place.answers->end(request.place.draw, {}, error);
  }
}

void Engine::step() {
  for (size_t variant = 0; variant < decodings_.size(); ++variant) {
    if (decodings_[variant].open() == 0) continue;
    try {
      attach(variant);
      end(decodings_[variant].step());
    } catch (const std::exception& thrown) {
      fail(as_error(thrown), variant);
    }
  }
}

void Engine::end(const std::vector<infer::FinishedAnswer>& ended) {
  for (const infer::FinishedAnswer& one : ended) {
    std::optional<Error> error;
    if (one.bad) {
      error = infer::non_finite_error(infer::row_text("the prompt", *one.bad, nullptr),
                                      one.bad->module, served_.compute);
      warning("a request ends with an error: " + error->info().what + ": " + error->info().found +
              " (" + error->info().where + "); " + error->info().next);
    }
    const Place& place = open_.at(one.key).place;
    place.answers->end(place.draw, one, std::move(error));
    open_.erase(one.key);
  }
}

void Engine::drop_cancelled() {
  std::erase_if(open_, [&](const auto& entry) {
    const auto& [key, open] = entry;
    if (!open.place.is_cancelled()) return false;
    decodings_[open.variant].drop(key);
    return true;
  });
}

void Engine::fail(const Error& error, std::optional<size_t> variant) {
  std::erase_if(open_, [&](const auto& entry) {
    const auto& [key, open] = entry;
    if (variant && open.variant != *variant) return false;
    decodings_[open.variant].drop(key);
    open.place.answers->end(open.place.draw, {}, error);
    return true;
  });
}

void Engine::run() {
  for (;;) {
    for (std::vector<Waiting> some = next(); !some.empty(); some = next()) begin(std::move(some));
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    drop_cancelled();
    step();
  }
  const Error stopped(ErrorKind::kResource, "the server stops");
  fail(stopped);
  const std::lock_guard lock(mutex_);
  for (const Waiting& request : waiting_)
    request.place.answers->end(request.place.draw, {}, stopped);
  waiting_.clear();
}

}  // namespace lft::serve
