// Accepts the connections of all clients and reads their requests in one thread without blocking: a
// request is passed on when it is complete, or rejected. An idle or slow connection costs a file
// descriptor and the bytes that it has sent.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/serve/request_frame.h"

namespace lft::serve {

struct AcceptLimits {
  FrameLimits request;
  std::chrono::milliseconds request_time{30'000};  // from its first byte to its last
  std::chrono::milliseconds idle{75'000};  // between two requests: longer than clients' timeouts
  size_t connections = 1024;               // one more closes the one idle for the longest time
  size_t held_bytes = 512u << 20;          // total of all unanswered requests
};

/// A connected socket, closed by its destructor.
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

/// The total size of requests.
class HeldBytes {
 public:
  explicit HeldBytes(std::atomic<size_t>& all) : all_(&all) {}
  HeldBytes(HeldBytes&& other) noexcept
      : all_(other.all_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&&) = delete;
  /// Releases them, also to the system if there are many.
  ~HeldBytes();
  /// Adds this number of bytes; false if the total would exceed `most`.
  bool set(size_t bytes, size_t most);

 private:
  std::atomic<size_t>* all_;
  size_t bytes_ = 0;
};

/// A client with a complete or rejected request.
struct Arrived {
  Socket socket;
  HeldBytes held;
  FramedRequest request;  // empty if rejected
  std::string rest;       // bytes that the client has sent after it
  Refusal refusal;
};

class Acceptor {
 public:
  /// The thread of run() calls `take`, which must not block.
  Acceptor(const AcceptLimits& limits, std::function<void(Arrived)> take);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  /// Accepts on this listening socket until stop(). Then it closes the socket, takes requests that
  /// arrive within half a second on open connections, and closes the others.
  void run(int listener);
  void stop();
  /// Thread-safe. The client has its response and may send the next request, of which `rest` has
  /// been received. After stop() the connection is closed.
  void give_back(Socket socket, std::string rest);
  /// As above, for a client that is no longer read. Its further bytes are discarded for a while,
  /// since closing immediately could lose the response.
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
    bool leaves = false;  // is being closed: its bytes are discarded
    size_t dropped = 0;
    bool ended = false;
  };

  void wake() const;
  void wait_and_read(int listener);
  void drop_ended();
  void add_returned(std::unique_ptr<Client> client);
  void take_returned();
  void accept_all(int listener);
  void make_room();
  void read(Client& client);
  void take_bytes(Client& client, std::string_view bytes);
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
  std::vector<std::unique_ptr<Client>> clients_;  // used only by the thread of run()
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> returned_;
};

}  // namespace lft::serve
