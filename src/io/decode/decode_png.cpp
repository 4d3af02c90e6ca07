// setjmp is called in a function without destructors, since libpng leaves it through longjmp.
#include <png.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

struct PngJob {
  const std::string_view* bytes = nullptr;
  size_t position = 0;
  std::string message;
  std::vector<uint8_t> rows;  // rows of an image with alpha or 16-bit grey
  size_t room = 0;            // minimum size of the pixels in bytes
  bool deep_grey = false;
  bool mixes = false;      // transparency is composited on white
  bool has_alpha = false;  // the rows contain it; otherwise `key` is the transparent colour
  bool has_key = false;
  std::array<uint8_t, 3> key{};
};

void on_png_error(png_structp png, png_const_charp message) {
  static_cast<PngJob*>(png_get_error_ptr(png))->message = message;
  png_longjmp(png, 1);
}

/// Warnings are about unusual colour profiles and the like; damage shows in the CRCs, which are
/// errors here.
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep target, size_t size) {
  PngJob* job = static_cast<PngJob*>(png_get_io_ptr(png));
  if (size > job->bytes->size() - job->position) png_error(png, "the file ends early");
  memcpy(target, job->bytes->data() + job->position, size);
  job->position += size;
}

/// Makes one colour transparent, as in PIL's convert("RGBA"): by the low bytes of the file's
/// values, also for 16 bits, and for bilevel images by whether the value is 0.
std::array<uint8_t, 3> transparent_colour(const png_color_16& key, int colour, int depth) {
  const auto low = [](png_uint_16 value) { return static_cast<uint8_t>(value); };
  if (colour == PNG_COLOR_TYPE_RGB) return {low(key.red), low(key.green), low(key.blue)};
  const uint8_t grey = depth > 1 ? low(key.gray) : static_cast<uint8_t>(key.gray != 0 ? 255 : 0);
  return {grey, grey, grey};
}

/// 8-bit RGB rows, except 16-bit grey, which PIL clamps at 255 instead of scaling, and RGBA rows
/// where an alpha channel or a palette's alpha is composited.
void ask_for_rgb(png_structp png, png_infop info, PngJob* job) {
  const int colour = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
  job->deep_grey = colour == PNG_COLOR_TYPE_GRAY && depth == 16;
  if (job->deep_grey) return;
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (depth == 16) png_set_strip_16(png);
  png_color_16p key = nullptr;
  job->has_alpha =
      job->mixes && (colour & PNG_COLOR_MASK_ALPHA || colour == PNG_COLOR_TYPE_PALETTE);
  job->has_key =
      job->mixes && !job->has_alpha && png_get_tRNS(png, info, nullptr, nullptr, &key) != 0;
  if (job->has_key) job->key = transparent_colour(*key, colour, depth);
  if (job->has_alpha && colour == PNG_COLOR_TYPE_PALETTE) png_set_tRNS_to_alpha(png);
  if (!job->has_alpha) png_set_strip_alpha(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
}

void clip_grey_row(const uint8_t* row, size_t width, uint8_t* rgb) {
  for (size_t x = 0; x < width; ++x) memset(rgb + 3 * x, row[2 * x] != 0 ? 255 : row[2 * x + 1], 3);
}

void whiten_colour(Pixels& rgb, size_t pixels, const std::array<uint8_t, 3>& colour) {
  for (uint8_t* at = rgb.data(); at != rgb.data() + 3 * pixels; at += 3)
    if (std::equal(colour.begin(), colour.end(), at)) memset(at, 255, 3);
}

void composite_row(const uint8_t* rgba, size_t width, uint8_t* rgb) {
  pixels_to_rgb(rgba, 4, width, /*mixes=*/true, rgb);
}

bool decode_rows(png_structp png, png_infop info, PngJob* job, RgbImage* image) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  // Texts, EXIF and colour profiles are skipped except for their CRCs: libpng would allocate the
  // size that an EXIF chunk claims.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_read_fn(png, job, on_read);
  png_read_info(png, info);
  image->width = png_get_image_width(png, info);
  image->height = png_get_image_height(png, info);
  ask_for_rgb(png, info, job);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t width = static_cast<size_t>(image->width), row_bytes = png_get_rowbytes(png, info);
  const size_t channels = job->deep_grey ? 2 : job->has_alpha ? 4 : 3;
  if (row_bytes != width * channels) png_error(png, "unexpected row size");
  image->rgb_hwc.resize(std::max(job->room, 3 * width * static_cast<size_t>(image->height)));
  const bool is_made = channels != 3;
  if (is_made) job->rows.resize(row_bytes * static_cast<size_t>(image->height));
  uint8_t* rows = is_made ? job->rows.data() : image->rgb_hwc.data();
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < image->height; ++y)
      png_read_row(png, rows + static_cast<size_t>(y) * row_bytes, nullptr);
  }
  png_read_end(png, nullptr);
  for (size_t y = 0; is_made && y < static_cast<size_t>(image->height); ++y) {
    const auto make_row = job->deep_grey ? clip_grey_row : composite_row;
    make_row(job->rows.data() + y * row_bytes, width, image->rgb_hwc.data() + 3 * y * width);
  }
  if (job->has_key)
    whiten_colour(image->rgb_hwc, width * static_cast<size_t>(image->height), job->key);
  return true;
}

}  // namespace

std::string png_library() { return "libpng " PNG_LIBPNG_VER_STRING; }

RgbImage decode_png(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha) {
  PngJob job{.bytes = &bytes,
             .position = 0,
             .message = "",
             .rows = {},
             .room = room,
             .mixes = header.transparent && alpha == Alpha::kWhite};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, on_png_error, on_warning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  RgbImage image;
  const bool ok = info != nullptr && decode_rows(png, info, &job, &image);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!ok) throw_damaged_image("png", where, job.message);
  return image;
}

}  // namespace lft::io
