// One connection of a client as a stream whose whole life is bounded: time for a request to come
// in, time for each write, bytes before the body. What a slow or endless client can hold is a
// thread for that long, and no memory.
#pragma once
#include <httplib.h>

#include <chrono>
#include <string>

namespace lft::serve {

struct ConnectionLimits {
  std::chrono::milliseconds request{30'000};  // from the first byte to the end of the body
  std::chrono::milliseconds idle{5'000};      // for the first byte, on an open connection
  std::chrono::milliseconds write{30'000};    // without a byte taken by the client
  size_t head_bytes = 32u << 10;              // request line and headers
};

class Connection : public httplib::Stream {
 public:
  /// Of a connected socket, which it does not close.
  Connection(socket_t socket, const ConnectionLimits& limits);

  /// Waits for the first byte of a request; false: none came in time, or the client has left.
  bool wait_for_request();
  /// The head is read: what comes now is the body.
  void head_is_read() { in_head_ = false; }
  /// Why no more was read: the status of what the client is told, 408 or 431; 0: nothing like it.
  int refusal() const { return refusal_; }
  /// Whether the client has closed its side or the connection is broken.
  bool client_left() const;
  /// Says no more, and reads what the client still sends, for a while: closing before would take
  /// the answer from it.
  void linger();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  // Of the base class from cpp-httplib 0.11.4 on.
  // NOLINTNEXTLINE(modernize-use-override)
  void get_local_ip_and_port(std::string& ip, int& port) const;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  const socket_t socket_;
  const ConnectionLimits limits_;
  Clock::time_point deadline_;
  size_t head_read_ = 0;
  bool in_head_ = true;
  int refusal_ = 0;
  std::string buffer_;  // read ahead of who asks
  size_t taken_ = 0;
};

}  // namespace lft::serve
