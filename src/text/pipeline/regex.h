// Regular expressions of tokenizer files (Oniguruma's dialect as the tokenizers library reads it)
// through PCRE2. Not for user input.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/pipeline/aligned.h"

namespace lft::text {

class Regex {
 public:
  /// Throws kInput, naming `where`, for a pattern that does not compile or has another meaning in
  /// PCRE2.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  /// Non-overlapping matches, left to right, without empty ones. `text` is valid UTF-8.
  /// Thread-safe.
  std::vector<ByteRange> find_all(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace lft::text
