// Decodes image files for test_pillow_images.py: image_driver FILE... prints a line per file, its
// width, height and the SHA-256 of its RGB pixels, or "refused" and the error.
#include <iostream>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/io/decode/image_decode.h"
#include "src/io/files.h"

int main(int count, char** files) {
  for (int i = 1; i < count; ++i) {
    try {
      const lft::io::RgbImage image = lft::io::decode_image(lft::io::read_file(files[i]), files[i]);
      const std::string_view pixels(reinterpret_cast<const char*>(image.rgb_hwc.data()),
                                    image.rgb_hwc.size());
      std::cout << image.width << ' ' << image.height << ' ' << lft::sha256(pixels) << '\n';
    } catch (const lft::Error& error) {
      std::string text = lft::format_error(error);
      for (char& each : text) each = each == '\n' ? ' ' : each;
      std::cout << "refused " << text << '\n';
    }
  }
}
