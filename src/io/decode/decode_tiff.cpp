// The first page of a TIFF, with PIL's pixels: libtiff decompresses strips and tiles, and this file
// interprets their samples, since libtiff's own RGBA differs from PIL's for 16 bits, alpha and
// CMYK.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "kernels/common/error.h"
#include "src/io/decode/decode.h"
#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

/// Suppresses libtiff's messages: the caller reports errors.
const bool is_silent = [] {
  TIFFSetErrorHandler(nullptr);
  TIFFSetWarningHandler(nullptr);
  return true;
}();

struct File {
  std::string_view bytes;
  uint64_t position = 0;
};

tmsize_t read_file_bytes(thandle_t handle, void* target, tmsize_t size) {
  auto* file = static_cast<File*>(handle);
  const std::string_view part = slice(file->bytes, file->position, static_cast<uint64_t>(size));
  memcpy(target, part.data(), part.size());
  file->position += part.size();
  return static_cast<tmsize_t>(part.size());
}
tmsize_t write_nothing(thandle_t, void*, tmsize_t) { return 0; }
toff_t seek(thandle_t handle, toff_t offset, int whence) {
  auto* file = static_cast<File*>(handle);
  const uint64_t from = whence == SEEK_SET   ? 0
                        : whence == SEEK_CUR ? file->position
                                             : file->bytes.size();
  return file->position = from + offset;
}
int close_nothing(thandle_t) { return 0; }
toff_t size_of(thandle_t handle) { return static_cast<File*>(handle)->bytes.size(); }

struct Close {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};

/// The interpretation of a pixel's samples.
struct Layout {
  uint16_t bits = 1, samples = 1, photometric = PHOTOMETRIC_MINISBLACK, extra = 0;
  uint16_t first_extra = EXTRASAMPLE_UNSPECIFIED, compression = COMPRESSION_NONE, format = 1;
  bool planar = false, has_alpha = false;
};

class TiffReader {
 public:
  TiffReader(std::string_view bytes, const ImageHeader& header, const std::string& where)
      : where_(where),
        file_{.bytes = bytes},
        tiff_(TIFFClientOpen("image", "rm", &file_, read_file_bytes, write_nothing, seek,
                             close_nothing, size_of, nullptr, nullptr)),
        width_(static_cast<uint32_t>(header.width)),
        height_(static_cast<uint32_t>(header.height)) {
    if (tiff_ == nullptr) damaged("its directory cannot be read");
    read_layout();
  }

