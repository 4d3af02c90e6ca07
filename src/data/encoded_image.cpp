#include "src/data/encoded_image.h"

#include <algorithm>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/encode.h"
#include "src/data/rows/row_images.h"
#include "src/io/decode/image_decode.h"

namespace lft::data {
namespace {

/// Enough bytes for the header of nearly every image. After a long EXIF block the header is further
/// on: then the whole file is read.
constexpr uint64_t kHeaderBytes = 64 << 10;

/// Reads bytes of a file at any offset; small consecutive reads are combined.
class FileWindow {
 public:
  explicit FileWindow(const io::FileHandle& file, uint64_t size) : file_(file), size_(size) {}
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

bool is_same_size(const family::ImageShape& a, const family::ImageShape& b) {
  return a.tiles == b.tiles && a.height == b.height && a.width == b.width;
}

std::string size_text(const family::ImageShape& shape) {
  return std::to_string(shape.tiles) + " tiles of " + std::to_string(shape.width) + " x " +
         std::to_string(shape.height);
}

}  // namespace

EncodedImage::EncodedImage(io::FileHandle file, const EncodeOptions& options, size_t images_of_row)
    : file_(std::move(file)),
      options_(options),
      processor_(options.images->of_row(images_of_row)),
      file_bytes_(file_.size()) {
  const uint64_t limit = options.image_limits.max_bytes;
  if (file_bytes_ > limit) {
    refuse(ErrorKind::kInput, "file too large", file_.path(),
           std::to_string(file_bytes_) + " bytes", "at most " + std::to_string(limit) + " bytes");
  }
  bytes_.swap(kept_buffer());
  bytes_.clear();
  header_ = read_header();
  plan_ = processor_.plan(size());
}

EncodedImage::~EncodedImage() {
  free_large_buffer();
  if (bytes_.capacity() > kept_buffer().capacity()) bytes_.swap(kept_buffer());
}

/// A buffer that each thread reuses for all images: separate allocations of different sizes would
/// fragment malloc's arenas.
EncodedImage::Bytes& EncodedImage::kept_buffer() {
  static thread_local Bytes buffer;
  return buffer;
}

void EncodedImage::free_large_buffer() {
  if (bytes_.capacity() >= io::kLargeBlock) Bytes().swap(bytes_);
}

/// The first `bytes` bytes of the file. Bytes already in the buffer are not read again.
std::string_view EncodedImage::read(uint64_t bytes) {
  const uint64_t begin = bytes_.size();
  if (bytes_.capacity() < bytes) {
    if (begin == 0) Bytes().swap(bytes_);  // nothing is copied
    bytes_.reserve(file_bytes_);
  }
  if (begin < bytes) {
    bytes_.resize(bytes);
    file_.read_at(begin, bytes_.data() + begin, bytes - begin);
  }
  return {bytes_.data(), bytes};
}

io::ImageHeader EncodedImage::read_header() {
  const std::string& path = file_.path();
  const io::ImageLimits& limits = options_.image_limits;
  if (file_bytes_ <= kHeaderBytes) return io::read_image_header(read(file_bytes_), path, limits);
  FileWindow window(file_, file_bytes_);
  try {
    return io::read_image_header(
        {.head = read(kHeaderBytes),
         .size = file_bytes_,
         .read = [&](uint64_t at, uint64_t size) { return window.read(at, size); }},
        path, limits);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
  }
  const io::ImageHeader header = io::read_image_header(read(file_bytes_), path, limits);
  free_large_buffer();  // before fit_bytes() are taken
  return header;
}

image::Size EncodedImage::size() const {
  const bool swaps = header_.orientation >= 5;
  return swaps ? image::Size{header_.height, header_.width}
               : image::Size{header_.width, header_.height};
}

int64_t EncodedImage::fit_bytes() const {
  const int64_t working = processor_.working_bytes(size()),
                file_bytes = static_cast<int64_t>(file_bytes_);
  if (processor_.square_colour()) {  // the whole square is allocated first
    const int64_t side = std::max(header_.width, header_.height);
    return 3 * side * side + file_bytes + header_.decoder_bytes + working;
  }
  const int64_t pixels = 3 * header_.width * header_.height;
  const int64_t turned = header_.orientation > 1 ? pixels : 0;
  return pixels + file_bytes + std::max(header_.decoder_bytes, turned) + working;
}

PixelImage EncodedImage::fit() {
  std::optional<ReadingBudget::Share> share;
  if (options_.reading) share.emplace(*options_.reading, fit_bytes());
  const std::string_view bytes = read(file_bytes_);
  const auto square = processor_.square_colour();
  const io::Alpha alpha = options_.image_limits.alpha;
  const io::RgbImage image = square
                                 ? io::decode_square(bytes, header_, file_.path(), *square, alpha)
                                 : io::decode_image(bytes, header_, file_.path(), alpha);
  free_large_buffer();
  return fit_image(image, plan_, processor_, file_.path());
}

void for_each_image(const Row& row, const std::string& image_root, const EncodeOptions& options,
                    const std::string& next, const std::function<void(EncodedImage&)>& use) {
  for (const std::string& name : row.images) {
    try {
      EncodedImage image(
          open_row_image(row, name, image_root, options.image_limits.follow_symlinks), options,
          row.images.size());
      use(image);
    } catch (const Error& error) {
      throw_image_error(row, error, next);
    }
  }
}

PixelImage fit_image(const io::RgbImage& image, const family::ImagePlan& plan,
                     const family::ImageProcessor& processor, const std::string& where) {
  family::TileImage made = processor.make(
      {.rgb_hwc = image.rgb_hwc.data(), .width = image.width, .height = image.height});
  if (!is_same_size(made.shape, plan.shape))
    refuse(ErrorKind::kInput, "an image's pixels are not of the size that its header says", where,
           size_text(made.shape), size_text(plan.shape) + ", by the header",
           "save the image again and report it");
  return {.shape = made.shape,
          .chw = std::move(made.values),
          .positions = plan.positions(),
          .tower_positions = plan.tower_positions};
}

}  // namespace lft::data
