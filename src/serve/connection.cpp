#include "src/serve/connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lft::serve {
namespace {

using std::chrono::milliseconds;

/// Whether one of `events`, or an end, came in time.
bool wait_for(socket_t socket, short events, milliseconds time) {
  pollfd watched{.fd = socket, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&watched, 1, static_cast<int>(std::max<int64_t>(0, time.count())));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void name_of(const sockaddr_storage& address, socklen_t length, std::string& ip, int& port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(),
                  service.data(), service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host.data();
  port = std::atoi(service.data());
}

}  // namespace

Connection::Connection(socket_t socket, const ConnectionLimits& limits)
    : socket_(socket), limits_(limits), deadline_(Clock::now() + limits.request) {}

bool Connection::wait_for_request() {
  in_head_ = true;
  head_read_ = 0;
  refusal_ = 0;
  if (taken_ == buffer_.size() && !wait_for(socket_, POLLIN, limits_.idle)) return false;
  deadline_ = Clock::now() + limits_.request;
  return !client_left() || taken_ < buffer_.size();
}

bool Connection::client_left() const {
  char byte = 0;
  const ssize_t got = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void Connection::linger() {
  constexpr milliseconds kMost{2'000};
  constexpr size_t kMostBytes = 64u << 20;
  if (shutdown(socket_, SHUT_WR) != 0) return;
  std::array<char, 16384> waste{};
  const Clock::time_point end = Clock::now() + kMost;
  for (size_t dropped = 0; dropped < kMostBytes;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (left.count() <= 0 || !wait_for(socket_, POLLIN, left)) return;
    const ssize_t got = recv(socket_, waste.data(), waste.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    dropped += static_cast<size_t>(got);
  }
}

bool Connection::is_readable() const {
  return taken_ < buffer_.size() || wait_for(socket_, POLLIN, limits_.idle);
}

bool Connection::is_writable() const { return wait_for(socket_, POLLOUT, limits_.write); }

ssize_t Connection::read(char* to, size_t size) {
  if (refusal_ != 0 || size == 0) return -1;
  if (taken_ == buffer_.size()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0 || !wait_for(socket_, POLLIN, left)) {
      refusal_ = 408;
      return -1;
    }
    buffer_.resize(16384);
    ssize_t got = 0;
    do {
      got = recv(socket_, buffer_.data(), buffer_.size(), 0);
    } while (got < 0 && errno == EINTR);
    buffer_.resize(got > 0 ? static_cast<size_t>(got) : 0);
    taken_ = 0;
    if (got <= 0) return got;
  }
  size_t given = std::min(size, buffer_.size() - taken_);
  if (in_head_) {
    if (head_read_ >= limits_.head_bytes) {
      refusal_ = 431;
      return -1;
    }
    given = std::min(given, limits_.head_bytes - head_read_);
    head_read_ += given;
  }
  std::memcpy(to, buffer_.data() + taken_, given);
  taken_ += given;
  return static_cast<ssize_t>(given);
}

ssize_t Connection::write(const char* from, size_t size) {
  if (!is_writable()) return -1;
  ssize_t sent = 0;
  do {
    sent = send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    name_of(address, length, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    name_of(address, length, ip, port);
}

}  // namespace lft::serve
