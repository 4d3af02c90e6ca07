// Pieces of pages that work offline: escaped text and embedded images.
#pragma once
#include <string>

namespace lft::report {

/// For element content and for attributes in double quotes.
std::string html_text(const std::string& text);
/// PNG or JPEG bytes as a data: URL; "" for none.
std::string image_url(const std::string& image);

}  // namespace lft::report
