#include "src/data/sources/unpack.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "kernels/common/error.h"
#include "kernels/common/module_path.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/data/rows/file_stamp.h"
#include "src/data/rows/row_scan.h"
#include "src/data/rows/tar.h"
#include "src/io/files.h"
#include "src/io/image.h"
#include "src/io/json.h"

namespace lft::data {
namespace {

constexpr int64_t kCacheFormat = 6;  // version of the cached files
constexpr char kAsJson[] =
    "write the rows as JSON lines, with images as files or as data: URIs; or build lft with "
    "-DLFT_ARROW=ON and a pyarrow wheel (scripts/setup installs one)";

ArrowEntry arrow_entry(const std::string& path) {
  const ModuleEntry entry = module_entry(kArrowModule, kArrowEntry);
  if (entry.function == nullptr)
    refuse(ErrorKind::kUsage, "this lft cannot read Parquet and Arrow files", path, entry.why,
           "the module " + entry.path, kAsJson);
  return reinterpret_cast<ArrowEntry>(entry.function);
}

[[noreturn]] void refuse_arrow(const std::string& path, const ArrowFailure& failure) {
  const std::string where = failure.row < 0 ? path : row_where(path, RowForm::kArray, failure.row);
  refuse(ErrorKind::kInput, failure.what, where, failure.found, failure.expected, failure.next);
}

std::string cache_folder(const std::string& path) {
  const auto from = [](const char* variable, const std::string& below) {
    const char* const value = std::getenv(variable);
    return value == nullptr || value[0] != '/' ? "" : value + below;
  };
  std::string folder = from("XDG_CACHE_HOME", "/lft/unpacked");
  if (folder.empty()) folder = from("HOME", "/.cache/lft/unpacked");
  if (folder.empty()) {
    refuse(ErrorKind::kResource, "there is no folder to unpack into", path,
           "neither XDG_CACHE_HOME nor HOME is set", {}, "set XDG_CACHE_HOME to a folder");
  }
  return folder;
}

/// A lock for one process at a time, released when the process ends.
class CacheLock {
 public:
  explicit CacheLock(const std::string& path) : path_(path) {
    do fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) io::throw_io_error("create a file", path, errno);
    while (flock(fd_, LOCK_EX) != 0) {
      if (errno != EINTR) io::throw_io_error("lock a file", path, errno);
      if (requested_signal() != 0) throw Stopped();
    }
  }
  ~CacheLock() { ::close(fd_); }
  CacheLock(const CacheLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

using Facts = std::map<std::string, std::string>;

/// The hash of a file's bytes, and its stamp.
io::Json known_file(const std::string& path) {
  const std::string content = content_hash(io::FileHandle::open_to_read(path));
  Facts facts;
  FileStamp::of(path).write(facts);
  return {{"stamp", facts}, {"content", content}};
}

/// Whether a file is unchanged since known_file(): by its stamp, or else by its bytes. Then `known`
/// receives its present stamp.
bool is_known(io::Json& known, const std::string& path) {
  const std::optional<FileStamp> stamp = FileStamp::read(known.at("stamp").get<Facts>());
  const FileStamp now = FileStamp::of(path);
  if (stamp && stamp->settled() && stamp->same(now)) return true;
  if (!stamp || stamp->bytes != now.bytes) return false;
  io::Json again = known_file(path);
  if (again.at("content") != known.at("content")) return false;
  known = std::move(again);
  return true;
}

/// The record of the file and of the output made from it, saved for the next start if possible.
void keep_facts(const std::string& facts, const io::Json& known) {
  try {
    io::write_file_atomic(facts, known.dump());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResource) throw;  // the next start hashes both files again
  }
}

bool is_unpacked(const std::string& path, const std::string& tar, const std::string& facts) {
  if (!io::path_exists(tar) || !io::path_exists(facts)) return false;
  try {
    io::Json known = io::parse_json(io::read_file(facts), facts);
    const io::Json before = known;
    if (known.at("format") == kCacheFormat && is_known(known.at("source"), path) &&
        is_known(known.at("tar"), tar)) {
      if (known != before) keep_facts(facts, known);
      return true;
    }
    notice(tar + " is not what " + path + " contains now: it is made again");
  } catch (const std::exception& error) {  // including JSON errors
    notice(facts + " cannot be used (" + error.what() + "): " + tar + " is made again");
  }
  return false;
}

/// A tar file that gets its name only when it is complete.
class TarWriter {
 public:
  TarWriter(const std::string& path, uint64_t bytes)
      : path_(path), temporary_(path + ".tmp"), file_(io::FileHandle::create(temporary_, bytes)) {}
  ~TarWriter() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  TarWriter(const TarWriter&) = delete;
  void add(const std::string& name, const std::string& bytes) {
    buffer_ += tar_header(name, bytes.size());
    buffer_ += bytes;
    buffer_.resize((buffer_.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
    if (buffer_.size() >= kPiece) flush();
  }
  void finish() {
    buffer_.resize(buffer_.size() + 2 * kTarBlock);
    flush();
    file_.sync();
    file_.close();
    io::rename_synced(temporary_, path_);
    temporary_.clear();
  }

 private:
  static constexpr size_t kPiece = 4 << 20;
  void flush() {
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  std::string path_, temporary_, buffer_;
  io::FileHandle file_;
};

/// Headers and padding in addition to the values.
uint64_t bytes_needed(const ArrowFile& file) {
  constexpr uint64_t kOfARow = 4 * kTarBlock;
  const uint64_t rows = file.rows() > 0 ? static_cast<uint64_t>(file.rows()) : 0;
  return file.unpacked_bytes() + rows * kOfARow;
}

void check_space(const std::string& path, const std::string& folder, uint64_t needed) {
  const uint64_t free = io::free_bytes(folder);
  if (free >= needed) return;
  refuse(ErrorKind::kResource, "not enough space to unpack a data file", path,
         format_bytes(static_cast<double>(free)) + " free in " + folder,
         format_bytes(static_cast<double>(needed)),
         "free space there, or set XDG_CACHE_HOME to a folder on a larger disk");
}

std::unique_ptr<ArrowFile> open_arrow(const std::string& path) {
  const ArrowLimits limits{.json_bytes = kRowLimits.max_bytes,
                           .image_bytes = io::ImageLimits().max_bytes};
  try {
    return std::unique_ptr<ArrowFile>(arrow_entry(path)(path, limits));
  } catch (const ArrowFailure& failure) {
    refuse_arrow(path, failure);
  }
}

/// Returns the number of rows.
int64_t read_rows_of(ArrowFile& file, const std::string& path,
                     const std::function<void(int64_t, ArrowRow&&)>& visit) {
  int64_t rows = 0;
  try {
    file.read([&](int64_t row, ArrowRow&& values) {
      ++rows;
      visit(row, std::move(values));
    });
  } catch (const ArrowFailure& failure) {
    refuse_arrow(path, failure);
  }
  return rows;
}

/// False, and nothing written, where the file has no rows.
bool unpack(ArrowFile& file, const std::string& path, const std::string& tar) {
  notice("unpacking " + path + " into " + tar + ", once");
  TarWriter writer(tar, bytes_needed(file));
  const int64_t rows = read_rows_of(file, path, [&](int64_t row, ArrowRow&& values) {
    if (requested_signal() != 0) throw Stopped();
    const std::string key = std::to_string(row) + ".";
    writer.add(key + "json", values.json);
    for (const ArrowRow::Image& image : values.images) writer.add(key + image.name, image.bytes);
  });
  if (rows > 0) writer.finish();
  return rows > 0;
}

}  // namespace

void refuse_empty(const std::string& path) {
  refuse(ErrorKind::kInput, "the data file has no samples", path, "no rows");
}

bool is_arrow_file(const std::string& path) {
  if (!io::path_exists(path) || io::is_directory(path)) return false;
  const io::FileHandle file = io::FileHandle::open_to_read(path);
  std::string head(std::min<uint64_t>(file.size(), 8), '\0');
  file.read_at(0, head.data(), head.size());
  return head.starts_with("PAR1") || head.starts_with("ARROW1") ||
         head.starts_with("\xff\xff\xff\xff");
}

void read_arrow_rows(const std::string& path,
                     const std::function<void(int64_t row, ArrowRow&& values)>& visit) {
  if (read_rows_of(*open_arrow(path), path, visit) == 0) refuse_empty(path);
}

std::optional<std::string> unpacked(const std::string& path) {
  const std::string folder = cache_folder(path), whole = io::absolute_path(path);
  const std::string stem = folder + "/" +
                           std::filesystem::path(whole).stem().string().substr(0, 64) + "-" +
                           sha256(whole).substr(0, 16);
  io::make_dirs(folder);
  const CacheLock lock(stem + ".lock");
  const std::string tar = stem + ".tar", facts = stem + ".json";
  if (is_unpacked(path, tar, facts)) return tar;
  const std::unique_ptr<ArrowFile> file = open_arrow(path);
  if (file->rows() == 0) return std::nullopt;
  check_space(path, folder, bytes_needed(*file));
  const io::Json source = known_file(path);
  if (!unpack(*file, path, tar)) return std::nullopt;
  keep_facts(facts, {{"format", kCacheFormat}, {"source", source}, {"tar", known_file(tar)}});
  return tar;
}

}  // namespace lft::data
