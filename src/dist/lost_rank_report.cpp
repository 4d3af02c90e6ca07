#include "src/dist/lost_rank_report.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "src/base/text.h"
#include "src/dist/groups.h"

namespace lft::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The time in which a living process sends a heartbeat, even on a busy machine.
constexpr milliseconds kSilence{1500};
constexpr milliseconds kPause{100};
constexpr const char *kVerdict = "verdict", *kFirstComes = "first comes";

std::string note_key(int64_t rank) { return "left/" + std::to_string(rank); }
std::string heard_key(int64_t rank) { return "heard/" + std::to_string(rank); }

/// The last known phase of a process, for a message.
std::string seen(const Failure& failure, int64_t rank, const Beat& beat) {
  return "rank " + std::to_string(rank) + " on " + failure.hosts[static_cast<size_t>(rank)] +
         (beat.phase.empty() ? "" : ", last seen in " + beat.phase);
}

ErrorInfo describe(const Failure& failure, const std::vector<std::string>& who, bool silent) {
  ErrorInfo info;
  info.what = silent ? (failure.timed_out ? "a process of the run does not answer"
                                          : "a process of the run is gone")
                     : "the processes of the run have lost each other";
  info.where = join(who, "; ");
  info.found = failure.what;
  info.next =
      "look at how that process ended (memory, a signal, its machine), or raise dist.timeout_s "
      "where it was only slow; --resume continues from the last checkpoint";
  return info;
}

/// The heartbeats of all other processes.
std::vector<Beat> read_beats(c10d::Store& store, const Failure& failure) {
  std::vector<Beat> beats(failure.hosts.size());
  for (size_t rank = 0; rank < beats.size(); ++rank) {
    if (static_cast<int64_t>(rank) != failure.rank)
      beats[rank] = read_beat(store, static_cast<int64_t>(rank));
  }
  return beats;
}

/// The part of rank 0.
Finding look(c10d::Store& store, const Failure& failure) {
  const std::vector<Beat> before = read_beats(store, failure);
  std::this_thread::sleep_for(kSilence);
  const std::vector<Beat> after = read_beats(store, failure);
  std::vector<std::string> silent, busy;
  for (size_t i = 0; i < after.size(); ++i) {
    const auto rank = static_cast<int64_t>(i);
    if (rank == failure.rank || store.check({note_key(rank)})) continue;
    if (before[i].count == after[i].count) {
      silent.push_back(seen(failure, rank, after[i]));
    } else if (!after[i].waits) {
      busy.push_back(seen(failure, rank, after[i]));
    }
  }
  const bool found = !silent.empty() || !busy.empty();
  return {.info = describe(failure, silent.empty() ? busy : silent, found), .speaks = true};
}

