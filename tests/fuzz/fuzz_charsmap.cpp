// A tokenizer.model, as far as its rules of normalisation go.
#include "src/text/charsmap.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {

bool charsmap(std::string_view bytes) {
  std::string fault;
  return reads(ErrorKind::kInternal, [&] { fault = text::charsmap_fault(bytes); }) && fault.empty();
}

}  // namespace lft::fuzz
