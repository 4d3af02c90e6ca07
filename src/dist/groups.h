// Opens LibTorch's process groups: the store in which processes find each other, Gloo for their
// messages, and the backend for tensors of a device. Knows no protocol.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>

#include "src/dist/heartbeat.h"
#include "src/dist/place.h"

namespace c10d {
class Backend;
}

namespace lft::dist {

using GroupPtr = c10::intrusive_ptr<c10d::Backend>;

/// A store whose keys belong to this start of the run. kResource when nothing answers at the
/// place's address.
StorePtr open_store(const Place& place, std::chrono::milliseconds patience);
/// Another connection to the same store.
StorePtr another(const StorePtr& store);

/// Uses the interface that GLOO_SOCKET_IFNAME names, the loopback when the place's address is the
/// loopback, else the interface of the machine's own name.
GroupPtr open_gloo(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout);

}  // namespace lft::dist
