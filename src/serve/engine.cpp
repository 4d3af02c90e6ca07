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

Answer::Update Answer::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return !update_.ids.empty() || update_.ended; });
  Update update = update_;
  update_.ids.clear();
  return update;
}

void Answer::add(int64_t id) {
  {
    const std::lock_guard lock(mutex_);
    update_.ids.push_back(id);
  }
  changed_.notify_one();
}

void Answer::end(const infer::FinishedAnswer& how, std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    update_.ended = true;
    update_.by_limit = how.by_limit;
    update_.by_end_token = how.by_end_token;
    update_.error = std::move(error);
  }
  changed_.notify_one();
}

Engine::Engine(family::Model& model, const data::EncodeOptions& encode, at::ScalarType compute,
               const EngineLimits& limits)
    : decoding_(model, encode, compute),
      compute_(compute),
      limits_(limits),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::shared_ptr<Answer> Engine::ask(data::Sample prompt, infer::GenerateOptions options) {
  const auto answer = std::make_shared<Answer>();
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= limits_.queue)
      std::erase_if(waiting_, [](const Waiting& one) { return one.answer->cancelled_.load(); });
    if (waiting_.size() >= limits_.queue) return nullptr;
    waiting_.push_back({std::move(prompt), std::move(options), answer});
  }
  changed_.notify_one();
  return answer;
}

std::vector<Engine::Waiting> Engine::next() {
  std::unique_lock lock(mutex_);
  if (open_.empty()) changed_.wait(lock, [&] { return stops_ || !waiting_.empty(); });
  std::vector<Waiting> first;
  size_t longest = 0, sum = 0;
  while (!stops_ && !waiting_.empty() && open_.size() + first.size() < limits_.batch) {
    const size_t length = waiting_.front().prompt.input_ids.size();
    longest = std::max(longest, length);
    sum += length;
    if (longest * (first.size() + 1) > 2 * sum) break;
    first.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return first;
}

void Engine::begin(std::vector<Waiting> requests) {
  std::erase_if(requests, [](const Waiting& one) { return one.answer->cancelled_.load(); });
  const size_t first = next_key_;
  std::vector<infer::Decoding::Prompt> prompts;
  for (Waiting& request : requests) {
    const size_t key = next_key_++;
    open_[key] = request.answer;
    request.options.on_token = [answer = request.answer](size_t, int64_t id) { answer->add(id); };
    prompts.push_back({.key = key, .sample = &request.prompt, .options = request.options});
  }
  try {
    end(decoding_.begin(prompts));
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
    for (const Waiting& request : requests) request.answer->end({}, error);
  }
}

void Engine::end(const std::vector<infer::FinishedAnswer>& ended) {
  for (const infer::FinishedAnswer& one : ended) {
    std::optional<Error> error;
    if (one.bad) {
      error = infer::non_finite_error(infer::row_text("the prompt", *one.bad, nullptr),
                                      one.bad->module, compute_);
      warning("a request ends with an error: " + error->info().what + ": " + error->info().found +
              " (" + error->info().where + "); " + error->info().next);
    }
    open_.at(one.key)->end(one, std::move(error));
    open_.erase(one.key);
  }
}

void Engine::drop_cancelled() {
  std::vector<size_t> dropped;
  for (const auto& [key, answer] : open_) {
    if (answer->cancelled_) dropped.push_back(key);
  }
  for (const size_t key : dropped) {
    decoding_.drop(key);
    open_.erase(key);
  }
}

void Engine::fail_all(const Error& error) {
  for (const auto& [key, answer] : open_) {
    decoding_.drop(key);
    answer->end({}, error);
  }
  open_.clear();
}

void Engine::run() {
  for (;;) {
    for (std::vector<Waiting> some = next(); !some.empty(); some = next()) begin(std::move(some));
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    try {
      drop_cancelled();
      end(decoding_.step());
    } catch (const std::exception& thrown) {
      fail_all(as_error(thrown));
    }
  }
  const Error stopped(ErrorKind::kResource, "the server stops");
  fail_all(stopped);
  const std::lock_guard lock(mutex_);
  for (const Waiting& request : waiting_) request.answer->end({}, stopped);
  waiting_.clear();
}

}  // namespace lft::serve
