// 64 bits over the bytes of a tensor: equal bits, equal hash. For comparing two runs, not against
// an adversary (that is src/base/hash.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lft::debug {

uint64_t hash_bytes(const void* data, uint64_t bytes);
/// Over values in order, dtype and shape; wherever the tensor lives. Signed zeros and the bits of a
/// NaN count.
uint64_t tensor_hash(const at::Tensor& tensor);
/// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace lft::debug
