// The error of a client's request.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace lft::serve {

/// OpenAI's names of errors, in error.code.
namespace code {
inline constexpr const char* kMissing = "missing_required_parameter";
inline constexpr const char* kType = "invalid_type";
inline constexpr const char* kValue = "invalid_value";
inline constexpr const char* kUnsupported = "unsupported_parameter";
inline constexpr const char* kTooLong = "context_length_exceeded";
inline constexpr const char* kNoModel = "model_not_found";
inline constexpr const char* kNoPath = "unknown_url";
inline constexpr const char* kMethod = "method_not_supported";
inline constexpr const char* kKey = "invalid_api_key";
inline constexpr const char* kRate = "rate_limit_exceeded";
}  // namespace code

/// The response is a 400, or `status`. `field` is the field of the request, or empty; `code` is one
/// of the names above, or empty.
class BadRequest : public std::runtime_error {
 public:
  BadRequest(const std::string& message, std::string field, std::string code = {}, int status = 400)
      : std::runtime_error(message),
        field(std::move(field)),
        code(std::move(code)),
        status(status) {}
  const std::string field, code;
  const int status;
};

}  // namespace lft::serve
