// What a family makes of a photograph: which tiles of pixels, and which tokens in the text.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "models/image/image.h"

namespace lft::family {

/// An image as the model reads it: equal tiles of [3, height, width]. `rows` x `columns` of them
/// are a grid over the image (0: no grid, the tiles are whole images); `source` is the photograph's
/// own size, where not all images have one shape.
struct ImageShape {
  int64_t tiles = 1, height = 0, width = 0, rows = 0, columns = 0;
  image::Size source = {};
  int64_t values() const { return tiles * 3 * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Its pixels before normalisation, tile after tile: uint8 [tiles, 3, height, width].
struct TileImage {
  ImageShape shape;
  std::vector<uint8_t> values;
};

/// What is known of an image from its size alone.
struct ImagePlan {
  ImageShape shape;
  std::string text;             // stands in the text in the place of the image's mark; each
                                // image token in it stands for a run of positions
  std::vector<int64_t> runs;    // positions of each image token of `text`, in order
  int64_t tower_positions = 0;  // that the vision tower computes with
  int64_t positions() const { return std::accumulate(runs.begin(), runs.end(), int64_t{0}); }
};

/// What a recipe says of images.
struct ImageRules {
  std::string fit;  // data.image_fit: pad, crop, or native for a family that keeps the image's form
  int64_t min_pixels = 0, max_pixels = 0;  // 0: the processor's own
};

/// Made by a family for a model's processor file and a recipe's rules. Its functions may be called
/// by several threads at once.
class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;
  /// What makes the images of a row that shows so many. Its mean, std and token are this one's.
  virtual const ImageProcessor& of_row(size_t /*images*/) const { return *this; }
  /// kInput where an image of this size cannot be fitted: too long and narrow, mostly.
  virtual ImagePlan plan(const image::Size& size) const = 0;
  /// Of the shape that plan() says.
  virtual TileImage make(const image::View& image) const = 0;
  /// Bytes that make() holds at the most, beside the image that it is given.
  virtual int64_t working_bytes(const image::Size& size) const = 0;
  /// Where the first thing done is to pad the image to a square: its colour. The image may then be
  /// given with the padding on.
  virtual std::optional<std::array<uint8_t, 3>> square_colour() const { return std::nullopt; }
  /// The literal that marks an image position in text: "<image>", "<|image_pad|>".
  virtual std::string token() const = 0;
  /// Everything that decides the pixels and the positions: prepared data of another is refused.
  virtual nlohmann::json identity() const = 0;
  /// What is left of a long and narrow image that is hardly seen, as the end of a sentence; empty
  /// where enough is.
  virtual std::string narrow(const image::Size& size) const { return {}; }
  /// Where every image has one shape: that shape.
  virtual std::optional<ImageShape> fixed_shape() const { return std::nullopt; }

  std::vector<float> mean, std;  // of three channels, of pixels from 0 to 1
};

}  // namespace lft::family
