// {"config": a model's config.json, "processor": its image processor's file}.
#include "models/registry/registry.h"
#include "src/io/json.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
using namespace lft::family;

bool processor(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const Json both = parse_json(bytes, "x");
    if (!both.is_object() || !both.contains("config") || !both.contains("processor") ||
        !both["processor"].is_object())
      throw Error(ErrorKind::kInput, "not a config and a processor");
    const Json& file = both["processor"];
    const ModelConfig config = registry::parse_config(both["config"], "config.json");
    std::vector<std::string> notices;
    const auto read = config.family->image_processor(
        config, {.json = file, .where = "processor.json", .folder = "."},
        {.fit = config.family->defaults(config, file).image_fit}, &notices);
    for (const image::Size size : {image::Size{640, 480}, {1, 1}, {30, 3000}}) {
      reads(ErrorKind::kInput, [&] {  // some shapes are refused
        const ImagePlan plan = read->plan(size);
        expect(plan.positions() > 0 && plan.shape.values() > 0, "an image has positions");
      });
    }
  });
}

}  // namespace lft::fuzz
