// PBM, PGM and PPM with PIL's pixels: values are scaled to 255, halves to even; grey with a maximum
// above 255 is scaled to 65535, and results above 255 are white.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/io/decode/decode.h"
#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

class PnmReader {
 public:
  PnmReader(std::string_view bytes, const PnmFields& fields, const std::string& where)
      : data_(slice(bytes, fields.data_at, bytes.size())), fields_(fields), where_(where) {}

  void read(uint8_t* rgb) {
    const size_t copies = fields_.samples == 1 ? 3 : 1;
    for (int64_t y = 0; y < fields_.height; ++y) {
      for (int64_t i = 0; i < fields_.width * fields_.samples; ++i)
        rgb = std::fill_n(rgb, copies, value(y, i));
    }
  }

 private:
  [[noreturn]] void damaged(const std::string& reason) const {
    throw_damaged_image("pnm", where_, reason);
  }
  uint8_t value(int64_t y, int64_t i) {
    if (fields_.most == 1 && fields_.is_bilevel) return bit(y, i) ? 0 : 255;
    const int64_t number = fields_.is_text ? next_number() : next_bytes();
    if (fields_.is_text && number > fields_.most) damaged("a value above its largest one");
    const bool is_deep = fields_.samples == 1 && fields_.most > 255;
    const double most = is_deep ? 65535 : 255;
    const double scaled =
        std::nearbyint(static_cast<double>(number) / static_cast<double>(fields_.most) * most);
    return static_cast<uint8_t>(std::min(scaled, 255.0));
  }
  bool bit(int64_t y, int64_t x) {
    if (fields_.is_text) {
      skip_space();
      const char digit = next_char();
      if (digit != '0' && digit != '1') damaged("a value that is neither 0 nor 1");
      return digit == '1';
    }
    const auto at = static_cast<uint64_t>(y * ((fields_.width + 7) / 8) + x / 8);
    const auto byte = number_at(data_, at, 1, true);
    if (!byte) cut();
    return (*byte >> (7 - x % 8) & 1) != 0;
  }
  int64_t next_bytes() {
    const int size = fields_.most > 255 ? 2 : 1;
    const auto number = number_at(data_, at_, size, true);
    if (!number) cut();
    at_ += static_cast<uint64_t>(size);
    return *number;
  }
  [[noreturn]] void cut() const { damaged("it ends before its last pixel"); }
  char next_char() {
    if (at_ >= data_.size()) cut();
    return data_[at_++];
  }
  void skip_space() {
    for (; at_ < data_.size(); ++at_) {
      if (data_[at_] == '#') at_ = std::min(data_.find_first_of("\r\n", at_), data_.size());
      if (at_ >= data_.size() || !is_pnm_space(data_[at_])) return;
    }
  }
  int64_t next_number() {
    skip_space();
    int64_t number = 0;
    const char* begin = data_.data() + std::min<uint64_t>(at_, data_.size());
    const char* end = data_.data() + data_.size();
    const auto [after, error] = std::from_chars(begin, end, number);
    if (begin == end) cut();
    if (error != std::errc() || number < 0) damaged("a value that is no number");
    at_ += static_cast<uint64_t>(after - begin);
    return number;
  }

  std::string_view data_;
  const PnmFields& fields_;
  const std::string& where_;
  uint64_t at_ = 0;
};

}  // namespace

RgbImage decode_pnm(std::string_view bytes, const ImageHeader& header, const std::string& where,
                    size_t room) {
  const PnmFields fields = pnm_fields(bytes).value();
  const auto pixels = static_cast<size_t>(header.width * header.height);
  RgbImage image{header.width, header.height, Pixels(std::max(room, 3 * pixels))};
  PnmReader(bytes, fields, where).read(image.rgb_hwc.data());
  return image;
}

}  // namespace lft::io
