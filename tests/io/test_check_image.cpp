// check_image agrees with decode_image: for every golden, whole, truncated anywhere and with any
// byte damaged.
#include <gtest/gtest.h>

#include <sstream>

#include "kernels/common/error.h"
#include "src/io/decode/image_decode.h"
#include "src/io/files.h"

namespace lft::check_image_test {
using namespace lft::io;
namespace {

const std::string kImages = LFT_SOURCE_DIR "/tests/goldens/images/";
constexpr ImageLimits kLimits{.max_pixels = 1 << 18};  // a damaged header may claim a large size

/// The size, or the error as text.
template <typename Read>
std::string outcome(const Read& read) {
  try {
    const auto image = read();
    return std::to_string(image.width) + " x " + std::to_string(image.height);
  } catch (const Error& error) {
    return error.info().what + ": " + error.info().found;
  }
}

std::string decoded(const std::string& bytes) {
  return outcome([&] { return decode_image(bytes, "image", kLimits); });
}
std::string checked(const std::string& bytes) {
  return outcome([&] { return check_image(bytes, "image", kLimits); });
}

std::vector<std::string> golden_names() {
  std::istringstream lines(read_file(kImages + "expected.txt"));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);)
    names.push_back(line.substr(0, line.find(' ')));
  return names;
}

TEST(CheckImage, TheSizeAfterRotationOfEveryKind) {
  ASSERT_GT(golden_names().size(), 40u);
  for (const std::string& name : golden_names()) {
    const std::string bytes = read_file(kImages + name);
    EXPECT_EQ(checked(bytes), decoded(bytes)) << name;
    EXPECT_NE(checked(bytes).find(" x "), std::string::npos) << name;
  }
}

TEST(CheckImage, TheErrorsOfEveryCutAndDamagedJpeg) {
  int refused = 0, files = 0;
  for (const std::string& name : golden_names()) {
    if (!name.ends_with(".jpg")) continue;
    ++files;
    const std::string bytes = read_file(kImages + name);
    for (size_t at = 0; at < bytes.size(); ++at) {
      const std::string cut = bytes.substr(0, at);
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at * 7 + at / 8) % 8));
      const std::string expected = decoded(flipped);
      ASSERT_EQ(checked(cut), decoded(cut)) << name << " cut to " << at;
      ASSERT_EQ(checked(flipped), expected) << name << " damaged at " << at;
      refused += expected.find(": ") != std::string::npos;
    }
  }
  EXPECT_GE(files, 15);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lft::check_image_test
