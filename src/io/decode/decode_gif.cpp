// The first frame of a GIF, as PIL shows it: in the canvas, whose other places are transparent or
// the palette's first colour.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

struct Reader {
  std::string_view bytes;
  size_t position = 0;
};

int read_some(GifFileType* gif, GifByteType* target, int size) {
  auto* reader = static_cast<Reader*>(gif->UserData);
  const size_t count = std::min(static_cast<size_t>(size), reader->bytes.size() - reader->position);
  std::copy_n(reader->bytes.data() + reader->position, count, target);
  reader->position += count;
  return static_cast<int>(count);
}

struct Close {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using GifFile = std::unique_ptr<GifFileType, Close>;

/// Colours by index: grey where the file has no palette, as the places after a palette's end.
std::array<std::array<uint8_t, 3>, 256> colours_of(const GifFileType& gif) {
  std::array<std::array<uint8_t, 3>, 256> colours{};
  for (size_t i = 0; i < colours.size(); ++i) colours[i].fill(static_cast<uint8_t>(i));
  const ColorMapObject* map =
      gif.Image.ColorMap != nullptr ? gif.Image.ColorMap : gif.SColorMap;
  for (int i = 0; map != nullptr && i < map->ColorCount; ++i) {
    const GifColorType& colour = map->Colors[i];
    colours[static_cast<size_t>(i)] = {colour.Red, colour.Green, colour.Blue};
  }
  return colours;
}

class GifReader {
 public:
  GifReader(std::string_view bytes, const ImageHeader& header, const std::string& where)
      : where_(where),
        reader_{.bytes = bytes},
        gif_(DGifOpen(&reader_, read_some, nullptr)),
        width_(static_cast<size_t>(header.width)),
        height_(static_cast<size_t>(header.height)) {
    if (gif_ == nullptr) damaged();
    find_image();
    indices_.resize(width_ * height_, static_cast<uint8_t>(std::max(transparent_, 0)));
    read_rows();
  }

  void write(Alpha alpha, uint8_t* rgb) const {
    auto colours = colours_of(*gif_);
    if (alpha == Alpha::kWhite && transparent_ >= 0)
      colours[static_cast<size_t>(transparent_)].fill(255);
    for (const uint8_t index : indices_) rgb = std::ranges::copy(colours[index], rgb).out;
  }

 private:
  [[noreturn]] void damaged() const {
    const char* reason = gif_ == nullptr ? "no screen descriptor" : GifErrorString(gif_->Error);
    throw_damaged_image("gif", where_, reason == nullptr ? "its blocks are out of order" : reason);
  }
  void require(int status) const {
    if (status != GIF_OK) damaged();
  }

  void find_image() {
    for (GifRecordType type = UNDEFINED_RECORD_TYPE;;) {
      require(DGifGetRecordType(gif_.get(), &type));
      if (type == IMAGE_DESC_RECORD_TYPE) break;
      if (type != EXTENSION_RECORD_TYPE) damaged();
      int code = 0;
      GifByteType* block = nullptr;
      require(DGifGetExtension(gif_.get(), &code, &block));
      constexpr int kSizeOfControl = 4;
      if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= kSizeOfControl &&
          (block[1] & 1) != 0)
        transparent_ = block[4];
      while (block != nullptr) require(DGifGetExtensionNext(gif_.get(), &block));
    }
    require(DGifGetImageDesc(gif_.get()));
  }

  void read_rows() {
    const GifImageDesc& frame = gif_->Image;
    const auto left = static_cast<size_t>(frame.Left), top = static_cast<size_t>(frame.Top),
               rows = static_cast<size_t>(frame.Height);
    if (left + static_cast<size_t>(frame.Width) > width_ || top + rows > height_) damaged();
    struct Pass {
      size_t first, step;
    };
    const std::vector<Pass> passes =
        frame.Interlace ? std::vector<Pass>{{0, 8}, {4, 8}, {2, 4}, {1, 2}}
                        : std::vector<Pass>{{0, 1}};
    for (const Pass& pass : passes) {
      for (size_t y = pass.first; y < rows; y += pass.step)
        require(DGifGetLine(gif_.get(), indices_.data() + (top + y) * width_ + left, frame.Width));
    }
  }

  const std::string& where_;
  Reader reader_;
  GifFile gif_;
  size_t width_, height_;
  int transparent_ = -1;
  std::vector<uint8_t, PageAllocator<uint8_t>> indices_;
};

}  // namespace

std::string gif_library() {
  return "giflib " + std::to_string(GIFLIB_MAJOR) + "." + std::to_string(GIFLIB_MINOR) + "." +
         std::to_string(GIFLIB_RELEASE);
}

RgbImage decode_gif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha) {
  const GifReader reader(bytes, header, where);
  const auto pixels = static_cast<size_t>(header.width * header.height);
  RgbImage image{header.width, header.height, Pixels(std::max(room, 3 * pixels))};
  reader.write(alpha, image.rgb_hwc.data());
  return image;
}

}  // namespace lft::io
