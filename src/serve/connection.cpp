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

/// Whether one of `events`, or an end, occurred in time.
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

bool Connection::client_left() const {
  char byte = 0;
  const ssize_t got = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool Connection::is_writable() const { return wait_for(socket_, POLLOUT, write_time_); }

ssize_t Connection::read(char* to, size_t size) {
  const size_t given = std::min(size, head_.size());
  std::memcpy(to, head_.data(), given);
  head_.remove_prefix(given);
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
