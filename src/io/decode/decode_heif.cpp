// The primary image of a HEIC file as shown: cropped and rotated. Subsampled colours are repeated
// by libheif 1.15 and interpolated from 1.16 on.
#include <libheif/heif.h>

#include <algorithm>
#include <memory>

#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

struct Free {
  void operator()(heif_context* context) const { heif_context_free(context); }
  void operator()(heif_image_handle* handle) const { heif_image_handle_release(handle); }
  void operator()(heif_image* image) const { heif_image_release(image); }
};
template <typename Held>
using Owned = std::unique_ptr<Held, Free>;

}  // namespace

std::string heif_library() { return std::string("libheif ") + heif_get_version(); }

RgbImage decode_heif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                     size_t room, Alpha alpha) {
  const auto require = [&](const heif_error& error) {
    if (error.code != heif_error_Ok) throw_damaged_image("heic", where, error.message);
  };
  const Owned<heif_context> context(heif_context_alloc());
  require(heif_context_read_from_memory_without_copy(context.get(), bytes.data(), bytes.size(),
                                                     nullptr));
  heif_image_handle* raw_handle = nullptr;
  require(heif_context_get_primary_image_handle(context.get(), &raw_handle));
  const Owned<heif_image_handle> handle(raw_handle);
  const bool has_alpha = heif_image_handle_has_alpha_channel(handle.get()) != 0;
  heif_image* raw_image = nullptr;
  require(heif_decode_image(handle.get(), &raw_image, heif_colorspace_RGB,
                            has_alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB,
                            nullptr));
  const Owned<heif_image> decoded(raw_image);
  RgbImage image{heif_image_get_primary_width(decoded.get()),
                 heif_image_get_primary_height(decoded.get()),
                 {}};
  int stride = 0;
  const uint8_t* rows =
      heif_image_get_plane_readonly(decoded.get(), heif_channel_interleaved, &stride);
  if (rows == nullptr || image.width != header.width || image.height != header.height) return image;
  const size_t channels = has_alpha ? 4 : 3, width = static_cast<size_t>(image.width),
               height = static_cast<size_t>(image.height);
  image.rgb_hwc.resize(std::max(room, 3 * width * height));
  uint8_t* rgb = image.rgb_hwc.data();
  const bool mixes = has_alpha && alpha == Alpha::kWhite;
  for (size_t y = 0; y < height; ++y)
    rgb = pixels_to_rgb(rows + y * static_cast<size_t>(stride), channels, width, mixes, rgb);
  return image;
}

}  // namespace lft::io
