// The processes of a run as threads of a test, each with separate connections.
#pragma once
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "src/dist/ranks.h"

namespace lft::test {

/// An unused loopback port.
inline int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

inline void run_ranks(int64_t count, const std::function<void(dist::Ranks&)>& body) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // LibTorch has one unguarded call record per process
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([=] {
      dist::Ranks ranks(
          {.rank = rank, .ranks = count, .local_rank = rank, .address = "127.0.0.1", .port = port},
          std::chrono::seconds(30));
      body(ranks);
      ranks.leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace lft::test
