// An image file before the model's processor: it is opened once, its header is parsed once and its
// size is planned once.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/image_processor.h"
#include "src/data/encode_options.h"
#include "src/data/rows/row.h"
#include "src/data/store/sample.h"
#include "src/io/file_handle.h"
#include "src/io/image.h"

namespace lft::data {

/// Not thread-safe; `options` must outlive it.
class EncodedImage {
 public:
  /// Reads the header and plans the processor's output for the image, which is one of
  /// `images_of_row`. kInput if the file is no image, exceeds a limit or cannot be fitted.
  EncodedImage(io::FileHandle file, const EncodeOptions& options, size_t images_of_row = 1);
  ~EncodedImage();
  EncodedImage(const EncodedImage&) = delete;
  EncodedImage& operator=(const EncodedImage&) = delete;

  const io::ImageHeader& header() const { return header_; }
  const family::ImagePlan& plan() const { return plan_; }
  /// The size after the EXIF rotation.
  image::Size size() const;
  /// The peak memory of fit().
  int64_t fit_bytes() const;
  /// Decodes the image and fits it to the model. fit_bytes() are taken from options.reading
  /// meanwhile.
  PixelImage fit();

 private:
  using Bytes = std::vector<char, io::PageAllocator<char>>;
  std::string_view read(uint64_t bytes);
  io::ImageHeader read_header();
  static Bytes& kept_buffer();
  void free_large_buffer();

  io::FileHandle file_;
  const EncodeOptions& options_;
  const family::ImageProcessor& processor_;
  uint64_t file_bytes_;
  Bytes bytes_;  // the first bytes of the file that were read
  io::ImageHeader header_;
  family::ImagePlan plan_;
};

/// Calls `use` with each image of a row, in order; each is closed before the next one is opened.
/// Errors name the row and get the advice `next` if they have none.
void for_each_image(const Row& row, const std::string& image_root, const EncodeOptions& options,
                    const std::string& next, const std::function<void(EncodedImage&)>& use);

/// Pixels fitted to the model by `plan`. kInput if they have another size.
PixelImage fit_image(const io::RgbImage& image, const family::ImagePlan& plan,
                     const family::ImageProcessor& processor, const std::string& where);

}  // namespace lft::data
