#include "src/data/rows/file_stamp.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/base/parallel.h"

namespace lft::data {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kPieceBytes = 16 << 20;

int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

std::optional<int64_t> number_in(const std::map<std::string, std::string>& facts,
                                 const char* name) {
  const auto found = facts.find(name);
  if (found == facts.end()) return std::nullopt;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

FileStamp FileStamp::of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    refuse(ErrorKind::kInput, "cannot look at a file", path, strerror(errno));
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return {.bytes = status.st_size,
          .modified = nanoseconds(status.st_mtim),
          .changed = nanoseconds(status.st_ctim),
          .inode = static_cast<int64_t>(status.st_ino),
          .taken = nanoseconds(now)};
}

bool FileStamp::settled() const { return std::max(modified, changed) < taken - 2 * kSecond; }

void FileStamp::write(std::map<std::string, std::string>& facts) const {
  facts["bytes"] = std::to_string(bytes);
  facts["modified"] = std::to_string(modified);
  facts["changed"] = std::to_string(changed);
  facts["inode"] = std::to_string(inode);
  facts["taken"] = std::to_string(taken);
}

std::optional<FileStamp> FileStamp::read(const std::map<std::string, std::string>& facts) {
  const auto bytes = number_in(facts, "bytes"), modified = number_in(facts, "modified"),
             changed = number_in(facts, "changed"), inode = number_in(facts, "inode"),
             taken = number_in(facts, "taken");
  if (!bytes || !modified || !changed || !inode || !taken) return std::nullopt;
  return FileStamp{*bytes, *modified, *changed, *inode, *taken};
}

std::string content_hash(const io::FileHandle& file) {
  const auto size = static_cast<int64_t>(file.size());
  const int64_t pieces = (size + kPieceBytes - 1) / kPieceBytes;
  std::vector<std::string> hashes(static_cast<size_t>(pieces));
  parallel_for(pieces, all_cores(), [&](int64_t i) {
    const auto bytes = static_cast<size_t>(std::min(kPieceBytes, size - i * kPieceBytes));
    std::string piece(bytes, '\0');
    file.read_at(static_cast<uint64_t>(i * kPieceBytes), piece.data(), bytes);
    hashes[static_cast<size_t>(i)] = sha256(piece);
  });
  Sha256 all;
  for (const std::string& hash : hashes) all.update(hash);
  return all.hex();
}

}  // namespace lft::data
