#include "src/io/decode/opencv_module.h"

#include <algorithm>
#include <memory>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>

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

const struct Setup {
  Setup() {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    static PageMatrices matrices;
    cv::Mat::setDefaultAllocator(&matrices);
  }
} setup;

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

extern "C" void lft_decode_with_opencv(std::string_view bytes, size_t room, Alpha alpha,
                                       RgbImage& image, std::string& reason) {
  cv::Mat decoded;
  try {
    const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8U,
                          const_cast<char*>(bytes.data()));
    decoded = cv::imdecode(encoded, cv::IMREAD_UNCHANGED);
  } catch (const cv::Exception& error) {
    reason = error.err;
    return;
  }
  if (decoded.empty()) {
    reason = "the decoder refuses it";
  } else if (decoded.depth() != CV_8U) {
    reason = "pixels of an odd type";
  }
  if (!reason.empty()) return;
  image = {decoded.cols, decoded.rows, Pixels(std::max(room, 3 * decoded.total()))};
  copy_rgb(decoded, alpha, &image.rgb_hwc);
}

}  // namespace lft::io
