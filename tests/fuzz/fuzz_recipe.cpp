#include "src/recipe/recipe.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::recipe;

bool recipe(std::string_view bytes) {
  Recipe read;
  if (!reads(ErrorKind::kUsage, [&] { read = parse_recipe(std::string(bytes), "recipe.yaml"); }))
    return false;
  const std::string dump = dump_recipe(read);
  std::string again;
  expect(reads(ErrorKind::kUsage, [&] { again = dump_recipe(parse_recipe(dump, "dump.yaml")); }) &&
             again == dump,
         "the resolved copy reads back");
  return true;
}

}  // namespace lft::fuzz
