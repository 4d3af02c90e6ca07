// LibTorch's process groups, opened: the store in which processes find each other, Gloo for what
// they say, and what tensors of a device go by. Knows no protocol.
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

/// Keys of this start of the run alone. kResource where nobody answers at the place's address.
StorePtr open_store(const Place& place, std::chrono::milliseconds patience);
/// Another connection to the same.
StorePtr another(const StorePtr& store);

/// Over the interface that GLOO_SOCKET_IFNAME names, over the loopback where the place's address is
/// that, else over the one that the machine's name leads to.
GroupPtr open_gloo(const StorePtr& store, const Place& place, std::chrono::milliseconds timeout);

}  // namespace lft::dist
