#include "src/dist/ranks.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/sum_tree.h"
#include "src/base/text.h"
#include "src/dist/groups.h"
#include "src/dist/lost_rank_report.h"
#include "src/dist/nccl.h"

namespace lft::dist {
namespace {

std::atomic<bool> broken = false;

/// The header of every message; includes a short text.
struct Frame {
  static constexpr size_t kBytes = 1024;
  uint8_t kind = 0;  // Ranks::Message
  uint8_t unused[7] = {};
  int64_t size = 0;
  char text[kBytes - 16] = {};
};
static_assert(sizeof(Frame) == Frame::kBytes);

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string error_text(const Error& error) {
  const ErrorInfo& info = error.info();
  return nlohmann::json({{"kind", static_cast<int>(error.kind())},
                         {"what", info.what},
                         {"where", info.where},
                         {"found", info.found},
                         {"expected", info.expected},
                         {"next", info.next}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Error error_from(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return Error(
      static_cast<ErrorKind>(json.at("kind").get<int>()),
      {json.at("what"), json.at("where"), json.at("found"), json.at("expected"), json.at("next")});
}

std::string words_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch == nullptr ? error.what() : torch->what_without_backtrace();
  // "[file:line] What happened. Its explanation": the source line is cut off.
  if (const size_t end = text.find("] "); text.starts_with("[") && end != std::string::npos)
    text.erase(0, end + 2);
  return text.substr(0, text.find('\n'));
}

std::string host_key(int64_t rank) { return "host/" + std::to_string(rank); }

/// Waits until every process has registered. kResource with those that have not.
void wait_for_all(c10d::Store& store, const Place& place, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    std::vector<std::string> missing;
    for (int64_t rank = 0; rank < place.ranks; ++rank) {
      if (!store.check({host_key(rank)})) missing.push_back(std::to_string(rank));
    }
    if (missing.empty()) return;
    if (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    refuse(ErrorKind::kResource, "some processes of the run did not join",
           place.address + ":" + std::to_string(place.port), "no rank " + join(missing),
           std::to_string(place.ranks) + " processes within " +
               std::to_string(patience.count() / 1000) + " s",
           "start all of them (in a batch script by srun), and look at how those ended that were "
           "started");
  }
}

std::vector<at::Tensor> slices(const at::Tensor& flat, int64_t count) {
  return flat.view({count, -1}).unbind(0);
}

/// Adds all parts into the first, in the order of the tree.
void add_up(std::vector<at::Tensor>& parts, Range range) {
  if (range.size() <= 1) return;
  const int64_t middle = middle_of(range);
  add_up(parts, {range.begin, middle});
  add_up(parts, {middle, range.end});
  if (middle < range.end)
    parts[static_cast<size_t>(range.begin)].add_(parts[static_cast<size_t>(middle)]);
}

void add_up(std::vector<at::Tensor>& parts) {
  add_up(parts, {0, static_cast<int64_t>(parts.size())});
}

}  // namespace

struct Ranks::State {
  Place place;
  StorePtr store;
  GroupPtr gloo, data;  // data: NCCL, for GPUs
  std::vector<std::string> hosts;
  std::unique_ptr<Heartbeat> heartbeat;
  std::chrono::milliseconds timeout;
  std::optional<Error> ended;  // no message is exchanged after it, or after a stop
  int stop = 0;                // the signal
  std::optional<Failure> failure;

  c10d::Backend& group_of(const at::Tensor& tensor) const {
    return *(data && !tensor.device().is_cpu() ? data : gloo);
  }
  at::Tensor gather(const at::Tensor& own) const {
    at::Tensor all = at::empty({place.ranks, own.numel()}, own.options());
    at::Tensor in = own.view(-1);
    at::Tensor out = all.view(-1);
    complete(group_of(own)._allgather_base(out, in));
    return all;
  }
  /// Returns when the transfer has ended, so that nothing is updated with the result of one that a
  /// lost rank left incomplete: on GPUs wait() alone makes only the stream wait. Throws after the
  /// timeout.
  void complete(const c10::intrusive_ptr<c10d::Work>& work) const {
    work->wait();
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!work->isCompleted()) {
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error("Timed out waiting for a transfer between GPUs");
      usleep(20);
    }
    if (work->exception()) std::rethrow_exception(work->exception());
  }
};

Ranks::Ranks(const Place& place, std::chrono::milliseconds patience)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.place = place;
  state.timeout = patience;
  state.store = open_store(place, patience);
  state.heartbeat = std::make_unique<Heartbeat>(another(state.store), place.rank);
  state.store->set(host_key(place.rank), host_name());
  wait_for_all(*state.store, place, patience);
  for (int64_t rank = 0; rank < place.ranks; ++rank)
    state.hosts.push_back(state.store->get_to_str(host_key(rank)));
  state.gloo = open_gloo(state.store, place, patience);
}

Ranks::Ranks() = default;

Ranks::~Ranks() {
  if (!broken || !state_) return;
  State& state = *state_;
  if (first() && !state.place.agent_store && state.failure)
    wait_until_heard(state.store, *state.failure, state.timeout);
  (void)state_.release();  // its threads may wait forever
}

int64_t Ranks::rank() const { return state_ ? state_->place.rank : 0; }
int64_t Ranks::size() const { return state_ ? state_->place.ranks : 1; }

void Ranks::set_timeout(std::chrono::milliseconds timeout) {
  if (!state_) return;
  state_->timeout = timeout;
  state_->gloo->setTimeout(timeout);
}

void Ranks::at(const std::string& phase) {
  if (state_) state_->heartbeat->at(phase);
}

void Ranks::lost(const std::exception& error) {
  State& state = *state_;
  broken = true;
  if (state.data) state.data->abort();
  Failure failure{.rank = rank(),
                  .hosts = state.hosts,
                  .first_of_its_machine = state.place.local_rank == 0,
                  .timed_out = std::string(error.what()).find("imed out") != std::string::npos,
                  .what = words_of(error)};
  const Finding finding = find_lost(state.store, failure);
  state.failure = std::move(failure);
  if (first()) state.gloo.reset();  // processes that wait for this one notice it now
  if (finding.speaks) be_quiet(false);
  state.ended = RankLost(finding.info);
  throw RankLost(finding.info);
}

std::vector<std::string> Ranks::talk(const std::string& mine, Message kind) {
  State& state = *state_;
  state.heartbeat->waits(true);
  std::vector<std::string> texts(static_cast<size_t>(size()));
  std::optional<size_t> ends;
  Message how = Message::kText;
  try {
    const auto bytes = [](int64_t count) { return at::zeros({count}, at::kByte); };
    at::Tensor own = bytes(Frame::kBytes);
    auto* frame = reinterpret_cast<Frame*>(own.mutable_data_ptr());
    frame->kind = static_cast<uint8_t>(kind);
    frame->size = static_cast<int64_t>(mine.size());
    std::memcpy(frame->text, mine.data(), std::min(mine.size(), sizeof frame->text));
    const at::Tensor all = state.gather(own);
    const auto* frames = reinterpret_cast<const Frame*>(all.const_data_ptr());
    int64_t longest = 0;
    for (size_t i = 0; i < texts.size(); ++i) longest = std::max(longest, frames[i].size);
    at::Tensor long_texts;
    if (longest > static_cast<int64_t>(sizeof frame->text)) {
      at::Tensor text = bytes(longest);
      std::memcpy(text.mutable_data_ptr(), mine.data(), mine.size());
      long_texts = state.gather(text);
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const char* from = long_texts.defined()
                             ? static_cast<const char*>(long_texts.const_data_ptr()) +
                                   static_cast<int64_t>(i) * longest
                             : frames[i].text;
      texts[i].assign(from, static_cast<size_t>(frames[i].size));
      if (ends || static_cast<Message>(frames[i].kind) == Message::kText) continue;
      ends = i;
      how = static_cast<Message>(frames[i].kind);
    }
  } catch (const std::exception& exception) {
    lost(exception);
  }
  state.heartbeat->waits(false);
  if (how == Message::kStop) throw Stopped(state.stop = std::stoi(texts[*ends]));
  if (how == Message::kError) {
    state.ended = error_from(texts[*ends]);
    throw Error(*state.ended);
  }
  return texts;
}

std::vector<std::string> Ranks::exchange(const std::string& mine) {
  if (!state_) return {mine};
  if (state_->ended) throw Error(*state_->ended);
  return talk(mine, Message::kText);
}

std::string Ranks::from_first(const std::string& text) {
  return exchange(first() ? text : std::string()).front();
}

Error Ranks::failed(const Error& own) {
  if (!state_ || state_->ended) return own;
  try {
    if (first()) say_that_first_comes(*state_->store);
    talk(error_text(own), Message::kError);
  } catch (const Error& agreed) {
    return agreed;
  } catch (const std::exception&) {  // the store has ended
  }
  return own;
}

int Ranks::stopped(int signal) {
  if (!state_) return signal;
  if (state_->stop != 0) return state_->stop;
  try {
    if (first()) say_that_first_comes(*state_->store);
    talk(std::to_string(signal), Message::kStop);
  } catch (const Stopped& agreed) {
    return agreed.signal;
  }
  return signal;
}

void Ranks::open_data_group(at::Device device) {
  if (state_ && talks_by_nccl(device))
    state_->data = open_nccl(state_->store, state_->place, state_->timeout);
}

void Ranks::broadcast(at::Tensor tensor) {
  if (!state_) return;
  State& state = *state_;
  if (!state.data && !tensor.device().is_cpu()) {
    at::Tensor host = tensor.cpu();
    broadcast(host);
    tensor.copy_(host);
    return;
  }
  state.heartbeat->waits(true);
  try {
    std::vector<at::Tensor> tensors = {tensor.view(-1).view(at::kByte)};
    state.complete(state.group_of(tensor).broadcast(tensors));
  } catch (const std::exception& error) {
    lost(error);
  }
  state.heartbeat->waits(false);
}

void Ranks::sum(at::Tensor flat) {
  if (!state_) return;
  State& state = *state_;
  if (!state.data && !flat.device().is_cpu()) {
    at::Tensor host = flat.cpu();
    sum(host);
    flat.copy_(host);
    return;
  }
  const int64_t slice = flat.numel() / size(), rest = flat.numel() % size();
  state.heartbeat->waits(true);
  try {
    if (slice > 0) {
      at::Tensor all = flat.narrow(0, 0, slice * size()), received = at::empty_like(all);
      std::vector<int64_t> even;
      state.group_of(flat).alltoall_base(received, all, even, even)->wait();
      std::vector<at::Tensor> parts = slices(received, size());
      add_up(parts);
      state.complete(state.group_of(flat)._allgather_base(all, parts.front()));
    }
    if (rest > 0) {
      at::Tensor tail = flat.narrow(0, slice * size(), rest);
      std::vector<at::Tensor> parts = state.gather(tail.contiguous()).unbind(0);
      add_up(parts);
      tail.copy_(parts.front());
    }
  } catch (const std::exception& error) {
    lost(error);
  }
  state.heartbeat->waits(false);
}

void Ranks::await_first() {
  if (!state_) return;
  State& state = *state_;
  if (first()) return say_that_first_comes(*state.store);
  if (!dist::await_first(state.store, state.timeout))
    lost(std::runtime_error("Timed out waiting for a sign of rank 0"));
}

void Ranks::leave() {
  if (!state_) return;
  State& state = *state_;
  const std::string key = "gone";
  try {
    if (state.data) state.data->shutdown();
    if (state.place.agent_store) return;
    state.store->add(key, 1);
    constexpr int kMostPauses = 500;
    for (int i = 0; first() && i < kMostPauses && state.store->add(key, 0) < size(); ++i)
      usleep(10'000);
  } catch (const std::exception&) {  // the other side has already left
  }
}

Ranks& alone() {
  static Ranks ranks;
  return ranks;
}

bool group_is_broken() { return broken; }

}  // namespace lft::dist
