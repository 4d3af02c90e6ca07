#include "src/serve/acceptor.h"

#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

namespace lft::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLetGo{2'000}, kLastRead{500};
constexpr size_t kMostDropped = 64u << 20;

bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

HeldBytes::~HeldBytes() {
  constexpr size_t kMany = 1u << 20;
  if (bytes_ > kMany) malloc_trim(0);
  *all_ -= bytes_;
}

bool HeldBytes::set(size_t bytes, size_t most) {
  const size_t more = bytes - std::min(bytes, bytes_);
  bytes_ += more;
  return all_->fetch_add(more) + more <= most;
}

Acceptor::Client::Client(Socket from, std::string sent, milliseconds time,
                         const AcceptLimits& limits, std::atomic<size_t>& all)
    : socket(std::move(from)),
      bytes(std::move(sent)),
      frame(limits.request),
      held(all),
      deadline(Clock::now() + time) {}

Acceptor::Acceptor(const AcceptLimits& limits, std::function<void(Arrived)> take)
    : limits_(limits), take_(std::move(take)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Acceptor::~Acceptor() { close(wake_); }

void Acceptor::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void Acceptor::stop() {
  stops_ = true;
  wake();
}

void Acceptor::give_back(Socket socket, std::string rest) {
  const milliseconds time = rest.empty() ? limits_.idle : limits_.request_time;
  add_returned(std::make_unique<Client>(std::move(socket), std::move(rest), time, limits_, held_));
}

void Acceptor::let_go(Socket socket) {
  if (shutdown(socket.get(), SHUT_WR) != 0) return;
  auto client = std::make_unique<Client>(std::move(socket), "", kLetGo, limits_, held_);
  client->leaves = true;
  add_returned(std::move(client));
}

void Acceptor::add_returned(std::unique_ptr<Client> client) {
  const std::lock_guard lock(mutex_);
  if (stops_) return;
  returned_.push_back(std::move(client));
  wake();
}

void Acceptor::run(int listener) {
  fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
  while (!stops_) wait_and_read(listener);
  accept_all(listener);
  take_returned();  // the last ones: their deadlines are shortened, too
  shutdown(listener, SHUT_RDWR);
  for (const auto& client : clients_)
    client->deadline = std::min(client->deadline, Clock::now() + kLastRead);
  while (!clients_.empty()) wait_and_read(-1);
  const std::lock_guard lock(mutex_);
  returned_.clear();
}

/// Reads available bytes, passes complete requests on and closes late connections. listener -1:
/// accepts no more connections.
void Acceptor::wait_and_read(int listener) {
  take_returned();
  std::vector<pollfd> watched = {{.fd = wake_, .events = POLLIN, .revents = 0},
                                 {.fd = listener, .events = POLLIN, .revents = 0}};
  for (const auto& client : clients_)
    watched.push_back({.fd = client->socket.get(), .events = POLLIN, .revents = 0});
  if (poll(watched.data(), watched.size(), time_left()) <= 0) {
    for (pollfd& each : watched) each.revents = 0;
  }
  uint64_t wakes = 0;
  if (watched[0].revents != 0) [[maybe_unused]]
    const ssize_t got = ::read(wake_, &wakes, sizeof wakes);
  for (size_t i = 2; i < watched.size(); ++i) {
    if (watched[i].revents != 0) read(*clients_[i - 2]);
  }
  end_late();
  drop_ended();
  if (watched[1].revents != 0) accept_all(listener);
}

void Acceptor::drop_ended() {
  std::erase_if(clients_, [](const auto& client) { return client->ended; });
}

void Acceptor::take_returned() {
  std::vector<std::unique_ptr<Client>> returned;
  {
    const std::lock_guard lock(mutex_);
    returned.swap(returned_);
  }
  for (auto& client : returned) {
    if (!client->bytes.empty()) look(*client);
    if (!client->ended) clients_.push_back(std::move(client));
  }
}

void Acceptor::accept_all(int listener) {
  for (;;) {
    Socket socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if (errno != EMFILE && errno != ENFILE) return;
      make_room();
      std::this_thread::sleep_for(milliseconds(1));
      return;  // poll() reports those that still wait
    }
    const int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (clients_.size() >= limits_.connections) make_room();
    clients_.push_back(
        std::make_unique<Client>(std::move(socket), "", limits_.request_time, limits_, held_));
  }
}

/// Closes the connection that has been idle the longest; if all have started a request, the one
/// with the first deadline.
void Acceptor::make_room() {
  const auto first = std::ranges::min_element(clients_, {}, [](const auto& client) {
    return std::pair(!client->bytes.empty(), client->deadline);
  });
  if (first != clients_.end()) clients_.erase(first);
}

/// Reads available bytes up to a limit, since other clients wait.
void Acceptor::read(Client& client) {
  constexpr int kPieces = 64;
  std::array<char, 1u << 16> piece{};
  for (int i = 0; i < kPieces && !client.ended; ++i) {
    const ssize_t got = recv(client.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && is_for_later(errno)) return;
    if (got > 0) {
      take_bytes(client, {piece.data(), static_cast<size_t>(got)});
    } else if (got < 0 || client.bytes.empty()) {
      client.ended = true;
    } else {
      refuse(client, {.status = 400, .message = "the request is cut"});
    }
  }
}

void Acceptor::take_bytes(Client& client, std::string_view bytes) {
  if (client.leaves) return drop(client, bytes.size());
  if (client.bytes.empty() && !stops_) client.deadline = Clock::now() + limits_.request_time;
  client.bytes.append(bytes);
  look(client);
}

void Acceptor::drop(Client& client, size_t bytes) const {
  client.dropped += bytes;
  client.ended = client.dropped > kMostDropped;
}

void Acceptor::look(Client& client) {
  while (client.bytes.starts_with("\r\n")) client.bytes.erase(0, 2);  // as required by RFC 9112
  if (!client.held.set(client.bytes.size(), limits_.held_bytes))
    return refuse(client, {.status = 503, .message = "too many large requests at once"});
  const RequestFrame::State state = client.frame.look(client.bytes);
  if (state == RequestFrame::State::kRefused) return refuse(client, client.frame.refusal());
  if (state == RequestFrame::State::kWhole) return hand_over(client, {});
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (client.frame.takes_continue())
    send(client.socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Acceptor::refuse(Client& client, Refusal refusal) {
  client.bytes.clear();
  hand_over(client, std::move(refusal));
}

void Acceptor::hand_over(Client& client, Refusal refusal) {
  client.ended = true;
  FramedRequest request;
  if (refusal.status == 0) request = client.frame.take_from(client.bytes);
  take_({.socket = std::move(client.socket),
         .held = std::move(client.held),
         .request = std::move(request),
         .rest = std::move(client.bytes),
         .refusal = std::move(refusal)});
}

void Acceptor::end_late() {
  const Clock::time_point now = Clock::now();
  for (const auto& client : clients_) {
    if (client->ended || client->deadline > now) continue;
    if (client->bytes.empty())
      client->ended = true;
    else
      refuse(*client, {.status = 408, .message = "the request took too long to arrive"});
  }
}

/// Milliseconds until the first deadline, or -1.
int Acceptor::time_left() const {
  if (clients_.empty()) return -1;
  const auto first =
      std::ranges::min_element(clients_, {}, [](const auto& client) { return client->deadline; });
  const auto left =
      std::chrono::duration_cast<milliseconds>((*first)->deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 3'600'000));
}

}  // namespace lft::serve
