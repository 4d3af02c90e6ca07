// A received request as a stream for cpp-httplib: reads return its head, writes go to the client. A
// client that does not read blocks its thread only for the time of a write.
#pragma once
#include <httplib.h>

#include <chrono>
#include <string>
#include <string_view>

namespace lft::serve {

class Connection : public httplib::Stream {
 public:
  /// Uses a connected socket, which it does not close. `head` must outlive it. `write_time` is the
  /// timeout for a client that reads nothing.
  Connection(socket_t socket, std::string_view head, std::chrono::milliseconds write_time)
      : socket_(socket), head_(head), write_time_(write_time) {}

  /// Whether the client has closed its side or the connection is broken.
  bool client_left() const;

  bool is_readable() const override { return true; }
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  // Overrides the base class from cpp-httplib 0.11.4 on.
  // NOLINTNEXTLINE(modernize-use-override)
  void get_local_ip_and_port(std::string& ip, int& port) const;
  socket_t socket() const override { return socket_; }

 private:
  const socket_t socket_;
  std::string_view head_;  // the part that has not been read
  const std::chrono::milliseconds write_time_;
};

}  // namespace lft::serve
