// The first frame of a GIF, as PIL shows it: on the canvas, whose other pixels are transparent or
// the palette's first colour. giflib refuses codes of more than 8 bits, which PIL reads.
#include <algorithm>
#include <array>

#include "src/io/decode/decode.h"
#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

constexpr uint32_t kMostCodes = 4096, kMostCodeBits = 12;

/// The pixels of a frame in sequence (LZW; GIF89a, appendix F).
class Codes {
 public:
  /// `blocks`: the minimum code size in bits, then the data blocks.
  explicit Codes(std::string_view blocks) : blocks_(blocks) {
    bits_ = number_at(blocks, 0, 1, false).value_or(0);
    is_broken_ = bits_ == 0 || bits_ >= kMostCodeBits;
    if (!is_broken_) clear();
  }

  /// False after the end code and for invalid data.
  bool next(uint8_t* pixel) {
    if (waiting_ == 0 && !expand()) return false;
    *pixel = stack_[--waiting_];
    return true;
  }
  bool is_broken() const { return is_broken_; }

 private:
  uint32_t first_code() const { return 1u << bits_; }
  void clear() {
    code_bits_ = bits_ + 1;
    count_ = first_code() + 2;
    last_ = kMostCodes;
  }

  /// The next code, or nothing at the end of the data.
  std::optional<uint32_t> read_code() {
    while (buffered_ < code_bits_) {
      if (left_in_block_ == 0) left_in_block_ = number_at(blocks_, at_++, 1, false).value_or(0);
      const auto byte = number_at(blocks_, at_, 1, false);
      if (left_in_block_ == 0 || !byte) return std::nullopt;
      ++at_;
      --left_in_block_;
      buffer_ |= *byte << buffered_;
      buffered_ += 8;
    }
    const uint32_t code = buffer_ & ((1u << code_bits_) - 1);
    buffer_ >>= code_bits_;
    buffered_ -= code_bits_;
    return code;
  }

  bool broken() {
    is_broken_ = true;
    return false;
  }

  /// Pushes the pixels of the next code on the stack.
  bool expand() {
    if (is_broken_) return false;
    std::optional<uint32_t> code = read_code();
    for (; code == first_code(); code = read_code()) clear();
    if (!code) return broken();
    if (*code == first_code() + 1) return false;
    if (last_ == kMostCodes) {  // first code after a clear code
      if (*code >= first_code()) return broken();
      first_pixel_ = static_cast<uint8_t>(*code);
      stack_[waiting_++] = first_pixel_;
      last_ = *code;
      return true;
    }
    if (*code > count_) return broken();
    uint32_t at = *code;
    if (at == count_) {
      stack_[waiting_++] = first_pixel_;
      at = last_;
    }
    for (; at >= first_code(); at = link_[at]) {
      if (at >= kMostCodes || waiting_ + 1 >= stack_.size()) return broken();
      stack_[waiting_++] = pixel_[at];
    }
    first_pixel_ = static_cast<uint8_t>(at);
    stack_[waiting_++] = first_pixel_;
    if (count_ < kMostCodes) {
      pixel_[count_] = first_pixel_;
      link_[count_] = last_;
      if (++count_ == 1u << code_bits_ && code_bits_ < kMostCodeBits) ++code_bits_;
    }
    last_ = *code;
    return true;
  }

  std::string_view blocks_;
  uint64_t at_ = 1;
  uint32_t bits_ = 0, code_bits_ = 0, count_ = 0, last_ = kMostCodes;
  uint32_t buffer_ = 0, buffered_ = 0, left_in_block_ = 0;
  bool is_broken_ = false;
  uint8_t first_pixel_ = 0;
  size_t waiting_ = 0;
  std::array<uint8_t, kMostCodes + 1> stack_{};
  std::array<uint8_t, kMostCodes> pixel_{};
  std::array<uint32_t, kMostCodes> link_{};
};

/// Colours by index: grey without a palette and for indices beyond the palette's end.
std::array<std::array<uint8_t, 3>, 256> colours_of(std::string_view palette) {
  std::array<std::array<uint8_t, 3>, 256> colours{};
  for (size_t i = 0; i < colours.size(); ++i) colours[i].fill(static_cast<uint8_t>(i));
  for (size_t i = 0; i < palette.size() / 3; ++i)
    std::copy_n(palette.data() + 3 * i, 3, colours[i].data());
  return colours;
}

}  // namespace

RgbImage decode_gif(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room, Alpha alpha) {
  const GifFrame frame = gif_frame(bytes).value();
  const auto width = static_cast<size_t>(header.width), height = static_cast<size_t>(header.height);
  std::vector<uint8_t, PageAllocator<uint8_t>> indices(
      width * height, static_cast<uint8_t>(std::max(frame.transparent, 0)));
  Codes codes(slice(bytes, frame.data_at, bytes.size()));
  struct Pass {
    int64_t first, step;
  };
  const std::vector<Pass> passes = frame.is_interlaced
                                       ? std::vector<Pass>{{0, 8}, {4, 8}, {2, 4}, {1, 2}}
                                       : std::vector<Pass>{{0, 1}};
  bool more = true;
  for (const Pass& pass : passes) {
    for (int64_t y = pass.first; y < frame.height; y += pass.step) {
      uint8_t* row = indices.data() + static_cast<size_t>(frame.top + y) * width + frame.left;
      for (int64_t x = 0; x < frame.width && more; ++x) more = codes.next(row + x);
    }
  }
  if (codes.is_broken()) throw_damaged_image("gif", where, "its codes are cut or damaged");
  auto colours = colours_of(frame.palette);
  if (alpha == Alpha::kWhite && frame.transparent >= 0)
    colours[static_cast<size_t>(frame.transparent)].fill(255);
  RgbImage image{header.width, header.height, Pixels(std::max(room, 3 * width * height))};
  uint8_t* rgb = image.rgb_hwc.data();
  for (const uint8_t index : indices) rgb = std::ranges::copy(colours[index], rgb).out;
  return image;
}

}  // namespace lft::io
