#include "models/llava/config.h"
#include "src/io/json.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
using namespace lft::llava;

bool config(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const LlavaConfig read = LlavaConfig::parse(parse_json(bytes, "config.json"), "config.json");
    expect(read.image_positions() > 0, "an image has positions");
    expect(read.text.hidden > 0 && read.text.heads % read.text.kv_heads == 0,
           "heads that share keys evenly");
  });
}

}  // namespace lft::fuzz
