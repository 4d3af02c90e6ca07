// Parts of HTML pages that work offline: escaped text and embedded images.
#pragma once
#include <string>

namespace lft::report {

/// Escapes text for element content and for attributes in double quotes.
std::string html_text(const std::string& text);
/// PNG or JPEG bytes as a data: URL, otherwise "".
std::string image_url(const std::string& image);

}  // namespace lft::report
