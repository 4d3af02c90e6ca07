// What the NCCL module and the program that opens it know of each other: one function.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lft::dist {

inline constexpr const char* kNcclModule = "liblft_nccl.so";
inline constexpr const char* kNcclEntry = "lft_open_nccl";

/// A group of the current device.
using NcclEntry = c10::intrusive_ptr<c10d::Backend> (*)(c10::intrusive_ptr<c10d::Store> store,
                                                        int rank, int size,
                                                        std::chrono::milliseconds timeout);

}  // namespace lft::dist
