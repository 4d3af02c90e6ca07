// Names of unsupported formats by their first bytes.
#pragma once
#include <string>
#include <string_view>

namespace lft::io {

/// Throws kInput with the name of the format if these are the first bytes of a known one, otherwise
/// with the bytes.
[[noreturn]] void refuse_unread_kind(std::string_view bytes, const std::string& where);

}  // namespace lft::io
