#include <iostream>
#include <opencv2/core/version.hpp>
#include <streambuf>

#include "kernels/common/error.h"
#include "kernels/common/module_path.h"
#include "src/io/decode/decode.h"
#include "src/io/decode/opencv_module.h"

namespace lft::io {
namespace {

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
  CerrFilter() : to_(std::cerr.rdbuf(this)) {}
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

OpencvEntry find_entry() {
  const ModuleEntry entry = module_entry(kOpencvModule, kOpencvEntry);
  if (entry.function == nullptr)
    refuse(ErrorKind::kUsage, "this lft cannot read WebP images", entry.path, entry.why,
           "the module, next to the program",
           "install lft again, or convert the images to PNG or JPEG");
  return reinterpret_cast<OpencvEntry>(entry.function);
}

OpencvEntry opencv() {
  static const OpencvEntry entry = find_entry();
  return entry;
}

}  // namespace

std::string opencv_library() { return "OpenCV " CV_VERSION; }

void load_opencv() { opencv(); }

RgbImage decode_with_opencv(std::string_view bytes, const ImageHeader& header,
                            const std::string& where, size_t room, Alpha alpha) {
  const OpencvEntry decode = opencv();
  const SuppressStderr hush;
  RgbImage image;
  std::string reason;
  decode(bytes, room, alpha, image, reason);
  if (!reason.empty()) throw_damaged_image(header.kind, where, reason);
  return image;
}

}  // namespace lft::io
