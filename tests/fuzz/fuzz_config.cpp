#include "models/registry/registry.h"
#include "src/io/json.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
using namespace lft::family;

bool config(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const ModelConfig read =
        registry::parse_config(parse_json(bytes, "config.json"), "config.json");
    expect(read.text.hidden > 0 && read.text.heads % read.text.kv_heads == 0,
           "heads that share keys evenly");
    expect(!read.family->fingerprint(read).empty(), "a fingerprint");
    if (read.text.layers > 64) return;  // the tensor names take a long time and show nothing new
    expect(!read.family->layout(read).tensors.empty(), "tensors of a shape each");
    expect(reference_image_plan(read).positions() > 0, "an image has positions");
  });
}

}  // namespace lft::fuzz
