// The end of the server's connections.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>

#include "src/serve/acceptor.h"

namespace lft::acceptor_test {
using namespace lft::serve;
namespace {

Socket end_of_a_pair(Socket& other) {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  other = Socket(ends[1]);
  return Socket(ends[0]);
}

/// A worker gives the connection of its answer back just before the signal arrives, while another
/// client has sent nothing.
TEST(Acceptor, AnIdleConnectionThatComesBackLastDoesNotDelayTheEnd) {
  AcceptLimits limits;
  limits.idle = std::chrono::seconds(30);
  Acceptor acceptor(limits, [](Arrived) {});
  Socket client;
  acceptor.give_back(end_of_a_pair(client), "");
  acceptor.stop();
  const Socket listener(socket(AF_INET, SOCK_STREAM, 0)), waiting(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(listen(listener.get(), 1), 0);  // on a free port of every address
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(waiting.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  const auto start = std::chrono::steady_clock::now();
  acceptor.run(listener.get());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lft::acceptor_test
