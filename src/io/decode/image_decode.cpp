#include "src/io/decode/image_decode.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "kernels/common/error.h"
#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

bool swaps_axes(int orientation) { return orientation >= 5; }

/// The transform of a stored image: it is mirrored and flipped, then its axes are swapped.
struct Turn {
  bool swaps = false, mirrors = false, flips = false;
};
Turn turn_of(int orientation) {
  const auto is_one_of = [&](std::initializer_list<int> those) {
    return std::find(those.begin(), those.end(), orientation) != those.end();
  };
  return {.swaps = swaps_axes(orientation),
          .mirrors = is_one_of({2, 3, 7, 8}),
          .flips = is_one_of({3, 4, 6, 7})};
}

/// As in PIL's exif_transpose.
RgbImage turn(RgbImage stored, int orientation) {
  if (orientation == 1) return stored;
  const auto [swaps, mirrors, flips] = turn_of(orientation);
  RgbImage turned{swaps ? stored.height : stored.width, swaps ? stored.width : stored.height,
                  Pixels(stored.rgb_hwc.size())};
  uint8_t* to = turned.rgb_hwc.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x, to += 3) {
      const int64_t across = swaps ? y : x, down = swaps ? x : y;
      const int64_t from_x = mirrors ? stored.width - 1 - across : across,
                    from_y = flips ? stored.height - 1 - down : down;
      const uint8_t* from = stored.rgb_hwc.data() + 3 * (from_y * stored.width + from_x);
      std::copy(from, from + 3, to);
    }
  }
  return turned;
}

/// Transposes a square in place, tile by tile.
void transpose_square(uint8_t* square, int64_t side) {
  constexpr int64_t kTile = 32;
  for (int64_t top = 0; top < side; top += kTile) {
    for (int64_t left = top; left < side; left += kTile) {
      for (int64_t y = top; y < std::min(top + kTile, side); ++y) {
        for (int64_t x = std::max(left, y + 1); x < std::min(left + kTile, side); ++x)
          std::swap_ranges(square + 3 * (y * side + x), square + 3 * (y * side + x) + 3,
                           square + 3 * (x * side + y));
      }
    }
  }
}

void turn_square(uint8_t* square, int64_t side, const Turn& turn) {
  const int64_t row = 3 * side;
  for (int64_t y = 0; turn.flips && y < side / 2; ++y)
    std::swap_ranges(square + y * row, square + (y + 1) * row, square + (side - 1 - y) * row);
  for (int64_t y = 0; turn.mirrors && y < side; ++y) {
    uint8_t* pixels = square + y * row;
    for (int64_t x = 0; x < side / 2; ++x)
      std::swap_ranges(pixels + 3 * x, pixels + 3 * x + 3, pixels + 3 * (side - 1 - x));
  }
  if (turn.swaps) transpose_square(square, side);
}

/// Moves the image's rows, which are packed at the beginning, to their positions in the square; the
/// last row first, so that none is overwritten.
void spread_rows(RgbImage& image, int64_t side, int64_t left, int64_t top,
                 const std::array<uint8_t, 3>& background) {
  uint8_t* square = image.rgb_hwc.data();
  const auto fill = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy(background.begin(), background.end(), square + 3 * i);
  };
  const int64_t width = image.width, height = image.height;
  for (int64_t y = height - 1; y >= 0; --y)
    std::memmove(square + 3 * ((top + y) * side + left), square + 3 * y * width,
                 static_cast<size_t>(3 * width));
  fill(0, top * side + left);
  for (int64_t y = top; y < top + height - 1; ++y)
    fill(y * side + left + width, (y + 1) * side + left);
  fill((top + height - 1) * side + left + width, side * side);
  image.width = image.height = side;
}

/// kInput unless the decoder found the size of the header, whose limits were checked.
void check_size(int64_t width, int64_t height, const ImageHeader& header,
                const std::string& where) {
  if (width == header.width && height == header.height) return;
  throw_damaged_image(header.kind, where,
                      "the pixels are " + std::to_string(width) + " x " + std::to_string(height));
}

