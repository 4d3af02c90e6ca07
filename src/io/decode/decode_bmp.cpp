// Windows and OS/2 bitmaps as PIL reads them: uncompressed, bit fields, or run-length encoded.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/common/error.h"
#include "src/io/decode/decode.h"
#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

constexpr uint64_t kFileHeader = 14;
constexpr uint32_t kOs2Header = 12, kUncompressed = 0, kRuns8 = 1, kRuns4 = 2, kBitFields = 3;

struct Colour {
  uint8_t red = 0, green = 0, blue = 0, alpha = 255;
};

uint8_t byte_at(std::string_view bytes, uint64_t at) { return static_cast<uint8_t>(bytes[at]); }

class BmpReader {
 public:
  BmpReader(std::string_view bytes, const ImageHeader& header, const std::string& where)
      : bytes_(bytes), where_(where), width_(static_cast<uint64_t>(header.width)) {
    read_header();
    if (bits_ <= 8) read_palette();
    const auto height = static_cast<uint64_t>(header.height);
    in_runs_ ? read_runs(height) : check_pixels(height);
  }

  /// The stored row for row `y` from the top, of `height` rows.
  void read_row(uint64_t y, uint64_t height, Alpha alpha, uint8_t* rgb) const {
    const uint64_t stored = from_top_ ? y : height - 1 - y,
                   row = in_runs_ ? stored * width_ : pixels_at_ + stored * row_bytes();
    for (uint64_t x = 0; x < width_; ++x, rgb += 3) {
      const Colour colour = in_runs_     ? palette_[run_pixels_[row + x]]
                            : bits_ <= 8 ? palette_[index(row, x)]
                                         : pixel(row, x);
      const bool mixes = alpha == Alpha::kWhite && fields_.alpha >= 0;
      rgb[0] = mixes ? on_white(colour.red, colour.alpha) : colour.red;
      rgb[1] = mixes ? on_white(colour.green, colour.alpha) : colour.green;
      rgb[2] = mixes ? on_white(colour.blue, colour.alpha) : colour.blue;
    }
  }

 private:
  uint32_t number(uint64_t at, int size) const {
    return number_at(bytes_, at, size, false).value_or(0);
  }
  [[noreturn]] void unsupported(const std::string& found) const {
    refuse(ErrorKind::kInput, "unsupported image", where_, found, {},
           "convert it, for example to PNG");
  }
  uint64_t row_bytes() const { return (width_ * bits_ + 31) / 32 * 4; }

  void read_header() {
    header_ = number(14, 4);
    constexpr std::array<uint32_t, 7> kHeaders = {kOs2Header, 40, 52, 56, 64, 108, 124};
    if (std::ranges::find(kHeaders, header_) == kHeaders.end())
      unsupported("a BMP with a header of " + std::to_string(header_) + " bytes");
    const bool old = header_ == kOs2Header;
    bits_ = number(old ? 24 : 28, 2);
    const uint32_t compression = old ? kUncompressed : number(30, 4);
    in_fields_ = compression == kBitFields && !old;
    in_runs_ = (compression == kRuns8 || compression == kRuns4) && bits_ <= 8;
    in_nibbles_ = compression == kRuns4;
    const bool known =
        bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32;
    if (!known || (compression != kUncompressed && !in_runs_ && (!in_fields_ || bits_ < 16)))
      unsupported("a BMP of " + std::to_string(bits_) + " bits, compression " +
                  std::to_string(compression));
    fields_ = bmp_fields(bytes_);
    if (in_fields_) check_fields();
    from_top_ = !old && number(25, 1) == 0xff;
    pixels_at_ = number(10, 4);
    const uint64_t end = kFileHeader + header_;
    if (pixels_at_ == 0 && bits_ > 8) pixels_at_ = end + (in_fields_ && header_ == 40 ? 12 : 0);
  }

  void check_fields() {
    const std::array<uint32_t, 3> masks = {number(54, 4), number(58, 4), number(62, 4)};
    constexpr std::array<uint32_t, 3> k565 = {0xf800, 0x7e0, 0x1f}, k555 = {0x7c00, 0x3e0, 0x1f},
                                      k888 = {0xff0000, 0xff00, 0xff};
    six_bits_of_green_ = bits_ == 16 && masks == k565;
    const bool known = bits_ == 16   ? six_bits_of_green_ || masks == k555
                       : bits_ == 24 ? masks == k888
                                     : fields_.known;
    if (!known) unsupported("a BMP of unusual bit fields");
  }

  /// If the header's pixel offset is the end of the header itself, pixels follow the palette.
  void read_palette() {
    const uint64_t begin = kFileHeader + header_, entry = header_ == kOs2Header ? 3 : 4;
    const uint64_t used = header_ == kOs2Header ? 0 : number(46, 4),
                   colours = used > 0 ? used : uint64_t{1} << bits_;
    if (colours > palette_.size())
      unsupported("a BMP of a palette of " + std::to_string(colours) + " colours");
    bool is_grey = true;  // PIL's rule for grey: each entry equals its index, or black and white
    for (uint64_t i = 0; i < colours; ++i) {
      const std::string_view bgr = slice(bytes_, begin + i * entry, 3);
      if (bgr.size() < 3) throw_damaged_image("bmp", where_, "its palette is cut");
      palette_[i] = {.red = byte_at(bgr, 2), .green = byte_at(bgr, 1), .blue = byte_at(bgr, 0)};
      const uint64_t value = colours == 2 ? 255 * i : i;
      is_grey = is_grey && palette_[i].red == value && palette_[i].green == value &&
                palette_[i].blue == value;
    }
    if (is_grey) take_grey(colours);
    if (pixels_at_ == 0 || pixels_at_ == begin) pixels_at_ = begin + colours * entry;
  }

