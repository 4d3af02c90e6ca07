// Base64 (RFC 4648), by OpenSSL.
#pragma once
#include <string>
#include <string_view>

namespace lft {

/// With padding and without line breaks.
std::string base64_encode(std::string_view bytes);

}  // namespace lft
