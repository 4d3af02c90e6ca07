// What the model sees of an image file: read, decoded with as little memory as the model's
// processor allows, and fitted by it.
#include <algorithm>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/encode.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

/// Where nearly every image says its size. After a long EXIF block it is further on: then the file
/// is read whole.
constexpr uint64_t kHeaderBytes = 64 << 10;

/// A file's bytes, in the thread's own buffer: taken anew for each file, which has another size,
/// they would leave holes in malloc's arenas that no later one fills. A large one is given back.
class FileBytes {
 public:
  FileBytes(const io::FileHandle& file, uint64_t max_bytes) {
    const uint64_t bytes = file.size();
    if (bytes > max_bytes) {
      refuse(ErrorKind::kInput, "file too large", file.path(), std::to_string(bytes) + " bytes",
             "at most " + std::to_string(max_bytes) + " bytes");
    }
    if (buffer_.capacity() < bytes) Buffer().swap(buffer_);
    buffer_.resize(bytes);
    file.read_at(0, buffer_.data(), buffer_.size());
  }
  ~FileBytes() {
    if (buffer_.size() >= io::kLargeBlock) Buffer().swap(buffer_);
  }
  FileBytes(const FileBytes&) = delete;
  std::string_view bytes() const { return {buffer_.data(), buffer_.size()}; }

 private:
  using Buffer = std::vector<char, io::PageAllocator<char>>;
  static thread_local Buffer buffer_;
};
thread_local FileBytes::Buffer FileBytes::buffer_;

/// Bytes of a file wherever they are asked for: small pieces that follow each other are read
/// together.
class FileWindow {
 public:
  explicit FileWindow(const io::FileHandle& file) : file_(file), size_(file.size()) {}
  std::string_view read(uint64_t at, uint64_t bytes) {
    constexpr uint64_t kLeast = 4096;
    if (at >= size_) return {};
    bytes = std::min(bytes, size_ - at);
    if (at < begin_ || at + bytes > begin_ + window_.size()) {
      begin_ = at;
      window_.resize(std::min(std::max(bytes, kLeast), size_ - at));
      file_.read_at(at, window_.data(), window_.size());
    }
    return std::string_view(window_).substr(at - begin_, bytes);
  }

 private:
  const io::FileHandle& file_;
  uint64_t size_, begin_ = 0;
  std::string window_;
};

}  // namespace

image::Size upright_size(const io::ImageHeader& header) {
  const bool swaps = header.orientation >= 5;
  return swaps ? image::Size{header.height, header.width}
               : image::Size{header.width, header.height};
}

io::ImageHeader read_header_of(const io::FileHandle& file, const io::ImageLimits& limits) {
  const uint64_t bytes = file.size();
  if (bytes > kHeaderBytes && bytes <= limits.max_bytes) {
    std::string head(kHeaderBytes, '\0');
    file.read_at(0, head.data(), head.size());
    FileWindow window(file);
    try {
      return io::read_image_header(
          {.head = head,
           .size = bytes,
           .read = [&](uint64_t at, uint64_t size) { return window.read(at, size); }},
          file.path(), limits);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
    }
  }
  return io::read_image_header(FileBytes(file, limits.max_bytes).bytes(), file.path(), limits);
}

PixelImage read_fitted(const io::FileHandle& file, const EncodeOptions& options, size_t images) {
  const family::ImageProcessor& processor = options.images->of_row(images);
  std::optional<ReadingBudget::Share> share;
  if (options.reading) {
    const io::ImageHeader header = read_header_of(file, options.image_limits);
    share.emplace(*options.reading,
                  read_bytes(header, static_cast<int64_t>(file.size()), processor));
  }
  const auto decode = [&] {
    const FileBytes held(file, options.image_limits.max_bytes);
    const std::string_view bytes = held.bytes();
    const std::string& path = file.path();
    const io::ImageHeader header = io::read_image_header(bytes, path, options.image_limits);
    processor.plan({header.width, header.height});  // alike for a turned image
    const auto square = processor.square_colour();
    return square ? io::decode_square(bytes, path, *square, options.image_limits)
                  : io::decode_image(bytes, path, options.image_limits);
  };
  return fit_image(decode(), processor);
}

int64_t read_bytes(const io::ImageHeader& header, int64_t file_bytes,
                   const family::ImageProcessor& processor) {
  const int64_t working = processor.working_bytes(upright_size(header));
  if (processor.square_colour()) {  // the whole square from the first byte on
    const int64_t side = std::max(header.width, header.height);
    return 3 * side * side + file_bytes + header.beside + working;
  }
  const int64_t pixels = 3 * header.width * header.height;
  const int64_t turned = header.orientation > 1 ? pixels : 0;
  return pixels + file_bytes + std::max(header.beside, turned) + working;
}

PixelImage fit_image(const io::RgbImage& image, const family::ImageProcessor& processor) {
  const family::ImagePlan plan = processor.plan({image.width, image.height});
  family::TileImage made = processor.make(
      {.rgb_hwc = image.rgb_hwc.data(), .width = image.width, .height = image.height});
  return {.shape = made.shape,
          .chw = std::move(made.values),
          .positions = plan.positions(),
          .tower_positions = plan.tower_positions};
}

}  // namespace lft::data
