#include "src/base/hash.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "kernels/common/error.h"

namespace lft {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

namespace {

void require(bool ok) {
  if (!ok) throw Error(ErrorKind::kInternal, "OpenSSL gives no SHA-256");
}

}  // namespace

Sha256::Sha256() : state_(std::make_unique<State>()) {
  // Fetched once, because each initialisation with EVP_sha256() searches for it.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  require(state_->context != nullptr && algorithm != nullptr &&
          EVP_DigestInit_ex(state_->context, algorithm, nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, uint64_t bytes) {
  require(EVP_DigestUpdate(state_->context, data, bytes) == 1);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  require(EVP_DigestFinal_ex(state_->context, digest, &length) == 1);
  std::string out;
  for (unsigned i = 0; i < length; ++i) {
    out += "0123456789abcdef"[digest[i] >> 4];
    out += "0123456789abcdef"[digest[i] & 15];
  }
  return out;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

uint64_t placed_digest(const void* data, uint64_t bytes, uint64_t offset) {
  // Each step is a bijection of the word, so that different words give different results.
  const auto mixed = [](uint64_t word, uint64_t place) {
    word += place * 0x9E3779B97F4A7C15u;
    word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93u;
    return (word ^ (word >> 32)) * 0xD6E8FEB86659FD93u;
  };
  const char* const from = static_cast<const char*>(data);
  uint64_t sum = 0, word = 0;
  for (uint64_t i = 0; i < bytes / 8; ++i) {
    std::memcpy(&word, from + 8 * i, 8);
    sum += mixed(word, offset / 8 + i + 1);
  }
  if (bytes % 8 == 0) return sum;
  word = 0;
  std::memcpy(&word, from + bytes / 8 * 8, bytes % 8);
  return sum + mixed(word, (offset + bytes) / 8 + 1);
}

uint64_t permuted(uint64_t index, uint64_t size, uint64_t key) {
  constexpr int kRounds = 6;
  int half = 0;  // bits of each half
  while (half < 31 && (uint64_t{1} << (2 * half)) < size) ++half;
  if ((uint64_t{1} << (2 * half)) < size) half = 32;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const auto mixed = [](uint64_t value) {  // splitmix64
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  };
  do {
    uint64_t left = index >> half, right = index & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t word = mixed(right + key + static_cast<uint64_t>(round) * 0x9E3779B97F4A7C15u);
      const uint64_t next = left ^ (word & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

std::string sha256_file(const std::string& path) {
  const auto fail = [&](const std::string& reason) {
    refuse(ErrorKind::kInput, "cannot hash a file", path, reason, {},
           "put a file there that this user may read");
  };
  struct Descriptor {
    int fd;
    ~Descriptor() {
      if (fd >= 0) close(fd);
    }
  } file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(strerror(errno));
  struct stat status {};
  if (fstat(file.fd, &status) != 0) fail(strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("not a regular file");
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t got = ::read(file.fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(strerror(errno));
    if (got == 0) return hash.hex();
    hash.update(buffer.data(), static_cast<uint64_t>(got));
  }
}

}  // namespace lft
