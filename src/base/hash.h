// SHA-256 of bytes and files as lower-case hex, and a fast digest of bytes that are read in parts.
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
  std::string hex();  // ends the hash; update() must not follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::string_view bytes);
/// Streams the file. kInput if it is missing, not a regular file or unreadable.
std::string sha256_file(const std::string& path);

/// The digest of a part of some bytes at `offset`, a multiple of 8. The sum of the digests of all
/// parts is the digest of the whole, for any partition and order. A change of one 8-byte word
/// always changes it, but it is not cryptographic. It runs at memory speed.
uint64_t placed_digest(const void* data, uint64_t bytes, uint64_t offset);

/// A keyed permutation of [0, size) without a table: returns the place of `index`. size is at least
/// 1. It is a Feistel network over the next power of 4, repeated until the number is below `size`.
uint64_t permuted(uint64_t index, uint64_t size, uint64_t key);

}  // namespace lft
