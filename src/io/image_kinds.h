// Formats that are known by their first bytes and not read, by name.
#pragma once
#include <string>
#include <string_view>

namespace lft::io {

/// Throws kInput: the name of the format, where these are the first bytes of a known one, else the
/// bytes themselves.
[[noreturn]] void refuse_unread_kind(std::string_view bytes, const std::string& where);

}  // namespace lft::io
