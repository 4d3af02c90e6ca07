#include "src/io/json.h"
#include "support/llava.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;

bool config(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const family::ModelConfig read =
        llava::parse_llava(parse_json(bytes, "config.json"), "config.json");
    expect(test::positions_of(read) > 0, "an image has positions");
    expect(read.text.hidden > 0 && read.text.heads % read.text.kv_heads == 0,
           "heads that share keys evenly");
  });
}

}  // namespace lft::fuzz
