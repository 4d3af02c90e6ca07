#include "src/dist/groups.h"

#include <cstdlib>

#define USE_C10D_GLOO  // as LibTorch was compiled
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "kernels/common/error.h"

namespace lft::dist {
namespace {

using Gloo = c10d::ProcessGroupGloo;

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
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
  try {
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