/// The pixels as stored, in at least `room` bytes.
RgbImage decode_stored(std::string_view bytes, const ImageHeader& header, const std::string& where,
                       size_t room, Alpha alpha) {
  RgbImage image = [&] {
    if (header.kind == "jpeg") return decode_jpeg(bytes, where, room);
    if (header.kind == "png") return decode_png(bytes, header, where, room, alpha);
    if (header.kind == "bmp") return decode_bmp(bytes, header, where, room, alpha);
    if (header.kind == "gif") return decode_gif(bytes, header, where, room, alpha);
    if (header.kind == "tiff") return decode_tiff(bytes, header, where, room, alpha);
    if (header.kind == "pnm") return decode_pnm(bytes, header, where, room);
    if (header.kind == "avif") return decode_avif(bytes, header, where, room, alpha);
    if (header.kind == "heic") return decode_heif(bytes, header, where, room, alpha);
    if (header.animated) return decode_animated_webp(bytes, header, where, room, alpha);
    return decode_with_opencv(bytes, header, where, room, alpha);
  }();
  check_size(image.width, image.height, header, where);
  return image;
}

}  // namespace

void throw_damaged_image(const std::string& kind, const std::string& where,
                         const std::string& reason) {
  refuse(ErrorKind::kInput, "the " + kind + " image is cut or damaged", where, reason);
}

std::string image_libraries() {
  return opencv_library() + ", " + jpeg_library() + ", " + png_library() + ", " + webp_library() +
         ", " + tiff_library() + ", " + avif_library() + ", " + heif_library();
}

void load_decoder(const ImageHeader& header) {
  if (header.kind == "webp" && !header.animated) load_opencv();
}

RgbImage decode_image(std::string_view bytes, const ImageHeader& header, const std::string& where,
                      Alpha alpha) {
  RgbImage image = decode_stored(bytes, header, where, /*room=*/0, alpha);
  return turn(std::move(image), header.orientation);
}

RgbImage decode_image(std::string_view bytes, const std::string& where, const ImageLimits& limits) {
  return decode_image(bytes, read_image_header(bytes, where, limits), where, limits.alpha);
}

RgbImage decode_square(std::string_view bytes, const ImageHeader& header, const std::string& where,
                       const std::array<uint8_t, 3>& background, Alpha alpha) {
  const int64_t side = std::max(header.width, header.height);
  RgbImage image = decode_stored(bytes, header, where, static_cast<size_t>(3 * side * side), alpha);
  const Turn turn = turn_of(header.orientation);
  // The position of the rotated image in the square, and that of the stored image before the
  // rotation.
  const int64_t shown_left = (side - (turn.swaps ? image.height : image.width)) / 2,
                shown_top = (side - (turn.swaps ? image.width : image.height)) / 2,
                across = turn.swaps ? shown_top : shown_left,
                down = turn.swaps ? shown_left : shown_top;
  spread_rows(image, side, turn.mirrors ? side - across - image.width : across,
              turn.flips ? side - down - image.height : down, background);
  turn_square(image.rgb_hwc.data(), side, turn);
  return image;
}

std::string jpeg_file(const RgbImage& image) { return encode_jpeg(image); }

ImageCheck check_image(std::string_view bytes, const std::string& where,
                       const ImageLimits& limits) {
  const ImageHeader header = read_image_header(bytes, where, limits);
  if (header.kind != "jpeg") {
    const RgbImage image = decode_image(bytes, header, where, limits.alpha);
    return {.width = image.width, .height = image.height, .damage = {}};
  }
  ImageCheck check = check_jpeg(bytes, where);
  check_size(check.width, check.height, header, where);
  if (swaps_axes(header.orientation)) std::swap(check.width, check.height);
  return check;
}

}  // namespace lft::io
