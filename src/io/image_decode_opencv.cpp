#include <algorithm>
#include <iostream>
#include <memory>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <streambuf>

#include "kernels/common/error.h"
#include "src/io/image_bytes.h"
#include "src/io/image_codecs.h"
#include "src/io/pages.h"

namespace lft::io {
namespace {

/// OpenCV's matrices in pages of their own (src/io/pages.h).
class PageMatrices : public cv::MatAllocator {
 public:
  // OpenCV's signature. NOLINTNEXTLINE(readability-function-size)
  cv::UMatData* allocate(int dims, const int* sizes, int type, void*, size_t* step, cv::AccessFlag,
                         cv::UMatUsageFlags) const override {
    size_t bytes = CV_ELEM_SIZE(type);
    for (int i = dims - 1; i >= 0; --i) {
      if (step != nullptr) step[i] = bytes;
      bytes *= static_cast<size_t>(sizes[i]);
    }
    auto matrix = std::make_unique<cv::UMatData>(this);
    matrix->size = bytes;
    matrix->data = matrix->origdata = PageAllocator<uchar>().allocate(bytes);
    return matrix.release();
  }
  bool allocate(cv::UMatData* matrix, cv::AccessFlag, cv::UMatUsageFlags) const override {
    return matrix != nullptr;
  }
  void deallocate(cv::UMatData* matrix) const override {
    if (matrix == nullptr || matrix->refcount != 0) return;
    PageAllocator<uchar>().deallocate(matrix->origdata, matrix->size);
    delete matrix;
  }
};

thread_local bool hushed = false;

/// While it lives, what this thread sends to std::cerr is dropped.
struct Hush {
  Hush() { hushed = true; }
  ~Hush() { hushed = false; }
};

/// OpenCV's imdecode prints what it catches on std::cerr, where one error block of ours must stand
/// alone. Other threads and other libraries keep their std::cerr. In place before main, since
/// replacing a stream's buffer is not safe while threads run.
class CerrFilter : public std::streambuf {
 public:
  CerrFilter() : to_(std::cerr.rdbuf(this)) {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    static PageMatrices matrices;
    cv::Mat::setDefaultAllocator(&matrices);
  }
  ~CerrFilter() override { std::cerr.rdbuf(to_); }

 protected:
  int_type overflow(int_type byte) override {
    if (hushed || traits_type::eq_int_type(byte, traits_type::eof()))
      return traits_type::not_eof(byte);
    return to_->sputc(traits_type::to_char_type(byte));
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return hushed ? size : to_->sputn(text, size);
  }
  int sync() override { return hushed ? 0 : to_->pubsync(); }

 private:
  std::streambuf* to_;
};
const CerrFilter cerr_filter;

uint8_t narrow(uint16_t value, bool clips) {
  return static_cast<uint8_t>(clips ? (value > 255 ? 255 : value) : value >> 8);
}

/// Grey, BGR or BGRA of 8 or 16 bits to RGB. 16-bit grey is cut off at 255, 16-bit colour keeps its
/// high byte: what PIL does.
template <typename Value>
void copy_rgb(const cv::Mat& from, Alpha alpha, Pixels* rgb) {
  const int channels = from.channels();
  const bool grey = channels < 3, mixes = channels == 4 && alpha == Alpha::kWhite;
  size_t at = 0;
  for (int y = 0; y < from.rows; ++y) {
    const Value* pixel = from.ptr<Value>(y);
    for (int x = 0; x < from.cols; ++x, pixel += channels) {
      for (int c = 0; c < 3; ++c) {
        const Value value = pixel[grey ? 0 : 2 - c];
        const uint8_t narrowed =
            sizeof(Value) == 1 ? static_cast<uint8_t>(value) : narrow(value, grey);
        (*rgb)[at++] = mixes ? on_white(narrowed, static_cast<uint8_t>(pixel[3])) : narrowed;
      }
    }
  }
}

[[noreturn]] void throw_unsupported(const std::string& where, const std::string& found) {
  refuse(ErrorKind::kInput, "unsupported image", where, found, {},
         "convert it, for example to PNG");
}

/// Grey (1, 8, 16 bits), palette and RGB without alpha: where libtiff's and PIL's pixels are the
/// same, and so is the orientation.
void check_tiff(std::string_view bytes, const ImageHeader& header, const std::string& where) {
  constexpr uint32_t kBits = 258, kPhotometric = 262, kExtraSamples = 338, kSampleFormat = 339;
  constexpr uint32_t kBlackIsZero = 1, kPalette = 3, kYCbCr = 6;
  const uint32_t bits = tiff_tag(bytes, kBits).value_or(1),
                 photometric = tiff_tag(bytes, kPhotometric).value_or(UINT32_MAX);
  if (photometric > kPalette && photometric != kYCbCr)
    throw_unsupported(where, "a TIFF of colour space " + std::to_string(photometric));
  if (tiff_tag(bytes, kExtraSamples)) throw_unsupported(where, "a TIFF with an alpha channel");
  const bool known = bits == 8 || (bits == 1 && photometric <= kBlackIsZero) ||
                     (bits == 16 && photometric == kBlackIsZero);
  if (!known || tiff_tag(bytes, kSampleFormat).value_or(1) != 1)
    throw_unsupported(where,
                      "a TIFF of " + std::to_string(bits) + " bits, or not of whole numbers");
  const uint32_t stored = tiff_tag(bytes, kOrientationTag).value_or(1);
  const bool is_one = stored >= 1 && stored <= 8;
  if (header.turned && header.orientation != static_cast<int>(is_one ? stored : 1))
    throw_unsupported(where, "a TIFF whose orientation is not of type SHORT");
}

}  // namespace

std::string opencv_library() { return "OpenCV " CV_VERSION; }

RgbImage decode_with_opencv(std::string_view bytes, const ImageHeader& header,
                            const std::string& where, size_t room, Alpha alpha) {
  if (header.kind == "tiff") check_tiff(bytes, header, where);
  const Hush hush;
  cv::Mat decoded;
  try {
    const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8U,
                          const_cast<char*>(bytes.data()));
    decoded = cv::imdecode(encoded, cv::IMREAD_UNCHANGED);
  } catch (const cv::Exception& error) {
    throw_damaged_image(header.kind, where, error.err);
  }
  if (decoded.empty()) throw_damaged_image(header.kind, where, "the decoder refuses it");
  if (decoded.depth() != CV_8U && decoded.depth() != CV_16U)
    throw_unsupported(where, "pixels of an odd type");
  RgbImage image{decoded.cols, decoded.rows, Pixels(std::max(room, 3 * decoded.total()))};
  decoded.depth() == CV_8U ? copy_rgb<uint8_t>(decoded, alpha, &image.rgb_hwc)
                           : copy_rgb<uint16_t>(decoded, alpha, &image.rgb_hwc);
  return image;
}

}  // namespace lft::io
