// The interface of image preprocessing: an image becomes tiles of pixels, and tokens in the text.
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

/// The shape of an image after preprocessing: equal tiles of [3, height, width]. `rows` x `columns`
/// of them form a grid over the image (0: no grid, every tile is a whole image). `source` is the
/// photograph's size, set if the shapes of images differ.
struct ImageShape {
  int64_t tiles = 1, height = 0, width = 0, rows = 0, columns = 0;
  image::Size source = {};
  int64_t values() const { return tiles * 3 * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// The pixels before normalisation, tile after tile: uint8 [tiles, 3, height, width].
struct TileImage {
  ImageShape shape;
  std::vector<uint8_t> values;
};

/// The result of preprocessing, as far as it depends only on the size of the image.
struct ImagePlan {
  ImageShape shape;
  std::string text;             // replaces the image's mark in the text; each image token
                                // in it is expanded to a run of positions
  std::vector<int64_t> runs;    // positions of each image token of `text`, in order
  int64_t tower_positions = 0;  // positions in the vision tower
  int64_t positions() const { return std::accumulate(runs.begin(), runs.end(), int64_t{0}); }
};

/// A recipe's settings for images.
struct ImageRules {
  std::string fit;  // data.image_fit: pad, crop or native, which keeps the aspect ratio
  int64_t min_pixels = 0, max_pixels = 0;  // 0: as in the processor file
};

/// Created by a family for a model's processor file and a recipe's rules. Thread-safe.
class ImageProcessor {
 public:
  virtual ~ImageProcessor() = default;
  /// The processor for a row with this many images. It has the same mean, std and token.
  virtual const ImageProcessor& of_row(size_t /*images*/) const { return *this; }
  /// Throws kInput if an image of this size cannot be processed, mostly because it is too long and
  /// narrow.
  virtual ImagePlan plan(const image::Size& size) const = 0;
  /// The result has the shape given by plan().
  virtual TileImage make(const image::View& image) const = 0;
  /// An upper bound of the memory that make() allocates, without its argument.
  virtual int64_t working_bytes(const image::Size& size) const = 0;
  /// The colour, if the first step is to pad the image to a square. The image may then be passed
  /// already padded.
  virtual std::optional<std::array<uint8_t, 3>> square_colour() const { return std::nullopt; }
  /// The literal that marks an image position in text: "<image>", "<|image_pad|>".
  virtual std::string token() const = 0;
  /// Everything that determines the pixels and the positions. Prepared data with another identity
  /// is rejected.
  virtual nlohmann::json identity() const = 0;
  /// How little of a long and narrow image remains visible, as the end of a sentence; empty if
  /// enough remains.
  virtual std::string narrow(const image::Size& size) const { return {}; }
  /// The shape, if all images have the same one.
  virtual std::optional<ImageShape> fixed_shape() const { return std::nullopt; }

  std::vector<float> mean, std;  // per channel, for pixels from 0 to 1
};

}  // namespace lft::family
