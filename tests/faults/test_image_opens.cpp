// How often a data set opens an image file, counted by the system calls of a traced child.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/fixtures.h"
#include "faults/watched.h"

namespace lft::test::image_opens_test {
namespace {

/// Keeps the size of every image, so that the positions in the text depend on the file's header.
class NativeProcessor : public family::ImageProcessor {
 public:
  family::ImagePlan plan(const image::Size& size) const override {
    return {.shape = {.height = size.height, .width = size.width, .source = size},
            .text = "<image>",
            .runs = {size.width}};
  }
  family::TileImage make(const image::View& image) const override {
    return {.shape = plan({image.width, image.height}).shape,
            .values = std::vector<uint8_t>(static_cast<size_t>(3 * image.width * image.height))};
  }
  int64_t working_bytes(const image::Size&) const override { return 0; }
  std::string token() const override { return "<image>"; }
  nlohmann::json identity() const override { return "native"; }
};

class ImageOpens : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string missing = unwatchable();
    if (!missing.empty()) GTEST_SKIP() << "not watched: " << missing;
    dir_.write("small.bmp", bmp(5, 4, 1));
    dir_.write("large.bmp", bmp(300, 200, 2));  // the header ends long before the file does
    const Json row = {
        {"id", "r"},
        {"image", {"small.bmp", "large.bmp"}},
        {"conversations",
         {{{"from", "human"}, {"value", "<image><image>Q"}}, {{"from", "gpt"}, {"value", "A"}}}}};
    dir_.write("rows.json", Json::array({row}).dump());
  }

  /// The files that a child opens below the image folder while it runs `use` on the data set.
  std::map<std::string, int> opens(const EncodeOptions& options,
                                   const std::function<void(const Dataset&)>& use) const {
    const Watched ran =
        watch({.arguments = {}, .environment = {}, .body = [&] {
                 const ByteTokenizer tokenizer;
                 use(*open_dataset(dir_.file("rows.json"), dir_.path(), tokenizer, options));
               }});
    EXPECT_EQ(ran.code, 0);
    std::map<std::string, int> count;
    for (const FileCall& call : ran.calls) {
      const std::filesystem::path path = call.path;
      if (path.extension() == ".bmp") ++count[path.filename().string()];
    }
    return count;
  }

  static std::vector<EncodeOptions> all_options() {
    std::vector<EncodeOptions> all;
    for (const bool fixed : {true, false}) {
      for (const bool limited : {true, false}) {
        EncodeOptions options = small_options();
        options.max_tokens = 512;
        if (!fixed) options.images = std::make_shared<NativeProcessor>();
        if (limited) options.reading = std::make_shared<ReadingBudget>();
        all.push_back(options);
      }
    }
    return all;
  }

  const TempDir dir_;
};

TEST_F(ImageOpens, ASampleOpensEachOfItsImagesOnce) {
  for (const EncodeOptions& options : all_options()) {
    const auto count = opens(options, [](const Dataset& dataset) {
      for (int step = 0; step < 3; ++step) dataset.get(0);
    });
    EXPECT_EQ(count, (std::map<std::string, int>{{"large.bmp", 3}, {"small.bmp", 3}}));
  }
}

TEST_F(ImageOpens, ALengthOpensEachOfItsImagesOnce) {
  for (const EncodeOptions& options : all_options()) {
    const auto count = opens(options, [](const Dataset& dataset) { dataset.length(0); });
    EXPECT_EQ(count, (std::map<std::string, int>{{"large.bmp", 1}, {"small.bmp", 1}}));
  }
}

}  // namespace
}  // namespace lft::test::image_opens_test
