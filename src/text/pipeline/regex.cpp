#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/text/pipeline/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/error.h"

namespace lft::text {
namespace {

constexpr size_t kMaxPattern = 64 << 10;

[[noreturn]] void bad_pattern(const std::string& where, const std::string& pattern,
                              const std::string& why) {
  refuse(ErrorKind::kInput, "unsupported regular expression: " + why, where, pattern,
         "a pattern that PCRE2 and Oniguruma read alike",
         "write the pattern otherwise where that means the same, or take another model");
}

/// PCRE2's \s also matches U+180E, otherwise it equals Oniguruma's; it is spelled out here. \h is a
/// hex digit in Oniguruma and a blank in PCRE2.
std::string translate(const std::string& pattern, const std::string& where) {
  static const std::string kSpace = "\\x09-\\x0d\\x{85}\\p{Z}";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 'h' || escaped == 'H') bad_pattern(where, pattern, "\\h");
      // In a group called by a lookbehind, it would let a match begin before the start of the
      // search.
      if (escaped == 'K') bad_pattern(where, pattern, "\\K");
      if (escaped == 'S' && in_class) bad_pattern(where, pattern, "\\S inside [...]");
      if (escaped == 's')
        out += in_class ? kSpace : "[" + kSpace + "]";
      else if (escaped == 'S')
        out += "[^" + kSpace + "]";
      else
        out += {'\\', escaped};
      continue;
    }
    if (in_class && c == '[') bad_pattern(where, pattern, "[ inside [...]");
    if (in_class && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&')
      bad_pattern(where, pattern, "&& inside [...]");
    if (!in_class && c == '[') {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']')
        bad_pattern(where, pattern, "] first in [...]");
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct Free {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

/// A pattern may backtrack over the whole text once or twice, but not try every partition of it.
uint32_t step_limit(std::string_view text) {
  return uint32_t(std::min<uint64_t>(10'000'000 + 8 * uint64_t(text.size()), UINT32_MAX));
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string where, pattern;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, const std::string& where)
    : code_(std::make_unique<Code>()) {
  if (pattern.empty() || pattern.size() > kMaxPattern)
    bad_pattern(where, pattern.substr(0, 80), "empty or too long");
  const std::string translated = translate(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->where = where;
  code_->pattern = pattern;
  code_->code =
      pcre2_compile(PCRE2_SPTR(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code_->code == nullptr) {
    unsigned char message[256];
    pcre2_get_error_message(error, message, sizeof message);
    bad_pattern(where, pattern, reinterpret_cast<const char*>(message));
  }
  pcre2_jit_compile(code_->code,
                    PCRE2_JIT_COMPLETE);  // without JIT support the interpreter is used
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::vector<ByteRange> Regex::find_all(std::string_view text) const {
  std::vector<ByteRange> out;
  const std::unique_ptr<pcre2_match_data, Free> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), step_limit(text));
  for (size_t pos = 0; pos < text.size();) {
    const auto subject = PCRE2_SPTR(text.data());
    int rc = pcre2_match(code_->code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) bad_pattern(code_->where, code_->pattern, "matching it takes too long");
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
    if (found[1] > found[0]) out.push_back({uint32_t(found[0]), uint32_t(found[1])});
    pos = found[1] > found[0] ? found[1]
                              : found[1] + utf8_length(text, std::min(found[1], text.size() - 1));
  }
  return out;
}

}  // namespace lft::text