void announce(c10d::Store& store, const ErrorInfo& info) {
  store.set(kVerdict, nlohmann::json({info.what, info.where, info.found, info.expected, info.next})
                          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

ErrorInfo announced(c10d::Store& store) {
  const auto parts =
      nlohmann::json::parse(store.get_to_str(kVerdict)).get<std::vector<std::string>>();
  return {parts.at(0), parts.at(1), parts.at(2), parts.at(3), parts.at(4)};
}

Finding without_first(const Failure& failure, const Beat& beat, bool speaks) {
  return {.info = describe(failure, {seen(failure, 0, beat)}, /*silent=*/true), .speaks = speaks};
}

/// The first process that has noticed the same failure.
bool is_first_left(c10d::Store& store, const Failure& failure) {
  for (int64_t rank = 1; rank < failure.rank; ++rank) {
    if (store.check({note_key(rank)})) return false;
  }
  return true;
}

/// The part of the other ranks. `alive` is updated while the store answers.
Finding wait_for_first(c10d::Store& store, const Failure& failure, std::atomic<Clock::rep>& alive) {
  store.set(note_key(failure.rank), std::string("1"));
  Beat beat = read_beat(store, 0);
  for (Clock::time_point seen_at = Clock::now(); Clock::now() - seen_at < kSilence + kSilence;) {
    if (store.check({kVerdict})) {
      Finding finding{.info = announced(store), .speaks = false};
      store.set(heard_key(failure.rank), std::string("1"));
      return finding;
    }
    const Beat now = read_beat(store, 0);
    if (now.count != beat.count) seen_at = Clock::now();
    beat = now;
    alive = Clock::now().time_since_epoch().count();
    std::this_thread::sleep_for(kPause);
  }
  return without_first(failure, beat, is_first_left(store, failure));
}

}  // namespace

Finding find_lost(StorePtr store, const Failure& failure) {
  struct Shared {
    std::promise<Finding> finding;
    std::atomic<Clock::rep> alive = Clock::now().time_since_epoch().count();
  };
  const auto shared = std::make_shared<Shared>();
  std::future<Finding> finding = shared->finding.get_future();
  // A store whose process is stopped answers no call: the calls run in a thread that is abandoned.
  std::thread([store, failure, shared] {
    try {
      Finding found = failure.rank == 0 ? look(*store, failure)
                                        : wait_for_first(*store, failure, shared->alive);
      if (failure.rank == 0) announce(*store, found.info);
      shared->finding.set_value(std::move(found));
    } catch (const std::exception&) {
      shared->finding.set_exception(std::current_exception());
    }
  }).detach();
  const auto answers = [&] {
    const Clock::time_point alive{Clock::duration(shared->alive.load())};
    return Clock::now() - alive < kSilence + kSilence;
  };
  while (finding.wait_for(milliseconds(20)) != std::future_status::ready && answers()) {
  }
  if (finding.wait_for(milliseconds(0)) == std::future_status::ready) {
    try {
      return finding.get();
    } catch (const std::exception&) {  // the process that ran the store has ended
    }
  }
  if (failure.rank == 0) return {.info = describe(failure, {}, /*silent=*/false), .speaks = true};
  const bool elsewhere = failure.first_of_its_machine &&
                         failure.hosts[static_cast<size_t>(failure.rank)] != failure.hosts.front();
  return without_first(failure, {}, failure.rank == 1 || elsewhere);
}

void wait_until_heard(StorePtr store, const Failure& failure, milliseconds patience) {
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> all = done->get_future();
  std::thread([store, failure, done] {
    try {
      std::vector<Beat> before = read_beats(*store, failure);
      for (bool waits = true; waits;) {
        std::this_thread::sleep_for(kSilence);
        const std::vector<Beat> after = read_beats(*store, failure);
        waits = false;
        for (size_t i = 0; i < after.size(); ++i) {
          const auto rank = static_cast<int64_t>(i);
          waits |= rank != failure.rank && after[i].count != before[i].count &&
                   !store->check({heard_key(rank)});
        }
        before = after;
      }
    } catch (const std::exception&) {  // no process is left to read it
    }
    done->set_value();
  }).detach();
  all.wait_for(patience);
}

bool await_first(StorePtr store, milliseconds patience) {
  struct Shared {
    std::atomic<bool> comes = false;
    std::atomic<Clock::rep> alive = Clock::now().time_since_epoch().count();
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([store, shared] {  // as in find_lost()
    try {
      const StorePtr own = another(store);
      for (Beat beat; !own->check({kFirstComes}); std::this_thread::sleep_for(kPause)) {
        const Beat now = read_beat(*own, 0);
        if (now.count != beat.count) shared->alive = Clock::now().time_since_epoch().count();
        beat = now;
      }
    } catch (const std::exception&) {  // rank 0 has ended: the next call to it fails
    }
    shared->comes = true;
  })
      .detach();
  const auto silent = [&] {
    return Clock::now() - Clock::time_point{Clock::duration(shared->alive.load())};
  };
  while (!shared->comes && silent() < patience) std::this_thread::sleep_for(milliseconds(20));
  return shared->comes;
}

void say_that_first_comes(c10d::Store& store) { store.set(kFirstComes, std::string("1")); }

}  // namespace lft::dist