  /// PIL drops such a palette and then reads the pixels as 1 or 8 bits.
  void take_grey(uint64_t colours) {
    if (bits_ != (colours <= 2 ? 1 : 8))
      unsupported("a BMP of " + std::to_string(bits_) + " bits with " + std::to_string(colours) +
                  " shades of grey");
    for (uint64_t i = 0; i < uint64_t{1} << bits_; ++i) {
      const auto value = static_cast<uint8_t>(bits_ == 1 ? 255 * i : i);
      palette_[i] = {.red = value, .green = value, .blue = value};
    }
  }

  void check_pixels(uint64_t height) const {
    const uint64_t end = pixels_at_ + row_bytes() * (height - 1) + (width_ * bits_ + 7) / 8;
    if (bytes_.size() >= end) return;
    throw_damaged_image(
        "bmp", where_,
        std::to_string(bytes_.size()) + " bytes, and the pixels end at " + std::to_string(end));
  }

  /// PIL's BmpRleDecoder, including its behaviour at the end of a row and of the image.
  void read_runs(uint64_t height) {
    const uint64_t count = width_ * height;
    uint64_t at = pixels_at_, x = 0;
    const auto append = [&](uint64_t pixels, uint8_t value) {
      run_pixels_.insert(run_pixels_.end(), pixels, value);
    };
    while (run_pixels_.size() < count && at + 2 <= bytes_.size()) {
      const uint64_t length = byte_at(bytes_, at);
      const uint8_t byte = byte_at(bytes_, at + 1);
      at += 2;
      if (length > 0) {
        const uint64_t fitting = std::min(length, width_ - std::min(x, width_));
        for (uint64_t i = 0; i < fitting; ++i) append(1, in_nibbles_ ? nibble(byte, i) : byte);
        x += fitting;
      } else if (byte == 0) {
        append((width_ - run_pixels_.size() % width_) % width_, 0);
        x = 0;
      } else if (byte == 1) {
        break;
      } else if (byte == 2) {
        if (at + 2 > bytes_.size()) break;
        const uint64_t skipped = byte_at(bytes_, at) + byte_at(bytes_, at + 1) * width_;
        append(std::min(count - run_pixels_.size(), skipped), 0);
        x = run_pixels_.size() % width_;
        at += 2;
      } else {
        const uint64_t pixels = std::min<uint64_t>(count - run_pixels_.size(), byte),
                       size = in_nibbles_ ? (pixels + 1) / 2 : pixels;
        if (at + size > bytes_.size()) break;
        for (uint64_t i = 0; i < pixels; ++i)
          append(1, in_nibbles_ ? nibble(byte_at(bytes_, at + i / 2), i) : byte_at(bytes_, at + i));
        x += byte;
        at += size;
        at += at % 2;
      }
    }
    if (run_pixels_.size() < count)
      throw_damaged_image("bmp", where_, "its runs end before the last pixel");
  }
  static uint8_t nibble(uint8_t byte, uint64_t i) { return i % 2 == 0 ? byte >> 4 : byte & 15; }

  uint8_t index(uint64_t row, uint64_t x) const {
    const uint64_t bit = x * bits_;
    const uint8_t byte = byte_at(bytes_, row + bit / 8);
    return static_cast<uint8_t>(byte >> (8 - bits_ - bit % 8)) &
           static_cast<uint8_t>((1u << bits_) - 1);
  }

  Colour pixel(uint64_t row, uint64_t x) const {
    const uint64_t at = row + x * bits_ / 8;
    if (bits_ == 16) {
      const uint32_t value = number(at, 2), green = six_bits_of_green_ ? 63 : 31;
      return {
          .red = static_cast<uint8_t>((value >> (six_bits_of_green_ ? 11 : 10) & 31) * 255 / 31),
          .green = static_cast<uint8_t>((value >> 5 & green) * 255 / green),
          .blue = static_cast<uint8_t>((value & 31) * 255 / 31)};
    }
    const auto channel = [&](int byte) {
      return byte_at(bytes_, at + static_cast<uint64_t>(byte));
    };
    return {.red = channel(fields_.red),
            .green = channel(fields_.green),
            .blue = channel(fields_.blue),
            .alpha = fields_.alpha < 0 ? uint8_t{255} : channel(fields_.alpha)};
  }

  std::string_view bytes_;
  const std::string& where_;
  uint64_t width_, pixels_at_ = 0;
  uint32_t header_ = 0, bits_ = 0;
  bool in_fields_ = false, from_top_ = false, six_bits_of_green_ = false, in_runs_ = false,
       in_nibbles_ = false;
  std::vector<uint8_t> run_pixels_;  // for a run-length encoded image: indices by row as stored
  BmpFields fields_;
  std::array<Colour, 256> palette_;  // black for missing colours
};

}  // namespace

RgbImage decode_bmp(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha) {
  const BmpReader reader(bytes, header, where);
  const auto width = static_cast<uint64_t>(header.width),
             height = static_cast<uint64_t>(header.height);
  RgbImage image{header.width, header.height, Pixels(std::max<size_t>(room, 3 * width * height))};
  for (uint64_t y = 0; y < height; ++y)
    reader.read_row(y, height, alpha, image.rgb_hwc.data() + 3 * width * y);
  return image;
}

}  // namespace lft::io
