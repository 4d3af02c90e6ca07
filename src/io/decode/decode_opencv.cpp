#include <algorithm>
#include <iostream>
#include <memory>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <streambuf>

#include "src/io/decode/decode.h"
#include "src/io/pages.h"

namespace lft::io {
namespace {

/// Allocates OpenCV's matrices in separate pages (src/io/pages.h).
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

thread_local bool suppressed = false;

/// Discards this thread's output to std::cerr during its lifetime.
struct SuppressStderr {
  SuppressStderr() { suppressed = true; }
  ~SuppressStderr() { suppressed = false; }
};

/// OpenCV's imdecode prints caught exceptions on std::cerr, where lft prints exactly one error
/// block. Other threads and other libraries keep their std::cerr. It is installed before main(),
/// since replacing the buffer of a stream is not safe while threads run.
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
    if (suppressed || traits_type::eq_int_type(byte, traits_type::eof()))
      return traits_type::not_eof(byte);
    return to_->sputc(traits_type::to_char_type(byte));
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return suppressed ? size : to_->sputn(text, size);
  }
  int sync() override { return suppressed ? 0 : to_->pubsync(); }

 private:
  std::streambuf* to_;
};
const CerrFilter cerr_filter;

/// Converts grey, BGR or BGRA to RGB.
void copy_rgb(const cv::Mat& from, Alpha alpha, Pixels* rgb) {
  const int channels = from.channels();
  const bool grey = channels < 3, mixes = channels == 4 && alpha == Alpha::kWhite;
  size_t at = 0;
  for (int y = 0; y < from.rows; ++y) {
    const uint8_t* pixel = from.ptr<uint8_t>(y);
    for (int x = 0; x < from.cols; ++x, pixel += channels) {
      for (int c = 0; c < 3; ++c) {
        const uint8_t value = pixel[grey ? 0 : 2 - c];
        (*rgb)[at++] = mixes ? on_white(value, pixel[3]) : value;
      }
    }
  }
}

}  // namespace

std::string opencv_library() { return "OpenCV " CV_VERSION; }

RgbImage decode_with_opencv(std::string_view bytes, const ImageHeader& header,
                            const std::string& where, size_t room, Alpha alpha) {
  const SuppressStderr hush;
  cv::Mat decoded;
  try {
    const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8U,
                          const_cast<char*>(bytes.data()));
    decoded = cv::imdecode(encoded, cv::IMREAD_UNCHANGED);
  } catch (const cv::Exception& error) {
    throw_damaged_image(header.kind, where, error.err);
  }
  if (decoded.empty()) throw_damaged_image(header.kind, where, "the decoder refuses it");
  if (decoded.depth() != CV_8U) throw_damaged_image(header.kind, where, "pixels of an odd type");
  RgbImage image{decoded.cols, decoded.rows, Pixels(std::max(room, 3 * decoded.total()))};
  copy_rgb(decoded, alpha, &image.rgb_hwc);
  return image;
}

std::string encode_jpeg_with_opencv(const RgbImage& image) {
  cv::Mat bgr(static_cast<int>(image.height), static_cast<int>(image.width), CV_8UC3);
  for (size_t i = 0; i < image.rgb_hwc.size(); ++i)
    bgr.data[i] = image.rgb_hwc[i / 3 * 3 + 2 - i % 3];
  std::vector<uchar> file;
  cv::imencode(".jpg", bgr, file, {cv::IMWRITE_JPEG_QUALITY, 85});
  return {file.begin(), file.end()};
}

}  // namespace lft::io
