// Takes the connections of all clients and reads their requests, in one thread that waits for none
// of them: a request is handed over when it is there as a whole, or refused when it cannot be. An
// idle connection, and one that sends slowly, costs a file descriptor and what it has sent.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/serve/request_frame.h"

namespace lft::serve {

struct AcceptLimits {
  FrameLimits request;
  std::chrono::milliseconds request_time{30'000};  // from its first byte to its last
  std::chrono::milliseconds idle{75'000};          // between two requests: longer than clients wait
  size_t connections = 1024;       // one more ends the one that has been idle the longest
  size_t held_bytes = 512u << 20;  // of all requests, until they are answered
};

/// A connected socket, closed at the end.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Bytes of requests, counted together.
class HeldBytes {
 public:
  explicit HeldBytes(std::atomic<size_t>& all) : all_(&all) {}
  HeldBytes(HeldBytes&& other) noexcept
      : all_(other.all_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&&) = delete;
  /// Gives them back; to the system, too, where they are many.
  ~HeldBytes();
  /// Counts as many as these; false: together they are more than `most`.
  bool set(size_t bytes, size_t most);

 private:
  std::atomic<size_t>* all_;
  size_t bytes_ = 0;
};

/// A client whose request has come, or is refused.
struct Arrived {
  Socket socket;
  HeldBytes held;
  FramedRequest request;  // of a refused one empty
  std::string rest;       // what the client has sent after it
  Refusal refusal;
};

class Acceptor {
 public:
  /// `take` is called by the thread of run() and must not wait.
  Acceptor(const AcceptLimits& limits, std::function<void(Arrived)> take);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  /// Accepts at this listening socket until stop(). Connections without a whole request are closed
  /// then.
  void run(int listener);
  void stop();
  /// Of any thread: the client is answered, and may send its next request; `rest` has come of it.
  /// After stop() the connection is closed.
  void give_back(Socket socket, std::string rest);
  /// The same of a client that is not read from any more. What it still sends is thrown away for a
  /// while, since to close at once would take the answer from it.
  void let_go(Socket socket);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    Client(Socket socket, std::string bytes, std::chrono::milliseconds time,
           const AcceptLimits& limits, std::atomic<size_t>& held);
    Socket socket;
    std::string bytes;
    RequestFrame frame;
    HeldBytes held;
    Clock::time_point deadline;
    bool leaves = false;  // is let go of: its bytes are dropped
    size_t dropped = 0;
    bool ended = false;
  };

  void wake() const;
  void add_returned(std::unique_ptr<Client> client);
  void take_returned();
  void accept_all(int listener);
  void make_room();
  void read(Client& client);
  void look(Client& client);
  void drop(Client& client, size_t bytes) const;
  void refuse(Client& client, Refusal refusal);
  void hand_over(Client& client, Refusal refusal);
  void end_late();
  int time_left() const;

  const AcceptLimits limits_;
  const std::function<void(Arrived)> take_;
  const int wake_;
  std::atomic<bool> stops_ = false;
  std::atomic<size_t> held_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;  // of run()'s thread alone
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> returned_;
};

}  // namespace lft::serve