  /// Decodes RGB rows of `width` pixels each.
  void read(Alpha alpha, uint8_t* rgb) {
    mixes_ = alpha == Alpha::kWhite && layout_.has_alpha;
    if (layout_.photometric == PHOTOMETRIC_YCBCR && layout_.compression != COMPRESSION_JPEG)
      return read_ycbcr(rgb);
    const bool tiled = TIFFIsTiled(tiff_.get()) != 0;
    uint32_t across = width_, down = height_;
    if (tiled) {
      TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &across);
      TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &down);
    } else {
      TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &down);
      down = std::min(down, height_);
    }
    if (across == 0 || down == 0) damaged("a tile without pixels");
    for (uint32_t top = 0; top < height_; top += down) {
      for (uint32_t left = 0; left < width_; left += across)
        read_block({.left = left, .top = top, .width = across, .height = down}, tiled, rgb);
    }
  }

 private:
  struct Block {
    uint32_t left, top, width, height;
  };

  [[noreturn]] void damaged(const std::string& reason) const {
    throw_damaged_image("tiff", where_, reason);
  }
  [[noreturn]] void unsupported(const std::string& found) const {
    refuse(ErrorKind::kInput, "unsupported image", where_, found, {},
           "convert it, for example to PNG");
  }

  void read_layout() {
    TIFF* tiff = tiff_.get();
    const auto number = [&](uint32_t tag) {
      uint16_t value = 0;
      TIFFGetFieldDefaulted(tiff, tag, &value);
      return value;
    };
    layout_.bits = number(TIFFTAG_BITSPERSAMPLE);
    layout_.samples = number(TIFFTAG_SAMPLESPERPIXEL);
    layout_.compression = number(TIFFTAG_COMPRESSION);
    layout_.planar = number(TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
    layout_.format = number(TIFFTAG_SAMPLEFORMAT);
    if (TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &layout_.photometric) == 0)
      layout_.photometric = PHOTOMETRIC_MINISWHITE;  // PIL's default for a missing tag
    uint16_t count = 0;
    uint16_t* kinds = nullptr;
    if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 0 && count > 0) {
      layout_.extra = count;
      layout_.first_extra = kinds[0];
    }
    check_layout();
    if (layout_.photometric == PHOTOMETRIC_YCBCR && layout_.compression == COMPRESSION_JPEG)
      TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    if (layout_.photometric == PHOTOMETRIC_PALETTE) read_palette();
  }

  /// Accepts the layouts that PIL reads, with PIL's interpretation.
  void check_layout() {
    const uint16_t bits = layout_.bits, photometric = layout_.photometric;
    const bool is_signed_grey =  // PIL reads its bytes as unsigned
        layout_.format == SAMPLEFORMAT_INT && bits == 8 && layout_.samples == 1 &&
        photometric == PHOTOMETRIC_MINISBLACK;
    if (layout_.format != SAMPLEFORMAT_UINT && !is_signed_grey)
      unsupported("a TIFF whose samples are not unsigned");
    if (TIFFIsCODECConfigured(layout_.compression) == 0)
      unsupported("a TIFF of compression " + std::to_string(layout_.compression));
    const bool is_grey = photometric <= PHOTOMETRIC_MINISBLACK,
               is_wide = photometric == PHOTOMETRIC_RGB || photometric == PHOTOMETRIC_SEPARATED;
    uint16_t colours = photometric == PHOTOMETRIC_SEPARATED ? 4 : is_grey ? 1 : 3;
    if (photometric == PHOTOMETRIC_PALETTE) colours = 1;
    if (!is_grey && !is_wide && photometric != PHOTOMETRIC_PALETTE &&
        photometric != PHOTOMETRIC_YCBCR)
      unsupported("a TIFF of colour space " + std::to_string(photometric));
    const bool known =
        bits == 8 ||
        ((is_grey || photometric == PHOTOMETRIC_PALETTE) && layout_.samples == 1 &&
         (bits == 1 || bits == 2 || bits == 4)) ||
        (bits == 16 &&
         (is_wide || (photometric == PHOTOMETRIC_MINISBLACK && layout_.samples == 1)));
    if (!known) unsupported("a TIFF of " + std::to_string(bits) + " bits");
    // Four samples of RGB without a description of the fourth: it is alpha.
    const bool unnamed =
        photometric == PHOTOMETRIC_RGB && layout_.samples == 4 && layout_.extra == 0;
    if (unnamed) layout_.first_extra = EXTRASAMPLE_UNASSALPHA;
    if (layout_.samples != colours + (unnamed ? 1 : layout_.extra))
      unsupported("a TIFF of " + std::to_string(layout_.samples) + " samples a pixel");
    constexpr uint16_t kCorelDraw = 999;
    if (layout_.first_extra == kCorelDraw) layout_.first_extra = EXTRASAMPLE_UNASSALPHA;
    layout_.has_alpha = layout_.samples > colours && photometric != PHOTOMETRIC_SEPARATED &&
                        layout_.first_extra != EXTRASAMPLE_UNSPECIFIED;
    if (layout_.has_alpha && layout_.first_extra == EXTRASAMPLE_ASSOCALPHA && colours == 1)
      unsupported("a grey TIFF with premultiplied alpha");
  }

  void read_palette() {
    std::array<uint16_t*, 3> maps{};
    if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &maps[0], &maps[1], &maps[2]) == 0)
      damaged("no palette");
    for (size_t i = 0; i < size_t{1} << layout_.bits; ++i) {
      for (size_t c = 0; c < 3; ++c) palette_[i][c] = static_cast<uint8_t>(maps[c][i] >> 8);
    }
  }

  void read_ycbcr(uint8_t* rgb) {
    if (layout_.compression == COMPRESSION_NONE) unsupported("a TIFF of uncompressed YCbCr");
    std::vector<uint32_t, PageAllocator<uint32_t>> raster(size_t{width_} * height_);
    if (TIFFReadRGBAImageOriented(tiff_.get(), width_, height_, raster.data(), ORIENTATION_TOPLEFT,
                                  1) == 0)
      damaged("its pixels cannot be read");
    for (const uint32_t pixel : raster) {
      *rgb++ = static_cast<uint8_t>(TIFFGetR(pixel));
      *rgb++ = static_cast<uint8_t>(TIFFGetG(pixel));
      *rgb++ = static_cast<uint8_t>(TIFFGetB(pixel));
    }
  }

  void read_block(const Block& block, bool tiled, uint8_t* rgb) {
    const uint16_t planes = layout_.planar ? layout_.samples : uint16_t{1};
    const uint64_t row_bits =
        uint64_t{block.width} * layout_.bits * (layout_.planar ? 1u : layout_.samples);
    const uint64_t row_bytes = (row_bits + 7) / 8,
                   rows = std::min(block.height, height_ - block.top);
    const tmsize_t size = tiled ? TIFFTileSize(tiff_.get()) : TIFFStripSize(tiff_.get());
    constexpr uint64_t kSmallTile = 1 << 24;
    const uint64_t most = std::max<uint64_t>(kSmallTile, uint64_t{16} * width_ * height_);
    if (size <= 0 || static_cast<uint64_t>(size) > most ||
        static_cast<uint64_t>(size) < row_bytes * (tiled ? block.height : rows))
      damaged("tiles of " + std::to_string(size) + " bytes");
    samples_.resize(static_cast<size_t>(size) * planes);
    for (uint16_t plane = 0; plane < planes; ++plane) {
      uint8_t* target = samples_.data() + static_cast<size_t>(size) * plane;
      const tmsize_t read =
          tiled ? TIFFReadEncodedTile(tiff_.get(),
                                      TIFFComputeTile(tiff_.get(), block.left, block.top, 0, plane),
                                      target, size)
                : TIFFReadEncodedStrip(tiff_.get(), TIFFComputeStrip(tiff_.get(), block.top, plane),
                                       target, size);
      if (read < 0 || static_cast<uint64_t>(read) < row_bytes * rows)
        damaged("the pixels at row " + std::to_string(block.top) + " cannot be read");
    }
    const uint32_t columns = std::min(block.width, width_ - block.left);
    for (uint64_t y = 0; y < rows; ++y) {
      const auto sample = [&](uint64_t x, uint16_t s) {
        return layout_.planar
                   ? sample_at(samples_.data() + static_cast<size_t>(size) * s + y * row_bytes, x)
                   : sample_at(samples_.data() + y * row_bytes, x * layout_.samples + s);
      };
      uint8_t* to = rgb + 3 * ((block.top + y) * width_ + block.left);
      for (uint32_t x = 0; x < columns; ++x, to += 3)
        write_pixel([&](uint16_t s) { return sample(x, s); }, to);
    }
  }

  /// The value of sample `at` of a row; for 16 bits the high byte, for grey all 16 bits.
  uint32_t sample_at(const uint8_t* row, uint64_t at) const {
    if (layout_.bits == 8) return row[at];
    if (layout_.bits == 16) {
      uint16_t value = 0;
      memcpy(&value, row + 2 * at, 2);
      return layout_.photometric == PHOTOMETRIC_MINISBLACK ? value : value >> 8;
    }
    const uint64_t bit = at * layout_.bits;
    return row[bit / 8] >> (8 - layout_.bits - bit % 8) & ((1u << layout_.bits) - 1);
  }

  template <typename Sample>
  void write_pixel(const Sample& sample, uint8_t* rgb) const {
    std::array<uint8_t, 3> colour{};
    const uint32_t first = sample(0);
    if (layout_.photometric == PHOTOMETRIC_PALETTE) {
      colour = palette_[first];
    } else if (layout_.photometric <= PHOTOMETRIC_MINISBLACK) {
      const uint32_t most = (1u << layout_.bits) - 1,
                     grey = layout_.bits == 16 ? std::min(first, 255u) : first * 255 / most;
      colour.fill(
          static_cast<uint8_t>(layout_.photometric == PHOTOMETRIC_MINISWHITE ? 255 - grey : grey));
    } else if (layout_.photometric == PHOTOMETRIC_SEPARATED) {
      const uint32_t white = 255 - sample(3);
      for (uint16_t c = 0; c < 3; ++c) {
        const uint32_t product = sample(c) * white + 128;
        colour[c] = static_cast<uint8_t>(white - (((product >> 8) + product) >> 8));
      }
    } else {
      for (uint16_t c = 0; c < 3; ++c) colour[c] = static_cast<uint8_t>(sample(c));
    }
    if (layout_.has_alpha)
      apply_alpha(
          static_cast<uint8_t>(sample(layout_.samples - layout_.extra - (layout_.extra == 0))),
          colour);
    std::ranges::copy(colour, rgb);
  }

  /// Premultiplied colours are divided by alpha, as in PIL's RGBa.
  void apply_alpha(uint8_t alpha, std::array<uint8_t, 3>& colour) const {
    for (uint8_t& value : colour) {
      if (layout_.first_extra == EXTRASAMPLE_ASSOCALPHA && alpha != 255)
        value = alpha == 0 ? uint8_t{0} : static_cast<uint8_t>(std::min(255, value * 255 / alpha));
      if (mixes_) value = on_white(value, alpha);
    }
  }

  const std::string& where_;
  File file_;
  std::unique_ptr<TIFF, Close> tiff_;
  uint32_t width_, height_;
  bool mixes_ = false;
  Layout layout_;
  std::array<std::array<uint8_t, 3>, 256> palette_{};
  std::vector<uint8_t, PageAllocator<uint8_t>> samples_;
};

}  // namespace

std::string tiff_library() {
  const std::string text = TIFFGetVersion();  // "LIBTIFF, Version 4.5.0\n..."
  const size_t at = text.rfind(' ', text.find('\n'));
  return "libtiff " + text.substr(at + 1, text.find('\n') - at - 1);
}

RgbImage decode_tiff(std::string_view bytes, const ImageHeader& header, const std::string& where,
                     size_t room, Alpha alpha) {
  TiffReader reader(bytes, header, where);
  const auto pixels = static_cast<size_t>(header.width * header.height);
  RgbImage image{header.width, header.height, Pixels(std::max(room, 3 * pixels))};
  reader.read(alpha, image.rgb_hwc.data());
  return image;
}

}  // namespace lft::io
