// SHA-256 of bytes and of files, as lower-case hex; and a digest of bytes that are read in parts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lft {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(const void* data, uint64_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex();  // ends the hash: no update after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::string_view bytes);
/// Streams the file. kInput when it is missing, not a regular file or unreadable.
std::string sha256_file(const std::string& path);

/// Of the bytes from `offset` on of a whole; offset: a multiple of 8. The sum of its parts' digests
/// is the whole's, in whatever order and wherever they are cut. A change of one 8-byte word always
/// shows; nobody is kept from forging one. As fast as memory.
uint64_t placed_digest(const void* data, uint64_t bytes, uint64_t offset);

/// A keyed permutation of [0, size): where `index` goes, without a table. size at least 1. A
/// Feistel network over the next power of 4, walked until the number is below `size`.
uint64_t permuted(uint64_t index, uint64_t size, uint64_t key);

}  // namespace lft
