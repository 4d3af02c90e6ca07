#include "src/io/image_boxes.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "src/io/image_bytes.h"

namespace lft::io {
namespace {

using Bytes = std::string_view;

struct Box {
  Bytes type, content;
};

/// Iterates over the boxes. A truncated box has no content.
std::vector<Box> boxes_in(Bytes bytes) {
  std::vector<Box> boxes;
  for (uint64_t at = 0; at + 8 <= bytes.size();) {
    uint64_t size = number_at(bytes, at, 4, true).value_or(0), header = 8;
    if (size == 1) {
      header = 16;
      size = uint64_t{number_at(bytes, at + 8, 4, true).value_or(0)} << 32 |
             number_at(bytes, at + 12, 4, true).value_or(0);
    }
    if (size == 0) size = bytes.size() - at;  // to the end of the file
    if (size < header) break;
    const bool is_whole = size <= bytes.size() - at;
    boxes.push_back(
        {slice(bytes, at + 4, 4), is_whole ? slice(bytes, at + header, size - header) : Bytes()});
    if (!is_whole) break;
    at += size;
  }
  return boxes;
}

Bytes find_box(Bytes bytes, Bytes type) {
  const std::vector<Box> boxes = boxes_in(bytes);
  const auto found = std::ranges::find(boxes, type, &Box::type);
  return found == boxes.end() ? Bytes() : found->content;
}

/// The property numbers, from 1, of an item (ItemPropertyAssociationBox).
std::vector<uint32_t> properties_of(uint32_t item, Bytes associations) {
  const auto number = [&](uint64_t at, int size) {
    return number_at(associations, at, size, true).value_or(0);
  };
  const bool wide_items = number(0, 1) >= 1, wide_numbers = (number(3, 1) & 1) != 0;
  const uint32_t entries = number(4, 4);
  std::vector<uint32_t> found;
  uint64_t at = 8;
  for (uint32_t i = 0; i < entries && at < associations.size(); ++i) {
    const bool is_item = number(at, wide_items ? 4 : 2) == item;
    at += wide_items ? 4 : 2;
    const uint32_t count = number(at++, 1);
    for (uint32_t k = 0; k < count; ++k, at += wide_numbers ? 2 : 1) {
      if (is_item)
        found.push_back(number(at, wide_numbers ? 2 : 1) & (wide_numbers ? 0x7fff : 0x7f));
    }
  }
  return found;
}

/// The orientation for a counter-clockwise rotation by `angle` quarter turns, then a mirror (0:
/// none, 1 and 2: axis 0 and 1).
int orientation_of_turn(uint32_t angle, size_t mirror) {
  constexpr std::array<std::array<int, 3>, 4> kOrientations = {
      {{1, 4, 2}, {8, 5, 7}, {3, 2, 4}, {6, 7, 5}}};  // by angle: none, axis 0, axis 1
  return kOrientations[angle & 3][mirror];
}

/// Crops to the clean aperture if its sides are whole numbers.
void crop(Bytes clean, BoxedImage& image) {
  const auto side = [&](uint64_t at) {
    const uint32_t over = number_at(clean, at + 4, 4, true).value_or(0);
    return over == 0 ? 0 : number_at(clean, at, 4, true).value_or(0) / over;
  };
  if (side(0) > 0) image.width = side(0);
  if (side(8) > 0) image.height = side(8);
}

bool has_brand(Bytes bytes, std::initializer_list<Bytes> brands) {
  const uint64_t size = number_at(bytes, 0, 4, true).value_or(0);
  const Bytes type = slice(bytes, 8, std::max<uint64_t>(size, 8) - 8);
  for (uint64_t at = 0; at + 4 <= type.size(); at += at == 0 ? 8 : 4) {
    if (std::ranges::find(brands, type.substr(at, 4)) != brands.end()) return true;
  }
  return false;
}

bool is_avif(Bytes bytes) { return has_brand(bytes, {"avif", "avis"}); }

}  // namespace

bool is_boxed_image(Bytes bytes) {
  return slice(bytes, 4, 4) == "ftyp" &&
         (is_avif(bytes) || has_brand(bytes, {"heic", "heix", "hevc", "hevx", "heim", "heis",
                                              "hevm", "hevs", "mif1", "msf1"}));
}

std::optional<BoxedImage> boxed_image(Bytes bytes) {
  const Bytes meta = slice(find_box(bytes, "meta"), 4, bytes.size());
  const Bytes primary = find_box(meta, "pitm"), properties = find_box(meta, "iprp");
  const bool is_wide = number_at(primary, 0, 1, true).value_or(0) > 0;
  const auto item = number_at(primary, 4, is_wide ? 4 : 2, true);
  if (!item) return std::nullopt;
  const std::vector<Box> kinds = boxes_in(find_box(properties, "ipco"));
  BoxedImage image{.is_avif = is_avif(bytes)};
  uint32_t angle = 0;
  size_t mirror = 0;
  for (const uint32_t number : properties_of(*item, find_box(properties, "ipma"))) {
    if (number < 1 || number > kinds.size()) continue;
    const auto& [type, content] = kinds[number - 1];
    if (type == "ispe") {
      image.width = number_at(content, 4, 4, true).value_or(0);
      image.height = number_at(content, 8, 4, true).value_or(0);
    }
    if (type == "clap" && !image.is_avif) crop(content, image);
    if (type == "irot") angle = number_at(content, 0, 1, true).value_or(0);
    if (type == "imir") mirror = 1 + (number_at(content, 0, 1, true).value_or(0) & 1);
  }
  if (image.width == 0 || image.height == 0) return std::nullopt;
  if (image.is_avif) image.orientation = orientation_of_turn(angle, mirror);
  if (!image.is_avif && angle % 2 == 1) std::swap(image.width, image.height);
  const Bytes items = find_box(meta, "iinf");
  image.has_exif = items.find("Exif") != Bytes::npos;
  image.has_xmp = items.find("application/rdf+xml") != Bytes::npos;
  for (const Bytes alpha :
       {"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", "urn:mpeg:hevc:2015:auxid:1"})
    image.has_alpha |= properties.find(alpha) != Bytes::npos;
  return image;
}

}  // namespace lft::io
