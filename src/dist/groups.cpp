#include "src/dist/groups.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#define USE_C10D_GLOO  // as LibTorch was compiled
#include <c10/util/Exception.h>
#include <c10/util/Flags.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "kernels/common/error.h"

C10_DECLARE_int(caffe2_log_level);

namespace lft::dist {
namespace {

using Gloo = c10d::ProcessGroupGloo;

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// Whether a server listens there. LibTorch's own client logs a warning at each attempt, and spends
/// seconds on name lookups.
bool is_open(const std::string& address, int64_t port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0)
    return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int fd = socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    if (fd < 0) continue;
    const bool connected = connect(fd, each->ai_addr, each->ai_addrlen) == 0;
    close(fd);
    if (connected) return true;
  }
  return false;
}

/// Listens on the loopback only, for processes of one machine. LibTorch's own server would listen
/// on all interfaces and look up the name of each client, which a hosts file may not contain.
std::optional<int> listen_on_loopback(int64_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(fd, SOMAXCONN) == 0)
    return fd;
  close(fd);
  return std::nullopt;  // LibTorch logs the reason
}

void wait_for_store(const Place& place, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!is_open(place.address, place.port) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

auto gloo_device(const Place& place) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface && *interface)
    return Gloo::createDeviceForInterface(interface);
  return is_loopback(place.address) ? Gloo::createDeviceForHostname(place.address)
                                    : Gloo::createDefaultDevice();
}

}  // namespace

StorePtr open_store(const Place& place, std::chrono::milliseconds patience) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = place.rank == 0 && !place.agent_store;
  options.waitWorkers = false;
  options.timeout = patience;
  options.useLibUV = false;    // the implementation that accepts a socket
  FLAGS_caffe2_log_level = 3;  // its messages arrive as exceptions, too
  try {
    if (!options.isServer) wait_for_store(place, patience);
    if (options.isServer && is_loopback(place.address))
      options.masterListenFd = listen_on_loopback(place.port);
    return c10::make_intrusive<c10d::PrefixStore>(
        "lft/" + std::to_string(place.restart),
        c10::make_intrusive<c10d::TCPStore>(place.address, options));
  } catch (const c10::Error& error) {
    const std::string where = place.address + ":" + std::to_string(place.port);
    refuse(ErrorKind::kResource,
           options.isServer ? "rank 0 cannot open the port where the processes meet"
                            : "rank 0 cannot be reached where the processes meet",
           where, error.what_without_backtrace(), {},
           "set MASTER_ADDR and MASTER_PORT to the machine of rank 0 and to a free port of it");
  }
}

StorePtr another(const StorePtr& store) { return store->clone(); }

GroupPtr open_gloo(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout) {
  const auto options = Gloo::Options::create(timeout);
  options->devices.push_back(gloo_device(place));
  return c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                   static_cast<int>(place.rank), static_cast<int>(place.ranks),
                                   options);
}

}  // namespace lft::dist
