// Opens LibTorch's process groups: the store for rendezvous, Gloo for messages, and the backend for
// a device's tensors. Independent of the protocol.
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

/// A store whose keys are specific to this start of the run. kResource if there is no answer at the
/// place's address.
StorePtr open_store(const Place& place, std::chrono::milliseconds patience);
/// Another connection to the same store.
StorePtr another(const StorePtr& store);

/// Uses the interface in GLOO_SOCKET_IFNAME, the loopback if the place's address is the loopback,
/// else the interface of the machine's host name.
GroupPtr open_gloo(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout);

}  // namespace lft::dist
